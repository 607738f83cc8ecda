"""HDF5 files in the published layout: read, a part at a time if asked, and written; strings are never run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from assay.core.datasets.readers import guarded
from assay.core.errors import DataError, MissingExtra
from assay.learning.irregular.array import DIMS, Array, IrregularArray

# Attributes longer than this are kept as text: a parser of nested literals could be driven out of memory.
_LONGEST_LITERAL = 1 << 20


def read_hdf5(path: Path | str) -> IrregularArray:
    """The whole array of a file; see `HDF5File` for a part of it.

    Raises
    ------
    DataError
        No HDF5 file, a data set of the layout is missing, or coordinates do not fit.
    """
    with HDF5File(path) as file, guarded(path, "HDF5 of irregular series"):
        return file.read()


class HDF5File:
    """An open file whose ids, static coordinates and attributes are read, and whose values are not until asked for.

    Attributes
    ----------
    ts_id, signal_id, time_id
        Ids.
    static, attrs
        As in `IrregularArray`.
    shape
        (series, signals, time stamps).
    nnz
        Stored values.
    """

    def __init__(self, path: Path | str) -> None:
        try:
            import h5py
        except ImportError as error:
            raise MissingExtra("Reading HDF5 files", "irregular") from error
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"File {path} does not exist.")
        try:
            self._file = h5py.File(self.path, "r")
        except OSError as error:
            raise DataError(f"{path} is no HDF5 file: {error}.") from error
        try:
            with guarded(self.path, "HDF5 of irregular series"):
                self._read_head()
        except DataError:
            self._file.close()
            raise

    def __enter__(self) -> HDF5File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_head(self) -> None:
        file, path = self._file, self.path
        for name in ("data", "coords", "dims", "coords_xarray", "coords_xarray_dims"):
            if name not in file:
                raise DataError(
                    f"{path} has no {name!r}; a file of this format holds data, coords, dims and coords_xarray."
                )
        attrs: Mapping[str, Any] = file.attrs
        dims = tuple(_text(np.asarray(file["dims"])))
        if dims != DIMS:
            raise DataError(f"{path}: dims are {dims}, not {DIMS}.")
        if "__shape" not in attrs:
            raise DataError(f"{path} has no attribute '__shape'.")
        self.shape: tuple[int, ...] = tuple(int(k) for k in np.asarray(attrs["__shape"]))
        self.nnz = int(file["data"].shape[0])  # type: ignore[union-attr]
        if file["coords"].shape != (3, self.nnz):  # type: ignore[union-attr]
            raise DataError(f"{path}: coords has shape {file['coords'].shape}, not (3, {self.nnz}).")  # type: ignore[union-attr]
        listed = _as_written(file)
        self.attrs: dict[str, Any] = {k: literal(attrs[k]) for k in listed if not k.startswith("__")}
        ids: dict[str, Array] = {}
        self.static: dict[str, tuple[str, Array]] = {}
        # A coordinate's type is written just before it, so that attributes tell the order of coordinates.
        typed = [k[2:-5] for k in listed if k.startswith("__") and k.endswith("/type")]
        held = list(file["coords_xarray"])  # type: ignore[arg-type]
        self.order = tuple(name for name in dict.fromkeys([*typed, *held]) if name in held)
        for name in self.order:
            values = _coordinate(np.asarray(file[f"coords_xarray/{name}"]), attrs, name, path)
            of = tuple(_text(np.asarray(file[f"coords_xarray_dims/{name}"])))
            if len(of) != 1 or of[0] not in DIMS:
                raise DataError(f"{path}: coordinate {name!r} lies on {of}, not on one of {', '.join(DIMS)}.")
            if len(values) != self.shape[DIMS.index(of[0])]:
                raise DataError(f"{path}: coordinate {name!r} has {len(values)} values for {of[0]} of another length.")
            if name in DIMS:
                ids[name] = values
            else:
                self.static[name] = (of[0], values)
        for dim, size in zip(DIMS, self.shape):
            ids.setdefault(dim, np.arange(size))
        self.ts_id, self.signal_id, self.time_id = (ids[dim] for dim in DIMS)

    def head(self) -> IrregularArray:
        """Ids, static coordinates and attributes, without any value."""
        nothing = (np.zeros(0), np.zeros((3, 0), np.int64))
        return IrregularArray(
            *nothing, self.ts_id, self.signal_id, self.time_id, self.static, self.attrs, self.order
        )  # fmt: skip

    def read(self, series: ArrayLike | slice | None = None, *, compact: bool = True) -> IrregularArray:
        """All series, or those at some positions, of which only the stretch of the file that holds them is read.

        ``compact`` drops the time stamps at which nothing of some series is stored.
        """
        first, stop = 0, self.nnz
        coords = self._file["coords"]
        if series is not None and self.nnz:
            rows = np.arange(self.shape[0])[series if isinstance(series, slice) else np.asarray(series)]
            owner = np.asarray(coords[0])  # type: ignore[index]
            if len(rows) and bool((np.diff(owner) >= 0).all()):
                first = int(np.searchsorted(owner, rows.min(), "left"))
                stop = int(np.searchsorted(owner, rows.max(), "right"))
        places = np.asarray(coords[:, first:stop], np.int64)  # type: ignore[index]
        data = np.asarray(self._file["data"][first:stop], float)  # type: ignore[index]
        bad = (places < 0) | (places >= np.array(self.shape)[:, None])
        if bad.any():
            at = int(np.nonzero(bad.any(axis=0))[0][0]) + first
            raise DataError(
                f"{self.path}: coords column {at} {places[:, at - first].tolist()} lies outside {self.shape}."
            )
        order = np.lexsort(places[::-1])
        if not bool((order == np.arange(len(order))).all()):
            data, places = data[order], places[:, order]
        whole = IrregularArray(
            data, places, self.ts_id, self.signal_id, self.time_id, self.static, self.attrs, self.order
        )
        return whole if series is None else whole.select(series, compact=compact)


def write_hdf5(array: IrregularArray, path: Path | str, compression: int = 1) -> None:
    """Write a file in the published layout: gzip, text as bytes, attributes as text.

    Data sets, filters, attributes and their order are those of pyrregular 0.4.2; small files are the same to the byte.

    Parameters
    ----------
    compression
        Level of gzip, 0 to 9; published files have 1, older ones 4.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra("Writing HDF5 files", "irregular") from error
    with h5py.File(path, "w") as file:
        for name, values in (("data", array.data), ("coords", array.coords)):
            file.create_dataset(name, data=values, compression="gzip", compression_opts=compression)
        file.attrs["__shape"] = array.shape
        file.create_dataset("dims", data=np.array(DIMS, dtype="S"))
        for name, (dim, found) in array.coordinates().items():
            values = np.asarray(found)
            kind = values.dtype.kind
            if kind == "M":
                file.attrs[f"__{name}/unit"] = np.datetime_data(values.dtype)[0]
                values = values.astype(np.int64)
            elif kind == "U" or (kind == "O" and all(isinstance(v, str) for v in values)):
                values, kind = _bytes(values), "U"
            elif kind not in "iufb":
                raise DataError(f"Coordinate {name!r} of type {values.dtype} cannot be written; use text or numbers.")
            file.attrs[f"__{name}/type"] = kind
            file.create_dataset(f"coords_xarray/{name}", data=values)
            file.create_dataset(f"coords_xarray_dims/{name}", data=np.array([dim], dtype="S"))
        for key, value in array.attrs.items():
            try:
                file.attrs[key] = str(value)
            except ValueError as error:
                raise DataError(f"Attribute {key!r} cannot be written as text: {error}.") from error


