"""One agent's run under way: what the model is shown, what is written down, and when it must stop."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from assay.core.errors import ProviderError, UsageError
from assay.systems.chat.model import ChatModel, Choice, Message
from assay.systems.tools import Tool, ToolResult, call, cut
from assay.systems.trace import Step, Trace

Compaction = Literal["summary", "window"]
_OVERFLOW = re.compile(
    r"context.{0,20}(length|window|size|limit)|maximum context|prompt is too long|too many (input )?tokens",
    re.IGNORECASE,
)
_SUMMARY = (
    "The conversation is about to outgrow its limit and will be replaced by a summary that you write now. Note down "
    "everything needed to finish the task: what was asked, what has been done and found so far (names, numbers and "
    "identifiers exactly), what failed, and what remains. Write the summary and nothing else."
)
_SUMMED = "The conversation so far was replaced by this summary:\n\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """When an agent must stop. None = no limit.

    Attributes
    ----------
    turns
        Replies of the model.
    tool_calls
        Tool calls in all.
    seconds
        Wall time in all.
    tokens
        Prompt and completion tokens of all calls in all.
    cost
        US dollars of all calls in all; the model must have a known price.
    context
        Prompt tokens at which the history is compacted before the next call.
    reply_tokens
        Tokens of one reply.
    tool_seconds
        Wall time of one tool call; past it the model is told so and goes on.
    tool_time
        Wall time of all tool calls together.
    tool_characters
        Text of one tool result that is shown; the middle of a longer one is left out, and a line says so.
    """

    turns: int | None = 100
    tool_calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    context: int | None = None
    reply_tokens: int | None = None
    tool_seconds: float | None = 60.0
    tool_time: float | None = None
    tool_characters: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 0 if name == "tool_calls" else 1e-9
            if value is not None and not value >= least:
                raise UsageError(f"Limit {name} is {value}; it must be above 0, or None for no limit.")


class Stop(Exception):
    """The run is over for the reason given (one of `assay.systems.trace.ENDS`)."""

    def __init__(self, end: str, answer: str | None = None) -> None:
        super().__init__(end)
        self.end = end
        self.answer = answer


class Conversation:
    """Messages, steps and limits of one run.

    Parameters
    ----------
    model
        Who answers; None where replies come from elsewhere.
    messages
        How it begins: kept through every compaction.
    limits
        When `ask` and `use` raise Stop.
    compaction
        ``summary``: the model sums up and the history is replaced; ``window``: the older half of the turns is no longer
        shown.
    sampling
        Keyword arguments of every ``generate``.
    """

    def __init__(
        self,
        model: ChatModel | None,
        messages: Sequence[Message],
        limits: Limits,
        *,
        compaction: Compaction = "summary",
        sampling: Mapping[str, Any] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.limits = limits
        self.compaction = compaction
        self.sampling = dict(sampling or {})
        if limits.reply_tokens is not None:
            self.sampling.setdefault("max_tokens", limits.reply_tokens)
        self.trace = Trace([dict(m) for m in messages], info=dict(info or {}))
        self.shown: list[Message] = list(messages)
        self.turn = -1
        self._head = len(self.shown)
        self._began = time.monotonic()
        self._tokens = 0
        self._cost = 0.0
        self._tool_time = 0.0
        self._context = 0
        self._last_words = False

    # -- writing ---------------------------------------------------------------------------------------------------

    def say(self, message: Message, *, head: bool = False) -> int:
        """Add a message, shown and written; its index in the trace. ``head`` = kept through compaction."""
        self.trace.messages.append(dict(message))
        self.shown.append(message)
        if head:
            self._head = len(self.shown)
        return len(self.trace.messages) - 1

    def finish(self, end: str, answer: str | None = None) -> Trace:
        """Close the trace."""
        self.trace.end = end
        self.trace.answer = answer
        return self.trace

    def fail(self, error: BaseException) -> None:
        """Close the trace because of a failure of infrastructure, and hang it on the exception (`partial_trace`)."""
        self.trace.end = "error"
        self.trace.error = f"{type(error).__name__}: {error}"
        error.trace = self.trace  # type: ignore[attr-defined]

    # -- time ------------------------------------------------------------------------------------------------------

    @property
    def seconds_left(self) -> float | None:
        """Wall time left, None = no limit."""
        if self.limits.seconds is None:
            return None
        return self.limits.seconds - (time.monotonic() - self._began)

    def left(self) -> Limits:
        """What is left of the limits, for an agent that plays one turn of a longer episode.

        Turns are the episode's: they are checked here, and the agent may take as many within one of them.

        Raises
        ------
        Stop
            Nothing is left of one of them.
        """
        self._check()
        limits = self.limits
        return replace(
            limits,
            tool_calls=None if limits.tool_calls is None else max(0, limits.tool_calls - self.trace.tool_calls),
            seconds=self.seconds_left,
            tokens=None if limits.tokens is None else limits.tokens - self._tokens,
            cost=None if limits.cost is None else limits.cost - self._cost,
            tool_time=None if limits.tool_time is None else limits.tool_time - self._tool_time,
        )

    def add(self, done: Trace) -> None:
        """Count what was spent elsewhere."""
        self._tokens += done.prompt_tokens + done.completion_tokens
        self._cost += done.cost or 0.0
        self._tool_time += sum(step.seconds or 0.0 for step in done.steps if step.kind == "tool")

    def closing(self) -> bool:
        """Whether the next reply is the last one: the last turn, or one beyond what may be spent, granted once.

        For a caller that says so to the model before it asks. Time on the clock is never granted. A model that has made
        its last tool call is told so too; without being told it may still answer.
        """
        most = self.limits.tool_calls
        called = most is not None and self.trace.tool_calls >= most
        if (self._spent() is not None or called) and not self._last_words:
            self._last_words = True
            return True
        return self.limits.turns is not None and self.turn + 2 >= self.limits.turns

    def _spent(self) -> str | None:
        limits = self.limits
        for end, used, most in (
            ("token limit", self._tokens, limits.tokens),
            ("cost limit", self._cost, limits.cost),
            ("time limit", self._tool_time, limits.tool_time),
        ):
            if most is not None and used >= most:
                return end
        return None

    def _check(self, *, granted: bool = False) -> None:
        limits = self.limits
        if limits.turns is not None and self.turn + 1 >= limits.turns:
            raise Stop("step limit")
        spent = self._spent()
        if spent is not None and not granted:
            raise Stop(spent)
        left = self.seconds_left
        if left is not None and left <= 0:
            raise Stop("time limit")

    # -- asking ----------------------------------------------------------------------------------------------------

    async def ask(self, *, granted: bool = False, **options: Any) -> Choice:
        """The model's next reply to what it is shown; written down as a message and a step.

        Parameters
        ----------
        granted
            Tokens, cost and tool time may be spent already: the model's last words (`closing`).
        options
            Keyword arguments of ``generate`` for this call (tools, stop, response_format).

        Raises
        ------
        Stop
            A limit is reached before or during the call.
        ProviderError
            The model cannot be reached.
        """
        self._check(granted=granted)
        if self.limits.context is not None and self._context >= self.limits.context:
            await self._compact()
        try:
            choice, step = await self._generate(options)
        except ProviderError as error:
            if error.retryable or error.fatal or not _OVERFLOW.search(str(error)):
                raise
            await self._compact(overflow=True)
            try:
                choice, step = await self._generate(options)
            except ProviderError as again:
                if _OVERFLOW.search(str(again)):
                    raise Stop("context limit") from None
                raise
        self.turn += 1
        step.turn = self.turn
        step.message = self.say(assistant(choice))
        self.trace.steps.append(step)
        return choice

    async def use(
        self, tools: Mapping[str, Tool], name: str, arguments: str, identifier: str | None = None
    ) -> ToolResult:
        """Call a tool, write the step down, and return the result; the message that shows it is the caller's to add.

        Raises
        ------
        Stop
            The calls or the time are used up.
        """
        limits = self.limits
        if limits.tool_calls is not None and self.trace.tool_calls >= limits.tool_calls:
            raise Stop("tool limit")
        left = self.seconds_left
        if left is not None and left <= 0:
            raise Stop("time limit")
        rest = None if limits.tool_time is None else limits.tool_time - self._tool_time
        if rest is not None and rest <= 0:
            raise Stop("time limit")
        bounds = [b for b in (limits.tool_seconds, left, rest) if b is not None]
        began = time.monotonic()
        result = await call(tools, name, arguments, seconds=min(bounds, default=None))
        step = Step("tool", max(self.turn, 0), seconds=time.monotonic() - began, tool=name, call=identifier)
        self._tool_time += step.seconds or 0.0
        step.arguments, step.error = arguments, result.error
        self.trace.steps.append(step)
        if limits.tool_characters is not None:
            return replace(result, text=cut(result.text, limits.tool_characters))
        return result

    async def _generate(self, options: Mapping[str, Any]) -> tuple[Choice, Step]:
        if self.model is None:
            raise RuntimeError("this conversation has no model to ask")
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.seconds_left) as limit:
                reply = await self.model.generate(list(self.shown), **{**self.sampling, **options})
        except TimeoutError:
            if limit.expired():
                raise Stop("time limit") from None
            raise
        usage = reply.usage
        self._tokens += usage.prompt_tokens + usage.completion_tokens
        self._context = usage.prompt_tokens + usage.completion_tokens
        step = Step("model", max(self.turn, 0), seconds=time.monotonic() - began)
        step.prompt_tokens, step.completion_tokens = usage.prompt_tokens, usage.completion_tokens
        step.stop_reason, step.cost = reply.stop_reason, reply.cost
        if self.limits.cost is not None and reply.cost is None:
            raise UsageError(
                f"{self.model.name} has no known price, so a cost limit cannot be kept; give price_in and price_out."
            )
        self._cost += reply.cost or 0.0
        return reply.choices[0], step

    # -- compaction ------------------------------------------------------------------------------------------------

    async def _compact(self, *, overflow: bool = False) -> None:
        """Make the history shorter; with ``overflow`` what is there is too long to be summed up whole."""
        turns = [i for i in range(self._head, len(self.shown)) if self.shown[i].get("role") == "assistant"]
        if not turns:
            if overflow:
                raise Stop("context limit")
            return
        if self.compaction == "window" or overflow:
            # At least the last turn stays; a cut before an assistant's message parts no call from its results.
            kept = turns[min((len(turns) + 1) // 2, len(turns) - 1)]
            del self.shown[self._head : kept]
            if self.compaction == "window":
                self.trace.steps.append(
                    Step("compaction", max(self.turn, 0), info={"dropped_turns": turns.index(kept)})
                )
                self._context = 0
                return
        asked = self.shown
        self.shown = [*asked, {"role": "user", "content": _SUMMARY}]
        try:
            choice, step = await self._generate({})
        finally:
            self.shown = asked
        step.kind = "compaction"
        step.message = self._written(assistant(choice))
        self.trace.steps.append(step)
        del self.shown[self._head :]
        self.shown.append({"role": "user", "content": _SUMMED + choice.text})
        self._context = 0

    def _written(self, message: Message) -> int:
        self.trace.messages.append(dict(message))
        return len(self.trace.messages) - 1


def assistant(choice: Choice) -> dict[str, Any]:
    """A reply as a message."""
    message: dict[str, Any] = {"role": "assistant", "content": choice.text}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in choice.tool_calls
        ]
    return message


def partial_trace(error: BaseException) -> Trace | None:
    """What an agent had done when infrastructure failed under it; None = the error came from elsewhere."""
    trace = getattr(error, "trace", None)
    return trace if isinstance(trace, Trace) else None


def plain(info: Mapping[str, Any], longest: int = 4000) -> dict[str, Any]:
    """The JSON-able part of an info dictionary; an entry that would be longer than ``longest`` as text is left out."""
    out: dict[str, Any] = {}
    for key, value in info.items():
        value = value.tolist() if hasattr(value, "tolist") else value
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        if len(text) <= longest:
            out[str(key)] = json.loads(text)
    return out
