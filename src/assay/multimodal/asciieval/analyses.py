"""Tables over runs: categories, lengths, modes, models, positions, confusions, resolution, ways of reading."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from assay.core.errors import UsageError
from assay.core.metrics import Score, evaluate, macro, mean
from assay.core.table import Chart, Table
from assay.multimodal.asciieval import scoring
from assay.multimodal.asciieval.prompts import MODES

if TYPE_CHECKING:
    from assay.core.results import Runs

_MACRO = macro("correct", over="concept", name="macro_accuracy")
_MICRO = mean("correct", name="micro_accuracy")
_ERRORS = "An errored trial counts as wrong."
_INTERVAL = "95 % intervals over items."


def trials(runs: Runs) -> pl.DataFrame:
    """Records of this benchmark's trials with ``right`` = 1 or 0; errored trials are wrong, unscored ones left out.

    Raises
    ------
    UsageError
        If no run is of this benchmark.
    """
    records = runs.records.filter(pl.col("benchmark") == "asciieval")
    if records.is_empty():
        raise UsageError("None of the given runs is a run of asciieval; its analyses read no others.")
    # Two runs of one system (another answer rule, another scale) stay apart.
    several = records.group_by("system").agg(pl.col("run").n_unique().alias("_runs"))
    label = pl.when(pl.col("_runs") > 1).then(pl.col("system") + " · " + pl.col("run").str.tail(6)).otherwise("system")
    records = records.join(several, on="system").with_columns(label.alias("label")).drop("_runs")
    records = records.filter(~pl.col("status").is_in(["unscored", "skipped"]))
    # A run in which every trial failed has no scores at all.
    columns = {"correct": pl.Float64, "answered": pl.Float64, "letter": pl.String, "chosen": pl.String}
    records = records.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in columns.items() if name not in records.columns
    )
    return records.with_columns(pl.col("correct").fill_null(0.0).alias("right"))


def _rows(parts: Mapping[tuple[Any, ...], pl.DataFrame], names: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for key, part in parts.items():
        big, small = evaluate(_MACRO, part), evaluate(_MICRO, part)
        rows.append(
            {
                **dict(zip(names, key)),
                **_shown("macro", big),
                **_shown("micro", small),
                "n": small.n,
                "errors": small.n_error,
            }
        )
    return rows


def _shown(name: str, score: Score) -> dict[str, float]:
    return {name: score.value, f"{name}_low": score.low, f"{name}_high": score.high}


def _by(frame: pl.DataFrame, *names: str) -> dict[tuple[Any, ...], pl.DataFrame]:
    return {tuple(key): part for key, part in frame.partition_by(names, as_dict=True, maintain_order=True).items()}


def categories(runs: Runs, by: Literal["class", "group", "concept", "style"] = "class") -> Table:
    """Accuracy inside each class, group, concept or style: micro over items, macro over the concepts inside."""
    frame = trials(runs)
    rows = _rows(_by(frame, "label", "task", by), ("system", "mode", by))
    table = pl.DataFrame(rows).sort("system", "mode", by)
    return Table(
        f"categories_{by}",
        f"Accuracy by {by}",
        table,
        notes=("Macro: mean over the concepts inside; micro: over items.", _INTERVAL, _ERRORS),
        chart=Chart("interval", x="macro", y=by, color="system", low="macro_low", high="macro_high", facet="mode"),
    )


def lengths(runs: Runs, of: Literal["lines", "characters"] = "lines") -> Table:
    """Accuracy in the published length bins, mode by mode."""
    frame = trials(runs)
    column, order = ("line_bin", scoring.LINE_BINS) if of == "lines" else ("character_bin", scoring.CHARACTER_BINS)
    rows = _rows(_by(frame, "label", "task", column), ("system", "mode", of))
    table = pl.DataFrame(rows)
    table = table.with_columns(
        pl.col(of).replace_strict({name: at for at, name in enumerate(order)}, return_dtype=pl.Int64).alias("bin")
    ).sort("system", "mode", "bin")
    return Table(
        f"lengths_{of}",
        f"Accuracy by number of {of}",
        table,
        notes=("Lines: newlines + 1; characters include newlines.", _INTERVAL, _ERRORS),
        chart=Chart(
            "line",
            x="bin",
            y="micro",
            color="system",
            low="micro_low",
            high="micro_high",
            facet="mode",
            label=of,
            x_title=f"bin of {of}",
            y_title="accuracy",
        ),
    )


def length_regression(runs: Runs) -> Table:
    """Logistic regression of a right answer on log characters: a slope a mode, and whether two modes' slopes differ."""
    from assay.multimodal.asciieval.regression import length_by_mode, logistic

    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for (system,), frame in _by(trials(runs), "label").items():
        modes = {str(mode): part for (mode,), part in _by(frame, "task").items()}
        for mode, part in modes.items():
            try:
                found = logistic(
                    part["right"], part["characters"].log(), ("log_characters",), part["cluster"].to_list()
                )
            except UsageError as error:
                left_out.append(f"{system}, {mode}: {error}")
                continue
            slope = found[1]
            rows.append(
                {
                    "system": system,
                    "effect": f"log characters, {mode}",
                    "estimate": slope.value,
                    "low": slope.low,
                    "high": slope.high,
                    "p": slope.p,
                    "n": part.height,
                }
            )
        for first, second in combinations([mode for mode in MODES if mode in modes], 2):
            part = pl.concat([modes[first], modes[second]])
            try:
                found = length_by_mode(
                    part["right"], part["characters"], part["task"] == second, part["cluster"].to_list()
                )
            except UsageError as error:
                left_out.append(f"{system}, {first} and {second}: {error}")
                continue
            change = found[3]
            rows.append(
                {
                    "system": system,
                    "effect": f"{second} minus {first}",
                    "estimate": change.value,
                    "low": change.low,
                    "high": change.high,
                    "p": change.p,
                    "n": part.height,
                }
            )
    schema = {
        "system": pl.String,
        "effect": pl.String,
        "estimate": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "p": pl.Float64,
        "n": pl.Int64,
    }
    return Table(
        "length_regression",
        "Effect of log characters on the log-odds of a right answer",
        pl.DataFrame(rows, schema=schema),
        notes=("Cluster-robust 95 % intervals by item.", _ERRORS, *left_out),
        chart=Chart("interval", x="estimate", y="effect", low="low", high="high", color="system"),
        formats={"p": ".2g"},
    )


