"""How a box is started: by bubblewrap, by docker, or, by name only, without isolation."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from assay.core.errors import UsageError

from . import bubblewrap, docker
from .inside.filter import supported
from .view import INSIDE, Packages, keeper_library, runner_command

BACKENDS: dict[str, Callable[[], str]] = {
    "bubblewrap": lambda: bubblewrap.problem(),
    "docker": lambda: docker.problem(),
}
"""What isolates, in the order in which ``auto`` tries it, and what is wrong with it here."""
START_SECONDS = 60.0


@dataclass(slots=True)
class Started:
    """A server under way: the socket to it, the process that holds it, what it says, the command that ends it."""

    control: socket.socket
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    ending: list[str]

    def end(self) -> None:
        """Close the socket, at which the server leaves; if it does not, kill it."""
        self.control.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            if self.ending:
                subprocess.run(self.ending, capture_output=True)
            self.process.kill()
            self.process.wait()
        self.said.close()


def start(backend: str, packages: Packages) -> Started:
    """Start a server; it has not said yet whether it is ready.

    Raises
    ------
    OSError
        It did not even connect.
    """
    said = tempfile.TemporaryFile()  # noqa: SIM115  (closed by Started.end)
    if backend == "docker":
        return _start_docker(said, packages)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        if backend == "unsafe":
            command = runner_command(
                str(INSIDE.parent),
                None,
                socket=theirs.fileno(),
                isolated=False,
                become=None,
                namespace=False,
                paths=sorted({str(path.parent) for path in packages[0]}),
                modules=packages[1],
            )
        else:
            command = bubblewrap.command(theirs.fileno(), keeper_library(), packages)
        return Started(ours, _popen(command, said, theirs.fileno()), said, [])


def _start_docker(said: IO[bytes], packages: Packages) -> Started:
    with tempfile.TemporaryDirectory(prefix="assay-socket-") as folder, contextlib.ExitStack() as stack:
        os.chmod(folder, 0o755)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(f"{folder}/control")
        os.chmod(f"{folder}/control", 0o666)
        listener.listen(1)
        listener.settimeout(0.2)
        command, ending = docker.command(folder, keeper_library(), packages)
        process = _popen(command, said)
        for _ in range(int(START_SECONDS / 0.2)):
            with contextlib.suppress(TimeoutError):
                control = listener.accept()[0]
                # Nobody else will ever connect: the folder goes away with this block, before any program runs.
                return Started(control, process, said, ending)
            if process.poll() is not None:
                break
        subprocess.run(ending, capture_output=True)
        process.kill()
        process.wait()
        said.seek(0)
        raise OSError((said.read().decode(errors="replace").strip().splitlines() or ["docker says nothing"])[-1])


def _popen(command: list[str], said: IO[bytes], *files: int) -> subprocess.Popen[bytes]:
    """Start a server with no variable of this process but the search path and docker's own."""
    kept = {k: v for k, v in os.environ.items() if command[0] == "docker" and (k == "HOME" or k.startswith("DOCKER_"))}
    return subprocess.Popen(
        command, pass_fds=files, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/",
        env={"PATH": os.environ.get("PATH", os.defpath), **kept},
    )  # fmt: skip


def choose(backend: str) -> str:
    """The backend that ``backend`` means here.

    Raises
    ------
    UsageError
        Nothing isolates here, or the one that was asked for does not; the sentence says what to install.
    """
    if sys.platform != "linux" or not supported(platform.machine()):
        raise UsageError(
            f"The sandbox needs Linux on x86_64 or aarch64, this is {platform.system()} on {platform.machine()}: "
            "run assay in such a machine or container."
        )
    if backend == "unsafe":
        return backend
    if backend == "auto":
        found = {}
        for name, problem in BACKENDS.items():
            found[name] = problem()
            if not found[name]:
                return name
        raise UsageError(
            f"assay runs no foreign code without isolation, and there is none here: {'; '.join(found.values())}. "
            "Sandbox(backend='unsafe') does without, in a machine that you can throw away."
        )
    if backend not in BACKENDS:
        raise UsageError(f"There is no sandbox backend {backend!r}; there are: auto, {', '.join(BACKENDS)}, unsafe.")
    if told := BACKENDS[backend]():
        raise UsageError(f"The sandbox backend {backend!r} cannot be used: {told}.")
    return backend


def describe() -> list[tuple[str, str, str]]:
    """What of the sandbox is there: (name, state, how to fix it; "" where nothing is to be fixed)."""
    rows = []
    for name, problem in BACKENDS.items():
        told = problem()
        rows.append((name, "not usable" if told else "works", told))
    for name, package in (("g++", "C++ programs"), ("gcc", "the fast keeper")):
        found = shutil.which(name, path="/usr/bin:/usr/local/bin:/bin")
        rows.append((f"{name} ({package})", found or "missing", "" if found else f"apt-get install {name}"))
    return rows
