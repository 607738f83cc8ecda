"""The last steps of a program's process before foreign code takes over, and how it ends."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from . import kernel

WORK = "/tmp/work"
MAIN = "main.py"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "USER": "box",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip

VALUE, PROGRAM = 3, 4
"""File numbers in the program: where a called function's value goes, and a compiled program to execute."""

Body = Callable[[dict[str, Any], bool], NoReturn]

_PRELOADED = (
    "abc", "array", "bisect", "cmath", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal",
    "enum", "fractions", "functools", "heapq", "io", "itertools", "json", "math", "operator", "os", "queue",
    "random", "re", "statistics", "string", "sys", "textwrap", "threading", "time", "traceback", "typing",
)  # fmt: skip


def preload() -> None:
    """Import what programs import most, once; leave no trace of the server on the search path."""
    for name in _PRELOADED:
        __import__(name)
    import _sitebuiltins  # noqa: F401  (exit and quit, which site made)

    sys.path[:] = [p for p in sys.path if p and os.path.basename(p) != "assay-box"]


def become(
    files: dict[str, int], limits: dict[str, Any], isolated: bool, request: dict[str, Any], body: Body
) -> NoReturn:
    """Turn this process, just forked by its keeper, into the program."""
    try:
        _confine(files, limits, isolated)
    except BaseException as problem:
        os.write(2, f"the sandbox could not confine the program: {problem}\n".encode())
        os._exit(71)
    body(request, "value" in files)


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
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    mega = 1 << 20
    cpu = math.ceil(limits["cpu_seconds"])
    # A core limit of 0 still starts the machine's crash handler, 1 does not (core(5)).
    bounds = {
        resource.RLIMIT_CORE: 1, resource.RLIMIT_CPU: cpu + 1, resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_FSIZE: limits["file_mb"] * mega, resource.RLIMIT_MSGQUEUE: 0, resource.RLIMIT_MEMLOCK: 64 << 10,
    }  # fmt: skip
    if limits["address_space"]:
        bounds[resource.RLIMIT_AS] = limits["memory_mb"] * mega
    if isolated:
        bounds[resource.RLIMIT_NPROC] = limits["processes"] + limits["neighbours"]
    if limits["stack_mb"]:
        bounds[resource.RLIMIT_STACK] = limits["stack_mb"] * mega
    for which, value in bounds.items():
        resource.setrlimit(which, (value, value))
    kernel.filter_system_calls()
    kernel.set_dumpable(True)


def command_body(request: dict[str, Any], _value: bool) -> NoReturn:
    """Execute a command, or the compiled program that came as an open file."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, its children must not
        signal.signal(number, signal.SIG_DFL)
    argv, environment = request["argv"], {**ENVIRONMENT, **request["env"]}
    try:
        if request["compiled"]:
            os.execve(PROGRAM, argv, environment)
        os.closerange(VALUE, PROGRAM + 1)
        os.execvpe(argv[0], argv, environment)
    except OSError as problem:
        os.write(2, f"{argv[0]}: {problem.strerror}\n".encode())
    os._exit(127)


def python_body(code: types.CodeType, source: bytes) -> Body:
    """Run compiled Python in this very process: as a script, or one function of it."""

    def body(request: dict[str, Any], value: bool) -> NoReturn:
        status = 1
        try:
            status = _python(code, source, request, value)
        except BaseException:  # what a program's own hooks raise at its end
            status = 1
        finally:
            os._exit(status)

    return body


def _python(code: types.CodeType, source: bytes, request: dict[str, Any], value: bool) -> int:
    import atexit
    import threading

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update({**ENVIRONMENT, **request["env"]})
    with suppress(OSError), open(MAIN, "wb") as file:  # tracebacks and inspect read it
        file.write(source)
    sys.path.insert(0, os.getcwd())
    sys.argv[:] = [MAIN, *request["argv"]]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    main = types.ModuleType("__main__" if request["call"] is None else "program")
    main.__dict__.update(__file__=MAIN, __builtins__=__builtins__)
    sys.modules[main.__name__] = main
    status = 0
    try:
        exec(code, main.__dict__)
        if request["call"] is not None:
            function, args, keywords = request["call"]
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
