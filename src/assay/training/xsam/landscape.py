"""The loss on XSAM's plane around the weights, with what the methods would choose on it."""

# torch exports its multi-tensor kernels under private names only.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.training.xsam.engine import dot, norm
from assay.training.xsam.freezing import frozen_statistics
from assay.training.xsam.plane import angle, coefficients, grid
from assay.training.xsam.sharpness import gradient, moved


@dataclass(frozen=True, slots=True)
class Plane:
    """The plane through the weights, spanned by the ascent's displacement and the last gradient.

    Attributes
    ----------
    v0, e2
        Orthonormal directions: the displacement; the last gradient without its part along it.
    psi
        Angle of the last gradient to v0.
    points
        Where methods would look, as (x, y) in units of the weights: ``g0``, ``ascent``, ``gk``, ``xsam``.
    alphas, losses, alpha
        The searched circle of radius ``rho_max``.
    """

    v0: list[Tensor]
    e2: list[Tensor]
    psi: float
    rho: float
    rho_max: float
    points: dict[str, tuple[float, float]]
    alphas: list[float]
    losses: list[float]
    alpha: float


def search_plane(
    loss: Callable[[], Tensor],
    params: Iterable[Tensor],
    *,
    rho: float,
    rho_max: float | None = None,
    ascent_steps: int = 1,
    alpha_max: float = 2.0,
    alpha_step: float = 0.1,
    model: nn.Module | None = None,
) -> Plane:
    """The plane at the current weights, and the search on it.

    Parameters
    ----------
    loss
        Of the current weights, with a graph, always on the same batch.
    model
        Its batch-normalisation statistics are left alone.

    Raises
    ------
    UsageError
        The gradient is zero: there is no plane.
    """
    listed = [p for p in params if p.requires_grad]
    radius = 2.0 * rho if rho_max is None else rho_max
    with frozen_statistics(model):
        first = gradient(loss, listed)
        length = norm(first)
        if length == 0.0:
            raise UsageError("The gradient is zero here: there is no direction of ascent.")
        move = list(torch._foreach_mul(first, rho / ascent_steps / length))
        for _ in range(ascent_steps - 1):
            with moved(listed, (move, 1.0)):
                g = gradient(loss, listed)
            torch._foreach_add_(move, g, alpha=rho / ascent_steps / norm(g))
        with moved(listed, (move, 1.0)):
            last = gradient(loss, listed)
        v0 = list(torch._foreach_div(move, norm(move)))
        v1 = list(torch._foreach_div(last, norm(last)))
        psi = angle(dot(v0, v1), norm(v0), norm(v1))
        e2 = list(torch._foreach_sub(v1, torch._foreach_mul(v0, dot(v0, v1))))
        across = norm(e2)
        if across < 1e-7:
            raise UsageError("Displacement and last gradient are parallel here: they span no plane.")
        torch._foreach_div_(e2, across)
        alphas = grid(alpha_max, alpha_step)
        losses = []
        for alpha in alphas:
            c0, c1 = coefficients(alpha, psi)
            with moved(listed, (v0, radius * c0), (v1, radius * c1)), torch.no_grad():
                losses.append(float(loss()))
    alpha = alphas[int(np.nanargmax(losses))]
    unit = list(torch._foreach_div(first, length))
    points = {
        "g0": (radius * dot(unit, v0), radius * dot(unit, e2)),
        "ascent": (norm(move), 0.0),
        "gk": (radius * math.cos(psi), radius * math.sin(psi)),
        "xsam": (radius * math.cos(alpha * psi), radius * math.sin(alpha * psi)),
    }
    return Plane(v0, e2, psi, rho, radius, points, alphas, losses, alpha)


