"""Semi-synthetic data: people's covariates, drawn treatment, times and censoring, so that the truth is known.

ACTG-syn follows the published coefficients (on the published covariates its rows are the published ones). MIMIC-syn 1-5
follow the published rates; the formulas of 6-9 were not published, and those here are assay's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets import Data, read_table
from assay.core.datasets.readers import guarded
from assay.core.errors import DataError, UsageError
from assay.learning.survhte.data import SurvivalData
from assay.learning.survhte.protocol import Estimand
from assay.learning.survhte.published import find, numbers, read_published

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]

ACTG_SEED = 2025511
_DAYS = 30.0
_ALPHA, _LAMBDA = 0.0055, 6e-4
# covariate: (effect on the hazard when treated, when not)
ACTG_COEFFICIENTS: dict[str, tuple[float, float]] = {
    "age": (0.0026987044, 0.01148569), "wtkg": (0.0094957416, 0.003896347), "hemo": (-0.2047708817, -0.03337743),
    "homo": (-0.051824328, -0.1215442), "drugs": (-0.2168722467, -0.6036002), "karnof": (0.0076266828, 0.00456338),
    "oprior": (-0.0796099695, -0.05217492), "z30": (0.625874894, 1.414948), "zprior": (0.0, 0.0),
    "preanti": (0.0009670592, 9.294612e-6), "race": (-1.0101809693, 0.07863787), "gender": (-0.4038655688, 0.4756738),
    "str2": (-1.5959739338, -0.7807835), "strat": (-0.0563572096, -0.1766999), "symptom": (0.5244218189, 0.1622865),
    "treat": (0.0, 0.0), "offtrt": (0.2280296997, 0.1551692), "cd40": (0.0035548596, 0.00279335),
    "cd420": (-0.0047974742, -0.006417969), "cd496": (-0.0121293815, -0.009856514), "r": (-1.062520897, -1.127284),
    "cd80": (-0.0004266264, 0.0002247806), "cd820": (0.000584429, 0.0001952943),
}  # fmt: skip


def make_actg_syn(
    frame: pl.DataFrame, *, seed: int = ACTG_SEED, stand_in: bool = False, name: str = "actg_syn"
) -> SurvivalData:
    """Gompertz event times on the covariates of ACTG 175; times in months of 30 days.

    Parameters
    ----------
    frame
        One row a patient with the columns of `ACTG_COEFFICIENTS`; what is missing in ``cd496`` becomes its median.
    seed
        Of NumPy's old stream; the default gives the published rows.
    stand_in
        Allow covariates to be missing: they are left out, and the level of both hazards is set so that about 51 % of
        rows are censored, as in the published data.

    Raises
    ------
    DataError
        A covariate is missing.
    """
    names = [c for c in ACTG_COEFFICIENTS if c in frame.columns]
    absent = [c for c in ACTG_COEFFICIENTS if c not in frame.columns]
    if absent and not stand_in:
        raise DataError(f"ACTG-syn needs the covariate {absent[0]!r}, which is not among the columns of the data.")
    X = np.column_stack([_filled(frame, c) for c in names])
    beta = np.array([ACTG_COEFFICIENTS[c] for c in names])
    scores = [X @ beta[:, 1], X @ beta[:, 0]]
    n = len(X)
    rng = np.random.RandomState(seed)
    u = [rng.uniform(size=n), rng.uniform(size=n)]
    C = rng.normal(1000, 100, n) / _DAYS
    shifted = frame["age"].to_numpy().astype(float) + frame["cd40"].to_numpy().astype(float)
    from scipy.special import expit

    e = (0.3 + expit(-30 * (shifted - shifted.mean()))) / 1.5
    W = np.array([rng.binomial(1, p) for p in e], np.int64)
    if absent:
        level = _level(scores, u, W, C)
        scores = [score + level for score in scores]
    T0, T1 = (_gompertz_time(score, draw) for score, draw in zip(scores, u, strict=True))
    T = np.where(W == 1, T1, T0)

    def exact(estimand: Estimand) -> Array:
        control, treated = (_gompertz(score, estimand) for score in scores)
        return treated - control

    return SurvivalData(
        name, X, W, np.minimum(T, C), T <= C, names, T0, T1, C, e, exact, split_seed=ACTG_SEED,
        facts={"config": "actg_syn", "scenario": "semi"},
    )  # fmt: skip


def _filled(frame: pl.DataFrame, column: str) -> Array:
    values = frame[column].cast(float, strict=False).to_numpy().astype(float)
    missing = np.isnan(values)
    if missing.any() and column != "cd496":
        raise DataError(
            f"Column {column!r} of the ACTG 175 data has no number in row {int(np.flatnonzero(missing)[0])}."
        )
    return np.where(missing, np.nanmedian(values), values) if missing.any() else values


def _gompertz_time(score: Array, u: Array) -> Array:
    return np.log(1 - _ALPHA * np.log(u) / (_LAMBDA * np.exp(score))) / _ALPHA / _DAYS


def _level(scores: list[Array], u: list[Array], W: NDArray[np.int64], C: Array) -> float:
    """Shift of both log hazards at which 51 % are censored, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        T0, T1 = (_gompertz_time(score + middle, draw) for score, draw in zip(scores, u, strict=True))
        if np.mean(np.where(W == 1, T1, T0) > C) > 0.51:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _gompertz(score: Array, estimand: Estimand) -> Array:
    """Mean time, restricted or not, or survival, of the Gompertz law; in months.

    The integral of its survival function is the exponential integral, written by Tricomi's function so that large
    hazards do not overflow.
    """
    from scipy.special import hyperu

    eta = _LAMBDA * np.exp(score) / _ALPHA
    if estimand.horizon is None:
        return hyperu(1, 1, eta) / _ALPHA / _DAYS
    grown = eta * np.exp(_ALPHA * estimand.horizon * _DAYS)
    if estimand.kind == "survival":
        return np.exp(eta - grown)
    return (hyperu(1, 1, eta) - np.exp(eta - grown) * hyperu(1, 1, grown)) / _ALPHA / _DAYS


