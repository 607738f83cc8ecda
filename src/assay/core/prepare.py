"""Preparing: benchmark and system loaded, checked against each other, and planned."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.benchmark import Benchmark, Task
from assay.core.cache import cache_folder
from assay.core.collector import collector_paused
from assay.core.errors import AssayError, UsageError
from assay.core.execute import Place, TaskRunner, make_runners, overrides, tasks_by_name
from assay.core.plan import Plan, Selection, fingerprint, make_plan
from assay.core.registry import load_benchmark


@dataclass
class Prepared:
    """A run that could start: what is run on what, the plan, and the manifest to be."""

    benchmark: Benchmark
    system: Any
    system_name: str
    options: dict[str, Any]
    outputs: Any
    runners: dict[str, TaskRunner]
    plan: Plan
    skipped: dict[str, str]
    data_fingerprint: str
    samples: Any


def prepare(
    benchmark: str | Benchmark,
    system: Any,
    *,
    loading: str,
    options: Mapping[str, Any] | None = None,
    selection: Selection = Selection(),
    attempts: int | None = None,
    seed: int = 0,
    folder: Path = Path(),
    tries: int = 2,
) -> Prepared:
    """Load, check and plan, without writing anything or asking any model."""
    if isinstance(benchmark, str):
        benchmark = load_benchmark(benchmark, **(options or {}))
    elif options:
        raise UsageError("Options go with a benchmark's name; an object of one has been given its options already.")
    loader = importlib.import_module(loading)
    name = system if isinstance(system, str) else getattr(system, "name", None) or loader.describe(system)["name"]
    live = loader.load(system, benchmark=benchmark) if isinstance(system, str) else system
    outputs = live.outcomes(benchmark) if getattr(live, "is_submission", False) else None
    history = live.history() if outputs is not None and hasattr(live, "history") else None
    named = tasks_by_name(benchmark)
    fitting, skipped = {}, {}
    for task_name, task in named.items():
        reason = misfit(task, live, outputs is not None)
        if reason is None:
            fitting[task_name] = task
        else:
            skipped[task_name] = reason
    if not fitting:
        raise UsageError(
            f"{name} fits no task of {benchmark.name!r}: " + "; ".join(f"{t} {r}" for t, r in skipped.items()) + "."
        )
    place = Place(folder, cache_folder() / "content", seed, tries, outputs, history)
    with collector_paused():
        runners = make_runners(fitting.values(), live, place)
        plan = make_plan(runners, selection, attempts, seed)
        samples = plan.samples_frame()
    return Prepared(
        benchmark,
        live,
        name,
        dict(benchmark.options),
        outputs,
        runners,
        plan,
        skipped,
        fingerprint(samples),
        samples,
    )


def misfit(task: Task, system: Any, submission: bool) -> str | None:
    """Why a system cannot take a task; None = it can."""
    if submission:
        return None if overrides(task, "score") else "has no scorer apart from the trial, so it takes no submissions"
    try:
        fits = isinstance(system, task.system)
    except TypeError as error:
        raise AssayError(
            f"Task {task.name!r}: its protocol {task.system} is not runtime-checkable ({error})."
        ) from error
    if fits:
        refuses: Any = getattr(system, "refuses", None)
        return None if refuses is None else refuses(task)
    missing = [m for m in _members(task.system) if not hasattr(system, m)]
    lacks = f" (it lacks {', '.join(sorted(missing))})" if missing else ""
    return f"needs the protocol {task.system.__name__}{lacks}"


def _members(protocol: type) -> set[str]:
    """Public members that a protocol asks for."""
    kinds = [k for k in protocol.__mro__ if getattr(k, "_is_protocol", False)]
    named = {n for k in kinds for n in (*vars(k), *vars(k).get("__annotations__", {}))}
    return {n for n in named if not n.startswith("_")}
