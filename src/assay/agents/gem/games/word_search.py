"""WordSearch: find listed words in a grid of letters."""

from __future__ import annotations

import re
from math import ceil, sqrt
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import Game, Move, boxed, invalid
from assay.agents.gem.games.words import read_words

if TYPE_CHECKING:
    import numpy as np

_STRAIGHT = ((0, 1), (1, 0))
_ALL = ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
_TRIES = 100


class WordSearch(Game):
    """A word found earns 1 / words. First and last cell may be given in either order.

    Without ``hardcore`` words have 3 to 6 letters and run right or down; with it 5 to 8 letters, in all eight
    directions. ``words`` is a file of words instead of the shipped list.
    """

    levels = {
        "easy": {"num_words": 5, "max_turns": 20, "hardcore": False, "words": None},
        "hard": {"num_words": 5, "max_turns": 20, "hardcore": True, "words": None},
    }
    pattern = boxed(r"([0-9]+)\s+([0-9]+)\s+([0-9]+)\s+([0-9]+)")
    answer_hint = "Give first and last cell of a word as \\boxed{ROW COLUMN ROW COLUMN}; both count from 0."
    saved = ("grid", "hidden", "found", "tried")
    num_words: int
    hardcore: bool
    words: str | None

    def check(self) -> None:
        count = len(self._choices())
        self.require(1 <= self.num_words <= min(count, 20), f"num_words must be from 1 to {min(count, 20)}")

    def _choices(self) -> list[str]:
        lengths = range(5, 9) if self.hardcore else range(3, 7)
        return [word for length in lengths for word in read_words(self.words).get(length, ())]

    def deal(self) -> None:
        choices = self._choices()
        self.hidden = sorted(choices[int(i)] for i in self.rng.permutation(len(choices))[: self.num_words])
        self.found: list[str] = []
        self.tried: list[list[int]] = []
        side = max(max(map(len, self.hidden)) + 1, ceil(sqrt(2.5 * sum(map(len, self.hidden)))))
        while (grid := self._place(side)) is None:
            side += 1
        self.grid = ["".join(letter or ascii_lowercase[self.draw(26)] for letter in row) for row in grid]

    def _place(self, side: int) -> list[list[str]] | None:
        directions = _ALL if self.hardcore else _STRAIGHT
        grid = [[""] * side for _ in range(side)]
        for word in sorted(self.hidden, key=len, reverse=True):
            for _ in range(_TRIES):
                down, right = directions[self.draw(len(directions))]
                row, col = self.draw(side), self.draw(side)
                cells = [(row + i * down, col + i * right) for i in range(len(word))]
                last_row, last_col = cells[-1]
                if not (0 <= last_row < side and 0 <= last_col < side):
                    continue
                if all(grid[r][c] in ("", letter) for (r, c), letter in zip(cells, word)):
                    for (r, c), letter in zip(cells, word):
                        grid[r][c] = letter
                    break
            else:
                return None
        return grid

    def rules(self) -> str:
        ways = "in any of the eight directions" if self.hardcore else "from left to right or from top to bottom"
        return (
            f"Word search: {self.num_words} words are hidden in a grid of letters, {ways}. Find all of them in at most "
            f"{self.max_turns} turns."
        )

    def board(self) -> str:
        head = "    " + " ".join(f"{col:>2}" for col in range(len(self.grid)))
        rows = [f"{row:>2}  " + " ".join(f"{c.upper():>2}" for c in cells) for row, cells in enumerate(self.grid)]
        left = [word for word in self.hidden if word not in self.found]
        return "\n".join(
            [head, *rows, f"Words to find: {', '.join(left) or '-'}", f"Found: {', '.join(self.found) or '-'}"]
        )

    def play(self, box: re.Match[str]) -> Move:
        place = [int(word) if len(word) < 10 else 10**10 for word in box.groups()]
        if max(place) >= len(self.grid):
            return invalid("That cell is outside the grid.")
        row, col, last_row, last_col = place
        down, right = last_row - row, last_col - col
        if down and right and abs(down) != abs(right):
            return invalid("The two cells do not lie on a straight line.")
        if place in self.tried:
            return invalid("You have tried these cells before.")
        self.tried.append(place)
        steps = max(abs(down), abs(right))
        letters = "".join(
            self.grid[row + i * down // max(1, steps)][col + i * right // max(1, steps)] for i in range(steps + 1)
        )
        for word in self.hidden:
            if word in (letters, letters[::-1]):
                if word in self.found:
                    return invalid(f"You have found {word!r} before.")
                self.found.append(word)
                return Move(f"You have found {word!r}.", 1 / self.num_words, solved=len(self.found) == self.num_words)
        return Move(f"{letters!r} is not one of the words.")

    def view(self) -> dict[str, Any]:
        return {"grid": list(self.grid), "words": list(self.hidden), "found": list(self.found)}

    def random_action(self, rng: np.random.Generator) -> str:
        side = len(self.grid)
        row, col, length = below(rng, side), below(rng, side), 2 + below(rng, side - 2)
        down, right = _STRAIGHT[below(rng, 2)]
        last_row, last_col = (min(at + step * length, side - 1) for at, step in ((row, down), (col, right)))
        return f"\\boxed{{{row} {col} {last_row} {last_col}}}"
