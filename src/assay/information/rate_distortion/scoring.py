"""Curves against the truth: closed forms where they hold, else Blahut and Arimoto's bracket on a fine grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assay.core.errors import UsageError
from assay.information.rate_distortion.blahut import blahut_arimoto, discretise
from assay.information.rate_distortion.curves import Curve
from assay.information.rate_distortion.data import Case
from assay.information.rate_distortion.sources import Samples


def truth(case: Case, eps: float) -> tuple[float, float] | None:
    """(rate, half_mse) at slope -1/eps, or None where nothing is known."""
    try:
        found = case.source.exact_rd(eps)
        return found.rate, found.half_mse
    except UsageError:
        if case.grid is None or isinstance(case.source, Samples):
            return None
    cell = math.sqrt(eps) / (5 if len(case.grid) == 1 else 2)
    axes = []
    for low, high in case.grid:
        n = max(201 if len(case.grid) == 1 else 64, math.ceil((high - low) / cell))
        edge = (high - low) / n
        axes.append(low + edge * (np.arange(n) + 0.5))
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    mass = discretise(case.source.log_density(points)).reshape([len(a) for a in axes])
    on_grid = blahut_arimoto(mass, axes[0] if len(axes) == 1 else axes, eps, tolerance=1e-3, max_iterations=3000)
    return on_grid.rate, on_grid.half_mse


def compare(curve: Curve, case: Case) -> tuple[list[dict[str, Any]], dict[str, float | None]]:
    """Rows (one a point) and scores.

    ``rate_error``: mean of |R - R*| at the same slopes. ``lagrangian_gap``: mean of R + D/eps above the optimum's; not
    below 0 for an upper bound, up to sampling. ``ceiling_gap``: largest R* - R, that is how far a method saturates.
    """
    rows = []
    for p in curve.points:
        known = truth(case, p.eps)
        rate, half_mse = known if known is not None else (None, None)
        rows.append(
            {
                "eps": p.eps,
                "rate_nats": p.rate_nats,
                "half_mse": p.half_mse,
                "se_rate": None if math.isnan(p.se_rate) else p.se_rate,
                "bound": p.bound,
                "d": curve.d,
                "true_rate": rate,
                "true_half_mse": half_mse,
                "rate_error": None if rate is None else abs(p.rate_nats - rate),
                "lagrangian_gap": None if rate is None or half_mse is None else p.lagrangian - rate - half_mse / p.eps,
                "rate_knn": p.extra.get("rate_knn"),
            }
        )
    known_rows = [row for row in rows if row["true_rate"] is not None]
    if not known_rows:
        return rows, {"rate_error": None, "lagrangian_gap": None, "ceiling_gap": None}
    return rows, {
        "rate_error": float(np.mean([row["rate_error"] for row in known_rows])),
        "lagrangian_gap": float(np.mean([row["lagrangian_gap"] for row in known_rows])),
        "ceiling_gap": max(0.0, max(row["true_rate"] - row["rate_nats"] for row in known_rows)),
    }
