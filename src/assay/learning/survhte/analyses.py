"""Tables from runs: rankings over data sets, families, bias, convergence, failures, curves of effects.

A method that failed on any attempt of a data set, or has no record there, shares the worst ranks of that data set; how
often is a column of every ranking.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import polars as pl

from assay.core.datasets.readers import guarded
from assay.core.errors import UsageError, unknown_name
from assay.core.registry import load_benchmark
from assay.core.results import Run, Runs, labels
from assay.core.stats import ranks as ranking_statistics
from assay.core.table import Chart, Table
from assay.learning.survhte.registry import family

Score = Literal["mse", "mse_exact"]
Per = Literal["dataset", "attempt"]


class Grid:
    """Errors of systems on data sets: ``values`` (data sets, systems), NaN where a system failed."""

    def __init__(self, runs: Runs, score: str, task: str | None, per: str) -> None:
        records = _records(runs, task)
        if score not in records.columns:
            raise unknown_name("score", score, [c for c in records.columns if records[c].dtype == pl.Float64])
        if per not in ("dataset", "attempt"):
            raise UsageError(f"Option per={per!r}: ranks are formed per dataset or per attempt.")
        known = records.filter(pl.col("truth") != "unknown")
        if known.is_empty():
            raise UsageError("No data set in these runs has a known truth, so there is nothing to rank by.")
        key = ["task", "sample"] + (["attempt"] if per == "attempt" else [])
        cells = known.group_by([*key, "system"]).agg(
            pl.col(score).mean().alias("value"), (pl.col(score).is_null()).sum().alias("lost")
        )
        self.systems = sorted(cells["system"].unique())
        self.rows = cells.select(key).unique().sort(key)
        self.values = np.full((self.rows.height, len(self.systems)), np.nan)
        place = {row: i for i, row in enumerate(self.rows.rows())}
        column = {name: i for i, name in enumerate(self.systems)}
        for row in cells.iter_rows(named=True):
            if not row["lost"] and row["value"] is not None:
                self.values[place[tuple(row[k] for k in key)], column[row["system"]]] = row["value"]
        self.failed = np.isnan(self.values)

    @property
    def names(self) -> list[str]:
        """Data sets (and attempts) as text."""
        return [" ".join(str(part) for part in row[1:]) for row in self.rows.rows()]

    @property
    def notes(self) -> list[str]:
        """What every ranking says."""
        lost = int(self.failed.sum())
        return [
            f"{len(self.systems)} systems on {len(self.values)} data sets; a failure shares the worst ranks of its "
            "data "
            f"set ({lost} of {self.values.size} cells failed)."
        ]


def _records(runs: Runs, task: str | None) -> pl.DataFrame:
    names = dict(zip((run.id for run in runs), labels(list(runs)), strict=True))
    records = runs.records.with_columns(pl.col("run").replace_strict(names).alias("system"))
    if "failed" not in records.columns:
        raise UsageError("These runs are not of the benchmark survhte.")
    if task is not None:
        tasks = sorted(records["task"].unique())
        if task not in tasks:
            raise unknown_name("task", task, tasks)
        records = records.filter(pl.col("task") == task)
    return records


def ranking(runs: Runs, *, score: Score = "mse", task: str | None = None, per: Per = "dataset") -> list[Table]:
    """Borda ranking: mean rank of each method over data sets; and the rank on each data set.

    Parameters
    ----------
    score
        ``mse`` against individual effects, as published, or ``mse_exact`` against conditional ones.
    per
        Rank the mean over attempts on each ``dataset``, as published, or each ``attempt``.
    """
    grid = Grid(runs, score, task, per)
    table = ranking_statistics.ranks(grid.values, higher_is_better=False)
    points = ranking_statistics.borda(grid.values, higher_is_better=False)
    spread = table.std(axis=0, ddof=1) / np.sqrt(len(table)) if len(table) > 1 else np.full(table.shape[1], np.nan)
    frame = pl.DataFrame(
        {
            "method": grid.systems,
            "family": [family(name) for name in grid.systems],
            "mean_rank": table.mean(axis=0),
            "low": table.mean(axis=0) - 1.96 * spread,
            "high": table.mean(axis=0) + 1.96 * spread,
            "borda_points": points,
            "failed_datasets": grid.failed.sum(axis=0),
            "datasets": [len(table)] * len(grid.systems),
        }
    ).sort("mean_rank", "method")
    cells = pl.DataFrame(
        {
            "method": np.tile(grid.systems, len(table)),
            "dataset": np.repeat(grid.names, len(grid.systems)),
            "rank": table.ravel(),
            score: grid.values.ravel(),
        }
    ).with_columns(pl.col(score).fill_nan(None))
    order = {name: place for place, name in enumerate(frame["method"])}
    cells = cells.sort(pl.col("method").replace_strict(order), "dataset")
    note = "low and high: mean rank -/+ 1.96 standard errors over data sets."
    return [
        Table(
            "ranking", f"Mean rank over data sets by {score}, 1 is best", frame, [*grid.notes, note],
            Chart("interval", x="mean_rank", y="method", low="low", high="high", color="family"),
        ),
        Table(
            "ranks", f"Rank on each data set by {score}", cells, grid.notes,
            Chart("heatmap", x="dataset", y="method", color="rank"), {"rank": ".1f"},
        ),
    ]  # fmt: skip


def families(runs: Runs, *, score: Score = "mse", task: str | None = None, per: Per = "dataset") -> Table:
    """Mean rank of families, each entering every data set with its best member there."""
    grid = Grid(runs, score, task, per)
    of = [family(name) for name in grid.systems]
    names, table = ranking_statistics.family_ranks(grid.values, of, higher_is_better=False)
    frame = pl.DataFrame(
        {"family": names, "mean_rank": table.mean(axis=0), "members": [of.count(name) for name in names]}
    ).sort("mean_rank", "family")
    note = "The best member of a family is chosen by the same numbers that rank it: large families gain by that."
    return Table(
        "families", f"Mean rank of families by {score}, each with its best member on a data set", frame,
        [*grid.notes, note], Chart("bar", x="mean_rank", y="family"),
    )  # fmt: skip


def critical_difference(
    runs: Runs, *, score: Score = "mse", task: str | None = None, alpha: float = 0.05, per: Per = "dataset"
) -> Table:
    """Average ranks with Nemenyi's critical difference."""
    grid = Grid(runs, score, task, per)
    found = ranking_statistics.critical_difference(
        grid.values, grid.systems, higher_is_better=False, alpha=alpha, method="nemenyi"
    )
    frame = pl.DataFrame(
        {
            "method": list(found.names),
            "rank": list(found.ranks),
            "critical_difference": [found.distance] * len(found.names),
        }
    )
    test = f"Friedman's chi-square {found.friedman.statistic:.3g}, p = {found.friedman.p:.2g}."
    return Table(
        "critical_difference", f"Average ranks by {score}; methods closer than the bar are not told apart", frame,
        [*grid.notes, test], Chart("critical_difference", x="rank", y="method", high="critical_difference"),
    )  # fmt: skip


