"""GEM: language agents in games, on questions, with tools; and the algorithms that train them (arXiv 2510.01051)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.metrics import avg_at, macro, mean, rate
from assay.systems.agent import Actor

if TYPE_CHECKING:
    from assay.core.context import Context
    from assay.systems.trace import Trace

_ROOM = "assay.agents.gem"

DEFAULT_ENVS = (
    "game:GuessTheNumber-v0-easy,game:Mastermind-v0-easy,game:Wordle-v0-easy,game:FifteenPuzzle-v0-easy,"
    "game:Hangman-v0-easy,game:Sudoku-v0-easy,game:TowerofHanoi-v0-easy,game:Game2048-v0-easy"
)


@runtime_checkable
class EnvPlayer(Protocol):
    """A player that is given the environment itself, not what it shows."""

    name: str

    def episode(self, env: str, seed: int, policy_seed: int) -> Trace:
        """Play the episode, in whatever process this is called."""
        ...


class EnvPolicy:
    """The reference players: ``random`` (actions that can be read) or ``solver`` (`SolverPolicy`)."""

    def __init__(self, name: Literal["random", "solver"]) -> None:
        self.name = name

    def episode(self, env: str, seed: int, policy_seed: int) -> Trace:
        """Play the episode."""
        from assay.agents.gem.episodes import reference_episode

        return reference_episode(env, seed, self.name, policy_seed)


class _Either(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (EnvPlayer, Actor))


class Player(metaclass=_Either):
    """A chat model, an agent, or a reference player."""


class Episodes(Task):
    """One sample an environment and seed: an episode, played to its end."""

    name = "episodes"
    system = Player

    def __init__(self, benchmark: Gem) -> None:
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """The same episode for every system and attempt: its seed is the sample's."""
        from assay.agents.gem.episodes import level_of

        return [
            Sample(
                f"{env}#{seed}",
                input={"env": env, "seed": seed},
                groups={"env": env, "family": env.partition(":")[0], "level": level_of(env)},
            )
            for env in self.benchmark.envs
            for seed in range(self.benchmark.first_seed, self.benchmark.first_seed + self.benchmark.episodes)
        ]

    def setup(self, system: Any, ctx: Context) -> Any:
        """Tools of the process."""
        from assay.agents.gem.episodes import toolbox

        return toolbox(self.benchmark.tools, self.benchmark.search)

    async def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Play; the trace is an artifact, its steps are the rows."""
        from assay.agents.gem import episodes

        bench, env, seed = self.benchmark, sample.input["env"], sample.input["seed"]
        if isinstance(system, EnvPlayer):
            trace = await ctx.compute(system.episode, env, seed, ctx.seed % 2**32)
        else:
            trace = await episodes.played(system, env, seed, bench.settings, ctx.state, ctx.seed % 2**31)
        trace.save(ctx.artifacts, "episode.json")
        if bench.regret == "none":
            return episodes.outcome(trace)
        actions = [step.action or "" for step in episodes.moves(trace)] if bench.regret == "steps" else []
        return episodes.outcome(trace, *await ctx.compute(episodes.regrets, env, seed, actions))


class Gem(Benchmark):
    """Play environments of the zoo.

    Parameters
    ----------
    envs
        Ids by comma, each with settings if wanted: ``game:Sokoban-v0-easy?max_turns=30``,
        ``math:GSM8K?data=problems.jsonl``; ``gem24`` = the selection of that name.
    episodes
        An environment; seeds count from ``first_seed``. Attempts play the same episodes again.
    tools
        By comma: ``python``, ``search``.
    tool_style
        ``text``: tags in the action, as published; ``native``: the model's own tool calls, by an agent.
    search
        What the search tool searches: a folder, a JSON-lines file, or the address of a server.
    tool_uses
        Calls an episode, in text style.
    agent
        Of native tools: tool_loop, react or plan.
    show
        ``conversation``: observations are the user's messages, with the board at their end; ``history``: the first
        observation, then one message that holds all observations and actions so far.
    history
        Turns shown before the current one; None = all.
    turns
        Replies an episode at most, tool calls included; None = the environment ends it.
    temperature, max_tokens
        Of each reply. Published evaluation: 0.6.
    regret
        ``episode``: also compute the fewest turns from the start, where they are known (seconds for the largest
        puzzles). ``steps``: after every action too; the column ``regret`` of the rows says how many turns it lost.
    """

    name = "gem"
    title = "GEM: language agents in games, questions and tools"
    paper = "arXiv 2510.01051"
    extras = ("gem",)
    metrics = (
        macro("return", over="env", headline=True, name="return_macro_by_env"),
        mean("return", name="return_micro", by=("env", "level")),
        avg_at("solved", name="solved_avg@n", by=("env", "level"), bounds=(0, 1)),
        mean("turns", by=("env",), error=None, higher_is_better=False, bounds=(0, None)),
        mean("turns_when_solved", by=("env",), error=None, higher_is_better=False),
        mean("regret_turns", by=("env",), error=None, higher_is_better=False),
        mean("tool_calls", error=None, higher_is_better=False, bounds=(0, None)),
        mean("invalid_moves", error=None, higher_is_better=False, bounds=(0, None)),
        rate("read", "unread", name="unread_rate", error=None, higher_is_better=False),
    )
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("levels", "outcomes", "tools")}
    recipes = {"replay": f"{_ROOM}.recipes.replay:replay"}

    def __init__(
        self,
        *,
        envs: str = DEFAULT_ENVS,
        episodes: int = 10,
        first_seed: int = 0,
        tools: str = "",
        tool_style: Literal["text", "native"] = "text",
        search: str | None = None,
        tool_uses: int = 5,
        agent: Literal["tool_loop", "react", "plan"] = "tool_loop",
        show: Literal["conversation", "history"] = "conversation",
        history: int | None = None,
        turns: int | None = None,
        temperature: float = 0.6,
        max_tokens: int = 1024,
        regret: Literal["none", "episode", "steps"] = "none",
    ) -> None:
        for name, value, least in (
            ("episodes", episodes, 1),
            ("first_seed", first_seed, 0),
            ("tool_uses", tool_uses, 0),
        ):
            if value < least:
                raise UsageError(f"Option {name}={value} must be at least {least}.")
        self._envs = envs
        self.episodes, self.first_seed, self.regret = episodes, first_seed, regret
        self.tools = tuple(dict.fromkeys(part.strip() for part in tools.split(",") if part.strip()))
        for tool in self.tools:
            if tool not in ("python", "search"):
                raise UsageError(f"Option tools: {tool!r} is not known; there are python, search.")
        if "search" in self.tools and search is None:
            raise UsageError("Option tools=search needs search=: a folder, a JSON-lines file or a server's address.")
        self.search = search
        self.settings = {
            "tools": self.tools, "tool_style": tool_style, "tool_uses": tool_uses, "agent": agent, "show": show,
            "history": history, "turns": turns, "temperature": temperature, "max_tokens": max_tokens,
        }  # fmt: skip

    @cached_property
    def envs(self) -> list[str]:
        """Ids, with their settings; every one is known to the registry."""
        from assay.agents.gem.episodes import listed

        return listed(self._envs)

    def tasks(self) -> Sequence[Task]:
        """Episodes, all environments in one task."""
        return [Episodes(self)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """``random``: actions that can be read; ``solver``: exact or good play."""
        return {name: partial(EnvPolicy, name) for name in ("random", "solver")}
