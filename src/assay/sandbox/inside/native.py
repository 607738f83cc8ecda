"""The keeper in C (keeper.c), where this machine has a compiler: the same as keeper.py, faster."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
from typing import Any

from . import child, kernel

WHY = ("", "wall", "cpu", "memory")
_STOPPED, _GONE = 4, 5


class _Run(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int32) for name in (
            "stdin", "stdout", "stderr", "value", "collect", "program", "request", "channel", "python",
            "cores", "filter_length",
        )],
        ("cpu_seconds", ctypes.c_double), ("wall_seconds", ctypes.c_double),
        *[(name, ctypes.c_int64) for name in ("memory", "address_space", "file", "processes", "stack")],
        ("filter", ctypes.c_char_p), ("source", ctypes.c_char_p), ("source_length", ctypes.c_int64),
        *[(name, ctypes.c_int32) for name in ("ended", "status", "why", "keeper")],
        ("seconds", ctypes.c_double), ("cpu", ctypes.c_double), ("peak_kb", ctypes.c_int64),
        ("json", ctypes.c_void_p), ("json_length", ctypes.c_int64), ("broken", ctypes.c_char * 160),
    ]  # fmt: skip


class Library:
    """The compiled keeper, loaded."""

    def __init__(self, path: str) -> None:
        self._keep = ctypes.PyDLL(path, use_errno=True).assay_keep
        self._keep.argtypes = [ctypes.POINTER(_Run)]

    def run(self, files: dict[str, int], channel: int, limits: dict[str, Any], body: child.Body) -> dict[str, Any]:
        """One run, from its first process to its last; in the program's own process this does not return.

        ``killed`` of the report is "gone" when the outside went away meanwhile.
        """
        mega = 1 << 20
        run = _Run(
            **{name: files.get(name, -1) for name in ("stdin", "stdout", "stderr", "value", "collect", "program")},
            request=files["request"], channel=channel, python=body.forked,
            cores=len(os.sched_getaffinity(0)), filter_length=len(kernel.CODE) // 8, filter=kernel.CODE,
            cpu_seconds=limits["cpu_seconds"], wall_seconds=limits["wall_seconds"], memory=limits["memory_mb"] * mega,
            address_space=limits["memory_mb"] * mega if limits["address_space"] else 0, file=limits["file_mb"] * mega,
            processes=limits["processes"] + limits["neighbours"], stack=(limits["stack_mb"] or 0) * mega,
            source=body.source, source_length=len(body.source or b""),
        )  # fmt: skip
        began = self._keep(run)
        if began == 1:
            # The interpreter needs no PyOS_AfterFork_Child: this is still its one thread, and it holds every lock that
            # is held. What is to differ between runs is seen to by hand; it costs a fifth of the time.
            try:
                random.seed()
                text = ctypes.string_at(run.json, run.json_length) if run.json_length else b"{}"
                body(json.loads(text) if len(text) > 2 else {}, "value" in files)
            finally:
                os._exit(70)
        problem = os.strerror(ctypes.get_errno())
        killed = {_STOPPED: "stopped", _GONE: "gone"}.get(run.why, "")
        told = {
            "status": run.status if run.ended else None, "why": "" if killed else WHY[run.why], "killed": killed,
            "keeper": run.keeper, "seconds": run.seconds, "cpu_seconds": run.cpu, "peak_kb": run.peak_kb,
        }  # fmt: skip
        if began < 0 or run.broken:
            told["broken"] = run.broken.decode(errors="replace") or problem
        elif os.WIFSIGNALED(run.keeper):
            told.update(status=None, killed="stuck" if os.WTERMSIG(run.keeper) != signal.SIGKILL else killed)
        return told
