"""Draws from p1 with a learned data score: probability flow, Hamiltonian Monte Carlo, annealed importance sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from assay.core.errors import UsageError, unknown_name
from assay.information.minpv.interpolants import Direct, Interpolant
from assay.information.minpv.paths import Path
from assay.information.minpv.training import Trained
from assay.information.minpv.variance import LIMITS

METHODS = ("flow", "hmc", "ais")


def draw(
    scores: Trained,
    path: Path,
    interpolant: Interpolant,
    d: int,
    n: int,
    method: Literal["flow", "hmc", "ais"] = "flow",
    seed: int = 0,
) -> Tensor:
    """n points (n, d) of p1, from a standard normal p0.

    Parameters
    ----------
    method
        flow: the probability-flow equation from p0 on; hmc: chains on p1 that start from its draws; ais: steps of
        HMC on p_t with t rising, resampled by their weights.

    Raises
    ------
    UsageError
        The network has no data score.
    """
    if scores.recipe.loss not in ("cjsm", "joint", "energy"):
        raise UsageError(f"Sampling needs a data score: train with loss='cjsm', not {scores.recipe.loss!r}.")
    if method not in METHODS:
        raise unknown_name("sampling method", method, METHODS)
    if n < 1:
        raise UsageError(f"n_samples must be at least 1; got {n}.")
    generator = torch.Generator().manual_seed(seed)
    x = math.sqrt(1 + interpolant.added_variance) * torch.randn((n, d), generator=generator)
    device = next(scores.net.parameters()).device
    x = x.to(device)
    if method == "ais":
        return annealed(scores, x, generator).cpu()
    x = flow(scores, path, interpolant, x)
    if method == "flow":
        return x.cpu()
    last = torch.full((n,), LIMITS[1], device=device)
    return hamiltonian(lambda y: scores.data_score(y, last), x, generator).cpu()


def velocity(path: Path, interpolant: Interpolant, x: Tensor, t: Tensor, data_score: Tensor) -> Tensor:
    """Probability flow dx/dt of x_t = a x0 + b x1 + noise with x0 standard normal, from the data score s at x.

    E[x0 | x] = -a s and E[z | x] = -sqrt(v) s; E[x1 | x] is what is left of x. With the path's total normal variance
    S = a^2 + v the flow is b'/b x + (b'/b S - S'/2) s.
    """
    c = path.coefficients(t)
    a, b, da, db = (part[:, None] for part in c)
    if isinstance(interpolant, Direct):
        total, slope = a * a, 2 * a * da
    else:
        v, dv = interpolant.variance(t, c)
        total, slope = a * a + v[:, None], 2 * a * da + dv[:, None]
    return db / b * (x + total * data_score) - slope / 2 * data_score


def flow(scores: Trained, path: Path, interpolant: Interpolant, x: Tensor, *, steps: int = 100) -> Tensor:
    """Integrate the flow from p0 to p1 by torchdiffeq's midpoint rule on times that are dense at both ends."""
    from torchdiffeq import odeint

    # At t = 0 b'/b is infinite and the difference it multiplies is 0; the first step starts a little later.
    u = torch.linspace(0.02, 1, steps + 1, dtype=torch.float64)
    times = (LIMITS[1] * torch.sin(math.pi / 2 * u) ** 2).float()

    def slope(t: Tensor, y: Tensor) -> Tensor:
        at = t.float().expand(len(y))
        return velocity(path, interpolant, y, at, scores.data_score(y, at))

    with torch.no_grad():
        found = odeint(slope, x, times.to(x), method="midpoint")
    assert isinstance(found, Tensor)
    return found[-1]


def hamiltonian(
    data_score: Callable[[Tensor], Tensor], x: Tensor, generator: torch.Generator, *, steps: int = 20,
    leaps: int = 5, size: float = 0.05,
) -> Tensor:  # fmt: skip
    """Leapfrog trajectories with fresh momenta, without the accept step: a score has no energy to accept by.

    The error is of the order of size^2.
    """
    with torch.no_grad():
        for _ in range(steps):
            p = torch.randn(x.shape, generator=generator).to(x)
            p = p + size / 2 * data_score(x)
            for leap in range(leaps):
                x = x + size * p
                p = p + (size if leap < leaps - 1 else size / 2) * data_score(x)
    return x


def annealed(scores: Trained, x: Tensor, generator: torch.Generator, *, times: int = 100) -> Tensor:
    """Annealed importance sampling (Neal 2001): weights grow by the time score, points move by HMC on p_t.

    Points are resampled where the effective number falls below half; the draws returned are resampled once more.
    """
    grid = LIMITS[0] + (LIMITS[1] - LIMITS[0]) * torch.sin(math.pi / 2 * torch.linspace(0, 1, times + 1)) ** 2
    n = len(x)
    log_w = torch.zeros(n, dtype=torch.float64)
    with torch.no_grad():
        for low, high in zip(grid[:-1].tolist(), grid[1:].tolist()):
            middle = torch.full((n,), (low + high) / 2).to(x)
            log_w += ((high - low) * scores.time_score(x, middle)).double().cpu()
            w = torch.softmax(log_w, 0)
            if float(1 / w.square().sum()) < n / 2:
                x = x[torch.multinomial(w, n, replacement=True, generator=generator).to(x.device)]
                log_w.zero_()
            at = torch.full((n,), high).to(x)
            x = hamiltonian(lambda y, at=at: scores.data_score(y, at), x, generator, steps=1)
        w = torch.softmax(log_w, 0)
        return x[torch.multinomial(w, n, replacement=True, generator=generator).to(x.device)]
