"""Chat models whose answers are known beforehand: for tests, demonstrations and checks of a benchmark."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from assay.core.errors import ProviderError, UsageError
from assay.core.metering import Call, Meter, current_attempt, report_call, report_exchange
from assay.systems.chat.model import Choice, Message, Reply, Usage

Answer = str | Choice | Reply
Script = Callable[[Sequence[Message], np.random.Generator], Answer | Awaitable[Answer]]
Solver = Callable[[Sequence[Message]], tuple[str, str | Sequence[str]]]


def count_tokens(text: str) -> int:
    """Stand-in for a tokeniser: words."""
    return len(text.split())


def text_of(messages: Sequence[Message]) -> str:
    """Text of all messages, images left out."""
    return "\n".join(content_text(m.get("content")) for m in messages)


def content_text(content: Any) -> str:
    """Text of one message's content: a text, or the text parts of a list."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(p.get("text", "") for p in content if p.get("type") == "text")


class ScriptedChatModel:
    """A chat model that is a function.

    Parameters
    ----------
    fn
        ``fn(messages, rng)`` gives a text, a Choice, or a whole Reply; it may be async. With n > 1 it is called once a
        choice. ``rng`` depends on ``seed``, messages, attempt and the call's own seed alone, so that neither order nor
        resuming changes an answer.
    name, role, seed
        Name in records; what its calls are metered as; seed of all randomness.
    price_in, price_out
        USD per million tokens (words, unless the Reply says otherwise); None = its calls have no price.
    """

    def __init__(
        self,
        fn: Script,
        *,
        name: str = "scripted",
        role: str = "subject",
        seed: int = 0,
        price_in: float | None = None,
        price_out: float | None = None,
    ) -> None:
        from assay.systems.chat.prices import stated_price

        self.fn = fn
        self.name = name
        self.role = role
        self.seed = seed
        self.price = stated_price(price_in, price_out)
        self._meter: Meter | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def bind(self, meter: Meter) -> ScriptedChatModel:
        """A copy that reports to ``meter``."""
        bound = copy.copy(self)
        bound._meter = meter
        return bound

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        return {"name": self.name, "kind": "scripted", "seed": self.seed}

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
        """Answer by the function; see `ChatModel`. Sampling parameters other than n and seed have no effect."""
        rng = self._rng(messages, seed)
        choices: list[Choice] = []
        usage: Usage | None = None
        for _ in range(n):
            answer = self.fn(messages, rng)
            if inspect.isawaitable(answer):
                answer = await answer
            if isinstance(answer, Reply):
                if n == 1:
                    return self._report(messages, answer)
                choices += answer.choices[:1]
                usage = answer.usage if usage is None else _sum(usage, answer.usage)
            else:
                choices.append(Choice(answer) if isinstance(answer, str) else answer)
        if usage is None:
            written = sum(count_tokens(c.text) + count_tokens(c.reasoning or "") for c in choices)
            thought = sum(count_tokens(c.reasoning or "") for c in choices)
            usage = Usage(count_tokens(text_of(messages)), written, 0, thought)
        cost = None if self.price is None else self.price.cost(usage)
        return self._report(messages, Reply(tuple(choices), usage, self.name, 0.0, cost))

    def _rng(self, messages: Sequence[Message], seed: int | None) -> np.random.Generator:
        text = json.dumps([self.seed, seed, current_attempt.get(), list(messages)], default=str, sort_keys=True)
        return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))

    def _report(self, messages: Sequence[Message], reply: Reply) -> Reply:
        usage = reply.usage
        call = Call(
            role=self.role,
            model=self.name,
            calls=1,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            seconds=reply.seconds,
            cost=reply.cost,
            paid=reply.cost or 0.0,
        )
        report_call(call, self._meter)
        report_exchange(self.role, self.name, messages, reply.choices, self._meter)
        return reply


class SkilledModel(ScriptedChatModel):
    """A subject of known accuracy: right with probability ``skill``, independently for each sample and attempt.

    Parameters
    ----------
    solve
        ``solve(messages)`` gives the right answer and the wrong ones (one or several, drawn evenly).
    skill
        Probability of the right answer, in [0, 1].
    template
        The reply; ``{answer}`` is replaced.
    others
        As in `ScriptedChatModel`.
    """

    def __init__(
        self, solve: Solver, skill: float, *, template: str = "{answer}", name: str | None = None, **others: Any
    ) -> None:
        if not 0 <= skill <= 1:
            raise UsageError(f"skill is {skill}; a probability lies in [0, 1].")

        def answer(messages: Sequence[Message], rng: np.random.Generator) -> str:
            right, wrong = solve(messages)
            wrong = [wrong] if isinstance(wrong, str) else list(wrong)
            chosen = right if rng.random() < skill else wrong[int(rng.integers(len(wrong)))]
            return template.replace("{answer}", chosen)

        super().__init__(answer, name=name or f"skilled-{skill:g}", **others)
        self.skill = skill

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        return {**super().describe(), "skill": self.skill}


class ReplayModel(ScriptedChatModel):
    """Fixed replies in order of the calls; one call too many raises ProviderError.

    Parameters
    ----------
    replies
        Texts, Choices, Replies, or exceptions to raise.
    others
        As in `ScriptedChatModel`.

    Attributes
    ----------
    seen : list
        Messages of the calls so far.
    """

    def __init__(self, replies: Sequence[Answer | Exception], *, name: str = "replay", **others: Any) -> None:
        self.seen: list[Sequence[Message]] = []
        left = iter(list(replies))

        def answer(messages: Sequence[Message], rng: np.random.Generator) -> Answer:
            self.seen.append(messages)
            reply = next(left, None)
            if reply is None:
                raise ProviderError(f"{name} has no reply left after {len(self.seen) - 1} calls.", retryable=False)
            if isinstance(reply, Exception):
                raise reply
            return reply

        super().__init__(answer, name=name, **others)


def _sum(a: Usage, b: Usage) -> Usage:
    return Usage(
        a.prompt_tokens + b.prompt_tokens,
        a.completion_tokens + b.completion_tokens,
        a.cached_tokens + b.cached_tokens,
        a.reasoning_tokens + b.reasoning_tokens,
    )
