"""Paired comparison: sign-flip permutation, McNemar, Bonett-Price, Holm, power, and words for what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, nctdtr, ndtri, stdtrit

from assay.core.errors import DataError, UsageError
from assay.core.stats.intervals import critical
from assay.core.stats.resampling import MAX_UNITS, Array, block_codes, chunks, sums

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from assay.core.metrics import Comparison

EXACT_UNITS = 14
"""Up to this many differing units all 2^units sign flips are enumerated."""


def sign_flip_test(
    differences: ArrayLike, *, rng: np.random.Generator, resamples: int | None = None
) -> tuple[float, bool]:
    """Two-sided permutation test that paired differences are symmetric about 0 (Fisher 1935).

    Parameters
    ----------
    differences
        One a unit (a cluster), shape (units,).

    Returns
    -------
    p, exact : float, bool
        Exact where at most `EXACT_UNITS` differ from 0; else Monte Carlo with the observed arrangement counted in.
    """
    d = np.asarray(differences, float)
    if d.ndim != 1 or not np.all(np.isfinite(d)):
        raise DataError("A sign-flip test needs a one-dimensional array of finite differences.")
    ones = np.zeros(len(d), dtype=np.intp)
    return swap_test(d, np.zeros_like(d), np.ones(len(d)), np.ones(len(d)), ones, np.ones(1), rng=rng,
                     resamples=resamples)  # fmt: skip


def swap_test(
    n_a: Array,
    n_b: Array,
    d_a: Array,
    d_b: Array,
    stratum: NDArray[np.intp],
    weight: Array,
    unit: NDArray[np.intp] | None = None,
    *,
    summed: bool = False,
    rng: np.random.Generator,
    resamples: int | None = None,
) -> tuple[float, bool]:
    """Permutation test of ``sum_s weight_s N_s/D_s`` between two systems: their labels are swapped unit by unit.

    Parameters
    ----------
    n_a, n_b, d_a, d_b
        Numerators and denominators of both systems, one a cell: a cell is what one unit has in one stratum.
    stratum, weight
        Stratum of each cell, weight of each stratum.
    unit
        Unit of each cell; None = the cells are the units.
    summed
        Whether the statistic is the sum of numerators.
    """
    from scipy.sparse import csr_matrix

    unit = np.arange(len(n_a)) if unit is None else unit
    strata = len(weight)
    if len(n_a) == 0:
        return 1.0, True
    if summed or np.array_equal(d_a, d_b):
        # Equal denominators: the difference is linear in the swaps, and strata fold into one weight a cell.
        scale = np.ones(len(n_a)) if summed else (weight / sums(stratum, d_a, strata))[stratum]
        n_a, n_b, d_a, d_b = n_a * scale, n_b * scale, np.zeros_like(n_a), np.zeros_like(n_a)
        stratum, weight, strata, summed = np.zeros_like(stratum), np.ones(1), 1, True
    total = [sums(stratum, x, strata) for x in (n_a, n_b, d_a, d_b)]
    dn, dd = n_a - n_b, d_a - d_b
    differs = (dn != 0) | (dd != 0)
    dn, dd, s = dn[differs], dd[differs], stratum[differs]
    u = np.unique(unit[differs], return_inverse=True)[1]
    units = int(u.max()) + 1 if len(u) else 0
    if units == 0:
        return 1.0, True
    blocks = block_codes(rng, units)
    if blocks is not None:
        u, units = blocks[u], MAX_UNITS
    moves = [csr_matrix((x, (s, u)), shape=(strata, units)) for x in (dn, dd)]

    def difference(flipped: NDArray[np.float64]) -> Array:
        move_n, move_d = (_moved(m, flipped) for m in moves)
        n1, n2 = total[0][:, None] - move_n, total[1][:, None] + move_n
        if summed:
            return (n1 - n2).sum(axis=0)
        d1, d2 = total[2][:, None] - move_d, total[3][:, None] + move_d
        with np.errstate(divide="ignore", invalid="ignore"):
            return weight @ (n1 / d1 - n2 / d2)

    observed = float(np.abs(difference(np.zeros((1, units)))[0]))
    # Arrangements that tie with the observed one up to rounding are as extreme.
    bar = observed - 1e-9 * max(observed, 1e-300)
    if units <= EXACT_UNITS:
        every = (np.arange(2**units)[:, None] >> np.arange(units)) & 1
        found = np.abs(difference(every.astype(float)))
        found = found[np.isfinite(found)]
        return float((found >= bar).mean()), True
    extreme = drawn = 0
    for size in chunks(resamples or (10_000 if units <= 2_000 else 2_000), max(units, strata)):
        found = np.abs(difference(rng.integers(0, 2, size=(size, units), dtype=np.int8).astype(float)))
        extreme += int((found >= bar).sum())
        drawn += int(np.isfinite(found).sum())
    return (1 + extreme) / (1 + drawn), False


def _moved(moves: csr_matrix, flipped: Array) -> Array:
    return np.asarray(moves @ flipped.T)


def mcnemar(only_a: int, only_b: int, *, mid: bool = False) -> float:
    """Two-sided exact McNemar test from the counts of discordant pairs; ``mid`` gives the mid-p value.

    1 where there is no discordant pair. McNemar 1947; mid-p: Fagerland, Lydersen and Laake 2013.
    """
    if only_a < 0 or only_b < 0:
        raise DataError(f"Counts of discordant pairs are at least 0; got {only_a} and {only_b}.")
    n, k = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    p = min(1.0, 2 * float(bdtr(k, n, 0.5)))
    if not mid:
        return p
    from scipy.stats import binom

    point = float(binom.pmf(k, n, 0.5))
    return 1.0 - point / 2 if only_a == only_b else p - point


def bonett_price(only_a: int, only_b: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a difference of paired proportions (Bonett and Price 2012): Wald after one more pair of each kind."""
    if n < 1 or only_a + only_b > n:
        raise DataError(f"{only_a} + {only_b} discordant pairs do not fit in {n} pairs.")
    p, q = (only_a + 1) / (n + 2), (only_b + 1) / (n + 2)
    half = critical(level) * np.sqrt((p + q - (p - q) ** 2) / (n + 2))
    return max(-1.0, float(p - q - half)), min(1.0, float(p - q + half))


