"""Analyses of runs: aggregates, paired gains over one system, learning curves, and what the networks did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.table import Chart, Table
from assay.training.minto.evaluation import aggregate, relative_gain

if TYPE_CHECKING:
    from assay.core.results import Runs

CELL = ("suite", "env")


def table(runs: Runs, *, resamples: int = 2000) -> Table:
    """IQM, median and optimality gap of normalised areas under the curves, environments of a suite pooled."""
    frame = _records(runs)
    rows = []
    for (system, suite), part in frame.group_by("system", "suite", maintain_order=True):
        found = aggregate(_scores(part), np.random.default_rng(0), resamples=resamples)
        rows.append(
            {
                "system": system, "suite": suite, "iqm": found.iqm, "low": found.low, "high": found.high,
                "median": found.median, "optimality_gap": found.optimality_gap, "environments": part["env"].n_unique(),
                "seeds": part["attempt"].n_unique(),
            }
        )  # fmt: skip
    return Table(
        "table",
        "Area under the learning curve, normalised",
        pl.DataFrame(rows),
        ["95 % stratified bootstrap over seeds within environments; failed seeds are left out of all environments."],
        Chart("interval", x="iqm", y="system", low="low", high="high", facet="suite"),
        dict.fromkeys(("iqm", "low", "high", "median", "optimality_gap"), ".3f"),
    )


def gain(runs: Runs, *, over: str | None = None, resamples: int = 2000) -> Table:
    """IQM of each system over that of ``over`` (the first run's), seeds drawn in pairs; pooled and by environment."""
    frame = _records(runs)
    names = list(dict.fromkeys(frame["system"].to_list()))
    base = names[0] if over is None else over
    if base not in names:
        raise UsageError(f"There is no run of {base!r} here; over is one of {', '.join(names)}.")
    if len(names) < 2:
        raise UsageError("A gain needs the runs of at least two systems.")
    rows = []
    for system in names:
        if system == base:
            continue
        for suite in sorted(set(frame["suite"].to_list())):
            both = frame.filter(pl.col("suite") == suite)
            parts = [both.filter(pl.col("system") == name) for name in (system, base)]
            if any(part.is_empty() for part in parts):
                continue
            envs = sorted(set(parts[0]["env"].to_list()) & set(parts[1]["env"].to_list()))
            for label, chosen in [("all", envs), *((e, [e]) for e in envs if len(envs) > 1)]:
                own = [part.filter(pl.col("env").is_in(chosen)) for part in parts]
                keys = own[0].select("env", "attempt").join(own[1].select("env", "attempt"), on=["env", "attempt"])
                own = [part.join(keys, on=["env", "attempt"]) for part in own]
                a, b = (_scores(p) for p in own)
                found = relative_gain(a, b, np.random.default_rng(0), resamples=resamples)
                rows.append(
                    {
                        "system": system, "over": base, "suite": suite, "env": label, "relative": found.relative,
                        "difference": found.difference, "low": found.low, "high": found.high,
                        "chance_above_0": found.chance, "seeds": own[0]["attempt"].n_unique(),
                    }
                )  # fmt: skip
    if not rows:
        raise UsageError("These systems share no task.")
    return Table(
        "gain",
        f"IQM of normalised areas over that of {base}",
        pl.DataFrame(rows),
        ["difference, its 95 % interval and the chance: bootstrap of seeds in pairs. relative = IQM / IQM - 1."],
        Chart("interval", x="difference", y="system", low="low", high="high", facet="env"),
        {"relative": "+.1%", "difference": "+.3f", "low": "+.3f", "high": "+.3f", "chance_above_0": ".3f"},
    )


def curves(runs: Runs, *, score: str = "return") -> Table:
    """A column of the curves (return, train_return, overestimation), mean over seeds with its 95 % interval."""
    frame = _rows(runs)
    if score not in frame.columns:
        raise UsageError(f"Curves have no column {score!r}; return, train_return, q_mean, overestimation, say.")
    found = (
        frame.drop_nulls(score)
        .group_by("system", *CELL, "step")
        .agg(
            pl.col(score).mean(),
            (pl.col(score).std() / pl.len().sqrt() * 1.96).alias("half"),
        )
        .sort("system", *CELL, "step")
        .with_columns((pl.col(score) - pl.col("half")).alias("low"), (pl.col(score) + pl.col("half")).alias("high"))
        .drop("half")
    )
    return Table(
        "curves",
        f"{score} by step",
        found,
        ["Mean over seeds; 95 % normal interval."],
        Chart("line", x="step", y=score, color="system", low="low", high="high", facet="env"),
        {score: ".1f", "low": ".1f", "high": ".1f"},
    )


def values(runs: Runs) -> Table:
    """Mean target value, mean Q, share of online values and overestimation by step, means over seeds."""
    frame = _rows(runs)
    columns = ["target_mean", "q_mean", "online_rate", "overestimation"]
    found = frame.group_by("system", *CELL, "step").agg(pl.col(*columns).mean()).sort("system", *CELL, "step")
    return Table(
        "values",
        "What the networks said, by step",
        found,
        ["online_rate is taken just before a copy, where both networks differ most."],
        Chart("line", x="step", y="online_rate", color="system", facet="env"),
        dict.fromkeys(columns, ".3g"),
    )


def _scores(part: pl.DataFrame) -> np.ndarray:
    """Normalised areas (seeds, environments); seeds that failed in one environment are left out of all."""
    wide = part.pivot("env", index="attempt", values="auc_normalised").sort("attempt").drop_nulls()
    if len(wide) < 2:
        raise UsageError("An interval needs at least two seeds that finished in every environment.")
    return wide.drop("attempt").select(sorted(c for c in wide.columns if c != "attempt")).to_numpy()


def _records(runs: Runs) -> pl.DataFrame:
    frame = runs.labelled()
    if "auc_normalised" not in frame.columns:
        raise UsageError("No training of these runs finished; see their errors with `assay report`.")
    return frame


def _rows(runs: Runs) -> pl.DataFrame:
    frame = runs.labelled(rows=True)
    if frame.is_empty():
        raise UsageError("These runs hold no curves.")
    return frame
