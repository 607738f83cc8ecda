"""Completing right-censored times: Kaplan-Meier with a linear tail, and rules that replace what was not seen.

`pseudo_obs`, `margin` and `ipcw_t` are the benchmark's three; inverse-probability weights proper stand beside them. All
are exact; none costs more than a sort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError, UsageError, unknown_name

Array = NDArray[np.float64]
Base = tuple[ArrayLike, ArrayLike]
_FLOOR = 1e-10
_FOLD_SEED = 42


@dataclass(frozen=True, slots=True)
class KaplanMeier:
    """Survival at all distinct times, events or not; shapes (k,).

    Its mean is the area under straight lines between these points, begun at (0, 1) and, where the last value is above
    zero, continued along the line from (0, 1) through the last point until it is zero.
    """

    times: Array
    survival: Array
    at_risk: Array
    deaths: Array

    @classmethod
    def fit(cls, time: ArrayLike, event: ArrayLike) -> KaplanMeier:
        """From times and whether each ended in an event.

        Raises
        ------
        DataError
            No rows; times that are missing or negative; events other than 0 and 1.
        """
        time, event = followed(time, event)
        if len(time) == 0:
            raise DataError("A survival curve needs at least one row.")
        times, inverse, counts = np.unique(time, return_inverse=True, return_counts=True)
        deaths = np.bincount(inverse, weights=event, minlength=len(times))
        at_risk = (counts[::-1].cumsum()[::-1]).astype(float)
        return cls(times, np.asarray(np.cumprod(1 - deaths / at_risk), float), at_risk, np.asarray(deaths, float))

    @property
    def linear_zero(self) -> float:
        """Time at which the continued line is zero."""
        last, at = float(self.survival[-1]), float(self.times[-1])
        if last >= 1:
            raise DataError("No event was observed, so the survival curve has no end; give rows with events.")
        return at / (1 - last)

    @property
    def mean(self) -> float:
        """Area under the lines, tail included; in units of time."""
        return float(self._areas_to_end()[0])

    def step(self, t: Array) -> Array:
        """Survival at ``t`` as the usual step function; on the continued line beyond the last time."""
        t = np.asarray(t, float)
        found = np.concatenate(([1.0], self.survival))[np.searchsorted(self.times, t, side="right")]
        beyond = t > self.times[-1]
        if beyond.any():
            found = np.where(beyond, np.maximum(1 - t / self.linear_zero, 0.0), found)
        return found

    def _areas_to_end(self) -> Array:
        """Area from 0 and from each time to the end of the tail; shape (k + 1,)."""
        times, values = _with_origin(self.times, self.survival)
        parts = np.diff(times) * (values[1:] + values[:-1]) / 2
        tail = (self.linear_zero - times[-1]) * values[-1] / 2
        return np.append(parts[::-1].cumsum()[::-1], 0.0) + tail

    def mean_beyond(self, t: Array) -> Array:
        """Expected time of somebody alive at ``t``: t + area beyond t / survival at t; shape of ``t``.

        Past the last time the curve is the continued line, so that the guess is half way to its zero; past the zero it
        is ``t`` itself.
        """
        t = np.asarray(t, float)
        areas = self._areas_to_end()
        here = self.step(t)
        after = np.searchsorted(self.times, t, side="right")
        at = np.minimum(after, len(self.times) - 1)
        inside = areas[at + 1] + (self.times[at] - t) * (here + self.survival[at]) / 2
        past = np.maximum(self.linear_zero - t, 0.0) * here / 2
        area = np.where(after < len(self.times), inside, past)
        return t + area / np.maximum(here, _FLOOR)


def followed(time: ArrayLike, event: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """Times and events as arrays of shape (n,), checked.

    Raises
    ------
    DataError
        Shapes that differ; a time that is missing, infinite or negative; an event other than 0 and 1.
    """
    time, event = np.asarray(time, float), np.asarray(event)
    if time.ndim != 1 or time.shape != event.shape:
        raise DataError(f"Times and events have the shapes {time.shape} and {event.shape}; both are (rows,).")
    bad = np.flatnonzero(~(np.isfinite(time) & (time >= 0)))
    if len(bad):
        raise DataError(f"Row {bad[0]} has the time {time[bad[0]]:g}; a time of follow-up is a number of at least 0.")
    if event.dtype != bool:
        other = np.flatnonzero(~np.isin(event, (0, 1)))
        if len(other):
            raise DataError(f"Row {other[0]} has the event {event[other[0]]}; it is 1 (seen) or 0 (censored).")
    return time, event.astype(bool)


def _with_origin(times: Array, survival: Array) -> tuple[Array, Array]:
    return np.concatenate(([0.0], times)), np.concatenate(([1.0], survival))


@dataclass(frozen=True, slots=True)
class _Support:
    """Curve reduced to times with an event, and the last time."""

    times: Array
    at_risk: Array
    deaths: Array

    @classmethod
    def of(cls, curve: KaplanMeier) -> _Support:
        keep = curve.deaths > 0
        keep[-1] = True
        return cls(curve.times[keep], curve.at_risk[keep], curve.deaths[keep])

    def mean_with(self, c: Array, change: int) -> Array:
        """Mean of the curve when one censored row at each ``c`` is added (+1) or removed (-1); shape of ``c``.

        Only factors at times up to ``c`` change, so the curve is the changed one before and a multiple of the old one
        after: two cumulative products and two cumulative areas serve all rows.
        """
        t, r, d = self.times, self.at_risk, self.deaths
        old = np.asarray(np.cumprod(1 - d / r), float)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = np.cumprod(1 - d / (r + change))
        times, old = _with_origin(t, old)
        new = np.concatenate(([1.0], new))
        steps = np.diff(times)
        before = np.concatenate(([0.0], np.cumsum(steps * (new[1:] + new[:-1]) / 2)))
        after = np.append((steps * (old[1:] + old[:-1]) / 2)[::-1].cumsum()[::-1], 0.0)
        k = np.searchsorted(t, c, side="right")
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(old[k] > 0, new[k] / old[k], 0.0)
        last = np.where(k == len(t), new[k], factor * old[-1])
        end = np.full(len(c), t[-1])
        area = before[k] + factor * after[k]
        if change > 0:
            beyond = c > t[-1]
            area = np.where(beyond, area + (c - t[-1]) * last, area)
            end = np.where(beyond, c, end)
        if np.any(last >= 1):
            raise DataError("No event was observed, so the survival curve has no end; give rows with events.")
        return area + (end / (1 - last) - end) * last / 2


def pseudo_obs(time: ArrayLike, event: ArrayLike, base: Base | None = None) -> Array:
    """Pseudo-observations of the mean in place of censored times; shape (n,).

    A censored row counts n times the mean with it less n - 1 times the mean without it, at least its censoring time.
    Leaving out a row costs O(1) after one sort, where rebuilding the curve each time costs O(n).

    Parameters
    ----------
    time, event
        Rows to complete.
    base
        Times and events of the training rows when the rows are new; None = each row against the others.
    """
    time, event = np.asarray(time, float), np.asarray(event, bool)
    done = time.copy()
    hidden = np.flatnonzero(~event)
    if not len(hidden):
        return done
    c = time[hidden]
    if base is not None:
        curve = KaplanMeier.fit(*base)
        n = len(np.asarray(base[0])) + 1
        alone = curve_mean(curve)
        value = n * _Support.of(curve).mean_with(c, +1) - (n - 1) * alone
    else:
        n = len(time)
        curve = KaplanMeier.fit(time, event)
        end = curve.times[-1]
        # The only row at the last time: without it the curve is shorter, and is built anew.
        single = (c == end) & (curve.at_risk[-1] == 1)
        value = np.empty(len(c))
        rest = ~single
        if rest.any():
            value[rest] = n * curve_mean(curve) - (n - 1) * _Support.of(curve).mean_with(c[rest], -1)
        for at in np.flatnonzero(single):
            others = np.arange(n) != hidden[at]
            value[at] = pseudo_obs(c[at : at + 1], np.zeros(1), (time[others], event[others].astype(float)))[0]
    done[hidden] = np.maximum(value, c)
    return done


def curve_mean(curve: KaplanMeier) -> float:
    """Mean of the curve reduced to event times and the last time."""
    support = _Support.of(curve)
    survival = np.asarray(np.cumprod(1 - support.deaths / support.at_risk), float)
    reduced = KaplanMeier(support.times, survival, support.at_risk,
                          support.deaths)  # fmt: skip
    return reduced.mean


def margin(time: ArrayLike, event: ArrayLike, base: Base | None = None) -> Array:
    """Censoring time plus the mean residual life beyond it; shape (n,).

    Training rows are completed by curves that leave out their fold of censored rows (five folds, fixed shuffle); one
    censored later than all of its curve's rows keeps its time. New rows there get half the way to the curve's zero.
    """
    from sklearn.model_selection import KFold

    time, event = np.asarray(time, float), np.asarray(event, bool)
    done = time.copy()
    hidden = np.flatnonzero(~event)
    if not len(hidden):
        return done
    if base is not None:
        done[hidden] = KaplanMeier.fit(*base).mean_beyond(time[hidden])
        return done
    if len(hidden) == 1:
        folds = [np.array([0])]
    else:
        splitter = KFold(min(5, len(hidden)), shuffle=True, random_state=_FOLD_SEED)
        folds = [test for _, test in splitter.split(hidden)]
    for fold in folds:
        rows = hidden[fold]
        keep = np.ones(len(time), bool)
        keep[rows] = False
        if not keep.any():
            raise DataError("No event was observed, so the survival curve has no end; give rows with events.")
        guess = KaplanMeier.fit(time[keep], event[keep]).mean_beyond(time[rows])
        done[rows] = np.where(time[rows] > time[keep].max(), time[rows], guess)
    return done


def ipcw_t(time: ArrayLike, event: ArrayLike, base: Base | None = None) -> Array:
    """Mean of the observed event times that are later; shape (n,). The benchmark's name; no weights are involved."""
    time, event = np.asarray(time, float), np.asarray(event, bool)
    train_time, train_event = (time, event) if base is None else (np.asarray(base[0], float), np.asarray(base[1], bool))
    seen = np.sort(train_time[train_event])
    later = np.append(seen[::-1].cumsum()[::-1], 0.0)
    at = np.searchsorted(seen, time, side="right")
    count = len(seen) - at
    largest = train_time.max() if len(train_time) else np.nan
    guess = np.where(count > 0, later[at] / np.maximum(count, 1), largest)
    return np.where(event, time, np.maximum(guess, time))


