"""Drawings made from vector shapes: two styles, any length, four choices, and the same content at several sizes.

A shape (`shapes.toml`) becomes a *drawing* by a random smooth deformation, so that two drawings of one concept differ
as two hands would; a drawing becomes an ASCII *rendition* by height, style and noise. Tests hold whole drawings back.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, UsageError, unknown_name
from assay.multimodal.asciieval.data import Item

if TYPE_CHECKING:
    from PIL import Image

Style = Literal["structure", "tone"]
STYLES: tuple[Style, ...] = ("structure", "tone")
HEIGHTS = (5, 10, 15, 20, 25, 40)
RAMP = " .:-=+*#%@"
_CELL_WIDTH, _CELL_HEIGHT = 8, 16
_CLOSED = "pbo"


@dataclass(frozen=True, slots=True)
class Stroke:
    """A piece of a shape: its points in a 100 x 100 box, whether it is closed, and its darkness in tone style."""

    points: NDArray[np.float64]
    closed: bool
    darkness: float
    solid: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A concept of the tree with the strokes that draw it."""

    klass: str
    group: str
    concept: str
    strokes: tuple[Stroke, ...]

    @property
    def key(self) -> str:
        """Group and concept."""
        return f"{self.group}.{self.concept}"


@lru_cache(maxsize=1)
def shapes() -> tuple[Shape, ...]:
    """The shapes that come with the package, in the order of their file."""
    text = resources.files("assay.multimodal.asciieval").joinpath("shapes.toml").read_text(encoding="utf-8")
    return tuple(
        Shape(klass, group, concept, parse_strokes(drawn, f"shapes.toml, {concept}"))
        for klass, groups in tomllib.loads(text).items()
        for group, concepts in groups.items()
        for concept, drawn in concepts.items()
    )


def parse_strokes(text: str, where: str = "shape") -> tuple[Stroke, ...]:
    """Strokes of a shape's description: ``kind numbers`` separated by semicolons (kinds: see ``shapes.toml``).

    Raises
    ------
    DataError
        If a kind is not known or the numbers do not fit it.
    """
    strokes = []
    for piece in text.split(";"):
        kind, _, rest = piece.strip().partition(" ")
        rest, _, dark = rest.partition("@")
        try:
            darkness = float(dark) if dark else 0.55
            groups = [[float(number) for number in group.split(",")] for group in rest.split()]
            strokes.append(_stroke(kind, groups, darkness))
        except (ValueError, IndexError):
            raise DataError(f"{where}: stroke {piece.strip()!r} cannot be read; see the head of shapes.toml.") from None
    return tuple(strokes)


def _stroke(kind: str, groups: list[list[float]], darkness: float) -> Stroke:
    if kind in ("p", "l", "b", "w"):
        points = np.array(groups)
        if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2:
            raise ValueError
        if kind in "pl":
            points = _dense(points, closed=kind == "p")
        else:
            points = _smooth(points, closed=kind == "b")
        return Stroke(points, kind in _CLOSED, darkness)
    numbers = groups[0]
    if kind == "o":
        x, y, rx, *ry = numbers
        return Stroke(_arc(x, y, rx, ry[0] if ry else rx, 0, 360), True, darkness)
    if kind == "a":
        x, y, rx, ry, start, end = numbers
        return Stroke(_arc(x, y, rx, ry, start, end), False, darkness)
    if kind == "d":
        x, y, r = numbers
        return Stroke(_arc(x, y, r, r, 0, 360), True, 1.0, solid=True)
    raise ValueError


def _arc(x: float, y: float, rx: float, ry: float, start: float, end: float) -> NDArray[np.float64]:
    angle = np.radians(np.linspace(start, end, max(8, int(abs(end - start) / 8))))
    return np.column_stack((x + rx * np.cos(angle), y + ry * np.sin(angle)))


def _dense(points: NDArray[np.float64], closed: bool) -> NDArray[np.float64]:
    """Points every few units along straight edges, so that a deformation bends them too."""
    ends = np.vstack((points, points[:1])) if closed else points
    parts = []
    for a, b in pairwise(ends):
        steps = max(1, int(np.hypot(*(b - a)) / 6))
        parts.append(a + (b - a) * np.linspace(0, 1, steps, endpoint=False)[:, None])
    return np.vstack([*parts, ends[-1:]])


