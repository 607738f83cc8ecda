"""Physics-informed network over DeepXDE: a field of place and time that nearly obeys a wave equation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from assay.nn.trainer import seeded, train
from assay.science.seismic_ctf.methods.latent import Modes
from assay.science.seismic_ctf.methods.networks import deepxde_networks
from assay.science.seismic_ctf.protocol import Parameters


class PhysicsInformed(Parameters):
    """u(place, time) fitted to the rows and to u_tt = c^2 u_xx with a learned c (Raissi et al. 2019).

    Sensors are taken as a line in their order; times as fractions of the span from first training to last test row.

    Parameters
    ----------
    hidden, layers
        Of the network (tanh), by DeepXDE.
    points
        Drawn anew each epoch: samples of the data, and places where the equation is asked for.
    weight
        Of the equation's residual.
    """

    def __init__(
        self,
        hidden: int = 64,
        layers: int = 4,
        epochs: int = 300,
        points: int = 2048,
        weight: float = 1e-3,
        lr: float = 2e-3,
        random_state: int | None = None,
    ) -> None:
        self.hidden, self.layers, self.epochs, self.points = hidden, layers, epochs, points
        self.weight, self.lr, self.random_state = weight, lr, random_state

    def fit(self, matrices: Any, init: Any = None, times: Any = None) -> PhysicsInformed:
        """Fit the field of the burn-in, or of the training matrix."""
        networks = deepxde_networks()
        rows = np.asarray(matrices[-1] if init is None else init)
        when = np.arange(len(rows), dtype=float) if times is None else times.train[-1] if init is None else times.init
        last = when[-1] if times is None else max(when[-1], times.test[-1])
        self.start_, self.span_ = float(when[0]), float(last - when[0]) or 1.0
        self.scaler_ = Modes([rows], 0, 0)
        field = torch.tensor(self.scaler_.down(rows), dtype=torch.float32)
        clock = torch.tensor((np.asarray(when) - self.start_) / self.span_, dtype=torch.float32)
        self.width_ = rows.shape[1]
        place = torch.linspace(-1, 1, self.width_)
        with seeded(self.random_state or 0) as order:
            self.net_ = networks.FNN([2] + [self.hidden] * self.layers + [1], "tanh", "Glorot normal")
            speed = torch.nn.Parameter(torch.tensor(1.0))

            def loss(_: torch.Tensor) -> torch.Tensor:
                i = torch.randint(len(clock), (self.points,), generator=order)
                j = torch.randint(self.width_, (self.points,), generator=order)
                fitted = self.net_(torch.stack([place[j], 2 * clock[i] - 1], 1))[:, 0]
                asked = (torch.rand(self.points // 4, 2, generator=order) * 2 - 1).requires_grad_()
                u = self.net_(asked)
                (slope,) = torch.autograd.grad(u.sum(), asked, create_graph=True)
                (xx,) = torch.autograd.grad(slope[:, 0].sum(), asked, create_graph=True)
                (tt,) = torch.autograd.grad(slope[:, 1].sum(), asked, create_graph=True)
                residual = tt[:, 1] - speed**2 * xx[:, 0]
                return (fitted - field[i, j]).square().mean() + self.weight * residual.square().mean()

            self.history_ = train(
                self.net_, loss, [torch.zeros(1)], epochs=self.epochs, batch_size=1, generator=order,
                optimiser=torch.optim.Adam([*self.net_.parameters(), speed], lr=self.lr),
            )  # fmt: skip
        self.speed_ = abs(float(speed.detach()))
        return self

    @torch.no_grad()
    def predict(self, times: Any) -> NDArray[Any]:
        """The field at times."""
        clock = torch.tensor((np.asarray(times, float) - self.start_) / self.span_, dtype=torch.float32)
        place = torch.linspace(-1, 1, self.width_)
        grid = torch.cartesian_prod(2 * clock - 1, place)[:, [1, 0]]
        found = torch.cat([self.net_(part)[:, 0] for part in grid.split(65536)])
        return self.scaler_.up(found.reshape(len(clock), self.width_).double().numpy())
