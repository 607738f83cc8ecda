"""Files of survhte: stores that pandas wrote, pickles that are not run, twins, orders of rows, folders."""

from __future__ import annotations

import os
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.datasets import Data
from assay.core.errors import DataError, UsageError
from assay.learning.survhte import sources
from assay.learning.survhte.benchmark import SurvHTE
from assay.learning.survhte.data import make_survhte
from assay.learning.survhte.pickled import read_pickled
from assay.learning.survhte.protocol import Estimand
from assay.learning.survhte.published import (
    numbers,
    permutations,
    published_synthetic,
    read_published,
    read_results,
    read_store,
    store_keys,
)
from assay.learning.survhte.twins import COUNTED, INDICATORS, NUMERIC, encode_twins, load_twins

h5py = pytest.importorskip("h5py")

ORACLES = Path(__file__).parents[1] / "oracles" / "survhte"
ROWS = pl.read_csv(ORACLES / "store_rows.csv")


# -- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["fixed", "table"])
def test_stores_written_by_pandas_read_as_the_rows_that_went_in(layout: str) -> None:
    path = ORACLES / f"store_{layout}.h5"
    assert store_keys(path) == ["Scenario_A/data"]
    frame, facts = read_store(path, "Scenario_A/data")
    assert set(frame.columns) == set(ROWS.columns)
    for name in ROWS.columns:
        np.testing.assert_array_equal(frame[name].to_numpy(), ROWS[name].to_numpy())
    assert facts["scenario"] == "A"
    assert facts["n"] == 12
    assert facts["ate"] == pytest.approx((ROWS["T1"] - ROWS["T0"]).mean())


def test_stores_with_faults_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no table 'Scenario_B/data'; there are Scenario_A/data"):
        read_store(ORACLES / "store_fixed.h5", "Scenario_B/data")
    (tmp_path / "text.h5").write_text("id,time\n", encoding="utf-8")
    with pytest.raises(DataError, match="no HDF5 file"):
        store_keys(tmp_path / "text.h5")
    # pandas writes columns of Python objects as one pickle in rows of bytes.
    broken = tmp_path / "objects.h5"
    shutil.copy(ORACLES / "store_fixed.h5", broken)
    with h5py.File(broken, "a") as file:
        group = file["Scenario_A/data"]
        del group["block0_values"]
        group.create_dataset("block0_values", (1,), dtype=h5py.vlen_dtype(np.uint8))[0] = np.arange(3, dtype=np.uint8)
    with pytest.raises(DataError, match="block 0 holds no plain numbers"):
        read_store(broken, "Scenario_A/data")
    with h5py.File(broken, "a") as file:
        file["Scenario_A/data"].attrs["pandas_type"] = np.bytes_(b"series")
    with pytest.raises(DataError, match="'series' of pandas"):
        read_store(broken, "Scenario_A/data")


def test_a_folder_with_a_store_replaces_generated_rows(tmp_path: Path) -> None:
    shutil.copy(ORACLES / "store_table.h5", tmp_path / "RCT-5.h5")
    bench = SurvHTE(data=str(tmp_path), sets="RCT-5/*", n=50)
    loaded = {source.name: source for source in bench.sources}
    assert set(loaded) == {f"RCT-5/{s}" for s in "ABCDE"}
    data = loaded["RCT-5/A"].load()
    assert len(data) == 12
    assert data.features == [f"X{i}" for i in range(1, 6)]
    assert data.exact is not None
    np.testing.assert_array_equal(data.W, ROWS["W"].to_numpy())
    assert len(loaded["RCT-5/B"].load()) == 50
    kinds = {entry["kind"] for entry in bench.data()["sources"]}
    assert kinds == {"real", "generated"}


def test_rows_that_name_their_configuration_are_data_sets(tmp_path: Path) -> None:
    drawn = make_survhte("OBS-CPS", "C", 40, random_state=1)
    frame = pl.DataFrame({f"X{i + 1}": drawn.X[:, i] for i in range(5)}).with_columns(
        observed_time=drawn.time, event=drawn.event.astype(int), T0=drawn.T0, T1=drawn.T1, W=drawn.W,
        setup_key=pl.lit("OBS-CPS"), scenario=pl.lit("Scenario_C"), summary_json=pl.lit("{}"),
    )  # fmt: skip
    other = frame.with_columns(setup_key=pl.lit("their own"))
    pl.concat([frame, other]).write_parquet(tmp_path / "train.parquet")
    bench = SurvHTE(data=str(tmp_path), sets="OBS-CPS/C,their*")
    found = {source.name: source for source in bench.sources}
    assert {name: source.truth for name, source in found.items()} == {"OBS-CPS/C": "exact", "their own/C": "draws"}
    data = found["OBS-CPS/C"].load()
    assert data.exact is not None
    assert drawn.exact is not None
    np.testing.assert_allclose(data.exact(Estimand()), drawn.exact(Estimand()))
    assert found["their own/C"].load().exact is None


