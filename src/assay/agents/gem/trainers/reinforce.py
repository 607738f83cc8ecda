"""REINFORCE over turns: every turn is worth its discounted return.

Reference: Williams 1992.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from assay.agents.gem.rollout import Episode, Rollout
from assay.agents.gem.trainers.loop import decisions, improve
from assay.agents.gem.trainers.policies import TrainablePolicy
from assay.nn.policy_gradient import returns


@dataclass
class Reinforce:
    """Parameters: discount a turn, Adam's rate, turns a batch, passes over it, clipping of the ratio, and whether
    nothing is learnt from replies that were cut at their length (``ignore_no_eos``)."""

    gamma: float = 0.9
    lr: float = 0.01
    batch: int = 128
    epochs: int = 2
    clip: float = 0.2
    ignore_no_eos: bool = False
    name: str = "reinforce"

    def collect(self, rollout: Rollout, seeds: Iterator[int]) -> list[Episode]:
        """Whole episodes with at least ``batch`` turns."""
        return rollout.turns(self.batch, seeds)

    def advantages(self, episodes: list[Episode]) -> list[np.ndarray]:
        """The return of each turn."""
        return [returns(episode.rewards, self.gamma) for episode in episodes]

    def learn(self, policy: TrainablePolicy, optimizer: torch.optim.Optimizer, episodes: list[Episode]) -> None:
        """Raise the log-probability of each token by its turn's advantage; a token weighs the same in any reply."""
        improve(
            policy, optimizer, decisions(episodes), np.concatenate(self.advantages(episodes)), epochs=self.epochs,
            clip=self.clip, constant=policy.max_tokens, ignore_no_eos=self.ignore_no_eos,
        )  # fmt: skip
