"""GRPO and its kin: an episode is worth how it compares with others that began in the same state.

References: Shao et al. 2024 (GRPO); Liu et al. 2025 (Dr. GRPO); Ahmadian et al. 2024 (RLOO).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from assay.agents.gem.rollout import Episode, Rollout
from assay.agents.gem.trainers.loop import decisions, improve
from assay.agents.gem.trainers.policies import TrainablePolicy
from assay.core.errors import UsageError
from assay.nn.policy_gradient import group_advantages


@dataclass
class GRPO:
    """Parameters: kind of advantage, episodes a group; the others as in `Reinforce`. There is no discount: the
    episode's sum of rewards is what all of its turns get.
    """

    kind: Literal["grpo", "dr_grpo", "rloo", "episode"] = "grpo"
    group: int = 8
    lr: float = 0.01
    batch: int = 128
    epochs: int = 2
    clip: float = 0.2
    ignore_no_eos: bool = False

    def __post_init__(self) -> None:
        if self.group < 2 and self.kind != "episode":
            raise UsageError(f"group={self.group}: an episode is compared with others, so at least 2 are needed.")

    @property
    def name(self) -> str:
        """The kind."""
        return self.kind

    def collect(self, rollout: Rollout, seeds: Iterator[int]) -> list[Episode]:
        """Whole groups with at least ``batch`` turns in all; a seed gives all of its group the same initial state."""
        out: list[Episode] = []
        at_once = max(1, len(rollout.seats) // self.group)
        while sum(map(len, out)) < self.batch:
            out += rollout.episodes([seed for _ in range(at_once) for seed in [next(seeds)] * self.group])
        return out

    def learn(self, policy: TrainablePolicy, optimizer: torch.optim.Optimizer, episodes: list[Episode]) -> None:
        """The same advantage on every token of an episode; the mean over tokens, or Dr. GRPO's sum over a constant."""
        worth = group_advantages([e.total for e in episodes], self.kind, groups=[e.group for e in episodes])
        per_turn = np.repeat(worth, [len(episode) for episode in episodes])
        constant = None if self.kind == "grpo" else policy.max_tokens
        improve(
            policy, optimizer, decisions(episodes), per_turn, epochs=self.epochs, clip=self.clip, constant=constant,
            ignore_no_eos=self.ignore_no_eos,
        )  # fmt: skip