def _paired(frame: pl.DataFrame, on: str) -> pl.DataFrame:
    """One row an item and attempt, a column a value of ``on``; only what all of them were tried on."""
    key = ["sample", "attempt"]
    wide = frame.pivot(on, index=[*key, "concept"], values="right", aggregate_function="first")
    return wide.drop_nulls()


def modalities(runs: Runs) -> Table:
    """Accuracy in the three modes, their average, what joining gained, and what a perfect router would reach."""
    rows = []
    for (system,), frame in _by(trials(runs), "label").items():
        row: dict[str, Any] = {"system": system}
        values: dict[str, float] = {}
        for mode in MODES:
            part = frame.filter(pl.col("task") == mode)
            score = evaluate(_MACRO, part) if part.height else None
            if score:
                values[mode] = score.value
            row |= {
                mode: values.get(mode),
                f"{mode}_low": score.low if score else None,
                f"{mode}_high": score.high if score else None,
            }
        whole = values.keys() == set(MODES)
        row["average"] = scoring.modality_average(**values) if whole else None
        wide = _paired(frame, "task")
        either = gain = None
        if {"text", "image"} <= set(wide.columns) and wide.height:
            best = pl.max_horizontal("text", "image")
            either = wide.group_by("concept").agg(best.mean().alias("either"))["either"].mean()
        if whole:
            gain = values["both"] - max(values["text"], values["image"])
        rows.append({**row, "either": either, "fusion_gain": gain, "paired_items": wide.height})
    return Table(
        "modalities",
        "Text, image and both (macro accuracy)",
        pl.DataFrame(rows, infer_schema_length=None).sort("average", descending=True, nulls_last=True),
        notes=(
            "Either: right in text or in image, over items asked in all modes of the run.",
            "Fusion gain: both minus the better of text and image; like the average, of runs in all three modes only.",
            _INTERVAL,
            _ERRORS,
        ),
    )


def modality_tests(runs: Runs) -> Table:
    """McNemar tests between the modes of each system, with Holm's correction over the table."""
    rows = []
    for (system,), frame in _by(trials(runs), "label").items():
        wide = _paired(frame, "task")
        for first, second in (("both", "image"), ("image", "text"), ("both", "text")):
            if {first, second} <= set(wide.columns) and wide.height:
                rows.append({"system": system, "first": first, "second": second, **_tested(wide[first], wide[second])})
    return _test_table("modality_tests", "Modes compared on the same items", rows)


