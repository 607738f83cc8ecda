"""What estimating effects rests on, looked at before any model: balance, overlap, censoring that leaves something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from assay.core.table import Chart, Table
from assay.learning.survhte.imputation import censoring_survival

if TYPE_CHECKING:
    from assay.core.results import Runs
    from assay.learning.survhte.data import SurvivalData


def balance(data: SurvivalData) -> Table:
    """Standardised differences of covariates between the arms; above 0.1 in size is commonly called imbalance."""
    arms = [data.X[w == data.W] for w in (0, 1)]
    spread = np.sqrt((arms[0].var(axis=0) + arms[1].var(axis=0)) / 2)
    difference = arms[1].mean(axis=0) - arms[0].mean(axis=0)
    frame = pl.DataFrame(
        {
            "covariate": list(data.features),
            "treated": arms[1].mean(axis=0),
            "control": arms[0].mean(axis=0),
            "standardised_difference": np.divide(difference, spread, out=np.zeros_like(spread), where=spread > 0),
        }
    )
    beyond = int((frame["standardised_difference"].abs() > 0.1).sum())
    return Table(
        "balance", f"Covariates by arm, {data.name}", frame, [f"{beyond} of {frame.height} differ by more than 0.1."],
        Chart("bar", x="standardised_difference", y="covariate"),
    )  # fmt: skip


def propensity_model(data: SurvivalData, seed: int = 0) -> dict[str, Any]:
    """Estimated propensity (logistic, five-fold) with its AUC and F1, and the share outside [.01, .99]."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score, roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = StratifiedKFold(min(5, int(np.bincount(data.W).min())), shuffle=True, random_state=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    e = np.asarray(cross_val_predict(model, data.X, data.W, cv=folds, method="predict_proba"), float)[:, 1]
    known = np.asarray(e if data.propensity is None else data.propensity, float)
    return {
        "estimated": e,
        "auc": float(roc_auc_score(data.W, e)),
        "f1": float(f1_score(data.W, e > 0.5)),
        "outside": float(np.mean((known < 0.01) | (known > 0.99))),
    }


def overlap(data: SurvivalData, *, bins: int = 20, seed: int = 0) -> Table:
    """Histogram of the propensity by arm, the true one where it is known: where one arm is missing, effects are
    extrapolated."""
    fitted = propensity_model(data, seed)
    e = fitted["estimated"] if data.propensity is None else data.propensity
    edges = np.linspace(0, 1, bins + 1)
    rows = [
        {"propensity": float((low + high) / 2), "arm": ("control", "treated")[w], "rows": int(count)}
        for w in (0, 1)
        for low, high, count in zip(edges, edges[1:], np.histogram(e[w == data.W], edges)[0])
    ]
    kind = "estimated" if data.propensity is None else "true"
    return Table(
        "overlap", f"Propensity ({kind}) by arm, {data.name}", pl.DataFrame(rows),
        [
            f"A logistic model finds the treated with AUC {fitted['auc']:.3f}, F1 {fitted['f1']:.3f}; "
            f"{fitted['outside']:.1%} of rows lie outside [.01, .99] and are clipped where propensities divide."
        ],
        Chart("bar", x="propensity", y="rows", color="arm"),
    )  # fmt: skip


def censoring_positivity(data: SurvivalData, *, points: int = 20) -> Table:
    """Chance of being uncensored along time, by arm: near zero, nothing is known of later times."""
    until = float(data.time.max())
    rows = []
    for w in (0, 1):
        arm = w == data.W
        for t in np.linspace(0, until, points):
            chance = float(censoring_survival(data.time[arm], data.event[arm], np.array([t]))[0])
            at_risk = int((data.time[arm] >= t).sum())
            rows.append({"time": float(t), "arm": ("control", "treated")[w], "uncensored": chance, "at_risk": at_risk})
    frame = pl.DataFrame(rows)
    thin = frame.filter(pl.col("uncensored") < 0.05)
    note = (
        f"Below 5 % from time {thin['time'].min():.3g} on: an unrestricted mean rests on extrapolation."
        if thin.height
        else "Nowhere below 5 %."
    )
    return Table(
        "censoring", f"Chance to be uncensored, {data.name} ({1 - data.event.mean():.1%} censored)", frame, [note],
        Chart("step", x="time", y="uncensored", color="arm"),
    )  # fmt: skip


def assumptions(runs: Runs, *, sample: str | None = None) -> list[Table]:
    """Balance, overlap and censoring of the data sets of a run: of ``sample``, or a line each."""
    from assay.core.errors import unknown_name
    from assay.core.registry import load_benchmark

    bench: Any = load_benchmark(runs[0].benchmark, **runs[0].info["options"])
    known = {source.name: source for source in bench.sources}
    if sample is not None:
        if sample not in known:
            raise unknown_name("data set", sample, known)
        data = known[sample].load()
        return [balance(data), overlap(data), censoring_positivity(data)]
    rows = []
    for name, source in known.items():
        data = source.load()
        fitted = propensity_model(data)
        rows.append(
            {
                "dataset": name,
                "rows": len(data),
                "treated": float(data.W.mean()),
                "censored": float(1 - data.event.mean()),
                "propensity_auc": fitted["auc"],
                "propensity_f1": fitted["f1"],
                "outside_overlap": fitted["outside"],
                "largest_difference": float(
                    balance(data).frame["standardised_difference"].abs().max()  # type: ignore[arg-type]
                ),
            }
        )
    return [Table("assumptions", "What the data sets ask of a method", pl.DataFrame(rows))]
