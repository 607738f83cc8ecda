"""SurvHTE-Bench: heterogeneous treatment effects with right-censored outcomes. As a library: data sets with known
truth, imputers, 53 estimators with ``fit(X, W, y)`` and ``effect(X)``, scores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.learning.survhte.base import SurvivalEffect, surv
    from assay.learning.survhte.benchmark import SurvHTE
    from assay.learning.survhte.causal_survival_forest import CausalSurvivalForest
    from assay.learning.survhte.checks import balance, censoring_positivity, overlap
    from assay.learning.survhte.clinical import load_actg175, load_packaged
    from assay.learning.survhte.data import SurvivalData, make_survhte
    from assay.learning.survhte.imputation import KaplanMeier, impute, ipcw_weights
    from assay.learning.survhte.outcome import OutcomeImputation
    from assay.learning.survhte.protocol import EffectEstimator, Estimand
    from assay.learning.survhte.published import read_published, read_results, read_store
    from assay.learning.survhte.recursive_imputation import RecursivelyImputed
    from assay.learning.survhte.registry import get_method, list_methods
    from assay.learning.survhte.scoring import concordance_td, effect_scores, integrated_brier, rmst
    from assay.learning.survhte.semisynthetic import make_actg_syn, make_mimic_syn
    from assay.learning.survhte.survite import SurvITE
    from assay.learning.survhte.survival_learners import MatchingSurvival, SLearnerSurvival, TLearnerSurvival
    from assay.learning.survhte.synthetic import Assignment, World
    from assay.learning.survhte.twins import encode_twins, load_twins, make_twins
    from assay.learning.survhte.unadjusted import KaplanMeierDifference

_HOMES = {
    "base": ("SurvivalEffect", "surv"),
    "benchmark": ("SurvHTE",),
    "causal_survival_forest": ("CausalSurvivalForest",),
    "checks": ("balance", "censoring_positivity", "overlap"),
    "clinical": ("load_actg175", "load_packaged"),
    "data": ("SurvivalData", "make_survhte"),
    "imputation": ("KaplanMeier", "impute", "ipcw_weights"),
    "outcome": ("OutcomeImputation",),
    "protocol": ("EffectEstimator", "Estimand"),
    "published": ("read_published", "read_results", "read_store"),
    "recursive_imputation": ("RecursivelyImputed",),
    "registry": ("get_method", "list_methods"),
    "scoring": ("concordance_td", "effect_scores", "integrated_brier", "rmst"),
    "semisynthetic": ("make_actg_syn", "make_mimic_syn"),
    "survival_learners": ("MatchingSurvival", "SLearnerSurvival", "TLearnerSurvival"),
    "survite": ("SurvITE",),
    "synthetic": ("Assignment", "World"),
    "twins": ("encode_twins", "load_twins", "make_twins"),
    "unadjusted": ("KaplanMeierDifference",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Assignment",
    "CausalSurvivalForest",
    "EffectEstimator",
    "Estimand",
    "KaplanMeier",
    "KaplanMeierDifference",
    "MatchingSurvival",
    "OutcomeImputation",
    "RecursivelyImputed",
    "SLearnerSurvival",
    "SurvHTE",
    "SurvITE",
    "SurvivalData",
    "SurvivalEffect",
    "TLearnerSurvival",
    "World",
    "balance",
    "censoring_positivity",
    "concordance_td",
    "effect_scores",
    "encode_twins",
    "get_method",
    "impute",
    "integrated_brier",
    "ipcw_weights",
    "list_methods",
    "load_actg175",
    "load_packaged",
    "load_twins",
    "make_actg_syn",
    "make_mimic_syn",
    "make_survhte",
    "make_twins",
    "overlap",
    "read_published",
    "read_results",
    "read_store",
    "rmst",
    "surv",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
