"""Studies: leases, overlap, plans, drafts, late answers, agreement, export; on SQLite and on PostgreSQL."""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
from collections import Counter, defaultdict

import pytest
from people_study import BOTH, Run, question
from people_visit import Visitor, csrf, text_of

from assay.core.stats.agreement import krippendorff_alpha
from assay.systems import forms

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()


@BOTH
def test_questions_come_in_order_and_each_answer_is_what_a_model_would_have_written(house):
    run = Run(house, person="anna")
    asked = [None, forms.choice(["a", "b"]), forms.rating(1, 5)]
    keys = run.ask([question(n, asked=a) for n, a in enumerate(asked)])
    anna = run.visitor()
    found = anna.next()
    assert (found["state"], text_of(found), found["progress"]) == ("question", "Question 0?", {"done": 0, "total": 3})
    assert found["form"] == {"kind": "text", "lines": 4}
    found = anna.send(found["question"], "Free <b>text</b>", 1.25)["next"]
    assert found["form"]["options"] == [{"id": "a"}, {"id": "b"}]
    found = anna.send(found["question"], {"choice": "b"})["next"]
    assert anna.send(found["question"], {"rating": 4})["next"]["state"] == "wait"
    got = {a["question"]: a for a in run.answers()["answers"]}
    assert [got[keys[f"t{n}.0"]]["reply"] for n in range(3)] == ["Free <b>text</b>", '{"choice": "b"}', '{"rating": 4}']
    assert [got[keys[f"t{n}.0"]]["position"] for n in range(3)] == [1, 2, 3]
    assert got[keys["t0.0"]]["seconds"] == 1.25
    run.close()
    assert anna.next()["state"] == "done"


@BOTH
def test_putting_the_same_questions_again_finds_them_and_their_answers(house):
    run = Run(house, person="anna")
    first = run.ask([question(1), question(2)])
    anna = run.visitor()
    anna.send(anna.next()["question"], "yes")
    again = Run(house, person="anna")
    assert again.key == run.key
    assert again.ask([question(1), question(2)]) == first
    assert again.answers()["count"] == 1
    # Whoever has the link goes on where they were, on another device too.
    assert text_of(again.visitor().next()) == "Question 2?"
    refused = run.client.post("/api/people/studies", json={"run": "run-1", "person": "bob"})
    assert refused.status_code == 400
    assert "asks 'anna' already" in refused.json()["error"]


@BOTH
def test_a_panel_gives_each_attempt_to_somebody_else_and_nobody_a_sample_twice(house):
    run = Run(house)
    run.ask([question(n, attempt) for n in range(4) for attempt in range(3)])
    people = [run.visitor() for _ in range(5)]
    for _ in range(4):
        for visitor in people:
            found = visitor.next()
            if found["state"] == "question":
                visitor.send(found["question"], "ok")
    rows = run.export()
    assert len(rows) == 12
    assert {r["kind"] for r in rows} == {"answer"}
    assert set(Counter((r["sample"], r["attempt"]) for r in rows).values()) == {1}
    assert set(Counter((r["sample"], r["respondent"]) for r in rows).values()) == {1}
    assert all(v.next()["state"] == "wait" for v in people)


def test_one_person_asked_for_several_attempts_answers_all_samples_once_before_any_again(house):
    run = Run(house, person="anna")
    run.ask([question(n, attempt) for n in range(3) for attempt in range(2)])
    anna = run.visitor()
    assert anna.next()["progress"]["total"] == 6
    assert _answer_open(anna) == 6
    assert [(r["attempt"], r["sample"]) for r in run.export()] == [(a, f"s{n}") for a in range(2) for n in range(3)]


@BOTH
def test_many_people_at_once_never_get_the_same_slot_and_no_answer_is_lost_or_doubled(house):
    run = Run(house)
    run.ask([question(n, attempt) for n in range(12) for attempt in range(3)])
    taken, faults, lock = [], [], threading.Lock()
    start = threading.Barrier(6)

    def work():
        try:
            visitor = run.visitor()
            start.wait()
            found = visitor.next()
            while found["state"] == "question":
                with lock:
                    taken.append(found["question"])
                said = visitor.send(found["question"], "ok")
                assert said["taken"] == "counted"
                found = said["next"]
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(taken) == len(set(taken)) == 36
    rows = run.export()
    assert len({(r["sample"], r["attempt"]) for r in rows}) == len(rows) == 36
    assert set(Counter((r["sample"], r["respondent"]) for r in rows).values()) == {1}


