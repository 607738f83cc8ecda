"""Agents: what works on a task in many turns. Three over any ChatModel, and the player of episodes.

`tool_loop` calls tools natively, `react` writes its calls as text, `plan` writes a plan first. A benchmark's ``agent=``
option goes through `lift`. The system under test of a room for agents is an `Actor`: a ChatModel, which the room lifts,
or an Agent that a user brings.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.core.errors import UsageError, unknown_name
from assay.core.metering import Meter
from assay.systems.chat.model import ChatModel, Choice, Message
from assay.systems.conversation import Compaction, Conversation, Limits, Stop, partial_trace, plain
from assay.systems.dialects import Dialect, dialect
from assay.systems.environment import Environment, Info, Observation, content_of
from assay.systems.tools import Tool, ToolResult, by_name, schema
from assay.systems.trace import Step, Trace

__all__ = [
    "Actor",
    "Agent",
    "Limits",
    "ModelAgent",
    "Trace",
    "lift",
    "partial_trace",
    "plan",
    "play",
    "react",
    "tool_loop",
]

Policy = Callable[[Observation, Info], str | Awaitable[str]]
"""A player that is a function of what it sees: the action."""

_REFUSALS = ("refusal", "content_filter")
_PLAN = (
    "Before you act, write a short numbered plan: the steps that lead from the task to its answer, what each needs, "
    "and how you will notice that one went wrong. Write only the plan now."
)
_ACT = "Now carry out the plan. Depart from it where results say so. When the task is done, give the answer."
_REVISE = (
    "Compare the plan with what has been found so far and write it anew: what is done, what changed, what is left. "
    "Write only the plan now."
)


@runtime_checkable
class Agent(Protocol):
    """Works on a task with tools until it has an answer or a limit is reached.

    An agent that counts its model's calls also has ``bind(meter)`` (see ChatModel). What the agent does wrong ends up
    in the trace; infrastructure that fails raises, and `partial_trace` of the exception is what was done until then.
    """

    name: str

    async def run(self, messages: Sequence[Message], tools: Sequence[Tool], *, limits: Limits) -> Trace:
        """Work on what ``messages`` ask for."""
        ...


class _Either(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (ChatModel, Agent))


class Actor(metaclass=_Either):
    """For ``Task.system``: a ChatModel or an Agent, whichever the user names."""


Loop = Callable[[Conversation, Mapping[str, Tool]], Awaitable[Trace]]


class ModelAgent:
    """An agent over a ChatModel; made by `tool_loop`, `react` and `plan`."""

    def __init__(
        self,
        kind: str,
        model: ChatModel,
        loop: Loop,
        *,
        system: str | None,
        compaction: Compaction,
        sampling: Mapping[str, Any],
    ) -> None:
        if compaction not in ("summary", "window"):
            raise unknown_name("kind of compaction", compaction, ("summary", "window"))
        self.kind = kind
        self.model = model
        self.name = f"{kind}({model.name})"
        self.system = system
        self.compaction: Compaction = compaction
        self.sampling = dict(sampling)
        self._loop = loop

    def __repr__(self) -> str:
        return f"ModelAgent({self.name!r})"

    def bind(self, meter: Meter) -> ModelAgent:
        """A copy whose model reports to ``meter``."""
        bound = copy.copy(self)
        bind = getattr(self.model, "bind", None)
        bound.model = self.model if bind is None else bind(meter)
        return bound

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        describe = getattr(self.model, "describe", None)
        facts = describe() if callable(describe) else {}
        facts = dict(facts) if isinstance(facts, Mapping) else {}
        return {**facts, "name": self.name, "kind": "agent", "agent": self.kind, "model": self.model.name}

    async def run(self, messages: Sequence[Message], tools: Sequence[Tool], *, limits: Limits) -> Trace:
        """See `Agent.run`."""
        if not messages:
            raise UsageError("An agent was given no message; it needs at least the task.")
        start = list(messages)
        if self.system is not None and start[0].get("role") != "system":
            start.insert(0, {"role": "system", "content": self.system})
        talk = Conversation(
            self.model,
            start,
            limits,
            compaction=self.compaction,
            sampling=self.sampling,
            info={"agent": self.kind, "model": self.model.name},
        )
        try:
            return await self._loop(talk, by_name(tools))
        except Stop as stop:
            return talk.finish(stop.end, stop.answer)
        except Exception as error:
            talk.fail(error)
            raise


def tool_loop(
    model: ChatModel,
    *,
    system: str | None = None,
    calls_per_turn: int | None = None,
    last_call: str | None = None,
    compaction: Compaction = "summary",
    **sampling: Any,
) -> ModelAgent:
    """The plain agent: ask, carry out the tool calls in order, ask again; a reply without calls is the answer.

    Parameters
    ----------
    system
        System message, where the task brings none.
    calls_per_turn
        Calls of one reply that are carried out; the model is told that the others were not. None = all.
    last_call
        Message added before the last reply that is permitted, also after the last permitted tool call. With it, a run
        that has spent its tokens, cost or tool time may say one thing more.
    compaction
        What happens when ``limits.context`` is reached: ``summary`` or ``window``.
    sampling
        Keyword arguments of every ``generate`` (temperature, max_tokens, seed ...).
    """

    async def loop(talk: Conversation, tools: Mapping[str, Tool]) -> Trace:
        return await _native(talk, tools, calls_per_turn, last_call)

    return ModelAgent("tool_loop", model, loop, system=system, compaction=compaction, sampling=sampling)


def react(
    model: ChatModel,
    *,
    system: str | None = None,
    protocol: str | Dialect = "json",
    last_call: str | None = None,
    compaction: Compaction = "summary",
    **sampling: Any,
) -> ModelAgent:
    """Thought, action, observation as plain text, for models without native tool calls.

    Parameters
    ----------
    protocol
        How calls are written: ``json`` (one object a reply), ``lines`` (Thought / Action / Action Input), ``tags``
        (``<think>``, ``<tool_call>`` or a tool's own tag, ``<answer>``), or a Dialect of your own. A reply that is
        none of what the protocol knows is answered with what was wrong.
    system, last_call, compaction, sampling
        As in `tool_loop`.

    Reference: Yao et al. 2023, ReAct.
    """
    form = dialect(protocol) if isinstance(protocol, str) else protocol

    async def loop(talk: Conversation, tools: Mapping[str, Tool]) -> Trace:
        return await _textual(talk, tools, form, last_call)

    return ModelAgent("react", model, loop, system=system, compaction=compaction, sampling=sampling)


def plan(
    model: ChatModel,
    *,
    system: str | None = None,
    revise: int | None = None,
    protocol: str | Dialect | None = None,
    last_call: str | None = None,
    compaction: Compaction = "summary",
    **sampling: Any,
) -> ModelAgent:
    """Writes a plan without tools, then works like `tool_loop`, or like `react` where ``protocol`` is given.

    Parameters
    ----------
    revise
        The plan is written anew after every so many turns; None = never.
    system, last_call, compaction, sampling
        As in `tool_loop`.
    """
    if revise is not None and revise < 1:
        raise UsageError(f"revise is {revise}; it counts turns and must be at least 1.")
    form = dialect(protocol) if isinstance(protocol, str) else protocol

    async def loop(talk: Conversation, tools: Mapping[str, Tool]) -> Trace:
        await _planned(talk, _PLAN)
        talk.say({"role": "user", "content": _ACT})
        if form is not None:
            return await _textual(talk, tools, form, last_call, revise)
        return await _native(talk, tools, None, last_call, revise)

    return ModelAgent("plan", model, loop, system=system, compaction=compaction, sampling=sampling)


AGENTS: Mapping[str, Callable[..., ModelAgent]] = {"tool_loop": tool_loop, "react": react, "plan": plan}


def lift(actor: Any, agent: str = "tool_loop", **options: Any) -> Agent:
    """A ChatModel as the agent called ``agent`` (a benchmark's ``agent=`` option); an Agent stays what it is.

    Parameters
    ----------
    agent
        ``tool_loop``, ``react`` or ``plan``.
    options
        Of that agent.

    Raises
    ------
    UsageError
        Unknown agent, or something that is neither model nor agent.
    """
    if isinstance(actor, Agent):
        return actor
    if not isinstance(actor, ChatModel):
        raise UsageError(f"{actor!r} is neither a chat model nor an agent.")
    if agent not in AGENTS:
        raise unknown_name("agent", agent, AGENTS)
    return AGENTS[agent](actor, **options)


# -- loops -------------------------------------------------------------------------------------------------------------


async def _native(
    talk: Conversation,
    tools: Mapping[str, Tool],
    calls_per_turn: int | None,
    last_call: str | None,
    revise: int | None = None,
) -> Trace:
    schemas = [schema(tool) for tool in tools.values()]
    offered = {"tools": schemas} if schemas else {}
    while True:
        choice = await _asked(talk, last_call, **offered)
        if not choice.tool_calls:
            return _answered(talk, choice)
        pictures: list[dict[str, Any]] = []
        for index, asked in enumerate(choice.tool_calls):
            if calls_per_turn is not None and index >= calls_per_turn:
                text = f"Not carried out: at most {calls_per_turn} call(s) a reply. Ask again if it is still needed."
                talk.say({"role": "tool", "tool_call_id": asked.id, "content": text})
                continue
            result = await talk.use(tools, asked.name, asked.arguments, asked.id)
            _shown(talk, {"role": "tool", "tool_call_id": asked.id, "content": result.text})
            pictures += _pictures(result)
        if pictures:  # a tool's message holds text alone in most services
            content = [{"type": "text", "text": "Pictures that the tools returned:"}, *pictures]
            talk.say({"role": "user", "content": content})
        if revise is not None and (talk.turn + 1) % revise == 0:
            await _planned(talk, _REVISE)


async def _textual(
    talk: Conversation, tools: Mapping[str, Tool], form: Dialect, last_call: str | None, revise: int | None = None
) -> Trace:
    talk.say({"role": "user", "content": form.instructions(list(tools.values()))}, head=True)
    stops = form.stops(list(tools.values()))
    while True:
        choice = await _asked(talk, last_call, **({"stop": stops} if stops else {}))
        if choice.stop_reason in _REFUSALS:
            return talk.finish("refusal", choice.text or None)
        move = form.read(choice.text, list(tools.values()))
        if move.answer is not None:
            return talk.finish("answer", move.answer)
        if move.call is None:
            talk.say({"role": "user", "content": form.correction(move.problem or "it holds no call and no answer")})
        else:
            result = await talk.use(tools, move.call.name, json.dumps(move.call.arguments, ensure_ascii=False))
            shown = form.observation(move.call.name, result.text)
            parts = _pictures(result)
            content: Any = [{"type": "text", "text": shown}, *parts] if parts else shown
            _shown(talk, {"role": "user", "content": content})
        if revise is not None and (talk.turn + 1) % revise == 0:
            await _planned(talk, _REVISE)


async def _asked(talk: Conversation, last_call: str | None, **options: Any) -> Choice:
    closing = last_call is not None and talk.closing()
    if closing:
        talk.say({"role": "user", "content": last_call})
    return await talk.ask(granted=closing, **options)


async def _planned(talk: Conversation, request: str) -> None:
    talk.say({"role": "user", "content": request})
    choice = await talk.ask()
    if choice.stop_reason in _REFUSALS:
        raise Stop("refusal", choice.text or None)


def _answered(talk: Conversation, choice: Choice) -> Trace:
    if choice.stop_reason in _REFUSALS:
        return talk.finish("refusal", choice.text or None)
    return talk.finish("length" if choice.stop_reason == "length" else "answer", choice.text)


def _shown(talk: Conversation, message: Message) -> None:
    """Add the message that shows the result of the step written last."""
    talk.trace.steps[-1].message = talk.say(message)


def _pictures(result: ToolResult) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": url}} for url in result.images]


# -- episodes ----------------------------------------------------------------------------------------------------------


async def play(
    actor: ChatModel | Agent | Policy,
    env: Environment,
    *,
    limits: Limits | None = None,
    seed: int | None = None,
    system: str | None = None,
    tools: Sequence[Tool] = (),
    history: int | None = None,
    read: Callable[[str], str] | None = None,
    images: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> Trace:
    """Play one episode: observation, reply, action, until the environment or a limit ends it.

    Parameters
    ----------
    actor
        A chat model (its reply is the action), an agent (its answer is), or a function of observation and info. A model
        sees the whole episode as one conversation: observations are the user's messages.
    env
        Reset here with ``seed``; not closed. Steps run in a thread, so that one that waits holds nobody up; an
        environment with ``async def step`` is awaited.
    limits
        ``turns`` are replies, and so steps of the environment; ``context`` hides the older half of the turns when it
        is reached. None = no limit: the environment ends the episode.
    system
        System message.
    tools
        For an agent.
    history
        Turns shown beside system message and first observation; None = all.
    read
        What the action is in a reply (``lambda text: ...``); None = the whole reply.
    images
        Keyword arguments of ``image_part`` for observations with pictures.
    sampling
        Keyword arguments of every ``generate``.

    Returns
    -------
    Trace
        ``end`` is ``terminated`` or ``truncated`` where the environment ended it (both flags: truncated, unless info
        says ``solved``); ``rewards`` one a step; ``info`` holds the seed, so that `Trace.replay_episode` works, and
        the last step's info as ``final``.
    """
    limits = limits or Limits(turns=None)
    model = actor if isinstance(actor, ChatModel) and not isinstance(actor, Agent) else None
    start = [{"role": "system", "content": system}] if system is not None else []
    name = getattr(actor, "name", None) or getattr(actor, "__name__", type(actor).__name__)
    facts = {"agent": "play", "model": name, "seed": seed}
    talk = Conversation(model, start, limits, compaction="window", sampling=sampling, info=facts)
    try:
        observation, info = await _run(env.reset, seed)
        talk.say({"role": "user", "content": content_of(observation, **(images or {}))}, head=True)
        first = len(talk.shown)
        while True:
            reply = await _acted(talk, actor, tools, observation, info)
            action = reply if read is None else read(reply)
            began = time.monotonic()
            observation, reward, terminated, truncated, info = await _run(env.step, action)
            step = Step("environment", talk.turn, seconds=time.monotonic() - began, action=action)
            step.reward, step.terminated, step.truncated = float(reward), bool(terminated), bool(truncated)
            step.info = plain(info) or None
            step.message = talk.say({"role": "user", "content": content_of(observation, **(images or {}))})
            talk.trace.steps.append(step)
            talk.trace.info["final"] = step.info
            if terminated or truncated:
                ended = bool(terminated) and (not truncated or bool(info.get("solved", False)))
                return talk.finish("terminated" if ended else "truncated", reply)
            if history is not None:
                turns = [i for i in range(first, len(talk.shown)) if talk.shown[i].get("role") == "assistant"]
                if len(turns) > history:
                    kept = turns[len(turns) - history] if history else len(talk.shown) - 1
                    del talk.shown[first:kept]
    except Stop as stop:
        return talk.finish(stop.end, stop.answer)
    except Exception as error:
        inner = partial_trace(error)
        if inner is not None:
            _merge(talk, inner)
        talk.fail(error)
        raise


async def _acted(talk: Conversation, actor: Any, tools: Sequence[Tool], observation: Observation, info: Info) -> str:
    """The actor's reply to what it is shown."""
    if talk.model is not None:
        return (await talk.ask()).text
    if isinstance(actor, Agent):
        left = talk.left()
        done = await actor.run(list(talk.shown), tools, limits=left)
        _merge(talk, done)
        if done.end not in ("answer", "length"):
            raise Stop(done.end, done.answer)
        return done.answer or ""
    if not callable(actor):
        raise UsageError(f"{actor!r} is no chat model, no agent and no function of (observation, info).")
    talk.left()
    talk.turn += 1
    action = actor(observation, info)
    action = await action if inspect.isawaitable(action) else action
    if not isinstance(action, str):
        raise UsageError(f"The policy {actor!r} gave {action!r}; an action is a text.")
    talk.trace.steps.append(Step("model", talk.turn, talk.say({"role": "assistant", "content": action})))
    return action


def _merge(talk: Conversation, done: Trace) -> None:
    """Write what an agent did in one turn of an episode into the episode's trace."""
    talk.turn += 1
    given = len(talk.shown)
    # An agent may put a system message of its own before what it was given.
    given += len(done.messages) > given and done.messages[0] != talk.shown[0] and done.messages[1] == talk.shown[0]
    shift = len(talk.trace.messages) - given
    talk.trace.messages += done.messages[given:]
    answer = done.messages[-1] if len(done.messages) > given else {"role": "assistant", "content": done.answer or ""}
    talk.shown.append(answer)
    for step in done.steps:
        step = copy.copy(step)
        step.turn = talk.turn
        step.message = None if step.message is None else step.message + shift
        talk.trace.steps.append(step)
    talk.add(done)


async def _run(fn: Callable[..., Any], *args: Any) -> Any:
    if inspect.iscoroutinefunction(fn):
        return await fn(*args)
    return await asyncio.to_thread(fn, *args)
