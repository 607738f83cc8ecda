"""A node's share of a run: lanes, pool and event loop of the local executor, fed and emptied by a driver elsewhere.

Nothing here imports Ray: the driver makes an actor of `Agent`, tests call it as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from assay.core.cache import cache_folder
from assay.core.errors import AssayError
from assay.core.execute import TaskRunner, Unit, make_runners, tasks_by_name
from assay.core.executors import kept
from assay.core.executors.local import ContextThreads, Job, LocalExecutor, _Home, _Lane, metered_call
from assay.core.executors.pool import THREAD_VARIABLES, Pool
from assay.core.executors.worker import Parts, Recipe
from assay.core.metering import Call, RunScope, current_scope
from assay.core.store import Artifact, Record

SPARE_WORKERS = 3
"""How often a trial whose worker process was ended from outside gets another one."""
LOG_BYTES = 64 * 1024


@dataclass(frozen=True)
class Share:
    """What a driver asks of an agent.

    Parameters
    ----------
    identity
        Name of the run, unlike that of any other.
    session
        Name of this go at the run: what agents keep for one another is kept for this long.
    lanes
        Trials that compute at a time, each in a worker process of its own.
    connections
        Trials that wait at a time.
    devices
        GPUs a lane; 0 = none, a fraction = several lanes a GPU.
    caching
        Whether model replies are taken from and kept in the request cache.
    environment
        Variables of the driver's environment that trials depend on.
    path
        Where the driver imports from.
    budget
        Reserves and settles as `assay.core.metering.Budget` does; None = no limit.
    """

    identity: str
    session: str
    lanes: int = 1
    connections: int = 1
    devices: float = 0
    caching: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    budget: Any = None


class Delivery(NamedTuple):
    """Records of one unit: key of its first trial, a JSON array for the journal, status and paid dollars a record, and
    the files that the records name."""

    key: tuple[str, int, int]
    array: bytes
    statuses: list[tuple[str, float]]
    files: list[tuple[str, bytes]]


class Reply(NamedTuple):
    """What an agent has to tell: records, progress of long trials, work under way; why the run must stop, and what
    failed outside of trials."""

    deliveries: list[Delivery]
    shown: list[tuple[Any, ...]]
    busy: int
    reason: str | None
    problem: str | None


class _Head(msgspec.Struct):
    task: str
    index: int
    attempt: int


class _Files(msgspec.Struct):
    artifacts: list[Artifact] = []
    rows_file: str | None = None
    output: Any = None
    exchanges: Any = None


_heads = msgspec.json.Decoder(list[_Head])
_files = msgspec.json.Decoder(list[_Files])


def unit_key(unit: Unit) -> tuple[str, int, int]:
    """What a unit is known by between driver and agents: every trial belongs to one unit only."""
    return (unit[0], *unit[1][0])


class Outbox:
    """The agent's sink: keeps records until the driver takes them. ``staging`` holds files that must go along."""

    def __init__(self, staging: Path | None) -> None:
        self.stopping = False
        self.reason: str | None = None
        self.told = asyncio.Event()
        self._staging = staging
        self._deliveries: list[Delivery] = []
        self._shown: dict[tuple[str, str], tuple[Any, ...]] = {}

    def records(self, records: list[Record]) -> None:
        paid = [(r.status, sum(c.paid for c in r.calls)) for r in records]
        self.encoded(msgspec.json.encode(records), paid)

    def encoded(self, array: bytes, statuses: list[tuple[str, float]]) -> None:
        head = _heads.decode(array)[0]
        key = (head.task, head.index, head.attempt)
        self._deliveries.append(Delivery(key, array, statuses, self._files(array)))
        self.told.set()

    def stop(self, reason: str) -> None:
        self.stopping = True
        self.reason = self.reason or reason
        self.told.set()

    def shown(self, name: tuple[str, str], done: float, total: float | None, shown: Mapping[str, Any]) -> None:
        self._shown[name] = (name, done, total, dict(shown))

    def take(self, busy: int, problem: str | None) -> Reply:
        """All that is new."""
        deliveries, self._deliveries = self._deliveries, []
        shown, self._shown = list(self._shown.values()), {}
        self.told.clear()
        return Reply(deliveries, shown, busy, self.reason, problem)

    def _files(self, array: bytes) -> list[tuple[str, bytes]]:
        staging = self._staging
        if staging is None or not any(os.path.isdir(staging / kind) for kind in ("artifacts", "journal")):
            return []
        names: dict[str, None] = {}
        for record in _files.decode(array):
            names.update(dict.fromkeys(a.path for a in record.artifacts))
            if record.rows_file:
                names[record.rows_file] = None
            for value in (record.output, record.exchanges):
                if isinstance(value, dict) and set(value) == {"$file"}:
                    names[value["$file"]] = None
        found = []
        for name in names:
            found.append((name, (staging / name).read_bytes()))
            (staging / name).unlink()
            with contextlib.suppress(OSError):
                (staging / name).parent.rmdir()
        return found