@BOTH
def test_two_windows_of_one_person_show_one_question(house):
    run = Run(house)
    run.ask([question(n, attempt) for n in range(3) for attempt in range(2)])
    one = run.visitor()
    other = Visitor(one.client, run.link)
    seen, start = [], threading.Barrier(2)

    def look(visitor):
        start.wait()
        seen.append(visitor.next()["question"])

    threads = [threading.Thread(target=look, args=(v,)) for v in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1
    assert len(run.overview()["respondents"]) == 1


@BOTH
def test_an_answer_sent_twice_counts_once(house):
    run = Run(house, person="anna")
    run.ask([question(1)])
    anna = run.visitor()
    key = anna.next()["question"]
    assert anna.send(key, "first")["taken"] == "counted"
    assert anna.send(key, "first")["taken"] == "again"
    assert [a["reply"] for a in run.answers()["answers"]] == ["first"]


@BOTH
def test_a_lease_that_ran_out_gives_the_slot_away_and_the_late_answer_a_free_slot_or_a_place_apart(house):
    run = Run(house)
    run.ask([question(1, attempt) for attempt in range(2)])
    slow, quick, third = run.visitor(), run.visitor(), run.visitor()
    held = slow.next()["question"]
    run.let_leases_run_out()
    assert quick.next()["question"] == held
    # Half a minute too late, but the other attempt is free: nothing is lost.
    assert slow.send(held, "slow")["taken"] == "counted"
    assert quick.send(held, "quick")["taken"] == "counted"
    assert third.next()["state"] == "wait"
    rows = run.export()
    assert {(r["attempt"], r["reply"]) for r in rows} == {(0, "quick"), (1, "slow")}

    run.ask([question(2)])
    late = run.visitor()
    held = late.next()["question"]
    run.let_leases_run_out()
    assert third.next()["question"] == held
    third.send(held, "in time")
    assert late.send(held, "too late")["taken"] == "late"
    assert run.answers()["count"] == 3
    assert [(r["kind"], r["attempt"]) for r in run.export() if r["reply"] == "too late"] == [("late", None)]
    assert run.overview()["late"] == 1


@BOTH
def test_a_lease_that_ran_out_stays_with_its_holder_while_nobody_else_comes(house):
    run = Run(house)
    run.ask([question(1)])
    only = run.visitor()
    held = only.next()["question"]
    run.let_leases_run_out()
    assert only.next()["question"] == held
    run.let_leases_run_out()
    assert only.send(held, "fine")["taken"] == "counted"


@BOTH
def test_drafts_come_back_with_the_seconds_until_then_and_renew_the_lease(house):
    run = Run(house)
    run.ask([question(1)])
    visitor, other = run.visitor(), run.visitor()
    key = visitor.next()["question"]
    assert visitor.send(key, "half an ans", 1.5, to="draft") == {"yours": True}
    found = visitor.next()
    assert (found["draft"], found["seconds"]) == ("half an ans", 1.5)
    run.let_leases_run_out()
    visitor.send(key, "half an answ", 1.6, to="draft")
    assert other.next()["state"] == "wait"
    run.let_leases_run_out()
    assert other.next()["question"] == key
    assert visitor.send(key, "half an answe", 1.7, to="draft") == {"yours": False}


def test_seconds_are_never_more_than_those_since_the_question_was_shown(house):
    run = Run(house, person="anna")
    run.ask([question(1)])
    anna = run.visitor()
    anna.send(anna.next()["question"], "x", 5000.0)
    assert run.answers()["answers"][0]["seconds"] < 60


def test_the_calls_of_one_trial_are_all_answered_by_who_answered_the_first(house):
    run = Run(house)
    run.ask([question(1, 0), question(1, 1)])
    one, other = run.visitor(), run.visitor()
    one.send(one.next()["question"], "first turn")
    other.next()
    run.ask([question(1, 0, text="And then?") | {"id": "turn2"}])
    assert text_of(one.next()) == "And then?"
    assert run.visitor().next()["state"] == "wait"


@BOTH
def test_a_fixed_plan_gives_equal_shares_and_every_two_people_samples_in_common(house):
    run = Run(house, people=5, seed=3)
    run.ask([question(n, attempt) for n in range(20) for attempt in range(2)])
    people = [run.visitor() for _ in range(5)]
    shares = [_answer_open(v) for v in people]
    assert shares == [8] * 5
    together = defaultdict(set)
    for r in run.export():
        together[r["sample"]].add(r["respondent"])
    assert all(len(who) == 2 for who in together.values())
    assert len({frozenset(who) for who in together.values()}) == 10
    late = house.client()
    path = run.link.partition(house.settings.url)[2]
    refused = late.post(path, data={"csrf": csrf(late.get(path).text)})
    assert refused.status_code == 400
    assert "for 5 people" in refused.text


def _answer_open(visitor):
    count, found = 0, visitor.next()
    while found["state"] == "question":
        found = visitor.send(found["question"], "ok")["next"]
        count += 1
    return count


@pytest.mark.parametrize(("plan", "second"), [("spread", "Question 1?"), ("fill", "Question 0?")])
def test_spread_gives_every_sample_its_first_answer_before_any_gets_its_second_and_fill_finishes_samples(
    house, plan, second
):
    run = Run(house, plan=plan)
    run.ask([question(n, attempt) for n in range(3) for attempt in range(2)])
    assert text_of(run.visitor().next()) == "Question 0?"
    assert text_of(run.visitor().next()) == second


def test_a_random_order_is_each_persons_own_and_stays(house):
    run = Run(house, order="random")
    run.ask([question(n, attempt) for n in range(12) for attempt in range(2)])
    orders = []
    for _ in range(2):
        visitor, seen = run.visitor(), []
        found = visitor.next()
        assert visitor.next()["question"] == found["question"]
        while found["state"] == "question":
            seen.append(text_of(found))
            found = visitor.send(found["question"], "ok")["next"]
        orders.append(seen)
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1] != sorted(orders[1])


