"""How a page of the shop is shown: as plain lines, in the published modes ``text`` and ``text_rich``, or as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

Mode = Literal["plain", "text", "text_rich", "html"]
MODES: tuple[Mode, ...] = ("plain", "text", "text_rich", "html")


class Piece(NamedTuple):
    """A text on a page, or what can be pressed there; ``pressed``: an option that is chosen, a product seen before."""

    text: str
    kind: Literal["text", "button", "option", "product"] = "text"
    pressed: bool = False


Line = Sequence[Piece]


def shown(lines: Sequence[Line], mode: Mode) -> str:
    """A page in one of the modes.

    ``plain``: buttons in brackets. ``text``: everything between `` [SEP] ``, buttons not marked. ``text_rich``: one
    piece a line, what can be pressed between ``[button]`` and ``[button_]`` (``[clicked button]`` where it was).
    ``html``: paragraphs, buttons, links and labels.
    """
    if mode == "plain":
        return "\n".join(" ".join(map(_plain, line)) for line in lines)
    pieces = [piece for line in lines for piece in line]
    if mode == "text":
        return " [SEP] ".join(piece.text for piece in pieces)
    if mode == "text_rich":
        return "\n".join(map(_rich, pieces))
    body = "\n".join(f"<p>{' '.join(map(_html, line))}</p>" for line in lines)
    return f"<html>\n<body>\n{body}\n</body>\n</html>"


def _plain(piece: Piece) -> str:
    return piece.text if piece.kind == "text" else f"[{piece.text}]"


def _rich(piece: Piece) -> str:
    if piece.kind == "text":
        return piece.text
    word = "clicked button" if piece.pressed else "button"
    return f"[{word}] {piece.text} [{word}_]"


def _html(piece: Piece) -> str:
    text = escape(piece.text)
    if piece.kind == "text":
        return text
    if piece.kind == "button":
        return f'<button class="btn">{text}</button>'
    if piece.kind == "product":
        return f'<a class="product-link" href="#{text}">{text}</a>'
    checked = " checked" if piece.pressed else ""
    return f'<label><input type="radio" value="{escape(piece.text, quote=True)}"{checked}>{text}</label>'
