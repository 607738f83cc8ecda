"""Long rows, chunk after chunk, to the common array: memory holds numbers, never all rows as they were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import DataError, unknown_name
from assay.learning.irregular.array import DIMS, Array, IrregularArray

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")
"""What stands for a missing value in text."""


class Gathering:
    """Collects chunks of long rows.

    A row keeps 20 bytes until `array` is called: its places among the ids of its chunk, and its value. The ids of all
    chunks are merged at the end, for only then is their order known.

    Parameters
    ----------
    columns
        Names of the series, signal, time and value columns.
    dims
        Static columns by dim.
    as_datetime
        Times are dates.
    keep_missing
        Keep missing values as NaN.

    Attributes
    ----------
    rows
        Taken in so far.
    """

    def __init__(
        self, columns: Sequence[str], dims: Mapping[str, Sequence[str]] | None, as_datetime: bool, keep_missing: bool
    ) -> None:
        for dim in dims or {}:
            if dim not in DIMS:
                raise unknown_name("dim", dim, DIMS)
        self._columns, self._as_datetime, self._keep = tuple(columns), as_datetime, keep_missing
        self._static = {name: dim for dim, names in (dims or {}).items() for name in names}
        self._places: list[tuple[Array, ...]] = []
        self._values: list[Array] = []
        self._ids: dict[str, list[Array]] = {dim: [] for dim in DIMS}
        self._pairs: dict[str, list[pl.DataFrame]] = {name: [] for name in self._static}
        self.rows = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take in rows.

        Raises
        ------
        DataError
            A missing id or time, a time or value that is none.
        """
        import polars as pl

        ts, signal, time, value = (frame.get_column(name) for name in self._columns)
        places = {}
        for dim, column in zip(DIMS, (ts, signal, _times(time, self._as_datetime))):
            codes, ids = _codes(column, self.rows)
            places[dim] = codes.astype(np.int32)
            self._ids[dim].append(ids)
        for name, dim in self._static.items():
            pairs = pl.DataFrame({"id": places[dim], "value": frame.get_column(name)}).unique()
            self._pairs[name].append(pairs)
        values = _values(value, self.rows)
        kept = [places[dim] for dim in DIMS]
        if not self._keep:
            there = ~np.isnan(values)
            if not there.all():
                values, kept = values[there], [part[there] for part in kept]
        self._places.append(tuple(kept))
        self._values.append(values)
        self.rows += len(frame)

    def array(self, duplicates: str, attrs: Mapping[str, Any] | None) -> IrregularArray:
        """The array of all rows that were added.

        Raises
        ------
        DataError
            No rows; ids of mixed types; a static column with two values for an id; two values at one place.
        """
        if not self._values:
            raise DataError("There is no row to read.")
        ids, tables = {}, {}
        for dim, name in zip(DIMS, self._columns):
            ids[dim], tables[dim] = _merged(self._ids[dim], name)
        static = {}
        for name, dim in self._static.items():
            static[name] = (dim, _static(self._pairs[name], tables[dim], ids[dim], dim, name))
        coords = np.empty((3, sum(map(len, self._values))), np.int64)
        at = 0
        for chunk, places in enumerate(self._places):
            stop = at + len(places[0])
            for k, dim in enumerate(DIMS):
                coords[k, at:stop] = tables[dim][chunk][places[k]]
            at = stop
        self._places = []
        values, self._values = np.concatenate(self._values), []
        data, coords = _placed(values, coords, ids, duplicates)
        # The order in which pyrregular's reader leaves coordinates, so that files come out the same.
        dated = ids["time_id"].dtype.kind == "M"
        order = (*static, *DIMS) if dated else ("time_id", *static, "ts_id", "signal_id")
        # Ids are text, as pyrregular leaves them; numbers stand in the order of numbers.
        series, signals = ids["ts_id"].astype(str), ids["signal_id"].astype(str)
        return IrregularArray(data, coords, series, signals, ids["time_id"], static, dict(attrs or {}), order)


