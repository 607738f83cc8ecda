"""MISTR: causal forests on times that survival trees have imputed again and again (Meir, Shalit and Gorfine 2025).

Censored times are drawn from survival trees' curves given that they are later than the censoring; trees are grown anew
on the completed rows, and so on (recursively imputed survival trees, Zhu and Kosorok 2012). Several completions, a
causal forest on each, and Rubin's rules for the whole. No weights of censoring are needed. Written from the papers'
descriptions; the authors' code is in R and was not compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingExtra, UsageError
from assay.learning.survhte.base import Array, Mask, SurvivalEffect, read_x, surv
from assay.learning.survhte.outcome import check_folds
from assay.learning.survhte.scoring import grid_index
from assay.learning.survhte.survival_models import coarse

_LEAF = 6
_NUISANCE_TREES = 100


class RecursivelyImputed(SurvivalEffect):
    """Causal forests on recursively imputed times, averaged.

    Parameters
    ----------
    imputations
        Completed data sets.
    rounds
        Times that the trees are grown on completed rows and draw anew.
    survival_trees
        Of a round, shared among the data sets.
    trees
        Of each causal forest; a multiple of four.
    grid
        Points in time, at most, of the survival trees.
    estimand, horizon
        ``rmst`` up to a horizon (None: the longest follow-up), or ``survival`` at it.

    Attributes
    ----------
    outcome_ : ndarray of shape (n,)
        Completed outcomes of the training rows, averaged over data sets.
    """

    def __init__(
        self,
        *,
        imputations: int = 10,
        rounds: int = 3,
        survival_trees: int = 50,
        trees: int = 100,
        grid: int = 100,
        estimand: str = "rmst",
        horizon: float | None = None,
        random_state: int | None = 42,
    ) -> None:
        self.imputations = imputations
        self.rounds = rounds
        self.survival_trees = survival_trees
        self.trees = trees
        self.grid = grid
        self.estimand = estimand
        self.horizon = horizon
        self.random_state = random_state

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        check_folds("causal_forest", W)
        rng = np.random.default_rng(self.random_state)
        completed = imputed_times(
            np.column_stack([X, W.astype(float)]),
            time,
            event,
            self.imputations,
            self.rounds,
            self.survival_trees,
            self.grid,
            rng,
        )
        outcomes = self.target_.of(completed)
        self.outcome_ = outcomes.mean(axis=0)
        # Treatment is not imputed, so its model serves all data sets.
        treated = W - _without_itself(X, W.astype(float), W, int(rng.integers(2**31)))
        self.models_ = []
        for y in outcomes:
            seed = int(rng.integers(2**31))
            residual = y - _without_itself(X, y, W, seed)
            self.models_.append(causal_forest(self.trees, seed).fit(X, treated, residual))

    def _effect(self, X: Array) -> Array:
        return self._each(X).mean(axis=0)

    def _each(self, X: Array) -> Array:
        """Effects by every forest; shape (imputations, m)."""
        return np.array([np.asarray(model.predict(X), float).reshape(-1) for model in self.models_])

    def effect_interval(self, X: Any, *, alpha: float = 0.05) -> tuple[Array, Array]:
        """Pointwise normal intervals: the forests' own variance and that between data sets; two arrays (m,)."""
        from scipy.stats import norm

        X = read_x(X, self.n_features_in_)
        each = self._each(X)
        effects = each.mean(axis=0)
        within = np.mean([np.asarray(m.prediction_stderr(X), float).reshape(-1) ** 2 for m in self.models_], axis=0)
        between = each.var(axis=0, ddof=1) if len(each) > 1 else np.zeros_like(within)
        spread = np.sqrt(within + (1 + 1 / len(each)) * between) * float(norm.ppf(1 - alpha / 2))
        return effects - spread, effects + spread


def causal_forest(trees: int, seed: int) -> Any:
    """econml's forest on residuals of outcome and treatment, with variance."""
    try:
        from econml.grf import CausalForest
    except ImportError:
        raise MissingExtra("A causal forest", "survhte") from None
    return CausalForest(trees, min_samples_leaf=5, inference=True, n_jobs=1, random_state=seed)


def _without_itself(X: Array, y: Array, W: NDArray[np.int64], seed: int) -> Array:
    """What a random forest that has not seen the row expects; two folds, each with both arms."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(2, shuffle=True, random_state=seed)
    model = RandomForestRegressor(_NUISANCE_TREES, min_samples_leaf=5, n_jobs=1, random_state=seed)
    return np.asarray(cross_val_predict(model, X, y, cv=folds.split(X, W)), float)


def imputed_times(
    X: Array, time: Array, event: Mask, imputations: int, rounds: int, trees: int, grid: int, rng: np.random.Generator
) -> Array:
    """Completed times; shape (imputations, n). Events stay; draws beyond the longest follow-up are set to it.

    Each data set has trees of its own, and draws from the mean of all trees' curves.

    Raises
    ------
    UsageError
        Fewer than one imputation, round, or tree a data set.
    """
    if imputations < 1 or rounds < 1 or trees < imputations:
        raise UsageError(
            "Recursive imputation needs a data set, a round, and a tree a data set; got "
            f"imputations={imputations}, rounds={rounds}, survival_trees={trees}."
        )
    times = coarse(time, grid)
    end = float(time.max())
    hidden = ~event
    if len(times) == 1 or not hidden.any():
        return np.tile(time, (imputations, 1))
    share = trees // imputations
    curves = _curves(X, time, event, times, trees, X[hidden], rng)
    sets = np.tile(time, (imputations, 1))
    for place in range(rounds + 1):
        for one in sets:
            one[hidden] = drawn_beyond(times, curves, time[hidden], end, rng)
        if place < rounds:
            curves = np.mean(
                [_curves(X, one, event | (hidden & (one < end)), times, share, X[hidden], rng) for one in sets], axis=0
            )
    return sets


def _curves(
    X: Array, time: Array, event: Mask, times: Array, trees: int, rows: Array, rng: np.random.Generator
) -> Array:
    """Curves of rows on the grid, from extremely randomised survival trees."""
    try:
        from sksurv.ensemble import ExtraSurvivalTrees
    except ImportError:
        raise MissingExtra("Recursive imputation", "survhte") from None
    rounded = times[grid_index(times, time)]
    forest = ExtraSurvivalTrees(
        trees, min_samples_leaf=_LEAF, min_samples_split=2 * _LEAF, n_jobs=1, random_state=int(rng.integers(2**31))
    ).fit(X, surv(event, rounded))
    found = np.asarray(forest.predict_survival_function(rows, return_array=True), float)
    at = np.searchsorted(np.asarray(forest.unique_times_, float), times, side="right")
    return np.column_stack([np.ones(len(rows)), found])[:, at]


def drawn_beyond(times: Array, curves: Array, after: Array, end: float, rng: np.random.Generator) -> Array:
    """A time of each row drawn from its step curve given that it is later than ``after``; ``end`` where none is left.

    Parameters
    ----------
    times, curves
        Grid (k,) and survival (n, k).
    """
    here = np.column_stack([np.ones(len(curves)), curves])[
        np.arange(len(curves)), np.searchsorted(times, after, side="right")
    ]
    target = rng.uniform(size=len(curves)) * here
    later = (times[None, :] > after[:, None]) & (curves <= target[:, None])
    first = later.argmax(axis=1)
    return np.where(later.any(axis=1), times[first], np.maximum(end, after))
