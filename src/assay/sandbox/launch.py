"""How a box is started: bubblewrap, docker, or nothing at all."""

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
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.core.cache import cache_folder
from assay.core.errors import UsageError

from .inside.filter import supported

USER = 1_999_999_999
"""User id of boxes that root starts: no account has it, so it owns nothing."""

_INSIDE = Path(__file__).resolve().parent / "inside"
_BOX = "/run/assay-box"
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share")
_ETC = ("alternatives", "ld.so.cache", "localtime", "ssl/openssl.cnf")
_INSTALL = "apt-get install bubblewrap (Debian, Ubuntu) or dnf install bubblewrap (Fedora)"


def base_python() -> str:
    """The interpreter itself, past virtual environments and links."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _installed_packages() -> list[Path]:
    """Folders of installed packages, which may hold answers: hidden from boxes."""
    places = [Path(sys.base_prefix), Path("/usr"), Path("/usr/local")]
    found = {p for place in places for p in place.glob("lib*/python3*/*-packages") if p.is_dir() and not p.is_symlink()}
    return sorted(found)


def runner_command(python: str, **options: Any) -> list[str]:
    """The command that starts the server; ``options`` are for :func:`assay.sandbox.inside.runner.main`."""
    folder = options.pop("folder", _BOX)
    start = f"import sys; sys.path.insert(0, {folder!r}); from inside.runner import main; main(sys.argv[1])"
    return [python, "-I", "-B", "-c", start, json.dumps(options)]


def bubblewrap_command(control: int, library: Path | None = None) -> list[str]:
    """The whole command line of a box.

    Parameters
    ----------
    control
        Number of an open socket that the box inherits.
    library
        The keeper in C; without it the one in Python is taken.
    """
    root = os.geteuid() == 0
    words = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--die-with-parent", "--new-session", "--hostname", "box", "--clearenv"]
    if root:  # the server itself becomes USER, inside: root's Python may lie where no other user can go
        words += ["--cap-add", "ALL"]
    else:
        words += ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-add", "ALL"]
    words += _folders("/usr", "/etc/ssl", _BOX)
    for name in _SYSTEM:
        words += ["--ro-bind-try", f"/usr/{name}", f"/usr/{name}"]
        top = Path("/", name)
        if top.is_symlink():
            words += ["--symlink", os.readlink(top), str(top)]
        elif name.startswith(("bin", "sbin", "lib")):
            words += ["--ro-bind-try", str(top), str(top)]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    shown = [f"/usr/{name}" for name in _SYSTEM]
    for folder in dict.fromkeys((os.path.dirname(base_python()), f"{sys.base_prefix}/lib")):
        if not _within(folder, shown):
            words += [*_folders(str(Path(folder).parent)), "--ro-bind", folder, folder]
            shown.append(folder)
    for folder in map(str, _installed_packages()):
        if _within(folder, shown):
            words += ["--tmpfs", folder, "--remount-ro", folder]
    words += ["--ro-bind", str(_INSIDE), f"{_BOX}/inside", "--tmpfs", "/dev"]
    if library is not None:
        words += ["--ro-bind", str(library), f"{_BOX}/keeper.so"]
    for name in ("null", "zero", "full", "random", "urandom"):
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1"), ("stderr", "self/fd/2")):
        words += ["--symlink", f"/proc/{target}", f"/dev/{name}"]
    words += ["--symlink", "/tmp", "/dev/shm", "--dir", "/tmp", "--proc", "/proc"]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    inside = f"{_BOX}/keeper.so" if library is not None else None
    user = USER if root else None
    return [*words, "--", *runner_command(base_python(), socket=control, isolated=True, user=user, library=inside)]


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _folders(*paths: str) -> list[str]:
    """Words that make folders which everybody may enter; those that bubblewrap makes by itself are root's alone."""
    every = dict.fromkeys(str(p) for path in paths for p in [*reversed(Path(path).parents[:-1]), Path(path)])
    return [word for path in every for word in ("--perms", "0755", "--dir", path)]


@lru_cache(maxsize=1)
def keeper_library() -> Path | None:
    """The keeper in C, compiled at first use and kept by the hash of its text; None without a C compiler."""
    compiler = shutil.which("gcc", path="/usr/bin:/usr/local/bin:/bin")
    if compiler is None or not hasattr(os, "pidfd_open"):
        return None
    text = (_INSIDE / "keeper.c").read_bytes()
    key = hashlib.sha256(repr((text, platform.machine(), platform.libc_ver())).encode()).hexdigest()
    path = cache_folder() / "sandbox" / f"keeper-{key[:32]}.so"
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new = Path(folder) / "keeper.so"
        command = [compiler, "-O2", "-shared", "-fPIC", str(_INSIDE / "keeper.c"), "-o", str(new)]
        if subprocess.run(command, capture_output=True).returncode:
            return None
        new.chmod(0o755)
        os.replace(new, path)
    return path


def unsafe_command(control: int) -> list[str]:
    """The server as a plain process of this user."""
    folder = str(_INSIDE.parent)
    return runner_command(base_python(), folder=folder, socket=control, isolated=False, user=None, library=None)


@lru_cache(maxsize=1)
def bubblewrap_problem() -> str:
    """Why bubblewrap cannot be used here, with what to do; "" if it can."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, this is {platform.system()}: run assay in a Linux machine or container"
    if not supported(platform.machine()):
        return f"the sandbox knows the system calls of x86_64 and aarch64, not of {platform.machine()}"
    if shutil.which("bwrap") is None:
        return f"bubblewrap is not installed: {_INSTALL}"
    test = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(test, capture_output=True, text=True, env={"PATH": os.environ.get("PATH", "")})
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return (
            f"bubblewrap is refused here ({said}): allow user namespaces (sysctl -w user.max_user_namespaces=15000; "
            "kernel.unprivileged_userns_clone=1 on Debian; kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; "
            "in a container, a seccomp profile that permits unshare and mount)"
        )
    return ""


def choose(backend: str) -> str:
    """The backend that ``backend`` means here.

    Raises
    ------
    UsageError
        Nothing isolates here, or the one that was asked for does not; the sentence says what to install.
    """
    problems = {"bubblewrap": bubblewrap_problem}
    if backend == "unsafe":
        if sys.platform != "linux" or not supported(platform.machine()):
            raise UsageError(f"The sandbox backend 'unsafe' needs Linux on x86_64 or aarch64; {bubblewrap_problem()}.")
        return backend
    if backend == "auto":
        found = {name: problem() for name, problem in problems.items()}
        working = [name for name, problem in found.items() if not problem]
        if working:
            return working[0]
        told = "; ".join(found.values())
        raise UsageError(
            f"assay runs no foreign code without isolation, and there is none here: {told}. "
            "Sandbox(backend='unsafe') does without, in a machine that you can throw away."
        )
    if backend not in problems:
        raise UsageError(f"There is no sandbox backend {backend!r}; there are: auto, {', '.join(problems)}, unsafe.")
    problem = problems[backend]()
    if problem:
        raise UsageError(f"The sandbox backend {backend!r} cannot be used: {problem}.")
    return backend


def describe() -> list[tuple[str, str, str]]:
    """What of the sandbox is there: (name, state, how to fix it; "" where nothing is to be fixed)."""
    rows = []
    problem = bubblewrap_problem()
    rows.append(("bubblewrap", "refused" if problem else "works", problem))
    found = shutil.which("g++", path="/usr/bin:/usr/local/bin:/bin")
    rows.append(("g++ (C++ programs)", found or "missing", "" if found else "apt-get install g++ (Debian, Ubuntu)"))
    return rows
