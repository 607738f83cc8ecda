"""Pairs of distributions whose log ratio, mutual information or divergence is known, and points in the plane.

A problem is made by `make_problem` from a name and parameters; nothing is drawn before `Problem.draw`. Mutual
information: x1 is drawn from the joint, x0 from the product of the marginals.

References: Kraskov et al. 2004 and Czyz et al. 2023 (transformations), Rhodes et al. 2020 (correlated pairs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UsageError, unknown_name

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """Two distributions.

    Attributes
    ----------
    d
        Dimension.
    draw
        ``draw(n, rng) -> (x0, x1)``, (n, d) each.
    truth
        KL(p1 || p0) in nats: the mutual information, where that is what it is. None = unknown.
    log_ratio
        Exact log p1/p0 at points, or None.
    """

    d: int
    draw: Callable[[int, np.random.Generator], tuple[Array, Array]]
    truth: float | None = None
    log_ratio: Callable[[Array], Array] | None = None


def gaussian_pair_log_ratio(x: Array, rho: float) -> Array:
    """Exact log ratio where coordinates (1, 2), (3, 4), ... have correlation rho under p1, and p0 = N(0, I)."""
    a, b = x[:, 0::2], x[:, 1::2]
    rest = 1 - rho * rho
    each = -0.5 * math.log(rest) - (rho * rho * (a * a + b * b) - 2 * rho * a * b) / (2 * rest)
    return each.sum(1)


def correlated_mi(rho: float, pairs: int = 1) -> float:
    """-pairs/2 log(1 - rho^2), nats."""
    if not -1 < rho < 1:
        raise UsageError(f"A correlation lies between -1 and 1; got rho={rho}.")
    return -0.5 * pairs * math.log1p(-rho * rho)


def additive_noise_mi(noise: float) -> float:
    """I(X; X + U) of X uniform on (0, 1) and U on (-noise, noise)."""
    if not noise > 0:
        raise UsageError(f"noise={noise} must be above 0.")
    return noise - math.log(2 * noise) if noise <= 0.5 else 1 / (4 * noise)


def gamma_exponential_mi(rate: float) -> float:
    """I(X; Y) of X ~ Gamma(rate, 1) and Y | X exponential with rate X: digamma(rate + 1) - log rate."""
    from scipy.special import digamma

    if not rate > 0:
        raise UsageError(f"rate={rate} must be above 0.")
    return float(digamma(rate + 1)) - math.log(rate)


def diagonal_correlation(d: int, mi: float) -> float:
    """Correlation of the d/2 pairs whose mutual information adds up to ``mi``."""
    if d < 2 or d % 2:
        raise UsageError(f"d={d} must be even and at least 2: coordinates come in pairs.")
    return math.sqrt(-math.expm1(-4 * mi / d))


def _pairs(d: int, rho: float, warp: Callable[[Array], Array], back: Callable[[Array], Array] | None) -> Problem:
    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        x0, x1 = rng.normal(size=(n, d)), rng.normal(size=(n, d))
        x1[:, 1::2] = rho * x1[:, 0::2] + math.sqrt(1 - rho * rho) * x1[:, 1::2]
        return warp(x0), warp(x1)

    def log_ratio(x: Array) -> Array:
        return gaussian_pair_log_ratio(back(x) if back else x, rho)

    return Problem(d, draw, correlated_mi(rho, d // 2), log_ratio)


def _identity(x: Array) -> Array:
    return x


def _gauss(rho: float = 0.9) -> Problem:
    return _pairs(2, rho, _identity, None)


def _half_cube(rho: float = 0.9) -> Problem:
    return _pairs(2, rho, lambda x: np.sign(x) * np.abs(x) ** 1.5, lambda x: np.sign(x) * np.abs(x) ** (2 / 3))


def _asinh(rho: float = 0.9) -> Problem:
    return _pairs(2, rho, np.arcsinh, np.sinh)


def _diagonal(d: int = 20, mi: float | None = None) -> Problem:
    mi = mi if mi is not None else (2.0 if d <= 10 else d / 4)
    return _pairs(d, diagonal_correlation(d, mi), _identity, None)


def _additive_noise(noise: float = 0.9) -> Problem:
    truth = additive_noise_mi(noise)

    def joint(n: int, rng: np.random.Generator) -> Array:
        x = rng.uniform(size=n)
        return np.stack([x, x + rng.uniform(-noise, noise, size=n)], 1)

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        first, second = joint(n, rng), joint(n, rng)
        return np.stack([first[:, 0], second[:, 1]], 1), joint(n, rng)

    def log_ratio(points: Array) -> Array:
        x, y = points[:, 0], points[:, 1]
        overlap = np.minimum(y + noise, 1) - np.maximum(y - noise, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = -np.log(overlap)
        return np.where((np.abs(y - x) < noise) & (x > 0) & (x < 1), found, -np.inf)

    return Problem(2, draw, truth, log_ratio)


def _gamma_exponential(rate: float = 1.8) -> Problem:
    truth = gamma_exponential_mi(rate)

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        x, other, third = (rng.gamma(rate, size=n) for _ in range(3))
        y0, y1 = rng.exponential(1 / other), rng.exponential(1 / third)
        return np.stack([x, y0], 1), np.stack([third, y1], 1)

    def log_ratio(points: Array) -> Array:
        x, y = points[:, 0], points[:, 1]
        # p(y | x) = x e^{-xy}; p(y) = rate / (1 + y)^(rate + 1).
        return np.log(x) - x * y - math.log(rate) + (rate + 1) * np.log1p(y)

    return Problem(2, draw, truth, log_ratio)


def _normals(mean: Array, scale: Array) -> Problem:
    """N(0, I) against a normal with this mean and these deviations, independent coordinates."""
    d = len(mean)

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return rng.normal(size=(n, d)), mean + scale * rng.normal(size=(n, d))

    def log_ratio(x: Array) -> Array:
        return (0.5 * x * x - 0.5 * ((x - mean) / scale) ** 2 - np.log(scale)).sum(1)

    truth = float((0.5 * (scale**2 - 1 + mean**2) - np.log(scale)).sum())
    return Problem(d, draw, truth, log_ratio)


def _step(step: int, most: int) -> None:
    if not 0 <= step <= most:
        raise UsageError(f"step={step} must lie between 0 and {most}.")


def _gauss_shift(d: int = 2, step: int = 5) -> Problem:
    _step(step, 19)
    return _normals(np.full(d, 0.2 * step), np.full(d, math.sqrt(1 - 0.05 * step)))


def _isotropic_scale(d: int = 2, step: int = 5) -> Problem:
    _step(step, 1000)
    return _normals(np.zeros(d), np.full(d, 1 + 0.1 * step))


def _last_axis_scale(d: int = 2, step: int = 5) -> Problem:
    _step(step, 1000)
    return _normals(np.zeros(d), np.append(np.ones(d - 1), 1 + 0.1 * step))


def _fixed_kl(d: int = 2, step: int = 5, kl: float = 0.2) -> Problem:
    _step(step, 1000)
    return _normals(np.full(d, math.sqrt(2 * kl * step / d)), np.ones(d))


def _beta_shift(d: int = 2, step: int = 5) -> Problem:
    """Beta(2, 2) against Beta(2 + step/4, 2) in every coordinate."""
    from scipy.special import betaln, digamma

    _step(step, 1000)
    a = 2 + step / 4

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return rng.beta(2, 2, size=(n, d)), rng.beta(a, 2, size=(n, d))

    change = float(betaln(2, 2) - betaln(a, 2))

    def log_ratio(x: Array) -> Array:
        return (change + (a - 2) * np.log(x)).sum(1)

    return Problem(d, draw, d * (change + (a - 2) * float(digamma(a) - digamma(a + 2))), log_ratio)


def channel_error(mi: float) -> float:
    """Error p of a binary symmetric channel that passes ``mi`` bits of a fair one: 1 - h2(p) = mi, by bisection."""
    from scipy.optimize import brentq

    if not 0 <= mi <= 1:
        raise UsageError(f"A bit passes between 0 and 1 bits; got {mi}.")
    if mi == 1:
        return 0.0

    def excess(p: float) -> float:
        return 1 + p * math.log2(p) + (1 - p) * math.log2(1 - p) - mi

    return 0.5 if mi == 0 else float(brentq(excess, 1e-300, 0.5, xtol=1e-15))  # pyright: ignore[reportArgumentType]


def _image_bits(bits: int = 1, mi: float = 0.5, background: float = 0.0) -> Problem:
    """Pictures of zeros and ones: ``bits`` of them, beside pictures of the same bits after a noisy channel.

    ``mi`` is in bits a bit; ``background`` adds uniform noise to the pictures, of no use to any estimator.
    """
    from assay.core.datasets import digits

    p = channel_error(mi)
    side = 64 * bits

    def pictures(code: NDArray[np.int64], rng: np.random.Generator, shelves: list[Array]) -> Array:
        out = np.empty((*code.shape, 64))
        for digit in (0, 1):
            here = code == digit
            out[here] = shelves[digit][rng.integers(0, len(shelves[digit]), int(here.sum()))]
        out += background * rng.uniform(size=out.shape) + rng.uniform(-0.5, 0.5, size=out.shape) / 16
        return out.reshape(len(code), -1)

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        images, labels, _ = digits()
        flat = images.reshape(len(images), 64) / 16.0
        shelves = [flat[labels == digit] for digit in (0, 1)]
        sent = rng.integers(0, 2, (n, bits))
        got = sent ^ (rng.uniform(size=(n, bits)) < p)
        other, unrelated = rng.integers(0, 2, (n, bits)), rng.integers(0, 2, (n, bits))
        x1 = np.concatenate([pictures(sent, rng, shelves), pictures(got, rng, shelves)], 1)
        x0 = np.concatenate([pictures(other, rng, shelves), pictures(unrelated, rng, shelves)], 1)
        return x0, x1

    return Problem(2 * side, draw, bits * mi * math.log(2))


def _plane(name: str) -> Callable[[], Problem]:
    def make() -> Problem:
        def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
            return rng.normal(size=(n, 2)), PLANE[name](n, rng)

        return Problem(2, draw)

    return make


def _swissroll(n: int, rng: np.random.Generator) -> Array:
    t = 1.5 * math.pi * (1 + 2 * rng.uniform(size=n))
    return np.stack([t * np.cos(t), t * np.sin(t)], 1) / 5 + 0.2 * rng.normal(size=(n, 2))


def _eight(n: int, rng: np.random.Generator) -> Array:
    angle = rng.integers(0, 8, n) * math.pi / 4
    return (4 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.5 * rng.normal(size=(n, 2))) / math.sqrt(2)


def _pinwheel(n: int, rng: np.random.Generator) -> Array:
    arm = rng.integers(0, 5, n)
    radial = 1 + 0.3 * rng.normal(size=n)
    across = 0.1 * rng.normal(size=n)
    angle = 2 * math.pi * arm / 5 + 0.25 * np.exp(radial)
    return 2 * np.stack([radial * np.cos(angle) - across * np.sin(angle),
                         radial * np.sin(angle) + across * np.cos(angle)], 1)  # fmt: skip


def _circles(n: int, rng: np.random.Generator) -> Array:
    from sklearn.datasets import make_circles

    return 3 * np.asarray(make_circles(n, factor=0.5, noise=0.08, random_state=int(rng.integers(2**31)))[0])


def _moons(n: int, rng: np.random.Generator) -> Array:
    from sklearn.datasets import make_moons

    return 2 * np.asarray(make_moons(n, noise=0.1, random_state=int(rng.integers(2**31)))[0]) - [1.0, 0.5]


def _two_spirals(n: int, rng: np.random.Generator) -> Array:
    t = np.sqrt(rng.uniform(size=n)) * 3 * math.pi
    sign = 2 * rng.integers(0, 2, n) - 1
    return sign[:, None] * np.stack([-np.cos(t) * t, np.sin(t) * t], 1) / 3 + 0.1 * rng.normal(size=(n, 2))


def _checkerboard(n: int, rng: np.random.Generator) -> Array:
    x = rng.uniform(-2, 2, n)
    y = rng.uniform(size=n) - 2.0 * rng.integers(0, 2, n) + np.floor(x) % 2
    return 2 * np.stack([x, y], 1)


def _rings(n: int, rng: np.random.Generator) -> Array:
    angle, radius = 2 * math.pi * rng.uniform(size=n), rng.integers(1, 5, n) * 0.75
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.08 * rng.normal(size=(n, 2))


def _tree(n: int, rng: np.random.Generator) -> Array:
    """A binary tree of four levels of normal blobs that shrink."""
    side = 2 * rng.integers(0, 2, (n, 4)) - 1
    x = (side * 2.0 ** -np.arange(4)).sum(1) * 1.6
    level = rng.integers(1, 5, n)
    x = np.where(level == 4, x, (side * 2.0 ** -np.arange(4) * (np.arange(4) < level[:, None])).sum(1) * 1.6)
    return np.stack([x, 1.5 * (2.5 - level)], 1) + 0.1 * rng.normal(size=(n, 2))


PLANE: Mapping[str, Callable[[int, np.random.Generator], Array]] = {
    "swissroll": _swissroll,
    "8gaussians": _eight,
    "pinwheel": _pinwheel,
    "circles": _circles,
    "moons": _moons,
    "2spirals": _two_spirals,
    "checkerboard": _checkerboard,
    "rings": _rings,
    "tree": _tree,
}
MI: Mapping[str, Callable[..., Problem]] = {
    "gauss": _gauss,
    "half_cube_map": _half_cube,
    "asinh_mapping": _asinh,
    "additive_noise": _additive_noise,
    "gamma_exponential": _gamma_exponential,
    "diag_multi_gauss": _diagonal,
    "image_bits": _image_bits,
}
SHIFT: Mapping[str, Callable[..., Problem]] = {
    "gauss_shift": _gauss_shift,
    "beta_shift": _beta_shift,
    "isotropic_scale": _isotropic_scale,
    "last_axis_scale": _last_axis_scale,
    "fixed_kl": _fixed_kl,
}


def make_problem(name: str, **parameters: Any) -> Problem:
    """A problem by name, with its parameters."""
    known: dict[str, Callable[..., Problem]] = {**MI, **SHIFT, **{key: _plane(key) for key in PLANE}}
    if name not in known:
        raise unknown_name("problem", name, known)
    try:
        return known[name](**parameters)
    except TypeError as error:
        raise UsageError(f"Problem {name!r} was given parameters it does not take: {sorted(parameters)}.") from error