def _smooth(points: NDArray[np.float64], closed: bool) -> NDArray[np.float64]:
    """Catmull-Rom curve through the points."""
    if closed:
        control = np.vstack((points[-1:], points, points[:2]))
    else:
        control = np.vstack((2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]))
    t = np.linspace(0, 1, 8, endpoint=False)[:, None]
    parts = [
        0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
        for a, b, c, d in zip(control, control[1:], control[2:], control[3:])
    ]
    return np.vstack([*parts, control[-2:-1]])


@dataclass(frozen=True, slots=True)
class Drawing:
    """A shape as one hand drew it: what stays the same while length, style and noise vary.

    ``number`` names it; drawings with different numbers differ in proportions, slant, bends and side.
    """

    shape: Shape
    number: int

    @property
    def id(self) -> str:
        """``group.concept/number``: the unit that is held back from training."""
        return f"{self.shape.key}/{self.number}"

    def strokes(self) -> tuple[Stroke, ...]:
        """The deformed strokes; a function of concept and number alone."""
        rng = np.random.default_rng(_stable_seed(self.id))
        stretch = rng.uniform((0.6, 0.66), (1.0, 1.0))
        slant, turn = rng.uniform(-0.28, 0.28), np.radians(rng.uniform(-13, 13))
        mirror = -1.0 if rng.random() < 0.5 and self.shape.concept != "question" else 1.0
        wave, length, phase = rng.uniform(0.5, 4.5, 2), rng.uniform(0.5, 1.5, 2), rng.uniform(0, 2 * np.pi, 2)
        linear = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ np.array(
            [[mirror * stretch[0], slant], [0.0, stretch[1]]]
        )
        moved = []
        for place, stroke in enumerate(self.shape.strokes):
            # Hands leave details out, but never what a drawing begins with.
            left_out = rng.random() < 0.12 and place > 1 and len(self.shape.strokes) > 4
            bent = stroke.points + wave * np.sin(stroke.points[:, ::-1] / 100 * 2 * np.pi * length + phase)
            centre = bent.mean(axis=0)
            bent = centre + (bent - centre) * rng.uniform(0.88, 1.12) + rng.normal(0, 1.5, 2)
            if not left_out:
                moved.append(Stroke((bent - 50) @ linear.T, stroke.closed, stroke.darkness, stroke.solid))
        everything = np.vstack([stroke.points for stroke in moved])
        low, high = everything.min(axis=0), everything.max(axis=0)
        shift, size = (low + high) / 2, float(np.max(high - low))
        return tuple(
            Stroke((stroke.points - shift) * (96 / size) + 50, stroke.closed, stroke.darkness, stroke.solid)
            for stroke in moved
        )


def _stable_seed(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest(), "big")


def raster(drawing: Drawing, pixels: int = 200, style: Style = "structure", line: float | None = None) -> Image.Image:
    """The drawing itself as a grey picture, ``pixels`` wide and high, black on white.

    Structure style draws outlines (later shapes hide earlier ones), tone style fills them.
    """
    from PIL import Image, ImageDraw

    picture = Image.new("L", (pixels, pixels), 255)
    pen = ImageDraw.Draw(picture)
    width = max(1, round(line if line is not None else pixels / 80))
    for stroke in drawing.strokes():
        points = [(float(x), float(y)) for x, y in stroke.points * (pixels / 100)]
        if stroke.solid:
            pen.polygon(points, fill=0)
        elif stroke.closed:
            pen.polygon(points, fill=255 if style == "structure" else round(255 * (1 - stroke.darkness)))
            pen.line([*points, points[0]], fill=0, width=width, joint="curve")
        else:
            pen.line(points, fill=0, width=width, joint="curve")
    return picture


_STROKES_OF_CHARACTERS: dict[str, tuple[tuple[float, ...], ...]] = {
    # end points x0, y0, x1, y1 in a cell one wide and one high
    "/": ((0.0, 1.0, 1.0, 0.0),),
    "\\": ((0.0, 0.0, 1.0, 1.0),),
    "|": ((0.5, 0.0, 0.5, 1.0),),
    "-": ((0.0, 0.5, 1.0, 0.5),),
    "_": ((0.0, 0.93, 1.0, 0.93),),
    "(": ((0.85, 0.0, 0.35, 0.3), (0.35, 0.3, 0.35, 0.7), (0.35, 0.7, 0.85, 1.0)),
    ")": ((0.15, 0.0, 0.65, 0.3), (0.65, 0.3, 0.65, 0.7), (0.65, 0.7, 0.15, 1.0)),
    ".": ((0.42, 0.85, 0.58, 0.9),),
    "'": ((0.5, 0.08, 0.5, 0.3),),
    "`": ((0.35, 0.08, 0.6, 0.28),),
}


