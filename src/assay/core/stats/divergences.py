"""Divergences between distributions on a finite set, in nats unless a base is given."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, rel_entr

from assay.core.errors import DataError
from assay.core.stats.resampling import Array


def distribution(weights: ArrayLike) -> Array:
    """Weights or counts along the last axis as probabilities.

    Raises
    ------
    DataError
        Negative or not finite weights, or none above 0.
    """
    w = np.asarray(weights, float)
    if w.ndim == 0 or not np.all(np.isfinite(w)) or np.any(w < 0):
        raise DataError("A distribution needs finite weights of at least 0 along its last axis.")
    total = w.sum(axis=-1, keepdims=True)
    if np.any(total <= 0):
        raise DataError("A distribution needs at least one weight above 0.")
    return w / total


def entropy(p: ArrayLike, *, base: float | None = None) -> Array:
    """Shannon entropy along the last axis."""
    return _scaled(entr(distribution(p)).sum(axis=-1), base)


def kl(p: ArrayLike, q: ArrayLike, *, base: float | None = None) -> Array:
    """Kullback-Leibler divergence of ``p`` from ``q``; inf where ``p`` has mass and ``q`` has none."""
    p, q = _pair(p, q)
    return _scaled(rel_entr(p, q).sum(axis=-1), base)


def js(p: ArrayLike, q: ArrayLike, *, base: float | None = None) -> Array:
    """Jensen-Shannon divergence (not its root), at most ln 2 (Lin 1991)."""
    p, q = _pair(p, q)
    middle = (p + q) / 2
    return _scaled((rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=-1) / 2, base)


def generalised_js(distributions: ArrayLike, *, weights: ArrayLike | None = None, base: float | None = None) -> Array:
    """Jensen-Shannon divergence of several distributions, shape (..., members, outcomes): entropy of the mixture
    less the mean entropy."""
    p = distribution(distributions)
    w = np.full(p.shape[-2], 1.0) if weights is None else np.asarray(weights, float)
    w = distribution(w)
    mixture = np.einsum("m,...mk->...k", w, p)
    return _scaled(entr(mixture).sum(axis=-1) - entr(p).sum(axis=-1) @ w, base)


def total_variation(p: ArrayLike, q: ArrayLike) -> Array:
    """Half the sum of absolute differences, in [0, 1]."""
    p, q = _pair(p, q)
    return np.abs(p - q).sum(axis=-1) / 2


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[Array, Array]:
    a, b = distribution(p), distribution(q)
    if a.shape[-1] != b.shape[-1]:
        raise DataError(f"Two distributions over {a.shape[-1]} and {b.shape[-1]} outcomes have no divergence.")
    return a, b


def _scaled(nats: Array, base: float | None) -> Array:
    return nats if base is None else nats / np.log(base)
