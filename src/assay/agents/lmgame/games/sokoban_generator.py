"""Fresh Sokoban levels of certified difficulty: rooms carved at random, boxes pulled from targets, A* as the judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay.agents.lmgame.games.sokoban import Level, check_level
from assay.agents.lmgame.solvers.sokoban_search import Solution, bits, reach, solve
from assay.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Certified:
    """A level with the shortest solution that certifies it."""

    level: Level
    solution: Solution


def generate(
    rng: np.random.Generator,
    *,
    rows: int = 7,
    columns: int = 7,
    boxes: int = 2,
    pushes: tuple[int, int] = (4, 60),
    open_share: float = 0.6,
    attempts: int = 3000,
    max_nodes: int = 5_000,
) -> Certified:
    """A level whose shortest solution has a number of pushes within ``pushes``.

    Parameters
    ----------
    rows, columns : int
        Size with the border of walls, each at least 5.
    boxes : int
        At most 6.
    pushes : (int, int)
        Least and greatest number of pushes of the shortest solution (A*, exact).
    open_share : float
        Share of the interior that is floor.
    attempts, max_nodes : int
        Rooms tried; positions looked at in each, by the pulls that make it and by the search that certifies it.

    Raises
    ------
    UsageError
        Sizes out of range, or no such level within ``attempts`` rooms.
    """
    if min(rows, columns) < 5 or not 1 <= boxes <= 6:
        raise UsageError(
            f"A Sokoban level of {rows}x{columns} with {boxes} boxes cannot be made; "
            "give at least 5x5 and 1 to 6 boxes."
        )
    if pushes[0] > pushes[1] or pushes[1] < 1:
        raise UsageError(f"pushes={pushes} is empty; give (least, greatest) with 1 <= least <= greatest.")
    for _ in range(attempts):
        drawn = _draw(rng, (rows, columns), boxes, pushes, open_share, max_nodes)
        if drawn is None:
            continue
        solution = solve(drawn, max_nodes=max_nodes)
        if solution is not None and pushes[0] <= solution.pushes <= pushes[1]:
            return Certified(drawn, solution)
    raise UsageError(
        f"No {rows}x{columns} level with {boxes} boxes and {pushes[0]} to {pushes[1]} pushes within {attempts} rooms; "
        "ask for fewer pushes or a larger room."
    )


def _carve(rng: np.random.Generator, rows: int, columns: int, share: float) -> int:
    """Floor of a connected room, as a bit mask: a walk that widens as it goes."""
    goal = max(6, round(share * (rows - 2) * (columns - 2)))
    row, column = int(rng.integers(1, rows - 1)), int(rng.integers(1, columns - 1))
    floor = 0
    for _ in range(200 * goal):
        floor |= 1 << (row * columns + column)
        if floor.bit_count() >= goal:
            break
        axis, sign = int(rng.integers(2)), int(rng.integers(2)) * 2 - 1
        if axis:
            row = min(max(row + sign, 1), rows - 2)
        else:
            column = min(max(column + sign, 1), columns - 2)
    return floor


def _draw(
    rng: np.random.Generator, size: tuple[int, int], boxes: int, pushes: tuple[int, int], share: float, limit: int
) -> Level | None:
    rows, columns = size
    floor = _carve(rng, rows, columns, share)
    cells = list(bits(floor))
    if len(cells) < boxes + 4:
        return None
    chosen = [cells[i] for i in rng.choice(len(cells), boxes + 1, replace=False)]
    targets, player = sum(1 << cell for cell in chosen[:boxes]), chosen[boxes]
    blank = _level(rows, columns, floor, targets, targets, player)
    # Breadth-first pulls from the solved position: a position of layer d needs exactly d pushes.
    goal = int(rng.integers(pushes[0], pushes[1] + 1))
    layer = {(targets, min(bits(region))) for region in _regions(floor & ~targets, columns)}
    seen, kept = set(layer), set()
    for depth in range(1, goal + 1):
        layer = {after for state in layer for after in _pulls(blank, floor, state)} - seen
        seen |= layer
        apart = {state for state in layer if state[0] & targets == 0}
        if depth >= pushes[0] and apart:
            kept = apart
        if not layer or len(seen) > limit:
            break
    if not kept:
        return None
    options = sorted(kept)
    here, low = options[int(rng.integers(len(options)))]
    places = list(bits(reach(low, floor & ~here, columns)))
    return _level(rows, columns, floor, targets, here, places[int(rng.integers(len(places)))])


def _regions(free: int, columns: int) -> list[int]:
    """The connected parts of ``free``."""
    found = []
    while free:
        region = reach(next(bits(free)), free, columns)
        found.append(region)
        free &= ~region
    return found


def _pulls(level: Level, floor: int, state: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Positions (boxes, lowest cell of the walker's region) one pull away."""
    here, low = state
    region = reach(low, floor & ~here, level.width)
    for box in bits(here):
        for step in level.steps:
            # The walker stands beside the box and steps back; the box follows.
            if region >> (box + step) & 1 and (floor & ~here) >> (box + 2 * step) & 1:
                after = here ^ (1 << box | 1 << (box + step))
                yield after, min(bits(reach(box + 2 * step, floor & ~after, level.width)))


def _level(rows: int, columns: int, floor: int, targets: int, boxes: int, player: int) -> Level:
    def symbol(cell: int) -> str:
        bit = 1 << cell
        if boxes & bit:
            return "*" if targets & bit else "$"
        if cell == player:
            return "+" if targets & bit else "@"
        if targets & bit:
            return "?"
        return " " if floor & bit else "#"

    lines = ["".join(symbol(r * columns + c) for c in range(columns)) for r in range(rows)]
    return check_level(lines, "generated level")
