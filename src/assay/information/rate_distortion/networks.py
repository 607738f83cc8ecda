"""Drifts: the closed form of a fitted mixture, and networks of position, time and eps that correct it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from assay.core.errors import UsageError
from assay.nn.nets import MLP

NETWORKS = ("mlp", "film", "conv")
FLOOR = 1.2
"""Variances below so many eps count as this."""


def scaled_log(eps: Tensor, eps_range: tuple[float, float]) -> Tensor:
    """log eps, carried to [-1, 1] over the range."""
    low, high = (math.log(e) for e in eps_range)
    return (eps.log() - (low + high) / 2) * (2 / max(high - low, 1e-6))


class MixtureDrift(nn.Module):
    """-eps sum_i r_i(x, t) (S_i - eps t)^-1 (x - m_i): optimal for the mixture, and a beginning for its data.

    Directions with variance <= eps end in a point, which a simulation of few steps reaches at a high price only:
    smaller variances are taken for 1.2 eps, near what costs least in 20 steps.

    Parameters
    ----------
    weights, means, variances, axes
        (k,), (k, d), (k, d), (k, d, d): the mixture, in eigenvalues and eigenvectors.
    """

    def __init__(self, weights: Tensor, means: Tensor, variances: Tensor, axes: Tensor) -> None:
        super().__init__()
        self.log_weights: Tensor
        self.means: Tensor
        self.variances: Tensor
        self.axes: Tensor
        for name, value in (("log_weights", weights.log()), ("means", means), ("variances", variances), ("axes", axes)):
            self.register_buffer(name, value)

    def forward(self, x: Tensor, t: float, eps: Tensor) -> Tensor:
        """(n, d) for x (n, d) and eps (n, 1)."""
        e = eps[:, None]
        v = torch.maximum(self.variances, FLOOR * e) - e * t
        turned = torch.einsum("kij,nki->nkj", self.axes, x[:, None] - self.means)
        logs = self.log_weights - 0.5 * (turned**2 / v + v.log()).sum(-1)
        pulled = torch.softmax(logs, 1)[..., None] * (turned / v)
        return -eps * torch.einsum("kij,nkj->ni", self.axes, pulled)


def waves(z: Tensor) -> Tensor:
    """z with sines and cosines of three frequencies: scores of clustered laws are saws, learned slowly without."""
    return torch.cat([z, *(f(k * math.pi / 2 * z) for k in (1, 2, 4) for f in (torch.sin, torch.cos))], 1)


class Plain(nn.Module):
    """A perceptron of (waves of z, t, log eps)."""

    def __init__(self, d: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = MLP(7 * d + 2, hidden, d, activation=nn.SiLU)
        _silent(self.net[-1])

    def forward(self, z: Tensor, condition: Tensor) -> Tensor:
        """(n, d)."""
        return self.net(torch.cat([waves(z), condition], 1))


class Film(nn.Module):
    """A perceptron of waves of z whose layers are scaled and shifted by (t, log eps)."""

    def __init__(self, d: int, hidden: Sequence[int]) -> None:
        super().__init__()
        widths = [7 * d, *hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.films = nn.ModuleList(MLP(2, (32,), 2 * b, activation=nn.SiLU) for b in hidden)
        self.out = nn.Linear(widths[-1], d)
        _silent(self.out)

    def forward(self, z: Tensor, condition: Tensor) -> Tensor:
        """(n, d)."""
        z = waves(z)
        for layer, film in zip(self.layers, self.films):
            scale, shift = film(condition).chunk(2, 1)
            z = nn.functional.silu(layer(z) * (1 + scale) + shift)
        return self.out(z)


class Conv(nn.Module):
    """Convolutions over patches (channels, height, width), scaled and shifted by (t, log eps)."""

    def __init__(self, shape: tuple[int, int, int], hidden: Sequence[int]) -> None:
        super().__init__()
        self.shape = shape
        widths = [shape[0], *hidden]
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.films = nn.ModuleList(MLP(2, (32,), 2 * b, activation=nn.SiLU) for b in hidden)
        self.out = nn.Conv2d(widths[-1], shape[0], 3, padding=1)
        _silent(self.out)

    def forward(self, z: Tensor, condition: Tensor) -> Tensor:
        """(n, d)."""
        a = z.view(len(z), *self.shape)
        for layer, film in zip(self.layers, self.films):
            scale, shift = film(condition)[..., None, None].chunk(2, 1)
            a = nn.functional.silu(layer(a) * (1 + scale) + shift)
        return self.out(a).flatten(1)


def make_network(kind: str, d: int, hidden: Sequence[int], shape: tuple[int, int, int] | None = None) -> nn.Module:
    """mlp, film or conv; the last layer begins at zero, so that training starts from the base drift."""
    if kind == "mlp":
        return Plain(d, hidden)
    if kind == "film":
        return Film(d, hidden)
    if kind == "conv":
        if shape is None or math.prod(shape) != d:
            raise UsageError(
                f"network='conv' needs image_shape=(channels, height, width) with {d} values; got {shape}."
            )
        return Conv(shape, hidden)
    raise UsageError(f"network must be one of {', '.join(NETWORKS)}; got {kind!r}.")


class Drift(nn.Module):
    """base(x, t, eps) + eps w net(w x, t, log eps), where w = 1 / sqrt(variance + eps) a coordinate."""

    def __init__(
        self, base: MixtureDrift | None, net: nn.Module, variance: Tensor, eps_range: tuple[float, float]
    ) -> None:
        super().__init__()
        self.base, self.net, self.eps_range = base, net, eps_range
        self.variance: Tensor
        self.register_buffer("variance", variance)

    def forward(self, x: Tensor, t: float, eps: Tensor) -> Tensor:
        """(n, d) for x (n, d), a time in [0, 1) and eps (n, 1)."""
        w = (self.variance + eps).rsqrt()
        condition = torch.cat([torch.full_like(eps, 2 * t - 1), scaled_log(eps, self.eps_range)], 1)
        u = eps * w * self.net(w * x, condition)
        return u if self.base is None else u + self.base(x, t, eps)


def _silent(layer: nn.Module) -> None:
    for p in layer.parameters():
        nn.init.zeros_(p)