def holm(p: ArrayLike) -> Array:
    """Holm's step-down adjusted p values, NaN left as they are and not counted (Holm 1979)."""
    p = np.asarray(p, float)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    adjusted = np.full_like(p, np.nan)
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps * p[order]))
    return adjusted


@dataclass(frozen=True, slots=True)
class Power:
    """What a pilot of ``n`` paired units with differences of standard deviation ``sd`` says about a larger study."""

    n: int
    difference: float
    sd: float
    detectable: float
    needed: int | None


def pilot_power(
    differences: ArrayLike, *, difference: float | None = None, power: float = 0.8, level: float = 0.95
) -> Power:
    """Power of a paired comparison from pilot differences, one a cluster.

    ``detectable`` is the smallest true difference that the pilot's n finds with the given power; ``needed`` the
    clusters for ``difference`` (None: the pilot's mean).
    """
    d = np.asarray(differences, float)
    if d.ndim != 1 or len(d) < 2:
        raise DataError("A pilot needs the differences of at least two clusters.")
    sd = float(d.std(ddof=1))
    aim = float(d.mean()) if difference is None else difference
    needed = needed_units(aim, sd, power=power, level=level)
    return Power(len(d), float(d.mean()), sd, detectable_difference(len(d), sd, power=power, level=level), needed)


def paired_power(n: int, difference: float, sd: float, *, level: float = 0.95) -> float:
    """Power of the two-sided paired t test of n units."""
    if n < 2 or sd <= 0:
        raise UsageError(f"Power needs at least two units and a positive standard deviation; got n={n}, sd={sd}.")
    bar = critical(level, n - 1)
    shift = abs(difference) / sd * np.sqrt(n)
    # The far tail by symmetry: its direct form is NaN for large shifts.
    return float(1 - nctdtr(n - 1, shift, bar) + 1 - nctdtr(n - 1, -shift, bar))


def needed_units(difference: float, sd: float, *, power: float = 0.8, level: float = 0.95) -> int | None:
    """Smallest number of paired units that finds ``difference`` with the given power; None for a difference of 0."""
    _check_power(power)
    if difference == 0 or not np.isfinite(difference) or not np.isfinite(sd):
        return None
    if sd == 0:
        return 2
    n = max(2, int(np.floor((sd / difference * (ndtri((1 + level) / 2) + ndtri(power))) ** 2)))
    if n > 1_000_000:  # t and normal agree
        return n
    while paired_power(n, difference, sd, level=level) < power:
        n += 1
    return n


