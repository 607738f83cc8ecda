"""Paths of least variance: mixtures fitted to two moments in a second, and the exact optimum without a mixture."""

from __future__ import annotations

import copy
import math
from typing import Literal

import numpy as np
import torch

from assay.core.errors import UsageError, unknown_name
from assay.information.minpv.interpolants import Bridge, Interpolant
from assay.information.minpv.paths import (
    CONSTRAINTS,
    FIXED,
    KumaraswamyPath,
    MixturePath,
    TabulatedPath,
    inverse_softplus,
    make_path,
)
from assay.information.minpv.variance import LIMITS, Moments, integrand, nodes, path_variance

FIT_NODES = 64


def fit_path(
    moments: Moments,
    interpolant: Interpolant,
    *,
    family: str = "kmm",
    constraint: Literal["affine", "spherical", "auto"] = "affine",
    components: int = 5,
    start: MixturePath | None = None,
    iterations: int = 500,
    n: int = FIT_NODES,
    limits: tuple[float, float] = (0.0, 1.0),
) -> MixturePath:
    """The mixture path of least V; V needs the moments alone, so this is done before any training.

    Parameters
    ----------
    moments, interpolant
        What V is made of. For `Direct` V diverges at t = 1, and ``limits`` are cut to [1e-5, 1 - 1e-5].
    family
        kmm, beta or gaussian.
    constraint
        ``auto`` fits both and keeps the one of smaller V.
    components
        Size of the mixture.
    start
        Path to start from; left as it is. None = the paper's initial values and a nearly straight path.
    iterations
        Of L-BFGS-B, at most; shapes are held in their bounds by the optimiser itself, so none sticks to a clamp.

    Returns
    -------
    MixturePath
        Frozen (no gradients), double precision.
    """
    if constraint == "auto":
        both = [
            fit_path(moments, interpolant, family=family, constraint=c, components=components, iterations=iterations,
                     n=n, limits=limits)
            for c in ("affine", "spherical")
        ]  # fmt: skip
        return min(both, key=lambda path: float(path_variance(path, moments, interpolant)))
    if constraint not in CONSTRAINTS:
        raise unknown_name("constraint", constraint, (*CONSTRAINTS, "auto"))
    if not isinstance(interpolant, Bridge):
        limits = (max(limits[0], LIMITS[0]), min(limits[1], LIMITS[1]))
    made = start if start is not None else make_path(family, constraint=constraint, components=components)
    if not isinstance(made, MixturePath):
        raise UsageError(f"Path {family!r} has nothing to fit; take kmm, beta or gaussian.")
    starts = [copy.deepcopy(made)]
    if start is None and isinstance(made, KumaraswamyPath):
        starts.append(_nearly_straight(copy.deepcopy(made)))
    fitted = [_minimise(path, moments, interpolant, iterations, n, limits) for path in starts]
    best = min(fitted, key=lambda found: found[0])[1]
    return best.requires_grad_(False)


def _nearly_straight(path: KumaraswamyPath) -> KumaraswamyPath:
    k = torch.arange(len(path.logits), dtype=torch.float64) - (len(path.logits) - 1) / 2
    # An angle that grows evenly has 1 - cos ~ t^2; the straight line has 1 - (1 - t).
    alpha = (1.0 if path.constraint == "affine" else 2.0) * torch.exp(0.2 * k)
    beta = (1.0 if path.constraint == "affine" else 1.3) * torch.exp(0.1 * k)
    with torch.no_grad():
        path.raw.copy_(inverse_softplus(torch.stack([alpha, beta])))
    return path


def _minimise(
    path: MixturePath, moments: Moments, interpolant: Interpolant, iterations: int, n: int, limits: tuple[float, float]
) -> tuple[float, MixturePath]:
    from scipy.optimize import minimize

    t, w = nodes(n, limits)
    parameters = [p for p in path.parameters() if p.requires_grad]
    sizes = [p.numel() for p in parameters]
    scale = 1.0 / max(moments.x0 + moments.x1 + moments.d, 1e-12)

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.no_grad():
            for p, part in zip(parameters, torch.from_numpy(flat).split(sizes)):
                p.copy_(part.view_as(p))
        total = (integrand(path, t, moments, interpolant) * w).sum() * scale
        gradients = torch.autograd.grad(total, parameters)
        flat_gradient = torch.cat([g.reshape(-1) for g in gradients]).numpy()
        if not np.isfinite(flat_gradient).all() or not math.isfinite(float(total.detach())):
            # A step too far, into a path whose V is not finite: the line search turns back from it.
            return 1e30, np.zeros_like(flat)
        return float(total.detach()), flat_gradient

    bounds: list[tuple[float | None, float | None]] = []
    for p in parameters:
        held = path.raw_bounds() if isinstance(path, KumaraswamyPath) and p is path.raw else (None, None)
        bounds += [held] * p.numel()
    begin = torch.cat([p.detach().reshape(-1) for p in parameters]).numpy()
    found = minimize(
        value, begin, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-13, "gtol": 1e-9},
    )  # fmt: skip
    value(found.x)
    # Few nodes may be cheated by a path that jumps between them: what counts is V on many.
    with torch.no_grad():
        exact = float(path_variance(path, moments, interpolant, limits=limits))
    return exact, path


