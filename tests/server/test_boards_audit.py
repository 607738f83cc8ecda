"""assay audit: planted targets are found in every kind of file, and clean files are left alone."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cli import main
from assay.server.boards.leaks import Truth, canonical, find_leaks, number_key, read_truth, related

N = 40
rng = np.random.default_rng(7)
LABELS = rng.choice(["cat", "dog", "owl"], N).tolist()
IDS = [f"s{i:03d}" for i in range(N)]
SENTENCES = [f"The hidden answer number {i} speaks of lake {i * 37}" for i in range(N)]
VALUES = rng.normal(size=N).tolist()


@pytest.fixture
def truth():
    return Truth(IDS, {"label": LABELS})


def public_rows(**more):
    draws = np.random.default_rng(1)
    return [
        {"id": i, "length": int(draws.integers(5, 90)), **{k: v[n] for k, v in more.items()}} for n, i in enumerate(IDS)
    ]


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("\n".join(json.dumps(r) for r in rows))
    elif name.endswith(".json"):
        path.write_text(json.dumps({"version": 1, "items": rows}))
    elif name.endswith(".yaml"):
        import yaml

        path.write_text(yaml.safe_dump(rows))
    else:
        import polars as pl

        frame = pl.DataFrame(rows)
        frame.write_csv(path) if name.endswith(".csv") else frame.write_parquet(path)
    return path


KINDS = ["a.jsonl", "a.json", "a.csv", "a.parquet", "a.yaml"]


@pytest.mark.parametrize("name", KINDS)
def test_label_beside_its_id_is_found_with_file_and_field(tmp_path, truth, name):
    write(tmp_path / "pub", name, public_rows(kind=LABELS))
    found = find_leaks(tmp_path / "pub", truth)
    assert [(x.file, "kind" in x.place) for x in found.leaks if "field" in x.place] == [(name, True)]


@pytest.mark.parametrize("name", KINDS)
def test_files_without_targets_are_clean(tmp_path, truth, name):
    write(tmp_path / "pub", name, public_rows())
    found = find_leaks(tmp_path / "pub", truth)
    assert found.leaks == []
    assert found.unread == []
    assert found.files == 1


def test_label_under_other_names_and_by_order_is_found(tmp_path, truth):
    codes = {"cat": 3, "dog": 1, "owl": 2}
    order = rng.permutation(N)
    write(tmp_path / "pub", "a.csv", [public_rows(g=[codes[v] for v in LABELS])[i] for i in order])
    (tmp_path / "pub" / "b.json").write_text(json.dumps([codes[v] for v in LABELS]))
    found = find_leaks(tmp_path / "pub", truth)
    assert {x.file for x in found.leaks} == {"a.csv", "b.json"}
    assert all("under other names" in x.what for x in found.leaks)


def test_a_random_guess_of_labels_is_no_leak(tmp_path, truth):
    guesses = np.random.default_rng(3).choice(["cat", "dog", "owl"], N).tolist()
    write(tmp_path / "pub", "a.jsonl", public_rows(guess=guesses))
    assert find_leaks(tmp_path / "pub", truth).leaks == []


def test_json_object_by_id_and_a_few_rows_named_label(tmp_path, truth):
    (tmp_path / "pub").mkdir()
    (tmp_path / "pub" / "m.json").write_text(json.dumps(dict(zip(IDS, LABELS))))
    (tmp_path / "pub" / "one.jsonl").write_text(json.dumps({"id": IDS[4], "label": LABELS[4]}))
    found = find_leaks(tmp_path / "pub", truth)
    assert {x.file for x in found.leaks} == {"m.json", "one.jsonl"}


def test_distinctive_sentences_are_found_anywhere(tmp_path):
    truth = Truth(IDS, {"answer": SENTENCES})
    pub = tmp_path / "pub"
    pub.mkdir()
    (pub / "notes.md").write_text(f"# Notes\n\nOnce upon a time: {SENTENCES[5].upper()}  \n")
    (pub / "blob.bin").write_bytes(b"\x00\x01\xff" + SENTENCES[6].encode() + b"\x00\xfe")
    (pub / "deep.json").write_text(json.dumps({"a": {"b": [{"c": f"x {SENTENCES[7]} y"}, {"c": "nothing"}]}}))
    found = find_leaks(pub, truth)
    assert {x.file for x in found.leaks} == {"notes.md", "blob.bin", "deep.json"}
    assert next(x for x in found.leaks if x.file == "notes.md").place == "line 3"
    assert "answer of s007" in next(x for x in found.leaks if x.file == "deep.json").what
    assert [f for f, _ in found.unread] == ["blob.bin"]


@pytest.mark.parametrize("kind", ["npy", "npz", "mat", "h5"])
def test_numbers_in_arrays_are_found_in_other_precision(tmp_path, kind):
    truth = Truth(IDS, {"y": VALUES})
    pub = tmp_path / "pub"
    pub.mkdir()
    array = np.array(VALUES, dtype=np.float32)[::-1][:10].reshape(2, 5)
    other = np.random.default_rng(8).normal(size=(3, 5))
    if kind == "npy":
        np.save(pub / "x.npy", array)
    elif kind == "npz":
        np.savez_compressed(pub / "x.npz", other=other, deep=array)
    elif kind == "mat":
        from scipy.io import savemat

        savemat(pub / "x.mat", {"other": other, "deep": array})
    else:
        import h5py

        with h5py.File(pub / "x.h5", "w") as file:
            file["group/other"], file["group/deep"] = other, array
    (leak,) = find_leaks(pub, truth).leaks
    assert "y of s039" in leak.what
    assert ("deep" in leak.place) == (kind != "npy")


def test_rows_of_a_hidden_field_are_found_turned_and_cut(tmp_path):
    hidden = np.random.default_rng(2).normal(size=(30, 12))
    np.save(tmp_path / "truth.npy", hidden)
    pub = tmp_path / "pub"
    pub.mkdir()
    np.savez(pub / "turned.npz", a=hidden[4:9].T.astype(np.float32))
    np.savez(pub / "clean.npz", a=np.random.default_rng(9).normal(size=(30, 12)))
    found = find_leaks(pub, read_truth(tmp_path / "truth.npy"))
    assert [x.file for x in found.leaks] == ["turned.npz"]


def test_scaled_numbers_are_found(tmp_path):
    write(tmp_path / "pub", "a.csv", public_rows(z=[round(3 * v - 5, 12) for v in VALUES]))
    found = find_leaks(tmp_path / "pub", Truth(IDS, {"y": VALUES}))
    assert "another scale" in found.leaks[0].what


def test_archives_in_archives_are_opened(tmp_path, truth):
    pub = tmp_path / "pub"
    rows = "\n".join(json.dumps(r) for r in public_rows(kind=LABELS)).encode()
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as packed:
        info = tarfile.TarInfo("data/rows.jsonl.gz")
        content = gzip.compress(rows)
        info.size = len(content)
        packed.addfile(info, io.BytesIO(content))
    pub.mkdir()
    with zipfile.ZipFile(pub / "all.zip", "w") as packed:
        packed.writestr("inner.tar.gz", inner.getvalue())
    (leak,) = find_leaks(pub, truth).leaks
    assert leak.file == "all.zip/inner.tar.gz/data/rows.jsonl"


def test_a_packed_file_that_is_searched_in_part_is_named(tmp_path, truth, monkeypatch):
    monkeypatch.setattr("assay.server.boards.looking.MOST_BYTES", 1000)
    (tmp_path / "log.txt.gz").write_bytes(gzip.compress(b"nothing\n" * 1000))
    assert [name for name, _ in find_leaks(tmp_path, truth).unread] == ["log.txt.gz"]


def test_folders_file_names_and_picture_metadata(tmp_path, truth):
    from PIL import Image, PngImagePlugin

    for part, where in (
        ("folders", lambda i: f"{LABELS[i]}/{IDS[i]}.txt"),
        ("names", lambda i: f"{IDS[i]}_{LABELS[i]}.txt"),
    ):
        for i in range(N):
            path = tmp_path / part / where(i)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("nothing")
        (leak,) = find_leaks(tmp_path / part, truth).leaks
        assert ("folder" in leak.place) == (part == "folders")
    (tmp_path / "pics").mkdir()
    for i in range(N):
        said = PngImagePlugin.PngInfo()
        said.add_text("Description", LABELS[i])
        Image.new("L", (4, 4)).save(tmp_path / "pics" / f"{IDS[i]}.png", pnginfo=said)
    (leak,) = find_leaks(tmp_path / "pics", truth).leaks
    assert leak.place == "metadata Description"


def test_log_lines_with_id_and_label(tmp_path, truth):
    (tmp_path / "run.log").write_text("\n".join(f"{i}: predicted owl, was {v}" for i, v in zip(IDS, LABELS)))
    (leak,) = find_leaks(tmp_path / "run.log", truth).leaks
    assert "40 lines" in leak.what


def test_strange_files_are_named_and_do_not_stop_the_search(tmp_path, truth):
    pub = tmp_path / "pub"
    write(pub, "a.csv", public_rows(kind=LABELS))
    (pub / "bad.json").write_text("{not json")
    (pub / "bad.parquet").write_bytes(b"PAR1 but not really")
    (pub / "bad.zip").write_bytes(b"PK\x03\x04 broken")
    (pub / "x.pkl").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    (pub / "link.csv").symlink_to(pub / "a.csv")
    found = find_leaks(pub, truth)
    assert {x.file for x in found.leaks} == {"a.csv"}
    assert {f for f, _ in found.unread} == {"bad.json", "bad.parquet", "bad.zip", "x.pkl"}


def test_truth_is_read_from_tables_and_mappings(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(dict(zip(IDS, LABELS))))
    assert read_truth(tmp_path / "t.json").fields == {"(value)": LABELS}
    write(tmp_path, "t.csv", public_rows(label=LABELS, note=SENTENCES))
    found = read_truth(tmp_path / "t.csv")
    assert (found.ids, list(found.fields)) == (IDS, ["label"])
    assert read_truth(tmp_path / "t.csv", "note").fields == {"note": SENTENCES}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=60))
def test_relation_never_fails_and_needs_more_than_chance(pairs):
    said = related(pairs)
    if said.startswith("is under other names"):
        assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(set(pairs))


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_numbers_meet_across_precisions_and_print(x):
    if x and 1e-30 < abs(x) < 1e30:
        assert abs(number_key(x) - number_key(float(f"{x:.9g}"))) in (0, 1000)
        assert canonical(x) == canonical(str(x)) == canonical(f"{x:.12g}")


def test_command_says_file_and_place_and_fails(tmp_path, capsys):
    (tmp_path / "t.json").write_text(json.dumps(dict(zip(IDS, LABELS))))
    write(tmp_path / "pub", "a.csv", public_rows(kind=LABELS))
    assert main(["audit", str(tmp_path / "pub"), "--truth", str(tmp_path / "t.json")]) == 1
    assert "a.csv" in (said := capsys.readouterr().out)
    assert "field kind" in said
    write(tmp_path / "clean", "a.csv", public_rows())
    assert main(["audit", str(tmp_path / "clean"), "--truth", str(tmp_path / "t.json")]) == 0
    assert "No target value was found in 1 files" in capsys.readouterr().out
