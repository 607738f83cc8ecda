"""Logistic regression with standard errors that respect clusters: does accuracy depend on length, and on the mode?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Coefficient:
    """An effect on the log-odds of a right answer, with a 95 % interval and a two-sided p value."""

    name: str
    value: float
    low: float
    high: float
    p: float


def logistic(
    outcomes: ArrayLike, predictors: ArrayLike, names: Sequence[str], clusters: Sequence[str] | None = None
) -> list[Coefficient]:
    """Maximum-likelihood logistic regression with an intercept, by Newton's method.

    Parameters
    ----------
    outcomes
        0 or 1, (n,).
    predictors
        (n, k), without an intercept.
    names
        Of the predictors.
    clusters
        What belongs together, (n,): answers to one item in several modes. The sandwich estimate of Liang and Zeger
        (1986) is used, with the usual small-sample factors; None = every row its own.

    Raises
    ------
    UsageError
        If outcomes do not vary or the predictors separate them perfectly, so that no finite estimate exists.
    """
    from scipy.stats import norm

    y = np.asarray(outcomes, float)
    x = np.column_stack((np.ones(len(y)), np.asarray(predictors, float).reshape(len(y), -1)))
    if len(y) <= x.shape[1] or y.min() == y.max():
        raise UsageError(f"A regression of {len(y)} answers of which {int(y.sum())} are right has no estimate.")
    beta = np.zeros(x.shape[1])
    for _ in range(100):
        chance = _expit(x @ beta)
        information = (x * (chance * (1 - chance))[:, None]).T @ x
        try:
            step = np.linalg.solve(information, x.T @ (y - chance))
        except np.linalg.LinAlgError:
            raise UsageError(
                "The predictors of the regression depend on each other, or separate right from wrong."
            ) from None
        beta = beta + step
        if np.abs(beta).max() > 50:
            raise UsageError("The predictors of the regression separate right from wrong; there is no finite estimate.")
        if np.abs(step).max() < 1e-10:
            break
    chance = _expit(x @ beta)
    bread = np.linalg.inv((x * (chance * (1 - chance))[:, None]).T @ x)
    scores = x * (y - chance)[:, None]
    if clusters is not None:
        kinds, place = np.unique(np.asarray(clusters), return_inverse=True)
        summed = np.zeros((len(kinds), x.shape[1]))
        np.add.at(summed, place, scores)
        scores = summed
    groups = len(scores)
    factor = groups / max(1, groups - 1) * ((len(y) - 1) / (len(y) - x.shape[1]) if clusters is not None else 1.0)
    errors = np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread) * factor)
    return [
        Coefficient(name, float(b), float(b - 1.959964 * e), float(b + 1.959964 * e), float(2 * norm.sf(abs(b) / e)))
        for name, b, e in zip(("intercept", *names), beta, errors)
    ]


def _expit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(values, -500, 500)))


def length_by_mode(
    correct: ArrayLike, characters: ArrayLike, second: ArrayLike, clusters: Sequence[str] | None = None
) -> list[Coefficient]:
    """Regression of correctness on log characters, a mode (0 or 1), and their interaction.

    ``log_characters`` is the slope in the first mode, ``interaction`` what the second mode adds to it. Log characters
    are centred, so that ``mode`` is the difference at the geometric mean length.
    """
    log = np.log(np.asarray(characters, float))
    log = log - log.mean()
    mode = np.asarray(second, float)
    predictors = np.column_stack((log, mode, log * mode))
    return logistic(correct, predictors, ("log_characters", "mode", "interaction"), clusters)
