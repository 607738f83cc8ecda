"""The published results anew: means, ranks, types, English, intervals; from the shipped copy or from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from assay.core.errors import UsageError
from assay.core.stats.intervals import fisher_z, wilson
from assay.core.table import Table
from assay.representations.hume.aggregate import HUMAN, by_kind, mean_subset, mean_task, of_kinds, rank_of
from assay.representations.hume.aggregate import published as shipped
from assay.representations.hume.registry import KINDS, key, pairs
from assay.representations.hume.results import read_scores

if TYPE_CHECKING:
    from assay.core.results import Runs


def published(runs: Runs, results: str | None = None) -> list[Table]:
    """Leaderboard and pair table of published scores, percent; ``results`` is a folder of result files."""
    scores = shipped()["scores"] if results is None else read_scores(results)
    return [board(scores), pair_table(scores)]


def board(scores: dict[str, dict[str, float]]) -> Table:
    """Every model's means, percent, with its rank among those that have all pairs."""
    overall = {name: mean_subset(values) for name, values in scores.items()}
    rows: list[dict[str, Any]] = []
    for name, values in scores.items():
        kinds, english = by_kind(values), by_kind(values, "eng")
        row = {
            "rank": None if overall[name] is None else rank_of(name, overall),
            "model": name,
            "mean_subset": overall[name],
            "mean_task": mean_task(values),
            "without_clustering": mean_subset(values, of_kinds(*(k for k in KINDS if k != "clustering"))),
        }
        row |= kinds | {f"english_{kind}": value for kind, value in english.items()}
        rows.append({k: 100 * v if isinstance(v, float) else v for k, v in row.items()})
    frame = pl.DataFrame(rows, infer_schema_length=None).sort("mean_subset", descending=True, nulls_last=True)
    notes = [
        "mean_subset: over 26 pairs, void where one is missing; mean_task averages the subsets of a task first.",
        f"{shipped()['source']}.",
    ]
    return Table(
        "published", "Published scores, percent", frame, notes=notes, formats=dict.fromkeys(frame.columns[2:], ".2f")
    )


def pair_table(scores: dict[str, dict[str, float]]) -> Table:
    """Each pair: people with interval, agreement, and the best model."""
    if HUMAN not in scores:
        raise UsageError(f"These results lack {HUMAN}, whom models are compared with.")
    known = shipped()["agreement"]
    rows = []
    for spec, subset in pairs():
        name = key(spec.name, subset)
        human = scores[HUMAN].get(name)
        if human is None:
            continue
        ends: tuple[float, float] | None = None
        interval = "none: item scores are not published"
        if spec.kind == "classification":
            ends, interval = _floats(wilson(human * spec.items, spec.items)), "Wilson"
        elif spec.kind == "sts":
            ends, interval = _floats(fisher_z(human, spec.items)), "Fisher z"
        model, best = max(((m, v[name]) for m, v in scores.items() if m != HUMAN and name in v), key=lambda x: x[1])
        rows.append(
            {
                "pair": name,
                "kind": spec.kind,
                "people": 100 * human,
                "low": 100 * ends[0] if ends else None,
                "high": 100 * ends[1] if ends else None,
                "interval": interval,
                "n": spec.items,
                "agreement": known.get(name, {}).get("value"),
                "measure": known.get(name, {}).get("metric"),
                "best_model": model,
                "best": 100 * best,
                "outside": not ends[0] <= best <= ends[1] if ends else None,
            }
        )
    notes = [
        "outside: the best model lies outside the people's 95 % interval, where one can be had from published figures."
    ]
    return Table(
        "published_pairs",
        "Published scores by pair, percent",
        pl.DataFrame(rows, infer_schema_length=None),
        notes=notes,
    )


def _floats(ends: tuple[Any, Any]) -> tuple[float, float]:
    return float(ends[0]), float(ends[1])
