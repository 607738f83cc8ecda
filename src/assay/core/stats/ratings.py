"""Ratings from contests: Bradley-Terry strengths with intervals, and Gaussian (TrueSkill) team ratings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from assay.core.errors import DataError, UsageError
from assay.core.stats.intervals import critical
from assay.core.stats.resampling import Array

ELO_SCALE = 400 / np.log(10)


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Log strengths with mean 0: ``P(i beats j) = 1 / (1 + exp(-(strength_i - strength_j)))``.

    ``low`` and ``high`` are Wald limits of each strength against the mean of all; ``covariance`` has rank names - 1.
    """

    names: tuple[str, ...]
    strength: Array
    low: Array
    high: Array
    covariance: Array
    iterations: int

    def elo(self, base: float = 1000.0) -> dict[str, float]:
        """Strengths on the Elo scale around ``base``."""
        return {name: base + ELO_SCALE * float(s) for name, s in zip(self.names, self.strength)}

    def chance(self, a: str, b: str) -> float:
        """Probability that ``a`` beats ``b``."""
        i, j = self.names.index(a), self.names.index(b)
        return float(1 / (1 + np.exp(self.strength[j] - self.strength[i])))

    def difference(self, a: str, b: str, level: float = 0.95) -> tuple[float, float, float]:
        """Strength of ``a`` minus that of ``b`` with its interval."""
        i, j = self.names.index(a), self.names.index(b)
        d = float(self.strength[i] - self.strength[j])
        se = np.sqrt(self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j])
        half = critical(level) * float(se)
        return d, d - half, d + half


def win_table(contests: Iterable[tuple[str, str, float]]) -> tuple[list[str], Array]:
    """Names and ``wins[i, j]`` (i over j) from (first, second, result): 1 first won, 0 second won, 0.5 a tie."""
    rows = list(contests)
    names = sorted({name for a, b, _ in rows for name in (a, b)})
    at = {name: i for i, name in enumerate(names)}
    wins = np.zeros((len(names), len(names)))
    for a, b, result in rows:
        if a == b or not 0 <= result <= 1:
            raise DataError(f"A contest is between two names with a result in [0, 1]; got {a!r}, {b!r}, {result!r}.")
        wins[at[a], at[b]] += result
        wins[at[b], at[a]] += 1 - result
    return names, wins


def bradley_terry(
    wins: ArrayLike, names: Sequence[str] | None = None, *, prior: float = 0.0, level: float = 0.95,
    tolerance: float = 1e-10, limit: int = 100_000,
) -> BradleyTerry:  # fmt: skip
    """Bradley-Terry strengths by Hunter's (2004) minorise-maximise steps.

    Parameters
    ----------
    wins
        ``wins[i, j]`` = how often i beat j (ties: half to each), shape (names, names).
    prior
        Wins and losses added between every pair: > 0 keeps strengths finite where somebody never wins or loses.

    Raises
    ------
    DataError
        Without a prior: names that split into two groups where one never beats the other have no finite strengths.
    """
    w = np.array(wins, float)
    n = len(w)
    if w.ndim != 2 or w.shape != (n, n) or n < 2 or np.any(w < 0) or not np.all(np.isfinite(w)):
        raise DataError("Bradley-Terry needs a square table of at least 2 names with finite wins of at least 0.")
    labels = tuple(names) if names is not None else tuple(map(str, range(n)))
    if len(labels) != n:
        raise UsageError(f"There are {n} rows of wins and {len(labels)} names.")
    np.fill_diagonal(w, 0.0)
    w += prior * (1 - np.eye(n))
    _require_connected(w, labels)
    games, won = w + w.T, w.sum(axis=1)
    p, steps = np.ones(n), 0
    while True:
        steps += 1
        new = won / (games / np.add.outer(p, p)).sum(axis=1)
        new /= np.exp(np.log(new).mean())
        moved = float(np.abs(np.log(new / p)).max())
        p = new
        if moved < tolerance:
            break
        if steps == limit:
            raise DataError(f"Bradley-Terry did not settle in {limit} steps; add a prior (0.1, say).")
    strength = np.log(p)
    chance = 1 / (1 + np.exp(np.subtract.outer(strength, strength)))
    information = -games * chance * (1 - chance)
    np.fill_diagonal(information, 0.0)
    np.fill_diagonal(information, -information.sum(axis=1))
    # The likelihood does not know the mean: the pseudo-inverse fixes it at 0.
    covariance = np.linalg.pinv(information, hermitian=True)
    half = critical(level) * np.sqrt(np.diag(covariance))
    return BradleyTerry(labels, strength, strength - half, strength + half, covariance, steps)


