"""Bootstrap targets as pure functions of arrays: numpy arrays in, numpy out; torch tensors in, torch out.

The last axis of action values is the action; everything before it is batch, of any number of axes. Targets never carry
a gradient. NaN in either network is handed on, never hidden by a minimum; `require_finite` is what the algorithms of
this room call on their targets.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np

from assay.core.errors import UsageError, unknown_name

Operator = Literal["target", "online", "min", "max", "mean", "random", "double", "scdqn"]
OPERATORS: tuple[str, ...] = get_args(Operator)
Rule = Literal["quantilewise", "mean"]
Array = Any
"""A numpy array or a torch tensor; all arguments of one call are of one kind."""


class TargetError(UsageError, ValueError):
    """An operator, shape or number from which no target can be made."""


def combine(q_target: Array, q_online: Array, op: str = "min", *, use_online: Array | None = None) -> Array:
    """One table of values out of the two networks', elementwise; the base of every target here.

    Parameters
    ----------
    q_target, q_online
        Values of one shape.
    op
        ``target``, ``online``, ``min`` (MINTO), ``max``, ``mean``, or ``random``.
    use_online
        For ``random``: whether a transition takes the online network (for all of its actions), shape of the batch.
    """
    xp = _module(q_target, q_online)
    _same_shape(q_target, q_online)
    if op == "target":
        return _detached(q_target)
    if op == "online":
        return _detached(q_online)
    qt, qo = _detached(q_target), _detached(q_online)
    if op == "min":
        return xp.minimum(qt, qo)
    if op == "max":
        return xp.maximum(qt, qo)
    if op == "mean":
        return (qt + qo) / 2
    if op == "random":
        if use_online is None:
            raise TargetError(
                "Operator random needs use_online: for every transition, whether it takes the online network."
            )
        return xp.where(use_online[..., None], qo, qt)
    raise TargetError(str(unknown_name("operator", op, OPERATORS)))


def bootstrap_value(
    q_target: Array, q_online: Array, op: str = "min", *, use_online: Array | None = None, beta: float = 0.5
) -> Array:
    """Value of the next state: what a target discounts.

    ``min`` takes the minimum action by action and then the best action; the smaller of both maxima would be larger or
    equal, and another method. ``double`` lets the online network choose and the target network tell (van Hasselt et
    al. 2016); ``scdqn`` lets ``(1 - beta) online + beta target`` choose (after Zhu and Rigotti 2021; the published
    form of the coefficient is not confirmed).
    """
    xp = _module(q_target, q_online)
    if op in ("double", "scdqn"):
        _same_shape(q_target, q_online)
        qt, qo = _detached(q_target), _detached(q_online)
        chooser = qo if op == "double" else (1 - beta) * qo + beta * qt
        return _pick(xp, qt, chooser.argmax(-1))
    return xp.amax(combine(q_target, q_online, op, use_online=use_online), -1)


def bootstrap_target(
    q_target: Array,
    q_online: Array,
    reward: Array,
    terminated: Array,
    gamma: float | Array,
    op: str = "min",
    *,
    use_online: Array | None = None,
    beta: float = 0.5,
) -> Array:
    """``r + gamma (1 - terminated) V`` with V as `bootstrap_value` of the next state.

    Parameters
    ----------
    q_target, q_online
        Values of the next state by the target and by the online network, shape (..., actions).
    reward
        Shape (...); with `n_step` the discounted sum of n of them.
    terminated
        Shape (...): 1 where the episode truly ended. Not where a time limit cut it off: that biases targets.
    gamma
        Discount, at least 0; after n steps its n-th power, a row each where it differs.
    op
        One of `OPERATORS`.
    use_online
        Shape (...); only ``random`` needs it.
    beta
        Only ``scdqn`` reads it: 0 = the online network chooses, 1 = the target network.

    Returns
    -------
    array
        Shape (...), no gradient.

    References
    ----------
    arXiv 2510.02590.
    """
    return _discounted(
        bootstrap_value(q_target, q_online, op, use_online=use_online, beta=beta), reward, terminated, gamma
    )


def maxmin_target(tables: Array, reward: Array, terminated: Array, gamma: float | Array) -> Array:
    """``r + gamma (1 - terminated) max_a min_i Q_i``: Maxmin (Lan et al. 2020) over tables of shape (N, ..., actions).

    Give it the target networks; for Maxmin with MINTO, target and online networks of all pairs, 2N tables.
    """
    xp = _module(tables)
    if tables.ndim < 2:
        raise TargetError(f"Maxmin needs tables of shape (N, ..., actions); got {tuple(tables.shape)}.")
    return _discounted(xp.amax(xp.amin(_detached(tables), 0), -1), reward, terminated, gamma)


def critic_target(
    q_target: Array,
    q_online: Array,
    reward: Array,
    terminated: Array,
    gamma: float | Array,
    op: str = "min",
    *,
    entropy: float | Array = 0.0,
    next_log_prob: Array | float = 0.0,
    clipped: bool = True,
    use_online: Array | None = None,
) -> Array:
    """Target of SAC (TD3 with ``entropy=0``) at the next action that policy or target policy drew.

    Parameters
    ----------
    q_target, q_online
        Values of M critics at the next action, shape (M, ...).
    entropy, next_log_prob
        Temperature, and log density of the next action, shape (...).
    clipped
        Clipped double Q: one target, the minimum over critics (with ``min`` over all 2M values), shape (...). False:
        critic i has a target of its own from pair i, shape (M, ...).
    """
    xp = _module(q_target, q_online)
    if op in ("double", "scdqn"):
        raise TargetError(f"Operator {op} chooses among actions; critics of one action have none to choose from.")
    if op == "random" and use_online is not None:  # one coin for all critics of a transition
        mixed = xp.where(use_online, _detached(q_online), _detached(q_target))
    else:
        mixed = combine(q_target, q_online, op)
    value = xp.amin(mixed, 0) if clipped else mixed
    return _discounted(value - entropy * next_log_prob, reward, terminated, gamma)


def n_step(
    rewards: Array, terminated: Array, truncated: Array, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sum n rewards of each start, stopping where an episode ends.

    Parameters
    ----------
    rewards, terminated, truncated
        Shape (..., n): what followed, in order.

    Returns
    -------
    returns, discounts, terminated, last
        Shape (...): discounted sum, the power of gamma for the bootstrap, whether the episode truly ended, and the
        offset of the last step used (bootstrap from the observation after it).
    """
    r, d, cut = (np.asarray(x, float) for x in (rewards, terminated, truncated))
    if not r.shape == d.shape == cut.shape or r.ndim < 1 or r.shape[-1] < 1:
        raise TargetError(f"n-step sums need arrays of one shape (..., n); got {r.shape}, {d.shape}, {cut.shape}.")
    _check_gamma(gamma)
    n = r.shape[-1]
    ended = (d > 0) | (cut > 0)
    alive = np.cumprod(np.concatenate([np.ones((*r.shape[:-1], 1)), 1 - ended[..., :-1]], -1), -1)
    last = alive.sum(-1).astype(int) - 1
    total = (r * alive * gamma ** np.arange(n)).sum(-1)
    return total, gamma ** (last + 1.0), np.take_along_axis(d, last[..., None], -1)[..., 0], last


