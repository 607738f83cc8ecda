"""Pretrained time-series models, each sensor's or mode's series by itself. Their weights are not to be had offline."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, MissingExtra
from assay.science.seismic_ctf.methods.latent import LatentForecaster


class Pretrained(LatentForecaster):
    """Zero-shot forecasts of the leading modes; denoising by short forecasts along the window.

    Parameters
    ----------
    weights
        Name on the hub or folder.
    rank
        Modes, each a series of its own.
    context, block
        Rows that a forecast sees; rows that denoising forecasts at a time.
    """

    package = ""
    title = ""

    def __init__(
        self, weights: str = "", rank: int = 16, context: int = 512, block: int = 16, random_state: int | None = None
    ) -> None:
        self.weights, self.rank, self.context, self.block = weights, rank, context, block
        self.random_state = random_state

    def _load(self) -> Any:
        try:
            return import_module(self.package)
        except ImportError:
            raise MissingExtra(
                f"{self.title} (the package {self.package.partition('.')[0]})", "seismic_ctf-online"
            ) from None

    def _forecast(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        raise NotImplementedError

    def _ahead(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        return self._forecast(history[-self.context :], steps)

    def _one_step(self, series: NDArray[Any]) -> NDArray[Any]:
        parts = [series[1 : self.block + 1]]
        for begin in range(self.block + 1, len(series), self.block):
            steps = min(self.block, len(series) - begin)
            parts.append(self._forecast(series[max(0, begin - self.context) : begin], steps))
        return np.concatenate(parts)


class Chronos(Pretrained):
    """Chronos (Ansari et al. 2024) by chronos-forecasting: the median of its forecast."""

    package, title = "chronos", "Chronos"

    def _learn(self, series: list[NDArray[Any]]) -> None:
        module = self._load()
        name = self.weights or "amazon/chronos-bolt-tiny"
        try:
            self.pipeline_ = module.BaseChronosPipeline.from_pretrained(name)
        except Exception as error:
            raise _no_weights(self.title, name, error) from None

    def _forecast(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        import torch

        context = torch.tensor(history.T, dtype=torch.float32)
        quantiles, _ = self.pipeline_.predict_quantiles(context, prediction_length=steps, quantile_levels=[0.5])
        return np.asarray(quantiles)[:, :steps, 0].T.astype(np.float64)


class TabPFN(Pretrained):
    """TabPFN (Hollmann et al. 2025) on features of time: the row's number and sines of it; value out."""

    package, title = "tabpfn", "TabPFN"

    def _learn(self, series: list[NDArray[Any]]) -> None:
        self.module_ = self._load()

    def _forecast(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        past, ahead = np.arange(len(history)), len(history) + np.arange(steps)
        found = np.empty((steps, history.shape[1]))
        for j, column in enumerate(history.T):
            model = self.module_.TabPFNRegressor(**({"model_path": self.weights} if self.weights else {}))
            try:
                model.fit(_time_features(past, len(history)), column)
            except (OSError, RuntimeError) as error:
                raise _no_weights(self.title, self.weights or "its own", error) from None
            found[:, j] = model.predict(_time_features(ahead, len(history)))
        return found


def _time_features(rows: NDArray[Any], length: int) -> NDArray[Any]:
    periods = length / 2.0 ** np.arange(6)
    angle = 2 * np.pi * rows[:, None] / periods
    return np.column_stack([rows / length, np.sin(angle), np.cos(angle)])


def _no_weights(title: str, name: str, error: Exception) -> DataError:
    return DataError(
        f"{title}: the weights {name!r} cannot be loaded here ({type(error).__name__}); they come from the network: "
        "fetch them where there is one and give weights=FOLDER."
    )