def surface(
    loss: Callable[[], Tensor],
    params: Iterable[Tensor],
    plane: Plane,
    *,
    size: int = 21,
    extent: float | None = None,
    model: nn.Module | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Losses on a square of the plane.

    Returns
    -------
    (at, losses)
        Coordinates (size,) from ``-extent`` to ``extent`` (None = 1.25 rho_max) along v0 (columns) and e2 (rows), and
        losses (size, size).
    """
    listed = [p for p in params if p.requires_grad]
    reach = 1.25 * plane.rho_max if extent is None else extent
    at = np.linspace(-reach, reach, size)
    losses = np.empty((size, size))
    with frozen_statistics(model), torch.no_grad():
        for i, y in enumerate(at):
            for j, x in enumerate(at):
                with moved(listed, (plane.v0, float(x)), (plane.e2, float(y))):
                    losses[i, j] = float(loss())
    return at, losses


def save_history(history: list[dict[str, Any]], path: Path | str) -> Path:
    """Searches of an `XSAM` (``alpha_history_``) as ``.npz``: ``step``, ``alpha``, ``psi``, and ``alphas``, ``losses``
    (searches, candidates), NaN where a search tried fewer."""
    if not history:
        raise UsageError("There was no search yet; alpha_history_ is empty.")
    widest = max(len(row["alphas"]) for row in history)
    table = {
        name: np.array([[*row[name], *[math.nan] * (widest - len(row[name]))] for row in history])
        for name in ("alphas", "losses")
    }
    path = Path(path)
    table |= {name: np.array([row[name] for row in history]) for name in ("step", "alpha", "psi")}
    np.savez(path, allow_pickle=False, **table)
    return path


def surface_chart(at: np.ndarray, losses: np.ndarray, plane: Plane) -> dict[str, Any]:
    """Vega-Lite specification of the surface with the methods' points on it; see `assay.report.figures.to_svg`."""
    step = float(at[1] - at[0])
    cells = [
        {"x": float(x) - step / 2, "x2": float(x) + step / 2, "y": float(y) - step / 2, "y2": float(y) + step / 2,
         "loss": float(losses[i, j])}
        for i, y in enumerate(at)
        for j, x in enumerate(at)
    ]  # fmt: skip
    names = {"g0": "first gradient", "gk": "SAM", "xsam": f"XSAM, alpha = {plane.alpha:.1f}"}
    points = [{"x": plane.points[k][0], "y": plane.points[k][1], "name": label} for k, label in names.items()]
    circle = [
        {"x": plane.rho_max * math.cos(t), "y": plane.rho_max * math.sin(t), "order": i}
        for i, t in enumerate(np.linspace(0, 2 * math.pi, 121))
    ]
    mark = {"type": "point", "filled": True, "size": 90, "stroke": "white", "opacity": 1}
    shape = {"field": "name", "type": "nominal", "title": "steps against", "sort": None}
    axis = {"type": "quantitative", "scale": {"domain": [float(at[0]) - step / 2, float(at[-1]) + step / 2]}}
    x, y = {"field": "x", "title": "along the first gradient", **axis}, {"field": "y", "title": "across", **axis}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 380,
        "height": 380,
        "layer": [
            {
                "data": {"values": cells},
                "mark": "rect",
                "encoding": {
                    "x": x, "x2": {"field": "x2"}, "y": y, "y2": {"field": "y2"},
                    "color": {"field": "loss", "type": "quantitative", "title": "loss"},
                },
            },
            {"data": {"values": circle}, "mark": {"type": "line", "color": "white"},
             "encoding": {"x": x, "y": y, "order": {"field": "order"}}},
            {"data": {"values": points}, "mark": mark,
             "encoding": {"x": x, "y": y, "shape": shape,
                          "fill": {"value": "#d1495b"}}},
        ],
    }  # fmt: skip


def plane_info(plane: Plane) -> str:
    """The plane's numbers as JSON."""
    kept = {n: getattr(plane, n) for n in ("psi", "rho", "rho_max", "points", "alphas", "losses", "alpha")}
    return json.dumps(kept, indent=1)
