"""Tables over runs of several methods: accuracy, ranks, tests against nnPU, curves over c, loss under bias, cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import UsageError, unknown_name
from assay.core.results import Runs, labels
from assay.core.stats.paired import holm
from assay.core.stats.ranks import critical_difference, family_ranks
from assay.core.table import Chart, Table
from assay.learning.pu_bench.estimators import CLASSES
from assay.learning.pu_bench.estimators import __name__ as HOME

if TYPE_CHECKING:
    import polars as pl


def paired_t(baseline: ArrayLike, others: Sequence[ArrayLike]) -> tuple[list[float], list[float]]:
    """(p, p adjusted after Holm) of two-sided paired t tests of each series against a baseline.

    Equal series have p = 1; series that differ by the same amount everywhere p = 0. NaN pairs are left out; fewer than
    two pairs give NaN.
    """
    from scipy.stats import ttest_rel

    found: list[float] = []
    for other in others:
        d = np.asarray(other, float) - np.asarray(baseline, float)
        d = d[np.isfinite(d)]
        if len(d) < 2:
            found.append(float("nan"))
        elif np.ptp(d) < 1e-15:
            found.append(1.0 if abs(d[0]) < 1e-15 else 0.0)
        else:
            result: Any = ttest_rel(d, np.zeros(len(d)))
            found.append(float(result.pvalue))
    return found, [float(p) for p in holm(found)]


def method_of(system: str) -> str:
    """``nnpu`` of ``method:nnpu?epochs=5`` and of the estimator's class; another system's own name."""
    if system.startswith("method:"):
        return system.removeprefix("method:").partition("?")[0]
    return _OF_CLASS.get(system.partition("?")[0], system)


_OF_CLASS = {f"python:{HOME}.{module}:{cls}": name for name, (module, cls, _) in CLASSES.items()}


def family_of(system: str) -> str:
    """risk, disambiguation, generative, oracle; ``other`` for systems of one's own."""
    name = method_of(system)
    return CLASSES[name][2] if name in CLASSES else "other"


def records(runs: Runs, metric: str) -> pl.DataFrame:
    """Every trial with its method, data set, configuration and score; a failed one has a null score.

    Raises
    ------
    UsageError
        No such score.
    """
    import polars as pl

    named = dict(zip([run.id for run in runs], labels(list(runs))))
    frame = runs.records
    if metric not in frame.columns:
        known = sorted({name for run in runs for name in run.info["scores"]})
        raise unknown_name("score", metric, known)
    return frame.select(
        pl.col("run").replace_strict(named).alias("method"),
        pl.col("system"),
        pl.col("task").alias("dataset"),
        "sample", "attempt", "scenario", "strategy", "c", "status",
        pl.col(metric).cast(pl.Float64).alias("score"),
    )  # fmt: skip


def cells(frame: pl.DataFrame) -> tuple[list[str], pl.DataFrame, np.ndarray]:
    """(methods, one row a data set and configuration, mean scores (cells, methods)).

    A cell where any seed of a method failed, or that it lacks, is NaN: a method must not gain by failing on hard seeds.
    """
    import polars as pl

    names = frame["method"].unique(maintain_order=True).to_list()
    most = frame.group_by("dataset", "sample", "method").len()["len"].max()
    mean = frame.group_by("dataset", "sample", "method").agg(
        pl.when(pl.col("score").null_count() == 0, pl.len() == most).then(pl.col("score").mean()).alias("score")
    )
    wide = mean.pivot("method", index=["dataset", "sample"], values="score").sort("dataset", "sample")
    return names, wide.select("dataset", "sample"), wide.select(names).to_numpy().astype(float)


def _failures(frame: pl.DataFrame) -> str:
    bad = frame.filter(frame["score"].is_null()).height
    return f"{bad} of {frame.height} trials failed; a failure ranks worst." if bad else "No trial failed."


def table(runs: Runs, *, metric: str = "accuracy", by: str = "dataset") -> Table:
    """Mean and standard deviation over seeds of a score, a row a method, a column a value of ``by``."""
    import polars as pl

    frame = records(runs, metric)
    if by not in ("dataset", "sample", "strategy", "c", "scenario"):
        raise unknown_name("column", by, ["dataset", "sample", "strategy", "c", "scenario"])
    spread = frame.group_by("method", "system", by, "sample").agg(
        pl.col("score").mean().alias("mean"),
        pl.col("score").std().alias("sd"),
        pl.col("score").null_count().alias("bad"),
    )
    found = (
        spread.group_by("method", "system", by)
        .agg(pl.col("mean").mean(), pl.col("sd").mean(), pl.col("bad").sum().alias("failures"))
        .with_columns(pl.col("system").map_elements(family_of, return_dtype=pl.String).alias("family"))
        .sort(by, "mean", descending=[False, True])
        .select("family", "method", by, "mean", "sd", "failures")
    )
    note = "sd: over seeds, within a configuration, averaged over configurations."
    return Table(
        "table", f"{metric} by {by}", found, (note, _failures(frame)), Chart("bar", "method", "mean", facet=by)
    )


