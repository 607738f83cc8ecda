"""The synthetic suite: eight ways of assigning treatment, five worlds of survival and censoring, and their exact truth.

Formulas of SurvHTE-Bench (arXiv 2603.05483). Times are in the paper's arbitrary units. Ways and worlds of one's own
have the same exact truth: an `Assignment` and a `World` stand wherever a name does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, UsageError, unknown_name

if TYPE_CHECKING:
    from numpy.random import Generator, RandomState

    from assay.learning.survhte.protocol import Estimand

    Random = RandomState | Generator

Array = NDArray[np.float64]

SEED = 2025
SIZE = 50_000
_NODES = 12
_DEFAULT_SHAPE = {"weibull": 0.5, "lognormal": 1.0, "poisson": 1.0}


@dataclass(frozen=True, slots=True)
class Assignment:
    """How treatment is assigned, and what is hidden from the learners.

    Parameters
    ----------
    propensity
        Chance of treatment given observed and latent covariates, both uniform on (0, 1), shapes (n, 5) and (n, 2).
    confounding
        Weight of U1 - X2 in the parameter of event times (the paper: 0.5): above 0, U1 acts on both sides when
        ``propensity`` uses it too, and no adjustment for X is enough. A dial for analyses of sensitivity.
    informative
        Censoring hangs on the event time itself instead of the world's rule: exponential with the rate .1 + .05 T.
    """

    name: str
    propensity: Callable[[Array, Array], Array]
    confounding: float = 0.0
    informative: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Distribution of the event time, a family and its parameter as a function of covariates and treatment; censoring.

    Parameters
    ----------
    family
        ``weibull`` (the parameter is the log rate: T = (-log u / e^parameter)^(1 / shape)), ``lognormal`` (mean of the
        logarithm) or ``poisson`` (mean).
    parameter
        Of covariates (n, 5) and treatment (a number or (n,)); shape (n,).
    censoring
        Times drawn from covariates, treatment and a random stream; shape (n,), infinite where nothing censors.
    shape
        Of the Weibull law, or sd of the logarithm; None = 1/2 and 1, the paper's.
    """

    name: str
    family: str
    parameter: Callable[[Array, float | Array], Array]
    censoring: Callable[[Array, Array, Random], Array]
    shape: float | None = None

    def __post_init__(self) -> None:
        if self.family not in _DEFAULT_SHAPE:
            raise unknown_name("family of event times", self.family, _DEFAULT_SHAPE)
        if self.shape is not None and not self.shape > 0:
            raise UsageError(f"The shape of world {self.name!r} is {self.shape!r}; it must be above 0.")

    @property
    def law(self) -> tuple[str, float]:
        """Family and shape."""
        return self.family, _DEFAULT_SHAPE[self.family] if self.shape is None else self.shape


def _beta24(z: Array) -> Array:
    """Density of the Beta(2, 4) distribution on [0, 1]."""
    return 20 * z * (1 - z) ** 3


def _half(X: Array, U: Array) -> Array:
    return np.full(len(X), 0.5)


def _rare(X: Array, U: Array) -> Array:
    return np.full(len(X), 0.05)


def _observed(X: Array, U: Array) -> Array:
    return (1 + _beta24(X[:, 0])) / 4


def _hidden(X: Array, U: Array) -> Array:
    return (1 + _beta24(0.3 * X[:, 0] + 0.7 * U[:, 0])) / 4


def _forced(X: Array, U: Array) -> Array:
    return np.where(X[:, 0] > 0.8, 1.0, np.where(X[:, 0] < 0.2, 0.0, 0.5))


_ASSIGNED = (
    Assignment("RCT-50", _half),
    Assignment("RCT-5", _rare),
    Assignment("OBS-CPS", _observed),
    Assignment("OBS-UConf", _hidden, confounding=0.5),
    Assignment("OBS-NoPos", _forced),
    Assignment("OBS-CPS-IC", _observed, informative=True),
    Assignment("OBS-UConf-IC", _hidden, confounding=0.5, informative=True),
    Assignment("OBS-NoPos-IC", _forced, informative=True),
)
ASSIGNMENTS = {one.name: one for one in _ASSIGNED}
CONFIGS = tuple(ASSIGNMENTS)


def propensity(config: str | Assignment, X: Array, U: Array) -> Array:
    """Chance of treatment of each row; shape (n,).

    Parameters
    ----------
    X, U
        Observed and latent covariates, uniform on (0, 1); shapes (n, 5) and (n, 2).
    """
    return checked(config, "A")[0].propensity(X, U)


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


