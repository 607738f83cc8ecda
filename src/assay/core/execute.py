"""From a trial to its record: the one function that event loop, worker processes and clusters all run."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import inspect
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from assay.core.benchmark import Benchmark, Outcome, Sample, Task, Trial, trial_seed
from assay.core.context import Compute, Context, Report
from assay.core.errors import AssayError, StorageError, TrialTimeout, scrub
from assay.core.files import FULL, disk_errno, refused, replacing, write_atomically
from assay.core.metering import Meter, TrialKey, current_attempt, current_meter, current_trial
from assay.core.store import NO_OUTPUT, SPILL_BYTES, Artifact, Record, check_columns, safe_name

INLINE_ROWS = 200

Unit = tuple[str, tuple[tuple[int, int], ...]]
"""Task name and the (sample index, attempt) pairs that are computed, written and resumed together."""


class RunStopped(Exception):
    """A fatal error: every further trial would fail the same way. Carries the records it was met in."""

    def __init__(self, error: AssayError, records: list[Record]) -> None:
        super().__init__(str(error))
        self.error = error
        self.records = records


@dataclass(frozen=True)
class Place:
    """Where and under which seed a run's trials take place: all a worker needs besides benchmark and system.

    ``run`` names the run for systems that outlive it; "" = as its folder is called.
    """

    folder: Path
    cache_folder: Path
    seed: int = 0
    tries: int = 2
    outputs: Any = None
    history: Any = None
    run: str = ""


def overrides(task: Task, method: str) -> bool:
    """Whether a task defines this optional hook itself."""
    return getattr(type(task), method) is not getattr(Task, method)


@dataclass
class TaskRunner:
    """A task with its hooks resolved once, ready to turn units into records.

    Parameters
    ----------
    task, system, place
        What is run, on what, where.
    compute, report
        `Context.compute` and `Context.progress` end here.
    samples
        The task's samples, where somebody has built them already.
    """

    task: Task
    system: Any
    place: Place
    compute: Compute | None = None
    report: Report | None = None
    samples: Sequence[Sample] = ()
    state: Any = None

    def __post_init__(self) -> None:
        task = self.task
        self.samples = self.samples or task.samples()
        self.batched = overrides(task, "batch_key")
        self.scored = overrides(task, "score")
        self.has_setup = overrides(task, "setup")
        self.is_async = inspect.iscoroutinefunction(task.trials if self.batched else task.trial)
        self.score_is_async = inspect.iscoroutinefunction(task.score)
        # A submission has answered already; only the scoring is left to do.
        self.submitted: Mapping[tuple[str, str, int], Outcome] | None = self.place.outputs
        if self.submitted is not None:
            self.is_async, self.batched, self.has_setup = self.score_is_async, False, False
        elif not self.is_async and self.score_is_async:
            raise TypeError(
                f"task {task.name!r}: a `def` trial needs a `def` score (it runs in the same worker); "
                "make trial async and compute in ctx.compute."
            )
        self._bind: Callable[[Meter], Any] | None = getattr(self.system, "bind", None)
        # A limit is against programs that hang; a person may answer tomorrow.
        hurried = self.is_async and not getattr(self.system, "patient", False)
        self._limit = task.needs.seconds if hurried else None

    # -- setup -----------------------------------------------------------------------------------------------------

    def setup_context(self) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any] | None:
        """The task's live state as a context manager to enter once a process; None = it has none."""
        if not self.has_setup:
            return None
        return self.task.setup(
            self.system, self._context("setup", trial_seed(self.place.seed, self.task.name, "setup", 0), 0)
        )

    # -- units -----------------------------------------------------------------------------------------------------

    async def run(self, unit: Unit) -> list[Record]:
        """Records of one unit of an async task."""
        if self.batched:
            return await self._batch(unit, asynchronous=True)
        ((index, attempt),) = unit[1]
        return [await self._one(index, attempt)]

    def run_here(self, unit: Unit) -> list[Record]:
        """Records of one unit of a `def` task, computed in this process."""
        # A coroutine without a real await inside: driving it by hand spares an event loop per trial.
        coroutine = self._batch(unit, asynchronous=False) if self.batched else self._one_here(unit)
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError("a `def` trial awaited something")

    async def _one_here(self, unit: Unit) -> list[Record]:
        ((index, attempt),) = unit[1]
        return [await self._one(index, attempt)]

    async def _one(self, index: int, attempt: int) -> Record:
        task = self.task
        sample = self.samples[index]
        seed = trial_seed(self.place.seed, task.name, sample.id, attempt)
        record = Record(task.name, sample.id, attempt, index, seed, exclusive=task.needs.exclusive)
        ctx = self._context(unit_name(sample.id, attempt), seed, attempt)
        limit = self._limit
        meter = Meter()
        key = TrialKey(self.place.run or self.place.folder.name, task.name, sample.id, attempt, index)
        fatal: AssayError | None = None
        for tries in range(1, self.place.tries + 1):
            meter_token, attempt_token = current_meter.set(meter), current_attempt.set(attempt)
            trial_token = current_trial.set(key)
            record.tries, record.started = tries, time.time()
            begun, cpu = time.perf_counter(), time.process_time()
            again = False
            try:
                # asyncio.timeout costs a timer a trial: only where a limit was asked for.
                async with asyncio.timeout(limit) if limit else contextlib.nullcontext():
                    await self._attempt(sample, ctx, meter, record)
                record.error = record.error_type = None
            except AssayError as error:
                # Our own errors were retried where they arose, or never get better.
                fatal = error if error.fatal else None
                _failed(record, error)
            except TimeoutError:
                if limit is None or time.perf_counter() - begun < limit:
                    again = tries < self.place.tries
                    _failed(record, TimeoutError("an operation inside the trial timed out"))
                else:
                    _failed(
                        record, TrialTimeout(f"The trial ran past its limit of {limit:g} s and was stopped."), "timeout"
                    )
            except Exception as error:
                fatal = _refusal(error)
                again = fatal is None and tries < self.place.tries
                _failed(record, error)
            finally:
                current_meter.reset(meter_token)
                current_attempt.reset(attempt_token)
                current_trial.reset(trial_token)
            record.seconds = time.perf_counter() - begun if meter.took is None else meter.took
            if not self.is_async:
                record.cpu_seconds = time.process_time() - cpu
            if not again:
                break
        record.calls = meter.totals()
        record.exchanges = self._kept(meter.exchanges, ctx)
        self._collect(record, ctx)
        if fatal is not None:
            raise RunStopped(fatal, [record])
        return record

    async def _attempt(self, sample: Sample, ctx: Context, meter: Meter, record: Record) -> None:
        task = self.task
        if self.submitted is not None:
            self._remember(sample.id, ctx.attempt, meter)
            outcome = self.submitted.get((task.name, sample.id, ctx.attempt))
            if outcome is None:
                raise AssayError(
                    f"The submission holds no prediction for {task.name}/{sample.id}, attempt {ctx.attempt}."
                )
            outcome = Outcome(dict(outcome.scores), outcome.output, dict(outcome.groups), outcome.rows)
        else:
            system = self._bind(meter) if self._bind is not None else self.system
            outcome = task.trial(system, sample, ctx)
            if self.is_async:
                outcome = await outcome  # type: ignore[misc]
        if not isinstance(outcome, Outcome):
            raise AssayError(f"Task {task.name!r}: trial must return an Outcome, not {type(outcome).__name__}.")
        await self._finish(sample, outcome, ctx, record)
        if meter.groups:
            record.groups = {**{k: v for k, v in meter.groups.items() if k not in sample.groups}, **record.groups}

    def _remember(self, sample: str, attempt: int, meter: Meter) -> None:
        """Calls and exchanges of the trial whose output is scored again: what it cost then, paid nothing now."""
        if self.place.history is None:
            return
        calls, exchanges = self.place.history.get((self.task.name, sample, attempt), ((), ()))
        for call in calls:
            meter.add(msgspec.structs.replace(call, paid=0.0))
        meter.exchanges.extend(exchanges)

    async def _finish(self, sample: Sample, outcome: Outcome, ctx: Context, record: Record) -> None:
        """Score an outcome where the task does that apart, and write all of it into the record."""
        record.output = self._encoded(outcome.output, ctx)
        record.groups = dict(outcome.groups)
        record.status = "ok"
        scores: Mapping[str, float | None] = outcome.scores
        rows = outcome.rows
        if self.scored:
            if sample.target is None:
                record.status = "unscored"
            elif not (self.submitted is not None and outcome.output is None and outcome.scores):
                scored = self.task.score(sample, outcome.output, ctx)
                if self.score_is_async:
                    scored = await scored  # type: ignore[misc]
                if not isinstance(scored, Outcome):
                    raise AssayError(
                        f"Task {self.task.name!r}: score must return an Outcome, not {type(scored).__name__}."
                    )
                scores = {**scores, **scored.scores}
                record.groups.update(scored.groups)
                if len_or_some(scored.rows):
                    rows = scored.rows
                if scored.output is not None:
                    record.output = self._encoded(scored.output, ctx)
        record.scores = checked_scores(scores, self.task.name)
        check_columns(record.groups, f"Task {self.task.name!r}")
        self._rows(rows, record, ctx)

    async def _batch(self, unit: Unit, *, asynchronous: bool) -> list[Record]:
        task = self.task
        name = task.name
        trials = [
            Trial(
                name,
                sample := self.samples[index],
                index,
                attempt,
                trial_seed(self.place.seed, name, sample.id, attempt),
            )
            for index, attempt in unit[1]
        ]
        label = self._batch_label(unit)
        batch_ctx = self._context(label, trial_seed(self.place.seed, name, label, 0), 0)
        records = [
            Record(name, t.sample.id, t.attempt, t.index, t.seed, exclusive=task.needs.exclusive) for t in trials
        ]
        limit = self._limit
        meter = Meter()
        key = TrialKey(self.place.run or self.place.folder.name, name, label, 0, trials[0].index)
        outcomes: list[Outcome] = []
        tries = 0
        while tries < self.place.tries:
            tries += 1
            token, trial_token = current_meter.set(meter), current_trial.set(key)
            started, begun, cpu = time.time(), time.perf_counter(), time.process_time()
            problem: BaseException | None = None
            status = "error"
            try:
                system = self._bind(meter) if self._bind is not None else self.system
                async with asyncio.timeout(limit) if limit else contextlib.nullcontext():
                    returned: Any = task.trials(system, trials, batch_ctx)
                    outcomes = list(await returned if asynchronous else returned)
                if len(outcomes) != len(trials):
                    raise AssayError(
                        f"Task {name!r}: trials returned {len(outcomes)} outcomes for {len(trials)} trials."
                    )
            except TimeoutError as error:
                problem, status = error, "timeout" if limit and time.perf_counter() - begun >= limit else "error"
            except Exception as error:
                problem = _refusal(error) or error
            finally:
                current_meter.reset(token)
                current_trial.reset(trial_token)
            if problem is None or isinstance(problem, AssayError) or status == "timeout":
                break
        seconds, cpu_seconds = time.perf_counter() - begun, None if asynchronous else time.process_time() - cpu
        for number, (trial, record) in enumerate(zip(trials, records)):
            record.tries, record.started = tries, started
            # A batch is paid for together: each record carries its share of time, the first one the calls.
            record.seconds = seconds / len(trials)
            record.cpu_seconds = None if cpu_seconds is None else cpu_seconds / len(trials)
            if number == 0:
                record.calls = meter.totals()
                record.exchanges = self._kept(meter.exchanges, batch_ctx)
            if problem is not None:
                _failed(record, problem, status)
                continue
            try:
                await self._finish(trial.sample, outcomes[number], batch_ctx, record)
            except Exception as error:
                _failed(record, error)
                refusal = _refusal(error) or (error if isinstance(error, StorageError) else None)
                if refusal is not None:
                    raise RunStopped(refusal, records) from error
        if problem is None:
            self._collect(records[0], batch_ctx)
        elif isinstance(problem, AssayError) and problem.fatal:
            raise RunStopped(problem, records)
        return records

    def drop_scratch(self, unit: Unit) -> None:
        """Remove the scratch folder of a unit whose records are safe; checkpoints of failed trials stay for a retry."""
        # Most runs have neither scratch nor artifacts: one look at the disk with a ready-made name, no Path objects.
        if os.path.isdir(f"{self.place.folder}/scratch"):
            label = (
                self._batch_label(unit) if self.batched else unit_name(self.samples[unit[1][0][0]].id, unit[1][0][1])
            )
            shutil.rmtree(self.place.folder / "scratch" / safe_name(self.task.name) / label, ignore_errors=True)

    def _batch_label(self, unit: Unit) -> str:
        members = repr([(self.samples[index].id, attempt) for index, attempt in unit[1]])
        return f"batch-{hashlib.blake2b(members.encode(), digest_size=8).hexdigest()}"

    def lost(self, unit: Unit, error: AssayError, status: str) -> list[Record]:
        """Error records for a unit whose worker died or was killed."""
        records = []
        for index, attempt in unit[1]:
            sample = self.samples[index]
            seed = trial_seed(self.place.seed, self.task.name, sample.id, attempt)
            record = Record(self.task.name, sample.id, attempt, index, seed, started=time.time())
            _failed(record, error, status)
            records.append(record)
        return records

    # -- parts of a record -----------------------------------------------------------------------------------------

    def _context(self, unit: str, seed: int, attempt: int) -> Context:
        limit = self.task.needs.seconds
        return Context(
            seed=seed,
            attempt=attempt,
            name=(self.task.name, unit),
            run_folder=self.place.folder,
            cache_folder=self.place.cache_folder,
            deadline=time.monotonic() + limit if limit else None,
            state=self.state,
            report=self.report,
            compute=self.compute,
        )

    def _encoded(self, output: Any, ctx: Context) -> msgspec.Raw:
        if output is None:
            return NO_OUTPUT
        try:
            text = msgspec.json.encode(output)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise AssayError(
                f"Task {self.task.name!r}: the output is not JSON-able ({error}); "
                "write it to a file under ctx.artifacts and return the file's name."
            ) from error
        if len(text) > SPILL_BYTES:
            path = ctx.artifacts / "output.json"
            write_atomically(path, text)
            text = msgspec.json.encode({"$file": str(path.relative_to(self.place.folder))})
        return msgspec.Raw(text)

    def _kept(self, exchanges: list[dict[str, Any]], ctx: Context) -> msgspec.Raw:
        """What was said, as JSON; a long one in a file."""
        if not exchanges:
            return NO_OUTPUT
        text = msgspec.json.encode(exchanges, enc_hook=str)
        if len(text) > SPILL_BYTES:
            path = ctx.artifacts / "exchanges.json"
            write_atomically(path, text)
            text = msgspec.json.encode({"$file": str(path.relative_to(self.place.folder))})
        return msgspec.Raw(text)

    def _rows(self, rows: Any, record: Record, ctx: Context) -> None:
        if hasattr(rows, "write_parquet"):
            if rows.height <= INLINE_ROWS:
                record.rows = rows.to_dicts() or None
                return
            frame = rows
        else:
            listed = [dict(r) for r in rows]
            if len(listed) <= INLINE_ROWS:
                record.rows = listed or None
                return
            import polars as pl

            frame = pl.DataFrame(listed, infer_schema_length=None)
        folder = self.place.folder / "journal" / "rows"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{safe_name(record.task)}-{unit_name(record.sample, record.attempt)}.parquet"
        # On the disk before the record that names it.
        with replacing(path) as temporary:
            frame.write_parquet(temporary, compression="zstd")
        record.rows_file = str(path.relative_to(self.place.folder))

    def _collect(self, record: Record, ctx: Context) -> None:
        if not os.path.isdir(f"{self.place.folder}/artifacts"):
            return
        folder = ctx.path_of("artifacts")
        if folder.is_dir():
            record.artifacts = [
                Artifact(str(p.relative_to(self.place.folder)), p.stat().st_size, _sha256(p))
                for p in sorted(folder.rglob("*"))
                if p.is_file()
            ]


