"""Tasks on MCP servers: call tools until done, then a verifier looks at what the servers hold."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.agents.gem.env import Env, EnvError, Turn, below
from assay.core.errors import UsageError
from assay.systems.dialects import find_tool_call

if TYPE_CHECKING:
    from assay.systems.tools.mcp import MCPServers

Verify = Callable[["MCPTaskEnv", str], bool]


class MCPTaskEnv(Env):
    """One tool call a turn, ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``; a text without one is the
    answer and ends the episode: reward 1 when the verifier agrees, else 0.

    Servers are started anew at each reset, since they hold state. A saved state is the list of calls: restoring starts
    the servers and makes the calls again, so it is exact where the servers are deterministic and begin alike.

    Parameters
    ----------
    instruction
        The task.
    config
        Of `assay.systems.tools.mcp.MCPServers`: URL, mapping or file.
    verify
        ``f(env, answer) -> bool``, its ``"module:function"``, or a command that ends with exit code 0. Commands are
        run as they are: name only verifiers that you trust.
    seconds
        Time limit of a call, and ten times that of the verifier's command.
    max_turns
        Calls an episode may have; then the verifier decides.
    """

    max_turns = 30
    saved = ("calls",)

    def __init__(
        self,
        instruction: str,
        config: str | Path | Mapping[str, Any],
        verify: Verify | str | Sequence[str],
        *,
        seconds: float = 30.0,
        max_turns: int | None = None,
        strict_gymnasium: bool = False,
        seed_global: bool = False,
    ) -> None:
        super().__init__(strict_gymnasium=strict_gymnasium, seed_global=seed_global, max_turns=max_turns)
        self.instruction, self.config, self.seconds = instruction, config, seconds
        self._verify = _verifier(verify)
        self.calls: list[list[Any]] = []
        """[tool, arguments] of every call made."""
        self.servers: MCPServers | None = None

    def begin(self) -> tuple[str, dict[str, Any]]:
        self.calls = []
        self._open()
        assert self.servers is not None
        lines = [
            f"- {tool.name}: {tool.description} Arguments: {json.dumps(tool.parameters)}" for tool in self.servers.tools
        ]
        text = "\n".join([self.instruction, "Tools:", *lines])
        hint = 'Call a tool with <tool_call>{"name": "...", "arguments": {...}}</tool_call>, one a turn.'
        return f"{text}\n{hint} Any other text is your final answer.", self._info()

    def _open(self) -> None:
        from assay.systems.tools.mcp import MCPServers

        self.close()
        self.servers = MCPServers(self.config, seconds=self.seconds)
        self.servers.open()

    def restored(self) -> None:
        if self._phase != "running":
            return
        self._open()
        for name, arguments in self.calls:
            self._call(name, arguments)

    def _info(self, **more: Any) -> dict[str, Any]:
        return {"suffix": "", "solved": False, "valid": True, "use_tool": False, **more}

    def _call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, str | None]:
        assert self.servers is not None
        tools = {own: tool for tool in self.servers.tools for own in (tool.original, tool.name)}
        if name not in tools:
            listed = ", ".join(tool.name for tool in self.servers.tools)
            return f"There is no tool {name!r}; there are {listed}.", "unknown tool"
        result = tools[name].call_sync(arguments)
        return result.text, result.error

    def act(self, action: str) -> Turn:
        found = find_tool_call(action)
        if found is None:
            return self._judge(action, ended=True)
        if found.problem:
            return Turn(f"The call cannot be read: {found.problem}.", info=self._info(valid=False, use_tool=True))
        self.calls.append([found.name, found.arguments])
        text, error = self._call(found.name, found.arguments)
        return Turn(text, info=self._info(valid=error is None, use_tool=True, parsed_action=action[: found.end]))

    def at_limit(self, turn: Turn) -> Turn:
        verdict = self._judge("", ended=False)
        return turn._replace(reward=verdict.reward, info={**turn.info, "solved": verdict.info["solved"]})

    def _judge(self, answer: str, ended: bool) -> Turn:
        fine = self._verify(self, answer)
        return Turn("The task is over.", float(fine), ended, self._info(solved=fine, correct=fine))

    def close(self) -> None:
        servers, self.servers = self.servers, None
        if servers is not None:
            servers.close()

    def random_action(self, rng: np.random.Generator) -> str:
        if self.servers is None or not self.servers.tools:
            return "done"
        tool = self.servers.tools[below(rng, len(self.servers.tools))]
        return f"<tool_call>{json.dumps({'name': tool.name, 'arguments': {}})}</tool_call>"


def _verifier(verify: Verify | str | Sequence[str]) -> Verify:
    if callable(verify):
        return verify
    if isinstance(verify, str):
        module, _, name = verify.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise EnvError(f"The verifier {verify!r} is no installed module:function ({error}).") from error
    command = [str(word) for word in verify]
    if not command:
        raise UsageError("The verifier's command is empty; give the program and its arguments.")

    def run(env: MCPTaskEnv, answer: str) -> bool:
        try:
            # The answer goes in by standard input; the exit code is the verdict.
            return subprocess.run(command, input=answer.encode(), timeout=10 * env.seconds).returncode == 0
        except subprocess.TimeoutExpired:
            return False
        except OSError as error:
            raise EnvError(f"{env.name}: the verifier {command[0]!r} cannot be run ({error}).") from error

    return run
