"""Checks, .ts files, generators, the catalogue, packaged sets, builders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.learning.irregular import builders, checks, data, describing, generators, readers, tsfile
from assay.learning.irregular.array import from_dense

ORACLES = Path(__file__).parents[1] / "oracles" / "irregular"


def oracle(name):
    return json.loads((ORACLES / f"{name}.json").read_text())["cases"]


@pytest.mark.parametrize("case", oracle("regularity_checks"), ids=lambda c: c["name"])
def test_regularity_checks_agree_with_the_official_ones(case):
    names = ["ts_id", "signal_id", "time_id", "value_id"]
    array = readers.from_long(pl.DataFrame(case["rows"], schema=names, orient="row"))
    for key, share in case["share_of_series_passing"].items():
        union = key.endswith("_series_union")
        name = key.removesuffix("_series_union").removesuffix("_per_series")
        assert checks.check_regularity(name, array, union) == share, key


@given(st.lists(st.lists(st.integers(0, 9), min_size=0, max_size=6, unique=True), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_offset_checks_equal_the_table_of_all_pairs(groups):
    signals = [np.array(sorted(g)) for g in groups]
    seen = [t for t in signals if len(t)]
    strongly = any(a[0] < b[0] and a[-1] < b[-1] for a in seen for b in seen)
    assert checks.are_all_signals_not_strongly_offset(signals) is not strongly
    same = all(a[0] == b[0] and a[-1] == b[-1] for a in seen for b in seen)
    assert checks.are_all_signals_not_offset(signals) == same
    pairs = [np.diff(t) for t in signals]
    equal = all((a[: len(b)] == b[: len(a)]).all() for a in pairs for b in pairs)
    assert checks.do_all_signals_have_equal_sampling(signals) == equal


def test_faults_of_a_data_set_are_named():
    X = np.ones((4, 1, 3))
    good = from_dense(X, y=[0, 1, 0, 1], split=["train", "train", "test", "test"])
    assert checks.problems(good) == []
    faults = checks.problems(from_dense(X, y=[0, 0, 2, 0], split=["train", "train", "test", "dev"]))
    text = " ".join(faults)
    assert "split holds 'dev'" in text
    assert "not 0 to K - 1" in text
    assert "one class" in text
    assert "class 2 is in test and not in train" in text
    assert "no attribute configs" in " ".join(checks.problems(from_dense(X)))
    empty = X.copy()
    empty[1] = np.nan
    assert "Series 1 has no value" in " ".join(
        checks.problems(from_dense(empty, y=[0, 1, 0, 1], split=["train"] * 2 + ["test"] * 2))
    )


TS = """#comment
@problemName x
@timeStamps {stamps}
@missing true
@classLabel true a b
@data
{rows}
"""


def test_ts_files_are_read_with_and_without_time_stamps(tmp_path):
    (tmp_path / "plain.ts").write_text(TS.format(stamps="false", rows="1,?,3:4,5:a\n7,8:9,NaN:b"))
    found = tsfile.read_ts(tmp_path / "plain.ts")
    np.testing.assert_array_equal(found.series[0], [[1, np.nan, 3], [4, 5, np.nan]])
    assert found.labels == ["a", "b"]
    (tmp_path / "stamped.ts").write_text(TS.format(stamps="true", rows="(0,1.5),(2.5,?):(2.5,4):a"))
    found = tsfile.read_ts(tmp_path / "stamped.ts")
    assert found.times is not None
    assert found.times[0].tolist() == [0.0, 2.5]
    np.testing.assert_array_equal(found.series[0], [[1.5, np.nan], [np.nan, 4.0]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,x:a", "line 7: value 'x' is no number"),
        ("1,2:c", "line 7: label 'c' is not in"),
        ("1,2:a\n1,2:3,4:b", "line 8: 2 channels, but the first series has 1"),
    ],
)
def test_bad_ts_lines_are_named(tmp_path, rows, message):
    (tmp_path / "bad.ts").write_text(TS.format(stamps="false", rows=rows))
    with pytest.raises(DataError, match=message):
        tsfile.read_ts(tmp_path / "bad.ts")


def test_ts_files_round_trip_with_times(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 2, 5))
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:, 0, 0] = 1.0
    array = from_dense(X, [0.0, 0.5, 2.0, 7.0, 7.25], y=[0, 1, 0, 1], split=["train"] * 2 + ["test"] * 2)
    tsfile.write_ts(array, tmp_path / "a.ts")
    found = tsfile.read_ts(tmp_path / "a.ts")
    for series, times, original in zip(found.series, found.times or (), X):
        seen = ~np.isnan(original).all(axis=0)
        np.testing.assert_array_equal(series, original[:, seen])
        assert times.tolist() == np.array([0.0, 0.5, 2.0, 7.0, 7.25])[seen].tolist()


@pytest.mark.parametrize("case", oracle("packaged_datasets"), ids=lambda c: c["name"])
def test_packaged_sets_are_the_archives(case):
    pytest.importorskip("aeon")
    name, _, side = case["name"].rpartition("_")
    array = data.load_dataset(name)
    part = array.train_test()[side == "test"]
    assert len(part) == case["n_series"]
    assert len(part.signal_id) == case["n_channels"]
    assert part.nnz == case["total_values"]
    assert (part.lengths().min(), part.lengths().max()) == (case["min_length"], case["max_length"])
    labels, counts = np.unique(part.static["class_labels"][1], return_counts=True)
    assert dict(zip(labels.tolist(), counts.tolist())) == case["class_counts"]
    np.testing.assert_allclose(part.data[:3], case["first_values"], atol=1e-6)
    assert checks.problems(array) == []


def test_abf_has_the_published_shape_order_and_skew():
    case = oracle("abf_generator")[0]
    array = generators.abf(np.random.default_rng(0), series_per_class=4, n_train=2, size=16, noise=0.0, ticks=False)
    np.testing.assert_allclose(array.data[:16], case["values"], atol=1e-9)
    y, split = array.target_and_split()
    assert y.tolist() == case["labels"]
    assert (split == "train").astype(int).tolist() == case["train_mask"]
    from assay.learning.irregular.dense import to_dense

    times = to_dense(array)[1][:, 0]
    assert times.min(axis=1).tolist() == case["time_min"]
    assert times.max(axis=1).tolist() == case["time_max"]
    many = generators.abf(np.random.default_rng(1), series_per_class=200)
    skew = many.static["skewness"][1].reshape(3, 200).mean(axis=1)
    assert abs(skew[0]) < 0.1
    assert skew[1] > 0.3
    assert skew[2] < -0.3
    assert many.nnz == 600 * 128
    assert many.train_test()[0].shape[0] == 30


@given(st.floats(0, 0.95), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_made_irregularity_only_takes_values_away_and_leaves_every_series_some(rate, seed):
    rng = np.random.default_rng(seed)
    array = from_dense(rng.normal(size=(6, 2, 12)))
    for made in (
        generators.drop(array, rate, rng),
        generators.uneven(array, rate, rng),
        generators.ragged(array, rate, rng),
        generators.every(array, 3),
    ):
        assert set(made.data.tolist()) <= set(array.data.tolist())
        assert (made.lengths() >= 1).all()
        assert made.nnz <= array.nnz
    ragged = generators.ragged(array, rate, rng).lengths()
    assert (ragged >= np.ceil(12 * rate)).all()


def test_made_irregularity_is_of_its_kind():
    rng = np.random.default_rng(0)
    array = from_dense(rng.normal(size=(20, 2, 30)))
    assert not any(checks.irregularities(array).values())
    partial = checks.irregularities(generators.drop(array, 0.3, rng))
    assert partial["partial observation"]
    assert checks.missing_share(generators.uneven(array, 0.3, rng)) == 0.0
    assert checks.irregularities(generators.uneven(array, 0.3, rng))["uneven sampling"]
    cut = checks.irregularities(generators.ragged(array, 0.5, rng))
    assert cut["ragged length"]
    assert not cut["uneven sampling"]


def test_the_catalogue_lists_filters_and_refuses():
    assert len(data.list_paper_datasets()) == 34
    assert len(data.list_datasets()) == 38
    assert "DodgerLoopDay" in data.list_datasets(kind="partial", max_series=200)
    assert data.list_datasets(task="other") == ["Geolife", "TDrive"]
    with pytest.raises(UsageError, match="Garment"):
        data.load_dataset("Garmnt")
    with pytest.raises(UsageError, match="in no installed package"):
        data.load_dataset("Garment")
    with pytest.raises(UsageError, match="Variant 'drop'"):
        data.parse_name("Abf~drop")


def test_variants_are_the_same_in_every_call_and_say_their_kind():
    pytest.importorskip("aeon")
    a, b = data.load_dataset("ItalyPowerDemand~drop30"), data.load_dataset("ItalyPowerDemand~drop30")
    assert (a.coords == b.coords).all()
    assert data.irregularity_of("ItalyPowerDemand~drop30~ragged50") == "partial+ragged"
    assert data.irregularity_of("GunPoint") == "regular"
    assert 0.65 < a.nnz / data.load_dataset("ItalyPowerDemand").nnz < 0.75
    small = data.load_dataset("JapaneseVowels~sub45")
    assert len(small.train_test()[0]) == 45


def test_statistics_and_report_tell_sizes_kinds_and_doubles():
    X = np.arange(24, dtype=float).reshape(4, 1, 6)
    X[2] = X[0]
    array = from_dense(X, y=[0, 1, 0, 1], split=["train"] * 2 + ["test"] * 2)
    row = describing.statistics(array, "toy")
    assert (row["series"], row["values"], row["length_max"], row["interval_variation"]) == (4, 24, 6, 0.0)
    assert row["default_train"] == {"0": 1, "1": 1}
    assert describing.twins(array) == [("0", "2")]
    assert "0 = 2" in describing.report(array, "toy")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tracks(folder, name, classes, per_class=5):
    rows = ["tid,class,t,variable,value"]
    for i in range(len(classes) * per_class):
        for t in range(3):
            for j, v in enumerate(("lon", "lat")):
                rows.append(f"{i},{classes[i % len(classes)]},{1_000_000 + 60 * t + i},{v},{i + t / 10 + j}")
    write(folder / f"{name}.csv", "\n".join(rows))


def test_track_builders_split_by_class_and_scale(tmp_path):
    tracks(tmp_path, "animals", ("deer", "elk", "cattle"))
    tracks(tmp_path, "vehicles", ("bus", "truck"))
    found = builders.build("Animals", tmp_path)
    assert checks.problems(found) == []
    assert found.shape[:2] == (15, 2)
    y, split = found.target_and_split()
    assert (split == "test").sum() == 5
    assert len(np.unique(y[split == "test"])) == 3
    assert builders.build("Vehicles", tmp_path).data.max() < 1e-3
    rows = [f"{i},{'AB'[i % 2]},{1000 + t},{-8.6 + t},{41.1}" for i in range(10) for t in range(3)]
    write(tmp_path / "taxi.csv", "\n".join(["tid,class,t,c1,c2", *rows]))
    assert builders.build("Taxi", tmp_path).signal_id.tolist() == ["latitude", "longitude"]


def test_the_garment_builder_makes_the_target_of_the_last_productivity(tmp_path):
    lines = ["date,quarter,department,day,team,smv,actual_productivity"]
    for team in (1, 2, 3):
        for department in ("sweing", "finishing "):
            lines += [
                f"1/{d}/2015,Quarter1,{department},Day{d},{team},3.5,{0.6 + 0.1 * d * (team == 1)}" for d in (1, 2, 3)
            ]
    write(tmp_path / "garments_worker_productivity.csv", "\n".join(lines))
    found = builders.build("Garment", tmp_path)
    y, split = found.target_and_split()
    assert found.ts_id[split == "test"].tolist() == ["finishing_3", "sweing_1"]
    assert y.tolist() == [1, 0, 0, 1, 0, 0]
    assert found.signal_id.tolist() == ["smv"]
    assert found.target_and_split("regression")[0].max() == pytest.approx(0.9)
    assert found.static["quarter"][0] == "time_id"


def test_the_ldfpa_builder_makes_twelve_channels_and_tests_on_subject_e(tmp_path):
    rows = []
    for sequence in ("A01", "E01"):
        for activity in ("walking", "lying"):
            for k, tag in enumerate(builders.LDFPA_TAGS):
                rows.append(f"{sequence},{tag},{k},27.05.2009 14:0{k}:25:18{k},1.0,2.0,{k}.5,{activity}")
    write(tmp_path / "ConfLongDemo_JSI.txt", "\n".join(rows))
    found = builders.build("Ldfpa", tmp_path)
    assert found.shape[:2] == (4, 12)
    assert checks.problems(found) == []
    assert found.static["split_default"][1].tolist() == ["train", "train", "test", "test"]


def test_the_pamap2_builder_begins_a_series_where_the_activity_changes(tmp_path):
    rows = []
    for block, activity in enumerate((1, 0, 4) * 6):
        for k in range(2):
            rows.append(" ".join([f"{block + k / 2:.2f}", str(activity), "NaN" if k else "100", *["0.5"] * 51]))
    write(tmp_path / "Protocol" / "subject101.dat", "\n".join(rows))
    found = builders.build("Pamap2", tmp_path)
    assert found.shape[:2] == (12, 52)
    assert set(found.static["activity_name"][1].tolist()) == {"lying", "walking"}
    assert checks.problems(found) == []


def test_track_sets_without_labels_and_with_speeds(tmp_path):
    rows = [
        f"{i},{'walk' if i % 2 else 'bus'},7,{1000 + 10 * t},{39.9 + t * 1e-4},{116.3}"
        for i in range(12)
        for t in range(4)
    ]
    write(tmp_path / "g" / "geolife_supervised.csv", "\n".join(["tid,label,user,time,lat,lon", *rows]))
    found = builders.build("GeolifeSupervised", tmp_path / "g")
    # A ten-thousandth of a degree of latitude is 11.1 m, every ten seconds.
    np.testing.assert_allclose(found.target_and_split("regression")[0], 1.112, atol=1e-3)
    assert found.target_and_split("simplified")[0].tolist() == [
        int(label == "bus") for label in found.static["label"][1]
    ]
    header = "\n".join(["x"] * 6)
    write(
        tmp_path / "p" / "Data" / "000" / "Trajectory" / "1.plt",
        f"{header}\n39.9,116.3,0,-777,39744.1,2008-10-23,02:53:04\n",
    )
    plain = builders.build("Geolife", tmp_path / "p")
    assert plain.nnz == 2
    write(tmp_path / "t" / "1.txt", "1,2008-02-02 15:36:08,116.5,39.9\n")
    assert builders.build("TDrive", tmp_path / "t").nnz == 2
    lines = ["latitude,longitude,altitude,date,time,individual_id,trajectory_id"]
    lines += [f"1.0,2.0,3.0,2020-01-0{d},10:00:00,{p},{d}" for p in (1, 2) for d in range(1, 8)]
    write(tmp_path / "c" / "combined_trajectories.csv", "\n".join(lines))
    assert checks.problems(builders.build("CombinedTrajectories", tmp_path / "c")) == []


def test_the_ais_and_seabird_builders(tmp_path):
    frame = pl.DataFrame(
        {
            "mmsi": np.repeat(np.arange(12), 2),
            "date_time_utc": ["2020-02-01 00:00:00", "2020-02-01 00:01:00"] * 12,
            "imo_nr": np.repeat(np.arange(12), 2),
            "length": np.repeat([50.0, 90.0, 120.0] * 4, 2),
            "speed": np.arange(24.0),
        }
    )
    (tmp_path / "a").mkdir()
    frame.write_parquet(tmp_path / "a" / "2020-2_group_0")
    found = builders.build("Ais", tmp_path / "a")
    assert np.bincount(found.target_and_split()[0]).tolist() == [4, 4, 4]
    rows = ["bird,species,year,colony2,date_time,variable,value"]
    rows += [
        f"{b},{'xyz'[b % 3]},2010,c,2010-06-01 00:0{t}:00,{v},{t}"
        for b in range(12)
        for t in range(2)
        for v in ("lat", "lon")
    ]
    write(tmp_path / "s" / "seabirds.csv", "\n".join(rows))
    assert "regression" in builders.build("Seabirds", tmp_path / "s").config_names()


def test_the_clinical_builders(tmp_path):
    for side, record in (("a", 132539), ("a", 132540), ("b", 142675), ("b", 142676)):
        head = f"Time,Parameter,Value\n00:00,RecordID,{record}\n00:00,Age,54\n00:00,Gender,0\n"
        head += "00:00,Height,-1\n00:00,ICUType,4\n"
        write(tmp_path / f"set-{side}" / f"{record}.txt", head + "00:00,Weight,-1\n00:07,HR,73\n01:37,HR,77\n")
    for side, ids in (("a", (132539, 132540)), ("b", (142675, 142676))):
        lines = [
            "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death",
            *(f"{r},6,1,5,-1,{r % 2}" for r in ids),
        ]
        write(tmp_path / f"Outcomes-{side}.txt", "\n".join(lines))
    found = builders.build("Physionet2012", tmp_path)
    assert found.nnz == 8
    assert found.time_id.tolist() == [0, 420, 5820] or found.time_id.tolist() == [420, 5820]
    assert found.static["split_default"][1].tolist() == ["train", "train", "test", "test"]
    for side in "AB":
        for k in range(2):
            rows = "HR|O2Sat|Age|Gender|Unit1|Unit2|HospAdmTime|ICULOS|SepsisLabel\n"
            rows += f"NaN|NaN|83|0|NaN|NaN|-0.03|1|0\n97|95|83|0|NaN|NaN|-0.03|2|{k}\n"
            write(tmp_path / f"training_set{side}" / f"p{side}{k}.psv", rows)
    septic = builders.build("Physionet2019", tmp_path)
    assert septic.target_and_split()[0].tolist() == [0, 1, 0, 1]
    base = tmp_path / "in-hospital-mortality"
    for side in ("train", "test"):
        stays = [f"{k}_episode1_timeseries.csv" for k in ((1, 2) if side == "train" else (3, 4))]
        write(base / side / "listfile.csv", "\n".join(["stay,y_true", *(f"{s},{i % 2}" for i, s in enumerate(stays))]))
        for s in stays:
            write(
                base / side / s,
                "Hours,Glascow coma scale eye opening,Heart Rate\n0.5,4 Spontaneously,80\n1.0,To Pain,\n",
            )
            write(tmp_path / "root" / side / s[0] / "episode1.csv", "Icustay,Age\n5,301.5\n")
    mimic = builders.build("Mimic3", tmp_path)
    assert mimic.data.tolist() == [4.0, 2.0, 80.0] * 4
    assert mimic.target_and_split("regression")[0].tolist() == [90.5] * 4


def test_a_builder_names_what_is_missing(tmp_path):
    with pytest.raises(DataError, match=r"holds no file 'taxi.csv'"):
        builders.build("Taxi", tmp_path)
    write(tmp_path / "taxi.csv", "tid,class,t\n1,a,2")
    with pytest.raises(DataError, match="no column 'c1'"):
        builders.build("Taxi", tmp_path)
    assert set(builders.BUILDERS) | {n for n, e in data.catalogue().items() if "archive" in e.source} == set(
        data.catalogue()
    )


def test_folders_give_published_and_archive_files(tmp_path):
    from assay.learning.irregular.files import write_hdf5

    array = from_dense(np.ones((2, 1, 3)), y=[0, 1], split=["train", "test"])
    write_hdf5(array, tmp_path / "Garment.h5")
    assert data.load_dataset("Garment", tmp_path).nnz == 6
    for side in ("TRAIN", "TEST"):
        write(tmp_path / "PLAID" / f"PLAID_{side}.ts", TS.format(stamps="false", rows="1,2:a\n3,4,5:b"))
    assert data.load_dataset("PLAID", tmp_path).shape == (4, 1, 3)
    with pytest.raises(DataError, match="holds neither InsectWingbeat"):
        data.load_dataset("InsectWingbeat", tmp_path)


def test_early_variants_keep_the_beginning_of_each_series_span():
    array = from_dense([np.arange(5.0)[None], np.arange(3.0)[None]], [[0, 1, 2, 9, 10], [4, 5, 6, np.nan, np.nan]])
    half = generators.early(array, 0.5)
    assert half.data.tolist() == [0.0, 1.0, 2.0, 0.0, 1.0]
    assert half.lengths().tolist() == [3, 2]
    assert generators.early(array, 0.0).lengths().tolist() == [1, 1]
    assert data.parse_name("Abf~early50") == ("Abf", [("early", 50)])
    with pytest.raises(UsageError, match="share"):
        generators.early(array, 1.5)
