"""Programs run as they would elsewhere, and every ending has its own status."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.sandbox import Limits, Sandbox, SandboxError, bubblewrap, view
from assay.sandbox.box import Box, Lost

CHILDREN = """
import os, time
for _ in range(9):
    if os.fork() == 0:
        x = b'1' * (60 << 20)
        time.sleep(2)
time.sleep(2)
"""
CPP_SUM = "#include <iostream>\nint main(){long long a,b;std::cin>>a>>b;std::cout<<a+b<<std::endl;}\n"


def test_python_reads_stdin_and_writes_stdout(box):
    result = box.python("print(int(input()) * 2)").run(b"21\n")
    assert (result.status, result.exit_code, result.signal, result.stdout, result.stderr) == (
        "ok",
        0,
        None,
        b"42\n",
        b"",
    )
    assert 0 < result.cpu_seconds < 1
    assert 1 < result.peak_memory_mb < 200


def test_cpp_reads_stdin_and_writes_stdout(box):
    program = box.cpp(CPP_SUM)
    assert program.status == "ok"
    assert [program.run(text).stdout for text in (b"1 2", b"-5 7")] == [b"3\n", b"2\n"]


def test_a_command_finds_its_files_and_variables_and_brings_files_back(box):
    command = ["sh", "-c", "cat sub/a.txt; echo $MOOD; cat; printf done > out.txt; ln -s /etc/passwd link; mkfifo pipe"]
    result = box.run(
        command,
        stdin=b"in",
        files={"sub/a.txt": b"one "},
        env={"MOOD": "calm"},
        collect=["out.txt", "link", "pipe", "no"],
    )
    assert result.stdout == b"one calm\nin"
    assert result.files == {"out.txt": b"done"}


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        ("import sys; sys.exit(3)", "runtime error", "exit code 3"),
        ("import sys; sys.exit('no')", "runtime error", "exit code 1"),
        ("1/0", "runtime error", "exit code 1"),
        ("import os; os.abort()", "runtime error", "signal SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "runtime error", "signal SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "runtime error", "signal SIGSEGV"),
        ("while True: pass", "time limit", "processor time"),
        ("import time; time.sleep(9)", "time limit", "on the clock"),
        ("x = [0] * 10**9", "memory limit", "256 MB"),
        ("x = bytearray(10**9)", "memory limit", "256 MB"),
        ("while True: print('x' * 1000)", "output limit", "standard output"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "output limit", "standard error"),
        ("exit()", "ok", ""),
        ("raise SystemExit", "ok", ""),
        ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print(1))).start()", "ok", ""),
        ("import atexit; atexit.register(print, 'bye')", "ok", ""),
        ("import sys; print('warn', file=sys.stderr)", "ok", ""),
    ],
)  # fmt: skip
def test_every_end_of_a_python_program_has_its_status(box, source, status, reason):
    limits = Limits(cpu_seconds=0.3, wall_seconds=2, memory_mb=256, output_bytes=100_000)
    result = box.python(source).run(limits=limits)
    assert result.status == status, result
    assert reason in result.reason
    assert len(result.stdout) <= 100_000
    assert len(result.stderr) <= 100_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return 7;", "runtime error"),
        ("int* p = nullptr; *(volatile int*)p = 1;", "runtime error"),
        ("for (volatile long i = 0;; ++i) {}", "time limit"),
        ("std::vector<char> v(1u << 30, 1); std::cout << v[5];", "memory limit"),
        ("for (;;) std::cout << 1234567890123;", "output limit"),
        ("throw 1;", "runtime error"),
        ("std::cout << 1; return 0;", "ok"),
    ],
)
def test_every_end_of_a_cpp_program_has_its_status(box, body, status):
    program = box.cpp("#include <iostream>\n#include <vector>\nint main() { " + body + " }")
    limits = Limits(cpu_seconds=0.3, wall_seconds=4, memory_mb=256, output_bytes=100_000)
    assert program.run(limits=limits).status == status


def test_a_deep_recursion_needs_the_stack_that_it_is_given(box):
    program = box.cpp(
        "int f(int n){volatile char x[100]; x[0]=n; return n?f(n-1)+x[0]:0;} int main(){return f(400000)*0;}"
    )
    assert program.run(limits=Limits(stack_mb=8)).reason == "signal SIGSEGV"
    assert program.run(limits=Limits(stack_mb=256)).ok


def test_what_does_not_compile_says_why_and_never_runs(box):
    for program in (box.cpp("int main(){ return x; }"), box.python("print(1"), box.python("a\0b")):
        assert program.status == "compile error"
        assert program.text
        assert program.run(b"1").status == "compile error"


def test_a_function_is_called_with_json_and_gives_json(box):
    program = box.python("def f(a, *, b): print('noise'); return {'sum': a + b, 'list': (1, None)}")
    result = program.call("f", 1, b=2)
    assert (result.value, result.stdout) == ({"sum": 3, "list": [1, None]}, b"noise\n")


@pytest.mark.parametrize(
    "source", ["def f(): return {1, 2}", "def g(): pass", "def f(): raise ValueError", "def f(): exit()"]
)
def test_a_call_without_a_value_is_no_success(box, source):
    result = box.python(source).call("f")
    assert result.status == "runtime error"
    assert result.value is None


def test_a_python_program_is_a_main_module(box):
    source = """
