"""ESAM and momentum-SAM: closed forms on quadratics, SAM or the base optimiser to the bit, rows, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from assay.core.errors import UsageError
from assay.training import xsam as room
from assay.training.xsam import methods
from assay.training.xsam.training import Recipe


def network(seed: int = 0, *middle: nn.Module) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, 8), *middle, nn.Tanh(), nn.Linear(8, 3)).double()
    return net, torch.randn(12, 5, dtype=torch.float64), torch.randint(0, 3, (12,))


def by_rows(opt, net, x, y, seen=None):
    def losses(rows=None):
        a, b = (x, y) if rows is None else (x[rows], y[rows])
        return nn.functional.cross_entropy(net(a), b, reduction="none")

    def closure(rows=None):
        opt.zero_grad()
        found = losses(rows)
        found.mean().backward()
        if seen is not None:
            seen.append((rows, [None if p.grad is None else p.grad.clone() for p in net.parameters()]))
        return found

    return closure, losses


def vector(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach().clone()


def quadratic(n=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(n, n, generator=generator, dtype=torch.float64)
    w = nn.Parameter(torch.randn(n, generator=generator, dtype=torch.float64))
    return w, a @ a.T / n


def closed(opt, loss):
    def closure():
        opt.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


# -- ESAM --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.AdamW])
def test_esam_of_all_tensors_and_rows_is_sam_to_the_bit(base):
    found = []
    for name, own in (("sam", {}), ("esam", {"beta": 1.0, "gamma": 1.0})):
        net, x, y = network(0, nn.BatchNorm1d(8), nn.Dropout(0.3))
        opt = room.make_optimiser(name, net.parameters(), base, lr=0.05, rho=0.2, model=net, **own)
        for _ in range(4):
            opt.step(closed(opt, lambda net=net, x=x, y=y: nn.functional.cross_entropy(net(x), y)))
        found.append(vector(net))
    torch.testing.assert_close(*found, atol=0, rtol=0)


def test_esam_selects_the_rows_whose_loss_rose_most():
    net, x, y = network()
    opt = room.ESAM(net.parameters(), lr=0.1, rho=0.4, beta=1.0, gamma=0.4)
    closure, losses = by_rows(opt, net, x, y)
    with torch.no_grad():
        before = losses()
    closure()
    params = list(net.parameters())
    g = [p.grad.clone() for p in params]
    length = math.sqrt(sum(float(t.square().sum()) for t in g))
    home = vector(net)
    with torch.no_grad():
        for p, t in zip(params, g):
            p += 0.4 * t / length
        rise = losses() - before
    rows = rise.argsort(descending=True)[:5].sort().values  # the share rounded up: 0.4 of 12
    closure(rows)
    expected = [p.grad.clone() for p in params]
    nn.utils.vector_to_parameters(home, params)
    seen = []
    loss = opt.gradient(*by_rows(opt, net, x, y, seen))
    assert float(loss) == pytest.approx(float(before.mean()))
    assert seen[1][0].tolist() == rows.tolist()
    for p, t in zip(params, expected):
        torch.testing.assert_close(p.grad, t)
    torch.testing.assert_close(vector(net), home, atol=0, rtol=0)


def test_esam_moves_the_tensors_drawn_and_updates_all():
    net, x, y = network()
    params = list(net.parameters())
    moved = np.zeros((200, len(params)), bool)
    opt = room.ESAM(params, lr=0.0, rho=0.3, beta=0.5, gamma=1.0)
    home = [p.detach().clone() for p in params]
    for turn in range(len(moved)):
        calls = []

        def closure(calls=calls, turn=turn):
            opt.zero_grad()
            if calls:
                steps = [p.detach() - h for p, h in zip(params, home)]
                moved[turn] = [bool(s.any()) for s in steps]
                # Unbiased: of half as many tensors each moves twice as far.
                assert math.sqrt(sum(float(s.square().sum()) for s in steps)) == pytest.approx(0.6)
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            calls.append([p.grad is not None for p in params])
            return loss

        opt.step(closure)
        # Tensors that stay cost no gradient in the first pass; in the last one all have theirs.
        assert calls[0] == moved[turn].tolist()
        assert all(calls[1])
        assert all(p.requires_grad for p in params)
    assert moved.any(1).all()
    # Conditioned on one tensor of four at least: 0.5 / (1 - 0.5^4) less the forced ones' share.
    assert np.abs(moved.mean(0) - (0.5 + 0.5**4 / 4)).max() < 0.12


def test_esam_wakes_its_tensors_after_an_error_and_leaves_frozen_ones():
    net, _, _ = network()
    net[0].bias.requires_grad_(False)
    opt = room.ESAM(net.parameters(), lr=0.1, beta=0.3, gamma=1.0)

    def broken():
        raise RuntimeError("no batch")

    with pytest.raises(RuntimeError, match="no batch"):
        opt.step(broken)
    assert [p.requires_grad for p in net.parameters()] == [True, False, True, True]


def test_esam_looks_at_rows_whose_loss_is_not_a_number():
    net, x, y = network()
    opt = room.ESAM(net.parameters(), lr=0.1, rho=0.2, gamma=0.25)
    closure, losses = by_rows(opt, net, x, y)
    seen = []

    def watched(rows=None):
        seen.append(rows)
        return closure(rows)

    def lost():
        return torch.where(torch.arange(12) == 7, torch.nan, losses())

    opt.step(watched, lost)
    assert 7 in seen[1].tolist()
    assert len(seen[1]) == 3


def test_esam_refuses_what_it_cannot_compare():
    net, x, y = network()
    for wrong in ({"beta": 0.0}, {"gamma": 1.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            room.ESAM(net.parameters(), lr=0.1, **wrong)
    opt = room.ESAM(net.parameters(), lr=0.1)
    closure, losses = by_rows(opt, net, x, y)
    with pytest.raises(UsageError, match="give forward"):
        opt.step(closure)
    with pytest.raises(UsageError, match="a loss a row"):
        opt.step(lambda rows=None: closure(rows).mean(), losses)
    closure()
    with pytest.raises(UsageError, match="before the first pass"):
        opt.first_step()


# -- momentum-SAM ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nesterov", [False, True])
def test_msam_takes_the_closed_form_on_a_quadratic(nesterov):
    w, a = quadratic()
    opt = room.MSAM([w], lr=0.1, momentum=0.8, weight_decay=0.05, rho=0.3, nesterov=nesterov)
    x, v = w.detach().clone(), None
    for _ in range(6):
        at = x if v is None else x - 0.3 * v / v.norm()
        g = a @ at + 0.05 * x
        v = g.clone() if v is None else 0.8 * v + g
        expected_loss = 0.5 * at @ a @ at
        x = x - 0.1 * (g + 0.8 * v if nesterov else v)
        loss = opt.step(closed(opt, lambda: 0.5 * w @ a @ w))
        assert float(loss) == pytest.approx(float(expected_loss))
        torch.testing.assert_close(w.detach(), x)


@pytest.mark.parametrize("base", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam])
def test_msam_moves_against_the_first_moment_of_adam(base):
    w, a = quadratic()
    opt = room.MSAM([w], base, lr=0.1, rho=0.3)
    u = nn.Parameter(w.detach().clone())
    plain = base([u], lr=0.1)
    for _ in range(5):
        opt.step(closed(opt, lambda: 0.5 * w @ a @ w))
        v = plain.state[u]["exp_avg"] if plain.state else torch.zeros_like(u)
        u.grad = a @ (u.detach() - 0.3 * v / (v.norm() + 1e-12))
        plain.step()
        torch.testing.assert_close(w.detach(), u.detach())


def test_msam_costs_one_pass_and_one_norm_over_all_groups():
    net, x, y = network()
    first, last = list(net[0].parameters()), list(net[2].parameters())
    opt = room.MSAM([{"params": first, "rho": 0.2}, {"params": last}], lr=0.1, momentum=0.9, rho=0.4)
    points = []

    def closure():
        points.append([p.detach().clone() for p in net.parameters()])
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        return loss

    opt.step(closure)
    home = [p.detach().clone() for p in net.parameters()]
    v = [opt.state[p]["momentum_buffer"].clone() for p in net.parameters()]
    length = math.sqrt(sum(float(t.square().sum()) for t in v))
    opt.gradient(closure)
    assert len(points) == 2
    for point, h, t, rho in zip(points[1], home, v, (0.2, 0.2, 0.4, 0.4)):
        torch.testing.assert_close(point, h - rho * t / length)
    assert all(torch.equal(p, h) for p, h in zip(net.parameters(), home))


def test_msam_starts_as_its_base_optimiser_and_comes_home_after_an_error():
    found = []
    for name in ("base", "msam"):
        net, x, y = network()
        opt = room.make_optimiser(name, net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
        opt.step(closed(opt, lambda net=net, x=x, y=y: nn.functional.cross_entropy(net(x), y)))
        found.append(vector(net))
    torch.testing.assert_close(*found, atol=0, rtol=0)

    def broken():
        raise RuntimeError("no batch")

    with pytest.raises(RuntimeError, match="no batch"):
        opt.step(broken)
    torch.testing.assert_close(vector(net), found[1], atol=0, rtol=0)


def test_msam_refuses_bases_without_momentum_and_steps_without_closures():
    w = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="with momentum"):
        room.MSAM([w], torch.optim.SGD, lr=0.1)
    with pytest.raises(ValueError, match="with momentum"):
        room.MSAM([w], torch.optim.Adam, lr=0.1, betas=(0.0, 0.99))
    with pytest.raises(ValueError, match="adaptive"):
        room.MSAM([w], torch.optim.Adam, lr=0.1, adaptive=True)
    w.grad = torch.ones(2)
    with pytest.raises(UsageError, match="only pass"):
        room.MSAM([w], torch.optim.Adam, lr=0.1).first_step()


# -- in the benchmark's training ---------------------------------------------------------------------------------------


def test_passes_are_counted_by_their_rows():
    split = room.make_split("moons", np.random.default_rng(0), train=60)
    recipe = Recipe(epochs=2, batch_size=20)
    passes = {
        name: room.train_classifier(made.build, split, recipe, 0, measure_sharpness=False).scores["passes"]
        for name, made in {"esam": methods.esam(gamma=0.25), "msam": methods.msam(), "sam": methods.sam()}.items()
    }
    steps = passes["sam"] / 2
    assert passes == {"esam": pytest.approx(1.25 * steps), "msam": steps, "sam": 2 * steps}
