"""Players of the puzzle games: expectimax (2048), beam search (Tetris), cascade search (Candy Crush), A* (Sokoban)."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np

from assay.agents.lmgame.games import candy_crush as candy
from assay.agents.lmgame.games import tetris as t
from assay.agents.lmgame.games import twenty_forty_eight as g2048
from assay.agents.lmgame.games.sokoban import Sokoban
from assay.agents.lmgame.solvers.sokoban_search import solve

# -- 2048 --------------------------------------------------------------------------------------------------------------


@cache
def _row_values() -> list[float]:
    """Worth of each row: empty cells, equal neighbours, and powers that rise towards one end."""
    index = np.arange(65536)
    cells = np.stack([(index >> (4 * c)) & 15 for c in range(4)], axis=1).astype(float)
    empty = (cells == 0).sum(axis=1)
    equal = ((cells[:, 1:] == cells[:, :-1]) & (cells[:, 1:] > 0)).sum(axis=1)
    steep = cells**4
    rising = np.maximum(0, steep[:, :-1] - steep[:, 1:]).sum(axis=1)
    falling = np.maximum(0, steep[:, 1:] - steep[:, :-1]).sum(axis=1)
    worth = 270.0 * empty + 700.0 * equal - 47.0 * np.minimum(rising, falling) - 11.0 * (cells**3.5).sum(axis=1)
    return (200_000.0 + worth).tolist()


def _value_2048(board: int) -> float:
    values, turned = _row_values(), g2048.transpose(board)
    return sum(values[(side >> shift) & 0xFFFF] for side in (board, turned) for shift in (0, 16, 32, 48))


def expectimax(board: int, depth: int = 2) -> int | None:
    """The action with the greatest expected worth after ``depth`` own moves; None when there is no move."""
    best, chosen = -np.inf, None
    for action in g2048.legal(board):
        worth = worth_2048(board, action, depth)
        if worth > best:
            best, chosen = worth, action
    return chosen


def worth_2048(board: int, action: int, depth: int = 2) -> float:
    """Expected worth of a legal action after ``depth`` own moves."""
    return _chance(g2048.move(board, action)[0], depth - 1)


def _chance(board: int, depth: int) -> float:
    if depth == 0:
        return _value_2048(board)
    cells = g2048.empty_cells(board)
    total = 0.0
    for cell in cells:
        for power, share in ((1, 0.9), (2, 0.1)):
            drawn = board | power << (4 * cell)
            following = [_chance(g2048.move(drawn, action)[0], depth - 1) for action in g2048.legal(drawn)]
            # A lost position is worth less than any other.
            total += share * max(following, default=0.0)
    return total / len(cells)


def greedy_2048(board: int) -> int | None:
    """The move that merges most now, ties by the order of the actions."""
    moves = g2048.legal(board)
    return max(moves, key=lambda action: g2048.move(board, action)[1], default=None)


# -- Tetris ------------------------------------------------------------------------------------------------------------


def _drop(rows: list[int], width: int, kind: int, turns: int, shift: int) -> tuple[list[int], int] | None:
    """Rows and lines after turning, shifting and dropping a new piece frame by frame; None when it gets stuck."""
    x, y, rotation = width // 2 - t.SIZES[kind] // 2, 0, 0
    shapes = t.SHAPES[kind]
    for frame in range(turns + abs(shift)):
        if frame < turns:
            turned = (rotation + 1) % 4
            if not t.fits(rows, width, shapes[turned], x, y):
                return None
            rotation = turned
        else:
            moved = x + (1 if shift > 0 else -1)
            if not t.fits(rows, width, shapes[rotation], moved, y):
                return None
            x = moved
        if not t.fits(rows, width, shapes[rotation], x, y + 1):
            return None
        y += 1
    while t.fits(rows, width, shapes[rotation], x, y + 1):
        y += 1
    after = list(rows)
    for r, mask in enumerate(shapes[rotation].rows):
        if mask:
            after[y + r] |= mask << x if x >= 0 else mask >> -x
    full = (1 << width) - 1
    kept = [row for row in after if row != full]
    lines = len(after) - len(kept)
    return [0] * lines + kept, lines


def value_tetris(rows: list[int], width: int) -> float:
    """Less for height, holes and unevenness."""
    heights, holes, covered = [0] * width, 0, 0
    for r, row in enumerate(rows):
        fresh = row & ~covered
        while fresh:
            low = fresh & -fresh
            heights[low.bit_length() - 1] = len(rows) - r
            fresh ^= low
        covered |= row
        holes += (covered & ~row).bit_count()
    uneven = sum(abs(a - b) for a, b in pairwise(heights))
    return -0.51 * sum(heights) - 3.6 * holes - 0.18 * uneven


def placements(rows: list[int], width: int, kind: int) -> list[tuple[tuple[int, int], list[int], int]]:
    """((turns, shift), rows after, lines) of every placement that turning, shifting and dropping reaches."""
    found = []
    for turns in range(t.DISTINCT[t.KINDS[kind]]):
        for shift in range(-width, width):
            after = _drop(rows, width, kind, turns, shift)
            if after is not None:
                found.append(((turns, shift), *after))
    return found


def beam_tetris(game: t.Tetris, width: int = 6, depth: int = 2) -> str:
    """The action of the best line of placements: beam search over the active piece and the next ones."""
    if game.y or game.rotation:
        # Only new pieces are planned for; one that is on its way is dropped.
        return "(hard_drop,1)"
    beam: list[tuple[float, float, list[int], tuple[int, int] | None]] = [(0.0, 0.0, game.rows, None)]
    for kind in [game.kind, *game.queue[: depth - 1]]:
        grown = []
        for _, lines, rows, first in beam:
            for plan, after, cleared in placements(rows, game.width, kind):
                total = lines + 0.76 * cleared
                grown.append((total + value_tetris(after, game.width), total, after, first or plan))
        if not grown:
            break
        grown.sort(key=lambda entry: -entry[0])
        beam = grown[:width]
    plan = beam[0][3]
    if plan is None:
        return "(hard_drop,1)"
    return tetris_action(*plan)


def tetris_action(turns: int, shift: int) -> str:
    """The action that turns, shifts and drops a new piece."""
    parts = [("rotate_right", turns), ("left" if shift < 0 else "right", abs(shift)), ("hard_drop", 1)]
    return "".join(f"({name},{frames})" for name, frames in parts if frames)


# -- Candy Crush -------------------------------------------------------------------------------------------------------


def cascade(game: candy.CandyCrush, action: int, *, follow: bool = True) -> int:
    """Candies that a swap removes, refills counted as blanks; ``follow=False``: only its first removal."""
    board = candy.Board(game.rows, game.columns, game.colours)
    board.candies = game.board.candies
    a, b = candy.swap_of(action, game.rows, game.columns)
    board.swap(board.bit(*a), board.bit(*b))
    removed, empty = 0, 0
    while runs := board.runs():
        removed += runs.bit_count()
        if not follow:
            break
        empty = board.drop(runs | empty)
    return removed


def best_swap(game: candy.CandyCrush, *, follow: bool) -> str:
    """The swap that removes most, ties to the lowest on the board, where more falls."""
    actions = game.effective_actions()
    if not actions:
        return game.actions[0]
    chosen = max(
        actions,
        key=lambda action: (
            cascade(game, action, follow=follow),
            max(cell[0] for cell in candy.swap_of(action, game.rows, game.columns)) if follow else 0,
        ),
    )
    return game.actions[chosen]


# -- Sokoban -----------------------------------------------------------------------------------------------------------


class SokobanPlan:
    """Follows A* solutions; a position that is off the plan is solved anew.

    Parameters
    ----------
    max_nodes : int
        Bound of each search; without a solution it waits.
    """

    def __init__(self, max_nodes: int = 200_000) -> None:
        self.max_nodes = max_nodes
        self._plan: list[str] = []
        self._expected: tuple[int, int, int] | None = None

    def next(self, game: Sokoban) -> str:
        """The next action."""
        here = (game.index, game.player, game.boxes)
        if here != self._expected or not self._plan:
            found = solve(game.level, player=game.player, boxes=game.boxes, max_nodes=self.max_nodes)
            self._plan = list(found.actions) if found else []
        if not self._plan:
            return "no_op"
        action = self._plan.pop(0)
        twin = Sokoban(game.levels)
        twin.set_state(game.get_state())
        twin.play(action)
        self._expected = (twin.index, twin.player, twin.boxes)
        return action
