"""Any MTEB task as pairs of a study: classification, clustering, reranking and retrieval, sts. Imports mteb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.core.errors import DataError, MissingExtra, UsageError
from assay.representations.hume.items import Item, PairItems
from assay.representations.hume.registry import Kind, TaskSpec, tasks

_KINDS: Mapping[str, Kind] = {
    "Classification": "classification",
    "Clustering": "clustering",
    "Reranking": "reranking",
    "InstructionReranking": "reranking",
    "Retrieval": "reranking",
    "InstructionRetrieval": "reranking",
    "STS": "sts",
}
_INSTRUCTIONS: Mapping[str, str] = {
    "classification": "Choose the label that fits the text.",
    "clustering": "Group the texts by what they are about.",
    "reranking": "Mark every document that is relevant to the query.",
    "sts": "Rate how alike in meaning the two texts are, from nothing in common to the same meaning.",
}
_CANDIDATES = 20
"""Documents drawn beside the relevant ones where a task has no fixed candidates; sampling cuts them down."""


def load_task(name: str) -> Any:
    """The MTEB task called so, with its data (from the hub or mteb's cache).

    Raises
    ------
    UsageError
        mteb has no such task.
    DataError
        Its data cannot be had.
    """
    try:
        import mteb
    except ImportError as error:
        raise MissingExtra("Tasks of mteb", "hume") from error
    try:
        task = mteb.get_task(name)
    except KeyError as error:
        raise UsageError(f"mteb has no task {name!r}: {error}") from None
    try:
        task.load_data()
    except Exception as error:  # the hub's errors have no common class
        raise DataError(f"The data of {name} cannot be had ({type(error).__name__}: {error}).") from error
    return task


def pairs_of(task: Any, *, seed: int = 0) -> list[PairItems]:
    """Pairs of an MTEB task whose data are loaded, one a subset."""
    meta = task.metadata
    kind = _KINDS.get(meta.type)
    if kind is None:
        raise UsageError(f"{meta.name} is of type {meta.type}; people can be asked {', '.join(_KINDS)}.")
    found = []
    for subset in task.hf_subsets:
        data = task.dataset.get(subset, task.dataset)
        split = next((s for s in meta.eval_splits if s in data), None)
        if split is None:
            raise DataError(f"{meta.name}, subset {subset}: none of the splits {list(meta.eval_splits)} is there.")
        spec = _spec(task, kind, data, split)
        maker = {"classification": _labelled, "clustering": _clusters, "reranking": _queries, "sts": _rated}[kind]
        items = maker(task, spec, data[split], np.random.default_rng([seed, *subset.encode()]))
        train: tuple[tuple[str, str], ...] = ()
        if kind == "classification" and getattr(task, "train_split", "train") in data:
            rows = _labelled(task, spec, data[task.train_split], np.random.default_rng(0))
            train = tuple((item.texts[0], item.gold) for item in rows)
        found.append(PairItems(spec, subset, tuple(items), train))
    return found


def _spec(task: Any, kind: Kind, data: Any, split: str) -> TaskSpec:
    meta = task.metadata
    known = tasks().get(meta.name)
    if known is not None:
        return known
    langs = meta.hf_subsets_to_langscripts
    prompt = meta.prompt if isinstance(meta.prompt, str) else ""
    labels: dict[str, str] = {}
    if kind == "classification":
        names = getattr(data[split].features[task.label_column_name], "names", None)
        labels = {str(n): name for n, name in enumerate(names)} if names else {}
    scale = (task.min_score, task.max_score) if kind == "sts" else (0, 5)
    return TaskSpec(
        name=meta.name,
        kind=kind,
        instruction=f"{prompt.rstrip('.')}." if prompt else _INSTRUCTIONS[kind],
        dataset=str(meta.dataset["path"]),
        revision=str(meta.dataset.get("revision", "")),
        licence=str(meta.license or ""),
        domains=tuple(meta.domains or ()),
        construction=str(meta.sample_creation or ""),
        subsets={subset: tuple(langs.get(subset, ())) or ("und",) for subset in task.hf_subsets},
        labels=labels,
        samples_per_label=getattr(task, "samples_per_label", None) or 8,
        scale=scale,
        gold_scale=scale,
    )


def _labelled(task: Any, spec: TaskSpec, rows: Any, rng: np.random.Generator) -> list[Item]:
    texts, labels = rows[task.input_column_name], rows[task.label_column_name]
    return [
        Item(f"t-{n:05d}", (text,), spec.label(label, f"{spec.name}, row {n}"))
        for n, (text, label) in enumerate(zip(texts, labels))
    ]


def _clusters(task: Any, spec: TaskSpec, rows: Any, rng: np.random.Generator) -> list[Item]:
    """A row is a problem in the older tasks, a text in the newer ones."""
    texts, labels = list(rows[task.input_column_name]), list(rows[task.label_column_name])
    if texts and isinstance(texts[0], str):
        texts, labels = [texts], [labels]
    return [
        Item(f"problem-{n}", tuple(t), tuple(spec.label(_single(x), f"{spec.name}, row {n}") for x in g))
        for n, (t, g) in enumerate(zip(texts, labels))
    ]


def _single(label: Any) -> Any:
    """Hierarchical clustering has a list of labels; the first is the coarsest."""
    return label[0] if isinstance(label, (list, tuple)) else label


def _rated(task: Any, spec: TaskSpec, rows: Any, rng: np.random.Generator) -> list[Item]:
    one, two = (next(iter(c)) if isinstance(c, Mapping) else c for c in task.column_names)
    return [
        Item(f"p-{n:05d}", (a, b), float(score))
        for n, (a, b, score) in enumerate(zip(rows[one], rows[two], rows["score"]))
    ]


def _queries(task: Any, spec: TaskSpec, data: Any, rng: np.random.Generator) -> list[Item]:
    """Queries with their fixed candidates, else the relevant documents and others by chance."""
    corpus = {row["id"]: f"{row.get('title') or ''} {row.get('text') or ''}".strip() for row in data["corpus"]}
    fixed = data.get("top_ranked")
    every = list(corpus)
    items = []
    for row in data["queries"]:
        relevant = data["relevant_docs"].get(row["id"], {})
        if fixed:
            ids = list(fixed.get(row["id"], ()))
        else:
            ids = [d for d in relevant if relevant[d] > 0]
            ids += [d for d in (every[i] for i in rng.permutation(len(every))[:_CANDIDATES]) if d not in relevant]
            ids = [ids[i] for i in rng.permutation(len(ids))]
        if ids:
            text = row["text"] if isinstance(row["text"], str) else str(row["text"])
            query = f"{text} {row['instruction']}".strip() if row.get("instruction") else text
            gold = tuple(int(relevant.get(d, 0) > 0) for d in ids)
            items.append(Item(str(row["id"]), (query, *(corpus[d] for d in ids)), gold, tuple(map(str, ids))))
    return items
