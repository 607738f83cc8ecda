"""The network of time scores: a residual perceptron of points and times, with quadratic features if wanted."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from assay.core.errors import UsageError


class TimeFeatures(nn.Module):
    """Sines and cosines of a time u at 1/4, 1/2, ... turns, and u itself: (n,) -> (n, size).

    Parameters
    ----------
    stretched
        u = 2/pi asin(sqrt t), because scores change fastest near both ends; otherwise u = t. A loss with derivatives in
        t must not be given it: a jump just inside an end is rarely sampled and would look like a gain.
    """

    def __init__(self, frequencies: int = 12, *, stretched: bool = True) -> None:
        super().__init__()
        self.stretched = stretched
        self.size = 2 * frequencies + 1
        self.register_buffer("rates", math.pi / 2 * torch.arange(1, frequencies + 1))

    def forward(self, t: Tensor) -> Tensor:
        u = t[:, None]
        if self.stretched:
            u = 2 / math.pi * torch.asin(torch.sqrt(u.clamp(1e-6, 1 - 1e-6)))
        angle = u * self.get_buffer("rates").to(t)
        return torch.cat([u - 0.5, torch.sin(angle), torch.cos(angle)], 1)


class ScoreNet(nn.Module):
    """Residual blocks over a linear map of x plus one of the features of its times.

    Parameters
    ----------
    d
        Dimension of points.
    width, blocks
        Hidden width and number of residual blocks of two layers.
    times
        How many times the network is given: 1 for scores, 2 for secants.
    quadratic
        Number of squared projections of x whose coefficients depend on t, added to the time score: between normal
        distributions the time score is a quadratic form. 0 = none.
    data
        Whether there is a head for the data score.
    smooth
        SiLU in place of leaky ReLU: for losses with derivatives of the network.
    stretched
        See `TimeFeatures`.

    Notes
    -----
    The last layer starts at zero: an untrained network says ratio one.
    """

    def __init__(
        self,
        d: int,
        *,
        width: int = 128,
        blocks: int = 2,
        times: int = 1,
        quadratic: int = 0,
        data: bool = False,
        smooth: bool = False,
        stretched: bool = True,
    ) -> None:
        super().__init__()
        if d < 1 or width < 1 or blocks < 0 or quadratic < 0:
            raise UsageError(f"A network needs d, width >= 1 and blocks, quadratic >= 0; got {d}, {width}, {blocks}.")
        self.d, self.times = d, times
        self.features = TimeFeatures(stretched=stretched)
        self.points = nn.Linear(d, width)
        self.moments = nn.Linear(times * self.features.size, width)
        act = nn.SiLU if smooth else nn.LeakyReLU
        self.blocks = nn.ModuleList(
            nn.Sequential(act(), nn.Linear(width, width), act(), nn.Linear(width, width)) for _ in range(blocks)
        )
        self.act = act()
        self.head = nn.Linear(width, 1 + (d if data else 0))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.forms = nn.Linear(d, quadratic, bias=False) if quadratic else None
        if quadratic:
            self.form_weights = nn.Linear(times * self.features.size, quadratic + 1)
            nn.init.zeros_(self.form_weights.weight)
            nn.init.zeros_(self.form_weights.bias)

    def _body(self, x: Tensor, *times: Tensor) -> Tensor:
        if x.dim() != 2 or x.shape[1] != self.d or any(t.shape != x.shape[:1] for t in times):
            raise UsageError(
                f"The network takes points (n, {self.d}) and times (n,); got {tuple(x.shape)} and "
                f"{', '.join(str(tuple(t.shape)) for t in times)}."
            )
        features = torch.cat([self.features(t) for t in times], 1)
        h = self.points(x) + self.moments(features)
        for block in self.blocks:
            h = h + block(h)
        out = self.head(self.act(h))
        if self.forms is not None:
            c = self.form_weights(features)
            # Squares less their mean under N(0, I), so that their sum starts small.
            squares = self.forms(x).square() - self.forms.weight.square().sum(1)
            quadratic = (squares * c[:, :-1]).sum(1, keepdim=True) + c[:, -1:]
            out = torch.cat([out[:, :1] + quadratic, out[:, 1:]], 1)
        return out

    def forward(self, x: Tensor, *times: Tensor) -> Tensor:
        """Time score (n,) of points (n, d) at times (n,)."""
        return self._body(x, *times)[:, 0]

    def both(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Time score (n,) and data score (n, d)."""
        out = self._body(x, t)
        if out.shape[1] == 1:
            raise UsageError("This network has no head for the data score; train one with a joint loss.")
        return out[:, 0], out[:, 1:]
