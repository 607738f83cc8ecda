"""Bootstrap of frontiers: problems, runs within problems, or problems and then runs.

All three are exact (every draw is what drawing records one by one would give); none visits a record more often than it
is drawn. Problems alone need one matrix product; runs are drawn a cell at a time for as many resamples as need that
cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from assay.core.errors import DataError, UsageError, unknown_name

if TYPE_CHECKING:
    from assay.reasoning.cost_of_pass.estimator import CostOfPass, Groups

Unit = Literal["nested", "problems", "runs"]
CHUNK = 4_000_000
"""Numbers held at once, so that ten thousand problems and ten thousand resamples stay below some 100 MB."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Draws of frontier values.

    Attributes
    ----------
    unit
        What was resampled.
    names
        ``frontier``, then each strategy, then each group left out.
    kinds
        ``frontier``, ``model`` or ``without``, beside each name.
    values
        (S,) estimates from the records themselves, USD.
    draws
        (S, n) the same from each resample.
    """

    unit: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: np.ndarray
    draws: np.ndarray

    def frame(self, level: float = 0.95, method: Literal["percentile", "basic"] = "percentile") -> pl.DataFrame:
        """Intervals: kind (frontier, model, essentialness), name, value, bias (mean of the draws - value), low, high.

        A minimum of noisy estimates lies too low, and so does a resampled one once more. Where runs are resampled the
        published percentile interval inherits that bias twice and may not even hold the estimate; ``basic`` (reversed
        percentile) takes it off.
        """
        if method not in ("percentile", "basic"):
            raise unknown_name("interval", method, ("percentile", "basic"))
        rows = []
        everything, all_draws = self.values[0], self.draws[0]
        for kind, name, value, draws in zip(self.kinds, self.names, self.values, self.draws, strict=True):
            if kind == "without":
                kind = "essentialness"
                value = (value - everything) / value if value > 0 else 0.0
                draws = np.divide(draws - all_draws, draws, out=np.zeros_like(draws), where=draws > 0)
            low, high = map(float, np.quantile(draws, [(1 - level) / 2, (1 + level) / 2]))
            if method == "basic":
                low, high = max(0.0, 2 * value - high), 2 * value - low
            bias = float(draws.mean()) - float(value)
            rows.append({"kind": kind, "name": name, "value": float(value), "bias": bias, "low": low, "high": high})
        return pl.DataFrame(rows)


def bootstrap(
    cop: CostOfPass, n: int, unit: Unit, rng: np.random.Generator, *, groups: Groups | None = None
) -> Bootstrap:
    """Resample; see `CostOfPass.bootstrap`.

    Raises
    ------
    UsageError
        n below 1 or an unknown unit.
    DataError
        No expert (the mean over problems would be infinite as soon as one is unsolved).
    """
    if n < 1:
        raise UsageError(f"A bootstrap needs at least one resample; got n={n}.")
    if cop.expert is None:
        raise DataError("A bootstrap of the frontier needs the cost of an expert: give expert_cost=.")
    if groups is None:
        known = "family" in cop.strategies.columns and cop.strategies.get_column("family").null_count() == 0
        groups = "family" if known else "model"
    members = cop._groups(groups)
    count = len(cop.cells.strategies)
    every = np.arange(count)
    sets = [every, *(np.array([i]) for i in every), *(np.setdiff1d(every, index) for _, index in members)]
    names = ("frontier", *cop.cells.strategies, *(name for name, _ in members))
    kinds = ("frontier", *["model"] * count, *["without"] * len(members))
    values = _minima(cop.values, sets, cop.expert).mean(axis=1)
    draws = resample(cop, sets, n, unit, rng)
    return Bootstrap(unit, names, kinds, values, draws)


def progress_draws(cop: CostOfPass, order: Sequence[int], n: int, unit: Unit, rng: np.random.Generator) -> np.ndarray:
    """(len(order), n) frontier after each release, resampled: what an interval of the half-life is made of."""
    sets = [np.array(order[: i + 1]) for i in range(len(order))]
    return resample(cop, sets, n, unit, rng)


def resample(cop: CostOfPass, sets: Sequence[np.ndarray], n: int, unit: Unit, rng: np.random.Generator) -> np.ndarray:
    """(S, n) mean over problems of the minimum over each set of strategies and the expert."""
    assert cop.expert is not None
    cluster = cop.cells.cluster
    problems, clusters = len(cluster), int(cluster.max()) + 1
    if unit == "problems":
        u = _minima(cop.values, sets, cop.expert)
        sums = np.stack([np.bincount(cluster, weights=row, minlength=clusters) for row in u])
        sizes = np.bincount(cluster, minlength=clusters).astype(float)
        draws = np.empty((len(sets), n))
        step = max(1, CHUNK // clusters)
        for start in range(0, n, step):
            weights = _weights(clusters, min(step, n - start), rng).astype(float)
            draws[:, start : start + step] = (sums @ weights.T) / (weights @ sizes)
        return draws
    if unit not in ("runs", "nested"):
        raise unknown_name("unit of resampling", unit, ("nested", "problems", "runs"))
    total = np.zeros((len(sets), n))
    if unit == "runs":
        for p in range(problems):
            total += _minima(_draw_problem(cop, p, n, rng), sets, cop.expert[p])
        return total / problems
    weights = np.concatenate(
        [_weights(clusters, min(size, n - start), rng) for start, size in _chunks(n, clusters)], axis=0
    )
    for p in range(problems):
        times = weights[:, cluster[p]]
        hits = np.flatnonzero(times)
        # A problem drawn twice into one resample gets two independent draws of its runs.
        owner = np.repeat(hits, times[hits])
        if len(owner) == 0:
            continue
        u = _minima(_draw_problem(cop, p, len(owner), rng), sets, cop.expert[p])
        starts = np.concatenate(([0], np.cumsum(times[hits])[:-1])).astype(np.intp)
        total[:, hits] += np.add.reduceat(u, starts, axis=1)
    sizes = np.bincount(cluster, minlength=clusters)
    return total / (weights @ sizes)


def _chunks(n: int, width: int) -> list[tuple[int, int]]:
    size = max(1, CHUNK // width)
    return [(start, size) for start in range(0, n, size)]


def _minima(values: np.ndarray, sets: Sequence[np.ndarray], expert: np.ndarray | float) -> np.ndarray:
    """(S, N) minimum over each set's rows of an (M, N) matrix, and the expert."""
    capped = np.minimum(values, expert)
    out = np.empty((len(sets), values.shape[1]))
    for row, index in enumerate(sets):
        if len(index) == 1:
            out[row] = capped[index[0]]
        elif len(index) == 0:
            out[row] = expert
        else:
            capped[index].min(axis=0, out=out[row])
    return out