def test_the_hub_is_a_folder_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ORACLES / "store_fixed.h5", tmp_path / "RCT-50.h5")
    asked = {}

    def hub(name: str, *, files) -> Data:
        asked[name] = files
        return Data("real", name, "", "0" * 32, tmp_path, revision="abc")

    monkeypatch.setattr(sources, "hub", hub)
    bench = SurvHTE(data="hf:snoroozi/SurvHTE-Bench", sets="RCT-50/A")
    assert len(bench.sources[0].load()) == 12
    assert bench.data()["source"] == "hf:snoroozi/SurvHTE-Bench"
    assert not any(pattern.endswith((".pkl", ".py")) for pattern in asked["hf:snoroozi/SurvHTE-Bench"])


def test_the_hub_out_of_reach_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="not in the local hub cache"):
        _ = SurvHTE(data="hf:snoroozi/not-there-at-all").sources


def test_covariates_outside_the_suite_have_no_exact_truth() -> None:
    with pytest.raises(DataError, match="lie between 0 and 1"):
        published_synthetic(ROWS.with_columns(X1=pl.lit(3.0)), "RCT-50", "A", "rows")


# -- pickles ----------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(values, st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_plain_pickles_read_as_python_reads_them(value: object, protocol: int) -> None:
    assert read_pickled(pickle.dumps(value, protocol), "x") == value


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_and_numbers_of_numpy_come_out(protocol: int) -> None:
    made = {
        "a": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big": np.arange(3, dtype=">f8"), "none": np.empty((0, 2)), "flags": np.array([True, False]),
        "number": np.float64(2.5), "text": np.array(["ab", "c"]), np.int64(4): 1,
    }  # fmt: skip
    found = read_pickled(pickle.dumps(made, protocol), "x")
    for name in ("a", "f", "big", "none", "flags", "text"):
        np.testing.assert_array_equal(found[name], made[name])
    assert found["number"] == 2.5
    assert found[4] == 1


