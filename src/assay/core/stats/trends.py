"""Ordered alternatives and robust aggregates: Jonckheere-Terpstra, Cochran-Armitage, Page, interquartile mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from assay.core.errors import DataError, UsageError
from assay.core.stats.resampling import Array, Codes

Alternative = Literal["two-sided", "increasing", "decreasing"]
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Trend:
    """A trend test: its statistic, standard normal ``z`` (NaN for exact tests) and p."""

    statistic: float
    z: float
    p: float
    method: str


def jonckheere(
    groups: Sequence[ArrayLike], *, alternative: Alternative = "two-sided", resamples: int = 0,
    rng: np.random.Generator | None = None,
) -> Trend:  # fmt: skip
    """Jonckheere-Terpstra test that values rise (or fall) over ordered independent groups.

    Normal approximation with the variance for ties (Hollander and Wolfe 1999, 6.2); ``resamples`` > 0 permutes group
    labels with ``rng`` instead. The statistic counts pairs in order, ties half.
    """
    parts = [np.asarray(g, float).ravel() for g in groups]
    if len(parts) < 2 or any(len(g) == 0 for g in parts):
        raise DataError("A Jonckheere test needs at least two groups with values in each.")
    x = np.concatenate(parts)
    if not np.all(np.isfinite(x)):
        raise DataError("A Jonckheere test needs finite values.")
    label = np.repeat(np.arange(len(parts)), [len(g) for g in parts])
    j = _ordered_pairs(x, label)
    n, sizes = len(x), np.array([len(g) for g in parts], float)
    ties = np.unique(x, return_counts=True)[1].astype(float)
    mean = (n**2 - float((sizes**2).sum())) / 4
    if resamples:
        if rng is None:
            raise UsageError("A permuted Jonckheere test needs rng=, a numpy Generator.")
        drawn = np.array([_ordered_pairs(x, rng.permutation(label)) for _ in range(resamples)])
        p = _permutation_p(drawn - mean, j - mean, alternative)
        return Trend(j, NAN, p, "permutation")

    def a(v: Array | float) -> float:
        v = np.asarray(v)
        return float(np.sum(v * (v - 1) * (2 * v + 5)))

    def b(v: Array) -> float:
        return float(np.sum(v * (v - 1) * (v - 2)))

    def c(v: Array) -> float:
        return float(np.sum(v * (v - 1)))

    variance = (a(float(n)) - a(sizes) - a(ties)) / 72 + c(sizes) * c(ties) / (8 * n * (n - 1))
    if n > 2:
        variance += b(sizes) * b(ties) / (36 * n * (n - 1) * (n - 2))
    if variance <= 0:
        return Trend(j, 0.0, 1.0, "normal")
    z = (j - mean) / float(np.sqrt(variance))
    return Trend(j, z, _normal_p(z, alternative), "normal")


def cochran_armitage(
    successes: ArrayLike, totals: ArrayLike, *, scores: ArrayLike | None = None, alternative: Alternative = "two-sided"
) -> Trend:
    """Cochran-Armitage test that a proportion rises (or falls) over ordered groups (Armitage 1955).

    ``scores`` places the groups (default 0, 1, 2 ...); the statistic is the score-weighted excess of successes.
    """
    c, n = np.asarray(successes, float), np.asarray(totals, float)
    t = np.arange(len(c), dtype=float) if scores is None else np.asarray(scores, float)
    if not c.shape == n.shape == t.shape or c.ndim != 1 or len(c) < 2:
        raise DataError("A Cochran-Armitage test needs successes, totals and scores of at least two groups.")
    if np.any((c < 0) | (c > n) | (n <= 0)):
        raise DataError("A Cochran-Armitage test needs 0 <= successes <= totals and totals above 0.")
    p = c.sum() / n.sum()
    statistic = float((t * (c - n * p)).sum())
    variance = float(p * (1 - p) * ((n * t**2).sum() - (n * t).sum() ** 2 / n.sum()))
    if variance <= 0:
        return Trend(statistic, 0.0, 1.0, "normal")
    z = statistic / float(np.sqrt(variance))
    return Trend(statistic, z, _normal_p(z, alternative), "normal")


def page(table: ArrayLike, *, alternative: Alternative = "increasing", exact: bool | None = None) -> Trend:
    """Page's test that conditions, in the order of the columns, raise (or lower) scores within rows (Page 1963).

    Exact for small tables without ties unless told otherwise; one-sided by nature.
    """
    from scipy.stats import page_trend_test

    x = np.asarray(table, float)
    if x.ndim != 2 or min(x.shape) < 2 or x.shape[1] < 3 or not np.all(np.isfinite(x)):
        raise DataError("Page's test needs a complete table of at least 2 rows by 3 ordered columns.")
    if alternative == "two-sided":
        raise UsageError("Page's test has a direction: alternative='increasing' or 'decreasing'.")
    method = "auto" if exact is None else ("exact" if exact else "asymptotic")
    found = page_trend_test(x if alternative == "increasing" else -x, method=method)
    return Trend(float(found.statistic), NAN, float(found.pvalue), f"Page, {found.method}")


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean of the middle half of all values: a quarter of them, rounded down, is cut at each end (IQM)."""
    from scipy.stats import trim_mean

    x = np.asarray(scores, float).ravel()
    if len(x) == 0 or not np.all(np.isfinite(x)):
        raise DataError("An interquartile mean needs finite values.")
    return float(trim_mean(x, 0.25))


