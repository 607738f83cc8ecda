"""The page of traces: everything on it, nothing that runs, whatever the traces hold."""

from __future__ import annotations

import base64
import html
import json
import re

import msgspec
import pytest

from assay.core.errors import DataError, UsageError
from assay.report.trace import ShownTrace, read_trace, render_traces, write_traces
from assay.systems.trace import Step, Trace

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"query": "Ada"}'}}


def trace(**changes):
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    messages = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Who?"}],
        },
        {"role": "assistant", "content": "", "reasoning_content": "look it up", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "Ada Lovelace"},
        {"role": "assistant", "content": "Ada."},
        {"role": "user", "content": "well done"},
    ]
    steps = [
        Step("model", 0, 1, seconds=2.0, prompt_tokens=1200, completion_tokens=30),
        Step("tool", 0, 2, seconds=0.5, tool="search", error="slow server"),
        Step("model", 1, 3, seconds=1.0, stop_reason="length"),
        Step("environment", 1, 4, reward=0.75, terminated=True, action="Ada."),
    ]
    return Trace(messages, steps, "terminated", "Ada.", info={"seed": 7, **changes})


def body(found):
    return msgspec.to_builtins(found)


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", " ", page.partition("<body>")[2]))


def test_everything_that_happened_is_on_the_page():
    page = render_traces([ShownTrace("first", body(trace()), {1: ["FollowUpQuery"]}, [("judge", "exact")])])
    shown = text_of(page)
    for words in (
        "Who?", "look it up", "search", '{"query": "Ada"}', "Ada Lovelace", "slow server", "FollowUpQuery",
        "reward 0.75", "terminated", "1,200 + 30 tokens", "length", "well done", "judge", "exact", "seed", "7",
    ):  # fmt: skip
        assert words in shown, words
    assert page.count("<img") == 1
    assert len(re.findall(r'<a class="(?:model|tool|environment)', page)) == 4
    row = re.findall(r"<td[^>]*>(.*?)</td>", page.partition("<tbody>")[2].partition("</tbody>")[0])
    assert row[1:6] == ["terminated", "2", "1", "1", "1,230"]
    assert row[6] == "0.75"


def test_every_step_leads_to_a_message():
    page = render_traces([ShownTrace("a", body(trace())), ShownTrace("b", body(trace()))])
    anchors = set(re.findall(r' id="([^"]+)"', page))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= anchors
    assert len(re.findall(r' id="([^"]+)"', page)) == len(anchors)


def test_nothing_runs_and_nothing_is_loaded():
    evil = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\"'\x1b[31m\u202e"
    far = {"type": "image_url", "image_url": {"url": "http://evil/x.png"}}
    bad = Trace(
        [{"role": evil, "content": evil, "name": evil}, {"role": "assistant", "content": [far]}],
        [Step(evil, 0, 0, tool=evil, error=evil)],
        "error",
        evil,
        evil,
        {evil: evil},
    )  # fmt: skip
    page = render_traces([ShownTrace(evil, body(bad), {0: [evil]}, [(evil, evil)])], title=evil)
    assert "<script" not in page
    assert not re.search(r"<img[^>]+src=(?!\"data:)", page)
    assert page.count("</style>") == 1
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "default-src 'none'" in html.unescape(page)
    assert "http://evil/x.png (not loaded)" in text_of(page)


def test_a_saved_trace_is_read_with_its_pictures(tmp_path):
    trace().save(tmp_path)
    shown = read_trace(tmp_path / "trace.json", "one")
    assert shown.body["messages"] == trace().messages
    path = write_traces([shown], tmp_path / "out" / "page.html")
    assert "data:image/png" in path.read_text()


def test_what_is_no_picture_or_lies_elsewhere_is_not_read(tmp_path):
    (tmp_path / "secret.png").write_bytes(PNG)
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / "fake.png").write_bytes(b"root:x:0:0")
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in ("../secret.png", "fake.png", "none.png", "")]
    (inside / "trace.json").write_text(json.dumps({"messages": [{"role": "user", "content": parts}]}))
    assert read_trace(inside / "trace.json").body["messages"][0]["content"] == parts


def test_a_long_trace_is_shown_whole():
    messages = [{"role": "user", "content": f"turn {n}."} for n in range(150)]
    page = render_traces([ShownTrace("long", {"messages": messages})])
    assert all(f"turn {n}." in page for n in range(150))


def test_what_is_no_trace_is_named(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(DataError, match="no list of messages"):
        read_trace(tmp_path / "a.json")
    with pytest.raises(DataError, match="cannot be read"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(UsageError, match="at least one"):
        render_traces([])
    with pytest.raises(DataError, match="messages of trace 'x'"):
        render_traces([ShownTrace("x", {"messages": ["a"]})])
