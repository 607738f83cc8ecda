"""Reading: what a reader makes of a reply; unread is a third outcome beside right and wrong."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any, NamedTuple


class Reading(NamedTuple):
    """What was read from a reply.

    Parameters
    ----------
    value
        The answer; None = unread.
    how
        Which rule read it, or why nothing was read.
    span
        Half-open range of characters of the reply that the value came from; None when unread.
    """

    value: Any
    how: str
    span: tuple[int, int] | None = None

    @property
    def read(self) -> bool:
        """Whether there is an answer at all."""
        return self.value is not None


class Split(NamedTuple):
    """A reply in two parts. ``closed`` is False when the reasoning was cut off before its end."""

    reasoning: str
    answer: str
    closed: bool


_NAMES = r"think|thinking|thought|thoughts|reasoning|reason|reflection|analysis|scratchpad|internal_monologue"
_OPEN = re.compile(
    rf"\s*(?:<\|?(?P<name>{_NAMES})\|?>|\[THINK\]|◁think▷|<\|channel\|>analysis<\|message\|>)", re.IGNORECASE
)
_CLOSE = re.compile(
    rf"<\|?/(?:{_NAMES})\|?>|<\|end_(?:{_NAMES})\|>|\[/THINK\]|◁/think▷"
    r"|<\|end\|>\s*<\|start\|>assistant\s*<\|channel\|>final<\|message\|>|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
_HARMONY_END = re.compile(r"(?:<\|return\|>|<\|end\|>|<\|im_end\|>|</s>)\s*$")
_SIGNS = ("<", "[THINK]", "[/THINK]", "◁")


def answer_start(text: str) -> int:
    """Index at which the answer begins; ``len(text)`` when the reasoning was never closed."""
    if not any(sign in text for sign in _SIGNS):
        return 0
    start = max((match.end() for match in _CLOSE.finditer(text)), default=0)
    # A block opened again after the last close (or at the very beginning) and never closed holds no answer.
    return len(text) if _OPEN.match(text, start) else start


def split_reasoning(text: str) -> Split:
    """Part a reply into its reasoning and its answer.

    Reads ``<think>``, ``<thinking>``, ``<reasoning>`` and their like, ``[THINK]``, and channel marks; a closing tag
    without an opening one counts, since chat templates often write the opening one. A block that was never closed
    (cut by the token limit) leaves an empty answer.
    """
    start = answer_start(text)
    if start == 0:
        return Split("", text, True)
    closed = start < len(text) or any(match.end() == start for match in _CLOSE.finditer(text))
    reasoning = text[:start]
    if opening := _OPEN.match(reasoning):
        reasoning = reasoning[opening.end() :]
    reasoning = _CLOSE.sub("", reasoning).strip()
    return Split(reasoning, _HARMONY_END.sub("", text[start:]).strip(), closed)


# Letters of other alphabets that look like Latin ones: a model that answers in Russian or Greek often types these.
_LOOKALIKES = dict(zip("АВСЕНІЈКМОРТХΑΒΕΗΙΚΜΝΟΡΤΧ", "ABCEHIJKMOPTXABEHIKMNOPTX"))
_LONE_LOOKALIKE = re.compile(rf"(?<!\w)[{''.join(_LOOKALIKES)}](?!\w)")


@lru_cache(maxsize=4096)
def _plain_character(character: str) -> str:
    code = ord(character)
    if 0x249C <= code <= 0x24B5:  # parenthesised small letters
        return chr(ord("a") + code - 0x249C)
    if 0x1F110 <= code <= 0x1F129:  # parenthesised capitals
        return chr(ord("A") + code - 0x1F110)
    for first in (0x1F130, 0x1F150, 0x1F170):  # squared and negative circled capitals
        if first <= code < first + 26:
            return chr(ord("A") + code - first)
    if unicodedata.category(character) == "Cf":  # zero-width joiners and direction marks
        return " "
    plain = unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 else character


def plain_letters(text: str, keep: str = "") -> str:
    """Full-width, circled, bold and look-alike letters as ASCII ones, one character for one: spans stay valid."""
    if text.isascii():
        return text
    text = "".join(c if c.isascii() or c in keep else _plain_character(c) for c in text)
    return _LONE_LOOKALIKE.sub(lambda match: match[0] if match[0] in keep else _LOOKALIKES[match[0]], text)
