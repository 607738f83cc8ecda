"""What step-by-step forecasters share: scaling, proper orthogonal modes, where to begin, which rows to return."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UsageError
from assay.science.seismic_ctf.protocol import Parameters

Matrix = NDArray[Any]


class Modes:
    """Sensors scaled to zero mean and unit variance (or left as they are), then projected on their singular vectors.

    Parameters
    ----------
    rank
        Modes to keep; 0 = all sensors as they are, scaled.
    seed
        Of the randomised decomposition.
    standardise
        Whether sensors are scaled; linear methods want the data as they are.
    """

    def __init__(self, series: list[Matrix], rank: int, seed: int, standardise: bool = True) -> None:
        if rank < 0:
            raise UsageError(f"rank must be 0 (no projection) or the number of modes; got {rank}.")
        rows = np.concatenate(series).astype(np.float64)
        self.mean = rows.mean(axis=0) if standardise else np.zeros(rows.shape[1])
        scale = rows.std(axis=0) if standardise else np.ones(rows.shape[1])
        self.scale = np.where(scale > 0, scale, 1.0)
        rows = (rows - self.mean) / self.scale
        self.basis: Matrix | None = None
        self.size = 1.0
        if 0 < rank < min(rows.shape):
            from sklearn.utils import extmath

            decompose: Any = extmath.randomized_svd
            _, s, vt = decompose(rows, rank, n_iter=4, random_state=seed % 2**32)
            self.basis = vt.T
            # Latent numbers of about unit size, their proportions kept.
            self.size = float(s[0] / np.sqrt(len(rows))) or 1.0

    def down(self, rows: Matrix) -> Matrix:
        """Sensors to latent numbers, (rows, rank)."""
        z = (np.asarray(rows, np.float64) - self.mean) / self.scale
        return (z if self.basis is None else z @ self.basis) / self.size

    def up(self, z: Matrix) -> Matrix:
        """Latent numbers to sensors."""
        z = z * self.size
        return (z if self.basis is None else z @ self.basis.T) * self.scale + self.mean


def row_indices(times: Any, first: float, dt: float) -> NDArray[np.int64]:
    """Rows that times stand for, counted from ``first``."""
    return np.rint((np.asarray(times, float) - first) / dt).astype(np.int64)


class LatentForecaster(Parameters):
    """A model of one step in latent space made a forecaster.

    A method of this kind has the parameters ``rank`` and ``random_state``, and defines ``_learn(series)``,
    ``_one_step(series)`` (row t + 1 from rows up to t, one row fewer) and ``_ahead(history, steps)``. Within the
    training window it predicts each row from those before it, which is how autoregressive models denoise; after it, it
    feeds on itself.
    """

    rank: int
    random_state: int | None

    def fit(self, train: Any, init: Any = None, times: Any = None) -> Any:
        """Learn from all training matrices; the burn-in, or the last matrix, is where a forecast begins."""
        series = [np.asarray(x) for x in train]
        self.seed_ = 0 if self.random_state is None else int(self.random_state)
        self.modes_ = Modes(series if init is None else [*series, np.asarray(init)], self.rank, self.seed_)
        self.past_ = self.modes_.down(series[-1] if init is None else init)
        self.dt_ = 1.0 if times is None else times.dt
        when = np.arange(len(self.past_)) if times is None else times.train[-1] if init is None else times.init
        self.first_ = float(when[0])
        self._learn([self.modes_.down(x) for x in series])
        return self

    def predict(self, times: Any) -> Matrix:
        """Rows at times inside the window one starts from, or after it."""
        index = row_indices(times, self.first_, self.dt_)
        if index.min() < 0:
            raise UsageError("A step-by-step forecaster predicts no rows before its training window.")
        known = len(self.past_)
        parts = []
        if index.min() < known:
            parts.append(np.concatenate([self.past_[:1], self._one_step(self.past_)]))
        else:
            parts.append(self.past_)
        if index.max() >= known:
            parts.append(self._ahead(self.past_, int(index.max()) - known + 1))
        return self.modes_.up(np.concatenate(parts)[index])

    def _learn(self, series: list[Matrix]) -> None:
        raise NotImplementedError

    def _one_step(self, series: Matrix) -> Matrix:
        raise NotImplementedError

    def _ahead(self, history: Matrix, steps: int) -> Matrix:
        raise NotImplementedError


def march(step: Any, start: Matrix, steps: int, width: int) -> Matrix:
    """``steps`` applications of ``step(row) -> row``; from a row beyond 1e6, or not finite, on they are NaN."""
    found = np.full((steps, width), np.nan)
    row = start
    for i in range(steps):
        row = step(row)
        if not np.all(np.abs(row) < 1e6):
            break
        found[i] = row
    return found


@contextmanager
def numpy_seeded(seed: int | None) -> Iterator[None]:
    """NumPy's and Python's global streams seeded inside, for libraries that draw from them; put back afterwards."""
    kept, own = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(kept)  # noqa: NPY002
        random.setstate(own)
