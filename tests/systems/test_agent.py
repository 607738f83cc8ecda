"""Agents over a chat model: loops, limits, compaction, failures, and what the trace says of them."""

from __future__ import annotations

import asyncio
import json

import pytest

from assay.core.errors import ProviderError, UsageError
from assay.core.metering import Meter
from assay.systems.agent import Actor, Agent, Limits, lift, partial_trace, plan, react, tool_loop
from assay.systems.chat.model import Choice, Reply, ToolCall, Usage
from assay.systems.scripted import ReplayModel, ScriptedChatModel
from assay.systems.tools import ToolResult, tool
from assay.systems.trace import Trace


def user(text):
    return [{"role": "user", "content": text}]


def asks(*calls, text="", tokens=(1, 1)):
    made = tuple(ToolCall(f"c{i}", name, json.dumps(args)) for i, (name, args) in enumerate(calls))
    return Reply((Choice(text, tool_calls=made, stop_reason="tool_calls"),), Usage(*tokens))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def broken(x: str) -> str:
    """Always fails."""
    raise ValueError("no such thing")


TOOLS = [tool(add), tool(broken)]


def run(agent, text="2 + 3?", tools=TOOLS, **limits):
    return asyncio.run(agent.run(user(text), tools, limits=Limits(**limits)))


def test_calls_are_carried_out_until_a_reply_has_none():
    model = ReplayModel([asks(("add", {"a": 2, "b": 3})), "It is 5."])
    trace = run(tool_loop(model, system="Work."))
    assert trace.end == "answer"
    assert trace.answer == "It is 5."
    assert [m["role"] for m in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert trace.messages[3] == {"role": "tool", "tool_call_id": "c0", "content": "5"}
    assert (trace.turns, trace.tool_calls, trace.tool_errors) == (2, 1, 0)
    assert [s.kind for s in trace.steps] == ["model", "tool", "model"]
    assert trace.steps[1].tool == "add"
    assert trace.steps[1].message == 3


def test_several_calls_run_in_order_and_each_gets_its_message():
    model = ReplayModel([asks(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2})), "done"])
    trace = run(tool_loop(model))
    assert [m["content"] for m in trace.messages if m["role"] == "tool"] == ["2", "4"]


def test_what_the_model_does_wrong_is_told_to_it():
    bad_json = Choice("", tool_calls=(ToolCall("x", "add", "{a: one"),), stop_reason="tool_calls")
    model = ReplayModel(
        [asks(("ad", {})), bad_json, asks(("add", {"a": "x", "b": 1})), asks(("broken", {"x": "y"})), "ok"]
    )
    trace = run(tool_loop(model))
    told = [m["content"] for m in trace.messages if m["role"] == "tool"]
    assert "there is no tool 'ad'; there are: add, broken" in told[0]
    assert "'b'" in told[1]
    assert "field 'a'" in told[2]
    assert "ValueError: no such thing" in told[3]
    assert trace.tool_errors == 4
    assert trace.end == "answer"


def test_infrastructure_that_fails_in_a_tool_is_not_the_models_mistake():
    def ask_a_judge() -> str:
        """Asks."""
        raise ProviderError("the judge is down")

    with pytest.raises(ProviderError, match="judge is down"):
        run(tool_loop(ReplayModel([asks(("ask_a_judge", {}))])), tools=[tool(ask_a_judge)])


def test_a_long_result_is_cut_where_a_limit_says_so():
    def much() -> str:
        """Much."""
        return "a" * 500 + "z" * 500

    trace = run(tool_loop(ReplayModel([asks(("much", {})), "ok"])), tools=[tool(much)], tool_characters=100)
    text = trace.messages[2]["content"]
    assert text == "a" * 50 + "\n[... 900 characters left out ...]\n" + "z" * 50
    whole = run(tool_loop(ReplayModel([asks(("much", {})), "ok"])), tools=[tool(much)])
    assert len(whole.messages[2]["content"]) == 1000


def test_calls_beyond_the_number_a_turn_are_answered_but_not_run():
    model = ReplayModel([asks(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2})), "done"])
    trace = run(tool_loop(model, calls_per_turn=1))
    told = [m for m in trace.messages if m["role"] == "tool"]
    assert told[0]["content"] == "2"
    assert "Not carried out" in told[1]["content"]
    assert told[1]["tool_call_id"] == "c1"
    assert trace.tool_calls == 1


def forever():
    return ScriptedChatModel(lambda m, r: asks(("add", {"a": 1, "b": 1}), tokens=(10, 5)))


