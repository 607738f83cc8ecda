"""Networks of the paper for stable-baselines3: IMPALA's CNN with layer normalisation, SimBa and SimBaV2 critics."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import Tensor, nn
from torch.nn import functional


class ImpalaCNN(BaseFeaturesExtractor):
    """IMPALA's residual CNN (Espeholt et al. 2018), layer normalisation before the last layer.

    Use it with ``policy_kwargs={"features_extractor_class": ImpalaCNN, "net_arch": []}``.

    Parameters
    ----------
    channels
        Of the three stages, each a convolution, a pooling and two residual blocks.
    """

    def __init__(
        self, observation_space: spaces.Box, features_dim: int = 512, channels: tuple[int, ...] = (16, 32, 32)
    ) -> None:
        super().__init__(observation_space, features_dim)
        before = int(observation_space.shape[0])
        stages: list[nn.Module] = []
        for after in channels:
            stages += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.MaxPool2d(3, 2, 1),
                _Residual(after),
                _Residual(after),
            ]
            before = after
        self.stages = nn.Sequential(*stages, nn.ReLU(), nn.Flatten())
        with torch.no_grad():
            width = self.stages(torch.zeros(1, *observation_space.shape)).shape[1]
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        """Features (batch, features_dim) of pictures (batch, channels, height, width)."""
        return self.head(self.stages(observations))


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(functional.relu(self.first(functional.relu(x))))


class RunningNorm(BaseFeaturesExtractor):
    """Flat observations minus their running mean over their running deviation, clipped at 10.

    Statistics move in training mode only, so that a bootstrap forward leaves them; stable-baselines3 copies what is
    called ``running_`` to target networks whole.
    """

    running_mean: Tensor
    running_var: Tensor
    running_count: Tensor

    def __init__(self, observation_space: spaces.Space) -> None:
        width = flatdim(observation_space)
        super().__init__(observation_space, width)
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.register_buffer("running_count", torch.tensor(1e-4))

    def forward(self, observations: Tensor) -> Tensor:
        """Normalised features (batch, width)."""
        x = observations.flatten(1).float()
        if self.training and len(x) > 1:
            with torch.no_grad():
                n, m = self.running_count, float(len(x))
                gap = x.mean(0) - self.running_mean
                whole = self.running_var * n + x.var(0, unbiased=False) * m + gap**2 * n * m / (n + m)
                self.running_mean += gap * m / (n + m)
                self.running_var.copy_(whole / (n + m))
                self.running_count += m
        return ((x - self.running_mean) / (self.running_var + 1e-8).sqrt()).clamp(-10, 10)


class _Block(nn.Module):
    """SimBa's residual block: layer normalisation, four times the width, back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def simba(inputs: int, width: int, blocks: int, outputs: int | None) -> nn.Sequential:
    """Linear, residual blocks, layer normalisation, and a linear head where outputs are given (Lee et al. 2025)."""
    layers: list[nn.Module] = [nn.Linear(inputs, width), *(_Block(width) for _ in range(blocks)), nn.LayerNorm(width)]
    return nn.Sequential(*layers, *([nn.Linear(width, outputs)] if outputs is not None else []))


