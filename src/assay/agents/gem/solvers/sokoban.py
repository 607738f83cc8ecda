"""Sokoban: A* over player and boxes, steps as cost."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any

import numpy as np

from assay.agents.gem.games.sokoban_rooms import bits, push_distances, spread

_NODES = 40_000


class _Room:
    def __init__(self, grid: list[str]) -> None:
        self.cols = len(grid[0])
        cells = "".join(grid)
        self.floor = sum(1 << at for at, cell in enumerate(cells) if cell != "#")
        self.targets = [at for at, cell in enumerate(cells) if cell in "T*p"]
        self.goal = sum(1 << at for at in self.targets)
        self.boxes = sum(1 << at for at, cell in enumerate(cells) if cell in "B*")
        self.player = next(at for at, cell in enumerate(cells) if cell in "Pp")
        distances = [push_distances(target, self.floor, self.cols) for target in self.targets]
        self.needed = {cell: min(d.get(cell, 1 << 20) for d in distances) for cell in bits(self.floor)}
        """Pushes from each cell to its nearest target; huge where a box would be stuck for ever."""
        self.steps = {1: "right", -1: "left", self.cols: "down", -self.cols: "up"}


def _plan(grid: list[str], weight: float, nodes: int) -> list[str] | None:
    """Steps of a solution (fewest when ``weight`` is 1); None when too many positions would be looked at."""
    room = _Room(grid)
    start = (room.player, room.boxes)

    def estimate(boxes: int) -> int:
        return sum(room.needed[box] for box in bits(boxes))

    queue = [(weight * estimate(room.boxes), 0, start)]
    cost: dict[tuple[int, int], int] = {start: 0}
    came: dict[tuple[int, int], tuple[tuple[int, int], int, int]] = {}
    done: set[tuple[int, int]] = set()
    while queue:
        _, _, state = heappop(queue)
        if state in done:
            continue
        done.add(state)
        player, boxes = state
        if boxes == room.goal:
            return _steps(room, state, came)
        if len(done) > nodes:
            return None
        free = room.floor & ~boxes
        reached = 0
        for walked, region in enumerate(spread(player, free, room.cols)):
            fresh = region & ~reached
            reached = region
            for box in bits(boxes):
                for step in room.steps:
                    # The player stands behind the box and pushes it on.
                    if not (fresh >> (box - step) & 1 and free >> (box + step) & 1):
                        continue
                    after = boxes ^ (1 << box) ^ (1 << (box + step))
                    if room.needed[box + step] >= 1 << 20:
                        continue
                    new, total = (box, after), cost[state] + walked + 1
                    if total < cost.get(new, 1 << 30):
                        cost[new], came[new] = total, (state, box, step)
                        heappush(queue, (total + weight * estimate(after), -total, new))
    return None


def _steps(
    room: _Room, state: tuple[int, int], came: dict[tuple[int, int], tuple[tuple[int, int], int, int]]
) -> list[str]:
    plan: list[str] = []
    while state in came:
        before, box, step = came[state]
        player, boxes = before
        plan += [room.steps[step], *_walk(room, player, box - step, room.floor & ~boxes)[::-1]]
        state = before
    return plan[::-1]


def _walk(room: _Room, start: int, end: int, free: int) -> list[str]:
    """Steps of a shortest walk over free cells, found back from its end."""
    layers = []
    for region in spread(start, free, room.cols):
        layers.append(region)
        if region >> end & 1:
            break
    path, cell = [], end
    for layer in reversed(layers[:-1]):
        step = next(step for step in room.steps if layer >> (cell - step) & 1)
        path.append(room.steps[step])
        cell -= step
    return path[::-1]


def sokoban(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """A*: fewest steps where few positions suffice, else greedier; a random step where nothing is found."""
    for weight in (1.0, 1.5, 3.0):
        plan = _plan(view["grid"], weight, _NODES if weight == 3.0 else _NODES // 2)
        if plan:
            return plan
    return [("up", "down", "left", "right")[int(rng.integers(4))]]


def sokoban_optimum(view: Mapping[str, Any]) -> int | None:
    """Steps of a shortest solution; None where it takes too long to find."""
    plan = _plan(view["grid"], 1.0, 4 * _NODES)
    return None if plan is None else len(plan)
