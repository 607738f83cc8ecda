"""Made-up requests to every address of boards that exist, by an admin and by a submitter: never a 500."""

from __future__ import annotations

import contextlib
from collections import Counter
from unittest import SkipTest

import httpx
import pytest
import schemathesis
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from assay.server.boards import history
from assay.server.boards.tables import OPEN, Board, Entry

EXAMPLES = 60


@pytest.fixture
def boards(house, monkeypatch):
    """Keys of an open board with a submission, and of a self-reported one; clients of an admin and a submitter."""
    monkeypatch.setattr("assay.server.security.RateLimiter.take", lambda self, name: 0.0)
    admin, anna = house.program("admin"), house.program("submitter", "anna")
    made = admin.post("/api/boards", json={"name": "a", "benchmark": "toy_labels", "sealed": "t.json", "a_day": 10_000})
    claims = admin.post("/api/boards", json={"name": "b", "benchmark": "toy_labels", "kind": "self-reported"})
    with house.database.session() as session:
        session.execute(sa.update(Board).values(state=OPEN, metric="accuracy"))
    key = made.json()["id"]
    sent = anna.post(f"/api/boards/{key}/submissions", params={"system": "s", "file": "p.jsonl"}, content=b"{}")
    with house.database.session() as session:
        score = {"metric": "accuracy", "value": 0.5, "low": None, "high": None, "n": 3}
        session.execute(sa.update(Entry).values(status="scored", scores=[score]))
    return (key, claims.json()["id"]), sent.json()["id"], (admin, anna)


def fuzz(house, boards):
    keys, entry, clients = boards
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", house.app, headers={"host": "127.0.0.1"})
    bad, statuses = [], Counter()

    def send(case, key, real, client):
        if real:
            case.path_parameters |= {
                n: {"key": key, "entry_key": entry}.get(n, v) for n, v in case.path_parameters.items()
            }
        request = case.as_transport_kwargs(base_url=house.settings.url)
        request.pop("cookies", None)
        kept = {k: v for k, v in (request.pop("headers", None) or {}).items() if k.lower() == "content-type"}
        try:
            answer = client.request(headers=kept, **request)
        except (httpx.InvalidURL, UnicodeEncodeError):
            return
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            bad.append((str(request)[:400], answer.text[:200]))

    limits = settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )  # fmt: skip
    chosen = (st.sampled_from(keys), st.sampled_from([True, True, True, False]), st.sampled_from(clients))
    for result in schema.get_all_operations():
        operation = result.ok()
        if "/boards" not in operation.path and "/receipts" not in operation.path:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            with contextlib.suppress(Unsatisfiable, SkipTest):
                limits(given(operation.as_strategy(generation_mode=mode), *chosen)(send))()
    with house.database.reading() as session:
        assert all(history.broken(session, board) is None for board in session.scalars(sa.select(Board)))
    return bad, statuses


@pytest.mark.slow
def test_no_request_to_a_board_is_answered_with_a_500(house, boards):
    bad, statuses = fuzz(house, boards)
    assert bad == []
    assert statuses[200] > 50
