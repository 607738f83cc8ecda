"""Random interval features: seven statistics of random intervals, by cumulative sums and one sort an interval."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import UsageError
from assay.learning.irregular.array import Array
from assay.learning.irregular.methods.base import Panel, SeriesClassifier, match_length

STATISTICS = ("mean", "std", "min", "max", "median", "skew", "kurtosis")


def draw_intervals(
    length: int, rng: np.random.Generator, n: int | Literal["log", "sqrt", "random"] = "log", shortest: int = 2
) -> Array:
    """Random intervals [start, stop) of a series, int64 [n, 2], sorted and unique.

    ``log`` draws max(1, floor(ln(length))) of them, ``sqrt`` floor(sqrt(length)), ``random`` any number up to length.
    """
    if n == "log":
        count = max(1, int(np.log(length))) if length > 1 else 1
    elif n == "sqrt":
        count = max(1, int(np.sqrt(length)))
    elif n == "random":
        count = int(rng.integers(1, length + 1))
    elif isinstance(n, int) and not isinstance(n, bool) and n >= 1:
        count = n
    else:
        raise UsageError(f"n_intervals={n!r} is none of 'log', 'sqrt', 'random', and no whole number from 1.")
    shortest = min(shortest, length)
    starts = rng.integers(0, length - shortest + 1, count)
    stops = np.array([rng.integers(start + shortest, length + 1) for start in starts], np.int64)
    return np.unique(np.stack([starts, stops], axis=1), axis=0)


def interval_features(values: ArrayLike, intervals: ArrayLike) -> Array:
    """Seven NaN-aware statistics of each interval of each channel.

    Parameters
    ----------
    values
        (n, channels, T) with NaN.
    intervals
        (k, 2) of [start, stop).

    Returns
    -------
    ndarray
        (n, channels, k, 7) in the order of `STATISTICS`: population standard deviation, biased skew and excess
        kurtosis as of scipy. NaN where nothing is observed; skew and kurtosis are NaN where all values are the same.
    """
    x = np.asarray(values, float)
    spans = np.asarray(intervals, np.int64)
    n, channels, length = x.shape
    out = np.full((n, channels, len(spans), len(STATISTICS)), np.nan)
    rows = x.reshape(n * channels, length)
    flat = out.reshape(n * channels, len(spans), len(STATISTICS))
    seen = ~np.isnan(rows)
    # Moments about each row's own mean: sums of fourth powers of raw values would cancel.
    count = np.maximum(seen.sum(axis=1, keepdims=True), 1)
    centre = np.where(seen, rows, 0.0).sum(axis=1, keepdims=True) / count
    d = np.where(seen, rows - centre, 0.0)
    scale = np.maximum(np.abs(d).max(axis=1, keepdims=True), 1e-300)
    d = d / scale
    sums = [_running(part) for part in (seen.astype(float), d, d**2, d**3, d**4)]
    start, stop = spans[:, 0], spans[:, 1]
    k0, s1, s2, s3, s4 = (part[:, stop] - part[:, start] for part in sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        m1, r2, r3, r4 = s1 / k0, s2 / k0, s3 / k0, s4 / k0
        var = np.maximum(r2 - m1**2, 0.0)
        third = r3 - 3 * m1 * r2 + 2 * m1**3
        fourth = r4 - 4 * m1 * r3 + 6 * m1**2 * r2 - 3 * m1**4
        flat[..., 0] = m1 * scale + centre
        flat[..., 1] = np.sqrt(var) * scale
        low, high, middle = _order_statistics(rows, spans)
        constant = (low == high) | (k0 == 0)
        flat[..., 1] = np.where(low == high, 0.0, flat[..., 1])
        flat[..., 5] = np.where(constant, np.nan, third / var**1.5)
        flat[..., 6] = np.where(constant, np.nan, fourth / var**2 - 3)
        # Where a window spreads little beside its row, differences of running sums have lost their digits.
        for k, (begin, end) in enumerate(spans):
            poor = np.nonzero(~constant[:, k] & ~(var[:, k] > 1e-3))[0]
            if len(poor):
                flat[poor, k, 0], flat[poor, k, 1], flat[poor, k, 5], flat[poor, k, 6] = _moments(rows[poor, begin:end])
    flat[..., 2], flat[..., 3], flat[..., 4] = low, high, middle
    flat[..., 0] = np.where(low == high, low, flat[..., 0])
    return out


def _moments(windows: Array) -> tuple[Array, Array, Array, Array]:
    """Mean, deviation, skew and kurtosis of rows with NaN, from differences to each row's mean."""
    mean = np.nanmean(windows, axis=1)
    d = windows - mean[:, None]
    second, third, fourth = (np.nanmean(d**k, axis=1) for k in (2, 3, 4))
    return mean, np.sqrt(second), third / second**1.5, fourth / second**2 - 3


def _running(part: Array) -> Array:
    out = np.zeros((part.shape[0], part.shape[1] + 1))
    np.cumsum(part, axis=1, out=out[:, 1:])
    return out


def _order_statistics(rows: Array, spans: Array) -> tuple[Array, Array, Array]:
    low, high, middle = (np.empty((len(rows), len(spans))) for _ in range(3))
    at = np.arange(len(rows))
    for k, (start, stop) in enumerate(spans):
        # NaN sort to the end, so that observed values come first.
        window = np.sort(rows[:, start:stop], axis=1)
        count = (~np.isnan(window)).sum(axis=1)
        last = np.maximum(count - 1, 0)
        low[:, k], high[:, k] = window[:, 0], window[at, last]
        middle[:, k] = (window[at, last // 2] + window[at, (last + 1) // 2]) / 2
    return low, high, middle


class RIFC(SeriesClassifier):
    """Random intervals x seven statistics, into LightGBM.

    Parameters
    ----------
    n_intervals
        ``log``, ``sqrt``, ``random``, or a number.
    random_state
        Of intervals and of LightGBM.
    """

    def __init__(
        self, n_intervals: int | Literal["log", "sqrt", "random"] = "log", random_state: int | None = None
    ) -> None:
        self.n_intervals = n_intervals
        self.random_state = random_state

    def _features(self, panel: Panel) -> Array:
        values = match_length(panel.values, self._length)
        return interval_features(values, self.intervals_).reshape(len(panel), -1)

    def _fit(self, panel: Panel, codes: Array) -> None:
        from assay.learning.irregular.methods.tabular import boosting

        self._length = panel.values.shape[2]
        self.intervals_ = draw_intervals(self._length, np.random.default_rng(self.random_state), self.n_intervals)  # type: ignore[arg-type]
        self.head_ = boosting(self.random_state).fit(self._features(panel), codes)

    def _proba(self, panel: Panel) -> Array:
        from assay.learning.irregular.methods.tabular import probabilities

        return probabilities(self.head_, self._features(panel))
