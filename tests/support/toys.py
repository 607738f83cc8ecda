"""Small benchmarks, one for each hook of the core interface, and systems to run them on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from typing import Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.metering import Call, report_call
from assay.core.metrics import mean, ratio
from assay.core.table import Table


@runtime_checkable
class Answerer(Protocol):
    """Answers a number."""

    def answer(self, number: int) -> int: ...


class Doubler:
    """Doubles; ``log`` gets a line an answer, so that tests can count across processes."""

    name = "doubler"

    def __init__(self, log: str = "", pause: float = 0.0) -> None:
        self.log = log
        self.pause = pause

    def answer(self, number: int) -> int:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{number}\n")
        if self.pause:
            time.sleep(self.pause)
        return 2 * number


class Plain(Task):
    """Computes in a worker: right when the number is doubled."""

    name = "plain"
    system = Answerer

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def samples(self):
        return [Sample(f"s{i}", i, 2 * i, {"parity": i % 2}) for i in range(self.n)]

    def trial(self, system, sample, ctx):
        answer = system.answer(sample.input)
        return Outcome({"correct": float(answer == sample.target)}, output=answer)


class Toy(Benchmark):
    """The plainest benchmark."""

    name, title = "toy", "Doubling numbers"
    metrics = (mean("correct", headline=True),)

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def tasks(self):
        return [Plain(self.n)]

    def methods(self):
        return {"doubler": Doubler}


class Waiting(Task):
    """Waits in the event loop; the judge's verdict count is a ratio of sums (items met / items)."""

    name = "judged"
    system = Answerer

    def __init__(self, n: int, pause: float = 0.0, crash: tuple[int, ...] = ()) -> None:
        self.n, self.pause, self.crash = n, pause, crash

    def samples(self):
        return [Sample(f"q{i}", i, "rubric", {"n_items": 1 + i % 3}, cluster=f"paper{i // 2}") for i in range(self.n)]

    async def trial(self, system, sample, ctx):
        await asyncio.sleep(self.pause)
        if sample.input in self.crash:
            raise ConnectionError("the provider is away")
        report_call(Call("subject", "toy", calls=1, prompt_tokens=3, completion_tokens=2, cost=0.001, paid=0.001))
        return Outcome(output=system.answer(sample.input))

    async def score(self, sample, output, ctx):
        report_call(Call("judge", "toy-judge", calls=1, prompt_tokens=7, completion_tokens=1, cost=0.01, paid=0.01))
        met = min(sample.groups["n_items"], output % 4)
        return Outcome({"met": met}, rows=[{"item": k, "met": k < met} for k in range(sample.groups["n_items"])])


class Judged(Benchmark):
    """Hook: a judge with a micro ratio whose denominator survives crashes."""

    name, title = "toy_judged", "Checklists"
    metrics = (ratio("met", "n_items", name="checklist", headline=True),)

    def __init__(self, n: int = 30, pause: float = 0.0, crash: tuple[int, ...] = ()) -> None:
        self.n, self.pause, self.crash = n, pause, crash

    def tasks(self):
        return [Waiting(self.n, self.pause, self.crash)]

    def methods(self):
        return {"doubler": Doubler}


@runtime_checkable
class Encoder(Protocol):
    """Encodes all numbers at once."""

    def encode(self, numbers: list[int]) -> list[int]: ...


class ModuloEncoder:
    """Remainders by seven."""

    name = "modulo"

    def __init__(self, log: str = "") -> None:
        self.log = log

    def encode(self, numbers):
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{len(numbers)}\n")
        return [n % 7 for n in numbers]


