"""Values of metrics with their intervals, overall and by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from assay.core.benchmark import Metric, Resample
from assay.core.errors import UsageError
from assay.core.metrics import Score
from assay.core.stats.folding import KEY, Folded, MissingColumn, codes, complete, count, fold, with_record_keys
from assay.core.stats.intervals import Estimate, bootstrap_interval, critical, linear_interval, woodruff
from assay.core.stats.resampling import Codes, Resampler

Rows = Mapping[str, pl.DataFrame] | pl.DataFrame


def evaluate_one(
    metric: Metric,
    frame: pl.DataFrame,
    *,
    resample: Resample,
    level: float,
    resamples: int | None,
    seed: int,
    rows: pl.DataFrame | None,
    by: Mapping[str, Any] | None,
) -> Score:
    """See `assay.core.metrics.evaluate`; ``by`` labels the score."""
    critical(level)  # refuses an impossible level before any work
    rule = metric.resample or resample
    check_rule(rule)
    counted = count(metric, measured(metric, frame, rows))
    records = counted.frame
    folded = fold(metric, records, rule)
    rng = np.random.default_rng(seed)
    if len(records) == 0:
        nan = float("nan")
        found = Estimate(nan, nan, nan, nan, nan, 0, "none", "no records")
    elif folded is None:
        found = _by_loop(metric, records, rule, level=level, resamples=resamples, rng=rng)
    else:
        found = _within(metric, _by_sums(metric, folded, rule, level=level, resamples=resamples, rng=rng))
    notes = [found.note, counted.note()]
    return Score(
        metric=metric.name,
        value=found.value,
        low=found.low,
        high=found.high,
        n=len(records),
        n_clusters=records.get_column("cluster").n_unique(),
        n_error=counted.n_error,
        n_left_out=counted.n_left_out,
        by=dict(by or {}),
        resample=rule,
        interval=found.method,
        note="; ".join(filter(None, notes)),
        level=level,
        higher_is_better=metric.higher_is_better,
        headline=metric.headline,
    )


def _within(metric: Metric, found: Estimate) -> Estimate:
    """An average of bounded scores cannot lie outside their bounds, so no interval need reach there."""
    terms = metric.terms
    if terms is None or terms.summed or terms.denominator is not None or terms.fold in ("pass_at", "pass_all"):
        return found
    ends = np.array([found.low, found.high])
    for bound, nearer in zip(metric.bounds, (np.maximum, np.minimum)):
        if bound is not None and nearer(found.value, bound) == found.value:
            ends = nearer(ends, bound)
    return replace(found, low=float(ends[0]), high=float(ends[1]))


def evaluate_table(
    metrics: Sequence[Metric],
    frame: pl.DataFrame,
    resample_by_task: Mapping[str, Resample],
    by: Sequence[str | tuple[str, ...]],
    *,
    rows: Rows | None,
    level: float,
    resamples: int | None,
    seed: int,
) -> list[Score]:
    """See `assay.core.metrics.evaluate_all`."""
    frame = complete(frame)
    finer = _one_frame(rows)
    parts = {group: _parts(frame, group) for group in dict.fromkeys([*by, *(g for m in metrics for g in m.by)])}
    scores = []
    for metric in metrics:
        groups = dict.fromkeys([*metric.by, *by])
        cells = [({}, frame), *(cell for group in groups for cell in parts[group])]
        for label, part in cells:
            rule, note = rule_for(metric, part, resample_by_task)
            try:
                score = evaluate_one(
                    metric, part, resample=rule, level=level, resamples=resamples, seed=seed, rows=finer, by=label
                )
            except MissingColumn as error:
                score = _absent(metric, rule, label, str(error), level)
            if label and score.n == 0 and score.n_left_out == 0:
                continue  # a group outside the metric's `where` is no row of its table
            if note:
                score = _with_note(score, note)
            scores.append(score)
    return scores


def measured(metric: Metric, frame: pl.DataFrame, rows: pl.DataFrame | None) -> pl.DataFrame:
    """The frame that a metric reads: records, or rows with what their records know."""
    frame = complete(frame)
    if metric.over == "records":
        return frame
    if rows is None:
        raise UsageError(f"Metric {metric.name!r} is over rows, and no rows were given: pass rows=run.rows(task).")
    return with_record_keys(rows, frame)


def check_rule(rule: str) -> None:
    """Refuse a resampling rule that does not exist."""
    if rule not in ("samples", "attempts", "both"):
        raise UsageError(f"resample is 'samples', 'attempts' or 'both' (what is random), not {rule!r}.")


def rule_for(metric: Metric, frame: pl.DataFrame, by_task: Mapping[str, Resample]) -> tuple[Resample, str]:
    """Rule for a metric on a frame of one or several tasks, and a note where tasks disagree."""
    if metric.resample:
        return metric.resample, ""
    rules: list[Resample] = sorted(
        {by_task.get(task, "samples") for task in frame.get_column("task").unique().to_list()}
    )
    if len(rules) > 1:
        return "both", "tasks differ in what is random; both taken"
    return (rules[0] if rules else "samples"), ""


def resampler_of(records: pl.DataFrame) -> Resampler:
    """Resampler over the rows of a frame of counted records."""
    return Resampler(
        codes(records, ("cluster",)), codes(records, ("task", "sample")), codes(records, ("task", "sample", "attempt"))
    )


def row_statistic(metric: Metric, records: pl.DataFrame) -> Callable[[Codes], float]:
    """The metric as a function of row numbers of a frame of counted records, for the loops."""
    if metric.terms is not None and metric.terms.fold == "median":
        values = records.get_column(metric.terms.numerator).cast(pl.Float64).to_numpy()
        return lambda at: float(np.median(values[at]))
    # A function that declares nothing may read anything; one that does gets only that, which makes gathering cheap.
    kept = {*metric.reads, *KEY, "cluster", "status"}
    frame = records.select(c for c in records.columns if c in kept) if metric.reads else records
    return lambda at: float(metric.value(frame[at]))


def _by_sums(
    metric: Metric, folded: Folded, rule: Resample, *, level: float, resamples: int | None, rng: np.random.Generator
) -> Estimate:
    nan = float("nan")
    linear = folded.linear
    if folded.reason:
        return Estimate(nan, nan, nan, nan, nan, linear.n_clusters, "none", folded.reason)
    if metric.terms.fold == "median":
        return woodruff(linear.numerator, linear, rule, level)
    if folded.no_interval:
        return Estimate(linear.value(), nan, nan, nan, nan, linear.n_clusters, "none", folded.no_interval)
    return linear_interval(linear, rule, level=level, resamples=resamples, rng=rng)


def _by_loop(
    metric: Metric, records: pl.DataFrame, rule: Resample, *, level: float, resamples: int | None,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    statistic = row_statistic(metric, records)
    value = statistic(np.arange(len(records)))
    return bootstrap_interval(statistic, value, resampler_of(records), rule, level=level, resamples=resamples, rng=rng)


def _parts(frame: pl.DataFrame, group: str | tuple[str, ...]) -> list[tuple[dict[str, Any], pl.DataFrame]]:
    names = (group,) if isinstance(group, str) else group
    if any(name not in frame.columns for name in names):
        return []
    kept = frame.drop_nulls(list(names)) if any(frame.get_column(n).null_count() for n in names) else frame
    found = kept.partition_by(list(names), as_dict=True, maintain_order=True)
    return [(dict(zip(names, key)), found[key]) for key in sorted(found, key=_sort_key)]


def _sort_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((isinstance(v, str), v) for v in key)


def _one_frame(rows: Rows | None) -> pl.DataFrame | None:
    if rows is None or isinstance(rows, pl.DataFrame):
        return rows
    parts = [part for part in rows.values() if len(part)]
    return pl.concat(parts, how="diagonal_relaxed") if parts else None


def _absent(metric: Metric, rule: Resample, label: dict[str, Any], note: str, level: float) -> Score:
    nan = float("nan")
    return Score(
        metric.name, nan, nan, nan, 0, 0, by=label, resample=rule, interval="none", note=note, level=level,
        higher_is_better=metric.higher_is_better, headline=metric.headline,
    )  # fmt: skip


def _with_note(score: Score, note: str) -> Score:
    return replace(score, note="; ".join(filter(None, [score.note, note])))
