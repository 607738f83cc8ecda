"""ChatModel: the protocol of everything that answers messages, be it a model or a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

Message = Mapping[str, Any]
"""An OpenAI chat-completions message: ``{"role": ..., "content": str | list of parts}``."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call that a reply asks for. ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probability of one generated token and of its alternatives (natural logarithm)."""

    token: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the n continuations of a reply.

    ``text`` is the answer without its reasoning; ``stop_reason`` is one of ``stop``, ``length``, ``tool_calls``,
    ``refusal``, ``content_filter``.
    """

    text: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = "stop"
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. Reasoning tokens are part of the completion tokens, cached tokens part of the prompt's."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a ChatModel returns: at least one choice, the first one's fields at hand as properties."""

    choices: tuple[Choice, ...]
    usage: Usage = Usage()
    model: str = ""
    seconds: float = 0.0
    cost: float | None = None

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def reasoning(self) -> str | None:
        return self.choices[0].reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.choices[0].tool_calls

    @property
    def stop_reason(self) -> str:
        return self.choices[0].stop_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        return self.choices[0].logprobs


@runtime_checkable
class ChatModel(Protocol):
    """Anything that answers messages.

    ``messages`` are OpenAI chat-completions dictionaries; an image is a part
    ``{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}``. ``response_format`` is OpenAI's
    ``{"type": "json_schema", "json_schema": {...}}``. ``logprobs`` = number of alternatives a generated token, None =
    no log-probabilities. ``seed`` makes a reply repeatable where the model can. Infrastructure that fails raises
    ProviderError; a model that refuses returns a Reply with ``stop_reason="refusal"``.

    A client that counts its calls also has ``bind(meter)``, which returns a copy of itself that reports to that meter;
    the engine binds the system to each trial, so that calls made from threads of a room's own are counted too.
    """

    name: str

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
    ) -> Reply: ...
