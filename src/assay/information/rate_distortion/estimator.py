"""RateDistortionEstimator: R(D) from samples, by the method asked for, in scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from assay.core.errors import UsageError, unknown_name
from assay.information.rate_distortion.backends import (
    Backend,
    GaussianBackend,
    GridBackend,
    NerdBackend,
    ParticleBackend,
    R2D2Backend,
)
from assay.information.rate_distortion.curves import Curve, DistortionUnit, RateUnit
from assay.information.rate_distortion.r2d2 import Settings
from assay.information.rate_distortion.sources import check_samples

Array = NDArray[np.float64]
METHODS = ("r2d2", "wgd", "hybrid", "nerd", "ba", "gaussian")


class RateDistortionEstimator(BaseEstimator):
    """Rate-distortion function of samples under squared error.

    Parameters
    ----------
    method
        ``r2d2`` (one network for all eps), ``wgd`` and ``hybrid`` (points; with weights), ``nerd`` (points from a
        generator), ``ba`` (histogram, 1-D and 2-D), ``gaussian`` (closed form; an upper bound for any law).
    eps_range
        (low, high): noise levels, in units of squared data. Low eps = high rate; the slope of R over half the squared
        error is -1/eps. Useful values lie below the smallest variance of the data.
    points
        Of the curve, spaced evenly in log eps.
    steps, batch_size, learning_rate
        None = the method's own. Steps of ``ba`` are its largest number of iterations.
    particles
        Of wgd and hybrid (1000), nerd (4000): rates end at their log. None = that.
    cells
        Of the histogram of ``ba``, an axis.
    simulation_steps, initial, components, entropy, network, hidden, image_shape, checkpointing
        Of r2d2; see `Settings`.
    test_size
        Part of the samples that the curve is measured on, apart from those that were fitted.
    dtype, device
        Of torch.
    random_state
        Seed.

    Attributes
    ----------
    curve_
        The curve on the grid of eps, measured when it is first asked for.
    n_features_in_
        d.
    """

    def __init__(
        self,
        method: Literal["r2d2", "wgd", "hybrid", "nerd", "ba", "gaussian"] = "r2d2",
        *,
        eps_range: tuple[float, float] = (0.01, 0.1),
        points: int = 8,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        particles: int | None = None,
        cells: int = 1001,
        simulation_steps: int = 20,
        initial: Literal["mixture", "zero"] = "mixture",
        components: int = 8,
        entropy: Literal["auto", "spacing", "negentropy", "knife"] = "auto",
        network: Literal["mlp", "film", "conv"] = "mlp",
        hidden: tuple[int, ...] | None = None,
        image_shape: tuple[int, int, int] | None = None,
        checkpointing: bool = False,
        test_size: float = 0.25,
        dtype: Literal["float32", "float64"] = "float32",
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.eps_range = eps_range
        self.points = points
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.particles = particles
        self.cells = cells
        self.simulation_steps = simulation_steps
        self.initial = initial
        self.components = components
        self.entropy = entropy
        self.network = network
        self.hidden = hidden
        self.image_shape = image_shape
        self.checkpointing = checkpointing
        self.test_size = test_size
        self.dtype = dtype
        self.device = device
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: Any = None, *, progress: Callable[..., None] | None = None
    ) -> RateDistortionEstimator:
        """Learn from samples (n, d)."""
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        low, high = self.eps_range
        if not 0 < low <= high:
            raise UsageError(f"eps_range={self.eps_range} must be (low, high) with 0 < low <= high.")
        if not 0 < self.test_size < 1:
            raise UsageError(f"test_size={self.test_size} must lie between 0 and 1.")
        x = check_samples(X, discrete_ok=self.method in ("wgd", "hybrid", "nerd", "ba"))
        self.n_features_in_ = x.shape[1]
        self.half_mse_max_ = float(x.var(0).sum() / 2)
        order = np.random.default_rng(self.random_state).permutation(len(x))
        held = max(1, round(self.test_size * len(x)))
        self.test_ = x[order[:held]]
        self.backend_ = self._backend()
        # A histogram has nothing to over-fit: it takes all samples.
        self.backend_.fit(x if self.method == "ba" else x[order[held:]], progress)
        self.measured_: dict[float, Any] = {}
        return self

    def curve(self, eps: ArrayLike | None = None) -> Curve:
        """The curve at given eps, or on the grid of ``eps_range``; every point is measured once."""
        check_is_fitted(self, "backend_")
        wanted = np.geomspace(*self.eps_range, self.points) if eps is None else np.atleast_1d(np.asarray(eps, float))
        for one in wanted.tolist():
            if not one > 0:
                raise UsageError(f"eps={one!r} must be above 0.")
            if one not in self.measured_:
                self.measured_[one] = self.backend_.point(one, self.test_)
        found = [self.measured_[one] for one in wanted.tolist()]
        return Curve(found, self.n_features_in_, method=self.method, half_mse_max=self.half_mse_max_)

    @property
    def curve_(self) -> Curve:
        """`curve` on the grid."""
        return self.curve()

    def rate(
        self,
        distortion: ArrayLike,
        unit: RateUnit = "bits",
        *,
        distortion_unit: DistortionUnit = "half_mse",
        peak: float = 1.0,
    ) -> Array:
        """Rate at a distortion, on the lower convex envelope of the curve. Mind the unit: half the squared error."""
        return self.curve_.rate(distortion, unit, distortion_unit=distortion_unit, peak=peak)

    def sample_reconstruction(self, X: ArrayLike, eps: float) -> Array:
        """One draw of the reconstruction for every row of X, (n, d)."""
        check_is_fitted(self, "backend_")
        x = np.asarray(X, float)
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise UsageError(f"X must have shape (n, {self.n_features_in_}); got {np.shape(X)}.")
        return self.backend_.reconstruct(x, eps, np.random.default_rng([self.random_state, 1]))

    def _backend(self) -> Backend:
        seed = self.random_state

        def given(name: str, otherwise: Any) -> Any:
            value = getattr(self, name)
            return otherwise if value is None else value

        if self.method == "r2d2":
            choices: dict[str, Any] = {name: getattr(self, name) for name in ("initial", "entropy", "network", "dtype")}
            low, high = self.eps_range
            settings = Settings(
                (low, high),
                **choices,
                steps=given("steps", 1500),
                batch=given("batch_size", 1024),
                lr=given("learning_rate", 2e-3),
                simulation_steps=self.simulation_steps,
                components=self.components,
                hidden=tuple(given("hidden", (64, 64))),
                image_shape=self.image_shape,
                checkpointing=self.checkpointing,
            )
            return R2D2Backend(settings, self.device, seed)
        kind = torch.float64 if self.dtype == "float64" else torch.float32
        if self.method in ("wgd", "hybrid"):
            return ParticleBackend(
                given("particles", 1000),
                given("steps", 500),
                given("learning_rate", 0.5),
                given("batch_size", 1024),
                self.method == "hybrid",
                kind,
                self.device,
                seed,
            )
        if self.method == "nerd":
            return NerdBackend(
                given("particles", 4000),
                given("steps", 500),
                given("learning_rate", 2e-3),
                given("batch_size", 256),
                tuple(given("hidden", (128, 128))),
                kind,
                self.device,
                seed,
            )
        if self.method == "ba":
            return GridBackend(self.cells, 1e-3, given("steps", 6000))
        return GaussianBackend()
