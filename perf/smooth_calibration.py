"""The exact smooth calibration error beside HiGHS (the same linear programme) and relplot's smECE, in one process.

Ratios and aims are of CPU seconds, what a quiet core needs: on a shared machine the clock on the wall measures the
others. Seconds on the wall stand beside them and say how quiet it was. Every n is measured on a calibrated and on a
wrong predictor; each time is the best of several.

    python perf/smooth_calibration.py [--highs 10000] [--largest 1000000] [--readme]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# One thread for every library, or the comparison is one of thread pools.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import readme  # noqa: E402

import assay.learning.smooth_calibration as room  # noqa: E402
from assay.learning.smooth_calibration import (  # noqa: E402
    SmoothCalibrationStream,
    ece,
    post_processing_gap,
    smece,
    smooth_ce,
    smooth_ce_gradient,
    smooth_ce_logit,
    smooth_ce_lp,
)

README = Path(room.__file__).with_name("README.md")
DEFAULT = 1e-7
"""HiGHS's own feasibility tolerance."""
AIM, LIMIT = 500.0, 0.5


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds of a call, and its value."""

    wall: float
    cpu: float
    value: float


def best_of(call: Callable[[], float], times: int) -> Time:
    """Wall and CPU seconds of the call that took the least CPU of several."""
    found = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        value = call()
        found.append(Time(time.perf_counter() - wall, time.process_time() - cpu, value))
    return min(found, key=lambda one: one.cpu)


def made(n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions: drawn from the predictions, or from their squares."""
    rng = np.random.default_rng(n)
    p = rng.random(n)
    return (rng.random(n) < (p if kind == "calibrated" else p**2)).astype(float), p


def variants(y: np.ndarray, p: np.ndarray) -> list[str]:
    """Lines of a table: what else the room computes of many samples."""
    g, weight = np.log(p) - np.log1p(-p), 1.0 + np.arange(len(y)) % 3
    stream = SmoothCalibrationStream()
    calls: dict[str, Callable[[], float]] = {
        "`smooth_ce`, weights": lambda: smooth_ce(y, p, sample_weight=weight),
        "`smooth_ce`, witness": lambda: smooth_ce(y, p, return_witness=True)[0],
        "`smooth_ce_gradient`": lambda: smooth_ce_gradient(y, p)[0],
        "`smooth_ce_logit`": lambda: smooth_ce_logit(y, g),
        "`SmoothCalibrationStream`: update": lambda: float(stream.update(y, p) is None),
        "`SmoothCalibrationStream`: compute": stream.compute,
        "`post_processing_gap`": lambda: post_processing_gap(y, p),
        "`ece`, 15 bins": lambda: ece(y, p),
    }
    lines = ["| call | CPU s | on the wall |", "| --- | --- | --- |"]
    for name, call in calls.items():
        call()
        found = best_of(call, 3)
        lines.append(f"| {name} | {found.cpu:.3g} | {found.wall:.3g} |")
        print(lines[-1], flush=True)
    return lines


def main() -> int:
    """Print a table; exit code 1 if a value differs from HiGHS or an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--highs", type=int, default=10_000, help="largest n that HiGHS is given")
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--readme", action="store_true", help="write the table into the room's README")
    given = parser.parse_args()
    y, p = made(100, "wrong")
    # Compiling, importing and first pages are not what is compared.
    smooth_ce(y, p)
    smece(y, p)
    lines = ["| n | predictor | exact, CPU s | on the wall | HiGHS, CPU s | ratio | HiGHS at 1e-10, CPU s | ratio | "
             "relplot smECE, CPU s | ratio |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    missed = []
    for n in (1_000, 10_000, 100_000, 1_000_000):
        if n > given.largest:
            continue
        for kind in ("calibrated", "wrong"):
            y, p = made(n, kind)
            mine = best_of(lambda y=y, p=p: smooth_ce(y, p), given.times)
            theirs = best_of(lambda y=y, p=p: smece(y, p), given.times)
            highs = ratio = exact = exact_ratio = "-"
            if n <= given.highs:
                solved = best_of(lambda y=y, p=p: smooth_ce_lp(y, p, tolerance=DEFAULT), 1)
                highs, ratio = f"{solved.cpu:.3g}", f"{solved.cpu / mine.cpu:,.0f}"
                tight = best_of(lambda y=y, p=p: smooth_ce_lp(y, p), 1)
                exact, exact_ratio = f"{tight.cpu:.3g}", f"{tight.cpu / mine.cpu:,.0f}"
                if abs(mine.value - tight.value) > 1e-9:
                    missed.append(f"n = {n}, {kind}: {mine.value!r} is not HiGHS's {tight.value!r}")
                if n == 10_000 and solved.cpu / mine.cpu < AIM:
                    missed.append(f"n = {n}, {kind}: {solved.cpu / mine.cpu:.0f} times HiGHS, below {AIM:.0f}")
            if n == 1_000_000 and mine.cpu >= LIMIT:
                missed.append(f"n = {n}, {kind}: {mine.cpu:.2f} CPU s, above {LIMIT} s")
            if mine.cpu > theirs.cpu:
                missed.append(f"n = {n}, {kind}: slower than smECE ({mine.cpu:.3g} against {theirs.cpu:.3g} CPU s)")
            lines.append(
                f"| {n:,} | {kind} | {mine.cpu:.3g} | {mine.wall:.3g} | {highs} | {ratio} | {exact} | "
                f"{exact_ratio} | {theirs.cpu:.3g} | "
                f"{theirs.cpu / mine.cpu:.1f} |"
            )
            print(lines[-1], flush=True)
    y, p = made(given.largest, "calibrated")
    lines += ["", f"Other calls on a calibrated predictor, n = {given.largest:,}:", "", *variants(y, p)]
    sorting = best_of(lambda: float(np.argsort(p)[0]), given.times)
    load = os.getloadavg()[0]
    note = (
        f"One argsort of {given.largest:,} doubles takes {sorting.cpu:.3f} CPU s here: the exact error needs one, "
        f"and two sorts of values. Load of the machine at the end: {load:.1f} on {os.cpu_count()} cores."
    )
    aims = "All aims met." if not missed else "Missed: " + "; ".join(missed) + "."
    text = "\n".join([*lines, "", note, aims]) + "\n"
    print("\n" + text)
    if given.readme:
        readme.put(README, text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
