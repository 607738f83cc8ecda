"""An MCP server over stdio in plain JSON-RPC, for tests: starts in tens of milliseconds, and misbehaves on request.

``python toy_mcp_server.py [MODE]``; modes: ``none`` (no tools), ``silent`` (never answers), ``crash`` (ends at once).
"""

from __future__ import annotations

import json
import os
import sys
import time

STRING = {"type": "string"}
TOOLS = {
    "add": ({"a": {"type": "integer"}, "b": {"type": "integer"}}, ["a", "b"], None),
    "up": ({}, [], None),
    "pid": ({}, [], None),
    "fail": ({"why": STRING}, ["why"], None),
    "refuse": ({}, [], None),
    "nap": ({"seconds": {"type": "number"}}, ["seconds"], None),
    "die": ({}, [], None),
    "die.once": ({"marker": STRING}, ["marker"], {"readOnlyHint": True}),
    "everything": ({}, [], None),
    "variable": ({"name": STRING}, ["name"], None),
}
state = {"count": 0}


class Refused(Exception):
    """A JSON-RPC error."""


def call(name, given):
    """The result of a tool."""
    if name == "add":
        return {"content": text(str(given["a"] + given["b"])), "structuredContent": {"sum": given["a"] + given["b"]}}
    if name == "up":
        state["count"] += 1
        return {"content": text(str(state["count"]))}
    if name == "pid":
        return {"content": text(str(os.getpid()))}
    if name == "fail":
        return {"content": text(given["why"]), "isError": True}
    if name == "nap":
        time.sleep(given["seconds"])
        return {"content": text("awake")}
    if name == "die":
        os._exit(1)
    if name == "die.once":
        if os.path.exists(given["marker"]):
            return {"content": text("answered")}
        open(given["marker"], "w").close()
        os._exit(1)
    if name == "variable":
        return {"content": text(os.environ.get(given["name"], ""))}
    if name == "everything":
        link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a"}
        inside = {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside", "mimeType": "text/plain"}}
        blob = {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAAA"}}
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        audio = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
        return {"content": [*text("one"), image, link, inside, blob, audio]}
    raise Refused(f"no tool {name}")


def text(words):
    """A text block."""
    return [{"type": "text", "text": words}]


def answer(method, params, mode):
    """The result of a request."""
    if method == "initialize":
        info = {"name": "toy", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        names = [] if mode == "none" else list(TOOLS)
        start = int(params.get("cursor") or 0)
        page = []
        for name in names[start : start + 4]:
            properties, required, notes = TOOLS[name]
            schema = {"type": "object", "properties": properties, "required": required}
            page.append({"name": name, "description": f"The tool {name}.", "inputSchema": schema})
            if notes:
                page[-1]["annotations"] = notes
        more = {"nextCursor": str(start + 4)} if start + 4 < len(names) else {}
        return {"tools": page, **more}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    raise Refused(f"no method {method}")


def main():
    """Serve until standard input ends."""
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    print("toy server starts", file=sys.stderr, flush=True)
    if mode == "crash":
        print("the database is not there", file=sys.stderr, flush=True)
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or mode == "silent":
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(message["method"], message.get("params") or {}, mode)
        except Refused as error:
            reply["error"] = {"code": -32601, "message": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
