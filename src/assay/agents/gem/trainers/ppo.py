"""PPO with a critic of turns: V(s) is read at the end of a turn's prompt, GAE goes over turns.

References: Schulman et al. 2016 (GAE), 2017 (PPO).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from assay.agents.gem.rollout import Episode, Rollout
from assay.agents.gem.trainers.loop import decisions, improve
from assay.agents.gem.trainers.policies import TrainablePolicy
from assay.nn.policy_gradient import gae, value_losses


@dataclass
class PPO:
    """Parameters as in `Reinforce`, and GAE's decay and the weight of the critic's loss.

    An episode that was cut (truncated, not terminated) is continued by the critic's estimate. Advantages are normalised
    over the batch.
    """

    gamma: float = 0.9
    lam: float = 0.95
    lr: float = 0.01
    batch: int = 128
    epochs: int = 2
    clip: float = 0.2
    value_weight: float = 0.5
    ignore_no_eos: bool = False
    name: str = "ppo"

    def collect(self, rollout: Rollout, seeds: Iterator[int]) -> list[Episode]:
        """Whole episodes with at least ``batch`` turns."""
        return rollout.turns(self.batch, seeds)

    def learn(self, policy: TrainablePolicy, optimizer: torch.optim.Optimizer, episodes: list[Episode]) -> None:
        """Clipped policy loss and the critic's squared error."""
        turns = decisions(episodes)
        prompts = [turn.prompt for turn in turns]
        with torch.no_grad():
            before = policy.values(prompts + [episode.final for episode in episodes]).double().cpu().numpy()
        advantages, targets, start = [], [], 0
        for i, episode in enumerate(episodes):
            own = before[start : start + len(episode)]
            a, t = gae(
                episode.rewards, own, bootstrap=float(before[len(turns) + i]), terminated=not episode.truncated,
                gamma=self.gamma, lam=self.lam,
            )  # fmt: skip
            advantages.append(a)
            targets.append(t)
            start += len(episode)
        worth, aim = np.concatenate(advantages), np.concatenate(targets)
        worth = (worth - worth.mean()) / (worth.std() + 1e-8)

        def critic(part: Sequence[int]) -> torch.Tensor:
            values = policy.values([prompts[i] for i in part])
            return self.value_weight * value_losses(values, torch.as_tensor(aim[part]).to(values)).mean()

        improve(
            policy, optimizer, turns, worth, epochs=self.epochs, clip=self.clip, constant=policy.max_tokens,
            ignore_no_eos=self.ignore_no_eos, beside=critic,
        )  # fmt: skip
