"""Compiled elastic measures on unequal multivariate series: banded DTW with lower bounds, LCSS.

A series is an array of shape (T, channels). Many series are one flat array [total, channels] with offsets [n + 1].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from assay.core.errors import DataError
from assay.learning.irregular.array import Array

NO_BAND = -1


def flatten(series: Sequence[ArrayLike]) -> tuple[Array, Array]:
    """(flat [total, channels], offsets [n + 1]) of series of shape (T_i, channels), or (T_i,)."""
    found = [np.asarray(x, float) for x in series]
    found = [x[:, None] if x.ndim == 1 else x for x in found]
    if any(len(x) == 0 for x in found):
        raise DataError(f"Series {next(i for i, x in enumerate(found) if len(x) == 0)} is empty; drop it.")
    offsets = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(x) for x in found], out=offsets[1:])
    return np.ascontiguousarray(np.concatenate(found)), offsets


def from_padded(X: ArrayLike) -> tuple[Array, Array]:
    """Flat form of a padded array (n, channels, T): each series up to its last observed column; NaN inside becomes 0.

    tslearn does the same: the end is where all channels are NaN, and what is missing before it is 0 to `nan_to_num`.
    """
    X = np.asarray(X, float)
    seen = np.asarray(~np.isnan(X).all(axis=1))
    lengths = np.where(seen.any(axis=1), X.shape[2] - np.argmax(seen[:, ::-1], axis=1), 0)
    if (lengths == 0).any():
        raise DataError(f"Series {int(np.nonzero(lengths == 0)[0][0])} has no value at all; drop it.")
    offsets = np.zeros(len(X) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    inside = np.arange(X.shape[2])[None, :] < lengths[:, None]
    return np.ascontiguousarray(np.nan_to_num(X.transpose(0, 2, 1)[inside])), offsets


def dtw(a: ArrayLike, b: ArrayLike, radius: int | None = None) -> float:
    """Dynamic time warping: root of the least sum of squared distances along a path inside the band.

    Parameters
    ----------
    radius
        Sakoe-Chiba radius in cells. Where lengths differ the band is widened by the difference on the longer side:
        cell (i, j) is in it iff i - r <= j <= i + (m - n) + r for n <= m. None = no band.
    """
    (x, _), (y, _) = flatten([a]), flatten([b])
    return float(np.sqrt(_dtw(x, y, _radius(radius), np.inf)))


def lcss(a: ArrayLike, b: ArrayLike, eps: float = 1.0, radius: int | None = None) -> float:
    """Longest common subsequence by the shorter length: points match within Euclidean distance ``eps``, in [0, 1]."""
    (x, _), (y, _) = flatten([a]), flatten([b])
    return float(_lcss(x, y, eps, _radius(radius)))


def dtw_matrix(A: tuple[Array, Array], B: tuple[Array, Array], radius: int | None = None) -> Array:
    """DTW of every series of A to every one of B, shape (n, m)."""
    return np.sqrt(_dtw_matrix(*A, *B, _radius(radius)))


def nearest(A: tuple[Array, Array], B: tuple[Array, Array], k: int, radius: int | None = None) -> tuple[Array, Array]:
    """(distances, indices) [n, k] of the k nearest of B to each of A, equal to a sorted `dtw_matrix`.

    Distances are abandoned once no path can come under the k-th best; candidates whose ends alone (or, where lengths
    are equal, whose envelope: LB_Keogh) are too far are not begun. Ties go to the lower index.
    """
    found, places = _nearest(*A, *B, k, _radius(radius))
    return np.sqrt(found), places


def lcss_matrix(
    A: tuple[Array, Array], B: tuple[Array, Array], eps: float = 1.0, radius: int | None = None, *, same: bool = False
) -> Array:
    """LCSS similarity of every series of A to every one of B; ``same`` says that B is A and halves the work."""
    return _lcss_matrix(*A, *B, eps, _radius(radius), same)


def _radius(radius: int | None) -> int:
    return NO_BAND if radius is None else int(radius)


@njit(cache=True, fastmath=False)
def _band(n, m, r):
    """(left, right): row i reaches from i - left to i + right."""
    if r < 0:
        return n + m, n + m
    if n <= m:
        return r, m - n + r
    return n - m + r, r


@njit(cache=True)
def _dtw(x, y, r, limit):
    """Least squared cost, or infinity once it must be above ``limit``."""
    n, channels = x.shape
    m = y.shape[0]
    left, right = _band(n, m, r)
    previous = np.full(m + 1, np.inf)
    current = np.full(m + 1, np.inf)
    previous[0] = 0.0
    for i in range(n):
        low = max(0, i - left)
        high = min(m, i + right + 1)
        current[low] = np.inf
        best = np.inf
        # Kept in registers: the cell to the left, and the one above it.
        beside = np.inf
        corner = previous[low]
        for j in range(low, high):
            cost = 0.0
            for c in range(channels):
                d = x[i, c] - y[j, c]
                cost += d * d
            above = previous[j + 1]
            least = corner
            if above < least:
                least = above
            if beside < least:
                least = beside
            beside = cost + least
            corner = above
            current[j + 1] = beside
            if beside < best:
                best = beside
        if best > limit:
            return np.inf
        if high < m:
            current[high + 1] = np.inf
        previous, current = current, previous
    return previous[m]


@njit(cache=True)
def _dtw_matrix(x, xo, y, yo, r):
    n, m = len(xo) - 1, len(yo) - 1
    out = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            out[i, j] = _dtw(x[xo[i] : xo[i + 1]], y[yo[j] : yo[j + 1]], r, np.inf)
    return out


@njit(cache=True)
def _envelope(b, r):
    """(upper, lower) of a series within r cells."""
    m, channels = b.shape
    upper, lower = np.empty((m, channels)), np.empty((m, channels))
    for j in range(m):
        a, z = max(0, j - r), min(m, j + r + 1)
        for c in range(channels):
            u, v = b[a, c], b[a, c]
            for k in range(a + 1, z):
                if b[k, c] > u:
                    u = b[k, c]
                if b[k, c] < v:
                    v = b[k, c]
            upper[j, c], lower[j, c] = u, v
    return upper, lower


@njit(cache=True)
def _ends(a, b):
    """Bound by the first and last cells, which every path holds."""
    total = 0.0
    for c in range(a.shape[1]):
        d = a[0, c] - b[0, c]
        total += d * d
    if len(a) > 1 or len(b) > 1:
        for c in range(a.shape[1]):
            d = a[-1, c] - b[-1, c]
            total += d * d
    return total


@njit(cache=True)
def _keogh(a, upper, lower, limit):
    total = 0.0
    for i in range(a.shape[0]):
        for c in range(a.shape[1]):
            v = a[i, c]
            if v > upper[i, c]:
                total += (v - upper[i, c]) ** 2
            elif v < lower[i, c]:
                total += (lower[i, c] - v) ** 2
        if total > limit:
            return total
    return total


@njit(cache=True)
def _nearest(x, xo, y, yo, k, r):
    n, m = len(xo) - 1, len(yo) - 1
    best = np.full((n, k), np.inf)
    place = np.full((n, k), -1, np.int64)
    upper, lower = np.empty_like(y), np.empty_like(y)
    if r >= 0:
        for j in range(m):
            u, v = _envelope(y[yo[j] : yo[j + 1]], r)
            upper[yo[j] : yo[j + 1]] = u
            lower[yo[j] : yo[j + 1]] = v
    for i in range(n):
        a = x[xo[i] : xo[i + 1]]
        bound = np.empty(m)
        for j in range(m):
            b = y[yo[j] : yo[j + 1]]
            bound[j] = _ends(a, b)
            if r >= 0 and len(a) == len(b):
                bound[j] = max(bound[j], _keogh(a, upper[yo[j] : yo[j + 1]], lower[yo[j] : yo[j + 1]], np.inf))
        for j in np.argsort(bound, kind="mergesort"):
            # A hair of slack: bound and cost sum in different orders.
            if bound[j] * (1 - 1e-12) > best[i, k - 1]:
                break
            d = _dtw(a, y[yo[j] : yo[j + 1]], r, best[i, k - 1])
            at = k - 1
            if d > best[i, at] or (d == best[i, at] and (place[i, at] >= 0 and j > place[i, at])) or d == np.inf:
                continue
            while at > 0 and (d < best[i, at - 1] or (d == best[i, at - 1] and j < place[i, at - 1])):
                best[i, at], place[i, at] = best[i, at - 1], place[i, at - 1]
                at -= 1
            best[i, at], place[i, at] = d, j
    return best, place


@njit(cache=True)
def _lcss(x, y, eps, r):
    n, channels = x.shape
    m = y.shape[0]
    left, right = _band(n, m, r)
    previous = np.zeros(m + 1, np.int64)
    current = np.zeros(m + 1, np.int64)
    limit = eps * eps
    for i in range(n):
        low = max(0, i - left)
        high = min(m, i + right + 1)
        # Outside the band a cell counts 0, as it does in tslearn.
        current[low] = 0
        for j in range(low, high):
            cost = 0.0
            for c in range(channels):
                d = x[i, c] - y[j, c]
                cost += d * d
            if cost <= limit:
                current[j + 1] = previous[j] + 1
            else:
                current[j + 1] = max(previous[j + 1], current[j])
        if high < m:
            current[high + 1] = 0
        previous, current = current, previous
    return previous[m] / min(n, m)


@njit(cache=True)
def _lcss_matrix(x, xo, y, yo, eps, r, same):
    n, m = len(xo) - 1, len(yo) - 1
    out = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            if same and j < i:
                out[i, j] = out[j, i]
            else:
                out[i, j] = _lcss(x[xo[i] : xo[i + 1]], y[yo[j] : yo[j + 1]], eps, r)
    return out
