"""Post-processing gap: how much a Lipschitz change of the predictions lowers the loss. Exact for squared loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import AssayError
from assay.learning.smooth_calibration.chains import merge_ties, quadratic_chain
from assay.learning.smooth_calibration.inputs import Vector, expit, logits, paired, weights

LOGIT_RANGE = 4.0
STEPS = 100


@dataclass(frozen=True, slots=True)
class Correction:
    """What to add to a prediction: a 1-Lipschitz function of it, given at the ``points`` seen, interpolated between."""

    points: Vector
    values: Vector

    def __call__(self, at: ArrayLike) -> Vector:
        """The correction at any predictions."""
        return np.interp(np.asarray(at, float), self.points, self.values)


@overload
def post_processing_gap(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    return_correction: Literal[False] = False,
) -> float: ...
@overload
def post_processing_gap(
    y_true: ArrayLike, y_prob: ArrayLike, *, sample_weight: ArrayLike | None = None, return_correction: Literal[True]
) -> tuple[float, Correction]: ...
def post_processing_gap(
    y_true: ArrayLike, y_prob: ArrayLike, *, sample_weight: ArrayLike | None = None, return_correction: bool = False
) -> float | tuple[float, Correction]:
    """Squared loss minus its minimum over p + k(p) in [0, 1] with k 1-Lipschitz.

    smooth_ce^2 <= gap <= 2 smooth_ce. The corrected prediction is then monotone and 2-Lipschitz in p, so the bounds 0
    and 1 hold by themselves, and one pass over the sorted predictions solves it exactly (Lipschitz isotonic
    regression).

    References
    ----------
    Blasiok, Gopalan, Hu and Nakkiran 2023, "When does optimizing a proper loss yield calibration?", arXiv 2305.18764.
    """
    y, p = paired(y_true, y_prob)
    each = weights(sample_weight, len(y))
    points, mass, wanted, _ = _points(p, y, each)
    k = quadratic_chain(mass, wanted - points, np.diff(points), -np.inf, np.inf)
    # The same constant (label variance inside a point) stands on both sides.
    gap = max(0.0, float(mass @ ((wanted - points) ** 2 - (wanted - points - k) ** 2)))
    return (gap, Correction(points, k)) if return_correction else gap


@overload
def post_processing_gap_logit(
    y_true: ArrayLike,
    logit: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    return_correction: Literal[False] = False,
) -> float: ...
@overload
def post_processing_gap_logit(
    y_true: ArrayLike, logit: ArrayLike, *, sample_weight: ArrayLike | None = None, return_correction: Literal[True]
) -> tuple[float, Correction]: ...
def post_processing_gap_logit(
    y_true: ArrayLike, logit: ArrayLike, *, sample_weight: ArrayLike | None = None, return_correction: bool = False
) -> float | tuple[float, Correction]:
    """Cross-entropy minus its minimum over g + k(g), k 1-Lipschitz into [-4, 4].

    2 smooth_ce_logit^2 <= gap <= 4 smooth_ce_logit. Proximal Newton: each step solves the weighted squared problem on
    the chain exactly, then halves until the loss falls; it stops where the predicted decrease is below 1e-13.
    """
    y, g = paired(y_true, logit, logits)
    each = weights(sample_weight, len(y))
    points, mass, wanted, _ = _points(g, y, each)
    slack = np.diff(points)

    def loss(k: Vector) -> float:
        t = points + k
        return float(mass @ (np.logaddexp(0.0, t) - wanted * t))

    k = np.zeros_like(points)
    now = start = loss(k)
    for _ in range(STEPS):
        p = expit(points + k)
        slope = p - wanted
        curve = np.maximum(p * (1 - p), 1e-9)
        target = quadratic_chain(mass * curve, k - slope / curve, slack, -LOGIT_RANGE, LOGIT_RANGE)
        step = target - k
        promised = float(mass @ (slope * step))
        if promised > -1e-13:
            break
        size = 1.0
        while (then := loss(k + size * step)) > now + 1e-4 * size * promised and size > 1e-12:
            size /= 2
        if size <= 1e-12:
            break
        k, now = k + size * step, then
    else:
        raise AssayError(f"The post-processing gap did not settle in {STEPS} Newton steps; rescale the logits.")
    gap = max(0.0, start - now)
    return (gap, Correction(points, k)) if return_correction else gap


def _points(u: Vector, y: Vector, each: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """Distinct predictions, their weight and mean label; samples of weight 0 are left out."""
    held = each > 0
    u, y, each = u[held], y[held], each[held]
    order = np.argsort(u)
    points, mass, _ = merge_ties(u, each, order)
    _, ones, _ = merge_ties(u, each * y, order)
    return points, mass, ones / mass, ones
