"""Agents and episodes as trials of a run: metered, recorded, with their traces as files and their steps as rows."""

from __future__ import annotations

import polars as pl

import assay
from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.metrics import mean
from assay.report.exchange import ImageBudget, read_exchange
from assay.systems.agent import Actor, Limits, lift, play, react
from assay.systems.chat.model import Choice, ToolCall
from assay.systems.scripted import ScriptedChatModel
from assay.systems.tools import tool
from assay.systems.trace import Trace


def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


class Doubling(Task):
    """One question a sample, answered with a tool."""

    name = "doubling"
    system = Actor

    def samples(self):
        return [Sample(str(n), n, 2 * n) for n in range(5)]

    async def trial(self, system, sample, ctx):
        agent = lift(system, "tool_loop")
        task = [{"role": "user", "content": f"double {sample.input}"}]
        trace = await agent.run(task, [tool(double)], limits=Limits(turns=4))
        scores = {"correct": float(trace.answer == str(sample.target)), **trace.scores()}
        return Outcome(scores, trace.save(ctx.artifacts), {"end": trace.end}, trace.rows())


class Steps:
    """Three steps forward."""

    def reset(self, seed=None):
        self.place = 0
        return "go", {}

    def step(self, action):
        self.place += action == "forward"
        return str(self.place), float(action == "forward"), self.place == 3, False, {}


class Walking(Task):
    """One episode a sample."""

    name = "walking"
    system = Actor

    def samples(self):
        return [Sample(str(n), n) for n in range(3)]

    async def trial(self, system, sample, ctx):
        trace = await play(system, Steps(), limits=Limits(turns=6), seed=sample.input)
        return Outcome({"correct": float(trace.end == "terminated")}, trace.save(ctx.artifacts), {"end": trace.end})


class Bench(Benchmark):
    """Doubling and walking."""

    name = "bench-of-agents"
    title = "Agents"
    metrics = (mean("correct", name="accuracy", headline=True, bounds=(0, 1)),)

    def tasks(self):
        return [Doubling(), Walking()]


def answer(messages, rng):
    last = messages[-1]
    if last["role"] == "tool":
        return last["content"]
    asked = str(last["content"]).split()
    if asked[0] == "double":
        return Choice("", tool_calls=(ToolCall("c", "double", f'{{"n": {asked[1]}}}'),), stop_reason="tool_calls")
    return "forward"


def test_a_model_and_an_agent_run_the_same_benchmark(tmp_path):
    run = assay.run(Bench(), ScriptedChatModel(answer, name="model"), into=tmp_path / "model")
    assert {s.metric: s.value for s in run.scores(metrics=Bench.metrics) if not s.by} == {"accuracy": 1.0}
    records = run.records.filter(pl.col("task") == "doubling")
    assert records["end"].to_list() == ["answer"] * 5
    assert [calls[0]["calls"] for calls in records["calls"].to_list()] == [2] * 5
    assert run.records.filter(pl.col("task") == "walking")["calls"].to_list()[0][0]["calls"] == 3
    steps = run.rows("doubling")
    assert steps.filter(pl.col("sample") == "3")["kind"].to_list() == ["model", "tool", "model"]
    files = sorted((tmp_path / "model").rglob("trace.json"))
    assert len(files) == 8
    assert {Trace.load(file).end for file in files} == {"answer", "terminated"}
    shown = read_exchange(run.path, records.row(3, named=True), ImageBudget())
    said = [part.text for turn in shown.turns for part in turn.parts if part.kind in ("text", "call", "result")]
    assert [text for text in said if not text.startswith("call ")] == ["double 3", '{"n": 3}', '{"n": 3}', "6", "6"]


def test_an_agent_of_the_users_own_is_the_system(tmp_path):
    texts = ScriptedChatModel(
        lambda messages, rng: (
            '{"tool": "double", "arguments": {"n": 1}}' if "Result of" not in str(messages[-1]) else '{"answer": "2"}'
        )
    )
    run = assay.run(Bench(), react(texts), into=tmp_path / "agent", samples=["1"])
    records = run.records.filter(pl.col("task") == "doubling")
    assert records["correct"].to_list() == [1.0]
    assert records["calls"].to_list()[0][0]["calls"] == 2
    assert run.system == "react(scripted)"
