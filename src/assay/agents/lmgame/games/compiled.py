"""Compiled batches of 2048 and Tetris: the same games as the engines, many at a time (numba). See `compiled_candy`.

Element i of a batch reset with generators ``rngs`` plays exactly what the engine plays with ``rngs[i]``: the streams
are the same, so a batch can be checked against single games.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from assay.agents.lmgame.games import tetris as rules
from assay.agents.lmgame.games.engine import Stream
from assay.agents.lmgame.games.twenty_forty_eight import row_tables
from assay.core.errors import MissingExtra, UsageError

try:
    from numba import njit
except ImportError as error:
    raise MissingExtra("Batched stepping of games", "lmgame") from error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_U = np.uint64
GOLDEN, _MIX1, _MIX2 = _U(0x9E3779B97F4A7C15), _U(0xBF58476D1CE4E5B9), _U(0x94D049BB133111EB)
_S11, _S12, _S24, _S27, _S30, _S31, _S32 = _U(11), _U(12), _U(24), _U(27), _U(30), _U(31), _U(32)
_T0, _T1, _T2 = _U(0xF0F00F0FF0F00F0F), _U(0x0000F0F00000F0F0), _U(0x0F0F00000F0F0000)
_T3, _T4, _T5 = _U(0xFF00FF0000FF00FF), _U(0x00000000FF00FF00), _U(0x00000000FF00FF00)
_ROW, _NIBBLE, _ZERO, _ONE, _FOUR = _U(0xFFFF), _U(15), _U(0), _U(1), _U(4)
_R1, _R2, _R3 = _U(16), _U(32), _U(48)


@njit(cache=True, inline="always")
def mixed(state):
    z = state
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    return z ^ (z >> _S31)


@njit(cache=True, inline="always")
def below(bits, n):
    return ((bits >> _S32) * _U(n)) >> _S32


@njit(cache=True, inline="always")
def _transpose(board):
    a = (board & _T0) | ((board & _T1) << _S12) | ((board & _T2) >> _S12)
    return (a & _T3) | ((a >> _S24) & _T4) | ((a & _T5) << _S24)


@njit(cache=True)
def _moved(board, action, left, right, score):
    vertical = action == 0 or action == 2
    b = _transpose(board) if vertical else board
    table = left if action == 0 or action == 3 else right
    r0, r1, r2, r3 = b & _ROW, (b >> _R1) & _ROW, (b >> _R2) & _ROW, b >> _R3
    after = _U(table[r0]) | _U(table[r1]) << _R1 | _U(table[r2]) << _R2 | _U(table[r3]) << _R3
    gained = score[r0] + score[r1] + score[r2] + score[r3]
    return (_transpose(after) if vertical else after), gained


@njit(cache=True)
def _spawned(board, state):
    empty = 0
    b = board
    for _ in range(16):
        empty += (b & _NIBBLE) == _ZERO
        b >>= _FOUR
    state += GOLDEN
    skip = below(mixed(state), empty)
    state += GOLDEN
    power = _U(1) if (mixed(state) >> _S11) * 2.0**-53 > 0.1 else _U(2)
    shift, b = _ZERO, board
    while True:
        if (b & _NIBBLE) == _ZERO:
            if skip == _ZERO:
                return board | power << shift, state
            skip -= _ONE
        b >>= _FOUR
        shift += _FOUR


@njit(cache=True)
def _stuck(board, left, right, score):
    moves = 0
    for action in range(4):
        moves += _moved(board, action, left, right, score)[0] != board
    return moves == 0


@njit(cache=True)
def _start_2048(boards, streams, totals, which):
    for i in range(boards.shape[0]):
        if which[i]:
            board, state = _spawned(_ZERO, streams[i])
            boards[i], streams[i] = _spawned(board, state)
            totals[i] = 0


@njit(cache=True)
def _step_2048(boards, streams, totals, actions, gains, legal, over, left, right, score):
    for i in range(boards.shape[0]):
        gains[i], legal[i] = 0, False
        if over[i]:
            continue
        after, gained = _moved(boards[i], actions[i], left, right, score)
        if after != boards[i]:
            legal[i], gains[i] = True, gained
            totals[i] += gained
            boards[i], streams[i] = _spawned(after, streams[i])
            # Only a full board can be stuck.
            full = (boards[i] & _NIBBLE) != _ZERO
            b = boards[i]
            for _ in range(16):
                full = full and (b & _NIBBLE) != _ZERO
                b >>= _FOUR
            if full:
                over[i] = _stuck(boards[i], left, right, score)


@njit(cache=True)
def _unpack(boards, out):
    for i in range(boards.shape[0]):
        b = boards[i]
        for cell in range(16):
            out[i, cell >> 2, cell & 3] = b & _NIBBLE
            b >>= _FOUR


class Batch2048:
    """Many games of 2048 stepped together.

    Attributes
    ----------
    boards : (n,) uint64
        Boards as `twenty_forty_eight` packs them.
    totals : (n,) int64
        Scores.
    over : (n,) bool
        Games that have ended; stepping leaves them as they are.
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise UsageError(f"A batch of {n} games cannot be played; give at least 1.")
        self.left, self.right, self.table = (table.astype(np.int64) for table in row_tables())
        self.left, self.right = self.left.astype(np.uint16), self.right.astype(np.uint16)
        self.boards, self.streams = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        self.totals, self.over = np.zeros(n, np.int64), np.ones(n, bool)
        self.gains, self.legal = np.zeros(n, np.int64), np.zeros(n, bool)

    def reset(self, rngs: Sequence[np.random.Generator]) -> None:
        """Start every game anew, game i from ``rngs[i]``."""
        self.streams[:] = [Stream.of(rng).state for rng in rngs]
        self.restart(np.ones(len(self.boards), bool))

    def restart(self, which: NDArray[np.bool_]) -> None:
        """Start the games that ``which`` marks anew, going on in their streams."""
        _start_2048(self.boards, self.streams, self.totals, which)
        self.over[which] = False

    def step(self, actions: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Play ``actions`` (n, in 0..3); (points gained, whether the move was legal), valid until the next step."""
        actions = np.asarray(actions)
        _step_2048(
            self.boards, self.streams, self.totals, actions, self.gains, self.legal, self.over, self.left, self.right,
            self.table,
        )  # fmt: skip
        return self.gains, self.legal

    def powers(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """(n, 4, 4) powers of two of the tiles, 0 for empty."""
        out = np.empty((len(self.boards), 4, 4), np.uint8) if out is None else out
        _unpack(self.boards, out)
        return out


def _shape_tables() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    masks, bounds = np.zeros((7, 4, 4), np.int64), np.zeros((7, 4, 3), np.int64)
    for kind, shapes in enumerate(rules.SHAPES):
        for turn, shape in enumerate(shapes):
            masks[kind, turn, : len(shape.rows)] = shape.rows
            bounds[kind, turn] = shape.left, shape.right, shape.bottom
    return masks, bounds


_MASKS, _BOUNDS = _shape_tables()
_SIZES = np.array(rules.SIZES, np.int64)
_QUEUE = rules.SHOWN + 1


@njit(cache=True)
def _fits(rows, width, kind, turn, x, y):
    if x + _BOUNDS[kind, turn, 0] < 0 or x + _BOUNDS[kind, turn, 1] >= width:
        return False
    bottom = _BOUNDS[kind, turn, 2]
    if y + bottom >= rows.shape[0]:
        return False
    for r in range(bottom + 1):
        mask = _MASKS[kind, turn, r]
        mask = mask << x if x >= 0 else mask >> -x
        if rows[y + r] & mask:
            return False
    return True


# Columns of the integer table of a game: piece, queue, then the bag and how many are left in it.
_KIND, _TURN, _X, _Y, _PLACED, _LINES, _FIRST, _BAG, _LEFT_IN_BAG = 0, 1, 2, 3, 4, 5, 6, 6 + 5, 6 + 5 + 7


@njit(cache=True)
def _spawn(rows, game, queued, state, width):
    while queued < _QUEUE:
        if game[_LEFT_IN_BAG] == 0:
            for i in range(7):
                game[_BAG + i] = i
            for i in range(6, 0, -1):
                state += GOLDEN
                j = np.int64(below(mixed(state), i + 1))
                game[_BAG + i], game[_BAG + j] = game[_BAG + j], game[_BAG + i]
            game[_LEFT_IN_BAG] = 7
        game[_LEFT_IN_BAG] -= 1
        game[_FIRST + queued] = game[_BAG + game[_LEFT_IN_BAG]]
        queued += 1
    kind = game[_FIRST]
    for i in range(_QUEUE - 1):
        game[_FIRST + i] = game[_FIRST + i + 1]
    game[_KIND], game[_TURN], game[_Y] = kind, 0, 0
    game[_X] = width // 2 - _SIZES[kind] // 2
    return state, not _fits(rows, width, kind, 0, game[_X], 0)


@njit(cache=True)
def _place(rows, game, state, width):
    kind, turn, x, y = game[_KIND], game[_TURN], game[_X], game[_Y]
    full = (1 << width) - 1
    cleared = 0
    for r in range(_BOUNDS[kind, turn, 2] + 1):
        mask = _MASKS[kind, turn, r]
        if mask:
            rows[y + r] |= mask << x if x >= 0 else mask >> -x
            cleared += rows[y + r] == full
    if cleared:
        to = rows.shape[0] - 1
        for r in range(rows.shape[0] - 1, -1, -1):
            if rows[r] != full:
                rows[to] = rows[r]
                to -= 1
        rows[: to + 1] = 0
    game[_PLACED] += 1
    game[_LINES] += cleared
    state, over = _spawn(rows, game, _QUEUE - 1, state, width)
    return 1 + 10 * cleared, state, over


@njit(cache=True)
def _step_tetris(boards, games, streams, over, actions, gains, width):
    for i in range(boards.shape[0]):
        gains[i] = 0
        if over[i]:
            continue
        rows, game, action = boards[i], games[i], actions[i]
        kind, turn, x, y = game[_KIND], game[_TURN], game[_X], game[_Y]
        if action == 0:
            if _fits(rows, width, kind, turn, x - 1, y):
                game[_X] = x - 1
        elif action == 1:
            if _fits(rows, width, kind, turn, x + 1, y):
                game[_X] = x + 1
        elif action == 2 or action == 3:
            turned = (turn + (1 if action == 3 else 3)) % 4
            if _fits(rows, width, kind, turned, x, y):
                game[_TURN] = turned
        elif action == 4:
            if _fits(rows, width, kind, turn, x, y + 1):
                game[_Y] = y + 1
        elif action == 5:
            while _fits(rows, width, kind, turn, x, game[_Y] + 1):
                game[_Y] += 1
        if _fits(rows, width, kind, game[_TURN], game[_X], game[_Y] + 1):
            game[_Y] += 1
        else:
            gains[i], streams[i], over[i] = _place(rows, game, streams[i], width)


@njit(cache=True)
def _start_tetris(boards, games, streams, over, which, width):
    for i in range(boards.shape[0]):
        if which[i]:
            boards[i, :] = 0
            games[i, :] = 0
            streams[i], over[i] = _spawn(boards[i], games[i], 0, streams[i], width)


@njit(cache=True)
def _paint(boards, games, out):
    for i in range(boards.shape[0]):
        for r in range(out.shape[1]):
            for c in range(out.shape[2]):
                out[i, r, c] = boards[i, r] >> c & 1
        kind, turn, x, y = games[i, _KIND], games[i, _TURN], games[i, _X], games[i, _Y]
        for r in range(_BOUNDS[kind, turn, 2] + 1):
            for c in range(4):
                if _MASKS[kind, turn, r] >> c & 1:
                    out[i, y + r, x + c] = 2


class BatchTetris:
    """Many games of Tetris stepped together, one frame a step.

    Attributes
    ----------
    boards : (n, height) int64
        Settled blocks, a mask a row (bit = column).
    games : (n, 19) int64
        Piece (kind, rotation, x, y), pieces placed, lines, queue and bag.
    over : (n,) bool
        Games that have ended; stepping leaves them as they are.
    """

    def __init__(self, n: int, width: int = 10, height: int = 20) -> None:
        if n < 1:
            raise UsageError(f"A batch of {n} games cannot be played; give at least 1.")
        self.width, self.height = width, height
        self.boards, self.games = np.zeros((n, height), np.int64), np.zeros((n, _LEFT_IN_BAG + 1), np.int64)
        self.streams, self.over = np.zeros(n, np.uint64), np.ones(n, bool)
        self.gains = np.zeros(n, np.int64)

    def reset(self, rngs: Sequence[np.random.Generator]) -> None:
        """Start every game anew, game i from ``rngs[i]``."""
        self.streams[:] = [Stream.of(rng).state for rng in rngs]
        self.restart(np.ones(len(self.boards), bool))

    def restart(self, which: NDArray[np.bool_]) -> None:
        """Start the games that ``which`` marks anew, going on in their streams."""
        _start_tetris(self.boards, self.games, self.streams, self.over, which, self.width)

    def step(self, actions: ArrayLike) -> NDArray[np.int64]:
        """Play a frame of ``actions`` (n, indices into `tetris.ACTIONS`); points gained, valid until the next step."""
        _step_tetris(self.boards, self.games, self.streams, self.over, np.asarray(actions), self.gains, self.width)
        return self.gains

    @property
    def scores(self) -> NDArray[np.int64]:
        """(n,) 1 a piece placed and 10 a line."""
        return self.games[:, _PLACED] + 10 * self.games[:, _LINES]

    def observe(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """(n, height, width): 0 empty, 1 settled, 2 active piece."""
        out = np.empty((len(self.boards), self.height, self.width), np.uint8) if out is None else out
        _paint(self.boards, self.games, out)
        return out
