"""Nets that several rooms use: a perceptron and LeNet. What one room uses stays in that room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from assay.core.errors import UsageError


class MLP(nn.Sequential):
    """Linear layers with an activation and dropout between them; inputs of more axes are flattened.

    Parameters
    ----------
    inputs, outputs
        Width of the first and the last layer.
    hidden
        Widths between them; () = one linear layer.
    dropout
        After each hidden layer; one number for all, or one a layer.
    activation
        Class of the activation.
    normalise
        ``batch`` or ``layer`` normalisation before each activation; None = none.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] = (128, 64),
        outputs: int = 1,
        *,
        dropout: float | Sequence[float] = 0.0,
        activation: Callable[[], nn.Module] = nn.ReLU,
        normalise: str | None = None,
    ) -> None:
        kinds: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        if normalise is not None and normalise not in kinds:
            raise UsageError(f"normalise must be batch, layer or None; got {normalise!r}.")
        rates = [dropout] * len(hidden) if isinstance(dropout, (int, float)) else list(dropout)
        if len(rates) != len(hidden):
            raise UsageError(f"There are {len(hidden)} hidden layers and {len(rates)} dropout rates.")
        layers: list[nn.Module] = [nn.Flatten()]
        width = inputs
        for size, rate in zip(hidden, rates):
            layers.append(nn.Linear(width, size))
            if normalise is not None:
                layers.append(kinds[normalise](size))
            layers.append(activation())
            if rate:
                layers.append(nn.Dropout(rate))
            width = size
        layers.append(nn.Linear(width, outputs))
        super().__init__(*layers)


class LeNet(nn.Module):
    """Two 5 x 5 convolutions (10 and 20 channels) with pooling, then 50 hidden units, for pictures of 28 x 28 pixels.

    Parameters
    ----------
    channels, outputs
        Of the picture; of the last layer.

    References
    ----------
    The variant of LeCun et al. 1998 that torch's MNIST example made common: 320 features after the convolutions.
    """

    def __init__(self, channels: int = 1, outputs: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(320, 50),
            nn.ReLU(),
        )
        self.head = nn.Linear(50, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, outputs) of pictures (n, channels, 28, 28)."""
        return self.head(self.features(x))
