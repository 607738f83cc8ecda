"""CostOfPass against the oracle world, its definitions, and bad input."""

from __future__ import annotations

import math
import warnings
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.reasoning.cost_of_pass import reference
from assay.reasoning.cost_of_pass.decay import fit_half_life
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.values import Expert, cost_of_pass, frontier, technique_gain

ROOM = "cost_of_pass"
WORLD = Path(__file__).parents[1] / "oracles" / ROOM / "frontier_world_a.csv"
TOL = 1e-12


def number(value):
    return math.inf if value == "inf" else value


def world_frame() -> pl.DataFrame:
    return pl.read_csv(WORLD)


@pytest.fixture
def expected(oracle):
    return oracle(ROOM, "frontier_world_a_expected")


@pytest.fixture(params=["pandas", "polars", "dictionaries", "shuffled"])
def world(request, expected):
    frame = world_frame()
    records = {
        "pandas": lambda: pd.read_csv(WORLD),
        "polars": lambda: frame,
        "dictionaries": frame.to_dicts,
        "shuffled": lambda: frame.sample(fraction=1, shuffle=True, seed=1),
    }[request.param]()
    return CostOfPass(records, expert_cost=expected["expert_cost"], by="problem")


def test_accuracy_cost_and_single_frontiers_equal_the_oracle(world, expected):
    for row in world.summary().iter_rows(named=True):
        name = row["model"]
        assert row["accuracy"] == pytest.approx(expected["mean_accuracy"][name], abs=TOL)
        assert row["cost"] == pytest.approx(expected["mean_cost_per_attempt"][name], abs=TOL)
        assert row["frontier"] == pytest.approx(expected["single_model_frontier_with_expert"][name], abs=TOL)
        assert world.frontier([name]).value == row["frontier"]


def test_cost_of_pass_of_every_cell_equals_the_oracle(world, expected):
    rows = world.cost_of_pass()
    assert rows.height == 60
    for row in rows.iter_rows(named=True):
        wanted = number(expected["cost_of_pass"][row["model"]][row["problem"]])
        assert row["cost_of_pass"] == pytest.approx(wanted, abs=TOL)


def test_the_frontier_is_a_mean_of_minima_over_problems(world, expected):
    front = world.frontier()
    assert front.value == pytest.approx(expected["frontier_all_with_expert"], abs=TOL)
    assert float(front) == front.value
    lowest = [number(v) for v in expected["lm_only_frontier_per_problem"]]
    np.testing.assert_allclose(front.per_problem, np.minimum(lowest, expected["expert_cost"]), atol=TOL, rtol=0)
    for name, trap in expected["trap_ratio_of_means_is_not_mean_of_ratios"].items():
        assert abs(world.frontier([name]).value - trap) > 0.1


def test_the_frontier_of_models_alone_is_refused_where_a_problem_is_unsolved(world):
    with pytest.raises(DataError, match="2 of 10 problems are solved by no model \\(first: '8'\\)"):
        world.frontier(include_expert=False)


def test_progress_equals_the_oracle(world, expected):
    rows = list(world.progress().iter_rows(named=True))
    assert [row["model"] for row in rows] == [want["model"] for want in expected["progress_by_release"]]
    for row, want in zip(rows, expected["progress_by_release"], strict=True):
        for name in ("frontier", "normalised", "relative_gain"):
            assert row[name] == pytest.approx(want[name], abs=TOL)
    assert rows[0]["months"] == 0


def test_essentialness_of_families_and_models_equals_the_oracle(world, expected):
    for groups, key in (("family", "family_essentialness"), ("model", "leave_one_model_out")):
        found = dict(world.essentialness(groups).select("group", "essentialness").iter_rows())
        assert found == pytest.approx(expected[key], abs=TOL)


def test_groups_may_overlap_and_may_be_named_freely(world):
    frame = world.essentialness({"tiny": ["tiny-a", "tiny-b"], "all": list(world.cells.strategies), "a": ["tiny-a"]})
    found = dict(frame.select("group", "essentialness").iter_rows())
    assert found["tiny"] == pytest.approx(
        world.essentialness("family").filter(pl.col("group") == "lightweight")["essentialness"][0], abs=TOL
    )
    assert found["all"] == pytest.approx(1 - world.frontier().value / 2.0, abs=TOL)
    assert found["a"] == 0


