"""Faults of providers: what is retried, how long is waited, and what becomes an error."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import ProviderError
from assay.core.metering import Meter, RunScope, current_scope
from assay.systems.chat.client import ChatClient
from assay.systems.chat.engine import retry_after
from assay.systems.chat.limiter import Limiter
from assay.systems.chat.loopback import Fault, LoopbackServer

HELLO = [{"role": "user", "content": "hi"}]
WALL = 1_700_000_000.0


class Instant:
    """A clock whose sleeps take no time and are remembered."""

    def __init__(self):
        self.time = 0.0
        self.slept = []

    def now(self):
        return self.time

    def wall(self):
        return WALL + self.time

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


def ask(faults, **options):
    """One call: (reply or error, server, clock, meter)."""
    clock, meter = Instant(), Meter()

    async def go():
        async with LoopbackServer("fine", faults=faults) as server:
            client = ChatClient("vllm", "m", base_url=server.url, clock=clock, price_in=1, price_out=1, **options)
            async with client:
                try:
                    return await client.bind(meter).generate(HELLO), server
                except ProviderError as error:
                    return error, server

    result, server = asyncio.run(go())
    return result, server, clock, meter


@pytest.mark.parametrize(
    "kind",
    ["429", "500", "502", "503", "529", "408", "409", "cut", "truncated", "garbage", "empty", "html", "unfinished"],
)
def test_a_passing_fault_is_retried_and_leaves_no_trace_in_the_reply(kind):
    reply, server, clock, meter = ask([kind, kind])
    assert reply.text == "fine"
    assert server.requests == 3
    assert len(clock.slept) == 2
    assert meter.totals()[0].calls == 1


@pytest.mark.parametrize("kind", ["truncated", "garbage", "empty", "html", "unfinished"])
def test_replies_that_cannot_be_used_end_in_an_error_after_three(kind):
    error, server, _, meter = ask([kind] * 20)
    assert isinstance(error, ProviderError)
    assert error.retryable
    assert not error.fatal
    assert server.requests == 3
    assert meter.totals() == []


def test_a_reply_beyond_the_cap_is_not_read_to_its_end():
    error, server, _, _ = ask(["huge"] * 3)
    assert isinstance(error, ProviderError)
    assert "more than 20 MB" in str(error)
    assert server.requests == 3
    assert 60_000_000 <= server.sent_of_huge < 120_000_000


def test_a_hang_ends_at_the_timeout():
    reply, server, _, _ = ask(["hang"], timeout=0.2)
    assert reply.text == "fine"
    assert server.requests == 2
    error, _, _, _ = ask(["hang"] * 5, timeout=0.1, retries=1)
    assert "nothing came within 0.1 s" in str(error)
    assert error.retryable


def test_the_number_of_retries_is_kept():
    error, server, _, _ = ask(["503"] * 20, retries=4)
    assert server.requests == 5
    assert str(error).startswith("vllm gave no usable reply in 5 tries")
    assert "HTTP 503: scripted 503" in str(error)
    assert (error.retryable, error.fatal) == (True, False)


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_a_refused_request_is_not_repeated(status):
    error, server, _, _ = ask([str(status)] * 2)
    assert (error.retryable, error.fatal) == (False, False)
    assert server.requests == 1
    assert f"HTTP {status}: scripted {status}" in str(error)


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refused_account_stops_the_run(status):
    error, server, _, _ = ask([str(status)])
    assert (error.retryable, error.fatal) == (False, True)
    assert server.requests == 1


def test_an_empty_quota_is_no_rate_limit():
    error, server, _, _ = ask([Fault("status", 429, error={"message": "pay", "code": "insufficient_quota"})])
    assert error.fatal
    assert server.requests == 1


def test_an_error_inside_a_reply_of_status_200_counts_as_its_own_status():
    upstream = Fault("status", 200, error={"message": "upstream is busy", "code": 502})
    reply, server, _, _ = ask([upstream])
    assert (reply.text, server.requests) == ("fine", 2)
    error, server, _, _ = ask([Fault("status", 200, error={"message": "no such model", "code": 404})])
    assert not error.retryable
    assert server.requests == 1


def test_a_redirect_is_not_followed():
    error, server, _, _ = ask(["redirect"])
    assert "redirect" in str(error)
    assert not error.retryable
    assert server.requests == 1


def test_backoff_doubles_with_jitter_up_to_a_minute():
    _, _, clock, _ = ask(["500"] * 20, retries=9)
    assert len(clock.slept) == 9
    for number, slept in enumerate(clock.slept):
        full = min(60.0, 2.0**number)
        assert full / 2 <= slept <= full


@pytest.mark.parametrize(
    ("header", "seconds", "exact"),
    # A date is read by the clock of whoever sent it, in whole seconds.
    [("7", 7.0, 1e-6), ("0.5", 0.5, 1e-6), (lambda: email.utils.formatdate(time.time() + 40, usegmt=True), 40.0, 2.0)],
)
def test_retry_after_is_obeyed(header, seconds, exact):
    header = header() if callable(header) else header
    reply, _, clock, _ = ask([Fault("status", 429, header)])
    assert reply.text == "fine"
    assert sum(clock.slept) == pytest.approx(seconds, abs=exact)


@pytest.mark.parametrize("header", ["soon", "", "nan", "Wed, 99 Foo 2025"])
def test_a_senseless_retry_after_is_ignored(header):
    assert retry_after({"Retry-After": header}, WALL) is None


def test_retry_after_in_the_past_means_now():
    assert retry_after({"Retry-After": email.utils.formatdate(WALL - 100, usegmt=True)}, WALL) == 0.0
    assert retry_after({"Retry-After": "-3"}, WALL) == 0.0
    assert retry_after({"retry-after-ms": "1500", "Retry-After": "9"}, WALL) == 1.5


def test_a_wait_past_the_deadline_is_an_error_at_once():
    error, server, clock, _ = ask([Fault("status", 429, "7200")], deadline=600)
    assert isinstance(error, ProviderError)
    assert error.retryable
    assert "7200 s" in str(error)
    assert server.requests == 1
    assert clock.slept == []


def test_the_deadline_bounds_all_tries():
    error, _, clock, _ = ask(["500"] * 50, retries=50, deadline=100)
    assert error.retryable
    assert 40 <= sum(clock.slept) <= 100


class Manual(Instant):
    """A clock that stands until it is told to go on."""

    def __init__(self):
        super().__init__()
        self.waiting = asyncio.Condition()

    async def sleep(self, seconds):
        self.slept.append(seconds)
        until = self.time + seconds
        async with self.waiting:
            await self.waiting.wait_for(lambda: self.time >= until)

    async def go_to(self, time):
        async with self.waiting:
            self.time = time
            self.waiting.notify_all()


def test_everybody_waits_when_the_server_names_a_time():
    async def go():
        clock = Manual()
        async with (
            LoopbackServer("x", faults=[Fault("status", 429, "30")]) as server,
            ChatClient("vllm", "m", base_url=server.url, clock=clock) as client,
        ):
            calls = [asyncio.create_task(client.generate(HELLO))]
            while not clock.slept:
                await asyncio.sleep(0.001)
            calls += [asyncio.create_task(client.generate(HELLO)) for _ in range(3)]
            while len(clock.slept) < 2:
                await asyncio.sleep(0.001)
            await clock.go_to(29.9)
            await asyncio.sleep(0.05)
            early = server.requests
            await clock.go_to(30.0)
            await asyncio.gather(*calls)
            return early, server.requests

    assert asyncio.run(asyncio.wait_for(go(), 10)) == (1, 5)


def test_a_place_given_to_a_call_that_is_cancelled_meanwhile_is_passed_on():
    async def go():
        limiter = Limiter(1, Instant())
        ticket = await limiter.acquire()
        second = asyncio.create_task(limiter.acquire())
        third = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        limiter.release(ticket)
        second.cancel()
        await asyncio.wait_for(third, 1)
        assert second.cancelled()
        assert limiter.active == 1

    asyncio.run(go())


def test_limit_is_halved_once_for_a_burst_of_overloads_and_grows_back():
    async def go():
        limiter = Limiter(64, Instant())
        tickets = [await limiter.acquire() for _ in range(64)]
        for ticket in tickets:
            limiter.release(ticket, overload=True)
        assert limiter.limit == 32
        ticket = await limiter.acquire()
        limiter.release(ticket, overload=True)
        assert limiter.limit == 1
        rounds = 0
        while limiter.limit < 64:
            rounds += 1
            places = int(limiter.limit)
            tickets = [await limiter.acquire() for _ in range(places)]
            for ticket in tickets:
                limiter.release(ticket, good=True)
        assert limiter.active == 0
        return rounds

    assert 20 <= asyncio.run(go()) <= 60


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9), st.lists(st.sampled_from(["good", "overload", "neither", "cancel"]), max_size=80), st.integers()
)
def test_the_limiter_never_passes_its_ceiling_and_never_starves(ceiling, fates, seed):
    rng = random.Random(seed)

    async def go():
        limiter = Limiter(ceiling, Instant())
        inside = 0

        async def work(fate):
            nonlocal inside
            ticket = await limiter.acquire()
            inside += 1
            assert inside <= ceiling
            try:
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside -= 1
                limiter.release(ticket, good=fate == "good", overload=fate == "overload")

        tasks = [asyncio.create_task(work(fate)) for fate in fates]
        await asyncio.sleep(0)
        for task, fate in zip(tasks, fates):
            if fate == "cancel":
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert limiter.active == 0
        assert 1 <= limiter.limit <= ceiling
        for task, fate in zip(tasks, fates):
            assert task.cancelled() == (fate == "cancel") or fate == "cancel"

    asyncio.run(go())


def test_overload_lowers_what_the_server_sees():
    """A server that refuses whatever comes beyond 8 at once ends up with about 8 at once."""
    refused = 0

    async def go():
        nonlocal refused
        server = LoopbackServer("x", latency=0.01)

        def overload(number, body):
            nonlocal refused
            if server.active > 8:
                refused += 1
                return "429"
            return None

        server.faults = overload
        scope = RunScope(connections=64)
        token = current_scope.set(scope)
        async with server:
            client = ChatClient("vllm", "m", base_url=server.url, clock=Instant())
            replies = await asyncio.gather(*(client.generate(HELLO) for _ in range(400)))
            limit = next(v for k, v in scope.shared.items() if k[0] == "chat").limiter.limit
            await scope.close()
        current_scope.reset(token)
        return replies, limit

    replies, limit = asyncio.run(go())
    assert len(replies) == 400
    assert limit < 32
    assert refused < 400


def test_a_cancelled_call_gives_its_place_back():
    async def go():
        async with (
            LoopbackServer("x", faults=["hang", "hang"]) as server,
            ChatClient("vllm", "m", base_url=server.url, connections=1) as client,
        ):
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await client.generate(HELLO)
            return (await asyncio.wait_for(client.generate(HELLO), 5)).text

    assert asyncio.run(go()) == "x"
