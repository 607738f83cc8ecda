"""Outcome imputation: censored times are completed, then a learner of causal effects for complete outcomes is fitted.

Four meta-learners with three base regressors, double machine learning and causal forests, all of econml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from assay.core.errors import DataError, MissingExtra, unknown_name
from assay.learning.survhte.base import OVERLAP, Array, Mask, SurvivalEffect, read_w, read_x
from assay.learning.survhte.imputation import IMPUTERS, impute, ipcw_weights

LEARNERS = ("t_learner", "s_learner", "x_learner", "dr_learner", "double_ml", "causal_forest")
BASES = ("lasso", "rf", "xgb")


class OutcomeImputation(SurvivalEffect):
    """Impute, then estimate.

    Parameters
    ----------
    learner
        t_learner, s_learner, x_learner, dr_learner (Kuenzel et al. 2019; Kennedy 2023), double_ml, causal_forest.
    base
        lasso, rf or xgb, for the first four.
    imputer
        pseudo_obs, margin, ipcw_t, or ``ipcw``: outcomes times inverse-probability-of-censoring weights.
    trees
        Of random forests, boosted ensembles and the causal forest; None = the library's own (100).
    estimand, horizon
        ``rmst`` up to a horizon (None: the mean), or ``survival`` at it.

    Attributes
    ----------
    outcome_ : ndarray of shape (n,)
        Completed outcomes of the training rows.
    """

    def __init__(
        self,
        learner: str = "t_learner",
        base: str = "lasso",
        imputer: str = "margin",
        *,
        trees: int | None = None,
        estimand: str = "rmst",
        horizon: float | None = None,
        random_state: int | None = 42,
    ) -> None:
        self.learner = learner
        self.base = base
        self.imputer = imputer
        self.trees = trees
        self.estimand = estimand
        self.horizon = horizon
        self.random_state = random_state

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        check_folds(self.learner, W)
        if self.imputer == "ipcw":
            y = self.target_.of(time) * ipcw_weights(time, event, self.horizon)
        elif self.imputer in IMPUTERS:
            y = self.target_.of(impute(self.imputer, time, event))
        else:
            raise unknown_name("imputer", self.imputer, [*IMPUTERS, "ipcw"])
        self.outcome_ = y
        self.model_ = effect_learner(self.learner, self.base, trees=self.trees, seed=self.random_state)
        self.model_.fit(y, W, X=X)

    def _effect(self, X: Array) -> Array:
        return self.model_.effect(X)

    def predict_outcome(self, X: Any, W: Any) -> Array | None:
        """Expected outcome of rows (m,) under treatment ``W`` by the base learners; None where no part predicts it."""
        X, W = self._rows(X, W)
        if self.learner == "s_learner":
            return np.asarray(self.model_.overall_model.predict(np.column_stack([X, 1 - W, W])), float).reshape(-1)
        if self.learner in ("t_learner", "x_learner"):
            arms = [np.asarray(model.predict(X), float).reshape(-1) for model in self.model_.models]
            return np.where(W == 1, arms[1], arms[0])
        if self.learner == "dr_learner":
            return _mean_of(self.model_.models_regression, lambda model: model.predict(np.column_stack([X, W])))
        return None

    def predict_propensity(self, X: Any) -> Array | None:
        """Estimated chance of treatment of rows (m,); None for learners that estimate none."""
        X, _ = self._rows(X, None)
        if self.learner == "x_learner":
            return np.asarray(self.model_.propensity_models[0].predict_proba(X), float)[:, 1]
        models = {"dr_learner": "models_propensity", "double_ml": "models_t", "causal_forest": "models_t"}
        if self.learner not in models:
            return None
        return _mean_of(getattr(self.model_, models[self.learner]), lambda model: _chance(model, X))

    def effect_interval(self, X: Any, *, alpha: float = 0.05) -> tuple[Array, Array] | None:
        """Pointwise normal intervals of double machine learning, two arrays (m,), completed outcomes taken for seen
        ones; None for the other learners."""
        X, _ = self._rows(X, None)
        if self.learner != "double_ml":
            return None
        low, high = self.model_.effect_interval(X, alpha=alpha)
        return np.asarray(low, float).reshape(-1), np.asarray(high, float).reshape(-1)

    def _rows(self, X: Any, W: Any) -> tuple[Array, NDArray[np.int64]]:
        check_is_fitted(self, "fitted_")
        X = read_x(X, self.n_features_in_)
        return X, read_w(np.zeros(len(X)) if W is None else W, len(X))


def _mean_of(models: Any, predict: Callable[[Any], Any]) -> Array:
    """Mean over the models of cross-fitting."""
    return np.mean([np.asarray(predict(model), float).reshape(-1) for fold in models for model in fold], axis=0)


def _chance(model: Any, X: Array) -> Array:
    """A classifier's chance of 1; what a regressor predicts, for econml's causal forest has either."""
    return model.predict_proba(X)[:, 1] if hasattr(model, "predict_proba") else model.predict(X)


def check_folds(learner: str, W: NDArray[np.int64]) -> None:
    """Cross-fitted learners need two rows of each arm, one a fold."""
    for arm, rows in enumerate(np.bincount(W, minlength=2)):
        if learner in ("dr_learner", "double_ml", "causal_forest") and rows < 2:
            raise DataError(f"The arm W = {arm} has one row; {learner!r} is fitted across two folds and needs two.")


def effect_learner(learner: str, base: str, *, trees: int | None, seed: int | None) -> Any:
    """econml's estimator of effects on complete outcomes.

    Parameters
    ----------
    learner, base, trees
        As in `OutcomeImputation`.
    """
    try:
        from econml.dml import CausalForestDML, LinearDML
        from econml.dr import DRLearner
        from econml.metalearners import SLearner, TLearner, XLearner
    except ImportError:
        raise MissingExtra(f"The learner {learner!r}", "survhte") from None
    if learner == "t_learner":
        return TLearner(models=regressor(base, trees, seed))
    if learner == "s_learner":
        return SLearner(overall_model=regressor(base, trees, seed))
    if learner == "x_learner":
        return XLearner(models=regressor(base, trees, seed), propensity_model=_propensity(), allow_missing=False)
    if learner == "dr_learner":
        return DRLearner(
            model_propensity=_propensity(),
            model_regression=regressor(base, trees, seed),
            model_final=regressor(base, trees, seed),
            min_propensity=OVERLAP[0],
            random_state=seed,
        )
    if learner == "double_ml":
        return LinearDML(discrete_treatment=True, fit_cate_intercept=False, random_state=seed)
    if learner == "causal_forest":
        return CausalForestDML(
            discrete_treatment=True, n_estimators=trees or 100, n_jobs=1, inference=False, random_state=seed
        )
    raise unknown_name("learner", learner, LEARNERS)


def regressor(base: str, trees: int | None, seed: int | None) -> Any:
    """The base learner called ``base``."""
    if base == "lasso":
        from sklearn.linear_model import Lasso

        return Lasso(random_state=seed)
    if base == "rf":
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(trees or 100, n_jobs=1, random_state=seed)
    if base == "xgb":
        try:
            from xgboost import XGBRegressor
        except ImportError:
            raise MissingExtra("The base learner 'xgb'", "survhte") from None
        return XGBRegressor(n_estimators=trees, n_jobs=1, random_state=seed)
    raise unknown_name("base learner", base, BASES)


def _propensity() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