def test_edge_rules(oracle):
    for case in oracle(ROOM, "edge_rules")["cases"]:
        rule, want = case["rule"], case["cost_of_pass"]
        if "models" in case:
            frame = pl.DataFrame({"model": ["m"], "problem": [0], "run": [0], "cost": [1.0], "correct": [1]})
            assert CostOfPass(frame, case["expert"]).frontier(models=()).value == want
            continue
        if "usd_per_prompt_token" in case:
            frame = pl.DataFrame(
                {
                    "model": ["m"], "problem": [0], "prompt_tokens": [5], "completion_tokens": [5], "correct": [1],
                    "usd_per_prompt_token": [case["usd_per_prompt_token"]], "usd_per_completion_token": [1e-6],
                }
            )  # fmt: skip
            with pytest.raises(DataError, match="negative prices mean unknown"):
                CostOfPass(frame)
            continue
        columns = {"model": "m", "problem": 0, "cost": case["costs"], "correct": case["correct"]}
        frame = pl.DataFrame({**columns, **({"completed": case["completed"]} if "completed" in case else {})})
        if "completed" in case:
            with pytest.raises(DataError, match="1 of 2 records are incomplete"):
                CostOfPass(frame)
        value = CostOfPass(frame, errors="exclude").values[0, 0]
        assert value == number(want), rule


def test_incomplete_records_may_count_as_paid_and_wrong():
    frame = pl.DataFrame(
        {"model": "m", "problem": 0, "cost": [0.2, 0.4], "correct": [1, None], "status": ["ok", "error"]}
    )
    assert CostOfPass(frame, errors="fail").values[0, 0] == pytest.approx(0.3 / 0.5)


def test_technique_gain_equals_the_oracle(oracle):
    for case in oracle(ROOM, "technique_gain")["cases"]:
        base, other = ([number(v) for v in case[name]] for name in ("v_vanilla", "v_technique"))
        assert technique_gain(np.array(base), np.array(other), case["expert"]) == pytest.approx(
            case["expected_gain"], abs=TOL
        )


def test_technique_gain_takes_the_union_over_models_that_have_both():
    rows = []
    for model, technique, costs in (
        ("a", "vanilla", (0.1, 0.4)),
        ("a", "refine", (0.2, 0.1)),
        ("b", "vanilla", (0.3, 0.3)),
        ("c", "refine", (0, 0)),
    ):
        rows += [
            {"model": model, "technique": technique, "problem": p, "run": 0, "cost": cost, "correct": 1}
            for p, cost in enumerate(costs)
        ]
    cop = CostOfPass(rows, expert_cost=1.0)
    assert cop.technique_gain("refine") == pytest.approx((0.5 - 0.2) / 0.5)
    assert cop.technique_gain("refine", models=["a"]) == cop.technique_gain("refine")
    with pytest.raises(DataError, match="No model was tried both"):
        cop.technique_gain("refine", models=["b"])
    with pytest.raises(UsageError, match="There is no technique 'refin'; did you mean 'refine'"):
        cop.technique_gain("refin")


def test_half_lives_equal_the_oracle(oracle):
    for case in oracle(ROOM, "half_life")["cases"]:
        fit = fit_half_life(np.array(case["months"]), np.array(case["value"]))
        want = case["expected"]
        assert (fit.a, fit.b, fit.c) == pytest.approx((want["a"], want["b"], want["c"]), abs=1e-6)
        assert fit.half_life == pytest.approx(want["half_life_months"], abs=1e-4)
        assert fit.low <= fit.half_life <= fit.high


def test_the_interval_of_a_half_life_covers():
    rng = np.random.default_rng(7)
    months = np.linspace(0, 18, 12)
    inside = 0
    for _ in range(200):
        fit = fit_half_life(months, np.exp(-0.25 * months) + 0.1 + 0.02 * rng.standard_normal(12))
        inside += fit.low <= math.log(2) / 0.25 <= fit.high
    assert 183 <= inside <= 198  # 95 % of 200, three standard errors


def test_a_curve_that_does_not_fall_has_no_half_life():
    assert fit_half_life(np.arange(5.0), np.ones(5)).half_life == math.inf
    assert fit_half_life(np.arange(5.0), np.arange(5.0)).half_life == math.inf
    with pytest.raises(DataError, match="at least three release days; got 2"):
        fit_half_life(np.array([0.0, 1, 1]), np.array([3.0, 2, 1]))
    with pytest.raises(DataError, match="finite"):
        fit_half_life(np.array([0.0, 1, 2]), np.array([3.0, np.nan, 1]))


