"""Methods of the benchmark: the many-seed trainer under its operators, and stable-baselines3 classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from assay.training.minto.data import Transitions
    from assay.training.minto.settings import Curve, Recipe


@dataclass(frozen=True, slots=True)
class BatchedMethod:
    """DQN with a `settings.Variant`, all seeds at once."""

    op: str = "min"
    members: int = 1
    beta: float = 0.5
    kappa: float = 0.0

    def train_discrete(
        self, recipe: Recipe, seeds: Sequence[int], *, checkpoint: Any = None, progress: Any = None
    ) -> list[Curve]:
        """Play and learn."""
        from assay.training.minto.batched import train_batched
        from assay.training.minto.settings import Variant

        variant = Variant(self.op, self.members, self.beta, self.kappa)
        return train_batched(recipe, variant, seeds, checkpoint=checkpoint, progress=progress)


@dataclass(frozen=True, slots=True)
class BatchedCQL:
    """Discrete CQL, all seeds at once."""

    op: str = "min"
    alpha: float = 0.1
    members: int = 1

    def train_offline(
        self, recipe: Recipe, data: Transitions, seeds: Sequence[int], *, checkpoint: Any = None, progress: Any = None
    ) -> list[Curve]:
        """Learn from data."""
        from assay.training.minto.batched import train_batched
        from assay.training.minto.settings import Variant

        variant = Variant(self.op, self.members, cql=self.alpha)
        return train_batched(recipe, variant, seeds, data=data, checkpoint=checkpoint, progress=progress)


@dataclass(frozen=True, slots=True)
class SB3Discrete:
    """A value-based class of this room or of stable-baselines3, one seed after the other, on the same recipe."""

    cls: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def train_discrete(
        self, recipe: Recipe, seeds: Sequence[int], *, checkpoint: Any = None, progress: Any = None
    ) -> list[Curve]:
        """Play and learn."""
        from assay.training.minto.singly import train_discrete

        curves = []
        for seed in seeds:
            curves.append(train_discrete(self.cls, self.options, recipe, seed))
            if progress is not None:
                progress(len(curves), len(seeds))
        return curves


@dataclass(frozen=True, slots=True)
class SB3Continuous:
    """An actor-critic class of this room."""

    cls: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def train_continuous(self, env: str, seed: int, settings: Mapping[str, Any]) -> Curve:
        """Play and learn."""
        from assay.training.minto.singly import train_continuous

        return train_continuous(self.cls, self.options, env, seed, settings)


def batched(op: str) -> Callable[[], BatchedMethod]:
    """The trainer under an operator without options."""
    return partial(BatchedMethod, op)


def scdqn(beta: float = 2.0) -> BatchedMethod:
    """Self-correcting DQN."""
    return BatchedMethod("scdqn", beta=beta)


def frdqn(kappa: float = 1.0) -> BatchedMethod:
    """Online bootstrap with functional regularisation."""
    return BatchedMethod("online", kappa=kappa)


def maxmin(members: int = 2, minto: bool = False) -> BatchedMethod:
    """Maxmin DQN; with ``minto`` the minimum over target and online networks."""
    return BatchedMethod("maxmin_minto" if minto else "maxmin", members)


def cql(alpha: float = 0.1, bootstrap: str = "target") -> BatchedCQL:
    """CQL."""
    return BatchedCQL(bootstrap, alpha)


def maxmin_cql(alpha: float = 0.1, members: int = 2, minto: bool = False) -> BatchedCQL:
    """CQL with Maxmin's target."""
    return BatchedCQL("maxmin_minto" if minto else "maxmin", alpha, members)


def sb3_dqn(bootstrap: str = "min") -> SB3Discrete:
    """`algorithms.MintoDQN`."""
    return SB3Discrete("MintoDQN", {"bootstrap": bootstrap})


def sb3_qrdqn(bootstrap: str = "min", rule: str = "quantilewise", n_quantiles: int = 50) -> SB3Discrete:
    """`algorithms.MintoQRDQN`."""
    return SB3Discrete("MintoQRDQN", {"bootstrap": bootstrap, "rule": rule, "n_quantiles": n_quantiles})


def sb3_iqn(bootstrap: str = "min", rule: str = "quantilewise", n_online: int = 16, n_target: int = 16) -> SB3Discrete:
    """`iqn.MintoIQN`."""
    options = {"bootstrap": bootstrap, "rule": rule, "n_online": n_online, "n_target": n_target}
    return SB3Discrete("MintoIQN", options)


def sb3_c51(bootstrap: str = "min", n_atoms: int = 51, v_min: float = -100.0, v_max: float = 100.0) -> SB3Discrete:
    """`c51.MintoC51`; the atoms' default holds rewards within 1 under a discount of 0.99."""
    return SB3Discrete("MintoC51", {"bootstrap": bootstrap, "n_atoms": n_atoms, "v_min": v_min, "v_max": v_max})


def sac(bootstrap: str = "min", n_critics: int = 2, policy: str = "MlpPolicy") -> SB3Continuous:
    """`algorithms.MintoSAC`; ``policy=SimBaPolicy`` for SimBa's networks."""
    return SB3Continuous("MintoSAC", {"bootstrap": bootstrap, "n_critics": n_critics, "policy": policy})


def td3(bootstrap: str = "min", n_critics: int = 2) -> SB3Continuous:
    """`algorithms.MintoTD3`."""
    return SB3Continuous("MintoTD3", {"bootstrap": bootstrap, "n_critics": n_critics})


def tqc(bootstrap: str = "min", rule: str = "quantilewise") -> SB3Continuous:
    """`algorithms.MintoTQC`."""
    return SB3Continuous("MintoTQC", {"bootstrap": bootstrap, "rule": rule})


def simbav2(
    bootstrap: str = "min",
    n_critics: int = 2,
    critic_loss: Literal["cross_entropy", "squared"] = "cross_entropy",
    scale_rewards: bool = True,
) -> SB3Continuous:
    """`simbav2.MintoSimBaV2`."""
    options = {
        "bootstrap": bootstrap, "n_critics": n_critics, "critic_loss": critic_loss, "scale_rewards": scale_rewards,
    }  # fmt: skip
    return SB3Continuous("MintoSimBaV2", options)


METHODS: dict[str, Callable[..., Any]] = {
    "minto": batched("min"),
    "dqn": batched("target"),
    "online": batched("online"),
    "max": batched("max"),
    "mean": batched("mean"),
    "random": batched("random"),
    "double_dqn": batched("double"),
    "scdqn": scdqn,
    "frdqn": frdqn,
    "maxmin": maxmin,
    "cql": cql,
    "minto_cql": partial(cql, bootstrap="min"),
    "maxmin_cql": maxmin_cql,
    "sb3_dqn": sb3_dqn,
    "sb3_qrdqn": sb3_qrdqn,
    "sb3_iqn": sb3_iqn,
    "sb3_c51": sb3_c51,
    "sac": partial(sac, bootstrap="target"),
    "minto_sac": sac,
    "td3": partial(td3, bootstrap="target"),
    "minto_td3": td3,
    "tqc": partial(tqc, bootstrap="target"),
    "minto_tqc": tqc,
    "simbav2": partial(simbav2, bootstrap="target"),
    "minto_simbav2": simbav2,
}
