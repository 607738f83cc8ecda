"""Other laws of the cost of a correct answer: checks that cost, retries that depend, answers that come late, cascades.

Every law is a function of the mean cost C of an attempt and its success rate R, elementwise on arrays; hand one to
``CostOfPass(law=...)`` or ``.adjusted(law=...)`` and every analysis follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from assay.core.errors import UsageError

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Verified:
    """Retries until a verifier that costs something, and errs, accepts.

    v = (C + check + (1 - R) * false_accept * damage) / (R * true_accept): dollars per correct answer that gets through,
    with wrong answers that get through priced. A perfect free verifier gives C / R.

    Parameters
    ----------
    check
        USD of checking one answer.
    true_accept, false_accept
        Probability that a right answer, a wrong answer, is accepted.
    damage
        USD that an accepted wrong answer costs.
    """

    check: float = 0.0
    true_accept: float = 1.0
    false_accept: float = 0.0
    damage: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.true_accept <= 1 or not 0 <= self.false_accept <= 1:
            raise UsageError(
                f"A verifier accepts right answers with probability in (0, 1] and wrong ones in [0, 1]; got "
                f"{self.true_accept} and {self.false_accept}."
            )
        if self.check < 0 or self.damage < 0:
            raise UsageError(f"A check and a damage cost 0 USD or more; got {self.check} and {self.damage}.")

    def __call__(self, costs: Array, rates: Array) -> Array:
        spent = costs + self.check + (1 - rates) * self.false_accept * self.damage
        return _over(spent, rates * self.true_accept)


@dataclass(frozen=True, slots=True)
class CorrelatedRetries:
    """Retries whose outcomes hang together: the success rate of a problem is Beta with mean R and correlation rho.

    Without limit, E[attempts] = E[1/R] = (a + b - 1) / (a - 1), infinite for a <= 1, with a = R (1 - rho) / rho and
    b = (1 - R) (1 - rho) / rho. With ``attempts`` = K and a ``fallback`` (the expert's USD), at most K attempts are
    made: v = C * sum_{k<K} S(k) + S(K) * fallback, where S(k) = B(a, b + k) / B(a, b) is the chance of k failures in a
    row.

    Parameters
    ----------
    correlation
        rho in [0, 1): intra-problem correlation of attempts; 0 = independent.
    attempts, fallback
        Both or neither.
    """

    correlation: float
    attempts: int | None = None
    fallback: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.correlation < 1:
            raise UsageError(f"A correlation of retries lies in [0, 1); got {self.correlation}.")
        if (self.attempts is None) != (self.fallback is None):
            raise UsageError("A limit on attempts needs a fallback (USD of the expert), and the other way round.")
        if self.attempts is not None and self.attempts < 1:
            raise UsageError(f"A limit on attempts is 1 or more; got {self.attempts}.")

    def __call__(self, costs: Array, rates: Array) -> Array:
        costs, rates = np.broadcast_arrays(np.asarray(costs, float), np.asarray(rates, float))
        rho = self.correlation
        if self.attempts is None:
            if rho == 0:
                return _over(costs, rates)
            a = rates * (1 - rho) / rho
            expected = np.full(rates.shape, np.inf)
            certain = rates == 1
            fine = (a > 1) & ~certain
            expected[fine] = ((1 - rho) / rho - 1) / (a[fine] - 1)
            expected[certain] = 1.0
            return np.where(np.isinf(expected), np.inf, costs * np.where(np.isinf(expected), 0, expected))
        assert self.fallback is not None
        failed = np.ones(rates.shape)
        expected = np.zeros(rates.shape)
        for k in range(self.attempts):
            expected += failed
            # Chance that the next attempt fails, k failures seen: (b + k) / (a + b + k), in terms of R and rho.
            failed = failed * ((1 - rates) * (1 - rho) + k * rho) / ((1 - rho) + k * rho)
        return costs * expected + failed * self.fallback


def effective_cost(
    cost: Array,
    seconds: Array | float = 0.0,
    *,
    hour_value: float = 0.0,
    kwh: Array | float = 0.0,
    kwh_price: float = 0.0,
    kg_co2_per_kwh: float = 0.0,
    tonne_co2_price: float = 0.0,
) -> Array:
    """Dollars of an attempt with waiting time, energy and emissions priced.

    Parameters
    ----------
    cost
        USD billed.
    seconds, hour_value
        Waiting time, and USD that an hour of it is worth.
    kwh, kwh_price, kg_co2_per_kwh, tonne_co2_price
        Energy, USD a kWh, carbon intensity, USD a tonne of CO2.
    """
    energy = kwh_price + kg_co2_per_kwh * tonne_co2_price / 1000
    return np.asarray(cost) + np.asarray(seconds) * hour_value / 3600 + np.asarray(kwh) * energy


def expert_cost(minutes: float, wage: float, accuracy: float = 1.0) -> float:
    """USD of a correct answer by a person: minutes a problem at an hourly wage, over the share they get right."""
    if minutes <= 0 or wage <= 0 or not 0 < accuracy <= 1:
        raise UsageError(
            f"An expert needs minutes > 0, wage > 0 and accuracy in (0, 1]; got {minutes}, {wage}, {accuracy}."
        )
    return minutes / 60 * wage / accuracy


def cascade(costs: Array, rates: Array, expert: float) -> tuple[tuple[int, ...], float]:
    """Cheapest order of models, each tried at most once on a problem, with the expert last.

    Trying model m before a rest that costs E pays iff C + (1 - R) E < E, that is C / R < E, and swapping neighbours
    shows that ascending C / R is the best order: so the cascade is every model below the expert's cost, cheapest
    cost-of-pass first.

    Parameters
    ----------
    costs, rates
        (M,) of one problem.
    expert
        USD of the expert, who ends the cascade.

    Returns
    -------
    tuple
        Indices of models in order, expected USD.
    """
    values = _over(np.asarray(costs, float), np.asarray(rates, float))
    order = [int(i) for i in np.argsort(values, kind="stable") if values[i] < expert]
    total = float(expert)
    for i in reversed(order):
        total = float(costs[i]) + (1 - float(rates[i])) * total
    return tuple(order), total


@dataclass(frozen=True, slots=True)
class Policy:
    """One sequence of models for a whole data set, the expert last.

    Attributes
    ----------
    sequence
        Indices of models in order; a model may come again.
    value
        Mean USD a problem on the problems it was chosen from.
    held_out
        Mean USD a problem when, for each problem, the sequence was chosen on all the others: free of the optimism of
        picking the best of many sequences.
    """

    sequence: tuple[int, ...]
    value: float
    held_out: float


def routing(costs: Array, rates: Array, expert: float | Array, *, length: int = 3, limit: int = 200_000) -> Policy:
    """Cheapest fixed cascade for a data set whose problems cannot be told apart in advance.

    Every sequence up to ``length`` is tried: exact. Attempts are independent and failures noticed for free. It lies
    between the per-problem frontier (which knows the best model of each problem) and the expert.

    Parameters
    ----------
    costs, rates
        (M, P).
    expert
        USD, one number or (P,).
    length
        Most models tried before the expert.
    limit
        Most sequences; more is an error, not a wait.

    Raises
    ------
    UsageError
        Too many sequences.
    """
    costs, rates = np.asarray(costs, float), np.asarray(rates, float)
    models, problems = costs.shape
    count = sum(models**size for size in range(length + 1))
    if count > limit:
        raise UsageError(f"{models} models in sequences up to {length} make {count} policies; limit is {limit}.")
    # Built from the end: expected cost of a sequence is C + (1 - R) times that of its tail.
    level = np.broadcast_to(np.asarray(expert, float), (1, problems))
    sequences: list[tuple[int, ...]] = [()]
    totals = [level]
    for size in range(1, length + 1):
        level = (costs[:, None] + (1 - rates)[:, None] * level[None]).reshape(-1, problems)
        sequences += list(product(range(models), repeat=size))
        totals.append(level)
    total = np.concatenate(totals)
    sums = total.sum(axis=1)
    best = int(sums.argmin())
    if problems == 1:
        return Policy(sequences[best], float(sums[best]), float("nan"))
    held = np.array([total[(sums - total[:, p]).argmin(), p] for p in range(problems)])
    return Policy(sequences[best], float(sums[best] / problems), float(held.mean()))


def agent_cost(calls: Sequence[float], tools: Sequence[float] = (), failed: Sequence[bool] = ()) -> tuple[float, float]:
    """Dollars of one agent run and the part spent on tool calls that failed.

    Parameters
    ----------
    calls, tools
        USD of each model call and each tool call.
    failed
        Which tool calls failed.
    """
    if failed and len(failed) != len(tools):
        raise UsageError(f"There are {len(tools)} tool calls and {len(failed)} marks of failure.")
    wasted = sum(cost for cost, lost in zip(tools, failed) if lost)
    return float(sum(calls) + sum(tools)), float(wasted)


def _over(numerator: Array, denominator: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(denominator > 0, numerator / denominator, np.where(np.isnan(denominator), np.nan, np.inf))
