"""Readers: the battery of replies, and what must hold for any reply."""

from __future__ import annotations

import json
import string
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core import answers
from assay.core.answers import (
    Reading,
    boxed,
    choice_letter,
    choice_letters,
    fenced,
    json_object,
    last_tag,
    number,
    refusal,
    schema_fault,
    split_reasoning,
    yes_no,
)

FOLDER = Path(__file__).parent.parent / "oracles" / "answers"


def cases(name: str) -> list[dict]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def label(case: dict) -> str:
    return repr(case["text"])[:60]


@pytest.mark.parametrize("case", cases("choice_letter"), ids=label)
def test_choice_letter_battery(case):
    reading = choice_letter(case["text"], case.get("letters", "ABCD"), case.get("choices"))
    assert reading.value == case["value"], reading
    if reading.read:
        start, end = reading.span
        assert 0 <= start < end <= len(case["text"])


@pytest.mark.parametrize("case", cases("choice_letters"), ids=label)
def test_choice_letters_battery(case):
    reading = choice_letters(case["text"], "ABCD", case.get("choices"))
    assert reading.value == (None if case["value"] is None else tuple(case["value"])), reading


@pytest.mark.parametrize(("reader", "name"), [(number, "number"), (yes_no, "yes_no"), (refusal, "refusal")])
def test_plain_battery(reader, name):
    wrong = []
    for case in cases(name):
        reading = reader(case["text"])
        want = case["value"]
        same = reading.value == pytest.approx(want, rel=1e-12) if isinstance(want, float) else reading.value == want
        if not same or (reading.value is None) != (want is None):
            wrong.append((case, reading))
    assert wrong == []


@pytest.mark.parametrize("case", cases("extract"), ids=label)
def test_extract_battery(case):
    reader = getattr(answers, case["reader"])
    reading = reader(case["text"], case["arg"]) if "arg" in case else reader(case["text"])
    assert reading.value == case["value"], reading
    if reading.read:
        assert case["text"][slice(*reading.span)] == case["value"]


@pytest.mark.parametrize("case", cases("json"), ids=label)
def test_json_battery(case):
    reading = json_object(case["text"], case.get("schema"))
    assert reading.value == case["value"], reading
    assert case.get("how", "") in reading.how


WRAPPERS = [
    "{}", "{}.", "**{}**", "({})", "[{}]", "`{}`", "${}$", r"\boxed{{{}}}", r"$\boxed{{\text{{{}}}}}$", "Answer: {}",
    "ANSWER: ${}$", "The answer is {}.", "**Answer:** ({})", "option {}", "I choose {}.",
    "So the correct answer is **{}**.",
    "<answer>{}</answer>",
    "Some words first.\n\nAnswer: {}", "{} is correct.", "{}) it has a tail",
]  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(WRAPPERS), st.integers(2, 26), st.data())
def test_any_wrapped_letter_of_any_alphabet_is_read(wrapper, size, data):
    letters = string.ascii_uppercase[:size]
    letter = data.draw(st.sampled_from(letters))
    assert choice_letter(wrapper.format(letter), letters).value == letter


@settings(deadline=None)
@given(
    st.sampled_from(WRAPPERS[9:14]), st.sampled_from(WRAPPERS[9:14]), st.sampled_from("ABCD"), st.sampled_from("ABCD")
)
def test_the_last_statement_wins(first, second, a, b):
    assert choice_letter(f"{first.format(a)}\n\nWait.\n\n{second.format(b)}").value == b


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_readers_take_any_text_and_spans_lie_inside(text):
    for reader in (
        choice_letter,
        choice_letters,
        number,
        yes_no,
        refusal,
        boxed,
        last_tag,
        fenced,
        answers.after_marker,
    ):
        reading = reader(text)
        assert isinstance(reading, Reading)
        if reading.read:
            assert reading.span is not None
            assert 0 <= reading.span[0] <= reading.span[1] <= len(text)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ABCD \n.,:*()$\\{}boxed<think/>answer is not or", max_size=120))
