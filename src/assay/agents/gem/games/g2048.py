"""Game2048: slide and merge tiles until one reaches the target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import Game, Move, boxed, invalid

if TYPE_CHECKING:
    import numpy as np

SIDE = 4
DIRECTIONS = ("up", "down", "left", "right")
Row = tuple[int, int, int, int]


@lru_cache(maxsize=1 << 16)
def slide_left(row: Row) -> Row:
    """A row pushed to the left: equal neighbours merge once, from the left."""
    tiles = [value for value in row if value]
    merged: list[int] = []
    at = 0
    while at < len(tiles):
        if at + 1 < len(tiles) and tiles[at] == tiles[at + 1]:
            merged.append(2 * tiles[at])
            at += 2
        else:
            merged.append(tiles[at])
            at += 1
    a, b, c, d = merged + [0] * (SIDE - len(merged))
    return a, b, c, d


@lru_cache(maxsize=1 << 16)
def slide_right(row: Row) -> Row:
    """A row pushed to the right."""
    a, b, c, d = slide_left((row[3], row[2], row[1], row[0]))
    return d, c, b, a


def slide(board: Sequence[Sequence[int]], direction: str) -> list[list[int]]:
    """A board (4 x 4, 0 = empty) pushed in a direction, before a new tile comes."""
    push = slide_left if direction in ("left", "up") else slide_right
    if direction in ("left", "right"):
        return [list(push((a, b, c, d))) for a, b, c, d in board]
    return [list(row) for row in zip(*[push(column) for column in zip(*board)])]


@lru_cache(maxsize=1 << 16)
def _shown(a: int, b: int, c: int, d: int, width: int) -> str:
    return " ".join(f"{value or '.':>{width}}" for value in (a, b, c, d))


class Game2048(Game):
    """Reward: (log2 new maximum - log2 old maximum) / (log2 target - log2 maximum at the beginning).

    Maxima are taken after the push, before a new tile comes (2 with probability 0.9, else 4); a new 4 that is the
    largest tile counts with the next move, so that rewards add up to 1. The game also ends, unsolved,
    when no move is left.
    """

    levels = {
        "easy": {"target_tile": 64, "max_turns": 50},
        "hard": {"target_tile": 512, "max_turns": 50},
        "extreme-hard": {"target_tile": 2048, "max_turns": 100},
    }
    pattern = boxed("((?i:up|down|left|right))")
    answer_hint = "Give your move as \\boxed{up}, \\boxed{down}, \\boxed{left} or \\boxed{right}."
    saved = ("tiles", "first_max", "best")
    target_tile: int

    def check(self) -> None:
        target = self.target_tile
        self.require(target >= 8 and target & (target - 1) == 0, "target_tile must be a power of two from 8")

    def deal(self) -> None:
        self.tiles: list[list[int]] = [[0] * SIDE for _ in range(SIDE)]
        self.add_tile()
        self.add_tile()
        self.first_max = self.best = self.top

    @property
    def top(self) -> int:
        """The largest tile."""
        return max(map(max, self.tiles))

    def add_tile(self) -> None:
        """Put a new tile on an empty cell."""
        empty = [(r, c) for r, row in enumerate(self.tiles) for c, value in enumerate(row) if not value]
        row, col = empty[self.draw(len(empty))]
        self.tiles[row][col] = 2 if self.rng.random() < 0.9 else 4

    def rules(self) -> str:
        return (
            "2048: a move pushes all tiles of a 4x4 board in one direction; two equal tiles that meet merge into their "
            f"sum, then a new 2 or 4 appears. Make a tile of {self.target_tile} in at most {self.max_turns} moves."
        )

    def board(self) -> str:
        width = len(str(self.top))
        return "\n".join([_shown(a, b, c, d, width) for a, b, c, d in self.tiles])

    def play(self, box: re.Match[str]) -> Move:
        direction, old = box[1].lower(), self.best
        pushed = slide(self.tiles, direction)
        if pushed == self.tiles:
            return invalid(f"Nothing moves {direction}.")
        self.tiles = pushed
        new = self.best = max(old, self.top)
        reward = 0.0 if new == old else (log2(new) - log2(old)) / (log2(self.target_tile) - log2(self.first_max))
        if new >= self.target_tile:
            return Move(f"There is a tile of {new}.", reward, solved=True)
        self.add_tile()
        if self.stuck():
            return Move("No move is left.", reward, ended=True)
        return Move(f"The tiles have moved {direction}.", reward)

    def stuck(self) -> bool:
        """Whether no direction changes the board."""
        if any(0 in row for row in self.tiles):
            return False
        return all(a != b for row in [*self.tiles, *zip(*self.tiles)] for a, b in pairwise(row))

    def view(self) -> dict[str, Any]:
        return {"board": [list(row) for row in self.tiles], "target_tile": self.target_tile}

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{DIRECTIONS[below(rng, 4)]}}}"