def bias(runs: Runs, *, task: str | None = None, against: Literal["population", "test"] = "population") -> Table:
    """Bias of the average effect on every attempt: against the whole data set, as published, or the tested rows."""
    column = {"population": "ate_bias", "test": "ate_bias_test"}.get(against)
    if column is None:
        raise UsageError(f"Option against={against!r}: bias is against the population or the test rows.")
    records = _records(runs, task).filter(pl.col("truth") != "unknown")
    frame = records.select("system", "sample", "attempt", "config", "scenario", pl.col(column).alias("bias"))
    lost = frame["bias"].null_count()
    return Table(
        "bias", f"Mean estimated effect less the true one ({against})", frame.sort("system", "sample", "attempt"),
        [f"{lost} of {frame.height} attempts failed and have no bias."],
        Chart("box", x="system", y="bias", facet="scenario"),
    )  # fmt: skip


def convergence(runs: Runs, *, score: Literal["rmse", "rmse_exact"] = "rmse_exact", task: str | None = None) -> Table:
    """Error against the number of training rows (``-o n_train=250,1000,4000``)."""
    records = _records(runs, task).filter(pl.col("train").cast(pl.String) != "own")
    if records.is_empty() or records["train"].n_unique() < 2:
        raise UsageError("A curve of convergence needs several training sizes: run with -o n_train=250,1000,4000.")
    frame = (
        records.with_columns(pl.col("train").cast(pl.String).cast(pl.Int64))
        .group_by("system", "dataset", "train")
        .agg(
            pl.col(score).mean(),
            (pl.col(score).std() / pl.col(score).count().sqrt()).alias("se"),
            pl.col(score).is_null().sum().alias("failed"),
            pl.len().alias("attempts"),
        )
        .with_columns(
            (pl.col(score) - 1.96 * pl.col("se")).alias("low"), (pl.col(score) + 1.96 * pl.col("se")).alias("high")
        )
        .sort("dataset", "system", "train")
    )
    return Table(
        "convergence", f"{score} against training rows", frame,
        ["low and high: mean -/+ 1.96 standard errors over attempts; failed attempts are counted and left out."],
        Chart("line", x="train", y=score, color="system", low="low", high="high", facet="dataset", log_x=True,
              log_y=True,
              x_title="training rows"),
    )  # fmt: skip


