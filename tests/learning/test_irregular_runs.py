"""The benchmark: runs, failures, analyses, submissions, recipes."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.learning.irregular import analyses, recipes, reproduce
from assay.learning.irregular.array import from_dense
from assay.learning.irregular.benchmark import Irregular, fresh
from assay.learning.irregular.files import write_hdf5
from assay.learning.irregular.methods.factories import get_model

ORACLES = Path(__file__).parents[1] / "oracles" / "irregular"


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """The benchmark by name, whether or not the installed package lists it already."""
    if not any(e.name == "irregular" for e in entry_points(group="assay.benchmarks")):
        folder = tmp_path / "entry" / "irregular-0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: irregular\nVersion: 0\n")
        target = "assay.learning.irregular.benchmark:Irregular"
        (folder / "entry_points.txt").write_text(f"[assay.benchmarks]\nirregular = {target}\n")
        monkeypatch.syspath_prepend(str(folder.parent))
        monkeypatch.setenv("PYTHONPATH", str(folder.parent))


@pytest.fixture
def folder(tmp_path):
    """Two small data sets under names of the repository."""
    rng = np.random.default_rng(0)
    for name, channels in (("Vehicles", 1), ("Garment", 2)):
        y = np.arange(24) % 2
        X = rng.normal(size=(24, channels, 10)) * 0.1 + y[:, None, None]
        split = np.where(np.arange(24) < 12, "train", "test")
        (tmp_path / "data").mkdir(exist_ok=True)
        write_hdf5(from_dense(X, y=y, split=split), tmp_path / "data" / f"{name}.h5")
    return str(tmp_path / "data")


class Failing(type(get_model("majority"))):
    """A classifier that cannot take two channels."""

    def _fit(self, panel, codes):
        if panel.values.shape[1] > 1:
            raise MemoryError("too large")
        super()._fit(panel, codes)


def go(folder, system, into, **options):
    bench = Irregular("Vehicles,Garment", folder, **options)
    return assay.run(bench, system, into=into, attempts=2)


def test_a_run_scores_every_data_set_and_a_failure_ranks_worst(folder, tmp_path):
    good = go(folder, get_model("knn", n_neighbors=1), tmp_path / "a")
    bad = go(folder, Failing(), tmp_path / "b")
    assert good.records["accuracy"].to_list() == [1.0] * 4
    assert (good.records["fit_seconds"] >= 0).all()
    statuses = dict(zip(bad.records["sample"].to_list(), bad.records["status"].to_list()))
    assert statuses == {"Vehicles": "ok", "Garment": "error"}
    runs = Runs([good, bad])
    sets, _, table = analyses.score_table(runs)
    assert np.isnan(table[sets.index("Garment"), 1])
    ranks = {row["system"]: row for row in analyses.ranks(runs).rows()}
    assert sorted(row["average rank"] for row in ranks.values()) == [1.0, 2.0]
    assert sum(row["failures"] for row in ranks.values()) == 1
    assert analyses.failures(runs).frame.height == 2
    assert analyses.scores(runs).frame.height == 2
    assert analyses.pareto(runs).frame["front"].to_list().count("yes") >= 1
    diagram = analyses.critical_difference(runs)
    assert diagram.chart is not None
    assert diagram.chart.kind == "critical_difference"
    # A failed trial counts 0 in the mean accuracy.
    mean = next(s for s in bad.scores() if s.metric == "mean_accuracy" and not s.by)
    assert mean.value == pytest.approx(0.25)
    with pytest.raises(UsageError, match="No run holds a controlled variant"):
        analyses.curves(runs)
    with pytest.raises(UsageError, match="metric"):
        analyses.ranks(runs, metric="auc")


def test_ranks_with_failures_are_the_oracle_s():
    from assay.core.stats.ranks import average_ranks

    case = json.loads((ORACLES / "ranking.json").read_text())["cases"][0]
    table = np.array([case["scores"][m] for m in case["scores"]], float).T
    expected = case["mean_rank_failures_last"]
    assert average_ranks(table) == pytest.approx([expected[m] for m in case["scores"]], abs=1e-9)


def test_friedman_and_wilcoxon_are_the_oracle_s():
    from scipy.stats import wilcoxon

    from assay.core.stats.ranks import friedman

    case = json.loads((ORACLES / "ranking.json").read_text())["cases"][0]
    table = np.array([case["scores"][m] for m in case["scores"]], float).T
    whole = ~np.isnan(table).any(axis=1)
    found = friedman(table[whole])
    assert found.statistic == pytest.approx(case["friedman_complete_datasets"]["statistic"], abs=1e-9)
    assert found.p == pytest.approx(case["friedman_complete_datasets"]["pvalue"], abs=1e-9)
    for key, rows in (("all_10_datasets", np.ones(10, bool)), ("complete_datasets_only", whole)):
        p = wilcoxon(table[rows, 0], table[rows, 1]).pvalue
        assert p == pytest.approx(case["wilcoxon_rocket_vs_borf"][key], abs=1e-9)


def test_a_trial_past_its_time_is_killed_and_recorded(folder, tmp_path, registered):
    run = assay.run(
        "irregular",
        "method:grud",
        options={"datasets": "Vehicles", "source": folder, "seconds": 0.05},
        into=tmp_path / "r",
    )
    assert run.records["status"].to_list() == ["timeout"]
    assert next(s for s in run.scores() if s.metric == "mean_accuracy").n_error == 1


def test_predictions_of_others_are_scored(folder, tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "Vehicles.csv").write_text("\n".join(str(i % 2) for i in range(12)))
    bench = Irregular("Vehicles", folder)
    run = assay.run(bench, f"submission:{tmp_path / 'p'}", into=tmp_path / "r")
    assert run.records["accuracy"].to_list() == [1.0]
    with pytest.raises(UsageError, match="holds no predictions"):
        list(Irregular("Garment", folder).read(tmp_path / "p"))
    task = bench.tasks()[0]
    with pytest.raises(DataError, match="list 'predicted'"):
        task.score(task.samples()[0], "1", None)  # type: ignore[arg-type]


def test_options_are_checked():
    assert len(Irregular().tasks()[0].samples()) == 10
    assert len(Irregular("paper").datasets) == 34
    assert Irregular(seconds=5, memory_gb=2).tasks()[0].needs.seconds == 5
    for options, message in (
        ({"datasets": " , "}, "is empty"),
        ({"datasets": "Abf,Abf"}, "named twice"),
        ({"datasets": "TDrive"}, "no labels"),
        ({"datasets": "Nothing"}, "data set"),
        ({"seconds": 0}, "must be above 0"),
    ):
        with pytest.raises(UsageError, match=message):
            Irregular(**options)


def test_a_fresh_copy_gets_the_seed_only_where_none_is_fixed():
    assert fresh(get_model("rifc"), 7).random_state == 7
    assert fresh(get_model("rifc", random_state=3), 7).random_state == 3
    assert fresh(get_model("knn"), 7).get_params() == get_model("knn").get_params()


def test_curves_follow_the_amount_of_made_irregularity(tmp_path):
    pytest.importorskip("aeon")
    names = "ItalyPowerDemand,ItalyPowerDemand~drop40,ItalyPowerDemand~drop80,ItalyPowerDemand~early25"
    run = assay.run(Irregular(names), get_model("knn"), into=tmp_path / "r")
    tables = analyses.curves(Runs([run]))
    assert [t.name for t in tables] == ["curves_drop", "curves_early"]
    assert tables[1].frame["irregularity"].to_list() == [0.0, 0.75]
    values = tables[0].frame.sort("irregularity")["accuracy"].to_list()
    assert values[0] > values[-1]
    assert "Spearman -1.00" in tables[0].notes[0]


def test_recipes_convert_and_describe(tmp_path, folder):
    recipes.convert(tmp_path, dataset="Garment", source=folder, format="csv")
    csv = str(tmp_path / "Garment.csv")
    out = tmp_path / "again"
    out.mkdir()
    recipes.convert(out, csv=csv, static=("class_default", "split_default"))
    from assay.learning.irregular.files import read_hdf5

    assert (read_hdf5(out / "Garment.h5").data == read_hdf5(Path(folder) / "Garment.h5").data).all()
    recipes.describe(out, datasets="Garment,Vehicles", source=folder)
    assert "No fault was found" in (out / "report.md").read_text()
    with pytest.raises(UsageError, match="Give either"):
        recipes.convert(tmp_path)
    with pytest.raises(UsageError, match="format"):
        recipes.convert(tmp_path, dataset="Garment", source=folder, format="xls")  # type: ignore[arg-type]


def cells(**accuracy):
    made = []
    for d in range(10):
        for m in reproduce.MODELS:
            value = accuracy.get(m, 0.5) + 0.001 * d
            made.append(reproduce.Cell(m, f"set{d}", value, value, 50, 100, 60.0 if m in reproduce.DEEP else 1.0, 0.1))
    return made


def test_reproduction_judges_both_ways():
    names = [f"set{d}" for d in range(10)]
    good, mean = reproduce.judge(cells(rocket=0.9), names)
    assert [c.holds for c in good] == [True, True]
    assert mean["rocket"] == 1.0
    bad, _ = reproduce.judge(cells(rocket=0.1), names)
    assert not bad[0].holds
    assert "FAIL" in reproduce.report(cells(rocket=0.1), names, 1.0)
    failed = reproduce.Cell("knn", "set0", float("nan"), float("nan"), 0, 0, float("nan"), float("nan"), "Boom: no")
    listed = [failed if (c.model, c.dataset) == ("knn", "set0") else c for c in cells(rocket=0.9)]
    assert "knn failed on set0: Boom: no" in reproduce.report(listed, names, 1.0)


def test_knn_has_the_published_accuracy_on_the_two_packaged_sets():
    pytest.importorskip("aeon")
    for name, value, room in (("JapaneseVowels", 0.96, 0.01), ("PickupGestureWiimoteZ", 0.62, 0.04)):
        row = reproduce.measure(f"knn|{name}|0")
        assert abs(row["accuracy"] - value) <= room


@pytest.mark.slow
def test_the_benchmark_keeps_the_rules(registered):
    from assay.core.testing import check_benchmark

    check_benchmark("irregular", options={"datasets": "Abf"})
