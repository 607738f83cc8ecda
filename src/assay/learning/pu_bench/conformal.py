"""Thresholds and p-values with a promise that holds at any sample size, from labelled positives set aside."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, check_random_state

from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.estimators.base import TwoClasses, check_labels


def conformal_threshold(scores: ArrayLike, alpha: float) -> float:
    """The highest threshold that a fresh positive's score reaches with probability at least ``1 - alpha``.

    Parameters
    ----------
    scores
        Of labelled positives that the model was not trained on. The promise is for positives drawn as they were: all
        positives where labels were given at random, those like the labelled ones otherwise.
    alpha
        Share of positives that may be missed, in (0, 1).

    Returns
    -------
    float
        Minus infinity where there are too few scores (fewer than ``1 / alpha - 1``).

    References
    ----------
    Vovk, Gammerman and Shafer 2005, Algorithmic Learning in a Random World.
    """
    ranked = np.sort(_scores(scores))
    if not 0 < alpha < 1:
        raise BadInput(f"alpha must lie strictly between 0 and 1; got {alpha}.")
    # The least float above: 0.1 * 30 counts as 3, not as a hair less.
    at = math.floor(np.nextafter(alpha * (len(ranked) + 1), math.inf))
    return float(ranked[at - 1]) if at else -math.inf


def conformal_p_values(scores: ArrayLike, fresh: ArrayLike) -> NDArray[np.float64]:
    """p-values of "this row is positive": rank of each fresh score among those of held-out positives, ties counted."""
    ranked = np.sort(_scores(scores))
    return (np.searchsorted(ranked, np.asarray(fresh, float), side="right") + 1) / (len(ranked) + 1)


def _scores(scores: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(scores, float)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise BadInput("scores must be at least one finite number a held-out positive, (n,).")
    return found


@dataclass(eq=False, repr=False, kw_only=True)
class ConformalPU(TwoClasses, BaseEstimator):
    """A classifier that misses at most a share ``alpha`` of positives, whatever model scores them.

    A part of the labelled rows, with their copies, is kept from the model; its threshold is put at their scores.

    Parameters
    ----------
    estimator
        With ``fit(X, s)`` and ``decision_function`` or ``predict_proba``; a copy is fitted.
    alpha
        See `conformal_threshold`.
    holdout
        Share of the labelled rows set aside.

    Attributes
    ----------
    estimator_, threshold_, held_scores_
        The fitted copy, the threshold of its scores, the scores of the rows set aside.
    """

    estimator: Any = None
    alpha: float = 0.1
    holdout: float = 0.3
    random_state: Any = 0

    def fit(self, X: ArrayLike, s: ArrayLike, *, source_index: ArrayLike | None = None) -> ConformalPU:
        """Learn from all rows but the labelled ones set aside; ``source_index`` is equal for copies of one row."""
        x = np.asarray(X)
        self.classes_, labelled = check_labels(s)
        if self.estimator is None:
            raise BadInput("ConformalPU needs an estimator.")
        if not 0 < self.holdout < 1:
            raise BadInput(f"holdout must lie strictly between 0 and 1; got {self.holdout}.")
        if labelled.sum() < 2:
            raise BadInput("ConformalPU needs two labelled positives: one to learn from, one to set aside.")
        keys = np.arange(len(x)) if source_index is None else np.asarray(source_index)
        rng = np.random.default_rng(int(check_random_state(self.random_state).randint(2**31 - 1)))
        sources = np.unique(keys[labelled])
        out = rng.permutation(sources)[: min(len(sources) - 1, max(1, round(self.holdout * len(sources))))]
        aside = np.isin(keys, out)
        model: Any = clone(self.estimator)
        more = {"source_index": keys[~aside]} if "source_index" in inspect.signature(model.fit).parameters else {}
        self.estimator_: Any = model.fit(x[~aside], np.asarray(s)[~aside], **more)
        held = aside & labelled
        self.held_scores_ = self._scored(x[held])
        self.threshold_ = conformal_threshold(self.held_scores_, self.alpha)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores beyond the threshold; a score at the threshold is positive, (n,)."""
        check_is_fitted(self)
        below = np.nextafter(self.threshold_, -np.inf) if np.isfinite(self.threshold_) else -np.finfo(float).max
        return self._scored(np.asarray(X)) - below

    def p_values(self, X: ArrayLike) -> NDArray[np.float64]:
        """`conformal_p_values` of rows: small where a row is unlike the positives, (n,)."""
        check_is_fitted(self)
        return conformal_p_values(self.held_scores_, self._scored(np.asarray(X)))

    def _scored(self, x: NDArray) -> NDArray[np.float64]:
        if hasattr(self.estimator_, "decision_function"):
            return np.asarray(self.estimator_.decision_function(x), float)
        return np.asarray(self.estimator_.predict_proba(x), float)[:, 1]
