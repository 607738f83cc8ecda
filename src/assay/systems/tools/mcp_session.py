"""One MCP session on the official SDK; imported only when servers are opened."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TextIO

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT

from assay.systems.tools import ToolResult
from assay.systems.tools.mcp_config import Server

_PAGES = 1000


class Gone(NamedTuple):
    """The connection ended; ``sent`` = the request may have reached the server."""

    sent: bool


class Session:
    """Owns a server's connection: one task enters and leaves it, others call through it."""

    def __init__(self, server: Server, start_seconds: float) -> None:
        self.server = server
        self.start_seconds = start_seconds
        self.starts = 0
        self._client: Client | None = None
        self._connected = False
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._outbox = _Outbox()

    @property
    def alive(self) -> bool:
        """Whether a connection stands, as far as is known."""
        return self._client is not None

    async def start(self) -> str | None:
        """Connect; what went wrong, or None."""
        await self.stop()
        self.starts += 1
        self._stop = asyncio.Event()
        self._connected = False
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._own(ready))
        try:
            async with asyncio.timeout(self.start_seconds):
                await asyncio.shield(ready)
        except TimeoutError:
            await self.stop()
            return f"no answer within {self.start_seconds:g} seconds"
        except Exception as error:
            await self.stop()
            return str(error)
        return None

    async def stop(self) -> None:
        """Leave the connection; the server's process, if it is ours, is ended."""
        connected, self._client = self._connected, None
        task, self._task = self._task, None
        if task is None:
            return
        self._stop.set()
        if connected:
            await asyncio.wait([task], timeout=10)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=10)

    async def _own(self, ready: asyncio.Future[None]) -> None:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            try:
                async with Client(_transport(self.server, said, self._outbox), cache=None) as client:
                    self._client, self._connected = client, True
                    ready.set_result(None)
                    await self._stop.wait()
            except BaseException as error:
                if not ready.done():
                    ready.set_exception(ConnectionError(_reason(error, said)))
                elif not isinstance(error, Exception):
                    raise
            finally:
                self._client = None

    async def list_tools(self) -> list[dict[str, Any]]:
        """Name, description, JSON schema and whether a call may be repeated, of every tool."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            assert self._client is not None
            page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                notes = tool.annotations
                repeatable = notes is not None and bool(notes.read_only_hint or notes.idempotent_hint)
                found.append(
                    {
                        "name": tool.name,
                        "description": tool.description or "",
                        "parameters": {"type": "object", "properties": {}, **tool.input_schema},
                        "repeatable": repeatable,
                    }
                )
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> ToolResult | Gone:
        """Call a tool; `Gone` when the connection ended."""
        client, before = self._client, self._outbox.sent
        if client is None:
            return Gone(False)
        try:
            return _result(await client.call_tool(name, dict(arguments), read_timeout_seconds=seconds))
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                said = f"{name} ran past its limit of {seconds:g} seconds."
                return ToolResult(f"Error: {said}", f"time limit of {seconds:g} s")
            lost = error.code == CONNECTION_CLOSED
            # An HTTP server that was started again does not know the session, and did nothing.
            forgotten = error.code == INVALID_REQUEST and "session" in error.message.lower()
            if not lost and not forgotten:
                return ToolResult(
                    f"Error: {error.message}", error.message.splitlines()[0] if error.message else "error"
                )
            if client is self._client:
                self._client = None
            return Gone(lost and self._outbox.sent > before)
        except (httpx2.HTTPError, OSError, RuntimeError):
            if client is self._client:
                self._client = None
            return Gone(self._outbox.sent > before)


class _Outbox:
    """How many messages went out."""

    def __init__(self) -> None:
        self.sent = 0


class _Counted:
    """A write stream that counts."""

    def __init__(self, stream: Any, outbox: _Outbox) -> None:
        self._stream = stream
        self._outbox = outbox

    async def send(self, item: Any) -> None:
        self._outbox.sent += 1
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Counted:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        return await self._stream.__aexit__(*exc)


@asynccontextmanager
async def _transport(server: Server, said: TextIO, outbox: _Outbox) -> AsyncIterator[Any]:
    if server.command is not None:
        params = StdioServerParameters(
            command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd
        )
        async with stdio_client(params, errlog=said) as (read, write):
            yield read, _Counted(write, outbox)
        return
    assert server.url is not None
    if server.sse:
        async with sse_client(server.url, headers=dict(server.headers)) as (read, write):
            yield read, _Counted(write, outbox)
        return
    timeout = httpx2.Timeout(30.0, read=300.0)  # a stream of events may be silent for long
    async with (
        httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout) as http,
        streamable_http_client(server.url, http_client=http) as (read, write),
    ):
        yield read, _Counted(write, outbox)


def _result(done: Any) -> ToolResult:
    texts: list[str] = []
    images: list[str] = []
    for block in done.content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image":
            images.append(f"data:{block.mime_type};base64,{block.data}")
        elif block.type == "resource_link":
            texts.append(str(block.uri))
        elif block.type == "resource":
            text = getattr(block.resource, "text", None)
            texts.append(text if text is not None else f"[{block.resource.uri}]")
        else:
            texts.append(f"[{block.type}]")
    text = "\n".join(texts)
    error = None
    if done.is_error:
        error = (text.strip().splitlines() or ["the tool reports an error"])[0][:300]
    return ToolResult(text, error, done.structured_content, tuple(images))


def _reason(error: BaseException, said: TextIO) -> str:
    """The innermost cause, and the last line that the server wrote."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    reason = f"{error}" or type(error).__name__
    said.seek(0)
    lines = [line.strip() for line in said.read()[-4000:].splitlines() if line.strip()]
    return f"{reason}; it said: {lines[-1][:300]}" if lines else reason
