"""Tables from runs: leaderboard, heat map, abilities, ranks with their uncertainty, agreement between scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from assay.core.errors import UsageError, unknown_name
from assay.core.results import Runs, labels
from assay.core.stats import ranks as rank_statistics
from assay.core.stats.paired import holm
from assay.core.stats.trends import sign_test
from assay.core.table import Chart, Table
from assay.science.seismic_ctf.benchmark import PAIR_OF
from assay.science.seismic_ctf.scoring import ABILITIES

NAMES = [f"E{i}" for i in range(1, 13)]


class Scores:
    """Clipped scores of systems on one data set: ``values`` of shape (systems, scores, attempts).

    A trial that ended in an error has -100, as in the framework; an attempt that was not tried is NaN.
    """

    def __init__(self, runs: Runs, dataset: str | None = None) -> None:
        records = runs.records
        if "ended" not in records.columns and "pair" not in records.columns:
            raise UsageError("These runs are not of the benchmark seismic_ctf.")
        tasks = sorted(records["task"].unique())
        if dataset is None and len(tasks) > 1:
            raise UsageError(f"These runs have several data sets ({', '.join(tasks)}); choose one with dataset=NAME.")
        if dataset is not None and dataset not in tasks:
            raise unknown_name("data set", dataset, tasks)
        self.dataset = dataset or tasks[0]
        records = records.filter(pl.col("task") == self.dataset)
        self.hidden = records.filter(pl.col("status") == "unscored").height
        records = records.filter(pl.col("status") != "unscored")
        if records.is_empty():
            raise UsageError(f"No trial on {self.dataset!r} is scored: the truth is hidden here.")
        self.systems = labels(list(runs))
        place = {run.id: i for i, run in enumerate(runs)}
        attempts = 1 + max(records["attempt"].to_list())
        self.values = np.full((len(self.systems), 12, attempts), np.nan)
        self.lost = np.zeros(self.values.shape[:2], bool)
        self.failed = 0
        for row in records.iter_rows(named=True):
            lost = row["status"] != "ok" or row.get("ended") in ("failed", "not finite")
            self.failed += lost
            for e, (pair, name) in enumerate(PAIR_OF):
                if pair == row["pair"]:
                    value = row.get(name)
                    self.values[place[row["run"]], e, row["attempt"]] = -100.0 if value is None else value
                    self.lost[place[row["run"]], e] |= lost
        tried = np.asarray(~np.isnan(self.values).all(axis=(0, 2)))
        self.names = [name for name, there in zip(NAMES, tried.tolist(), strict=True) if there]
        self.values, self.lost = self.values[:, tried], self.lost[:, tried]

    @property
    def means(self) -> np.ndarray:
        """Mean over attempts, (systems, scores); NaN where a system was not tried."""
        with np.errstate(invalid="ignore"):
            count = (~np.isnan(self.values)).sum(axis=2)
            total = np.nansum(self.values, axis=2)
            return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def averages(self) -> np.ndarray:
        """AvgScore of each attempt, (systems, attempts); missing scores are -100."""
        return np.nan_to_num(self.values, nan=-100.0).mean(axis=1)

    @property
    def notes(self) -> list[str]:
        """What every table says."""
        found = [f"Data set {self.dataset}; scores clipped to [-100, 100]; mean over {self.values.shape[2]} seeds."]
        if self.failed:
            found.append(f"{self.failed} trials failed or were not finite and count -100.")
        if self.hidden:
            found.append(f"{self.hidden} trials are unscored (truth hidden) and left out.")
        if len(self.names) < 12:
            missing = [n for n in NAMES if n not in self.names]
            found.append(f"Not tried, so the average is over fewer: {', '.join(missing)}.")
        return found


def leaderboard(runs: Runs, *, dataset: str | None = None) -> Table:
    """AvgScore with its interval over seeds, and mean and population standard deviation of every score."""
    s = Scores(runs, dataset)
    attempts = s.values.shape[2]
    avg = s.averages()
    rng = np.random.default_rng(0)
    rows = []
    for i, system in enumerate(s.systems):
        row: dict[str, Any] = {"system": system, "avg_score": float(avg[i].mean())}
        if attempts >= 3 and not np.isnan(s.values[i]).any():
            # Seeds of a pair are drawn anew within the pair: pairs are trained apart.
            drawn = rng.integers(0, attempts, (2000, s.values.shape[1], attempts))
            sampled = np.take_along_axis(s.values[i][None], drawn, axis=2).mean(axis=(1, 2))
            row["low"], row["high"] = (float(q) for q in np.quantile(sampled, [0.025, 0.975]))
        else:
            row["low"] = row["high"] = None
        for j, name in enumerate(s.names):
            row[f"{name} mean"] = float(s.means[i, j])
            whole = attempts >= 3 and not s.lost[i, j] and not np.isnan(s.values[i, j]).any()
            spread = float(np.std(s.values[i, j])) if whole else None
            row[f"{name} std"] = spread
        rows.append(row)
    frame = pl.DataFrame(rows, infer_schema_length=None).sort("avg_score", descending=True)
    frame = frame.with_columns(pl.col("avg_score").rank("min", descending=True).cast(pl.Int64).alias("rank"))
    frame = frame.select("rank", pl.exclude("rank"))
    notes = [
        *s.notes,
        "Interval: bootstrap over seeds within scores; sd: population, of 3 seeds or more that all succeeded.",
    ]
    chart = Chart("interval", "avg_score", "system", low="low", high="high", x_title="AvgScore")
    return Table(
        "leaderboard", f"Leaderboard: {s.dataset}", frame, notes, chart, dict.fromkeys(frame.columns[2:], ".2f")
    )


def heatmap(runs: Runs, *, dataset: str | None = None) -> Table:
    """Mean score of every system in every score."""
    s = Scores(runs, dataset)
    rows = [
        {"system": system, "score": name, "mean": float(s.means[i, j]), "shown": f"{s.means[i, j]:.0f}"}
        for i, system in enumerate(s.systems)
        for j, name in enumerate(s.names)
    ]
    chart = Chart("heatmap", "score", "system", color="mean", label="shown")
    return Table("heatmap", f"Scores: {s.dataset}", pl.DataFrame(rows), s.notes, chart, {"mean": ".1f"})


def abilities(runs: Runs, *, dataset: str | None = None) -> Table:
    """Averages by ability: forecast, noise, limited data, generalisation."""
    s = Scores(runs, dataset)
    rows = []
    for i, system in enumerate(s.systems):
        for ability, numbers in ABILITIES.items():
            chosen = [s.names.index(f"E{n}") for n in numbers if f"E{n}" in s.names]
            if chosen:
                per_seed = np.nan_to_num(s.values[i, chosen], nan=-100.0).mean(axis=0)
                rows.append({"system": system, "ability": ability, "mean": float(per_seed.mean()),
                             "std": float(per_seed.std()) if len(per_seed) >= 3 else None})  # fmt: skip
    chart = Chart("bar", "ability", "mean", color="system")
    return Table("abilities", f"Abilities: {s.dataset}", pl.DataFrame(rows), s.notes, chart, {"mean": ".2f"})


def ranking(runs: Runs, *, dataset: str | None = None) -> list[Table]:
    """Mean rank over the scores with Friedman's test, chance of each rank over seeds, paired sign tests over scores."""
    s = Scores(runs, dataset)
    if len(s.systems) < 2:
        raise UsageError("A ranking needs runs of at least two systems.")
    means = s.means
    mean_ranks = rank_statistics.average_ranks(means.T)
    rng = np.random.default_rng(0)
    attempts = s.values.shape[2]
    filled = np.nan_to_num(s.values, nan=-100.0)
    drawn = rng.integers(0, attempts, (1000, *filled.shape))
    # Both sources of chance: seeds within a score, and the scores themselves.
    sampled = np.stack([np.take_along_axis(filled, d, axis=2).mean(axis=2) for d in drawn])
    picks = rng.integers(0, len(s.names), (1000, len(s.names)))
    averages = np.stack([one[:, pick].mean(axis=1) for one, pick in zip(sampled, picks, strict=True)])
    first = (averages >= averages.max(axis=1, keepdims=True)).mean(axis=0)
    order = np.argsort(mean_ranks)
    frame = pl.DataFrame(
        {
            "system": [s.systems[i] for i in order],
            "mean_rank": mean_ranks[order],
            "avg_score": filled.mean(axis=(1, 2))[order],
            "chance_of_first": first[order],
        }
    )
    notes = [*s.notes, "Chance of being first by AvgScore: bootstrap over seeds and over the scores."]
    if len(s.systems) > 2:
        test = rank_statistics.friedman(means.T)
        notes.append(f"Friedman over scores: chi-square {test.statistic:.2f}, p = {test.p:.2g}.")
    tables = [Table("ranking", f"Ranks: {s.dataset}", frame, notes, Chart("bar", "system", "mean_rank"))]
    rows = []
    for i in range(len(s.systems)):
        for j in range(i + 1, len(s.systems)):
            wins, losses = int((means[i] > means[j]).sum()), int((means[i] < means[j]).sum())
            rows.append({"a": s.systems[i], "b": s.systems[j], "wins": wins, "losses": losses,
                         "p": sign_test(wins, losses) if wins + losses else 1.0})  # fmt: skip
    pairs = pl.DataFrame(rows).with_columns(p_holm=pl.Series(holm([r["p"] for r in rows])))
    tables.append(Table("sign_tests", f"Paired sign tests over scores: {s.dataset}", pairs, ["Ties are left out."]))
    return tables


