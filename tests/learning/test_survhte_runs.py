"""survhte through the engine: records, failures, analyses, conformance."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assay.core.analyze import analyze
from assay.core.engine import Engine
from assay.core.errors import DataError, UsageError
from assay.core.registry import benchmark_entries
from assay.core.results import Run, Runs
from assay.core.run import run as core_run
from assay.learning.survhte import analyses, checks
from assay.learning.survhte.base import SurvivalEffect, surv
from assay.learning.survhte.benchmark import SurvHTE
from assay.learning.survhte.cards import cards
from assay.learning.survhte.clinical import load_actg175
from assay.learning.survhte.data import make_survhte
from assay.learning.survhte.registry import get_method
from assay.learning.survhte.reproduce import Cell, excess_error, sign_test, try_cell
from assay.learning.survhte.trial import prepared, refitted_mean

run = partial(core_run, loading="assay.systems.loading")

OPTIONS = {"sets": "RCT-50/[AC],actg175-HIV1-LC", "n": 400}


class Oracle:
    """Knows the effect of scenario A without covariates: zero for everybody; no parameters at all."""

    def fit(self, X, W, y):
        return self

    def effect(self, X):
        return np.zeros(len(X))


class Picky(SurvivalEffect):
    """Refuses data with five covariates."""

    def __init__(self, *, estimand: str = "rmst", horizon: float | None = None, random_state: int | None = 0) -> None:
        self.estimand, self.horizon, self.random_state = estimand, horizon, random_state

    def _fit(self, X, W, time, event) -> None:
        if X.shape[1] == 5 and time.max() < 3.5:
            raise DataError("scenario A is not to its taste")

    def _effect(self, X):
        return np.full(len(X), 100.0)


def entry(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> None:
    """The entry point, where the package's own does not have it yet."""
    if "survhte" in benchmark_entries():
        return
    folder = tmp_path_factory.mktemp("entry")
    info = folder / "survhte-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: survhte\nVersion: 0\n", encoding="utf-8")
    target = "survhte = assay.learning.survhte.benchmark:SurvHTE"
    (info / "entry_points.txt").write_text(f"[assay.benchmarks]\n{target}\n", encoding="utf-8")
    patch.syspath_prepend(str(folder))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        entry(tmp_path_factory, patch)
        folder = tmp_path_factory.mktemp("runs")
        systems = {
            "km": "method:km_difference",
            "lasso": "method:t_learner+lasso+margin",
            "oracle": Oracle(),
            "picky": Picky(),
        }
        yield Runs(
            [
                run("survhte", system, options=OPTIONS, attempts=2, into=folder / name, engine=Engine(workers=0))
                for name, system in systems.items()
            ]
        )


def of(runs: Runs, place: int) -> pl.DataFrame:
    assert isinstance(runs[place], Run)
    return runs[place].records


def test_records_hold_errors_against_draws_and_exact_effects(runs: Runs) -> None:
    records = of(runs, 1).filter(pl.col("truth") == "exact")
    assert records.height == 4
    assert set(records["status"]) == {"ok"}
    for row in records.iter_rows(named=True):
        assert row["mse"] == pytest.approx(row["rmse"] ** 2)
        assert row["ate_low"] <= row["ate"] <= row["ate_high"]
        assert row["ate_bias"] == pytest.approx(row["ate"] - row["ate_true"])
        assert row["imputation_mae"] > 0
        assert row["noise_floor"] > 0
    zero = of(runs, 2).filter(pl.col("sample") == "RCT-50/A")
    data = make_survhte("RCT-50", "A", 400)
    test = data.split(0)[2]
    assert data.exact is not None
    wanted = float(np.sqrt(np.mean(data.exact(data.estimand("rmst"))[test] ** 2)))
    assert zero.filter(pl.col("attempt") == 0)["rmse_exact"][0] == pytest.approx(wanted)


def test_unknown_truth_leaves_errors_empty_and_gives_the_gap_to_kaplan_meier(runs: Runs) -> None:
    row = of(runs, 0).filter(pl.col("truth") == "unknown").row(0, named=True)
    assert row["rmse"] is None
    assert abs(row["ate_gap_to_km"]) < 3


