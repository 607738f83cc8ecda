"""What the games have in common: levels, the boxed action, rewards for bad ones, the public view."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from assay.agents.gem.env import Env, EnvError, Turn
from assay.core.errors import unknown_name

SUCCESS_REWARD = 1.0
STEP_REWARD = 0.0
FAIL_REWARD = 0.0
INVALID_REWARD = 0.0
FORMAT_ERROR_REWARD = -0.1


class Move(NamedTuple):
    """What a readable action led to. ``valid`` is False when it is against the rules and changed nothing."""

    text: str
    reward: float = STEP_REWARD
    ended: bool = False
    solved: bool = False
    valid: bool = True


def invalid(text: str) -> Move:
    """A move against the rules: costs a turn, changes nothing."""
    return Move(text, INVALID_REWARD, valid=False)


def boxed(content: str) -> re.Pattern[str]:
    """Pattern of ``\\boxed{...}`` around a pattern of its content."""
    return re.compile(rf"\\boxed\{{(?:{content})\}}", re.ASCII)


class Game(Env, ABC):
    """A game in turns. The action is the last box in the text whose content the game can read.

    Info holds ``suffix`` (the board, for the end of a prompt), ``solved`` (the goal is reached), ``valid`` (the action
    was a move by the rules) and ``format_error`` (no box could be read: reward -0.1 and the end).

    Parameters
    ----------
    level
        Name of a level in ``levels``, or ``random``: one of them is drawn at each reset.
    settings
        Single numbers of the level to replace, ``max_turns`` among them.
    """

    levels: ClassVar[Mapping[str, Mapping[str, Any]]]
    pattern: ClassVar[re.Pattern[str]]
    answer_hint: ClassVar[str]
    """How to write an action, shown to the player."""
    solved: bool = False
    max_turns: int

    def __init__(
        self, level: str = "easy", *, strict_gymnasium: bool = False, seed_global: bool = False, **settings: Any
    ) -> None:
        super().__init__(strict_gymnasium=strict_gymnasium, seed_global=seed_global)
        if level != "random" and level not in self.levels:
            raise EnvError(str(unknown_name(f"level of {type(self).__name__}", level, [*self.levels, "random"])))
        known = next(iter(self.levels.values()))
        for name in settings:
            if name not in known:
                raise EnvError(str(unknown_name(f"setting of {type(self).__name__}", name, known)))
        self.level = level
        self._settings = settings
        self._set_up(level if level != "random" else next(iter(self.levels)))

    def _set_up(self, level: str) -> None:
        for name, value in {**self.levels[level], **self._settings}.items():
            setattr(self, name, value)
        limit = self.max_turns
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise EnvError(f"max_turns of {self.name} is {limit!r}; it must be an integer from 1.")
        self.check()

    def check(self) -> None:
        """Raise `EnvError` where the settings make no game."""

    def require(self, fine: bool, what: str) -> None:
        """Raise `EnvError` with what must hold, unless it does."""
        if not fine:
            raise EnvError(f"{self.name}: {what}.")

    # -- what a game defines ----------------------------------------------------------------------------------------

    @abstractmethod
    def deal(self) -> None:
        """Set the attributes in ``saved`` for a new game, drawn from ``self.rng``."""

    @abstractmethod
    def rules(self) -> str:
        """What the player is told at the beginning."""

    @abstractmethod
    def board(self) -> str:
        """What the player sees now; empty where there is nothing to see."""

    @abstractmethod
    def play(self, box: re.Match[str]) -> Move:
        """One readable action."""

    @abstractmethod
    def view(self) -> dict[str, Any]:
        """What the player may know, as plain values: solvers see this and nothing else."""

    def unreadable(self) -> Move:
        """What follows when no box can be read: -0.1 and the end."""
        return Move(f"No action could be read. {self.answer_hint}", FORMAT_ERROR_REWARD, ended=True, valid=False)

    def limit_reward(self) -> float:
        """Reward for what was reached when the turns are used up; added to that of the last move."""
        return FAIL_REWARD

    # -- the interface ----------------------------------------------------------------------------------------------

    def begin(self) -> tuple[str, dict[str, Any]]:
        if self.level == "random":
            names = list(self.levels)
            self._set_up(names[self.draw(len(names))])
        self.solved = False
        self.deal()
        return f"{self.rules()}\n{self.answer_hint}", self._info(Move(""))

    def act(self, action: str) -> Turn:
        box = None
        for box in self.pattern.finditer(action):  # noqa: B007 - the last one counts
            pass
        if box is None:
            move = self.unreadable()
            return Turn(move.text, move.reward, move.ended, self._info(move, True), True)
        move = self.play(box)
        self.solved = move.solved
        return Turn(move.text, move.reward, move.ended or move.solved, self._info(move))

    def at_limit(self, turn: Turn) -> Turn:
        text = f"{turn.observation} The turns are used up."
        return turn._replace(observation=text, reward=turn.reward + self.limit_reward())

    def _info(self, move: Move, format_error: bool = False) -> dict[str, Any]:
        return {
            "suffix": self.board(),
            "solved": move.solved,
            "valid": move.valid,
            "format_error": format_error,
        }

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        state["settings"] = {name: getattr(self, name) for name in next(iter(self.levels.values()))}
        state["solved"] = self.solved
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        for name, value in state.get("settings", {}).items():
            if name in next(iter(self.levels.values())):
                setattr(self, name, value)
        self.solved = bool(state.get("solved"))
        super().set_state(state)