def test_nobody_is_asked_more_than_agreed(house):
    run = Run(house, per_person=2)
    run.ask([question(n) for n in range(5)])
    visitor = run.visitor()
    assert visitor.next()["progress"] == {"done": 0, "total": 2}
    assert _answer_open(visitor) == 2
    assert visitor.next()["state"] == "done"


def test_practice_comes_first_with_feedback_and_attention_in_between_without(house):
    item = {"messages": [{"role": "user", "content": "Say b."}], "response_format": forms.choice(["a", "b"])}
    run = Run(
        house, practice=[item | {"expected": {"choice": "b"}, "feedback": "It said b."}],
        attention=[item | {"expected": {"choice": "b"}}, item | {"expected": {"choice": "a"}}], every=2,
    )  # fmt: skip
    run.ask([question(n) for n in range(5)])
    visitor = run.visitor()
    found = visitor.next()
    assert (found["state"], text_of(found)) == ("practice", "Say b.")
    said = visitor.send(found["question"], {"choice": "a"})
    assert (said["taken"], said["passed"], said["expected"], said["feedback"]) == (
        "practice", False, {"choice": "b"}, "It said b.",
    )  # fmt: skip
    seen, found = [], said["next"]
    while found["state"] == "question":
        seen.append(text_of(found))
        said = visitor.send(found["question"], {"choice": "b"} if text_of(found) == "Say b." else "ok")
        assert "passed" not in said
        found = said["next"]
    assert seen == ["Question 0?", "Question 1?", "Say b.", "Question 2?", "Question 3?", "Say b.", "Question 4?"]
    who = run.overview()["respondents"][0]
    assert (who["practice"], who["attention_passed"], who["attention_failed"], who["answers"]) == (1, 1, 1, 5)
    assert [a["attention_failed"] for a in run.answers()["answers"]] == [1] * 5
    assert Counter(r["kind"] for r in run.export()) == {"answer": 5, "attention": 2, "practice": 1}


