"""Made-up requests to every address of a study that exists, by its owner and by somebody in it: never a 500."""

from __future__ import annotations

import contextlib
from collections import Counter
from unittest import SkipTest

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from people_visit import Visitor
from schemathesis import GenerationMode

from assay.systems import forms

QUICK, LONG = 1, 60
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def study(house, monkeypatch):
    """The owner's program, somebody in the study, the study's key."""
    monkeypatch.setattr("assay.server.security.RateLimiter.take", lambda self, name: 0.0)
    owner = house.program("submitter")
    made = owner.post("/api/people/studies", json={"run": "r"}).json()
    asked = [None, forms.rating(1, 5), forms.ranking(["a", "b"]), forms.grouping(["a", "b"]), forms.spans("abc", ["x"])]
    questions = [
        {"id": str(n), "task": "t", "sample": str(n), "attempt": a, "index": n, "response_format": f,
         "messages": [{"role": "user", "content": "?"}]}
        for n, f in enumerate(asked) for a in range(60)
    ]  # fmt: skip
    assert (
        owner.post(f"/api/people/studies/{made['study']}/questions", json={"questions": questions}).status_code == 200
    )
    return owner, Visitor(house.client(), made["link"]), made["study"]


def fuzz(house, study, examples):
    owner, visitor, key = study
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", house.app, headers={"host": "127.0.0.1"})
    bad, statuses = [], Counter()

    def send(case, real, by_visitor):
        if real:
            case.path_parameters |= {name: key for name in case.path_parameters if name == "key"}
        request = case.as_transport_kwargs(base_url=house.settings.url)
        request.pop("cookies", None)
        headers = {k: v for k, v in (request.pop("headers", None) or {}).items() if "json" in v}
        client = visitor.client if by_visitor else owner
        try:
            answer = client.request(headers=headers | (visitor.headers if by_visitor else {}), **request)
        except (httpx.InvalidURL, UnicodeEncodeError):
            return
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            bad.append((str(request)[:400], answer.text[:200]))

    limits = settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )  # fmt: skip
    for result in schema.get_all_operations():
        operation = result.ok()
        if "/people" not in operation.path:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            with contextlib.suppress(Unsatisfiable, SkipTest):
                limits(given(operation.as_strategy(generation_mode=mode), st.booleans(), st.booleans())(send))()

    @limits
    @given(JSON, st.sampled_from(["draft", "answer"]))
    def answers(value, to):
        found = visitor.next()
        body = {"question": found.get("question", "x"), "value": value, "seconds": 1}
        try:
            answer = visitor.client.post(f"{visitor.base}/{to}", json=body, headers=visitor.headers)
        except (UnicodeEncodeError, ValueError):
            return
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            bad.append((str(body), answer.text[:200]))

    answers()
    return bad, statuses


def test_no_made_up_request_to_a_study_ends_in_a_500(house, study):
    bad, statuses = fuzz(house, study, QUICK)
    assert bad == []
    assert {200, 422} <= set(statuses)


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_no_made_up_request_to_a_study_ends_in_a_500_however_many(house, study):
    bad, _ = fuzz(house, study, LONG)
    assert bad == []
