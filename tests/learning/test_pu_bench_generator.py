"""The generator: who is labelled, where rows come from, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.learning.pu_bench import make_pu_dataset, resample_by_prevalence
from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.generator import positive_scores, pusb_order


def toy(n=200, share=0.4, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return rng.normal(size=(n, 3)) + y[:, None], y


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 1000),
    st.floats(0.05, 1.0),
    st.sampled_from(["scar", "sar_lbe_a", "sar_lbe_b", "sar_pusb", "sar_pusb_topk", "all"]),
    st.sampled_from(["single", "case_control"]),
)
def test_only_positives_are_labelled_and_sources_are_true(seed, c, strategy, scenario):
    x, y = toy(60, 0.5, seed)
    pu = make_pu_dataset(x, y, c=c, strategy=strategy, scenario=scenario, random_state=seed)
    assert (pu.y_true[pu.s == 1] == 1).all()
    assert np.array_equal(pu.X, x[pu.source_index])
    assert np.array_equal(pu.y_true, y[pu.source_index])
    count = int(y.sum()) if strategy == "all" else int(y.sum() * c)
    assert pu.n_labeled <= count if strategy == "sar_pusb" else pu.n_labeled == count
    unlabelled = np.sort(pu.source_index[pu.s == -1])
    if scenario == "single":
        assert np.array_equal(pu.source_index, np.arange(60))
    else:
        assert np.array_equal(unlabelled, np.arange(60))
        assert pu.prior_u == pytest.approx(y.mean())


def test_the_generator_repeats_and_touches_no_global_state():
    x, y = toy()
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (make_pu_dataset(x, y, c=0.3, random_state=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.source_index, again.source_index)
    assert not np.array_equal(first.source_index, other.source_index)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_biased_mechanisms_favour_what_they_say():
    x, y = toy(2000)
    scores = np.full(len(y), np.nan)
    scores[y == 1] = positive_scores(x, y)
    mean = {}
    for strategy in ("scar", "sar_lbe_a", "sar_lbe_b", "sar_pusb_topk"):
        pu = make_pu_dataset(x, y, c=0.2, strategy=strategy, scenario="single", scores=scores[y == 1])
        mean[strategy] = scores[pu.source_index[pu.s == 1]].mean()
    assert mean["sar_lbe_b"] < mean["scar"] < mean["sar_lbe_a"] < mean["sar_pusb_topk"]


def test_of_equal_scores_the_highest_places_go_first():
    assert pusb_order([0.5, 0.9, 0.9, 0.1]).tolist() == [2, 1, 0, 3]
    x, y = toy(60, 0.5)
    flat = make_pu_dataset(x, y, c=0.2, strategy="sar_pusb_topk", scores=np.full(int(y.sum()), 0.7), scenario="single")
    positives = np.flatnonzero(y == 1)
    assert np.array_equal(flat.source_index[flat.s == 1], positives[-flat.n_labeled :])


def test_a_mechanism_of_ones_own_and_the_published_names():
    x, y = toy()
    pu = make_pu_dataset(x, y, c=0.1, strategy=lambda scores, n, rng: np.argsort(scores)[:n])
    assert pu.n_labeled == int(y.sum() * 0.1)
    old = make_pu_dataset(x, y, c=0.1, strategy="sar_lbeA", scenario="case-control", mode="naive")
    assert (old.strategy, old.scenario, old.mode) == ("sar_lbe_a", "case_control", "full_u")
    with pytest.raises(BadInput, match="different places"):
        make_pu_dataset(x, y, c=0.1, strategy=lambda scores, n, rng: np.zeros(n, int))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 500), st.sampled_from(["full_u", "story"]), st.floats(0.1, 0.6))
def test_splits_keep_copies_together_and_the_audit_counts_them(seed, mode, share):
    x, y = toy(120, 0.5, seed)
    pu = make_pu_dataset(x, y, c=0.5, mode=mode, random_state=seed)
    found = pu.audit()
    assert found["labelled_negatives"] == 0
    assert found["sources"] == len(set(pu.source_index.tolist()))
    if mode == "full_u":
        assert found == {
            "sources": 120, "labelled_and_unlabelled": pu.n_labeled, "repeated_labelled": 0, "repeated_unlabelled": 0,
            "labelled_negatives": 0,
        }  # fmt: skip
    rest, held = pu.split(share, random_state=seed)
    assert not set(rest.source_index.tolist()) & set(held.source_index.tolist())
    assert len(rest.s) + len(held.s) == len(pu.s)
    assert (held.s == 1).any()
    assert (rest.s == 1).any()
    with pytest.raises(BadInput, match="share"):
        pu.split(1.0)
    with pytest.raises(BadInput, match="without"):
        make_pu_dataset(x, y, n_labeled=1).split(0.2)


def test_one_sample_becomes_two_with_all_rows_unlabelled():
    x, y = toy(200, 0.4)
    one = make_pu_dataset(x, y, c=0.5, scenario="single")
    two = one.as_two_samples()
    assert np.array_equal(np.sort(two.source_index[two.s == -1]), np.arange(200))
    assert two.prior_u == pytest.approx(y.mean())
    assert one.prior_u < two.prior_u
    assert np.array_equal(np.sort(two.source_index[two.s == 1]), np.sort(one.source_index[one.s == 1]))
    assert two.as_two_samples() is two


def test_a_biased_strategy_needs_negatives_to_score_against():
    x, _ = toy(20)
    with pytest.raises(BadInput, match="no negative"):
        make_pu_dataset(x, np.ones(20), c=0.5, strategy="sar_lbe_a")
    assert make_pu_dataset(x, np.ones(20), c=0.5).n_labeled == 10


def test_bad_data_is_refused_with_the_argument_named():
    x, y = toy()
    for options, what in (
        ({}, "c \\(label"), ({"c": 0.0}, "c must"), ({"c": 1.2}, "c must"), ({"n_labeled": 10_000}, "n_labeled"),
        ({"c": 0.1, "strategy": "sarr"}, "strategy"), ({"c": 0.1, "scenario": "two"}, "scenario"),
        ({"c": 0.1, "mode": "tale"}, "mode"), ({"n_labeled": 5, "mode": "story"}, "give c"),
        ({"c": 0.1, "mode": "story", "strategy": "sar_pusb"}, "with_replacement"),
        ({"c": 0.1, "strategy": "sar_lbe_a", "scores": [0.5]}, "scores"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=what):
            make_pu_dataset(x, y, **options)
    with pytest.raises(BadInput, match="y must hold"):
        make_pu_dataset(x, np.arange(len(y)) % 3 - 1, c=0.1)
    with pytest.raises(BadInput, match="no positive"):
        make_pu_dataset(x, np.zeros(len(y)), c=0.1)
    with pytest.raises(BadInput, match="NaN"):
        make_pu_dataset(np.where(x > 2, np.nan, x), y, c=0.1)
    with pytest.warns(UserWarning, match="No positive is labelled"):
        make_pu_dataset(x, y, c=0.001)
    with pytest.warns(UserWarning, match="story"):
        assert make_pu_dataset(x, y, c=1.0, mode="story").scenario == "single"


@settings(deadline=None, max_examples=40)
@given(st.integers(5, 60), st.integers(5, 60), st.floats(0.2, 0.8))
def test_thinning_reaches_the_prevalence_within_a_row(positives, negatives, target):
    y = np.r_[np.ones(positives), np.zeros(negatives)]
    rows = resample_by_prevalence(y, target)
    assert len(set(rows.tolist())) == len(rows)
    kept = y[rows]
    if target >= y.mean():
        assert kept.sum() == positives
        assert (kept == 0).sum() == (negatives if target == y.mean() else int(positives * (1 - target) / target))
    else:
        assert (kept == 0).sum() == negatives
        assert kept.sum() == int(negatives * target / (1 - target))
