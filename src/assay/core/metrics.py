"""Metrics as functions of records: constructors, their values with intervals, paired comparisons.

Importing this module is cheap (no polars, no numpy): a benchmark lists its metrics at class level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from assay.core.benchmark import Metric, Resample
from assay.core.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import ArrayLike

    from assay.core.stats.paired import Power

Fold = Literal["records", "average", "pass_at", "pass_all", "majority", "median"]


class Options(TypedDict, total=False):
    """Keywords that every constructor takes; see `assay.core.benchmark.Metric`.

    ``error`` is, unless given, 0 where higher is better and None (left out, counted, printed) where lower is: an
    errored trial never counts as the best value. ``rows=True`` reads the finer table below the records.
    """

    where: Mapping[str, Any] | pl.Expr | None
    by: Sequence[str] | str
    error: float | None
    resample: Resample | None
    higher_is_better: bool
    headline: bool
    bounds: tuple[float | None, float | None]
    rows: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """The fast path: a metric as weighted sum over strata of a sum of numerators by a sum of denominators.

    ``over`` names nested strata, each level averaged with equal weights; ``equals`` turns the numerator column into
    whether it has that value; ``summed`` reports the numerator alone; ``fold`` says what one unit is.
    """

    numerator: str
    denominator: str | None = None
    over: tuple[str, ...] = ()
    equals: tuple[Any, ...] | None = None
    summed: bool = False
    fold: Fold = "records"
    k: int | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """Value of a metric with its interval and everything that must be printed beside it.

    ``n`` counts the records that the value is made of, ``n_clusters`` the independent units among them. ``n_error``
    counts errored trials in scope: each stands in ``n`` with the metric's ``error``, or among ``n_left_out``.
    ``interval`` names the method. What is undefined is NaN, with the reason in ``note``.
    """

    metric: str
    value: float
    low: float
    high: float
    n: int
    n_clusters: int
    n_error: int = 0
    n_left_out: int = 0
    by: Mapping[str, Any] = field(default_factory=dict)
    resample: Resample = "samples"
    interval: str = ""
    note: str = ""
    level: float = 0.95
    higher_is_better: bool = True
    headline: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired difference ``a - b`` of a metric on what both systems were tried on.

    ``p`` is from ``test``, ``p_holm`` adjusted over all pairs of one table; ``n`` counts paired samples (paired trials
    where attempts are random); ``n_needed`` is the number of clusters at which the observed difference would be
    detected with 80 % power, None where it is zero or undefined.
    """

    metric: str
    a: str
    b: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    test: str
    n: int
    decisive: bool
    interval: str = ""
    n_clusters: int = 0
    n_needed: int | None = None
    value_a: float = float("nan")
    value_b: float = float("nan")
    level: float = 0.95
    higher_is_better: bool = True
    note: str = ""