import pickle, sys, inspect
class A: pass
print(__name__, type(pickle.loads(pickle.dumps(A()))) is A, sys.argv[1:], sys.modules['__main__'].A is A)
print(inspect.getsource(A).strip())
"""
    assert box.python(source).run(args=["x"]).stdout == b"__main__ True ['x'] True\nclass A: pass\n"


def test_runs_of_a_program_do_not_see_each_other(box):
    source = """
import os
seen = os.listdir('.') + os.listdir('/tmp') + os.listdir('/dev/shm')
for folder in ('.', '/tmp', '/dev/shm'):
    open(folder + '/left', 'w').write('x')
globals()['n'] = globals().get('n', 0) + 1
print(sorted(seen), n)
"""
    program = box.python(source)
    assert {program.run().stdout for _ in range(3)} == {b"['main.py', 'work', 'work'] 1\n"}


def test_processes_inside_work_as_usual(box):
    source = """
import multiprocessing, subprocess, threading, asyncio
def f(x): return x * x
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: print(pool.map(f, range(4)))
    print(subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout)
    async def main(): return await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.to_thread(f, 3))
    print(asyncio.run(main()))
"""
    result = box.python(source).run(limits=Limits(memory_mb=1024))
    assert result.stdout == b"[0, 1, 4, 9]\nhi\n\n[1, 9]\n", result


def test_processor_time_and_the_clock_are_kept_apart(box):
    sleeper = box.python("import time; time.sleep(0.6)")
    assert sleeper.run(limits=Limits(cpu_seconds=0.3, wall_seconds=5)).ok
    burner = box.python("import time\nwhile time.process_time() < 0.6: pass")
    result = burner.run(limits=Limits(cpu_seconds=0.3, wall_seconds=30))
    assert result.status == "time limit"
    assert 0.3 <= result.cpu_seconds < 0.6


def test_output_until_the_limit_is_kept(box):
    result = box.python("print('x' * 50, flush=True)\nwhile True: pass").run(limits=Limits(cpu_seconds=0.2))
    assert (result.status, result.stdout) == ("time limit", b"x" * 50 + b"\n")


@given(st.binary(max_size=300))
def test_bytes_come_back_as_they_went(echo, data):
    assert echo.run(data).stdout == data


@pytest.fixture(scope="module")
def echo(box):
    return box.cpp("#include <cstdio>\nint main(){int c; while((c=getchar())!=EOF) putchar(c);}")


def test_a_large_input_and_output_pass(box, echo):
    data = bytes(range(256)) * (1 << 15)
    assert echo.run(data, limits=Limits(output_bytes=len(data))).stdout == data
    assert echo.run(data, limits=Limits(output_bytes=len(data) - 1)).status == "output limit"


def test_many_threads_share_the_boxes(box):
    program, found = box.python("print(int(input()) + 1)"), {}

    def work(start):
        for n in range(start, start + 5):
            found[n] = int(program.run(b"%d" % n).stdout)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {100 * i + k: 100 * i + k + 1 for i in range(6) for k in range(5)}


def test_the_async_twins_do_not_hold_the_loop_and_cancelling_ends_the_run(box):
    sleeper = box.python("import time; time.sleep(20)")
    doubler = box.python("def f(x): return 2 * x")

    async def main():
        waiting = asyncio.create_task(sleeper.arun())
        value = (await doubler.acall("f", 4)).value
        listing = await box.arun(["echo", "x"])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return value, listing.stdout

    begun = time.monotonic()
    assert asyncio.run(main()) == (8, b"x\n")
    assert time.monotonic() - begun < 10


def test_verdicts_agree_with_the_published_judge(box, oracle):
    names = {
        "ok": "SUCCESS",
        "runtime error": "RUNTIME_ERROR",
        "time limit": "TIME_LIMIT_EXCEEDED",
        "compile error": "COMPILE_ERROR",
    }
    for case in oracle("sandbox", "run_and_judge")["cases"]:
        make = {"python3": box.python, "cpp": box.cpp}[case["language"]]
        program = make(case["program"])
        judge = case["output_judging_function"] and box.python(case["output_judging_function"])
        limits = Limits(cpu_seconds=case["time_limit_s"] / 4, memory_mb=case["memory_limit_kb"] >> 10)
        statuses, verdicts = [], []
        for given_input, wanted in zip(case["inputs"], case["reference_outputs"], strict=True):
            if case["early_exit"] and 0 in verdicts:
                statuses.append("SKIPPED")
                verdicts.append(-1)
                continue
            result = program.run(given_input.encode(), limits)
            statuses.append(names[result.status])
            if program.status != "ok":
                verdicts.append(-1)
            elif not result.ok:
                verdicts.append(0)
            elif judge:
                said = judge.call("output_judging_function", given_input, result.stdout.decode(), wanted)
                verdicts.append(int(said.ok and said.value is True))
            else:
                verdicts.append(int(result.stdout.decode().rstrip() == wanted.rstrip()))
        assert (statuses, verdicts) == (case["expected_run_status"], case["expected_verdicts"]), case["name"]


def test_a_compiled_program_is_compiled_once(box, monkeypatch):
    box.cpp(CPP_SUM)
    monkeypatch.setattr(Sandbox, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert box.cpp(CPP_SUM).run(b"4 5").stdout == b"9\n"


def test_a_box_that_is_killed_under_a_run_is_lost_and_the_next_run_has_another(box):
    program = box.python("import time; time.sleep(5)")
    with Sandbox("bubblewrap", boxes=1) as other:
        program = other.python("import time; print(1, flush=True); time.sleep(float(input()))")
        held = other._free[0]
        threading.Timer(0.3, held._started.process.kill).start()
        result = program.run(b"30")
        assert result.status == "sandbox lost"
        assert program.run(b"0").ok


@pytest.mark.parametrize(
    "wrong", [{"cpu_seconds": 0}, {"memory_mb": 1.5}, {"processes": -1}, {"output_bytes": True}, {"wall_seconds": "3"}]
)
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Limits(**wrong)


def test_wrong_requests_get_a_sentence(box):
    for argv in ("ls", [], [1]):
        with pytest.raises(UsageError, match="list of words"):
            box.run(argv)
    for name in ("/etc/x", "../x", ""):
        with pytest.raises(UsageError, match="relative to the working folder"):
            box.run(["true"], files={name: b""})
    with pytest.raises(UsageError, match=r"standard 'c\+\+99'"):
        box.cpp("", std="c++99")
    with pytest.raises(UsageError, match="Only functions of Python"):
        box.cpp(CPP_SUM).call("main")
    assert box.run(["no-such-program"]).exit_code == 127


def test_a_closed_sandbox_says_so():
    pytest.importorskip("assay.sandbox")
    sandbox = Sandbox("unsafe")
    sandbox.close()
    with pytest.raises(UsageError, match="closed"):
        sandbox.run(["true"])


def test_a_sandbox_that_cannot_start_says_what_it_said(monkeypatch):
    monkeypatch.setattr(
        "assay.sandbox.launch.runner_command", lambda *_, **__: [sys.executable, "-c", "raise SystemExit('no way')"]
    )
    with pytest.raises(Lost, match="no way"):
        Box("unsafe")
    with Sandbox("unsafe") as sandbox, pytest.raises(SandboxError, match="no way"):
        sandbox.run(["true"])


def test_named_packages_are_there_and_no_others():
    if problem := bubblewrap.problem():
        pytest.skip(problem)
    source = """
