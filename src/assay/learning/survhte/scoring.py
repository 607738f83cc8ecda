"""Scores as functions of arrays: errors of effects, areas under survival curves, concordance, Brier score."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError, UsageError

Array = NDArray[np.float64]


def effect_scores(predicted: ArrayLike, true: ArrayLike, population_ate: float | None = None) -> dict[str, float]:
    """Errors of estimated effects.

    Parameters
    ----------
    predicted, true
        Effects of the same rows, shape (m,).
    population_ate
        Average effect of the whole data set; None = leave out the bias against it.

    Returns
    -------
    dict
        ``mse``, ``rmse`` (precision in estimating heterogeneous effects, PEHE), ``ate`` (mean prediction),
        ``ate_bias_test`` against the same rows, ``ate_bias`` against the population.
    """
    a, b = np.asarray(predicted, float), np.asarray(true, float)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise DataError(f"Predicted and true effects have the shapes {a.shape} and {b.shape}; both are (rows,).")
    for values, what in ((a, "estimated"), (b, "true")):
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise DataError(f"The {what} effect of row {bad[0]} is not a finite number.")
    mse = float(np.mean((a - b) ** 2))
    found = {"mse": mse, "rmse": mse**0.5, "ate": float(a.mean()), "ate_bias_test": float(a.mean() - b.mean())}
    if population_ate is not None:
        found["ate_bias"] = float(a.mean()) - population_ate
    return found


def explained(mse: float, floor: float, variance: float) -> float:
    """Share of the explainable error that is removed: 1 = no error but noise, 0 = as good as the constant true mean.

    Parameters
    ----------
    mse
        Against individual effects.
    floor
        Their noise, Var(T(1) - T(0) | X).
    variance
        Of the conditional effects: what a constant leaves unexplained.
    """
    return 1 - (mse - floor) / variance if variance > 0 else float("nan")


def rmst(times: ArrayLike, survival: ArrayLike, horizon: float | None = None, *, rule: str = "step") -> Array:
    """Restricted mean survival time of curves on a grid; shape (n,), or a number for one curve.

    Parameters
    ----------
    times
        Increasing grid, shape (k,).
    survival
        Shape (k,) or (n, k).
    horizon
        None = the last grid time.
    rule
        ``step`` (exact area of the step function from S(0) = 1 on, carried past the grid), ``linear`` (straight lines
        from (0, 1), likewise carried) or ``published`` (trapezoid from the first grid time to the last one that is at
        most the horizon: leaves out the area before the grid).
    """
    t, s = _curves(times, survival)
    if horizon is not None and not horizon > 0:
        raise UsageError(f"A horizon is a time above 0; got {horizon!r}.")
    h = t[-1] if horizon is None else float(horizon)
    if rule == "published":
        keep = t <= h
        return np.asarray(np.trapezoid(s[..., keep], t[keep], axis=-1), float)
    if rule not in ("step", "linear"):
        raise UsageError(f"A rule of area is step, linear or published; got {rule!r}.")
    knots = np.concatenate(([0.0], t, [max(h, t[-1])]))
    values = np.concatenate([np.ones((*s.shape[:-1], 1)), s, s[..., -1:]], axis=-1)
    clipped = np.minimum(knots, h)
    width = np.diff(clipped)
    if rule == "step":
        return values[..., :-1] @ width
    full = np.diff(knots)
    share = np.divide(width, full, out=np.zeros_like(width), where=full > 0)
    right = values[..., :-1] + (values[..., 1:] - values[..., :-1]) * share
    return (values[..., :-1] + right) @ width / 2


def _curves(times: ArrayLike, survival: ArrayLike) -> tuple[Array, Array]:
    """Grid (k,) and curves (..., k), checked."""
    t, s = np.asarray(times, float), np.asarray(survival, float)
    if t.ndim != 1 or not len(t) or not s.ndim or s.shape[-1] != len(t):
        raise DataError(f"The grid has the shape {t.shape}, the curves {s.shape}; the last axis must be the grid.")
    falls = np.flatnonzero(~(np.diff(t) > 0))
    if len(falls) or not (np.isfinite(t).all() and t[0] >= 0):
        raise DataError(
            f"A grid of times is not negative and rises; point {falls[0] + 1 if len(falls) else 0} does not."
        )
    if np.isnan(s).any():
        raise DataError("A survival curve holds a value that is no number.")
    return t, s


def survival_at(times: ArrayLike, survival: ArrayLike, t: float, *, linear: bool = False) -> Array:
    """Curves read at one time: as step functions with S(0) = 1, or by straight lines; shape (n,)."""
    given, s = _curves(times, survival)
    grid = np.concatenate(([0.0], given))
    values = np.concatenate([np.ones((*s.shape[:-1], 1)), s], axis=-1)
    at = int(np.searchsorted(grid, t, side="right")) - 1
    if not linear or at == len(grid) - 1:
        return values[..., at]
    share = (t - grid[at]) / (grid[at + 1] - grid[at])
    return values[..., at] * (1 - share) + values[..., at + 1] * share


def concordance_td(
    survival: ArrayLike, index: ArrayLike, time: ArrayLike, event: ArrayLike, *, ties: float = 0.0
) -> float:
    """Time-dependent concordance after Antolini et al. (2005).

    Pairs: i with an event and t_i < t_j, or t_i = t_j with j censored. Concordant: S_i < S_j, both read at i's place on
    the grid.

    Parameters
    ----------
    survival
        Curves, shape (n, k).
    index
        Grid place of each row's time, shape (n,).
    ties
        What equal curves count as: 0 as the benchmark has it, 0.5 in most libraries.

    Returns
    -------
    float
        NaN where no pair can be compared.
    """
    s, index = np.asarray(survival, float), np.asarray(index, int)
    time, event = np.asarray(time, float), np.asarray(event, bool)
    if s.ndim != 2 or not len(s) == len(index) == len(time) == len(event):
        raise DataError(
            f"Curves, places, times and events have the shapes {s.shape}, {index.shape}, {time.shape} and "
            f"{event.shape}; the rows must be the same."
        )
    if not (np.isfinite(time).all() and np.isfinite(s).all()):
        raise DataError("A time or a survival curve holds a value that is no number.")
    if len(index) and (index.min() < 0 or index.max() >= s.shape[1]):
        raise DataError(f"Places on the grid run from 0 to {s.shape[1] - 1}; got {index.min()} to {index.max()}.")
    # Sorted by time, events first: everything behind the last event of a time is comparable with that time's events.
    order = np.lexsort((~event, time))
    s, index, time, event = s[order], index[order], time[order], event[order]
    places = np.flatnonzero(event)
    # First row that is comparable with each event: past all events of its time.
    start = np.searchsorted(time, time[places], side="left")
    start += np.searchsorted(time[places], time[places], side="right")
    start -= np.searchsorted(time[places], time[places], side="left")
    columns = np.ascontiguousarray(s.T)
    pairs = good = equal = 0
    for i, first in zip(places, start, strict=True):
        others = columns[index[i], first:]
        mine = columns[index[i], i]
        pairs += len(others)
        good += int(np.count_nonzero(mine < others))
        if ties:
            equal += int(np.count_nonzero(mine == others))
    return (good + ties * equal) / pairs if pairs else float("nan")


def grid_index(times: ArrayLike, time: ArrayLike) -> NDArray[np.int64]:
    """Place of each time on the grid: the first grid point that is not earlier, or the last one; shape (n,)."""
    grid = np.asarray(times, float)
    return np.minimum(np.searchsorted(grid, np.asarray(time, float), side="left"), len(grid) - 1)


def integrated_brier(
    train: tuple[ArrayLike, ArrayLike], test: tuple[ArrayLike, ArrayLike], times: ArrayLike, survival: ArrayLike
) -> float:
    """Integrated Brier score (scikit-survival) on the grid points strictly inside the follow-up of the test rows.

    Parameters
    ----------
    train, test
        (time, event) of each.
    times, survival
        Grid (k,) and curves of the test rows (n, k).

    Returns
    -------
    float
        NaN where fewer than two grid points lie inside.

    Raises
    ------
    DataError
        scikit-survival refuses: test rows followed longer than training rows, or all of those censored.
    """
    from sksurv.metrics import integrated_brier_score

    from assay.learning.survhte.base import surv

    grid, s = np.asarray(times, float), np.asarray(survival, float)
    time = np.asarray(test[0], float)
    inside = (grid > time.min()) & (grid < time.max())
    if inside.sum() < 2:
        return float("nan")
    try:
        found = integrated_brier_score(surv(train[1], train[0]), surv(test[1], test[0]), s[:, inside], grid[inside])
    except ValueError as error:
        # scikit-survival refuses test rows beyond the training follow-up, and censoring curves that reach 0.
        raise DataError(f"The integrated Brier score cannot be formed: {str(error).rstrip('.')}.") from None
    return float(found)


def policy_value(effect: ArrayLike, true: ArrayLike) -> float:
    """Mean gain over treating nobody when everybody with a positive estimated effect is treated."""
    effect, true = np.asarray(effect, float), np.asarray(true, float)
    return float(np.mean(np.where(effect > 0, true, 0.0)))


def autoc(effect: ArrayLike, true: ArrayLike) -> float:
    """Area under the targeting curve: mean over shares q of (mean true effect of the q rows ranked highest - the mean).

    Yadlowsky et al. (2021). Ties keep the order of the rows.
    """
    effect, true = np.asarray(effect, float), np.asarray(true, float)
    ranked = true[np.argsort(-effect, kind="stable")]
    return float(np.mean(np.cumsum(ranked) / np.arange(1, len(ranked) + 1)) - ranked.mean())


def qini(effect: ArrayLike, true: ArrayLike) -> float:
    """Area between the curve of gains when the rows ranked highest are treated and that of treating at random.

    Gains are means over all rows, shares of the treated run from 0 to 1 (Radcliffe 2007); ties keep the order of the
    rows.
    """
    effect, true = np.asarray(effect, float), np.asarray(true, float)
    gains = np.concatenate(([0.0], np.cumsum(true[np.argsort(-effect, kind="stable")]))) / len(true)
    return float(np.trapezoid(gains, dx=1 / len(true)) - gains[-1] / 2)
