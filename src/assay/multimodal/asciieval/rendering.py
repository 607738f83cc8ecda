"""Text to picture, pixel for pixel as the published renderer draws it.

That renderer writes each line with DejaVu Sans Mono 18 onto a white 1600 x 1200 canvas (x = 10, a line every 19 pixels)
and crops to the ink with a margin of 10; right and bottom edges are exclusive, so one pixel less there. What does not
fit the canvas is lost: about 146 columns and 63 lines are seen.

Here the glyphs of a monospaced font are drawn once and copied to their places on a canvas no larger than the drawing.
"""

from __future__ import annotations

import gzip
import io
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, MissingExtra, UsageError, unknown_name
from assay.multimodal.asciieval.prompts import check_size

if TYPE_CHECKING:
    from PIL import Image, ImageFont

CANVAS = (1600, 1200)
LEFT = 10
_PRINTABLE = "".join(map(chr, range(33, 127)))
_LIMIT = 60_000_000  # pixels of an untruncated picture: a bound on memory, far above any real drawing


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How to draw.

    Parameters
    ----------
    font
        A TrueType file; None = DejaVu Sans Mono, which comes with the package.
    size
        Font size in pixels.
    margin
        White pixels kept around the ink.
    truncate
        Whether to lose what a 1600 x 1200 canvas does not hold, as the published renderer does.
    ink, paper
        Colours (any that Pillow knows).
    scale
        Factor on width and height after drawing (low-resolution prompting); 1 = as drawn.
    longest
        Pixels that the longer side may have at most, after ``scale`` (a pixel budget); None = no limit.
    tabs
        ``"keep"``: a tab is drawn as the font draws it (the published picture); ``"expand"``: to the next multiple
        of 8 columns.
    blank
        What to do with a drawing without ink: ``"canvas"`` gives the full white canvas (the published picture),
        ``"error"`` refuses it.
    """

    font: str | Path | None = None
    size: int = 18
    margin: int = 10
    truncate: bool = True
    ink: str = "black"
    paper: str = "white"
    scale: float = 1.0
    longest: int | None = None
    tabs: Literal["keep", "expand"] = "keep"
    blank: Literal["canvas", "error"] = "canvas"


DEFAULT = RenderOptions()


@dataclass(frozen=True, slots=True)
class _Glyphs:
    """Ink of the printable characters, (94, height, width) uint8, 255 = ink, ``left`` pixels right of their origin.

    ``down``, ``across`` and ``value`` list the pixels that are not blank, glyph after glyph; those of glyph g are
    ``count[g]`` from ``start[g]`` on.
    """

    ink: NDArray[np.uint8]
    start: NDArray[np.intp]
    count: NDArray[np.intp]
    down: NDArray[np.intp]
    across: NDArray[np.intp]
    value: NDArray[np.uint8]
    left: int
    advance: float
    step: int
    font: Any
    fixed: bool


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise MissingExtra("Rendering ASCII art", "asciieval") from None
    return Image, ImageDraw, ImageFont


def open_font(font: str | Path | None = None, size: int = 18) -> ImageFont.FreeTypeFont:
    """Font of a size in pixels: a TrueType file, or the DejaVu Sans Mono that comes with the package."""
    _, _, fonts = _pillow()
    if size < 1:
        raise UsageError(f"Font size {size} is not a positive number of pixels.")
    if font is None:
        packed = resources.files("assay.multimodal.asciieval").joinpath("DejaVuSansMono.ttf.gz").read_bytes()
        return fonts.truetype(io.BytesIO(gzip.decompress(packed)), size)
    try:
        return fonts.truetype(str(font), size)
    except OSError:
        raise UsageError(
            f"Font file {str(font)!r} cannot be read; give a TrueType file, or none for DejaVu Sans Mono."
        ) from None


@lru_cache(maxsize=8)
def _glyphs(font: str | Path | None, size: int) -> _Glyphs:
    image, draw, _ = _pillow()
    face = open_font(font, size)
    large = open_font(font, 2048)
    # FreeType's advance in 1/64 pixels, unhinted: what Raqm lays out with. Pillow's basic layout rounds it to whole
    # pixels, so it is worked out from a size at which rounding does not matter.
    advance = math.floor(large.getlength("A") / 2048 * size * 64 + 0.5) / 64
    fixed = len({large.getlength(char) for char in "AiW.|"}) == 1
    pad, width, height = size, 3 * size, 3 * size
    sheet = np.zeros((len(_PRINTABLE), height, width), np.uint8)
    for at, char in enumerate(_PRINTABLE):
        cell = image.new("L", (width, height), 0)
        draw.Draw(cell).text((pad, 0), char, font=face, fill=255)
        sheet[at] = np.asarray(cell)
    columns = np.flatnonzero(sheet.any(axis=(0, 1)))
    rows = np.flatnonzero(sheet.any(axis=(0, 2)))
    first, last = int(columns[0]), int(columns[-1]) + 1
    ink = np.ascontiguousarray(sheet[:, : int(rows[-1]) + 1, first:last])
    glyph, down, across = np.nonzero(ink)
    count = np.bincount(glyph, minlength=len(_PRINTABLE))
    start = np.cumsum(count) - count
    step = int(face.getbbox("A")[3]) + 2
    value = ink[glyph, down, across]
    return _Glyphs(ink, start, count, down, across, value, first - pad, advance, step, face, fixed)


def normalise(art: str, tabs: Literal["keep", "expand"] = "keep") -> str:
    """Drawing with line ends as ``\\n`` and without other control characters but the tab.

    ``\\r\\n`` and a lone ``\\r`` become ``\\n`` (Pillow's complex layout refuses ``\\r``); form feeds and other
    controls are dropped.
    """
    art = art.replace("\r\n", "\n").replace("\r", "\n")
    if tabs == "expand":
        art = "\n".join(line.expandtabs(8) for line in art.split("\n"))
    if art.isprintable():
        return art
    return "".join(char for char in art if char in "\n\t" or char.isprintable() or char >= "\xa0")


def column_count(line: str) -> int:
    """Columns that a line takes: wide East Asian characters two, combining marks none."""
    if line.isascii():
        return len(line)
    import unicodedata

    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line
    )


def truncated(art: str, options: RenderOptions = DEFAULT) -> bool:
    """Whether a 1600 x 1200 canvas loses some of the drawing (text mode loses nothing, so this must be told)."""
    art = normalise(art, options.tabs)
    glyphs = _glyphs(options.font, options.size)
    for number, line in enumerate(art.split("\n")):
        inked = line.rstrip()
        if not inked:
            continue
        # Some glyphs reach below their line's step: brackets, the underscore and the bar.
        if glyphs.step * number + glyphs.ink.shape[1] > CANVAS[1] and _overflows(glyphs, inked, number):
            return True
        width = column_count(inked) * glyphs.advance if glyphs.fixed else glyphs.font.getlength(inked)
        if LEFT + width > CANVAS[0]:
            return True
    return False


def _overflows(glyphs: _Glyphs, line: str, number: int) -> bool:
    room = CANVAS[1] - glyphs.step * number
    if room <= 0 or not line.isascii():
        return True
    codes = np.frombuffer(line.replace(" ", "").encode(), np.uint8).astype(np.intp) - 33
    codes = codes[(codes >= 0) & (codes < len(_PRINTABLE))]
    return bool(glyphs.ink[codes, room:].any())


def _plain(line: str) -> bool:
    return line.isascii() and "\t" not in line


def _ink(art: str, options: RenderOptions) -> NDArray[np.uint8]:
    """Ink of a normalised drawing, cropped with its margin; an empty array when there is none.

    Rows and columns count from the top left corner of the canvas.
    """
    image, draw, _ = _pillow()
    glyphs = _glyphs(options.font, options.size)
    lines = art.split("\n")
    if options.truncate:
        lines = lines[: CANVAS[1] // glyphs.step + 1]
    height, width = glyphs.ink.shape[1:]

    rows: list[NDArray[np.intp]] = []
    columns: list[NDArray[np.intp]] = []
    codes: list[NDArray[np.intp]] = []
    others: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if not line or (line.isspace() and "\t" not in line):
            continue
        if not glyphs.fixed or not _plain(line):
            others.append((number, line))
            continue
        chars = np.frombuffer(line.encode("ascii"), np.uint8)
        at = np.flatnonzero(chars != 32)
        rows.append(np.full(at.size, number, np.intp))
        columns.append(at)
        codes.append(chars[at].astype(np.intp) - 33)

    # Python rounds halves to even and FreeType up: the half must not be left to chance.
    places = [np.floor(c * glyphs.advance + 0.5).astype(np.intp) + LEFT + glyphs.left for c in columns]
    right = max((int(p.max()) + width for p in places if p.size), default=0)
    right = max([right, *(LEFT + math.ceil(glyphs.font.getlength(line)) + options.size for _, line in others)])
    used = [int(r[0]) for r in rows if r.size] + [number for number, _ in others]
    bottom = max((n * glyphs.step + height + options.size for n in used), default=0)
    if options.truncate:
        right, bottom = min(right, CANVAS[0]), min(bottom, CANVAS[1])
    if right * bottom > _LIMIT:
        raise DataError(
            f"The drawing would need {right} x {bottom} pixels, more than {_LIMIT:,} in all; use truncate=True."
        )

    # Painted a little larger than needed, so that glyphs may hang over the edge that cuts them.
    ink = np.zeros((bottom + height, right + width), np.uint8)
    if rows:
        row, place, code = np.concatenate(rows), np.concatenate(places), np.concatenate(codes)
        keep = (place < right) & (row * glyphs.step < bottom) & (place + width > 0)
        row, place, code = row[keep], place[keep], code[keep]
        column = np.concatenate(columns)[keep]
        flat = ink.reshape(-1)
        origin = row * glyphs.step * ink.shape[1] + np.maximum(place, 0)
        # Neighbouring glyphs may share pixels: paint them in four passes within which none do.
        for parity in range(4):
            part = (row % 2 == parity // 2) & (column % 2 == parity % 2)
            each = glyphs.count[code[part]]
            pixel = np.repeat(glyphs.start[code[part]] - np.cumsum(each) + each, each) + np.arange(each.sum())
            at = np.repeat(origin[part], each) + glyphs.down[pixel] * ink.shape[1] + glyphs.across[pixel]
            flat[at] = _over(flat[at], glyphs.value[pixel])
    ink = ink[:bottom, :right]
    if others:
        sheet = image.fromarray(255 - ink)
        pen = draw.Draw(sheet)
        for number, line in others:
            pen.text((LEFT, number * glyphs.step), line, font=glyphs.font, fill=0)
        ink = 255 - np.asarray(sheet)
    return ink


def _over(under: NDArray[np.uint8], mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Ink after painting ``mask`` over ``under``, with Pillow's integer blending of grey levels."""
    if not under.any():
        return mask
    product = (255 - under).astype(np.uint32) * (255 - mask) + 128
    return (255 - (((product >> 8) + product) >> 8)).astype(np.uint8)


def _check(options: RenderOptions) -> None:
    check_size(options.scale, options.longest)
    if options.margin < 0:
        raise UsageError(f"A margin of {options.margin} pixels is negative.")
    if options.tabs not in ("keep", "expand"):
        raise unknown_name("value of option tabs", options.tabs, ("keep", "expand"))
    if options.blank not in ("canvas", "error"):
        raise unknown_name("value of option blank", options.blank, ("canvas", "error"))


def render(art: str, options: RenderOptions = DEFAULT) -> Image.Image:
    """Picture of a drawing.

    Parameters
    ----------
    art
        The drawing; line ends are normalised (see `normalise`).
    options
        How to draw.

    Returns
    -------
    PIL.Image.Image
        RGB, cropped to the ink with a margin. With default options the pixels are those of the published renderer.

    Raises
    ------
    UsageError
        If the font cannot be read or an option is out of range.
    DataError
        If the drawing has no ink and ``options.blank`` is ``"error"``.
    """
    image, _, _ = _pillow()
    _check(options)
    ink = _ink(normalise(art, options.tabs), options)
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    if not rows.size:
        if options.blank == "error":
            raise DataError("The drawing has no visible character, its picture would be a blank canvas; drop the item.")
        grey = np.full(CANVAS[::-1], 255, np.uint8)
    else:
        top, bottom = max(0, int(rows[0]) - options.margin), int(rows[-1]) + options.margin
        left, right = max(0, int(columns[0]) - options.margin), int(columns[-1]) + options.margin
        if options.truncate:
            right, bottom = min(CANVAS[0], right), min(CANVAS[1], bottom)
        grey = np.full((max(1, bottom - top), max(1, right - left)), 255, np.uint8)
        part = ink[top:bottom, left:right]
        grey[: part.shape[0], : part.shape[1]] -= part
    if (options.ink, options.paper) == ("black", "white"):
        picture = image.fromarray(grey).convert("RGB")
    else:
        from PIL import ImageColor, ImageOps

        try:
            picture = ImageOps.colorize(
                image.fromarray(grey), ImageColor.getrgb(options.ink)[:3], ImageColor.getrgb(options.paper)[:3]
            )
        except ValueError as error:
            raise UsageError(f"Colour not known: {error}; give a name or #rrggbb.") from None
    factor = options.scale
    if options.longest:
        factor = min(factor, options.longest / max(picture.size))
    if factor != 1:
        width, height = (max(1, round(side * factor)) for side in picture.size)
        picture = picture.resize((width, height), image.Resampling.BOX if factor < 1 else image.Resampling.BICUBIC)
    return picture


def png(art: str, options: RenderOptions = DEFAULT) -> bytes:
    """PNG file of a drawing's picture."""
    stream = io.BytesIO()
    render(art, options).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


@lru_cache(maxsize=4096)
def cached_png(art: str, options: RenderOptions = DEFAULT) -> bytes:
    """`png`, remembered: several attempts and modes show the same picture."""
    return png(art, options)
