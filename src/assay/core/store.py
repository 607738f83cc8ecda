"""A run's folder: manifest, samples, journal, records, rows, artifacts. Parquet and JSON, no private format."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.core.benchmark import Outcome
from assay.core.errors import AssayError, DataError, UsageError
from assay.core.journal import Journal, journal_files, read_arrays
from assay.core.metering import Call

if TYPE_CHECKING:
    import polars as pl

SPILL_BYTES = 64 * 1024
KEY = ("task", "sample", "attempt")
RESERVED = frozenset({
    "run", "benchmark", "system", "task", "sample", "attempt", "index", "cluster", "seed", "status", "error_type",
    "error", "retryable", "tries", "started", "seconds", "cpu_seconds", "peak_memory_mb", "exclusive", "calls", "output",
    "target", "artifacts", "rows",
})  # fmt: skip


class Artifact(msgspec.Struct):
    """A file that a trial left: path relative to the run folder, size in bytes, SHA-256."""

    path: str
    bytes: int
    sha256: str


class Record(msgspec.Struct, omit_defaults=True):
    """What the engine writes about one trial. Sample groups, cluster and target stand in samples.parquet."""

    task: str
    sample: str
    attempt: int
    index: int
    seed: int
    status: str = "ok"
    scores: dict[str, float | None] = {}
    groups: dict[str, str | int | float] = {}
    output: msgspec.Raw | None = None
    rows: list[dict[str, Any]] | None = None
    rows_file: str | None = None
    error_type: str | None = None
    error: str | None = None
    retryable: bool = False
    tries: int = 1
    started: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None
    exclusive: bool = False
    calls: list[Call] = []
    artifacts: list[Artifact] = []


class Key(msgspec.Struct):
    """The part of a record that planning needs."""

    task: str
    sample: str
    attempt: int
    status: str = "ok"


_keys = msgspec.json.Decoder(list[Key])
_records = msgspec.json.Decoder(list[Record])


def safe_name(text: str) -> str:
    """``text`` as part of a file name: letters, digits, dots, dashes; never empty, never hidden."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text).strip("-.")[:80] or "x"


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` in one step: readers see the old or the new file, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class Store:
    """One run folder on disk.

    Parameters
    ----------
    path
        The folder; `create` makes it, `Store(path)` opens an existing one.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        if not (self.path / "run.json").is_file():
            raise UsageError(
                f"{self.path} is no run folder (it holds no run.json); `assay runs` lists the runs there are."
            )

    @classmethod
    def create(cls, path: Path, info: Mapping[str, Any]) -> Store:
        """Make the folder and write its manifest."""
        path.mkdir(parents=True, exist_ok=False)
        write_atomically(path / "run.json", _pretty(info))
        return cls(path)

    # -- manifest --------------------------------------------------------------------------------------------------

    def read_info(self) -> dict[str, Any]:
        """The manifest."""
        try:
            return msgspec.json.decode((self.path / "run.json").read_bytes())
        except msgspec.DecodeError as error:
            raise DataError(
                f"{self.path / 'run.json'} is not JSON ({error}); restore it or start a new run."
            ) from error

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Replace the manifest in one step."""
        write_atomically(self.path / "run.json", _pretty(info))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for writing; a second process is refused."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"Another process is writing to {self.path}; wait for it to finish, or stop it, then resume."
                ) from None
            yield

    # -- samples ---------------------------------------------------------------------------------------------------

    def write_samples(self, frame: pl.DataFrame) -> None:
        """Replace samples.parquet."""
        self._replace_parquet(frame, self.path / "samples.parquet")

    def read_samples(self) -> pl.DataFrame:
        """One row a planned sample: task, sample, index, cluster, target (JSON text), groups."""
        import polars as pl

        return pl.read_parquet(self.path / "samples.parquet")

    # -- records ---------------------------------------------------------------------------------------------------

    def journal(self) -> Journal:
        """A new journal file to append to."""
        return Journal(self.path / "journal")

    def keys(self) -> Iterator[Key]:
        """Keys and statuses of all finished trials, later ones superseding earlier ones with the same key."""
        compacted = self.path / "records.parquet"
        if compacted.exists():
            import polars as pl

            frame = pl.read_parquet(compacted, columns=[*KEY, "status"])
            for task, sample, attempt, status in frame.iter_rows():
                yield Key(task, sample, attempt, status)
        for array in read_arrays(self.path / "journal"):
            yield from _keys.decode(array)

    def journalled(self) -> list[Record]:
        """Records that are not compacted yet, the last one of each key."""
        last: dict[tuple[str, str, int], Record] = {}
        for array in read_arrays(self.path / "journal"):
            for record in _records.decode(array):
                last[record.task, record.sample, record.attempt] = record
        return list(last.values())

    def read_records(self) -> pl.DataFrame:
        """All records, compacted or not."""
        return self._records(self.journalled())

    def read_rows(self, task: str) -> pl.DataFrame:
        """The rows of one task, with their record's sample and attempt; an empty frame where there are none."""
        return self._rows(task, self.journalled())

    def compact(self) -> tuple[pl.DataFrame, set[str], set[str]]:
        """Fold the journal into records.parquet and rows/*.parquet; the journal is deleted last.

        Returns
        -------
        records, scores, groups
            All records, and the names of scores and outcome groups that the folded records had.
        """
        files = journal_files(self.path / "journal")
        fresh = self.journalled()
        records = self._records(fresh)
        for task in sorted({r.task for r in fresh if r.rows or r.rows_file or self._rows_path(r.task).exists()}):
            self._replace_parquet(self._rows(task, fresh), self._rows_path(task))
        if fresh or not (self.path / "records.parquet").exists():
            self._replace_parquet(records, self.path / "records.parquet")
        for file in files:
            file.unlink()
        shutil.rmtree(self.path / "journal" / "rows", ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.path / "journal").rmdir()
        scores = {name for r in fresh for name in r.scores}
        return records, scores, {name for r in fresh for name in r.groups}

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _records(self, fresh: Sequence[Record]) -> pl.DataFrame:
        import polars as pl

        compacted = self.path / "records.parquet"
        base = pl.read_parquet(compacted) if compacted.exists() else None
        if not fresh and base is not None:
            return base
        return _merge(base, frame_of(fresh, self.read_samples()), KEY)

    def _rows(self, task: str, fresh: Sequence[Record]) -> pl.DataFrame:
        import polars as pl

        path = self._rows_path(task)
        base = pl.read_parquet(path) if path.exists() else None
        return self._merged_rows(base, [r for r in fresh if r.task == task])

    def _rows_path(self, task: str) -> Path:
        return self.path / "rows" / f"{safe_name(task)}.parquet"

    def _merged_rows(self, base: pl.DataFrame | None, fresh: Sequence[Record]) -> pl.DataFrame:
        import polars as pl

        parts = []
        inline: list[dict[str, Any]] = []
        for record in fresh:
            if record.rows_file:
                part = pl.read_parquet(self.path / record.rows_file)
                parts.append(
                    part.with_columns(pl.lit(record.sample).alias("sample"), pl.lit(record.attempt).alias("attempt"))
                )
            elif record.rows:
                inline.extend({"sample": record.sample, "attempt": record.attempt, **row} for row in record.rows)
        if inline:
            parts.append(pl.DataFrame(inline, infer_schema_length=None))
        if base is not None:
            redone = pl.DataFrame(
                {"sample": [r.sample for r in fresh], "attempt": [r.attempt for r in fresh]},
                schema={"sample": pl.String, "attempt": pl.Int64},
            )
            parts.insert(0, base.join(redone, on=["sample", "attempt"], how="anti"))
        if not parts:
            return pl.DataFrame(schema={"sample": pl.String, "attempt": pl.Int64})
        frame = pl.concat(parts, how="diagonal_relaxed")
        return frame.select("sample", "attempt", pl.exclude("sample", "attempt")).sort(
            "sample", "attempt", maintain_order=True
        )

    def _replace_parquet(self, frame: pl.DataFrame, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        frame.write_parquet(temporary, compression="zstd")
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)


def read_outputs(path: Path) -> Iterator[tuple[str, str, int, Outcome]]:
    """Outputs of a run folder as (task, sample, attempt, Outcome), for re-scoring and submissions.

    Spilled outputs are read back; trials without an output (errors) are passed over.
    """
    store = Store(path)
    records = store.read_records()
    names = store.read_info().get("outcome_groups", [])
    groups = [c for c in names if c in records.columns]
    wanted = [*KEY, "output", "status", *groups]
    for row in records.select(wanted).iter_rows(named=True):
        if row["output"] is None:
            continue
        yield (
            row["task"],
            row["sample"],
            row["attempt"],
            Outcome(output=load_output(path, row["output"]), groups={g: row[g] for g in groups if row[g] is not None}),
        )


def load_output(path: Path, text: str | None) -> Any:
    """The output behind a record's JSON text, read from its file when it was spilled."""
    if text is None:
        return None
    value = msgspec.json.decode(text)
    if isinstance(value, dict) and set(value) == {"$file"}:
        file = (path / value["$file"]).resolve()
        if not file.is_relative_to(path.resolve()):
            raise DataError(
                f"{path}: an output points outside its run folder ({value['$file']!r}); the file was altered."
            )
        return msgspec.json.decode(file.read_bytes())
    return value


def frame_of(records: Sequence[Record], samples: pl.DataFrame) -> pl.DataFrame:
    """Records as a frame: key, cluster, groups, scores, status, measurements, calls, output, target."""
    import polars as pl

    call = pl.Struct({
        "role": pl.String, "model": pl.String, "calls": pl.Int64, "cached": pl.Int64, "prompt_tokens": pl.Int64,
        "cached_tokens": pl.Int64, "completion_tokens": pl.Int64, "reasoning_tokens": pl.Int64, "seconds": pl.Float64,
        "cost": pl.Float64, "paid": pl.Float64, "price_date": pl.String, "resolved": pl.String,
    })  # fmt: skip
    artifact = pl.Struct({"path": pl.String, "bytes": pl.Int64, "sha256": pl.String})
    core = pl.DataFrame(
        {
            "task": [r.task for r in records],
            "sample": [r.sample for r in records],
            "attempt": [r.attempt for r in records],
            "index": [r.index for r in records],
            "seed": [r.seed for r in records],
            "status": [r.status for r in records],
            "error_type": [r.error_type for r in records],
            "error": [r.error for r in records],
            "retryable": [r.retryable for r in records],
            "tries": [r.tries for r in records],
            "started": [int(r.started * 1e6) for r in records],
            "seconds": [r.seconds for r in records],
            "cpu_seconds": [r.cpu_seconds for r in records],
            "peak_memory_mb": [r.peak_memory_mb for r in records],
            "exclusive": [r.exclusive for r in records],
            "calls": [[msgspec.structs.asdict(c) for c in r.calls] for r in records],
            "output": [None if r.output is None else bytes(r.output).decode() for r in records],
            "artifacts": [[msgspec.structs.asdict(a) for a in r.artifacts] for r in records],
        },
        schema={
            "task": pl.String, "sample": pl.String, "attempt": pl.Int64, "index": pl.Int64, "seed": pl.UInt64,
            "status": pl.String, "error_type": pl.String, "error": pl.String, "retryable": pl.Boolean,
            "tries": pl.Int64, "started": pl.Int64, "seconds": pl.Float64, "cpu_seconds": pl.Float64,
            "peak_memory_mb": pl.Float64, "exclusive": pl.Boolean, "calls": pl.List(call), "output": pl.String,
            "artifacts": pl.List(artifact),
        },
    ).with_columns(pl.col("started").cast(pl.Datetime("us", "UTC")))  # fmt: skip
    scores = _columns([r.scores for r in records], numeric=True)
    after = _columns([r.groups for r in records], numeric=False)
    known = [c for c in samples.columns if c not in ("index",)]
    frame = core.join(samples.select(known), on=["task", "sample"], how="left", maintain_order="left")
    late = []
    for name, series in after.items():
        if name in frame.columns:
            both = pl.DataFrame({"a": series, "b": frame[name]})
            series = both.select(pl.coalesce("a", "b")).to_series().alias(name)
        late.append(series)
    frame = frame.with_columns([*late, *scores.values()])
    before = [c for c in known if c not in ("task", "sample", "cluster", "target")]
    first = [
        "task",
        "sample",
        "attempt",
        "index",
        "cluster",
        *before,
        *[n for n in after if n not in before],
        *scores,
        "status",
    ]
    return frame.select([*first, *[c for c in frame.columns if c not in first]])


def _columns(dicts: Sequence[Mapping[str, Any]], *, numeric: bool) -> dict[str, pl.Series]:
    """Dictionaries as one series a key. Groups of mixed kinds become text."""

    names: dict[str, None] = {}
    for entry in dicts:
        names.update(dict.fromkeys(entry))
    return {name: group_series(name, [d.get(name) for d in dicts], numeric=numeric) for name in names}


def group_series(name: str, values: list[Any], *, numeric: bool = False) -> pl.Series:
    """One column from group or score values: Int64, Float64 or String, whichever holds them all."""
    import polars as pl

    if numeric:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, bool}:
        return pl.Series(name, [None if v is None else int(v) for v in values], dtype=pl.Int64)
    if kinds <= {int, bool, float}:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)


def _merge(base: pl.DataFrame | None, fresh: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """``fresh`` supersedes rows of ``base`` with the same key; order is task, index, attempt."""
    import polars as pl

    if base is not None:
        kept = base.join(fresh.select(key), on=list(key), how="anti")
        shared = [c for c in kept.columns if c in fresh.columns and kept[c].dtype != fresh[c].dtype]
        text = [c for c in shared if pl.String in (kept[c].dtype, fresh[c].dtype)]
        fresh = fresh.with_columns(pl.col(text).cast(pl.String))
        kept = kept.with_columns(pl.col(text).cast(pl.String))
        fresh = pl.concat([kept, fresh], how="diagonal_relaxed")
    order = fresh.select("task").unique(maintain_order=True).with_row_index("_task")
    return fresh.join(order, on="task", how="left").sort("_task", "index", "attempt").drop("_task")


def _pretty(info: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n"


def check_columns(names: Iterable[str], where: str) -> None:
    """Refuse names of groups and scores that are columns of every record."""
    taken = sorted(RESERVED.intersection(names))
    if taken:
        raise AssayError(f"{where}: {', '.join(map(repr, taken))} is a column of every record; choose another name.")
