"""What a hostile asker or annotator can send: nothing of it stops a study or the server."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest
from people_study import BOTH, Run, question
from people_visit import Visitor, csrf

from assay.core.errors import UsageError
from assay.systems import forms


def asked(schema):
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def post(visitor, path, body):
    """A request as raw JSON, with escapes that no client library would write."""
    headers = {**visitor.headers, "Content-Type": "application/json"}
    return visitor.client.post(f"{visitor.base}/{path}", content=json.dumps(body), headers=headers)


@BOTH
def test_half_a_character_is_refused_and_does_not_stop_the_run_from_reading_answers(house):
    run = Run(house)
    run.ask([question(1), question(2)])
    visitor = run.visitor()
    key = visitor.next()["question"]
    for path in ("draft", "answer"):
        sent = post(visitor, path, {"question": key, "value": "half \ud800", "seconds": 1})
        assert sent.status_code == 422, sent.text
    assert visitor.send(key, "whole 😀")["taken"] == "counted"
    assert [a["reply"] for a in run.answers()["answers"]] == ["whole 😀"]
    assert [row["value"] for row in run.export()] == ["whole 😀"]


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": {"a": {"type": "integer", "minimum": "x"}}},
        {"properties": {"a": {"type": "string", "maxLength": "x"}}},
        {"properties": {"a": {"type": "string", "pattern": "(a+)+$"}}},
        {"properties": {"a": {"type": 5}}},
        {"properties": {"a": {"enum": 5}}},
        {"properties": 5},
        {"required": 5},
        {"required": [["a"]]},
        {"anyOf": [5]},
        {"items": 5},
        {"additionalProperties": 5},
    ],
    ids=str,
)
def test_a_schema_that_no_answer_can_be_checked_by_is_refused_when_it_is_asked(house, fields):
    run = Run(house)
    body = {"questions": [question(1, asked=asked({"type": "object", **fields}))]}
    sent = run.client.post(f"/api/people/studies/{run.key}/questions", json=body)
    assert sent.status_code == 400, sent.text
    assert "schema" in sent.json()["error"]


def test_a_schema_that_grows_without_end_is_refused_at_once():
    defs = {"d0": {"type": "string"}}
    for n in range(1, 12):
        defs[f"d{n}"] = {"anyOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 50}
    begun = time.thread_time()
    with pytest.raises(UsageError, match="schema"):
        forms.read(asked({"type": "object", "properties": {"a": {"$ref": "#/$defs/d8"}}, "$defs": defs}))
    assert time.thread_time() - begun < 2


def test_an_account_with_a_token_is_one_person_in_a_panel(house):
    run = Run(house)
    run.ask([question(1, attempt=n) for n in range(3)])
    for _ in range(2):
        program = house.program("annotator", "ann")
        visitor = Visitor(program, run.link)
        found = visitor.next()
        if found["state"] == "question":
            visitor.send(found["question"], "yes")
    overview = run.overview()
    assert (len(overview["respondents"]), overview["answered"]) == (1, 1)


def test_whoever_answers_without_an_account_keeps_form_and_place_equally_long(house):
    """A page whose token ended before its cookie could not send what stands on it."""
    run = Run(house)
    client = house.client()
    kept = {}
    page = client.get(run.link)
    joined = client.post(run.link, data={"csrf": csrf(page.text)})
    for answer in (page, joined):
        name, age = re.search(r"^([^=]+)=.*Max-Age=(\d+)", answer.headers["set-cookie"], re.IGNORECASE).groups()
        kept["guest" if name.endswith("guest") else "person"] = int(age)
    assert kept["guest"] == kept["person"]


def test_a_closed_account_answers_no_more(house):
    from assay.server.accounts import Account

    run = Run(house)
    run.ask([question(1)])
    visitor = Visitor(house.client("annotator", "ann"), run.link)
    key = visitor.next()["question"]
    with house.database.session() as session:
        session.query(Account).filter_by(name="ann").one().active = False
    # Its session is gone with it; what is left in the browser is the cookie of the study.
    assert visitor.client.get(f"{visitor.base}/next", headers=visitor.headers).status_code == 403
    guest = csrf(visitor.client.get("/sign-in").text)
    body = {"question": key, "value": "yes", "seconds": 1}
    sent = visitor.client.post(f"{visitor.base}/answer", json=body, headers={"X-CSRF-Token": guest})
    assert sent.status_code == 403
    assert run.answers()["count"] == 0


def test_checks_are_answered_in_their_order_only(house):
    item = {"messages": [{"role": "user", "content": "Say x."}], "expected": "x"}
    run = Run(house, practice=[item] * 3)
    run.ask([question(1)])
    visitor = run.visitor()
    assert post(visitor, "answer", {"question": "practice-2", "value": "x"}).status_code == 400
    for n in range(3):
        assert visitor.next()["question"] == f"practice-{n}"
        visitor.send(f"practice-{n}", "x")
    assert visitor.next()["state"] == "question"


def test_studies_of_others_do_not_push_ones_own_out_of_the_list(house, monkeypatch):
    from assay.server.people import routes

    monkeypatch.setattr(routes, "JOINED", 2)
    Run(house, run="mine", name="ann", person="x")
    for n in range(3):
        Run(house, run=f"r{n}", name="other", person="y")
    listed = house.program("submitter", "ann").get("/api/people/studies").json()
    assert [s["run"] for s in listed] == ["mine"]


def test_agreement_on_a_large_grouping_looks_at_as_many_pairs_as_it_can_bear(house):
    items = [f"t{n}" for n in range(120)]
    run = Run(house)
    run.ask([question(1, attempt=n, asked=forms.grouping(items)) for n in range(2)])
    for name in ("x", "y"):
        visitor = run.visitor()
        visitor.send(visitor.next()["question"], {"groups": {i: f"{name}{int(i[1:]) % 3}" for i in items}})
    (row,) = run.overview()["agreement"]
    assert (row["items"], row["alpha"], row["same"]) == (2000, 1.0, 1.0)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_asking_more_does_not_hold_up_an_answer(house):
    """The two lock rows of one study; each waiting for the other would end one of them with an error."""
    from assay.server.people import studies
    from assay.server.people.tables import Study

    run = Run(house)
    run.ask([question(1), question(2)])
    visitor = run.visitor()
    key = visitor.next()["question"]
    with house.database.session() as session:
        study = session.query(Study).one()
        studies.add_questions(session, study, [question(3)])
        sending = threading.Thread(target=visitor.send, args=(key, "yes"), daemon=True)
        sending.start()
        sending.join(20)
        assert not sending.is_alive()
    assert run.answers()["count"] == 1
