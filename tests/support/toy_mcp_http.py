"""An MCP server on the official SDK, for tests: ``python toy_mcp_http.py PORT`` serves streamable HTTP, else stdio."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("toy")
count = 0


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def up() -> str:
    """Count up."""
    global count
    count += 1
    return str(count)


@server.tool()
def header(name: str, ctx: Context) -> str:
    """A header of the request."""
    request = ctx.request_context.request
    return "" if request is None else request.headers.get(name, "")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run(transport="stdio")
