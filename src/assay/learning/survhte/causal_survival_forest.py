"""Causal survival forest: honest trees on a doubly robust, censoring-adjusted score (Cui et al. 2023, JRSS-B)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from assay.core.errors import UsageError
from assay.learning.survhte.base import OVERLAP, Array, Mask, SurvivalEffect, read_x
from assay.learning.survhte.honest_forest import HonestForest
from assay.learning.survhte.protocol import Estimand
from assay.learning.survhte.survival_models import SurvivalForest, coarse

_LEAF = 15


class Nuisances(NamedTuple):
    """What the score needs, each row estimated without itself: propensity (n,), grid (k,), survival of the event under
    treatment 1 and 0 and of censoring under the own arm, each (n, k)."""

    propensity: Array
    grid: Array
    treated: Array
    control: Array
    censoring: Array


class CausalSurvivalForest(SurvivalEffect):
    """Forest whose splits follow differences of effects, not of outcomes.

    Parameters
    ----------
    trees
        Honest trees, each on half of the rows.
    min_node
        Nodes up to this size are not split.
    grid
        Points in time, at most, of the nuisance curves.
    folds
        Of cross-fitting.
    nuisance_trees
        Of each forest that estimates propensity, survival and censoring.
    floor
        Smallest chance of being uncensored that is divided by.
    estimand, horizon
        ``rmst`` up to a horizon (None: the longest follow-up), or ``survival`` at it.

    Attributes
    ----------
    clipped_ : float
        Share of rows whose propensity was outside [.01, .99].
    """

    def __init__(
        self,
        *,
        trees: int = 2000,
        min_node: int = 5,
        grid: int = 200,
        folds: int = 2,
        nuisance_trees: int = 50,
        floor: float = 0.05,
        estimand: str = "rmst",
        horizon: float | None = None,
        random_state: int | None = 42,
    ) -> None:
        self.trees = trees
        self.min_node = min_node
        self.grid = grid
        self.folds = folds
        self.nuisance_trees = nuisance_trees
        self.floor = floor
        self.estimand = estimand
        self.horizon = horizon
        self.random_state = random_state

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        if self.trees < 1 or self.folds < 2:
            raise UsageError(f"A forest needs a tree and two folds; got trees={self.trees}, folds={self.folds}.")
        rng = np.random.default_rng(self.random_state)
        estimand = self.target_ if self.horizon is not None else Estimand("rmst", float(time.max()))
        found = self._nuisances(X, W, time, event, rng)
        self.clipped_ = float(np.mean((found.propensity < OVERLAP[0]) | (found.propensity > OVERLAP[1])))
        numerator, denominator = doubly_robust_score(W, time, event, found, estimand, floor=self.floor)
        self.forest_ = HonestForest(self.trees, self.min_node).fit(X, numerator, denominator, rng)

    def _nuisances(
        self, X: Array, W: NDArray[np.int64], time: Array, event: Mask, rng: np.random.Generator
    ) -> Nuisances:
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.model_selection import StratifiedKFold

        n = len(X)
        grid = coarse(time, self.grid)
        e = np.empty(n)
        curves = np.ones((3, n, len(grid)))
        folds = min(self.folds, int(np.bincount(W).min()))
        if folds < 2:
            folds_of = [(np.arange(n), np.arange(n))]
        else:
            splitter = StratifiedKFold(folds, shuffle=True, random_state=int(rng.integers(2**31)))
            folds_of = list(splitter.split(X, 2 * W + event if _enough(W, event, folds) else W))
        for train, held in folds_of:
            seed = int(rng.integers(2**31))
            trees = RandomForestRegressor(2 * self.nuisance_trees, min_samples_leaf=5, random_state=seed)
            e[held] = trees.fit(X[train], W[train]).predict(X[held])
            both = np.column_stack([X, W])
            events = self._curves(both[train], time[train], event[train], grid, seed)
            ending = self._curves(both[train], time[train], ~event[train], grid, seed)
            for w in (0, 1):
                curves[1 - w][held] = events(np.column_stack([X[held], np.full(len(held), w)]))
            curves[2][held] = ending(both[held])
        return Nuisances(e, grid, *curves)

    def _curves(self, X: Any, time: Array, seen: Mask, grid: Array, seed: int):
        """Function from rows to their survival curves on the grid."""
        if not seen.any():
            return lambda rows: np.ones((len(rows), len(grid)))
        model = SurvivalForest(
            trees=self.nuisance_trees, min_leaf=_LEAF, min_split=2 * _LEAF, grid=len(grid), seed=seed
        ).fit(X, time, seen)
        at = np.searchsorted(model.times, grid, side="right")

        def predict(rows: Any) -> Array:
            values = model.survival(rows)
            return np.column_stack([np.ones(len(values)), values])[:, at]

        return predict

    def _effect(self, X: Array) -> Array:
        return self.forest_.predict(X)

    def effect_interval(self, X: Any, *, alpha: float = 0.05) -> tuple[Array, Array]:
        """Pointwise normal intervals of the effects from the forest's own variance; two arrays of shape (m,).

        What the nuisances vary by enters at second order only and is left out.
        """
        effects = self.effect(X)
        spread = np.sqrt(self.forest_.variance(read_x(X, self.n_features_in_))) * float(norm.ppf(1 - alpha / 2))
        return effects - spread, effects + spread


def _enough(W: NDArray[np.int64], event: Mask, folds: int) -> bool:
    counts = np.bincount(2 * W + event, minlength=4)
    return bool(counts[counts > 0].min() >= folds)


def doubly_robust_score(
    W: NDArray[np.int64], time: Array, event: Mask, nuisances: Nuisances, estimand: Estimand, *, floor: float = 0.05
) -> tuple[Array, Array]:
    """Numerator and denominator of the score of each row; shapes (n,). Their ratio of sums estimates the effect.

    The censoring adjustment is a sum over the grid of increments of 1 / P(uncensored), which telescopes: with constant
    outcomes it is exactly that constant.

    Parameters
    ----------
    estimand
        With a horizon.
    floor
        Smallest chance of being uncensored.
    """
    e = np.clip(nuisances.propensity, *OVERLAP)
    grid, h = nuisances.grid, float(estimand.horizon or 0)
    until = np.minimum(time, h)
    known = event | (time >= h)
    own = np.where((W == 1)[:, None], nuisances.treated, nuisances.control)
    later = expected_later(grid, own, estimand)
    mean1 = expected_later(grid, nuisances.treated, estimand)[:, 0]
    mean0 = expected_later(grid, nuisances.control, estimand)[:, 0]
    m = e * mean1 + (1 - e) * mean0
    # Chance to be uncensored just before each grid time: a row that ends there by an event was not censored at it.
    G = np.maximum(np.column_stack([np.ones(len(W)), nuisances.censoring]), floor)
    inverse = 1 / G
    last = np.searchsorted(grid, until, side="right")
    rows = np.arange(len(W))
    # Increments of 1/G at grid times passed, each weighted by what was expected then.
    increments = np.diff(inverse, axis=1) * (later[:, 1:] - m[:, None])
    passed = np.concatenate([np.zeros((len(W), 1)), np.cumsum(increments, axis=1)], axis=1)
    # Rows known at the end pass all grid times before it, censored rows also their own.
    end = np.where(known, np.searchsorted(grid, until, side="left"), last)
    outcome = np.where(known, estimand.of(time), later[rows, last])
    score = (outcome - m) * inverse[rows, end] - passed[rows, end]
    return (W - e) * score, (W - e) ** 2


def expected_later(grid: Array, survival: Array, estimand: Estimand) -> Array:
    """Expected functional given survival past 0 and past each grid time; shape (n, k + 1)."""
    h = float(estimand.horizon or 0)
    S = np.maximum(np.column_stack([np.ones(len(survival)), survival]), 1e-6)
    knots = np.concatenate(([0.0], grid))
    if estimand.kind == "survival":
        at = S[:, np.searchsorted(knots, h, side="right") - 1]
        return np.where(knots[None, :] >= h, 1.0, np.minimum(at[:, None] / S, 1.0))
    ends = np.minimum(np.append(knots[1:], max(h, knots[-1])), h)
    width = np.maximum(ends - knots, 0.0)
    beyond = np.cumsum((S * width)[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(knots + beyond / S, h)
