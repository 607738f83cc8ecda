"""Peers that carry the reproduction law by points: Wasserstein gradient descent, its hybrid with weights, NERD.

All of them minimise E[-log sum_j nu_j exp(-|x - y_j|^2 / (2 eps))], an upper bound of R + D / eps for any points and
weights. Their rate never passes log n: with n points there are no more than n messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.information.rate_distortion.closed import check_eps
from assay.nn.nets import MLP
from assay.nn.trainer import seeded

CHUNK = 1 << 22
"""Entries of a kernel matrix that are held at once."""


@dataclass(frozen=True, slots=True)
class Functional:
    """Value of the functional: ``loss`` = R + D / eps (nats), ``half_mse``, ``rate``, and the rate's standard error."""

    loss: float
    half_mse: float
    rate: float
    se_rate: float


def half_squares(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 / 2, (n, m)."""
    # By differences where that is cheap: the expanded square loses half the digits.
    if x.shape[1] <= 3:
        return 0.5 * sum((x[:, k, None] - y[None, :, k]) ** 2 for k in range(x.shape[1]))  # pyright: ignore[reportReturnType]
    centre = y.mean(0)
    x, y = x - centre, y - centre
    return (0.5 * ((x**2).sum(1)[:, None] + (y**2).sum(1)[None]) - x @ y.T).clamp_min(0)


def phi(x: Tensor, y: Tensor, log_weights: Tensor, eps: float) -> Tensor:
    """-log sum_j nu_j exp(-C_ij / eps), (n,); differentiable."""
    return -torch.logsumexp(log_weights - half_squares(x, y) / eps, 1)


@torch.no_grad()
def functional(x: Tensor, y: Tensor, eps: float, log_weights: Tensor | None = None) -> Functional:
    """Loss, distortion and rate of points ``y`` (m, d) on a source ``x`` (n, d), in pieces."""
    eps = check_eps(eps)
    log_w = equal_weights(y) if log_weights is None else log_weights
    losses, costs = [], []
    for piece in x.split(max(1, CHUNK // len(y))):
        c = half_squares(piece, y)
        logits = log_w - c / eps
        losses.append(-torch.logsumexp(logits, 1))
        costs.append((torch.softmax(logits, 1) * c).sum(1))
    loss, cost = torch.cat(losses).double(), torch.cat(costs).double()
    rates = loss - cost / eps
    se = float(rates.std() / math.sqrt(len(rates))) if len(rates) > 1 else math.nan
    return Functional(float(loss.mean()), float(cost.mean()), float(rates.mean()), se)


def equal_weights(y: Tensor) -> Tensor:
    """-log m, (m,)."""
    return torch.full((len(y),), -math.log(len(y)), dtype=y.dtype, device=y.device)


def particle_gradient(x: Tensor, y: Tensor, eps: float, log_weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Gradient of psi(y_j) = -sum_i mu_i exp(phi_i - C_ij / eps) at fixed phi, (m, d), and c_j = -psi(y_j), (m,).

    It is the Wasserstein gradient of the functional; equal source weights mu.
    """
    log_w = equal_weights(y) if log_weights is None else log_weights
    grad, mass = torch.zeros_like(y), torch.zeros(len(y), dtype=y.dtype, device=y.device)
    for piece in x.split(max(1, CHUNK // len(y))):
        scaled = half_squares(piece, y) / eps
        pull = torch.exp(-torch.logsumexp(log_w - scaled, 1, keepdim=True) - scaled) / len(x)
        served = pull.sum(0)
        mass += served
        grad += (served[:, None] * y - pull.T @ piece) / eps
    return grad, mass


def wgd(
    x: Tensor,
    eps: float,
    *,
    particles: int = 1000,
    steps: int = 500,
    lr: float = 0.5,
    batch: int = 1024,
    hybrid: bool = False,
    start: Tensor | None = None,
    seed: int = 0,
    progress: Callable[..., None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Points (m, d) and log weights (m,) by Wasserstein gradient descent.

    Parameters
    ----------
    x
        Source samples, (n, d).
    lr
        In units of eps: with lr = 1 a point moves towards the mean of what it serves, at most so far. Decays as
        one over the root of the step.
    batch
        Source samples a step.
    hybrid
        Update the weights too, by Blahut and Arimoto's nu_j <- nu_j c_j (damped by the same decay).
    start
        Points to start from; source samples with a small jitter by default.

    References
    ----------
    Yang, Eckstein, Nutz and Mandt, Estimating the rate-distortion function by Wasserstein gradient descent, 2023.
    """
    eps = check_eps(eps)
    _at_least("particles", particles, 1)
    _at_least("steps", steps, 1)
    generator = torch.Generator().manual_seed(seed % 2**63)
    if start is None:
        chosen = torch.randint(0, len(x), (particles,), generator=generator)
        jitter = torch.randn(particles, x.shape[1], generator=generator, dtype=x.dtype)
        y = x[chosen] + 0.1 * math.sqrt(eps) * jitter.to(x.device)
    else:
        y = start.clone()
    log_w = equal_weights(y)
    for step in range(steps):
        rows = torch.randint(0, len(x), (min(batch, len(x)),), generator=generator)
        grad, mass = particle_gradient(x[rows], y, eps, log_w)
        rate = lr / math.sqrt(1 + step / 50)
        # Many points and a small batch: a point that serves one sample has c_j >> 1 and must not fly past it.
        y = y - rate * eps * grad / mass.clamp_min(1.0)[:, None]
        if hybrid:
            log_w = log_w + min(rate, 1.0) * mass.clamp_min(1e-12).log()
            log_w = log_w - torch.logsumexp(log_w, 0)
        if progress is not None:
            progress(step + 1, steps)
    return y, log_w


class NERD(nn.Module):
    """Points are a network's images of normal latents.

    Parameters
    ----------
    d, latent
        Dimensions of reproductions and latents.
    hidden
        Widths of the generator.

    References
    ----------
    Lei, Hassani and Saeedi Bidokhti, Neural estimation of the rate-distortion function, 2022.
    """

    def __init__(self, d: int, latent: int = 16, hidden: tuple[int, ...] = (128, 128)) -> None:
        super().__init__()
        self.latent = latent
        self.net = MLP(latent, hidden, d, activation=nn.SiLU)
        self.scale: Tensor
        self.centre: Tensor
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("centre", torch.zeros(d))

    def points(self, m: int, generator: torch.Generator | None = None) -> Tensor:
        """``m`` reproductions, (m, d)."""
        z = torch.randn(m, self.latent, generator=generator, dtype=self.centre.dtype).to(self.centre.device)
        return self.centre + self.scale * self.net(z)


def nerd(
    x: Tensor,
    eps: float,
    *,
    points: int = 4000,
    steps: int = 500,
    lr: float = 2e-3,
    batch: int = 256,
    latent: int = 16,
    hidden: tuple[int, ...] = (128, 128),
    start: NERD | None = None,
    seed: int = 0,
    progress: Callable[..., None] | None = None,
) -> NERD:
    """A generator trained on the functional with ``points`` fresh latents a step; the rate stays below their log."""
    eps = check_eps(eps)
    _at_least("points", points, 1)
    with seeded(seed) as generator:
        net = NERD(x.shape[1], latent, hidden) if start is None else start
        net = net.to(device=x.device, dtype=x.dtype)
        if start is None:
            net.centre.copy_(x.mean(0))
            net.scale.copy_(x.std())
        optimiser = torch.optim.Adam(net.parameters(), lr)
        for step in range(steps):
            rows = torch.randint(0, len(x), (min(batch, len(x)),), generator=generator)
            y = net.points(points, generator)
            loss = phi(x[rows], y, equal_weights(y), eps).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            if progress is not None:
                progress(step + 1, steps)
    return net


def _at_least(name: str, value: Any, least: int) -> None:
    if value < least:
        raise UsageError(f"{name} must be at least {least}; got {value}.")
