"""Archives from outside: unpacked within bounds, and never outside their folder."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from assay.core.datasets.readers import MAX_BYTES, guarded, reason
from assay.core.errors import DataError

_CHUNK = 1 << 20


def unpack(archive: Path | str, into: Path | str, *, max_bytes: int = 10 << 30, max_files: int = 100_000) -> list[Path]:
    """Unpack a zip or tar archive (``.gz``, ``.bz2``, ``.xz``); returns the files.

    Parameters
    ----------
    into
        Folder, made if need be.
    max_bytes, max_files
        Bounds on what comes out (folders count as files), counted while unpacking: what an archive says about itself is
        not believed.

    Raises
    ------
    DataError
        Damaged or encrypted; past a bound; or an entry that is a link, a device, or would lie outside ``into``.
    """
    import lzma
    import tarfile
    import zipfile
    import zlib

    archive, into = Path(archive), Path(into)
    into.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    total = 0
    try:
        for number, (name, stream) in enumerate(_entries(archive)):
            if number == max_files:
                raise DataError(f"{archive} holds more than {max_files} files and folders; nothing more is unpacked.")
            if stream is None:
                continue
            target = _target(archive, name, into)
            target.parent.mkdir(parents=True, exist_ok=True)
            with stream, target.open("wb") as out:
                while chunk := stream.read(_CHUNK):
                    total += len(chunk)
                    if total > max_bytes:
                        raise DataError(f"{archive} unpacks to more than {max_bytes} bytes; nothing more is unpacked.")
                    out.write(chunk)
            written.append(target)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, RuntimeError, ValueError, zlib.error,
            lzma.LZMAError) as error:  # fmt: skip
        raise DataError(f"{archive} cannot be unpacked: {reason(error)}.") from error
    return written


def check_zip(path: Path | str, *, max_bytes: int = MAX_BYTES, max_files: int = 10_000) -> None:
    """Refuse a zip (a .npz, a wheel) whose members unpack to more than is sane; unpacking never passes what they say.

    Raises
    ------
    DataError
        No zip, or past a bound.
    """
    import zipfile

    with guarded(path, "a zip archive"), zipfile.ZipFile(path) as packed:
        members = packed.infolist()
    if len(members) > max_files:
        raise DataError(f"{path} holds {len(members)} members; more than {max_files} are not read.")
    if (size := sum(member.file_size for member in members)) > max_bytes:
        raise DataError(f"{path} unpacks to {size:,} bytes; more than {max_bytes:,} are not read.")


def _entries(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Names with contents; a folder has none."""
    import tarfile
    import zipfile

    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                mode = info.external_attr >> 16
                if stat.S_ISLNK(mode):
                    raise DataError(f"{archive}: entry {info.filename!r} is a link, which is not unpacked.")
                yield info.filename, None if info.is_dir() else packed.open(info)
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isdir():
                yield member.name, None
                continue
            stream = packed.extractfile(member) if member.isfile() else None
            if stream is None:
                raise DataError(f"{archive}: entry {member.name!r} is a link or a device, which is not unpacked.")
            yield member.name, stream


def _target(archive: Path, name: str, into: Path) -> Path:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in name:
        raise DataError(f"{archive}: entry {name!r} would lie outside the folder; the archive is not trusted.")
    target = into.joinpath(*parts)
    # A folder inside may be a link that was there before.
    if not target.parent.resolve().is_relative_to(into.resolve()) or target.is_symlink():
        raise DataError(f"{archive}: entry {name!r} would lie outside the folder; the archive is not trusted.")
    return target