def test_each_limit_ends_the_run_with_its_name():
    assert run(tool_loop(forever()), turns=3).turns == 3
    assert run(tool_loop(forever()), turns=3).end == "step limit"
    limited = run(tool_loop(forever()), tool_calls=2)
    assert (limited.end, limited.tool_calls) == ("tool limit", 2)
    spent = run(tool_loop(forever()), tokens=40)
    assert (spent.end, spent.turns) == ("token limit", 3)
    assert run(tool_loop(forever()), tool_calls=0).end == "tool limit"


def test_the_time_limit_cuts_a_reply_and_a_tool():
    async def slow(messages, rng):
        await asyncio.sleep(30)

    assert run(tool_loop(ScriptedChatModel(slow)), seconds=0.05).end == "time limit"

    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(30)
        return ""

    model = ReplayModel([asks(("nap", {})), "gave up"])
    trace = run(tool_loop(model), tools=[tool(nap)], tool_seconds=0.05)
    assert trace.end == "answer"
    assert "past its limit" in trace.messages[2]["content"]
    assert trace.steps[1].error == "time limit of 0.05 s"
    trace = run(tool_loop(ReplayModel([asks(("nap", {})), "never"])), tools=[tool(nap)], seconds=0.05)
    assert trace.end == "time limit"


def test_a_cut_or_refused_reply_is_an_end_of_its_own():
    assert run(tool_loop(ReplayModel([Choice("It is", stop_reason="length")]))).end == "length"
    assert run(tool_loop(ReplayModel([Choice("No.", stop_reason="refusal")]))).end == "refusal"
    assert run(react(ReplayModel([Choice("No.", stop_reason="content_filter")]))).end == "refusal"


def test_a_failing_provider_raises_and_leaves_what_was_done():
    model = ReplayModel([asks(("add", {"a": 1, "b": 1})), ProviderError("down")])
    with pytest.raises(ProviderError) as caught:
        run(tool_loop(model))
    trace = partial_trace(caught.value)
    assert trace is not None
    assert (trace.end, trace.turns, trace.tool_calls) == ("error", 1, 1)
    assert "down" in (trace.error or "")


def test_the_last_turn_is_announced():
    model = ReplayModel([asks(("add", {"a": 1, "b": 1})), "5"])
    trace = run(tool_loop(model, last_call="Answer now."), turns=2)
    assert trace.messages[-2] == {"role": "user", "content": "Answer now."}
    assert trace.end == "answer"


def test_a_run_that_has_spent_its_money_or_tool_time_has_last_words():
    def reply(text, cost, call=True):
        made = (ToolCall("c", "nap", "{}"),) if call else ()
        return Reply(
            (Choice(text, tool_calls=made, stop_reason="tool_calls" if call else "stop"),), Usage(1, 1), cost=cost
        )

    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(0.05)
        return ""

    def scripted():
        return ReplayModel([reply("a", 0.4), reply("b", 0.6), reply("c", 0.1, call=False)])

    stopped = run(tool_loop(scripted()), tools=[tool(nap)], cost=1.0)
    assert (stopped.end, stopped.turns, stopped.cost) == ("cost limit", 2, pytest.approx(1.0))
    spoken = run(tool_loop(scripted(), last_call="Submit."), tools=[tool(nap)], cost=1.0)
    assert (spoken.end, spoken.answer, spoken.cost) == ("answer", "c", pytest.approx(1.1))
    assert spoken.messages[-2]["content"] == "Submit."
    stubborn = ScriptedChatModel(lambda m, r: reply("again", 0.6))
    ended = run(tool_loop(stubborn, last_call="Submit."), tools=[tool(nap)], cost=1.0)
    assert (ended.end, ended.turns) == ("cost limit", 3)
    slow = run(tool_loop(scripted()), tools=[tool(nap)], tool_time=0.07)
    assert (slow.end, slow.tool_calls, slow.tool_errors) == ("time limit", 2, 1)
    with pytest.raises(UsageError, match="no known price"):
        run(tool_loop(ReplayModel(["x"])), cost=1.0)


def test_a_model_that_made_its_last_call_is_told_so():
    model = ReplayModel([asks(("add", {"a": 1, "b": 1})), "2"])
    trace = run(tool_loop(model, last_call="No more calls."), tool_calls=1)
    assert (trace.end, trace.answer) == ("answer", "2")
    assert trace.messages[-2]["content"] == "No more calls."
    silent = run(tool_loop(ReplayModel([asks(("add", {"a": 1, "b": 1})), "2"])), tool_calls=1)
    assert (silent.end, silent.turns) == ("answer", 2)
    stubborn = run(tool_loop(forever(), last_call="No more calls."), tool_calls=1)
    assert (stubborn.end, stubborn.turns) == ("tool limit", 2)


