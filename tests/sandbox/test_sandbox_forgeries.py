# ruff: noqa: E501  (the programs are data)
"""No program talks itself into a verdict: its keeper tells how it ended, a judge apart what it is worth."""

from __future__ import annotations

import pytest

from assay.sandbox import Limits, Sandbox

LIMITS = Limits(cpu_seconds=1, wall_seconds=8, memory_mb=256, output_bytes=1 << 16, processes=16)
TESTS = (("3\n", "6"), ("10\n", "20"))
JUDGE = """
def judge(input_str, candidate_output, reference_output):
    return int(candidate_output) == int(reference_output) == 2 * int(input_str)
"""


@pytest.fixture(scope="module")
def box():
    from assay.sandbox.bubblewrap import problem as bubblewrap_problem

    if problem := bubblewrap_problem():
        pytest.skip(problem)
    with Sandbox("bubblewrap", limits=LIMITS, boxes=1) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def judge(box):
    return box.python(JUDGE)


def accepted(program, judge) -> bool:
    """A verdict as a room makes it: the candidate runs on the input, the judge on its output, in a process of its own."""
    for given, wanted in TESTS:
        result = program.run(given.encode())
        if not result.ok:
            return False
        said = judge.call("judge", given, result.stdout.decode(errors="replace"), wanted)
        if not (said.ok and said.value is True):
            return False
    return True


