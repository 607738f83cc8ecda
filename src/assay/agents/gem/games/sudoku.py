"""Sudoku: fill a grid so that every row, column and block holds each number once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations
from math import isqrt
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import Game, Move, boxed, invalid

if TYPE_CHECKING:
    import numpy as np


@lru_cache(maxsize=8)
def units(side: int) -> tuple[tuple[tuple[int, int, int], ...], tuple[tuple[int, ...], ...]]:
    """For each cell its row, column and block; and the cells of each of the 3 x side units (rows, columns, blocks)."""
    size = isqrt(side)
    of_cell = tuple(
        (row, side + col, 2 * side + row // size * size + col // size) for row in range(side) for col in range(side)
    )
    members = tuple(tuple(cell for cell, own in enumerate(of_cell) if unit in own) for unit in range(3 * side))
    return of_cell, members


class _Board:
    """Numbers used in every unit as bit masks: bit ``v`` is number ``v + 1``."""

    __slots__ = ("cells", "full", "of_cell", "used")

    def __init__(self, cells: Sequence[int], side: int) -> None:
        self.of_cell = units(side)[0]
        self.full = (1 << side) - 1
        self.cells = list(cells)
        self.used = [0] * (3 * side)
        for cell, value in enumerate(cells):
            if value:
                for unit in self.of_cell[cell]:
                    self.used[unit] |= 1 << value - 1

    def choices(self, cell: int) -> int:
        a, b, c = self.of_cell[cell]
        return self.full & ~(self.used[a] | self.used[b] | self.used[c])

    def toggle(self, cell: int, bit: int) -> None:
        a, b, c = self.of_cell[cell]
        self.used[a] ^= bit
        self.used[b] ^= bit
        self.used[c] ^= bit

    def search(self, empty: list[int], order: np.random.Generator | None = None) -> bool:
        """Fill the ``empty`` cells, the one with the fewest choices first; True when it worked (cells keep it)."""
        if not empty:
            return True
        used, of_cell, full = self.used, self.of_cell, self.full
        best, fewest, at = 0, 99, -1
        for i, cell in enumerate(empty):
            a, b, c = of_cell[cell]
            choices = full & ~(used[a] | used[b] | used[c])
            count = choices.bit_count()
            if count < fewest:
                best, fewest, at = choices, count, i
                if count < 2:
                    break
        if not fewest:
            return False
        cell = empty[at]
        empty[at] = empty[-1]
        empty.pop()
        bits = [1 << v for v in range(full.bit_length()) if best >> v & 1]
        if order is not None and len(bits) > 1:
            bits = [bits[int(i)] for i in order.permutation(len(bits))]
        for bit in bits:
            self.toggle(cell, bit)
            if self.search(empty, order):
                self.cells[cell] = bit.bit_length()
                return True
            self.toggle(cell, bit)
        empty.append(cell)
        empty[at], empty[-1] = empty[-1], empty[at]
        return False


def solve(cells: Sequence[int], side: int) -> list[int] | None:
    """A completion of a grid (row by row, 0 = empty), or None where there is none."""
    board = _Board(cells, side)
    for unit in units(side)[1]:
        given = [cells[cell] for cell in unit if cells[cell]]
        if len(set(given)) < len(given):
            return None
    return board.cells if board.search([cell for cell, value in enumerate(cells) if not value]) else None


def full_grid(side: int, rng: np.random.Generator) -> list[int]:
    """A random completed grid: blocks on the diagonal at random, the rest by search in random order."""
    size = isqrt(side)
    while True:
        cells = [0] * (side * side)
        for block in range(size):
            numbers = rng.permutation(side)
            for i in range(side):
                cells[(block * size + i // size) * side + block * size + i % size] = int(numbers[i]) + 1
        board = _Board(cells, side)
        # In 4x4 some diagonals have no completion: draw another.
        if board.search([cell for cell, value in enumerate(cells) if not value], rng):
            return board.cells


@lru_cache(maxsize=1)
def small_grids() -> tuple[list[tuple[int, ...]], list[bytes]]:
    """The 12 completed 4x4 grids that begin with 1 2 3 4, from which renumbering makes all 288; and for each grid
    whether a set of filled cells, as a bit mask, leaves it the only completion.

    Where two grids differ, some cell must be filled, or both fit.
    """
    import numpy as np

    first = list(_completions([1, 2, 3, 4, *[0] * 12], 4))
    every = [tuple(numbers[value - 1] for value in grid) for grid in first for numbers in permutations((1, 2, 3, 4))]
    filled = np.arange(1 << 16, dtype=np.uint16)
    tables = []
    for grid in first:
        differ = {sum(1 << cell for cell in range(16) if grid[cell] != other[cell]) for other in every} - {0}
        only = np.ones(1 << 16, bool)
        for mask in differ:
            if not any(other != mask and other & mask == other for other in differ):  # the smallest ones decide
                only &= (filled & mask) != 0
        tables.append(only.tobytes())
    return first, tables


def _completions(cells: list[int], side: int) -> Iterator[tuple[int, ...]]:
    if 0 not in cells:
        yield tuple(cells)
        return
    cell = cells.index(0)
    choices = _Board(cells, side).choices(cell)
    for value in range(1, side + 1):
        if choices >> value - 1 & 1:
            yield from _completions([*cells[:cell], value, *cells[cell + 1 :]], side)


_RENUMBERED = tuple((0, *numbers) for numbers in permutations((1, 2, 3, 4)))


def small_puzzle(tries: int, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Solution and cells of a 4x4 puzzle; every completed grid is equally likely. As `full_grid` and `blank` together,
    without a search: 4x4 is small enough to know every grid."""
    grids, tables = small_grids()
    which, numbering = divmod(int(rng.random() * 288), 24)
    numbers, only = _RENUMBERED[numbering], tables[which]
    solution = [numbers[value] for value in grids[which]]
    cells = solution.copy()
    filled = 0xFFFF
    for cell in rng.permutation(16)[:tries].tolist():
        if only[filled ^ 1 << cell]:
            cells[cell] = 0
            filled ^= 1 << cell
    return solution, cells


