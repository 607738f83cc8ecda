"""The common array: sparse observations of (series, signal, time), with static coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError, UsageError, unknown_name

DIMS = ("ts_id", "signal_id", "time_id")
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class IrregularArray:
    """Observations of n series x m signals at the union of all time stamps; what is absent was not observed.

    Parameters
    ----------
    data
        Values, float64 [nnz]; a stored NaN means "recorded as missing".
    coords
        Places of the values, int64 [3, nnz], sorted by (series, signal, time), without doubles.
    ts_id, signal_id, time_id
        Ids, sorted ascending, unique; times are datetime64[ns], numbers, or text.
    static
        Further coordinates: name -> (dim, values), one value an id of that dim: labels, splits, covariates.
    attrs
        Title, source, licence ...; ``configs`` is {config: {task, split, target}} of names in ``static``.
    order
        Names of coordinates in the order in which files hold them; those it does not name follow, ids first.
    """

    data: Array
    coords: Array
    ts_id: Array
    signal_id: Array
    time_id: Array
    static: Mapping[str, tuple[str, Array]] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        """(series, signals, time stamps)."""
        return len(self.ts_id), len(self.signal_id), len(self.time_id)

    @property
    def nnz(self) -> int:
        """Stored values."""
        return len(self.data)

    def __len__(self) -> int:
        return len(self.ts_id)

    def __repr__(self) -> str:
        n, m, t = self.shape
        return f"IrregularArray({n} series x {m} signals x {t} time stamps, {self.nnz} values)"

    def ids(self, dim: str) -> Array:
        """Ids of a dim."""
        if dim not in DIMS:
            raise unknown_name("dim of the array", dim, DIMS)
        return getattr(self, dim)

    def coordinate(self, name: str) -> Array:
        """Values of an id or static coordinate.

        Raises
        ------
        UsageError
            No coordinate of that name.
        """
        if name in DIMS:
            return self.ids(name)
        if name not in self.static:
            raise unknown_name("coordinate", name, [*DIMS, *self.static])
        return self.static[name][1]

    def coordinates(self) -> dict[str, tuple[str, Array]]:
        """All coordinates, ids and static ones, as name -> (dim, values), in `order`."""
        every = {dim: (dim, self.ids(dim)) for dim in DIMS} | dict(self.static)
        return {name: every[name] for name in dict.fromkeys([*self.order, *every]) if name in every}

    def with_static(self, **columns: ArrayLike) -> IrregularArray:
        """A copy with further coordinates on ``ts_id``."""
        added = {}
        for name, values in columns.items():
            found = np.asarray(values)
            if found.shape != (len(self),):
                raise UsageError(
                    f"Coordinate {name!r} needs one value a series ({len(self)}); got shape {found.shape}."
                )
            added[name] = ("ts_id", found)
        return replace(self, static={**self.static, **added})

    def with_attrs(self, **attrs: Any) -> IrregularArray:
        """A copy with further attributes."""
        return replace(self, attrs={**self.attrs, **attrs})

    def select(
        self, series: ArrayLike | slice | None = None, signals: ArrayLike | slice | None = None, *, compact: bool = True
    ) -> IrregularArray:
        """A part by positions, masks or slices; ``compact`` drops time stamps at which nothing of it is stored."""
        rows, columns = (
            _positions(series, len(self.ts_id), "series"),
            _positions(signals, len(self.signal_id), "signal"),
        )
        order = [np.full(len(ids), -1, np.int64) for ids in (self.ts_id, self.signal_id)]
        order[0][rows], order[1][columns] = np.arange(len(rows)), np.arange(len(columns))
        ts, signal = order[0][self.coords[0]], order[1][self.coords[1]]
        kept = (ts >= 0) & (signal >= 0)
        coords = np.stack([ts[kept], signal[kept], self.coords[2][kept]])
        times = np.arange(len(self.time_id))
        if compact:
            times = np.unique(coords[2])
            coords[2] = np.searchsorted(times, coords[2])
        picks = {"ts_id": rows, "signal_id": columns, "time_id": times}
        static = {name: (dim, values[picks[dim]]) for name, (dim, values) in self.static.items()}
        data = self.data[kept]
        at = np.lexsort(coords[::-1])
        return replace(
            self, data=data[at], coords=coords[:, at], ts_id=self.ts_id[rows], signal_id=self.signal_id[columns],
            time_id=self.time_id[times], static=static,
        )  # fmt: skip

    def lengths(self) -> Array:
        """Distinct time stamps with a stored value, by series, int64 [n]."""
        key = np.unique(self.coords[0] * max(1, len(self.time_id)) + self.coords[2])
        return np.bincount(key // max(1, len(self.time_id)), minlength=len(self)).astype(np.int64)

    def target_and_split(self, task: str = "default") -> tuple[Array, Array]:
        """(y [n], split [n] of "train" and "test") of a config.

        Raises
        ------
        UsageError
            The array has no such config, or it names no target.
        DataError
            A coordinate that the config names is absent.
        """
        configs = self.attrs.get("configs") or {}
        if task not in configs:
            raise unknown_name("config of this data set", task, configs)
        found = []
        for part in ("target", "split"):
            name = configs[task].get(part)
            if name is None:
                raise UsageError(f"Config {task!r} has no {part}; it is no supervised task.")
            if name not in self.static or self.static[name][0] != "ts_id":
                raise DataError(f"Config {task!r} names {part} {name!r}, which is no coordinate of the series.")
            found.append(self.static[name][1])
        return found[0], found[1].astype(str)

    def train_test(self, task: str = "default") -> tuple[IrregularArray, IrregularArray]:
        """The two sides of a config's split. Signals stay; time stamps of the other side go."""
        _, split = self.target_and_split(task)
        return self.select(split == "train"), self.select(split == "test")

    def config_names(self, kind: str | None = None) -> list[str]:
        """Configs, all or those of a task kind (classification, regression)."""
        configs = self.attrs.get("configs") or {}
        return [name for name, c in configs.items() if kind is None or c.get("task", "classification") == kind]


