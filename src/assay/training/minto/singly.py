"""stable-baselines3 classes on the benchmark's recipes: one seed, one process, a curve on the same grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from assay.training.minto import algorithms
from assay.training.minto.c51 import MintoC51
from assay.training.minto.callbacks import played
from assay.training.minto.envs import single
from assay.training.minto.iqn import MintoIQN
from assay.training.minto.settings import Curve, Recipe, Variant
from assay.training.minto.simbav2 import MintoSimBaV2

CLASSES: dict[str, Any] = {
    "MintoDQN": algorithms.MintoDQN,
    "MintoQRDQN": algorithms.MintoQRDQN,
    "MintoIQN": MintoIQN,
    "MintoC51": MintoC51,
    "MintoSAC": algorithms.MintoSAC,
    "MintoTD3": algorithms.MintoTD3,
    "MintoTQC": algorithms.MintoTQC,
    "MintoSimBaV2": MintoSimBaV2,
}


def train_discrete(cls: str, options: Mapping[str, Any], recipe: Recipe, seed: int) -> Curve:
    """One seed of a value-based class under a recipe. Loss and gradient clipping are the class's own."""
    torch.set_num_threads(1)
    given = dict(options)
    policy: dict[str, Any] = {"net_arch": list(recipe.hidden)}
    policy |= {name: given.pop(name) for name in ("n_quantiles", "n_atoms", "v_min", "v_max") if name in given}
    share = min(1.0, recipe.eps_steps / recipe.steps)
    model = CLASSES[cls](
        "MlpPolicy", single(recipe.env), learning_rate=recipe.lr, buffer_size=min(recipe.buffer, recipe.steps),
        learning_starts=recipe.learning_starts, batch_size=recipe.batch_size, tau=recipe.tau, gamma=recipe.gamma,
        train_freq=recipe.train_every, target_update_interval=recipe.copy_every, n_steps=recipe.n_step,
        exploration_fraction=share, exploration_initial_eps=recipe.eps_start, exploration_final_eps=recipe.eps_end,
        max_grad_norm=recipe.max_grad_norm or float("inf"), policy_kwargs=policy, seed=seed % 2**32,
        device=recipe.device, **given,
    )  # fmt: skip
    return _curve(model, recipe.env, seed, recipe.steps, recipe.eval_every, max(1, recipe.eval_episodes), options)


def train_continuous(cls: str, options: Mapping[str, Any], env: str, seed: int, settings: Mapping[str, Any]) -> Curve:
    """One seed of an actor-critic class."""
    torch.set_num_threads(1)
    given = dict(options)
    policy: Any = given.pop("policy", "MlpPolicy")
    arguments: dict[str, Any] = {}
    if policy == "SimBaPolicy":
        from assay.training.minto.policies import SimBaPolicy

        policy = SimBaPolicy
    elif cls != "MintoSimBaV2":
        arguments["net_arch"] = [64, 64]
    if "n_critics" in given:
        arguments["n_critics"] = given.pop("n_critics")
    model = CLASSES[cls](
        policy, single(env), learning_rate=settings["lr"], batch_size=settings["batch_size"], gamma=settings["gamma"],
        buffer_size=settings["steps"], policy_kwargs=arguments, seed=seed % 2**32, device=settings["device"], **given,
    )  # fmt: skip
    return _curve(model, env, seed, settings["steps"], settings["eval_every"], settings["eval_episodes"], options)


class _Grid(BaseCallback):
    """A row a point of the grid."""

    def __init__(self, curve: Curve, env: str, every: int, episodes: int) -> None:
        super().__init__()
        self.curve, self.env_name, self.every, self.episodes = curve, env, every, episodes

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.curve.episodes.append((self.num_timesteps, float(info["episode"]["r"])))
        if self.num_timesteps % self.every == 0:
            self.row()
        return True

    def row(self) -> None:
        """Play greedily and write down what came of it."""
        model: Any = self.model
        found = played(
            model, single(self.env_name), self.episodes, gamma=model.gamma,
            seed=[self.curve.seed % 2**32, self.num_timesteps],
        )  # fmt: skip
        self.curve.rows.append(
            {
                "step": self.num_timesteps,
                "return": found.returns,
                "train_return": float(np.mean([value for _, value in self.curve.episodes[-10:]]))
                if self.curve.episodes
                else None,
                "q_mean": found.values,
                "target_mean": None,
                "online_rate": model.online_rate,
                "overestimation": found.overestimation,
            }
        )


def _curve(model: Any, env: str, seed: int, steps: int, every: int, episodes: int, options: Mapping[str, Any]) -> Curve:
    curve = Curve(seed, Variant(options.get("bootstrap", "min")))
    grid = _Grid(curve, env, every, episodes)
    try:
        model.learn(steps, callback=grid)
    except FloatingPointError:
        curve.diverged = model.num_timesteps
    if not curve.rows or (curve.rows[-1]["step"] < steps and curve.diverged is None):
        grid.row()
    # A run that diverged keeps its last point for the rest of the grid.
    while curve.diverged is not None and curve.rows[-1]["step"] + every <= steps:
        curve.rows.append({**curve.rows[-1], "step": curve.rows[-1]["step"] + every})
    return curve
