"""Statistics of the published runs: the reference values, closed forms, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.agents.lmgame import scoring
from assay.agents.lmgame.env import reported_score
from assay.agents.lmgame.published import published_runs, references
from assay.core.errors import DataError

ORACLES = Path(__file__).parents[1] / "oracles" / "lmgame"


def oracle(name: str) -> dict:
    return json.loads((ORACLES / f"{name}.json").read_text())


def means(game: str, harness: bool) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in published_runs():
        if row.game == game and row.harness == harness:
            found.setdefault(row.model, []).append(row.score)
    return {model: float(np.mean(scores)) for model, scores in found.items()}


@pytest.mark.parametrize("case", oracle("harness_effect")["cases"], ids=lambda c: c["game"])
def test_the_harness_effect_of_the_published_runs_is_the_reference(case: dict) -> None:
    on, off = means(case["game"], True), means(case["game"], False)
    models = [m for m in on if m in off]
    assert sorted(models) == sorted(case["models"])
    effect = scoring.harness_effect([on[m] for m in models], [off[m] for m in models])
    assert effect.mean_difference == pytest.approx(case["mean_difference"], abs=1e-6)
    assert effect.t == pytest.approx(case["paired_t"], abs=1e-6)
    assert effect.p == pytest.approx(case["p_two_sided"], abs=1e-6)
    assert effect.wilcoxon_p == pytest.approx(case["wilcoxon_p"], abs=1e-6)
    assert effect.mean_difference > 0


@pytest.mark.parametrize("case", oracle("game_ranks")["cases"], ids=lambda c: c["game"])
def test_ranks_share_ties_as_in_the_reference(case: dict) -> None:
    table = means(case["game"], True)
    scores = [table[m] for m in oracle("game_ranks")["models"]]
    assert scores == pytest.approx(case["scores"])
    assert scoring.rank(scores).tolist() == case["ranks_average_ties_1_is_best"]


@pytest.mark.parametrize("case", oracle("normalisation")["cases"], ids=lambda c: c.get("game", "edge"))
def test_normalisation_is_the_reference(case: dict) -> None:
    found = scoring.normalise(case["raw"])
    assert [x is None for x in found] == [x is None for x in case["normalised"]]
    assert [x for x in found if x is not None] == pytest.approx(
        [x for x in case["normalised"] if x is not None], abs=1e-9
    )


def test_normalisation_of_equal_scores_is_one_and_missing_stays_missing() -> None:
    assert scoring.normalise([4.0, None, 4.0]) == [1.0, None, 1.0]


def test_every_aggregate_of_the_published_runs_is_the_reference() -> None:
    cases = oracle("run_aggregation")["cases"]
    assert len(cases) > 50
    for case in cases:
        found = scoring.aggregate(case["game"], case["runs"])
        assert found.mean == pytest.approx(case["mean"], abs=1e-6)
        assert found.std_population == pytest.approx(case["std_population"], abs=1e-6)
        if case.get("std_sample") is None:
            assert math.isnan(found.std_sample)
        else:
            assert found.std_sample == pytest.approx(case["std_sample"], abs=1e-6)
        if "display_10log2_mean" in case:
            assert found.reported_mean == pytest.approx(case["display_10log2_mean"], abs=1e-6)
            assert found.reported_of_mean == pytest.approx(case["display_10log2_of_mean"], abs=1e-6)


def test_spearman_with_pairwise_completeness_is_the_reference() -> None:
    case = oracle("spearman_matrix")
    names, rho, counts = scoring.spearman_matrix(references()["benchmarks"]["table"])
    checked = 0
    for game, row in case["rows"].items():
        for other, value in row.items():
            assert rho[names.index(game), names.index(other)] == pytest.approx(value, abs=1e-8)
            checked += 1
    assert checked == 27 * len(case["rows"]) == 81
    assert counts.min() < counts.max() == 8


@pytest.mark.parametrize(
    "case", oracle("rank_predictor")["cases"], ids=lambda c: f"{c['game']}-{c['degree']}-{len(c['categories'])}"
)
def test_the_rank_predictor_is_the_reference(case: dict) -> None:
    rows = references()["category_ranks"]
    found = scoring.predict_ranks({c: rows[c] for c in case["categories"]}, case["target_ranks"], degree=case["degree"])
    assert found.batches == case["batches"]
    assert list(found.features) == case["features"]
    for got, wanted in zip(found.weights, case["weights"], strict=True):
        assert got == pytest.approx(wanted, rel=1e-5, abs=1e-6 if wanted < 1e-3 else 0)
    assert found.residual == pytest.approx(case["mean_normalised_l2_residual"], rel=1e-5)
    assert found.pearson == pytest.approx(case["mean_pearson"], rel=1e-5)


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=12))
def test_ranks_add_up_and_follow_the_scores(scores: list[float]) -> None:
    found = scoring.rank(scores)
    assert found.sum() == pytest.approx(len(scores) * (len(scores) + 1) / 2)
    best = int(np.argmax(scores))
    assert found[best] == found.min()


def test_glass_delta_divides_by_the_spread_without_harness() -> None:
    effect = scoring.harness_effect([3.0, 5.0, 7.0], [1.0, 2.0, 3.0])
    assert effect.glass_delta == pytest.approx(3.0)
    assert scoring.harness_effect([1, 2, 3], [1, 2, 3]).p == 1.0


def test_a_low_rank_table_is_recovered_with_entries_missing() -> None:
    rng = np.random.default_rng(0)
    u, v = rng.random((12, 2)), rng.random((2, 9))
    y = 5 * u @ v
    y[2, 3] = y[7, 1] = math.nan
    found = scoring.factorise(y, 2, l1=1e-6, l2=1e-6)
    assert found.rmse < 0.01
    assert found.models.min() >= 0
    assert found.tasks.min() >= 0
    assert (found.models @ found.tasks)[2, 3] == pytest.approx((u @ v)[2, 3], abs=0.05)


def test_too_few_models_are_refused() -> None:
    with pytest.raises(DataError, match="at least 3"):
        scoring.harness_effect([1, 2], [0, 1])
    with pytest.raises(DataError, match="at least 3 models"):
        scoring.spearman_matrix({"a": [1, 2], "b": [2, 1]})
    with pytest.raises(DataError, match="no run"):
        scoring.aggregate("tetris", [])


def test_2048_is_reported_as_the_mean_of_logs() -> None:
    assert reported_score("twenty_forty_eight", 1024) == 100
    assert reported_score("twenty_forty_eight", 0) == 0
    assert reported_score("tetris", 12) == 12
