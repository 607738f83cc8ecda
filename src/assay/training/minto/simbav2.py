"""SAC as SimBaV2 trains it (Lee et al. 2025b): categorical critics by cross-entropy, rewards scaled, MINTO's target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from stable_baselines3.common.utils import polyak_update
from torch import Tensor

from assay.core.errors import unknown_name
from assay.training.minto.algorithms import MintoSAC, _coins, evaluating
from assay.training.minto.distributional import combine_categories, project
from assay.training.minto.policies import SimBaV2Policy
from assay.training.minto.targets import TargetError, require_finite

Loss = Literal["cross_entropy", "squared"]
EPS = 1e-8


@dataclass(slots=True)
class ReturnScale:
    """What rewards are divided by so that returns have variance 1 at most and lie within ``bound``.

    After "Hyperspherical Normalization for Scalable Deep RL", from memory: the larger of the running deviation of
    ``G_t = gamma G_{t-1} + r_t`` and its largest size over the bound.

    Attributes
    ----------
    running
        G of each environment; 0 again where an episode ends.
    """

    gamma: float
    bound: float
    running: np.ndarray = field(default_factory=lambda: np.zeros(0))
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    largest: float = 0.0

    def add(self, reward: np.ndarray, done: np.ndarray) -> None:
        """One step of every environment, shape (environments,)."""
        if len(self.running) != len(reward):
            self.running = np.zeros(len(reward))
        self.running = self.gamma * self.running + reward
        for value in self.running.tolist():
            self.count += 1
            gap = value - self.mean
            self.mean += gap / self.count
            self.squares += gap * (value - self.mean)
            self.largest = max(self.largest, abs(value))
        self.running = np.where(done, 0.0, self.running)

    @property
    def divisor(self) -> float:
        """1 before the first two steps, and where every return was 0."""
        if self.count < 2 or self.largest == 0.0:
            return 1.0
        return max((self.squares / self.count + EPS) ** 0.5, self.largest / self.bound)


class MintoSimBaV2(MintoSAC):
    """`MintoSAC` on `SimBaV2Policy`.

    The target keeps the distribution with the smallest mean of all critics of both networks (``bootstrap="min"``; of
    the target networks alone with ``"target"``), moves its atoms by reward, discount and entropy, and is projected.

    Parameters
    ----------
    critic_loss
        ``cross_entropy`` to that target, or SAC's ``squared`` error of expected values.
    scale_rewards
        Divide rewards, when they are drawn, by `ReturnScale` as it stands then. Values and logged losses are in these
        units. ``gamma`` and the policy's ``bound`` are its own.
    """

    policy_aliases = {"MlpPolicy": SimBaV2Policy}
    policy: SimBaV2Policy

    def __init__(
        self,
        policy: Any,
        env: Any,
        *args: Any,
        critic_loss: Loss = "cross_entropy",
        scale_rewards: bool = True,
        **kw: Any,
    ) -> None:
        if critic_loss not in ("cross_entropy", "squared"):
            raise unknown_name("critic_loss", critic_loss, ("cross_entropy", "squared"))
        self.critic_loss: Loss = critic_loss
        self.scale_rewards = scale_rewards
        self.scale: ReturnScale | None = None
        super().__init__(policy, env, *args, **kw)

    def _setup_model(self) -> None:
        super()._setup_model()
        if not isinstance(self.policy, SimBaV2Policy):
            raise TargetError(f"MintoSimBaV2 needs a SimBaV2Policy; got {type(self.policy).__name__}.")
        if self.scale is None:  # else it came from a file
            self.scale = ReturnScale(self.gamma, self.policy.sizes["bound"])

    def _store_transition(
        self, replay_buffer: Any, buffer_action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any
    ) -> None:
        original = reward if self._vec_normalize_env is None else self._vec_normalize_env.get_original_reward()
        assert self.scale is not None
        self.scale.add(np.asarray(original, float), np.asarray(dones))
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    @contextmanager
    def _scaled(self) -> Iterator[None]:
        buffer: Any = self.replay_buffer
        plain, own = buffer.sample, "sample" in vars(buffer)
        assert self.scale is not None
        divisor = self.scale.divisor

        def sample(*args: Any, **kwargs: Any) -> Any:
            batch = plain(*args, **kwargs)
            return batch._replace(rewards=batch.rewards / divisor)

        buffer.sample = sample
        try:
            yield
        finally:
            if own:
                buffer.sample = plain
            else:
                del buffer.sample

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """SAC's updates."""
        if not self.scale_rewards:
            self._updates(gradient_steps, batch_size)
            return
        with self._scaled():
            self._updates(gradient_steps, batch_size)

    def _updates(self, gradient_steps: int, batch_size: int) -> None:
        if self.critic_loss == "squared":
            super().train(gradient_steps, batch_size)
            return
        self.policy.set_training_mode(True)
        tuned = self.ent_coef_optimizer
        optimizers = [self.actor.optimizer, self.critic.optimizer, *([] if tuned is None else [tuned])]
        self._update_learning_rate(optimizers)
        losses: dict[str, list[float]] = {"ent_coef": [], "actor_loss": [], "critic_loss": []}
        critic: Any = self.critic
        assert self.replay_buffer is not None
        for step in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            discounts = batch.discounts if batch.discounts is not None else self.gamma
            if self.use_sde:
                self.actor.reset_noise()
            action, log_prob = self.actor.action_log_prob(batch.observations)
            log_prob = log_prob.reshape(-1, 1)
            weight = self.ent_coef_tensor if tuned is None else torch.exp(self.log_ent_coef.detach())  # pyright: ignore[reportOptionalMemberAccess]
            if tuned is not None:
                entropy_loss = -(self.log_ent_coef * (log_prob + self.target_entropy).detach()).mean()  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
                tuned.zero_grad()
                entropy_loss.backward()
                tuned.step()
            with torch.no_grad():
                after, after_log_prob = self.actor.action_log_prob(batch.next_observations)
                best = self._distribution(batch.next_observations, after)
                atoms = critic.q_networks[0].atoms
                moved = atoms - weight * after_log_prob.reshape(-1, 1)
                target = project(best, batch.rewards + (1 - batch.dones) * discounts * moved, atoms)
            require_finite(target, type(self).__name__)
            logs = critic.logits(batch.observations, batch.actions).log_softmax(-1)
            critic_loss = -(target[:, None] * logs).sum(-1).mean(0).sum()
            self.critic.optimizer.zero_grad()
            critic_loss.backward()
            self.critic.optimizer.step()
            actor_loss = (
                weight * log_prob - torch.cat(self.critic(batch.observations, action), 1).amin(1, True)
            ).mean()
            self.actor.optimizer.zero_grad()
            actor_loss.backward()
            self.actor.optimizer.step()
            if step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
            for name, value in (("ent_coef", weight), ("actor_loss", actor_loss), ("critic_loss", critic_loss)):
                losses[name].append(value.item())
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in losses.items():
            self.logger.record(f"train/{name}", np.mean(values))
        self._log_rate()

    def _distribution(self, obs: Any, action: Tensor) -> Tensor:
        """Probabilities (batch, atoms) of the critic whose combined distribution has the smallest mean."""
        target: Any = self.critic_target
        online: Any = self.critic
        theirs = target.logits(obs, action).softmax(-1)
        with evaluating(online):
            ours = online.logits(obs, action).softmax(-1)
        for values in (theirs, ours):
            require_finite(values, type(self).__name__)
        atoms = online.q_networks[0].atoms
        # A critic stands where an action would: each is combined with its own copy.
        coins = _coins(theirs) if self.bootstrap == "random" else None
        kept = combine_categories(theirs, ours, atoms, self.bootstrap, use_online=coins)
        self._seen = tuple(tuple((p @ atoms).split(1, 1)) for p in (theirs, ours))
        least = (kept @ atoms).argmin(1)
        return kept[torch.arange(len(kept), device=kept.device), least]
