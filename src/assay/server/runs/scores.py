"""Scores and comparisons of runs, computed once for what a run holds, from light columns alone."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

from assay.core.compare import compare_runs
from assay.core.errors import AssayError, MissingExtra
from assay.core.results import Run, labels
from assay.server.runs.queries import HEAVY, View

if TYPE_CHECKING:
    import polars as pl

    from assay.core.metrics import Comparison, Score

PENDING = "The scores are being computed."
KEPT = 128
MOST_WAITING = 64
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
    """Scores by what they were computed from.

    One computation at a time, in a thread of its own: each may take a core for seconds, and whoever asks waits no
    longer than they said. Nobody waits for what somebody else has asked for.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Any, tuple[Any, float, Any]] = OrderedDict()
        self._running: dict[Any, Future[Any]] = {}
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "assay-scores")

    def of(self, view: View, by: str = "", *, wait: float) -> tuple[list[Score], str]:
        """Scores, and a sentence in their place where there are none (`PENDING`: not yet, after ``wait`` seconds)."""
        return self._kept(("scores", view.run.id, by), view.stamp, lambda: _scores(view, by), wait)

    def compare(
        self, views: Sequence[View], metrics: Sequence[str], by: str, *, wait: float
    ) -> tuple[list[Comparison], str]:
        """Paired comparisons, and a sentence in their place where there are none."""
        key = ("compare", *(view.run.id for view in views), tuple(metrics), by)
        stamp = tuple(view.stamp for view in views)
        return self._kept(key, stamp, lambda: _comparisons(views, metrics, by), wait)

    def _kept(self, key: Any, stamp: Any, compute: Callable[[], Any], wait: float) -> Any:
        with self._lock:
            known = self._known.get(key)
            if known is not None and (known[0] == stamp or time.monotonic() - known[1] < LIVE_SECONDS):
                self._known.move_to_end(key)
                return known[2]
            future = self._running.get(key)
            if future is None and len(self._running) < MOST_WAITING:
                future = self._running[key] = self._worker.submit(self._compute, key, stamp, compute)
        try:
            if future is not None:
                return future.result(wait)
        except TimeoutError:
            pass
        return known[2] if known is not None else ([], PENDING)

    def _compute(self, key: Any, stamp: Any, compute: Callable[[], Any]) -> Any:
        try:
            value = compute()
            with self._lock:
                self._known[key] = (stamp, time.monotonic(), value)
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
            return value
        finally:
            with self._lock:
                self._running.pop(key, None)


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
