"""Long tables (CSV, Parquet, frames, iterators of rows) to the common array, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.errors import DataError, UsageError, unknown_name
from assay.learning.irregular.array import DIMS, Array, IrregularArray

if TYPE_CHECKING:
    import polars as pl

Duplicates = Literal["error", "first", "last", "mean"]
_DUPLICATES = ("error", "first", "last", "mean")
Names = str | Path | Sequence[str | Path]


def read_csv(
    filenames: Names,
    ts_id: str = "ts_id",
    signal_id: str = "signal_id",
    time_id: str = "time_id",
    value_id: str = "value_id",
    dims: Mapping[str, Sequence[str]] | None = None,
    reader_fun: Callable[[Sequence[Path]], Any] | None = None,
    time_index_as_datetime: bool = True,
    *,
    keep_missing: bool = False,
    duplicates: Duplicates = "error",
    attrs: Mapping[str, Any] | None = None,
) -> IrregularArray:
    """Array of long CSV files, one observation a row.

    Parameters
    ----------
    ts_id, signal_id, time_id, value_id
        Names of the columns.
    dims
        Static columns by dim: ``{"ts_id": ["label"]}``; each must have one value an id.
    reader_fun
        Called with the paths; returns a polars frame, or yields rows (mappings) in long form.
    time_index_as_datetime
        Times are dates: text of the form ``2023-01-01 00:00:00``, or epoch seconds; both UTC.
    keep_missing
        Store missing values as NaN ("recorded as missing"); otherwise they leave their time stamp only.
    duplicates
        Of two values at one place: ``error``, or keep the ``first``, the ``last``, or their ``mean``.

    Raises
    ------
    DataError
        A missing column, id or time; a static column with two values for an id; duplicates.
    """
    import polars as pl

    paths = _paths(filenames)
    if reader_fun is not None:
        found = reader_fun(paths)
        if isinstance(found, pl.LazyFrame):
            found = found.collect()
        frame = found if isinstance(found, pl.DataFrame) else _frame_of_rows(found)
    else:
        wanted = _columns(ts_id, signal_id, time_id, value_id, dims)
        try:
            scan = pl.scan_csv(paths, infer_schema_length=10_000)
            _need(wanted, scan.collect_schema().names(), ", ".join(p.name for p in paths))
            frame = scan.select(wanted).collect(engine="streaming")
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{paths[0]}: {str(error).splitlines()[0]}") from error
    return from_long(
        frame, ts_id, signal_id, time_id, value_id, dims, time_index_as_datetime,
        keep_missing=keep_missing, duplicates=duplicates, attrs=attrs,
    )  # fmt: skip


def read_parquet(
    filenames: Names,
    ts_id: str = "ts_id",
    signal_id: str = "signal_id",
    time_id: str = "time_id",
    value_id: str = "value_id",
    dims: Mapping[str, Sequence[str]] | None = None,
    time_index_as_datetime: bool = True,
    **options: Any,
) -> IrregularArray:
    """Array of long Parquet files; parameters as of `read_csv`."""
    import polars as pl

    paths = _paths(filenames)
    wanted = _columns(ts_id, signal_id, time_id, value_id, dims)
    scan = pl.scan_parquet(paths)
    _need(wanted, scan.collect_schema().names(), ", ".join(p.name for p in paths))
    frame = scan.select(wanted).collect(engine="streaming")
    return from_long(frame, ts_id, signal_id, time_id, value_id, dims, time_index_as_datetime, **options)


def from_long(
    frame: pl.DataFrame,
    ts_id: str = "ts_id",
    signal_id: str = "signal_id",
    time_id: str = "time_id",
    value_id: str = "value_id",
    dims: Mapping[str, Sequence[str]] | None = None,
    time_index_as_datetime: bool = False,
    *,
    keep_missing: bool = False,
    duplicates: Duplicates = "error",
    attrs: Mapping[str, Any] | None = None,
) -> IrregularArray:
    """Array of a long polars frame; parameters and errors as of `read_csv`."""

    if duplicates not in _DUPLICATES:
        raise unknown_name("rule for duplicates", duplicates, _DUPLICATES)
    _need(_columns(ts_id, signal_id, time_id, value_id, dims), frame.columns, "The table")
    times = _times(frame.get_column(time_id), time_index_as_datetime)
    columns = {"ts_id": frame.get_column(ts_id), "signal_id": frame.get_column(signal_id), "time_id": times}
    ids: dict[str, Array] = {}
    places: list[Array] = []
    for dim, column in columns.items():
        codes, ids[dim] = _codes(column)
        places.append(codes)
    values = _values(frame.get_column(value_id))
    static: dict[str, tuple[str, Array]] = {}
    for dim, names in (dims or {}).items():
        if dim not in DIMS:
            raise unknown_name("dim", dim, DIMS)
        for name in names:
            at = places[DIMS.index(dim)]
            static[name] = (dim, _static(frame.get_column(name), at, ids[str(dim)], dim))
    data, coords = _placed(values, places, [len(ids[d]) for d in DIMS], ids, keep_missing, duplicates)
    return IrregularArray(data, coords, ids["ts_id"], ids["signal_id"], ids["time_id"], static, dict(attrs or {}))


def to_long(array: IrregularArray, static: bool = True) -> pl.DataFrame:
    """Long frame with columns ts_id, signal_id, time_id, value_id and, with ``static``, every static coordinate."""
    import polars as pl

    places: dict[str, Array] = dict(zip(DIMS, array.coords))
    frame: dict[str, Any] = {dim: array.ids(dim)[places[dim]] for dim in DIMS}
    frame["value_id"] = array.data
    if static:
        frame |= {name: np.asarray(values)[places[dim]] for name, (dim, values) in array.static.items()}
    return pl.DataFrame(frame)


def write_csv(array: IrregularArray, path: Path | str, static: bool = True) -> None:
    """Long CSV file, from which `read_csv` gives the same values and ids."""
    to_long(array, static).write_csv(path)


def write_parquet(array: IrregularArray, path: Path | str, static: bool = True) -> None:
    """Long Parquet file."""
    to_long(array, static).write_parquet(path)


def _paths(filenames: Names) -> list[Path]:
    paths = [Path(filenames)] if isinstance(filenames, (str, Path)) else [Path(p) for p in filenames]
    if not paths:
        raise UsageError("No file was given to read.")
    for path in paths:
        if not path.is_file():
            raise DataError(f"File {path} does not exist.")
        if path.stat().st_size == 0:
            raise DataError(f"File {path} is empty.")
    return paths


def _columns(ts: str, signal: str, time: str, value: str, dims: Mapping[str, Sequence[str]] | None) -> list[str]:
    static = [name for names in (dims or {}).values() for name in names]
    return list(dict.fromkeys([ts, signal, time, value, *static]))


def _need(wanted: Sequence[str], found: Sequence[str], where: str) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{where} has no column {missing[0]!r}; it has {', '.join(map(repr, found))}.")


def _frame_of_rows(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    import polars as pl

    listed = list(rows)
    if not listed:
        raise DataError("The reader function gave no row.")
    for name in listed[0]:
        kinds = {type(row.get(name)) for row in listed} - {type(None)}
        numbers = {int, float, bool, np.float64, np.int64}
        if len(kinds) > 1 and not kinds <= numbers:
            shown = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise DataError(f"Column {name!r} mixes {shown}, which cannot be sorted; give it one type.")
    return pl.DataFrame(listed, infer_schema_length=None)


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
        raise DataError(f"Column {name!r}: time {bad[0]!r} is no date of the form 2023-01-31 00:00:00{numbers}.")
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


def _codes(column: pl.Series) -> tuple[Array, Array]:
    """(place of each row's id among the sorted ids, those ids)."""
    import polars as pl

    name = column.name
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(False)
    if missing.any():
        raise DataError(
            f"Column {name!r} has no value in row {int(missing.arg_true()[0]) + 1}; ids and times may not be missing."
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


def _values(column: pl.Series) -> Array:
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64).to_numpy()
    numbers = column.cast(pl.Float64, strict=False)
    bad = numbers.is_null() & column.is_not_null() & (column.cast(pl.String).str.strip_chars() != "")
    if bad.any():
        at = int(bad.arg_true()[0])
        raise DataError(f"Column {column.name!r}, row {at + 1}: value {column[at]!r} is no number.")
    return numbers.to_numpy()


def _static(column: pl.Series, places: Array, ids: Array, dim: str) -> Array:
    import polars as pl

    pairs = pl.DataFrame({"id": places, "value": column}).unique()
    counts = pairs.group_by("id").len().filter(pl.col("len") > 1).sort("id")
    if len(counts):
        at = int(counts["id"][0])
        two = pairs.filter(pl.col("id") == at)["value"].to_list()[:2]
        raise DataError(
            f"Column {column.name!r} is not static: {dim} {ids[at].item()!r} has the values {two[0]!r} and {two[1]!r}; "
            "make it a signal, or name another dim."
        )
    values = pairs.sort("id")["value"]
    if values.dtype == pl.String:
        return np.array([v if v is not None else "" for v in values.to_list()], dtype="U")
    return values.to_numpy()


def _placed(
    values: Array, places: list[Array], shape: list[int], ids: dict[str, Array], keep: bool, duplicates: str
) -> tuple[Array, Array]:
    coords = np.stack(places)
    if not keep:
        there = ~np.isnan(values)
        values, coords = values[there], coords[:, there]
    if float(shape[0]) * shape[1] * shape[2] < 2**62:
        key = (coords[0] * shape[1] + coords[1]) * shape[2] + coords[2]
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
