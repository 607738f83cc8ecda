"""Data sets from their original files: one builder a set, which names the files it reads.

Every builder is given a folder and reads the files below it under their original names. What comes out passes
`checks.problems`: classes are 0 to K - 1, series without a value are gone, splits are the published ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assay.core.datasets.readers import guarded, listed
from assay.core.errors import DataError, unknown_name
from assay.learning.irregular.array import Array, IrregularArray
from assay.learning.irregular.readers import from_long

CLASSIFICATION = {"task": "classification", "split": "split_default", "target": "class_default"}
PUBLIC_MODES = ("subway", "airplane", "train", "taxi", "bus")
GARMENT_TEST = tuple(f"{d}_{t}" for d, teams in (("finishing", (3, 7, 11)), ("sweing", (1, 6, 12))) for t in teams)
LDFPA_TAGS = {
    "010-000-024-033": "ANKLE_LEFT",
    "010-000-030-096": "ANKLE_RIGHT",
    "020-000-033-111": "CHEST",
    "020-000-032-221": "BELT",
}
PAMAP2_ACTIVITIES = {
    0: "transient", 1: "lying", 2: "sitting", 3: "standing", 4: "walking", 5: "running", 6: "cycling",
    7: "Nordic_walking", 9: "watching_TV", 10: "computer_work", 11: "car driving", 12: "ascending_stairs",
    13: "descending_stairs", 16: "vacuum_cleaning", 17: "ironing", 18: "folding_laundry", 19: "house_cleaning",
    20: "playing_soccer", 24: "rope_jumping",
}  # fmt: skip


def build(name: str, folder: Path) -> IrregularArray:
    """The data set ``name`` from original files below ``folder``.

    Raises
    ------
    UsageError
        No builder of that name.
    DataError
        Files or columns that are missing.
    """
    if name not in BUILDERS:
        raise unknown_name("builder", name, BUILDERS)
    from assay.learning.irregular.data import catalogue

    with guarded(folder, f"the original files of {name}"):
        array = without_empty(BUILDERS[name](Path(folder)))
    entry = catalogue()[name]
    return array.with_attrs(title=name, license=entry.licence, source=entry.source)


def find(folder: Path, pattern: str) -> list[Path]:
    """Files that match anywhere below a folder, sorted; DataError where there is none."""
    found = sorted(p for p in folder.rglob(pattern) if p.is_file())
    if not found:
        raise DataError(f"Folder {folder} holds no file {pattern!r}.")
    return found


def table(path: Path, needed: Sequence[str], **options: Any) -> pl.DataFrame:
    """A CSV file with the columns that a builder needs."""
    frame = _read(path, infer_schema_length=100_000, **options)
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r}; it has {listed(frame.columns, 20)}.")
    return frame


def _read(path: Path, **options: Any) -> pl.DataFrame:
    with guarded(path, "CSV"):
        return pl.read_csv(path, **options)


def without_empty(array: IrregularArray) -> IrregularArray:
    """Series without a value, and time stamps that then hold none, are gone."""
    kept = np.unique(array.coords[0])
    return array if len(kept) == len(array) else array.select(kept)


def encode(labels: Iterable[Any]) -> Array:
    """Classes 0 to K - 1 in sorted order."""
    return np.unique(np.asarray(list(labels)), return_inverse=True)[1].ravel()


def stratified(y: Array) -> Array:
    """The published rule: 70 % train, 30 % test, by class, seed 42."""
    from sklearn.model_selection import train_test_split

    counts = np.unique(y, return_counts=True)[1]
    if counts.min() < 2:
        raise DataError("A class has one series, which cannot be on both sides of a stratified split; drop it first.")
    test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=42)[1]
    split = np.full(len(y), "train")
    split[test] = "test"
    return split.astype("U5")


def labelled(array: IrregularArray, y: Array, split: Array | None = None, **configs: Any) -> IrregularArray:
    """With class and split (None = the stratified rule), and further configs."""
    array = array.with_static(class_default=y, split_default=stratified(y) if split is None else split)
    return array.with_attrs(configs={"default": dict(CLASSIFICATION), **configs})


def regression(target: str) -> dict[str, str]:
    """A regression config on the default split."""
    return {"task": "regression", "split": "split_default", "target": target}


def melt(frame: pl.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pl.DataFrame:
    """Long form with the columns ``variable`` and ``value``."""
    return frame.select([*keys, *values]).unpivot(values, index=keys).with_columns(pl.col("value").cast(pl.Float64))


def epoch(column: str, form: str) -> pl.Expr:
    """A text column of dates, as dates in UTC."""
    return pl.col(column).str.strip_chars().str.to_datetime(form, time_unit="ns")


def _tracks(path: Path, ids: str, label: str | None, time: str, values: Mapping[str, str], static: Sequence[str] = ()):
    frame = table(path, [ids, time, *values, *([label] if label else []), *static]).rename(dict(values))
    keys = [ids, time, *([label] if label else []), *static]
    long = melt(frame, keys, list(values.values()))
    dims = {"ts_id": [*([label] if label else []), *static]}
    return from_long(long, ids, "variable", time, "value", dims, time_index_as_datetime=True, duplicates="last")


def animals(folder: Path) -> IrregularArray:
    """``animals.csv`` in long form: tid, class, t, variable, value."""
    return _long_tracks(find(folder, "animals.csv")[0])


def vehicles(folder: Path) -> IrregularArray:
    """``vehicles.csv`` in long form: tid, class, t, variable, value; coordinates are divided by 1e5."""
    return _long_tracks(find(folder, "vehicles.csv")[0], 1e5)


def _long_tracks(path: Path, divisor: float = 1.0) -> IrregularArray:
    frame = table(path, ["tid", "class", "t", "variable", "value"])
    frame = frame.with_columns(pl.col("value") / divisor)
    array = from_long(frame, "tid", "variable", "t", "value", {"ts_id": ["class"]}, True, duplicates="last")
    return labelled(array, encode(array.coordinate("class")))


def taxi(folder: Path) -> IrregularArray:
    """``taxi.csv``: tid, class, t, c1 (longitude), c2 (latitude)."""
    array = _tracks(find(folder, "taxi.csv")[0], "tid", "class", "t", {"c1": "longitude", "c2": "latitude"})
    return labelled(array, encode(array.coordinate("class")))


def seabirds(folder: Path) -> IrregularArray:
    """``seabirds.csv`` in long form: bird, species, year, colony2, date_time, variable, value."""
    path = find(folder, "seabirds.csv")[0]
    frame = table(path, ["bird", "species", "year", "colony2", "date_time", "variable", "value"])
    dims = {"ts_id": ["species", "year", "colony2"]}
    array = from_long(frame, "bird", "variable", "date_time", "value", dims, True, duplicates="last")
    return _with_speed(labelled(array, encode(array.coordinate("species"))), "lat", "lon")


def garment(folder: Path) -> IrregularArray:
    """``garments_worker_productivity.csv``: a series a team; class = last productivity above 0.75."""
    path = find(folder, "garments_worker_productivity.csv")[0]
    frame = table(path, ["date", "quarter", "department", "day", "team", "actual_productivity"])
    frame = frame.with_columns(
        epoch("date", "%m/%d/%Y"),
        (pl.col("department").str.replace_all(" ", "") + "_" + pl.col("team").cast(pl.String)).alias("ts_id"),
        pl.col("department").str.replace_all(" ", ""),
    )
    keys = ["ts_id", "date", "department", "team", "quarter", "day"]
    values = [c for c in frame.columns if c not in keys]
    dims = {"ts_id": ["department", "team"], "time_id": ["quarter", "day"]}
    array = from_long(melt(frame, keys, values), "ts_id", "variable", "date", "value", dims, True, duplicates="last")
    target = _last(array, "actual_productivity")
    array = array.select(signals=array.signal_id != "actual_productivity")
    array = array.with_static(productivity_numerical=target)
    split = np.where(np.isin(array.ts_id, GARMENT_TEST), "test", "train")
    return labelled(array, (target > 0.75).astype(int), split, regression=regression("productivity_numerical"))


def _last(array: IrregularArray, signal: str) -> Array:
    """Last value of a signal in each series, NaN where it has none."""
    place = int(np.nonzero(array.signal_id == signal)[0][0])
    mine = array.coords[1] == place
    out = np.full(len(array), np.nan)
    # Sorted by time inside a series, so that the last one written stays.
    out[array.coords[0][mine]] = array.data[mine]
    return out


def ldfpa(folder: Path) -> IrregularArray:
    """``ConfLongDemo_JSI.txt``: 4 tags x 3 coordinates; a series a sequence and activity; test = subject E."""
    names = ["sequence", "tag", "timestamp", "date", "x", "y", "z", "activity"]
    path = find(folder, "ConfLongDemo_JSI.txt")[0]
    frame = _read(path, has_header=False)
    if frame.width != len(names):
        raise DataError(f"{path} has {frame.width} columns, not {len(names)}.")
    frame.columns = names
    unknown = set(frame["tag"].unique()) - set(LDFPA_TAGS)
    if unknown:
        raise DataError(f"{path}: column tag holds {sorted(unknown)[0]!r}, which is no known tag.")
    codes = {name: i for i, name in enumerate(sorted(frame["activity"].unique()))}
    frame = frame.with_columns(
        epoch("date", "%d.%m.%Y %H:%M:%S:%3f"),
        pl.col("tag").replace_strict(LDFPA_TAGS),
        (pl.col("sequence") + "_" + pl.col("activity").replace_strict(codes).cast(pl.String)).alias("tid"),
        *(pl.col(c).cast(pl.Float64) for c in "xyz"),
    )
    long = melt(frame, ["tid", "tag", "date", "sequence", "activity"], ["x", "y", "z"])
    long = long.with_columns((pl.col("variable") + "_coordinate_" + pl.col("tag")).alias("variable"))
    dims = {"ts_id": ["sequence", "activity"]}
    array = from_long(long, "tid", "variable", "date", "value", dims, True, duplicates="last")
    split = np.where(np.char.startswith(array.coordinate("sequence"), "E"), "test", "train")
    return labelled(array, encode(array.coordinate("activity")), split)


def pamap2(folder: Path) -> IrregularArray:
    """``*.dat`` of Protocol and Optional: heart rate and three IMUs; a new series where activity or subject changes."""
    parts = ["temperature", *(f"acceleration_16g_{i}" for i in range(3)), *(f"acceleration_6g_{i}" for i in range(3))]
    parts += [
        f"{kind}_{i}" for kind, n in (("gyroscope", 3), ("magnetometer", 3), ("orientation", 4)) for i in range(n)
    ]
    signals = ["heart_rate", *(f"{place}_{part}" for place in ("hand", "chest", "ankle") for part in parts)]
    frames, count = [], 0
    for path in find(folder, "*.dat"):
        frame = _read(
            path, separator=" ", has_header=False, new_columns=["time", "activity", *signals],
            schema_overrides=dict.fromkeys(["time", "activity", *signals], pl.Float64), null_values=["NaN"],
        )  # fmt: skip
        if frame.width != len(signals) + 2:
            raise DataError(f"{path} has {frame.width} columns, not {len(signals) + 2}.")
        activity = frame["activity"].cast(pl.Int64)
        unknown = set(activity.unique()) - set(PAMAP2_ACTIVITIES)
        if unknown:
            raise DataError(f"{path}: activity {sorted(unknown)[0]} is no known one.")
        change = (activity != activity.shift(1)).fill_null(True).cast(pl.Int64).cum_sum() - 1 + count
        count = int(change.max()) + 1  # type: ignore[arg-type]
        subject = path.parent.name[:1] + path.stem.removeprefix("subject")
        frames.append(
            frame.with_columns(
                change.alias("ts_id"),
                activity.replace_strict(PAMAP2_ACTIVITIES).alias("activity_name"),
                pl.lit(subject).alias("subject_id"),
            )
        )
    frame = pl.concat(frames).filter(pl.col("activity_name") != "transient")
    many = frame.group_by("activity_name").agg(pl.col("ts_id").n_unique()).filter(pl.col("ts_id") > 1)
    frame = frame.filter(pl.col("activity_name").is_in(many["activity_name"].to_list()))
    if frame.is_empty():
        raise DataError("No activity has two series; a split by class cannot be made.")
    long = melt(frame, ["ts_id", "time", "activity_name", "subject_id"], signals)
    dims = {"ts_id": ["activity_name", "subject_id"]}
    array = without_empty(from_long(long, "ts_id", "variable", "time", "value", dims, duplicates="last"))
    return labelled(array, encode(array.coordinate("activity_name")))


def geolife_supervised(folder: Path) -> IrregularArray:
    """``geolife_supervised.csv``: tid, label, user, time, lat, lon; second config: private or public transport."""
    values = {"lat": "lat", "lon": "lon"}
    array = _tracks(find(folder, "geolife_supervised.csv")[0], "tid", "label", "time", values, ["user"])
    modes = array.coordinate("label")
    array = labelled(array, encode(modes))
    array = array.with_static(class_simplified=np.isin(modes, PUBLIC_MODES).astype(int))
    simple = {"task": "classification", "split": "split_default", "target": "class_simplified"}
    return _with_speed(array.with_attrs(configs={**array.attrs["configs"], "simplified": simple}), "lat", "lon")


def _with_speed(array: IrregularArray, lat: str, lon: str) -> IrregularArray:
    """Average speed of tracks, m/s by great circles, as regression target; none where a track has one point."""
    from assay.learning.irregular.dense import to_list

    places = [np.nonzero(array.signal_id == name)[0] for name in (lat, lon)]
    if any(len(p) == 0 for p in places):
        return array
    speeds = []
    for x, t in zip(*to_list(array)):
        points = np.radians(x[[int(p[0]) for p in places]])
        there = ~np.isnan(points).any(axis=0)
        a, b, times = points[0, there], points[1, there], t[0, there]
        h = np.sin(np.diff(a) / 2) ** 2 + np.cos(a[:-1]) * np.cos(a[1:]) * np.sin(np.diff(b) / 2) ** 2
        span = times[-1] - times[0] if len(times) > 1 else 0.0
        speeds.append(2 * 6_371_000 * np.arcsin(np.sqrt(np.clip(h, 0, 1))).sum() / span if span > 0 else np.nan)
    if np.isnan(speeds).any():
        return array
    array = array.with_static(avg_speed=np.array(speeds))
    return array.with_attrs(configs={**array.attrs["configs"], "regression": regression("avg_speed")})


def geolife(folder: Path) -> IrregularArray:
    """``Data/USER/Trajectory/*.plt`` (and ``labels.txt``, not needed): a series a file; altitude -777 is missing."""
    frames = []
    for path in find(folder, "*.plt"):
        frame = _read(
            path, skip_rows=6, has_header=False, new_columns=["lat", "lon", "zero", "alt", "days", "date", "clock"]
        )
        user = path.parent.parent.name
        frames.append(
            frame.select(
                pl.lit(f"{user}_{path.stem}").alias("tid"),
                pl.lit(user).alias("user"),
                (pl.col("date") + " " + pl.col("clock"))
                .str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns")
                .alias("time"),
                pl.col("lat").cast(pl.Float64),
                pl.col("lon").cast(pl.Float64),
                pl.when(pl.col("alt") == -777).then(None).otherwise(pl.col("alt")).cast(pl.Float64).alias("alt"),
            )
        )
    long = melt(pl.concat(frames), ["tid", "user", "time"], ["lat", "lon", "alt"])
    array = from_long(long, "tid", "variable", "time", "value", {"ts_id": ["user"]}, True, duplicates="last")
    return array.with_attrs(configs={"default": {"task": "other"}})


def tdrive(folder: Path) -> IrregularArray:
    """``*.txt``: taxi, time, longitude, latitude; a series a taxi, without labels."""
    names = ["tid", "timestamp", "longitude", "latitude"]
    paths = [p for p in find(folder, "*.txt") if p.stat().st_size]
    if not paths:
        raise DataError(f"All files *.txt of {folder} are empty.")
    frame = pl.concat(_read(p, has_header=False, new_columns=names) for p in paths)
    long = melt(frame, names[:2], names[2:])
    array = from_long(long, "tid", "variable", "timestamp", "value", None, True, duplicates="last")
    return array.with_attrs(configs={"default": {"task": "other"}})


def combined_trajectories(folder: Path) -> IrregularArray:
    """``combined_trajectories.csv``: places, date, time, ids; class = person with over 3 tracks."""
    path = find(folder, "combined_trajectories.csv")[0]
    values = ["longitude", "latitude", "altitude"]
    frame = table(path, [*values, "date", "time", "individual_id", "trajectory_id"])
    stamp = (pl.col("date") + " " + pl.col("time")).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns", strict=False)
    frame = frame.with_columns(
        stamp.alias("timestamp"),
        (pl.col("individual_id").cast(pl.String) + "_" + pl.col("trajectory_id").cast(pl.String)).alias("track"),
    ).drop_nulls("timestamp")
    many = frame.group_by("individual_id").agg(pl.col("track").n_unique().alias("n")).filter(pl.col("n") > 3)
    frame = frame.filter(pl.col("individual_id").is_in(many["individual_id"].to_list()))
    if frame.is_empty():
        raise DataError(f"{path}: no person has more than three tracks.")
    long = melt(frame, ["track", "trajectory_id", "individual_id", "timestamp"], values)
    dims = {"ts_id": ["trajectory_id", "individual_id"]}
    array = without_empty(from_long(long, "track", "variable", "timestamp", "value", dims, True, duplicates="last"))
    return labelled(array, encode(array.coordinate("individual_id")))


def ais(folder: Path) -> IrregularArray:
    """Parquet files ``2020-2_group_*``: mmsi, date_time_utc, imo_nr, length, signals; class = length in bins."""
    frame = pl.concat([pl.read_parquet(p) for p in find(folder, "2020-2_group_*")], how="diagonal_relaxed")
    keys = ["mmsi", "date_time_utc", "imo_nr", "length"]
    missing = [k for k in keys if k not in frame.columns]
    if missing:
        raise DataError(f"The files 2020-2_group_* of {folder} have no column {missing[0]!r}.")
    if frame["date_time_utc"].dtype == pl.String:
        frame = frame.with_columns(epoch("date_time_utc", "%Y-%m-%d %H:%M:%S"))
    values = [c for c in frame.columns if c not in keys and frame[c].dtype.is_numeric()]
    dims = {"ts_id": ["imo_nr", "length"]}
    array = without_empty(
        from_long(
            melt(frame, keys, values), "mmsi", "variable", "date_time_utc", "value", dims, True, duplicates="last"
        )
    )
    length = array.coordinate("length").astype(float)
    return labelled(array, encode(np.digitize(length, [80, 100])), regression=regression("length"))


def _abf(folder: Path) -> IrregularArray:
    """``abf_long.csv``: long form with y, class_default, skewness, split (1 = train); times x 1e8."""
    path = find(folder, "abf_long.csv")[0]
    frame = table(path, ["time_id", "y", "value", "class_default", "skewness", "ts_id", "signal_id", "split"])
    frame = frame.with_columns(
        pl.col("ts_id").cast(pl.String),
        pl.col("signal_id").cast(pl.String),
        (pl.col("time_id") * 100_000_000).floor().cast(pl.Int64),
    ).rename({"class_default": "class_labels", "split": "side"})
    dims = {"ts_id": ["y", "class_labels", "side", "skewness"]}
    array = from_long(frame, "ts_id", "signal_id", "time_id", "value", dims, duplicates="last")
    split = np.where(array.coordinate("side") == 1, "train", "test")
    return labelled(array, array.coordinate("y").astype(int), split, regression=regression("skewness"))


def _clinical(name: str) -> Callable[[Path], IrregularArray]:
    def call(folder: Path) -> IrregularArray:
        from assay.learning.irregular import clinical

        return getattr(clinical, name)(folder)

    return call


BUILDERS: Mapping[str, Callable[[Path], IrregularArray]] = {
    "Abf": _abf,
    "Ais": ais,
    "Animals": animals,
    "CombinedTrajectories": combined_trajectories,
    "Garment": garment,
    "Geolife": geolife,
    "GeolifeSupervised": geolife_supervised,
    "Ldfpa": ldfpa,
    "Mimic3": _clinical("mimic3"),
    "Pamap2": pamap2,
    "Physionet2012": _clinical("physionet2012"),
    "Physionet2019": _clinical("physionet2019"),
    "Seabirds": seabirds,
    "TDrive": tdrive,
    "Taxi": taxi,
    "Vehicles": vehicles,
}
