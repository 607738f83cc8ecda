"""How sure a calibration error is: bootstrap intervals, a test of perfect calibration, a distribution-free margin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import UsageError
from assay.learning.smooth_calibration.exact import smooth_ce
from assay.learning.smooth_calibration.inputs import Vector, paired

Measure = Callable[[Vector, Vector], float]


@dataclass(frozen=True, slots=True)
class Interval:
    """Value with its interval; ``bias`` is the mean over resamples minus the value."""

    value: float
    low: float
    high: float
    bias: float


@dataclass(frozen=True, slots=True)
class CalibrationTest:
    """Test of y ~ Bernoulli(p): value, p-value, mean and upper quantile that a calibrated predictor would show."""

    value: float
    p: float
    null_mean: float
    critical: float


def bootstrap_interval(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    measure: Measure = smooth_ce,
    level: float = 0.95,
    resamples: int = 1000,
    rng: np.random.Generator,
) -> Interval:
    """Basic bootstrap interval of a measure of calibration, cut off below 0.

    The estimate is biased upward and its resamples twice as much, so percentiles would leave out 0 for a calibrated
    predictor; the basic interval turns them around the value. With n below about 100 trust `calibration_test` instead.
    """
    y, p = paired(y_true, y_prob)
    _check(level, resamples)
    value = measure(y, p)
    found = np.empty(resamples)
    for b in range(resamples):
        at = rng.integers(0, len(y), len(y))
        found[b] = measure(y[at], p[at])
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, max(0.0, 2 * value - high), max(0.0, 2 * value - low), float(found.mean()) - value)


def calibration_test(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    measure: Measure = smooth_ce,
    level: float = 0.95,
    draws: int = 999,
    rng: np.random.Generator,
) -> CalibrationTest:
    """Exact Monte-Carlo test of perfect calibration: labels drawn anew from the predictions (consistency resampling).

    Brocker and Smith 2007. The p-value counts the data among the draws, so it is valid at any n.
    """
    y, p = paired(y_true, y_prob)
    _check(level, draws)
    value = measure(y, p)
    null = np.array([measure((rng.random(len(p)) < p).astype(np.float64), p) for _ in range(draws)])
    # Equal up to rounding is equal.
    beyond = int(np.sum(null >= value - 1e-12))
    return CalibrationTest(value, (1 + beyond) / (1 + draws), float(null.mean()), float(np.quantile(null, level)))


def margin(n: int, *, delta: float = 0.05) -> float:
    """Half-width with |smooth_ce(sample) - smooth_ce(population)| <= it with probability 1 - delta, for any fixed
    predictor.

    Chaining over 1-Lipschitz functions on [0, 1] and bounded differences (one sample moves the value by at most 2 / n):
    2 Rad + sqrt(2 ln(2 / delta) / n), with 2 Rad = inf over e of 8 e + 24 int_e^1 sqrt(ln N(e') / n) de' and the
    covering number N(e) <= (2 / e + 1) 3^(1 / e). Loose by constants; no assumption.
    """
    from assay.learning.smooth_calibration.bounds import two_sample_bound

    if n < 1 or not 0 < delta < 1:
        raise UsageError(f"margin needs n >= 1 and delta between 0 and 1; got n={n}, delta={delta:g}.")
    chained = two_sample_bound(lambda e: float(np.log(2 / e + 1) + np.log(3) / e), n=n, delta=delta)
    slack = 2 * np.sqrt(np.log(1 / delta) / n)
    return float(chained - slack + np.sqrt(2 * np.log(2 / delta) / n))


def _check(level: float, draws: int) -> None:
    if not 0 < level < 1:
        raise UsageError(f"level={level:g} is not between 0 and 1.")
    if draws < 1:
        raise UsageError(f"The number of resamples is {draws}; give at least 1, better 1000.")
