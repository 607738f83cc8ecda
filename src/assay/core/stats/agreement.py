"""Agreement between raters: Cohen's and Fleiss' kappa, Krippendorff's and Cronbach's alpha, intraclass correlation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc, fdtri

from assay.core.errors import DataError, UsageError
from assay.core.stats.resampling import Array, Codes

Level = Literal["nominal", "ordinal", "interval", "ratio"]
Weights = Literal["linear", "quadratic"]
NAN = float("nan")


def cohen_kappa(a: Sequence[Any], b: Sequence[Any], *, weights: Weights | None = None) -> float:
    """Cohen's kappa of two raters on the same items; weighted kappa takes categories in sorted order.

    NaN where chance agreement is 1 (both raters constant and equal). Cohen 1960, 1968.
    """
    if len(a) != len(b):
        raise DataError(f"Two raters must judge the same items; got {len(a)} and {len(b)} ratings.")
    if len(a) == 0:
        return NAN
    categories, codes = _codes([*a, *b])
    k = len(categories)
    table = np.bincount(codes[: len(a)] * k + codes[len(a) :], minlength=k * k).reshape(k, k) / len(a)
    chance = np.outer(table.sum(axis=1), table.sum(axis=0))
    cost = _disagreement_weights(k, weights)
    expected = float((cost * chance).sum())
    return 1 - float((cost * table).sum()) / expected if expected > 0 else NAN


def fleiss_kappa(counts: ArrayLike) -> float:
    """Fleiss' kappa from counts of shape (items, categories), each item with the same number of raters (Fleiss 1971).

    NaN where chance agreement is 1.
    """
    table = np.asarray(counts, float)
    if table.ndim != 2 or np.any(table < 0) or np.any(table != np.floor(table)):
        raise DataError("Fleiss' kappa needs whole counts of shape (items, categories).")
    raters = table.sum(axis=1)
    if len(raters) == 0 or np.any(raters != raters[0]) or raters[0] < 2:
        raise DataError("Fleiss' kappa needs the same number of raters, at least 2, on every item.")
    n = raters[0]
    observed = float(((table**2).sum(axis=1) - n).mean() / (n * (n - 1)))
    chance = float(((table.sum(axis=0) / table.sum()) ** 2).sum())
    return (observed - chance) / (1 - chance) if chance < 1 else NAN


def krippendorff_alpha(ratings: Sequence[Sequence[Any]] | NDArray[Any], *, level: Level = "nominal") -> float:
    """Krippendorff's alpha of ratings of shape (raters, items); None or NaN is a missing rating.

    Parameters
    ----------
    level
        Level of measurement; beyond nominal the ratings are numbers.

    Returns
    -------
    float
        NaN where no item has two ratings or all ratings are equal. Krippendorff 2011.
    """
    rows = [list(row) for row in ratings]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise DataError("Krippendorff's alpha needs a full table (raters, items), missing ratings as None.")
    flat = [x for row in rows for x in row]
    present = np.array([not _missing(x) for x in flat])
    known = [x for x, here in zip(flat, present) if here]
    if level != "nominal" and any(isinstance(x, str) for x in known):
        raise UsageError(f"Krippendorff's alpha at level {level!r} needs numbers as ratings.")
    categories, codes = _codes(known)
    k = len(categories)
    if k < 2:
        return NAN
    item = np.tile(np.arange(len(rows[0])), len(rows))[present]
    units = np.bincount(item * k + codes, minlength=len(rows[0]) * k).reshape(-1, k).astype(float)
    units = units[units.sum(axis=1) > 1]
    if len(units) == 0:
        return NAN
    size = units.sum(axis=1)
    coincidence = np.einsum("ui,uj->ij", units / (size - 1)[:, None], units)
    coincidence -= np.diag((units / (size - 1)[:, None]).sum(axis=0))
    margin = coincidence.sum(axis=1)
    distance = _distances(categories, margin, level)
    n = margin.sum()
    expected = float((np.outer(margin, margin) * distance).sum()) / (n - 1)
    observed = float((coincidence * distance).sum())
    return 1 - observed / expected if expected > 0 else NAN


@dataclass(frozen=True, slots=True)
class IntraclassCorrelation:
    """One form of the intraclass correlation with its interval and the F test of no agreement."""

    form: str
    value: float
    low: float
    high: float
    f: float
    df1: float
    df2: float
    p: float


def icc(ratings: ArrayLike, *, level: float = 0.95) -> dict[str, IntraclassCorrelation]:
    """Six intraclass correlations of complete ratings of shape (targets, raters).

    Keys ``ICC(1,1)``, ``ICC(A,1)``, ``ICC(C,1)`` and the same with ``k`` for the mean of all raters: one-way, two-way
    absolute agreement, two-way consistency (Shrout and Fleiss 1979; McGraw and Wong 1996).
    """
    x = np.asarray(ratings, float)
    if x.ndim != 2 or min(x.shape) < 2 or not np.all(np.isfinite(x)):
        raise DataError("An intraclass correlation needs complete ratings of at least 2 targets by 2 raters.")
    n, k = x.shape
    grand, rows, columns = x.mean(), x.mean(axis=1), x.mean(axis=0)
    ms_row = k * float(((rows - grand) ** 2).sum()) / (n - 1)
    ms_column = n * float(((columns - grand) ** 2).sum()) / (k - 1)
    within = float(((x - rows[:, None]) ** 2).sum())
    ms_within = within / (n * (k - 1))
    df_error = (n - 1) * (k - 1)
    ms_error = max(0.0, within - ms_column * (k - 1)) / df_error
    tail = (1 - level) / 2

    def bounds(f: float, df2: float) -> tuple[float, float]:
        return f / fdtri(n - 1, df2, 1 - tail), f * fdtri(df2, n - 1, 1 - tail)

    with np.errstate(divide="ignore", invalid="ignore"):
        f_one, f_two = float(np.divide(ms_row, ms_within)), float(np.divide(ms_row, ms_error))
        one = [float(np.divide(f - 1, f + k - 1)) for f in (f_one, *bounds(f_one, n * (k - 1)))]
        consistent = [float(np.divide(f - 1, f + k - 1)) for f in (f_two, *bounds(f_two, df_error))]
        agree = _absolute(ms_row, ms_column, ms_error, n, k, tail)
    found = {}
    for name, three, f, df2 in (
        ("1", one, f_one, n * (k - 1)),
        ("A", agree, f_two, df_error),
        ("C", consistent, f_two, df_error),
    ):
        p = float(fdtrc(n - 1, df2, f)) if np.isfinite(f) else NAN
        # Spearman-Brown turns each single-rater value and bound into that of the mean of k raters.
        mean = [k * v / (1 + (k - 1) * v) if 1 + (k - 1) * v != 0 else NAN for v in three]
        for size, (value, low, high) in (("1", three), ("k", mean)):
            form = f"ICC({name},{size})"
            found[form] = IntraclassCorrelation(form, value, low, high, f, n - 1, df2, p)
    return found


def cronbach_alpha(scores: ArrayLike) -> float:
    """Cronbach's alpha of complete scores of shape (subjects, items); NaN where totals do not vary (Cronbach 1951)."""
    x = np.asarray(scores, float)
    if x.ndim != 2 or min(x.shape) < 2 or not np.all(np.isfinite(x)):
        raise DataError("Cronbach's alpha needs complete scores of at least 2 subjects by 2 items.")
    k = x.shape[1]
    total = float(x.sum(axis=1).var(ddof=1))
    return k / (k - 1) * (1 - float(x.var(axis=0, ddof=1).sum()) / total) if total > 0 else NAN


