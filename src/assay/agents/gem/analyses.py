"""Tables over runs: levels, ways to end, tools on and off; algorithms, curves, discount."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assay.core.errors import UsageError
from assay.core.metrics import compare, mean
from assay.core.results import Runs, labels
from assay.core.stats.paired import holm
from assay.core.table import Chart, Table

if TYPE_CHECKING:
    import polars as pl


def _records(runs: Runs, *needed: str) -> pl.DataFrame:
    """Records with a column ``label``; the columns asked for must be there."""
    import polars as pl

    names = dict(zip([run.id for run in runs], labels(list(runs))))
    frame = runs.records
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise UsageError(f"These runs have no {', '.join(missing)}; the analysis reads runs of another benchmark.")
    return frame.with_columns(pl.col("run").replace_strict(names).alias("label"))


def _errors(frame: pl.DataFrame) -> str:
    bad = frame.filter(frame["status"] != "ok").height
    return f"{bad} of {frame.height} trials failed and are left out." if bad else "No trial failed."


def levels(runs: Runs) -> Table:
    """Return, share solved and turns by environment and level."""
    import polars as pl

    frame = _records(runs, "return", "solved", "turns", "env", "level")
    found = (
        frame.filter(pl.col("status") == "ok")
        .group_by("label", "env", "level", maintain_order=True)
        .agg(
            pl.len().alias("n"),
            pl.col("return").mean(),
            pl.col("solved").mean(),
            pl.col("turns").mean(),
            pl.col("turns").filter(pl.col("solved") == 1).mean().alias("turns_when_solved"),
        )
    )
    return Table(
        "levels", "What is reached in each environment", found, [_errors(frame)],
        Chart("bar", "env", "solved", color="label"),
    )  # fmt: skip


def outcomes(runs: Runs) -> Table:
    """How episodes end, and how often an action could not be read or was against the rules."""
    import polars as pl

    frame = _records(runs, "end", "read", "invalid_moves", "turns", "env")
    found = (
        frame.filter(pl.col("status") == "ok")
        .group_by("label", "env", maintain_order=True)
        .agg(
            pl.len().alias("n"),
            *((pl.col("end") == end).mean().alias(end) for end in ("terminated", "truncated", "step limit")),
            (pl.col("read") == "unread").mean().alias("unread"),
            (pl.col("invalid_moves").sum() / pl.col("turns").sum()).alias("invalid_moves_a_turn"),
        )
    )
    return Table("outcomes", "How episodes end", found, [_errors(frame)])


def tools(runs: Runs, *, metric: str = "solved") -> Table:
    """The same system with and without tools on the same episodes: difference, interval, test.

    Parameters
    ----------
    metric
        A score: solved, return, turns.
    """
    import polars as pl

    _records(runs, metric)
    pairs = [
        (off, on)
        for on in runs
        for off in runs
        if on.system == off.system and on.info["options"].get("tools") and not off.info["options"].get("tools")
    ]
    if not pairs:
        raise UsageError("tools needs two runs of one system, one with the option tools= and one without.")
    rows = []
    for off, on in pairs:
        found = compare(mean(metric), on.records, off.records, names=("with", "without"))
        rows.append(
            {
                "system": on.system, "tools": on.info["options"]["tools"], "with": found.value_a,
                "without": found.value_b, "difference": found.difference, "low": found.low, "high": found.high,
                "p": found.p, "n": found.n, "tool_calls": on.records["tool_calls"].mean(),
            }
        )  # fmt: skip
    note = "Paired by episode; an errored trial counts 0."
    return Table("tools", f"{metric} with and without tools", pl.DataFrame(rows), [note])


def algorithms(runs: Runs, *, metric: str = "final_return") -> Table:
    """Mean over seeds of a score, and the paired difference to the best of each environment.

    p: two-sided paired t test over seeds, adjusted after Holm over all comparisons of the table.
    """
    import polars as pl
    from scipy.stats import ttest_rel

    frame = _records(runs, metric, "env").filter(pl.col("status") == "ok")
    rows, tested = [], []
    for (env,), part in frame.group_by("env", maintain_order=True):
        scores = {
            label: dict(zip(own["attempt"], own[metric]))
            for (label,), own in part.group_by("label", maintain_order=True)
        }
        best = max(
            scores, key=lambda label: float(np.mean([v for v in scores[label].values() if v is not None] or [-np.inf]))
        )
        for label, own in scores.items():
            kept = [v for v in own.values() if v is not None]
            both = [(own[a], scores[best][a]) for a in own if a in scores[best]]
            both = [(x, y) for x, y in both if x is not None and y is not None]
            row = {
                "env": env, "algorithm": label, "seeds": len(kept),
                "mean": float(np.mean(kept)) if kept else None,
                "sd": float(np.std(kept, ddof=1)) if len(kept) > 1 else None,
                "to_best": float(np.mean([x - y for x, y in both])) if both else None, "p": None,
            }  # fmt: skip
            if label != best and len(both) > 1 and any(x != y for x, y in both):
                result = ttest_rel([x for x, _ in both], [y for _, y in both])
                row["p"] = float(result.pvalue)
                tested.append(row)
            rows.append(row)
    for row, p in zip(tested, holm([row["p"] for row in tested])):
        row["p"] = float(p)
    schema = {"env": pl.String, "algorithm": pl.String, "seeds": pl.Int64} | dict.fromkeys(
        ("mean", "sd", "to_best", "p"), pl.Float64
    )
    return Table("algorithms", f"{metric} by algorithm", pl.DataFrame(rows, schema=schema), [_errors(frame)])


def curves(runs: Runs) -> Table:
    """Mean return by turns learnt from: evaluations on the way, over seeds."""
    import polars as pl

    parts = []
    for run, label in zip(runs, labels(list(runs))):
        rows = run.rows("learning")
        step = rows.with_columns(
            pl.int_range(pl.len()).over("sample", "attempt").alias("evaluation"), pl.lit(label).alias("algorithm")
        )
        parts.append(step)
    found = (
        pl.concat(parts, how="diagonal")
        .group_by("algorithm", "sample", "evaluation")
        .agg(
            pl.col("turns").mean(), pl.col("return").mean(), pl.col("return").std().alias("sd"), pl.len().alias("seeds")
        )
        .rename({"sample": "env"})
        .sort("env", "algorithm", "evaluation")
    )
    chart = Chart("line", "turns", "return", color="algorithm", facet="env", x_title="turns learnt from")
    return Table("curves", "Return while learning", found, ["The last point is of the longer evaluation."], chart)


def gamma(runs: Runs) -> Table:
    """Turns of an episode that is solved, by the discount in the system's name (``method:rebn?gamma=0.9``)."""
    import re

    import polars as pl

    frame = _records(runs, "final_turns_when_solved", "final_solved", "env")
    known = {system: re.search(r"[?&]gamma=([0-9.]+)", system) for system in frame["system"].unique()}
    if len({match[1] for match in known.values() if match}) < 2:
        raise UsageError(
            "gamma needs runs with at least two discounts: -s method:rebn?gamma=0.9 -s method:rebn?gamma=1.0."
        )
    values = {system: float(match[1]) for system, match in known.items() if match}
    found = (
        frame.filter(pl.col("system").is_in(list(values)), pl.col("status") == "ok")
        .with_columns(pl.col("system").replace_strict(values, return_dtype=pl.Float64).alias("gamma"))
        .group_by("env", "gamma")
        .agg(
            pl.len().alias("seeds"),
            pl.col("final_turns_when_solved").mean(),
            pl.col("final_turns_when_solved").std().alias("sd"),
            pl.col("final_solved").mean(),
        )
        .sort("env", "gamma")
    )
    return Table("gamma", "Turns of a solved episode by discount", found, [_errors(frame)])
