"""An episode of the benchmark: which environment, who plays, what is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.agents.gem.catalogue import GEM24
from assay.agents.gem.env import Env, EnvError
from assay.agents.gem.registry import REGISTRY
from assay.agents.gem.solvers.policy import SolverPolicy, has_solver, optimal_turns
from assay.agents.gem.wrappers import ObservationWrapper, ToolEnvWrapper
from assay.core.benchmark import Outcome
from assay.core.errors import UsageError
from assay.systems.agent import Limits, lift, play
from assay.systems.chat.model import ChatModel
from assay.systems.tools.background import BackgroundLoop
from assay.systems.trace import Step, Trace

LEVELS = ("extreme-hard", "easy", "hard", "random")


def listed(text: str) -> list[str]:
    """Ids with settings, from a list by comma; ``gem24`` stands for `GEM24`.

    Raises
    ------
    UsageError
        An unknown id, settings that are none, or no id at all.
    """
    out: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        out += GEM24 if part.lower() == "gem24" else [part]
    for one in out:
        REGISTRY.spec(parsed(one)[0])
    if not out:
        raise UsageError("Option envs is empty; give at least one id, game:GuessTheNumber-v0-easy say.")
    return list(dict.fromkeys(out))


def parsed(env: str) -> tuple[str, dict[str, Any]]:
    """Id and settings of ``id?key=value&key=value``; values are JSON where they can be read as such, else texts."""
    env_id, _, rest = env.partition("?")
    settings: dict[str, Any] = {}
    for pair in filter(None, rest.split("&")):
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"Environment {env!r}: {pair!r} is no setting; write id?key=value&key=value.")
        try:
            settings[key] = json.loads(value)
        except (ValueError, RecursionError):
            settings[key] = value
    return env_id, settings


def built(env: str) -> Env:
    """The environment of ``id?key=value``."""
    env_id, settings = parsed(env)
    return REGISTRY.make(env_id, **settings)


def level_of(env: str) -> str:
    """Level in an id (``easy``), or ``-``."""
    env_id = env.partition("?")[0]
    return next((level for level in LEVELS if env_id.endswith(f"-{level}")), "-")


@dataclass(slots=True)
class Toolbox:
    """What the tools of one process share: a sandbox, an index, a loop."""

    sandbox: Any = None
    source: Any = None
    loop: BackgroundLoop | None = None

    def tools(self, names: tuple[str, ...]) -> list[Any]:
        """Tools of one episode: objects of its own."""
        out: list[Any] = []
        if "python" in names:
            from assay.systems.tools.python import PythonTool

            out.append(PythonTool(self.sandbox))
        if "search" in names:
            from assay.systems.tools.search import SearchTool

            out.append(SearchTool(self.source))
        return out


@contextmanager
def toolbox(names: tuple[str, ...], search: str | None) -> Iterator[Toolbox]:
    """Open what the tools need, and close it."""
    box = Toolbox()
    try:
        if "python" in names:
            from assay.sandbox import Sandbox

            box.sandbox = Sandbox()
        if "search" in names:
            from assay.systems.tools.retrieval import BM25, read_passages

            assert search is not None
            box.source = search if search.startswith(("http://", "https://")) else BM25(read_passages(Path(search)))
        if names:
            box.loop = BackgroundLoop("gem tools")
        yield box
    finally:
        if box.loop is not None:
            box.loop.close()
        if box.sandbox is not None:
            box.sandbox.close()


def regrets(env: str, seed: int, actions: Sequence[str]) -> tuple[int | None, list[float | None]]:
    """Fewest turns from the start of an episode, and how many turns each action lost against the best one there.

    An episode is played again for it. Without actions, only the start is looked at. None where the fewest turns are
    not known or the goal is out of reach: GuessTheNumber has none, since what is known of it is what always suffices,
    and luck beats that.
    """
    with built(env) as made:
        if type(made.unwrapped).__name__ == "GuessTheNumber":
            return None, [None] * len(actions)
        made.reset(seed)
        best = before = optimal_turns(made)
        lost: list[float | None] = []
        for action in actions:
            info = made.step(action)[4]
            after = 0 if info.get("solved") else optimal_turns(made)
            lost.append(None if before is None or after is None else float(1 + after - before))
            before = after
        return best, lost


def moves(trace: Trace) -> list[Step]:
    """The steps that the environment took, tool calls apart."""
    return [step for step in trace.steps if step.kind == "environment" and not (step.info or {}).get("use_tool")]


def reference_episode(env: str, seed: int, player: str, policy_seed: int) -> Trace:
    """An episode of ``random`` or ``solver``, in this process.

    Raises
    ------
    EnvError
        The environment has no solver, or no random actions.
    """
    with built(env) as made:
        if player == "solver" and not has_solver(made):
            raise EnvError(f"There is no solver for {made.name}; leave it out of envs=, or play method:random.")
        observation, info = made.reset(seed)
        policy = SolverPolicy(policy_seed)
        rng = _generator(policy_seed)
        trace = Trace([{"role": "user", "content": _text(observation, info)}], info={"agent": player, "seed": seed})
        for turn in range(100_000):
            action = policy.act(made) if player == "solver" else made.unwrapped.random_action(rng)
            observation, reward, terminated, truncated, info = made.step(action)
            trace.messages.append({"role": "assistant", "content": action})
            trace.steps.append(Step("model", turn, len(trace.messages) - 1))
            trace.messages.append({"role": "user", "content": _text(observation, info)})
            kept = json.loads(json.dumps(info, default=str))
            trace.steps.append(
                Step(
                    "environment", turn, len(trace.messages) - 1, action=action, reward=reward, terminated=terminated,
                    truncated=truncated, info=kept,
                )
            )  # fmt: skip
            trace.info["final"] = kept
            if terminated or truncated:
                ended = terminated and (not truncated or bool(info.get("solved")))
                trace.end = "terminated" if ended else "truncated"
                return trace
    raise EnvError(f"{env}: no end after 100,000 turns; give it max_turns.")


def _generator(seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed)


def _text(observation: Any, info: Mapping[str, Any]) -> str:
    text = observation if isinstance(observation, str) else str(observation.get("text", ""))
    return f"{text}\n{info['suffix']}" if info.get("suffix") else text


async def played(
    system: Any, env: str, seed: int, settings: Mapping[str, Any], box: Toolbox, sampling_seed: int
) -> Trace:
    """An episode of a chat model or an agent."""
    made = built(env)
    tools = box.tools(settings["tools"])
    native = settings["tool_style"] == "native"
    if tools and not native:
        made = ToolEnvWrapper(made, tools, max_tool_uses=settings["tool_uses"], loop=box.loop)
    told = settings["show"] == "history"
    kept = settings["history"]
    made = ObservationWrapper(
        made, include_action=told, include_chat_template=False, max_history_length=kept if told else 0
    )
    sampling = {"temperature": settings["temperature"], "max_tokens": settings["max_tokens"]}
    actor = _Seeded(system, sampling_seed) if isinstance(system, ChatModel) else system
    if tools and native:
        # An agent that the user brings samples as it was built to; a lifted model as the options say.
        actor = lift(actor, settings["agent"], **sampling)
    try:
        return await play(
            actor, made, limits=Limits(turns=settings["turns"]), seed=seed, tools=tools if native else (),
            history=0 if told else kept, **sampling,
        )  # fmt: skip
    finally:
        made.close()


class _Seeded:
    """A chat model whose replies are drawn with the trial's seed: ``seed`` of `play` is the episode's."""

    def __init__(self, model: ChatModel, seed: int) -> None:
        self.model = model
        self.seed = seed
        self.name = model.name

    async def generate(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Ask the model."""
        return await self.model.generate(messages, **{"seed": self.seed, **options})


