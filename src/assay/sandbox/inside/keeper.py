"""The keeper of one run: process 1 of its namespaces, trusted, and out of the program's reach."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import struct
import time
from contextlib import suppress
from typing import Any

from . import MAIN, WORK, child, kernel

SAMPLE = 0.02
"""Seconds between two looks at the memory of a run that has more than one process."""


def keep(files: dict[str, int], limits: dict[str, Any], tell: int, isolated: bool, body: child.Body) -> None:
    """Make the run's world, run the program in it, report.

    Parameters
    ----------
    files
        Open files by name: request, stdin, stdout, stderr, and as asked for value, collect, program.
    limits
        As :class:`assay.sandbox.Limits` has them, wall_seconds filled in.
    tell
        Pipe for the report: one JSON object.
    """
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 gets no signal that it does not handle
    request, blobs = _read_request(files["request"])
    place = WORK
    if isolated:
        kernel.private_mounts()
        kernel.mount(
            "tmpfs", "/tmp", kernel.NOSUID | kernel.NODEV, f"size={limits['file_mb']}m,mode=1777,nr_inodes=65536"
        )
        if os.path.isdir("/dev/shm") and not os.path.islink("/dev/shm"):  # docker's
            kernel.mount("tmpfs", "/dev/shm", kernel.NOSUID | kernel.NODEV, f"size={limits['file_mb']}m,mode=1777")
        kernel.mount_proc()
        os.mkdir(place)
    else:
        kernel.become_subreaper()
        import tempfile  # with what it needs, a fifth of all mappings that every fork would copy

        place = tempfile.mkdtemp(prefix="assay-unsafe-")
    try:
        kernel.drop_capabilities()
        _write_files(place, blobs)
        if body.source is not None:
            _write_files(place, [(MAIN, body.source)])
        os.chdir(place)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        begun = time.monotonic()
        program = os.fork()
        if program == 0:
            signal.signal(signal.SIGINT, interrupt)
            child.become(files, limits, isolated, request, body)
        for name in ("stdin", "stdout", "stderr", "value"):
            if name in files:
                os.close(files[name])
        report = _watch(program, begun, limits, isolated)
        if "collect" in files:
            _collect(files["collect"], place, request["collect"], limits["file_mb"] << 20)
    finally:
        if not isolated:
            import shutil

            shutil.rmtree(place, ignore_errors=True)
    os.write(tell, json.dumps(report).encode())


def _read_request(file: int) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """What is to be run, and the files that it wants to find; see ``Job.packed``."""
    with os.fdopen(file, "rb") as stream:

        def number(kind: str = "<I") -> int:
            return struct.unpack(kind, stream.read(struct.calcsize(kind)))[0]

        def text() -> str:
            found = stream.read(number())
            stream.read(1)
            return os.fsdecode(found)

        request = json.loads(stream.read(number()) or b"{}")
        blobs = [(text(), stream.read(number("<Q"))) for _ in range(number())]
        counts = [number() for _ in range(3)]
        for name, count in zip(("words", "environment", "collect"), counts, strict=True):
            request[name] = [text() for _ in range(count)]
    return request, blobs


def _write_files(place: str, blobs: list[tuple[str, bytes]]) -> None:
    for name, blob in blobs:
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(blob)


def _watch(program: int, begun: float, limits: dict[str, Any], isolated: bool) -> dict[str, Any]:
    """Wait for the program, collect orphans, hold the limits that the kernel does not; nothing lives afterwards."""
    report: dict[str, Any] = {"status": None, "why": ""}
    deadline, cpu_limit = begun + limits["wall_seconds"], limits["cpu_seconds"]
    cores = len(os.sched_getaffinity(0))
    next_look = begun + cpu_limit / cores
    next_sample = begun + SAMPLE
    while report["status"] is None and not report["why"]:
        now = time.monotonic()
        signal.sigtimedwait({signal.SIGCHLD}, max(0.0, min(deadline, next_look, next_sample) - now))
        while True:
            with suppress(ChildProcessError):
                ended, status, _ = os.wait4(-1, os.WNOHANG)
                if ended == program:
                    report["status"] = status
                if ended > 0:
                    continue
            break
        now = time.monotonic()
        if report["status"] is not None:
            break
        if now >= deadline:
            report["why"] = "wall"
        elif now >= next_look:
            left = cpu_limit - _cpu_seconds(isolated)
            report["why"] = "" if left > 0 else "cpu"
            next_look = now + max(0.005, left / cores)
        elif now >= next_sample:
            many = _others(isolated)
            if len(many) > limits["processes"] and not isolated:
                report["why"] = "processes"
            elif len(many) > 1 and _memory(many, isolated) > limits["memory_mb"] << 20:
                report["why"] = "memory"
            next_sample = now + (SAMPLE if len(many) > 1 else 5 * SAMPLE)
    ended_at = time.monotonic()
    _end_all(isolated)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report["peak_kb"] = used.ru_maxrss
    report["cpu_seconds"] = used.ru_utime + used.ru_stime
    report["seconds"] = ended_at - begun
    return report


def _others(isolated: bool) -> list[int]:
    """All processes of the run but the keeper."""
    if isolated:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    found, new = [], [os.getpid()]
    while new:
        with suppress(OSError), open(f"/proc/{(parent := new.pop())}/task/{parent}/children") as file:
            below = [int(word) for word in file.read().split()]
            found += below
            new += below
    return found


def _cpu_seconds(isolated: bool) -> float:
    """Processor time of all processes of the run, those that have ended too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    tick = os.sysconf("SC_CLK_TCK")
    for process in _others(isolated):
        with suppress(OSError):
            total += time.clock_gettime((~process << 3) | 2)  # CLOCK_PROCESS_CPUTIME_ID of another process
            with open(f"/proc/{process}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            total += (int(fields[13]) + int(fields[14])) / tick  # of its children that it waited for
    return total


def _memory(processes: list[int], isolated: bool) -> int:
    """Bytes that the processes hold, shared pages counted once, with what lies in the run's file system."""
    total = 0
    for process in processes:
        with suppress(OSError), open(f"/proc/{process}/smaps_rollup") as file:
            total += next((int(line.split()[1]) << 10 for line in file if line.startswith("Pss:")), 0)
    if isolated:
        disc = os.statvfs("/tmp")
        total += (disc.f_blocks - disc.f_bfree) * disc.f_frsize
    return total


def _end_all(isolated: bool) -> None:
    """Kill what is left of the run and wait for it."""
    while True:
        if isolated:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            for process in _others(isolated):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        try:
            os.wait4(-1, 0)
        except ChildProcessError:
            return


def _collect(file: int, place: str, names: list[str], most: int) -> None:
    """Send the files that were asked for: index, size, content of each that is a plain file."""
    with os.fdopen(file, "wb") as stream:
        for index, name in enumerate(names):
            with suppress(OSError):
                handle = os.open(os.path.join(place, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                with os.fdopen(handle, "rb") as found:
                    about = os.fstat(handle)
                    if stat.S_ISREG(about.st_mode) and about.st_size <= most:
                        most -= about.st_size
                        stream.write(struct.pack("<IQ", index, about.st_size) + found.read(about.st_size))
