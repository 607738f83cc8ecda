"""MINTO in stable-baselines3: DQN, SAC, TD3 and, from sb3-contrib, QR-DQN and TQC with an argument ``bootstrap``.

While the base class trains, something stands in for its target network that is called like it and answers the
combination of both networks; everything else (replay, n-step returns, losses, schedules, saving) is the base class's.
With ``bootstrap="target"`` the training is the base class's to the bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import MissingExtra
from assay.training.minto.distributional import RULES, combine_quantiles
from assay.training.minto.targets import (
    OPERATORS,
    Rule,
    TargetError,
    bootstrap_value,
    combine,
    online_share,
    require_finite,
)

try:
    from sb3_contrib import QRDQN, TQC
    from stable_baselines3 import DQN, SAC, TD3
except ImportError:
    raise MissingExtra("MINTO for stable-baselines3", "minto") from None

CRITIC_OPERATORS = ("target", "online", "min", "max", "mean", "random")
QUANTILE_OPERATORS = (*CRITIC_OPERATORS, "double")


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Dropout off and running statistics still inside, as for any bootstrap; training mode is put back afterwards."""
    modes = [m for m in net.modules() if m.training and _acts_differently(m)]
    for module in modes:
        module.training = False
    try:
        yield
    finally:
        for module in modes:
            module.training = True


def _acts_differently(module: nn.Module) -> bool:
    kinds = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
    return isinstance(module, kinds) or hasattr(module, "running_mean")


