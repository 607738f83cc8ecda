"""Workers and waiting trials: limits, crashes, metering across threads and processes, live objects, exclusive tasks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.core import run as core
from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.errors import TrialTimeout, WorkerLost
from assay.core.executors.pool import Pool
from assay.core.metering import Call, current_meter, current_scope, report_call


def pooled(use):
    """Run ``use(pool)`` with a pool of two workers."""

    async def main():
        pool = Pool(2)
        try:
            return await use(pool)
        finally:
            await pool.close()

    return asyncio.run(main())


def crash(code):
    os._exit(code)


def nap(seconds):
    time.sleep(seconds)
    return seconds


def forked_nap(path):
    """Starts a child that would write a file later on."""
    code = f"import time; time.sleep(2); open({path!r}, 'w').write('alive')"
    subprocess.Popen([sys.executable, "-c", code])
    time.sleep(60)


def spend(tokens):
    report_call(Call("tool", "sum", calls=1, prompt_tokens=tokens))
    return tokens


def refuse(text):
    raise KeyError(text)


def threads():
    return os.environ["OMP_NUM_THREADS"], os.getppid()


def test_a_result_comes_back_with_the_calls_that_were_made():
    value, calls = pooled(lambda pool: pool.call(spend, 7))
    assert value == 7
    assert [(c.role, c.prompt_tokens) for c in calls] == [("tool", 7)]


def test_an_error_in_a_worker_is_the_error_here_and_the_worker_lives_on():
    async def use(pool):
        with pytest.raises(KeyError, match="nothing"):
            await pool.call(refuse, "nothing")
        return (await pool.call(nap, 0))[0], len(pool._all)

    assert pooled(use) == (0, 1)


def test_a_call_past_its_time_is_killed_with_its_children_and_the_next_one_works(tmp_path):
    path = str(tmp_path / "child")

    async def use(pool):
        with pytest.raises(TrialTimeout, match=r"limit of 0\.5 s"):
            await pool.call(forked_nap, path, timeout=0.5)
        return (await pool.call(nap, 0))[0]

    assert pooled(use) == 0
    time.sleep(2.5)
    assert not os.path.exists(path)


def test_a_crashed_worker_is_said_so_and_replaced():
    async def use(pool):
        with pytest.raises(WorkerLost, match="exited with code 9"):
            await pool.call(crash, 9)
        return (await pool.call(nap, 0))[0]

    assert pooled(use) == 0


def test_two_calls_run_side_by_side_and_a_third_waits():
    async def use(pool):
        await asyncio.gather(pool.call(nap, 0), pool.call(nap, 0))
        begun = time.monotonic()
        await asyncio.gather(*(pool.call(nap, 0.3) for _ in range(3)))
        return time.monotonic() - begun

    assert 0.55 < pooled(use) < 1.5


def test_a_worker_has_one_thread_for_arithmetic(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (value, parent), _ = pooled(lambda pool: pool.call(threads))
    assert (value, parent) == ("1", os.getpid())


# -- whole runs ----------------------------------------------------------------------------------------------


class OneTask(Benchmark):
    """A benchmark around one task object."""

    name, title = "one", "One task"

    def __init__(self, task):
        self._task = task

    def tasks(self):
        return [self._task]


class Base(Task):
    name = "base"

    def samples(self):
        return [Sample(f"s{i}", i, 1) for i in range(6)]


class Thing:
    name = "thing"


def carry_out(task, system=None, **engine):
    return core.run(OneTask(task), system or Thing(), loading="toy_loading", engine=core.Engine(**engine))


def calls_of(run, role):
    import polars as pl

    calls = run.records.select("sample", "calls").explode("calls").select("sample", pl.col("calls").struct.unnest())
    return dict(calls.filter(pl.col("role") == role).select("sample", "prompt_tokens").iter_rows())


class Threaded(Base):
    """Calls the model from threads, three ways."""

    async def trial(self, system, sample, ctx):
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(system.ask, sample.input)
        await loop.run_in_executor(None, system.ask, sample.input)
        with ThreadPoolExecutor(1) as own:
            await loop.run_in_executor(own, system.ask, sample.input)
        await ctx.compute(spend, sample.input)
        return Outcome({"x": 1.0})


class Metered:
    """A client that counts, as chat clients do: bound to the meter of a trial."""

    name = "metered"

    def __init__(self, meter=None):
        self.meter = meter

    def bind(self, meter):
        return Metered(meter)

    def ask(self, tokens):
        report_call(Call("subject", "m", calls=1, prompt_tokens=tokens), self.meter)


def test_calls_from_threads_a_rooms_own_pool_and_ctx_compute_are_counted_for_their_trial():
    run = carry_out(Threaded(), Metered())
    assert calls_of(run, "subject") == {f"s{i}": 3 * i for i in range(6)}
    assert calls_of(run, "tool") == {f"s{i}": i for i in range(6)}


class Slow(Base):
    needs = Needs(seconds=0.2)

    async def trial(self, system, sample, ctx):
        await asyncio.sleep(5 if sample.input == 3 else 0)
        return Outcome({"x": 1.0})


def test_a_waiting_trial_past_its_limit_is_a_timeout_record_and_the_others_go_on():
    run = carry_out(Slow())
    assert dict(run.records["status"].value_counts().iter_rows()) == {"ok": 5, "timeout": 1}
    assert "0.2 s" in run.records.filter(run.records["status"] == "timeout")["error"].item()


class Bad(Base):
    def __init__(self, make):
        self.make = make

    async def trial(self, system, sample, ctx):
        return self.make()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Outcome({"x": float("nan")}), "return None where a score does not apply"),
        (lambda: Outcome({"x": float("inf")}), "return None where a score does not apply"),
        (lambda: Outcome({"x": "high"}), "not a number"),
        (lambda: Outcome({"status": 1.0}), "column of every record"),
        (lambda: Outcome(groups={"seed": 1}), "column of every record"),
        (lambda: Outcome(output=object()), "not JSON-able"),
        (lambda: {"x": 1.0}, "must return an Outcome, not dict"),
        (lambda: 1 / 0, "division by zero"),
    ],
)
def test_a_trial_that_returns_nonsense_is_an_error_record_with_a_sentence(make, sentence):
    run = carry_out(Bad(make))
    assert run.records["status"].unique().to_list() == ["error"]
    assert sentence in run.records["error"][0]


def test_unexpected_exceptions_are_tried_again_and_the_number_of_tries_is_kept():
    seen = []

    def flaky():
        seen.append(1)
        if len(seen) % 2:
            raise RuntimeError("once")
        return Outcome({"x": 1.0})

    run = carry_out(Bad(flaky), connections=1)
    assert run.records["tries"].unique().to_list() == [2]
    assert run.records["status"].unique().to_list() == ["ok"]
    assert carry_out(Bad(lambda: 1 / 0), tries=1).records["tries"].unique().to_list() == [1]


class Files(Base):
    """Long output, many rows, a file, scratch that outlives a failure."""

    def trial(self, system, sample, ctx):
        marker = ctx.scratch / "tries"
        tries = len(marker.read_text()) if marker.exists() else 0
        marker.write_text("x" * (tries + 1))
        if tries == 0 and sample.input == 2:
            raise RuntimeError("killed before the checkpoint was used")
        (ctx.artifacts / "curve.txt").write_text("1 2 3")
        rows = [{"epoch": e, "loss": 1.0 / (e + 1)} for e in range(500)]
        return Outcome({"before": float(tries)}, output="y" * 100_000, rows=rows)


def test_long_outputs_and_many_rows_are_spilled_files_hashed_and_scratch_kept_between_tries():
    run = carry_out(Files(), workers=0)
    assert run.records["status"].unique().to_list() == ["ok"]
    assert dict(run.records.select("sample", "before").iter_rows()) == {f"s{i}": float(i == 2) for i in range(6)}
    assert not list((run.path / "scratch").rglob("tries"))
    assert run.output("base", "s1") == "y" * 100_000
    assert run.rows("base").height == 6 * 500
    artifact = next(a for a in run.records["artifacts"][0] if a["path"].endswith("curve.txt"))
    assert artifact["bytes"] == 5
    assert len(artifact["sha256"]) == 64
    assert (run.path / artifact["path"]).read_text() == "1 2 3"


class Alone(Base):
    """Notes how many of it run at once."""

    needs = Needs(exclusive=True)
    together, most = 0, 0

    async def trial(self, system, sample, ctx):
        cls = type(self)
        cls.together += 1
        cls.most = max(cls.most, cls.together)
        await asyncio.sleep(0.01)
        cls.together -= 1
        return Outcome({"x": 1.0})


def test_exclusive_trials_run_one_at_a_time():
    carry_out(Alone())
    assert Alone.most == 1


class Local(Base):
    def trial(self, system, sample, ctx):
        return Outcome({"x": float(system(sample.input))}, output=threading.current_thread().name)


def test_a_live_object_that_cannot_be_pickled_is_used_in_this_process():
    local = lambda number: number + 1  # noqa: E731
    run = carry_out(Local(), local)
    assert run.records["x"].to_list() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert "assay-compute" in run.output("base", "s0")


def test_a_run_can_be_started_inside_a_running_event_loop():
    async def notebook():
        return carry_out(Slow())

    assert asyncio.run(notebook()).records.height == 6


def test_seeds_do_not_depend_on_the_number_of_workers():
    one, two = (core.run("toy", "method:doubler", loading="toy_loading", engine=core.Engine(workers=w)) for w in (1, 2))
    assert one.records["seed"].to_list() == two.records["seed"].to_list()


def test_a_key_in_an_error_never_reaches_the_record(tmp_path):
    key = "sk-" + "a1B2" * 8

    def leak():
        raise RuntimeError(f"refused with {key}")

    run = carry_out(Bad(leak))
    assert key not in run.records["error"][0]
    for path in Path(run.path).rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes()


def test_a_run_leaves_no_meter_and_no_scope_behind():
    carry_out(Slow())
    assert current_scope.get() is None
    assert current_meter.get() is None


class Instant(Base):
    """Never really waits, as trials answered from the cache; notes when the loop had time for something else."""

    heard: list[int] = []

    def samples(self):
        return [Sample(f"s{i}", i, 1) for i in range(30_000)]

    async def trial(self, system, sample, ctx):
        if sample.input == 0:
            asyncio.get_running_loop().call_later(0.1, self.heard.append, 1)
        return Outcome({"x": 1.0}, output=len(self.heard))


def test_trials_that_never_wait_do_not_keep_signals_and_timers_from_being_heard():
    run = carry_out(Instant())
    assert run.records.height == 30_000
    assert "1" in set(run.records["output"])
