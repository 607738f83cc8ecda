"""Verdicts on submissions to ``toy_labels`` without a process of their own, for tests of what comes after a verdict."""

from __future__ import annotations

import json

from assay.server.boards.submissions import stored


def quick_verdict(truth):
    """Stands in for ``Worker._judged``: what the scorer says of a whole file of predictions, or that it failed."""

    def judged(worker, claim, scratch, stop):
        rows = [json.loads(line) for line in stored(worker.settings, claim.entry).read_text().splitlines()]
        if rows[0]["label"] == "leak":
            return {"status": "failed", "reason": "None of the predictions could be scored."}
        value = sum(truth[row["id"]] == row["label"] for row in rows) / len(truth)
        score = {"metric": "accuracy", "value": value, "low": value / 2, "high": (value + 1) / 2, "n": len(truth)}
        return {"status": "scored", "shown": [score], "final": [score]}

    return judged
