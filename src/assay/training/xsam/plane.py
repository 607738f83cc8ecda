"""The search plane of XSAM: where a direction lies in it, and which direction on its circle has the largest loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError, unknown_name

DEGENERATE = 1e-8
"""Sine of the angle below which the two directions no longer span a plane."""
GOLDEN_FORWARDS = 8
FIT_NODES = 5
FIT_TOLERANCE = 0.05
"""Error of the fitted curve at its maximum, as a share of the range of losses seen, beyond which the grid decides."""


@dataclass(frozen=True, slots=True)
class Found:
    """A search: the chosen alpha, and every candidate with its loss, in the order they were tried."""

    alpha: float
    alphas: tuple[float, ...]
    losses: tuple[float, ...]


def angle(dot: float, norm0: float, norm1: float) -> float:
    """Angle in [0, pi] between two vectors of known norms; 0 where one of them is zero."""
    if norm0 == 0.0 or norm1 == 0.0:
        return 0.0
    return math.acos(max(-1.0, min(1.0, dot / norm0 / norm1)))


def coefficients(alpha: float, psi: float) -> tuple[float, float]:
    """``(c0, c1)`` of the unit vector ``c0 v0 + c1 v1`` at ``alpha`` on the great circle through two unit vectors.

    Parameters
    ----------
    alpha
        0 = v0, 1 = v1, beyond 1 = past v1 by ``alpha - 1`` angles.
    psi
        Angle between v0 and v1. Parallel vectors give v0's (the same) direction, opposite ones v1.
    """
    sine = math.sin(psi)
    if sine < DEGENERATE:
        return (0.5, 0.5) if psi < math.pi / 2 else (0.0, 1.0)
    return math.sin((1.0 - alpha) * psi) / sine, math.sin(alpha * psi) / sine


def slerp(v0: Tensor, v1: Tensor, alpha: float) -> Tensor:
    """Unit vector at ``alpha`` on the great circle through ``v0`` and ``v1`` (any lengths but zero, shape (n,))."""
    n0, n1 = float(v0.norm()), float(v1.norm())
    if n0 == 0.0 or n1 == 0.0:
        raise UsageError("slerp needs two vectors that are not zero.")
    c0, c1 = coefficients(alpha, angle(float(v0 @ v1), n0, n1))
    return v0 * (c0 / n0) + v1 * (c1 / n1)


def grid(alpha_max: float, alpha_step: float) -> list[float]:
    """``0, step, 2 step, ... <= max``."""
    return [i * alpha_step for i in range(math.floor(alpha_max / alpha_step + 1e-9) + 1)]


def search_grid(loss: Callable[[float], float], alphas: Sequence[float], fallback: float) -> Found:
    """The first strict maximum over ``alphas``; losses that are not finite are left out, with a warning."""
    return _chosen(list(alphas), [loss(a) for a in alphas], fallback)


def search_golden(loss: Callable[[float], float], alpha_max: float, fallback: float) -> Found:
    """Golden-section search over [0, alpha_max] in eight evaluations: within 0.03 alpha_max where there is one peak."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    low, high = 0.0, alpha_max
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    alphas, losses = list(inner), [loss(a) for a in inner]
    left, right = losses
    for _ in range(GOLDEN_FORWARDS - 3):
        if left >= right:
            high, inner[1], right = inner[1], inner[0], left
            inner[0] = high - ratio * (high - low)
            left = loss(inner[0])
            alphas.append(inner[0])
            losses.append(left)
        else:
            low, inner[0], left = inner[0], inner[1], right
            inner[1] = low + ratio * (high - low)
            right = loss(inner[1])
            alphas.append(inner[1])
            losses.append(right)
    # Far from the optimum the loss rises to the end of the range, which no inner point reaches.
    end = 0.0 if low == 0.0 else alpha_max if high == alpha_max else None
    alphas.append((low + high) / 2.0 if end is None else end)
    losses.append(loss(alphas[-1]))
    return _chosen(alphas, losses, fallback)


def search_fit(loss: Callable[[float], float], psi: float, alphas: Sequence[float], fallback: float) -> Found:
    """Six evaluations under a second-order model, the grid where that model does not hold.

    On the circle a quadratic loss is ``c + A cos t + B sin t + C cos 2t + D sin 2t`` with ``t = alpha psi``: five
    values determine it. The sixth, at the maximum of the fitted curve, tells whether to believe it.
    """
    top = alphas[-1]
    nodes = [top * (1.0 - math.cos(math.pi * i / (FIT_NODES - 1))) / 2.0 for i in range(FIT_NODES)]
    values = [loss(a) for a in nodes]
    if all(map(math.isfinite, values)):
        scale = torch.tensor(nodes, dtype=torch.float64)
        fine = torch.linspace(0.0, top, 2001, dtype=torch.float64)
        curve = _curve(scale, torch.tensor(values, dtype=torch.float64), fine, psi)
        place = int(curve.argmax())
        best = float(fine[place])
        seen = loss(best)
        spread = max(values) - min(values)
        if math.isfinite(seen) and abs(seen - float(curve[place])) <= FIT_TOLERANCE * spread:
            return _chosen([*nodes, best], [*values, seen], fallback)
        nodes, values = [*nodes, best], [*values, seen]
    return _chosen([*alphas, *nodes], [*(loss(a) for a in alphas), *values], fallback)


def search(kind: str, loss: Callable[[float], float], psi: float, alphas: Sequence[float], fallback: float) -> Found:
    """Largest loss on the circle by ``grid``, ``golden`` or ``fit``.

    Parameters
    ----------
    loss
        Of an alpha.
    psi
        Angle between the two directions.
    alphas
        The grid, ascending from 0.
    fallback
        What to keep where no loss is finite.
    """
    if kind == "grid":
        return search_grid(loss, alphas, fallback)
    if kind == "golden":
        return search_golden(loss, alphas[-1], fallback)
    if kind == "fit":
        return search_fit(loss, psi, alphas, fallback)
    raise unknown_name("search", kind, ("grid", "golden", "fit"))


def _curve(nodes: Tensor, values: Tensor, at: Tensor, psi: float) -> Tensor:
    # Where the arc is short, sines and cosines are powers of alpha but for rounding; powers of a number in [0, 1] are
    # better conditioned.
    if psi * float(nodes[-1]) < 0.5:
        top = float(nodes[-1])
        powers = torch.arange(FIT_NODES, dtype=torch.float64)
        solved = torch.linalg.solve((nodes / top)[:, None] ** powers, values)
        return (at / top)[:, None] ** powers @ solved
    solved = torch.linalg.lstsq(_waves(nodes * psi), values[:, None], driver="gelsd").solution
    return (_waves(at * psi) @ solved)[:, 0]


def _waves(t: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(t), t.cos(), t.sin(), (2 * t).cos(), (2 * t).sin()], 1)


def _chosen(alphas: list[float], losses: list[float], fallback: float) -> Found:
    best, top = fallback, -math.inf
    for a, value in zip(alphas, losses, strict=True):
        if math.isfinite(value) and value > top:
            best, top = a, value
    lost = sum(not math.isfinite(value) for value in losses)
    if lost:
        kept = f"alpha stays {fallback:g}" if lost == len(losses) else "they were left out"
        warnings.warn(f"{lost} of {len(losses)} losses of the alpha search were not finite; {kept}.", stacklevel=2)
    return Found(best, tuple(alphas), tuple(losses))
