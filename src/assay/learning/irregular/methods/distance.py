"""Classifiers on elastic measures: nearest neighbours under DTW, and support vectors on an LCSS kernel."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.svm import SVC

from assay.core.errors import UsageError
from assay.learning.irregular.array import Array
from assay.learning.irregular.methods.base import Panel, SeriesClassifier, standardise


class KNNDTW(SeriesClassifier):
    """k nearest neighbours under dynamic time warping in a Sakoe-Chiba band.

    Parameters
    ----------
    n_neighbors
        Votes.
    radius
        Of the band, in cells; None = no band.
    weights
        ``uniform``, or ``distance`` (votes by 1 / distance).
    time_weight
        Above 0, time stamps (in [0, 1] by series) times this weight are a further channel: a warp costs real time.
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        radius: int | None = 10,
        weights: Literal["uniform", "distance"] = "uniform",
        time_weight: float = 0.0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.weights = weights
        self.time_weight = time_weight

    def _series(self, panel: Panel) -> tuple[Array, Array]:
        from assay.learning.irregular.methods import elastic

        values = panel.values
        if self.time_weight > 0:
            values = np.concatenate([values, self.time_weight * unit_times(panel)[:, None]], axis=1)
        return elastic.from_padded(values)

    def _fit(self, panel: Panel, codes: Array) -> None:
        if not self.n_neighbors >= 1:
            raise UsageError(f"n_neighbors={self.n_neighbors} must be at least 1.")
        if self.weights not in ("uniform", "distance"):
            raise UsageError(f"weights={self.weights!r} is neither 'uniform' nor 'distance'.")
        self._train, self._codes = self._series(panel), codes

    def _proba(self, panel: Panel) -> Array:
        from assay.learning.irregular.methods import elastic

        k = min(self.n_neighbors, len(self._codes))
        distances, places = elastic.nearest(self._series(panel), self._train, k, self.radius)
        votes = np.ones_like(distances)
        if self.weights == "distance":
            exact = distances == 0
            votes = np.where(exact.any(axis=1, keepdims=True), exact, 1 / np.where(exact, 1, distances))
        out = np.zeros((len(panel), len(self.classes_)))
        np.add.at(out, (np.arange(len(panel))[:, None], self._codes[places]), votes)
        return out / out.sum(axis=1, keepdims=True)


class LCSSSVM(SeriesClassifier):
    """Support vector machine on the longest-common-subsequence kernel of standardised series.

    What a channel misses is dropped before series are compared, stamps at which any channel is missing too. The
    probabilities are one-hot of the prediction, as published.

    Parameters
    ----------
    radius
        Of the Sakoe-Chiba band; None = no band.
    eps
        Euclidean distance within which points match.
    C, max_iter
        Of `sklearn.svm.SVC`.
    """

    def __init__(self, radius: int | None = 10, eps: float = 1.0, C: float = 1.0, max_iter: int = 1000) -> None:
        self.radius = radius
        self.eps = eps
        self.C = C
        self.max_iter = max_iter

    def _series(self, panel: Panel) -> tuple[Array, Array]:
        from assay.learning.irregular.methods import elastic

        found = []
        for x in standardise(panel.values):
            whole = x[:, ~np.isnan(x).any(axis=0)]
            if whole.shape[1] == 0:
                # No stamp has all channels: those that were seen, what is missing as the channel's mean.
                whole = np.nan_to_num(x[:, ~np.isnan(x).all(axis=0)])
            found.append(whole.T if whole.shape[1] else np.zeros((1, len(x))))
        return elastic.flatten(found)

    def _fit(self, panel: Panel, codes: Array) -> None:
        import warnings

        from sklearn.exceptions import ConvergenceWarning

        from assay.learning.irregular.methods import elastic

        self._train = self._series(panel)
        kernel = elastic.lcss_matrix(self._train, self._train, self.eps, self.radius, same=True)
        self.svc_ = SVC(kernel="precomputed", C=self.C, max_iter=self.max_iter)
        with warnings.catch_warnings():
            # The published limit of iterations is often reached.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.svc_.fit(kernel, codes)
        self.n_iter_ = int(np.max(self.svc_.n_iter_))

    def _proba(self, panel: Panel) -> Array:
        from assay.learning.irregular.methods import elastic

        kernel = elastic.lcss_matrix(self._series(panel), self._train, self.eps, self.radius)
        return np.eye(len(self.classes_))[self.svc_.predict(kernel)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Standardised series of two or three points, as scikit-learn's checks bring, are alike.
        tags.classifier_tags.poor_score = True
        return tags


def unit_times(panel: Panel) -> Array:
    """Times of each series from 0 to 1, [n, T], NaN after its end."""
    low = np.nanmin(np.where(np.isnan(panel.times), np.inf, panel.times), axis=1, keepdims=True)
    high = np.nanmax(np.where(np.isnan(panel.times), -np.inf, panel.times), axis=1, keepdims=True)
    low, high = np.where(np.isinf(low), 0.0, low), np.where(np.isinf(high), 0.0, high)
    return (panel.times - low) / np.where(high > low, high - low, 1.0)


def relative_intervals(panel: Panel) -> Array:
    """Time since the stamp before, by the mean interval of its series, [n, T]: 1 where sampling is even.

    The first stamp of a series has 1, too; NaN after its end.
    """
    t = unit_times(panel)
    steps = np.diff(t, axis=1) * np.maximum(panel.lengths - 1, 1)[:, None]
    first = np.where(np.isnan(t[:, :1]), np.nan, 1.0)
    return np.concatenate([first, steps], axis=1)
