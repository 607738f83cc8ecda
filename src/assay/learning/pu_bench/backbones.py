"""The nets that all deep methods share, with places to mix rows inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.learning.pu_bench.errors import BadInput
from assay.nn.nets import MLP, LeNet


class Dropout(nn.Module):
    """Dropout whose coin flips are 16 bits of a generator of its own: torch's, on a CPU, cost more than the layers.

    The generator is seeded by torch's at its first use. On other devices torch's dropout is taken.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.cut = round(rate * 65536)
        self._bits: np.random.SFC64 | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Some entries 0, the others scaled so that the mean stays."""
        if not self.training or self.cut == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.cut / 65536)
        return x * (self._kept(x) * self.factor)

    @property
    def factor(self) -> float:
        """What keeps the mean."""
        return 65536 / (65536 - self.cut)

    def drop_(self, x: Tensor) -> None:
        """Put some entries to 0 in place, on a CPU, and leave the factor to the caller."""
        if self.cut:
            x.mul_(self._kept(x))

    def _kept(self, x: Tensor) -> Tensor:
        if self._bits is None:
            self._bits = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
        drawn = self._bits.random_raw(-(-x.numel() // 4)).view(np.int16)[: x.numel()]
        # By way of int8: to compare in NumPy and to convert from bytes is vectorised, torch's own ways are not.
        kept = (drawn >= np.int16(self.cut - 32768)).view(np.int8)
        return torch.from_numpy(kept).to(x.dtype).view(x.shape)


class Backbone(nn.Module):
    """Blocks and a linear head.

    Parameters
    ----------
    blocks
        Applied in order; the last one gives flat features.
    width
        Of these features.
    outputs
        Logits.
    prior
        Sets the bias of a single logit to log(prior / (1 - prior)).
    """

    def __init__(self, blocks: Sequence[nn.Module], width: int, outputs: int = 1, prior: float | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.width = width
        self.head = nn.Linear(width, outputs)
        if prior is not None and outputs == 1:
            nn.init.constant_(self.head.bias, math.log(prior / (1 - prior)))

    def features(self, x: Tensor) -> Tensor:
        """Features (n, width)."""
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits: (n,) for one output, (n, outputs) for more."""
        out = self.head(self.features(x))
        return out[:, 0] if out.shape[1] == 1 else out

    def mixed(self, x: Tensor, partner: Tensor, lam: float | Tensor, layer: int) -> Tensor:
        """Logits of rows mixed with partners before block ``layer`` (0 = the input); ``lam`` weighs ``x``."""
        for at, block in enumerate(self.blocks):
            if at == layer:
                x, partner = lam * x + (1 - lam) * partner, partner[:0]
            x = block(x)
            if len(partner):
                partner = block(partner)
        if layer >= len(self.blocks):
            x = lam * x + (1 - lam) * partner
        out = self.head(x)
        return out[:, 0] if out.shape[1] == 1 else out


def mlp(inputs: int, outputs: int, prior: float | None) -> Backbone:
    """Four hidden layers, 512, 256, 128 and 64 wide, for vectors."""
    layers = list(MLP(inputs, (512, 256, 128, 64), dropout=(0.3, 0.3, 0.2, 0.0)))[:-1]
    layers = [Dropout(layer.p) if isinstance(layer, nn.Dropout) else layer for layer in layers]
    starts = [at for at, layer in enumerate(layers) if isinstance(layer, nn.Linear)] + [len(layers)]
    blocks = [nn.Sequential(*layers[a:b]) for a, b in pairwise(starts)]
    blocks[0].insert(0, nn.Flatten())
    return Backbone(blocks, 64, outputs, prior)


def small_mlp(inputs: int, outputs: int, prior: float | None) -> Backbone:
    """Two hidden layers, 64 and 32 wide: for small tables, where the large one is slow and no better."""
    layers = list(MLP(inputs, (64, 32)))[:-1]
    return Backbone([nn.Sequential(*layers[:3]), nn.Sequential(*layers[3:])], 32, outputs, prior)


def linear(inputs: int, outputs: int, prior: float | None) -> Backbone:
    """A linear model."""
    return Backbone([nn.Flatten()], inputs, outputs, prior)


def lenet(channels: int, outputs: int, prior: float | None) -> Backbone:
    """LeNet for 28 x 28 pixels."""
    layers = list(LeNet(channels).features)
    blocks = [nn.Sequential(*layers[:3]), nn.Sequential(*layers[3:6]), nn.Sequential(*layers[6:])]
    return Backbone(blocks, 50, outputs, prior)


