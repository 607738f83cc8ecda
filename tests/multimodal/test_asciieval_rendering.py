"""Pictures against the oracle, against a plain reading of the definition, and on awkward input."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, features

from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval import rendering
from assay.multimodal.asciieval.rendering import RenderOptions, render

complex_layout = pytest.mark.skipif(
    not features.check("raqm"), reason="the published pictures need Pillow's Raqm layout, which is not in this build"
)


def plain(art: str) -> Image.Image:
    """The definition: a canvas, a line at a time, crop to the ink."""
    font = rendering.open_font()
    canvas = Image.new("RGB", (1600, 1200), "white")
    pen = ImageDraw.Draw(canvas)
    step = font.getbbox("A")[3] + 2
    for number, line in enumerate(art.split("\n")):
        pen.text((10, number * step), line, font=font, fill="black")
    ink = np.asarray(canvas.convert("L")) < 255
    if not ink.any():
        return canvas
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    box = (columns[0] - 10, rows[0] - 10, columns[-1] + 10, rows[-1] + 10)
    return canvas.crop((max(0, box[0]), max(0, box[1]), min(1600, box[2]), min(1200, box[3])))


def same(a: Image.Image, b: Image.Image) -> bool:
    return a.mode == b.mode and a.size == b.size and a.tobytes() == b.tobytes()


def test_pictures_of_the_oracle(oracle):
    for case in oracle("asciieval", "rendering")["cases"]:
        picture = render(case["ascii_art"])
        assert np.abs(np.subtract(picture.size, case["expected_size"])).max() <= 1, case["name"]
        grey = np.asarray(picture.convert("L"))
        dark = int((grey < 128).sum())
        assert dark == pytest.approx(case["expected_dark_pixels_below_128"], rel=0.03), case["name"]
        assert grey.mean() == pytest.approx(case["expected_mean_gray"], abs=0.2), case["name"]


_LINES = st.lists(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=60), max_size=12)


@complex_layout
@settings(max_examples=40, deadline=None)
@given(_LINES)
def test_pixels_equal_the_definition(lines):
    assert same(render("\n".join(lines)), plain("\n".join(lines)))


@complex_layout
@pytest.mark.parametrize(
    "art",
    [
        pytest.param("\n".join("|#_@" * 45 for _ in range(70)), id="larger than the canvas"),
        pytest.param("_" * 146, id="at its edge"),
        pytest.param("é█│\n日本\n" + "x" * 10, id="beyond ASCII"),
        pytest.param("a\tb\n\t#", id="tabs"),
        pytest.param("\n" * 64 + "[]", id="below the canvas"),
        pytest.param("[\n" * 63 + "[", id="last line"),
    ],
)
def test_pixels_equal_the_definition_on_awkward_art(art):
    assert same(render(art), plain(art))


def test_all_shipped_drawings_are_visible_whole():
    from assay.multimodal.asciieval.data import load

    for item in load().items:
        assert not rendering.truncated(item.art), item.id
        assert np.asarray(render(item.art)).min() < 128, item.id


@pytest.mark.parametrize(
    ("art", "cut"),
    [
        ("\n".join("x" * 63), False),
        ("\n" * 63 + "x", True),
        ("\n" * 63 + "   ", False),
        ("=" * 146, False),
        ("=" * 147, True),
        (" " * 300, False),
        ("日" * 74, True),
    ],
)
def test_what_the_canvas_loses_is_told(art, cut):
    assert rendering.truncated(art) is cut


def test_without_truncation_everything_is_drawn():
    art = "\n".join("#" * 200 for _ in range(80))
    whole = render(art, RenderOptions(truncate=False))
    assert whole.width > 2000
    assert whole.height > 1500
    assert render(art).size == (1600, 1200)
    small = "/\\\n\\/"
    assert same(render(small), render(small, RenderOptions(truncate=False)))


def test_an_untruncated_picture_is_bounded():
    with pytest.raises(DataError, match="truncate=True"):
        render("\n".join(["#" * 20_000] * 30), RenderOptions(truncate=False))


def test_carriage_returns_and_control_characters_are_taken_out():
    assert same(render("ab\r\ncd\re"), render("ab\ncd\ne"))
    assert same(render("a\x1b\x00b\x07"), render("ab"))
    assert rendering.normalise("a\tb", "expand") == "a       b"


def test_wide_and_combining_characters_are_counted_by_columns():
    assert rendering.column_count("日本") == 4
    assert rendering.column_count("e\u0301") == 1
    assert rendering.column_count("abc") == 3


def test_a_blank_drawing_is_a_white_canvas_or_an_error():
    assert render(" \n ").size == (1600, 1200)
    with pytest.raises(DataError, match="no visible character"):
        render(" \n ", RenderOptions(blank="error"))


def test_scale_colours_and_pixel_budget():
    art = "#####\n#####"
    picture = render(art)
    half = render(art, RenderOptions(scale=0.5))
    assert half.size == tuple(round(side / 2) for side in picture.size)
    assert max(render(art, RenderOptions(longest=20)).size) == 20
    assert render(art, RenderOptions(longest=10_000)).size == picture.size
    coloured = np.asarray(render(art, RenderOptions(ink="red", paper="#000080")))
    assert (coloured[0, 0] == (0, 0, 128)).all()
    assert coloured[..., 0].max() == 255
    assert render(art, RenderOptions(size=36)).width > 1.8 * (picture.width - 20)
    assert render(art, RenderOptions(margin=0)).width == picture.width - 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RenderOptions(scale=0), "scale"),
        (RenderOptions(longest=0), "longest"),
        (RenderOptions(size=0), "size"),
        (RenderOptions(font="/nowhere/at-all.ttf"), "Font file"),
        (RenderOptions(ink="no such colour"), "Colour"),
        (RenderOptions(margin=-1), "margin"),
        (RenderOptions(tabs="eight"), "option tabs"),  # pyright: ignore[reportArgumentType]
        (RenderOptions(blank="white"), "option blank"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_options_are_one_sentence(options, words):
    with pytest.raises(UsageError, match=words):
        render("#", options)


def test_a_png_holds_the_picture_and_is_kept():
    art = "/\\\n\\/"
    data = rendering.cached_png(art)
    assert same(Image.open(io.BytesIO(data)).convert("RGB"), render(art))
    assert rendering.cached_png(art) is data


def scanned(canvas: Image.Image) -> tuple[int, int, int, int]:
    """Ink box by a look at every pixel, as the published renderer finds it."""
    pixels = canvas.load()
    assert pixels is not None
    seen = [(x, y) for y in range(1200) for x in range(1600) if pixels[x, y] != (255, 255, 255)]
    columns, rows = [x for x, _ in seen], [y for _, y in seen]
    return min(columns) - 10, min(rows) - 10, max(columns) + 10, max(rows) + 10


@complex_layout
def test_rendering_is_fifty_times_faster_than_looking_at_every_pixel():
    art = "\n".join("/\\|_" * 8 for _ in range(15))
    font = rendering.open_font()
    render(art)
    start = time.process_time()
    canvas = Image.new("RGB", (1600, 1200), "white")
    pen = ImageDraw.Draw(canvas)
    for number, line in enumerate(art.split("\n")):
        pen.text((10, number * 19), line, font=font, fill="black")
    left, top, right, bottom = scanned(canvas)
    expected = canvas.crop((max(0, left), max(0, top), right, bottom))
    slow = time.process_time() - start
    start = time.process_time()
    for _ in range(5):
        picture = render(art)
    fast = (time.process_time() - start) / 5
    assert same(picture, expected)
    assert slow > 50 * fast