def bootstrap_agreement(
    statistic: Callable[[Codes], float], items: int, *, level: float = 0.95, resamples: int = 2000,
    rng: np.random.Generator,
) -> tuple[float, float]:  # fmt: skip
    """Percentile interval of an agreement statistic, items drawn with replacement; ``statistic`` takes item numbers."""
    from assay.core.stats.intervals import bootstrap_interval
    from assay.core.stats.resampling import Resampler

    every = np.arange(items)
    found = bootstrap_interval(
        statistic,
        statistic(every),
        Resampler(every, every, every),
        "samples",
        level=level,
        resamples=resamples,
        rng=rng,
    )
    return found.low, found.high


def _absolute(ms_row: float, ms_column: float, ms_error: float, n: int, k: int, tail: float) -> list[float]:
    """Two-way absolute agreement of one rater with McGraw and Wong's (1996) bounds."""
    value = float(np.divide(ms_row - ms_error, ms_row + (k - 1) * ms_error + k * (ms_column - ms_error) / n))
    a = np.divide(k * value, n * (1 - value))
    b = 1 + np.divide(k * value * (n - 1), n * (1 - value))
    df = np.divide(
        (a * ms_column + b * ms_error) ** 2,
        (a * ms_column) ** 2 / (k - 1) + (b * ms_error) ** 2 / ((n - 1) * (k - 1)),
    )
    if not np.isfinite(df):
        return [value, NAN, NAN]
    f_low, f_high = fdtri(n - 1, df, 1 - tail), fdtri(df, n - 1, 1 - tail)
    rest = k * ms_column + (k * n - k - n) * ms_error
    low = n * (ms_row - f_low * ms_error) / (f_low * rest + n * ms_row)
    high = n * (f_high * ms_row - ms_error) / (rest + n * f_high * ms_row)
    return [value, float(low), float(high)]


def _codes(values: Sequence[Any]) -> tuple[list[Any], Codes]:
    """Distinct values in sorted order (by type and text where they do not compare), and the code of each value."""
    distinct = set(values)
    try:
        categories = sorted(distinct)
    except TypeError:
        categories = sorted(distinct, key=lambda x: (type(x).__name__, str(x)))
    at = {x: i for i, x in enumerate(categories)}
    return categories, np.array([at[x] for x in values], dtype=np.intp)


def _missing(x: Any) -> bool:
    return x is None or (isinstance(x, (float, np.floating)) and bool(np.isnan(x)))


def _disagreement_weights(k: int, weights: Weights | None) -> Array:
    if weights is None:
        return 1.0 - np.eye(k)
    if weights not in ("linear", "quadratic"):
        raise UsageError(f"Weights of kappa are 'linear', 'quadratic' or None; got {weights!r}.")
    gap = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)
    return gap if weights == "linear" else gap**2


def _distances(categories: Sequence[Any], margin: Array, level: Level) -> Array:
    k = len(categories)
    if level == "nominal":
        return 1.0 - np.eye(k)
    if level == "ordinal":
        middle = np.cumsum(margin) - margin / 2
        return np.subtract.outer(middle, middle) ** 2
    v = np.array(categories, float)
    if level == "interval":
        return np.subtract.outer(v, v) ** 2
    if level == "ratio":
        if np.any(v < 0):
            raise DataError("Krippendorff's alpha at level 'ratio' needs ratings of at least 0.")
        total = np.add.outer(v, v)
        return np.where(total > 0, np.subtract.outer(v, v) / np.where(total > 0, total, 1), 0.0) ** 2
    raise UsageError(f"The level of measurement is nominal, ordinal, interval or ratio; got {level!r}.")
