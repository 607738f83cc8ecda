"""kill -9 at random moments, over HTTP: nothing older than a second lost, nothing twice, scores of an unbroken run."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from toys import fifth

import assay
from assay.core.journal import read_arrays
from assay.core.results import Run
from assay.core.store import Store
from assay.systems.chat.loopback import LoopbackServer

SUPPORT = str(Path(__file__).parent.parent / "support")
KILLS = 30


@pytest.fixture
def loopback():
    """A model on 127.0.0.1, answering from a thread of its own."""
    started, stop = threading.Event(), threading.Event()
    found = {}

    async def serve():
        async with LoopbackServer(reply=fifth, latency=0.02) as server:
            found["server"] = server
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    yield found["server"]
    stop.set()
    thread.join()


def driver(folder, spec):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *filter(None, sys.path)])}
    command = [sys.executable, "-m", "drive", str(folder), json.dumps(spec), "loopback"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def journalled(folder):
    if not (folder / "journal").is_dir():
        return []
    return [(r["sample"], r["attempt"]) for array in read_arrays(folder / "journal") for r in json.loads(array)]


def test_thirty_kills_lose_nothing_and_double_nothing(loopback, tmp_path):
    """Each round kills after a few more records; the run is long enough to be broken off every time."""
    n, attempts = 420, 2
    system = f"vllm:toy@{loopback.url}"
    log = tmp_path / "log"
    spec = {"benchmark": "toy_quiz", "system": system, "options": {"n": n, "log": str(log), "attempts": attempts}}
    folder = tmp_path / "run"
    chance = random.Random(7)
    kills = 0
    lost = []
    while kills < KILLS:
        process = driver(folder, spec)
        stood, more = len(journalled(folder)), chance.randrange(1, 24)
        end = time.monotonic() + 60
        while len(journalled(folder)) < stood + more:
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < end, "no progress"
            time.sleep(chance.random() * 0.02)
        killed_at = time.time()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
        kills += 1
        kept = set(journalled(folder))
        old = {
            (s, int(a)) for t, s, a in (x.split() for x in log.read_text().splitlines()) if float(t) < killed_at - 1.0
        }
        lost += sorted(old - kept)
    assert len(journalled(folder)) < n * attempts, "the run was over before the last kill"
    resumed = assay.resume(folder)
    assert lost == []
    assert resumed.status == "finished"
    assert resumed.records.height == n * attempts
    assert resumed.records.select("task", "sample", "attempt").is_unique().all()
    unbroken = assay.run("toy_quiz", system, options={"n": n, "attempts": attempts}, cache=False)
    columns = ["task", "sample", "attempt", "seed", "cluster", "fifth", "correct", "status", "output", "stop_reason"]
    assert_frame_equal(resumed.records.select(columns), unbroken.records.select(columns))
    assert resumed.scores() == unbroken.scores()


def test_a_second_process_is_refused_while_a_run_is_written(loopback, tmp_path):
    folder = tmp_path / "run"
    spec = {"benchmark": "toy_quiz", "system": f"vllm:toy@{loopback.url}", "options": {"n": 400}}
    process = driver(folder, spec)
    try:
        while len(journalled(folder)) < 3:
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.01)
        with pytest.raises(assay.core.errors.UsageError, match="Another process is writing"):
            assay.resume(folder)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_ctrl_c_keeps_what_is_done_and_leaves_a_compacted_run(loopback, tmp_path):
    folder = tmp_path / "run"
    spec = {"benchmark": "toy_quiz", "system": f"vllm:toy@{loopback.url}", "options": {"n": 400}}
    process = driver(folder, spec)
    while len(journalled(folder)) < 5:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    process.stderr.close()
    run = Run(folder)
    assert run.status == "interrupted"
    assert 5 <= run.records.height < 400
    assert not (folder / "journal").exists()
    assert {key.status for key in Store(folder).finished()} == {"ok"}
