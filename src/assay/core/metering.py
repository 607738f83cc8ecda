"""Metering: every model call is counted once, for the trial that caused it, by role and model.

A client reports each call to the meter it was bound to or, without one, to the meter of the current context. The
engine puts a meter into the context of every trial and carries it into threads and worker processes; rooms never
count tokens. The scope of a run (budget, cache, limiters) travels the same way.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from assay.core.errors import BudgetExceeded


class TrialKey(NamedTuple):
    """Which trial is under way: the run (its folder's name and when it was made), task, sample id (a label, for a
    batch), attempt, the sample's index."""

    run: str
    task: str
    sample: str
    attempt: int
    index: int


class Call(msgspec.Struct, omit_defaults=True):
    """Totals of all calls of one trial to one model in one role.

    ``cost`` is in US dollars, None where no price is known; ``cached`` counts calls answered from the request cache
    (their tokens are counted, their cost is what the call cost when it was made, so that cost-of-pass does not depend
    on the cache; ``paid`` is what this run spent).
    """

    role: str
    model: str
    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    seconds: float = 0.0
    cost: float | None = None
    paid: float = 0.0
    price_date: str | None = None
    resolved: str | None = None


class Meter:
    """Calls of one trial, summed by (role, model), and what was said in them. Safe to use from several threads.

    ``groups`` are what a system knows of its answers (which person gave them); they become groups of the record.
    ``took`` are the seconds that answering took where the trial waited for something else besides (that somebody
    comes); None = the trial's own clock holds.
    """

    __slots__ = ("_lock", "_shown", "calls", "exchanges", "groups", "took")

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], Call] = {}
        self.groups: dict[str, str | int | float] = {}
        self.took: float | None = None
        self.exchanges: list[dict[str, Any]] = []
        self._shown: dict[tuple[str, str], Sequence[Mapping[str, Any]]] = {}
        self._lock = threading.Lock()

    def add(self, call: Call) -> None:
        """Add one call (or the totals of several)."""
        key = (call.role, call.model)
        with self._lock:
            have = self.calls.get(key)
            if have is None:
                self.calls[key] = msgspec.structs.replace(call)
                return
            have.calls += call.calls
            have.cached += call.cached
            have.prompt_tokens += call.prompt_tokens
            have.cached_tokens += call.cached_tokens
            have.completion_tokens += call.completion_tokens
            have.reasoning_tokens += call.reasoning_tokens
            have.seconds += call.seconds
            have.paid += call.paid
            # A known and an unknown cost make an unknown one: a partial sum would pass for the whole.
            have.cost = None if have.cost is None or call.cost is None else have.cost + call.cost
            have.price_date = call.price_date or have.price_date
            have.resolved = call.resolved or have.resolved

    def say(self, role: str, model: str, messages: Sequence[Mapping[str, Any]], choices: Sequence[Any]) -> None:
        """Keep what was asked and answered; pictures as their hash.

        A call whose messages are those of the last call of this role and model, and then some, keeps the new ones alone
        and says how many it ``continues``: an episode of a hundred turns would else hold its first message a hundred
        times.
        """
        with self._lock:
            before = self._shown.get((role, model), ())
            self._shown[role, model] = list(messages)
            known = len(before)
            if not (known and len(messages) > known and all(a is b for a, b in zip(before, messages))):
                known = 0
            said = {"role": role, "model": model, "messages": [_without_pictures(m) for m in messages[known:]]}
            self.exchanges.append(said | {"replies": choices} | ({"continues": known} if known else {}))

    def totals(self) -> list[Call]:
        """One entry a (role, model)."""
        return list(self.calls.values())


class Budget:
    """Dollars a run may spend. A call reserves its worst cost before it is sent and is refunded the rest.

    ``spent + reserved`` never passes ``limit``, whatever is in flight.
    """

    def __init__(self, limit: float, spent: float = 0.0) -> None:
        self.limit = limit
        self.spent = spent
        self.reserved = 0.0
        self._lock = threading.Lock()

    def reserve(self, worst: float) -> None:
        """Set ``worst`` dollars aside, or raise BudgetExceeded."""
        with self._lock:
            if self.spent + self.reserved + worst > self.limit * (1 + 1e-12):
                raise BudgetExceeded(
                    f"The next call may cost up to {worst:.4g} USD, and {self.spent:.4g} USD are spent and "
                    f"{self.reserved:.4g} USD set aside of a budget of {self.limit:.4g} USD; "
                    "resume with a larger --budget to go on."
                )
            self.reserved += worst

    def settle(self, worst: float, actual: float) -> None:
        """Give back a reservation and book what the call really cost."""
        with self._lock:
            self.reserved = max(0.0, self.reserved - worst)
            self.spent += actual


@dataclass
class RunScope:
    """What all clients of one run share: budget, request cache, limiters, the event loop they live on.

    ``shared`` holds one object a key (a session and limiter a provider); ``closers`` are awaited when the run ends.
    ``remarks`` are sentences for whoever reads about the run.
    """

    budget: Budget | None = None
    cache_folder: Path | None = None
    connections: int = 32
    shared: dict[Any, Any] = field(default_factory=dict)
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    unattributed: Meter = field(default_factory=Meter)
    remarks: list[str] = field(default_factory=list)

    async def close(self) -> None:
        """Close what clients opened, last opened first."""
        while self.closers:
            await self.closers.pop()()
        self.shared.clear()


current_meter: ContextVar[Meter | None] = ContextVar("assay_meter", default=None)
current_scope: ContextVar[RunScope | None] = ContextVar("assay_scope", default=None)
current_attempt: ContextVar[int] = ContextVar("assay_attempt", default=0)
current_trial: ContextVar[TrialKey | None] = ContextVar("assay_trial", default=None)


def report_call(call: Call, meter: Meter | None = None) -> None:
    """Report a call to ``meter``, else to the meter of the context, else to the run as unattributed."""
    target = meter or current_meter.get()
    if target is None:
        scope = current_scope.get()
        if scope is None:
            return
        target = scope.unattributed
    target.add(call)


def report_exchange(
    role: str, model: str, messages: Sequence[Mapping[str, Any]], choices: Sequence[Any], meter: Meter | None = None
) -> None:
    """Keep what was asked and answered with the trial's record; see `Meter.say`."""
    target = meter or current_meter.get()
    if target is not None:
        target.say(role, model, messages, choices)


def report_answer(
    groups: Mapping[str, str | int | float], seconds: float | None = None, meter: Meter | None = None
) -> None:
    """Put ``groups`` on the record of the trial; with ``seconds``, these count instead of all its waiting."""
    target = meter or current_meter.get()
    if target is not None:
        target.groups.update(groups)
        if seconds is not None:
            target.took = seconds + (target.took or 0.0)


def _without_pictures(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, (list, tuple)):
        return message
    return {**message, "content": [_named_picture(part) for part in content]}


def _named_picture(part: Mapping[str, Any]) -> Mapping[str, Any]:
    url = part.get("image_url", {}).get("url", "") if isinstance(part, Mapping) else ""
    if not url.startswith("data:"):
        return part
    head, _, data = url.partition(",")
    digest = hashlib.sha256(data.encode()).hexdigest()[:16]
    return {
        "type": "text",
        "text": f"[{head.removeprefix('data:').partition(';')[0]}, {len(data)} characters, {digest}]",
    }


@contextmanager
def metered(meter: Meter) -> Iterator[Meter]:
    """Make ``meter`` the meter of the current context."""
    token = current_meter.set(meter)
    try:
        yield meter
    finally:
        current_meter.reset(token)
