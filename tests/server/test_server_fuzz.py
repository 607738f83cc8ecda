"""Whatever is sent to any route, the answer is no 5xx, and it carries the policy."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from unittest import SkipTest

import httpx2
import pytest
import schemathesis
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from toy_runs import bare_run, record

from assay.server import accounts

QUICK, LONG = 5, 60
UNHURRIED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
OWN = ("authorization", "cookie", "host")


@pytest.fixture
def busy(house, monkeypatch):
    """A house with a run, an account of each role, and no limit on requests; who asks is an admin."""
    store = bare_run(house.settings.runs / "x1", 8, status="finished", scores=["met"], groups=["n_items"])
    with store.journal() as journal:
        for i in range(8):
            journal.write([record(i, random.Random(i))])
    store.compact()
    for role in accounts.ROLES:
        house.account(role)
    monkeypatch.setattr("assay.server.security.RateLimiter.take", lambda self, name: 0.0)
    monkeypatch.setattr("assay.server.security.RateLimiter.wait", lambda self, name: 0.0)
    # Hashing a password takes 50 ms, and its argument is never looked into.
    monkeypatch.setattr(accounts, "_hasher", lambda: Quick)
    monkeypatch.setattr(accounts, "_nobody", lambda: Quick.hash(""))  # else kept for later tests
    return house


class Quick:
    @staticmethod
    def hash(password):
        return "quick" + password[:3]

    @staticmethod
    def verify(stored, password):
        from argon2.exceptions import VerifyMismatchError

        raise VerifyMismatchError


def fuzz(house, examples):
    """Send what the OpenAPI description allows, and what it does not, to every operation.

    Returns the answers that are 5xx or lack the policy, and how often each status came.
    """
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", house.app, headers={"host": "127.0.0.1"})
    admin, program, known = house.client("admin"), house.program("admin"), keys(house)
    bad, statuses = [], Counter()

    def send(case, real, by_browser):
        if real:
            case.path_parameters |= {name: known[name] for name in case.path_parameters if name in known}
        request = case.as_transport_kwargs(base_url=house.settings.url)
        headers = {k: v for k, v in (request.pop("headers", None) or {}).items() if k.lower() not in OWN}
        request.pop("cookies", None)
        client = admin if by_browser else program
        try:
            answer = client.request(headers=headers, **request)
        except (httpx2.InvalidURL, UnicodeEncodeError):
            # The client cannot put it on the wire.
            return
        statuses[answer.status_code] += 1
        if answer.status_code >= 500 or "content-security-policy" not in answer.headers:
            bad.append((str(request)[:400], answer.status_code, answer.text[:200]))

    limits = settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=UNHURRIED,
    )  # fmt: skip
    for result in schema.get_all_operations():
        operation = result.ok()
        # A path alone is text, and no text is against its description.
        breakable = [GenerationMode.NEGATIVE] if operation.query or operation.body else []
        for mode in [GenerationMode.POSITIVE, *breakable]:
            cases = operation.as_strategy(generation_mode=mode)
            # Some operations take nothing at all.
            with contextlib.suppress(Unsatisfiable, SkipTest):
                limits(given(cases, st.booleans(), st.booleans())(send))()
    return bad, statuses


def keys(house):
    """Values of path parameters that name something."""
    with house.database.reading() as session:
        key = session.scalar(sa.select(accounts.Account.key).where(accounts.Account.name == "reader"))
    return {"run": "x1", "key": key, "name": "judged/none.png"}


def test_no_request_that_is_made_up_ends_in_a_500(busy):
    bad, statuses = fuzz(busy, QUICK)
    assert bad == []
    assert statuses.total() > 100
    # Not all of it is turned away at the door.
    assert {200, 404, 422} <= set(statuses)


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_no_request_of_many_ends_in_a_500(busy):
    bad, statuses = fuzz(busy, LONG)
    assert bad == []
    assert statuses.total() > 1500
    assert {200, 303, 400, 404, 422} <= set(statuses)
