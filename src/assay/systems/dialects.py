"""Dialects: how tool calls and answers are written in plain text, and tags in a text taken apart."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from assay.core.answers.structured import json_object
from assay.core.errors import unknown_name
from assay.systems.tools import Found, TextTool, Tool, first_call, read_arguments


class Segment(NamedTuple):
    """A piece of a text: ``tag`` None = free text between tags. ``start`` and ``end`` include the tags."""

    tag: str | None
    content: str
    start: int
    end: int


@lru_cache(maxsize=64)
def _openings(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"<({'|'.join(map(re.escape, tags))})>")


def first_pair(text: str, tag: str) -> Segment | None:
    """The first complete ``<tag>...</tag>``, contents as they stand; None = there is none."""
    start = text.find(f"<{tag}>")
    inner = start + len(tag) + 2
    close = text.find(f"</{tag}>", inner) if start >= 0 else -1
    # Where the first opening tag has no closing one after it, a later one has none either.
    return None if close < 0 else Segment(tag, text[inner:close], start, close + len(tag) + 3)


def segments(text: str, tags: Collection[str]) -> list[Segment]:
    """Complete pairs ``<tag>...</tag>`` from left to right, and the free text around them.

    The first opening tag wins and its pair is the shortest one, so that tags inside a pair stay text. Contents are
    stripped; free text that is empty then is left out. Takes time in proportion to the text, whatever stands in it.
    """
    found: list[Segment] = []
    unclosed: set[str] = set()
    place = begin = 0
    openings = _openings(tuple(tags))
    while match := openings.search(text, begin):
        tag, begin = match[1], match.end()
        close = -1 if tag in unclosed else text.find(f"</{tag}>", begin)
        if close < 0:
            unclosed.add(tag)
            continue
        _free(found, text, place, match.start())
        place = begin = close + len(tag) + 3
        found.append(Segment(tag, text[match.end() : close].strip(), match.start(), place))
    _free(found, text, place, len(text))
    return found


def _free(found: list[Segment], text: str, start: int, end: int) -> None:
    if content := text[start:end].strip():
        found.append(Segment(None, content, start, end))


def find_tool_call(text: str) -> Found | None:
    """The first ``<tool_call>`` of a text; None = there is none.

    Inside it stands JSON (``{"name": ..., "arguments": {...}}``) or ``<tool_name>`` and ``<arguments>``. ``problem``
    says what is wrong with a call that cannot be read.
    """
    pair = first_pair(text, "tool_call")
    if pair is None:
        return None
    _, body, start, end = pair
    if named := first_pair(body, "tool_name"):
        given = first_pair(body[named.end :], "arguments")
        arguments, problem = read_arguments(given.content if given else "", {})
        return Found(named.content.strip(), arguments, start, end, problem)
    reading = json_object(body)
    if reading.value is None:
        return Found("", {}, start, end, f"the call is not read: {reading.how}")
    return _from_object(reading.value, start, end)


def _from_object(value: dict[str, Any], start: int, end: int) -> Found:
    inner = value.get("function")
    if isinstance(inner, dict):  # OpenAI's form
        value = inner
    name = next((value[k] for k in ("name", "tool", "tool_name", "function") if isinstance(value.get(k), str)), "")
    arguments = next((value[k] for k in ("arguments", "args", "parameters", "input") if k in value), {})
    if isinstance(arguments, str):
        arguments, problem = read_arguments(arguments, {})
        if problem is not None:
            return Found(name, {}, start, end, f"the arguments are not read: {problem}")
    if not name:
        return Found("", {}, start, end, "the call names no tool")
    if not isinstance(arguments, dict):
        return Found(name, {}, start, end, "the arguments are no JSON object")
    return Found(name, arguments, start, end)


class Move(NamedTuple):
    """What a reply says: at most one of ``call`` and ``answer``; neither = ``problem`` says why."""

    thought: str | None = None
    call: Found | None = None
    answer: str | None = None
    problem: str | None = None


class Dialect(Protocol):
    """A way to write calls and answers as text."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """What the model is told: the form of its replies and the tools."""
        ...

    def stops(self, tools: Sequence[Tool]) -> list[str]:
        """Where generation stops."""
        ...

    def read(self, text: str, tools: Sequence[Tool]) -> Move:
        """What a reply says."""
        ...

    def observation(self, tool: str, text: str) -> str:
        """How a result is shown."""
        ...

    def correction(self, problem: str) -> str:
        """What a reply that says nothing is answered with."""
        ...


def dialect(name: str) -> Dialect:
    """``json``, ``lines`` or ``tags``."""
    forms = {"json": JsonDialect, "lines": LinesDialect, "tags": TagDialect}
    if name not in forms:
        raise unknown_name("protocol", name, forms)
    return forms[name]()


def _catalogue(tools: Sequence[Tool]) -> str:
    if not tools:
        return "There are no tools."
    lines = [f"- {t.name}: {t.description} Arguments (JSON schema): {json.dumps(t.parameters)}" for t in tools]
    return "Tools:\n" + "\n".join(lines)


class JsonDialect:
    """Each reply is one JSON object: thought and call, or thought and answer."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See `Dialect`."""
        call = '{"thought": "...", "tool": "NAME", "arguments": {...}}'
        return (
            "Every reply of yours is one JSON object and nothing around it. To use a tool, reply\n"
            f"{call}\n"
            'and wait for its result. When you know the answer, reply\n{"thought": "...", "answer": "..."}\n\n'
            f"{_catalogue(tools)}"
        )

    def stops(self, tools: Sequence[Tool]) -> list[str]:
        """See `Dialect`."""
        return []

    def read(self, text: str, tools: Sequence[Tool]) -> Move:
        """See `Dialect`."""
        reading = json_object(text)
        if reading.value is None:
            return Move(problem=reading.how)
        value, span = reading.value, reading.span or (0, len(text))
        thought = value.get("thought") if isinstance(value.get("thought"), str) else None
        if value.get("answer") is not None:
            answer = value["answer"]
            return Move(thought, answer=answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))
        action = value.get("action")
        call = _from_object(action if isinstance(action, dict) else value, *span)
        return Move(thought, problem=call.problem) if call.problem else Move(thought, call)

    def observation(self, tool: str, text: str) -> str:
        """See `Dialect`."""
        return f"Result of {tool}:\n{text}"

    def correction(self, problem: str) -> str:
        """See `Dialect`."""
        return f"Your reply could not be used: {problem}. Reply with one JSON object: tool and arguments, or answer."


