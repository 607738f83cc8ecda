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
# Twice the Rademacher complexity of the test functions times sqrt n; see `margin`.
_COMPLEXITY = 2.0 + float(np.sqrt(2.0))


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
    predictor: (2 + sqrt 2 + sqrt(2 ln(1 / delta))) / sqrt n. No assumption.

    Bounded differences (one sample moves the value by at most 2 / n) around twice the Rademacher complexity. That is at
    most (1 + 1 / sqrt 2) / sqrt n: a test function is h(1/2) plus the integral of its slope from 1/2, so its signed sum
    is at most the absolute signed sum of all samples plus the integral over t of those beyond t, and the root mean
    squares of these are sqrt n times 1, sqrt P(p < t) below 1/2 and sqrt P(p > t) above.
    """
    if n < 1 or not 0 < delta < 1:
        raise UsageError(f"margin needs n >= 1 and delta between 0 and 1; got n={n}, delta={delta:g}.")
    return float((_COMPLEXITY + np.sqrt(2 * np.log(1 / delta))) / np.sqrt(n))


@dataclass(frozen=True, slots=True)
class DistanceTest:
    """Verdict of `distance_test`.

    Attributes
    ----------
    value, threshold
        The smooth error, and what it must exceed for ``far``.
    far
        Whether the predictor is declared far from calibration.
    sure
        Whether there are ``needed`` samples, with which either verdict errs with probability delta at most.
    """

    value: float
    threshold: float
    far: bool
    sure: bool
    needed: int


def distance_test(
    y_true: ArrayLike, y_prob: ArrayLike, *, distance: float, tolerance: float = 0.0, delta: float = 0.05
) -> DistanceTest:
    """Is the predictor within ``tolerance`` of calibration, or at least ``distance`` away from it?

    Distances are lower distances to calibration. smooth_ce is at most twice, at least half of it, so the sample's error
    is compared with the middle between 2 tolerance and distance / 2; with O((distance / 2 - 2 tolerance)^-2) samples,
    the best possible rate, `margin` separates the two. Between the two either verdict is right.

    Parameters
    ----------
    distance
        Above 4 tolerance, at most 1.
    tolerance
        0: is it calibrated perfectly?
    delta
        Probability of error allowed to either verdict.

    References
    ----------
    Hu, Jambulapati, Tian and Yang 2024, "Testing calibration in nearly-linear time", arXiv 2402.13187.
    """
    y, p = paired(y_true, y_prob)
    if not 0 <= 4 * tolerance < distance <= 1:
        raise UsageError(
            f"distance={distance:g} with tolerance={tolerance:g} cannot be tested; distance is at most 1 and "
            "more than 4 times the tolerance."
        )
    value, room = smooth_ce(y, p), (distance / 2 - 2 * tolerance) / 2
    needed = int(np.ceil((margin(1, delta=delta) / room) ** 2))
    threshold = 2 * tolerance + room
    return DistanceTest(value, threshold, value > threshold, len(y) >= needed, needed)


def _check(level: float, draws: int) -> None:
    if not 0 < level < 1:
        raise UsageError(f"level={level:g} is not between 0 and 1.")
    if draws < 1:
        raise UsageError(f"The number of resamples is {draws}; give at least 1, better 1000.")