FORGERIES = {
    "leave before the work": "import os; os._exit(0)",
    "exit with success": "import sys; sys.exit(0)",
    "print a verdict": "print('ok'); print('accepted'); print(True)",
    "print the sandbox's own report": """print('{"status": 0, "why": "", "killed": "", "keeper": 0}')""",
    "write the report to every open file": """
import os
for n in range(1024):
    try: os.write(n, b'{"status": 0, "why": "", "value": true}')
    except OSError: pass
""",
    "send a message on every socket": """
import socket
for n in range(1024):
    try: socket.socket(fileno=n).send(b'{"status": 0}')
    except OSError: pass
""",
    "write into the keeper": """
import os
for n in range(300):
    for p in (1, os.getppid()):
        try: os.write(os.open(f'/proc/{p}/fd/{n}', os.O_WRONLY), b'{"status": 0}')
        except OSError: pass
""",
    "override equality": """
class Yes(int):
    def __eq__(self, other): return True
    def __str__(self): return 'True'
print(Yes())
""",
    "patch int in builtins": "import builtins; builtins.int = lambda x: 6; print(7)",
    "patch json": "import json, sys; json.dumps = lambda *a, **k: 'true'; json.loads = lambda *a: True; print(1)",
    "patch the judge's function": "def judge(*a): return True\nimport sys; sys.modules['program'] = sys.modules['__main__']; print(judge())",
    "patch everything that garbage collection finds": """
import gc, types
for o in gc.get_objects():
    if isinstance(o, types.FunctionType) and o.__module__ and o.__module__.startswith('inside'):
        try: o.__code__ = (lambda *a, **k: 0).__code__
        except ValueError: pass
print(1)
""",
    "change the caller's variables": """
import sys
f = sys._getframe()
while f:
    for k in ('status', 'value', 'request', 'limits', 'report'):
        if k in f.f_locals: f.f_locals[k] = 0
    f = f.f_back
print(1)
""",
    "hide an error": "import sys, os; sys.excepthook = lambda *a: os._exit(0)\nprint(1 / 0)",
    "turn failure into success at the end": "import atexit, os; atexit.register(os._exit, 0); raise ValueError",
    "exit with an odd object": "class E(int):\n    def __and__(self, o): return 0\nraise SystemExit(E(0))",
    "close standard output and succeed": "import os; os.close(1); os._exit(0)",
    "answer from an earlier run's file": """
import os
for p in ('/tmp/answer', '/dev/shm/answer', 'answer'):
    if os.path.exists(p): print(open(p).read()); break
else:
    for p in ('/tmp/answer', '/dev/shm/answer', 'answer'): open(p, 'w').write('20')
""",
    "a daemon that answers for the next run": """
import os, time
if os.fork() == 0:
    os.setsid(); time.sleep(0.5)
    for n in range(20): os.write(1, b'20')
os._exit(0)
""",
    "kill the keeper": "import os\nfor n in range(1, 65):\n    try: os.kill(1, n)\n    except OSError: pass\nos._exit(0)",
    "kill everybody else": "import os, signal\ntry: os.kill(-1, 9)\nexcept OSError: pass\nos._exit(0)",
    "trace the keeper": "import ctypes; l = ctypes.CDLL(None); l.ptrace(16, 1, 0, 0); print(1)",
    "write into the keeper's memory": "try: open('/proc/1/mem', 'r+b').write(b'x')\nexcept OSError: pass\nprint(1)",
    "talk to the judge": "print('6) or True #')",
    "answer with code for the judge": "print('__import__(\"os\")._exit(0)')",
    "answer with JSON that closes the judge's": "print('6\", \"6\"]} true')",
    "answer with every number": "print('6\\n20')",
    "answer with no number": "print('nan')",
    "answer with a flood": "print('6\\n' * 10**7)",
    "stop a moment before the limit": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "die by a signal that looks like the sandbox": "import os; os.kill(os.getpid(), 9)",
    "succeed in a child": "import os\nif os.fork() == 0: os._exit(0)\nos.wait(); raise SystemExit(1)",
    "read the judge": "import glob, os\nfor p in glob.glob('/tmp/**', recursive=True) + ['/proc/1/environ', '/run/assay-box/tests']:\n    try: print(open(p).read())\n    except OSError: pass",
    "read the next input": "import os; print(os.read(0, 1 << 20).decode() * 2)",
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_no_forged_verdict_is_accepted(box, judge, name):
    assert not accepted(box.python(FORGERIES[name]), judge)


def test_the_honest_program_is_accepted_after_all_of_that(box, judge):
    assert accepted(box.python("print(2 * int(input()))"), judge)
    assert len(FORGERIES) >= 20


CPP_FORGERIES = {
    "leave before main": "#include <unistd.h>\nstruct A { A() { _exit(0); } } a; int main() {}",
    "write to every open file": '#include <unistd.h>\nint main(){ for (int n = 1; n < 1024; ++n) write(n, "{\\"status\\": 0}", 13); }',
    "return from a signal": "#include <csignal>\n#include <unistd.h>\nint main(){ signal(SIGSEGV, [](int){ _exit(0); }); *(volatile int*)1 = 0; }",
}  # fmt: skip


@pytest.mark.parametrize("name", CPP_FORGERIES)
def test_no_forged_verdict_in_cpp_is_accepted(box, judge, name):
    assert not accepted(box.cpp(CPP_FORGERIES[name]), judge)


CALLS = {
    "leave": "import os\ndef f(x): os._exit(0)",
    "exit": "def f(x): raise SystemExit(0)",
    "print it": "def f(x): print('true')",
    "not JSON": "def f(x): return object()",
    "equal to all": "class A:\n    def __eq__(self, o): return True\ndef f(x): return A()",
    "text that looks true": "def f(x): return 'true'",
    "a number that is true": "def f(x): return 1",
    "half a value": "import os\ndef f(x): os.write(3, b'tru'); os._exit(0)",
    "two values": "import os\ndef f(x): os.write(3, b'true'); return True",
    "no such function": "def g(x): return True",
    "another name's builtins": "f = None",
    "too much": "def f(x): return 'x' * 10**6",
    "for ever": "def f(x):\n    while True: pass",
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_judge_that_does_not_return_a_clean_true_does_not_accept(box, name):
    result = box.python(CALLS[name]).call("f", 1)
    assert not (result.ok and result.value is True), result


def test_the_value_does_not_depend_on_what_is_printed(box):
    program = box.python("import os\ndef f(x): print('false'); os.write(1, b'{}'); return x")
    assert program.call("f", {"a": [1.5, None, "é"]}).value == {"a": [1.5, None, "é"]}
