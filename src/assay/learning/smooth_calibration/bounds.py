"""Calculators for the bounds of Futami and Nitanda (arXiv 2505.19396) and for what was derived anew from the same
steps.

Every constant is an argument. What the paper leaves unspecified (C2, C3, K1, K2) has no default. Theorem 1 is the
paper's claim, calculated as stated; readers have questioned a step of its proof.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import DataError, UsageError

Covering = Callable[[float], float]

# -- covering numbers and Rademacher complexities ----------------------------------------------------------------------


def log_covering_finite(size: int) -> Covering:
    """ln N of a class of ``size`` functions: ln size at every radius."""
    _at_least("size", size, 1)
    return lambda radius: float(np.log(size))


def log_covering_parametric(*, parameters: int, radius: float, lipschitz: float) -> Covering:
    """ln N <= p ln(3 R L / e): ``parameters`` p in a ball of ``radius`` R, functions L-Lipschitz in them."""
    _at_least("parameters", parameters, 1)
    _positive(radius=radius, lipschitz=lipschitz)
    return lambda e: max(0.0, parameters * float(np.log(3 * radius * lipschitz / e)))


def log_covering_trees(
    *, stages: int, depth: int, features: int, n: int, step: float, bound: float, link: float = 0.25
) -> Covering:
    """ln N of boosted trees on n points: T [(2^m - 1) ln(n d) + 2^m ln ceil(link B w T / e)].

    A tree of depth m chooses a feature and one of n thresholds at each of its 2^m - 1 nodes; leaf values in [-B, B] are
    rounded so that T steps of size w move the prediction by at most e; ``link`` is 1/4 for probabilities, 1 for logits.
    Derived here.
    """
    _at_least("stages", stages, 1)
    _at_least("depth", depth, 0)
    _positive(features=features, n=n, step=step, bound=bound, link=link)
    leaves = 2.0**depth
    splits = (leaves - 1) * np.log(n * features)
    return lambda e: float(stages * (splits + leaves * np.log(max(1.0, np.ceil(link * bound * step * stages / e)))))


def rademacher_trees(*, c3: float, step: float, stages: int, depth: int, n: int, features: int) -> float:
    """C3 w T sqrt(2^m ln(n d) / n): T boosted trees of depth m in d features."""
    _positive(c3=c3, step=step, stages=stages, n=n, features=features)
    return float(c3 * step * stages * np.sqrt(2.0**depth * np.log(n * features) / n))


def rademacher_rkhs(*, radius: float, kappa: float, n: int) -> float:
    """r kappa / sqrt n: a ball of radius r in an RKHS with k(x, x) <= kappa^2."""
    _positive(radius=radius, kappa=kappa, n=n)
    return float(radius * kappa / np.sqrt(n))


def empirical_rademacher(predictions: ArrayLike, *, rng: np.random.Generator, draws: int = 1000) -> float:
    """E over signs of max over rows of mean(sign x prediction), by Monte Carlo.

    Parameters
    ----------
    predictions
        One row a function, shape (k, n): a finite family.
    rng, draws
        Generator and number of sign vectors.
    """
    rows = np.asarray(predictions, float)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise DataError(f"predictions has shape {rows.shape}; give one row of finite values a function.")
    signs = rng.integers(0, 2, (draws, rows.shape[1])) * 2.0 - 1.0
    return float((signs @ rows.T).max(axis=1).mean() / rows.shape[1])


# -- uniform convergence -----------------------------------------------------------------------------------------------


def two_sample_bound(log_covering: Covering, *, n: int, delta: float = 0.05) -> float:
    """Theorem 1: with probability 1 - delta, sup over F of |smCE(test) - smCE(train)| is at most

    ``inf over e of 8 e + 24 int_e^1 sqrt(ln N(e') / n) de' + 2 sqrt(ln(1 / delta) / n)``, two samples of size n.
    """
    _positive(n=n)
    _share(delta)
    radii = np.geomspace(1e-9, 1.0, 4001)
    heights = np.sqrt(np.maximum([log_covering(float(e)) for e in radii], 0.0) / n)
    pieces = np.diff(radii) * (heights[1:] + heights[:-1]) / 2
    tail = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
    return float(np.min(8 * radii + 24 * tail) + 2 * np.sqrt(np.log(1 / delta) / n))


def population_bound(rademacher: float, *, n: int, c2: float, delta: float = 0.05) -> float:
    """Theorem 2: sup over F of |smCE(population) - smCE(train)| <= C2 / sqrt n + 4 Rad + 2 sqrt(ln(2 / delta) / n)."""
    _positive(n=n)
    _share(delta)
    return float(c2 / np.sqrt(n) + 4 * rademacher + 2 * np.sqrt(np.log(2 / delta) / n))


# -- training ----------------------------------------------------------------------------------------------------------


def trees_training_bound(*, start_loss: float, margin: float, bound: float, step: float, stages: int) -> float:
    """Mean over T stages of the L1 gradient of boosting: L0 / (gamma B w T) + w B / (8 gamma).

    Holds for the mean over iterates, and so for the best and for a random one (derived here from the logistic loss's
    second derivative <= 1/4; the paper states it for an averaged predictor).
    """
    _positive(start_loss=start_loss, margin=margin, bound=bound, step=step, stages=stages)
    return start_loss / (margin * bound * step * stages) + step * bound / (8 * margin)


def trees_best_step(*, start_loss: float, bound: float, stages: int) -> float:
    """Step that makes `trees_training_bound` least, sqrt(8 L0 / (B^2 T)); it is then sqrt(L0 / (2 T)) / gamma."""
    _positive(start_loss=start_loss, bound=bound, stages=stages)
    return float(np.sqrt(8 * start_loss / stages) / bound)


def trees_stages_needed(*, start_loss: float, margin: float, error: float) -> int:
    """Stages after which the mean L1 gradient is at most ``error`` at the best step: L0 / (2 gamma^2 error^2)."""
    _positive(start_loss=start_loss, margin=margin, error=error)
    return int(np.ceil(start_loss / (2 * margin**2 * error**2)))


def trees_samples_needed(*, c: float, margin: float, error: float) -> int:
    """Samples after which the population error of boosted trees is of order ``error``: c gamma^-2 error^-4.

    The paper's order, without its logarithms; c is not specified.
    """
    _positive(c=c, margin=margin, error=error)
    return int(np.ceil(c / (margin**2 * error**4)))


def trees_population_bound(
    *, training: float, c2: float, c3: float, step: float, stages: int, depth: int, n: int, features: int,
    delta: float = 0.05,
) -> float:  # fmt: skip
    """Population smCE of boosted trees: training term + Theorem 2 with the complexity of boosted trees."""
    complexity = rademacher_trees(c3=c3, step=step, stages=stages, depth=depth, n=n, features=features)
    return training + population_bound(complexity, n=n, c2=c2, delta=delta)


def kernel_training_bound(*, start_loss: float, margin: float, step: float, stages: int) -> float:
    """Least L1 gradient over T plain steps of kernel boosting: sqrt(2 L0 / (w T)) / gamma; k(x, x) <= 1, w <= 4.

    Derived here; it bounds the root mean square over stages too.
    """
    _positive(start_loss=start_loss, margin=margin, step=step, stages=stages)
    if step > 4:
        raise UsageError(f"step={step:g} is above 4, where the descent of kernel boosting is not guaranteed.")
    return float(np.sqrt(2 * start_loss / (step * stages)) / margin)


def kernel_training_bound_paper(*, start_loss: float, margin: float, step: float, stages: int) -> float:
    """The paper's constant for kernel boosting: sqrt(L0 / (w T)) / gamma."""
    _positive(start_loss=start_loss, margin=margin, step=step, stages=stages)
    return float(np.sqrt(start_loss / (step * stages)) / margin)


def kernel_stages_needed(*, start_loss: float, margin: float, step: float, error: float) -> int:
    """Plain steps after which `kernel_training_bound` is at most ``error``: 2 L0 / (w gamma^2 error^2)."""
    _positive(start_loss=start_loss, margin=margin, step=step, error=error)
    return int(np.ceil(2 * start_loss / (step * margin**2 * error**2)))


def kernel_norm_bound(*, start_loss: float, step: float, stages: int) -> float:
    """RKHS norm after T plain steps: at most sqrt(2 L0 w T) (Cauchy-Schwarz on the steps)."""
    _positive(start_loss=start_loss, step=step, stages=stages)
    return float(np.sqrt(2 * start_loss * step * stages))


def kernel_population_bound(
    *, training: float, c2: float, start_loss: float, step: float, stages: int, n: int, kappa: float = 1.0,
    delta: float = 0.05,
) -> float:  # fmt: skip
    """Population smCE of kernel boosting: training term + Theorem 2 on the ball of `kernel_norm_bound`."""
    radius = kernel_norm_bound(start_loss=start_loss, step=step, stages=stages)
    return training + population_bound(rademacher_rkhs(radius=radius, kappa=kappa, n=n), n=n, c2=c2, delta=delta)


def network_training_bound(
    *, margin: float, stages: int, step: float, units: int, beta: float, k1: float, k2: float
) -> float:
    """Mean squared L1 gradient of a two-layer network: K1 / (gamma^2 T) (m^(2 beta - 1) / w + K2)."""
    _positive(margin=margin, stages=stages, step=step, units=units)
    return k1 / (margin**2 * stages) * (units ** (2 * beta - 1) / step + k2)


def network_stages_needed(*, c: float, margin: float, error: float) -> int:
    """Steps of a two-layer network with beta = 0 for an error of order ``error``: c gamma^-2 error^-1 ln^2(1 / error).

    The paper's order; c is not specified. Samples are of order error^-2: `network_samples_needed`.
    """
    _positive(c=c, margin=margin, error=error)
    return int(np.ceil(c / (margin**2 * error) * np.log(1 / error) ** 2))


def network_samples_needed(*, c: float, error: float) -> int:
    """Samples of a two-layer network with beta = 0 for an error of order ``error``: c error^-2, without logarithms."""
    _positive(c=c, error=error)
    return int(np.ceil(c / error**2))


def network_descent_bound(
    *, start_loss: float, margin: float, stages: int, step: float, units: int, beta: float
) -> float:
    """Mean squared L1 gradient while every step lowers the loss by w/2 |grad|^2: 2 L0 m^(2 beta - 1) / (gamma^2 w T).

    gamma is the least |grad_theta L| m^(beta - 1/2) / L1 over the stages. Derived here.
    """
    _positive(start_loss=start_loss, margin=margin, stages=stages, step=step, units=units)
    return 2 * start_loss * units ** (2 * beta - 1) / (margin**2 * step * stages)


def misclassification_bound(l1_gradient: float) -> float:
    """Error rate <= 2 L1 gradient: |sigma(g) - y| >= 1/2 on every mistake."""
    return min(1.0, 2 * l1_gradient)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0 or not np.isfinite(value):
            raise UsageError(f"{name}={value:g} is not a finite number above 0.")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"{name}={value} is below {least}.")


def _share(delta: float) -> None:
    if not 0 < delta < 1:
        raise UsageError(f"delta={delta:g} is not a probability between 0 and 1.")
