"""The unadjusted estimate that every other has to beat on heterogeneity: one number for everybody."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assay.learning.survhte.base import Array, Mask, SurvivalEffect
from assay.learning.survhte.imputation import KaplanMeier
from assay.learning.survhte.scoring import rmst, survival_at


class KaplanMeierDifference(SurvivalEffect):
    """Difference of the arms' Kaplan-Meier curves: of areas up to the horizon, or of survival at it.

    Without a horizon, areas end at the shorter arm's last time. Right on average in a randomised trial.
    """

    def __init__(self, *, estimand: str = "rmst", horizon: float | None = None, random_state: int | None = 42) -> None:
        self.estimand = estimand
        self.horizon = horizon
        self.random_state = random_state

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        self.difference_ = km_difference(W, time, event, self.estimand, self.horizon)

    def _effect(self, X: Array) -> Array:
        return np.full(len(X), self.difference_)


def km_difference(
    W: NDArray[np.int64], time: Array, event: Mask, estimand: str = "rmst", horizon: float | None = None
) -> float:
    """Treated minus control: Kaplan-Meier area up to the horizon (None: the shorter follow-up), or survival at it."""
    curves = [KaplanMeier.fit(time[w == W], event[w == W]) for w in (0, 1)]
    until = float(min(curve.times[-1] for curve in curves)) if horizon is None else horizon
    values = [
        survival_at(c.times, c.survival, until) if estimand == "survival" else rmst(c.times, c.survival, until)
        for c in curves
    ]
    return float(values[1] - values[0])
