"""Ctrl-C, twice Ctrl-C and SIGTERM at any moment of a command: what was done is kept, and one sentence says so."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from broken_runs import assay, check_whole, done, journalled, wait_for

from assay.core.results import Run

N = 40
LANES = 4
SIGNALS = {"ctrl-c": [signal.SIGINT], "twice": [signal.SIGINT] * 2, "sigterm": [signal.SIGTERM]}


def command(place: Path):
    return assay(
        "run", "toy_judged", "-s", f"method:doubler?log={place / 'log'}", "-o", f"n={N}", "-o", "pause=0.05",
        "--connections", LANES, "--into", place / "run", "--report", place / "page.html", "--quiet",
    )  # fmt: skip


PHASES = {
    # What stands on the disk when a phase begins, and about how many seconds it lasts.
    "start-up": (None, 1.5), "planning": ("run", 0.3), "trials": ("log", 0.7), "report": ("run/records.parquet", 1.0),
}  # fmt: skip


def disturb(place, phase, signals, chance):
    """The command, disturbed at a random moment after a phase began: exit code, and what it said."""
    process = command(place)
    mark, lasts = PHASES[phase]
    while mark is not None and not (place / mark).exists() and process.poll() is None:
        time.sleep(0.001)
    time.sleep(chance.random() * lasts)
    for number in signals:
        process.send_signal(number)
        time.sleep(chance.random() * 0.1)
    return done(process, timeout=60)


def check_said(code, said, place):
    lines = [line for line in said.splitlines() if line.strip()]
    if "Traceback" in said or code < 0:
        # Python's own beginning and end belong to nobody; a signal without a handler ends the process.
        assert "assay/core" not in said, said
        assert "assay/commands" not in said, said
        return
    assert code in (0, 130), said
    if code == 130:
        assert len(lines) == 1, said
        assert lines[0] in (
            f"Stopped; what was done is kept. Go on with: assay resume {place / 'run'}",
            f"Stopped; the run was done already: {place / 'run'}",
            "Stopped before the run began.",
            "assay: interrupted.",
        )


def check_kept(place):
    """What stands in the folder now is there after going on, untouched; every planned trial is one record."""
    folder, log = place / "run", place / "log"
    begun = (folder / "run.json").exists()
    kept = Run(folder).records.select("sample", "started", "seconds", "output").rows() if begun else []
    answered = len(log.read_text().split()) if log.exists() else 0
    if (place / "page.html").exists():
        assert (place / "page.html").read_text().rstrip().endswith("</html>")
    code, said = done(assay("resume", folder, "--quiet") if begun else command(place))
    assert (code, said) == (0, "")
    run = check_whole(folder, N)
    now = run.records.select("sample", "started", "seconds", "output").rows()
    assert set(kept) <= set(now)
    again = len(log.read_text().split()) - answered
    assert again == N - len(kept)
    assert answered - len(kept) <= LANES


def disturbed_at_moments(tmp_path, how, moments, seed):
    chance = random.Random(f"{seed} {how}")
    for phase in PHASES:
        for i in range(moments):
            place = tmp_path / f"{phase}{i}"
            place.mkdir()
            code, said = disturb(place, phase, SIGNALS[how], chance)
            check_said(code, said, place)
            check_kept(place)


@pytest.mark.parametrize("how", SIGNALS)
def test_a_command_stopped_at_a_moment_of_each_phase_keeps_what_was_done(tmp_path, how):
    disturbed_at_moments(tmp_path, how, 1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("how", SIGNALS)
def test_a_command_stopped_at_two_dozen_moments_keeps_what_was_done(tmp_path, how):
    disturbed_at_moments(tmp_path, how, 6, seed=2)


def long_run(place, *more):
    return assay(
        "run", "toy_judged", "-s", "method:doubler", "-o", "n=20", "-o", "pause=8", "--connections", 2,
        "--into", place / "run", "--quiet", *more,
    )  # fmt: skip


@pytest.mark.parametrize(("signals", "least", "most"), [(1, 4.0, 20.0), (2, 0.0, 4.0)])
def test_one_press_waits_for_what_is_in_flight_and_a_second_one_drops_it(tmp_path, signals, least, most):
    process = long_run(tmp_path)
    wait_for(lambda: (tmp_path / "run" / "journal").is_dir(), process)
    time.sleep(0.5)
    begun = time.monotonic()
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    code, said = done(process)
    assert least <= time.monotonic() - begun <= most
    assert (code, said) == (130, f"\nStopped; what was done is kept. Go on with: assay resume {tmp_path / 'run'}\n")
    run = Run(tmp_path / "run")
    assert run.status == "interrupted"
    assert run.records.height == (2 if signals == 1 else 0)
    assert run.info["reason"] == "interrupted from outside"


def test_a_third_press_ends_even_a_trial_that_cannot_be_dropped_and_the_journal_holds_the_rest(tmp_path):
    """Trials computed in this process cannot be taken from their thread; the process can be ended."""
    folder = tmp_path / "run"
    line = ["run", "toy", "-s", "method:doubler?pause=3", "-o", "n=5", "--workers", "0", "--into", folder, "--quiet"]
    process = assay(*line)
    wait_for(lambda: len(journalled(folder)) >= 1, process)
    kept = journalled(folder)
    time.sleep(0.2)
    begun = time.monotonic()
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    code, _ = done(process)
    assert time.monotonic() - begun < 2.5
    assert code == -signal.SIGINT
    assert set(kept) <= set(journalled(folder))
    assert Run(folder).status == "interrupted"


def test_whoever_ignored_the_signal_before_goes_on(tmp_path):
    """As under nohup, or in the background of a script."""
    import os
    import subprocess

    from broken_runs import environment

    line = f'trap "" INT; exec {__import__("sys").executable} -m assay.cli run toy_judged -s method:doubler -o n=20 '
    line += f"-o pause=0.2 --connections 2 --into {tmp_path / 'run'} --quiet"
    process = subprocess.Popen(["sh", "-c", line], env=environment(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(journalled(tmp_path / "run")) >= 2, process)
    os.kill(process.pid, signal.SIGINT)
    assert done(process)[0] == 0
    check_whole(tmp_path / "run", 20)


def test_a_run_inside_a_notebooks_loop_hears_ctrl_c_and_loses_nothing(tmp_path):
    """There the loop of the run has a thread of its own; folding its journal must wait for that."""
    import subprocess
    import sys

    from broken_runs import environment

    code = (
        "import asyncio, assay, sys\n"
        "async def cell():\n"
        "    options = {'n': 60, 'pause': 0.1}\n"
        "    assay.run('toy_judged', 'method:doubler', options=options, connections=2, into=sys.argv[1])\n"
        "try:\n    asyncio.run(cell())\nexcept KeyboardInterrupt as stop:\n    print('stopped', *stop.args)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(lambda: len(journalled(tmp_path / "run")) >= 5, process)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert "stopped" in out + said, out + said
    run = Run(tmp_path / "run")
    assert run.status == "interrupted"
    assert 5 <= run.records.height < 60
    assert not (tmp_path / "run" / "journal").exists()
    assert done(assay("resume", tmp_path / "run", "--quiet")) == (0, "")
    check_whole(tmp_path / "run", 60)


def test_a_terminal_that_is_closed_ends_the_run_as_sigterm_does(tmp_path):
    process = long_run(tmp_path)
    wait_for(lambda: (tmp_path / "run" / "journal").is_dir(), process)
    time.sleep(0.5)
    process.send_signal(signal.SIGHUP)
    process.stderr.close()
    assert process.wait(timeout=30) >= 0
    assert Run(tmp_path / "run").status == "interrupted"
    assert not (tmp_path / "run" / "journal").exists()


def test_a_reader_of_the_progress_that_leaves_ends_nothing(tmp_path):
    """As in ``assay run ... 2>&1 | head -1``."""
    import os
    import subprocess
    import sys

    from broken_runs import environment

    reading, writing = os.pipe()
    code = (
        "import sys\nfrom assay.commands import progress\nprogress.QUIET_SECONDS = 0.1\n"
        "from assay.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    line = ["run", "toy_judged", "-s", "method:doubler", "-o", "n=30", "-o", "pause=0.1", "--connections", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *line, "--into", str(tmp_path / "run")], env=environment(),
        stdout=subprocess.DEVNULL, stderr=writing,
    )  # fmt: skip
    os.close(writing)
    assert os.read(reading, 10)
    os.close(reading)
    process.wait(timeout=60)
    check_whole(tmp_path / "run", 30)


@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGINT],
        pytest.param([signal.SIGINT] * 2, marks=pytest.mark.slow),
        pytest.param([signal.SIGINT] * 3, marks=pytest.mark.slow),
        pytest.param([signal.SIGTERM], marks=pytest.mark.slow),
        pytest.param([signal.SIGKILL], marks=pytest.mark.slow),
    ],
    ids=lambda signals: "+".join(s.name for s in signals),
)
def test_a_command_stopped_while_it_folds_its_journal_loses_nothing_and_does_no_trial_again(tmp_path, signals):
    # The journal goes last: from the first folded table on, until then, the run is being folded.
    for attempt in range(6):
        folder, log = tmp_path / f"run{attempt}", tmp_path / f"log{attempt}"
        line = ["run", "toy_judged", "-s", f"method:doubler?log={log}", "-o", "n=3000", "--into", folder, "--quiet"]
        process = assay(*line)
        while not (folder / "rows").exists() and process.poll() is None:
            time.sleep(0.0005)
        if (folder / "journal").is_dir():
            break
        done(process)
    else:
        pytest.fail("the journal was folded before anybody could look, each time")
    for number in signals:
        process.send_signal(number)
        time.sleep(0.001)
    code, said = done(process)
    assert code in (130, *(-s for s in signals)), said
    assert "Traceback" not in said
    if code == 130:
        assert said.strip().count("\n") == 0
    code, said = done(assay("resume", folder, "--quiet"))
    assert (code, said) == (0, "")
    run = check_whole(folder, 3000)
    assert run.rows("judged").height == 6000
    assert len(log.read_text().split()) == 3000
