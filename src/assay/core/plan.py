"""Planning: which trials a run consists of, and which of them are still to do. Columns, not objects."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from assay.core.benchmark import Sample, Trial, trial_seed
from assay.core.errors import UsageError, unknown_name
from assay.core.execute import TaskRunner, Unit
from assay.core.frames import group_series
from assay.core.store import Key, check_columns

if TYPE_CHECKING:
    import numpy as np
    import polars as pl


@dataclass(frozen=True)
class Selection:
    """Which samples of each task take part.

    Parameters
    ----------
    limit
        ``"100"`` (so many a task), ``"10-20"`` (a range), ``"0.1"`` (a share); the rule is `assay.core.datasets.limit`.
    ids
        Sample ids or globs; () = all.
    tasks
        Task names or globs; () = all that the system satisfies.
    """

    limit: str | None = None
    ids: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @classmethod
    def of(cls, samples: Selection | int | float | str | Iterable[str] | None, tasks: Iterable[str] = ()) -> Selection:
        """From what `assay.run` takes as ``samples``: a number, a limit, or ids."""
        if isinstance(samples, Selection):
            return samples
        if samples is None:
            return cls(tasks=tuple(tasks))
        if isinstance(samples, (int, float, str)):
            return cls(limit=str(samples), tasks=tuple(tasks))
        return cls(ids=tuple(samples), tasks=tuple(tasks))

    def indices(self, samples: Sequence[Sample], ids: Sequence[str]) -> list[int]:
        """Places of the selected samples, in the task's order."""
        chosen: Iterable[int] = range(len(ids))
        if self.ids:
            exact = set(self.ids)
            globs = [p for p in self.ids if any(c in p for c in "*?[")]
            chosen = [i for i, s in enumerate(ids) if s in exact or any(fnmatch.fnmatchcase(s, g) for g in globs)]
        if self.limit is not None:
            from assay.core.datasets import limit

            picked = list(chosen)
            kept = set(limit([ids[i] for i in picked], self.limit))
            chosen = [i for i in picked if ids[i] in kept]
        return list(chosen)


@dataclass
class TaskPlan:
    """Planned trials of one task: the selected samples times the attempts."""

    runner: TaskRunner
    ids: list[str]
    indices: list[int]
    attempts: int

    @property
    def trials(self) -> int:
        """Number of planned trials."""
        return len(self.indices) * self.attempts


