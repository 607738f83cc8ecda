"""The 16 tasks and 26 pairs of HUME(v1) as data, and tasks of one's own in the same shape."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from assay.core.datasets.readers import require, shown
from assay.core.errors import DataError, UsageError, unknown_name

Kind = Literal["classification", "clustering", "reranking", "sts"]
KINDS: tuple[Kind, ...] = ("classification", "clustering", "reranking", "sts")

MAIN = {"classification": "accuracy", "clustering": "v_measure", "reranking": "map", "sts": "spearman"}
"""Main score of people; models have ``map_at_1000`` and ``cosine_spearman`` instead of ``map`` and ``spearman``."""
MODEL_MAIN = {**MAIN, "reranking": "map_at_1000", "sts": "cosine_spearman"}


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What there is to know of a task beside its items.

    Parameters
    ----------
    name, kind, instruction
        Name as mteb has it; type of question; what people and chat models are asked to do.
    dataset, revision, licence, domains, construction
        Where the data are from, and how they were made.
    subsets
        Language codes by subset.
    items
        Items of a subset (queries, pairs, texts).
    human
        Published human main score by subset.
    outside
        Subsets that the files have but the benchmark leaves out.
    labels
        Names by label as the data have it.
    samples_per_label
        Training items a label of one experiment of a model.
    candidates, relevant
        Documents a query, and how many of them are relevant.
    scale, gold_scale
        Lowest and highest rating, of the question and of the gold.
    """

    name: str
    kind: Kind
    instruction: str
    dataset: str = ""
    revision: str = ""
    licence: str = ""
    domains: Sequence[str] = ()
    construction: str = ""
    subsets: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"default": ("eng-Latn",)})
    items: int = 0
    human: Mapping[str, float] = field(default_factory=dict)
    outside: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    samples_per_label: int = 8
    candidates: int = 0
    relevant: int = 0
    scale: Sequence[float] = (0, 5)
    gold_scale: Sequence[float] = (0, 5)

    def label(self, value: Any, where: str) -> str:
        """The name of a label: a name stays, a code of the data becomes its name.

        Raises
        ------
        DataError
            No label of this task.
        """
        text = str(value)
        if not self.labels or text in self.labels.values():
            return text
        if text not in self.labels:
            known = ", ".join(f"{code} ({name})" for code, name in self.labels.items())
            raise DataError(f"{where}: {value!r} is no label of {self.name}; it has {known}.")
        return self.labels[text]

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, row: Mapping[str, Any], where: str) -> TaskSpec:
        """From JSON or TOML; DataError names what is wrong."""
        if not isinstance(row, Mapping):
            raise DataError(f"{where}: a task must be an object, not {shown(row)}.")
        known = {f.name for f in fields(cls)}
        for name in row:
            if name not in known:
                raise DataError(f"{where}: {unknown_name('field of a task', name, known)}")
        missing = [name for name in ("name", "kind", "instruction") if not isinstance(row.get(name), str)]
        if missing:
            raise DataError(f"{where}: a task needs the text {missing[0]!r}.")
        if row["kind"] not in KINDS:
            raise DataError(f"{where}: {unknown_name('kind of task', row['kind'], KINDS)}")
        for name, kind in _SHAPES.items():
            if name in row:
                require(row, name, kind, where)
        for subset, languages in (row.get("subsets") or {}).items():
            if not isinstance(languages, list) or not all(isinstance(code, str) for code in languages):
                raise DataError(f"{where}: field 'subsets' must hold language codes by subset, not {shown(languages)}.")
            if Path(subset).name != subset or len(subset) > 100:
                raise DataError(f"{where}: the subset {shown(subset)} cannot be the name of a file.")
        if Path(row["name"]).name != row["name"] or "\0" in row["name"] or len(row["name"]) > 100:
            raise DataError(f"{where}: field 'name' is {shown(row['name'])}, which cannot be the name of a folder.")
        for name in ("scale", "gold_scale"):
            pair = row.get(name, (0, 5))
            if len(pair) != 2 or not all(isinstance(x, (int, float)) for x in pair) or not pair[0] < pair[1]:
                raise DataError(f"{where}: field {name!r} is {shown(pair)}, and must be a lower and an upper number.")
        return cls(**row)


_SHAPES: Mapping[str, type | tuple[type, ...]] = {
    "dataset": str, "revision": str, "licence": str, "domains": list, "construction": str, "subsets": dict,
    "items": int, "human": dict, "outside": list, "labels": dict, "samples_per_label": int, "candidates": int,
    "relevant": int, "scale": list, "gold_scale": list,
}  # fmt: skip


@cache
def tasks() -> Mapping[str, TaskSpec]:
    """The tasks of HUME(v1) by name."""
    text = resources.files("assay.representations.hume").joinpath("tasks.toml").read_text(encoding="utf-8")
    return {row["name"]: TaskSpec.of(row, "tasks.toml") for row in tomllib.loads(text)["tasks"]}


def pairs(specs: Iterable[TaskSpec] | None = None) -> list[tuple[TaskSpec, str]]:
    """Task and subset of each pair: 26 in HUME(v1)."""
    chosen = tasks().values() if specs is None else specs
    return [(spec, subset) for spec in chosen for subset in spec.subsets]


def key(task: str, subset: str) -> str:
    """Name of a pair in records and files."""
    return f"{task}|{subset}"


def choose(specs: Mapping[str, TaskSpec], wanted: str, languages: str = "") -> dict[str, TaskSpec]:
    """Tasks by names or globs between commas, cut down to languages (``eng`` or ``eng-Latn``)."""
    patterns = [part.strip() for part in wanted.split(",") if part.strip()]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in specs):
            raise unknown_name("task", pattern, specs)
    codes = {part.strip() for part in languages.split(",") if part.strip()}
    spoken = {code for spec in specs.values() for found in spec.subsets.values() for code in found}
    known = spoken | {code.partition("-")[0] for code in spoken}
    for code in codes - known:
        raise unknown_name("language", code, known)
    chosen = {}
    for name, spec in specs.items():
        if patterns and not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            continue
        kept = {
            subset: found
            for subset, found in spec.subsets.items()
            if not codes or any(code in codes or code.partition("-")[0] in codes for code in found)
        }
        if kept:
            chosen[name] = TaskSpec(**{**{f.name: getattr(spec, f.name) for f in fields(spec)}, "subsets": kept})
    if not chosen:
        raise UsageError(f"No task is left of tasks={wanted!r} in languages={languages!r}.")
    return chosen
