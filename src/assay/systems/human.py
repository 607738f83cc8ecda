"""People as chat models: ``human:NAME`` asks one person, ``human:`` whoever comes, at a web page or in the terminal.

A person gets the messages that a model gets, in the form that ``response_format`` asks for (`assay.systems.forms`), and
the reply is the text that a model would have written. Questions go to an assay server, which keeps them and their
answers: a run may be stopped and resumed over days, and what was answered meanwhile is there.

==================================== =====================================================================
name                                 meaning
==================================== =====================================================================
``human:anna``                       anna answers everything; a server is started on this machine
``human:``                           a panel: each attempt of a sample goes to somebody else
``human:anna@https://host``          a server that runs already; ``ASSAY_SERVER_TOKEN`` holds a token for it
``human:anna?at=terminal``           here in the terminal
``human:anna?choices=A,B,C,D``       buttons for rooms that read a letter from free text
==================================== =====================================================================

The record of a trial carries ``respondent`` (a pseudonym), ``answer_position`` (which answer of theirs it was) and
``attention_failed`` (attention items failed by then) as groups; its ``seconds`` are those from the moment that all
pictures and recordings were loaded, breaks left out.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import DataError, UsageError
from assay.core.metering import (
    Call,
    Meter,
    RunScope,
    TrialKey,
    current_scope,
    current_trial,
    report_answer,
    report_call,
    report_exchange,
)
from assay.systems import forms
from assay.systems.chat.model import Choice, Message, Reply
from assay.systems.human_desk import TOKEN_VARIABLE, Desk, PersonsAnswer


def load_human(
    person: str,
    address: str | None = None,
    *,
    role: str = "subject",
    at: Literal["web", "terminal"] = "web",
    choices: str | None = None,
    practice: str | None = None,
    attention: str | None = None,
    every: int = 10,
    order: Literal["given", "random"] = "given",
    plan: Literal["fill", "spread"] = "fill",
    people: int | None = None,
    per_person: int | None = None,
    lease: float = 30.0,
    seed: int = 0,
    instructions: str | None = None,
    root: str | None = None,
) -> HumanModel | Any:
    """The person or panel of a system's name.

    Parameters
    ----------
    person, address
        Who answers (empty: a panel); where the server is (None: one is started here).
    at
        ``web`` or ``terminal``.
    choices
        Answers to choose from where a request asks for free text, between commas; the reply is the one chosen.
    practice, attention
        JSON-lines files of items ``{"messages", "response_format", "expected", "feedback"}``: shown first, with
        feedback; shown one after each ``every`` answers, without.
    order, plan
        ``random``: an order of their own for each person. ``spread``: all samples get their first answer before any
        gets its second, instead of one sample after the other (``fill``).
    people
        A fixed plan: this many people, each with a share of their own, every two of them with samples in common.
    per_person
        Answers that one person gives at most.
    lease
        Minutes until an open question of somebody who does nothing goes to somebody else.
    seed
        Of orders and plan.
    instructions
        A text file shown before the first question.
    root
        Folder of the server that is started here (default: ``server`` beside the runs, as for ``assay serve``).
    """
    if at == "terminal":
        from assay.systems.human_terminal import TerminalPerson

        if address is not None:
            raise UsageError("A person at the terminal needs no server; leave the address or at=terminal out.")
        return TerminalPerson(person or "you", role=role, choices=_choices(choices), practice=_items(practice))
    if person and people is not None:
        raise UsageError(f"human:{person} is one person; a plan for {people} people goes with human: (no name).")
    settings = {
        "practice": _items(practice),
        "attention": _items(attention),
        "every": every,
        "order": order,
        "plan": plan,
        "people": people,
        "per_person": per_person,
        "lease": lease,
        "seed": seed,
        "instructions": _text(instructions),
    }
    return HumanModel(
        person,
        address,
        role=role,
        choices=_choices(choices),
        settings=settings,
        root=None if root is None else Path(root),
    )


class HumanModel:
    """A person or panel at a web page, as a ChatModel.

    Parameters
    ----------
    person, address
        As in `load_human`.
    choices
        Ids to choose from where a request asks for free text.
    settings
        How the study goes, as the server takes it (practice, attention, order, plan ...).
    root
        Folder of the server that is started here.
    """

    patient = True
    """Its trials wait for people: all are put at once."""

    def __init__(
        self,
        person: str = "",
        address: str | None = None,
        *,
        role: str = "subject",
        choices: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        root: Path | None = None,
    ) -> None:
        self.person = " ".join(person.split())
        self.name = f"human:{self.person}"
        self.role = role
        self.choices = tuple(choices)
        self.settings = dict(settings or {})
        self.root = root
        self.address = None if address is None else _checked_address(address)
        self._outside = f"session-{uuid.uuid4().hex[:12]}"
        self._desks: dict[Any, Desk] = {}
        self._bound: tuple[TrialKey | None, RunScope | None, Meter] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_desks": {}, "_bound": None}

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        plain = {k: v for k, v in self.settings.items() if k not in ("practice", "attention", "instructions") and v}
        return {"name": self.name, "kind": "human", "server": self.address, "study": plain}

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[str] | None = None,
        n: int = 1,
        logprobs: int | None = None,
        seed: int | None = None,
    ) -> Reply:
        """The reply of a person; see `ChatModel`. Returns when somebody has answered.

        Raises
        ------
        UsageError
            What no person can do: call tools, give log-probabilities or several replies; or a form there is not.
        TrialPostponed
            The server cannot be reached or refuses the token: the run stops, and nothing is lost.
        """
        asked = checked_request(response_format, tools=tools, n=n, logprobs=logprobs, choices=self.choices)
        messages = forms.for_people(messages, response_format)
        trial, scope, meter = current_trial.get(), current_scope.get(), None
        if self._bound is not None and trial is None:
            # A room's own thread: context variables did not travel, what was bound did.
            trial, scope, meter = self._bound
        loop = asyncio.get_running_loop() if scope is None else scope.shared.get("loop", asyncio.get_running_loop())
        work = self._answer(list(messages), asked, trial, scope)
        if loop is asyncio.get_running_loop():
            answer = await work
        else:
            # The study is looked after on the run's loop.
            answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
        return reported(self, messages, answer, meter)

    def bind(self, meter: Meter) -> HumanModel:
        """A copy that reports to ``meter`` and knows the trial, for rooms with threads of their own."""
        bound = copy.copy(self)
        bound._bound = (current_trial.get(), current_scope.get(), meter)
        return bound

    async def close(self) -> None:
        """Leave the study of calls made outside a run, and stop the server that they started."""
        for desk in list(self._desks.values()):
            await desk.close()
        self._desks.clear()

    async def _answer(
        self, messages: list[Message], asked: Mapping[str, Any] | None, trial: TrialKey | None, scope: RunScope | None
    ) -> PersonsAnswer:
        run = trial.run if trial else self._outside
        if self.role != "subject":
            run = f"{run} ({self.role})"
        desks: dict[Any, Any] = self._desks if scope is None else scope.shared
        key: Any = id(asyncio.get_running_loop()) if scope is None else (HumanModel, self.name, run)
        desk = desks.get(key)
        if desk is None:
            desk = desks[key] = Desk(self.name, self.person, self.address, self.settings, self.root, run)
            if scope is not None:
                scope.closers.append(desk.close)
        text = json.dumps([messages, asked], sort_keys=True, ensure_ascii=False, default=_plain)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        where = trial or TrialKey(run, "", digest[:16], 0, 0)
        sent_messages, sent_format = json.loads(text)
        question = {
            "id": f"{digest[:24]}.{uuid.uuid4().hex[:12]}",
            "task": where.task,
            "sample": where.sample,
            "attempt": where.attempt,
            "index": where.index,
            "messages": sent_messages,
            "response_format": sent_format,
        }
        return await desk.ask(question)


def checked_request(
    response_format: Mapping[str, Any] | None,
    *,
    tools: Any,
    n: int,
    logprobs: int | None,
    choices: Sequence[str],
) -> Mapping[str, Any] | None:
    """The response format that a person is asked in, or UsageError for what no person can do."""
    for what, wanted in (
        ("call tools", tools),
        ("give log-probabilities", logprobs is not None),
        ("reply n times", n > 1),
    ):
        if wanted:
            raise UsageError(f"A person cannot {what}; several answers to one sample are attempts: --attempts.")
    form = forms.read(response_format)
    if choices and form.kind == "text":
        return forms.choice(choices, plain=True)
    return response_format


def reported(model: Any, messages: Sequence[Message], answer: PersonsAnswer, meter: Meter | None = None) -> Reply:
    """The reply, reported to the trial with who gave it and how long it took."""
    reply = Reply((Choice(answer.reply),), model=model.name, seconds=answer.seconds)
    report_call(Call(role=model.role, model=model.name, calls=1, seconds=answer.seconds), meter)
    report_exchange(model.role, model.name, messages, reply.choices, meter)
    groups: dict[str, str | int | float] = {
        "respondent": answer.respondent,
        "answer_position": answer.position,
        "attention_failed": answer.attention_failed,
    }
    if model.role == "subject":
        report_answer(groups, answer.seconds, meter)
    else:
        report_answer({f"{model.role}_{name}": value for name, value in groups.items()}, meter=meter)
    return reply


def _checked_address(address: str) -> str:
    from urllib.parse import urlsplit

    if not os.environ.get(TOKEN_VARIABLE):
        raise UsageError(f"A server at {address} needs a token; set {TOKEN_VARIABLE} (role submitter).")
    parts = urlsplit(address)
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(
            f"The token would cross the network as text on its way to {address}; give an https:// address."
        )
    return address.rstrip("/")


def _choices(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _text(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The instructions {path} cannot be read ({error}).") from None


def _items(path: str | None) -> list[dict[str, Any]]:
    """Practice or attention items of a file."""
    if path is None:
        return []
    from assay.core.datasets import guarded, read_jsonl

    found = []
    for line, row in read_jsonl(Path(path)):
        if not isinstance(row, Mapping) or not isinstance(row.get("messages"), list):
            raise DataError(f"{path}, line {line}: an item is an object with a list 'messages'.")
        with guarded(f"{path}, line {line}", "an item: field 'response_format' must be a form"):
            form = forms.read(row.get("response_format"))
        if row.get("expected") is not None and (fault := form.fault(row["expected"])):
            raise DataError(f"{path}, line {line}: field 'expected' is no answer of its form: {fault}.")
        found.append({k: row[k] for k in ("messages", "response_format", "expected", "feedback") if k in row})
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set)):
        return list(value)
    raise DataError(f"A message holds {type(value).__name__}, which JSON does not have.")
