"""The one number of a run: the frontier of its system alone, beside the expert."""

from __future__ import annotations

import numpy as np
import polars as pl


def mean_frontier(frame: pl.DataFrame) -> float:
    """Mean over samples of min(cost-of-pass, expert).

    Parameters
    ----------
    frame
        Records with task, sample, attempt, correct, cost (USD) and expert_cost (USD); a resampled frame holds some rows
        more than once.

    Returns
    -------
    float
        USD; NaN for no records.
    """
    if frame.height == 0:
        return float("nan")
    sums = frame.group_by("task", "sample").agg(
        pl.col("cost").sum(), pl.col("correct").sum(), pl.col("expert_cost").first(), pl.len().alias("n")
    )
    cost, right, expert, n = (sums.get_column(name).to_numpy() for name in ("cost", "correct", "expert_cost", "n"))
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.minimum(np.where(right > 0, cost / right, np.inf), expert)
    # A problem drawn twice into a resample stands there with twice its rows, and must count twice; in the records as
    # they are, every problem counts once, however many attempts it has.
    drawn = frame.select(pl.struct("task", "sample", "attempt").is_duplicated().any()).item()
    return float(np.average(best, weights=n if drawn else None))
