"""Data sets: readers that name the place of a fault, provenance, manifests, sub-samples."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core import datasets
from assay.core.audit import Audit
from assay.core.benchmark import Sample
from assay.core.datasets import (
    limit,
    limit_rule,
    read_json,
    read_jsonl,
    read_manifest,
    read_table,
    unpack,
    write_manifest,
)
from assay.core.errors import DataError, MissingExtra, UsageError

IDS = st.lists(st.text(min_size=1, max_size=8), unique=True, min_size=1, max_size=60)


@settings(deadline=None)
@given(IDS, st.integers(1, 60), st.integers(1, 60))
def test_limits_are_nested_and_keep_the_order(ids, a, b):
    small, large = sorted((a, b))
    first, second = limit(ids, str(small)), limit(ids, str(large))
    assert set(first) <= set(second)
    assert len(first) == min(small, len(ids))
    assert first == [i for i in ids if i in set(first)]


@settings(deadline=None)
@given(IDS, st.integers(1, 59), st.randoms(use_true_random=False))
def test_limits_depend_on_ids_alone(ids, n, random):
    shuffled = ids[:]
    random.shuffle(shuffled)
    assert set(limit(ids, str(n))) == set(limit(shuffled, str(n)))


def test_limit_forms():
    ids = [f"s{n}" for n in range(40)]
    assert set(limit(ids, "10-20")) | set(limit(ids, "9")) == set(limit(ids, "20"))
    assert len(limit(ids, "10-20")) == 11
    assert len(limit(ids, "0.1")) == 4
    assert set(limit(ids, "0.1")) == set(limit(ids, "4"))
    assert len(limit(ids, "0.001")) == 1
    assert limit(ids, "100") == ids
    samples = [Sample(i) for i in ids]
    assert [s.id for s in limit(samples, "7")] == limit(ids, "7")
    assert limit([], "3") == []
    assert "places 1 to 4 of 40" in limit_rule("0.1", 40)
    # Held in place: a run made with one release must go on with the next.
    ranked = sorted(ids, key=lambda i: hashlib.blake2b(i.encode(), digest_size=16).hexdigest())
    assert set(limit(ids, "3")) == set(ranked[:3])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.0", "one sample or all"), ("0", "no sample"), ("-3", "is none"), ("x", "is none"), ("2.5", "is none"),
        ("nan", "is none"), ("20-10", "range"), ("0-5", "range"), ("", "is none"), ("90-99", "behind the last"),
    ],
)  # fmt: skip
def test_bad_limits(text, words):
    with pytest.raises(UsageError, match=words):
        limit([f"s{n}" for n in range(40)], text)


def test_jsonl(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": "\xc3\xbc"}\r\n')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (3, {"a": "ü"})]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_jsonl(tmp_path / "a.jsonl.gz")) == list(read_jsonl(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1}\n{"a": \n', "line 2: not JSON"),
        (b'{"a": 1}\n[1]\n', r"line 2: a row must be a JSON object, not \[1\]"),
        (b'{"a": "\xff"}\n', "line 1: not JSON"),
        (b'{"a": NaN}\n', "line 1: not JSON"),
    ],
)
def test_jsonl_faults_name_the_line(tmp_path, content, words):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        list(read_jsonl(path))
    assert str(path) in str(caught.value)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        list(read_jsonl(tmp_path / "none.jsonl"))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000)[:-20])
    with pytest.raises(DataError, match="damaged"):
        list(read_jsonl(cut))
    (tmp_path / "bad.json").write_text('{"a":\n  oops}')
    with pytest.raises(DataError, match="line 2, column 3"):
        read_json(tmp_path / "bad.json")
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        read_table(tmp_path / "x.parquet")
    (tmp_path / "x.docx").write_bytes(b"")
    with pytest.raises(DataError, match="no known format"):
        read_table(tmp_path / "x.docx")


def test_require():
    row = {"id": "a", "n": True, "x": None}
    assert datasets.require(row, "id", str, "f, line 1") == "a"
    assert datasets.require(row, "x", (str, type(None)), "f, line 1") is None
    with pytest.raises(DataError, match="f, line 1: field 'n' is true, and must be int"):
        datasets.require(row, "n", int, "f, line 1")
    with pytest.raises(DataError, match="field 'y' is missing; there are 'id', 'n', 'x'"):
        datasets.require(row, "y", int, "f, line 1")


FRAME = pl.DataFrame({"id": ["a", "b", "c"], "n": [1, 2, None], "x": [0.5, None, 2.0]})


def test_every_format_gives_the_same_table(tmp_path):
    FRAME.write_parquet(tmp_path / "t.parquet")
    FRAME.write_csv(tmp_path / "t.csv")
    FRAME.write_csv(tmp_path / "t.tsv", separator="\t")
    FRAME.write_ndjson(tmp_path / "t.jsonl")
    (tmp_path / "t.json").write_text(json.dumps(FRAME.to_dicts()))
    (tmp_path / "columns.json").write_text(json.dumps(FRAME.to_dict(as_series=False)))
    FRAME.write_ipc(tmp_path / "file.arrow")
    FRAME.write_ipc_stream(tmp_path / "stream.arrow")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    for path in sorted(tmp_path.iterdir()):
        assert read_table(path).to_dicts() == FRAME.to_dicts(), path.name


def write_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def test_folder_of_save_to_disk(tmp_path):
    folder = tmp_path / "ds"
    (folder / "test").mkdir(parents=True)
    (folder / "train").mkdir()
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for name in ("train", "test"):
        files = []
        for part in range(2):
            file = f"data-0000{part}-of-00002.arrow"
            write_stream(folder / name / file, pa.table({"q": [f"{name}{part}"]}))
            files.append({"filename": file})
        (folder / name / "state.json").write_text(json.dumps({"_data_files": files}))
        (folder / name / "dataset_info.json").write_text("{}")
    assert read_table(folder, "test")["q"].to_list() == ["test0", "test1"]
    assert read_table(folder / "train")["q"].to_list() == ["train0", "train1"]
    with pytest.raises(DataError, match=r"several splits \(train, test\)"):
        read_table(folder)
    with pytest.raises(DataError, match="no split 'dev'"):
        read_table(folder, "dev")


def test_plain_folders(tmp_path):
    FRAME[:1].write_parquet(tmp_path / "train-00000-of-00002.parquet")
    FRAME[1:].write_parquet(tmp_path / "train-00001-of-00002.parquet")
    assert read_table(tmp_path).equals(FRAME)
    FRAME.write_parquet(tmp_path / "test-00000-of-00001.parquet")
    assert read_table(tmp_path, "test").equals(FRAME)
    with pytest.raises(DataError, match="several splits"):
        read_table(tmp_path)
    FRAME.write_csv(tmp_path / "train.csv")
    with pytest.raises(DataError, match="several formats"):
        read_table(tmp_path, "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no data file"):
        read_table(tmp_path / "empty")


def test_columns_of_mixed_type_are_named(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"a": 1}\n{"a": {"b": 2}}\n')
    with pytest.raises(DataError, match="row 2: field 'a'"):
        read_table(path)


def test_fingerprints(tmp_path):
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "a.txt").write_text("1")
    (tmp_path / "d" / "sub" / "b.txt").write_text("2")
    before = datasets.fingerprint(tmp_path / "d")
    (tmp_path / "d" / ".journal").write_text("hidden")
    assert datasets.fingerprint(tmp_path / "d") == before
    (tmp_path / "d").rename(tmp_path / "e")
    assert datasets.fingerprint(tmp_path / "e") == before
    (tmp_path / "e" / "a.txt").write_text("3")
    assert datasets.fingerprint(tmp_path / "e") != before
    rows = [{"a": 1, "b": 2}, {"a": 3}]
    assert datasets.fingerprint(rows) == datasets.fingerprint([{"b": 2, "a": 1}, {"a": 3}])
    assert datasets.fingerprint(rows) != datasets.fingerprint(rows[::-1])
    with pytest.raises(DataError, match="does not exist"):
        datasets.fingerprint(tmp_path / "none")


def test_folders_and_stand_ins(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        datasets.folder(tmp_path / "none")
    (tmp_path / "d").mkdir()
    with pytest.raises(DataError, match="is empty"):
        datasets.folder(tmp_path / "d")
    (tmp_path / "d" / "x.csv").write_text("a\n1\n")
    data = datasets.folder(tmp_path / "d", source="the paper", licence="CC-BY-4.0")
    assert data.info() == {
        "kind": "real",
        "source": "the paper",
        "licence": "CC-BY-4.0",
        "fingerprint": datasets.fingerprint(tmp_path / "d"),
    }
    label = datasets.stand_in(data, "MNIST")
    assert (label.kind, label.source, label.fingerprint) == (
        "stand-in",
        "the paper, instead of MNIST",
        data.fingerprint,
    )
    assert datasets.generated([{"a": 1}], "two-digit sums").kind == "generated"


def test_package_files_without_importing(tmp_path, monkeypatch):
    package = tmp_path / "assay_test_package"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "data" / "x.txt").write_text("hello")
    monkeypatch.syspath_prepend(tmp_path)
    data = datasets.package_file("assay_test_package", "data/x.txt")
    assert data.path is not None
    assert data.path.read_text() == "hello"
    with pytest.raises(DataError, match="carries no file"):
        datasets.package_file("assay_test_package", "y.txt")
    with pytest.raises(DataError, match="not installed"):
        datasets.package_file("assay_no_such_package", "y.txt")
    with pytest.raises(MissingExtra, match="local"):
        datasets.package_file("assay_no_such_package", "y.txt", extra="local")


def test_manifest(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n')
    (tmp_path / ".journal").mkdir()
    (tmp_path / ".journal" / "x").write_text("hidden")
    audit = Audit()
    audit.keep([{"id": "a"}, {"id": "b"}], "size", lambda row: row["id"] == "a", "too small")
    options = {"n": 1, "seed": 7, "out": Path("x")}
    made = write_manifest(
        tmp_path, recipe="demo.rows", options=options, licence="Apache-2.0", counts={"rows": 1}, audit=audit
    )
    read = read_manifest(tmp_path, verify=True)
    assert read.recipe == "demo.rows"
    assert (read.seed, read.counts, read.licence, read.kind) == (7, {"rows": 1}, "Apache-2.0", "generated")
    assert read.audit[0]["rows_in"] == 2
    assert list(read.files) == ["rows.jsonl"]
    assert read.fingerprint == made.fingerprint
    assert read.assay
    data = datasets.folder(tmp_path)
    assert (data.kind, data.fingerprint, data.source) == ("generated", made.fingerprint, "made by recipe demo.rows")


def test_manifest_faults(tmp_path):
    with pytest.raises(DataError, match="did not finish"):
        read_manifest(tmp_path)
    (tmp_path / "a.txt").write_text("1")
    write_manifest(tmp_path, recipe="demo.rows")
    (tmp_path / "b.txt").write_text("2")
    with pytest.raises(DataError, match=r"'b.txt' is not in the manifest"):
        read_manifest(tmp_path, verify=True)
    (tmp_path / "b.txt").unlink()
    (tmp_path / "a.txt").write_text("3")
    assert read_manifest(tmp_path).recipe == "demo.rows"
    with pytest.raises(DataError, match=r"'a.txt' was changed"):
        read_manifest(tmp_path, verify=True)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"'a.txt' of the manifest is missing"):
        read_manifest(tmp_path, verify=True)
    for text, words in (("[]", "JSON object"), ("{}", "'recipe' is missing"), ('{"recipe": 1}', "must be str")):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(DataError, match=words):
            read_manifest(tmp_path)


def zipped(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries.items():
            packed.writestr(name, content)
    return path


def tarred(path: Path, entries: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            packed.addfile(info)
    return path


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_unpacking(tmp_path, pack):
    archive = pack(tmp_path / "a.pack", {"x.txt": b"1", "sub/y.txt": b"2"})
    files = unpack(archive, tmp_path / "out")
    assert {f.relative_to(tmp_path / "out").as_posix(): f.read_bytes() for f in files} == {
        "x.txt": b"1",
        "sub/y.txt": b"2",
    }


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil"])
def test_nothing_is_written_outside(tmp_path, pack, name):
    archive = pack(tmp_path / "a.pack", {name: b"x"})
    with pytest.raises(DataError, match="outside the folder"):
        unpack(archive, tmp_path / "deep" / "out")
    assert not [f for f in tmp_path.rglob("*evil*") if f.is_file()]


def test_links_are_refused(tmp_path):
    with pytest.raises(DataError, match="link or a device"):
        unpack(tarred(tmp_path / "a.tgz", {}, {"link": "/etc/passwd"}), tmp_path / "out")
    linked = zipfile.ZipInfo("link")
    linked.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(linked, "/etc/passwd")
    with pytest.raises(DataError, match="is a link"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    (tmp_path / "out" / "door").symlink_to(tmp_path)
    with pytest.raises(DataError, match="outside the folder"):
        unpack(zipped(tmp_path / "b.zip", {"door/evil": b"x"}), tmp_path / "out")


def test_bombs_stop_at_the_bound(tmp_path):
    bomb = zipped(tmp_path / "bomb.zip", {"zeros": bytes(5_000_000)})
    with pytest.raises(DataError, match="more than 1000000 bytes"):
        unpack(bomb, tmp_path / "out", max_bytes=1_000_000)
    assert sum(f.stat().st_size for f in (tmp_path / "out").rglob("*") if f.is_file()) <= 1_000_000
    many = zipped(tmp_path / "many.zip", {f"f{n}": b"" for n in range(20)})
    with pytest.raises(DataError, match="more than 10 files"):
        unpack(many, tmp_path / "out2", max_files=10)
    (tmp_path / "bad.zip").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "bad.zip", tmp_path / "out3")
