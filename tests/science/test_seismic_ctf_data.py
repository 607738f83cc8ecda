"""seismic_ctf: files, pairs, the official Lorenz sample, splits, submissions, the framework's function names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from assay.core.errors import DataError, DataFaults, UsageError
from assay.science.seismic_ctf import CTFDataset, read_definition, validation_scores, validation_split
from assay.science.seismic_ctf.benchmark import SeismicCTF
from assay.science.seismic_ctf.compat import Framework
from assay.science.seismic_ctf.data import read_matrix
from assay.science.seismic_ctf.definition import define, known_definition
from assay.science.seismic_ctf.generators import suite
from assay.science.seismic_ctf.methods import build
from assay.science.seismic_ctf.submission import read_submission

ORACLES = Path(__file__).parents[1] / "oracles/seismic_ctf"
REAL = Path(__file__).parents[3] / "shared/data/seismic_ctf"
real_data = pytest.mark.skipif(
    not (REAL / "ODE_Lorenz").is_dir(), reason="the official sample is not beside the repository"
)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A tiny complete data set, ``sea``: 12 sensors, 60 long, 24 few, 30 ahead."""
    root = tmp_path_factory.mktemp("data")
    d = suite.generated_definition("sea", 12, (60, 24, 30))
    suite.write_suite("sea", root / "sea", d, suite.make_matrices("sea", d, seed=1))
    return root


@real_data
def test_official_lorenz_baselines_are_met():
    data = CTFDataset.load("ODE_Lorenz", REAL)
    for case in json.loads((ORACLES / "lorenz_baselines.json").read_text())["cases"]:
        spec = data.definition.pair(case["pair"])
        given = read_matrix(REAL / "ODE_Lorenz/train" / f"{case['train_or_init']}.mat")
        burn = given if spec.init else None
        name = {"zero": "zeros"}.get(case["baseline"], case["baseline"])
        model = build(name).fit([given], burn, None)
        found = data.score(case["pair"], model.predict(data.definition.times(spec.test)))
        for metric, want in case["expected"].items():
            place = list(spec.metrics).index(metric)
            assert list(found.values())[place] == pytest.approx(want, abs=1e-6)


@real_data
def test_pairs_without_their_files_are_named_and_left_out():
    data = CTFDataset.load("ODE_Lorenz", REAL)
    assert data.missing(8) == ["X6train.mat", "X7train.mat", "X8train.mat"]
    with pytest.raises(DataError, match=r"X6train\.mat"):
        data.pair(8)
    bench = SeismicCTF(str(REAL), datasets="ODE_Lorenz")
    assert bench.numbers("ODE_Lorenz") == [1, 6, 7]


@real_data
@pytest.mark.parametrize("name", ["seismo/seismo", "ODE_Lorenz/ODE_Lorenz", "ocean_das", "crustal_3d"])
def test_official_yaml_is_what_assay_knows(name):
    official = read_definition(REAL / f"{name}.yaml")
    known = known_definition(official.name)
    assert official.shapes == known.shapes
    assert official.pairs == known.pairs
    assert all(official.starts.get(f, 0) == known.starts.get(f, 0) for f in official.shapes)
    for field in ("delta_t", "long_time", "k_short", "k_long", "modes", "bins", "kind"):
        assert getattr(official, field) == getattr(known, field), field


@real_data
def test_official_stations_are_the_closed_form():
    from assay.science.seismic_ctf.generators.globe import fibonacci_sphere

    official = np.genfromtxt(REAL / "seismo/sensor_locations.csv", delimiter=",", skip_header=1)
    assert np.abs(fibonacci_sphere(2048) - official[:, :5]).max() < 1e-9


def test_definitions_survive_yaml(small, tmp_path):
    d = suite.generated_definition("sea", 12, (60, 24, 30))
    assert read_definition(small / "sea/sea.yaml").config() == d.config()
    old = d.config()
    old["evaluation_params"] = {"k": 7, "modes": 5}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(old))
    again = read_definition(tmp_path / "x.yaml")
    assert (again.k_short, again.k_long) == (7, 7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("pairs"), "pairs is missing"),
        (lambda c: c["evaluation_params"].update(k_short="many"), "k_short"),
        (lambda c: c["metadata"]["matrix_shapes"].update({"X1train.npz": [3]}), "X1train.npz"),
        (lambda c: c["pairs"][0].pop("test"), r"pairs\[0\]\.test"),
        (lambda c: c["metadata"].update(delta_t="soon"), "delta_t"),
    ],
)
def test_bad_yaml_is_refused_with_the_field(tmp_path, change, words):
    config = suite.generated_definition("sea", 12, (60, 24, 30)).config()
    change(config)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(DataError, match=words):
        read_definition(tmp_path / "x.yaml")


def test_yaml_with_objects_is_not_loaded(tmp_path):
    (tmp_path / "x.yaml").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(DataError, match="cannot be read as YAML"):
        read_definition(tmp_path / "x.yaml")


