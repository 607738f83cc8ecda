"""Broken files: a corpus made from a good file, and what a loader may answer to it."""

from __future__ import annotations

import gzip
import io
import json
import random
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError

SLOWEST = 5.0
"""Seconds that a loader may take on a broken file of a few kilobytes, on a busy machine."""
ODD = (None, True, -1, 0, 1.5, 10**30, "", "x", "\0", [], [[]], [None], {}, {"": None}, "é" * 300, [1, "a", None])
"""What a field may hold instead of what it should."""
_DEEP = 10_000


@dataclass(frozen=True)
class Loader:
    """A loader under test.

    Attributes
    ----------
    name
        Module and function, as the registry of formats names it.
    make
        Writes a good file (or folder) and returns the path to load.
    load
        Reads it, generators to their end.
    breaks
        Files of it that are broken, relative to the folder; () = the path itself.
    named
        Whether it knows the file, so that its errors must name it.
    """

    name: str
    make: Callable[[Path], Path]
    load: Callable[[Path], Any]
    breaks: tuple[str, ...] = ()
    named: bool = True

    def files(self, folder: Path, made: Path) -> list[Path]:
        """Files to break."""
        return [folder / name for name in self.breaks] if self.breaks else [made]


def verdict(loader: Loader, made: Path, broken: Path) -> str | None:
    """What is wrong with a loader's answer to a broken file; None = nothing."""
    begun = time.process_time()
    try:
        loader.load(made)
    except AssayError as error:
        said = str(error)
        if len(said) > 3000:
            return f"says {len(said)} characters"
        known = {broken.name, broken.stem, made.name, *(part.name for part in broken.parents if part.name)}
        if loader.named and not any(name in said for name in known):
            return f"does not name the file: {said}"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        from traceback import extract_tb

        place = [f for f in extract_tb(error.__traceback__) if "/src/assay/" in f.filename]
        at = f"{place[-1].filename.rpartition('/src/assay/')[2]}:{place[-1].lineno}" if place else "?"
        return f"raises {type(error).__name__}({str(error)[:120]!r}) at {at}"
    taken = time.process_time() - begun
    return f"takes {taken:.1f} s" if taken > SLOWEST else None


