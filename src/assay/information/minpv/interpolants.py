"""What is known of x_t given its ends: a normal distribution with mean mu(t) and variance v(t) I, and its scores.

With x_t = mu + sqrt(v) z the conditional time score is -d v'/(2v) + mu'.z/sqrt(v) + v'|z|^2/(2v), the conditional
data score -z/sqrt(v); their expectations given x_t are the scores of the marginal p_t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from assay.core.errors import UsageError, unknown_name
from assay.information.minpv.paths import Coefficients

EPS_T = 1e-5
"""Times stay in [EPS_T, 1 - EPS_T]: beyond, derivatives of paths may be infinite."""


class Point(NamedTuple):
    """Points of a path (n, d) with their conditional scores, time (n,) and data (n, d)."""

    x: Tensor
    time_score: Tensor
    data_score: Tensor


class Interpolant(Protocol):
    """How x_t is made of x0, x1 and, perhaps, noise."""

    def variance(self, t: Tensor, c: Coefficients) -> tuple[Tensor, Tensor]:
        """v and dv/dt at times t, given the path's coefficients there; shapes as t."""
        ...

    def mean_squares(self, c: Coefficients, x0: float, x1: float, cross: float) -> Tensor:
        """E |mu'|^2 from E|x0|^2, E|x1|^2 and E x0.x1."""
        ...

    def parts(self, c: Coefficients, x0: Tensor, x1: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """mu, mu' and the standard normal part, each (n, d); coefficients are (n, 1)."""
        ...

    @property
    def added_variance(self) -> float:
        """Variance of the noise on x at both ends: what p0 and p1 are smoothed by."""
        ...


@dataclass(frozen=True, slots=True)
class Bridge:
    """DDBI: x_t = a x0 + b x1 + sqrt(v) z, v = gamma_sq t (1 - t) + (a^2 + b^2) epsilon, z standard normal.

    Parameters
    ----------
    gamma_sq, epsilon
        Both are variances. With both 0 there is no noise: the tractable loss still works, conditional scores do not.
    """

    gamma_sq: float = 0.01
    epsilon: float = 0.005

    def __post_init__(self) -> None:
        if self.gamma_sq < 0 or self.epsilon < 0:
            raise UsageError(f"gamma_sq={self.gamma_sq} and epsilon={self.epsilon} are variances, not below 0.")

    def variance(self, t: Tensor, c: Coefficients) -> tuple[Tensor, Tensor]:
        a, b, da, db = c
        v = self.gamma_sq * t * (1 - t) + (a * a + b * b) * self.epsilon
        return v, self.gamma_sq * (1 - 2 * t) + 2 * (a * da + b * db) * self.epsilon

    def mean_squares(self, c: Coefficients, x0: float, x1: float, cross: float) -> Tensor:
        _, _, da, db = c
        return da * da * x0 + db * db * x1 + 2 * da * db * cross

    def parts(self, c: Coefficients, x0: Tensor, x1: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if z is None:
            raise UsageError("A bridge needs standard normal noise z of the shape of x0.")
        a, b, da, db = c
        return a * x0 + b * x1, da * x0 + db * x1, z

    @property
    def added_variance(self) -> float:
        return self.epsilon


@dataclass(frozen=True, slots=True)
class Direct:
    """DI: x_t = a x0 + b x1 with x0 standard normal; given x1 it has mean b x1 and variance a^2.

    The path variance diverges at t = 1 on every path, so that its integral depends on where it is cut.
    """

    def variance(self, t: Tensor, c: Coefficients) -> tuple[Tensor, Tensor]:
        a, _, da, _ = c
        return a * a, 2 * a * da

    def mean_squares(self, c: Coefficients, x0: float, x1: float, cross: float) -> Tensor:
        return c[3] * c[3] * x1

    def parts(self, c: Coefficients, x0: Tensor, x1: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        _, b, _, db = c
        return b * x1, db * x1, x0

    @property
    def added_variance(self) -> float:
        return 0.0


def make_interpolant(name: str, *, gamma_sq: float = 0.01, epsilon: float = 0.005) -> Bridge | Direct:
    """``ddbi`` or ``di``."""
    if name == "ddbi":
        return Bridge(gamma_sq, epsilon)
    if name == "di":
        return Direct()
    raise unknown_name("interpolant", name, ("ddbi", "di"))


def conditional(
    interpolant: Interpolant, t: Tensor, c: Coefficients, x0: Tensor, x1: Tensor, z: Tensor | None = None
) -> Point:
    """Points x_t and their conditional scores.

    Parameters
    ----------
    t
        Times, shape (n,).
    c
        The path's coefficients at t, shape (n,) each.
    x0, x1, z
        Ends and noise (bridges only), shape (n, d).

    Raises
    ------
    UsageError
        The conditional distribution has no variance somewhere, or shapes do not fit.
    """
    if x0.shape != x1.shape or x0.dim() != 2 or t.shape != x0.shape[:1]:
        raise UsageError(
            f"Ends must be (n, d) both and times (n,); got {tuple(x0.shape)}, {tuple(x1.shape)} and {tuple(t.shape)}."
        )
    v, dv = interpolant.variance(t, c)
    if not bool((v > 0).all()):
        raise UsageError("Conditional scores need noise: gamma_sq or epsilon above 0, and times inside (0, 1).")
    column: Coefficients = (c[0][:, None], c[1][:, None], c[2][:, None], c[3][:, None])
    mean, dmean, noise = interpolant.parts(column, x0, x1, z)
    deviation = torch.sqrt(v)
    time = (dmean * noise).sum(1) / deviation + (noise.square().sum(1) - x0.shape[1]) * dv / (
        2 * v
    )  # the d v'/(2v) is taken out of the sum of squares: they nearly cancel in high dimension
    return Point(mean + deviation[:, None] * noise, time, -noise / deviation[:, None])
