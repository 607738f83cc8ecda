"""A wall clock that jumps by an hour during a run: durations, limits, order and totals do not follow it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from broken_runs import SUPPORT, check_whole, environment

from assay.core.results import Run

N, PAUSE = 20, 0.15
HOUR = 3600
CODE = """
import sys, time
import assay
from fault_toys import Plain, Ticks
folder, log = sys.argv[1:]
before = time.time()
assay.run(Ticks(20, 0.15, log), Plain(), into=folder, workers=2, connections=2)
print(time.time() - before)
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """A library that moves the wall clock of processes that load it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and Linux to move the clock of a process")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    source = Path(SUPPORT) / "clock_shim.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def move(offset, seconds):
    with offset.open("r+b") as file:
        file.write(struct.pack("q", int(seconds * 1e9)))


@pytest.fixture
def offset(tmp_path):
    path = tmp_path / "offset"
    path.write_bytes(bytes(8))
    return path


def notes(log):
    return log.read_text().split() if log.exists() else []


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "backward"])
def test_a_clock_that_jumps_an_hour_twice_during_a_run_moves_no_duration_no_limit_and_no_order(
    shim, offset, tmp_path, jump
):
    log = tmp_path / "log"
    command = [sys.executable, "-c", CODE, str(tmp_path / "run"), str(log)]
    shifted = environment(LD_PRELOAD=str(shim), CLOCK_OFFSET=str(offset))
    begun = time.monotonic()
    process = subprocess.Popen(command, env=shifted, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    moved = []

    def jumping():
        # Once while trials wait, once while trials compute.
        for after in (6, N + 8):
            while len(notes(log)) < after and process.poll() is None:
                time.sleep(0.01)
            moved.append(len(notes(log)))
            move(offset, jump * len(moved))

    thread = threading.Thread(target=jumping)
    thread.start()
    out, said = process.communicate(timeout=120)
    thread.join()
    took = time.monotonic() - begun
    assert process.returncode == 0, said
    assert [m < 2 * N for m in moved] == [True, True]
    # The process itself did see its clock jump.
    assert abs(float(out) - 2 * jump) < took + 1
    run = check_whole(tmp_path / "run", 2 * N)
    seconds = run.records["seconds"]
    assert seconds.min() >= PAUSE * 0.99
    assert seconds.max() < took
    assert 0 < run.info["seconds"] < took
    # A limit of 20 s is neither passed by a clock that is an hour ahead nor lengthened by one that is behind.
    assert run.records["left"].min() > 20 - took
    assert run.records["left"].max() < 20.0
    assert run.records["index"].to_list() == [*range(N), *range(N)]
    # `started` is what the clock on the wall said, jumps and all.
    spread = (run.records["started"].max() - run.records["started"].min()).total_seconds()
    assert abs(spread - 2 * HOUR) < took + 1


def test_a_clock_that_jumps_moves_no_limit_that_ends_a_hanging_trial(shim, offset, tmp_path):
    """A hanging trial ends after its second, though the clock says that an hour has gone, or is still to go."""
    code = "import assay, sys; assay.run('toy_hidden', 'method:doubler', options={'trouble': 'hang'}, into=sys.argv[1])"
    shifted = environment(LD_PRELOAD=str(shim), CLOCK_OFFSET=str(offset))
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")], env=shifted)
    at = 0.0
    while process.poll() is None:
        at = HOUR if at <= 0 else -HOUR
        move(offset, at)
        time.sleep(0.05)
    assert process.returncode == 0
    run = check_whole(tmp_path / "run", 12, unscored=11, timeout=1)
    assert "past its limit of 1 s" in run.records.filter(run.records["status"] == "timeout")["error"].item()
    assert run.info["seconds"] < 60


def test_runs_begun_under_a_wrong_clock_are_found_and_resumed(shim, offset, tmp_path):
    """Begun while the clock was an hour ahead, resumed by the right time: same trials, no negative seconds."""
    from broken_runs import killed_run

    os.environ.update(LD_PRELOAD=str(shim), CLOCK_OFFSET=str(offset))
    try:
        move(offset, HOUR)
        kept = killed_run(tmp_path / "run", 10)
    finally:
        del os.environ["LD_PRELOAD"], os.environ["CLOCK_OFFSET"]
    import assay

    assay.resume(tmp_path / "run")
    run = check_whole(tmp_path / "run", 60)
    assert set(kept) <= set(run.records.select("sample", "attempt").iter_rows())
    assert run.records["seconds"].min() >= 0
    assert Run(tmp_path / "run").info["seconds"] >= 0
