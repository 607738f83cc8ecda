"""Published files: tables with both potential times, HDF5 stores of the synthetic suite, orders of rows, results.

Stores are those of pandas (``fixed`` and ``table``), read without PyTables. What they hold as pickles (column names,
metadata) is read by `pickled.read_pickled`, which runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assay.core.datasets import read_table
from assay.core.datasets.readers import guarded, listed, shown
from assay.core.errors import DataError, MissingExtra
from assay.learning.survhte import synthetic
from assay.learning.survhte.data import SYNTHETIC_SIZES, SurvivalData, exact_effect
from assay.learning.survhte.pickled import read_pickled

Array = NDArray[np.float64]

STORES = (".h5", ".hdf5", ".hdf")
_NOT_COVARIATES = {
    "idx", "id", "observed_time", "event", "T0", "T1", "T", "C", "W", "true_cate", "cate", "CATE", "U1", "U2",
    "cate_exact", "setup_key", "scenario", "summary_json", "metadata_json",
}  # fmt: skip
_OUTCOME = ["observed_time", "event", "T0", "T1", "W"]


def find(root: Path | None, stem: str) -> Path | None:
    """The table called ``stem`` (CSV, gzipped CSV, Parquet) in a folder or below it; the least deep one."""
    if root is None:
        return None
    names = {f"{stem}{suffix}" for suffix in (".csv", ".csv.gz", ".parquet")}
    found = [path for path in root.rglob(f"{stem}.*") if path.name in names]
    return min(found, key=lambda path: (len(path.parts), path.name), default=None)


def numbers(frame: pl.DataFrame, names: Sequence[str], where: str, *, first: int = 2) -> Array:
    """Columns as numbers, shape (rows, names).

    Parameters
    ----------
    where
        What messages name.
    first
        Number that the first row has there: 2 under the header of a text file.

    Raises
    ------
    DataError
        A column is missing, or a value is no number (row and column are named).
    """
    for name in names:
        if name not in frame.columns:
            raise DataError(f"{where}: column {name!r} is missing; there are {listed(frame.columns)}.")
    found = frame.select(pl.col(name).cast(pl.Float64, strict=False) for name in names)
    values = found.to_numpy().astype(float)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise DataError(
            f"{where}, row {row + first}, column {names[column]!r}: {shown(frame[names[column]][row])} is no number; "
            "fill in what is missing first."
        )
    return values


def yes_no(values: Array, name: str, where: str, *, first: int = 2) -> NDArray[np.int64]:
    """A column of 0 and 1."""
    bad = np.flatnonzero(~np.isin(values, (0, 1)))
    if len(bad):
        raise DataError(f"{where}, row {bad[0] + first}, column {name!r}: {values[bad[0]]:g} is neither 0 nor 1.")
    return values.astype(np.int64)


def read_published(path: Path, name: str, features: Sequence[str] | None = None) -> SurvivalData:
    """A published file with both potential times: columns observed_time, event, T0, T1, W and the covariates.

    Orders of rows are taken from ``idx_split*.csv`` beside it.

    Raises
    ------
    DataError
        A column is missing, a value is no number, a time is negative, event or W other than 0 and 1 (file, row and
        column are named).
    """
    data = with_both_times(read_table(path), name, str(path), features)
    return replace(data, permutations=permutations(path, len(data)))


def with_both_times(frame: pl.DataFrame, name: str, where: str, features: Sequence[str] | None = None) -> SurvivalData:
    """A table in the published columns as a data set."""
    base = numbers(frame, _OUTCOME, where)
    negative = np.argwhere(base[:, [0, 2, 3]] < 0)
    if len(negative):
        row, column = (int(i) for i in negative[0])
        column = (0, 2, 3)[column]
        raise DataError(
            f"{where}, row {row + 2}, column {_OUTCOME[column]!r}: the time {base[row, column]:g} is negative."
        )
    names = list(features) if features else [
        c for c in frame.columns if c not in _NOT_COVARIATES and not c.startswith("p_surv")
    ]  # fmt: skip
    if not names:
        raise DataError(f"{where}: there is no covariate besides the columns of outcomes.")
    return SurvivalData(
        name, numbers(frame, names, where), yes_no(base[:, 4], "W", where), base[:, 0],
        yes_no(base[:, 1], "event", where) == 1, names, base[:, 2], base[:, 3],
    )  # fmt: skip


def published_synthetic(frame: pl.DataFrame, config: str, scenario: str, where: str) -> SurvivalData:
    """Rows of the synthetic suite from a file; with a published configuration's name, the truth is exact."""
    features = [f"X{i}" for i in range(1, 6)] if all(f"X{i}" in frame.columns for i in range(1, 6)) else None
    data = with_both_times(frame, f"{config}/{scenario}", where, features)
    data = replace(data, sizes=SYNTHETIC_SIZES if len(data) >= sum(SYNTHETIC_SIZES) else None)
    if config not in synthetic.CONFIGS or scenario not in synthetic.SCENARIOS or features is None:
        return data
    assignment, world = synthetic.checked(config, scenario)
    if np.any((data.X < 0) | (data.X > 1)):
        raise DataError(f"{where}: covariates X1 to X5 of {config}/{scenario} lie between 0 and 1, and these do not.")
    return replace(
        data, exact=exact_effect(assignment, world, data.X),
        noise=synthetic.effect_variance(assignment, world, data.X), facts={"config": config, "scenario": scenario},
    )  # fmt: skip


