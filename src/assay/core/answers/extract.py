"""Parts of a reply: the last tag, the last box, a fenced block, what stands after a marker."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache

from assay.core.answers.reading import Reading, answer_start

Piece = tuple[str, tuple[int, int]]


def _trimmed(text: str, start: int, end: int) -> Piece:
    """The text of a range without white space around it, and where it stands."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return text[start:end], (start, end)


@lru_cache(maxsize=64)
def _tag_patterns(tag: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    name = re.escape(tag)
    return re.compile(rf"<{name}(?:\s[^<>]*)?>", re.IGNORECASE), re.compile(rf"</{name}\s*>", re.IGNORECASE)


def last_tag(text: str | None, tag: str = "answer") -> Reading:
    """Content of the last closed ``<tag>...</tag>`` with something in it, without white space around it.

    Upper and lower case are one; a tag that was opened and never closed is unread ("tag not closed").
    """
    if not text:
        return Reading(None, "empty")
    opening, closing = _tag_patterns(tag)
    begin = answer_start(text)
    starts = [match.end() for match in opening.finditer(text, begin)]
    how = "tag not closed" if starts else "no tag"
    for close in reversed(list(closing.finditer(text, begin))):
        opened = bisect_right(starts, close.start())
        if not opened:
            continue
        value, span = _trimmed(text, starts[opened - 1], close.start())
        if value and not closing.search(value):
            return Reading(value, "tag", span)
        how = "empty tag"
    return Reading(None, how)


_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?:(?P<brace>\{)|(?P<bare>-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])))")


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def brace_pairs(text: str, begin: int = 0) -> dict[int, int]:
    """Index of the closing brace for that of each opening one; escaped and lone braces are left out."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACE.finditer(text, begin):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            pairs[opened.pop()] = match.start()
    return pairs


def boxes(text: str, begin: int = 0) -> list[Piece]:
    """Contents of all closed ``\\boxed{...}``, outermost ones, in order, empty ones left out."""
    found = []
    pairs: dict[int, int] | None = None
    for match in _BOX.finditer(text, begin):
        if match.start() < begin:
            continue
        if match["bare"]:
            found.append((match["bare"], match.span("bare")))
            continue
        if pairs is None:
            pairs = brace_pairs(text, match.start())
        end = pairs.get(match.start("brace"), -1)
        if end < 0:
            continue
        value, span = _trimmed(text, match.end(), end)
        begin = end + 1
        if value:
            found.append((value, span))
    return found


def boxed(text: str | None) -> Reading:
    """Content of the last closed ``\\boxed{...}`` (braces balanced, ``\\fbox`` too)."""
    if not text:
        return Reading(None, "empty")
    begin = answer_start(text)
    found = boxes(text, begin)
    if found:
        return Reading(found[-1][0], "boxed", found[-1][1])
    return Reading(None, "box not closed" if _BOX.search(text, begin) else "no box")


_FENCE = re.compile(r"^[ \t>]{0,8}(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$", re.MULTILINE)
_ALIASES = {
    "py": "python", "python3": "python", "py3": "python", "js": "javascript", "node": "javascript", "ts": "typescript",
    "sh": "bash", "shell": "bash", "zsh": "bash", "c++": "cpp", "cxx": "cpp", "cc": "cpp", "yml": "yaml",
    "jsonc": "json", "json5": "json", "md": "markdown", "rs": "rust", "golang": "go", "tex": "latex",
}  # fmt: skip


def _language(name: str) -> str:
    name = name.strip().strip("{}.").split()[0].lower() if name.strip().strip("{}.") else ""
    return _ALIASES.get(name, name)


def blocks(text: str, begin: int = 0) -> Iterator[tuple[str, int, int, bool]]:
    """Fenced blocks as (language, start, end, closed)."""
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text, begin):
        if opened is None:
            opened = match
        elif (
            match["fence"][0] == opened["fence"][0]
            and len(match["fence"]) >= len(opened["fence"])
            and not match["info"].strip()
        ):
            yield _language(opened["info"]), min(opened.end() + 1, match.start()), match.start(), True
            opened = None
    if opened is not None:
        yield _language(opened["info"]), min(opened.end() + 1, len(text)), len(text), False


def fenced(text: str | None, language: str | None = None) -> Reading:
    """Content of the last fenced code block.

    With ``language`` the last block of that language (py and python are one), else the last one without a language. A
    block whose end was cut is read to the end of the reply (``how`` says "block not closed").
    """
    if not text:
        return Reading(None, "empty")
    found = [block for block in blocks(text, answer_start(text)) if text[block[1] : block[2]].strip()]
    if language is not None:
        wanted = _language(language)
        found = [block for block in found if block[0] == wanted] or [block for block in found if not block[0]]
    if not found:
        return Reading(None, "no block")
    _, start, end, closed = found[-1]
    if closed and end > start and text[end - 1] == "\n":
        end -= 1
    return Reading(text[start:end], "block" if closed else "block not closed", (start, end))


ANSWER_MARKERS = ("####", "final answer is", "final answer:", "answer is", "answer:", "答案是", "答案：", "答案:")


@lru_cache(maxsize=64)
def _marker_pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    body = "|".join(
        r"[\s*_]+".join(map(re.escape, marker.split())) for marker in sorted(markers, key=len, reverse=True)
    )
    return re.compile(rf"(?<![^\W_])(?:{body})" if markers[0][:1].isalpha() else f"(?:{body})", re.IGNORECASE)


def after_marker(text: str | None, marker: str | Sequence[str] = ANSWER_MARKERS) -> Reading:
    """The rest of the line after the last marker, or the next line when nothing is left on it.

    Emphasis, a colon and a full stop around it are taken off.
    """
    if not text:
        return Reading(None, "empty")
    begin = answer_start(text)
    markers = (marker,) if isinstance(marker, str) else tuple(marker)
    matches = list(_marker_pattern(markers).finditer(text, begin))
    for match in reversed(matches):
        start = match.end()
        while start < len(text) and text[start] in " \t\r\n:：*_`=>":
            start += 1
        stop = text.find("\n", start)
        _, (start, end) = _trimmed(text, start, len(text) if stop < 0 else stop)
        emphasis = len(text[start:end]) - len(text[start:end].rstrip("*_`"))
        if emphasis and text[end - 1] not in text[start : end - emphasis]:
            end -= emphasis
        if end > start and text[end - 1] in ".。" and not text[start:end].endswith(".."):
            end -= 1
        value, span = _trimmed(text, start, end)
        if value:
            return Reading(value, "marker", span)
    return Reading(None, "nothing after the marker" if matches else "no marker")