def test_agreement_is_that_of_the_core_while_the_study_runs(house):
    run = Run(house)
    run.ask([question(n, attempt, forms.rating(1, 5, unsure=True)) for n in range(4) for attempt in range(2)])
    given = [[1, 2, 5, 4], [1, 3, 4, None]]
    for ratings in given:
        visitor = run.visitor()
        for rating in ratings:
            visitor.send(visitor.next()["question"], {"rating": rating})
    (row,) = run.overview()["agreement"]
    assert row["alpha"] == pytest.approx(krippendorff_alpha([r[:3] for r in given], level="interval"))
    assert (row["task"], row["form"], row["items"], row["samples"], row["people"]) == ("t", "rating", 3, 3, 2)
    assert row["low"] <= row["alpha"] <= row["high"]
    assert row["same"] == pytest.approx(1 / 3)
    page = house.client("submitter").get(f"/people/{run.key}/overview")
    assert page.status_code == 200
    assert "Krippendorff" in page.text


def test_an_export_holds_pseudonyms_and_no_name(house):
    run = Run(house)
    run.ask([question(1)])
    client = house.client("annotator", "Maria Muster")
    joined = client.post(f"/people/{run.key}/join")
    assert joined.status_code == 303
    key = client.get(f"/people/{run.key}/next").json()["question"]
    sent = client.post(f"/people/{run.key}/answer", json={"question": key, "value": "hello", "seconds": 1})
    assert sent.json()["taken"] == "counted"
    text = run.client.get(f"/api/people/studies/{run.key}/export").text
    assert "hello" in text
    assert "Maria" not in text
    assert "Muster" not in text
    assert run.export()[0]["respondent"].startswith("p-")


def test_a_person_by_name_answers_with_the_account_of_that_name_and_nobody_else_does(house):
    run = Run(house, person="Anna")
    run.ask([question(1)])
    anna, bob = house.client("annotator", "anna"), house.client("annotator", "bob")
    assert "Begin" in anna.get("/people").text
    assert anna.post(f"/people/{run.key}/join").status_code == 303
    assert "Begin" not in bob.get("/people").text
    assert bob.post(f"/people/{run.key}/join").status_code == 403
    assert bob.get(f"/people/{run.key}/next").status_code == 403


def test_only_who_is_part_of_a_study_sees_its_questions_pictures_and_answers(house):
    run = Run(house, name="owner")
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    run.ask([question(1, messages=[{"role": "user", "content": [{"type": "text", "text": "What?"}, picture]}])])
    visitor = run.visitor()
    parts = visitor.next()["messages"][0]["parts"]
    path = f"/people/{run.key}/media/{parts[1]['medium']}"
    shown = visitor.client.get(path)
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
    assert shown.content == base64.b64decode(PNG)
    stranger = house.program("submitter", "stranger")
    for client in (house.client(), stranger, house.client("reader")):
        assert client.get(path).status_code in (401, 403)
        assert client.get(f"/people/{run.key}/next").status_code in (401, 403)
        assert client.get(f"/api/people/studies/{run.key}/answers").status_code in (401, 403, 404)
        assert client.get(f"/api/people/studies/{run.key}/export").status_code in (401, 403, 404)
    assert house.client().get(f"{run.link.partition(house.settings.url)[2][:-1]}~").status_code == 404
    cookie = next(c for c in visitor.client.cookies.jar if "-person-" in c.name)
    forged = house.client()
    forged.cookies.set(cookie.name, cookie.value[:-2] + "xx")
    assert forged.get(f"/people/{run.key}/next").status_code == 403


