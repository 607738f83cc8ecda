"""Worker: jobs are scored once, survive whatever dies, and what the scorer says holds nothing of the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import msgspec
import pytest
import sqlalchemy as sa
from board_verdict import quick_verdict

from assay.core.errors import UsageError
from assay.server import accounts
from assay.server.boards import history, submissions
from assay.server.boards.tables import (
    BROKEN,
    CLOSED,
    FAILED,
    OPEN,
    QUEUED,
    REFUSED,
    RUNNING,
    SCORED,
    Board,
    Entry,
    History,
    Job,
)
from assay.server.boards.worker import Worker, sealed_folder, started
from assay.server.database import open_database
from assay.server.settings import Settings

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
SLOW_BOTH = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
N = 20
TRUTH = {f"s{i}": str(i * 5 % 7 % 2) for i in range(N)}


class Desk:
    """A board with a referee, and short ways to use it."""

    def __init__(self, settings, **rules):
        settings.prepare()
        self.settings, self.database = settings, open_database(settings.database)
        sealed = sealed_folder(settings)
        sealed.mkdir(mode=0o700)
        self.seal(TRUTH)
        self.worker = Worker(self.database, settings, lease_seconds=1.0)
        with self.database.session() as session:
            self.account = accounts.create_account(session, "anna", "submitter").id
        self.board = self.make("toy", **rules)
        self.worker.step()

    def seal(self, truth, options=None):
        folder = sealed_folder(self.settings)
        for name, value in (("truth.json", options or {"truth": "./labels.json"}), ("labels.json", truth)):
            (folder / name).write_text(json.dumps(value))
            (folder / name).chmod(0o600)

    def make(self, name, **rules):
        options = rules.pop("options", {})
        with self.database.session() as session:
            return submissions.create_board(
                session, self.settings, name, "toy_labels", sealed="truth.json", options=options, **rules
            ).id  # fmt: skip

    def submit(self, answer="0", *, name="p.jsonl", system="guess", account=None, content=None):
        """Key of a new entry; ``answer`` is a label for all, or a function of the number."""
        label = answer if callable(answer) else lambda i: answer
        rows = [{"id": f"s{i}", "label": label(i)} for i in range(N)]
        content = content if content is not None else "\n".join(map(json.dumps, rows)).encode()
        upload = submissions.receive(self.settings, name, [content], 1 << 20)
        with self.database.session() as session:
            who = session.get_one(accounts.Account, account or self.account)
            board = session.get_one(Board, self.board)
            return submissions.accept(session, self.settings, board, who, upload, system).id

    def entry(self, entry):
        with self.database.reading() as session:
            return session.get_one(Entry, entry)

    def job(self, entry):
        with self.database.reading() as session:
            return session.scalar(sa.select(Job).where(Job.entry_id == entry))

    def events(self):
        with self.database.reading() as session:
            board = session.get_one(Board, self.board)
            assert history.broken(session, board) is None
            return [msgspec.json.decode(line.body) for line in history.lines(session, board)]

    def everything(self) -> str:
        """All that the database holds, as text."""
        with self.database.reading() as session:
            return "\n".join(
                repr(session.execute(sa.select(t)).all())
                for t in (Board.__table__, Entry.__table__, History.__table__, Job.__table__)
            )


@pytest.fixture
def quick(monkeypatch):
    """From now on verdicts come without a process."""
    return lambda: monkeypatch.setattr(Worker, "_judged", quick_verdict(TRUTH))


@pytest.fixture
def desk(settings):
    made = Desk(settings)
    yield made
    made.database.close()


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


@BOTH
def test_ladder_withholds_what_is_not_better_by_the_step(settings, quick):
    desk = Desk(settings, step=0.1, rounding=0.05)
    quick()
    right = lambda k: lambda i: TRUTH[f"s{i}"] if i < k else "x"  # noqa: E731
    found = []
    for k in (10, 11, 9, 13, 13.5):
        entry = desk.submit(right(k), system=f"s{k}")
        desk.worker.step()
        made = desk.entry(entry)
        found.append((made.withheld, made.scores and made.scores[0]["value"]))
    assert found == [(False, 0.5), (True, None), (True, None), (False, 0.65), (True, None)]
    withheld = [e for e in desk.events() if e.get("withheld")]
    assert len(withheld) == 3
    assert all("scores" not in e for e in withheld)


def test_part_that_was_not_shown_decides_when_the_board_closes(settings):
    desk = Desk(settings, shown_share=0.5)
    entries = [
        desk.submit(lambda i, a=a: TRUTH[f"s{i}"] if (i < 10) == a else "x", system=f"s{a}") for a in (True, False)
    ]
    for _ in entries:
        desk.worker.step()
    shown = [desk.entry(e).scores[0] for e in entries]
    assert 0 < shown[0]["n"] == shown[1]["n"] < N
    assert desk.entry(entries[0]).final is None
    with desk.database.session() as session:
        submissions.close_board(session, session.get_one(Board, desk.board), "org")
    desk.worker.step()
    for entry, part in zip(entries, shown):
        final = desk.entry(entry).final[0]
        assert final["n"] + part["n"] == N
        assert final["value"] * final["n"] + part["value"] * part["n"] == pytest.approx(10, abs=0.02)
    with pytest.raises(UsageError, match="closed and takes no"):
        desk.submit("1")
    with desk.database.reading() as session:
        board = session.get_one(Board, desk.board)
        assert board.state == CLOSED
        lines = submissions.standings(session, board)
        assert [x.score["n"] for x in lines] == [desk.entry(entries[0]).final[0]["n"]] * 2


def test_a_board_opens_only_when_both_sides_fit(desk):
    def state_of(name, **rules):
        board = desk.make(name, **rules)
        desk.worker.step()
        with desk.database.reading() as session:
            found = session.get_one(Board, board)
            return found.state, found.reason

    assert state_of("good") == (OPEN, "")
    assert state_of("metric", metric="nope") == (BROKEN, "There is no metric 'nope'; there are accuracy.")
    assert state_of("more", options={"n": 25}) == (BROKEN, "The hidden options leave 5 samples without a target.")
    desk.seal(TRUTH, {"truth": "./labels.json", "n": 19})
    assert state_of("less")[1].startswith("The public and the hidden side differ in labels/s19")
    desk.seal(TRUTH)
    (sealed_folder(desk.settings) / "truth.json").chmod(0o644)
    assert state_of("open-to-all")[0] == BROKEN
    (sealed_folder(desk.settings) / "truth.json").chmod(0o600)
    (sealed_folder(desk.settings) / "labels.json").chmod(0o644)
    assert state_of("truth-open-to-all")[0] == BROKEN


def test_hidden_options_among_the_runs_are_refused(desk, monkeypatch):
    monkeypatch.setenv("ASSAY_SEALED", str(desk.settings.runs / "hidden"))
    with pytest.raises(UsageError, match="lies among the runs"):
        desk.make("shown")


@BOTH
def test_database_refuses_to_change_what_was_written(desk, quick):
    quick()
    entry = desk.submit()
    desk.worker.step()
    for statement in (
        "DELETE FROM board_entry", "DELETE FROM board_history", "UPDATE board_history SET body = 'x'",
        "UPDATE board_entry SET digest = 'x'", "UPDATE board_entry SET scores = '[]'",
        "UPDATE board_entry SET team_id = 9",
    ):  # fmt: skip
        with pytest.raises(sa.exc.DatabaseError, match="only ever added to"), desk.database.session() as session:
            session.execute(sa.text(statement))
    with desk.database.session() as session:
        submissions.delete(session, session.get_one(Entry, entry), "anna")
    with pytest.raises(sa.exc.DatabaseError, match="only ever added to"), desk.database.session() as session:
        session.execute(sa.text("UPDATE board_entry SET deleted = NULL"))
    assert desk.entry(entry).scores is not None


def test_history_that_was_tampered_with_shows(desk):
    desk.submit()
    with desk.database.session() as session:
        session.execute(sa.text("DROP TRIGGER board_history_fixed"))
        session.execute(sa.text("UPDATE board_history SET body = replace(body, 'guess', 'mine') WHERE number = 3"))
    with desk.database.reading() as session:
        assert history.broken(session, session.get_one(Board, desk.board)) == 3


def test_same_file_twice_is_refused_and_receipts_hold_only_as_given(desk):
    entry = desk.submit("1")
    with pytest.raises(UsageError, match="this very file before, as submission 1"):
        desk.submit("1")
    assert len(list(submissions.uploads(desk.settings).iterdir())) == 2
    with desk.database.reading() as session:
        given = submissions.receipt(desk.settings, session.get_one(Entry, entry))
    assert submissions.receipt_holds(desk.settings, given)
    assert not submissions.receipt_holds(desk.settings, {**given, "sha256": "0" * 64})
    assert not submissions.receipt_holds(desk.settings, {**given, "signature": "é"})
    assert not submissions.receipt_holds(Settings(desk.settings.root / "other", desk.settings.runs), given)


def test_ranks_ties_failures_deletions_and_teams(desk, quick):
    quick()
    right = lambda k: lambda i: TRUTH[f"s{i}"] if i < k else "x"  # noqa: E731
    with desk.database.session() as session:
        ben = accounts.create_account(session, "ben", "submitter").id
        cai = accounts.create_account(session, "cai", "submitter")
        submissions.join_team(session, cai, "anna")
        cai = cai.id
    made = {
        "a": desk.submit(right(10), system="a"),
        "b": desk.submit(lambda i: TRUTH[f"s{i}"] if i >= 10 else "y", system="b", account=ben),
        "c": desk.submit(right(15), system="c", account=cai), "d": desk.submit("leak", system="d"),
        "e": desk.submit(right(18), system="e", account=ben), "a2": desk.submit(right(8), system="a"),
    }  # fmt: skip
    for _ in made:
        desk.worker.step()
    with desk.database.session() as session:
        submissions.delete(session, session.get_one(Entry, made["e"]), "ben")
    with desk.database.reading() as session:
        lines = submissions.standings(session, session.get_one(Board, desk.board))
        found = [(x.rank, x.entry.system, x.entry.team.name, x.submissions) for x in lines]
    assert found == [(1, "c", "anna", 4), (2, "a", "anna", 4), (2, "b", "ben", 2), (None, "d", "anna", 4)]


def test_a_worker_that_is_stopped_gives_its_job_back_at_once_and_it_counts_as_no_try(desk):
    entry = desk.submit(lambda i: "slow" if i == 4 else "0")
    process = spawn(desk)
    until(lambda: desk.entry(entry).status == RUNNING)
    process.terminate()
    assert process.wait(20) == 0
    assert (desk.entry(entry).status, desk.job(entry).tries) == (QUEUED, 0)


def test_no_page_opens_what_is_sealed(house):
    """All files that this process opens while pages and API are used, by Python's audit hook."""
    opened, listening = [], [True]

    def hook(event, arguments):
        if listening[0] and event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
            opened.append(os.fsdecode(arguments[0]))

    desk = Desk(house.settings)
    sys.addaudithook(hook)
    anna, admin = house.program("submitter", "anna"), house.client("admin")
    where = "/api/boards/toy/submissions"
    content = "\n".join(json.dumps({"id": f"s{i}", "label": "0"}) for i in range(N))
    sent = anna.post(where, params={"system": "x", "file": "p.jsonl"}, content=content).json()["id"]
    listening[0] = False
    desk.worker.step()
    listening[0] = True
    for path in ("/boards", "/boards/toy", "/boards/toy/history", f"{where}/{sent}", "/boards/toy/submissions.zip"):
        assert admin.get(path).status_code == 200, path
    admin.post("/boards/toy/close")
    admin.post("/boards", data={"name": "other", "benchmark": "toy_labels", "sealed": "truth.json"})
    listening[0] = False
    assert any("uploads" in path for path in opened)
    assert not [path for path in opened if str(sealed_folder(house.settings)) in path]


def test_truth_that_changed_after_the_board_opened_scores_nothing(desk):
    desk.seal({**TRUTH, "s3": "1" if TRUTH["s3"] == "0" else "0"})
    entry = desk.submit()
    desk.worker.step()
    assert desk.entry(entry).reason == "The hidden truth is no longer the one that this board opened with."
    desk.seal(TRUTH)
    again = desk.submit()
    desk.worker.step()
    assert desk.entry(again).status == SCORED


def test_hostile_archives_are_refused_with_one_sentence(desk):
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("../../labels.json", "{}")
    entry = desk.submit(name="p.zip", content=out.getvalue())
    desk.worker.step()
    found = desk.entry(entry)
    assert (found.status, found.faults) == (
        REFUSED, ["p.zip: entry '../../labels.json' would lie outside the folder; the archive is not trusted."]
    )  # fmt: skip
    assert json.loads((sealed_folder(desk.settings) / "labels.json").read_text()) == TRUTH


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
