"""Policy gradients over turns and tokens: returns, advantages, losses. Pure functions of numpy arrays or torch tensors.

A *turn* is one whole response of the policy; turn t of an episode earns ``r_t`` and is worth
``G_t = sum_{k >= t} gamma^(k-t) r_k``. Advantages belong to turns (float64 numpy); `per_token` puts them on tokens.
Losses take arrays of one library, numpy or torch, keep its type and device, and are differentiable in torch.

References: Williams 1992 (REINFORCE); Schulman et al. 2016 (GAE), 2017 (PPO); Shao et al. 2024 (GRPO); Ahmadian et
al. 2024 (RLOO); Liu et al. 2025 (Dr. GRPO); GEM, arXiv 2510.01051 (return batch normalisation); Schulman 2020,
"Approximating KL divergence".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from assay.core.errors import UsageError, unknown_name

EPSILON = 1e-9
"""Added to every standard deviation that divides, so that equal returns give advantage 0."""

Array = Any
"""A numpy array or a torch tensor."""

GROUP_ADVANTAGES = ("grpo", "dr_grpo", "rloo", "episode")
KL_ESTIMATORS = ("k1", "k2", "k3")


def returns(rewards: Sequence[float] | np.ndarray, gamma: float = 1.0, *, bootstrap: float = 0.0) -> np.ndarray:
    """Discounted return of every turn of one episode.

    Parameters
    ----------
    rewards
        One a turn, shape (turns,).
    gamma
        Discount a turn, in [0, 1].
    bootstrap
        Worth of the state after the last turn: 0 where the episode ended, a critic's estimate where it was cut.

    Returns
    -------
    ndarray
        Shape (turns,), float64.
    """
    rewards = _turns(rewards, "rewards")
    _fraction("gamma", gamma)
    out = np.empty_like(rewards)
    running = float(bootstrap)
    for turn in range(len(rewards) - 1, -1, -1):
        running = rewards[turn] + gamma * running
        out[turn] = running
    return out


class Moments(NamedTuple):
    """Number, sum and sum of squares of returns: what processes of one batch add up to normalise together."""

    n: float
    total: float
    squares: float

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else 0.0

    @property
    def std(self) -> float:
        """Population standard deviation."""
        return max(self.squares / self.n - self.mean**2, 0.0) ** 0.5 if self.n else 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.n + other.n, self.total + other.total, self.squares + other.squares)


def moments(batch: Sequence[np.ndarray]) -> Moments:
    """Moments of all turns of all episodes."""
    flat = np.concatenate([np.asarray(episode, float) for episode in batch]) if len(batch) else np.empty(0)
    return Moments(float(flat.size), float(flat.sum()), float((flat * flat).sum()))


def rebn(batch: Sequence[np.ndarray], *, over: Moments | None = None) -> list[np.ndarray]:
    """Return batch normalisation: ``(G - mean) / (std + 1e-9)`` over every turn of every episode of the batch.

    Parameters
    ----------
    batch
        Returns of each episode (see `returns`), each of shape (turns,).
    over
        Moments of a batch that lies in several processes; None = this batch alone. Mean and population standard
        deviation are then computed from sums, which loses digits where returns are large and nearly equal.

    Returns
    -------
    list of ndarray
        One advantage a turn, in the order given.
    """
    episodes = [_turns(episode, "returns") for episode in batch]
    if over is not None:
        mean, std = over.mean, over.std
    elif episodes and sum(map(len, episodes)):
        flat = np.concatenate(episodes)
        mean, std = float(flat.mean()), float(flat.std())
        if flat.min() == flat.max():  # the mean of equal numbers may be off by a bit, which 1e-9 would blow up
            mean, std = float(flat[0]), 0.0
    else:
        return episodes
    return [(episode - mean) / (std + EPSILON) for episode in episodes]


def group_advantages(
    episode_returns: Sequence[float] | np.ndarray,
    kind: Literal["grpo", "dr_grpo", "rloo", "episode"] = "grpo",
    *,
    groups: Sequence[Any] | np.ndarray | None = None,
) -> np.ndarray:
    """Advantage of each episode against the others that began in the same state.

    Parameters
    ----------
    episode_returns
        Undiscounted sums of rewards, shape (episodes,).
    kind
        ``grpo``: (R - mean) / (population std + 1e-9). ``dr_grpo``: R - mean. ``rloo``: R - mean of the others.
        ``episode``: R itself.
    groups
        Which episodes belong together, shape (episodes,); None = all.

    Returns
    -------
    ndarray
        Shape (episodes,); every turn of an episode gets its episode's value.

    Raises
    ------
    UsageError
        Unknown kind, or ``rloo`` with an episode that is alone in its group.
    """
    if kind not in GROUP_ADVANTAGES:
        raise unknown_name("group advantage", kind, GROUP_ADVANTAGES)
    values = _turns(episode_returns, "episode_returns")
    if kind == "episode":
        return values
    if groups is None:
        index, count = np.zeros(len(values), int), 1
    else:
        if len(groups) != len(values):
            raise UsageError(f"groups has {len(groups)} entries for {len(values)} episodes; one each is needed.")
        _, index = np.unique(np.asarray(groups), return_inverse=True)
        count = int(index.max()) + 1 if len(values) else 0
    out = np.empty_like(values)
    for group in range(count):
        here = index == group
        part = values[here]
        if kind == "rloo":
            if len(part) == 1:
                raise UsageError("rloo compares an episode with the others of its group, and one group has only one.")
            out[here] = part - (part.sum() - part) / (len(part) - 1)
        elif len(part) and part.min() == part.max():
            out[here] = 0.0
        else:
            centred = part - part.mean()
            out[here] = centred / (part.std() + EPSILON) if kind == "grpo" else centred
    return out


def gae(
    rewards: Sequence[float] | np.ndarray,
    values: Sequence[float] | np.ndarray,
    *,
    bootstrap: float = 0.0,
    terminated: bool = True,
    gamma: float = 1.0,
    lam: float = 0.95,
) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantage estimation over the turns of one episode.

    Parameters
    ----------
    rewards, values
        Reward of each turn and the critic's estimate of the state before it, shape (turns,).
    bootstrap
        The critic's estimate of the state after the last turn; taken only where ``terminated`` is False.
    terminated
        Whether the episode ended; False = it was cut off.
    gamma, lam
        Discount and decay, in [0, 1].

    Returns
    -------
    advantages, targets : ndarray
        Shape (turns,); targets = advantages + values, what the critic should have said.
    """
    rewards, values = _turns(rewards, "rewards"), _turns(values, "values")
    if len(rewards) != len(values):
        raise UsageError(f"There are {len(rewards)} rewards and {len(values)} values; one of each a turn is needed.")
    _fraction("gamma", gamma)
    _fraction("lam", lam)
    after = np.append(values[1:], 0.0 if terminated else bootstrap)
    delta = rewards + gamma * after - values if len(values) else rewards
    advantages = np.empty_like(values)
    running = 0.0
    for turn in range(len(values) - 1, -1, -1):
        running = delta[turn] + gamma * lam * running
        advantages[turn] = running
    return advantages, advantages + values


