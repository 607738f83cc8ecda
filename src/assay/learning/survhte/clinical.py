"""Trials and registers of people: ACTG 175, twins, and the right-censored sets that scikit-survival carries.

Where only one potential time was seen, the truth is unknown: tables then show the gap of the average effect to the
unadjusted Kaplan-Meier difference, which is unbiased in a randomised trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets import Data, fingerprint, read_table
from assay.core.errors import DataError, UsageError
from assay.learning.survhte.data import SurvivalData

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]

SAMPLE = Path(__file__).with_name("actg175_sample.csv.gz")
COVARIATES = (
    "gender", "race", "hemo", "homo", "drugs", "str2", "symptom", "age", "wtkg", "karnof", "cd40", "cd80",
)  # fmt: skip
CONTRASTS = {"HIV1": (0, 1), "HIV2": (0, 2), "HIV3": (0, 3)}
_END = 30.0
_VERSIONS = 10
_TWIN_SEED = 522


@dataclass(frozen=True)
class Clinical:
    """A data set by name, how to load it and where it is from."""

    name: str
    task: str
    truth: str
    load: Callable[[], SurvivalData]
    provenance: Data


def sample_data() -> Data:
    """Provenance of the 600 patients of ACTG 175 that ship with assay."""
    return Data(
        "published sample", "600 patients of ACTG 175, arms 0 and 1 (UCI 890; Hammer et al., NEJM 1996)", "CC-BY-4.0",
        fingerprint(SAMPLE), SAMPLE,
    )  # fmt: skip


def available(root: Path | None, users: Data | None) -> Sequence[Clinical]:
    """All that can be had: the shipped sample or the user's ACTG 175, the user's twins, sets of scikit-survival."""
    from assay.learning.survhte.sources import cached

    found: list[Clinical] = []

    def add(name: str, truth: str, load: Callable[[], SurvivalData], origin: Data) -> None:
        found.append(Clinical(name, "real", truth, partial(cached, load), origin))

    whole = root is not None and (root / "actg175.csv").is_file()
    for contrast in CONTRASTS:
        if root is not None and users is not None and (path := root / f"ACTG_175_{contrast}.csv").is_file():
            for level in ("LC", "HC"):
                add(f"actg175-{contrast}-{level}", "unknown", partial(published_contrast, path, contrast, level), users)
        elif root is not None and users is not None and whole:
            for level in ("LC", "HC"):
                load = partial(contrast_of, root / "actg175.csv", contrast, level)
                add(f"actg175-{contrast}-{level}", "unknown", load, users)
    if not any(one.name.startswith("actg175-HIV1") for one in found):
        for level in ("LC", "HC"):
            add(f"actg175-HIV1-{level}", "unknown", partial(load_actg175, level), sample_data())
    for days in (30, 180):
        if root is not None and users is not None and (path := root / f"twin{days}.csv").is_file():
            add(f"twin{days}", "draws", partial(published_twins, path, days), users)
    if find_spec("sksurv") is not None:
        for name in PACKAGED:
            origin = Data("real", f"scikit-survival, {name}", "GPL-3.0", f"sksurv-{name}")
            add(name, "unknown", partial(load_packaged, name), origin)
    return found


# -- ACTG 175 ---------------------------------------------------------------------------------------------------------


def load_actg175(level: str = "LC", contrast: str = "HIV1", path: Path | None = None) -> SurvivalData:
    """ACTG 175, one contrast: zidovudine against a combination or didanosine; times in months, ended at 30.

    Parameters
    ----------
    level
        ``LC``: censoring as it was. ``HC``: ten versions with drawn early censoring that hangs on prior zidovudine
        (``z30``), which learners do not see.
    contrast
        HIV1, HIV2 or HIV3 (the second arm: zidovudine + didanosine, zidovudine + zalcitabine, didanosine).
    path
        The whole data set as a table (columns of R's speff2trial or of UCI 890); None = 600 patients that ship, HIV1.
    """
    if path is not None:
        return contrast_of(path, contrast, level)
    if contrast != "HIV1":
        raise UsageError(f"The patients that ship are of contrast HIV1; give the whole data set for {contrast}.")
    frame = read_table(SAMPLE)
    time, event = frame["observed_time_month"].to_numpy(), frame["effect_non_censor"].to_numpy() == 1
    return _contrast(frame, frame["trt"].to_numpy(), time.astype(float), event, contrast, level)


def contrast_of(path: Path, contrast: str, level: str) -> SurvivalData:
    """One contrast of the whole table: columns days (or time), cens (or label), arms (or trt) and the covariates."""
    if contrast not in CONTRASTS:
        raise UsageError(f"Contrasts are HIV1, HIV2 and HIV3; got {contrast!r}.")
    frame = read_table(path)
    names = [_one_of(frame, path, *pair) for pair in (("days", "time"), ("cens", "cid", "label"), ("arms", "trt"))]
    arms = CONTRASTS[contrast]
    frame = frame.filter(frame[names[2]].is_in(arms))
    months = frame[names[0]].to_numpy().astype(float) / 30
    event = (frame[names[1]].to_numpy() == 1) | (months >= _END)
    treated = (frame[names[2]].to_numpy() == arms[1]).astype(int)
    return _contrast(frame, treated, np.minimum(months, _END), event, contrast, level)


def _one_of(frame: pl.DataFrame, path: Path, *names: str) -> str:
    for name in names:
        if name in frame.columns:
            return name
    raise DataError(
        f"{path}: none of the columns {', '.join(names)} is there; there are {', '.join(frame.columns[:12])}."
    )


def _columns(frame: pl.DataFrame, names: Sequence[str], where: str) -> Array:
    for name in names:
        if name not in frame.columns:
            raise DataError(f"{where}: column {name!r} is missing; there are {', '.join(frame.columns[:12])}.")
    return frame.select(names).to_numpy().astype(float)


def _contrast(
    frame: pl.DataFrame, treated: NDArray[Any], time: Array, event: NDArray[np.bool_], contrast: str, level: str
) -> SurvivalData:
    X = _columns(frame, COVARIATES, "ACTG 175")
    data = SurvivalData(
        f"actg175-{contrast}-{level}", X, treated.astype(np.int64), time, event, list(COVARIATES), end=_END,
        split_seed=0,
    )  # fmt: skip
    if level == "LC":
        return data
    if level != "HC":
        raise UsageError(f"Levels of censoring are LC and HC; got {level!r}.")
    if "z30" not in frame.columns:
        raise DataError("ACTG 175: high censoring hangs on the column 'z30', which is missing.")
    z30 = frame["z30"].to_numpy().astype(float)
    return replace(data, versions=tuple(_early(time, event, z30, seed) for seed in range(_VERSIONS)))


def _early(time: Array, event: NDArray[np.bool_], z30: Array, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """With probability .6 + .25 z30 a row is censored at a time uniform on (1, min(its time, 6))."""
    rng = np.random.RandomState(seed)
    hit = rng.uniform(size=len(time)) < 0.6 + 0.25 * z30
    until = np.minimum(time, 6.0)
    at = np.where(until > 1, 1 + (until - 1) * rng.uniform(size=len(time)), until)
    return np.where(hit, at, time), event & ~hit


def published_contrast(path: Path, contrast: str, level: str) -> SurvivalData:
    """The published file ACTG_175_HIV{1,2,3}.csv, with its ten versions and its reference effects."""
    frame = read_table(path)
    where = str(path)
    base = _columns(frame, ["trt", "observed_time_month", "effect_non_censor"], where)
    treated = (base[:, 0] != base[:, 0].min()).astype(np.int64)
    reference = frame["cate_base"].to_numpy().astype(float) if "cate_base" in frame.columns else None
    data = SurvivalData(
        f"actg175-{contrast}-{level}", _columns(frame, COVARIATES, where), treated, base[:, 1], base[:, 2] == 1,
        list(COVARIATES), reference=reference, end=_END, split_seed=0, permutations=_permutations(path),
    )  # fmt: skip
    if level == "LC":
        return data
    versions = [_columns(frame, [f"t{i}", f"e{i}"], where) for i in range(_VERSIONS)]
    return replace(data, versions=tuple((v[:, 0], v[:, 1] == 1) for v in versions))


# -- published files --------------------------------------------------------------------------------------------------


def read_published(path: Path, name: str, features: Sequence[str] | None = None) -> SurvivalData:
    """A published file with both potential times: columns observed_time, event, T0, T1, W and the covariates.

    Raises
    ------
    DataError
        A column is missing, or a value is no number (file, row and column are named).
    """
    frame = read_table(path)
    base = _columns(frame, ["observed_time", "event", "T0", "T1", "W"], str(path))
    other = {"idx", "id", "observed_time", "event", "T0", "T1", "T", "C", "W", "true_cate"}
    names = list(features) if features else [c for c in frame.columns if c not in other and not c.startswith("p_surv")]
    values = _columns(frame, names, str(path))
    for columns, block in ((["observed_time", "event", "T0", "T1", "W"], base), (names, values)):
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            row, column = bad[0]
            raise DataError(f"{path}, row {row + 2}, column {columns[column]!r}: the value is no number.")
    return SurvivalData(
        name, values, base[:, 4].astype(np.int64), base[:, 0], base[:, 1] == 1, names, base[:, 2], base[:, 3],
        permutations=_permutations(path),
    )  # fmt: skip


def _permutations(path: Path) -> NDArray[np.int64] | None:
    """Published orders of rows beside a file: idx_split_<name>.csv, or idx_split.csv."""
    for candidate in (path.with_name(f"idx_split_{path.stem}.csv"), path.with_name("idx_split.csv")):
        if candidate.is_file():
            frame = read_table(candidate)
            names = [c for c in frame.columns if c.startswith("random_idx")]
            if not names:
                raise DataError(f"{candidate}: there is no column random_idx0.")
            return frame.select(names).to_numpy().astype(np.int64).T
    return None


def published_twins(path: Path, days: int) -> SurvivalData:
    """twin30.csv or twin180.csv: heavier against lighter twin, lifetimes in days up to the horizon."""
    return replace(read_published(path, f"twin{days}"), end=float(days), split_seed=_TWIN_SEED)


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
    rng = np.random.RandomState(_TWIN_SEED)
    weights = rng.uniform(-0.1, 0.1, p)
    e = expit(X @ weights + rng.normal(size=n))
    W = rng.binomial(1, e).astype(np.int64)
    rng = np.random.RandomState(_TWIN_SEED)
    C = rng.exponential(100 * expit(X @ rng.normal(size=p)))
    T0, T1 = np.minimum(lifetimes, horizon).T
    T = np.where(W == 1, T1, T0)
    names = list(features) if features is not None else [f"x{i}" for i in range(p)]
    return SurvivalData(
        f"twin{horizon:g}", X, W, np.minimum(T, C), T <= C, names, T0, T1, C, e, end=horizon, split_seed=_TWIN_SEED
    )


# -- what packages ship -----------------------------------------------------------------------------------------------

PACKAGED = ("aids", "gbsg2", "veterans")
_TREATED = {"aids": ("tx", "1"), "gbsg2": ("horTh", "yes"), "veterans": ("Treatment", "test")}


def load_packaged(name: str) -> SurvivalData:
    """A right-censored set of scikit-survival with a treatment: ``aids`` (ACTG 320, randomised, indinavir), ``gbsg2``
    (hormone therapy, not randomised), ``veterans`` (lung cancer, randomised); times in days."""
    from sksurv import datasets

    loader = {
        "aids": datasets.load_aids, "gbsg2": datasets.load_gbsg2, "veterans": datasets.load_veterans_lung_cancer,
    }[name]  # fmt: skip
    frame, y = loader()
    column, value = _TREATED[name]
    treated = (frame[column].astype(str) == value).to_numpy().astype(np.int64)
    columns: dict[str, Array] = {}
    for feature in frame.columns:
        if feature in (column, "txgrp"):
            continue
        series = frame[feature]
        if series.dtype.kind == "f":
            columns[feature] = series.to_numpy(float)
            continue
        for level in sorted(series.astype(str).unique())[1:]:
            columns[f"{feature}={level}"] = (series.astype(str) == level).to_numpy().astype(float)
    event, time = y.dtype.names
    return SurvivalData(
        name, np.column_stack(list(columns.values())), treated, y[time].astype(float), y[event], list(columns),
        split_seed=0,
    )  # fmt: skip
