"""Answers: reading replies, annotation files, Argilla records, study folders; what is wrong is named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from assay.core.errors import DataError, DataFaults, UsageError
from assay.representations.hume import exchange, items, methods, questions, registry, standin
from assay.systems import forms

STUDY = standin.study().pairs
LABELS = STUDY["HUMEToxicConversationsClassification|default"]
RATED = STUDY["HUMESTS12|default"]
QUERIES = STUDY["HUMENews21InstructionReranking|default"]
GROUPS = STUDY["HUMESIB200ClusteringS2S|arb_Arab"]
ALL = (LABELS, RATED, QUERIES, GROUPS)


@pytest.mark.parametrize("pair", ALL, ids=lambda p: p.spec.kind)
def test_a_form_filled_in_reads_back_as_the_answer(pair):
    item = pair.items[0]
    answer = methods.noisy(pair, item, 0.0, np.random.default_rng(0))
    asked = forms.read(questions.form(pair, item))
    reply = asked.reply(methods.wrapped(pair, answer))
    assert questions.read(pair, item, reply)[:2] == (answer, "form")
    assert questions.read(pair, item, {"answer": answer})[:2] == (answer, "given")
    assert pair.spec.instruction in questions.messages(pair, item)[0]["content"]


@pytest.mark.parametrize(
    ("pair", "reply", "answer"),
    [
        (LABELS, "Toxic.", "toxic"),
        (LABELS, "I would say it is NOT TOXIC", "not toxic"),
        (LABELS, "<think>toxic?</think> not toxic", "not toxic"),
        (LABELS, "toxic or not toxic", None),
        (LABELS, "hello", None),
        (RATED, "My rating is 4/5", 4),
        (RATED, "3.5", 3.5),
        (RATED, "7", None),
        (RATED, '{"rating": "2"}', 2),
        (QUERIES, "[1, 0, 0, 1, 0, 0, 0]", [1, 0, 0, 1, 0, 0, 0]),
        (
            QUERIES,
            "\n".join(f"d{n}: {'relevant' if n == 2 else 'not relevant'}" for n in range(1, 8)),
            [0, 1, *[0] * 5],
        ),
        (QUERIES, "[1, 0, 0]", None),
        (GROUPS, "\n".join(f"t{n}: group {n % 3}" for n in range(1, 31)), [f"group {n % 3}" for n in range(1, 31)]),
        (GROUPS, "t1: a", None),
    ],
)
def test_plainer_replies_are_read_too(pair, reply, answer):
    reading = questions.read(pair, pair.items[0], reply)
    assert reading.value == answer
    assert reading.how == ("unread" if answer is None else reading.how)


def test_a_refusal_is_no_wrong_answer():
    assert questions.read(LABELS, LABELS.items[0], "I'm sorry, but I can't assist with that.").how == "refused"
    assert questions.read(LABELS, LABELS.items[0], "").how == "unread"
    assert questions.read(LABELS, LABELS.items[0], {"answer": None}).how == "missing"


@pytest.mark.parametrize(
    ("pair", "answer", "words"),
    [
        (LABELS, "rude", "no label"),
        (RATED, 6, "from 0 to 5"),
        (RATED, True, "from 0 to 5"),
        (QUERIES, [1, 0], "each of 7 documents, and has 2"),
        (QUERIES, [2, 0, 0, 0, 0, 0, 0], "judgements"),
        (GROUPS, ["x"] * 29, "each of 30 texts"),
    ],
)
def test_given_answers_that_do_not_fit_are_refused(pair, answer, words):
    with pytest.raises(DataError, match=words):
        questions.checked(pair, pair.items[0], answer)


def test_codes_of_labels_become_their_names():
    spec = registry.tasks()["HUMESIB200ClusteringS2S"]
    assert spec.label(3, "here") == "politics" == spec.label("politics", "here")
    with pytest.raises(DataError, match="here: 9 is no label"):
        spec.label(9, "here")


def line(pair, number=0, who="A", **more):
    item = pair.items[number]
    answer = methods.noisy(pair, item, 0.0, np.random.default_rng(0))
    row = {"task": pair.spec.name, "subset": pair.subset, "item": item.id, "annotator": who, "kind": "human"}
    return {**row, "answer": answer, "seconds": 3.5, **more}


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_annotations_go_out_and_come_back(tmp_path):
    rows = [line(pair, who=who) for pair in ALL for who in ("anna@example.org", "ben")]
    found = exchange.read_annotations(write(tmp_path / "a.jsonl", rows), ALL)
    assert [a.answer for a in found] == [row["answer"] for row in rows]
    exchange.write_annotations(tmp_path / "b.jsonl", found)
    assert "anna" not in (tmp_path / "b.jsonl").read_text(encoding="utf-8")
    again = exchange.read_annotations(tmp_path / "b.jsonl", ALL)
    assert {a.annotator for a in again} == {"annotator_1", "annotator_2"}
    assert [a.answer for a in again] == [a.answer for a in found]


def test_drafts_stay_out_of_json_lines(tmp_path):
    rows = [line(LABELS), line(LABELS, 1, status="draft"), line(LABELS, 2, status="discarded")]
    assert len(exchange.read_annotations(write(tmp_path / "a.jsonl", rows), ALL)) == 1
    with pytest.raises(DataError, match="no finished answer"):
        exchange.read_annotations(write(tmp_path / "b.jsonl", rows[1:]), ALL)


def test_every_bad_row_is_named(tmp_path):
    rows = [
        line(LABELS),
        line(LABELS),
        line(LABELS, 1, item="t-999"),
        line(RATED, answer=9),
        line(QUERIES, answer=[1, 0]),
        line(LABELS, 2, annotator=" "),
        line(LABELS, 3, task="HUMEEmotion"),
        line(LABELS, 4, answer="nice"),
        line(LABELS, 5, status="lost"),
    ]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataFaults) as caught:
        exchange.read_annotations(path, ALL)
    for number, words in enumerate(
        ["has answered", "t-999", "rating 9", "7 documents", "'annotator'", "HUMEEmotion", "nice", "lost"], 2
    ):
        assert any(f"line {number}:" in fault and words in fault for fault in caught.value.faults), (number, words)
    assert len(caught.value.faults) == 8


@pytest.mark.parametrize("pair", ALL, ids=lambda p: p.spec.kind)
def test_argilla_records_go_out_and_come_back(tmp_path, pair):
    given = exchange.read_annotations(
        write(tmp_path / "a.jsonl", [line(pair, who=who) for who in ("anna@example.org", "ben")]), [pair]
    )
    records = exchange.argilla_records(pair, given)
    path = tmp_path / "records.json"
    path.write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    assert "anna" not in path.read_text(encoding="utf-8")
    again = exchange.read_annotations(path, ALL)
    assert [(a.item, a.answer) for a in again] == [(a.item, a.answer) for a in given]
    assert records[0]["metadata"].keys() & {"true_label", "true_cluster", "true_score", "is_positive"}


def argilla(pair, number, responses, **more):
    return {
        "id": pair.items[number].id,
        "fields": {"text": pair.items[number].texts[0]},
        "responses": responses,
        **more,
    }


def test_only_submitted_argilla_responses_count(tmp_path):
    say = [{"value": "toxic", "user_id": "u1"}]
    records = [
        argilla(
            LABELS, 0, {"toxicity": [{**say[0], "status": "submitted"}, {**say[0], "user_id": "u2", "status": "draft"}]}
        ),
        argilla(LABELS, 1, {"toxicity": say}, status="completed"),
        argilla(LABELS, 2, {"toxicity": say}, status="pending"),
        argilla(LABELS, 3, [{"values": {"toxicity": {"value": "toxic"}}, "user_id": "u1", "status": "submitted"}]),
        argilla(LABELS, 4, [{"values": {"toxicity": {"value": "toxic"}}, "user_id": "u1", "status": "discarded"}]),
        argilla(LABELS, 5, [{"values": {"toxicity": {"value": "toxic"}}, "user_id": "u1"}]),
    ]
    (tmp_path / "r.json").write_text(json.dumps(records), encoding="utf-8")
    found = exchange.read_annotations(tmp_path / "r.json", [LABELS])
    assert [a.item for a in found] == [LABELS.items[n].id for n in (0, 1, 3)]
    assert {a.annotator for a in found} == {"annotator_1"}
    with pytest.raises(DataFaults, match="names no task"):
        exchange.read_annotations(tmp_path / "r.json", ALL)


def test_a_study_goes_out_and_comes_back(tmp_path):
    items.write_study(tmp_path / "s", ALL)
    back = items.read_study(tmp_path / "s")
    assert {k: (p.items, p.train, p.subset) for k, p in back.pairs.items()} == {
        p.key: (p.items, p.train, p.subset) for p in ALL
    }


@pytest.mark.parametrize(
    ("pair", "change", "words"),
    [
        (LABELS, {"label": 7}, "7 is no label"),
        (LABELS, {"text": None}, "'text'"),
        (LABELS, {"split": "dev"}, "dev"),
        (RATED, {"score": 6}, "from 0 to 5"),
        (RATED, {"id": 4}, "'id'"),
        (QUERIES, {"relevant": [1]}, "each of 7 documents"),
        (QUERIES, {"documents": []}, "'documents'"),
        (GROUPS, {"labels": ["a"]}, "one length"),
    ],
)
def test_bad_rows_of_a_study_are_named(tmp_path, pair, change, words):
    items.write_study(tmp_path / "s", [pair])
    path = tmp_path / "s" / pair.spec.name / f"{pair.subset}.jsonl"
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    rows[0] |= change
    write(path, rows)
    with pytest.raises(DataError, match="line 1") as caught:
        items.read_study(tmp_path / "s")
    assert words in str(caught.value)


def test_unknown_tasks_and_languages_are_named():
    with pytest.raises(UsageError, match="HUMESTS12"):
        registry.choose(registry.tasks(), "HUMESTS13")
    with pytest.raises(UsageError, match="language"):
        registry.choose(registry.tasks(), "", "xyz")
    arabic = registry.choose(registry.tasks(), "", "ara")
    assert [len(s.subsets) for s in arabic.values()] == [1, 1, 1]
