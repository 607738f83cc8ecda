"""Annotations in and out: JSON lines, and Argilla records. Drafts stay out; exports hold pseudonyms alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.datasets.readers import guarded
from assay.core.errors import DataError, DataFaults, unknown_name
from assay.representations.hume import questions
from assay.representations.hume.items import Item, PairItems
from assay.representations.hume.registry import key

if TYPE_CHECKING:
    from assay.core.results import Run

FINAL = {"submitted", "final", "completed", "ok"}
LEFT_OUT = {"draft", "discarded", "pending"}
_PERSON = ("human:", "method:simulated")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One answer of one annotator to one item; ``answer`` None = missing."""

    task: str
    subset: str
    item: str
    annotator: str
    kind: str
    answer: Any
    seconds: float | None = None
    raw: str | None = None

    def output(self) -> Any:
        """As a trial's output."""
        return {"answer": self.answer}

    def row(self) -> dict[str, Any]:
        """As a line of a file."""
        names = ("task", "subset", "item", "annotator", "kind", "answer", "seconds", "raw")
        row = {name: getattr(self, name) for name in names}
        return {k: v for k, v in row.items() if v is not None or k == "answer"}


def read_annotations(path: Path | str, pairs: Iterable[PairItems]) -> list[Annotation]:
    """Annotations of a file: our JSON lines, or Argilla records (JSON list or lines with ``responses``).

    Raises
    ------
    DataFaults
        Every bad row, by file and line: unknown task or item, twice the same item by one annotator, a label, rating or
        length that the item does not have, an annotator without a name.
    DataError
        The file is no such file, or holds no finished answer.
    """
    path = Path(path)
    known = {pair.key: pair for pair in pairs}
    rows = list(_rows(path))
    reader = _argilla if rows and "responses" in rows[0][1] else _lines
    found: list[Annotation] = []
    faults: list[str] = []
    seen: dict[tuple[str, str, str, str], str] = {}
    for annotation, where in reader(rows, known, path, faults):
        place = (annotation.task, annotation.subset, annotation.item, annotation.annotator)
        if place in seen:
            faults.append(
                f"{where}: annotator {annotation.annotator!r} has answered item {annotation.item!r} in {seen[place]}."
            )
            continue
        seen[place] = where
        found.append(annotation)
    if faults:
        raise DataFaults(faults)
    if not found:
        raise DataError(f"{path} holds no finished answer: drafts do not count.")
    return found


def write_annotations(path: Path, annotations: Sequence[Annotation]) -> None:
    """Write JSON lines, people as pseudonyms."""
    names = pseudonyms(annotations)
    rows = [{**a.row(), "annotator": names[a.annotator]} for a in annotations]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def pseudonyms(annotations: Iterable[Annotation]) -> dict[str, str]:
    """``annotator_1`` ... for people in the order they come; models keep their names."""
    names: dict[str, str] = {}
    people = 0
    for a in annotations:
        if a.annotator not in names:
            people += a.kind != "llm"
            names[a.annotator] = a.annotator if a.kind == "llm" else f"annotator_{people}"
    return names


def of_run(run: Run, pairs: Mapping[str, PairItems]) -> list[Annotation]:
    """Answers of people or chat models in a run; what was not read is a missing answer with its raw text."""
    import polars as pl

    from assay.core.store import load_output

    person = run.system.startswith(_PERSON)
    frame = run.records.filter(pl.col("status") == "ok", pl.col("answers_as") == "annotator")
    found = []
    for row in frame.iter_rows(named=True):
        pair = pairs[row["pair"]]
        subset, _, name = row["sample"].partition("/")
        output = load_output(run.path, row["output"])
        item = next(i for i in pair.items if i.id == name)
        who = row.get("respondent") or (run.system if not row["attempt"] else f"{run.system} #{row['attempt']}")
        kind = row.get("respondent_kind") or ("human" if person or row.get("respondent") else "llm")
        answer = questions.read(pair, item, output).value
        raw = output if isinstance(output, str) else None
        found.append(Annotation(pair.spec.name, subset, name, who, kind, answer, row.get("seconds"), raw))
    return found


def table(annotations: Iterable[Annotation], pair: PairItems) -> dict[str, list[Any]]:
    """Answers to one pair by annotator, an entry an item; in clustering an entry a text of the first problem."""
    places = {item.id: n for n, item in enumerate(pair.items)}
    answers: dict[str, list[Any]] = {}
    for a in annotations:
        if a.task == pair.spec.name and a.subset == pair.subset:
            answers.setdefault(a.annotator, [None] * len(places))[places[a.item]] = a.answer
    if pair.spec.kind == "clustering":
        return {who: list(given[0] or [None] * len(pair.items[0].texts)) for who, given in answers.items()}
    return answers


def gold(pair: PairItems) -> list[Any]:
    """Gold beside `table`."""
    return list(pair.items[0].gold) if pair.spec.kind == "clustering" else [item.gold for item in pair.items]


