"""Offline learners for stable-baselines3: CQL, discrete and continuous, and a discrete IQL, with MINTO's bootstrap.

``fit`` learns from `data.Transitions` without playing; ``learn`` still learns online, with the same penalty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.torch_layers import create_mlp
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import UsageError
from assay.training.minto.algorithms import MintoDQN, MintoSAC, _ByLoss, _coins, evaluating
from assay.training.minto.baselines import PenalisedDQN
from assay.training.minto.data import FrameReplay, Transitions, fill_replay_buffer
from assay.training.minto.targets import TargetError, combine, conservative_penalty, critic_target, require_finite


class FrameBuffer(BaseBuffer):
    """Frames of the DQN replay data set where stable-baselines3 expects a replay buffer; it takes in nothing.

    Parameters
    ----------
    observation_space, action_space
        Of the policy: pictures (stack, height, width), and more actions than any in the data.
    seed
        Of the draws; None = fresh.
    """

    def __init__(
        self, replay: FrameReplay, observation_space: Any, action_space: Any, device: Any, *, seed: int | None = None
    ) -> None:
        super().__init__(len(replay.places), observation_space, action_space, device)
        shape = (replay.stack, *replay.frames.shape[1:])
        if observation_space.shape != shape or observation_space.dtype != np.uint8:
            raise UsageError(
                f"Frames are stacked to {shape} of uint8, the policy sees {observation_space.shape} of "
                f"{observation_space.dtype}; give an environment of the same pictures."
            )
        if not 0 <= int(replay.action.min()) <= int(replay.action.max()) < action_space.n:
            raise UsageError(f"Actions in the data go up to {replay.action.max()}, the policy has {action_space.n}.")
        self.replay, self.full = replay, True
        self.rng = np.random.default_rng(seed)

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """A batch drawn with replacement."""
        return self._get_samples(self.rng.choice(self.replay.places, batch_size), env)

    def _get_samples(self, batch_inds: np.ndarray, env: Any = None) -> ReplayBufferSamples:
        rows = self.replay.transitions(batch_inds)
        obs: Any = self._normalize_obs(rows.obs, env)
        after: Any = self._normalize_obs(rows.next_obs, env)
        reward = self._normalize_reward(rows.reward[:, None], env)
        action, done = rows.action[:, None].astype(np.int64), rows.terminated[:, None].astype(np.float32)
        return ReplayBufferSamples(*map(self.to_torch, (obs, action, after, done, reward)))


class _Offline:
    """Learning from recorded transitions."""

    def fit(self, data: Transitions | FrameReplay, updates: int, *, log_interval: int = 1000) -> Any:
        """Make so many updates on recorded transitions; target networks are copied by update instead of by step.

        Parameters
        ----------
        data
            Transitions fill the replay buffer; ``buffer_size`` must be large enough. Frames take its place, and are
            stacked when a batch is drawn (a replay buffer would hold every frame eight times).
        log_interval
            Updates between two lines of the log.
        """
        me: Any = self
        if updates < 1:
            raise UsageError(f"updates={updates} must be at least 1.")
        if isinstance(data, FrameReplay):
            if me.n_steps != 1:
                raise UsageError(f"n_steps={me.n_steps} must be 1 with frames, which are drawn one step at a time.")
            me.replay_buffer = FrameBuffer(data, me.observation_space, me.action_space, me.device, seed=me.seed)
        else:
            fill_replay_buffer(me.replay_buffer, data)
        me._setup_learn(updates, None, False, type(self).__name__, False)
        for update in range(1, updates + 1):
            me.num_timesteps += 1
            me._update_current_progress_remaining(me.num_timesteps, updates)
            me.train(1, me.batch_size)
            me._on_step()
            if update % log_interval == 0:
                me.logger.record("time/total_timesteps", me.num_timesteps, exclude="tensorboard")
                me.logger.dump(step=me.num_timesteps)
        return self


class MintoCQL(_Offline, PenalisedDQN):
    """Discrete CQL on DQN: TD loss with ``bootstrap``'s target plus ``alpha`` times CQL's penalty.

    The alpha of the paper is not confirmed; 1 to 4 were used with quantiles, 0.1 in slim re-implementations.
    """

    def __init__(self, policy: Any, env: Any, *args: Any, alpha: float = 0.1, **kwargs: Any) -> None:
        if alpha < 0:
            raise TargetError(f"alpha must be at least 0; got {alpha}.")
        self.alpha = alpha
        super().__init__(policy, env, *args, **kwargs)

    def penalty(self, values: Tensor, chosen: Tensor, batch: Any) -> Tensor:
        """Values of all actions pushed down, of the recorded ones up."""
        return self.alpha * conservative_penalty(values, batch.actions[:, 0].long())


class IQLPolicy(DQNPolicy):
    """DQN's networks with a state value and a policy beside them; acts by the policy."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        actions = int(self.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]
        width = int(np.prod(self.observation_space.shape or ()))
        layers = self.net_arch or [64, 64]
        self.value_net = nn.Sequential(nn.Flatten(), *create_mlp(width, 1, list(layers), self.activation_fn))
        self.actor_net = nn.Sequential(nn.Flatten(), *create_mlp(width, actions, list(layers), self.activation_fn))
        parts = [*self.q_net.parameters(), *self.value_net.parameters(), *self.actor_net.parameters()]
        self.optimizer = self.optimizer_class(parts, lr=lr_schedule(1), **self.optimizer_kwargs)  # pyright: ignore[reportCallIssue]

    def _predict(self, obs: Any, deterministic: bool = True) -> Tensor:
        logits = self.actor_net(obs.float())
        return logits.argmax(-1) if deterministic else torch.distributions.Categorical(logits=logits).sample()


