"""Data sets of the user's own: a long table ``NAME.csv`` or ``NAME.parquet`` and what ``NAME.yaml`` tells about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from assay.core.datasets.readers import read_yaml, require, shown
from assay.core.errors import DataError
from assay.learning.irregular.array import DIMS, Array, IrregularArray
from assay.learning.irregular.builders import encode, stratified, without_empty
from assay.learning.irregular.readers import DUPLICATES, read_csv, read_parquet

COLUMNS = (*DIMS, "value_id")
_KEYS = {
    "title": str, "author": list, "source": str, "license": str, "configs": dict,
    "columns": dict, "static": dict, "dates": bool, "duplicates": str,
}  # fmt: skip
_SIDES = ("TRAIN", "TEST")
_TASKS = ("classification", "regression", "other")

TEMPLATE = """\
# What assay should know about NAME.csv, a table with one observation a row. Only configs is needed.
title: NAME
author: [Who collected it]
source: Where it is from
license: CC-BY-4.0

# Columns of the table, where they are not called ts_id, signal_id, time_id and value_id.
columns: {ts_id: patient, signal_id: vital, time_id: time, value_id: value}
# Columns with one value a series (or signal, or time stamp): labels, splits, covariates.
static: {ts_id: [outcome, side]}
# Times are dates, or epoch seconds; false = plain numbers.
dates: true
# Two values of one signal at one time: error, first, last or mean.
duplicates: error

# What is to be learnt. Without split, 30 % of the series of each class are the test side.
configs:
  default: {task: classification, target: outcome, split: side}
"""
EXAMPLE = """\
patient,vital,time,value,outcome,side
p1,pulse,2024-03-01 08:00:00,71,well,train
p1,pulse,2024-03-01 09:30:00,74,well,train
p1,temperature,2024-03-01 08:00:00,36.6,well,train
p2,pulse,2024-03-02 10:00:00,102,ill,train
p2,temperature,2024-03-02 10:05:00,38.9,ill,train
p3,pulse,2024-03-02 11:00:00,68,well,test
p4,pulse,2024-03-04 07:10:00,110,ill,test
p4,temperature,2024-03-04 07:15:00,39.2,ill,test
"""


def holds(folder: Path, name: str) -> bool:
    """Whether a folder holds a data set of that name in a form that needs no builder."""
    archive = [(place / f"{name}_{side}.ts").is_file() for place in (folder, folder / name) for side in _SIDES]
    table = (folder / f"{name}.yaml").is_file() and _table(folder, name) is not None
    return (folder / f"{name}.h5").is_file() or all(archive[:2]) or all(archive[2:]) or table


def _table(folder: Path, name: str) -> Path | None:
    return next((p for suffix in ("csv", "parquet") if (p := folder / f"{name}.{suffix}").is_file()), None)


def read_metadata(path: Path | str) -> dict[str, Any]:
    """The YAML file of a data set: title, author, source, license, configs; for a table its columns too.

    Raises
    ------
    DataError
        No YAML, a field that is not known or of another type, a config without a task or target.
    """
    found = read_yaml(path, extra="irregular")
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold fields like title and configs, not a {type(found).__name__}.")
    for key, value in found.items():
        if key not in _KEYS:
            raise DataError(f"{path}: field {key!r} is not one of {', '.join(_KEYS)}.")
        if not isinstance(value, _KEYS[key]):
            raise DataError(f"{path}: field {key!r} is {value!r}; it must be a {_KEYS[key].__name__}.")
    for name, config in found.get("configs", {}).items():
        task = config.get("task") if isinstance(config, dict) else None
        if task not in _TASKS or (task != "other" and "target" not in config):
            raise DataError(f"{path}: config {name!r} needs a task ({', '.join(_TASKS)}) and a target.")
        for part in ("target", "split"):
            if config.get(part) is not None or (part == "target" and task != "other"):
                require(config, part, str, f"{path}, config {name!r}")
    for key in found.get("columns", {}):
        require(found["columns"], key, str, f"{path}, columns")
    if found.get("duplicates", "error") not in DUPLICATES:
        raise DataError(
            f"{path}: field 'duplicates' is {shown(found['duplicates'])}; it must be {', '.join(DUPLICATES)}."
        )
    for dim, names in found.get("static", {}).items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{path}: field 'static' has {shown(names)} under {dim!r}; give a list of columns.")
    unknown = [key for key in found.get("columns", {}) if key not in COLUMNS]
    if unknown:
        raise DataError(f"{path}: columns names {unknown[0]!r}; known are {', '.join(COLUMNS)}.")
    return found


def build_own(folder: Path, name: str) -> IrregularArray:
    """Array of a user's table.

    Series without a value go. A classification target that is not 0 to K - 1 is encoded in sorted order, and kept
    under its own name; a config without a split gets the stratified one (regression: 30 % at random), seed 42.
    """
    about = read_metadata(folder / f"{name}.yaml")
    path = _table(folder, name)
    if path is None:
        raise DataError(f"Folder {folder} holds {name}.yaml, but no {name}.csv or {name}.parquet.")
    read = read_parquet if path.suffix == ".parquet" else read_csv
    columns = {column: column for column in COLUMNS} | about.get("columns", {})
    array = without_empty(
        read(
            path, **columns, dims=about.get("static"), time_index_as_datetime=about.get("dates", True),
            duplicates=about.get("duplicates", "error"),
        )
    )  # fmt: skip
    configs = {key: dict(config) for key, config in about.get("configs", {}).items()}
    for key, config in configs.items():
        if config["task"] != "other":
            array = _prepared(array, key, config, path)
    described = {k: about[k] for k in ("title", "author", "source", "license") if k in about}
    return array.with_attrs(configs=configs, **({"title": name} | described))


def _prepared(array: IrregularArray, key: str, config: dict[str, Any], path: Path) -> IrregularArray:
    """Array with an encoded target and a split for a config, which then names them."""
    for part in ("target", "split"):
        name = config.get(part)
        if name is not None and (name not in array.static or array.static[name][0] != "ts_id"):
            raise DataError(f"{path}: config {key!r} names {part} {name!r}; list it under static, ts_id.")
    y = array.coordinate(config["target"])
    if config["task"] == "classification":
        codes = encode(_plain(y))
        if not (y.dtype.kind in "iu" and np.array_equal(y, codes)):
            config["target"] = f"class_{key}"
            array = array.with_static(**{config["target"]: codes})
    if config.get("split") is None:
        config["split"] = f"split_{key}"
        split = stratified(encode(_plain(y))) if config["task"] == "classification" else _random(len(array))
        array = array.with_static(**{config["split"]: split})
    return array


def _plain(y: Array) -> list[Any]:
    return [v.item() if hasattr(v, "item") else v for v in y]


def _random(n: int) -> Array:
    test = np.random.default_rng(42).permutation(n)[: max(1, round(0.3 * n))]
    split = np.full(n, "train")
    split[test] = "test"
    return split


def write_template(folder: Path, name: str) -> None:
    """``NAME.csv`` with eight example rows and ``NAME.yaml`` with every field, to be filled in."""
    for suffix, text in (("csv", EXAMPLE), ("yaml", TEMPLATE.replace("NAME", name))):
        target = folder / f"{name}.{suffix}"
        if target.exists():
            raise DataError(f"{target} exists already; it is not overwritten.")
        target.write_text(text, encoding="utf-8")
