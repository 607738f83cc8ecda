"""What console games share: the thirteen button names, ``(name,frames)`` actions, progress as score."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from assay.agents.lmgame.games.engine import Engine, Played

# Buttons of a NES controller in stable-retro's order; the second has no name.
NES_BUTTONS = ("B", None, "SELECT", "START", "UP", "DOWN", "LEFT", "RIGHT", "A")
ACTIONS: dict[str, frozenset[str]] = {
    "noop": frozenset(),
    "right": frozenset({"RIGHT"}),
    "right_a": frozenset({"RIGHT", "A"}),
    "right_b": frozenset({"RIGHT", "B"}),
    "right_a_b": frozenset({"RIGHT", "A", "B"}),
    "a": frozenset({"A"}),
    "b": frozenset({"B"}),
    "left": frozenset({"LEFT"}),
    "left_a": frozenset({"LEFT", "A"}),
    "left_b": frozenset({"LEFT", "B"}),
    "left_a_b": frozenset({"LEFT", "A", "B"}),
    "down": frozenset({"DOWN"}),
    "up": frozenset({"UP"}),
}
MAX_FRAMES = 600
_ACTION = re.compile(r"[(\[]?\s*['\"]?([a-z_]+)['\"]?\s*(?:,\s*(\d+)\s*)?[)\]]?")


def button_vector(buttons: frozenset[str]) -> list[int]:
    """The nine-button vector of stable-retro."""
    return [int(name in buttons) for name in NES_BUTTONS]


class ConsoleEngine(Engine):
    """A side-scroller that is played in frames.

    An action ``(name,frames)`` (frames 1 when left out, at most 600) is preceded by one frame without buttons. Reward
    and perf_score: how far the picture scrolled beyond the furthest x so far; score: the furthest x. The game is over
    when no life is left or the level is finished.

    Parameters
    ----------
    paper_compatible : bool
        x = xscrollLo + 255 * xscrollHi as in the published code, instead of 256.
    """

    actions = tuple(ACTIONS)
    stuck_limit: ClassVar[int] = 100
    max_steps: ClassVar[int | None] = 3000
    default_mode: ClassVar[str] = "vision"

    def __init__(self, paper_compatible: bool = False) -> None:
        self.page = 255 if paper_compatible else 256
        self.furthest = 0

    def reset(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.furthest = 0
        self.start()

    def parse(self, action: str, mapping: Mapping[str, Any] | None = None) -> tuple[frozenset[str], int] | None:
        found = _ACTION.fullmatch(action.strip().lower())
        if not found:
            return None
        name, frames = found[1], min(int(found[2]), MAX_FRAMES) if found[2] else 1
        if mapping is not None:
            vector = mapping.get(name)
            if not isinstance(vector, list) or len(vector) != len(NES_BUTTONS):
                return None
            return frozenset(button for button, on in zip(NES_BUTTONS, vector) if on and button), frames
        return (ACTIONS[name], frames) if name in ACTIONS else None

    def play(self, command: tuple[frozenset[str], int]) -> Played:
        buttons, frames = command
        before = self.furthest
        for high, low in self.run([frozenset(), *[buttons] * frames]):
            self.furthest = max(self.furthest, low + self.page * high)
        gained = float(self.furthest - before)
        return Played(gained, gained, ended=self.over)

    def random_action(self, rng: np.random.Generator) -> str:
        """A button name and 1 to 30 frames, uniformly."""
        return f"({self.actions[int(rng.integers(len(self.actions)))]},{int(rng.integers(1, 31))})"

    @property
    def score(self) -> float:
        return float(self.furthest)

    def info(self) -> dict[str, Any]:
        return {**self.memory(), "finished": self.finished}

    @abstractmethod
    def start(self) -> None:
        """Begin the game."""

    @abstractmethod
    def run(self, frames: Sequence[frozenset[str]]) -> Iterable[tuple[int, int]]:
        """Play frames with these buttons held, until the game is over; (xscrollHi, xscrollLo) after each."""

    @abstractmethod
    def memory(self) -> dict[str, int]:
        """score, lives, xscrollHi, xscrollLo, levelHi, levelLo, time, coins."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """No life is left, or the level is finished."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """The level's end was reached."""
