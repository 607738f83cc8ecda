"""One trial: an estimator on one split of one data set, and everything that is measured of it."""

from __future__ import annotations

import copy
import inspect
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.benchmark import Outcome
from assay.core.errors import DataError, UsageError
from assay.learning.survhte import scoring
from assay.learning.survhte.base import OVERLAP, bootstrap_mean, surv
from assay.learning.survhte.data import SurvivalData
from assay.learning.survhte.protocol import Estimand
from assay.learning.survhte.unadjusted import km_difference

if TYPE_CHECKING:
    from assay.core.context import Context

Array = NDArray[np.float64]

SCORES = (
    "mse", "rmse", "mse_exact", "rmse_exact", "rmse_val", "explained", "noise_floor", "ate", "ate_true", "ate_bias",
    "ate_bias_test", "ate_low", "ate_high", "covered", "policy_value", "autoc", "ate_gap_to_km", "rmse_to_reference",
    "imputation_mae", "outcome_mae", "outcome_r2", "propensity_auc", "propensity_f1", "propensity_clipped",
    "concordance_td", "integrated_brier", "curve_rmse", "interval_coverage", "interval_width", "qini",
    "fit_seconds", "failed",
)  # fmt: skip
_FAILURES = (DataError, ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError)


def measure(
    system: Any, data: SurvivalData, sizes: tuple[int, int, int] | None, estimand_name: str, ctx: Context, *,
    refits: int = 0,
) -> Outcome:  # fmt: skip
    """Fit, predict, compare.

    A method that cannot be fitted to a data set, or gives numbers that are none, has failed: an outcome with the reason
    in the group ``failure``, ranked worst by the analyses. Anything else that goes wrong is an error of the trial.
    """
    data = data.version(ctx.attempt)
    train, val, test = data.split(ctx.attempt, sizes)
    estimand = data.estimand(estimand_name, train)
    seed = ctx.seed % 2**31
    estimator = prepared(system, estimand, seed, plain=estimand_name == "rmst")
    y = surv(data.event[train], data.time[train])
    begun = time.perf_counter()
    try:
        estimator.fit(data.X[train], data.W[train], y)
        taken = time.perf_counter() - begun
        effects = predicted(estimator, data, test)
        on_val = predicted(estimator, data, val)
        rng = np.random.default_rng(seed)
        if refits:
            low, high = refitted_mean(estimator, data, train, test, refits, rng)
        else:
            low, high = bootstrap_mean(effects, rng)
    except _FAILURES as error:
        return _failed(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}")
    if not (np.all(np.isfinite(effects)) and np.all(np.isfinite(on_val))):
        return _failed("an estimated effect is not a finite number")
    scores: dict[str, float | None] = dict.fromkeys(SCORES)
    scores |= {"ate": float(effects.mean()), "ate_low": low, "ate_high": high, "fit_seconds": taken, "failed": 0.0}
    scores |= _against_truth(data, estimand, effects, on_val, test, val, (low, high))
    scores |= _helpers(estimator, data, estimand, train, test)
    if data.reference is not None:
        scores["rmse_to_reference"] = scoring.effect_scores(effects, data.reference[test])["rmse"]
    if data.T0 is None:
        unadjusted = km_difference(data.W, data.time, data.event, estimand.kind, estimand.horizon)
        scores["ate_gap_to_km"] = float(effects.mean()) - unadjusted
    np.save(ctx.artifacts / "effects.npy", np.column_stack([test, effects]))
    return Outcome(
        {name: None if value is None or math.isnan(value) else value for name, value in scores.items()},
        output="effects.npy",
        groups={"failure": "none"},
    )


