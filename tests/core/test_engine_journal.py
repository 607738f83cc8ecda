"""Journal and store: torn tails are dropped, damage is found, compaction loses nothing whenever it is cut off."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from assay.core import journal as journal_module
from assay.core.errors import AssayError, DataError, StorageError, UsageError
from assay.core.journal import Journal, damaged_lines, journal_files, read_arrays
from assay.core.store import Record, Store, load_output, safe_name


def record(sample, attempt=0, **fields):
    fields.setdefault("scores", {"correct": 1.0})
    return Record("t", sample, attempt, int(sample[1:]), 7, **fields)


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "run", {"id": "run"})
    made.write_samples(
        pl.DataFrame(
            {
                "task": ["t"] * 50,
                "sample": [f"s{i}" for i in range(50)],
                "index": range(50),
                "cluster": [f"c{i // 2}" for i in range(50)],
                "target": ["1"] * 50,
                "size": list(range(50)),
            }
        )
    )
    return made


@given(cut=st.integers(min_value=0, max_value=400))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_off_anywhere_yields_exactly_its_whole_lines(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("journal")
    with Journal(folder) as journal:
        for i in range(8):
            journal.write([{"i": i, "text": "ü" * i}])
    (path,) = journal_files(folder)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut])
    whole = data[: len(data) - cut].count(b"\n")
    assert [json.loads(a)[0]["i"] for a in read_arrays(folder)] == list(range(whole))


@given(place=st.integers(min_value=0, max_value=10_000), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_costs_its_own_line_at_most_two_and_is_reported(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("journal")
    with Journal(folder) as journal:
        for i in range(6):
            journal.write([{"i": i}])
    (path,) = journal_files(folder)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    path.write_bytes(bytes(data))
    kept = [json.loads(a)[0]["i"] for a in read_arrays(folder)]
    assert set(kept) <= set(range(6))
    assert 4 <= len(kept) <= 5
    assert damaged_lines(folder)


def test_every_line_is_json_that_others_can_read(tmp_path):
    with Journal(tmp_path) as journal:
        journal.write([record("s1", output=msgspec.Raw(b'{"a":1}'))])
    line = json.loads(journal_files(tmp_path)[0].read_text())
    assert line["records"][0]["output"] == {"a": 1}


def test_a_line_reaches_the_disk_within_a_second_of_being_written(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(journal_module.os, "fsync", lambda fd: (synced.append(time.monotonic()), real(fd))[1])
    with Journal(tmp_path) as journal:
        written = time.monotonic()
        journal.write([1])
        while not synced:
            assert time.monotonic() - written < 1.5
            time.sleep(0.01)
        assert synced[0] - written < 1.0


@pytest.mark.parametrize("failing", range(1, 12))
def test_a_disk_that_is_full_at_the_nth_write_keeps_every_line_before_it(tmp_path, monkeypatch, failing):
    calls = {"n": 0}
    real = os.write

    def write(fd, data):
        calls["n"] += 1
        if calls["n"] == failing:
            real(fd, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(journal_module.os, "write", write)
    written = []
    with Journal(tmp_path) as journal:
        full = pytest.raises(StorageError, match="No space left") if failing <= 10 else contextlib.nullcontext()
        with full:
            for i in range(10):
                journal.write([i])
                written.append(i)
    assert StorageError.fatal
    assert [json.loads(a)[0] for a in read_arrays(tmp_path)] == written == list(range(min(10, failing - 1)))
    assert damaged_lines(tmp_path) == []


def test_each_writer_begins_a_file_of_its_own_and_an_empty_one_leaves_none(tmp_path):
    for i in range(3):
        with Journal(tmp_path) as journal:
            journal.write([i])
    with Journal(tmp_path):
        pass
    assert [p.name for p in journal_files(tmp_path)] == ["000001.jsonl", "000002.jsonl", "000003.jsonl"]


def test_a_later_record_of_the_same_trial_supersedes_the_earlier_one(store):
    with store.journal() as journal:
        journal.write([record("s1", status="error", scores={})])
        journal.write([record("s2")])
    store.compact()
    with store.journal() as journal:
        journal.write([record("s1", rows=[{"step": 1}])])
    records = store.read_records()
    assert records.select("sample", "status").rows() == [("s1", "ok"), ("s2", "ok")]
    store.compact()
    assert_frame_equal(store.read_records(), records)
    assert store.read_rows("t").rows() == [("s1", 0, 1)]


def test_compaction_cut_off_after_its_files_were_written_changes_nothing(store, monkeypatch):
    with store.journal() as journal:
        for i in range(20):
            journal.write([record(f"s{i}", rows=[{"step": s} for s in range(3)])])
    before, rows = store.read_records(), store.read_rows("t")
    lines = {p: p.read_bytes() for p in journal_files(store.path / "journal")}
    store.compact()
    # The journal is deleted last: as if the process had died before that.
    (store.path / "journal").mkdir()
    for path, data in lines.items():
        path.write_bytes(data)
    assert_frame_equal(store.read_records(), before)
    store.compact()
    assert_frame_equal(store.read_records(), before)
    assert_frame_equal(store.read_rows("t"), rows)


def test_records_carry_cluster_groups_and_target_of_their_sample(store):
    with store.journal() as journal:
        journal.write([record("s3", status="error", scores={}), record("s4", groups={"stop_reason": "length"})])
    frame = store.read_records()
    assert frame.select("sample", "cluster", "size", "target", "stop_reason").rows() == [
        ("s3", "c1", 3, "1", None),
        ("s4", "c2", 4, "1", "length"),
    ]


def test_groups_of_mixed_kinds_become_text_and_whole_numbers_stay_whole(store):
    with store.journal() as journal:
        journal.write([record("s1", groups={"a": 1, "b": 1, "c": 1})])
        journal.write([record("s2", groups={"a": "x", "b": 2.5, "c": 2})])
    frame = store.read_records()
    assert frame["a"].to_list() == ["1", "x"]
    assert frame["b"].to_list() == [1.0, 2.5]
    assert frame["c"].dtype == pl.Int64


def test_an_output_that_points_outside_its_run_is_refused(store):
    with pytest.raises(DataError, match="outside its run folder"):
        load_output(store.path, '{"$file": "../../etc/passwd"}')


def test_a_folder_without_a_manifest_is_no_run(tmp_path):
    with pytest.raises(UsageError, match=r"holds no run\.json"):
        Store(tmp_path)


def test_a_second_lock_is_refused_with_one_sentence(store):
    with store.lock(), pytest.raises(AssayError, match="Another process is writing"), store.lock():
        pass


@given(st.text(max_size=200))
def test_any_text_makes_a_safe_file_name(text):
    name = safe_name(text)
    assert name
    assert "/" not in name
    assert not name.startswith(".")
    assert len(name) <= 80
