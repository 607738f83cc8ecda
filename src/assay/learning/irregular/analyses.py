"""Runs to tables: ranks over data sets, critical difference, failures, time against quality, irregularity curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from assay.core.errors import UsageError, unknown_name
from assay.core.results import Runs, labels
from assay.core.stats import ranks as rank_stats
from assay.core.table import Chart, Table
from assay.learning.irregular.data import split_name

# Variants that make a curve, and those whose number is what is left, not what is lost.
_MADE, _LEAVES = ("drop", "ragged", "uneven", "early"), ("ragged", "early")
METRICS = ("accuracy", "balanced_accuracy", "f1_macro", "f1_weighted")


def score_table(runs: Runs, metric: str = "accuracy") -> tuple[list[str], list[str], np.ndarray]:
    """(data sets, systems, scores [data sets, systems]): means over attempts, NaN for a failure."""
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    names = labels(list(runs))
    sets = sorted({s for run in runs for s in run.records["sample"].to_list()})
    out = np.full((len(sets), len(names)), np.nan)
    for column, run in enumerate(runs):
        frame = run.records
        if metric not in frame.columns:
            continue
        means = frame.group_by("sample").agg(
            pl.col(metric).mean().alias("mean"), (pl.col("status") == "ok").all().alias("whole")
        )
        for row in means.iter_rows(named=True):
            if row["whole"] and row["mean"] is not None:
                out[sets.index(row["sample"]), column] = row["mean"]
    return sets, names, out


def scores(runs: Runs, metric: str = "accuracy") -> Table:
    """One row a data set, one column a system; empty where it failed."""
    sets, names, found = score_table(runs, metric)
    frame = pl.DataFrame({"data set": sets} | {n: _blank(found[:, i]) for i, n in enumerate(names)})
    return Table("scores", f"{metric} by data set", frame, [_failures_note(found)], formats=dict.fromkeys(names, ".3f"))


def ranks(runs: Runs, metric: str = "accuracy") -> Table:
    """Average rank of each system over data sets (1 = best, ties share, a failure is worst), Friedman's test."""
    sets, names, found = score_table(runs, metric)
    _enough(sets, names)
    average = rank_stats.average_ranks(found)
    points = rank_stats.borda(found)
    each = rank_stats.ranks(found)
    test = rank_stats.friedman(found)
    wins = (each == each.min(axis=1, keepdims=True)).sum(axis=0)
    order = np.argsort(average, kind="stable")
    frame = pl.DataFrame(
        {
            "system": [names[i] for i in order],
            "average rank": average[order],
            "wins": wins[order],
            "borda": points[order],
            "failures": np.isnan(found).sum(axis=0)[order],
            f"mean {metric}": np.nan_to_num(found)[:, order].mean(axis=0),
        }
    )
    notes = [
        f"{len(sets)} data sets; a failure ranks worst and counts 0 in the mean.",
        f"Friedman chi-square {test.statistic:.3g}, p = {test.p:.3g} over all data sets.",
    ]
    return Table("ranks", f"Average rank by {metric}", frame, notes, Chart("bar", x="average rank", y="system"))


def critical_difference(
    runs: Runs, metric: str = "accuracy", alpha: float = 0.05, method: str = "wilcoxon-holm"
) -> Table:
    """Critical-difference diagram: average ranks, and which systems are not told apart."""
    sets, names, found = score_table(runs, metric)
    _enough(sets, names)
    result = rank_stats.critical_difference(found, names, alpha=alpha, method=method)
    groups = {name: [str(i + 1) for i, c in enumerate(result.cliques) if name in c] for name in result.names}
    frame: dict[str, Any] = {
        "system": list(result.names),
        "average rank": list(result.ranks),
        "clique": [",".join(groups[name]) for name in result.names],
    }
    if result.distance is not None:
        frame["critical difference"] = [result.distance] * len(result.names)
    chart = Chart(
        "critical_difference",
        x="average rank",
        y="system",
        color="clique",
        high="critical difference" if result.distance is not None else None,
    )
    note = (
        f"{len(sets)} data sets, {method}, alpha {alpha:g}; Friedman p = {result.friedman.p:.3g}. Failures rank worst."
    )
    return Table("critical_difference", f"Critical difference by {metric}", pl.DataFrame(frame), [note], chart)


