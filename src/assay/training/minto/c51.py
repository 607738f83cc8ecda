"""Categorical DQN (C51; Bellemare et al. 2017) for stable-baselines3, with MINTO's bootstrap."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN, create_mlp
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn

from assay.training.minto.algorithms import QUANTILE_OPERATORS, _ByLoss, _coins, _Copying, evaluating
from assay.training.minto.distributional import categorical_target
from assay.training.minto.targets import TargetError, online_share, require_finite


class CategoricalNetwork(QNetwork):
    """Probabilities of returns on fixed atoms; called like a Q-network it answers their means.

    Parameters
    ----------
    n_atoms, v_min, v_max
        Equally spaced atoms; returns beyond the ends are counted at the ends.
    """

    atoms: Tensor

    def __init__(self, *args: Any, n_atoms: int = 51, v_min: float = -10.0, v_max: float = 10.0, **kwargs: Any) -> None:
        if n_atoms < 2 or not v_min < v_max:
            raise TargetError(f"n_atoms={n_atoms} must be at least 2, and v_min={v_min} below v_max={v_max}.")
        super().__init__(*args, **kwargs)
        width = int(self.action_space.n) * n_atoms
        self.q_net = nn.Sequential(*create_mlp(self.features_dim, width, self.net_arch, self.activation_fn))
        self.register_buffer("atoms", torch.linspace(v_min, v_max, n_atoms))

    def log_probabilities(self, obs: Any) -> Tensor:
        """Shape (batch, actions, atoms)."""
        logits = self.q_net(self.extract_features(obs, self.features_extractor))
        return logits.unflatten(-1, (-1, len(self.atoms))).log_softmax(-1)

    def forward(self, obs: Any) -> Tensor:
        """Expected returns (batch, actions)."""
        return self.log_probabilities(obs).exp() @ self.atoms


class C51Policy(DQNPolicy):
    """Policy of `MintoC51`."""

    q_net: CategoricalNetwork
    q_net_target: CategoricalNetwork

    def __init__(self, *args: Any, n_atoms: int = 51, v_min: float = -10.0, v_max: float = 10.0, **kwargs: Any) -> None:
        self.support = {"n_atoms": n_atoms, "v_min": v_min, "v_max": v_max}
        super().__init__(*args, **kwargs)

    def make_q_net(self) -> CategoricalNetwork:
        """A network of its own with a features extractor of its own."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return CategoricalNetwork(**arguments, **self.support).to(self.device)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self.support}


class C51CnnPolicy(C51Policy):
    """For pictures."""

    def __init__(self, *args: Any, features_extractor_class: Any = NatureCNN, **kwargs: Any) -> None:
        super().__init__(*args, features_extractor_class=features_extractor_class, **kwargs)


class C51MultiInputPolicy(C51Policy):
    """For dictionaries of observations."""

    def __init__(self, *args: Any, features_extractor_class: Any = CombinedExtractor, **kwargs: Any) -> None:
        super().__init__(*args, features_extractor_class=features_extractor_class, **kwargs)


class MintoC51(_ByLoss, _Copying, DQN):
    """C51 with the arguments of stable_baselines3.DQN and ``bootstrap``.

    The target keeps, action by action, the distribution of the network with the smaller mean, takes the action with
    the best mean, and is projected on the atoms; the loss is the cross-entropy. Atoms are the policy's:
    ``policy_kwargs={"n_atoms": 51, "v_min": -10.0, "v_max": 10.0}``. With ``bootstrap="target"`` it is plain C51.
    """

    _target_name, _online_name = "q_net_target", "q_net"
    policy_aliases = {"MlpPolicy": C51Policy, "CnnPolicy": C51CnnPolicy, "MultiInputPolicy": C51MultiInputPolicy}
    policy: C51Policy

    def __init__(self, policy: Any, env: Any, *args: Any, bootstrap: str = "min", **kw: Any) -> None:
        self._set_bootstrap(bootstrap, QUANTILE_OPERATORS)
        super().__init__(policy, env, *args, **kw)

    def _loss(self, batch: Any, discounts: Any) -> Tensor:
        """Cross-entropy to the projected target."""
        online = self.policy.q_net
        with torch.no_grad():
            theirs = self.policy.q_net_target.log_probabilities(batch.next_observations).exp()
            with evaluating(online):
                ours = online.log_probabilities(batch.next_observations).exp()
            target = categorical_target(
                theirs, ours, online.atoms, batch.rewards[:, 0], batch.dones[:, 0], discounts, self.bootstrap,
                use_online=_coins(theirs) if self.bootstrap == "random" else None,
            )  # fmt: skip
        for values in (theirs, ours, target):
            require_finite(values, type(self).__name__)
        self._seen = theirs, ours
        index = batch.actions[..., None].long().expand(-1, 1, len(online.atoms))
        chosen = online.log_probabilities(batch.observations).gather(1, index)[:, 0]
        return -(target * chosen).sum(-1).mean()

    def _rate(self, theirs: Tensor, ours: Tensor) -> float:
        atoms = self.policy.q_net.atoms
        return online_share(theirs @ atoms, ours @ atoms)