def test_a_links_secret_does_not_get_into_logs_and_a_class_at_one_address_has_requests_enough(house):
    from assay.server.security import without_secrets
    from assay.server.settings import Limits

    house = type(house)(dataclasses.replace(house.settings, limits=Limits(requests_a_minute=20)))
    run = Run(house)
    run.ask([question(1, attempt) for attempt in range(2)])
    secret = run.link.rpartition("/")[2].removeprefix("invite_")
    assert secret[-14:] not in without_secrets(f"GET {run.link} 200")
    one, other = run.visitor(), run.visitor()
    seen = [one.client.get(f"{one.base}/next").status_code for _ in range(40)]
    assert seen[:15] == [200] * 15
    assert seen[-1] == 429
    assert other.client.get(f"{other.base}/next").status_code == 200


def test_a_closed_study_hands_nothing_out_takes_what_is_in_hand_and_opens_again(house):
    run = Run(house)
    run.ask([question(1), question(2)])
    visitor, owner = run.visitor(), house.client("submitter")
    key = visitor.next()["question"]
    assert owner.post(f"/people/{run.key}/state", data={"open": "no"}).status_code == 303
    assert visitor.next()["state"] == "done"
    assert visitor.send(key, "was at it")["taken"] == "counted"
    assert owner.post(f"/people/{run.key}/state", data={"open": "yes"}).status_code == 303
    assert visitor.next()["state"] == "question"
    assert house.client("annotator").post(f"/people/{run.key}/state", data={"open": "no"}).status_code == 403
    entries = house.client("admin").get("/admin/audit").text
    assert "study closed" in entries
    assert "study opened" in entries


def test_answers_need_the_csrf_token_and_no_foreign_page_can_send_them(house):
    run = Run(house)
    run.ask([question(1)])
    visitor = run.visitor()
    key = visitor.next()["question"]
    body = {"question": key, "value": "forged", "seconds": 1}
    assert visitor.client.post(f"{visitor.base}/answer", json=body).status_code == 403
    foreign = visitor.headers | {"Origin": "https://evil.example"}
    assert visitor.client.post(f"{visitor.base}/answer", json=body, headers=foreign).status_code == 403
    assert run.answers()["count"] == 0


def _part(kind, **content):
    return {"messages": [{"role": "user", "content": [{"type": kind, kind: content}]}]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"messages": [{"role": "king", "content": "x"}]}, "has no role"),
        (_part("video"), "'video'"),
        (_part("image_url", url="http://x/y.png"), "is an address"),
        (_part("image_url", url="data:image/svg+xml;base64,AA=="), "svg"),
        (_part("input_audio", data="AA==", format="aiff"), "'aiff'"),
        (_part("input_audio", data="!!", format="wav"), "base64"),
        ({"messages": []}, "at least 1"),
        ({"response_format": {"type": "poem"}}, "'poem'"),
        ({"response_format": forms.rating(1, 5, part=0)}, "points at part 0"),
        ({"attempt": -1}, "attempt"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_shown_is_refused_in_a_sentence(house, change, said):
    run = Run(house)
    sent = run.client.post(f"/api/people/studies/{run.key}/questions", json={"questions": [question(1) | change]})
    assert sent.status_code in (400, 422)
    assert said in sent.json()["error"]


@pytest.mark.parametrize("value", [{"choice": "c"}, None, "a", {"choice": "a", "x": 1}, [1], float("nan")])
def test_an_answer_that_is_not_of_the_form_is_refused_and_the_question_stays(house, value):
    run = Run(house)
    run.ask([question(1, asked=forms.choice(["a", "b"]))])
    visitor = run.visitor()
    key = visitor.next()["question"]
    body = json.dumps({"question": key, "value": value, "seconds": 1})
    headers = visitor.headers | {"Content-Type": "application/json"}
    sent = visitor.client.post(f"{visitor.base}/answer", content=body, headers=headers)
    assert sent.status_code == 422
    assert visitor.next()["question"] == key


def test_a_question_that_was_not_put_to_somebody_takes_no_answer_of_theirs(house):
    run = Run(house)
    keys = run.ask([question(1), question(2)])
    visitor = run.visitor()
    visitor.next()
    for key in (keys["t2.0"], "nonsense", "practice-0", "attention-7"):
        body = {"question": key, "value": "x", "seconds": 1}
        assert visitor.client.post(f"{visitor.base}/answer", json=body, headers=visitor.headers).status_code == 400
    assert run.answers()["count"] == 0
