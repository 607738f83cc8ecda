"""From main scores by pair to one number: mean over pairs, over tasks, by type; who stands where."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from assay.representations.hume.registry import KINDS, TaskSpec, key, pairs, tasks

HUMAN = "baseline__Human"


def mean_subset(scores: Mapping[str, float | None], wanted: Iterable[str] | None = None) -> float | None:
    """Unweighted mean over pairs: None when one is missing or NaN, 0 when none is wanted (None = those of HUME(v1))."""
    names = [key(spec.name, subset) for spec, subset in pairs()] if wanted is None else list(wanted)
    found = [scores.get(name) for name in names]
    if any(v is None or math.isnan(v) for v in found):
        return None
    return sum(v for v in found if v is not None) / len(found) if found else 0.0


def mean_task(scores: Mapping[str, float | None], specs: Iterable[TaskSpec] | None = None) -> float | None:
    """Mean over tasks of the mean over their subsets: another number than `mean_subset`."""
    chosen = list(tasks().values() if specs is None else specs)
    found = [mean_subset(scores, [key(spec.name, subset) for subset in spec.subsets]) for spec in chosen]
    kept = [v for v in found if v is not None]
    return None if len(kept) < len(found) else (sum(kept) / len(kept) if kept else 0.0)


def of_kinds(*kinds: str, specs: Iterable[TaskSpec] | None = None, language: str = "") -> list[str]:
    """Pairs of some types, all when none is named, in one language when one is."""
    return [
        key(spec.name, subset)
        for spec, subset in pairs(specs)
        if (not kinds or spec.kind in kinds)
        and (not language or any(code.startswith(language) for code in spec.subsets[subset]))
    ]


def by_kind(scores: Mapping[str, float | None], language: str = "") -> dict[str, float | None]:
    """Mean over the pairs of each type."""
    return {kind: mean_subset(scores, of_kinds(kind, language=language)) for kind in KINDS}


def rank_of(name: str, overall: Mapping[str, float | None]) -> int:
    """Place from the top, 1 = best; ties share the better place. Void scores are not ranked."""
    mine = overall[name]
    if mine is None:
        raise ValueError(f"{name} has no overall score")
    return 1 + sum(v is not None and v > mine for v in overall.values())


def published() -> dict[str, Any]:
    """Published scores, agreement and claims with their source."""
    path = resources.files("assay.representations.hume").joinpath("references.json")
    return json.loads(path.read_text(encoding="utf-8"))
