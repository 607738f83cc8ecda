"""seismic_ctf: whole runs, hidden truth, submissions, analyses, makers, sparse sensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import assay
from assay.core.errors import DataError, UsageError
from assay.core.registry import benchmark_entries
from assay.core.results import Runs
from assay.report.figures import to_svg
from assay.science.seismic_ctf import analyses, figures
from assay.science.seismic_ctf.benchmark import SEEDS, SeismicCTF, seed_of
from assay.science.seismic_ctf.data import CTFDataset
from assay.science.seismic_ctf.methods import build
from assay.science.seismic_ctf.reproduce import judge, values
from assay.science.seismic_ctf.tuning import parse_space, search


@pytest.fixture(scope="module", autouse=True)
def _entry(tmp_path_factory):
    """The entry points, where the package's own are not there yet."""
    with pytest.MonkeyPatch.context() as patch:
        known = benchmark_entries()
        wanted = {
            "seismic_ctf": "assay.science.seismic_ctf.benchmark:SeismicCTF",
            "seismic_ctf-sensors": "assay.science.seismic_ctf.sensing:SparseSensing",
        }
        lacking = {name: at for name, at in wanted.items() if name not in known}
        if lacking:
            info = tmp_path_factory.mktemp("entry") / "seismic_ctf-0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: seismic_ctf\nVersion: 0\n")
            lines = [f"{name} = {at}" for name, at in lacking.items()]
            (info / "entry_points.txt").write_text("[assay.benchmarks]\n" + "\n".join(lines) + "\n")
            patch.syspath_prepend(str(info.parent))
        yield


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A complete small data set, made by the recipe."""
    out = tmp_path_factory.mktemp("made") / "sea"
    assay.make("seismic_ctf.generate", out, kind="sea", sensors=24, rows="90,40,30", seed=3)
    return out


class Explodes:
    """A forecaster that fails on some pairs."""

    def fit(self, train, init=None, times=None):
        self.width, self.bad = train[0].shape[1], len(train) > 1
        self.rows = len(times.test)
        return self

    def predict(self, times):
        if self.bad:
            raise FloatingPointError("too large")
        return np.full((len(times), self.width), np.inf if len(times) == 90 else 0.0)


class Turned(Explodes):
    """A forecaster that has its matrix the wrong way round."""

    def predict(self, times):
        return np.zeros((self.width, len(times)))


@pytest.fixture(scope="module")
def runs(small, tmp_path_factory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    options = {"data": str(small)}
    return Runs(
        [
            assay.run("seismic_ctf", f"method:{name}", options=options, attempts=3, into=folder / str(i), workers=0)
            for i, name in enumerate(("zeros", "average", "esn?rank=8&units=80", "random"))
        ]
    )


def values_of(run) -> dict[str, float]:
    return {score.metric: score.value for score in run.scores() if not score.by}


def test_zeros_score_zero_and_records_carry_everything(runs):
    found = values_of(runs[0])
    assert set(found) == {"AvgScore", *(f"E{i}" for i in range(1, 13))}
    assert set(found.values()) == {0.0}
    assert runs[0].records.height == 27
    row = runs[0].records.filter(pl.col("sample") == "pair1").to_dicts()[0]
    assert (row["pair"], row["ability"], row["status"], row["short_raw"]) == (1, "forecast", "ok", 0.0)


def test_a_run_scores_what_the_library_scores(runs, small):
    data = CTFDataset.load("sea", small)
    pair = data.pair(8)
    model = build("esn", rank=8, units=80, random_state=SEEDS[1]).fit(pair.train, pair.init, pair.times)
    want = data.score(8, model.predict(pair.test_times).astype(np.float64))["E11"]
    row = runs[2].records.filter((pl.col("sample") == "pair8") & (pl.col("attempt") == 1))
    assert row["short_raw"].item() == pytest.approx(want, abs=1e-9)


def test_average_is_the_mean_of_twelve(runs):
    found = values_of(runs[2])
    assert found["AvgScore"] == pytest.approx(np.mean([found[f"E{i}"] for i in range(1, 13)]), abs=1e-9)


def test_seeds_are_the_frameworks():
    assert [seed_of(i) for i in (0, 1, 9, 10, 12)] == [42, 123, 1618, 1000, 1002]


def test_what_fails_counts_minus_hundred_in_its_own_scores_only(small, tmp_path):
    run = assay.run(SeismicCTF(str(small), datasets="sea"), Explodes(), attempts=1, into=tmp_path / "r", workers=0)
    found = {s.metric: s.value for s in run.scores(metrics=SeismicCTF.metrics) if not s.by}
    assert [found[f"E{i}"] for i in (3, 5, 11, 12)] == [-100.0] * 4
    assert [found[f"E{i}"] for i in (1, 2, 4, 6, 7, 8, 9, 10)] == [0.0] * 8
    assert found["AvgScore"] == pytest.approx(-400 / 12)
    ended = dict(run.records.select("pair", "ended").iter_rows())
    assert (ended[2], ended[8], ended[1]) == ("not finite", "failed", "ok")
    turned = assay.run(
        SeismicCTF(str(small), datasets="sea", pairs="1"), Turned(), attempts=1, into=tmp_path / "t", workers=0
    )
    assert "not (30, 24)" in turned.output("sea", "pair1")["failed"]


def test_truth_stays_with_the_referee(small, tmp_path):
    assay.make(
        "seismic_ctf.package", tmp_path / "given", data=str(small), datasets="sea", truth=str(tmp_path / "secret")
    )
    assert not list((tmp_path / "given").rglob("*test*"))
    assert (tmp_path / "secret/sea").stat().st_mode & 0o077 == 0
    mine = assay.run("seismic_ctf", "method:last", options={"data": str(tmp_path / "given")}, attempts=2,
                     into=tmp_path / "mine", workers=0)  # fmt: skip
    assert set(mine.records["status"]) == {"unscored"}
    assert set(mine.samples["target"].to_list()) == {None}
    with pytest.raises(UsageError, match="hidden"):
        analyses.leaderboard(Runs([mine]))
    judged = assay.rescore(mine, options={"truth": str(tmp_path / "secret")}, into=tmp_path / "judged", workers=0)
    open_run = assay.run("seismic_ctf", "method:last", options={"data": str(small)}, attempts=2, into=tmp_path / "o",
                         workers=0)  # fmt: skip
    assert values_of(judged) == pytest.approx(values_of(open_run), abs=1e-4)
    with pytest.raises(UsageError, match="lies inside"):
        assay.make(
            "seismic_ctf.package", tmp_path / "g2", data=str(small), datasets="sea", truth=str(tmp_path / "g2/t")
        )


def test_a_folder_of_predictions_is_a_submission(small, runs, tmp_path):
    data = CTFDataset.load("sea", small)
    for number in range(1, 10):
        np.save(tmp_path / f"pair{number}.npy", np.zeros(data.pair(number).shape, np.float32))
    options = {"data": str(small)}
    run = assay.run(
        "seismic_ctf", f"submission:{tmp_path}", options=options, attempts=1, into=tmp_path / "run", workers=0
    )
    assert set(values_of(run).values()) == {0.0}
    np.save(tmp_path / "pair4.npy", np.zeros((3, 3)))
    with pytest.raises(DataError, match=r"pair4\.npy"):
        assay.run("seismic_ctf", f"submission:{tmp_path}", options=options, attempts=1, into=tmp_path / "r2", workers=0)


def test_a_run_folder_cannot_name_the_truth_as_its_prediction(small, runs, tmp_path):
    import shutil

    shutil.copytree(runs[0].path, tmp_path / "cheat")
    truth = str(small / "sea/test/X1test.npz")
    records = pl.read_parquet(tmp_path / "cheat/records.parquet")
    forged = json.dumps({"predictions": "predictions.npy", "file": truth})
    records.with_columns(output=pl.lit(forged)).write_parquet(tmp_path / "cheat/records.parquet")
    run = assay.run("seismic_ctf", f"submission:{tmp_path / 'cheat'}", options={"data": str(small), "seeds": 3},
                    into=tmp_path / "judged", workers=0)  # fmt: skip
    assert set(values_of(run).values()) == {0.0}


def test_a_board_judges_hidden_truth(small, tmp_path):
    from assay.server.boards import referee

    assay.make(
        "seismic_ctf.package", tmp_path / "given", data=str(small), datasets="sea", truth=str(tmp_path / "secret")
    )
    data = CTFDataset.load("sea", small)
    (tmp_path / "mine").mkdir()
    for number in range(1, 10):
        np.save(tmp_path / f"mine/pair{number}.npy", data.truth(number))
    public = {"data": str(tmp_path / "given"), "seeds": 1}
    checked = referee.check(SeismicCTF(**public), tmp_path / "mine")
    assert not checked.faults
    sealed = {"truth": str(tmp_path / "secret")}
    run = referee.score("seismic_ctf", public, sealed, checked, "team", tmp_path / "judged")
    assert set(values_of(run).values()) == {100.0}
    np.save(tmp_path / "mine/pair2.npy", np.zeros((1, 1)))
    (tmp_path / "mine/pair9.npy").unlink()
    faults = referee.check(SeismicCTF(**public), tmp_path / "mine").faults
    assert any("pair2.npy" in fault for fault in faults)


def test_a_csv_is_a_submission_of_few_features(tmp_path):
    assay.make("seismic_ctf.generate", tmp_path / "data", kind="lorenz", rows="60,20,30")
    data = CTFDataset.load("lorenz", tmp_path / "data")
    lines = ["id,pair_id,timestep,x,y,z"]
    for number in range(1, 10):
        for t, row in enumerate(data.truth(number)):
            lines.append(f"{number}_{t},{number},{t}," + ",".join(map(repr, map(float, row))))
    (tmp_path / "s.csv").write_text("\n".join(lines))
    run = assay.run("seismic_ctf", f"submission:{tmp_path / 's.csv'}", attempts=1, into=tmp_path / "r", workers=0,
                    options={"data": str(tmp_path / "data"), "datasets": "lorenz"})  # fmt: skip
    assert set(values_of(run).values()) == {100.0}


def test_leaderboard_means_and_spread(runs):
    board = analyses.leaderboard(runs)
    assert board.frame.columns[:3] == ["rank", "system", "avg_score"]
    rows = {row["system"]: row for row in board.rows()}
    zero = rows["method:zeros"]
    assert (zero["avg_score"], zero["E1 mean"], zero["E12 std"], zero["low"], zero["high"]) == (0, 0, 0, 0, 0)
    scores = analyses.Scores(runs)
    spread = rows["method:random"]
    i = scores.systems.index("method:random")
    assert spread["E9 std"] == pytest.approx(np.std(scores.values[i, 8]))
    assert spread["low"] < spread["avg_score"] < spread["high"]


def test_tables_and_figures_of_runs(runs, tmp_path):
    for name in ("heatmap", "abilities", "agreement", "published"):
        (table,) = assay.analyze(f"seismic_ctf.{name}", runs)
        assert table.frame.height > 3
    ranking, signs = assay.analyze("seismic_ctf.ranking", runs)
    assert ranking.frame["chance_of_first"].sum() >= 1 - 1e-9
    assert signs.frame.height == 6
    with pytest.raises(UsageError, match="at least two"):
        analyses.ranking(runs[:1])
    folders = ",".join(str(run.path) for run in runs)
    assay.make("seismic_ctf.figures", tmp_path, runs=folders)
    names = {p.name for p in tmp_path.iterdir()}
    assert {"radar.svg", "heatmap.svg", "pair1-psd.svg", "pair9-2d_comparison.svg", "leaderboard.tex"} <= names
    assert "method:esn" in (tmp_path / "pair1-psd.svg").read_text()


def test_a_radar_puts_zero_on_its_ring_and_refuses_less():
    scores = {"a": {f"E{i}": 0.0 for i in range(1, 13)}, "b": {f"E{i}": 100.0 for i in range(1, 13)}}
    spec = figures.radar(scores)
    points = spec["layer"][2]["data"]["values"]
    assert all(np.hypot(p["x"], p["y"]) == pytest.approx({"a": 50, "b": 100}[p["system"]]) for p in points)
    assert to_svg(spec).startswith("<svg")
    for bad in ({}, {"a": {"E1": 1.0}}, {"a": scores["a"], "b": {"E1": 0.0}}):
        with pytest.raises(UsageError):
            figures.radar(bad)


def test_search_finds_the_better_settings_and_goes_on_after_a_break(small, tmp_path):
    pair = CTFDataset.load("sea", small).pair(2)
    space = parse_space('{"rank": {"type": "choice", "choices": [1, 30]}}')
    log = tmp_path / "log.jsonl"
    found = search("hodmd", pair, space, trials=6, log=log)
    assert found.settings == {"rank": 30}
    lines = log.read_text().splitlines()
    log.write_text("\n".join(lines[:3]) + '\n{"tri')
    assert search("hodmd", pair, space, trials=6, log=log) == found
    assert log.read_text().splitlines() == lines
    with pytest.raises(DataError, match="another search"):
        search("hodmd", pair, space, trials=6, log=log, seed=9)
    with pytest.raises(UsageError, match="All 2 trials failed"):
        search(lambda **_: Explodes(), CTFDataset.load("sea", small).pair(8), space, trials=2)


def test_the_maker_of_searches_writes_settings(small, tmp_path):
    assay.make("seismic_ctf.tune", tmp_path, method="dmd", data=str(small), dataset="sea", pairs="1,8", trials=2,
               space='{"rank": {"type": "randint", "lower_bound": 2, "upper_bound": 9}}')  # fmt: skip
    found = json.loads((tmp_path / "settings.json").read_text())
    assert set(found) == {"pair1", "pair8"}


def test_claims_are_judged_by_their_numbers():
    rows = []
    for method in ("zeros", "average", "last", "random", "esn", "dmd", "hodmd", "optdmd", "lstm"):
        for attempt in range(3):
            level = 0.0 if method in ("zeros", "average") else 30.0 if method == "esn" else -20.0
            rows.append({"method": method, "attempt": attempt, "clipped": {f"E{i}": level for i in range(1, 13)}})
    holds = [claim.holds for claim in judge(values(rows, 3))]
    assert holds == [True, True, True, True, False]


def test_sparse_sensors_run_and_more_of_them_see_more(small, tmp_path):
    options = {"data": str(small), "sensors": "2,20", "placements": "qr,grid"}
    runs = [
        assay.run("seismic_ctf-sensors", f"method:{name}", options=options, attempts=2, into=tmp_path / name, workers=0)
        for name in ("gappy_pod", "mean")
    ]
    table = assay.analyze("seismic_ctf-sensors.budget", runs)[0]
    score = {(r["system"], r["sensors"]): r["score"] for r in table.rows()}
    assert score["method:gappy_pod", 20] > score["method:gappy_pod", 2] > score["method:mean", 2] - 1e-9
    with pytest.raises(UsageError, match="star"):
        assay.run("seismic_ctf-sensors", "method:mean", options={**options, "placements": "star"}, into=tmp_path / "x")


def test_bad_options_are_refused(small):
    for options, words in (
        ({"datasets": "tide"}, "generated data set"), ({"datasets": "sea,sea"}, "each once"),
        ({"datasets": "globe"}, "read from a folder"),
        ({"data": str(small), "pairs": "3-1"}, "backwards"), ({"data": str(small), "pairs": "12"}, "Pair 12"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            list(SeismicCTF(**options).tasks()[0].samples())
    with pytest.raises(UsageError, match="three numbers"):
        assay.make("seismic_ctf.generate", small.parent / "n", kind="sea", rows="3,4")
