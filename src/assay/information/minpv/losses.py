"""Losses whose minimiser is the time score d/dt log p_t (and the data score), from samples alone.

A model is a function ``(x (n, d), t (n,)) -> (n,)``, a joint one returns the data score (n, d) too. ``weight`` is one
number a time, (n,). The conditional losses regress on known scores and need noise; the tractable ones (Hyvarinen's
integration by parts in t and x) do not, and pay with derivatives of the model.

References: Choi et al. 2022 (tractable losses, sliced); Yu et al. 2025 (conditional time score matching); arXiv
2602.00834.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.information.minpv.interpolants import Point

TimeModel = Callable[[Tensor, Tensor], Tensor]
JointModel = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def time_derivative(model: TimeModel, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Value and derivative in t at fixed x, (n,) each; the derivative can be differentiated again."""
    with torch.enable_grad():
        t = t.detach().requires_grad_(True)
        value = model(x, t)
        (slope,) = torch.autograd.grad(value.sum(), t, create_graph=True)
    return value, slope


def stsm(
    model: TimeModel, first: Tensor, last: Tensor, x: Tensor, t: Tensor, *, limits: tuple[float, float] = (0.0, 1.0)
) -> Tensor:
    """Tractable time score matching, scaled so that ``stsm + V = E |score - model|^2`` with t uniform on the limits.

    Parameters
    ----------
    first, last
        Points at the ends of the path, (n, d).
    x, t
        Points between, with t uniform on ``limits``.
    """
    low, high = limits
    value, slope = time_derivative(model, x, t)
    ends = model(first, torch.full_like(t, low)).mean() - model(last, torch.full_like(t, high)).mean()
    return 2 * ends + (high - low) * (2 * slope + value.square()).mean()


def weighted_stsm(
    model: TimeModel,
    first: Tensor,
    last: Tensor,
    x: Tensor,
    t: Tensor,
    weight: Callable[[Tensor], tuple[Tensor, Tensor]],
    *,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Tensor:
    """The same with a weight: w(0) s(x0, 0) - w(1) s(x1, 1) + int E [w ds/dt + w' s + w s^2/2].

    Parameters
    ----------
    weight
        Gives w and dw/dt at times (n,). With w = 1 this is half of `stsm`.
    """
    low, high = limits
    value, slope = time_derivative(model, x, t)
    w, dw = weight(t)
    (w0, _), (w1, _) = weight(torch.full_like(t, low)), weight(torch.full_like(t, high))
    ends = (w0 * model(first, torch.full_like(t, low))).mean() - (w1 * model(last, torch.full_like(t, high))).mean()
    return ends + (high - low) * (w * slope + dw * value + w * value.square() / 2).mean()


def joint_stsm(
    model: JointModel,
    first: Tensor,
    last: Tensor,
    x: Tensor,
    t: Tensor,
    direction: Tensor,
    *,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Tensor:
    """Half the tractable loss of the time score plus sliced score matching of the data score: |(s_x, s_t)|^2/2 + ....

    Parameters
    ----------
    direction
        Of Hutchinson's estimate of the divergence: (n, d), zero mean and unit covariance.
    """
    low, high = limits
    with torch.enable_grad():
        x, t = x.detach().requires_grad_(True), t.detach().requires_grad_(True)
        time, data = model(x, t)
        (slope,) = torch.autograd.grad(time.sum(), t, create_graph=True)
        (along,) = torch.autograd.grad((data * direction).sum(), x, create_graph=True)
    divergence = (along * direction).sum(1)
    ends = model(first, torch.full_like(t, low))[0].mean() - model(last, torch.full_like(t, high))[0].mean()
    inside = slope + (time.square() + data.square().sum(1)) / 2 + divergence
    return ends + (high - low) * inside.mean()


def ctsm(model: TimeModel, point: Point, t: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """Conditional time score matching: E weight (model - conditional time score)^2."""
    return (weight * (model(point.x, t) - point.time_score).square()).mean()


def cjsm(
    model: JointModel, point: Point, t: Tensor, weight: Tensor | float = 1.0, data_weight: Tensor | float = 1.0
) -> Tensor:
    """Conditional joint score matching: `ctsm` + E data_weight mean_j (model_j - conditional data score_j)^2."""
    time, data = model(point.x, t)
    apart = (data - point.data_score).square().mean(1)
    return (weight * (time - point.time_score).square() + data_weight * apart).mean()


def secant(
    model: Callable[[Tensor, Tensor, Tensor], Tensor], point: Point, s: Tensor, t: Tensor, weight: Tensor | float = 1.0
) -> Tensor:
    """Regression of the mean time score u(x, s, t) between two times, whose log ratio is one evaluation, u(x, 0, 1).

    d/dt [(t - s) u] = u + (t - s) du/dt is the time score at t. The derivative is taken as given (no gradient flows
    into it), as with mean flows; at the optimum this makes no difference.
    """
    with torch.enable_grad():
        later = t.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(model(point.x, s, later).sum(), later)
    target = point.time_score - (t - s) * slope
    return (weight * (model(point.x, s, t) - target).square()).mean()


def energy_score(energy: TimeModel) -> JointModel:
    """Both scores of an energy U = -log p_t: (-dU/dt, -dU/dx). The log ratio is U(x, 0) - U(x, 1)."""

    def scores(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x, t = x.detach().requires_grad_(True), t.detach().requires_grad_(True)
            time, data = torch.autograd.grad(energy(x, t).sum(), (t, x), create_graph=True)
        return -time, -data

    return scores
