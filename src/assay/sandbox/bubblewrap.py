"""Boxes by bubblewrap: new namespaces, a root folder of its own, no network."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from .inside.filter import supported
from .view import BOX, PACKAGES, USER, Packages, runner_command, view

INSTALL = "apt-get install bubblewrap (Debian, Ubuntu) or dnf install bubblewrap (Fedora)"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_STREAMS = (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1"), ("stderr", "self/fd/2"))


@lru_cache(maxsize=1)
def problem() -> str:
    """Why bubblewrap cannot be used here, with what to do; "" if it can."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, this is {platform.system()}: run assay in a Linux machine or container"
    if not supported(platform.machine()):
        return f"the sandbox knows the system calls of x86_64 and aarch64, not of {platform.machine()}"
    if shutil.which("bwrap") is None:
        return f"bubblewrap is not installed: {INSTALL}"
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


def command(control: int, library: Path | None, packages: Packages) -> list[str]:
    """The whole command line of a box.

    Parameters
    ----------
    control
        Number of an open socket that the box inherits.
    library
        The keeper in C; without it the one in Python is taken.
    packages
        As :func:`assay.sandbox.view.package_paths` gives them.
    """
    root = os.geteuid() == 0
    words = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--die-with-parent", "--new-session", "--hostname", "box", "--clearenv", "--cap-add", "ALL"]
    if not root:  # root's server becomes USER by itself: root's Python may lie where no other user can go
        words += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    seen = view(library, packages[0])
    for here, there in seen.shown:
        words += [*_folders(there), "--ro-bind", here, there]
    for target, there in seen.links:
        words += ["--symlink", target, there]
    for folder in seen.hidden:
        words += ["--tmpfs", folder, "--remount-ro", folder]
    words += ["--tmpfs", "/dev"]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in _STREAMS:
        words += ["--symlink", f"/proc/{target}", f"/dev/{name}"]
    words += ["--symlink", "/tmp", "/dev/shm", "--dir", "/tmp", "--proc", "/proc"]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]
    inside = f"{BOX}/keeper.so" if library is not None else None
    become = USER if root else None
    return words + runner_command(
        BOX, inside, socket=control, isolated=True, become=become, namespace=root, paths=[PACKAGES], modules=packages[1]
    )


def _folders(path: str) -> list[str]:
    """Words that make the folders above ``path`` such that everybody may enter; else they would be root's alone."""
    above = [str(folder) for folder in reversed(Path(path).parents[:-1])]
    return [word for folder in above for word in ("--perms", "0755", "--dir", folder)]
