"""Run folders of a server: found by name, never by a path, and nothing outside them is read."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from assay.core.errors import DataError
from assay.core.files import is_locked

LARGEST_MANIFEST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run: its folder and its manifest, as they were when it was looked at."""

    path: Path
    info: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def status(self) -> str:
        """finished, interrupted, running; a run whose process is gone is interrupted, whatever its manifest says."""
        status = str(self.info.get("status", "interrupted"))
        return "interrupted" if status == "running" and not is_locked(self.path) else status

    def file(self, name: str) -> Path | None:
        """A plain file of the run; None where there is none, or where it lies outside the folder."""
        path = self.path / name
        try:
            inside = path.resolve(strict=True).is_relative_to(self.path.resolve())
            return path if inside and stat.S_ISREG(path.stat().st_mode) else None
        except (OSError, ValueError, RuntimeError):
            return None


class RunFolders:
    """The runs of one folder. Manifests are read again when their file changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, tuple[tuple[int, int, int], RunFolder]] = {}

    def all(self) -> list[RunFolder]:
        """Every run that can be read, newest first."""
        try:
            names = [p.name for p in self.root.iterdir()]
        except OSError:
            return []
        found = []
        for name in names:
            try:
                run = self.find(name)
            except DataError:
                continue
            if run is not None:
                found.append(run)
        self._known = {run.id: self._known[run.id] for run in found if run.id in self._known}
        return sorted(found, key=lambda run: str(run.info.get("created", "")), reverse=True)

    def find(self, name: str) -> RunFolder | None:
        """The run of that name; None where there is none.

        A name is the name of a folder right below the root: no separators, no hidden folders, no links.
        """
        if not name or name.startswith(".") or "/" in name or "\\" in name or "\0" in name or len(name) > 255:
            return None
        path = self.root / name
        manifest = path / "run.json"
        try:
            if not stat.S_ISDIR(path.lstat().st_mode):
                return None
            facts = manifest.lstat()
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_MANIFEST:
            return None
        mark = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        known = self._known.get(name)
        if known is not None and known[0] == mark:
            return known[1]
        try:
            info = msgspec.json.decode(manifest.read_bytes())
        except OSError:
            return None
        except (msgspec.MsgspecError, RecursionError):
            info = None
        if not isinstance(info, dict) or not _is_manifest(info):
            raise DataError(f"The run.json of {name} is no manifest of a run; restore it or delete the folder.")
        run = RunFolder(path, info)
        self._known[name] = (mark, run)
        return run


class _Manifest(msgspec.Struct):
    """What pages take from a manifest, by type: one that lies must not break the list of all runs."""

    benchmark: str
    tasks: dict[str, dict[str, Any]]
    system: str = ""
    title: str | None = None
    status: str = ""
    created: str = ""
    trials: int = 0
    done: int | None = None
    paid: float | None = None
    seconds: float | None = None
    statuses: dict[str, int] | None = None
    tags: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    host: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    git: dict[str, Any] | None = None
    parent: dict[str, Any] | None = None
    command: list[Any] | None = None
    groups: list[str] = []
    outcome_groups: list[str] = []
    scores: list[str] = []


def _is_manifest(info: Any) -> bool:
    try:
        msgspec.convert(info, _Manifest)
    except msgspec.ValidationError:
        return False
    return True
