"""CPU time of a call and of a cache hit, beside bare aiohttp."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import aiohttp
import pytest

from assay.core.metering import Budget, Meter, RunScope, current_scope
from assay.systems.chat.client import ChatClient

CALLS, CONNECTIONS = 3000, 100
MESSAGES = [
    {"role": "system", "content": "You are a careful assistant."},
    {"role": "user", "content": "What is the capital of France? Answer with one word. " * 4},
]


async def cpu(call):
    """CPU milliseconds a call, CONNECTIONS at a time, after a warm-up."""

    async def all_of(first, last):
        numbers = iter(range(first, last))

        async def work():
            for number in numbers:
                await call(number)

        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))

    await all_of(-4 * CONNECTIONS, 0)
    started = time.process_time()
    await all_of(0, CALLS)
    return (time.process_time() - started) / CALLS * 1e3


async def bare(url):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:

        async def call(number):
            async with session.post(f"{url}/chat/completions", json={"model": "m", "messages": MESSAGES}) as response:
                await response.read()

        return await cpu(call)


async def client(url, **scope_settings):
    scope = RunScope(connections=CONNECTIONS, **scope_settings)
    token = current_scope.set(scope)
    model = ChatClient("vllm", "m", base_url=url, price_in=1.0, price_out=2.0, max_tokens=100)

    async def call(number):
        content = [*MESSAGES, {"role": "user", "content": str(number)}]
        await model.bind(Meter()).generate(content, temperature=0.0)

    first = await cpu(call)
    hits = await cpu(call)
    await scope.close()
    current_scope.reset(token)
    return first, hits


@pytest.mark.slow
def test_a_call_costs_little_more_than_bare_aiohttp(tmp_path, capsys):
    command = [sys.executable, "-m", "assay.systems.chat.loopback", "--latency", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            plain = asyncio.run(bare(url))
            call, _ = asyncio.run(client(url))
            full, hit = asyncio.run(client(url, cache_folder=tmp_path, budget=Budget(1e6)))
        finally:
            server.terminate()
    with capsys.disabled():
        print(
            f"\nCPU ms a call: aiohttp {plain:.3f}, client {call:.3f}, with cache and budget {full:.3f}, hit {hit:.3f}"
        )
    assert call < 0.6
    assert full < 0.8
    assert hit < 0.2
    assert call < 2.5 * plain
