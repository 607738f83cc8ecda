"""The synthetic suite: eight ways of assigning treatment, five worlds of survival and censoring, and their exact truth.

Formulas of SurvHTE-Bench (arXiv 2603.05483). Times are in the paper's arbitrary units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import unknown_name

if TYPE_CHECKING:
    from numpy.random import Generator, RandomState

    from assay.learning.survhte.protocol import Estimand

Array = NDArray[np.float64]

CONFIGS = (
    "RCT-50", "RCT-5", "OBS-CPS", "OBS-UConf", "OBS-NoPos", "OBS-CPS-IC", "OBS-UConf-IC", "OBS-NoPos-IC",
)  # fmt: skip
SCENARIOS = ("A", "B", "C", "D", "E")
SEED = 2025
SIZE = 50_000
_NODES = 24


def propensity(config: str, X: Array, U: Array) -> Array:
    """Chance of treatment of each row; shape (n,).

    Parameters
    ----------
    X, U
        Observed and latent covariates, uniform on (0, 1); shapes (n, 5) and (n, 2).
    """
    base = checked(config, "A")[0].removesuffix("-IC")
    x1 = X[:, 0]
    if base == "RCT-50":
        return np.full(len(X), 0.5)
    if base == "RCT-5":
        return np.full(len(X), 0.05)
    if base == "OBS-CPS":
        return (1 + _beta24(x1)) / 4
    if base == "OBS-UConf":
        return (1 + _beta24(0.3 * x1 + 0.7 * U[:, 0])) / 4
    return np.where(x1 > 0.8, 1.0, np.where(x1 < 0.2, 0.0, 0.5))


def _beta24(z: Array) -> Array:
    """Density of the Beta(2, 4) distribution on [0, 1]."""
    return 20 * z * (1 - z) ** 3


@dataclass(frozen=True, slots=True)
class World:
    """Distribution of the event time: family and its parameter, a function of covariates and treatment.

    ``family`` is ``weibull`` (shape 1/2; the parameter is the log rate), ``lognormal`` (sd 1; mean of the logarithm) or
    ``poisson`` (mean).
    """

    family: str
    parameter: Callable[[Array, float | Array], Array]


def _low(X: Array) -> Array:
    return (X[:, 0] < 0.5).astype(float)


def _a(X: Array, w: float | Array) -> Array:
    return X[:, 0] + (X[:, 1] - 0.5) * w


def _b(X: Array, w: float | Array) -> Array:
    root, low = np.sqrt(X[:, 1]), _low(X)
    return -1.85 - 0.8 * low + 0.7 * root + 0.2 * X[:, 2] + (0.7 - 0.4 * low - 0.4 * root) * w


def _c(X: Array, w: float | Array) -> Array:
    return X[:, 1] ** 2 + X[:, 2] + 6 + 2 * (np.sqrt(X[:, 0]) - 0.3) * w


def _d(X: Array, w: float | Array) -> Array:
    root, low = np.sqrt(X[:, 1]), _low(X)
    return 0.3 - 0.5 * low + 0.5 * root + 0.2 * X[:, 2] + (1 - 0.8 * low - 0.8 * root) * w


def _e(X: Array, w: float | Array) -> Array:
    return _c(X, w) + 1


WORLDS = {
    "A": World("weibull", _a), "B": World("lognormal", _b), "C": World("poisson", _c), "D": World("lognormal", _d),
    "E": World("poisson", _e),
}  # fmt: skip


def _censoring_score(scenario: str, X: Array, W: Array) -> Array:
    """Log rate of the Weibull censoring times (shape 2) of scenarios B and D."""
    root, low = np.sqrt(X[:, 1]), _low(X)
    shift = (1.15 + 0.5 * low - 0.3 * root) * W
    if scenario == "B":
        return -1.75 - 0.5 * root + 0.2 * X[:, 2] + shift
    return -0.9 + 2 * root + 2 * X[:, 2] + shift


def parameter(config: str, scenario: str, X: Array, w: float | Array, U1: Array | None = None) -> Array:
    """Parameter of the event time under treatment ``w``; where the latent confounder acts, ``U1`` shifts it."""
    value = WORLDS[scenario].parameter(X, w)
    if "UConf" in config and U1 is not None:
        value = value + 0.5 * (U1 - X[:, 1])
    return value


@dataclass(frozen=True, slots=True)
class Draws:
    """What the generator drew; shapes (n, 5), (n, 2) and (n,). ``C`` is infinite where nothing censors."""

    X: Array
    U: Array
    W: NDArray[np.int64]
    T0: Array
    T1: Array
    C: Array
    propensity: Array


def draw(config: str, scenario: str, n: int, rng: RandomState | Generator) -> Draws:
    """One data set.

    Parameters
    ----------
    config, scenario
        One of `CONFIGS`, one of `SCENARIOS`.
    n
        Rows.
    rng
        A ``RandomState(2025)`` with n=50,000 gives the published data sets number for number (the order of draws is
        theirs); a ``Generator`` gives new ones.
    """
    config, scenario = checked(config, scenario)
    X = _uniform(rng, (n, 5))
    U = 1 - _uniform(rng, (n, 2))
    e = propensity(config, X, U)
    W = rng.binomial(1, e).astype(np.int64)
    T0, T1 = (_event_times(config, scenario, X, U, w, rng) for w in (0.0, 1.0))
    if config.endswith("-IC"):
        C = rng.exponential(1 / (0.1 + 0.05 * np.where(W == 1, T1, T0)))
    elif scenario == "A":
        C = rng.uniform(0, 3, n)
    elif scenario == "C":
        C = np.where(_uniform(rng, n) < 0.6, np.inf, 1.0 + (X[:, 3] < 0.5))
    elif scenario == "E":
        C = rng.poisson(3 + np.log1p(np.exp(2 * X[:, 1] + X[:, 2]))).astype(float)
    else:
        C = np.sqrt(-np.log(_uniform(rng, n)) / np.exp(_censoring_score(scenario, X, W.astype(float))))
    return Draws(X, U, W, T0, T1, C, e)


def _uniform(rng: RandomState | Generator, size: int | tuple[int, int]) -> Array:
    return np.asarray(rng.uniform(size=size), float)


def _event_times(config: str, scenario: str, X: Array, U: Array, w: float, rng: RandomState | Generator) -> Array:
    value = parameter(config, scenario, X, w, U[:, 0])
    # Drawn in every family, used in one: the published stream has it so.
    noise = rng.normal(size=len(X))
    family = WORLDS[scenario].family
    if family == "lognormal":
        return np.exp(value + noise)
    if family == "poisson":
        return rng.poisson(value).astype(float)
    return (-np.log(_uniform(rng, len(X))) / np.exp(value)) ** 2


def mean_time(config: str, scenario: str, X: Array, w: float, horizon: float | None = None) -> Array:
    """E[min(T(w), horizon) | X], exact; None = no horizon. The latent confounder is integrated out (it is uniform)."""
    config, scenario = checked(config, scenario)
    family = WORLDS[scenario].family
    return _over_latent(config, scenario, X, w, lambda value: _restricted_mean(family, value, horizon))


def survival(config: str, scenario: str, X: Array, w: float, t: float) -> Array:
    """P(T(w) > t | X), exact."""
    config, scenario = checked(config, scenario)
    family = WORLDS[scenario].family
    return _over_latent(config, scenario, X, w, lambda value: _survival(family, value, t))


def effect_variance(config: str, scenario: str, X: Array) -> Array:
    """Var(T(1) - T(0) | X), exact: no estimate can have a smaller squared error against individual effects."""
    config, scenario = checked(config, scenario)
    family = WORLDS[scenario].family
    second = {
        "weibull": lambda v: 24 * np.exp(-4 * v),
        "lognormal": lambda v: np.exp(2 * v + 2),
        "poisson": lambda v: v + v**2,
    }[family]
    total = sum(_over_latent(config, scenario, X, w, second) for w in (0.0, 1.0))
    both = _over_latent(
        config, scenario, X, 0.0, lambda v: _restricted_mean(family, v, None),
        other=lambda v: _restricted_mean(family, v, None),
    )  # fmt: skip
    gain = mean_time(config, scenario, X, 1.0) - mean_time(config, scenario, X, 0.0)
    return total - 2 * both - gain**2


def _over_latent(
    config: str, scenario: str, X: Array, w: float, f: Callable[[Array], Array],
    other: Callable[[Array], Array] | None = None,
) -> Array:  # fmt: skip
    """Mean of f(parameter under w), times ``other``(parameter under treatment) if given, over the latent confounder."""

    def value(U1: Array | None) -> Array:
        first = f(parameter(config, scenario, X, w, U1))
        return first if other is None else first * other(parameter(config, scenario, X, 1.0, U1))

    if "UConf" not in config:
        return value(None)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    total = np.zeros(len(X))
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        total += weight * value(np.full(len(X), node))
    return total


def poisson(mean: Array, estimand: Estimand) -> Array:
    """The estimand's functional of Poisson event times."""
    if estimand.kind == "survival":
        assert estimand.horizon is not None
        return _survival("poisson", mean, estimand.horizon)
    return _restricted_mean("poisson", mean, estimand.horizon)


