"""Tetris: rows as bit masks, pieces as shifted masks, so that collision and clearing look at four rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from assay.agents.lmgame.games.engine import Engine, Played, Stream
from assay.core.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KINDS = "IOTSZJL"
ACTIONS = ("left", "right", "rotate_left", "rotate_right", "soft_drop", "hard_drop", "no_op")
LEFT, RIGHT, ROTATE_LEFT, ROTATE_RIGHT, SOFT_DROP, HARD_DROP, NO_OP = range(7)
DISTINCT = {"I": 2, "O": 1, "T": 4, "S": 2, "Z": 2, "J": 4, "L": 4}
SHOWN = 4
_SPAWN = {
    "I": ("....", "IIII", "....", "...."),
    "O": ("OO", "OO"),
    "T": (".T.", "TTT", "..."),
    "S": (".SS", "SS.", "..."),
    "Z": ("ZZ.", ".ZZ", "..."),
    "J": ("J..", "JJJ", "..."),
    "L": ("..L", "LLL", "..."),
}
_PART = re.compile(r"([a-z_]+)(?:\s*,\s*(\d+))?")


@dataclass(frozen=True, slots=True)
class Shape:
    """One rotation of a piece: its rows as masks (bit = column of the matrix) and the columns and rows it fills."""

    rows: tuple[int, ...]
    left: int
    right: int
    bottom: int


def _rotations(matrix: Sequence[str]) -> tuple[Shape, ...]:
    found = []
    grid = list(matrix)
    for _ in range(4):
        rows = tuple(sum(1 << c for c, cell in enumerate(row) if cell != ".") for row in grid)
        filled = 0
        for row in rows:
            filled |= row
        bottom = max(r for r, row in enumerate(rows) if row)
        found.append(Shape(rows, (filled & -filled).bit_length() - 1, filled.bit_length() - 1, bottom))
        grid = ["".join(column) for column in zip(*grid[::-1])]
    return tuple(found)


# SHAPES[kind][rotation], rotations clockwise from the spawn orientation.
SHAPES: tuple[tuple[Shape, ...], ...] = tuple(_rotations(_SPAWN[kind]) for kind in KINDS)
SIZES: tuple[int, ...] = tuple(len(_SPAWN[kind]) for kind in KINDS)


def fits(rows: Sequence[int], width: int, shape: Shape, x: int, y: int) -> bool:
    """Whether ``shape`` stands free with its matrix's corner at column ``x`` and row ``y``."""
    if x + shape.left < 0 or x + shape.right >= width or y + shape.bottom >= len(rows):
        return False
    return not any(mask and rows[y + r] & (mask << x if x >= 0 else mask >> -x) for r, mask in enumerate(shape.rows))


