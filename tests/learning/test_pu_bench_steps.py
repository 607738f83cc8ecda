"""Training without autograd is training with it: same losses, same weights, same coins."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from assay.learning.pu_bench import losses
from assay.learning.pu_bench.backbones import Backbone, backbone
from assay.learning.pu_bench.estimators import make_estimator
from assay.learning.pu_bench.perceptron import Steps, layers_of
from assay.nn.trainer import batches, seeded

LOSSES: dict[str, tuple[Any, Any]] = {
    "nnpu": (partial(losses.nnpu_loss, prior=0.4), partial(losses.nnpu_gradient, prior=0.4)),
    "nnpusb": (partial(losses.nnpusb_loss, prior=0.4), partial(losses.nnpusb_gradient, prior=0.4)),
    "upu": (partial(losses.upu_loss, prior=0.4), partial(losses.upu_gradient, prior=0.4)),
    "labels": (losses.labels_bce, losses.labels_gradient),
    "distpu": (
        partial(losses.distpu_loss, prior=0.4),
        partial(losses.logits_gradient, partial(losses.distpu_loss, prior=0.4)),
    ),
}


def rows(n: int = 90, d: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, x[:, 0] + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64) > 0.8


@pytest.mark.parametrize(
    ("name", "net"), [("nnpu", "linear"), ("nnpu", "mlp"), *((name, "small_mlp") for name in LOSSES)]
)
def test_fifty_steps_are_those_of_autograd(name, net):
    x, labelled = rows()
    loss, gradient = LOSSES[name]
    with seeded(1):
        one: Any = backbone(net, (12,), prior=0.4).double().train()
        two = copy.deepcopy(one)
        state = torch.get_rng_state()
        mine = Steps(
            layers_of(one) or [], gradient, torch.optim.Adam(one.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
        )
        # 90 rows in batches of 20: five steps an epoch, the last one smaller.
        curve = [mine.epoch(x, labelled, 20, torch.Generator().manual_seed(e)) for e in range(10)]
        torch.set_rng_state(state)  # dropout seeds its coins by torch's generator at its first use
        optimiser = torch.optim.Adam(two.parameters(), lr=1e-3, weight_decay=1e-4)
        theirs = []
        for e in range(10):
            total = 0.0
            for index in batches(len(x), 20, torch.Generator().manual_seed(e)):
                value = loss(two(x[index]), labelled[index])
                optimiser.zero_grad()
                value.backward()
                optimiser.step()
                total += float(value.detach()) * len(index)
            theirs.append(total / len(x))
    assert curve == pytest.approx(theirs, abs=1e-6)
    for a, b in zip(one.parameters(), two.parameters()):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("ell", losses.SURROGATES)
@pytest.mark.parametrize("kind", ["upu", "nnpu", "nnpusb"])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])  # either side of the correction
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])  # batches of one kind of row too
def test_gradients_of_the_risks_are_those_of_autograd(ell, kind, shift, share):
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(40, generator=generator, dtype=torch.float64) + shift
    labelled = torch.rand(40, generator=generator) < share
    settings: dict[str, Any] = {"prior": 0.45, "loss": ell}
    if kind != "upu":
        settings |= {"gamma": 0.7, "beta": 0.01}
    value, slope = getattr(losses, f"{kind}_gradient")(g, labelled, **settings)
    leaf = g.clone().requires_grad_()
    expected = getattr(losses, f"{kind}_loss")(leaf, labelled, **settings)
    assert float(value) == pytest.approx(float(expected.detach()), abs=1e-12)
    if expected.requires_grad:
        expected.backward()
    wanted = torch.zeros_like(g) if leaf.grad is None else leaf.grad
    assert torch.allclose(slope, wanted, rtol=0, atol=1e-12)


def test_slopes_of_large_logits_are_finite():
    g = torch.tensor([-800.0, -60.0, 60.0, 800.0], dtype=torch.float32)
    labelled = torch.tensor([True, False, True, False])
    for ell in losses.SURROGATES:
        value, slope = losses.upu_gradient(g, labelled, 0.4, loss=ell)
        assert torch.isfinite(value)
        assert torch.isfinite(slope).all()


def test_nets_that_are_no_plain_perceptrons_are_left_to_autograd():
    assert layers_of(backbone("lenet", (1, 28, 28))) is None
    assert layers_of(backbone("mlp", (4,), outputs=2)) is None
    assert layers_of(Backbone([torch.nn.Linear(3, 3), torch.nn.Tanh()], 3)) is None
    assert layers_of(Backbone([torch.nn.Linear(3, 3)], 3)) is None  # not rectified
    twice = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    assert layers_of(Backbone([twice, twice], 3)) is None  # gradients of shared weights add up
    frozen: Any = backbone("small_mlp", (4,))
    frozen.blocks[0].requires_grad_(False)
    assert layers_of(frozen) is None
    assert [layer.linear.out_features for layer in layers_of(backbone("mlp", (4,))) or []] == [512, 256, 128, 64, 1]


def test_fit_is_the_same_with_and_without_autograd(monkeypatch):
    x, labelled = rows(300)
    settings: dict[str, Any] = {"prior": 0.4, "net": "mlp", "epochs": 3, "batch_size": 64, "lr": 1e-3}
    without = make_estimator("nnpu", **settings).fit(x.numpy(), labelled.numpy().astype(int))
    monkeypatch.setattr("assay.learning.pu_bench.estimators.base.layers_of", lambda net: None)
    beside = make_estimator("nnpu", **settings).fit(x.numpy(), labelled.numpy().astype(int))
    assert np.allclose(without.decision_function(x), beside.decision_function(x), atol=1e-4)
    assert [row["loss"] for row in without.history_] == pytest.approx(
        [row["loss"] for row in beside.history_], abs=1e-5
    )
