"""Two systems on the same samples: paired difference, interval, p."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import polars as pl

from assay.core.benchmark import Metric, Resample
from assay.core.errors import UsageError
from assay.core.metrics import Comparison
from assay.core.stats.evaluating import check_rule, measured, resampler_of, row_statistic
from assay.core.stats.folding import KEY, Folded, count, fold
from assay.core.stats.intervals import (
    MIN_STUDENTISED,
    Linear,
    bootstrap_interval,
    critical,
    default_resamples,
    layered_variance,
    studentised_deviations,
    studentised_limits,
    unit_influence,
)
from assay.core.stats.paired import bonett_price, holm, mcnemar, needed_units, swap_test
from assay.core.stats.resampling import Array, Codes, sums

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class _Difference:
    value_a: float = NAN
    value_b: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    test: str = "none"
    interval: str = "none"
    units: int = 0
    needed: int | None = None
    note: str = ""


def compare_pair(
    metric: Metric,
    a: pl.DataFrame,
    b: pl.DataFrame,
    *,
    resample: Resample,
    level: float,
    resamples: int | None,
    seed: int,
    rows: tuple[pl.DataFrame, pl.DataFrame] | None,
    names: tuple[str, str],
) -> Comparison:
    """See `assay.core.metrics.compare`."""
    critical(level)
    rule = metric.resample or resample
    check_rule(rule)
    sides = [count(metric, measured(metric, frame, rows[i] if rows else None)).frame for i, frame in enumerate((a, b))]
    (one, two), n, dropped = _paired(sides[0], sides[1], rule)
    if n == 0:
        return _comparison(metric, names, 0, _Difference(note="nothing that both were tried on"), level)
    rng = np.random.default_rng(seed)
    folded = fold(metric, one, rule), fold(metric, two, rule)
    if folded[0] is None or folded[1] is None or metric.terms.fold == "median" or _strata_differ(metric, one, two):
        found = _by_loop(metric, one, two, rule, level=level, resamples=resamples, rng=rng)
    else:
        found = _by_sums(folded[0], folded[1], rule, level=level, resamples=resamples, rng=rng)
    if dropped:
        found = replace(found, note="; ".join(filter(None, [found.note, f"{dropped} without a partner left out"])))
    return _comparison(metric, names, n, found, level)


def paired_differences(
    metric: Metric,
    a: pl.DataFrame,
    b: pl.DataFrame,
    *,
    resample: Resample,
    rows: tuple[pl.DataFrame, pl.DataFrame] | None,
) -> Array:
    """Difference of each paired unit, to first order: their mean is the metric's difference, their spread its error."""
    rule = metric.resample or resample
    check_rule(rule)
    sides = [count(metric, measured(metric, f, rows[i] if rows else None)).frame for i, f in enumerate((a, b))]
    (one, two), n, _ = _paired(sides[0], sides[1], rule)
    x, y = fold(metric, one, rule), fold(metric, two, rule)
    if n == 0 or x is None or y is None or metric.terms.fold == "median" or x.reason or y.reason:
        reason = (x.reason or y.reason) if x and y else ""
        raise UsageError(
            f"Metric {metric.name!r} has no paired differences here: "
            + (reason or ("it is no sum over units" if n else "nothing that both were tried on"))
            + "."
        )
    unit_x, unit_y, units = _units(x, y, rule)
    influence, _ = _paired_influence(x.linear, y.linear, unit_x, unit_y, units, rule)
    return influence * units + (x.linear.value() - y.linear.value() - (influence.sum() if x.linear.summed else 0.0))


def compare_pairs(
    metric: Metric,
    frames: Mapping[str, pl.DataFrame],
    *,
    resample: Resample,
    level: float,
    resamples: int | None,
    seed: int,
    rows: Mapping[str, pl.DataFrame] | None,
) -> list[Comparison]:
    """See `assay.core.metrics.compare_all`."""
    found = [
        compare_pair(
            metric,
            frames[x],
            frames[y],
            resample=resample,
            level=level,
            resamples=resamples,
            seed=seed,
            rows=(rows[x], rows[y]) if rows else None,
            names=(x, y),
        )
        for x, y in combinations(frames, 2)
    ]
    adjusted = holm([c.p for c in found])
    return [replace(c, p_holm=float(p), decisive=bool(p < 1 - c.level), note=c.note) for c, p in zip(found, adjusted)]


def _comparison(metric: Metric, names: tuple[str, str], n: int, found: _Difference, level: float) -> Comparison:
    return Comparison(
        metric=metric.name,
        a=names[0],
        b=names[1],
        difference=found.value_a - found.value_b,
        low=found.low,
        high=found.high,
        p=found.p,
        p_holm=found.p,
        test=found.test,
        n=n,
        decisive=bool(found.p < 1 - level),
        interval=found.interval,
        n_clusters=found.units,
        n_needed=found.needed,
        value_a=found.value_a,
        value_b=found.value_b,
        level=level,
        higher_is_better=metric.higher_is_better,
        note=found.note,
    )