def _merged(parts: Sequence[Array], name: str) -> tuple[Array, list[Array]]:
    """(all ids in order, by chunk the place of each of its ids among them)."""
    if len(parts) == 1:
        return parts[0], [np.arange(len(parts[0]))]
    kinds = {"number" if p.dtype.kind in "iufb" else "date" if p.dtype.kind == "M" else "text" for p in parts}
    if len(kinds) > 1:
        raise DataError(
            f"Column {name!r} mixes {' and '.join(sorted(kinds))}, which cannot be sorted; give it one type."
        )
    every = np.unique(np.concatenate(parts))
    return every, [np.searchsorted(every, part) for part in parts]


def _times(column: pl.Series, as_datetime: bool) -> pl.Series:
    import polars as pl

    name = column.name
    if column.dtype.is_temporal():
        if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return column.cast(pl.Datetime("ns"))
    if not as_datetime:
        if column.dtype.is_numeric():
            return column
        numbers = column.cast(pl.Float64, strict=False)
        bad = column.filter(numbers.is_null() & column.is_not_null())
        if len(bad):
            raise DataError(
                f"Column {name!r}: time {bad[0]!r} is no number; for dates pass time_index_as_datetime=True."
            )
        return numbers
    if column.dtype.is_integer():
        return (column.cast(pl.Int64) * 1_000_000_000).cast(pl.Datetime("ns"))
    if column.dtype.is_numeric():
        # Whole seconds apart from the rest: epoch seconds times 1e9 do not fit a float exactly.
        whole = column.floor().cast(pl.Int64, strict=False)
        rest = ((column - column.floor()) * 1e9).round().cast(pl.Int64, strict=False)
        return (whole * 1_000_000_000 + rest).cast(pl.Datetime("ns"))
    unique = column.unique()
    parsed = _dates(unique)
    bad = unique.filter(parsed.is_null() & unique.is_not_null())
    if len(bad):
        numbers = " (numbers and dates are mixed)" if unique.cast(pl.Float64, strict=False).is_not_null().any() else ""
        raise DataError(f"Column {name!r}: time {bad[0]!r:.80} is no date of the form 2023-01-31 00:00:00{numbers}.")
    return pl.DataFrame({name: column}).join(pl.DataFrame({name: unique, "t": parsed}), on=name, how="left")["t"]


def _dates(text: pl.Series) -> pl.Series:
    """Dates of a text column, null where it is none; text with an offset is brought to UTC."""

    text = text.str.strip_chars()
    found = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns", strict=False)
    for form in ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d", "%Y-%m-%d %H:%M"):
        if found.null_count() == text.null_count():
            return found
        more = text.str.to_datetime(form, time_unit="ns", strict=False, exact=True)
        found = found.fill_null(more) if len(found) else found
    for form in ("%Y-%m-%d %H:%M:%S%.f%:z", "%Y-%m-%dT%H:%M:%S%.f%:z"):
        if found.null_count() == text.null_count():
            return found
        zoned = text.str.replace("Z$", "+00:00").str.to_datetime(form, time_unit="ns", strict=False)
        found = found.fill_null(zoned.dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return found


def _codes(column: pl.Series, before: int) -> tuple[Array, Array]:
    """(place of each row's id among the sorted ids, those ids); ``before`` rows came earlier."""
    import polars as pl

    name = column.name
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(False)
    if missing.any():
        raise DataError(
            f"Column {name!r} has no value in row {before + int(missing.arg_true()[0]) + 1}; "
            "ids and times may not be missing."
        )
    if column.dtype in (pl.Object, pl.Null):
        raise DataError(f"Column {name!r} mixes types, which cannot be sorted; give it one type.")
    if column.dtype == pl.Categorical or isinstance(column.dtype, pl.Enum):
        column = column.cast(pl.String)
    unique = column.unique().sort()
    if column.dtype == pl.String:
        codes = column.cast(pl.Enum(unique)).to_physical().to_numpy()
        return codes.astype(np.int64), np.array(unique.to_list(), dtype="U")
    found = unique.to_numpy()
    if column.dtype.is_integer() and len(found) and int(found[-1]) - int(found[0]) < 4 * len(column) + 1024:
        table = np.zeros(int(found[-1]) - int(found[0]) + 1, np.int64)
        table[found.astype(np.int64) - int(found[0])] = np.arange(len(found))
        return table[column.to_numpy().astype(np.int64) - int(found[0])], found
    return np.searchsorted(found, column.to_numpy()).astype(np.int64), found


def _values(column: pl.Series, before: int) -> Array:
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64).to_numpy()
    numbers = column.cast(pl.Float64, strict=False)
    bad = numbers.is_null() & column.is_not_null() & ~column.cast(pl.String).str.strip_chars().is_in(MISSING)
    if bad.any():
        at = int(bad.arg_true()[0])
        raise DataError(f"Column {column.name!r}, row {before + at + 1}: value {column[at]!r} is no number.")
    return numbers.to_numpy()


