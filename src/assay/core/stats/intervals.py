"""Intervals: Wilson, cluster-robust t, studentised cluster bootstrap, Woodruff, BCa bootstrap, Fisher's z.

Coverage in simulation decides which method stands where (``tests/core/test_stats_coverage.py``). Ratios of sums get
the studentised bootstrap: it follows skewness, and the plain percentile is too narrow for few clusters. Macro means
and attempts within samples get t with Satterthwaite's degrees of freedom: resampling the m units of a small stratum
loses the factor (m - 1) / m. Own functions get BCa, which follows bias and skewness, widened by the factor of the t
interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from assay.core.benchmark import Resample
from assay.core.errors import DataError, UsageError
from assay.core.stats.resampling import Array, Codes, Resampler, block_codes, chunks, multinomial_weights, sums

MIN_STUDENTISED = 8
"""Clusters from which on the studentised bootstrap is better than Student's t: below it resamples without any
variance are too frequent."""

MAX_JACKKNIFE = 250
"""Clusters up to which own functions pay a jackknife for BCa limits; beyond, skewness hardly moves them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval; ``units`` are what is random, ``df`` the degrees of freedom of ``se``."""

    value: float
    low: float
    high: float
    se: float
    df: float
    units: int
    method: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Linear:
    """The statistic ``sum_s weight_s * N_s / D_s`` with N, D sums over the records of stratum s (``summed``: N alone).

    All arrays are one entry a record; ``cluster``, ``sample`` and ``stratum`` are codes 0, 1, ... without gaps.
    ``unit_range`` says that values lie in [0, 1], ``binary`` that they are 0 or 1 with denominator 1.
    """

    numerator: Array
    denominator: Array
    cluster: Codes
    sample: Codes
    stratum: Codes
    weight: Array
    summed: bool = False
    unit_range: bool = False
    binary: bool = False

    @property
    def n_clusters(self) -> int:
        """Number of independent clusters."""
        return int(self.cluster.max()) + 1 if len(self.cluster) else 0

    def parts(self) -> tuple[Array, Array]:
        """Ratio and denominator of each stratum; NaN where a denominator is 0."""
        n = sums(self.stratum, self.numerator, len(self.weight))
        d = sums(self.stratum, self.denominator, len(self.weight))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(d != 0, n / d, np.nan), d

    def value(self) -> float:
        """The statistic; NaN without records or with a zero denominator."""
        if len(self.numerator) == 0:
            return float("nan")
        if self.summed:
            return float(self.numerator.sum())
        return float(self.weight @ self.parts()[0])

    def influence(self) -> Array:
        """First-order contribution of each record to the statistic's error."""
        if self.summed:
            return self.numerator
        r, d = self.parts()
        s = self.stratum
        return self.weight[s] * (self.numerator - r[s] * self.denominator) / d[s]


def critical(level: float, df: float = float("inf")) -> float:
    """Two-sided critical value of Student's t (normal for infinite df)."""
    if not 0 < level < 1:
        raise UsageError(f"The confidence level lies strictly between 0 and 1 (0.95, say); got {level!r}.")
    tail = (1 + level) / 2
    if np.isinf(df):
        return NormalDist().inv_cdf(tail)
    # Importing scipy costs more than a short run's scores; Wilson and the normal quantile need none of it.
    from scipy.special import stdtrit

    return float(stdtrit(df, tail))


