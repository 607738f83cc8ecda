"""Traces of agents to look at: one self-contained page without scripts, safe to open whatever the traces hold."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.datasets.readers import read_json
from assay.core.errors import DataError, UsageError
from assay.report.exchange import MAX_IMAGE_BYTES, ImageBudget, Part, image_kind, text_part, turns_of
from assay.report.formats import duration, format_value, one_line
from assay.report.html import _asset, _hash

IMAGE_BYTES = 4_000_000
"""Bytes of pictures that one page embeds."""
_KINDS = ("model", "tool", "environment", "compaction")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass(frozen=True, slots=True)
class ShownTrace:
    """A trace for the page.

    Parameters
    ----------
    name
        What it is called there.
    body
        What `assay.systems.trace.Trace.save` writes: ``messages``, ``steps``, ``end``, ``answer``, ``error``, ``info``.
    labels
        Marks on steps, by the step's index: annotations of a judge or a person.
    facts
        Further facts beside those of ``info``.
    """

    name: str
    body: Mapping[str, Any]
    labels: Mapping[int, Sequence[str]] = field(default_factory=dict)
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class _Mark:
    """A step on the page."""

    index: int
    kind: str
    text: str
    anchor: str
    error: bool
    share: float


@dataclass(frozen=True, slots=True)
class _Message:
    anchor: str
    role: str
    name: str
    parts: Sequence[Part]
    notes: Sequence[str]
    errors: Sequence[str]
    labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class _View:
    anchor: str
    name: str
    end: str
    answer: Part | None
    error: str
    cells: Sequence[str]
    marks: Sequence[_Mark]
    messages: Sequence[_Message]
    facts: Sequence[tuple[str, str]]


COLUMNS = ("turns", "tool calls", "errors", "tokens", "reward", "time")


def read_trace(path: Path | str, name: str | None = None) -> ShownTrace:
    """A trace that `Trace.save` wrote, with the pictures that lie beside it.

    Raises
    ------
    DataError
        The file cannot be read, or is no trace.
    """
    path = Path(path)
    body = read_json(path)
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise DataError(f"{path} is no trace: it has no list of messages.")
    body["messages"] = [_with_pictures(message, path.parent) for message in body["messages"]]
    return ShownTrace(name or path.parent.name or path.stem, body)


def write_traces(traces: Sequence[ShownTrace], path: Path | str, title: str | None = None) -> Path:
    """Write the page; see `render_traces`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_traces(traces, title), encoding="utf-8")
    return path


def render_traces(traces: Sequence[ShownTrace], title: str | None = None) -> str:
    """The page as text: a table of the traces, and each with its steps, messages, rewards, errors and labels.

    Raises
    ------
    UsageError
        There is no trace.
    DataError
        A trace's messages or steps are not lists of mappings.
    """
    import jinja2
    from markupsafe import Markup

    if not traces:
        raise UsageError("A page of traces needs at least one trace.")
    images = ImageBudget(IMAGE_BYTES)
    style = _asset("page.css") + _asset("trace.css")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    return environment.get_template("trace.html.j2").render(
        title=one_line(title or ("Trace" if len(traces) == 1 else f"{len(traces)} traces"), 200),
        columns=COLUMNS,
        views=[_view(trace, f"t{number}", images) for number, trace in enumerate(traces, 1)],
        style=Markup(style),
        policy=f"default-src 'none'; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'",
        roles=_ROLES,
    )


