"""How far a run is: counts, pace, what ended last."""

from __future__ import annotations

from typing import Any

from assay.report.formats import duration, format_value, one_line
from assay.server.runs.folders import RunFolder
from assay.server.runs.queries import View
from assay.server.runs.records import score_columns

LATEST = 10
PACE = 400
"""Trials that the pace is taken from."""


def progress(run: RunFolder, view: View) -> dict[str, Any]:
    """Counts by status, trials done and planned, and while it runs the pace, the time left and the latest trials."""
    counts = view.counts
    trials, done = int(run.info.get("trials") or 0), sum(counts.values())
    status = run.status
    found: dict[str, Any] = {
        "status": status, "done": done, "trials": trials, "counts": counts, "pace": None, "left": "", "latest": [],
    }  # fmt: skip
    if status == "running" and view.rows:
        scores = score_columns(run, view)
        columns = ["task", "sample", "attempt", "status", "started", "seconds", "error", *scores]
        rows = view.page(list(range(max(0, view.rows - PACE), view.rows)), columns)
        started = [row["started"] for row in rows if row.get("started") is not None]
        span = (max(started) - min(started)).total_seconds() if started else 0.0
        if span > 0:
            found["pace"] = round((len(started) - 1) / span, 3)
            if found["pace"]:
                found["left"] = duration(max(0, trials - done) / found["pace"])
        found["latest"] = [
            {
                "task": row["task"], "sample": row["sample"], "attempt": row["attempt"], "status": row["status"],
                "seconds": duration(row["seconds"]), "error": one_line(row["error"] or "", 160),
                "scores": ", ".join(f"{c} {format_value(row[c])}" for c in scores if row.get(c) is not None),
            }
            for row in reversed(rows[-LATEST:])
        ]  # fmt: skip
    return found
