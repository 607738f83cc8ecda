"""Forecasters that train a network of one step: LSTM, ODE-LSTM, neural ODE, FNO, DeepONet, KAN, state-space layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from assay.core.errors import DataError, UsageError
from assay.nn.trainer import seeded, train
from assay.science.seismic_ctf.methods import networks
from assay.science.seismic_ctf.methods.latent import LatentForecaster, march, numpy_seeded

KINDS = ("lstm", "ode_lstm", "neural_ode", "fno", "deeponet", "kan", "spacetime")


class OneStepNetwork(LatentForecaster):
    """Trained on windows of rows to predict the row after each; feeds on itself afterwards.

    Parameters
    ----------
    kind
        ``lstm``, ``ode_lstm``, ``neural_ode``, ``fno``, ``deeponet``, ``kan``, ``spacetime``.
    rank
        Modes; 0 = sensors (what fno and deeponet want).
    hidden, layers
        Width and depth.
    history
        Rows that a network without memory sees (fno, deeponet, kan).
    window
        Rows of a training window.
    epochs, batch, lr, clip
        Of training: Adam, one-step squared error, largest norm of the gradient.
    size
        Fourier modes (fno), features (deeponet), grid (kan), states (spacetime).
    """

    def __init__(
        self,
        kind: str = "lstm",
        rank: int = 32,
        hidden: int = 32,
        layers: int = 1,
        history: int = 2,
        window: int = 32,
        epochs: int = 30,
        batch: int = 128,
        lr: float = 5e-3,
        clip: float = 1.0,
        size: int = 16,
        random_state: int | None = None,
    ) -> None:
        self.kind, self.rank, self.hidden, self.layers, self.history = kind, rank, hidden, layers, history
        self.window, self.epochs, self.batch, self.lr, self.clip = window, epochs, batch, lr, clip
        self.size, self.random_state = size, random_state

    def _net(self, width: int) -> torch.nn.Module:
        h, kind = self.history, self.kind
        if kind == "lstm":
            return networks.LSTMNet(width, self.hidden, self.layers)
        if kind == "ode_lstm":
            return networks.ODELSTMNet(width, self.hidden)
        if kind == "spacetime":
            return networks.StateSpaceNet(width, self.hidden, self.size, self.layers)
        if kind == "neural_ode":
            return networks.Memoryless(networks.Flow(width, self.hidden), 1, False)
        if kind == "fno":
            inner: torch.nn.Module = networks.FourierOperator(width, h, self.hidden, self.size, self.layers)
        elif kind == "deeponet":
            inner = networks.DeepOperator(width, h, self.hidden, self.size)
        elif kind == "kan":
            inner = networks.SplineNet(width, h, self.hidden, self.size, self.seed_)
        else:
            raise UsageError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
        return networks.Memoryless(inner, h, kind == "fno")

    def _learn(self, series: list[NDArray[Any]]) -> None:
        length = min(self.window, min(len(z) for z in series) - 1)
        if length < 1:
            raise DataError("A network of one step needs at least two rows in every training matrix.")
        stride = max(1, length // 4)
        windows = np.concatenate([[z[i : i + length + 1] for i in range(0, len(z) - length, stride)] for z in series])
        data = torch.tensor(windows, dtype=torch.float32)
        # pykan seeds every global stream there is.
        with seeded(self.seed_) as order, numpy_seeded(self.seed_ % 2**32):
            self.net_ = self._net(data.shape[2])

            def loss(x: torch.Tensor) -> torch.Tensor:
                return torch.nn.functional.mse_loss(self.net_(x[:, :-1])[0], x[:, 1:])

            self.history_ = train(
                self.net_, loss, [data], epochs=self.epochs, batch_size=self.batch, clip=self.clip, generator=order,
                optimiser=torch.optim.Adam([p for p in self.net_.parameters() if p.requires_grad], lr=self.lr),
            )  # fmt: skip

    @torch.no_grad()
    def _one_step(self, series: NDArray[Any]) -> NDArray[Any]:
        return self.net_(torch.tensor(series[None, :-1], dtype=torch.float32))[0][0].double().numpy()

    @torch.no_grad()
    def _ahead(self, history: NDArray[Any], steps: int) -> NDArray[Any]:
        state = self.net_(torch.tensor(history[None, :-1], dtype=torch.float32))[1] if len(history) > 1 else None

        def step(row: NDArray[Any]) -> NDArray[Any]:
            nonlocal state
            y, state = self.net_(torch.tensor(row[None, None], dtype=torch.float32), state)
            return y[0, 0].double().numpy()

        return march(step, history[-1], steps, history.shape[1])
