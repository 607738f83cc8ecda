"""Whatever a service sends, a body is read rightly or refused; nothing in between."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.systems.chat.engine import Unusable, error_of, scrub
from assay.systems.chat.model import Choice
from assay.systems.chat.wire import choices_of, read_body, usage_of

WHOLE = {
    "id": "1",
    "model": "m",
    "choices": [
        {
            "message": {"role": "assistant", "content": 'The answer is 42 ä "q"', "reasoning": "because"},
            "finish_reason": "stop",
            "logprobs": {
                "content": [{"token": "The", "logprob": -0.5, "top_logprobs": [{"token": "A", "logprob": -1}]}]
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def test_no_prefix_of_a_reply_is_a_reply():
    body = msgspec.json.encode(WHOLE)
    assert choices_of(read_body(body))[0].text == 'The answer is 42 ä "q"'
    for length in range(len(body)):
        with pytest.raises((msgspec.MsgspecError, Unusable)):
            read_body(body[:length])


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_reply_with_one_value_changed_is_read_or_refused(data):
    """Any value anywhere in the reply may be anything: reading ends in choices, MsgspecError or Unusable."""
    copy = msgspec.json.decode(msgspec.json.encode(WHOLE))
    place = copy
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(json_values)
        break
    try:
        wire = read_body(msgspec.json.encode(copy))
    except (msgspec.MsgspecError, Unusable):
        return
    for choice in choices_of(wire):
        assert isinstance(choice, Choice)
        assert isinstance(choice.text, str)
    usage = usage_of(wire)
    if usage is not None:
        assert 0 <= usage.cached_tokens <= usage.prompt_tokens
        assert 0 <= usage.reasoning_tokens <= usage.completion_tokens


@given(json_values, st.sampled_from(["thinking", "text", "other"]))
def test_parts_of_any_kind_are_read(value, kind):
    parts = [{"type": kind, kind: value}, {"type": "text", "text": "end"}, value]
    body = msgspec.json.encode({"choices": [{"message": {"content": parts}}]})
    (choice,) = choices_of(read_body(body))
    assert "end" in choice.text or "think>" in str(value)


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-5, 9), st.integers(-5, 9))
def test_impossible_counts_of_tokens_are_bounded(prompt, completion, cached, reasoning):
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    found = usage_of(read_body(msgspec.json.encode({"choices": [{"text": ""}], "usage": usage})))
    assert found is not None
    assert 0 <= found.cached_tokens <= found.prompt_tokens
    assert 0 <= found.reasoning_tokens <= found.completion_tokens


@given(st.binary(max_size=80))
def test_an_error_body_is_never_an_error_itself(body):
    message, code = error_of(body)
    assert isinstance(message, str)
    assert isinstance(code, str)


@given(json_values)
def test_any_json_is_an_error_body(value):
    for body in (value, {"error": value}, {"message": value}, {"error": {"message": value, "code": value}}):
        message, code = error_of(msgspec.json.encode(body))
        assert isinstance(message, str)
        assert isinstance(code, str)


@given(st.text(max_size=50), st.text("abcXYZ019-_", min_size=12, max_size=40))
def test_secrets_are_scrubbed_wherever_they_stand(text, secret):
    shown = scrub(f"{text}{secret}{text} Bearer {secret}", [secret], limit=10_000)
    assert secret not in shown
    assert "\n" not in shown
