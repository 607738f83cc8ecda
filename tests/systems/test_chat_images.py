"""Images in messages."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from assay.core.errors import DataError, UsageError
from assay.systems.chat.images import ImageParts, decode, image_part, interleave, text_part, with_images


def png(width=40, height=20, mode="RGB"):
    buffer = io.BytesIO()
    Image.new(mode, (width, height), 1).save(buffer, "PNG")
    return buffer.getvalue()


def opened(part):
    return Image.open(io.BytesIO(decode(part)[0]))


def test_known_formats_pass_byte_for_byte(tmp_path):
    for format, media_type in (
        ("PNG", "image/png"),
        ("JPEG", "image/jpeg"),
        ("GIF", "image/gif"),
        ("WEBP", "image/webp"),
    ):
        path = tmp_path / f"a.{format}"
        Image.new("RGB", (5, 4), "red").save(path, format)
        for source in (path, str(path), path.read_bytes()):
            assert decode(image_part(source)) == (path.read_bytes(), media_type)


def test_other_formats_become_png(tmp_path):
    Image.new("RGB", (5, 4), "red").save(tmp_path / "a.bmp")
    data, media_type = decode(image_part(tmp_path / "a.bmp"))
    assert media_type == "image/png"
    assert Image.open(io.BytesIO(data)).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16"])
@pytest.mark.parametrize("format", ["png", "jpeg"])
def test_every_mode_can_be_encoded_and_resized(mode, format):
    image = Image.new(mode, (8, 6))
    assert opened(image_part(image, format=format)).size == (8, 6)
    assert opened(image_part(image, format=format, scale=0.5)).size == (4, 3)


def test_pixels_survive_png_exactly():
    image = Image.new("RGB", (16, 16))
    image.putdata([(i, 255 - i, i // 2) for i in range(256)])
    assert opened(image_part(image)).tobytes() == image.tobytes()


def test_transparency_is_white_in_jpeg():
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    pixel = opened(image_part(image, format="jpeg")).getpixel((1, 1))
    assert min(pixel) > 250


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 120), st.integers(1, 120), st.none() | st.integers(1, 5000), st.none() | st.integers(1, 200))
def test_no_limit_is_passed_and_small_images_stay(width, height, max_pixels, max_side):
    data = png(width, height)
    part = image_part(data, max_pixels=max_pixels, max_side=max_side)
    size = opened(part).size
    if max_side is not None:
        assert max(size) <= max_side
    if max_pixels is not None and min(size) > 1:
        assert size[0] * size[1] <= max_pixels
    fits = (max_pixels is None or width * height <= max_pixels) and (max_side is None or max(width, height) <= max_side)
    if fits:
        assert decode(part)[0] == data


def test_bad_images_are_one_sentence(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    (tmp_path / "a.txt").write_text("no image")
    for path, extra in (("a.txt", {}), ("a.png", {"scale": 0.5})):
        with pytest.raises(DataError, match=r"is not an image"):
            image_part(tmp_path / path, **extra)
    with pytest.raises(DataError, match="cannot be read"):
        image_part(tmp_path / "none.png")
    with pytest.raises(DataError, match="cannot be read"):
        ImageParts()(tmp_path / "none.png")
    for wrong in ({"scale": 0}, {"max_pixels": -1}, {"max_side": 0}):
        with pytest.raises(UsageError, match="above 0"):
            image_part(png(), **wrong)


def test_detail_is_openais_field():
    assert image_part(png(), detail="low")["image_url"]["detail"] == "low"


def test_images_stand_first_last_or_in_between():
    a, b, text = image_part(png(1, 1)), image_part(png(2, 2)), text_part("look")
    assert with_images("look", [a, b]) == [a, b, text]
    assert with_images("look", [a, b], order="last") == [text, a, b]
    assert interleave("<image>one<image>two", [a, b]) == [a, text_part("one"), b, text_part("two")]
    assert interleave("one<image>", [a]) == [text_part("one"), a]
    with pytest.raises(UsageError, match=r"1 marks '<image>' for 2 images"):
        interleave("<image>", [a, b])
    with pytest.raises(UsageError, match="first or last"):
        with_images("x", [a], order="middle")


def test_encoded_images_are_remembered(tmp_path):
    parts = ImageParts(scale=0.5)
    path = tmp_path / "a.png"
    path.write_bytes(png(40, 20))
    first = parts(path)
    assert parts(path) is first
    assert parts.hits == 1
    path.write_bytes(png(60, 20))
    os.utime(path, ns=(1, 1))
    assert opened(parts(path)).size == (30, 10)
    data = png(8, 8)
    assert parts(data) is parts(bytes(data))
    image = Image.new("P", (8, 8))
    image.putpalette([0] * 768)
    before = parts(image)
    image.putpalette([255] * 768)
    assert parts(image) != before


def test_the_memory_is_bounded():
    parts = ImageParts(max_bytes=2000)
    for size in range(1, 40):
        parts(png(size, size))
    assert parts._size <= 2000
    assert parts._size == sum(len(p["image_url"]["url"]) for p in parts._parts.values())


def test_a_part_without_a_data_url_is_refused():
    for url in ("http://x/y.png", "data:image/png,abc", "data:image/png;base64,?"):
        with pytest.raises(DataError):
            decode({"image_url": {"url": url}})
