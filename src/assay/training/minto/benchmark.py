"""MINTO: which bootstrap target learns fastest? (arXiv 2510.02590)"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task, Trial
from assay.core.errors import UsageError
from assay.core.metrics import function, mean

if TYPE_CHECKING:
    import polars as pl

    from assay.core.context import Context

_ROOM = "assay.training.minto"


@runtime_checkable
class DiscreteLearner(Protocol):
    """Learns to act by whole numbers: many seeds in one call, a `settings.Curve` a seed."""

    def train_discrete(
        self, recipe: Any, seeds: Sequence[int], *, checkpoint: Any = None, progress: Any = None
    ) -> Sequence[Any]:
        """Curves of `settings.Recipe` for each seed."""
        ...


@runtime_checkable
class OfflineLearner(Protocol):
    """Learns from recorded transitions of a task with whole-number actions."""

    def train_offline(
        self, recipe: Any, data: Any, seeds: Sequence[int], *, checkpoint: Any = None, progress: Any = None
    ) -> Sequence[Any]:
        """Curves by update; a step of the recipe is an update."""
        ...


@runtime_checkable
class ContinuousLearner(Protocol):
    """Learns to act by real numbers, one seed a call."""

    def train_continuous(self, env: str, seed: int, settings: Mapping[str, Any]) -> Any:
        """The curve of one seed."""
        ...


def _iqm(frame: pl.DataFrame) -> float:
    from assay.core.stats.trends import interquartile_mean

    values = frame["auc_normalised"].drop_nulls()
    return interquartile_mean(values.to_numpy()) if len(values) else float("nan")


class _Learning(Task):
    """What learning tasks share: a sample is an environment, an attempt is a seed."""

    attempts = 16
    resample = "attempts"
    modalities = ("environment",)
    suite: str

    def __init__(self, benchmark: Minto, names: Sequence[str]) -> None:
        self.benchmark, self.names = benchmark, names
        if benchmark.recipe["device"] != "cpu":
            self.needs = Needs(gpus=1)

    def samples(self) -> Sequence[Sample]:
        """One an environment."""
        return [
            Sample(name, {"env": name}, groups={"env": name, "suite": self.suite}, cluster=name) for name in self.names
        ]


class _Batched(_Learning):
    """All seeds of one environment in one call."""

    def batch_key(self, trial: Trial) -> Hashable:
        """The environment."""
        return trial.sample.id

    def trials(self, system: Any, batch: Sequence[Trial], ctx: Context) -> Iterable[Outcome]:
        """Train every seed; points of the curve are the rows."""
        env, seeds = batch[0].sample.input["env"], [trial.seed for trial in batch]
        checkpoint = ctx.scratch / "training.pt"
        curves = self.train(system, env, seeds, checkpoint=checkpoint, progress=ctx.progress)
        return [_outcome(curve, env) for curve in curves]

    def train(self, system: Any, env: str, seeds: Sequence[int], **kwargs: Any) -> Sequence[Any]:
        """One curve a seed."""
        raise NotImplementedError


class Online(_Batched):
    """Play and learn; whole-number actions."""

    name = suite = "online"
    system = DiscreteLearner

    def train(self, system: DiscreteLearner, env: str, seeds: Sequence[int], **kwargs: Any) -> Sequence[Any]:
        """One curve a seed."""
        return system.train_discrete(self.benchmark.make_recipe(env), seeds, **kwargs)


class Offline(_Batched):
    """Learn from what a half-trained DQN played; whole-number actions."""

    name = suite = "offline"
    system = OfflineLearner

    def train(self, system: OfflineLearner, env: str, seeds: Sequence[int], **kwargs: Any) -> Sequence[Any]:
        """One curve a seed, all on the same transitions."""
        from assay.training.minto.recipes import behaviour

        recipe = self.benchmark.make_recipe(env)
        data = behaviour(recipe, share=self.benchmark.share)
        return system.train_offline(recipe, data, seeds, **kwargs)


class Continuous(_Learning):
    """Play and learn; real-number actions."""

    name = suite = "continuous"
    system = ContinuousLearner

    def trial(self, system: ContinuousLearner, sample: Sample, ctx: Context) -> Outcome:
        """Train one seed; points of the curve are the rows."""
        return _outcome(
            system.train_continuous(sample.input["env"], ctx.seed, self.benchmark.continuous_settings),
            sample.input["env"],
        )


def _outcome(curve: Any, env: str) -> Outcome:
    from assay.training.minto.envs import scale

    last = curve.rows[-1]
    scores = {
        "auc": curve.auc,
        "auc_normalised": float(scale(env, curve.auc)),
        "final": last["return"],
        "online_rate": last.get("online_rate"),
        "overestimation": last.get("overestimation"),
        "target_mean": last.get("target_mean"),
        "diverged": float(curve.diverged is not None),
    }
    finite = {k: v if v is None or abs(v) < float("inf") else None for k, v in scores.items()}
    return Outcome(finite, {"diverged": curve.diverged, "episodes": len(curve.episodes)}, rows=curve.rows)


class Minto(Benchmark):
    """Learning curves of value learners with equal seeds.

    Parameters
    ----------
    env, continuous, offline
        Environments by comma, one task each; "" leaves the task out. `envs.ENVS` and gymnasium's own.
    steps, batch_size, lr, copy_every, eps_steps, eval_every, eval_episodes, hidden, loss, n_step, reward_noise, gamma
        As in `settings.Recipe`.
    continuous_steps, continuous_lr, continuous_batch
        Steps, learning rate and batch of actor-critic learners; they are evaluated as often as ``steps`` are.
    share
        Part of the half-trained learner's transitions that offline learners get.
    """

    name = "minto"
    title = "MINTO: bootstrap from the minimum of target and online network"
    paper = "arXiv:2510.02590"
    extras = ("minto",)
    references = "references.json"
    metrics = (
        function("iqm_auc", _iqm, ["auc_normalised"], headline=True, by=("env", "suite")),
        mean("auc", by=("env", "suite")),
        mean("final", error=None),
        mean("online_rate", error=None, bounds=(0, 1)),
        mean("overestimation", error=None, higher_is_better=False),
        mean("diverged", error=None, higher_is_better=False, bounds=(0, 1)),
    )
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("table", "gain", "curves", "values")}
    recipes = {
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        "curves": f"{_ROOM}.recipes:curves",
        "bias": f"{_ROOM}.recipes:bias",
        "scales": f"{_ROOM}.recipes:scales",
        "record": f"{_ROOM}.recipes:record_behaviour",
    }

    def __init__(
        self,
        env: str = "CartPole-v1",
        *,
        continuous: str = "Pendulum-v1",
        offline: str = "CartPole-v1",
        steps: int = 6000,
        hidden: str = "64,64",
        batch_size: int = 64,
        lr: float = 1e-3,
        gamma: float = 0.99,
        copy_every: int = 200,
        eps_steps: int = 1500,
        loss: Literal["square", "huber"] = "square",
        n_step: int = 1,
        reward_noise: float = 0.0,
        eval_every: int = 500,
        eval_episodes: int = 4,
        continuous_steps: int = 5000,
        continuous_lr: float = 1e-3,
        continuous_batch: int = 128,
        share: float = 0.2,
        device: str = "cpu",
    ) -> None:
        self.names = {
            kind: [part.strip() for part in text.split(",") if part.strip()]
            for kind, text in (("online", env), ("offline", offline), ("continuous", continuous))
        }
        if not any(self.names.values()):
            raise UsageError("Options env, offline and continuous are all empty; name at least one environment.")
        try:
            widths = tuple(int(part) for part in hidden.split(","))
        except ValueError:
            raise UsageError(f"Option hidden={hidden!r} must be whole numbers separated by commas.") from None
        if min(widths) < 1 or not 0 < share <= 1 or continuous_steps < 1:
            raise UsageError(
                f"Options hidden={hidden!r} and continuous_steps={continuous_steps} must be at least 1, share={share} "
                "in (0, 1]."
            )
        self.share = share
        self.recipe: dict[str, Any] = {
            "steps": steps, "hidden": widths, "batch_size": batch_size, "lr": lr, "gamma": gamma,
            "copy_every": copy_every, "eps_steps": eps_steps, "loss": loss, "n_step": n_step,
            "reward_noise": reward_noise, "eval_every": eval_every, "eval_episodes": eval_episodes, "device": device,
        }  # fmt: skip
        for name in ("steps", "batch_size", "copy_every", "eval_every", "n_step"):
            if self.recipe[name] < 1:
                raise UsageError(f"Option {name}={self.recipe[name]} must be at least 1.")
        self.continuous_settings: dict[str, Any] = {
            "steps": continuous_steps, "lr": continuous_lr, "batch_size": continuous_batch, "gamma": gamma,
            "eval_every": max(1, continuous_steps * eval_every // steps), "eval_episodes": max(1, eval_episodes),
            "device": device,
        }  # fmt: skip

    def make_recipe(self, env: str) -> Any:
        """The recipe of the many-seed trainer for an environment."""
        from assay.training.minto.settings import Recipe

        return Recipe(env=env, **self.recipe)

    def tasks(self) -> Sequence[Task]:
        """Online, offline and continuous, as far as they have environments."""
        kinds: tuple[type[_Learning], ...] = (Online, Offline, Continuous)
        return [kind(self, self.names[kind.name]) for kind in kinds if self.names[kind.name]]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """MINTO, the other operators, peers, offline learners, and stable-baselines3 classes."""
        from assay.training.minto.methods import METHODS

        return METHODS
