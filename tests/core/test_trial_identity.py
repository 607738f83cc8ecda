"""A system can know whose trial it answers, say who answered, wait for people, and put a trial off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from toy_loading import __name__ as LOADING

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.engine import Engine
from assay.core.errors import AssayError, TrialPostponed
from assay.core.metering import current_trial, report_answer
from assay.core.run import RunInterrupted, resume, run


class Asking(Task):
    name = "asking"
    needs = Needs(seconds=0.05)

    def samples(self):
        return [Sample(f"s{i}", i, groups={"taken": "mine"}) for i in range(40)]

    async def trial(self, system, sample, ctx):
        return Outcome({"x": float(await system.answer(sample.input))}, groups={"own": "room"})


class Toy(Benchmark):
    name, title = "asking-toy", "Asking"

    def tasks(self):
        return [Asking()]


class Person:
    """Answers once all 40 have asked: only possible when all are in flight at once, and past the task's limit."""

    name = "person"
    patient = True

    def __init__(self) -> None:
        self.keys = []
        self.all_here = asyncio.Event()

    async def answer(self, number):
        self.keys.append(current_trial.get())
        if len(self.keys) == 40:
            self.all_here.set()
        await self.all_here.wait()
        await asyncio.sleep(0.1)
        report_answer({"respondent": "p-1", "own": "system", "taken": "theirs"}, 2.5)
        return number


def test_people_are_waited_for_all_at_once_and_past_the_limit_and_leave_who_and_how_long(tmp_path):
    person = Person()
    done = run(Toy(), person, loading=LOADING, into=tmp_path / "r", engine=Engine(connections=4))
    assert {k.run for k in person.keys} == {f"r {done.info['created']}"}
    assert sorted((k.task, k.sample, k.attempt, k.index) for k in person.keys) == sorted(
        ("asking", f"s{i}", 0, i) for i in range(40)
    )
    records = done.records
    assert records["status"].to_list() == ["ok"] * 40
    assert records["respondent"].unique().to_list() == ["p-1"]
    assert records["seconds"].unique().to_list() == [2.5]
    # What the room says itself stands above what the system says, and a sample's groups above both.
    assert records["own"].unique().to_list() == ["room"]
    assert records["taken"].unique().to_list() == ["mine"]
    assert current_trial.get() is None


class Moody:
    """Patient; fails at one question and never answers the others."""

    name = "moody"
    patient = True

    def __init__(self, error) -> None:
        self.error = error

    async def answer(self, number):
        if number == 7:
            await asyncio.sleep(0.05)
            raise self.error
        await asyncio.Event().wait()


@pytest.mark.parametrize("error", [AssayError("too much"), TrialPostponed("too much")])
def test_a_run_that_stops_does_not_wait_for_people(tmp_path, error):
    with pytest.raises(RunInterrupted, match=r"too much|1 trials ended in an error"):
        run(Toy(), Moody(error), loading=LOADING, into=tmp_path / "r", engine=Engine(max_errors=0))
    from assay.core.results import Run

    assert Run(tmp_path / "r").records.height == (0 if isinstance(error, TrialPostponed) else 1)


class Leaver:
    """Leaves at the third question."""

    name = "leaver"

    def __init__(self) -> None:
        self.asked = 0

    async def answer(self, number):
        self.asked += 1
        if self.asked == 3:
            raise TrialPostponed("The person left.")
        return number


def test_a_trial_put_off_stops_the_run_and_stays_pending(tmp_path):
    with pytest.raises(RunInterrupted, match="The person left"):
        run(Toy(), Leaver(), loading=LOADING, into=tmp_path / "r", engine=Engine(connections=1))
    from assay.core.results import Run

    stopped = Run(Path(tmp_path / "r"))
    assert stopped.records.height == 2
    leaver = Leaver()
    leaver.asked = 3
    done = resume(stopped, loading=LOADING, benchmark=Toy(), system=leaver, engine=Engine(connections=1))
    assert done.status == "finished"
    assert leaver.asked == 3 + 38
    assert done.records["status"].to_list() == ["ok"] * 40
