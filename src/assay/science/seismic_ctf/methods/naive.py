"""Baselines that know no dynamics: zeros, the mean, the last row, a random constant."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from assay.core.errors import UsageError
from assay.science.seismic_ctf.protocol import Parameters


class Constant(Parameters):
    """The same row at every time.

    Parameters
    ----------
    kind
        ``zeros``; ``average`` (of each sensor, over all training rows, or over the burn-in alone where there is one);
        ``last`` (row before the forecast); ``random`` (one number for all, uniform within the range of the data, or
        with ``log`` of a size drawn log-uniformly over nine decades up to it).
    """

    def __init__(
        self,
        kind: Literal["zeros", "average", "last", "random"] = "zeros",
        *,
        log: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.kind, self.log, self.random_state = kind, log, random_state

    def fit(self, train: Any, init: Any = None, times: Any = None) -> Constant:
        """Find the row."""
        rows = np.concatenate(train) if init is None else np.asarray(init)
        if self.kind == "zeros":
            self.row_ = np.zeros(rows.shape[1])
        elif self.kind == "average":
            self.row_ = rows.mean(axis=0, dtype=np.float64)
        elif self.kind == "last":
            self.row_ = rows[-1].astype(np.float64)
        elif self.kind == "random":
            rng = np.random.default_rng(self.random_state)
            low, high = float(rows.min()), float(rows.max())
            value = rng.uniform(low, high)
            if self.log:
                value = rng.choice([-1.0, 1.0]) * max(abs(low), abs(high)) * 10.0 ** rng.uniform(-9.0, 0.0)
            self.row_ = np.full(rows.shape[1], value)
        else:
            raise UsageError(f"kind must be zeros, average, last or random; got {self.kind!r}.")
        return self

    def predict(self, times: Any) -> Any:
        """The row, repeated."""
        return np.tile(self.row_, (len(times), 1))