def models(runs: Runs) -> Table:
    """McNemar tests between systems, mode by mode, with Holm's correction over the table."""
    rows = []
    for (mode,), frame in _by(trials(runs), "task").items():
        for first, second in combinations(sorted(frame["label"].unique()), 2):
            wide = _paired(frame.filter(pl.col("label").is_in([first, second])), "label")
            if {first, second} <= set(wide.columns) and wide.height:
                rows.append({"mode": mode, "first": first, "second": second, **_tested(wide[first], wide[second])})
    return _test_table("models", "Systems compared on the same items", rows)


def _tested(first: pl.Series, second: pl.Series) -> dict[str, Any]:
    found = scoring.mcnemar(first.to_list(), second.to_list())
    return {
        "accuracy_first": first.mean(),
        "accuracy_second": second.mean(),
        "only_first": found.only_first,
        "only_second": found.only_second,
        "n": len(first),
        "p": found.p,
    }


def _test_table(name: str, title: str, rows: list[dict[str, Any]]) -> Table:
    if not rows:
        raise UsageError(f"Analysis {name} needs two of them on the same items; the given runs share none.")
    from assay.core.stats.paired import holm

    frame = pl.DataFrame(rows)
    frame = frame.with_columns(pl.Series("p_holm", holm(frame["p"].to_list())))
    return Table(
        name,
        title,
        frame,
        notes=(
            "Exact two-sided McNemar test of the items that only one got right.",
            "p_holm: adjusted over this table.",
            _ERRORS,
        ),
        formats={"p": ".2g", "p_holm": ".2g"},
    )


def positions(runs: Runs) -> Table:
    """How often each letter is chosen, how often it is right, and accuracy by the right letter."""
    from scipy.stats import chisquare

    rows = []
    notes = []
    for (system, mode), frame in _by(trials(runs), "label", "task").items():
        frame = frame.with_columns(_target())
        read = frame.filter(pl.col("letter").is_in(list(scoring.LETTERS)))
        chosen = [read.filter(pl.col("letter") == letter).height for letter in scoring.LETTERS]
        for letter, count in zip(scoring.LETTERS, chosen):
            part = frame.filter(pl.col("right_letter") == letter)
            score = evaluate(_MICRO, part)
            rows.append(
                {
                    "system": system,
                    "mode": mode,
                    "letter": letter,
                    "chosen": count,
                    "chosen_share": count / max(1, read.height),
                    "right_share": part.height / frame.height,
                    "accuracy": score.value,
                    "low": score.low,
                    "high": score.high,
                    "n": score.n,
                }
            )
        expected = [
            frame.filter(pl.col("right_letter") == letter).height * read.height / frame.height
            for letter in scoring.LETTERS
        ]
        if min(expected) >= 5:
            p = chisquare(chosen, expected).pvalue
            notes.append(f"{system}, {mode}: letters chosen as often as right? chi-squared p = {p:.2g}.")
    return Table(
        "positions",
        "Position bias: letters chosen and right",
        pl.DataFrame(rows),
        notes=(*notes, _INTERVAL, _ERRORS),
        chart=Chart("bar", x="letter", y="chosen_share", color="system", facet="mode", y_title="share of read answers"),
    )


def _target() -> pl.Expr:
    return pl.col("target").str.json_decode(pl.String).alias("right_letter")


def rotations(runs: Runs) -> Table:
    """Circular evaluation: right in all rotations of the choices, and how often the same choice is named."""
    rows = []
    for (system, mode), frame in _by(trials(runs), "label", "task").items():
        if "rotation" not in frame.columns or frame["rotation"].n_unique() < 2:
            continue
        items = frame.group_by("cluster", "attempt", maintain_order=True).agg(
            pl.len().alias("asked"),
            pl.col("right").min().alias("all"),
            pl.col("right").mean().alias("mean"),
            (pl.col("chosen").drop_nulls().n_unique() == 1).alias("steady"),
        )
        whole = items.filter(pl.col("asked") == frame["rotation"].n_unique())
        rows.append(
            {
                "system": system,
                "mode": mode,
                "rotations": frame["rotation"].n_unique(),
                "accuracy": whole["mean"].mean(),
                "right_in_all": whole["all"].mean(),
                "same_choice_in_all": whole["steady"].mean(),
                "items": whole.height,
            }
        )
    if not rows:
        raise UsageError("No run asked items in several rotations; run with -o rotate=4.")
    return Table(
        "rotations", "Circular evaluation", pl.DataFrame(rows), notes=("Items asked in every rotation only.", _ERRORS)
    )


