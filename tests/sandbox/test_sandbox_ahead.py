"""What is made before a run is asked for: it must be as new and as much the run's own as if it had been made for it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from assay.sandbox import Limits, Sandbox
from assay.sandbox.bubblewrap import problem as bubblewrap_problem
from assay.sandbox.inside import KINDS, packed, unpacked


def test_the_file_system_has_the_size_of_its_own_run_not_of_the_last_one(box):
    program = box.python("import os; s = os.statvfs('/tmp'); print(s.f_blocks * s.f_frsize >> 20)")
    for size in (8, 16, 16, 3, 8):
        assert program.run(limits=Limits(file_mb=size)).stdout == b"%d\n" % size
        told = box.run(["stat", "-f", "-c", "%b %S", "/tmp"], limits=Limits(file_mb=size)).stdout.split()
        assert int(told[0]) * int(told[1]) == size << 20


def test_limits_are_those_of_the_run_although_its_process_waited_for_them(box):
    program = box.python(
        "import resource as r\nprint(*(r.getrlimit(n)[1] for n in (r.RLIMIT_CPU, r.RLIMIT_AS, r.RLIMIT_FSIZE)))"
    )
    for n in (1, 2, 3):
        limits = Limits(cpu_seconds=n, memory_mb=100 * n, file_mb=n)
        assert program.run(limits=limits).stdout.split() == [b"%d" % v for v in (n + 2, 100 * n << 20, n << 20)]


def test_time_that_a_process_waited_counts_for_nothing(box):
    program = box.python("import time; print(time.process_time() < 0.5)")
    program.run()
    time.sleep(1.2)
    result = program.run(limits=Limits(cpu_seconds=1, wall_seconds=1))
    assert (result.status, result.stdout) == ("ok", b"True\n")
    assert result.wall_seconds < 1
    assert result.cpu_seconds < 0.5


def test_every_run_draws_other_random_numbers(box):
    program = box.python("import random, os; print(random.random(), os.urandom(4).hex())")
    told = [program.run().stdout.split() for _ in range(6)]
    assert len({first for first, _ in told}) == len({second for _, second in told}) == 6


def test_processes_that_wait_for_other_programs_take_nothing_from_a_run(box):
    others = [box.python(f"print({n})") for n in range(12)]
    many = "import os, time\nfor n in range(3):\n    if os.fork() == 0: time.sleep(0.2); os._exit(0)\nprint('forked')"
    program = box.python(many)
    for _ in range(3):
        assert program.run(limits=Limits(processes=4)).stdout == b"forked\n"
    assert [other.run().stdout for other in others] == [b"%d\n" % n for n in range(12)]


def test_a_process_that_waits_holds_no_file_of_the_server_when_it_becomes_the_program(box):
    program = box.python("import os; print(sorted(os.listdir('/proc/self/fd'), key=int))")
    program.run()
    assert program.run().stdout == b"['0', '1', '2', '3']\n"  # 3 reads the folder


@pytest.mark.parametrize("module", ["dataclasses", "decimal", "traceback"])
def test_a_module_is_there_beforehand_where_the_source_names_it_and_can_be_imported_where_not(box, module):
    look = f"import sys; print('{module}' in sys.modules)\n"
    assert box.python(look).run().stdout == b"False\n"
    assert box.python(look + f"def f():\n    import {module}").run().stdout == b"True\n"
    assert box.python(look + "exec('')").run().stdout == b"True\n"
    late = box.python("print(__builtins__['__imp' + 'ort__'](input()).__name__)")
    assert late.run(module.encode()).stdout == f"{module}\n".encode()


def test_no_module_outside_the_fixed_list_is_run_before_the_program(box):
    program = box.python("import sys\nprint('antigravity' in sys.modules, 'this' in sys.modules)\ndef f(): import this")
    assert program.run().stdout == b"False False\n"


def test_boxes_that_wait_end_with_whoever_closes_them():
    if problem := bubblewrap_problem():
        pytest.skip(problem)

    def below(process: int) -> list[int]:
        found = [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
        return found + [deeper for child in found for deeper in below(child)]

    with Sandbox("bubblewrap", boxes=1) as box:
        assert box.python("print(1)").run().ok
        assert box.run(["true"]).ok
        ours = [box_ for child in box._free for box_ in below(child._started.process.pid)]
        assert len(ours) >= 8  # the server, a source twice, their keepers, the processes that wait
    for _ in range(100):
        left = [process for process in ours if Path(f"/proc/{process}").exists()]
        if not left:
            return
        time.sleep(0.05)
    pytest.fail(f"processes are left: {left}")


def test_a_waiting_process_that_is_killed_from_outside_is_a_lost_run_and_never_a_verdict():
    if problem := bubblewrap_problem():
        pytest.skip(problem)
    with Sandbox("bubblewrap", boxes=1) as box:
        program = box.python("print(1)")
        assert program.run().ok
        time.sleep(0.3)
        leaves = []
        left = [box._free[0]._started.process.pid]
        while left:
            process = left.pop()
            below = [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
            left += below
            about = Path(f"/proc/{process}/status").read_text()
            if not below and "\nSeccomp:\t2\n" in about:
                leaves.append(process)
        assert len(leaves) == 2
        for process in leaves:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.1)
        assert program.run().status == "sandbox lost"
        assert program.run().stdout == b"1\n"  # in another box


def test_a_request_reads_as_it_was_packed():
    limits = {
        "cpu_seconds": 1.5, "wall_seconds": 9.0, "memory_mb": 3, "file_mb": 5, "processes": 7, "neighbours": 2,
        "stack_mb": 8,
    }  # fmt: skip
    for files in (KINDS, KINDS[:2], KINDS[::2]):
        assert unpacked(packed(files, limits)) == (list(files), limits)
    assert unpacked(b'{"do": "source"}') is None
    assert unpacked(b"") is None