class Agent:
    """Turns units into records on one node, until the driver is gone."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._problem: str | None = None
        self._queues: dict[str, deque[Unit]] = {}
        self._idle: dict[str, list[_Lane]] = {}
        self._waiting: dict[str, list[Unit]] = {}

    async def open(self, recipe: Recipe, share: Share) -> str | None:
        """Build what is run; a sentence when it cannot be built here."""
        try:
            await self._open(recipe, share)
        except AssayError as error:
            return f"Node {platform.node()}: {error}"
        except Exception as error:
            return f"Node {platform.node()} cannot build benchmark or system ({type(error).__name__}: {error})."
        return None

    async def _open(self, recipe: Recipe, share: Share) -> None:
        self._share = share
        for name in THREAD_VARIABLES:
            # Ray sets some of them to the actor's cores, which are many lanes' together.
            os.environ.pop(name, None)
        os.environ.update(share.environment)
        sys.path.extend(p for p in share.path if p not in sys.path)
        self._home = _private_folder(share.identity)
        self._folder = self._home / f"agent-{uuid.uuid4().hex[:12]}"
        self._folder.mkdir(mode=0o700)
        place = recipe.place
        direct = _same_run(place.folder, share.identity)
        staging = None if direct else self._folder / "run"
        if staging is not None:
            if place.outputs is not None:
                raise AssayError(
                    f"{place.folder} is not there, and scoring stored outputs reads its files; put the run on a file "
                    "system that all nodes share, or score with the local executor."
                )
            staging.mkdir()
            scratch = self._home / "scratch"
            scratch.mkdir(exist_ok=True)
            # A checkpoint outlives the agent, and the next one on this node finds it.
            (staging / "scratch").symlink_to(scratch)
        place = replace(place, folder=staging or place.folder, cache_folder=cache_folder() / "content")
        recipe = replace(recipe, place=place)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ContextThreads(max_workers=min(64, share.connections + 4)))
        runners, recipe = await asyncio.to_thread(self._built, recipe)
        self.outbox = Outbox(staging)
        log = self._folder / "workers.log"
        self.job = Job(runners, {}, recipe, self.outbox, log, spare=SPARE_WORKERS)
        self._pool = Pool(share.lanes, log, _devices(share.devices, share.lanes))
        self._slots = asyncio.Semaphore(share.connections)
        self._local = LocalExecutor(share.lanes, share.connections)
        self._homes: dict[str, _Home] = {}
        for runner in runners.values():
            runner.compute = lambda fn, *args, timeout=None: metered_call(self._pool, fn, *args, timeout=timeout)
            runner.report = self.outbox.shown
        self._scope = RunScope(
            budget=share.budget,
            cache_folder=cache_folder() / "replies" if share.caching else None,
            connections=share.connections,
        )
        self._scope.shared["loop"] = loop

    async def exchange(self, units: list[Unit], stopping: bool, patience: float, gather: float) -> Reply:
        """Take on units, and give back what is done.

        Parameters
        ----------
        units
            To do; they are written down nowhere but with the driver.
        stopping
            Begin nothing more.
        patience
            Seconds after which there is an answer, be it empty.
        gather
            Seconds that a first record waits for others.
        """
        self.outbox.stopping = self.outbox.stopping or stopping
        current_scope.set(self._scope)
        self._feed(units)
        outbox = self.outbox
        if self._running:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(outbox.told.wait(), patience)
            end = time.monotonic() + gather
            while self._running and (left := end - time.monotonic()) > 0:
                await asyncio.wait(self._running, timeout=left, return_when=asyncio.ALL_COMPLETED)
        return outbox.take(len(self._running), self._problem)

    async def close(self) -> tuple[str, list[Call]]:
        """Leave setups, end workers, clear away. Returns what workers printed and calls that no trial made."""
        self.outbox.stopping = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for home in self._homes.values():
            await home.close()
        await self._scope.close()
        await self._pool.close()
        log = self._folder / "workers.log"
        text = log.read_bytes()[-LOG_BYTES:].decode(errors="replace") if log.exists() else ""
        # What killed agents left behind goes too; checkpoints of failed trials stay for a retry.
        for path in (*self._home.glob("agent-*"), *self._home.glob("kept-*"), *self._home.glob(".kept-*")):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (self._home / "scratch").rmdir()
        with contextlib.suppress(OSError):
            self._home.rmdir()
        return text, self._scope.unattributed.totals()

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _built(self, recipe: Recipe) -> tuple[dict[str, TaskRunner], Recipe]:
        """Runners, and the recipe for workers. The first agent of a machine loads the data and keeps them for all."""
        folder = self._home / f"kept-{self._share.session}"
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                recipe = replace(recipe, kept=folder)
                parts = recipe.parts()
            else:
                parts = recipe.parts()
                tasks = tasks_by_name(parts.benchmark)
                parts = Parts(parts.benchmark, list(tasks.values()), {n: t.samples() for n, t in tasks.items()})
                if kept.save(parts, folder):
                    recipe = replace(recipe, kept=folder)
                    parts = recipe.parts()
        system = recipe.live(parts.benchmark)
        return make_runners(parts.tasks, system, recipe.place, samples=parts.samples), recipe

    def _feed(self, units: list[Unit]) -> None:
        fresh: set[str] = set()
        for unit in units:
            name = unit[0]
            if self.job.runners[name].is_async:
                self._spawn(self._wait(name, unit))
                continue
            if name not in self._queues:
                queue = self._queues[name] = deque()
                self._idle[name] = [_Lane(self.job, name, queue, self._pool) for _ in range(self._share.lanes)]
            self._queues[name].append(unit)
            fresh.add(name)
        for name in fresh:
            idle = self._idle[name]
            for _ in range(min(len(idle), len(self._queues[name]))):
                self._spawn(self._compute(name, idle.pop()))

    async def _wait(self, name: str, unit: Unit) -> None:
        async with self._slots:
            home = self._homes.get(name)
            if home is None:
                # More trials may come at any time, so the state is left when the agent is closed.
                home = self._homes[name] = _Home(self.job.runners[name], sys.maxsize)
            await self._local._consume(self.outbox, iter([(home, unit)]))

    async def _compute(self, name: str, lane: _Lane) -> None:
        await lane.run()
        self._idle[name].append(lane)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            text = str(error) if isinstance(error, AssayError) else f"{type(error).__name__}: {error}"
            self._problem = self._problem or f"Node {platform.node()}: {text}"
        self.outbox.told.set()


def _private_folder(identity: str) -> Path:
    """This machine's folder for a run: found again by the next agent, readable by nobody else."""
    name = f"assay-{os.geteuid()}-{hashlib.blake2b(identity.encode(), digest_size=10).hexdigest()}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise AssayError(f"{folder} on {platform.node()} belongs to or is open to somebody else; remove it.")
    return folder


def _same_run(folder: Path, identity: str) -> bool:
    """Whether the driver's run folder is there on this machine too."""
    try:
        info = msgspec.json.decode((folder / "run.json").read_bytes())
        return f"{folder.name} {info['created']}" == identity
    except (OSError, KeyError, msgspec.DecodeError):
        return False


def _devices(each: float, lanes: int) -> list[str]:
    """The GPUs that Ray gave this process, shared out among lanes."""
    given = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    if not each or not given:
        return []
    if each < 1:
        return [given[lane // int(1 / each)] for lane in range(lanes)]
    size = int(each)
    return [",".join(given[lane * size : (lane + 1) * size]) for lane in range(lanes)]
