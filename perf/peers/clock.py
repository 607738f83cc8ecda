"""What a contestant measures of itself, and how it tells. Standard library only."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MARK = "MEASURED "


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
