"""The wire: OpenAI-compatible reply bodies to Reply objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from assay.systems.chat.engine import Unusable
from assay.systems.chat.model import Choice, TokenLogprob, ToolCall, Usage


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning: Any = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Top(msgspec.Struct):
    token: str
    logprob: float


class _Token(msgspec.Struct):
    token: str
    logprob: float | None = None
    top_logprobs: list[_Top] | None = None


class _Logprobs(msgspec.Struct):
    """Both dialects: ``content`` of chat completions; the four lists of raw completions."""

    content: list[_Token] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class WireReply(msgspec.Struct):
    """A reply body of ``/chat/completions`` or ``/completions``."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None


_decode = msgspec.json.Decoder(WireReply, strict=False).decode

_STOP_REASONS = {
    None: "stop",
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
_UNFINISHED = {"error", "insufficient_system_resource", "abort"}
"""Reasons that speak of the service, not of the model: such a reply must not be scored."""


def read_body(body: bytes) -> WireReply:
    """Decode and check a reply body.

    Raises
    ------
    Unusable
        It holds no choices, an error, or a choice that the service did not finish.
    """
    reply = _decode(body)
    if not reply.choices:
        raise Unusable("a reply without choices")
    for choice in reply.choices:
        if choice.message is None and choice.text is None:
            raise Unusable("a choice with neither a message nor a text")
        if choice.finish_reason in _UNFINISHED:
            raise Unusable(f"a reply that the service broke off ({choice.finish_reason})")
    return reply


def choices_of(reply: WireReply) -> tuple[Choice, ...]:
    """Choices with reasoning apart from the text."""
    return tuple([_choice(c) for c in reply.choices or ()])


def usage_of(reply: WireReply) -> Usage | None:
    """Tokens as assay counts them, None when the reply does not say.

    Some services (xAI, Gemini) leave reasoning out of ``completion_tokens``; ``total_tokens`` gives it away.
    """
    found = reply.usage
    if found is None or (found.prompt_tokens is None and found.completion_tokens is None):
        return None
    prompt, completion = max(0, found.prompt_tokens or 0), max(0, found.completion_tokens or 0)
    cached = found.prompt_cache_hit_tokens or 0
    if found.prompt_tokens_details is not None:
        cached = found.prompt_tokens_details.cached_tokens or cached
    reasoning = 0
    if found.completion_tokens_details is not None:
        reasoning = found.completion_tokens_details.reasoning_tokens or 0
    hidden = (found.total_tokens or 0) - prompt - completion
    if hidden > 0:
        completion += hidden
        reasoning = max(reasoning, hidden)
    return Usage(prompt, completion, max(0, min(cached, prompt)), max(0, min(reasoning, completion)))


def _choice(choice: _Choice) -> Choice:
    stop = _STOP_REASONS.get(choice.finish_reason, "stop")
    logprobs = None if choice.logprobs is None else _logprobs(choice.logprobs)
    message = choice.message
    if message is None:
        text, thought = split_think(choice.text or "")
        return Choice(text, thought, (), stop, logprobs)
    content = message.content
    if content.__class__ is str:
        text, thought = split_think(content)  # type: ignore[arg-type]
    elif content is None:
        text, thought = "", None
    else:
        text, thought = _parts(content)
    given = message.reasoning_content or message.reasoning
    if given:
        given = given if isinstance(given, str) else msgspec.json.encode(given).decode()
        thought = given if thought is None else f"{given}\n{thought}"
    if message.refusal:
        text, stop = text or message.refusal, "refusal"
    calls: tuple[ToolCall, ...] = ()
    if message.tool_calls:
        calls = tuple([_tool_call(c, i) for i, c in enumerate(message.tool_calls)])
        if stop == "stop":
            stop = "tool_calls"
    return Choice(text, thought, calls, stop, logprobs)


def _tool_call(call: _ToolCall, index: int) -> ToolCall:
    function = call.function or _Function()
    arguments = function.arguments
    if not isinstance(arguments, str):  # Ollama sends the object itself
        arguments = "{}" if arguments is None else msgspec.json.encode(arguments).decode()
    return ToolCall(call.id or f"call_{index}", function.name or "", arguments)


def _parts(parts: Sequence[Any]) -> tuple[str, str | None]:
    # Mistral's reasoning models answer in parts: thinking (itself parts) and text.
    texts, thoughts = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")
            thoughts.append(inner if isinstance(inner, str) else _parts(inner if isinstance(inner, list) else ())[0])
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    text, thought = split_think("".join(texts))
    thoughts += [thought] if thought else []
    return text, "\n".join(thoughts) or None


def _logprobs(found: _Logprobs) -> tuple[TokenLogprob, ...] | None:
    if found.content is not None:
        return tuple(
            [
                TokenLogprob(t.token, t.logprob or 0.0, {a.token: a.logprob for a in t.top_logprobs or ()})
                for t in found.content
            ]
        )
    if found.tokens is None:
        return None
    values = found.token_logprobs or [None] * len(found.tokens)
    tops = found.top_logprobs or [None] * len(found.tokens)
    # The first token of an echoed prompt has no log-probability.
    return tuple([TokenLogprob(t, v or 0.0, a or {}) for t, v, a in zip(found.tokens, values, tops)])


_BLOCK = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def split_think(text: str) -> tuple[str, str | None]:
    """(answer, reasoning) of a text with ``<think>`` blocks; reasoning is None where there is none.

    An unclosed block is reasoning to its end. A closing tag without an opening one (chat templates that open the
    block in the prompt) makes everything before it reasoning.
    """
    if "think>" not in text:
        return text, None
    thoughts = []
    close = text.find("</think>")
    start = text.find("<think>")
    if close >= 0 and (start < 0 or start > close):
        thoughts.append(text[:close].strip())
        text = text[close + len("</think>") :]
    elif start < 0:
        return text, None
    thoughts += [m.group(1).strip() for m in _BLOCK.finditer(text)]
    answer = _BLOCK.sub("", text).strip()
    return answer, "\n".join(t for t in thoughts if t)