import importlib.util, numpy
print(numpy.arange(5).sum(), importlib.util.find_spec('polars'), importlib.util.find_spec('assay'))
"""
    with Sandbox("bubblewrap", boxes=1, packages=["numpy"]) as box:
        assert box.python(source).run().stdout == b"10 None None\n"
    with Sandbox("unsafe", boxes=1, packages=["numpy"]) as box:
        assert box.python("import numpy; print(numpy.arange(5).sum())").run().stdout == b"10\n"
    with pytest.raises(UsageError, match="'no-such-package', which is not installed"):
        Sandbox("unsafe", packages=["no-such-package"])
    with pytest.raises(UsageError, match="'assay': its files are not in site-packages"):
        Sandbox("unsafe", packages=["assay"])


@pytest.mark.parametrize("keeper", ["C", "Python"])
def test_both_keepers_report_the_same(monkeypatch, keeper):
    """Without a compiler the keeper is Python; every kind of ending, and the run's world, are as with the one in C."""
    if problem := bubblewrap.problem():
        pytest.skip(problem)
    if keeper == "Python":
        monkeypatch.setattr("assay.sandbox.launch.keeper_library", lambda: None)
    elif view.keeper_library() is None:
        pytest.skip("no C compiler on this machine")
    limits = Limits(cpu_seconds=0.5, wall_seconds=3, memory_mb=256, output_bytes=100_000, file_mb=8, processes=24)
    with Sandbox("bubblewrap", limits=limits, boxes=1) as box:
        ends = [
            ("print(input())", "ok"), ("raise SystemExit(3)", "runtime error"),
            ("import os; os.abort()", "runtime error"),
            ("while True: pass", "time limit"), ("import time; time.sleep(9)", "time limit"),
            ("x = bytearray(1 << 30)", "memory limit"), ("while True: print('x' * 999)", "output limit"),
            ("import os\nwhile True: os.fork()", "runtime error"),
            (CHILDREN, "memory limit"),
        ]  # fmt: skip
        assert [box.python(source).run(b"1").status for source, _ in ends] == [status for _, status in ends]
        world = box.run(["sh", "-c", "pwd; ls; id -u; ls /proc | head -3; cat"], stdin=b"in", files={"a/b": b"x"})
        assert world.stdout.split() == [b"/tmp/work", b"a", b"1000", b"1", b"2", *world.stdout.split()[5:6], b"in"]
        assert box.run(["sh", "-c", "echo 1 > x; exit 4"], collect=["x"]).files == {"x": b"1\n"}
        assert box.python("def f(x): return [x]").call("f", "é").value == ["é"]
        assert box.cpp(CPP_SUM).run(b"1 2").stdout == b"3\n"
        signals = box.python("import signal\nprint(int(signal.getsignal(13)), signal.getsignal(2).__name__)")
        assert signals.run().stdout == b"1 default_int_handler\n"
