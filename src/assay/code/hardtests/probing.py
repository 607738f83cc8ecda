"""Growth of running time: does a suite tell n log n from n squared?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.core.errors import UsageError

if TYPE_CHECKING:
    from assay.sandbox import Sandbox

FLOOR = 0.004
"""Seconds of processor time that starting a process costs: below three times this, a time says nothing of growth."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Time ~ size ** exponent over the sizes that took longer than the start of a process.

    ``exponent`` is None where fewer than three sizes did.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    exponent: float | None
    timed_out_at: int | None

    @property
    def words(self) -> str:
        """``linear`` (n, n log n), ``quadratic``, ``cubic or worse``, ``below linear``, ``unknown``."""
        if self.exponent is None:
            return "unknown"
        for limit, name in ((0.7, "below linear"), (1.5, "linear"), (2.5, "quadratic")):
            if self.exponent < limit:
                return name
        return "cubic or worse"

    def seconds_at(self, size: int) -> float | None:
        """Expected time at another size, from the last size measured."""
        if self.exponent is None:
            return None
        return self.seconds[-1] * (size / self.sizes[-1]) ** self.exponent


def fit_exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Slope of log time over log size, by least squares; times near the cost of a process are left out."""
    import numpy as np

    kept = [(s, t - FLOOR) for s, t in zip(sizes, seconds) if t > 3 * FLOOR]
    if len({s for s, _ in kept}) < 3:
        return None
    x, y = np.log([s for s, _ in kept]), np.log([t for _, t in kept])
    return float(np.polyfit(x, y, 1)[0])


def probe(
    code: str,
    language: str,
    make: Callable[[int], str],
    sizes: Sequence[int],
    box: Sandbox,
    *,
    time_limit: float = 5.0,
    repeats: int = 3,
) -> Growth:
    """Run a program on inputs of growing size, until one passes the time limit.

    Parameters
    ----------
    make
        Input of a size.
    sizes
        Ascending; a factor of two apart serves well.
    repeats
        Runs of a size, the quickest of which counts: load makes a run slower, never quicker.
    """
    from assay.code.hardtests.verifying import compiled, run_once
    from assay.sandbox import Limits

    if list(sizes) != sorted(set(sizes)) or not sizes:
        raise UsageError(f"Sizes to probe must ascend, not {list(sizes)}.")
    program, limits = compiled(box, code, language), Limits(cpu_seconds=time_limit, memory_mb=2048)
    if program.status != "ok":
        raise UsageError(f"The program to probe does not compile: {program.text.strip()[:200]}")
    done: list[tuple[int, float]] = []
    late = None
    for size in sizes:
        given, times = make(size).encode(), []
        for _ in range(repeats):
            result = run_once(program, given, limits)
            if result.status == "time limit":
                break
            if not result.ok:
                raise UsageError(f"The program to probe failed at size {size}: {result.reason}.")
            times.append(result.cpu_seconds)
        if not times:
            late = size
            break
        done.append((size, min(times)))
    found = tuple(s for s, _ in done), tuple(t for _, t in done)
    return Growth(*found, fit_exponent(*found), late)


def separates(fast: Growth, slow: Growth, largest: int, time_limit: float) -> bool:
    """Whether inputs of the suite's largest size accept the fast program by time and reject the slow one.

    ``largest`` below what it takes is what the suite is to be warned of: it does not tell the two apart.
    """
    late = slow.timed_out_at is not None and slow.timed_out_at <= largest
    expected = slow.seconds_at(largest)
    quick = fast.seconds_at(largest)
    measured = max(fast.seconds, default=0.0)
    return (late or (expected is not None and expected > time_limit)) and (
        measured if quick is None else quick
    ) <= time_limit
