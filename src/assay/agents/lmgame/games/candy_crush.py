"""Candy Crush (match three) on bit boards: one integer a colour, so runs and effective moves are a few shifts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

from assay.agents.lmgame.games.engine import Engine, Played, Stream
from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LETTERS = "RGBYPO"
_LETTER = str.maketrans(dict(zip("123456", LETTERS)) | {"0": "\n"})
_FLAGS = bytes.maketrans(b"01", b"\0\1")
_SWAP = re.compile(r"\(\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)\s*,\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)\s*\)")
Cell = tuple[int, int]


class Board:
    """A board of ``rows`` x ``columns`` candies.

    ``candies`` is one integer with a lane of bits for every colour, so that a few shifts serve all colours at once.
    Cell (r, c) is bit ``r * (columns + 1) + c`` of a lane: the spare column keeps horizontal shifts from running into
    the next row, and two spare rows keep vertical ones from running into the next lane.
    """

    def __init__(self, rows: int, columns: int, colours: int) -> None:
        self.rows, self.columns, self.colours = rows, columns, colours
        self.stride = columns + 1
        self.all = sum(((1 << columns) - 1) << (r * self.stride) for r in range(rows))
        self.lane = (rows + 2) * self.stride
        self._lanes = [k * self.lane for k in range(colours)]
        self.every = sum(1 << lane for lane in self._lanes)
        self._doublings = [self.stride << i for i in range((rows - 1).bit_length())]
        self.candies = 0

    @classmethod
    def of(cls, cells: Sequence[Sequence[int]], colours: int) -> Board:
        """A board of colours 0 .. colours-1, given as rows."""
        board = cls(len(cells), len(cells[0]), colours)
        for r, row in enumerate(cells):
            for c, colour in enumerate(row):
                board.candies |= board.bit(r, c) << colour * board.lane
        return board

    def bit(self, row: int, column: int) -> int:
        return 1 << (row * self.stride + column)

    @property
    def masks(self) -> list[int]:
        """The cells of each colour."""
        return [self.candies >> lane & self.all for lane in self._lanes]

    def digits(self) -> str:
        """A hexadecimal digit a cell, row by row: the colour plus one, 0 without a candy; and a 0 after each row."""
        # A mask's binary digits read as hexadecimal ones spread it to a nibble a cell: colours add up without a loop.
        spread = sum([(colour + 1) * int(f"{mask:b}", 16) for colour, mask in enumerate(self.masks)])
        return f"{spread:0{self.rows * self.stride}x}"[::-1]

    def cells(self) -> list[list[int]]:
        """Rows of colours; -1 where there is none."""
        flat = self.digits()
        starts = range(0, len(flat), self.stride)
        return [[int(digit, 16) - 1 for digit in flat[i : i + self.columns]] for i in starts]

    def _any_colour(self, lanes: int) -> int:
        """Cells that stand in some lane."""
        found = 0
        for lane in self._lanes:
            found |= lanes >> lane
        return found & self.all

    def runs(self) -> int:
        """Cells that lie in a run of three or more of one colour."""
        b, w = self.candies, self.stride
        across, down = b & b >> 1 & b >> 2, b & b >> w & b >> 2 * w
        if not across and not down:
            return 0
        return self._any_colour(across | across << 1 | across << 2 | down | down << w | down << 2 * w)

    def lines(self) -> list[list[Cell]]:
        """Maximal runs, horizontal ones first, each as its cells."""
        cells = self.cells()
        found = []
        for length, other, across in ((self.columns, self.rows, True), (self.rows, self.columns, False)):
            for fixed in range(other):
                start = 0
                for i in range(1, length + 1):
                    at = [(fixed, j) if across else (j, fixed) for j in range(start, i)]
                    here = cells[at[0][0]][at[0][1]]
                    ahead = None if i == length else cells[fixed][i] if across else cells[i][fixed]
                    if ahead != here:
                        if len(at) >= 3 and here >= 0:
                            found.append(at)
                        start = i
        return found

    def effective(self) -> tuple[int, int]:
        """Swaps that make a run, on a board without runs.

        Returns
        -------
        (int, int)
            Upper cells of the vertical swaps and left cells of the horizontal ones.
        """
        vertical, horizontal = self._effective(self.candies, self.all * self.every)
        return self._any_colour(vertical), self._any_colour(horizontal)

    def _effective(self, b: int, cells: int) -> tuple[int, int]:
        """The same lane by lane: of the candies ``b``, with swaps into ``cells``."""
        w = self.stride
        left, right, up, down = b << 1, b >> 1, b << w, b >> w
        left2, right2, up2, down2 = left & b << 2, right & b >> 2, up & b << 2 * w, down & b >> 2 * w
        row = left2 | right2 | left & right
        column = up2 | down2 | up & down
        # The candy comes from one side; the line that completes must not need the cell it leaves.
        vertical = (up & (row | down2) & cells) >> w | down & (row | up2) & cells
        return vertical, (left & (column | right2) & cells) >> 1 | right & (column | left2) & cells

    def playable(self) -> bool:
        """Whether some swap makes a run, on a board without runs."""
        for lane in self._lanes:
            # Colour by colour: the first one nearly always has a swap.
            vertical, horizontal = self._effective(self.candies >> lane & self.all, self.all)
            if vertical or horizontal:
                return True
        return False

    def swap(self, a: int, b: int) -> None:
        """Exchange the candies at bits ``a`` and ``b``, ``a`` the lower one."""
        here, there = self.candies & a * self.every, self.candies & b * self.every
        distance = b.bit_length() - a.bit_length()
        self.candies ^= here ^ there ^ here << distance ^ there >> distance

    def drop(self, gone: int) -> int:
        """Take candies away and let the others fall; the empty cells."""
        w, every = self.stride, self.every
        candies, empty = self.candies & (self.all ^ gone) * every, gone
        while True:
            # Everything above a gap falls by one row at a time: as many rounds as a column has gaps.
            above = empty >> w
            for reach in self._doublings:
                above |= above >> reach
            moving = above & ~empty
            if not moving:
                break
            part = candies & moving * every
            candies ^= part ^ part << w
            empty = (empty | moving) & ~(moving << w)
        self.candies = candies
        return empty

    def fill(self, empty: int, stream: Stream) -> None:
        """Put random colours into empty cells, row by row: four colours of every 64 random bits."""
        candies, colours, lanes, draw = self.candies, self.colours, self._lanes, stream.bits
        while empty:
            bits = draw()
            # Of 16 bits each: its bias is below 1 in 10,000.
            for shift in (0, 16, 32, 48):
                low = empty & -empty
                empty ^= low
                candies |= low << lanes[(bits >> shift & 0xFFFF) * colours >> 16]
                if not empty:
                    break
        self.candies = candies


def action_count(rows: int, columns: int) -> int:
    """Number of swaps of neighbours."""
    return 2 * rows * columns - rows - columns


def swap_of(index: int, rows: int, columns: int) -> tuple[Cell, Cell]:
    """The cells that action ``index`` swaps: first vertical swaps, then horizontal ones, row-major."""
    if index < columns * (rows - 1):
        r, c = divmod(index, columns)
        return (r, c), (r + 1, c)
    r, c = divmod(index - columns * (rows - 1), columns - 1)
    return (r, c), (r, c + 1)


def index_of(a: Cell, b: Cell, rows: int, columns: int) -> int | None:
    """The action that swaps ``a`` and ``b`` in either order, or None when they are no neighbours on the board."""
    (r, c), (s, d) = sorted((a, b))
    if not (0 <= r <= s < rows and 0 <= c < columns and 0 <= d < columns):
        return None
    if (s, d) == (r + 1, c):
        return r * columns + c
    if (s, d) == (r, c + 1):
        return columns * (rows - 1) + r * (columns - 1) + c
    return None


class CandyCrush(Engine):
    """Candy Crush with 50 moves and no special candies.

    Reward, perf_score and score: candies removed, cascades included. A swap that makes no run, and a text that is no
    swap, use up a move. When no swap makes a run the board is shuffled.

    Parameters
    ----------
    rows, columns, colours, moves : int
        Size of the board, number of colours (3 to 6) and of moves.
    """

    name: ClassVar[str] = "candy_crush"
    stuck_limit: ClassVar[int] = 50
    max_steps: ClassVar[int | None] = None

    def __init__(self, rows: int = 8, columns: int = 8, colours: int = 4, moves: int = 50) -> None:
        if min(rows, columns) < 3 or not 3 <= colours <= len(LETTERS) or moves < 1:
            raise UsageError(
                f"Candy Crush of {rows}x{columns}, {colours} colours, {moves} moves cannot be played; give at least "
                f"3x3, 3 to {len(LETTERS)} colours and one move."
            )
        self.rows, self.columns, self.colours, self.moves = rows, columns, colours, moves
        self.board = Board(rows, columns, colours)
        swaps = (swap_of(index, rows, columns) for index in range(action_count(rows, columns)))
        self._swaps = list(swaps)
        self.actions = tuple(f"(({a[0]},{a[1]}),({b[0]},{b[1]}))" for a, b in self._swaps)
        self._bits = [(self.board.bit(*a), self.board.bit(*b)) for a, b in self._swaps]
        first = columns * (rows - 1)
        # Action by the bit of its upper cell, for vertical swaps; then by that of its left cell, for horizontal ones.
        self._size = rows * self.board.stride
        self._by_bit = [-1] * (2 * self._size)
        for action, (a, _) in enumerate(self._bits):
            self._by_bit[a.bit_length() - 1 + (self._size if action >= first else 0)] = action
        self._header = "    " + " ".join(f"{c:>2}" for c in range(columns)) + "\n"
        self._labels = [f"{r:>2}|  " for r in range(rows)]
        self.stream = Stream()
        self.total = self.used = self.shuffles = 0

    def reset(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.stream = Stream.of(rng)
        self.total = self.used = self.shuffles = 0
        self._deal()

    def _deal(self) -> None:
        board = self.board
        while True:
            board.candies = 0
            board.fill(board.all, self.stream)
            # New colours where runs stand, rather than whole new boards: large boards nearly always hold some run.
            while runs := board.runs():
                board.candies &= ~(runs * board.every)
                board.fill(runs, self.stream)
            if board.playable():
                return

    def _shuffle(self) -> None:
        """Mix the candies until a swap makes a run; a board that a hundred mixings do not help is dealt anew."""
        self.shuffles += 1
        flat = [colour for row in self.board.cells() for colour in row]
        for _ in range(100):
            for i in range(len(flat) - 1, 0, -1):
                j = self.stream.below(i + 1)
                flat[i], flat[j] = flat[j], flat[i]
            rows = [flat[r * self.columns : (r + 1) * self.columns] for r in range(self.rows)]
            board = Board.of(rows, self.colours)
            if not board.runs() and board.playable():
                self.board = board
                return
        self._deal()

    def parse(self, action: str, mapping: Mapping[str, Any] | None = None) -> int | None:
        text = action.strip()
        if mapping is not None and isinstance(mapping.get(text.lower()), int):
            text = str(mapping[text.lower()])
        if text.isdecimal():
            index = int(text)
            return index if index < len(self.actions) else None
        found = _SWAP.fullmatch(text)
        if not found:
            return None
        r, c, s, d = map(int, found.groups())
        return index_of((r, c), (s, d), self.rows, self.columns)

    def play(self, command: int) -> Played:
        self.used += 1
        a, b = self._bits[command]
        board = self.board
        board.swap(a, b)
        runs = board.runs()
        if not runs:
            board.swap(a, b)
            return Played(ended=self.used >= self.moves)
        removed = 0
        while runs:
            removed += runs.bit_count()
            board.fill(board.drop(runs), self.stream)
            runs = board.runs()
        if not board.playable():
            self._shuffle()
        self.total += removed
        return Played(float(removed), float(removed), ended=self.used >= self.moves)

    def refuse(self) -> Played:
        self.used += 1
        return Played(known=False, ended=self.used >= self.moves)

    @property
    def score(self) -> float:
        return float(self.total)

    def effective_actions(self) -> list[int]:
        """Actions that make a run now."""
        vertical, horizontal = self.board.effective()
        flags = f"{vertical | horizontal << self._size:b}"[::-1].encode().translate(_FLAGS)
        return list(compress(self._by_bit, flags))

    def text(self) -> str:
        # The digit after each row becomes the end of its line, with a blank or two around it.
        rows = "  ".join(self.board.digits().translate(_LETTER)).split("  \n  ")
        rows[-1] = rows[-1][:-3]
        lines = "\n".join([label + row for label, row in zip(self._labels, rows)])
        return f"{self._header}{lines}\nScore: {self.total}  Moves left: {self.moves - self.used}"

    def image(self) -> NDArray[np.uint8]:
        from assay.agents.lmgame.rendering import draw_candy

        return draw_candy(self.board.cells(), self.total, self.moves - self.used)

    def info(self) -> dict[str, Any]:
        return {
            "moves_left": self.moves - self.used,
            "shuffles": self.shuffles,
            "effective_actions": self.effective_actions(),
        }

    def get_state(self) -> dict[str, Any]:
        rows = ["".join(LETTERS[colour] for colour in row) for row in self.board.cells()]
        return {
            "board": rows,
            "colours": self.colours,
            "moves": self.moves,
            "total": self.total,
            "used": self.used,
            "shuffles": self.shuffles,
            "stream": self.stream.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        rows = state["board"]
        if (len(rows), len(rows[0]), state["colours"]) != (self.rows, self.columns, self.colours):
            raise DataError(
                f"The state is of a {len(rows)}x{len(rows[0])} board of {state['colours']} colours, this game has "
                f"{self.rows}x{self.columns} and {self.colours}."
            )
        self.board = Board.of([[LETTERS.index(letter) for letter in row] for row in rows], self.colours)
        self.moves = state["moves"]
        self.total, self.used, self.shuffles = state["total"], state["used"], state["shuffles"]
        self.stream = Stream(state["stream"])
