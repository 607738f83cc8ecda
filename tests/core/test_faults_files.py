"""Damaged files of a run: named with what to do, never believed, never in the way of the records that are whole."""

from __future__ import annotations

import json
import shutil

import pytest
from broken_runs import assay, check_whole, done, journalled, killed_run, wait_for

import assay as library
from assay.core import store as store_module
from assay.core.errors import DataError, UsageError
from assay.core.journal import journal_files
from assay.core.results import Run, damaged_runs, find_runs
from assay.core.store import Store

N = 60


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory):
    """A run that was killed: its folder, and the log of its answers."""
    place = tmp_path_factory.mktemp("killed")
    killed_run(place / "run", 24, N, place / "log")
    return place


@pytest.fixture
def killed(broken_off, tmp_path):
    """A copy to damage."""
    return shutil.copytree(broken_off / "run", tmp_path / "killed")


def answers(place):
    return (place / "log").read_text().split()


def resumed(folder):
    code, said = done(assay("resume", folder, "--quiet"))
    return code, [line for line in said.splitlines() if line]


def test_a_killed_run_is_interrupted_whatever_its_manifest_says(killed):
    assert json.loads((killed / "run.json").read_text())["status"] == "running"
    assert Run(killed).status == "interrupted"


def test_damaged_lines_in_the_middle_and_at_the_end_are_named_set_aside_and_only_their_trials_run_again(
    broken_off, killed
):
    (file,) = journal_files(killed / "journal")
    lines = file.read_bytes().splitlines(keepends=True)
    middle = bytearray(lines[9])
    middle[len(middle) // 2] ^= 4
    half = lines[-1][: len(lines[-1]) // 2]
    file.write_bytes(b"".join([*lines[:9], bytes(middle), *lines[10:-1], half]))
    whole = {sample for sample, _ in journalled(killed)}
    assert len(whole) == len(lines) - 2
    before = answers(broken_off)
    code, said = resumed(killed)
    assert code == 0
    assert said == [
        f"{file}, line {number} does not match its checksum; the trials in it are run again."
        for number in (10, len(lines))
    ]
    run = check_whole(killed, N)
    assert run.info["remarks"] == said
    assert (killed / "damaged.jsonl").read_bytes() == bytes(middle) + half + b"\n"
    again = answers(broken_off)[len(before) :]
    assert sorted(f"q{a}" for a in again) == sorted({f"q{i}" for i in range(N)} - whole)


def test_zeros_at_the_end_of_a_journal_as_a_power_cut_leaves_them_cost_nothing_but_their_line(killed):
    (file,) = journal_files(killed / "journal")
    with file.open("ab") as stream:
        stream.write(bytes(4096))
    code, said = resumed(killed)
    assert code == 0
    assert len(said) == 1
    assert "does not match its checksum" in said[0]
    check_whole(killed, N)


def test_a_whole_line_of_another_version_is_a_sentence(killed):
    with Store(killed).journal() as journal:
        journal.write([{"something": "else"}])
    code, said = resumed(killed)
    assert code == 3
    assert len(said) == 1
    assert "no record" in said[0]
    assert str(killed / "journal") in said[0]


@pytest.mark.parametrize("cut", ["empty", "half", "middle"])
@pytest.mark.parametrize("name", ["records.parquet", "rows/judged.parquet"])
def test_a_truncated_table_is_named_with_what_to_do_and_is_made_again_from_nothing(tmp_path, name, cut):
    run = library.run("toy_judged", "method:doubler", options={"n": N}, into=tmp_path / "run")
    path = run.path / name
    data = path.read_bytes()
    damaged = {"empty": b"", "half": data[: len(data) // 2], "middle": data[:50] + bytes(1000) + data[1050:]}[cut]
    path.write_bytes(damaged)
    damage = rf"{path.name} is damaged \(.*\); restore it from a copy, or delete it .*resume: .*trials are run again\."
    with pytest.raises(DataError, match=damage):
        _ = Run(run.path).records if name == "records.parquet" else Run(run.path).rows("judged")
    if name == "records.parquet":
        with pytest.raises(DataError, match=damage):
            library.resume(run.path)
    assert path.read_bytes() == damaged
    path.unlink()
    (run.path / "records.parquet").unlink(missing_ok=True)
    library.resume(run.path)
    again = check_whole(run.path, N)
    assert again.rows("judged").height == sum(1 + i % 3 for i in range(N))


@pytest.mark.parametrize("damage", ["missing", "half", "others"])
def test_samples_that_are_gone_or_damaged_are_planned_again(killed, damage):
    path = killed / "samples.parquet"
    if damage == "missing":
        path.unlink()
    elif damage == "half":
        path.write_bytes(path.read_bytes()[:300])
    else:
        Store(killed).write_samples(Store(killed).read_samples().head(5))
    code, said = resumed(killed)
    assert (code, said) == (0, [])
    run = check_whole(killed, N)
    assert run.samples.height == N


def test_rows_of_a_trial_that_a_power_cut_took_are_a_trial_to_run_again(tmp_path):
    from fault_toys import Long, Plain

    run = library.run(Long(), Plain(), into=tmp_path / "run", workers=0)
    store, whole = Store(run.path), run.rows("long")
    # As it was before the journal was folded, with one of the files empty.
    records = run.records
    lines = [
        {
            "task": "long", "sample": f"s{i}", "attempt": 0, "index": i, "seed": records["seed"][i],
            "scores": {"x": float(i)}, "rows_file": f"journal/rows/long-s{i}.0.parquet",
        }
        for i in range(records.height)
    ]  # fmt: skip
    with store.journal() as journal:
        for line in lines:
            journal.write([line])
    (run.path / "records.parquet").unlink()
    (run.path / "rows" / "long.parquet").unlink()
    (run.path / "journal" / "rows").mkdir()
    for i in range(records.height):
        part = whole.filter(whole["sample"] == f"s{i}").drop("sample", "attempt")
        part.write_parquet(run.path / "journal" / "rows" / f"long-s{i}.0.parquet")
    (run.path / "journal" / "rows" / "long-s1.0.parquet").write_bytes(b"")
    again = library.resume(run.path, benchmark=Long(), system=Plain(), workers=0)
    assert again.info["remarks"] == [f"{run.path}/journal/rows/long-s1.0.parquet is damaged; long/s1 is run again."]
    assert check_whole(run.path, records.height).rows("long").equals(whole)


GARBLED = {
    "empty": b"", "half": b'{"benchmark": "toy', "binary": bytes(range(256)), "a list": b"[]", "nothing": b"{}",
    "wrong kinds": b'{"benchmark": 5, "system": "x"}', "text": b"hello",
}  # fmt: skip


@pytest.mark.parametrize("how", GARBLED)
def test_a_garbled_manifest_is_one_sentence_and_keeps_no_other_run_from_being_found(tmp_path, monkeypatch, how):
    monkeypatch.setenv("ASSAY_RUNS", str(tmp_path / "runs"))
    good = library.run("toy", "method:doubler", options={"n": 3})
    bad = shutil.copytree(good.path, tmp_path / "runs" / "bad")
    (bad / "run.json").write_bytes(GARBLED[how])
    with pytest.raises(DataError, match=r"run\.json is (not JSON|no manifest).*restore it or start a new run\."):
        library.resume(bad)
    assert [r.id for r in find_runs(tmp_path / "runs")] == [good.id]
    assert len(damaged_runs(tmp_path / "runs")) == 1
    code, said = done(assay("runs"))
    assert code == 0
    assert said.count("\n") == 1
    assert "bad/run.json" in said
    code, said = done(assay("resume", bad))
    assert code == 3
    assert said.count("\n") == 1


def test_a_missing_manifest_is_one_sentence(tmp_path):
    run = library.run("toy", "method:doubler", options={"n": 3}, into=tmp_path / "run")
    (run.path / "run.json").unlink()
    with pytest.raises(UsageError, match=r"is no run folder \(it holds no run\.json\)"):
        library.resume(run.path)
    with pytest.raises(UsageError, match=r"is no run and not empty \(it holds .*\); name a new folder"):
        library.run("toy", "method:doubler", options={"n": 3}, into=run.path)


def test_a_process_killed_before_it_wrote_a_manifest_leaves_a_folder_that_can_be_used(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock").write_text('{"pid": 1')
    (folder / ".run.json.4711.tmp").write_text("{")
    (folder / "samples.parquet").write_bytes(b"PAR1")
    library.run("toy", "method:doubler", options={"n": 3}, into=folder)
    check_whole(folder, 3)


def test_what_a_killed_run_had_paid_counts_against_the_budget_of_the_next(killed):
    kept = Run(killed).records
    calls = kept["calls"].explode().struct.field("paid").sum()
    assert calls > 0
    run = library.resume(killed)
    assert run.info["paid"] == pytest.approx(run.records["calls"].explode().struct.field("paid").sum())
    assert run.info["paid"] > calls


def test_a_folder_that_is_deleted_under_a_run_stops_it_with_a_sentence(tmp_path):
    folder = tmp_path / "run"
    line = ["run", "toy_judged", "-s", "method:doubler", "-o", "n=200", "-o", "pause=0.2", "--connections", "2"]
    process = assay(*line, "--into", folder, "--quiet")
    wait_for(lambda: len(journalled(folder)) >= 2, process)
    shutil.rmtree(folder)
    code, said = done(process, timeout=30)
    assert code == 3
    assert said.count("\n") == 1
    assert "was moved or deleted while it was written; bring it back and resume, or begin anew." in said


@pytest.mark.parametrize("after", ["tables", "manifest", "journal"])
def test_a_process_that_dies_while_it_folds_leaves_a_run_that_knows_its_columns(tmp_path, monkeypatch, after):
    """At each step: the tables are written, the manifest is, the journal is gone."""
    folder = tmp_path / "run"
    killed_run(folder, 24, N)

    class Died(BaseException):
        pass

    def die(*arguments, **keywords):
        raise Died

    place, name = {
        "tables": (Store, "write_info"), "manifest": (store_module, "sync_folder"), "journal": (shutil, "rmtree"),
    }[after]  # fmt: skip
    with monkeypatch.context() as patched:
        real, calls = getattr(place, name), []

        def step(*arguments, **keywords):
            calls.append(1)
            # The first manifest of a session says that it has begun.
            return real(*arguments, **keywords) if after == "tables" and len(calls) == 1 else die()

        patched.setattr(place, name, step)
        with pytest.raises(Died):
            library.resume(folder)
    assert Run(folder).records.height == N
    library.resume(folder)
    run = check_whole(folder, N)
    assert (run.info["scores"], run.info["groups"]) == (["met"], ["n_items"])
    assert run.info["paid"] == pytest.approx(run.records["calls"].explode().struct.field("paid").sum())


def test_a_command_given_again_tells_of_the_run_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_RUNS", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    killed_run(tmp_path / "runs" / "mine", 6, N)
    line = ["run", "toy_judged", "-s", "method:doubler", "-o", f"n={N}", "-o", "pause=0.05"]
    code, said = done(assay(*line))
    assert code == 0
    assert "There is an unfinished run of this (it was killed); to go on with it instead: assay resume mine" in said