def test_a_letter_that_is_read_stands_in_the_text(text):
    reading = choice_letter(text)
    if reading.read:
        assert text[slice(*reading.span)].upper() == reading.value


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_sound_json_comes_back_as_it_is(value):
    document = {"value": value}
    for text in (json.dumps(document), f"Sure!\n```json\n{json.dumps(document, indent=1)}\n```\nDone."):
        assert json_object(text).value == document


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12))
def test_a_whole_number_is_read_in_any_grouping(value):
    for text in (f"{value}", f"{value:,}", f"The answer is {value:,}.", rf"\boxed{{{value}}}", f"#### {value}"):
        assert number(text).value == value


@settings(deadline=None)
@given(st.floats(1e-6, 1e9))
def test_a_decimal_number_is_read(value):
    assert number(f"so {value!r} km").value == pytest.approx(value, rel=1e-12)


@settings(deadline=None)
@given(
    st.text(alphabet=st.characters(blacklist_characters="<[◁|>/", blacklist_categories=("Cs",))),
    st.text(alphabet="abc \n"),
)
def test_reasoning_is_parted_from_the_answer(thought, answer):
    split = split_reasoning(f"<think>{thought}</think>{answer}")
    assert (split.reasoning, split.answer, split.closed) == (thought.strip(), answer.strip(), True)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer", "closed"),
    [
        ("<think>cut", "cut", "", False),
        ("plain", "", "plain", True),
        ("no opening tag</think>B", "no opening tag", "B", True),
        ("<think>a</think>", "a", "", True),
        ("<thinking>a</thinking> B", "a", "B", True),
        ("<think>a</think><think>b", "a<think>b", "", False),
        ("[THINK]a[/THINK]B", "a", "B", True),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>",
            "a",
            "B",
            True,
        ),
        ("if x < 3 and y > 2", "", "if x < 3 and y > 2", True),
    ],
)
def test_split_reasoning(text, reasoning, answer, closed):
    assert split_reasoning(text) == (reasoning, answer, closed)


def test_unread_says_why():
    assert choice_letter("").how == "empty"
    assert choice_letter("<think>B").how == "reasoning only"
    assert choice_letter("A or B").how == "several letters"
    assert choice_letter("None of the above").how == "none of the options"
    assert last_tag("<answer>4").how == "tag not closed"
    assert boxed(r"\boxed{4").how == "box not closed"
    assert number("50 %").how.endswith("percent")


@pytest.mark.parametrize("letters", ["", "AA", "Aa"])
def test_letters_must_differ(letters):
    with pytest.raises(ValueError, match="different"):
        choice_letter("A", letters)


def test_schema_faults_name_the_field():
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object", "required": ["b"]}}}}
    assert schema_fault({"a": [{"b": 1}]}, schema) is None
    assert schema_fault({"a": [{"b": 1}, {}]}, schema) == "field 'a[1]' lacks the key 'b'"
    assert "true" in (schema_fault(True, {"type": "integer"}) or "")
    assert schema_fault("x", {"anyOf": [{"type": "string"}, {"type": "null"}]}) is None
    assert "at least 2 " in (schema_fault("x", {"type": "string", "minLength": 2}) or "") + " "
    assert schema_fault([1], {"type": "array", "maxItems": 0}) == "the value has 1 items, and must have at most 0"


def test_many_lone_braces_cost_little():
    started = time.perf_counter()
    json_object("{ " * 5000 + "x")
    choice_letter("(" * 20000 + "the answer is " * 2000)
    number("1," * 20000)
    boxed(r"\boxed{" * 3000)
    assert time.perf_counter() - started < 8


def test_a_short_reply_is_read_in_microseconds():
    replies = ["B", "**B**", "ANSWER: $B$", "(C)", "The answer is B.", "B) dog"]
    best = min(_seconds(replies) for _ in range(5))
    assert best / len(replies) / 200 < 60e-6  # 20 microseconds on a quiet machine


def _seconds(replies: list[str]) -> float:
    started = time.perf_counter()
    for _ in range(200):
        for reply in replies:
            choice_letter(reply)
    return time.perf_counter() - started


@pytest.mark.parametrize("filler", ["A word or two about shapes and tails. ", "It may be (A).\n", "Answer: A\n", "\n"])
def test_long_replies_are_read_from_their_end(filler):
    for length in (10, 400):
        assert choice_letter(filler * length + "\n\nThe answer is C.").value == "C"
        assert choice_letter("The answer is C.\n" + "A shape is drawn here.\n" * length).value == "C"