class _StandIn:
    """Called like a target network; answers ``blend(target, online)``. Both answers of the last call are kept."""

    def __init__(self, target: Any, online: Any, blend: Callable[[Any, Any], Any]) -> None:
        self.target, self.online, self.blend = target, online, blend
        self.seen: tuple[Any, Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        with torch.no_grad():
            theirs = self.target(*inputs)
            with evaluating(self.online):
                ours = self.online(*inputs)
        self.seen = theirs, ours
        return self.blend(theirs, ours)

    def parameters(self) -> Any:
        """Of the true target network: base classes that mix in their training mix into it."""
        return self.target.parameters()


def _coins(like: Tensor) -> Tensor:
    """A fair coin a transition, from torch's own generator, which stable-baselines3 seeds."""
    return torch.rand(like.shape[0], device=like.device) < 0.5


class _Minto:
    """What all classes here share."""

    bootstrap: str
    _target_name: str
    _online_name: str
    online_rate: float | None = None

    def _set_bootstrap(self, bootstrap: str, allowed: tuple[str, ...]) -> None:
        if bootstrap not in allowed:
            raise TargetError(f"bootstrap={bootstrap!r} is none of {', '.join(allowed)}.")
        self.bootstrap = bootstrap

    def _blend(self, theirs: Any, ours: Any) -> Any:
        raise NotImplementedError

    def _rate(self, theirs: Any, ours: Any) -> float:
        return online_share(theirs, ours)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """The base class's training on another target."""
        if self.bootstrap == "target":
            super().train(gradient_steps, batch_size)  # pyright: ignore[reportAttributeAccessIssue]
            return
        target = getattr(self, self._target_name)
        stand_in = _StandIn(target, getattr(self, self._online_name), self._checked)
        setattr(self, self._target_name, stand_in)
        try:
            super().train(gradient_steps, batch_size)  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            setattr(self, self._target_name, target)
        if stand_in.seen is not None:
            self._seen = stand_in.seen

    def _checked(self, theirs: Any, ours: Any) -> Any:
        found = self._blend(theirs, ours)
        for part in (theirs, ours, found):
            for values in part if isinstance(part, tuple) else (part,):
                require_finite(values, type(self).__name__)
        return found

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_seen"]  # pyright: ignore[reportAttributeAccessIssue]

    def _log_rate(self) -> None:
        """Share of transitions at which the online network supplied the minimum, in the last batch."""
        seen = getattr(self, "_seen", None)
        if seen is not None:
            self.online_rate = self._rate(*seen)
            self.logger.record("minto/online_rate", self.online_rate)  # pyright: ignore[reportAttributeAccessIssue]


class _Copying(_Minto):
    """Value-based classes, whose target network is copied every so many environment steps."""

    def _on_step(self) -> None:
        me: Any = self
        every = max(me.target_update_interval // me.n_envs, 1)
        if (me._n_calls + 1) % every == 0:  # networks differ most just before a copy
            self._log_rate()
        super()._on_step()  # pyright: ignore[reportAttributeAccessIssue]

    def learn(self, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
        """As in stable-baselines3; warns where copies come so often, or so rarely, that MINTO is another method."""
        me: Any = self
        if self.bootstrap in ("min", "max", "mean", "random"):
            if me.tau == 1 and me.target_update_interval // me.n_envs <= 1:
                warnings.warn(
                    "The target network is copied every step: both networks are one, and the bootstrap is online.",
                    stacklevel=2,
                )
            elif me.target_update_interval > total_timesteps:
                warnings.warn(
                    f"The target network is never copied (target_update_interval={me.target_update_interval} > "
                    f"{total_timesteps} steps): values stall at a minimum with the first network.",
                    stacklevel=2,
                )
        return super().learn(total_timesteps, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


class _ByLoss:
    """Value-based training of one's own: subclasses say what a batch costs, the rest is stable-baselines3's."""

    def _loss(self, batch: Any, discounts: Any) -> Tensor:
        """Loss of a batch; ``discounts`` are a number or one a transition, shape (batch,)."""
        raise NotImplementedError

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """One step of the policy's optimiser a batch."""
        me: Any = self
        me.policy.set_training_mode(True)
        me._update_learning_rate(me.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            batch = me.replay_buffer.sample(batch_size, env=me._vec_normalize_env)
            loss = self._loss(batch, me.gamma if batch.discounts is None else batch.discounts[:, 0])
            losses.append(loss.item())
            me.policy.optimizer.zero_grad()
            loss.backward()
            if me.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(me.policy.parameters(), me.max_grad_norm)
            me.policy.optimizer.step()
        me._n_updates += gradient_steps
        me.logger.record("train/n_updates", me._n_updates, exclude="tensorboard")
        me.logger.record("train/loss", sum(losses) / max(1, len(losses)))


class MintoDQN(_Copying, DQN):
    """stable_baselines3.DQN with ``bootstrap`` in `targets.OPERATORS`: the minimum action by action by default.

    ``beta`` is of ``scdqn``. ``online_rate`` is the last share of online values, taken just before each copy.
    """

    _target_name, _online_name = "q_net_target", "q_net"

    def __init__(self, policy: Any, env: Any, *args: Any, bootstrap: str = "min", beta: float = 0.5, **kw: Any) -> None:
        self._set_bootstrap(bootstrap, OPERATORS)
        self.beta = beta
        super().__init__(policy, env, *args, **kw)

    def _blend(self, theirs: Tensor, ours: Tensor) -> Tensor:
        coins = _coins(theirs) if self.bootstrap == "random" else None
        if self.bootstrap in ("double", "scdqn"):
            # The base class takes the maximum of what is there: the one chosen value.
            return bootstrap_value(theirs, ours, self.bootstrap, beta=self.beta)[:, None]
        return combine(theirs, ours, self.bootstrap, use_online=coins)


class MintoQRDQN(_Copying, QRDQN):
    """sb3_contrib.QRDQN with ``bootstrap`` and ``rule`` (`distributional.combine_quantiles`)."""

    _target_name, _online_name = "quantile_net_target", "quantile_net"

    def __init__(
        self, policy: Any, env: Any, *args: Any, bootstrap: str = "min", rule: Rule = "quantilewise", **kw: Any
    ) -> None:
        self._set_bootstrap(bootstrap, QUANTILE_OPERATORS)
        if rule not in RULES:
            raise TargetError(f"rule must be quantilewise or mean; got {rule!r}.")
        self.rule: Rule = rule
        super().__init__(policy, env, *args, **kw)

    def _blend(self, theirs: Tensor, ours: Tensor) -> Tensor:
        # Networks answer (batch, quantiles, actions).
        if self.bootstrap == "double":
            best = ours.mean(1).argmax(-1)[:, None, None].expand(-1, theirs.shape[1], 1)
            return theirs.gather(2, best)
        coins = _coins(theirs) if self.bootstrap == "random" else None
        theirs, ours = theirs.transpose(1, 2), ours.transpose(1, 2)
        return combine_quantiles(theirs, ours, self.bootstrap, rule=self.rule, use_online=coins).transpose(1, 2)

    def _rate(self, theirs: Tensor, ours: Tensor) -> float:
        return online_share(theirs.mean(1), ours.mean(1))


class _Critics(_Minto):
    """Actor-critic classes: values of one action by several critics."""

    _target_name, _online_name = "critic_target", "critic"

    def _blend(self, theirs: tuple[Tensor, ...], ours: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        # The base class takes the minimum over critics afterwards: with "min" over all of both networks.
        coins = _coins(theirs[0]) if self.bootstrap == "random" else None
        return tuple(combine(t, o, self.bootstrap, use_online=coins) for t, o in zip(theirs, ours))

    def _rate(self, theirs: tuple[Tensor, ...], ours: tuple[Tensor, ...]) -> float:
        return online_share(torch.cat(theirs, 1).amin(1, keepdim=True), torch.cat(ours, 1).amin(1, keepdim=True))

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """The base class's training on another target."""
        super().train(gradient_steps, batch_size)
        self._log_rate()


class MintoSAC(_Critics, SAC):
    """stable_baselines3.SAC with ``bootstrap``: the minimum runs over all critics of both networks.

    One critic without clipped double Q: ``policy_kwargs={"n_critics": 1}``.
    """

    def __init__(self, policy: Any, env: Any, *args: Any, bootstrap: str = "min", **kw: Any) -> None:
        self._set_bootstrap(bootstrap, CRITIC_OPERATORS)
        super().__init__(policy, env, *args, **kw)


class MintoTD3(_Critics, TD3):
    """stable_baselines3.TD3 with ``bootstrap``, as `MintoSAC`."""

    def __init__(self, policy: Any, env: Any, *args: Any, bootstrap: str = "min", **kw: Any) -> None:
        self._set_bootstrap(bootstrap, CRITIC_OPERATORS)
        super().__init__(policy, env, *args, **kw)


class MintoTQC(_Critics, TQC):
    """sb3_contrib.TQC with ``bootstrap`` and ``rule``: quantiles of critic i with those of its own target network."""

    def __init__(
        self, policy: Any, env: Any, *args: Any, bootstrap: str = "min", rule: Rule = "quantilewise", **kw: Any
    ) -> None:
        self._set_bootstrap(bootstrap, CRITIC_OPERATORS)
        if rule not in RULES:
            raise TargetError(f"rule must be quantilewise or mean; got {rule!r}.")
        self.rule: Rule = rule
        super().__init__(policy, env, *args, **kw)

    def _blend(self, theirs: Tensor, ours: Tensor) -> Tensor:
        # Networks answer (batch, critics, quantiles): a critic stands where an action would.
        coins = _coins(theirs) if self.bootstrap == "random" else None
        return combine_quantiles(theirs, ours, self.bootstrap, rule=self.rule, use_online=coins)

    def _rate(self, theirs: Tensor, ours: Tensor) -> float:
        return online_share(theirs.mean((1, 2))[:, None], ours.mean((1, 2))[:, None])
