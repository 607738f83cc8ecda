"""Scores of survhte: oracles, brute force, bounds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.core.stats.ranks import average_ranks, ranks
from assay.learning.survhte.scoring import (
    autoc,
    concordance_td,
    effect_scores,
    explained,
    grid_index,
    integrated_brier,
    policy_value,
    qini,
    rmst,
    survival_at,
)

ORACLES = Path(__file__).parents[1] / "oracles" / "survhte"


def cases(name: str) -> list[dict]:
    return json.loads((ORACLES / f"{name}.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", cases("rmst"), ids=lambda c: c["name"])
def test_areas_follow_both_rules(case: dict) -> None:
    times, survival, end = case["times"], case["survival"], case["max_time"]
    published = rmst(times, survival, end, rule="published")
    assert published == pytest.approx(case["rmst_reference_trapezoid_from_first_time"], abs=1e-9)
    assert rmst(times, survival, end) == pytest.approx(case["rmst_step_from_zero"], abs=1e-9)


@pytest.mark.parametrize("case", cases("survival_metrics"), ids=lambda c: c["name"])
def test_concordance_and_brier_score_are_the_reference_ones(case: dict) -> None:
    index = grid_index(case["grid"], case["duration"])
    assert index.tolist() == case["eval_index_next_grid_point"]
    found = concordance_td(case["survival"], index, case["duration"], case["event"])
    assert found == pytest.approx(case["concordance_td_antolini"], abs=1e-9)
    rows = (case["duration"], case["event"])
    brier = integrated_brier(rows, rows, case["grid"], case["survival"])
    assert brier == pytest.approx(case["ibs_sksurv_same_train_test"], abs=1e-9)


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.booleans(), st.lists(st.integers(0, 4), min_size=6, max_size=6)), min_size=2
    )
)
@settings(max_examples=80, deadline=None)
def test_concordance_counts_pairs_as_defined(found: list[tuple[int, bool, list[int]]]) -> None:
    time, event = np.array([f[0] for f in found], float), np.array([f[1] for f in found])
    S = np.array([f[2] for f in found], float)
    index = grid_index(np.arange(1, 7), time)
    pairs = good = ties = 0
    for i in range(len(time)):
        for j in range(len(time)):
            if i != j and event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                a, b = S[i, index[i]], S[j, index[i]]
                pairs, good, ties = pairs + 1, good + (a < b), ties + (a == b)
    strict, half = (concordance_td(S, index, time, event, ties=t) for t in (0.0, 0.5))
    if not pairs:
        assert np.isnan(strict)
        return
    assert strict == pytest.approx(good / pairs)
    assert half == pytest.approx((good + ties / 2) / pairs)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 20))
@settings(max_examples=80, deadline=None)
def test_an_area_lies_between_nothing_and_the_horizon_and_grows_with_it(drops: list[float], horizon: float) -> None:
    survival = np.sort(np.array(drops))[::-1]
    times = np.arange(1, len(survival) + 1, dtype=float)
    for rule in ("step", "linear"):
        value, longer = (float(rmst(times, survival, h, rule=rule)) for h in (horizon, horizon + 1))
        assert -1e-12 <= value <= horizon + 1e-9
        assert longer >= value - 1e-12
    below = float(rmst(times, survival, horizon, rule="linear"))
    assert below <= float(rmst(times, survival, horizon)) + 1e-9


def test_curves_are_read_as_steps_or_lines() -> None:
    times, survival = [1.0, 2.0], [[0.8, 0.4]]
    assert survival_at(times, survival, 0.5)[0] == 1
    assert survival_at(times, survival, 1.5)[0] == 0.8
    assert survival_at(times, survival, 1.5, linear=True)[0] == pytest.approx(0.6)
    assert survival_at(times, survival, 9.0, linear=True)[0] == 0.4


def test_effect_scores_and_ranks_are_the_reference_ones() -> None:
    ranking, metrics = cases("ranking_and_metrics")
    found = effect_scores(metrics["cate_pred"], metrics["cate_true"], metrics["population_ate"])
    assert found["mse"] == pytest.approx(metrics["cate_mse"], abs=1e-9)
    assert found["rmse"] == pytest.approx(metrics["cate_rmse"], abs=1e-9)
    assert found["ate"] == pytest.approx(metrics["ate_pred"], abs=1e-9)
    assert found["ate_bias"] == pytest.approx(metrics["ate_bias"], abs=1e-9)
    table = np.array([[np.nan if v is None else v for v in ranking["cate_rmse"][m]] for m in ranking["ranks"]]).T
    ours = ranks(table, higher_is_better=False)
    whole = ~np.isnan(table).any(axis=1)
    theirs = np.array([[np.nan if v is None else v for v in row] for row in ranking["ranks"].values()]).T
    np.testing.assert_allclose(ours[whole], theirs[whole])
    # The reference skips what is missing; here a failure takes the worst rank and costs its method.
    assert ours[1, 2] == 4
    assert average_ranks(table, higher_is_better=False)[2] > ranking["mean_rank"]["m3"]


def test_explained_share_is_one_at_the_floor_and_zero_for_the_constant() -> None:
    rng = np.random.default_rng(0)
    tau = rng.normal(size=200)
    assert explained(3.0, 3.0, tau.var()) == 1
    assert explained(3.0 + tau.var(), 3.0, tau.var()) == pytest.approx(0)
    assert np.isnan(explained(1.0, 1.0, 0.0))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_policy_and_no_order_beat_those_of_the_true_effects(values: list[float]) -> None:
    true = np.array(values)
    guess = np.random.default_rng(0).normal(size=len(true))
    assert policy_value(guess, true) <= policy_value(true, true) + 1e-12
    assert autoc(guess, true) <= autoc(true, true) + 1e-9
    assert qini(guess, true) <= qini(true, true) + 1e-9


def test_qini_is_the_area_over_random_treatment() -> None:
    # Ranked right: gains 2/2 at half, 1/2 at all; area (0 + 1)/4 + (1 + .5)/4, less that of the straight line, 1/4.
    assert qini([1.0, 0.0], [2.0, -1.0]) == pytest.approx(0.25 + 0.375 - 0.25)
    assert qini([0.0, 1.0], [2.0, -1.0]) < 0
    assert qini([5.0, 4.0, 3.0], [1.0, 1.0, 1.0]) == pytest.approx(0)


def test_grids_and_curves_with_faults_are_refused() -> None:
    with pytest.raises(DataError, match="point 2 does not"):
        rmst([1.0, 2.0, 2.0], [0.9, 0.8, 0.7])
    with pytest.raises(DataError, match="point 0 does not"):
        survival_at([-1.0, 2.0], [0.9, 0.8], 1.0)
    with pytest.raises(DataError, match="no number"):
        rmst([1.0, 2.0], [0.9, np.nan])
    with pytest.raises(UsageError, match="above 0"):
        rmst([1.0, 2.0], [0.9, 0.8], 0.0)
    with pytest.raises(DataError, match="rows must be the same"):
        concordance_td([[0.9], [0.8]], [0, 0], [1.0, 2.0], [1])
    with pytest.raises(DataError, match="from 0 to 0; got 0 to 1"):
        concordance_td([[0.9], [0.8]], [0, 1], [1.0, 2.0], [1, 0])
    with pytest.raises(DataError, match="no number"):
        concordance_td([[0.9], [0.8]], [0, 0], [1.0, np.nan], [1, 0])


def test_wrong_shapes_and_rules_are_refused() -> None:
    with pytest.raises(DataError, match="true effect of row 0"):
        effect_scores([1.0, 2.0], [np.nan, 2.0])
    with pytest.raises(DataError, match="shapes"):
        effect_scores([1.0], [1.0, 2.0])
    with pytest.raises(DataError, match="row 1 is not a finite"):
        effect_scores([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(UsageError, match="step, linear or published"):
        rmst([1.0], [0.5], rule="simpson")
    with pytest.raises(DataError, match="last axis"):
        rmst([1.0, 2.0], [0.5])
    with pytest.raises(DataError, match="Brier score cannot be formed"):
        integrated_brier(([1, 2], [0, 0]), ([1, 2, 9], [1, 1, 1]), [1.5, 3.0, 4.0], np.full((3, 3), 0.5))
    assert np.isnan(integrated_brier(([1, 2], [1, 1]), ([1, 2], [1, 1]), [0.5], [[0.5], [0.5]]))