_LINE = re.compile(
    r"^[ \t*#]*(?P<key>thought|action input|action|observation|final answer)[ \t*]*:[ \t*]*",
    re.IGNORECASE | re.MULTILINE,
)


class LinesDialect:
    """Thought, Action, Action Input, Observation, Final Answer: a line each."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See `Dialect`."""
        return (
            "Work in steps. To use a tool, write exactly three lines and stop:\n"
            "Thought: why\nAction: NAME of the tool\nAction Input: its arguments as a JSON object\n"
            "The result follows as Observation. When you know the answer, write:\n"
            f"Thought: why\nFinal Answer: the answer\n\n{_catalogue(tools)}"
        )

    def stops(self, tools: Sequence[Tool]) -> list[str]:
        """See `Dialect`."""
        return ["\nObservation:"]

    def read(self, text: str, tools: Sequence[Tool]) -> Move:
        """See `Dialect`."""
        marks = list(_LINE.finditer(text))
        parts: dict[str, str] = {}
        for index, mark in enumerate(marks):
            key = mark["key"].lower()
            if key == "observation":  # what follows was made up, not observed
                break
            end = marks[index + 1].start() if index + 1 < len(marks) else len(text)
            parts.setdefault(key, text[mark.end() : end].strip())
            if key in ("action input", "final answer"):
                break
        thought = parts.get("thought")
        if "action" in parts:
            name = parts["action"].strip("`\"' \n").splitlines()[0] if parts["action"].strip() else ""
            if not name:
                return Move(thought, problem="the line Action names no tool")
            known = next((t.parameters for t in tools if t.name == name), {})
            arguments, problem = read_arguments(parts.get("action input", ""), known)
            if problem is not None:
                return Move(thought, problem=f"Action Input: {problem}")
            return Move(thought, Found(name, arguments, 0, len(text)))
        if "final answer" in parts:
            return Move(thought, answer=parts["final answer"])
        return Move(thought, problem="it has neither a line Action nor a line Final Answer")

    def observation(self, tool: str, text: str) -> str:
        """See `Dialect`."""
        return f"Observation: {text}"

    def correction(self, problem: str) -> str:
        """See `Dialect`."""
        return f"Observation: your reply could not be used: {problem}."


class TagDialect:
    """Tags: ``<think>``, a tool's own tag or ``<tool_call>``, ``<answer>``; results in ``result_tag``."""

    def __init__(self, result_tag: str = "information") -> None:
        self.result_tag = result_tag

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See `Dialect`."""
        own = [getattr(t, "tag", None) for t in tools]
        ways = [f"- {t.name}: <{tag}>...</{tag}>" for t, tag in zip(tools, own, strict=True) if tag]
        if any(tag is None for tag in own):
            ways.append('- any other tool: <tool_call>{"name": "NAME", "arguments": {...}}</tool_call>')
        listed = "Calls are written so:\n" + "\n".join(ways) + "\n\n" if ways else ""
        return (
            "Think inside <think>...</think> first. Then either make one tool call and stop; the result comes inside "
            f"<{self.result_tag}>...</{self.result_tag}>. Or give the final answer inside <answer>...</answer>.\n\n"
            f"{listed}{_catalogue(tools)}"
        )

    def stops(self, tools: Sequence[Tool]) -> list[str]:
        """See `Dialect`."""
        return [f"</{tag}>" for tag in self._tags(tools)]

    def read(self, text: str, tools: Sequence[Tool]) -> Move:
        """See `Dialect`. A tag that the stop sequence left open at the end is closed."""
        for tag in self._tags(tools):
            if text.rfind(f"<{tag}>") > text.rfind(f"</{tag}>"):
                text += f"</{tag}>"
                break
        pieces = segments(text, ("think",))
        thought = "\n".join(p.content for p in pieces if p.tag) or None
        bare = "\n".join(p.content for p in pieces if not p.tag)
        call = first_call(bare, [*tools, _Tagged()])
        answer = first_pair(bare, "answer")
        if call is not None and (answer is None or call.start < answer.start):
            return Move(thought, problem=call.problem) if call.problem else Move(thought, call)
        if answer is not None:
            return Move(thought, answer=answer.content.strip())
        return Move(thought, problem="it holds no call and no <answer>")

    def observation(self, tool: str, text: str) -> str:
        """See `Dialect`."""
        return f"<{self.result_tag}>{text}</{self.result_tag}>"

    def correction(self, problem: str) -> str:
        """See `Dialect`."""
        return f"<{self.result_tag}>Your reply could not be used: {problem}.</{self.result_tag}>"

    def _tags(self, tools: Sequence[Tool]) -> list[str]:
        own = [tag for t in tools if isinstance(t, TextTool) and (tag := getattr(t, "tag", None))]
        return list(dict.fromkeys([*own, "tool_call", "answer"]))


class _Tagged:
    """Reads ``<tool_call>`` for tools that have no tag of their own."""

    def find(self, text: str) -> Found | None:
        return find_tool_call(text)
