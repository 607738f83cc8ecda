"""The methods behind `RateDistortionEstimator`: fit on samples, give a point at eps, draw reconstructions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.errors import UsageError
from assay.information.rate_distortion.blahut import BlahutArimoto, blahut_arimoto
from assay.information.rate_distortion.closed import water_filling
from assay.information.rate_distortion.curves import Point
from assay.information.rate_distortion.particles import (
    NERD,
    equal_weights,
    functional,
    half_squares,
    nerd,
    wgd,
)
from assay.information.rate_distortion.r2d2 import R2D2, Settings

Array = NDArray[np.float64]


class Backend(Protocol):
    """One method. ``point`` sees samples apart from those of ``fit``."""

    def fit(self, x: Array, progress: Callable[..., None] | None) -> None:
        """Learn from samples (n, d)."""
        ...

    def point(self, eps: float, test: Array) -> Point:
        """Rate and distortion at eps."""
        ...

    def reconstruct(self, x: Array, eps: float, rng: np.random.Generator) -> Array:
        """One draw of the test channel a row, (n, d)."""
        ...


@dataclass
class R2D2Backend:
    """One network for the whole range of eps."""

    settings: Settings
    device: str
    seed: int
    model: R2D2 = field(init=False)

    def fit(self, x: Array, progress: Callable[..., None] | None) -> None:
        """Train."""
        self.x = x
        self.model = R2D2(self.settings, device=self.device, seed=self.seed).fit(x, progress=progress)

    def point(self, eps: float, test: Array) -> Point:
        """An upper bound."""
        return self.model.point(eps, self.x[:8000], test)

    def reconstruct(self, x: Array, eps: float, rng: np.random.Generator) -> Array:
        """Ends of simulated paths."""
        return self.model.simulate(x, eps, seed=int(rng.integers(2**62)))[0]


@dataclass
class ParticleBackend:
    """WGD and its hybrid: points of their own at every eps."""

    particles: int
    steps: int
    lr: float
    batch: int
    hybrid: bool
    dtype: torch.dtype
    device: str
    seed: int
    found: dict[float, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def fit(self, x: Array, progress: Callable[..., None] | None) -> None:
        """Keep the samples; the work is done by eps."""
        self.x, self.found = torch.as_tensor(x, dtype=self.dtype, device=self.device), {}

    def point(self, eps: float, test: Array) -> Point:
        """An upper bound, at most log n."""
        y, log_w = self._at(eps)
        found = functional(self._tensor(test), y, eps, log_w)
        return _particle_point(eps, found, len(y))

    def reconstruct(self, x: Array, eps: float, rng: np.random.Generator) -> Array:
        """Points drawn by the test channel."""
        return _draw(self._tensor(x), *self._at(eps), eps, rng)

    def _tensor(self, x: Array) -> Tensor:
        return torch.as_tensor(x, dtype=self.dtype, device=self.device)

    def _at(self, eps: float) -> tuple[Tensor, Tensor]:
        if eps not in self.found:
            self.found[eps] = wgd(
                self.x,
                eps,
                particles=self.particles,
                steps=self.steps,
                lr=self.lr,
                batch=self.batch,
                hybrid=self.hybrid,
                seed=self.seed,
            )
        return self.found[eps]


@dataclass
class NerdBackend:
    """A generator at every eps, started from that of the eps before."""

    points: int
    steps: int
    lr: float
    batch: int
    hidden: tuple[int, ...]
    dtype: torch.dtype
    device: str
    seed: int
    found: dict[float, NERD] = field(default_factory=dict)

    def fit(self, x: Array, progress: Callable[..., None] | None) -> None:
        """Keep the samples."""
        self.x, self.found = torch.as_tensor(x, dtype=self.dtype, device=self.device), {}

    def point(self, eps: float, test: Array) -> Point:
        """An upper bound, at most the log of the number of points."""
        y = self._points(eps)
        return _particle_point(eps, functional(torch.as_tensor(test).to(y), y, eps), len(y))

    def reconstruct(self, x: Array, eps: float, rng: np.random.Generator) -> Array:
        """Points drawn by the test channel."""
        y = self._points(eps)
        return _draw(torch.as_tensor(x).to(y), y, equal_weights(y), eps, rng)

    def _points(self, eps: float) -> Tensor:
        if eps not in self.found:
            self.found[eps] = nerd(
                self.x,
                eps,
                points=self.points,
                steps=self.steps,
                lr=self.lr,
                batch=self.batch,
                latent=max(16, self.x.shape[1]),
                hidden=self.hidden,
                seed=self.seed,
            )
        with torch.no_grad():
            return self.found[eps].points(self.points, torch.Generator().manual_seed((self.seed + 1) % 2**63))


@dataclass
class GridBackend:
    """Blahut and Arimoto on a histogram of the samples, in one and two dimensions."""

    cells: int
    tolerance: float
    steps: int
    found: dict[float, BlahutArimoto] = field(default_factory=dict)

    def fit(self, x: Array, progress: Callable[..., None] | None) -> None:
        """Bin the samples; bins reach a little beyond them."""
        d = x.shape[1]
        if d > 2:
            raise UsageError(f"method='ba' needs one or two dimensions; the samples have {d}.")
        n = self.cells if d == 1 else min(self.cells, 128)
        low, high = x.min(0), x.max(0)
        margin = 0.02 * (high - low) + 1e-12
        edges = [np.linspace(a - m, b + m, n + 1) for a, b, m in zip(low, high, margin)]
        self.mass = np.histogramdd(x, edges)[0]
        self.axes = [(e[1:] + e[:-1]) / 2 for e in edges]
        self.found = {}

    def point(self, eps: float, test: Array) -> Point:
        """Exact for the histogram up to the duality gap; test samples are not needed."""
        found = self._at(eps)
        return Point(
            eps,
            found.rate,
            found.half_mse,
            se_rate=0.0,
            bound="estimate",
            extra={"lower": found.lower, "gap": found.gap},
        )

    def reconstruct(self, x: Array, eps: float, rng: np.random.Generator) -> Array:
        """Grid points drawn by the test channel."""
        q = self._at(eps).q
        y = np.stack(np.meshgrid(*self.axes, indexing="ij"), -1).reshape(-1, len(self.axes))
        kept = q > 1e-12
        return _draw(torch.from_numpy(x), torch.from_numpy(y[kept]), torch.from_numpy(np.log(q[kept])), eps, rng)

    def _at(self, eps: float) -> BlahutArimoto:
        if eps not in self.found:
            grid: Any = self.axes[0] if len(self.axes) == 1 else self.axes
            near = min(self.found, key=lambda e: abs(math.log(e / eps)), default=None)
            start = None if near is None else self.found[near].q
            self.found[eps] = blahut_arimoto(
                self.mass, grid, eps, tolerance=self.tolerance, max_iterations=self.steps, start=start
            )
        return self.found[eps]


@dataclass
class GaussianBackend:
    """The Gaussian with the samples' covariance: its curve bounds that of every law with this covariance from above."""

    def fit(self, x: Array, progress: Callable[..., None] | None) -> None:
        """Mean and covariance."""
        self.mean = x.mean(0)
        self.variances, self.axes = np.linalg.eigh(np.atleast_2d(np.cov(x.T)))

    def point(self, eps: float, test: Array) -> Point:
        """Reverse water-filling at level eps."""
        found = water_filling(self.variances, level=eps)
        return Point(eps, found.rate, found.half_mse, se_rate=0.0)

    def reconstruct(self, x: Array, eps: float, rng: np.random.Generator) -> Array:
        """The Gaussian test channel of every principal axis."""
        keep = np.maximum(1 - eps / self.variances, 0)
        z = (x - self.mean) @ self.axes * keep + np.sqrt(keep * eps) * rng.standard_normal(x.shape)
        return z @ self.axes.T + self.mean


def _particle_point(eps: float, found: Any, count: int) -> Point:
    extra = {"ceiling": math.log(count), "lagrangian": found.loss}
    return Point(eps, max(found.rate, 0.0), found.half_mse, se_rate=found.se_rate, bound="upper", extra=extra)


def _draw(x: Tensor, y: Tensor, log_weights: Tensor, eps: float, rng: np.random.Generator) -> Array:
    rows = []
    for piece in x.split(max(1, (1 << 22) // len(y))):
        chances = torch.softmax(log_weights - half_squares(piece, y) / eps, 1)
        u = torch.from_numpy(rng.random((len(piece), 1))).to(chances)
        rows.append(y[(chances.cumsum(1) < u).sum(1).clamp_max(len(y) - 1)])
    return torch.cat(rows).double().cpu().numpy()
