"""What a person costs: USD a problem, by data set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def _file() -> Mapping[str, Any]:
    return json.loads(
        resources.files("assay.reasoning.cost_of_pass").joinpath("expert_costs.json").read_text(encoding="utf-8")
    )


def expert_costs() -> Mapping[str, float]:
    """USD a problem by data set, as in the published analysis."""
    return _file()["costs"]


@cache
def references() -> Mapping[str, Any]:
    """Published numbers with what is confirmed of them: ``references.json``."""
    return json.loads(
        resources.files("assay.reasoning.cost_of_pass").joinpath("references.json").read_text(encoding="utf-8")
    )


def published_class(model: str) -> str | None:
    """lightweight, large or reasoning for the paper's ten models; None for any other."""
    from assay.systems.chat.facts import bare_name

    bare = bare_name(model)
    for label, facts in references()["models"].items():
        if bare in {bare_name(name) for name in (label, *facts["names"])}:
            return facts["family"]
    return None
