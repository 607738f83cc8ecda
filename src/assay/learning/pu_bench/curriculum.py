"""Which rows to believe: self-paced weights, trends of scores, confident selections. Pure functions of arrays."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import MissingExtra
from assay.learning.pu_bench.errors import BadInput

Pacing = Literal["hard", "linear", "logistic", "welsch", "cauchy", "poly", "log"]
_FLOOR = 1e-7


def self_paced_weights(
    hardness: ArrayLike, threshold: float, kind: Pacing | str = "linear", *, degree: float = 2.0
) -> NDArray[np.float64]:
    """Weights in [0, 1] that fall with hardness (Zhu et al. 2023, Robust-PU).

    Parameters
    ----------
    hardness
        At least 0, (n,).
    threshold
        Grows while training goes on; floored at 1e-7.
    kind
        ``log`` falls from 1 at hardness 0 to 0 at the threshold (the first public code gives one minus this).
    degree
        Of ``poly``; 2 equals ``linear``.
    """
    h, theta = np.asarray(hardness, float), max(float(threshold), _FLOOR)
    if (h < 0).any() or not np.isfinite(h).all():
        raise BadInput("hardness must be finite and at least 0.")
    if kind == "hard":
        weight = (h < theta).astype(float)
    elif kind == "linear":
        weight = 1 - h / theta
    elif kind == "logistic":
        weight = (1 + np.exp(-theta)) / (1 + np.exp(np.minimum(h - theta, 700.0)))
    elif kind == "welsch":
        weight = np.exp(-h / theta**2)
    elif kind == "cauchy":
        weight = 1 / (1 + (h / theta) ** 2)
    elif kind == "poly":
        if degree <= 1:
            raise BadInput(f"degree must be above 1; got {degree}.")
        weight = np.maximum(0.0, 1 - h / theta) ** (1 / (degree - 1))
    elif kind == "log":
        theta = min(theta, 1 - _FLOOR)
        inside = np.maximum(h + 1 - theta, _FLOOR)
        weight = np.log(inside) / np.log(1 - theta)
    else:
        raise BadInput(f"kind={kind!r} is not known; there are hard, linear, logistic, welsch, cauchy, poly, log.")
    return np.clip(weight, 0.0, 1.0)


def paced_threshold(step: int, start: float, steps: int = 10) -> float:
    """Threshold at a step: from ``start`` to 1 in equal steps, then 1."""
    return start + (1 - start) * min(step, steps) / steps


def trend_scores(sequences: ArrayLike) -> NDArray[np.float64]:
    """How each row's score moved over epochs: mean of log(1 + d + d^2 / 2) of its steps d; (rows, epochs) ->
    (rows,).
    """
    path = np.asarray(sequences, float)
    if path.ndim != 2 or path.shape[1] < 2:
        raise BadInput(f"Trends need scores of at least two epochs, (rows, epochs); the shape is {path.shape}.")
    d = np.diff(path, axis=1)
    return np.log1p(d + d**2 / 2).mean(axis=1)


def natural_break(values: ArrayLike) -> float:
    """Largest member of the lower of two classes after Fisher and Jenks."""
    try:
        import jenkspy
    except ImportError:
        raise MissingExtra("Splitting trends", "pu_bench") from None
    found = np.asarray(values, float)
    if len(np.unique(found)) < 2:
        return float(found[0])
    return float(jenkspy.jenks_breaks(found.tolist(), 2)[1])


def rising(sequences: ArrayLike) -> NDArray[np.bool_]:
    """Rows whose trend lies strictly above the natural break: those that go on looking positive."""
    trend = trend_scores(sequences)
    return trend > natural_break(trend)


def linear_rampup(epoch: float, length: float) -> float:
    """From 0 to 1 over ``length`` epochs."""
    return float(np.clip(epoch / max(length, 1e-12), 0.0, 1.0))


def sigmoid_rampup(epoch: float, length: float) -> float:
    """exp(-5 (1 - epoch / length)^2), 1 from ``length`` on (Laine and Aila 2017)."""
    return float(np.exp(-5 * (1 - linear_rampup(epoch, length)) ** 2))
