"""Benchmarks for clusters: who computed what, who loaded the data, what a trial was given."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import numpy as np
from toys import Answerer, Doubler

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.metering import Call, current_scope, report_call
from assay.core.metrics import mean


def note(log: str, line: str) -> None:
    """Append a line; short appends are whole."""
    if log:
        with Path(log).open("a") as file:
            file.write(line + "\n")


class Loading(Task):
    """Samples of a data set that is loaded, by whoever loads it, with a line in a log; the last twenty trials wait for
    a file called ``gate``."""

    name = "loading"
    system = Answerer
    attempts = 2

    def __init__(self, n: int, log: str, pause: float, gate: str, needs: Needs) -> None:
        self.n, self.log, self.pause, self.gate, self.needs = n, log, pause, gate, needs
        self._data = None

    def data(self) -> np.ndarray:
        if self._data is None:
            note(self.log, f"load {os.getpid()}")
            self._data = np.random.default_rng(0).normal(size=(self.n, 64))
        return self._data

    def samples(self):
        self.data()
        return [Sample(f"p{i}", i, None, {"third": i % 3}) for i in range(self.n)]

    def trial(self, system, sample, ctx):
        if self.pause:
            time.sleep(self.pause)
        while self.gate and ctx.attempt and sample.input >= self.n - 20 and not Path(self.gate).exists():
            time.sleep(0.02)
        ctx.progress(1, 2, step=sample.input)
        row = self.data()[sample.input]
        # Data are the trial's own to write on, as in a process that loaded them by itself.
        row *= 2.0
        row /= 2.0
        noise = float(ctx.rng.normal())
        note(self.log, f"trial {os.getpid()} {sample.id} {ctx.attempt}")
        if sample.input % 7 == 0:
            (ctx.artifacts / "row.npy").write_bytes(row.tobytes())
        return Outcome(
            {"mean": float(row.mean()) + noise},
            output={"number": system.answer(sample.input), "text": "x" * (70_000 if sample.input == 5 else 3)},
            rows=[{"k": k, "value": float(row[k % 64])} for k in range(300 if sample.input == 9 else 2)],
        )


class Spread(Benchmark):
    """Computing trials on data that are worth loading once."""

    name, title = "toy_spread", "Rows of a matrix"
    metrics = (mean("mean", headline=True),)

    def __init__(self, n: int = 40, log: str = "", pause: float = 0.0, gate: str = "") -> None:
        self.n, self.log, self.pause, self.gate = n, log, pause, gate

    def tasks(self):
        return [Loading(self.n, self.log, self.pause, self.gate, Needs())]

    def methods(self):
        return {"doubler": Doubler}


class Given(Task):
    """Tells what a trial was given."""

    name = "given"
    system = Answerer

    def __init__(self, n: int, pause: float, needs: Needs) -> None:
        self.n, self.pause, self.needs = n, pause, needs

    def samples(self):
        return [Sample(f"g{i}", i) for i in range(self.n)]

    def trial(self, system, sample, ctx):
        begun = time.time()
        time.sleep(self.pause)
        told = {
            "worker": os.getpid(),
            "agent": os.getppid(),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "threads": os.environ.get("OMP_NUM_THREADS", ""),
            "begun": begun,
            "ended": time.time(),
        }
        return Outcome({"one": 1.0}, output=told)


class Resources(Benchmark):
    """What a trial gets of what it needs."""

    name, title = "toy_given", "Resources"
    metrics = (mean("one", headline=True),)

    def __init__(
        self, n: int = 12, pause: float = 0.1, cpus: float = 1.0, gpus: float = 0.0, memory: float = 0.0,
        exclusive: bool = False,
    ) -> None:  # fmt: skip
        self.n, self.pause = n, pause
        self.needs = Needs(cpus=cpus, gpus=gpus, memory_gb=memory or None, exclusive=exclusive)

    def tasks(self):
        return [Given(self.n, self.pause, self.needs)]

    def methods(self):
        return {"doubler": Doubler}


def marked(item: tuple[int, str]) -> dict:
    """A square and who computed it; the process of number seven ends the first time."""
    number, once = item
    time.sleep(0.1)
    if number == 7 and not Path(once).exists():
        Path(once).touch()
        os._exit(1)
    return {"square": number * number, "pid": os.getpid()}


def cube(number: int) -> int:
    """A computation for ``ctx.compute``."""
    return number**3


class Episode(Task):
    """Waits and computes by turns, in a world that is entered once a process."""

    name = "episode"
    system = Answerer

    def __init__(self, n: int, pause: float, log: str) -> None:
        self.n, self.pause, self.log = n, pause, log

    def samples(self):
        return [Sample(f"e{i}", i, 2 * i) for i in range(self.n)]

    @contextlib.asynccontextmanager
    async def setup(self, system, ctx):
        note(self.log, f"open {os.getpid()}")
        try:
            yield {"steps": 3}
        finally:
            note(self.log, f"close {os.getpid()}")

    async def trial(self, system, sample, ctx):
        note(self.log, f"in {os.getpid()} {time.time()}")
        total = 0
        for step in range(ctx.state["steps"]):
            await asyncio.sleep(self.pause)
            total += await ctx.compute(cube, sample.input + step)
        note(self.log, f"out {os.getpid()} {time.time()}")
        return Outcome({"total": float(total)}, output=system.answer(sample.input), groups={"end": "done"})

    def score(self, sample, output, ctx):
        return Outcome({"correct": float(output == sample.target)})


class Episodes(Benchmark):
    """Waiting trials with live state and computations."""

    name, title = "toy_episodes", "Episodes"
    metrics = (mean("correct", headline=True),)

    def __init__(self, n: int = 20, pause: float = 0.01, log: str = "") -> None:
        self.n, self.pause, self.log = n, pause, log

    def tasks(self):
        return [Episode(self.n, self.pause, self.log)]

    def methods(self):
        return {"doubler": Doubler}


class Steps(Task):
    """Three steps, a checkpoint after each; its process ends after the first two."""

    name = "steps"
    system = Answerer

    def samples(self):
        return [Sample(f"c{i}", i) for i in range(3)]

    def trial(self, system, sample, ctx):
        file = ctx.scratch / "steps"
        done = int(file.read_text()) if file.exists() else 0
        file.write_text(str(done + 1))
        if done < 2:
            os._exit(1)
        return Outcome({"steps": float(done + 1)})


class Checkpoints(Benchmark):
    """Trials that go on where their process ended."""

    name, title = "toy_steps", "Steps"
    metrics = (mean("steps", headline=True),)

    def tasks(self):
        return [Steps()]

    def methods(self):
        return {"doubler": Doubler}


class Buying(Task):
    """Every trial may cost a dollar, and costs 60 cents."""

    name = "buying"
    system = Answerer

    def __init__(self, n: int) -> None:
        self.n = n

    def samples(self):
        return [Sample(f"b{i}", i) for i in range(self.n)]

    async def trial(self, system, sample, ctx):
        scope = current_scope.get()
        scope.budget.reserve(1.0)
        await asyncio.sleep(0.05)
        scope.budget.settle(1.0, 0.6)
        report_call(Call("subject", "toy", calls=1, cost=0.6, paid=0.6))
        return Outcome({"bought": 1.0})


class Paid(Benchmark):
    """Trials that cost money."""

    name, title = "toy_paid", "Buying"
    metrics = (mean("bought", headline=True),)

    def __init__(self, n: int = 40) -> None:
        self.n = n

    def tasks(self):
        return [Buying(self.n)]

    def methods(self):
        return {"doubler": Doubler}
