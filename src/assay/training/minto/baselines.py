"""Peers of MINTO as stable-baselines3 classes: functional regularisation and Maxmin; and a DQN loop with a penalty."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN
from torch import Tensor, nn
from torch.nn import functional

from assay.training.minto.algorithms import MintoDQN, _ByLoss, _coins, evaluating
from assay.training.minto.targets import (
    TargetError,
    bootstrap_target,
    functional_penalty,
    maxmin_target,
    require_finite,
)


class PenalisedDQN(_ByLoss, MintoDQN):
    """DQN whose loss has a second term; subclasses say which."""

    def penalty(self, values: Tensor, chosen: Tensor, batch: Any) -> Tensor:
        """A number to add, from values (batch, actions) of the online network and those of the actions taken."""
        raise NotImplementedError

    def _loss(self, batch: Any, discounts: Any) -> Tensor:
        """DQN's, and the penalty."""
        with torch.no_grad():
            theirs = self.q_net_target(batch.next_observations)
            with evaluating(self.q_net):
                ours = self.q_net(batch.next_observations)
            target = bootstrap_target(
                theirs, ours, batch.rewards[:, 0], batch.dones[:, 0], discounts, self.bootstrap, beta=self.beta,
                use_online=_coins(theirs) if self.bootstrap == "random" else None,
            )  # fmt: skip
        require_finite(target, type(self).__name__)
        self._seen = theirs, ours
        values = self.q_net(batch.observations)
        chosen = values.gather(1, batch.actions.long())
        return functional.smooth_l1_loss(chosen[:, 0], target) + self.penalty(values, chosen, batch)


class FRDQN(PenalisedDQN):
    """Functional regularisation (Piché et al. 2021): online bootstrap, held to the target network's values."""

    def __init__(self, policy: Any, env: Any, *args: Any, kappa: float = 1.0, **kwargs: Any) -> None:
        if kappa < 0:
            raise TargetError(f"kappa must be at least 0; got {kappa}.")
        self.kappa = kappa
        super().__init__(policy, env, *args, **{"bootstrap": "online", **kwargs})

    def penalty(self, values: Tensor, chosen: Tensor, batch: Any) -> Tensor:
        """Half kappa times the squared distance to the target network at (s, a)."""
        with torch.no_grad():
            anchor = self.q_net_target(batch.observations).gather(1, batch.actions.long())
        return functional_penalty(chosen, anchor, self.kappa).mean()


class _MinimumOf(nn.Module):
    """Several value networks that answer their least values."""

    def __init__(self, nets: list[Any]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def set_training_mode(self, mode: bool) -> None:
        """As stable-baselines3's own networks."""
        self.train(mode)

    def all(self, obs: Any) -> Tensor:
        """Values (N, batch, actions)."""
        return torch.stack([net(obs) for net in self.nets])

    def forward(self, obs: Any) -> Tensor:
        """The least of all, (batch, actions)."""
        return self.all(obs).amin(0)

    def _predict(self, observation: Any, deterministic: bool = True) -> Tensor:
        return self(observation).argmax(1).reshape(-1)


class MaxminDQN(_ByLoss, DQN):
    """Maxmin Q-learning (Lan et al. 2020) with N pairs of networks, one drawn and trained an update.

    Parameters
    ----------
    members
        N, at least 2. Results depend on it and on the optimiser strongly.
    minto
        Bootstrap from the minimum over target and online networks of all pairs, 2N tables.
    """

    def __init__(self, policy: Any, env: Any, *args: Any, members: int = 2, minto: bool = False, **kw: Any) -> None:
        if members < 2:
            raise TargetError(f"Maxmin needs at least 2 members; got {members}.")
        self.members, self.minto = members, minto
        super().__init__(policy, env, *args, **kw)

    def _setup_model(self) -> None:
        super()._setup_model()
        policy = self.policy
        policy.q_net = _MinimumOf([policy.make_q_net() for _ in range(self.members)]).to(self.device)  # pyright: ignore[reportAttributeAccessIssue]
        policy.q_net_target = copy.deepcopy(policy.q_net)
        policy.q_net_target.set_training_mode(False)
        policy.optimizer = policy.optimizer_class(
            policy.q_net.parameters(), lr=self.lr_schedule(1), **policy.optimizer_kwargs  # pyright: ignore[reportCallIssue]
        )  # fmt: skip
        self._create_aliases()
        self.batch_norm_stats = [p for n, p in self.q_net.state_dict().items() if "running_" in n]
        self.batch_norm_stats_target = [p for n, p in self.q_net_target.state_dict().items() if "running_" in n]

    def _loss(self, batch: Any, discounts: Any) -> Tensor:
        """Of one member a batch; Adam's moments of the others rest, since their gradients are None."""
        online: Any = self.q_net
        target: Any = self.q_net_target
        with torch.no_grad():
            tables = target.all(batch.next_observations)
            if self.minto:
                with evaluating(online):
                    tables = torch.cat([tables, online.all(batch.next_observations)])
            y = maxmin_target(tables, batch.rewards[:, 0], batch.dones[:, 0], discounts)
        require_finite(y, type(self).__name__)
        net = online.nets[int(np.random.randint(self.members))]  # noqa: NPY002 - stable-baselines3 seeds it
        chosen = net(batch.observations).gather(1, batch.actions.long())[:, 0]
        return functional.smooth_l1_loss(chosen, y)
