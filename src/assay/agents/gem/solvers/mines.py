"""Minesweeper by counting: the probability of a mine in every hidden cell, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import Any

import numpy as np

_MOST_NODES = 200_000
Layouts = dict[int, tuple[int, list[int]]]


def minesweeper(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """Reveal the cell with the smallest probability of a mine; of cells that are certain, all of them."""
    board = view["board"]
    rows, cols = len(board), len(board[0])
    hidden = {row * cols + col for row in range(rows) for col in range(cols) if board[row][col] in ".F"}
    if len(hidden) == rows * cols:
        # Inside, the block without mines is largest: more is opened at once.
        cells = [min(1, rows - 1) * cols + min(1, cols - 1)]
        return [f"reveal {cells[0] // cols} {cells[0] % cols}"]
    chances = mine_chances(board, view["num_mines"])
    flagged = {cell for cell in hidden if board[cell // cols][cell % cols] == "F"}
    open_cells = sorted(hidden - flagged)
    if not open_cells:
        cell = min(flagged, key=lambda cell: chances[cell])
        return [f"flag {cell // cols} {cell % cols}"]
    low = min(chances[cell] for cell in open_cells)
    best = [cell for cell in open_cells if chances[cell] <= low + 1e-12]
    if low > 0:
        best = [best[int(rng.integers(len(best)))]]
    # Cells of a plan may be opened by the reveal of another one, so only one is played at a time.
    return [f"reveal {best[0] // cols} {best[0] % cols}"]


def mine_chances(board: list[list[str]], num_mines: int) -> dict[int, float]:
    """Probability of a mine for every hidden cell (``row * columns + column``), all layouts that fit equally likely.

    Cells beside numbers fall into components that share no number; layouts of each are listed by their number of mines,
    and components are joined with the cells beside no number by counting. Where a component is too large to list,
    every cell gets the density of mines.
    """
    rows, cols = len(board), len(board[0])
    hidden = {row * cols + col for row in range(rows) for col in range(cols) if board[row][col] in ".F"}
    rules: list[tuple[frozenset[int], int]] = []
    for row in range(rows):
        for col in range(cols):
            if board[row][col] not in ".F":
                around = frozenset(
                    r * cols + c
                    for r in range(max(0, row - 1), min(rows, row + 2))
                    for c in range(max(0, col - 1), min(cols, col + 2))
                    if r * cols + c in hidden
                )
                if around:
                    rules.append((around, int(board[row][col])))
    components = _components(rules)
    listed: list[tuple[list[int], Layouts]] = []
    rest = len(hidden)
    for cells, own in components:
        layouts = _layouts(cells, own)
        if layouts is None:
            return dict.fromkeys(hidden, num_mines / len(hidden))
        listed.append((cells, layouts))
        rest -= len(cells)
    return _join(listed, hidden, rest, num_mines)


def _components(rules: list[tuple[frozenset[int], int]]) -> list[tuple[list[int], list[tuple[frozenset[int], int]]]]:
    found: list[tuple[set[int], list[tuple[frozenset[int], int]]]] = []
    for rule in rules:
        joined: tuple[set[int], list[tuple[frozenset[int], int]]] = (set(rule[0]), [rule])
        apart = []
        for component in found:
            if component[0] & joined[0]:
                joined[0].update(component[0])
                joined[1].extend(component[1])
            else:
                apart.append(component)
        found = [*apart, joined]
    return [(sorted(cells), own) for cells, own in found]


def _layouts(cells: list[int], rules: list[tuple[frozenset[int], int]]) -> Layouts | None:
    """By number of mines: (layouts, in how many of them each cell has a mine); None where there are too many."""
    place = {cell: at for at, cell in enumerate(cells)}
    of_cell: list[list[int]] = [[] for _ in cells]
    need, room = [count for _, count in rules], [len(around) for around, _ in rules]
    for number, (around, _) in enumerate(rules):
        for cell in around:
            of_cell[place[cell]].append(number)
    found: Layouts = {}
    mines = [0] * len(cells)
    nodes = 0

    def go(at: int, count: int) -> bool:
        nonlocal nodes
        nodes += 1
        if nodes > _MOST_NODES:
            return False
        if at == len(cells):
            total, each = found.get(count, (0, [0] * len(cells)))
            found[count] = (total + 1, [a + b for a, b in zip(each, mines)])
            return True
        for mine in (0, 1):
            mines[at] = mine
            for number in of_cell[at]:
                need[number] -= mine
                room[number] -= 1
            fits = all(0 <= need[number] <= room[number] for number in of_cell[at])
            done = not fits or go(at + 1, count + mine)
            for number in of_cell[at]:
                need[number] += mine
                room[number] += 1
            if not done:
                return False
        mines[at] = 0
        return True

    return found if go(0, 0) else None


def _join(listed: list[tuple[list[int], Layouts]], hidden: set[int], rest: int, num_mines: int) -> dict[int, float]:
    """Weights of all layouts together: products over components, times the ways to lay what is left elsewhere."""

    def ways(parts: list[tuple[list[int], Layouts]]) -> dict[int, int]:
        total = {0: 1}
        for _, layouts in parts:
            new: dict[int, int] = {}
            for count, weight in total.items():
                for own, (number, _) in layouts.items():
                    new[count + own] = new.get(count + own, 0) + weight * number
            total = new
        return total

    def free(count: int, cells: int) -> int:
        left = num_mines - count
        return comb(cells, left) if 0 <= left <= cells else 0

    everything = sum(weight * free(count, rest) for count, weight in ways(listed).items())
    if not everything:
        return dict.fromkeys(hidden, num_mines / max(1, len(hidden)))
    chances: dict[int, float] = {}
    for at, (cells, layouts) in enumerate(listed):
        others = ways(listed[:at] + listed[at + 1 :])
        for i, cell in enumerate(cells):
            weight = sum(
                each[i] * number * free(own + count, rest)
                for own, (_, each) in layouts.items()
                for count, number in others.items()
            )
            chances[cell] = weight / everything
    if rest:
        inside = sum(weight * free(count, rest) * (num_mines - count) for count, weight in ways(listed).items()) / (
            everything * rest
        )
        chances.update((cell, inside) for cell in hidden if cell not in chances)
    return chances
