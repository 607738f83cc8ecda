"""The log ratio as the integral of the time score over t, all nodes of a rule in one pass, with an error estimate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import UsageError, unknown_name
from assay.information.minpv.variance import LIMITS, nodes

METHODS = ("gauss", "trapezoid", "simpson", "monte_carlo", "ode")
Method = Literal["gauss", "trapezoid", "simpson", "monte_carlo", "ode"]
ROWS = 16384
"""Rows (points times nodes) of one forward pass: what fits the caches, not what fits the memory."""


class Integral(NamedTuple):
    """log ratio (n,), estimated numerical error (n,) and evaluations of the model a point."""

    value: Tensor
    error: Tensor
    evaluations: int


def rule(method: Method, n: int, limits: tuple[float, float] = LIMITS) -> tuple[Tensor, Tensor]:
    """Nodes and weights, double, of gauss (dense at both ends), trapezoid or simpson (odd n) between the limits."""
    low, high = limits
    if method == "gauss":
        return nodes(n, limits)
    if n < 2 or (method == "simpson" and n % 2 == 0):
        raise UsageError(f"The {method} rule needs {'an odd number of' if method == 'simpson' else '2 or more'} nodes; "
                         f"got {n}.")  # fmt: skip
    t, weight = np.linspace(low, high, n), np.full(n, (high - low) / (n - 1))
    if method == "trapezoid":
        weight[[0, -1]] /= 2
    elif method == "simpson":
        weight *= np.where(np.arange(n) % 2, 4, 2) / 3
        weight[[0, -1]] /= 2
    else:
        raise unknown_name("integration rule", method, METHODS)
    return torch.from_numpy(t), torch.from_numpy(weight)


@torch.no_grad()
def integrate(
    score: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    *,
    method: Method = "gauss",
    n: int | None = None,
    limits: tuple[float, float] = LIMITS,
    generator: torch.Generator | None = None,
    tolerance: float = 1e-5,
    estimate_error: bool = True,
) -> Integral:
    """Integrate a time score over t at every point.

    Parameters
    ----------
    score
        ``(x (m, d), t (m,)) -> (m,)``.
    x
        Points, (n, d).
    method
        gauss, trapezoid, simpson; monte_carlo (uniform times, a draw a point and node, needs ``generator``); ode
        (Dormand and Prince's, by torchdiffeq).
    n
        Nodes: 32 for gauss, 100 for trapezoid and monte_carlo, 101 for simpson.
    limits
        The ends themselves are left out: the score may be infinite there.
    tolerance
        Relative and absolute, of ode.
    estimate_error
        False spares gauss the second set of evaluations; the error is NaN.

    Returns
    -------
    Integral
        The error is the difference to the same rule of half the nodes (gauss; a second set of evaluations) or of every
        other node (trapezoid, simpson: n - 1 must be a multiple of 4, else NaN), the standard error (monte_carlo), or
        the tolerance (ode).
    """
    if method not in METHODS:
        raise unknown_name("integration method", method, METHODS)
    low, high = limits
    if method == "ode":
        return _by_ode(score, x, limits, tolerance)
    n = n or {"gauss": 32, "trapezoid": 100, "simpson": 101, "monte_carlo": 100}[method]
    if method == "monte_carlo":
        if generator is None or n < 2:
            raise UsageError("Monte Carlo integration needs a generator and at least 2 nodes.")
        t = low + (high - low) * torch.rand((len(x), n), generator=generator, dtype=torch.float64)
        values = _evaluate(score, x, t.to(x)) * (high - low)
        return Integral(values.mean(1).to(x), (values.std(1) / n**0.5).to(x), n)
    t, w = rule(method, n, limits)
    values = _evaluate(score, x, t.to(x).expand(len(x), n))
    found = values @ w.to(values)
    if method == "gauss" and not estimate_error:
        return Integral(found.to(x), torch.full_like(found, float("nan")).to(x), n)
    if method == "gauss":
        m = max(n // 2, 1)
        t, w = rule("gauss", m, limits)
        coarse = _evaluate(score, x, t.to(x).expand(len(x), m)) @ w.to(values)
        return Integral(found.to(x), (found - coarse).abs().to(x), n + m)
    if (n - 1) % (4 if method == "simpson" else 2):
        return Integral(found.to(x), torch.full_like(found, float("nan")).to(x), n)
    _, w = rule(method, (n - 1) // 2 + 1, limits)
    return Integral(found.to(x), (found - values[:, ::2] @ w.to(values)).abs().to(x), n)


def _evaluate(score: Callable[[Tensor, Tensor], Tensor], x: Tensor, t: Tensor) -> Tensor:
    n = t.shape[1]
    step = max(ROWS // n, 1)
    found = [
        score(piece.repeat_interleave(n, 0), times.reshape(-1)).reshape(-1, n)
        for piece, times in zip(x.split(step), t.split(step))
    ]
    return torch.cat(found).double() if found else t.double()


def _by_ode(
    score: Callable[[Tensor, Tensor], Tensor], x: Tensor, limits: tuple[float, float], tolerance: float
) -> Integral:
    from torchdiffeq import odeint

    calls = 0

    def slope(t: Tensor, _: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return score(x, t.to(x).expand(len(x)))

    ends = torch.tensor(limits, dtype=torch.float64, device="cpu" if x.device.type == "mps" else x.device)
    found = odeint(slope, torch.zeros(len(x), dtype=x.dtype, device=x.device), ends, rtol=tolerance, atol=tolerance,
                   method="dopri5", options={"dtype": torch.float64})  # fmt: skip
    assert isinstance(found, Tensor)
    return Integral(found[-1], torch.full((len(x),), tolerance).to(x), calls)
