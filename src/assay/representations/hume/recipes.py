"""Makers: studies from MTEB tasks, plans, exports of answers and results, patches of gold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.core.datasets import write_manifest
from assay.core.errors import UsageError
from assay.core.results import Run, Runs
from assay.representations.hume import exchange as notes
from assay.representations.hume.items import PairItems, read_study, write_study
from assay.representations.hume.registry import MODEL_MAIN, key, tasks


def hub(out: Path, *, names: tuple[str, ...] = ()) -> None:
    """The real items of the 16 tasks (or some), through mteb from the hub, as a study folder; needs a network."""
    from assay.representations.hume.mteb_tasks import load_task, pairs_of

    pairs = [pair for name in names or tuple(tasks()) for pair in pairs_of(load_task(name))]
    write_study(out, pairs)
    licences = sorted({pair.spec.licence for pair in pairs})
    _manifest(
        out, "hub", {"names": list(names)}, pairs, "real", "data sets of the hub through mteb", ", ".join(licences)
    )


def sample(
    out: Path,
    *,
    names: tuple[str, ...] = (),
    data: str | None = None,
    items: int = 40,
    candidates: int = 7,
    relevant: int = 3,
    clusters: int = 6,
    half_width: float = 0.1,
    expected: float = 0.8,
    seed: int = 0,
) -> None:
    """A human study from MTEB tasks or from a study folder: balanced items, their ids, and what they can show.

    Parameters
    ----------
    names
        MTEB tasks (from the hub), or some of the folder's.
    data
        A study folder to sample from.
    items, candidates, relevant, clusters
        Items a pair; documents a query; relevant ones among them at most; labels of a clustering.
    half_width, expected
        Wanted precision and expected score of the power analysis in ``power.md``.
    seed
        Of the draw.
    """
    from assay.representations.hume import sampling

    if data is None and not names:
        raise UsageError("Say what to sample: names=TASK of mteb, or data=FOLDER of a study.")
    if data is not None:
        study = read_study(data)
        pairs = [p for p in study.pairs.values() if not names or p.spec.name in names]
        kind, source = study.data.kind, f"sampled from {study.data.source}"
    else:
        from assay.representations.hume.mteb_tasks import load_task, pairs_of

        pairs = [pair for name in names for pair in pairs_of(load_task(name), seed=seed)]
        kind, source = "published sample", f"sampled from {', '.join(names)}"
    chosen = [
        sampling.sample(p, items, candidates=candidates, relevant=relevant, clusters=clusters, seed=seed) for p in pairs
    ]
    write_study(out, chosen)
    ids = {pair.key: [item.id for item in pair.items] for pair in chosen}
    (out / "sampled_ids.json").write_text(json.dumps({"seed": seed, "ids": ids}, indent=1) + "\n", encoding="utf-8")
    plan = _plan({p.spec.kind for p in chosen}, half_width, expected, items)
    (out / "power.md").write_text(plan, encoding="utf-8")
    options = {"names": list(names), "items": items, "seed": seed}
    _manifest(out, "sample", options, chosen, kind, source, ", ".join(sorted({p.spec.licence for p in chosen})))


def power(out: Path, *, half_width: float = 0.03, expected: float = 0.8, items: int = 40) -> None:
    """How many items a study needs for an interval of plus or minus ``half_width``, in ``power.md``."""
    plan = _plan(set(MODEL_MAIN), half_width, expected, items)
    (out / "power.md").write_text(plan, encoding="utf-8")


def lines(out: Path, *, runs: tuple[str, ...] = ()) -> None:
    """Answers of runs as JSON lines, people as pseudonyms."""
    found = [a for run in _runs(runs) for a in _answers(run)]
    notes.write_annotations(out / "annotations.jsonl", found)


def argilla(out: Path, *, runs: tuple[str, ...] = ()) -> None:
    """Answers of runs as Argilla records, one file a pair, people as pseudonyms."""
    chosen = _runs(runs)
    found = [a for run in chosen for a in _answers(run)]
    for pair in _study(chosen[0]).values():
        if any((a.task, a.subset) == (pair.spec.name, pair.subset) for a in found):
            path = out / pair.spec.name / f"{pair.subset}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            records = notes.argilla_records(pair, found)
            path.write_text(json.dumps(records, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def results(out: Path, *, runs: tuple[str, ...] = ()) -> None:
    """Runs as MTEB result files: ``baseline__Human`` and each annotator for people, a folder a model."""
    from assay.representations.hume import results as files
    from assay.representations.hume.panels import panels

    for panel in panels(Runs(_runs(runs))):
        study = _study(panel.runs[0])
        if panel.people:
            given = [a for run in panel.runs for a in _answers(run)]
            _write_people(out, study, given)
            continue
        from assay.representations.hume.measures import main_scores

        found = main_scores(panel.records)
        folder = out / panel.name.replace("/", "__").replace(":", "__") / "no_revision"
        for spec in {study[name].spec.name: study[name].spec for name in found}.values():
            names = {subset: key(spec.name, subset) for subset in spec.subsets}
            entries = [files.model_entry(spec, s, found[n]) for s, n in names.items() if n in found]
            files.write_result(folder, spec, entries, people=False)
        files.write_model_meta(folder, panel.name, "no_revision", [])


def patch(out: Path, *, runs: tuple[str, ...] = ()) -> None:
    """Items where people agree with each other against gold, as a patch to look at: ``patch.jsonl``."""
    from assay.representations.hume.panels import is_person
    from assay.representations.hume.quality import against_gold

    chosen = [run for run in _runs(runs) if is_person(run)]
    if not chosen:
        raise UsageError("None of these runs was answered by people.")
    found = [a for run in chosen for a in _answers(run)]
    lines = []
    for row in against_gold(_study(chosen[0]).values(), found):
        task, _, subset = row.pop("pair").partition("|")
        lines.append(json.dumps({"task": task, "subset": subset, **row}, ensure_ascii=False))
    (out / "patch.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def _write_people(out: Path, study: Any, given: Sequence[notes.Annotation]) -> None:
    from assay.representations.hume import results as files
    from assay.representations.hume.scoring import score

    names = notes.pseudonyms(given)
    by_task: dict[str, list[PairItems]] = {}
    for pair in study.values():
        by_task.setdefault(pair.spec.name, []).append(pair)
    for pairs in by_task.values():
        together: list[dict[str, Any]] = []
        alone: dict[str, list[dict[str, Any]]] = {}
        for pair in pairs:
            answers = {w: a for w, a in notes.table(given, pair).items() if any(x is not None for x in a)}
            if not answers:
                continue
            scored = score(pair.spec.kind, notes.gold(pair), answers)
            together.append(files.human_entry(pair.spec, pair.subset, scored))
            for who, one in scored["per_annotator"].items():
                entry = {"aggregated": one, "agreement": None}
                alone.setdefault(names[who], []).append(files.human_entry(pair.spec, pair.subset, entry))
        if together:
            files.write_result(out / "baseline__Human" / files.HUMAN_REVISION, pairs[0].spec, together, people=True)
        for who, entries in alone.items():
            files.write_result(out / who / files.HUMAN_REVISION, pairs[0].spec, entries, people=True)
    for folder in {"baseline__Human", *names.values()}:
        place = out / folder / files.HUMAN_REVISION
        if place.is_dir():
            files.write_model_meta(place, folder.replace("__", "/"), files.HUMAN_REVISION, [])


def _plan(kinds: set[str], half_width: float, expected: float, items: int) -> str:
    from assay.core.stats.intervals import fisher_z, wilson
    from assay.representations.hume import sampling

    lines = [
        "# Power of the study",
        "",
        f"Expected score {expected:g}; wanted interval plus or minus {half_width:g} (95 %); {items} items planned.",
        "",
    ]
    if "classification" in kinds:
        n = sampling.items_for("classification", half_width, expected)
        low, high = wilson(expected * items, items)
        lines.append(f"- accuracy (Wilson): {n} items needed; {items} items give {float(low):.3f} to {float(high):.3f}")
        gap = sampling.items_for_gap(2 * half_width if expected + 2 * half_width < 1 else -2 * half_width, expected)
        lines.append(f"- accuracy, a gap of {2 * half_width:g} between two systems at 80 % power: {gap} items")
    if "sts" in kinds:
        n = sampling.items_for("sts", half_width, expected)
        low, high = fisher_z(expected, items)
        lines.append(
            f"- Spearman (Fisher z): {n} pairs needed; {items} pairs give {float(low):.3f} to {float(high):.3f}"
        )
    if "reranking" in kinds:
        n = sampling.items_for("reranking", half_width, expected)
        lines.append(f"- MAP (standard deviation of a query's AP taken as {sampling.AP_SPREAD}): {n} queries needed")
    if "clustering" in kinds:
        lines.append("- V-measure: no rule is known; run a pilot and look at its bootstrap")
    return "\n".join(lines) + "\n"


def _runs(paths: Sequence[str]) -> list[Run]:
    if not paths:
        raise UsageError("Name the run folders: runs=FOLDER,FOLDER.")
    return [Run(path) for path in paths]


def _answers(run: Run) -> list[notes.Annotation]:
    return notes.of_run(run, _study(run))


def _study(run: Run) -> Any:
    from assay.representations.hume.panels import study_of

    return study_of(run)


def _manifest(
    out: Path, recipe: str, options: dict[str, Any], pairs: Sequence[PairItems], kind: str, source: str, licence: str
) -> None:
    counts = {pair.key: len(pair.items) for pair in pairs}
    write_manifest(
        out, recipe=f"hume.{recipe}", options=options, kind=kind, source=source, licence=licence, counts=counts
    )