def test_half_life_of_progress_uses_one_point_a_release_day():
    cop = CostOfPass(world_frame(), expert_cost=2.0)
    same_day = {name: "2024-05-13" if name.startswith("big") else "2024-07-18" for name in cop.cells.strategies}
    with pytest.raises(DataError, match="three release days; got 2"):
        cop.half_life(same_day)
    assert cop.half_life().n == 6


def test_several_experts_and_imperfect_ones_cost_what_the_cheapest_answer_costs():
    frame = pl.DataFrame({"model": "m", "problem": [0, 1], "cost": 1.0, "correct": [0, 1]})
    assert CostOfPass(frame, Expert(3.0, 0.5)).frontier().per_problem.tolist() == [6.0, 1.0]
    several = CostOfPass(frame, [Expert(9.0, name="doctor"), Expert(4.0, 0.8, "nurse")])
    assert several.frontier().winners == ("nurse", "m")
    assert several.frontier().value == 3.0
    by_problem = CostOfPass(frame, {0: 7.0, 1: 0.5})
    assert by_problem.frontier().per_problem.tolist() == [7.0, 0.5]
    assert by_problem.frontier().at_expert == 2
    with pytest.raises(DataError, match="missing for 1 problems, first '1'"):
        CostOfPass(frame, {0: 7.0})


@pytest.mark.parametrize("cost", [0.0, -1.0, math.inf, math.nan])
def test_an_expert_must_cost_something(cost):
    with pytest.raises(DataError, match="an expert costs a finite number of USD above 0"):
        CostOfPass(world_frame(), expert_cost=cost)


def test_how_many_problems_the_expert_takes_is_reported():
    cop = CostOfPass(world_frame(), expert_cost=2.0)
    assert cop.frontier().at_expert == 2
    assert cop.frontier().winners[-2:] == ("expert", "expert")
    assert dict(cop.summary().select("model", "at_expert").iter_rows())["tiny-a"] == 5


def test_what_the_expert_costs_matters():
    frame = CostOfPass(world_frame(), expert_cost=2.0).expert_sensitivity((0.001, 1, 10))
    assert frame["at_expert"].to_list() == [5, 2, 2]
    assert frame["frontier"][1] == pytest.approx(0.4233779300357143, abs=TOL)
    assert frame["frontier"].is_sorted()


def test_one_data_set_at_a_time():
    frame = pl.concat([world_frame().with_columns(task=pl.lit(t)) for t in ("x", "y")])
    with pytest.raises(DataError, match="2 data sets \\(x, y\\)"):
        CostOfPass(frame)
    both = CostOfPass.by_task(frame, {"x": 2.0})
    assert both["x"].frontier().value == pytest.approx(0.4233779300357143, abs=TOL)
    assert both["y"].expert is None
    with pytest.raises(DataError, match="no task 'z'"):
        CostOfPass(frame, task="z")


def frame_with(**changes) -> pl.DataFrame:
    base = {"model": ["m", "m"], "problem": [0, 1], "run": [0, 0], "cost": [0.1, 0.2], "correct": [1.0, 0.0]}
    return pl.DataFrame({**base, **changes}, strict=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost": [None, 0.1]}, "price of model 'm' is unknown"),
        ({"cost": [-0.1, 0.1]}, "A cost of -0.1 USD stands at model 'm', problem 0, run 0"),
        ({"correct": [float("nan"), 1.0]}, "Score 'correct' is missing in 1 records, first at model 'm', problem 0"),
        ({"correct": [None, 1.0]}, "missing in 1 records"),
        ({"correct": [1.5, 1.0]}, "is 1.5 at model 'm', problem 0"),
        ({"problem": [0, 0]}, "problem 0, run 0 more than once"),
        ({"correct": ["1", "yes"]}, "Column 'correct' must hold numbers; record 2 of 2 has 'yes'"),
        ({"cost": ["cheap", None]}, "Column 'cost' must hold numbers; record 1 of 2 has 'cheap'"),
        ({"cost": [[0.1], [0.2]]}, "Column 'cost' must hold numbers"),
        ({"problem": [None, None]}, "Column 'problem' is empty in 2 of 2 records, first in record 1"),
        ({"problem": [0, None]}, "Column 'problem' is empty in 1 of 2 records, first in record 2"),
        ({"model": ["m", None]}, "Column 'model' is empty in 1 of 2 records, first in record 2"),
    ],
)
def test_bad_records_are_named(changes, message):
    with pytest.raises(DataError, match=message):
        CostOfPass(frame_with(**changes))


