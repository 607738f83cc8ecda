"""MTEB result files: what mteb reads and what the published human results look like, written and read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.datasets.readers import read_rows, require, shown
from assay.core.errors import DataError
from assay.representations.hume.registry import MAIN, MODEL_MAIN, TaskSpec, key

HUMAN_REVISION = "2025_09_25"
_EACH = {"classification": ("accuracy", "f1", "f1_weighted")}


def human_entry(spec: TaskSpec, subset: str, scored: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a subset from `scoring.score`, field by field as published."""
    together = scored["aggregated"]
    entry: dict[str, Any] = {**together, "main_score": together[MAIN[spec.kind]]}
    if scored["agreement"] is not None:
        names = _EACH.get(spec.kind)
        each = scored["per_annotator"].values()
        entry["scores_per_experiment"] = [{k: v for k, v in s.items() if names is None or k in names} for s in each]
        entry["agreement"] = {k: None if _nan(v) else v for k, v in scored["agreement"].items()}
    return {**entry, "hf_subset": subset, "languages": list(spec.subsets[subset])}


def model_entry(spec: TaskSpec, subset: str, main: float, more: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The entry of a subset for a model: its main score under MTEB's name."""
    return {
        MODEL_MAIN[spec.kind]: main,
        **(more or {}),
        "main_score": main,
        "hf_subset": subset,
        "languages": list(spec.subsets[subset]),
    }


def write_result(folder: Path, spec: TaskSpec, entries: list[dict[str, Any]], *, people: bool) -> Path:
    """Write ``TASK.json``; mteb's ``TaskResult.from_disk`` reads it."""
    found = {
        "dataset_revision": "human_evaluation" if people else spec.revision or "no_revision",
        "task_name": spec.name,
        "mteb_version": "1.18.0" if people else "2.0.0",
        "scores": {"test": entries},
        "evaluation_time": 0,
        "kg_co2_emissions": None,
    }
    path = folder / f"{spec.name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False), encoding="utf-8")
    return path


def write_model_meta(folder: Path, name: str, revision: str, languages: list[str]) -> None:
    """Write ``model_meta.json`` beside the results."""
    meta = {"name": name, "revision": revision, "languages": languages, "modalities": ["text"], "framework": []}
    (folder / "model_meta.json").write_text(json.dumps(meta, indent=2), encoding="utf-8")


def read_result(path: Path | str) -> dict[str, dict[str, Any]]:
    """Entries of a result file by pair; several splits of a pair are averaged in ``main_score``.

    Raises
    ------
    DataError
        The file lacks a field of the format, or a score is no number.
    """
    from assay.core.datasets import read_json

    found = read_json(path)
    if not isinstance(found, Mapping) or not isinstance(found.get("scores"), Mapping):
        raise DataError(f"{path} is no MTEB result: field 'scores' must hold entries by split.")
    task = found.get("task_name")
    if not isinstance(task, str):
        raise DataError(f"{path}: field 'task_name' is {task!r}, and must be the name of a task.")
    by_pair: dict[str, list[Mapping[str, Any]]] = {}
    for split in found["scores"]:
        for entry in require(found["scores"], split, list, f"{path}, scores"):
            if not isinstance(entry, Mapping):
                raise DataError(f"{path}, split {split}: an entry must be an object, not {shown(entry)}.")
            main, subset = entry.get("main_score"), entry.get("hf_subset")
            if not isinstance(main, (int, float)) or isinstance(main, bool) or not isinstance(subset, str):
                raise DataError(
                    f"{path}, split {split}: an entry needs 'hf_subset' and a number main_score, not {main!r}."
                )
            by_pair.setdefault(key(task, subset), []).append(entry)
    return {
        name: {**entries[0], "main_score": sum(e["main_score"] for e in entries) / len(entries)}
        for name, entries in by_pair.items()
    }


def read_scores(folder: Path | str) -> dict[str, dict[str, float]]:
    """Main scores by model and pair.

    Reads ``main_scores.csv`` (model, task, hf_subset, main_score), the layout ``results/MODEL/REVISION/TASK.json``, and
    a flat folder of result files, whose model is the folder's name.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder of results.")
    table = folder / "main_scores.csv"
    if table.is_file():
        return _read_csv(table)
    found: dict[str, dict[str, float]] = {}
    for path in sorted(folder.rglob("*.json")):
        inside = path.relative_to(folder).parts
        if path.name in ("model_meta.json", "manifest.json") or any(p.startswith("annotator_") for p in inside):
            continue
        depth = len(inside)
        model = folder.name if depth == 1 else path.parts[-3 if depth > 2 else -2]
        found.setdefault(model, {}).update({name: entry["main_score"] for name, entry in read_result(path).items()})
    if not found:
        raise DataError(f"{folder} holds no MTEB result files.")
    return found


def _read_csv(path: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for line, row in read_rows(path, ("model", "task", "hf_subset", "main_score")):
        try:
            value = float(row["main_score"])
        except ValueError:
            raise DataError(
                f"{path}, line {line}: field 'main_score' is {shown(row['main_score'])}, and must be a number."
            ) from None
        found.setdefault(row["model"], {})[key(row["task"], row["hf_subset"])] = value
    return found


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
