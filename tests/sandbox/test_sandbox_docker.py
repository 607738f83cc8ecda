"""Boxes by docker, where a daemon runs: the same verdicts, the same battery, no container left."""

from __future__ import annotations

import dataclasses
import subprocess

import hostile_programs as hostile
import pytest

from assay.sandbox import Limits, Sandbox, docker

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=2.5, memory_mb=256, output_bytes=1 << 20, file_mb=8, processes=24)


@pytest.fixture(scope="module")
def box():
    docker.problem.cache_clear()
    if problem := docker.problem():
        pytest.skip(problem)
    with Sandbox("docker", limits=LIMITS, boxes=2) as sandbox:
        yield sandbox
    left = subprocess.run(["docker", "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True).stdout
    assert "assay-box-" not in left


def test_programs_end_as_with_bubblewrap(box):
    ends = {
        "print(int(input()) * 2)": "ok", "raise SystemExit(3)": "runtime error", "while True: pass": "time limit",
        "x = bytearray(1 << 30)": "memory limit", "while True: print(1)": "output limit", "print(": "compile error",
    }  # fmt: skip
    assert {source: box.python(source).run(b"21").status for source in ends} == ends
    assert box.python("def f(x): return x + 1").call("f", 1).value == 2
    assert box.cpp("#include <iostream>\nint main(){int x;std::cin>>x;std::cout<<x;}").run(b"5").stdout == b"5"
    assert box.run(["sh", "-c", "cat a > /dev/shm/b; cat /dev/shm/b"], files={"a": b"x"}).stdout == b"x"


@pytest.mark.slow
@pytest.mark.parametrize("attack", [a for a in hostile.ALL if "{" not in a.source], ids=lambda a: a.name)
def test_no_hostile_program_escapes(box, attack):
    source = attack.source if attack.language == "cpp" else hostile.PRELUDE + attack.source
    program = (box.cpp if attack.language == "cpp" else box.python)(source)
    limits = dataclasses.replace(LIMITS, cpu_seconds=attack.cpu_seconds, wall_seconds=5 * attack.cpu_seconds)
    result = program.run(b"secret input", limits)
    assert result.status in attack.statuses, result
    assert b"ESCAPED" not in result.stdout + result.stderr, result
    for words in attack.says:
        assert words.encode() in result.stdout, result
