"""Local executor: an event loop for trials that wait, worker processes for trials that compute."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay.core.errors import AssayError, TrialTimeout, WorkerLost
from assay.core.execute import RunStopped, TaskRunner, Unit
from assay.core.executors.pool import Pool, Worker, watched
from assay.core.executors.worker import Recipe
from assay.core.metering import current_meter
from assay.core.store import Record

CHUNK_SECONDS = 0.2
MAX_CHUNK = 256
YIELD_SECONDS = 0.05
PATIENT_WIDTH = 20_000
STARTS = 3


class Sink(Protocol):
    """Where records go; it also says when to stop."""

    stopping: bool

    def records(self, records: list[Record]) -> None: ...

    def encoded(self, array: bytes, statuses: list[tuple[str, float]]) -> None: ...

    def stop(self, reason: str) -> None: ...

    def shown(self, name: tuple[str, str], done: float, total: float | None, shown: Mapping[str, Any]) -> None: ...


@dataclass
class Job:
    """All that an executor needs: runners and pending units by task, how workers rebuild them, where records go.

    ``recipe`` is None when benchmark or system can only live in this process. ``spare`` says how often a trial whose
    worker ended by itself or from outside gets another one before that is its record; ``losses`` counts.
    """

    runners: dict[str, TaskRunner]
    pending: dict[str, list[Unit]]
    recipe: Recipe | None
    sink: Sink
    log: Path | None = None
    spare: int = 0
    losses: Counter[Unit] = field(default_factory=Counter)

    @property
    def patient(self) -> bool:
        """Whether the trials wait for people: all of them are in flight at once, and an interrupt drops them at once.

        A system with a true attribute ``patient`` keeps unfinished answers elsewhere, so that dropping loses none.
        """
        return any(getattr(runner.system, "patient", False) for runner in self.runners.values())


@dataclass
class LocalExecutor:
    """Runs a job on this machine.

    Parameters
    ----------
    workers
        Processes for `def` trials and ``ctx.compute``; None = one a core, 0 = compute here (without time or memory
        limits then).
    connections
        Async trials in flight at most.
    """

    workers: int | None = None
    connections: int = 32
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, repr=False)
    _beat: float = field(default=0.0, repr=False)
    _patient: bool = field(default=False, repr=False)

    async def run(self, job: Job) -> None:
        """Turn every pending unit into records, or stop early when the sink says so."""
        size = self.workers if self.workers is not None else os.cpu_count() or 1
        pool = Pool(size or 1, job.log)
        loop = asyncio.get_running_loop()
        threads = ContextThreads(max_workers=min(64, self.connections + 4), thread_name_prefix="assay")
        loop.set_default_executor(threads)
        self._patient = job.patient
        try:
            for runner in job.runners.values():
                runner.compute = lambda fn, *args, timeout=None: metered_call(pool, fn, *args, timeout=timeout)
                runner.report = job.sink.shown
            waiting = {n: u for n, u in job.pending.items() if u and job.runners[n].is_async}
            computing = {n: u for n, u in job.pending.items() if u and not job.runners[n].is_async}
            for exclusive in (False, True):
                chosen = {n: u for n, u in waiting.items() if job.runners[n].task.needs.exclusive is exclusive}
                if chosen and not job.sink.stopping:
                    width = PATIENT_WIDTH if self._patient else self.connections
                    await self._wait(job, chosen, 1 if exclusive else width)
            for name, units in computing.items():
                if job.sink.stopping:
                    break
                if job.recipe is None or size == 0:
                    await _compute_here(job, name, units)
                else:
                    cpus = max(1.0, job.runners[name].task.needs.cpus)
                    lanes = 1 if job.runners[name].task.needs.exclusive else max(1, int(size / cpus))
                    await self._compute(job, name, units, pool, min(lanes, len(units)))
        finally:
            await pool.close()
            threads.shutdown(wait=False, cancel_futures=True)

    def cancel(self) -> None:
        """Drop what is in flight; it stays pending."""
        for task in list(self._tasks):
            task.cancel()

    # -- trials that wait ------------------------------------------------------------------------------------------

    async def _wait(self, job: Job, pending: Mapping[str, list[Unit]], width: int) -> None:
        homes = {name: _Home(job.runners[name], len(units)) for name, units in pending.items()}
        self._beat = time.monotonic()
        beating = asyncio.create_task(self._keep_beat())
        queue = ((homes[name], unit) for name, units in pending.items() for unit in units)
        try:
            await self._lanes(
                [self._consume(job.sink, queue) for _ in range(min(width, sum(map(len, pending.values()))))]
            )
        finally:
            beating.cancel()
            for home in homes.values():
                await home.close()

    async def _keep_beat(self) -> None:
        """Note when the loop last had time for its timers."""
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(YIELD_SECONDS / 4)

    async def _consume(self, sink: Sink, queue: Iterator[tuple[_Home, Unit]]) -> None:
        for home, unit in queue:
            # Trials that never really wait (answers from the cache) would keep signals and timers from the loop.
            if time.monotonic() - self._beat > YIELD_SECONDS:
                await asyncio.sleep(0)
            if sink.stopping:
                return
            try:
                if not home.open:
                    await home.enter()
                records = await home.runner.run(unit)
            except RunStopped as stopped:
                # It says nothing of the system (a key, an account, a budget, the disk): the trial stays pending.
                sink.stop(str(stopped))
                if self._patient:
                    self.cancel()
                return
            sink.records(records)
            _tidy(home.runner, unit, [r.status for r in records])
            home.left -= 1
            if not home.left:
                await home.close()
            if sink.stopping and self._patient:
                # Whoever waits for people would keep a stopped run from ending.
                self.cancel()

    async def _lanes(self, coroutines: Iterable[Any]) -> None:
        tasks = [asyncio.create_task(c) for c in coroutines]
        self._tasks.update(tasks)
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._tasks.difference_update(tasks)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    # -- trials that compute ---------------------------------------------------------------------------------------

    async def _compute(self, job: Job, name: str, units: list[Unit], pool: Pool, lanes: int) -> None:
        queue = deque(units)
        await self._lanes([_Lane(job, name, queue, pool).run() for _ in range(lanes)])


class ContextThreads(ThreadPoolExecutor):
    """Thread pool whose threads see the context (meter, budget) of who submitted; `run_in_executor` alone loses it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any):
        return super().submit(copy_context().run, fn, *args, **kwargs)