def permutations(path: Path, rows: int) -> NDArray[np.int64] | None:
    """Published orders of rows beside a file: ``idx_split_<name>.csv``, also without the name's digits, or
    ``idx_split.csv``; columns random_idx0 to random_idx9. Shape (repeats, rows).

    Raises
    ------
    DataError
        A column is no order of the rows.
    """
    stems = (f"idx_split_{path.stem}", f"idx_split_{path.stem.rstrip('0123456789')}", "idx_split")
    for candidate in (path.with_name(f"{stem}.csv") for stem in stems):
        if not candidate.is_file():
            continue
        frame = read_table(candidate)
        names = [c for c in frame.columns if c.startswith("random_idx")]
        if not names:
            raise DataError(f"{candidate}: there is no column random_idx0.")
        orders = numbers(frame, names, str(candidate)).T.astype(np.int64)
        for name, order in zip(names, orders, strict=True):
            if not np.array_equal(np.sort(order), np.arange(rows)):
                raise DataError(
                    f"{candidate}, column {name!r}: not an order of the {rows} rows of {path.name}, 0 to {rows - 1}."
                )
        return orders
    return None


# -- HDF5 stores of pandas --------------------------------------------------------------------------------------------


def store_keys(path: Path) -> list[str]:
    """Names of the tables in a store, like ``Scenario_A/data``."""
    found: list[str] = []
    with guarded(path, "a store of pandas"), _opened(path) as file:
        file.visititems(lambda name, one: found.append(name) if "pandas_type" in one.attrs else None)
    return sorted(found)


def read_store(path: Path, key: str) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A table of numbers in a store, and its metadata.

    Raises
    ------
    DataError
        No such table, another kind of object, columns that are not numbers.
    """
    where = f"{path}, {key}"
    with guarded(where, "a table of pandas"), _opened(path) as file:
        if key not in file or "pandas_type" not in file[key].attrs:
            raise DataError(f"{path} has no table {key!r}; there are {', '.join(store_keys(path)) or 'none'}.")
        group = file[key]
        kind = _text(group.attrs["pandas_type"])
        if kind not in ("frame", "frame_table"):
            raise DataError(f"{where} is a {kind!r} of pandas, not a table.")
        blocks = _fixed(group, where) if kind == "frame" else _table(group, where)
        columns: dict[str, NDArray[Any]] = {}
        for names, values in blocks:
            if values.dtype.kind not in "iufb" or values.ndim != 2 or values.shape[1] != len(names):
                raise DataError(f"{where}: the columns {', '.join(names[:4])} are no plain numbers.")
            columns |= {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(names)}
        metadata = group.attrs.get("metadata")
        facts = read_pickled(bytes(metadata), where) if isinstance(metadata, bytes) else {}
    return pl.DataFrame(columns), facts if isinstance(facts, dict) else {}


def _opened(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtra(f"Reading {path.name}", "survhte") from None
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} is no HDF5 file ({error.strerror or str(error).splitlines()[0]}).") from None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _fixed(group: Any, where: str) -> list[tuple[list[str], NDArray[Any]]]:
    found = []
    for i in range(int(group.attrs.get("nblocks", 0))):
        if f"block{i}_items" not in group or f"block{i}_values" not in group:
            raise DataError(f"{where}: block {i} is missing.")
        values = group[f"block{i}_values"]
        # Pickled columns are written as rows of bytes of unequal length.
        if values.dtype.kind not in "iufb":
            raise DataError(f"{where}: block {i} holds no plain numbers.")
        array = values[()]
        found.append(
            (
                [_text(name) for name in group[f"block{i}_items"][()]],
                array if values.attrs.get("transposed") else array.T,
            )
        )
    return found


def _table(group: Any, where: str) -> list[tuple[list[str], NDArray[Any]]]:
    if "table" not in group:
        raise DataError(f"{where}: the table is missing.")
    table = group["table"]
    found = []
    rows = table[()]
    for name in rows.dtype.names or ():
        if name == "index":
            continue
        kind = table.attrs.get(f"{name}_kind")
        names = read_pickled(bytes(kind), where) if isinstance(kind, bytes) else [name]
        values = rows[name]
        found.append(([str(one) for one in names], values if values.ndim == 2 else values[:, None]))
    return found


# -- results ----------------------------------------------------------------------------------------------------------

_MEASURED = ("ate_true", "ate_pred", "cate_mse", "ate_bias")


def read_results(path: Path) -> pl.DataFrame:
    """A published file of results as a table: config, scenario, repeat, ate_true, ate_pred, cate_mse, ate_bias.

    The pickle is read without running it.

    Raises
    ------
    DataError
        It is laid out otherwise, or holds more than values and arrays.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    found = read_pickled(content, path)
    rows: list[dict[str, Any]] = []
    for config, scenarios in _items(found, path, "configurations"):
        for scenario, repeats in _items(scenarios, path, "scenarios"):
            for repeat, entry in _items(repeats, path, "repeats"):
                if isinstance(entry, Mapping) and "cate_mse" in entry:
                    numbers_of = {name: _number(entry.get(name)) for name in _MEASURED}
                    rows.append({"config": str(config), "scenario": str(scenario), "repeat": str(repeat), **numbers_of})
    if not rows:
        raise DataError(f"{path} holds no results of the form configuration, scenario, repeat, cate_mse.")
    return pl.DataFrame(rows)


def _items(value: Any, path: Path, what: str) -> Sequence[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise DataError(f"{path} holds a {type(value).__name__} where {what} by name were expected.")
    return [(key, one) for key, one in value.items() if isinstance(one, Mapping)]


def _number(value: Any) -> float | None:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    return float(value) if isinstance(value, int | float | np.number) else None