def test_pictures_of_tools_are_shown_by_the_user():
    class Camera:
        name, description, parameters = "camera", "A picture.", {"type": "object", "properties": {}}

        async def call(self, arguments):
            return ToolResult("taken", images=("data:image/png;base64,AAAA",))

    trace = run(tool_loop(ReplayModel([asks(("camera", {})), "seen"])), tools=[Camera()])
    assert [m["role"] for m in trace.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert trace.messages[3]["content"][1]["image_url"]["url"].endswith("AAAA")


# -- compaction --------------------------------------------------------------------------------------------------------


def counting(limit=60):
    """A model whose prompt tokens are the words it is shown; it works for six turns."""
    seen = []

    def answer(messages, rng):
        words = sum(len(str(m.get("content") or "").split()) for m in messages)
        seen.append([dict(m) for m in messages])
        last = str(messages[-1].get("content"))
        if last.startswith("The conversation is about"):
            return Reply((Choice("so far: all well"),), Usage(words, 4))
        done = sum(len(s) > 0 for s in seen)
        if done > 8:
            return Reply((Choice("finished"),), Usage(words, 1))
        call = ToolCall(f"k{done}", "add", '{"a": 1, "b": 1}')
        return Reply((Choice("word " * 10, tool_calls=(call,), stop_reason="tool_calls"),), Usage(words, 10))

    return ScriptedChatModel(answer), seen


def test_a_full_context_is_replaced_by_a_summary_and_nothing_is_lost_from_the_trace():
    model, seen = counting()
    trace = run(tool_loop(model, system="Work."), context=40)
    assert trace.end == "answer"
    kinds = [s.kind for s in trace.steps]
    assert "compaction" in kinds
    after = seen[kinds[: kinds.index("compaction") + 1].count("model") + 1]
    assert [m["role"] for m in after] == ["system", "user", "user"]
    assert after[2]["content"].endswith("so far: all well")
    assert sum(m["role"] == "tool" for m in trace.messages) == trace.tool_calls


def test_a_window_hides_old_turns_and_parts_no_call_from_its_result():
    model, seen = counting()
    trace = run(tool_loop(model, compaction="window"), context=40)
    assert trace.end == "answer"
    assert any(s.kind == "compaction" and s.info for s in trace.steps)
    for shown in seen:
        assert shown[0]["role"] == "user"
        asked = {c["id"] for m in shown for c in m.get("tool_calls", ())}
        answered = {m["tool_call_id"] for m in shown if m["role"] == "tool"}
        assert asked == answered


def test_a_context_that_the_provider_finds_too_long_is_compacted_once():
    overflow = ProviderError("This model's maximum context length is 100 tokens.", retryable=False)
    model = ReplayModel([asks(("add", {"a": 1, "b": 1})), overflow, "summary", "five"])
    trace = run(tool_loop(model))
    assert (trace.end, trace.answer) == ("answer", "five")
    assert run(tool_loop(ReplayModel([overflow]))).end == "context limit"
    again = [asks(("add", {"a": 1, "b": 1})), overflow, "summary", overflow]
    assert run(tool_loop(ReplayModel(again))).end == "context limit"


# -- text protocols ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "call", "answer"),
    [
        (
            "json",
            '{"thought": "sum", "tool": "add", "arguments": {"a": 2, "b": 3}}',
            '```json\n{"thought": "known", "answer": "5"}\n```',
        ),
        ("json", '{"thought": "sum", "action": {"tool": "add", "arguments": {"a": 2, "b": 3}}}', '{"answer": "5"}'),
        (
            "lines",
            'Thought: sum\nAction: add\nAction Input: {"a": 2, "b": 3}\nObservation: 77\nFinal Answer: 77',
            "Thought: known\nFinal Answer: 5",
        ),
        (
            "tags",
            '<think>maybe <answer>9</answer></think><tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}',
            "<think>known</think><answer>5",
        ),
        (
            "tags",
            "<tool_call><tool_name>add</tool_name><arguments>{'a': 2, 'b': 3}</arguments></tool_call>",
            "<answer> 5 </answer>",
        ),
    ],
)
def test_react_reads_calls_and_answers_from_text(protocol, call, answer):
    model = ReplayModel([call, answer])
    trace = run(react(model, protocol=protocol))
    assert (trace.end, trace.answer) == ("answer", "5")
    assert trace.tool_calls == 1
    assert "5" in model.seen[1][-1]["content"]
    assert trace.messages[trace.steps[1].message]["role"] == "user"
    assert all("tool_calls" not in m for m in trace.messages)


