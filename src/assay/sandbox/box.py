"""One box seen from outside: a running server, requests to it, and the exchange of one run."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import launch
from .inside import ENVIRONMENT, KINDS, packed
from .limits import Limits, Result
from .view import Packages

COMPILE_SECONDS = 20.0
GRACE = 5.0
"""Seconds past the wall limit (the server itself acts after two) at which a silent box is given up."""
PATIENCE = 0.005
"""Seconds in which a run may fill its pipes before they are read."""
_CHUNK = 1 << 16


class Lost(Exception):
    """The box is gone or talks nonsense."""


@dataclass(slots=True)
class Job:
    """What one run is made of. Content goes through open files that only the run itself reads."""

    argv: Sequence[str] = ()
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    call: tuple[str, Sequence[Any], Mapping[str, Any]] | None = None
    collect: Sequence[str] = ()
    program: int | None = None

    def packed(self) -> bytes:
        """The request as its keeper reads it: all lengths first, all words ended by a zero byte."""

        def word(text: str) -> bytes:
            data = os.fsencode(text)
            return struct.pack("<I", len(data)) + data + b"\0"

        about = {"argv": self.argv, "env": self.env, "call": self.call, "compiled": self.program is not None}
        text = json.dumps(about).encode() if any(about.values()) else b""  # the usual case is not worth the parsing
        parts = [struct.pack("<I", len(text)), text, struct.pack("<I", len(self.files))]
        for name, content in self.files.items():
            parts += [word(name), struct.pack("<Q", len(content)), content]
        environment = [f"{name}={value}" for name, value in {**ENVIRONMENT, **self.env}.items()]
        lists = (self.argv, environment, self.collect)
        parts.append(struct.pack("<III", *map(len, lists)))
        return b"".join([*parts, *[word(text) for words in lists for text in words]])


def sealed(name: str, content: bytes) -> int:
    """An open file in memory that nobody can change any more."""
    import fcntl

    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


class Box:
    """A sandbox that is up, in which one program runs at a time.

    Raises
    ------
    Lost
        It did not start.
    """

    def __init__(self, backend: str, packages: Packages = ((), ())) -> None:
        self.broken = False
        self.sources: dict[str, socket.socket] = {}
        try:
            self._started = launch.start(backend, packages)
        except OSError as problem:
            raise Lost(f"the sandbox did not start: {problem}") from None
        self._control = self._started.control
        try:
            self._kept: int = self._hear(self._control, launch.START_SECONDS)["kept"]
        except Lost:
            with contextlib.suppress(subprocess.TimeoutExpired):  # what it has to say comes last
                self._started.process.wait(5)
            said = self._started.said
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            self.close()
            raise Lost(f"the sandbox did not start: {lines[-1] if lines else 'it says nothing'}") from None

    def close(self) -> None:
        """End the server and everything in the box."""
        for channel in self.sources.values():
            channel.close()
        self.sources.clear()
        self._started.end()

    def alive(self) -> bool:
        """Whether the server still runs."""
        return self._started.process.poll() is None

    def source(self, key: str, source: bytes) -> str:
        """Have a Python program compiled in the box; the compiler's complaint, or ""."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        file = sealed("source", source)
        try:
            with theirs:
                self._tell(self._control, {"do": "source"}, [theirs.fileno(), file])
            answer = self._hear(ours, COMPILE_SECONDS)
        except Lost:
            ours.close()
            if not self.alive():
                raise
            return "Python died while it compiled the program"
        finally:
            os.close(file)
        if not answer["compiled"]:
            ours.close()
            return answer["text"]
        self.sources[key] = ours
        return ""

    def drop_source(self, key: str) -> None:
        """Let go of a compiled Python program."""
        self.sources.pop(key).close()

    def run(self, job: Job, limits: Limits, source: str | None = None, cancelled: int | None = None) -> Result:
        """One run, of a command or of a compiled source."""
        channel = self._control if source is None else self.sources[source]
        with contextlib.ExitStack() as stack:
            files: dict[str, int] = {}
            for name, content in (("request", job.packed()), ("stdin", job.stdin)):
                files[name] = sealed(name, content)
                stack.callback(os.close, files[name])
            drains: dict[int, _Drain] = {}
            kinds = ["stdout", "stderr"] + ["value"] * (job.call is not None) + ["collect"] * bool(job.collect)
            writers = []
            for kind in kinds:
                ours, files[kind] = os.pipe()
                writers.append(files[kind])
                most = limits.output_bytes if kind != "collect" else (limits.file_mb << 20) * len(job.collect) + _CHUNK
                drains[ours] = _Drain(kind, most)
                stack.callback(os.close, ours)
            if job.program is not None:
                files["program"] = job.program
            files["control"], stop = os.pipe()
            stack.callback(os.close, stop)
            writers.append(files["control"])
            message = packed(files, self._limits(limits))
            try:
                self._send(channel, message, [files[kind] for kind in KINDS if kind in files])
            finally:
                for file in writers:
                    os.close(file)
            report, over = self._exchange(channel, drains, limits, stop, cancelled)
        result = _result(report, over, {d.kind: b"".join(d.parts) for d in drains.values()}, job, limits)
        self.broken = result.status == "sandbox lost"
        return result

    def _limits(self, limits: Limits) -> dict[str, Any]:
        return {
            "cpu_seconds": limits.cpu_seconds, "wall_seconds": limits.wall, "memory_mb": limits.memory_mb,
            "file_mb": limits.file_mb, "processes": limits.processes, "stack_mb": limits.stack_mb,
            "neighbours": self._kept * len(self.sources) + 3,
        }  # fmt: skip

    def _exchange(
        self, channel: socket.socket, drains: dict[int, _Drain], limits: Limits, stop: int, cancelled: int | None
    ) -> tuple[dict[str, Any], str]:
        """Read what the program writes until all of it has ended and the server has reported."""
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        if cancelled is not None:
            poll.register(cancelled, select.POLLIN)
        open_files, report, over = set(drains), None, ""
        deadline = time.monotonic() + limits.wall + GRACE
        poll.poll(PATIENCE * 1000)  # most runs are over by then: what they wrote is taken at once, not in pieces
        for file in drains:
            poll.register(file, select.POLLIN)
        while report is None or open_files:
            events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not events:
                raise Lost("the sandbox did not answer")
            end = False
            for file, _ in events:
                if file == channel.fileno():
                    report = self._hear(channel, 0)
                    poll.unregister(channel)
                elif file == cancelled:
                    end, over = report is None, over or "cancelled"
                    poll.unregister(file)
                else:
                    ended, full = drains[file].read(file)
                    if ended:
                        poll.unregister(file)
                        open_files.discard(file)
                    if full and not over:
                        end, over = report is None, drains[file].kind
            if end:
                with contextlib.suppress(BrokenPipeError):  # it has just ended
                    os.write(stop, b"x")
        return report, over

    def _tell(self, channel: socket.socket, message: dict[str, Any], files: list[int]) -> None:
        self._send(channel, json.dumps(message).encode(), files)

    def _send(self, channel: socket.socket, message: bytes, files: list[int]) -> None:
        try:
            socket.send_fds(channel, [message], files)
        except OSError as problem:
            raise Lost(f"the sandbox is gone ({problem})") from None

    def _hear(self, channel: socket.socket, seconds: float) -> dict[str, Any]:
        try:
            if seconds and not select.select([channel], [], [], seconds)[0]:
                raise Lost("the sandbox did not answer")
            data = channel.recv(_CHUNK)
            answer = json.loads(data) if data else None
        except (OSError, ValueError) as problem:
            raise Lost(f"the sandbox is gone ({problem})") from None
        if not isinstance(answer, dict):
            raise Lost("the sandbox is gone")
        return answer


