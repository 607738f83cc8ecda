"""Whole runs answered by people: the same records as a model that says the same, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import httpx
import pytest
from people_toy import ASKED, PeopleToy, reply_to
from people_visit import Visitor, text_of

import assay
from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.results import Run, find_runs
from assay.core.run import RunInterrupted
from assay.systems.chat.model import ChatModel
from assay.systems.human import HumanModel
from assay.systems.human_desk import LocalServer
from assay.systems.loading import load
from assay.systems.scripted import ScriptedChatModel
from assay.systems.scripted import text_of as model_text_of

COLUMNS = ["task", "sample", "attempt", "status", "right", "read", "output", "stop_reason", "seed", "target", "cluster"]


def toy_answer(found):
    """What the toy people answer."""
    return ASKED[text_of(found).partition("Form: ")[2].strip()][1]


class Crowd:
    """Visitors in threads, each with a connection of their own; faults are raised at the end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.faults: list[Exception] = []
        self.threads: list[threading.Thread] = []

    def send(self, link, answer, patience=60.0) -> None:
        def visit() -> None:
            try:
                with httpx.Client(base_url=self.url, trust_env=False, timeout=30) as client:
                    Visitor(client, link()).answer_all(answer, patience=patience)
            except Exception as error:
                self.faults.append(error)

        self.threads.append(threading.Thread(target=visit, daemon=True))
        self.threads[-1].start()

    def done(self) -> None:
        for thread in self.threads:
            thread.join(60)
        assert not self.faults, self.faults


def link_of(live, run, studies=1, part=""):
    """Wait for a run's study, the newest of so many (whose name ends so); its link."""
    client = live.program("admin")
    for _ in range(1500):
        listed = client.get("/api/people/studies").json()
        found = [s for s in listed if s["run"].startswith(f"{run} ") and s["run"].endswith(part)]
        if len(found) == studies:
            return found[0]["link"]
        time.sleep(0.02)
    raise AssertionError(f"no study of {run}")


@pytest.fixture
def token(live, monkeypatch):
    """A run's right to put questions to the live server."""
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", live.token("submitter"))


@pytest.mark.usefixtures("token")
def test_a_run_answered_by_a_person_has_the_records_of_a_model_that_says_the_same(live, tmp_path):
    crowd = Crowd(live.settings.url)
    crowd.send(lambda: link_of(live, "person"), toy_answer)
    person = load(f"human:anna@{live.settings.url}")
    run = assay.run(PeopleToy(), person, into=tmp_path / "person")
    crowd.done()
    model = ScriptedChatModel(lambda messages, rng: reply_to(model_text_of(messages)))
    twin = assay.run(PeopleToy(), model, into=tmp_path / "model")
    assert run.records.select(COLUMNS).equals(twin.records.select(COLUMNS))
    assert run.records["right"].to_list() == [1.0] * len(ASKED)
    assert run.records["seconds"].to_list() == [0.5] * len(ASKED)
    assert run.records["answer_position"].sort().to_list() == list(range(1, len(ASKED) + 1))
    assert run.records["respondent"].n_unique() == 1
    assert run.status == "finished"


@pytest.mark.usefixtures("token")
def test_asciieval_asks_a_person_the_very_questions_it_asks_a_model(live, tmp_path):
    seen = {}

    def answer(found):
        seen[text_of(found)] = [p["type"] for m in found["messages"] for p in m["parts"]]
        assert found["form"]["options"] == [{"id": letter} for letter in "ABCD"]
        return "B"

    crowd = Crowd(live.settings.url)
    crowd.send(lambda: link_of(live, "person"), answer)
    options = {"modes": "text,both"}
    run = assay.run(
        "asciieval", load(f"human:anna@{live.settings.url}?choices=A,B,C,D"), options=options, samples=4,
        into=tmp_path / "person",
    )  # fmt: skip
    crowd.done()
    asked = []

    def model(messages, rng):
        asked.append(model_text_of(messages))
        return "B"

    twin = assay.run("asciieval", ScriptedChatModel(model), options=options, samples=4, into=tmp_path / "model")
    columns = ["task", "sample", "attempt", "status", "correct", "answered", "letter", "chosen", "output", "class"]
    assert run.records.select(columns).equals(twin.records.select(columns))
    assert run.records.height == 8
    assert sorted(seen) == sorted(set(asked))
    assert any("image" in kinds for kinds in seen.values())
    (table,) = assay.analyze("asciieval.people", [run])
    assert table.frame["median_seconds"].to_list() == [0.5, 0.5]


