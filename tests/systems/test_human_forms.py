"""Answer forms: what a person may send, what text it becomes, and that models are asked for the same."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.answers.structured import json_object
from assay.core.errors import UsageError
from assay.systems import forms
from assay.systems.chat.client import ChatClient
from assay.systems.chat.loopback import LoopbackServer

ITEMS = ["a", "b", "c"]
EXAMPLES = [
    (forms.text(lines=1), "Hello", ["", "  ", 3, None]),
    (forms.choice(ITEMS), {"choice": "b"}, [{"choice": "z"}, {}, "b", {"choice": "a", "more": 1}]),
    (forms.choice(ITEMS, plain=True), "b", ["z", "", {"choice": "b"}]),
    (forms.rating(1, 5), {"rating": 3}, [{"rating": 6}, {"rating": None}, {"rating": 2.5}, {"rating": True}]),
    (forms.rating(0, 1, step=0.1, unsure=True), {"rating": None}, [{"rating": 0.25}, {"rating": 1.1}]),
    (forms.pair("a", "b"), {"preferred": "tie"}, [{"preferred": "c"}]),
    (forms.pair("a", "b", tie=False), {"preferred": "a"}, [{"preferred": "tie"}]),
    (forms.ranking(ITEMS), {"ranking": ["c", "a", "b"]}, [{"ranking": ["a", "b"]}, {"ranking": ["a", "a", "b"]}]),
    (forms.relevance(ITEMS), {"relevant": {"a": True, "b": False, "c": True}}, [{"relevant": {"a": True}}]),
    (forms.grouping(ITEMS), {"groups": {"a": "x", "b": "y", "c": "x"}}, [{"groups": {"a": "x", "b": "", "c": "x"}}]),
    (
        forms.spans("Ann met Bob", ["person"]),
        {"spans": [{"start": 0, "end": 3, "label": "person"}]},
        [
            {"spans": [{"start": 3, "end": 3, "label": "person"}]},
            {"spans": [{"start": 0, "end": 99, "label": "person"}]},
            {"spans": [{"start": 0, "end": 3, "label": "place"}]},
        ],
    ),
    (forms.ratings(ITEMS, unsure=True), {"ratings": {"a": 0, "b": 100, "c": None}}, [{"ratings": {"a": 0, "b": 101}}]),
]
KINDS = [f["form"]["kind"] + ("-plain" if f["type"] == "text" else "") for f, _, _ in EXAMPLES]


@pytest.mark.parametrize(("asked", "good", "bad"), EXAMPLES, ids=KINDS)
def test_a_form_takes_its_answers_writes_them_as_a_model_would_and_says_what_is_wrong_with_others(asked, good, bad):
    form = forms.read(json.loads(json.dumps(asked)))
    assert form.fault(good) is None
    text = form.reply(good)
    assert form.read(text) == good
    if asked["type"] == "json_schema":
        # The room reads people and models by one reader: the schema alone, without the form.
        assert json_object(text, asked).value == good
        assert asked["json_schema"]["schema"]["additionalProperties"] is False
    else:
        assert text == good
    for value in bad:
        assert form.fault(value), value


def test_a_service_is_sent_the_schema_without_the_form():
    asked = forms.rating(1, 5)

    async def go():
        async with LoopbackServer('{"rating": 2}') as server, ChatClient("vllm", "m", base_url=server.url) as model:
            reply = await model.generate([{"role": "user", "content": "?"}], response_format=asked)
            return reply.text, server.bodies[0]["response_format"]

    text, sent = asyncio.run(go())
    assert sent == {k: asked[k] for k in ("type", "json_schema")}
    assert forms.read(asked).read(text) == {"rating": 2}


def test_the_kinds_of_the_table_are_those_there_are():
    assert {line.split()[0] for line in (forms.__doc__ or "").split("\n") if line[:1].isalpha() and "`" in line} >= set(
        forms.KINDS
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"type": "video"}, "has the type 'video'"),
        ({"type": "json_schema"}, "lacks the schema"),
        ({"type": "text", "form": {"kind": "txt"}}, "did you mean 'text'"),
        ({"type": "text", "form": {"kind": "text", "colour": 1}}, "colour"),
        ({"type": "text", "form": {"kind": "text", "lines": 0}}, "lines is 0"),
        ({"type": "text", "form": {"kind": "choice", "options": ["a"]}}, "another answer"),
        ({**forms.choice(ITEMS), "form": {"kind": "choice", "options": ["a"]}}, "another answer"),
        ("text", "must be an object"),
    ],
)
def test_a_response_format_that_is_none_is_refused_in_a_sentence(asked, message):
    with pytest.raises(UsageError, match=message):
        forms.read(asked)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: forms.choice([]), "1 to 500"),
        (lambda: forms.choice("abc"), "list"),
        (lambda: forms.choice(["a", "a"]), "twice"),
        (lambda: forms.choice([{"id": "a", "src": "http://x"}]), "'src'"),
        (lambda: forms.choice([{"id": ""}]), "'id'"),
        (lambda: forms.pair("tie", "b"), "'tie'"),
        (lambda: forms.rating(5, 1), "is none"),
        (lambda: forms.rating(0, 1, step=0), "is none"),
        (lambda: forms.rating(1, 5, part=-1), "from 0"),
        (lambda: forms.rating(1, 5, labels=["bad"]), "by value"),  # type: ignore[arg-type]
        (lambda: forms.spans(3, ["x"]), "text"),  # type: ignore[arg-type]
    ],
)
def test_what_no_form_can_be_is_refused_in_a_sentence(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_any_schema_becomes_a_form_references_written_out_and_one_that_holds_itself_a_json_field():
    schema = {
        "type": "object",
        "properties": {"mood": {"$ref": "#/$defs/Mood"}, "n": {"type": "integer"}},
        "required": ["mood"],
        "$defs": {"Mood": {"enum": ["good", "bad"]}},
    }
    form = forms.read({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert form.kind == "schema"
    assert form.schema["properties"]["mood"] == {"enum": ["good", "bad"]}  # type: ignore[index]
    assert form.fault({"mood": "ugly"})
    assert form.units({"mood": "good", "n": 3, "note": "x"}) == {"mood": "good", "n": 3}
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    assert forms.read({"type": "json_schema", "json_schema": {"name": "x", "schema": tree}}).kind == "json"
    assert forms.read({"type": "json_object"}).fault([1]) is not None


def test_units_are_what_two_people_can_agree_on():
    form = forms.read(forms.grouping(ITEMS))
    renamed = form.units({"groups": {"a": "2", "b": "1", "c": "2"}})
    assert form.units({"groups": {"a": "x", "b": "y", "c": "x"}}) == renamed
    assert forms.read(forms.ranking(ITEMS)).units({"ranking": ["c", "a", "b"]}) == {"c": 1, "a": 2, "b": 3}
    spans = forms.read(forms.spans("abc", ["x"])).units({"spans": [{"start": 1, "end": 2, "label": "x"}]})
    assert list(spans.values()) == ["-", "x", "-"]
    assert forms.read(None).units("whatever") == {}


def test_parts_are_counted_over_all_messages():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    sound = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    messages = [
        {"role": "system", "content": "Listen."},
        {"role": "user", "content": [{"type": "text", "text": "x"}, picture]},
        {"role": "user", "content": [sound]},
    ]
    assert forms.media(messages) == [picture, sound]
    listening = forms.read(forms.ratings([{"id": "s", "part": 1}], reference=0))
    assert listening.parts() == {0, 1}


WORDS = st.sampled_from(["type", "form", "kind", "items", "options", "json_schema", "schema", "$ref"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def test_the_examples_of_the_document_run():
    document = Path(__file__).parents[2] / "docs" / "people.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], str(document), "exec"), {})


@given(JSON)
def test_nothing_that_json_can_say_breaks_the_reader(asked):
    try:
        form = forms.read(asked)
    except UsageError:
        return
    assert form.fault(object()) is not None or form.kind in ("json", "schema")


@given(st.sampled_from(EXAMPLES), st.text(max_size=60))
def test_no_reply_breaks_a_form(example, reply):
    form = forms.read(example[0])
    value = form.read(reply)
    assert form.plain or value is None or form.fault(value) is None


def test_people_are_not_told_how_to_write_json_and_everything_else_stays():
    rule = 'Reply with JSON: {"rating": n}.'
    asked = forms.ruled(forms.rating(1, 5), rule)
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages = [
        {"role": "system", "content": "Be fair."},
        {"role": "user", "content": [{"type": "text", "text": f"How good is it?\n{rule}"}, picture]},
        {"role": "user", "content": f"It says: {rule}\n\n{rule}"},
    ]
    shown = forms.for_people(messages, asked)
    assert shown[0] == messages[0]
    assert shown[1]["content"] == [{"type": "text", "text": "How good is it?"}, picture]
    assert shown[2]["content"] == f"It says: {rule}"
    assert rule in messages[1]["content"][0]["text"]
    assert forms.for_people(messages, forms.rating(1, 5)) == messages
    assert forms.read(asked).arguments == forms.read(forms.rating(1, 5)).arguments


def test_a_reference_has_the_name_that_it_is_given():
    items = [{"id": "s", "part": 1}]
    assert forms.read(forms.ratings(items, reference=0)).arguments["reference_label"] == "Reference"
    named = forms.read(forms.ratings(items, reference=0, reference_label="The first recording"))
    assert named.arguments["reference_label"] == "The first recording"
    with pytest.raises(UsageError, match="must be a text"):
        forms.ratings(items, reference=0, reference_label=3)
