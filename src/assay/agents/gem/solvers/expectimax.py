"""2048: expectimax with a snake-shaped weighting of the board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.agents.gem.games.g2048 import DIRECTIONS, slide_left, slide_right

Board = tuple[tuple[int, int, int, int], ...]
_SAMPLED = 4


def _push(board: Board, direction: str) -> Board:
    push = slide_left if direction in ("left", "up") else slide_right
    if direction in ("left", "right"):
        return tuple(push(row) for row in board)
    return tuple(zip(*[push(column) for column in zip(*board)]))


# Large tiles in one corner and falling along a snake: merges come in chains.
_SNAKE = tuple(tuple(0.5 ** (row * 4 + (col if row % 2 == 0 else 3 - col)) for col in range(4)) for row in range(4))


def _worth(board: Board) -> float:
    empty = sum(row.count(0) for row in board)
    top = max(map(max, board))
    snake = sum(value * weight for row, weights in zip(board, _SNAKE) for value, weight in zip(row, weights))
    return snake + 0.1 * top * empty


def _average(board: Board, depth: int) -> float:
    """Mean over new tiles of the best reply; only some empty cells are looked at, evenly spread."""
    empty = [(r, c) for r, row in enumerate(board) for c, value in enumerate(row) if not value]
    cells = empty if len(empty) <= _SAMPLED else empty[:: len(empty) // _SAMPLED][:_SAMPLED]
    total = 0.0
    for r, c in cells:
        for tile, chance in ((2, 0.9), (4, 0.1)):
            row = board[r]
            new = (*row[:c], tile, *row[c + 1 :])
            total += chance * _best(board[:r] + (new,) + board[r + 1 :], depth - 1)[0]  # type: ignore[operator]
    return total / len(cells)


def _best(board: Board, depth: int) -> tuple[float, str]:
    best = (-1.0, DIRECTIONS[0])
    for direction in DIRECTIONS:
        after = _push(board, direction)
        if after != board:
            value = _worth(after) if depth == 0 else _average(after, depth)
            best = max(best, (value, direction))
    return best


def game_2048(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """The move with the best mean worth two moves ahead."""
    board: Board = tuple((a, b, c, d) for a, b, c, d in view["board"])
    return [_best(board, 1)[1]]