def mean(score: str, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """Mean of a score over records (micro average)."""
    return _metric(name or score, Terms(score), (score,), options)


def ratio(numerator: str, denominator: str, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """Sum of ``numerator`` by sum of ``denominator``.

    Make the denominator a group of the sample: it then stands on errored trials too, and they stay below the fraction.
    """
    terms = Terms(numerator, denominator)
    return _metric(name or f"{numerator}/{denominator}", terms, (numerator, denominator), options)


def macro(score: str, *, over: str, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """Mean over the values of the group ``over`` of the mean score inside each."""
    return nested_mean(score, over=(over,), name=name or f"macro_{score}", **options)


def nested_mean(score: str, *, over: Sequence[str], name: str | None = None, **options: Unpack[Options]) -> Metric:
    """Mean over ``over[0]`` of means over ``over[1]`` ... of the mean score inside; equal weights at every level."""
    if isinstance(over, str) or not over:
        raise UsageError(f"nested_mean({score!r}) needs over=[group, ...] with at least one group, got {over!r}.")
    return _metric(name or f"nested_{score}", Terms(score, over=tuple(over)), (score, *over), options)


def avg_at(score: str, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """avg@n: mean over samples of the mean over their attempts, so samples with more attempts weigh no more."""
    return _metric(name or f"avg@n_{score}", Terms(score, fold="average"), (score,), options)


def total(score: str, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """Sum of a score over records."""
    return _metric(name or f"total_{score}", Terms(score, summed=True), (score,), options)


def median(score: str, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """Median of a score over records (mean of the two middle values); interval after Woodruff (1952)."""
    return _metric(name or f"median_{score}", Terms(score, fold="median"), (score,), options)


def rate(group: str, value: Any, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """Share of records whose ``group`` equals ``value`` (or is among a list of values): unread answers, refusals."""
    equals = tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
    label = "|".join(map(str, equals))
    return _metric(name or f"{group}={label}", Terms(group, equals=equals), (group,), options)


def pass_at(score: str, k: int, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """pass@k: chance that at least one of k attempts passes, unbiased by sample, then the mean over samples.

    NaN with a reason where a sample has fewer than k attempts. Chen et al. 2021, arXiv 2107.03374.
    """
    terms = Terms(score, fold="pass_at", k=_positive(k, "pass_at"))
    return _metric(name or f"pass@{k}", terms, (score,), options)


def pass_all(score: str, k: int, *, name: str | None = None, **options: Unpack[Options]) -> Metric:
    """pass^k: chance that all of k attempts pass, unbiased by sample, then the mean over samples.

    NaN with a reason where a sample has fewer than k attempts. Yao et al. 2024, arXiv 2406.12045.
    """
    terms = Terms(score, fold="pass_all", k=_positive(k, "pass_all"))
    return _metric(name or f"pass^{k}", terms, (score,), options)


def majority_at(
    score: str, answer: str, k: int | None = None, *, name: str | None = None, **options: Unpack[Options]
) -> Metric:
    """maj@k: expected score of the most frequent ``answer`` among k attempts of a sample, then the mean over samples.

    Exact over all choices of k of the n attempts (k=None: all of them). Tied answers share the win; a missing answer
    has no vote; no vote at all scores 0.
    """
    if k is not None:
        _positive(k, "majority_at")
    terms = Terms(score, fold="majority", k=k, answer=answer)
    return _metric(name or f"maj@{k or 'n'}", terms, (score, answer), options)


def function(
    name: str, f: Callable[[pl.DataFrame], float], reads: Sequence[str] = (), **options: Unpack[Options]
) -> Metric:
    """An own statistic of the frame of counted records; its interval pays a loop of bootstrap resamples."""
    return _metric(name, None, tuple(reads), options, f)


def evaluate(
    metric: Metric,
    frame: pl.DataFrame,
    *,
    resample: Resample = "samples",
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
    rows: pl.DataFrame | None = None,
) -> Score:
    """Value of a metric on records, with interval, n and what was left out.

    Parameters
    ----------
    frame
        Records, one row a trial: ``task``, ``sample``, ``attempt``, ``cluster``, ``status`` (each may be missing:
        one task, row numbers, 0, the sample, ok), groups and scores.
    resample
        What is random: samples (by cluster), attempts within samples, or both; ``metric.resample`` wins.
    level
        Confidence level in (0, 1).
    resamples
        Bootstrap resamples; None = 10,000 up to 500 clusters, else 2,000.
    rows
        The finer table with ``task``, ``sample``, ``attempt``, for metrics over rows.

    Raises
    ------
    UsageError
        A column that the metric reads or filters by is in no record.
    DataError
        A score is NaN, or not 0 or 1 where it must be.
    """
    from assay.core.stats.evaluating import evaluate_one

    return evaluate_one(
        metric, frame, resample=resample, level=level, resamples=resamples, seed=seed, rows=rows, by=None
    )


def evaluate_all(
    metrics: Sequence[Metric],
    frame: pl.DataFrame,
    resample_by_task: Mapping[str, Resample] | None = None,
    by: Sequence[str | tuple[str, ...]] | str = (),
    *,
    rows: Mapping[str, pl.DataFrame] | pl.DataFrame | None = None,
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
) -> list[Score]:
    """Every metric overall, then by each of its own groups and of ``by`` (a tuple of names = their combinations).

    A metric that reads a column which no record has gets NaN with that reason instead of ending the whole table.
    """
    from assay.core.stats.evaluating import evaluate_table

    by = (by,) if isinstance(by, str) else by
    return evaluate_table(
        metrics, frame, resample_by_task or {}, by, rows=rows, level=level, resamples=resamples, seed=seed
    )


def compare(
    metric: Metric,
    a: pl.DataFrame,
    b: pl.DataFrame,
    *,
    resample: Resample = "samples",
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
    rows: tuple[pl.DataFrame, pl.DataFrame] | None = None,
    names: tuple[str, str] = ("a", "b"),
) -> Comparison:
    """Paired difference of a metric between two systems, with interval and permutation or McNemar p.

    Only samples that both were tried on enter (trials with the same attempt, where attempts are random). Frames of one
    task each pair by sample id, whatever the tasks are called; conditions with ids of their own pair by cluster.
    """
    from assay.core.stats.comparing import compare_pair

    return compare_pair(
        metric, a, b, resample=resample, level=level, resamples=resamples, seed=seed, rows=rows, names=names
    )


def compare_all(
    metric: Metric,
    frames: Mapping[str, pl.DataFrame],
    *,
    resample: Resample = "samples",
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
    rows: Mapping[str, pl.DataFrame] | None = None,
) -> list[Comparison]:
    """Every pair of systems, with Holm's adjustment over the pairs."""
    from assay.core.stats.comparing import compare_pairs

    return compare_pairs(metric, frames, resample=resample, level=level, resamples=resamples, seed=seed, rows=rows)


def power(
    metric: Metric,
    a: pl.DataFrame,
    b: pl.DataFrame,
    *,
    difference: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
    resample: Resample = "samples",
    rows: tuple[pl.DataFrame, pl.DataFrame] | None = None,
) -> Power:
    """What a pilot of two systems says about a larger comparison: detectable difference, clusters needed.

    ``difference`` is the one to plan for; None = the pilot's own.
    """
    from assay.core.stats.comparing import paired_differences
    from assay.core.stats.paired import pilot_power

    found = paired_differences(metric, a, b, resample=resample, rows=rows)
    return pilot_power(found, difference=difference, power=power, level=level)


def pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> np.ndarray:
    """Unbiased pass@k of samples with c passes among n attempts: ``1 - C(n-c, k) / C(n, k)``.

    Parameters
    ----------
    n, c
        Whole numbers, 0 <= c <= n, of any common shape.
    k
        Attempts allowed, >= 1.

    Returns
    -------
    ndarray
        NaN where k > n: it cannot be estimated.

    Raises
    ------
    UsageError
        Counts that are not whole or not possible, k < 1.
    """
    from assay.core.stats.folding import choose_ratio

    return 1.0 - choose_ratio(n, c, _positive(k, "pass_at_k"), fails=True)


def pass_all_k(n: ArrayLike, c: ArrayLike, k: int) -> np.ndarray:
    """Unbiased pass^k of samples with c passes among n attempts: ``C(c, k) / C(n, k)``; see `pass_at_k`."""
    from assay.core.stats.folding import choose_ratio

    return choose_ratio(n, c, _positive(k, "pass_all_k"), fails=False)


def _positive(k: int, where: str) -> int:
    if isinstance(k, bool) or not hasattr(k, "__index__") or k < 1:
        raise UsageError(f"{where}: k is a whole number of attempts, at least 1; got {k!r}.")
    return int(k)


def _value(frame: pl.DataFrame, terms: Terms) -> float:
    from assay.core.stats.folding import value_of

    return value_of(terms, frame)


def _metric(
    name: str,
    terms: Terms | None,
    reads: tuple[str, ...],
    options: Options,
    f: Callable[[pl.DataFrame], float] | None = None,
) -> Metric:
    higher = options.get("higher_is_better", True)
    by = options.get("by", ())
    return Metric(
        name=name,
        value=f or partial(_value, terms=cast(Terms, terms)),
        reads=reads,
        over="rows" if options.get("rows", False) else "records",
        by=(by,) if isinstance(by, str) else tuple(by),
        where=options.get("where"),
        error=options.get("error", 0.0 if higher else None),
        resample=options.get("resample"),
        higher_is_better=higher,
        headline=options.get("headline", False),
        bounds=options.get("bounds", (None, None)),
        terms=terms,
    )
