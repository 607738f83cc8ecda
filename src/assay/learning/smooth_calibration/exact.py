"""Smooth calibration error, exact in O(n log n): value, witness, gradient, for probabilities and for logits.

Definitions after Blasiok, Gopalan, Hu and Nakkiran 2023 (arXiv 2211.16886) and Futami and Nitanda (arXiv 2505.19396).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError
from assay.learning.smooth_calibration.chains import lipschitz_chain, lipschitz_value, merge_classes, merge_ties
from assay.learning.smooth_calibration.inputs import Vector, expit, labels, logits, paired, probabilities, weights

LOGIT_LIPSCHITZ = 0.25


@dataclass(frozen=True, slots=True)
class Witness:
    """The test function that attains the error, with a certificate.

    Attributes
    ----------
    points, values
        Distinct predictions in order, shape (m,), and the function there, in [-1, 1]; calling it interpolates, which
        keeps the Lipschitz constant.
    residuals
        Weighted mean of label minus prediction at each point, shape (m,); the error is ``values @ residuals``.
    lipschitz
        1 on probabilities, 1/4 on logits.
    gap
        Upper bound (dual value) minus the attained value: rounding error, about 1e-16.
    """

    points: Vector
    values: Vector
    residuals: Vector
    lipschitz: float
    gap: float

    def __call__(self, at: ArrayLike) -> Vector:
        """The function at any predictions."""
        return np.interp(np.asarray(at, float), self.points, self.values)


@overload
def smooth_ce(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    return_witness: Literal[False] = False,
) -> float: ...
@overload
def smooth_ce(
    y_true: ArrayLike, y_prob: ArrayLike, *, sample_weight: ArrayLike | None = None, return_witness: Literal[True]
) -> tuple[float, Witness]: ...
def smooth_ce(
    y_true: ArrayLike, y_prob: ArrayLike, *, sample_weight: ArrayLike | None = None, return_witness: bool = False
) -> float | tuple[float, Witness]:
    """Smooth calibration error: sup over 1-Lipschitz h, |h| <= 1, of the mean of h(p) (y - p). Exact.

    Parameters
    ----------
    y_true
        Labels 0 and 1, shape (n,); one class alone is allowed.
    y_prob
        Predicted probability of label 1, shape (n,). Equal values are one point.
    sample_weight
        At least 0, shape (n,).
    return_witness
        Return the maximising function too.

    Returns
    -------
    float or (float, Witness)
        In [0, 1], at most the mean of |y - p|.

    Raises
    ------
    DataError
        Empty input, lengths that differ, NaN, probabilities outside [0, 1], labels other than 0 and 1, negative
        weights.
    """
    y, p = paired(y_true, y_prob)
    if return_witness:
        found = _solve(p, y - p, weights(sample_weight, len(y)), 1.0)
        return found.value, found.witness()
    if sample_weight is not None:
        return _value(p, y - p, weights(sample_weight, len(y)), 1.0)
    # Two plain sorts and a merge cost a fraction of one sort of positions.
    one = y == 1
    points, residuals = merge_classes(np.sort(p[~one]), np.sort(p[one]))
    return _chain_value(points, residuals / len(y), 1.0)


@overload
def smooth_ce_logit(
    y_true: ArrayLike,
    logit: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    return_witness: Literal[False] = False,
) -> float: ...
@overload
def smooth_ce_logit(
    y_true: ArrayLike, logit: ArrayLike, *, sample_weight: ArrayLike | None = None, return_witness: Literal[True]
) -> tuple[float, Witness]: ...
def smooth_ce_logit(
    y_true: ArrayLike, logit: ArrayLike, *, sample_weight: ArrayLike | None = None, return_witness: bool = False
) -> float | tuple[float, Witness]:
    """Dual smooth calibration error: sup over 1/4-Lipschitz h of the logit, |h| <= 1, of the mean of h(g) (y -
    sigma(g)).

    At least ``smooth_ce`` of the probabilities, at most the mean of |y - sigma(g)|. Parameters as `smooth_ce`; logits
    may be infinite.
    """
    y, g = paired(y_true, logit, logits)
    residual, each = y - expit(g), weights(sample_weight, len(y))
    if not return_witness:
        return _value(g, residual, each, LOGIT_LIPSCHITZ)
    found = _solve(g, residual, each, LOGIT_LIPSCHITZ)
    return found.value, found.witness()


def smooth_ce_gradient(
    y_true: ArrayLike, y_prob: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> tuple[float, Vector]:
    """Error and its gradient with respect to the predictions, shape (n,).

    From the dual solution, so exact wherever the error is differentiable: h'(p)(y - p) - h(p), weighted. Equal
    predictions are moved together, and share the slope term by weight.
    """
    y, p = paired(y_true, y_prob)
    each = weights(sample_weight, len(y))
    found = _solve(p, y - p, each, 1.0)
    return found.value, found.gradient(each, np.ones_like(p))


def smooth_ce_logit_gradient(
    y_true: ArrayLike, logit: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> tuple[float, Vector]:
    """As `smooth_ce_gradient`, for `smooth_ce_logit` with respect to the logits."""
    y, g = paired(y_true, logit, logits)
    each = weights(sample_weight, len(y))
    p = expit(g)
    found = _solve(g, y - p, each, LOGIT_LIPSCHITZ)
    return found.value, found.gradient(each, p * (1 - p))


def smooth_ce_many(
    y_true: ArrayLike, scores: ArrayLike, *, logit: bool = False, sample_weight: ArrayLike | None = None
) -> Vector:
    """Errors of many predictors on one set of labels.

    Parameters
    ----------
    scores
        Probabilities, or logits with ``logit=True``, shape (k, n).

    Returns
    -------
    ndarray
        Shape (k,).
    """
    y = labels(y_true)
    rows = np.asarray(scores, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(y):
        raise DataError(f"scores has shape {rows.shape}; give one row a predictor and {len(y)} columns.")
    each = weights(sample_weight, len(y))
    found = np.empty(len(rows))
    for k, row in enumerate(rows):
        values = logits(row, f"scores[{k}]") if logit else probabilities(row, f"scores[{k}]")
        residual = y - (expit(values) if logit else values)
        found[k] = _value(values, residual, each, LOGIT_LIPSCHITZ if logit else 1.0)
    return found


@dataclass(frozen=True, slots=True)
class _Solution:
    value: float
    points: Vector
    residuals: Vector
    h: Vector
    flow: Vector
    index: NDArray[np.int64]
    lipschitz: float

    def witness(self) -> Witness:
        return Witness(self.points, self.h, self.residuals, self.lipschitz, self.value - float(self.residuals @ self.h))

    def gradient(self, each: Vector, slope: Vector) -> Vector:
        """Envelope theorem: the derivative by a residual is h, by a gap |flow| (0 where the gap never binds)."""
        binds = np.diff(self.points) * self.lipschitz < 2.0
        pull = np.where(binds, np.abs(self.flow), 0.0) * self.lipschitz
        moved = np.concatenate(([0.0], pull)) - np.concatenate((pull, [0.0]))
        share = np.bincount(self.index, each, len(self.points))
        part = np.divide(each, share[self.index], out=np.zeros_like(each), where=share[self.index] > 0)
        return moved[self.index] * part - each * slope * self.h[self.index]


def witness_of_points(points: Vector, residuals: Vector) -> tuple[float, Witness]:
    """Error and witness of residuals already summed at distinct predictions in order, both of shape (m,)."""
    found = _solve_points(points, residuals, np.arange(len(points)), 1.0)
    return found.value, found.witness()


def _solve(u: Vector, residual: Vector, each: Vector, lipschitz: float) -> _Solution:
    points, residuals, index = merge_ties(u, residual * each, np.argsort(u))
    return _solve_points(points, residuals, index, lipschitz)


def _solve_points(points: Vector, residuals: Vector, index: NDArray[np.int64], lipschitz: float) -> _Solution:
    s = np.concatenate(([0.0], np.cumsum(residuals)))
    value, h, flow = lipschitz_chain(residuals, s, lipschitz * np.diff(points), np.argsort(s))
    return _Solution(value, points, residuals, h, flow, index, lipschitz)


def _value(u: Vector, residual: Vector, each: Vector, lipschitz: float) -> float:
    points, residuals, _ = merge_ties(u, residual * each, np.argsort(u))
    return _chain_value(points, residuals, lipschitz)


def _chain_value(points: Vector, residuals: Vector, lipschitz: float) -> float:
    s = np.concatenate(([0.0], np.cumsum(residuals)))
    return float(lipschitz_value(s, lipschitz * np.diff(points), np.argsort(s)))


class BinarySmoothCalibrationError:
    """The error over batches, with the methods of a torchmetrics metric; arrays and tensors alike.

    Parameters
    ----------
    logit
        Whether `update` is given logits instead of probabilities.
    """

    def __init__(self, *, logit: bool = False) -> None:
        self.logit = logit
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._preds: list[Vector] = []
        self._target: list[Vector] = []

    def update(self, preds: ArrayLike, target: ArrayLike) -> None:
        """Add a batch, predictions first."""
        y, values = paired(_array(target), _array(preds), logits if self.logit else probabilities)
        self._preds.append(values)
        self._target.append(y)

    def compute(self) -> float:
        """Error over all batches since the last reset."""
        if not self._preds:
            raise DataError("There is no batch yet; call update before compute.")
        measure = smooth_ce_logit if self.logit else smooth_ce
        return measure(np.concatenate(self._target), np.concatenate(self._preds))

    def __call__(self, preds: ArrayLike, target: ArrayLike) -> float:
        """Error of this batch alone; the batch is added."""
        self.update(preds, target)
        measure = smooth_ce_logit if self.logit else smooth_ce
        return measure(self._target[-1], self._preds[-1])


def _array(values: ArrayLike) -> ArrayLike:
    # A tensor that needs gradients refuses to become an array until it is detached.
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values  # pyright: ignore[reportAttributeAccessIssue]
