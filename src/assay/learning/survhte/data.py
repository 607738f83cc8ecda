"""Data sets: covariates, treatment, censored times, whatever truth there is, and how they split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, UsageError, unknown_name
from assay.learning.survhte import synthetic
from assay.learning.survhte.protocol import Estimand
from assay.learning.survhte.synthetic import Assignment, World

Array = NDArray[np.float64]

ESTIMANDS = ("rmst", "followup", "horizon", "survival25", "survival50", "survival75")


@dataclass(frozen=True)
class SurvivalData:
    """A data set of n rows.

    Attributes
    ----------
    X, features
        Covariates (n, p) and their names.
    W, time, event
        Treatment 0 or 1, follow-up, whether it ended in an event; shape (n,).
    T0, T1
        Potential event times, where both are known; else None.
    exact
        Exact conditional effect of an estimand, shape (n,), where there is a formula; else None.
    noise
        Var(T1 - T0 | X), likewise.
    reference
        Somebody's estimate of the effects, which is not the truth (ACTG 175).
    permutations
        Orders of rows by attempt, when published; else they come from ``split_seed`` + attempt.
    end
        Horizon that the data set itself sets (twins: 30 or 180 days); None = none.
    versions
        Times and events by attempt, where censoring was drawn several times.
    """

    name: str
    X: Array
    W: NDArray[np.int64]
    time: Array
    event: NDArray[np.bool_]
    features: Sequence[str]
    T0: Array | None = None
    T1: Array | None = None
    C: Array | None = None
    propensity: Array | None = None
    exact: Callable[[Estimand], Array] | None = None
    noise: Array | None = None
    reference: Array | None = None
    permutations: NDArray[np.int64] | None = None
    split_seed: int = synthetic.SEED
    sizes: tuple[int, int, int] | None = None
    end: float | None = None
    versions: Sequence[tuple[Array, NDArray[np.bool_]]] | None = None
    facts: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def event_times(self) -> Array:
        """True event times under the treatment that was given, where known."""
        if self.T0 is None or self.T1 is None:
            raise DataError(f"Data set {self.name!r} does not know the event times behind its censored rows.")
        return np.where(self.W == 1, self.T1, self.T0)

    def estimand(self, name: str, rows: NDArray[np.int64] | None = None) -> Estimand:
        """What a name asks for.

        Parameters
        ----------
        name
            ``rmst`` (no horizon but the data's own), ``followup`` (times up to the longest follow-up), ``horizon`` (up
            to the median event time), ``survival25/50/75``.
        rows
            Rows whose longest follow-up counts, those that are learned from; None = all.
        """
        if name == "rmst":
            return Estimand("rmst", self.end)
        if name not in ESTIMANDS:
            raise unknown_name("estimand", name, ESTIMANDS)
        if name == "followup":
            return Estimand("rmst", float((self.time if rows is None else self.time[rows]).max()))
        share = 0.5 if name == "horizon" else int(name.removeprefix("survival")) / 100
        at = float(np.quantile(self.time[self.event], share))
        if not at > 0:
            raise DataError(f"The {share:.0%} quantile of event times of {self.name!r} is {at:g}; choose a later one.")
        return Estimand("rmst" if name == "horizon" else "survival", at)

    def version(self, attempt: int) -> SurvivalData:
        """With the times of this attempt, where there are several versions."""
        if self.versions is None:
            return self
        time, event = self.versions[attempt % len(self.versions)]
        return replace(self, time=time, event=event, versions=None)

    def effects(self, estimand: Estimand) -> Array | None:
        """Individual effects of the draws, noise included; shape (n,); None = the truth is not known."""
        if self.T0 is None or self.T1 is None:
            return None
        return estimand.of(self.T1) - estimand.of(self.T0)

    def split(self, attempt: int, sizes: tuple[int, int, int] | None = None) -> tuple[NDArray[np.int64], ...]:
        """Rows for training, validation and testing.

        Parameters
        ----------
        attempt
            Repeat, from 0.
        sizes
            Rows of each; None = the data set's own (synthetic: 5000, 2500, 2500; others: half, a quarter, a quarter).
        """
        n = len(self)
        if self.permutations is not None:
            if attempt >= len(self.permutations):
                raise UsageError(
                    f"{self.name!r} has {len(self.permutations)} published splits; there is no attempt {attempt}."
                )
            order = self.permutations[attempt]
        else:
            order = np.random.RandomState(self.split_seed + attempt).permutation(n)
        train, val, test = sizes or self.sizes or (n // 2, n // 4, n - n // 2 - n // 4)
        if train + val + test > n:
            raise UsageError(
                f"{self.name!r} has {n} rows, fewer than {train} to train + {val} to validate + {test} to test on."
            )
        return order[:train], order[train : train + val], order[train + val : train + val + test]


SYNTHETIC_SIZES = (5000, 2500, 2500)


def make_survhte(
    config: str | Assignment = "RCT-50",
    scenario: str | World = "A",
    n: int = synthetic.SIZE,
    *,
    random_state: int | np.random.Generator = synthetic.SEED,
    legacy: bool = True,
) -> SurvivalData:
    """One of the 40 synthetic data sets, or one of your own making.

    Parameters
    ----------
    config
        How treatment is assigned: one of `synthetic.CONFIGS`, or an `Assignment`.
    scenario
        World of survival and censoring: A to E, or a `World`.
    n
        Rows.
    random_state
        Seed, or a generator.
    legacy
        Draw from NumPy's old stream: with the defaults exactly the published data sets. False: a new-style generator.

    Raises
    ------
    UsageError
        Unknown names; fewer than 10 rows.
    """
    assignment, world = synthetic.checked(config, scenario)
    if n < 10:
        raise UsageError(f"A synthetic data set needs at least 10 rows; got n={n}.")
    if isinstance(random_state, np.random.Generator):
        rng = random_state
    else:
        rng = np.random.RandomState(random_state) if legacy else np.random.default_rng(random_state)
    drawn = synthetic.draw(assignment, world, n, rng)
    T = np.where(drawn.W == 1, drawn.T1, drawn.T0)
    return SurvivalData(
        f"{assignment.name}/{world.name}",
        drawn.X,
        drawn.W,
        np.minimum(T, drawn.C),
        T <= drawn.C,
        [f"X{i}" for i in range(1, 6)],
        drawn.T0,
        drawn.T1,
        drawn.C,
        drawn.propensity,
        exact_effect(assignment, world, drawn.X),
        synthetic.effect_variance(assignment, world, drawn.X),
        sizes=SYNTHETIC_SIZES if n >= sum(SYNTHETIC_SIZES) else None,
        facts={"config": assignment.name, "scenario": world.name},
    )


def exact_effect(assignment: Assignment, world: World, X: Array) -> Callable[[Estimand], Array]:
    """The exact conditional effect of rows, as a function of the estimand."""

    def exact(estimand: Estimand) -> Array:
        h = estimand.horizon
        if estimand.kind == "survival":
            assert h is not None
            treated, control = (synthetic.survival(assignment, world, X, w, h) for w in (1.0, 0.0))
        else:
            treated, control = (synthetic.mean_time(assignment, world, X, w, h) for w in (1.0, 0.0))
        return treated - control

    return exact


@lru_cache(maxsize=4)
def synthetic_data(config: str, scenario: str, n: int, seed: int, confounding: float | None = None) -> SurvivalData:
    """`make_survhte`, kept: trials of one data set follow each other in a worker.

    Parameters
    ----------
    confounding
        Weight of the latent confounder where a configuration has one; None = the published weight.
    """
    assignment, world = synthetic.checked(config, scenario)
    if confounding is not None and assignment.confounding:
        assignment = replace(assignment, confounding=confounding)
    return make_survhte(assignment, world, n, random_state=seed)
