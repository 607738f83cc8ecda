"""What a board lets out: rounded scores, shown only when they are better by more than a step; and ranks.

The step is the Ladder of Blum and Hardt (arXiv 1502.04585): a team learns a new number only when it has improved, so
that a hundred submissions tell little about the hidden truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def rounded(value: float, step: float) -> float:
    """``value`` at the nearest multiple of ``step``; 0 = as it is."""
    return _multiple(value, step, round)


def rounded_interval(low: float, high: float, step: float) -> tuple[float, float]:
    """An interval widened to multiples of ``step``."""
    return _multiple(low, step, math.floor), _multiple(high, step, math.ceil)


def _multiple(value: float, step: float, rule) -> float:
    if step <= 0 or not math.isfinite(value):
        return value
    digits = max(0, 1 - math.floor(math.log10(step)))
    # Without the inner rounding 0.3 / 0.1 is 2.9999999999999996.
    return round(rule(round(value / step, 9)) * step, digits) + 0.0


def released(value: float, best: float | None, step: float, *, higher_is_better: bool = True) -> bool:
    """Whether a team learns this score: its first, or one better than its best by more than ``step``; 0 = always."""
    if best is None or step <= 0:
        return True
    gain = value - best if higher_is_better else best - value
    return gain > step


def ranks(scores: Sequence[float | None], *, higher_is_better: bool = True) -> list[int | None]:
    """Places from 1; equal scores share one place and the next ones are left out; None (no score) has none."""
    known = sorted((s for s in scores if s is not None), reverse=higher_is_better)
    first = {score: place for place, score in reversed(list(enumerate(known, start=1)))}
    return [None if s is None else first[s] for s in scores]