def optimal_path(
    moments: Moments, interpolant: Bridge, *, constraint: str = "spherical", knots: int = 401
) -> TabulatedPath:
    """The path of least V among all of its kind, tabulated.

    Spherical: v does not depend on the path, and the arc length, of element sqrt(m(theta)) d theta with
    m = sin^2 E|x0|^2 + cos^2 E|x1|^2 - 2 sin cos E x0.x1, grows as v(t). Affine: the Euler-Lagrange equation, solved as
    a boundary value problem.

    Raises
    ------
    UsageError
        The interpolant is not a bridge with epsilon above 0 (V is infinite otherwise), or the solver does not converge.
    """
    if not isinstance(interpolant, Bridge) or interpolant.epsilon <= 0:
        raise UsageError("An optimal path exists for a bridge with epsilon above 0; V is infinite otherwise.")
    if constraint == "spherical":
        return _spherical(moments, interpolant, knots)
    if constraint == "affine":
        return _affine(moments, interpolant, knots)
    raise unknown_name("constraint", constraint, CONSTRAINTS)


def _spherical(moments: Moments, bridge: Bridge, knots: int) -> TabulatedPath:
    from scipy.interpolate import CubicHermiteSpline

    g, e = bridge.gamma_sq, bridge.epsilon
    t = np.sin(np.pi / 2 * np.linspace(0, 1, knots)) ** 2
    v = g * t * (1 - t) + e
    done = (g * (t * t / 2 - t**3 / 3) + e * t) / (g / 6 + e)

    def speed(theta: np.ndarray) -> np.ndarray:
        s, c = np.sin(theta), np.cos(theta)
        return np.sqrt(np.maximum(s * s * moments.x0 + c * c * moments.x1 - 2 * s * c * moments.cross, 1e-12))

    # Arc length by Gauss and Legendre on each piece; with equal squares it is the angle itself, exactly.
    angle = np.linspace(0, np.pi / 2, 2001)
    at, weight = np.polynomial.legendre.leggauss(8)
    half = angle[1] / 2
    pieces = (speed(angle[:-1, None] + half * (at + 1)) * weight).sum(1) * half
    arc = np.concatenate([[0.0], np.cumsum(pieces)])
    length = arc[-1]
    theta = CubicHermiteSpline(arc, angle, 1 / speed(angle))(done * length)
    theta[0], theta[-1] = 0.0, np.pi / 2
    slope = length * v / (g / 6 + e) / speed(theta)
    return TabulatedPath(t, theta / (np.pi / 2), slope / (np.pi / 2), "spherical")


def _affine(moments: Moments, bridge: Bridge, knots: int) -> TabulatedPath:
    from scipy.integrate import solve_bvp

    g, e, d = bridge.gamma_sq, bridge.epsilon, moments.d
    spread = moments.x0 + moments.x1 - 2 * moments.cross
    if spread <= 0:
        raise UsageError("x0 and x1 are the same in every pair: every affine path has the same variance.")

    def equations(t: np.ndarray, y: np.ndarray) -> np.ndarray:
        b, db = y
        dw = 4 * b - 2  # w = a^2 + b^2
        v = g * t * (1 - t) + e * ((1 - b) ** 2 + b * b)
        dv = g * (1 - 2 * t) + e * dw * db
        force = (
            -d * e * dw * (-2 * g + 4 * e * db * db) + d * e * dw * dv * dv / v
            + 2 * spread * db * dv - spread * e * dw * db * db
        )  # fmt: skip
        return np.vstack([db, force / (d * (e * dw) ** 2 + 2 * spread * v)])

    t = np.sin(np.pi / 2 * np.linspace(0, 1, knots)) ** 2
    guess = fit_path(moments, bridge, constraint="affine", components=2)
    with torch.no_grad():
        _, b, _, db = guess.coefficients(torch.from_numpy(t[1:-1]))
    begin = np.vstack([np.concatenate([[0.0], b.numpy(), [1.0]]), np.concatenate([[db[0]], db.numpy(), [db[-1]]])])
    found = solve_bvp(
        equations, lambda left, right: np.array([left[0], right[0] - 1]), t, begin, tol=1e-8, max_nodes=50_000
    )
    if not found.success:
        raise UsageError(f"The affine optimum was not found for {moments} and {bridge}: {found.message}")
    b, db = found.sol(t)
    b[0], b[-1] = 0.0, 1.0
    return TabulatedPath(t, b, db, "affine")


def least_fixed(moments: Moments, interpolant: Interpolant) -> tuple[str, float]:
    """The fixed path of least V, and its V."""
    found = {name: float(path_variance(made(), moments, interpolant, n=1000)) for name, made in FIXED.items()}
    name = min(found, key=lambda key: found[key])
    return name, found[name]
