"""MCP tools: sessions that last, die, come back and end; results, errors, configurations."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from assay.core.errors import DataError, ProviderError, UsageError
from assay.systems.agent import Limits, react, tool_loop
from assay.systems.chat.model import Choice, Reply, ToolCall
from assay.systems.scripted import ReplayModel
from assay.systems.tools import Tool
from assay.systems.tools.background import BackgroundLoop
from assay.systems.tools.mcp import MCPServers
from assay.systems.tools.mcp_config import read_config

pytest.importorskip("mcp")

SUPPORT = Path(__file__).parents[1] / "support"
TOY = [sys.executable, "-S", str(SUPPORT / "toy_mcp_server.py")]


@pytest.fixture(scope="module")
def shared():
    with MCPServers.from_command(TOY) as servers:
        yield servers


@pytest.fixture
def toy(shared):
    return {tool.original: tool for tool in shared.tools}


def gone(pid, seconds=5.0):
    for _ in range(int(seconds / 0.05)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_all_pages_of_tools_are_there_with_names_that_services_take(toy):
    assert len(toy) == 10
    assert all(isinstance(tool, Tool) for tool in toy.values())
    assert toy["die.once"].name == "die_once"
    assert toy["add"].description == "The tool add."
    assert toy["add"].parameters["required"] == ["a", "b"]
    assert toy["die.once"].repeatable
    assert not toy["add"].repeatable


def test_state_lasts_from_call_to_call_and_from_loop_to_loop(toy):
    first = int(asyncio.run(toy["up"].call({})).text)
    assert int(asyncio.run(toy["up"].call({})).text) == first + 1
    assert int(toy["up"].call_sync({}).text) == first + 2
    found = []
    thread = threading.Thread(target=lambda: found.append(toy["up"].call_sync({}).text))
    thread.start()
    thread.join()
    assert found == [str(first + 3)]


def test_calls_at_once_share_the_session(toy):
    async def several():
        return await asyncio.gather(*(toy["add"].call({"a": n, "b": 1}) for n in range(20)))

    assert [r.text for r in asyncio.run(several())] == [str(n + 1) for n in range(20)]


def test_every_kind_of_content_is_shown(toy):
    result = toy["everything"].call_sync({})
    assert result.text == "one\nfile:///a.txt\ninside\n[file:///c.bin]\n[audio]"
    assert result.images == ("data:image/png;base64,AAAA",)
    assert toy["add"].call_sync({"a": 1, "b": 2}).data == {"sum": 3}


def test_what_a_tool_reports_is_the_callers_error(toy):
    failed = toy["fail"].call_sync({"why": "not found\nlook elsewhere"})
    assert (failed.text, failed.error) == ("not found\nlook elsewhere", "not found")
    refused = toy["refuse"].call_sync({})
    assert refused.error == "no tool refuse"


def test_the_time_limit_of_a_call_holds():
    with MCPServers.from_command(TOY, seconds=0.3) as servers:
        tool = next(t for t in servers.tools if t.name == "nap")
        began = time.monotonic()
        result = tool.call_sync({"seconds": 2})
        assert result.error == "time limit of 0.3 s"
        assert time.monotonic() - began < 1.5


def test_a_server_that_dies_during_a_call_is_started_for_the_next_one(shared, toy):
    toy["up"].call_sync({})
    starts = shared.starts("server")
    result = toy["die"].call_sync({})
    assert result.error == "the server ended during the call"
    assert "unknown" in result.text
    assert toy["up"].call_sync({}).text == "1"
    assert shared.starts("server") == starts + 1


def test_a_call_that_changes_nothing_is_made_again(toy, tmp_path):
    assert toy["die.once"].call_sync({"marker": str(tmp_path / "died")}).text == "answered"


def test_a_server_found_dead_is_started_before_the_call(toy):
    os.kill(int(toy["pid"].call_sync({}).text), signal.SIGKILL)
    time.sleep(0.3)
    result = toy["up"].call_sync({})
    assert (result.text, result.error) == ("1", None)


def test_closing_ends_the_process_and_the_tools_say_so():
    servers = MCPServers.from_command(TOY)
    servers.open()
    tool = next(t for t in servers.tools if t.name == "pid")
    pid = int(tool.call_sync({}).text)
    with pytest.raises(UsageError, match="open already"):
        servers.open()
    servers.close()
    servers.close()
    assert gone(pid)
    with pytest.raises(UsageError, match="after its MCP servers were closed"):
        tool.call_sync({})


def test_a_cancelled_user_leaves_no_process():
    pids = []

    async def user():
        async with MCPServers.from_command(TOY) as servers:
            tools = {t.name: t for t in servers.tools}
            pids.append(int((await tools["pid"].call({})).text))
            await tools["nap"].call({"seconds": 0.5})
            await asyncio.sleep(60)

    async def main():
        task = asyncio.create_task(user())
        while not pids:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)

    asyncio.run(main())
    assert gone(pids[0])


def test_several_servers_have_prefixes_and_can_be_exchanged():
    command = {"command": TOY[0], "args": TOY[1:]}
    config = {"mcpServers": {"a": {**command, "env": {"WHO": "one"}}, "b": {**command, "env": {"WHO": "two"}}}}
    with MCPServers(config) as servers:
        assert {t.name for t in servers.tools if t.original == "variable"} == {"a_variable", "b_variable"}
        said = {t.name: t.call_sync({"name": "WHO"}).text for t in servers.tools if t.original == "variable"}
        assert said == {"a_variable": "one", "b_variable": "two"}
        servers.reconfigure(command)
        assert "variable" in {t.name for t in servers.tools}


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("none", UsageError, "offers no tools"),
        ("crash", ProviderError, "does not start .*it said: the database is not there; 2 tries"),
        ("silent", ProviderError, "no answer within 0.5 seconds"),
    ],
)
def test_a_server_that_is_none_is_named(mode, error, words):
    with (
        pytest.raises(error, match=words),
        MCPServers.from_command([*TOY, mode], retries=1, delay=0.01, start_seconds=0.5 if mode == "silent" else 20),
    ):
        pass


def test_a_command_that_is_not_there_is_named():
    with pytest.raises(ProviderError, match="no-such-program"), MCPServers.from_command(["no-such-program"], retries=0):
        pass


def test_agents_use_them_natively_and_by_text(toy):
    task = [{"role": "user", "content": "6 + 7?"}]
    call = Reply((Choice("", tool_calls=(ToolCall("a", "add", '{"a": 6, "b": 7}'),)),))
    text = '<tool_call><tool_name>add</tool_name><arguments>{"a": 6, "b": 7}</arguments></tool_call>'
    for agent in (tool_loop(ReplayModel([call, "13"])), react(ReplayModel([text, "<answer>13"]), protocol="tags")):
        trace = asyncio.run(agent.run(task, list(toy.values()), limits=Limits()))
        assert (trace.answer, trace.tool_calls, trace.tool_errors) == ("13", 1, 0)
    found = toy["die.once"].find('<tool_call>{"name": "die.once", "arguments": {"marker": "x"}}</tool_call>')
    assert found is not None
    assert found.name == "die_once"
    assert toy["add"].find(text.replace("add", "up")) is None


# -- HTTP --------------------------------------------------------------------------------------------------------------


def http_server(port):
    process = subprocess.Popen(
        [sys.executable, str(SUPPORT / "toy_mcp_http.py"), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return process
        except OSError:
            assert process.poll() is None
            time.sleep(0.1)
    raise AssertionError("the HTTP server did not start")


def test_a_server_over_http_keeps_its_session_headers_and_comes_back():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = http_server(port)
    try:
        with MCPServers(f"http://127.0.0.1:{port}/mcp", auth="secret", headers={"X-Who": "me"}, delay=0.2) as servers:
            tools = {t.name: t for t in servers.tools}
            assert tools["add"].call_sync({"a": 1, "b": 2}).text == "3"
            assert tools["header"].call_sync({"name": "authorization"}).text == "Bearer secret"
            assert tools["header"].call_sync({"name": "x-who"}).text == "me"
            assert [tools["up"].call_sync({}).text for _ in range(2)] == ["1", "2"]
            process.terminate()
            process.wait(10)
            process = http_server(port)
            for _ in range(3):  # the first may have met a connection that had just gone
                result = tools["up"].call_sync({})
                if result.error is None:
                    break
            assert result.text == "1"
    finally:
        process.terminate()
        process.wait(10)


def test_an_address_where_nothing_listens_is_named():
    with pytest.raises(ProviderError, match="does not start"), MCPServers("http://127.0.0.1:1/mcp", retries=0):
        pass


# -- configurations ----------------------------------------------------------------------------------------------------


def test_the_forms_of_a_configuration_mean_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0p")
    entry = {"url": "https://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"servers": {"server": entry}}))
    forms = [entry, {"server": entry}, {"mcpServers": {"server": entry}}, path, str(path)]
    servers = [read_config(form, {"X": "1"}) for form in forms]
    assert all(found == servers[0] for found in servers)
    (server,) = servers[0]
    assert server.headers == {"X": "1", "Authorization": "Bearer t0p"}
    assert "t0p" not in repr(server)
    (command,) = read_config({"command": "${RUNNER:-npx}", "args": ["-y", "${env:TOKEN}"], "cwd": "/x"}, {})
    assert (command.command, command.args, command.cwd) == ("npx", ("-y", "t0p"), "/x")
    both = read_config({"a": entry, "b": {"command": "x"}, "c": {"command": "y", "disabled": True}}, {})
    assert [s.name for s in both] == ["a", "b"]
    assert read_config({"url": "https://h/sse", "type": "sse"}, {})[0].sse


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "names no server"),
        ([], "is list"),
        ({"a": {"url": "https://x", "command": "y"}}, "either a url or a command"),
        ({"a": {}}, "has nothing"),
        ({"a": 3}, "server 'a' is 3"),
        ({"a": {"url": "ftp://x"}}, "must begin with http"),
        ({"a": {"url": "https://x", "type": "grpc"}}, "type 'grpc'"),
        ({"a": {"command": "x", "args": "-y"}}, "list of texts"),
        ({"a": {"command": "x", "env": {"N": 1}}}, "mapping of texts"),
        ({"a": {"command": "${NOT_SET_ANYWHERE}"}}, "NOT_SET_ANYWHERE, which is not set"),
    ],
)
def test_a_bad_configuration_is_one_sentence(config, words):
    with pytest.raises(UsageError, match=words):
        read_config(config, {})


def test_a_bad_file_is_named(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        MCPServers(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        MCPServers(tmp_path / "bad.json")
    with pytest.raises(UsageError, match="retries"):
        MCPServers("http://x/mcp", retries=-1)
    with pytest.raises(UsageError, match="command is empty"):
        MCPServers.from_command([])


# -- the loop ----------------------------------------------------------------------------------------------------------


def test_a_background_loop_serves_threads_and_loops_and_ends():
    async def double(n):
        await asyncio.sleep(0.01)
        return 2 * n

    with BackgroundLoop() as loop:
        assert loop.run(double(2)) == 4
        assert asyncio.run(loop.arun(double(3))) == 6
        with pytest.raises(TimeoutError):
            loop.run(asyncio.sleep(30), timeout=0.05)
        with pytest.raises(ZeroDivisionError):
            loop.run(_broken())
    loop.close()
    assert not loop._thread.is_alive()


async def _broken():
    return 1 / 0
