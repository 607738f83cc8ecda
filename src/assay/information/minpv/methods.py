"""Estimators by name for ``assay run minpv -s method:NAME?option=value``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.core.errors import unknown_name
from assay.information.minpv.baselines import FlowRatio, KernelRatio, NeuralRatio, TelescopingRatio
from assay.information.minpv.estimators import DensityRatioEstimator


def minpv(path: str = "kmm", constraint: str = "affine", **options: Any) -> DensityRatioEstimator:
    """The paper's method: a Kumaraswamy mixture fitted to the data's moments, conditional time score matching."""
    return _estimator(path=path, constraint=constraint, **options)


def d3re(path: str = "linear", **options: Any) -> DensityRatioEstimator:
    """A noisy bridge on a fixed path (Chen et al. 2025), conditional time score matching."""
    return _estimator(path=path, **options)


def dre_infinity(path: str = "vp", loss: str = "joint", **options: Any) -> DensityRatioEstimator:
    """No noise, a fixed path and the tractable joint loss (Choi et al. 2022)."""
    return _estimator(path=path, loss=loss, **{"gamma_sq": 0.0, "epsilon": 0.0, "sampler": "uniform"} | options)


def _estimator(**options: Any) -> DensityRatioEstimator:
    known = DensityRatioEstimator().get_params()
    for name in options:
        if name not in known:
            raise unknown_name("option", name, known)
    return DensityRatioEstimator(**options)


def tre(bridges: int = 8, linear: bool = False, steps: int = 3000, batch_size: int = 512, lr: float = 1e-3) -> Any:
    """Telescoping ratios (Rhodes et al. 2020)."""
    return TelescopingRatio(bridges, linear=linear, steps=steps, batch_size=batch_size, lr=lr)


def _neural(loss: str) -> Callable[..., Any]:
    def build(steps: int = 3000, batch_size: int = 512, lr: float = 1e-3, width: int = 128, layers: int = 3) -> Any:
        return NeuralRatio(loss, steps=steps, batch_size=batch_size, lr=lr, width=width, layers=layers)

    build.__doc__ = f"A perceptron for the log ratio, trained with the {loss} loss."
    return build


def _kernel(kind: str) -> Callable[..., Any]:
    def build(sigma: float | None = None, rows: int = 1000) -> Any:
        return KernelRatio(kind, sigma=sigma, rows=rows)

    build.__doc__ = f"{kind} with normal kernels."
    return build


def flow(flow: str = "nsf", steps: int = 1000, batch_size: int = 256, lr: float = 2e-3) -> Any:
    """Two normalising flows of zuko: nsf or cnf."""
    return FlowRatio(flow, steps=steps, batch_size=batch_size, lr=lr)


METHODS: Mapping[str, Callable[..., Any]] = {
    # From the cheapest on: a check of the benchmark runs the first.
    **{name: _kernel(name) for name in ("kulsif", "kliep", "ulsif", "rulsif")},
    **{name: _neural(name) for name in ("logistic", "infonce", "kl", "reverse_kl", "chi2", "hellinger")},
    **{name: _neural(name) for name in ("power", "gamma", "exponential_weight")},
    "tre": tre,
    "minpv": minpv,
    "d3re": d3re,
    "dre_infinity": dre_infinity,
    "flow": flow,
}
