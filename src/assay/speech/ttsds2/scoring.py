"""From distances to scores: a feature's score, factors, the overall score, replicates over utterances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, UsageError
from assay.speech.ttsds2.distances import Gaussian, frechet, wasserstein

Array = NDArray[Any]


class BenchmarkCategory(Enum):
    """Factors of the score."""

    GENERIC = 1
    PROSODY = 2
    ENVIRONMENT = 3
    SPEAKER = 4
    INTELLIGIBILITY = 5


class BenchmarkDimension(Enum):
    """Whether a feature gives numbers or vectors."""

    ONE_DIMENSIONAL = 1
    N_DIMENSIONAL = 2


FACTORS = ("GENERIC", "SPEAKER", "PROSODY", "INTELLIGIBILITY")
WEIGHTS: Mapping[str, float] = {**dict.fromkeys(FACTORS, 0.25), "ENVIRONMENT": 0.0}
SMALL = 50
"""Fewer utterances than this make scores depend on which they are."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How distances are taken.

    Parameters
    ----------
    squared
        Vectors: squared W2, as the package and its leaderboard; False: W2, as the paper writes. Numbers: always W2.
    compat
        The package's thinning for sets of numbers of unequal size.
    """

    squared: bool = True
    compat: bool = False


DEFAULT = Settings()


class Distribution:
    """A feature of a set of clips: its values, and which of them belong to which clip.

    Parameters
    ----------
    values
        (N,) numbers or (N, d) vectors of all clips, one clip after the other.
    lengths
        How many of them each clip has.
    """

    def __init__(self, values: Array, lengths: Array | None = None) -> None:
        self.values = np.asarray(values)
        self.lengths = np.ones(len(self.values), int) if lengths is None else np.asarray(lengths, int)
        if self.lengths.sum() != len(self.values):
            raise DataError(f"{len(self.values)} values, but clips of {self.lengths.sum()} together.")
        self._moments: tuple[Array, Array, Array] | None = None
        self._fitted: Any = None

    @property
    def clips(self) -> int:
        """Number of clips."""
        return len(self.lengths)

    def part(self, chosen: Sequence[int]) -> Distribution:
        """Those of some clips."""
        parts = np.split(self.values, np.cumsum(self.lengths)[:-1])
        return Distribution(np.concatenate([parts[k] for k in chosen]), self.lengths[list(chosen)])

    def fitted(self, counts: Array | None = None) -> Any:
        """What distances are taken of: sorted numbers or a Gaussian; ``counts`` says how often each clip is taken."""
        if counts is None:
            if self._fitted is None:
                self._fitted = (
                    np.sort(self.values.astype(float)) if self.values.ndim == 1 else Gaussian.fit(self.values)
                )
            return self._fitted
        n = int(counts @ self.lengths)
        if self.values.ndim == 1 or n <= self.values.shape[1] or self.clips * self.values.shape[1] ** 2 > 3e7:
            taken = np.repeat(self.values, np.repeat(counts, self.lengths), axis=0)
            return taken if self.values.ndim == 1 else Gaussian.fit(taken)
        # Sums a clip, about the mean of all so that nothing cancels: a resample then costs the same at any length.
        if self._moments is None:
            centre = self.values.mean(axis=0, dtype=float)
            parts = np.split(self.values - centre, np.cumsum(self.lengths)[:-1])
            self._moments = centre, np.stack([p.sum(axis=0) for p in parts]), np.stack([p.T @ p for p in parts])
        centre, first, second = self._moments
        mean = counts @ first / n
        covariance = (np.tensordot(counts, second, 1) - n * np.outer(mean, mean)) / (n - 1)
        return Gaussian(centre + mean, covariance)


def distance(a: Any, b: Any, settings: Settings = DEFAULT) -> float:
    """Distance of two fitted distributions."""
    if not isinstance(a, Gaussian):
        return wasserstein(a, b, compat=settings.compat)
    squared = frechet(a, b)
    return squared if settings.squared else float(np.sqrt(squared))


@dataclass(frozen=True, slots=True)
class Nearest:
    """A score with the names of the reference and the noise that were nearest, and their distances."""

    score: float
    reference: str
    noise: str
    reference_distance: float
    noise_distance: float


def score(references: Mapping[str, float], noises: Mapping[str, float]) -> Nearest:
    """100 N / (R + N) of the smallest distances to a reference and to a noise; ties keep the first name.

    Raises
    ------
    DataError
        No reference or noise is given, or both distances are 0.
    """
    if not references or not noises:
        raise DataError("A score needs a reference and a noise set at least.")
    reference, noise = min(references, key=references.__getitem__), min(noises, key=noises.__getitem__)
    r, n = references[reference], noises[noise]
    if not np.isfinite([r, n]).all():
        raise DataError(f"Distances to {reference!r} ({r}) and {noise!r} ({n}) must be finite.")
    if r + n == 0:
        raise DataError(f"The speech equals both {reference!r} and {noise!r} in this feature, so it has no score.")
    return Nearest(100 * n / (r + n), reference, noise, r, n)


def aggregate(
    features: Mapping[str, Mapping[str, float]], weights: Mapping[str, float] | None = None
) -> tuple[dict[str, float], list[str]]:
    """Factor means and OVERALL of feature scores by factor, with warnings.

    A factor without features counts as 0, as in the package, and is warned of.

    Raises
    ------
    UsageError
        A weight is negative, or belongs to no factor.
    """
    weights = WEIGHTS if weights is None else weights
    for name, weight in weights.items():
        if name not in WEIGHTS or not weight >= 0:
            raise UsageError(f"Weight {name}={weight} is none; factors are {', '.join(WEIGHTS)}, and weights are >= 0.")
    means = {name: float(np.mean(list(scores.values()))) for name, scores in features.items() if scores}
    missing = [name for name, weight in weights.items() if weight and name not in means]
    total = sum(weight * means.get(name, 0.0) for name, weight in weights.items())
    warnings = []
    if missing:
        warnings.append(
            f"No feature of {', '.join(missing)} was measured; {'it counts' if len(missing) == 1 else 'they count'} as "
            "0 in the overall score."
        )
    return {**means, "OVERALL": total}, warnings


@dataclass(slots=True)
class FeatureScore:
    """A feature's score with its spread over utterances.

    Parameters
    ----------
    nearest
        The score and what was nearest.
    replicates
        Scores of resampled utterances (of speech and references alike); NaN where undefined.
    clips
        Number of utterances.
    """

    nearest: Nearest
    replicates: Array = field(default_factory=lambda: np.zeros(0))
    clips: int = 0

    @property
    def score(self) -> float:
        """0 to 100."""
        return self.nearest.score

    @property
    def se(self) -> float | None:
        """Standard deviation of the replicates; None without any."""
        found = self.replicates[np.isfinite(self.replicates)]
        return float(found.std(ddof=1)) if len(found) > 1 else None


def score_feature(
    speech: Distribution,
    references: Mapping[str, Distribution],
    noises: Mapping[str, Distribution],
    settings: Settings = DEFAULT,
    *,
    replicates: int = 0,
    seed: int = 0,
) -> FeatureScore:
    """Score of a feature, and bootstrap replicates over utterances.

    One seed draws the same utterances for every feature and for every system with as many clips, so that means over
    features and differences of systems can be taken replicate by replicate.
    """
    fitted = {name: d.fitted() for name, d in noises.items()}
    nearest = score(
        {name: distance(d.fitted(), speech.fitted(), settings) for name, d in references.items()},
        {name: distance(d, speech.fitted(), settings) for name, d in fitted.items()},
    )
    drawn = np.full(replicates, np.nan)
    for b in range(replicates):
        rng = np.random.default_rng([seed, b])
        own = _resampled(speech, rng)
        others = {
            name: _resampled(d, np.random.default_rng([seed, b, k])) for k, (name, d) in enumerate(references.items())
        }
        if own is None or any(d is None for d in others.values()):
            continue
        r = min(distance(d, own, settings) for d in others.values())
        n = min(distance(d, own, settings) for d in fitted.values())
        if r + n > 0:
            drawn[b] = 100 * n / (r + n)
    return FeatureScore(nearest, drawn, speech.clips)


def _resampled(distribution: Distribution, rng: np.random.Generator) -> Any:
    n = distribution.clips
    counts = np.bincount(rng.integers(n, size=n), minlength=n)
    needed = 1 if distribution.values.ndim == 1 else 2
    return distribution.fitted(counts) if counts @ distribution.lengths >= needed else None


def influence(
    speech: Distribution,
    references: Mapping[str, Distribution],
    noises: Mapping[str, Distribution],
    settings: Settings = DEFAULT,
) -> Array:
    """What each clip does to the score: the score with it minus the score without it; negative pulls down. (clips,)"""
    anchors = [{n: d.fitted() for n, d in some.items()} for some in (references, noises)]

    def of(fitted: Any) -> float:
        return score(*({n: distance(d, fitted, settings) for n, d in some.items()} for some in anchors)).score

    whole = of(speech.fitted())
    without = np.full(speech.clips, np.nan)
    for k in range(speech.clips):
        counts = np.ones(speech.clips, int)
        counts[k] = 0
        if counts @ speech.lengths >= speech.values.ndim:
            without[k] = of(speech.fitted(counts))
    return whole - without


def split_half(
    distribution: Distribution,
    noises: Mapping[str, Distribution],
    settings: Settings = DEFAULT,
    *,
    splits: int = 10,
    seed: int = 0,
) -> Array:
    """Scores of one random half of real speech against the other, (splits,): what admits a feature or keeps it out.

    Raises
    ------
    DataError
        Fewer than four clips.
    """
    n = distribution.clips
    if n < 4:
        raise DataError(f"Halves of {n} clips say nothing; give four clips at least.")
    rng = np.random.default_rng(seed)
    found = np.empty(splits)
    for k in range(splits):
        chosen = np.zeros(n, int)
        chosen[rng.permutation(n)[: n // 2]] = 1
        half, other = distribution.fitted(chosen), distribution.fitted(1 - chosen)
        found[k] = score(
            {"other half": distance(other, half, settings)},
            {name: distance(d.fitted(), half, settings) for name, d in noises.items()},
        ).score
    return found


def admitted(scores: Sequence[float] | Array, *, least: float = 95.0, spread: float = 5.0) -> bool:
    """Whether split-half scores admit a feature: their mean at least ``least``, their spread at most ``spread``."""
    values = np.asarray(scores, float)
    return bool(values.mean() >= least and values.std(ddof=1) <= spread)
