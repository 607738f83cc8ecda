"""Many systems on many data sets: ranks, Friedman, Nemenyi, Wilcoxon-Holm cliques, Borda.

Tables of scores have shape (data sets, methods). NaN is a failure: it shares the worst ranks of its data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError, UsageError
from assay.core.stats.paired import holm
from assay.core.stats.resampling import Array

NAN = float("nan")


def ranks(scores: ArrayLike, *, higher_is_better: bool = True) -> Array:
    """Rank of each method on each data set: 1 is best, ties share their average, failures share the worst."""
    from scipy.stats import rankdata

    x = _table(scores)
    worse = np.where(np.isnan(x), np.inf, -x if higher_is_better else x)
    return rankdata(worse, axis=1, method="average")


def average_ranks(scores: ArrayLike, *, higher_is_better: bool = True) -> Array:
    """Mean rank of each method over data sets."""
    return ranks(scores, higher_is_better=higher_is_better).mean(axis=0)


def borda(scores: ArrayLike, *, higher_is_better: bool = True) -> Array:
    """Borda points: how many methods each one beats, summed over data sets, ties counting half.

    A failure beats nothing and ties with other failures.
    """
    x = _table(scores)
    return (x.shape[1] - ranks(x, higher_is_better=higher_is_better)).sum(axis=0)


def family_ranks(
    scores: ArrayLike, families: Sequence[str], *, higher_is_better: bool = True
) -> tuple[list[str], Array]:
    """Families, sorted by name, and their ranks a data set when each enters with its best member there."""
    x = _table(scores)
    if len(families) != x.shape[1]:
        raise UsageError(f"There are {x.shape[1]} methods and {len(families)} family names.")
    names = sorted(set(families))
    worst = -np.inf if higher_is_better else np.inf
    filled = np.where(np.isnan(x), worst, x)
    pick = np.max if higher_is_better else np.min
    of = np.array(families)
    best = np.stack([pick(filled[:, of == name], axis=1) for name in names], axis=1)
    return names, ranks(np.where(np.isinf(best), NAN, best), higher_is_better=higher_is_better)


@dataclass(frozen=True, slots=True)
class Friedman:
    """Friedman's chi-square (corrected for ties) and Iman and Davenport's F, which is less conservative."""

    statistic: float
    p: float
    f: float
    f_p: float
    datasets: int
    methods: int


def friedman(scores: ArrayLike, *, higher_is_better: bool = True) -> Friedman:
    """Whether methods differ at all over data sets (Friedman 1937; Iman and Davenport 1980).

    NaN statistics where every data set ties all methods.
    """
    from scipy.special import chdtrc, fdtrc

    r = ranks(scores, higher_is_better=higher_is_better)
    n, k = r.shape
    if n < 2 or k < 2:
        raise DataError(f"Friedman's test needs at least 2 data sets and 2 methods; got {n} and {k}.")
    spread = float((r**2).sum()) - n * k * (k + 1) ** 2 / 4
    if spread <= 1e-12:
        return Friedman(NAN, NAN, NAN, NAN, n, k)
    between = float(((r.sum(axis=0) - n * (k + 1) / 2) ** 2).sum())
    chi = (k - 1) * between / spread
    left = n * (k - 1) - chi
    f = (n - 1) * chi / left if left > 1e-12 else float("inf")
    f_p = 0.0 if np.isinf(f) else float(fdtrc(k - 1, (n - 1) * (k - 1), f))
    return Friedman(chi, float(chdtrc(k - 1, chi)), f, f_p, n, k)


def nemenyi_distance(methods: int, datasets: int, *, alpha: float = 0.05) -> float:
    """Critical difference of average ranks at which two of ``methods`` differ (Nemenyi 1963; Demsar 2006)."""
    from scipy.stats import studentized_range

    if methods < 2 or datasets < 1:
        raise UsageError(f"A critical difference needs 2 methods and 1 data set; got {methods} and {datasets}.")
    q = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    return q * float(np.sqrt(methods * (methods + 1) / (6 * datasets)))


def wilcoxon_holm(scores: ArrayLike, *, higher_is_better: bool = True) -> Array:
    """Holm-adjusted p of Wilcoxon's signed-rank test for every pair, shape (methods, methods), 1 on the diagonal.

    A failure is below every value of its data set, by more than any two values differ. Benavoli et al. 2016.
    """
    from scipy.stats import wilcoxon

    x = _table(scores)
    x = x if higher_is_better else -x
    finite = x[np.isfinite(x)]
    gap = 1.0 + (float(np.ptp(finite)) if len(finite) else 0.0)
    low = (float(finite.min()) if len(finite) else 0.0) - gap
    x = np.where(np.isnan(x), low, x)
    k = x.shape[1]
    first, second = np.triu_indices(k, 1)
    p = np.ones(len(first))
    for at, (i, j) in enumerate(zip(first, second)):
        d = x[:, i] - x[:, j]
        if np.any(d != 0):
            found: Any = wilcoxon(d)
            p[at] = float(found.pvalue)
    table = np.ones((k, k))
    table[first, second] = table[second, first] = holm(p)
    return table


@dataclass(frozen=True, slots=True)
class CriticalDifference:
    """What a critical-difference diagram shows: ``names`` from best to worst average rank, and ``cliques`` of names
    that are not told apart (maximal runs of neighbours)."""

    names: tuple[str, ...]
    ranks: tuple[float, ...]
    cliques: tuple[tuple[str, ...], ...]
    friedman: Friedman
    distance: float | None
    method: str


def critical_difference(
    scores: ArrayLike, names: Sequence[str], *, higher_is_better: bool = True, alpha: float = 0.05,
    method: str = "wilcoxon-holm",
) -> CriticalDifference:  # fmt: skip
    """Average ranks with cliques after ``nemenyi`` or ``wilcoxon-holm``; where Friedman finds nothing, all are one.

    Parameters
    ----------
    scores
        Shape (data sets, methods); NaN is a failure and ranks worst.
    """
    x = _table(scores)
    if len(names) != x.shape[1]:
        raise UsageError(f"There are {x.shape[1]} methods and {len(names)} names.")
    mean = average_ranks(x, higher_is_better=higher_is_better)
    test = friedman(x, higher_is_better=higher_is_better)
    distance = None
    if method == "nemenyi":
        distance = nemenyi_distance(x.shape[1], x.shape[0], alpha=alpha)
        same = np.abs(np.subtract.outer(mean, mean)) < distance
    elif method == "wilcoxon-holm":
        same = wilcoxon_holm(x, higher_is_better=higher_is_better) >= alpha
    else:
        raise UsageError(f"The method of a critical-difference diagram is nemenyi or wilcoxon-holm; got {method!r}.")
    if not test.p < alpha:
        same = np.ones_like(same)
    order = np.argsort(mean, kind="stable")
    found = cliques(same[np.ix_(order, order)])
    ordered: tuple[str, ...] = tuple(str(names[i]) for i in order)
    return CriticalDifference(
        ordered,
        tuple(float(mean[i]) for i in order),
        tuple(ordered[a:b] for a, b in found),
        test,
        distance,
        method,
    )


def cliques(same: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Maximal runs [start, stop) of at least two neighbours in which every pair is the same."""
    runs: list[tuple[int, int]] = []
    for start in range(len(same)):
        stop = start + 1
        while stop < len(same) and bool(same[stop, start:stop].all()):
            stop += 1
        if stop - start > 1 and (not runs or stop > runs[-1][1]):
            runs.append((start, stop))
    return runs


def _table(scores: ArrayLike) -> Array:
    x = np.asarray(scores, float)
    if x.ndim != 2 or x.size == 0:
        raise DataError(f"Ranks need a table of shape (data sets, methods); got shape {x.shape}.")
    if np.any(np.isinf(x)):
        raise DataError("A score is infinite; write a failure as NaN.")
    return x
