"""The last steps of a program's process before foreign code takes over, and how it ends."""

from __future__ import annotations

import atexit
import json
import math
import os
import resource
import signal
import sys
import threading
import types
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from . import ENVIRONMENT, MAIN, kernel

VALUE, PROGRAM = 3, 4
"""File numbers in the program: where a called function's value goes, and a compiled program to execute."""

_PRELOADED = (
    "abc", "array", "bisect", "collections", "contextlib", "copy", "enum", "functools", "heapq", "io", "itertools",
    "json", "math", "operator", "os", "random", "re", "string", "sys", "threading", "time", "typing",
)  # fmt: skip
_AS_NEEDED = (
    "ast", "cmath", "dataclasses", "datetime", "decimal", "fractions", "inspect", "linecache", "queue", "statistics",
    "textwrap", "traceback",
)  # fmt: skip
"""Modules that only programs which name them get beforehand: every fork copies the page tables of all that is there."""
_DYNAMIC = {"exec", "eval", "compile", "__import__", "import_module"}


class Body(Protocol):
    """What a confined process does: run Python that was compiled, or execute something."""

    source: bytes | None

    def ready(self) -> None:
        """Do in the new process what needs no request."""
        ...

    def __call__(self, request: dict[str, Any]) -> NoReturn: ...


def preload(paths: list[str], modules: list[str]) -> None:
    """Make the interpreter what programs find: what they import most is there, the server's path is not."""
    for name in _PRELOADED:
        __import__(name)
    sys.path[:] = [p for p in sys.path if p and os.path.basename(p) != "assay-box"]
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    sys.path += paths if modules else []
    for name in modules:
        __import__(name)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def become(
    files: dict[str, int], limits: dict[str, Any], isolated: bool, request: dict[str, Any], body: Body
) -> NoReturn:
    """Turn this process, just forked by its keeper, into the program."""
    try:
        _confine(files, limits, isolated)
    except BaseException as problem:
        os.write(2, f"the sandbox could not confine the program: {problem}\n".encode())
        os._exit(71)
    body.ready()
    body(request)


def _confine(files: dict[str, int], limits: dict[str, Any], isolated: bool) -> None:
    wanted = {0: "stdin", 1: "stdout", 2: "stderr", VALUE: "value", PROGRAM: "program"}
    # Out of the way first: a file's number may be one that another is about to get.
    high = {number: os.dup2(files[name], 100 + number) for number, name in wanted.items() if name in files}
    for number, file in high.items():
        os.dup2(file, number)
    for number in (VALUE, PROGRAM):
        if number not in high:
            with suppress(OSError):
                os.close(number)
    os.closerange(PROGRAM + 1, 1 << 16)
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    mega = 1 << 20
    cpu = math.ceil(limits["cpu_seconds"])
    # A core limit of 0 still starts the machine's crash handler, 1 does not (core(5)).
    bounds = {
        resource.RLIMIT_CORE: 1, resource.RLIMIT_CPU: cpu + 1, resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_FSIZE: limits["file_mb"] * mega, resource.RLIMIT_MSGQUEUE: 0, resource.RLIMIT_MEMLOCK: 64 << 10,
    }  # fmt: skip
    bounds[resource.RLIMIT_AS] = limits["memory_mb"] * mega
    if isolated:
        bounds[resource.RLIMIT_NPROC] = limits["processes"] + limits["neighbours"]
    if limits["stack_mb"]:
        bounds[resource.RLIMIT_STACK] = limits["stack_mb"] * mega
    for which, value in bounds.items():
        _, most = resource.getrlimit(which)
        value = value if most < 0 else min(value, most)
        resource.setrlimit(which, (value, value))
    kernel.filter_system_calls()
    kernel.set_dumpable(True)


def preload_for(code: types.CodeType) -> None:
    """Import what a program is going to import, if it is of the standard library and known to do nothing else.

    A program that executes text may import any of it.
    """
    names: set[str] = set()
    left = [code]
    while left:
        part = left.pop()
        names.update(part.co_names)
        left += [constant for constant in part.co_consts if isinstance(constant, types.CodeType)]
    for name in _AS_NEEDED if names & _DYNAMIC else names.intersection(_AS_NEEDED):
        __import__(name)


class Command:
    """Execute a command, or the compiled program that came as an open file."""

    source: bytes | None = None

    def ready(self) -> None:
        pass

    def __call__(self, request: dict[str, Any]) -> NoReturn:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, its children must not
            signal.signal(number, signal.SIG_DFL)
        argv, environment = request["words"], dict(pair.split("=", 1) for pair in request["environment"])
        try:
            if request.get("compiled"):
                os.execve(PROGRAM, argv, environment)
            os.closerange(VALUE, PROGRAM + 1)
            os.execvpe(argv[0], argv, environment)
        except OSError as problem:
            os.write(2, f"{argv[0]}: {problem.strerror}\n".encode())
        os._exit(127)


class Script:
    """Run compiled Python in this very process: as a script, or one function of it."""

    def __init__(self, code: types.CodeType, source: bytes) -> None:
        self.code = code
        self.source: bytes | None = source
        preload_for(code)
        _make_streams()

    def ready(self) -> None:
        sys.path.insert(0, os.getcwd())

    def __call__(self, request: dict[str, Any]) -> NoReturn:
        status = 1
        try:
            status = _python(self.code, request)
        except BaseException:  # what a program's own hooks raise at its end
            status = 1
        finally:
            os._exit(status)


def _make_streams() -> None:
    """Python's three streams over files 0 to 2, of the kinds that runs have: made once, inherited by every run."""
    kept = [os.dup(number) for number in range(3)]
    hear, tell = os.pipe()
    memory = os.memfd_create("stdin")
    for number, file in enumerate((memory, tell, tell)):
        os.dup2(file, number)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    for number, file in enumerate(kept):
        os.dup2(file, number)
    for file in (*kept, hear, tell, memory):
        os.close(file)


def _python(code: types.CodeType, request: dict[str, Any]) -> int:
    os.environ.update(request.get("env", {}))
    sys.argv[:] = [MAIN, *request.get("argv", ())]
    call = request.get("call")
    main = types.ModuleType("__main__" if call is None else "program")
    main.__dict__.update(__file__=MAIN, __builtins__=__builtins__)
    sys.modules[main.__name__] = main
    status = 0
    try:
        exec(code, main.__dict__)
        if call is not None:
            function, args, keywords = call
            found = getattr(main, function)(*args, **keywords)
            text = json.dumps(found).encode()
            with open(VALUE, "wb", closefd=False) as file:
                file.write(text)
    except SystemExit as end:
        status = _exit_status(end)
    except BaseException:
        _show_error()
        status = 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException:
        status = status or 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            status = status or 120  # what the interpreter itself exits with
    return status


def _exit_status(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _show_error() -> None:
    """The traceback as the interpreter prints it, without our own frames."""
    kind, error, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename != MAIN:
        trace = trace.tb_next
    assert kind is not None
    assert error is not None
    try:
        sys.excepthook(kind, error.with_traceback(trace), trace)
    except BaseException:
        os.write(2, kind.__name__.encode() + b"\n")
