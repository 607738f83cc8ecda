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


_CANDY: tuple[Colour, ...] = (
    (220, 50, 60),
    (60, 170, 80),
    (60, 100, 220),
    (240, 200, 50),
    (160, 70, 190),
    (240, 140, 40),
)


@lru_cache(maxsize=16)
def _candy_tile(colour: int) -> NDArray[np.uint8]:
    picture = Image.new("RGB", (40, 40), (245, 240, 250))
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, 39, 39), outline=(215, 205, 225))
    # Every colour has its shape, so that the picture can be read without colours.
    sides = (0, 4, 3, 5, 6, 8)[colour]
    fill = _CANDY[colour]
    if sides:
        pen.regular_polygon((20, 20, 15), sides, fill=fill, outline=(40, 40, 40))
    else:
        pen.ellipse((6, 6, 34, 34), fill=fill, outline=(40, 40, 40))
    return _array(picture)


def _header(width: int, height: int, text: str) -> NDArray[np.uint8]:
    picture = Image.new("RGB", (width, height), (250, 250, 250))
    ImageDraw.Draw(picture).text((width / 2, height / 2), text, fill=(30, 30, 30), font=font(16), anchor="mm")
    return _array(picture)


def draw_candy(cells: Sequence[Sequence[int]], total: int, left: int) -> NDArray[np.uint8]:
    """A Candy Crush board, 40 pixels a candy, with score and moves above and row and column numbers beside."""
    board = np.concatenate([np.concatenate([_candy_tile(c) for c in row], axis=1) for row in cells], axis=0)
    rows, columns = len(cells), len(cells[0])
    picture = Image.new("RGB", (20 + 40 * columns, 50 + 40 * rows), (250, 250, 250))
    picture.paste(Image.fromarray(_header(40 * columns, 30, f"Score: {total}   Moves left: {left}")), (20, 0))
    picture.paste(Image.fromarray(board), (20, 50))
    pen = ImageDraw.Draw(picture)
    for c in range(columns):
        pen.text((40 + 40 * c, 40), str(c), fill=(90, 90, 90), font=font(14), anchor="mm")
    for r in range(rows):
        pen.text((10, 70 + 40 * r), str(r), fill=(90, 90, 90), font=font(14), anchor="mm")
    return _array(picture)


_TETRIS: dict[str, Colour] = {
    ".": (24, 24, 32),
    "I": (70, 200, 220),
    "O": (235, 210, 70),
    "T": (170, 80, 190),
    "S": (90, 190, 90),
    "Z": (215, 70, 70),
    "J": (70, 100, 215),
    "L": (235, 150, 60),
}


def _blocks(lines: Sequence[str], size: int) -> NDArray[np.uint8]:
    colours = np.array([[_TETRIS[cell] for cell in line] for line in lines], dtype=np.uint8)
    large = scaled(colours, size)
    large[::size] //= 2
    large[:, ::size] //= 2
    return large


def draw_tetris(board: Sequence[str], following: Sequence[Sequence[str]], score: int) -> NDArray[np.uint8]:
    """A Tetris board, 20 pixels a cell, with the next pieces and the score at its right."""
    field = _blocks(board, 20)
    height = max(field.shape[0], 340)
    picture = Image.new("RGB", (field.shape[1] + 100, height), (60, 60, 70))
    picture.paste(Image.fromarray(field), (0, 0))
    pen = ImageDraw.Draw(picture)
    x = field.shape[1] + 10
    pen.text((x, 5), f"Score {score}", fill=(240, 240, 240), font=font(15))
    pen.text((x, 30), "Next", fill=(240, 240, 240), font=font(15))
    for number, matrix in enumerate(following):
        picture.paste(Image.fromarray(_blocks(matrix, 15)), (x, 55 + 70 * number))
    return _array(picture)


def _wrapped(pen: ImageDraw.ImageDraw, text: str, width: int, size: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and pen.textlength(longer, font=font(size)) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]


def draw_courtroom(
    heading: str,
    speaker: str,
    line: str,
    lives: int,
    options: Sequence[str],
    chosen: int,
    evidence: tuple[str, str] | None,
) -> NDArray[np.uint8]:
    """The courtroom, 320 x 480: who speaks, the line, lives, and the choice or the open record."""
    picture = Image.new("RGB", (480, 320), (70, 50, 40))
    pen = ImageDraw.Draw(picture)
    for x in range(0, 480, 40):
        pen.line((x, 0, x, 200), fill=(58, 40, 32))
    pen.rectangle((0, 0, 480, 22), fill=(25, 20, 25))
    pen.text((6, 3), heading, fill=(235, 225, 200), font=font(13))
    for number in range(5):
        x = 384 + 19 * number
        pen.rectangle((x, 26, x + 15, 36), fill=(90, 200, 90) if number < lives else (80, 30, 30))
    if speaker:
        # A figure in a colour of its own for every speaker.
        red, green, blue = (60 + sum(speaker.encode()[i::3]) % 150 for i in range(3))
        pen.ellipse((205, 60, 275, 135), fill=(230, 195, 165), outline=(40, 30, 30))
        pen.rounded_rectangle((170, 130, 310, 230), 30, fill=(red, green, blue), outline=(30, 20, 20))
    panel = [*(f"{'>' if i == chosen else '  '} {option}" for i, option in enumerate(options))]
    if evidence is not None:
        panel = [evidence[0], *_wrapped(pen, evidence[1], 300, 13)]
    if panel:
        pen.rectangle((70, 45, 410, 55 + 20 * len(panel)), fill=(240, 230, 205), outline=(60, 40, 20), width=2)
        for number, text in enumerate(panel):
            pen.text((80, 50 + 20 * number), text, fill=(40, 30, 20), font=font(13))
    pen.rectangle((8, 216, 472, 312), fill=(25, 30, 55), outline=(210, 200, 170), width=2)
    pen.text((18, 220), speaker, fill=(250, 205, 110), font=font(16))
    for number, text in enumerate(_wrapped(pen, line, 440, 16)[:3]):
        pen.text((18, 244 + 21 * number), text, fill=(240, 240, 240), font=font(16))
    return _array(picture)


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
