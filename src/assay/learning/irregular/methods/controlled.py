"""The torch side of the neural controlled differential equation."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from assay.learning.irregular.array import Array
from assay.learning.irregular.methods.training import seeded, validation_split


class Field(nn.Module):
    """z moves by f(z) dX: f is a network with one hidden layer whose output is a matrix (hidden x channels).

    z begins at another such network of the path's first point.
    """

    def __init__(self, channels: int, classes: int, hidden: int, width: int) -> None:
        super().__init__()
        self.start = nn.Sequential(nn.Linear(channels, width), nn.Softplus(), nn.Linear(width, hidden))
        self.field = nn.Sequential(
            nn.Linear(hidden, width), nn.Softplus(), nn.Linear(width, hidden * channels), nn.Tanh()
        )
        self.out = nn.Linear(hidden, classes)
        self.shape = (hidden, channels)

    def forward(self, first: Tensor, moves: Tensor) -> Tensor:
        z = self.start(first)
        for t in range(moves.shape[1]):
            z = z + torch.bmm(self.field(z).view(-1, *self.shape), moves[:, t, :, None])[..., 0]
        return self.out(z)


def train(
    inputs: Sequence[Tensor], codes: Tensor, classes: int, *, hidden: int, width: int, epochs: int, patience: int,
    learning_rate: float, seed: int,
) -> tuple[Field, list[dict[str, float]]]:  # fmt: skip
    """Full-batch training; the weights of the best validation loss are kept in memory."""
    rng = np.random.default_rng(seed)
    fit, held = validation_split(codes.numpy(), 0.3, rng) if len(codes) > 1 else (np.zeros(1, int), np.zeros(1, int))
    fit_at, held_at = torch.from_numpy(fit), torch.from_numpy(held)
    with seeded(seed):
        model = Field(inputs[0].shape[1], classes, hidden, width)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.5, patience=50)
    best, waited, history = float("inf"), 0, []
    weights = copy.deepcopy(model.state_dict())
    for epoch in range(epochs):
        loss = nn.functional.cross_entropy(model(*(part[fit_at] for part in inputs)), codes[fit_at])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        with torch.no_grad():
            value = nn.functional.cross_entropy(model(*(part[held_at] for part in inputs)), codes[held_at]).item()
        schedule.step(value)
        history.append({"epoch": epoch, "loss": loss.item(), "validation_loss": value})
        if value < best - 1e-6:
            best, waited = value, 0
            weights = copy.deepcopy(model.state_dict())
        else:
            waited += 1
            if waited >= patience:
                break
    model.load_state_dict(weights)
    return model, history


def probabilities(model: Field, inputs: Sequence[Tensor]) -> Array:
    """Softmax of the logits, [n, classes]."""
    with torch.no_grad():
        return torch.softmax(model(*inputs).double(), dim=1).numpy()
