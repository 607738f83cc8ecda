"""People beside models: leaderboard, gaps by pair, type and language, agreement, difficulty, how answers were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.stats.intervals import fisher_z
from assay.core.table import Chart, Table
from assay.representations.hume import bootstrap, exchange, scoring
from assay.representations.hume.aggregate import HUMAN, mean_task, published
from assay.representations.hume.panels import PEOPLE, Estimate, Panel, estimates, is_person, panels, study_of
from assay.representations.hume.registry import KINDS, pairs, tasks

if TYPE_CHECKING:
    from assay.core.results import Runs

INTERVALS = (
    "Intervals (95 %): Wilson for accuracy, Fisher z for Spearman, bootstrap over queries for MAP and over texts for "
    "V-measure, where no published rule is confirmed."
)
ESTIMATORS = (
    "MAP of people counts equal judgements as one threshold; MAP of models ranks strictly by cosine: two estimators, "
    "not strictly comparable."
)


def leaderboard(runs: Runs, reference: bool = False, resamples: int = 2000, seed: int = 0) -> Table:
    """Mean over pairs of people and models, their ranks, means by type, and pairs won against people.

    Parameters
    ----------
    reference
        Published scores as rows, where the run is on real data.
    """
    found = {panel.name: (panel, estimates(panel, resamples=resamples, seed=seed)) for panel in panels(runs)}
    wanted = sorted({name for _, estimate in found.values() for name in estimate})
    people = found.get(PEOPLE, (None, {}))[1]
    rows = []
    for name, (panel, scores) in found.items():
        values = {p: e.value for p, e in scores.items()}
        value = _mean(values, wanted)
        low = high = None
        if value is not None:
            low, high = bootstrap.percentile(np.mean([scores[p].drawn for p in wanted], axis=0))
        rows.append(
            {"system": name, "people": panel.people, "mean_subset": value, "low": low, "high": high}
            | {"mean_task": _mean_task(values, wanted)}
            | _kinds(scores)
            | {"pairs": len(scores), "wins": _wins(scores, people) if not panel.people and people else None}
        )
    notes = [
        f"mean_subset is the unweighted mean over {len(wanted)} pairs, void where one is missing; mean_task averages "
        "the subsets of a task first and is another number.",
        "Its interval resamples items inside every pair.",
        INTERVALS,
    ]
    if PEOPLE in found:
        notes.append(ESTIMATORS)
    if reference:
        rows += _published_rows(runs)
        notes.append(f"Published: {published()['source']}.")
    frame = pl.DataFrame(rows, infer_schema_length=None)
    place = pl.col("mean_subset").rank("min", descending=True).cast(pl.Int64).alias("rank")
    frame = frame.with_columns(place).sort("mean_subset", descending=True, nulls_last=True)
    return Table(
        "leaderboard",
        "People and models, mean over pairs",
        frame.select("rank", pl.exclude("rank")),
        notes=[*notes, *_data_notes(runs)],
        chart=Chart("interval", x="mean_subset", y="system", color="people", low="low", high="high"),
    )


def gaps(runs: Runs) -> Table:
    """Each model against people on each pair: gap, whether it lies outside the people's interval, headroom."""
    human, models = _people_and_models(runs)
    people = estimates(human)
    shared = _agreement_rows([human])
    agreed = {row["pair"]: row for row in shared}
    known = published()["scores"][HUMAN]
    real = all(run.info.get("data", {}).get("kind") == "real" for run in runs)
    rows = []
    for panel in models:
        for name, mine in estimates(panel).items():
            if name not in people:
                continue
            theirs = people[name]
            about = agreed.get(name, {})
            rows.append(
                {
                    "pair": name,
                    "kind": mine.kind,
                    "language": mine.language,
                    "model": panel.name,
                    "people": theirs.value,
                    "low": theirs.low,
                    "high": theirs.high,
                    "interval": theirs.interval,
                    "n": theirs.n,
                    "score": mine.value,
                    "gap": mine.value - theirs.value,
                    "differs": bool(mine.value < theirs.low or mine.value > theirs.high),
                    "headroom": _ratio(mine.value, theirs.value),
                    "headroom_low": _ratio(mine.value, theirs.high),
                    "headroom_high": _ratio(mine.value, theirs.low),
                    "agreement": about.get("agreement"),
                    "agreement_measure": about.get("measure"),
                    "published_people": known.get(name) if real else None,
                }
            )
    if not rows:
        raise UsageError("No model was run on a pair that people answered.")
    notes = [
        INTERVALS,
        ESTIMATORS,
        "differs: the model's score lies outside the people's interval. headroom: score by people's score, with the "
        "ends of their interval in its place; a high score where agreement is low says little.",
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return Table(
        "gaps",
        "Models against people, pair by pair",
        frame,
        notes=[*notes, *_data_notes(runs)],
        chart=Chart("bar", x="gap", y="pair", color="model", x_title="model minus people"),
    )


def by_type(runs: Runs) -> Table:
    """Mean over the pairs of each type."""
    return _grouped(runs, "kind", "by_type", "By type of task")


def by_language(runs: Runs) -> Table:
    """Mean over the pairs of each language."""
    return _grouped(runs, "language", "by_language", "By language")


def _grouped(runs: Runs, group: str, name: str, title: str) -> Table:
    rows = []
    for panel in panels(runs):
        scores = estimates(panel)
        for value in sorted({getattr(e, group) for e in scores.values()}):
            mine = [e for e in scores.values() if getattr(e, group) == value]
            usable = all(np.isfinite(e.value) for e in mine)
            low, high = bootstrap.percentile(np.mean([e.drawn for e in mine], axis=0)) if usable else (None, None)
            score = float(np.mean([e.value for e in mine])) if usable else None
            rows.append(
                {"system": panel.name, group: value, "score": score, "low": low, "high": high, "pairs": len(mine)}
            )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    chart = Chart("interval", x="score", y=group, color="system", low="low", high="high")
    notes = ["Means over pairs; intervals resample items inside every pair.", *_data_notes(runs)]
    return Table(name, title, frame, notes=notes, chart=chart)


def agreement(runs: Runs) -> Table:
    """Score beside agreement of people (and of chat models, each taken as one panel of its attempts)."""
    frame = pl.DataFrame(_agreement_rows(panels(runs)), infer_schema_length=None)
    if frame.is_empty():
        raise UsageError("Agreement needs two annotators on a pair: two people's runs, or one run with --attempts 2.")
    notes = [
        "Fleiss kappa, mean pairwise ARI or Spearman, mean Spearman by query; alpha is Krippendorff's at the "
        "level of the answers, with missing ones.",
        "Two annotators: Fleiss kappa is Scott's pi.",
        *_data_notes(runs),
    ]
    return Table(
        "agreement",
        "Scores beside agreement",
        frame,
        notes=notes,
        chart=Chart("scatter", x="agreement", y="score", color="kind", label="pair"),
    )


def _agreement_rows(chosen: Sequence[Panel]) -> list[dict[str, Any]]:
    rows = []
    for panel in chosen:
        if panel.records["answers_as"][0] != "annotator":
            continue
        study = study_of(panel.runs[0])
        given = [a for run in panel.runs for a in _named(exchange.of_run(run, study), run.id, len(panel.runs))]
        for name in panel.pairs:
            pair = study[name]
            answers = {who: a for who, a in exchange.table(given, pair).items() if any(x is not None for x in a)}
            if len(answers) < 2:
                continue
            found = scoring.agreement(pair.spec.kind, answers)
            together = scoring.score(pair.spec.kind, exchange.gold(pair), answers)
            main = {"classification": "accuracy", "clustering": "v_measure", "sts": "spearman", "reranking": "map"}
            rows.append(
                {
                    "system": panel.name,
                    "pair": name,
                    "kind": pair.spec.kind,
                    "annotators": len(answers),
                    "score": together["aggregated"][main[pair.spec.kind]],
                    "measure": found.get("metric", "mean_spearman"),
                    "agreement": found.get("value", found.get("mean_spearman")),
                    "alpha": alpha(pair.spec.kind, list(answers.values())),
                }
            )
    return rows


def alpha(kind: str, answers: Sequence[Sequence[Any]]) -> float:
    """Krippendorff's alpha: of labels, ratings, judgements, or of whether two texts share a cluster."""
    from assay.core.stats.agreement import krippendorff_alpha

    if kind == "reranking":
        size = next(len(q) for a in answers for q in a if q is not None)
        rows = [[x for q in a for x in (q if q is not None else [None] * size)] for a in answers]
    elif kind == "clustering":
        rows = [
            [None if x is None or y is None else int(x == y) for n, x in enumerate(a) for y in a[n + 1 :]]
            for a in answers
        ]
    else:
        rows = [list(a) for a in answers]
    return krippendorff_alpha(rows, level="interval" if kind == "sts" else "nominal")


def _named(found: Sequence[exchange.Annotation], run: str, several: int) -> list[exchange.Annotation]:
    """Annotators of different runs are different people, whatever they are called."""
    from dataclasses import replace

    return [replace(a, annotator=f"{a.annotator} ({run})") if several > 1 else a for a in found]


def difficulty(runs: Runs) -> Table:
    """Do models find hard what people find hard? Spearman correlation of scores over pairs, with Fisher z interval."""
    from scipy.stats import spearmanr

    human, models = _people_and_models(runs)
    people = {name: e.value for name, e in estimates(human).items()}
    rows = []
    for panel in models:
        mine = {name: e.value for name, e in estimates(panel).items()}
        shared = [p for p in people if p in mine and np.isfinite([people[p], mine[p]]).all()]
        row: dict[str, Any] = {
            "model": panel.name,
            "pairs": len(shared),
            "rho": None,
            "low": None,
            "high": None,
            "p": None,
        }
        x, y = [people[p] for p in shared], [mine[p] for p in shared]
        if len(shared) > 3 and np.ptp(x) > 0 and np.ptp(y) > 0:
            test: Any = spearmanr(x, y)
            low, high = fisher_z(float(np.clip(test.statistic, -1, 1)), len(shared))
            row |= {"rho": float(test.statistic), "low": float(low), "high": float(high), "p": float(test.pvalue)}
        rows.append(row)
    notes = [
        "Pairs are the units; types differ in scale, which alone makes part of the correlation.",
        *_data_notes(runs),
    ]
    return Table(
        "difficulty", "Difficulty for people and for models", pl.DataFrame(rows, infer_schema_length=None), notes=notes
    )


def reading(runs: Runs) -> Table:
    """How answers were read, by system and type: as the form asks, plainly, refused, unread, incomplete."""
    rows = []
    for panel in panels(runs, together=False):
        if "read" not in panel.records.columns:
            continue
        asked = panel.records.filter(pl.col("answers_as") == "annotator")
        for (kind,), part in asked.partition_by("kind", as_dict=True, maintain_order=True).items():
            counts = dict(part["read"].value_counts().iter_rows())
            rows.append(
                {
                    "system": panel.name,
                    "kind": kind,
                    "answers": part.height,
                    **{how: int(counts.get(how, 0)) for how in ("form", "plain", "given")},
                    **{how: int(counts.get(how, 0)) for how in ("refused", "unread", "incomplete", "missing")},
                    "answer_rate": float(part["answered"].mean()),  # type: ignore[arg-type]
                }
            )
    if not rows:
        raise UsageError("None of these runs was answered by people or chat models.")
    notes = ["A missing answer is left out of the scores, as published; score x answer_rate counts it as wrong."]
    return Table("reading", "How answers were read", pl.DataFrame(rows, infer_schema_length=None), notes=notes)


def _people_and_models(runs: Runs) -> tuple[Panel, list[Panel]]:
    found = panels(runs)
    people = [panel for panel in found if panel.people]
    models = [panel for panel in found if not panel.people]
    if not people or not models:
        raise UsageError("This needs a run of people (human:, imported annotations) and a run of a model.")
    return people[0], models


def _mean(values: Mapping[str, float], wanted: Sequence[str]) -> float | None:
    found = [values.get(name, float("nan")) for name in wanted]
    return float(np.mean(found)) if found and np.isfinite(found).all() else None


def _mean_task(values: Mapping[str, float], wanted: Sequence[str]) -> float | None:
    if _mean(values, wanted) is None:
        return None
    by_task: dict[str, list[float]] = {}
    for name in wanted:
        by_task.setdefault(name.partition("|")[0], []).append(values[name])
    return float(np.mean([np.mean(v) for v in by_task.values()]))


def _kinds(scores: Mapping[str, Estimate]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for kind in KINDS:
        mine = [e.value for e in scores.values() if e.kind == kind]
        found[kind] = float(np.mean(mine)) if mine and np.isfinite(mine).all() else None
    return found


def _wins(scores: Mapping[str, Estimate], people: Mapping[str, Estimate]) -> int:
    return sum(name in people and e.value > people[name].value for name, e in scores.items())


def _ratio(a: float, b: float) -> float | None:
    return a / b if b > 0 else None


def _published_rows(runs: Runs) -> list[dict[str, Any]]:
    if any(run.info.get("data", {}).get("kind") != "real" for run in runs):
        raise UsageError("Published scores are of the real items; these runs are on others (leave reference out).")
    rows = []
    for model, scores in published()["scores"].items():
        names = [f"{spec.name}|{subset}" for spec, subset in pairs()]
        of_kind = {f"{spec.name}|{subset}": spec.kind for spec, subset in pairs()}
        row = {"system": f"published: {model}", "people": model == HUMAN, "mean_subset": _mean(scores, names)}
        row |= {"low": None, "high": None, "mean_task": mean_task(scores, tasks().values())}
        row |= {kind: _mean(scores, [n for n in names if of_kind[n] == kind]) for kind in KINDS}
        rows.append({**row, "pairs": len(names), "wins": None})
    return rows


def _data_notes(runs: Runs) -> list[str]:
    kinds = sorted({str(run.info.get("data", {}).get("kind")) for run in runs})
    notes = [] if kinds == ["real"] else [f"Items: {', '.join(kinds)}; not the published ones."]
    if any(run.system.startswith("method:simulated") for run in runs if is_person(run)):
        notes.append("People are simulated.")
    return notes
