"""Tools: what an agent acts with. The protocol, what a call gives back, and tools from plain functions."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from assay.core.errors import AssayError, UsageError


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave.

    ``text`` is shown to the model, also when the call failed; ``error`` is then one short sentence for the record.
    ``data`` is the structured content, where there is one; ``images`` are data URLs.
    """

    text: str
    error: str | None = None
    data: Any = None
    images: tuple[str, ...] = ()


@runtime_checkable
class Tool(Protocol):
    """Something an agent can call.

    ``parameters`` is a JSON schema of an object. A call that fails for reasons of the caller (bad arguments, an exit
    code, a time limit) returns a ToolResult with ``error``; infrastructure that fails raises.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run the tool."""
        ...


class Found(NamedTuple):
    """A call written in a text: which tool, with what, and where it stands."""

    name: str
    arguments: dict[str, Any]
    start: int
    end: int
    problem: str | None = None


@runtime_checkable
class TextTool(Protocol):
    """A tool that can also be called by a tag in a text (``<python>``, ``<search>``, ``<tool_call>``)."""

    def find(self, text: str) -> Found | None:
        """The first call in a text; ``problem`` says what is wrong with one that cannot be run."""
        ...


def first_call(text: str, tools: Iterable[Any]) -> Found | None:
    """The call that begins first in a text, by any of the tools; None = none.

    Of several tools only the one that is called first counts: what a later one makes of the text changes nothing.
    """
    found = [call for tool in tools if isinstance(tool, TextTool) and (call := tool.find(text)) is not None]
    return min(found, key=lambda call: call.start, default=None)


def schema(tool: Tool) -> dict[str, Any]:
    """A tool in the form of OpenAI's ``tools``."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by name.

    Raises
    ------
    UsageError
        Two tools have the same name.
    """
    out: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in out:
            raise UsageError(f"Two tools are called {tool.name!r}; give one of them another name or a prefix.")
        out[tool.name] = tool
    return out


def read_arguments(text: str, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Arguments as a model wrote them, and what is wrong with them (None = nothing).

    Broken JSON is repaired where that is possible; the result is checked against the JSON schema.
    """
    from assay.core.answers.structured import json_object, schema_fault

    if not text.strip():
        fault = schema_fault({}, parameters)
        return {}, fault and f"the arguments are empty: {fault}"
    reading = json_object(text, {"type": "object", **parameters})
    if reading.value is None:
        return {}, reading.how
    return reading.value, None


class FunctionTool:
    """A Python function as a tool; `tool` makes one.

    The function may be async; a plain one runs in a thread. An exception that it raises becomes the result's error, but
    for infrastructure that failed (AssayError, retryable or fatal: a provider, the budget), which is nobody's mistake.
    """

    def __init__(self, fn: Callable[..., Any], name: str, description: str, parameters: Mapping[str, Any]) -> None:
        self.fn = fn
        self.name = name
        self.description = description
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the function with keyword arguments."""
        try:
            if inspect.iscoroutinefunction(self.fn):
                value = await self.fn(**arguments)
            else:
                value = await asyncio.to_thread(self.fn, **arguments)
        except Exception as error:
            if isinstance(error, AssayError) and (error.retryable or error.fatal):
                raise
            return ToolResult(f"Error: {type(error).__name__}: {error}", f"{type(error).__name__}: {error}")
        if isinstance(value, ToolResult):
            return value
        return ToolResult(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))


def tool(fn: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> FunctionTool:
    """A tool from a function: its name, the first paragraph of its docstring, and its annotations.

    Raises
    ------
    UsageError
        A parameter without an annotation, of a type that JSON does not know, or positional-only or variadic.
    """
    import msgspec

    label = name or fn.__name__
    properties: dict[str, Any] = {}
    required: list[str] = []
    try:
        signature = inspect.signature(fn, eval_str=True)
    except NameError as error:
        raise UsageError(f"Tool {label}: an annotation cannot be read ({error}).") from None
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"Tool {label}: parameter {parameter.name!r} cannot be given by name.")
        if parameter.annotation is parameter.empty:
            raise UsageError(f"Tool {label}: parameter {parameter.name!r} has no type; annotate it.")
        try:
            properties[parameter.name] = msgspec.json.schema(parameter.annotation)
        except TypeError:
            raise UsageError(
                f"Tool {label}: parameter {parameter.name!r} is a {parameter.annotation}, which JSON cannot carry."
            ) from None
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    said = description if description is not None else (inspect.getdoc(fn) or "").split("\n\n")[0]
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return FunctionTool(fn, label, said, parameters)


async def call(
    tools: Mapping[str, Tool], name: str, arguments: str | Mapping[str, Any], *, seconds: float | None
) -> ToolResult:
    """Call the tool of that name within a time limit; whatever the caller did wrong is a ToolResult with ``error``.

    Parameters
    ----------
    arguments
        JSON text as the model wrote it, or a mapping.
    seconds
        Time limit; None = none.
    """
    found = tools.get(name)
    if found is None:
        known = ", ".join(tools) or "none"
        return ToolResult(f"Error: there is no tool {name!r}; there are: {known}.", f"unknown tool {name!r}")
    if isinstance(arguments, str):
        arguments, problem = read_arguments(arguments, found.parameters)
        if problem is not None:
            return ToolResult(f"Error: the arguments of {name} cannot be used: {problem}.", f"bad arguments: {problem}")
    try:
        async with asyncio.timeout(seconds) as limit:
            return await found.call(arguments)
    except TimeoutError:
        if not limit.expired():
            raise
        return ToolResult(f"Error: {name} ran past its limit of {seconds:g} seconds.", f"time limit of {seconds:g} s")


def cut(text: str, longest: int) -> str:
    """``text``, its middle left out where it is longer than so many characters; a line says how many."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[len(text) - half :]}"
