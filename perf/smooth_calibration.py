"""The exact smooth calibration error beside HiGHS (the same linear programme) and relplot's smECE, in one process.

Seconds are of CPU time: on a shared machine the clock on the wall measures the others. Every n is measured on a
calibrated and on a wrong predictor; each time is the best of several.

    python perf/smooth_calibration.py [--highs 10000] [--largest 1000000] [--readme]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

# One thread for every library, or the comparison is one of thread pools.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

import assay.learning.smooth_calibration as room  # noqa: E402
from assay.learning.smooth_calibration import smece, smooth_ce, smooth_ce_lp  # noqa: E402

README = Path(room.__file__).with_name("README.md")
BEGIN, END = "<!-- perf -->\n", "<!-- /perf -->\n"
AIM, LIMIT = 500.0, 0.5


def best_of(call: Callable[[], float], times: int) -> tuple[float, float]:
    """(CPU seconds, value): the fastest of several calls."""
    seconds, value = float("inf"), 0.0
    for _ in range(times):
        start = time.process_time()
        value = call()
        seconds = min(seconds, time.process_time() - start)
    return seconds, value


def made(n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions: drawn from the predictions, or from their squares."""
    rng = np.random.default_rng(n)
    p = rng.random(n)
    return (rng.random(n) < (p if kind == "calibrated" else p**2)).astype(float), p


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
    lines = ["| n | predictor | exact, CPU s | HiGHS, CPU s | ratio | relplot smECE, CPU s | ratio |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    missed = []
    for n in (1_000, 10_000, 100_000, 1_000_000):
        if n > given.largest:
            continue
        for kind in ("calibrated", "wrong"):
            y, p = made(n, kind)
            mine, value = best_of(lambda y=y, p=p: smooth_ce(y, p), given.times)
            theirs, _ = best_of(lambda y=y, p=p: smece(y, p), min(3, given.times))
            highs = ratio = "-"
            if n <= given.highs:
                solved, exact = best_of(lambda y=y, p=p: smooth_ce_lp(y, p), 1)
                highs, ratio = f"{solved:.3g}", f"{solved / mine:,.0f}"
                if abs(value - exact) > 1e-7:
                    missed.append(f"n = {n}, {kind}: {value!r} is not HiGHS's {exact!r}")
                if n == 10_000 and solved / mine < AIM:
                    missed.append(f"n = {n}, {kind}: {solved / mine:.0f} times HiGHS, below {AIM:.0f}")
            if n == 1_000_000 and mine >= LIMIT:
                missed.append(f"n = {n}, {kind}: {mine:.2f} s, above {LIMIT} s")
            if mine > theirs:
                missed.append(f"n = {n}, {kind}: slower than smECE ({mine:.3g} against {theirs:.3g} s)")
            lines.append(f"| {n:,} | {kind} | {mine:.3g} | {highs} | {ratio} | {theirs:.3g} | {theirs / mine:.1f} |")
            print(lines[-1], flush=True)
    y, p = made(given.largest, "calibrated")
    sorting, _ = best_of(lambda: float(np.argsort(p)[0]), given.times)
    note = (
        f"One argsort of {given.largest:,} doubles takes {sorting:.3f} CPU s here: the exact error needs one, and two "
        "sorts of values."
    )
    aims = "All aims met." if not missed else "Missed: " + "; ".join(missed) + "."
    text = "\n".join([*lines, "", note, aims]) + "\n"
    print("\n" + text)
    if given.readme:
        whole = README.read_text(encoding="utf-8")
        before, _, rest = whole.partition(BEGIN)
        _, _, after = rest.partition(END)
        README.write_text(before + BEGIN + text + END + after, encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
