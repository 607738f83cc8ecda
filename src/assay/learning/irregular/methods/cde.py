"""Neural controlled differential equation: a state driven by the cubic path through values and time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from assay.learning.irregular.array import Array
from assay.learning.irregular.methods.base import Panel, SeriesClassifier, match_length, standardise

MAX_STEPS = 100


def fill_times(T: ArrayLike, nan_delta: float) -> Array:
    """Times [n, 1, T] continued after the last stamp with the series' mean step (of one stamp: ``nan_delta``)."""
    out = np.array(T, float)
    for row in out.reshape(-1, out.shape[-1]):
        there = np.nonzero(~np.isnan(row))[0]
        if len(there) == 0:
            row[:] = nan_delta * np.arange(len(row))
            continue
        last = int(there[-1])
        step = (row[last] - row[there[0]]) / (len(there) - 1) if len(there) > 1 else nan_delta
        row[last + 1 :] = row[last] + step * np.arange(1, len(row) - last)
    return out


def path_values(values: Array, times: Array) -> Array:
    """Standardised channels at every stamp, as published.

    Linear in time inside; the last value is held; a channel that is not seen at the first stamp begins at its mean, 0;
    0 throughout with under 3 points.

    Parameters
    ----------
    values
        (n, channels, T) with NaN.
    times
        (n, T), filled.
    """
    x = standardise(values)
    out = np.zeros_like(x)
    for i, series in enumerate(x):
        for c, row in enumerate(series):
            there = ~np.isnan(row)
            if there.sum() > 2:
                if not there[0]:
                    row[0], there[0] = 0.0, True
                out[i, c] = np.interp(times[i], times[i, there], row[there])
    return out


def cubic_path(path: Array, times: Array, at: Array) -> Array:
    """The cubic Hermite path with backward differences (as in torchcde) at some points in time.

    Parameters
    ----------
    path
        (n, T, channels) at the knots ``times`` (n, T), strictly increasing.
    at
        (n, k) points in time.

    Returns
    -------
    ndarray
        (n, k, channels).
    """
    h = np.maximum(np.diff(times, axis=1), 1e-12)
    rise = np.diff(path, axis=1)
    forward = rise / h[..., None]
    backward = np.concatenate([forward[:, :1], forward[:, :-1]], axis=1)
    out = np.empty((*at.shape, path.shape[2]))
    for i in range(len(path)):
        j = np.clip(np.searchsorted(times[i], at[i], side="right") - 1, 0, h.shape[1] - 1)
        u = np.clip((at[i] - times[i, j]) / h[i, j], 0.0, 1.0)[:, None]
        bend = (forward[i, j] - backward[i, j]) * h[i, j][:, None]
        out[i] = path[i, j] + backward[i, j] * h[i, j][:, None] * u + bend * (2 * u**2 - u**3)
    return out


class NCDE(SeriesClassifier):
    """Neural CDE (Kidger et al. 2020) with the published settings.

    Euler steps of the smallest training interval, at most 100; time is the last channel; Adam on the full batch, 30 %
    for validation, halved rate after 50 epochs without progress, stop after 200. A step moves the state by the path's
    increment over it: where stamps are denser than steps, slope times step would be dominated by single points.

    Parameters
    ----------
    hidden, width
        Of the state; of the one hidden layer of the vector field.
    epochs, patience, learning_rate
        Of training.
    time_scale
        What the time channel rises by over the longest training series. At 1 it would move the state little beside
        standardised values, whose increments add up to many.
    random_state
        Of weights and of the validation part.
    """

    def __init__(
        self,
        hidden: int = 8,
        width: int = 32,
        epochs: int = 1000,
        patience: int = 200,
        learning_rate: float = 0.01,
        time_scale: float = 10.0,
        random_state: int | None = None,
    ) -> None:
        self.hidden = hidden
        self.width = width
        self.epochs = epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.time_scale = time_scale
        self.random_state = random_state

    def _inputs(self, panel: Panel) -> tuple[Array, Array]:
        """(path at the first stamp [n, c + 1], increments [n, steps, c + 1])."""
        values = match_length(panel.values, self._length)
        start = np.nanmin(np.where(np.isnan(panel.times), np.inf, panel.times), axis=1, keepdims=True)
        times = match_length((panel.times - np.where(np.isinf(start), 0, start)) / self._unit, self._length)
        times = fill_times(times[:, None], self._delta)[:, 0]
        clock = self.time_scale * times[..., None]
        path = np.concatenate([path_values(values, times).transpose(0, 2, 1), clock], axis=2)
        grid = np.arange(self._steps + 1) / self._steps
        at = times[:, :1] + grid * (times[:, -1:] - times[:, :1])
        return path[:, 0].astype(np.float32), np.diff(cubic_path(path, times, at), axis=1).astype(np.float32)

    def _fit(self, panel: Panel, codes: Array) -> None:
        from assay.learning.irregular.methods.deep import _torch

        torch = _torch()
        from assay.learning.irregular.methods import controlled

        self._length = max(2, panel.values.shape[2])
        spans = np.nanmax(np.nan_to_num(panel.times, nan=-np.inf), axis=1) - np.nanmin(
            np.nan_to_num(panel.times, nan=np.inf), axis=1
        )
        longest = float(np.max(spans[np.isfinite(spans)], initial=0.0))
        self._unit = longest if longest > 0 else 1.0
        intervals = np.diff(panel.times / self._unit, axis=1)
        positive = intervals[intervals > 0]
        self._delta = float(positive.min()) if len(positive) else 1.0
        self._steps = int(np.clip(np.ceil(1.0 / self._delta), 1, MAX_STEPS))
        inputs = [torch.from_numpy(part) for part in self._inputs(panel)]
        seed = 0 if self.random_state is None else self.random_state
        self.model_, self.history_ = controlled.train(
            inputs, torch.from_numpy(codes), len(self.classes_), hidden=self.hidden, width=self.width,
            epochs=self.epochs, patience=self.patience, learning_rate=self.learning_rate, seed=seed,
        )  # fmt: skip

    def _proba(self, panel: Panel) -> Array:
        from assay.learning.irregular.methods import controlled
        from assay.learning.irregular.methods.deep import _torch

        torch = _torch()
        model: Any = self.model_
        return controlled.probabilities(model, [torch.from_numpy(part) for part in self._inputs(panel)])
