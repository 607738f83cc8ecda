"""One trial: labels are hidden, a copy of the estimator learns, the test rows tell how well."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.benchmark import Outcome
from assay.core.errors import DataError
from assay.learning.pu_bench import scoring
from assay.learning.pu_bench.data import Dataset, load_dataset
from assay.learning.pu_bench.generator import PUData, make_pu_dataset, positive_scores, resample_by_prevalence
from assay.learning.pu_bench.grid import Configuration
from assay.learning.pu_bench.shift import calibration_scores

if TYPE_CHECKING:
    from assay.core.context import Context


@lru_cache(maxsize=4)
def _scores(name: str, folder: str | None) -> NDArray[np.float64]:
    """Scores of the positives among all training rows: one logistic regression a data set, not one a trial."""
    data = load_dataset(name, folder)
    scores = np.full(len(data.y_train), np.nan)
    scores[data.y_train == 1] = positive_scores(data.x_train, data.y_train)
    return scores


def training_rows(
    data: Dataset, settings: Mapping[str, Any], *, clean: bool, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows to hide labels of, rows set aside with true classes), disjoint."""
    rows = np.arange(len(data.y_train))
    if settings["rows"] is not None and settings["rows"] < len(rows):
        rows = np.sort(rng.choice(rows, settings["rows"], replace=False))
    if settings["prevalence"] is not None:
        rows = rows[resample_by_prevalence(data.y_train[rows], settings["prevalence"], random_state=rng)]
    aside = np.empty(0, np.int64)
    if clean:
        parts = []
        for kind in (0, 1):
            members = rng.permutation(rows[data.y_train[rows] == kind])
            parts.append(members[: max(1, round(settings["clean_share"] * len(members)))])
        aside = np.concatenate(parts)
        rows = rows[~np.isin(rows, aside)]
    return rows, aside


def carry_out(
    system: Any, name: str, folder: str | None, how: Configuration, settings: Mapping[str, Any], ctx: Context
) -> Outcome:
    """Generate, fit, classify, score."""
    from sklearn.base import clone

    data = load_dataset(name, folder)
    model: Any = clone(system)
    supervision = getattr(model, "supervision", "pu")
    oracle = settings["selection"] == "f1"
    rows, aside = training_rows(data, settings, clean=oracle or supervision == "clean", rng=ctx.rng)
    scores = None
    if how.strategy not in ("scar", "all"):
        scores = _scores(name, folder)[rows]
        scores = scores[data.y_train[rows] == 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty set of labels is refused by the estimator, with a sentence
        pu = make_pu_dataset(
            data.x_train[rows], data.y_train[rows], scenario=how.scenario, c=how.c, strategy=how.strategy,
            mode=settings["mode"], scores=scores, random_state=ctx.rng,
        )  # fmt: skip
    made = pu
    if settings["calibrate"]:
        pu = pu.as_two_samples()
    told = {"unlabelled": pu.prior_u, "constructed": pu.prior_constructed, "estimated": None}[settings["prior"]]
    _configure(model, settings, how, told, ctx.seed)
    foreign = not hasattr(model, "supervision")
    tested = np.arange(len(data.y_test))
    if settings["test_prevalence"] is not None:
        tested = resample_by_prevalence(data.y_test, settings["test_prevalence"], random_state=ctx.rng)
    truth, x_test = data.y_test[tested], data.x_test[tested]
    x, x_test = (_flat(pu.X), _flat(x_test)) if foreign else (pu.X, x_test)
    given: dict[str, Any] = {}
    accepted = inspect.signature(model.fit).parameters
    if "source_index" in accepted:
        given["source_index"] = pu.source_index
    if len(aside) and "clean" in accepted:
        given["clean"] = (data.x_train[aside], data.y_train[aside])
    begun = time.perf_counter()
    if supervision == "true":
        # The oracle sees each row once, with its class.
        _, first = np.unique(pu.source_index, return_index=True)
        given.pop("source_index", None)
        model.fit(x[first], pu.y_true[first].astype(int), **given)
    else:
        model.fit(x, pu.s.astype(int), **given)
    seconds = time.perf_counter() - begun
    predicted = np.asarray(model.predict(x_test)) == 1
    ranked = ranking(model, x_test)
    if settings["rethreshold"] and (predicted.all() or not predicted.any()) and 0 < pu.prior_u < 1:
        predicted = ranked > scoring.prior_threshold(ranked, pu.prior_u)
    found = scoring.classification_scores(truth, predicted, ranked)
    measured: dict[str, float | None] = {**found, "fit_seconds": seconds}
    if hasattr(model, "predict_proba"):
        measured |= calibration_scores(truth, ranked)
    measured |= _proxies(model, _flat(made.X) if foreign else made.X, made, how.scenario)
    measured["seconds_to_best"] = getattr(model, "seconds_to_best_", seconds)
    measured["best_epoch"] = getattr(model, "best_epoch_", None)
    used = getattr(model, "prior_", None)
    known = used is not None and np.isfinite(used)
    measured["prior_error"] = float(used - pu.prior_u) if known and np.isfinite(pu.prior_u) else None  # type: ignore[operator]
    return Outcome(
        measured,
        output={
            **{k: _plain(v) for k, v in made.counts().items()},
            "n_test": len(truth),
            "n_test_pos": int((truth == 1).sum()),
            "prior_used": float(used) if known else None,  # type: ignore[arg-type]
        },
        groups={"supervision": supervision},
        rows=getattr(model, "history_", ()),
    )


def _configure(model: Any, settings: Mapping[str, Any], how: Configuration, prior: float | None, seed: int) -> None:
    known = model.get_params(deep=False)
    chosen: dict[str, Any] = {}
    if "random_state" in known:
        chosen["random_state"] = seed % 2**31
    if "prior" in known and known["prior"] is None and prior is not None:
        chosen["prior"] = prior
    if "selection" in known and settings["selection"] != "own":
        of = {"pa": f"pa_{how.scenario}", "pauc": "pauc", "f1": "f1", "last": "last"}[settings["selection"]]
        # The oracle learns from classes, of which there is no proxy: it has its own clean rows.
        oracle = getattr(model, "supervision", "pu") == "true"
        chosen["selection"] = "f1" if oracle and of != "last" else of
    model.set_params(**chosen)


def ranking(model: Any, x: NDArray) -> NDArray[np.float64]:
    """Scores of rows, larger is more positive."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(x), float)[:, 1]
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(x), float)
    raise DataError(
        f"{type(model).__name__} has neither predict_proba nor decision_function: its rows cannot be ranked."
    )


def _proxies(model: Any, x: NDArray, pu: PUData, scenario: str) -> dict[str, float | None]:
    says, scores = np.asarray(model.predict(x)) == 1, ranking(model, x)
    prior = pu.prior_u
    pa = scoring.proxy_accuracy_score(pu.s, says, prior, scenario) if 0 < prior < 1 else np.nan
    risk = scoring.zero_one_risk(pu.s, np.where(says, 1.0, -1.0), prior)
    found = {"pa": pa, "pauc": scoring.proxy_auc_score(pu.s, scores), "risk": risk}
    return {name: float(value) if np.isfinite(value) else None for name, value in found.items()}


def _flat(x: NDArray) -> NDArray:
    return x.reshape(len(x), -1)


def _plain(value: float) -> float | None:
    return None if value != value else float(value)
