"""Traces: figures, files, and the forms of others."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.systems.dialects import TagDialect, find_tool_call, first_pair, segments
from assay.systems.tools.python import PythonTool
from assay.systems.trace import Step, Trace
from assay.systems.trace_formats import from_inspect, from_langgraph, from_openai, from_tags, read_traces

CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "", "reasoning_content": "look", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "Ada"},
    {"role": "assistant", "content": "Ada."},
]


def kinds(trace):
    return [(s.kind, s.turn, s.tool, s.error) for s in trace.steps]


# -- segments ----------------------------------------------------------------------------------------------------------


def test_segments_are_those_of_the_reference_parser(oracle):
    tags = ("think", "search", "information", "answer")
    checked = 0
    for case in oracle("seekbench", "trace_parser")["cases"]:
        if "official_defect" in case or not case["expected"]:
            continue
        raw = case["input"]["sequences_str"]
        content = raw.partition("<|im_start|>assistant\n")[2].partition("<|im_end|>")[0]
        pieces = segments(content, tags)
        answers = [p.content for p in pieces if p.tag == "answer"]
        steps = [p for p in pieces if p.tag != "answer"]
        wanted = case["expected"][0]["trace"]
        names = {None: "reasoning", "think": "reasoning", "search": "search", "information": "search_result"}
        rest = [w for w in wanted if not w["type"].endswith("Answer")]
        assert [names[p.tag] for p in steps] == [w["type"] for w in rest]
        for piece, want in zip(steps, rest, strict=True):
            if "content" in want or "query" in want:
                assert piece.content == want.get("content", want.get("query"))
        assert (answers or [""])[-1] == case["expected"][0]["final_answer"]
        checked += 1
    assert checked == 4


@given(st.text(alphabet="ab <>/\n", max_size=60))
def test_segments_cover_the_text_in_order(text):
    found = segments(text, ("a", "b"))
    place = 0
    for piece in found:
        assert text[place : piece.start].strip() == ""
        assert piece.content == piece.content.strip()
        assert piece.content in text[piece.start : piece.end]
        place = piece.end
    assert text[place:].strip() == ""


@given(st.text(alphabet="ab <>/", max_size=60))
def test_segments_are_those_of_the_plain_expression(text):
    pattern = re.compile(r"<(?P<tag>a|b)>(?P<content>.*?)</(?P=tag)>", re.DOTALL)
    wanted = [(m["tag"], m["content"].strip(), m.start(), m.end()) for m in pattern.finditer(text)]
    assert [tuple(p) for p in segments(text, ("a", "b")) if p.tag] == wanted
    first = first_pair(text, "a")
    match = re.search(r"<a>(.*?)</a>", text, re.DOTALL)
    assert (first and (first.content, first.start, first.end)) == (match and (match[1], match.start(), match.end()))


def test_tags_that_are_never_closed_cost_no_more_than_other_text():
    began = time.process_time()
    for spam in ("<think>", "<search>", "<python>", "```python", "<tool_call>", "<think><search>"):
        text = spam * 100_000
        segments(text, ("think", "search", "python"))
        from_tags(text)
        find_tool_call(text)
        PythonTool().find(text)
        TagDialect().read(text, [])
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('x <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', "f", {"a": 1}),
        ('<tool_call>\n{"name": "f", "arguments": "{\\"a\\": 1}"}\n</tool_call>', "f", {"a": 1}),
        ('<tool_call>{"function": {"name": "f", "arguments": {"a": 1}}}</tool_call>', "f", {"a": 1}),
        ("<tool_call>{'name': 'f', 'args': {'a': 1}}</tool_call>", "f", {"a": 1}),
        ("<tool_call><tool_name> f </tool_name></tool_call>", "f", {}),
        ('<tool_call><tool_name>f</tool_name>\n<arguments>{"a": 1}</arguments></tool_call>', "f", {"a": 1}),
    ],
)
def test_a_call_in_a_text_is_read_in_every_form(text, name, arguments):
    found = find_tool_call(text)
    assert found is not None
    assert (found.name, found.arguments, found.problem) == (name, arguments, None)
    assert text[found.start : found.end].startswith("<tool_call>")


@pytest.mark.parametrize(
    "body",
    ["", "hello", "{}", '{"arguments": {}}', '{"name": "f", "arguments": [1]}', '{"name": "f", "arguments": "x"}'],
)
def test_a_call_that_is_none_says_why(body):
    found = find_tool_call(f"<tool_call>{body}</tool_call>")
    assert found is not None
    assert found.problem


# -- the trace itself --------------------------------------------------------------------------------------------------


def test_figures_count_steps():
    steps = [
        Step("model", 0, prompt_tokens=10, completion_tokens=2, seconds=1.0, stop_reason="length"),
        Step("tool", 0, tool="t", error="bad", seconds=0.5),
        Step("environment", 0, reward=0.5, action="a"),
        Step("compaction", 0, prompt_tokens=5, completion_tokens=1),
        Step("environment", 1, reward=-0.25, action="b", info={"k": [1]}),
    ]
    trace = Trace([], steps, "truncated")
    assert (trace.turns, trace.tool_calls, trace.tool_errors, trace.cut_replies) == (1, 1, 1, 1)
    assert (trace.rewards, trace.total_reward, trace.actions) == ([0.5, -0.25], 0.25, ["a", "b"])
    assert (trace.prompt_tokens, trace.completion_tokens, trace.seconds) == (15, 3, 1.5)
    assert trace.scores() == {"turns": 1.0, "tool_calls": 1.0, "tool_errors": 1.0, "tokens": 18.0}
    rows = trace.rows()
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert rows[4]["info"] == '{"k": [1]}'


def test_rows_make_a_frame():
    import polars as pl

    frame = pl.DataFrame(from_openai(MESSAGES).rows(), infer_schema_length=None)
    assert frame.height == 3
    assert frame["tool"].to_list() == [None, "search", None]


def test_a_trace_is_written_and_read(tmp_path):
    trace = from_openai(MESSAGES)
    trace.info = {"seed": 3}
    assert Trace.load(tmp_path / trace.save(tmp_path / ".", "t.json")) == trace


def test_an_end_that_is_none_is_refused():
    with pytest.raises(UsageError, match="did you mean 'answer'"):
        Trace([], end="answr")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "format 1"),
        ('{"format": 2}', "found 2"),
        ('{"format": 1}', "messages"),
        ('{"format": 1, "messages": [], "end": "well"}', "end of a trace"),
        ('{"format": 1, "messages": [], "steps": [{"kind": 1}]}', "steps"),
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path, content, words):
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        Trace.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        Trace.load(tmp_path / "none.json")


def test_a_picture_outside_the_folder_is_not_read(tmp_path):
    (tmp_path / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    inside = tmp_path / "run"
    part = {"type": "image_url", "image_url": {"url": "../secret.png"}}
    Trace([{"role": "user", "content": [part]}]).save(inside)
    assert Trace.load(inside / "trace.json").messages[0]["content"] == [part]


# -- OpenAI ------------------------------------------------------------------------------------------------------------


def test_openai_messages_become_steps():
    trace = from_openai(MESSAGES)
    assert trace.messages == MESSAGES
    assert kinds(trace) == [("model", 0, None, None), ("tool", 0, "search", None), ("model", 1, None, None)]
    assert (trace.end, trace.answer) == ("answer", "Ada.")
    assert from_openai(MESSAGES[:4]).end == "unknown"
    assert from_openai([]).messages == []


def test_old_and_odd_openai_messages_are_read():
    old = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": None, "refusal": "I will not."},
    ]
    trace = from_openai(old)
    assert trace.messages[0]["tool_calls"][0]["function"]["name"] == "f"
    assert (trace.end, trace.answer, trace.tool_calls) == ("refusal", "I will not.", 1)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "bot", "content": ""}], "message 0 of the messages has the role 'bot'"),
        (["hello"], "has the role None"),
        ([{"role": "tool", "tool_call_id": "zz", "content": ""}], "answers the call 'zz'"),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], "without id or function.name"),
    ],
)
def test_messages_that_are_none_are_named(messages, words):
    with pytest.raises(DataError, match=words):
        from_openai(messages)


# -- tags --------------------------------------------------------------------------------------------------------------


def test_tags_become_calls_results_reasoning_and_answer():
    text = (
        "<think>plan</think><search>a</search><information>Doc 1</information> hmm <python>print(1)</python>"
        "<output>1</output><tool_call>{'name': 'f', 'arguments': {'x': 2}}</tool_call><tool_response>y</tool_response>"
        "<think>so</think><answer>first</answer> no <answer>second</answer>"
    )
    trace = from_tags(text, question="q?")
    assert (trace.end, trace.answer, trace.tool_calls, trace.tool_errors) == ("answer", "second", 3, 0)
    assert [s.tool for s in trace.steps if s.kind == "tool"] == ["search", "python", "f"]
    assert [json.loads(s.arguments) for s in trace.steps if s.kind == "tool"] == [
        {"query": "a"}, {"code": "print(1)"}, {"x": 2},
    ]  # fmt: skip
    thoughts = [m.get("reasoning_content") for m in trace.messages if m["role"] == "assistant"]
    assert thoughts == ["plan", "hmm", None, "so", "no"]
    assert from_openai(trace.messages).messages == trace.messages


def test_calls_without_results_and_results_without_calls_are_named():
    trace = from_tags("<information>out of the blue</information><search>a</search><search>b</search>")
    assert [s.error for s in trace.steps if s.kind == "tool"] == ["a result without a call", "no result", "no result"]
    assert trace.end == "unknown"
    broken = from_tags("<tool_call>gibberish</tool_call><tool_response>x</tool_response>")
    assert broken.tool_errors == 1


PIECES = [f"<{slash}{tag}>" for tag in ("think", "search", "information", "answer") for slash in ("", "/")]
KNOWN = ("think", "search", "information", "answer")


@given(st.lists(st.sampled_from([*PIECES, "word "]), max_size=30).map("".join))
def test_any_text_with_tags_is_a_trace(text):
    trace = from_tags(text)
    for step in trace.steps:
        if step.message is not None:
            assert trace.messages[step.message]["role"] in ("assistant", "tool", "user")
    assert (trace.end == "answer") == any(p.tag == "answer" for p in segments(text, KNOWN))


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_of_every_form_are_read(tmp_path):
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join([json.dumps(MESSAGES), json.dumps({"messages": MESSAGES}), ""]))
    assert [t.answer for t in read_traces(lines, "openai")] == ["Ada.", "Ada."]
    single = tmp_path / "messages.json"
    single.write_text(json.dumps(MESSAGES))
    assert len(read_traces(single, "openai")) == 1
    many = tmp_path / "many.json"
    many.write_text(json.dumps([MESSAGES, MESSAGES]))
    assert len(read_traces(many, "openai")) == 2
    tags = tmp_path / "tags.jsonl"
    tags.write_text(
        json.dumps("<answer>1</answer>") + "\n" + json.dumps({"text": "<answer>2</answer>", "question": "q"})
    )
    assert [t.answer for t in read_traces(tags, "tags")] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "content", "format", "words"),
    [
        ("a.jsonl", '[]\n{"messages": 3}', "openai", "line 2 is no list of messages"),
        ("a.jsonl", "[]\n{", "openai", "line 2, column 2: not JSON"),
        ("a.jsonl", '{"question": "x"}', "tags", "line 1 has no text"),
        ("a.json", '{"samples": [{"id": 1}]}', "inspect", "trace 0 has no list of messages"),
        ("a.json", '[[{"role": "x"}]]', "openai", "message 0 of .*trace 0 has the role 'x'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, name, content, format, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        read_traces(tmp_path / name, format)
    with pytest.raises(DataError, match="cannot be read"):
        read_traces(tmp_path / "none.json", format)


def test_an_unknown_form_is_named(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'openai'"):
        read_traces(tmp_path, "openia")


# -- Inspect and LangGraph, as their own libraries write them ----------------------------------------------------------


def test_inspect_logs_are_read(oracle):
    log = oracle("traces", "inspect")
    done, limited, failed = map(from_inspect, log["samples"])
    assert kinds(done) == [("model", 0, None, None), ("tool", 0, "add", None), ("model", 1, None, None)]
    assert (done.end, done.answer) == ("answer", "The sum is 5.")
    assert json.loads(done.steps[1].arguments or "") == {"a": 2, "b": 3}
    assert done.messages[1]["reasoning_content"] == "I need the tool."
    assert done.info["id"] == 1
    assert done.steps[-1].completion_tokens is not None
    assert limited.end == "step limit"
    assert failed.tool_errors == 1
    assert "timeout" in (failed.steps[1].error or "")


def test_langgraph_messages_are_read_in_each_of_their_forms(oracle):
    forms = oracle("traces", "langgraph")
    traces = {name: from_langgraph(forms[name]) for name in ("state", "dicts", "dumped")}
    for name, trace in traces.items():
        assert kinds(trace)[:2] == [("model", 0, None, None), ("tool", 0, "add", "division by zero")], name
        assert (trace.end, trace.answer) == ("answer", "It is 5.")
        assert [m["role"] for m in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert trace.steps[0].prompt_tokens == 11
        assert trace.messages[2]["reasoning_content"] == "hm"
    with pytest.raises(DataError, match=r"message 0 .* has the type"):
        from_langgraph([{"type": "robot", "content": ""}])
    with pytest.raises(DataError, match="no list"):
        from_langgraph({"messages": "x"})