def unit_name(sample: str, attempt: int) -> str:
    """Folder name of a trial: readable, and unique even when ids differ only in what a file name cannot hold."""
    safe = safe_name(sample)
    if safe != sample:
        safe = f"{safe[:48]}-{hashlib.blake2b(sample.encode(), digest_size=5).hexdigest()}"
    return f"{safe}.{attempt}"


def checked_scores(scores: Mapping[str, Any], task: str) -> dict[str, float | None]:
    """Scores as floats. NaN is refused: a score that does not apply is None, a failure counts as the metric says."""
    checked: dict[str, float | None] = {}
    for name, value in scores.items():
        if value is None:
            checked[name] = None
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise AssayError(f"Task {task!r}: score {name!r} is {value!r}, not a number.") from None
        if not math.isfinite(number):
            raise AssayError(f"Task {task!r}: score {name!r} is {number}; return None where a score does not apply.")
        checked[name] = number
    check_columns(checked, f"Task {task!r}")
    return checked


def len_or_some(rows: Any) -> bool:
    """Whether there are rows (an iterator counts as some)."""
    try:
        return len(rows) > 0
    except TypeError:
        return True


def _refusal(error: Exception) -> StorageError | None:
    """The sentence when it is the disk that took no more: every further trial would fail the same way."""
    number = disk_errno(error)
    if number not in FULL | {errno.EROFS, errno.EIO}:
        return None
    return refused(getattr(error, "filename", None) or "a file of a trial", error)


