"""Largest singular value of a matrix without its whole decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError

Matrix = NDArray[Any]
_GRAM_SIDE = 640
_COLUMNS = 4096
_TOLERANCE = 2e-11
_STEPS = 400


def spectral_norm(matrix: Matrix) -> float:
    """Largest singular value, as ``numpy.linalg.norm(matrix, ord=2)`` gives it.

    A matrix with a short side is folded into its Gram matrix; a larger one is met by Golub-Kahan-Lanczos steps with
    full reorthogonalisation, which end once the error bound (residual, or residual squared by gap) is below 2e-11 of
    the value. Should they not end, the Gram matrix decides.

    Parameters
    ----------
    matrix
        Shape (rows, columns), real and finite; sums are in float64.

    References
    ----------
    Golub and Kahan 1965; Simon and Zha 2000 for the one-sided reorthogonalisation.
    """
    a = np.asarray(matrix)
    if a.ndim != 2 or 0 in a.shape:
        raise DataError(f"A spectral norm needs a matrix with rows and columns; got the shape {a.shape}.")
    largest = float(np.max(np.abs(a)))
    if not np.isfinite(largest):
        raise DataError("A spectral norm needs finite numbers.")
    if largest == 0.0:
        return 0.0
    if a.shape[0] > a.shape[1]:
        a = a.T
    if a.shape[0] <= _GRAM_SIDE:
        return largest * _by_gram(a, largest)
    a = a.astype(np.float64, copy=True)
    a /= largest
    found = _by_lanczos(a)
    return largest * (_by_gram(a, 1.0) if found is None else found)


def _by_gram(a: Matrix, scale: float) -> float:
    from scipy.linalg import eigh

    side = a.shape[0]
    gram = np.zeros((side, side))
    for begin in range(0, a.shape[1], _COLUMNS):
        block = a[:, begin : begin + _COLUMNS].astype(np.float64)
        block /= scale
        gram += block @ block.T
    top = eigh(gram, eigvals_only=True, subset_by_index=[side - 1, side - 1])
    return float(np.sqrt(max(top[0], 0.0)))


def _by_lanczos(a: Matrix) -> float | None:
    from scipy.linalg import eigh_tridiagonal

    rows, columns = a.shape
    steps = min(_STEPS, rows)
    left = np.empty((steps, rows))
    alphas, betas = np.empty(steps), np.empty(steps)
    # A fixed start is as good as any: it is orthogonal to the wanted vector with probability zero.
    u = np.random.default_rng(20260301).standard_normal(rows)
    u /= np.linalg.norm(u)
    v, beta = np.zeros(columns), 0.0
    for j in range(steps):
        left[j] = u
        v = a.T @ u - beta * v
        alpha = float(np.linalg.norm(v))
        if alpha > 0:
            v /= alpha
        alphas[j] = alpha
        w = a @ v - alpha * u
        for _ in range(2):
            w -= left[: j + 1].T @ (left[: j + 1] @ w)
        beta = float(np.linalg.norm(w))
        betas[j] = beta
        if j % 5 == 4 or beta <= 1e-14 * alphas[: j + 1].max() or j == steps - 1:
            # The left factor B is lower bidiagonal: B B' is tridiagonal with these entries.
            diagonal = alphas[: j + 1] ** 2
            diagonal[1:] += betas[:j] ** 2
            off = alphas[:j] * betas[:j]
            low = max(0, j - 1)
            values, vectors = eigh_tridiagonal(diagonal, off, select="i", select_range=(low, j))
            top = float(values[-1])
            residual = alpha * beta * abs(float(vectors[-1, -1]))
            gap = top - float(values[0]) if j else top
            error = min(residual, residual**2 / gap if gap > 0 else residual)
            # Half of it: an error of the square is twice that of the root, relatively.
            if (error <= 2 * _TOLERANCE * top and j >= 4) or beta <= 1e-14 * np.sqrt(top):
                return float(np.sqrt(top))
        u = w / beta
    return None
