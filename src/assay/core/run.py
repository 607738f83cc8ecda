"""Running: plan, pending, executor, journal. And what comes of it: Run and Runs."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import os
import platform
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from assay.core.benchmark import Benchmark
from assay.core.cache import cache_folder
from assay.core.collector import collector_paused
from assay.core.engine import INTERRUPT, Engine, ProgressState, RunSink, Watched, run_loop
from assay.core.errors import AssayError, DataError, StorageError, UsageError
from assay.core.execute import Place
from assay.core.executors.local import Job, portable
from assay.core.executors.worker import Recipe
from assay.core.files import locked
from assay.core.interrupts import Interrupts
from assay.core.metering import Budget, RunScope
from assay.core.origin import command, git_state, version
from assay.core.plan import Selection, fingerprint
from assay.core.prepare import Prepared, prepare
from assay.core.results import Run, runs_folder
from assay.core.store import Store, safe_name


def run(
    benchmark: str | Benchmark,
    system: Any,
    *,
    loading: str,
    options: Mapping[str, Any] | None = None,
    samples: Any = None,
    tasks: Iterable[str] = (),
    attempts: int | None = None,
    seed: int = 0,
    into: Path | str | Run | None = None,
    tags: Mapping[str, Any] | None = None,
    engine: Engine = Engine(),
    parent: Mapping[str, Any] | None = None,
    system_info: Mapping[str, Any] | None = None,
) -> Run:
    """Run a benchmark on a system; see `assay.run`. A re-scored run keeps its parent's ``system_info``."""
    selection = Selection.of(samples, tasks)
    if into is not None and (path := Path(into.path if isinstance(into, Run) else into)).joinpath("run.json").is_file():
        with locked(path):
            return _extend(path, benchmark, system, loading, selection, attempts, engine)
    ready = prepare(
        benchmark,
        system,
        loading=loading,
        options=options,
        selection=selection,
        attempts=attempts,
        seed=seed,
        tries=engine.tries,
    )
    bench = ready.benchmark
    now = dt.datetime.now(dt.UTC)
    identity = uuid.uuid4().hex[:6]
    if into is not None:
        path = Path(into.path if isinstance(into, Run) else into)
    else:
        path = runs_folder() / f"{bench.name}--{safe_name(ready.system_name)}--{now:%Y%m%dT%H%M%SZ}-{identity}"
    info = {
        "format": 1,
        "id": path.name,
        "assay": version(),
        "benchmark": bench.name,
        "benchmark_version": bench.version,
        "title": bench.title,
        "options": msgspec.to_builtins(ready.options, enc_hook=str),
        "options_fingerprint": fingerprint(msgspec.to_builtins(ready.options, enc_hook=str)),
        "named": isinstance(benchmark, str),
        "rebuildable": isinstance(benchmark, str) and isinstance(system, str),
        "system": ready.system_name,
        "system_info": system_info or _described(system, ready, loading),
        "tags": dict(tags or {}),
        "seed": seed,
        "attempts": attempts,
        "selection": asdict(selection),
        "selection_rule": _rule(ready, selection),
        "skipped_tasks": ready.skipped,
        "data": dict(bench.data()),
        "parent": parent,
        "status": "running",
        "created": now.isoformat(),
        "host": {"python": platform.python_version(), "platform": platform.platform(), "cpus": os.cpu_count()},
        "command": command(),
        "git": git_state(),
        **_of_plan(ready),
    }

    def fill(store: Store) -> None:
        store.write_samples(ready.samples)
        if ready.outputs is not None and (files := getattr(ready.system, "artifacts", None)) is not None:
            _adopt(files, path / "artifacts")

    with Interrupts(path) as interrupts, locked(path):
        store = Store.create(path, info, fill)
        return _carry_out(store, info, ready, loading, engine, interrupts)


def _described(system: Any, ready: Prepared, loading: str) -> dict[str, Any]:
    """Facts of the system: what its name says, and what only the live object knows (dtype, resolved revision).

    The name of an object that was handed in is its own affair: it follows no grammar.
    """
    describe = importlib.import_module(loading).describe
    named = describe(system) if isinstance(system, str) else {}
    return {**describe(ready.system), **named, "name": ready.system_name}


def _rule(ready: Prepared, selection: Selection) -> dict[str, str]:
    """How the limit chose samples, a task, in words."""
    if selection.limit is None:
        return {}
    from assay.core.datasets import limit_rule

    return {name: limit_rule(selection.limit, len(plan.ids)) for name, plan in ready.plan.tasks.items()}


def _adopt(source: Path, target: Path) -> None:
    """Give a run the files that its outputs name: hard links where the disk allows, copies elsewhere."""
    if not source.is_dir():
        return

    def link(old: str, new: str) -> None:
        try:
            os.link(old, new)
        except OSError:
            shutil.copy2(old, new)

    shutil.copytree(source, target, copy_function=link)