class _Unit(nn.Module):
    """A linear map whose rows lie on the unit sphere, without bias; weights are put back on it before each use."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(outputs, inputs)))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, functional.normalize(self.weight, dim=1))


class _Scale(nn.Module):
    """A learned factor a feature, held at the size ``start`` while it is learned at the speed of ``speed``."""

    def __init__(self, width: int, start: float, speed: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((width,), speed))
        self.ratio = start / speed

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor * self.ratio


class _Sphere(nn.Module):
    """SimBaV2's block: an inverted bottleneck on the sphere, mixed into the features and put back on it."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        root = math.sqrt(2 / width)
        self.up, self.scale, self.down = _Unit(width, 4 * width), _Scale(4 * width, root, root), _Unit(4 * width, width)
        self.share = _Scale(width, 1 / (blocks + 1), 1 / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        other = functional.normalize(self.down(functional.relu(self.scale(self.up(x)))), dim=-1)
        return functional.normalize(x + self.share(other - x), dim=-1)


class SphericalTrunk(nn.Module):
    """SimBaV2's trunk (Lee et al. 2025b): inputs with one more coordinate on the unit sphere, then blocks on it."""

    def __init__(self, inputs: int, width: int, blocks: int) -> None:
        super().__init__()
        root = math.sqrt(2 / width)
        self.embed, self.scale = _Unit(inputs + 1, width), _Scale(width, root, root)
        self.blocks = nn.Sequential(*(_Sphere(width, blocks) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        """Features (batch, width) of length 1."""
        x = functional.normalize(torch.cat([x, torch.full_like(x[:, :1], 3.0)], 1), dim=-1)
        return self.blocks(functional.normalize(self.scale(self.embed(x)), dim=-1))


class SphericalHead(nn.Module):
    """SimBaV2's output layer: weights on the unit sphere, a learned factor a feature between them, an offset."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_Unit(width, width), _Scale(width, 1.0, 1.0), _Unit(width, outputs))
        self.offset = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (batch, outputs)."""
        return self.layers(x) + self.offset


class HypersphericalNet(nn.Module):
    """SimBaV2's critic: a trunk, and a head that answers logits over atoms; called, it answers the expected value."""

    atoms: Tensor

    def __init__(self, inputs: int, width: int, blocks: int, atoms: int = 101, bound: float = 5.0) -> None:
        super().__init__()
        self.trunk, self.head = SphericalTrunk(inputs, width, blocks), SphericalHead(width, atoms)
        self.register_buffer("atoms", torch.linspace(-bound, bound, atoms))

    def logits(self, x: Tensor) -> Tensor:
        """Shape (batch, atoms)."""
        return self.head(self.trunk(x))

    def forward(self, x: Tensor) -> Tensor:
        """Expected value (batch, 1)."""
        return (torch.softmax(self.logits(x), -1) * self.atoms).sum(-1, keepdim=True)


class _SimBaCritic(ContinuousCritic):
    def __init__(self, *args: Any, width: int, blocks: int, spherical: bool, bound: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        inputs = kwargs["features_dim"] + flatdim(self.action_space)
        self.q_networks = []
        for i in range(self.n_critics):
            net = (
                HypersphericalNet(inputs, width, blocks, bound=bound) if spherical else simba(inputs, width, blocks, 1)
            )
            self.add_module(f"qf{i}", net)
            self.q_networks.append(net)

    def logits(self, obs: Any, actions: Tensor) -> Tensor:
        """Of all hyperspherical critics: (batch, critics, atoms)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.share_features_extractor):
            features = self.extract_features(obs, self.features_extractor)
        joined = torch.cat([features, actions], 1)
        return torch.stack([net.logits(joined) for net in self.q_networks], 1)  # pyright: ignore[reportCallIssue]


class SimBaPolicy(SACPolicy):
    """SimBa for SAC: running observation normalisation, residual actor and critics, AdamW.

    Parameters
    ----------
    actor_width, actor_blocks, critic_width, critic_blocks
        128, 1, 512 and 2 in the paper, from memory.
    """

    spherical = False

    def __init__(
        self, *args: Any, actor_width: int = 128, actor_blocks: int = 1, critic_width: int = 512,
        critic_blocks: int = 2, bound: float = 5.0, **kwargs: Any,
    ) -> None:  # fmt: skip
        self.sizes = {
            "actor_width": actor_width, "actor_blocks": actor_blocks, "critic_width": critic_width,
            "critic_blocks": critic_blocks, "bound": bound,
        }  # fmt: skip
        kwargs = {
            "net_arch": [actor_width], "features_extractor_class": RunningNorm, "optimizer_class": torch.optim.AdamW,
            "optimizer_kwargs": {"weight_decay": 1e-2}, **kwargs,
        }  # fmt: skip
        super().__init__(*args, **kwargs)

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> Actor:
        """An actor whose perceptron is SimBa's trunk."""
        actor = super().make_actor(features_extractor)
        trunk = simba(actor.features_dim, self.sizes["actor_width"], self.sizes["actor_blocks"], None)
        actor.latent_pi = trunk.to(self.device)
        return actor

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> ContinuousCritic:
        """Critics of residual blocks."""
        arguments = self._update_features_extractor(self.critic_kwargs, features_extractor)
        return _SimBaCritic(
            **arguments, width=self.sizes["critic_width"], blocks=self.sizes["critic_blocks"],
            spherical=self.spherical, bound=self.sizes["bound"],
        ).to(self.device)  # fmt: skip

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self.sizes}


class SimBaV2Policy(SimBaPolicy):
    """SimBaV2's actor and critics: features and weights on the unit sphere, 101 atoms between ``-bound`` and ``bound``.

    `simbav2.MintoSimBaV2` trains the distribution by cross-entropy and scales rewards, as the paper does. Under
    `MintoSAC` critics are trained on their expected values, and rewards must be such that values lie within the bound.
    """

    spherical = True

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> Actor:
        """An actor on the sphere; with ``use_sde`` its last layers are stable-baselines3's."""
        actor = super().make_actor(features_extractor)
        width, actions = self.sizes["actor_width"], flatdim(self.action_space)
        actor.latent_pi = SphericalTrunk(actor.features_dim, width, self.sizes["actor_blocks"]).to(self.device)  # pyright: ignore[reportAttributeAccessIssue]
        if not actor.use_sde:
            for name in ("mu", "log_std"):
                setattr(actor, name, SphericalHead(width, actions).to(self.device))
        return actor
