"""Tools of MCP servers: one session a server that stays open, started again when it dies, closed for certain.

A session costs a server's start (seconds for ``npx``), a call in an open one a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import MissingExtra, ProviderError, UsageError
from assay.systems.dialects import find_tool_call
from assay.systems.tools import Found, ToolResult
from assay.systems.tools.background import BackgroundLoop
from assay.systems.tools.mcp_config import Server, read_config

if TYPE_CHECKING:
    from assay.systems.tools.mcp_session import Session

CLOSE_SECONDS = 30.0


class MCPServers:
    """The tools of one or several MCP servers.

    ``async with MCPServers(config) as servers: servers.tools``, or ``with``. The sessions live on an event loop in a
    thread of their own, so that tools may be called from any loop or thread. One object an environment: servers hold
    state.

    Parameters
    ----------
    config
        A URL (streamable HTTP); a mapping ``{"mcpServers": {name: {"command", "args", "env", "cwd"} | {"url",
        "headers", "type": "http" | "sse"}}}``, with or without the outer key, or one server's mapping; or a JSON file
        of this form. ``${NAME}`` is replaced from the environment.
    auth
        Bearer token of every server with a URL.
    headers
        HTTP headers of every server with a URL.
    seconds
        Time limit of a call.
    start_seconds
        Time limit of a server's start.
    retries, delay
        Starts of a server that fails, beyond the first; seconds between them.

    With several servers a tool's name is ``server_tool``. Characters that model services refuse in names become ``_``;
    `MCPTool.original` is the server's own name.

    Raises
    ------
    UsageError
        The configuration is none; a variable is not set; two tools have the same name; a server has no tools.
    ProviderError
        A server does not start; the message ends with what it said last.
    MissingExtra
        The package mcp is not installed.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any],
        *,
        auth: str | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        start_seconds: float = 60.0,
        retries: int = 3,
        delay: float = 1.0,
    ) -> None:
        from importlib.util import find_spec

        if find_spec("mcp") is None:
            raise MissingExtra("MCP tools", "gem")
        if seconds <= 0 or start_seconds <= 0 or retries < 0 or delay < 0:
            raise UsageError("seconds and start_seconds must be above 0, retries and delay at least 0.")
        self._headers = {**(headers or {}), **({"Authorization": f"Bearer {auth}"} if auth else {})}
        self.servers: list[Server] = read_config(config, self._headers)
        self.seconds = seconds
        self.start_seconds = start_seconds
        self.retries = retries
        self.delay = delay
        self.tools: list[MCPTool] = []
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._loop: BackgroundLoop | None = None

    @classmethod
    def from_command(
        cls, command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> MCPServers:
        """One server that this machine starts: ``from_command(["npx", "-y", "@some/server", "DIR"])``."""
        if not command:
            raise UsageError("An MCP server's command is empty; give the program and its arguments.")
        return cls({"command": command[0], "args": list(command[1:]), "env": dict(env or {})}, **options)

    def __enter__(self) -> MCPServers:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> MCPServers:
        await asyncio.to_thread(self.open)
        return self

    async def __aexit__(self, *_: object) -> None:
        # Shielded: whatever cancels the caller, the servers' processes must not stay behind.
        await asyncio.shield(asyncio.to_thread(self.close))

    def open(self) -> None:
        """Start the servers, at once, and list their tools."""
        if self._loop is not None:
            raise UsageError("These MCP servers are open already.")
        self._loop = BackgroundLoop("assay mcp")
        try:
            self.tools = self._loop.run(self._start_all())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all sessions and the servers that were started here. A second call does nothing."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run(self._end_all(), timeout=CLOSE_SECONDS)
        except TimeoutError:
            pass  # ending the loop cancels what is left, and with it kills the servers
        finally:
            loop.close()

    def reconfigure(self, config: str | Path | Mapping[str, Any]) -> None:
        """Close, and open again with other servers."""
        servers = read_config(config, self._headers)
        self.close()
        self.servers = servers
        self.open()

    def starts(self, server: str) -> int:
        """How often a server was started."""
        return self._sessions[server].starts

    # -- on the background loop ------------------------------------------------------------------------------------

    async def _start_all(self) -> list[MCPTool]:
        from assay.systems.tools.mcp_session import Session

        self._sessions = {s.name: Session(s, self.start_seconds) for s in self.servers}
        self._locks = {s.name: asyncio.Lock() for s in self.servers}
        done = await asyncio.gather(*(self._started(name) for name in self._sessions), return_exceptions=True)
        for problem in done:  # all have come to an end: none is left half started
            if isinstance(problem, BaseException):
                raise problem
        made: dict[str, MCPTool] = {}
        for name, session in self._sessions.items():
            listed = await session.list_tools()
            if not listed:
                raise UsageError(f"The MCP server {name!r} offers no tools; is it the right address or command?")
            for facts in listed:
                tool = MCPTool(self, name, facts, prefixed=len(self.servers) > 1)
                if tool.name in made:
                    raise UsageError(f"Two MCP tools are called {tool.name!r}; give their servers other names.")
                made[tool.name] = tool
        return list(made.values())

    async def _end_all(self) -> None:
        await asyncio.gather(*(session.stop() for session in self._sessions.values()), return_exceptions=True)

    async def _started(self, name: str) -> Session:
        """The server's session, started (again) if it is not alive."""
        session = self._sessions[name]
        async with self._locks[name]:
            for attempt in range(self.retries + 1):
                if session.alive:
                    return session
                if attempt:
                    await asyncio.sleep(self.delay)
                problem = await session.start()
                if problem is None:
                    return session
            tries = f"{self.retries + 1} tries" if self.retries else "1 try"
            raise ProviderError(f"The MCP server {name!r} does not start ({problem}; {tries}).")

    async def _call(self, tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
        for attempt in (0, 1):
            session = await self._started(tool.server)
            done = await session.call(tool.original, arguments, self.seconds)
            if isinstance(done, ToolResult):
                return done
            # The connection is gone. What never went out, or changes nothing, is simply said again.
            if attempt == 0 and (not done.sent or tool.repeatable):
                continue
            break
        said = f"The server {tool.server!r} ended during the call; it is started again for the next one."
        return ToolResult(f"Error: {said} Whether the call took effect is unknown.", "the server ended during the call")


class MCPTool:
    """One tool of a server; see `MCPServers`.

    Attributes
    ----------
    server, original
        The server's name, and the tool's name there.
    repeatable
        The server declares that it only reads, or that doing it twice is doing it once.
    """

    def __init__(self, servers: MCPServers, server: str, facts: Mapping[str, Any], *, prefixed: bool) -> None:
        self.servers = servers
        self.server = server
        self.original: str = facts["name"]
        label = f"{server}_{self.original}" if prefixed else self.original
        self.name = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in label)
        self.description: str = facts["description"]
        self.parameters: Mapping[str, Any] = facts["parameters"]
        self.repeatable: bool = facts["repeatable"]

    def __repr__(self) -> str:
        return f"MCPTool({self.name!r})"

    def find(self, text: str) -> Found | None:
        """The first ``<tool_call>`` of a text, if it calls this tool, by either of its names."""
        found = find_tool_call(text)
        if found is None or found.name not in (self.name, self.original):
            return None
        return found._replace(name=self.name)

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the tool, from any event loop.

        Raises
        ------
        ProviderError
            The server is gone and does not start again.
        UsageError
            The servers are closed.
        """
        return await self._loop().arun(self.servers._call(self, arguments))

    def call_sync(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the tool from a thread without an event loop."""
        return self._loop().run(self.servers._call(self, arguments))

    def _loop(self) -> BackgroundLoop:
        if self.servers._loop is None:
            raise UsageError(f"The tool {self.name!r} was called after its MCP servers were closed.")
        return self.servers._loop
