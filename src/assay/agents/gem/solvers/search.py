"""Puzzles with nothing hidden: plans by search, recursion or looking up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import product
from typing import Any

import numpy as np

from assay.agents.gem.env import EnvError
from assay.agents.gem.games.crosswords import read_entries
from assay.agents.gem.games.fifteen import SOURCES
from assay.agents.gem.games.hanoi import PEGS
from assay.agents.gem.games.sudoku import solve

_NODES = 60_000


# -- Tower of Hanoi ---------------------------------------------------------------------------------------------------


def _hanoi_moves(pegs: Sequence[Sequence[int]]) -> list[str]:
    """The shortest way to peg C from any position: the largest disk out of place moves once, the smaller ones first."""
    where = {disk: at for at, peg in enumerate(pegs) for disk in peg}
    moves: list[str] = []

    def bring(disk: int, target: int) -> None:
        if disk == 0:
            return
        if where[disk] == target:
            bring(disk - 1, target)
            return
        source = where[disk]
        bring(disk - 1, 3 - source - target)
        moves.append(f"{PEGS[source]} {PEGS[target]}")
        where[disk] = target
        bring(disk - 1, target)

    bring(len(where), 2)
    return moves


def hanoi(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """The shortest plan."""
    return _hanoi_moves(view["pegs"])


def hanoi_optimum(view: Mapping[str, Any]) -> int:
    """Moves of the shortest plan."""
    return len(_hanoi_moves(view["pegs"]))


# -- FifteenPuzzle ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=400_000)
def _line(tiles: tuple[int, ...], line: int, side: int, row: bool) -> int:
    """Moves at right angles to a line that its tiles need: their distances to their own lines, and two for every tile
    that has to step aside because tiles of this line stand in the wrong order (linear conflict)."""
    total, goals = 0, []
    for tile in tiles:
        if tile:
            goal, along = divmod(tile - 1, side) if row else divmod(tile - 1, side)[::-1]
            total += abs(goal - line)
            if goal == line:
                goals.append(along)
    # The longest run in order stays where it is.
    longest: list[int] = []
    for at, along in enumerate(goals):
        longest.append(1 + max((longest[i] for i in range(at) if goals[i] < along), default=0))
    return total + 2 * (len(goals) - max(longest, default=0))


def _estimate(cells: tuple[int, ...], side: int) -> int:
    """Moves needed at least."""
    rows = sum(_line(cells[at * side : (at + 1) * side], at, side, True) for at in range(side))
    return rows + sum(_line(cells[at::side], at, side, False) for at in range(side))


def _fifteen_plan(board: Sequence[Sequence[int]], weight: float, nodes: int) -> list[str] | None:
    """Moves by A* (shortest when ``weight`` is 1); None when more than ``nodes`` positions would be looked at."""
    side = len(board)
    start = tuple(value for row in board for value in row)
    goal = (*range(1, side * side), 0)
    queue = [(weight * _estimate(start, side), 0, start)]
    cost, came = {start: 0}, {start: (start, "")}
    done: set[tuple[int, ...]] = set()
    while queue:
        _, _, cells = heappop(queue)
        if cells in done:
            continue
        done.add(cells)
        if cells == goal:
            plan = []
            while came[cells][1]:
                cells, move = came[cells]
                plan.append(move)
            return plan[::-1]
        if len(done) > nodes:
            return None
        gap = cells.index(0)
        row, col = divmod(gap, side)
        for move, (down, right) in SOURCES.items():
            r, c = row + down, col + right
            if 0 <= r < side and 0 <= c < side:
                tile = r * side + c
                new = list(cells)
                new[gap], new[tile] = new[tile], 0
                after, steps = tuple(new), cost[cells] + 1
                if steps < cost.get(after, 1 << 30):
                    cost[after], came[after] = steps, (cells, move)
                    heappush(queue, (steps + weight * _estimate(after, side), -steps, after))
    return None


def fifteen(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """A* with distances and linear conflicts: shortest where few positions suffice, else ever greedier."""
    for weight, nodes in ((1.0, _NODES // 6), (1.3, _NODES), (1.5, _NODES), (2.0, _NODES), (5.0, 4 * _NODES)):
        plan = _fifteen_plan(view["board"], weight, nodes)
        if plan:
            return plan
    return ["up", "down"]


def fifteen_optimum(view: Mapping[str, Any]) -> int | None:
    """Moves of a shortest plan; None where it takes too long to find."""
    plan = _fifteen_plan(view["board"], 1.0, _NODES)
    return None if plan is None else len(plan)


# -- Sudoku, Crosswords, WordSearch -----------------------------------------------------------------------------------


def sudoku(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """The completion, cell by cell."""
    board = view["board"]
    side = len(board)
    cells = [value for row in board for value in row]
    full = solve(cells, side)
    if full is None:
        raise EnvError("This Sudoku has no completion.")
    return [f"{at // side + 1} {at % side + 1} {full[at]}" for at, value in enumerate(cells) if not value]


def sudoku_optimum(view: Mapping[str, Any]) -> int:
    """Empty cells."""
    return sum(row.count(0) for row in view["board"])


def crosswords(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """With the list of clues open: every clue is looked up."""
    word_of = {clue: entry.word for entry in read_entries(view["words"]) for clue in entry.clues}
    plan = []
    for text in view["clues"]:
        match = re.fullmatch(r"(across|down) from (\d+) (\d+), \d+ letters: (.*)", text, re.DOTALL)
        if match is None or match[4] not in word_of:
            continue
        for i, letter in enumerate(word_of[match[4]]):
            row, col = int(match[2]) + i * (match[1] == "down"), int(match[3]) + i * (match[1] == "across")
            move = f"{row} {col} {letter}"
            if view["grid"][row][col] == "_" and move not in plan:
                plan.append(move)
    return plan


def crosswords_optimum(view: Mapping[str, Any]) -> int:
    """Empty cells."""
    return sum(row.count("_") for row in view["grid"])


def word_search(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """Every word that is left, looked for in all directions."""
    grid, plan = view["grid"], []
    side = len(grid)
    for word in view["words"]:
        if word in view["found"]:
            continue
        for row, col, down, right in product(range(side), range(side), (0, 1, -1), (0, 1, -1)):
            last = row + down * (len(word) - 1), col + right * (len(word) - 1)
            if (down or right) and all(0 <= at < side for at in last):
                text = "".join(grid[row + i * down][col + i * right] for i in range(len(word)))
                if text == word:
                    plan.append(f"{row} {col} {last[0]} {last[1]}")
                    break
    return plan


def word_search_optimum(view: Mapping[str, Any]) -> int:
    """Words left."""
    return len(view["words"]) - len(view["found"])
