"""Recipes, and the resumable map they stand on: the engine without samples and scores."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.core.benchmark import Benchmark
from assay.core.cache import cache_folder
from assay.core.engine import in_thread
from assay.core.errors import AssayError, UsageError, unknown_name
from assay.core.executors.local import ContextThreads, metered_call
from assay.core.executors.pool import Pool
from assay.core.files import locked
from assay.core.journal import Journal, checked_array, journal_files
from assay.core.metering import RunScope, current_scope
from assay.core.registry import benchmark_class, resolve, typed_options

if TYPE_CHECKING:
    from assay.core.executors.ray_calls import RayCalls


class MapError(AssayError):
    """Some items failed; all others are kept, and calling again does the failed ones only."""


class _Name(msgspec.Struct):
    key: str


class _Entry(_Name):
    value: msgspec.Raw


_names = msgspec.json.Decoder(list[_Name])
_entries = msgspec.json.Decoder(list[_Entry])


def resumable_map(
    fn: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    key: Callable[[Any], str],
    out: Path | str,
    executor: str = "local",
    workers: int | None = None,
    connections: int = 32,
    address: str | None = None,
) -> Iterator[Any]:
    """``fn`` of every item, in order; what is done is on disk within a second and never done again.

    Results are read back one at a time as they are asked for: memory holds the items and their keys, however large
    the results are.

    Parameters
    ----------
    fn
        ``def`` computes (in worker processes where it pickles by name, else here), ``async def`` waits here. Returns
        something JSON-able.
    items
        What to map over.
    key
        Name of an item, stable and unique.
    out
        Folder of the recipe; results are journalled in ``out/.journal``.
    executor
        ``"local"`` or ``"ray"``.
    address
        With Ray: HOST:PORT of the cluster's head, or ``auto``; None = RAY_ADDRESS, else this machine alone.

    Raises
    ------
    MapError
        After everything else is done: how many items failed, and the first failure.
    UsageError
        Another process is at work in the folder; the sentence names it.
    """
    if executor not in ("local", "ray"):
        raise unknown_name("executor", executor, ["local", "ray"])
    if executor == "ray" and not inspect.iscoroutinefunction(fn) and not _importable(fn):
        raise UsageError(f"resumable_map: {fn!r} must be a function of an importable module to go to a Ray cluster.")
    folder = Path(out) / ".journal"
    listed = list(items)
    keys = [key(item) for item in listed]
    if len(set(keys)) != len(keys):
        seen: set[str] = set()
        twice = next(k for k in keys if k in seen or seen.add(k))
        raise UsageError(f"resumable_map: two items have the key {twice!r}; keys must be unique.")
    done = _Finished(folder)
    if any(k not in done for k in keys):
        failures: list[tuple[str, BaseException]] = []
        cluster = (address,) if executor == "ray" else None
        with locked(folder):
            # What another process did until it let go of the lock is done.
            done = _Finished(folder)
            todo = deque((k, item) for k, item in zip(keys, listed) if k not in done)
            with Journal(folder) as journal:
                in_thread(lambda: asyncio.run(_map(fn, todo, journal, failures, workers, connections, cluster)))
        if failures:
            name, error = failures[0]
            raise MapError(
                f"{len(failures)} of {len(listed)} items failed, first {name!r} ({type(error).__name__}: {error}); "
                f"the others are kept in {out}, run the same again to retry."
            ) from error
        done = _Finished(folder)
    return done.values(keys)


class _Finished:
    """Results by key. What is kept in memory is where they stand in the journal, not what they are."""

    def __init__(self, folder: Path) -> None:
        self._files = journal_files(folder)
        self._places: dict[str, tuple[int, int]] = {}
        for number, path in enumerate(self._files):
            place = 0
            with path.open("rb") as file:
                for line in file:
                    array = checked_array(line)
                    if array is not None:
                        self._places |= {entry.key: (number, place) for entry in _names.decode(array)}
                    place += len(line)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def values(self, keys: Iterable[str]) -> Iterator[Any]:
        """One result after the other."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in self._files]
            for key in keys:
                number, place = self._places[key]
                files[number].seek(place)
                entries = _entries.decode(checked_array(files[number].readline()) or b"[]")
                yield from (msgspec.json.decode(entry.value) for entry in entries if entry.key == key)


async def _map(
    fn: Callable[[Any], Any],
    todo: deque[tuple[str, Any]],
    journal: Journal,
    failures: list[tuple[str, BaseException]],
    workers: int | None,
    connections: int,
    cluster: tuple[str | None] | None,
) -> None:
    size = workers if workers is not None else os.cpu_count() or 1
    pool = Pool(size or 1)
    asyncio.get_running_loop().set_default_executor(ContextThreads(max_workers=32))
    scope = RunScope(cache_folder=cache_folder() / "replies", connections=connections)
    scope.shared["loop"] = asyncio.get_running_loop()
    token = current_scope.set(scope)
    calls: RayCalls | None = None
    if inspect.iscoroutinefunction(fn):
        call, width = fn, connections
    elif cluster is not None:
        from assay.core.executors.ray_calls import RayCalls

        calls = await asyncio.to_thread(RayCalls, *cluster, workers)
        call, width = partial(calls.call, fn), calls.width
    elif size and _importable(fn):
        call, width = partial(metered_call, pool, fn), size
    else:
        call, width = partial(asyncio.to_thread, fn), 1

    async def lane() -> None:
        while todo:
            name, item = todo.popleft()
            try:
                journal.write([{"key": name, "value": await call(item)}])
            except Exception as error:
                failures.append((name, error))
                if getattr(error, "fatal", False):
                    todo.clear()

    try:
        await asyncio.gather(*(lane() for _ in range(min(width, len(todo)))))
    finally:
        await scope.close()
        await pool.close()
        if calls is not None:
            await asyncio.to_thread(calls.close)
        current_scope.reset(token)


def _importable(fn: Callable[..., Any]) -> bool:
    try:
        return b"__main__" not in pickle.dumps(fn)
    except Exception:
        return False


def find_recipe(name: str) -> tuple[type[Benchmark], str, Callable[..., None]]:
    """Benchmark, short name and function of the recipe called ``benchmark.recipe``."""
    room, dot, short = name.partition(".")
    if not dot:
        raise UsageError(f"A recipe is named BENCHMARK.RECIPE, like asciieval.items; {name!r} has no dot.")
    cls = benchmark_class(room)
    if short not in cls.recipes:
        raise unknown_name(f"recipe of {room!r}", short, cls.recipes)
    return cls, short, resolve(cls.recipes[short])


def make(name: str, out: Path | str, /, **options: Any) -> Path:
    """Call a recipe and write the manifest of the folder it made; see `assay.make`."""
    cls, short, fn = find_recipe(name)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    typed = typed_options(fn, options, f"recipe {name!r}", skip=1)
    manifest = folder / "manifest.json"
    before = manifest.stat().st_mtime_ns if manifest.exists() else None
    fn(folder, **typed)
    # A recipe that counts and audits writes its own.
    if not manifest.exists() or manifest.stat().st_mtime_ns == before:
        from assay.core.datasets import write_manifest

        write_manifest(folder, recipe=f"{cls.name}.{short}", options={k: str(v) for k, v in typed.items()})
    return folder