def optimality_gap(scores: ArrayLike, target: float = 1.0) -> float:
    """Mean shortfall below ``target``; what exceeds it earns nothing."""
    return float(target - np.minimum(np.asarray(scores, float), target).mean())


def probability_of_improvement(a: ArrayLike, b: ArrayLike) -> float:
    """Chance that a run of ``a`` beats a run of ``b`` on the same task, mean over tasks, ties half.

    Shapes (runs, tasks); Agarwal et al. 2021, arXiv 2108.13264.
    """
    x, y = np.asarray(a, float), np.asarray(b, float)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise DataError(f"Both score tables have shape (runs, tasks) with the same tasks; got {x.shape}, {y.shape}.")
    above = (x[:, None, :] > y[None, :, :]).mean()
    return float(above + 0.5 * (x[:, None, :] == y[None, :, :]).mean())


def stratified_bootstrap(
    statistic: Callable[[Array], float], scores: ArrayLike, *, level: float = 0.95, resamples: int = 2000,
    rng: np.random.Generator,
) -> tuple[float, float]:  # fmt: skip
    """Percentile interval of a statistic of scores of shape (runs, tasks), runs drawn anew within each task.

    The plain percentile of Agarwal et al. 2021; `assay.core.metrics.evaluate` with resample="attempts" widens it for
    few runs.
    """
    x = np.asarray(scores, float)
    if x.ndim != 2 or x.shape[0] < 2 or not np.all(np.isfinite(x)):
        raise DataError("A stratified bootstrap needs finite scores of at least 2 runs, shape (runs, tasks).")
    tasks = np.arange(x.shape[1])
    found = [statistic(x[rng.integers(0, len(x), size=x.shape), tasks]) for _ in range(resamples)]
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high)


def _ordered_pairs(x: Array, label: Codes) -> float:
    """Pairs from an earlier and a later group in increasing order, ties half."""
    total = 0.0
    for later in np.unique(label)[1:]:
        before, own = np.sort(x[label < later]), x[label == later]
        total += float((np.searchsorted(before, own, "left") + np.searchsorted(before, own, "right")).sum()) / 2
    return total


def _normal_p(z: float, alternative: Alternative) -> float:
    if alternative == "two-sided":
        return float(2 * ndtr(-abs(z)))
    return float(ndtr(-z if alternative == "increasing" else z))


def _permutation_p(drawn: Array, observed: float, alternative: Alternative) -> float:
    slack = 1e-9 * max(abs(observed), 1.0)
    if alternative == "two-sided":
        extreme = np.abs(drawn) >= abs(observed) - slack
    else:
        extreme = drawn >= observed - slack if alternative == "increasing" else drawn <= observed + slack
    return float((1 + extreme.sum()) / (1 + len(drawn)))


def sign_test(wins: int, losses: int, *, alternative: Alternative = "two-sided") -> float:
    """Exact sign test of paired cells, ties left out; ``increasing``: more wins than losses."""
    n = wins + losses
    if wins < 0 or losses < 0:
        raise DataError(f"Wins and losses are at least 0; got {wins} and {losses}.")
    if alternative == "two-sided":
        return min(1.0, 2 * sum(comb(n, i) for i in range(min(wins, losses) + 1)) / 2**n)
    fewer = losses if alternative == "increasing" else wins
    return sum(comb(n, i) for i in range(fewer + 1)) / 2**n
