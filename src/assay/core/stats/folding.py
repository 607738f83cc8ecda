"""From records to arrays: which records count, what errors count as, and the units that a metric sums over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from assay.core.benchmark import Metric, Resample
from assay.core.errors import DataError, UsageError, unknown_name
from assay.core.metrics import Terms
from assay.core.stats.intervals import Linear
from assay.core.stats.resampling import Codes, sums

ERRORED = ("error", "timeout")
UNCOUNTED = ("unscored", "skipped")
KEY = ("task", "sample", "attempt")


@dataclass(frozen=True, slots=True)
class Counted:
    """Records (or rows) that a metric counts, errors filled in, and what was left out."""

    frame: pl.DataFrame
    n_error: int
    n_left_out: int
    n_inapplicable: int

    def note(self) -> str:
        """What the reader must know about the records that do not count."""
        parts = []
        if self.n_left_out:
            parts.append(f"{self.n_left_out} errored trials left out")
        if self.n_inapplicable:
            parts.append(f"does not apply to {self.n_inapplicable}")
        return "; ".join(parts)


class MissingColumn(UsageError):
    """A metric reads a column that no record has."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A metric's units with their keys; ``reason`` says why the statistic, ``no_interval`` why its interval is
    undefined."""

    frame: pl.DataFrame
    linear: Linear
    reason: str = ""
    no_interval: str = ""


def complete(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the key columns that a frame lacks, so that any table of trials can be measured."""
    have = set(frame.columns)
    if "sample" not in have:
        frame = frame.with_columns(pl.int_range(pl.len()).cast(pl.String).alias("sample"))
    extra: list[pl.Expr] = []
    if "task" not in have:
        extra.append(pl.lit("").alias("task"))
    if "attempt" not in have:
        extra.append(pl.lit(0).alias("attempt"))
    if "status" not in have:
        extra.append(pl.lit("ok").alias("status"))
    cluster = pl.col("sample").cast(pl.String)
    if "cluster" in have:
        cluster = pl.coalesce(pl.col("cluster").cast(pl.String), cluster)
    return frame.with_columns(*extra, cluster.alias("cluster"))