def _failed(record: Record, error: BaseException, status: str | None = None) -> None:
    record.status = status or "error"
    record.error_type = type(error).__name__
    said = str(error) or ("The trial ran out of memory." if isinstance(error, MemoryError) else type(error).__name__)
    record.error = scrub(said)[:2000]
    record.retryable = getattr(error, "retryable", not isinstance(error, (TypeError, ValueError, AssertionError)))
    record.scores = {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_runners(
    tasks: Iterable[Task],
    system: Any,
    place: Place,
    compute: Compute | None = None,
    report: Report | None = None,
    samples: Mapping[str, Sequence[Sample]] = MappingProxyType({}),
) -> dict[str, TaskRunner]:
    """One runner a task, by name; ``samples`` of a task where they are built already."""
    return {t.name: TaskRunner(t, system, place, compute, report, samples.get(t.name, ())) for t in tasks}


def tasks_by_name(benchmark: Benchmark) -> dict[str, Task]:
    """The tasks of a benchmark; one without a name and two of one name are errors."""
    tasks = list(benchmark.tasks())
    for task in tasks:
        if not isinstance(getattr(task, "name", None), str):
            raise AssayError(
                f"Task {type(task).__name__} of benchmark {benchmark.name!r} has no name; give its class a name."
            )
    named = {t.name: t for t in tasks}
    if len(named) != len(tasks):
        raise AssayError(f"Benchmark {benchmark.name!r} has two tasks of one name; names must be unique.")
    return named
