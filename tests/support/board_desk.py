"""A board of ``toy_labels`` with a truth: made and sent to over the API, or (`Desk`) from inside."""

from __future__ import annotations

import json

import msgspec
import sqlalchemy as sa

from assay.server import accounts
from assay.server.boards import history, submissions
from assay.server.boards.submissions import sealed_folder
from assay.server.boards.tables import (
    Board,
    Entry,
    History,
    Job,
)
from assay.server.boards.worker import Worker
from assay.server.database import open_database

N = 20
TRUTH = {f"s{i}": str(i * 5 % 7 % 2) for i in range(N)}


def seal(house):
    folder = sealed_folder(house.settings)
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, value in (("truth.json", {"truth": "./labels.json"}), ("labels.json", TRUTH)):
        (folder / name).write_text(json.dumps(value))
        (folder / name).chmod(0o600)


def make(house, name="toy", **rules):
    """A board that is open; (key, worker)."""
    seal(house)
    made = house.program("admin").post(
        "/api/boards", json={"name": name, "benchmark": "toy_labels", "sealed": "truth.json", **rules}
    )
    assert made.status_code == 201, made.text
    worker = Worker(house.database, house.settings)
    worker.step()
    return made.json()["id"], worker


def predictions(right=N):
    rows = [{"id": f"s{i}", "label": TRUTH[f"s{i}"] if i < right else "x"} for i in range(N)]
    return "\n".join(map(json.dumps, rows)).encode()


def send(client, key, content=None, system="guess", file="p.jsonl"):
    return client.post(
        f"/api/boards/{key}/submissions", params={"system": system, "file": file}, content=content or predictions()
    )


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
