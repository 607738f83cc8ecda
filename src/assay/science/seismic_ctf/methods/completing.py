"""Whole fields from few sensors: gappy POD, QDEIM, a DMD filter, a shallow decoder, kriging."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.science.seismic_ctf.methods.latent import Modes
from assay.science.seismic_ctf.protocol import Parameters

Matrix = NDArray[Any]


class Mean(Parameters):
    """The mean field, whatever is seen."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def fit(self, fields: Matrix, sensors: Matrix) -> Mean:
        """Mean of each sensor."""
        self.mean_ = fields.mean(axis=0)
        return self

    def reconstruct(self, values: Matrix) -> Matrix:
        """The mean, repeated."""
        return np.tile(self.mean_, (len(values), 1))


class GappyPOD(Parameters):
    """Coefficients of the modes by ridge regression on what is seen (Everson and Sirovich 1995).

    Parameters
    ----------
    rank
        Modes; 0 = as many as carry 99.9 % of the variance. The ridge is the share of variance left out.
    """

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def fit(self, fields: Matrix, sensors: Matrix) -> GappyPOD:
        """Decompose the fields."""
        self.sensors_ = np.asarray(sensors)
        self.mean_ = fields.mean(axis=0)
        _, s, vt = np.linalg.svd(fields - self.mean_, full_matrices=False)
        carried = np.cumsum(s**2) / max(float(np.sum(s**2)), 1e-300)
        rank = self.rank or int(np.searchsorted(carried, 0.999)) + 1
        self.basis_ = vt[:rank].T
        variance = s[:rank] ** 2 / len(fields)
        left_out = max(float(np.sum(s[rank:] ** 2)) / fields.size, 1e-10 * float(variance[0]) / fields.shape[1])
        seen = self.basis_[self.sensors_]
        # The posterior mean of Gaussian coefficients given what is seen; stable with fewer sensors than modes.
        self.gain_ = np.linalg.solve(seen.T @ seen + left_out * np.diag(1 / np.maximum(variance, 1e-300)), seen.T)
        return self

    def reconstruct(self, values: Matrix) -> Matrix:
        """The whole field of each row."""
        return (values - self.mean_[self.sensors_]) @ self.gain_.T @ self.basis_.T + self.mean_


class QDEIM(Parameters):
    """Discrete empirical interpolation: as many modes as sensors at most, least squares (Drmac and Gugercin 2016)."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def fit(self, fields: Matrix, sensors: Matrix) -> QDEIM:
        """Modes and the interpolation at the sensors."""
        self.sensors_ = np.asarray(sensors)
        count = min(self.rank or len(self.sensors_), len(self.sensors_), min(fields.shape) - 1)
        self.modes_ = Modes([fields], count, 0)
        basis = self.modes_.basis
        assert basis is not None
        self.inverse_ = np.linalg.pinv(basis[self.sensors_])
        return self

    def reconstruct(self, values: Matrix) -> Matrix:
        """The whole field of each row."""
        m = self.modes_
        scaled = (values - m.mean[self.sensors_]) / m.scale[self.sensors_]
        return m.up(scaled @ self.inverse_.T / m.size)


class DMDFilter(Parameters):
    """Modes advanced by a DMD operator and corrected by what is seen: a Kalman filter over the rows."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def fit(self, fields: Matrix, sensors: Matrix) -> DMDFilter:
        """Operator of the modes, its error, what the modes leave out."""
        import pydmd

        self.sensors_ = np.asarray(sensors)
        self.modes_ = Modes([fields], min(self.rank or 64, min(fields.shape) - 1), 0)
        z = self.modes_.down(fields)
        if not self.rank:
            # Modes that carry next to nothing only make the operator ill-conditioned.
            kept = int((z.var(axis=0) > 1e-4 * z[:, 0].var()).sum())
            self.modes_ = Modes([fields], kept, 0)
            z = self.modes_.down(fields)
        model = pydmd.DMD(svd_rank=z.shape[1])
        model.fit(z.T)
        # Projected on the modes DMD works with; growing eigenvalues would let the filter's covariance grow too.
        u = np.linalg.svd(z[:-1].T, full_matrices=False)[0]
        values, vectors = np.linalg.eig(model.operator.as_numpy_array)
        values = values / np.maximum(1.0, np.abs(values))
        self.operator_ = (u @ (vectors * values) @ np.linalg.inv(vectors) @ u.T).real
        error = z[1:] - z[:-1] @ self.operator_.T
        self.process_ = np.cov(error.T) + 1e-9 * np.eye(z.shape[1])
        self.start_ = np.cov(z.T)
        basis = self.modes_.basis
        assert basis is not None
        self.seen_ = basis[self.sensors_] * self.modes_.size
        scaled = (fields - self.modes_.mean) / self.modes_.scale
        rest = scaled - z @ basis.T * self.modes_.size
        self.noise_ = np.diag(np.maximum(rest[:, self.sensors_].var(axis=0), 1e-6))
        return self

    def reconstruct(self, values: Matrix) -> Matrix:
        """The whole field of each row, from this row and those before."""
        m = self.modes_
        seen = (values - m.mean[self.sensors_]) / m.scale[self.sensors_]
        state, cover = np.zeros(len(self.start_)), self.start_
        found = np.empty((len(values), len(state)))
        gain: Matrix | None = None
        before = np.zeros((len(state), len(self.sensors_)))
        for i, row in enumerate(seen):
            if i:
                state = self.operator_ @ state
            if gain is None:
                if i:
                    cover = self.operator_ @ cover @ self.operator_.T + self.process_
                inner = self.seen_ @ cover @ self.seen_.T + self.noise_
                now = np.linalg.solve(inner, self.seen_ @ cover).T
                after = cover - now @ self.seen_ @ cover
                # Covariances do not depend on the data and settle: from then on the gain is constant.
                if i > 10 and np.abs(now - before).max() < 1e-8 * np.abs(now).max():
                    gain = now
                before, cover = now, (after + after.T) / 2
            state = state + (gain if gain is not None else now) @ (row - self.seen_ @ state)
            found[i] = state
        return m.up(found)


