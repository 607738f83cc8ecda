"""Deep classifiers on padded values, masks and times: one estimator, five networks, one training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from assay.core.errors import MissingExtra, unknown_name
from assay.learning.irregular.array import Array
from assay.learning.irregular.methods.base import Panel, SeriesClassifier, match_length
from assay.learning.irregular.methods.distance import unit_times

NETWORKS = ("brits", "grud", "raindrop", "saits", "timesnet")


class DeepClassifier(SeriesClassifier):
    """A network with the published settings: batch 32, at most 1000 epochs, patience 50, a quarter for validation.

    Parameters
    ----------
    network
        ``brits``, ``grud`` (recurrent, 256 hidden units), ``saits`` (2 layers, width 256, 4 heads), ``timesnet``
        (2 layers, width 64, top 3 periods), ``raindrop`` (2 layers, 4 units a channel, graph over channels).
    hidden
        Width; None = the published one.
    epochs, patience, batch_size, learning_rate
        Of training with Adam; the best weights on the validation part are kept.
    random_state
        Of weights, batches and the validation part.

    Notes
    -----
    Channels are standardised with the training side's mean and deviation; times run from 0 to 1 within a series.
    """

    def __init__(
        self,
        network: Literal["brits", "grud", "raindrop", "saits", "timesnet"] = "grud",
        hidden: int | None = None,
        epochs: int = 1000,
        patience: int = 50,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        random_state: int | None = None,
    ) -> None:
        self.network = network
        self.hidden = hidden
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _inputs(self, panel: Panel) -> tuple[Array, ...]:
        values = match_length(panel.values, self._length)
        times = match_length(unit_times(panel), self._length)
        seen = ~np.isnan(values)
        x = np.where(seen, (np.nan_to_num(values) - self._mean) / self._scale, 0.0)
        valid = ~np.isnan(times)
        t = np.where(valid, times, np.nanmax(np.where(valid, times, 0.0), axis=1, keepdims=True))
        return tuple(
            np.ascontiguousarray(part, dtype=np.float32)
            for part in (x.transpose(0, 2, 1), seen.transpose(0, 2, 1), t, valid)
        )

    def _fit(self, panel: Panel, codes: Array) -> None:
        if self.network not in NETWORKS:
            raise unknown_name("network", self.network, NETWORKS)
        torch = _torch()
        from assay.learning.irregular.methods import networks, training

        self._length = panel.values.shape[2]
        seen = ~np.isnan(panel.values)
        count = np.maximum(seen.sum(axis=(0, 2)), 1)[:, None]
        filled = np.nan_to_num(panel.values)
        self._mean = filled.sum(axis=(0, 2))[:, None] / count
        spread = (np.where(seen, panel.values - self._mean, 0.0) ** 2).sum(axis=(0, 2))[:, None] / count
        self._scale = np.sqrt(spread) + 1e-8
        inputs = self._inputs(panel)
        seed = 0 if self.random_state is None else self.random_state
        build: Callable[..., Any] = getattr(networks, self.network)
        with training.seeded(seed):
            self.model_ = build(panel.values.shape[1], len(self.classes_), self._length, self.hidden)
        self.history_ = training.train(
            self.model_, [torch.from_numpy(part) for part in inputs], torch.from_numpy(codes),
            epochs=self.epochs, patience=self.patience, batch_size=self.batch_size,
            learning_rate=self.learning_rate, rng=np.random.default_rng(seed),
        )  # fmt: skip

    def _proba(self, panel: Panel) -> Array:
        torch = _torch()
        from assay.learning.irregular.methods import training

        return training.probabilities(self.model_, [torch.from_numpy(part) for part in self._inputs(panel)])


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("This classifier", "irregular") from error
    return torch
