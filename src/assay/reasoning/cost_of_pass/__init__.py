"""Cost-of-Pass: what one correct answer costs, who gives it cheapest, and what moves that frontier. As a library:
`CostOfPass` over anybody's records, price books, comparators, the published record format, logs of other harnesses."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.reasoning.cost_of_pass.bayes import posterior, posterior_frontier
    from assay.reasoning.cost_of_pass.benchmark import CostOfPassBenchmark
    from assay.reasoning.cost_of_pass.decay import HalfLife, fit_half_life
    from assay.reasoning.cost_of_pass.estimator import CostOfPass, Frontier
    from assay.reasoning.cost_of_pass.experts import expert_costs
    from assay.reasoning.cost_of_pass.formats import RecordStore, read_records, to_published
    from assay.reasoning.cost_of_pass.laws import (
        CorrelatedRetries,
        Policy,
        Verified,
        cascade,
        effective_cost,
        expert_cost,
        routing,
    )
    from assay.reasoning.cost_of_pass.logs import read_inspect, read_lm_eval
    from assay.reasoning.cost_of_pass.prices import PriceBook, Tariff, machine_hour, token_price
    from assay.reasoning.cost_of_pass.resampling import Bootstrap
    from assay.reasoning.cost_of_pass.sampling import published_sample
    from assay.reasoning.cost_of_pass.scoring import (
        answer_block,
        choice_letter,
        exact_match,
        letter_match,
        majority_vote,
        math_match,
        soft_match,
    )
    from assay.reasoning.cost_of_pass.values import Expert, cost_of_pass, frontier, technique_gain

_HOMES = {
    "bayes": ("posterior", "posterior_frontier"),
    "benchmark": ("CostOfPassBenchmark",),
    "decay": ("HalfLife", "fit_half_life"),
    "estimator": ("CostOfPass", "Frontier"),
    "experts": ("expert_costs",),
    "formats": ("RecordStore", "read_records", "to_published"),
    "laws": ("CorrelatedRetries", "Policy", "Verified", "cascade", "effective_cost", "expert_cost", "routing"),
    "logs": ("read_inspect", "read_lm_eval"),
    "prices": ("PriceBook", "Tariff", "machine_hour", "token_price"),
    "resampling": ("Bootstrap",),
    "sampling": ("published_sample",),
    "scoring": (
        "answer_block", "choice_letter", "exact_match", "letter_match", "majority_vote", "math_match", "soft_match",
    ),
    "values": ("Expert", "cost_of_pass", "frontier", "technique_gain"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Bootstrap",
    "CorrelatedRetries",
    "CostOfPass",
    "CostOfPassBenchmark",
    "Expert",
    "Frontier",
    "HalfLife",
    "Policy",
    "PriceBook",
    "RecordStore",
    "Tariff",
    "Verified",
    "answer_block",
    "cascade",
    "choice_letter",
    "cost_of_pass",
    "effective_cost",
    "exact_match",
    "expert_cost",
    "expert_costs",
    "fit_half_life",
    "frontier",
    "letter_match",
    "machine_hour",
    "majority_vote",
    "math_match",
    "posterior",
    "posterior_frontier",
    "published_sample",
    "read_inspect",
    "read_lm_eval",
    "read_records",
    "routing",
    "soft_match",
    "technique_gain",
    "to_published",
    "token_price",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
