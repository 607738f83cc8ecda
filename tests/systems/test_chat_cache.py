"""The request cache: what is a hit, what is a miss, and what a hit costs."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from assay.core.errors import StorageError
from assay.core.metering import Budget, Meter, RunScope, current_attempt, current_scope
from assay.systems.chat.cache import ReplyCache, Stored
from assay.systems.chat.client import ChatClient
from assay.systems.chat.loopback import LoopbackServer

HELLO = [{"role": "user", "content": "hi"}]
PRICE = {"price_in": 1.0, "price_out": 1.0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
OTHER_FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}}}

# What is asked first, and what is asked second: (client options, call options, attempt).
PLAIN = ({}, {"temperature": 0.0}, 0)
CHANGES = {
    "model": ({"model": "other"}, {"temperature": 0.0}, 0),
    "revision": ({"revision": "abc"}, {"temperature": 0.0}, 0),
    "raw completion": ({"completion": True}, {"temperature": 0.0}, 0),
    "temperature": ({}, {"temperature": 0.1}, 0),
    "no temperature": ({}, {}, 0),
    "top_p": ({"top_p": 0.5}, {"temperature": 0.0}, 0),
    "top_k": ({"top_k": 5}, {"temperature": 0.0}, 0),
    "min_p": ({"min_p": 0.1}, {"temperature": 0.0}, 0),
    "presence_penalty": ({"presence_penalty": 0.1}, {"temperature": 0.0}, 0),
    "frequency_penalty": ({"frequency_penalty": 0.1}, {"temperature": 0.0}, 0),
    "repetition_penalty": ({"repetition_penalty": 1.1}, {"temperature": 0.0}, 0),
    "reasoning_effort": ({"reasoning_effort": "low"}, {"temperature": 0.0}, 0),
    "max_tokens": ({}, {"temperature": 0.0, "max_tokens": 5}, 0),
    "stop": ({}, {"temperature": 0.0, "stop": ["\n"]}, 0),
    "tools": ({}, {"temperature": 0.0, "tools": [TOOL]}, 0),
    "response_format": ({}, {"temperature": 0.0, "response_format": FORMAT}, 0),
    "another response_format": ({}, {"temperature": 0.0, "response_format": OTHER_FORMAT}, 0),
    "n": ({}, {"temperature": 0.0, "n": 2}, 0),
    "logprobs": ({}, {"temperature": 0.0, "logprobs": 0}, 0),
    "top logprobs": ({}, {"temperature": 0.0, "logprobs": 3}, 0),
    "seed": ({}, {"temperature": 0.0, "seed": 1}, 0),
    "another seed": ({}, {"temperature": 0.0, "seed": 2}, 0),
    "attempt": ({}, {"temperature": 0.0}, 1),
    "messages": ({}, {"temperature": 0.0, "messages": [{"role": "user", "content": "hi "}]}, 0),
    "role of a message": ({}, {"temperature": 0.0, "messages": [{"role": "system", "content": "hi"}]}, 0),
    "image": (
        {},
        {
            "temperature": 0.0,
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
            ],
        },
        0,
    ),
}


def in_run(folder, asks, *, budget=None, reply="x y", provider="vllm"):
    """Each ask in a trial of its own, all in one run: (replies, requests, totals a trial)."""

    async def go():
        async with LoopbackServer(reply) as server:
            scope = RunScope(cache_folder=folder, budget=budget)
            token = current_scope.set(scope)
            replies, totals = [], []
            for options, call, attempt in asks:
                current_attempt.set(attempt)
                meter = Meter()
                arguments = {**PRICE, **options}
                model = arguments.pop("model", "m")
                client = ChatClient(provider, model, base_url="http://127.0.0.1:1/v1", **arguments)
                # The same address in the key, whatever port the server has this time.
                client._url = client._url.with_port(int(server.url.split(":")[2].split("/")[0]))
                call = dict(call)
                replies.append(await client.bind(meter).generate(call.pop("messages", HELLO), **call))
                totals.append(meter.totals()[0])
            await scope.close()
            current_scope.reset(token)
            return replies, server.requests, totals

    return asyncio.run(go())


@pytest.fixture
def fixed_port(monkeypatch):
    """Keys hold the address: pretend that it does not change with the port of the test's server."""
    from assay.systems.chat import client

    real = client.request_key

    def without_port(provider, url, *rest, **more):
        return real(provider, url.replace(url.split(":")[2].split("/")[0], "PORT"), *rest, **more)

    monkeypatch.setattr(client, "request_key", without_port)


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_is_a_miss_and_a_repetition_a_hit(field, tmp_path):
    changed = CHANGES[field]
    _, requests, totals = in_run(tmp_path, [PLAIN, changed, PLAIN, changed])
    assert requests == 2
    assert [t.cached for t in totals] == [0, 0, 1, 1]


