"""The common array: oracles, round trips, left-packing, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.learning.irregular import converters, dense, files, readers
from assay.learning.irregular.array import from_coordinates, from_dense

ORACLES = Path(__file__).parents[1] / "oracles" / "irregular"
CASES = json.loads((ORACLES / "common_array.json").read_text())["cases"]


def array_of(case):
    return readers.from_long(pl.DataFrame(case["rows"]), dims={"ts_id": ["label", "split"]})


def same(found, expected):
    np.testing.assert_allclose(found, np.array(expected, float), rtol=0, atol=1e-9)


@st.composite
def long_rows(draw):
    cell = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(-20, 20))
    keys = draw(st.lists(cell, min_size=1, max_size=60, unique=True))
    values = draw(st.lists(st.floats(-1e6, 1e6), min_size=len(keys), max_size=len(keys)))
    return pl.DataFrame(
        {
            "ts_id": [f"s{k[0]}" for k in keys],
            "signal_id": [f"c{k[1]}" for k in keys],
            "time_id": [k[2] / 4 for k in keys],
            "value_id": values,
        }
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_long_rows_give_the_published_array(case):
    array = array_of(case)
    assert list(array.shape) == case["shape"]
    assert array.nnz == case["nnz"]
    assert array.coords.tolist() == case["coords"]
    assert array.data.tolist() == case["data"]
    assert array.static["label"][1].tolist() == case["label"]
    if "ts_ids" in case:
        assert array.ts_id.tolist() == case["ts_ids"]


@pytest.mark.parametrize(
    ("case", "mode"), [(c, m) for c in CASES for m in c["modes"]], ids=lambda x: x if isinstance(x, str) else x["name"]
)
def test_left_packing_and_times_are_the_published_ones(case, mode):
    X, T = dense.to_dense(array_of(case), **case["modes"][mode]["kwargs"])
    same(X, case["modes"][mode]["X"])
    same(T, case["modes"][mode]["T"])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_lists_are_cut_to_each_series_own_length(case):
    X, T = dense.to_list(array_of(case))
    for found, expected in zip([*X, *T], [*case["to_list"]["X"], *case["to_list"]["T"]], strict=True):
        same(found, expected)
    assert len(readers.to_long(array_of(case))) == case["to_long_n_rows"]


@given(long_rows())
@settings(max_examples=60, deadline=None)
def test_long_form_round_trips_and_packing_keeps_every_value(frame):
    array = readers.from_long(frame)
    back = readers.from_long(readers.to_long(array))
    assert (back.data == array.data).all()
    assert (back.coords == array.coords).all()
    X, T = dense.to_dense(array)
    assert np.count_nonzero(~np.isnan(X)) == array.nnz
    stamps = T[:, 0]
    later = np.diff(stamps, axis=1)
    assert (later[~np.isnan(later)] > 0).all()
    assert ((~np.isnan(stamps)).sum(axis=1) == array.lengths()).all()
    # The order of the rows does not matter.
    shuffled = readers.from_long(frame.sample(fraction=1.0, shuffle=True, seed=1))
    assert (shuffled.data == array.data).all()


@given(long_rows())
@settings(max_examples=30, deadline=None)
def test_packing_equals_a_plain_loop(frame):
    array = readers.from_long(frame)
    X, T = dense.to_dense(array)
    for i, name in enumerate(array.ts_id):
        own = frame.filter(pl.col("ts_id") == name)
        stamps = sorted(set(own["time_id"].to_list()))
        assert T[i, 0, : len(stamps)].tolist() == stamps
        for signal, time, value in own.select("signal_id", "time_id", "value_id").iter_rows():
            assert X[i, array.signal_id.tolist().index(signal), stamps.index(time)] == value


def test_the_published_file_and_its_csv_give_one_array():
    h5 = files.read_hdf5(ORACLES / "example_dataset.h5")
    csv = readers.read_csv(
        ORACLES / "example_long.csv", "time_series_id", "channel_id", "timestamp", "value", {"ts_id": ["labels"]}
    )
    assert h5.shape == (3, 3, 100)
    assert (h5.coords == csv.coords).all()
    # The file was made from digits read one unit in the last place off.
    np.testing.assert_allclose(h5.data, csv.data, rtol=0, atol=1e-15)
    assert h5.ts_id.tolist() == csv.ts_id.tolist() == ["A", "B", "C"]
    assert csv.static["labels"][1].tolist() == [0, 1, 1] == h5.static["labels"][1].tolist()
    # Older files hold time stamps as text; they are dates all the same.
    assert (h5.time_id.astype("datetime64[ns]") == csv.time_id).all()
    assert dense.to_dense(h5)[1].tolist() == dense.to_dense(csv)[1].tolist() or np.allclose(
        dense.to_dense(h5)[1], dense.to_dense(csv)[1], equal_nan=True
    )


def test_a_file_written_is_laid_out_as_the_published_one(tmp_path):
    import h5py

    array = files.read_hdf5(ORACLES / "example_dataset.h5")
    files.write_hdf5(array, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as ours, h5py.File(ORACLES / "example_dataset.h5") as theirs:
        for name in (
            "data",
            "coords",
            "dims",
            *(f"{g}/{k}" for g in ("coords_xarray", "coords_xarray_dims") for k in theirs[g]),
        ):
            assert ours[name].dtype == theirs[name].dtype
            assert (ours[name][...] == theirs[name][...]).all()
        assert {k: str(v) for k, v in ours.attrs.items()} == {k: str(v) for k, v in theirs.attrs.items()}
        assert ours["data"].compression == "gzip"


def test_ids_that_are_numbers_are_text_as_wide_as_pyrregular_writes_them(tmp_path):
    (tmp_path / "long.csv").write_text("ts_id,signal_id,time_id,value_id\n010,7,1.0,2.5\n002,7,1.0,3.5\n")
    array = readers.read_csv(tmp_path / "long.csv", time_index_as_datetime=False)
    assert list(array.ts_id) == ["2", "10"], "in the order of numbers"
    h5py = pytest.importorskip("h5py")
    files.write_hdf5(array, tmp_path / "first.h5")
    with h5py.File(tmp_path / "first.h5") as file:
        assert file["coords_xarray/ts_id"].dtype == np.dtype("S21")
    files.write_hdf5(files.read_hdf5(tmp_path / "first.h5"), tmp_path / "second.h5")
    assert (tmp_path / "first.h5").read_bytes() == (tmp_path / "second.h5").read_bytes()


def test_files_round_trip_dates_numbers_text_and_attributes(tmp_path):
    times = np.array(["2024-01-01T00:00:00.000000001", "2024-01-02"], "datetime64[ns]")
    array = from_coordinates(["a", "ä", "a"], ["x", "x", "x"], times[[0, 1, 1]], [1.0, 2.0, 3.0])
    array = array.with_static(n=[1, 2], f=[0.5, np.nan], b=[True, False], t=["é", "plain"])
    array = array.with_attrs(configs={"default": {"task": "classification"}}, title="a title", author=["x", "y"])
    files.write_hdf5(array, tmp_path / "a.h5")
    back = files.read_hdf5(tmp_path / "a.h5")
    assert (back.time_id == array.time_id).all()
    assert back.ts_id.tolist() == array.ts_id.tolist()
    assert back.attrs == array.attrs
    for name in ("n", "b", "t"):
        assert back.static[name][1].tolist() == array.static[name][1].tolist()
    np.testing.assert_array_equal(back.static["f"][1], array.static["f"][1])


def test_attributes_are_never_run(tmp_path):
    array = from_dense(np.zeros((2, 1, 3))).with_attrs(evil="__import__('os').system('touch /tmp/never')", ok="[1, 2]")
    files.write_hdf5(array, tmp_path / "a.h5")
    back = files.read_hdf5(tmp_path / "a.h5")
    assert back.attrs["evil"].startswith("__import__")
    assert back.attrs["ok"] == [1, 2]


def test_some_series_are_read_without_the_rest(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2, 9))
    X[rng.random(X.shape) < 0.4] = np.nan
    whole = from_dense(X)
    files.write_hdf5(whole, tmp_path / "a.h5")
    with files.HDF5File(tmp_path / "a.h5") as file:
        assert file.shape == whole.shape
        assert file.nnz == whole.nnz
        part = file.read([3, 7, 5])
    expected = whole.select([3, 7, 5])
    assert part.ts_id.tolist() == expected.ts_id.tolist()
    assert (part.coords == expected.coords).all()
    assert (part.data == expected.data).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.__delitem__("coords"), "has no 'coords'"),
        (lambda f: f.attrs.__delitem__("__shape"), "no attribute '__shape'"),
        (lambda f: f.attrs.__setitem__("__shape", (3, 3, 50)), "another length"),
        (lambda f: f["coords"].__setitem__((0, 0), 99), "lies outside"),
    ],
)
def test_broken_files_are_refused_in_a_sentence(tmp_path, change, message):
    import h5py

    path = tmp_path / "broken.h5"
    path.write_bytes((ORACLES / "example_dataset.h5").read_bytes())
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(DataError, match=message):
        files.read_hdf5(path)


def test_what_is_no_file_of_the_format_is_refused(tmp_path):
    (tmp_path / "a.h5").write_text("hello")
    with pytest.raises(DataError, match="no HDF5 file"):
        files.read_hdf5(tmp_path / "a.h5")
    with pytest.raises(DataError, match="does not exist"):
        files.read_hdf5(tmp_path / "b.h5")


def frame(**columns):
    base = {"ts_id": ["a", "a"], "signal_id": ["x", "x"], "time_id": [0.0, 1.0], "value_id": [1.0, 2.0]}
    return pl.DataFrame(base | columns)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (frame(time_id=[1.0, 1.0]), {}, "Two values at ts_id a, signal_id x, time_id 1"),
        (frame(label=["p", "q"]), {"dims": {"ts_id": ["label"]}}, "'label' is not static: ts_id 'a'"),
        (frame(ts_id=["a", None]), {}, "'ts_id' has no value in row 2"),
        (frame(time_id=[0.0, float("nan")]), {}, "'time_id' has no value in row 2"),
        (frame(time_id=["1.5", "2020-01-01"]), {}, "is no number"),
        (frame(time_id=["1.5", "2020-01-01"]), {"time_index_as_datetime": True}, "numbers and dates are mixed"),
        (frame(value_id=["1", "two"]), {}, "row 2: value 'two' is no number"),
        (frame().drop("signal_id"), {}, "no column 'signal_id'"),
    ],
)
def test_bad_rows_are_refused_in_a_sentence(table, options, message):
    with pytest.raises(DataError, match=message):
        readers.from_long(table, **options)


def test_mixed_ids_of_a_reader_function_are_refused():
    rows = [{"ts_id": i, "signal_id": "x", "time_id": 0.0, "value_id": 1.0} for i in (1, "b")]
    with pytest.raises(DataError, match="'ts_id' mixes int, str"):
        readers.read_csv(__file__, reader_fun=lambda paths: rows)


@pytest.mark.parametrize(("rule", "value"), [("first", 1.0), ("last", 2.0), ("mean", 1.5)])
def test_duplicates_are_reduced_by_the_named_rule(rule, value):
    array = readers.from_long(frame(time_id=[1.0, 1.0]), duplicates=rule)
    assert array.data.tolist() == [value]
    with pytest.raises(UsageError, match="rule for duplicates"):
        readers.from_long(frame(), duplicates="median")


def test_missing_values_leave_their_time_or_are_stored_when_asked():
    table = frame(value_id=[1.0, None])
    assert readers.from_long(table).nnz == 1
    assert readers.from_long(table).time_id.tolist() == [0.0, 1.0]
    kept = readers.from_long(table, keep_missing=True)
    assert kept.nnz == 2
    assert np.isnan(kept.data[1])
    assert dense.stored(kept).sum() == 2
    assert np.isnan(dense.to_dense(kept)[0]).sum() == 1


def test_epoch_seconds_and_zoned_dates_are_utc():
    stamps = {
        "seconds": [1_700_000_000, 1_700_000_001],
        "fractions": [1_700_000_000.25, 1_700_000_001.0],
        "zoned": ["2023-11-14 23:13:20+01:00", "2023-11-14 22:13:21+00:00"],
    }
    expected = np.array(["2023-11-14T22:13:20", "2023-11-14T22:13:21"], "datetime64[ns]")
    for name, values in stamps.items():
        found = readers.from_long(frame(time_id=values), time_index_as_datetime=True).time_id
        shift = np.timedelta64(250, "ms") if name == "fractions" else np.timedelta64(0, "ns")
        assert found[0] == expected[0] + shift
        assert found[1] == expected[1]


def test_csv_and_parquet_round_trip_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(3)
    array = from_dense(rng.normal(size=(5, 2, 7)) * 1e-7, y=np.arange(5) % 2, split=["train"] * 3 + ["test"] * 2)
    dims = {"ts_id": ["class_default", "split_default"]}
    readers.write_csv(array, tmp_path / "a.csv")
    readers.write_parquet(array, tmp_path / "a.parquet")
    for back in (
        readers.read_csv(tmp_path / "a.csv", dims=dims, time_index_as_datetime=False),
        readers.read_parquet(tmp_path / "a.parquet", dims=dims, time_index_as_datetime=False),
    ):
        assert (back.data == array.data).all()
        assert (back.coords == array.coords).all()
        assert back.static["split_default"][1].tolist() == array.static["split_default"][1].tolist()


def test_a_dense_array_that_would_be_huge_is_refused_with_its_size():
    n = 3000
    array = from_coordinates(np.arange(n), np.arange(n), np.arange(n), np.ones(n))
    with pytest.raises(DataError, match="3000 x 3000 x 3000 values, 216 GB"):
        dense.to_dense(array, reset_time_index=False)
    assert dense.to_dense(array)[0].shape == (n, n, 1)


def test_selecting_drops_time_stamps_without_values():
    array = array_of(CASES[0])
    part = array.select([1])
    assert part.time_id.tolist() == [1.0, 2.0]
    assert part.static["label"][1].tolist() == [1]
    assert array.select([1], compact=False).time_id.tolist() == array.time_id.tolist()
    with pytest.raises(UsageError, match="selected twice"):
        array.select([0, 0])
    with pytest.raises(UsageError, match="whole numbers below 2"):
        array.select([5])


def test_exact_time_normalisation_ends_at_one_and_is_zero_without_range():
    array = from_coordinates(["a", "a", "b"], ["x"] * 3, [1.7e9, 1.7e9 + 50, 1.7e9], [1.0, 2.0, 3.0])
    assert dense.to_dense(array, normalize_time="exact")[1][:, 0].tolist()[0] == [0.0, 1.0]
    assert dense.to_dense(array, normalize_time="exact")[1][1, 0, 0] == 0.0
    assert dense.to_dense(array, normalize_time=True)[1][0, 0, 1] < 0.8


def test_xarray_round_trips_and_other_libraries_get_their_axes():
    pytest.importorskip("xarray")
    pytest.importorskip("sparse")
    array = array_of(CASES[0])
    back = converters.from_xarray(converters.to_xarray(array))
    assert (back.coords == array.coords).all()
    assert (back.data == array.data).all()
    assert back.static.keys() == array.static.keys()
    assert converters.to_tslearn(array).shape == (2, 3, 2)
    assert [x.shape for x in converters.to_aeon(array)] == [(2, 3), (2, 2)]
    panel = converters.to_sktime(array)
    assert panel.loc[("A", 0.5), "y"] == 9.0
    assert len(panel) == 5
    nested = converters.to_sktime(array, "nested_univ")
    assert nested.index.tolist() == ["A", "B"]
    assert nested.loc["A", "x"].tolist() == [1.0, 2.0, 3.0]
    assert nested.loc["B", "y"].index.tolist() == [1.0, 2.0]
    with pytest.raises(UsageError, match="sktime panel"):
        converters.to_sktime(array, "nested")  # type: ignore[arg-type]


def test_awkward_arrays_hold_each_signal_by_itself():
    pytest.importorskip("awkward")
    assert converters.to_awkward(array_of(CASES[0])).to_list() == [[[1.0, 2.0, 3.0], [9.0]], [[4.0], [8.0, 7.0]]]


def test_torch_items_carry_masks_lengths_and_targets():
    torch = pytest.importorskip("torch")
    X = np.array([[[1.0, np.nan, 3.0]], [[4.0, 5.0, np.nan]]])
    data = converters.SeriesDataset(from_dense(X, y=[0, 1], split=["train", "train"]), side="train")
    batch = converters.collate([data[0], data[1]])
    assert batch["lengths"].tolist() == [2, 2]
    assert batch["target"].tolist() == [0, 1]
    assert bool(batch["mask"].all())
    assert batch["times"].tolist() == [[0.0, 2.0], [0.0, 1.0]]
    assert batch["values"].dtype == torch.float64


def rows_of(n):
    return [
        {"ts_id": f"s{i % 7}", "signal_id": "xy"[i % 2], "time_id": (i * 37) % 1000, "value_id": i / 8, "label": i % 7}
        for i in range(n)
    ]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_the_size_of_chunks_does_not_matter(tmp_path, monkeypatch, size):
    frame = pl.DataFrame(rows_of(300)).unique(["ts_id", "signal_id", "time_id"], maintain_order=True)
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    options = {"dims": {"ts_id": ["label"]}, "time_index_as_datetime": False}
    whole = readers.from_long(frame, **options)
    monkeypatch.setattr(readers, "_CHUNK", size)
    monkeypatch.setattr(readers, "_ROWS", size)
    for array in (
        readers.read_csv(tmp_path / "a.csv", **options),
        readers.read_parquet(tmp_path / "a.parquet", **options),
        readers.read_csv(tmp_path / "a.csv", reader_fun=lambda paths: iter(frame.to_dicts()), **options),
        readers.read_csv(tmp_path / "a.csv", reader_fun=lambda paths: frame.iter_slices(size), **options),
        readers.read_csv(tmp_path / "a.csv", reader_fun=lambda paths: frame.lazy(), **options),
    ):
        assert (array.coords == whole.coords).all()
        assert (array.data == whole.data).all()
        assert array.ts_id.tolist() == whole.ts_id.tolist()
        assert array.time_id.tolist() == whole.time_id.tolist()
        assert array.static["label"][1].tolist() == list(range(7))


def test_faults_that_only_several_chunks_show_are_found(monkeypatch):
    monkeypatch.setattr(readers, "_ROWS", 2)
    rows = rows_of(14)

    def read(changed):
        return readers.read_csv(
            __file__, dims={"ts_id": ["label"]}, reader_fun=lambda paths: changed, time_index_as_datetime=False
        )

    assert read(rows).nnz == 14
    with pytest.raises(DataError, match="'label' is not static: ts_id 's0' has the values 0 and 5"):
        read([*rows, {**rows[7], "label": 5, "time_id": 5000}])
    with pytest.raises(DataError, match="'ts_id' mixes number and text"):
        read([*rows, {**rows[0], "ts_id": 3}])
    with pytest.raises(DataError, match="'ts_id' has no value in row 15"):
        read([*rows, {**rows[0], "ts_id": None}])
    with pytest.raises(DataError, match="Two values at ts_id s0"):
        read([*rows, rows[0]])
    with pytest.raises(DataError, match="no row"):
        read([])


def test_a_column_whose_type_shows_late_is_read_all_the_same(tmp_path):
    lines = ["ts_id,signal_id,time_id,value_id", *(f"a,x,{i},{i}" for i in range(10_500)), "a,x,10500.5,0.25"]
    (tmp_path / "late.csv").write_text("\n".join(lines))
    array = readers.read_csv(tmp_path / "late.csv", time_index_as_datetime=False)
    assert array.nnz == 10_501
    assert array.time_id[-1] == 10500.5
    (tmp_path / "late.csv").write_text("\n".join([*lines, "a,x,10501,NA", "a,x,10502,?"]))
    array = readers.read_csv(tmp_path / "late.csv", time_index_as_datetime=False)
    assert (array.nnz, len(array.time_id)) == (10_501, 10_503)
    (tmp_path / "late.csv").write_text("\n".join([*lines, "a,x,10501,much"]))
    with pytest.raises(DataError, match="row 10502: value 'much' is no number"):
        readers.read_csv(tmp_path / "late.csv", time_index_as_datetime=False)


def test_times_by_signal_are_relative_to_the_signal_and_never_lost_for_want_of_a_range():
    array = from_coordinates(["a"] * 3, ["x", "x", "y"], [-1.0, 3.0, 1.0], [1.0, 2.0, 3.0])
    _, T = dense.to_dense(array, ts_level=False, absolute_time=False)
    np.testing.assert_array_equal(T, [[[0.0, 4.0], [0.0, np.nan]]])
    _, T = dense.to_dense(array, ts_level=False, normalize_time=True)
    np.testing.assert_allclose(T, [[[0.0, 4 / (4 + 1e-8)], [0.0, np.nan]]])
    # No range and no mean to guard it: the time of a value that is there is a number all the same.
    alone = from_coordinates(["a", "b"], ["x", "x"], [0.0, 0.0], [1.0, 2.0])
    assert dense.to_dense(alone, normalize_time=True)[1].tolist() == [[[0.0]], [[0.0]]]


def test_lists_by_signal_have_each_signal_s_own_length():
    array = array_of(CASES[0])
    X, T = dense.to_list(array, ts_level=False)
    assert [[row.tolist() for row in x] for x in X] == [[[1.0, 2.0, 3.0], [9.0]], [[4.0], [8.0, 7.0]]]
    assert [[row.tolist() for row in t] for t in T] == [[[0.0, 0.5, 3.0], [0.5]], [[1.0], [1.0, 2.0]]]
    with pytest.raises(UsageError, match="needs packed series"):
        dense.to_list(array, reset_time_index=False)


def test_a_file_with_a_header_alone_or_a_line_too_long_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("ts_id,signal_id,time_id,value_id\n")
    with pytest.raises(DataError, match=r"a\.csv has a header and no row"):
        readers.read_csv(path)
    path.write_text("ts_id,signal_id,time_id,value_id\na,x,2020-01-01,1\nb,x,2020-01-01,2,3\n")
    with pytest.raises(DataError, match=r"a\.csv .*found more fields"):
        readers.read_csv(path)
