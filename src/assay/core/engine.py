"""How a run is carried out: settings, progress, the sink that writes records, the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.core.collector import collector_relaxed
from assay.core.errors import StorageError, UsageError, unknown_name
from assay.core.executors.local import Job, LocalExecutor
from assay.core.interrupts import Interrupts
from assay.core.journal import Journal
from assay.core.metering import RunScope, current_scope
from assay.core.store import Record

INTERRUPT = "interrupted from outside"
PROGRESS_SECONDS = 0.1


class Progress(Protocol):
    """Told how a run goes: by the command line a bar, by default nothing."""

    def start(self, total: int, done: int) -> None: ...

    def update(self, state: ProgressState) -> None: ...

    def finish(self, state: ProgressState) -> None: ...


@dataclass
class ProgressState:
    """Counts of a run going on. ``paid`` is in US dollars; ``shown`` holds what long trials tell."""

    total: int
    done: int
    errors: int = 0
    paid: float = 0.0
    seconds: float = 0.0
    shown: dict[str, str] = field(default_factory=dict)


class Watched:
    """A progress whose watcher may leave (a pipe that is closed, a terminal that is gone): then nobody is told."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def start(self, total: int, done: int) -> None:
        self._tell("start", total, done)

    def update(self, state: ProgressState) -> None:
        self._tell("update", state)

    def finish(self, state: ProgressState) -> None:
        self._tell("finish", state)

    def _tell(self, what: str, *facts: Any) -> None:
        if self._progress is not None:
            try:
                getattr(self._progress, what)(*facts)
            except OSError:
                self._progress = None


class RunSink:
    """Writes records to the journal, counts, and stops the run at too many errors."""

    def __init__(self, journal: Journal, state: ProgressState, progress: Progress, max_errors: float | None) -> None:
        self.stopping = False
        self.reason: str | None = None
        self._journal = journal
        self._state = state
        self._progress = progress
        self._max_errors = max_errors
        self._begun = self._last = time.monotonic()

    def records(self, records: list[Record]) -> None:
        with self._stopping_if_refused():
            self._journal.write(records)
        self._count([(r.status, sum(c.paid for c in r.calls)) for r in records])

    def encoded(self, array: bytes, statuses: list[tuple[str, float]]) -> None:
        with self._stopping_if_refused():
            self._journal.write_encoded(array)
        self._count(statuses)

    @contextlib.contextmanager
    def _stopping_if_refused(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            self.stop(str(error))
            raise

    def stop(self, reason: str) -> None:
        self.stopping = True
        self.reason = self.reason or reason

    def shown(self, name: tuple[str, str], done: float, total: float | None, shown: Mapping[str, Any]) -> None:
        parts = [f"{done:g}/{total:g}" if total is not None else f"{done:g}", *(f"{k} {v}" for k, v in shown.items())]
        self._state.shown["/".join(name)] = " ".join(parts)
        while len(self._state.shown) > 4:
            self._state.shown.pop(next(iter(self._state.shown)))
        self._tick()

    def _count(self, statuses: list[tuple[str, float]]) -> None:
        state = self._state
        state.done += len(statuses)
        for status, paid in statuses:
            state.paid += paid
            if status in ("error", "timeout"):
                state.errors += 1
        if self._max_errors is not None and state.errors > self._max_errors and not self.stopping:
            self.stop(f"{state.errors} trials ended in an error, more than the {self._max_errors:g} allowed.")
        self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            self._state.seconds = now - self._begun
            self._progress.update(self._state)

    def finish(self) -> None:
        self._state.seconds = time.monotonic() - self._begun
        self._progress.finish(self._state)


@dataclass(frozen=True)
class Engine:
    """How a run is carried out; none of it changes a score.

    Parameters
    ----------
    executor
        ``"local"``, ``"ray"`` or an executor object.
    address
        With Ray: HOST:PORT of the cluster's head, or ``auto``; None = RAY_ADDRESS, else this machine alone.
    connections
        Requests in flight at most; adaptation goes on below it.
    workers
        Worker processes; None = one a core, 0 = compute in this process.
    max_errors
        Stop when more trials than this failed (``10``), or a larger share of the plan (``"10%"``).
    budget
        US dollars (``5``, ``"5usd"``); never passed.
    cache
        Whether model replies are taken from and kept in the request cache.
    tries
        Times a trial is tried that raises an unexpected exception.
    progress
        Told how it goes.
    """

    executor: Any = "local"
    address: str | None = None
    connections: int = 32
    workers: int | None = None
    max_errors: int | str | None = None
    budget: float | str | None = None
    cache: bool = True
    tries: int = 2
    progress: Progress | None = None

    def make_executor(self) -> Any:
        """The executor object."""
        if not isinstance(self.executor, str):
            return self.executor
        if self.executor == "ray":
            from assay.core.executors.ray import RayExecutor

            return RayExecutor(self.address, self.workers, self.connections)
        if self.executor != "local":
            raise unknown_name("executor", self.executor, ["local", "ray"])
        if self.address is not None:
            raise UsageError(f"An address ({self.address}) goes with the executor ray.")
        return LocalExecutor(self.workers, self.connections)

    def dollars(self) -> float | None:
        """The budget as a number."""
        if self.budget is None:
            return None
        text = str(self.budget).lower().replace("usd", "").replace("$", "").strip()
        try:
            dollars = float(text)
        except ValueError:
            dollars = -1.0
        if not 0 <= dollars < float("inf"):
            raise UsageError(f"The budget must be an amount of US dollars like 5 or 5usd, not {self.budget!r}.")
        return dollars

    def errors_allowed(self, total: int) -> float | None:
        """`max_errors` as a number of trials."""
        if self.max_errors is None:
            return None
        text = str(self.max_errors).strip()
        try:
            return float(text[:-1]) / 100 * total if text.endswith("%") else int(text)
        except ValueError:
            raise UsageError(
                f"max_errors must be a number of trials or a share like 10%, not {self.max_errors!r}."
            ) from None


def run_loop(job: Job, engine: Engine, scope: RunScope, interrupts: Interrupts) -> None:
    """Run the executor on an event loop of its own, in this thread or, inside a running loop, in another."""
    executor = engine.make_executor()

    async def main() -> None:
        token = current_scope.set(scope)
        loop = asyncio.get_running_loop()
        scope.shared["loop"] = loop

        def obey() -> None:
            job.sink.stop(INTERRUPT)
            if interrupts.urgent or job.patient:
                executor.cancel()

        def wake() -> None:
            # From a signal handler, and perhaps from another thread; a loop that is closed has nothing left to stop.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(obey)

        interrupts.listener = wake
        if interrupts.presses:
            obey()
        try:
            with collector_relaxed():
                await executor.run(job)
        finally:
            await scope.close()
            current_scope.reset(token)

    try:
        in_thread(lambda: asyncio.run(main()))
    finally:
        interrupts.listener = None


def in_thread(fn: Callable[[], Any]) -> Any:
    """Call ``fn`` here, or in a thread when an event loop runs here already (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return fn()
    result: list[Any] = []
    problem: list[BaseException] = []

    def call() -> None:
        try:
            result.append(fn())
        except BaseException as error:
            problem.append(error)

    thread = threading.Thread(target=call, name="assay-run")
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return result[0]
