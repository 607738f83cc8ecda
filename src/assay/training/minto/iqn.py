"""Implicit quantile networks (Dabney et al. 2018) for stable-baselines3, with MINTO's bootstrap."""

from __future__ import annotations

import math
from typing import Any

import torch
from sb3_contrib import QRDQN
from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork
from stable_baselines3.common.torch_layers import NatureCNN
from torch import Tensor, nn

from assay.training.minto.algorithms import QUANTILE_OPERATORS, _ByLoss, _coins, _Copying, evaluating
from assay.training.minto.distributional import RULES, combine_quantiles, quantile_huber, quantile_target
from assay.training.minto.targets import Rule, TargetError, online_share, require_finite


class ImplicitQuantileNetwork(QuantileNetwork):
    """Quantiles at any fractions: features times a cosine embedding of the fraction, then a perceptron.

    Parameters
    ----------
    n_quantiles
        Fractions for acting (K).
    n_cosines
        Width of the embedding's input.
    """

    waves: Tensor

    def __init__(self, *args: Any, n_cosines: int = 64, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.n_cosines = n_cosines
        width, actions = self.features_dim, int(self.action_space.n)
        self.embed = nn.Sequential(nn.Linear(n_cosines, width), nn.ReLU())
        layers: list[nn.Module] = []
        for size in self.net_arch:
            layers += [nn.Linear(width, size), self.activation_fn()]
            width = size
        self.quantile_net = nn.Sequential(*layers, nn.Linear(width, actions))
        self.register_buffer("waves", math.pi * torch.arange(1, n_cosines + 1, dtype=torch.float32))

    def forward(self, obs: Any, fractions: Tensor | None = None) -> Tensor:
        """Quantiles (batch, fractions, actions); without fractions at K midpoints."""
        features = self.extract_features(obs, self.features_extractor)
        if fractions is None:
            k = self.n_quantiles
            fractions = ((torch.arange(k, device=features.device) + 0.5) / k).expand(len(features), k)
        embedded = self.embed(torch.cos(fractions[..., None] * self.waves))
        return self.quantile_net(features[:, None] * embedded)

    def _predict(self, observation: Any, deterministic: bool = True) -> Tensor:
        if deterministic:
            return self(observation).mean(1).argmax(-1)
        rows = next(iter(observation.values())) if isinstance(observation, dict) else observation
        drawn = torch.rand(len(rows), self.n_quantiles, device=rows.device)
        return self(observation, drawn).mean(1).argmax(-1)


class IQNPolicy(QRDQNPolicy):
    """Policy of `MintoIQN`; ``n_quantiles`` is the number of fractions for acting."""

    def __init__(self, *args: Any, n_quantiles: int = 32, n_cosines: int = 64, **kwargs: Any) -> None:
        self.n_cosines = n_cosines
        super().__init__(*args, n_quantiles=n_quantiles, **kwargs)

    def make_quantile_net(self) -> ImplicitQuantileNetwork:
        """A network of its own with a features extractor of its own."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return ImplicitQuantileNetwork(**arguments, n_cosines=self.n_cosines).to(self.device)

    def _predict(self, obs: Any, deterministic: bool = True) -> Tensor:
        return self.quantile_net._predict(obs, deterministic=deterministic)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "n_cosines": self.n_cosines}


class IQNCnnPolicy(IQNPolicy):
    """For pictures."""

    def __init__(self, *args: Any, features_extractor_class: Any = NatureCNN, **kwargs: Any) -> None:
        super().__init__(*args, features_extractor_class=features_extractor_class, **kwargs)


class MintoIQN(_ByLoss, _Copying, QRDQN):
    """IQN with the arguments of sb3_contrib.QRDQN, ``bootstrap`` and ``rule``.

    Parameters
    ----------
    n_online, n_target
        Fractions of predictions and of targets (N and N'), drawn anew each update; both networks see the same ones.
    """

    _target_name, _online_name = "quantile_net_target", "quantile_net"
    policy_aliases = {"MlpPolicy": IQNPolicy, "CnnPolicy": IQNCnnPolicy}

    def __init__(
        self,
        policy: Any,
        env: Any,
        *args: Any,
        bootstrap: str = "min",
        rule: Rule = "quantilewise",
        n_online: int = 64,
        n_target: int = 64,
        **kw: Any,
    ) -> None:
        self._set_bootstrap(bootstrap, QUANTILE_OPERATORS)
        if rule not in RULES:
            raise TargetError(f"rule must be quantilewise or mean; got {rule!r}.")
        if min(n_online, n_target) < 1:
            raise TargetError(f"n_online={n_online} and n_target={n_target} must be at least 1.")
        self.rule: Rule = rule
        self.n_online, self.n_target = n_online, n_target
        super().__init__(policy, env, *args, **kw)

    def _blend(self, theirs: Tensor, ours: Tensor) -> Tensor:
        coins = _coins(theirs) if self.bootstrap == "random" else None
        return combine_quantiles(theirs, ours, self.bootstrap, rule=self.rule, use_online=coins)

    def _loss(self, batch: Any, discounts: Any) -> Tensor:
        """Quantile Huber regression at drawn fractions."""
        rows = len(batch.rewards)
        with torch.no_grad():
            drawn = torch.rand(rows, self.n_target, device=self.device)
            theirs = self.quantile_net_target(batch.next_observations, drawn).transpose(1, 2)
            with evaluating(self.quantile_net):
                ours = self.quantile_net(batch.next_observations, drawn).transpose(1, 2)
            target = quantile_target(
                theirs, ours, batch.rewards[:, 0], batch.dones[:, 0], discounts, self.bootstrap, rule=self.rule,
                use_online=_coins(theirs) if self.bootstrap == "random" else None,
            )  # fmt: skip
        require_finite(target, type(self).__name__)
        self._seen = theirs, ours
        fractions = torch.rand(rows, self.n_online, device=self.device)
        now = self.quantile_net(batch.observations, fractions)
        index = batch.actions[..., None].long().expand(-1, self.n_online, 1)
        return quantile_huber(now.gather(2, index)[..., 0], target, fractions).mean()

    def _rate(self, theirs: Tensor, ours: Tensor) -> float:
        return online_share(theirs.mean(-1), ours.mean(-1))
