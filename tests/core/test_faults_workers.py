"""Workers that are killed or run out of memory: at most the trial under them is an error record; nothing else is."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from broken_runs import assay, check_whole, done, wait_for
from fault_toys import Hog, Plain, Ticks

import assay as library
from assay.core.results import Run

N = 24


def workers_of(pid: int) -> list[int]:
    """Worker processes below a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                if b"assay.core.executors.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
            except OSError:
                continue
    return found


class Killer(threading.Thread):
    """Kills workers of this process, each after ``wait`` said that it is time."""

    def __init__(self, wait, times):
        super().__init__(daemon=True)
        self.wait, self.times, self.killed = wait, times, 0

    def run(self):
        end = time.monotonic() + 60
        while self.killed < self.times and time.monotonic() < end:
            workers = workers_of(os.getpid())
            if workers and self.wait():
                try:
                    os.kill(workers[0], signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed += 1
            time.sleep(0.02)


def notes(log):
    return log.read_text().split() if log.exists() else []


def test_each_killed_worker_costs_at_most_the_trial_under_it_and_a_retry_mends_it(tmp_path):
    log = tmp_path / "log"
    seen = [0]

    def time_has_come():
        # In the middle of a trial, another one each time.
        if len(notes(log)) >= seen[0] + 3:
            seen[0] = len(notes(log))
            time.sleep(0.03)
            return True
        return False

    killer = Killer(time_has_come, times=4)
    killer.start()
    toy = Ticks(N, 0.15, str(log), waits=False)
    run = library.run(toy, Plain(), into=tmp_path / "run", workers=2)
    killer.join()
    assert killer.killed == 4
    bad = run.records.filter(run.records["status"] != "ok")
    assert 1 <= bad.height <= 4
    assert bad["error_type"].unique().to_list() == ["WorkerLost"]
    assert bad["error"].unique().to_list() == ["The worker process was ended by SIGKILL (often: out of memory)."]
    assert bad["retryable"].all()
    check_whole(run.path, N, ok=N - bad.height, error=bad.height)
    before = len(notes(log))
    library.resume(run.path, benchmark=toy, system=Plain(), retry_errors=True, workers=2)
    check_whole(run.path, N)
    assert sorted(notes(log)[before:]) == sorted(bad["sample"].to_list())


def test_workers_killed_while_they_start_or_idle_cost_no_trial(tmp_path):
    killer = Killer(lambda: not notes(tmp_path / "log"), times=2)
    killer.start()
    run = library.run(Ticks(6, 0.05, str(tmp_path / "log"), waits=False), Plain(), into=tmp_path / "run", workers=1)
    assert killer.killed == 2
    check_whole(run.path, 6)
    assert sorted(notes(tmp_path / "log")) == [f"s{i}" for i in range(6)]


def test_workers_that_always_end_before_they_begin_end_the_run_with_a_sentence_and_leave_it_to_be_resumed(tmp_path):
    killer = Killer(lambda: True, times=50)
    killer.start()
    toy = Ticks(6, 0.05, str(tmp_path / "log"), waits=False)
    with pytest.raises(
        library.core.errors.AssayError, match=r"could not be set up for task 'ticking', tried 3 times: .*SIGKILL"
    ):
        library.run(toy, Plain(), into=tmp_path / "run", workers=1)
    killer.times = 0
    killer.join()
    assert Run(tmp_path / "run").status == "interrupted"
    library.resume(tmp_path / "run", benchmark=toy, system=Plain(), workers=1)
    check_whole(tmp_path / "run", 6)


def test_a_worker_killed_under_ctx_compute_is_replaced_and_the_trial_tried_again(tmp_path):
    """toy_live computes in a worker from the event loop; a trial that loses it is tried a second time."""
    opened = tmp_path / "log"
    killer = Killer(lambda: opened.exists(), times=1)
    killer.start()
    run = library.run("toy_live", "method:doubler", options={"log": str(opened), "pause": 0.05}, into=tmp_path / "run")
    killer.join()
    assert killer.killed == 1
    assert run.records.height == 24
    assert run.records.filter(run.records["status"] != "ok").height <= 1
    if run.records["status"].n_unique() > 1:
        assert "ended by SIGKILL" in "".join(run.records["error"].drop_nulls())


@pytest.mark.parametrize(
    ("hard", "kind", "sentence"),
    [
        (False, "MemoryError", "The trial ran out of memory."),
        (True, "WorkerLost", "The worker process was ended by SIGABRT."),
    ],
    ids=["the system refuses memory to Python", "a library gives up"],
)
def test_a_worker_that_runs_out_of_memory_is_an_error_record_and_the_others_go_on(tmp_path, hard, kind, sentence):
    run = library.run(Hog(12, hard), Plain(), into=tmp_path / "run", workers=1)
    check_whole(run.path, 12, ok=11, error=1)
    bad = run.records.filter(run.records["status"] == "error")
    assert bad.select("sample", "error_type", "error").row(0) == ("s3", kind, sentence)


def test_a_machine_without_memory_for_a_worker_is_a_sentence(tmp_path, monkeypatch):
    import errno
    import subprocess

    def refuse(*arguments, **keywords):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(
        library.core.errors.AssayError, match=r"could not be started \(Cannot allocate memory\); give fewer"
    ):
        library.run("toy", "method:doubler", into=tmp_path / "run", workers=1)
    monkeypatch.undo()
    library.resume(tmp_path / "run")
    check_whole(tmp_path / "run", 20)


def test_a_run_whose_process_is_killed_takes_its_workers_along_and_is_resumed(tmp_path):
    folder = tmp_path / "run"
    line = ["run", "toy", "-s", "method:doubler?pause=0.1", "-o", "n=40", "--workers", "2", "--into", folder, "--quiet"]
    process = assay(*line)
    wait_for(lambda: len(workers_of(process.pid)) == 2, process)
    time.sleep(1.0)
    workers = workers_of(process.pid)
    process.kill()
    done(process)
    wait_for(lambda: not any(Path(f"/proc/{w}").exists() for w in workers), seconds=10)
    code, said = done(assay("resume", folder, "--quiet"))
    assert (code, said) == (0, "")
    check_whole(folder, 40)
