"""Rooms for Sokoban: carved by a random walk, filled by playing backwards from the solved state.

A room is held in bit boards: bit ``row * columns + column`` of an integer. The border is wall, so a shift by one cell
never wraps around onto floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

_BEAM = 32
_TRIES = 40
_LEAST = 0.35


class Room(NamedTuple):
    """A room: cells as ``row * cols + col``; ``moves`` are steps of a known solution, no fewer than are needed."""

    rows: int
    cols: int
    walls: list[int]
    targets: list[int]
    boxes: list[int]
    player: int
    moves: int


def bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def spread(start: int, free: int, cols: int) -> list[int]:
    """Cells reached after 0, 1, 2, ... steps over ``free`` cells, as masks, until no more come."""
    reach, new = 0, 1 << start
    layers = []
    while new != reach:
        reach = new
        layers.append(reach)
        new = (reach | reach << 1 | reach >> 1 | reach << cols | reach >> cols) & free
    return layers


def push_distances(target: int, floor: int, cols: int) -> dict[int, int]:
    """Pushes that a lone box needs from each cell to the target; cells it can never come from are missing."""
    distance, frontier = {target: 0}, [target]
    for cell in frontier:
        for step in (1, -1, cols, -cols):
            source, player = cell + step, cell + 2 * step
            if floor >> source & 1 and player >= 0 and floor >> player & 1 and source not in distance:
                distance[source] = distance[cell] + 1
                frontier.append(source)
    return distance


def carve(rows: int, cols: int, cells: int, rng: np.random.Generator) -> int:
    """Floor of a room: a random walk that tends to go straight on and now and then opens a 2 x 2 block."""
    row, col = 1 + int(rng.random() * (rows - 2)), 1 + int(rng.random() * (cols - 2))
    down, right = 0, 1
    floor = 1 << row * cols + col
    while floor.bit_count() < cells:
        if rng.random() < 0.4:
            down, right = ((0, 1), (0, -1), (1, 0), (-1, 0))[int(rng.random() * 4)]
        row = min(max(row + down, 1), rows - 2)
        col = min(max(col + right, 1), cols - 2)
        floor |= 1 << row * cols + col
        if rng.random() < 0.3:
            r, c = min(row, rows - 3), min(col, cols - 3)
            floor |= 3 << r * cols + c | 3 << (r + 1) * cols + c
    return floor


def make_room(rows: int, cols: int, num_boxes: int, max_moves: int, rng: np.random.Generator) -> Room:
    """A random room that can be solved in at most ``max_moves`` steps.

    From the solved state boxes are pulled, in a beam search for positions in which many pushes are needed; the pulls
    read backwards are a solution, and its steps (walking too) are counted on the way. Rooms with a box in place, or a
    known solution below 35 % of ``max_moves``, are drawn again up to 40 times.
    """
    most = (rows - 2) * (cols - 2)
    best: tuple[float, Room] | None = None
    tries = 0
    while best is None or tries < _TRIES:
        tries += 1
        floor = carve(rows, cols, max(num_boxes * 2 + 3, round(most * (0.55 + 0.25 * rng.random()))), rng)
        cells = list(bits(floor))
        drawn = [cells[int(i)] for i in rng.permutation(len(cells))]
        targets = sorted(drawn[:num_boxes])
        found = _pull(floor, cols, targets, drawn[num_boxes], max_moves, rng)
        if found is None:
            continue
        moves, player, mask = found
        boxes = list(bits(mask))
        walls = [cell for cell in range(rows * cols) if not floor >> cell & 1]
        room = Room(rows, cols, walls, targets, boxes, player, moves)
        solved = len(set(boxes) & set(targets))
        if not solved and moves >= _LEAST * max_moves:
            return room
        if best is None or moves - 100.0 * solved > best[0]:
            best = (moves - 100.0 * solved, room)
    return best[1]


def _pull(
    floor: int, cols: int, targets: list[int], player: int, max_moves: int, rng: np.random.Generator
) -> tuple[int, int, int] | None:
    """Best start found by pulling: (steps of the solution, player, boxes); None where no box can leave its target."""
    goal = sum(1 << cell for cell in targets)
    needed: dict[int, int] = {}
    for target in targets:
        for cell, pushes in push_distances(target, floor, cols).items():
            needed[cell] = min(needed.get(cell, 1 << 20), pushes)
    weight = [0.0] * floor.bit_length()
    for cell, pushes in needed.items():
        weight[cell] = 2.0 * pushes + 1.5 * (pushes > 0)
    # The player may end anywhere: every part of the room that the boxes leave connected is a place to start from.
    beam, left = [], floor & ~goal
    while left:
        start = player if left >> player & 1 else next(bits(left))
        left &= ~spread(start, floor & ~goal, cols)[-1]
        beam.append((0.0, 0, start, goal, True))
    best, best_score = None, 0.0
    seen: set[tuple[int, int]] = set()
    steps = (1, -1, cols, -cols)
    draw = rng.random
    while beam:
        found = []
        for _, moves, player, boxes, free_start in beam:
            free = floor & ~boxes
            layers = spread(player, free, cols)
            region = layers[-1]
            key = (boxes, region & -region)
            if key in seen:
                continue
            seen.add(key)
            cells = list(bits(boxes))
            score = 0.0
            for cell in cells:
                score += weight[cell]
            # Only a start with no box in its place shows nothing for free; others are taken where there is no such.
            rank = score - 100.0 * (boxes & goal).bit_count()
            if moves and (best is None or rank > best_score):
                best, best_score = (moves, player, boxes), rank
            for box in cells:
                for step in steps:
                    near, far = box + step, box + 2 * step
                    if not region >> near & 1 or far < 0 or not free >> far & 1:
                        continue
                    total = moves + 1
                    if not free_start:
                        for layer in layers:
                            if layer >> near & 1:
                                break
                            total += 1
                    if total <= max_moves:
                        after = boxes ^ (1 << box) ^ (1 << near)
                        gain = score - weight[box] + weight[near]
                        found.append((gain - 0.05 * total + draw(), total, far, after, False))
        found.sort(reverse=True)
        beam = found[:_BEAM]
    return best