def test_provider_and_address_are_part_of_the_key(tmp_path):
    async def go():
        scope = RunScope(cache_folder=tmp_path)
        token = current_scope.set(scope)
        async with LoopbackServer("x") as one, LoopbackServer("x") as two:
            for provider, server in (("vllm", one), ("vllm", two), ("sglang", one), ("vllm", one), ("sglang", one)):
                await ChatClient(provider, "m", base_url=server.url).generate(HELLO, temperature=0)
            counts = one.requests, two.requests
        await scope.close()
        current_scope.reset(token)
        return counts

    assert asyncio.run(go()) == (2, 1)


def test_attempts_make_k_requests_and_a_rerun_none(tmp_path, fixed_port):
    asks = [({}, {}, attempt) for attempt in range(5)]
    first, requests, _ = in_run(tmp_path, asks)
    assert requests == 5
    again, requests, totals = in_run(tmp_path, asks)
    assert requests == 0
    assert [r.text for r in again] == [r.text for r in first]
    assert all(t.cached == 1 for t in totals)


def test_a_hit_costs_nothing_and_is_counted(tmp_path, fixed_port):
    budget = Budget(1.0)
    (first,), _, (made,) = in_run(tmp_path, [({"max_tokens": 9}, {}, 0)], budget=budget)
    spent = budget.spent
    (hit,), requests, (total,) = in_run(tmp_path, [({"max_tokens": 9}, {}, 0)], budget=budget)
    assert spent > 0
    assert (requests, budget.spent, budget.reserved) == (0, spent, 0)
    assert (made.calls, made.cached, made.paid) == (1, 0, made.cost)
    assert (total.calls, total.cached, total.paid) == (1, 1, 0.0)
    # What a trial costs must not depend on whether the cache was warm.
    assert (total.cost, total.seconds, total.completion_tokens) == (made.cost, made.seconds, made.completion_tokens)
    assert hit == first


def test_votes_on_one_prompt_within_a_trial_are_separate_replies(tmp_path, fixed_port):
    numbers = iter(range(100))

    def vote(settings):
        async def go():
            async with LoopbackServer(lambda body: str(next(numbers))) as server:
                scope = RunScope(cache_folder=tmp_path)
                token = current_scope.set(scope)
                client = ChatClient("vllm", "m", base_url=server.url).bind(Meter())
                texts = [(await client.generate(HELLO, **settings)).text for _ in range(3)]
                await scope.close()
                current_scope.reset(token)
                return texts, server.requests

        return asyncio.run(go())

    texts, requests = vote({"temperature": 0.7})
    assert (len(set(texts)), requests) == (3, 3)
    assert vote({"temperature": 0.7}) == (texts, 0)
    # A seed, or temperature 0, asks for the same reply.
    texts, requests = vote({"temperature": 0.7, "seed": 1})
    assert (len(set(texts)), requests) == (1, 1)
    texts, requests = vote({"temperature": 0})
    assert (len(set(texts)), requests) == (1, 1)


