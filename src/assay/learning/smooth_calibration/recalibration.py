"""Post-hoc recalibration, for comparison: fit on held-out predictions, apply to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from assay.core.errors import UsageError, unknown_name
from assay.learning.smooth_calibration.exact import smooth_ce
from assay.learning.smooth_calibration.inputs import Vector, expit, log_loss_of_logits, logit_of, paired, probabilities
from assay.learning.smooth_calibration.measures import brier, log_loss
from assay.learning.smooth_calibration.postprocess import post_processing_gap, post_processing_gap_logit

Map = Callable[[Vector], Vector]


class Recalibrator(BaseEstimator):
    """A map from probability to probability, learnt from predictions and labels.

    Parameters
    ----------
    method
        ``platt`` (slope and shift of the logit), ``temperature`` (slope alone), ``beta`` (Kull, Silva Filho and Flach
        2017), ``isotonic``, ``histogram`` (mean label in bins), ``lipschitz`` and ``lipschitz_logit`` (the correction
        behind the post-processing gaps).
    bins
        Of the histogram, of equal mass.
    """

    def __init__(self, method: str = "isotonic", bins: int = 15) -> None:
        self.method = method
        self.bins = bins

    def fit(self, y_prob: ArrayLike, y_true: ArrayLike) -> Self:
        """Fit to probabilities and labels, shape (n,); one class alone gives that class's rate where it must."""
        y, p = paired(y_true, y_prob)
        if self.method not in METHODS:
            raise unknown_name("recalibration", self.method, METHODS)
        self.map_: Map = METHODS[self.method](y, p, self.bins)
        return self

    def transform(self, y_prob: ArrayLike) -> Vector:
        """Recalibrated probabilities, shape (n,)."""
        check_is_fitted(self)
        return np.clip(self.map_(probabilities(y_prob)), 0.0, 1.0)

    def fit_transform(self, y_prob: ArrayLike, y_true: ArrayLike) -> Vector:
        """Fit and apply to the same predictions."""
        return self.fit(y_prob, y_true).transform(y_prob)


def compare_recalibrations(
    y_prob: ArrayLike, y_true: ArrayLike, *, folds: int = 5, rng: np.random.Generator
) -> dict[str, dict[str, float]]:
    """Smooth error, Brier score and log loss before (``none``) and after each recalibration, cross-fitted.

    Every prediction is recalibrated by a map that was fitted without it; maps of different folds are pooled.

    Parameters
    ----------
    folds
        2 to n.
    rng
        Deals the samples out to the folds.
    """
    y, p = paired(y_true, y_prob)
    if not 2 <= folds <= len(y):
        raise UsageError(f"folds={folds} does not fit {len(y)} samples; give 2 to {len(y)}.")
    fold = rng.permutation(np.arange(len(y)) % folds)
    changed = {"none": p} | {name: np.empty_like(p) for name in METHODS}
    for k in range(folds):
        held = fold == k
        for name in METHODS:
            changed[name][held] = Recalibrator(name).fit(p[~held], y[~held]).transform(p[held])
    measures = {"smooth_ce": smooth_ce, "brier": brier, "log_loss": log_loss}
    return {name: {m: float(f(y, q)) for m, f in measures.items()} for name, q in changed.items()}


def _platt(y: Vector, p: Vector, bins: int) -> Map:
    # Platt's targets: the counts' posterior means keep the slope finite on separated data.
    ones = y.sum()
    soft = np.where(y == 1, (ones + 1) / (ones + 2), 1 / (len(y) - ones + 2))
    slope, shift = _least(lambda v: _cross_entropy(soft, v[0] * logit_of(p) + v[1]), [1.0, 0.0])
    return lambda q: expit(slope * logit_of(q) + shift)


def _temperature(y: Vector, p: Vector, bins: int) -> Map:
    # By the logarithm of the slope, within [e^-6, e^6]: separated data would take it to infinity.
    from scipy.optimize import minimize_scalar

    found: Any = minimize_scalar(
        lambda s: _cross_entropy(y, np.exp(s) * logit_of(p)), bounds=(-6.0, 6.0), method="bounded"
    )
    slope = float(np.exp(found.x))
    return lambda q: expit(slope * logit_of(q))


def _beta(y: Vector, p: Vector, bins: int) -> Map:
    def g(q: Vector, v: ArrayLike) -> Vector:
        a, b, c = np.asarray(v)
        inside = np.clip(q, 1e-15, 1 - 1e-15)
        return a * np.log(inside) - b * np.log1p(-inside) + c

    ones = y.sum()
    soft = np.where(y == 1, (ones + 1) / (ones + 2), 1 / (len(y) - ones + 2))
    # Slopes below 0 would not be monotone.
    found = _least(lambda v: _cross_entropy(soft, g(p, v)), [1.0, 1.0, 0.0], [(0, None), (0, None), (None, None)])
    return lambda q: expit(g(q, found))


def _isotonic(y: Vector, p: Vector, bins: int) -> Map:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, y).predict


def _histogram(y: Vector, p: Vector, bins: int) -> Map:
    edges = np.unique(np.quantile(p, np.linspace(0, 1, bins + 1)[1:-1]))
    at = np.searchsorted(edges, p, side="right")
    counts = np.bincount(at, minlength=len(edges) + 1)
    means = np.divide(
        np.bincount(at, y, len(edges) + 1), counts, out=np.full(len(edges) + 1, y.mean()), where=counts > 0
    )
    return lambda q: means[np.searchsorted(edges, q, side="right")]


def _lipschitz(y: Vector, p: Vector, bins: int) -> Map:
    correction = post_processing_gap(y, p, return_correction=True)[1]
    return lambda q: q + correction(q)


def _lipschitz_logit(y: Vector, p: Vector, bins: int) -> Map:
    correction = post_processing_gap_logit(y, logit_of(p), return_correction=True)[1]
    return lambda q: expit(logit_of(q) + correction(logit_of(q)))


METHODS: dict[str, Callable[[Vector, Vector, int], Map]] = {
    "platt": _platt,
    "temperature": _temperature,
    "beta": _beta,
    "isotonic": _isotonic,
    "histogram": _histogram,
    "lipschitz": _lipschitz,
    "lipschitz_logit": _lipschitz_logit,
}


def _cross_entropy(target: Vector, g: Vector) -> float:
    return float(log_loss_of_logits(target, g).mean())


def _least(loss: Callable[[Any], float], start: list[float], bounds: Any = None) -> Vector:
    from scipy.optimize import minimize

    return minimize(loss, np.array(start), method="L-BFGS-B", bounds=bounds).x
