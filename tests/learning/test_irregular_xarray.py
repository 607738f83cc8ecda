"""Files byte for byte, the xarray engine and the accessor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import DataError, UsageError
from assay.learning.irregular import dense, files
from assay.learning.irregular.array import from_dense

xarray = pytest.importorskip("xarray")
pytest.importorskip("sparse")
engine = pytest.importorskip("assay.learning.irregular.engine")

ORACLES = Path(__file__).parents[1] / "oracles" / "irregular"
SHIPPED = ORACLES / "example_dataset.h5"


def opened(path=SHIPPED, **options):
    return xarray.open_dataarray(path, engine=engine.IrregularBackend, **options)


def filled(values):
    return values.todense() if hasattr(values, "todense") else np.asarray(values)


@pytest.fixture
def labelled(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 2, 9))
    X[rng.random(X.shape) < 0.4] = np.nan
    array = from_dense(X, y=np.arange(6) % 2, split=["train"] * 4 + ["test"] * 2)
    files.write_hdf5(array, tmp_path / "a.h5")
    return array, tmp_path / "a.h5"


def test_the_shipped_file_read_and_written_again_is_the_same_to_the_byte(tmp_path):
    array = files.read_hdf5(SHIPPED)
    files.write_hdf5(array, tmp_path / "again.h5", compression=4)
    assert (tmp_path / "again.h5").read_bytes() == SHIPPED.read_bytes()


def test_the_order_of_coordinates_and_attributes_survives_reading_selecting_and_writing(tmp_path, labelled):
    array, _ = labelled
    array = array.with_attrs(zebra="z", author=["x"], apple=1)
    order = ("split_default", "time_id", "class_default", "signal_id", "ts_id")
    from dataclasses import replace

    files.write_hdf5(replace(array, order=order), tmp_path / "b.h5")
    back = files.read_hdf5(tmp_path / "b.h5")
    assert tuple(back.coordinates()) == tuple(back.select([1, 2]).coordinates()) == order
    assert list(back.attrs) == ["configs", "zebra", "author", "apple"]
    files.write_hdf5(back, tmp_path / "c.h5")
    assert (tmp_path / "c.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_an_attribute_that_hdf5_cannot_hold_is_named(tmp_path, labelled):
    with pytest.raises(DataError, match="Attribute 'notes' cannot be written as text"):
        files.write_hdf5(labelled[0].with_attrs(notes="a\0b"), tmp_path / "d.h5")


def test_the_engine_reads_coordinates_and_leaves_values_in_the_file():
    array = opened()
    assert "sparse" not in type(array.variable._data).__module__
    assert array.dims == ("ts_id", "signal_id", "time_id")
    assert array.shape == (3, 3, 100)
    assert array.labels.values.tolist() == [0, 1, 1]
    assert array.load().data.nnz == 100
    assert np.isnan(array.data.fill_value)
    assert "labels" not in opened(drop_variables="labels").coords


@pytest.mark.parametrize(
    "key",
    [
        (slice(0, 2),),
        (1,),
        ([2, 0],),
        (slice(None), 1),
        (slice(None, None, -1),),
        (0, 0, 5),
        (slice(1, 3), [2, 0], slice(3, 50)),
        (-1, slice(None), -1),
    ],
    ids=str,
)
def test_a_part_read_from_the_file_is_the_part_of_the_whole(key):
    whole = opened().load()
    np.testing.assert_array_equal(filled(opened()[key].data), filled(whole[key].data))


def test_the_accessor_gives_what_the_functions_give(labelled, tmp_path):
    array, path = labelled
    found = opened(path)
    for ours, theirs in zip(found.irr.to_dense(), dense.to_dense(array)):
        np.testing.assert_array_equal(ours, theirs)
    y, split = found.irr.get_task_target_and_split()
    assert y.tolist() == [0, 1] * 3
    assert split.tolist() == ["train"] * 4 + ["test"] * 2
    assert found.irr.get_task()["target"] == "class_default"
    with pytest.raises(UsageError, match="config"):
        found.irr.get_task("other")
    assert len(found.irr.to_list()[0]) == 6
    assert found.irr.to_long().height == array.nnz
    assert found.irr.to_tslearn().shape[2] == 2
    assert len(found.irr.to_aeon()) == 6
    assert len(found.irr.to_sktime()) == array.lengths().sum()
    assert found.irr.statistics()["values"] == array.nnz
    assert found.irr.check_regularity("are_all_signals_equal_length") in (0.0, 1.0)
    found.irr.to_hdf5(tmp_path / "e.h5")
    assert (tmp_path / "e.h5").read_bytes() == path.read_bytes()


def test_selecting_by_the_accessor_drops_time_stamps_without_values(labelled):
    array, path = labelled
    part = opened(path).irr[[0, 3]]
    expected = array.select([0, 3])
    assert part.time_id.values.tolist() == expected.time_id.tolist()
    assert part.data.nnz == expected.nnz
    assert part.class_default.values.tolist() == expected.static["class_default"][1].tolist()
    np.testing.assert_array_equal(part.irr.to_dense()[0], dense.to_dense(expected)[0])
    one = opened(path).sel(ts_id="2").irr[0:1]
    assert not np.isnan(filled(one.data)).any()


def test_what_the_engine_and_the_accessor_cannot_take_is_refused(tmp_path):
    with pytest.raises(UsageError, match="paths of files"):
        engine.IrregularBackend().open_dataset(3)
    (tmp_path / "x.h5").write_text("no")
    with pytest.raises(DataError, match="no HDF5 file"):
        opened(tmp_path / "x.h5")
    plain = xarray.DataArray(np.zeros((1, 1, 2)), dims=("ts_id", "signal_id", "time_id"))
    with pytest.raises(DataError, match="sparse"):
        plain.irr[0:1]


@pytest.mark.parametrize(("name", "dates"), [("numbers", False), ("dates", True)])
def test_a_csv_becomes_the_file_that_pyrregular_makes_of_it_to_the_byte(tmp_path, name, dates):
    from assay.learning.irregular.readers import read_csv

    array = read_csv(
        ORACLES / f"by_peer_{name}.csv",
        dims={"ts_id": ["lab", "place"], "signal_id": ["unit"], "time_id": ["day"]},
        time_index_as_datetime=dates,
        attrs={
            "configs": {"default": {"task": "classification", "split": "place", "target": "lab"}},
            "title": name[0],
        },
    )
    files.write_hdf5(array, tmp_path / "ours.h5")
    assert (tmp_path / "ours.h5").read_bytes() == (ORACLES / f"by_peer_{name}.h5").read_bytes()