# -- Argilla -------------------------------------------------------------------------------------------------------


def question_names(pair: PairItems, item: Item) -> list[str]:
    """Names of the response questions of an item in the published Argilla workspaces."""
    kind, name = pair.spec.kind, pair.spec.name.lower()
    if kind == "reranking":
        return [f"doc{n}_relevant" for n in range(1, len(item.texts))]
    if kind == "clustering":
        return ["cluster_id"]
    if kind == "sts":
        return ["similarity_score"]
    return [next((w for part, w in (("emotion", "emotion"), ("toxic", "toxicity")) if part in name), "sentiment")]


def argilla_records(pair: PairItems, annotations: Iterable[Annotation]) -> list[dict[str, Any]]:
    """Records of a pair as Argilla exports them, people as pseudonyms; in clustering a record a text."""
    annotations = [a for a in annotations if a.task == pair.spec.name and a.subset == pair.subset]
    names = pseudonyms(annotations)
    records = []
    for item in pair.items:
        given = [a for a in annotations if a.item == item.id and a.answer is not None]
        parts = range(len(item.texts)) if pair.spec.kind == "clustering" else [None]
        for part in parts:
            responses: dict[str, list[dict[str, Any]]] = {}
            for a in given:
                for question, value in _values(pair, item, a.answer, part):
                    entry = {"value": value, "user_id": names[a.annotator], "status": "submitted"}
                    responses.setdefault(question, []).append(entry)
            records.append(
                {
                    "id": item.id if part is None else f"{item.id}/{part}",
                    "fields": _fields(pair, item, part),
                    "metadata": {"task": pair.spec.name, "subset": pair.subset, **_truth(pair, item, part)},
                    "responses": responses,
                    "suggestions": {},
                    "status": "completed" if responses else "pending",
                }
            )
    return records


def _values(pair: PairItems, item: Item, answer: Any, part: int | None) -> list[tuple[str, Any]]:
    names = question_names(pair, item)
    if pair.spec.kind == "reranking":
        return [(n, "Relevant" if v else "Not Relevant") for n, v in zip(names, answer) if v is not None]
    value = answer if part is None else answer[part]
    return [] if value is None else [(names[0], value)]


def _fields(pair: PairItems, item: Item, part: int | None) -> dict[str, str]:
    if part is not None:
        return {"text": item.texts[part]}
    if pair.spec.kind == "reranking":
        return {"query": item.texts[0], **{f"doc{n}": t for n, t in enumerate(item.texts[1:], 1)}}
    if pair.spec.kind == "sts":
        return {"sentence1": item.texts[0], "sentence2": item.texts[1]}
    return {"text": item.texts[0]}


def _truth(pair: PairItems, item: Item, part: int | None) -> dict[str, Any]:
    kind = pair.spec.kind
    if kind == "clustering" and part is not None:
        return {"true_cluster": item.gold[part]}
    if kind == "reranking":
        return {"is_positive": [bool(g) for g in item.gold]}
    return {"true_score" if kind == "sts" else "true_label": item.gold}


def _argilla(
    rows: Sequence[tuple[int, Mapping[str, Any]]], known: Mapping[str, PairItems], path: Path, faults: list[str]
) -> Iterable[tuple[Annotation, str]]:
    """Submitted responses; people get numbers in the order they come, so that no account leaves the import."""
    people: dict[str, str] = {}
    texts: dict[tuple[str, str], dict[str, tuple[dict[int, Any], str]]] = {}
    for number, row in rows:
        where = f"{path}, record {number}"
        try:
            with guarded(where, "a record of Argilla"):
                pair, item, part = _place(row, known, where)
                submitted = _submitted(row, where)
            for user, values in submitted.items():
                who = people.setdefault(user, f"annotator_{len(people) + 1}")
                answer = _answer(pair, item, values, where)
                if part is None:
                    checked = None if answer is None else questions.checked(pair, item, answer, where)
                    if checked is not None:
                        yield Annotation(pair.spec.name, pair.subset, item.id, who, "human", checked), where
                elif answer is not None:
                    texts.setdefault((pair.key, item.id), {}).setdefault(who, ({}, where))[0][part] = answer
        except DataError as error:
            faults.append(str(error))
    for (name, item_id), by_person in texts.items():
        pair = known[name]
        item = next(i for i in pair.items if i.id == item_id)
        for who, (given, where) in by_person.items():
            answer = [None if n not in given else str(given[n]) for n in range(len(item.texts))]
            yield Annotation(pair.spec.name, pair.subset, item_id, who, "human", answer), where


