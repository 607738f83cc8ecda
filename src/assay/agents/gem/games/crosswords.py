"""Crosswords: fill a small crossword letter by letter."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.agents.gem.env import below
from assay.agents.gem.games.base import Game, Move, boxed, invalid
from assay.core.datasets import read_jsonl, require
from assay.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np

SHIPPED = Path(__file__).with_name("crosswords.jsonl")
_TRIES = 200


class Entry(NamedTuple):
    """A word (lower case), whether it is a hard one, and its clues."""

    word: str
    hardcore: bool
    clues: tuple[str, ...]


def read_entries(path: str | None = None) -> tuple[Entry, ...]:
    """Words and clues in the published format: JSON lines ``{word, hardcore, clues: {"1": clue, ...}}``.

    Raises
    ------
    DataError
        A line is not of that format, or the word is not of the letters a to z.
    """
    file = SHIPPED if path is None else Path(path).expanduser()
    return _read(file, file.stat().st_mtime_ns if file.is_file() else 0)


@lru_cache(maxsize=8)
def _read(file: Path, _: int) -> tuple[Entry, ...]:
    # The time of the last change is an argument, so that a changed file is read again.
    entries = []
    for number, row in read_jsonl(file):
        where = f"{file}, line {number}"
        word = require(row, "word", str, where).strip().lower()
        clues = [str(clue) for clue in require(row, "clues", dict, where).values()]
        if not re.fullmatch("[a-z]{2,}", word):
            raise DataError(f"{where}: field 'word' is {word!r}, and must be two letters a to z or more.")
        if not clues:
            raise DataError(f"{where}: field 'clues' is empty; every word needs a clue.")
        entries.append(Entry(word, require(row, "hardcore", bool, where), tuple(clues)))
    return tuple(entries)


class Placed(NamedTuple):
    """A word in the grid: its first cell, and whether it goes down."""

    word: str
    row: int
    col: int
    down: bool

    def cells(self) -> list[tuple[int, int]]:
        """Cells from the first letter on."""
        return [(self.row + i * self.down, self.col + i * (not self.down)) for i in range(len(self.word))]


def crossings(word: str, placed: list[Placed]) -> list[Placed]:
    """Places where a word crosses the others and touches none of them side by side or end to end."""
    letters = {cell: letter for other in placed for cell, letter in zip(other.cells(), other.word)}
    found = []
    for other in placed:
        for row, col in other.cells():
            for i, letter in enumerate(word):
                if letter != letters[row, col]:
                    continue
                down = not other.down
                place = Placed(word, row - i * down, col - i * (not down), down)
                if place not in found and _fits(place, letters):
                    found.append(place)
    return found


def _fits(place: Placed, letters: dict[tuple[int, int], str]) -> bool:
    down, right = int(place.down), int(not place.down)
    cells = place.cells()
    before, after = (cells[0][0] - down, cells[0][1] - right), (cells[-1][0] + down, cells[-1][1] + right)
    if before in letters or after in letters:
        return False
    for (row, col), letter in zip(cells, place.word):
        held = letters.get((row, col))
        if held is None:
            if (row - right, col - down) in letters or (row + right, col + down) in letters:
                return False
        elif held != letter:
            return False
    return True


class Crosswords(Game):
    """A right letter earns 1 / letters; cells that are filled stay.

    ``hardcore`` chooses the class of words; ``words`` is a JSON lines file of words and clues instead of the shipped
    one (written for assay).
    """

    levels = {
        "easy": {"hardcore": False, "max_turns": 30, "num_words": 3, "words": None},
        "hard": {"hardcore": True, "max_turns": 40, "num_words": 3, "words": None},
    }
    pattern = boxed(r"([0-9]+)\s+([0-9]+)\s+([A-Za-z])")
    answer_hint = "Give a letter as \\boxed{ROW COLUMN LETTER}; rows and columns count from 0."
    saved = ("solution", "shown", "clues")
    hardcore: bool
    num_words: int
    words: str | None

    def check(self) -> None:
        count = sum(entry.hardcore == self.hardcore for entry in read_entries(self.words))
        self.require(1 <= self.num_words <= count, f"num_words must be from 1 to the {count} words of this class")

    def deal(self) -> None:
        entries = [entry for entry in read_entries(self.words) if entry.hardcore == self.hardcore]
        for _ in range(_TRIES):
            chosen = [entries[int(i)] for i in self.rng.permutation(len(entries))]
            placed = [Placed(chosen[0].word, 0, 0, False)]
            used = [chosen[0]]
            for entry in chosen[1:]:
                if len(placed) == self.num_words:
                    break
                places = crossings(entry.word, placed)
                if places:
                    placed.append(places[self.draw(len(places))])
                    used.append(entry)
            if len(placed) == self.num_words:
                self._write(placed, used)
                return
        self.require(False, f"no {self.num_words} words of the list cross")

    def _write(self, placed: list[Placed], used: list[Entry]) -> None:
        cells = [cell for place in placed for cell in place.cells()]
        top, left = min(row for row, _ in cells), min(col for _, col in cells)
        rows, cols = max(row for row, _ in cells) - top + 1, max(col for _, col in cells) - left + 1
        grid = [["."] * cols for _ in range(rows)]
        self.clues: list[str] = []
        for place, entry in zip(placed, used):
            for (row, col), letter in zip(place.cells(), place.word):
                grid[row - top][col - left] = letter
            clue = entry.clues[self.draw(len(entry.clues))]
            way = "down" if place.down else "across"
            self.clues.append(f"{way} from {place.row - top} {place.col - left}, {len(place.word)} letters: {clue}")
        self.solution = ["".join(row) for row in grid]
        self.shown = [re.sub("[a-z]", "_", row) for row in self.solution]

    def rules(self) -> str:
        return (
            f"Crossword of {self.num_words} words. Cells to fill are shown as _, cells without a letter as a dot. A "
            f"right letter stays. Fill every cell in at most {self.max_turns} turns."
        )

    def board(self) -> str:
        head = "    " + " ".join(f"{col:>2}" for col in range(len(self.shown[0])))
        rows = [
            f"{row:>2}  " + " ".join(f"{cell.upper():>2}" for cell in cells) for row, cells in enumerate(self.shown)
        ]
        clues = [f"{number}. {clue}" for number, clue in enumerate(self.clues, 1)]
        return "\n".join([head, *rows, *clues])

    def play(self, box: re.Match[str]) -> Move:
        row, col = (int(word) if len(word) < 10 else 10**10 for word in (box[1], box[2]))
        letter = box[3].lower()
        if row >= len(self.shown) or col >= len(self.shown[0]):
            return invalid("That cell is outside the grid.")
        if self.shown[row][col] == ".":
            return invalid("That cell holds no letter.")
        if self.shown[row][col] != "_":
            return invalid("That cell is filled already.")
        if self.solution[row][col] != letter:
            return Move(f"{letter.upper()} is not right there.")
        self.shown[row] = self.shown[row][:col] + letter + self.shown[row][col + 1 :]
        letters = sum(cell != "." for cells in self.solution for cell in cells)
        return Move(f"{letter.upper()} is right.", 1 / letters, solved=self.shown == self.solution)

    def view(self) -> dict[str, Any]:
        return {"grid": list(self.shown), "clues": list(self.clues), "words": self.words}

    def random_action(self, rng: np.random.Generator) -> str:
        empty = [(r, c) for r, row in enumerate(self.shown) for c, cell in enumerate(row) if cell == "_"] or [(0, 0)]
        row, col = empty[below(rng, len(empty))]
        return f"\\boxed{{{row} {col} {ascii_lowercase[below(rng, 26)]}}}"