def ranks(runs: Runs, *, metric: str = "accuracy", test: str = "wilcoxon-holm", oracle: bool = False) -> list[Table]:
    """Average ranks over data sets and configurations, with what is not told apart; the oracle is left out by
    default.
    """
    import polars as pl

    frame = records(runs, metric)
    if not oracle:
        frame = frame.filter(~frame["system"].map_elements(lambda s: family_of(s) == "oracle", return_dtype=pl.Boolean))
    names, _, scores = cells(frame)
    if len(names) < 2 or len(scores) < 2:
        raise UsageError("Ranks need at least two methods on at least two data sets or configurations.")
    found = critical_difference(scores, names, method=test)
    systems = dict(frame.select("method", "system").unique().iter_rows())
    f = found.friedman
    chart = Chart("critical_difference", "rank", "method", label="clique")
    notes = (
        f"Friedman chi2 = {f.statistic:.4g}, p = {f.p:.3g}, {f.datasets} cells, {f.methods} methods.",
        _failures(frame),
        "Not told apart: " + ("; ".join(", ".join(group) for group in found.cliques) or "none") + ".",
    )
    rows = pl.DataFrame(
        {
            "method": list(found.names),
            "family": [family_of(systems[name]) for name in found.names],
            "rank": list(found.ranks),
            "clique": [
                " ".join(str(at + 1) for at, group in enumerate(found.cliques) if name in group) for name in found.names
            ],
        }
    )
    families, of_family = family_ranks(scores, [family_of(systems[name]) for name in names])
    best = pl.DataFrame({"family": families, "rank_of_best_member": of_family.mean(axis=0)}).sort("rank_of_best_member")
    return [
        Table("ranks", f"Average ranks by {metric}", rows, notes, chart),
        Table("family_ranks", "Families, each by its best member in a cell", best),
    ]  # fmt: skip


def significance(runs: Runs, *, metric: str = "accuracy", baseline: str = "nnpu", alpha: float = 0.05) -> Table:
    """Two-sided paired t tests over seeds against a baseline, Holm-corrected over methods, a data set and
    configuration.
    """
    import polars as pl

    frame = records(runs, metric)
    base = [m for m, s in frame.select("method", "system").unique().iter_rows() if baseline in (m, method_of(s))]
    if len(base) != 1:
        raise UsageError(
            f"The baseline {baseline!r} is {len(base)} of the runs; name one of {frame['method'].unique().to_list()}."
        )
    out = []
    for (dataset, sample), part in frame.sort("attempt").group_by("dataset", "sample", maintain_order=True):
        wide = part.pivot("method", index="attempt", values="score").sort("attempt")
        if base[0] not in wide.columns:
            continue
        others = [name for name in wide.columns if name not in ("attempt", base[0])]
        reference = wide[base[0]].to_numpy()
        p, adjusted = paired_t(reference, [wide[name].to_numpy() for name in others])
        for name, raw, held in zip(others, p, adjusted):
            d = wide[name].to_numpy().astype(float) - reference.astype(float)
            n = int(np.isfinite(d).sum())
            mean = float(np.nanmean(d)) if n else None
            verdict = "failed" if mean is None else "no" if not held < alpha else "better" if mean > 0 else "worse"
            out.append((dataset, sample, name, mean, raw, held, n, verdict))
    columns = ["dataset", "sample", "method", "difference", "p", "p_holm", "seeds", "verdict"]
    rows = pl.DataFrame(out, schema=columns, orient="row")
    notes = (
        f"Difference to {base[0]}, paired by seed; two-sided t, Holm over methods, alpha = {alpha:g}.",
        _failures(frame),
    )
    return Table("significance", f"{metric} against {base[0]}", rows, notes)


