"""Estimators that the benchmark brings along."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from assay.information.rate_distortion.estimator import RateDistortionEstimator


def r2d2(
    steps: int = 1500,
    batch: int = 1024,
    simulation_steps: int = 20,
    components: int = 8,
    entropy: Literal["auto", "spacing", "negentropy", "knife"] = "auto",
    network: Literal["mlp", "film"] = "mlp",
    lr: float = 2e-3,
    initial: Literal["mixture", "zero"] = "mixture",
    device: str = "cpu",
) -> RateDistortionEstimator:
    """R2D2, starting from the closed form of a fitted mixture; ``r2d2_zero`` starts from no drift."""
    return RateDistortionEstimator(
        "r2d2",
        steps=steps,
        batch_size=batch,
        simulation_steps=simulation_steps,
        components=components,
        entropy=entropy,
        network=network,
        learning_rate=lr,
        initial=initial,
        device=device,
    )


def particles(
    method: Literal["wgd", "hybrid", "nerd"] = "wgd",
    n: int | None = None,
    steps: int = 500,
    lr: float | None = None,
    batch: int | None = None,
    device: str = "cpu",
) -> RateDistortionEstimator:
    """Wasserstein gradient descent, its hybrid with weights, or NERD, with ``n`` points."""
    return RateDistortionEstimator(method, particles=n, steps=steps, learning_rate=lr, batch_size=batch, device=device)


def ba(cells: int = 1001, iterations: int = 3000) -> RateDistortionEstimator:
    """Blahut and Arimoto on a histogram, in one and two dimensions."""
    return RateDistortionEstimator("ba", cells=cells, steps=iterations)


def gaussian() -> RateDistortionEstimator:
    """The Gaussian with the samples' covariance: an upper bound for every law."""
    return RateDistortionEstimator("gaussian")


METHODS: dict[str, Callable[..., Any]] = {
    "gaussian": gaussian,
    "r2d2": r2d2,
    "r2d2_zero": partial(r2d2, initial="zero"),
    "wgd": particles,
    "hybrid": partial(particles, method="hybrid"),
    "nerd": partial(particles, method="nerd"),
    "ba": ba,
}
