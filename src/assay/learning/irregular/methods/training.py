"""Training of the deep classifiers: validation part, early stopping, best weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.learning.irregular.array import Array


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's generator set for the block and put back after it."""
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.random.set_rng_state(state)


def validation_split(codes: Array, share: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """(training, validation) positions, stratified unless a class has one member or the part is too small."""
    n = len(codes)
    counts = np.bincount(codes)
    size = min(max(1, round(share * n)), n - 1)
    if counts[counts > 0].min() > 1 and size >= (counts > 0).sum():
        held = []
        for label in np.nonzero(counts)[0]:
            own = rng.permutation(np.nonzero(codes == label)[0])
            held.append(own[: min(max(1, round(share * len(own))), len(own) - 1)])
        chosen = np.concatenate(held)
    else:
        chosen = rng.permutation(n)[:size]
    mask = np.zeros(n, bool)
    mask[chosen] = True
    return np.nonzero(~mask)[0], np.nonzero(mask)[0]


def train(
    model: nn.Module, inputs: Sequence[Tensor], codes: Tensor, *, epochs: int, patience: int, batch_size: int,
    learning_rate: float, rng: np.random.Generator, share: float = 0.25,
) -> list[dict[str, float]]:  # fmt: skip
    """Fit and leave the weights of the best validation loss in ``model``; one row an epoch."""
    if len(codes) > 1:
        fit, held = validation_split(codes.numpy(), share, rng)
    else:
        fit = held = np.arange(len(codes))
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    best, waited, history = float("inf"), 0, []
    weights = copy.deepcopy(model.state_dict())
    held_inputs = [part[torch.from_numpy(held)] for part in inputs]
    held_codes = codes[torch.from_numpy(held)]
    with seeded(int(rng.integers(2**31))):
        for epoch in range(epochs):
            model.train()
            total = 0.0
            for rows in np.array_split(rng.permutation(fit), max(1, -(-len(fit) // batch_size))):
                at = torch.from_numpy(rows)
                logits, extra = model(*(part[at] for part in inputs))
                loss = nn.functional.cross_entropy(logits, codes[at]) + extra
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimiser.step()
                total += loss.item() * len(rows)
            model.eval()
            with torch.no_grad():
                logits, _ = _in_batches(model, held_inputs, batch_size)
                value = nn.functional.cross_entropy(logits, held_codes).item()
            history.append({"epoch": epoch, "loss": total / len(fit), "validation_loss": value})
            if value < best - 1e-6:
                best, waited = value, 0
                weights = copy.deepcopy(model.state_dict())
            else:
                waited += 1
                if waited >= patience:
                    break
    model.load_state_dict(weights)
    model.eval()
    return history


def _in_batches(model: Any, inputs: Sequence[Tensor], size: int) -> tuple[Tensor, None]:
    n = len(inputs[0])
    return torch.cat([model(*(part[i : i + size] for part in inputs))[0] for i in range(0, n, size)]), None


def probabilities(model: nn.Module, inputs: Sequence[Tensor], batch_size: int = 128) -> Array:
    """Softmax of the model's logits, [n, classes]."""
    model.eval()
    with torch.no_grad():
        logits, _ = _in_batches(model, inputs, batch_size)
        return torch.softmax(logits.double(), dim=1).numpy()
