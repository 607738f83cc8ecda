"""Uploads become folders: the one place where an archive that a stranger sent is unpacked."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from assay.core.errors import DataError

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may come out of an archive."""

    bytes: int = 2 << 30
    files: int = 10_000


def is_archive(name: str) -> bool:
    """Whether a file of this name is unpacked before it is read."""
    return name.lower().endswith(ARCHIVES)


def open_upload(upload: Path, name: str, into: Path, bounds: Bounds = Bounds()) -> Path:
    """The submission behind an uploaded file: the file itself under its own name, or the folder that was packed.

    An archive that holds one folder and nothing else is that folder.

    Parameters
    ----------
    name
        Name that the submitter gave the file; only its last part is used.
    into
        New folder; it is empty again after an error.

    Raises
    ------
    DataError
        Damaged, past a bound, or holding a link, a device, or a name that leads outside. Paths of this machine are not
        in the sentence.
    """
    from assay.core.datasets import unpack

    safe = plain_name(name)
    into.mkdir(parents=True, exist_ok=True)
    if not is_archive(safe):
        target = into / safe
        shutil.copyfile(upload, target)
        return target
    folder = into / "unpacked"
    try:
        files = unpack(upload, folder, max_bytes=bounds.bytes, max_files=bounds.files)
    except DataError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(without_paths(str(error), {upload: safe, folder: safe})) from None
    if not files:
        raise DataError(f"{safe} holds no file; pack the predictions into it.")
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def plain_name(name: str) -> str:
    """Last part of a file name, harmless as the name of a file here; never empty."""
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(c if c.isalnum() or c in "._-+ " else "_" for c in last).strip(" .")[-120:]
    return kept or "submission"


def without_paths(text: str, names: dict[Path, str]) -> str:
    """``text`` with folders of this machine put back into the names that the submitter knows."""
    for path, name in sorted(names.items(), key=lambda item: -len(str(item[0]))):
        text = text.replace(str(path.resolve()), name).replace(str(path), name)
    return text
