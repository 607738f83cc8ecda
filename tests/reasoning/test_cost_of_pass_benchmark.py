"""The benchmark in the engine: calls, costs, reading, reuse, re-scoring, export and back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import assay
from assay.core.errors import DataError, UsageError
from assay.core.metering import Meter, metered
from assay.core.results import Run, Runs
from assay.reasoning.cost_of_pass.benchmark import CostOfPassBenchmark, replies
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.formats import read_records
from assay.reasoning.cost_of_pass.reuse import StoredReplies
from assay.reasoning.cost_of_pass.summary import mean_frontier
from assay.systems.scripted import ScriptedChatModel

PRODUCER = "method:producer?skill=0.6&spread=0.3&price_out=40"


@pytest.fixture(scope="module")
def techniques_run(tmp_path_factory) -> Run:
    return assay.run(
        "cost_of_pass", PRODUCER, options={"techniques": "all", "n": 6}, attempts=4, seed=1,
        into=tmp_path_factory.mktemp("runs") / "techniques", workers=1,
    )  # fmt: skip


def scores(run: Run) -> dict[str, float]:
    return {s.metric: s.value for s in run.scores() if not s.by}


def test_a_rule_adds_without_fault_and_without_cost(tmp_path):
    run = assay.run("cost_of_pass", "method:rule", samples=20, attempts=2, into=tmp_path / "r", workers=1)
    assert run.records.height == 40
    found = scores(run)
    assert found["accuracy"] == 1.0
    assert found["cost_of_pass"] == 0.0
    assert found["unread_rate"] == 0.0
    assert set(run.records["technique"]) == {"vanilla"}
    assert set(run.records["category"]) == {"basic quantitative"}
    assert (run.records["cluster"] == run.records["sample"]).all()
    assert run.info["tasks"]["addition"]["resample"] == "both"


def test_eight_attempts_and_128_problems_are_the_default():
    (task,) = CostOfPassBenchmark().tasks()
    assert task.attempts == 8
    assert len(task.samples()) == 128
    assert len(CostOfPassBenchmark(n=0).tasks()[0].samples()) == 250


def test_every_call_of_a_technique_is_billed(techniques_run):
    frame = techniques_run.records.explode("calls").unnest("calls", separator=".")
    counts = {"vanilla": 1, "self_refinement": 2, "majority_3": 3, "majority_4": 4, "tale_ep": 2}
    for name, n in counts.items():
        part = frame.filter(pl.col("technique") == name)
        assert set(part["calls.calls"]) == {n}
        np.testing.assert_allclose(part["cost"].to_numpy(), part["calls.cost"].to_numpy(), rtol=1e-12)


def test_votes_are_asked_apart(techniques_run):
    outputs = techniques_run.records.filter(pl.col("technique") == "majority_4")["output"]
    said = [[m["content"] for m in json.loads(o)["messages"] if m["role"] == "assistant"] for o in outputs]
    assert any(len(set(votes)) > 1 for votes in said)


def test_the_metric_of_a_run_is_the_frontier_of_its_records(techniques_run):
    cop = CostOfPass(techniques_run, 0.02)
    for score in techniques_run.scores():
        if score.metric == "cost_of_pass" and score.by:
            alone = cop.frontier([f"{techniques_run.system} + {score.by['technique']}"])
            assert score.value == pytest.approx(alone.value, rel=1e-12)
            assert score.low <= score.value <= score.high
            assert not score.higher_is_better


def test_techniques_are_conditions_on_the_same_clusters(techniques_run):
    samples = techniques_run.samples
    assert samples["cluster"].n_unique() == 6
    assert samples.height == 30
    assert set(samples.filter(pl.col("technique") == "vanilla")["sample"]) == set(samples["cluster"])


def test_answers_that_cannot_be_read_are_a_third_outcome(tmp_path):
    system = ScriptedChatModel(lambda messages, rng: "I would rather not.", price_in=1.0, price_out=1.0)
    run = assay.run("cost_of_pass", system, options={"n": 3}, attempts=2, into=tmp_path / "r", workers=1)
    found = scores(run)
    assert found["unread_rate"] == 1.0
    assert found["accuracy"] == 0.0
    assert found["cost_of_pass"] == pytest.approx(0.02)  # the expert's
    assert set(run.records["answer"]) == {"none"}


def test_without_a_price_there_is_no_cost_of_pass_but_an_accuracy(tmp_path):
    system = ScriptedChatModel(lambda messages, rng: "<answer>1</answer>", name="free")
    run = assay.run("cost_of_pass", system, options={"n": 3}, attempts=1, into=tmp_path / "r", workers=1)
    found = scores(run)
    assert np.isnan(found["cost_of_pass"])
    assert found["accuracy"] == 0.0
    with pytest.raises(DataError, match="price of model 'free' is unknown"):
        CostOfPass(run, 0.02)


@pytest.fixture
def custom(tmp_path) -> Path:
    path = tmp_path / "own.jsonl"
    rows = [
        {"id": "half", "input": "Half of one?", "target": "1/2"},
        {"id": "word", "input": "Say x+1", "target": "x+1"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_own_problems_are_compared_as_told_in_a_process_apart(tmp_path, custom):
    system = ScriptedChatModel(
        lambda messages, rng: "<answer>0.5</answer>" if "Half" in str(messages) else "<answer>1 + x</answer>",
        price_in=1.0, price_out=1.0,
    )  # fmt: skip
    options = {"tasks": "custom", "custom": str(custom), "compare": "math", "form": "expression", "expert_cost": 3.0}
    run = assay.run("cost_of_pass", system, options=options, attempts=1, into=tmp_path / "r", workers=1)
    assert run.records["correct"].to_list() == [1.0, 1.0]
    assert run.records["expert_cost"].to_list() == [3.0, 3.0]
    assert run.records["task"].to_list() == ["custom", "custom"]


def test_a_comparison_that_takes_too_long_is_wrong_and_says_so(tmp_path, custom):
    options = {"tasks": "custom", "custom": str(custom), "compare": "math", "compare_seconds": 1e-6}
    system = ScriptedChatModel(lambda messages, rng: "<answer>0.5</answer>", price_in=0.0, price_out=0.0)
    run = assay.run("cost_of_pass", system, options=options, attempts=1, into=tmp_path / "r", workers=1)
    assert set(run.records["status"]) == {"ok"}
    assert set(run.records["reading"]) == {"comparison ran out of time"}
    assert run.records["correct"].sum() == 0


def test_stored_replies_stand_in_for_first_calls_and_keep_their_bill(tmp_path, techniques_run):
    options = {"techniques": "majority_3,self_refinement", "n": 6, "reuse": str(techniques_run.path)}
    run = assay.run("cost_of_pass", PRODUCER, options=options, attempts=2, into=tmp_path / "r", workers=1)
    assert set(run.records["status"]) == {"ok"}
    frame = run.records.explode("calls").unnest("calls", separator=".")
    votes = frame.filter(pl.col("technique") == "majority_3")
    assert set(votes["calls.cached"]) == {3}
    assert votes["calls.paid"].sum() == 0
    assert (votes["calls.cost"] > 0).all()
    refined = frame.filter(pl.col("technique") == "self_refinement")
    assert set(refined["calls.calls"]) == {2}
    assert set(refined["calls.cached"]) == {1}
    assert (refined["calls.paid"] < refined["calls.cost"]).all()
    np.testing.assert_allclose(frame["cost"].to_numpy(), frame["calls.cost"].to_numpy(), rtol=1e-12)


def test_stored_replies_are_drawn_with_or_without_replacement(techniques_run):
    problem = techniques_run.records["cluster"][0]
    rng = np.random.default_rng(0)
    with metered(Meter()):
        draw = StoredReplies(techniques_run.path, replacement=False).drawer("addition", problem, rng)
        drawn = [draw().text for _ in range(4)]
        with pytest.raises(DataError, match="only 4 vanilla records"):
            draw()
        again = StoredReplies(techniques_run.path).drawer("addition", problem, rng)
        many = [again().text for _ in range(40)]
    stored = techniques_run.records.filter(
        (pl.col("cluster") == problem) & (pl.col("technique") == "vanilla")
    )["output"]  # fmt: skip
    assert sorted(drawn) == sorted(json.loads(o)["messages"][1]["content"] for o in stored)
    assert set(many) <= set(drawn)
    with pytest.raises(DataError, match="no vanilla record of problem 'x'"):
        StoredReplies(techniques_run.path).drawer("addition", "x", rng)


def test_scoring_again_keeps_what_the_answers_cost(tmp_path, techniques_run):
    again = assay.rescore(techniques_run, options={"reading": "robust"}, into=tmp_path / "again", workers=1)
    assert again.records["correct"].to_list() == techniques_run.records["correct"].to_list()
    assert mean_frontier(again.records) == pytest.approx(mean_frontier(techniques_run.records))
    first, second = (CostOfPass(Runs([run]), 0.02) for run in (techniques_run, again))
    np.testing.assert_allclose(first.values, second.values, rtol=1e-12)
    alone = CostOfPass(again, 0.02)
    np.testing.assert_allclose(alone.values, first.values, rtol=1e-12)


def test_a_run_goes_into_the_published_layout_and_back(tmp_path, techniques_run):
    folder = assay.make("cost_of_pass.export", tmp_path / "hub", runs=str(techniques_run.path))
    records = read_records(folder)
    assert records["task_name"].unique().to_list() == ["TwoDigitAddition"]
    names = {"vanilla", "self_refinement", "majority_3", "majority_4", "tale_ep"}
    from assay.reasoning.cost_of_pass.techniques import short_name

    assert {short_name(name) for name in records["tt_method_name"].unique()} == names
    mine = CostOfPass(Runs([techniques_run]), 0.02).summary().select("technique", "accuracy", "cost", "frontier")
    theirs = CostOfPass(records, 0.02).summary().with_columns(
        pl.col("technique").map_elements(short_name, return_dtype=pl.String)
    ).select("technique", "accuracy", "cost", "frontier")  # fmt: skip
    for a, b in zip(mine.sort("technique").rows(), theirs.sort("technique").rows(), strict=True):
        assert a[0] == b[0]
        assert a[1:] == pytest.approx(b[1:], rel=1e-9)
    submitted = assay.run(
        "cost_of_pass", f"submission:{folder}", options={"techniques": "all", "n": 6}, attempts=4,
        into=tmp_path / "submitted", workers=1,
    )  # fmt: skip
    key = ["sample", "attempt"]
    assert submitted.records.sort(key)["correct"].to_list() == techniques_run.records.sort(key)["correct"].to_list()


def test_costs_that_no_two_prices_explain_are_not_written_out(techniques_run):
    from assay.reasoning.cost_of_pass.formats import _token_prices

    odd = techniques_run.records.filter(pl.col("technique") == "vanilla").with_columns(
        pl.col("calls").list.eval(pl.element().struct.with_fields(cost=pl.field("cost") ** 2))
    )
    with pytest.raises(DataError, match="No two token prices explain the costs"):
        _token_prices(odd, "m", None)


def test_outputs_of_others_may_be_plain_texts():
    assert replies("<answer>1</answer>") == (["<answer>1</answer>"], False)
    for odd in (None, 3, {}, {"messages": []}, {"messages": [{"role": "user", "content": "x"}]}):
        with pytest.raises(DataError, match="in which an assistant speaks"):
            replies(odd)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "gsm8k"}, "is not part of assay"),
        ({"tasks": "adition"}, "did you mean 'addition'"),
        ({"tasks": "custom"}, "custom=FILE"),
        ({"techniques": ""}, "techniques is empty"),
        ({"techniques": "majority_x"}, "There is no technique 'majority_x'"),
        ({"n": -1}, "n=-1 is below 0"),
        ({"context_condition": "ambig"}, "is for the data set bbq"),
        ({"custom": "/nowhere.jsonl"}, "does not exist"),
        ({"custom": "/nowhere.jsonl", "expert_cost": -1}, "expert_cost=-1 is not a price"),
        ({"expert_cost": 3}, "expert_cost is for problems of your own"),
        ({"temperature": -0.5}, "temperature=-0.5 is below 0"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"compare_seconds": 0}, "compare_seconds=0"),
        ({"techniques": "math:pi"}, "'math:pi' is no function"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        CostOfPassBenchmark(**options).tasks()


def test_listing_the_benchmark_imports_nothing_heavy():
    import subprocess
    import sys

    code = (
        "import sys, assay.reasoning.cost_of_pass.benchmark, assay.reasoning.cost_of_pass as room;"
        "print([m for m in ('polars', 'numpy', 'scipy', 'math_verify', 'aiohttp') if m in sys.modules]);"
        "[getattr(room, name) for name in room.__all__]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
