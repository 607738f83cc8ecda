"""The Python tool: what it reads, runs, shows, refuses and remembers."""

from __future__ import annotations

import asyncio

import pytest

from assay.core.errors import UsageError
from assay.sandbox import Sandbox
from assay.systems.agent import Limits, react, tool_loop
from assay.systems.chat.model import Choice, Reply, ToolCall
from assay.systems.scripted import ReplayModel
from assay.systems.tools import TextTool, Tool, first_call
from assay.systems.tools.python import PythonTool


@pytest.fixture(scope="module")
def box():
    try:
        sandbox = Sandbox()
    except UsageError as error:
        pytest.skip(str(error))
    with sandbox:
        yield sandbox


def run(tool, *codes):
    async def all_of_them():
        return [await tool.call({"code": code}) for code in codes]

    results = asyncio.run(all_of_them())
    return results if len(codes) > 1 else results[0]


def test_blocks_are_found_as_the_reference_parser_finds_them(oracle):
    tool = PythonTool()
    assert isinstance(tool, Tool)
    assert isinstance(tool, TextTool)
    for case in oracle("gem", "parsers")["python_tool"]:
        found = tool.find(case["action"])
        assert found is not None
        assert found.arguments == {"code": case["code"]}
        assert case["action"][: found.end] == case["parsed_action"]
    assert tool.find("print(1)") is None


def test_what_is_printed_comes_back(box):
    result = run(PythonTool(box), "print('a')\nimport sys\nprint('b', file=sys.stderr)")
    assert (result.text, result.error) == ("a\nb\n", None)


def test_a_traceback_is_the_codes_own(box):
    whole, last = run(PythonTool(box), "def f():\n    return 1 / 0\n\nprint('on the way')\nf()"), None
    assert whole.text == (
        "on the way\nTraceback (most recent call last):\n"
        '  File "<python>", line 5, in <module>\n    f()\n'
        '  File "<python>", line 2, in f\n    return 1 / 0\n           ~~^~~\n'
        "ZeroDivisionError: division by zero"
    )
    assert whole.error == "ZeroDivisionError: division by zero"
    last = run(PythonTool(box, errors="last"), "1 / 0")
    assert last.text == "ZeroDivisionError: division by zero"
    assert "SyntaxError" in (run(PythonTool(box), "def f(:").error or "")


def test_the_time_limit_is_the_one_that_is_told(box):
    result = run(PythonTool(box, seconds=0.5), "print('start', flush=True)\nwhile True: pass")
    assert result.text == "start\ntime limit of 0.5 s"
    assert result.error == "time limit of 0.5 s"
    assert run(PythonTool(box, seconds=0.5), "import time; time.sleep(60)").error == "time limit of 0.5 s"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os; os._exit(0)", "runtime error"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "runtime error"),
        ("x = bytearray(10**10)", "MemoryError"),
        ("open('/etc/shadow')", "FileNotFoundError"),
        ("import socket; socket.create_connection(('127.0.0.1', 80), 1)", "PermissionError"),
        ("raise SystemExit('enough')", "SystemExit: enough"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", "E"),
        ("import assay", "ModuleNotFoundError"),
    ],
)
def test_what_goes_wrong_in_the_box_is_the_callers_error(box, code, error):
    assert error in (run(PythonTool(box), code).error or "")


@pytest.mark.parametrize("echo", [False, True])
def test_code_has_none_of_the_drivers_own_future_features(box, echo):
    code = "def f(x: int): ...\nprint(f.__annotations__)"
    assert run(PythonTool(box, echo=echo), code).text.strip() == "{'x': <class 'int'>}"


def test_leaving_with_zero_is_no_error(box):
    result = run(PythonTool(box), "print(1)\nimport sys\nsys.exit(0)")
    assert (result.text, result.error) == ("1\n", None)


def test_missing_imports_are_tried_once_more(box):
    assert run(PythonTool(box), "print(sqrt(16), math.pi > 3, Counter('aab')['a'])").text == "4.0 True 2\n"
    assert run(PythonTool(box, retry_imports=False), "print(sqrt(16))").error == "NameError: name 'sqrt' is not defined"
    assert run(PythonTool(box), "print(nowhere)").error == "NameError: name 'nowhere' is not defined"


def test_the_last_value_is_echoed_on_request(box):
    tool = PythonTool(box, echo=True)
    assert [r.text for r in run(tool, "x = 2\nx * 3", "None", "x = 1", "print(5)")] == ["6\n", "", "", "5\n"]
    assert run(PythonTool(box), "1 + 1").text == ""


def test_long_output_is_cut_in_the_middle_and_control_characters_are_shown(box):
    result = run(PythonTool(box, longest=200), "print('a' * 1000 + 'z')")
    assert len(result.text) < 300
    assert result.text.startswith("aaa")
    assert result.text.endswith("z\n")
    assert "802 characters left out" in result.text
    assert run(PythonTool(box), "print('\\x1b[31mred')").text == "\\x1b[31mred\n"
    assert "�" in run(PythonTool(box), "import os; os.write(1, b'\\xff')").text


