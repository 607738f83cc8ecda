"""Pages and API of the boards: who may do what, what is told to whom, limits, exports, the command line."""

from __future__ import annotations

import csv
import io
import json
import threading
import zipfile

import pytest
import sqlalchemy as sa
from board_desk import TRUTH, N, make, predictions, seal, send
from board_verdict import quick_verdict

from assay.cli import main
from assay.server.boards.tables import Board, Entry
from assay.server.boards.worker import Worker


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_a_submission_from_sending_to_the_board(house):
    key, worker = make(house)
    anna = house.program("submitter", "anna")
    sent = send(anna, key, predictions(15))
    assert sent.status_code == 201
    here = f"/api/boards/{key}/submissions/{sent.json()['id']}"
    assert (anna.get(here).json()["status"], anna.get(here).json()["before_it"]) == ("queued", 0)
    worker.step()
    found = anna.get(here).json()
    assert (found["status"], found["scores"][0]["value"], found["scores"][0]["n"]) == ("scored", 0.75, N)
    board = anna.get(f"/api/boards/{key}").json()
    (line,) = board["standings"]
    assert (line["rank"], line["team"], line["team_submissions"]) == (1, "anna", 1)
    assert line["team_score_views"] == 1
    assert anna.get(f"/api/boards/{key}/history").json()["whole"] is True
    assert anna.post("/api/receipts", json=sent.json()["receipt"]).json() == {"holds": True}
    assert anna.post("/api/receipts", json={**sent.json()["receipt"], "bytes": 1}).json() == {"holds": False}


def test_pages_show_forms_faults_and_scores(house):
    key, worker = make(house, title="Toy board", step=0.01)
    anna = house.client("submitter", "anna")
    page = anna.get(f"/boards/{key}")
    assert "Toy board" in page.text
    assert "10 of 10 submissions left" in page.text
    sent = anna.post(
        f"/boards/{key}/submissions",
        data={"system": "<script>alert(1)</script>"},
        files={"file": ("p.jsonl", predictions(9))},
    )
    assert sent.status_code == 303
    assert "Next in the queue" in anna.get(sent.headers["location"]).text
    worker.step()
    page = anna.get(sent.headers["location"]).text
    assert "0.45" in page
    assert "<script>alert" not in page
    assert "<script>alert" not in anna.get(f"/boards/{key}").text
    bad = anna.post(f"/boards/{key}/submissions", data={"system": "b"}, files={"file": ("p.jsonl", b"{}\n" * 30)})
    worker.step()
    page = anna.get(bad.headers["location"]).text
    assert "p.jsonl, line 20" in page
    assert "p.jsonl, line 21" not in page
    assert "10 more faults" in page
    assert "9 of 10 submissions left" in anna.get(f"/boards/{key}").text
    for path in ("", "/submissions", "/history", "/export.csv", "/export.json"):
        assert anna.get(f"/boards/{key}{path}").status_code == 200
    assert "history is whole" in anna.get(f"/boards/{key}/history").text
    assert "Toy board" in anna.get("/boards").text


def test_who_may_do_what(house):
    key, _ = make(house)
    anna, ben = house.program("submitter", "anna"), house.program("submitter", "ben")
    mine = send(anna, key).json()["id"]
    assert ben.get(f"/api/boards/{key}/submissions/{mine}").status_code == 404
    assert ben.post(f"/api/boards/{key}/submissions/{mine}/delete").status_code == 404
    assert ben.get(f"/boards/{key}/submissions/{mine}").status_code == 404
    assert ben.get(f"/api/boards/{key}/submissions").json() == []
    assert house.client().get(f"/api/boards/{key}").status_code == 401
    reader = house.program("reader")
    assert reader.get(f"/api/boards/{key}").status_code == 200
    assert send(reader, key).status_code == 403
    for path in (f"/api/boards/{key}/close", "/api/boards"):
        assert anna.post(path, json={"name": "x", "benchmark": "toy"}).status_code == 403
    assert anna.get(f"/boards/{key}/submissions.zip").status_code == 403
    assert house.program("admin").get(f"/api/boards/{key}/submissions/{mine}").status_code == 200
    assert anna.get("/api/boards/nope").status_code == 404
    assert anna.get(f"/api/boards/{key}/submissions/..%2f..%2fkey").status_code == 404


