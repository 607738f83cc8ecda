"""Metrics: what counts, what an error counts as, and that values agree with their definitions."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.benchmark import Metric
from assay.core.errors import DataError, UsageError
from assay.core.metrics import (
    avg_at,
    evaluate,
    evaluate_all,
    function,
    macro,
    majority_at,
    mean,
    median,
    nested_mean,
    pass_all,
    pass_all_k,
    pass_at,
    pass_at_k,
    rate,
    ratio,
    total,
)


def records(**columns) -> pl.DataFrame:
    """Records of one task, one attempt a sample unless given."""
    n = len(next(iter(columns.values())))
    base = {
        "task": ["t"] * n,
        "sample": [f"s{i}" for i in range(n)],
        "attempt": [0] * n,
        "status": ["ok"] * n,
    }
    frame = pl.DataFrame({**base, **columns}, strict=False)
    return frame if "cluster" in columns else frame.with_columns(cluster=pl.col("sample"))


def repeated(scores: list[list[float | None]], **columns) -> pl.DataFrame:
    """Records from a list of attempts a sample."""
    rows = [(f"s{i}", j, x) for i, row in enumerate(scores) for j, x in enumerate(row)]
    return records(sample=[r[0] for r in rows], attempt=[r[1] for r in rows], x=[r[2] for r in rows], **columns)


binary_tables = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6), min_size=1, max_size=8)
number_tables = st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=5), min_size=1, max_size=8)


def test_errors_stay_in_the_denominator():
    frame = records(
        x=[1.0] * 80 + [None] * 10 + [0.0] * 10, status=["ok"] * 80 + ["error"] * 6 + ["timeout"] * 4 + ["ok"] * 10
    )
    score = evaluate(mean("x"), frame)
    assert (score.value, score.n, score.n_error, score.n_left_out) == (0.80, 100, 10, 0)
    assert score.interval == "Wilson"


def test_errors_left_out_are_counted_and_said():
    frame = records(x=[1.0] * 8 + [None] * 2, status=["ok"] * 8 + ["error"] * 2)
    score = evaluate(mean("x", error=None), frame)
    assert (score.value, score.n, score.n_error, score.n_left_out) == (1.0, 8, 2, 2)
    assert "2 errored trials left out" in score.note


def test_an_error_never_counts_as_the_best_value():
    frame = records(x=[3.0, 5.0, None], status=["ok", "ok", "error"])
    assert mean("x", higher_is_better=False).error is None
    assert evaluate(mean("x", higher_is_better=False), frame).value == 4.0
    assert evaluate(mean("x", higher_is_better=False, error=100.0), frame).value == 36.0


def test_a_run_of_errors_alone_scores_zero():
    frame = pl.DataFrame({"task": ["t"] * 3, "sample": ["a", "b", "c"], "attempt": [0] * 3, "status": ["error"] * 3})
    score = evaluate(mean("correct"), frame)
    assert (score.value, score.n, score.n_error) == (0.0, 3, 3)
    assert 0 < score.high < 1


def test_a_crashed_trial_keeps_its_items_below_the_fraction():
    frame = records(met=[2.0, None, 3.0], items=[4, 6, 5], status=["ok", "error", "ok"])
    assert evaluate(ratio("met", "items"), frame).value == pytest.approx(5 / 15)
    assert evaluate(ratio("met", "items", error=None), frame).value == pytest.approx(5 / 9)


def test_an_unknown_denominator_leaves_the_trial_out_and_says_so():
    frame = records(met=[2.0, None], items=[4, None], status=["ok", "error"])
    score = evaluate(ratio("met", "items"), frame)
    assert (score.value, score.n, score.n_error, score.n_left_out) == (0.5, 1, 1, 1)


def test_unscored_and_skipped_trials_do_not_count():
    frame = records(x=[1.0, None, None, 0.0], status=["ok", "unscored", "skipped", "ok"])
    score = evaluate(mean("x"), frame)
    assert (score.value, score.n, score.n_error) == (0.5, 2, 0)


def test_a_null_score_does_not_apply():
    score = evaluate(mean("x"), records(x=[1.0, None, 0.0, 1.0]))
    assert (score.value, score.n, score.n_left_out) == (pytest.approx(2 / 3), 3, 0)
    assert "does not apply to 1" in score.note


def test_macro_is_the_mean_of_group_means():
    frame = records(x=[1.0, 1.0, 1.0, 0.0], g=["a", "a", "a", "b"])
    assert evaluate(macro("x", over="g"), frame).value == 0.5
    assert evaluate(mean("x"), frame).value == 0.75


def test_nested_mean_weighs_every_level_equally():
    frame = records(x=[1.0, 0.0, 0.0, 1.0, 1.0], a=["p", "p", "p", "q", "q"], b=["1", "2", "2", "1", "1"])
    # p: mean of (1) and (0, 0) = 0.5; q: one part of two ones = 1
    assert evaluate(nested_mean("x", over=["a", "b"]), frame).value == 0.75


def test_rate_counts_errors_as_not_having_the_value_and_leaves_nulls_out():
    frame = records(how=["unread", "letter", None, None], status=["ok", "ok", "error", "ok"])
    score = evaluate(rate("how", "unread"), frame)
    assert (score.value, score.n, score.n_error) == (pytest.approx(1 / 3), 3, 1)
    assert evaluate(rate("how", "unread", higher_is_better=False), frame).value == 0.5
    assert evaluate(rate("how", ["unread", "letter"]), frame).value == pytest.approx(2 / 3)


def test_total_and_median():
    frame = records(x=[1.0, 5.0, 2.0, 10.0])
    assert evaluate(total("x"), frame).value == 18
    assert evaluate(median("x"), frame).value == 3.5


def test_where_as_mapping_list_and_expression():
    frame = records(x=[1.0, 2.0, 3.0], g=["a", "b", "c"])
    assert evaluate(mean("x", where={"g": "b"}), frame).value == 2
    assert evaluate(mean("x", where={"g": ["a", "b"]}), frame).value == 1.5
    assert evaluate(mean("x", where=pl.col("g") != "a"), frame).value == 2.5


def test_error_value_of_a_conditional_metric_charges_its_own_trials_only():
    frame = records(x=[50.0, None, 30.0, None], pair=[3, 3, 4, 4], status=["ok", "error", "ok", "ok"])
    assert evaluate(mean("x", where={"pair": 3}, error=-100.0), frame).value == -25
    assert evaluate(mean("x", where={"pair": 4}, error=-100.0), frame).value == 30


def test_no_record_gives_nan_with_a_reason():
    score = evaluate(mean("x", where={"g": "z"}), records(x=[1.0], g=["a"]))
    assert np.isnan(score.value)
    assert score.note == "no records"


# pass@k, pass^k, maj@k ------------------------------------------------------------------------------------------------


def test_pass_at_k_matches_exact_rationals(oracle):
    data = oracle("sft_rl", "pass_at_k")
    for case in data["cases"]:
        assert pass_at_k(case["n"], case["c"], case["k"]) == pytest.approx(case["expected"], abs=data["tolerance"])
    for case in data["multi_problem"]:
        found = pass_at_k(case["n"], case["correct"], case["k"]).mean()
        assert found == pytest.approx(case["expected"], abs=data["tolerance"])
    for case in oracle("autoexperiment", "pass_at_k")["cases"]:
        assert pass_at_k(case["runs"], case["successes"], case["k"]) == pytest.approx(case["pass_at_k"], abs=1e-12)
    for case in oracle("mcpmark", "pass_at_k")["cases"]:
        args = case["runs"], case["successes"], case["k"]
        assert pass_at_k(*args) == pytest.approx(case["pass_at_k_unbiased"], abs=1e-12)
        assert pass_all_k(*args) == pytest.approx(case["pass_hat_k_unbiased"], abs=1e-12)


@pytest.mark.parametrize("counts", [(3, 4), (3, -1), (-1, 0), (3.5, 1), (3, 0.5), (float("nan"), 1)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(UsageError):
        pass_at_k(*counts, 1)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "2"])
def test_an_impossible_k_is_refused(k):
    with pytest.raises(UsageError, match="k is a whole number"):
        pass_at("x", k)
    with pytest.raises(UsageError, match="k is a whole number"):
        pass_at_k(5, 2, k)


def test_k_above_n_is_nan_with_a_reason_and_never_one():
    assert np.isnan(pass_at_k(3, 3, 4))
    assert np.array_equal(np.isnan(pass_at_k([3, 4], [3, 4], 4)), [True, False])
    score = evaluate(pass_at("x", 4), repeated([[1, 1, 1], [1, 1, 1, 1]]))
    assert np.isnan(score.value)
    assert "k=4 exceeds the 3 attempts of 1 samples" in score.note
    assert np.isnan(evaluate(majority_at("x", "a", 3), repeated([[1, 1]], a=["p", "p"])).value)


def test_graded_scores_have_no_pass_at_k():
    with pytest.raises(DataError, match=r"'x' of sample 's1', attempt 0 is 0\.5"):
        evaluate(pass_at("x", 1), repeated([[1.0], [0.5]]))


@given(binary_tables, st.integers(1, 6))
@settings(deadline=None, max_examples=60)
def test_pass_at_is_the_share_of_choices_with_a_pass(table, k):
    k = min(k, min(map(len, table)))
    every = [[list(c) for c in itertools.combinations(row, k)] for row in table]
    some = np.mean([np.mean([max(c) for c in choices]) for choices in every])
    all_ = np.mean([np.mean([min(c) for c in choices]) for choices in every])
    frame = repeated(table)
    assert evaluate(pass_at("x", k), frame).value == pytest.approx(some)
    assert evaluate(pass_all("x", k), frame).value == pytest.approx(all_)


@given(binary_tables)
@settings(deadline=None, max_examples=40)
def test_pass_at_one_is_the_average_and_pass_at_grows_with_k(table):
    frame = repeated(table)
    average = evaluate(avg_at("x"), frame).value
    assert evaluate(pass_at("x", 1), frame).value == pytest.approx(average)
    assert evaluate(pass_all("x", 1), frame).value == pytest.approx(average)
    most = min(map(len, table))
    up = [evaluate(pass_at("x", k), frame).value for k in range(1, most + 1)]
    down = [evaluate(pass_all("x", k), frame).value for k in range(1, most + 1)]
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(up))
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(down))


votes = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=6)


@given(votes, st.integers(1, 6))
@settings(deadline=None, max_examples=80)
def test_majority_is_the_mean_over_all_choices_of_ballots(answers, k):
    k = min(k, len(answers))
    worth = {"a": 1.0, "b": 0.0, "c": 0.25}
    wins = []
    for chosen in itertools.combinations(answers, k):
        named = [x for x in chosen if x is not None]
        top = max((named.count(x) for x in set(named)), default=0)
        tied = [x for x in set(named) if named.count(x) == top]
        wins.append(np.mean([worth[x] for x in tied]) if tied else 0.0)
    frame = repeated([[worth.get(x, 0.0) for x in answers]], answer=pl.Series(answers, dtype=pl.String))
    assert evaluate(majority_at("x", "answer", k), frame).value == pytest.approx(np.mean(wins))
    whole = evaluate(majority_at("x", "answer"), frame).value
    assert whole == pytest.approx(evaluate(majority_at("x", "answer", len(answers)), frame).value)


def test_an_errored_attempt_has_no_vote():
    frame = repeated([[1.0, None, None]], answer=["a", None, None], status=["ok", "error", "error"])
    assert evaluate(majority_at("x", "answer"), frame).value == 1.0
    assert evaluate(majority_at("x", "answer", 1), frame).value == pytest.approx(1 / 3)


# Properties -----------------------------------------------------------------------------------------------------------


@given(number_tables, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=25)
def test_row_order_does_not_matter(table, random):
    frame = repeated(table).with_columns(
        g=pl.col("sample").str.slice(1).cast(pl.Int64) % 2, items=pl.col("attempt") + 1
    )
    order = list(range(len(frame)))
    random.shuffle(order)
    metrics = [mean("x"), ratio("x", "items"), macro("x", over="g"), avg_at("x"), median("x"), total("x")]
    for metric, rule in itertools.product(metrics, ("samples", "attempts")):
        one = evaluate(metric, frame, resample=rule, resamples=50)
        two = evaluate(metric, frame[order], resample=rule, resamples=50)
        scale = 1e-9 * (1 + abs(one.value))
        assert two.value == pytest.approx(one.value, abs=scale)
        assert (two.low, two.high) == pytest.approx((one.low, one.high), abs=1e3 * scale, rel=1e-5, nan_ok=True)


@given(number_tables)
@settings(deadline=None, max_examples=40)
def test_ratio_with_unit_denominators_is_the_mean(table):
    frame = repeated(table).with_columns(one=pl.lit(1))
    # Records that are parts of a whole make a share, whose interval stays within 0 and 1.
    share = frame["x"].is_between(0, 1).all()
    bounds = (0, 1) if share else (None, None)
    a = evaluate(ratio("x", "one"), frame, resamples=50)
    b = evaluate(mean("x", bounds=bounds), frame, resamples=50)
    assert a.value == pytest.approx(b.value)
    if b.interval == a.interval:
        assert (a.low, a.high) == pytest.approx((b.low, b.high), nan_ok=True)


@given(number_tables)
@settings(deadline=None, max_examples=40)
def test_value_function_and_evaluation_agree(table):
    frame = repeated(table).with_columns(g=pl.col("attempt") % 2, items=pl.col("attempt") + 1)
    for metric in (mean("x"), ratio("x", "items"), macro("x", over="g"), avg_at("x"), median("x"), total("x")):
        assert metric.value(frame) == pytest.approx(evaluate(metric, frame, resamples=20).value)


@given(number_tables)
@settings(deadline=None, max_examples=30)
def test_values_equal_plain_polars(table):
    frame = repeated(table).with_columns(g=pl.col("attempt") % 2, items=pl.col("attempt") + 1)
    x = frame["x"]
    want = {
        mean("x"): x.mean(),
        total("x"): x.sum(),
        median("x"): x.median(),
        ratio("x", "items"): x.sum() / frame["items"].sum(),
        macro("x", over="g"): frame.group_by("g").agg(pl.col("x").mean())["x"].mean(),
        avg_at("x"): frame.group_by("sample").agg(pl.col("x").mean())["x"].mean(),
    }
    for metric, value in want.items():
        assert evaluate(metric, frame, resamples=20).value == pytest.approx(value, abs=1e-9)


def test_the_interval_contains_the_value_and_narrows_with_the_level():
    rng = np.random.default_rng(4)
    frame = repeated(rng.normal(size=(40, 3)).tolist()).with_columns(g=pl.col("sample").str.slice(-1))
    for metric, rule in itertools.product(
        (mean("x"), macro("x", over="g"), median("x"), avg_at("x")), ("samples", "attempts", "both")
    ):
        wide, narrow = (evaluate(metric, frame, resample=rule, level=level) for level in (0.95, 0.5))
        assert wide.low < narrow.low <= narrow.value <= narrow.high < wide.high


def test_a_fixed_seed_gives_the_same_interval_and_another_one_nearly_the_same():
    frame = repeated(np.random.default_rng(1).exponential(size=(60, 2)).tolist())
    a, b, c = (evaluate(mean("x"), frame, seed=seed) for seed in (0, 0, 1))
    assert (a.low, a.high) == (b.low, b.high)
    assert (c.low, c.high) == pytest.approx((a.low, a.high), rel=0.02)
    assert (c.low, c.high) != (a.low, a.high)


def test_seeds_on_fixed_data_sets_are_resampled_within_samples():
    # One environment, four seeds: resampling samples has nothing to draw from, resampling attempts has.
    frame = repeated([[290.0, 295.0, 300.0, 305.0]])
    assert np.isnan(evaluate(mean("x"), frame).low)
    score = evaluate(mean("x"), frame, resample="attempts")
    half = 3.182446305284263 * np.std([290, 295, 300, 305], ddof=1) / 2
    assert (score.low, score.high) == pytest.approx((297.5 - half, 297.5 + half))


def test_attempts_of_one_sample_are_one_cluster():
    frame = repeated([[1.0] * 8, [0.0] * 8, [1.0] * 8, [0.0] * 8])
    score = evaluate(mean("x"), frame)
    assert (score.n, score.n_clusters) == (32, 4)
    assert score.interval == "Wilson, cluster-adjusted"
    assert score.high - score.low > 0.6  # four independent samples, not 32


def test_pass_at_k_under_random_attempts_has_the_jackknife_interval():
    frame = repeated([[1, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0], [1, 1, 1, 0, 1, 1]])
    score = evaluate(pass_at("x", 2), frame, resample="attempts")
    variance = 0.0
    for c in (2, 1, 5):
        x = np.array([1] * c + [0] * (6 - c))
        left = np.array([float(pass_at_k(5, c - v, 2)) for v in x])
        variance += 5 / 6 * ((left - left.mean()) ** 2).sum() / 9
    assert score.value == pytest.approx(np.mean([float(pass_at_k(6, c, 2)) for c in (2, 1, 5)]))
    assert score.high > score.value > score.low
    narrow = evaluate(pass_at("x", 2), frame, resample="attempts", level=0.01)
    assert (narrow.high - narrow.low) / 2 == pytest.approx(np.sqrt(variance) * 0.0127, rel=0.02)
    none = evaluate(pass_at("x", 6), frame, resample="attempts")
    assert np.isnan(none.low)
    assert "k=6 leaves no attempt to vary" in none.note


def test_own_functions_pay_the_loop_and_agree_with_the_fast_path():
    rng = np.random.default_rng(2)
    frame = repeated(rng.normal(size=(50, 3)).tolist())
    own = function("own", lambda f: float(f["x"].mean()), reads=("x",))
    for rule in ("samples", "attempts", "both"):
        slow = evaluate(own, frame, resample=rule, resamples=800)
        fast = evaluate(mean("x"), frame, resample=rule)
        assert slow.value == pytest.approx(fast.value)
        assert (slow.low, slow.high) == pytest.approx((fast.low, fast.high), abs=0.12 * (fast.high - fast.low))


def test_own_functions_see_errors_as_the_metric_says():
    frame = records(x=[1.0, None, 1.0], status=["ok", "error", "ok"])

    def f(frame: pl.DataFrame) -> float:
        return float(frame["x"].mean())  # pyright: ignore[reportArgumentType]

    assert evaluate(function("f", f, reads=("x",)), frame, resamples=10).value == pytest.approx(2 / 3)
    assert evaluate(function("f", f, reads=("x",), error=None), frame, resamples=10).value == 1.0


def test_metrics_over_rows_take_cluster_and_groups_from_their_records():
    frame = records(x=[1.0, 2.0], g=["a", "b"])
    rows = pl.DataFrame(
        {
            "task": ["t"] * 3,
            "sample": ["s0", "s0", "s1"],
            "attempt": [0] * 3,
            "step": [1, 2, 1],
            "loss": [4.0, 2.0, 9.0],
        }
    )
    score = evaluate(mean("loss", rows=True), frame, rows=rows)
    assert (score.value, score.n, score.n_clusters) == (5.0, 3, 2)
    assert evaluate(mean("loss", rows=True, where={"g": "a"}), frame, rows=rows).value == 3.0
    with pytest.raises(UsageError, match="over rows"):
        evaluate(mean("loss", rows=True), frame)
    with pytest.raises(UsageError, match="attempt missing"):
        evaluate(mean("loss", rows=True), frame, rows=rows.drop("attempt"))


def test_any_table_of_trials_can_be_measured():
    assert evaluate(mean("x"), pl.DataFrame({"x": [1, 0, 1, 1]})).value == 0.75


# Tables ---------------------------------------------------------------------------------------------------------------


def test_overall_and_by_group():
    frame = records(x=[1.0, 0.0, 1.0, 1.0], g=["b", "b", "a", "a"], h=[1, 2, 1, 2])
    scores = evaluate_all([mean("x", by="g"), total("x")], frame, {"t": "samples"}, by=["h", ("g", "h")])
    found = [(s.metric, dict(s.by), s.value) for s in scores]
    assert found[:3] == [("x", {}, 0.75), ("x", {"g": "a"}, 1.0), ("x", {"g": "b"}, 0.5)]
    assert ("x", {"h": 2}, 0.5) in found
    assert ("total_x", {"g": "a", "h": 1}, 1.0) in found
    assert len(found) == 1 + 2 + 2 + 4 + 1 + 2 + 4


def test_a_metric_without_its_column_says_so_and_does_not_end_the_table():
    frame = records(correct=[1.0, 0.0])
    missing, there = evaluate_all([mean("corect"), mean("correct")], frame)
    assert np.isnan(missing.value)
    assert "did you mean 'correct'" in missing.note
    assert there.value == 0.5
    with pytest.raises(UsageError, match="did you mean 'correct'"):
        evaluate(mean("corect"), frame)


def test_the_task_says_what_is_random():
    frame = repeated([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
    (by_task,) = evaluate_all([mean("x")], frame, {"t": "attempts"})
    assert by_task.resample == "attempts"
    (own,) = evaluate_all([mean("x", resample="samples")], frame, {"t": "attempts"})
    assert own.resample == "samples"
    two = pl.concat([frame, frame.with_columns(task=pl.lit("u"))])
    (mixed,) = evaluate_all([mean("x")], two, {"t": "attempts", "u": "samples"})
    assert mixed.resample == "both"
    assert "differ" in mixed.note


def test_a_group_without_counted_records_is_no_row():
    frame = records(x=[1.0, 2.0], g=["a", "b"])
    scores = evaluate_all([mean("x", where={"g": "a"})], frame, by="g")
    assert [dict(s.by) for s in scores] == [{}, {"g": "a"}]


# Bad input ------------------------------------------------------------------------------------------------------------


def test_nan_scores_are_refused_with_their_place():
    with pytest.raises(DataError, match="'x' of sample 's1', attempt 0 of task 't' is NaN"):
        evaluate(mean("x"), records(x=[1.0, float("nan")]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: evaluate(mean("x"), f, level=95), "strictly between 0 and 1"),
        (lambda f: evaluate(mean("x"), f, resample="sample"), "resample is"),
        (lambda f: evaluate(mean("x", where={"gg": 1}), f), "no column 'gg'"),
        (lambda f: evaluate(mean("g"), f), r"rate\('g', value\)"),
        (lambda f: nested_mean("x", over="g"), "at least one group"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(UsageError, match=words) as caught:
        call(records(x=[1.0, 0.0], g=["a", "b"]))
    assert "\n" not in str(caught.value)


def test_a_zero_denominator_is_undefined_not_infinite():
    score = evaluate(ratio("x", "items"), records(x=[1.0, 2.0], items=[0, 0]))
    assert np.isnan(score.value)
    assert "sum of 'items' is 0" in score.note


def test_listing_metrics_imports_nothing_heavy():
    code = (
        "import sys; from assay.core.metrics import mean, pass_at; mean('x'); pass_at('x', 2); "
        "print([m for m in ('polars', 'numpy', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_carry_the_convention():
    named = [mean("a"), macro("a", over="g"), ratio("a", "b"), pass_at("a", 2), pass_all("a", 2), majority_at("a", "b")]
    assert [m.name for m in named] == ["a", "macro_a", "a/b", "pass@2", "pass^2", "maj@n"]
    assert all(isinstance(m, Metric) for m in named)


def test_the_interval_of_an_average_stays_within_the_bounds_of_its_scores():
    frame = pl.DataFrame({"sample": ["a", "b", "c"], "seconds": [0.0, 0.1, 2.0]})
    free = evaluate(mean("seconds", higher_is_better=False), frame)
    bounded = evaluate(mean("seconds", higher_is_better=False, bounds=(0, None)), frame)
    assert free.low < 0 == bounded.low
    assert (bounded.value, bounded.high) == (free.value, free.high)


def test_differences_whose_squares_underflow_still_have_an_interval():
    frame = pl.DataFrame({"sample": ["a", "b"], "x": [0.0, 1e-90]})
    found = evaluate(mean("x"), frame)
    assert found.low < found.value == 5e-91 < found.high