def online_share(q_target: Array, q_online: Array) -> float:
    """Share of all transitions where, at the best action of the minimum, the online value is strictly smaller.

    Terminal transitions count too; equal values count as the target network's.
    """
    xp = _module(q_target, q_online)
    qt, qo = _detached(q_target), _detached(q_online)
    best = combine(qt, qo, "min").argmax(-1)
    return float((_pick(xp, qo, best) < _pick(xp, qt, best)).sum()) / max(1, math.prod(best.shape))


def functional_penalty(q: Array, q_target: Array, kappa: float) -> Array:
    """``kappa / 2 (Q - Q_target)^2`` of the chosen actions: functional regularisation, beside an online bootstrap.

    After Piché et al. 2021 (arXiv 2106.02613); the gradient flows into ``q`` alone.
    """
    if kappa < 0:
        raise TargetError(f"kappa must be at least 0; got {kappa}.")
    return kappa / 2 * (q - _detached(q_target)) ** 2


def conservative_penalty(q: Array, action: Array) -> Array:
    """Mean of ``logsumexp_a Q - Q(s, action)``: what CQL adds, times alpha (Kumar et al. 2020).

    ``q`` of shape (..., actions), ``action`` whole numbers of shape (...); the gradient flows.
    """
    xp = _module(q)
    top = xp.amax(_detached(q), -1)
    total = top + xp.log(xp.exp(q - top[..., None]).sum(-1))
    return (total - _pick(xp, q, action)).mean()


def require_finite(target: Array, where: str) -> None:
    """Raise where a target is NaN or infinite: one of both networks diverged, and a minimum must not hide it."""
    finite = _module(target).isfinite(target)
    if not bool(finite.all()):
        raise FloatingPointError(
            f"{where}: {int((~finite).sum())} of {math.prod(target.shape)} targets are NaN or infinite; a network has "
            "diverged. Lower the learning rate or clip gradients."
        )


def _discounted(value: Array, reward: Array, terminated: Array, gamma: float | Array) -> Array:
    _check_gamma(gamma)
    # Critics with targets of their own have one axis more in front than rewards.
    if tuple(value.shape)[-reward.ndim :] != tuple(reward.shape) or reward.shape != terminated.shape:
        raise TargetError(
            f"Rewards {tuple(reward.shape)} and terminations {tuple(terminated.shape)} must have the batch shape of "
            f"the values, {tuple(value.shape)}."
        )
    return reward + gamma * (1 - _number(terminated, reward)) * value


def _number(flags: Array, like: Array) -> Array:
    """Flags as numbers of the rewards' type."""
    return flags.astype(like.dtype) if isinstance(flags, np.ndarray) else flags.to(like.dtype)


def _check_gamma(gamma: float | Array) -> None:
    low = float(gamma) if isinstance(gamma, (int, float)) else float(gamma.min())
    if not low >= 0:
        raise TargetError(f"gamma must be at least 0; got {low:g}.")


def _same_shape(a: Array, b: Array) -> None:
    if a.shape != b.shape or a.ndim < 1:
        raise TargetError(
            f"Values of both networks must have one shape with actions last; got {tuple(a.shape)} and {tuple(b.shape)}."
        )


def _module(*arrays: Array) -> Any:
    """numpy, or torch where a tensor comes in."""
    if all(isinstance(a, (np.ndarray, np.generic)) for a in arrays):
        return np
    import torch

    if all(isinstance(a, torch.Tensor) for a in arrays):
        return torch
    kinds = ", ".join(type(a).__name__ for a in arrays)
    raise TargetError(f"Values must be numpy arrays or torch tensors, all of one kind; got {kinds}.")


def _detached(x: Array) -> Array:
    return x if isinstance(x, np.ndarray) else x.detach()


def _pick(xp: Any, values: Array, index: Array) -> Array:
    """Entries of the last axis, one a row."""
    if xp is np:
        return np.take_along_axis(values, index[..., None], -1)[..., 0]
    return values.gather(-1, index[..., None].long())[..., 0]
