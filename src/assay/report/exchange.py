"""One trial to look at: the messages that went to and fro, the output, the target, the error, the images it left.

Nothing here is trusted: text is shown as text with its control characters made visible, long text is folded and cut
with the number of characters said, images are embedded only when their bytes are an image of a known kind, and an
address is written out, never loaded.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import AssayError
from assay.core.store import load_output
from assay.report.formats import one_line, visible

MAX_TEXT = 20_000
FOLD_TEXT = 1_200
MAX_IMAGE_BYTES = 150_000
MAX_TRANSCRIPT_BYTES = 2_000_000
MAX_TURNS = 60
_TRANSCRIPTS = ("messages", "transcript", "trace", "conversation", "turns", "history")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")

PartKind = Literal["text", "reasoning", "call", "result", "image", "data", "note"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message. ``text`` is plain text, or the data URL of an image; ``cut`` counts characters left out."""

    kind: PartKind
    text: str
    title: str = ""
    cut: int = 0

    @property
    def folded(self) -> bool:
        return self.kind != "image" and (len(self.text) > FOLD_TEXT or self.text.count("\n") > 24)

    @property
    def head(self) -> str:
        """The beginning, on one line."""
        return one_line(self.text[:400], 160)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: who speaks, and the parts of what is said."""

    role: str
    parts: Sequence[Part]
    name: str = ""


@dataclass(slots=True)
class Exchange:
    """A trial, ready to be shown."""

    turns: list[Turn] = field(default_factory=list)
    output: list[Part] = field(default_factory=list)
    target: Part | None = None
    images: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ImageBudget:
    """Bytes of images that one page may still embed."""

    left: int = 700_000

    def take(self, size: int) -> bool:
        """Whether an image of this size fits; if so it is taken off."""
        if size > MAX_IMAGE_BYTES or size > self.left:
            return False
        self.left -= size
        return True


def text_part(text: str, kind: PartKind = "text", title: str = "") -> Part:
    """Text made safe to look at, cut at 20,000 characters."""
    shown = visible(text)
    return Part(kind, shown[:MAX_TEXT], title, max(0, len(shown) - MAX_TEXT))


def read_exchange(folder: Path, record: Mapping[str, Any], images: ImageBudget) -> Exchange:
    """Everything a record and its files say about one trial.

    Parameters
    ----------
    folder
        The run folder.
    record
        A row of the records frame.
    images
        What may still be embedded; shared by all exchanges of a page.
    """
    found = Exchange()
    try:
        output = load_output(folder, record.get("output"))
    except (AssayError, OSError, ValueError) as error:
        output = None
        found.notes.append(f"The output could not be read: {one_line(str(error), 200)}")
    turns, rest = split_transcript(output)
    found.turns = turns_of(turns or _recorded(folder, record, found.notes), images)
    found.output = output_parts(rest, images)
    if record.get("target") is not None:
        found.target = _json_part(str(record["target"]))
    for artifact in record.get("artifacts") or ():
        _add_artifact(found, folder, artifact, images)
    return found


def _recorded(folder: Path, record: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    """The messages and replies of all calls that the engine kept, one call after the other."""
    try:
        calls = load_output(folder, record.get("exchanges")) or []
    except (AssayError, OSError, ValueError) as error:
        notes.append(f"What was said could not be read: {one_line(str(error), 200)}")
        return []
    turns: list[dict[str, Any]] = []
    for number, call in enumerate(calls, 1):
        if len(calls) > 1:
            turns.append({"role": "note", "content": f"call {number} of {len(calls)}: {call['role']} {call['model']}"})
        turns += call["messages"]
        for reply in call["replies"]:
            asked = [{"function": {k: c.get(k) for k in ("name", "arguments")}} for c in reply.get("tool_calls") or ()]
            turns.append(
                {
                    "role": "assistant",
                    "content": reply.get("text"),
                    "reasoning": reply.get("reasoning"),
                    "tool_calls": asked,
                }
            )
    return turns


def split_transcript(output: Any) -> tuple[Sequence[Any], Any]:
    """Messages inside an output (it is a list of them, or has one under a usual key), and what else it holds."""
    if _is_messages(output):
        return output, None
    if isinstance(output, Mapping):
        for key in _TRANSCRIPTS:
            if _is_messages(output.get(key)):
                return output[key], {k: v for k, v in output.items() if k != key} or None
    return [], output


def turns_of(messages: Iterable[Any], images: ImageBudget) -> list[Turn]:
    """Chat-completions messages as turns; anything else in the list is shown as data."""
    turns: list[Turn] = []
    listed = list(messages)
    for index, message in enumerate(listed):
        if index == MAX_TURNS:
            turns.append(Turn("note", [Part("note", f"{len(listed) - MAX_TURNS} further messages are not shown.")]))
            break
        if not isinstance(message, Mapping):
            turns.append(Turn("data", [text_part(_pretty(message), "data")]))
            continue
        role = str(message.get("role", "data"))
        parts: list[Part] = []
        for key in ("reasoning", "reasoning_content"):
            if isinstance(message.get(key), str) and message[key]:
                parts.append(text_part(message[key], "reasoning", "reasoning"))
        content = message.get("content", message.get("text"))
        kind: PartKind = "result" if role in ("tool", "function") else "text"
        parts += _content_parts(content, kind, images)
        calls = message.get("tool_calls")
        parts += [_call_part(call) for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
        if isinstance(message.get("function_call"), Mapping):
            parts.append(_call_part({"function": message["function_call"]}))
        if isinstance(message.get("refusal"), str):
            parts.append(text_part(message["refusal"], "text", "refusal"))
        name = message.get("name") or message.get("tool_call_id") or ""
        turns.append(Turn(one_line(role, 20), parts or [Part("note", "(empty)")], one_line(str(name), 60)))
    return turns


def output_parts(output: Any, images: ImageBudget) -> list[Part]:
    """What a system put out, as parts."""
    if output is None:
        return []
    if isinstance(output, str):
        return [text_part(output)] if output else [Part("note", "(empty text)")]
    if isinstance(output, Mapping) and isinstance(output.get("text"), str):
        parts = []
        if isinstance(output.get("reasoning"), str) and output["reasoning"]:
            parts.append(text_part(output["reasoning"], "reasoning", "reasoning"))
        parts += output_parts(output["text"], images)
        rest = {k: v for k, v in output.items() if k not in ("text", "reasoning") and v not in (None, [], {})}
        return parts + ([text_part(_pretty(rest), "data")] if rest else [])
    return [text_part(_pretty(output), "data")]


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, Mapping) for m in value)
        and any(m.get("role") in _ROLES for m in value)
    )


def _content_parts(content: Any, kind: PartKind, images: ImageBudget) -> list[Part]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [text_part(content, kind)]
    if not isinstance(content, list):
        return [text_part(_pretty(content), "data")]
    parts: list[Part] = []
    for piece in content:
        if isinstance(piece, str):
            parts.append(text_part(piece, kind))
        elif isinstance(piece, Mapping) and isinstance(piece.get("text"), str):
            parts.append(text_part(piece["text"], kind))
        elif isinstance(piece, Mapping) and piece.get("type") in ("image_url", "image", "input_image"):
            inner = piece.get("image_url", piece.get("image"))
            address = inner.get("url") if isinstance(inner, Mapping) else inner
            parts.append(_image_part(str(address), images))
        else:
            parts.append(text_part(_pretty(piece), "data"))
    return parts


def _call_part(call: Mapping[str, Any]) -> Part:
    inner = call.get("function")
    function: Mapping[str, Any] = inner if isinstance(inner, Mapping) else call
    arguments = function.get("arguments", function.get("args"))
    text = _json_text(arguments) if isinstance(arguments, str) else _pretty(arguments)
    return text_part(text, "call", one_line(str(function.get("name", "function")), 80))


def _image_part(address: str, images: ImageBudget) -> Part:
    if not address.startswith("data:"):
        return Part("note", f"image at {one_line(address, 200)} (not loaded)")
    try:
        data = base64.b64decode(address.partition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        return Part("note", "an image whose data URL cannot be read")
    return image_part(data, images, "image")


def image_part(data: bytes, images: ImageBudget, title: str) -> Part:
    """An image as a data URL of its own kind, or a note where it is none, too large or beyond the page's share."""
    kind = image_kind(data)
    if kind is None:
        return Part("note", f"{title}: {len(data):,} bytes that are no image of a known kind")
    if not images.take(len(data)):
        return Part("note", f"{title}: {kind} image of {len(data):,} bytes, not embedded")
    return Part("image", f"data:image/{kind};base64,{base64.b64encode(data).decode()}", title)


