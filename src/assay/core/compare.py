"""Comparing runs of one benchmark, pair by pair, on what they share."""

from __future__ import annotations

from collections.abc import Sequence

from assay.core.errors import UsageError, unknown_name
from assay.core.metrics import Comparison, compare_all
from assay.core.results import Run, labels


def compare_runs(runs: Sequence[Run], *, metrics: Sequence[str] = (), by: str | None = None) -> list[Comparison]:
    """Paired comparisons of every two runs, Holm-corrected over the pairs of a metric.

    Parameters
    ----------
    runs
        At least two runs of one benchmark.
    metrics
        Names; () = the headline metrics, all when none is marked so.
    by
        Group whose values are compared within one run, instead of runs (task, modality, technique).
    """
    if by is None and len(runs) < 2:
        raise UsageError("A comparison needs at least two runs; `assay runs` lists the runs there are.")
    names = sorted({r.benchmark for r in runs})
    if len(names) > 1:
        raise UsageError(f"These runs are of different benchmarks ({', '.join(names)}); compare runs of one.")
    known = {m.name: m for m in runs[0].metrics()}
    for name in metrics:
        if name not in known:
            raise unknown_name("metric", name, known)
    chosen = [known[n] for n in metrics] or [m for m in known.values() if m.headline] or list(known.values())
    rules = {rule for r in runs for rule in (t["resample"] for t in r.info["tasks"].values())}
    resample = rules.pop() if len(rules) == 1 else "both"
    found: list[Comparison] = []
    for metric in chosen:
        if by is None:
            frames = {label: run.records for label, run in zip(labels(runs), runs)}
            found += compare_all(metric, frames, resample=metric.resample or resample)
            continue
        for run in runs:
            if by not in run.records.columns:
                raise unknown_name("group", by, run.records.columns)
            parts = run.records.partition_by(by, as_dict=True)
            tested = compare_all(metric, {str(k[0]): v for k, v in parts.items()}, resample=metric.resample or resample)
            if not any(c.n for c in tested):
                raise UsageError(
                    f"The values of {by!r} share no samples in {run.id}, so nothing can be paired; "
                    "compare by a condition that the same samples were tried under (task, technique ...)."
                )
            found += tested
    return found
