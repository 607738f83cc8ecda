"""Faults of a provider, seen by a whole run: a retry or an error record with a sentence, never a wrong score."""

from __future__ import annotations

import asyncio
import threading

import polars as pl
import pytest
from toys import fifth

import assay
from assay.core.results import runs_folder
from assay.core.run import RunInterrupted
from assay.systems.chat.loopback import LoopbackServer

N = 20


@pytest.fixture
def serve():
    """Start loopback servers in a thread of their own."""
    stop, threads = threading.Event(), []

    def start(faults):
        started, found = threading.Event(), {}

        async def main():
            async with LoopbackServer(reply=fifth, faults=faults) as server:
                found["server"] = server
                started.set()
                await asyncio.to_thread(stop.wait)

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        threads.append(thread)
        assert started.wait(10)
        return found["server"]

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def quiz(server, query="", **engine):
    return assay.run("toy_quiz", f"vllm:toy@{server.url}{query}", options={"n": N}, cache=False, **engine)


@pytest.fixture
def expected(serve):
    """Scores by sample without faults."""
    return dict(quiz(serve(())).records.select("sample", "correct").iter_rows())


@pytest.mark.parametrize(
    "kind", ["429", "429:0", "500", "503", "cut", "truncated", "garbage", "empty", "html", "huge", "hang"]
)
def test_a_passing_fault_is_retried_and_changes_no_score(kind, serve, expected):
    server = serve(lambda number, body: kind if number in (2, 5) else None)
    run = quiz(server, "?timeout=1&retries=4")
    assert run.records["status"].to_list() == ["ok"] * N
    assert dict(run.records.select("sample", "correct").iter_rows()) == expected
    assert server.requests == N + 2


@pytest.mark.parametrize("kind", ["429:0", "500", "cut", "truncated", "empty", "html", "huge", "hang"])
def test_a_lasting_fault_is_an_error_record_with_a_sentence_and_keeps_its_place_in_the_denominator(
    kind, serve, expected
):
    def always_for_seven(number, body):
        return kind if body["messages"][-1]["content"] == "number 7" else None

    run = quiz(serve(always_for_seven), "?timeout=0.5&retries=1&deadline=3")
    bad = run.records.filter(pl.col("status") != "ok")
    assert bad["sample"].to_list() == ["n7"]
    assert bad["status"].item() == "error"
    assert bad["error"].item().endswith(".")
    assert "\n" not in bad["error"].item()
    assert bad["correct"].item() is None
    (score,) = run.scores()
    assert score.n_error == 1
    assert score.value == pytest.approx(sum(v for k, v in expected.items() if k != "n7") / N)


def test_a_refusal_is_an_outcome_of_its_own_not_an_error(serve):
    run = quiz(serve(lambda number, body: "refusal" if number == 3 else None))
    assert run.records["status"].to_list() == ["ok"] * N
    assert run.records["stop_reason"].value_counts().sort("count")["stop_reason"].to_list() == ["refusal", "stop"]
    refused = run.records.filter(pl.col("stop_reason") == "refusal")
    assert refused["correct"].item() == 0.0


def test_an_invalid_key_stops_the_run_with_one_sentence_and_leaves_the_rest_pending(serve):
    server = serve(lambda number, body: "401")
    with pytest.raises(RunInterrupted) as stopped:
        quiz(server, connections=2)
    assert "\n" not in str(stopped.value)
    assert server.requests <= 4
    run = stopped.value.run
    assert run.status == "interrupted"
    assert run.records.height < N


def test_errors_are_tried_again_only_when_asked(serve, expected):
    broken = {"on": True}
    server = serve(
        lambda number, body: "500" if broken["on"] and body["messages"][-1]["content"] == "number 7" else None
    )
    run = quiz(server, "?retries=0")
    broken["on"] = False
    kept = assay.resume(run, cache=False)
    assert kept.records.filter(pl.col("sample") == "n7")["status"].item() == "error"
    mended = assay.resume(run, retry_errors=True, cache=False)
    assert mended.records.height == N
    assert dict(mended.records.select("sample", "correct").iter_rows()) == expected


def test_too_many_errors_stop_the_run(serve):
    with pytest.raises(RunInterrupted, match="more than the 3 allowed"):
        quiz(serve(lambda number, body: "400"), max_errors=3, connections=1)


def test_attempts_are_asked_anew_and_a_rerun_is_answered_from_the_cache(serve, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    server = serve(())
    system = f"vllm:toy@{server.url}"
    first = assay.run("toy_quiz", system, options={"n": 5}, attempts=3)
    assert server.requests == 15
    second = assay.run("toy_quiz", system, options={"n": 5}, attempts=3)
    assert server.requests == 15
    assert second.records["correct"].to_list() == first.records["correct"].to_list()
    calls = second.records.select(pl.col("calls").explode()).unnest("calls")
    assert calls["cached"].sum() == 15


def test_a_budget_stops_the_run_before_it_is_passed_and_a_larger_one_goes_on(serve):
    server = serve(())
    query = "?price_in=1000000&price_out=1000000"
    with pytest.raises(RunInterrupted, match="budget"):
        quiz(server, query, budget=110, connections=4)
    run = assay.open_run(sorted(p.parent for p in runs_folder().glob("*/run.json"))[-1])
    assert 0 < run.records.height < N
    assert run.records["status"].unique().to_list() == ["ok"]
    assert run.info["paid"] <= 110
    done = assay.resume(run, cache=False, budget="100000usd")
    assert done.status == "finished"


def test_what_was_asked_and_answered_stands_in_the_record_and_on_the_page(serve, tmp_path):
    import msgspec

    from assay.report.html import write_report

    run = quiz(serve(()))
    first = msgspec.json.decode(run.records["exchanges"][0])
    assert first[0]["messages"] == [{"role": "user", "content": "number 0"}]
    assert first[0]["replies"][0]["text"] == run.output("asked", "n0")
    page = write_report([run], tmp_path / "page.html").read_text()
    assert "number 0" in page
