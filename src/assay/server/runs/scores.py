"""Scores and comparisons of runs, computed once for what a run holds, from light columns alone."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from assay.core.compare import compare_runs
from assay.core.errors import AssayError, MissingExtra
from assay.core.results import Run, labels
from assay.server.runs.queries import HEAVY, View

if TYPE_CHECKING:
    import polars as pl

    from assay.core.metrics import Comparison, Score

KEPT = 128
LIVE_SECONDS = 10.0
"""Scores of a run that is going on are at most this old."""


class LightRun(Run):
    """A run whose records lack the heavy columns, except those that a metric reads."""

    def __init__(self, view: View) -> None:
        super().__init__(view.run.path)
        self._view = view

    @cached_property
    def records(self) -> pl.DataFrame:
        """One row a trial, without answers and exchanges."""
        read = {column for metric in self.metrics() for column in metric.reads}
        return self._view.light(also=[c for c in HEAVY if c in read])


class Scores:
    """Scores by what they were computed from. One computation at a time: each may take a core for seconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[Any, tuple[Any, float, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._computing = threading.Lock()

    def of(self, view: View, by: str = "") -> tuple[list[Score], str]:
        """Scores, and a sentence in their place where they cannot be computed here."""
        return self._kept(("scores", view.run.id, by), view.stamp, lambda: _scores(view, by))

    def compare(self, views: Sequence[View], metrics: Sequence[str], by: str) -> tuple[list[Comparison], str]:
        """Paired comparisons, and a sentence in their place where they cannot be made."""
        key = ("compare", *(view.run.id for view in views), tuple(metrics), by)
        stamp = tuple(view.stamp for view in views)
        return self._kept(key, stamp, lambda: _comparisons(views, metrics, by))

    def _kept(self, key: Any, stamp: Any, compute: Any) -> Any:
        found = self._find(key, stamp)
        if found is not None:
            return found
        with self._computing:
            found = self._find(key, stamp)
            if found is not None:
                return found
            value = compute()
            with self._lock:
                self._known[key] = (stamp, time.monotonic(), value)
                self._known.move_to_end(key)
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
        return value

    def _find(self, key: Any, stamp: Any) -> Any:
        with self._lock:
            found = self._known.get(key)
        if found is None:
            return None
        fresh = found[0] == stamp or time.monotonic() - found[1] < LIVE_SECONDS
        return found[2] if fresh else None


def names_of(views: Sequence[View]) -> list[str]:
    """A name for each run: its system, with what tells it from the others."""
    return labels([LightRun(view) for view in views])


def _scores(view: View, by: str) -> tuple[list[Score], str]:
    if not view.rows:
        return [], "No trial has ended yet."
    try:
        return LightRun(view).scores(by=by or ()), ""
    except AssayError as error:
        return [], _without_command(error)


def _comparisons(views: Sequence[View], metrics: Sequence[str], by: str) -> tuple[list[Comparison], str]:
    try:
        return compare_runs([LightRun(view) for view in views], metrics=metrics, by=by or None), ""
    except AssayError as error:
        return [], _without_command(error)


def _without_command(error: AssayError) -> str:
    if isinstance(error, MissingExtra):
        return f"Scores need the benchmark's packages on the server: {error}"
    return str(error)
