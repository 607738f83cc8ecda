"""What is trained, and what comes of it: variants, recipes and learning curves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from assay.core.errors import UsageError, unknown_name
from assay.training.minto.targets import OPERATORS

ENSEMBLE = ("maxmin", "maxmin_minto")


@dataclass(frozen=True, slots=True)
class Variant:
    """What a run bootstraps from, and what is added to its loss.

    Parameters
    ----------
    op
        One of `targets.OPERATORS`; ``maxmin`` (minimum over target networks of ``members`` pairs, one pair trained an
        update), ``maxmin_minto`` (over both networks of all pairs).
    members
        Pairs of networks; all variants of one training share it.
    beta
        Of ``scdqn``.
    kappa
        Functional regularisation towards the target network; with ``online`` this is FR-DQN.
    cql
        Weight of CQL's penalty.
    """

    op: str = "min"
    members: int = 1
    beta: float = 0.5
    kappa: float = 0.0
    cql: float = 0.0

    def __post_init__(self) -> None:
        if self.op not in (*OPERATORS, *ENSEMBLE):
            raise unknown_name("operator", self.op, (*OPERATORS, *ENSEMBLE))
        if self.members < 1 or (self.members > 1) != (self.op in ENSEMBLE):
            raise UsageError(f"Operator {self.op} does not go with members={self.members}: ensembles need 2 or more.")
        if self.kappa < 0 or self.cql < 0:
            raise UsageError(f"kappa={self.kappa} and cql={self.cql} must be at least 0.")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything but seeds and variants; defaults are those of a small task.

    ``copy_every`` counts environment steps, as do all others here; ``tau`` below 1 mixes instead of copying.
    ``loss`` is ``huber`` (smooth L1 of stable-baselines3) or ``square`` (one half of it, the paper's). ``eval_every``
    is the grid of the learning curve; with ``eval_episodes`` 0 a point is the mean of the training episodes that ended
    in between.
    """

    env: str = "CartPole-v1"
    steps: int = 6000
    hidden: tuple[int, ...] = (64, 64)
    batch_size: int = 64
    lr: float = 1e-3
    gamma: float = 0.99
    buffer: int = 50_000
    learning_starts: int = 100
    train_every: int = 1
    copy_every: int = 200
    tau: float = 1.0
    eps_start: float = 1.0
    eps_end: float = 0.05
    eps_steps: int = 1500
    loss: Literal["huber", "square"] = "square"
    max_grad_norm: float | None = 10.0
    adam_eps: float = 1e-8
    n_step: int = 1
    reward_noise: float = 0.0
    eval_every: int = 500
    eval_episodes: int = 4
    eval_limit: int = 1000
    double_precision: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        whole = ("steps", "batch_size", "buffer", "train_every", "copy_every", "n_step", "eval_every", "eval_limit")
        for name in whole:
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} must be at least 1.")
        if not 0 <= self.gamma <= 1 or not 0 < self.tau <= 1 or not self.lr > 0:
            raise UsageError(f"gamma={self.gamma} lies in [0, 1], tau={self.tau} in (0, 1], lr={self.lr} above 0.")
        if self.loss not in ("huber", "square"):
            raise unknown_name("loss", self.loss, ("huber", "square"))
        if self.learning_starts < self.n_step or min(self.eval_episodes, self.eps_steps, self.reward_noise) < 0:
            raise UsageError(
                "learning_starts must be at least n_step; eval_episodes, eps_steps, reward_noise 0 or more."
            )


@dataclass(slots=True)
class Curve:
    """One run: a row a point of the grid, training episodes as (step, return), and the step at which it diverged."""

    seed: int
    variant: Variant
    rows: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[tuple[int, float]] = field(default_factory=list)
    diverged: int | None = None

    @property
    def auc(self) -> float:
        """Mean of the returns on the grid."""
        return float(np.mean([row["return"] for row in self.rows]))