def _view(trace: ShownTrace, anchor: str, images: ImageBudget) -> _View:
    body = trace.body
    messages = _mappings(body.get("messages"), trace.name, "messages")
    steps = _mappings(body.get("steps") or [], trace.name, "steps")
    seconds = [s for step in steps if isinstance(s := step.get("seconds"), (int, float))]
    longest = max(seconds, default=0.0) or 1.0
    marks = [_mark(index, step, trace.labels.get(index, ()), anchor, longest) for index, step in enumerate(steps)]
    shown = []
    for index, message in enumerate(messages):
        here = [(n, step) for n, step in enumerate(steps) if step.get("message") == index]
        (turn,) = turns_of([message], images)
        shown.append(
            _Message(
                f"{anchor}m{index}",
                turn.role,
                turn.name,
                turn.parts,
                [note for _, step in here if (note := _note(step))],
                [one_line(str(step["error"]), 400) for _, step in here if step.get("error")],
                [one_line(str(label), 80) for n, _ in here for label in trace.labels.get(n, ())],
            )
        )
    answer = body.get("answer")
    info = body.get("info")
    facts = [
        (one_line(str(k), 40), one_line(str(v), 300)) for k, v in (info if isinstance(info, Mapping) else {}).items()
    ]
    return _View(
        anchor,
        one_line(trace.name, 120),
        one_line(str(body.get("end", "unknown")), 40),
        text_part(answer) if isinstance(answer, str) else None,
        one_line(str(body["error"]), 400) if body.get("error") else "",
        _cells(steps, seconds),
        marks,
        shown,
        [*facts, *((one_line(k, 40), one_line(v, 300)) for k, v in trace.facts)],
    )


def _cells(steps: Sequence[Mapping[str, Any]], seconds: Sequence[float]) -> list[str]:
    tools = [step for step in steps if step.get("kind") == "tool"]
    rewards = [step.get("reward") or 0.0 for step in steps if step.get("kind") == "environment"]
    tokens = sum((step.get("prompt_tokens") or 0) + (step.get("completion_tokens") or 0) for step in steps)
    return [
        str(sum(step.get("kind") == "model" for step in steps)),
        str(len(tools)),
        str(sum(bool(step.get("error")) for step in steps)),
        f"{tokens:,}" if tokens else "–",
        format_value(float(sum(rewards))) if rewards else "–",
        duration(sum(seconds)) if seconds else "–",
    ]


def _mark(index: int, step: Mapping[str, Any], labels: Sequence[str], anchor: str, longest: float) -> _Mark:
    kind = str(step.get("kind"))
    said = [f"step {index}: {kind}", _note(step), str(step.get("error") or ""), *map(str, labels)]
    seconds = step.get("seconds")
    return _Mark(
        index,
        kind if kind in _KINDS else "model",
        one_line(" · ".join(text for text in said if text), 300),
        f"#{anchor}m{step['message']}" if isinstance(step.get("message"), int) else f"#{anchor}",
        bool(step.get("error")),
        float(seconds) / longest if isinstance(seconds, (int, float)) else 0.0,
    )


def _note(step: Mapping[str, Any]) -> str:
    """Facts of a step on one line."""
    said = []
    if step.get("tool"):
        said.append(str(step["tool"]))
    if step.get("kind") == "compaction":
        said.append("history summed up")
    if isinstance(step.get("reward"), (int, float)):
        said.append(f"reward {format_value(float(step['reward']))}")
    said += [flag for flag in ("terminated", "truncated") if step.get(flag)]
    if step.get("prompt_tokens") or step.get("completion_tokens"):
        said.append(f"{step.get('prompt_tokens') or 0:,} + {step.get('completion_tokens') or 0:,} tokens")
    if step.get("stop_reason") not in (None, "stop", "tool_calls"):
        said.append(str(step["stop_reason"]))
    if isinstance(step.get("seconds"), (int, float)):
        said.append(duration(float(step["seconds"])))
    return one_line(" · ".join(said), 200)


def _mappings(value: Any, name: str, what: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise DataError(f"The {what} of trace {name!r} are no list of mappings.")
    return value


def _with_pictures(message: Any, folder: Path) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [_with_picture(part, folder) for part in message["content"]]}


def _with_picture(part: Any, folder: Path) -> Any:
    inner = part.get("image_url") if isinstance(part, dict) else None
    url = inner.get("url") if isinstance(inner, dict) else None
    # Only a bare name beside the trace, and only what is a picture by its bytes.
    if not isinstance(url, str) or not url or ":" in url or Path(url).name != url:
        return part
    try:
        data = (folder / url).read_bytes() if (folder / url).stat().st_size <= MAX_IMAGE_BYTES else b""
    except OSError:
        return part
    kind = image_kind(data)
    if kind is None:
        return part
    return {**part, "image_url": {"url": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}}