@dataclass
class Plan:
    """All planned trials of a run.

    Parameters
    ----------
    tasks
        By name, in the benchmark's order.
    run_seed
        Seed from which every trial's seed follows.
    """

    tasks: dict[str, TaskPlan]
    run_seed: int

    @property
    def trials(self) -> int:
        """Number of planned trials."""
        return sum(t.trials for t in self.tasks.values())

    def samples_frame(self) -> pl.DataFrame:
        """samples.parquet: task, sample, index, cluster, target (JSON text), one column a group."""
        import polars as pl

        chosen = [(name, t.runner.samples[i], i) for name, t in self.tasks.items() for i in t.indices]
        groups: dict[str, None] = {}
        for _, sample, _ in chosen:
            if sample.groups:
                groups.update(dict.fromkeys(sample.groups))
        check_columns(groups, "Sample groups")
        encode = msgspec.json.Encoder(order="deterministic").encode
        frame = pl.DataFrame(
            {
                "task": [name for name, _, _ in chosen],
                "sample": [s.id for _, s, _ in chosen],
                "index": [i for _, _, i in chosen],
                "cluster": [s.id if s.cluster is None else s.cluster for _, s, _ in chosen],
                "target": [None if s.target is None else encode(s.target).decode() for _, s, _ in chosen],
            },
            schema={
                "task": pl.String,
                "sample": pl.String,
                "index": pl.Int64,
                "cluster": pl.String,
                "target": pl.String,
            },
        )
        return frame.with_columns([group_series(g, [s.groups.get(g) for _, s, _ in chosen]) for g in groups])

    def done(self, keys: Iterable[Key], *, retry_errors: bool = False) -> dict[str, np.ndarray]:
        """A boolean array (selected samples, attempts) a task: which planned trials are finished."""
        import numpy as np

        place = {name: {t.ids[i]: row for row, i in enumerate(t.indices)} for name, t in self.tasks.items()}
        done = {name: np.zeros((len(t.indices), t.attempts), dtype=bool) for name, t in self.tasks.items()}
        for key in keys:
            rows = place.get(key.task)
            if rows is None:
                continue
            row = rows.get(key.sample)
            if row is None or key.attempt >= self.tasks[key.task].attempts:
                continue
            done[key.task][row, key.attempt] = not (retry_errors and key.status in ("error", "timeout"))
        return done

    def pending(self, done: Mapping[str, np.ndarray]) -> dict[str, list[Unit]]:
        """Units still to do, a task. Attempts go round by round, so that a run cut short has seen every sample."""
        return {name: self._pending(name, plan, done[name]) for name, plan in self.tasks.items()}

    def _pending(self, name: str, plan: TaskPlan, done: np.ndarray) -> list[Unit]:
        import numpy as np

        if not plan.runner.batched:
            attempts, rows = np.nonzero(~done.T)
            indices = plan.indices
            return [(name, ((indices[row], attempt),)) for attempt, row in zip(attempts.tolist(), rows.tolist())]
        # Batches follow from the plan alone, never from what happens to be pending.
        task, samples = plan.runner.task, plan.runner.samples
        batches: dict[Any, list[tuple[int, int]]] = {}
        missing: set[Any] = set()
        for attempt in range(plan.attempts):
            for row, index in enumerate(plan.indices):
                sample = samples[index]
                seed = trial_seed(self.run_seed, name, sample.id, attempt)
                key = task.batch_key(Trial(name, sample, index, attempt, seed))
                batches.setdefault(key, []).append((index, attempt))
                if not done[row, attempt]:
                    missing.add(key)
        return [(name, tuple(members)) for key, members in batches.items() if key in missing]


def make_plan(runners: Mapping[str, TaskRunner], selection: Selection, attempts: int | None, run_seed: int) -> Plan:
    """Plan the selected samples of every task.

    Raises
    ------
    UsageError
        Nothing selected, an unknown task, an id that occurs twice, attempts below 1.
    """
    if attempts is not None and attempts < 1:
        raise UsageError(f"attempts must be at least 1, not {attempts}.")
    names = [n for n in runners if not selection.tasks or any(fnmatch.fnmatchcase(n, g) for g in selection.tasks)]
    for pattern in selection.tasks:
        if not any(fnmatch.fnmatchcase(n, pattern) for n in runners):
            raise unknown_name("task", pattern, runners)
    plans: dict[str, TaskPlan] = {}
    for name in names:
        runner = runners[name]
        ids = [s.id for s in runner.samples]
        if len(set(ids)) != len(ids):
            seen: set[str] = set()
            twice = next(i for i in ids if i in seen or seen.add(i))
            raise UsageError(f"Task {name!r} has two samples with the id {twice!r}; ids must be unique.")
        plans[name] = TaskPlan(runner, ids, selection.indices(runner.samples, ids), attempts or runner.task.attempts)
    if not sum(len(p.indices) for p in plans.values()):
        what = ", ".join(selection.ids) or selection.limit or "this selection"
        raise UsageError(f"No sample matches {what}; `assay info BENCHMARK --samples` lists the ids.")
    for pattern in selection.ids:
        if not any(c in pattern for c in "*?[") and not any(pattern in set(p.ids) for p in plans.values()):
            every = [i for p in plans.values() for i in p.ids]
            raise unknown_name("sample", pattern, every[:5000])
    return Plan(plans, run_seed)


def fingerprint(value: Any) -> str:
    """Short hash of a JSON-able value or of a samples frame; equal content, equal fingerprint."""
    if hasattr(value, "write_ndjson"):
        import polars as pl

        columns = sorted(set(value.columns) - {"index"})
        cells = [pl.col(c).cast(pl.String).fill_null("\x00") for c in columns]
        lines = value.sort("task", "sample").select(pl.concat_str(cells, separator="\x1f")).to_series()
        data = "\n".join(["\x1f".join(columns), *lines.to_list()]).encode()
    else:
        data = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(data, digest_size=8).hexdigest()
