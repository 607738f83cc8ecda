"""Reading anybody's records into one frame and that frame into cells: what every estimate is computed from.

Accepted are assay's own records (a run, several runs, their frame), the published record format, and any pandas or
polars frame that says who tried what, at which cost, with which result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from assay.reasoning.cost_of_pass.prices import PriceBook

Errors = Literal["raise", "exclude", "fail"]
Missing = Literal["raise", "drop"]

ALIASES: Mapping[str, tuple[str, ...]] = {
    "task": ("task", "task_name"),
    "model": ("model", "model_name", "system"),
    "technique": ("technique", "tt_method_name"),
    "run": ("attempt", "run"),
    "score": ("correct", "metric_score", "score"),
    "cost": ("cost", "cost_usd"),
    "prompt_tokens": ("prompt_tokens", "num_prompt_tokens"),
    "completion_tokens": ("completion_tokens", "num_completion_tokens"),
    "input_price": ("usd_per_prompt_token", "cost_per_prompt_token"),
    "output_price": ("usd_per_completion_token", "cost_per_completion_token"),
    "input_tokens": ("num_input_tokens", "input_tokens"),
}
NUMBERS = ("cost", "prompt_tokens", "completion_tokens", "input_price", "output_price", "input_tokens")
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")


def as_polars(records: Any) -> pl.DataFrame:
    """Frame of a pandas or polars frame, a list of dictionaries, or runs (with facts on their systems)."""
    if isinstance(records, pl.DataFrame):
        return records
    if isinstance(records, pl.LazyFrame):
        return records.collect()
    if hasattr(records, "records"):
        return _of_runs(records)
    if hasattr(records, "columns") and hasattr(records, "to_dict"):
        # Column by column: polars.from_pandas would need pyarrow, which assay does not.
        return pl.DataFrame(
            {str(name): pl.Series(records[name].tolist(), strict=False, nan_to_null=False) for name in records.columns}
        )
    if isinstance(records, Sequence) and all(isinstance(row, Mapping) for row in records):
        return pl.DataFrame(list(records), infer_schema_length=None)
    raise UsageError(
        f"Records must be a pandas or polars frame, a list of dictionaries, or runs; got {type(records).__name__}."
    )


def _of_runs(runs: Any) -> pl.DataFrame:
    frame = runs.records
    if "system" not in frame.columns:
        frame = frame.with_columns(pl.lit(str(runs.system)).alias("system"))
    # A score called cost is somebody's copy; what was metered is what counts, and what can be priced anew.
    frame = frame.drop("cost", strict=False)
    facts = getattr(runs, "systems", None)
    if not isinstance(facts, pl.DataFrame) or "run" not in frame.columns or "run" not in facts.columns:
        return frame
    extra = [name for name in ("family", "release_date") if name in facts.columns and name not in frame.columns]
    return frame.join(facts.select("run", *extra).unique("run"), on="run", how="left") if extra else frame


def subject_totals(frame: pl.DataFrame) -> pl.DataFrame:
    """Calls of the system under test, summed a record.

    Parameters
    ----------
    frame
        Records with the column ``calls``.

    Returns
    -------
    DataFrame
        One row a record, in order: prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, cost (null where
        a call has no price, or none was made), unpriced (a model without price).
    """
    dtype = frame.schema["calls"]
    rows = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")
    if not (isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct)):
        raise DataError(f"Column calls must hold a list of calls a record; got {dtype}.")
    calls = frame.select(rows, "calls").explode("calls").drop_nulls("calls").unnest("calls")
    unknown = pl.col("cost").is_null() & (pl.col("calls") > 0)
    totals = (
        calls.filter(pl.col("role") == "subject")
        .group_by("row")
        .agg(
            *(pl.col(name).sum() for name in TOKENS),
            pl.when(unknown.any()).then(None).otherwise(pl.col("cost").cast(pl.Float64).sum()).alias("cost"),
            pl.col("model").filter(unknown).first().alias("unpriced"),
        )
    )
    joined = frame.select(rows).join(totals, on="row", how="left", maintain_order="left")
    return joined.select(
        *(pl.col(name).fill_null(0) for name in TOKENS),
        "cost",
        "unpriced",
    )


def normalise(
    records: Any,
    *,
    by: str = "problem",
    score: str | None = None,
    task: str | None = None,
    errors: Errors = "raise",
    prices: PriceBook | None = None,
    on: date | None = None,
    prompt: Literal["billed", "question"] = "billed",
    hour_value: float = 0.0,
) -> pl.DataFrame:
    """Records of one data set in canonical columns.

    Returns
    -------
    DataFrame
        strategy, model, technique, problem, cluster, run, cost (USD), score, seconds, and where known family,
        release_date and the token columns that re-pricing needs.

    Raises
    ------
    DataError
        Several data sets; a column that is missing; a model, technique or problem without name; incomplete records with
        ``errors="raise"``; a cost that is unknown, no number or negative; a score that is missing, no number or outside
        [0, 1]; the same strategy, problem and run twice.
    """
    frame = as_polars(records)
    if frame.height == 0:
        raise DataError("There are no records to estimate from.")
    frame = _one_task(frame, task)
    score_column = score or _find(frame, "score")
    if score_column is None or score_column not in frame.columns:
        raise DataError(
            f"Records hold no score {score or 'correct'!r}; columns are {', '.join(frame.columns)}. Name one with "
            "score=."
        )
    model = _find(frame, "model")
    if model is None:
        raise DataError(f"Records name no model: a column model, model_name or system is needed; got {frame.columns}.")
    technique = _find(frame, "technique")
    problem = _problem_column(frame, by, technique)
    for column in filter(None, (model, technique, problem)):
        _named(frame, column)
    frame = _numeric(frame, (score_column, *(_find(frame, what) for what in NUMBERS), "seconds", "extra_fees"))
    frame, complete = _completed(frame, errors)
    if prices is not None:
        frame = prices.apply(frame, on=on)
    cost = _cost(frame, prompt)
    if complete is not None and "unpriced" in cost.columns:
        # What broke before the first call cost nothing.
        free = ~complete & pl.col("cost").is_null() & pl.col("unpriced").is_null()
        cost = cost.with_columns(pl.when(free).then(0.0).otherwise("cost").alias("cost"))
    seconds = pl.col("seconds").cast(pl.Float64).fill_null(0.0) if "seconds" in frame.columns else pl.lit(0.0)
    value = pl.col(score_column).cast(pl.Float64)
    run = _find(frame, "run", but=by)
    keep = [name for name in ("family", "release_date", "unpriced", "uid", "calls", *TOKENS) if name in cost.columns]
    names = pl.col(model).cast(pl.String)
    how = pl.col(technique).cast(pl.String) if technique else pl.lit("vanilla")
    several = technique is not None and frame.get_column(technique).n_unique() > 1
    table = cost.select(
        (pl.concat_str(names, pl.lit(" + "), how) if several else names).alias("strategy"),
        names.alias("model"),
        how.alias("technique"),
        pl.col(problem).alias("problem"),
        pl.col("cluster" if "cluster" in frame.columns and problem != "cluster" else problem).alias("cluster"),
        (pl.col(run) if run else pl.lit(None, pl.Int64)).alias("run"),
        (pl.col("cost") + seconds * (hour_value / 3600)).alias("cost"),
        (value if complete is None else pl.when(complete).then(value).otherwise(0.0)).alias("score"),
        seconds.alias("seconds"),
        *keep,
    )
    _check(table, score_column)
    return table


def _find(frame: pl.DataFrame, what: str, but: str | None = None) -> str | None:
    return next((name for name in ALIASES[what] if name in frame.columns and name != but), None)


def _named(frame: pl.DataFrame, column: str) -> None:
    lost = frame.get_column(column).is_null().arg_true()
    if len(lost):
        raise DataError(
            f"Column {column!r} is empty in {len(lost)} of {frame.height} records, first in record {lost[0] + 1}; fill "
            "it or drop them."
        )


def _numeric(frame: pl.DataFrame, columns: Iterable[str | None]) -> pl.DataFrame:
    """Frame with numbers that were written as text read as numbers."""
    for column in columns:
        if column is None or column not in frame.columns:
            continue
        values = frame.get_column(column)
        if values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.Null):
            continue
        unread = pl.Series([None] * len(values), dtype=pl.Float64)
        numbers = unread if values.dtype.is_nested() else values.cast(pl.String).cast(pl.Float64, strict=False)
        bad = (numbers.is_null() & values.is_not_null()).arg_true()
        if len(bad):
            raise DataError(
                f"Column {column!r} must hold numbers; record {bad[0] + 1} of {frame.height} has "
                f"{values[bad[0]]!r:.80}."
            )
        frame = frame.with_columns(numbers.alias(column))
    return frame


def _one_task(frame: pl.DataFrame, task: str | None) -> pl.DataFrame:
    column = _find(frame, "task")
    if column is None:
        if task is not None:
            raise DataError(f"Records have no column task, so task {task!r} cannot be chosen.")
        return frame
    tasks = frame.get_column(column).cast(pl.String).unique().sort().to_list()
    if task is not None:
        if task not in tasks:
            raise DataError(f"Records hold no task {task!r}; there are {', '.join(map(str, tasks))}.")
        return frame.filter(pl.col(column).cast(pl.String) == task)
    if len(tasks) > 1:
        raise DataError(
            f"Records hold {len(tasks)} data sets ({', '.join(map(str, tasks[:6]))}); a frontier is of one: "
            "choose with task=, or use CostOfPass.by_task(records)."
        )
    return frame


def _problem_column(frame: pl.DataFrame, by: str, technique: str | None) -> str:
    if by in frame.columns:
        return by
    if by != "problem":
        raise DataError(f"Records have no column {by!r} to tell problems apart; there are {', '.join(frame.columns)}.")
    # A condition such as the technique makes several samples of one problem: the cluster then names the problem.
    wanted = ("cluster", "sample", "input_idx") if technique else ("sample", "input_idx", "cluster")
    found = next((name for name in wanted if name in frame.columns), None)
    if found is None:
        raise DataError("Records name no problem: a column problem, input_idx, sample or cluster is needed.")
    return found


def _completed(frame: pl.DataFrame, errors: Errors) -> tuple[pl.DataFrame, pl.Expr | None]:
    """Frame after the rule for incomplete records, and which of the kept ones are complete (None = all)."""
    if "completed" in frame.columns:
        done = pl.col("completed").fill_null(True)
    elif "status" in frame.columns:
        frame = frame.filter(~pl.col("status").is_in(["skipped", "unscored"]))
        done = pl.col("status") == "ok"
    else:
        return frame, None
    bad = frame.filter(~done)
    if bad.height == 0:
        return frame, None
    if errors == "raise":
        raise DataError(
            f"{bad.height} of {frame.height} records are incomplete; run them again, or say errors='exclude' (left "
            "out) "
            "or errors='fail' (paid and wrong)."
        )
    return (frame.filter(done), None) if errors == "exclude" else (frame, done)


def _cost(frame: pl.DataFrame, prompt: str) -> pl.DataFrame:
    """Frame with the column ``cost`` in USD (null = unknown) and, from ``calls``, the tokens."""
    prompt_tokens, completion_tokens = _find(frame, "prompt_tokens"), _find(frame, "completion_tokens")
    price_in, price_out = _find(frame, "input_price"), _find(frame, "output_price")
    if prompt == "question":
        prompt_tokens = _find(frame, "input_tokens")
        if prompt_tokens is None:
            raise DataError("Costs by question need the column num_input_tokens (tokens of the bare question).")
    if price_in and price_out and prompt_tokens and completion_tokens:
        bad = frame.filter((pl.col(price_in) < 0) | (pl.col(price_out) < 0))
        if bad.height:
            model = _find(frame, "model")
            raise DataError(
                f"Model {bad.get_column(model)[0] if model else '?'!r} has the price "
                f"{bad.get_column(price_in)[0]} USD a prompt token, {bad.get_column(price_out)[0]} a completion token: "
                "negative prices mean unknown; give a price book (prices=)."
            )
        priced = pl.col(prompt_tokens) * pl.col(price_in) + pl.col(completion_tokens) * pl.col(price_out)
        fees = pl.col("extra_fees").fill_null(0.0) if "extra_fees" in frame.columns else pl.lit(0.0)
        return frame.with_columns(
            (priced + fees).cast(pl.Float64).alias("cost"),
            pl.col(prompt_tokens).alias("prompt_tokens"),
            pl.col(completion_tokens).alias("completion_tokens"),
        )
    cost = _find(frame, "cost")
    if cost is not None:
        return frame.with_columns(pl.col(cost).cast(pl.Float64).alias("cost"))
    if "calls" in frame.columns:
        totals = subject_totals(frame)
        return frame.drop([name for name in totals.columns if name in frame.columns]).hstack(totals)
    raise DataError(
        "Records tell no cost: needed are a column cost, or tokens with prices a token "
        "(prompt_tokens, completion_tokens, usd_per_prompt_token, usd_per_completion_token), or assay's calls."
    )


def _check(table: pl.DataFrame, score: str) -> None:
    def first(bad: pl.DataFrame) -> str:
        row = bad.row(0, named=True)
        return f"model {row['model']!r}, problem {row['problem']!r}, run {row['run']!r}"

    bad = table.filter(pl.col("cost").is_null() | pl.col("cost").is_nan())
    if bad.height:
        named = bad.get_column("unpriced")[0] if "unpriced" in bad.columns else None
        model = named or bad.get_column("model")[0]
        if named is None and {"unpriced", "calls"} & set(bad.columns):
            raise DataError(
                f"Model {model!r} made no metered call in {bad.height} records (a submission or a plain function, "
                "say), so "
                "nobody knows what its answers cost; give records a column cost."
            )
        raise DataError(
            f"The price of model {model!r} is unknown ({bad.height} records); give it with "
            "?price_in=&price_out= on the system, or re-price with a price book (prices=)."
        )
    bad = table.filter((pl.col("cost") < 0) | pl.col("cost").is_infinite())
    if bad.height:
        raise DataError(f"A cost of {bad.get_column('cost')[0]} USD stands at {first(bad)}; costs are finite and >= 0.")
    bad = table.filter(pl.col("score").is_null() | pl.col("score").is_nan())
    if bad.height:
        raise DataError(f"Score {score!r} is missing in {bad.height} records, first at {first(bad)}.")
    bad = table.filter((pl.col("score") < 0) | (pl.col("score") > 1))
    if bad.height:
        raise DataError(
            f"Score {score!r} is {bad.get_column('score')[0]} at {first(bad)}; cost-of-pass needs a success (0 or 1) "
            "or a "
            "probability of acceptance in [0, 1]."
        )
    key = ["strategy", "problem", "run"]
    numbered = table.filter(pl.col("run").is_not_null())
    if numbered.height and numbered.select(key).n_unique() < numbered.height:
        row = numbered.filter(pl.struct(key).is_duplicated()).row(0, named=True)
        raise DataError(
            f"Strategy {row['strategy']!r} has problem {row['problem']!r}, run {row['run']!r} more than once; "
            "give each record once, or number the repetitions."
        )
    if "uid" in table.columns and table.get_column("uid").drop_nulls().is_duplicated().any():
        twice = table.filter(pl.col("uid").is_duplicated()).row(0, named=True)
        raise DataError(f"Record {twice['uid']!r} stands more than once (model {twice['model']!r}).")


@dataclass(frozen=True, slots=True)
class Cells:
    """Records by (strategy, problem): M strategies, P problems.

    Attributes
    ----------
    strategies, problems
        Names, sorted: nothing depends on the order of records.
    counts, costs, rates
        (M, P): attempts, mean dollars of an attempt, share of correct attempts. NaN where there are no attempts.
    record_costs, record_scores, offsets
        The records sorted by cell; cell (m, p) is the slice ``offsets[m * P + p] : offsets[m * P + p + 1]``.
    cluster
        (P,) number of the cluster that a problem belongs to.
    """

    strategies: tuple[str, ...]
    problems: tuple[str, ...]
    counts: np.ndarray
    costs: np.ndarray
    rates: np.ndarray
    record_costs: np.ndarray
    record_scores: np.ndarray
    offsets: np.ndarray
    cluster: np.ndarray


def cells(table: pl.DataFrame, *, missing: Missing = "raise") -> Cells:
    """Group normalised records into cells.

    Raises
    ------
    DataError
        A strategy has no record on a problem that another one has (``missing="drop"`` keeps the common problems), or
        nothing is common.
    """
    strategies = table.get_column("strategy").unique().sort()
    problems = table.get_column("problem").unique().sort()
    row = _codes(table.get_column("strategy"), strategies)
    column = _codes(table.get_column("problem"), problems)
    m, p = len(strategies), len(problems)
    cell = row * p + column
    counts = np.bincount(cell, minlength=m * p).reshape(m, p)
    gaps = (counts == 0).any(axis=0)
    if gaps.any():
        if missing == "raise":
            i, j = np.argwhere(counts == 0)[0]
            raise DataError(
                f"Strategy {strategies[int(i)]!r} has no complete record on problem {problems[int(j)]!r} "
                f"({int(gaps.sum())} of {p} problems are not tried by all {m}); run them, or keep the common problems "
                "with missing='drop'."
            )
        kept = problems.filter(pl.Series(~gaps))
        if len(kept) == 0:
            raise DataError("No problem was tried by every strategy; compare strategies on the same problems.")
        return cells(table.filter(pl.col("problem").is_in(kept.implode())), missing=missing)
    # Sorting by cost and score inside a cell makes sums, and draws from a cell, independent of the order of records.
    cost, score = table.get_column("cost").to_numpy(), table.get_column("score").to_numpy()
    order = np.lexsort((score, cost, cell))
    cost, score = cost[order], score[order]
    offsets = np.concatenate(([0], np.cumsum(counts.ravel())))
    mean_cost = np.add.reduceat(cost, offsets[:-1]).reshape(m, p) / counts
    rate = np.add.reduceat(score, offsets[:-1]).reshape(m, p) / counts
    clusters = table.group_by("problem").agg(pl.col("cluster").first()).sort("problem").get_column("cluster")
    return Cells(
        strategies=tuple(strategies.to_list()),
        problems=tuple(map(str, problems.to_list())),
        counts=counts,
        costs=mean_cost,
        rates=rate,
        record_costs=cost,
        record_scores=score,
        offsets=offsets,
        cluster=_codes(clusters, clusters.unique().sort()),
    )


def _codes(values: pl.Series, sorted_unique: pl.Series) -> np.ndarray:
    """Position of each value among the sorted unique ones."""
    return sorted_unique.search_sorted(values).to_numpy().astype(np.int64)
