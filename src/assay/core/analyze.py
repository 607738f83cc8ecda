"""Analyses by name: functions from runs to tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from assay.core.errors import UsageError, unknown_name
from assay.core.registry import benchmark_class, resolve, typed_options
from assay.core.results import Run, Runs
from assay.core.table import Table


def analysis_function(name: str) -> Any:
    """The function called ``benchmark.analysis``."""
    room, dot, short = name.partition(".")
    if not dot:
        raise UsageError(f"An analysis is named BENCHMARK.ANALYSIS, like cost_of_pass.frontier; {name!r} has no dot.")
    known = benchmark_class(room).analyses
    if short not in known:
        raise unknown_name(f"analysis of {room!r}", short, known)
    return resolve(known[short])


def analyze(name: str, runs: Iterable[Run], /, **options: Any) -> list[Table]:
    """Apply an analysis to runs; see `assay.analyze`."""
    fn = analysis_function(name)
    tables = fn(Runs(runs), **typed_options(fn, options, f"analysis {name!r}", skip=1))
    return [tables] if isinstance(tables, Table) else list(tables)
