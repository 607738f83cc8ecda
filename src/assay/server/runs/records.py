"""What pages show of records: columns of the list, and one record with its exchange, calls, rows and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from assay.core.errors import AssayError
from assay.core.store import safe_name
from assay.report.exchange import Exchange, ImageBudget, output_parts, read_exchange, split_transcript, turns_of
from assay.report.formats import duration, format_value, one_line, visible

if TYPE_CHECKING:
    from assay.server.runs.folders import RunFolder
    from assay.server.runs.queries import View

IMAGE_BYTES = 8_000_000
MOST_ROWS = 300
PREVIEW = 160


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One record, ready to be shown."""

    task: str
    sample: str
    attempt: int
    status: str
    error: str
    scores: Sequence[tuple[str, str]]
    groups: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    calls: Sequence[Mapping[str, Any]]
    exchange: Exchange
    rows: Sequence[Mapping[str, Any]]
    rows_left: int
    files: Sequence[tuple[str, int, str, bool]]


def list_columns(run: RunFolder, view: View) -> list[str]:
    """Columns of the list: key, groups, scores, status, time."""
    info = run.info
    several_attempts = any((task.get("attempts") or 1) > 1 for task in info["tasks"].values())
    names = [
        *(["task"] if len(info["tasks"]) > 1 else []),
        "sample",
        *(["attempt"] if several_attempts else []),
        "status",
        *score_columns(run, view),
        *info.get("groups", []),
        *info.get("outcome_groups", []),
        "seconds",
    ]
    return [name for name in dict.fromkeys(names) if name in view.schema][:40]


def numeric(view: View) -> set[str]:
    """Columns whose values are numbers."""
    return {name for name, kind in view.schema.items() if kind.is_numeric()}


def cells(run: RunFolder, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the list as text; with the answer's beginning where it was read."""
    shown = []
    for row in rows:
        text = {name: _cell(name, value) for name, value in row.items() if name != "output"}
        if "output" in row:
            text["output"] = _preview(run, row["output"])
        shown.append({"raw": row, "text": text})
    return shown


def shown(run: RunFolder, record: Mapping[str, Any]) -> ShownRecord:
    """Everything about one record."""
    named = [("tries", record.get("tries")), ("seed", record.get("seed")), ("cluster", record.get("cluster"))]
    times = [("seconds", record.get("seconds")), ("CPU seconds", record.get("cpu_seconds"))]
    memory = record.get("peak_memory_mb")
    facts = [
        ("started", format_value(record.get("started"))),
        *((name, duration(value)) for name, value in times if value is not None),
        *((("peak memory", f"{memory:.0f} MB"),) if memory is not None else ()),
        *((name, format_value(value)) for name, value in named if value is not None),
    ]
    known = [*run.info.get("groups", []), *run.info.get("outcome_groups", [])]
    rows, left = _rows(run, record)
    error = ": ".join(str(record[c]) for c in ("error_type", "error") if record.get(c))
    return ShownRecord(
        task=str(record["task"]),
        sample=str(record["sample"]),
        attempt=int(record["attempt"]),
        status=str(record["status"]),
        error=visible(error)[:20_000],
        scores=[(c, format_value(record.get(c))) for c in run.info.get("scores", []) if c in record],
        groups=[(c, format_value(record[c])) for c in known if record.get(c) is not None],
        facts=facts,
        calls=record.get("calls") or [],
        exchange=read_exchange(run.path, record, ImageBudget(IMAGE_BYTES)),
        rows=rows,
        rows_left=left,
        files=[_file(run, artifact) for artifact in record.get("artifacts") or ()],
    )


def score_columns(run: RunFolder, view: View) -> list[str]:
    """Score columns; while a run goes on its manifest does not name them yet."""
    known = list(run.info.get("scores", []))
    if not known:
        names = list(view.schema)
        if "status" in names:
            before = names[: names.index("status")]
            known = [n for n in before if view.schema[n].is_float()]
    return [name for name in known if name in view.schema]


def _cell(name: str, value: Any) -> str:
    if name in ("seconds", "cpu_seconds"):
        return duration(value)
    return one_line(format_value(value), 120)


def _preview(run: RunFolder, output: str | None) -> str:
    from assay.core.store import load_output

    try:
        value = load_output(run.path, output)
    except (AssayError, OSError, ValueError):
        return "(cannot be read)"
    messages, rest = split_transcript(value)
    parts = output_parts(rest, ImageBudget(0)) or [
        p for turn in turns_of(messages[-1:], ImageBudget(0)) for p in turn.parts
    ]
    return one_line(parts[0].text[:2000], PREVIEW) if parts else ""


def _rows(run: RunFolder, record: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The finer table of one trial, its first rows, and how many more there are."""
    import polars as pl

    path = run.file(f"rows/{safe_name(str(record['task']))}.parquet")
    if path is None:
        return [], 0
    mine = (pl.col("sample") == record["sample"]) & (pl.col("attempt") == record["attempt"])
    scan = pl.scan_parquet(path).filter(mine).drop("sample", "attempt")
    frame = scan.head(MOST_ROWS).collect()
    left = 0 if frame.height < MOST_ROWS else scan.select(pl.len()).collect().item() - MOST_ROWS
    return frame.to_dicts(), left


def _file(run: RunFolder, artifact: Mapping[str, Any]) -> tuple[str, int, str, bool]:
    """Name, bytes, address ("" where it cannot be had), whether it is a trace."""
    name = str(artifact["path"])
    inside = name.removeprefix("artifacts/")
    path = run.file(name) if inside != name else None
    trace = False
    if path is not None and path.suffix == ".json":
        with path.open("rb") as file:
            # What `Trace.save` writes begins with its format.
            trace = file.read(20).startswith(b'{"format":')
    return one_line(inside, 160), int(artifact["bytes"]), quote(inside) if path else "", trace
