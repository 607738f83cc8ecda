"""Small data made on the spot, each for a published set that cannot be had offline; every table says so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def ended_boards() -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """All 958 ends of noughts and crosses as 27 one-hot columns (blank, o, x), and whether x, who began, has won."""
    seen: dict[tuple[int, ...], bool] = {}

    def play(board: tuple[int, ...], turn: int) -> None:
        won = next((board[a] for a, b, c in _LINES if board[a] and board[a] == board[b] == board[c]), 0)
        if won or 0 not in board:
            seen[board] = won == 2
            return
        for at in range(9):
            if board[at] == 0:
                play((*board[:at], turn, *board[at + 1 :]), 3 - turn)

    play((0,) * 9, 2)
    boards = sorted(seen)
    cells = np.array(boards)
    return (cells[:, :, None] == np.arange(3)).reshape(len(cells), 27).astype(np.float32), np.array(
        [seen[board] for board in boards]
    )


def coloured(digits: NDArray, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Grey pictures (n, 1, k, k) between -1 and 1, each in one colour on another with noise: (n, 3, k, k)."""
    share = (digits + 1) / 2
    ink, ground = (rng.uniform(0, 255, (len(digits), 3, 1, 1)) for _ in range(2))
    mixed = share * ink + (1 - share) * ground + rng.normal(0, 12, (len(digits), 3, *digits.shape[2:]))
    return np.clip(mixed, 0, 255).astype(np.uint8)


def scans(count: int, rng: np.random.Generator, side: int = 128) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Drawn head scans (count, 1, side, side) between -1 and 1, and whether the dark ventricles are of healthy size.

    Size overlaps between the classes, as do position, tilt and brightness, so that no single pixel decides.
    """
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    healthy = rng.random(count) < 0.5
    out = np.empty((count, 1, side, side), np.float32)
    for at in range(count):
        tilt, dx, dy = rng.normal(0, 0.15), *rng.normal(0, 0.05, 2)
        u = (x - dx) * np.cos(tilt) + (y - dy) * np.sin(tilt)
        v = -(x - dx) * np.sin(tilt) + (y - dy) * np.cos(tilt)
        skull = (u / rng.uniform(0.62, 0.72)) ** 2 + (v / rng.uniform(0.8, 0.9)) ** 2
        size = rng.normal(0.10 if healthy[at] else 0.15, 0.03)
        picture = np.where(skull < 1, rng.uniform(0.45, 0.6), 0.0)
        picture[(skull >= 0.86) & (skull < 1)] = 0.9
        for hand in (-1, 1):
            picture[((u - hand * 0.16) / size) ** 2 + (v / (2 * size)) ** 2 < 1] = 0.15
        out[at, 0] = 2 * np.clip(picture + rng.normal(0, 0.08, picture.shape), 0, 1) - 1
    return out, healthy


_EDIBLE = {
    "odour": ("almond", "anise", "none"), "cap": ("brown", "white", "grey"), "gills": ("broad", "broad", "narrow"),
    "stalk": ("tapering", "enlarging", "tapering"), "ring": ("pendant", "evanescent", "pendant"),
    "place": ("grass", "wood", "meadow"), "bruises": ("yes", "yes", "no"), "spores": ("brown", "black", "white"),
}  # fmt: skip
_POISONOUS = {
    "odour": ("foul", "fishy", "none"), "cap": ("brown", "yellow", "red"), "gills": ("narrow", "broad", "narrow"),
    "stalk": ("enlarging", "tapering", "enlarging"), "ring": ("evanescent", "large", "evanescent"),
    "place": ("wood", "path", "leaves"), "bruises": ("no", "no", "yes"), "spores": ("white", "chocolate", "brown"),
}  # fmt: skip


def caps(count: int, rng: np.random.Generator) -> tuple[list[list[str]], NDArray[np.bool_]]:
    """Invented mushrooms, one word for each of eight traits, and whether they are poisonous; traits overlap."""
    poisonous = rng.random(count) < 0.48
    rows = []
    for bad in poisonous:
        kinds = _POISONOUS if bad else _EDIBLE
        other = _EDIBLE if bad else _POISONOUS
        rows.append([(other if rng.random() < 0.15 else kinds)[trait][int(rng.integers(3))] for trait in kinds])
    return rows, poisonous