@lru_cache(maxsize=1)
def _templates() -> tuple[str, NDArray[np.float32]]:
    from PIL import Image, ImageDraw, ImageFilter

    rows = []
    for lines in _STROKES_OF_CHARACTERS.values():
        cell = Image.new("L", (_CELL_WIDTH, _CELL_HEIGHT), 0)
        pen = ImageDraw.Draw(cell)
        for x0, y0, x1, y1 in lines:
            w, h = _CELL_WIDTH - 1, _CELL_HEIGHT - 1
            pen.line((x0 * w, y0 * h, x1 * w, y1 * h), fill=255, width=2)
        blurred = np.asarray(cell.filter(ImageFilter.GaussianBlur(1.6)), np.float32).ravel()
        rows.append(blurred / np.linalg.norm(blurred))
    return "".join(_STROKES_OF_CHARACTERS), np.array(rows)


def _cells(picture: Image.Image, rows: int) -> NDArray[np.float32]:
    """Ink of each character cell, (rows, columns, pixels)."""
    ink = 255 - np.asarray(picture, np.float32)
    columns = ink.shape[1] // _CELL_WIDTH
    return ink.reshape(rows, _CELL_HEIGHT, columns, _CELL_WIDTH).swapaxes(1, 2).reshape(rows, columns, -1)


def to_ascii(drawing: Drawing, height: int, style: Style) -> str:
    """A drawing as ASCII art ``height`` rows high and twice as many columns wide, cropped to its ink.

    Structure style picks, per cell, the line character whose stroke is most like what is drawn there; tone style picks
    from `RAMP` by mean darkness.

    Raises
    ------
    UsageError
        If the height is below 2 or the style is not known.
    """
    from PIL import ImageFilter

    if height < 2 or style not in STYLES:
        raise UsageError(f"A drawing needs a height of 2 or more and a style of {STYLES}, not {height} and {style!r}.")
    pixels = height * _CELL_HEIGHT
    if style == "tone":
        cells = _cells(raster(drawing, pixels, "tone", line=3), height).mean(axis=2) / 255
        steps = np.minimum((cells * 1.15 * len(RAMP)).astype(int), len(RAMP) - 1)
        grid = np.array(list(RAMP))[steps]
    else:
        picture = raster(drawing, pixels, "structure", line=2)
        ink = _cells(picture, height).sum(axis=2) / 255
        cells = _cells(picture.filter(ImageFilter.GaussianBlur(1.6)), height)
        names, templates = _templates()
        likeness = cells @ templates.T / np.maximum(np.linalg.norm(cells, axis=2, keepdims=True), 1e-6)
        grid = np.array(list(names))[likeness.argmax(axis=2)]
        grid[ink < 7] = " "
        grid[ink > 0.7 * _CELL_WIDTH * _CELL_HEIGHT] = "o"
    return trim("\n".join("".join(row) for row in grid))


def trim(art: str) -> str:
    """Art without trailing blanks, blank first and last lines and common left margin."""
    lines = [line.rstrip() for line in art.split("\n")]
    inked = [at for at, line in enumerate(lines) if line]
    if not inked:
        return ""
    lines = lines[inked[0] : inked[-1] + 1]
    margin = min(len(line) - len(line.lstrip(" ")) for line in lines if line)
    return "\n".join(line[margin:] for line in lines)


def add_noise(
    art: str, rng: np.random.Generator, *, substitutions: float = 0.0, border: float = 0.0, shift: int = 0
) -> str:
    """Art with characters exchanged, specks around it, and moved to the right.

    Parameters
    ----------
    substitutions
        Share of visible characters that become another of the art's own characters, 0 to 1.
    border
        Share of cells of a frame one cell wide that get a speck, 0 to 1.
    shift
        Columns to move to the right.
    """
    for name, share in (("substitutions", substitutions), ("border", border)):
        if not 0 <= share <= 1:
            raise UsageError(f"Noise {name}={share} is a share and lies in 0 to 1.")
    lines = art.split("\n")
    palette = sorted(set(art) - {" ", "\n"})
    if substitutions and len(palette) > 1:
        lines = [
            "".join(
                palette[int(rng.integers(len(palette)))] if char != " " and rng.random() < substitutions else char
                for char in line
            )
            for line in lines
        ]
    if border:
        width = max(map(len, lines))

        def speck() -> str:
            return ".,'"[int(rng.integers(3))] if rng.random() < border else " "

        lines = [speck() + line.ljust(width) + speck() for line in lines]
        lines = ["".join(speck() for _ in range(width + 2)), *lines, "".join(speck() for _ in range(width + 2))]
        lines = [line.rstrip() for line in lines]
    return "\n".join(" " * shift + line if line else line for line in lines)


