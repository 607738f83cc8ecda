"""Opens published files of every common kind, archives inside archives too, for the search of `leaks`."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from assay.core.datasets.readers import parse_yaml

MOST_BYTES = 1 << 30
MOST_MEMBERS = 200_000
DEPTH = 4
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp")
TEXTS = (".txt", ".md", ".rst", ".html", ".htm", ".xml", ".svg", ".py", ".js", ".tex", ".log", ".toml", ".ini", ".cfg",
         ".sh", ".r", ".ipynb", "")  # fmt: skip
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")


@dataclass(frozen=True, slots=True)
class Document:
    """A part of a file: a table (columns by name), an array, a picture's metadata, text; or ``file``, ``unread``."""

    kind: Literal["file", "table", "array", "picture", "text", "unread"]
    file: str
    place: str
    content: Any


def documents(path: Path) -> Iterator[Document]:
    """Parts of all files below a folder, or of one file; links are not followed."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and not p.is_symlink())
    for file in files:
        name = file.name if path.is_file() else str(file.relative_to(path))
        if file.stat().st_size > MOST_BYTES:
            yield Document("file", name, "", None)
            yield Document("unread", name, "", f"larger than {MOST_BYTES:,} bytes")
        else:
            yield from opened(name, file.read_bytes(), 0)


def opened(name: str, data: bytes, depth: int) -> Iterator[Document]:
    """Parts of one file."""
    yield Document("file", name, "", None)
    lower = name.lower()
    suffix = Path(lower).suffix
    try:
        if lower.endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")):
            yield from _members(name, data, depth)
        elif suffix == ".gz":
            with gzip.open(io.BytesIO(data)) as packed:
                content = packed.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                yield Document("unread", name, "", f"unpacks to more than {MOST_BYTES:,} bytes")
            yield from opened(name[:-3], content[:MOST_BYTES], depth + 1)
        elif suffix == ".json":
            yield from _json(name, "", json.loads(data.decode("utf-8-sig")))
        elif suffix in (".jsonl", ".ndjson"):
            rows = [json.loads(line) for line in data.decode("utf-8-sig").splitlines() if line.strip()]
            yield from _json(name, "", rows)
        elif suffix in (".yaml", ".yml"):
            for part in parse_yaml(data, name):
                yield from _json(name, "", part)
            yield Document("text", name, "", data.decode("utf-8", "replace"))
        elif suffix in (".csv", ".tsv"):
            yield from _csv(name, data, "," if suffix == ".csv" else "\t")
        elif suffix in (".parquet", ".arrow"):
            import polars as pl

            frame = pl.read_parquet(data) if suffix == ".parquet" else pl.read_ipc(data)
            yield Document("table", name, "", {c: frame[c].to_list() for c in frame.columns})
        elif suffix in (".npy", ".npz", ".mat", ".h5", ".hdf5"):
            yield from _arrays(name, suffix, data)
        elif suffix in IMAGES:
            yield Document("picture", name, "", _metadata(data))
        elif suffix in PICKLES:
            yield Document("unread", name, "", "a pickle is not opened, it could run code")
        elif suffix in TEXTS or _is_text(data):
            yield Document("text", name, "", data.decode("utf-8", "replace"))
        else:
            yield Document("text", name, "", data.decode("latin-1"))
            yield Document("unread", name, "", "of no known format, searched as bytes only")
    except ImportError as error:
        yield Document("unread", name, "", f"{error.name} is not installed")
    except Exception as error:
        # Whatever a strange file does to its library: it is named as not searched, and the search goes on.
        yield Document("unread", name, "", f"{type(error).__name__}: {str(error)[:120]}")
        yield Document("text", name, "", data.decode("utf-8", "replace"))


def _is_text(data: bytes) -> bool:
    try:
        data[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(data[:4096]) - 4
    return b"\0" not in data[:4096]


def _members(name: str, data: bytes, depth: int) -> Iterator[Document]:
    if depth >= DEPTH:
        yield Document("unread", name, "", f"an archive {DEPTH} deep in others")
        return
    left = MOST_BYTES
    for number, (inner, stream) in enumerate(_entries(name, data)):
        content = stream.read(left + 1)
        left -= len(content)
        if left < 0 or number >= MOST_MEMBERS:
            yield Document("unread", name, "", f"unpacks to more than {MOST_BYTES:,} bytes or {MOST_MEMBERS:,} files")
            return
        yield from opened(f"{name}/{inner}", content, depth + 1)


def _entries(name: str, data: bytes) -> Iterator[tuple[str, Any]]:
    if name.lower().endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            if packed.comment:
                yield "comment.txt", io.BytesIO(packed.comment)
            for info in packed.infolist():
                if not info.is_dir():
                    with packed.open(info) as stream:
                        yield info.filename, stream
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        for member in packed:
            stream = packed.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, stream


def _csv(name: str, data: bytes, separator: str) -> Iterator[Document]:
    import csv

    text = data.decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text), delimiter=separator))
    if rows:
        width = max(map(len, rows))
        header = [*rows[0], *(f"column {i + 1}" for i in range(len(rows[0]), width))]
        columns = {h or f"column {i + 1}": [r[i] if i < len(r) else "" for r in rows[1:]] for i, h in enumerate(header)}
        yield Document("table", name, "", columns)
        # A header that is none: the first row is data too.
        yield Document("text", name, "", ",".join(rows[0]))


def _json(name: str, place: str, value: Any) -> Iterator[Document]:
    """Tables in a JSON value: lists of objects, objects by id, lists of values; what is left as one row."""
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        rows = [_flat(v) for v in value]
        yield Document(
            "table", name, place, {k: [r.get(k) for r in rows] for k in dict.fromkeys(k for r in rows for k in r)}
        )
        for row in value[:1000]:
            for key, inner in row.items():
                if isinstance(inner, list) and len(inner) > 1 and all(isinstance(v, Mapping) for v in inner):
                    yield from _json(name, f"{place}.{key}".lstrip("."), inner)
    elif isinstance(value, list) and value:
        yield Document("table", name, place, {"values": value})
    elif isinstance(value, Mapping) and value:
        if len(value) > 1 and all(isinstance(v, Mapping) for v in value.values()):
            yield from _json(name, place, [{"(key)": k, **v} for k, v in value.items()])
        else:
            # Values by id: short lists (one-hot labels) too.
            short = {k: v for k, v in value.items() if not isinstance(v, (Mapping, list)) or _is_short(v)}
            if short:
                yield Document("table", name, place, {"(key)": list(short), "(value)": list(short.values())})
            if scalars := {k: v for k, v in short.items() if not isinstance(v, list)}:
                yield Document("table", name, place, {k: [v] for k, v in scalars.items()})
            for key, inner in value.items():
                if isinstance(inner, (Mapping, list)):
                    yield from _json(name, f"{place}.{key}".lstrip("."), inner)
    elif value is not None:
        yield Document("text", name, place, str(value))


def _is_short(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 64 and not any(isinstance(v, (Mapping, list)) for v in value)


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def _arrays(name: str, suffix: str, data: bytes) -> Iterator[Document]:
    import numpy as np

    file = io.BytesIO(data)
    if suffix == ".npy":
        found = {"": np.load(file, allow_pickle=False)}
    elif suffix == ".npz":
        with np.load(file, allow_pickle=False) as packed:
            _bounded(sum(member.file_size for member in packed.zip.infolist()))
            found = {key: packed[key] for key in packed.files}
    elif suffix == ".mat" and not data.startswith(b"MATLAB 7.3"):
        from scipy.io import loadmat

        found = {k: v for k, v in loadmat(file, simplify_cells=True).items() if not k.startswith("__")}
    else:
        import h5py

        with h5py.File(file, "r") as packed:
            sets: dict[str, Any] = {}
            packed.visititems(lambda key, item: sets.update({key: item}) if isinstance(item, h5py.Dataset) else None)
            _bounded(sum(int(item.nbytes) for item in sets.values()))
            found = {key: item[()] for key, item in sets.items()}
    for key, value in found.items():
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            yield Document("array", name, key, array)
        elif array.dtype.kind in "US" and array.ndim >= 1:
            texts = [
                x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x) for x in array.reshape(-1).tolist()
            ]
            yield Document("table", name, key, {key or "values": texts})
        elif isinstance(value, Mapping):
            yield from _json(name, key, {k: v.tolist() if hasattr(v, "tolist") else v for k, v in value.items()})
        else:
            yield Document("text", name, key, str(value))


def _bounded(size: int) -> None:
    """Compressed arrays say how large they are before they are unpacked, and cannot pass it."""
    if size > MOST_BYTES:
        raise ValueError(f"unpacks to more than {MOST_BYTES:,} bytes")


def _metadata(data: bytes) -> dict[str, Any]:
    """What a picture says beside its pixels: text chunks, EXIF, XMP, comments."""
    from PIL import ExifTags, Image

    with Image.open(io.BytesIO(data)) as picture:
        found = {
            str(k): v.decode("utf-8", "replace") if isinstance(v, bytes) else v
            for k, v in picture.info.items()
            if isinstance(v, (str, bytes, int, float))
        }
        exif = picture.getexif()
        for tags in (exif, exif.get_ifd(0x8769)):
            for tag, value in tags.items():
                text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                found[ExifTags.TAGS.get(tag, str(tag))] = text if isinstance(text, (str, int, float)) else str(text)
    found.pop("exif", None)
    return found
