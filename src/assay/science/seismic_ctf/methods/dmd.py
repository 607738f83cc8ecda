"""Dynamic mode decomposition and its kin over PyDMD: growth, decay and oscillation of fixed patterns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UsageError
from assay.science.seismic_ctf.methods.latent import Modes, numpy_seeded, row_indices
from assay.science.seismic_ctf.protocol import Parameters

Matrix = NDArray[Any]
KINDS = ("exact", "optimised")


class DynamicModes(Parameters):
    """Modes, eigenvalues and amplitudes of one matrix; rows at any time follow in closed form.

    The burn-in is decomposed where there is one (its parameter is the test's), the training matrix otherwise.

    Parameters
    ----------
    kind
        ``exact`` DMD, with ``delay`` the higher-order one (Le Clainche and Vega 2017); ``optimised`` (variable
        projection, bagging; Askham and Kutz 2018, Sashidhar and Kutz 2022).
    rank
        Of the decomposition; 0 = PyDMD's optimal threshold.
    modes
        Singular vectors of the sensors that the decomposition works on; 0 = the sensors.
    delay
        Rows stacked above each other (1 = none).
    stable
        Growing modes are brought back to constant size (optimised: the eigenvalues are constrained).
    trials
        Bags of the optimised kind; 0 = none.
    """

    def __init__(
        self,
        kind: str = "exact",
        rank: int = 40,
        modes: int = 64,
        delay: int = 1,
        stable: bool = True,
        trials: int = 0,
        random_state: int | None = None,
    ) -> None:
        self.kind, self.rank, self.modes, self.delay = kind, rank, modes, delay
        self.stable, self.trials, self.random_state = stable, trials, random_state

    def fit(self, train: Any, init: Any = None, times: Any = None) -> DynamicModes:
        """Decompose."""
        import pydmd
        from pydmd.preprocessing import hankel_preprocessing

        core: Any
        fitted: Any

        if self.kind not in KINDS:
            raise UsageError(f"kind must be one of {', '.join(KINDS)}; got {self.kind!r}.")
        rows = np.asarray(train[-1] if init is None else init)
        self.dt_ = 1.0 if times is None else times.dt
        when = np.arange(len(rows)) if times is None else times.train[-1] if init is None else times.init
        self.first_ = float(when[0])
        self.scaler_ = Modes([rows], self.modes, self.random_state or 0, standardise=False)
        z = self.scaler_.down(rows).T
        delay = min(self.delay, max(1, z.shape[1] // 3))
        rank = min(self.rank, z.shape[0] * delay, z.shape[1] - delay) if self.rank else 0
        if self.kind == "optimised":
            limits = {"stable"} if self.stable else set()
            core = pydmd.BOPDMD(svd_rank=rank, num_trials=self.trials, eig_constraints=limits or None,
                                varpro_opts_dict={"maxiter": 30, "tol": 1e-5})  # fmt: skip
            fitted = hankel_preprocessing(core, d=delay) if delay > 1 else core
            with warnings.catch_warnings(), numpy_seeded(self.random_state):
                warnings.simplefilter("ignore")
                fitted.fit(z, t=np.arange(z.shape[1] - delay + 1, dtype=float))
            eigenvalues = np.exp(core.eigs)
        else:
            core = pydmd.DMD(svd_rank=rank, exact=True, opt=True)
            fitted = hankel_preprocessing(core, d=delay) if delay > 1 else core
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted.fit(z)
            eigenvalues = core.eigs
        if self.stable:
            size = np.abs(eigenvalues)
            eigenvalues = np.where(size > 1, eigenvalues / np.where(size > 0, size, 1), eigenvalues)
        self.eigenvalues_ = eigenvalues
        self.modes_ = np.asarray(core.modes)[: z.shape[0]]
        self.amplitudes_ = self._amplitudes(z)
        return self

    def _amplitudes(self, z: Matrix) -> Matrix:
        """Least squares over all rows, by normal equations of modes and powers (Jovanovic et al. 2014)."""
        powers = self.eigenvalues_[:, None] ** np.arange(z.shape[1])
        left = (self.modes_.conj().T @ self.modes_) * (powers @ powers.conj().T).conj()
        right = ((self.modes_.conj().T @ z) * powers.conj()).sum(axis=1)
        return np.linalg.lstsq(left, right, rcond=1e-12)[0]

    def predict(self, times: Any) -> Matrix:
        """Rows at times."""
        index = row_indices(times, self.first_, self.dt_)
        dynamics = self.amplitudes_[:, None] * self.eigenvalues_[:, None] ** index
        return self.scaler_.up((self.modes_ @ dynamics).real.T)


class ParametricModes(DynamicModes):
    """DMD over several parameters: one decomposition each in common modes, radial basis functions between.

    Pairs without parameters get the plain decomposition. The burn-in is not used.
    """

    def __init__(self, rank: int = 20, modes: int = 32, stable: bool = True, random_state: int | None = None) -> None:
        super().__init__("exact", rank, modes, 1, stable, 0, random_state)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyper-parameters by name."""
        return {name: getattr(self, name) for name in ("rank", "modes", "stable", "random_state")}

    def fit(self, train: Any, init: Any = None, times: Any = None) -> ParametricModes:
        """Decompose every training matrix."""
        self.parametric_ = None
        if times is None or times.parameters is None:
            super().fit(train, init, times)
            return self
        import ezyrb
        import pydmd

        stacked = np.stack([np.asarray(x, np.float64).T for x in train])
        rank = min(self.modes, stacked.shape[1], stacked.shape[2])
        core: Any = pydmd.ParametricDMD(
            pydmd.DMD(svd_rank=min(self.rank, rank), exact=True, opt=True), ezyrb.POD(rank=rank), ezyrb.RBF()
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            core.fit(stacked, np.array(times.parameters, float)[:, None])
        core.parameters = np.array([[times.parameter]], float)
        self.parametric_, self.dt_, self.first_ = core, times.dt, float(times.train[0][0])
        return self

    def predict(self, times: Any) -> Matrix:
        """Rows at times."""
        core = self.parametric_
        if core is None:
            return super().predict(times)
        index = row_indices(times, self.first_, self.dt_)
        core.dmd_time["t0"], core.dmd_time["tend"] = int(index.min()), int(index.max())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.asarray(core.reconstructed_data)[0].real.T
        return found[index - index.min()]
