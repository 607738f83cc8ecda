"""The battery: no hostile program escapes, hangs the machine or changes another's verdict."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import threading
import time

import hostile_programs as hostile
import pytest

import assay
from assay.sandbox import Limits, Sandbox, bubblewrap

KEY = "sk-canary-0123456789abcdef"
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=2.5, memory_mb=256, output_bytes=1 << 20, file_mb=8, processes=24)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """What is worth attacking on this machine: listeners, a key in the environment, files."""
    path = str(tmp_path_factory.mktemp("w") / "s")
    abstract = f"assay-test-{os.getpid()}"
    os.environ["CANARY_KEY"] = KEY
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as a,
        socket.socket(socket.AF_UNIX) as b,
    ):
        a.bind("\0" + abstract)
        a.listen()
        b.bind(path)
        b.listen()
        yield {
            "port": str(tcp.getsockname()[1]), "abstract": abstract, "socket": path, "key": KEY,
            "paths!r": repr([assay.__file__, __file__, hostile.__file__, os.getcwd(), path]),
        }  # fmt: skip
    del os.environ["CANARY_KEY"]


@pytest.fixture(scope="module", params=["C", pytest.param("Python", marks=pytest.mark.slow)])
def box(request):
    """Two boxes with tight limits, shared by all: what one program breaks, the next one finds broken."""
    if problem := bubblewrap.problem():
        pytest.skip(problem)
    with pytest.MonkeyPatch.context() as patch, Sandbox("bubblewrap", limits=LIMITS, boxes=2) as sandbox:
        if request.param == "Python":
            patch.setattr("assay.sandbox.launch.keeper_library", lambda: None)
        yield sandbox


@pytest.fixture(scope="module")
def canary(box):
    """A program that does its work and nothing else."""
    return box.python("print(sum(map(int, input().split())))")


def attacked(attack: hostile.Hostile, world: dict[str, str]) -> str:
    """The attack's source, with this machine's addresses in it."""
    source = attack.source
    if attack.language == "cpp":
        return source
    for name, value in world.items():
        source = source.replace("{" + name + "}", value)
    return hostile.PRELUDE + source


@pytest.mark.parametrize("attack", hostile.ALL, ids=lambda a: a.name.replace(" ", "-"))
def test_no_hostile_program_escapes_or_spoils_the_next_verdict(box, canary, world, attack, capfd):
    before = time.monotonic()
    program = (box.cpp if attack.language == "cpp" else box.python)(attacked(attack, world))
    limits = dataclasses.replace(LIMITS, cpu_seconds=attack.cpu_seconds, wall_seconds=5 * attack.cpu_seconds)
    result = program.run(b"secret input", limits)
    took = time.monotonic() - before
    assert result.status in attack.statuses, result
    assert b"ESCAPED" not in result.stdout + result.stderr, result
    for words in attack.says:
        assert words.encode() in result.stdout, result
    assert len(result.stdout) <= LIMITS.output_bytes
    assert took < 60
    check = canary.run(b"40 2")
    assert (check.status, check.stdout) == ("ok", b"42\n")
    assert capfd.readouterr() == ("", "")


def test_the_battery_is_as_large_as_promised_and_every_name_is_its_own():
    assert len(hostile.ALL) >= 60
    assert len({a.name for a in hostile.ALL}) == len(hostile.ALL)


def test_what_one_run_leaves_no_other_sees(box):
    leave = box.python(
        hostile.PRELUDE + "for p in ('/tmp/x', '/dev/shm/x', 'x'): open(p, 'w').write('secret')\nprint('held')"
    )
    seek = box.python(
        hostile.PRELUDE + "for p in ('/tmp/x', '/dev/shm/x', 'x', '/tmp/work/x'): unseen(p)\n"
        "import gc\nfound = any('sec' + 'ret' in o for o in gc.get_objects() if isinstance(o, list))\n"
        "print('ESCAPED' if found else 'held')"
    )  # fmt: skip
    assert leave.run().stdout == b"held\n"
    for _ in range(4):
        assert b"ESCAPED" not in seek.run().stdout


def test_two_boxes_at_once_share_nothing(box):
    """Each side listens and looks while the other does: files, named semaphores, abstract sockets, processes."""
    source = (
        hostile.PRELUDE
        + """
me = input()
other = {'a': 'b', 'b': 'a'}[me]
open('/dev/shm/' + me, 'w').write(me); open('/tmp/' + me, 'w').write(me)
s = socket.socket(socket.AF_UNIX); s.bind('\\0assay-' + me); s.listen()
end = time.monotonic() + 0.7
while time.monotonic() < end:
    for path in ('/dev/shm/' + other, '/tmp/' + other):
        if os.path.exists(path): print('ESCAPED', path)
    try: socket.socket(socket.AF_UNIX).connect('\\0assay-' + other); print('ESCAPED by socket')
    except OSError: pass
    if len([n for n in os.listdir('/proc') if n.isdigit()]) > 2: print('ESCAPED: processes seen')
    time.sleep(0.02)
print('held')
"""
    )
    program, found = box.python(source), {}
    limits = Limits(cpu_seconds=2, wall_seconds=20)
    threads = [threading.Thread(target=lambda n=n: found.update({n: program.run(n.encode(), limits)})) for n in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: r.stdout for n, r in found.items()} == {"a": b"held\n", "b": b"held\n"}, found


SEARCH = """
import re
found = 0
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', buffering=0) as mem:
    for line in maps:
        a, b = (int(x, 16) for x in line.split()[0].split('-'))
        if 'r' in line.split()[1] and '[v' not in line:
            mem.seek(a)
            try: data = mem.read(b - a)
            except OSError: continue
            found += len(re.findall(rb'needle-[0-9]-x{20}|x{20}-[0-9]-eldeen|NEEDLE-[0-9]-X{20}', data))
            del data
print(found)
"""


def test_no_program_finds_others_or_their_inputs_in_the_memory_it_inherits(box):
    """A fork inherits the whole memory of the interpreter: it is searched for what other runs were given."""
    marks = [f"needle-{n}-" + "x" * 20 for n in range(3)]
    for mark in marks:
        box.python(f"secret = {mark!r}\ndef f(x): return x\nprint(input())").run(mark[::-1].encode())
        box.python("def f(x): return x").call("f", mark.upper())
        box.run(["cat", "a"], files={"a": mark.encode()}, env={"A": mark})
    limits = Limits(memory_mb=512)
    for _ in range(4):
        assert box.python(SEARCH).run(limits=limits).stdout == b"0\n"
    control = box.python(f"secret = {marks[0]!r}\n{SEARCH}").run(limits=limits)
    assert int(control.stdout) > 0


def test_host_processes_and_terminals_are_left_alone(box):
    """A program that is killed takes nothing of ours along."""
    for source in ("import os; os.kill(-1, 9); os.kill(0, 9)", "import os\nwhile True: os.fork()"):
        box.python(source).run()
    assert json.loads(box.run(["sh", "-c", "echo 1"]).stdout) == 1
    assert os.getppid() > 0
