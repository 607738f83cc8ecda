"""A provider that is away for minutes or for hours, or cannot be found: waited for, or nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time

import pytest
from broken_runs import check_whole
from toys import fifth

import assay
from assay.core.results import Run
from assay.core.run import RunInterrupted
from assay.systems.chat import engine as requests
from assay.systems.chat.client import ChatClient
from assay.systems.chat.loopback import LoopbackServer

N = 20


class Fast:
    """A clock that runs faster than the wall's: minutes pass in a second."""

    def __init__(self, speed):
        self.speed, self.begun = speed, time.monotonic()

    def now(self):
        return self.speed * (time.monotonic() - self.begun)

    def wall(self):
        return 1.7e9 + self.now()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds / self.speed)


@contextlib.contextmanager
def in_thread(coroutine):
    """Run ``coroutine(tell, stop)`` on a loop of its own until it has told something; it ends when ``stop`` is set."""
    told, stop, found = threading.Event(), threading.Event(), []

    def tell(value):
        found.append(value)
        told.set()

    thread = threading.Thread(target=lambda: asyncio.run(coroutine(tell, stop)))
    thread.start()
    assert told.wait(10)
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join()


def provider(faults=()):
    async def serve(tell, stop):
        async with LoopbackServer(reply=fifth, faults=faults) as server:
            tell(server)
            await asyncio.to_thread(stop.wait)

    return in_thread(serve)


def closing(clock, away):
    """A provider whose port is closed between two moments of the clock."""

    async def serve(tell, stop):
        async with LoopbackServer(reply=fifth, latency=0.01) as server:
            tell(server)
            while clock.now() < away[0]:
                await asyncio.sleep(0.001)
        while clock.now() < away[1] and not stop.is_set():
            await asyncio.sleep(0.001)
        async with LoopbackServer(reply=fifth, port=int(server.url.rsplit(":")[-1].removesuffix("/v1"))) as again:
            server.after = again
            await asyncio.to_thread(stop.wait)

    return in_thread(serve)


def quiz(url, clock, into, n=N, **options):
    model = ChatClient("vllm", "toy", base_url=url, clock=clock, **options)
    benchmark = assay.load_benchmark("toy_quiz", n=n)
    return assay.run(benchmark, model, into=into, cache=False, connections=4)


def expected(n=N):
    return [float(fifth({"messages": [{"content": f"number {i}"}]}) == str(i % 5)) for i in range(n)]


MINUTES = (2.0, 302.0)


@pytest.mark.parametrize("kind", ["503", "429", "cut", "hang"])
def test_five_minutes_without_a_provider_are_waited_out_and_change_no_record(tmp_path, kind):
    clock = Fast(150)
    answered = [0]

    def away(number, body):
        if answered[0] >= 6 and clock.now() < start[0] + MINUTES[1]:
            return kind
        answered[0] += 1
        if answered[0] == 6:
            start[0] = clock.now()
        return None

    start = [clock.now()]
    options = {"timeout": 0.3} if kind == "hang" else {}
    with provider(away) as server:
        run = quiz(server.url, clock, tmp_path / "run", **options)
        assert clock.now() - start[0] >= MINUTES[1]
        assert server.requests > N
    check_whole(run.path, N)
    assert run.records["correct"].to_list() == expected()
    assert run.records["tries"].unique().to_list() == [1]


def test_a_port_that_is_closed_for_five_minutes_is_waited_out(tmp_path):
    clock = Fast(150)
    with closing(clock, (20.0, 320.0)) as server:
        run = quiz(server.url, clock, tmp_path / "run", n=60)
        check_whole(run.path, 60)
        assert run.records["correct"].to_list() == expected(60)
        assert server.requests + server.after.requests >= 60
        assert server.after.requests > 0


def test_an_outage_that_outlasts_all_patience_stops_the_run_with_a_sentence_and_its_trials_stay_pending(tmp_path):
    clock = Fast(2000)
    back = [False]
    with provider(lambda number, body: None if back[0] or number < 6 else "503") as server:
        with pytest.raises(RunInterrupted) as stopped:
            quiz(server.url, clock, tmp_path / "run")
        sentence = str(stopped.value)
        assert "\n" not in sentence
        assert re.search(r"vllm gave no usable reply in \d+ tries and \d+ s; the last one: HTTP 503", sentence)
        assert "resume when it is back." in sentence
        kept = stopped.value.run.records
        # Calls that gave up before it was clear that the provider is away are errors; all others are not tried yet.
        assert kept["status"].to_list().count("error") < requests.GIVEN_UP
        assert kept["status"].to_list().count("ok") == 6
        back[0] = True
        model = ChatClient("vllm", "toy", base_url=server.url)
        benchmark = assay.load_benchmark("toy_quiz", n=N)
        assay.resume(tmp_path / "run", benchmark=benchmark, system=model, retry_errors=True, cache=False)
    run = check_whole(tmp_path / "run", N)
    assert run.records["correct"].to_list() == expected()