def test_matrices_are_read_from_three_formats_and_refused_otherwise(tmp_path):
    from scipy.io import savemat

    a = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "a.npz", X=a)
    savemat(tmp_path / "a.mat", {"X": a})
    for suffix in ("npy", "npz", "mat"):
        assert (read_matrix(tmp_path / f"a.{suffix}") == a).all()
    np.savez(tmp_path / "two.npz", X=a, Y=a)
    np.save(tmp_path / "objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "complex.npy", a.astype(complex))
    np.save(tmp_path / "flat.npy", a.ravel())
    (tmp_path / "torn.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:60])
    (tmp_path / "torn.mat").write_bytes(b"MATLAB")
    for name, words in {
        "two.npz": "2 variables", "objects.npy": "never loaded", "complex.npy": "complex128",
        "flat.npy": "1 dimensions",
        "torn.npz": "torn.npz", "torn.mat": "torn.mat", "none.npy": "no file", "a.csv": "read from",
    }.items():  # fmt: skip
        if name == "a.csv":
            (tmp_path / name).write_text("1")
        with pytest.raises(DataError, match=words):
            read_matrix(tmp_path / name)


def test_a_transposed_matrix_on_disk_is_refused(small, tmp_path):
    import shutil

    shutil.copytree(small, tmp_path / "d")
    file = tmp_path / "d/sea/train/X1train.npz"
    np.savez(file, X=read_matrix(file).T)
    with pytest.raises(DataError, match="transposed"):
        CTFDataset.load("sea", tmp_path / "d").pair(1)


def test_truth_elsewhere_is_found_and_its_absence_said(small, tmp_path):
    import shutil

    shutil.copytree(small / "sea/train", tmp_path / "given/sea/train")
    shutil.copy(small / "sea/sea.yaml", tmp_path / "given/sea/sea.yaml")
    hidden = CTFDataset.load("sea", tmp_path / "given")
    assert not hidden.has_truth(1)
    with pytest.raises(DataError, match="is not in"):
        hidden.score(1, np.zeros((30, 12)))
    for truth in (small, small / "sea", small / "sea/test"):
        assert CTFDataset.load("sea", tmp_path / "given", truth=truth).score(1, np.zeros((30, 12)))["E1"] == 0.0
    with pytest.raises(DataError, match="no test matrices"):
        CTFDataset.load("sea", tmp_path / "given", truth=tmp_path)


@pytest.mark.parametrize(
    "case", json.loads((ORACLES / "validation_split.json").read_text())["cases"], ids=lambda c: str(c["pair"])
)
def test_validation_splits_are_the_official_ones(case, tmp_path):
    d = define("x", widths=(3, 3), rows=(case["rows_train"], 50, 10), starts=(0, 0, 50, 2000), delta_t=1.0, modes=2)
    (tmp_path / "train").mkdir()
    for file, shape in d.shapes.items():
        if "train" in file:
            rows = np.arange(shape[0], dtype=float)[:, None] + 1e5 * int(file[1:].partition("train")[0])
            np.savez(tmp_path / "train" / file, X=np.tile(rows, (1, 3)))
    pair = CTFDataset(d, tmp_path).pair(case["pair"])
    split = validation_split(pair, case["train_split"])
    assert [len(x) for x in split.train] == case["expected_train_rows"]
    assert len(split.validation) == case["expected_val_rows"] == len(split.times.test)
    if pair.init is not None:
        held = {8: 7, 9: 8}[pair.id]
        assert split.validation[0, 0] == held * 1e5
        assert (split.init == split.validation[:50]).all()
        assert all(x[0, 0] != held * 1e5 for x in split.train)
    for bad in (0.0, 1.0, -1.0):
        with pytest.raises(UsageError, match="train_split"):
            validation_split(pair, bad)


def test_short_validation_shortens_k_with_a_warning(small):
    pair = CTFDataset.load("sea", small).pair(6)
    split = validation_split(pair)
    with pytest.warns(UserWarning, match="shortened"):
        assert validation_scores(pair, split, split.validation) == {"short_time": 100.0, "long_time": 100.0}
    with pytest.raises(DataError, match="k_long=20"), pytest.warns(UserWarning, match="all are used"):
        validation_scores(pair, split, split.validation, flexible_k=False)


def submit(small, path):
    sets = {"sea": CTFDataset.load("sea", small)}
    return list(read_submission(path, sets, {"sea": sets["sea"].pair_ids}))


def test_submissions_are_read_in_every_published_layout(small, tmp_path):
    y = np.ones((30, 12))
    (tmp_path / "flat").mkdir()
    np.save(tmp_path / "flat/pair1.npy", y)
    np.savez(tmp_path / "flat/pair3.npz", P=y)
    assert [(t, s, a) for t, s, a, _ in submit(small, tmp_path / "flat")] == [("sea", "pair1", 0), ("sea", "pair3", 0)]
    Framework(small, tmp_path / "results").save_results("sea", "mine", "batch", 1, {"x": 1}, y, {"short_time": 3})
    batch = tmp_path / "results/sea/mine/batch"
    assert [row[1] for row in submit(small, batch)] == ["pair1"]
    for k in (0, 2):
        (tmp_path / f"many/sea/attempt{k}").mkdir(parents=True)
        np.save(tmp_path / f"many/sea/attempt{k}/pair1.npy", y)
    assert [row[2] for row in submit(small, tmp_path / "many")] == [0, 2]
    features = ",".join(f"f{i}" for i in range(12))
    lines = [f"id,pair_id,timestep,{features}"]
    lines += [f"1_{t},1,{t}," + ",".join(str(t + i / 10) for i in range(12)) for t in reversed(range(30))]
    (tmp_path / "s.csv").write_text("\n".join(lines))
    (only,) = submit(small, tmp_path / "s.csv")
    assert only[3].output["values"][3][1] == 3.1


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda ls: ls[:-1], "29 of 30 rows; timestep 29 is missing"),
        (lambda ls: [*ls, ls[-1]], "line 32: timestep 29 of pair 1 is given twice"),
        (lambda ls: [ls[0], ls[1].replace("0.5", "x")] + ls[2:], "line 2: a 'x' is not a number"),
        (lambda ls: [ls[0], ls[1].replace("0.5", "nan")] + ls[2:], "line 2: a is nan"),
        (lambda ls: [ls[0], "9" + ls[1][1:]] + ls[2:], "line 2: the id"),
        (lambda ls: ["a,b,c,d"] + ls[1:], "line 1"),
        (lambda ls: [ls[0]] + [ls[1] + ",4"] + ls[2:], "line 2: 16 fields"),
    ],
)
def test_faults_of_a_csv_are_named_with_their_line(small, tmp_path, edit, words):
    names = "abcdefghijkl"
    lines = ["id,pair_id,timestep," + ",".join(names)]
    lines += [f"1_{t},1,{t}," + ",".join(["0.5"] * 12) for t in range(30)]
    if "'x'" in words or "nan" in words:
        lines[1] = "1_0,1,0," + ",".join(["0.5"] + ["1"] * 11)
    (tmp_path / "s.csv").write_text("\n".join(edit(lines)))
    with pytest.raises(DataError, match=words):
        submit(small, tmp_path / "s.csv")