def pick_choices(
    concept: str, same_group: Sequence[str], same_class: Sequence[str], rng: np.random.Generator, answer: int
) -> tuple[str, str, str, str]:
    """Four names with the right one at place ``answer``; the others from its group, then from its class.

    Raises
    ------
    DataError
        If group and class together have fewer than three other names.
    """
    near = sorted(set(same_group) - {concept})
    far = sorted(set(same_class) - set(near) - {concept})
    order = [*(near[i] for i in rng.permutation(len(near))), *(far[i] for i in rng.permutation(len(far)))]
    if len(order) < 3:
        raise DataError(f"Concept {concept!r}: its group and class hold {len(order)} other names, three are needed.")
    others = order[:3]
    others.insert(answer, concept)
    a, b, c, d = others
    return a, b, c, d


def generate(
    drawings: Sequence[int],
    *,
    heights: Sequence[int] = HEIGHTS,
    styles: Sequence[Style] = ("structure", "structure", "structure", "tone"),
    seed: int = 0,
    substitutions: float = 0.0,
    border: float = 0.0,
    concepts: Sequence[str] | None = None,
    crossed: bool = False,
) -> list[Item]:
    """Items of the shipped shapes.

    Parameters
    ----------
    drawings
        Numbers of the drawings of each concept; the same number gives the same drawing, so disjoint numbers give sets
        that share no drawing.
    heights, styles
        Drawn at random for each drawing (twice named, twice as likely); with ``crossed`` every drawing is made in every
        height and style (the same content at several sizes, for paired tests).
    seed
        Of choices, their order and noise.
    substitutions, border
        See `add_noise`.
    concepts
        Concept keys or names to keep; None = all.

    Returns
    -------
    list of Item
        Right letters as balanced as their number allows. ``fields`` hold ``drawing`` (what to split by) and ``height``.
    """
    known = {name for s in shapes() for name in (s.key, s.concept)}
    for name in concepts or ():
        if name not in known:
            raise unknown_name("concept", name, sorted({s.concept for s in shapes()}))
    chosen = [s for s in shapes() if concepts is None or s.key in concepts or s.concept in concepts]
    if not chosen or not drawings or not heights or not styles:
        raise UsageError("Nothing to draw: give at least one known concept, drawing number, height and style.")
    groups: dict[str, list[str]] = {}
    classes: dict[str, list[str]] = {}
    for shape in shapes():
        groups.setdefault(shape.group, []).append(shape.concept)
        classes.setdefault(shape.klass, []).append(shape.concept)

    kinds: list[Style] = [style for style in STYLES if style in styles]
    plan: list[tuple[Drawing, int, Style]] = []
    for shape in chosen:
        for number in drawings:
            drawing = Drawing(shape, number)
            if crossed:
                plan.extend((drawing, height, kind) for height in heights for kind in kinds)
                continue
            # Drawn at random rather than in turn: were each concept given every size once, a held-back drawing would be
            # of the one size that its concept lacks in training, and size would speak against the right answer.
            rng = np.random.default_rng(_stable_seed("size", seed, drawing.id))
            height, style = heights[int(rng.integers(len(heights)))], styles[int(rng.integers(len(styles)))]
            plan.append((drawing, height, style))

    letters = np.arange(len(plan)) % 4
    np.random.default_rng(_stable_seed("letters", seed)).shuffle(letters)
    items = []
    for (drawing, height, style), answer in zip(plan, letters):
        shape = drawing.shape
        rng = np.random.default_rng(_stable_seed(seed, drawing.id, height, style))
        art = add_noise(to_ascii(drawing, height, style), rng, substitutions=substitutions, border=border)
        choices = pick_choices(shape.concept, groups[shape.group], classes[shape.klass], rng, int(answer))
        fields: dict[str, Any] = {"drawing": drawing.id, "height": height}
        name = f"{shape.key}-{drawing.number}-{height}-{style}".replace(" ", "_")
        items.append(Item(name, art, choices, int(answer), shape.klass, shape.group, shape.concept, style, "", fields))
    return items


SHIPPED_SEED = 2024
SHIPPED_DRAWINGS = (0, 1, 2)
TRAINING_DRAWINGS = tuple(range(100, 124))


def shipped_items() -> list[Item]:
    """The items of ``items.jsonl``, made anew: what the shipped file must hold."""
    return generate(SHIPPED_DRAWINGS, seed=SHIPPED_SEED, substitutions=0.01)
