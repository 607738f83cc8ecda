"""Path variance: the term V that the tractable loss drops, in closed form, by sampling, and for the marginal.

V = int Var(conditional time score) dt = int [(d/2) (v'/v)^2 + E|mu'|^2 / v] dt. By the law of total variance it is at
least the marginal int E (d/dt log p_t)^2 dt, the constant between the ideal loss and the tractable one.

Reference: arXiv 2602.00834, whose code has 2 |a' b'| E x0.x1 in E|mu'|^2; the sign of a' b' is kept here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import DataError, UsageError
from assay.information.minpv.interpolants import EPS_T, Direct, Interpolant, conditional
from assay.information.minpv.paths import Path

LIMITS = (EPS_T, 1 - EPS_T)


@dataclass(frozen=True, slots=True)
class Moments:
    """Dimension d, E|x0|^2, E|x1|^2 and E x0.x1 (0 for independent pairs of which one side is centred)."""

    d: int
    x0: float
    x1: float
    cross: float = 0.0

    def __post_init__(self) -> None:
        if self.d < 1 or not (self.x0 >= 0 and self.x1 >= 0):
            raise UsageError(f"Moments need d >= 1 and squares not below 0; got d={self.d}, {self.x0}, {self.x1}.")
        if not abs(self.cross) <= math.sqrt(self.x0 * self.x1) * (1 + 1e-9):
            raise UsageError(f"|E x0.x1| = {abs(self.cross):g} exceeds the root of the squares' product.")

    @classmethod
    def of(cls, x0: Tensor | np.ndarray, x1: Tensor | np.ndarray, *, paired: bool = False) -> Moments:
        """From samples (n, d) and (m, d); ``paired``: row i goes with row i, otherwise pairs are independent."""
        a, b = np.asarray(x0, float), np.asarray(x1, float)
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
            raise DataError(f"Samples must be (n, d) and (m, d); got {a.shape} and {b.shape}.")
        if paired and len(a) != len(b):
            raise DataError(f"Pairs need as many x0 as x1; got {len(a)} and {len(b)}.")
        cross = (a * b).sum(1).mean() if paired else a.mean(0) @ b.mean(0)
        return cls(a.shape[1], float((a * a).sum(1).mean()), float((b * b).sum(1).mean()), float(cross))


def integrand(path: Path, t: Tensor, moments: Moments, interpolant: Interpolant) -> Tensor:
    """Variance of the conditional time score at times t: what V is the integral of. Shape of t."""
    c = path.coefficients(t)
    v, dv = interpolant.variance(t, c)
    squares = interpolant.mean_squares(c, moments.x0, moments.x1, moments.cross)
    return moments.d / 2 * (dv / v).square() + squares / v


def nodes(n: int, limits: tuple[float, float] = LIMITS) -> tuple[Tensor, Tensor]:
    """Nodes and weights, double, of Gauss and Legendre's rule in u, t = sin^2(pi u/2): dense at both ends."""
    low, high = limits
    if n < 1 or not 0 <= low < high <= 1:
        raise UsageError(f"A quadrature needs a node and 0 <= low < high <= 1; got {n} nodes, limits {limits}.")
    u0, u1 = (2 / math.pi * math.asin(math.sqrt(end)) for end in (low, high))
    at, weight = np.polynomial.legendre.leggauss(n)
    u = u0 + (u1 - u0) * (at + 1) / 2
    t = np.sin(math.pi * u / 2) ** 2
    return torch.from_numpy(t), torch.from_numpy(weight * (u1 - u0) / 2 * math.pi / 2 * np.sin(math.pi * u))


def path_variance(
    path: Path,
    moments: Moments,
    interpolant: Interpolant,
    *,
    n: int = 400,
    limits: tuple[float, float] = LIMITS,
) -> Tensor:
    """V by quadrature, a double scalar, differentiable in the path's parameters."""
    t, w = nodes(n, limits)
    return (integrand(path, t, moments, interpolant) * w).sum()


