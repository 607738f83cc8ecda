"""Boxes by docker: a container with nothing in it but what bubblewrap would show, and the same server.

Docker's own filter of system calls forbids the namespaces that every run gets, so the container is started without it;
the server's filter, which every program gets, forbids more.
"""

from __future__ import annotations

import io
import secrets
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from .view import BOX, PACKAGES, USER, Packages, runner_command, view

IMAGE = "assay-box"
SOCKET = "/run/assay-socket"
_SECONDS = 30


@lru_cache(maxsize=1)
def problem() -> str:
    """Why docker cannot be used here, with what to do; "" if it can."""
    if sys.platform != "linux":
        return "boxes by docker need Linux, since open files are handed into them"
    if shutil.which("docker") is None:
        return "docker is not installed"
    try:
        done = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Os}}"], capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "docker does not answer: start its daemon"
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return f"docker has no daemon to talk to ({said}): start it, or add this user to the group docker"
    return ""


def image(links: tuple[tuple[str, str], ...]) -> None:
    """Make the image, once a daemon: empty folders and links; nothing is downloaded."""
    if not subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True).returncode:
        return
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("tmp", "proc", "dev", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for target, there in links:
            link = tarfile.TarInfo(there.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    subprocess.run(["docker", "import", "-", IMAGE], input=buffer.getvalue(), capture_output=True, check=True)


def command(socket_folder: str, library: Path | None, packages: Packages) -> tuple[list[str], list[str]]:
    """The command that starts a container, and the one that ends it whatever happens inside.

    ``socket_folder`` holds the socket ``control``, on which the server reports.
    """
    seen = view(library, packages[0])
    image(seen.links)
    name = f"assay-box-{secrets.token_hex(8)}"
    words = ["docker", "run", "--rm", "--name", name, "--network", "none", "--read-only", "--cap-drop", "ALL"]
    for option in ("no-new-privileges", "seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"):
        words += ["--security-opt", option]
    words += ["--user", f"{USER}:{USER}", "--ipc", "private", "--hostname", "box", "--workdir", "/"]
    for here, there in (*seen.shown, (socket_folder, SOCKET)):
        words += ["--volume", f"{here}:{there}:ro"]
    for folder in seen.hidden:
        words += ["--tmpfs", f"{folder}:ro,size=4k"]
    inside = f"{BOX}/keeper.so" if library is not None else None
    options = {"isolated": True, "become": None, "namespace": True, "paths": [PACKAGES], "modules": packages[1]}
    runner = runner_command(BOX, inside, path=f"{SOCKET}/control", **options)
    return [*words, "--entrypoint", runner[0], IMAGE, *runner[1:]], ["docker", "kill", name]