class Tetris(Engine):
    """Tetris without wall kicks and lock delay. Reward, perf_score and score: 1 a piece placed, 10 a line cleared.

    An action is a sequence ``(name[,frames])...`` in any brackets and separators; each frame plays the action, then
    the piece falls one row (not after hard_drop) or is placed when it cannot. Frames left over go on with the next
    piece. Unknown names are skipped; when no name is known, one frame passes without action.

    Parameters
    ----------
    width, height : int
        Size of the board; published 10 x 20.
    paper_compatible : bool
        The frame of an unknown action has no gravity, as in the published code (an agent can idle).
    """

    name: ClassVar[str] = "tetris"
    actions = ACTIONS
    stuck_limit: ClassVar[int] = 30
    max_steps: ClassVar[int | None] = 1000

    def __init__(self, width: int = 10, height: int = 20, paper_compatible: bool = False) -> None:
        if not 4 <= width <= 15 or not 4 <= height <= 64:
            raise UsageError(
                f"A Tetris board of {width}x{height} cannot be played; give 4 to 15 columns, 4 to 64 rows."
            )
        self.width, self.height, self.paper_compatible = width, height, paper_compatible
        self.full = (1 << width) - 1
        self.rows: list[int] = [0] * height
        self.letters: list[str] = ["." * width] * height
        self.queue: list[int] = []
        self.bag: list[int] = []
        self.stream = Stream()
        self.kind = self.rotation = self.x = self.y = 0
        self.placed = self.lines = 0
        self.over = True

    def reset(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.stream = Stream.of(rng)
        self.deal([])

    def deal(self, pieces: Sequence[int]) -> None:
        """Start on an empty board with ``pieces`` (indices into `KINDS`) coming first."""
        self.rows, self.letters = [0] * self.height, ["." * self.width] * self.height
        self.bag, self.queue = [], list(pieces)
        self.placed = self.lines = 0
        self.over = False
        self._spawn()

    def _spawn(self) -> None:
        while len(self.queue) < SHOWN + 1:
            if not self.bag:
                bag = list(range(7))
                for i in range(6, 0, -1):
                    j = self.stream.below(i + 1)
                    bag[i], bag[j] = bag[j], bag[i]
                self.bag = bag
            self.queue.append(self.bag.pop())
        self.kind = self.queue.pop(0)
        self.rotation, self.y = 0, 0
        self.x = self.width // 2 - SIZES[self.kind] // 2
        self.over = not self._fits(self.x, 0, 0)

    def _fits(self, x: int, y: int, rotation: int) -> bool:
        return fits(self.rows, self.width, SHAPES[self.kind][rotation], x, y)

    def parse(self, action: str, mapping: Mapping[str, Any] | None = None) -> list[tuple[int, int]] | None:
        found = []
        for name, frames in _PART.findall(action.lower()):
            index = mapping.get(name) if mapping is not None else ACTIONS.index(name) if name in ACTIONS else None
            if isinstance(index, int) and 0 <= index < len(ACTIONS):
                found.append((index, int(frames) if frames else 1))
        return found or None

    def play(self, command: list[tuple[int, int]]) -> Played:
        gained = 0
        for action, frames in command:
            for _ in range(frames):
                gained += self.frame(action)
                if self.over:
                    return Played(float(gained), float(gained), ended=True)
        return Played(float(gained), float(gained))

    def refuse(self) -> Played:
        gained = 0 if self.paper_compatible else self.frame(NO_OP)
        return Played(float(gained), float(gained), ended=self.over, known=False)

    def frame(self, action: int) -> int:
        """Play one frame; the points it made."""
        if action == LEFT:
            if self._fits(self.x - 1, self.y, self.rotation):
                self.x -= 1
        elif action == RIGHT:
            if self._fits(self.x + 1, self.y, self.rotation):
                self.x += 1
        elif action in (ROTATE_LEFT, ROTATE_RIGHT):
            turned = (self.rotation + (1 if action == ROTATE_RIGHT else 3)) % 4
            if self._fits(self.x, self.y, turned):
                self.rotation = turned
        elif action == SOFT_DROP:
            if self._fits(self.x, self.y + 1, self.rotation):
                self.y += 1
        elif action == HARD_DROP:
            while self._fits(self.x, self.y + 1, self.rotation):
                self.y += 1
            return self._place()
        if self._fits(self.x, self.y + 1, self.rotation):
            self.y += 1
            return 0
        return self._place()

    def _place(self) -> int:
        for y, mask in self._cells():
            self.rows[y] |= mask
            self.letters[y] = self._painted(self.letters[y], mask)
        cleared = sum(row == self.full for row in self.rows)
        if cleared:
            kept = [(row, letters) for row, letters in zip(self.rows, self.letters) if row != self.full]
            self.rows = [0] * cleared + [row for row, _ in kept]
            self.letters = ["." * self.width] * cleared + [letters for _, letters in kept]
        self.placed += 1
        self.lines += cleared
        self._spawn()
        return 1 + 10 * cleared

    def _cells(self) -> list[tuple[int, int]]:
        """(row, mask) of the active piece."""
        rows = SHAPES[self.kind][self.rotation].rows
        return [(self.y + r, mask << self.x if self.x >= 0 else mask >> -self.x) for r, mask in enumerate(rows) if mask]

    def _painted(self, line: str, mask: int) -> str:
        letter = KINDS[self.kind]
        return "".join(letter if mask >> c & 1 else old for c, old in enumerate(line))

    def board(self) -> list[str]:
        """Rows of letters, settled blocks and the active piece."""
        lines = list(self.letters)
        for y, mask in self._cells():
            lines[y] = self._painted(lines[y], mask)
        return lines

    @property
    def score(self) -> float:
        return float(self.placed + 10 * self.lines)

    def text(self) -> str:
        turns = []
        shapes = SHAPES[self.kind]
        for number in range(DISTINCT[KINDS[self.kind]]):
            shape = shapes[(self.rotation + number) % 4]
            name = "now" if not number else f"after {number} x rotate_right"
            place = "" if self._fits(self.x, self.y, (self.rotation + number) % 4) else " (no room here)"
            lines = [
                "".join(KINDS[self.kind] if mask >> c & 1 else "." for c in range(SIZES[self.kind]))
                for mask in shape.rows
            ]
            turns.append(f"{name}{place}:\n" + "\n".join(lines))
        return "\n".join(
            [
                "Board:",
                *self.board(),
                f"Next pieces: {', '.join(KINDS[kind] for kind in self.queue[:SHOWN])}",
                f"Lines: {self.lines}  Level: {self.lines // 10 + 1}  Pieces placed: {self.placed}",
                f"Active piece {KINDS[self.kind]} at column {self.x}, row {self.y}; its matrix",
                *turns,
            ]
        )

    def image(self) -> NDArray[np.uint8]:
        from assay.agents.lmgame.rendering import draw_tetris

        return draw_tetris(self.board(), [_SPAWN[KINDS[kind]] for kind in self.queue[:SHOWN]], int(self.score))

    def info(self) -> dict[str, Any]:
        return {
            "score": 10 * self.lines,
            "lines": self.lines,
            "level": self.lines // 10 + 1,
            "pieces": self.placed,
            "piece": KINDS[self.kind],
            "next_pieces": [KINDS[kind] for kind in self.queue[:SHOWN]],
        }

    def get_state(self) -> dict[str, Any]:
        return {
            "board": list(self.letters),
            "queue": list(self.queue),
            "bag": list(self.bag),
            "kind": self.kind,
            "rotation": self.rotation,
            "x": self.x,
            "y": self.y,
            "placed": self.placed,
            "lines": self.lines,
            "over": self.over,
            "stream": self.stream.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.letters = list(state["board"])
        self.height, self.width = len(self.letters), len(self.letters[0])
        self.full = (1 << self.width) - 1
        self.rows = [sum(1 << c for c, cell in enumerate(line) if cell != ".") for line in self.letters]
        self.queue, self.bag = list(state["queue"]), list(state["bag"])
        self.kind, self.rotation, self.x, self.y = state["kind"], state["rotation"], state["x"], state["y"]
        self.placed, self.lines, self.over = state["placed"], state["lines"], state["over"]
        self.stream = Stream(state["stream"])
