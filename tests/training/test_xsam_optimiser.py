"""XSAM against the official implementation's trace, closed forms, and what users of optimisers rely on."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from assay.core.errors import UsageError
from assay.training import xsam as room
from assay.training.xsam.plane import angle, coefficients, grid, search

ORACLES = Path(__file__).parent.parent / "oracles" / "xsam"


# What a plain closure needs beside the name.
OWN = {"esam": {"gamma": 1.0}, "msam": {"momentum": 0.9}}


def oracle(name: str) -> dict:
    return json.loads((ORACLES / f"{name}.json").read_text())


def quadratic(case: dict, dtype=torch.float64):
    a, b = torch.tensor(case["A"], dtype=dtype), torch.tensor(case["b"], dtype=dtype)
    c = case.get("c", 0.0)
    w = nn.Parameter(torch.tensor(case.get("theta0", case.get("theta")), dtype=dtype))
    return w, lambda: 0.5 * w @ a @ w - b @ w + c


def closed(optimiser, loss):
    def closure():
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


def network(
    seed: int = 0, dtype=torch.float64, batch_norm: bool = False
) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    layers = [nn.Linear(5, 8), *([nn.BatchNorm1d(8)] if batch_norm else []), nn.Tanh(), nn.Linear(8, 3)]
    net = nn.Sequential(*layers).to(dtype)
    return net, torch.randn(12, 5, dtype=dtype), torch.randint(0, 3, (12,))


def loss_on(net, x, y):
    return lambda: nn.functional.cross_entropy(net(x), y)


# -- the plane ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", oracle("slerp")["cases"])
def test_slerp_is_the_closed_form(case):
    v0, v1 = (torch.tensor(case[k], dtype=torch.float64) for k in ("v0_raw", "v1_raw"))
    psi = angle(float(v0 @ v1), float(v0.norm()), float(v1.norm()))
    assert psi == pytest.approx(case["psi"], abs=1e-9)
    for point in case["at"]:
        found = room.slerp(v0, v1, point["alpha"])
        torch.testing.assert_close(found, torch.tensor(point["v"], dtype=torch.float64), atol=1e-9, rtol=0)


@given(st.integers(2, 9), st.integers(0, 10**6), st.floats(0, 3))
def test_slerp_has_unit_length_at_any_alpha_and_meets_both_ends(n, seed, alpha):
    v0, v1 = torch.randn(2, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    psi = angle(float(v0 @ v1), float(v0.norm()), float(v1.norm()))
    if math.sin(psi) < 1e-3:
        return
    assert float(room.slerp(v0, v1, alpha).norm()) == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(room.slerp(v0, v1, 0.0), v0 / v0.norm())
    torch.testing.assert_close(room.slerp(v0, v1, 1.0), v1 / v1.norm())


def test_degenerate_planes_give_a_direction():
    v = torch.tensor([3.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(room.slerp(v, 2 * v, 0.7), v / 5)
    torch.testing.assert_close(room.slerp(v, -v, 0.7), -v / 5)
    with pytest.raises(UsageError, match="not zero"):
        room.slerp(v, 0 * v, 1.0)


def test_grid_has_21_candidates_and_the_first_strict_maximum_wins():
    assert len(grid(2.0, 0.1)) == 21
    assert search("grid", lambda a: -1.0, 0.3, grid(2.0, 0.5), 1.0).alpha == 0.0
    # Losses below zero are searched like any other.
    assert search("grid", lambda a: -5 - (a - 1.5) ** 2, 0.3, grid(2.0, 0.1), 1.0).alpha == pytest.approx(1.5)


def test_losses_that_are_not_finite_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="left out"):
        found = search("grid", lambda a: math.nan if a > 1.25 else a, 0.3, grid(2.0, 0.1), 1.0)
    assert found.alpha == pytest.approx(1.2)
    with pytest.warns(UserWarning, match="alpha stays 1"):
        assert search("grid", lambda a: math.inf, 0.3, grid(2.0, 0.1), 1.0).alpha == 1.0


@pytest.mark.parametrize("psi", [0.003, 0.05, 0.4, 1.2])
def test_fit_finds_the_maximum_of_a_quadratic_loss_in_six_passes(psi):
    coefficient = torch.randn(4, generator=torch.Generator().manual_seed(3), dtype=torch.float64).tolist()

    def loss(a):
        t = a * psi
        return (
            coefficient[0] * math.cos(t) + coefficient[1] * math.sin(t) + coefficient[2] * math.cos(2 * t)
            + coefficient[3] * math.sin(2 * t)
        )  # fmt: skip

    found = search("fit", loss, psi, grid(2.0, 0.1), 1.0)
    assert len(found.losses) == 6
    fine = max(loss(a / 1000) for a in range(2001))
    assert loss(found.alpha) >= fine - 1e-6 * (1 + abs(fine))


def test_fit_falls_back_on_the_grid_where_the_model_does_not_hold():
    found = search("fit", lambda a: math.sin(40 * a), 0.3, grid(2.0, 0.1), 1.0)
    assert len(found.losses) == 27
    assert math.sin(40 * found.alpha) == max(found.losses)


@given(st.floats(0.0, 2.0))
def test_golden_section_finds_one_peak_in_eight_passes(peak):
    found = search("golden", lambda a: -((a - peak) ** 2), 0.3, grid(2.0, 0.1), 1.0)
    assert len(found.losses) == 8
    assert abs(found.alpha - peak) <= 0.13


# -- XSAM against the official code ------------------------------------------------------------------------------------


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("case", oracle("xsam_steps")["cases"], ids=lambda c: c["name"])
def test_every_step_is_the_official_one(case, explicit):
    w, loss = quadratic(case)
    opt = room.XSAM(
        [w], torch.optim.SGD, lr=case["lr"], momentum=case["momentum"], weight_decay=case["weight_decay"],
        rho=case["rho_total"], rho_max=case["rho_m"], ascent_steps=case["steps"], alpha=case["alpha_init"],
        alpha_every=1 if case["dynamic_every_iteration"] else None,
    )  # fmt: skip
    for row in case["trace"]:
        if explicit:
            opt.zero_grad()
            before = loss()
            before.backward()
            for _ in range(case["steps"]):
                opt.first_step()
                at = loss()
                at.backward()
            assert float(at.detach()) == pytest.approx(row["loss_at_ascent"], abs=1e-8)
            opt.combine(loss)
            torch.testing.assert_close(
                w.grad, torch.tensor(row["direction_times_norm"], dtype=torch.float64), atol=1e-8, rtol=0
            )
            opt.step()
        else:
            before = opt.step(closed(opt, loss), loss)
        assert float(before.detach()) == pytest.approx(row["loss_before"], abs=1e-8)
        assert opt.psi_ == pytest.approx(row["psi"], abs=1e-7)
        assert opt.alpha_ == pytest.approx(row["alpha"])
        torch.testing.assert_close(
            w.detach(), torch.tensor(row["params_after"], dtype=torch.float64), atol=1e-8, rtol=0
        )


@pytest.mark.parametrize("case", oracle("sam_family")["cases"], ids=lambda c: c["name"])
def test_relatives_take_the_step_of_pytorch_optimizer(case):
    names = {"SAM": "sam", "ASAM": "asam", "WSAM": "wsam", "LookSAM": "looksam"}
    args = dict(case["args"])
    args.pop("adaptive", None)
    if case["name"] == "ASAM":
        args["eta"] = 0.0
    if "k" in args:
        args["every"] = args.pop("k")
    w, loss = quadratic(case)
    opt = room.make_optimiser(names[case["name"]], [w], torch.optim.SGD, lr=case["lr"], **args)
    seen = []

    def watched():
        opt.zero_grad()
        value = loss()
        value.backward()
        seen.append((w.detach().clone(), w.grad.clone()))
        return value

    opt.step(watched)
    for found, name in ((seen[1][0], "ascent_point"), (seen[1][1], "grad_at_ascent"), (w.detach(), "params_after")):
        torch.testing.assert_close(found, torch.tensor(case[name], dtype=torch.float64), atol=1e-6, rtol=0)


# -- identities --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("k", [1, 3])
def test_alpha_one_is_sam_over_any_base(dtype, base, k):
    weights = []
    for name, options in (("sam", {}), ("xsam", {"alpha_every": None})):
        net, x, y = network(dtype=dtype)
        opt = room.make_optimiser(name, net.parameters(), base, lr=0.01, rho=0.1, ascent_steps=k, **options)
        for _ in range(4):
            opt.step(closed(opt, loss_on(net, x, y)))
        weights.append(nn.utils.parameters_to_vector(net.parameters()))
    torch.testing.assert_close(*weights, atol=0, rtol=0)


def test_alpha_zero_is_the_first_gradient_at_the_last_ones_length():
    net, x, y = network()
    opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2, alpha=0.0, alpha_every=None)
    loss = loss_on(net, x, y)
    g0 = torch.cat([g.flatten() for g in torch.autograd.grad(loss(), list(net.parameters()))])
    home = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
    moved = home + 0.2 * g0 / g0.norm()
    nn.utils.vector_to_parameters(moved, net.parameters())
    g1 = torch.cat([g.flatten() for g in torch.autograd.grad(loss(), list(net.parameters()))])
    nn.utils.vector_to_parameters(home, net.parameters())
    opt.gradient(closed(opt, loss))
    found = torch.cat([p.grad.flatten() for p in net.parameters()])
    torch.testing.assert_close(found, g0 / g0.norm() * g1.norm())
    torch.testing.assert_close(nn.utils.parameters_to_vector(net.parameters()), home, atol=0, rtol=0)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4]), st.booleans())
def test_the_update_is_the_gradient_length_times_a_unit_vector_and_no_worse_than_either_end(seed, k, adaptive):
    net, x, y = network(seed)
    loss = loss_on(net, x, y)
    opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2, ascent_steps=k, adaptive=adaptive)
    lengths = []

    def closure():
        opt.zero_grad()
        value = loss()
        value.backward()
        lengths.append(math.sqrt(sum(float(p.grad.square().sum()) for p in net.parameters())))
        return value

    opt.gradient(closure, loss)
    found = math.sqrt(sum(float(p.grad.square().sum()) for p in net.parameters()))
    assert len(lengths) == k + 1
    assert found == pytest.approx(lengths[-1], rel=1e-6)
    row = opt.alpha_history_[-1]
    assert max(row["losses"]) >= max(row["losses"][0], row["losses"][10])
    assert row["losses"][row["alphas"].index(row["alpha"])] == max(row["losses"])


def test_a_closure_alone_searches_as_a_forward_closure_does():
    found = []
    for forward in (True, False):
        net, x, y = network()
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.3, ascent_steps=2)
        loss = loss_on(net, x, y)
        opt.step(closed(opt, loss), loss if forward else None)
        found.append((nn.utils.parameters_to_vector(net.parameters()), opt.alpha_history_))
    torch.testing.assert_close(found[0][0], found[1][0], atol=0, rtol=0)
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize(("every", "steps"), [("epoch", [0, 6]), (4, [0, 4, 8]), (None, [])])
def test_searches_come_as_often_as_asked(every, steps):
    net, x, y = network()
    opt = room.XSAM(net.parameters(), lr=0.1, alpha_every=every)
    for i in range(9):
        if i % 6 == 0:
            opt.new_epoch()
        opt.step(closed(opt, loss_on(net, x, y)), loss_on(net, x, y))
    assert [row["step"] for row in opt.alpha_history_] == steps


def test_search_of_fewer_passes_agrees_with_the_grid():
    case = next(c for c in oracle("xsam_steps")["cases"] if c["name"] == "dynamic_interior_3step")
    alphas = {}
    for kind in ("grid", "golden", "fit"):
        w, loss = quadratic(case)
        opt = room.XSAM([w], lr=0.05, rho=0.3, rho_max=0.6, ascent_steps=3, search=kind)
        opt.step(closed(opt, loss), loss)
        alphas[kind] = opt.alpha_
    assert alphas["golden"] == pytest.approx(alphas["grid"], abs=0.1)
    assert alphas["fit"] == pytest.approx(alphas["grid"], abs=0.05 + 1e-9)


def test_the_gradient_plane_is_another_plane_for_several_steps_and_the_same_for_one():
    def after(k, plane):
        net, x, y = network()
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.5, ascent_steps=k, alpha=0.5, alpha_every=None, plane=plane)
        opt.step(closed(opt, loss_on(net, x, y)))
        return nn.utils.parameters_to_vector(net.parameters())

    torch.testing.assert_close(after(1, "gradient"), after(1, "displacement"))
    assert not torch.allclose(after(3, "gradient"), after(3, "displacement"))


# -- groups, frozen parameters, zero gradients -------------------------------------------------------------------------


def test_each_group_has_its_own_radius():
    net, x, y = network()
    a, b = list(net[0].parameters()), list(net[2].parameters())
    opt = room.XSAM(
        [{"params": a, "rho": 0.2, "rho_max": 0.2}, {"params": b, "rho": 0.05}], lr=0.1, rho=0.1, rho_max=0.3
    )
    assert [g["rho"] for g in opt.param_groups] == [0.2, 0.05]
    assert [g["rho_max"] for g in opt.param_groups] == [0.2, 0.3]
    loss = loss_on(net, x, y)
    home = [p.detach().clone() for p in a + b]
    loss().backward()
    g = [p.grad.clone() for p in a + b]
    length = math.sqrt(sum(float(t.square().sum()) for t in g))
    opt.first_step()
    for p, h, t, rho in zip(a + b, home, g, [0.2, 0.2, 0.05, 0.05]):
        torch.testing.assert_close(p.detach(), h + rho * t / length)
    loss().backward()
    opt.second_step(loss)


def test_frozen_parameters_and_ones_without_gradient_stay():
    net, x, y = network()
    net[0].weight.requires_grad_(False)
    unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
    opt = room.XSAM([*net.parameters(), unused], lr=0.1, weight_decay=0.1)
    before = net[0].weight.clone()
    opt.step(closed(opt, loss_on(net, x, y)))
    assert torch.equal(net[0].weight, before)
    assert torch.equal(unused.detach(), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("name", ["xsam", *(n for n in room.OPTIMISERS if n != "xsam")])
def test_a_zero_gradient_leaves_weight_decay_alone(name):
    w = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    opt = room.make_optimiser(name, [w], torch.optim.SGD, lr=0.1, weight_decay=0.5, **OWN.get(name, {}))
    opt.step(closed(opt, lambda: (w * 0.0).sum()))
    if name != "random_sam":
        torch.testing.assert_close(w.detach(), torch.tensor([0.95, -1.9], dtype=torch.float64))
    assert torch.isfinite(w).all()


@pytest.mark.parametrize(
    "wrong",
    [{"rho": 0.0}, {"rho_max": -1.0}, {"ascent_steps": 0}, {"alpha_step": 0.0}, {"alpha": -1.0}, {"alpha_every": 0},
     {"eta": -1.0}, {"rho": math.inf}],
)  # fmt: skip
def test_wrong_values_are_refused_as_value_errors_of_one_sentence(wrong):
    w = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=next(iter(wrong))):
        room.XSAM([w], lr=0.1, **wrong)


def test_sparse_and_complex_are_refused_and_the_order_of_calls_is_held():
    table = nn.Embedding(4, 2, sparse=True)
    opt = room.XSAM(table.parameters(), lr=0.1)
    with pytest.raises(UsageError, match="Sparse"):
        opt.step(closed(opt, lambda: table(torch.tensor([1])).sum()))
    with pytest.raises(ValueError, match="Complex"):
        room.XSAM([nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=0.1)
    w = nn.Parameter(torch.ones(2))
    opt = room.XSAM([w], lr=0.1, ascent_steps=2)
    with pytest.raises(UsageError, match="Only 0 of 2"):
        opt.second_step()
    w.square().sum().backward()
    opt.first_step()
    with pytest.raises(UsageError, match="without second_step"):
        opt.step()
    w.square().sum().backward()
    opt.first_step()
    w.square().sum().backward()
    with pytest.raises(UsageError, match="first_step\\(\\) was called 3 times"):
        opt.first_step()
    with pytest.raises(UsageError, match="no forward closure"):
        opt.combine()
    torch.testing.assert_close(w.detach(), torch.ones(2), atol=0, rtol=0)


@pytest.mark.parametrize("zero_grad", [True, False])
def test_halves_and_closures_are_the_same_however_gradients_are_cleared(zero_grad):
    found = []
    for halves in (True, False):
        net, x, y = network()
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.3)
        loss = loss_on(net, x, y)
        for _ in range(3):
            if halves:
                opt.zero_grad(set_to_none=False)
                loss().backward()
                opt.first_step(zero_grad=zero_grad)
                opt.zero_grad(set_to_none=False)
                loss().backward()
                opt.second_step(loss, zero_grad=zero_grad)
            else:
                opt.step(closed(opt, loss), loss)
        found.append(nn.utils.parameters_to_vector(net.parameters()))
    torch.testing.assert_close(*found, atol=0, rtol=0)


def test_weights_are_restored_when_a_pass_fails():
    net, x, y = network()
    home = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
    opt = room.XSAM(net.parameters(), lr=0.1)
    calls = []

    def closure():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return closed(opt, loss_on(net, x, y))()

    with pytest.raises(RuntimeError, match="out of memory"):
        opt.step(closure)
    torch.testing.assert_close(nn.utils.parameters_to_vector(net.parameters()), home, atol=0, rtol=0)
    opt.step(closed(opt, loss_on(net, x, y)))


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(room.OPTIMISERS))
@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.AdamW])
def test_a_state_goes_through_a_file_and_training_continues_the_same(name, base, tmp_path):
    options = {"lr": 0.05, **({"momentum": 0.9} if base is torch.optim.SGD else {})}
    if name == "esam":
        options["gamma"] = 1.0
    net, x, y = network()
    opt = room.make_optimiser(name, net.parameters(), base, rho=0.1, **options)

    def run(net, opt, n):
        for _ in range(n):
            torch.manual_seed(1)
            opt.step(closed(opt, loss_on(net, x, y)))

    run(net, opt, 3)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    other, _, _ = network(7)
    resumed = room.make_optimiser(name, other.parameters(), base, rho=0.3, **options)
    other.load_state_dict(saved["net"])
    resumed.load_state_dict(saved["opt"])
    assert resumed.param_groups[0]["rho"] == 0.1
    assert resumed.base_optimizer.param_groups is resumed.param_groups
    if name == "xsam":
        assert resumed.alpha_history_ == opt.alpha_history_
        assert resumed.alpha_ == opt.alpha_
    run(net, opt, 3)
    run(other, resumed, 3)
    for p, q in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(p, q, atol=0, rtol=0)


def test_a_state_of_another_optimiser_is_refused():
    w = nn.Parameter(torch.ones(2))
    with pytest.raises(UsageError, match="sharpness_aware"):
        room.XSAM([w], lr=0.1).load_state_dict(torch.optim.SGD([w], lr=0.1).state_dict())


def test_schedulers_and_late_groups_reach_the_base_optimiser():
    net, x, y = network()
    opt = room.XSAM(net[0].parameters(), lr=0.1, momentum=0.9)
    opt.add_param_group({"params": list(net[2].parameters()), "rho": 0.5})
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 4)
    assert opt.base_optimizer.param_groups[1]["rho"] == 0.5
    opt.step(closed(opt, loss_on(net, x, y)))
    schedule.step()
    assert opt.base_optimizer.param_groups[1]["lr"] == opt.param_groups[0]["lr"] < 0.1
    copy.deepcopy(opt.state_dict())


def test_a_made_base_optimiser_is_taken_as_it_is():
    net, x, y = network()
    base = torch.optim.RMSprop(net.parameters(), lr=0.01)
    opt = room.XSAM(net.parameters(), base)
    opt.step(closed(opt, loss_on(net, x, y)))
    assert opt.state is base.state
    with pytest.raises(ValueError, match="too late"):
        room.XSAM(net.parameters(), base, lr=0.1)


@pytest.mark.parametrize("k", [1, 3])
def test_weights_moved_in_place_and_in_a_second_buffer_are_the_same(k, monkeypatch):
    found = []
    for swap_on in ((), ("cpu",)):
        monkeypatch.setattr(room.SharpnessAware, "swap_on", swap_on)
        net, x, y = network(dtype=torch.float32)
        addresses = [p.data_ptr() for p in net.parameters()]
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.3, ascent_steps=k, alpha_every=1)
        for _ in range(3):
            opt.step(closed(opt, loss_on(net, x, y)), loss_on(net, x, y))
        assert [p.data_ptr() for p in net.parameters()] == addresses
        found.append(nn.utils.parameters_to_vector(net.parameters()))
    torch.testing.assert_close(*found, atol=0, rtol=0)


def test_coefficients_at_both_ends():
    assert coefficients(0.0, 0.7) == pytest.approx((1.0, 0.0))
    assert coefficients(1.0, 0.7) == pytest.approx((0.0, 1.0))
