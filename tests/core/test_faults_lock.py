"""Two processes and one run: one writes, the other is told who does; a dead one is in nobody's way."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from broken_runs import assay, check_whole, done, journalled, killed_run, wait_for

import assay as library
from assay.core.errors import UsageError
from assay.core.files import is_locked, locked
from assay.core.results import Run

SLOW = ["run", "toy_judged", "-s", "method:doubler", "-o", "n=80", "-o", "pause=0.1", "--connections", "2", "--quiet"]


@pytest.fixture
def writing(tmp_path):
    """A run that another process is writing: its folder and that process."""
    process = assay(*SLOW, "--into", tmp_path / "run")
    wait_for(lambda: len(journalled(tmp_path / "run")) >= 4, process)
    yield tmp_path / "run", process
    process.kill()
    process.communicate()


def refusal(folder, pid):
    return (
        rf"Another process is writing to {re.escape(str(folder))} \(pid {pid} on this machine, {socket.gethostname()}, "
        r"since [-0-9T:]{19} UTC\); wait until it is done, or stop it, and resume\."
    )


def test_a_second_process_is_refused_with_pid_and_host_and_changes_nothing_and_the_first_goes_on(writing):
    folder, process = writing
    assert Run(folder).status == "running"
    kept = {name: (folder / name).read_bytes() for name in ("run.json", "samples.parquet")}
    # However long the others take to start: meanwhile it stands still.
    process.send_signal(signal.SIGSTOP)
    for line in (
        ["resume", folder],
        ["run", "toy_judged", "-s", "method:doubler", "--samples", "q3", "--into", folder],
    ):
        code, said = done(assay(*line, "--quiet"))
        assert code == 2
        assert re.fullmatch(f"assay: {refusal(folder, process.pid)}\n", said)
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    process.send_signal(signal.SIGCONT)
    assert done(process)[0] == 0
    check_whole(folder, 80)


def test_the_same_over_two_calls_of_the_library(writing):
    folder, process = writing
    with pytest.raises(UsageError, match=refusal(folder, process.pid)):
        library.run("toy_judged", "method:doubler", options={"n": 80, "pause": 0.1}, into=folder)


def test_the_lock_of_a_process_that_died_blocks_nobody(tmp_path):
    folder = tmp_path / "run"
    kept = killed_run(folder, 12)
    assert b'"pid"' in (folder / ".lock").read_bytes()
    assert not is_locked(folder)
    code, said = done(assay("resume", folder, "--quiet"))
    assert (code, said) == (0, "")
    run = check_whole(folder, 60)
    assert set(kept) <= set(run.records.select("sample", "attempt").iter_rows())
    assert (folder / ".lock").read_bytes() == b""


def test_a_frozen_process_still_holds_its_run_and_finishes_it_when_it_is_woken(writing):
    folder, process = writing
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(UsageError, match=refusal(folder, process.pid)):
            library.resume(folder)
    finally:
        process.send_signal(signal.SIGCONT)
    assert done(process)[0] == 0
    check_whole(folder, 80)


def test_two_threads_of_one_process_are_told_apart(tmp_path):
    held, release = threading.Event(), threading.Event()

    def hold():
        with locked(tmp_path):
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    try:
        with pytest.raises(UsageError, match=f"another thread of this process, pid {os.getpid()}"), locked(tmp_path):
            pass
    finally:
        release.set()
        thread.join()
    with locked(tmp_path):
        pass


def test_a_child_that_a_dead_process_left_behind_is_named_as_such(tmp_path):
    ready, holder = os.pipe()
    parent = os.fork()
    if not parent:
        with locked(tmp_path):
            child = os.fork()
            if not child:
                time.sleep(60)
                os._exit(0)
            os.write(holder, str(child).encode())
            os._exit(0)
    os.waitpid(parent, 0)
    child = int(os.read(ready, 20))
    try:
        with pytest.raises(UsageError, match=f"one that pid {parent}, which has ended, left behind"), locked(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(ready)
        os.close(holder)


def test_a_lock_file_without_a_name_in_it_is_still_a_lock(tmp_path):
    with locked(tmp_path):
        (tmp_path / ".lock").write_bytes(b"\xff{")
        with pytest.raises(UsageError, match="Another process is writing to"), locked(tmp_path):
            pass


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_two_processes_that_begin_one_run_at_the_same_moment_make_one_run(tmp_path, pause):
    for round_ in range(2):
        folder = tmp_path / f"run{round_}"
        log = tmp_path / f"log{round_}"
        line = ["run", "toy_judged", "-s", f"method:doubler?log={log}", "-o", "n=40", "-o", f"pause={pause}", "--quiet"]
        ended = [done(process) for process in [assay(*line, "--into", folder) for _ in range(2)]]
        codes = sorted(code for code, _ in ended)
        assert codes in ([0, 0], [0, 2]), ended
        for code, said in ended:
            if code:
                assert said.count("\n") == 1
                assert "Another process" in said
        check_whole(folder, 40)
        assert len(log.read_text().split()) == 40


def test_what_a_refused_process_had_read_before_never_overwrites_what_the_other_wrote(tmp_path):
    """A resume that waits for the lock begins with the manifest as it is then."""
    folder = tmp_path / "run"
    killed_run(folder, 12)
    stale = Run(folder)
    first = library.resume(folder)
    seconds = first.info["seconds"]
    second = library.resume(stale)
    assert second.info["seconds"] >= seconds
    assert second.info["scores"] == first.info["scores"] == ["met"]
    check_whole(folder, 60)


MAP = """
import sys, time
from assay.core.map import resumable_map
def slow(item):
    with open(sys.argv[2], "a") as log:
        log.write(f"{item}\\n")
    time.sleep(0.05)
    return item
print(list(resumable_map(slow, range(40), key=str, out=sys.argv[1], workers=0)))
"""


def test_a_second_process_at_a_recipes_folder_is_refused_and_nothing_is_made_twice(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", MAP, str(tmp_path / "out"), str(log)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: log.exists(), first)
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.search(
        rf"UsageError: Another process is writing to .*out/\.journal \(pid {first.pid} on this machine", second.stderr
    )
    out, _ = first.communicate()
    assert out == f"{list(range(40))}\n"
    third = subprocess.run(command, capture_output=True, text=True, check=True)
    assert third.stdout == out
    assert sorted(map(int, log.read_text().split())) == list(range(40))
