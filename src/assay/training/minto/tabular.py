"""MINTO on tables: value iteration, Q-learning with a frozen copy, and the bias of maxima of minima."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import DataError, UsageError
from assay.training.minto.targets import bootstrap_value

_FAR = 9.0
"""Standard normal noise beyond it does not matter in double precision."""


@dataclass(frozen=True, slots=True)
class TabularMDP:
    """A finite Markov decision process: ``transitions`` (S, A, S), ``rewards`` (S, A), ``gamma`` in [0, 1)."""

    transitions: np.ndarray
    rewards: np.ndarray
    gamma: float

    def __post_init__(self) -> None:
        p, r = self.transitions, self.rewards
        if p.ndim != 3 or p.shape[0] != p.shape[2] or r.shape != p.shape[:2]:
            raise DataError(f"Transitions must be (S, A, S) and rewards (S, A); got {p.shape} and {r.shape}.")
        if np.any(p < 0) or not np.allclose(p.sum(-1), 1, atol=1e-6):
            raise DataError("Every row of the transitions must be probabilities that sum to 1.")
        if not 0 <= self.gamma < 1:
            raise UsageError(f"gamma must lie in [0, 1); got {self.gamma}.")


def random_mdp(states: int, actions: int, rng: np.random.Generator, *, gamma: float = 0.95) -> TabularMDP:
    """Transitions from a flat Dirichlet, standard normal rewards."""
    p = rng.dirichlet(np.ones(states), size=(states, actions))
    return TabularMDP(p, rng.standard_normal((states, actions)), gamma)


def value_iteration(mdp: TabularMDP, *, tolerance: float = 1e-12) -> np.ndarray:
    """Q* of shape (S, A), within ``tolerance`` in the largest entry."""
    q = np.zeros_like(mdp.rewards)
    stop = tolerance * (1 - mdp.gamma) / max(mdp.gamma, 1e-12)
    # A contraction: doubles as soon as nothing moves any more.
    for _ in range(10_000_000):
        new = mdp.rewards + mdp.gamma * mdp.transitions @ q.max(1)
        moved = float(np.abs(new - q).max())
        q = new
        if moved <= max(stop, 4 * np.finfo(float).eps * float(np.abs(q).max())):
            break
    return q


@dataclass(slots=True)
class TabularHistory:
    """Table at the end, and by recorded step: distance to Q*, mean bias, and how often the online table was smaller."""

    q: np.ndarray
    steps: np.ndarray
    error: np.ndarray
    bias: np.ndarray
    online_rate: np.ndarray


def q_learning(
    mdp: TabularMDP,
    op: str = "min",
    *,
    steps: int,
    copy_every: int,
    rng: np.random.Generator,
    initial: ArrayLike = 0.0,
    reward_noise: float = 0.0,
    power: float = 0.8,
    record: int = 50,
) -> TabularHistory:
    """Q-learning from uniformly drawn pairs with a frozen copy, bootstrapped as in `bootstrap_value`.

    The step size of a pair is ``1 / visits ** power``: in (0.5, 1] sum and sum of squares are those of Robbins and
    Monro, and with MINTO Q converges to Q* (an instance of generalised Q-learning, Lan et al. 2020).

    Parameters
    ----------
    initial
        First value of every pair, or a table. Above Q* there is overestimation to correct; far below there is none,
        and a minimum only slows down.
    reward_noise
        Standard deviation of what is added to rewards.
    record
        How many rows of history.
    """
    if steps < 1 or copy_every < 1 or not 0.5 < power <= 1:
        raise UsageError(f"steps={steps} and copy_every={copy_every} must be at least 1, power={power} in (0.5, 1].")
    truth = value_iteration(mdp)
    s_count, a_count = mdp.rewards.shape
    q = np.broadcast_to(np.asarray(initial, float), mdp.rewards.shape).copy()
    frozen = q.copy()
    visits = np.zeros(q.shape)
    cumulative = mdp.transitions.cumsum(-1)
    marks = set(np.unique(np.linspace(1, steps, min(record, steps)).astype(int)).tolist())
    rows: list[tuple[float, ...]] = []
    smaller = 0
    for t in range(1, steps + 1):
        s, a = int(rng.integers(s_count)), int(rng.integers(a_count))
        after = min(int(np.searchsorted(cumulative[s, a], rng.random(), "right")), s_count - 1)
        reward = mdp.rewards[s, a] + reward_noise * rng.standard_normal()
        coin = np.asarray(rng.random() < 0.5)
        value = float(bootstrap_value(frozen[after], q[after], op, use_online=coin))
        best = int(np.minimum(frozen[after], q[after]).argmax())
        smaller += int(q[after, best] < frozen[after, best])
        visits[s, a] += 1
        q[s, a] += (reward + mdp.gamma * value - q[s, a]) / visits[s, a] ** power
        if t in marks:
            rows.append((t, np.abs(q - truth).max(), (q - truth).mean(), smaller / t))
        if t % copy_every == 0:
            frozen = q.copy()
    table = np.array(rows)
    return TabularHistory(q, table[:, 0].astype(int), table[:, 1], table[:, 2], table[:, 3])


def generalised_value(tables: ArrayLike) -> float | np.ndarray:
    """``max_a min_j Q_j(a)`` of tables (J, ..., A): a non-expansion, and ``max_a Q(a)`` where all tables agree."""
    return np.asarray(tables, float).min(0).max(-1)


def uniform_bias(actions: int, networks: int = 1, tau: float = 1.0) -> float:
    """``E[max_a min_j e]`` of independent noise U(-tau, tau): ``tau (1 - 2 prod_k k / (k + 1/N))``."""
    _check_counts(actions, networks)
    return tau * (1 - 2 * math.prod(k / (k + 1 / networks) for k in range(1, actions + 1)))


def gaussian_bias(actions: int, *, networks: int = 2, correlation: float = 0.0, nodes: int = 4001) -> float:
    """``E[max_a min_j e]`` of standard normal noise, by quadrature; ``networks`` 1 or 2, correlated with each other.

    MINTO's two networks are strongly correlated (towards 1): the bias shrinks and is rarely negative.
    """
    from scipy.special import ndtr, owens_t

    _check_counts(actions, networks)
    if networks > 2 or not -1 <= correlation <= 1:
        raise UsageError(f"Needs one or two networks and a correlation in [-1, 1]; got {networks}, {correlation}.")
    x = np.linspace(-_FAR, _FAR, nodes)
    above = ndtr(-x)
    if networks == 2:
        # P(both > x), by Owen's T function.
        with np.errstate(divide="ignore"):
            slope = np.sqrt(np.float64(1 - correlation) / np.float64(1 + correlation))
        above = above - 2 * owens_t(x, slope)
    # E[M] = far - integral of P(M <= x) up to far.
    return float(_FAR - np.trapezoid((1 - above) ** actions, x))


def simulated_bias(
    actions: int, networks: int, rng: np.random.Generator, *, draws: int = 100_000, correlation: float = 0.0,
    noise: str = "gaussian",
) -> float:  # fmt: skip
    """The same by drawing: ``noise`` is gaussian (``correlation``: share of a common part) or uniform on (-1, 1)."""
    _check_counts(actions, networks)
    if noise == "uniform":
        drawn = rng.uniform(-1, 1, (networks, draws, actions))
    elif noise == "gaussian":
        common = rng.standard_normal((draws, actions))
        own = rng.standard_normal((networks, draws, actions))
        drawn = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    else:
        raise UsageError(f"noise must be gaussian or uniform; got {noise!r}.")
    return float(np.mean(generalised_value(drawn)))


def _check_counts(actions: int, networks: int) -> None:
    for name, value in (("actions", actions), ("networks", networks)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1; got {value}.")
