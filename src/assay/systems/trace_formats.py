"""Traces of others: OpenAI messages, tag strings, logs of Inspect, messages of LangGraph, to `Trace`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.datasets.readers import guarded, parse_json, read_text
from assay.core.errors import DataError, unknown_name
from assay.systems.dialects import find_tool_call, segments
from assay.systems.trace import Step, Trace

REASONING_TAGS = ("think", "thinking", "reasoning")
CALL_TAGS: Mapping[str, tuple[str, str | None]] = {
    "search": ("search", "query"),
    "python": ("python", "code"),
    "code": ("python", "code"),
    "bash": ("bash", "command"),
    "visit": ("visit", "url"),
    "tool_call": ("", None),
}
"""Tag of a call: the tool it calls and the argument that its content is; None = the content is the whole call."""
RESULT_TAGS = (
    "information", "result", "output", "python_result", "search_result", "visit_result", "tool_response", "observation",
)  # fmt: skip
ANSWER_TAG = "answer"


def from_openai(messages: Sequence[Mapping[str, Any]], *, where: str = "the messages") -> Trace:
    """A trace from chat-completions messages; steps have no times.

    Roles: system, developer, user, assistant (``tool_calls``, the older ``function_call``, ``reasoning_content`` or
    ``reasoning``, ``refusal``), tool, function.

    Raises
    ------
    DataError
        A message is none, its role is unknown, or a tool's message answers no call.
    """
    out: list[dict[str, Any]] = []
    steps: list[Step] = []
    open_calls: dict[str, tuple[str, str]] = {}
    turn = -1
    for index, message in enumerate(messages):
        place = f"message {index} of {where}"
        role = _role(message, place)
        if role == "assistant":
            turn += 1
            clean = _assistant(message, place)
            out.append(clean)
            steps.append(Step("model", turn, index, stop_reason="refusal" if message.get("refusal") else None))
            for call in clean.get("tool_calls", ()):
                open_calls[call["id"]] = (call["function"]["name"], call["function"]["arguments"])
        elif role in ("tool", "function"):
            identifier = str(message.get("tool_call_id") or message.get("name") or "")
            if identifier not in open_calls:
                raise DataError(f"{place} answers the call {identifier!r}, which no earlier message made.")
            name, arguments = open_calls.pop(identifier)
            out.append({**message, "role": "tool", "tool_call_id": identifier})
            steps.append(Step("tool", turn, index, tool=name, call=identifier, arguments=arguments))
        else:
            out.append(dict(message))
    return _ended(out, steps)


def from_tags(
    text: str,
    *,
    question: str | None = None,
    calls: Mapping[str, tuple[str, str | None]] = CALL_TAGS,
    results: Collection[str] = RESULT_TAGS,
) -> Trace:
    """A trace from one text with tags, as search agents trained by reinforcement learning write them.

    Complete pairs from left to right (`assay.systems.dialects.segments`): ``<think>`` is reasoning, a call's tag a tool
    call, a result's tag its result, ``<answer>`` the answer (the last one counts). Free text is reasoning too. A result
    without a call, or a call without a result, is kept and named in the step's ``error``.

    Parameters
    ----------
    question
        The user's message; None = there is none.
    calls, results
        Which tags are calls and results.
    """
    out: list[dict[str, Any]] = [] if question is None else [{"role": "user", "content": question}]
    steps: list[Step] = []
    thoughts: list[str] = []
    waiting: Step | None = None
    answer: str | None = None
    turn = -1

    def assistant(content: str, made: list[dict[str, Any]]) -> None:
        nonlocal turn
        turn += 1
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if thoughts:
            message["reasoning_content"] = "\n".join(thoughts)
            thoughts.clear()
        if made:
            message["tool_calls"] = made
        steps.append(Step("model", turn, len(out)))
        out.append(message)

    def result(content: str) -> None:
        nonlocal waiting
        if waiting is None:
            steps.append(Step("tool", max(turn, 0), len(out), error="a result without a call"))
            out.append({"role": "user", "content": content})
            return
        waiting.message = len(out)
        out.append({"role": "tool", "tool_call_id": waiting.call, "content": content})
        waiting = None

    for piece in segments(text, (*REASONING_TAGS, *calls, *results, ANSWER_TAG)):
        if piece.tag is None or piece.tag in REASONING_TAGS:
            thoughts.append(piece.content)
        elif piece.tag in calls:
            if waiting is not None:
                waiting.error = "no result"
            name, arguments, problem = _tag_call(piece.tag, piece.content, calls)
            identifier = f"call_{sum(s.kind == 'tool' for s in steps)}"
            assistant("", [_call(identifier, name, arguments)])
            waiting = Step("tool", turn, tool=name, call=identifier, arguments=arguments, error=problem)
            steps.append(waiting)
        elif piece.tag in results:
            result(piece.content)
        else:
            answer = piece.content
            assistant(answer, [])
    if waiting is not None:
        waiting.error = waiting.error or "no result"
    if thoughts:
        assistant("", [])
    return Trace(out, steps, "unknown" if answer is None else "answer", answer)


def from_inspect(sample: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, where: str = "the log") -> Trace:
    """A trace from a sample of an Inspect log (``samples[i]`` of the JSON log), or from its messages.

    Reads text, reasoning, image and data parts, tool calls with parsed arguments, tool errors, the output's stop
    reason and tokens, and the sample's limit or error.

    Raises
    ------
    DataError
        There are no messages, or one of them is none.
    """
    whole = sample if isinstance(sample, Mapping) else {"messages": sample}
    messages = whole.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise DataError(f"{where} has no list of messages; a sample of an Inspect log is needed.")
    plain, errors = [], {}
    for index, message in enumerate(messages):
        role = _role(message, f"message {index} of {where}")
        content, reasoning = _inspect_content(message.get("content"))
        clean: dict[str, Any] = {"role": role, "content": content}
        if reasoning:
            clean["reasoning_content"] = reasoning
        if message.get("tool_calls"):
            clean["tool_calls"] = [
                _call(str(c.get("id", "")), str(c.get("function", "")), json.dumps(c.get("arguments", {})))
                for c in message["tool_calls"]
            ]
        if role == "tool":
            clean["tool_call_id"] = message.get("tool_call_id")
            if error := message.get("error"):
                errors[index] = f"{error.get('type', 'error')}: {error.get('message', '')}"
        plain.append(clean)
    trace = from_openai(plain, where=where)
    for step in trace.steps:
        if step.kind == "tool" and step.message in errors:
            step.error = errors[step.message]
    _inspect_end(trace, whole)
    return trace


def from_langgraph(state: Mapping[str, Any] | Sequence[Any], *, where: str = "the messages") -> Trace:
    """A trace from LangGraph's or LangChain's messages: objects, their dictionaries, or the serialised form.

    Forms: message objects (``model_dump``), ``{"type": "human" | "ai" | ..., "content": ..., "tool_calls": [...]}``,
    ``{"type": ..., "data": {...}}`` (``messages_to_dict``), ``{"lc": 1, "id": [..., "AIMessage"], "kwargs": {...}}``
    (``dumpd``), OpenAI dictionaries, and a state with ``messages``.

    Raises
    ------
    DataError
        A message is of none of these forms.
    """
    found = state.get("messages") if isinstance(state, Mapping) else state
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise DataError(f"{where} is no list of messages.")
    roles = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "system": "system", "tool": "tool"}
    plain, errors, usage, stops = [], {}, {}, {}
    for index, raw in enumerate(found):
        message = _langchain_dict(raw)
        kind = message.get("type")
        role = roles.get(str(kind)) or message.get("role")
        if not isinstance(role, str):
            raise DataError(f"message {index} of {where} has the type {kind!r}; known are {', '.join(roles)}.")
        content, reasoning = _langchain_content(message.get("content"))
        extra = message.get("additional_kwargs") or {}
        clean: dict[str, Any] = {"role": role, "content": content}
        if thought := reasoning or extra.get("reasoning_content"):
            clean["reasoning_content"] = thought
        calls = message.get("tool_calls") or extra.get("tool_calls") or ()
        if calls:
            clean["tool_calls"] = [
                c if "function" in c else _call(str(c.get("id")), str(c.get("name")), json.dumps(c.get("args", {})))
                for c in calls
            ]
        if role == "tool":
            clean["tool_call_id"] = message.get("tool_call_id")
            if message.get("status") == "error":
                errors[index] = str(content)
        usage[index] = message.get("usage_metadata") or {}
        stops[index] = (message.get("response_metadata") or {}).get("finish_reason")
        plain.append(clean)
    trace = from_openai(plain, where=where)
    for step in trace.steps:
        if step.kind == "tool":
            step.error = errors.get(step.message)
        elif step.message in usage:
            step.prompt_tokens = usage[step.message].get("input_tokens")
            step.completion_tokens = usage[step.message].get("output_tokens")
            step.stop_reason = step.stop_reason or stops[step.message]
    if trace.end == "answer" and trace.steps and trace.steps[-1].stop_reason == "length":
        trace.end = "length"
    return trace


FORMATS: Mapping[str, Callable[..., Trace]] = {
    "openai": from_openai,
    "tags": from_tags,
    "inspect": from_inspect,
    "langgraph": from_langgraph,
}


def read_traces(path: Path, format: str) -> list[Trace]:
    """Traces from a file of JSON or JSON lines.

    Parameters
    ----------
    path
        ``.jsonl``: one trace a line. Else JSON: an Inspect log (``samples``), a list of traces, or one trace. Each is
        what the parser of that format takes; a mapping with ``messages`` does for ``openai`` too, and with ``text`` and
        ``question`` for ``tags``.
    format
        ``openai``, ``tags``, ``inspect``, ``langgraph``.

    Raises
    ------
    DataError
        The file cannot be read, or holds something else; named by line or index.
    """
    if format not in FORMATS:
        raise unknown_name("trace format", format, FORMATS)
    text = read_text(path)
    rows: list[tuple[str, Any]] = []
    if path.suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                rows.append((f"{path}, line {number}", parse_json(line, f"{path}, line {number}")))
    else:
        body = parse_json(text, path)
        if isinstance(body, dict) and isinstance(body.get("samples"), list):
            body = body["samples"]
        single = isinstance(body, dict) or (isinstance(body, list) and body and _is_message(body[0]))
        for index, item in enumerate([body] if single else body if isinstance(body, list) else [body]):
            rows.append((f"{path}, trace {index}", item))
    return [_parsed(format, item, where) for where, item in rows]


def _parsed(format: str, item: Any, where: str) -> Trace:
    if format == "tags":
        if isinstance(item, str):
            return from_tags(item)
        if not isinstance(item, Mapping) or not isinstance(item.get("text"), str):
            raise DataError(f"{where} has no text; the tag format takes a text or an object with text and question.")
        return from_tags(item["text"], question=item.get("question"))
    if format == "openai" and isinstance(item, Mapping):
        item = item.get("messages")
    if not isinstance(item, (Mapping, list)):
        raise DataError(f"{where} is no list of messages.")
    with guarded(where, f"a trace in the format {format}"):
        return FORMATS[format](item, where=where)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or "type" in value or "lc" in value)


def _role(message: Any, place: str) -> str:
    roles = ("system", "developer", "user", "assistant", "tool", "function")
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in roles:
        raise DataError(f"{place} has the role {role!r}; known are {', '.join(roles)}.")
    return str(role)


def _assistant(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    clean = {k: v for k, v in message.items() if k not in ("function_call", "reasoning")}
    clean["content"] = message.get("content") or message.get("refusal") or ""
    if thought := message.get("reasoning_content") or message.get("reasoning"):
        clean["reasoning_content"] = thought
    calls = message.get("tool_calls")
    if not calls and isinstance(old := message.get("function_call"), Mapping):
        calls = [_call(str(old.get("name")), str(old.get("name")), old.get("arguments", ""))]
    if calls:
        try:
            clean["tool_calls"] = [
                _call(str(c["id"]), c["function"]["name"], c["function"].get("arguments", "")) for c in calls
            ]
        except (KeyError, TypeError):
            raise DataError(f"{place} has a tool call without id or function.name.") from None
    else:
        clean.pop("tool_calls", None)
    return clean


def _call(identifier: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": text}}


def _ended(messages: list[dict[str, Any]], steps: list[Step]) -> Trace:
    """The end that messages alone tell: an answer where the last message is a reply without calls."""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        return Trace(messages, steps)
    content = last["content"]
    text = content if isinstance(content, str) else "".join(p.get("text", "") for p in content)
    return Trace(messages, steps, "refusal" if steps[-1].stop_reason == "refusal" else "answer", text)


def _tag_call(tag: str, content: str, calls: Mapping[str, tuple[str, str | None]]) -> tuple[str, str, str | None]:
    name, argument = calls[tag]
    if argument is not None:
        return name, json.dumps({argument: content}, ensure_ascii=False), None
    found = find_tool_call(f"<tool_call>{content}</tool_call>")
    if found is None or found.problem is not None:
        return (found.name if found else "") or tag, content, found.problem if found else "the call is not read"
    return found.name, json.dumps(found.arguments, ensure_ascii=False), None


def _inspect_content(content: Any) -> tuple[Any, str | None]:
    if content is None or isinstance(content, str):
        return content or "", None
    parts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for part in content:
        kind = part.get("type")
        if kind == "reasoning":
            thoughts.append(part.get("summary") or "" if part.get("redacted") else part.get("reasoning", ""))
        elif kind == "text":
            parts.append({"type": "text", "text": part.get("text", "")})
        elif kind == "image":
            parts.append({"type": "image_url", "image_url": {"url": part.get("image", "")}})
        else:
            parts.append({"type": "text", "text": f"[{kind}]"})
    return _joined(parts), "\n".join(t for t in thoughts if t) or None


def _inspect_end(trace: Trace, sample: Mapping[str, Any]) -> None:
    output = sample.get("output") or {}
    choices = output.get("choices") or [{}]
    stop = {"max_tokens": "length", "model_length": "length", "content_filter": "content_filter"}.get(
        choices[0].get("stop_reason") or "", choices[0].get("stop_reason")
    )
    said = [s for s in trace.steps if s.kind == "model"]
    if said and output:
        usage = output.get("usage") or {}
        said[-1].stop_reason = stop
        said[-1].prompt_tokens, said[-1].completion_tokens = usage.get("input_tokens"), usage.get("output_tokens")
        said[-1].seconds = output.get("time")
    limit = sample.get("limit") or {}
    ends = {
        "message": "step limit", "turn": "step limit", "time": "time limit", "working": "time limit",
        "token": "token limit", "cost": "token limit", "context": "context limit",
    }  # fmt: skip
    if sample.get("error"):
        trace.end, trace.error = "error", str((sample["error"] or {}).get("message", sample["error"]))
    elif limit.get("type") in ends:
        trace.end = ends[limit["type"]]
    elif trace.end == "answer" and stop == "length":
        trace.end = "length"
    elif trace.end == "answer" and stop == "content_filter":
        trace.end = "refusal"
    trace.info.update({k: sample[k] for k in ("id", "epoch") if k in sample})
    if output.get("model"):
        trace.info["model"] = output["model"]


def _langchain_dict(raw: Any) -> Mapping[str, Any]:
    dump = getattr(raw, "model_dump", None)
    message = dump() if callable(dump) else raw
    if not isinstance(message, Mapping):
        return {"type": type(raw).__name__}
    if "lc" in message and "kwargs" in message:
        names = {
            "HumanMessage": "human", "AIMessage": "ai", "AIMessageChunk": "ai", "SystemMessage": "system",
            "ToolMessage": "tool",
        }  # fmt: skip
        kind = (message.get("id") or [""])[-1]
        return {**message["kwargs"], "type": names.get(kind, kind)}
    if isinstance(message.get("data"), Mapping):
        return {**message["data"], "type": message.get("type")}
    return message


def _langchain_content(content: Any) -> tuple[Any, str | None]:
    if content is None or isinstance(content, str):
        return content or "", None
    parts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
        elif part.get("type") in ("thinking", "reasoning"):
            thoughts.append(part.get("thinking") or part.get("reasoning") or "")
        elif part.get("type") in ("text", "image_url"):
            parts.append(dict(part))
        elif part.get("type") not in ("tool_use", "tool_call"):  # those stand in tool_calls as well
            parts.append({"type": "text", "text": f"[{part.get('type')}]"})
    return _joined(parts), "\n".join(t for t in thoughts if t) or None


def _joined(parts: list[dict[str, Any]]) -> Any:
    """Texts alone as one text."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts
