"""Echo state network over ReservoirPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.science.seismic_ctf.methods.latent import LatentForecaster, march


class EchoState(LatentForecaster):
    """Leaky random recurrent reservoir, ridge readout, closed loop.

    Parameters
    ----------
    rank
        Modes the reservoir is driven by.
    units, leak, radius, connectivity, input_scaling
        Of the reservoir: neurons, leaking rate, spectral radius, share of recurrent weights, size of inputs.
    ridge
        Regularisation of the readout.
    washout
        Rows that the readout is not fitted on.
    """

    def __init__(
        self,
        rank: int = 32,
        units: int = 500,
        leak: float = 0.6,
        radius: float = 0.9,
        connectivity: float = 0.05,
        input_scaling: float = 0.5,
        ridge: float = 1e-2,
        washout: int = 50,
        random_state: int | None = None,
    ) -> None:
        self.rank, self.units, self.leak, self.radius = rank, units, leak, radius
        self.connectivity, self.input_scaling, self.ridge, self.washout = connectivity, input_scaling, ridge, washout
        self.random_state = random_state

    def _learn(self, series: list[NDArray[Any]]) -> None:
        from reservoirpy.nodes import Reservoir, Ridge

        self.reservoir_ = Reservoir(
            self.units, lr=self.leak, sr=self.radius, rc_connectivity=self.connectivity,
            input_scaling=self.input_scaling, seed=self.seed_,
        )  # fmt: skip
        states, following = [], []
        for z in series:
            self.reservoir_.reset() if self.reservoir_.initialized else None
            warm = min(self.washout, len(z) // 4)
            states.append(self.reservoir_.run(z[:-1])[warm:])
            following.append(z[1 + warm :])
        self.readout_ = Ridge(ridge=self.ridge)
        self.readout_.fit(np.concatenate(states), np.concatenate(following))

    def _one_step(self, series: NDArray[Any]) -> NDArray[Any]:
        self.reservoir_.reset()
        return np.asarray(self.readout_.run(self.reservoir_.run(series[:-1])))

    def _ahead(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        self.reservoir_.reset()
        self.reservoir_.run(history[:-1])
        return march(lambda row: self.readout_(self.reservoir_(row)), history[-1], steps, history.shape[1])
