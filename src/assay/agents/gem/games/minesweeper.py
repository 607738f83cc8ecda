"""Minesweeper: reveal every cell without a mine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import FAIL_REWARD, Game, Move, boxed, invalid

if TYPE_CHECKING:
    import numpy as np


class Minesweeper(Game):
    """Mines are laid after the first reveal, outside the 3x3 block around it.

    A reveal earns newly revealed cells / cells without a mine; a mine ends the game with 0. The game is won when every
    cell without a mine is revealed, flags or not.
    """

    levels = {
        "easy": {"rows": 5, "cols": 5, "num_mines": 5, "max_turns": 25},
        "hard": {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
    }
    pattern = boxed(r"([A-Za-z]+)\s([0-9]+)\s([0-9]+)")
    answer_hint = "Give your action as \\boxed{reveal ROW COLUMN} or \\boxed{flag ROW COLUMN}; both count from 0."
    saved = ("mines", "revealed", "flags")
    rows: int
    cols: int
    num_mines: int

    def check(self) -> None:
        self.require(self.rows >= 1 and self.cols >= 1, "rows and cols must be from 1")
        block = min(3, self.rows) * min(3, self.cols)
        room = self.rows * self.cols - block
        self.require(0 <= self.num_mines <= room, f"num_mines must be from 0 to {room} (cells outside the first block)")

    def deal(self) -> None:
        self.mines: list[int] | None = None
        """Cells ``row * cols + col`` with a mine; None before the first reveal."""
        self.revealed: list[int] = []
        self.flags: list[int] = []

    def rules(self) -> str:
        return (
            f"Minesweeper on {self.rows} rows and {self.cols} columns with {self.num_mines} mines. Reveal every cell "
            "that has no mine. A revealed cell shows how many of its eight neighbours have one; the first cell you "
            f"reveal and its neighbours have none. You have {self.max_turns} actions."
        )

    def neighbours(self, cell: int) -> list[int]:
        """Up to eight cells around a cell."""
        row, col = divmod(cell, self.cols)
        return [
            r * self.cols + c
            for r in range(max(0, row - 1), min(self.rows, row + 2))
            for c in range(max(0, col - 1), min(self.cols, col + 2))
            if r != row or c != col
        ]

    def number(self, cell: int) -> int:
        """Mines around a cell."""
        return sum(other in (self.mines or ()) for other in self.neighbours(cell))

    def _cells(self) -> list[str]:
        revealed, flags = set(self.revealed), set(self.flags)
        return [
            str(self.number(cell)) if cell in revealed else "F" if cell in flags else "."
            for cell in range(self.rows * self.cols)
        ]

    def board(self) -> str:
        cells = self._cells()
        head = "    " + " ".join(f"{col:>2}" for col in range(self.cols))
        lines = [
            f"{row:>2}  " + " ".join(f"{cell:>2}" for cell in cells[row * self.cols : (row + 1) * self.cols])
            for row in range(self.rows)
        ]
        return "\n".join([". hidden, F flag, digit = mines around", head, *lines])

    def lay(self, first: int) -> None:
        """Lay the mines at random outside the block around ``first``."""
        block = {first, *self.neighbours(first)}
        free = [cell for cell in range(self.rows * self.cols) if cell not in block]
        drawn = self.rng.permutation(len(free))[: self.num_mines]
        self.mines = sorted(free[int(i)] for i in drawn)

    def play(self, box: re.Match[str]) -> Move:
        verb = box[1].lower()
        if verb not in ("reveal", "flag"):
            return invalid(f"There is no action {box[1][:20]!r}; there are reveal and flag.")
        row, col = (int(word) if len(word) < 10 else self.rows + self.cols for word in (box[2], box[3]))
        if row >= self.rows or col >= self.cols:
            return invalid("That cell is outside the board.")
        cell = row * self.cols + col
        if cell in self.revealed:
            return invalid("That cell is revealed already.")
        if verb == "flag":
            if cell in self.flags:
                self.flags.remove(cell)
                return Move("The flag is taken away.")
            self.flags.append(cell)
            return Move("The flag is set.")
        if cell in self.flags:
            return invalid("That cell has a flag; flag it again to take the flag away first.")
        if self.mines is None:
            self.lay(cell)
        assert self.mines is not None
        if cell in self.mines:
            return Move("There was a mine. The game is lost.", FAIL_REWARD, ended=True)
        new = self._flood(cell)
        safe = self.rows * self.cols - len(self.mines)
        if len(self.revealed) == safe:
            return Move("Every cell without a mine is revealed.", new / safe, solved=True)
        return Move(f"{new} cell{'s are' if new > 1 else ' is'} revealed.", new / safe)

    def _flood(self, cell: int) -> int:
        seen, flags = set(self.revealed), set(self.flags)
        before, stack = len(seen), [cell]
        seen.add(cell)
        while stack:
            cell = stack.pop()
            self.revealed.append(cell)
            if self.number(cell) == 0:
                for other in self.neighbours(cell):
                    if other not in seen and other not in flags:
                        seen.add(other)
                        stack.append(other)
        return len(seen) - before

    def view(self) -> dict[str, Any]:
        cells = self._cells()
        return {
            "num_mines": self.num_mines,
            "board": [cells[row * self.cols : (row + 1) * self.cols] for row in range(self.rows)],
        }

    def random_action(self, rng: np.random.Generator) -> str:
        verb = "reveal" if rng.random() < 0.9 else "flag"
        return f"\\boxed{{{verb} {below(rng, self.rows)} {below(rng, self.cols)}}}"
