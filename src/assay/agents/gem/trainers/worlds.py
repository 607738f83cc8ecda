"""Small worlds to train in on a processor: environments, what is shown of them, and what can be said in them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from assay.agents.gem.env import Env, EnvError
from assay.agents.gem.episodes import built
from assay.agents.gem.trainers.policies import ActionPolicy, CharPolicy
from assay.agents.gem.wrappers import ObservationWrapper

UNREADABLE = "I do not know."
"""A reply without a box: learning to write one is part of the task."""

_DIRECTIONS = ("up", "down", "left", "right")


def world(env: str, history: int | None = None) -> Env:
    """An environment that shows observations so far and its board.

    Parameters
    ----------
    env
        Id, with settings if wanted (``id?key=value``).
    history
        Observations shown before the current one; None = as many as the game needs (all where the board does not say
        everything).
    """
    made = built(env)
    kept = history if history is not None else (None if type(made).__name__ in _BLIND else 0)
    return ObservationWrapper(made, include_action=False, include_chat_template=False, max_history_length=kept)


_BLIND = ("GuessTheNumber", "Mastermind")
"""Games whose board does not hold what was learnt."""


def replies(env: str) -> list[str]:
    """What can be said in an environment, for `ActionPolicy`.

    Raises
    ------
    EnvError
        There is no list for it.
    """
    with built(env) as made:
        return [*(f"\\boxed{{{content}}}" for content in _contents(made)), UNREADABLE]


def _contents(env: Env) -> Sequence[str]:
    kind = type(env).__name__
    if kind == "GuessTheNumber":
        return [str(n) for n in range(env.min_number, env.max_number + 1)]  # type: ignore[attr-defined]
    if kind == "TowerOfHanoi":
        return [f"{a} {b}" for a, b in itertools.permutations("ABC", 2)]
    if kind in ("Game2048", "Sokoban", "FifteenPuzzle"):
        return list(_DIRECTIONS)
    if kind == "Minesweeper":
        return [f"reveal {r} {c}" for r in range(env.rows) for c in range(env.cols)]  # type: ignore[attr-defined]
    if kind == "Mastermind":
        digits = [str(d) for d in range(1, env.num_numbers + 1)]  # type: ignore[attr-defined]
        return [" ".join(code) for code in itertools.permutations(digits, env.code_length)]  # type: ignore[attr-defined]
    if kind == "ReasoningGymEnv":
        answers = [str(env.rows[at]["answer"]) for at in range(len(env))]  # type: ignore[attr-defined]
        found = sorted(set(answers), key=lambda answer: (-answers.count(answer), answer))
        if len(found) <= 32:
            return found
    raise EnvError(
        f"There is no list of replies for {env.name}; take GuessTheNumber, TowerofHanoi, Game2048, Sokoban, "
        "FifteenPuzzle, Minesweeper, Mastermind, or a Reasoning Gym set with at most 32 different answers."
    )


def new_policy(kind: str, envs: str | Sequence[str], seed: int) -> ActionPolicy | CharPolicy:
    """A fresh policy for an environment, or for several: ``action`` or ``char`` (digits, for games of one number)."""
    if kind == "char":
        return CharPolicy("0123456789", max_tokens=4, seed=seed)
    said = [reply for env in ([envs] if isinstance(envs, str) else envs) for reply in replies(env)]
    return ActionPolicy(list(dict.fromkeys(said)), seed=seed)
