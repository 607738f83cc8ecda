"""Runs in processes of their own, to be stopped at chosen moments and looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from assay.core.journal import read_arrays
from assay.core.results import Run

SUPPORT = str(Path(__file__).parent)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *filter(None, sys.path)]), "COLUMNS": "200", **more}


def assay(*arguments: object, **more: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "assay.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )


def done(process: subprocess.Popen[str], timeout: float = 120) -> tuple[int, str]:
    """Exit code, and what stands on standard error."""
    _, said = process.communicate(timeout=timeout)
    return process.returncode, said


def journalled(folder: Path) -> list[tuple[str, int]]:
    """Sample and attempt of every record in a run's journal."""
    if not (folder / "journal").is_dir():
        return []
    return [(r["sample"], r["attempt"]) for array in read_arrays(folder / "journal") for r in json.loads(array)]


def wait_for(condition, process: subprocess.Popen[str] | None = None, seconds: float = 60) -> None:
    """Wait until something is so; the process must not end before."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def killed_run(folder: Path, records: int, n: int = 60, log: Path | None = None) -> list[tuple[str, int]]:
    """A run of toy_judged that was killed with at least so many records in its journal; these records."""
    system = "method:doubler" + (f"?log={log}" if log else "")
    line = [
        "run",
        "toy_judged",
        "-s",
        system,
        "-o",
        f"n={n}",
        "-o",
        "pause=0.05",
        "--connections",
        "2",
        "--into",
        folder,
    ]
    process = assay(*line, "--quiet")
    wait_for(lambda: len(journalled(folder)) >= records, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return journalled(folder)


def check_whole(folder: Path, planned: int, **statuses: int) -> Run:
    """A finished run: every planned trial is one record, each key once, every group there."""
    run = Run(folder)
    keys = run.records.select("task", "sample", "attempt")
    assert run.status == "finished"
    assert run.info["trials"] == run.records.height == keys.n_unique() == planned
    assert dict(run.records["status"].value_counts().iter_rows()) == (statuses or {"ok": planned})
    assert run.records["cluster"].null_count() == 0
    assert not (folder / "journal").exists()
    assert not [p.name for p in folder.rglob(".*.tmp")]
    return run