async def metered_call(pool: Pool, fn: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
    """`Pool.call`, with the model calls that ``fn`` made counted for the current trial."""
    value, calls = await pool.call(fn, *args, timeout=timeout)
    meter = current_meter.get()
    for call in calls:
        if meter is not None:
            meter.add(call)
    return value


class _Home:
    """An async task's live state: entered before its first trial and left after its last, by one asyncio task (some
    context managers must be left by the task that entered them)."""

    def __init__(self, runner: TaskRunner, left: int) -> None:
        self.runner = runner
        self.left = left
        self.open = not runner.has_setup
        self._keeper: asyncio.Task[None] | None = None
        self._entered: asyncio.Future[None] | None = None
        self._leave = asyncio.Event()

    async def enter(self) -> None:
        """Enter once; whoever comes meanwhile waits."""
        if self._entered is None:
            self._entered = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._entered))
        await asyncio.shield(self._entered)

    async def _keep(self, entered: asyncio.Future[None]) -> None:
        manager = self.runner.setup_context()
        try:
            async with contextlib.AsyncExitStack() as stack:
                if hasattr(manager, "__aenter__"):
                    self.runner.state = await stack.enter_async_context(manager)  # type: ignore[arg-type]
                else:
                    self.runner.state = stack.enter_context(manager)  # type: ignore[arg-type]
                self.open = True
                entered.set_result(None)
                await self._leave.wait()
        except Exception as error:
            if entered.done():
                raise
            text = f"The setup of task {self.runner.task.name!r} failed ({type(error).__name__}: {error})."
            entered.set_exception(AssayError(text))

    async def close(self) -> None:
        """Leave, if entered."""
        if self._keeper is not None:
            self._leave.set()
            keeper, self._keeper = self._keeper, None
            await keeper