def blank(grid: Sequence[int], side: int, tries: Sequence[int]) -> list[int]:
    """Empty the cells in ``tries`` one after the other, each only where the completion stays unique.

    Before any search two cheap tests settle most cells: no other number fits the cell, or the number fits no other
    empty cell of one of its units.
    """
    of_cell, members = units(side)
    board = _Board(grid, side)
    cells = board.cells
    empty: list[int] = []
    for cell in tries:
        value = cells[cell]
        bit = 1 << value - 1
        board.toggle(cell, bit)
        cells[cell] = 0
        others = board.choices(cell) & ~bit
        unique = not others or any(
            not any(not cells[other] and other != cell and board.choices(other) & bit for other in members[unit])
            for unit in of_cell[cell]
        )
        if not unique:
            # A second completion differs from the first in this cell, or it was there before the cell was emptied.
            unique = not any(_fits(board, cell, 1 << v, empty) for v in range(side) if others >> v & 1)
        if unique:
            empty.append(cell)
        else:
            board.toggle(cell, bit)
            cells[cell] = value
    return cells


def _fits(board: _Board, cell: int, bit: int, empty: list[int]) -> bool:
    kept, used = list(board.cells), list(board.used)
    board.toggle(cell, bit)
    found = board.search(list(empty))
    board.cells[:], board.used[:] = kept, used
    return found


@lru_cache(maxsize=8)
def _layout(side: int) -> tuple[str, list[str]]:
    """A board with a place for each cell, and how each number is shown there."""
    size, width = isqrt(side), len(str(side))
    row = " | ".join([" ".join(["%s"] * size)] * size)
    line = "+".join(["-" * ((width + 1) * size + 1)] * size)[1:]
    lines = [line if at % (size + 1) == size else row for at in range(side + size - 1)]
    return "\n".join(lines), [f"{value or '.':>{width}}" for value in range(side + 1)]


class Sudoku(Game):
    """A right number earns 1 / cells empty at the beginning; a wrong one is against the rules.

    ``clues`` keeps its published name: it is the number of cells that are tried to be emptied. The completion stays
    unique, so fewer may end up empty.
    """

    levels = {
        "easy": {"scale": 4, "clues": 10, "max_turns": 15},
        "hard": {"scale": 9, "clues": 50, "max_turns": 50},
    }
    pattern = boxed(r"([0-9]+)\s([0-9]+)\s([0-9]+)")
    answer_hint = "Give your move as \\boxed{ROW COLUMN NUMBER}; rows and columns count from 1."
    saved = ("solution", "cells", "empties")
    scale: int
    clues: int

    def check(self) -> None:
        self.require(self.scale in (4, 9, 16), "scale must be 4, 9 or 16")
        self.require(1 <= self.clues <= self.scale**2, "clues must be from 1 to the number of cells")

    def deal(self) -> None:
        if self.scale == 4:
            self.solution, self.cells = small_puzzle(self.clues, self.rng)
        else:
            self.solution = full_grid(self.scale, self.rng)
            tries = self.rng.permutation(self.scale**2)[: self.clues].tolist()
            self.cells = blank(self.solution, self.scale, tries)
        self.empties = self.cells.count(0)

    def rules(self) -> str:
        size = isqrt(self.scale)
        return (
            f"Sudoku: fill the {self.scale}x{self.scale} grid so that each row, each column and each {size}x{size} "
            f"block holds every number from 1 to {self.scale} once. You have {self.max_turns} moves."
        )

    def board(self) -> str:
        text, shown = _layout(self.scale)
        return text % tuple([shown[value] for value in self.cells])

    def play(self, box: re.Match[str]) -> Move:
        row, col, number = (int(word) if len(word) < 10 else 0 for word in box.groups())
        if not (1 <= row <= self.scale and 1 <= col <= self.scale and 1 <= number <= self.scale):
            return invalid(f"Row, column and number are from 1 to {self.scale}.")
        cell = (row - 1) * self.scale + col - 1
        if self.cells[cell]:
            return invalid("That cell is filled already.")
        if self.solution[cell] != number:
            return invalid(f"{number} does not belong there.")
        self.cells[cell] = number
        return Move(f"{number} is right.", 1 / self.empties, solved=0 not in self.cells)

    def view(self) -> dict[str, Any]:
        side = self.scale
        return {"board": [self.cells[at : at + side] for at in range(0, side * side, side)]}

    def random_action(self, rng: np.random.Generator) -> str:
        empty = [cell for cell, value in enumerate(self.cells) if not value]
        row, col = divmod(empty[below(rng, len(empty))] if empty else 0, self.scale)
        return f"\\boxed{{{row + 1} {col + 1} {below(rng, self.scale) + 1}}}"