def test_calls_start_afresh_without_a_session(box):
    assert run(PythonTool(box), "x = 1", "print(x)")[1].error == "NameError: name 'x' is not defined"


def test_a_session_keeps_what_a_notebook_keeps(box):
    first = (
        "import math as m\nfrom itertools import *\nlimit = 3\n"
        "def f(n=limit): return n + len(seen)\n"
        "class A:\n    v = 1\n"
        "seen = [1, 2]\na = A()\na.v = 9\ndouble = lambda y: 2 * y\nstream = (i for i in range(3))"
    )
    second = "seen.append(5)\nprint(f(), a.v, isinstance(a, A), double(4), m.floor(2.5), list(islice(count(), 2)))"
    third = "later = 7\n1 / 0"
    fourth = "def f(): return 'new'\nprint(f(), later, seen)"
    tool = PythonTool(box, session=True)
    results = run(tool, first, second, third, fourth, "print(f(), later)", "print(stream)")
    assert "[not kept for the next call: stream]" in results[0].text
    assert results[1].text == "6 9 True 8 2 [0, 1]\n"
    assert results[3].text == "new 7 [1, 2, 5]\n"
    assert results[4].text == "new 7\n"
    assert results[5].error == "NameError: name 'stream' is not defined"
    tool.reset()
    assert run(tool, "print(later)").error == "NameError: name 'later' is not defined"


def test_sessions_of_one_box_do_not_see_each_other(box):
    one, two = PythonTool(box, session=True), PythonTool(box, session=True)
    run(one, "secret = 1")
    assert run(two, "print(secret)").error == "NameError: name 'secret' is not defined"
    assert run(one, "print(secret)").text == "1\n"


def test_a_forged_session_state_stays_in_the_box(box, tmp_path):
    # The code writes its own report: a state whose unpickling runs a command. The command runs, in the next box.
    target = tmp_path / "escaped"
    forged = (
        "import base64, json, os, pickle\n"
        f"class Bad:\n    def __reduce__(self): return (os.system, ('touch {target}',))\n"
        "state = base64.b64encode(pickle.dumps(([], {'x': pickle.dumps(Bad())}))).decode()\n"
        "import sys\nsys.modules['program'].run = None\n"
        "for n in range(3, 20):\n"
        "    try: os.write(n, json.dumps({'state': state}).encode())\n"
        "    except OSError: pass\n"
        "os._exit(0)"
    )
    tool = PythonTool(box, session=True)
    results = run(tool, forged, "print('still here')")
    assert not target.exists()
    assert results[1].text.startswith("still here\n")


def test_calls_at_once_run_at_once(box):
    async def several():
        tool = PythonTool(box)
        codes = [{"code": f"print({n})"} for n in range(6)]
        return [r.text for r in await asyncio.gather(*map(tool.call, codes))]

    assert asyncio.run(several()) == [f"{n}\n" for n in range(6)]


def test_agents_use_it_natively_and_by_its_tag(box):
    task = [{"role": "user", "content": "6 * 7?"}]
    call = Reply((Choice("", tool_calls=(ToolCall("a", "python", '{"code": "print(6 * 7)"}'),)),))
    native = tool_loop(ReplayModel([call, "42"]))
    tagged = react(ReplayModel(["<think>hm</think><python>print(6 * 7)", "<answer>42</answer>"]), protocol="tags")
    for agent in (native, tagged):
        trace = asyncio.run(agent.run(task, [PythonTool(box)], limits=Limits()))
        assert (trace.end, trace.answer, trace.tool_calls) == ("answer", "42", 1)
        assert "42" in trace.messages[-2]["content"]


def test_the_first_call_of_several_tools_counts(box):
    from assay.systems.tools.search import SearchTool

    tools = [SearchTool("http://127.0.0.1:1/retrieve"), PythonTool(box)]
    found = first_call("<python>1</python> <search>x</search>", tools)
    assert found is not None
    assert found.name == "python"
    assert first_call("nothing", tools) is None


def test_bad_settings_are_named():
    with pytest.raises(UsageError, match="errors is 'some'"):
        PythonTool(errors="some")
    with pytest.raises(UsageError, match="longest is 5"):
        PythonTool(longest=5)


def test_packages_that_are_named_are_there_and_no_others(box):
    with PythonTool(packages=("numpy",), seconds=20, memory_mb=1024) as tool:
        assert run(tool, "print(np.arange(3).sum())").text == "3\n"
        assert run(tool, "import scipy").error == "ModuleNotFoundError: No module named 'scipy'"
        assert "numpy" in tool.description
    with pytest.raises(UsageError, match="shared sandbox"):
        PythonTool(box, packages=("numpy",))


def test_its_own_sandbox_is_closed_with_it(box):
    with PythonTool() as tool:
        assert run(tool, "print(1)").text == "1\n"
        assert tool._own is not None
    assert tool._own is None