def per_token(advantages: Sequence[float] | np.ndarray, lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """One turn's value on every token of that turn: shape (sum of lengths,)."""
    if len(advantages) != len(lengths):
        raise UsageError(f"There are {len(advantages)} turns and {len(lengths)} lengths; one each is needed.")
    return np.repeat(np.asarray(advantages, float), np.asarray(lengths, int))


def clipped_losses(
    logp: Array, logp_old: Array, advantages: Array, *, clip: float = 0.2, clip_high: float | None = None
) -> Array:
    """PPO's clipped surrogate of each token, as a loss: ``-min(ratio A, clip(ratio) A)``.

    With ``logp_old = logp`` detached its gradient is REINFORCE's.

    Parameters
    ----------
    logp, logp_old
        Log-probabilities (natural) of the tokens taken, now and when they were sampled; equal shapes.
    advantages
        Broadcast against them: a number, (tokens,), or (turns, 1) beside (turns, tokens).
    clip, clip_high
        The ratio is held in [1 - clip, 1 + clip_high]; ``clip_high`` None = ``clip``.
    """
    high = clip if clip_high is None else clip_high
    if not 0 <= clip < 1 or high < 0:
        raise UsageError(f"clip={clip} and clip_high={clip_high}; clip lies in [0, 1) and clip_high is at least 0.")
    lib = _library(logp)
    ratio = lib.exp(logp - logp_old)
    return -lib.minimum(ratio * advantages, lib.clip(ratio, 1.0 - clip, 1.0 + high) * advantages)


def masked_sum(values: Array, mask: Array | None = None, *, constant: float) -> Array:
    """Sum over the tokens of each sequence / ``constant``, then the mean over sequences.

    The constant (the longest response allowed) makes a token weigh the same whatever the length of its response: the
    loss of REINFORCE, ReBN and Dr. GRPO.

    Parameters
    ----------
    values
        Shape (tokens,) or (sequences, tokens).
    mask
        1 = counts; same shape. None = all count.
    constant
        Above 0.
    """
    if not constant > 0:
        raise UsageError(f"constant is {constant}; it is the longest response and must be above 0.")
    kept = values if mask is None else _kept(values, mask)
    return (kept.sum(-1) / constant).mean()


def masked_mean(values: Array, mask: Array | None = None, *, over: Literal["sequence", "batch"] = "sequence") -> Array:
    """Mean over the tokens that count.

    Parameters
    ----------
    values, mask
        As in `masked_sum`.
    over
        ``sequence``: the mean of each sequence, then their mean (GRPO); a sequence without a token that counts is 0.
        ``batch``: one mean over all tokens.
    """
    if over not in ("sequence", "batch"):
        raise unknown_name("kind of mean", over, ("sequence", "batch"))
    if mask is None:
        return values.mean()
    kept = _kept(values, mask)
    lib = _library(values)
    if over == "batch" or values.ndim == 1:
        return kept.sum() / lib.clip(mask.sum(), 1, None)
    return (kept.sum(-1) / lib.clip(mask.sum(-1), 1, None)).mean()


def policy_loss(
    logp: Array,
    logp_old: Array,
    advantages: Array,
    mask: Array | None = None,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    constant: float | None = None,
) -> Array:
    """`clipped_losses`, reduced: by `masked_sum` where ``constant`` is given, else by `masked_mean`."""
    losses = clipped_losses(logp, logp_old, advantages, clip=clip, clip_high=clip_high)
    return masked_mean(losses, mask) if constant is None else masked_sum(losses, mask, constant=constant)


def value_losses(values: Array, targets: Array, old: Array | None = None, *, clip: float | None = None) -> Array:
    """Half a critic's squared error on each state; with ``old`` and ``clip``, that or the clipped one if larger.

    Parameters
    ----------
    values, targets, old
        Estimates now, what they should be (`gae`), estimates when the batch was collected; equal shapes.
    clip
        How far an estimate may move from ``old`` before the loss stops rewarding it; None = no clipping.
    """
    plain = (values - targets) ** 2
    if clip is None or old is None:
        return 0.5 * plain
    lib = _library(values)
    held = old + lib.clip(values - old, -clip, clip)
    return 0.5 * lib.maximum(plain, (held - targets) ** 2)


def kl(logp: Array, logp_reference: Array, estimator: Literal["k1", "k2", "k3"] = "k3") -> Array:
    """Estimate of KL(policy || reference) from each token that the policy sampled.

    Parameters
    ----------
    logp, logp_reference
        Log-probabilities of the same tokens under both; equal shapes.
    estimator
        With d = logp - logp_reference: ``k1`` = d (unbiased), ``k2`` = d^2 / 2 (small spread, biased), ``k3`` =
        exp(-d) - 1 + d (unbiased, never negative).
    """
    if estimator not in KL_ESTIMATORS:
        raise unknown_name("KL estimator", estimator, KL_ESTIMATORS)
    gap = logp - logp_reference
    if estimator == "k1":
        return gap
    if estimator == "k2":
        return 0.5 * gap**2
    return _library(gap).exp(-gap) - 1.0 + gap


def _library(array: Array) -> Any:
    """numpy or torch: whichever the array is of."""
    if type(array).__module__.partition(".")[0] == "torch":
        import torch

        return torch
    return np


def _kept(values: Array, mask: Array) -> Array:
    if tuple(values.shape) != tuple(mask.shape):
        raise UsageError(f"The mask has shape {tuple(mask.shape)}, the tokens {tuple(values.shape)}; both must agree.")
    # Not values * mask: padding may hold nan or inf, which 0 does not silence.
    return _library(values).where(mask != 0, values, _library(values).zeros_like(values))


def _turns(values: Any, name: str) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim != 1:
        raise UsageError(f"{name} has shape {array.shape}; one number a turn is needed.")
    if not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise UsageError(f"{name}[{where}] is {array[where]}; only finite numbers can be learnt from.")
    return array


def _fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value}; it lies in [0, 1].")
