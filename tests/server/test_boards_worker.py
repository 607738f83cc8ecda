"""Worker: jobs are scored once, survive whatever dies, and what the scorer says holds nothing of the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import sqlalchemy as sa
from board_desk import TRUTH, Desk, N

from assay.server import accounts
from assay.server.boards import submissions
from assay.server.boards.tables import (
    FAILED,
    QUEUED,
    REFUSED,
    RUNNING,
    SCORED,
    Board,
    Entry,
    Job,
)
from assay.server.boards.worker import Worker, sealed_folder, started

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
SLOW_BOTH = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)


@BOTH
def test_submission_is_scored_with_interval_and_n(desk):
    entry = desk.submit(lambda i: TRUTH[f"s{i}"] if i < 15 else "x")
    assert desk.entry(entry).status == QUEUED
    assert desk.worker.step()
    found = desk.entry(entry)
    (score,) = found.scores
    assert (found.status, score["metric"], score["value"], score["n"]) == (SCORED, "accuracy", 0.75, N)
    assert score["low"] < 0.75 < score["high"]
    assert not desk.worker.step()
    assert [e["event"] for e in desk.events()] == ["created", "opened", "received", "scored"]


@SLOW_BOTH
def test_faults_are_twenty_with_lines_and_the_rest_counted_and_do_not_use_up_the_day(desk):
    bad = "\n".join(['{"id": "s0"}'] * 33).encode()
    entry = desk.submit(content=bad)
    desk.worker.step()
    found = desk.entry(entry)
    assert (found.status, len(found.faults), found.faults_left) == (REFUSED, 20, 13)
    assert found.faults[0] == "p.jsonl, line 1: not an object with the fields 'id' and 'label'."
    with desk.database.reading() as session:
        board, team = session.get_one(Board, desk.board), found.team_id
        assert submissions.used_today(session, board, session.get_one(submissions.Team, team)) == (0, 1)


@BOTH
def test_limit_of_the_day_holds_for_submitters_at_once(settings):
    desk = Desk(settings, a_day=5)
    refused = []

    def go(i):
        try:
            desk.submit(lambda k: str((k + i) % 2) if k else f"v{i}")
        except submissions.LimitReached as error:
            refused.append(str(error))

    threads = [threading.Thread(target=go, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(refused) == 11
    assert "5 submissions of today" in refused[0]
    with desk.database.reading() as session:
        numbers = sorted(session.scalars(sa.select(Entry.number)))
    assert numbers == [1, 2, 3, 4, 5]
    desk.events()


@BOTH
def test_two_workers_and_fifty_submitters_score_every_job_once(settings, monkeypatch):
    desk = Desk(settings, a_day=50)
    workers = [desk.worker, Worker(desk.database, settings, lease_seconds=30.0)]
    judged = []

    def verdict(self, claim, scratch, stop):
        judged.append((self.name, claim.entry.id))
        time.sleep(0.005)
        score = {"metric": "accuracy", "value": claim.entry.id / 1000, "low": 0.0, "high": 1.0, "n": N}
        return {"status": "scored", "shown": [score], "final": [score]}

    monkeypatch.setattr(Worker, "_judged", verdict)
    with desk.database.session() as session:
        people = [accounts.create_account(session, f"p{i}", "submitter").id for i in range(50)]
    stop = threading.Event()
    running = [threading.Thread(target=w.run, args=(stop,)) for w in workers]
    senders = [threading.Thread(target=desk.submit, kwargs={"account": p}) for p in people]
    for t in (*running, *senders):
        t.start()
    for t in senders:
        t.join()
    end = time.monotonic() + 60
    while len(judged) < 50 and time.monotonic() < end:
        time.sleep(0.05)
    stop.set()
    for t in running:
        t.join()
    assert len(judged) == len({entry for _, entry in judged}) == 50
    assert {name for name, _ in judged} == {w.name for w in workers}
    scored = [e["entry"] for e in desk.events() if e["event"] == "scored"]
    assert sorted(scored) == list(range(1, 51))


def spawn(desk):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if desk.settings.database_url:
        environment["ASSAY_DATABASE_URL"] = desk.settings.database_url
    return subprocess.Popen(
        [sys.executable, "-m", "assay.server.boards.worker", str(desk.settings.root)], env=environment
    )


def until(found, seconds=40.0):
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    return value


@SLOW_BOTH
def test_job_of_a_killed_worker_runs_again_and_its_judge_dies_with_it(desk):
    entry = desk.submit(lambda i: "slow" if i == 4 else "0")
    process = spawn(desk)
    until(lambda: desk.entry(entry).status == RUNNING)
    (judge,) = until(lambda: children(process.pid))
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not os.path.exists(f"/proc/{judge}") or "Z" in state(judge))
    assert desk.entry(entry).status == RUNNING
    with desk.database.session() as session:
        session.execute(sa.update(Job).values(worker="gone"))
    desk.worker.reap()
    time.sleep(1.1)
    desk.worker.reap()
    assert desk.entry(entry).status == QUEUED
    assert desk.job(entry).tries == 1
    desk.worker.step()
    assert desk.entry(entry).status == SCORED
    assert desk.job(entry).tries == 2
    assert sum(e["event"] == "scored" for e in desk.events()) == 1


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(x) for x in file.read().split()]


def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@BOTH
def test_job_whose_worker_dies_every_time_fails_with_a_reason(settings):
    desk = Desk(settings, tries=2)
    entry = desk.submit()
    for _ in range(2):
        claim = desk.worker.claim()
        assert claim is not None
        desk.worker.reap()
        time.sleep(1.1)
        desk.worker.reap()
    found = desk.entry(entry)
    assert (found.status, found.reason) == (FAILED, "The process that scored it came to an end. It was tried 2 times.")
    assert desk.worker.claim() is None
    assert desk.events()[-1]["event"] == "failed"


@BOTH
def test_expired_lease_is_taken_over_and_its_late_verdict_thrown_away(desk):
    entry = desk.submit()
    late = Worker(desk.database, desk.settings, lease_seconds=1.0)
    old = late.claim()
    desk.worker.reap()
    time.sleep(1.1)
    desk.worker.reap()
    assert not late.beat(old)
    new = desk.worker.claim()
    assert (new.entry.id, new.lease != old.lease) == (entry, True)
    wrong = {"metric": "accuracy", "value": 1.0, "low": 1.0, "high": 1.0, "n": N}
    assert late._finish(old, {"status": "scored", "shown": [wrong], "final": [wrong]}) is False
    assert desk.entry(entry).scores is None
    right = {**wrong, "value": 0.5}
    assert desk.worker._finish(new, {"status": "scored", "shown": [right], "final": [right]}) is True
    assert desk.entry(entry).scores[0]["value"] == 0.5


def test_a_worker_that_beats_keeps_its_job_however_clocks_jump(desk, monkeypatch):
    import datetime as dt

    from assay.server.boards import worker as module

    desk.submit()
    other = Worker(desk.database, desk.settings, lease_seconds=1.0)
    claim = desk.worker.claim()
    for jump in (dt.timedelta(days=4000), dt.timedelta(days=-4000), dt.timedelta()):
        monkeypatch.setattr(module, "now", lambda jump=jump: dt.datetime.now(dt.UTC) + jump)
        monkeypatch.setattr(time, "time", lambda jump=jump: dt.datetime.now().timestamp() + jump.total_seconds())
        other.reap()
        time.sleep(0.6)
        assert desk.worker.beat(claim)
        other.reap()
        time.sleep(0.6)
        other.reap()
        assert desk.worker.beat(claim)
    assert other.claim() is None


def test_time_and_memory_limits_end_a_scoring_with_a_reason(settings):
    desk = Desk(settings, seconds=6, memory_mb=900)
    slow, large = desk.submit("hang"), desk.submit("memory")
    begun = time.monotonic()
    desk.worker.step()
    desk.worker.step()
    assert time.monotonic() - begun < 40
    assert desk.entry(slow).reason == "Scoring took longer than the 6 s that this board allows."
    assert desk.entry(large).reason == "Scoring took more memory than the 900 MB that this board allows."
    assert desk.entry(slow).status == desk.entry(large).status == FAILED


def test_errors_of_scoring_say_nothing_of_the_truth_and_the_organiser_can_read_them(desk):
    entry = desk.submit("leak")
    desk.worker.step()
    found = desk.entry(entry)
    assert (found.status, found.reason) == (FAILED, "None of the predictions could be scored.")
    partly = desk.submit(lambda i: "leak" if i == 3 else "1", system="partly")
    desk.worker.step()
    assert desk.entry(partly).status == SCORED
    assert "SECRET" not in desk.everything()
    notes = [p.read_text() for p in (sealed_folder(desk.settings) / "log").glob("*")]
    assert any("SECRET-" in text for text in notes)
    for path in sealed_folder(desk.settings).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_nothing_of_the_truth_is_left_outside_the_sealed_folder(desk):
    desk.submit(lambda i: "1")
    desk.worker.step()
    assert not list((sealed_folder(desk.settings) / "scratch").iterdir())
    outside = [
        p for p in desk.settings.root.rglob("*") if p.is_file() and sealed_folder(desk.settings) not in p.parents
    ]
    assert outside
    assert not any(b'"s3": "' in p.read_bytes() or b"labels.json" in p.read_bytes() for p in outside)


def test_claimed_scores_groups_and_runs_of_other_benchmarks_bring_nothing(desk, tmp_path):
    import assay
    from assay.systems.scripted import ScriptedChatModel

    def system(answer):
        return ScriptedChatModel(lambda messages, rng: answer, name="always")

    run = assay.run("toy_labels", system("1"), into=tmp_path / "run")
    assert set(run.records["status"]) == {"unscored"}
    entry = desk.submit(name="run.zip", content=zipped(run.path), system="run")
    desk.worker.step()
    assert desk.entry(entry).scores[0]["value"] == sum(v == "1" for v in TRUTH.values()) / N
    cheat = run.records.clone()
    import polars as pl

    cheat.with_columns(pl.lit(1.0).alias("correct"), pl.lit("ok").alias("status")).write_parquet(
        run.path / "records.parquet"
    )
    info = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**info, "scores": ["correct"], "outcome_groups": ["correct"]}))
    again = desk.submit(name="run.zip", content=zipped(run.path), system="cheat")
    desk.worker.step()
    assert desk.entry(again).scores[0]["value"] == sum(v == "1" for v in TRUTH.values()) / N
    (run.path / "run.json").write_text(json.dumps({**info, "benchmark": "toy"}))
    other = desk.submit(name="run.zip", content=zipped(run.path), system="other")
    desk.worker.step()
    assert "this board takes runs of 'toy_labels'" in desk.entry(other).reason


def zipped(folder):
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(folder))
    return out.getvalue()


def test_a_worker_that_is_stopped_gives_its_job_back_at_once_and_it_counts_as_no_try(desk):
    entry = desk.submit(lambda i: "slow" if i == 4 else "0")
    process = spawn(desk)
    until(lambda: desk.entry(entry).status == RUNNING)
    process.terminate()
    assert process.wait(20) == 0
    assert (desk.entry(entry).status, desk.job(entry).tries) == (QUEUED, 0)


def test_the_server_keeps_a_worker_and_replaces_one_that_was_killed(desk):
    entry = desk.submit()
    here = os.getpid()
    mine = lambda: [p for p in children_of_all(here) if b"boards.worker" in command(p)]  # noqa: E731
    with started(desk.settings):
        (first,) = until(mine)
        os.kill(first, signal.SIGKILL)
        (second,) = until(lambda: [p for p in mine() if p != first])
        until(lambda: desk.entry(entry).status == SCORED)
    until(lambda: command(second) == b"")


def children_of_all(pid):
    """Children of every thread of a process."""
    return [
        int(x) for t in os.listdir(f"/proc/{pid}/task") for x in open(f"/proc/{pid}/task/{t}/children").read().split()
    ]


def command(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        return b""
