"""FifteenPuzzle: slide numbered tiles into order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import SUCCESS_REWARD, Game, Move, boxed, invalid

if TYPE_CHECKING:
    import numpy as np

# Where the tile that moves comes from, seen from the gap: "up" moves the tile below the gap.
SOURCES = {"up": (1, 0), "down": (-1, 0), "left": (0, 1), "right": (0, -1)}
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def solvable(board: Sequence[Sequence[int]]) -> bool:
    """Whether a square board (0 = gap) can be brought to 1, 2, ..., 0.

    Every move swaps the gap with a neighbour, so the parity of the permutation and that of the gap's distance from its
    goal change together.
    """
    side = len(board)
    flat = [value for row in board for value in row]
    order = [(value - 1) % (side * side) for value in flat]
    seen, cycles = [False] * len(order), 0
    for start in range(len(order)):
        if not seen[start]:
            cycles += 1
            while not seen[start]:
                seen[start] = True
                start = order[start]
    row, col = divmod(flat.index(0), side)
    return (len(order) - cycles + 2 * (side - 1) - row - col) % 2 == 0


class FifteenPuzzle(Game):
    """Tiles 1 to n^2 - 1 row by row, the gap last. At the turn limit: cells (gap included) that hold their goal / n^2.

    ``start`` is ``walk`` (100 random moves from the goal, none taken back at once) or ``uniform`` (all boards that
    can be solved are equally likely).
    """

    levels = {
        "easy": {"num_rows": 2, "max_turns": 10, "start": "walk"},
        "hard": {"num_rows": 4, "max_turns": 50, "start": "walk"},
    }
    pattern = boxed("(up|down|left|right)")
    answer_hint = (
        "Give the direction in which a tile moves into the gap: \\boxed{up}, \\boxed{down}, \\boxed{left} or "
        "\\boxed{right}."
    )
    saved = ("cells",)
    num_rows: int
    start: str

    def check(self) -> None:
        self.require(2 <= self.num_rows <= 10, "num_rows must be from 2 to 10")
        self.require(self.start in ("walk", "uniform"), "start must be walk or uniform")

    @property
    def goal(self) -> list[int]:
        """Cells in order, the gap (0) last."""
        return [*range(1, self.num_rows**2), 0]

    def deal(self) -> None:
        self.cells = self.goal
        while self.cells == self.goal:
            if self.start == "walk":
                self._walk(100)
            else:
                self._uniform()

    def _walk(self, moves: int) -> None:
        last = ""
        for _ in range(moves):
            possible = [move for move in SOURCES if self._source(move) is not None and OPPOSITE[move] != last]
            last = possible[self.draw(len(possible))]
            self._slide(last)

    def _uniform(self) -> None:
        self.cells = [int(value) for value in self.rng.permutation(self.num_rows**2)]
        if not solvable(self.rows_of(self.cells)):
            a, b = [place for place, value in enumerate(self.cells) if value][:2]
            self.cells[a], self.cells[b] = self.cells[b], self.cells[a]

    def rows_of(self, cells: Sequence[int]) -> list[list[int]]:
        """Cells as rows."""
        return [list(cells[at : at + self.num_rows]) for at in range(0, len(cells), self.num_rows)]

    def _source(self, move: str) -> int | None:
        row, col = divmod(self.cells.index(0), self.num_rows)
        down, right = SOURCES[move]
        row, col = row + down, col + right
        return row * self.num_rows + col if 0 <= row < self.num_rows and 0 <= col < self.num_rows else None

    def _slide(self, move: str) -> int | None:
        source = self._source(move)
        if source is None:
            return None
        gap, tile = self.cells.index(0), self.cells[source]
        self.cells[gap], self.cells[source] = tile, 0
        return tile

    def rules(self) -> str:
        side = self.num_rows
        return (
            f"A {side}x{side} board holds tiles 1 to {side * side - 1} and one gap. Sliding tiles into the gap, bring "
            f"them into order: row by row from the top left, the gap at the bottom right. You have "
            f"{self.max_turns} moves."
        )

    def board(self) -> str:
        width = len(str(self.num_rows**2 - 1))
        return "\n".join(" ".join(f"{value or '_':>{width}}" for value in row) for row in self.rows_of(self.cells))

    def play(self, box: re.Match[str]) -> Move:
        tile = self._slide(box[1])
        if tile is None:
            return invalid(f"No tile can move {box[1]}.")
        if self.cells == self.goal:
            return Move("All tiles are in order.", SUCCESS_REWARD, solved=True)
        return Move(f"Tile {tile} has moved {box[1]}.")

    def limit_reward(self) -> float:
        return sum(a == b for a, b in zip(self.cells, self.goal)) / len(self.cells)

    def view(self) -> dict[str, Any]:
        return {"board": self.rows_of(self.cells)}

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{tuple(SOURCES)[below(rng, 4)]}}}"
