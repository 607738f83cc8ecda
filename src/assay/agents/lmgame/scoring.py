"""Statistics of run scores, as pure functions of arrays: aggregation, harness effect, normalisation, correlations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.agents.lmgame.env import reported_score
from assay.core.errors import DataError, UsageError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Aggregate:
    """Runs of one model, game and condition; ``reported_*`` are on the reported scale (2048: 10*log2)."""

    mean: float
    std_population: float
    std_sample: float
    n: int
    reported_mean: float
    reported_of_mean: float


def aggregate(game: str, scores: Sequence[float]) -> Aggregate:
    """Mean and standard deviations over runs.

    2048 is reported as the mean of the logged runs; the log of the mean is another number and orders models otherwise.
    ``std_sample`` of a single run is NaN.
    """
    if not scores:
        raise DataError(f"{game}: there is no run to aggregate.")
    x = np.asarray(scores, float)
    return Aggregate(
        float(x.mean()),
        float(x.std()),
        float(x.std(ddof=1)) if len(x) > 1 else math.nan,
        len(x),
        float(np.mean([reported_score(game, s) for s in x])),
        reported_score(game, float(x.mean())),
    )


@dataclass(frozen=True)
class Effect:
    """Paired difference over models: harness on minus off.

    ``glass_delta`` is the mean difference by the sample standard deviation of the scores without harness.
    """

    mean_difference: float
    low: float
    high: float
    t: float
    p: float
    wilcoxon_p: float
    glass_delta: float
    n: int


def harness_effect(with_harness: ArrayLike, without: ArrayLike, *, level: float = 0.95) -> Effect:
    """Paired t test, Wilcoxon's signed-rank test and Glass's delta of per-model means.

    Raises
    ------
    DataError
        Unequal numbers of models, or fewer than three.

    References
    ----------
    Glass (1976), "Primary, secondary, and meta-analysis of research".
    """
    from scipy.stats import ttest_rel, wilcoxon

    a, b = np.asarray(with_harness, float), np.asarray(without, float)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 3:
        raise DataError(f"A paired test needs both settings of at least 3 models; got {a.size} and {b.size}.")
    difference = a - b
    if not difference.any():
        return Effect(0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, len(a))
    test = ttest_rel(a, b)
    interval = test.confidence_interval(level)
    signed: Any = wilcoxon(a, b)
    spread = float(b.std(ddof=1))
    return Effect(
        float(difference.mean()),
        float(interval.low),
        float(interval.high),
        float(test.statistic),
        float(test.pvalue),
        float(signed.pvalue),
        float(difference.mean()) / spread if spread > 0 else math.inf * float(np.sign(difference.mean())),
        len(a),
    )


def variation(scores: ArrayLike) -> float:
    """Coefficient of variation: sample standard deviation by mean; NaN for a mean of 0 or fewer than two scores."""
    x = np.asarray(scores, float)
    return float(x.std(ddof=1) / x.mean()) if len(x) > 1 and x.mean() != 0 else math.nan


def normalise(column: Sequence[float | None]) -> list[float | None]:
    """``(x - min) / (max - min) * 99 + 1`` over what is present; 1 where all are equal; None stays None."""
    present = [x for x in column if x is not None]
    if not present:
        return list(column)
    low, high = min(present), max(present)
    return [None if x is None else 1.0 if high == low else (x - low) / (high - low) * 99 + 1 for x in column]


def rank(scores: ArrayLike) -> Array:
    """Rank over models: 1 is best, ties share their average; NaN stays NaN."""
    from scipy.stats import rankdata

    x = np.asarray(scores, float)
    return rankdata(-x, method="average", nan_policy="omit")


def spearman_matrix(table: Mapping[str, Sequence[float | None]]) -> tuple[list[str], Array, NDArray[np.intp]]:
    """Spearman's rho of every pair of columns, over the models that both have (names, rho, numbers of models).

    NaN where a column does not vary among them or fewer than three models are left.

    Raises
    ------
    DataError
        Columns of unequal length, or fewer than three models.
    """
    from scipy.stats import rankdata

    names = list(table)
    lengths = {len(column) for column in table.values()}
    if len(lengths) != 1 or next(iter(lengths)) < 3:
        raise DataError(
            f"A correlation needs equally long columns of at least 3 models; got lengths {sorted(lengths)}."
        )
    x = np.array([[math.nan if v is None else float(v) for v in table[name]] for name in names])
    rho = np.full((len(names), len(names)), math.nan)
    counts = np.zeros((len(names), len(names)), dtype=np.intp)
    for i in range(len(names)):
        for j in range(i, len(names)):
            both = ~(np.isnan(x[i]) | np.isnan(x[j]))
            counts[i, j] = counts[j, i] = both.sum()
            if both.sum() < 3:
                continue
            a, b = rankdata(x[i, both]), rankdata(x[j, both])
            if a.std() > 0 and b.std() > 0:
                rho[i, j] = rho[j, i] = np.corrcoef(a, b)[0, 1]
    return names, rho, counts


def spearman_interval(rho: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of Spearman's rho by Fisher's z with Bonett and Wright's variance; NaN below four models."""
    from scipy.stats import norm

    if n < 4 or math.isnan(rho):
        return math.nan, math.nan
    if abs(rho) >= 1:
        return rho, rho
    half = norm.ppf(0.5 + level / 2) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)


