"""The common array as other libraries want it, and back from xarray."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from assay.core.errors import DataError, MissingExtra, unknown_name
from assay.learning.irregular.array import DIMS, Array, IrregularArray
from assay.learning.irregular.dense import to_dense, to_list


def to_tslearn(array: IrregularArray, **options: Any) -> Array:
    """Dense values with axes (n, T, channels), NaN after each end; options as of `to_dense`."""
    return np.ascontiguousarray(to_dense(array, **options)[0].transpose(0, 2, 1))


def to_aeon(array: IrregularArray, **options: Any) -> Array | list[Array]:
    """(n, channels, T) where all series have one length, else a list of (channels, T_i)."""
    series, _ = to_list(array, **options)
    return np.stack(series) if len({x.shape[1] for x in series}) == 1 else series


def to_sktime(array: IrregularArray, mtype: Literal["pd-multiindex", "nested_univ"] = "pd-multiindex") -> Any:
    """pandas panel of sktime.

    Parameters
    ----------
    mtype
        ``pd-multiindex``: a row a (series, time), a column a signal. ``nested_univ``: a row a series, a column a
        signal, in each cell a pandas series of that signal's own values and times.
    """
    import pandas as pd

    names = pd.Index([str(s) for s in array.signal_id])
    if mtype == "nested_univ":
        n, m, _ = array.shape
        bounds = np.searchsorted(array.coords[0] * m + array.coords[1], np.arange(n * m + 1))
        times = array.time_id[array.coords[2]]
        cells = [pd.Series(array.data[a:b], index=times[a:b]) for a, b in pairwise(bounds)]
        return pd.DataFrame({name: cells[j::m] for j, name in enumerate(names)}, index=pd.Index(array.ts_id))
    if mtype != "pd-multiindex":
        raise unknown_name("sktime panel", mtype, ("pd-multiindex", "nested_univ"))
    width = max(1, len(array.time_id))
    key, row = np.unique(array.coords[0] * width + array.coords[2], return_inverse=True)
    values = np.full((len(key), len(array.signal_id)), np.nan)
    values[row.ravel(), array.coords[1]] = array.data
    index = pd.MultiIndex.from_arrays(
        [array.ts_id[key // width], array.time_id[key % width]], names=["ts_id", "time_id"]
    )
    return pd.DataFrame(values, index=index, columns=names)


def to_awkward(array: IrregularArray) -> Any:
    """awkward array n x channels x var of the values of each signal; needs the package awkward."""
    try:
        import awkward
    except ImportError as error:
        raise MissingExtra("Conversion to awkward arrays", "irregular") from error
    n, m, _ = array.shape
    counts = np.bincount(array.coords[0] * m + array.coords[1], minlength=n * m)
    return awkward.unflatten(awkward.unflatten(awkward.Array(array.data), counts), np.full(n, m))


def to_xarray(array: IrregularArray) -> Any:
    """xarray.DataArray on a sparse COO array with fill value NaN, ids and static coordinates attached."""
    try:
        import sparse
        import xarray
    except ImportError as error:
        raise MissingExtra("Conversion to xarray", "irregular") from error
    values = sparse.COO(
        array.coords, array.data, shape=array.shape, fill_value=np.nan, sorted=True, has_duplicates=False
    )
    return xarray.DataArray(values, dims=DIMS, coords=array.coordinates(), attrs=dict(array.attrs))


def from_xarray(found: Any) -> IrregularArray:
    """Array of such a DataArray.

    Raises
    ------
    DataError
        Other dims, no sparse data, or another fill value.
    """
    if tuple(found.dims) != DIMS:
        raise DataError(f"A DataArray needs the dims {DIMS}, not {tuple(found.dims)}.")
    data = found.data
    if not hasattr(data, "coords") or not np.isnan(data.fill_value):
        raise DataError("A DataArray needs sparse COO data with fill value NaN.")
    ids = [np.asarray(found[dim].values) for dim in DIMS]
    static = {
        str(name): (str(found[name].dims[0]), np.asarray(found[name].values))
        for name in found.coords
        if name not in DIMS
    }
    coords = np.asarray(data.coords, np.int64)
    order = np.lexsort(coords[::-1])
    return IrregularArray(
        np.asarray(data.data, float)[order], coords[:, order], ids[0], ids[1], ids[2], static, dict(found.attrs),
        tuple(str(name) for name in found.coords),
    )  # fmt: skip


class SeriesDataset:
    """Torch-style data set: an item is (values [T_i, c] with 0 for missing, mask [T_i, c], times [T_i], target)."""

    def __init__(self, array: IrregularArray, task: str = "default", side: str | None = None) -> None:
        y, split = array.target_and_split(task)
        rows = np.arange(len(array)) if side is None else np.nonzero(split == side)[0]
        if len(rows) == 0:
            raise DataError(f"No series is on side {side!r}; sides are train and test.")
        part = array.select(rows)
        X, T = to_dense(part)
        self._lengths = part.lengths()
        self._values, self._times, self._targets = X, T[:, 0], y[rows]

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: int) -> tuple[Any, Any, Any, Any]:
        import torch

        k = int(self._lengths[at])
        x = torch.from_numpy(np.ascontiguousarray(self._values[at, :, :k].T))
        mask = ~torch.isnan(x)
        return (
            torch.nan_to_num(x),
            mask,
            torch.from_numpy(self._times[at, :k].copy()),
            torch.as_tensor(self._targets[at]),
        )


def collate(items: Sequence[tuple[Any, Any, Any, Any]]) -> dict[str, Any]:
    """Padded batch: values and mask [b, T, c], times [b, T], lengths [b], target [b]."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    values, masks, times, targets = zip(*items)
    return {
        "values": pad_sequence(list(values), batch_first=True),
        "mask": pad_sequence(list(masks), batch_first=True),
        "times": pad_sequence(list(times), batch_first=True),
        "lengths": torch.tensor([len(t) for t in times]),
        "target": torch.stack(list(targets)),
    }
