"""The worker process: reads messages from its parent, computes, answers. Ends when the parent does."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from assay.core.benchmark import Sample, Task
from assay.core.execute import Place, RunStopped, TaskRunner, Unit, make_runners
from assay.core.executors import kept
from assay.core.executors.pool import _length, pack
from assay.core.metering import Meter, metered

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Parts:
    """A benchmark as built: itself, its tasks and their samples by task, which share what they loaded."""

    benchmark: Any
    tasks: Sequence[Task]
    samples: Mapping[str, Sequence[Sample]]


@dataclass(frozen=True)
class Recipe:
    """How a worker rebuilds what is run: by name where there are names, pickled objects otherwise.

    ``loader`` is ``"module:function"`` with the signature of `assay.systems.loading.load`; the ground floor imports
    nothing above it. ``kept`` is a folder where somebody on this machine left the `Parts`.
    """

    benchmark: Any
    options: dict[str, Any]
    system: Any
    loader: str
    place: Place
    kept: Path | None = None

    def parts(self) -> Parts:
        """Benchmark, tasks and the samples of those that somebody built already."""
        from assay.core.registry import load_benchmark

        if self.kept is not None:
            return kept.load(self.kept)
        benchmark = (
            load_benchmark(self.benchmark, **self.options) if isinstance(self.benchmark, str) else self.benchmark
        )
        return Parts(benchmark, benchmark.tasks(), {})

    def live(self, benchmark: Any) -> Any:
        """The system."""
        from assay.core.registry import resolve

        system = self.system
        return resolve(self.loader)(system, benchmark=benchmark) if isinstance(system, str) else system


class Session:
    """What a worker keeps between messages: runners by task, entered setups."""

    def __init__(self, recipe: Recipe, send: Any) -> None:
        parts = recipe.parts()
        system = recipe.live(parts.benchmark)
        self.runners = make_runners(
            parts.tasks, system, recipe.place, report=lambda *a: send(("progress", *a)), samples=parts.samples
        )
        self.stack = contextlib.ExitStack()
        self.ready: set[str] = set()

    def runner(self, task: str) -> TaskRunner:
        """The runner of a task, its setup entered on first use."""
        runner = self.runners[task]
        if task not in self.ready:
            manager = runner.setup_context()
            if manager is not None:
                runner.state = self.stack.enter_context(manager)  # type: ignore[arg-type]
            self.ready.add(task)
        return runner


def run_unit(session: Session, unit: Unit) -> tuple[str, bytes, list[tuple[str, float]], str]:
    """One unit as (kind, journal-ready JSON array, status and paid dollars a record, message of a fatal error, whose
    records stand for nothing)."""
    _reset_peak()
    message, kind = "", "done"
    try:
        records = session.runner(unit[0]).run_here(unit)
    except RunStopped as stopped:
        records, message, kind = stopped.records, str(stopped), "fatal"
    peak = _peak_mb()
    for record in records:
        record.peak_memory_mb = peak
    return kind, msgspec.json.encode(records), [(r.status, sum(c.paid for c in r.calls)) for r in records], message


def serve(channel: socket.socket) -> None:
    """Answer messages until told to stop or the parent is gone."""
    file = channel.makefile("rb")
    sessions: dict[str, Session] = {}

    def send(message: Any) -> None:
        channel.sendall(pack(message))

    while True:
        head = file.read(_length.size)
        if len(head) < _length.size:
            break
        # The parent is the only writer of this socket pair.
        data = file.read(_length.unpack(head)[0])
        try:
            message = pickle.loads(data)  # noqa: S301
        except Exception as error:
            send(("raised", _portable(error)))
            continue
        match message:
            case ("stop",):
                break
            case ("call", fn, args):
                try:
                    with metered(Meter()) as meter:
                        value = fn(*args)
                    send(("result", (value, meter.totals())))
                except Exception as error:
                    send(("raised", _portable(error)))
            case ("open", name, recipe):
                try:
                    if name not in sessions:
                        sessions[name] = Session(recipe, send)
                    send(("opened", None))
                except Exception as error:
                    send(("raised", _portable(error)))
            case ("units", name, units):
                for number, unit in enumerate(units):
                    send(("begin", number))
                    with metered(Meter()):
                        send((*run_unit(sessions[name], unit), number))
                send(("end", None))
    for session in sessions.values():
        session.stack.close()


def _portable(error: Exception) -> Exception:
    """The error itself where it survives pickling, else its text: a worker must always be able to answer."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    except (OSError, ValueError):
        pass
    return None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        # A parent that is killed takes its workers along, even in the middle of a long trial.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    importlib.invalidate_caches()
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        serve(channel)
    except (BrokenPipeError, ConnectionError):
        os._exit(1)


if __name__ == "__main__":
    # Under its importable name, so that pickled classes of this module are the same ones.
    from assay.core.executors.worker import main as importable_main

    importable_main()