# -- MIMIC-style ------------------------------------------------------------------------------------------------------

LABS = (
    "anion_gap", "bicarbonate", "calcium_total", "chloride", "creatinine", "glucose", "magnesium", "phosphate",
    "potassium", "sodium", "urea_nitrogen", "hematocrit", "hemoglobin", "mch", "mchc", "mcv", "platelet_count", "rdw",
    "red_blood_cells", "white_blood_cells",
)  # fmt: skip
_CENSORING = {1: 21.0, 2: 23.0, 3: 24.7, 4: 26.5, 5: 29.0}
_SHAPES = {6: ("lin", "lin"), 7: ("lin", "nlin"), 8: ("nlin", "lin"), 9: ("nlin", "nlin")}
MIMIC_NAMES = {
    **{i: f"mimic_syn{i}" for i in _CENSORING},
    **{i: f"mimic_ps{ps}_tc{tc}" for i, (ps, tc) in _SHAPES.items()},
}


def stand_in_admissions(n: int = 4000, seed: int = ACTG_SEED) -> tuple[Array, list[str]]:
    """Made-up admissions, no patient's: twenty flags of abnormal tests, standardised age, 15 indicators; (n, 36)."""
    rng = np.random.default_rng(seed)
    age = rng.normal(size=n)
    rates = rng.uniform(0.1, 0.5, len(LABS))
    logit = np.log(rates / (1 - rates)) + 0.3 * age[:, None] + 0.5 * rng.normal(size=(n, 1))
    flags = (rng.uniform(size=logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    others = (rng.uniform(size=(n, 15)) < rng.uniform(0.05, 0.6, 15)).astype(float)
    return np.column_stack([flags, age, others]), [*LABS, "age_std", *(f"indicator_{i}" for i in range(1, 16))]


def make_mimic_syn(number: int, X: Array, features: list[str], *, seed: int = ACTG_SEED) -> SurvivalData:
    """One of the nine MIMIC-style data sets on given admissions; times in days, whole numbers.

    Parameters
    ----------
    number
        1 to 5: randomised, from more to less censoring. 6 to 9: propensity and times linear or not (assay's formulas).
    X, features
        Admissions (n, p) and column names, among them ``age_std`` and the first five of `LABS`.

    Raises
    ------
    UsageError
        Another number.
    DataError
        A column that the formulas need is missing.
    """
    if number not in MIMIC_NAMES:
        raise UsageError(f"There are MIMIC-style data sets 1 to 9; got {number}.")
    for needed in (*LABS[:5], "age_std"):
        if needed not in features:
            raise DataError(f"The admissions have no column {needed!r}, from which MIMIC-style times are drawn.")
    rng = np.random.default_rng([seed, number])
    labs = X[:, [features.index(lab) for lab in LABS[:5]]].sum(axis=1)
    age = X[:, features.index("age_std")]
    n = len(X)
    e = np.full(n, 0.5)
    mean0, mean1 = 30 + 0.75 * labs + 0.75 * age, 30 + 0.75 * age - 0.45
    censoring = np.full(n, _CENSORING.get(number, 26.5))
    if number in _SHAPES:
        shape_e, shape_t = _SHAPES[number]
        centred = labs - labs.mean()
        score = 0.5 * age + 0.4 * centred if shape_e == "lin" else 0.6 * (age**2 - 1) - 0.5 * centred * (age > 0)
        e = 1 / (1 + np.exp(-score))
        if shape_t == "nlin":
            mean0 = mean0 + 1.5 * np.sin(2 * age) + 0.5 * labs * (age > 0)
            mean1 = mean1 + 1.5 * np.sin(2 * age) - 0.5 * np.abs(age)
            censoring = censoring + 2 * np.tanh(age) - 0.5 * labs
    W = rng.binomial(1, e).astype(np.int64)
    mean0, mean1 = np.maximum(mean0, 1.0), np.maximum(mean1, 1.0)
    T0, T1 = rng.poisson(mean0).astype(float), rng.poisson(mean1).astype(float)
    C = rng.poisson(np.maximum(censoring, 1.0)).astype(float)
    T = np.where(W == 1, T1, T0)

    def exact(estimand: Estimand) -> Array:
        from assay.learning.survhte.synthetic import poisson

        return poisson(mean1, estimand) - poisson(mean0, estimand)

    return SurvivalData(
        MIMIC_NAMES[number], X, W, np.minimum(T, C), T <= C, features, T0, T1, C, e, exact, mean0 + mean1,
        split_seed=ACTG_SEED, facts={"config": MIMIC_NAMES[number], "scenario": "semi"},
    )  # fmt: skip


# -- what there is ----------------------------------------------------------------------------------------------------


def available(root: Path | None, users: Data | None) -> list[tuple[str, Callable[[], SurvivalData], Data]]:
    """(name, loader, provenance) of each semi-synthetic data set; the user's data before stand-ins."""
    from assay.learning.survhte import clinical
    from assay.learning.survhte.sources import cached

    shipped = clinical.sample_data()
    published, whole, mimic = (find(root, stem) for stem in ("actg_syn", "actg175", "mimic"))
    if published is not None and users is not None:
        actg = (partial(published_actg_syn, published), users)
    elif whole is not None and users is not None:
        actg = (partial(_actg_syn_of, whole), users)
    else:
        made = replace(shipped, kind="stand-in", source=f"{shipped.source}; ten of 23 covariates left out of ACTG-syn")
        actg = (_actg_syn_of_sample, made)
    found = [("actg_syn", partial(cached, actg[0]), actg[1])]
    if mimic is not None and users is not None:
        admissions, origin = partial(_admissions_of, mimic), users
    else:
        admissions = stand_in_admissions
        origin = Data(
            "stand-in", "made-up admissions, instead of MIMIC-IV 2.0", "Apache-2.0", f"survhte-admissions-{ACTG_SEED}"
        )
    for number, name in MIMIC_NAMES.items():
        found.append((name, partial(cached, partial(_mimic, number, admissions)), origin))
    return found


def _mimic(number: int, admissions: Callable[[], tuple[Array, list[str]]]) -> SurvivalData:
    return make_mimic_syn(number, *admissions())


def _actg_syn_of(path: Path) -> SurvivalData:
    with guarded(path, "the covariates of ACTG 175"):
        return make_actg_syn(read_table(path))


def _actg_syn_of_sample() -> SurvivalData:
    from assay.learning.survhte import clinical

    return make_actg_syn(read_table(clinical.SAMPLE), stand_in=True)


def _admissions_of(path: Path) -> tuple[Array, list[str]]:
    frame = read_table(path)
    columns = [c for c in frame.columns if c not in ("id", "idx", "subject_id", "hadm_id", "stay_id")]
    return numbers(frame, columns, str(path)), columns


def published_actg_syn(path: Path) -> SurvivalData:
    """The published file actg_syn.csv, with the splits beside it (idx_split*.csv) where they are."""
    data = read_published(path, "actg_syn", list(ACTG_COEFFICIENTS))
    beta = np.array(list(ACTG_COEFFICIENTS.values()))

    def exact(estimand: Estimand) -> Array:
        return _gompertz(data.X @ beta[:, 0], estimand) - _gompertz(data.X @ beta[:, 1], estimand)

    return replace(data, exact=exact, split_seed=ACTG_SEED)
