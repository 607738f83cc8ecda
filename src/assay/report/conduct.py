"""How systems went about it: costs, how trials ended, errors by kind; tables from record frames by label."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from assay.core.table import Chart, Table
from assay.report.formats import one_line

if TYPE_CHECKING:
    import polars as pl

    from assay.core.metrics import Score

_ENDINGS = [
    "stop", "ok", "tool_calls", "length", "refusal", "content_filter", "unscored", "skipped", "timeout", "error",
]  # fmt: skip
# Places in the palette, so that an ending has one colour on every page and an error never that of an answer.
ENDING_COLORS = [
    "stop", "error", "ok", "refusal", "length", "tool_calls", "timeout", "unscored", "content_filter", "skipped",
]  # fmt: skip


def costs(frames: Mapping[str, pl.DataFrame], scores: Mapping[str, Score], metric: str) -> Table:
    """What one trial of each system costs: money, tokens, seconds; beside the headline score."""
    import polars as pl

    rows = []
    for label, frame in frames.items():
        used = subject_calls(frame)
        seconds = frame.filter(pl.col("status").is_in(["ok", "unscored"]))["seconds"]
        score = scores.get(label)
        rows.append(
            {
                "system": label,
                "value": None if score is None else score.value,
                "low": None if score is None else score.low,
                "high": None if score is None else score.high,
                "usd_a_trial": _mean_or_none(used["cost"]),
                "usd_total": used["cost"].sum() if used["cost"].null_count() < used.height else None,
                "prompt_tokens": _mean_or_none(used["prompt_tokens"]),
                "completion_tokens": _mean_or_none(used["completion_tokens"]),
                "reasoning_tokens": _mean_or_none(used["reasoning_tokens"]),
                "seconds_median": seconds.median(),
                "seconds_p90": seconds.quantile(0.9),
                "trials": frame.height,
                "unpriced": used["unpriced"].sum(),
            }
        )
    schema = dict.fromkeys(
        ["usd_a_trial", "usd_total", "prompt_tokens", "completion_tokens", "reasoning_tokens"], pl.Float64
    )
    frame = pl.DataFrame(
        rows,
        schema_overrides={
            **schema,
            **as_floats("value", "low", "high"),
            "seconds_median": pl.Float64,
            "seconds_p90": pl.Float64,
        },
    )
    frame = frame.with_columns(pl.col(c).fill_nan(None) for c in ("value", "low", "high"))
    unpriced = int(frame["unpriced"].sum())
    notes = ["Tokens, US dollars and seconds of the system under test, a trial; judges and other roles are not in it."]
    if unpriced:
        notes.append(f"{unpriced} trials called a model with no known price; they are not in the dollars.")
    quiet = [c for c in frame.columns if c not in ("system", "value") and not frame[c].sum()]
    number = number_format(frame["value"].to_list())
    priced = frame["usd_a_trial"].drop_nulls()
    spread = bool(priced.len() and (priced > 0).all() and priced.max() > 5 * priced.min())  # type: ignore[operator]
    x, title = (
        ("usd_a_trial", "cost (US dollars a trial)")
        if priced.len() and (priced > 0).any()
        else ("seconds_median", "seconds a trial (median)")
    )
    chart = Chart(
        "scatter", x, "value", color="system", label="system", low="low", high="high",
        log_x=spread and x == "usd_a_trial", x_title=title, y_title=metric.replace("_", " "),
    )  # fmt: skip
    whole = ",.0f"
    return Table(
        name="costs",
        title="Cost, tokens and time a trial",
        frame=frame.drop([c for c in quiet if c not in (x, "low", "high")]),
        notes=notes,
        chart=chart if frame[x].drop_nulls().len() and frame["value"].drop_nulls().len() else None,
        formats={
            "value": number, "low": number, "high": number, "usd_a_trial": ".3g", "usd_total": ",.4g",
            "prompt_tokens": whole, "completion_tokens": whole, "reasoning_tokens": whole,
            "seconds_median": ".3g", "seconds_p90": ".3g",
        },
    )  # fmt: skip


def endings(frames: Mapping[str, pl.DataFrame]) -> Table:
    """How trials ended, a share a system: the stop reason of trials that gave an answer, else the status."""
    import polars as pl

    counts: dict[str, dict[str, int]] = {}
    for label, frame in frames.items():
        how = pl.col("status")
        if "stop_reason" in frame.columns:
            answered = pl.col("status").is_in(["ok", "unscored"])
            how = (
                pl.when(answered).then(pl.coalesce(pl.col("stop_reason").cast(pl.String), "status")).otherwise("status")
            )
        counts[label] = dict(frame.select(how.alias("ending")).to_series().value_counts().iter_rows())
    present = sorted({ending for found in counts.values() for ending in found})
    order = [e for e in _ENDINGS if e in present] + [e for e in present if e not in _ENDINGS]
    rows = [
        {
            "system": label,
            "ending": ending,
            "trials": found.get(ending, 0),
            "share": found.get(ending, 0) / sum(found.values()),
        }
        for label, found in counts.items()
        for ending in order
        if found
    ]
    frame = pl.DataFrame(
        rows, schema={"system": pl.String, "ending": pl.String, "trials": pl.Int64, "share": pl.Float64}
    )
    cut = [f"{row['system']} {row['share']:.1%}" for row in rows if row["ending"] == "length" and row["trials"]]
    notes = [f"Cut by the length limit: {', '.join(cut)}."] if cut else []
    return Table(
        name="endings",
        title="How trials ended",
        frame=frame,
        notes=notes,
        chart=Chart("stacked_bar", "share", "system", color="ending", x_title="share of trials"),
        formats={"share": ".1%"},
    )


def errors(frames: Mapping[str, pl.DataFrame]) -> Table | None:
    """Errored trials by system and kind, with one message of each kind; None without errors."""
    import polars as pl

    parts = []
    for label, frame in frames.items():
        bad = frame.filter(pl.col("status").is_in(["error", "timeout"]))
        if bad.height:
            kinds = bad.group_by(pl.coalesce("error_type", "status").alias("error"), maintain_order=True).agg(
                pl.len().cast(pl.Int64).alias("trials"),
                pl.col("retryable").sum().cast(pl.Int64),
                pl.col("error").drop_nulls().first().alias("message"),
            )
            parts.append(kinds.with_columns(system=pl.lit(label)))
    if not parts:
        return None
    frame = pl.concat(parts, how="vertical_relaxed").select("system", "error", "trials", "retryable", "message")
    frame = frame.with_columns(pl.col("message").map_elements(lambda m: one_line(m, 240), return_dtype=pl.String))
    notes = ["`assay resume RUN --retry-errors` tries errored trials again; until then they count as each metric says."]
    return Table(name="errors", title="Errors by kind", frame=frame.sort("trials", descending=True), notes=notes)


def subject_calls(frame: pl.DataFrame) -> pl.DataFrame:
    """Cost and tokens of the system under test, one row a record that called a model, in the order of the records.

    ``cost`` is null where a call has no known price; ``unpriced`` counts such records.
    """
    import polars as pl

    calls = frame.select("calls").with_row_index("record").explode("calls", empty_as_null=False).unnest("calls")
    tokens = ["prompt_tokens", "completion_tokens", "reasoning_tokens"]
    return (
        calls.filter(pl.col("role") == "subject")
        .group_by("record", maintain_order=True)
        .agg(
            pl.when(pl.col("cost").null_count() == 0).then(pl.col("cost").sum()).alias("cost"),
            *[pl.col(token).sum() for token in tokens],
            (pl.col("cost").null_count() > 0).cast(pl.Int64).alias("unpriced"),
        )
    )


def number_format(values: Iterable[float | None]) -> str:
    """``.3f`` for shares and their differences, ``.4g`` for everything else, dollars of a thousandth included."""
    finite = [abs(v) for v in values if v is not None and math.isfinite(v)]
    return ".3f" if finite and 0.02 <= max(finite) <= 1 else ".4g"


def as_floats(*names: str) -> dict[str, Any]:
    import polars as pl

    return dict.fromkeys(names, pl.Float64)


def _mean_or_none(series: pl.Series) -> float | None:
    return series.mean() if series.len() else None  # type: ignore[return-value]