class Items(Task):
    """The same items for people-like and encoder-like systems."""

    name = "items"
    system = Answerer

    def samples(self):
        return [Sample(f"i{i}", i, i % 7) for i in range(24)]

    def trial(self, system, sample, ctx):
        return Outcome(output=system.answer(sample.input) // 2 % 7)

    def score(self, sample, output, ctx):
        return Outcome({"correct": float(output == sample.target)})


class ItemsEncoded(Items):
    """All items of an attempt in one call; outputs depend on who shares the batch (as a fit would)."""

    system = Encoder
    attempts = 3

    def batch_key(self, trial):
        return trial.attempt

    def trials(self, system, batch, ctx):
        codes = system.encode([t.sample.input for t in batch])
        time.sleep(0.05)
        shift = 0 if len(batch) == 24 else 1
        return [
            Outcome(output=(c + shift) % 7, rows=[{"step": s, "loss": 1 / (s + 1)} for s in range(3)]) for c in codes
        ]


class TwoProtocols(Benchmark):
    """Hook: two protocols on the same items, one of them batched, with curves."""

    name, title = "toy_items", "Remainders"
    metrics = (mean("correct", headline=True),)

    def tasks(self):
        return [Items(), _renamed(ItemsEncoded(), "items_encoded")]

    def methods(self):
        return {"doubler": Doubler, "modulo": ModuloEncoder}


def _renamed(task, name):
    task.name = name
    return task


class Hidden(Task):
    """Truth may be absent; some trials crash their process."""

    name = "hidden"
    system = Answerer
    needs = Needs(seconds=1.0, memory_gb=0.6)

    def __init__(self, truth: str, trouble: str) -> None:
        self.truth, self.trouble = truth, trouble

    def samples(self):
        known = json.loads(Path(self.truth).read_text()) if self.truth else {}
        return [Sample(f"h{i}", i, known.get(f"h{i}"), {"pair": i % 3}) for i in range(12)]

    def trial(self, system, sample, ctx):
        if sample.input == 5:
            if self.trouble == "crash":
                os._exit(3)
            if self.trouble == "hang":
                time.sleep(60)
            if self.trouble == "memory":
                hog = bytearray(1_200_000_000)
                hog[::4096] = b"x" * len(hog[::4096])
                time.sleep(5)
        (ctx.artifacts / "prediction.txt").write_text(str(system.answer(sample.input)))
        return Outcome(output="prediction.txt")

    def score(self, sample, output, ctx):
        error = abs(float((ctx.artifacts / output).read_text()) - sample.target)
        return Outcome({"short": 100.0 - error})


class HiddenTruth(Benchmark):
    """Hook: a hidden target, crashes that cost -100, a referee's rescore."""

    name, title = "toy_hidden", "Forecasts"
    metrics = tuple(mean("short", name=f"E{p}", where={"pair": p}, error=-100.0) for p in range(3))

    def __init__(self, truth: str = "", trouble: str = "") -> None:
        self.truth, self.trouble = truth, trouble

    def tasks(self):
        return [Hidden(self.truth, self.trouble)]

    def methods(self):
        return {"doubler": Doubler}


class LiveState(Task):
    """A live counter, entered once a process and closed for certain; four attempts."""

    name = "live"
    system = Answerer
    attempts = 4

    def __init__(self, log: str, pause: float = 0.0) -> None:
        self.log, self.pause = log, pause

    def samples(self):
        return [Sample(f"l{i}", i, 1) for i in range(6)]

    @contextlib.asynccontextmanager
    async def setup(self, system, ctx):
        self._note("open")
        try:
            yield {"served": 0}
        finally:
            self._note("close")

    def _note(self, word: str) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(word + "\n")

    async def trial(self, system, sample, ctx):
        ctx.state["served"] += 1
        # With a pause trials end one after the other, so that a run can be killed between them.
        await asyncio.sleep(0.02 + self.pause * (6 * ctx.attempt + sample.input))
        value = await ctx.compute(slow_square, system.answer(sample.input) // 2, timeout=5.0)
        right = (value + ctx.attempt) % 2 == 0
        return Outcome({"success": float(right)}, groups={"end": "done"})


def slow_square(number: int) -> int:
    """A computation for ``ctx.compute``."""
    return number * number


class Live(Benchmark):
    """Hook: live shared state with four attempts."""

    name, title = "toy_live", "A live world"
    metrics = (mean("success", name="pass@1", headline=True),)

    def __init__(self, log: str = "", pause: float = 0.0) -> None:
        self.log, self.pause = log, pause

    def tasks(self):
        return [LiveState(self.log, self.pause)]

    def methods(self):
        return {"doubler": Doubler}


def spread(runs, *, column: str = "correct") -> Table:
    """Hook: an analysis over several runs."""
    import polars as pl

    frame = runs.records.group_by("system", maintain_order=True).agg(
        pl.col(column).mean().alias("mean"), pl.len().alias("n")
    )
    return Table("spread", "Mean by system", frame.sort("mean"))


def square(item: int) -> dict:
    """One step of the toy recipe."""
    return {"item": item, "square": item * item}


def squares(out: Path, *, n: int = 10) -> None:
    """Hook: a recipe on resumable_map."""
    from assay.core.map import resumable_map

    rows = list(resumable_map(square, range(n), key=str, out=out))
    (out / "squares.json").write_text(json.dumps(rows))


Toy.analyses = {"spread": spread}
Toy.recipes = {"squares": "toys:squares"}


class ToyPerson:
    """Answers wrongly now and then."""

    name = "person"

    def answer(self, number: int) -> int:
        return 2 * number + (number % 5 == 0)


class Asked(Task):
    """Asks a chat model one number a sample; deterministic answers from the loopback server."""

    name = "asked"

    def __init__(self, n: int, log: str, attempts: int) -> None:
        from assay.systems.chat.model import ChatModel

        self.system = ChatModel
        self.n, self.log, self.attempts = n, log, attempts

    def samples(self):
        return [Sample(f"n{i}", i, str(i % 5), {"fifth": i % 5}) for i in range(self.n)]

    async def trial(self, system, sample, ctx):
        reply = await system.generate([{"role": "user", "content": f"number {sample.input}"}], max_tokens=8)
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{time.time()} {sample.id} {ctx.attempt}\n")
        return Outcome(output=reply.text, groups={"stop_reason": reply.stop_reason})

    def score(self, sample, output, ctx):
        return Outcome({"correct": float(output.strip() == sample.target)})


class Quiz(Benchmark):
    """Questions to a chat model over HTTP."""

    name, title = "toy_quiz", "Numbers modulo five"
    metrics = (mean("correct", headline=True),)

    def __init__(self, n: int = 40, log: str = "", attempts: int = 1) -> None:
        self.n, self.log, self.attempts = n, log, attempts

    def tasks(self):
        return [Asked(self.n, self.log, self.attempts)]


def fifth(body: dict) -> str:
    """What the loopback server answers to `Quiz`: right for three numbers of four."""
    number = int(body["messages"][-1]["content"].split()[-1])
    return str(number % 5 if number % 4 else (number + 1) % 5)
