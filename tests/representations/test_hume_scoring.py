"""The scorer: oracles of the published protocol, aggregation of the published scores, properties, bad input."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError
from assay.core.stats.intervals import fisher_z, wilson
from assay.representations.hume import aggregate, results, scoring
from assay.representations.hume.registry import key, pairs, tasks

ORACLES = Path(__file__).parents[1] / "oracles" / "hume"
DATA = Path(__file__).parents[3] / "shared" / "data" / "hume"
RENAMED = {"mrr_at_10": "mrr@10", "ndcg_at_10": "ndcg@10"}


def same(found, expected, tolerance=1e-9):
    if isinstance(expected, dict):
        for name, value in expected.items():
            same(found[RENAMED.get(name, name)], value, tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for f, e in zip(found, expected):
            same(f, e, tolerance)
    elif isinstance(expected, str):
        assert found == expected
    else:
        assert found == pytest.approx(expected, abs=tolerance)


def test_scoring_cases_agree_with_the_oracle(oracle):
    for case in oracle("hume", "scoring_cases")["cases"]:
        expected = case["expected"]
        found = scoring.score(case["type"], case["gold"], case["annotators"])
        same(found["per_annotator"], expected["per_annotator"])
        same(found["aggregated"], expected.get("aggregated") or expected["aggregated_is_mean_of_annotators"])
        sides = list(case["annotators"].values())
        if "majority_vote" in expected:
            same(scoring.majority_vote(sides), expected["majority_vote"])
        if "mean_prediction" in expected:
            same(scoring.mean_rating(sides), expected["mean_prediction"])
        for name, ours in (
            ("fleiss_kappa", "value"),
            ("percent_agreement_pairwise_mean", "mean_percentage_agreement"),
            ("mean_pairwise_ari", "value"),
            ("mean_pairwise_spearman", "value"),
        ):
            if name in expected:
                same(found["agreement"][ours], expected[name])
        if "agreement" in expected:
            same(found["agreement"], expected["agreement"])
        if "per_query" in expected:
            for who, queries in expected["per_query"].items():
                each = [scoring.query_scores(y, j) for y, j in zip(case["gold"], case["annotators"][who])]
                same(each, queries)


def test_means_over_pairs_tasks_and_types_agree_with_the_oracle(oracle):
    known = oracle("hume", "aggregation_26_subsets")
    assert sorted(key(spec.name, subset) for spec, subset in pairs()) == sorted(known["subsets"])
    scores = aggregate.published()["scores"]
    assert set(known["expected"]) <= set(scores)
    for model, expected in known["expected"].items():
        assert aggregate.mean_subset(scores[model]) == pytest.approx(expected["mean_subset"], abs=1e-9)
        assert aggregate.mean_task(scores[model]) == pytest.approx(expected["mean_task"], abs=1e-9)
        without = aggregate.of_kinds("classification", "reranking", "sts")
        assert len(without) == 19
        assert aggregate.mean_subset(scores[model], without) == pytest.approx(
            expected["mean_without_clustering_19"], abs=1e-9
        )
        for kind, value in aggregate.by_kind(scores[model]).items():
            named = {k.lower(): v for k, v in expected["by_type"].items()}
            assert value == pytest.approx(named[kind], abs=1e-9)


def test_intervals_agree_with_the_oracle(oracle):
    for case in oracle("hume", "confidence_intervals")["cases"]:
        low, high = wilson(case["successes"], case["n"]) if case["kind"] == "wilson" else fisher_z(case["r"], case["n"])
        assert [float(low), float(high)] == pytest.approx(case["expected"], abs=1e-6)


def test_registry_and_shipped_scores_hold_the_published_human_scores(oracle):
    expected = oracle("hume", "published_human_scores")["expected"]
    shipped = aggregate.published()["scores"][aggregate.HUMAN]
    for spec, subset in pairs():
        name = key(spec.name, subset)
        assert spec.human[subset] == expected[name] == shipped[name]
    assert len(tasks()) == 16
    assert len(expected) == 26


def test_people_are_fourth_and_jasper_leads():
    overall = {m: aggregate.mean_subset(s) for m, s in aggregate.published()["scores"].items()}
    assert aggregate.rank_of(aggregate.HUMAN, overall) == 4
    assert round(100 * overall[aggregate.HUMAN], 2) == 77.64
    assert max(overall, key=overall.__getitem__) == "NovaSearch__jasper_en_vision_language_v1"


def test_a_missing_or_undefined_pair_voids_the_mean_and_an_empty_one_is_zero():
    scores = dict(aggregate.published()["scores"][aggregate.HUMAN])
    assert aggregate.mean_subset(scores, []) == 0
    assert aggregate.mean_subset({**scores, "HUMESTS12|default": math.nan}) is None
    del scores["HUMESTS12|default"]
    assert aggregate.mean_subset(scores) is None
    assert aggregate.mean_task(scores) is None


@pytest.mark.skipif(not DATA.is_dir(), reason="the published result files are not here")
def test_published_files_give_the_same_scores_as_the_shipped_copy():
    assert results.read_scores(DATA) == aggregate.published()["scores"]
    human = results.read_scores(DATA / "human_results")["human_results"]
    assert {k: v for k, v in human.items() if k in aggregate.published()["scores"][aggregate.HUMAN]} == {
        k: pytest.approx(v, abs=1e-12) for k, v in aggregate.published()["scores"][aggregate.HUMAN].items()
    }


def test_one_distinct_label_makes_all_five_scores_the_accuracy():
    found = scoring.classification_scores(["a", "a", "a"], ["a", "b", "b"])
    assert list(found.values()) == pytest.approx([1 / 3] * 5)


def test_one_cluster_on_either_side_scores_nothing():
    assert set(scoring.clustering_scores(["a", "b"], ["x", "x"]).values()) == {0.0}
    assert set(scoring.clustering_scores(["a", "a"], ["x", "y"]).values()) == {0.0}


def test_constant_ratings_correlate_zero_and_are_told_apart():
    found = scoring.sts_scores([1, 2, 3], [4, 4, 4])
    assert found["spearman"] == found["pearson"] == 0
    assert found["mse"] == pytest.approx(((3) ** 2 + 2**2 + 1) / 3)
    assert scoring.is_constant([4, 4, None])
    assert set(scoring.sts_scores([1.0], [1.0]).values()) == {0.0}


def test_a_query_with_a_missing_judgement_is_passed_over():
    relevant = [[1, 0], [0, 1]]
    assert scoring.query_scores([1, 0], [1, None]) is None
    alone = scoring.reranking_scores(relevant, [[1, 0], [None, 1]])
    assert alone == scoring.query_scores([1, 0], [1, 0])


def test_missing_answers_have_no_vote():
    assert scoring.majority_vote([["b", None], ["a", None], [None, None]]) == ["a", None]
    assert scoring.mean_rating([[1, None], [4, None]]) == [2.5, None]


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=20), st.permutations(["x", "y", "z"]))
def test_names_of_clusters_do_not_matter(gold, names):
    given_clusters = [gold[-1 - i] for i in range(len(gold))]
    renamed = [dict(zip("abc", names))[c] for c in given_clusters]
    found = scoring.clustering_scores(gold, given_clusters)
    assert found == pytest.approx(scoring.clustering_scores(gold, renamed), abs=1e-9)


@given(
    st.lists(st.sampled_from("ab"), min_size=4, max_size=30), st.lists(st.sampled_from("ab"), min_size=4, max_size=30)
)
def test_fleiss_kappa_of_two_is_scotts_pi(a, b):
    n = min(len(a), len(b))
    a, b = a[:n], b[:n]
    shares = np.array([(a + b).count(label) for label in "ab"]) / (2 * n)
    chance = float((shares**2).sum())
    if chance == 1:
        return
    observed = np.mean([x == y for x, y in zip(a, b)])
    found = scoring.agreement("classification", {"A": a, "B": b})
    assert found["metric"] == "fleiss_kappa"
    assert found["value"] == pytest.approx((observed - chance) / (1 - chance), abs=1e-12)


def test_full_agreement_on_one_label_has_no_kappa_and_falls_back():
    found = scoring.agreement("classification", {"A": ["a", "a"], "B": ["a", "a"]})
    assert found["metric"] == "mean_pairwise_kappa"
    assert found["mean_percentage_agreement"] == 1


@pytest.mark.parametrize(("kappa", "name"), [(0.9, "Almost Perfect"), (0.55, "Moderate"), (0.2, "Poor"), (-1, "Poor")])
def test_bands_of_kappa(kappa, name):
    assert scoring.interpretation(kappa) == name


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({}, "no annotators"),
        ({"A": ["a"]}, "'A' has 1 answers for 2"),
        ({"A": [None, None]}, "'A' gave no answer"),
    ],
)
def test_bad_panels_are_refused(answers, words):
    with pytest.raises(DataError, match=words):
        scoring.score("classification", ["a", "b"], answers)
