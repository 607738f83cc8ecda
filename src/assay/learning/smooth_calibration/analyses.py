"""Analyses of runs: tables, the trend in the training size, traces, the bounds checked, ranks, witnesses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.metrics import evaluate, mean
from assay.core.results import labels
from assay.core.stats.ranks import critical_difference
from assay.core.stats.trends import jonckheere
from assay.core.table import Chart, Table

if TYPE_CHECKING:
    from assay.core.results import Runs

TOLERANCE = 1e-9
LOWER = ("smce", "smce_dual", "smece", "ece15", "mmce", "brier", "loss")
SMALL = ".4f"


def table(runs: Runs, *, score: str = "smce") -> Table:
    """Mean of a score over splits, by system, data set and training size, with intervals over splits."""
    frame = _records(runs)
    _known(frame, score)
    metric = mean(score, higher_is_better=score == "accuracy", error=None)
    rows = []
    for (system, data, n), part in _groups(frame, "system", "data", "n_train"):
        found = evaluate(metric, part, resample="attempts")
        rows.append(
            {
                "system": system,
                "data": data,
                "n": n,
                score: found.value,
                "low": found.low,
                "high": found.high,
                "splits": found.n,
                "failed": int(part[score].null_count()),
            }
        )
    return Table(
        "table",
        f"{score} by training size",
        pl.DataFrame(rows),
        ["Mean over splits with its 95 % interval over splits; failed splits are counted, not averaged."],
        Chart("line", x="n", y=score, color="system", low="low", high="high", facet="data", log_x=True),
        {score: SMALL, "low": SMALL, "high": SMALL},
    )


def trend(runs: Runs, *, score: str = "smce") -> Table:
    """Does a score fall with the training size? Jonckheere's one-sided test over splits, per system and data set."""
    frame = _records(runs)
    _known(frame, score)
    rows = []
    for (system, data), part in _groups(frame, "system", "data"):
        held = part.drop_nulls(score)
        sizes = sorted(held["n_train"].unique().to_list())
        if len(sizes) < 2:
            continue
        groups = [held.filter(pl.col("n_train") == n)[score].to_numpy() for n in sizes]
        found = jonckheere(groups, alternative="increasing" if score == "accuracy" else "decreasing")
        first, last = float(groups[0].mean()), float(groups[-1].mean())
        rows.append(
            {
                "system": system,
                "data": data,
                "sizes": ", ".join(map(str, sizes)),
                "smallest_n": first,
                "largest_n": last,
                "z": found.z,
                "p": found.p,
                "splits": held.height,
            }
        )
    if not rows:
        raise UsageError("A trend needs at least two training sizes a data set; run with more sizes.")
    return Table(
        "trend",
        f"Does {score} {'rise' if score == 'accuracy' else 'fall'} with the training size?",
        pl.DataFrame(rows),
        ["Jonckheere-Terpstra test, one-sided, splits as independent draws; splits of one fixed data set overlap."],
        None,
        {"smallest_n": SMALL, "largest_n": SMALL, "p": ".2g", "z": ".2f"},
    )


def trace(runs: Runs, *, score: str = "smce", data: str | None = None) -> Table:
    """A score against the stage of training, mean over splits, train and test."""
    frame = runs.labelled(rows=True)
    if frame.is_empty():
        raise UsageError("These runs hold no traces.")
    _known(frame, score)
    if data is not None:
        frame = frame.filter(pl.col("data") == data)
        if frame.is_empty():
            raise UsageError(f"No run holds a trace of data set {data!r}.")
    found = (
        frame.group_by("system", "data", "n_train", "split", "t")
        .agg(pl.col(score).mean(), pl.len().alias("splits"))
        .sort("system", "data", "n_train", "split", "t")
        .with_columns(
            pl.format("{}, {}", "system", "split").alias("curve"),
            pl.format("{}, n = {}", "data", "n_train").alias("set"),
        )
    )
    return Table(
        "trace",
        f"{score} by stage of training",
        found,
        ["Mean over the splits that kept the stage."],
        Chart("line", x="t", y=score, color="curve", facet="set", log_x=True, x_title="stage"),
        {score: SMALL},
    )