def test_one_request_that_always_fails_is_its_own_error_and_no_outage(tmp_path):
    clock = Fast(2000)

    def poison(number, body):
        return "503" if body["messages"][-1]["content"] in ("number 7", "number 9") else None

    with provider(poison) as server:
        model = ChatClient("vllm", "toy", base_url=server.url, clock=clock)
        run = assay.run(assay.load_benchmark("toy_quiz", n=N), model, into=tmp_path / "run", cache=False, connections=1)
    check_whole(run.path, N, ok=N - 2, error=2)


def test_a_provider_that_is_away_from_the_start_stops_the_run_and_nothing_needs_to_be_retried(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    system = f"vllm:toy@http://127.0.0.1:{port}/v1"
    with pytest.raises(RunInterrupted) as stopped:
        assay.run("toy_quiz", system, options={"n": N}, into=tmp_path / "run", cache=False)
    assert re.search(
        rf"in 3 tries and \d+ s; the last one: no connection to http://127.0.0.1:{port} ", str(stopped.value)
    )
    assert stopped.value.run.records.height == 0

    async def serve(tell, stop):
        async with LoopbackServer(reply=fifth, port=port) as server:
            tell(server)
            await asyncio.to_thread(stop.wait)

    with in_thread(serve) as server:
        assay.resume(tmp_path / "run", cache=False)
        assert server.requests == N
    check_whole(tmp_path / "run", N)


def test_a_host_that_has_no_address_is_one_sentence(tmp_path):
    system = "vllm:toy@http://no-such-host.invalid:8000/v1"
    with pytest.raises(RunInterrupted) as stopped:
        assay.run("toy_quiz", system, options={"n": N}, into=tmp_path / "run", cache=False)
    sentence = str(stopped.value)
    assert "\n" not in sentence
    assert "no connection to http://no-such-host.invalid:8000 (" in sentence
    run = Run(tmp_path / "run")
    assert (run.status, run.records.height) == ("interrupted", 0)


def test_names_that_cannot_be_resolved_for_a_moment_are_asked_for_again(tmp_path, monkeypatch):
    real, failed = socket.getaddrinfo, []

    def broken(host, *arguments, **keywords):
        if host == "localhost" and len(failed) < 2:
            failed.append(host)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, *arguments, **keywords)

    monkeypatch.setattr(socket, "getaddrinfo", broken)
    with provider() as server:
        run = quiz(server.url.replace("127.0.0.1", "localhost"), Fast(100), tmp_path / "run")
    assert len(failed) == 2
    check_whole(run.path, N)


def test_a_host_that_swallows_connections_is_not_waited_for_as_if_it_were_slow(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "CONNECT_SECONDS", 0.3)
    with contextlib.ExitStack() as stack:
        # A queue that is full and never emptied: further connections hang, as behind a firewall that drops them.
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(3):
            knocking = stack.enter_context(socket.socket())
            knocking.setblocking(False)
            knocking.connect_ex(("127.0.0.1", port))
        begun = time.monotonic()
        with pytest.raises(RunInterrupted, match=rf"no connection to http://127\.0\.0\.1:{port} within 0\.3 s"):
            quiz(f"http://127.0.0.1:{port}/v1", Fast(100), tmp_path / "run")
        assert time.monotonic() - begun < 20
    assert Run(tmp_path / "run").records.height == 0


def test_a_date_to_wait_for_is_read_by_the_clock_that_wrote_it():
    """A clock that is an hour wrong here makes nobody wait an hour."""
    from email.utils import formatdate

    there = 1_700_000_000.0
    headers = {"Retry-After": formatdate(there + 7, usegmt=True), "Date": formatdate(there, usegmt=True)}
    for here in (there - 3600, there, there + 3600):
        assert requests.retry_after(headers, here) == 7.0


@pytest.mark.parametrize("how", ["garbage", "a file in its place"])
def test_a_request_cache_that_cannot_be_used_stops_the_run_with_a_sentence_and_no_trial_becomes_an_error(
    tmp_path, monkeypatch, how
):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "cache" / "replies"
    if how == "garbage":
        place.mkdir(parents=True)
        (place / "replies.sqlite").write_bytes(b"no database" * 1000)
    else:
        place.parent.mkdir()
        place.write_bytes(b"")
    with provider() as server:
        system = f"vllm:toy@{server.url}"
        with pytest.raises(RunInterrupted, match=r"The request cache .* cannot be opened .*--no-cache"):
            assay.run("toy_quiz", system, options={"n": N}, into=tmp_path / "run")
        assert (server.requests, Run(tmp_path / "run").records.height) == (0, 0)
        assay.resume(tmp_path / "run", cache=False)
    check_whole(tmp_path / "run", N)


@pytest.mark.slow
def test_a_minute_without_a_provider_by_the_real_clock(tmp_path):
    begun = []

    def away(number, body):
        if number < 6:
            return None
        begun or begun.append(time.monotonic())
        return "503" if time.monotonic() - begun[0] < 65 else None

    with provider(away) as server:
        system = f"vllm:toy@{server.url}"
        started = time.monotonic()
        run = assay.run("toy_quiz", system, options={"n": N}, into=tmp_path / "run", cache=False, connections=4)
        assert time.monotonic() - started >= 65
    check_whole(run.path, N)
    assert run.records["correct"].to_list() == expected()