class MintoIQL(_Offline, _ByLoss, MintoDQN):
    """Discrete implicit Q-learning (Kostrikov et al. 2022): no action outside the data is ever valued.

    The state value is an expectile of the values of recorded actions by ``bootstrap``'s combination of both networks
    (the target network's alone in the original); MINTO's paper has no IQL, the place of its minimum is our reading.

    Parameters
    ----------
    expectile
        In (0, 1), above 0.5 towards the best action.
    temperature
        Of the advantage weights ``exp(temperature * advantage)``, cut at 100.
    """

    policy_aliases = {"MlpPolicy": IQLPolicy}

    def __init__(
        self, policy: Any, env: Any, *args: Any, expectile: float = 0.7, temperature: float = 3.0, **kwargs: Any
    ) -> None:
        if not 0 < expectile < 1 or temperature < 0:
            raise TargetError(f"expectile={expectile} lies in (0, 1), temperature={temperature} is at least 0.")
        self.expectile, self.temperature = expectile, temperature
        super().__init__(policy, env, *args, **kwargs)
        if self.bootstrap in ("double", "scdqn"):
            raise TargetError(f"bootstrap={self.bootstrap} chooses among actions, which IQL never does.")

    def _loss(self, batch: Any, discounts: Any) -> Tensor:
        """Value by expectile regression, Q by the value, policy by weighted imitation: their sum."""
        policy: Any = self.policy
        index = batch.actions.long()
        obs, after = batch.observations.float(), batch.next_observations.float()
        with torch.no_grad():
            theirs = self.q_net_target(obs)
            with evaluating(self.q_net):
                ours = self.q_net(obs)
            coins = _coins(theirs) if self.bootstrap == "random" else None
            held = combine(theirs, ours, self.bootstrap, use_online=coins).gather(1, index)[:, 0]
            target = batch.rewards[:, 0] + (1 - batch.dones[:, 0]) * discounts * policy.value_net(after)[:, 0]
        require_finite(target, type(self).__name__)
        self._seen = theirs, ours
        gap = held - policy.value_net(obs)[:, 0]
        value_loss = (torch.where(gap > 0, self.expectile, 1 - self.expectile) * gap**2).mean()
        q_loss = functional.mse_loss(self.q_net(obs).gather(1, index)[:, 0], target)
        weight = torch.exp(self.temperature * gap.detach()).clamp(max=100.0)
        imitation = -torch.log_softmax(policy.actor_net(obs), -1).gather(1, index)[:, 0]
        return value_loss + q_loss + (weight * imitation).mean()


