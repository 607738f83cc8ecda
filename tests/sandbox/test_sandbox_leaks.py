"""After very many runs, nothing of ours is left on the machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from assay.sandbox import Limits, Sandbox
from assay.sandbox.bubblewrap import problem as bubblewrap_problem

PROGRAMS = (
    ("print(input())", "ok"),
    ("import os\nif os.fork() == 0:\n    import time; time.sleep(60)", "ok"),
    ("open('/tmp/x', 'wb').write(bytes(1 << 20)); raise SystemExit(2)", "runtime error"),
    ("import os; os.write(1, bytes(1 << 20))", "output limit"),
)


@pytest.fixture
def own_temporary(monkeypatch):
    """A temporary folder that no other process writes to; its path is short, for sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="leaks-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


def of_ours() -> dict[str, object]:
    """What runs could leave behind, as far as this process can see it."""
    processes = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
    here = os.getpid()
    return {
        "boxes": sum("inside.runner" in line and f" {here} " in line for line in processes.splitlines()),
        "children": len(Path(f"/proc/{here}/task/{here}/children").read_text().split()),
        "mounts": Path("/proc/self/mounts").read_text().count("\n"),
        "files": len(os.listdir("/proc/self/fd")),
        "temporary": sorted(os.listdir(tempfile.gettempdir())),
        "cgroups": sorted(str(p) for p in Path("/sys/fs/cgroup").rglob("assay-box-*") if p.is_dir()),
    }


def runs(number: int) -> None:
    if problem := bubblewrap_problem():
        pytest.skip(problem)
    before = of_ours()
    with Sandbox("bubblewrap", limits=Limits(cpu_seconds=5, output_bytes=1 << 16), boxes=2) as box:
        programs = [(box.python(source), status) for source, status in PROGRAMS]
        for n in range(number):
            program, status = programs[n % len(programs)]
            assert program.run(b"1").status == status
        first = of_ours()
        for program, status in programs:
            assert program.run(b"1").status == status
        assert of_ours() == first
    assert of_ours() == before


@pytest.mark.usefixtures("own_temporary")
def test_forty_runs_leave_nothing():
    runs(40)


@pytest.mark.slow
@pytest.mark.usefixtures("own_temporary")
def test_a_thousand_runs_leave_nothing():
    runs(1000)


def test_closing_leaves_no_process_even_under_a_program_that_ignores_everything():
    if problem := bubblewrap_problem():
        pytest.skip(problem)
    import threading
    import time

    # Boxes that other tests of this process share stay open.
    before = _boxes()
    with Sandbox("bubblewrap", boxes=1) as box:
        held = box.python("import time; print(1)\nwhile True: time.sleep(1)")
        assert _boxes() - before
        thread = threading.Thread(target=held.run, kwargs={"limits": Limits(wall_seconds=1)})
        thread.start()
        time.sleep(0.2)
    thread.join(20)
    assert not thread.is_alive()
    assert _boxes() == before


def _boxes() -> set[bytes]:
    return set(subprocess.run(["pgrep", "-P", str(os.getpid()), "bwrap"], capture_output=True).stdout.split())


def test_a_process_that_is_killed_takes_its_boxes_along(tmp_path):
    """SIGKILL to whoever opened the sandbox, in the middle of a run: everything in the box dies too."""
    if problem := bubblewrap_problem():
        pytest.skip(problem)
    import signal
    import sys
    import time

    mark = f"7{os.getpid()}7"
    source = (
        "from assay.sandbox import Sandbox\nbox = Sandbox()\n"
        f"box.run(['sh', '-c', 'sleep {mark}; true'])"
    )  # fmt: skip
    child = subprocess.Popen([sys.executable, "-c", source])

    def sleeping() -> bool:
        return f"sleep {mark}" in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout.replace(
            source, ""
        ).replace(f"sh -c sleep {mark}; true", "")

    for _ in range(200):
        if sleeping():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the program did not start")
    child.send_signal(signal.SIGKILL)
    child.wait()
    for _ in range(100):
        if not sleeping():
            return
        time.sleep(0.05)
    pytest.fail("the program outlived its sandbox")