def with_record_keys(rows: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Rows of the finer table with cluster, status and groups of their records beside them."""
    missing = [name for name in KEY if name not in rows.columns]
    if missing:
        raise UsageError(f"Rows need the key columns {', '.join(KEY)} of their record; {', '.join(missing)} missing.")
    beside = [name for name in records.columns if name in KEY or name not in rows.columns]
    return rows.join(records.select(beside), on=list(KEY), how="inner")


def select(frame: pl.DataFrame, where: Mapping[str, Any] | pl.Expr | None) -> pl.DataFrame:
    """Records that ``where`` keeps."""
    if where is None:
        return frame
    if isinstance(where, pl.Expr):
        return frame.filter(where)
    for column, value in where.items():
        if column not in frame.columns:
            raise unknown_name("column", column, frame.columns, "A metric's `where` names it.")
        wanted = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        frame = frame.filter(pl.col(column).is_in(wanted))
    return frame


def count(metric: Metric, frame: pl.DataFrame) -> Counted:
    """Apply ``where``, drop what was not scored or does not apply, and let errors count as the metric says."""
    frame = select(frame, metric.where)
    frame = frame.filter(~pl.col("status").is_in(UNCOUNTED))
    errored = pl.col("status").is_in(ERRORED)
    n_error = int(frame.select(errored.sum()).item())
    _require_columns(metric, frame, n_error)
    frame = frame.with_columns(pl.lit(None, dtype=pl.Float64).alias(c) for c in metric.reads if c not in frame.columns)
    if metric.error is None:
        frame = frame.filter(~errored)
    else:
        filled = _filled(metric, frame)
        frame = frame.with_columns(
            pl.when(errored & pl.col(c).is_null()).then(metric.error).otherwise(pl.col(c)).cast(pl.Float64).alias(c)
            for c in filled
        )
    before = len(frame)
    lacks = _lacks(metric, errored)
    lacking = frame.filter(lacks)
    if len(lacking):
        frame = frame.filter(~lacks)
    errors_lacking = int(lacking.select(errored.sum()).item())
    _refuse_nan(metric, frame)
    left_out = (n_error if metric.error is None else 0) + errors_lacking
    return Counted(frame, n_error, left_out, before - len(frame) - errors_lacking)


def fold(metric: Metric, frame: pl.DataFrame, rule: Resample) -> Folded | None:
    """Units and weights of a metric with a fast path under ``rule``; None where it has none and pays the loop."""
    terms = metric.terms
    if terms is None or (terms.fold == "majority" and rule == "attempts"):
        return None
    reason = ""
    over = terms.over
    score = _numbers(frame, terms.numerator) if terms.equals is None else _matches(metric, terms, frame)
    no_interval = ""
    if terms.fold in ("pass_at", "pass_all"):
        frame, score, reason, no_interval = _passes(terms, frame, score, by_attempt=rule == "attempts")
        over = ("task", "sample") if rule == "attempts" else ()
    elif terms.fold == "average" and rule == "attempts":
        over = ("task", "sample")
    elif terms.fold == "average":
        frame, sample = _by_sample(frame)
        score = sums(sample, score) / np.bincount(sample)
    elif terms.fold == "majority":
        frame, score, reason = _majorities(terms, frame)
    if terms.denominator is None:
        denominator = np.ones(len(frame))
    else:
        denominator = _numbers(frame, terms.denominator)
        if len(denominator) and denominator.sum() == 0:
            reason = f"the sum of {terms.denominator!r} is 0"
    stratum, weight = _strata(frame, over)
    binary = terms.denominator is None and not terms.summed and bool(np.all((score == 0) | (score == 1)))
    # A part of a whole in every record (right ones of all, accepted ones of all) is a share, and so is their ratio.
    share = terms.denominator is not None and bool(np.all((score >= 0) & (score <= denominator)))
    in_unit = not terms.summed and (share or (metric.bounds == (0, 1) and terms.denominator is None))
    linear = Linear(
        score,
        denominator,
        codes(frame, ("cluster",)),
        codes(frame, ("task", "sample")),
        stratum,
        weight,
        summed=terms.summed,
        unit_range=binary or in_unit or terms.fold in ("pass_at", "pass_all"),
        binary=binary,
    )
    return Folded(frame, linear, reason, no_interval)


def value_of(terms: Terms, frame: pl.DataFrame) -> float:
    """The statistic of counted records; NaN where undefined."""
    metric = Metric("", lambda _: 0.0, terms=terms)
    frame = complete(frame)
    frame = frame.filter(~_lacks(metric, pl.col("status").is_in(ERRORED)))
    folded = fold(metric, frame, "samples")
    assert folded is not None
    if folded.reason:
        return float("nan")
    if terms.fold == "median":
        return float(np.median(folded.linear.numerator)) if len(folded.frame) else float("nan")
    return folded.linear.value()


def codes(frame: pl.DataFrame, columns: Sequence[str]) -> Codes:
    """Codes 0, 1, ... of the combinations of ``columns``, in the order of their values: row order does not matter."""
    if len(frame) == 0:
        return np.zeros(0, dtype=np.intp)
    if len(columns) == 1:
        return frame.get_column(columns[0]).rank("dense").to_numpy().astype(np.intp) - 1
    found = np.zeros(len(frame), dtype=np.intp)
    for column in columns:
        part = frame.get_column(column).rank("dense").to_numpy().astype(np.intp) - 1
        if part.max() == 0:
            continue
        found = np.unique(found * (part.max() + 1) + part, return_inverse=True)[1]
    return found


def choose_ratio(n: ArrayLike, c: ArrayLike, k: int, *, fails: bool) -> NDArray[np.float64]:
    """``C(n-c, k) / C(n, k)`` (``fails``) or ``C(c, k) / C(n, k)``; NaN where k > n.

    A product of k ratios: exact to a few rounding errors where factorials would lose digits.
    """
    n, c = np.broadcast_arrays(np.asarray(n, float), np.asarray(c, float))
    for what, counts in (("n", n), ("c", c)):
        if not np.all(np.isfinite(counts)) or np.any(counts != np.floor(counts)) or np.any(counts < 0):
            raise UsageError(f"pass@k: {what} must be whole numbers, at least 0.")
    if np.any(c > n):
        at = int(np.flatnonzero((c > n).ravel())[0])
        raise UsageError(f"pass@k: {c.ravel()[at]:.0f} passes among {n.ravel()[at]:.0f} attempts (entry {at}).")
    chosen = n - c if fails else c
    pairs, inverse = np.unique(np.stack([n.ravel(), chosen.ravel()]), axis=1, return_inverse=True)
    product = np.ones(pairs.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        for j in range(k):
            product *= np.clip((pairs[1] - j) / (pairs[0] - j), 0.0, 1.0)
    product[pairs[0] < k] = np.nan
    return product[inverse.ravel()].reshape(n.shape)


def _require_columns(metric: Metric, frame: pl.DataFrame, n_error: int) -> None:
    """Where every trial errored no score column exists, and that is no mistake."""
    for column in metric.reads:
        if column not in frame.columns and len(frame) > n_error:
            raise MissingColumn(str(unknown_name("column", column, frame.columns, f"Metric {metric.name!r} reads it.")))


def _filled(metric: Metric, frame: pl.DataFrame) -> list[str]:
    """Columns in which a null of an errored trial becomes the metric's ``error``: scores, never denominators."""
    terms = metric.terms
    if terms is None:
        return [c for c in metric.reads if frame.schema[c].is_numeric() or frame.schema[c] == pl.Boolean]
    if terms.equals is not None:
        return []
    _require_numbers(frame, terms.numerator)
    return [terms.numerator]


def _lacks(metric: Metric, errored: pl.Expr) -> pl.Expr:
    """Whether a record lacks a value that it needs to count."""
    terms = metric.terms
    if terms is None:
        return pl.lit(False)
    names = [c for c in terms.over if c not in KEY]
    if terms.denominator is not None:
        names.append(terms.denominator)
    lacks = pl.col(terms.numerator).is_null()
    if terms.equals is not None:  # an errored trial has no such group, and counts as the metric's `error`
        lacks &= ~errored
    return pl.any_horizontal(lacks, *(pl.col(c).is_null() for c in names))


def _refuse_nan(metric: Metric, frame: pl.DataFrame) -> None:
    names = [c for c in metric.reads if frame.schema[c].is_float()]
    for name in names:
        bad = frame.filter(pl.col(name).is_nan())
        if len(bad):
            row = bad.row(0, named=True)
            raise DataError(
                f"Score {name!r} of sample {row['sample']!r}, attempt {row['attempt']} of task {row['task']!r} is NaN; "
                "a score that does not apply is null."
            )


def _matches(metric: Metric, terms: Terms, frame: pl.DataFrame) -> NDArray[np.float64]:
    column = frame.get_column(terms.numerator)
    if column.null_count() == len(column):
        # No trial got as far as having this group, so its type is anybody's guess.
        return np.full(len(column), float(metric.error or 0.0))
    same = column.is_in(list(terms.equals or ()))
    return same.cast(pl.Float64).fill_null(metric.error or 0.0).to_numpy().copy()


def _numbers(frame: pl.DataFrame, column: str) -> NDArray[np.float64]:
    _require_numbers(frame, column)
    return frame.get_column(column).cast(pl.Float64).to_numpy().copy()


def _require_numbers(frame: pl.DataFrame, column: str) -> None:
    dtype = frame.schema[column]
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        raise UsageError(f"Column {column!r} holds {dtype}, not numbers; rate({column!r}, value) counts values.")


def _strata(frame: pl.DataFrame, over: Sequence[str]) -> tuple[Codes, NDArray[np.float64]]:
    """Codes of the finest strata and their weights: 1 by the number of siblings, multiplied down the levels."""
    if not over:
        return np.zeros(len(frame), dtype=np.intp), np.ones(1)
    if tuple(over) == ("task", "sample"):  # one level: a sample's name is its task and id
        stratum = codes(frame, over)
        found = int(stratum.max()) + 1 if len(stratum) else 0
        return stratum, np.full(found, 1 / max(found, 1))
    parent, weight = np.zeros(len(frame), dtype=np.intp), np.ones(1)
    for level in range(1, len(over) + 1):
        stratum = codes(frame, over[:level])
        found = int(stratum.max()) + 1 if len(stratum) else 0
        above = np.zeros(found, dtype=np.intp)
        above[stratum] = parent
        weight = weight[above] / np.bincount(above, minlength=len(weight))[above]
        parent = stratum
    return parent, weight


def _by_sample(frame: pl.DataFrame) -> tuple[pl.DataFrame, Codes]:
    """One row a (task, sample), and the row of each record."""
    sample = codes(frame, ("task", "sample"))
    first = np.unique(sample, return_index=True)[1]
    return frame[first], sample


def _passes(
    terms: Terms, frame: pl.DataFrame, score: NDArray[np.float64], *, by_attempt: bool
) -> tuple[pl.DataFrame, NDArray[np.float64], str, str]:
    """Estimate a sample, or jackknife pseudo-values an attempt (their mean is the estimate: it is a U-statistic)."""
    if np.any((score != 0) & (score != 1)):
        bad = frame[int(np.flatnonzero((score != 0) & (score != 1))[0])].row(0, named=True)
        raise DataError(
            f"pass@k and pass^k need scores of 0 or 1, and {terms.numerator!r} of sample {bad['sample']!r}, attempt "
            f"{bad['attempt']} is {bad[terms.numerator]}; use avg_at for graded scores."
        )
    k = terms.k or 1
    one, sample = _by_sample(frame)
    n, c = np.bincount(sample), sums(sample, score)
    short = int((n < k).sum())
    if short:
        reason = f"k={k} exceeds the {int(n.min())} attempts of {short} samples"
        return one, np.full(len(one), np.nan), reason, ""

    def estimate(n: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
        found = choose_ratio(n, c, k, fails=terms.fold == "pass_at")
        return 1 - found if terms.fold == "pass_at" else found

    if not by_attempt:
        return one, estimate(n, c), "", ""
    if np.any(n <= k):
        return one, estimate(n, c), "", f"no interval: k={k} leaves no attempt to vary"
    m = n[sample]
    pseudo = m * estimate(n, c)[sample] - (m - 1) * estimate(m - 1, c[sample] - score)
    return frame, pseudo, "", ""


def _majorities(terms: Terms, frame: pl.DataFrame) -> tuple[pl.DataFrame, NDArray[np.float64], str]:
    one, sample = _by_sample(frame)
    if len(frame) == 0:
        return one, np.zeros(0), ""
    n = np.bincount(sample)
    k = terms.k
    if k is not None and np.any(n < k):
        short = int((n < k).sum())
        return one, np.full(len(one), np.nan), f"k={k} exceeds the {int(n.min())} attempts of {short} samples"
    answer = frame.get_column(terms.answer or "").rank("dense").fill_null(0).to_numpy().astype(np.intp)
    score = _numbers(frame, terms.numerator)
    # One entry a distinct (sample, answer): votes and mean score.
    pair, inverse = np.unique(sample * (answer.max() + 1) + answer, return_inverse=True)
    votes = np.bincount(inverse)
    worth = sums(inverse, score) / votes
    owner, named = np.divmod(pair, answer.max() + 1)
    found = np.zeros(len(one))
    starts = np.searchsorted(owner, np.arange(len(one) + 1))
    known: dict[tuple[tuple[int, ...], int, int], NDArray[np.float64]] = {}
    for s in range(len(one)):
        at = np.arange(starts[s], starts[s + 1])
        at = at[named[at] > 0]
        counts = tuple(int(v) for v in votes[at])
        key = (counts, int(n[s]) - sum(counts), k or int(n[s]))
        if key not in known:
            known[key] = win_chances(*key)
        found[s] = known[key] @ worth[at]
    return one, found, ""


def win_chances(votes: Sequence[int], blank: int, k: int) -> NDArray[np.float64]:
    """Chance of each answer to win (ties shared) when k of ``sum(votes) + blank`` ballots are drawn without
    replacement; what is missing to 1 is the chance that all drawn ballots are blank."""
    total = comb(sum(votes) + blank, k)
    chances = np.zeros(len(votes))
    for i, own in enumerate(votes):
        for m in range(1, min(own, k) + 1):
            # ways[t][j]: choices of j ballots for the others, none above m votes, t of them with exactly m
            ways = [[0] * (k - m + 1) for _ in range(len(votes))]
            for j in range(min(blank, k - m) + 1):
                ways[0][j] = comb(blank, j)
            for other, count_ in enumerate(votes):
                if other != i:
                    ways = _add_answer(ways, count_, m)
            won = sum(row[k - m] / (t + 1) for t, row in enumerate(ways))
            chances[i] += comb(own, m) * won / total
    return chances


def _add_answer(ways: list[list[int]], votes: int, m: int) -> list[list[int]]:
    new = [[0] * len(ways[0]) for _ in ways]
    for t, row in enumerate(ways):
        for j, have in enumerate(row):
            if not have:
                continue
            for v in range(min(votes, m, len(row) - 1 - j) + 1):
                tied = t + (v == m)
                if tied < len(new):
                    new[tied][j + v] += have * comb(votes, v)
    return new
