"""Outcome imputation: censored times are completed, then a learner of causal effects for complete outcomes is fitted.

Four meta-learners with three base regressors, double machine learning and causal forests, all of econml.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingExtra, unknown_name
from assay.learning.survhte.base import Array, Mask, SurvivalEffect
from assay.learning.survhte.imputation import IMPUTERS, impute, ipcw_weights

LEARNERS = ("t_learner", "s_learner", "x_learner", "dr_learner", "double_ml", "causal_forest")
BASES = ("lasso", "rf", "xgb")
_CLIP = 0.01


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
        if self.imputer == "ipcw":
            y = self.target_.of(time) * ipcw_weights(time, event, self.horizon)
        elif self.imputer in IMPUTERS:
            y = self.target_.of(impute(self.imputer, time, event))
        else:
            raise unknown_name("imputer", self.imputer, [*IMPUTERS, "ipcw"])
        self.outcome_ = y
        self.model_ = self._learner()
        self.model_.fit(y, W, X=X)

    def _effect(self, X: Array) -> Array:
        return self.model_.effect(X)

    def _learner(self) -> Any:
        try:
            from econml.dml import CausalForestDML, LinearDML
            from econml.dr import DRLearner
            from econml.metalearners import SLearner, TLearner, XLearner
        except ImportError:
            raise MissingExtra(f"The learner {self.learner!r}", "survhte") from None
        seed = self.random_state
        if self.learner == "t_learner":
            return TLearner(models=self._regressor())
        if self.learner == "s_learner":
            return SLearner(overall_model=self._regressor())
        if self.learner == "x_learner":
            return XLearner(models=self._regressor(), propensity_model=_propensity(), allow_missing=False)
        if self.learner == "dr_learner":
            return DRLearner(
                model_propensity=_propensity(),
                model_regression=self._regressor(),
                model_final=self._regressor(),
                min_propensity=_CLIP,
                random_state=seed,
            )
        if self.learner == "double_ml":
            return LinearDML(discrete_treatment=True, fit_cate_intercept=False, random_state=seed)
        if self.learner == "causal_forest":
            return CausalForestDML(
                discrete_treatment=True, n_estimators=self.trees or 100, n_jobs=1, inference=False, random_state=seed
            )
        raise unknown_name("learner", self.learner, LEARNERS)

    def _regressor(self) -> Any:
        if self.base == "lasso":
            from sklearn.linear_model import Lasso

            return Lasso(random_state=self.random_state)
        if self.base == "rf":
            from sklearn.ensemble import RandomForestRegressor

            return RandomForestRegressor(self.trees or 100, n_jobs=1, random_state=self.random_state)
        if self.base == "xgb":
            try:
                from xgboost import XGBRegressor
            except ImportError:
                raise MissingExtra("The base learner 'xgb'", "survhte") from None
            return XGBRegressor(n_estimators=self.trees, n_jobs=1, random_state=self.random_state)
        raise unknown_name("base learner", self.base, BASES)


def _propensity() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
