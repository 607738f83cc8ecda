"""Toy benchmarks for faults: long rows, hungry trials, trials with a limit. Built as objects, importable by workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.metrics import mean


@runtime_checkable
class Any_(Protocol):
    """Anything with a name."""

    name: str


class Plain:
    """A system that does nothing."""

    name = "plain"


class _Toy(Task):
    system = Any_

    def __init__(self, n: int, log: str = "") -> None:
        self.n, self.log = n, log

    def samples(self):
        return [Sample(f"s{i}", i, 1) for i in range(self.n)]

    def note(self, sample):
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{sample.id}\n")


class LongRows(_Toy):
    name = "long"

    def trial(self, system, sample, ctx):
        return Outcome({"x": float(sample.input)}, rows=[{"step": s, "value": s * sample.input} for s in range(300)])


class Long(Benchmark):
    """Trials whose rows are kept in files of their own."""

    name, title = "fault_long", "Long rows"
    metrics = (mean("x", headline=True),)

    def __init__(self, n: int = 4) -> None:
        self.n = n

    def tasks(self):
        return [LongRows(self.n)]


class Hungry(_Toy):
    """Trial 3 asks for more memory than the process may have, in a way Python hears of or, ``hard``, does not."""

    name = "hungry"

    def __init__(self, n: int, hard: bool) -> None:
        super().__init__(n)
        self.hard = hard

    def trial(self, system, sample, ctx):
        import resource

        if sample.input == 3:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            limit = used + 200 * 2**20
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
            if self.hard:
                import ctypes

                ctypes.CDLL(None).abort()
            hog = []
            while True:
                hog.append(bytearray(2**24))
        return Outcome({"x": 1.0})


class Hog(Benchmark):
    """A trial that runs out of memory."""

    name, title = "fault_hog", "Hungry trials"
    metrics = (mean("x", headline=True),)

    def __init__(self, n: int = 12, hard: bool = False) -> None:
        self.n, self.hard = n, hard

    def tasks(self):
        return [Hungry(self.n, self.hard)]


class Ticking(_Toy):
    """Computes for ``pause`` seconds by the monotonic clock, under a limit; notes each trial."""

    name = "ticking"
    needs = Needs(seconds=20.0)

    def __init__(self, n: int, pause: float, log: str) -> None:
        super().__init__(n, log)
        self.pause = pause

    def trial(self, system, sample, ctx):
        self.note(sample)
        time.sleep(self.pause)
        return Outcome({"x": 1.0, "left": ctx.deadline - time.monotonic()})


class WaitingTicking(Ticking):
    name = "waiting"

    async def trial(self, system, sample, ctx):
        import asyncio

        self.note(sample)
        await asyncio.sleep(self.pause)
        return Outcome({"x": 1.0, "left": ctx.deadline - time.monotonic()})


class Ticks(Benchmark):
    """Trials that take a known time, computing and waiting."""

    name, title = "fault_ticks", "Trials of a known length"
    metrics = (mean("x", headline=True), mean("left"))

    def __init__(self, n: int = 20, pause: float = 0.1, log: str = "", waits: bool = True) -> None:
        self.n, self.pause, self.log, self.waits = n, pause, log, waits

    def tasks(self):
        computing = Ticking(self.n, self.pause, self.log)
        return [computing, WaitingTicking(self.n, self.pause, self.log)] if self.waits else [computing]
