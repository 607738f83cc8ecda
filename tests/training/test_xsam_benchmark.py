"""xsam as a benchmark: data, networks, trainings, runs, analyses, recipes, and every rule of check_benchmark."""

from __future__ import annotations

import csv
import json

import numpy as np
import polars as pl
import pytest
import torch

import assay
from assay.core.errors import DataError, MissingExtra, UsageError
from assay.core.results import Runs
from assay.training import xsam as room
from assay.training.xsam import analyses, methods, recipes, reproduce
from assay.training.xsam.benchmark import XSAMBenchmark
from assay.training.xsam.training import Recipe, _augmented

QUICK = {"epochs": 2, "train": 60, "batch_size": 20}


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "clusters", "moons", "shapes"])
def test_splits_are_disjoint_standardised_and_only_training_classes_are_noisy(name):
    rng = np.random.default_rng(0)
    clean = room.make_split(name, np.random.default_rng(0))
    noisy = room.make_split(name, rng, noise=0.4)
    np.testing.assert_array_equal(clean.x_train, noisy.x_train)
    np.testing.assert_array_equal(clean.y_test, noisy.y_test)
    changed = int((clean.y_train != noisy.y_train).sum())
    assert changed == noisy.noisy > 0
    assert (clean.y_valid != noisy.y_valid).any()
    share = changed / len(clean.y_train)
    assert share == pytest.approx(0.4 * (1 - 1 / clean.classes), abs=0.1)
    assert float(clean.x_train.mean()) == pytest.approx(0, abs=1e-5)
    assert len(np.unique(np.concatenate([clean.y_train, clean.y_test]))) == clean.classes
    assert clean.x_train.dtype == np.float32
    rows = {row.tobytes() for row in clean.x_train}
    if name != "digits":
        assert not rows & {row.tobytes() for row in clean.x_test}


def test_cifar_is_read_from_its_binary_version(tmp_path):
    rng = np.random.default_rng(0)
    parts = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for name, labels, files in (
        ("cifar10", 1, [f"cifar-10-batches-bin/{part}.bin" for part in parts]),
        ("cifar100", 2, ["train.bin", "test.bin"]),
    ):  # fmt: skip
        root = tmp_path / name
        for file in files:
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = rng.integers(0, 256, (20, labels + 3072)).astype(np.uint8)
            rows[:, 0] = 19
            rows[:, labels - 1] = np.arange(20) % 10
            rows.tofile(path)
        split = room.make_split(name, rng, data=str(root))
        assert split.shape == (3, 32, 32)
        assert split.classes == 10
        assert len(split.y_test) == 20
    (root / "test.bin").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="multiple of 3074"):
        room.make_split("cifar100", rng, data=str(root))
    with pytest.raises(DataError, match="binary version"):
        room.make_split("cifar10", rng, data=str(tmp_path))
    with pytest.raises(UsageError, match="data=FOLDER"):
        room.make_split("cifar10", rng)


def test_tiny_imagenet_is_read_and_its_faults_are_named(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    rng = np.random.default_rng(0)
    lines = []
    for c in ("n01", "n02"):
        (tmp_path / "train" / c / "images").mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / "train" / c / "images" / f"{i}.JPEG")
    (tmp_path / "val" / "images").mkdir(parents=True)
    for i in range(3):
        image.fromarray(rng.integers(0, 256, (64, 64)).astype(np.uint8)).save(tmp_path / "val" / "images" / f"{i}.JPEG")
        lines.append(f"{i}.JPEG\tn02\t0\t0\t62\t62")
    annotations = tmp_path / "val" / "val_annotations.txt"
    annotations.write_text("\n".join(lines))
    split = room.make_split("tiny_imagenet", rng, data=str(tmp_path))
    assert split.shape == (3, 64, 64)
    assert split.y_test.tolist() == [1, 1, 1]
    annotations.write_text("0.JPEG n02")
    with pytest.raises(DataError, match="line 1"):
        room.make_split("tiny_imagenet", rng, data=str(tmp_path))


