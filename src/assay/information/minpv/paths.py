"""Interpolation paths between two distributions: x_t = a(t) x0 + b(t) x1 with a(0) = b(1) = 1 and a(1) = b(0) = 0.

Every path is a torch module with ``coefficients(t) -> (a, b, da, db)``: four tensors of t's shape, type and device.
Fixed paths have no parameters; mixtures of distribution functions are learned; a table holds any other.

References: arXiv 2602.00834 (Kumaraswamy mixture); Choi et al. 2022 (DRE-infinity); Song et al. 2021 (VP); Nichol and
Dhariwal 2021 (cosine); Chen et al. 2025 (Foellmer, bridges).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.errors import UsageError, unknown_name

Coefficients = tuple[Tensor, Tensor, Tensor, Tensor]
CONSTRAINTS = ("affine", "spherical")
SHAPES = (0.1, 10.0)
"""The paper's bounds of the Kumaraswamy shapes."""
NODES = 48


class Path(nn.Module):
    """Base of all paths."""

    def coefficients(self, t: Tensor) -> Coefficients:
        """``a, b, da/dt, db/dt`` at times in [0, 1]; at the very ends a derivative may be infinite."""
        raise NotImplementedError

    def forward(self, t: Tensor) -> Coefficients:
        """The same as `coefficients`."""
        return self.coefficients(t)


class Linear(Path):
    """a = 1 - t, b = t."""

    def coefficients(self, t: Tensor) -> Coefficients:
        one = torch.ones_like(t)
        return 1 - t, t, -one, one


class VP(Path):
    """a = exp(-t^2 (high - low)/4 - t low/2), b = sqrt(1 - a^2); a(1) is small, not 0."""

    def __init__(self, low: float = 0.1, high: float = 20.0) -> None:
        super().__init__()
        if not 0 < low < high:
            raise UsageError(f"The rates of a VP path must satisfy 0 < low < high; got {low} and {high}.")
        self.low, self.high = low, high

    def coefficients(self, t: Tensor) -> Coefficients:
        log_a = -t * t * (self.high - self.low) / 4 - t * self.low / 2
        rate = -t * (self.high - self.low) / 2 - self.low / 2
        a, b = torch.exp(log_a), torch.sqrt(-torch.expm1(2 * log_a))
        return a, b, a * rate, -a * a * rate / b


class Foellmer(Path):
    """a = sqrt(1 - t^2), b = t."""

    def coefficients(self, t: Tensor) -> Coefficients:
        a = torch.sqrt((1 - t) * (1 + t))
        return a, t, -t / a, torch.ones_like(t)


class Trigonometric(Path):
    """a = cos(pi t/2), b = sin(pi t/2)."""

    def coefficients(self, t: Tensor) -> Coefficients:
        half = math.pi / 2
        a, b = torch.sin(half * (1 - t)), torch.sin(half * t)
        return a, b, -half * b, half * a


class Cosine(Path):
    """a = sqrt(c), b = sqrt(1 - c), c = cos(pi/2 (t + s)/(1 + s)) / cos(pi/2 s/(1 + s)): one cosine, not squared."""

    def __init__(self, shift: float = 0.008) -> None:
        super().__init__()
        self.shift = shift

    def coefficients(self, t: Tensor) -> Coefficients:
        rate = math.pi / 2 / (1 + self.shift)
        start = self.shift * rate
        scale = math.cos(start)
        # Both differences are written as products: near the ends they would lose their digits.
        c = torch.sin(rate * (1 - t)) / scale
        rest = 2 * torch.sin(start + rate * t / 2) * torch.sin(rate * t / 2) / scale
        slope = -rate * torch.sin(start + rate * t) / scale
        a, b = torch.sqrt(c), torch.sqrt(rest)
        return a, b, slope / (2 * a), -slope / (2 * b)


