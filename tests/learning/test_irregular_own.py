"""Data sets of the user's: tables with a YAML file, the template, checks, mirrors with a token."""

from __future__ import annotations

import hashlib
import http.server
import threading
from dataclasses import replace

import numpy as np
import pytest

import assay
from assay.core.errors import DataError, UsageError
from assay.learning.irregular import checks, data, own, recipes
from assay.learning.irregular.array import from_dense
from assay.learning.irregular.benchmark import Irregular
from assay.learning.irregular.files import write_hdf5
from assay.learning.irregular.methods.factories import get_model


def test_the_template_is_a_data_set_that_can_be_run(tmp_path):
    assay.make("irregular.template", tmp_path, dataset="mine")
    array = data.load_dataset("mine", tmp_path)
    assert array.shape == (4, 2, 7)
    assert array.time_id[0] == np.datetime64("2024-03-01T08:00:00")
    y, split = array.target_and_split()
    assert y.tolist() == [1, 0, 1, 0]
    assert array.coordinate("outcome").tolist() == ["well", "ill", "well", "ill"]
    assert split.tolist() == ["train", "train", "test", "test"]
    assert checks.problems(array) == []
    assert array.attrs["license"] == "CC-BY-4.0"
    recipes.check(tmp_path, datasets="mine", source=str(tmp_path))
    run = assay.run(Irregular("mine,mine~drop30", str(tmp_path)), get_model("majority"), into=tmp_path / "run")
    assert run.records["accuracy"].to_list() == [0.5, 0.5]
    assert run.records["irregularity"].to_list() == ["not stated", "partial"]
    recipes.describe(tmp_path, datasets="mine", source=str(tmp_path))
    with pytest.raises(DataError, match="not overwritten"):
        recipes.template(tmp_path, dataset="mine")
    with pytest.raises(UsageError, match="letters"):
        recipes.template(tmp_path, dataset="../mine")


def test_labels_are_encoded_and_splits_made_where_there_is_none(tmp_path):
    rows = ["ts_id,signal_id,time_id,value_id,kind,size"]
    rows += [f"s{i:02d},x,{t},{i + t},{'cab'[i % 3]},{i / 2}" for i in range(30) for t in range(3)]
    rows += ["empty,x,1,,a,1"]
    (tmp_path / "toy.csv").write_text("\n".join(rows))
    (tmp_path / "toy.yaml").write_text(
        "static: {ts_id: [kind, size]}\ndates: false\nconfigs:\n"
        "  default: {task: classification, target: kind}\n  size: {task: regression, target: size}\n"
    )
    array = data.load_dataset("toy", tmp_path)
    assert len(array) == 30
    y, split = array.target_and_split()
    assert y.tolist() == [2, 0, 1] * 10
    assert (split == "test").sum() == 9
    assert np.bincount(y[split == "test"]).tolist() == [3, 3, 3]
    size, sides = array.target_and_split("size")
    assert size.tolist() == [i / 2 for i in range(30)]
    assert (sides == "test").sum() == 9
    assert checks.problems(array) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot be read as YAML"),
        ("- 1", "must hold fields"),
        ("titel: x", "field 'titel' is not one of"),
        ("title: 3", "field 'title' is 3; it must be a str"),
        ("configs: {default: {task: guessing, target: y}}", "config 'default' needs a task"),
        ("configs: {default: {task: classification}}", "config 'default' needs a task"),
        ("columns: {series: a}", "columns names 'series'"),
        ("dates: false\nconfigs: {default: {task: classification, target: y}}", "names target 'y'; list it under"),
        ("title: !!python/object/apply:os.system ['true']", "cannot be read as YAML"),
    ],
)
def test_bad_metadata_is_refused_in_a_sentence(tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    (tmp_path / "bad.csv").write_text("ts_id,signal_id,time_id,value_id\na,x,0,1\n")
    with pytest.raises(DataError, match=message):
        own.build_own(tmp_path, "bad")


def test_a_name_that_a_folder_does_not_hold_is_unknown(tmp_path):
    with pytest.raises(UsageError, match="data set"):
        Irregular("mine", str(tmp_path))
    (tmp_path / "alone.yaml").write_text("title: x")
    with pytest.raises(DataError, match=r"no alone\.csv"):
        own.build_own(tmp_path, "alone")
    with pytest.raises(UsageError, match="data set"):
        data.load_dataset("../alone", tmp_path)


def test_the_check_ends_in_an_error_and_lists_faults_and_leaks(tmp_path):
    X = np.arange(24, dtype=float).reshape(4, 1, 6)
    X[2] = X[0]
    write_hdf5(from_dense(X, y=[0, 1, 0, 1], split=["train"] * 2 + ["test"] * 2), tmp_path / "twin.h5")
    write_hdf5(from_dense(X, y=[0, 0, 0, 1], split=["train"] * 2 + ["test"] * 2), tmp_path / "unseen.h5")
    with pytest.raises(DataError, match=r"3 faults in 2 of 2 data sets, first: twin: .* first 0 = 2"):
        recipes.check(tmp_path, datasets="twin,unseen", source=str(tmp_path))
    text = (tmp_path / "faults.csv").read_text()
    assert "class 1 is in test and not in train" in text
    assert "training side has one class" in text


@pytest.fixture
def mirror(tmp_path):
    """A server that gives its file to who sends the token, by way of a redirect to another port."""
    seen = []

    class Store(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(("store", self.headers.get("Authorization")))
            body = (tmp_path / "Garment.h5").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    class Door(Store):
        def do_GET(self):
            seen.append(("door", self.headers.get("Authorization")))
            if self.headers.get("Authorization") != "Bearer secret":
                self.send_error(401)
                return
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{store.server_port}/x")
            self.end_headers()

    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as store,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door) as door,
    ):
        for server in (store, door):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{door.server_port}/data", seen
        for server in (store, door):
            server.shutdown()


def test_a_private_mirror_gets_its_token_and_nobody_else(tmp_path, monkeypatch, mirror):
    address, seen = mirror
    write_hdf5(from_dense(np.ones((2, 1, 3)), y=[0, 1], split=["train", "test"]), tmp_path / "Garment.h5")
    digest = hashlib.sha256((tmp_path / "Garment.h5").read_bytes()).hexdigest()
    entry = replace(data.catalogue()["Garment"], hash=digest)
    monkeypatch.setattr(data, "catalogue", lambda: {"Garment": entry})
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASSAY_MIRROR_TOKEN", raising=False)
    with pytest.raises(DataError, match=r"401 .* or give a token"):
        data.load_dataset("Garment", address)
    monkeypatch.setenv("ASSAY_MIRROR_TOKEN", "secret")
    assert data.load_dataset("Garment", address).nnz == 6
    assert seen == [("door", None), ("door", "Bearer secret"), ("store", None)]
    assert data.load_dataset("Garment", address, token="none needed, it is in the cache").nnz == 6
    assert len(seen) == 3