def embed(ranks: ArrayLike, *, perplexity: float = 7.0, seed: int = 0) -> Array:
    """t-SNE of rank vectors (rows) in two dimensions.

    Missing ranks are filled with their row's mean; the perplexity is held below the number of rows.
    """
    from sklearn.manifold import TSNE

    x = np.array(ranks, float)
    if len(x) < 4:
        raise UsageError(f"t-SNE of {len(x)} rows shows nothing; give at least 4.")
    filled = np.where(np.isnan(x), np.nanmean(x, axis=1, keepdims=True), x)
    return TSNE(perplexity=min(perplexity, len(x) - 1), random_state=seed, init="random").fit_transform(filled)


@dataclass(frozen=True)
class Factors:
    """``ranks ~ models @ tasks``: abilities of models (models x d) and what each task asks of them (d x tasks)."""

    models: Array
    tasks: Array
    loss: float
    rmse: float


def factorise(
    y: ArrayLike, abilities: int = 4, *, l1: float = 0.08, l2: float = 0.01, seed: int = 12, scale: float = 0.2
) -> Factors:
    """Non-negative low-rank model of a rank table (models x tasks, NaN = missing), by L-BFGS-B.

    Minimises ``||mask * (scale*y - U V)||^2 + l1 * sum(V) + l2 * ||U||^2``.
    """
    from scipy.optimize import minimize

    y = scale * np.asarray(y, float)
    present = ~np.isnan(y)
    if abilities < 1 or not present.any():
        raise UsageError(f"A low-rank model needs at least one ability and one rank; got abilities={abilities}.")
    n, m = y.shape
    target = np.where(present, y, 0.0)
    start = np.random.default_rng(seed).random(abilities * (n + m))

    def loss(flat: Array) -> tuple[float, Array]:
        u, v = flat[: n * abilities].reshape(n, abilities), flat[n * abilities :].reshape(abilities, m)
        residual = np.where(present, u @ v - target, 0.0)
        value = float((residual**2).sum() + l1 * v.sum() + l2 * (u**2).sum())
        return value, np.concatenate([(2 * residual @ v.T + 2 * l2 * u).ravel(), (2 * u.T @ residual + l1).ravel()])

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start))
    u, v = found.x[: n * abilities].reshape(n, abilities), found.x[n * abilities :].reshape(abilities, m)
    error = (u @ v - target)[present]
    return Factors(u, v, float(found.fun), float(np.sqrt(np.mean(error**2))))


@dataclass(frozen=True)
class Predictor:
    """Weights of the rank predictor by feature, and how well it fits over the row combinations."""

    features: tuple[str, ...]
    weights: Array
    residual: float
    pearson: float
    batches: int


def predict_ranks(
    categories: Mapping[str, ArrayLike],
    target: ArrayLike,
    *,
    degree: int = 1,
    learning_rate: float = 5e-3,
    epochs: int = 1000,
) -> Predictor:
    """Game ranks from category ranks: non-negative projected gradient descent over all row combinations.

    Parameters
    ----------
    categories
        Category -> rank rows (rows x models), in order: the last category's row changes fastest.
    target
        Ranks of the models in the game, shape (models,); the published rule takes their integer part.

    Notes
    -----
    Features are polynomials (with 1) of ranks / number of models. The residual is ``||X w - y|| / mean(y)``, and both
    it and Pearson's r are means over the combinations.
    """
    from itertools import combinations_with_replacement, product

    y = np.asarray(target, float)
    tables = [np.atleast_2d(np.asarray(rows, float)) for rows in categories.values()]
    if any(table.shape[1] != len(y) for table in tables):
        raise DataError(f"Every rank row needs {len(y)} models, as the game's ranks have.")
    names = list(categories)
    terms = [c for d in range(degree + 1) for c in combinations_with_replacement(range(len(names)), d)]

    def features(rows: Sequence[Array]) -> Array:
        x = np.stack(rows, axis=1) / len(y)
        return np.stack([np.prod(x[:, list(term)], axis=1) for term in terms], axis=1)

    batches = [features(rows) for rows in product(*tables)]
    # w <- max(0, A w + b) with A = I - 2 lr X'X, b = 2 lr X'y: the same step, with nothing left to do inside the loop.
    steps = [(np.eye(len(terms)) - 2 * learning_rate * x.T @ x, 2 * learning_rate * x.T @ y) for x in batches]
    w = np.zeros(len(terms))
    for _ in range(epochs):
        for a, b in steps:
            w = np.maximum(a @ w + b, 0.0)
    fits = [x @ w for x in batches]
    residual = float(np.mean([np.linalg.norm(fit - y) / y.mean() for fit in fits]))
    pearson = float(np.mean([np.corrcoef(fit, y)[0, 1] for fit in fits]))
    return Predictor(tuple(_term(names, term) for term in terms), w, residual, pearson, len(batches))


def _term(names: Sequence[str], term: Sequence[int]) -> str:
    if not term:
        return "1"
    parts = []
    for i in dict.fromkeys(term):
        power = term.count(i)
        parts.append(names[i] if power == 1 else f"{names[i]}^{power}")
    return " ".join(parts)