def _uniform_censoring(X: Array, W: Array, rng: Random) -> Array:
    return rng.uniform(0, 3, len(X))


def _censoring_b(X: Array, W: Array, rng: Random) -> Array:
    root, low = np.sqrt(X[:, 1]), _low(X)
    score = -1.75 - 0.5 * root + 0.2 * X[:, 2] + (1.15 + 0.5 * low - 0.3 * root) * W
    return np.sqrt(-np.log(_uniform(rng, len(X))) / np.exp(score))


def _two_dates(X: Array, W: Array, rng: Random) -> Array:
    return np.where(_uniform(rng, len(X)) < 0.6, np.inf, 1.0 + (X[:, 3] < 0.5))


def _censoring_d(X: Array, W: Array, rng: Random) -> Array:
    root, low = np.sqrt(X[:, 1]), _low(X)
    score = -0.9 + 2 * root + 2 * X[:, 2] + (1.15 + 0.5 * low - 0.3 * root) * W
    return np.sqrt(-np.log(_uniform(rng, len(X))) / np.exp(score))


def _counted(X: Array, W: Array, rng: Random) -> Array:
    return rng.poisson(3 + np.log1p(np.exp(2 * X[:, 1] + X[:, 2]))).astype(float)


def _uniform(rng: Random, size: int | tuple[int, int]) -> Array:
    return np.asarray(rng.uniform(size=size), float)


WORLDS = {
    "A": World("A", "weibull", _a, _uniform_censoring),
    "B": World("B", "lognormal", _b, _censoring_b),
    "C": World("C", "poisson", _c, _two_dates),
    "D": World("D", "lognormal", _d, _censoring_d),
    "E": World("E", "poisson", _e, _counted),
}
SCENARIOS = tuple(WORLDS)


def parameter(
    config: str | Assignment, scenario: str | World, X: Array, w: float | Array, U1: Array | None = None
) -> Array:
    """Parameter of the event time under treatment ``w``; where the latent confounder acts, ``U1`` shifts it."""
    assignment, world = checked(config, scenario)
    value = world.parameter(X, w)
    if assignment.confounding and U1 is not None:
        value = value + assignment.confounding * (U1 - X[:, 1])
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


def draw(config: str | Assignment, scenario: str | World, n: int, rng: Random) -> Draws:
    """One data set.

    Parameters
    ----------
    config, scenario
        One of `CONFIGS` and one of `SCENARIOS`, or an `Assignment` and a `World` of one's own.
    n
        Rows.
    rng
        A ``RandomState(2025)`` with n=50,000 gives the published data sets number for number (the order of draws is
        theirs); a ``Generator`` gives new ones.

    Raises
    ------
    UsageError
        An unknown name.
    DataError
        A propensity outside [0, 1].
    """
    assignment, world = checked(config, scenario)
    X = _uniform(rng, (n, 5))
    U = 1 - _uniform(rng, (n, 2))
    e = assignment.propensity(X, U)
    if not np.all((e >= 0) & (e <= 1)):
        raise DataError(f"The propensity of {assignment.name!r} leaves [0, 1]: {e[~((e >= 0) & (e <= 1))][0]!r}.")
    W = rng.binomial(1, e).astype(np.int64)
    T0, T1 = (_event_times(assignment, world, X, U, w, rng) for w in (0.0, 1.0))
    if assignment.informative:
        C = rng.exponential(1 / (0.1 + 0.05 * np.where(W == 1, T1, T0)))
    else:
        C = world.censoring(X, W.astype(float), rng)
    return Draws(X, U, W, T0, T1, C, e)


def _event_times(assignment: Assignment, world: World, X: Array, U: Array, w: float, rng: Random) -> Array:
    value = parameter(assignment, world, X, w, U[:, 0])
    # Drawn in every family, used in one: the published stream has it so.
    noise = rng.normal(size=len(X))
    family, shape = world.law
    if family == "lognormal":
        return np.exp(value + shape * noise)
    if family == "poisson":
        return rng.poisson(value).astype(float)
    return (-np.log(_uniform(rng, len(X))) / np.exp(value)) ** (1 / shape)


def mean_time(
    config: str | Assignment, scenario: str | World, X: Array, w: float, horizon: float | None = None
) -> Array:
    """E[min(T(w), horizon) | X], exact; None = no horizon. The latent confounder is integrated out (it is uniform)."""
    assignment, world = checked(config, scenario)
    return _over_latent(
        assignment, X, lambda U1: _restricted_mean(world.law, parameter(assignment, world, X, w, U1), horizon)
    )


