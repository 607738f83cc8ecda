"""PU-Bench: learning from labelled positives and unlabelled rows. Estimators, losses, a data generator, a benchmark."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.learning.pu_bench.estimators import CLASSES

_HOMES = {
    "BBEPrior": "prior",
    "ConformalPU": "conformal",
    "KernelMeanPrior": "mixture",
    "NNPULoss": "losses",
    "PUData": "generator",
    "Recommender": "recommending",
    "TIcEPrior": "mixture",
    "UPULoss": "losses",
    "at_another_prior": "shift",
    "bbe": "prior",
    "calibration_scores": "shift",
    "classification_scores": "scoring",
    "conformal_p_values": "conformal",
    "conformal_threshold": "conformal",
    "dataset_statistics": "recommending",
    "load_dataset": "data",
    "make_estimator": "estimators",
    "make_pu_dataset": "generator",
    "paper_grid": "grid",
    "proxy_accuracy_score": "scoring",
    "proxy_auc_score": "scoring",
    "pu_brier_score": "shift",
    "resample_by_prevalence": "generator",
    "shifted_tests": "shift",
    **{cls: f"estimators.{module}" for module, cls, _ in CLASSES.values()},
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
