"""Runs on a real cluster: several raylets of their own, loopback only, token authentication, killed as we please."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from ray_cluster import Cluster, end_tree, possible, told

from assay.core import run as core
from assay.core.results import Run

pytest.importorskip("ray")
in_a_namespace = pytest.mark.skipif(not possible(), reason="needs root, to make a network namespace")
KILLS = 24


def test_a_run_on_this_machine_alone_through_the_command_line(tmp_path):
    """No cluster at hand: one is made for the run and ended with it."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("0" * 64)
    support = str(Path(__file__).parent.parent / "support")
    environment = {
        **os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token),
        "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)]),
    }  # fmt: skip
    command = [sys.executable, "-m", "assay.cli", "run", "toy", "-s", "method:doubler", "--executor", "ray", "--json"]
    command += ["--workers", "1", "--limit", "8", "--into", str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["status"] == "finished"
    assert Run(tmp_path / "run").records["correct"].to_list() == [1.0] * 8


def same(tmp_path, folder, benchmark, options=None, system="method:doubler", attempts=None):
    """Records, rows and scores are those of a local run with the same seeds, and every planned trial is there once."""
    local = core.run(
        benchmark, system, loading="toy_loading", options=options or {}, into=tmp_path / f"local-{folder.name}",
        attempts=attempts, engine=core.Engine(workers=2),
    )  # fmt: skip
    run = Run(folder)
    measured = ["started", "seconds", "cpu_seconds", "peak_memory_mb"]
    assert run.status == "finished"
    assert_frame_equal(run.records.drop(measured), local.records.drop(measured))
    for task in run.info["tasks"]:
        assert_frame_equal(run.rows(task), local.rows(task))
    keys = run.records.select("task", "sample", "attempt")
    assert keys.n_unique() == keys.height == run.info["trials"]
    for row in run.records.iter_rows(named=True):
        for artifact in row["artifacts"]:
            assert (folder / artifact["path"]).stat().st_size == artifact["bytes"]
    return run


def wait_for(check, seconds=120.0, process=None):
    end = time.monotonic() + seconds
    while not check():
        if process is not None and process.poll() is not None:
            raise AssertionError(process.communicate()[0].decode(errors="replace")[-4000:])
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def three():
    """Three nodes of two cores; one of them has a GPU, as far as Ray knows."""
    with Cluster() as cluster:
        for gpus in (0, 0, 1):
            cluster.add_node(2, gpus=gpus)
        yield cluster


@pytest.mark.slow
@in_a_namespace
@pytest.mark.parametrize(
    ("benchmark", "options", "system"),
    [
        ("toy_spread", {"n": 60}, "method:doubler"),
        ("toy_judged", {"crash": [3, 4]}, "method:doubler"),
        ("toy_items", {}, "method:modulo"),
        ("toy_episodes", {}, "method:doubler"),
        ("toy_hidden", {"trouble": "crash"}, "method:doubler"),
        ("toy_hidden", {"trouble": "hang"}, "method:doubler"),
    ],
)
def test_trials_of_every_kind_give_the_records_of_a_local_run(three, tmp_path, benchmark, options, system):
    """Computing, waiting with a judge, batches, episodes that compute, crashing, hanging."""
    found = three.run(tmp_path / "run", {"benchmark": benchmark, "system": system, "options": options})
    assert found.get("status") == "finished", found
    same(tmp_path, tmp_path / "run", benchmark, options, system)


@pytest.mark.slow
@in_a_namespace
def test_data_are_loaded_once_a_node_and_all_nodes_work(three, tmp_path):
    log = tmp_path / "log"
    options = {"n": 60, "log": str(log), "pause": 0.1}
    found = three.run(tmp_path / "run", {"benchmark": "toy_spread", "system": "method:doubler", "options": options})
    assert found == {"status": "finished", "done": 120, "statuses": {"ok": 120}}
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sum(kind == "load" for kind, *_ in lines) <= 1 + 3, "the driver's, and one a node"
    trials = Counter((s, a) for kind, _, *rest in lines if kind == "trial" for s, a in [rest])
    assert set(trials.values()) == {1}
    assert len({pid for kind, pid, *_ in lines if kind == "trial"}) == 6, "two workers on each of three nodes"


@pytest.mark.slow
@in_a_namespace
def test_what_a_task_needs_is_what_a_trial_gets(three, tmp_path):
    def given(name, **options):
        spec = {"benchmark": "toy_given", "system": "method:doubler", "options": options}
        found = three.run(tmp_path / name, spec)
        assert found.get("status") == "finished", found
        return [json.loads(o) for o in Run(tmp_path / name).records["output"]]

    wide = given("wide", cpus=2.0, n=9, pause=0.3)
    for agent in {t["agent"] for t in wide}:
        spans = sorted((t["begun"], t["ended"]) for t in wide if t["agent"] == agent)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), "two cores a trial, two a node: one at a time"
    assert {t["threads"] for t in wide} == {"1"}
    gpu = given("gpu", gpus=0.5, n=6)
    assert {t["devices"] for t in gpu} == {"0"}
    assert len({t["agent"] for t in gpu}) == 1, "there is one node with a GPU"
    alone = given("alone", exclusive=True, n=6)
    for agent in {t["agent"] for t in alone}:
        assert len({t["worker"] for t in alone if t["agent"] == agent}) == 1


