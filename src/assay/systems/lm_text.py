"""Text of local models: messages to prompts through chat templates, tokens to choices. Needs no torch."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.core.answers.reading import split_reasoning
from assay.core.errors import UsageError
from assay.systems.chat.model import Choice, Message, TokenLogprob, ToolCall

_TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
"""How Hermes, Qwen and their kin write function calls; other dialects stay text."""


def images_in(messages: Sequence[Message]) -> bool:
    """Whether a message holds an image part."""
    return any(
        isinstance(message.get("content"), list) and any(p.get("type") == "image_url" for p in message["content"])
        for message in messages
    )


def _content(name: str, place: int, message: Message, images: bool) -> str | list[dict[str, Any]]:
    """Content as chat templates want it: text, or parts if there are images."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for part in content:
        kind = part.get("type")
        if kind == "text":
            parts.append({"type": "text", "text": part["text"]})
        elif kind == "image_url" and images:
            parts.append({"type": "image", "url": part["image_url"]["url"]})
        elif kind == "image_url":
            raise UsageError(
                f"Message {place} holds an image, and {name} reads text only; name a model with a processor for "
                "images, or run the text condition."
            )
        else:
            raise UsageError(f"Message {place} holds a part of type {kind!r}, which {name} cannot read.")
    if any(part["type"] == "image" for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def plain_messages(name: str, messages: Sequence[Message], images: bool) -> list[dict[str, Any]]:
    """Messages with contents that chat templates read, tool arguments as objects.

    Raises
    ------
    UsageError
        Not a message, or content that the model cannot be given.
    """
    if not messages:
        raise UsageError(f"{name} was given no message.")
    plain = []
    for place, message in enumerate(messages, 1):
        if not isinstance(message.get("role"), str):
            raise UsageError(f"Message {place} has no role; give system, user, assistant or tool.")
        out = {**message, "content": _content(name, place, message, images)}
        if message.get("tool_calls"):
            out["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
        plain.append(out)
    return plain


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    if isinstance(function.get("arguments"), str):
        with contextlib.suppress(ValueError):  # a model's broken JSON goes back to it as it wrote it
            function["arguments"] = json.loads(function["arguments"])
    return {**call, "function": function}


def render(
    name: str,
    templated: Any,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    completion: bool,
    thinking: bool | None,
    images: bool,
) -> str:
    """The prompt: through the chat template of a tokenizer or processor, or bare text, messages parted by a blank line.

    Raises
    ------
    UsageError
        Tools without a template that knows them, or messages that the template refuses.
    """
    plain = plain_messages(name, messages, images)
    if completion:
        if tools:
            raise UsageError(f"{name} is given bare text, which has no place for tools; use a model with a template.")
        if images_in(messages):
            raise UsageError(f"{name} is given bare text, which has no place for images; use a chat template.")
        return "\n\n".join(message["content"] for message in plain)
    template = templated.get_chat_template() if hasattr(templated, "get_chat_template") else templated.chat_template
    if tools and "tools" not in template:
        raise UsageError(f"The chat template of {name} has no place for tools; use a model trained to call them.")
    extra: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
    if tools:
        extra["tools"] = list(tools)
    from jinja2 import TemplateError

    try:
        return templated.apply_chat_template(plain, tokenize=False, add_generation_prompt=True, **extra)
    except (TemplateError, TypeError, KeyError) as error:
        raise UsageError(f"The chat template of {name} refuses these messages: {error}") from error


def token_text(tokenizer: Any, token: int) -> str:
    """Text of one token; part of a character has none, and stands as the vocabulary spells it, so that none collide."""
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    return tokenizer.convert_ids_to_tokens(token) if "\ufffd" in text else text


def choice(tokenizer: Any, row: Any, prompt: str, completion: bool) -> Choice:
    """What a finished row of the batch says."""
    kept = row.ids
    text = tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if completion and kept and row.job.tokens:
        text = _after(tokenizer, row.job.tokens[-1], kept)
    if row.stopped_at is not None:
        places = [text.find(s) for s in row.job.stop]
        cut = min((p for p in places if p >= 0), default=len(text))
        text = text[:cut]
        # Tokens that end before the stop string begins: their log-probabilities belong to the text.
        while kept and len(tokenizer.decode(kept, skip_special_tokens=True)) > cut:
            kept = kept[:-1]
    logprobs = None
    if row.job.logprobs is not None:
        logprobs = tuple(
            TokenLogprob(token_text(tokenizer, i), value, {token_text(tokenizer, t): p for t, p in top})
            for i, (value, top) in zip(kept, row.logprobs)
        )
    reasoning, calls, stop_reason = None, (), row.stop_reason
    if not completion:
        opened = "<think>" if prompt.rstrip().endswith("<think>") else ""
        if opened or "think" in text[:64] or "</" in text:
            split = split_reasoning(opened + text)
            reasoning, text = (split.reasoning or None), split.answer
        text, calls = _tool_calls(text)
        if calls and stop_reason == "stop":
            stop_reason = "tool_calls"
    return Choice(text, reasoning, calls, stop_reason, logprobs)


def _after(tokenizer: Any, last: int, ids: Sequence[int]) -> str:
    """Text of ``ids`` behind the prompt's last token: sentence-piece decoders eat a space at the beginning."""
    alone = tokenizer.decode([last], clean_up_tokenization_spaces=False)
    both = tokenizer.decode([last, *ids], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return both[len(alone) :] if both.startswith(alone) else tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def _tool_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    calls = []
    for number, match in enumerate(_TOOL_CALL.finditer(text)):
        try:
            call = json.loads(match[1])
        except ValueError:
            continue
        if isinstance(call, dict) and isinstance(call.get("name"), str):
            arguments = call.get("arguments", call.get("parameters", {}))
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            calls.append(ToolCall(f"call_{number}", call["name"], written))
    if not calls:
        return text, ()
    return _TOOL_CALL.sub("", text).strip(), tuple(calls)
