"""PU-Bench: learning from labelled positives and unlabelled rows. Estimators, losses, a data generator, a benchmark."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.learning.pu_bench.estimators import CLASSES

_HOMES = {
    "BBEPrior": "prior",
    "KernelMeanPrior": "mixture",
    "NNPULoss": "losses",
    "PUData": "generator",
    "TIcEPrior": "mixture",
    "UPULoss": "losses",
    "bbe": "prior",
    "classification_scores": "scoring",
    "load_dataset": "data",
    "make_estimator": "estimators",
    "make_pu_dataset": "generator",
    "paper_grid": "grid",
    "proxy_accuracy_score": "scoring",
    "proxy_auc_score": "scoring",
    "resample_by_prevalence": "generator",
    **{cls: f"estimators.{module}" for module, cls, _ in CLASSES.values()},
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