def explained(runs: Runs, *, task: str | None = None) -> Table:
    """Share of the explainable variance of effects that each method explains, by data set: noise is taken out."""
    records = _records(runs, task).filter(pl.col("truth") == "exact")
    if records.is_empty():
        raise UsageError("No data set in these runs has an exact conditional effect.")
    frame = (
        records.group_by("system", "dataset")
        .agg(
            pl.col("explained").mean(), pl.col("explained").is_null().sum().alias("failed"), pl.len().alias("attempts")
        )
        .sort("dataset", "system")
    )
    return Table(
        "explained", "Share of the variance of true effects that is explained", frame,
        ["1 = no error but noise, 0 = as good as the right constant, below 0 = worse than it."],
        Chart("heatmap", x="dataset", y="system", color="explained"),
    )  # fmt: skip


def failures(runs: Runs, *, task: str | None = None) -> Table:
    """Which methods could not be fitted to which data sets, and why."""
    records = _records(runs, task)
    reason = pl.when(pl.col("status") != "ok").then(pl.col("error")).otherwise(pl.col("failure"))
    frame = (
        records.with_columns(reason.alias("reason"))
        .filter((pl.col("status") != "ok") | (pl.col("failed") == 1))
        .group_by("system", "dataset", "reason")
        .agg(pl.len().alias("attempts"))
        .sort("system", "dataset", "attempts")
    )
    return Table("failures", "Attempts without an estimate", frame, [f"Of {records.height} attempts."])


def curves(runs: Runs, *, sample: str, feature: str, bins: int = 8) -> Table:
    """Mean estimated effect along one covariate of one data set (ACTG 175: ``sample=actg175-HIV1-LC feature=age``).

    Parameters
    ----------
    bins
        Groups of equal size along the covariate.
    """
    if bins < 2:
        raise UsageError(f"Option bins={bins}: a curve needs two groups.")
    rows: list[dict[str, Any]] = []
    for run, label in zip(runs, labels(list(runs)), strict=True):
        bench: Any = load_benchmark(run.benchmark, **run.info["options"])
        source = next((s for s in bench.sources if s.name == sample), None)
        if source is None:
            raise unknown_name("data set", sample, [s.name for s in bench.sources])
        data = source.load()
        if feature not in data.features:
            raise unknown_name(f"covariate of {sample}", feature, data.features)
        both = _effects(run, sample)
        values = data.X[:, list(data.features).index(feature)]
        x, effect = values[both[:, 0].astype(int)], both[:, 1]
        edges = np.unique(np.quantile(x, np.linspace(0, 1, bins + 1)))
        group = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(len(edges) - 2, 0))
        for g in np.unique(group):
            inside = effect[group == g]
            rows.append(
                {"system": label, feature: float(x[group == g].mean()), "effect": float(inside.mean()),
                 "low": float(np.quantile(inside, 0.1)), "high": float(np.quantile(inside, 0.9)), "rows": len(inside)}
            )  # fmt: skip
    return Table(
        "curves", f"Estimated effect along {feature}, {sample}", pl.DataFrame(rows),
        ["Means over tested rows of all attempts; low and high hold the middle 80 % of rows, and are no interval."],
        Chart("line", x=feature, y="effect", color="system", low="low", high="high"),
    )  # fmt: skip


def _effects(run: Run, sample: str) -> np.ndarray:
    """Row numbers and estimated effects of all attempts on a data set; shape (rows, 2)."""
    found = run.records.filter(pl.col("dataset") == sample, pl.col("output").is_not_null())
    paths = [run.path / entry["path"] for entries in found["artifacts"].to_list() for entry in entries or []]
    if not paths:
        raise UsageError(f"{run.id} holds no estimated effects of {sample!r}.")
    with guarded(paths[0], "estimated effects"):
        return np.concatenate([np.load(path, allow_pickle=False) for path in paths])
