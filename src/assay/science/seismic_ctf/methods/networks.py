"""Networks of one step: causal maps from a sequence of latent rows to the rows that follow each."""

from __future__ import annotations

import contextlib
import io
import math
import os
from typing import Any

import torch
from torch import Tensor, nn


def deepxde_networks() -> Any:
    """DeepXDE's networks for torch; it tells about its backend when imported, which nobody asked for."""
    os.environ.setdefault("DDE_BACKEND", "pytorch")
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        import deepxde
    return deepxde.nn.pytorch


class LSTMNet(nn.Module):
    """LSTM and a linear readout. ``net(x, state) -> (y, state)``, x and y of shape (batch, rows, width)."""

    def __init__(self, width: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self.read = nn.Linear(hidden, width)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The row after each row."""
        y, state = self.lstm(x, state)
        return self.read(y), state


class ODELSTMNet(nn.Module):
    """LSTM gates whose hidden state then flows along a learned differential equation for one row of time.

    Lechner and Hasani 2020; the flow is by torchdiffeq with one fixed Runge-Kutta step.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)
        self.slope = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, hidden))
        self.read = nn.Linear(hidden, width)
        self.register_buffer("span", torch.tensor([0.0, 1.0]))

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The row after each row."""
        from torchdiffeq import odeint

        rows = []
        for row in x.unbind(1):
            hidden, cell = self.cell(row, state)
            hidden = odeint(lambda t, h: self.slope(h), hidden, self.span, method="rk4")[-1]
            state = (hidden, cell)
            rows.append(self.read(hidden))
        return torch.stack(rows, 1), state


class Memoryless(nn.Module):
    """A map of the last ``history`` rows, side by side, to the next; ``change`` adds the last row to it."""

    def __init__(self, inner: nn.Module, history: int, change: bool) -> None:
        super().__init__()
        self.inner, self.history, self.change = inner, history, change

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The row after each row; before the first there are only copies of it."""
        h = self.history
        before = x[:, :1].expand(-1, h - 1, -1) if state is None else state
        whole = torch.cat([before, x], 1)
        windows = torch.cat([whole[:, i : i + x.shape[1]] for i in range(h)], 2)
        y = self.inner(windows.flatten(0, 1)).unflatten(0, x.shape[:2])
        return (x + y if self.change else y), whole[:, whole.shape[1] - (h - 1) :]


class Flow(nn.Module):
    """Flow of a learned field for one row of time (Chen et al. 2018), by torchdiffeq."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.field = nn.Sequential(
            nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, width)
        )
        self.register_buffer("span", torch.tensor([0.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        """State one row later."""
        from torchdiffeq import odeint

        path: Any = odeint(lambda t, z: self.field(z), x, self.span, method="rk4")
        return path[-1]


class FourierOperator(nn.Module):
    """Fourier neural operator along the sensors, by neuraloperator; history rows are channels."""

    def __init__(self, width: int, history: int, hidden: int, modes: int, layers: int) -> None:
        super().__init__()
        from neuralop.models import FNO

        self.width, self.history = width, history
        self.fno = FNO(
            n_modes=(min(modes, width // 2),), in_channels=history, out_channels=1, hidden_channels=hidden,
            n_layers=layers,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Field one row later, (batch, width)."""
        return self.fno(x.reshape(-1, self.history, self.width))[:, 0]


class DeepOperator(nn.Module):
    """DeepONet (Lu et al. 2021) by DeepXDE: branch on the last rows, trunk on the place along the sensors."""

    def __init__(self, width: int, history: int, hidden: int, features: int) -> None:
        super().__init__()
        self.net = deepxde_networks().DeepONetCartesianProd(
            [width * history, hidden, hidden, features], [2, hidden, hidden, features], "relu", "Glorot normal"
        )
        place = torch.linspace(0, 2 * math.pi, width + 1)[:-1]
        self.register_buffer("places", torch.stack([torch.cos(place), torch.sin(place)], 1))

    def forward(self, x: Tensor) -> Tensor:
        """Field one row later, (batch, width)."""
        return self.net((x, self.places))


class SplineNet(nn.Module):
    """Kolmogorov-Arnold network (Liu et al. 2024) by pykan."""

    def __init__(self, width: int, history: int, hidden: int, grid: int, seed: int) -> None:
        super().__init__()
        from kan import KAN

        self.kan = KAN(
            width=[width * history, hidden, width], grid=grid, k=3, seed=seed % 2**32, symbolic_enabled=False,
            auto_save=False, save_act=False, grid_range=[-3, 3],
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """State one row later."""
        return self.kan(x)


class StateSpaceNet(nn.Module):
    """Layers of diagonal linear state spaces with gates between (after S4D, Gu et al. 2022), a linear readout."""

    def __init__(self, width: int, hidden: int, states: int, layers: int) -> None:
        super().__init__()
        self.enter = nn.Linear(width, hidden)
        self.layers = nn.ModuleList(StateSpaceLayer(hidden, states) for _ in range(layers))
        self.read = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, width))

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The row after each row."""
        y, kept = self.enter(x), []
        for number, layer in enumerate(self.layers):
            y, one = layer(y, None if state is None else state[number])
            kept.append(one)
        return self.read(y), kept


class StateSpaceLayer(nn.Module):
    """``states`` damped oscillators a channel, started as in S4D-Lin, and a gated residual."""

    def __init__(self, hidden: int, states: int) -> None:
        super().__init__()
        self.log_decay = nn.Parameter(torch.full((hidden, states), math.log(0.5)))
        self.turn = nn.Parameter(math.pi * torch.arange(states).expand(hidden, states).clone())
        self.log_step = nn.Parameter(torch.rand(hidden, 1) * 3 - 4.5)
        self.out = nn.Parameter(torch.randn(hidden, states, 2) / math.sqrt(states))
        self.skip = nn.Parameter(torch.ones(hidden))
        self.norm = nn.LayerNorm(hidden)
        self.mix = nn.Linear(hidden, 2 * hidden)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Shape (batch, rows, hidden); the state is complex, (batch, hidden, states)."""
        step = self.log_step.exp()
        a = torch.exp(torch.complex(-self.log_decay.exp() * step, self.turn * step))
        c = torch.view_as_complex(self.out)
        now = torch.zeros(x.shape[0], *a.shape, dtype=a.dtype) if state is None else state
        rows = []
        for row in (z := self.norm(x)).unbind(1):
            now = a * now + step * row[:, :, None]
            rows.append((now * c).real.sum(-1))
        y = torch.stack(rows, 1) + self.skip * z
        return x + nn.functional.glu(self.mix(nn.functional.gelu(y)), dim=-1), now