@pytest.mark.slow
@in_a_namespace
@pytest.mark.parametrize(("need", "words"), [({"cpus": 3.0}, "3 cores"), ({"memory": 9e3}, "9000 GB")])
def test_what_no_node_can_hold_is_refused_at_once(three, tmp_path, need, words):
    spec = {"benchmark": "toy_given", "system": "method:doubler", "options": need}
    found = three.run(tmp_path / "run", spec)
    assert found["error"] == "UsageError"
    assert words in found["text"]
    assert "most are 2 cores, 1 GPUs" in found["text"]


@pytest.mark.slow
@in_a_namespace
def test_workers_and_connections_hold_for_all_nodes_together(three, tmp_path):
    spec = {
        "benchmark": "toy_given", "system": "method:doubler", "options": {"n": 20, "pause": 0.1},
        "engine": {"workers": 3},
    }  # fmt: skip
    assert three.run(tmp_path / "run", spec).get("status") == "finished"
    told = [json.loads(o) for o in Run(tmp_path / "run").records["output"]]
    assert most_at_once([(t["begun"], t["ended"]) for t in told]) <= 3
    log = tmp_path / "log"
    spec = {
        "benchmark": "toy_episodes", "system": "method:doubler", "options": {"n": 40, "log": str(log), "pause": 0.05},
        "engine": {"connections": 5},
    }  # fmt: skip
    assert three.run(tmp_path / "episodes", spec).get("status") == "finished"
    events = sorted((float(t), kind) for kind, _, t in (x.split() for x in log.read_text().splitlines() if x[0] in "io"
                    and len(x.split()) == 3))  # fmt: skip
    flying = most = 0
    for _, kind in events:
        flying += 1 if kind == "in" else -1
        most = max(most, flying)
    assert 1 < most <= 5
    closed = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert closed["open"] == closed["close"], "live state is left for certain"


def most_at_once(spans):
    ends = sorted([(b, 1) for b, _ in spans] + [(e, -1) for _, e in spans])
    now = most = 0
    for _, step in ends:
        now += step
        most = max(most, now)
    return most


@pytest.mark.slow
@in_a_namespace
def test_a_budget_holds_for_all_nodes_together_and_more_money_goes_on(three, tmp_path):
    spec = {"benchmark": "toy_paid", "system": "method:doubler", "engine": {"budget": 10, "connections": 12}}
    found = three.run(tmp_path / "run", spec)
    assert found["error"] == "RunInterrupted"
    assert "budget of 10 USD" in found["text"]
    info = Run(tmp_path / "run").info
    assert info["paid"] == pytest.approx(0.6 * info["done"])
    assert 0 < info["done"] <= 16, "0.60 each, one dollar set aside before"
    found = three.run(tmp_path / "run", {**spec, "engine": {"budget": 30, "connections": 12}})
    assert found == {"status": "finished", "done": 40, "statuses": {"ok": 40}}
    assert Run(tmp_path / "run").info["paid"] == pytest.approx(24.0)


