"""2048 on one 64-bit integer: sixteen 4-bit powers, moves by row tables, columns by transposing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from assay.agents.lmgame.games.engine import Engine, Played, Stream
from assay.core.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ACTIONS = ("up", "right", "down", "left")
UP, RIGHT, DOWN, LEFT = range(4)


def row_tables() -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint32]]:
    """(left, right, score) of all 65,536 rows; column 0 is the lowest nibble.

    Two tiles of power 15 (32,768) do not merge: power 16 has no nibble.
    """
    index = np.arange(65536, dtype=np.uint32)
    cells = np.stack([(index >> (4 * c)) & 15 for c in range(4)], axis=1).astype(np.int64)

    def slide(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.take_along_axis(rows, np.argsort(rows == 0, axis=1, kind="stable"), axis=1)

    def packed(rows: NDArray[np.int64]) -> NDArray[np.uint16]:
        return (rows << np.array([0, 4, 8, 12])).sum(axis=1).astype(np.uint16)

    moved = slide(cells)
    score = np.zeros(65536, np.int64)
    for c in range(3):
        merge = (moved[:, c] == moved[:, c + 1]) & (moved[:, c] > 0) & (moved[:, c] < 15)
        moved[:, c] += merge
        moved[merge, c + 1] = 0
        score += np.where(merge, 1 << moved[:, c], 0)
    left = packed(slide(moved))
    mirror = packed(cells[:, ::-1])
    # Read from the other end, other pairs of a run may merge, but as many: the score table serves both.
    return left, mirror[left[mirror]], score.astype(np.uint32)


@cache
def _lists() -> tuple[list[int], list[int], list[int]]:
    # Python lists: indexing a numpy array with an int costs five times as much.
    left, right, score = row_tables()
    return left.tolist(), right.tolist(), score.tolist()


def transpose(board: int) -> int:
    """The board with rows and columns exchanged."""
    a = (board & 0xF0F00F0FF0F00F0F) | ((board & 0x0000F0F00000F0F0) << 12) | ((board & 0x0F0F00000F0F0000) >> 12)
    return (a & 0xFF00FF0000FF00FF) | ((a >> 24) & 0x00000000FF00FF00) | ((a & 0x00000000FF00FF00) << 24)


def move(board: int, action: int) -> tuple[int, int]:
    """(board after sliding and merging, sum of the merged tiles' values); no tile is spawned."""
    left, right, score = _lists()
    vertical = action in (UP, DOWN)
    if vertical:
        board = transpose(board)
    table = left if action in (UP, LEFT) else right
    r0, r1, r2, r3 = board & 0xFFFF, (board >> 16) & 0xFFFF, (board >> 32) & 0xFFFF, board >> 48
    after = table[r0] | table[r1] << 16 | table[r2] << 32 | table[r3] << 48
    return (transpose(after) if vertical else after), score[r0] + score[r1] + score[r2] + score[r3]


def legal(board: int) -> list[int]:
    """The actions that change the board."""
    return [action for action in range(4) if move(board, action)[0] != board]


def empty_cells(board: int) -> list[int]:
    """Indices (row-major) of the empty cells."""
    return [i for i in range(16) if not (board >> (4 * i)) & 15]


def spawn(board: int, stream: Stream) -> int:
    """The board with a 2 (p 0.9) or a 4 on a uniformly random empty cell."""
    cells = empty_cells(board)
    cell = cells[stream.below(len(cells))]
    power = 1 if stream.unit() > 0.1 else 2
    return board | power << (4 * cell)


def pack(tiles: ArrayLike) -> int:
    """The 64-bit board of a 4x4 array of tile values (0 for empty)."""
    values = np.asarray(tiles)
    if values.shape != (4, 4):
        raise DataError(f"A 2048 board has 4 rows of 4 tiles, got shape {values.shape}.")
    board = 0
    for i, value in enumerate(values.ravel().tolist()):
        power = int(value).bit_length() - 1 if value else 0
        if value and (value != 1 << power or not 1 <= power <= 15):
            raise DataError(f"Tile {value!r} at row {i // 4}, column {i % 4} is no power of two from 2 to 32768.")
        board |= power << (4 * i)
    return board


def unpack(board: int) -> NDArray[np.int64]:
    """The 4x4 array of tile values."""
    powers = np.array([(board >> (4 * i)) & 15 for i in range(16)], dtype=np.int64)
    return np.where(powers > 0, 1 << powers, 0).reshape(4, 4)


class TwentyFortyEight(Engine):
    """2048. Reward, perf_score and score: the sum of the values of the tiles that merging made.

    The reported score is 10*log2 of the total (`reported_score`), averaged over runs after the logarithm.
    """

    name: ClassVar[str] = "twenty_forty_eight"
    actions = ACTIONS
    stuck_limit: ClassVar[int] = 10
    max_steps: ClassVar[int | None] = 1000

    def __init__(self) -> None:
        self.board = 0
        self.total = 0
        self.illegal = 0
        self.stream = Stream()

    def reset(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.stream = Stream.of(rng)
        self.board = spawn(spawn(0, self.stream), self.stream)
        self.total = self.illegal = 0

    def play(self, command: str) -> Played:
        after, gained = move(self.board, ACTIONS.index(command))
        if after == self.board:
            self.illegal += 1
            return Played(ended=not legal(self.board))
        self.board = spawn(after, self.stream)
        self.total += gained
        return Played(float(gained), float(gained), ended=not legal(self.board))

    @property
    def score(self) -> float:
        return float(self.total)

    @property
    def tiles(self) -> NDArray[np.int64]:
        """4x4 tile values."""
        return unpack(self.board)

    def text(self) -> str:
        tiles = self.tiles
        rows = ", ".join(str(row) for row in tiles.tolist())
        return f"{{'board': [{rows}], 'highest_tile': {int(tiles.max())}, 'empty_cells': {int((tiles == 0).sum())}}}"

    def image(self) -> NDArray[np.uint8]:
        from assay.agents.lmgame.rendering import draw_2048

        return draw_2048(self.tiles, self.total)

    def info(self) -> dict[str, Any]:
        tiles = self.tiles
        return {
            "highest_tile": int(tiles.max()),
            "empty_cells": int((tiles == 0).sum()),
            "illegal_moves": self.illegal,
            "legal_actions": [ACTIONS[action] for action in legal(self.board)],
        }

    def get_state(self) -> dict[str, Any]:
        return {"board": self.board, "total": self.total, "illegal": self.illegal, "stream": self.stream.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.board, self.total, self.illegal = state["board"], state["total"], state["illegal"]
        self.stream = Stream(state["stream"])
