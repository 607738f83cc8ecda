"""Controlled diffusions dX = u dt + sqrt(eps) dW by Euler-Maruyama, and the rate read from their energy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay.core.errors import UsageError

DriftFunction = Callable[[Tensor, float, Tensor], Tensor]
"""u(x (n, d), t, eps (n, 1)) -> (n, d)."""


@dataclass(frozen=True, slots=True)
class Path:
    """End of a simulation.

    Attributes
    ----------
    end
        X_1, (n, d).
    energy
        int |u|^2 / 2 dt of every path, (n,): exact for the simulated chain, whose drift is constant within a step.
    last_mean
        Mean of X_1 given the state before it, (n, d); the last step's noise has variance eps / steps.
    last_drift
        |u|^2 of the last step, (n,).
    states
        X at every time (steps + 1, n, d), where asked for.
    """

    end: Tensor
    energy: Tensor
    last_mean: Tensor
    last_drift: Tensor
    states: Tensor | None = None


def simulate(
    drift: DriftFunction,
    x: Tensor,
    eps: Tensor | float,
    *,
    steps: int,
    generator: torch.Generator | None = None,
    keep: bool = False,
    checkpointing: bool = False,
) -> Path:
    """Paths from the rows of ``x``; differentiable in the drift's parameters.

    Parameters
    ----------
    eps
        One for all, or (n, 1).
    steps
        Equal ones. With an optimal drift that grows towards t = 1, more of them are needed for large eps.
    keep
        Return every state.
    checkpointing
        Recompute the drift in the backward pass instead of keeping its activations.
    """
    if steps < 1:
        raise UsageError(f"A simulation needs at least 1 step; got {steps}.")
    e = torch.as_tensor(eps, dtype=x.dtype, device=x.device).expand(len(x), 1)
    energy = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    root = (e / steps).sqrt()
    states = [x]
    mean = x
    size = energy
    for i in range(steps):
        t = i / steps
        u = checkpoint(drift, x, t, e, use_reentrant=False) if checkpointing else drift(x, t, e)
        size = (u**2).sum(1)
        energy = energy + size / (2 * steps)
        mean = x + u / steps
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
        x = mean + root * noise
        if keep:
            states.append(x)
    return Path(x, energy, mean, size, torch.stack(states) if keep else None)


def readout(objective: float, half_mse: float, eps: float, d: int) -> float:
    """R = (J - D) / eps - d/2 log(2 pi eps), nats, of J = energy + eps H(X_1); an upper bound for every drift."""
    return (objective - half_mse) / eps - d / 2 * math.log(2 * math.pi * eps)
