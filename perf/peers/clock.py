"""What a contestant measures of itself, and how it tells. Standard library only."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MARK = "MEASURED "


def adopt() -> None:
    """Become the parent of all orphans below this process: bubblewrap leaves its sandbox to whoever is next."""
    if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0):  # PR_SET_CHILD_SUBREAPER
        raise OSError("PR_SET_CHILD_SUBREAPER")


def reap(seconds: float = 0.3) -> None:
    """Collect children that have ended or soon will, so that :func:`cpu_seconds` counts them."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.005)
        except ChildProcessError:
            return


def cpu_seconds() -> float:
    """User and system seconds of this process and of all its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@contextmanager
def phase(found: dict[str, Any], name: str) -> Iterator[None]:
    """Write CPU and wall seconds of the block to ``found[name]``."""
    cpu, begun = cpu_seconds(), time.perf_counter()
    yield
    found[name] = {"cpu": cpu_seconds() - cpu, "wall": time.perf_counter() - begun}


def tell(found: dict[str, Any]) -> None:
    """Print what was measured, for the script that started this process."""
    print(MARK + json.dumps(found), flush=True)
