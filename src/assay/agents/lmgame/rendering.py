"""Pictures of game states, drawn with pillow; and the labelled grid that is laid over a frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from numpy.typing import NDArray

Colour = tuple[int, int, int]


@lru_cache(maxsize=16)
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font at a size in pixels."""
    return ImageFont.load_default(size)


def _array(picture: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(picture, dtype=np.uint8).copy()


def _mix(a: Colour, b: Colour, share: float) -> Colour:
    return tuple(round(x + (y - x) * share) for x, y in zip(a, b))  # type: ignore[return-value]


def draw_2048(tiles: NDArray[np.int64], total: int) -> NDArray[np.uint8]:
    """A 2048 board, 4 x 4 tiles of 90 pixels, with the score above; 440 x 400."""
    picture = Image.new("RGB", (400, 440), (250, 247, 240))
    pen = ImageDraw.Draw(picture)
    pen.text((200, 20), f"Score: {total}", fill=(60, 60, 60), font=font(20), anchor="mm")
    for row in range(4):
        for column in range(4):
            value = int(tiles[row, column])
            x, y = 8 + column * 97, 48 + row * 97
            share = min(value.bit_length() - 1, 12) / 12 if value else 0.0
            fill = _mix((238, 228, 200), (160, 40, 60), share) if value else (205, 195, 185)
            pen.rounded_rectangle((x, y, x + 92, y + 92), 6, fill=fill)
            if value:
                ink = (250, 250, 250) if share > 0.4 else (70, 60, 50)
                pen.text((x + 46, y + 46), str(value), fill=ink, font=font(34 if value < 1000 else 26), anchor="mm")
    return _array(picture)


_SOKOBAN_TILE = 40


@lru_cache(maxsize=16)
def _sokoban_tile(symbol: str) -> NDArray[np.uint8]:
    size = _SOKOBAN_TILE
    picture = Image.new("RGB", (size, size), (235, 225, 205))
    pen = ImageDraw.Draw(picture)
    if symbol == "#":
        pen.rectangle((0, 0, size, size), fill=(95, 85, 80))
        for y in range(0, size, 10):
            pen.line((0, y, size, y), fill=(70, 62, 58))
            offset = 10 if (y // 10) % 2 else 0
            for x in range(offset, size, 20):
                pen.line((x, y, x, y + 10), fill=(70, 62, 58))
    if symbol in "?*+":
        pen.ellipse((13, 13, 27, 27), fill=(200, 60, 60))
    if symbol in "$*":
        fill = (196, 140, 70) if symbol == "$" else (90, 160, 80)
        pen.rectangle((5, 5, 35, 35), fill=fill, outline=(80, 50, 20), width=2)
        pen.line((5, 5, 35, 35), fill=(80, 50, 20), width=2)
        pen.line((5, 35, 35, 5), fill=(80, 50, 20), width=2)
    if symbol in "@+":
        pen.ellipse((13, 4, 27, 18), fill=(240, 200, 160), outline=(40, 40, 40))
        pen.rounded_rectangle((10, 18, 30, 36), 5, fill=(50, 90, 180), outline=(20, 20, 60))
    return _array(picture)


def draw_sokoban(board: Sequence[str]) -> NDArray[np.uint8]:
    """A Sokoban board in level symbols, 40 pixels a cell."""
    return np.concatenate([np.concatenate([_sokoban_tile(s) for s in row], axis=1) for row in board], axis=0)


def grid_over(image: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """``image`` with the lines of a rows x columns grid and a label "(row,column)" in each cell."""
    picture = Image.fromarray(image)
    pen = ImageDraw.Draw(picture)
    height, width = image.shape[:2]
    for row in range(1, rows):
        y = round(row * height / rows)
        pen.line((0, y, width, y), fill=(255, 255, 255))
    for column in range(1, columns):
        x = round(column * width / columns)
        pen.line((x, 0, x, height), fill=(255, 255, 255))
    for row in range(rows):
        for column in range(columns):
            corner = (round(column * width / columns) + 2, round(row * height / rows) + 1)
            pen.text(
                corner, f"({row},{column})", fill=(255, 255, 255), font=font(9), stroke_width=1, stroke_fill=(0, 0, 0)
            )
    return _array(picture)


def scaled(image: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """``image`` enlarged by an integer factor, pixels repeated."""
    return image.repeat(factor, axis=0).repeat(factor, axis=1)
