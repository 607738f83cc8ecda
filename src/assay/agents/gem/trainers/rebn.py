"""REINFORCE with return batch normalisation: a turn is worth how far its return lies above those of the batch.

Reference: Liu et al. GEM. arXiv 2510.01051.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.agents.gem.rollout import Episode
from assay.agents.gem.trainers.reinforce import Reinforce
from assay.nn.policy_gradient import rebn, returns


@dataclass
class ReBN(Reinforce):
    """Parameters as in `Reinforce`. Every turn of every episode of the batch enters mean and standard deviation."""

    name: str = "rebn"

    def advantages(self, episodes: list[Episode]) -> list[np.ndarray]:
        """Returns of all turns, normalised together."""
        return rebn([returns(episode.rewards, self.gamma) for episode in episodes])
