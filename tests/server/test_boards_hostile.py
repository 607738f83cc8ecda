"""What goes on at once at a board, and what a hostile team can send: nothing of it bends the board."""

from __future__ import annotations

import csv
import io
import json
import os
import threading
import time

import pytest
import sqlalchemy as sa
from board_desk import TRUTH, make, predictions, send
from board_verdict import quick_verdict

from assay.server import accounts
from assay.server.boards import history, submissions
from assay.server.boards.tables import Board, Entry, Team
from assay.server.boards.worker import Worker


def test_a_board_that_is_closed_while_its_truth_is_looked_at_stays_closed(house):
    _, worker = make(house)
    with house.database.session() as session:
        board = submissions.create_board(session, house.settings, "two", "toy_labels", sealed="truth.json")
    claim = worker.claim()
    with house.database.session() as session:
        submissions.close_board(session, board, "org")
    worker._prepared(claim, {"status": "open", "expected": 20, "headline": "accuracy", "higher_is_better": True})
    with house.database.reading() as session:
        board = session.get_one(Board, board.id)
        assert board.state == "closed"
        assert [json.loads(line.body)["event"] for line in history.lines(session, board)] == ["created", "closed"]


def test_what_is_scored_after_the_board_closed_is_ranked_by_the_part_that_decides(house, monkeypatch):
    """One entry's scorer died, and it is scored again after the board was closed and its final scores shown."""
    key, worker = make(house)

    def judged(self, claim, scratch, stop):
        late = claim.entry.system == "late"
        score = {"metric": "accuracy", "low": None, "high": None, "n": 10}
        return {
            "status": "scored", "shown": [{**score, "value": 0.9 if late else 0.5}],
            "final": [{**score, "value": 0.2 if late else 0.4}],
        }  # fmt: skip

    monkeypatch.setattr(Worker, "_judged", judged)
    anna = house.program("submitter", "anna")
    send(anna, key, predictions(8), system="late")
    send(anna, key, predictions(5), system="early")
    late = worker.claim()
    worker.step()
    house.program("admin").post(f"/api/boards/{key}/close")
    worker.step()
    worker.work(late, threading.Event())
    standings = anna.get(f"/api/boards/{key}").json()["standings"]
    assert [(s["rank"], s["system"], s["score"]["value"]) for s in standings] == [(1, "early", 0.4), (2, "late", 0.2)]
    assert anna.get(f"/api/boards/{key}/history").json()["whole"]


def test_a_fault_is_a_line_however_long_the_name_in_it(house):
    key, worker = make(house)
    anna = house.program("submitter", "anna")
    rows = b"\n".join(json.dumps({"id": "x" * 20_000 + str(i), "label": "0"}).encode() for i in range(30))
    entry = send(anna, key, rows).json()["id"]
    worker.step()
    found = anna.get(f"/api/boards/{key}/submissions/{entry}").json()
    assert (found["status"], len(found["faults"])) == ("refused", 20)
    assert max(map(len, [*found["faults"], found["reason"]])) <= 500


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_an_account_s_first_submissions_at_once_make_one_team(house):
    key, _ = make(house, a_day=100)
    clients = [house.program("submitter", "anna") for _ in range(6)]
    codes = []
    start = threading.Barrier(len(clients))

    def go(n):
        start.wait()
        codes.append(send(clients[n], key, predictions(n)).status_code)

    threads = [threading.Thread(target=go, args=(n,)) for n in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [201] * len(clients)
    with house.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Team)) == 1
        assert session.scalar(sa.select(sa.func.count()).select_from(Entry)) == len(clients)


def test_names_of_reported_metrics_are_short_and_no_formula_in_a_table(house):
    admin, anna = house.program("admin"), house.program("submitter", "anna")
    made = admin.post("/api/boards", json={"name": "claims", "benchmark": "toy_labels", "kind": "self-reported"})
    key = made.json()["id"]
    for name in ("", "x" * 81, "a\nb"):
        sent = anna.post(f"/api/boards/{key}/reports", json={"system": "s", "scores": {name: 1.0}})
        assert sent.status_code == 400, name
    assert anna.post(f"/api/boards/{key}/reports", json={"system": "s", "scores": {"=1+1": 1.0}}).status_code == 201
    other = anna.post(f"/api/boards/{key}/reports", json={"system": "s", "scores": {"f1": 1.0}})
    assert (other.status_code, "ranks by =1+1" in other.json()["error"]) == (400, True)
    header = next(csv.reader(io.StringIO(anna.get(f"/boards/{key}/export.csv").text)))
    assert "'=1+1" in header
    assert not [cell for cell in header if cell.startswith("=")]


def test_annotators_see_no_board(house):
    """They may know answers of a benchmark; what the roles say is what holds."""
    key, _ = make(house)
    annotator = house.program("annotator")
    for path in ("/boards", f"/boards/{key}", f"/boards/{key}/history", f"/api/boards/{key}"):
        assert annotator.get(path).status_code == 403, path
    assert house.program("reader").get(f"/boards/{key}").status_code == 200


def test_the_same_name_twice_at_once_is_one_sentence(house, monkeypatch):
    """The one who comes second found the name free, too."""
    admin = house.client("admin")
    house.account("reader", "ben")
    monkeypatch.setattr(accounts, "find_account", lambda session, name: None)
    sent = admin.post("/admin/accounts", data={"name": "Ben", "role": "reader"}, headers={"Accept": "application/json"})
    assert sent.status_code == 409
    assert "another request" in sent.json()["error"]


def test_scores_told_are_counted_wherever_the_team_reads_them(house, monkeypatch):
    """Whoever never opens a submission reads the same scores off the board."""
    key, worker = make(house, step=0.1)
    monkeypatch.setattr(Worker, "_judged", quick_verdict(TRUTH))
    anna = house.program("submitter", "anna")
    for right in (8, 9, 14):
        send(anna, key, predictions(right), system=f"s{right}")
        worker.step()
    lines = anna.get(f"/api/boards/{key}").json()["standings"]
    assert {(line["team_submissions"], line["team_told"], line["team_score_views"]) for line in lines} == {(3, 2, 0)}


def test_what_killed_processes_left_on_disk_is_removed_when_it_is_old(house):
    make(house)
    uploads, scratch = submissions.uploads(house.settings), submissions.sealed_folder(house.settings) / "scratch"
    for age, name in ((0, "new"), (3 * 86_400, "old")):
        (scratch / f"judge-{name}").mkdir()
        for path in (uploads / f"incoming-{name}", uploads / f"export-{name}.zip", uploads / f"entry-{name}"):
            path.touch()
        for path in (*uploads.glob(f"*-{name}*"), scratch / f"judge-{name}"):
            os.utime(path, (time.time() - age,) * 2)
    Worker(house.database, house.settings)
    left = {path.name for path in (*uploads.iterdir(), *scratch.iterdir())}
    assert left == {"incoming-new", "export-new.zip", "entry-new", "entry-old", "judge-new"}
