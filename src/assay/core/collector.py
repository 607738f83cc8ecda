"""The garbage collector while very many short-lived objects are made.

CPython looks through young objects after every 700 allocations. Planning makes objects by the hundred thousand and no
cycles; a running event loop makes dozens a trial and few cycles. Looking through them again and again costs a third of
the time of planning and a tenth of the time of asking.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

RELAXED = (50_000, 20, 20)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside: for work without cycles that ends within seconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def collector_relaxed() -> Iterator[None]:
    """Fewer collections inside: for an event loop that runs for hours.

    A threshold that somebody has already raised is left alone, so that runs side by side in threads neither fight
    over it nor leave it raised.
    """
    before = gc.get_threshold()
    if before[0] == 0 or before[0] >= RELAXED[0]:
        yield
        return
    gc.set_threshold(*RELAXED)
    try:
        yield
    finally:
        gc.set_threshold(*before)