class _Lane:
    """One worker's worth of a `def` task: takes chunks, writes what comes back, replaces a worker that died."""

    def __init__(self, job: Job, name: str, queue: deque[Unit], pool: Pool) -> None:
        self.job = job
        self.name = name
        self.queue = queue
        self.pool = pool
        self.size = 1
        self.begun = False
        self.lost = 0

    async def run(self) -> None:
        while self.queue and not self.job.sink.stopping:
            chunk = [self.queue.popleft() for _ in range(min(self.size, len(self.queue)))]
            left = deque(chunk)
            worker: Worker | None = None
            try:
                async with self.pool.worker() as worker:
                    await self._open(worker)
                    begun = time.perf_counter()
                    await self._chunk(worker, chunk, left)
                    self.lost = 0
                    each = (time.perf_counter() - begun) / len(chunk)
                    self.size = max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(each, 1e-6))))
            except (WorkerLost, TrialTimeout) as lost:
                ours = worker is not None and worker.killed_for is not None
                if self.begun and left:
                    if ours or not self._again(left[0]):
                        self._bury(left.popleft(), lost)
                elif left:
                    # It ended between two trials: none of them is to blame.
                    self._count_loss(lost)
                self.begun = False
                self.queue.extendleft(reversed(left))
                self.size = 1
            except asyncio.CancelledError:
                self.queue.extendleft(reversed(left))
                raise

    async def _open(self, worker: Worker) -> None:
        if getattr(worker, "session", None) is self.job:
            return
        await worker.send(("open", "run", self.job.recipe))
        kind, value = await worker.receive()
        if kind == "raised":
            raise (
                value
                if isinstance(value, AssayError)
                else AssayError(
                    f"A worker could not be set up for task {self.name!r} ({type(value).__name__}: {value})."
                )
            )
        worker.session = self.job  # type: ignore[attr-defined]

    async def _chunk(self, worker: Worker, chunk: list[Unit], left: deque[Unit]) -> None:
        needs = self.job.runners[self.name].task.needs
        sink = self.job.sink
        await worker.send(("units", "run", chunk))
        while True:
            what = "The trial"
            async with watched(worker, seconds=needs.seconds if left else None, memory_gb=needs.memory_gb, what=what):
                message = await worker.receive()
                while message[0] == "progress":
                    sink.shown(*message[1:])
                    message = await worker.receive()
                if message[0] == "begin":
                    self.begun = True
                    # The same limit covers the trial: from its beginning to its records.
                    message = await worker.receive()
                    while message[0] == "progress":
                        sink.shown(*message[1:])
                        message = await worker.receive()
            if message[0] == "end":
                return
            kind, array, statuses, text, _ = message
            unit = left.popleft()
            self.begun = False
            if kind == "fatal":
                sink.stop(text)
            else:
                sink.encoded(array, statuses)
                _tidy(self.job.runners[self.name], unit, [s for s, _ in statuses])

    def _count_loss(self, lost: WorkerLost | TrialTimeout) -> None:
        self.lost += 1
        if self.lost >= STARTS:
            raise AssayError(f"A worker could not be set up for task {self.name!r}, tried {self.lost} times: {lost}")

    def _again(self, unit: Unit) -> bool:
        """Whether a unit whose worker was not ended by a limit gets another one."""
        self.job.losses[unit] += 1
        return self.job.losses[unit] <= self.job.spare

    def _bury(self, unit: Unit, lost: WorkerLost | TrialTimeout) -> None:
        """Error records for the unit under which a worker died."""
        runner = self.job.runners[self.name]
        status = "timeout" if isinstance(lost, TrialTimeout) else "error"
        self.job.sink.records(runner.lost(unit, lost, status))


async def _compute_here(job: Job, name: str, units: list[Unit]) -> None:
    """`def` trials in one thread of this process, setup and all."""
    runner = job.runners[name]
    with ContextThreads(max_workers=1, thread_name_prefix="assay-compute") as thread:
        loop = asyncio.get_running_loop()
        manager = runner.setup_context()
        if manager is not None:
            runner.state = await loop.run_in_executor(thread, manager.__enter__)  # type: ignore[union-attr]
        try:
            for unit in units:
                if job.sink.stopping:
                    return
                try:
                    records = await loop.run_in_executor(thread, runner.run_here, unit)
                except RunStopped as stopped:
                    job.sink.stop(str(stopped))
                    return
                job.sink.records(records)
                _tidy(runner, unit, [r.status for r in records])
        finally:
            if manager is not None:
                await loop.run_in_executor(thread, manager.__exit__, None, None, None)  # type: ignore[union-attr]


def _tidy(runner: TaskRunner, unit: Unit, statuses: list[str]) -> None:
    if not {"error", "timeout"}.intersection(statuses):
        runner.drop_scratch(unit)


def portable(recipe: Recipe) -> Recipe | None:
    """The recipe if worker processes can rebuild it, else None."""
    try:
        data = pickle.dumps(recipe)
    except Exception:
        return None
    # What was defined in a script or notebook pickles by name into __main__, which a worker does not have.
    return None if b"__main__" in data else recipe