def detectable_difference(n: int, sd: float, *, power: float = 0.8, level: float = 0.95) -> float:
    """Smallest true difference that n paired units find with the given power, in the units of ``sd``."""
    from scipy.optimize import brentq

    _check_power(power)
    if n < 2:
        raise UsageError(f"A paired comparison needs at least two units; got n={n}.")
    if sd == 0:
        return 0.0
    top = sd / np.sqrt(n) * (critical(level, n - 1) + float(stdtrit(n - 1, power))) * 4
    root: Any = brentq(lambda x: paired_power(n, x, sd, level=level) - power, 0, top)
    return float(root)


def decisive_words(comparisons: Sequence[Comparison]) -> str:
    """One sentence that says whether a ranking is decisive, and what it would take where it is not.

    ``comparisons`` are all pairs on one metric, as `assay.core.metrics.compare_all` returns them.
    """
    pairs = list(comparisons)
    if not pairs:
        return "There is only one system: nothing to rank."
    order = ranking(pairs)
    step = [_between(pairs, first, second) for first, second in pairwise(order)]
    metric = pairs[0].metric
    open_steps = [c for c in step if c is not None and not c.decisive]
    if not open_steps:
        count = "the two systems differ" if len(order) == 2 else f"all {len(order)} places are told apart"
        return f"The ranking by {metric} is decisive: {count} ({_level(pairs[0])}, paired, Holm-adjusted)."
    lead = step[0]
    if lead is not None and lead.decisive:
        tied = _cliques(order, pairs)
        groups = "; ".join(" and ".join(group) if len(group) == 2 else ", ".join(group) for group in tied)
        return (
            f"{order[0]} leads decisively by {metric}, but the order below is not decisive: "
            f"not told apart are {groups}."
        )
    top = [name for name in order[1:] if not _decided(pairs, order[0], name)]
    first = _between(pairs, order[0], order[1])
    assert first is not None
    shown = abs(first.difference)
    text = f"The ranking by {metric} is not decisive: {order[0]} is not told apart from {', '.join(top)}"
    if np.isfinite(first.p_holm):
        text += f" (ahead of {order[1]} by {shown:.3g}, p = {first.p_holm:.2g} after Holm"
        text += f", n = {first.n})" if first.n else ")"
    if first.n_needed and first.n_clusters and first.n_needed > first.n_clusters:
        text += f"; if that difference is real, about {_round_up(first.n_needed)} clusters would show it"
    return text + "."


def ranking(comparisons: Sequence[Comparison]) -> list[str]:
    """Names from best to worst by their mean paired difference to the others."""
    sums: dict[str, float] = {}
    for c in comparisons:
        sign = 1.0 if c.higher_is_better else -1.0
        gain = sign * c.difference if np.isfinite(c.difference) else 0.0
        sums[c.a] = sums.get(c.a, 0.0) + gain
        sums[c.b] = sums.get(c.b, 0.0) - gain
    return sorted(sums, key=lambda name: -sums[name])


def _between(pairs: Sequence[Comparison], x: str, y: str) -> Comparison | None:
    return next((c for c in pairs if {c.a, c.b} == {x, y}), None)


def _decided(pairs: Sequence[Comparison], x: str, y: str) -> bool:
    found = _between(pairs, x, y)
    return found is not None and found.decisive


def _cliques(order: Sequence[str], pairs: Sequence[Comparison]) -> list[list[str]]:
    """Maximal runs of the ranking in which no pair is decided."""
    runs: list[list[str]] = []
    for i in range(len(order)):
        j = i + 1
        while j < len(order) and all(not _decided(pairs, order[j], order[m]) for m in range(i, j)):
            j += 1
        if j - i > 1 and (not runs or order[j - 1] not in runs[-1]):
            runs.append(list(order[i:j]))
    return runs


def _level(comparison: Comparison) -> str:
    return f"{comparison.level:.0%} level"


def _round_up(n: int) -> str:
    """Two significant digits, upwards: a number of samples to plan with, not to believe to the last one."""
    scale = 10 ** max(0, len(str(n)) - 2)
    return f"{-(-n // scale) * scale:,}"


def _check_power(power: float) -> None:
    if not 0 < power < 1:
        raise UsageError(f"Power lies strictly between 0 and 1 (0.8, say); got {power!r}.")