def _restricted_mean(family: str, value: Array, horizon: float | None) -> Array:
    from scipy.special import ndtr, pdtr

    if family == "weibull":
        rate = np.exp(value)
        if horizon is None:
            return 2 / rate**2
        z = rate * np.sqrt(horizon)
        return 2 / rate**2 * (1 - np.exp(-z) * (1 + z))
    if family == "lognormal":
        if horizon is None:
            return np.exp(value + 0.5)
        log = np.log(horizon)
        return np.exp(value + 0.5) * ndtr(log - value - 1) + horizon * ndtr(value - log)
    if horizon is None:
        return value
    whole = int(np.floor(horizon))
    total = np.zeros_like(value)
    for k in range(whole):
        total += 1 - pdtr(k, value)
    return total + (horizon - whole) * (1 - pdtr(whole, value))


def _survival(family: str, value: Array, t: float) -> Array:
    from scipy.special import ndtr, pdtr

    if family == "weibull":
        return np.exp(-np.exp(value) * np.sqrt(t))
    if family == "lognormal":
        return ndtr(value - np.log(t)) if t > 0 else np.ones_like(value)
    return 1 - pdtr(np.floor(t), value)


def checked(config: str, scenario: str) -> tuple[str, str]:
    """Both names, or one sentence with the nearest ones that exist."""
    if config not in CONFIGS:
        raise unknown_name("causal configuration", config, CONFIGS)
    if scenario not in SCENARIOS:
        raise unknown_name("survival scenario", scenario, SCENARIOS)
    return config, scenario
