"""SINDy over PySINDy and Koopman operators over PyKoopman, in latent space."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UsageError
from assay.science.seismic_ctf.methods.latent import LatentForecaster, march


class SparseDynamics(LatentForecaster):
    """Sparse differential equations of the leading modes (Brunton et al. 2016), advanced by a Runge-Kutta step.

    Parameters
    ----------
    rank
        Modes; equations of many modes have many terms.
    degree
        Of the polynomials.
    threshold, alpha
        Smallest coefficient that is kept, relative to unit-sized modes and one row of time; ridge of the fit.
    """

    def __init__(
        self, rank: int = 6, degree: int = 2, threshold: float = 1e-3, alpha: float = 0.05,
        random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.rank, self.degree, self.threshold, self.alpha = rank, degree, threshold, alpha
        self.random_state = random_state

    def _learn(self, series: list[NDArray[Any]]) -> None:
        import pysindy

        self.model_ = pysindy.SINDy(
            optimizer=pysindy.STLSQ(threshold=self.threshold, alpha=self.alpha),
            feature_library=pysindy.PolynomialLibrary(degree=self.degree),
            differentiation_method=pysindy.SmoothedFiniteDifference(),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model_.fit(list(series), t=1.0)
        # Evaluated by hand: the library's own call costs a millisecond a row.
        self.weights_ = np.asarray(self.model_.coefficients())
        library: Any = self.model_.feature_library
        self.powers_ = np.asarray(library.powers_)

    def _slope(self, z: NDArray[Any]) -> NDArray[Any]:
        terms = np.prod(z[:, None, :] ** self.powers_[None], axis=2)
        return terms @ self.weights_.T

    def _step(self, z: NDArray[Any]) -> NDArray[Any]:
        a = self._slope(z)
        b = self._slope(z + a / 2)
        c = self._slope(z + b / 2)
        return z + (a + 2 * b + 2 * c + self._slope(z + c)) / 6

    def _one_step(self, series: NDArray[Any]) -> NDArray[Any]:
        return self._step(series[:-1])

    def _ahead(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        return march(lambda row: self._step(row[None])[0], history[-1], steps, history.shape[1])


class Koopman(LatentForecaster):
    """Linear operator on observables of the leading modes, by extended DMD (Williams et al. 2015).

    Parameters
    ----------
    observables
        ``identity``, ``polynomial``, ``delay``, ``fourier`` (random features) or ``rbf``.
    count
        Degree of the polynomials, number of delays, of random features, of centres.
    rank, svd_rank
        Modes; rank of the operator.
    stable
        Growing eigenfunctions are brought back to constant size.
    """

    def __init__(
        self,
        observables: str = "delay",
        count: int = 8,
        rank: int = 32,
        svd_rank: int = 60,
        stable: bool = True,
        random_state: int | None = None,
    ) -> None:
        self.observables, self.count, self.rank, self.svd_rank = observables, count, rank, svd_rank
        self.stable, self.random_state = stable, random_state

    def _learn(self, series: list[NDArray[Any]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pk: Any = import_module("pykoopman")

        made: dict[str, Any] = {
            "identity": lambda: pk.observables.Identity(),
            "polynomial": lambda: pk.observables.Polynomial(degree=self.count),
            "delay": lambda: pk.observables.TimeDelay(n_delays=self.count),
            "fourier": lambda: pk.observables.RandomFourierFeatures(
                D=self.count, gamma=0.5, include_state=True, random_state=self.seed_ % 2**32
            ),
            "rbf": lambda: pk.observables.RadialBasisFunction(n_centers=self.count, rbf_type="thinplate"),
        }
        if self.observables not in made:
            raise UsageError(f"observables must be one of {', '.join(made)}; got {self.observables!r}.")
        self.lag_ = self.count if self.observables == "delay" else 0
        self.lift_ = made[self.observables]().fit(np.concatenate(series))
        lifted = [np.asarray(self.lift_.transform(z)) for z in series]
        before, after = (np.concatenate([p[part] for p in lifted]) for part in (slice(-1), slice(1, None)))
        model = pk.regression.EDMD(svd_rank=min(self.svd_rank, *before.shape)).fit(before, after)
        values = np.asarray(model.eigenvalues_)
        size = np.abs(values)
        self.values_ = np.where(size > 1, values / np.where(size > 0, size, 1), values) if self.stable else values
        self.model_ = model
        # Back from eigenfunctions to the state that was lifted.
        self.back_ = (np.asarray(self.lift_.measurement_matrix_) @ np.asarray(model.unnormalized_modes)).T

    def _eigenfunctions(self, series: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.model_._compute_psi(np.asarray(self.lift_.transform(series)).T)).T

    def _one_step(self, series: NDArray[Any]) -> NDArray[Any]:
        found = np.real((self._eigenfunctions(series)[:-1] * self.values_) @ self.back_)
        return np.concatenate([series[1 : 1 + self.lag_], found])

    def _ahead(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        start = self._eigenfunctions(history[-(self.lag_ + 1) :])[-1]
        return np.real((start * self.values_ ** np.arange(1, steps + 1)[:, None]) @ self.back_)
