"""The Ray executor without a cluster: agents called as they are, what is planned, bounded and refused."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from ray_cluster import title
from toys import Doubler, Toy

from assay.core import run as core
from assay.core.benchmark import Benchmark, Needs
from assay.core.errors import AssayError, MissingExtra, UsageError
from assay.core.execute import Place, make_runners, tasks_by_name
from assay.core.executors import kept
from assay.core.executors.local import Job
from assay.core.executors.ray import MOST_AHEAD, Held, _Stage, resources, room, stages
from assay.core.executors.ray_agent import Agent, Delivery, Reply, Share, _devices, unit_key
from assay.core.executors.ray_budget import Treasury
from assay.core.executors.worker import Recipe
from assay.core.registry import load_benchmark

# -- objects kept on a machine -----------------------------------------------------------------------------------------


@given(st.lists(arrays(st.sampled_from([np.float64, np.int8, np.complex64]), array_shapes(min_side=0)), max_size=4))
def test_kept_arrays_come_back_equal_and_a_write_stays_private(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("kept") / "it"
    shared = values[0] if values else None
    assert kept.save({"arrays": values, "again": shared, "word": "x"}, folder)
    one, other = kept.load(folder), kept.load(folder)
    for found, value in zip(one["arrays"], values, strict=True):
        np.testing.assert_array_equal(found, value)
        found[...] = 1
    assert one["again"] is (one["arrays"][0] if values else None)
    for found, value in zip(other["arrays"], values, strict=True):
        np.testing.assert_array_equal(found, value)


def test_pages_of_a_kept_array_are_in_memory_once(tmp_path):
    assert kept.save(np.ones(8_000_000), tmp_path / "it")
    private = psutil.Process().memory_full_info().uss
    loaded = [kept.load(tmp_path / "it") for _ in range(4)]
    assert sum(a.sum() for a in loaded) == 32_000_000
    assert psutil.Process().memory_full_info().uss - private < 100e6, "four copies would be 256 MB"


def test_what_does_not_pickle_is_not_kept_and_leaves_nothing(tmp_path):
    assert not kept.save(threading.Lock(), tmp_path / "it")
    assert not kept.save(lambda: 1, tmp_path / "it")
    assert list(tmp_path.iterdir()) == []


# -- agents ------------------------------------------------------------------------------------------------------------


def planned(benchmark: str, folder, system="method:doubler", **options):
    """Recipe of a run in a folder, and all its units."""
    bench = load_benchmark(benchmark, **options)
    folder.mkdir(parents=True, exist_ok=True)
    # Agents of one run on one machine share a folder; tests side by side are runs of their own.
    place = Place(folder, folder / "cache", run=f"{folder.name} {folder}")
    recipe = Recipe(benchmark, dict(bench.options), system, "toy_loading:load", place)
    runners = make_runners(tasks_by_name(bench).values(), recipe.live(bench), place)
    units = [
        (name, ((index, attempt),))
        for name, runner in runners.items()
        for attempt in range(runner.task.attempts)
        for index in range(len(runner.samples))
    ]
    return recipe, units


def served(recipe, units, *, lanes=2, connections=4, between=lambda agent, number: None):
    """All replies of an agent that is given all units at once, and what it said in the end."""

    async def main():
        agent = Agent()
        share = Share(recipe.place.run, "session", lanes, connections)
        assert await agent.open(recipe, share) is None
        replies = [await agent.exchange(units, False, 1.0, 0.02)]
        while replies[-1].busy:
            between(agent, len(replies))
            replies.append(await agent.exchange([], False, 1.0, 0.02))
        return replies, await agent.close()

    return asyncio.run(main())


def delivered(replies):
    """Records by key, without what differs from one time to another."""
    found = {}
    for reply in replies:
        for delivery in reply.deliveries:
            for record in json.loads(delivery.array):
                key = (record["task"], record["sample"], record["attempt"])
                assert key not in found, "one unit, one delivery"
                told = {k: v for k, v in record.items() if k not in ("started", "seconds", "cpu_seconds")}
                found[key] = {k: v for k, v in told.items() if k != "peak_memory_mb"}
    return found


@pytest.mark.parametrize(
    ("benchmark", "options"),
    [
        ("toy", {}),
        ("toy_judged", {"crash": (3,)}),
        ("toy_live", {}),
        ("toy_hidden", {"trouble": "crash"}),
        ("toy_hidden", {"trouble": "hang"}),
        ("toy_hidden", {"trouble": "memory"}),
        ("toy_episodes", {"n": 6}),
    ],
)
def test_an_agents_records_are_those_of_a_local_run(tmp_path, benchmark, options):
    recipe, units = planned(benchmark, tmp_path / "agent", **options)
    replies, _ = served(recipe, units)
    found = delivered(replies)
    assert len(found) == len(units)
    run = core.run(
        benchmark, "method:doubler", loading="toy_loading", options=options, into=tmp_path / "local",
        engine=core.Engine(workers=2),
    )  # fmt: skip
    for row in run.records.iter_rows(named=True):
        record = found[row["task"], row["sample"], row["attempt"]]
        assert record.get("status", "ok") == row["status"]
        assert record.get("error_type") == row["error_type"]
        if "killed" not in (row["error"] or ""):
            assert record.get("error") == row["error"]
        assert record["seed"] == row["seed"]
        assert record.get("output") == (None if row["output"] is None else json.loads(row["output"]))
        for name, value in record.get("scores", {}).items():
            assert row[name] == value
        assert [a["sha256"] for a in record.get("artifacts", [])] == [a["sha256"] for a in row["artifacts"]]


def test_workers_killed_from_outside_cost_no_record_and_make_no_error(tmp_path):
    recipe, units = planned("toy_spread", tmp_path / "run", n=30, pause=0.03)
    killed = []

    def kill(agent, number):
        below = psutil.Process().children(recursive=True)
        workers = [p for p in below if "assay.core.executors.worker" in title(p)]
        if workers and len(killed) < 8:
            workers[number % len(workers)].send_signal(signal.SIGKILL)
            killed.append(number)

    found = delivered(served(recipe, units, between=kill)[0])
    assert len(killed) >= 4
    assert len(found) == len(units) == 60
    assert {r.get("status", "ok") for r in found.values()} == {"ok"}


def test_checkpoints_outlive_the_workers_and_the_agent_that_wrote_them(tmp_path):
    recipe, units = planned("toy_steps", tmp_path / "run")
    found = delivered(served(recipe, units)[0])
    assert [r["scores"]["steps"] for r in found.values()] == [3.0] * 3

    async def killed():
        agent = Agent()
        assert await agent.open(recipe, Share(recipe.place.run, "one", 1, 1)) is None
        (agent.outbox._staging / "scratch" / "steps" / "c0.0").mkdir(parents=True)
        (agent.outbox._staging / "scratch" / "steps" / "c0.0" / "steps").write_text("7")
        # Its end is not announced: nothing is cleared away.

    asyncio.run(killed())
    found = delivered(served(recipe, units)[0])
    assert found["steps", "c0", 0]["scores"]["steps"] == 8.0, "the next agent goes on from there"
    assert found["steps", "c1", 0]["scores"]["steps"] == 3.0


def test_data_are_loaded_once_for_all_workers_and_agents_of_a_machine(tmp_path):
    log = tmp_path / "log"
    recipe, units = planned("toy_spread", tmp_path / "run", n=12, log=str(log))
    log.unlink()

    async def main():
        agents = [Agent() for _ in range(3)]
        share = Share(recipe.place.run, "session", 2, 1)
        assert await asyncio.gather(*(a.open(recipe, share) for a in agents)) == [None] * 3
        for number, agent in enumerate(agents):
            reply = await agent.exchange(units[number::3], False, 5.0, 0.1)
            while reply.busy:
                reply = await agent.exchange([], False, 5.0, 0.1)
        await asyncio.gather(*(a.close() for a in agents))

    asyncio.run(main())
    lines = log.read_text().splitlines()
    assert sum(line.startswith("load") for line in lines) == 1
    assert len({line.split()[1] for line in lines if line.startswith("trial")}) >= 3


def test_files_of_a_run_that_the_node_does_not_see_go_along_and_leave_nothing_behind(tmp_path):
    recipe, units = planned("toy_spread", tmp_path / "run", n=12)
    staged = []

    def look(agent, number):
        staged.append(agent.outbox._staging)

    replies, _ = served(recipe, units, between=look)
    files = {name: content for r in replies for d in r.deliveries for name, content in d.files}
    named = {a["path"] for r in delivered(replies).values() for a in r.get("artifacts", [])}
    assert len([n for n in named if n.endswith("row.npy")]) == 4
    assert len([n for n in named if n.endswith("output.json")]) == 2
    assert named < set(files)
    assert sum(n.startswith("journal/rows/") for n in files) == 2, "long tables go along too"
    assert all(len(files[n]) == 512 for n in named if n.endswith("row.npy"))
    assert staged
    assert not staged[0].parent.exists()


def test_a_benchmark_that_a_node_cannot_build_is_refused_in_a_sentence(tmp_path):
    recipe, _ = planned("toy", tmp_path / "run")

    async def opened(recipe):
        return await Agent().open(recipe, Share(recipe.place.run, "s"))

    said = asyncio.run(opened(replace(recipe, benchmark="no_such")))
    assert "no_such" in said
    assert said.startswith("Node ")


def test_lanes_see_the_gpus_that_are_theirs(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert _devices(2, 2) == ["4,5", "6,7"]
    assert _devices(0.5, 8) == ["4", "4", "5", "5", "6", "6", "7", "7"]
    assert _devices(1, 3) == ["4", "5", "6"]
    assert _devices(0, 3) == []


# -- the driver's side -------------------------------------------------------------------------------------------------

needs = st.builds(
    Needs,
    cpus=st.sampled_from([0, 0.25, 0.5, 1, 2, 3.0]),
    gpus=st.sampled_from([0, 0.25, 0.5, 1, 2]),
    memory_gb=st.sampled_from([None, 0.5, 3.0]),
    exclusive=st.booleans(),
)
nodes = st.fixed_dictionaries(
    {"CPU": st.integers(0, 64), "GPU": st.integers(0, 8), "memory": st.integers(0, 64).map(lambda gb: gb * 2.0**30)}
)


@given(needs, nodes)
def test_lanes_fit_their_node_and_one_more_would_not(need, free):
    lanes = room(free, need)
    if lanes:
        wanted = resources(need, lanes, free)
        assert all(wanted[kind] <= free[kind] for kind in free)
        assert wanted["GPU"] <= 1 or wanted["GPU"] == int(wanted["GPU"]), "Ray gives out whole GPUs beyond one"
        assert _devices_enough(need.gpus, lanes, wanted["GPU"])
    if need.exclusive:
        assert lanes <= 1
    else:
        more = (lanes + 1) * (need.cpus or 1), (lanes + 1) * need.gpus, (lanes + 1) * (need.memory_gb or 0) * 2**30
        assert any(m > f for m, f in zip(more, (free["CPU"], free["GPU"], free["memory"])))


def _devices_enough(each, lanes, gpus):
    if not each:
        return True
    return lanes * each <= gpus if each >= 1 else (lanes - 1) // int(1 / each) < max(1, gpus)


def test_tasks_of_equal_needs_go_on_together_and_waiting_comes_first(tmp_path):
    task = SimpleNamespace(needs=Needs())

    def runner(waits, needs):
        return SimpleNamespace(is_async=waits, task=SimpleNamespace(needs=needs), system=None)

    runners = {
        "a": runner(False, Needs(seconds=3)),
        "b": runner(True, Needs()),
        "c": runner(False, Needs(seconds=9)),
        "d": runner(False, Needs(cpus=4)),
        "e": runner(True, Needs(exclusive=True)),
    }
    pending = {name: [(name, ((0, 0),))] for name in runners}
    job = Job(runners, pending, None, SimpleNamespace())  # type: ignore[arg-type]
    found = [(waits, [u[0] for u in units]) for _, waits, units in stages(job)]
    assert found == [(True, ["b"]), (True, ["e"]), (False, ["a", "c"]), (False, ["d"])]
    assert task.needs.cpus == 1


@given(st.floats(0, 1e9), st.integers(1, 64), st.integers(0, 50_000))
def test_what_an_agent_holds_is_bounded(rate, width, owed):
    agent = Held("x", SimpleNamespace(), width, width, None)  # type: ignore[arg-type]
    agent.rate = rate
    agent.owed = dict.fromkeys(range(owed))  # type: ignore[arg-type]
    assert len(agent.owed) + max(0, agent.wants(width)) <= max(owed, width + MOST_AHEAD)


class Sink:
    """Notes what it is given."""

    def __init__(self):
        self.stopping, self.arrays, self.reasons = False, [], []

    def encoded(self, array, statuses):
        self.arrays.append(array)

    def shown(self, *told):
        raise AssertionError("nothing is shown here")

    def stop(self, reason):
        self.stopping = True
        self.reasons.append(reason)


def staged(tmp_path, units):
    """A stage with no cluster, and an agent that owes all units."""
    recipe = Recipe("toy", {}, "method:doubler", "toy_loading:load", Place(tmp_path, tmp_path, run="r"))
    sink = Sink()
    ray = SimpleNamespace(put=lambda value: value, kill=lambda handle: None)
    stage = _Stage(ray, Job({}, {}, recipe, sink), recipe, "s", Needs(), False, units, None, 4)  # type: ignore[arg-type]
    place = SimpleNamespace(node="n", name="n")
    agent = Held("x", place, 2, 1, None, {unit_key(u): u for u in units})  # type: ignore[arg-type]
    stage.queue = deque()
    stage.agents["n"] = agent
    return stage, agent, sink


def delivery(unit, files=()):
    key = unit_key(unit)
    array = msgspec.json.encode([{"task": key[0], "index": key[1], "attempt": key[2]}])
    return Delivery(key, array, [("ok", 0.0)], list(files))


def test_what_was_delivered_twice_or_is_not_owed_is_written_once_or_not_at_all(tmp_path):
    units = [("t", ((i, 0),)) for i in range(4)]
    stage, agent, sink = staged(tmp_path, units)
    stage._accept(agent, Reply([delivery(units[0]), delivery(units[0]), delivery(units[1])], [], 2, None, None))
    assert len(sink.arrays) == 2
    stage._lost(agent)
    assert list(stage.queue) == units[2:], "what it owed is to do again"
    stage._accept(agent, Reply([delivery(units[2])], [], 0, None, None))
    assert len(sink.arrays) == 2, "a lost agent owes nothing, so what still comes is dropped"
    assert stage.left == 2


def test_an_agent_that_hangs_is_given_up_and_its_trials_go_to_others(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr("assay.core.executors.ray.STUCK_SECONDS", 0.1)
    units = [("t", ((i, 0),)) for i in range(3)]
    stage, agent, sink = staged(tmp_path, units)
    agent.owed.clear()
    stage.queue = deque(units)
    given = []

    async def open_(recipe, share):
        return None

    async def exchange(units, *rest):
        given.extend(units)
        await asyncio.sleep(60)

    agent.handle = SimpleNamespace(open=SimpleNamespace(remote=open_), exchange=SimpleNamespace(remote=exchange))
    asyncio.run(stage._serve(agent, Share("r", "s")))
    assert given == units[:2], "two lanes"
    assert list(stage.queue) == units
    assert stage.agents == {}
    assert sink.arrays == []


def test_trials_that_end_agent_after_agent_stop_the_run(tmp_path, monkeypatch):
    units = [("t", ((i, 0),)) for i in range(3)]
    stage, agent, sink = staged(tmp_path, units)

    async def look(first):
        stage.agents["n"] = agent
        agent.owed = {unit_key(u): u for u in list(stage.queue) or units}
        stage._lost(agent)

    monkeypatch.setattr(stage, "_look", look)
    with pytest.raises(AssayError, match="lost 40 times without one record in between, at trials of t"):
        asyncio.run(stage.run())
    assert sink.arrays == []
    stage._accept(agent, Reply([], [], 0, None, None))
    assert stage.fruitless == 40
    agent.owed = {unit_key(units[0]): units[0]}
    stage._accept(agent, Reply([delivery(units[0])], [], 0, None, None))
    assert stage.fruitless == 0


def test_files_of_a_delivery_stay_inside_the_run(tmp_path):
    unit = ("t", ((0, 0),))
    stage, agent, sink = staged(tmp_path / "run", [unit])
    (tmp_path / "run").mkdir()
    stage._accept(agent, Reply([delivery(unit, [("artifacts/t/a.0/x", b"1")])], [], 0, None, None))
    assert (tmp_path / "run" / "artifacts" / "t" / "a.0" / "x").read_bytes() == b"1"
    stage, agent, sink = staged(tmp_path / "run", [unit])
    with pytest.raises(Exception, match="outside"):
        stage._accept(agent, Reply([delivery(unit, [("../x", b"1")])], [], 0, None, None))
    assert sink.arrays == []


def test_agents_never_reserve_more_than_the_budget_and_the_lost_ones_calls_count_as_made():
    treasury = Treasury(10.0, 4.0)
    assert treasury.reserve("a", 3.0)[0] is None
    assert treasury.reserve("b", 2.5)[0] is None
    refused, reserved, spent = treasury.reserve("a", 1.0)
    assert "budget of 10 USD" in refused
    assert (reserved, spent) == (5.5, 4.0)
    treasury.settle("a", 3.0, 0.5)
    treasury.forfeit("b")
    refused, reserved, spent = treasury.reserve("a", 3.0)
    assert refused is None
    assert (reserved, spent) == (3.0, 7.0)


class Unportable(Toy):
    """Holds what does not pickle."""

    def __init__(self, n: int = 3) -> None:
        super().__init__(n)
        self.lock = threading.Lock()


def ray_run(tmp_path, benchmark: str | Benchmark = "toy", system="method:doubler", **engine):
    settings = core.Engine(**{"executor": "ray", **engine})
    return core.run(benchmark, system, loading="toy_loading", into=tmp_path / "run", engine=settings)


def test_what_only_this_process_has_is_refused(tmp_path):
    with pytest.raises(UsageError, match="only live in this process"):
        ray_run(tmp_path, Unportable(), Doubler())


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'assay\[ray\]'"):
        ray_run(tmp_path)


def test_addresses_that_do_not_fit_are_refused(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(UsageError, match="Ray Client"):
        ray_run(tmp_path, address="ray://127.0.0.1:10001")
    with pytest.raises(UsageError, match="goes with the executor ray"):
        ray_run(tmp_path / "other", executor="local", address="127.0.0.1:6379")
    assert os.environ.get("RAY_USAGE_STATS_ENABLED") == "0", "nothing calls home"
