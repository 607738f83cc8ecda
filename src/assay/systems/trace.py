"""Trace: what an agent did, as OpenAI chat messages and one row a step; saved, loaded, replayed.

Parsers of other forms are in `assay.systems.trace_formats`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.core.datasets.readers import read_json
from assay.core.errors import DataError, UsageError, unknown_name
from assay.systems.chat.model import Choice, Reply, ToolCall, Usage
from assay.systems.tools import ToolResult

if TYPE_CHECKING:
    from assay.systems.environment import Environment, Observation
    from assay.systems.scripted import ReplayModel

ENDS = (
    "answer",
    "terminated",
    "truncated",
    "step limit",
    "tool limit",
    "token limit",
    "cost limit",
    "time limit",
    "context limit",
    "length",
    "refusal",
    "error",
    "unknown",
)
"""How a trace can end. terminated and truncated are an environment's own; length is a reply that was cut."""

KINDS = ("model", "tool", "environment", "compaction")
FORMAT = 1


class Step(msgspec.Struct, omit_defaults=True):
    """One thing that happened.

    Attributes
    ----------
    kind
        ``model`` (a reply), ``tool`` (a call's result), ``environment`` (a step of a world), ``compaction`` (the model
        summed up its history).
    turn
        Number of the reply it belongs to, from 0.
    message
        Index in `Trace.messages`; None = it left no message.
    seconds
        Wall time; None = unknown.
    tool, call, arguments
        Name, id and arguments (JSON text as written) of a tool call.
    prompt_tokens, completion_tokens, cost
        Of a reply; cost in US dollars, None = unknown.
    stop_reason
        Of a reply.
    error
        What went wrong, one sentence.
    reward, terminated, truncated
        Of an environment's step.
    action
        What the environment was given.
    info
        Facts of the step, JSON-able.
    """

    kind: str
    turn: int
    message: int | None = None
    seconds: float | None = None
    tool: str | None = None
    call: str | None = None
    arguments: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    stop_reason: str | None = None
    error: str | None = None
    reward: float | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    action: str | None = None
    info: dict[str, Any] | None = None


class Trace(msgspec.Struct):
    """What an agent did.

    Attributes
    ----------
    messages
        OpenAI chat-completions messages in the order in which they came to be; nothing is dropped by compaction.
        Reasoning stands in ``reasoning_content``.
    steps
        Rows, in time order.
    end
        One of `ENDS`.
    answer
        Final text; None = there is none.
    error
        One sentence, with ``end="error"``.
    info
        Facts: agent, model, seed ...
    """

    messages: list[dict[str, Any]]
    steps: list[Step] = []
    end: str = "unknown"
    answer: str | None = None
    error: str | None = None
    info: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.end not in ENDS:
            raise unknown_name("end of a trace", self.end, ENDS)

    # -- figures ---------------------------------------------------------------------------------------------------

    @property
    def turns(self) -> int:
        """Replies of the model (compaction left out)."""
        return sum(step.kind == "model" for step in self.steps)

    @property
    def tool_calls(self) -> int:
        """Tool calls that were carried out or refused."""
        return sum(step.kind == "tool" for step in self.steps)

    @property
    def tool_errors(self) -> int:
        """Tool calls with an error."""
        return sum(step.kind == "tool" and step.error is not None for step in self.steps)

    @property
    def rewards(self) -> list[float]:
        """Reward of every step of the environment."""
        return [step.reward or 0.0 for step in self.steps if step.kind == "environment"]

    @property
    def total_reward(self) -> float:
        """Sum of the rewards."""
        return float(sum(self.rewards))

    @property
    def actions(self) -> list[str]:
        """What the environment was given, in order."""
        return [step.action or "" for step in self.steps if step.kind == "environment"]

    @property
    def prompt_tokens(self) -> int:
        """Of all replies, compaction included."""
        return sum(step.prompt_tokens or 0 for step in self.steps)

    @property
    def completion_tokens(self) -> int:
        """Of all replies, compaction included."""
        return sum(step.completion_tokens or 0 for step in self.steps)

    @property
    def cost(self) -> float | None:
        """US dollars of all replies; None where one of them has no price, or there is none."""
        costs = [step.cost for step in self.steps if step.kind in ("model", "compaction")]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known and len(known) == len(costs) else None

    @property
    def seconds(self) -> float:
        """Sum over the steps."""
        return sum(step.seconds or 0.0 for step in self.steps)

    @property
    def cut_replies(self) -> int:
        """Replies that were cut at their length limit."""
        return sum(step.stop_reason == "length" for step in self.steps)

    def rows(self) -> list[dict[str, Any]]:
        """One row a step, equal columns, for ``Outcome.rows``; info as JSON text."""
        rows = []
        for index, step in enumerate(self.steps):
            row = {"step": index, **{name: getattr(step, name) for name in Step.__struct_fields__}}
            row["info"] = None if step.info is None else json.dumps(step.info, default=str, ensure_ascii=False)
            rows.append(row)
        return rows

    def scores(self) -> dict[str, float]:
        """Counts that most rooms report: turns, tool_calls, tool_errors, tokens."""
        return {
            "turns": float(self.turns),
            "tool_calls": float(self.tool_calls),
            "tool_errors": float(self.tool_errors),
            "tokens": float(self.prompt_tokens + self.completion_tokens),
        }

    # -- on disk ---------------------------------------------------------------------------------------------------

    def save(self, folder: Path, name: str = "trace.json") -> str:
        """Write the trace into a folder (``ctx.artifacts``) and return the file's name.

        Pictures become files of their own beside it, each once, named after their content.
        """
        folder.mkdir(parents=True, exist_ok=True)
        messages = [_pictures_out(message, folder) for message in self.messages]
        body = msgspec.to_builtins(msgspec.structs.replace(self, messages=messages))
        text = json.dumps({"format": FORMAT, **body}, ensure_ascii=False, indent=1, default=str)
        (folder / name).write_text(text, encoding="utf-8")
        return name

    @classmethod
    def load(cls, path: Path) -> Trace:
        """Read what `save` wrote.

        Raises
        ------
        DataError
            The file is missing, is no trace, or is of a newer format.
        """
        body = read_json(path)
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            found = body.get("format") if isinstance(body, dict) else type(body).__name__
            raise DataError(
                f"{path} is no trace of format {FORMAT} (found {found!r}); it was not written by this release."
            )
        del body["format"]
        try:
            trace = msgspec.convert(body, cls)
        except (msgspec.ValidationError, UsageError) as error:
            raise DataError(f"{path} is no trace: {error}.") from None
        trace.messages = [_pictures_in(message, path.parent) for message in trace.messages]
        return trace

    # -- replay ----------------------------------------------------------------------------------------------------

    def replies(self) -> list[Reply]:
        """The model's replies in order, compaction included, with their tokens and stop reasons."""
        return [_reply(self.messages[step.message], step) for step in self._said() if step.message is not None]

    def replay_model(self, name: str = "replay") -> ReplayModel:
        """A chat model that says again what was said."""
        from assay.systems.scripted import ReplayModel

        return ReplayModel(self.replies(), name=name)

    def replay_tools(self, tools: Sequence[Any]) -> list[RecordedTool]:
        """Stand-ins for ``tools`` that give again, in order, what each gave."""
        results: dict[str, list[ToolResult]] = {}
        for step in self.steps:
            if step.kind == "tool" and step.tool is not None and step.message is not None:
                text = _text(self.messages[step.message].get("content"))
                results.setdefault(step.tool, []).append(ToolResult(text, step.error))
        return [RecordedTool(tool, results.get(tool.name, [])) for tool in tools]

    def replay_episode(self, env: Environment) -> Iterator[tuple[Observation, float, bool, bool, dict[str, Any]]]:
        """Play the recorded actions again from the recorded seed.

        Yields
        ------
        tuple
            What each step gives.

        Raises
        ------
        DataError
            A reward or a flag is not what was recorded: the environment is another one, or not deterministic.
        """
        env.reset(self.info.get("seed"))
        for index, step in enumerate(s for s in self.steps if s.kind == "environment"):
            result = env.step(step.action or "")
            for name, now, then in zip(("reward", "terminated", "truncated"), result[1:4], _flags(step), strict=True):
                if now != then:
                    raise DataError(
                        f"Replay differs at environment step {index}: {name} is {now}, recorded was {then}."
                    )
            yield result

    def _said(self) -> Iterator[Step]:
        return (step for step in self.steps if step.kind in ("model", "compaction"))