def confusions(runs: Runs, by: Literal["concept", "group"] = "concept", top: int = 50) -> Table:
    """Which names are taken for which: pairs of the right and the chosen name, most frequent first."""
    frame = trials(runs).filter(pl.col("right") == 0, pl.col("letter").is_in(list(scoring.LETTERS)))
    total = frame.group_by("label", "task").len("wrong")
    found = (
        frame.group_by("label", "task", by, "chosen")
        .len("count")
        .join(total, on=["label", "task"])
        .with_columns((pl.col("count") / pl.col("wrong")).alias("share_of_wrong"))
        .sort(["count", "label", "task", by, "chosen"], descending=[True, False, False, False, False])
        .head(top)
        .rename({"label": "system", "task": "mode"})
    )
    return Table(
        f"confusions_{by}",
        f"Right {by} and name chosen instead",
        found,
        notes=(f"The {top} most frequent pairs; unread answers are not confusions.",),
        chart=Chart("heatmap", x="chosen", y=by, color="count", facet="mode"),
    )


def resolution(runs: Runs) -> Table:
    """Accuracy against the resolution of the picture, over runs with different ``scale`` or ``longest``."""
    frame = trials(runs)
    if "scale" not in frame.columns:
        raise UsageError("None of the given runs showed pictures; run with -o modes=image -o scale=0.25 and others.")
    frame = frame.filter(pl.col("task") != "text")
    by = "longest" if frame["longest"].n_unique() > frame["scale"].n_unique() else "scale"
    rows = _rows(_by(frame, "system", "task", by), ("system", "mode", by))
    table = pl.DataFrame(rows).sort("system", "mode", by)
    best = [
        f"{system}, {mode}: best at {by} = {part.sort('macro', descending=True)[by][0]}."
        for (system, mode), part in _by(table, "system", "mode").items()
    ]
    return Table(
        "resolution",
        f"Accuracy by {by} of the picture",
        table,
        notes=(*best, "longest = 0: no limit.", _INTERVAL, _ERRORS),
        chart=Chart(
            "line",
            x=by,
            y="macro",
            color="system",
            low="macro_low",
            high="macro_high",
            facet="mode",
            log_x=by == "scale",
        ),
    )


def reading(runs: Runs) -> Table:
    """The stored replies read by the robust and by the published rule, side by side: what the rule alone is worth."""
    frame = trials(runs).filter(pl.col("output").is_not_null())
    names = _choices(runs)
    rows = []
    for (system, mode), part in _by(frame, "label", "task").items():
        counts = dict.fromkeys(("robust", "compatible", "robust_unread", "compatible_unread", "differ", "n"), 0)
        for sample, output, target in part.select("sample", "output", "target").iter_rows():
            text, right = json.loads(output), json.loads(target)
            if not isinstance(text, str) or sample not in names:
                continue
            robust = scoring.letter_robust(text, names[sample]).value
            compatible = scoring.letter_compatible(text, names[sample])
            counts["n"] += 1
            counts["robust"] += robust == right
            counts["compatible"] += compatible == right
            counts["robust_unread"] += robust is None
            counts["compatible_unread"] += compatible is None
            counts["differ"] += robust != compatible
        if counts["n"]:
            n = counts.pop("n")
            rows.append({"system": system, "mode": mode, **{name: count / n for name, count in counts.items()}, "n": n})
    if not rows:
        raise UsageError("The given runs hold no replies as text; runs by probability have one way of reading only.")
    return Table(
        "reading",
        "Micro accuracy under two ways of reading the same replies",
        pl.DataFrame(rows),
        notes=("Errored trials have no reply and are left out here.", "Shares of n."),
    )


def _choices(runs: Runs) -> dict[str, tuple[str, ...]]:
    """Choices by sample id, from the items of each run's options."""
    from assay.multimodal.asciieval.benchmark import AsciiEval, AsciiTask

    found: dict[str, tuple[str, ...]] = {}
    for run in runs:
        if run.benchmark != "asciieval":
            continue
        task = AsciiEval(**run.info["options"]).tasks()[0]
        if isinstance(task, AsciiTask):
            found |= {key: item.choices for key, item in task.items.items()}
    return found
