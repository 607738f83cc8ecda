"""Bootstrap of a pair's main score: one gather of all resamples, one batched statistic.

Every function takes ``drawn`` of shape (resamples, n): places drawn with replacement, from `draws`. What it returns is
what a loop over the resamples with scikit-learn and scipy returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Drawn = NDArray[np.intp]


def draws(n: int, resamples: int, rng: np.random.Generator) -> Drawn:
    """Places of ``resamples`` draws of n from n."""
    return rng.integers(0, n, size=(resamples, n))


def means(values: ArrayLike, drawn: Drawn) -> Array:
    """Mean of each resample: accuracies, MAP from one AP a query."""
    return np.asarray(values, float)[drawn].mean(axis=1)


def spearmans(x: ArrayLike, y: ArrayLike, drawn: Drawn) -> Array:
    """Spearman correlation of each resample, exact with ties; 0 where a side is constant."""
    a, b = _midranks(np.asarray(x, float), drawn), _midranks(np.asarray(y, float), drawn)
    a -= a.mean(axis=1, keepdims=True)
    b -= b.mean(axis=1, keepdims=True)
    scale = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.where(scale > 0, (a * b).sum(axis=1) / np.where(scale > 0, scale, 1), 0.0)


def v_measures(gold: Sequence[Any], clusters: Sequence[Any], drawn: Drawn) -> Array:
    """V-measure of each resample; 0 where either side is one cluster, as the scorer has it."""
    g, k = _codes(gold)
    c, m = _codes(clusters)
    size, n = drawn.shape
    cells = (np.arange(size)[:, None] * k + g[drawn]) * m + c[drawn]
    table = np.bincount(cells.ravel(), minlength=size * k * m).reshape(size, k, m) / n
    h_gold, h_cluster = _entropy(table.sum(axis=2)), _entropy(table.sum(axis=1))
    shared = h_gold + h_cluster - _entropy(table.reshape(size, -1))
    both = (h_gold > 0) & (h_cluster > 0)
    # 2hc / (h + c) with h = shared / H(gold) and c = shared / H(clusters).
    return np.where(both, 2 * shared / np.where(both, h_gold + h_cluster, 1), 0.0)


def percentile(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Interval from the resamples' quantiles."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _midranks(values: Array, drawn: Drawn) -> Array:
    """Rank of every drawn value inside its resample, ties at their middle: from counts of the distinct values."""
    distinct, code = np.unique(values, return_inverse=True)
    size = len(drawn)
    at = code[drawn]
    flat = (at + np.arange(size)[:, None] * len(distinct)).ravel()
    counts = np.bincount(flat, minlength=size * len(distinct)).reshape(size, len(distinct))
    middle = np.cumsum(counts, axis=1) - (counts - 1) / 2
    return np.take_along_axis(middle, at, axis=1).astype(float, copy=False)


def _codes(values: Sequence[Any]) -> tuple[Drawn, int]:
    distinct, code = np.unique(np.array([str(v) for v in values]), return_inverse=True)
    return code, len(distinct)


def _entropy(shares: Array) -> Array:
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return -(shares * logs).sum(axis=1)
