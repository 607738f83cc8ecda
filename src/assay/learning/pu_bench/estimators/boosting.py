"""Boosted trees with the non-negative risk as objective: a tabular baseline beside the published methods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import lightgbm
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.estimators.base import TwoClasses, check_labels
from assay.learning.pu_bench.prior import resolve_prior

# scikit-learn's annotations are guesses from its defaults.
_validated: Any = validate_data


def risk_gradient(
    g: NDArray[np.float64], labelled: NDArray[np.bool_], prior: float, *, gamma: float = 1.0, beta: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(gradient, curvature) a row of the non-negative logistic risk times the number of rows.

    The curvature is that of the cross-entropy which each row has a part in: that of the risk itself is negative at
    labelled rows, where a Newton step would climb.

    Parameters
    ----------
    g
        Logits (n,).
    labelled
        Mask (n,), with at least one row of either kind.
    """
    p = np.exp(-np.logaddexp(0.0, -g))
    of_l, of_u = prior / labelled.sum(), 1 / (~labelled).sum()
    cost = np.logaddexp(0.0, g)
    weight = np.where(labelled, of_l, of_u)
    negative = np.where(labelled, -of_l, of_u)
    if float(negative @ cost) < -beta:
        gradient = -gamma * negative * p
    else:
        gradient = negative * p + np.where(labelled, of_l * (p - 1), 0.0)
    return len(g) * gradient, len(g) * np.maximum(weight * p * (1 - p), 1e-6 * weight)


@dataclass(eq=False, repr=False, kw_only=True)
class PUBoostClassifier(TwoClasses, BaseEstimator):
    """LightGBM on the non-negative risk (Kiryo et al. 2017) with the logistic loss.

    Parameters
    ----------
    prior
        See `assay.learning.pu_bench.estimators.base.PUNet`.
    n_estimators, learning_rate, num_leaves, min_child_samples, reg_lambda
        As in LightGBM.
    gamma, beta
        Of the risk.

    Attributes
    ----------
    prior_, booster_
        As used.
    """

    prior: Any = None
    n_estimators: int = 100
    learning_rate: float = 0.05
    num_leaves: int = 7
    min_child_samples: int = 10
    reg_lambda: float = 1.0
    gamma: float = 1.0
    beta: float = 0.0
    random_state: Any = 0

    supervision: ClassVar[str] = "pu"
    needs_prior: ClassVar[bool] = True

    def fit(self, X: ArrayLike, s: ArrayLike, *, source_index: ArrayLike | None = None) -> Any:
        """Boost; rows of more axes than one are flattened. See `PUNet.fit`."""
        x, labels = _validated(self, X, s, dtype=np.float64, allow_nd=True, ensure_min_samples=2)
        self.classes_, labelled = check_labels(labels)
        if min(self.n_estimators, self.min_child_samples) < 1 or self.num_leaves < 2 or self.learning_rate <= 0:
            raise BadInput(
                "n_estimators and min_child_samples must be at least 1, num_leaves at least 2, learning_rate above 0."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        groups = None if source_index is None else np.asarray(source_index)
        self.prior_ = resolve_prior(self.prior, x, labelled.astype(int), groups, seed)
        self._start = math.log(self.prior_ / (1 - self.prior_))
        flat = x.reshape(len(x), -1)

        def objective(raw: NDArray, _: Any) -> tuple[NDArray, NDArray]:
            return risk_gradient(raw + self._start, labelled, self.prior_, gamma=self.gamma, beta=self.beta)

        settings = {
            "objective": objective, "learning_rate": self.learning_rate, "num_leaves": self.num_leaves,
            "min_child_samples": self.min_child_samples, "reg_lambda": self.reg_lambda, "seed": seed,
            "num_threads": 1, "deterministic": True, "verbose": -1, "feature_pre_filter": False,
        }  # fmt: skip
        self.booster_ = lightgbm.train(settings, lightgbm.Dataset(flat, labelled.astype(float)), self.n_estimators)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logits: positive where strictly above 0, (n,)."""
        check_is_fitted(self)
        x = _validated(self, X, dtype=np.float64, allow_nd=True, reset=False)
        raw: Any = self.booster_.predict(x.reshape(len(x), -1), raw_score=True, num_threads=1)
        return np.asarray(raw, float) + self._start

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, 2): the other class, the positive one."""
        positive = np.exp(-np.logaddexp(0.0, -self.decision_function(X)))
        return np.column_stack([1 - positive, positive])