@dataclass(frozen=True, slots=True)
class Rating:
    """Belief about a skill: mean and standard deviation."""

    mu: float = 25.0
    sigma: float = 25.0 / 3

    @property
    def conservative(self) -> float:
        """Skill that is exceeded almost surely: ``mu - 3 sigma``."""
        return self.mu - 3 * self.sigma


@dataclass(slots=True)
class GaussianRatings:
    """TrueSkill for two teams (Herbrich, Minka and Graepel 2006): skills of a team add up, one update a contest.

    Parameters
    ----------
    beta
        Standard deviation of one performance; default sigma / 2.
    tau
        Standard deviation added to every skill before a contest; default sigma / 100.
    draw
        Probability of a draw between equal players: sets the margin within which a contest is drawn.
    """

    mu: float = 25.0
    sigma: float = 25.0 / 3
    beta: float | None = None
    tau: float | None = None
    draw: float = 0.10
    ratings: dict[str, Rating] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sigma <= 0 or not 0 <= self.draw < 1:
            raise UsageError(f"sigma is above 0 and draw in [0, 1); got {self.sigma} and {self.draw}.")
        self.beta = self.sigma / 2 if self.beta is None else self.beta
        self.tau = self.sigma / 100 if self.tau is None else self.tau

    def rating(self, name: str) -> Rating:
        """Current belief; the prior for a name not seen yet."""
        return self.ratings.get(name, Rating(self.mu, self.sigma))

    def update(self, winners: Sequence[str], losers: Sequence[str], *, drawn: bool = False) -> None:
        """Learn from one contest between two teams; order matters only through later contests."""
        if not winners or not losers or {*winners} & {*losers}:
            raise DataError(f"A contest needs two teams without common members; got {winners!r} and {losers!r}.")
        players = [*winners, *losers]
        before = {name: self.rating(name) for name in players}
        beta, tau = self._noise()
        variance = {name: r.sigma**2 + tau**2 for name, r in before.items()}
        spread = np.sqrt(len(players) * beta**2 + sum(variance.values()))
        margin = float(ndtri((self.draw + 1) / 2)) * np.sqrt(len(players)) * beta / spread
        gap = (sum(before[x].mu for x in winners) - sum(before[x].mu for x in losers)) / spread
        v, w = _drawn(gap, margin) if drawn else _won(gap - margin)
        for name in players:
            sign = 1 if name in winners else -1
            share = variance[name] / spread
            mu = before[name].mu + sign * share * v
            left = variance[name] * max(1 - variance[name] / spread**2 * w, 1e-12)
            self.ratings[name] = Rating(float(mu), float(np.sqrt(left)))

    def chance(self, a: str, b: str) -> float:
        """Probability that ``a`` performs better than ``b``: both skills and both performances are uncertain."""
        x, y = self.rating(a), self.rating(b)
        beta, _ = self._noise()
        return float(ndtr((x.mu - y.mu) / np.sqrt(2 * beta**2 + x.sigma**2 + y.sigma**2)))

    def win_rates(self, names: Sequence[str] | None = None) -> Mapping[str, float]:
        """Mean chance of each against all others."""
        known = list(self.ratings) if names is None else list(names)
        if len(known) < 2:
            raise UsageError("Win rates need at least two names.")
        return {a: float(np.mean([self.chance(a, b) for b in known if b != a])) for a in known}

    def _noise(self) -> tuple[float, float]:
        assert self.beta is not None
        assert self.tau is not None
        return self.beta, self.tau


def _won(t: float) -> tuple[float, float]:
    """Mean and variance corrections of a Gaussian known to lie above -t (v and w of TrueSkill)."""
    v = float(np.exp(-(t**2) / 2 - log_ndtr(t)) / np.sqrt(2 * np.pi))
    return v, v * (v + t)


def _drawn(t: float, margin: float) -> tuple[float, float]:
    """The same for a Gaussian known to lie within the margin of a draw."""
    low, high = -margin - t, margin - t
    mass = float(ndtr(high) - ndtr(low))
    if mass < 1e-300:  # hopeless favourites that drew: all mass at the near edge
        v = high if t > 0 else low
        return v, 1.0
    density = np.exp(-(low**2) / 2) / np.sqrt(2 * np.pi), np.exp(-(high**2) / 2) / np.sqrt(2 * np.pi)
    v = float((density[0] - density[1]) / mass)
    return v, float(v**2 + (high * density[1] - low * density[0]) / mass)


def _require_connected(w: Array, names: Sequence[str]) -> None:
    from scipy.sparse.csgraph import connected_components

    groups, member = connected_components(w > 0, directed=True, connection="strong")
    if groups > 1:
        first = [name for name, g in zip(names, member) if g == member[0]]
        shown = ", ".join(first[:4]) + (", ..." if len(first) > 4 else "")
        raise DataError(
            f"Bradley-Terry has no finite strengths here: between {shown} and the rest wins go one way or not at all; "
            "add a prior (0.1, say)."
        )
