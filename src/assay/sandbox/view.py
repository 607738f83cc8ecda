"""What a box shows of this machine: the system and an interpreter, read-only, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import platform
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

USER = 1_999_999_999
"""User id of boxes that root starts: no account has it, so it owns nothing."""
INSIDE = Path(__file__).resolve().parent / "inside"
BOX = "/run/assay-box"
"""Where a box finds what assay put there."""

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share")
_ETC = ("alternatives", "ld.so.cache", "localtime", "ssl/openssl.cnf")


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


def view(library: Path | None) -> View:
    """What is shown on this machine, with the keeper in C if there is one."""
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
    return View(tuple(shown), tuple(links), tuple(hidden))


def base_python() -> str:
    """The interpreter itself, past virtual environments and links."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


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