def resume(
    run: Run,
    *,
    loading: str,
    benchmark: Benchmark | None = None,
    system: Any = None,
    retry_errors: bool = False,
    engine: Engine = Engine(),
) -> Run:
    """Go on with a run exactly where it stopped; see `assay.resume`."""
    store = Store(run.path)
    with store.lock():
        # What another process wrote while it held the lock counts, not what was read before.
        info = store.read_info()
        if info["parent"] and system is None:
            from assay.core.rescore import StoredOutputs

            system = StoredOutputs(Run(info["parent"]["path"]))
        if not info["rebuildable"] and benchmark is None and system is None:
            raise UsageError(
                f"{run.path.name} was made from Python objects, which a name cannot rebuild; "
                "pass the same benchmark and system to assay.resume."
            )
        ready = _prepare_again(
            info, benchmark, system, loading, Selection(**_selection(info)), info["attempts"], engine
        )
        if ready.data_fingerprint != info["data_fingerprint"]:
            raise UsageError(
                f"The data of {run.path.name} changed since it was begun (fingerprint {info['data_fingerprint']}, now "
                f"{ready.data_fingerprint}); start a new run, or bring the old data back."
            )
        with Interrupts(run.path) as interrupts:
            if _samples_of(store) != info["data_fingerprint"]:
                # Killed before they were written, or damaged since: the plan is the same, so they are too.
                store.write_samples(ready.samples)
            return _carry_out(store, info, ready, loading, engine, interrupts, retry_errors=retry_errors)


def _samples_of(store: Store) -> str | None:
    """Fingerprint of the samples on disk; None = they cannot be read."""
    try:
        return fingerprint(store.read_samples())
    except DataError:
        return None


def _extend(
    path: Path,
    benchmark: str | Benchmark,
    system: Any,
    loading: str,
    selection: Selection,
    attempts: int | None,
    engine: Engine,
) -> Run:
    """Add samples to an existing run (adaptive tests, active annotation)."""
    store = Store(path)
    info = store.read_info()
    name = benchmark if isinstance(benchmark, str) else benchmark.name
    if name != info["benchmark"]:
        raise UsageError(f"{path.name} is a run of {info['benchmark']!r}; {name!r} cannot go into it.")
    if isinstance(system, str) and system != info["system"]:
        raise UsageError(f"{path.name} is a run on {info['system']!r}; {system!r} cannot go into it.")
    if _samples_of(store) != info["data_fingerprint"]:
        raise UsageError(
            f"The samples of {path.name} are damaged or were only half added; go on with it first: assay resume {path}"
        )
    old = store.read_samples()
    wanted = _prepare_again(
        info,
        None if isinstance(benchmark, str) else benchmark,
        system,
        loading,
        selection,
        attempts or info["attempts"],
        engine,
    )
    ids = {(t, s) for t, s in old.select("task", "sample").iter_rows()} | {
        (t, s) for t, s in wanted.samples.select("task", "sample").iter_rows()
    }
    full = wanted.plan
    for task_name, plan in full.tasks.items():
        plan.indices = [i for i, s in enumerate(plan.ids) if (task_name, s) in ids]
    samples = full.samples_frame()
    before = samples.join(old.select("task", "sample"), on=["task", "sample"], how="semi")
    if fingerprint(before) != fingerprint(old):
        raise UsageError(f"The data of {path.name} changed since it was begun; start a new run.")
    ready = Prepared(**{**wanted.__dict__, "samples": samples, "data_fingerprint": fingerprint(samples)})
    ids_only = tuple(dict.fromkeys(samples["sample"].to_list()))
    names = tuple(full.tasks)
    info |= _of_plan(ready) | {"selection": asdict(Selection(ids=ids_only, tasks=names)), "extended": True}
    with Interrupts(path) as interrupts:
        store.write_info(info)
        store.write_samples(samples)
        return _carry_out(store, info, ready, loading, engine, interrupts)


def _prepare_again(
    info: Mapping[str, Any],
    benchmark: Any,
    system: Any,
    loading: str,
    selection: Selection,
    attempts: int | None,
    engine: Engine,
) -> Prepared:
    return prepare(
        benchmark if benchmark is not None else info["benchmark"],
        system if system is not None else info["system"],
        loading=loading,
        options=info["options"] if benchmark is None else None,
        selection=selection,
        attempts=attempts,
        seed=info["seed"],
        tries=engine.tries,
    )


def _selection(info: Mapping[str, Any]) -> dict[str, Any]:
    chosen = info["selection"]
    return {"limit": chosen["limit"], "ids": tuple(chosen["ids"]), "tasks": tuple(chosen["tasks"])}


def _of_plan(ready: Prepared) -> dict[str, Any]:
    """The part of the manifest that follows from the plan."""
    runners = ready.runners
    return {
        "data_fingerprint": ready.data_fingerprint,
        "trials": ready.plan.trials,
        "tasks": {
            name: {
                "samples": len(plan.indices),
                "attempts": plan.attempts,
                "resample": runners[name].task.resample,
                "system": runners[name].task.system.__name__,
            }
            for name, plan in ready.plan.tasks.items()
        },
    }


