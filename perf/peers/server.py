"""The one server that all contestants ask: assay's loopback server with the answers of `questions`.

Prints its URL; then, for every line on standard input, what it saw since the last one; ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from questions import answer

from assay.systems.chat.loopback import LoopbackServer


async def serve(latency: float) -> None:
    seen: set[int] = set()

    def reply(body: dict[str, Any]) -> str:
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        number, said = answer(text)
        seen.add(number)
        return said

    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with LoopbackServer(reply, latency=latency, record=False) as server:
        print(server.url, flush=True)
        cpu = time.process_time()
        while await lines.readline():
            now = time.process_time()
            print(
                json.dumps(
                    {"requests": server.requests, "questions": len(seen), "peak": server.peak, "cpu": now - cpu}
                ),
                flush=True,
            )
            server.requests = server.peak = 0
            seen.clear()
            cpu = now


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
