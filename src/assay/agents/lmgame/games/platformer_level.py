"""Levels of the platformer: tiles of 16 pixels, written as segments; the shipped one, and fresh ones by a generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from assay.core.errors import DataError

ROWS = 14
TILE = 16
GROUND = 12
SYMBOLS = " #BQSPoeF"
SOLID = "#BQSP"
Segment = tuple[str, int]

# The shipped level, left to right; about 3,200 pixels to the flag. Written for assay.
OWN: tuple[Segment, ...] = (
    ("flat", 14), ("coins", 4), ("enemies", 1), ("flat", 4), ("blocks", 5), ("flat", 3), ("pipe", 2), ("enemies", 1),
    ("flat", 6), ("pipe", 3), ("flat", 4), ("enemies", 2), ("flat", 5), ("pit", 2), ("flat", 7), ("blocks", 7),
    ("enemies", 1), ("flat", 4), ("pit", 3), ("flat", 6), ("coins", 5), ("pipe", 2), ("flat", 5), ("enemies", 2),
    ("flat", 6), ("steps", 4), ("flat", 5), ("pit", 2), ("flat", 6), ("blocks", 4), ("flat", 4), ("enemies", 1),
    ("pipe", 3), ("flat", 6), ("pit", 4), ("flat", 8), ("coins", 6), ("flat", 3), ("enemies", 2), ("flat", 5),
    ("steps", 5), ("flat", 8), ("flag", 16),
)  # fmt: skip


@dataclass(frozen=True)
class PlatformLevel:
    """Rows of equal length: blank sky, ``#`` ground, ``B`` brick, ``Q`` coin block, ``S`` step, ``P`` pipe, ``o`` coin,
    ``e`` an enemy's start, ``F`` flag pole.
    """

    rows: tuple[str, ...]

    @property
    def width(self) -> int:
        """Columns of tiles."""
        return len(self.rows[0])

    @cached_property
    def solid(self) -> tuple[bytes, ...]:
        """A byte a tile and row: 1 where nothing passes."""
        return tuple(bytes(tile in SOLID for tile in row) for row in self.rows)

    @cached_property
    def enemies(self) -> tuple[tuple[int, int], ...]:
        """(column, row) where enemies start."""
        return tuple((c, r) for r, row in enumerate(self.rows) for c, tile in enumerate(row) if tile == "e")

    @cached_property
    def flag(self) -> int:
        """Column of the flag."""
        return min(row.index("F") for row in self.rows if "F" in row)


def check_platform_level(rows: Sequence[str], where: str = "platformer level") -> PlatformLevel:
    """The level of ``rows``; DataError when it has a wrong size, an unknown tile, no flag or no ground to start on."""
    if len(rows) != ROWS:
        raise DataError(f"{where}: {len(rows)} rows; a level has {ROWS}.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise DataError(f"{where}, row {number}: {len(row)} tiles where row 1 has {len(rows[0])}; pad the rows.")
        unknown = row.strip(SYMBOLS)
        if unknown:
            raise DataError(f"{where}, row {number}: unknown tile {unknown[0]!r}; use {SYMBOLS!r}.")
    if len(rows[0]) < 20 or not any("F" in row for row in rows):
        raise DataError(f"{where}: a level has at least 20 columns and a flag 'F'.")
    if rows[GROUND][2] not in SOLID:
        raise DataError(f"{where}, row {GROUND + 1}: no ground under the start, column 3.")
    return PlatformLevel(tuple(rows))


def build(segments: Sequence[Segment]) -> PlatformLevel:
    """A level of segments ``(kind, size)``: flat, pit, pipe, steps, blocks, coins, enemies, flag."""
    columns: list[list[str]] = []

    def ground(height: int = 0, tile: str = "S") -> list[str]:
        column = [" "] * ROWS
        for r in range(GROUND, ROWS):
            column[r] = "#"
        for r in range(GROUND - height, GROUND):
            column[r] = tile
        return column

    for kind, size in segments:
        if kind == "flat":
            columns += [ground() for _ in range(size)]
        elif kind == "pit":
            columns += [[" "] * ROWS for _ in range(size)]
        elif kind == "pipe":
            columns += [ground(size, "P"), ground(size, "P")]
        elif kind == "steps":
            heights = [*range(1, size + 1), *range(size, 0, -1)]
            columns += [ground(height) for height in heights]
        elif kind in ("blocks", "coins", "enemies"):
            for i in range(size if kind != "enemies" else 2 * size):
                column = ground()
                if kind == "blocks":
                    column[8] = "Q" if i % 2 else "B"
                elif kind == "coins":
                    column[10] = "o"
                elif i % 2:
                    column[GROUND - 1] = "e"
                columns.append(column)
        elif kind == "flag":
            columns.append(ground())
            columns[-1] = [*(["F"] * GROUND), "#", "#"]
            columns += [ground() for _ in range(size)]
        else:
            raise DataError(f"Segment {kind!r} is none of flat, pit, pipe, steps, blocks, coins, enemies, flag.")
    return check_platform_level(["".join(column[r] for column in columns) for r in range(ROWS)])


def own_level() -> PlatformLevel:
    """The shipped level."""
    return build(OWN)


def draw_level(rng: np.random.Generator, *, segments: int = 24, hardness: float = 0.5) -> PlatformLevel:
    """A random level; `runner.certified_level` keeps only those that the scripted runner finishes.

    ``hardness`` in [0, 1] widens pits, raises pipes and adds enemies.
    """
    chosen: list[Segment] = [("flat", 14)]
    kinds = ("pit", "pipe", "steps", "blocks", "coins", "enemies")
    for _ in range(segments):
        kind = kinds[int(rng.integers(len(kinds)))]
        extra = int(rng.binomial(3, hardness))
        size = {"pit": 1 + extra, "pipe": 1 + extra, "steps": 2 + extra, "blocks": 3 + extra, "coins": 3}.get(kind, 1)
        if kind == "pipe":
            size = min(size, 3)
        chosen += [(kind, size), ("flat", int(rng.integers(4, 8)))]
    return build([*chosen, ("flag", 16)])
