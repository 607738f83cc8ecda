"""A study as a run sees it: made, asked, read, over the API."""

from __future__ import annotations

import datetime as dt
import json

import pytest
import sqlalchemy as sa
from people_visit import Visitor

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


def question(n, attempt=0, asked=None, task="t", text=None, **more):
    return {
        "id": f"{task}{n}.{attempt}", "task": task, "sample": f"s{n}", "attempt": attempt, "index": n,
        "messages": [{"role": "user", "content": text or f"Question {n}?"}], "response_format": asked, **more,
    }  # fmt: skip


class Run:
    """A run's side of a study."""

    def __init__(self, house, *, run="run-1", person="", name=None, **settings):
        self.house = house
        self.client = house.program("submitter", name)
        made = self.client.post("/api/people/studies", json={"run": run, "person": person, "settings": settings})
        assert made.status_code == 200, made.text
        self.key, self.link = made.json()["study"], made.json()["link"]

    def ask(self, questions):
        sent = self.client.post(f"/api/people/studies/{self.key}/questions", json={"questions": questions})
        assert sent.status_code == 200, sent.text
        return sent.json()["questions"]

    def answers(self, after=0):
        return self.client.get(f"/api/people/studies/{self.key}/answers?after={after}").json()

    def overview(self):
        return self.client.get(f"/api/people/studies/{self.key}").json()

    def export(self):
        return [
            json.loads(line) for line in self.client.get(f"/api/people/studies/{self.key}/export").text.splitlines()
        ]

    def close(self):
        assert self.client.post(f"/api/people/studies/{self.key}/close").status_code == 200

    def visitor(self):
        return Visitor(self.house.client(), self.link)

    def let_leases_run_out(self):
        from assay.server.people.tables import Slot

        with self.house.database.session() as session:
            past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
            session.execute(sa.update(Slot).where(Slot.lease_until.is_not(None)).values(lease_until=past))