@dataclass(slots=True)
class _Drain:
    kind: str
    left: int
    parts: list[bytes] = field(default_factory=list)

    def read(self, file: int) -> tuple[bool, bool]:
        """Take what is there; whether it has ended, and whether there was more than permitted."""
        part = os.read(file, _CHUNK)
        if part and self.left:
            self.parts.append(part[: self.left])
        full = len(part) > self.left
        self.left = max(0, self.left - len(part))
        return not part, full


def _result(report: dict[str, Any], over: str, said: dict[str, bytes], job: Job, limits: Limits) -> Result:
    """The verdict, from what the server reported; nothing that the program wrote can better it."""
    status = report.get("status")
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    cpu, wall = float(report["cpu_seconds"]), float(report["seconds"])
    found: dict[str, Any] = {
        "exit_code": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "stdout": said["stdout"], "stderr": said["stderr"], "cpu_seconds": max(0.0, cpu), "wall_seconds": wall,
        "peak_memory_mb": report["peak_kb"] / 1024,
    }  # fmt: skip

    if job.collect and status is not None:
        found["files"] = _unpacked(said["collect"], job.collect)

    def ended(status: Any, reason: str) -> Result:
        return Result(status, reason, **found)

    if "broken" in report:
        return ended("sandbox lost", f"the sandbox could not start the run: {report['broken']}")
    if over == "cancelled":
        return ended("runtime error", "the run was cancelled")
    if over:
        what = {"stdout": "standard output", "stderr": "standard error", "value": "the value"}.get(over, over)
        return ended("output limit", f"{what} is longer than {limits.output_bytes:,} bytes")
    if report["killed"] == "stuck":
        return ended("sandbox lost", "the keeper of the run did not answer")
    why = report.get("why", "")
    if why == "wall":
        return ended("time limit", f"more than {limits.wall:g} s on the clock")
    if why == "cpu" or cpu > limits.cpu_seconds or code == -signal.SIGXCPU:
        return ended("time limit", f"more than {limits.cpu_seconds:g} s of processor time")
    if why == "memory":
        return ended("memory limit", f"more than {limits.memory_mb} MB of memory")
    if why == "processes":
        return ended("runtime error", f"more than {limits.processes} processes")
    if status is None:
        return ended("sandbox lost", "the keeper of the run was killed")
    if code == -signal.SIGXFSZ:
        return ended("output limit", f"a file larger than {limits.file_mb} MB")
    if code != 0:
        if _out_of_memory(code, found, limits):
            return ended("memory limit", f"more than {limits.memory_mb} MB of memory")
        how = f"exit code {code}" if code is not None and code > 0 else f"signal {signal.Signals(-(code or 0)).name}"
        return ended("runtime error", how)
    if job.call is not None:
        try:
            found["value"] = json.loads(said["value"])
        except ValueError:
            return ended("runtime error", f"{job.call[0]} ended without a value")
    return ended("ok", "")


def _out_of_memory(code: int | None, found: dict[str, Any], limits: Limits) -> bool:
    """Whether a program failed for want of memory, under rlimits: it said so, or was close when it was killed."""
    tail = found["stderr"][-4096:]
    last = tail.rstrip().rpartition(b"\n")[2]
    said = last.startswith(b"MemoryError") or (code == -signal.SIGABRT and b"std::bad_alloc" in tail)
    return said or (code in (-signal.SIGKILL, -signal.SIGSEGV) and found["peak_memory_mb"] > 0.95 * limits.memory_mb)


def _unpacked(data: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Files that came back: index, size, content of each."""
    files, at = {}, 0
    while at + 12 <= len(data):
        index, size = struct.unpack_from("<IQ", data, at)
        at += 12
        files[names[index]] = data[at : at + size]
        at += size
    return files
