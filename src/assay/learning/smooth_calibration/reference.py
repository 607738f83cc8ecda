"""Linear programmes by HiGHS: the error as it is defined, and the lower distance to calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, eye_array, kron, vstack

from assay.core.errors import AssayError, UsageError
from assay.learning.smooth_calibration.exact import LOGIT_LIPSCHITZ
from assay.learning.smooth_calibration.inputs import expit, logits, paired, probabilities, weights


def smooth_ce_lp(
    y_true: ArrayLike, values: ArrayLike, *, logit: bool = False, sample_weight: ArrayLike | None = None,
    tolerance: float = 1e-10,
) -> float:  # fmt: skip
    """`smooth_ce` (or `smooth_ce_logit`) as a linear programme over the distinct predictions: slow, for comparison.

    ``tolerance`` is HiGHS's feasibility tolerance; its own default, 1e-7, is slower and leaves errors of that size.
    """
    y, u = paired(y_true, values, logits if logit else probabilities)
    residual = (y - (expit(u) if logit else u)) * weights(sample_weight, len(y))
    points, index = np.unique(u, return_inverse=True)
    w = np.bincount(index, residual)
    m = len(points)
    if m == 1:
        return float(abs(w[0]))
    slack = np.diff(points) * (LOGIT_LIPSCHITZ if logit else 1.0)
    steps = eye_array(m - 1, m, k=1) - eye_array(m - 1, m)
    found = linprog(
        -w, A_ub=vstack([steps, -steps]).tocsr(), b_ub=np.concatenate([slack, slack]), bounds=(-1, 1),
        method="highs", options={"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance},
    )  # fmt: skip
    return -float(_solved(found).fun)


def lower_distance(
    y_true: ArrayLike, y_prob: ArrayLike, *, grid: int = 101, sample_weight: ArrayLike | None = None
) -> float:
    """Lower distance to calibration: least mean |u - p| over calibrated u coupled to the data, u on an even grid.

    smooth_ce / 2 <= lower distance <= 2 smooth_ce. The grid adds at most half its step (1 / (2 (grid - 1))) wherever
    predictions lie between its points; grid x distinct (p, y) variables.

    References
    ----------
    Blasiok, Gopalan, Hu and Nakkiran 2023, arXiv 2211.16886, section 5.
    """
    y, p = paired(y_true, y_prob)
    if grid < 2:
        raise UsageError(f"grid={grid} is below 2; give the number of target values in [0, 1].")
    each = weights(sample_weight, len(y))
    pairs, index = np.unique(np.column_stack([p, y]), axis=0, return_inverse=True)
    mass = np.bincount(index.ravel(), each)
    targets = np.linspace(0, 1, grid)
    cost = np.abs(targets[:, None] - pairs[None, :, 0]).ravel()
    kept = kron(np.ones((1, grid)), eye_array(len(mass)))
    # Mass moved to u is calibrated there: (1 - u) of label 1 equals u of label 0.
    balance = np.where(pairs[None, :, 1] == 1, 1 - targets[:, None], -targets[:, None]).ravel()
    columns = np.arange(grid * len(mass))
    even = coo_matrix((balance, (columns // len(mass), columns)), shape=(grid, grid * len(mass)))
    found = linprog(
        cost, A_eq=vstack([kept, even]).tocsr(), b_eq=np.concatenate([mass, np.zeros(grid)]), method="highs"
    )
    return float(_solved(found).fun)


def _solved(found: Any) -> Any:
    if found.status != 0:
        raise AssayError(f"HiGHS did not solve the linear programme: {found.message}")
    return found
