"""Left-packing: from the sparse array to dense values and time stamps, in O(nnz log nnz) and without compiling."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from assay.core.errors import DataError, UsageError
from assay.learning.irregular.array import Array, IrregularArray

SECONDS = 1e-9
_GUARD = 1e-8


def to_dense(
    array: IrregularArray,
    *,
    ts_level: bool = True,
    reset_time_index: bool = True,
    index_scale: float | None = None,
    absolute_time: bool = True,
    normalize_time: bool | Literal["exact"] = False,
    concatenate_time: bool = False,
    max_gb: float = 8.0,
) -> tuple[Array, Array]:
    """Values and their times, packed to the left.

    Parameters
    ----------
    ts_level
        Rank time stamps over all signals of a series (signals stay aligned); False ranks within each signal.
    reset_time_index
        False keeps the axis of all time stamps.
    index_scale
        Factor of the times; None = 1e-9 for dates (seconds), 1 for numbers.
    absolute_time
        False subtracts the first stamp of each series (of each signal where ``ts_level`` is False).
    normalize_time
        True scales each series (or signal, as above) to [0, 1] as published: by its range + 1e-8 times the mean of all
        times; ``exact`` divides by the range. Where there is none, times are 0.
    concatenate_time
        Appends the times as last channel.
    max_gb
        Refuse a result that is larger.

    Returns
    -------
    X
        float64 [n, channels, T], NaN where nothing is.
    T
        float64 [n, 1, T], [n, channels, T] by signal, [1, 1, T] without reset.
    """
    n, channels, all_times = array.shape
    stamps = time_numbers(array.time_id, index_scale)
    if reset_time_index:
        rank, length = ranks(array, ts_level)
    else:
        rank, length = array.coords[2], all_times
    need = n * channels * length * 8 / 1e9
    if need > max_gb:
        raise DataError(
            f"The dense array would hold {n} x {channels} x {length} values, {need:.3g} GB, more than {max_gb:g} GB; "
            "select fewer series or signals, or raise max_gb."
        )
    X = np.full((n, channels, length), np.nan)
    X[array.coords[0], array.coords[1], rank] = array.data
    if not reset_time_index:
        T = stamps.reshape(1, 1, -1).copy()
    else:
        T = np.full((n, 1 if ts_level else channels, length), np.nan)
        T[array.coords[0], 0 if ts_level else array.coords[1], rank] = stamps[array.coords[2]]
    T = _scaled(T, absolute_time, normalize_time)
    if concatenate_time:
        shape = (n, T.shape[1], length)
        X = np.concatenate([X, np.broadcast_to(T, shape)], axis=1)
    return X, T


def stored(array: IrregularArray, ts_level: bool = True) -> Array:
    """Where `to_dense` puts a stored value, bool [n, channels, T]: a stored NaN is missing, not padding."""
    rank, length = ranks(array, ts_level)
    out = np.zeros((*array.shape[:2], length), bool)
    out[array.coords[0], array.coords[1], rank] = True
    return out


def ranks(array: IrregularArray, ts_level: bool = True) -> tuple[Array, int]:
    """Place of each value's time among those of its series (or of its signal there), int64 [nnz]; the longest count."""
    if array.nnz == 0:
        return np.zeros(0, np.int64), 0
    ts, signal, time = array.coords
    group = ts if ts_level else ts * len(array.signal_id) + signal
    key = group * len(array.time_id) + time
    order = np.argsort(key, kind="stable") if ts_level else np.arange(len(key))
    ordered, owner = key[order], group[order]
    fresh = np.ones(len(key), np.int64)
    fresh[1:] = ordered[1:] != ordered[:-1]
    place = np.cumsum(fresh) - 1
    first = np.ones(len(key), bool)
    first[1:] = owner[1:] != owner[:-1]
    start = place[first]
    place -= np.repeat(start, np.diff(np.append(np.nonzero(first)[0], len(key))))
    rank = np.empty_like(place)
    rank[order] = place
    return rank, int(place.max()) + 1


def to_list(array: IrregularArray, *, ts_level: bool = True, **options: Any) -> tuple[list[Any], list[Any]]:
    """Series by series, cut to its own length: values and times.

    Parameters
    ----------
    ts_level
        True: [channels, T_i] and [1, T_i], NaN where a signal has no value. False: each signal has its own length, so
        that a series is a list of vectors, and its times another.
    options
        As of `to_dense`, but for ``reset_time_index``, which would leave no length to cut to.
    """
    if not options.pop("reset_time_index", True):
        raise UsageError("to_list needs packed series; reset_time_index=False works with to_dense alone.")
    X, T = to_dense(array, ts_level=ts_level, **options)
    if ts_level:
        lengths = array.lengths()
        return [x[:, :k] for x, k in zip(X, lengths)], [t[:, :k] for t, k in zip(T, lengths)]
    n, m, _ = array.shape
    counts = np.bincount(array.coords[0] * m + array.coords[1], minlength=n * m).reshape(n, m)
    counts = np.concatenate([counts] * (X.shape[1] // max(m, 1)), axis=1) if X.shape[1] != m else counts
    values = [[row[:k] for row, k in zip(x, ks)] for x, ks in zip(X, counts)]
    return values, [[row[:k] for row, k in zip(t, ks)] for t, ks in zip(T, counts)]


def time_numbers(times: Array, scale: float | None = None) -> Array:
    """Time stamps as float64: dates as epoch nanoseconds times ``scale`` (None = 1e-9), numbers times ``scale``."""
    if times.dtype.kind == "U":
        try:
            times = times.astype("datetime64[ns]")
        except ValueError as error:
            raise DataError(f"Time stamps are text that is no date ({times[0]!r}); read them as numbers.") from error
    if times.dtype.kind == "M":
        whole = times.astype("datetime64[ns]").astype(np.int64)
        return whole * (SECONDS if scale is None else scale)
    found = times.astype(float)
    return found if scale is None else found * scale


def _scaled(T: Array, absolute: bool, normalize: bool | str) -> Array:
    """Times by row of ``T``: of a series, or of a signal where each has its own axis."""
    if (absolute and not normalize) or T.size == 0:
        return T
    if not absolute:
        T = T - _first(T)
    if not normalize:
        return T
    mean = float(np.nanmean(T)) if np.isfinite(T).any() else 0.0
    T = T - _first(T)
    span = np.where(np.isnan(T), 0.0, T).max(axis=2, keepdims=True) + (0.0 if normalize == "exact" else _GUARD * mean)
    return T / np.where(span == 0, 1.0, span)


def _first(T: Array) -> Array:
    low = np.where(np.isnan(T), np.inf, T).min(axis=2, keepdims=True)
    return np.where(np.isinf(low), 0.0, low)
