"""Requests: the body that is sent, and an upper bound of what it can cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from assay.core.errors import DataError, UsageError
from assay.systems.chat.model import Message

IMAGE_TOKENS = 50_000
"""Most tokens that one image counts at any service we know (gpt-4o-mini: 48,169)."""
TOKENS_A_MESSAGE = 16
"""Room for the marks that a chat template puts around a message."""
SEED_MASK = 0x7FFF_FFFF
"""Seeds are sent with 31 bits: some services read them as a signed 32-bit number and refuse longer ones."""


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise NotImplementedError(f"{type(value).__name__} is not JSON")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


class Request(NamedTuple):
    """A body, and what its worst cost depends on.

    ``repeatable``: an equal request gives an equal reply as far as the model can (a seed, or temperature 0).
    """

    body: bytes
    prompt_tokens: int
    max_tokens: int | None
    repeatable: bool


def build(
    fixed: Mapping[str, Any],
    fields: Mapping[str, Any],
    messages: Sequence[Message],
    *,
    completion: bool,
    image_tokens: int,
) -> Request:
    """Body of a request from its ``fixed`` fields (model, extras), the ``fields`` of this call, and the messages.

    ``fields`` are as sent; None = left out.

    Raises
    ------
    DataError
        A message holds what JSON cannot.
    UsageError
        An image, tools or a response format for a raw completion.
    """
    body = dict(fixed)
    if completion:
        body["prompt"] = plain_prompt(messages)
    else:
        body["messages"] = messages
    for name, value in fields.items():
        if value is not None:
            body[name] = value
    try:
        data = _encode(body)
    except (NotImplementedError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise DataError(f"A message cannot be written as JSON ({error}).") from None
    tokens = len(data) + TOKENS_A_MESSAGE * len(messages)
    for message in messages:
        content = message.get("content")
        if content.__class__ is str or not content:
            continue
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == "image_url":
                tokens += image_tokens - len(part["image_url"]["url"])
    return Request(
        data,
        max(tokens, 0),
        fields.get("max_tokens") or fields.get("max_completion_tokens"),
        fields.get("temperature") == 0 or "seed" in fields or "random_seed" in fields,
    )


def plain_prompt(messages: Sequence[Message]) -> str:
    """Text of messages without a chat template: contents in order, a line break between two.

    Raises
    ------
    UsageError
        A message holds an image.
    """
    texts = []
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
            if any(part.get("type") != "text" for part in content):
                raise UsageError("A raw completion (completion=true) takes text only; a message holds an image.")
            content = "".join(part["text"] for part in content)
        texts.append(content)
    return "\n".join(texts)
