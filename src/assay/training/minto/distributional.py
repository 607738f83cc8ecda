"""Targets and losses of distributional critics: quantiles (IQN, QR-DQN) and categories (C51), numpy or torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.training.minto.targets import Array, Rule, TargetError, _detached, _discounted, _module, combine

RULES = ("quantilewise", "mean")


def combine_quantiles(
    z_target: Array, z_online: Array, op: str = "min", *, rule: Rule = "quantilewise", use_online: Array | None = None
) -> Array:
    """Quantiles of both networks, at the same fractions, made one table of shape (..., actions, quantiles).

    Parameters
    ----------
    rule
        ``quantilewise``: minimum (maximum, mean) of quantile by quantile; the minimum of two quantile functions is one
        again. ``mean``: for each action all quantiles of the network with the smaller (larger) mean, the target
        network's where means are equal. Which of them the paper takes is not confirmed.
    """
    if rule not in RULES:
        raise TargetError(f"rule must be quantilewise or mean; got {rule!r}.")
    if op == "random":
        use_online = None if use_online is None else use_online[..., None]
        return combine(z_target, z_online, op, use_online=use_online)
    if rule == "quantilewise" or op not in ("min", "max"):
        return combine(z_target, z_online, op)
    xp = _module(z_target, z_online)
    combine(z_target, z_online, op)  # checks shapes
    return _kept(xp, _detached(z_target), _detached(z_online), z_target.mean(-1), z_online.mean(-1), op)


def quantile_target(
    z_target: Array,
    z_online: Array,
    reward: Array,
    terminated: Array,
    gamma: float | Array,
    op: str = "min",
    *,
    rule: Rule = "quantilewise",
    use_online: Array | None = None,
) -> Array:
    """Target quantiles, shape (..., quantiles), of the action with the best mean of the combined quantiles.

    ``double``: the online network's means choose, the target network's quantiles are taken.
    """
    xp = _module(z_target, z_online)
    if op == "double":
        kept, means = combine(z_target, z_online, "target"), _detached(z_online).mean(-1)
    else:
        kept = combine_quantiles(z_target, z_online, op, rule=rule, use_online=use_online)
        means = kept.mean(-1)
    best = _rows(xp, kept, means.argmax(-1))
    if isinstance(gamma, (int, float)):
        return _discounted(best, _spread(reward, best), _spread(terminated, best), gamma)
    return _discounted(best, _spread(reward, best), _spread(terminated, best), gamma[..., None])


def quantile_huber(prediction: Array, target: Array, fraction: Array, kappa: float = 1.0) -> Array:
    """Quantile Huber loss of each row: sum over predicted quantiles, mean over target quantiles.

    Parameters
    ----------
    prediction, fraction
        Shape (..., N): quantiles and their fractions.
    target
        Shape (..., M).
    kappa
        Above 0; where the square becomes linear.
    """
    if not kappa > 0:
        raise TargetError(f"kappa must be above 0; got {kappa}.")
    xp = _module(prediction, target)
    u = _detached(target)[..., None, :] - prediction[..., :, None]
    size = abs(u)
    huber = xp.where(size <= kappa, u * u / 2, kappa * (size - kappa / 2))
    below = _detached(u) < 0
    weight = abs(fraction[..., :, None] - below * 1.0)
    return (weight * huber / kappa).mean(-1).sum(-1)


def combine_categories(
    p_target: Array, p_online: Array, atoms: Array, op: str = "min", *, use_online: Array | None = None
) -> Array:
    """Probabilities of shape (..., actions, atoms): of the network with the smaller mean (``min``), or a mixture.

    ``random`` reads ``use_online``, shape (...): one network for all actions.
    """
    if op == "random":
        return combine(p_target, p_online, op, use_online=None if use_online is None else use_online[..., None])
    if op not in ("min", "max"):
        return combine(p_target, p_online, op)
    xp = _module(p_target, p_online)
    combine(p_target, p_online, op)  # checks shapes
    pt, po = _detached(p_target), _detached(p_online)
    return _kept(xp, pt, po, (pt * atoms).sum(-1), (po * atoms).sum(-1), op)


def categorical_target(
    p_target: Array,
    p_online: Array,
    atoms: Array,
    reward: Array,
    terminated: Array,
    gamma: float | Array,
    op: str = "min",
    *,
    use_online: Array | None = None,
) -> Array:
    """Probabilities of the target on the fixed atoms, shape (..., atoms): kept by mean, then projected (C51)."""
    xp = _module(p_target, p_online)
    kept = combine_categories(p_target, p_online, atoms, "target" if op == "double" else op, use_online=use_online)
    chooser = _detached(p_online) if op == "double" else kept
    best = _rows(xp, kept, (chooser * atoms).sum(-1).argmax(-1))
    moved = _discounted(
        best * 0 + atoms, _spread(reward, best), _spread(terminated, best),
        gamma if isinstance(gamma, (int, float)) else gamma[..., None],
    )  # fmt: skip
    return project(best, moved, atoms)


def project(probabilities: Array, support: Array, atoms: Array) -> Array:
    """Mass at ``support`` (..., m) shared between the nearest of equally spaced ``atoms`` (n,), ends clipped."""
    xp = _module(probabilities, support, atoms)
    if atoms.ndim != 1 or len(atoms) < 2:
        raise TargetError(f"Atoms must be at least two numbers in a row; got shape {tuple(atoms.shape)}.")
    step = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    place = (xp.clip(support, atoms[0], atoms[-1]) - atoms[0]) / step
    index = xp.arange(len(atoms))
    if xp is not np:
        index = index.to(place.device)
    # A triangle around every atom: one at the atom, zero at its neighbours.
    near = xp.clip(1 - abs(place[..., :, None] - index), 0, 1)
    return (probabilities[..., :, None] * near).sum(-2)


def _kept(xp: Any, a: Array, b: Array, mean_a: Array, mean_b: Array, op: str) -> Array:
    other = mean_b < mean_a if op == "min" else mean_b > mean_a
    # A NaN mean is neither: what it came from is handed on.
    other = other | xp.isnan(mean_b)
    return xp.where(other[..., None], b, a)


def _rows(xp: Any, table: Array, index: Array) -> Array:
    """Of (..., actions, n) the row of one action each: (..., n)."""
    if xp is np:
        return np.take_along_axis(table, index[..., None, None], -2)[..., 0, :]
    n = table.shape[-1]
    return table.gather(-2, index[..., None, None].expand(*index.shape, 1, n))[..., 0, :]


def _spread(values: Array, like: Array) -> Array:
    """A row's number for each of its quantiles."""
    if isinstance(values, np.ndarray):
        return np.broadcast_to(values[..., None], like.shape)
    return values[..., None].expand(like.shape)