IMPUTERS: dict[str, Callable[..., Array]] = {
    "pseudo_obs": pseudo_obs, "margin": margin, "ipcw_t": ipcw_t, 
}  # fmt: skip


def impute(name: str, time: ArrayLike, event: ArrayLike, base: Base | None = None) -> Array:
    """Completed times by the imputer called ``name``; events are never changed.

    Raises
    ------
    UsageError
        No imputer of that name.
    DataError
        No event at all; times or events that are none.
    """
    if name not in IMPUTERS:
        raise unknown_name("imputer", name, IMPUTERS)
    time, event = followed(time, event)
    train = (time, event) if base is None else followed(*base)
    if not train[1].any():
        raise DataError("No event was observed: nothing says how long censored rows live; give rows with events.")
    return IMPUTERS[name](time, event, None if base is None else train)


def censoring_survival(time: ArrayLike, event: ArrayLike, at: ArrayLike) -> Array:
    """Kaplan-Meier estimate of P(C >= at), the chance to be still uncensored just before ``at``; shape of ``at``.

    Events at a time come before censorings at it.
    """
    times, inverse = np.unique(np.asarray(time, float), return_inverse=True)
    seen = np.asarray(event, float)
    total = np.bincount(inverse, minlength=len(times)).astype(float)
    deaths = np.bincount(inverse, weights=seen, minlength=len(times))
    at_risk = total[::-1].cumsum()[::-1] - deaths
    factor = 1 - np.divide(total - deaths, at_risk, out=np.zeros_like(total), where=at_risk > 0)
    curve = np.concatenate(([1.0], np.cumprod(factor)))
    return curve[np.searchsorted(times, np.asarray(at, float), side="left")]


def ipcw_weights(time: ArrayLike, event: ArrayLike, horizon: float | None = None) -> Array:
    """Inverse-probability-of-censoring weights: 1 / P(uncensored so far) where the outcome is known, else 0; (n,).

    Parameters
    ----------
    horizon
        What happens after it is not asked, so a row followed up to it is known; None = only events are.
    """
    time, seen = followed(time, event)
    if horizon is not None and horizon <= 0:
        raise UsageError(f"A horizon is a time above 0; got {horizon}.")
    until = time if horizon is None else np.minimum(time, horizon)
    known = seen if horizon is None else seen | (time >= horizon)
    return np.where(known, 1 / np.maximum(censoring_survival(time, seen, until), 1e-3), 0.0)
