"""Methods by name: the twelve classifiers of the paper with its settings, iborf, time-aware variants, a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from assay.core.errors import unknown_name
from assay.learning.irregular.methods.baseline import Majority
from assay.learning.irregular.methods.cde import NCDE
from assay.learning.irregular.methods.deep import DeepClassifier
from assay.learning.irregular.methods.distance import KNNDTW, LCSSSVM
from assay.learning.irregular.methods.intervals import RIFC
from assay.learning.irregular.methods.tabular import BORF, LGBM, Rocket

METHODS: Mapping[str, Callable[..., Any]] = {
    "lgbm": LGBM,
    "majority": Majority,
    "knn": KNNDTW,
    "rifc": RIFC,
    "rocket": Rocket,
    "svm": LCSSSVM,
    "borf": BORF,
    "brits": partial(DeepClassifier, network="brits"),
    "grud": partial(DeepClassifier, network="grud"),
    "iborf": partial(BORF, time_aware=True),
    "knn_time": partial(KNNDTW, time_weight=1.0),
    "lgbm_time": partial(LGBM, use_times=True),
    "ncde": NCDE,
    "raindrop": partial(DeepClassifier, network="raindrop"),
    "rocket_ridge": partial(Rocket, head="ridge"),
    "rocket_time": partial(Rocket, head="ridge", use_times=True),
    "saits": partial(DeepClassifier, network="saits"),
    "timesnet": partial(DeepClassifier, network="timesnet"),
}
PAPER = ("borf", "brits", "grud", "saits", "timesnet", "raindrop", "knn", "lgbm", "ncde", "rifc", "rocket", "svm")
SEES_TIME = ("brits", "grud", "iborf", "knn_time", "lgbm_time", "ncde", "raindrop", "rocket_time")


def get_model(name: str, **options: Any) -> Any:
    """An estimator by name (case and hyphens do not count), with the paper's settings unless told otherwise."""
    key = name.lower().replace("-", "")
    if key not in METHODS:
        raise unknown_name("classifier", name, METHODS)
    return METHODS[key](**options)


def list_paper_models() -> list[str]:
    """The twelve classifiers of the paper."""
    return sorted(PAPER)
