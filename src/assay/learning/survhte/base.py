"""What all estimators of the room share: reading and checking input, average effects, intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from assay.core.errors import DataError
from assay.learning.survhte.protocol import Estimand

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

OVERLAP = (0.01, 0.99)
"""Propensities outside are clipped to it where something is divided by them."""


def surv(event: ArrayLike, time: ArrayLike) -> np.ndarray:
    """scikit-survival's structured array of events and times; shape (n,)."""
    event, time = np.asarray(event), np.asarray(time, float)
    y = np.empty(len(time), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = event.astype(bool), time
    return y


def read_y(y: Any) -> tuple[Mask, Array]:
    """Events and times of a structured array whose first field is the event.

    Raises
    ------
    DataError
        Another type; a time that is negative, infinite or missing.
    """
    names = getattr(getattr(y, "dtype", None), "names", None)
    if not names or len(names) != 2:
        raise DataError(
            "y is a structured array of event and time, as sksurv.util.Surv.from_arrays(event, time) makes."
        )
    event, time = np.asarray(y[names[0]]), np.asarray(y[names[1]], float)
    if event.dtype != bool:
        raise DataError(f"The first field of y, {names[0]!r}, must be boolean: whether the event was seen.")
    if not np.all(np.isfinite(time)):
        raise DataError(f"Row {int(np.flatnonzero(~np.isfinite(time))[0])} has the time {time[~np.isfinite(time)][0]}.")
    if np.any(time < 0):
        row = int(np.flatnonzero(time < 0)[0])
        raise DataError(f"Row {row} has the negative time {time[row]:g}; times are counted from treatment on.")
    return event, time


def read_x(X: Any, features: int | None = None) -> Array:
    """Covariates as floats of shape (n, p).

    Raises
    ------
    DataError
        Missing or infinite values, no rows, another number of columns than in fitting.
    """
    X = np.asarray(X, float)
    if X.ndim != 2 or X.size == 0:
        raise DataError(f"X has the shape (rows, covariates); got {X.shape}.")
    bad = ~np.isfinite(X)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(f"X holds {X[row, column]} in row {row}, column {column}; fill in what is missing first.")
    if features is not None and X.shape[1] != features:
        raise DataError(f"X has {X.shape[1]} covariates where fitting saw {features}.")
    return X


def read_w(W: Any, rows: int) -> NDArray[np.int64]:
    """Treatment as 0 and 1; shape (n,)."""
    W = np.asarray(W)
    if W.shape != (rows,):
        raise DataError(f"W has the shape {W.shape}, X has {rows} rows.")
    other = ~np.isin(W, (0, 1))
    if other.any():
        raise DataError(f"W is 0 (control) or 1 (treated); row {int(np.flatnonzero(other)[0])} has {W[other][0]}.")
    return W.astype(np.int64)


def check_horizon(estimand: Estimand, time: Array, event: Mask) -> None:
    """One sentence where nobody was followed to the horizon, or nobody had an event before it."""
    h = estimand.horizon
    if h is None:
        return
    if h > time.max():
        raise DataError(f"The horizon {h:g} is beyond the longest follow-up, {time.max():g}; nothing is known there.")
    first = time[event].min() if event.any() else np.inf
    if h < first:
        raise DataError(f"The horizon {h:g} is before the first event, at {first:g}: there is no effect to estimate.")


class SurvivalEffect(BaseEstimator):
    """Base of the room's estimators: a subclass stores its parameters and defines ``_fit`` and ``_effect``."""

    estimand: str
    horizon: float | None
    random_state: int | None
    _events_per_arm = 0

    @property
    def target_(self) -> Estimand:
        """The estimand as an object."""
        return Estimand(self.estimand, self.horizon)  # type: ignore[arg-type]

    def fit(self, X: Any, W: Any, y: Any) -> Any:
        """Learn from rows.

        Parameters
        ----------
        X
            Covariates, shape (n, p).
        W
            Treatment, 0 or 1, shape (n,).
        y
            Structured array of event and time, shape (n,).

        Raises
        ------
        DataError
            Missing values, treatment other than 0 and 1, an arm without rows or events, a horizon outside follow-up.
        """
        X = read_x(X)
        W = read_w(W, len(X))
        event, time = read_y(y)
        if len(time) != len(X):
            raise DataError(f"y has {len(time)} rows, X has {len(X)}.")
        for arm in (0, 1):
            if not np.any(arm == W):
                raise DataError(f"Nobody in the data has W = {arm}; an effect needs both arms.")
        if not event.any():
            raise DataError("No event was observed: nothing says how long censored rows live; give rows with events.")
        if time.max() == 0:
            raise DataError("All rows end at the time 0: nobody was followed.")
        for arm in (0, 1):
            seen = int(event[arm == W].sum())
            if seen < self._events_per_arm:
                raise DataError(
                    f"The arm W = {arm} has {seen} events; {type(self).__name__} fits a model to each arm and needs "
                    f"{self._events_per_arm}."
                )
        check_horizon(self.target_, time, event)
        self.n_features_in_ = X.shape[1]
        self._fit(X, W, time, event)
        self.fitted_ = True
        return self

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        raise NotImplementedError

    def _effect(self, X: Array) -> Array:
        raise NotImplementedError

    def effect(self, X: Any) -> Array:
        """Estimated effect of treatment on each row; shape (m,)."""
        check_is_fitted(self, "fitted_")
        return np.asarray(self._effect(read_x(X, self.n_features_in_)), float).reshape(-1)

    def ate(self, X: Any) -> float:
        """Mean estimated effect over rows."""
        return float(self.effect(X).mean())

    def ate_interval(self, X: Any, *, alpha: float = 0.05, resamples: int = 100) -> tuple[float, float]:
        """Percentile interval of the mean effect over resampled rows; the fitted model is held fixed."""
        return bootstrap_mean(
            self.effect(X), np.random.default_rng(self.random_state), alpha=alpha, resamples=resamples
        )


def bootstrap_mean(
    values: Array, rng: np.random.Generator, *, alpha: float = 0.05, resamples: int = 100
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean."""
    draws = values[rng.integers(0, len(values), (resamples, len(values)))].mean(axis=1)
    low, high = np.quantile(draws, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)
