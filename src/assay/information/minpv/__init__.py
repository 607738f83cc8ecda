"""MinPV: density ratios and densities from time scores, on paths of minimum variance."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.information.minpv.baselines import FlowRatio, KernelRatio, NeuralRatio, TelescopingRatio
    from assay.information.minpv.benchmark import MinPVBenchmark
    from assay.information.minpv.data import load_pairs, load_tabular
    from assay.information.minpv.estimators import (
        DensityRatioEstimator,
        Divergence,
        ScoreDensityEstimator,
        mutual_information,
    )
    from assay.information.minpv.integration import integrate
    from assay.information.minpv.interpolants import Bridge, Direct, conditional, make_interpolant
    from assay.information.minpv.losses import cjsm, ctsm, energy_score, joint_stsm, secant, stsm, weighted_stsm
    from assay.information.minpv.methods import METHODS
    from assay.information.minpv.networks import ScoreNet
    from assay.information.minpv.optimum import fit_path, least_fixed, optimal_path
    from assay.information.minpv.paths import (
        VP,
        BetaPath,
        Cosine,
        Foellmer,
        GaussianPath,
        KumaraswamyPath,
        Linear,
        Path,
        Smoothstep,
        TabulatedPath,
        Trigonometric,
        make_path,
    )
    from assay.information.minpv.problems import make_problem
    from assay.information.minpv.sampling import draw
    from assay.information.minpv.training import Recipe, TimeTable, train_scores
    from assay.information.minpv.variance import (
        Moments,
        integrand,
        marginal_time_scores,
        marginal_variance,
        monte_carlo_variance,
        normal_time_score,
        path_variance,
    )

_HOMES = {
    "BetaPath": "paths",
    "Bridge": "interpolants",
    "Cosine": "paths",
    "DensityRatioEstimator": "estimators",
    "Direct": "interpolants",
    "Divergence": "estimators",
    "FlowRatio": "baselines",
    "Foellmer": "paths",
    "GaussianPath": "paths",
    "KernelRatio": "baselines",
    "KumaraswamyPath": "paths",
    "Linear": "paths",
    "METHODS": "methods",
    "MinPVBenchmark": "benchmark",
    "Moments": "variance",
    "NeuralRatio": "baselines",
    "Path": "paths",
    "Recipe": "training",
    "ScoreDensityEstimator": "estimators",
    "ScoreNet": "networks",
    "Smoothstep": "paths",
    "TabulatedPath": "paths",
    "TelescopingRatio": "baselines",
    "TimeTable": "training",
    "Trigonometric": "paths",
    "VP": "paths",
    "cjsm": "losses",
    "conditional": "interpolants",
    "ctsm": "losses",
    "draw": "sampling",
    "energy_score": "losses",
    "fit_path": "optimum",
    "integrand": "variance",
    "integrate": "integration",
    "joint_stsm": "losses",
    "least_fixed": "optimum",
    "load_pairs": "data",
    "load_tabular": "data",
    "make_interpolant": "interpolants",
    "make_path": "paths",
    "make_problem": "problems",
    "marginal_time_scores": "variance",
    "marginal_variance": "variance",
    "monte_carlo_variance": "variance",
    "mutual_information": "estimators",
    "normal_time_score": "variance",
    "optimal_path": "optimum",
    "path_variance": "variance",
    "secant": "losses",
    "stsm": "losses",
    "train_scores": "training",
    "weighted_stsm": "losses",
}

__all__ = [
    "METHODS",
    "VP",
    "BetaPath",
    "Bridge",
    "Cosine",
    "DensityRatioEstimator",
    "Direct",
    "Divergence",
    "FlowRatio",
    "Foellmer",
    "GaussianPath",
    "KernelRatio",
    "KumaraswamyPath",
    "Linear",
    "MinPVBenchmark",
    "Moments",
    "NeuralRatio",
    "Path",
    "Recipe",
    "ScoreDensityEstimator",
    "ScoreNet",
    "Smoothstep",
    "TabulatedPath",
    "TelescopingRatio",
    "TimeTable",
    "Trigonometric",
    "cjsm",
    "conditional",
    "ctsm",
    "draw",
    "energy_score",
    "fit_path",
    "integrand",
    "integrate",
    "joint_stsm",
    "least_fixed",
    "load_pairs",
    "load_tabular",
    "make_interpolant",
    "make_path",
    "make_problem",
    "marginal_time_scores",
    "marginal_variance",
    "monte_carlo_variance",
    "mutual_information",
    "normal_time_score",
    "optimal_path",
    "path_variance",
    "secant",
    "stsm",
    "train_scores",
    "weighted_stsm",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