class MintoContinuousCQL(_Offline, MintoSAC):
    """SAC with MINTO's target and CQL's penalty by sampled actions, importance weights by their densities.

    Parameters
    ----------
    alpha
        Weight of the penalty of each critic.
    samples
        Uniform actions, actions at s and actions at s' each.
    """

    def __init__(self, policy: Any, env: Any, *args: Any, alpha: float = 5.0, samples: int = 10, **kw: Any) -> None:
        if alpha < 0 or samples < 1:
            raise TargetError(f"alpha={alpha} must be at least 0, samples={samples} at least 1.")
        self.alpha, self.samples = alpha, samples
        super().__init__(policy, env, *args, **kw)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """SAC's three losses, the critics' with the penalty."""
        self.policy.set_training_mode(True)
        tuned = self.ent_coef_optimizer
        optimisers = [self.actor.optimizer, self.critic.optimizer, *([tuned] if tuned is not None else [])]
        self._update_learning_rate(optimisers)
        assert self.replay_buffer is not None
        logged: dict[str, list[float]] = {"critic_loss": [], "actor_loss": [], "penalty": [], "ent_coef": []}
        for step in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            discounts = batch.discounts[:, 0] if batch.discounts is not None else self.gamma
            own, density = self.actor.action_log_prob(batch.observations)
            entropy = self._entropy(density)
            with torch.no_grad():
                action, log_prob = self.actor.action_log_prob(batch.next_observations)
                theirs = torch.stack(self.critic_target(batch.next_observations, action))[..., 0]
                with evaluating(self.critic):
                    ours = torch.stack(self.critic(batch.next_observations, action))[..., 0]
                coins = torch.rand(batch_size, device=ours.device) < 0.5 if self.bootstrap == "random" else None
                target = critic_target(
                    theirs, ours, batch.rewards[:, 0], batch.dones[:, 0], discounts, self.bootstrap, entropy=entropy,
                    next_log_prob=log_prob, use_online=coins,
                )  # fmt: skip
            require_finite(target, type(self).__name__)
            taken = torch.stack(self.critic(batch.observations, batch.actions))[..., 0]
            penalty = self._penalty(batch, taken)
            critic_loss = 0.5 * ((taken - target) ** 2).mean(1).sum() + self.alpha * penalty
            self.critic.optimizer.zero_grad()
            critic_loss.backward()
            self.critic.optimizer.step()
            least = torch.cat(self.critic(batch.observations, own), 1).amin(1)
            actor_loss = (entropy * density - least).mean()
            self.actor.optimizer.zero_grad()
            actor_loss.backward()
            self.actor.optimizer.step()
            if step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
            shown = zip(logged.values(), (critic_loss, actor_loss, penalty, entropy))
            for values, value in shown:
                values.append(float(value.detach()))
            self._seen = tuple(theirs[..., None]), tuple(ours[..., None])
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in logged.items():
            self.logger.record(f"train/{name}", np.mean(values))
        self._log_rate()

    def _entropy(self, density: Tensor) -> Tensor:
        """The temperature, after one step of its own loss where it is learned."""
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            return self.ent_coef_tensor
        entropy = self.log_ent_coef.detach().exp()
        loss = -(self.log_ent_coef * (density + self.target_entropy).detach()).mean()  # pyright: ignore[reportOperatorIssue]
        self.ent_coef_optimizer.zero_grad()
        loss.backward()
        self.ent_coef_optimizer.step()
        return entropy

    def _penalty(self, batch: Any, taken: Tensor) -> Tensor:
        """Sum over critics of log-mean-exp over actions, by importance sampling, minus the recorded action's value."""
        n, k, width = len(batch.actions), self.samples, batch.actions.shape[1]
        with torch.no_grad():
            drawn = [torch.rand(n * k, width, device=taken.device) * 2 - 1]
            density = [torch.full((n, k), -width * float(np.log(2)), device=taken.device)]
            for obs in (batch.observations, batch.next_observations):
                action, log_prob = self.actor.action_log_prob(obs.repeat_interleave(k, 0))
                drawn.append(action)
                density.append(log_prob.reshape(n, k))
        obs = batch.observations.repeat_interleave(k, 0)
        values = [torch.stack(self.critic(obs, action))[..., 0].unflatten(1, (n, k)) for action in drawn]
        weighed = torch.cat([v - d for v, d in zip(values, density)], -1)
        return (torch.logsumexp(weighed, -1) - float(np.log(3 * k)) - taken).mean(1).sum()
