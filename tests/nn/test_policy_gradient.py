"""Returns, advantages and losses: oracles, closed forms, gradients, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.nn import policy_gradient as pg

numbers = st.floats(-10, 10, allow_nan=False)
episodes = st.lists(st.lists(numbers, min_size=1, max_size=6), min_size=1, max_size=6)


def test_rebn_oracle(oracle):
    for case in oracle("gem", "rebn")["cases"]:
        batch = [pg.returns(rewards, case["gamma"]) for rewards in case["rewards"]]
        for got, wanted in zip(batch, case["returns"], strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)
        assert pg.moments(batch).mean == pytest.approx(case["mean"], abs=1e-9)
        assert pg.moments(batch).std == pytest.approx(case["std_population"], abs=1e-9)
        for got, wanted in zip(pg.rebn(batch), case["advantages"], strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_group_advantages_oracle(oracle):
    names = {"grpo": "grpo", "drgrpo": "dr_grpo", "rloo": "rloo", "ep_level": "episode"}
    for case in oracle("gem", "group_advantages")["cases"]:
        for theirs, ours in names.items():
            np.testing.assert_allclose(pg.group_advantages(case["episode_returns"], ours), case[theirs], atol=1e-6)


def test_turn_level_gae_oracle(oracle):
    for case in oracle("gem", "turn_level_gae")["cases"]:
        advantages, targets = pg.gae(
            case["rewards"],
            case["values"],
            bootstrap=case["bootstrap_value"],
            terminated=case["terminated"],
            gamma=case["gamma"],
            lam=case["lambda"],
        )
        np.testing.assert_allclose(advantages, case["advantages"], atol=1e-9)
        np.testing.assert_allclose(targets, case["value_targets"], atol=1e-9)


@pytest.mark.parametrize("make", [np.array, lambda x: torch.tensor(x, dtype=torch.float64)], ids=["numpy", "torch"])
def test_policy_loss_oracle(oracle, make):
    for case in oracle("gem", "policy_loss")["cases"]:
        new, old, mask = make(case["logp_new"]), make(case["logp_old"]), make(case["mask"])
        tokens = pg.clipped_losses(new, old, case["advantage"], clip=case["clip"])
        np.testing.assert_allclose(np.asarray(tokens), case["per_token_loss"], atol=1e-9)
        summed = pg.policy_loss(new, old, case["advantage"], mask, constant=case["constant_normaliser"])
        assert float(summed) == pytest.approx(case["loss_masked_sum"], abs=1e-9)
        assert float(pg.policy_loss(new, old, case["advantage"], mask)) == pytest.approx(
            case["loss_masked_mean"], abs=1e-9
        )


@given(episodes, st.floats(0, 1))
def test_returns_are_the_sum_written_out(rewards, gamma):
    for episode in rewards:
        got = pg.returns(episode, gamma)
        for turn in range(len(episode)):
            wanted = sum(gamma**k * r for k, r in enumerate(episode[turn:]))
            assert got[turn] == pytest.approx(wanted, abs=1e-9)


@given(episodes)
def test_rebn_is_centred_and_of_unit_spread(rewards):
    batch = [pg.returns(r, 0.9) for r in rewards]
    flat, out = np.concatenate(batch), np.concatenate(pg.rebn(batch))
    assert abs(out.mean()) < 1e-3
    if flat.std() > 1e-3:
        assert out.std() == pytest.approx(1, abs=1e-4)
    if np.ptp(flat) == 0:
        assert (out == 0).all()


@given(episodes, episodes)
def test_two_processes_that_add_their_moments_normalise_like_one(first, second):
    a, b = [np.array(e) for e in first], [np.array(e) for e in second]
    whole = pg.rebn(a + b)
    if np.concatenate(a + b).std() < 1e-3:
        return
    both = pg.moments(a) + pg.moments(b)
    parts = pg.rebn(a, over=both) + pg.rebn(b, over=both)
    for got, wanted in zip(parts, whole, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_groups_are_compared_within_themselves():
    values, groups = [1.0, 5.0, 3.0, 9.0], ["a", "b", "a", "b"]
    np.testing.assert_allclose(pg.group_advantages(values, "dr_grpo", groups=groups), [-1, -2, 1, 2])
    np.testing.assert_allclose(pg.group_advantages(values, "rloo", groups=groups), [-2, -4, 2, 4])
    np.testing.assert_allclose(pg.group_advantages(values, "grpo", groups=groups), [-1, -1, 1, 1], atol=1e-8)


@given(st.lists(numbers, min_size=2, max_size=8))
def test_rloo_is_dr_grpo_times_n_over_n_minus_one(values):
    n = len(values)
    np.testing.assert_allclose(
        pg.group_advantages(values, "rloo"), pg.group_advantages(values, "dr_grpo") * n / (n - 1), atol=1e-9
    )


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), st.floats(0, 1))
def test_gae_with_lambda_one_is_return_minus_value(pairs, gamma):
    rewards, values = map(list, zip(*pairs, strict=True))
    advantages, targets = pg.gae(rewards, values, gamma=gamma, lam=1.0)
    np.testing.assert_allclose(targets, pg.returns(rewards, gamma), atol=1e-8)
    np.testing.assert_allclose(advantages, pg.returns(rewards, gamma) - values, atol=1e-8)


def test_the_gradient_at_the_sampling_policy_is_reinforce():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    taken = torch.randint(7, (5,), generator=generator)
    advantages = torch.randn(5, generator=generator, dtype=torch.float64)

    def logp():
        return torch.log_softmax(logits, -1)[torch.arange(5), taken]

    (clipped,) = torch.autograd.grad(pg.clipped_losses(logp(), logp().detach(), advantages).sum(), logits)
    (plain,) = torch.autograd.grad(-(advantages * logp()).sum(), logits)
    torch.testing.assert_close(clipped, plain)


def test_a_ratio_beyond_the_clip_has_no_gradient_in_its_favour():
    logp = torch.tensor([0.5, -0.5], requires_grad=True)
    pg.clipped_losses(logp, torch.zeros(2), torch.tensor([1.0, -1.0])).sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [0.0, 0.0]


def test_padding_may_hold_anything():
    values = np.array([[1.0, np.nan], [3.0, 5.0]])
    mask = np.array([[1, 0], [1, 1]])
    assert pg.masked_sum(values, mask, constant=2) == pytest.approx((0.5 + 4) / 2)
    assert pg.masked_mean(values, mask) == pytest.approx((1 + 4) / 2)
    assert pg.masked_mean(values, mask, over="batch") == pytest.approx(3)
    tensor = torch.tensor(values, requires_grad=True)
    pg.masked_mean(tensor, torch.tensor(mask)).backward()
    assert tensor.grad is not None
    assert torch.isfinite(tensor.grad).all()


def test_a_sequence_without_tokens_counts_zero():
    assert pg.masked_mean(np.array([[2.0, 2.0], [9.0, 9.0]]), np.array([[1, 1], [0, 0]])) == pytest.approx(1)


def test_the_unbiased_kl_estimators_meet_the_closed_form():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    exact = float((p * np.log(p / q)).sum())
    for estimator in ("k1", "k3"):
        assert float((p * pg.kl(np.log(p), np.log(q), estimator)).sum()) == pytest.approx(exact)
    assert (pg.kl(np.log(p), np.log(q), "k3") >= 0).all()
    assert (pg.kl(np.log(p), np.log(p), "k2") == 0).all()


def test_the_clipped_critic_loss_is_the_larger_one():
    values, targets, old = np.array([2.0, 0.1]), np.array([1.0, 1.0]), np.array([0.0, 0.0])
    np.testing.assert_allclose(pg.value_losses(values, targets), [0.5, 0.405])
    np.testing.assert_allclose(pg.value_losses(values, targets, old, clip=0.2), [0.5, 0.405])
    np.testing.assert_allclose(pg.value_losses(np.array([1.0]), np.array([1.0]), np.array([0.0]), clip=0.2), [0.32])


def test_turn_values_go_to_their_tokens():
    assert pg.per_token([1.0, 2.0, 3.0], [2, 0, 1]).tolist() == [1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pg.returns([0.0, float("nan")]), r"rewards\[1\] is nan"),
        (lambda: pg.returns([0.0], 1.5), "gamma is 1.5"),
        (lambda: pg.returns([[0.0]]), "shape"),
        (lambda: pg.group_advantages([1.0], "rloo"), "only one"),
        (lambda: pg.group_advantages([1.0], "gpro"), "did you mean 'grpo'"),
        (lambda: pg.group_advantages([1.0, 2.0], groups=["a"]), "one each"),
        (lambda: pg.gae([1.0], []), "1 rewards and 0 values"),
        (lambda: pg.per_token([1.0], []), "one each"),
        (lambda: pg.clipped_losses(np.zeros(1), np.zeros(1), 1.0, clip=-1), "clip"),
        (lambda: pg.masked_sum(np.zeros(1), constant=0), "above 0"),
        (lambda: pg.masked_mean(np.zeros(2), np.zeros(1)), "shape"),
        (lambda: pg.masked_mean(np.zeros(2), over="all"), "kind of mean"),
        (lambda: pg.kl(np.zeros(1), np.zeros(1), "k4"), "k1"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(UsageError, match=words):
        call()


def test_an_empty_batch_stays_empty():
    assert pg.rebn([]) == []
    assert pg.returns([]).shape == (0,)
    assert pg.gae([], [])[0].shape == (0,)