class Runs:
    """A pickle of it runs a command when Python reads it."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_in_a_pickle_is_run(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for made in (Runs(), {"a": [Runs()]}):
        with pytest.raises(DataError, match=r"holds .*mkdir; of pickles only"):
            read_pickled(pickle.dumps(made, protocol), "x.pkl")
    with pytest.raises(DataError, match="Python objects"):
        read_pickled(pickle.dumps(np.array([{}], object), protocol), "x.pkl")
    assert not list(tmp_path.iterdir())


def test_what_is_shared_costs_once_and_circles_are_refused() -> None:
    nested: list = [1]
    for _ in range(60):
        nested = [nested, nested]
    assert read_pickled(pickle.dumps(nested), "x")[0] is not None
    circle: list = []
    circle.append(circle)
    with pytest.raises(DataError, match="holds itself"):
        read_pickled(pickle.dumps(circle), "x")


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_X(content: bytes) -> None:
    for made in (content, pickle.dumps({"a": [1, 2]})[: len(content)]):
        with suppress(DataError):
            read_pickled(made, "x")


def test_published_results_read_as_a_table(tmp_path: Path) -> None:
    entry = {"cate_true": np.zeros(3), "cate_pred": np.ones(3), "ate_true": 0.1, "ate_pred": np.float64(0.2),
             "cate_mse": 1.0, "ate_bias": np.array([0.1]), "ate_interval": (0.1, 0.3)}  # fmt: skip
    path = tmp_path / "t_learner.pkl"
    path.write_bytes(pickle.dumps({"RCT-50": {"Scenario_A": dict.fromkeys(range(3), entry), "note": 1}}))
    found = read_results(path)
    assert found.height == 3
    assert found.row(0, named=True) == {
        "config": "RCT-50", "scenario": "Scenario_A", "repeat": "0", "ate_true": 0.1, "ate_pred": 0.2, "cate_mse": 1.0,
        "ate_bias": 0.1,
    }  # fmt: skip
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(DataError, match="holds a list where configurations"):
        read_results(path)
    path.write_bytes(pickle.dumps({"a": {"b": {"c": {"other": 1}}}}))
    with pytest.raises(DataError, match="holds no results"):
        read_results(path)


# -- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("W", 2, r"row 3, column 'W': 2 is neither 0 nor 1"), ("event", 0.5, r"row 3, column 'event': 0.5 is neither"),
        ("observed_time", -1.0, "row 3, column 'observed_time': the time -1 is negative"),
        ("X2", None, "row 3, column 'X2': null is no number"),
        ("X2", "low", "row 3, column 'X2': \"low\" is no number"),
    ],
)  # fmt: skip
def test_a_fault_in_a_table_is_named_by_row_and_column(
    column: str, value: object, sentence: str, tmp_path: Path
) -> None:
    other = ROWS.with_columns(pl.col(column).cast(pl.String))
    text = [None if value is None else str(value) if i == 1 else one for i, one in enumerate(other[column])]
    other = other.with_columns(pl.Series(column, [other[column][0], text[1], *other[column][2:]]))
    other.write_csv(tmp_path / "twin30.csv")
    with pytest.raises(DataError, match=sentence):
        read_published(tmp_path / "twin30.csv", "twin30", [f"X{i}" for i in range(1, 6)])


def test_a_table_without_covariates_is_refused(tmp_path: Path) -> None:
    ROWS.select("observed_time", "event", "T0", "T1", "W").write_csv(tmp_path / "twin30.csv")
    with pytest.raises(DataError, match="no covariate besides"):
        read_published(tmp_path / "twin30.csv", "twin30")


def test_orders_of_rows_must_be_orders(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    orders = pl.DataFrame({"idx": range(8), **{f"random_idx{i}": rng.permutation(8) for i in range(3)}})
    orders.write_csv(tmp_path / "idx_split_twin.csv")
    found = permutations(tmp_path / "twin30.csv", 8)
    assert found is not None
    assert found.shape == (3, 8)
    np.testing.assert_array_equal(found[2], orders["random_idx2"].to_numpy())
    with pytest.raises(DataError, match=r"random_idx0'.*12 rows of twin30.csv, 0 to 11"):
        permutations(tmp_path / "twin30.csv", 12)
    orders.with_columns(random_idx1=pl.lit(0)).write_csv(tmp_path / "idx_split_twin.csv")
    with pytest.raises(DataError, match="random_idx1"):
        permutations(tmp_path / "twin30.csv", 8)
    assert permutations(tmp_path / "elsewhere" / "twin30.csv", 8) is None
    with pytest.raises(DataError, match="column 'b' is missing"):
        numbers(orders, ["b"], "here")


# -- twins ------------------------------------------------------------------------------------------------------------


def pairs(n: int = 400) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    columns: dict[str, np.ndarray] = {name: rng.integers(10, 40, n) for name in (*COUNTED, *NUMERIC)}
    columns |= {name: rng.choice([1, 2, 8], n, p=[0.2, 0.7, 0.1]) for name in INDICATORS}
    columns |= {"pldel": rng.integers(1, 6, n), "resstatb": rng.integers(1, 5, n), "mpcb": rng.integers(0, 10, n)}
    lives = np.where(rng.uniform(size=(n, 2)) < 0.7, 9999, rng.integers(0, 365, (n, 2)))
    return pl.DataFrame(columns | {"outcome(t=0)": lives[:, 0], "outcome(t=1)": lives[:, 1]})


def test_covariates_of_twins_become_43_columns() -> None:
    frame = pairs()
    X, names = encode_twins(frame)
    assert X.shape == (400, 43)
    assert len(set(names)) == 43
    # 8 is unknown and becomes the usual value, 2, which is no 1.
    np.testing.assert_array_equal(X[:, names.index("anemia")], frame["anemia"].to_numpy() == 1)
    np.testing.assert_array_equal(X[:, names.index("mpcb_9")], frame["mpcb"].to_numpy() == 9)
    assert not X[:, names.index("dmage")].any()
    better, names = encode_twins(frame, as_published=False)
    assert better.shape == (400, 43)
    np.testing.assert_array_equal(better[:, names.index("dmage")], frame["dmage"].to_numpy())
    usual = frame.with_columns(anemia=pl.Series([1] * 399 + [8]))
    X, names = encode_twins(usual)
    assert X[:, names.index("anemia")].all()


def test_twins_with_faults_are_refused() -> None:
    with pytest.raises(DataError, match="row 5, column 'pldel': 7 is none of the levels 1 to 5"):
        encode_twins(pairs().with_columns(pldel=pl.Series([1, 1, 1, 7] + [1] * 396)))
    with pytest.raises(DataError, match="'rh' is missing"):
        encode_twins(pairs().drop("rh"))
    with pytest.raises(UsageError, match="30 or 180"):
        load_twins("Twin_Data.csv", 31)


def test_a_folder_with_raw_twins_gives_both_data_sets(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    pairs().write_csv(tmp_path / "deep" / "Twin_Data.csv")
    bench = SurvHTE(data=str(tmp_path), sets="twin*")
    loaded = {source.name: source.load() for source in bench.sources}
    assert set(loaded) == {"twin30", "twin180"}
    short, long = loaded["twin30"], loaded["twin180"]
    np.testing.assert_array_equal(short.W, long.W)
    assert short.T1 is not None
    assert short.T1.max() == 30
    assert short.estimand("rmst") == Estimand("rmst", 30.0)
    assert 0 < short.event.mean() < 1
