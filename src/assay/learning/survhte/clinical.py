"""Trials of people: ACTG 175 and the right-censored sets that scikit-survival carries; what is real in a folder.

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
from assay.core.datasets.readers import guarded, listed
from assay.core.errors import DataError, UsageError
from assay.learning.survhte.data import SurvivalData
from assay.learning.survhte.published import find, numbers, permutations, yes_no
from assay.learning.survhte.twins import HORIZONS, load_twins, published_twins

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

    whole = find(root, "actg175")
    for contrast in CONTRASTS:
        file = find(root, f"ACTG_175_{contrast}")
        for level in ("LC", "HC"):
            name = f"actg175-{contrast}-{level}"
            if file is not None and users is not None:
                add(name, "unknown", partial(published_contrast, file, contrast, level), users)
            elif whole is not None and users is not None:
                add(name, "unknown", partial(contrast_of, whole, contrast, level), users)
            elif contrast == "HIV1":
                add(name, "unknown", partial(load_actg175, level), sample_data())
    raw = find(root, "Twin_Data")
    for days in HORIZONS:
        file = find(root, f"twin{days}")
        if file is not None and users is not None:
            add(f"twin{days}", "draws", partial(published_twins, file, days), users)
        elif raw is not None and users is not None:
            add(f"twin{days}", "draws", partial(load_twins, raw, days), users)
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
    return _contrast(frame, frame["trt"].to_numpy(), time.astype(float), event, contrast, level, str(SAMPLE))


def contrast_of(path: Path, contrast: str, level: str) -> SurvivalData:
    """One contrast of the whole table: columns days (or time), cens (or label), arms (or trt) and the covariates."""
    if contrast not in CONTRASTS:
        raise UsageError(f"Contrasts are HIV1, HIV2 and HIV3; got {contrast!r}.")
    frame = read_table(path)
    names = [_one_of(frame, path, *pair) for pair in (("days", "time"), ("cens", "cid", "label"), ("arms", "trt"))]
    arms = CONTRASTS[contrast]
    with guarded(path, f"a trial: column {names[2]!r} holds the numbers of arms"):
        frame = frame.filter(frame[names[2]].is_in(arms))
    base = numbers(frame, names, str(path))
    months = base[:, 0] / 30
    event = (yes_no(base[:, 1], names[1], str(path)) == 1) | (months >= _END)
    treated = (base[:, 2] == arms[1]).astype(int)
    return _contrast(frame, treated, np.minimum(months, _END), event, contrast, level, str(path))


def _one_of(frame: pl.DataFrame, path: Path, *names: str) -> str:
    for name in names:
        if name in frame.columns:
            return name
    raise DataError(f"{path}: none of the columns {', '.join(names)} is there; there are {listed(frame.columns)}.")


def _contrast(
    frame: pl.DataFrame, treated: NDArray[Any], time: Array, event: NDArray[np.bool_], contrast: str, level: str,
    where: str,
) -> SurvivalData:  # fmt: skip
    X = numbers(frame, COVARIATES, where)
    data = SurvivalData(
        f"actg175-{contrast}-{level}", X, treated.astype(np.int64), time, event, list(COVARIATES), end=_END,
        split_seed=0,
    )  # fmt: skip
    if level == "LC":
        return data
    if level != "HC":
        raise UsageError(f"Levels of censoring are LC and HC; got {level!r}.")
    if "z30" not in frame.columns:
        raise DataError(f"{where}: high censoring hangs on the column 'z30', which is missing.")
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
    base = numbers(frame, ["trt", "observed_time_month", "effect_non_censor"], where)
    if not len(base):
        raise DataError(f"{where} holds no rows.")
    treated = (base[:, 0] != base[:, 0].min()).astype(np.int64)
    reference = frame["cate_base"].to_numpy().astype(float) if "cate_base" in frame.columns else None
    data = SurvivalData(
        f"actg175-{contrast}-{level}", numbers(frame, COVARIATES, where), treated, base[:, 1],
        yes_no(base[:, 2], "effect_non_censor", where) == 1,
        list(COVARIATES), reference=reference, end=_END, split_seed=0, permutations=permutations(path, frame.height),
    )  # fmt: skip
    if level == "LC":
        return data
    versions = [numbers(frame, [f"t{i}", f"e{i}"], where) for i in range(_VERSIONS)]
    return replace(data, versions=tuple((v[:, 0], v[:, 1] == 1) for v in versions))


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
