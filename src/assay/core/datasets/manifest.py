"""The manifest of a folder that a recipe made: what made it, of what, and a hash of every file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.core.audit import Audit
from assay.core.datasets.readers import read_json, require
from assay.core.errors import DataError

MANIFEST = "manifest.json"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a recipe says about the folder it made.

    Attributes
    ----------
    recipe
        ``benchmark.recipe``.
    options
        What it was called with.
    parents
        Data it was made of, each with ``source`` and ``fingerprint``.
    files
        SHA-256 and bytes by relative path.
    counts
        Rows, by name.
    audit
        Filters in order (see `assay.core.audit`).
    """

    recipe: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parents: Sequence[Mapping[str, Any]] = ()
    seed: int | None = None
    kind: str = "generated"
    source: str = ""
    licence: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    audit: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fingerprint: str = ""
    created: str = ""
    assay: str = ""


def file_hash(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _listed(folder: Path) -> list[Path]:
    """Files that belong to the data: hidden ones (journals, locks) and the manifest do not."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.relative_to(folder).as_posix() != MANIFEST
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def write_manifest(
    folder: Path | str,
    *,
    recipe: str,
    options: Mapping[str, Any] | None = None,
    parents: Sequence[Mapping[str, Any]] = (),
    seed: int | None = None,
    kind: str = "generated",
    source: str = "",
    licence: str = "",
    counts: Mapping[str, int] | None = None,
    audit: Audit | None = None,
) -> Manifest:
    """Write ``manifest.json``, the last thing a recipe does: it hashes every file in the folder.

    Written whole or not at all, so that a folder with a manifest is a finished one.
    """
    from importlib.metadata import version

    folder = Path(folder)
    files = {
        path.relative_to(folder).as_posix(): {"sha256": file_hash(path), "bytes": path.stat().st_size}
        for path in _listed(folder)
    }
    if seed is None and isinstance((options or {}).get("seed"), int):
        seed = (options or {})["seed"]
    manifest = Manifest(
        recipe=recipe,
        options=dict(options or {}),
        parents=[dict(parent) for parent in parents],
        seed=seed,
        kind=kind,
        source=source or f"made by recipe {recipe}",
        licence=licence,
        counts=dict(counts or {}),
        audit=audit.counts() if audit is not None else [],
        files=files,
        fingerprint=_fingerprint(files),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        assay=version("assay"),
    )
    content = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}
    draft = folder / f".{MANIFEST}.{os.getpid()}"
    draft.write_text(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    os.replace(draft, folder / MANIFEST)
    return manifest


def _fingerprint(files: Mapping[str, Mapping[str, Any]]) -> str:
    text = "\n".join(f"{entry['sha256']} {name}" for name, entry in sorted(files.items()))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_manifest(folder: Path | str, *, verify: bool = False) -> Manifest:
    """The manifest of a folder.

    Parameters
    ----------
    verify
        Whether to hash every file again.

    Raises
    ------
    DataError
        There is none (the recipe did not finish), it is malformed, or with ``verify`` a file is missing, was changed or
        added.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} has no {MANIFEST}: it was not made by a recipe, or the recipe did not finish; make it again."
        )
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a JSON object.")
    require(content, "recipe", str, str(path))
    for name, entry in require(content, "files", dict, str(path)).items():
        if not isinstance(entry, dict):
            raise DataError(f"{path}: field 'files' has no object under {name!r}.")
        require(entry, "sha256", str, f"{path}, file {name!r}")
    manifest = Manifest(**{key: value for key, value in content.items() if key in Manifest.__dataclass_fields__})
    if verify:
        _verify(folder, manifest)
    return manifest


def _verify(folder: Path, manifest: Manifest) -> None:
    for name, entry in manifest.files.items():
        file = folder / name
        if not file.is_file():
            raise DataError(f"{folder}: file {name!r} of the manifest is missing; make the folder again.")
        if file_hash(file) != entry["sha256"]:
            raise DataError(
                f"{folder}: file {name!r} was changed since recipe {manifest.recipe} made it; make the folder again."
            )
    for path in _listed(folder):
        if path.relative_to(folder).as_posix() not in manifest.files:
            raise DataError(f"{folder}: file {path.name!r} is not in the manifest; move it elsewhere.")