def test_numbers_written_as_text_are_read():
    plain = frame_with(correct=[1.0, 1.0])
    text = plain.with_columns(pl.col("cost", "correct").cast(pl.String))
    assert CostOfPass(text, 1.0).frontier().value == CostOfPass(plain, 1.0).frontier().value
    tokens = {"prompt_tokens": [2, 4], "completion_tokens": [1, 1], "usd_per_prompt_token": [0.1, 0.1]}
    billed = plain.drop("cost").with_columns(
        **{k: pl.Series(v) for k, v in tokens.items()}, usd_per_completion_token=0.2
    )
    words = billed.with_columns(pl.col(*tokens, "usd_per_completion_token").cast(pl.String))
    assert CostOfPass(words, 1.0).frontier().value == pytest.approx((0.4 + 0.6) / 2)


@pytest.mark.parametrize("cost", ["twenty", {"p": None, "q": 1.0}, {"p": "dear", "q": 1}, [Expert(2.0), "cheap"]])
def test_a_cost_of_the_expert_that_is_no_number_is_named(cost):
    with pytest.raises(DataError, match=r"expert's cost.* is .*USD a problem"):
        CostOfPass(frame_with(problem=["p", "q"]), cost)


def test_of_several_costs_the_cheapest_counts():
    assert CostOfPass(frame_with(), [30, 20, Expert(18, 0.5)]).expert.tolist() == [20, 20]  # pyright: ignore


def test_groups_without_models_and_odd_factors_are_refused():
    cop = CostOfPass(frame_with(), 1.0)
    with pytest.raises(DataError, match="There are no groups"):
        cop.essentialness({})
    with pytest.raises(DataError, match="Group 'none' names no model"):
        cop.essentialness({"all": ["m"], "none": []})
    with pytest.raises(UsageError, match="above 0; got nan"):
        cop.expert_sensitivity([1, math.nan])
    with pytest.raises(DataError, match="2024 of model 'm' is not a day"):
        cop.progress({"m": 2024})  # pyright: ignore[reportArgumentType]


def test_missing_columns_are_named():
    frame = frame_with()
    for column, message in (
        ("model", "name no model"),
        ("cost", "tell no cost"),
        ("correct", "hold no score 'correct'"),
        ("problem", "name no problem"),
    ):
        with pytest.raises(DataError, match=message):
            CostOfPass(frame.drop(column))
    with pytest.raises(DataError, match="There are no records"):
        CostOfPass(frame.clear())
    with pytest.raises(UsageError, match="got int"):
        CostOfPass(3)
    with pytest.raises(DataError, match="no column 'item'"):
        CostOfPass(frame, by="item")


def test_problems_that_not_everyone_tried_are_refused_or_dropped():
    frame = pl.concat(
        [frame_with(), pl.DataFrame({"model": ["n"], "problem": [1], "run": [0], "cost": [0.3], "correct": [1.0]})]
    )
    with pytest.raises(DataError, match="'n' has no complete record on problem 0 \\(1 of 2 problems"):
        CostOfPass(frame)
    assert CostOfPass(frame, missing="drop").cells.problems == ("1",)


def test_runs_may_differ_in_number_across_problems():
    frame = pl.DataFrame(
        {"model": "m", "problem": [0, 0, 0, 1], "run": [0, 1, 2, 0], "cost": [1.0, 2, 3, 5], "correct": [1, 1, 0, 1]}
    )
    assert CostOfPass(frame, 9.0).values.tolist() == [[3.0, 5.0]]


def test_a_missing_release_date_is_named():
    cop = CostOfPass(frame_with(), 1.0)
    with pytest.raises(DataError, match="Model 'm' has no release date"):
        cop.progress()
    with pytest.raises(DataError, match="'soon' of model 'm' is not YYYY-MM-DD"):
        cop.progress({"m": "soon"})
    assert cop.progress({"m": date(2024, 1, 1)})["frontier"].to_list() == [0.55]


