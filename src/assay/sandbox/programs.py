"""Programs: made ready once, run many times."""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.cache import cache_folder
from assay.core.errors import UsageError

from .box import Job, sealed
from .limits import Limits, Result

if TYPE_CHECKING:
    from .pool import Sandbox

COMPILING = Limits(cpu_seconds=60, memory_mb=2048, file_mb=256, processes=32)
"""What a compiler may use: templates can make one run for ever."""
STANDARDS = ("c++11", "c++14", "c++17", "c++20", "c++23", "gnu++17", "gnu++20", "gnu++23")


class Program(ABC):
    """A program that is ready to be run.

    Attributes
    ----------
    status : str
        ``ok`` or ``compile error``; every run of a program that did not compile has that status too.
    text : str
        What the compiler said.
    """

    status: str
    text: str

    def run(self, stdin: bytes = b"", limits: Limits | None = None, args: Sequence[str] = ()) -> Result:
        """Run it as a script or executable on one input; ``args`` are its command line."""
        return self._failed() or self._box.do(self._job(stdin, args), limits, self._source())

    async def arun(self, stdin: bytes = b"", limits: Limits | None = None, args: Sequence[str] = ()) -> Result:
        """:meth:`run` without holding up the event loop; cancelling it ends the run."""
        return self._failed() or await self._box.ado(self._job(stdin, args), limits, self._source())

    def call(self, function: str, *args: Any, limits: Limits | None = None, **keywords: Any) -> Result:
        """Call one of its functions in a process of its own; arguments and ``Result.value`` go through JSON.

        The value is what the program says it is. So what judges a program is a program apart, which gets the other's
        output as data: no code of the one ever runs in a process of the other.
        """
        return self._failed() or self._box.do(self._call(function, args, keywords), limits, self._source())

    async def acall(self, function: str, *args: Any, limits: Limits | None = None, **keywords: Any) -> Result:
        """:meth:`call` without holding up the event loop."""
        return self._failed() or await self._box.ado(self._call(function, args, keywords), limits, self._source())

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self.status, self.text = "ok", ""

    def _failed(self) -> Result | None:
        if self.status == "ok":
            return None
        lines = self.text.strip().splitlines()
        return Result("compile error", lines[-1] if lines else "", stderr=self.text.encode())

    def _source(self) -> PythonProgram | None:
        return None

    @abstractmethod
    def _job(self, stdin: bytes, args: Sequence[str]) -> Job: ...

    def _call(self, function: str, args: Sequence[Any], keywords: dict[str, Any]) -> Job:
        raise UsageError(
            "Only functions of Python programs can be called in the sandbox; run a C++ program on an input."
        )


class PythonProgram(Program):
    """Python source; ``python`` of the sandbox makes it. Its interpreter is this one, without installed packages."""

    def __init__(self, box: Sandbox, source: str) -> None:
        super().__init__(box)
        self.source = source.encode("utf-8", "surrogatepass")
        self.key = hashlib.sha256(self.source).hexdigest()
        result = box.prepare(self)
        if result:
            self.status, self.text = "compile error", result

    def _source(self) -> PythonProgram:
        return self

    def _job(self, stdin: bytes, args: Sequence[str]) -> Job:
        return Job(argv=args, stdin=stdin)

    def _call(self, function: str, args: Sequence[Any], keywords: dict[str, Any]) -> Job:
        return Job(call=(function, args, keywords))


class CppProgram(Program):
    """C++ source; ``cpp`` of the sandbox makes it.

    Raises
    ------
    UsageError
        There is no g++ under /usr, or no such standard.
    """

    def __init__(self, box: Sandbox, source: str, std: str) -> None:
        super().__init__(box)
        if std not in STANDARDS:
            raise UsageError(f"There is no C++ standard {std!r} here; there are: {', '.join(STANDARDS)}.")
        options = ["-O2", f"-std={std}", "-w"]
        content = source.encode("utf-8", "surrogatepass")
        key = hashlib.sha256(repr((content, options, compiler())).encode()).hexdigest()
        path = cache_folder() / "sandbox" / key[:2] / key
        if path.is_file():
            binary = path.read_bytes()
        else:
            done = box.run(
                ["g++", *options, "main.cpp", "-o", "program"],
                files={"main.cpp": content}, limits=COMPILING, collect=["program"],
            )  # fmt: skip
            binary = done.files.get("program", b"")
            if done.status == "sandbox lost":
                raise_lost(done)
            if not done.ok or not binary:
                self.status = "compile error"
                self.text = done.stderr.decode(errors="replace") or done.reason
                return
            _keep(path, binary)
        self._binary = sealed("program", binary)
        weakref.finalize(self, os.close, self._binary)

    def _job(self, stdin: bytes, args: Sequence[str]) -> Job:
        return Job(argv=["program", *args], stdin=stdin, program=self._binary)


def raise_lost(result: Result) -> None:
    """A compiler that lost its box says nothing about the program: that is an error, to be tried again."""
    from .pool import SandboxError

    raise SandboxError(f"The compiler lost its sandbox: {result.reason}.")


@lru_cache(maxsize=1)
def compiler() -> str:
    """Path, size and time of the compiler: another one makes other programs.

    Raises
    ------
    UsageError
        There is none.
    """
    found = shutil.which("g++", path="/usr/bin:/usr/local/bin:/bin")
    if found is None:
        raise UsageError("C++ programs need g++, which is not installed: apt-get install g++ (Debian, Ubuntu).")
    real = os.path.realpath(found)
    about = os.stat(real)
    return f"{real} {about.st_size} {about.st_mtime_ns}"


def _keep(path: Path, binary: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.{id(binary):x}.new")
    new.write_bytes(binary)
    os.replace(new, path)
