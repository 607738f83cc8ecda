"""From learning curves to one number with an interval: AUC, IQM, relative gain, as in rliable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import DataError
from assay.core.stats.trends import interquartile_mean, optimality_gap, stratified_bootstrap


def area(curve: ArrayLike, *, trapezoid: bool = False) -> np.ndarray:
    """Area under curves (..., points) on an even grid: the mean of the points, or trapezia over the span."""
    y = np.asarray(curve, float)
    if y.ndim < 1 or y.shape[-1] < (2 if trapezoid else 1):
        raise DataError(f"A curve needs points along its last axis; got shape {y.shape}.")
    return np.trapezoid(y, axis=-1) / (y.shape[-1] - 1) if trapezoid else y.mean(-1)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """IQM with its 95 % interval, median over tasks of means over runs, and optimality gap."""

    iqm: float
    low: float
    high: float
    median: float
    optimality_gap: float


def aggregate(scores: ArrayLike, rng: np.random.Generator, *, resamples: int = 2000) -> Aggregate:
    """Of normalised scores (runs, tasks); runs are drawn anew within each task (Agarwal et al. 2021)."""
    x = np.asarray(scores, float)
    low, high = stratified_bootstrap(interquartile_mean, x, resamples=resamples, rng=rng)
    return Aggregate(interquartile_mean(x), low, high, float(np.median(x.mean(0))), optimality_gap(x))


@dataclass(frozen=True, slots=True)
class Gain:
    """``IQM(a) / IQM(b) - 1``; the difference of both with its 95 % interval, and the chance that it is above 0.

    ``relative`` means nothing where the IQM of b is not above 0, and is NaN there.
    """

    relative: float
    difference: float
    low: float
    high: float
    chance: float


def relative_gain(a: ArrayLike, b: ArrayLike, rng: np.random.Generator, *, resamples: int = 2000) -> Gain:
    """Gain of ``a`` over ``b``, both (runs, tasks); row i of a task is one seed in both: runs are drawn in pairs."""
    x, y = np.asarray(a, float), np.asarray(b, float)
    if x.shape != y.shape or x.ndim != 2 or len(x) < 2 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError(f"A gain needs two finite tables (runs, tasks) of equal shape; got {x.shape} and {y.shape}.")
    rows, tasks = rng.integers(0, len(x), size=(resamples, *x.shape)), np.arange(x.shape[1])
    won = _middle(x[rows, tasks]) - _middle(y[rows, tasks])
    up, base = interquartile_mean(x), interquartile_mean(y)
    low, high = np.quantile(won, [0.025, 0.975])
    chance = float((won > 0).mean() + (won == 0).mean() / 2)
    return Gain(up / base - 1 if base > 0 else float("nan"), up - base, float(low), float(high), chance)


def _middle(drawn: np.ndarray) -> np.ndarray:
    """`interquartile_mean` of each of many tables (resamples, runs, tasks)."""
    flat = np.sort(drawn.reshape(len(drawn), -1), axis=1)
    cut = int(0.25 * flat.shape[1])
    return flat[:, cut : flat.shape[1] - cut].mean(1)


ATARI: dict[str, tuple[float, float]] = {
    "Alien": (227.8, 7127.7), "Amidar": (5.8, 1719.5), "Assault": (222.4, 742.0), "Asterix": (210.0, 8503.3),
    "BankHeist": (14.2, 753.1), "BattleZone": (2360.0, 37187.5), "Boxing": (0.1, 12.1), "Breakout": (1.7, 30.5),
    "ChopperCommand": (811.0, 7387.8), "CrazyClimber": (10780.5, 35829.4), "DemonAttack": (152.1, 1971.0),
    "Freeway": (0.0, 29.6), "Frostbite": (65.2, 4334.7), "Gopher": (257.6, 2412.5), "Hero": (1027.0, 30826.4),
    "Jamesbond": (29.0, 302.8), "Kangaroo": (52.0, 3035.0), "Krull": (1598.0, 2665.5),
    "KungFuMaster": (258.5, 22736.3), "MsPacman": (307.3, 6951.6), "Pong": (-20.7, 14.6),
    "PrivateEye": (24.9, 69571.3), "Qbert": (163.9, 13455.0), "RoadRunner": (11.5, 7845.0),
    "Seaquest": (68.4, 42054.7), "UpNDown": (533.4, 11693.2),
}  # fmt: skip
"""Returns of a random policy and of people, from memory of the table that circulates; check before publishing."""


def human_normalised(score: ArrayLike, game: str) -> np.ndarray:
    """Score on the scale from random (0) to people (1)."""
    from assay.core.errors import unknown_name

    if game not in ATARI:
        raise unknown_name("game", game, ATARI)
    low, high = ATARI[game]
    return (np.asarray(score, float) - low) / (high - low)
