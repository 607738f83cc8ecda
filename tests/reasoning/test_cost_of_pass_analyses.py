"""Analyses over runs: of this benchmark, of any other, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

import assay
from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import DataError, UsageError
from assay.core.metrics import mean
from assay.core.results import Run, Runs
from assay.reasoning.cost_of_pass import reference, simulate
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.worlds import grouping, worlds
from assay.systems.chat.model import ChatModel
from assay.systems.scripted import ScriptedChatModel


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    systems = (
        ("method:producer?skill=0.4&spread=0.3", {"family": "small", "release_date": "2024-01-10"}),
        ("method:producer?skill=0.9&price_out=60", {"family": "big", "release_date": "2024-06-01"}),
        ("method:producer?skill=0.7&price_out=8", {"family": "small", "release_date": "2024-11-20"}),
    )
    return [
        assay.run(
            "cost_of_pass", system, options={"techniques": "vanilla,majority_3,self_refinement", "n": 12}, attempts=4,
            into=folder / str(i), tags=tags, workers=1,
        )
        for i, (system, tags) in enumerate(systems)
    ]  # fmt: skip


def one(name: str, runs: Sequence[Run], **options) -> pl.DataFrame:
    return assay.analyze(f"cost_of_pass.{name}", runs, **options)[0].frame


def test_the_frontier_table_equals_the_estimator(runs):
    cop = CostOfPass(Runs(runs), 0.02)
    frame = one("frontier", runs)
    assert frame.height == 1 + 9
    best = frame.filter(pl.col("strategy") == "all").row(0, named=True)
    assert best["frontier"] == pytest.approx(cop.frontier().value)
    assert best["low"] <= best["frontier"] <= best["high"]
    for row in frame.filter(pl.col("strategy") != "all").iter_rows(named=True):
        assert row["frontier"] == pytest.approx(cop.frontier([row["strategy"]]).value)


def test_another_expert_may_be_assumed(runs):
    cheap, dear = (one("frontier", runs, expert_cost=cost)["frontier"].max() for cost in (0.0001, 5.0))
    assert cheap <= 0.0001
    assert dear > 0.0001


def test_progress_takes_dates_from_tags_and_fits_a_half_life(runs):
    curve, halves = assay.analyze("cost_of_pass.progress", runs)
    assert curve.frame["frontier"].is_sorted(descending=True)
    assert curve.frame["release_date"].n_unique() == 3
    (row,) = halves.frame.iter_rows(named=True)
    assert row["releases"] == 3
    assert row["low"] <= row["high"] or math.isinf(row["high"])


@pytest.mark.parametrize("groups", ["family", "model", "technique", "auto"])
def test_essentialness_by_any_grouping(runs, groups):
    frame = one("essentialness", runs, groups=groups)
    cop = CostOfPass(Runs(runs), 0.02)
    wanted = cop.essentialness("family" if groups == "auto" else groups)
    assert dict(frame.select("group", "essentialness").iter_rows()) == pytest.approx(
        dict(wanted.select("group", "essentialness").iter_rows())
    )
    assert (frame["low"] <= frame["high"]).all()


def test_groups_may_be_written_out(runs):
    (world,) = worlds(Runs(runs))
    assert grouping(world.cop, "cheap=x|y;dear=z") == {"cheap": ["x", "y"], "dear": ["z"]}
    with pytest.raises(UsageError, match="not of the form name=model"):
        grouping(world.cop, "cheap=")
    with pytest.raises(DataError, match="none of the paper's ten"):
        grouping(world.cop, "class")


def test_technique_gains_are_those_of_the_estimator_and_never_negative(runs):
    frame = one("technique_gain", runs)
    cop = CostOfPass(Runs(runs), 0.02)
    for row in frame.iter_rows(named=True):
        assert row["gain"] == pytest.approx(cop.technique_gain(row["technique"]))
        assert 0 <= row["low"] <= row["high"]
    only = one("technique_gain", runs, models=runs[0].system)
    assert set(only["models"]) == {1}


def test_winners_sum_to_the_problems(runs):
    counts, each = assay.analyze("cost_of_pass.winners", runs)
    assert counts.frame["problems"].sum() == 12 == each.frame.height


def test_nobody_efficient_is_beaten_in_both(runs):
    frame = one("pareto", runs)
    efficient = frame.filter(pl.col("efficient") == "yes").sort("cost")
    assert efficient["accuracy"].is_sorted()
    assert efficient.height >= 1


def test_the_same_answers_at_other_prices(runs, tmp_path):
    book = tmp_path / "book.csv"
    rows = ["model,input,output,day"]
    for model, late in (("producer-0.4", 100), ("producer-0.9", 0.001), ("producer-0.7", 100)):
        rows += [f"{model},1,4,2024-01-01", f"{model},{late},{late},2025-01-01"]
    book.write_text("\n".join(rows) + "\n")
    prices, alerts = assay.analyze(
        "cost_of_pass.reprice", runs, days="2024-02-01,2025-02-01", prices=str(book), condition="technique"
    )
    assert set(prices.frame["day"]) == {"2024-02-01", "2025-02-01"}
    first = prices.frame.filter((pl.col("day") == "2024-02-01") & (pl.col("strategy") != "all"))
    assert first.height == 9
    assert "off the frontier" in alerts.frame["alert"].to_list()
    with pytest.raises(DataError, match="none is known for 2020-01-01"):
        assay.analyze("cost_of_pass.reprice", runs, days="2020-01-01", prices=str(book))
    with pytest.raises(UsageError, match="'May' is not a day"):
        assay.analyze("cost_of_pass.reprice", runs, days="May")


def test_other_assumptions_never_make_it_cheaper(runs):
    frame = one("sensitivity", runs, check="0.001", true_accept=0.9, correlation=0.2, hour_value=1.0)
    plain = frame.filter(pl.col("assumption").str.starts_with("free"))["frontier"].to_numpy()
    for assumption in ("verified", "correlated retries", "waiting priced"):
        assert (frame.filter(pl.col("assumption") == assumption)["frontier"].to_numpy() >= plain - 1e-12).all()
    with pytest.raises(UsageError, match="Say what to assume"):
        one("sensitivity", runs)


@pytest.mark.parametrize("prior", ["jeffreys", "uniform", "empirical", "0.5:2"])
def test_the_posterior_frontier_of_all_is_below_that_of_one(runs, prior):
    frame = one("posterior", runs, prior=prior)
    everyone = frame.filter(pl.col("strategy") == "all")["posterior"][0]
    assert (frame["posterior"] >= everyone * (1 - 1e-9)).all()
    assert (frame["committed"] >= frame["posterior"] * (1 - 1e-9)).all()


def test_bad_priors_and_factors_are_refused(runs):
    with pytest.raises(UsageError, match="Prior 'flat' is none of"):
        one("posterior", runs, prior="flat")
    with pytest.raises(UsageError, match="not numbers"):
        one("expert_sensitivity", runs, factors="1,x")
    with pytest.raises(UsageError, match="above 0"):
        one("expert_sensitivity", runs, factors="0")


def test_a_cascade_lies_between_frontier_and_best_single_model(runs):
    row = one("routing", runs, length=2).row(0, named=True)
    assert row["frontier"] <= row["cost"] <= row["held_out"]
    assert row["policy"].endswith("> expert")


def test_bootstrap_tables_for_every_unit(runs):
    for unit in ("nested", "problems", "runs"):
        frame = one("bootstrap", runs, n=50, unit=unit)
        assert (frame["low"] <= frame["high"]).all()
    assert "basic intervals" in assay.analyze("cost_of_pass.bootstrap", runs, n=50, method="basic")[0].title


def test_every_table_has_columns_for_its_chart(runs):
    for name in (
        "frontier",
        "essentialness",
        "technique_gain",
        "winners",
        "pareto",
        "bootstrap",
        "progress",
        "routing",
    ):
        for table in assay.analyze(f"cost_of_pass.{name}", runs):
            if table.chart is not None:
                wanted = [getattr(table.chart, part) for part in ("x", "y", "color", "low", "high", "label", "facet")]
                assert {column for column in wanted if column} <= set(table.frame.columns), name
            assert set(table.formats) <= set(table.frame.columns), name


def test_one_run_given_twice_is_refused(runs):
    with pytest.raises(DataError, match="more than once"):
        one("frontier", [runs[0], runs[0]])


# -- any benchmark -----------------------------------------------------------------------------------------------------


class Parity(Task):
    name = "parity"
    system = ChatModel
    attempts = 3

    def samples(self) -> Sequence[Sample]:
        return [Sample(f"s{i}", input=i, target=i % 2, groups={"half": "low" if i < 4 else "high"}) for i in range(8)]

    async def trial(self, system, sample, ctx) -> Outcome:
        reply = await system.generate([{"role": "user", "content": str(sample.input)}], seed=ctx.seed % 2**31)
        return Outcome({"solved": float(reply.text == str(sample.target)), "length": float(len(reply.text))})


class Toy(Benchmark):
    name = "toy"
    title = "Parity"
    metrics = (mean("solved", headline=True),)

    def tasks(self) -> Sequence[Task]:
        return [Parity()]


@pytest.fixture(scope="module")
def others(tmp_path_factory) -> list[Run]:
    folder = tmp_path_factory.mktemp("others")
    coin = ScriptedChatModel(lambda m, rng: str(int(rng.integers(2))), name="coin", price_in=1.0, price_out=1.0)
    sure = ScriptedChatModel(lambda m, rng: str(int(m[0]["content"]) % 2), name="sure", price_in=50.0, price_out=50.0)
    return [assay.run(Toy(), s, into=folder / s.name, workers=1) for s in (coin, sure)]


def test_runs_of_any_benchmark_have_a_frontier(others):
    frame = one("frontier", others, expert_cost=1.0)
    assert set(frame["strategy"]) == {"all", "coin", "sure"}
    sure = frame.filter(pl.col("strategy") == "sure").row(0, named=True)
    assert sure["frontier"] == pytest.approx(100e-6)  # one word in, one out
    assert sure["accuracy"] == 1.0
    assert one("frontier", others, expert_cost=1.0, score="solved").equals(frame)


def test_without_an_expert_only_what_needs_none(others):
    assert one("pareto", others).height == 2
    assert one("table", others).height == 16
    with pytest.raises(DataError, match="needs the cost of an expert"):
        one("frontier", others)


def test_scores_that_are_no_successes_are_refused(others):
    with pytest.raises(DataError, match=r"Score 'attempt' is 2\.0 at model 'coin', problem 's0', run 2"):
        one("frontier", others, expert_cost=1.0, score="attempt")
    with pytest.raises(UsageError, match="There is no score 'solvd'"):
        one("frontier", others, expert_cost=1.0, score="solvd")
    with pytest.raises(UsageError, match="There is no task 'x'"):
        one("frontier", others, expert_cost=1.0, task="x")


def test_errors_are_left_out_and_said(tmp_path, others):
    def fails(messages, rng):
        if messages[0]["content"] == "3":
            raise ValueError("broken")
        return "0"

    system = ScriptedChatModel(fails, name="flaky", price_in=1.0, price_out=1.0)
    run = assay.run(Toy(), system, into=tmp_path / "r", workers=1, tries=1)
    (table,) = assay.analyze("cost_of_pass.frontier", [run], expert_cost=1.0)
    assert any("3 of 24 records are errors and left out" in note for note in table.notes)
    assert table.frame["problems"][0] == 7
    both = assay.analyze("cost_of_pass.frontier", [run, *others], expert_cost=1.0)[0]
    assert any("1 problems are left out: not every strategy has them" in note for note in both.notes)


# -- simulated worlds --------------------------------------------------------------------------------------------------


def test_many_attempts_recover_the_true_frontier():
    rng = np.random.default_rng(0)
    world = simulate.truth(rng.normal(0.0, 0.5, 12))
    cop = CostOfPass(simulate.draw(world, 3000, rng), 20.0)
    assert cop.frontier().value == pytest.approx(world.frontier(20.0), rel=0.03)
    np.testing.assert_allclose(cop.cells.rates, world.rates[np.argsort([p.name for p in world.producers])], atol=0.04)


def test_the_plain_loops_read_the_oracle_world(oracle):
    from pathlib import Path

    expected = oracle("cost_of_pass", "frontier_world_a_expected")
    path = Path(__file__).parents[1] / "oracles" / "cost_of_pass" / "frontier_world_a.csv"
    plain = reference.PlainLoops(pl.read_csv(path).to_dicts(), 2.0)
    assert plain.frontier() == pytest.approx(expected["frontier_all_with_expert"], abs=1e-12)
    assert plain.essentialness("family") == pytest.approx(expected["family_essentialness"], abs=1e-12)


def test_simulated_worlds_are_written_with_their_truth(tmp_path):
    folder = assay.make("cost_of_pass.simulate", tmp_path / "w", problems=5, runs=2)
    assert CostOfPass(pl.read_csv(folder / "records.csv"), 20.0).values.shape == (10, 5)
    assert (folder / "truth.json").is_file()
    assert (folder / "manifest.json").is_file()


def test_every_claim_of_the_acceptance_experiment_holds(tmp_path):
    import json

    folder = assay.make("cost_of_pass.reproduce", tmp_path / "r", model="none", seeds=20)
    claims = json.loads((folder / "claims.json").read_text())
    assert [c["claim"][:3] for c in claims] == ["(a)", *["(b)"] * 6, "(c)", "(d)", "(e)"]
    assert [c["holds"] for c in claims] == [True] * 8 + [None, True]
    assert "not tested" in (folder / "report.md").read_text()