def c_curve(runs: Runs, *, metric: str = "accuracy", strategy: str = "scar") -> Table:
    """A score over the label frequency, one line a method, with 95 % intervals over seeds and data sets' mean."""
    import polars as pl

    frame = records(runs, metric).filter(pl.col("strategy") == strategy)
    if frame.is_empty():
        raise UsageError(f"No run has the strategy {strategy!r}.")
    # Seeds are what is random: the mean over data sets of one seed is one value.
    by_seed = frame.group_by("method", "c", "attempt").agg(pl.col("score").mean())
    found = by_seed.group_by("method", "c").agg(
        pl.col("score").mean().alias("mean"), pl.col("score").std().alias("sd"), pl.len().alias("seeds")
    )
    from scipy.special import stdtrit

    seeds = found["seeds"].to_numpy()
    width = np.where(seeds > 1, stdtrit(np.maximum(seeds - 1, 1), 0.975) / np.sqrt(seeds), np.nan)
    half = found["sd"].to_numpy().astype(float) * width
    found = found.with_columns((found["mean"] - half).alias("low"), (found["mean"] + half).alias("high")).sort(
        "method", "c"
    )
    chart = Chart("line", "c", "mean", color="method", low="low", high="high", log_x=True)
    return Table("c_curve", f"{metric} by label frequency ({strategy})", found, (_failures(frame),), chart)


def sar_degradation(runs: Runs, *, metric: str = "accuracy") -> Table:
    """What biased labelling costs: the difference to SCAR at the same c, paired by data set and seed."""
    import polars as pl

    frame = records(runs, metric)
    plain = (
        frame.filter(pl.col("strategy") == "scar")
        .group_by("method", "dataset", "scenario", "c", "attempt")
        .agg(pl.col("score").mean().alias("scar"))
    )
    biased = frame.filter(~pl.col("strategy").is_in(["scar", "all"]))
    both = biased.join(plain, on=["method", "dataset", "scenario", "c", "attempt"], how="inner")
    if both.is_empty():
        raise UsageError("Degradation needs runs with scar and with a biased strategy at the same c.")
    found = (
        both.with_columns((pl.col("score") - pl.col("scar")).alias("change"))
        .group_by("method", "strategy", "c")
        .agg(
            pl.col("scar").mean(), pl.col("score").mean().alias("biased"), pl.col("change").mean(),
            pl.col("change").std().alias("sd"), pl.col("change").count().alias("pairs"),
        )
        .sort("strategy", "c", "change", descending=[False, False, True])
    )  # fmt: skip
    return Table(
        "sar_degradation", f"{metric} under biased labelling, less that under SCAR", found, (_failures(both),),
        Chart("bar", "method", "change", facet="strategy"),
    )  # fmt: skip


def cost(runs: Runs, *, metric: str = "accuracy") -> Table:
    """Effectiveness against seconds and memory, and which methods nobody beats in both."""
    import polars as pl

    frame = records(runs, metric)
    extra = runs.records.select("fit_seconds", "seconds_to_best", "peak_memory_mb")
    both = pl.concat([frame, extra], how="horizontal")
    found = both.group_by("method").agg(
        pl.col("score").mean().alias(metric), pl.col("fit_seconds").mean(), pl.col("seconds_to_best").mean(),
        pl.col("peak_memory_mb").max(),
    ).sort("fit_seconds")  # fmt: skip
    value, seconds = found[metric].to_numpy().astype(float), found["fit_seconds"].to_numpy().astype(float)
    beaten = [
        bool(np.any((value >= v) & (seconds <= s) & ((value > v) | (seconds < s)))) or not np.isfinite(v)
        for v, s in zip(value, seconds)
    ]
    found = found.with_columns(pl.Series("unbeaten", [not b for b in beaten]))
    chart = Chart("scatter", "fit_seconds", metric, label="method", log_x=True, x_title="seconds to fit")
    notes = ("Seconds and memory are those of the machine that ran; memory is the worker's peak.", _failures(frame))
    return Table("cost", f"{metric} against cost", found, notes, chart)


def prior_errors(runs: Runs) -> Table:
    """How far the priors in use were from the share of positives among unlabelled rows, a method and strategy."""
    import polars as pl

    frame = records(runs, "prior_error").filter(pl.col("score").is_not_null())
    if frame.is_empty():
        raise UsageError("No method in these runs uses a prior.")
    found = frame.group_by("method", "strategy", "c").agg(
        pl.col("score").mean().alias("bias"), pl.col("score").abs().mean().alias("absolute_error"), pl.len().alias("n")
    )
    return Table("prior_errors", "Error of the prior in use", found.sort("method", "strategy", "c"))