def test_a_method_that_cannot_be_fitted_has_failed_and_ranks_worst(runs: Runs) -> None:
    failed = of(runs, 3).filter(pl.col("failed") == 1)
    assert failed.height == 2
    assert all("not to its taste" in reason for reason in failed["failure"])
    ranking, cells = analyses.ranking(runs)
    assert ranking.frame.filter(pl.col("method").str.contains("Picky"))["failed_datasets"][0] == 1
    worst = cells.frame.filter(pl.col("dataset") == "RCT-50/A").sort("rank")
    assert "Picky" in worst["method"][-1]
    assert worst["mse"][-1] is None
    assert "1 of 8 cells failed" in " ".join(ranking.notes)
    reasons = analyses.failures(runs).frame
    assert reasons.select("dataset", "attempts").rows() == [("RCT-50/A", 2)]


def test_analyses_give_tables(runs: Runs) -> None:
    families = analyses.families(runs)
    assert set(families.frame["family"]) >= {"Kaplan-Meier difference", "T-Learner"}
    assert families.frame["members"].sum() == 4
    assert analyses.critical_difference(runs).frame.height == 4
    assert analyses.ranking(runs, per="attempt")[0].frame["datasets"][0] == 4
    assert analyses.bias(runs, against="test").frame.height == 16
    assert analyses.explained(runs).frame["explained"].max() <= 1
    found = analyses.curves(Runs([runs[1]]), sample="actg175-HIV1-LC", feature="age", bins=4).frame
    assert found["rows"].sum() == 300
    assert found["age"].is_sorted()
    assert len(analyze("survhte.ranking", runs)) == 2
    overview = checks.assumptions(Runs([runs[0]]))[0].frame
    assert overview.filter(pl.col("dataset") == "RCT-50/A")["treated"][0] == pytest.approx(0.485)


def test_analyses_say_what_they_need(runs: Runs) -> None:
    with pytest.raises(UsageError, match="n_train="):
        analyses.convergence(runs)
    with pytest.raises(UsageError, match="population or the test rows"):
        analyses.bias(runs, against="sample")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="RCT-50/A"):
        analyses.curves(runs, sample="RCT-50/a", feature="X1")
    with pytest.raises(UsageError, match="covariate"):
        analyses.curves(runs, sample="RCT-50/A", feature="X9")
    with pytest.raises(UsageError, match="two groups"):
        analyses.curves(runs, sample="RCT-50/A", feature="X1", bins=1)
    with pytest.raises(UsageError, match="task 'synth'"):
        analyses.ranking(runs, task="synth")