def from_coordinates(
    ts: ArrayLike, signal: ArrayLike, time: ArrayLike, values: ArrayLike, **more: Any
) -> IrregularArray:
    """Array of parallel vectors of ids, times and values (no doubles). NaN values leave only their time stamp."""
    columns = [np.unique(np.asarray(part), return_inverse=True) for part in (ts, signal, time)]
    places = np.stack([inverse.ravel().astype(np.int64) for _, inverse in columns])
    x = np.asarray(values, float)
    keep = ~np.isnan(x)
    coords, x = places[:, keep], x[keep]
    order = np.lexsort(coords[::-1])
    coords = coords[:, order]
    if coords.shape[1] > 1 and bool((np.diff(coords, axis=1) == 0).all(axis=0).any()):
        raise DataError("Two values have the same series, signal and time; read them by `from_long` with a reducer.")
    return IrregularArray(x[order], coords, columns[0][0], columns[1][0], columns[2][0], **more)


def from_dense(
    X: Array | Sequence[ArrayLike],
    times: ArrayLike | None = None,
    *,
    y: ArrayLike | None = None,
    split: ArrayLike | None = None,
    ids: Sequence[Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> IrregularArray:
    """Array of dense or unequal series.

    Parameters
    ----------
    X
        Shape (n, channels, T) with NaN where nothing was observed, or n arrays of shape (channels, T_i).
    times
        Of every column: shape (T,), (n, T) or (n, 1, T); None = 0, 1, 2 ...
    y, split
        Labels and "train" or "test", one a series; with both there is a config ``default``.
    ids
        Of the series, in order, sorted ascending; None = zero-padded numbers.
    """
    series = [np.asarray(x, float) for x in X]
    if any(x.ndim != 2 for x in series) or len({x.shape[0] for x in series}) > 1:
        raise DataError("Series need shape (channels, time), the same channels in each.")
    n, channels = len(series), (series[0].shape[0] if series else 0)
    longest = max((x.shape[1] for x in series), default=0)
    dense = np.full((n, channels, longest), np.nan)
    for at, x in enumerate(series):
        dense[at, :, : x.shape[1]] = x
    stamps = np.arange(longest, dtype=float) if times is None else np.asarray(times, float)
    stamps = np.broadcast_to(stamps.reshape(stamps.shape[0], -1) if stamps.ndim == 3 else stamps, (n, longest))
    where = np.nonzero(~np.isnan(dense))
    at_time = stamps[where[0], where[2]]
    if np.isnan(at_time).any():
        raise DataError(f"Series {int(where[0][np.isnan(at_time)][0])} has a value without a time stamp.")
    time_id, places = np.unique(at_time, return_inverse=True)
    coords = np.stack([where[0], where[1], places.ravel()]).astype(np.int64)
    order = np.lexsort(coords[::-1])
    coords = coords[:, order]
    if coords.shape[1] > 1 and bool((np.diff(coords, axis=1) == 0).all(axis=0).any()):
        raise DataError("A series has two values at the same time stamp.")
    width = len(str(max(n - 1, 0)))
    names = np.array([str(i).zfill(width) for i in range(n)] if ids is None else list(ids))
    if ids is not None and (names[1:] <= names[:-1]).any():
        raise DataError("Ids of series must be unique and sorted ascending.")
    static: dict[str, tuple[str, Array]] = {}
    told = dict(attrs or {})
    if y is not None:
        static["class_default"] = ("ts_id", np.asarray(y))
    if split is not None:
        static["split_default"] = ("ts_id", np.asarray(split))
    if y is not None and split is not None:
        told.setdefault(
            "configs",
            {"default": {"task": "classification", "split": "split_default", "target": "class_default"}},
        )
    signals = np.array([f"dim_{i:0{len(str(max(channels - 1, 0)))}d}" for i in range(channels)])
    values = dense[where][order]
    return IrregularArray(values, coords, names, signals, time_id, static, told)


def _positions(pick: ArrayLike | slice | None, n: int, what: str) -> Array:
    if pick is None:
        return np.arange(n)
    if isinstance(pick, slice):
        return np.arange(n)[pick]
    found = np.atleast_1d(np.asarray(pick))
    if found.dtype == bool:
        if found.shape != (n,):
            raise UsageError(f"A mask over {what} needs {n} values; got shape {found.shape}.")
        return np.nonzero(found)[0]
    if found.size and (found.dtype.kind not in "iu" or found.min() < -n or found.max() >= n):
        raise UsageError(f"Positions of {what} are whole numbers below {n}; got {pick!r}.")
    found = found.astype(np.int64) % max(n, 1)
    if len(np.unique(found)) != len(found):
        raise UsageError(f"A {what} is selected twice; ids are unique.")
    return found
