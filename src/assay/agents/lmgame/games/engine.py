"""What an engine is: the rules of one game, apart from observations, limits and the stuck rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASK = (1 << 64) - 1


@dataclass(slots=True)
class Played:
    """What one action did.

    Attributes
    ----------
    reward : float
        Reward of the step, by the game's rules.
    perf : float
        The sixth value of a step (`perf_score`), by the game's rules: see each engine.
    ended : bool
        The game is over.
    known : bool
        The action was one of the game's; False when it was refused unread.
    new_level : bool
        A level was finished: the step limit counts from here again.
    """

    reward: float = 0.0
    perf: float = 0.0
    ended: bool = False
    known: bool = True
    new_level: bool = False


class Engine(ABC):
    """Rules and state of one game.

    An engine reads action strings (`parse`), plays what it read (`play`), describes itself as text, as an image and
    as a dictionary, and saves its whole state, generator included, as JSON-able values.
    """

    name: ClassVar[str]
    actions: tuple[str, ...]
    stuck_limit: ClassVar[int]
    max_steps: ClassVar[int | None]
    default_mode: ClassVar[str] = "text"
    rng: np.random.Generator

    @abstractmethod
    def reset(self, rng: np.random.Generator) -> None:
        """Start a new game that draws from ``rng``."""

    def parse(self, action: str, mapping: Mapping[str, Any] | None = None) -> Any:
        """The command that ``action`` (any case) names, or None when it names none.

        ``mapping`` is the ``action_mapping`` of a configuration: name to index in ``actions``.
        """
        name = " ".join(action.lower().split())
        if mapping is not None:
            index = mapping.get(name)
            return self.actions[index] if isinstance(index, int) and 0 <= index < len(self.actions) else None
        return name if name in self.actions else None

    @abstractmethod
    def play(self, command: Any) -> Played:
        """Play a command that `parse` gave."""

    def refuse(self) -> Played:
        """What an unread action costs: nothing, unless the game says otherwise."""
        return Played(known=False)

    @property
    @abstractmethod
    def score(self) -> float:
        """The episode's score so far, in the game's own unit."""

    @abstractmethod
    def text(self) -> str:
        """The state in words."""

    @abstractmethod
    def image(self) -> NDArray[np.uint8]:
        """The state as an RGB picture, height x width x 3."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """The state's numbers, JSON-able."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """The state without the generator, JSON-able."""

    @abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that `get_state` gave."""

    def random_action(self, rng: np.random.Generator) -> str:
        """One of the game's actions, uniformly."""
        return self.actions[int(rng.integers(len(self.actions)))]

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Free what the engine holds."""


@dataclass(slots=True)
class Stream:
    """SplitMix64: the same numbers in Python and in compiled batches, its state one integer.

    Seeded from an environment's PCG64 generator, so streams of different seeds are independent.

    References
    ----------
    Steele, Lea, Flood (2014), "Fast splittable pseudorandom number generators".
    """

    state: int = field(default=0)

    @classmethod
    def of(cls, rng: np.random.Generator) -> Stream:
        """A stream whose start ``rng`` draws."""
        return cls(int(rng.integers(0, 1 << 64, dtype=np.uint64)))

    def bits(self) -> int:
        """The next 64 bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        """An integer in [0, n), n < 2**32; its bias is below n / 2**32."""
        return ((self.bits() >> 32) * n) >> 32

    def unit(self) -> float:
        """A float in [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53
