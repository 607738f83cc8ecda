"""Survival models that the meta-learners stand on: random survival forest, DeepSurv, DeepHit.

A model is fitted to rows and gives curves on a grid of times: ``fit(X, time, event)``, ``times`` (k,), ``survival(X)``
(n, k). ``linear`` says whether the curve is straight between grid points or a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Protocol

import numpy as np

from assay.core.errors import DataError, MissingExtra, unknown_name
from assay.learning.survhte.base import Array, Mask, surv
from assay.learning.survhte.scoring import concordance_td, grid_index

GRID = 200


class SurvivalModel(Protocol):
    """What a model must have."""

    times: Array
    linear: bool

    def fit(self, X: Array, time: Array, event: Mask) -> Any: ...

    def survival(self, X: Array) -> Array: ...


def coarse(time: Array, points: int = GRID) -> Array:
    """Grid of at most ``points`` observed times, evenly spaced among the distinct ones, the last among them."""
    distinct = np.unique(time)
    if len(distinct) <= points:
        return distinct
    places = np.linspace(0, len(distinct) - 1, points).round().astype(int)
    return distinct[places]


class SurvivalForest:
    """scikit-survival's random survival forest on times rounded up to a grid of 200.

    The forest's cost grows with the number of distinct times, which the grid bounds.
    """

    linear = False

    def __init__(
        self, *, trees: int = 50, min_split: int = 10, min_leaf: int = 5, grid: int = GRID, seed: int | None = 0
    ) -> None:
        self.trees, self.min_split, self.min_leaf, self.grid, self.seed = trees, min_split, min_leaf, grid, seed
        self.times: Array = np.empty(0)

    def fit(self, X: Array, time: Array, event: Mask) -> SurvivalForest:
        """Grow the forest."""
        try:
            from sksurv.ensemble import RandomSurvivalForest
        except ImportError:
            raise MissingExtra("The survival model 'rsf'", "survhte") from None
        grid = coarse(time, self.grid)
        if len(grid) == 1:
            raise DataError(f"All rows end at the time {grid[0]:g}: there is no curve to grow a forest on.")
        rounded = grid[grid_index(grid, time)]
        self.forest = RandomSurvivalForest(
            self.trees,
            min_samples_split=max(self.min_split, 2 * self.min_leaf),
            min_samples_leaf=self.min_leaf,
            n_jobs=1,
            random_state=self.seed,
        ).fit(X, surv(event, rounded))
        self.times = np.asarray(self.forest.unique_times_, float)
        return self

    def survival(self, X: Array) -> Array:
        """Curves on ``times``."""
        return np.asarray(self.forest.predict_survival_function(X, return_array=True), float)


def survival_model(name: str, seed: int | None, settings: Mapping[str, Any] | None = None) -> SurvivalModel:
    """The model called ``name`` (rsf, deepsurv, deephit) with these settings."""
    if name == "rsf":
        return SurvivalForest(seed=seed, **(settings or {}))
    if name in ("deepsurv", "deephit"):
        try:
            from assay.learning.survhte import networks
        except ImportError:
            raise MissingExtra(f"The survival model {name!r}", "survhte") from None
        cls = networks.DeepSurv if name == "deepsurv" else networks.DeepHit
        return cls(seed=seed, **(settings or {}))
    raise unknown_name("survival model", name, MODELS)


MODELS = ("rsf", "deepsurv", "deephit")
_NETWORK = {"nodes": (32, 64), "dropout": (0.1, 0.4), "lr": (0.01, 0.001), "epochs": (100, 500)}
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "rsf": {"trees": (50, 100), "min_split": (5, 10), "min_leaf": (3, 5)},
    "deepsurv": _NETWORK,
    "deephit": _NETWORK,
}
"""The benchmark's grids of hyper-parameters."""


def tuned(name: str, X: Array, time: Array, event: Mask, strata: Array, seed: int | None) -> dict[str, Any]:
    """Settings with the highest time-dependent concordance on a fifth of the rows, held out by event and ``strata``."""
    from sklearn.model_selection import train_test_split

    label = 2 * np.asarray(strata, int) + np.asarray(event, int)
    counts = np.bincount(label)
    stratify = label if counts[counts > 0].min() >= 2 else None
    train, held = train_test_split(np.arange(len(X)), test_size=0.2, stratify=stratify, random_state=seed)
    grid = GRIDS[name]
    found: list[tuple[float, dict[str, Any]]] = []
    for values in product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        model = survival_model(name, seed, settings).fit(X[train], time[train], event[train])
        curves = model.survival(X[held])
        score = concordance_td(curves, grid_index(model.times, time[held]), time[held], event[held])
        found.append((-1.0 if np.isnan(score) else score, settings))
    return max(found, key=lambda one: one[0])[1]
