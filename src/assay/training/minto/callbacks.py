"""How far values lie above what was earned: for any off-policy model of stable-baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from assay.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Played:
    """Means over episodes and their steps: return, value of the actions taken, and value over discounted return."""

    returns: float
    values: float
    overestimation: float


def action_values(model: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """What the online network says of actions: DQN, quantile networks (their mean), critics (the least of them)."""
    seen, _ = model.policy.obs_to_tensor(obs)
    with torch.no_grad():
        if hasattr(model, "q_net"):
            q = model.q_net(seen)
        elif hasattr(model, "quantile_net"):
            q = model.quantile_net(seen).mean(1)
        elif hasattr(model, "critic"):
            scaled = model.policy.scale_action(action)
            found = model.critic(seen, torch.as_tensor(scaled, dtype=torch.float32, device=model.device))
            stacked = torch.cat(found, 1) if isinstance(found, tuple) else found.mean(-1)
            return stacked.amin(1).cpu().numpy()
        else:
            raise UsageError(f"{type(model).__name__} has no value network that is known here.")
        index = torch.as_tensor(np.asarray(action).reshape(-1, 1), device=q.device).long()
        return q.gather(1, index)[:, 0].cpu().numpy()


def played(model: Any, env: Any, episodes: int, *, gamma: float, seed: int | Sequence[int] = 0) -> Played:
    """Play greedy episodes of a gymnasium environment.

    Steps that a time limit leaves too few successors to judge (discount above 5 % at the cut) do not count for the
    overestimation, unless that leaves none.
    """
    from assay.training.minto.algorithms import evaluating

    if episodes < 1:
        raise UsageError(f"episodes={episodes} must be at least 1.")
    seeds = np.random.default_rng(seed).integers(2**31, size=episodes)
    returns, gaps, values = [], [], []
    with evaluating(model.policy):
        for one in seeds:
            obs, _ = env.reset(seed=int(one))
            rewards, own, ended, cut = [], [], False, False
            while not (ended or cut):
                action = model.predict(obs, deterministic=True)[0]
                own.append(float(action_values(model, np.asarray(obs)[None], np.asarray(action)[None])[0]))
                obs, reward, ended, cut, _ = env.step(action)
                rewards.append(float(reward))
            earned = np.zeros(len(rewards) + 1)
            for t in range(len(rewards) - 1, -1, -1):
                earned[t] = rewards[t] + gamma * earned[t + 1]
            judged = np.ones(len(rewards), bool)
            if not ended:
                far = gamma ** np.arange(len(rewards), 0, -1.0) < 0.05
                judged = far if far.any() else judged
            returns.append(sum(rewards))
            values.append(np.mean(own))
            gaps.append(float((np.array(own) - earned[:-1])[judged].mean()))
    return Played(float(np.mean(returns)), float(np.mean(values)), float(np.mean(gaps)))


class BiasMeter(BaseCallback):
    """Logs ``minto/return``, ``minto/q_mean`` and ``minto/overestimation`` every so many steps; keeps them in ``rows``.

    Parameters
    ----------
    env
        A gymnasium environment of its own.
    every
        Steps between measurements.
    """

    def __init__(self, env: Any, *, every: int = 5000, episodes: int = 5, seed: int = 0) -> None:
        super().__init__()
        if every < 1:
            raise UsageError(f"every={every} must be at least 1.")
        self.own_env, self.every, self.episodes, self.seed = env, every, episodes, seed
        self.rows: list[dict[str, float]] = []
        self.due = every

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.due:
            self.due += self.every
            model: Any = self.model
            found = played(model, self.own_env, self.episodes, gamma=model.gamma, seed=[self.seed, self.num_timesteps])
            row = {"return": found.returns, "q_mean": found.values, "overestimation": found.overestimation}
            for name, value in row.items():
                self.logger.record(f"minto/{name}", value)
            self.rows.append({"step": float(self.num_timesteps), **row})
        return True