def corpus(name: str, good: bytes) -> Iterator[tuple[str, bytes | None]]:
    """(what is broken, content) for a file of this name; None = a folder stands in its place."""
    packed = name.endswith(".gz")
    plain = gzip.decompress(good) if packed else good
    yield "folder in place of the file", None
    yield "empty", b""
    yield "NUL", b"\0" * 64
    yield "random bytes", random.Random(1).randbytes(256)
    for part in (1, 4, len(good) // 2, len(good) - 9, len(good) - 1):
        if 0 < part < len(good):
            yield f"cut after {part} bytes", good[:part]
    yield "twice", good + good
    rng = random.Random(2)
    for k in range(12):
        broken = bytearray(good)
        for _ in range(1 + k):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        yield f"bytes changed, {k}", bytes(broken)
    if packed:
        yield "gzip of nothing", gzip.compress(b"")
        yield "not gzip", plain
        yield "gzip, checksum wrong", good[:-8] + b"\1\2\3\4" + good[-4:]
        yield "gzip, body wrong", good[:12] + b"\xff\xff\xff" + good[15:]
    for what, content in _contents(name.removesuffix(".gz"), plain):
        yield what, gzip.compress(content) if packed else content


def _contents(name: str, good: bytes) -> Iterator[tuple[str, bytes]]:
    suffix = "." + name.rpartition(".")[2].lower()
    if suffix in (".npz", ".zip", ".eval", ".whl"):
        yield from _zips(good)
        return
    if good.startswith(b"\x93NUMPY"):
        yield from arrays()
        return
    if good.startswith(b"\x89HDF"):
        yield from hdf5s(good)
        return
    try:
        text = good.decode("utf-8")
    except UnicodeDecodeError:
        return
    yield "byte order mark", b"\xef\xbb\xbf" + good
    yield "UTF-16", text.encode("utf-16")
    yield "Latin-1", ("é" + text).encode("latin-1", "replace")
    yield "CRLF", text.replace("\n", "\r\n").encode()
    yield "CR", text.replace("\n", "\r").encode()
    yield "NUL inside", (text[: len(text) // 2] + "\0" + text[len(text) // 2 :]).encode()
    yield "blank lines", ("\n\n" + text + "\n\n").encode()
    for value in ODD:
        yield f"only {json.dumps(value)[:20]}", json.dumps(value).encode()
    yield "nested without end", b"[" * _DEEP
    yield "nested deep", b"[" * _DEEP + b"]" * _DEEP
    yield "objects nested deep", b'{"a":' * _DEEP + b"1" + b"}" * _DEEP
    yield "a number of 5,000 digits", b"9" * 5000
    yield "a list of NaN", b"[NaN, Infinity, -Infinity, 1e999]"
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict | list):
        for what, changed in changes(value):
            yield what, json.dumps(changed).encode()
        yield "key twice", (text.rstrip()[:-1] + ', "a": 1, "a": 2}').encode()
    elif suffix in (".jsonl", ".ndjson"):
        yield from _lines(text)
    elif suffix in (".yaml", ".yml"):
        import yaml

        for what, changed in changes(yaml.safe_load(text)):
            yield what, yaml.safe_dump(changed).encode()
        yield "YAML object", b"a: !!python/object/apply:os.system ['true']\n"
        yield "YAML laughs", _laughs()
        yield "YAML self", b"&a [*a]\n"
        yield "YAML date keys", b"2026-01-01: 2\n? [a, b]\n: 3\n"
    elif suffix in (".csv", ".tsv", ".data"):
        yield from _table(text, "\t" if suffix == ".tsv" else ",")


def _laughs() -> bytes:
    lines = ["a0: &a0 [x, x]"] + [f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, 40)]
    return "\n".join(lines).encode()


def _lines(text: str) -> Iterator[tuple[str, bytes]]:
    lines = [line for line in text.splitlines() if line.strip()]
    for value in (*ODD[:8], [1], {"a": 1}):
        yield f"line 1 is {json.dumps(value)[:20]}", "\n".join([json.dumps(value), *lines[1:]]).encode()
    yield "a line twice", "\n".join([*lines, lines[0]]).encode()
    yield "a line nested deep", ("\n".join(lines) + "\n" + "[" * _DEEP).encode()
    yield "a line of a huge number", ("\n".join(lines) + '\n{"a": ' + "9" * 5000 + "}").encode()
    rows = [json.loads(line) for line in lines]
    for at in sorted({0, len(rows) - 1}):
        for what, changed in changes(rows[at]):
            broken = [*rows[:at], changed, *rows[at + 1 :]]
            yield f"line {at + 1}: {what}", "\n".join(map(json.dumps, broken)).encode()


def changes(value: Any, limit: int = 400) -> Iterator[tuple[str, Any]]:
    """A parsed value with one field changed, removed or added, over its fields and what may stand there."""
    found = list(_places(value))
    rng = random.Random(3)
    made = [(place, odd) for place in found for odd in (..., *ODD)]
    if len(made) > limit:
        made = rng.sample(made, limit)
    for place, odd in made:
        if not place and odd is ...:
            continue
        what = "without" if odd is ... else f"{json.dumps(odd)[:20]} in"
        yield f"{what} {'.'.join(map(str, place)) or 'all'}", _changed(value, place, odd)


def _places(value: Any, place: tuple[Any, ...] = (), depth: int = 6) -> Iterator[tuple[Any, ...]]:
    yield place
    if not depth:
        return
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, one in inside:
        yield from _places(one, (*place, key), depth - 1)


def _changed(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1 and odd is ...:
        del copy[place[0]]
    else:
        copy[place[0]] = _changed(value[place[0]], place[1:], odd)
    return copy


def _table(text: str, separator: str) -> Iterator[tuple[str, bytes]]:
    lines = text.splitlines()
    rows = [line.split(separator) for line in lines]
    joined = lambda table: "\n".join(separator.join(row) for row in table).encode() + b"\n"  # noqa: E731
    yield "only the head", joined(rows[:1])
    yield "a short row", joined([*rows[:-1], rows[-1][:-1]])
    yield "a long row", joined([*rows, [*rows[-1], "9"]])
    yield "a quote left open", joined([*rows[:-1], ['"' + rows[-1][0], *rows[-1][1:]]])
    yield "a row twice", joined([*rows, rows[-1]])
    yield "a column twice", joined([[*row, row[0]] for row in rows])
    yield "a cell of 200,000 characters", joined([*rows[:-1], ["x" * 200_000, *rows[-1][1:]]])
    for column in range(min(len(rows[0]), 12)):
        yield f"without column {column}", joined([row[:column] + row[column + 1 :] for row in rows])
        for odd in ("", "x", "NaN", "inf", "-1", "1e999", "9" * 30, "9" * 5000, "\0", "é"):
            last = [*rows[-1]]
            if column < len(last):
                last[column] = odd
                yield f"{odd[:20]!r} in column {column}", joined([*rows[:-1], last])


def _zips(good: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(good)) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}

    def written(parts: dict[str, bytes], **options: Any) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", **options) as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
        return stream.getvalue()

    yield "zip of nothing", written({})
    for name, content in members.items():
        yield f"without {name}", written({k: v for k, v in members.items() if k != name})
        for what, broken in _members(name, content):
            yield f"{name}: {what}", written({**members, name: broken})
    yield "one more member", written({**members, "../outside.json": b"{}"})
    whole = bytearray(good)
    for mark in (b"PK\1\2",):
        at = whole.find(mark)
        if at > 0:
            encrypted = bytearray(good)
            encrypted[at + 8] |= 1
            yield "marked as encrypted", bytes(encrypted)
            unknown = bytearray(good)
            unknown[at + 10] = 99
            yield "unknown compression", bytes(unknown)


def _members(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "cut", content[: len(content) // 2]
    yield "random", random.Random(4).randbytes(64)
    if name.endswith(".npy"):
        yield from arrays()
    elif name.endswith(".json"):
        yield from ((what, one) for what, one in _contents(name, content))


def arrays() -> Iterator[tuple[str, bytes]]:
    """Contents of .npy files that are no matrix of numbers."""
    import numpy as np

    def saved(value: Any, objects: bool = False) -> bytes:
        stream = io.BytesIO()
        np.save(stream, value, allow_pickle=objects)
        return stream.getvalue()

    yield "objects", saved(np.array([{"a": 1}, None], dtype=object), True)
    yield "a scalar", saved(np.array(3.0))
    yield "nothing", saved(np.zeros((0, 0)))
    yield "texts", saved(np.array([["a", "b"]]))
    yield "NaN", saved(np.full((2, 2), np.nan))
    yield "complex", saved(np.ones((2, 2), complex))
    yield "four axes", saved(np.ones((1, 2, 1, 2)))
    yield "records", saved(np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]))
    yield "dates", saved(np.zeros((2, 2), dtype="M8[s]"))
    head = saved(np.ones((2, 2)))
    yield "a header that lies", head.replace(b"(2, 2)", b"(2, 9)")
    yield "a header of a petabyte", head.replace(b"(2, 2), }         ", b"(99999999, 99999999), }"[:18])
    yield "a header that calls", head.replace(b"'descr'", b"__imp__")


def tables(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Contents of Parquet files that lack a column, or hold another type, nulls or nothing."""
    import polars as pl

    frame = pl.read_parquet(io.BytesIO(good))

    def saved(one: pl.DataFrame) -> bytes:
        stream = io.BytesIO()
        one.write_parquet(stream)
        return stream.getvalue()

    yield "no rows", saved(frame.clear())
    yield "a row twice", saved(pl.concat([frame, frame]))
    for name in frame.columns:
        yield f"without {name}", saved(frame.drop(name))
        for odd in ("x", 1, 1.5, float("nan"), True, None, [1], {"a": 1}, b"\xff"):
            column = pl.Series(name, [odd] * frame.height)
            yield f"{odd!r} in {name}", saved(frame.with_columns(column))


def hdf5s(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Contents of HDF5 files that lack a data set, or hold a group, another type or a petabyte in its place."""
    import h5py
    import numpy as np

    def changed(name: str, act: Callable[[Any], Any]) -> bytes:
        stream = io.BytesIO(good)
        with h5py.File(stream, "r+") as file:
            del file[name]
            act(file)
        return stream.getvalue()

    shapes: dict[str, Any] = {}
    with h5py.File(io.BytesIO(good), "r") as file:
        file.visititems(lambda name, held: shapes.update({name: held.shape} if isinstance(held, h5py.Dataset) else {}))
    for name, shape in shapes.items():
        acts: list[tuple[str, Callable[[Any], Any]]] = [
            ("nothing", lambda file: None),
            ("a group", lambda file: file.create_group(name)),  # noqa: B023
            ("a petabyte", lambda file: file.create_dataset(name, (10**7, 10**7), "f8", chunks=(10, 10))),  # noqa: B023
        ]
        values = {
            "a link to nowhere": h5py.SoftLink("/nowhere"), "a scalar": 3.0, "an empty matrix": np.zeros((0, 0)),
            "a text": b"text", "texts": np.full(shape, b"x"), "NaN": np.full(shape, np.nan), "-1": np.full(shape, -1),
            "four axes": np.ones((1, 2, 1, 2)), "complex": np.ones(shape, complex),
            "records": np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]), "no value": h5py.Empty("f8"),
        }  # fmt: skip
        acts += [(what, lambda file, one=one: file.__setitem__(name, one)) for what, one in values.items()]  # noqa: B023
        for what, act in acts:
            yield f"{what} in {name}", changed(name, act)


def put(path: Path, content: bytes | None) -> None:
    """Replace a file; None = by a folder."""
    if path.is_dir():
        path.rmdir()
    elif path.exists():
        path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
