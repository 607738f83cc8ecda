"""Frames of the platformer: the level is painted once, a frame is a window on it with the moving things on top."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from assay.agents.lmgame.games.platformer import HEIGHT, UNIT, WIDTH, World
from assay.agents.lmgame.games.platformer_level import ROWS, TILE, PlatformLevel
from assay.agents.lmgame.rendering import font

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SKY = (110, 160, 235)


@lru_cache(maxsize=32)
def tile(symbol: str) -> NDArray[np.uint8]:
    """A 16 x 16 picture of a tile or a figure; figures leave the sky where they are clear."""
    picture = Image.new("RGB", (TILE, TILE), _SKY)
    pen = ImageDraw.Draw(picture)
    edge = (60, 35, 20)
    if symbol == "#":
        pen.rectangle((0, 0, 15, 15), fill=(170, 105, 60))
        for x, y in ((2, 3), (9, 5), (5, 10), (12, 12)):
            pen.point((x, y), fill=edge)
        pen.line((0, 0, 15, 0), fill=(90, 170, 70), width=2)
    elif symbol == "B":
        pen.rectangle((0, 0, 15, 15), fill=(185, 85, 50), outline=edge)
        pen.line((0, 8, 15, 8), fill=edge)
        pen.line((8, 0, 8, 8), fill=edge)
    elif symbol in "Qu":
        pen.rectangle((0, 0, 15, 15), fill=(235, 190, 60) if symbol == "Q" else (150, 120, 90), outline=edge)
        if symbol == "Q":
            pen.text((8, 8), "?", fill=edge, font=font(13), anchor="mm")
    elif symbol == "S":
        pen.rectangle((0, 0, 15, 15), fill=(150, 150, 160), outline=(70, 70, 80))
        pen.line((1, 1, 14, 1), fill=(210, 210, 220))
    elif symbol == "P":
        pen.rectangle((0, 0, 15, 15), fill=(50, 160, 70), outline=(20, 80, 30))
        pen.line((4, 1, 4, 14), fill=(140, 220, 140), width=2)
    elif symbol == "o":
        pen.ellipse((4, 2, 11, 13), fill=(245, 215, 70), outline=(160, 110, 20))
    elif symbol == "F":
        pen.line((8, 0, 8, 15), fill=(240, 240, 240), width=2)
    elif symbol == "e":
        pen.ellipse((1, 2, 14, 14), fill=(120, 60, 120), outline=(40, 10, 40))
        pen.rectangle((4, 6, 6, 8), fill=(255, 255, 255))
        pen.rectangle((9, 6, 11, 8), fill=(255, 255, 255))
    elif symbol == "M":
        pen.rectangle((2, 5, 9, 13), fill=(40, 70, 200))
        pen.ellipse((2, 0, 9, 7), fill=(240, 200, 160))
        pen.line((1, 1, 10, 1), fill=(210, 60, 50), width=2)
        pen.rectangle((2, 13, 4, 14), fill=edge)
        pen.rectangle((7, 13, 9, 14), fill=edge)
    return np.asarray(picture, dtype=np.uint8)


@lru_cache(maxsize=8)
def _background(level: PlatformLevel) -> NDArray[np.uint8]:
    rows = [np.concatenate([tile(" " if symbol == "e" else symbol) for symbol in row], axis=1) for row in level.rows]
    return np.concatenate(rows, axis=0)


@lru_cache(maxsize=64)
def _header(text: str) -> NDArray[np.uint8]:
    picture = Image.new("RGB", (WIDTH, TILE), (20, 20, 30))
    ImageDraw.Draw(picture).text((4, 2), text, fill=(240, 240, 240), font=font(11))
    return np.asarray(picture, dtype=np.uint8)


def _paste(view: NDArray[np.uint8], picture: NDArray[np.uint8], x: int, y: int) -> None:
    top, left = max(0, y), max(0, x)
    bottom, right = min(HEIGHT, y + picture.shape[0]), min(WIDTH, x + picture.shape[1])
    if top >= bottom or left >= right:
        return
    part = picture[top - y : bottom - y, left - x : right - x]
    clear = (part == np.array(_SKY, dtype=np.uint8)).all(axis=2)
    target = view[top:bottom, left:right]
    target[~clear] = part[~clear]


def draw(world: World, memory: Mapping[str, int]) -> NDArray[np.uint8]:
    """The frame, 224 x 240 x 3."""
    camera = world.camera
    view = _background(world.level)[:, camera : camera + WIDTH].copy()
    for column, row in world.taken:
        x = column * TILE - camera
        if -TILE < x < WIDTH:
            used = tile("u" if world.level.rows[row][column] == "Q" else " ")
            left, right = max(0, x), min(WIDTH, x + TILE)
            view[row * TILE : (row + 1) * TILE, left:right] = used[:, left - x : right - x]
    for x, y, _, _, state in world.enemies:
        if state == 1:
            _paste(view, tile("e"), x // UNIT - camera, y // UNIT)
    _paste(view, tile("M")[:, :12], world.x // UNIT - camera, world.y // UNIT)
    view[:TILE] = _header(
        f"POINTS {memory['score']:06d}  COINS {memory['coins']:02d}  TIME {memory['time']:03d}  LIVES {memory['lives']}"
    )
    assert view.shape[0] == ROWS * TILE
    return view
