"""Sources with known densities, entropies and, in part, exact R(D); the user's own samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError
from assay.information.rate_distortion.closed import (
    LOG_2PI_E,
    Exact,
    check_eps,
    log_mgf,
    resultant,
    sphere_rate,
)
from assay.information.rate_distortion.mixtures import Source

Array = NDArray[np.float64]


class Laplace(Source):
    """Density exp(-|x|/scale) / (2 scale), one-dimensional."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = _positive("scale", scale)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, 1)."""
        return rng.laplace(0, self.scale, (n, 1))

    def log_density(self, x: ArrayLike) -> Array:
        """(n,)."""
        return -np.abs(np.asarray(x, float).reshape(-1)) / self.scale - math.log(2 * self.scale)

    def entropy(self) -> tuple[float, float]:
        """1 + log(2 scale)."""
        return 1 + math.log(2 * self.scale), 0.0

    def covariance(self) -> Array:
        """2 scale^2."""
        return np.array([[2 * self.scale**2]])


class Uniform(Source):
    """Uniform on [low, high]; its optimal reconstruction has finitely many points at every eps."""

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        if not low < high:
            raise UsageError(f"low={low} must be below high={high}.")
        self.low, self.high = float(low), float(high)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, 1)."""
        return rng.uniform(self.low, self.high, (n, 1))

    def log_density(self, x: ArrayLike) -> Array:
        """(n,); -inf outside."""
        x = np.asarray(x, float).reshape(-1)
        return np.where((x >= self.low) & (x <= self.high), -math.log(self.high - self.low), -np.inf)

    def entropy(self) -> tuple[float, float]:
        """log(high - low)."""
        return math.log(self.high - self.low), 0.0

    def covariance(self) -> Array:
        """(high - low)^2 / 12."""
        return np.array([[(self.high - self.low) ** 2 / 12]])


class StudentT(Source):
    """Student's t with more than two degrees of freedom (finite variance), one-dimensional."""

    def __init__(self, df: float = 5.0, scale: float = 1.0) -> None:
        if not df > 2:
            raise UsageError(f"df={df} must be above 2: squared error needs a finite variance.")
        self.df, self.scale = float(df), _positive("scale", scale)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, 1)."""
        return self.scale * rng.standard_t(self.df, (n, 1))

    def log_density(self, x: ArrayLike) -> Array:
        """(n,)."""
        from scipy.stats import t

        return t.logpdf(np.asarray(x, float).reshape(-1), self.df, scale=self.scale)

    def entropy(self) -> tuple[float, float]:
        """Closed form of scipy."""
        from scipy.stats import t

        return float(t.entropy(self.df, scale=self.scale)), 0.0

    def covariance(self) -> Array:
        """scale^2 df / (df - 2)."""
        return np.array([[self.scale**2 * self.df / (self.df - 2)]])


class Sphere(Source):
    """Uniform on a sphere; no density, but R(D) in closed form at every eps (`sphere_rate`)."""

    def __init__(self, d: int = 2, radius: float = 1.0) -> None:
        if d < 2:
            raise UsageError(f"A sphere needs at least 2 dimensions; got d={d}.")
        self.d, self.radius = d, _positive("radius", radius)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d)."""
        x = rng.standard_normal((n, self.d))
        return self.radius * x / np.linalg.norm(x, axis=1, keepdims=True)

    def covariance(self) -> Array:
        """radius^2 / d on the diagonal."""
        return self.radius**2 / self.d * np.eye(self.d)

    def exact_rd(self, eps: float) -> Exact:
        """Exact at every eps."""
        rate, half_mse = sphere_rate(self.d, check_eps(eps), self.radius)
        return Exact(eps, rate, half_mse, -math.inf)


class SphereNoise(Sphere):
    """Uniform on a sphere plus N(0, variance I): exact for eps <= variance."""

    def __init__(self, d: int = 2, radius: float = 1.0, variance: float = 0.1) -> None:
        super().__init__(d, radius)
        self.variance = self.limit = _positive("variance", variance)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d)."""
        return super().sample(n, rng) + math.sqrt(self.variance) * rng.standard_normal((n, self.d))

    def covariance(self) -> Array:
        """(d, d)."""
        return super().covariance() + self.variance * np.eye(self.d)

    def log_density(self, x: ArrayLike) -> Array:
        """(n,)."""
        return self._radial(np.linalg.norm(np.asarray(x, float), axis=-1), self.variance)

    def score(self, x: ArrayLike, removed: float = 0.0) -> Array:
        """grad log p_t with ``removed`` = eps t taken off the noise, (n, d)."""
        left = self.variance - removed
        x = np.asarray(x, float)
        norm = np.linalg.norm(x, axis=1)
        a = np.array([resultant(self.d, self.radius * r / left) for r in norm])
        return (self.radius * (a / np.maximum(norm, 1e-300))[:, None] * x - x) / left

    def drift(self, x: ArrayLike, t: float, eps: float) -> Array:
        """eps grad log p_t(x), (n, d)."""
        return eps * self.score(x, eps * t)

    def entropy(self) -> tuple[float, float]:
        """By quadrature over the radius."""
        return self._entropy(self.variance), 0.0

    def exact_rd(self, eps: float) -> Exact:
        """Exact up to the noise's variance."""
        return Source.exact_rd(self, eps)

    def _terminal_entropy(self, eps: float) -> float:
        return self._entropy(self.variance - eps) if eps < self.variance else math.nan

    def _entropy(self, variance: float) -> float:
        from scipy.special import gammaln

        reach = 12 * math.sqrt(variance * max(1, self.d))
        r = np.linspace(max(1e-9, self.radius - reach), self.radius + reach, 40_001)
        log_p = self._radial(r, variance)
        log_area = math.log(2) + self.d / 2 * math.log(math.pi) - gammaln(self.d / 2)
        return float(-np.trapezoid(np.exp(log_p + log_area + (self.d - 1) * np.log(r)) * log_p, r))

    def _radial(self, r: Array, variance: float) -> Array:
        return (
            -self.d / 2 * math.log(2 * math.pi * variance)
            - (r**2 + self.radius**2) / (2 * variance)
            + log_mgf(self.d, self.radius * r / variance)
        )


