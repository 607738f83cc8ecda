"""Disks that are full, small or closed: one sentence, nothing lost, nothing twice; on real file systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent.parent / "support")
# Trials in flight when a run waits; trials that a worker may be ahead of the journal when it computes.
LANES, CHUNK = 32, 256


@cache
def own_mounts() -> tuple[str, ...] | None:
    """How a process gets mounts of its own here; None = not at all."""
    for how in (("unshare", "--mount"), ("unshare", "--mount", "--user", "--map-root-user")):
        probe = [*how, "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
        try:
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return how
        except OSError:
            return None
    return None


def on_small_disk(tmp_path, *arguments):
    how = own_mounts()
    if how is None:
        pytest.skip("no process may mount a file system of its own here")
    folder = tmp_path / "disks"
    folder.mkdir()
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *filter(None, sys.path)]), "COLUMNS": "200",
        "ASSAY_RUNS": str(tmp_path / "runs"),
    }  # fmt: skip
    command = [*how, sys.executable, "-m", "small_disk", arguments[0], str(folder), *arguments[1:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def one_sentence(said):
    lines = [line for line in said.splitlines() if line.strip()]
    assert len(lines) == 1, said
    assert lines[0].startswith("assay: ")
    return lines[0]


@pytest.mark.parametrize(
    ("benchmark", "n", "rows", "ahead"),
    [("toy_judged", 200, sum(1 + i % 3 for i in range(200)), LANES), ("toy", 200, 0, CHUNK)],
    ids=["trials that wait", "trials that compute"],
)
def test_a_disk_that_is_full_at_any_point_of_a_run_costs_one_sentence_and_no_record(
    tmp_path, benchmark, n, rows, ahead
):
    cases = on_small_disk(tmp_path, benchmark, "-o", f"n={n}")
    stopped_in = set()
    for case in cases:
        assert case["code"] == 3, case
        sentence = one_sentence(case["said"])
        assert "No space left on device" in sentence
        assert "free some space and resume" in sentence
        stopped_in.add(sentence.split(" (")[0].rpartition("/")[2])
        assert case["again"] == 0, case["more"]
        assert case["status"] == "finished"
        assert case["records"] == case["unique"] == case["planned"] == n
        assert case["statuses"] == {"ok": n}
        assert case["clusters"] == 0
        assert case["rows"] == rows
        assert case["left"] == []
        # What was in flight when the disk refused is answered again, and nothing else.
        assert case["total"] <= n + ahead
    # The manifest, the samples, the journal or the folded files: the sizes reach several of them.
    assert len(stopped_in) >= 3, stopped_in
    assert any(0 < case["answered"] < n for case in cases)


def test_a_disk_that_a_trials_own_files_fill_stops_the_run_and_leaves_its_trials_pending(tmp_path):
    cases = on_small_disk(tmp_path, "toy_hidden")
    for case in cases:
        assert case["code"] == 3, case
        assert "No space left on device" in one_sentence(case["said"])
        assert case["again"] == 0, case["more"]
        assert case["records"] == case["unique"] == case["planned"] == 12
        # No record of a trial that only failed because there was no room: not scored yet is all they are.
        assert case["statuses"] == {"unscored": 12}
    assert any(case["begun"] for case in cases)


def test_a_recipe_on_a_full_disk_keeps_what_it_made_and_goes_on_there(tmp_path):
    (found,) = on_small_disk(tmp_path, "recipe")
    code, said = found["first"]
    assert code == 3
    assert "No space left on device" in one_sentence(said)
    assert 0 < found["stood"] < 2000
    assert found["second"][0] == 0, found["second"]
    # A line an item: none was made twice.
    assert found["lines"] == 2000
    assert found["right"]


def test_a_run_that_is_mounted_read_only_is_read_and_refused_for_writing_in_one_sentence(tmp_path):
    (found,) = on_small_disk(tmp_path, "closed")
    for name in ("resume", "extend", "new", "report inside"):
        code, said = found["cases"][name]
        assert code == 3, (name, said)
        sentence = one_sentence(said)
        assert "Read-only file system" in sentence
        assert "make its folder writable" in sentence
    assert found["cases"]["report"][0] == 0, found["cases"]["report"]
    assert found["page"]
    assert found["same"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere; mounts are tested instead")
def test_a_folder_without_permission_is_refused_in_one_sentence(tmp_path):
    import assay
    from assay.core.errors import StorageError

    place = tmp_path / "closed"
    place.mkdir(mode=0o555)
    with pytest.raises(StorageError, match="Permission denied"):
        assay.run("toy", "method:doubler", into=place / "run")


def test_a_content_cache_on_a_closed_disk_still_gives_the_value(tmp_path, monkeypatch):
    import errno

    from assay.core.cache import ContentCache

    def closed(*arguments, **keywords):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", closed)
    cache = ContentCache(tmp_path)
    assert [cache.get_or(("key",), lambda: {"a": 1}) for _ in range(2)] == [{"a": 1}] * 2