def survival(config: str | Assignment, scenario: str | World, X: Array, w: float, t: float) -> Array:
    """P(T(w) > t | X), exact."""
    assignment, world = checked(config, scenario)
    return _over_latent(assignment, X, lambda U1: _survival(world.law, parameter(assignment, world, X, w, U1), t))


def effect_moments(config: str | Assignment, scenario: str | World, X: Array) -> Array:
    """Mean and second to fourth central moment of T(1) - T(0) given X, exact; shape (4, n).

    The second is the smallest squared error against individual effects that any estimate can have.
    """
    assignment, world = checked(config, scenario)

    def raw(U1: Array | None) -> Array:
        treated, control = (_raw_moments(world.law, parameter(assignment, world, X, w, U1)) for w in (1.0, 0.0))
        return np.stack(
            [sum(comb(r, j) * (-1) ** j * treated[r - j] * control[j] for j in range(r + 1)) for r in range(1, 5)]
        )

    m1, m2, m3, m4 = _over_latent(assignment, X, raw)
    return np.stack([m1, m2 - m1**2, m3 - 3 * m1 * m2 + 2 * m1**3, m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4])


def effect_variance(config: str | Assignment, scenario: str | World, X: Array) -> Array:
    """Var(T(1) - T(0) | X), exact: no estimate can have a smaller squared error against individual effects."""
    return effect_moments(config, scenario, X)[1]


def _over_latent(assignment: Assignment, X: Array, f: Callable[[Array | None], Array]) -> Array:
    """Mean of f(U1) over the latent confounder, where it acts."""
    if not assignment.confounding:
        return f(None)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return sum(weight / 2 * f(np.full(len(X), (node + 1) / 2)) for node, weight in zip(nodes, weights, strict=True))  # type: ignore[return-value]


def poisson(mean: Array, estimand: Estimand) -> Array:
    """The estimand's functional of Poisson event times."""
    if estimand.kind == "survival":
        assert estimand.horizon is not None
        return _survival(("poisson", 1.0), mean, estimand.horizon)
    return _restricted_mean(("poisson", 1.0), mean, estimand.horizon)


def _raw_moments(law: tuple[str, float], value: Array) -> Array:
    """E[T^r] for r from 0 to 4; shape (5, n)."""
    from scipy.special import gamma

    family, shape = law
    r = np.arange(5)[:, None]
    if family == "weibull":
        return gamma(1 + r / shape) * np.exp(-value * r / shape)
    if family == "lognormal":
        return np.exp(r * value + (r * shape) ** 2 / 2)
    m = value
    return np.stack([np.ones_like(m), m, m + m**2, m + 3 * m**2 + m**3, m + 7 * m**2 + 6 * m**3 + m**4])


def _restricted_mean(law: tuple[str, float], value: Array, horizon: float | None) -> Array:
    from scipy.special import gamma, gammainc, ndtr, pdtr

    family, shape = law
    if family == "weibull":
        whole = gamma(1 + 1 / shape) * np.exp(-value / shape)
        return whole if horizon is None else whole * gammainc(1 / shape, np.exp(value) * horizon**shape)
    if family == "lognormal":
        mean = np.exp(value + shape**2 / 2)
        if horizon is None:
            return mean
        log = np.log(horizon)
        return mean * ndtr((log - value - shape**2) / shape) + horizon * ndtr((value - log) / shape)
    if horizon is None:
        return value
    steps = int(np.floor(horizon))
    total = np.zeros_like(value)
    for k in range(steps):
        total += 1 - pdtr(k, value)
    return total + (horizon - steps) * (1 - pdtr(steps, value))


def _survival(law: tuple[str, float], value: Array, t: float) -> Array:
    from scipy.special import ndtr, pdtr

    family, shape = law
    if family == "weibull":
        return np.exp(-np.exp(value) * t**shape)
    if family == "lognormal":
        return ndtr((value - np.log(t)) / shape) if t > 0 else np.ones_like(value)
    return 1 - pdtr(np.floor(t), value)


def checked(config: str | Assignment, scenario: str | World) -> tuple[Assignment, World]:
    """Both as objects, or one sentence with the nearest names that exist."""
    if isinstance(config, str) and config not in ASSIGNMENTS:
        raise unknown_name("causal configuration", config, CONFIGS)
    if isinstance(scenario, str) and scenario not in WORLDS:
        raise unknown_name("survival scenario", scenario, SCENARIOS)
    return (
        ASSIGNMENTS[config] if isinstance(config, str) else config,
        WORLDS[scenario] if isinstance(scenario, str) else scenario,
    )
