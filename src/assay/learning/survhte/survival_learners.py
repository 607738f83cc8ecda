"""Survival meta-learners: effects as differences of areas under estimated survival curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from assay.core.errors import DataError, unknown_name
from assay.learning.survhte.base import Array, Mask, SurvivalEffect, read_w, read_x
from assay.learning.survhte.scoring import rmst, survival_at
from assay.learning.survhte.survival_models import SurvivalModel, survival_model, tuned

_CHUNK = 4096


class _Curves(SurvivalEffect):
    """Parameters and curves that the three learners share.

    Parameters
    ----------
    model
        rsf, deepsurv or deephit.
    tune
        Choose hyper-parameters from the benchmark's grids by time-dependent concordance on a held-out fifth.
    settings
        Hyper-parameters when they are not tuned.
    area
        ``exact`` (from time 0 on) or ``published`` (trapezoid from the first time of the model's grid on).
    estimand, horizon
        ``rmst`` up to a horizon (None: the last time of the model's grid), or ``survival`` at it.
    """

    def __init__(
        self,
        model: str = "rsf",
        *,
        tune: bool = False,
        settings: Mapping[str, Any] | None = None,
        area: str = "exact",
        estimand: str = "rmst",
        horizon: float | None = None,
        random_state: int | None = 42,
    ) -> None:
        self.model = model
        self.tune = tune
        self.settings = settings
        self.area = area
        self.estimand = estimand
        self.horizon = horizon
        self.random_state = random_state

    end_: float

    def _fitted(self, X: Any, time: Array, event: Mask, strata: Array) -> SurvivalModel:
        if self.area not in ("exact", "published"):
            raise unknown_name("rule of area", self.area, ["exact", "published"])
        chosen = self.settings
        if self.tune:
            chosen = {**tuned(self.model, X, time, event, strata, self.random_state), **(self.settings or {})}
        return survival_model(self.model, self.random_state, chosen).fit(X, time, event)

    def _value(self, model: SurvivalModel, X: Any) -> Array:
        """The estimand's functional of the predicted curves; shape (n,)."""
        parts = []
        for start in range(0, len(X), _CHUNK):
            curves = model.survival(X[start : start + _CHUNK])
            if self.estimand == "survival":
                assert self.horizon is not None
                parts.append(survival_at(model.times, curves, self.horizon, linear=model.linear))
                continue
            rule = "published" if self.area == "published" else "linear" if model.linear else "step"
            parts.append(rmst(model.times, curves, self._until(model), rule=rule))
        return np.concatenate(parts)

    def _until(self, model: SurvivalModel) -> float:
        return self.end_ if self.horizon is None else self.horizon


class SLearnerSurvival(_Curves):
    """One model of survival given covariates and treatment; the effect is what changing the treatment changes."""

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        self.end_ = float(time.max())
        self.model_ = self._fitted(np.column_stack([X, W]), time, event, W.astype(float))

    def predict_survival_function(self, X: Any, w: int) -> tuple[Array, Array]:
        """Grid (k,) and curves (n, k) under treatment ``w``."""
        check_is_fitted(self, "fitted_")
        X = read_x(X, self.n_features_in_)
        return self.model_.times, self.model_.survival(np.column_stack([X, np.full(len(X), w)]))

    def _effect(self, X: Array) -> Array:
        treated, control = (self._value(self.model_, np.column_stack([X, np.full(len(X), w)])) for w in (1.0, 0.0))
        return treated - control


class TLearnerSurvival(_Curves):
    """One model of survival an arm; an arm needs two events."""

    _events_per_arm = 2

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        self.end_ = float(time.max())
        self.models_ = tuple(
            self._fitted(X[w == W], time[w == W], event[w == W], np.zeros(np.count_nonzero(w == W))) for w in (0, 1)
        )

    def predict_survival_function(self, X: Any, w: int) -> tuple[Array, Array]:
        """Grid (k,) and curves (n, k) under treatment ``w``."""
        check_is_fitted(self, "fitted_")
        return self.models_[w].times, self.models_[w].survival(read_x(X, self.n_features_in_))

    def _effect(self, X: Array) -> Array:
        return self._value(self.models_[1], X) - self._value(self.models_[0], X)


class MatchingSurvival(_Curves):
    """A row's predicted outcome against that of its nearest training rows of the other arm, all under their own arm.

    Parameters
    ----------
    neighbours
        How many, by Euclidean distance on the covariates as they are; all of the arm where it has fewer.
    """

    def __init__(
        self,
        model: str = "rsf",
        *,
        neighbours: int = 5,
        tune: bool = False,
        settings: Mapping[str, Any] | None = None,
        area: str = "exact",
        estimand: str = "rmst",
        horizon: float | None = None,
        random_state: int | None = 42,
    ) -> None:
        super().__init__(
            model, tune=tune, settings=settings, area=area, estimand=estimand, horizon=horizon,
            random_state=random_state,
        )  # fmt: skip
        self.neighbours = neighbours

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        if np.all(X[0] == X):
            raise DataError("All rows have the same covariates: nearest neighbours cannot be told apart.")
        self.end_ = float(time.max())
        both = np.column_stack([X, W])
        self.model_ = self._fitted(both, time, event, W.astype(float))
        self.X_, self.W_ = X, W
        self.own_ = self._value(self.model_, both)

    def effect(self, X: Any, W: Any = None) -> Array:
        """Estimated effects; without ``W`` the mean of what a row would get as treated and as control."""
        check_is_fitted(self, "fitted_")
        X = read_x(X, self.n_features_in_)
        if W is None:
            return (self.effect(X, np.zeros(len(X))) + self.effect(X, np.ones(len(X)))) / 2
        W = read_w(W, len(X))
        own = self._value(self.model_, np.column_stack([X, W]))
        return matched_effect(self.X_, self.W_, self.own_, X, W, own, neighbours=self.neighbours)


def matched_effect(
    X_train: ArrayLike, W_train: ArrayLike, own_train: ArrayLike, X: ArrayLike, W: ArrayLike, own: ArrayLike, *,
    neighbours: int = 5,
) -> Array:  # fmt: skip
    """(2W - 1) x (own prediction - mean prediction of the nearest training rows of the other arm); shape (m,)."""
    from scipy.spatial import KDTree

    X_train, W_train = np.asarray(X_train, float), np.asarray(W_train)
    own_train, X, W = np.asarray(own_train, float), np.asarray(X, float), np.asarray(W)
    found = np.empty(len(X))
    for arm in (0, 1):
        rows, other = arm == W, W_train == 1 - arm
        if not np.any(rows):
            continue
        if not np.any(other):
            raise DataError(
                f"No training row has W = {1 - arm}, so rows with W = {arm} have nobody to be matched with."
            )
        k = min(neighbours, int(np.count_nonzero(other)))
        _, near = KDTree(X_train[other]).query(X[rows], k=k)
        matched = own_train[other][near.reshape(np.count_nonzero(rows), k)].mean(axis=1)
        found[rows] = (2 * arm - 1) * (np.asarray(own, float)[rows] - matched)
    return found
