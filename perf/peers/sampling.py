"""A profile by sampling: where the main thread is at every tick of processor time. Standard library only.

Unlike a tracing profiler it does not make small functions look dear. A tick is what the kernel grants: asked for is a
millisecond, given are often four.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

INTERVAL = 0.001
SHOWN = 45


@contextmanager
def sampled(out: Path) -> Iterator[None]:
    """Profile the block and write two lists to ``out``: lines by own time, functions by time with callees."""
    lines: Counter[str] = Counter()
    functions: Counter[str] = Counter()

    def look(_: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        lines[_place(frame, frame.f_lineno)] += 1
        inside: set[str] = set()
        at: FrameType | None = frame
        while at is not None:
            inside.add(_place(at, at.f_code.co_firstlineno))
            at = at.f_back
        functions.update(inside)

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    total = max(1, sum(lines.values()))
    text = [f"{total} samples of the main thread"]
    for title, counts in (("lines, own time", lines), ("functions, with what they call", functions)):
        text += ["", title, *(f"{n / total:7.1%}  {place}" for place, n in counts.most_common(SHOWN))]
    out.write_text("\n".join(text) + "\n")


def _place(frame: FrameType, line: int) -> str:
    path = Path(frame.f_code.co_filename).parts
    return f"{'/'.join(path[-3:])}:{line} {frame.f_code.co_qualname}"
