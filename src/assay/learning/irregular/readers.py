"""Long tables (CSV, Parquet, frames, iterators of rows) to the common array, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.datasets.readers import guarded, listed
from assay.core.errors import DataError, UsageError, unknown_name
from assay.learning.irregular.array import DIMS, Array, IrregularArray
from assay.learning.irregular.chunks import Gathering

if TYPE_CHECKING:
    import polars as pl

Duplicates = Literal["error", "first", "last", "mean"]
DUPLICATES = ("error", "first", "last", "mean")
Names = str | Path | Sequence[str | Path]
# Rows at a time: of files, and of Python mappings, which weigh more.
_CHUNK, _ROWS = 500_000, 50_000


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
    """Array of long CSV files, one observation a row, read in chunks.

    Parameters
    ----------
    ts_id, signal_id, time_id, value_id
        Names of the columns.
    dims
        Static columns by dim: ``{"ts_id": ["label"]}``; each must have one value an id.
    reader_fun
        Called with the paths; returns a polars frame, or yields frames or rows (mappings) in long form.
    time_index_as_datetime
        Times are dates: text of the form ``2023-01-01 00:00:00``, or epoch seconds; both UTC.
    keep_missing
        Store missing values (empty, NA, NaN, null, ?) as NaN ("recorded as missing"); otherwise they leave their time
        stamp only.
    duplicates
        Of two values at one place: ``error``, or keep the ``first``, the ``last``, or their ``mean``.

    Raises
    ------
    DataError
        A missing column, id or time; a static column with two values for an id; duplicates.
    """
    import polars as pl

    _known_rule(duplicates)
    paths = _paths(filenames)
    columns = (ts_id, signal_id, time_id, value_id)
    if reader_fun is not None:
        gathered = Gathering(columns, dims, time_index_as_datetime, keep_missing)
        for frame in _frames(reader_fun(paths)):
            _need(_wanted(columns, dims), frame.columns, "The reader function's table")
            gathered.add(frame)
        return gathered.array(duplicates, attrs)
    # Types are guessed from the first rows; where a later row does not fit, all rows are looked at.
    for looked_at in (10_000, None):
        try:
            with guarded(paths[0], "a long table in CSV"):
                scan = pl.scan_csv(paths, infer_schema_length=looked_at)
                return _scanned(scan, paths, columns, dims, time_index_as_datetime, keep_missing).array(
                    duplicates, attrs
                )
        except DataError as error:
            if looked_at is None or not isinstance(error.__cause__, pl.exceptions.ComputeError):
                raise
    raise AssertionError("the last attempt returns or raises")


def _scanned(
    scan: pl.LazyFrame, paths: Sequence[Path], columns: Sequence[str], dims: Mapping[str, Sequence[str]] | None,
    as_datetime: bool, keep_missing: bool,
) -> Gathering:  # fmt: skip
    wanted = _wanted(columns, dims)
    _need(wanted, scan.collect_schema().names(), ", ".join(p.name for p in paths))
    gathered = Gathering(columns, dims, as_datetime, keep_missing)
    for frame in scan.select(wanted).collect_batches(chunk_size=_CHUNK):
        gathered.add(frame)
    if gathered.rows == 0:
        raise DataError(f"{', '.join(p.name for p in paths)} has a header and no row.")
    return gathered


def read_parquet(
    filenames: Names,
    ts_id: str = "ts_id",
    signal_id: str = "signal_id",
    time_id: str = "time_id",
    value_id: str = "value_id",
    dims: Mapping[str, Sequence[str]] | None = None,
    time_index_as_datetime: bool = True,
    *,
    keep_missing: bool = False,
    duplicates: Duplicates = "error",
    attrs: Mapping[str, Any] | None = None,
) -> IrregularArray:
    """Array of long Parquet files; parameters as of `read_csv`."""
    import polars as pl

    _known_rule(duplicates)
    paths = _paths(filenames)
    columns = (ts_id, signal_id, time_id, value_id)
    with guarded(paths[0], "a long table in Parquet"):
        scan = pl.scan_parquet(paths)
        return _scanned(scan, paths, columns, dims, time_index_as_datetime, keep_missing).array(duplicates, attrs)


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
    _known_rule(duplicates)
    columns = (ts_id, signal_id, time_id, value_id)
    _need(_wanted(columns, dims), frame.columns, "The table")
    gathered = Gathering(columns, dims, time_index_as_datetime, keep_missing)
    gathered.add(frame)
    return gathered.array(duplicates, attrs)


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


def _known_rule(duplicates: str) -> None:
    if duplicates not in DUPLICATES:
        raise unknown_name("rule for duplicates", duplicates, DUPLICATES)


def _wanted(columns: Sequence[str], dims: Mapping[str, Sequence[str]] | None) -> list[str]:
    static = [name for names in (dims or {}).values() for name in names]
    return list(dict.fromkeys([*columns, *static]))


def _need(wanted: Sequence[str], found: Sequence[str], where: str) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{where} has no column {missing[0]!r}; it has {listed(found)}.")


def _frames(found: Any) -> Iterator[pl.DataFrame]:
    """Frames of what a reader function gives: a frame, a lazy one, frames, or rows."""
    import polars as pl

    if isinstance(found, pl.LazyFrame):
        yield from found.collect_batches(chunk_size=_CHUNK)
        return
    if isinstance(found, pl.DataFrame):
        yield found
        return
    items = iter(found)
    while first := list(islice(items, 1)):
        if isinstance(first[0], pl.DataFrame):
            yield first[0]
        else:
            yield _frame_of_rows([*first, *islice(items, _ROWS - 1)])


def _frame_of_rows(listed: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    import polars as pl

    for name in listed[0]:
        kinds = {type(row.get(name)) for row in listed} - {type(None)}
        numbers = {int, float, bool, np.float64, np.int64}
        if len(kinds) > 1 and not kinds <= numbers:
            shown = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise DataError(f"Column {name!r} mixes {shown}, which cannot be sorted; give it one type.")
    return pl.DataFrame(listed, infer_schema_length=None)
