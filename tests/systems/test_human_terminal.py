"""A person at the terminal: every form line by line, breaks, stopping and resuming."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from people_toy import ASKED, PeopleToy, reply_to

import assay
from assay.core.errors import DataError, TrialPostponed, UsageError
from assay.core.results import Run
from assay.core.run import RunInterrupted
from assay.systems import forms
from assay.systems.human_terminal import TerminalPerson
from assay.systems.loading import describe, load
from assay.systems.scripted import ScriptedChatModel, text_of

TYPED = {
    "free": ["some words", ""],
    "choice": ["2"],
    "rating": ["?"],
    "pair": ["3"],
    "ranking": ["3 1 2"],
    "relevance": ["1", "2"],
    "grouping": ["x", "y", "x"],
    "ratings": ["10", "90"],
    "spans": ["Ann", "1", ""],
    "schema": ["1", "3"],
}


def person(lines, **options):
    """Types these lines; then the input ends."""
    left = iter([f"{line}\n" for line in lines])
    return TerminalPerson(read=lambda: next(left, ""), write=io.StringIO(), **options)


def ask(who, text="Well?", **asked):
    return asyncio.run(who.generate([{"role": "user", "content": text}], **asked))


@pytest.mark.parametrize("key", ASKED)
def test_every_form_is_answered_by_typing(key):
    asked, answer = ASKED[key]
    reply = ask(person(TYPED[key]), response_format=asked)
    assert reply.text == forms.read(asked).reply(answer)


@pytest.mark.parametrize(
    ("asked", "lines", "text"),
    [
        (forms.choice(["a", "b"]), ["3", "x", "", "b"], '{"choice": "b"}'),
        (forms.rating(1, 5), ["9", "two", "?", "2"], '{"rating": 2}'),
        (forms.ranking(["a", "b"]), ["1", "1 1", "2 1"], '{"ranking": ["b", "a"]}'),
        (forms.relevance(["a"]), ["maybe", "1"], '{"relevant": {"a": true}}'),
        ({"type": "json_object"}, ["{", "[1]", '{"a": 1}'], '{"a": 1}'),
        (forms.text(lines=1), ["  ", "ok"], "ok"),
    ],
)
def test_what_is_no_answer_is_asked_again(asked, lines, text):
    assert ask(person(lines), response_format=asked).text == text


def test_choices_give_rooms_that_read_a_letter_the_letter():
    assert ask(person(["2"], choices=("A", "B"))).text == "B"
    assert ask(person(["B"], choices=("A", "B"))).text == "B"


def test_the_clock_stands_still_in_a_break():
    times = iter([0.0, 10.0, 40.0, 45.0])
    reply = ask(person([":b", "", "done", ""], clock=lambda: next(times)))
    assert (reply.text, reply.seconds) == ("done", 15.0)


def test_pictures_and_recordings_are_written_to_files_and_control_characters_are_not():
    who = person(["1"])
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(b'png').decode()}"}}
    content = [{"type": "text", "text": "\x1b[2Jwhich?"}, part]
    items = [{"id": "x", "part": 0}, {"id": "y"}]
    asyncio.run(who.generate([{"role": "user", "content": content}], response_format=forms.choice(items)))
    shown = who._write.getvalue()
    assert "\x1b" not in shown
    path = shown.partition("Picture: ")[2].partition("\n")[0]
    assert Path(path).read_bytes() == b"png"
    assert path.endswith(".png")
    assert Path(path).parent.stat().st_mode & 0o077 == 0


def test_a_form_that_points_at_no_part_is_refused():
    with pytest.raises(DataError, match="part 0"):
        ask(person(["1"]), response_format=forms.rating(1, 5, part=0))


def test_practice_comes_first_and_does_not_count():
    item = {
        "messages": [{"role": "user", "content": "2 + 2?"}], "response_format": forms.choice(["4", "5"]),
        "expected": {"choice": "4"}, "feedback": "Four it is.",
    }  # fmt: skip
    who = person(["5", "2"], practice=[item])
    assert ask(who, response_format=forms.choice(["a", "b"])).text == '{"choice": "b"}'
    shown = who._write.getvalue()
    assert (
        shown.index("practice")
        < shown.index('Expected: {"choice": "4"}')
        < shown.index("Four it is")
        < shown.index("Well?")
    )


def test_what_no_person_can_do_is_refused():
    for wanted in ({"tools": [{"type": "function"}]}, {"n": 2}, {"logprobs": 5}):
        with pytest.raises(UsageError, match="A person cannot"):
            ask(person([]), **wanted)


def test_a_run_stopped_at_the_terminal_goes_on_where_it_was_and_equals_that_of_a_model(tmp_path):
    keys = list(ASKED)
    half = [line for key in keys[:4] for line in TYPED[key]]
    with pytest.raises(RunInterrupted, match="stopped"):
        assay.run(PeopleToy(), person([*half, ":q"]), into=tmp_path / "person")
    stopped = Run(tmp_path / "person")
    assert (stopped.status, stopped.records.height) == ("interrupted", 4)
    rest = [line for key in keys[4:] for line in TYPED[key]]
    done = assay.resume(stopped, benchmark=PeopleToy(), system=person(rest))
    model = ScriptedChatModel(lambda messages, rng: reply_to(text_of(messages)))
    twin = assay.run(PeopleToy(), model, into=tmp_path / "model")
    columns = ["task", "sample", "attempt", "status", "right", "read", "output", "stop_reason", "seed", "target"]
    assert done.records.select(columns).equals(twin.records.select(columns))
    assert done.records["right"].to_list() == [1.0] * len(keys)
    assert done.records["respondent"].unique().to_list() == ["you"]


def test_one_interrupt_at_the_terminal_ends_the_run_at_once_and_resuming_asks_the_rest(tmp_path):
    environment = {**os.environ, "ASSAY_RUNS": str(tmp_path / "runs"), "ASSAY_CACHE": str(tmp_path / "cache")}
    name = "human:anna?at=terminal&choices=A,B,C,D"
    start = [sys.executable, "-m", "assay.cli"]
    command = [*start, "run", "asciieval", "-s", name, "-o", "modes=text", "--limit", "2", "--quiet"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, env=environment, stdin=theirs, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    shown = ""
    while shown.count("Number:") < 2:
        shown += process.stderr.read(1)
        if shown.endswith("Number:") and shown.count("Number:") == 1:
            os.write(ours, b"2\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    (folder,) = (tmp_path / "runs").iterdir()
    assert Run(folder).records["output"].to_list() == ['"B"']
    done = subprocess.run(
        [*start, "resume", folder.name, "--quiet"], env=environment, input="3\n", text=True, timeout=60
    )
    assert done.returncode == 0
    assert sorted(Run(folder).records["output"]) == ['"B"', '"C"']


def test_the_end_of_input_stops_whoever_waits():
    who = person([])
    for _ in range(2):
        with pytest.raises(TrialPostponed, match="stopped"):
            ask(who)


def test_a_terminal_person_is_loaded_by_name(tmp_path):
    who = load("human:anna?at=terminal&choices=A,B")
    assert (who.name, who.choices) == ("human:anna?at=terminal", ("A", "B"))
    assert describe("human:anna?at=terminal")["kind"] == "human"
    with pytest.raises(UsageError, match="needs no server"):
        load("human:anna@http://127.0.0.1:1?at=terminal")
    with pytest.raises(UsageError, match="at"):
        load("human:anna?at=sea")
    with pytest.raises(UsageError, match="instructions"):
        load(f"human:anna?instructions={tmp_path / 'none'}")
