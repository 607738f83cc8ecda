"""Builders of the three intensive-care data sets from their original files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from assay.core.errors import DataError
from assay.learning.irregular.array import IrregularArray
from assay.learning.irregular.builders import find, labelled, melt, regression, table, without_empty
from assay.learning.irregular.readers import from_long

MOTOR = {
    "Localizes Pain": 5, "Obeys Commands": 6, "Flex-withdraws": 4, "Abnormal Flexion": 3, "Abnormal extension": 2,
    "No response": 1,
}  # fmt: skip
EYE = {"Spontaneously": 4, "To Speech": 3, "To Pain": 2}
VERBAL = {
    "Oriented": 5, "Confused": 4, "Inappropriate Words": 3, "Incomprehensible sounds": 2, "No Response-ETT": 1,
    "1.0 ET/Trach": 1, "No Response": 1,
}  # fmt: skip
GLASGOW = {
    "Glascow coma scale motor response": MOTOR,
    "Glascow coma scale eye opening": EYE,
    "Glascow coma scale verbal response": VERBAL,
}
# Ages above 89 are shifted in MIMIC-III; the builder of the benchmark takes 211 years off.
_SHIFTED_AGE, _SHIFT = 300, 211
_DESCRIPTORS = ("RecordID", "Age", "Gender", "Height", "ICUType")


def physionet2012(folder: Path) -> IrregularArray:
    """``set-a/*.txt`` (train), ``set-b/*.txt`` (test), ``Outcomes-?.txt``; class = in-hospital death."""
    outcomes = pl.concat(
        [table(find(folder, f"Outcomes-{s}.txt")[0], ["RecordID", "SAPS-I", "In-hospital_death"]) for s in "ab"]
    )
    frames = []
    for side in ("a", "b"):
        for path in find(folder, f"set-{side}/*.txt"):
            frame = table(path, ["Time", "Parameter", "Value"])
            head = {p: v for p, v in frame.select("Parameter", "Value").iter_rows() if p in _DESCRIPTORS}
            if "RecordID" not in head:
                raise DataError(f"{path} has no row with the parameter RecordID.")
            frames.append(
                frame.filter(~pl.col("Parameter").is_in(_DESCRIPTORS) & pl.col("Parameter").is_not_null()).select(
                    pl.lit(int(head["RecordID"])).alias("RecordID"),
                    pl.lit(side).alias("set"),
                    *(pl.lit(float(head.get(d, -1))).alias(d) for d in _DESCRIPTORS[1:]),
                    pl.col("Time"),
                    pl.col("Parameter").cast(pl.String),
                    pl.col("Value").cast(pl.Float64),
                )
            )
    frame = pl.concat(frames).join(outcomes, on="RecordID", how="left")
    if frame["In-hospital_death"].null_count():
        record = frame.filter(pl.col("In-hospital_death").is_null())["RecordID"][0]
        raise DataError(f"Record {record} has no line in Outcomes-a.txt or Outcomes-b.txt.")
    hours = pl.col("Time").str.split(":")
    frame = frame.with_columns(
        (hours.list.get(0).cast(pl.Int64) * 3600 + hours.list.get(1).cast(pl.Int64) * 60).alias("seconds"),
        # A weight of -1 is none.
        pl.when((pl.col("Parameter") == "Weight") & (pl.col("Value") == -1))
        .then(None)
        .otherwise(pl.col("Value"))
        .alias("Value"),
    )
    static = [*_DESCRIPTORS[1:], "set", *[c for c in outcomes.columns if c != "RecordID"]]
    array = without_empty(
        from_long(frame, "RecordID", "Parameter", "seconds", "Value", {"ts_id": static}, duplicates="last")
    )
    split = np.where(array.coordinate("set") == "a", "train", "test")
    y = array.coordinate("In-hospital_death").astype(int)
    return labelled(array, y, split, regression=regression("SAPS-I"))


def physionet2019(folder: Path) -> IrregularArray:
    """``training_setA/*.psv`` (train) and ``training_setB/*.psv`` (test), hourly; class = ever septic."""
    statics = ["Age", "Gender", "Unit1", "Unit2", "HospAdmTime"]
    frames = []
    for side in ("A", "B"):
        for path in find(folder, f"training_set{side}/*.psv"):
            frame = table(path, ["ICULOS", "SepsisLabel", *statics], separator="|", null_values=["NaN"])
            frames.append(frame.with_columns(pl.lit(path.stem).alias("tid"), pl.lit(side.lower()).alias("set")))
    frame = pl.concat(frames, how="diagonal_relaxed")
    label = frame.group_by("tid").agg(pl.col("SepsisLabel").max())
    frame = frame.drop("SepsisLabel").join(label, on="tid")
    keys = ["tid", "ICULOS", *statics, "set", "SepsisLabel"]
    values = [c for c in frame.columns if c not in keys]
    dims = {"ts_id": [*statics, "set", "SepsisLabel"]}
    array = without_empty(
        from_long(melt(frame, keys, values), "tid", "variable", "ICULOS", "value", dims, duplicates="last")
    )
    split = np.where(array.coordinate("set") == "a", "train", "test")
    return labelled(array, array.coordinate("SepsisLabel").astype(int), split)


def mimic3(folder: Path) -> IrregularArray:
    """In-hospital mortality of the MIMIC-III benchmark, on the demo.

    Reads ``in-hospital-mortality/{train,test}/listfile.csv`` and ``*_timeseries.csv``, and
    ``root/{train,test}/SUBJECT/episode*.csv``.
    """
    labels, series = [], []
    for side in ("train", "test"):
        place = find(folder, f"in-hospital-mortality/{side}/listfile.csv")[0]
        listed = table(place, ["stay", "y_true"])
        labels.append(
            listed.with_columns(
                pl.lit(side).alias("side"), pl.col("stay").str.replace(r"_timeseries\.csv$", "").alias("id")
            )
        )
        for path in sorted(place.parent.glob("*_timeseries.csv")):
            series.append(
                _glasgow(table(path, ["Hours"], null_values=[""]), path).with_columns(
                    pl.lit(path.stem.removesuffix("_timeseries")).alias("id")
                )
            )
    if not series:
        raise DataError(f"Folder {folder} holds no file *_timeseries.csv.")
    ages = {}
    for path in find(folder, "root/*/*/episode*.csv"):
        if "timeseries" not in path.name:
            ages[f"{path.parent.name}_{path.stem}"] = float(table(path, ["Age"])["Age"][0])
    frame = pl.concat(series, how="diagonal_relaxed").join(pl.concat(labels), on="id", how="inner")
    unknown = set(frame["id"].unique()) - set(ages)
    if unknown:
        raise DataError(f"Stay {sorted(unknown)[0]} has no file root/*/SUBJECT/episode*.csv with its age.")
    fixed = {k: a if a < _SHIFTED_AGE else a - _SHIFT for k, a in ages.items()}
    frame = frame.with_columns(pl.col("id").replace_strict(fixed, return_dtype=pl.Float64).alias("Age_fix"))
    keys = ["id", "Hours", "y_true", "side", "Age_fix"]
    values = [c for c in frame.columns if c not in (*keys, "stay")]
    dims = {"ts_id": ["y_true", "side", "Age_fix"]}
    array = without_empty(
        from_long(melt(frame, keys, values), "id", "variable", "Hours", "value", dims, duplicates="last")
    )
    y, split = array.coordinate("y_true").astype(int), array.coordinate("side").astype(str)
    return labelled(array, y, split, regression=regression("Age_fix"))


def _glasgow(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Coma scores as numbers: ``4 Flex-withdraws`` begins with it, plain words are looked up."""
    columns = []
    for name, words in GLASGOW.items():
        if name not in frame.columns:
            continue
        text = frame[name].cast(pl.String)
        number = text.str.extract(r"^(\d+)(?:\s|$)").cast(pl.Float64)
        found = number.fill_null(text.replace_strict(words, default=None, return_dtype=pl.Float64))
        bad = text.filter(found.is_null() & text.is_not_null())
        bad = bad.filter(bad.cast(pl.Float64, strict=False).is_null())
        if len(bad):
            raise DataError(f"{path}: column {name!r} holds {bad[0]!r}, which is no known score.")
        columns.append(found.fill_null(text.cast(pl.Float64, strict=False)).alias(name))
    return frame.with_columns(columns)
