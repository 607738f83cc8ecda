"""What eight attempts really say: the posterior of the success rate, of cost-of-pass, and of the frontier.

1 / (successes / n) is biased upward and infinite at no success, and the minimum over many noisy models is biased
downward (the winner's curse). With independent Beta posteriors for the rates both vanish, and everything below is
quadrature, not simulation. Costs of an attempt are taken at their means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from assay.core.errors import UsageError

if TYPE_CHECKING:
    from assay.reasoning.cost_of_pass.estimator import CostOfPass

JEFFREYS = (0.5, 0.5)


@dataclass(frozen=True, slots=True)
class PosteriorFrontier:
    """Frontier under the posterior.

    Attributes
    ----------
    value
        Mean over problems of E[min over models of v, expert]: somebody will know the best model of each problem.
    committed
        Mean over problems of min over models of E[min(v, expert)]: one model a problem must be chosen today.
    plug_in
        The usual frontier from the rates themselves.
    per_problem
        (P,) of ``value``.
    """

    value: float
    committed: float
    plug_in: float
    per_problem: np.ndarray


Prior = tuple[float, float] | Literal["empirical"]


def beta_posterior(
    successes: np.ndarray, attempts: np.ndarray, prior: Prior = JEFFREYS
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters (a, b) of the Beta posterior of success rates.

    Parameters
    ----------
    successes, attempts
        (M, P) for strategies and problems.
    prior
        Parameters of a Beta prior, or ``empirical``: fitted to each strategy's own problems by `fit_prior`.
    """
    successes, attempts = np.atleast_2d(np.asarray(successes, float)), np.atleast_2d(np.asarray(attempts, float))
    if prior == "empirical":
        fitted = np.array([fit_prior(s, n) for s, n in zip(successes, attempts, strict=True)])
        a0, b0 = fitted[:, :1], fitted[:, 1:]
    elif min(prior) <= 0:
        raise UsageError(f"A Beta prior has two parameters above 0; got {prior}.")
    else:
        a0, b0 = prior
    return a0 + successes, b0 + attempts - successes


def fit_prior(successes: np.ndarray, attempts: np.ndarray) -> tuple[float, float]:
    """Beta distribution of the success rates of one strategy over problems: maximum of the beta-binomial likelihood.

    Searched over mean and concentration a + b in [0.02, 2000]; where all problems agree the concentration stops there.

    Parameters
    ----------
    successes, attempts
        (P,).
    """
    from scipy.optimize import minimize
    from scipy.special import betaln, expit, logit

    share = (successes.sum() + 0.5) / (attempts.sum() + 1)

    def loss(x: np.ndarray) -> float:
        mean, size = expit(x[0]), np.exp(x[1])
        a, b = mean * size, (1 - mean) * size
        return -float((betaln(a + successes, b + attempts - successes) - betaln(a, b)).sum())

    bounds = ((-12.0, 12.0), (np.log(0.02), np.log(2000.0)))
    found = min(
        (
            minimize(loss, np.array([logit(share), start]), bounds=bounds, method="L-BFGS-B")
            for start in (-1.0, 1.0, 4.0)
        ),
        key=lambda result: result.fun,
    )
    mean, size = float(expit(found.x[0])), float(np.exp(found.x[1]))
    return mean * size, (1 - mean) * size


def mean_inverse_rate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """E[1/R] for R ~ Beta(a, b): (a + b - 1) / (a - 1), infinite for a <= 1."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(divide="ignore"):
        return np.where(a > 1, (a + b - 1) / np.where(a > 1, a - 1, 1), np.inf)


def posterior(cop: CostOfPass, prior: Prior = JEFFREYS, level: float = 0.95) -> pl.DataFrame:
    """Success rate and cost-of-pass of every strategy and problem with credible intervals.

    Returns
    -------
    DataFrame
        model, problem, rate and its interval, cost_of_pass (posterior median), low, high (USD).
    """
    from scipy.special import betaincinv

    grid = cop.cells
    a, b = beta_posterior(grid.rates * grid.counts, grid.counts, prior)
    low, middle, high = (betaincinv(a, b, q) for q in ((1 - level) / 2, 0.5, (1 + level) / 2))
    problems = len(grid.problems)
    return pl.DataFrame(
        {
            "model": [name for name in grid.strategies for _ in range(problems)],
            "problem": list(grid.problems) * len(grid.strategies),
            "rate": (a / (a + b)).ravel(),
            "rate_low": low.ravel(),
            "rate_high": high.ravel(),
            "cost_of_pass": cop.law(grid.costs, middle).ravel(),
            "low": cop.law(grid.costs, high).ravel(),
            "high": cop.law(grid.costs, low).ravel(),
        }
    )


def posterior_frontier(
    cop: CostOfPass, models: Iterable[str] | None = None, prior: Prior = JEFFREYS, nodes: int = 24
) -> PosteriorFrontier:
    """Confidence-adjusted frontier: expectations under the posterior instead of minima of estimates.

    E[min(v_1, ..., v_M, E)] is the integral from 0 to E of the product of P(v_m > x) = I_{C_m / x}(a_m, b_m), the
    regularised incomplete beta function; Gauss-Legendre in log x between the costs, where the integrand is smooth.

    Parameters
    ----------
    cop
        With an expert and the plain law (cost over rate).
    models
        As in ``CostOfPass.frontier``.
    prior
        See `beta_posterior`; where most cells have no success at all the answer hangs on it, so try several.
    nodes
        Quadrature points an interval.
    """
    from scipy.special import betainc

    from assay.reasoning.cost_of_pass.values import cost_of_pass

    if cop.law is not cost_of_pass:
        raise UsageError("The posterior frontier is defined for the plain law (cost over rate) only.")
    chosen = cop._chosen(models)
    expert = cop._need_expert()
    grid = cop.cells
    costs = grid.costs[chosen]
    a, b = beta_posterior((grid.rates * grid.counts)[chosen], grid.counts[chosen], prior)
    x, w = np.polynomial.legendre.leggauss(nodes)
    means, committed = np.empty(len(expert)), np.empty(len(expert))
    for p, limit in enumerate(expert):
        c = costs[:, p]
        if (c == 0).any():
            # A free model that can succeed at all succeeds at no cost in the end.
            means[p] = committed[p] = 0.0
            continue
        edges = np.unique(np.concatenate((np.minimum(c, limit), [limit])))
        # The survival function falls from 1 where x passes each C_m; eighths of decades keep every piece short.
        fine = np.concatenate(
            [np.geomspace(lo, hi, 2 + int(np.log10(hi / lo) * 8))[:-1] for lo, hi in pairwise(edges)] + [edges[-1:]]
        )
        low, high = np.log(fine[:-1])[:, None], np.log(fine[1:])[:, None]
        points = np.exp((high - low) / 2 * x + (high + low) / 2)
        weights = (high - low) / 2 * w * points
        ratio = np.minimum(1.0, c[:, None, None] / points)
        alive = betainc(a[:, p, None, None], b[:, p, None, None], ratio)
        means[p] = edges[0] + float((weights * alive.prod(axis=0)).sum()) if len(chosen) else limit
        committed[p] = (
            min(edges[0] + float(value) for value in (weights * alive).sum(axis=(1, 2))) if len(chosen) else limit
        )
    return PosteriorFrontier(
        value=float(means.mean()),
        committed=float(np.minimum(committed, expert).mean()),
        plug_in=cop.frontier(models).value,
        per_problem=means,
    )