@pytest.mark.usefixtures("token")
def test_a_panel_answers_every_attempt_by_somebody_else(live, tmp_path):
    crowd = Crowd(live.settings.url)
    for _ in range(4):
        crowd.send(lambda: link_of(live, "panel"), toy_answer)
    run = assay.run(PeopleToy(), load(f"human:@{live.settings.url}"), attempts=3, into=tmp_path / "panel")
    crowd.done()
    assert run.records.height == 3 * len(ASKED)
    assert run.records["right"].mean() == 1.0
    assert {part["respondent"].n_unique() for part in run.records.partition_by("sample")} == {3}


def test_a_server_is_started_where_none_is_given_and_its_death_costs_nothing_that_was_sent(tmp_path, capfd):
    killed = []

    def answer(shown):
        # Twice the server dies without a word; answers and what was typed until then are there when it is back.
        if len(killed) < 2 and shown["progress"]["done"] == 3 * (len(killed) + 1):
            found["visitor"].send(shown["question"], f"half {len(killed)}", to="draft")
            (pid,) = local_servers(tmp_path / "server")
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            back = found["visitor"].next()
            assert (back["question"], back["draft"]) == (shown["question"], f"half {len(killed) - 1}")
        return toy_answer(shown)

    def link() -> str:
        for _ in range(3000):
            if match := re.search(r"http://127\S+", capfd.readouterr().err):
                return match[0]
            time.sleep(0.02)
        raise AssertionError("no link was printed")

    found: dict = {}

    def visit() -> None:
        try:
            where = link()
            with httpx.Client(base_url=where.partition("/people")[0], trust_env=False, timeout=30) as client:
                found["visitor"] = Patient(client, where)
                found["visitor"].answer_all(answer)
        except AssertionError:
            traceback.print_exc()
            # Nobody would answer any more: the run would wait for ever.
            os.kill(os.getpid(), signal.SIGINT)
        except httpx.TransportError:
            assert len(killed) == 2

    thread = threading.Thread(target=visit, daemon=True)
    thread.start()
    run = assay.run(PeopleToy(), HumanModel("anna", root=tmp_path / "server"), into=tmp_path / "run")
    # The study closes with the run, and the server with it; the visitor may hear of neither.
    thread.join(5)
    assert len(killed) == 2
    assert run.records.height == len(ASKED)
    assert run.records["right"].to_list() == [1.0] * len(ASKED)
    assert run.records["answer_position"].sort().to_list() == list(range(1, len(ASKED) + 1))
    assert not local_servers(tmp_path / "server")


class Patient(Visitor):
    """Tries again while the server is away, as the page does."""

    def _try(self, call):
        for _ in range(1500):
            try:
                return call()
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the server did not come back")

    def next(self):
        return self._try(super().next)

    def send(self, *args, **options):
        return self._try(lambda: Visitor.send(self, *args, **options))