@dataclass(slots=True)
class _Counts:
    calls: int = 0
    moves: int = 0
    invalid: int = 0
    unread: int = 0


def outcome(trace: Trace, best: int | None = None, lost: Sequence[float | None] = ()) -> Outcome:
    """Scores, groups and rows of an episode; ``best`` and ``lost`` from `regrets`.

    ``turns`` are moves of the environment, tool calls apart. ``solved`` is None where the environment does not say.
    """
    counts = _Counts(calls=trace.tool_calls)
    for step in trace.steps:
        if step.kind != "environment":
            continue
        info = step.info or {}
        if info.get("use_tool"):
            counts.calls += 1
            continue
        counts.moves += 1
        counts.invalid += info.get("valid") is False
        counts.unread += info.get("format_error") is True
    final = trace.info.get("final") or {}
    solved = final.get("solved", final.get("correct"))
    won = solved is True
    scores: dict[str, float | None] = {
        "return": trace.total_reward,
        "solved": None if solved is None else float(won),
        "turns": float(counts.moves),
        "turns_when_solved": float(counts.moves) if won else None,
        "regret_turns": float(counts.moves - best) if won and best is not None else None,
        "tool_calls": float(counts.calls),
        "invalid_moves": float(counts.invalid),
        "cut_replies": float(trace.cut_replies),
    }
    groups = {"end": trace.end, "read": "unread" if counts.unread else "box"}
    output = {"actions": trace.actions, "seed": trace.info.get("seed"), "episode": "episode.json"}
    rows = trace.rows()
    if lost:
        of_step = dict(zip(map(id, moves(trace)), lost, strict=True))
        rows = [{**row, "regret": of_step.get(id(step))} for row, step in zip(rows, trace.steps, strict=True)]
    return Outcome(scores, output, groups, rows)
