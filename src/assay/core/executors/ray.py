"""Ray executor: one agent a node does what the local executor does; the driver plans, feeds, and writes the journal.

A trial may be executed more than once (its agent was lost, or the answer on its way), its records are written once: a
unit is owed by one agent at a time, and what an agent delivers that it does not owe is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from assay.core.benchmark import Needs
from assay.core.errors import AssayError, UsageError
from assay.core.execute import Unit
from assay.core.executors.local import Job, LocalExecutor
from assay.core.executors.ray_agent import Agent, Delivery, Reply, Share, unit_key
from assay.core.executors.ray_budget import RemoteBudget, Treasury
from assay.core.executors.ray_calls import connect, environment
from assay.core.executors.worker import Recipe
from assay.core.metering import Budget, Meter, current_scope
from assay.core.store import write_atomically

AHEAD_SECONDS = 1.0
"""Work that an agent holds beyond its lanes: enough to hide the way to the driver, little to lose with a node."""
MOST_AHEAD = 20_000
PATIENCE_SECONDS = 1.0
GATHER_SECONDS = 0.1
EXCHANGES_A_SECOND = 1_000
LOOK_SECONDS = 1.0
OPEN_SECONDS = 300.0
CLOSE_SECONDS = 20.0
STUCK_SECONDS = 120.0
MOST_FRUITLESS = 40
NODES_SECONDS = 300.0


class Place(NamedTuple):
    """A node that has room: its id, name, the lanes it holds, and what Ray resources are free."""

    node: str
    name: str
    lanes: int
    free: dict[str, float]


@dataclass
class Held:
    """An agent as the driver sees it; ``owed`` are the units that it was given and has not delivered."""

    name: str
    place: Place
    lanes: int
    connections: int
    handle: Any
    owed: dict[tuple[str, int, int], Unit] = field(default_factory=dict)
    rate: float = 0.0
    told: float = field(default_factory=time.monotonic)

    def wants(self, width: int) -> int:
        """Units that it should be given now."""
        ahead = min(MOST_AHEAD, int(self.rate * AHEAD_SECONDS))
        return width + ahead - len(self.owed)

    def delivered(self, units: int) -> None:
        """Note how fast it is."""
        now = time.monotonic()
        self.rate = (self.rate + units / max(now - self.told, 1e-3)) / 2
        self.told = now


@dataclass
class RayExecutor:
    """Runs a job on a Ray cluster.

    Parameters
    ----------
    address
        HOST:PORT of the cluster's head, or ``auto``; None = RAY_ADDRESS, else a cluster of this machine alone, made for
        the run. The driver runs on a node of the cluster.
    workers
        Trials that compute at a time, on all nodes together; None = what their cores, GPUs and memory hold.
    connections
        Trials that wait at a time, on all nodes together.
    """

    address: str | None = None
    workers: int | None = None
    connections: int = 32
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, repr=False)
    _local: LocalExecutor | None = field(default=None, repr=False)

    async def run(self, job: Job) -> None:
        """Turn every pending unit into records, or stop early when the sink says so."""
        if job.patient:
            # People come to this machine, and nothing is computed meanwhile.
            self._local = LocalExecutor(self.workers, self.connections)
            return await self._local.run(job)
        if job.recipe is None:
            raise UsageError(
                "This benchmark or system can only live in this process (it does not pickle, or was defined in a "
                "script or notebook); give names, or objects of an importable module, or use executor='local'."
            )
        # In a thread: starting takes seconds, and in the main thread Ray would take over the signals.
        ray, ours = await asyncio.to_thread(connect, self.address, self.workers)
        session = uuid.uuid4().hex[:12]
        try:
            for needs, waits, units in stages(job):
                if job.sink.stopping:
                    break
                stage = _Stage(ray, job, job.recipe, session, needs, waits, units, self.workers, self.connections)
                task = asyncio.create_task(stage.run())
                self._tasks.add(task)
                try:
                    await task
                except asyncio.CancelledError:
                    if not job.sink.stopping:
                        raise
                finally:
                    self._tasks.discard(task)
        finally:
            if ours:
                await asyncio.to_thread(ray.shutdown)

    def cancel(self) -> None:
        """Drop what is in flight; it stays pending."""
        if self._local is not None:
            self._local.cancel()
        for task in list(self._tasks):
            task.cancel()


def stages(job: Job) -> Iterator[tuple[Needs, bool, list[Unit]]]:
    """What goes on at a time: tasks of equal needs, those that wait (True) before those that compute."""
    together: dict[tuple[bool, bool, Needs], list[Unit]] = {}
    for name, units in job.pending.items():
        if units:
            runner = job.runners[name]
            # Limits in seconds are the lanes' business, a trial.
            needs = replace(runner.task.needs, seconds=None)
            together.setdefault((not runner.is_async, needs.exclusive, needs), []).extend(units)
    for kind in sorted(together, key=lambda k: k[:2]):
        yield kind[2], not kind[0], together[kind]


def room(free: Mapping[str, float], needs: Needs) -> int:
    """Trials that what is free on a node holds at a time."""
    if needs.exclusive:
        return int(all(free.get(k, 0) >= v for k, v in resources(replace(needs, exclusive=False), 1, {}).items()))
    holds = [free.get("CPU", 0) / (needs.cpus or 1)]
    if needs.gpus:
        gpus = free.get("GPU", 0)
        # Lanes share a GPU, never a lane several parts.
        holds.append(int(gpus) * int(1 / needs.gpus) if needs.gpus < 1 <= gpus else gpus / needs.gpus)
    if needs.memory_gb:
        holds.append(free.get("memory", 0) / (needs.memory_gb * 2**30))
    return int(min(holds) + 1e-9)


def resources(needs: Needs, lanes: int, free: Mapping[str, float]) -> dict[str, float]:
    """Ray resources of so many lanes; a task that must be alone takes all cores that are ``free``."""
    gpus = lanes * needs.gpus
    cpus = max(free.get("CPU", 0), needs.cpus) if needs.exclusive else lanes * (needs.cpus or 1)
    # Ray gives out parts of one GPU, or whole ones.
    return {"CPU": cpus, "GPU": math.ceil(gpus) if gpus > 1 else gpus, "memory": lanes * (needs.memory_gb or 0) * 2**30}


def _words(needs: Needs) -> str:
    gpus = f", {needs.gpus:g} GPUs" if needs.gpus else ""
    memory = f", {needs.memory_gb:g} GB" if needs.memory_gb else ""
    return f"{needs.cpus or 1:g} cores{gpus}{memory}"


def _most(nodes: Sequence[Mapping[str, float]], kind: str) -> float:
    return max((n.get(kind, 0) for n in nodes), default=0)


class _Stage:
    """One stage of a job: agents on all nodes with room, a queue, and what each agent owes."""

    def __init__(
        self,
        ray: Any,
        job: Job,
        recipe: Recipe,
        session: str,
        needs: Needs,
        waits: bool,
        units: list[Unit],
        workers: int | None,
        connections: int,
    ) -> None:
        self.ray = ray
        self.job = job
        self.needs = needs
        self.waits = waits
        self.queue = deque(units)
        self.left = len(units)
        self.session = session
        self.workers = workers
        self.connections = 1 if needs.exclusive else connections
        self.agents: dict[str, Held] = {}
        self.refused: dict[str, str] = {}
        self.changed = asyncio.Event()
        self.fruitless = 0
        scope = current_scope.get()
        self.unattributed = scope.unattributed if scope is not None else Meter()
        self.caching = scope is not None and scope.cache_folder is not None
        self.recipe = ray.put(recipe)
        self.identity = recipe.place.run
        self.folder = recipe.place.folder
        self.budget = scope.budget if waits and scope is not None else None
        self.treasury = None if self.budget is None else self._treasury(self.budget)
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until nothing is left, or the sink says stop and what was begun is done."""
        sink = self.job.sink
        first, seen = True, time.monotonic()
        try:
            while self.left and (self.tasks or not sink.stopping):
                if not sink.stopping:
                    await self._look(first)
                    first = False
                if self.fruitless >= MOST_FRUITLESS:
                    tasks = sorted({name for name, _ in self.queue})
                    raise AssayError(
                        f"Agents of the Ray cluster were lost {self.fruitless} times without one record in between, at "
                        f"trials of {', '.join(tasks)}: a trial may end the process it waits in. Resume to try again."
                    )
                if self.agents:
                    seen = time.monotonic()
                elif time.monotonic() - seen > NODES_SECONDS:
                    raise AssayError(
                        f"No node of the Ray cluster had room for {_words(self.needs)} for {NODES_SECONDS:g} s; "
                        "resume when there are nodes again."
                    )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), LOOK_SECONDS)
                self.changed.clear()
                for task in [t for t in self.tasks if t.done()]:
                    self.tasks.discard(task)
                    task.result()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            held, self.agents = list(self.agents.values()), {}
            await asyncio.gather(*(self._close(agent) for agent in held))

    # -- nodes -----------------------------------------------------------------------------------------------------

    async def _look(self, first: bool) -> None:
        """Give every node that has room an agent."""
        try:
            places, nodes = await asyncio.to_thread(self._places)
        except Exception as error:
            raise AssayError(
                f"The head of the Ray cluster does not answer ({type(error).__name__}: {error}); resume when it does."
            ) from error
        if first and not any(room(total, self.needs) for total in nodes):
            raise UsageError(
                f"No node of the Ray cluster can hold a trial that needs {_words(self.needs)}; of what there is, the "
                f"most are {_most(nodes, 'CPU'):g} cores, {_most(nodes, 'GPU'):g} GPUs and "
                f"{_most(nodes, 'memory') / 2**30:.1f} GB."
            )
        if self.refused and not self.agents and not places:
            raise AssayError(next(iter(self.refused.values())))
        lanes_left = math.inf if self.workers is None else self.workers - sum(a.lanes for a in self.agents.values())
        waits_left = self.connections - sum(a.connections for a in self.agents.values())
        for number, place in enumerate(places):
            others = len(places) - number
            lanes = place.lanes if self.workers is None else min(place.lanes, math.ceil(lanes_left / others))
            connections = math.ceil(waits_left / others)
            if lanes > 0 and connections > 0:
                lanes_left, waits_left = lanes_left - lanes, waits_left - connections
                self._hire(place, lanes, connections)

    def _places(self) -> tuple[list[Place], list[dict[str, float]]]:
        """Nodes that have room for lanes and no agent yet, and what each living node has in all."""
        # Ray tells what is free a node nowhere else.
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
        alive = [n for n in self.ray.nodes() if n["Alive"]]
        places = []
        for node in alive:
            identity = node["NodeID"]
            if identity in self.agents or identity in self.refused or not free.get(identity):
                continue
            if lanes := room(free[identity], self.needs):
                places.append(Place(identity, node["NodeManagerHostname"], lanes, free[identity]))
        return places, [n["Resources"] for n in alive]

    def _hire(self, place: Place, lanes: int, connections: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        wanted = resources(self.needs, lanes, place.free)
        options: dict[str, Any] = {
            "num_cpus": wanted["CPU"],
            "num_gpus": wanted["GPU"],
            "max_concurrency": 8,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(place.node, soft=False),
        }
        if wanted["memory"]:
            options["memory"] = wanted["memory"]
        name = uuid.uuid4().hex[:12]
        budget = None if self.budget is None else RemoteBudget(self.treasury, name, self.budget.limit)
        share = Share(
            self.identity, self.session, lanes, connections, self.needs.gpus, self.caching, environment(),
            tuple(p for p in sys.path if p), budget,
        )  # fmt: skip
        agent = Held(name, place, lanes, connections, self.ray.remote(Agent).options(**options).remote())
        self.agents[place.node] = agent
        task = asyncio.create_task(self._serve(agent, share))
        self.tasks.add(task)
        task.add_done_callback(lambda _: self.changed.set())

    # -- one agent -------------------------------------------------------------------------------------------------

    async def _serve(self, agent: Held, share: Share) -> None:
        from ray.exceptions import RayError, RayTaskError

        sink = self.job.sink
        try:
            refused = await asyncio.wait_for(agent.handle.open.remote(self.recipe, share), OPEN_SECONDS)
            if refused is not None:
                # That node is left out; when all are, that is the error of the run.
                self.refused[agent.place.node] = refused
                return self._lost(agent)
            agent.told = time.monotonic()
            while self.left:
                units = [] if sink.stopping else self._next(agent)
                agent.owed.update((unit_key(unit), unit) for unit in units)
                if not agent.owed:
                    if sink.stopping:
                        return None
                    # What others owe may come back.
                    await asyncio.sleep(GATHER_SECONDS)
                    agent.told = time.monotonic()
                    continue
                gather = max(GATHER_SECONDS, len(self.agents) / EXCHANGES_A_SECOND)
                answer = agent.handle.exchange.remote(units, sink.stopping, PATIENCE_SECONDS, gather)
                # An agent that is there and says nothing (its machine hangs) is as lost as one that is gone.
                reply = await asyncio.wait_for(answer, STUCK_SECONDS + gather)
                self._accept(agent, reply)
                if sink.stopping and not reply.busy:
                    return None
        except RayTaskError:
            raise
        except (RayError, TimeoutError):
            self._lost(agent)

    def _next(self, agent: Held) -> list[Unit]:
        """Units for an agent: what it wants, but near the end a fair part of what is left."""
        width = agent.connections if self.waits else agent.lanes
        fair = max(width - len(agent.owed), len(self.queue) // (2 * max(1, len(self.agents))))
        count = max(0, min(agent.wants(width), fair, len(self.queue)))
        return [self.queue.popleft() for _ in range(count)]

    def _accept(self, agent: Held, reply: Reply) -> None:
        sink = self.job.sink
        for shown in reply.shown:
            sink.shown(*shown)
        agent.delivered(len(reply.deliveries))
        for delivery in reply.deliveries:
            if agent.owed.pop(delivery.key, None) is None:
                continue
            self.fruitless = 0
            self._unpack(delivery)
            sink.encoded(delivery.array, delivery.statuses)
            self.left -= 1
        if not self.left:
            self.changed.set()
        if reply.reason:
            sink.stop(reply.reason)
        if reply.problem:
            raise AssayError(reply.problem)

    def _unpack(self, delivery: Delivery) -> None:
        """Files of a record into the run's folder, before the record."""
        root = self.folder.resolve()
        for name, content in delivery.files:
            path = root / name
            if not path.resolve().is_relative_to(root):
                raise AssayError(f"An agent delivered a file named {name!r}, which lies outside {root}.")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)

    def _lost(self, agent: Held) -> None:
        """What a lost agent owed is to do again, before anything else."""
        self.fruitless += bool(agent.owed)
        self.queue.extendleft(reversed(agent.owed.values()))
        agent.owed.clear()
        self.agents.pop(agent.place.node, None)
        with contextlib.suppress(Exception):
            self.ray.kill(agent.handle)
            if self.treasury is not None:
                self.treasury.forfeit.remote(agent.name)
        self.changed.set()

    async def _close(self, agent: Held) -> None:
        with contextlib.suppress(Exception):
            text, calls = await asyncio.wait_for(agent.handle.close.remote(), CLOSE_SECONDS)
            for call in calls:
                self.unattributed.add(call)
            if text and self.job.log is not None:
                with self.job.log.open("a") as log:
                    log.write(f"-- node {agent.place.name}\n{text}")
        self.ray.kill(agent.handle)

    def _treasury(self, budget: Budget) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=False)
        treasury = self.ray.remote(Treasury).options(num_cpus=0, scheduling_strategy=here)
        return treasury.remote(budget.limit, budget.spent)
