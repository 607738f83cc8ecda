"""The one number of a run: the frontier of its system alone, beside the expert."""

from __future__ import annotations

import numpy as np
import polars as pl


def mean_frontier(frame: pl.DataFrame) -> float:
    """Mean over samples of min(cost-of-pass, expert).

    Called thousands of times for one interval: samples are told apart by their numbers, not by their names.

    Parameters
    ----------
    frame
        Records with task, index, attempt, correct, cost (USD) and expert_cost (USD); a resampled frame holds some rows
        more than once.

    Returns
    -------
    float
        USD; NaN for no records, and where a cost or the expert's is unknown.
    """
    if frame.height == 0 or frame.get_column("cost").null_count() or frame.get_column("expert_cost").null_count():
        return float("nan")
    sample = frame.get_column("index").to_numpy()
    tasks = frame.get_column("task")
    if (tasks != tasks[0]).any():
        sample = sample + (int(sample.max()) + 1) * (tasks.rank("dense").to_numpy().astype(np.int64) - 1)
    n = np.bincount(sample)
    there = n > 0
    n = n[there]
    cost, right, expert = (
        np.bincount(sample, weights=frame.get_column(name).to_numpy())[there]
        for name in ("cost", "correct", "expert_cost")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.minimum(np.where(right > 0, cost / right, np.inf), expert / n)
    # A problem drawn twice into a resample stands there with twice its rows, and must count twice; in the records as
    # they are, every problem counts once, however many attempts it has.
    attempt = frame.get_column("attempt").to_numpy()
    drawn = bool((np.bincount(sample * (int(attempt.max()) + 1) + attempt) > 1).any())
    return float(np.average(best, weights=n if drawn else None))