def prepared(system: Any, estimand: Estimand, seed: int, *, plain: bool) -> Any:
    """A fresh copy of the system, told what to estimate.

    Parameters
    ----------
    plain
        The mean time is asked for. Data sets with an end of their own hold times up to it, so there a system that knows
        no horizon estimates the same.

    Raises
    ------
    UsageError
        It has no parameter for an estimand other than the mean time.
    """
    if not hasattr(system, "get_params"):
        if not plain:
            raise UsageError(
                f"{type(system).__name__} has no parameters estimand and horizon: it can only be asked for "
                "-o estimand=rmst."
            )
        return copy.deepcopy(system)
    from sklearn.base import clone

    fresh: Any = clone(system)
    known = fresh.get_params(deep=False)
    wanted = {"estimand": estimand.kind, "horizon": estimand.horizon, "random_state": seed}
    missing = [name for name in ("estimand", "horizon") if name not in known]
    if missing and not plain:
        raise UsageError(
            f"{type(system).__name__} has no parameter {missing[0]!r}, so it cannot be asked for {estimand}."
        )
    return fresh.set_params(**{name: value for name, value in wanted.items() if name in known})


def predicted(estimator: Any, data: SurvivalData, rows: NDArray[np.int64]) -> Array:
    """Effects of rows; a method that takes their treatment is handed it."""
    takes = "W" in inspect.signature(estimator.effect).parameters
    found = estimator.effect(data.X[rows], W=data.W[rows]) if takes else estimator.effect(data.X[rows])
    found = np.asarray(found, float).reshape(-1)
    if len(found) != len(rows):
        raise DataError(f"effect() gave {len(found)} numbers for {len(rows)} rows.")
    return found


def refitted_mean(
    estimator: Any, data: SurvivalData, train: NDArray[np.int64], test: NDArray[np.int64], refits: int,
    rng: np.random.Generator,
) -> tuple[float, float]:  # fmt: skip
    """Percentile interval (95 %) of the mean effect of tested rows over fits to resampled training rows."""
    means = []
    for _ in range(refits):
        rows = train[rng.integers(0, len(train), len(train))]
        again = copy.deepcopy(estimator)
        longest = float(data.time[rows].max())
        # A resample without the row followed longest ends a little earlier.
        if (getattr(again, "horizon", None) or 0) > longest:
            again.set_params(horizon=longest)
        again.fit(data.X[rows], data.W[rows], surv(data.event[rows], data.time[rows]))
        means.append(float(predicted(again, data, test).mean()))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _failed(reason: str) -> Outcome:
    return Outcome({**dict.fromkeys(SCORES), "failed": 1.0}, groups={"failure": reason[:200]})


def _against_truth(
    data: SurvivalData, estimand: Estimand, effects: Array, on_val: Array, test: NDArray[np.int64],
    val: NDArray[np.int64], interval: tuple[float, float],
) -> dict[str, float | None]:  # fmt: skip
    true = data.effects(estimand)
    if true is None:
        return {}
    population = float(true.mean())
    found = scoring.effect_scores(effects, true[test], population)
    scores: dict[str, float | None] = {name: found[name] for name in ("mse", "rmse", "ate_bias", "ate_bias_test")}
    scores["ate_true"] = population
    scores["rmse_val"] = scoring.effect_scores(on_val, true[val])["rmse"]
    scores["covered"] = float(interval[0] <= population <= interval[1])
    scores["policy_value"] = scoring.policy_value(effects, true[test])
    scores["autoc"] = scoring.autoc(effects, true[test])
    scores["qini"] = scoring.qini(effects, true[test])
    if data.exact is None:
        return scores
    exact = data.exact(estimand)[test]
    against = scoring.effect_scores(effects, exact)
    scores |= {"mse_exact": against["mse"], "rmse_exact": against["rmse"]}
    variance = float(exact.var())
    if variance > 0:
        scores["explained"] = scoring.explained(against["mse"], 0.0, variance)
    if data.noise is not None and estimand == Estimand():
        scores["noise_floor"] = float(data.noise[test].mean())
    return scores


def _helpers(
    estimator: Any, data: SurvivalData, estimand: Estimand, train: NDArray[np.int64], test: NDArray[np.int64]
) -> dict[str, float | None]:
    """How good the parts are: imputed outcomes against true ones, curves against what was observed."""
    scores: dict[str, float | None] = {}
    completed = getattr(estimator, "outcome_", None)
    hidden = ~data.event[train]
    if completed is not None and data.T0 is not None and hidden.any():
        true = estimand.of(data.event_times[train])
        scores["imputation_mae"] = float(np.mean(np.abs(completed - true)[hidden]))
    scores |= _base_learners(estimator, data, estimand, test) | _intervals(estimator, data, estimand, test)
    if not hasattr(estimator, "predict_survival_function"):
        return scores
    scores["curve_rmse"] = _curve_error(estimator, data, test)
    grid, curves = factual_curves(estimator, data.X[test], data.W[test])
    followed = (data.time[test], data.event[test])
    scores["concordance_td"] = scoring.concordance_td(curves, scoring.grid_index(grid, followed[0]), *followed)
    try:
        scores["integrated_brier"] = scoring.integrated_brier(
            (data.time[train], data.event[train]), followed, grid, curves
        )
    except DataError:
        scores["integrated_brier"] = None
    return scores