def _place(row: Mapping[str, Any], known: Mapping[str, PairItems], where: str) -> tuple[PairItems, Item, int | None]:
    """Pair, item and (in clustering) text of a record: by metadata and id, else by its text in the only pair."""
    about = row.get("metadata") or {}
    if "task" in about:
        pair = _pair(about["task"], about.get("subset", "default"), known, where)
    elif len(known) == 1:
        pair = next(iter(known.values()))
    else:
        raise DataError(f"{where}: its metadata names no task; choose one pair (tasks=, languages=) for this file.")
    name = str(row.get("id", ""))
    first = (row.get("fields") or {}).get({"sts": "sentence1", "reranking": "query"}.get(pair.spec.kind, "text"))
    for item in pair.items:
        if pair.spec.kind == "clustering":
            head, _, tail = name.rpartition("/")
            if head == item.id and tail.isdigit() and int(tail) < len(item.texts):
                return pair, item, int(tail)
            if first in item.texts:
                return pair, item, item.texts.index(first)
        elif item.id == name or (
            first is not None and item.texts[0] == first and name not in {i.id for i in pair.items}
        ):
            return pair, item, None
    raise DataError(f"{where}: item {name!r} is not in {pair.key}, nor is its text.")


def _submitted(row: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Values of finished responses by user, from both shapes that Argilla writes."""
    responses = row["responses"]
    found: dict[str, dict[str, Any]] = {}
    if isinstance(responses, Mapping):
        # The record's own status says whether answers without a status of their own are final.
        fallback = "submitted" if row.get("status", "completed") == "completed" else "draft"
        for question, entries in responses.items():
            for entry in entries or []:
                if _final(entry.get("status") or fallback, where):
                    found.setdefault(_user(entry, where), {})[question] = entry.get("value")
    else:
        for entry in responses or []:
            if _final(entry.get("status") or "draft", where):
                values = {q: v.get("value") if isinstance(v, Mapping) else v for q, v in entry["values"].items()}
                found.setdefault(_user(entry, where), {}).update(values)
    return found


def _user(entry: Mapping[str, Any], where: str) -> str:
    if not entry.get("user_id"):
        raise DataError(f"{where}: a response has no user_id, so its annotator is unknown.")
    return str(entry["user_id"])


def _answer(pair: PairItems, item: Item, values: Mapping[str, Any], where: str) -> Any:
    names = question_names(pair, item)
    if pair.spec.kind == "reranking":
        given = [values.get(name) for name in names]
        return None if all(v is None for v in given) else [_mark(v, where) for v in given]
    return values.get(names[0], next(iter(values.values()), None))


def _mark(value: Any, where: str) -> int | None:
    marks = {"relevant": 1, "not relevant": 0, "1": 1, "0": 0, "true": 1, "false": 0, "none": None}
    if str(value).lower() not in marks:
        raise DataError(f"{where}: {value!r} is no judgement; there are Relevant and Not Relevant.")
    return marks[str(value).lower()]


# -- JSON lines ----------------------------------------------------------------------------------------------------


def _lines(
    rows: Sequence[tuple[int, Mapping[str, Any]]], known: Mapping[str, PairItems], path: Path, faults: list[str]
) -> Iterable[tuple[Annotation, str]]:
    for number, row in rows:
        where = f"{path}, line {number}"
        try:
            if not _final(row.get("status", "submitted"), where):
                continue
            for name in ("task", "item", "annotator"):
                if not isinstance(row.get(name), str) or not row[name].strip():
                    raise DataError(
                        f"{where}: field {name!r} is {row.get(name)!r}, and must be a text that is not empty."
                    )
            pair = _pair(row["task"], row.get("subset", "default"), known, where)
            item = next((i for i in pair.items if i.id == row["item"]), None)
            if item is None:
                raise DataError(f"{where}: {unknown_name('item', row['item'], [i.id for i in pair.items])}")
            answer = row.get("answer")
            checked = None if answer is None else questions.checked(pair, item, answer, where)
            seconds, kind = row.get("seconds"), row.get("kind", "human")
            if kind not in ("human", "llm"):
                raise DataError(f"{where}: {unknown_name('kind', str(kind), ('human', 'llm'))}")
            yield (
                Annotation(
                    pair.spec.name, pair.subset, item.id, row["annotator"], kind, checked, seconds, row.get("raw")
                ),
                where,
            )
        except DataError as error:
            faults.append(str(error))


def _pair(task: Any, subset: Any, known: Mapping[str, PairItems], where: str) -> PairItems:
    name = key(str(task), str(subset))
    if name not in known:
        raise DataError(f"{where}: {unknown_name('task and subset', name, known)}")
    return known[name]


def _final(status: str, where: str) -> bool:
    if status not in FINAL | LEFT_OUT:
        raise DataError(f"{where}: {unknown_name('status', str(status), FINAL | LEFT_OUT)}")
    return status in FINAL


def _rows(path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    from assay.core.datasets import read_json, read_jsonl

    if path.suffix == ".json":
        found = read_json(path)
        if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
            raise DataError(f"{path}: a JSON file of records must be a list of objects.")
        yield from enumerate(found)
    else:
        yield from read_jsonl(path)