def _carry_out(
    store: Store,
    info: dict[str, Any],
    ready: Prepared,
    loading: str,
    engine: Engine,
    interrupts: Interrupts,
    *,
    retry_errors: bool = False,
) -> Run:
    """Subtract what is done, execute the rest, compact, and close the manifest. The store is locked."""
    path = store.path.resolve()
    # Two runs that were given one folder name after the other are not the same run.
    place = Place(path, cache_folder() / "content", info["seed"], engine.tries, run=f"{path.name} {info['created']}")
    for runner in ready.runners.values():
        place = replace(place, outputs=runner.place.outputs, history=runner.place.history)
        runner.place = place
    with collector_paused():
        done = ready.plan.done(store.finished(), retry_errors=retry_errors)
        pending = ready.plan.pending(done)
    finished = sum(int(d.sum()) for d in done.values())
    state = ProgressState(total=ready.plan.trials, done=finished)
    paid = info.get("paid", 0.0)
    if info["status"] == "running":
        # A process that was killed could not say what it had paid; its records do.
        paid = max(paid, store.paid())
    remarks = list(dict.fromkeys([*info.get("remarks", []), *store.damage()]))
    info |= {
        "status": "running",
        "started": dt.datetime.now(dt.UTC).isoformat(),
        "reason": None,
        "paid": paid,
        "remarks": remarks,
    }
    store.write_info(info)
    recipe = portable(
        Recipe(
            ready.benchmark.name if info["rebuildable"] else ready.benchmark,
            ready.options if info["rebuildable"] else {},
            _for_worker(ready, info),
            f"{loading}:load",
            place,
        )
    )
    budget = engine.dollars()
    scope = RunScope(
        budget=None if budget is None else Budget(budget, paid),
        cache_folder=cache_folder() / "replies" if engine.cache else None,
        connections=engine.connections,
    )
    cpu, begun = time.process_time(), time.monotonic()
    sink: RunSink | None = None
    refusal: StorageError | None = None
    progress = Watched(engine.progress)
    progress.start(state.total, state.done)
    try:
        with store.journal() as journal:
            sink = RunSink(journal, state, progress, engine.errors_allowed(state.total))
            job = Job(ready.runners, pending, recipe, sink, store.path / "workers.log")
            if any(pending.values()):
                run_loop(job, engine, scope, interrupts)
    except StorageError as error:
        refusal = error
    finally:
        if sink is not None:
            sink.finish()
        else:
            progress.finish(state)
        with contextlib.suppress(OSError):
            log = store.path / "workers.log"
            if log.exists() and log.stat().st_size == 0:
                log.unlink()
        if sink is not None and sink.reason is None and interrupts.presses:
            sink.stop(INTERRUPT)
        reason = str(refusal) if refusal is not None else sink.reason if sink is not None else None
        spent = paid + state.paid
        info |= {
            "status": "interrupted",
            "reason": reason,
            "remarks": [*remarks, *scope.remarks],
            "finished": dt.datetime.now(dt.UTC).isoformat(),
            "paid": spent if scope.budget is None else max(spent, scope.budget.spent),
            "seconds": info.get("seconds", 0.0) + time.monotonic() - begun,
            "cpu_seconds": info.get("cpu_seconds", 0.0) + time.process_time() - cpu,
            "unattributed": msgspec.to_builtins(scope.unattributed.totals()),
        }
        try:
            refusal = _fold(store, info, ready) or refusal
        except DataError:
            # Where the folder went away under the run, files of it are missing too.
            if refusal is None:
                raise
    if refusal is not None and not (store.path / "run.json").is_file():
        raise refusal
    result = Run(store.path)
    if refusal is not None or (reason and reason != INTERRUPT):
        raise RunInterrupted(f"{refusal or reason} What was done is kept in {store.path}.", result)
    if interrupts.presses:
        raise KeyboardInterrupt(str(store.path))
    return result


def _fold(store: Store, info: dict[str, Any], ready: Prepared) -> StorageError | None:
    """Compact the store and close the manifest; what keeps either from being written, if something does."""

    def close(records: Any, scores: set[str], groups: set[str]) -> None:
        known = ("task", "sample", "index", "cluster", "target")
        info.update(
            {
                "status": "finished" if records.height >= ready.plan.trials else "interrupted",
                "statuses": dict(records["status"].value_counts().iter_rows()),
                "done": records.height,
                "scores": sorted(set(info.get("scores", [])) | scores),
                "groups": [c for c in ready.samples.columns if c not in known],
                "outcome_groups": sorted(set(info.get("outcome_groups", [])) | groups),
            }
        )
        store.write_info(info)

    try:
        store.compact(close)
    except StorageError as error:
        # The journal stands. A disk that has no room for records may have some for a manifest.
        info["reason"] = str(error)
        with contextlib.suppress(StorageError):
            store.write_info(info)
        return error
    return None


class RunInterrupted(AssayError):
    """A run stopped before its plan was done; ``run`` is what there is of it, ready to be resumed."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


def _for_worker(ready: Prepared, info: Mapping[str, Any]) -> Any:
    if ready.outputs is not None:
        return None
    return ready.system_name if info["rebuildable"] else ready.system