_TIMES = 20


def _curve_error(estimator: Any, data: SurvivalData, test: NDArray[np.int64]) -> float | None:
    """Error of the effect along time: root mean square, over tested rows and event-time quantiles, of the difference
    of survival curves less the exact one."""
    if data.exact is None:
        return None
    times = np.unique(np.quantile(data.time[data.event], np.linspace(0.05, 0.95, _TIMES)))
    times = times[times > 0]
    found = []
    for w in (1, 0):
        grid, curves = estimator.predict_survival_function(data.X[test], w)
        at = np.searchsorted(grid, times, side="right")
        found.append(np.column_stack([np.ones(len(curves)), curves])[:, at])
    exact = np.column_stack([data.exact(Estimand("survival", float(t)))[test] for t in times])
    return float(np.sqrt(np.mean((found[0] - found[1] - exact) ** 2)))


def _base_learners(
    estimator: Any, data: SurvivalData, estimand: Estimand, test: NDArray[np.int64]
) -> dict[str, float | None]:
    """Outcomes and treatments of tested rows as the parts of the method predict them."""
    from sklearn.metrics import f1_score, mean_absolute_error, r2_score, roc_auc_score

    scores: dict[str, float | None] = {}
    X, W = data.X[test], data.W[test]
    if hasattr(estimator, "predict_outcome") and data.T0 is not None:
        found = estimator.predict_outcome(X, W)
        if found is not None:
            true = estimand.of(data.event_times[test])
            scores |= {
                "outcome_mae": float(mean_absolute_error(true, found)),
                "outcome_r2": float(r2_score(true, found)),
            }
    if hasattr(estimator, "clipped_"):
        scores["propensity_clipped"] = estimator.clipped_
    if hasattr(estimator, "predict_propensity"):
        e = estimator.predict_propensity(X)
        if e is not None and 0 < W.mean() < 1:
            low, high = OVERLAP
            scores |= {
                "propensity_auc": float(roc_auc_score(W, e)),
                "propensity_f1": float(f1_score(W, e > 0.5, zero_division=0)),  # pyright: ignore[reportArgumentType]
                "propensity_clipped": float(np.mean((e < low) | (e > high))),
            }
    return scores


def _intervals(
    estimator: Any, data: SurvivalData, estimand: Estimand, test: NDArray[np.int64]
) -> dict[str, float | None]:
    """Share of tested rows whose exact effect lies in the method's own 95 % interval, and the mean width."""
    found = estimator.effect_interval(data.X[test]) if hasattr(estimator, "effect_interval") else None
    if found is None:
        return {}
    low, high = found
    scores: dict[str, float | None] = {"interval_width": float(np.mean(high - low))}
    if data.exact is not None:
        exact = data.exact(estimand)[test]
        scores["interval_coverage"] = float(np.mean((low <= exact) & (exact <= high)))
    return scores


def factual_curves(estimator: Any, X: Array, W: NDArray[np.int64]) -> tuple[Array, Array]:
    """Curves of rows under their own arm, on the union of the arms' grids; shapes (k,) and (n, k)."""
    arms = [w for w in (0, 1) if np.any(w == W)]
    found = {w: estimator.predict_survival_function(X[w == W], w) for w in arms}
    grid = np.unique(np.concatenate([times for times, _ in found.values()]))
    curves = np.empty((len(X), len(grid)))
    for w, (times, values) in found.items():
        at = np.searchsorted(times, grid, side="right")
        curves[w == W] = np.column_stack([np.ones(len(values)), values])[:, at]
    return grid, curves
