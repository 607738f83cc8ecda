"""Training steps of plain perceptrons on a CPU without autograd, whose bookkeeping costs small nets more than sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.learning.pu_bench.backbones import Backbone, Dropout
from assay.nn.trainer import batches

Gradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Of logits (n,) and the mask of labelled rows: the loss, and its gradient with respect to the logits (n,)."""


@dataclass(slots=True)
class Layer:
    """A linear layer, whether it is rectified, and the dropout after that."""

    linear: nn.Linear
    rectified: bool = False
    dropout: Dropout | None = None


def layers_of(net: nn.Module) -> list[Layer] | None:
    """The layers of a perceptron with one logit on a CPU; None for every other net."""
    if type(net) is not Backbone or net.head.out_features != 1:
        return None
    found: list[Layer] = []
    for module in (*_flat(net.blocks), net.head):
        kind, last = type(module), found[-1] if found else None
        if kind is nn.Linear:
            found.append(Layer(module))
        elif kind is nn.ReLU and last and last.dropout is None:
            last.rectified = True
        elif type(module) is Dropout and last and last.rectified and last.dropout is None:
            last.dropout = module
        elif kind is not nn.Flatten or last:
            return None
    linear = [layer.linear for layer in found]
    shared = len(set(map(id, linear))) < len(linear)
    if shared or any(one.bias is None for one in linear) or not all(layer.rectified for layer in found[:-1]):
        return None
    parameters = [parameter for one in linear for parameter in one.parameters()]
    return found if all(p.requires_grad and p.device.type == "cpu" for p in parameters) else None


def _flat(modules: nn.ModuleList) -> Iterator[Any]:
    for module in modules:
        if isinstance(module, nn.Sequential):
            yield from module
        else:
            yield module


class Steps:
    """Forward pass, backward pass and the optimiser's step, into buffers made once for each size of batch.

    Parameters
    ----------
    layers
        Of `layers_of`.
    gradient
        Of the loss; see `Gradient`.
    optimiser
        Over the parameters of the layers; this object owns their ``grad``.

    Notes
    -----
    A dropped or rectified entry is 0, so the entries above 0 are the mask of both. Dropout's factor is not multiplied
    in but handed to the products on either side.
    """

    def __init__(self, layers: list[Layer], gradient: Gradient, optimiser: torch.optim.Optimizer) -> None:
        self.layers, self.gradient, self.optimiser = layers, gradient, optimiser
        self.weights = [layer.linear.weight.detach() for layer in layers]
        self.biases = [layer.linear.bias.detach() for layer in layers]
        self.factors = [1.0, *(1.0 if layer.dropout is None else layer.dropout.factor for layer in layers[:-1])]
        for layer in layers:
            for parameter in (layer.linear.weight, layer.linear.bias):
                parameter.grad = torch.empty_like(parameter)
        self._buffers: dict[int, tuple[Tensor, Tensor, list[Tensor], list[Tensor]]] = {}

    def epoch(self, x: Tensor, labelled: Tensor, size: int, generator: torch.Generator) -> float:
        """All rows once in random batches; the mean loss over rows."""
        x = x.flatten(1)
        total = torch.zeros((), dtype=x.dtype)
        for index in batches(len(x), size, generator):
            rows, of_l, *_ = self._of(len(index))
            torch.index_select(x, 0, index, out=rows)
            torch.index_select(labelled, 0, index, out=of_l)
            total.add_(self(rows, of_l), alpha=len(index))
        return float(total) / len(x)

    def __call__(self, x: Tensor, labelled: Tensor) -> Tensor:
        """One step on rows (n, d) and their mask (n,); the loss before it."""
        _, _, outs, slopes = self._of(len(x))
        ins = [x, *outs[:-1]]
        for layer, before, out, weight, bias, factor in zip(
            self.layers, ins, outs, self.weights, self.biases, self.factors
        ):
            torch.addmm(bias, before, weight.t(), alpha=factor, out=out)
            if layer.rectified:
                out.relu_()
            if layer.dropout is not None:
                layer.dropout.drop_(out)
        value, slope = self.gradient(outs[-1][:, 0], labelled)
        slope = slope[:, None]
        for at in reversed(range(len(ins))):
            linear: Any = self.layers[at].linear
            linear.weight.grad.addmm_(slope.t(), ins[at], beta=0, alpha=self.factors[at])
            torch.sum(slope, 0, out=linear.bias.grad)
            if at:
                behind = slopes[at - 1].addmm_(slope, self.weights[at], beta=0, alpha=self.factors[at])
                slope = torch.ops.aten.threshold_backward.grad_input(behind, ins[at], 0, grad_input=behind)
        self.optimiser.step()
        return value

    def _of(self, n: int) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        """Rows, mask, outputs of the layers and the gradients with respect to these, for batches of n."""
        if n not in self._buffers:
            like = self.weights[0]
            outs = [like.new_empty(n, len(bias)) for bias in self.biases]
            rows = like.new_empty(n, like.shape[1])
            self._buffers[n] = rows, torch.empty(n, dtype=torch.bool), outs, [torch.empty_like(o) for o in outs[:-1]]
        return self._buffers[n]