def test_convergence_is_a_curve_over_training_sizes(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(tmp_path_factory, monkeypatch)
    options = {"sets": "RCT-50/C", "n": 2000, "n_train": "50,1000", "n_val": 50, "n_test": 500}
    done = run(
        "survhte",
        "method:t_learner+lasso+margin",
        options=options,
        attempts=3,
        into=tmp_path / "r",
        engine=Engine(workers=0),
    )
    frame = analyses.convergence(Runs([done])).frame
    assert frame["train"].to_list() == [50, 1000]
    assert frame["rmse_exact"][0] > frame["rmse_exact"][1]
    assert {s.id for s in SurvHTE(**options).tasks()[0].samples()} == {"RCT-50/C@50", "RCT-50/C@1000"}


def test_every_estimand_is_asked_of_a_method_and_refused_to_one_without_parameters() -> None:
    data = make_survhte("RCT-50", "C", 200)
    made = prepared(get_method("km_difference"), data.estimand("survival50"), 3, plain=False)
    assert (made.estimand, made.random_state) == ("survival", 3)
    assert made.horizon == np.quantile(data.time[data.event], 0.5)
    train = np.flatnonzero(data.time < data.time.max())
    assert data.estimand("followup", train).horizon == data.time[train].max()
    with pytest.raises(DataError, match="beyond the longest follow-up"):
        prepared(get_method("km_difference"), data.estimand("followup"), 3, plain=False).fit(
            data.X[train], data.W[train], surv(data.event[train], data.time[train])
        )
    learner = prepared(get_method("t_learner+lasso+margin"), data.estimand("followup", train), 3, plain=False)
    learner.fit(data.X[train], data.W[train], surv(data.event[train], data.time[train]))
    assert learner.outcome_.max() == data.time[train].max()
    with pytest.raises(UsageError, match="estimand=rmst"):
        prepared(Oracle(), data.estimand("horizon"), 0, plain=False)
    assert isinstance(prepared(Oracle(), data.estimand("rmst"), 0, plain=True), Oracle)


def test_refits_to_the_longest_follow_up_do_without_the_row_that_has_it() -> None:
    data = make_survhte("RCT-50", "A", 300)
    train, _, test = data.split(0)
    learner = prepared(get_method("km_difference"), data.estimand("followup", train), 3, plain=False)
    learner.fit(data.X[train], data.W[train], surv(data.event[train], data.time[train]))
    low, high = refitted_mean(learner, data, train, test, 20, np.random.default_rng(0))
    assert low < learner.ate(data.X[test]) < high
    assert learner.horizon == data.time[train].max()


def test_records_hold_the_parts_of_a_method(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(tmp_path_factory, monkeypatch)
    options = {"sets": "RCT-50/C", "n": 300, "refits": 2}
    found = {}
    for name in (
        "x_learner+lasso+margin", "s_learner_survival+rsf?tune=false&trees=4",
        "causal_survival_forest?trees=10&grid=10",
    ):  # fmt: skip
        done = run(
            "survhte", f"method:{name}", options=options, attempts=1, into=tmp_path / name[:5], engine=Engine(workers=0)
        )
        found[name[:1]] = done.records.row(0, named=True)
    assert {row["status"] for row in found.values()} == {"ok"}
    assert found["x"]["outcome_mae"] > 0
    assert found["x"]["outcome_r2"] < 1
    assert 0 <= found["x"]["propensity_auc"] <= 1
    assert found["x"]["propensity_clipped"] == 0
    assert 0 < found["s"]["curve_rmse"] < 0.5
    assert 0 <= found["c"]["interval_coverage"] <= 1
    assert found["c"]["interval_width"] > 0
    assert all(row["ate_low"] < row["ate_high"] for row in found.values())
    with pytest.raises(UsageError, match="refits=1"):
        SurvHTE(refits=1)


def test_cards_tell_what_data_sets_hold(tmp_path: Path) -> None:
    cards(tmp_path, sets="OBS-NoPos/C,actg175-HIV1-HC,mimic_syn1", n=500)
    found = {one["name"]: one for one in json.loads((tmp_path / "cards.json").read_text(encoding="utf-8"))}
    synthetic, trial, stand_in = (found[name] for name in ("OBS-NoPos/C", "actg175-HIV1-HC", "mimic_syn1"))
    data = make_survhte("OBS-NoPos", "C", 500)
    assert synthetic["censored"] == pytest.approx(1 - data.event.mean())
    assert synthetic["without_overlap"] == pytest.approx(np.mean((data.X[:, 0] > 0.8) | (data.X[:, 0] < 0.2)))
    assert synthetic["effects"]["rmst"]["average"] == pytest.approx((data.T1 - data.T0).mean())  # type: ignore[operator]
    assert trial["versions"] == 10
    assert trial["effects"] == {}
    assert trial["licence"] == "CC-BY-4.0"
    assert stand_in["kind"] == "stand-in"
    text = (tmp_path / "cards.md").read_text(encoding="utf-8")
    assert text.count("# ") == 3
    assert "censoring drawn 10 times" in text


def test_balance_overlap_and_censoring_are_looked_at() -> None:
    data = make_survhte("OBS-NoPos", "D", 3000)
    table = checks.balance(data)
    first = table.frame.filter(pl.col("covariate") == "X1")["standardised_difference"][0]
    assert first > 1
    overlap = checks.overlap(data)
    assert overlap.frame["rows"].sum() == 3000
    assert "clipped" in overlap.notes[0]
    assert "extrapolation" in checks.censoring_positivity(data).notes[0]
    assert checks.censoring_positivity(load_actg175()).frame["uncensored"].max() == 1


def test_a_cell_of_the_reproduction_measures_all_its_methods() -> None:
    cell = Cell("RCT-50", "C", 0, 200, 200, ("t_learner+lasso+margin", "s_learner_survival+rsf"))
    found = try_cell(cell)
    for entry_ in found["methods"].values():
        assert entry_["mse"] > entry_["mse_exact"]
        assert entry_["over_floor_in_se"] > -4
    # A guess of zero for draws with known moments: the sample's error of the mean agrees with the exact one.
    rng = np.random.default_rng(0)
    n = 50_000
    excess = (rng.poisson(5, n) - 3.0) ** 2
    exact = excess_error(np.full(n, 2.0), np.tile([[5.0], [5.0], [5.0], [5.0 + 3 * 25]], (1, n)))
    assert exact == pytest.approx(excess.std() / np.sqrt(n), rel=0.02)
    assert sign_test([-1, -1, 0, 2]) == (2, 3, 0.5)


@pytest.mark.slow
def test_it_keeps_every_rule_of_a_benchmark(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    from assay.core.testing import check_benchmark

    entry(tmp_path_factory, monkeypatch)
    results = check_benchmark("survhte", options={"sets": "RCT-50/*", "n": 400})
    assert all(r.outcome != "failed" for r in results)
