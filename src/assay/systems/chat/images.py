"""Images in messages: files, bytes and Pillow images as data-URL parts."""

from __future__ import annotations

import base64
import hashlib
import io
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from PIL import Image

Part = dict[str, Any]
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def text_part(text: str) -> Part:
    """A text part of a message's content."""
    return {"type": "text", "text": text}


def image_part(
    image: str | Path | bytes | Image.Image,
    *,
    scale: float | None = None,
    max_pixels: int | None = None,
    max_side: int | None = None,
    detail: Literal["low", "high", "auto"] | None = None,
    format: Literal["png", "jpeg"] = "png",
) -> Part:
    """An image part: ``{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}``.

    PNG, JPEG, GIF and WebP files pass unchanged unless they must be resized; everything else is encoded anew.

    Parameters
    ----------
    image
        A file's path, a file's bytes, or a Pillow image.
    scale
        Factor for both sides.
    max_pixels, max_side
        Area and longer side that are not passed; smaller images stay as they are.
    detail
        OpenAI's field of that name.
    format
        Of images that are encoded anew; JPEG has no transparency and is put on white.

    Raises
    ------
    DataError
        The file is missing or no image.
    UsageError
        A size that is not above 0.
    """
    for name, value in (("scale", scale), ("max_pixels", max_pixels), ("max_side", max_side)):
        if value is not None and not value > 0:
            raise UsageError(f"{name} is {value}; it must be above 0.")
    if isinstance(image, (str, Path)):
        try:
            data = Path(image).read_bytes()
        except OSError as error:
            raise DataError(f"The image {image} cannot be read ({error.strerror}).") from None
        url = _from_bytes(data, str(image), scale, max_pixels, max_side, format)
    elif isinstance(image, bytes):
        url = _from_bytes(image, "the image given as bytes", scale, max_pixels, max_side, format)
    else:
        url = _data_url(*_encode(_resized(image, scale, max_pixels, max_side), format))
    part: Part = {"type": "image_url", "image_url": {"url": url}}
    if detail is not None:
        part["image_url"]["detail"] = detail
    return part


class ImageParts:
    """`image_part` with fixed settings and a memory of what it has encoded.

    Parameters
    ----------
    max_bytes
        Size of the memory; the images not used for longest are dropped.
    settings
        Keyword arguments of `image_part`.
    """

    def __init__(self, *, max_bytes: int = 256_000_000, **settings: Any) -> None:
        self.max_bytes = max_bytes
        self.settings = settings
        self.hits = 0
        self._size = 0
        self._parts: OrderedDict[Any, Part] = OrderedDict()

    def __call__(self, image: str | Path | bytes | Image.Image) -> Part:
        """The part of an image: by path, size and time of change for files, by content otherwise."""
        key = _key(image)
        part = self._parts.get(key)
        if part is not None:
            self.hits += 1
            self._parts.move_to_end(key)
            return part
        part = image_part(image, **self.settings)
        self._parts[key] = part
        self._size += _length(part)
        while self._size > self.max_bytes and len(self._parts) > 1:
            self._size -= _length(self._parts.popitem(last=False)[1])
        return part


def with_images(text: str, images: Iterable[Part], *, order: Literal["first", "last"] = "first") -> list[Part]:
    """Content of a message: all images before the text, or after it."""
    parts = list(images)
    if order not in ("first", "last"):
        raise UsageError(f"order is {order!r}; images come first or last.")
    return [*parts, text_part(text)] if order == "first" else [text_part(text), *parts]


def interleave(text: str, images: Sequence[Part], *, mark: str = "<image>") -> list[Part]:
    """Content of a message with the images where ``mark`` stands in the text, in order.

    Raises
    ------
    UsageError
        The text has not as many marks as there are images.
    """
    pieces = text.split(mark)
    if len(pieces) - 1 != len(images):
        raise UsageError(f"The text has {len(pieces) - 1} marks {mark!r} for {len(images)} images; one each is needed.")
    parts: list[Part] = []
    for index, piece in enumerate(pieces):
        if piece:
            parts.append(text_part(piece))
        if index < len(images):
            parts.append(images[index])
    return parts


def decode(part: Part) -> tuple[bytes, str]:
    """Bytes and media type of a data-URL part.

    Raises
    ------
    DataError
        The part holds no base64 data URL.
    """
    url = part.get("image_url", {}).get("url", "")
    head, comma, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        raise DataError(f"An image part holds no data URL ({url[:40]!r}).")
    try:
        return base64.b64decode(data, validate=True), head[len("data:") : -len(";base64")]
    except ValueError:
        raise DataError("An image part holds broken base64.") from None


def _media_type(data: bytes) -> str | None:
    for signature, name in _SIGNATURES:
        if data.startswith(signature):
            return name
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def _from_bytes(
    data: bytes,
    where: str,
    scale: float | None,
    max_pixels: int | None,
    max_side: int | None,
    format: Literal["png", "jpeg"],
) -> str:
    media_type = _media_type(data)
    resize = scale is not None or max_pixels is not None or max_side is not None
    if media_type is not None and not resize:
        return _data_url(data, media_type)
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as opened:
            opened.load()
            small = _resized(opened, scale, max_pixels, max_side)
            if small is opened and media_type is not None:
                return _data_url(data, media_type)
            return _data_url(*_encode(small, format))
    except Exception as error:  # Pillow documents no closed set of what a damaged picture raises, bombs among it
        raise DataError(f"{where} is not an image that can be read ({error}).") from None


def _resized(image: Image.Image, scale: float | None, max_pixels: int | None, max_side: int | None) -> Image.Image:
    width, height = image.size
    factor = 1.0 if scale is None else scale
    if max_pixels is not None:
        factor = min(factor, (max_pixels / (width * height)) ** 0.5)
    if max_side is not None:
        factor = min(factor, max_side / max(width, height))
    # Rounded down, so that no limit is passed by a pixel.
    size = (max(1, int(width * factor + 1e-9)), max(1, int(height * factor + 1e-9)))
    if size == image.size:
        return image
    from PIL import Image

    if image.mode in ("P", "1"):  # palettes cannot be interpolated
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image.resize(size, Image.Resampling.LANCZOS)


def _encode(image: Image.Image, format: Literal["png", "jpeg"]) -> tuple[bytes, str]:
    from PIL import Image

    buffer = io.BytesIO()
    if format == "jpeg":
        if image.mode not in ("RGB", "L"):
            flat = image.convert("RGBA")
            white = Image.new("RGBA", flat.size, "white")
            image = Image.alpha_composite(white, flat).convert("RGB")
        image.save(buffer, "JPEG", quality=95)
    else:
        if image.mode not in ("RGB", "RGBA", "L", "LA", "P", "1"):
            image = image.convert("RGB")
        image.save(buffer, "PNG")
    return buffer.getvalue(), f"image/{format}"


def _key(image: str | Path | bytes | Image.Image) -> Any:
    if isinstance(image, (str, Path)):
        try:
            found = Path(image).stat()
        except OSError as error:
            raise DataError(f"The image {image} cannot be read ({error.strerror}).") from None
        return ("file", str(image), found.st_size, found.st_mtime_ns)
    if isinstance(image, bytes):
        return ("bytes", hashlib.blake2b(image, digest_size=16).digest())
    palette = image.getpalette() if image.mode == "P" else None
    digest = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
    return ("image", image.mode, image.size, None if palette is None else bytes(palette), digest)


def _length(part: Part) -> int:
    return len(part["image_url"]["url"])
