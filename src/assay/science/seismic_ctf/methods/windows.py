"""Linear maps from a window of the past to a block of the future (LTSF-Linear)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UsageError
from assay.science.seismic_ctf.methods.latent import LatentForecaster

Matrix = NDArray[Any]
ROWS = 1 << 16
"""Windows whose normal equations are summed at a time."""


class LinearWindows(LatentForecaster):
    """One linear map for all channels from the last ``window`` rows to the next ``horizon``, then on from there.

    The published models minimise the mean squared error by gradient descent; the minimum is found here in closed form.
    There ``dlinear`` can say no more than ``linear``: only the penalty tells the two apart.

    Parameters
    ----------
    kind
        ``linear``; ``nlinear``: the last value is taken off the window and put back after; ``dlinear``: a moving
        average and what it leaves have a map each.
    rank
        Modes as channels; 0 = all sensors.
    window, horizon
        Rows that are seen and that are foretold at once; both shrink where the data are shorter.
    kernel
        Rows of the moving average; its ends are repeated.
    ridge
        Penalty on the weights, in units of the mean square of their inputs.

    References
    ----------
    Zeng et al., Are Transformers Effective for Time Series Forecasting?, AAAI 2023.
    """

    def __init__(
        self,
        kind: Literal["linear", "nlinear", "dlinear"] = "nlinear",
        rank: int = 0,
        window: int = 96,
        horizon: int = 24,
        kernel: int = 25,
        ridge: float = 1e-6,
        random_state: int | None = None,
    ) -> None:
        self.kind, self.rank, self.window, self.horizon = kind, rank, window, horizon
        self.kernel, self.ridge, self.random_state = kernel, ridge, random_state

    def _learn(self, series: list[Matrix]) -> None:
        if self.kind not in ("linear", "nlinear", "dlinear"):
            raise UsageError(f"kind must be linear, nlinear or dlinear; got {self.kind!r}.")
        for name in ("window", "horizon", "kernel"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1 row; got {getattr(self, name)}.")
        longest = max(map(len, series))
        if longest < 3:
            raise UsageError(f"A window and what follows it need 3 rows; the longest training matrix has {longest}.")
        self.window_ = min(self.window, max(1, longest // 2))
        self.horizon_ = min(self.horizon, longest - self.window_)
        see = self._seeing()
        left, right, count = np.zeros((len(see.T) + 1,) * 2), np.zeros((len(see.T) + 1, self.horizon_)), 0
        for z in series:
            if len(z) < self.window_ + self.horizon_:
                continue
            parts = np.lib.stride_tricks.sliding_window_view(z, self.window_ + self.horizon_, axis=0)
            step = max(1, ROWS // z.shape[1])
            for at in range(0, len(parts), step):
                rows = parts[at : at + step].reshape(-1, self.window_ + self.horizon_)
                seen, wanted = rows[:, : self.window_], rows[:, self.window_ :]
                x = np.concatenate([np.ones((len(seen), 1)), seen @ see], axis=1)
                left += x.T @ x
                right += x.T @ (wanted - self._base(seen))
                count += len(rows)
        penalty = self.ridge * np.trace(left[1:, 1:]) / len(see.T)
        # The constant bears no penalty; a little on it keeps data that never move from being singular.
        damping = np.full(len(left), max(penalty, 1e-9 * count))
        damping[0] = 1e-9 * count
        weights = np.linalg.solve(left + np.diag(damping), right)
        self.offset_, self.weights_ = weights[0], see @ weights[1:]

    def _seeing(self) -> Matrix:
        """What the map gets of a window, (window, inputs): all kinds are linear."""
        plain = np.eye(self.window_)
        if self.kind == "nlinear":
            plain[-1] -= 1
        if self.kind != "dlinear":
            return plain
        reach = np.arange(self.kernel) - (self.kernel - 1) // 2
        trend = np.zeros_like(plain)
        for at in range(self.window_):
            np.add.at(trend[:, at], np.clip(at + reach, 0, self.window_ - 1), 1 / self.kernel)
        return np.concatenate([trend, plain - trend], axis=1)

    def _base(self, seen: Matrix) -> Matrix:
        return seen[..., -1:] if self.kind == "nlinear" else np.zeros((1, 1))

    def _block(self, seen: Matrix, steps: slice = slice(None)) -> Matrix:
        """The next values of windows (..., window), those of ``steps``: (..., steps)."""
        return seen @ self.weights_[:, steps] + self.offset_[steps] + self._base(seen)

    def _padded(self, rows: Matrix) -> Matrix:
        missing = max(0, self.window_ - len(rows))
        return np.concatenate([np.repeat(rows[:1], missing, axis=0), rows])

    def _one_step(self, series: Matrix) -> Matrix:
        # Before there is a whole window the first row is repeated.
        rows = np.concatenate([np.repeat(series[:1], self.window_ - 1, axis=0), series[:-1]])
        seen = np.lib.stride_tricks.sliding_window_view(rows, self.window_, axis=0)
        return self._block(seen, slice(1))[..., 0]

    def _ahead(self, history: Matrix, steps: int) -> Matrix:
        rows, found = self._padded(history)[-self.window_ :], np.full((steps, history.shape[1]), np.nan)
        for at in range(0, steps, self.horizon_):
            block = self._block(rows.T).T
            if not np.all(np.abs(block) < 1e6):
                break
            found[at : at + self.horizon_] = block[: steps - at]
            rows = np.concatenate([rows, block])[-self.window_ :]
        return found