def test_scores_between_0_and_1_are_taken_with_a_warning():
    with pytest.warns(UserWarning, match="probability of acceptance"):
        cop = CostOfPass(frame_with(correct=[0.5, 1.0]))
    assert cop.values.tolist() == [[0.2, 0.2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CostOfPass(frame_with())


def test_bare_questions_can_be_billed_instead_of_prompts():
    frame = pl.DataFrame(
        {
            "model_name": "m", "input_idx": [0], "num_input_tokens": [10], "num_prompt_tokens": [100],
            "num_completion_tokens": [50], "cost_per_prompt_token": [1e-3], "cost_per_completion_token": [2e-3],
            "metric_score": [1.0],
        }
    )  # fmt: skip
    assert CostOfPass(frame).values[0, 0] == pytest.approx(0.2)
    assert CostOfPass(frame, prompt="question").values[0, 0] == pytest.approx(0.11)


def test_waiting_can_be_priced():
    frame = frame_with(seconds=[36.0, 0.0])
    assert CostOfPass(frame, hour_value=10.0).values[0, 0] == pytest.approx(0.2)


def test_models_may_be_named_by_themselves_or_with_their_technique():
    rows = [
        {"model": "m", "technique": t, "problem": 0, "run": 0, "cost": c, "correct": 1}
        for t, c in (("x", 1.0), ("y", 2.0))
    ]
    cop = CostOfPass(rows, 9.0)
    assert cop.cells.strategies == ("m + x", "m + y")
    assert cop.frontier(["m"]).value == 1.0
    assert cop.frontier(["m + y"]).value == 2.0
    with pytest.raises(UsageError, match="There is no model 'n'"):
        cop.frontier(["n"])


def test_an_expert_is_needed_where_it_is_needed():
    cop = CostOfPass(frame_with())
    for call in (cop.frontier, cop.progress, cop.essentialness, cop.expert_sensitivity):
        with pytest.raises(DataError, match="needs the cost of an expert"):
            call()


cells = st.integers(2, 4).flatmap(
    lambda m: st.integers(1, 4).flatmap(
        lambda p: st.lists(
            st.tuples(st.floats(0, 5, allow_nan=False), st.booleans()), min_size=m * p * 2, max_size=m * p * 2
        ).map(lambda values: (m, p, values))
    )
)


def random_world(shape) -> list[dict]:
    m, p, values = shape
    return [
        {
            "model": f"m{i}", "family": f"f{i % 2}", "release_date": f"2024-01-{i + 1:02}", "problem": j, "run": k,
            "prompt_tokens": 1, "completion_tokens": 1, "usd_per_prompt_token": values[(i * p + j) * 2 + k][0],
            "usd_per_completion_token": 0.0, "correct": int(values[(i * p + j) * 2 + k][1]),
        }
        for i in range(m) for j in range(p) for k in range(2)
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(cells)
def test_matrix_forms_equal_plain_loops(shape):
    records = random_world(shape)
    cop, plain = CostOfPass(records, 3.0), reference.PlainLoops(records, 3.0)
    assert cop.frontier().value == pytest.approx(plain.frontier(), abs=TOL)
    for groups in ("family", "model"):
        found = dict(cop.essentialness(groups).select("group", "essentialness").iter_rows())
        assert found == pytest.approx(plain.essentialness(groups), abs=1e-10)
    assert cop.progress()["frontier"].to_list() == pytest.approx(plain.progress(), abs=TOL)


@settings(max_examples=60, deadline=None)
@given(cells)
def test_the_frontier_never_rises_with_more_models_and_stays_below_the_expert(shape):
    cop = CostOfPass(random_world(shape), 3.0)
    curve = cop.progress()["frontier"].to_list()
    assert all(a >= b for a, b in zip([3.0, *curve], curve))
    values = cop.essentialness("model")["essentialness"]
    assert ((values >= 0) & (values <= 1)).all()


@given(st.floats(0, 10), st.floats(0, 1))
def test_cost_of_pass_is_cost_over_rate_and_infinite_without_success(cost, rate):
    value = cost_of_pass(np.array([cost]), np.array([rate]))[0]
    assert value == (cost / rate if rate > 0 else math.inf)


def test_the_frontier_of_no_models_is_the_expert():
    assert frontier(np.empty((0, 3)), 2.0).tolist() == [2.0] * 3
    assert np.isinf(frontier(np.empty((0, 3)))).all()