def _as_written(file: Any) -> list[str]:
    """Names of a file's attributes in the order in which they were written; h5py itself lists them by name."""
    import h5py

    names: list[str] = []
    # The callback must return None: anything else ends the iteration.
    h5py.h5a.iterate(file.id, lambda name, *_: names.append(name.decode()), order=h5py.h5.ITER_NATIVE)
    return names


def literal(value: Any) -> Any:
    """A Python literal that an attribute holds as text (numbers, dictionaries, lists ...), else the text itself."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str) or len(value) > _LONGEST_LITERAL:
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _text(values: Array) -> list[str]:
    return [v.decode() if isinstance(v, bytes) else str(v) for v in values.ravel()]


def _bytes(values: Array) -> Array:
    try:
        return values.astype("S")
    except UnicodeEncodeError:
        # What is not ASCII goes in as UTF-8, which `_coordinate` reads back.
        return np.array([str(v).encode() for v in values])


def _coordinate(values: Array, attrs: Mapping[str, Any], name: str, path: Path) -> Array:
    kind = attrs.get(f"__{name}/type", values.dtype.kind)
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind == "M":
        unit = attrs.get(f"__{name}/unit", "ns")
        unit = unit.decode() if isinstance(unit, bytes) else str(unit)
        try:
            return values.astype(np.int64).astype(f"datetime64[{unit}]").astype("datetime64[ns]")
        except TypeError as error:
            raise DataError(f"{path}: attribute '__{name}/unit' is {unit!r}, which is no unit of time.") from error
    if values.dtype.kind == "S" or kind in ("U", "O"):
        if values.dtype.kind in "SO":
            # The width stays as it is in the file, so that the array writes the same file again.
            width = values.dtype.itemsize if values.dtype.kind == "S" else ""
            text = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
            return np.array(text, dtype=f"U{width}")
        return values.astype("U") if kind == "U" else values
    return values
