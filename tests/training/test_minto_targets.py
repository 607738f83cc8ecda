"""Bootstrap targets against the oracles, closed forms and each other; numpy and torch, single and double precision."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.training.minto import distributional as dist
from assay.training.minto import targets

ORACLES = Path(__file__).parents[1] / "oracles" / "minto"
NAMES = {"target": "target_only", "online": "online_only", "min": "minto", "max": "max", "mean": "mean",
         "random": "random", "double": "double_dqn"}  # fmt: skip


def oracle(name: str):
    return json.loads((ORACLES / f"{name}.json").read_text(encoding="utf-8"))


def arrays(kind: str, *values):
    made = [np.asarray(v, float) for v in values]
    return made if kind == "numpy" else [torch.from_numpy(v.copy()) for v in made]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("op", targets.OPERATORS[:-1])
def test_discrete_targets_are_the_oracles(kind, op):
    for case in oracle("discrete_targets")["cases"]:
        qt, qo, r, d = arrays(kind, *(case[k] for k in ("q_target_next", "q_online_next", "reward", "terminated")))
        coin = np.asarray(case["random_mask_use_online"])
        coin = coin if kind == "numpy" else torch.from_numpy(coin)
        found = targets.bootstrap_target(qt, qo, r, d, case["gamma"], op, use_online=coin)
        np.testing.assert_allclose(np.asarray(found), case["targets"][NAMES[op]], atol=1e-9)
        share = targets.online_share(qt, qo)
        assert share == pytest.approx(case["targets"]["online_selected_fraction_at_greedy_action"], abs=1e-9)


def test_the_minimum_comes_before_the_maximum():
    differs = 0
    for case in oracle("discrete_targets")["cases"]:
        qt, qo, r, d = arrays("numpy", *(case[k] for k in ("q_target_next", "q_online_next", "reward", "terminated")))
        wrong = r + case["gamma"] * (1 - d) * np.minimum(qt.max(-1), qo.max(-1))
        np.testing.assert_allclose(wrong, case["targets"]["min_of_max_NOT_minto"], atol=1e-9)
        right = targets.bootstrap_target(qt, qo, r, d, case["gamma"])
        assert (right <= wrong + 1e-12).all()
        differs += int((right < wrong - 1e-6).sum())
    assert differs > 0


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_critic_targets_are_the_oracles(kind):
    for case in oracle("actor_critic_targets")["cases"]:
        keys = ("q_target_next", "q_online_next", "reward", "terminated", "next_log_prob")
        qt, qo, r, d, logp = arrays(kind, *(case[k] for k in keys))
        sac = {"entropy": case["entropy_coef"], "next_log_prob": logp}
        for name, op, more in (
            ("sac_target", "target", sac), ("sac_minto_target", "min", sac), ("td3_target", "target", {}),
            ("td3_minto_target", "min", {}), ("sac_minto_target_per_critic", "min", {**sac, "clipped": False}),
        ):  # fmt: skip
            found = targets.critic_target(qt, qo, r, d, case["gamma"], op, **more)
            np.testing.assert_allclose(np.asarray(found), case[name], atol=1e-9, err_msg=name)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_quantile_targets_loss_and_cql_are_the_oracles(kind):
    whole = oracle("distributional_and_cql")
    for case in whole["cases"]:
        zt, zo, r, d = arrays(kind, *(case[k] for k in ("z_target", "z_online", "reward", "terminated")))
        base = dist.quantile_target(zt, zo, r, d, case["gamma"], "target")
        np.testing.assert_allclose(np.asarray(base), case["iqn_baseline"], atol=1e-9)
        for rule, name in (("quantilewise", "minto_quantilewise"), ("mean", "minto_by_mean")):
            kept = dist.combine_quantiles(zt, zo, rule=rule)
            assert np.asarray(kept.mean(-1).argmax(-1)).tolist() == case[name]["action"]
            found = dist.quantile_target(zt, zo, r, d, case["gamma"], rule=rule)
            np.testing.assert_allclose(np.asarray(found), case[name]["target"], atol=1e-9)
    for case in whole["quantile_huber"]:
        pred, tau, target = arrays(kind, case["pred"], case["tau"], case["target"])
        found = dist.quantile_huber(pred, target, tau, case["kappa"])
        assert float(found) == pytest.approx(case["loss_sum_over_pred_mean_over_target"], abs=1e-9)
    for case in whole["cql_regulariser"]:
        (q,) = arrays(kind, case["q"])
        action = np.asarray(case["action"])
        found = targets.conservative_penalty(q, action if kind == "numpy" else torch.from_numpy(action))
        assert float(found) == pytest.approx(case["value"], abs=1e-9)


numbers = st.floats(-50, 50, allow_nan=False, width=32)
tables = st.tuples(st.integers(1, 5), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(numbers, min_size=2 * shape[1], max_size=2 * shape[1]), min_size=shape[0], max_size=shape[0]
    )
)


@settings(max_examples=60, deadline=None)
@given(tables)
def test_operators_are_ordered_and_agree_where_the_networks_do(rows):
    q = np.asarray(rows)
    qt, qo = q[:, : q.shape[1] // 2], q[:, q.shape[1] // 2 :]
    coin = np.arange(len(q)) % 2 == 0
    v = {op: targets.bootstrap_value(qt, qo, op, use_online=coin) for op in targets.OPERATORS}
    slack = 1e-9
    assert (v["max"] >= v["mean"] - slack).all()
    assert (v["mean"] >= v["min"] - slack).all()
    assert (v["max"] >= np.maximum(v["target"], v["online"]) - slack).all()
    assert (v["min"] <= np.minimum(v["target"], v["online"]) + slack).all()
    assert (v["double"] <= v["target"] + slack).all()
    np.testing.assert_array_equal(v["random"], np.where(coin, v["online"], v["target"]))
    for op in targets.OPERATORS:
        same = targets.bootstrap_value(qt, qt, op, use_online=coin)
        np.testing.assert_allclose(same, qt.max(-1))
    np.testing.assert_allclose(targets.bootstrap_value(qt, qo, "scdqn", beta=0.0), v["double"])
    np.testing.assert_allclose(targets.bootstrap_value(qt, qo, "scdqn", beta=1.0), v["target"])
    pair = np.stack([qt, qo])
    zero = np.zeros(len(q))
    np.testing.assert_allclose(targets.maxmin_target(pair, zero, zero, 1.0), v["min"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", targets.OPERATORS)
def test_torch_and_numpy_agree_keep_their_precision_and_stop_gradients(op, dtype):
    g = torch.Generator().manual_seed(0)
    qt, qo = (torch.randn(7, 3, 4, generator=g, dtype=dtype, requires_grad=True) for _ in range(2))
    r, d = torch.randn(7, 3, generator=g, dtype=dtype), (torch.rand(7, 3, generator=g) < 0.3)
    coin = torch.rand(7, 3, generator=g) < 0.5
    found = targets.bootstrap_target(qt, qo, r, d, 0.9, op, use_online=coin)
    assert found.dtype == dtype
    assert not found.requires_grad
    plain = targets.bootstrap_target(
        qt.detach().numpy(), qo.detach().numpy(), r.numpy(), d.numpy(), 0.9, op, use_online=coin.numpy()
    )
    assert plain.dtype == r.numpy().dtype
    np.testing.assert_allclose(found.numpy(), plain, rtol=1e-6)


def test_gradients_of_losses_are_those_of_finite_differences():
    g = torch.Generator().manual_seed(1)
    q = torch.randn(5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    action = torch.tensor([0, 3, 1, 1, 2])
    assert torch.autograd.gradcheck(lambda x: targets.conservative_penalty(x, action), (q,))
    anchor = torch.randn(5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: targets.functional_penalty(x, anchor.detach(), 0.7).mean(), (q,))
    targets.functional_penalty(q, anchor, 0.7).sum().backward()
    assert anchor.grad is None
    tau = torch.rand(5, 4, generator=g, dtype=torch.float64)
    goal = torch.randn(5, 6, generator=g, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: dist.quantile_huber(x, goal, tau).mean(), (q,))


def test_quantile_huber_is_the_peers_with_midpoints():
    utils = pytest.importorskip("sb3_contrib.common.utils", reason="sb3-contrib is not installed")
    g = torch.Generator().manual_seed(2)
    pred, goal = torch.randn(6, 9, generator=g), torch.randn(6, 9, generator=g)
    tau = ((torch.arange(9) + 0.5) / 9).expand(6, 9)
    ours = dist.quantile_huber(pred, goal, tau).mean()
    torch.testing.assert_close(ours, utils.quantile_huber_loss(pred, goal, sum_over_quantiles=True))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_the_minimum_of_quantile_functions_is_one(seed):
    rng = np.random.default_rng(seed)
    a, b = (np.sort(rng.standard_normal((3, 2, 8)), -1) for _ in range(2))
    for rule in ("quantilewise", "mean"):
        kept = dist.combine_quantiles(a, b, rule=rule)
        assert (np.diff(kept, axis=-1) >= 0).all()
        assert (kept.mean(-1) <= np.minimum(a.mean(-1), b.mean(-1)) + 1e-12).all()
    np.testing.assert_array_equal(dist.combine_quantiles(a, a + 0.0, rule="mean"), a)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_categories_keep_mass_and_mean_and_the_smaller_distribution(kind):
    rng = np.random.default_rng(3)
    atoms = np.linspace(-10, 10, 51)
    pt, po = (rng.dirichlet(np.ones(51), size=(4, 3)) for _ in range(2))
    r, d = rng.uniform(-1, 1, 4), np.array([0.0, 1.0, 0.0, 0.0])
    given_ = arrays(kind, pt, po, atoms, r, d)
    kept = np.asarray(dist.combine_categories(*given_[:3]))
    means = np.minimum((pt * atoms).sum(-1), (po * atoms).sum(-1))
    np.testing.assert_allclose((kept * atoms).sum(-1), means)
    found = np.asarray(dist.categorical_target(*given_, 0.9))
    np.testing.assert_allclose(found.sum(-1), 1)
    # Nothing is clipped here, so that the projection keeps the mean: it is the target of the means.
    assert (np.abs(r + 0.9 * 10) <= 10).all()
    np.testing.assert_allclose((found * atoms).sum(-1), r + 0.9 * (1 - d) * means.max(-1), atol=1e-9)
    exact = dist.project(*arrays(kind, np.eye(51)[[7]], atoms[None], atoms))
    np.testing.assert_allclose(np.asarray(exact), np.eye(51)[[7]], atol=1e-9)


def test_n_step_sums_stop_at_the_end_of_an_episode():
    rewards = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    terminated = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    truncated = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]])
    total, discount, ended, last = targets.n_step(rewards, terminated, truncated, 0.5)
    np.testing.assert_allclose(total, [1 + 1 + 0.75, 2.0, 1.0])
    np.testing.assert_allclose(discount, [0.125, 0.25, 0.5])
    assert ended.tolist() == [0, 1, 0]
    assert last.tolist() == [2, 1, 0]
    q = np.array([[4.0, 8.0]] * 3)
    y = targets.bootstrap_target(q, q - 1, total, ended, discount)
    np.testing.assert_allclose(y, [2.75 + 0.125 * 7, 2.0, 1.0 + 0.5 * 7])


@pytest.mark.parametrize("op", ["min", "max", "mean"])
@pytest.mark.parametrize("side", [0, 1])
def test_nan_is_handed_on_and_raises_where_asked(op, side):
    q = [np.zeros((2, 3)), np.ones((2, 3))]
    q[side][0, 1] = np.nan
    for made in (q, [torch.from_numpy(x) for x in q]):
        zero = made[0][:, 0] * 0
        y = targets.bootstrap_target(made[0], made[1], zero, zero, 0.9, op)
        assert bool(np.isnan(np.asarray(y))[0])
        with pytest.raises(FloatingPointError, match="1 of 2 targets"):
            targets.require_finite(y, "here")
    z = [np.zeros((1, 1, 4)), np.ones((1, 1, 4))]
    z[side][0, 0, 2] = np.nan
    if op != "mean":
        assert np.isnan(dist.combine_quantiles(z[0], z[1], op, rule="mean")).any()


def test_bad_requests_are_one_sentence():
    q, r = np.zeros((3, 2)), np.zeros(3)
    with pytest.raises(ValueError, match="did you mean"):
        targets.bootstrap_target(q, q, r, r, 0.9, "minn")
    with pytest.raises(ValueError, match="gamma must be at least 0; got -1"):
        targets.bootstrap_target(q, q, r, r, -1.0)
    with pytest.raises(ValueError, match=r"\(3, 2\) and \(3, 4\)"):
        targets.bootstrap_target(q, np.zeros((3, 4)), r, r, 0.9)
    with pytest.raises(ValueError, match="Rewards"):
        targets.bootstrap_target(q, q, np.zeros((3, 1)), np.zeros((3, 1)), 0.9)
    with pytest.raises(ValueError, match="use_online"):
        targets.bootstrap_target(q, q, r, r, 0.9, "random")
    with pytest.raises(ValueError, match="all of one kind"):
        targets.bootstrap_target(q, torch.zeros(3, 2), r, r, 0.9)
    with pytest.raises(ValueError, match="none to choose"):
        targets.critic_target(q, q, np.zeros(2), np.zeros(2), 0.9, "double")
    with pytest.raises(ValueError, match="kappa"):
        dist.quantile_huber(q, q, q, 0.0)
    with pytest.raises(ValueError, match="rule"):
        dist.combine_quantiles(q, q, rule="median")
    with pytest.raises(ValueError, match="Atoms"):
        dist.project(q, q, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="one shape"):
        targets.n_step(q, r, r, 0.9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_targets_on_a_gpu_are_those_on_the_cpu():
    g = torch.Generator().manual_seed(0)
    qt, qo, r = torch.randn(9, 4, generator=g), torch.randn(9, 4, generator=g), torch.randn(9, generator=g)
    d = r > 0
    for op in ("min", "max", "double"):
        here = targets.bootstrap_target(qt, qo, r, d, 0.9, op)
        there = targets.bootstrap_target(qt.cuda(), qo.cuda(), r.cuda(), d.cuda(), 0.9, op)
        torch.testing.assert_close(there.cpu(), here)
