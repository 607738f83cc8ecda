"""A scripted runner for the platformer: it runs, and jumps where looking ahead says that running on would be lost."""

from __future__ import annotations

import numpy as np

from assay.agents.lmgame.games.console import ACTIONS
from assay.agents.lmgame.games.platformer import World
from assay.agents.lmgame.games.platformer_level import PlatformLevel, draw_level

# (button name, frames) in order of preference; "" stands for a frame without buttons.
Plan = tuple[tuple[str, int], ...]
PLANS: tuple[Plan, ...] = (
    (("right_b", 10),),
    (("right_a_b", 14), ("right_b", 12)),
    (("right_a_b", 24), ("right_b", 12)),
    (("right_a_b", 34), ("right_b", 14)),
    (("right_a", 24), ("right", 12)),
    (("noop", 16),),
    (("left_a_b", 20), ("noop", 10)),
    (("left_b", 24),),
)


def _simulate(world: World, plan: Plan) -> World | None:
    """The world after a plan, every action preceded by a frame without buttons; None when a life is lost."""
    after = world.copy()
    for name, frames in plan:
        for number in range(frames + 1):
            after.frame(ACTIONS[name] if number else ACTIONS["noop"])
            if after.finished:
                return after
            if after.lives < world.lives:
                return None
    return after


def _settled(world: World) -> World | None:
    """Wait in the air, running on, until there is ground below."""
    after = world
    for _ in range(60):
        if after.grounded or after.finished:
            return after
        after.frame(ACTIONS["right_b"])
        if after.lives < world.lives or (after.over and not after.finished):
            return None
    return after


class Runner:
    """Chooses the next plan by a depth-first search over plans.

    Parameters
    ----------
    depth : int
        Plans looked ahead.
    """

    def __init__(self, depth: int = 4) -> None:
        self.depth = depth
        self._left: list[tuple[str, int]] = []

    def next(self, world: World) -> tuple[str, int]:
        """The next action: button name and frames."""
        if not self._left:
            self._left = list(self._choose(world))
        return self._left.pop(0)

    def _choose(self, world: World) -> Plan:
        budget = [120]
        best: tuple[int, Plan] = (-1, (("noop", 8),))
        for plan in PLANS:
            after = _simulate(world, plan)
            if after is None:
                continue
            reached = self._reach(after, self.depth - 1, budget)
            if reached is None:
                continue
            # The plan itself must go on, or the jump would be put off for ever.
            if after.finished or (after.x > world.x + 16 * 256 and reached > world.x // 256 + 40):
                return plan
            best = max(best, (reached, plan), key=lambda found: found[0])
        return best[1]

    def _reach(self, world: World, depth: int, budget: list[int]) -> int | None:
        """Furthest pixel that a line of plans reaches alive; None when every line dies."""
        if world.finished:
            return world.x // 256 + 10_000
        if depth == 0 or budget[0] <= 0:
            settled = world if world.grounded else _settled(world.copy())
            return None if settled is None or settled.lives < world.lives else settled.x // 256
        here, found = world.x // 256, None
        for plan in PLANS:
            budget[0] -= 1
            after = _simulate(world, plan)
            if after is None:
                continue
            reached = self._reach(after, depth - 1, budget)
            if reached is not None and reached > here + 40:
                return reached
            if reached is not None and (found is None or reached > found):
                found = reached
        return found


def finishes(level: PlatformLevel, max_actions: int = 600) -> bool:
    """Whether the runner reaches the flag on its first life."""
    world, runner = World(level), Runner()
    for _ in range(max_actions):
        name, frames = runner.next(world)
        after = _simulate(world, ((name, frames),))
        if after is None:
            return False
        world = after
        if world.finished:
            return True
    return False


def certified_level(rng: np.random.Generator, *, segments: int = 24, hardness: float = 0.5) -> PlatformLevel:
    """A random level that the runner finishes."""
    while True:
        level = draw_level(rng, segments=segments, hardness=hardness)
        if finishes(level):
            return level