class Banana(Source):
    """(a, b + bend (a^2 - 1)) with a, b independent normal: curved, yet with the entropy of its parts."""

    d = 2

    def __init__(self, bend: float = 0.5, width: float = 0.5) -> None:
        self.bend, self.width = float(bend), _positive("width", width)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, 2)."""
        a, b = rng.standard_normal(n), self.width * rng.standard_normal(n)
        return np.column_stack([a, b + self.bend * (a**2 - 1)])

    def log_density(self, x: ArrayLike) -> Array:
        """(n,)."""
        a, c = np.asarray(x, float).T
        b = (c - self.bend * (a**2 - 1)) / self.width
        return -0.5 * (a**2 + b**2) - math.log(2 * math.pi * self.width)

    def entropy(self) -> tuple[float, float]:
        """The map has determinant 1: the sum of both normal entropies."""
        return LOG_2PI_E + math.log(self.width), 0.0

    def covariance(self) -> Array:
        """Diagonal."""
        return np.diag([1.0, self.width**2 + 2 * self.bend**2])


class TwoMoons(Source):
    """Two interleaved half circles with normal noise: exact for eps <= noise^2."""

    d = 2

    def __init__(self, noise: float = 0.1) -> None:
        self.noise = _positive("noise", noise)
        self.limit = self.noise**2

    @property
    def name(self) -> str:
        """moons."""
        return "moons"

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, 2)."""
        angle, lower = rng.uniform(0, math.pi, n), rng.random(n) < 0.5
        x = np.where(lower, 1 - np.cos(angle), np.cos(angle))
        y = np.where(lower, 0.5 - np.sin(angle), np.sin(angle))
        return np.column_stack([x, y]) + self.noise * rng.standard_normal((n, 2))

    def log_density(self, x: ArrayLike) -> Array:
        """(n,), by the midpoint rule over the angle."""
        from scipy.special import logsumexp

        # Points along the arcs lie closer together than half the noise's standard deviation.
        count = max(100, math.ceil(2 * math.pi / self.noise))
        angle = (np.arange(count) + 0.5) * math.pi / count
        arc = np.column_stack([np.cos(angle), np.sin(angle)])
        centres = np.concatenate([arc, np.array([1.0, 0.5]) - arc])
        points = np.asarray(x, float)
        out = np.empty(len(points))
        for piece in np.array_split(np.arange(len(points)), max(1, len(points) * count // 2_000_000)):
            away = ((points[piece, None] - centres) ** 2).sum(-1)
            out[piece] = logsumexp(-away / (2 * self.noise**2), 1)
        return out - math.log(len(centres) * 2 * math.pi * self.noise**2)

    def entropy(self) -> tuple[float, float]:
        """By quadrature."""
        reach = 9 * self.noise
        step = self.noise / 3
        axes = [np.arange(a - reach, b + reach, step) for a, b in ((-1.0, 2.0), (-0.5, 1.0))]
        log_p = self.log_density(np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2))
        return -float((np.exp(log_p) * log_p).sum()) * step**2, 0.0


class Samples(Source):
    """The user's own points, drawn with replacement.

    Parameters
    ----------
    x
        (n, d) or (n,); finite, and not a discrete set: repeated rows have no differential entropy.
    """

    def __init__(self, x: ArrayLike, name: str = "samples") -> None:
        self.x = check_samples(x)
        self.d, self._name = self.x.shape[1], name

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d)."""
        return self.x[rng.integers(0, len(self.x), n)]

    def covariance(self) -> Array:
        """(d, d)."""
        return np.atleast_2d(np.asarray(np.cov(self.x.T), float))


def check_samples(x: Any, *, discrete_ok: bool = False) -> Array:
    """(n, d) finite floats; repeated rows and singular covariances are refused with what to do about them."""
    found = np.asarray(x)
    if found.dtype.kind not in "fiu":
        raise UsageError(f"Samples must be numbers; got an array of {found.dtype}.")
    found = found.astype(float)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or len(found) < 10:
        raise UsageError(f"Samples must have shape (n, d) with n >= 10; got {np.shape(x)}.")
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        i, j = bad[0]
        raise UsageError(f"Samples, row {i}, column {j} is {found[i, j]}; all must be finite.")
    if discrete_ok:
        return found
    distinct = len(np.unique(found, axis=0))
    if distinct < 0.9 * len(found):
        raise UsageError(
            f"Only {distinct} of {len(found)} samples are distinct: a discrete source has no differential entropy. Use "
            "method='ba' or 'wgd', or add the noise that quantisation took (uniform dither)."
        )
    values = np.linalg.eigvalsh(np.atleast_2d(np.cov(found.T)))
    if values[0] <= 1e-10 * values[-1]:
        raise UsageError(
            f"The covariance of the samples is singular (eigenvalues {values[0]:.3g} to {values[-1]:.3g}), so the "
            "entropy is -inf: drop the dead directions first (they cost no rate; add their distortion, if any)."
        )
    return found


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name}={value!r} must be a finite number above 0.")
    return float(value)