def test_failures_are_not_kept(tmp_path, fixed_port):
    from assay.core.errors import ProviderError

    async def go(faults):
        async with LoopbackServer("x", faults=faults) as server:
            scope = RunScope(cache_folder=tmp_path)
            token = current_scope.set(scope)
            try:
                return (await ChatClient("vllm", "m", base_url=server.url, retries=0).generate(HELLO)).text
            finally:
                await scope.close()
                current_scope.reset(token)

    for faults in (["400"], ["truncated"], ["empty"]):
        with pytest.raises(ProviderError):
            asyncio.run(go(faults))
    assert asyncio.run(go([])) == "x"


def test_two_processes_may_share_a_folder(tmp_path):
    async def go():
        one, two = ReplyCache(tmp_path), ReplyCache(tmp_path)
        for i in range(600):
            (one, two)[i % 2].put(b"k%d" % i, Stored(b"v%d" % i, 0.1, None, None))
        one.flush()
        two.flush()
        found = [one.get(b"k%d" % i).body == two.get(b"k%d" % i).body == b"v%d" % i for i in range(600)]
        await one.close()
        await two.close()
        return found

    assert all(asyncio.run(go()))


def test_a_locked_file_loses_nothing(tmp_path):
    async def go():
        cache = ReplyCache(tmp_path)
        cache._db.execute("PRAGMA busy_timeout=10")
        other = sqlite3.connect(cache.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        cache.put(b"k", Stored(b"v", 1.0, 0.5, "2025-01-01"))
        cache.flush()
        assert cache.get(b"k").body == b"v"
        other.execute("ROLLBACK")
        other.close()
        await asyncio.sleep(0.7)
        assert not cache._pending
        found = cache.get(b"k")
        await cache.close()
        return found

    assert asyncio.run(go()) == Stored(b"v", 1.0, 0.5, "2025-01-01")


def test_replies_are_on_disk_within_a_second(tmp_path):
    async def go():
        cache = ReplyCache(tmp_path)
        cache.put(b"k", Stored(b"v", 1.0, None, None))
        await asyncio.sleep(0.8)
        with sqlite3.connect(cache.path) as other:
            rows = other.execute("SELECT body FROM replies").fetchall()
        await cache.close()
        return rows

    assert asyncio.run(go()) == [(b"v",)]


def test_a_reply_that_can_no_longer_be_read_is_asked_again(tmp_path, fixed_port):
    in_run(tmp_path, [PLAIN])
    with sqlite3.connect(tmp_path / "replies.sqlite") as db:
        db.execute("UPDATE replies SET body = ?", (b"{broken",))
    (reply,), requests, _ = in_run(tmp_path, [PLAIN])
    assert (reply.text, requests) == ("x y", 1)
    assert in_run(tmp_path, [PLAIN])[1] == 0


def test_a_broken_file_is_one_sentence(tmp_path):
    (tmp_path / "replies.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match="cannot be opened"):
        in_run(tmp_path, [PLAIN])


def test_a_disk_that_takes_no_more_replies_costs_no_reply_and_is_told(tmp_path):
    async def go():
        cache = ReplyCache(tmp_path)
        cache.put(b"early", Stored(b"v", 1.0, 0.5, None))
        cache.flush()
        pages = cache._db.execute("PRAGMA page_count").fetchone()[0]
        cache._db.execute(f"PRAGMA max_page_count={pages}")
        for i in range(600):
            cache.put(b"%d" % i, Stored(bytes(1000), 1.0, 0.5, None))
        found = [cache.get(key) is not None for key in (b"early", b"0", b"599")]
        await cache.close()
        return cache.remark, found

    remark, found = asyncio.run(go())
    assert found == [True, True, True]
    assert "took no more replies (database or disk is full)" in remark
    with sqlite3.connect(tmp_path / "replies.sqlite") as other:
        assert other.execute("SELECT count(*) FROM replies").fetchone() == (1,)
