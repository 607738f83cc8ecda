"""Sources as such, and Gaussian mixtures: all the closed forms of the backward heat equation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError
from assay.information.rate_distortion.closed import LOG_2PI_E, Exact, check_eps, water_filling

Array = NDArray[np.float64]


class Source(ABC):
    """A law on R^d that can be sampled.

    Attributes
    ----------
    d
        Dimension.
    limit
        Largest eps for which the law is another one convolved with N(0, eps I): up to it Shannon's lower bound is R(D).
        0 = never.
    """

    d: int = 1
    limit: float = 0.0

    @property
    def name(self) -> str:
        """For tables."""
        return type(self).__name__.lower()

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """``n`` points, (n, d)."""

    def log_density(self, x: ArrayLike) -> Array:
        """log p at (n, d) points, (n,); not every source knows it."""
        raise UsageError(f"The density of {self.name} is not known in closed form.")

    def entropy(self) -> tuple[float, float]:
        """Differential entropy in nats and its standard error (0 where it is exact or a quadrature)."""
        raise UsageError(f"The differential entropy of {self.name} is not known in closed form.")

    def covariance(self) -> Array:
        """(d, d); by 100 000 samples where no formula is at hand."""
        return np.atleast_2d(np.asarray(np.cov(self.sample(100_000, np.random.default_rng(0)).T), float))

    def exact_rd(self, eps: float) -> Exact:
        """The exact point of R(D) at slope -1/eps.

        Raises
        ------
        UsageError
            ``eps`` is above the source's ``limit``; the limit is told.
        """
        eps = check_eps(eps)
        if eps > self.limit:
            raise UsageError(
                f"R(D) of {self.name} has a closed form for eps <= {self.limit:g} only; got eps={eps:g}. Use "
                "blahut_arimoto (1-D, 2-D) or an estimator."
            )
        h, se = self.entropy()
        h1 = self._terminal_entropy(eps)
        return Exact(
            eps, h - self.d / 2 * (LOG_2PI_E + math.log(eps)), self.d * eps / 2, h, h1, eps * (h - h1), eps * h, se
        )

    def _terminal_entropy(self, eps: float) -> float:
        return math.nan


class GaussianMixture(Source):
    """sum_i w_i N(m_i, S_i), with the closed forms of the backward heat equation.

    Parameters
    ----------
    weights
        (k,), above 0, summing to 1.
    means
        (k, d); (k,) in one dimension.
    covariances
        (k, d, d), or (k,) variances of round components.
    """

    def __init__(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> None:
        w, m, s = (np.asarray(a, float) for a in (weights, means, covariances))
        m = m[:, None] if m.ndim == 1 else m
        if m.ndim != 2 or w.shape != (len(m),) or not np.isclose(w.sum(), 1) or np.any(w <= 0):
            raise UsageError("A mixture needs k weights above 0 that sum to 1 and means of shape (k, d).")
        k, d = m.shape
        if s.shape == (k,):
            s = s[:, None, None] * np.eye(d)
        if s.shape != (k, d, d) or not np.allclose(s, s.transpose(0, 2, 1)):
            raise UsageError(f"covariances must have shape ({k}, {d}, {d}) and be symmetric; got {s.shape}.")
        values, vectors = np.linalg.eigh(s)
        if values.min() <= 0:
            raise UsageError(
                f"Covariance {int(values.min(1).argmin())} has the eigenvalue {values.min():.3g}; all must be above 0 "
                "(whiten or reduce the dimension first)."
            )
        self.weights, self.means, self.covariances, self.d = w / w.sum(), m, s, d
        self.variances, self.axes = values, vectors
        self.limit = float(values.min())

    @property
    def name(self) -> str:
        """gmmK."""
        return f"gmm{len(self.weights)}"

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d)."""
        i = rng.choice(len(self.weights), n, p=self.weights)
        roots = self.axes * np.sqrt(self.variances)[:, None]
        return self.means[i] + np.einsum("nij,nj->ni", roots[i], rng.standard_normal((n, self.d)))

    def covariance(self) -> Array:
        """(d, d)."""
        away = self.means - self.weights @ self.means
        return np.einsum("k,kij->ij", self.weights, self.covariances + away[:, :, None] * away[:, None])

    def log_density(self, x: ArrayLike, removed: float = 0.0) -> Array:
        """log p_t with ``removed`` = eps t taken off every covariance; (n,)."""
        return self._parts(x, removed)[0]

    def score(self, x: ArrayLike, removed: float = 0.0) -> Array:
        """grad log p_t, (n, d)."""
        _, r, turned, v = self._parts(x, removed)
        return -np.einsum("nk,kij,nkj->ni", r, self.axes, turned / v)

    def drift(self, x: ArrayLike, t: float, eps: float) -> Array:
        """The optimal drift u(x, t) = eps grad log p_t(x), (n, d); E[X_1 - X_0 | X_0 = x] = u(x, 0)."""
        self._check(eps)
        return eps * self.score(x, eps * t)

    def responsibilities(self, x: ArrayLike, removed: float = 0.0) -> Array:
        """(n, k)."""
        return self._parts(x, removed)[1]

    def terminal(self, eps: float) -> GaussianMixture:
        """The optimal reconstruction law: covariances S_i - eps I."""
        self._check(eps)
        return GaussianMixture(self.weights, self.means, self.covariances - eps * np.eye(self.d))

    def test_channel(self, x: ArrayLike, eps: float) -> tuple[Array, Array, Array]:
        """Law of the reconstruction given x: weights (n, k), means (n, k, d), covariances (k, d, d)."""
        self._check(eps)
        points = self._points(x)
        shrink = np.eye(self.d) - eps * np.linalg.inv(self.covariances)
        means = self.means + np.einsum("kij,nkj->nki", shrink, points[:, None] - self.means)
        return self.responsibilities(points), means, eps * shrink

    def sample_reconstruction(self, x: ArrayLike, eps: float, rng: np.random.Generator) -> Array:
        """One exact draw of the optimal reconstruction for every row of x, without simulation."""
        r, means, covariances = self.test_channel(x, eps)
        i = (r.cumsum(1) < rng.random((len(r), 1))).sum(1).clip(0, len(self.weights) - 1)
        roots = np.linalg.cholesky(covariances)
        n = len(r)
        return means[np.arange(n), i] + np.einsum("nij,nj->ni", roots[i], rng.standard_normal((n, self.d)))

    def entropy(self) -> tuple[float, float]:
        """By quadrature in one and two dimensions, by 400 000 samples above; exact for one component."""
        if len(self.weights) == 1:
            return float(self.d * LOG_2PI_E / 2 + 0.5 * np.log(self.variances).sum()), 0.0
        if self.d <= 2:
            return self._quadrature(), 0.0
        values = -self.log_density(self.sample(400_000, np.random.default_rng(0)))
        return float(values.mean()), float(values.std() / math.sqrt(len(values)))

    def _quadrature(self) -> float:
        reach = 10 * np.sqrt(self.covariances[:, np.arange(self.d), np.arange(self.d)])
        low, high = (self.means - reach).min(0), (self.means + reach).max(0)
        # The trapezoid rule is exponentially accurate for smooth integrands once the cell resolves the kernel.
        count = [int(np.ceil((b - a) / (0.25 * math.sqrt(self.limit)))) + 1 for a, b in zip(low, high)]
        if math.prod(count) > 20_000_000:
            raise UsageError("This mixture is too spread out for quadrature: its smallest variance is too small.")
        axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, count)]
        cell = math.prod(axis[1] - axis[0] for axis in axes)
        total = 0.0
        for first in np.array_split(axes[0], max(1, math.prod(count) // 500_000)):
            grid = np.stack(np.meshgrid(first, *axes[1:], indexing="ij"), -1).reshape(-1, self.d)
            log_p = self.log_density(grid)
            total -= float((np.exp(log_p) * log_p).sum())
        return float(total * cell)

    def _terminal_entropy(self, eps: float) -> float:
        return self.terminal(eps).entropy()[0] if eps < self.limit else math.nan

    def _check(self, eps: float) -> None:
        if not 0 < eps < self.limit:
            raise UsageError(
                f"eps={eps:g} must be above 0 and below the smallest eigenvalue of all covariances, {self.limit:g}."
            )

    def _points(self, x: ArrayLike) -> Array:
        points = np.asarray(x, float)
        points = points[:, None] if points.ndim == 1 and self.d == 1 else points
        if points.ndim != 2 or points.shape[1] != self.d:
            raise UsageError(f"Points must have shape (n, {self.d}); got {np.shape(x)}.")
        return points

    def _parts(self, x: ArrayLike, removed: float) -> tuple[Array, Array, Array, Array]:
        v = self.variances - removed
        if v.min() <= 0:
            raise UsageError(f"The smallest variance is {self.limit:g}; {removed:g} cannot be taken off it.")
        turned = np.einsum("kij,nki->nkj", self.axes, self._points(x)[:, None] - self.means)
        logs = np.log(self.weights) - 0.5 * (turned**2 / v + np.log(2 * math.pi * v)).sum(-1)
        top = logs.max(1, keepdims=True)
        parts = np.exp(logs - top)
        total = parts.sum(1, keepdims=True)
        return (top + np.log(total))[:, 0], parts / total, turned, v


class Gaussian(GaussianMixture):
    """N(mean, covariance); exact at every eps, by reverse water-filling above the smallest eigenvalue.

    Parameters
    ----------
    covariance
        (d, d), (d,) variances, or one variance.
    """

    def __init__(self, covariance: ArrayLike = 1.0, mean: ArrayLike | None = None) -> None:
        s = np.asarray(covariance, float)
        s = np.diag(np.atleast_1d(s)) if s.ndim < 2 else s
        m = np.zeros(len(s)) if mean is None else np.atleast_1d(np.asarray(mean, float))
        super().__init__([1.0], m[None], s[None])

    @property
    def name(self) -> str:
        """gaussian, with its dimension."""
        return f"gaussian{self.d}" if self.d > 1 else "gaussian"

    def exact_rd(self, eps: float) -> Exact:
        """Water level eps; directions with variance <= eps get rate 0 and no density of their reconstruction."""
        eps = check_eps(eps)
        if eps < self.limit:
            return super().exact_rd(eps)
        found = water_filling(self.variances[0], level=eps)
        return Exact(eps, found.rate, found.half_mse, self.entropy()[0])
