"""A curriculum over levels: the next level is begun when the last episodes of this one were solved often enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.agents.gem.env import Env, EnvError, Step
from assay.agents.gem.trainers.loop import EVALUATION_SEEDS
from assay.agents.gem.trainers.worlds import world


@dataclass(slots=True)
class Stage:
    """A level: how many episodes were played of it, and the share solved after each, over the last ``window``."""

    env: str
    episodes: int = 0
    curve: list[float] = field(default_factory=list)


class Curriculum:
    """Levels in order, shared by the environments of one training (`world` makes them).

    Evaluations (`train` plays them from `EVALUATION_SEEDS` on) are on the last level, and move nothing. Equal seeds get
    the same level, so that the episodes of a group begin alike.

    Parameters
    ----------
    levels
        Ids with settings, easiest first, at least two; each must say whether it was solved.
    target
        Share of the last ``window`` episodes of a level that must be solved before the next is begun.
    window
        Episodes; a level lasts for at least so many.
    """

    def __init__(self, levels: Sequence[str], *, target: float = 0.8, window: int = 50) -> None:
        if len(levels) < 2:
            raise EnvError(f"A curriculum needs at least two levels, not {len(levels)}.")
        if not 0 < target <= 1 or window < 1:
            raise EnvError(f"target={target} must lie in (0, 1] and window={window} must be at least 1.")
        self.stages = [Stage(env) for env in levels]
        self.target, self.window = target, window
        self.level = 0
        self._last: deque[bool] = deque(maxlen=window)
        self._level_of: dict[int, int] = {}

    def world(self) -> Env:
        """An environment that is of the level that the training has come to, anew at each reset."""
        return _Levels(self)

    def begin(self, seed: int | None) -> int:
        """The level of an episode."""
        if seed is None:
            return self.level
        return len(self.stages) - 1 if seed >= EVALUATION_SEEDS else self._level_of.setdefault(seed, self.level)

    def end(self, level: int, solved: bool) -> None:
        """An episode of the training is over."""
        stage = self.stages[level]
        stage.episodes += 1
        if level != self.level:  # begun before the others moved on
            return
        self._last.append(solved)
        share = sum(self._last) / len(self._last)
        stage.curve.append(share)
        if len(self._last) == self.window and share >= self.target and level < len(self.stages) - 1:
            self.level += 1
            self._last.clear()


class _Levels(Env):
    """One environment a level, made when it is needed."""

    def __init__(self, curriculum: Curriculum) -> None:
        super().__init__()
        self._curriculum = curriculum
        self._worlds: dict[int, Env] = {}
        self._level = 0
        self._counts = False

    def _of(self, level: int) -> Env:
        if level not in self._worlds:
            self._worlds[level] = world(self._curriculum.stages[level].env)
        self._level = level
        return self._worlds[level]

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self._counts = seed is None or seed < EVALUATION_SEEDS
        return self._of(self._curriculum.begin(seed)).reset(seed)

    def step(self, action: str) -> Step:
        result = self._of(self._level).step(action)
        _, _, terminated, truncated, info = result
        if self._counts and (terminated or truncated):
            solved = info.get("solved", info.get("correct"))
            if solved is None:
                raise EnvError(f"{self.name} does not say whether it was solved; a curriculum cannot go by it.")
            self._curriculum.end(self._level, bool(solved))
        return result

    @property
    def unwrapped(self) -> Env:
        return self._of(self._level).unwrapped

    @property
    def name(self) -> str:
        return self._curriculum.stages[self._level].env

    def get_state(self) -> dict[str, Any]:
        return {"level": self._level, "counts": self._counts, "env": self._of(self._level).get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._of(state["level"]).set_state(state["env"])
        self._counts = state["counts"]

    def close(self) -> None:
        for made in self._worlds.values():
            made.close()
