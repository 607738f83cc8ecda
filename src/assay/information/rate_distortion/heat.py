"""The backward heat equation for laws given by their characteristic function, with checks of validity."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError
from assay.information.rate_distortion.closed import check_eps
from assay.information.rate_distortion.mixtures import Source

Array = NDArray[np.float64]
NEGATIVE = 1e-13
"""Densities below minus this part of their maximum count as negative: above what rounding leaves."""


class BackwardHeat(Source):
    """p_t(x) = (1/2 pi) int exp(-i w x + eps t w^2 / 2) phi(w) dw on one dimension.

    Parameters
    ----------
    characteristic
        phi(w) = E exp(i w X) for an array of w.
    cutoff
        phi vanishes beyond it (band-limited laws, which solve the equation for every eps). None = phi decays like a
        Gaussian; the integral must then converge, or ``eps`` is refused.
    interval
        (low, high): where the law lives up to a negligible part; positivity is checked there.
    points
        Of the grid over it.

    Notes
    -----
    The solution at t = 1 decides: where it is a density, every p_t is one, convolved with a Gaussian.
    """

    def __init__(
        self,
        characteristic: Callable[[Array], NDArray[np.complex128]],
        *,
        cutoff: float | None = None,
        interval: tuple[float, float] = (-10.0, 10.0),
        points: int = 2001,
    ) -> None:
        if not interval[0] < interval[1]:
            raise UsageError(f"interval={interval} must be (low, high) with low < high.")
        self.characteristic, self.cutoff = characteristic, cutoff
        self.grid = np.linspace(*interval, points)
        self._limit: float | None = None

    @property
    def limit(self) -> float:
        """`largest_eps`, found once."""
        if self._limit is None:
            self._limit = self.largest_eps()
        return self._limit

    def density(self, x: ArrayLike, t: float = 0.0, eps: float = 0.0) -> Array:
        """p_t(x), (n,); negative values stand as they come out."""
        return self._transform(x, eps * t)[0]

    def log_density(self, x: ArrayLike) -> Array:
        """(n,)."""
        return np.log(np.maximum(self.density(x), 1e-300))

    def drift(self, x: ArrayLike, t: float, eps: float) -> Array:
        """eps grad log p_t(x), (n, 1)."""
        if eps > self.limit:
            raise UsageError(f"eps={eps:g} is above {self.limit:g}, up to which p_1 is a density.")
        p, slope = self._transform(x, eps * t)
        return (eps * slope / np.maximum(p, 1e-300))[:, None]

    def entropy(self) -> tuple[float, float]:
        """By the trapezoid rule on the grid."""
        return self._entropy(self.density(self.grid)), 0.0

    def covariance(self) -> Array:
        """By the trapezoid rule on the grid: heavy tails beyond the interval are missed."""
        p = self.density(self.grid)
        mean = np.trapezoid(p * self.grid, self.grid)
        return np.array([[np.trapezoid(p * (self.grid - mean) ** 2, self.grid)]])

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """By the inverse distribution function on the grid, (n, 1)."""
        p = np.maximum(self.density(self.grid), 0)
        steps = np.concatenate([[0.0], np.cumsum((p[1:] + p[:-1]) / 2)])
        return np.interp(rng.random(n), steps / steps[-1], self.grid)[:, None]

    def valid(self, eps: float) -> bool:
        """Whether the integral converges and p_1 is nowhere negative on the grid."""
        try:
            p = self.density(self.grid, 1.0, check_eps(eps))
        except UsageError:
            return False
        least = -NEGATIVE * p.max()
        if p.min() < least:
            return False
        # Negative dips are narrower than a cell where eps is small: look closer around the minima.
        around = self.grid[1:-1][(p[1:-1] <= p[:-2]) & (p[1:-1] <= p[2:])]
        width = self.grid[1] - self.grid[0]
        for _ in range(3):
            fine = around[:, None] + width * np.linspace(-1, 1, 21)
            q = self.density(fine, 1.0, eps).reshape(fine.shape)
            if q.size and q.min() < least:
                return False
            around, width = fine[np.arange(len(fine)), q.argmin(1)], width / 10
        return True

    def largest_eps(self, *, below: float = 1e3, tolerance: float = 1e-4) -> float:
        """Largest eps with a non-negative solution, by bisection; 0 where even a tiny one has none.

        Without a cutoff it ends where the characteristic function is lost to rounding, some 5 % before the truth.
        """
        first = 6.4e-5 / self.cutoff**2 if self.cutoff is not None else 1e-8 * float(np.ptp(self.grid)) ** 2
        low, high = 0.0, first
        while high < below and self.valid(high):
            low, high = high, 4 * high
        if low == 0.0:
            return 0.0
        while high - low > tolerance * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.valid(middle) else (low, middle)
        return low

    def _terminal_entropy(self, eps: float) -> float:
        return self._entropy(self.density(self.grid, 1.0, eps))

    def _entropy(self, p: Array) -> float:
        p = np.maximum(p, 0)
        return float(-np.trapezoid(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0), self.grid))

    def _transform(self, x: ArrayLike, removed: float) -> tuple[Array, Array]:
        x = np.asarray(x, float).reshape(-1)
        top = self.cutoff if self.cutoff is not None else self._decayed(removed)
        reach = max(float(np.abs(x).max(initial=0)), float(np.abs(self.grid).max()))
        # Gauss-Legendre in pieces: phi of a band-limited law is smooth only between its knots.
        pieces = 16
        count = 16 + math.ceil(top * reach / pieces)
        nodes, weights = np.polynomial.legendre.leggauss(count)
        edges = np.linspace(0, top, pieces + 1)
        half = np.diff(edges) / 2
        w = ((edges[:-1] + half)[:, None] + half[:, None] * nodes).ravel()
        # Where exp overflows phi has long underflowed to 0, or `_decayed` would have refused.
        growth = np.exp(np.minimum(removed * w**2 / 2, 700.0))
        lifted = (half[:, None] * weights).ravel() * growth * self.characteristic(w) / math.pi
        p, slope = np.empty(len(x)), np.empty(len(x))
        # phi(-w) is the conjugate of phi(w): twice the real part over w > 0.
        for piece in np.array_split(np.arange(len(x)), max(1, len(x) * len(w) // 4_000_000)):
            waves = np.exp(-1j * np.outer(x[piece], w))
            p[piece] = (waves @ lifted).real
            slope[piece] = (waves @ (-1j * w * lifted)).real
        return p, slope

    def _decayed(self, removed: float) -> float:
        top = 1.0
        for _ in range(40):
            w = np.array([top, 1.25 * top])
            with np.errstate(divide="ignore"):
                size = np.log(np.abs(self.characteristic(w))) + removed * w**2 / 2
            if np.all(size < -39):
                return top
            if size[1] > 7:
                break
            top *= 1.25
        raise UsageError(
            f"The backward heat equation has no solution: the integral does not converge at eps t = {removed:g}."
        )


class Sinc4Mixture(BackwardHeat):
    """Mixture of shifted kernels (sin(bx)/(bx))^4, whose characteristic functions are cubic splines on [-4b, 4b].

    A single kernel has zeros, so it is no Gaussian convolution at any eps. Shifts fill each other's zeros.

    Parameters
    ----------
    shifts, weights
        Of the kernels; equal weights by default.
    bandwidth
        b.
    """

    def __init__(
        self, shifts: ArrayLike, weights: ArrayLike | None = None, *, bandwidth: float = 1.0, points: int = 2001
    ) -> None:
        m = np.atleast_1d(np.asarray(shifts, float))
        w = np.full(len(m), 1 / len(m)) if weights is None else np.asarray(weights, float)
        if w.shape != m.shape or np.any(w <= 0) or not np.isclose(w.sum(), 1):
            raise UsageError("weights must be above 0, one a shift, and sum to 1.")
        if not bandwidth > 0:
            raise UsageError(f"bandwidth={bandwidth!r} must be above 0.")
        self.shifts, self.weights, self.bandwidth = m, w, float(bandwidth)
        reach = 60 / bandwidth
        super().__init__(self._phi, cutoff=4 * bandwidth, interval=(m.min() - reach, m.max() + reach), points=points)

    @property
    def name(self) -> str:
        """sinc4."""
        return "sinc4"

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Exact, tails included: rejection under min(1, y^-4)."""
        out = np.empty(0)
        while len(out) < n:
            u = rng.uniform(-1, 1, 2 * n)
            # Three quarters of the envelope's mass lie within [-1, 1], the tails are those of a Pareto law.
            size = np.where(np.abs(u) < 0.75, np.abs(u) / 0.75, (4 * (1 - np.abs(u)) + 1e-300) ** (-1 / 3))
            y = np.sign(u) * size
            kept = rng.random(2 * n) * np.minimum(1, size**-4.0) < np.sinc(y / math.pi) ** 4
            out = np.concatenate([out, y[kept]])
        i = rng.choice(len(self.weights), n, p=self.weights)
        return (self.shifts[i] + out[:n] / self.bandwidth)[:, None]

    def _phi(self, w: Array) -> NDArray[np.complex128]:
        u = np.abs(w) / (2 * self.bandwidth)
        spline = np.where(u < 1, 1 - 1.5 * u**2 + 0.75 * u**3, np.where(u < 2, 0.25 * (2 - np.minimum(u, 2)) ** 3, 0))
        return spline * (np.exp(1j * np.outer(w, self.shifts)) @ self.weights)
