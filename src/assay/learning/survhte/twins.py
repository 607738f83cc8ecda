"""Twins: lifetimes of both are known, so both potential times are; treatment is being the heavier one.

Covariates of the file Twin_Data.csv (Yoon et al. 2018, from the NBER's linked births and deaths), 30 a pair. Which of
them are read as indicators follows from counts that were published (23 indicators, 4 numbers, 3 categories, 43
columns); it was not checked against the published rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assay.core.datasets import read_table
from assay.core.errors import DataError, UsageError
from assay.learning.survhte.data import SurvivalData
from assay.learning.survhte.published import numbers, read_published

Array = NDArray[np.float64]

SEED = 522
HORIZONS = (30, 180)
NUMERIC = ("cigar", "drink", "wtgain", "dtotord")
CATEGORIES = {"pldel": range(1, 6), "resstatb": range(1, 5), "mpcb": range(10)}
COUNTED = ("dmage", "dmeduc", "nprevist", "gestat")
"""Ages, years and weeks that the published encoding takes for indicators."""
INDICATORS = (
    "dmar", "adequacy", "anemia", "cardiac", "lung", "diabetes", "herpes", "hydra", "hemo", "chyper", "phyper",
    "eclamp", "incervix", "pre4000", "preterm", "renal", "rh", "uterine", "othermr",
)  # fmt: skip
_UNKNOWN = 8
_LIFETIMES = ("outcome(t=0)", "outcome(t=1)")


def encode_twins(frame: pl.DataFrame, *, as_published: bool = True, where: str = "twins") -> tuple[Array, list[str]]:
    """Covariates of pairs as numbers: (n, 43) and their names.

    In indicators 8 stands for unknown and becomes the most frequent value; an indicator is 1 where the value is 1.
    Categories become one column a level but the first.

    Parameters
    ----------
    as_published
        Take `COUNTED` for indicators, as the published data do (an age is 1 where it equals 1: never). False: as
        the numbers they are.

    Raises
    ------
    DataError
        A covariate is missing, a value no number, a category outside its levels.
    """
    indicators = (*(COUNTED if as_published else ()), *INDICATORS)
    numeric = (*(() if as_published else COUNTED), *NUMERIC)
    columns: dict[str, Array] = dict(zip(numeric, numbers(frame, numeric, where).T, strict=True))
    for name, values in zip(indicators, numbers(frame, indicators, where).T, strict=True):
        known = values[values != _UNKNOWN]
        levels, counts = np.unique(known, return_counts=True)
        usual = levels[np.argmax(counts)] if len(levels) else 0.0
        columns[name] = (np.where(values == _UNKNOWN, usual, values) == 1).astype(float)
    for name, allowed in CATEGORIES.items():
        values = numbers(frame, [name], where)[:, 0]
        other = np.flatnonzero(~np.isin(values, list(allowed)))
        if len(other):
            raise DataError(
                f"{where}, row {other[0] + 2}, column {name!r}: {values[other[0]]:g} is none of the levels "
                f"{allowed.start} to {allowed.stop - 1}."
            )
        for level in list(allowed)[1:]:
            columns[f"{name}_{level}"] = (values == level).astype(float)
    return np.column_stack(list(columns.values())), list(columns)


def load_twins(path: Path | str, days: int = 30, *, as_published: bool = True) -> SurvivalData:
    """Pairs of Twin_Data.csv with treatment and censoring drawn as published; times in days up to 30 or 180.

    Raises
    ------
    UsageError
        Another horizon.
    DataError
        A column is missing or holds no numbers.
    """
    if days not in HORIZONS:
        raise UsageError(f"Twins are followed for 30 or 180 days; got {days!r}.")
    frame = read_table(Path(path))
    frame = frame.rename({name: name.strip().strip("'") for name in frame.columns})
    X, names = encode_twins(frame, as_published=as_published, where=str(path))
    return make_twins(X, numbers(frame, _LIFETIMES, str(path)), float(days), names)


def published_twins(path: Path, days: int) -> SurvivalData:
    """twin30.csv or twin180.csv: heavier against lighter twin, lifetimes in days up to the horizon."""
    return replace(read_published(path, f"twin{days}"), end=float(days), split_seed=SEED)


def make_twins(X: Array, lifetimes: Array, horizon: float, features: Sequence[str] | None = None) -> SurvivalData:
    """Treatment and censoring drawn for pairs of twins as published; times in days.

    Parameters
    ----------
    X
        Covariates of the pairs, encoded, shape (n, p).
    lifetimes
        Of the lighter (control) and the heavier twin (treated), shape (n, 2).
    horizon
        Lifetimes are cut at it: 30 or 180.
    """
    from scipy.special import expit

    n, p = X.shape
    rng = np.random.RandomState(SEED)
    weights = rng.uniform(-0.1, 0.1, p)
    e = expit(X @ weights + rng.normal(size=n))
    W = rng.binomial(1, e).astype(np.int64)
    rng = np.random.RandomState(SEED)
    C = rng.exponential(100 * expit(X @ rng.normal(size=p)))
    T0, T1 = np.minimum(lifetimes, horizon).T
    T = np.where(W == 1, T1, T0)
    names = list(features) if features is not None else [f"x{i}" for i in range(p)]
    return SurvivalData(
        f"twin{horizon:g}", X, W, np.minimum(T, C), T <= C, names, T0, T1, C, e, end=horizon, split_seed=SEED
    )
