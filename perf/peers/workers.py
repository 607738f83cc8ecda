"""assay with so many workers: executor, workers, trials, milliseconds a trial rests, folder, address of a Ray cluster.

Trials sleep: they take no core, so any number of workers can be had on two cores, and what a trial takes beyond its
rest is what assay adds.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from clock import cpu_seconds, tell

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.metrics import mean


@runtime_checkable
class Rests(Protocol):
    """Rests."""

    def rest(self, seconds: float) -> None: ...


class Sleeper:
    """Sleeps."""

    name = "sleeper"

    def rest(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds)


class Resting(Task):
    """Rests for a while in a worker process."""

    name = "resting"
    system = Rests

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def samples(self) -> list[Sample]:
        return [Sample(f"n{i}", i) for i in range(self.count)]

    def trial(self, system: Rests, sample: Sample, ctx: Any) -> Outcome:
        system.rest(self.seconds)
        return Outcome({"done": 1.0})


class Rest(Benchmark):
    """One task of trials that rest."""

    name, title = "resting", "Resting"
    metrics = (mean("done", headline=True),)

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def tasks(self) -> list[Task]:
        return [Resting(self.count, self.seconds)]


def main(executor: str, workers: int, count: int, milliseconds: float, folder: Path, address: str) -> None:
    import assay

    engine: dict[str, Any] = {"executor": executor, "workers": workers}
    if address:
        engine["address"] = address
    begun = time.perf_counter()
    # Under its importable name: workers do not have this process's __main__.
    from workers import Rest, Sleeper

    run = assay.run(Rest(count, milliseconds / 1000), Sleeper(), into=folder, **engine)
    records = run.records
    started = records["started"].dt.epoch("us") / 1e6
    own = resource.getrusage(resource.RUSAGE_SELF)
    tell(
        {
            "trials": records.height,
            "done": records["done"].sum(),
            "whole": time.perf_counter() - begun,
            # From the first trial's beginning to the last one's end: without starting workers or a cluster.
            "span": float((started + records["seconds"]).max() - started.min()),  # type: ignore[operator]
            "driver_cpu": own.ru_utime + own.ru_stime,
            "cpu": cpu_seconds(),
        }
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]), sys.argv[6])
