"""Rate-distortion functions of continuous sources under squared error: R2D2, its peers, closed forms."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.information.rate_distortion.benchmark import RateDistortionBenchmark
    from assay.information.rate_distortion.blahut import blahut_arimoto, blahut_arimoto_curve, discretise
    from assay.information.rate_distortion.closed import (
        laplace_bounds,
        shannon_lower_bound,
        sphere_rate,
        water_filling,
    )
    from assay.information.rate_distortion.curves import (
        Curve,
        convert_distortion,
        convert_rate,
        dual_lower_bound,
        half_mse_of,
        lower_envelope,
    )
    from assay.information.rate_distortion.entropy import (
        flow_entropy,
        gaussian_entropy,
        knn_entropy,
        negentropy_entropy,
        spacing_entropy,
    )
    from assay.information.rate_distortion.estimator import RateDistortionEstimator
    from assay.information.rate_distortion.heat import BackwardHeat, Sinc4Mixture
    from assay.information.rate_distortion.mixtures import Gaussian, GaussianMixture, Source
    from assay.information.rate_distortion.particles import functional, nerd, wgd
    from assay.information.rate_distortion.r2d2 import R2D2, Settings
    from assay.information.rate_distortion.simulation import readout, simulate
    from assay.information.rate_distortion.sources import (
        Banana,
        Laplace,
        Samples,
        Sphere,
        SphereNoise,
        StudentT,
        TwoMoons,
        Uniform,
    )

_HOMES = {
    "BackwardHeat": "heat",
    "Banana": "sources",
    "Curve": "curves",
    "Gaussian": "mixtures",
    "GaussianMixture": "mixtures",
    "Laplace": "sources",
    "R2D2": "r2d2",
    "RateDistortionBenchmark": "benchmark",
    "RateDistortionEstimator": "estimator",
    "Samples": "sources",
    "Settings": "r2d2",
    "Sinc4Mixture": "heat",
    "Source": "mixtures",
    "Sphere": "sources",
    "SphereNoise": "sources",
    "StudentT": "sources",
    "TwoMoons": "sources",
    "Uniform": "sources",
    "blahut_arimoto": "blahut",
    "blahut_arimoto_curve": "blahut",
    "convert_distortion": "curves",
    "convert_rate": "curves",
    "discretise": "blahut",
    "dual_lower_bound": "curves",
    "flow_entropy": "entropy",
    "functional": "particles",
    "gaussian_entropy": "entropy",
    "half_mse_of": "curves",
    "knn_entropy": "entropy",
    "laplace_bounds": "closed",
    "lower_envelope": "curves",
    "negentropy_entropy": "entropy",
    "nerd": "particles",
    "readout": "simulation",
    "shannon_lower_bound": "closed",
    "simulate": "simulation",
    "spacing_entropy": "entropy",
    "sphere_rate": "closed",
    "water_filling": "closed",
    "wgd": "particles",
}

__all__ = [
    "R2D2",
    "BackwardHeat",
    "Banana",
    "Curve",
    "Gaussian",
    "GaussianMixture",
    "Laplace",
    "RateDistortionBenchmark",
    "RateDistortionEstimator",
    "Samples",
    "Settings",
    "Sinc4Mixture",
    "Source",
    "Sphere",
    "SphereNoise",
    "StudentT",
    "TwoMoons",
    "Uniform",
    "blahut_arimoto",
    "blahut_arimoto_curve",
    "convert_distortion",
    "convert_rate",
    "discretise",
    "dual_lower_bound",
    "flow_entropy",
    "functional",
    "gaussian_entropy",
    "half_mse_of",
    "knn_entropy",
    "laplace_bounds",
    "lower_envelope",
    "negentropy_entropy",
    "nerd",
    "readout",
    "shannon_lower_bound",
    "simulate",
    "spacing_entropy",
    "sphere_rate",
    "water_filling",
    "wgd",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
