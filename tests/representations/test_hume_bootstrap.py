"""Batched bootstrap statistics are those of a loop over the same draws; plans of studies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.core.stats.intervals import fisher_z, wilson
from assay.representations.hume import bootstrap, sampling, scoring, standin
from assay.representations.hume.registry import pairs, tasks

SMALL = st.integers(0, 3)


def rng():
    return np.random.default_rng(7)


@settings(max_examples=30)
@given(st.lists(st.tuples(SMALL, st.floats(0, 5)), min_size=2, max_size=25))
def test_spearman_of_every_resample_is_scipys(values):
    x, y = [float(a) for a, _ in values], [b for _, b in values]
    drawn = bootstrap.draws(len(values), 20, rng())
    looped = [scoring.sts_scores(np.array(x)[at], np.array(y)[at])["spearman"] for at in drawn]
    assert bootstrap.spearmans(x, y, drawn) == pytest.approx(looped, abs=1e-9)


@settings(max_examples=30)
@given(st.lists(st.tuples(SMALL, SMALL), min_size=2, max_size=25))
def test_v_measure_of_every_resample_is_scikit_learns(values):
    gold, clusters = [str(a) for a, _ in values], [str(b) for _, b in values]
    drawn = bootstrap.draws(len(values), 20, rng())
    looped = [scoring.clustering_scores([gold[i] for i in at], [clusters[i] for i in at])["v_measure"] for at in drawn]
    assert bootstrap.v_measures(gold, clusters, drawn) == pytest.approx(looped, abs=1e-9)


def test_same_seed_same_interval():
    values = rng().random(40)
    one, two = (bootstrap.percentile(bootstrap.means(values, bootstrap.draws(40, 500, rng()))) for _ in range(2))
    assert one == two
    assert one[0] < values.mean() < one[1]


@pytest.mark.parametrize("half_width", [0.03, 0.05, 0.1])
def test_planned_items_are_the_fewest_that_reach_the_width(half_width):
    for kind, interval in (("classification", lambda n: wilson(0.8 * n, n)), ("sts", lambda n: fisher_z(0.8, n))):
        n = sampling.items_for(kind, half_width, 0.8)
        low, high = interval(n)
        assert float(high - low) <= 2 * half_width
        low, high = interval(n - 1)
        assert float(high - low) > 2 * half_width


def test_forty_five_items_give_thirteen_points():
    low, high = wilson(33, 45)
    assert float(high - low) / 2 == pytest.approx(0.125, abs=0.005)
    assert sampling.items_for("classification", 0.125, 33 / 45) in range(43, 48)


def test_planned_power_for_a_gap_is_reached():
    n = sampling.items_for_gap(0.1, 0.8)
    draws = rng().binomial(n, [[0.8], [0.9]], (2, 4000)) / n
    difference = draws[1] - draws[0]
    se = np.sqrt((draws * (1 - draws)).sum(axis=0) / n)
    assert 0.76 <= (difference / se > 1.96).mean() <= 0.86


def test_no_rule_is_claimed_for_v_measure():
    with pytest.raises(UsageError, match="pilot"):
        sampling.items_for("clustering", 0.1, 0.8)


def test_samples_are_balanced_repeatable_and_keep_their_ids():
    study = standin.study().pairs
    emotion = sampling.sample(study["HUMEEmotionClassification|default"], 24, seed=3)
    assert {g: [i.gold for i in emotion.items].count(g) for g in emotion.labels} == dict.fromkeys(emotion.labels, 4)
    assert emotion == sampling.sample(study["HUMEEmotionClassification|default"], 24, seed=3)
    source = {i.id: i for i in study["HUMEEmotionClassification|default"].items}
    assert all(source[i.id] == i for i in emotion.items)
    rated = sampling.sample(study["HUMESTS12|default"], 20)
    assert len({i.gold for i in rated.items}) == 5


def test_sampled_queries_have_seven_documents_and_the_gold_of_each():
    pair = standin.study().pairs["HUMENews21InstructionReranking|default"]
    chosen = sampling.sample(pair, 10, candidates=5, relevant=2)
    source = {i.id: i for i in pair.items}
    for item in chosen.items:
        gold = dict(zip(source[item.id].ids, source[item.id].gold))
        assert len(item.gold) == len(item.ids) == len(item.texts) - 1 == 5
        assert sum(item.gold) == 2
        assert [gold[d] for d in item.ids] == list(item.gold)
    with pytest.raises(UsageError, match="no query with 9 documents"):
        sampling.sample(pair, 10, candidates=9)


def test_a_sampled_clustering_is_balanced_over_labels():
    pair = standin.study().pairs["HUMERedditClusteringP2P|default"]
    (item,) = sampling.sample(pair, 12, clusters=4).items
    assert sorted(list(item.gold).count(g) for g in set(item.gold)) == [3, 3, 3, 3]


def test_stand_ins_have_the_shape_of_all_26_pairs():
    study = standin.study()
    assert len(study.pairs) == 26
    for spec, subset in pairs():
        pair = study.pairs[f"{spec.name}|{subset}"]
        count = len(pair.items[0].texts) if spec.kind == "clustering" else len(pair.items)
        assert count == spec.items
        if spec.kind == "classification":
            per_label = {label: sum(x == label for _, x in pair.train) for label in pair.labels}
            assert min(per_label.values()) >= spec.samples_per_label
            assert not {t for t, _ in pair.train} & {i.texts[0] for i in pair.items}
        if spec.kind == "reranking":
            assert all(len(i.gold) == spec.candidates and sum(i.gold) == spec.relevant for i in pair.items)
    assert study.data.kind == "stand-in"
    assert standin.study(1).pairs != study.pairs
    assert tasks()["HUMESTS22"].gold_scale == [1, 4]
    assert {i.gold for i in study.pairs["HUMESTS22|ar"].items} <= {1.0, 1.6, 2.5, 3.1, 4.0}
