"""How fast a frontier falls: exponential decay to a floor, with the interval of its half-life."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from assay.core.errors import DataError

DAYS_A_MONTH = 365.2425 / 12


def months_between(start: date, end: date) -> float:
    """Mean Gregorian months between two days."""
    return (end - start).days / DAYS_A_MONTH


@dataclass(frozen=True, slots=True)
class HalfLife:
    """Fit of a exp(-b t) + c, t in months.

    Attributes
    ----------
    half_life
        ln 2 / b in months; inf where the curve does not fall.
    low, high
        Profile-likelihood interval of the half-life (F quantile with 1 and n - 3 degrees of freedom); nan below 4
        points.
    residual
        Root of the mean squared residual, USD.
    """

    a: float
    b: float
    c: float
    half_life: float
    low: float
    high: float
    n: int
    residual: float


def fit_half_life(months: np.ndarray, values: np.ndarray, *, level: float = 0.95, interval: bool = True) -> HalfLife:
    """Least squares of a exp(-b t) + c with b > 0.

    For a given b the best a and c are linear, so only b is searched: on a logarithmic grid, then refined. That finds
    the global minimum where a search from one starting point may stop elsewhere.

    Parameters
    ----------
    months, values
        (n,), n >= 3 different times.
    level, interval
        Coverage of the interval; False = none is needed.

    Raises
    ------
    DataError
        Fewer than three different times, or values that are not finite.
    """
    from scipy.optimize import minimize_scalar
    from scipy.stats import f as fisher

    t, y = np.asarray(months, float), np.asarray(values, float)
    if t.shape != y.shape or t.ndim != 1:
        raise DataError(f"Months and values must be two lists of one length; got shapes {t.shape} and {y.shape}.")
    if not (np.isfinite(t).all() and np.isfinite(y).all()):
        raise DataError("A half-life needs finite months and values.")
    if len(np.unique(t)) < 3:
        raise DataError(f"A half-life needs at least three release days; got {len(np.unique(t))}.")
    span, n = float(np.ptp(t)), len(t)
    gap = float(np.min(np.diff(np.unique(t))))

    # "Hardly bends over the whole span" to "over within the shortest gap between releases".
    grid = np.linspace(math.log(1e-4 / span), math.log(30 / gap), 400)
    losses = _fits(np.exp(grid), t, y)[2]
    best = int(losses.argmin())

    def loss(log_b: float) -> float:
        return float(_fits(np.exp([log_b]), t, y)[2][0])

    low_end, high_end = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found: Any = minimize_scalar(loss, bounds=(low_end, high_end), method="bounded", options={"xatol": 1e-12})
    log_b = float(found.x) if found.fun <= losses[best] else float(grid[best])
    b = math.exp(log_b)
    a, c, rss = (float(values[0]) for values in _fits(np.array([b]), t, y))
    scaled = a * math.exp(b * float(t.min()))
    flat = float(np.sum((y - y.mean()) ** 2)) <= 1e-24 * max(1.0, float(np.sum(y**2))) or a <= 0
    if flat:
        return HalfLife(scaled, b, c, math.inf, math.nan, math.inf, n, math.sqrt(rss / n))
    half = math.log(2) / b
    if n < 4 or not interval:
        return HalfLife(scaled, b, c, half, math.nan, math.nan, n, math.sqrt(rss / n))
    limit = rss * (1 + float(fisher.ppf(level, 1, n - 3)) / (n - 3))
    slow = _crossing(t, y, log_b, grid[0], limit)
    fast = _crossing(t, y, log_b, grid[-1], limit)
    low = 0.0 if fast is None else math.log(2) / math.exp(fast)
    high = math.inf if slow is None else math.log(2) / math.exp(slow)
    return HalfLife(scaled, b, c, half, low, high, n, math.sqrt(rss / n))


def _fits(b: np.ndarray, t: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best a (for t counted from its start) and c, and the sum of squares that is left, for each of several b."""
    x = np.exp(-np.outer(b, t - t.min()))
    dx, dy = x - x.mean(axis=1, keepdims=True), y - y.mean()
    a = dx @ dy / (dx * dx).sum(axis=1)
    c = y.mean() - a * x.mean(axis=1)
    return a, c, ((a[:, None] * x + c[:, None] - y) ** 2).sum(axis=1)


def _crossing(t: np.ndarray, y: np.ndarray, start: float, end: float, limit: float) -> float | None:
    """log b where the sum of squares first passes the limit on the way from start to end; None = never."""
    from scipy.optimize import brentq

    path = np.linspace(start, end, 300)
    above = np.flatnonzero(_fits(np.exp(path), t, y)[2] > limit)
    if len(above) == 0:
        return None
    i = int(above[0])
    if i == 0:
        return start
    root: Any = brentq(
        lambda point: float(_fits(np.exp([point]), t, y)[2][0]) - limit, path[i - 1], path[i], xtol=1e-10
    )
    return float(root)
