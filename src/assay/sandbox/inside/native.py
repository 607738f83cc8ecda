"""The keeper in C (keeper.c), where this machine has a compiler: the same as keeper.py, faster."""

from __future__ import annotations

import ctypes
import json
import os
import random

from . import KINDS, child, kernel

_PROGRAM, _OTHER = 1, 2


class _Message(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char), ("files", ctypes.c_uint8), ("unused", ctypes.c_uint8 * 6),
        ("cpu_seconds", ctypes.c_double), ("wall_seconds", ctypes.c_double),
        *[(name, ctypes.c_int64) for name in ("memory", "file", "processes", "neighbours", "stack")],
    ]  # fmt: skip


class _Run(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int32) for name in ("channel", "python", "cores", "filter_length")],
        ("filter", ctypes.c_char_p), ("source", ctypes.c_char_p), ("source_length", ctypes.c_int64),
        ("json", ctypes.c_void_p), ("json_length", ctypes.c_int64), ("limits", _Message),
        ("numbers", ctypes.c_int32 * len(KINDS)),
        *[(name, ctypes.c_int32) for name in ("heard", "told", "ended", "status", "why")],
        ("seconds", ctypes.c_double), ("cpu", ctypes.c_double), ("peak_kb", ctypes.c_int64),
        ("broken", ctypes.c_char * 160),
    ]  # fmt: skip


class Library:
    """The compiled keeper, loaded."""

    def __init__(self, path: str) -> None:
        library = ctypes.PyDLL(path, use_errno=True)
        self._serve, self._become = library.assay_serve, library.assay_become
        self._serve.argtypes = self._become.argtypes = [ctypes.POINTER(_Run)]
        self._become.restype = None

    def serve(self, channel: int, body: child.Body, *, forks: bool) -> bool:
        """Serve runs until there is a message that is none (True) or the outside has gone (False).

        With ``forks`` each run is a fork of this process that goes on with ``body``, and never comes back from here.
        """
        run = _Run(
            channel=channel, python=forks, cores=len(os.sched_getaffinity(0)),
            filter=kernel.CODE, filter_length=len(kernel.CODE) // 8,
            source=body.source, source_length=len(body.source or b""), limits=_Message(file=_FILES),
        )  # fmt: skip
        ended = self._serve(run)
        if ended == _PROGRAM:
            # The interpreter needs no PyOS_AfterFork_Child: this is still its one thread, and it holds every lock that
            # is held. What is to differ between runs is seen to by hand; it costs a fifth of the time.
            try:
                random.seed()
                body.ready()
                self._become(run)
                body(json.loads(ctypes.string_at(run.json, run.json_length)) if run.json_length else {})
            finally:
                os._exit(70)
        return ended == _OTHER


_FILES = 64 << 20
"""Bytes of the file system that is made before the first request says how many there are to be."""
