"""Losses, generator, prior, proxies, impurities, weights and tests against stored values and closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from assay.learning.pu_bench import curriculum, generator, losses, prior, scoring  # noqa: E402
from assay.learning.pu_bench.errors import BadInput  # noqa: E402
from assay.learning.pu_bench.estimators.trees import node_impurity, node_value  # noqa: E402

ORACLES = Path(__file__).parent.parent / "oracles" / "pu_bench"


def cases(name):
    return [pytest.param(c, id=c["name"]) for c in json.loads((ORACLES / f"{name}.json").read_text())["cases"]]


def loss_of(case, g, labelled):
    p = case["params"]
    kind = p["method"]
    if kind == "nnpu":
        return losses.nnpu_loss(g, labelled, p["prior"], loss=p["loss"], gamma=p["gamma"], beta=p["beta"])
    if kind == "upu":
        return losses.upu_loss(g, labelled, p["prior"], loss=p["loss"])
    if kind == "nnpusb":
        return losses.nnpusb_loss(g, labelled, p["prior"], gamma=p["gamma"], beta=p["beta"])
    if kind == "vpu":
        return losses.vpu_loss(g, labelled, torch.tensor(p["mixed_logits"], dtype=torch.float64), p["lam"])
    if kind == "distpu":
        return losses.distpu_loss(g, labelled, p["prior"], bins=p["num_bins"])
    if kind == "pulda_alignment":
        return losses.PULDALoss(p["prior"], temperature=p["temperature"]).alignment(g, labelled)
    return losses.PULDALoss(p["prior"], margin=p["margin"]).two_way(g, labelled)


@pytest.mark.parametrize("case", cases("losses"))
def test_losses_and_gradients_equal_the_stored_ones(case):
    g = torch.tensor(case["logits"], dtype=torch.float64, requires_grad=True)
    value = loss_of(case, g, torch.tensor(case["pu_labels"]) == 1)
    value.backward()
    assert value.item() == pytest.approx(case["loss"], abs=1e-6)
    assert g.grad.tolist() == pytest.approx(case["grad"], abs=1e-6)


@pytest.mark.parametrize("case", cases("lagam_bce"))
def test_class_normalised_entropy_equals_the_stored_one(case):
    g = torch.tensor(case["logits"], dtype=torch.float64)
    soft = torch.tensor(case["soft_labels"], dtype=torch.float64)
    assert losses.class_normalised_bce(g, soft).item() == pytest.approx(case["loss"], abs=1e-6)


@pytest.mark.parametrize("case", cases("proxy_metrics"))
def test_proxy_scores_equal_the_stored_ones(case):
    s, logits, pi = case["pu_labels"], np.array(case["logits"]), case["prior"]
    says = logits > 0
    assert scoring.proxy_accuracy_score(s, says, pi) == pytest.approx(case["pa_case_control"], abs=1e-9)
    assert scoring.proxy_accuracy_score(s, says, pi, "single") == pytest.approx(case["pa_one_sample"], abs=1e-9)
    assert scoring.proxy_auc_score(s, logits) == pytest.approx(case["pauc"], abs=1e-9)


@pytest.mark.parametrize("case", cases("puet_impurity"))
def test_impurity_equals_the_stored_one(case):
    counts = [case[k] for k in ("labeled_in_node", "unlabeled_in_node", "n_labeled", "n_unlabeled", "prior")]
    risk = case["risk_estimator"].lower()
    assert node_impurity(*counts, loss=case["loss"], risk=risk) == pytest.approx(case["impurity"], abs=1e-9)
    assert node_value(*counts) == pytest.approx(case["v_star"], abs=1e-9)


def test_impurity_of_nodes_without_unlabelled_rows():
    assert node_value(3, 0, 10, 20, 0.4) == math.inf
    assert node_impurity(3, 0, 10, 20, 0.4) == 0
    assert node_impurity(3, 0, 10, 20, 0.4, risk="upu") == -math.inf
    assert node_impurity(9, 1, 10, 20, 0.4, loss="logistic", risk="upu") == -math.inf


@pytest.mark.parametrize("case", cases("bbe_prior"))
def test_best_bin_estimate_equals_the_stored_one_and_the_loop(case):
    p, u = case["labeled_scores"], case["unlabeled_scores"]
    assert prior.bbe(p, u, compatible=True) == pytest.approx(case["estimate"], abs=1e-12)
    assert prior.bbe(p, u) == pytest.approx(case["estimate"], abs=0.02)


def slow_bbe(p, u, delta=0.1, gamma=0.01):
    best = None
    for cut in sorted(set(u), reverse=True):
        i, j = sum(x >= cut for x in u), sum(x >= cut for x in p)
        if sum(x > cut for x in u) < 1 or j <= 1:
            continue
        share = j / len(p)
        bound = (1 + gamma) * sum(math.sqrt(math.log(4 / delta) / (2 * n)) for n in (len(p), len(u)))
        found = (i / len(u) / share + bound / share, i / len(u) / share)
        best = found if best is None or found[0] < best[0] else best
    return 0.5 if best is None else min(0.99, max(0.01, best[1]))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_best_bin_estimate_equals_a_plain_loop_with_ties(p, u):
    assert prior.bbe(p, u) == pytest.approx(slow_bbe(p, u), abs=1e-12)


@pytest.mark.parametrize("case", cases("spl_weights"))
def test_self_paced_weights_equal_the_stored_ones(case):
    found = curriculum.self_paced_weights(case["hardness"], case["threshold"], case["type"])
    assert found.tolist() == pytest.approx(case["weights"], abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["hard", "linear", "logistic", "welsch", "cauchy", "poly", "log"]),
    st.lists(st.floats(0, 50), min_size=2, max_size=20),
    st.floats(1e-3, 3),
)
def test_self_paced_weights_fall_and_stay_in_bounds(kind, hardness, threshold):
    weights = curriculum.self_paced_weights(sorted(hardness), threshold, kind)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert (np.diff(weights) <= 1e-12).all()


@pytest.mark.parametrize("case", cases("trend_jenks"))
def test_trends_and_their_break_equal_the_stored_ones(case):
    pytest.importorskip("jenkspy")
    trend = curriculum.trend_scores(case["score_sequences"])
    assert trend.tolist() == pytest.approx(case["trend"], abs=1e-9)
    assert curriculum.natural_break(trend) == pytest.approx(case["jenks_breaks"][1], abs=1e-9)
    assert curriculum.rising(case["score_sequences"]).astype(int).tolist() == case["pseudo_positive_holistic"]


@pytest.mark.parametrize("case", cases("sar_probabilities"))
def test_labelling_mechanisms_equal_the_stored_ones(case):
    p = case["posterior_scores"]
    assert generator.lbe_a_probabilities(p).tolist() == pytest.approx(case["lbeA_prob"], abs=1e-9)
    assert generator.lbe_b_probabilities(p).tolist() == pytest.approx(case["lbeB_prob"], abs=1e-9)
    assert generator.pusb_acceptance(p).tolist() == pytest.approx(case["pusb_accept_prob"], abs=1e-9)
    assert generator.pusb_order(p).tolist() == case["pusb_topk_order"]


@pytest.mark.parametrize("case", cases("generator_counts"))
@pytest.mark.filterwarnings("ignore:No positive is labelled")
def test_generated_counts_equal_the_stored_ones(case):
    n, n_pos, c = case["n"], case["n_pos"], case["c"]
    x, y = np.arange(n)[:, None], (np.arange(n) < n_pos).astype(int)
    single = generator.make_pu_dataset(x, y, scenario="single", c=c).counts()
    full = generator.make_pu_dataset(x, y, c=c).counts()
    story = generator.make_pu_dataset(x, y, c=c, mode="story").counts()
    keys = {
        "n_total": "n_total", "n_labeled": "n_labeled", "n_unlabeled": "n_unlabeled",
        "pos_in_unlabeled": "n_pos_unlabeled", "prior_unlabeled": "prior_unlabeled",
        "prior_constructed_v1": "prior_constructed",
    }  # fmt: skip
    for expected, found in (
        (case["single"], single),
        (case["case_control_full_u"], full),
        (case["case_control_equal_n"], story),
    ):
        assert {k: found[keys[k]] for k in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", cases("significance"))
def test_paired_tests_equal_the_stored_ones(case):
    from assay.learning.pu_bench.analyses import paired_t

    names = list(case["methods"])
    p, adjusted = paired_t(case["baseline_nnpu"], [case["methods"][name] for name in names])
    assert dict(zip(names, p)) == pytest.approx(case["p_raw"], abs=1e-9)
    assert dict(zip(names, adjusted)) == pytest.approx(case["p_holm"], abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**31),
    st.floats(0.05, 0.95),
    st.sampled_from(["sigmoid", "logistic", "squared", "savage"]),
)
def test_the_risk_is_unbiased_in_form_and_never_below_its_bound(seed, pi, kind):
    rng = np.random.default_rng(seed)
    g = torch.tensor(rng.normal(0, 3, 30))
    labelled = torch.tensor(np.arange(30) < 7)
    unbiased = losses.upu_loss(g, labelled, pi, loss=kind)
    held = losses.nnpu_loss(g, labelled, pi, loss=kind)
    positive, _, _ = losses.risks(g, labelled, kind)
    assert held.item() == pytest.approx(max(unbiased.item(), pi * positive.item()), abs=1e-9)
    shuffled = torch.tensor(rng.permutation(30))
    again = losses.nnpu_loss(g[shuffled], labelled[shuffled], pi, loss=kind)
    assert again.item() == pytest.approx(held.item(), abs=1e-9)


@pytest.mark.parametrize("labelled", [[True, True], [False, False]])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_one_sided_batches_and_huge_logits_give_finite_losses_with_gradients(labelled, scale):
    mask = torch.tensor(labelled)
    kinds = {
        "nnpu": lambda g: losses.nnpu_loss(g, mask, 0.4),
        "nnpusb": lambda g: losses.nnpusb_loss(g, mask, 0.4),
        "upu": lambda g: losses.upu_loss(g, mask, 0.4, loss="logistic"),
        "distpu": lambda g: losses.distpu_loss(g, mask, 0.4),
        "pulda": lambda g: losses.PULDALoss(0.4).alignment(g, mask) + losses.PULDALoss(0.4).two_way(g, mask),
        "balanced": lambda g: losses.balanced_bce(g, mask),
        "asymmetric": lambda g: losses.asymmetric_loss(g, mask, 0.4, share=0.1),
    }
    for name, loss in kinds.items():
        g = torch.tensor([scale, -scale], requires_grad=True)
        value = loss(g)
        value.backward()
        assert torch.isfinite(value), name
        assert torch.isfinite(g.grad).all(), name


def test_the_variational_loss_survives_underflow_and_refuses_a_batch_without_labels():
    g = torch.tensor([-400.0, -500.0], requires_grad=True)
    value = losses.vpu_variational(g, torch.tensor([True, False]))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(g.grad).all()
    with pytest.raises(BadInput, match="skip"):
        losses.vpu_variational(g, torch.tensor([False, False]))


@pytest.mark.parametrize("bins", [1, 2, 5])
def test_soft_histograms_sum_to_one_and_one_bin_is_the_mean(bins):
    p = torch.tensor(np.random.default_rng(0).random(50))
    found = losses.soft_histogram(p, bins)
    assert found.sum().item() == pytest.approx(1)
    if bins == 1:
        assert found.tolist() == pytest.approx([1 - p.mean().item(), p.mean().item()])


def test_pulda_averages_over_batches_and_divides_the_distance_alone():
    loss = losses.PULDALoss(0.4)
    g = torch.tensor([0.3, -0.2, 1.0], requires_grad=True)
    t = torch.tensor([True, False, False])
    loss.alignment(g, t)
    second = torch.tensor([0.1, 2.0, -1.0])
    p1, p2 = torch.sigmoid(g.detach()), torch.sigmoid(second)
    mean = 0.85 * p1[1:].mean() + 0.15 * p2[1:].mean()
    expected = 2 * 0.4 * (1 - p2[0]) + losses.smooth_distance(mean, 0.4, 3.5) / 0.15
    assert loss.alignment(second, t).item() == pytest.approx(expected.item(), abs=1e-6)


def test_loss_modules_equal_the_functions():
    g, t = torch.tensor([[0.5], [-1.0], [2.0]]), torch.tensor([1, -1, 0])
    assert losses.NNPULoss(0.3)(g, t).item() == losses.nnpu_loss(g.flatten(), t == 1, 0.3).item()
    with pytest.raises(BadInput, match="prior"):
        losses.NNPULoss(1.0)
    with pytest.raises(BadInput, match="loss='hinge'"):
        losses.UPULoss(0.3, "hinge")


def test_contrastive_loss_equals_a_plain_loop():
    z = torch.tensor(np.random.default_rng(1).normal(size=(5, 3)))
    group = torch.tensor([0, 0, 1, 1, 2])
    u = z / z.norm(dim=1, keepdim=True)
    each = []
    for i in range(5):
        others = [j for j in range(5) if j != i]
        total = sum(math.exp(float(u[i] @ u[j]) / 0.07) for j in others)
        pairs = [j for j in others if group[j] == group[i]]
        if pairs:
            each.append(-sum(float(u[i] @ u[j]) / 0.07 - math.log(total) for j in pairs) / len(pairs))
    assert losses.contrastive_loss(z, group[:, None] == group).item() == pytest.approx(sum(each) / len(each))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=40, unique=True), st.floats(0.05, 0.95))
def test_the_prior_threshold_lets_through_as_many_as_it_should(scores, pi):
    found = scoring.prior_threshold(scores, pi)
    count = round(pi * len(scores))
    assert abs(int((np.array(scores) > found).sum()) - count) <= (0 if count else 1)
