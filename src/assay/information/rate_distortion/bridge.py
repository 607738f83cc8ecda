"""The static Schroedinger bridge between two laws on a grid, by Sinkhorn, to verify terminal-entropy control."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import MissingExtra, UsageError
from assay.information.rate_distortion.closed import check_eps

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bridge:
    """Coupling (n, m) with ``half_mse`` = <C, coupling> and ``rate``, its mutual information in nats."""

    coupling: Array
    half_mse: float
    rate: float


def schroedinger_bridge(
    p0: ArrayLike, p1: ArrayLike, x: ArrayLike, y: ArrayLike, eps: float, *, iterations: int = 5000
) -> Bridge:
    """Entropic optimal transport with cost |x - y|^2 / 2 and regularisation eps, between masses on points.

    Parameters
    ----------
    p0, p1
        (n,), (m,) masses; they are normalised.
    x, y
        (n,) or (n, d), (m,) or (m, d).
    """
    try:
        import ot
    except ImportError:
        raise MissingExtra("schroedinger_bridge", "rate_distortion") from None
    a, b = (np.asarray(p, float) / np.sum(p) for p in (p0, p1))
    points = [np.asarray(z, float).reshape(len(w), -1) for z, w in ((x, a), (y, b))]
    if points[0].shape[1] != points[1].shape[1]:
        raise UsageError(f"x and y must have one dimension; got {points[0].shape[1]} and {points[1].shape[1]}.")
    cost = 0.5 * ((points[0][:, None] - points[1][None]) ** 2).sum(-1)
    # Empty cells have no logarithm; they carry nothing.
    seen0, seen1 = a > 1e-300, b > 1e-300
    coupling = np.zeros_like(cost)
    coupling[np.ix_(seen0, seen1)] = ot.sinkhorn(
        a[seen0], b[seen1], cost[np.ix_(seen0, seen1)], check_eps(eps), "sinkhorn_log", iterations, 1e-11, warn=False
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.where(coupling > 0, np.log(coupling / (a[:, None] * b)), 0.0)
    return Bridge(coupling, float((coupling * cost).sum()), float((coupling * log_ratio).sum()))


def control_energy(bridge: Bridge, p0: ArrayLike, grid: ArrayLike, eps: float) -> float:
    """Energy of the cheapest drift between the bridge's ends: <C, pi> + eps (H(P0) - H(pi) + log(2 pi eps) / 2).

    Differential entropies of masses on an even one-dimensional ``grid`` that both ends share.
    """
    cell = float(np.asarray(grid)[1] - np.asarray(grid)[0])
    h0 = _entropy(np.asarray(p0, float) / np.sum(p0)) + math.log(cell)
    h = _entropy(bridge.coupling) + 2 * math.log(cell)
    return bridge.half_mse + eps * (h0 - h + 0.5 * math.log(2 * math.pi * eps))


def _entropy(p: Array) -> float:
    q = p[p > 0]
    return -float((q * np.log(q)).sum())
