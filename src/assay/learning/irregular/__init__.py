"""Irregular time series: one sparse array, readers and converters, data sets, classifiers, a benchmark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.learning.irregular.array import IrregularArray, from_coordinates, from_dense
    from assay.learning.irregular.benchmark import Irregular
    from assay.learning.irregular.checks import CHECKS, check_regularity, irregularities, problems
    from assay.learning.irregular.converters import (
        SeriesDataset,
        collate,
        from_xarray,
        to_aeon,
        to_awkward,
        to_sktime,
        to_tslearn,
        to_xarray,
    )
    from assay.learning.irregular.data import list_datasets, list_paper_datasets, load_dataset
    from assay.learning.irregular.dense import to_dense, to_list
    from assay.learning.irregular.describing import report, statistics, twins
    from assay.learning.irregular.files import HDF5File, read_hdf5, write_hdf5
    from assay.learning.irregular.generators import abf, drop, ragged, uneven
    from assay.learning.irregular.methods.elastic import dtw, lcss
    from assay.learning.irregular.methods.factories import get_model, list_paper_models
    from assay.learning.irregular.readers import from_long, read_csv, read_parquet, to_long, write_csv, write_parquet
    from assay.learning.irregular.tsfile import read_ts, write_ts

_HOMES = {
    "CHECKS": "checks",
    "HDF5File": "files",
    "Irregular": "benchmark",
    "IrregularArray": "array",
    "SeriesDataset": "converters",
    "abf": "generators",
    "check_regularity": "checks",
    "collate": "converters",
    "drop": "generators",
    "dtw": "methods.elastic",
    "from_coordinates": "array",
    "from_dense": "array",
    "from_long": "readers",
    "from_xarray": "converters",
    "get_model": "methods.factories",
    "irregularities": "checks",
    "lcss": "methods.elastic",
    "list_datasets": "data",
    "list_paper_datasets": "data",
    "list_paper_models": "methods.factories",
    "load_dataset": "data",
    "problems": "checks",
    "ragged": "generators",
    "read_csv": "readers",
    "read_hdf5": "files",
    "read_parquet": "readers",
    "read_ts": "tsfile",
    "report": "describing",
    "statistics": "describing",
    "to_aeon": "converters",
    "to_awkward": "converters",
    "to_dense": "dense",
    "to_list": "dense",
    "to_long": "readers",
    "to_sktime": "converters",
    "to_tslearn": "converters",
    "to_xarray": "converters",
    "twins": "describing",
    "uneven": "generators",
    "write_csv": "readers",
    "write_hdf5": "files",
    "write_parquet": "readers",
    "write_ts": "tsfile",
}

__all__ = [
    "CHECKS",
    "HDF5File",
    "Irregular",
    "IrregularArray",
    "SeriesDataset",
    "abf",
    "check_regularity",
    "collate",
    "drop",
    "dtw",
    "from_coordinates",
    "from_dense",
    "from_long",
    "from_xarray",
    "get_model",
    "irregularities",
    "lcss",
    "list_datasets",
    "list_paper_datasets",
    "list_paper_models",
    "load_dataset",
    "problems",
    "ragged",
    "read_csv",
    "read_hdf5",
    "read_parquet",
    "read_ts",
    "report",
    "statistics",
    "to_aeon",
    "to_awkward",
    "to_dense",
    "to_list",
    "to_long",
    "to_sktime",
    "to_tslearn",
    "to_xarray",
    "twins",
    "uneven",
    "write_csv",
    "write_hdf5",
    "write_parquet",
    "write_ts",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
