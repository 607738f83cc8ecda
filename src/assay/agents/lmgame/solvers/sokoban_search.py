"""A* over pushes for Sokoban: solutions with the fewest pushes, walks filled in."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from assay.agents.lmgame.games.sokoban import Level

_NAMES = ("up", "down", "left", "right")
_FAR = 1 << 20


@dataclass(frozen=True, slots=True)
class Solution:
    """A shortest solution.

    Attributes
    ----------
    actions : tuple of str
        Actions of the game, moves and pushes.
    pushes : int
        Number of pushes: the least that any solution has.
    nodes : int
        Positions expanded: a measure of difficulty.
    """

    actions: tuple[str, ...]
    pushes: int
    nodes: int


def bits(mask: int) -> Iterator[int]:
    """Indices of the bits set in ``mask``, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def reach(start: int, free: int, width: int) -> int:
    """Cells that a walker reaches from ``start`` over the cells of ``free`` (both without a border of walls)."""
    region, grown = 0, 1 << start
    while grown != region:
        region = grown
        grown = region | ((region << 1 | region >> 1 | region << width | region >> width) & free)
    return region


def push_distances(level: Level) -> list[list[int]]:
    """For every target, pushes that bring a lone box from each cell to it (`_FAR` where none do)."""
    size = len(level.cells)
    found = []
    for target in bits(level.targets):
        distance = [_FAR] * size
        distance[target] = 0
        queue = [target]
        for cell in queue:
            for step in level.steps:
                before, stand = cell - step, cell - 2 * step
                if not 0 <= stand < size or level.walls >> before & 1 or level.walls >> stand & 1:
                    continue
                if distance[before] == _FAR:
                    distance[before] = distance[cell] + 1
                    queue.append(before)
        found.append(distance)
    return found


class Matching:
    """Least total push distance of boxes to targets, one each: an admissible heuristic, memoised."""

    def __init__(self, level: Level) -> None:
        self.distances = push_distances(level)
        self._known: dict[int, int] = {}

    def __call__(self, boxes: int) -> int:
        found = self._known.get(boxes)
        if found is None:
            best = {0: 0}
            for box in bits(boxes):
                following: dict[int, int] = {}
                for used, cost in best.items():
                    for target, distance in enumerate(self.distances):
                        if used >> target & 1 or distance[box] >= _FAR:
                            continue
                        key, total = used | 1 << target, cost + distance[box]
                        if total < following.get(key, _FAR):
                            following[key] = total
                best = following
            found = min(best.values(), default=_FAR)
            self._known[boxes] = found
        return found


def _frozen(box: int, solid: int, boxes: int, targets: int, width: int) -> bool:
    # A 2x2 block of walls and boxes never moves again: lost when one of its boxes is off target.
    for dx in (-1, 1):
        for dy in (-width, width):
            block = 1 << box | 1 << (box + dx) | 1 << (box + dy) | 1 << (box + dx + dy)
            if solid & block == block and boxes & block & ~targets:
                return True
    return False


class GaveUp(Exception):
    """A search came to its bound: whether there is a solution is not known."""


def solve(
    level: Level, *, player: int | None = None, boxes: int | None = None, max_nodes: int = 200_000
) -> Solution | None:
    """The solution with the fewest pushes, or None when there is none or ``max_nodes`` positions did not find one.

    Parameters
    ----------
    player, boxes : int or None
        Where the search starts: cell and bit mask; None: the level's own.
    """
    try:
        return search(level, player=player, boxes=boxes, max_nodes=max_nodes)
    except GaveUp:
        return None


def search(
    level: Level, *, player: int | None = None, boxes: int | None = None, max_nodes: int = 200_000
) -> Solution | None:
    """As `solve`, but None says that there is no solution; a search that came to its bound raises `GaveUp`."""
    start_player = level.player if player is None else player
    start = level.boxes if boxes is None else boxes
    width, everything = level.width, (1 << len(level.cells)) - 1
    open_cells = everything & ~level.walls
    estimate = Matching(level)
    first = (start, min(bits(reach(start_player, open_cells & ~start, width))))
    cost: dict[tuple[int, int], int] = {first: 0}
    parent: dict[tuple[int, int], tuple[tuple[int, int], int, int]] = {}
    bound = estimate(start)
    heap = [(bound, bound, 0, first)]
    order = nodes = 0
    while heap:
        total, left, _, state = heapq.heappop(heap)
        if total >= _FAR:
            return None
        if total - left > cost[state]:
            continue
        now, low = state
        if now & ~level.targets == 0:
            return Solution(tuple(_walk(level, start_player, start, state, parent)), cost[state], nodes)
        nodes += 1
        if nodes > max_nodes:
            raise GaveUp
        region = reach(low, open_cells & ~now, width)
        for box in bits(now):
            for direction, step in enumerate(level.steps):
                if not region >> (box - step) & 1:
                    continue
                goal = box + step
                if (level.walls | now) >> goal & 1:
                    continue
                after = now ^ (1 << box | 1 << goal)
                rest = estimate(after)
                if rest >= _FAR or _frozen(goal, level.walls | after, after, level.targets, width):
                    continue
                following = (after, min(bits(reach(box, open_cells & ~after, width))))
                spent = cost[state] + 1
                if spent < cost.get(following, _FAR):
                    cost[following] = spent
                    parent[following] = (state, box, direction)
                    order += 1
                    heapq.heappush(heap, (spent + rest, rest, order, following))
    return None


def _walk(
    level: Level,
    player: int,
    boxes: int,
    goal: tuple[int, int],
    parent: dict[tuple[int, int], tuple[tuple[int, int], int, int]],
) -> list[str]:
    pushes = []
    while goal in parent:
        goal, box, direction = parent[goal]
        pushes.append((box, direction))
    actions: list[str] = []
    for box, direction in reversed(pushes):
        step = level.steps[direction]
        actions += path(level, player, box - step, boxes)
        actions.append(f"push {_NAMES[direction]}")
        boxes ^= 1 << box | 1 << (box + step)
        player = box
    return actions


def path(level: Level, start: int, goal: int, boxes: int) -> list[str]:
    """A shortest walk from ``start`` to ``goal`` around boxes, as actions; the goal must be reachable."""
    blocked = level.walls | boxes
    came: dict[int, tuple[int, int]] = {start: (start, -1)}
    queue = [start]
    for cell in queue:
        if cell == goal:
            break
        for direction, step in enumerate(level.steps):
            following = cell + step
            if following not in came and not blocked >> following & 1:
                came[following] = (cell, direction)
                queue.append(following)
    actions: list[str] = []
    while goal != start:
        goal, direction = came[goal]
        actions.append(_NAMES[direction])
    return actions[::-1]
