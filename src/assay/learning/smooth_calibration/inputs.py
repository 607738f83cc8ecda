"""Checking labels, probabilities, logits and weights: one sentence says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from assay.core.errors import DataError

Vector = NDArray[np.float64]
ROUNDING = 1e-5


def vector(values: ArrayLike, name: str) -> Vector:
    """``values`` as float64, shape (n,), n >= 1, without NaN.

    Raises
    ------
    DataError
        Wrong shape, empty, no numbers, NaN.
    """
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} holds values that are no numbers; give a list or array of numbers.") from None
    if found.ndim == 2 and 1 in found.shape:
        found = found.ravel()
    if found.ndim != 1:
        raise DataError(f"{name} has shape {found.shape}; give one value a sample (for two columns, the second).")
    if not len(found):
        raise DataError(f"{name} is empty; at least one sample is needed.")
    if np.isnan(found).any():
        raise DataError(f"{name}[{int(np.flatnonzero(np.isnan(found))[0])}] is NaN; remove or repair that sample.")
    return found


def labels(values: ArrayLike, name: str = "y_true") -> Vector:
    """Labels 0 and 1 (or bool) as float64; one class alone is allowed."""
    found = vector(values, name)
    wrong = (found != 0) & (found != 1)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        hint = "write (y + 1) / 2 for labels -1 and 1" if set(np.unique(found)) <= {-1.0, 1.0} else "give 0 and 1"
        raise DataError(f"{name}[{at}] is {found[at]:g}, not a label 0 or 1; {hint}.")
    return found


def probabilities(values: ArrayLike, name: str = "y_prob") -> Vector:
    """Probabilities in [0, 1] as float64."""
    found = vector(values, name)
    if found.min() < 0 or found.max() > 1:
        at = int(np.flatnonzero((found < 0) | (found > 1))[0])
        near = min(abs(found[at]), abs(found[at] - 1)) < ROUNDING
        hint = "clip what rounding took out of [0, 1]" if near else "for logits use smooth_ce_logit"
        raise DataError(f"{name}[{at}] is {float(found[at])!r}, outside [0, 1]; {hint}.")
    return found


def logits(values: ArrayLike, name: str = "logit") -> Vector:
    """Logits as float64; infinite ones stand farther out than any test function can tell apart."""
    found = vector(values, name)
    infinite = np.isinf(found)
    if infinite.any():
        far = float(np.abs(found[~infinite]).max(initial=36.0)) + 16.0
        found = np.clip(found, -far, far)
    return found


def weights(values: ArrayLike | None, n: int) -> Vector:
    """Sample weights that sum to 1; None = equal ones."""
    if values is None:
        return np.full(n, 1.0 / n)
    found = vector(values, "sample_weight")
    if len(found) != n:
        raise DataError(f"sample_weight has {len(found)} values for {n} samples; give one a sample.")
    if not np.isfinite(found).all() or found.min() < 0:
        at = int(np.flatnonzero(~np.isfinite(found) | (found < 0))[0])
        raise DataError(f"sample_weight[{at}] is {found[at]:g}; weights are finite and at least 0.")
    total = found.sum()
    if total <= 0:
        raise DataError("sample_weight sums to 0; at least one sample needs a weight above 0.")
    return found / total


def paired(
    y_true: ArrayLike, values: ArrayLike, read: Callable[[ArrayLike], Vector] = probabilities
) -> tuple[Vector, Vector]:
    """Labels and predictions of one length."""
    y, found = labels(y_true), read(values)
    if len(y) != len(found):
        raise DataError(f"y_true has {len(y)} labels for {len(found)} predictions; give one a sample.")
    return y, found


def log_loss_of_logits(y: Vector, g: Vector) -> Vector:
    """Cross-entropy a sample, stable at any logit."""
    return np.logaddexp(0.0, g) - y * g


def logit_of(p: Vector) -> Vector:
    """Log-odds; probabilities 0 and 1 become the logits of 1e-15 and 1 - 1e-15."""
    inside = np.clip(p, 1e-15, 1 - 1e-15)
    return np.log(inside) - np.log1p(-inside)


__all__ = [
    "Vector",
    "expit",
    "labels",
    "log_loss_of_logits",
    "logit_of",
    "logits",
    "paired",
    "probabilities",
    "vector",
    "weights",
]