def agreement(runs: Runs, *, dataset: str | None = None) -> Table:
    """Kendall's tau between the rankings of systems by every two scores: do scores tell the same story?"""
    from scipy.stats import kendalltau

    s = Scores(runs, dataset)
    if len(s.systems) < 3:
        raise UsageError("Agreement of rankings needs runs of at least three systems.")
    means = np.nan_to_num(s.means, nan=-100.0)
    rows = []
    for i, a in enumerate(s.names):
        for j, b in enumerate(s.names):
            found: Any = kendalltau(means[:, i], means[:, j])
            tau = float(found.statistic)
            shown = "" if np.isnan(tau) else f"{tau:.1f}"
            rows.append({"a": a, "b": b, "tau": None if np.isnan(tau) else tau, "shown": shown})
    chart = Chart("heatmap", "a", "b", color="tau", label="shown")
    return Table("agreement", f"Agreement of scores: {s.dataset}", pl.DataFrame(rows), s.notes, chart, {"tau": ".2f"})


def published(runs: Runs, *, dataset: str | None = None) -> Table:
    """AvgScore beside the published one of the same method, where one was quoted."""
    import json
    from pathlib import Path

    from assay.science.seismic_ctf.methods import CATALOGUE

    s = Scores(runs, dataset)
    known = json.loads(Path(__file__).with_name("references.json").read_text(encoding="utf-8"))["datasets"]
    quoted = known.get(s.dataset, {}).get("AvgScore", {})
    titles = {f"method:{name}": entry.title for name, entry in CATALOGUE.items()}
    rows = []
    for i, run in enumerate(runs):
        title = titles.get(run.system.partition("?")[0], run.system)
        rows.append({"system": s.systems[i], "published_as": title, "avg_score": float(s.averages()[i].mean()),
                     "published": quoted.get(title)})  # fmt: skip
    frame = pl.DataFrame(rows, schema_overrides={"published": pl.Float64})
    notes = [*s.notes, "Published values as quoted in references.json; other data, other sizes are not comparable."]
    return Table("published", f"Beside the published table: {s.dataset}", frame, notes)