class RecordedTool:
    """A tool that gives recorded results in order, whatever it is asked."""

    def __init__(self, tool: Any, results: Sequence[ToolResult]) -> None:
        self.name = tool.name
        self.description = tool.description
        self.parameters = tool.parameters
        self._left = list(reversed(results))

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """The next result.

        Raises
        ------
        DataError
            It was called more often than is recorded.
        """
        if not self._left:
            raise DataError(f"The trace holds no further result of the tool {self.name!r}.")
        return self._left.pop()


def _flags(step: Step) -> tuple[float, bool, bool]:
    return step.reward or 0.0, bool(step.terminated), bool(step.truncated)


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))


def _reply(message: Mapping[str, Any], step: Step) -> Reply:
    calls = tuple(
        ToolCall(c.get("id", ""), c["function"]["name"], c["function"].get("arguments", ""))
        for c in message.get("tool_calls") or ()
    )
    stop = step.stop_reason or ("tool_calls" if calls else "stop")
    choice = Choice(_text(message.get("content")), message.get("reasoning_content"), calls, stop)
    return Reply((choice,), Usage(step.prompt_tokens or 0, step.completion_tokens or 0), cost=step.cost)


def _pictures_out(message: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return dict(message)
    from assay.systems.chat.images import decode

    parts = []
    for part in content:
        url = part.get("image_url", {}).get("url", "") if isinstance(part, Mapping) else ""
        if url.startswith("data:"):
            data, media = decode(dict(part))
            name = f"{hashlib.sha256(data).hexdigest()[:16]}.{media.rpartition('/')[2]}"
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
            part = {**part, "image_url": {**part["image_url"], "url": name}}
        parts.append(part)
    return {**message, "content": parts}


def _pictures_in(message: dict[str, Any], folder: Path) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    from assay.systems.chat.images import image_part

    parts = []
    for part in content:
        url = part.get("image_url", {}).get("url", "") if isinstance(part, dict) else ""
        # Only a bare name beside the trace: a file from outside must not make us read another folder.
        if url and ":" not in url and Path(url).name == url:
            part = {**part, "image_url": {**part["image_url"], **image_part(folder / url)["image_url"]}}
        parts.append(part)
    return {**message, "content": parts}
