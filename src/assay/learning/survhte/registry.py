"""The 53 configurations of the paper by name, and four more; estimators are imported when one is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.core.errors import MissingExtra, unknown_name

if TYPE_CHECKING:
    from assay.learning.survhte.base import SurvivalEffect

META = {"t_learner": "T-Learner", "s_learner": "S-Learner", "x_learner": "X-Learner", "dr_learner": "DR-Learner"}
WHOLE = {"double_ml": "Double-ML", "causal_forest": "Causal Forest"}
SURVIVAL = {
    "s_learner_survival": "S-Learner-Survival",
    "t_learner_survival": "T-Learner-Survival",
    "matching_learner_survival": "Matching-Survival",
}
BASES = ("lasso", "rf", "xgb")
IMPUTERS = ("pseudo_obs", "margin", "ipcw_t")
MODELS = ("rsf", "deepsurv", "deephit")
EXTRA = {
    "km_difference": "Kaplan-Meier difference",
    "double_ml+ipcw": "Double-ML",
    "causal_forest+ipcw": "Causal Forest",
    "causal_forest+mistr": "MISTR",
}


def outcome(learner: str, base: str, imputer: str, *, trees: int | None = None) -> SurvivalEffect:
    """Outcome imputation; ``trees`` of forests and boosted ensembles."""
    from assay.learning.survhte.outcome import OutcomeImputation

    return OutcomeImputation(learner, base, imputer, trees=trees)


def survival(
    learner: str,
    model: str,
    *,
    tune: bool = True,
    trees: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    nodes: int | None = None,
    dropout: float | None = None,
    area: str = "exact",
) -> SurvivalEffect:
    """A survival meta-learner; hyper-parameters given here are not tuned."""
    from assay.learning.survhte import survival_learners

    cls = {
        "s_learner_survival": survival_learners.SLearnerSurvival,
        "t_learner_survival": survival_learners.TLearnerSurvival,
        "matching_learner_survival": survival_learners.MatchingSurvival,
    }[learner]
    given = {"trees": trees} if model == "rsf" else {"epochs": epochs, "lr": lr, "nodes": nodes, "dropout": dropout}
    settings = {key: value for key, value in given.items() if value is not None}
    return cls(model, tune=tune, settings=settings or None, area=area)


def causal_survival_forest(*, trees: int = 2000, min_node: int = 5, grid: int = 500) -> SurvivalEffect:
    """Causal survival forest (Cui et al. 2023); ``grid`` bounds the points in time of its nuisance curves."""
    from assay.learning.survhte.causal_survival_forest import CausalSurvivalForest

    return CausalSurvivalForest(trees=trees, min_node=min_node, grid=grid)


def mistr(*, imputations: int = 10, rounds: int = 3, survival_trees: int = 50, trees: int = 100) -> SurvivalEffect:
    """Causal forests on times that survival trees imputed recursively (Meir et al. 2025)."""
    from assay.learning.survhte.recursive_imputation import RecursivelyImputed

    return RecursivelyImputed(imputations=imputations, rounds=rounds, survival_trees=survival_trees, trees=trees)


def survite(
    *,
    ipm: str = "wasserstein",
    at_risk: bool = True,
    beta: float = 1e-3,
    gamma: float = 0.0,
    bins: int = 100,
    steps: int = 10_000,
) -> SurvivalEffect:
    """SurvITE (Curth et al. 2021); ``at_risk=false`` balances whole batches, as the benchmark's port does."""
    try:
        from assay.learning.survhte.survite import SurvITE
    except ImportError:
        raise MissingExtra("The method 'survite'", "survhte") from None

    return SurvITE(ipm=ipm, at_risk=at_risk, beta=beta, gamma=gamma, bins=bins, steps=steps)


def km_difference() -> SurvivalEffect:
    """No model at all: the difference of the arms' Kaplan-Meier areas, the same for everybody."""
    from assay.learning.survhte.unadjusted import KaplanMeierDifference

    return KaplanMeierDifference()


def list_methods() -> list[str]:
    """Names of the paper's 53 configurations."""
    return [name for name in methods() if name not in EXTRA]


def methods() -> Mapping[str, Callable[..., Any]]:
    """Factories by name; the cheapest first."""
    found: dict[str, Callable[..., Any]] = {"km_difference": km_difference}
    for learner in META:
        for base in BASES:
            for imputer in IMPUTERS:
                found[f"{learner}+{base}+{imputer}"] = partial(outcome, learner, base, imputer)
    for learner in WHOLE:
        for imputer in (*IMPUTERS, "ipcw"):
            found[f"{learner}+{imputer}"] = partial(outcome, learner, "lasso", imputer)
    found["causal_survival_forest"] = causal_survival_forest
    found["causal_forest+mistr"] = mistr
    found["survite"] = survite
    for learner in SURVIVAL:
        for model in MODELS:
            found[f"{learner}+{model}"] = partial(survival, learner, model)
    return found


def get_method(name: str, **options: Any) -> Any:
    """The estimator called ``name``, with options of its factory.

    Raises
    ------
    UsageError
        No such method; the nearest names are in the message.
    """
    known = methods()
    if name not in known:
        raise unknown_name("method", name, known)
    return known[name](**options)


def family(name: str) -> str:
    """Family that a method is ranked in; a system of one's own is a family of its own."""
    name = name.removeprefix("method:").partition("?")[0]
    if name in EXTRA:
        return EXTRA[name]
    learner = name.partition("+")[0]
    single = {"causal_survival_forest": "Causal Survival Forest", "survite": "SurvITE"}
    return {**META, **WHOLE, **SURVIVAL, **single}.get(learner, name)
