"""What holds at a board whoever scores: the step, the part that decides, ranks, the history, what is sealed."""

from __future__ import annotations

import json
import os
import sys

import pytest
import sqlalchemy as sa
from board_desk import TRUTH, Desk, N

from assay.core.errors import UsageError
from assay.server import accounts
from assay.server.boards import history, submissions
from assay.server.boards.tables import (
    BROKEN,
    CLOSED,
    OPEN,
    REFUSED,
    SCORED,
    Board,
    Entry,
)
from assay.server.boards.worker import sealed_folder
from assay.server.settings import Settings

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


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
