"""What a box shows of this machine: the system and an interpreter, read-only, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.core.cache import cache_folder
from assay.core.errors import UsageError

USER = 1_999_999_999
"""User id of boxes that root starts: no account has it, so it owns nothing."""
INSIDE = Path(__file__).resolve().parent / "inside"
BOX = "/run/assay-box"
"""Where a box finds what assay put there."""

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share")
_ETC = ("alternatives", "ld.so.cache", "localtime", "ssl/openssl.cnf")


PACKAGES = f"{BOX}/packages"
Packages = tuple[Sequence[Path], Sequence[str]]
"""Entries of site-packages to show, and modules to import before any program starts."""


@dataclass(frozen=True, slots=True)
class View:
    """Paths of this machine by what becomes of them in a box.

    Attributes
    ----------
    shown
        Shown read-only: (path here, path there).
    links
        Symbolic links: (target, path there).
    hidden
        Folders below shown ones that appear empty: installed packages may hold answers.
    """

    shown: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]


def view(library: Path | None, packages: Sequence[Path] = ()) -> View:
    """What is shown on this machine, with the keeper in C if there is one and entries of site-packages."""
    shown, links = [], []
    for name in _SYSTEM:
        top = Path("/", name)
        if top.is_symlink():
            links.append((os.readlink(top), str(top)))
        elif top.is_dir():
            shown.append((str(top), str(top)))
        if Path("/usr", name).is_dir():
            shown.append((f"/usr/{name}", f"/usr/{name}"))
    shown += [(f"/etc/{name}", f"/etc/{name}") for name in _ETC if Path("/etc", name).exists()]
    for folder in dict.fromkeys((os.path.dirname(base_python()), f"{sys.base_prefix}/lib")):
        if not _within(folder, shown):
            shown.append((folder, folder))
    hidden = [str(folder) for folder in _installed_packages() if _within(str(folder), shown)]
    shown.append((str(INSIDE), f"{BOX}/inside"))
    if library is not None:
        shown.append((str(library), f"{BOX}/keeper.so"))
    shown += [(str(path), f"{PACKAGES}/{path.name}") for path in packages]
    return View(tuple(shown), tuple(links), tuple(hidden))


def base_python() -> str:
    """The interpreter itself, past virtual environments and links."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def package_paths(names: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Files and folders of installed distributions and of what they need, and the modules that were asked for.

    Raises
    ------
    UsageError
        One is not installed, or not copied into site-packages (an editable install).
    """
    from importlib import metadata

    paths: dict[Path, None] = {}
    modules: list[str] = []
    seen: set[str] = set()
    left = [(name, True) for name in names]
    while left:
        name, asked = left.pop(0)
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if asked:
                raise UsageError(f"The sandbox is to show the package {name!r}, which is not installed here.") from None
            continue  # an optional need
        tops = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
        own = [Path(str(found.locate_file(top))) for top in sorted(tops)]
        importable = [path.stem for path in own if path.suffix == ".py" or (path / "__init__.py").is_file()]
        if asked and not importable:
            raise UsageError(f"The sandbox can show no package {name!r}: its files are not in site-packages.")
        paths |= dict.fromkeys(own)
        modules += importable if asked else []
        for need in found.requires or ():
            if "extra ==" not in need:
                left.append((re.split(r"[^A-Za-z0-9._-]", need, maxsplit=1)[0], False))
    return [path for path in paths if path.exists()], modules


def runner_command(folder: str, library: str | None, **options: Any) -> list[str]:
    """The command that starts the server; see :func:`assay.sandbox.inside.runner.main` for the options."""
    start = f"import sys; sys.path.insert(0, {folder!r}); from inside.runner import main; main(sys.argv[1])"
    return [base_python(), "-I", "-B", "-c", start, json.dumps({"library": library, **options})]


def _installed_packages() -> list[Path]:
    places = [Path(sys.base_prefix), Path("/usr"), Path("/usr/local")]
    found = {p for place in places for p in place.glob("lib*/python3*/*-packages") if p.is_dir() and not p.is_symlink()}
    return sorted(found)


def _within(path: str, shown: Sequence[tuple[str, str]]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder, _ in shown)


@lru_cache(maxsize=1)
def keeper_library() -> Path | None:
    """The keeper in C, compiled at first use and kept by the hash of its text; None without a C compiler."""
    compiler = shutil.which("gcc", path="/usr/bin:/usr/local/bin:/bin")
    if compiler is None or not hasattr(os, "pidfd_open"):
        return None
    text = (INSIDE / "keeper.c").read_bytes()
    key = hashlib.sha256(repr((text, platform.machine(), platform.libc_ver())).encode()).hexdigest()
    path = cache_folder() / "sandbox" / f"keeper-{key[:32]}.so"
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new = Path(folder) / "keeper.so"
        command = [compiler, "-O2", "-shared", "-fPIC", str(INSIDE / "keeper.c"), "-o", str(new)]
        if subprocess.run(command, capture_output=True).returncode:
            return None
        new.chmod(0o755)
        os.replace(new, path)
    return path
