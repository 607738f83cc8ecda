"""HUME: people, chat models and text encoders on the same items. Library: scorer, agreement, means, files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.representations.hume.aggregate import by_kind, mean_subset, mean_task, rank_of
    from assay.representations.hume.benchmark import Hume
    from assay.representations.hume.exchange import read_annotations, write_annotations
    from assay.representations.hume.items import Item, PairItems, Study, read_study, write_study
    from assay.representations.hume.registry import TaskSpec, pairs, tasks
    from assay.representations.hume.results import read_result, write_result
    from assay.representations.hume.scoring import agreement, majority_vote, mean_rating, score

_HOMES = {
    "Hume": "benchmark",
    "Item": "items",
    "PairItems": "items",
    "Study": "items",
    "TaskSpec": "registry",
    "agreement": "scoring",
    "by_kind": "aggregate",
    "majority_vote": "scoring",
    "mean_rating": "scoring",
    "mean_subset": "aggregate",
    "mean_task": "aggregate",
    "pairs": "registry",
    "rank_of": "aggregate",
    "read_annotations": "exchange",
    "read_result": "results",
    "read_study": "items",
    "score": "scoring",
    "tasks": "registry",
    "write_annotations": "exchange",
    "write_result": "results",
    "write_study": "items",
}
__all__ = [
    "Hume",
    "Item",
    "PairItems",
    "Study",
    "TaskSpec",
    "agreement",
    "by_kind",
    "majority_vote",
    "mean_rating",
    "mean_subset",
    "mean_task",
    "pairs",
    "rank_of",
    "read_annotations",
    "read_result",
    "read_study",
    "score",
    "tasks",
    "write_annotations",
    "write_result",
    "write_study",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
