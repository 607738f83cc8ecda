"""Blahut and Arimoto's algorithm on grids in one and two dimensions: convolution kernels and accelerated steps.

The Lagrangian min over q of -sum_x p(x) log (K q)(x), K = exp(-|x - y|^2 / (2 eps)), is R + D / eps at the optimum, and
L - log max_y c(y) with c = K'(p / K q) bounds it from below for reproductions on the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError
from assay.information.rate_distortion.closed import check_eps
from assay.information.rate_distortion.curves import Curve, Point

Array = NDArray[np.float64]
KernelName = Literal["auto", "dense", "log", "fft", "separable"]
TINY = 1e-300


class Kernel(Protocol):
    """Products with K = exp(-C / eps), with C K, and with the transposes (grids are shared, so K is symmetric)."""

    def apply(self, q: Array) -> Array:
        """K q."""
        ...

    def cost(self, q: Array) -> Array:
        """(C K) q, elementwise product in the kernel."""
        ...


class DenseKernel:
    """Any set of points: an n x m matrix."""

    def __init__(self, x: Array, y: Array, eps: float) -> None:
        self.c = 0.5 * ((x[:, None] - y[None]) ** 2).sum(-1)
        self.k = np.exp(-self.c / eps)

    def apply(self, q: Array) -> Array:
        """K q."""
        return self.k @ q

    def cost(self, q: Array) -> Array:
        """(C K) q."""
        return (self.c * self.k) @ q


class ConvolutionKernel:
    """An even grid in one dimension: K is a convolution with a Gaussian, done by FFT in O(n log n)."""

    def __init__(self, n: int, cell: float, eps: float) -> None:
        from scipy import fft

        self.n, self.size = n, int(fft.next_fast_len(2 * n - 1, real=True) or 2 * n - 1)
        c = 0.5 * (cell * np.arange(n)) ** 2
        k = np.asarray(np.exp(-c / eps), float)
        self.spectrum, self.cost_spectrum = self._spectrum(k), self._spectrum(np.asarray(c * k, float))

    def apply(self, q: Array) -> Array:
        """K q."""
        return self._convolve(q, self.spectrum)

    def cost(self, q: Array) -> Array:
        """(C K) q."""
        return self._convolve(q, self.cost_spectrum)

    def _spectrum(self, k: Array) -> Array:
        from scipy import fft

        wrapped = np.zeros(self.size)
        wrapped[: self.n] = k
        wrapped[self.size - self.n + 1 :] = k[:0:-1]
        # An even sequence: the imaginary part is rounding.
        return np.real(np.asarray(fft.rfft(wrapped)))

    def _convolve(self, q: Array, spectrum: Array) -> Array:
        from scipy import fft

        return np.maximum(
            np.asarray(fft.irfft(np.asarray(fft.rfft(q, self.size)) * spectrum, self.size))[: self.n], 0.0
        )


class SeparableKernel:
    """A product grid in two dimensions: K is the product of a kernel an axis, O(n^3) for n x n cells, not n^4."""

    def __init__(self, axes: Sequence[Array], eps: float) -> None:
        self.shape = tuple(len(a) for a in axes)
        c = [0.5 * (a[:, None] - a[None]) ** 2 for a in axes]
        self.k = [np.exp(-one / eps) for one in c]
        self.ck = [one * k for one, k in zip(c, self.k)]

    def apply(self, q: Array) -> Array:
        """K q, flat."""
        return (self.k[0] @ q.reshape(self.shape) @ self.k[1]).ravel()

    def cost(self, q: Array) -> Array:
        """(C K) q, flat."""
        grid = q.reshape(self.shape)
        return (self.ck[0] @ grid @ self.k[1] + self.k[0] @ grid @ self.ck[1]).ravel()


@dataclass(frozen=True, slots=True)
class BlahutArimoto:
    """Outcome: ``lagrangian`` and ``lower`` enclose the optimum on the grid; ``q`` is the reproduction law."""

    eps: float
    rate: float
    half_mse: float
    lagrangian: float
    gap: float
    iterations: int
    q: Array

    @property
    def lower(self) -> float:
        """Lower bound of the Lagrangian over reproductions on the grid."""
        return self.lagrangian - self.gap


def blahut_arimoto(
    p: ArrayLike,
    grid: ArrayLike | Sequence[ArrayLike],
    eps: float,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 6000,
    kernel: KernelName = "auto",
    accelerate: bool = True,
    start: ArrayLike | None = None,
) -> BlahutArimoto:
    """R(D) at slope -1/eps of a law on a grid, reproduced on the same grid.

    Parameters
    ----------
    p
        Masses, (n,) or (n0, n1); they are normalised.
    grid
        (n,) points in one dimension; a pair of axes in two.
    tolerance
        Duality gap, in nats, at which to stop.
    kernel
        ``fft`` for even 1-D grids, ``separable`` in 2-D, ``dense`` for any, ``log`` in the log domain (slow; for
        kernels that underflow between neighbouring cells).
    accelerate
        Steps q <- q c^omega with the largest omega that still lowers the Lagrangian; False = the plain algorithm
        (omega = 1).
    start
        Reproduction law to start from, such as that of a neighbouring slope; uniform by default.

    Raises
    ------
    UsageError
        The cell is too coarse for eps (cell^2 must be well below eps), or masses and grid do not fit.

    References
    ----------
    Blahut 1972; Arimoto 1972; over-relaxation after Matz and Duhamel 2004.
    """
    eps = check_eps(eps)
    axes = _axes(grid)
    mass = np.asarray(p, float)
    if mass.shape != tuple(len(a) for a in axes) or np.any(mass < 0) or not np.isfinite(mass).all() or mass.sum() <= 0:
        raise UsageError(f"p must hold masses >= 0 of shape {tuple(len(a) for a in axes)}; got shape {mass.shape}.")
    cell = max(float(np.diff(a).max()) for a in axes)
    if cell**2 > eps:
        raise UsageError(
            f"The grid's cell {cell:.3g} is too coarse for eps={eps:g}: its square must be well below eps. Take at "
            f"least {max(2 * cell / math.sqrt(eps), 2):.1f} times as many points."
        )
    mass = mass.ravel() / mass.sum()
    q = np.full(mass.size, 1 / mass.size) if start is None else np.asarray(start, float).ravel()
    if q.shape != mass.shape or np.any(q < 0) or q.sum() <= 0:
        raise UsageError("start must hold masses >= 0 on the grid.")
    if start is not None:
        # Cells that a former slope emptied must be able to come back.
        q = 0.999 * q / q.sum() + 0.001 / q.size
    if kernel == "log":
        return _log_domain(mass, _points(axes), eps, tolerance, max_iterations, q)
    return _iterate(mass, _kernel(kernel, axes, eps), eps, tolerance, max_iterations, accelerate, q)


def _iterate(
    p: Array, kernel: Kernel, eps: float, tolerance: float, most: int, accelerate: bool, q: Array
) -> BlahutArimoto:
    seen = p > 0
    omega, iterations = 1.0, 0

    def step(q: Array) -> tuple[float, Array, Array]:
        kq = np.maximum(kernel.apply(q), TINY)
        ratio = p / kq
        return -float(p[seen] @ np.log(kq[seen])), kernel.apply(ratio), ratio

    loss, c, ratio = step(q)
    while iterations < most and math.log(c.max()) > tolerance:
        iterations += 1
        moved = q * (c / c.max()) ** omega if omega > 1 else q * c
        moved /= moved.sum()
        found = step(moved)
        if omega > 1 and not found[0] <= loss:
            omega = max(1.0, omega / 4)
            continue
        q, (loss, c, ratio) = moved, found
        if accelerate:
            omega *= 1.25
    # sum c q = 1: the test channel p(x) K q / (K q) has c q as its output law.
    d = float(ratio @ kernel.cost(q))
    return BlahutArimoto(eps, loss - d / eps, d, loss, max(0.0, math.log(c.max())), iterations, q)


def _log_domain(p: Array, x: Array, eps: float, tolerance: float, most: int, q: Array) -> BlahutArimoto:
    from scipy.special import logsumexp

    c_over = 0.5 * ((x[:, None] - x[None]) ** 2).sum(-1) / eps
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
    iterations = 0
    while True:
        log_kq = np.asarray(logsumexp(log_q[None] - c_over, 1))
        log_c = np.asarray(logsumexp((log_p - log_kq)[:, None] - c_over, 0))
        gap = float(log_c.max())
        if gap <= tolerance or iterations >= most:
            break
        log_q = log_q + log_c
        log_q -= logsumexp(log_q)
        iterations += 1
    seen = p > 0
    loss = -float(p[seen] @ log_kq[seen])
    d = float((np.exp((log_p - log_kq)[:, None] + log_q[None] - c_over) * c_over).sum()) * eps
    return BlahutArimoto(eps, loss - d / eps, d, loss, max(0.0, gap), iterations, np.exp(log_q))


def blahut_arimoto_curve(
    p: ArrayLike,
    grid: ArrayLike | Sequence[ArrayLike],
    eps: ArrayLike,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 6000,
    kernel: KernelName = "auto",
    source: str = "grid",
) -> Curve:
    """The curve at several slopes, each started from the reproduction of the next smaller eps.

    ``extra["lower"]`` of a point is the lower bound of its Lagrangian: `dual_lower_bound` makes a lower bound of R(D).
    """
    axes = _axes(grid)
    points, q = [], None
    for one in np.sort(np.atleast_1d(np.asarray(eps, float))):
        found = blahut_arimoto(
            p, grid, float(one), tolerance=tolerance, max_iterations=max_iterations, kernel=kernel, start=q
        )
        q = found.q
        points.append(
            Point(
                float(one),
                found.rate,
                found.half_mse,
                se_rate=0.0,
                bound="exact" if found.gap <= tolerance else "upper",
                extra={"lower": found.lower, "gap": found.gap, "iterations": found.iterations},
            )
        )
    mass = np.asarray(p, float).ravel() / np.sum(p)
    x = _points(axes)
    top = float(mass @ ((x - mass @ x) ** 2).sum(1)) / 2
    return Curve(points, len(axes), source, "ba", top)


def discretise(log_density: ArrayLike) -> Array:
    """Masses from log densities at the cells of an even grid."""
    log_p = np.asarray(log_density, float)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def _axes(grid: ArrayLike | Sequence[ArrayLike]) -> list[Array]:
    if isinstance(grid, (list, tuple)) and grid and np.ndim(grid[0]) == 1:
        axes = [np.asarray(a, float) for a in grid]
    else:
        axes = [np.asarray(grid, float)]
    if len(axes) > 2 or any(a.ndim != 1 or len(a) < 2 or np.any(np.diff(a) <= 0) for a in axes):
        raise UsageError("grid must be ascending points in one dimension, or a pair of ascending axes.")
    return axes


def _points(axes: Sequence[Array]) -> Array:
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def _kernel(name: str, axes: Sequence[Array], eps: float) -> Kernel:
    even = len(axes) == 1 and np.allclose(np.diff(axes[0]), axes[0][1] - axes[0][0], rtol=1e-6)
    if name == "auto":
        name = "separable" if len(axes) == 2 else "fft" if even and len(axes[0]) > 128 else "dense"
    if name == "fft":
        if not even:
            raise UsageError("kernel='fft' needs an even grid in one dimension.")
        return ConvolutionKernel(len(axes[0]), float(axes[0][1] - axes[0][0]), eps)
    if name == "separable":
        if len(axes) != 2:
            raise UsageError("kernel='separable' needs a pair of axes.")
        return SeparableKernel(axes, eps)
    if name == "dense":
        points = _points(axes)
        return DenseKernel(points, points, eps)
    raise UsageError(f"kernel must be auto, dense, log, fft or separable; got {name!r}.")
