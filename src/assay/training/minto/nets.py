"""Many perceptrons as one: weights with a leading axis of runs, gradients by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class StackedMLP:
    """R perceptrons with ReLU between layers, all weights in one tensor (R, P): one optimiser step moves all.

    Parameters
    ----------
    sizes
        Inputs, widths, outputs.
    seeds
        One a perceptron; weights and biases start as torch's linear layers do, uniform within 1/sqrt(inputs).

    Notes
    -----
    Nothing here is recorded by autograd: `layers` gives all activations, `backward` the gradient.
    """

    def __init__(
        self, sizes: Sequence[int], seeds: Sequence[Any], *, dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:  # fmt: skip
        self.sizes = tuple(sizes)
        rows = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            parts = [
                rng.uniform(-1, 1, (count,)) / math.sqrt(m)
                for m, n in zip(self.sizes, self.sizes[1:])
                for count in (m * n, n)
            ]
            rows.append(np.concatenate(parts))
        self._adopt(torch.tensor(np.stack(rows), dtype=dtype, device=device))

    def _adopt(self, flat: Tensor) -> None:
        self.flat = torch.nn.Parameter(flat, requires_grad=False)
        self.gradient = torch.zeros_like(flat)
        # All later changes are in place, so that views are taken once.
        self.weights, self.slots = self.views(self.flat.data), self.views(self.gradient)

    def copy(self) -> StackedMLP:
        """The same weights, apart from now on."""
        other = object.__new__(StackedMLP)
        other.sizes = self.sizes
        other._adopt(self.flat.detach().clone())
        return other

    def views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weights (R, in, out) and biases (R, 1, out) of each layer as views of a tensor (R, P)."""
        found, at = [], 0
        for m, n in zip(self.sizes, self.sizes[1:]):
            weight = flat[:, at : at + m * n].unflatten(1, (m, n))
            found.append((weight, flat[:, at + m * n : at + m * n + n].unsqueeze(1)))
            at += m * n + n
        return found

    def layers(self, x: Tensor) -> list[Tensor]:
        """Inputs (R, rows, in), hidden layers after ReLU, outputs (R, rows, out)."""
        found = [x]
        for i, (weight, bias) in enumerate(self.weights):
            x = torch.baddbmm(bias, x, weight)
            if i < len(self.weights) - 1:
                x.relu_()
            found.append(x)
        return found

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (R, rows, out)."""
        return self.layers(x)[-1]

    def backward(self, layers: Sequence[Tensor], gradient: Tensor) -> Tensor:
        """Gradient (R, P) of the weights from that of the outputs (R, rows, out); overwritten by the next call."""
        for i in range(len(self.slots) - 1, -1, -1):
            below = layers[i]
            self.slots[i][0].copy_(torch.bmm(below.transpose(1, 2), gradient))
            torch.sum(gradient, 1, keepdim=True, out=self.slots[i][1])
            if i:
                gradient = torch.bmm(gradient, self.weights[i][0].transpose(1, 2)).mul_(below > 0)
        return self.gradient

    def state_dict(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {"flat": self.flat.detach().clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """From a checkpoint."""
        self.flat.data.copy_(state["flat"])