def _static(chunks: Sequence[pl.DataFrame], tables: Sequence[Array], ids: Array, dim: str, name: str) -> Array:
    """The one value of each id; chunks hold pairs of a place among the chunk's ids and a value."""
    import polars as pl

    placed = [c.with_columns(pl.Series("id", table[c["id"].to_numpy()])) for c, table in zip(chunks, tables)]
    pairs = pl.concat(placed, how="vertical_relaxed").unique()
    counts = pairs.group_by("id").len().filter(pl.col("len") > 1).sort("id")
    if len(counts):
        at = int(counts["id"][0])
        two = pairs.filter(pl.col("id") == at)["value"].sort().to_list()[:2]
        raise DataError(
            f"Column {name!r} is not static: {dim} {ids[at].item()!r:.80} has the values {two[0]!r:.80} and "
            f"{two[1]!r:.80}; make it a signal, or name another dim."
        )
    values = pairs.sort("id")["value"]
    if values.dtype == pl.String:
        return np.array([v if v is not None else "" for v in values.to_list()], dtype="U")
    return values.to_numpy()


def _placed(values: Array, coords: Array, ids: Mapping[str, Array], duplicates: str) -> tuple[Array, Array]:
    """Values and places sorted by place, doubles reduced."""
    shape = [len(ids[dim]) for dim in DIMS]
    if float(shape[0]) * shape[1] * shape[2] < 2**62:
        key = (coords[0] * shape[1] + coords[1]) * shape[2] + coords[2]
        if bool((key[1:] < key[:-1]).any()):
            order = np.argsort(key, kind="stable")
            coords, values, key = coords[:, order], values[order], key[order]
        same = key[1:] == key[:-1]
    else:
        order = np.lexsort(coords[::-1])
        coords, values = coords[:, order], values[order]
        same = (coords[:, 1:] == coords[:, :-1]).all(axis=0)
    if not same.any():
        return values, np.ascontiguousarray(coords)
    if duplicates == "error":
        at = int(np.nonzero(same)[0][0])
        shown = ", ".join(f"{d} {ids[d][coords[k, at]]!s}" for k, d in enumerate(DIMS))
        raise DataError(
            f"Two values at {shown} ({values[at]:g} and {values[at + 1]:g}), {int(same.sum())} such in all; pass "
            "duplicates='first', 'last' or 'mean'."
        )
    starts = np.nonzero(np.append(True, ~same))[0]
    stops = np.append(starts[1:], len(values))
    if duplicates == "first":
        return values[starts], np.ascontiguousarray(coords[:, starts])
    if duplicates == "last":
        return values[stops - 1], np.ascontiguousarray(coords[:, starts])
    means = np.add.reduceat(values, starts) / (stops - starts)
    return means, np.ascontiguousarray(coords[:, starts])