class Smoothstep(Path):
    """b = 3 t^2 - 2 t^3, a = 1 - b."""

    def coefficients(self, t: Tensor) -> Coefficients:
        b, slope = t * t * (3 - 2 * t), 6 * t * (1 - t)
        return 1 - b, b, -slope, slope


FIXED: dict[str, type[Path]] = {
    "linear": Linear,
    "vp": VP,
    "foellmer": Foellmer,
    "trigonometric": Trigonometric,
    "cosine": Cosine,
    "smoothstep": Smoothstep,
}


def _constraint(name: str) -> str:
    if name not in CONSTRAINTS:
        raise unknown_name("constraint", name, CONSTRAINTS)
    return name


class MixturePath(Path):
    """a = 1 - F(t) for a mixture F of distribution functions on [0, 1].

    Parameters
    ----------
    constraint
        ``affine``: b = 1 - a; ``spherical``: b = sqrt(1 - a^2).
    components
        Number of components, equally weighted at first.

    Notes
    -----
    Parameters are double precision, and so is the arithmetic, whatever the type of t: in single precision
    sqrt(1 - a^2) is 0 near t = 0 and the derivative of b infinite.
    """

    def __init__(self, constraint: str = "affine", components: int = 5) -> None:
        super().__init__()
        if components < 1:
            raise UsageError(f"A mixture path needs at least 1 component; got {components}.")
        self.constraint = _constraint(constraint)
        self.logits = nn.Parameter(torch.zeros(components, dtype=torch.float64))

    @property
    def weights(self) -> Tensor:
        """Weights of the components, shape (K,)."""
        return torch.softmax(self.logits, 0)

    def components(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distribution function, its complement and density of every component at t, shape t.shape + (K,)."""
        raise NotImplementedError

    def coefficients(self, t: Tensor) -> Coefficients:
        kind = t.dtype
        t = t.to(torch.float64).clamp(1e-12, 1 - 1e-15)
        w = self.weights
        below, above, density = ((part * w).sum(-1) for part in self.components(t.unsqueeze(-1)))
        if self.constraint == "affine":
            found = above, below, -density, density
        else:
            b = torch.sqrt((below * (1 + above)).clamp_min(1e-300))
            found = above, b, -density, above * density / b
        a, b, da, db = (part.to(kind) for part in found)
        return a, b, da, db


class KumaraswamyPath(MixturePath):
    """Mixture of Kumaraswamy distributions, F(t) = sum w (1 - (1 - t^alpha)^beta), the path of the paper.

    Parameters
    ----------
    constraint, components
        See `MixturePath`; the paper takes 5 components.
    bounds
        Shapes are softplus of the parameters, held between these.
    """

    def __init__(
        self, constraint: str = "affine", components: int = 5, *, bounds: tuple[float, float] = SHAPES
    ) -> None:
        super().__init__(constraint, components)
        if not 0 < bounds[0] < bounds[1]:
            raise UsageError(f"Bounds of shapes must satisfy 0 < low < high; got {bounds}.")
        self.bounds = bounds
        k = torch.arange(components, dtype=torch.float64)
        early = torch.linspace(0.1, 0.9, components, dtype=torch.float64) < 0.5
        alpha = torch.where(early, 1.5 + 0.5 * k, 3 + 2 * k)
        beta = torch.where(early, 3 + 2 * (components - k), 1.5 + 0.5 * (components - k))
        self.raw = nn.Parameter(torch.stack([alpha, beta]).log())

    @property
    def shapes(self) -> tuple[Tensor, Tensor]:
        """``alpha`` and ``beta`` of the components, shape (K,) each."""
        alpha, beta = F.softplus(self.raw).clamp(*self.bounds)
        return alpha, beta

    def set_shapes(self, weights: Sequence[float], alpha: Sequence[float], beta: Sequence[float]) -> KumaraswamyPath:
        """Give weights and shapes; returns the path."""
        w, shapes = (
            torch.as_tensor(weights, dtype=torch.float64),
            torch.tensor([list(alpha), list(beta)], dtype=torch.float64),
        )
        if len(w) != len(self.logits) or shapes.shape != self.raw.shape or not bool((w > 0).all()):
            raise UsageError(f"This path has {len(self.logits)} components: give as many positive weights and shapes.")
        if not bool(((shapes >= self.bounds[0]) & (shapes <= self.bounds[1])).all()):
            raise UsageError(f"Kumaraswamy shapes must lie in {list(self.bounds)}; got {shapes.tolist()}.")
        with torch.no_grad():
            self.logits.copy_(w.log())
            self.raw.copy_(inverse_softplus(shapes))
        return self

    def raw_bounds(self) -> tuple[float, float]:
        """Range of the parameters in which no shape is clamped."""
        low, high = inverse_softplus(torch.tensor(self.bounds, dtype=torch.float64)).tolist()
        return low, high

    def components(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        alpha, beta = self.shapes
        log_t = torch.log(t)
        log_rest = log1mexp(alpha * log_t)
        log_above = beta * log_rest
        density = alpha * beta * torch.exp((alpha - 1) * log_t + (beta - 1) * log_rest)
        return -torch.expm1(log_above), torch.exp(log_above), density


class BetaPath(MixturePath):
    """Mixture of Beta distributions with shapes of at least 1; its distribution function is a quadrature."""

    def __init__(self, constraint: str = "affine", components: int = 5) -> None:
        super().__init__(constraint, components)
        centre = torch.linspace(0.1, 0.9, components, dtype=torch.float64) if components > 1 else torch.tensor([0.5])
        self.raw = nn.Parameter(inverse_softplus(torch.stack([4 * centre, 4 * (1 - centre)]).double()))
        node, weight = np.polynomial.legendre.leggauss(NODES)
        self.register_buffer("node", torch.from_numpy((node + 1) / 2))
        self.register_buffer("weight", torch.from_numpy(weight / 2))

    @property
    def shapes(self) -> tuple[Tensor, Tensor]:
        """Both shapes of the components, shape (K,) each."""
        first, second = 1 + F.softplus(self.raw).clamp(max=50)
        return first, second

    def components(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, q = self.shapes
        log_b = torch.lgamma(p) + torch.lgamma(q) - torch.lgamma(p + q)

        def density(s: Tensor) -> Tensor:
            return torch.exp((p - 1) * torch.log(s) + (q - 1) * torch.log1p(-s) - log_b)

        # The shorter side is integrated, with a square that tames the end: s = t u^2, or 1 - s = (1 - t) u^2.
        u, w = self.get_buffer("node"), self.get_buffer("weight")
        square = (u * u).view(-1, *[1] * t.dim())
        jacobian = (2 * u * w).view(-1, *[1] * t.dim())
        lower = t * (density(t * square) * jacobian).sum(0)
        upper = (1 - t) * (density(1 - (1 - t) * square) * jacobian).sum(0)
        left = t < p / (p + q)
        return torch.where(left, lower, 1 - upper), torch.where(left, 1 - lower, upper), density(t)


class GaussianPath(MixturePath):
    """Mixture of normal distributions cut to [0, 1]."""

    def __init__(self, constraint: str = "affine", components: int = 5) -> None:
        super().__init__(constraint, components)
        centre = torch.linspace(0.1, 0.9, components, dtype=torch.float64) if components > 1 else torch.tensor([0.5])
        self.centre = nn.Parameter(centre.double())
        self.raw = nn.Parameter(inverse_softplus(torch.full((components,), 0.3, dtype=torch.float64)))

    @property
    def scale(self) -> Tensor:
        """Standard deviations, at least 0.02, shape (K,)."""
        return 0.02 + F.softplus(self.raw)

    def components(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale, centre = self.scale, self.centre.clamp(-1, 2)
        z, low, high = (t - centre) / scale, -centre / scale, (1 - centre) / scale
        # Between two points of one tail the difference is taken in the lower tail, where digits are left.
        mass = _normal_between(low, high)
        density = torch.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * scale * mass)
        return _normal_between(low, z) / mass, _normal_between(z, high) / mass, density


LEARNED: dict[str, type[MixturePath]] = {"kmm": KumaraswamyPath, "beta": BetaPath, "gaussian": GaussianPath}


class TabulatedPath(Path):
    """A path through knots, cubic between them and with continuous derivative.

    Parameters
    ----------
    t
        Knots, increasing, shape (n,), from 0 to 1.
    progress, slope
        Share of the way done at each knot and its derivative: b itself if ``affine``; if ``spherical``, the angle
        over pi/2, a = cos and b = sin of it.
    constraint
        affine or spherical.
    """

    def __init__(
        self, t: Sequence[float] | np.ndarray, progress: Sequence[float] | np.ndarray,
        slope: Sequence[float] | np.ndarray, constraint: str = "affine",
    ) -> None:  # fmt: skip
        super().__init__()
        knots = [torch.as_tensor(np.asarray(part, float)) for part in (t, progress, slope)]
        if len({len(part) for part in knots}) != 1 or len(knots[0]) < 2 or not bool((knots[0].diff() > 0).all()):
            raise UsageError("A tabulated path needs increasing times and as many values and slopes, two at least.")
        self.constraint = _constraint(constraint)
        for name, part in zip(("time", "progress", "slope"), knots):
            self.register_buffer(name, part)

    def coefficients(self, t: Tensor) -> Coefficients:
        kind = t.dtype
        t = t.to(torch.float64)
        time, value, slope = (self.get_buffer(name) for name in ("time", "progress", "slope"))
        at = torch.searchsorted(time, t.contiguous(), right=True).clamp(1, len(time) - 1)
        h = time[at] - time[at - 1]
        u = (t - time[at - 1]) / h
        y0, y1, m0, m1 = value[at - 1], value[at], slope[at - 1] * h, slope[at] * h
        step = y1 - y0
        c2, c3 = 3 * step - 2 * m0 - m1, m0 + m1 - 2 * step
        p, dp = y0 + u * (m0 + u * (c2 + u * c3)), (m0 + u * (2 * c2 + 3 * u * c3)) / h
        if self.constraint == "affine":
            found = 1 - p, p, -dp, dp
        else:
            half = math.pi / 2
            a, b = torch.sin(half * (1 - p)), torch.sin(half * p)
            found = a, b, -half * dp * b, half * dp * a
        a, b, da, db = (part.to(kind) for part in found)
        return a, b, da, db


def make_path(name: str, *, constraint: str = "affine", components: int = 5) -> Path:
    """A path by name: linear, vp, foellmer, trigonometric, cosine, smoothstep; or kmm, beta, gaussian, unfitted."""
    if name in FIXED:
        return FIXED[name]()
    if name in LEARNED:
        return LEARNED[name](constraint, components)
    raise unknown_name("path", name, (*FIXED, *LEARNED))


def inverse_softplus(y: Tensor) -> Tensor:
    """x with log(1 + e^x) = y, for y > 0."""
    return y + torch.log(-torch.expm1(-y))


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - e^x) for x < 0, with all digits at both ends."""
    near = x > -math.log(2)
    # The branch not taken must stay finite too, or its gradient is NaN.
    return torch.where(
        near,
        torch.log(-torch.expm1(torch.where(near, x, -torch.ones_like(x)))),
        torch.log1p(-torch.exp(torch.where(near, -torch.ones_like(x), x))),
    )


def _normal_between(low: Tensor, high: Tensor) -> Tensor:
    flip = (low + high) > 0
    return torch.where(
        flip,
        torch.special.ndtr(-low) - torch.special.ndtr(-high),
        torch.special.ndtr(high) - torch.special.ndtr(low),
    )