def failures(runs: Runs) -> Table:
    """Every trial that gave no score: data set, attempt, how it ended and why."""
    frame = runs.records.filter(pl.col("status") != "ok").select(
        "system", "sample", "attempt", "status", "error", "seconds"
    )
    trials = runs.records.height
    return Table("failures", "Trials without a score", frame, [f"{frame.height} of {trials} trials; each ranks worst."])


def pareto(runs: Runs, metric: str = "accuracy") -> Table:
    """Mean score against median fitting time; a system is on the front if none is both better and faster."""
    sets, names, found = score_table(runs, metric)
    quality = np.nan_to_num(found).mean(axis=0)
    fit, predict = ([_median(run.records, c) for run in runs] for c in ("fit_seconds", "predict_seconds"))
    front = [
        not any(
            quality[j] >= quality[i] and fit[j] <= fit[i] and (quality[j] > quality[i] or fit[j] < fit[i])
            for j in range(len(names))
        )
        for i in range(len(names))
    ]
    frame = pl.DataFrame(
        {
            "system": names,
            f"mean {metric}": quality,
            "median fit s": fit,
            "median predict s": predict,
            "front": ["yes" if f else "no" for f in front],
        }
    ).sort("median fit s")
    chart = Chart("scatter", x="median fit s", y=f"mean {metric}", color="front", label="system", log_x=True)
    note = f"{len(sets)} data sets; failures count 0. Times compare within one machine, with exclusive=true."
    return Table("pareto", "Quality against time", frame, [note], chart)


def curves(runs: Runs, metric: str = "accuracy") -> list[Table]:
    """Score against made irregularity or time cut off, a table a kind, with Spearman's correlation by system."""
    from scipy.stats import spearmanr

    sets, names, found = score_table(runs, metric)
    rows: dict[str, list[dict[str, Any]]] = {}
    for i, name in enumerate(sets):
        base, variants = split_name(name)
        made = [(k, a) for k, a in variants if k in _MADE]
        # A set without a variant is the start of each of its curves.
        for kind, amount in made or [(k, 100 * (k in _LEAVES)) for k in _MADE]:
            strength = (100 - amount if kind in _LEAVES else amount) / 100
            for j, system in enumerate(names):
                value = None if np.isnan(found[i, j]) else float(found[i, j])
                rows.setdefault(kind, []).append(
                    {"system": system, "data set": base, "irregularity": strength, metric: value, "made": bool(made)}
                )
    tables = []
    for kind, listed in rows.items():
        whole = {r["data set"] for r in listed if r["made"]}
        kept = [r for r in listed if r["data set"] in whole]
        if not kept:
            continue
        notes = []
        for system in names:
            own = [r for r in kept if r["system"] == system and r[metric] is not None]
            if len({r["irregularity"] for r in own}) > 2:
                result: Any = spearmanr([r["irregularity"] for r in own], [r[metric] for r in own])
                notes.append(f"{system}: Spearman {result.statistic:+.2f}, p = {result.pvalue:.3g}, n = {len(own)}.")
        frame = pl.DataFrame(kept).drop("made").sort("data set", "system", "irregularity")
        chart = Chart("line", x="irregularity", y=metric, color="system", facet="data set")
        tables.append(Table(f"curves_{kind}", f"{metric} against {kind}", frame, notes, chart))
    if not tables:
        raise UsageError(
            "No run holds a controlled variant; run with -o datasets=BasicMotions,BasicMotions~drop30,... first."
        )
    return tables


def _enough(sets: Sequence[str], names: Sequence[str]) -> None:
    if len(sets) < 2 or len(names) < 2:
        raise UsageError(f"Ranks need two data sets and two systems; these runs have {len(sets)} and {len(names)}.")


def _blank(column: np.ndarray) -> list[float | None]:
    return [None if np.isnan(v) else float(v) for v in column]


def _failures_note(found: np.ndarray) -> str:
    return f"{int(np.isnan(found).sum())} of {found.size} cells failed; an empty cell is a failure."


def _median(frame: pl.DataFrame, column: str) -> float:
    if column not in frame.columns:
        return float("nan")
    value = frame[column].median()
    return float("nan") if value is None else float(value)  # type: ignore[arg-type]
