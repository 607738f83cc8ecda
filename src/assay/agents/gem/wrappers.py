"""Wrappers: tools by tags, what an agent is shown of an episode, episode statistics; by class and by name.

Order from inside: tool, observation, episode tracking.

References
----------
Liu et al. GEM: A Gym for Agentic LLMs. arXiv 2510.01051.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from assay.agents.gem.env import Env, EnvError, Step
from assay.agents.gem.sandboxes import shared_sandbox
from assay.core.errors import unknown_name
from assay.systems.tools import Found, ToolResult, by_name, first_call
from assay.systems.tools.background import BackgroundLoop

if TYPE_CHECKING:
    from typing import Self

    from assay.systems.tools import Tool
    from assay.systems.tools.retrieval import Index

TOOL_SECONDS = 5.0
"""Time limit of a call of the named tool wrappers."""
TOOL_USES = 5
"""Calls an episode of the named tool wrappers."""

WrapperFn = Callable[[Env], Env]


class Wrapper(Env):
    """An environment around another one; everything that it does not change goes through."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.spec = env.spec

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed)

    def step(self, action: str) -> Step:
        return self.env.step(action)

    def sample_random_action(self) -> str:
        return self.env.sample_random_action()

    @property
    def unwrapped(self) -> Env:
        """The environment below all wrappers."""
        return self.env.unwrapped

    @property
    def name(self) -> str:
        """Name of the environment below."""
        return self.env.name

    def own_state(self) -> dict[str, Any]:
        """What the wrapper itself remembers, JSON-able."""
        return {}

    def set_own_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `own_state` gave."""

    def get_state(self) -> dict[str, Any]:
        """State of the wrapper and of what is below."""
        return {"wrapper": type(self).__name__, "own": self.own_state(), "env": self.env.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if state.get("wrapper") != type(self).__name__:
            raise EnvError(f"{self.name}: this state is of {state.get('wrapper')!r}, not of {type(self).__name__!r}.")
        self.env.set_state(state["env"])
        self.set_own_state(state["own"])

    def spawn(self, same_state: bool = False, **overrides: Any) -> Self:
        """The same wrapper around a spawn of what is below; ``overrides`` are for the innermost environment."""
        (_, *args), kwargs = self._made if self._made[0] else ((None,), self._made[1])
        kwargs = {key: value for key, value in kwargs.items() if key != "env"}
        other = type(self)(self.env.spawn(same_state, **overrides), *args, **kwargs)
        if same_state:
            other.set_own_state(self.own_state())
        return other

    def close(self) -> None:
        self.env.close()


class ToolEnvWrapper(Wrapper):
    """Lets an agent call tools by tags in its actions; a call does not step the environment.

    The call that begins first in the action counts, whichever tool it is of. It uses up one of ``max_tool_uses``, also
    when it fails; afterwards actions go to the environment as they stand. Info holds ``use_tool``, ``tool_type``,
    ``parsed_action`` (the text up to the end of the call), ``tool_error`` and the counters of this episode and the
    previous one.

    Parameters
    ----------
    tools
        With a tag (`assay.systems.tools.TextTool`); one object an environment, since a tool may keep a session. A
        sequence, or a function that makes one (`spawn` then makes the tools anew).
    tool_reward, tool_success_reward
        For a call, and more for one without error.
    tool_execute_error_reward
        For a call that fails; where it is below 0, the other two must be 0.
    max_tool_uses
        Calls an episode; None = no limit.
    loop
        Loop that the tools' coroutines run on; None = the wrapper's own.

    Raises
    ------
    EnvError
        Rewards that exclude each other, no tools, tools without a tag.
    """

    def __init__(
        self,
        env: Env,
        tools: Sequence[Tool] | Callable[[], Sequence[Tool]],
        tool_reward: float = 0.0,
        tool_success_reward: float = 0.0,
        tool_execute_error_reward: float = 0.0,
        max_tool_uses: int | None = 10,
        loop: BackgroundLoop | None = None,
    ) -> None:
        super().__init__(env)
        self.tools = list(tools() if callable(tools) else tools)
        if not self.tools:
            raise EnvError("ToolEnvWrapper needs at least one tool.")
        for tool in self.tools:
            if not hasattr(tool, "find"):
                raise EnvError(f"The tool {tool.name!r} cannot be called by a tag: it has no find(text).")
        by_name(self.tools)
        if tool_execute_error_reward > 0:
            raise EnvError(f"tool_execute_error_reward is {tool_execute_error_reward}; it must not be above 0.")
        if tool_execute_error_reward < 0 and (tool_reward or tool_success_reward):
            raise EnvError("With tool_execute_error_reward below 0, tool_reward and tool_success_reward must be 0.")
        if max_tool_uses is not None and max_tool_uses < 0:
            raise EnvError(f"max_tool_uses is {max_tool_uses}; it must be 0 or above, or None for no limit.")
        self.tool_reward, self.tool_success_reward = tool_reward, tool_success_reward
        self.tool_execute_error_reward = tool_execute_error_reward
        self.max_tool_uses = max_tool_uses
        self.uses = self.successes = 0
        self._shared_loop = loop
        self._running = False

    @cached_property
    def _loop(self) -> BackgroundLoop:
        return self._shared_loop or BackgroundLoop("gem tools")

    def own_state(self) -> dict[str, Any]:
        return {"uses": self.uses, "successes": self.successes, "running": self._running}

    def set_own_state(self, state: Mapping[str, Any]) -> None:
        self.uses, self.successes, self._running = state["uses"], state["successes"], state["running"]

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed)
        before = {"prev_ep_tool_use_counter": self.uses, "prev_ep_tool_success_counter": self.successes}
        self.uses = self.successes = 0
        self._running = True
        for tool in self.tools:
            if hasattr(tool, "reset"):
                tool.reset()  # type: ignore[attr-defined]
        return _add_text(observation, self.instructions()), {**info, **before, **self._counters(False)}

    def instructions(self) -> str:
        """What the agent is told about its tools."""
        uses = "" if self.max_tool_uses is None else f" At most {self.max_tool_uses} calls are carried out."
        lines = [f"- {_syntax(tool)}: {tool.description}" for tool in self.tools]
        return "\n".join(["", f"Before you act you may call a tool, one call a reply.{uses}", *lines])

    def step(self, action: str) -> Step:
        found = None
        if self._running and isinstance(action, str) and (self.max_tool_uses is None or self.uses < self.max_tool_uses):
            found = first_call(action, self.tools)
        if found is None:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._running = not (terminated or truncated)
            return observation, reward, terminated, truncated, {**info, **self._counters(False)}
        self.uses += 1
        result = self._call(found)
        reward = self.tool_reward
        if result.error is None:
            self.successes += 1
            reward += self.tool_success_reward
        elif self.tool_execute_error_reward:
            reward = self.tool_execute_error_reward
        text = f"Result of {found.name}:\n{result.text}"
        if self.uses == self.max_tool_uses:
            text = f"{text.rstrip()}\nThat was the last call; give your action now."
        info = {"parsed_action": action[: found.end], "tool_type": found.name, "tool_error": result.error}
        return text, float(reward), False, False, {**info, **self._counters(True)}

    def _call(self, found: Found) -> ToolResult:
        if found.problem is not None:
            return ToolResult(f"Error: {found.problem}.", found.problem)
        tool = by_name(self.tools).get(found.name)
        if tool is None:
            known = ", ".join(one.name for one in self.tools)
            return ToolResult(f"Error: there is no tool {found.name!r}; there are: {known}.", "unknown tool")
        return self._loop.run(tool.call(found.arguments))

    def _counters(self, use_tool: bool) -> dict[str, Any]:
        return {"tool_use_counter": self.uses, "tool_success_counter": self.successes, "use_tool": use_tool}

    def close(self) -> None:
        for tool in self.tools:
            if hasattr(tool, "close"):
                tool.close()  # type: ignore[attr-defined]
        if self._shared_loop is None and "_loop" in self.__dict__:
            self._loop.close()
        super().close()


def _syntax(tool: Any) -> str:
    tag = getattr(tool, "tag", None)
    if tag is not None:
        return f"<{tag}>...</{tag}>"
    return (
        f"<tool_call><tool_name>{tool.name}</tool_name><arguments>{{...}}</arguments></tool_call> with JSON arguments "
        f"of the form {dict(tool.parameters)}"
    )


def _add_text(observation: Any, text: str) -> Any:
    if isinstance(observation, str):
        return observation + text
    return {**observation, "text": observation.get("text", "") + text}


class Tokenizer(Protocol):
    """What `ObservationWrapper` needs: any tokenizer of transformers, or `ChatTemplate`."""

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> Any:
        """The messages as one text."""
        ...


class ChatTemplate:
    """ChatML, for those who have no tokenizer at hand: ``<|im_start|>role``, text, ``<|im_end|>``."""

    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, str]], *, tokenize: bool = False, add_generation_prompt: bool = True
    ) -> str:
        """The messages as one text; ``tokenize`` must be False."""
        if tokenize:
            raise EnvError("ChatTemplate makes texts; tokens need a tokenizer.")
        turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in conversation]
        return "".join(turns) + ("<|im_start|>assistant\n" if add_generation_prompt else "")


class ObservationWrapper(Wrapper):
    """Shows the agent the episode so far as one text: ``info["prefix"]``, history, ``info["suffix"]``.

    Parameters
    ----------
    include_action
        Show the agent's own actions between the observations (of a tool call: up to its end).
    include_chat_template
        As a conversation in the tokenizer's chat template; results of tools have the role ``tool``.
    apply_chat_template_on_reset
        Only the first observation, in the template; what follows is appended as it stands.
    max_history_length
        Turns shown before the current observation; None = all.
    tokenizer
        Of the chat template; `ChatTemplate` is one without a model.

    Raises
    ------
    EnvError
        Settings that exclude each other, or a template without a tokenizer.
    """

    def __init__(
        self,
        env: Env,
        include_action: bool = True,
        include_chat_template: bool = True,
        apply_chat_template_on_reset: bool = False,
        max_history_length: int | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__(env)
        if include_chat_template and apply_chat_template_on_reset:
            raise EnvError("include_chat_template and apply_chat_template_on_reset exclude each other.")
        if (include_chat_template or apply_chat_template_on_reset) and tokenizer is None:
            raise EnvError("A chat template needs a tokenizer: tokenizer=AutoTokenizer... or tokenizer=ChatTemplate().")
        if include_chat_template and not include_action:
            raise EnvError("A conversation needs the agent's actions: include_action=True.")
        if max_history_length is not None and max_history_length < 0:
            raise EnvError(f"max_history_length is {max_history_length}; it must be 0 or above, or None for all.")
        self.include_action = include_action
        self.include_chat_template = include_chat_template
        self.apply_chat_template_on_reset = apply_chat_template_on_reset
        self.tokenizer = tokenizer
        kept = max_history_length
        self.observations: deque[tuple[str, bool]] = deque(maxlen=None if kept is None else kept + 1)
        self.actions: deque[str] = deque(maxlen=kept)

    def own_state(self) -> dict[str, Any]:
        return {"observations": [list(pair) for pair in self.observations], "actions": list(self.actions)}

    def set_own_state(self, state: Mapping[str, Any]) -> None:
        self.observations = deque(((o, t) for o, t in state["observations"]), maxlen=self.observations.maxlen)
        self.actions = deque(state["actions"], maxlen=self.actions.maxlen)

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed)
        text = self._text(observation)
        self.observations.clear()
        self.actions.clear()
        if self.apply_chat_template_on_reset:
            text = self._templated([{"role": "user", "content": text}])
        self.observations.append((text, bool(info.get("use_tool", False))))
        return self._shown(observation, info), info

    def step(self, action: str) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.actions.append(info.get("parsed_action", action))
        self.observations.append((self._text(observation), bool(info.get("use_tool", False))))
        return self._shown(observation, info), reward, terminated, truncated, info

    def _text(self, observation: Any) -> str:
        return observation if isinstance(observation, str) else str(observation.get("text", ""))

    def _shown(self, observation: Any, info: Mapping[str, Any]) -> Any:
        text = f"{info.get('prefix', '')}{self._history()}{info.get('suffix', '')}"
        return text if isinstance(observation, str) else {**observation, "text": text}

    def _history(self) -> str:
        if self.include_chat_template:
            messages = []
            for at, (text, of_tool) in enumerate(self.observations):
                messages.append({"role": "tool" if of_tool else "user", "content": text})
                if at < len(self.actions):
                    messages.append({"role": "assistant", "content": self.actions[at]})
            return self._templated(messages)
        parts = []
        for at, (text, _) in enumerate(self.observations):
            parts.append(_line(text))
            if self.include_action and at < len(self.actions):
                parts.append(_line(self.actions[at]))
        return "".join(parts)

    def _templated(self, messages: Sequence[Mapping[str, str]]) -> str:
        assert self.tokenizer is not None
        return self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


class EpisodeTrackingWrapper(Wrapper):
    """Adds ``step_counter`` and ``cumulative_rewards`` to info, and those of the previous episode at reset.

    The outermost wrapper: inside another it would not see that one's rewards.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.step_counter = 0
        self.cumulative_rewards = 0.0

    def own_state(self) -> dict[str, Any]:
        return {"step_counter": self.step_counter, "cumulative_rewards": self.cumulative_rewards}

    def set_own_state(self, state: Mapping[str, Any]) -> None:
        self.step_counter, self.cumulative_rewards = state["step_counter"], state["cumulative_rewards"]

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed)
        before = {
            "prev_ep_step_counter": self.step_counter,
            "prev_ep_cumulative_rewards": self.cumulative_rewards,
        }
        self.step_counter, self.cumulative_rewards = 0, 0.0
        return observation, {**info, **before, **self.own_state()}

    def step(self, action: str) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.step_counter += 1
        self.cumulative_rewards += reward
        return observation, reward, terminated, truncated, {**info, **self.own_state()}


