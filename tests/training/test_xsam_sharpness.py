"""Sharpness measures and planes against closed forms, explicit Hessians and the exact maximiser."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from assay.core.errors import UsageError
from assay.training import xsam as room

CASES = json.loads((Path(__file__).parent.parent / "oracles" / "xsam" / "max_direction.json").read_text())["cases"]


def quadratic(case):
    a, b = torch.tensor(case["A"], dtype=torch.float64), torch.tensor(case["b"], dtype=torch.float64)
    w = nn.Parameter(torch.tensor(case["theta"], dtype=torch.float64))
    return w, (lambda: 0.5 * w @ a @ w - b @ w + case["c"]), a, a @ w.detach() - b


def network(dtype=torch.float64):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)
    x, y = torch.randn(10, 3, dtype=dtype), torch.randint(0, 2, (10,))
    return net, lambda: nn.functional.cross_entropy(net(x), y)


def full_hessian(net, loss):
    params = list(net.parameters())
    rows = []
    first = torch.cat([g.flatten() for g in torch.autograd.grad(loss(), params, create_graph=True)])
    for g in first:
        found = torch.autograd.grad(g, params, retain_graph=True, allow_unused=True)
        rows.append(
            torch.cat([torch.zeros_like(p).flatten() if h is None else h.flatten() for p, h in zip(params, found)])
        )
    return torch.stack(rows)


@pytest.mark.parametrize("case", CASES)
def test_the_exact_maximiser_of_a_quadratic(case):
    w, loss, a, g = quadratic(case)
    d = room.quadratic_maximiser(a, g, case["rho_m"])
    truth = torch.tensor(case["max_direction"], dtype=torch.float64)
    torch.testing.assert_close(d / d.norm(), truth, atol=1e-6, rtol=0)
    assert float(d.norm()) == pytest.approx(case["rho_m"])
    with torch.no_grad():
        w.add_(d)
    assert float(loss().detach()) == pytest.approx(case["max_loss"], abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_planes_have_the_known_losses_and_cosines(case):
    w, loss, _, _ = quadratic(case)
    truth = torch.tensor(case["max_direction"], dtype=torch.float64)
    for k in (1, 5):
        plane = room.search_plane(loss, [w], rho=case["rho"], rho_max=case["rho_m"], ascent_steps=k, alpha_step=0.001)
        assert plane.alpha == pytest.approx(case[f"alpha_star_{k}"], abs=0.002)
        assert max(plane.losses) == pytest.approx(case["loss_at_rho_m"][f"xsam_{k}"], abs=1e-6)
        assert plane.losses[1000] == pytest.approx(case["loss_at_rho_m"][f"g{k}"], abs=1e-6)
        x, y = plane.points["xsam"]
        direction = (x * plane.v0[0] + y * plane.e2[0]) / case["rho_m"]
        assert float(direction @ truth) == pytest.approx(case["cosine"][f"xsam_{k}"], abs=1e-6)
        if k == 1:
            assert plane.losses[0] == pytest.approx(case["loss_at_rho_m"]["g0"], abs=1e-6)
            # The claim, where it was computed to hold: SAM's direction beats the gradient's, XSAM's beats both.
            assert max(plane.losses) >= plane.losses[1000] > plane.losses[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 8), st.integers(0, 10**6), st.floats(0.05, 3))
def test_the_maximiser_satisfies_its_conditions(n, seed, rho):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, n, generator=generator, dtype=torch.float64)
    a, g = (root + root.mT) / 2, torch.randn(n, generator=generator, dtype=torch.float64)
    d = room.quadratic_maximiser(a, g, rho)
    lam = float(d @ (a @ d + g)) / rho**2
    assert lam >= float(torch.linalg.eigvalsh(a)[-1]) - 1e-6
    torch.testing.assert_close(lam * d - a @ d, g, atol=1e-6, rtol=1e-6)


def test_the_hard_case_goes_along_the_top_eigenvector():
    a = torch.diag(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    d = room.quadratic_maximiser(a, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), 1.0)
    assert float(d[0]) == pytest.approx(0.25)
    assert abs(float(d[2])) == pytest.approx(math.sqrt(1 - 0.25**2))


@pytest.mark.parametrize("case", CASES)
def test_the_largest_loss_in_a_ball_is_found_on_quadratics(case):
    w, loss, _, _ = quadratic(case)
    before = w.detach().clone()
    value, direction = room.largest_loss(loss, [w], case["rho_m"], steps=300)
    assert value == pytest.approx(case["max_loss"], abs=1e-5)
    assert float(direction[0].norm()) == pytest.approx(1)
    torch.testing.assert_close(w.detach(), before, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hessian_products_eigenvalue_and_trace_are_those_of_the_matrix(dtype):
    net, loss = network(dtype)
    h = full_hessian(net, loss)
    params = list(net.parameters())
    generator = torch.Generator().manual_seed(0)
    v = [torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype) for p in params]
    found = torch.cat([t.flatten() for t in room.hessian_product(loss, params)(v)])
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found, h @ torch.cat([t.flatten() for t in v]), atol=tolerance, rtol=1e-4)
    values = torch.linalg.eigvalsh(h)
    top = room.hessian_top(loss, params, generator, iterations=3000, tolerance=1e-3)
    assert top.value == pytest.approx(float(values[values.abs().argmax()]), rel=1e-2)
    assert top.residual <= 1e-3 * abs(top.value) * 1.01
    trace = room.hessian_trace(loss, params, generator, probes=400)
    assert abs(trace.value - float(h.diagonal().sum())) < 4 * trace.error


def test_hessian_products_agree_with_finite_differences():
    net, loss = network()
    params = list(net.parameters())
    v = [torch.ones_like(p) for p in params]
    grads = []
    for sign in (1, -1):
        with torch.no_grad():
            torch._foreach_add_(params, v, alpha=sign * 1e-5)
        grads.append(torch.autograd.grad(loss(), params))
        with torch.no_grad():
            torch._foreach_add_(params, v, alpha=-sign * 1e-5)
    for found, plus, minus in zip(room.hessian_product(loss, params)(v), *grads):
        torch.testing.assert_close(found, (plus - minus) / 2e-5, atol=1e-7, rtol=1e-5)


def test_a_linear_loss_has_no_curvature():
    w = nn.Parameter(torch.ones(3, dtype=torch.float64))
    loss = lambda: w.sum()  # noqa: E731
    assert room.hessian_top(loss, [w], torch.Generator()).value == 0.0
    assert room.hessian_trace(loss, [w], torch.Generator()).value == 0.0
    value, _ = room.largest_loss(loss, [w], 2.0)
    assert value == pytest.approx(3 + 2 * math.sqrt(3))
    with pytest.raises(UsageError, match="parallel"):
        room.search_plane(loss, [w], rho=0.1)


def test_the_surface_is_the_loss_and_weights_and_statistics_stay():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(10, 3, dtype=torch.float64), torch.randint(0, 2, (10,))
    loss = lambda: nn.functional.cross_entropy(net(x), y)  # noqa: E731
    net.train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    plane = room.search_plane(loss, net.parameters(), rho=0.2, model=net)
    at, losses = room.surface(loss, net.parameters(), plane, size=5, extent=0.4, model=net)
    for k, v in net.state_dict().items():
        torch.testing.assert_close(v, before[k], atol=0, rtol=0)
    with room.frozen_statistics(net), torch.no_grad():
        assert losses[2, 2] == pytest.approx(float(loss()))
        # The point at distance rho_max along v0 is alpha = 0.
        assert losses[2, 4] == pytest.approx(plane.losses[0])
    assert at[4] == plane.rho_max == 0.4
    chart = room.surface_chart(at, losses, plane)
    assert len(chart["layer"][0]["data"]["values"]) == 25
    assert np.hypot(*plane.points["g0"]) == pytest.approx(plane.rho_max)


def test_xsam_searches_what_search_plane_finds():
    net, loss = network()
    plane = room.search_plane(loss, net.parameters(), rho=0.3)
    opt = room.XSAM(net.parameters(), lr=0.1, rho=0.3)

    def closure():
        opt.zero_grad()
        value = loss()
        value.backward()
        return value

    opt.step(closure, loss)
    row = opt.alpha_history_[0]
    assert row["alpha"] == plane.alpha
    assert row["losses"] == pytest.approx(plane.losses)
    assert row["psi"] == pytest.approx(plane.psi, abs=1e-7)


def test_histories_are_kept_as_arrays(tmp_path):
    rows = [
        {"step": 0, "alpha": 1.0, "psi": 0.1, "alphas": [0.0, 1.0], "losses": [1.0, 2.0]},
        {"step": 5, "alpha": 0.0, "psi": 0.2, "alphas": [0.0], "losses": [3.0]},
    ]
    found = np.load(room.save_history(rows, tmp_path / "h.npz"))
    np.testing.assert_array_equal(found["losses"], [[1.0, 2.0], [3.0, np.nan]])
    assert found["psi"].tolist() == [0.1, 0.2]
    with pytest.raises(UsageError, match="no search"):
        room.save_history([], tmp_path / "h.npz")
