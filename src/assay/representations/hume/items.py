"""Items of a study: what people and models are shown, with gold; read from and written to a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError, unknown_name
from assay.representations.hume.registry import TaskSpec, key

if TYPE_CHECKING:
    from assay.core.datasets import Data

STUDY = "study.json"


@dataclass(frozen=True, slots=True)
class Item:
    """One question.

    Parameters
    ----------
    id
        As in the source; unique in its pair.
    texts
        classification: the text; sts: both; reranking: query, then documents; clustering: the texts.
    gold
        Label; score; 0/1 by document; label by text.
    ids
        Document ids, for reranking.
    """

    id: str
    texts: tuple[str, ...]
    gold: Any
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PairItems:
    """Items of one pair (task, subset); ``train`` are texts with labels, for models on classification."""

    spec: TaskSpec
    subset: str
    items: tuple[Item, ...]
    train: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """``task|subset``."""
        return key(self.spec.name, self.subset)

    @property
    def labels(self) -> list[str]:
        """Names to choose from, of the task or else of the data, in a fixed order."""
        found = {item.gold for item in self.items} | {label for _, label in self.train}
        return [name for name in self.spec.labels.values() if name in found] or sorted(found)


@dataclass(frozen=True, slots=True)
class Study:
    """Pairs with their provenance."""

    pairs: Mapping[str, PairItems]
    data: Data
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)


def read_study(folder: Path | str) -> Study:
    """A folder: ``study.json`` with the tasks, and ``TASK/SUBSET.jsonl`` with the items of each pair.

    Rows: ``{"id", "text", "label", "split"}`` (split test or train); ``{"id", "sentence1", "sentence2", "score"}``;
    ``{"id", "query", "documents": [{"id", "text"}], "relevant": [0, 1 ...]}``; ``{"id", "sentences", "labels"}``.

    Raises
    ------
    DataError
        A file is missing, or a row is not of its task's shape; file, line and field are named.
    """
    from assay.core.datasets import read_json
    from assay.core.datasets.sources import folder as data_folder

    folder = Path(folder)
    data = data_folder(folder)
    found = read_json(folder / STUDY)
    rows = found.get("tasks") if isinstance(found, Mapping) else None
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{folder / STUDY}: field 'tasks' must be a list of tasks.")
    specs = {}
    for number, row in enumerate(rows):
        spec = TaskSpec.of(row, f"{folder / STUDY}, task {number}")
        if spec.name in specs:
            raise DataError(f"{folder / STUDY}, task {number}: {spec.name!r} stands twice.")
        specs[spec.name] = spec
    pairs = {}
    for spec in specs.values():
        for subset in spec.subsets:
            pair = _read_pair(folder / spec.name / f"{subset}.jsonl", spec, subset)
            pairs[pair.key] = pair
    return Study(pairs, data, specs)


def write_study(folder: Path, pairs: Sequence[PairItems]) -> None:
    """Write what `read_study` reads."""
    specs: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        row = specs.setdefault(pair.spec.name, {**pair.spec.row(), "subsets": {}, "items": len(pair.items)})
        row["subsets"][pair.subset] = list(pair.spec.subsets.get(pair.subset, ()))
        path = folder / pair.spec.name / f"{pair.subset}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row, ensure_ascii=False) for row in rows_of(pair)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps({"tasks": list(specs.values())}, ensure_ascii=False, indent=1)
    (folder / STUDY).write_text(text + "\n", encoding="utf-8")


def rows_of(pair: PairItems) -> list[dict[str, Any]]:
    """Items as rows of a file."""
    kind = pair.spec.kind
    if kind == "classification":
        rows = [{"id": i.id, "text": i.texts[0], "label": i.gold, "split": "test"} for i in pair.items]
        return rows + [
            {"id": f"train-{n}", "text": text, "label": label, "split": "train"}
            for n, (text, label) in enumerate(pair.train)
        ]
    if kind == "sts":
        return [{"id": i.id, "sentence1": i.texts[0], "sentence2": i.texts[1], "score": i.gold} for i in pair.items]
    if kind == "reranking":
        return [
            {
                "id": i.id,
                "query": i.texts[0],
                "documents": [{"id": d, "text": t} for d, t in zip(i.ids, i.texts[1:])],
                "relevant": list(i.gold),
            }
            for i in pair.items
        ]
    return [{"id": i.id, "sentences": list(i.texts), "labels": list(i.gold)} for i in pair.items]


def _read_pair(path: Path, spec: TaskSpec, subset: str) -> PairItems:
    from assay.core.datasets import read_jsonl

    items: list[Item] = []
    train: list[tuple[str, str]] = []
    lines: dict[str, int] = {}
    for line, row in read_jsonl(path):
        where = f"{path}, line {line}"
        if spec.kind == "classification" and row.get("split", "test") == "train":
            train.append((_text(row, "text", where), spec.label(row.get("label"), where)))
            continue
        item = _item(row, spec, where)
        if item.id in lines:
            raise DataError(f"{where}: item {item.id!r} stands in line {lines[item.id]} already.")
        lines[item.id] = line
        items.append(item)
    if not items:
        raise DataError(f"{path} holds no item.")
    return PairItems(spec, subset, tuple(items), tuple(train))


def _item(row: Mapping[str, Any], spec: TaskSpec, where: str) -> Item:
    name = _text(row, "id", where)
    if spec.kind == "classification":
        if row.get("split", "test") != "test":
            raise DataError(f"{where}: {unknown_name('split', str(row['split']), ('test', 'train'))}")
        if row.get("label") is None:
            raise DataError(f"{where}: field 'label' is missing.")
        return Item(name, (_text(row, "text", where),), spec.label(row["label"], where))
    if spec.kind == "sts":
        score = row.get("score")
        low, high = spec.gold_scale
        if not isinstance(score, (int, float)) or isinstance(score, bool) or not low <= score <= high:
            raise DataError(f"{where}: field 'score' is {score!r}, and must be a number from {low} to {high}.")
        return Item(name, (_text(row, "sentence1", where), _text(row, "sentence2", where)), float(score))
    if spec.kind == "reranking":
        documents, relevant = row.get("documents"), row.get("relevant")
        if not isinstance(documents, list) or not documents:
            raise DataError(f"{where}: field 'documents' must be a list of objects with 'id' and 'text'.")
        if not isinstance(relevant, list) or len(relevant) != len(documents) or any(x not in (0, 1) for x in relevant):
            raise DataError(f"{where}: field 'relevant' must hold a 0 or 1 for each of {len(documents)} documents.")
        texts = [_text(d if isinstance(d, Mapping) else {}, "text", f"{where}, documents") for d in documents]
        ids = [_text(d, "id", f"{where}, documents") for d in documents]
        if len(set(ids)) < len(ids):
            raise DataError(f"{where}: two documents have one id; ids must be unique in a query.")
        return Item(name, (_text(row, "query", where), *texts), tuple(int(x) for x in relevant), tuple(ids))
    texts, labels = row.get("sentences"), row.get("labels")
    if not isinstance(texts, list) or not isinstance(labels, list) or len(texts) != len(labels) or len(texts) < 2:
        raise DataError(f"{where}: fields 'sentences' and 'labels' must be lists of one length, two or more.")
    if not all(isinstance(t, str) for t in texts):
        raise DataError(f"{where}: field 'sentences' must hold texts.")
    return Item(name, tuple(texts), tuple(spec.label(x, where) for x in labels))


def _text(row: Mapping[str, Any], field: str, where: str) -> str:
    if not isinstance(row.get(field), str):
        raise DataError(f"{where}: field {field!r} is {row.get(field)!r}, and must be a text.")
    return row[field]
