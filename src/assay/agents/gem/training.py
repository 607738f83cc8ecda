"""gem-training: which algorithm learns best? Small policies on a processor, seeds as attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.metrics import macro, mean

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.agents.gem"
_TRAINERS = f"{_ROOM}.trainers"
ALGORITHMS = {
    "rebn": (f"{_TRAINERS}.rebn:ReBN", {}),
    "reinforce": (f"{_TRAINERS}.reinforce:Reinforce", {}),
    "grpo": (f"{_TRAINERS}.grpo:GRPO", {"kind": "grpo"}),
    "dr_grpo": (f"{_TRAINERS}.grpo:GRPO", {"kind": "dr_grpo"}),
    "rloo": (f"{_TRAINERS}.grpo:GRPO", {"kind": "rloo"}),
    "ppo": (f"{_TRAINERS}.ppo:PPO", {}),
}
"""Where each algorithm is, and its settings."""

DEFAULT_ENVS = "game:TowerofHanoi-v0-easy,game:GuessTheNumber-v0-easy"


@runtime_checkable
class TurnAlgorithm(Protocol):
    """An algorithm of `assay.agents.gem.trainers`: collects episodes, learns from them."""

    name: str
    lr: float

    def collect(self, rollout: Any, seeds: Any) -> Any:
        """Episodes of a batch."""
        ...

    def learn(self, policy: Any, optimizer: Any, episodes: Any) -> None:
        """Make the policy better by them."""
        ...


class Learning(Task):
    """One sample an environment; an attempt is a seed of weights, sampling and episodes."""

    name = "learning"
    system = TurnAlgorithm
    attempts = 5
    resample = "attempts"
    needs = Needs(cpus=1)

    def __init__(self, benchmark: GemTraining) -> None:
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """Environments."""
        from assay.agents.gem.episodes import level_of

        bench = self.benchmark
        ids = bench.curriculum[-1:] or bench.envs
        return [Sample(env, input=env, groups={"env": env, "level": level_of(env)}) for env in ids]

    def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Train a fresh policy; rows are the curve."""
        import math

        from assay.agents.gem.trainers.curriculum import Curriculum
        from assay.agents.gem.trainers.loop import single_thread, train
        from assay.agents.gem.trainers.worlds import new_policy, world

        bench, seed = self.benchmark, ctx.attempt
        levels = bench.curriculum or [sample.input]
        curriculum = Curriculum(levels, target=bench.target) if bench.curriculum else None

        def report(row: dict[str, float]) -> None:
            if curriculum is not None:
                row["level"] = float(curriculum.level)
            ctx.progress(row["turns"], bench.turns)

        with single_thread():
            done = train(
                system, new_policy(bench.policy, levels, seed),
                partial(world, sample.input) if curriculum is None else curriculum.world, turns=bench.turns,
                seed=seed, final_episodes=bench.eval_episodes, report=report,
            )  # fmt: skip
        rows = [{name: None if math.isnan(v) else v for name, v in row.items()} for row in done.curve]
        scores = {
            f"final_{name}": rows[-1][name] for name in ("return", "solved", "episode_turns", "turns_when_solved")
        }
        scores["mean_return"] = sum(row["return"] or 0.0 for row in rows) / len(rows)
        output: dict[str, Any] = {"turns": done.turns, "updates": done.updates}
        if curriculum is not None:
            output["curriculum"] = [asdict(stage) for stage in curriculum.stages]
        return Outcome(scores, output, {"algorithm": system.name}, rows)


class GemTraining(Benchmark):
    """Train small policies with algorithms of reinforcement learning over turns.

    Parameters
    ----------
    envs
        Ids by comma; those that `assay.agents.gem.trainers.worlds.replies` has a list for.
    turns
        Turns of the environment that every algorithm learns from.
    policy
        ``action``: chooses among a list of replies; ``char``: writes its reply letter by letter (games of one number).
    eval_episodes
        Of the evaluation at the end.
    curriculum
        Ids by comma, easiest first, in place of ``envs``: the next is begun when the share ``target`` of the last 50
        episodes was solved; evaluations are on the last. Rows hold the level, the output the curve of each level.
    target
        See ``curriculum``.
    """

    name = "gem-training"
    title = "GEM training: which algorithm learns best from turns?"
    paper = "arXiv 2510.01051"
    extras = ("gem",)
    metrics = (
        macro("final_return", over="env", headline=True, name="final_return_macro_by_env"),
        mean("final_return", by=("env",)),
        mean("final_solved", by=("env",), bounds=(0, 1)),
        mean("final_turns_when_solved", by=("env",), error=None, higher_is_better=False),
        mean("mean_return", name="curve_mean_return", by=("env",)),
    )
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("algorithms", "curves", "gamma")}
    recipes = {"reproduce": f"{_ROOM}.recipes.reproduce:reproduce"}

    def __init__(
        self,
        *,
        envs: str = DEFAULT_ENVS,
        turns: int = 12_000,
        policy: Literal["action", "char"] = "action",
        eval_episodes: int = 256,
        curriculum: str = "",
        target: float = 0.8,
    ) -> None:
        for name, value in (("turns", turns), ("eval_episodes", eval_episodes)):
            if value < 1:
                raise UsageError(f"Option {name}={value} must be at least 1.")
        self.turns, self.policy, self.eval_episodes = turns, policy, eval_episodes
        if not 0 < target <= 1:
            raise UsageError(f"Option target={target} must lie in (0, 1].")
        self._envs, self._curriculum, self.target = envs, curriculum, target
        if curriculum and len(self.curriculum) < 2:
            raise UsageError(f"Option curriculum={curriculum}: give at least two ids by comma, the easiest first.")

    @property
    def curriculum(self) -> list[str]:
        """Ids of the levels, each known to the registry; empty where there is none."""
        from assay.agents.gem.episodes import listed

        return listed(self._curriculum) if self._curriculum else []

    @property
    def envs(self) -> list[str]:
        """Ids, each known to the registry."""
        from assay.agents.gem.episodes import listed

        return listed(self._envs)

    def tasks(self) -> Sequence[Task]:
        """One: learning."""
        return [Learning(self)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Algorithms; ``method:rebn?gamma=1.0&lr=0.01`` sets their parameters."""
        return {name: partial(algorithm, name) for name in ALGORITHMS}


def algorithm(method: str, /, **settings: Any) -> TurnAlgorithm:
    """An algorithm by its name in `ALGORITHMS`, with its parameters."""
    import inspect
    from importlib import import_module

    from assay.core.errors import unknown_name

    where, fixed = ALGORITHMS[method]
    module, _, attribute = where.partition(":")
    cls = getattr(import_module(module), attribute)
    known = [name for name in inspect.signature(cls).parameters if name not in (*fixed, "name")]
    for name in settings:
        if name not in known:
            raise unknown_name(f"parameter of {method}", name, known)
    return cls(**fixed, **settings)
