"""Bootstrap draws: clusters, attempts within samples, and both; weights where sums suffice, indices where not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Codes = NDArray[np.intp]
Array = NDArray[np.float64]

MAX_UNITS = 8192
"""Above this many clusters they are pooled at random into as many blocks, the units of the bootstrap and of sign flips.

Block sums have the variance and skewness of cluster sums in expectation, so nothing but time and memory changes.
"""

_CELLS = 4_000_000


def sums(codes: Codes, values: ArrayLike, size: int = 0) -> Array:
    """Sum of ``values`` a code, at least ``size`` entries."""
    return np.bincount(codes, np.asarray(values, float), minlength=size).astype(float, copy=False)


def chunks(size: int, units: int) -> Iterator[int]:
    """Sizes of the pieces that ``size`` resamples of ``units`` are drawn in, so that memory stays below ~100 MB."""
    step = max(1, _CELLS // max(1, units))
    for start in range(0, size, step):
        yield min(step, size - start)


def multinomial_weights(rng: np.random.Generator, size: int, units: int) -> Array:
    """How often each of ``units`` is drawn when ``units`` are drawn with replacement, shape (size, units)."""
    drawn = rng.integers(0, units, size=(size, units), dtype=np.int32)
    drawn += (np.arange(size, dtype=np.int32) * units)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units).astype(np.float64)


def block_codes(rng: np.random.Generator, units: int) -> Codes | None:
    """Block of each unit when there are more than `MAX_UNITS`; None when there is nothing to pool."""
    if units <= MAX_UNITS:
        return None
    return rng.permutation(units) % MAX_UNITS


def concatenated_ranges(starts: Codes, lengths: Codes) -> Codes:
    """``concatenate([arange(s, s + l) ...])`` without a loop."""
    ends = np.cumsum(lengths)
    if len(ends) == 0:
        return np.zeros(0, dtype=np.intp)
    return np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)


class Resampler:
    """Draws whole frames as row numbers, for statistics that are no function of sums.

    Parameters
    ----------
    cluster, sample, trial
        Integer codes a row: a trial lies in one sample, a sample in one cluster. Records have a trial each; rows of
        the finer table share theirs.
    """

    def __init__(self, cluster: Codes, sample: Codes, trial: Codes) -> None:
        self._order = np.lexsort((trial, sample, cluster))
        trial_start, self._trial_length = _runs(cluster[self._order], sample[self._order], trial[self._order])
        self._trial_start = trial_start
        of_trial = self._order[trial_start] if len(trial_start) else self._order
        sample_start, sample_length = _runs(cluster[of_trial], sample[of_trial])
        self._cluster_start, self._cluster_length = _runs(cluster[of_trial])
        self.trials_per_sample = sample_length
        self._sample_start = np.repeat(sample_start, sample_length)
        self._sample_length = np.repeat(sample_length, sample_length)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self._cluster_start)

    def samples(self, rng: np.random.Generator) -> Codes:
        """Row numbers with whole clusters drawn with replacement."""
        return self._rows(self._draw_clusters(rng))

    def without(self, cluster: int) -> Codes:
        """Row numbers of all clusters but one, for the jackknife."""
        kept = np.delete(np.arange(self.n_clusters), cluster)
        return self._rows(concatenated_ranges(self._cluster_start[kept], self._cluster_length[kept]))

    def attempts(self, rng: np.random.Generator) -> Codes:
        """Row numbers with trials drawn with replacement inside each sample; every sample stays."""
        return self._rows(self._redraw(rng, np.arange(len(self._trial_start))))

    def both(self, rng: np.random.Generator) -> tuple[Codes, Codes]:
        """Row numbers of drawn clusters as they are, and of the same clusters with attempts redrawn inside."""
        trials = self._draw_clusters(rng)
        return self._rows(trials), self._rows(self._redraw(rng, trials))

    def _draw_clusters(self, rng: np.random.Generator) -> Codes:
        drawn = rng.integers(0, self.n_clusters, size=self.n_clusters)
        return concatenated_ranges(self._cluster_start[drawn], self._cluster_length[drawn])

    def _redraw(self, rng: np.random.Generator, trials: Codes) -> Codes:
        return self._sample_start[trials] + rng.integers(0, self._sample_length[trials])

    def _rows(self, trials: Codes) -> Codes:
        return self._order[concatenated_ranges(self._trial_start[trials], self._trial_length[trials])]


def _runs(*sorted_codes: Codes) -> tuple[Codes, Codes]:
    """Starts and lengths of runs of equal keys in sorted code arrays."""
    n = len(sorted_codes[0])
    if n == 0:
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    changed = np.zeros(n, dtype=bool)
    changed[0] = True
    for codes in sorted_codes:
        changed[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(changed)
    return starts, np.diff(np.append(starts, n))