# -- by name -----------------------------------------------------------------------------------------------------------


def _python_tool(env: Env, *, errors: Any = "all", **rewards: Any) -> ToolEnvWrapper:
    from assay.systems.tools.python import PythonTool

    # One object an environment. The sandbox below is shared: its processes are apart, and a tool keeps the names.
    tools = partial(_listed, PythonTool, sandbox=shared_sandbox("auto"), seconds=TOOL_SECONDS, errors=errors)
    return ToolEnvWrapper(env, tools, max_tool_uses=TOOL_USES, **rewards)


def _listed(make: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    return [make(*args, **kwargs)]


def _search_tool(env: Env, *, search: Index | str | None = None, **rewards: Any) -> ToolEnvWrapper:
    import os

    from assay.systems.tools.search import SearchTool

    source = search if search is not None else os.environ.get("SEARCH_URL")
    if source is None:
        raise EnvError("The search tool needs a server or an index: set SEARCH_URL or give search=.")
    tools = partial(_listed, SearchTool, source, topk=3, seconds=TOOL_SECONDS)
    return ToolEnvWrapper(env, tools, max_tool_uses=TOOL_USES, **rewards)


WRAPPER_FACTORY: Mapping[str, Callable[..., Env]] = {
    "python_tool": partial(_python_tool, tool_reward=0.05, tool_success_reward=0.25),
    "python_tool_no_int_reward": _python_tool,
    "python_tool_no_int_reward_last_line_error": partial(_python_tool, errors="last"),
    "search_tool": partial(_search_tool, tool_reward=0.3),
    "search_tool_no_int_reward": _search_tool,
    "concat": partial(ObservationWrapper, include_action=False, include_chat_template=False),
    "concat_with_action": partial(ObservationWrapper, include_chat_template=False),
    "concat_chat": ObservationWrapper,
    "concat_chat_on_reset": partial(ObservationWrapper, include_chat_template=False, apply_chat_template_on_reset=True),
    "episode_tracking": EpisodeTrackingWrapper,
}
"""Published names of wrappers. Called with an environment, each makes its tools anew."""

_CHAT = ("concat_chat", "concat_chat_on_reset")
_SEARCH = ("search_tool", "search_tool_no_int_reward")


def get_wrapper_fns(
    wrappers: str, tokenizer: Tokenizer | None = None, *, search: Index | str | None = None
) -> list[WrapperFn]:
    """Wrappers by their names, in order from inside.

    Parameters
    ----------
    wrappers
        Names by comma; "" = none.
    tokenizer
        Of the chat wrappers; None = the built-in `ChatTemplate`.
    search
        Index or address of the search tools; None = the variable SEARCH_URL.

    Raises
    ------
    EnvError
        Unknown name.
    """
    out: list[WrapperFn] = []
    for name in filter(None, (part.strip() for part in wrappers.split(","))):
        if name not in WRAPPER_FACTORY:
            raise EnvError(str(unknown_name("wrapper", name, WRAPPER_FACTORY)))
        fn: Any = WRAPPER_FACTORY[name]
        if name in _CHAT:
            fn = partial(fn, tokenizer=tokenizer or ChatTemplate())
        elif name in _SEARCH:
            fn = partial(fn, search=search)
        out.append(fn)
    return out


def wrap(env: Env, wrappers: Sequence[WrapperFn]) -> Env:
    """``env`` in the wrappers, the first one innermost."""
    for wrapper in wrappers:
        env = wrapper(env)
    return env
