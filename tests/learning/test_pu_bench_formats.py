"""Published settings and results: read as they are, refused with a sentence, written back."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("yaml")

from assay.core import run as core
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.learning.pu_bench import make_estimator
from assay.learning.pu_bench.benchmark import PUBench
from assay.learning.pu_bench.formats import (
    experiment_name,
    read_method,
    read_results,
    read_sweep,
    write_results,
)
from assay.learning.pu_bench.grid import Configuration
from assay.learning.pu_bench.recipes import export, published

SWEEP = """
dataset_class: Spambase
data_dir: ./datasets
random_seeds: [2, 25]
c_values: [0.1, 0.5]
scenarios: [case-control]
selection_strategies: ["random", "sar_pusb"]
case_control_modes: [naive]
val_ratio: 0.01
target_prevalence: null
with_replacement: true
label_scheme: {true_positive_label: 1, true_negative_label: 0, pu_labeled_label: 1, pu_unlabeled_label: -1}
"""
METHOD = """
vpu:
  optimizer: "adam"
  lr: 0.0003
  num_epochs: 3
  batch_size: 64
  mix_alpha: 0.4
  warp: 9
  seed: 42
  label_scheme: {true_positive_label: 1, true_negative_label: 0, pu_labeled_label: 1, pu_unlabeled_label: -1}
  checkpoint: {enabled: true, save_model: false, monitor: val_f1, mode: max,
               early_stopping: {enabled: true, patience: 7, min_delta: 0.0001}}
