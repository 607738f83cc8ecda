"""assay alone on very many trials of a system that answers at once: what to do, folder, number of trials.

plan      load, check and plan a run, without writing anything
kill      run, and kill the process when 95 % are answered: what is left is a journal
restart   resume that journal up to the first new trial, then be killed again
finish    resume it to the end
again     resume a finished run: nothing to do
read      open the folder and take all records into memory
score     open the folder and compute the metric with its interval
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from clock import cpu_seconds, phase, tell

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.metrics import mean

ANSWERED = 0.95
LOADING = "assay.systems.loading"


@runtime_checkable
class Answerer(Protocol):
    """Answers a number."""

    async def answer(self, number: int) -> int: ...


class Doubler:
    """Doubles, wrong at every tenth number; calls ``first`` before an answer, kills the process at ``limit``."""

    name = "doubler"

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.answered = 0
        self.first: Any = None

    async def answer(self, number: int) -> int:
        if self.first is not None:
            self.first()
        self.answered += 1
        if self.answered == self.limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * number if number % 10 else 0


class Doubling(Task):
    """Right when the number is doubled."""

    name = "doubling"
    system = Answerer

    def __init__(self, count: int) -> None:
        self.count = count

    def samples(self) -> list[Sample]:
        return [Sample(f"n{i}", i, 2 * i, {"parity": i % 2}) for i in range(self.count)]

    async def trial(self, system: Answerer, sample: Sample, ctx: Any) -> Outcome:
        return Outcome(output=await system.answer(sample.input), groups={"stop_reason": "stop"})

    def score(self, sample: Sample, output: Any, ctx: Any) -> Outcome:
        return Outcome({"correct": float(output == sample.target)})


class Numbers(Benchmark):
    """One task of very many samples."""

    name, title = "doubling", "Doubling numbers"
    metrics = (mean("correct", headline=True),)

    def __init__(self, count: int) -> None:
        self.count = count

    def tasks(self) -> list[Task]:
        return [Doubling(self.count)]


def plan(count: int, found: dict[str, Any]) -> None:
    from assay.core.prepare import prepare

    # A small plan first: what is measured is planning, not the import of the table library.
    prepare(Numbers(10), Doubler(), loading=LOADING)
    with phase(found, "plan"):
        found["trials"] = prepare(Numbers(count), Doubler(), loading=LOADING).plan.trials


def restart(folder: Path, count: int, found: dict[str, Any]) -> None:
    import assay
    from assay.core.prepare import prepare

    prepare(Numbers(10), Doubler(), loading=LOADING)
    cpu, begun = cpu_seconds(), time.perf_counter()

    def first() -> None:
        found["restart"] = {"cpu": cpu_seconds() - cpu, "wall": time.perf_counter() - begun}
        tell(found)
        os.kill(os.getpid(), signal.SIGKILL)

    system = Doubler()
    system.first = first
    assay.resume(folder, benchmark=Numbers(count), system=system)


def resume(folder: Path, count: int, found: dict[str, Any], name: str) -> None:
    import assay

    system = Doubler()
    with phase(found, name):
        run = assay.resume(folder, benchmark=Numbers(count), system=system)
    found["answered"], found["records"], found["status"] = system.answered, run.info["done"], run.status


def read(folder: Path, found: dict[str, Any]) -> None:
    import polars as pl

    from assay.core.results import Run

    pl.DataFrame({"x": [1]}).lazy().collect()
    with phase(found, "read"):
        records = Run(folder).records
    found["records"], found["correct"] = records.height, records["correct"].sum()


def score(folder: Path, found: dict[str, Any]) -> None:
    from assay.core.results import Run

    with phase(found, "score"):
        (only,) = Run(folder).scores(metrics=Numbers.metrics)
    found["accuracy"], found["n"] = only.value, only.n


def main(what: str, folder: Path, count: int) -> None:
    found: dict[str, Any] = {}
    if what == "plan":
        plan(count, found)
    elif what == "kill":
        import assay

        assay.run(Numbers(count), Doubler(round(ANSWERED * count)), into=folder)
    elif what == "restart":
        restart(folder, count, found)
    elif what in ("finish", "again"):
        resume(folder, count, found, what)
    elif what == "read":
        read(folder, found)
    elif what == "score":
        score(folder, found)
    else:
        raise SystemExit(f"there is no {what!r}")
    tell(found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
