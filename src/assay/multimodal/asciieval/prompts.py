"""What a system is asked, in three modes, and reading such a question back.

The layout is the published one (a block with the drawing, a block with the question, options ``A: x`` to ``D: w``, the
letter asked for directly); the sentences are assay's own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.core.errors import UsageError, unknown_name
from assay.multimodal.asciieval.scoring import LETTERS

Mode = Literal["text", "image", "both"]
MODES: tuple[Mode, ...] = ("text", "image", "both")
PUBLISHED_MODES = {"text-only": "text", "image-only": "image", "text-image": "both", "both": "both"}

_OPENING = {
    "text": "Below is a drawing made of characters. Say what it shows by choosing one of four options.",
    "image": "The picture shows a drawing made of characters. Say what it shows by choosing one of four options.",
    "both": (
        "Below is a drawing made of characters, and the picture shows the same drawing. "
        "Say what it shows by choosing one of four options."
    ),
}
_QUESTION = "What does the ASCII art show?"
_CLOSING = "Reply with the letter of the right option and nothing else."
_ART, _ASK = "[ASCII ART]\n", "\n\n[Question]\n"


def mode_named(name: str) -> Mode:
    """A mode by its own or its published name."""
    name = PUBLISHED_MODES.get(name, name)
    for mode in MODES:
        if name == mode:
            return mode
    raise unknown_name("mode", name, MODES)


def check_size(scale: float, longest: int | None) -> None:
    """Refuse a picture size that is out of range: here, so that options are checked before anything is drawn."""
    if not 0 < scale <= 16:
        raise UsageError(f"Image scale {scale} is not in (0, 16].")
    if longest is not None and longest < 1:
        raise UsageError(f"A longest side of {longest} pixels is not positive.")


def text_part(art: str | None, choices: Sequence[str], mode: Mode) -> str:
    """The question as text; the drawing stands in it unless ``mode`` is ``image``."""
    options = "\n".join(f"{letter}: {choice}" for letter, choice in zip(LETTERS, choices))
    shown = "" if mode == "image" else f"\n\n{_ART}{art}"
    return f"{_OPENING[mode]}{shown}{_ASK}{_QUESTION}\n{options}\n\n{_CLOSING}"


def image_part(png: bytes) -> dict[str, Any]:
    """A PNG file as part of a message."""
    url = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
    return {"type": "image_url", "image_url": {"url": url}}


def build(
    art: str | None,
    choices: Sequence[str],
    mode: Mode,
    png: bytes | None = None,
    *,
    image: Literal["first", "last"] = "last",
    system: str | None = None,
) -> list[dict[str, Any]]:
    """Messages that ask about one item.

    Parameters
    ----------
    art
        The drawing, taken as it is; None in image mode.
    choices
        Four names.
    mode
        ``text``, ``image`` or ``both``.
    png
        Picture of the drawing, for ``image`` and ``both``.
    image
        Whether the picture stands before or after the text. The released scripts put it first for models they run
        themselves and last for providers.
    system
        A system message; left out where a picture is shown, as in the released scripts.
    """
    mode = mode_named(mode)
    if mode != "text" and png is None:
        raise UsageError(f"Mode {mode!r} needs a picture of the drawing; render it first.")
    if mode != "image" and art is None:
        raise UsageError(f"Mode {mode!r} needs the drawing as text.")
    text = text_part(art, choices, mode)
    if png is None or mode == "text":
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        return [{"role": "system", "content": system}, *messages] if system else messages
    parts = [{"type": "text", "text": text}, image_part(png)]
    return [{"role": "user", "content": parts if image == "last" else parts[::-1]}]


@dataclass(frozen=True, slots=True)
class Question:
    """A question read back from messages: what a recogniser or a person is shown."""

    art: str | None
    png: bytes | None
    choices: tuple[str, ...]

    @property
    def mode(self) -> Mode:
        """``text``, ``image`` or ``both``."""
        if self.png is None:
            return "text"
        return "image" if self.art is None else "both"


_OPTIONS = re.compile(
    r"\n\n\[Question\]\n[^\n]*\n" + "\n".join(f"{letter}: ([^\n]*)" for letter in LETTERS) + r"\n\n[^\n]*\Z"
)


def parse(messages: Sequence[Mapping[str, Any]]) -> Question:
    """Read a question that `build` made back from its messages.

    Raises
    ------
    UsageError
        If the last message is not such a question: methods of this benchmark answer nothing else.
    """
    content = messages[-1].get("content") if messages else None
    parts: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    text = "".join(part["text"] for part in parts if part.get("type") == "text")
    png = None
    for part in parts:
        if part.get("type") == "image_url":
            png = base64.b64decode(part["image_url"]["url"].partition("base64,")[2])
    options = _OPTIONS.search(text)
    if options is None:
        raise UsageError(
            "The methods of asciieval answer this benchmark's own questions only; ask a chat model instead."
        )
    head = text[: options.start()]
    _, mark, art = head.partition(_ART)
    return Question(art if mark else None, png, options.groups())