def wilson(successes: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
    """Wilson score interval of a proportion (Wilson 1927); ``successes`` and ``n`` may be effective, not whole.

    Returns
    -------
    low, high : ndarray
        NaN where n is 0.
    """
    c, m = np.asarray(successes, float), np.asarray(n, float)
    if np.any((c < 0) | (c > m)):
        raise DataError("A Wilson interval needs 0 <= successes <= n.")
    z = critical(level)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = c / m
        centre = (p + z**2 / (2 * m)) / (1 + z**2 / m)
        half = z / (1 + z**2 / m) * np.sqrt(p * (1 - p) / m + z**2 / (4 * m**2))
    # At the ends the formula gives 0 and 1 up to rounding.
    low, high = np.where(c == 0, 0.0, centre - half), np.where(c == m, 1.0, centre + half)
    return np.where(m > 0, low, np.nan), np.where(m > 0, high, np.nan)


def fisher_z(r: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
    """Interval of a Pearson correlation of ``n`` pairs on Fisher's z scale (Fisher 1921); NaN for n <= 3."""
    r, n = np.asarray(r, float), np.asarray(n, float)
    if np.any(np.abs(r) > 1):
        raise DataError("A correlation lies in [-1, 1].")
    with np.errstate(divide="ignore", invalid="ignore"):
        z, half = np.arctanh(r), critical(level) / np.sqrt(np.where(n > 3, n - 3, np.nan))
        return np.tanh(z - half), np.tanh(z + half)


def mean_interval(
    values: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    rng: np.random.Generator,
) -> Estimate:
    """Mean of ``values`` with its interval; ``clusters`` names what each value belongs to (None: all independent)."""
    return ratio_interval(values, None, clusters, level=level, resamples=resamples, rng=rng)


def ratio_interval(
    numerator: ArrayLike,
    denominator: ArrayLike | None,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    rng: np.random.Generator,
) -> Estimate:
    """Ratio of sums with its interval, clusters being random."""
    x = np.asarray(numerator, float)
    d = np.ones_like(x) if denominator is None else np.asarray(denominator, float)
    codes = np.arange(len(x)) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    if not x.shape == d.shape == codes.shape or x.ndim != 1:
        raise UsageError(f"Numerator, denominator and clusters are one-dimensional and equally long; got {x.shape}.")
    zero = np.zeros(len(x), dtype=np.intp)
    binary = denominator is None and bool(np.all((x == 0) | (x == 1)))
    linear = Linear(x, d, codes, codes, zero, np.ones(1), unit_range=binary, binary=binary)
    return linear_interval(linear, "samples", level=level, resamples=resamples, rng=rng)


def linear_interval(
    linear: Linear, rule: Resample, *, level: float = 0.95, resamples: int | None = None, rng: np.random.Generator
) -> Estimate:
    """Interval of a `Linear` statistic under a rule of what is random.

    Under ``both`` clusters are units as under ``samples``: sums of a drawn cluster already carry the noise of its
    attempts, and drawing attempts again inside would count that noise twice (Davison and Hinkley 1997, section 3.8).
    """
    value = linear.value()
    attempts = rule == "attempts"
    units = len(linear.numerator) if attempts else linear.n_clusters
    base = Estimate(value, float("nan"), float("nan"), float("nan"), float("nan"), units, "none")
    if not np.isfinite(value):
        return base
    influence, layer = unit_influence(linear, rule)
    variance, df = layered_variance(influence, layer)
    if not df > 0:
        what = "no sample has a second attempt" if attempts else "there is only one cluster"
        return replace(base, note=f"no interval: {what}")
    base = replace(base, se=float(np.sqrt(variance)), df=df)
    if attempts:
        return _t(linear, base, level, "t, attempts within samples", _attempts_note(linear, variance))
    one_stratum = len(linear.weight) == 1
    if linear.unit_range and (linear.binary or variance <= 0):
        plain = linear.binary and one_stratum and units == len(linear.numerator)
        return _wilson(linear, base, level, plain=plain)
    if one_stratum and units >= MIN_STUDENTISED and variance > 0:
        return studentised(linear, base, level=level, resamples=resamples, rng=rng)
    if variance <= 0:
        return _t(linear, base, level, "cluster t", "no variation between clusters was seen")
    return _t(linear, base, level, "cluster t" if one_stratum else "cluster t, stratified")


def unit_influence(linear: Linear, rule: Resample) -> tuple[Array, Codes]:
    """Influence of each random unit, and the layer in which units are exchangeable.

    Attempts are exchangeable within their sample. Clusters are exchangeable within the stratum of a macro mean when
    each lies in one stratum; strata with a single cluster are collapsed into one layer, whose spread then includes
    the spread between strata (conservative, and exact when clusters ARE the strata).
    """
    record = linear.influence()
    if rule == "attempts":
        alone = np.bincount(linear.sample)[linear.sample] == 1
        return np.where(alone, 0.0, record), linear.sample
    groups, strata = linear.n_clusters, len(linear.weight)
    if strata == 1:
        return sums(linear.cluster, record, groups), np.zeros(groups, dtype=np.intp)
    pairs = np.unique(linear.stratum * groups + linear.cluster)
    single = np.bincount(pairs // groups, minlength=strata) == 1
    alone = single[linear.stratum]
    if alone.any():
        r, d = linear.parts()
        weight = linear.weight[single]
        centre = float(weight @ r[single] / weight.sum()) if len(weight) > 1 else linear.value()
        s = linear.stratum[alone]
        record[alone] = linear.weight[s] * (linear.numerator[alone] - centre * linear.denominator[alone]) / d[s]
    of_pair = np.where(single, strata, np.arange(strata))[pairs // groups]
    layer = np.zeros(groups, dtype=np.intp)
    layer[pairs % groups] = of_pair
    if np.any(layer[pairs % groups] != of_pair):  # clusters span strata: all are exchangeable
        layer[:] = 0
    return sums(linear.cluster, record, groups), layer


def layered_variance(influence: Array, layer: Codes) -> tuple[float, float]:
    """Variance of a sum of unit influences, independent within layers, and its Satterthwaite degrees of freedom.

    A layer of one unit has no estimate: alone it gives df 0; beside others its squared influence is taken as it is
    (its influence is 0 where it says nothing).
    """
    m = np.bincount(layer).astype(float)
    mean = sums(layer, influence) / np.maximum(m, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = sums(layer, (influence - mean[layer]) ** 2) * np.where(m > 1, m / (m - 1), 0.0)
    part = np.where(m == 1, sums(layer, influence) ** 2, part)
    if not np.any(m > 1):
        return 0.0, 0.0
    variance = float(part.sum())
    free = np.maximum(m - 1, 1)
    # No variation anywhere: every degree of freedom that could have shown some. Shares: squares of small parts are 0.
    df = 1 / float(((part / variance) ** 2 / free).sum()) if variance > 0 else float((m[m > 1] - 1).sum())
    return variance, df


def studentised(
    linear: Linear, base: Estimate, *, level: float, resamples: int | None, rng: np.random.Generator
) -> Estimate:
    """Studentised (bootstrap-t) interval of a ratio of sums over clusters (Efron 1979; Davison and Hinkley 1997).

    Each resample's own cluster-robust error stands below its deviation; all of it are sums of weights times moments.
    """
    groups = linear.n_clusters
    n = sums(linear.cluster, linear.numerator, groups)
    if linear.summed:
        d = np.full(groups, 1 / groups)
    else:
        d = sums(linear.cluster, linear.denominator, groups)
    t = studentised_deviations([(n, d)], [1.0], resamples=resamples, rng=rng)
    low, high = studentised_limits(t, base.value, base.se, level)
    if linear.unit_range:
        low, high = max(low, 0.0), min(high, 1.0)
    return replace(base, low=low, high=high, method="studentised cluster bootstrap")


def studentised_deviations(
    sides: list[tuple[Array, Array]], signs: list[float], *, resamples: int | None, rng: np.random.Generator
) -> Array:
    """Resampled ``(theta* - theta) / se*`` of a signed sum of ratios of cluster sums; undefined resamples left out.

    Parameters
    ----------
    sides
        Numerator and denominator a cluster, shape (clusters,) each, of every ratio; clusters are drawn together.
    signs
        Factor of each ratio: 1 for one system, (1, -1) for a difference.
    """
    columns: list[Array] = []
    for n, d in sides:
        columns += [n - n.sum() / d.sum() * d, d]
    z = np.stack(columns, axis=1)
    blocks = block_codes(rng, len(z))
    if blocks is not None:
        z = np.stack([sums(blocks, column) for column in z.T], axis=1)
    units, width = z.shape
    upper = np.triu_indices(width)
    products = z[:, upper[0]] * z[:, upper[1]]
    twice = np.where(upper[0] == upper[1], 1.0, 2.0)
    found = []
    for size in chunks(resamples or default_resamples(units), units):
        w = multinomial_weights(rng, size, units)
        drawn, moments = w @ z, w @ products
        e, d = drawn[:, 0::2], drawn[:, 1::2]
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = e / d
            coefficient = np.empty((size, width))
            coefficient[:, 0::2] = np.asarray(signs) / d
            coefficient[:, 1::2] = -np.asarray(signs) * deviation / d
            spread = (moments * twice * coefficient[:, upper[0]] * coefficient[:, upper[1]]).sum(axis=1)
            # Rounding leaves about 1e-16 of the products where a resample has no spread at all.
            spread[spread <= 1e-12 * np.abs(moments * coefficient[:, upper[0]] * coefficient[:, upper[1]]).sum(1)] = 0
            found.append((deviation @ np.asarray(signs)) / np.sqrt(spread * units / (units - 1)))
    t = np.concatenate(found)
    return t[np.isfinite(t)]


def studentised_limits(t: Array, value: float, se: float, level: float) -> tuple[float, float]:
    """Interval ends from studentised deviations."""
    tail = (1 - level) / 2
    below, above = np.quantile(t, [tail, 1 - tail])
    return float(value - above * se), float(value - below * se)


def woodruff(values: Array, linear: Linear, rule: Resample, level: float) -> Estimate:
    """Median with Woodruff's (1952) interval: the design's interval of the share below it, read off the quantiles.

    ``linear`` carries the codes of the records; its numerator is replaced.
    """
    middle = float(np.median(values))
    below = (values < middle) + 0.5 * (values == middle)
    share = replace(linear, numerator=below, binary=False, unit_range=False)
    influence, layer = unit_influence(share, rule)
    variance, df = layered_variance(influence, layer)
    units = len(values) if rule == "attempts" else linear.n_clusters
    if not df > 0:
        what = "no sample has a second attempt" if rule == "attempts" else "there is only one cluster"
        nan = float("nan")
        return Estimate(middle, nan, nan, nan, nan, units, "none", f"no interval: {what}")
    half = critical(level, df) * np.sqrt(variance)
    ends = np.clip([0.5 - half, 0.5 + half], 0, 1)
    low, high = (float(q) for q in np.quantile(values, ends))
    return Estimate(middle, low, high, float("nan"), df, units, "Woodruff")


def bootstrap_interval(
    statistic: Callable[[Codes], float],
    value: float,
    resampler: Resampler,
    rule: Resample,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    rng: np.random.Generator,
) -> Estimate:
    """Bootstrap of any function of rows: BCa or percentile, widened by the small-sample factor of the t interval.

    ``attempts`` and ``both`` are centred at the mean of the resamples: a drawn set of attempts has doubles, which
    shifts functions such as a best-of-n. Under ``both`` attempts are redrawn inside drawn clusters, and deviations are
    scaled back to the spread of the cluster draws, which already carries the noise of the attempts.
    """
    trials, clusters = resampler.trials_per_sample, resampler.n_clusters
    units = int(trials.sum()) if rule == "attempts" else clusters
    nan = float("nan")
    none = Estimate(value, nan, nan, nan, nan, units, "none")
    if not np.isfinite(value):
        return none
    if rule == "attempts":
        df = int((trials - 1).sum())
        if df == 0:
            return replace(none, note="no interval: no sample has a second attempt")
        several = trials[trials > 1].astype(float)
        small = np.sqrt((1 / several).sum() / ((several - 1) / several**2).sum())
    else:
        df = clusters - 1
        if df == 0:
            return replace(none, note="no interval: there is only one cluster")
        small = np.sqrt(clusters / df)
    size = resamples or 2000
    found, kept = np.empty(size), np.empty(size)
    for i in range(size):
        if rule == "samples":
            found[i] = statistic(resampler.samples(rng))
        elif rule == "attempts":
            found[i] = statistic(resampler.attempts(rng))
        else:
            drawn, redrawn = resampler.both(rng)
            kept[i], found[i] = statistic(drawn), statistic(redrawn)
    usable = found[np.isfinite(found)]
    if len(usable) < size / 2:
        return replace(none, df=df, note=f"no interval: undefined in {size - len(usable)} of {size} resamples")
    centre, spread = value, float(usable.std())
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    names = {"samples": "cluster bootstrap", "attempts": "bootstrap of attempts", "both": "nested bootstrap"}
    method = names[rule]
    if rule != "samples":
        centre = float(usable.mean())
    elif clusters <= MAX_JACKKNIFE and spread > 0:
        tails = _accelerated(statistic, value, resampler, usable, tails)
        method = "cluster bootstrap, BCa"
    if rule == "both" and spread > 0:
        small *= float(kept[np.isfinite(kept)].std()) / spread
    scale = small * critical(level, df) / critical(level)
    below, above = (float(q) - centre for q in np.quantile(usable, tails))
    note = "" if len(usable) == size else f"undefined in {size - len(usable)} of {size} resamples, left out"
    return Estimate(value, value + scale * below, value + scale * above, spread * small, df, units, method, note)


def _accelerated(
    statistic: Callable[[Codes], float], value: float, resampler: Resampler, found: Array, tails: Array
) -> Array:
    """Tail shares moved for bias and skewness (BCa, Efron 1987), the acceleration from a jackknife of clusters."""
    left_out = np.array([statistic(resampler.without(i)) for i in range(resampler.n_clusters)])
    if not np.all(np.isfinite(left_out)):
        return tails
    d = left_out.mean() - left_out
    squares = float((d**2).sum())
    acceleration = float((d**3).sum()) / (6 * squares**1.5) if squares > 0 else 0.0
    share = ((found < value).sum() + 0.5 * (found == value).sum()) / len(found)
    from scipy.special import ndtr, ndtri

    bias = ndtri(np.clip(share, 1 / len(found), 1 - 1 / len(found)))
    moved = bias + ndtri(tails)
    return ndtr(bias + moved / (1 - acceleration * moved))


def default_resamples(units: int) -> int:
    """Resamples where none were asked for: 10,000 while they cost milliseconds."""
    return 10_000 if units <= 500 else 2_000


def _t(linear: Linear, base: Estimate, level: float, method: str, note: str = "") -> Estimate:
    half = critical(level, base.df) * base.se
    low, high = base.value - half, base.value + half
    if linear.unit_range:
        low, high = max(low, 0.0), min(high, 1.0)
    return replace(base, low=low, high=high, method=method, note=note)


def _wilson(linear: Linear, base: Estimate, level: float, *, plain: bool) -> Estimate:
    """Wilson with the plain n, or with the n at which a plain proportion would have the cluster-robust error.

    The effective n carries the t correction of Korn and Graubard (1998); without any variance it is the number of
    records that fully dependent clusters are worth (Kish).
    """
    p = min(max(base.value, 0.0), 1.0)
    if plain:
        n = float(len(linear.numerator))
    else:
        _, d = linear.parts()
        share = sums(linear.cluster, linear.weight[linear.stratum] * linear.denominator / d[linear.stratum])
        if base.se > 0 and 0 < p < 1:
            effective = p * (1 - p) / base.se**2
            if len(linear.weight) == 1:
                effective = min(effective, float(len(linear.numerator)))
            n = effective * (critical(level) / critical(level, base.df)) ** 2
        else:
            n = 1.0 / float((share**2).sum())
    low, high = wilson(p * n, n, level)
    return replace(base, low=float(low), high=float(high), method="Wilson" if plain else "Wilson, cluster-adjusted")


def _attempts_note(linear: Linear, variance: float) -> str:
    alone = int((np.bincount(linear.sample) == 1).sum())
    if alone:
        return f"{alone} samples with a single attempt count as without noise"
    return "" if variance > 0 else "attempts of every sample agreed: no variation was seen"
