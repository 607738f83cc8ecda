"""The sandbox that rooms use: boxes as they are needed, programs in them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

from assay.core.errors import AssayError, UsageError

from . import launch
from .box import Box, Job, Lost
from .limits import Limits, Result
from .programs import CppProgram, Program, PythonProgram
from .view import package_paths

SOURCES = 32
"""Compiled Python programs that one box keeps."""


class SandboxError(AssayError):
    """The sandbox cannot be started; a run that loses its box returns the status ``sandbox lost`` instead."""

    retryable = True


class Sandbox:
    """Runs code that nobody has read, apart from this machine and from every other run.

    Every run has its own process ids, its own file system in memory (gone at its end), no network, no capabilities, a
    filter on its system calls, and limits. Boxes are started as they are needed, at most ``boxes`` at a time; further
    callers wait. All methods may be called from many threads.

    Parameters
    ----------
    backend
        ``auto`` takes bubblewrap. ``unsafe``, which is never chosen for you, runs programs as plain processes of this
        user, with limits and the system call filter alone.
    limits
        For every run that brings none.
    boxes
        Most runs at a time; None: one a core.
    packages
        Installed distributions that Python programs may import (``numpy``), shown with what they need and imported
        before any program starts. None is shown unless it is named: a package may hold the answers.

    Raises
    ------
    UsageError
        Nothing isolates here; the sentence says what to install.

    Examples
    --------
    >>> with Sandbox() as box:
    ...     program = box.python("print(int(input()) * 2)")
    ...     program.run(b"21").stdout
    b'42\\n'
    """

    def __init__(
        self, backend: str = "auto", limits: Limits | None = None, boxes: int | None = None,
        packages: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.backend = launch.choose(backend)
        self.limits = limits or Limits()
        self._packages = package_paths(packages) if packages else ((), ())
        self._free: list[Box] = []
        self._most = boxes or len(os.sched_getaffinity(0))
        self._slots = threading.BoundedSemaphore(self._most)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._closed = False
        self._threads: ThreadPoolExecutor | None = None
        # bubblewrap dies with the thread that started it: one that lives as long as the last box.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")
        self._started = 0

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all boxes. One that is in use in another thread ends with its run."""
        with self._lock:
            self._closed, boxes, self._free = True, self._free, []
            threads, self._threads = self._threads, None
        for box in boxes:
            self._end(box)
        if threads is not None:
            threads.shutdown(wait=False)
        with self._lock:
            if not self._started:
                self._starter.shutdown(wait=False)

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None, env: Mapping[str, str] | None = None, collect: Sequence[str] = (),
    ) -> Result:  # fmt: skip
        """Run a command once.

        Parameters
        ----------
        argv
            Command and arguments, of what this machine has under /usr.
        files
            Contents by relative name, put into the working folder before the start.
        env
            Variables beside the few that every run has; none of this process's are there.
        collect
            Relative names of files to bring back, in ``Result.files``.
        """
        return self.do(_job(argv, stdin, files, env, collect), limits)

    async def arun(
        self, argv: Sequence[str], *, stdin: bytes = b"", files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None, env: Mapping[str, str] | None = None, collect: Sequence[str] = (),
    ) -> Result:  # fmt: skip
        """:meth:`run` without holding up the event loop; cancelling it ends the run."""
        return await self.ado(_job(argv, stdin, files, env, collect), limits)

    def python(self, source: str) -> Program:
        """A Python program: compiled once, forked for every run."""
        return PythonProgram(self, source)

    def cpp(self, source: str, std: str = "c++20") -> Program:
        """A C++ program: compiled once, kept by the hash of source, options and compiler."""
        return CppProgram(self, source, std)

    def prepare(self, source: PythonProgram) -> str:
        """Have a Python program compiled in some box; the complaint, or ""."""
        try:
            with self.box(source.key) as box:
                return self._compiled(box, source)
        except Lost as problem:
            raise SandboxError(f"The compiler lost its sandbox: {problem}.") from None

    def _compiled(self, box: Box, source: PythonProgram) -> str:
        if source.key in box.sources:
            return ""
        while len(box.sources) >= SOURCES:
            box.drop_source(next(iter(box.sources)))
        return box.source(source.key, source.source)

    def do(self, job: Job, limits: Limits | None = None, source: PythonProgram | None = None,
           cancelled: int | None = None) -> Result:  # fmt: skip
        """One run of a job, ended early when the open file ``cancelled`` becomes readable."""
        try:
            with self.box(source.key if source else None) as box:
                if source is not None and (complaint := self._compiled(box, source)):
                    return Result("compile error", complaint.strip().splitlines()[-1], stderr=complaint.encode())
                return box.run(job, limits or self.limits, source.key if source else None, cancelled)
        except Lost as problem:
            return Result("sandbox lost", str(problem))

    async def ado(self, job: Job, limits: Limits | None = None, source: PythonProgram | None = None) -> Result:
        """:meth:`do` in a thread of its own."""
        import asyncio

        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="sandbox")
        hear, tell = os.pipe()
        try:
            waiting = asyncio.get_running_loop().run_in_executor(self._threads, self.do, job, limits, source, hear)
            try:
                return await asyncio.shield(waiting)
            except asyncio.CancelledError:
                os.write(tell, b"x")
                await asyncio.wait([waiting])
                raise
        finally:
            os.close(hear)
            os.close(tell)

    @contextlib.contextmanager
    def box(self, prefer: str | None = None) -> Iterator[Box]:
        """A box for this thread alone; a box in which anything went wrong is not used again."""
        if self._closed:
            raise UsageError("The sandbox is closed; open another: with Sandbox() as box: ...")
        with self._slots:
            box = self._take(prefer)
            try:
                yield box
            except BaseException:
                self._end(box)
                raise
            self._give(box)

    def _take(self, prefer: str | None) -> Box:
        while True:
            with self._lock:
                if self._owner != os.getpid():  # forked: boxes and threads are our parent's
                    self._free, self._started, self._owner = [], 0, os.getpid()
                    self._threads, self._starter = None, ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")
                best = next((b for b in reversed(self._free) if prefer in b.sources), None)
                best = best or (self._free[-1] if self._free else None)
                if best is None:
                    starting = self._starter.submit(Box, self.backend, self._packages)
                    self._started += 1
                    break
                self._free.remove(best)
            if best.alive():
                return best
            self._end(best)
        try:
            return starting.result()
        except BaseException as problem:
            self._end(None)
            if isinstance(problem, Lost):
                raise SandboxError(f"{str(problem)[:1].upper()}{str(problem)[1:]}.") from None
            raise

    def _give(self, box: Box) -> None:
        with self._lock:
            if not self._closed and not box.broken:
                self._free.append(box)
                return
        self._end(box)

    def _end(self, box: Box | None) -> None:
        if box is not None:
            box.close()
        with self._lock:
            self._started -= 1
            if self._closed and not self._started:
                self._starter.shutdown(wait=False)


def _job(
    argv: Sequence[str], stdin: bytes, files: Mapping[str, bytes] | None, env: Mapping[str, str] | None,
    collect: Sequence[str],
) -> Job:  # fmt: skip
    """A job from what a caller gave.

    Raises
    ------
    UsageError
        No command, a word that is not text, or a file name that leaves the working folder.
    """
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
        raise UsageError(f"A sandbox runs a list of words, such as ['sort', '-n'], not {argv!r}.")
    if any("\0" in word for word in [*argv, *(env or {}), *(env or {}).values(), *(files or {}), *collect]):
        raise UsageError("Words, variables and file names for a sandbox hold no zero character.")
    for name in [*(files or {}), *collect]:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise UsageError(f"A sandbox file is named relative to the working folder and inside it, not {name!r}.")
    return Job(argv=argv, stdin=stdin, files=files or {}, env=env or {}, collect=collect)
