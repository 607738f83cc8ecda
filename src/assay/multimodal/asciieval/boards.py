"""Where a system stands: the published boards beside measured runs, and people beside models."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from assay.core.errors import UsageError
from assay.core.metrics import evaluate, macro, mean
from assay.core.table import Chart, Table
from assay.multimodal.asciieval.analyses import trials
from assay.multimodal.asciieval.scoring import modality_average

if TYPE_CHECKING:
    from assay.core.results import Runs

_MACRO = macro("correct", over="concept", name="macro_accuracy")


def published() -> dict[str, Any]:
    """The published figures with their source, as shipped in ``references.json``."""
    return json.loads(
        resources.files("assay.multimodal.asciieval").joinpath("references.json").read_text(encoding="utf-8")
    )


def leaderboard(runs: Runs, mode: Literal["text", "image", "both", "average"] = "text") -> Table:
    """Measured systems among the published ones, in percent.

    Ranks run over measured rows on the published test set only; runs on other items stand in the table, marked, without
    a rank, since their figures are not comparable.
    """
    references = published()
    rows = _published_rows(references, mode)
    notes = [references["source"] + "."]
    frame = trials(runs)
    expected = references["data"]["test_items"]
    foreign = False
    for run in runs:
        part = frame.filter(pl.col("run") == run.id)
        values = {}
        for (task,), records in part.partition_by("task", as_dict=True).items():
            values[str(task)] = evaluate(_MACRO, records)
        if mode == "average":
            if set(values) != {"text", "image", "both"}:
                continue
            shown = {
                "macro": 100 * modality_average(*(values[name].value for name in ("text", "image", "both"))),
                "low": None,
                "high": None,
            }
            n = values["text"].n
        elif mode in values:
            score = values[mode]
            shown, n = {"macro": 100 * score.value, "low": 100 * score.low, "high": 100 * score.high}, score.n
        else:
            continue
        items = part["sample"].n_unique()
        comparable = items == expected and run.info.get("data", {}).get("kind") == "real"
        foreign |= not comparable
        rows.append(
            {"model": run.system, **shown, "origin": "measured" if comparable else "measured on other items", "n": n}
        )
    if foreign:
        notes.append(f"Measured on other items: not the {expected} published test items, so without a rank.")
    table = pl.DataFrame(rows, infer_schema_length=None).sort("macro", descending=True)
    ranked = pl.col("origin") != "measured on other items"
    place = pl.when(ranked).then("macro").rank("min", descending=True).cast(pl.Int64)
    table = table.with_columns(place.alias("rank")).select("rank", "model", "macro", "low", "high", "origin", "n")
    return Table(
        f"leaderboard_{mode}",
        f"Published and measured macro accuracy, {mode}, percent",
        table,
        notes=notes,
        chart=Chart(
            "interval", x="macro", y="model", color="origin", low="low", high="high", x_title="macro accuracy, percent"
        ),
        formats={"macro": ".2f", "low": ".2f", "high": ".2f"},
    )


def _published_rows(references: dict[str, Any], mode: str) -> list[dict[str, Any]]:
    boards = references["boards"]
    if mode in ("text", "image"):
        pairs = [(row["model"], row["macro_accuracy"]) for row in boards[mode]]
    elif mode == "both":
        pairs = [(row["model"], row["both"]) for row in boards["modalities"]]
    else:
        # Averages are worked out anew: one printed average does not agree with its own row.
        pairs = [
            (row["model"], modality_average(row["text"], row["image"], row["both"])) for row in boards["modalities"]
        ]
    n = references["data"]["test_items"]
    return [{"model": m, "macro": v, "low": None, "high": None, "origin": "published", "n": n} for m, v in pairs]


def people(runs: Runs) -> Table:
    """Accuracy, answer rate and seconds an item of every system, people first."""
    frame = trials(runs)
    rows = []
    for (system, mode), part in frame.partition_by("label", "task", as_dict=True, maintain_order=True).items():
        score = evaluate(mean("correct", name="micro_accuracy"), part)
        answered = evaluate(mean("answered", name="answer_rate"), part)
        done = part.filter(pl.col("status") == "ok")
        seconds = done["seconds"] if "seconds" in done.columns else pl.Series([], dtype=pl.Float64)
        person = str(system).startswith(("method:human", "human:"))
        rows.append(
            {
                "system": system,
                "mode": mode,
                "person": person,
                "accuracy": score.value,
                "low": score.low,
                "high": score.high,
                "answer_rate": answered.value,
                "median_seconds": seconds.median(),
                "seconds_when_right": done.filter(pl.col("right") == 1)["seconds"].median(),
                "seconds_when_wrong": done.filter(pl.col("right") == 0)["seconds"].median(),
                "n": score.n,
            }
        )
    if not rows:
        raise UsageError("The given runs hold no scored trials.")
    return Table(
        "people",
        "People and models: accuracy and time",
        pl.DataFrame(rows, infer_schema_length=None).sort("person", "accuracy", descending=True),
        notes=("Seconds from question to answer; a person's include reading.", "95 % intervals over items."),
    )
