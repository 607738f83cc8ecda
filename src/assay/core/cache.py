"""Content cache on disk: the same function of the same content is computed once, across runs and processes."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import json
import os
import secrets
import struct
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError
from assay.core.files import CLOSED, FULL

if TYPE_CHECKING:
    from hashlib import blake2b

_CHUNK = 1 << 20


def cache_folder() -> Path:
    """Where caches go: ``$ASSAY_CACHE``, else assay's folder of the user's cache."""
    named = os.environ.get("ASSAY_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay"


def content_key(*parts: Any) -> str:
    """Hash of content: 40 hexadecimal digits, the same in every process and on every machine.

    Takes None, numbers, text, bytes, arrays, data frames, paths (by what the file or folder holds), dates, functions
    and classes (by name and source text), dataclasses, and mappings, sequences and sets of these. Types count: 1, 1.0,
    True and "1" differ; a list and a tuple do not.

    Raises
    ------
    UsageError
        A part of another type, or a path that does not exist.
    """
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        _feed(digest, part)
    return digest.hexdigest()


def _tag(digest: blake2b, kind: str, payload: bytes = b"") -> None:
    digest.update(f"{kind}:{len(payload)}:".encode())
    digest.update(payload)


def _feed(digest: blake2b, part: Any) -> None:
    match part:
        case None:
            _tag(digest, "none")
        case bool():
            _tag(digest, "bool", b"1" if part else b"0")
        case int():
            _tag(digest, "int", str(int(part)).encode())
        case float():
            _tag(digest, "float", struct.pack("<d", part))
        case str():
            _tag(digest, "str", part.encode("utf-8", "surrogatepass"))
        case bytes() | bytearray() | memoryview():
            _tag(digest, "bytes", bytes(part))
        case Path():
            _feed_path(digest, part)
        case Mapping():
            _tag(digest, "mapping", str(len(part)).encode())
            for key, value in sorted((content_key(key), value) for key, value in part.items()):
                digest.update(key.encode())
                _feed(digest, value)
        case Set():
            _tag(digest, "set", "".join(sorted(content_key(item) for item in part)).encode())
        case Sequence():
            _tag(digest, "sequence", str(len(part)).encode())
            for item in part:
                _feed(digest, item)
        case _:
            _feed_object(digest, part)


def _feed_object(digest: blake2b, part: Any) -> None:
    kind = type(part)
    module = kind.__module__.partition(".")[0]
    if module == "numpy":
        if getattr(part, "dtype", None) is not None and part.dtype.hasobject:
            raise UsageError("A cache key cannot hold an array of Python objects; use one of numbers or text.")
        _tag(digest, "array", f"{part.dtype.str}{part.shape}".encode())
        digest.update(part.tobytes())
    elif module == "polars" and kind.__name__ in ("DataFrame", "Series"):
        frame = part if kind.__name__ == "DataFrame" else part.to_frame()
        _tag(digest, kind.__name__, repr(frame.schema).encode())
        for column in frame.iter_columns():
            _feed(digest, column.to_list())
    elif module == "torch" and kind.__name__ in ("Tensor", "Parameter"):
        _feed(digest, part.detach().cpu().numpy())
    elif isinstance(part, type) or (callable(part) and hasattr(part, "__qualname__")):
        _tag(digest, "code", f"{part.__module__}.{part.__qualname__}:{code_version(part)}".encode())
    elif dataclasses.is_dataclass(part):
        _tag(digest, "dataclass", f"{kind.__module__}.{kind.__qualname__}".encode())
        for field in dataclasses.fields(part):
            _feed(digest, field.name)
            _feed(digest, getattr(part, field.name))
    elif hasattr(part, "isoformat"):
        _tag(digest, kind.__name__, part.isoformat().encode())
    else:
        raise UsageError(
            f"A cache key cannot hold a {kind.__module__}.{kind.__qualname__}; give its content as text, bytes, "
            "numbers, arrays or paths."
        )


def _feed_path(digest: blake2b, path: Path) -> None:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        _tag(digest, "folder", str(len(files)).encode())
        for file in files:
            _tag(digest, "name", file.relative_to(path).as_posix().encode())
            _feed_path(digest, file)
        return
    try:
        _tag(digest, "file", str(path.stat().st_size).encode())
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise UsageError(f"A cache key cannot hold the path {path}: {error.strerror}.") from error


@lru_cache(maxsize=1024)
def code_version(function: Any) -> str:
    """Hash of a function's or class's source text, else of its byte code: other code, other key.

    What it calls is not looked at; pass a version of your own among the key's parts where that matters.
    """
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = _code_bytes(code) if code is not None else repr(function).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _code_bytes(code: types.CodeType) -> bytes:
    constants = b"".join(
        _code_bytes(item) if isinstance(item, types.CodeType) else repr(item).encode() for item in code.co_consts
    )
    return code.co_code + constants + repr(code.co_names).encode()


class _Miss:
    """The cache holds nothing under this key."""


MISS = _Miss()


class ContentCache:
    """Values by content key in a folder, shared by any number of processes.

    A value is bytes, a NumPy array, a mapping of text to arrays, or anything JSON can say (tuples come back as lists).
    It is written whole or not at all, carries a checksum, and is no hit when it is damaged.

    Parameters
    ----------
    folder
        Made when the first value is put.
    max_bytes
        What the folder may hold: beyond it, values that were not used for longest go. Looked at now and then, so it can
        be passed by a little.
    """

    _MAGIC = b"assay1"
    _HEAD = len(_MAGIC) + 1 + 16
    _SWEEP_SIZE = 16 << 20
    _SWEEP_EVERY = 128

    def __init__(self, folder: Path, max_bytes: int = 20 << 30) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes

    def get_or(self, key_parts: Any, compute: Callable[[], Any]) -> Any:
        """The value under ``key_parts``, computed and kept if there is none.

        ``key_parts`` is a tuple or list of parts (see `content_key`), by custom the function that computes first. What
        comes back is the same whether it was computed now or before.
        """
        key = _key_of(key_parts)
        value = self.get(key)
        if value is not MISS:
            return value
        return self.put(key, compute())

    async def get_or_await(self, key_parts: Any, compute: Callable[[], Awaitable[Any]]) -> Any:
        """`get_or` for a function that has to be awaited."""
        key = _key_of(key_parts)
        value = self.get(key)
        if value is not MISS:
            return value
        return self.put(key, await compute())

    def path_of(self, key: str) -> Path:
        """File of a key, whether it exists or not."""
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> Any:
        """The value under a key of `content_key`; ``MISS`` when there is none or it is damaged."""
        path = self.path_of(key)
        try:
            blob = path.read_bytes()
        except OSError:
            return MISS
        payload = blob[self._HEAD :]
        if blob[: self._HEAD] != self._head(blob[len(self._MAGIC) : len(self._MAGIC) + 1], payload):
            path.unlink(missing_ok=True)
            return MISS
        # Evicted by another process meanwhile, or a read-only cache: the value is good all the same.
        with suppress(OSError):
            os.utime(path)
        return _decode(blob[len(self._MAGIC) : len(self._MAGIC) + 1], payload)

    def put(self, key: str, value: Any) -> Any:
        """Keep a value and return it as a later `get` will."""
        kind, payload = _encode(value)
        path = self.path_of(key)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(self._head(kind, payload) + payload)
            os.replace(draft, path)
        except OSError as error:
            # A disk that is full or closed makes the next look-up slow; the value at hand is as good as before.
            if error.errno not in FULL | CLOSED:
                raise
            return _decode(kind, payload)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        if len(payload) >= self._SWEEP_SIZE or secrets.randbelow(self._SWEEP_EVERY) == 0:
            self.evict(keep=path)
        return _decode(kind, payload)

    def evict(self, keep: Path | None = None) -> int:
        """Remove values until the folder is within its size, least recently used first; returns the bytes removed."""
        entries = []
        total = 0
        for shard in _folders(self.folder):
            for entry in _files(shard):
                try:
                    found = entry.stat()
                except OSError:
                    continue
                total += found.st_size
                entries.append((found.st_mtime_ns, found.st_size, Path(entry.path)))
        removed = 0
        for _, size, path in sorted(entries):
            if total - removed <= self.max_bytes:
                break
            if path != keep:
                path.unlink(missing_ok=True)
                removed += size
        return removed

    def _head(self, kind: bytes, payload: bytes) -> bytes:
        return self._MAGIC + kind + hashlib.blake2b(payload, digest_size=16, key=kind or b"?").digest()


def _key_of(parts: Any) -> str:
    return content_key(*parts) if isinstance(parts, (tuple, list)) else content_key(parts)


def _folders(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if len(entry.name) == 2 and entry.is_dir()]
    except OSError:
        return []


def _files(folder: os.DirEntry[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder.path) as entries:
            return list(entries)
    except OSError:
        return []


def _encode(value: Any) -> tuple[bytes, bytes]:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"b", bytes(value)
    if type(value).__module__.partition(".")[0] == "numpy":
        return b"n", _npy(value)
    if isinstance(value, Mapping) and value and all(type(v).__module__ == "numpy" for v in value.values()):
        parts = []
        for name, array in value.items():
            label, body = str(name).encode(), _npy(array)
            parts.append(struct.pack("<II", len(label), len(body)) + label + body)
        return b"m", b"".join(parts)
    try:
        return b"j", json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"The cache cannot keep a {type(value).__name__} ({error}); give bytes, an array, or what JSON can say."
        ) from error


def _npy(array: Any) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    try:
        np.save(stream, array, allow_pickle=False)
    except ValueError as error:
        raise UsageError("The cache cannot keep an array of Python objects; use one of numbers or text.") from error
    return stream.getvalue()


def _decode(kind: bytes, payload: bytes) -> Any:
    if kind == b"b":
        return payload
    if kind == b"j":
        return json.loads(payload.decode("utf-8", "surrogatepass"))
    import numpy as np

    if kind == b"n":
        return np.load(io.BytesIO(payload), allow_pickle=False)
    arrays = {}
    place = 0
    while place < len(payload):
        label, body = struct.unpack_from("<II", payload, place)
        place += 8
        name = payload[place : place + label].decode()
        arrays[name] = np.load(io.BytesIO(payload[place + label : place + label + body]), allow_pickle=False)
        place += label + body
    return arrays
