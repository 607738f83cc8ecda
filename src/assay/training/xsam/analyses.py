"""Analyses of runs: accuracy, paired tests, overhead, alpha and learning curves by epoch."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Literal

import polars as pl

from assay.core.errors import UsageError
from assay.core.metrics import evaluate, mean
from assay.core.stats.paired import holm
from assay.core.table import Chart, Table

if TYPE_CHECKING:
    from assay.core.results import Runs

CELL = ("data", "noise", "network")


def table(runs: Runs, *, score: str = "last5_mean") -> Table:
    """Mean of a score over seeds with its interval and standard deviation, by system and cell."""
    frame = _records(runs)
    if score not in frame.columns or not frame[score].dtype.is_numeric():
        raise UsageError(f"There is no score {score!r} in these runs; last5_mean, best, valid_accuracy, say.")
    rows = []
    for (system, *cell), part in frame.sort(*CELL).group_by("system", *CELL, maintain_order=True):
        found = evaluate(mean(score, error=None), part, resample="attempts")
        rows.append(
            {
                "system": system,
                **dict(zip(CELL, cell)),
                score: found.value,
                "low": found.low,
                "high": found.high,
                "std": part[score].std(),
                "seeds": found.n,
                "failed": int(part[score].null_count()),
            }
        )
    return Table(
        "table",
        f"{score} over seeds",
        pl.DataFrame(rows),
        ["95 % interval over seeds; std is between seeds; failed seeds are counted, not averaged."],
        Chart("interval", x=score, y="system", low="low", high="high", facet="data"),
        dict.fromkeys((score, "low", "high", "std"), ".2f"),
    )


def significance(
    runs: Runs, *, score: str = "last5_mean", alternative: Literal["two-sided", "greater", "less"] = "two-sided"
) -> Table:
    """Paired Wilcoxon test of every pair of systems over seeds and cells, with Holm's adjustment over pairs."""
    from scipy.stats import wilcoxon

    frame = _records(runs)
    wide = frame.pivot("system", index=["sample", "attempt"], values=score).sort("sample", "attempt")
    systems = [c for c in wide.columns if c not in ("sample", "attempt")]
    if len(systems) < 2:
        raise UsageError("A comparison needs the runs of at least two systems.")
    rows = []
    for a, b in combinations(reversed(systems), 2):
        pairs = wide.select(a, b).drop_nulls()
        gain = (pairs[a] - pairs[b]).to_numpy()
        p = 1.0 if not gain.any() else float(wilcoxon(gain, alternative=alternative)[1])  # pyright: ignore[reportArgumentType]
        rows.append({"system": a, "over": b, "difference": float(gain.mean()), "p": p, "pairs": len(gain)})
    return Table(
        "significance",
        f"Paired difference of {score}",
        pl.DataFrame(rows).with_columns(pl.Series("p_holm", holm([row["p"] for row in rows]))),
        [
            f"Wilcoxon's signed-rank test, {alternative}. Pairs share split, first weights and order of batches; seeds "
            "are what is random."
        ],
        formats={"difference": "+.2f", "p": ".3g", "p_holm": ".3g"},
    )


def overhead(runs: Runs) -> Table:
    """CPU seconds an epoch of every system over the cheapest, in the same cell; searches included."""
    frame = _records(runs).drop_nulls("cpu_seconds_epoch")
    cells = frame.group_by("system", *CELL).agg(
        pl.col("cpu_seconds_epoch").median(), pl.col("seconds_epoch").median(), pl.col("passes").mean()
    )
    found = cells.with_columns(
        (pl.col("cpu_seconds_epoch") / pl.col("cpu_seconds_epoch").min().over(*CELL)).alias("times_cheapest")
    ).sort(*CELL, "cpu_seconds_epoch")
    return Table(
        "overhead",
        "Cost of an epoch",
        found,
        ["Median over seeds of the median epoch after the first; searches for alpha included."],
        Chart("bar", x="system", y="times_cheapest", facet="data"),
        {"cpu_seconds_epoch": ".3g", "seconds_epoch": ".3g", "times_cheapest": ".2f"},
    )


def alpha(runs: Runs) -> Table:
    """Chosen alpha and angle by epoch, mean over seeds: does once an epoch do?"""
    frame = _rows(runs).drop_nulls("alpha")
    if frame.is_empty():
        raise UsageError("No run here searched for alpha; give a run of method:xsam.")
    found = (
        frame.group_by("system", *CELL, "epoch")
        .agg(pl.col("alpha").mean(), pl.col("alpha").std().alias("std"), pl.col("psi").mean())
        .sort("system", *CELL, "epoch")
    )
    return Table(
        "alpha",
        "Alpha by epoch",
        found,
        ["Mean over seeds; psi is the angle, in radians, at the last iteration of the epoch."],
        Chart("line", x="epoch", y="alpha", color="system", facet="data"),
        {"alpha": ".2f", "std": ".2f", "psi": ".3f"},
    )


def curves(runs: Runs, *, score: str = "test_accuracy") -> Table:
    """A column of the epochs (test_accuracy, train_loss, ...), mean over seeds."""
    frame = _rows(runs)
    if score not in frame.columns:
        raise UsageError(f"Epochs have no column {score!r}; test_accuracy, train_loss, say.")
    found = frame.group_by("system", *CELL, "epoch").agg(pl.col(score).mean()).sort("system", *CELL, "epoch")
    return Table(
        "curves",
        f"{score} by epoch",
        found,
        ["Mean over seeds."],
        Chart("line", x="epoch", y=score, color="system", facet="data"),
        {score: ".2f"},
    )


def _records(runs: Runs) -> pl.DataFrame:
    frame = runs.labelled()
    if "last5_mean" not in frame.columns:
        raise UsageError("No training of these runs finished; see their errors with `assay report`.")
    return frame


def _rows(runs: Runs) -> pl.DataFrame:
    frame = runs.labelled(rows=True)
    if frame.is_empty():
        raise UsageError("These runs hold no epochs.")
    return frame.with_columns(pl.col("alpha", "psi").cast(pl.Float64))
