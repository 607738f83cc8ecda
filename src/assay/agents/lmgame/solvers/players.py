"""Players by name: what plays a game without a language model, and the loop that lets them play."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from assay.agents.lmgame.env import GameEnv
from assay.core.errors import UsageError, unknown_name


class Player(Protocol):
    """Chooses an action with the engine in view."""

    def act(self, env: GameEnv) -> str:
        """The next action."""
        ...


@dataclass
class RandomPlayer:
    """Uniformly random actions, from a generator of its own."""

    rng: np.random.Generator

    def act(self, env: GameEnv) -> str:
        return env.engine.random_action(self.rng)


@dataclass
class NoisyPlayer:
    """Plays as another does, but a random action with probability ``error``: a player of known skill.

    Parameters
    ----------
    player : Player
        Whom it follows.
    error : float
        Between 0 and 1.
    rng : Generator
        Decides when to err, and how.
    """

    player: Player
    error: float
    rng: np.random.Generator

    def act(self, env: GameEnv) -> str:
        if self.rng.random() < self.error:
            return env.engine.random_action(self.rng)
        return self.player.act(env)


@dataclass
class TerminalPlayer:
    """A person at the terminal: sees the text, types the action."""

    read: Callable[[str], str] = input
    write: Callable[[str], None] = print

    def act(self, env: GameEnv) -> str:
        self.write(env.text())
        shown = ", ".join(env.actions[:13]) + (", ..." if len(env.actions) > 13 else "")
        while not (action := self.read(f"Action ({shown}): ").strip()):
            self.write("Type an action.")
        return action


class FunctionPlayer:
    """A player that is a function of the engine."""

    def __init__(self, function: Callable[[Any], str]) -> None:
        self.function = function

    def act(self, env: GameEnv) -> str:
        return self.function(env.engine)


def _2048(choose: Callable[[int], int | None]) -> FunctionPlayer:
    from assay.agents.lmgame.games.twenty_forty_eight import ACTIONS

    return FunctionPlayer(lambda engine: ACTIONS[choose(engine.board) or 0])


def _expectimax(seed: int) -> Player:
    from assay.agents.lmgame.solvers.puzzle import expectimax

    return _2048(expectimax)


def _greedy_2048(seed: int) -> Player:
    from assay.agents.lmgame.solvers.puzzle import greedy_2048

    return _2048(greedy_2048)


def _beam(seed: int) -> Player:
    from assay.agents.lmgame.solvers.puzzle import beam_tetris

    return FunctionPlayer(beam_tetris)


def _greedy_tetris(seed: int) -> Player:
    from assay.agents.lmgame.solvers.puzzle import beam_tetris

    return FunctionPlayer(lambda engine: beam_tetris(engine, width=1, depth=1))


def _astar(seed: int) -> Player:
    from assay.agents.lmgame.solvers.puzzle import SokobanPlan

    return FunctionPlayer(SokobanPlan().next)


def _cascade(seed: int) -> Player:
    from assay.agents.lmgame.solvers.puzzle import best_swap

    return FunctionPlayer(lambda engine: best_swap(engine, follow=True))


def _greedy_candy(seed: int) -> Player:
    from assay.agents.lmgame.solvers.puzzle import best_swap

    return FunctionPlayer(lambda engine: best_swap(engine, follow=False))


def _runner(seed: int) -> Player:
    from assay.agents.lmgame.solvers.runner import Runner

    runner = Runner()

    def act(engine: Any) -> str:
        name, frames = runner.next(engine.world)
        return f"({name},{frames})"

    return FunctionPlayer(act)


def _walker(seed: int) -> Player:
    from assay.agents.lmgame.solvers.case_walker import next_action

    return FunctionPlayer(next_action)


def _random(seed: int) -> Player:
    return RandomPlayer(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))))


_PLAYERS: dict[str, dict[str, Callable[[int], Player]]] = {
    "sokoban": {"astar": _astar},
    "twenty_forty_eight": {"greedy": _greedy_2048, "expectimax": _expectimax},
    "candy_crush": {"greedy": _greedy_candy, "cascade": _cascade},
    "tetris": {"greedy": _greedy_tetris, "beam": _beam},
    "platformer": {"runner": _runner},
    "courtroom": {"walker": _walker},
}


def players(game: str) -> list[str]:
    """Names of the players of a game, "random" first; the last is its strongest and also goes by "expert"."""
    return ["random", *_PLAYERS.get(game, {})]


def make_player(game: str, name: str, seed: int = 0) -> Player:
    """A player of a game by name: one of `players`, "expert", "noisy:ERROR" (an expert that errs), or "human".

    Raises
    ------
    UsageError
        The game has no such player.
    """
    own = {"random": _random, **_PLAYERS.get(game, {})}
    if name == "human":
        return TerminalPlayer()
    if name.startswith("noisy:"):
        try:
            error = float(name.removeprefix("noisy:"))
        except ValueError:
            error = -1.0
        if not 0 <= error <= 1:
            raise UsageError(f"player {name!r}: the error is a number from 0 to 1, as in 'noisy:0.3'.")
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        return NoisyPlayer(make_player(game, "expert", seed), error, rng)
    if name == "expert":
        name = list(own)[-1]
    if name not in own:
        raise unknown_name(f"player of {game}", name, [*own, "expert", "noisy:0.3", "human"])
    return own[name](seed)


@dataclass(frozen=True)
class Played:
    """A finished episode: score in the game's unit, reported score, steps, how it ended."""

    score: float
    reported: float
    steps: int
    end: str


def play(env: GameEnv, player: Player, *, seed: int | None = None, max_steps: int | None = None) -> Played:
    """Let a player play one episode.

    ``max_steps`` bounds the loop beside the environment's own limit (the loop's end is "step limit").
    """
    if max_steps is not None and max_steps < 1:
        raise UsageError(f"max_steps is {max_steps}; give at least 1 or None.")
    _, info = env.reset(seed)
    over = False
    while not over and (max_steps is None or env.steps < max_steps):
        _, _, terminated, truncated, info = env.step(player.act(env))
        over = terminated or truncated
    return Played(env.score, info["reported_score"], env.steps, info["end"] or "step limit")