def test_nothing_of_the_truth_can_be_asked_for(house):
    key, worker = make(house)
    anna, admin = house.program("submitter", "anna"), house.program("admin")
    sent = send(anna, key, "\n".join(json.dumps({"id": f"s{i}", "label": "leak"}) for i in range(N)).encode()).json()
    worker.step()
    said = "".join(
        client.get(path).text
        for client in (anna, admin)
        for path in (
            f"/api/boards/{key}/submissions/{sent['id']}", f"/boards/{key}/submissions/{sent['id']}",
            f"/api/boards/{key}",
            f"/boards/{key}/history", "/api/boards", f"/boards/{key}", "/boards", f"/boards/{key}/export.json",
        )
    )  # fmt: skip
    assert "None of the predictions could be scored" in said
    assert "SECRET" not in said
    assert "truth.json" not in said
    assert "labels.json" not in said


def test_limits_of_size_day_and_files_that_are_refused_are_not_kept(house):
    key, _ = make(house, a_day=2, upload_bytes=2000)
    anna = house.program("submitter", "anna")
    assert send(anna, key, b"x" * 2001).status_code == 400
    assert send(anna, key, predictions(1)).status_code == 201
    again = send(anna, key, predictions(1))
    assert (again.status_code, "this very file" in again.json()["error"]) == (400, True)
    assert send(anna, key, predictions(2)).status_code == 201
    full = send(anna, key, predictions(3))
    assert (full.status_code, "2 submissions of today" in full.json()["error"]) == (429, True)
    uploads = house.settings.root / "uploads"
    assert len(list(uploads.iterdir())) == 2
    assert send(house.program("submitter", "ben"), key, predictions(1)).status_code == 201


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_submitters_at_once_all_get_in_and_numbers_have_no_gap(house):
    key, _ = make(house)
    clients = [house.program("submitter", f"p{i}") for i in range(12)]
    codes = []
    threads = [
        threading.Thread(target=lambda c=c, i=i: codes.append(send(c, key, predictions(i + 1)).status_code))
        for i, c in enumerate(clients)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert codes == [201] * 12
    with house.database.reading() as session:
        assert sorted(session.scalars(sa.select(Entry.number))) == list(range(1, 13))
    assert clients[0].get(f"/api/boards/{key}/history").json()["whole"]


def test_exports_hold_boards_and_all_submissions_and_no_formula(house, monkeypatch):
    key, worker = make(house)
    monkeypatch.setattr(Worker, "_judged", quick_verdict(TRUTH))
    anna, admin = house.program("submitter", "anna"), house.program("admin")
    first = send(anna, key, predictions(8), system="=cmd()", file="../../p.jsonl").json()
    send(anna, key, predictions(5), system="second")
    worker.step()
    worker.step()
    anna.post(f"/api/boards/{key}/submissions/{first['id']}/delete")
    rows = list(csv.DictReader(io.StringIO(anna.get(f"/boards/{key}/export.csv").text)))
    assert [(r["rank"], r["system"], r["accuracy"], r["accuracy_n"]) for r in rows] == [("1", "second", "0.25", "20")]
    send(anna, key, predictions(3), system="=cmd()")
    assert "'=cmd()" in anna.get(f"/boards/{key}/export.csv").text
    board = anna.get(f"/boards/{key}/export.json").json()
    assert board["standings"][0]["scores"][0]["value"] == 0.25
    packed = zipfile.ZipFile(io.BytesIO(admin.get(f"/boards/{key}/submissions.zip").content))
    assert packed.read("submissions/00001/p.jsonl") == predictions(8)
    index = [json.loads(x) for x in packed.read("index.jsonl").splitlines()]
    assert [(e["number"], e["deleted"] is not None) for e in index] == [(1, True), (2, False), (3, False)]
    assert len(packed.read("history.jsonl").splitlines()) == board["board"]["history"]["length"]
    assert not list((house.settings.root / "uploads").glob("export-*"))


def test_self_reported_boards_are_kept_apart(house):
    refereed, _ = make(house)
    admin, anna = house.program("admin"), house.program("submitter", "anna")
    made = admin.post("/api/boards", json={"name": "claims", "benchmark": "toy_labels", "kind": "self-reported"})
    claims = made.json()["id"]
    report = {"system": "wonder", "scores": {"accuracy": 1.0}, "note": "https://example.org"}
    assert anna.post(f"/api/boards/{claims}/reports", json=report).status_code == 201
    assert anna.post(f"/api/boards/{refereed}/reports", json=report).status_code == 400
    assert send(anna, claims).status_code == 400
    page = house.client("submitter", "anna").get(f"/boards/{claims}").text
    assert "Nobody has checked them" in page
    assert "wonder" in page
    assert anna.get(f"/api/boards/{refereed}").json()["standings"] == []


def test_boards_that_cannot_be_are_refused_in_one_sentence(house):
    admin = house.program("admin")
    seal(house)
    good = {"name": "b", "benchmark": "toy_labels", "sealed": "truth.json"}
    for changed, said in (
        ({"name": "No Good"}, "small letters"), ({"benchmark": "toy_lables"}, "did you mean 'toy_labels'"),
        ({"sealed": ""}, "hidden options"), ({"sealed": "../key"}, "hidden options"), ({"a_day": 0}, "a day must be"),
        ({"shown_share": 0.0}, "shown share must be"), ({"kind": "odd"}, "kind of board"),
        ({"rounding": -1}, "rounding"),
    ):  # fmt: skip
        answer = admin.post("/api/boards", json={**good, **changed})
        assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text
    assert admin.post("/api/boards", json=good).status_code == 201
    assert "choose another" in admin.post("/api/boards", json=good).json()["error"]


def test_admin_makes_closes_and_puts_into_teams_by_forms(house):
    seal(house)
    admin = house.client("admin")
    made = admin.post(
        "/boards", data={"name": "f", "benchmark": "toy_labels", "sealed": "truth.json", "options": "n=20"}
    )
    assert made.status_code == 303
    page = made.headers["location"]
    Worker(house.database, house.settings).step()
    house.account("submitter", "anna")
    assert admin.post(f"{page}/teams", data={"account": "anna", "team": "Aces"}).status_code == 303
    anna = house.client("submitter", "anna")
    sent = anna.post(f"{page}/submissions", data={"system": "x"}, files={"file": ("p.jsonl", predictions())})
    assert "Aces" in anna.get(sent.headers["location"]).text
    assert admin.post(f"{page}/close").status_code == 303
    assert "was closed on" in anna.get(page).text
    late = anna.post(f"{page}/submissions", data={"system": "y"}, files={"file": ("q.jsonl", predictions(2))})
    assert (late.status_code, "closed" in late.text) == (400, True)
    with house.database.reading() as session:
        assert session.scalar(sa.select(Board.state)) == "closed"


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.fixture
def scoring(live):
    """A house on a port with an open board and a worker; (house, key)."""
    key, worker = make(live)
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    yield live, key
    stop.set()
    thread.join()


def test_submit_checks_sends_waits_and_prints(scoring, tmp_path, monkeypatch, capsys):
    house, key = scoring
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", house.token("submitter", "anna"))
    board = f"{house.settings.url}/boards/{key}"
    (tmp_path / "p.jsonl").write_bytes(predictions(15))
    receipt = tmp_path / "receipt.json"
    assert main(["submit", str(tmp_path / "p.jsonl"), "--board", board, "--receipt", str(receipt)]) == 0
    said = capsys.readouterr()
    assert "0.75" in said.out
    assert "no fault found" in said.err
    assert "submission 1 to toy" in said.err
    assert json.loads(receipt.read_text())["number"] == 1
    (tmp_path / "bad.jsonl").write_bytes(b"{}\n" * 25)
    assert main(["submit", str(tmp_path / "bad.jsonl"), "--board", board]) == 1
    said = capsys.readouterr().err
    assert said.count("not an object") == 20
    assert "line 20:" in said
    assert "and 5 more" in said
    with house.database.reading() as session:
        assert len(session.scalars(sa.select(Entry)).all()) == 1
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(predictions(10))
    monkeypatch.setenv("ASSAY_SERVER", house.settings.url)
    assert main(["submit", str(folder), "--board", "toy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"][0]["value"] == 0.5
    assert main(["submit", str(folder), "--board", "toy", "--check"]) == 0


def test_submit_says_what_is_missing(tmp_path, monkeypatch, capsys):
    (tmp_path / "p").write_text("x")
    path = str(tmp_path / "p")
    assert main(["submit", str(tmp_path / "q"), "--board", "b"]) == 2
    assert main(["submit", path, "--board", "b"]) == 2
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", "assay_x")
    assert main(["submit", path, "--board", "b"]) == 2
    assert main(["submit", path, "--board", "http://example.org/boards/b"]) == 2
    assert main(["submit", path, "--board", "http://127.0.0.1:9/boards/b"]) == 3
    said = capsys.readouterr().err.splitlines()
    words = ["nothing at", "ASSAY_SERVER_TOKEN", "set ASSAY_SERVER", "https://", "cannot be reached"]
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said))