def local_servers(root: Path) -> list[int]:
    """Processes that serve a folder for a run."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"assay.server.people.local" in words and str(root).encode() in words:
                found.append(int(folder.name))
    return found


@pytest.mark.usefixtures("token")
def test_a_killed_run_finds_what_was_answered_while_it_was_down(live, tmp_path):
    environment = {**os.environ, "ASSAY_RUNS": str(tmp_path / "runs"), "ASSAY_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "assay.cli", "run", "asciieval", "-s", f"human:anna@{live.settings.url}"]
    command += ["-o", "modes=text", "--limit", "4", "--quiet"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "questions for anna" in process.stderr.readline()
    link = process.stderr.readline().strip()
    assert len(link) < 80
    with httpx.Client(base_url=live.settings.url, trust_env=False) as client:
        visitor = Visitor(client, link)
        while (found := visitor.next())["progress"]["total"] < 4:
            time.sleep(0.02)
        visitor.send(found["question"], "A")
        (run,) = wait_for(lambda: [r for r in find_runs(tmp_path / "runs") if list(r.path.glob("journal/*.jsonl"))])
        process.send_signal(signal.SIGINT)
        # One press is enough: nobody waits for people to finish.
        assert process.wait(30) == 130
        for _ in range(3):
            found = visitor.next()
            visitor.send(found["question"], "A")
        stopped = Run(run.path)
        assert stopped.status == "interrupted"
        assert stopped.records.height <= 1
        done = subprocess.run(
            [sys.executable, "-m", "assay.cli", "resume", run.path.name, "--quiet"], env=environment, timeout=60
        )
        assert done.returncode == 0
        assert Run(run.path).records["output"].to_list() == ['"A"'] * 4
        assert visitor.next()["state"] == "done"


class Threaded(Task):
    """Asks from a thread of its own, and has a person judge what was said."""

    name = "threaded"
    system = ChatModel

    def __init__(self, judge):
        self.judge = judge

    def samples(self):
        return [Sample("only")]

    async def trial(self, system, sample, ctx):
        said: list[str] = []

        def thread():
            said.append(asyncio.run(system.generate([{"role": "user", "content": "Say something."}])).text)

        own = threading.Thread(target=thread)
        own.start()
        while own.is_alive():
            await asyncio.sleep(0.01)
        verdict = await self.judge.generate([{"role": "user", "content": f"Good? {said[0]}"}])
        return Outcome(output=[said[0], verdict.text])


class ThreadedToy(Benchmark):
    name, title = "threaded_toy", "A person asked, a person judging"

    def __init__(self, judge):
        self.judge = judge

    def tasks(self):
        return [Threaded(self.judge)]


@pytest.mark.usefixtures("token")
def test_a_person_may_judge_a_person_and_be_asked_from_a_rooms_own_thread(live, tmp_path):
    crowd = Crowd(live.settings.url)
    crowd.send(lambda: link_of(live, "talk", part="+00:00"), lambda found: "Something.")
    crowd.send(lambda: link_of(live, "talk", part="(judge)"), lambda found: f"{text_of(found)} Yes.")
    judge = load(f"human:bob@{live.settings.url}", role="judge")
    run = assay.run(ThreadedToy(judge), load(f"human:anna@{live.settings.url}"), into=tmp_path / "talk")
    crowd.done()
    (row,) = run.records.iter_rows(named=True)
    assert (row["status"], row["output"]) == ("ok", '["Something.","Good? Something. Yes."]')
    assert row["respondent"] != row["judge_respondent"]
    assert row["seconds"] == 0.5
    assert sorted((c["role"], c["model"], c["calls"]) for c in row["calls"]) == [
        ("judge", "human:bob", 1),
        ("subject", "human:anna", 1),
    ]


@pytest.mark.usefixtures("token")
def test_another_run_in_a_folder_of_the_same_name_asks_anew(live, tmp_path):
    for turn in (1, 2):
        crowd = Crowd(live.settings.url)
        crowd.send(lambda many=turn: link_of(live, "same", many), toy_answer)
        run = assay.run(PeopleToy(), load(f"human:anna@{live.settings.url}"), into=tmp_path / str(turn) / "same")
        crowd.done()
        assert run.records["answer_position"].max() == len(ASKED)


def test_links_stay_what_they_were_when_the_server_of_a_run_starts_again(tmp_path):
    async def addresses():
        found = []
        for _ in range(2):
            server = LocalServer(tmp_path / "server")
            found.append((await server.start())[0])
            await server.stop()
        return found

    first, second = asyncio.run(addresses())
    assert first == second


def wait_for(look, seconds=30):
    """What ``look`` gives once it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")


@pytest.mark.usefixtures("token")
def test_one_question_that_cannot_be_shown_fails_alone(live, tmp_path):
    class Odd(Task):
        name = "odd"
        system = ChatModel

        def samples(self):
            return [Sample("fine"), Sample("address")]

        async def trial(self, system, sample, ctx):
            part = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
            content = "Hello?" if sample.id == "fine" else [part]
            return Outcome(output=(await system.generate([{"role": "user", "content": content}])).text)

    class OddBenchmark(Benchmark):
        name, title = "odd", "Odd"

        def tasks(self):
            return [Odd()]

    crowd = Crowd(live.settings.url)
    crowd.send(lambda: link_of(live, "odd"), lambda found: "yes")
    run = assay.run(OddBenchmark(), load(f"human:anna@{live.settings.url}"), into=tmp_path / "odd")
    crowd.done()
    by_sample = {r["sample"]: r for r in run.records.iter_rows(named=True)}
    assert by_sample["fine"]["status"] == "ok"
    assert by_sample["address"]["status"] == "error"
    assert "is an address" in by_sample["address"]["error"]


def test_a_server_that_is_not_there_or_refuses_stops_the_run_with_nothing_lost(live, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", "assay_wrong")
    for address, said in ((live.settings.url, "ASSAY_SERVER_TOKEN"), ("http://127.0.0.1:9", "No assay server answers")):
        folder = tmp_path / re.sub(r"\W", "", address)
        with pytest.raises(RunInterrupted, match=said):
            assay.run(PeopleToy(), load(f"human:anna@{address}"), into=folder)
        assert Run(folder).records.height == 0


def test_an_address_without_token_or_in_clear_over_a_network_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="ASSAY_SERVER_TOKEN"):
        load("human:anna@http://127.0.0.1:8765")
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", "assay_x")
    with pytest.raises(UsageError, match="https"):
        load("human:anna@http://example.org")
