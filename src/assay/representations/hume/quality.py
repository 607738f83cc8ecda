"""Data quality of a study: people against gold, items nobody gets, empty and double texts, leaks from training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from assay.core.table import Table
from assay.core.text import near_duplicates, normalise
from assay.representations.hume import exchange
from assay.representations.hume.items import PairItems
from assay.representations.hume.panels import is_person, study_of

if TYPE_CHECKING:
    from assay.core.results import Runs

APART = 2.0
"""Ratings whose mean is this far from gold (of five steps), while they agree within one, speak against it."""


def quality(runs: Runs) -> list[Table]:
    """Texts and answers that need a look, an item a row."""
    study = study_of(runs[0])
    specs = {row for run in runs for row in run.records["pair"].unique().to_list()}
    chosen = [pair for name, pair in study.items() if name in specs]
    people = [a for run in runs if is_person(run) for a in exchange.of_run(run, study_of(run))]
    everybody = [a for run in runs for a in _all_answers(run)]
    return [
        _table("texts", "Texts: empty, double, in the training data", [f for p in chosen for f in text_faults(p)]),
        _table("against_gold", "Items where people agree against gold", against_gold(chosen, people)),
        _table("nobody", "Items that no system gets", nobody(chosen, everybody)),
    ]


def text_faults(pair: PairItems) -> list[dict[str, Any]]:
    """Empty texts, exact and near doubles among items, test texts that stand in the training data."""
    rows = []
    trained = {normalise(text) for text, _ in pair.train}
    places: dict[str, list[str]] = {}
    texts: list[tuple[str, str]] = []
    for item in pair.items:
        for number, text in enumerate(item.texts):
            where = f"{item.id}[{number}]" if len(item.texts) > 1 else item.id
            if not text.strip():
                rows.append({"pair": pair.key, "item": where, "fault": "empty", "detail": ""})
                continue
            texts.append((where, text))
            places.setdefault(normalise(text), []).append(where)
            if normalise(text) in trained:
                rows.append({"pair": pair.key, "item": where, "fault": "in training data", "detail": text[:80]})
    for found in places.values():
        if len(found) > 1:
            rows.append({"pair": pair.key, "item": found[0], "fault": "double", "detail": ", ".join(found[1:])[:80]})
    for near in near_duplicates([text for _, text in texts], 0.8):
        a, b = texts[near[0]], texts[near[1]]
        if normalise(a[1]) != normalise(b[1]):
            rows.append({"pair": pair.key, "item": a[0], "fault": "near double", "detail": f"{b[0]}: {b[1][:60]}"})
    return rows


def against_gold(pairs: Iterable[PairItems], given: Sequence[exchange.Annotation]) -> list[dict[str, Any]]:
    """Items on which two people or more agree with each other and not with gold; ``people`` is what they say.

    Labels: all the same and another. Documents: every judge says otherwise. Ratings: within one step of each other, and
    their mean two steps from gold on the scale of the question.
    """
    rows = []
    for pair in pairs:
        answers = list(exchange.table(given, pair).values())
        kind = pair.spec.kind
        if kind == "clustering" or len(answers) < 2:
            continue
        for n, item in enumerate(pair.items):
            mine = [a[n] for a in answers if a[n] is not None]
            if len(mine) < 2:
                continue
            row = {"pair": pair.key, "item": item.id, "part": None, "annotators": len(mine), "text": item.texts[0][:80]}
            if kind == "classification" and len(set(mine)) == 1 and mine[0] != item.gold:
                rows.append({**row, "gold": item.gold, "people": mine[0]})
            elif kind == "sts":
                (low, high), (first, last) = pair.spec.scale, pair.spec.gold_scale
                right = low + (high - low) * (item.gold - first) / (last - first)
                middle = sum(mine) / len(mine)
                if max(mine) - min(mine) <= 1 and abs(middle - right) >= APART:
                    rows.append({**row, "gold": f"{item.gold:g}", "people": f"{middle:g}"})
            elif kind == "reranking":
                for d, right in enumerate(item.gold):
                    said = {a[d] for a in mine}
                    if said == {1 - right}:
                        text = item.texts[d + 1][:80]
                        rows.append(
                            {**row, "part": item.ids[d], "text": text, "gold": str(right), "people": str(1 - right)}
                        )
    return rows


def nobody(pairs: Iterable[PairItems], given: Sequence[exchange.Annotation]) -> list[dict[str, Any]]:
    """Items of classification that two answers or more are wrong on, and none right."""
    rows = []
    for pair in pairs:
        if pair.spec.kind != "classification":
            continue
        for item in pair.items:
            said = [a.answer for a in given if (a.task, a.subset, a.item) == (pair.spec.name, pair.subset, item.id)]
            said = [s for s in said if s is not None]
            if len(said) > 1 and item.gold not in said:
                common = Counter(said).most_common(1)[0]
                rows.append(
                    {
                        "pair": pair.key,
                        "item": item.id,
                        "gold": item.gold,
                        "most_said": common[0],
                        "times": common[1],
                        "answers": len(said),
                        "text": item.texts[0][:80],
                    }
                )
    return rows


def _all_answers(run: Any) -> list[exchange.Annotation]:
    """Answers of annotators, and labels of encoders too."""
    if run.records["answers_as"][0] == "annotator":
        return exchange.of_run(run, study_of(run))
    frame = run.records.filter(pl.col("kind") == "classification", pl.col("status") == "ok")
    found = []
    for row in frame.iter_rows(named=True):
        task, _, subset = row["pair"].partition("|")
        name = row["sample"].partition("/")[2]
        found.append(exchange.Annotation(task, subset, name, run.system, "llm", row["answer"]))
    return found


def _table(name: str, title: str, rows: list[dict[str, Any]]) -> Table:
    frame = pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame({"pair": [], "item": []})
    return Table(name, title, frame, notes=() if rows else ("None found.",))