def test_all_faults_are_told_at_once(small, tmp_path):
    for number in (1, 3, 6):
        np.save(tmp_path / f"pair{number}.npy", np.ones((2, 2)))
    (tmp_path / "pair7.npy").symlink_to(tmp_path / "pair1.npy")
    with pytest.raises(DataFaults) as caught:
        submit(small, tmp_path)
    assert [f"pair{n}.npy" in fault for n, fault in zip((1, 3, 6, 7), caught.value.faults)] == [True] * 4


def test_faults_of_matrices_are_named_with_their_file(small, tmp_path):
    for name, matrix, words in (
        ("pair1.npy", np.ones((12, 30)), "transposed"),
        ("pair1.npy", np.full((30, 12), np.inf), "not finite at row 0"),
        ("pair11.npy", np.ones((30, 12)), "no pair 11"),
    ):
        folder = tmp_path / words.split()[0]
        folder.mkdir()
        np.save(folder / name, matrix)
        with pytest.raises(DataError, match=words):
            submit(small, folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no predictions"):
        submit(small, tmp_path / "empty")


def test_model_code_of_the_framework_runs_unchanged(small, tmp_path):
    framework = Framework(small, tmp_path / "results")
    program = """
from ctf4science.data_module import load_dataset, parse_pair_ids, get_prediction_timesteps, load_validation_dataset
from ctf4science.eval_module import evaluate, save_results, extract_metrics_in_order
import numpy as np
found = []
for pair in parse_pair_ids({"name": "sea", "pair_id": "all"}):
    train, init = load_dataset("sea", pair, transpose=True)
    mean = (train[0] if init is None else init).mean(axis=1)
    rows = np.repeat(mean[None], len(get_prediction_timesteps("sea", pair)), 0)
    scores = evaluate("sea", pair, rows)
    save_results("sea", "mean", "b", pair, {"a": 1}, rows, scores)
    found.append({"pair_id": pair, "metrics": scores})
values = extract_metrics_in_order("sea", {"pairs": found})
split = load_validation_dataset("sea", 8)
"""
    space: dict = {}
    with framework.installed():
        exec(program, space)
    assert len(space["values"]) == 12
    assert (tmp_path / "results/sea/mean/b/pair9/evaluation_results.yaml").is_file()
    assert [len(x) for x in space["split"][0]] == [60, 60]
    with pytest.raises(ImportError):
        exec("import ctf4science", {})
    with pytest.raises(ValueError, match="no pair 12"):
        framework.get_prediction_timesteps("sea", 12)
    with pytest.raises(FileNotFoundError):
        framework.get_config("nothing")
    assert framework.parse_pair_ids({"name": "sea", "pair_id": "5"}) == [5]
