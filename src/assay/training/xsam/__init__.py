"""XSAM, explicit sharpness-aware minimisation, with its relatives, sharpness measures and loss surfaces."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.training.xsam.baselines import (
        ASAM,
        GSAM,
        OPTIMISERS,
        SAM,
        WSAM,
        FriendlySAM,
        GradientNormPenalty,
        LookSAM,
        RandomSAM,
        make_optimiser,
    )
    from assay.training.xsam.benchmark import XSAMBenchmark
    from assay.training.xsam.callbacks import lightning_callback, sharpness_aware_trainer
    from assay.training.xsam.data import make_split
    from assay.training.xsam.efficient import ESAM, MSAM
    from assay.training.xsam.engine import SharpnessAware, average_gradients
    from assay.training.xsam.freezing import frozen_statistics
    from assay.training.xsam.landscape import Plane, save_history, search_plane, surface, surface_chart
    from assay.training.xsam.methods import METHODS
    from assay.training.xsam.networks import NETWORKS, make_network
    from assay.training.xsam.optimiser import XSAM
    from assay.training.xsam.plane import slerp
    from assay.training.xsam.sharpness import (
        TopEigenvalue,
        hessian_product,
        hessian_top,
        hessian_trace,
        largest_loss,
        quadratic_maximiser,
    )
    from assay.training.xsam.training import Recipe, train_classifier, write_log

_HOMES = {
    "ASAM": "baselines",
    "ESAM": "efficient",
    "FriendlySAM": "baselines",
    "GSAM": "baselines",
    "GradientNormPenalty": "baselines",
    "LookSAM": "baselines",
    "METHODS": "methods",
    "MSAM": "efficient",
    "NETWORKS": "networks",
    "OPTIMISERS": "baselines",
    "Plane": "landscape",
    "RandomSAM": "baselines",
    "Recipe": "training",
    "SAM": "baselines",
    "SharpnessAware": "engine",
    "TopEigenvalue": "sharpness",
    "WSAM": "baselines",
    "XSAM": "optimiser",
    "XSAMBenchmark": "benchmark",
    "average_gradients": "engine",
    "frozen_statistics": "freezing",
    "hessian_product": "sharpness",
    "hessian_top": "sharpness",
    "hessian_trace": "sharpness",
    "largest_loss": "sharpness",
    "lightning_callback": "callbacks",
    "make_network": "networks",
    "make_optimiser": "baselines",
    "make_split": "data",
    "quadratic_maximiser": "sharpness",
    "save_history": "landscape",
    "search_plane": "landscape",
    "sharpness_aware_trainer": "callbacks",
    "slerp": "plane",
    "surface": "landscape",
    "surface_chart": "landscape",
    "train_classifier": "training",
    "write_log": "training",
}

__all__ = [
    "ASAM",
    "ESAM",
    "GSAM",
    "METHODS",
    "MSAM",
    "NETWORKS",
    "OPTIMISERS",
    "SAM",
    "WSAM",
    "XSAM",
    "FriendlySAM",
    "GradientNormPenalty",
    "LookSAM",
    "Plane",
    "RandomSAM",
    "Recipe",
    "SharpnessAware",
    "TopEigenvalue",
    "XSAMBenchmark",
    "average_gradients",
    "frozen_statistics",
    "hessian_product",
    "hessian_top",
    "hessian_trace",
    "largest_loss",
    "lightning_callback",
    "make_network",
    "make_optimiser",
    "make_split",
    "quadratic_maximiser",
    "save_history",
    "search_plane",
    "sharpness_aware_trainer",
    "slerp",
    "surface",
    "surface_chart",
    "train_classifier",
    "write_log",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