def bounds(runs: Runs) -> Table:
    """The inequalities of the analysis, checked on every split: where they hold, and by how much."""
    frame = _records(runs)
    rows = []
    for (system, data, n), part in _groups(frame, "system", "data", "n_train"):
        held = part.drop_nulls("excess")
        bounded = held.drop_nulls("bound")
        rows.append(
            {
                "system": system,
                "data": data,
                "n": n,
                "splits": held.height,
                "largest_excess": held["excess"].max(),
                "dual_below_gradient": int((held["excess"] <= TOLERANCE).sum()),
                "margin": bounded["margin"].min(),
                "mean_gradient": bounded["mean_grad_l1"].mean(),
                "bound": bounded["bound"].mean(),
                "bounded": bounded.height,
                "gradient_below_bound": int((bounded["mean_grad_l1"] <= bounded["bound"]).sum()),
            }
        )
    return Table(
        "bounds",
        "Dual smooth error below the L1 gradient at every stage; mean gradient below its training bound",
        pl.DataFrame(rows),
        [
            "largest_excess: largest smce_dual minus L1 gradient over all stages and splits, at most rounding.",
            "bound uses the least margin measured on the split; only the three trainers of the analysis have one, the "
            "network only where every step descended.",
        ],
        None,
        {"largest_excess": ".1e", "margin": ".3f", "mean_gradient": SMALL, "bound": SMALL},
    )


def ranks(runs: Runs, *, score: str = "smce") -> Table:
    """Average ranks of systems over data sets and training sizes (means over splits); a failure is the worst rank."""
    frame = _records(runs)
    _known(frame, score)
    cells = (
        # A system that failed on any split of a cell has failed there.
        frame.group_by("data", "n_train", "system")
        .agg(pl.when(pl.col(score).is_null().any()).then(None).otherwise(pl.col(score).mean()).alias("value"))
        .sort("data", "n_train")
    )
    wide = cells.pivot("system", index=["data", "n_train"], values="value")
    systems = [c for c in wide.columns if c not in ("data", "n_train")]
    if len(systems) < 2:
        raise UsageError("Ranks compare systems; give the runs of at least two.")
    scores = wide.select(systems).cast(pl.Float64).to_numpy()
    found = critical_difference(scores, systems, higher_is_better=score == "accuracy", method="nemenyi")
    failures = {s: int(np.isnan(scores[:, i]).sum()) for i, s in enumerate(systems)}
    rows = [
        {"system": name, "rank": rank, "failed": failures[name], "cd": found.distance}
        for name, rank in zip(found.names, found.ranks, strict=True)
    ]
    p = found.friedman.p
    return Table(
        "ranks",
        f"Average rank by {score}",
        pl.DataFrame(rows),
        [
            f"{wide.height} data sets x sizes; Friedman p = {p:.2g}." if not math.isnan(p) else "All systems tie.",
            "Sizes of one data set are not independent: take p and the critical difference as descriptions.",
            "failed: cells with a failed or errored split; they share the worst rank.",
        ],
        Chart("critical_difference", x="rank", y="system", high="cd"),
        {"rank": ".2f", "cd": ".2f"},
    )


def witness(runs: Runs, *, data: str | None = None, n: int | None = None) -> Table:
    """The witness of the first split: above 0 the system is too low there, below 0 too high."""
    rows = []
    for name, run in zip(labels(list(runs)), runs, strict=True):
        frame = run.records.filter(pl.col("status") == "ok", pl.col("attempt") == 0)
        if data is not None:
            frame = frame.filter(pl.col("data") == data)
        if n is not None:
            frame = frame.filter(pl.col("n_train") == n)
        for record in frame.iter_rows(named=True):
            output = run.output(record["task"], record["sample"], record["attempt"])
            if output:
                rows += [
                    {"system": name, "set": f"{record['data']}, n = {record['n_train']}", **point}
                    for point in output["witness"]
                ]
    if not rows:
        raise UsageError("No finished trial fits; see the groups data and n_train of the runs.")
    return Table(
        "witness",
        "Where predictions are wrong: witness of the smooth calibration error on the test part",
        pl.DataFrame(rows),
        ["First split. The error is the mean of witness times (label - prediction)."],
        Chart("line", x="at", y="witness", color="system", facet="set", x_title="predicted probability"),
        {"at": ".3f", "witness": ".3f"},
    )


def _records(runs: Runs) -> pl.DataFrame:
    frame = runs.labelled()
    if "excess" not in frame.columns:
        raise UsageError("No trial of these runs finished; see their errors with `assay report`.")
    return frame


def _known(frame: pl.DataFrame, score: str) -> None:
    if score not in frame.columns or not frame[score].dtype.is_numeric():
        raise UsageError(f"There is no score {score!r} in these runs; there are {', '.join((*LOWER, 'accuracy'))}.")


def _groups(frame: pl.DataFrame, *by: str):
    return frame.sort(*by).group_by(*by, maintain_order=True)