def test_bad_requests_for_data_are_one_sentence():
    rng = np.random.default_rng(0)
    with pytest.raises(UsageError, match="did you mean"):
        room.make_split("digit", rng)
    with pytest.raises(UsageError, match="leave none"):
        room.make_split("moons", rng, train=3000)
    with pytest.raises(UsageError, match="noise must lie"):
        room.make_split("moons", rng, noise=1.0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    # ResNet-18, ResNet-50, DenseNet-121 with CIFAR stems and 10 classes: the counts that circulate for them.
    [("resnet18", 11_173_962), ("resnet50", 23_520_842), ("densenet121", 6_956_298), ("vgg11", 9_228_362)],
)
def test_the_papers_networks_have_the_known_sizes(name, parameters):
    with torch.device("meta"):
        net = room.make_network(name, (3, 32, 32), 10)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 10)


@pytest.mark.parametrize("name", ["mlp", "mlp_plain", "cnn", "vit"])
def test_small_networks_give_a_logit_a_class(name):
    assert room.make_network(name, (1, 8, 8), 10)(torch.randn(3, 1, 8, 8)).shape == (3, 10)
    with pytest.raises(UsageError, match="did you mean"):
        room.make_network("resnet81", (3, 32, 32), 10)
    if not name.startswith("mlp"):
        with pytest.raises(UsageError, match="reads pictures"):
            room.make_network(name, (30,), 2)


def test_augmentation_shifts_mirrors_and_blanks():
    x = torch.rand(8, 3, 16, 16) + 1
    generator = torch.Generator().manual_seed(0)
    cut = _augmented(x, Recipe(cutout=6), generator)
    assert (cut == 0).float().mean() > 0.02
    assert torch.equal(cut[cut != 0], x[cut != 0])
    moved = _augmented(x, Recipe(flip=True), generator)
    assert moved.shape == x.shape
    # Every picture is a mirrored or plain window of its padded self.
    padded = torch.nn.functional.pad(x, (2,) * 4)
    for one, whole in zip(moved, padded):
        windows = [whole[:, i : i + 16, j : j + 16] for i in range(5) for j in range(5)]
        assert any(torch.equal(one, w) or torch.equal(one, w.flip(2)) for w in windows)


def test_trainings_with_one_seed_are_the_same_and_resume_exactly(tmp_path):
    split = room.make_split("digits", np.random.default_rng(0), train=60, noise=0.3)
    recipe = Recipe(network="cnn", epochs=10, batch_size=20)
    whole = room.train_classifier(methods.xsam(0.3).build, split, recipe, 5)

    class Killed(Exception):
        pass

    def kill(epoch, *args, **kwargs):
        if epoch == 6:
            raise Killed

    path = tmp_path / "training.pt"
    with pytest.raises(Killed):
        room.train_classifier(methods.xsam(0.3).build, split, recipe, 5, checkpoint=path, progress=kill)
    seen = []
    resumed = room.train_classifier(
        methods.xsam(0.3).build, split, recipe, 5, checkpoint=path, progress=lambda epoch, *a, **k: seen.append(epoch)
    )
    assert seen == [7, 8, 9, 10]
    timed = ("seconds", "cpu_seconds")
    for a, b in zip(whole.rows, resumed.rows, strict=True):
        assert {k: v for k, v in a.items() if k not in timed} == {k: v for k, v in b.items() if k not in timed}
    assert resumed.history == whole.history
    assert whole.scores["passes"] == 2 * 3 * 10
    assert [row["epoch"] for row in whole.rows] == list(range(1, 11))


def test_the_first_pass_alone_is_logged_and_the_log_is_the_published_one(tmp_path):
    split = room.make_split("moons", np.random.default_rng(0), train=60)
    found = room.train_classifier(methods.sam(0.5).build, split, Recipe("mlp_plain", epochs=1, batch_size=60), 0)
    # One batch of all rows: the logged loss is that of the first weights.
    assert found.rows[0]["train_loss"] == pytest.approx(np.log(2), abs=0.1)
    with room.write_log(found.rows, tmp_path / "log.csv").open() as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["Epoch", "Lr", "Train Loss", "Train Accuracy", "Test Loss", "Test Accuracy"]
    assert float(rows[1][1]) == 0.05


@pytest.mark.parametrize("name", list(methods.METHODS))
def test_every_method_trains(name):
    split = room.make_split("moons", np.random.default_rng(0), train=60)
    try:
        found = room.train_classifier(
            methods.METHODS[name]().build, split, Recipe(epochs=3, batch_size=20), 0, measure_sharpness=False
        )
    except MissingExtra as error:
        pytest.skip(str(error))
    assert 50 < found.scores["best"] <= 100


