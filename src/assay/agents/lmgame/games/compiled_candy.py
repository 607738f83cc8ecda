"""Compiled batches of Candy Crush: the same games as the engine, many at a time (numba)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from assay.agents.lmgame.games.candy_crush import CandyCrush
from assay.agents.lmgame.games.compiled import GOLDEN, below, mixed
from assay.agents.lmgame.games.engine import Stream
from assay.core.errors import MissingExtra, UsageError

try:
    from numba import njit
except ImportError as error:
    raise MissingExtra("Batched stepping of games", "lmgame") from error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_U = np.uint64
_ZERO, _S16, _BIT16 = _U(0), _U(16), _U(0xFFFF)


@njit(cache=True)
def _refill(board, state, colours):
    left, bits = 0, _ZERO
    for r in range(board.shape[0]):
        for c in range(board.shape[1]):
            if board[r, c] < 0:
                if left == 0:
                    state += GOLDEN
                    left, bits = 4, mixed(state)
                board[r, c] = np.int64(((bits & _BIT16) * _U(colours)) >> _S16)
                bits >>= _S16
                left -= 1
    return state


@njit(cache=True)
def _mark_runs(board, marks):
    """Mark the cells of runs; how many there are."""
    rows, columns = board.shape
    marks[:] = False
    found = 0
    for r in range(rows):
        for c in range(columns):
            colour = board[r, c]
            if c + 2 < columns and board[r, c + 1] == colour and board[r, c + 2] == colour:
                marks[r, c] = marks[r, c + 1] = marks[r, c + 2] = True
            if r + 2 < rows and board[r + 1, c] == colour and board[r + 2, c] == colour:
                marks[r, c] = marks[r + 1, c] = marks[r + 2, c] = True
    for r in range(rows):
        for c in range(columns):
            found += marks[r, c]
    return found


@njit(cache=True)
def _in_run(board, r, c):
    """Whether the cell lies in a run."""
    rows, columns = board.shape
    colour = board[r, c]
    length, k = 1, c - 1
    while k >= 0 and board[r, k] == colour:
        length, k = length + 1, k - 1
    k = c + 1
    while k < columns and board[r, k] == colour:
        length, k = length + 1, k + 1
    if length >= 3:
        return True
    length, k = 1, r - 1
    while k >= 0 and board[k, c] == colour:
        length, k = length + 1, k - 1
    k = r + 1
    while k < rows and board[k, c] == colour:
        length, k = length + 1, k + 1
    return length >= 3


@njit(cache=True)
def _swapped(board, action):
    """Exchange the cells of an action; whether one of them lies in a run then."""
    rows, columns = board.shape
    if action < columns * (rows - 1):
        r, c = action // columns, action % columns
        s, d = r + 1, c
    else:
        rest = action - columns * (rows - 1)
        r, c = rest // (columns - 1), rest % (columns - 1)
        s, d = r, c + 1
    board[r, c], board[s, d] = board[s, d], board[r, c]
    return _in_run(board, r, c) or _in_run(board, s, d)


@njit(cache=True)
def _playable(board):
    rows, columns = board.shape
    for action in range(2 * rows * columns - rows - columns):
        works = _swapped(board, action)
        _swapped(board, action)
        if works:
            return True
    return False


@njit(cache=True)
def _deal(board, marks, state, colours):
    while True:
        board[:] = -1
        state = _refill(board, state, colours)
        while _mark_runs(board, marks):
            for r in range(board.shape[0]):
                for c in range(board.shape[1]):
                    if marks[r, c]:
                        board[r, c] = -1
            state = _refill(board, state, colours)
        if _playable(board):
            return state


@njit(cache=True)
def _shuffled(board, marks, state, colours):
    columns = board.shape[1]
    for _ in range(100):
        for i in range(board.size - 1, 0, -1):
            state += GOLDEN
            j = np.int64(below(mixed(state), i + 1))
            a, b = board[i // columns, i % columns], board[j // columns, j % columns]
            board[i // columns, i % columns], board[j // columns, j % columns] = b, a
        if _mark_runs(board, marks) == 0 and _playable(board):
            return state
    return _deal(board, marks, state, colours)


@njit(cache=True)
def _start_candy(boards, streams, totals, used, which, colours):
    marks = np.zeros(boards.shape[1:], np.bool_)
    for i in range(boards.shape[0]):
        if which[i]:
            streams[i] = _deal(boards[i], marks, streams[i], colours)
            totals[i], used[i] = 0, 0


@njit(cache=True)
def _step_candy(boards, streams, totals, used, over, actions, gains, moves, colours):
    rows, columns = boards.shape[1], boards.shape[2]
    marks = np.zeros((rows, columns), np.bool_)
    for i in range(boards.shape[0]):
        gains[i] = 0
        if over[i]:
            continue
        board = boards[i]
        used[i] += 1
        over[i] = used[i] >= moves
        if not _swapped(board, actions[i]):
            _swapped(board, actions[i])
            continue
        while True:
            removed = _mark_runs(board, marks)
            if removed == 0:
                break
            gains[i] += removed
            for c in range(columns):
                to = rows - 1
                for r in range(rows - 1, -1, -1):
                    if not marks[r, c]:
                        board[to, c] = board[r, c]
                        to -= 1
                for r in range(to + 1):
                    board[r, c] = -1
            streams[i] = _refill(board, streams[i], colours)
        if not _playable(board):
            streams[i] = _shuffled(board, marks, streams[i], colours)
        totals[i] += gains[i]


@njit(cache=True)
def _mark_effective(boards, out):
    for i in range(boards.shape[0]):
        for action in range(out.shape[1]):
            out[i, action] = _swapped(boards[i], action)
            _swapped(boards[i], action)


class BatchCandy:
    """Many games of Candy Crush stepped together.

    Attributes
    ----------
    boards : (n, rows, columns) int64
        Colours.
    totals : (n,) int64
        Candies removed.
    over : (n,) bool
        Games whose moves are used up; stepping leaves them as they are.
    """

    def __init__(self, n: int, rows: int = 8, columns: int = 8, colours: int = 4, moves: int = 50) -> None:
        if n < 1:
            raise UsageError(f"A batch of {n} games cannot be played; give at least 1.")
        # The single game checks the sizes.
        self.actions = len(CandyCrush(rows, columns, colours, moves).actions)
        self.colours, self.moves = colours, moves
        self.boards, self.streams = np.zeros((n, rows, columns), np.int64), np.zeros(n, np.uint64)
        self.totals, self.used, self.over = np.zeros(n, np.int64), np.zeros(n, np.int64), np.ones(n, bool)
        self.gains = np.zeros(n, np.int64)

    def reset(self, rngs: Sequence[np.random.Generator]) -> None:
        """Start every game anew, game i from ``rngs[i]``."""
        self.streams[:] = [Stream.of(rng).state for rng in rngs]
        self.restart(np.ones(len(self.boards), bool))

    def restart(self, which: NDArray[np.bool_]) -> None:
        """Start the games that ``which`` marks anew, going on in their streams."""
        _start_candy(self.boards, self.streams, self.totals, self.used, which, self.colours)
        self.over[which] = False

    def step(self, actions: ArrayLike) -> NDArray[np.int64]:
        """Play swaps (n, action indices); candies removed, valid until the next step."""
        _step_candy(
            self.boards, self.streams, self.totals, self.used, self.over, np.asarray(actions), self.gains, self.moves,
            self.colours,
        )  # fmt: skip
        return self.gains

    def effective(self) -> NDArray[np.bool_]:
        """(n, actions): the swaps that make a run."""
        out = np.empty((len(self.boards), self.actions), bool)
        _mark_effective(self.boards, out)
        return out