def _pairs(frame: pl.DataFrame, keys: Sequence[str]) -> int:
    return frame.select(keys).n_unique() if len(frame) else 0


def _paired(a: pl.DataFrame, b: pl.DataFrame, rule: Resample) -> tuple[tuple[pl.DataFrame, pl.DataFrame], int, int]:
    """Records of both on what both have, in an order that does not depend on the input; shared pairs, pairs dropped.

    Samples pair by task and id, across two tasks by id (modes of one item), and where ids differ too by cluster
    (conditions of one problem). Clusters are as ``a`` has them.
    """
    keys = list(KEY) if rule == "attempts" else list(KEY[:2])
    tasks = [frame.get_column("task").unique().to_list() for frame in (a, b)]
    if len(tasks[0]) == len(tasks[1]) == 1:
        b = b.with_columns(pl.lit(tasks[0][0]).alias("task"))
    shared = a.select(*keys, "cluster").unique(keys).join(b.select(keys).unique(), on=keys, how="inner")
    if len(shared) == 0 and rule != "attempts":
        keys = ["cluster"]
        shared = a.select(keys).unique().join(b.select(keys).unique(), on=keys, how="inner")
    first = a.join(shared.select(keys), on=keys, how="semi").sort(KEY)
    if keys == ["cluster"]:
        second = b.join(shared, on=keys, how="semi").sort(KEY)
    else:
        second = b.drop("cluster").join(shared, on=keys, how="inner").sort(KEY)
    return (first, second), len(shared), max(_pairs(a, keys), _pairs(b, keys)) - len(shared)


def _strata_differ(metric: Metric, a: pl.DataFrame, b: pl.DataFrame) -> bool:
    """Groups known only afterwards (who answered, say) can differ between systems: then sums do not pair."""
    over = list(metric.terms.over)
    return bool(over) and not a.select(over).unique().sort(over).equals(b.select(over).unique().sort(over))


def _by_sums(
    a: Folded, b: Folded, rule: Resample, *, level: float, resamples: int | None, rng: np.random.Generator
) -> _Difference:
    reason = a.reason or b.reason
    if reason:
        return _Difference(note=reason)
    x, y = a.linear, b.linear
    values = x.value(), y.value()
    found = _Difference(value_a=values[0], value_b=values[1])
    if not np.all(np.isfinite(values)):
        return replace(found, note="undefined on the samples that both were tried on")
    unit_x, unit_y, units = _units(a, b, rule)
    found = replace(found, units=units)
    p, exact = _swap(x, y, unit_x, unit_y, rng, resamples)
    found = replace(found, p=p, test="sign-flip permutation" + (", exact" if exact else ""))
    if a.no_interval or b.no_interval:
        return replace(found, note=a.no_interval or b.no_interval)
    influence, layer = _paired_influence(x, y, unit_x, unit_y, units, rule)
    variance, df = layered_variance(influence, layer)
    if not df > 0:
        return replace(found, note="no interval: nothing repeats that could vary")
    se = float(np.sqrt(variance))
    difference = values[0] - values[1]
    one_a_unit = len(x.numerator) == len(y.numerator) == units
    one_stratum = len(x.weight) == len(y.weight) == 1
    plain = rule != "attempts" and one_stratum and one_a_unit and x.binary and y.binary
    needed = needed_units(difference, se * np.sqrt(units), level=level)
    found = replace(found, needed=needed)
    if plain:
        wins = sums(unit_x, x.numerator) - sums(unit_y, y.numerator)
        only_a, only_b = int((wins > 0).sum()), int((wins < 0).sum())
        low, high = bonett_price(only_a, only_b, units, level)
        return replace(found, low=low, high=high, p=mcnemar(only_a, only_b), test="McNemar, exact",
                       interval="Bonett-Price")  # fmt: skip
    if rule != "attempts" and one_stratum and units >= MIN_STUDENTISED and variance > 0:
        sides = [_cluster_sums(side, unit, units) for side, unit in ((x, unit_x), (y, unit_y))]
        t = studentised_deviations(sides, [1.0, -1.0], resamples=resamples, rng=rng)
        low, high = studentised_limits(t, difference, se, level)
        return replace(found, low=low, high=high, interval="studentised cluster bootstrap")
    half = critical(level, df) * se
    method = "t, paired attempts within samples" if rule == "attempts" else "paired cluster t"
    note = found.note if variance > 0 else "no difference between paired units varied"
    return replace(found, low=difference - half, high=difference + half, interval=method, note=note)