def _weights(units: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, units) how often each unit is drawn in each resample: multinomial."""
    picked = rng.integers(0, units, size=(n, units), dtype=np.int32)
    picked += (np.arange(n, dtype=np.int32) * units)[:, None]
    return np.bincount(picked.ravel(), minlength=n * units).reshape(n, units).astype(np.uint16)


def _draw_problem(cop: CostOfPass, problem: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """(M, n) cost-of-pass of each strategy on one problem from n resamples of its runs."""
    grid = cop.cells
    strategies, problems = grid.counts.shape
    costs, rates = np.empty((strategies, n)), np.empty((strategies, n))
    for m in range(strategies):
        cell = slice(*grid.offsets[m * problems + problem : m * problems + problem + 2])
        cost, score = grid.record_costs[cell], grid.record_scores[cell]
        size = len(cost)
        if cop.binary and cost[0] == cost[-1]:
            # Costs are sorted: all are equal, so successes alone vary and are binomial.
            costs[m] = cost[0]
            rates[m] = rng.binomial(size, score.mean(), n) / size
            continue
        # One gather and one sum fetch both numbers: cost in the real part, score in the imaginary one.
        both = (cost + 1j * score)[rng.integers(0, size, size=(size, n), dtype=np.int16 if size < 32_000 else np.int64)]
        mean = both.sum(axis=0) / size
        costs[m], rates[m] = mean.real, mean.imag
    return cop.law(costs, rates)
