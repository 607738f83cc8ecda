"""Clients within a run: connections, shared limiter, threads, budget, secrets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from assay.core.errors import AssayError, BudgetExceeded, ProviderError, UsageError
from assay.core.metering import Budget, Meter, RunScope, current_attempt, current_meter, current_scope
from assay.systems.chat.client import ChatClient
from assay.systems.chat.loopback import Fault, LoopbackServer
from assay.systems.loading import describe

HELLO = [{"role": "user", "content": "hi"}]


@contextlib.asynccontextmanager
async def run_scope(**settings):
    scope = RunScope(**settings)
    token = current_scope.set(scope)
    scope.shared["loop"] = asyncio.get_running_loop()
    try:
        yield scope
    finally:
        await scope.close()
        current_scope.reset(token)


def gate(count):
    """A reply function that answers once ``count`` requests are there at the same time."""
    waiting = 0
    opened = asyncio.Event()

    async def reply(body):
        nonlocal waiting
        waiting += 1
        if waiting >= count:
            opened.set()
        await opened.wait()
        return "x"

    return reply


@pytest.mark.parametrize("connections", [10, 100, 1000])
def test_the_server_sees_exactly_the_connections_asked_for(connections):
    async def go():
        async with LoopbackServer(gate(connections), record=False) as server, run_scope(connections=connections):
            client = ChatClient("vllm", "m", base_url=server.url)
            calls = connections + connections // 2
            replies = await asyncio.wait_for(asyncio.gather(*(client.generate(HELLO) for _ in range(calls))), 60)
            return server.peak, server.requests, len(replies)

    assert asyncio.run(go()) == (connections, connections * 3 // 2, connections * 3 // 2)


def test_judge_and_subject_share_one_limit():
    async def go():
        async with LoopbackServer(gate(6), record=False) as server, run_scope(connections=6):
            subject = ChatClient("vllm", "m", base_url=server.url)
            judge = ChatClient("vllm", "judge", base_url=server.url, role="judge")

            async def trial():
                meter = Meter()
                current_meter.set(meter)
                await subject.bind(meter).generate(HELLO)
                # A room's own pool of judge calls, and an unbound judge: metered through the context.
                await asyncio.gather(*(judge.generate(HELLO) for _ in range(5)))
                return {c.role: c.calls for c in meter.totals()}

            counts = await asyncio.gather(*(asyncio.create_task(trial()) for _ in range(20)))
            return server.peak, counts

    peak, counts = asyncio.run(go())
    assert peak == 6
    assert counts == [{"subject": 1, "judge": 5}] * 20


def test_one_session_a_provider_and_run():
    async def go():
        async with LoopbackServer("x") as server, run_scope() as scope:
            for model in ("a", "b"):
                await ChatClient("vllm", model, base_url=server.url).generate(HELLO)
            return scope, [v for k, v in scope.shared.items() if k[0] == "chat"]

    scope, (engine,) = asyncio.run(go())
    assert engine._session.closed
    assert scope.shared == {}


def call_from_threads(pool_call):
    """A trial that calls its bound system from a thread pool of its own: (meter, peak, threads, scope)."""

    async def go():
        async with LoopbackServer("x", latency=0.02) as server, run_scope(connections=3) as scope:
            client = ChatClient("vllm", "m", base_url=server.url)
            meter = Meter()
            token = current_meter.set(meter), current_attempt.set(4)
            bound = client.bind(meter)
            current_meter.reset(token[0])
            current_attempt.reset(token[1])
            threads = set()

            def work(_):
                threads.add(threading.get_ident())
                return asyncio.run(bound.generate(HELLO)).text

            with ThreadPoolExecutor(6) as pool:
                texts = await pool_call(pool, work)
            unattributed = scope.unattributed.totals()
            engines = [k for k in scope.shared if k[0] == "chat"]
        return texts, meter.totals(), server.peak, threads, unattributed, engines

    return asyncio.run(go())


async def _in_executor(pool, work):
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*(loop.run_in_executor(pool, work, i) for i in range(12)))


async def _in_nested_threads(pool, work):
    return await asyncio.gather(*(asyncio.to_thread(work, i) for i in range(12)))


@pytest.mark.parametrize("pool_call", [_in_executor, _in_nested_threads])
def test_calls_from_a_rooms_own_threads_are_metered_and_limited(pool_call):
    texts, (call,), peak, threads, unattributed, engines = call_from_threads(pool_call)
    assert texts == ["x"] * 12
    assert call.calls == 12
    assert peak == 3
    assert threading.get_ident() not in threads
    assert unattributed == []
    assert len(engines) == 1


def test_cancelling_from_another_loop_frees_the_place():
    async def go():
        async with LoopbackServer("x", faults=["hang"]) as server, run_scope(connections=1):
            bound = ChatClient("vllm", "m", base_url=server.url).bind(Meter())

            async def short():
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await bound.generate(HELLO)

            await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(short()))
            return (await asyncio.wait_for(bound.generate(HELLO), 5)).text

    assert asyncio.run(go()) == "x"


def spend(limit, *, calls, latency=0.005, cost_tokens=(50, 10), max_tokens=40, faults=()):
    """Many calls at once under a budget: (replies, errors, budget, most ever set aside and spent, server)."""
    budget = Budget(limit)
    most = 0.0
    reserve = budget.reserve

    def watched(worst):
        nonlocal most
        reserve(worst)
        most = max(most, budget.spent + budget.reserved)

    budget.reserve = watched
    usage = {"prompt_tokens": cost_tokens[0], "completion_tokens": cost_tokens[1]}

    async def go():
        reply = {"content": "x", "usage": usage}
        async with (
            LoopbackServer(reply, latency=latency, faults=faults) as server,
            run_scope(budget=budget, connections=100),
        ):
            client = ChatClient("vllm", "m", base_url=server.url, price_in=1e3, price_out=1e4, max_tokens=max_tokens)
            done = await asyncio.gather(*(client.generate(HELLO) for _ in range(calls)), return_exceptions=True)
            return done, server

    done, server = asyncio.run(go())
    errors = [d for d in done if isinstance(d, Exception)]
    return [d for d in done if not isinstance(d, Exception)], errors, budget, most, server


def test_the_budget_is_never_passed_with_a_hundred_in_flight():
    one = 50 * 1e-3 + 10 * 1e-2
    replies, errors, budget, most, server = spend(30 * one, calls=100)
    assert budget.spent <= budget.limit
    assert most <= budget.limit * (1 + 1e-9)
    assert budget.spent == pytest.approx(len(replies) * one)
    assert server.requests == len(replies)
    assert errors
    assert all(isinstance(e, BudgetExceeded) and e.fatal for e in errors)
    assert budget.reserved == pytest.approx(0, abs=1e-9)
    # Refunds are waited for: nearly all of the budget is used, although one call may cost four times what it does.
    assert len(replies) >= 24


def test_a_budget_that_suffices_stops_nobody():
    replies, errors, budget, _, _ = spend(100.0, calls=60)
    assert (len(replies), errors) == (60, [])
    assert budget.spent == pytest.approx(60 * 0.15)


def test_a_failed_call_costs_nothing():
    replies, errors, budget, _, _ = spend(100.0, calls=1, faults=["400"])
    assert (replies, budget.spent) == ([], 0.0)
    assert budget.reserved == pytest.approx(0, abs=1e-12)
    assert isinstance(errors[0], ProviderError)


def test_a_reply_without_usage_is_booked_at_its_worst():
    budget = Budget(10.0)

    async def go():
        async with LoopbackServer({"content": "x", "usage": {}}) as server, run_scope(budget=budget):
            client = ChatClient("vllm", "m", base_url=server.url, price_in=1.0, price_out=1e4, max_tokens=40)
            return await client.generate(HELLO)

    assert asyncio.run(go()).cost is None
    assert budget.spent > 40 * 1e-2


def test_a_budget_needs_a_price_and_a_longest_reply():
    async def go(**options):
        async with LoopbackServer("x") as server, run_scope(budget=Budget(1.0)):
            return await ChatClient("vllm", "m", base_url=server.url, **options).generate(HELLO)

    with pytest.raises(UsageError, match="price_in"):
        asyncio.run(go())
    with pytest.raises(UsageError, match="max_tokens"):
        asyncio.run(go(price_in=1.0, price_out=1.0))
    assert asyncio.run(go(price_in=0.0, price_out=0.0)).cost == 0.0


def test_the_bound_on_a_prompt_holds_images_and_templates():
    client = ChatClient("vllm", "m", price_in=1.0, price_out=1.0)
    text = client._build([{"role": "user", "content": "ä" * 100}], {}, 1)
    assert text.prompt_tokens >= 200
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    image = client._build([{"role": "user", "content": [part]}], {}, 1)
    assert 50_000 <= image.prompt_tokens < 51_000


KEYS = ["sk-proj-abcDEF0123456789abcDEF0123456789", "q7Zp2Lw9Xc4Vb6Nm8Kj1Hg3Fd5Sa0QwE"]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_never_reaches_a_log_a_name_an_error_or_a_manifest(key, monkeypatch, caplog, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    caplog.set_level(logging.DEBUG)
    seen = []

    async def go(faults, **options):
        async with LoopbackServer("x", faults=faults) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            async with ChatClient("openai", "gpt-4o-mini", **options) as client:
                seen.extend([repr(client), str(client), client.name, str(client.describe()), str(describe(client))])
                seen.append(str(pickle.dumps(client)))
                seen.append(str(describe("openai:gpt-4o-mini?temperature=0")))
                try:
                    seen.append(repr(await client.generate(HELLO)))
                except AssayError as error:
                    seen.append(str(error) + repr(error) + repr(error.__cause__) + repr(error.__context__))
                assert server.headers[0]["Authorization"] == f"Bearer {key}"

    said = {"message": f"Incorrect API key provided: {key}. Header was 'Authorization: Bearer {key}'.", "code": "x"}
    part = {"message": "Incorrect API key provided: sk-proj-********6789. See https://u:pw@host/"}
    for status in (200, 400, 401, 403, 429, 500):
        for error in (said, part):
            asyncio.run(go([Fault("status", status, "0", error=error)] * 3, retries=1))
    asyncio.run(go(["cut", "html"], retries=2, timeout=3))
    output = capsys.readouterr()
    text = "\n".join([*seen, caplog.text, output.out, output.err])
    assert len(seen) == 13 * 8
    for secret in (key, key[8:], "6789", "pw@"):
        assert secret not in text
    assert "***" in text


def test_credentials_in_an_address_are_refused_and_not_repeated():
    with pytest.raises(UsageError) as caught:
        ChatClient("vllm", "m", base_url="http://me:hunter2@host/v1")
    assert "hunter2" not in str(caught.value)
    assert "VLLM_API_KEY" in str(caught.value)