def _units(a: Folded, b: Folded, rule: Resample) -> tuple[Codes, Codes, int]:
    """Codes of the paired units, common to both sides."""
    columns = list(KEY) if rule == "attempts" else ["cluster"]
    both = pl.concat([a.frame.select(columns), b.frame.select(columns)], how="vertical_relaxed")
    code = both.select(pl.struct(columns).rank("dense")).to_series().to_numpy().astype(np.intp) - 1
    return code[: len(a.frame)], code[len(a.frame) :], int(code.max()) + 1


def _paired_influence(
    x: Linear, y: Linear, unit_x: Codes, unit_y: Codes, units: int, rule: Resample
) -> tuple[Array, Codes]:
    """Difference of both systems' influences a unit, and the layer of each unit (as of the first system)."""
    if rule == "attempts":
        layer = np.zeros(units, dtype=np.intp)
        layer[unit_x] = x.sample
        of_a, of_b = x.influence(), y.influence()
        influence = sums(unit_x, of_a, units) - sums(unit_y, of_b, units)
        influence[np.bincount(layer)[layer] == 1] = 0.0
        return influence, layer
    (of_a, layer), (of_b, _) = unit_influence(x, rule), unit_influence(y, rule)
    return of_a - of_b, layer


def _cluster_sums(side: Linear, unit: Codes, units: int) -> tuple[Array, Array]:
    n = sums(unit, side.numerator, units)
    if side.summed:
        return n, np.full(units, 1 / units)
    return n, sums(unit, side.denominator, units)


def _swap(
    x: Linear, y: Linear, unit_x: Codes, unit_y: Codes, rng: np.random.Generator, resamples: int | None
) -> tuple[float, bool]:
    strata = len(x.weight)
    cells, inverse = np.unique(
        np.concatenate([unit_x * strata + x.stratum, unit_y * strata + y.stratum]), return_inverse=True
    )
    of_x, of_y = inverse[: len(unit_x)], inverse[len(unit_x) :]
    size = len(cells)
    return swap_test(
        sums(of_x, x.numerator, size),
        sums(of_y, y.numerator, size),
        sums(of_x, x.denominator, size),
        sums(of_y, y.denominator, size),
        cells % strata,
        x.weight,
        cells // strata,
        summed=x.summed,
        rng=rng,
        resamples=resamples,
    )


def _by_loop(
    metric: Metric, a: pl.DataFrame, b: pl.DataFrame, rule: Resample, *, level: float, resamples: int | None,
    rng: np.random.Generator,
) -> _Difference:  # fmt: skip
    """Own statistics: both sides in one frame, drawn together; labels swapped unit by unit for p."""
    side = "__side__"
    columns = [c for c in a.columns if c in b.columns]
    stacked = pl.concat(
        [a.select(columns).with_columns(pl.lit(0).alias(side)), b.select(columns).with_columns(pl.lit(1).alias(side))],
        how="vertical_relaxed",
    )
    label = stacked.get_column(side).to_numpy()
    frame = stacked.drop(side)

    statistic = row_statistic(metric, frame)

    def difference(at: Codes, swapped: Codes | None = None) -> float:
        of = label[at] if swapped is None else label[at] ^ swapped
        return statistic(at[of == 0]) - statistic(at[of == 1])

    everything = np.arange(len(frame))
    values = statistic(np.flatnonzero(label == 0)), statistic(np.flatnonzero(label == 1))
    observed = values[0] - values[1]
    found = _Difference(value_a=values[0], value_b=values[1])
    if not np.isfinite(observed):
        return replace(found, note="undefined on the samples that both were tried on")
    resampler = resampler_of(frame)
    estimate = bootstrap_interval(difference, observed, resampler, rule, level=level, resamples=resamples, rng=rng)
    columns = list(KEY) if rule == "attempts" else ["cluster"]
    unit = frame.select(pl.struct(columns).rank("dense")).to_series().to_numpy().astype(np.intp) - 1
    units = int(unit.max()) + 1
    size = resamples or default_resamples(10**9)
    extreme = drawn = 0
    for _ in range(size):
        flipped = difference(everything, rng.integers(0, 2, size=units)[unit])
        if np.isfinite(flipped):
            drawn += 1
            extreme += abs(flipped) >= abs(observed) * (1 - 1e-9)
    needed = needed_units(observed, estimate.se * np.sqrt(units), level=level) if estimate.se > 0 else None
    return replace(
        found, low=estimate.low, high=estimate.high, p=(1 + extreme) / (1 + drawn), test="label-swap permutation",
        interval=estimate.method, units=units, needed=needed, note=estimate.note,
    )  # fmt: skip