def monte_carlo_variance(
    path: Path,
    x0: Tensor,
    x1: Tensor,
    interpolant: Interpolant,
    generator: torch.Generator,
    *,
    n: int = 64,
    limits: tuple[float, float] = LIMITS,
) -> tuple[float, float]:
    """V and its standard error from pairs (m, d): squared conditional time scores at every node of a quadrature."""
    t, w = nodes(n, limits)
    m = len(x0)
    total = torch.zeros(m, dtype=torch.float64)
    with torch.no_grad():
        for at, weight in zip(t, w):
            z = torch.randn(x0.shape, generator=generator, dtype=torch.float64)
            times = at.expand(m)
            point = conditional(interpolant, times, path.coefficients(times), x0.double(), x1.double(), z)
            total += weight * point.time_score.square()
    return float(total.mean()), float(total.std() / math.sqrt(m))


def marginal_time_scores(path: Path, t: float, x: Tensor, x0: Tensor, x1: Tensor, interpolant: Interpolant) -> Tensor:
    """d/dt log p_t(x), shape (n,), where p_t is the mixture of the conditional normals of all pairs given (m, d).

    Exact for the empirical distribution of pairs; for the true one in low dimension with many pairs.
    """
    time = torch.tensor(t, dtype=torch.float64)
    c = path.coefficients(time)
    v, dv = interpolant.variance(time, c)
    mean, dmean, _ = interpolant.parts(c, x0.double(), x1.double(), x0.double())
    found = []
    for piece in x.double().split(256):
        rest = piece[:, None, :] - mean
        square = rest.square().sum(2)
        share = torch.softmax(-square / (2 * v), 1)
        score = -x.shape[1] * dv / (2 * v) + (rest * dmean).sum(2) / v + dv * square / (2 * v * v)
        found.append((share * score).sum(1))
    return torch.cat(found)


def marginal_variance(
    path: Path,
    x0: Tensor,
    x1: Tensor,
    interpolant: Interpolant,
    generator: torch.Generator,
    *,
    points: int = 256,
    n: int = 24,
    limits: tuple[float, float] = LIMITS,
) -> float:
    """int E (d/dt log p_t)^2 dt by a nested estimate: points of their own, scores from all pairs (m, d).

    In high dimension each point sees only its own pair, and the estimate rises to the conditional V.
    """
    t, w = nodes(n, limits)
    total = 0.0
    for at, weight in zip(t.tolist(), w.tolist()):
        pick = torch.randint(len(x0), (points,), generator=generator)
        z = torch.randn((points, x0.shape[1]), generator=generator, dtype=torch.float64)
        times = torch.full((points,), at, dtype=torch.float64)
        x = conditional(interpolant, times, path.coefficients(times), x0[pick].double(), x1[pick].double(), z).x
        total += weight * float(marginal_time_scores(path, at, x, x0, x1, interpolant).square().mean())
    return total


def normal_time_score(
    path: Path, mean: Tensor, covariance: Tensor, interpolant: Interpolant
) -> Callable[[Tensor, Tensor], Tensor]:
    """Exact marginal time score ``(x (n, d), t (n,)) -> (n,)``, double, between N(0, I) and N(mean, covariance)."""
    values, vectors = torch.linalg.eigh(covariance.double())
    m = mean.double() @ vectors

    def score(x: Tensor, t: Tensor) -> Tensor:
        c = path.coefficients(t.double())
        a, b, da, db = (part[:, None] for part in c)
        v, dv = interpolant.variance(t.double(), c)
        s, ds = b * b * values + v[:, None], 2 * b * db * values + dv[:, None]
        if not isinstance(interpolant, Direct):  # whose v is a^2 already
            s, ds = s + a * a, ds + 2 * a * da
        r = x.double() @ vectors - b * m
        return (-ds / (2 * s) + db * m * r / s + ds * r * r / (2 * s * s)).sum(1)

    return score