class ShallowDecoder(Parameters):
    """Two hidden layers from the seen values to the modes of the field (after Erichson et al. 2020)."""

    def __init__(self, rank: int = 0, epochs: int = 60, random_state: int | None = None) -> None:
        self.rank, self.epochs, self.random_state = rank, epochs, random_state

    def fit(self, fields: Matrix, sensors: Matrix) -> ShallowDecoder:
        """Train."""
        import torch

        from assay.nn.nets import MLP
        from assay.nn.trainer import seeded, train

        self.sensors_ = np.asarray(sensors)
        self.modes_ = Modes([fields], min(self.rank or 64, min(fields.shape) - 1), 0)
        z = torch.tensor(self.modes_.down(fields), dtype=torch.float32)
        x = torch.tensor(self._scaled(fields[:, self.sensors_]), dtype=torch.float32)
        with seeded(self.random_state or 0) as order:
            self.net_ = MLP(x.shape[1], (128, 128), z.shape[1], normalise="layer")
            train(
                self.net_, lambda a, b: torch.nn.functional.mse_loss(self.net_(a), b), [x, z], epochs=self.epochs,
                batch_size=64, generator=order, optimiser=torch.optim.Adam(self.net_.parameters(), lr=2e-3),
            )  # fmt: skip
        return self

    def _scaled(self, values: Matrix) -> Matrix:
        return (values - self.modes_.mean[self.sensors_]) / self.modes_.scale[self.sensors_]

    def reconstruct(self, values: Matrix) -> Matrix:
        """The whole field of each row."""
        import torch

        from assay.nn.trainer import forward

        x = torch.tensor(self._scaled(values), dtype=torch.float32)
        return self.modes_.up(forward(self.net_, x).double().numpy())


class Kriging(Parameters):
    """Best linear prediction from a stationary covariance along the sensors, estimated by lag (ordinary positions).

    Sensors count as a line in their order; ``rank`` is not used.
    """

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def fit(self, fields: Matrix, sensors: Matrix) -> Kriging:
        """Covariance by lag, made positive, and the weights."""
        self.sensors_ = np.asarray(sensors)
        self.mean_ = fields.mean(axis=0)
        x = fields - self.mean_
        n = x.shape[1]
        power = (np.abs(np.fft.rfft(x, 2 * n, axis=1)) ** 2).mean(axis=0)
        # Biased lags: the spectrum stays non-negative, so the covariance is one.
        lags = np.fft.irfft(power)[:n] / n
        covariance = lags[np.abs(np.arange(n)[:, None] - np.arange(n)[None])]
        inner = covariance[np.ix_(self.sensors_, self.sensors_)] + 1e-4 * lags[0] * np.eye(len(self.sensors_))
        self.weights_ = np.linalg.solve(inner, covariance[self.sensors_])
        return self

    def reconstruct(self, values: Matrix) -> Matrix:
        """The whole field of each row."""
        return (values - self.mean_[self.sensors_]) @ self.weights_ + self.mean_
