"""Analyses of runs: error by system, ranks over problems, and whether the path variance tells the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.metrics import evaluate, mean
from assay.core.stats.ranks import average_ranks, friedman
from assay.core.table import Chart, Table

if TYPE_CHECKING:
    from assay.core.results import Runs


def table(runs: Runs, *, score: str = "squared_error") -> Table:
    """Mean of a score over seeds with its interval, by system and problem."""
    frame = _records(runs, score)
    rows = []
    for (system, task, sample), part in frame.sort("task", "sample").group_by(
        "system", "task", "sample", maintain_order=True
    ):
        found = evaluate(mean(score, error=None), part, resample="attempts")
        seconds = part["fit_seconds"].mean() if "fit_seconds" in part.columns else None
        rows.append(
            {"system": system, "task": task, "sample": sample, score: found.value, "low": found.low,
             "high": found.high, "seeds": found.n, "failed": int(part[score].null_count()), "fit_seconds": seconds}
        )  # fmt: skip
    return Table(
        "table",
        f"{score} over seeds",
        pl.DataFrame(rows),
        ["95 % interval over seeds (data and training); failed seeds are counted, not averaged."],
        Chart("interval", x=score, y="system", low="low", high="high", facet="sample"),
        dict.fromkeys((score, "low", "high", "fit_seconds"), ".3g"),
    )


def ranking(runs: Runs, *, score: str = "abs_error") -> Table:
    """Rank of each system's median over seeds on each problem, averaged, with Friedman's test; failures rank last."""
    frame = _records(runs, score)
    wide = (
        frame.group_by("sample", "system")
        .agg(pl.col(score).median())
        .pivot("system", index="sample", values=score)
        .sort("sample")
    )
    systems = [c for c in wide.columns if c != "sample"]
    if len(systems) < 2 or wide.height < 2:
        raise UsageError("Ranks need at least two systems and two problems.")
    scores = wide.select(systems).to_numpy().astype(float)
    test = friedman(scores, higher_is_better=False)
    found = pl.DataFrame(
        {"system": systems, "mean_rank": average_ranks(scores, higher_is_better=False),
         f"median_{score}": np.nanmedian(scores, 0)}
    ).sort("mean_rank")  # fmt: skip
    return Table(
        "ranking",
        f"Mean rank by {score}",
        found,
        [f"Medians over seeds, {wide.height} problems. Friedman: chi-square {test.statistic:.2f}, p = {test.p:.3g}; "
         f"Iman and Davenport's F p = {test.f_p:.3g}."],
        Chart("bar", x="system", y="mean_rank"),
        {"mean_rank": ".2f", f"median_{score}": ".3g"},
    )  # fmt: skip


def variance(runs: Runs, *, score: str = "squared_error") -> Table:
    """Spearman's correlation, within each problem and over all, of path variance and mean error of systems on paths."""
    from scipy.stats import rankdata, spearmanr

    frame = _records(runs, score)
    if "path_variance" not in frame.columns:
        raise UsageError("These runs have no path variance; give runs of method:minpv and method:d3re.")
    cells = (
        frame.drop_nulls(["path_variance", score])
        .group_by("sample", "system")
        .agg(pl.col("path_variance").mean(), pl.col(score).mean())
        .sort("sample", "system")
    )
    rows, first, second = [], [], []
    for (sample,), part in cells.group_by("sample", maintain_order=True):
        if part.height < 3:
            continue
        v, e = part["path_variance"].to_numpy(), part[score].to_numpy()
        rows.append({"sample": sample, "systems": part.height, "spearman": float(spearmanr(v, e)[0])})  # pyright: ignore[reportArgumentType]
        first.extend(rankdata(v) / len(v))
        second.extend(rankdata(e) / len(e))
    if not rows:
        raise UsageError("A correlation needs at least three systems with a path on one problem.")
    pooled = float(np.corrcoef(first, second)[0, 1])
    return Table(
        "variance",
        f"Path variance against {score}",
        pl.DataFrame(rows),
        [f"Over all problems, on ranks within each: {pooled:.2f}."],
        Chart("bar", x="sample", y="spearman"),
        {"spearman": ".2f"},
    )


def _records(runs: Runs, score: str) -> pl.DataFrame:
    frame = runs.labelled()
    if score not in frame.columns or not frame[score].dtype.is_numeric():
        raise UsageError(f"There is no score {score!r} in these runs; squared_error, abs_error, nll, say.")
    # A task that does not have the score would count as a failure on every problem.
    has = frame.group_by("task").agg(pl.col(score).is_not_null().any().alias("has")).filter("has")["task"]
    return frame.filter(pl.col("task").is_in(has.to_list()))
