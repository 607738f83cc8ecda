"""Closed forms: reverse water-filling, Shannon's lower bound, the uniform law on a sphere, bounds for Laplace.

Rates are in nats and distortions half the squared error, D = E|X - Y|^2 / 2, so that the slope of R(D) is -1/eps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError

Array = NDArray[np.float64]
LOG_2PI_E = math.log(2 * math.pi * math.e)


@dataclass(frozen=True, slots=True)
class Filling:
    """Reverse water-filling of a Gaussian: water level, rate (nats), half_mse, squared error of every component."""

    level: float
    rate: float
    half_mse: float
    components_mse: Array


@dataclass(frozen=True, slots=True)
class Exact:
    """An exact point of R(D) with the optimum of terminal-entropy control behind it.

    ``se`` is the standard error of ``rate`` where the source's entropy is a Monte Carlo mean, else 0. Entropies are
    differential, in nats; ``energy`` and ``objective`` are those of the control problem (NaN where its optimum has no
    density).
    """

    eps: float
    rate: float
    half_mse: float
    entropy_source: float
    entropy_terminal: float = math.nan
    energy: float = math.nan
    objective: float = math.nan
    se: float = 0.0

    @property
    def mse(self) -> float:
        """Squared error, summed over dimensions."""
        return 2 * self.half_mse


def check_eps(eps: float) -> float:
    """``eps`` as a float above 0."""
    if not (math.isfinite(eps) and eps > 0):
        raise UsageError(f"eps={eps!r} must be a finite number above 0 (the slope of R(D) is -1/eps).")
    return float(eps)


def water_filling(
    variances: ArrayLike, *, level: float | None = None, total_mse: float | None = None, half_mse: float | None = None
) -> Filling:
    """Rate of a Gaussian with given variances along its axes, by the water level (= eps) or by a distortion.

    Parameters
    ----------
    variances
        Above 0, one a component.
    level, total_mse, half_mse
        Exactly one of them; ``total_mse`` is summed over components and twice ``half_mse``.

    References
    ----------
    Cover and Thomas, Elements of Information Theory, section 10.3.3.
    """
    v = np.atleast_1d(np.asarray(variances, float))
    if v.ndim != 1 or not np.all(np.isfinite(v)) or np.any(v <= 0):
        raise UsageError(f"variances must be finite numbers above 0, one a component; got {variances!r}.")
    if sum(given is not None for given in (level, total_mse, half_mse)) != 1:
        raise UsageError("water_filling needs exactly one of level, total_mse and half_mse.")
    if level is None:
        total = float(total_mse) if total_mse is not None else 2 * float(half_mse or 0.0)
        if not total > 0:
            raise UsageError(f"The distortion must be above 0; got a total squared error of {total!r}.")
        ordered = np.sort(v)
        below = np.concatenate([[0.0], np.cumsum(ordered)])
        left = len(v) - np.arange(len(v))
        # With k components under water the level is what is left, shared by the others.
        levels = (total - below[:-1]) / left
        fits = np.flatnonzero(levels <= ordered)
        level = float(levels[fits[0]]) if len(fits) else float(ordered[-1])
    water = check_eps(level)
    mse = np.minimum(v, water)
    return Filling(water, float(0.5 * np.log(v / mse).sum()), float(mse.sum() / 2), mse)


def shannon_lower_bound(entropy: float, half_mse: ArrayLike, d: int = 1) -> Array:
    """h(X) - d/2 log(2 pi e 2D/d) and at least 0: what no code at that distortion can go below (nats)."""
    distortion = np.asarray(half_mse, float)
    if np.any(distortion <= 0):
        raise UsageError("Shannon's lower bound needs distortions above 0.")
    return np.maximum(0.0, entropy - d / 2 * (LOG_2PI_E + np.log(2 * distortion / d)))


def laplace_bounds(scale: float, half_mse: ArrayLike) -> tuple[Array, Array]:
    """Lower (Shannon) and upper (Gaussian of equal variance) bounds of R(D) of a Laplace law, in nats.

    The lower bound is not reached at any distortion: the density has a kink, so it is no Gaussian convolution.
    """
    if not scale > 0:
        raise UsageError(f"The scale of a Laplace law must be above 0; got {scale!r}.")
    distortion = np.asarray(half_mse, float)
    lower = shannon_lower_bound(1 + math.log(2 * scale), distortion)
    return lower, np.maximum(0.0, 0.5 * np.log(scale**2 / distortion))


def sphere_rate(d: int, eps: float, radius: float = 1.0) -> tuple[float, float]:
    """(rate, half_mse) of the uniform law on the sphere of R^d at slope -1/eps; rate 0 from eps = radius^2/d on.

    The optimal reconstruction is uniform on a smaller sphere of radius r = A_d(r / eps) (radius 1), and the test
    channel von Mises-Fisher with concentration r / eps, A_d being its mean resultant length: the optimality condition
    of Blahut and Arimoto depends on the length of the reconstruction alone and has its only maximum there.
    """
    from scipy.optimize import brentq

    if d < 2:
        raise UsageError(f"A sphere needs at least 2 dimensions; got d={d}.")
    if not radius > 0:
        raise UsageError(f"The radius must be above 0; got {radius!r}.")
    eps = check_eps(eps) / radius**2
    if eps >= 1 / d:
        return 0.0, radius**2 / 2
    r = float(brentq(lambda r: resultant(d, r / eps) - r, 1e-9, 1.0, xtol=1e-15))  # pyright: ignore[reportArgumentType]
    return float(r / eps * r - log_mgf(d, r / eps)), radius**2 * (1 - r**2) / 2


def resultant(d: int, kappa: float) -> float:
    """I_{d/2}(kappa) / I_{d/2-1}(kappa), the mean resultant length of von Mises-Fisher."""
    from scipy.special import ive

    return float(ive(d / 2, kappa) / ive(d / 2 - 1, kappa)) if kappa > 1e-8 else kappa / d


def log_mgf(d: int, kappa: ArrayLike) -> Array:
    """log E exp(kappa V_1) of a uniform point V on the unit sphere of R^d."""
    from scipy.special import gammaln, ive

    k = np.maximum(np.asarray(kappa, float), 1e-12)
    order = d / 2 - 1
    large = gammaln(d / 2) + order * np.log(2 / k) + np.log(np.maximum(ive(order, k), 1e-300)) + k
    # The series where the Bessel function underflows (kappa far below its order).
    return np.where(k < 1e-3, k**2 / (2 * d), large)