def _conv(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, stride=stride, padding=1), nn.BatchNorm2d(after), nn.ReLU()]


def cifar_cnn(channels: int, outputs: int, prior: float | None) -> Backbone:
    """Six convolutions and two wide layers for 32 x 32 pixels."""
    blocks = [
        nn.Sequential(*_conv(channels, 96), *_conv(96, 96)),
        nn.Sequential(*_conv(96, 96, 2), Dropout(0.2), *_conv(96, 192)),
        nn.Sequential(*_conv(192, 192), *_conv(192, 192, 2), Dropout(0.5)),
        nn.Sequential(
            nn.Flatten(),
            nn.Linear(192 * 8 * 8, 1000), nn.ReLU(), Dropout(0.5),
            nn.Linear(1000, 1000), nn.ReLU(),
        ),
    ]  # fmt: skip
    return Backbone(blocks, 1000, outputs, prior)


def mri_cnn(channels: int, outputs: int, prior: float | None) -> Backbone:
    """Four blocks of two convolutions and global pooling for 128 x 128 pixels."""
    blocks: list[nn.Module] = []
    before = channels
    for after, rate in ((32, 0.1), (64, 0.1), (128, 0.2), (256, 0.3)):
        blocks.append(nn.Sequential(*_conv(before, after), *_conv(after, after), nn.MaxPool2d(2), Dropout(rate)))
        before = after
    blocks.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), Dropout(0.3)))
    return Backbone(blocks, 64, outputs, prior)


BACKBONES: dict[str, Callable[[int, int, float | None], Backbone]] = {
    "mlp": mlp, "small_mlp": small_mlp, "linear": linear, "lenet": lenet, "cifar_cnn": cifar_cnn, "mri_cnn": mri_cnn,
}  # fmt: skip
_PIXELS = {"lenet": 28, "cifar_cnn": 32, "mri_cnn": 128}


def backbone(kind: Any, shape: Sequence[int], *, outputs: int = 1, prior: float | None = None) -> nn.Module:
    """A net for rows of a shape.

    Parameters
    ----------
    kind
        Name in `BACKBONES`; ``auto`` by the shape of the rows; or a function ``f(shape, outputs, prior) -> Backbone``.

    Raises
    ------
    BadInput
        An unknown name, or pixels that the net is not made for.
    """
    if callable(kind):
        made: Any = kind
        return made(tuple(shape), outputs, prior)
    pictures: dict[tuple[int, ...], str] = {(28, 28): "lenet", (32, 32): "cifar_cnn", (128, 128): "mri_cnn"}
    name = kind
    if kind == "auto":
        name = pictures.get(tuple(shape[1:]), "mlp") if len(shape) == 3 else "mlp"
    if name not in BACKBONES:
        raise BadInput(f"net={kind!r} is not known; there are auto, {', '.join(BACKBONES)}, or a function.")
    if name in _PIXELS:
        side = _PIXELS[name]
        if len(shape) != 3 or tuple(shape[1:]) != (side, side):
            raise BadInput(f"net={name!r} takes rows of shape (channels, {side}, {side}); these are {tuple(shape)}.")
        # Channels last: the same sums, and convolutions on a CPU take less time.
        net: Any = BACKBONES[name](shape[0], outputs, prior)
        return net.to(memory_format=torch.channels_last)
    return BACKBONES[name](math.prod(shape), outputs, prior)


def weak_view(x: Tensor) -> Tensor:
    """A slightly changed copy of rows: pictures moved by up to a twelfth of their side, vectors with a little noise."""
    if x.ndim == 4:
        reach = max(1, x.shape[-1] // 12)
        dx, dy = torch.randint(-reach, reach + 1, (2,)).tolist()
        return torch.roll(x, (dx, dy), dims=(2, 3))
    return x + 0.05 * x.std(0, unbiased=False) * torch.randn_like(x)


def strong_view(x: Tensor) -> Tensor:
    """A strongly changed copy: pictures moved, noisy and with a square missing; vectors noisy, a fifth of them put
    to 0.
    """
    if x.ndim == 4:
        moved = weak_view(x).clone()
        side = x.shape[-1]
        size = side // 4
        top, left = torch.randint(0, side - size + 1, (2,)).tolist()
        moved[:, :, top : top + size, left : left + size] = moved.amin()
        return moved + 0.1 * torch.randn_like(x)
    noisy = x + 0.2 * x.std(0, unbiased=False) * torch.randn_like(x)
    return noisy * (torch.rand_like(x) > 0.2)
