"""Tasks on MCP servers: calls, answers, verifiers, states by repeated calls."""

import json
import sys
from pathlib import Path

import pytest

from assay.agents.gem.env import EnvError
from assay.agents.gem.mcp_task import MCPTaskEnv
from assay.agents.gem.registry import make
from assay.core.errors import UsageError

pytest.importorskip("mcp")
SERVER = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "toy_mcp_server.py")]}


def call(name, **arguments):
    return f"I call it. <tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def counted_to(env, answer):
    """The task: count up to three, then say done."""
    return env._call("up", {})[0] == "4" and answer == "done"


def test_calls_then_an_answer_that_is_verified():
    for ups, answer, reward in [(3, "done", 1.0), (2, "done", 0.0), (3, "what?", 0.0)]:
        with make("mcp:Task-v0", instruction="Count to three.", config=SERVER, verify=counted_to) as env:
            text, _ = env.reset(0)
            assert text.startswith("Count to three.\nTools:\n- add: ")
            for number in range(ups):
                text, got, terminated, _, info = env.step(call("up"))
                assert (text, got, terminated, info["use_tool"]) == (str(number + 1), 0.0, False, True)
            _, got, terminated, truncated, info = env.step(answer)
            assert (got, terminated, truncated, info["solved"]) == (reward, True, False, bool(reward))


def test_servers_begin_anew_at_reset_and_a_state_repeats_the_calls():
    with MCPTaskEnv("?", SERVER, counted_to) as env, MCPTaskEnv("?", SERVER, counted_to) as other:
        env.reset(0)
        env.step(call("up"))
        env.step(call("up"))
        other.set_state(json.loads(json.dumps(env.get_state())))
        assert other.step(call("up"))[0] == env.step(call("up"))[0] == "3"
        env.reset()
        assert env.step(call("up"))[0] == "1"


def test_bad_calls_are_answered_and_cost_a_turn():
    with MCPTaskEnv("?", SERVER, counted_to, max_turns=3) as env:
        env.reset(0)
        assert "no tool 'spam'; there are add" in env.step(call("spam"))[0]
        assert env.step("<tool_call>{</tool_call>")[4]["valid"] is False
        text, reward, terminated, truncated, info = env.step(call("fail", why="because"))
        assert "because" in text
        assert (reward, terminated, truncated, info["valid"]) == (0.0, True, True, False)


def test_a_command_verifies_by_its_exit_code():
    check = [sys.executable, "-c", "import sys; sys.exit(sys.stdin.read() != 'yes')"]
    for answer, reward in (("yes", 1.0), ("no", 0.0)):
        with MCPTaskEnv("?", SERVER, check) as env:
            env.reset(0)
            assert env.step(answer)[1] == reward
    with MCPTaskEnv("?", SERVER, ["/no/such/program"]) as env:
        env.reset(0)
        with pytest.raises(EnvError, match="cannot be run"):
            env.step("yes")


def test_verifiers_by_name_and_wrong_ones():
    assert MCPTaskEnv("?", SERVER, "builtins:isinstance")._verify is isinstance
    for wrong in ("nothing", "builtins:nothing", "no_such_module:f"):
        with pytest.raises(EnvError, match="is no installed module:function"):
            MCPTaskEnv("?", SERVER, wrong)
    with pytest.raises(UsageError, match="command is empty"):
        MCPTaskEnv("?", SERVER, [])


def test_a_server_without_tools_is_named():
    with (
        MCPTaskEnv("?", {**SERVER, "args": [*SERVER["args"], "none"]}, counted_to) as env,
        pytest.raises(UsageError, match="offers no tools"),
    ):
        env.reset(0)