@pytest.mark.slow
@in_a_namespace
def test_a_map_runs_on_all_nodes_and_survives_the_loss_of_a_process(three, tmp_path):
    code = f"""
import json
from ray_toys import marked
from assay.core.map import resumable_map
out = resumable_map(marked, range(30), key=str, out={str(tmp_path)!r}, executor="ray", address="127.0.0.1:6379")
print(json.dumps(list(out)))
"""
    done = three.python(code.replace("range(30)", f"[(i, {str(tmp_path / 'once')!r}) for i in range(30)]"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [f["square"] for f in found] == [i * i for i in range(30)]
    assert len({f["pid"] for f in found}) >= 4
    assert (tmp_path / "once").exists(), "a process was lost"


@pytest.mark.slow
@in_a_namespace
def test_a_driver_without_the_clusters_token_is_refused_in_a_sentence(three, tmp_path):
    other = tmp_path / "token"
    other.touch(mode=0o600)
    other.write_text("f" * 64)
    before = three.environment
    three.environment = {**before, "RAY_AUTH_TOKEN_PATH": str(other)}
    try:
        found = three.run(tmp_path / "run", {"benchmark": "toy", "system": "method:doubler"})
    finally:
        three.environment = before
    assert found["error"] == "UsageError"
    assert "RAY_AUTH_TOKEN_PATH" in found["text"]


@pytest.mark.slow
@in_a_namespace
def test_a_driver_that_is_killed_or_interrupted_resumes_without_loss(three, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "run"
    options = {"n": 150, "log": str(log), "pause": 0.1}
    spec = {"benchmark": "toy_spread", "system": "method:doubler", "options": options}
    for number, sent in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)):
        driver = three.drive(folder, spec)
        goal = 40 * (number + 1)
        wait_for(lambda goal=goal: count_trials(log) > goal, process=driver)
        # nsenter has become the driver.
        os.kill(driver.pid, sent)
        out, _ = driver.communicate(timeout=90)
        if sent == signal.SIGINT:
            assert told(out)["error"] == "KeyboardInterrupt"
        done = len(Run(folder).records)
        assert 0 < done < 300
        wait_for(lambda: not three.agents(), 60)
    found = three.run(folder, spec)
    assert found == {"status": "finished", "done": 300, "statuses": {"ok": 300}}
    same(tmp_path, folder, "toy_spread", {"n": 150})
    executed = Counter(tuple(x.split()[2:]) for x in log.read_text().splitlines() if x.startswith("trial"))
    assert len(executed) == 300
    assert sum(executed.values()) < 300 + 4 * 40, "what is done again is what was in flight"


@pytest.mark.slow
@in_a_namespace
def test_a_lost_head_ends_the_run_and_another_cluster_goes_on_with_it(tmp_path):
    """The head keeps the list of nodes: with it the cluster is gone, but not what was done.

    The run cannot end before the head is missed.
    """
    log, gate, folder = tmp_path / "log", tmp_path / "gate", tmp_path / "run"
    spec = {
        "benchmark": "toy_spread",
        "system": "method:doubler",
        "options": {"n": 100, "log": str(log), "pause": 0.1, "gate": str(gate)},
    }
    with Cluster() as cluster:
        cluster.add_node(2)
        driver = cluster.drive(folder, spec)
        try:
            wait_for(lambda: count_trials(log) > 60, process=driver)
            cluster.kill_head()
            driver.communicate(timeout=180)
        finally:
            if driver.poll() is None:
                end_tree(driver)
    gate.touch()
    done = len(Run(folder).records)
    assert 0 < done < 200
    with Cluster() as cluster:
        cluster.add_node(2)
        found = cluster.run(folder, spec)
    assert found == {"status": "finished", "done": 200, "statuses": {"ok": 200}}
    same(tmp_path, folder, "toy_spread", {"n": 100})


def count_trials(log: Path) -> int:
    return sum(line.startswith("trial") for line in log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.slow
@in_a_namespace
def test_nodes_that_do_not_see_the_run_send_their_files(tmp_path):
    hidden = tmp_path / "seen by the driver alone".replace(" ", "-")
    hidden.mkdir()
    with Cluster(hidden) as cluster:
        for _ in range(2):
            cluster.add_node(2)
        found = cluster.run(hidden / "run", {"benchmark": "toy_spread", "system": "method:doubler"})
        assert found.get("status") == "finished", found
    run = same(tmp_path, hidden / "run", "toy_spread")
    files = [a["path"] for r in run.records["artifacts"] for a in r]
    assert len([f for f in files if f.endswith("row.npy")]) == 12
    assert len([f for f in files if f.endswith("output.json")]) == 2
    assert run.rows("loading").height == 78 * 2 + 2 * 300


@pytest.mark.slow
@in_a_namespace
def test_chaos_of_killed_workers_agents_and_raylets_loses_no_record_and_makes_no_error(tmp_path):
    """Workers, agents and raylets are killed by turns, 24 in all; nodes come for those that are lost.

    The run cannot end before the last kill.
    """
    log, gate, folder = tmp_path / "log", tmp_path / "gate", tmp_path / "run"
    n = 400
    options = {"n": n, "log": str(log), "pause": 0.1, "gate": str(gate)}
    spec = {"benchmark": "toy_spread", "system": "method:doubler", "options": options}
    chance = random.Random(11)
    kinds: list[str] = []
    with Cluster() as cluster:
        for _ in range(3):
            cluster.add_node(2)
        driver = cluster.drive(folder, spec)
        try:
            wait_for(lambda: len(cluster.workers()) >= 4, process=driver)
            while len(kinds) < KILLS:
                assert driver.poll() is None, f"the run ended after {len(kinds)} kills"
                kind = ("worker", "agent", "raylet")[len(kinds) % 3]
                if kind == "raylet" and cluster.nodes:
                    cluster.kill_node(chance.choice(cluster.nodes))
                    cluster.add_node(2, wait=False)
                    kinds.append(kind)
                elif victims := (cluster.workers() if kind == "worker" else cluster.agents()):
                    chance.choice(victims).send_signal(signal.SIGKILL)
                    kinds.append(kind)
                time.sleep(1 + chance.random())
            gate.touch()
            out, _ = driver.communicate(timeout=400)
        finally:
            if driver.poll() is None:
                end_tree(driver)
        found = told(out)
    assert Counter(kinds) == {"worker": 8, "agent": 8, "raylet": 8}
    assert found == {"status": "finished", "done": 2 * n, "statuses": {"ok": 2 * n}}
    same(tmp_path, folder, "toy_spread", {"n": n})
    executed = Counter(tuple(x.split()[2:]) for x in log.read_text().splitlines() if x.startswith("trial"))
    assert len(executed) == 2 * n
    print(f"{KILLS} kills, {2 * n} trials, {sum(executed.values())} executions")
