"""Cost-of-pass, frontier and gains as pure functions of arrays, and the expert who stands beside the models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.core.errors import DataError

Law = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Cost-of-pass as a function of mean cost and success rate, elementwise."""


@dataclass(frozen=True, slots=True)
class Expert:
    """A person (or service) who can be hired instead.

    Parameters
    ----------
    cost
        USD a problem, > 0: time a problem times a qualified hourly wage.
    accuracy
        Share of problems the expert gets right, in (0, 1].
    name
        How tables call the expert.
    """

    cost: float
    accuracy: float = 1.0
    name: str = "expert"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.cost) and self.cost > 0):
            raise DataError(f"The cost of {self.name} is {self.cost}; an expert costs a finite number of USD above 0.")
        if not 0 < self.accuracy <= 1:
            raise DataError(f"The accuracy of {self.name} is {self.accuracy}; it lies in (0, 1].")

    @property
    def cost_of_pass(self) -> float:
        """USD a correct answer."""
        return self.cost / self.accuracy


ExpertCost = float | Expert | Sequence[float | Expert] | Mapping[Any, float]


def cost_of_pass(costs: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Expected dollars of one correct answer: mean cost of an attempt over its success rate.

    Attempts are independent and failures are noticed for free, so the number of attempts is geometric with mean 1/R.
    Infinite where the rate is 0, also at no cost.
    """
    costs, rates = np.asarray(costs, float), np.asarray(rates, float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(rates > 0, costs / rates, np.where(np.isnan(rates), np.nan, np.inf))


def frontier(values: np.ndarray, expert: float | np.ndarray | None = None) -> np.ndarray:
    """Cheapest way to a correct answer, a problem.

    Parameters
    ----------
    values
        (M, P) cost-of-pass; M may be 0.
    expert
        USD of the expert, one number or (P,); None = models only.

    Returns
    -------
    ndarray
        (P,) minimum over models and expert; inf where nobody succeeds.
    """
    best = np.min(values, axis=0, initial=np.inf)
    return best if expert is None else np.minimum(best, expert)


def gain(without: float, with_: float) -> float:
    """Relative gain (without - with) / without; 0 where nothing can be gained because both are 0."""
    return (without - with_) / without if without > 0 else 0.0


def technique_gain(base: np.ndarray, technique: np.ndarray, expert: float | np.ndarray) -> float:
    """Relative gain of letting the same models also use a technique: the union holds the originals, so it is >= 0.

    Parameters
    ----------
    base, technique
        (P,) or (M, P) cost-of-pass without and with the technique.
    expert
        USD of the expert.
    """
    base, technique = np.atleast_2d(base), np.atleast_2d(technique)
    without = frontier(base, expert)
    return gain(float(without.mean()), float(np.minimum(without, frontier(technique)).mean()))


def _expert(given: Any, where: str = "") -> Expert:
    if isinstance(given, Expert):
        return given
    try:
        return Expert(float(given))
    except (TypeError, ValueError):
        raise DataError(f"The expert's cost{where} is {given!r}; give USD a problem, a number above 0.") from None


def expert_costs(given: ExpertCost | None, problems: Sequence[str]) -> tuple[np.ndarray | None, str]:
    """(P,) USD of the cheapest expert a problem, and a name; None where no expert is given."""
    if given is None:
        return None, "nobody"
    if isinstance(given, Mapping):
        costs = {str(key): value for key, value in given.items()}
        lacking = [problem for problem in problems if problem not in costs]
        if lacking:
            raise DataError(f"The expert's cost is missing for {len(lacking)} problems, first {lacking[0]!r}.")
        return np.array([_expert(costs[problem], f" on problem {problem!r}").cost for problem in problems]), "expert"
    several: Any = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    experts = [_expert(cost) for cost in several]
    if not experts:
        raise DataError("The list of experts is empty; give at least one, or None.")
    cheapest = min(experts, key=lambda expert: expert.cost_of_pass)
    return np.full(len(problems), cheapest.cost_of_pass), cheapest.name