"""


def written(path, text):
    path.write_text(text)
    return path


def test_a_published_sweep_is_the_product_of_its_lists(tmp_path):
    sweep = read_sweep(written(tmp_path / "a.yaml", SWEEP))
    assert (sweep.dataset, sweep.seeds, sweep.modes) == ("spambase", (2, 25), ("full_u",))
    # The paper's sar_pusb takes the highest scores; the later code accepts and rejects.
    assert [one.id for one in sweep.configurations] == [
        f"case_control_{s}_c{c:g}" for s in ("scar", "sar_pusb_topk") for c in (0.1, 0.5)
    ]
    later = read_sweep(tmp_path / "a.yaml", accept_reject=True)
    assert later.configurations[-1].strategy == "sar_pusb"
    assert (sweep.clean_share, sweep.prevalence, sweep.unused) == (0.01, None, ("data_dir",))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("Spambase", "Iris"), "dataset_class: 'Iris'"), (("[0.1, 0.5]", "[1.5]"), "c_values: 1.5"),
        (("[0.1, 0.5]", "0.1"), "c_values: a list"), (("random_seeds: [2, 25]", "random_seeds: [a]"), "numbers"),
        (('"random"', '"rnd"'), 'selection_strategies: "rnd"'), (("[naive]", "[nave]"), 'case_control_modes: "nave"'),
        (("[case-control]", "[]"), "scenarios"), (("dataset_class: Spambase", "- 1"), "YAML"),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_be_read_is_refused_with_file_and_field(change, what, tmp_path):
    path = written(tmp_path / "bad.yaml", SWEEP.replace(*change))
    with pytest.raises(DataError, match=what) as error:
        read_sweep(path)
    assert "bad.yaml" in str(error.value)


def test_code_in_a_settings_file_is_never_run(tmp_path):
    path = written(tmp_path / "evil.yaml", "dataset_class: !!python/object/apply:os.mkdir [made]\n")
    with pytest.raises(DataError, match="YAML"):
        read_sweep(path)


def test_other_classes_than_the_papers_are_refused(tmp_path):
    text = SWEEP.replace("Spambase", "MNIST").replace("label_scheme: {", "label_scheme: {positive_classes: [1, 3], ")
    with pytest.raises(DataError, match="positive_classes"):
        read_sweep(written(tmp_path / "m.yaml", text))
    same = text.replace("[1, 3]", "[8, 6, 4, 2, 0]")
    assert read_sweep(written(tmp_path / "n.yaml", same)).dataset == "mnist"


def test_a_published_method_becomes_options_and_names_what_it_leaves_out(tmp_path):
    found = read_method(written(tmp_path / "vpu.yaml", METHOD))
    assert found.name == "vpu"
    assert found.options == {
        "optimizer": "adam", "lr": 0.0003, "epochs": 3, "batch_size": 64, "mixup": 0.4, "patience": 7,
    }  # fmt: skip
    assert (found.selection, found.unused) == ("f1", ("warp",))
    make_estimator(found.name, **found.options)
    nested = read_method(
        written(
            tmp_path / "d.yaml",
            "distpu: {lr: 0.1, stages: {warm_up: {epochs: 4, lr: 0.2}, mixup: {epochs: 5, co_mixup: 2.0}}}",
        )
    )
    assert nested.options == {"lr": 0.2, "warmup_epochs": 4, "epochs": 5, "mixup_weight": 2.0}
    assert nested.selection == "last"
    text = "puet: {n_estimators: 30, risk_estimator: nnPU, max_depth: null, max_features: sqrt}"
    trees = read_method(written(tmp_path / "p.yaml", text))
    assert trees.options == {"n_estimators": 30, "risk": "nnpu"}
    assert trees.unused == ("max_depth", "max_features")


@pytest.mark.parametrize(
    ("text", "what"), [("npu: {lr: 1}", "no method"), ("vpu: 3", "one key"), ("[1]", "mapping"),
                       ("vpu: {checkpoint: {enabled: true, monitor: val_luck}}", "monitor")]
)  # fmt: skip
def test_a_method_file_that_cannot_be_read_is_refused(text, what, tmp_path):
    with pytest.raises(DataError, match=what):
        read_method(written(tmp_path / "bad.yaml", text))


def test_experiments_are_named_as_published():
    found = experiment_name("mnist", Configuration("case_control", "scar", 0.1), 2)
    assert found == "MNIST_case-control_random_c0.1_seed2"
    found = experiment_name("newsgroups20", Configuration("single", "sar_lbe_a", 0.05), 666)
    assert found == "20News_single_sar_lbeA_c0.05_seed666"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    bench = PUBench(datasets="gaussian", configurations="product", c="0.3", rows=200)
    return Runs(
        core.run(
            bench, text, loading="assay.systems.loading", attempts=2, into=folder / text[7:11],
            engine=core.Engine(workers=0),
        )
        for text in ("method:nnpu?net=small_mlp&epochs=2", "method:puet?n_estimators=3")
    )  # fmt: skip


def test_results_are_written_as_published_and_read_back(runs, tmp_path):
    paths = write_results(runs, tmp_path, seeds=(2, 25))
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        f"seed_{seed}/gaussian_case-control_random_c0.3_seed{seed}.json" for seed in (2, 25)
    ]
    whole = json.loads(paths[0].read_text())
    assert set(whole) == {"experiment", "updated_at", "runs"}
    assert len(whole["runs"]) == 2
    entry = next(iter(whole["runs"].values()))
    assert set(entry) == {
        "method", "device", "timing", "max_gpu_memory_bytes", "dataset", "best", "monitor", "global_epochs",
        "hyperparameters",
    }  # fmt: skip
    assert entry["dataset"]["train"]["total"] == 200 + entry["dataset"]["train"]["labeled"]
    assert entry["dataset"]["test"]["total"] == 1000
    frame = read_results(tmp_path)
    assert frame.height == 4
    assert frame.select("dataset", "scenario", "strategy", "c").unique().rows() == [
        ("gaussian", "case_control", "scar", 0.3)
    ]
    records = pl.concat([run.records.select("attempt", "accuracy") for run in runs])
    assert sorted(frame["test_accuracy"]) == pytest.approx(sorted(records["accuracy"]))
    # A second call with one method keeps the other.
    before = json.loads(paths[1].read_text())["runs"]
    write_results(Runs([runs[0]]), tmp_path, seeds=(2, 25))
    assert set(json.loads(paths[1].read_text())["runs"]) >= set(before)


def test_a_published_result_is_read(tmp_path):
    folder = tmp_path / "seed_2"
    folder.mkdir()
    name = "MNIST_case-control_random_c0.1_seed2"
    (folder / f"{name}.json").write_text(
        json.dumps(
            {"experiment": name, "runs": {"nnpu": {
                "best": {"epoch": 17, "metrics": {"test_accuracy": 0.948, "test_f1": 0.947, "test_auc": 0.987}},
                "timing": {"duration_seconds": 61.2}}}}
        )
    )  # fmt: skip
    (row,) = read_results(tmp_path).iter_rows(named=True)
    assert (row["dataset"], row["strategy"], row["c"], row["seed"], row["method"]) == ("mnist", "scar", 0.1, 2, "nnpu")
    assert (row["epoch"], row["seconds"], row["test_auc"]) == (17, 61.2, 0.987)
    (folder / "x.json").write_text('{"experiment": "lunch", "runs": {}}')
    with pytest.raises(DataError, match="lunch"):
        read_results(tmp_path)
    (folder / "x.json").write_text("[]")
    with pytest.raises(DataError, match=r"x\.json is no result file"):
        read_results(tmp_path)
    with pytest.raises(DataError, match="no result file"):
        read_results(folder / "none")


def test_published_files_run_end_to_end_and_say_what_they_left_out(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "spambase"
    folder.mkdir(parents=True)
    y = np.arange(150) % 2
    x = (rng.normal(size=(150, 57)) + y[:, None]).round(3)
    (folder / "spambase.data").write_text("\n".join(",".join([*map(str, row), str(k)]) for row, k in zip(x, y)))
    one = SWEEP.replace('["random", "sar_pusb"]', '["random"]').replace("[0.1, 0.5]", "[0.5]")
    sweep = written(tmp_path / "s.yaml", one)
    method = written(tmp_path / "v.yaml", METHOD.replace("vpu:", "nnpu:"))
    out = tmp_path / "out"
    out.mkdir()
    published(out, dataset=str(sweep), methods=str(method), data=str(tmp_path / "data"), workers=0)
    frame = read_results(out / "results")
    assert frame["seed"].to_list() == [2, 25]
    assert frame["test_accuracy"].min() > 0.3
    assert json.loads((out / "unused.json").read_text()) == {"spambase": ["data_dir"], "nnpu": ["mix_alpha", "warp"]}
    again = tmp_path / "again"
    again.mkdir()
    export(again, runs=str(out / "runs" / "nnpu-full_u"), seeds="2,25")
    assert read_results(again / "results")["test_accuracy"].to_list() == frame["test_accuracy"].to_list()
    with pytest.raises(DataError, match="no run folder"):
        export(again, runs=str(tmp_path))
    with pytest.raises(UsageError, match="whole numbers"):
        export(again, runs=str(out / "runs" / "nnpu-full_u"), seeds="two")
