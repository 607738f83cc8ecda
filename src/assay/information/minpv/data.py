"""Loaders: published tabular densities where their files lie, offline stand-ins, and pairs of samples in files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets.offline import digits
from assay.core.datasets.readers import MAX_BYTES, guarded, read_rows, read_table
from assay.core.datasets.sources import Data, folder, package_file, stand_in
from assay.core.errors import DataError, UsageError, unknown_name

Array = NDArray[np.float32]
Split = tuple[Array, Array, Array]


@dataclass(frozen=True, slots=True)
class Tabular:
    """Training, validation and test rows (n, d), float32, standardised on the training rows; provenance."""

    train: Array
    valid: Array
    test: Array
    data: Data


def load_tabular(name: str, root: Path | str | None = None, *, seed: int = 0) -> Tabular:
    """A tabular density.

    Parameters
    ----------
    name
        POWER, GAS, HEPMASS, MINIBOONE, BSDS300 (from ``root``, in the published layout, with the splits of
        Papamakarios et al. 2017), or offline: breast_cancer, digits.
    root
        Folder that holds ``power/data.npy`` and so on.
    seed
        Of the split of the offline sets, and of the dither of digits.
    """
    if name in OFFLINE:
        rows, data = OFFLINE[name](np.random.default_rng(seed))
        rows = rows[np.random.default_rng([seed, 1]).permutation(len(rows))]
        held = len(rows) // 10
        return _standardised(rows[: -2 * held], rows[-2 * held : -held], rows[-held:], data)
    if name not in PUBLISHED:
        raise unknown_name("tabular set", name, (*OFFLINE, *PUBLISHED))
    if root is None:
        raise UsageError(f"{name} is not passed on by assay; give the folder that its files lie in.")
    place, load = PUBLISHED[name]
    path = Path(root) / place
    if not path.exists():
        pickled = " (the published pickle could run code when read; save its frame once as parquet)"
        raise DataError(f"{name} needs {path}, which is not there{pickled if name == 'GAS' else ''}.")
    with guarded(path, f"the data of {name}"):
        parts = load(path)
        data = folder(path.parent, source=f"{name}, UCI or BSDS, by the MAF authors")
        return _standardised(*parts, data)


def _standardised(train: NDArray, valid: NDArray, test: NDArray, data: Data) -> Tabular:
    if min(len(rows) for rows in (train, valid, test)) < 1 or not train.shape[1]:
        sizes = ", ".join(str(rows.shape) for rows in (train, valid, test))
        raise DataError(f"Training, validation and test rows are left with shapes {sizes}; none may be empty.")
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = train.mean(0), train.std(0)
    if not np.isfinite(scale).all():
        raise DataError(
            f"Column {int(np.argmin(np.isfinite(scale)))} of the training rows is too large to standardise."
        )
    if not (scale > 0).all():
        raise DataError(f"Column {int(np.argmin(scale))} of the training rows is constant and has no density.")
    with np.errstate(over="ignore"):
        train, valid, test = (((rows - mean) / scale).astype(np.float32) for rows in (train, valid, test))
    for which, rows in (("training", train), ("validation", valid), ("test", test)):
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0]
            raise DataError(f"The {which} rows, row {row}, column {column}: too far from the mean for float32.")
    return Tabular(train, valid, test, data)


def _breast_cancer(_: np.random.Generator) -> tuple[NDArray, Data]:
    data = package_file("sklearn", "datasets/data/breast_cancer.csv", licence="CC-BY-4.0", extra="minpv")
    rows = np.loadtxt(str(data.path), delimiter=",", skiprows=1)[:, :10]
    # Radius, perimeter and area are one number thrice; perimeter and area are left out.
    return np.delete(rows, (2, 3), axis=1), stand_in(data, "MINIBOONE")


def _digits(rng: np.random.Generator) -> tuple[NDArray, Data]:
    images, _, data = digits("BSDS300")
    blocks = images.reshape(len(images), 4, 2, 4, 2).mean((2, 4)).reshape(len(images), 16)
    return blocks + rng.uniform(0, 0.25, blocks.shape), data


OFFLINE: Mapping[str, Callable[[np.random.Generator], tuple[NDArray, Data]]] = {
    "breast_cancer": _breast_cancer,
    "digits": _digits,
}


def _array(path: Path) -> NDArray:
    with guarded(path, "a plain numpy array"):
        return _numbers(np.load(path, allow_pickle=False), path)


def _numbers(found: Any, where: Path | str) -> NDArray:
    """The array (n, d) if its numbers are real and finite."""
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "biuf" or not found.size:
        got = f"{found.dtype} of shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
        raise DataError(f"{where} must hold one array (n, d) of real numbers, not {got}.")
    finite = np.isfinite(found)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise DataError(f"{where}, row {row}, column {column} is {found[row, column]}; all must be finite.")
    return found


def _thirds(rows: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """The last tenth is the test, a tenth of the rest validation."""
    if len(rows) < 11:
        raise DataError(f"{len(rows)} rows are too few for training, validation and test; there must be 11.")
    test = len(rows) // 10
    valid = (len(rows) - test) // 10
    return rows[: -test - valid], rows[-test - valid : -test], rows[-test:]


def _power(path: Path) -> tuple[NDArray, NDArray, NDArray]:
    rows = _array(path)
    if rows.shape[1] != 8:
        raise DataError(f"{path} has {rows.shape[1]} columns; the published POWER has 8.")
    rng = np.random.RandomState(42)  # noise against rounding, as published
    rng.shuffle(rows)
    n = len(rows)
    rows = np.delete(np.delete(rows, 3, axis=1), 1, axis=1)
    voltage, active = 0.01 * rng.rand(n, 1), 0.001 * rng.rand(n, 1)
    sub, time = rng.rand(n, 3), np.zeros((n, 1))
    return _thirds(rows + np.hstack((active, voltage, sub, time)))


def _gas(path: Path) -> tuple[NDArray, NDArray, NDArray]:
    import polars as pl

    frame = read_table(path)
    frame = frame.drop([c for c in ("Meth", "Eth", "Time") if c in frame.columns])
    for name, kind in frame.schema.items():
        if not kind.is_numeric():
            raise DataError(f"{path}: column {name[:60]!r} is {kind}, and must be numbers.")
    rows = _numbers(frame.cast(pl.Float64).drop_nulls().to_numpy(), path)
    if not (rows.std(0) > 0).all():
        raise DataError(f"{path}: column {frame.columns[int(np.argmin(rows.std(0)))][:60]!r} is constant.")
    # As published: columns that correlate above 0.98 with others leave, first found first.
    while True:
        many = (np.atleast_2d(np.corrcoef(rows.T)) > 0.98).sum(1)
        if not (many > 1).any():
            break
        rows = np.delete(rows, int(np.argmax(many > 1)), axis=1)
    return _thirds(rows)


def _hepmass(path: Path) -> tuple[NDArray, NDArray, NDArray]:
    import polars as pl

    parts = []
    for file in (path, path.with_name("1000_test.csv")):
        if not file.exists():
            raise DataError(f"HEPMASS needs {file} too.")
        with guarded(file, "a table of HEPMASS"):
            frame = pl.read_csv(file)
            given = frame.cast(pl.Float64, strict=False)
            for name in frame.columns:
                lost = frame[name].is_not_null() & given[name].is_null()
                if lost.any():
                    row = int(lost.arg_max() or 0)
                    raise DataError(
                        f"{file}, row {row + 1}, column {name[:60]!r} is {str(frame[name][row])[:60]!r}, no number."
                    )
            # Only a column that ends every line with a comma is empty as a whole.
            rows = given.to_numpy()
            rows = _numbers(rows[:, ~np.isnan(rows).all(0)], file)
            rows = rows[rows[:, 0] == 1][:, 1:]
            if not rows.size:
                raise DataError(f"{file} has no rows of class 1 with values.")
            parts.append(rows)
    train, test = parts[0], parts[1][:, : parts[0].shape[1]]
    if test.shape[1] < train.shape[1]:
        raise DataError(f"{path.with_name('1000_test.csv')} has {test.shape[1]} columns of values, {path} has more.")
    # Columns with few values that repeat are not continuous: as published, any value over 5 times leaves its column.
    keep = [k for k in range(train.shape[1]) if np.unique(train[:, k], return_counts=True)[1].max() <= 5]
    valid = len(train) // 10
    if not keep or not valid:
        raise DataError(f"{path}: {len(train)} rows of class 1 with {len(keep)} continuous columns are too few.")
    return train[:-valid][:, keep], train[-valid:][:, keep], test[:, keep]


def _miniboone(path: Path) -> tuple[NDArray, NDArray, NDArray]:
    return _thirds(_array(path))


def _bsds(path: Path) -> tuple[NDArray, NDArray, NDArray]:
    try:
        import h5py
    except ImportError:
        raise UsageError("BSDS300 is an HDF5 file and h5py is missing; run: pip install h5py") from None
    parts = []
    with guarded(path, "an HDF5 file"), h5py.File(path, "r") as file:
        for key in ("train", "validation", "test"):
            if key not in file:
                raise DataError(f"{path} lacks the data set {key!r}.")
            held = file[key]
            if not isinstance(held, h5py.Dataset) or held.nbytes > MAX_BYTES:
                raise DataError(f"{path}: {key!r} is no data set of at most {MAX_BYTES:,} bytes.")
            parts.append(_numbers(np.asarray(held), f"{path}: {key!r}"))
    if len({part.shape[1] for part in parts}) != 1:
        raise DataError(f"{path}: the data sets have {', '.join(str(p.shape[1]) for p in parts)} columns.")
    return parts[0], parts[1], parts[2]


PUBLISHED: Mapping[str, tuple[str, Callable[[Path], tuple[NDArray, NDArray, NDArray]]]] = {
    "POWER": ("power/data.npy", _power),
    "GAS": ("gas/ethylene_CO.parquet", _gas),
    "HEPMASS": ("hepmass/1000_train.csv", _hepmass),
    "MINIBOONE": ("miniboone/data.npy", _miniboone),
    "BSDS300": ("BSDS300/BSDS300.hdf5", _bsds),
}


def load_pairs(path: Path | str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Samples of p0 and p1: a folder with ``x0.npy`` and ``x1.npy``, or a CSV file whose ``source`` is 0 or 1."""
    path = Path(path)
    if path.is_dir():
        missing = [name for name in ("x0.npy", "x1.npy") if not (path / name).exists()]
        if missing:
            raise DataError(f"{path} has no {missing[0]}.")
        x0, x1 = (_array(path / name).astype(float) for name in ("x0.npy", "x1.npy"))
    elif path.is_file():
        x0, x1 = _from_csv(path)
    else:
        raise DataError(f"{path} is neither a folder with x0.npy and x1.npy nor a CSV file.")
    if x0.shape[1] != x1.shape[1]:
        raise DataError(f"{path}: x0 has {x0.shape[1]} columns and x1 has {x1.shape[1]}; they must be the same.")
    return x0, x1


def _from_csv(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows: dict[str, list[list[float]]] = {"0": [], "1": []}
    for number, line in read_rows(path, ("source",)):
        source = line.pop("source").strip()
        if source not in rows:
            raise DataError(f"{path}, line {number}: source is {source[:60]!r}; it must be 0 or 1.")
        if not line:
            raise DataError(f"{path}: beside 'source' at least one column of values is needed.")
        rows[source].append([_number(cell, f"{path}, line {number}", name) for name, cell in line.items()])
    if not rows["0"] or not rows["1"]:
        raise DataError(f"{path}: there are no rows of source {'0' if not rows['0'] else '1'}.")
    return np.array(rows["0"]), np.array(rows["1"])


def _number(cell: str, where: str, name: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{where}: a value is missing or no finite number: {name[:60]!r} is {cell[:60]!r}.")
    return value