def image_kind(data: bytes) -> str | None:
    """png, jpeg, gif or webp by the first bytes; None for anything else (SVG too: it can hold scripts)."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    return "webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _add_artifact(found: Exchange, folder: Path, artifact: Mapping[str, Any], images: ImageBudget) -> None:
    name = str(artifact["path"])
    path = (folder / name).resolve()
    short = one_line(Path(name).name, 80)
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        found.notes.append(f"{one_line(name, 120)} is not in the run folder.")
        return
    size = path.stat().st_size  # not what the record says: the folder may be somebody else's
    suffix, stem = path.suffix.lower(), path.stem.lower()
    if suffix in (".png", ".jpg", ".jpeg", ".gif", ".webp") and size <= MAX_IMAGE_BYTES:
        part = image_part(path.read_bytes(), images, short)
        if part.kind == "image":
            found.images.append(part)
            return
    elif suffix in (".json", ".jsonl") and stem in _TRANSCRIPTS and not found.turns and size <= MAX_TRANSCRIPT_BYTES:
        messages = _read_transcript(path)
        if messages:
            found.turns = turns_of(messages, images)
            return
    found.notes.append(f"{one_line(name, 160)} ({size:,} bytes)")


def _read_transcript(path: Path) -> Sequence[Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
            return lines if _is_messages(lines) else []
        return split_transcript(json.loads(text))[0]
    except (ValueError, OSError, RecursionError):
        return []


def _json_part(text: str) -> Part:
    """JSON text to read: a JSON string as its text, everything else indented."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text_part(text)
    return text_part(value) if isinstance(value, str) else text_part(_pretty(value), "data")


def _json_text(text: str) -> str:
    try:
        return _pretty(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _pretty(value: Any) -> str:
    flat = json.dumps(value, ensure_ascii=False, default=str)
    return flat if len(flat) <= 100 else json.dumps(value, ensure_ascii=False, default=str, indent=2)