@pytest.mark.parametrize("protocol", ["json", "lines", "tags"])
def test_a_reply_that_says_nothing_is_corrected(protocol):
    good = {"json": '{"answer": "5"}', "lines": "Final Answer: 5", "tags": "<answer>5</answer>"}[protocol]
    model = ReplayModel(["I think it is five", good])
    trace = run(react(model, protocol=protocol))
    assert trace.answer == "5"
    assert "could not be used" in model.seen[1][-1]["content"]
    assert run(react(ScriptedChatModel(lambda m, r: "hm"), protocol=protocol), turns=4).end == "step limit"


def test_plan_writes_a_plan_without_tools_and_revises_it():
    offered = []

    class Watching(ReplayModel):
        async def generate(self, messages, **options):
            offered.append("tools" in options)
            return await super().generate(messages, **options)

    model = Watching(["1. add", asks(("add", {"a": 2, "b": 3})), "1. answer", "5"])
    trace = run(plan(model, revise=2))
    assert offered == [False, True, False, True]
    assert (trace.end, trace.answer) == ("answer", "5")
    assert run(plan(ReplayModel(["1. know", "Final Answer: 5"]), protocol="lines")).answer == "5"


# -- lifting, binding, bad input ---------------------------------------------------------------------------------------


def test_lift_makes_agents_of_models_and_leaves_agents_alone():
    model = ReplayModel(["x"])
    agent = lift(model, "react", protocol="tags")
    assert isinstance(agent, Agent)
    assert lift(agent) is agent
    assert isinstance(model, Actor)
    assert isinstance(agent, Actor)
    assert not isinstance("text", Actor)
    assert agent.name == "react(replay)"
    with pytest.raises(UsageError, match="did you mean 'tool_loop'"):
        lift(model, "tool_lop")
    with pytest.raises(UsageError, match="neither"):
        lift("model")


def test_a_bound_agent_reports_its_calls():
    meter = Meter()
    agent = tool_loop(ReplayModel([asks(("add", {"a": 1, "b": 1}), tokens=(3, 2)), "2"])).bind(meter)
    run(agent)
    (total,) = meter.totals()
    assert total.calls == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Limits(turns=0), "Limit turns is 0"),
        (lambda: Limits(seconds=-1), "Limit seconds"),
        (lambda: tool_loop(ReplayModel([]), compaction="drop"), "kind of compaction"),
        (lambda: react(ReplayModel([]), protocol="xml"), "protocol"),
        (lambda: plan(ReplayModel([]), revise=0), "revise is 0"),
        (lambda: run(tool_loop(ReplayModel(["x"])), tools=[tool(add), tool(add)]), "Two tools are called 'add'"),
        (lambda: asyncio.run(tool_loop(ReplayModel([])).run([], [], limits=Limits())), "no message"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(UsageError, match=words):
        call()


# -- traces ------------------------------------------------------------------------------------------------------------


def test_a_replayed_run_is_the_same_run(tmp_path):
    model, _ = counting()
    trace = run(tool_loop(model, system="Work."), context=40)
    trace = Trace.load(tmp_path / trace.save(tmp_path))
    again = run(tool_loop(trace.replay_model(), system="Work."), tools=trace.replay_tools(TOOLS), context=40)
    assert again.messages == trace.messages
    assert [(s.kind, s.tool, s.prompt_tokens) for s in again.steps] == [
        (s.kind, s.tool, s.prompt_tokens) for s in trace.steps
    ]


def test_what_is_kept_of_a_long_run_grows_with_its_turns_not_with_their_square():
    def kept(turns):
        meter = Meter()
        run(tool_loop(forever()).bind(meter), turns=turns)
        return meter.exchanges

    long = kept(40)
    assert [len(e["messages"]) for e in long] == [1] + [2] * 39
    assert [e.get("continues", 0) for e in long[:3]] == [0, 1, 3]
    whole = []
    for exchange in long:
        whole = whole[: exchange.get("continues", 0)] + exchange["messages"]
    agent = tool_loop(forever())
    assert whole == run(agent, turns=40).messages[:-2]


def test_calls_that_continue_nothing_are_kept_whole():
    model, meter = ReplayModel(["a", "b", "c"]), Meter()
    bound, first = model.bind(meter), {"role": "user", "content": "x"}
    for messages in ([first], [dict(first)], [first, first]):
        asyncio.run(bound.generate(messages))
    assert [len(e["messages"]) for e in meter.exchanges] == [1, 1, 2]
    assert all("continues" not in e for e in meter.exchanges)
