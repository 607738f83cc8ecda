"""Run and Runs: what has been measured, read back from run folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from assay.core.benchmark import Metric
from assay.core.errors import DataError, UsageError, unknown_name
from assay.core.files import is_locked
from assay.core.frames import KEY, one_type_a_column
from assay.core.registry import benchmark_class, load_benchmark
from assay.core.store import Store, load_output

if TYPE_CHECKING:
    import polars as pl

    from assay.core.metrics import Score

TEXTS = ("exchanges", "output", "target")


class Run:
    """One execution of one benchmark on one system: a folder.

    Parameters
    ----------
    path
        The run folder.

    Attributes
    ----------
    info : dict
        The manifest, run.json.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._store = Store(self.path)
        self.info: dict[str, Any] = self._store.read_info()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.benchmark} on {self.system}, {self.status})"

    @property
    def id(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def benchmark(self) -> str:
        """Name of the benchmark."""
        return self.info["benchmark"]

    @property
    def system(self) -> str:
        """Name of the system."""
        return self.info["system"]

    @property
    def status(self) -> str:
        """running, finished or interrupted; a run whose process was killed is interrupted, whatever it last wrote."""
        status = self.info["status"]
        return "interrupted" if status == "running" and not is_locked(self.path) else status

    @cached_property
    def records(self) -> pl.DataFrame:
        """One row a trial: key, cluster, groups, scores, status, measurements, calls, output, target."""
        return self._store.read_records()

    @cached_property
    def measures(self) -> pl.DataFrame:
        """`records` without their texts (exchanges, output, target), which may be many times as large as all else."""
        if "records" in self.__dict__ or not self._store.compacted:
            return self.records.drop(TEXTS, strict=False)  # a run in memory may lack them
        return self._store.read_compacted(without=TEXTS)

    def measures_for(self, metrics: Iterable[Metric]) -> pl.DataFrame:
        """`measures`, or all columns where a metric may read texts."""
        return self.records if any(map(_reads_texts, metrics)) else self.measures

    def with_texts(self, some: pl.DataFrame) -> pl.DataFrame:
        """A few rows of `measures`, their texts beside them."""
        if set(TEXTS) <= set(some.columns):
            return some
        if "records" in self.__dict__ or not self._store.compacted:
            texts = self.records.select(*KEY, *TEXTS)
        else:
            place = (
                self.measures.select(KEY).with_row_index("place").join(some.select(KEY), on=KEY, how="semi")["place"]
            )
            texts = self._store.read_places(place.to_list(), [*KEY, *TEXTS])
        return some.join(texts, on=KEY, how="left", maintain_order="left")

    @cached_property
    def samples(self) -> pl.DataFrame:
        """One row a planned sample: task, sample, index, cluster, target, groups."""
        return self._store.read_samples()

    def rows(self, task: str) -> pl.DataFrame:
        """The finer table of one task: sample, attempt and the task's own columns."""
        if task not in self.info["tasks"]:
            raise unknown_name("task", task, self.info["tasks"])
        return self._store.read_rows(task)

    def output(self, task: str, sample: str, attempt: int = 0) -> Any:
        """What the system put out in one trial."""
        import polars as pl

        found = self.records.filter(pl.col("task") == task, pl.col("sample") == sample, pl.col("attempt") == attempt)
        if found.is_empty():
            raise UsageError(f"{self.id} holds no record of {task}/{sample}, attempt {attempt}.")
        return load_output(self.path, found["output"][0])

    @property
    def missing(self) -> int:
        """Planned trials that have no record."""
        return self.info["trials"] - self.measures.height

    def metrics(self) -> Sequence[Metric]:
        """The benchmark's metrics, with its options where it can be rebuilt."""
        if self.info.get("named"):
            return load_benchmark(self.benchmark, **self.info["options"]).metrics
        return benchmark_class(self.benchmark).metrics

    def scores(self, by: str | Sequence[str] = (), metrics: Sequence[Metric] | None = None) -> list[Score]:
        """Every metric with its interval, n and errors; one entry a value of the groups in ``by``."""
        from assay.core.metrics import evaluate_all

        groups = (by,) if isinstance(by, str) else tuple(by)
        for group in groups:
            if group not in self.measures.columns:
                raise unknown_name(
                    "group", group, [*self.info.get("groups", []), *self.info.get("outcome_groups", []), "task"]
                )
        chosen = self.metrics() if metrics is None else metrics
        rows = None
        if any(m.over == "rows" for m in chosen):
            rows = self.all_rows()
        resample = {name: task["resample"] for name, task in self.info["tasks"].items()}
        return evaluate_all(chosen, self.measures_for(chosen), resample, by=groups, rows=rows)

    def all_rows(self) -> pl.DataFrame:
        """Rows of all tasks with the key, cluster and groups of their records."""
        import polars as pl

        keys = [
            "task",
            "sample",
            "attempt",
            "cluster",
            "status",
            *self.info.get("groups", []),
            *self.info.get("outcome_groups", []),
        ]
        parts = []
        for task in self.info["tasks"]:
            rows = self.rows(task)
            if rows.height:
                parts.append(rows.with_columns(pl.lit(task).alias("task")))
        if not parts:
            return pl.DataFrame(schema={"task": pl.String, "sample": pl.String, "attempt": pl.Int64})
        rows = pl.concat(parts, how="diagonal_relaxed")
        known = self.records.select(
            [k for k in keys if k in self.records.columns and (k in keys[:3] or k not in rows.columns)]
        )
        return rows.join(known, on=["task", "sample", "attempt"], how="left")


def _reads_texts(metric: Metric) -> bool:
    """Whether a metric may read texts: it says so, or is a function or an expression of its own."""
    if metric.over == "rows":
        return False
    where = metric.where or {}
    return metric.terms is None or not isinstance(where, Mapping) or bool({*metric.reads, *where} & set(TEXTS))


class Runs(Sequence[Run]):
    """Several runs, as analyses take them.

    Parameters
    ----------
    runs
        Runs or paths of run folders.
    """

    def __init__(self, runs: Iterable[Run | Path | str]) -> None:
        self._runs = [r if isinstance(r, Run) else Run(r) for r in runs]

    @overload
    def __getitem__(self, place: int) -> Run: ...
    @overload
    def __getitem__(self, place: slice) -> Runs: ...
    def __getitem__(self, place: int | slice) -> Run | Runs:
        return Runs(self._runs[place]) if isinstance(place, slice) else self._runs[place]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @cached_property
    def records(self) -> pl.DataFrame:
        """Records of all runs, with columns run, system and benchmark in front."""
        import polars as pl

        parts = [
            r.records.select(
                pl.lit(r.id).alias("run"),
                pl.lit(r.system).alias("system"),
                pl.lit(r.benchmark).alias("benchmark"),
                pl.all(),
            )
            for r in self._runs
        ]
        if not parts:
            raise UsageError("No run was given; `assay runs` lists the runs there are.")
        return pl.concat(one_type_a_column(parts), how="diagonal_relaxed")

    def labelled(self, *, rows: bool = False) -> pl.DataFrame:
        """Records of all runs, or with ``rows`` `Run.all_rows`; ``system`` is a name of each run (`labels`)."""
        import polars as pl

        frames = [run.all_rows() if rows else run.records for run in self._runs]
        parts = [
            frame.with_columns(pl.lit(name).alias("system"))
            for name, frame in zip(labels(self._runs), frames, strict=True)
            if frame.height
        ]
        return pl.concat(one_type_a_column(parts), how="diagonal_relaxed") if parts else pl.DataFrame()

    @cached_property
    def systems(self) -> pl.DataFrame:
        """One row a run: run, system, benchmark, facts of the model (family, release_date, ...), the user's tags."""
        import polars as pl

        rows = []
        for run in self._runs:
            facts = {k: v for k, v in run.info.get("system_info", {}).items() if isinstance(v, (str, int, float, bool))}
            rows.append(
                {**facts, "run": run.id, "system": run.system, "benchmark": run.benchmark, **run.info.get("tags", {})}
            )
        frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
        return frame.select("run", "system", "benchmark", pl.exclude("run", "system", "benchmark"))


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run: the system, with what tells it apart (options, tags, seed, id) where systems repeat."""
    names = [run.system for run in runs]
    found = []
    for run in runs:
        same = [other for other in runs if other.system == run.system]
        found.append(run.system if len(same) == 1 else f"{run.system} ({_difference(run, same)})")
    return (
        found if len(set(found)) == len(runs) else [f"{name} ({run.path.name[-6:]})" for name, run in zip(names, runs)]
    )


def _difference(run: Run, same: Sequence[Run]) -> str:
    told: list[str] = []
    for part in ("options", "tags"):
        mine = run.info.get(part) or {}
        for key, value in mine.items():
            if any((other.info.get(part) or {}).get(key) != value for other in same):
                told.append(f"{key}={value}")
    if len({other.info.get("seed") for other in same}) > 1:
        told.append(f"seed {run.info.get('seed')}")
    return ", ".join(told) or run.path.name[-6:]


def runs_folder() -> Path:
    """Where runs go: ``$ASSAY_RUNS``, else ./runs."""
    return Path(os.environ.get("ASSAY_RUNS") or "runs")


def find_runs(folder: Path) -> list[Run]:
    """Runs in a folder, newest first; one whose manifest is damaged is passed over, `damaged_runs` tells."""
    found = []
    for path in folder.glob("*/run.json"):
        with contextlib.suppress(DataError):
            found.append(Run(path.parent))
    return sorted(found, key=lambda r: r.info["created"], reverse=True)


def damaged_runs(folder: Path) -> list[str]:
    """A sentence for every manifest in a folder that cannot be read."""
    found = []
    for path in sorted(folder.glob("*/run.json")):
        try:
            Run(path.parent)
        except DataError as error:
            found.append(str(error))
    return found


def find_run(text: str, folder: Path) -> list[Run]:
    """Runs meant by a path, a glob, ``latest``, ``latest:BENCHMARK`` or the beginning of an id.

    Raises
    ------
    UsageError
        Nothing fits, or a beginning fits several.
    """
    path = Path(text)
    if (path / "run.json").is_file():
        return [Run(path)]
    if path.is_dir():
        inside = find_runs(path)
        if inside:
            return inside
    runs = find_runs(folder) if folder.is_dir() else []
    if text == "latest" or text.startswith("latest:"):
        benchmark = text.partition(":")[2]
        fitting = [r for r in runs if not benchmark or r.benchmark == benchmark]
        if not fitting:
            raise UsageError(
                f"There is no run{' of ' + benchmark if benchmark else ''} in {folder} yet; `assay run` makes one."
            )
        return fitting[:1]
    if any(c in text for c in "*?["):
        import fnmatch

        fitting = [r for r in runs if fnmatch.fnmatchcase(r.id, text)] or [
            Run(p) for p in sorted(Path().glob(text)) if (p / "run.json").is_file()
        ]
        if fitting:
            return fitting
    # The random tail of an id is as good a name for it as its beginning.
    fitting = [r for r in runs if r.id.startswith(text) or r.id.rpartition("-")[2].startswith(text)]
    if len(fitting) == 1:
        return fitting
    if len(fitting) > 1:
        some = ", ".join(r.id for r in fitting[:4])
        raise UsageError(f"{text!r} is the beginning of {len(fitting)} runs ({some} ...); give more of the id.")
    raise unknown_name("run", text, [r.id for r in runs], f"Looked in {folder}; ASSAY_RUNS sets another folder.")
