"""Analyses of runs: factors with intervals over utterances, who is better, listeners, clips that pull scores down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.results import Run, Runs, labels
from assay.core.table import Chart, Table
from assay.speech.ttsds2.scoring import FACTORS
from assay.speech.ttsds2.suite import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _name(run: Run) -> str:
    options = run.info["options"] or {}
    profile = str(options.get("profile", "lite"))
    return {"lite": "ttsds2_lite", "english": "ttsds2"}.get(profile, f"ttsds2_{profile}")


def _one_kind(runs: Runs) -> str:
    names = sorted({_name(run) for run in runs})
    if len(names) != 1:
        raise UsageError(f"These runs hold {' and '.join(names)}, different scores; give runs of one profile.")
    return names[0]


def _factor_scores(run: Run) -> dict[tuple[str, str], tuple[float, NDArray[np.float64]]]:
    """(domain, factor) -> mean of features and its replicates."""
    name = _name(run)
    records = run.records.filter(pl.col("status") == "ok")
    found = {}
    for (task, factor), part in records.group_by("task", "factor", maintain_order=True):
        rows = run.rows(str(task))
        samples = part["sample"].to_list()
        drawn = np.zeros(0)
        if rows is not None and "replicate_score" in rows.columns:
            wide = rows.filter(pl.col("sample").is_in(samples)).sort("sample", "replicate")
            values = wide["replicate_score"].cast(pl.Float64).fill_null(np.nan).to_numpy()
            if len(values) % len(samples) == 0:
                drawn = values.reshape(len(samples), -1).mean(axis=0)
        found[str(task), str(factor)] = float(part[name].to_numpy().mean()), drawn
    return found


def _overall(run: Run) -> dict[str, tuple[float, NDArray[np.float64]]]:
    """Domain -> plain mean of the factors that were measured, environment left out, with replicates."""
    by_domain: dict[str, list[tuple[float, NDArray[np.float64]]]] = {}
    for (domain, factor), value in _factor_scores(run).items():
        if factor != "environment":
            by_domain.setdefault(domain, []).append(value)
    return {
        domain: (float(np.mean([v for v, _ in parts])), np.mean([d for _, d in parts], axis=0))
        for domain, parts in by_domain.items()
    }


def _missing(runs: Runs) -> list[str]:
    """A sentence for each system that lacks a factor: its OVERALL is not that of the others."""
    found = []
    for run, label in zip(runs, labels(runs)):
        lacking = {f.lower() for f in FACTORS} - {factor for _, factor in _factor_scores(run)}
        if lacking:
            found.append(f"{label}: no feature of {', '.join(sorted(lacking))} was measured, so OVERALL leaves it out.")
    return found


def factors(runs: Runs) -> Table:
    """Factor scores and OVERALL of each system and domain, with standard errors over utterances."""
    score = _one_kind(runs)
    rows = []
    for run, label in zip(runs, labels(runs)):
        for (domain, factor), (value, drawn) in _factor_scores(run).items():
            rows.append({"system": label, "domain": domain, "factor": factor, score: value, "se": spread(drawn)})
        for domain, (value, drawn) in _overall(run).items():
            rows.append({"system": label, "domain": domain, "factor": "OVERALL", score: value, "se": spread(drawn)})
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        low=pl.col(score) - 1.96 * pl.col("se"), high=pl.col(score) + 1.96 * pl.col("se")
    )
    return Table(
        "factors", f"{score} by factor", frame,
        notes=["se: bootstrap over utterances, real ones too. OVERALL: mean of the factors measured.", *_missing(runs)],
        chart=Chart("interval", x=score, y="system", low="low", high="high", facet="factor"),
    )  # fmt: skip


def ladder(runs: Runs) -> Table:
    """Systems from best to worst, and whether each is better than the next by more than chance: paired replicates."""
    score = _one_kind(runs)
    domains = sorted({domain for run in runs for domain in _overall(run)})
    rows = []
    for domain in domains:
        board = sorted(
            ((label, *_overall(run)[domain]) for run, label in zip(runs, labels(runs)) if domain in _overall(run)),
            key=lambda entry: -entry[1],
        )
        for place, (label, value, drawn) in enumerate(board):
            row: dict[str, Any] = {
                "domain": domain,
                "rank": place + 1,
                "system": label,
                score: value,
                "se": spread(drawn),
            }
            if place + 1 < len(board):
                _, following, other = board[place + 1]
                gap_se = spread(drawn - other) if len(drawn) and len(drawn) == len(other) else None
                row |= {
                    "ahead_by": value - following,
                    "gap_se": gap_se,
                    "decided": None if gap_se is None else value - following > 2 * gap_se,
                }
            rows.append(row)
    return Table(
        "ladder", "Who is better", pl.DataFrame(rows, infer_schema_length=None),
        notes=[
            "decided: ahead of the next by more than two standard errors of the difference, over utterances.",
            *_missing(runs),
        ],
    )  # fmt: skip


def against_listeners(runs: Runs, *, ratings: str) -> Table:
    """Correlation of scores with listeners' means over systems; ``ratings`` is a file of ratings (see README).

    Systems are matched by the tag ``system`` of a run, else by its label.
    """
    from assay.speech.ttsds2.ratings import correlations, read_ratings, system_means

    score = _one_kind(runs)
    rows = []
    for run, label in zip(runs, labels(runs)):
        system = str((run.info.get("tags") or {}).get("system", label))
        for domain, (value, _) in _overall(run).items():
            rows.append({"metric": score, "domain": domain, "system": system, "value": value})
        for (domain, factor), (value, _) in _factor_scores(run).items():
            rows.append({"metric": factor, "domain": domain, "system": system, "value": value})
    frame = correlations(system_means(read_ratings(ratings)), pl.DataFrame(rows))
    return Table("against_listeners", "Agreement with listeners over systems", frame)


def influence(runs: Runs, *, worst: int = 5) -> Table:
    """Clips that pull each feature's score down most: the score with the clip minus the score without it."""
    from assay.core.cache import ContentCache, cache_folder
    from assay.core.registry import typed_options
    from assay.speech.ttsds2.benchmark import TTSDS2
    from assay.speech.ttsds2.trials import Job, influences

    rows: list[dict[str, Any]] = []
    for run, label in zip(runs, labels(runs)):
        bench = TTSDS2(**typed_options(TTSDS2, run.info["options"] or {}, "benchmark 'ttsds2'"))
        for record in run.records.filter(pl.col("status") == "ok").iter_rows(named=True):
            folder = _folder_of(run, record["output"])
            job = Job(bench, record["task"], record["sample"], folder, str(ContentCache(cache_folder()).folder))
            named: Sequence[tuple[str, float]] = influences(job)
            for clip, value in sorted(named, key=lambda pair: pair[1])[:worst]:
                rows.append({"system": label, "domain": record["task"], "feature": record["sample"], "clip": clip,
                             "influence": value})  # fmt: skip
    return Table("influence", "Clips that pull scores down", pl.DataFrame(rows, infer_schema_length=None))


def _folder_of(run: Run, output: str) -> str:
    import json

    folder = Path(run.path, json.loads(output)["folder"])
    if not folder.is_dir():
        raise UsageError(f"The folder {folder} of this run's recordings is gone.")
    return str(folder)
