"""For xarray: ``xarray.open_dataarray(path, engine="irregular")``, and what such arrays can do as ``array.irr``.

Importing this module registers the accessor. xarray finds the engine by an entry point, and imports this module then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xarray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from assay.core.errors import DataError, UsageError, unknown_name
from assay.learning.irregular import checks, converters, dense, describing, files, readers
from assay.learning.irregular.array import DIMS, Array, IrregularArray

NAME = "data"


class LazyValues(BackendArray):
    """Values of a file that are read when they are needed, and then only the stretch that holds the series wanted."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.dtype = np.dtype(np.float64)
        self._path = path

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """sparse COO array of a part."""
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._part)

    def _part(self, key: tuple[Any, ...]) -> Any:
        series = np.arange(self.shape[0])[key[0]]
        rows = np.unique(series)
        with files.HDF5File(self._path) as file:
            array = file.read(rows if len(rows) < self.shape[0] else None, compact=False)
        # Axes one by one: a position takes its axis away, so that the last goes first.
        found = converters.to_xarray(array).data
        for axis, pick in ((2, key[2]), (1, key[1]), (0, np.searchsorted(rows, series))):
            if isinstance(pick, slice) or np.ndim(pick):
                found = found[(slice(None),) * axis + (pick,)]
            else:
                found = found[(slice(None),) * axis + (int(pick),)]
        return found


class IrregularBackend(BackendEntrypoint):
    """Engine for files in the published layout. Values stay in the file until they are used."""

    description = "Irregular time series in HDF5, in the layout that pyrregular publishes"
    open_dataset_parameters: ClassVar[tuple[str, ...]] = ("filename_or_obj", "drop_variables")

    def open_dataset(self, filename_or_obj: Any, *, drop_variables: Any = None) -> xarray.Dataset:
        """Data set with one variable, ``data``, and all coordinates but those in ``drop_variables``."""
        if not isinstance(filename_or_obj, (str, Path)):
            raise UsageError("Engine 'irregular' opens paths of files, not open files or other objects.")
        path = Path(filename_or_obj)
        with files.HDF5File(path) as file:
            head = file.head()
        values = indexing.LazilyIndexedArray(LazyValues(path, head.shape))
        found = xarray.Dataset({NAME: (DIMS, values, dict(head.attrs))}, coords=head.coordinates())
        return found.drop_vars([drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ()))


@xarray.register_dataarray_accessor("irr")
class IrregularAccessor:
    """``array.irr``: conversions, targets, checks; ``array.irr[...]`` selects and drops unused time stamps."""

    def __init__(self, found: xarray.DataArray) -> None:
        self._found = found

    @property
    def array(self) -> IrregularArray:
        """The same as `IrregularArray`."""
        return converters.from_xarray(self._found)

    def __getitem__(self, key: Any) -> xarray.DataArray:
        """As ``array[key]``, without the time stamps at which nothing is stored any more."""
        part = self._found[key]
        if "time_id" not in part.dims:
            return part
        if not hasattr(part.data, "fill_value"):
            raise DataError("array.irr needs sparse values, as the engine 'irregular' and `to_xarray` give them.")
        axis = part.dims.index("time_id")
        used, places = np.unique(part.data.coords[axis], return_inverse=True)
        if len(used) == part.sizes["time_id"]:
            return part
        coords = part.data.coords.copy()
        coords[axis] = places.ravel()
        shape = tuple(len(used) if i == axis else n for i, n in enumerate(part.shape))
        values = type(part.data)(coords, part.data.data, shape=shape, fill_value=part.data.fill_value)
        kept = {
            name: c.isel(time_id=used) if "time_id" in c.dims else c for name, c in part.coords.items()
        }  # fmt: skip
        return xarray.DataArray(values, dims=part.dims, coords=kept, attrs=part.attrs, name=part.name)

    def get_task(self, task: str = "default") -> dict[str, Any]:
        """A config: its task, target and split."""
        configs = self._found.attrs.get("configs") or {}
        if task not in configs:
            raise unknown_name("config of this data set", task, configs)
        return dict(configs[task])

    def get_task_target_and_split(self, task: str = "default") -> tuple[Array, Array]:
        """(y, split) of a config, one value a series."""
        return self.array.target_and_split(task)

    def to_dense(self, **options: Any) -> tuple[Array, Array]:
        """(X, T); options as of `dense.to_dense`."""
        return dense.to_dense(self.array, **options)

    def to_list(self, **options: Any) -> tuple[list[Array], list[Array]]:
        """Series by series; see `dense.to_list`."""
        return dense.to_list(self.array, **options)

    def to_long(self, static: bool = True) -> Any:
        """Long polars frame."""
        return readers.to_long(self.array, static)

    def to_tslearn(self, **options: Any) -> Array:
        """Values with axes (n, T, channels)."""
        return converters.to_tslearn(self.array, **options)

    def to_aeon(self, **options: Any) -> Any:
        """Values with axes (n, channels, T), or a list of unequal series."""
        return converters.to_aeon(self.array, **options)

    def to_sktime(self, **options: Any) -> Any:
        """pandas panel; options as of `converters.to_sktime`."""
        return converters.to_sktime(self.array, **options)

    def to_awkward(self) -> Any:
        """awkward array n x channels x var."""
        return converters.to_awkward(self.array)

    def to_hdf5(self, path: Path | str, compression: int = 1) -> None:
        """Write the published layout."""
        files.write_hdf5(self.array, path, compression)

    def check_regularity(self, check: Any, ts_level: bool = True, return_percentage: bool = True) -> Any:
        """See `checks.check_regularity`."""
        return checks.check_regularity(check, self.array, ts_level, return_percentage)

    def statistics(self) -> dict[str, Any]:
        """See `describing.statistics`."""
        return describing.statistics(self.array)
