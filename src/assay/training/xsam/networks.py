"""Networks of the paper with stems for small pictures (VGG-11, ResNet-18/50, DenseNet-121), and small ones for CPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from assay.core.errors import UsageError, unknown_name
from assay.nn.nets import MLP


class Cnn(nn.Sequential):
    """Three 3 x 3 convolutions with batch normalisation, pooled between and averaged at the end."""

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        layers: list[nn.Module] = []
        for i in range(3):
            into = channels if i == 0 else width * 2 ** (i - 1)
            layers += [nn.Conv2d(into, width * 2**i, 3, padding=1, bias=False), nn.BatchNorm2d(width * 2**i), nn.ReLU()]
            if i < 2:
                layers.append(nn.MaxPool2d(2))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 4, classes))


class Vgg(nn.Sequential):
    """VGG-11 with batch normalisation and one linear layer, for 32 x 32 pictures and larger."""

    def __init__(self, channels: int, classes: int) -> None:
        layers: list[nn.Module] = []
        for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
            if width:
                layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
            else:
                layers.append(nn.MaxPool2d(2))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class _Residual(nn.Module):
    def __init__(self, into: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        out = width * 4 if bottleneck else width
        sizes = [(into, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        if not bottleneck:
            sizes = [(into, width, 3, stride), (width, width, 3, 1)]
        layers: list[nn.Module] = []
        for i, (a, b, kernel, step) in enumerate(sizes):
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b)]
            if i + 1 < len(sizes):
                layers.append(nn.ReLU())
        self.body = nn.Sequential(*layers)
        same = stride == 1 and into == out
        self.skip = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Pictures to pictures."""
        return torch.relu(self.body(x) + self.skip(x))


class ResNet(nn.Sequential):
    """Residual network with a 3 x 3 stem and no first pooling (He et al. 2016, as used on CIFAR)."""

    def __init__(self, channels: int, classes: int, depths: Sequence[int], bottleneck: bool) -> None:
        layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        into = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for i in range(depth):
                layers.append(_Residual(into, width, 2 if stage and not i else 1, bottleneck))
                into = width * 4 if bottleneck else width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))


class _Dense(nn.Module):
    def __init__(self, into: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(into), nn.ReLU(), nn.Conv2d(into, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Adds its channels to those it was given."""
        return torch.cat([x, self.body(x)], 1)


class DenseNet(nn.Sequential):
    """DenseNet-121 with a 3 x 3 stem (Huang et al. 2017, as used on CIFAR)."""

    def __init__(self, channels: int, classes: int, depths: Sequence[int] = (6, 12, 24, 16), growth: int = 32) -> None:
        into = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(channels, into, 3, padding=1, bias=False)]
        for stage, depth in enumerate(depths):
            for _ in range(depth):
                layers.append(_Dense(into, growth))
                into += growth
            if stage + 1 < len(depths):
                layers += [nn.BatchNorm2d(into), nn.ReLU(), nn.Conv2d(into, into // 2, 1, bias=False), nn.AvgPool2d(2)]
                into //= 2
        super().__init__(
            *layers, nn.BatchNorm2d(into), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes)
        )


class ViT(nn.Module):
    """Small vision transformer: square patches, learned positions, mean of the tokens (Dosovitskiy et al. 2021)."""

    def __init__(
        self, channels: int, side: int, classes: int, *, patch: int | None = None, width: int = 64, depth: int = 3
    ) -> None:
        super().__init__()
        patch = patch or max(2, side // 8)
        if side % patch:
            raise UsageError(f"Pictures of {side} pixels do not divide into patches of {patch}.")
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of pictures (n, channels, side, side)."""
        return self.head(self.body(self.patches(x).flatten(2).mT + self.places).mean(1))


def _mlp(shape: Sequence[int], classes: int) -> nn.Module:
    return MLP(math.prod(shape), (128, 128), classes, normalise="batch")


def _plain_mlp(shape: Sequence[int], classes: int) -> nn.Module:
    return MLP(math.prod(shape), (128, 128), classes)


NETWORKS: dict[str, Callable[[Sequence[int], int], nn.Module]] = {
    "mlp": _mlp,
    "mlp_plain": _plain_mlp,
    "cnn": lambda shape, classes: Cnn(shape[0], classes),
    "vit": lambda shape, classes: ViT(shape[0], shape[1], classes),
    "vgg11": lambda shape, classes: Vgg(shape[0], classes),
    "resnet18": lambda shape, classes: ResNet(shape[0], classes, (2, 2, 2, 2), False),
    "resnet50": lambda shape, classes: ResNet(shape[0], classes, (3, 4, 6, 3), True),
    "densenet121": lambda shape, classes: DenseNet(shape[0], classes),
}


def make_network(name: str, shape: Sequence[int], classes: int) -> nn.Module:
    """A network by name for inputs of one shape: (channels, side, side), or (columns,) for the perceptrons."""
    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    if len(shape) != 3 and not name.startswith("mlp"):
        raise UsageError(f"Network {name} reads pictures; rows of a table need mlp or mlp_plain.")
    return NETWORKS[name](shape, classes)