def test_the_peers_training_is_ours():
    pytest.importorskip("pytorch_optimizer", reason="pytorch-optimizer is not installed")
    split = room.make_split("moons", np.random.default_rng(0), train=60)
    losses = [
        [row["train_loss"] for row in room.train_classifier(m.build, split, Recipe(epochs=3, batch_size=20), 0).rows]
        for m in (methods.sam(0.2), methods.pytorch_optimizer_sam(0.2))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_run_its_metrics_and_its_analyses(tmp_path):
    bench = XSAMBenchmark("moons,digits", network="mlp", **QUICK)
    runs = Runs([assay.run(bench, f"method:{m}", attempts=2, into=tmp_path / m) for m in ("sgd", "xsam")])
    for run in runs:
        assert run.records["status"].to_list() == ["ok"] * 4
        assert run.rows("training").height == 8
    first = [run.records.sort("sample", "attempt")["seed"].to_list() for run in runs]
    assert first[0] == first[1]
    table = analyses.table(runs)
    assert table.frame.height == 4
    record = runs[1].records.filter(pl.col("data") == "digits")
    shown = table.frame.filter(pl.col("system").str.contains("xsam"))
    assert shown.filter(pl.col("data") == "digits")["last5_mean"][0] == pytest.approx(record["last5_mean"].mean())
    found = analyses.significance(runs).frame
    assert found.height == 1
    assert found["pairs"].to_list() == [4]
    assert analyses.overhead(runs).frame["times_cheapest"].min() == 1.0
    alphas = analyses.alpha(runs).frame
    assert alphas["epoch"].unique().sort().to_list() == [1, 2]
    assert analyses.curves(runs).frame.height == 8
    with pytest.raises(UsageError, match="no score"):
        analyses.table(runs, score="accuracy")
    with pytest.raises(UsageError, match="at least two"):
        analyses.significance(Runs([runs[0]]))
    with pytest.raises(UsageError, match="searched"):
        analyses.alpha(Runs([runs[0]]))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"data": "digit"}, "did you mean"), ({"noise": "a"}, "numbers in"), ({"network": "mlpp"}, "did you mean"),
     ({"epochs": 0}, "epochs=0"), ({"data": "cifar10"}, "folder=FOLDER"), ({"train": 1}, "train=1"),
     ({"data": " , "}, "is empty")],
)  # fmt: skip
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        XSAMBenchmark(**options).tasks()


def test_names_on_the_card_are_those_of_data_and_networks():
    from assay.training.xsam import benchmark, data

    assert (*data.OFFLINE, *data.PUBLISHED) == benchmark._DATA
    assert set(room.NETWORKS) == set(benchmark._NETWORKS)


def test_the_plane_recipe_draws_a_figure(tmp_path):
    recipes.plane(tmp_path, data="moons", epochs=1, size=5)
    assert (tmp_path / "plane.svg").read_text().startswith("<svg")
    there = json.loads((tmp_path / "plane.json").read_text())
    assert there["losses"][there["alphas"].index(there["alpha"])] == max(there["losses"])
    assert np.load(tmp_path / "surface.npz")["losses"].shape == (5, 5)
    assert np.load(tmp_path / "history.npz")["losses"].shape == (1, 21)


def test_directions_and_quadratics_hold_exactly():
    states = [reproduce.directions({"seed": seed}) for seed in range(9)]
    assert all(s["xsam"] >= max(s["g0"], s["g1"]) for s in states)
    assert reproduce.quadratic_claim().holds


def test_radii_are_chosen_by_validation_alone():
    rows = [{"rho": rho, "valid": 60 - abs(rho - 0.3), "test": rho} for rho in reproduce.RADII]
    assert reproduce.chosen_radius(rows) == 0.3


def test_criteria_say_when_they_fail():
    def rows(xsam):
        level = {
            "sgd": 70.0,
            "sgd_2x": 71.0,
            "sgd_4x": 72.0,
            "sam": 75.0,
            "sam_k3": 75.0,
            "xsam": xsam,
            "xsam_k3": xsam,
        }
        return [{"method": m, "test": v + s / 10 + (s % 3) / 7} for m, v in level.items() for s in range(10)]

    assert all(c.holds for c in reproduce.accuracy_claims(rows(77.0)))
    assert not any(c.holds for c in reproduce.accuracy_claims(rows(60.0)))
    timed = [{"k": 1, "search": "grid", "batches": 100, "sam": [1.0, 1.0], "xsam": [1.06, 1.08]}]
    assert not reproduce.time_claims(timed)[0].holds
