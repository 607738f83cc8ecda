"""A run's folder: manifest, samples, journal, records, rows, artifacts. Parquet and JSON, no private format."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
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
CHUNK = 20_000
ROW_GROUP = 8192
LOCK_TRIES, LOCK_PAUSE = 20, 0.05
KEY = ("task", "sample", "attempt")
RESERVED = frozenset(
    [
        "run",
        "benchmark",
        "system",
        "task",
        "sample",
        "attempt",
        "index",
        "cluster",
        "seed",
        "status",
        "error_type",
        "error",
        "retryable",
        "tries",
        "started",
        "seconds",
        "cpu_seconds",
        "peak_memory_mb",
        "exclusive",
        "calls",
        "exchanges",
        "output",
        "target",
        "artifacts",
        "rows",
    ]
)

NO_OUTPUT = msgspec.Raw(b"")


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
    output: msgspec.Raw = NO_OUTPUT
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
    exchanges: msgspec.Raw = NO_OUTPUT
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
            # A process that was just killed may hold it for a moment, through a child between fork and exec.
            for patience in range(LOCK_TRIES, -1, -1):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if not patience:
                        raise UsageError(
                            f"Another process is writing to {self.path}; wait until it is done, or stop it, and resume."
                        ) from None
                    time.sleep(LOCK_PAUSE)
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

    def finished(self) -> Iterator[Key]:
        """Keys and statuses of all finished trials, later ones superseding earlier ones with the same key."""
        compacted = self.path / "records.parquet"
        if compacted.exists():
            import polars as pl

            frame = pl.read_parquet(compacted, columns=[*KEY, "status"])
            for task, sample, attempt, status in frame.iter_rows():
                yield Key(task, sample, attempt, status)
        for array in read_arrays(self.path / "journal"):
            yield from _keys.decode(array)

    def journalled(self) -> Iterator[list[Record]]:
        """Records that are not compacted yet, oldest first, some thousands at a time."""
        chunk: list[Record] = []
        for array in read_arrays(self.path / "journal"):
            chunk += _records.decode(array)
            if len(chunk) >= CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def read_records(self) -> pl.DataFrame:
        """All records, compacted or not."""
        return self._records(self._fresh()[0])

    def read_rows(self, task: str) -> pl.DataFrame:
        """The rows of one task, with their record's sample and attempt; an empty frame where there are none."""
        return self._rows(task)

    def compact(self) -> tuple[pl.DataFrame, set[str], set[str]]:
        """Fold the journal into records.parquet and rows/*.parquet; the journal is deleted last.

        Returns
        -------
        records, scores, groups
            All records, and the names of scores and outcome groups that the folded records had.
        """
        files = journal_files(self.path / "journal")
        fresh, with_rows = self._fresh()
        records = self._records(fresh)
        if fresh is not None:
            for task in fresh["task"].unique(maintain_order=True):
                # A trial done again without rows still takes away those it had.
                if task in with_rows or self._rows_path(task).exists():
                    self._replace_parquet(self._rows(task), self._rows_path(task))
        if fresh is not None or not (self.path / "records.parquet").exists():
            self._replace_parquet(records, self.path / "records.parquet")
        for file in files:
            file.unlink()
        shutil.rmtree(self.path / "journal" / "rows", ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.path / "journal").rmdir()
        columns = [] if fresh is None else fresh.columns
        return records, {c[2:] for c in columns if c.startswith("s:")}, {c[2:] for c in columns if c.startswith("g:")}

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _fresh(self) -> tuple[pl.DataFrame | None, set[str]]:
        """Journal columns of the records not compacted yet, the last one of each key (None = there are none), and the
        tasks whose records hold rows."""
        import polars as pl

        frames: list[pl.DataFrame] = []
        with_rows: set[str] = set()
        for chunk in self.journalled():
            frames.append(frame_of(chunk))
            with_rows.update(r.task for r in chunk if r.rows or r.rows_file)
        if not frames:
            return None, with_rows
        frame = pl.concat(one_type_a_column(frames), how="diagonal_relaxed")
        return frame.unique(KEY, keep="last", maintain_order=True), with_rows

    def _records(self, fresh: pl.DataFrame | None) -> pl.DataFrame:
        import polars as pl

        compacted = self.path / "records.parquet"
        base = pl.read_parquet(compacted) if compacted.exists() else None
        if fresh is None:
            return base if base is not None else with_samples(frame_of([]), self.read_samples())
        return _merge(base, with_samples(fresh, self.read_samples()), KEY)

    def _rows(self, task: str) -> pl.DataFrame:
        import polars as pl

        path = self._rows_path(task)
        parts = [pl.read_parquet(path)] if path.exists() else []
        for chunk in self.journalled():
            fresh = [r for r in chunk if r.task == task]
            if not fresh:
                continue
            redone = pl.DataFrame(
                {"sample": [r.sample for r in fresh], "attempt": [r.attempt for r in fresh]},
                schema={"sample": pl.String, "attempt": pl.Int64},
            )
            parts = [part.join(redone, on=["sample", "attempt"], how="anti") for part in parts]
            last = {(r.sample, r.attempt): r for r in fresh}
            parts += self._rows_of(list(last.values()))
        if not parts:
            return pl.DataFrame(schema={"sample": pl.String, "attempt": pl.Int64})
        frame = pl.concat(one_type_a_column(parts), how="diagonal_relaxed")
        return frame.select("sample", "attempt", pl.exclude("sample", "attempt")).sort(
            "sample", "attempt", maintain_order=True
        )

    def _rows_of(self, records: Sequence[Record]) -> list[pl.DataFrame]:
        import polars as pl

        parts = []
        inline: list[dict[str, Any]] = []
        for record in records:
            if record.rows_file:
                part = pl.read_parquet(self.path / record.rows_file)
                key = pl.lit(record.sample).alias("sample"), pl.lit(record.attempt, dtype=pl.Int64).alias("attempt")
                parts.append(part.with_columns(*key))
            elif record.rows:
                inline.extend({"sample": record.sample, "attempt": record.attempt, **row} for row in record.rows)
        if inline:
            parts.append(pl.DataFrame(inline, infer_schema_length=None))
        return parts

    def _rows_path(self, task: str) -> Path:
        return self.path / "rows" / f"{safe_name(task)}.parquet"

    def _replace_parquet(self, frame: pl.DataFrame, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        # Small row groups: whoever wants a page of 200,000 records decodes a page.
        frame.write_parquet(temporary, compression="zstd", row_group_size=ROW_GROUP)
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


def read_history(path: Path) -> dict[tuple[str, str, int], tuple[list[Call], list[dict[str, Any]]]]:
    """Calls and exchanges of the system under test in a run's trials, by key; a judge's are made anew."""
    records = Store(path).read_records()
    found = {}
    for row in records.select(*KEY, "calls", "exchanges").iter_rows(named=True):
        said = [e for e in load_output(path, row["exchanges"]) or [] if e["role"] == "subject"]
        calls = [Call(**c) for c in row["calls"] if c["role"] == "subject"]
        found[row["task"], row["sample"], row["attempt"]] = (calls, said)
    return found


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


def frame_of(records: Sequence[Record]) -> pl.DataFrame:
    """What stands in the journal about some trials, as columns: key, scores, outcome groups, measurements, calls."""
    import polars as pl

    core = pl.DataFrame(
        {
            **{
                name: [getattr(r, name) for r in records]
                for name in CORE
                if name not in ("started", "output", "exchanges")
            },
            "started": [int(r.started * 1e6) for r in records],
            "output": [bytes(r.output).decode() or None for r in records],
            "exchanges": [bytes(r.exchanges).decode() or None for r in records],
        },
        schema={name: getattr(pl, kind) for name, kind in CORE.items()},
    )
    return core.with_columns(
        pl.col("started").cast(pl.Datetime("us", "UTC")),
        _lists("calls", [r.calls for r in records], CALL),
        _lists("artifacts", [r.artifacts for r in records], ARTIFACT),
        *_columns("s:", [r.scores for r in records], numeric=True),
        *_columns("g:", [r.groups for r in records], numeric=False),
    )


CORE = {
    "task": "String", "sample": "String", "attempt": "Int64", "index": "Int64", "seed": "UInt64", "status": "String",
    "error_type": "String", "error": "String", "retryable": "Boolean", "tries": "Int64", "started": "Int64",
    "seconds": "Float64", "cpu_seconds": "Float64", "peak_memory_mb": "Float64", "exclusive": "Boolean",
    "output": "String", "exchanges": "String",
}  # fmt: skip
CALL = {
    "role": "String", "model": "String", "calls": "Int64", "cached": "Int64", "prompt_tokens": "Int64",
    "cached_tokens": "Int64", "completion_tokens": "Int64", "reasoning_tokens": "Int64", "seconds": "Float64",
    "cost": "Float64", "paid": "Float64", "price_date": "String", "resolved": "String",
}  # fmt: skip
ARTIFACT = {"path": "String", "bytes": "Int64", "sha256": "String"}


def _lists(name: str, lists: Sequence[Sequence[Any]], fields: Mapping[str, str]) -> pl.Series:
    """A List(Struct) column. Built flat and grouped: a list of structs a row costs polars a hundred times as much."""
    import polars as pl

    schema = {field: getattr(pl, kind) for field, kind in fields.items()}
    flat = pl.DataFrame({f: [getattr(x, f) for items in lists for x in items] for f in fields}, schema=schema)
    owner = pl.Series("_row", [row for row, items in enumerate(lists) for _ in items], dtype=pl.UInt32)
    grouped = (
        flat.select(pl.struct(pl.all()).alias(name)).with_columns(owner).group_by("_row", maintain_order=True).agg(name)
    )
    rows = pl.DataFrame({"_row": pl.int_range(len(lists), dtype=pl.UInt32, eager=True)})
    empty = pl.lit([], dtype=pl.List(pl.Struct(schema)))
    return (
        rows.join(grouped, on="_row", how="left", maintain_order="left")[name]
        .to_frame()
        .select(pl.col(name).fill_null(empty))
        .to_series()
    )


def with_samples(frame: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Journal columns joined with cluster, sample groups and target, in the order people read them."""
    import polars as pl

    scores = [c[2:] for c in frame.columns if c.startswith("s:")]
    after = [c[2:] for c in frame.columns if c.startswith("g:")]
    before = [c for c in samples.columns if c not in ("task", "sample", "index", "cluster", "target")]
    frame = frame.join(samples.drop("index"), on=["task", "sample"], how="left", maintain_order="left")
    both = [c for c in after if c in before]
    frame = frame.with_columns(
        # What the outcome says of a group comes later and knows better.
        *[pl.coalesce(pl.col(f"g:{c}").cast(frame.schema[c], strict=False), pl.col(c)).alias(c) for c in both],
        *[pl.col(f"g:{c}").alias(c) for c in after if c not in both],
        *[pl.col(f"s:{c}").alias(c) for c in scores],
    ).select(pl.exclude("^[sg]:.*$"))
    first = [*KEY, "index", "cluster", *before, *[c for c in after if c not in before], *scores, "status"]
    return frame.select([*first, *[c for c in frame.columns if c not in first]])


def _columns(prefix: str, dicts: Sequence[Mapping[str, Any]], *, numeric: bool) -> list[pl.Series]:
    """Dictionaries as one series a key. Groups of mixed kinds become text."""
    names: dict[str, None] = {}
    for entry in dicts:
        names.update(dict.fromkeys(entry))
    return [group_series(prefix + name, [d.get(name) for d in dicts], numeric=numeric) for name in names]


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
        fresh = pl.concat(one_type_a_column([kept, fresh]), how="diagonal_relaxed")
    order = fresh.select("task").unique(maintain_order=True).with_row_index("_task")
    return fresh.join(order, on="task", how="left").sort("_task", "index", "attempt").drop("_task")


def one_type_a_column(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """A group that is text in one frame and a number in another becomes text in all."""
    import polars as pl

    kinds: dict[str, set[Any]] = {}
    for frame in frames:
        for name, kind in frame.schema.items():
            kinds.setdefault(name, set()).add(kind)
    text = [n for n, k in kinds.items() if len(k) > 1 and pl.String in k]
    return [f.with_columns(pl.col([t for t in text if t in f.columns]).cast(pl.String)) for f in frames]


def _pretty(info: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n"


def check_columns(names: Iterable[str], where: str) -> None:
    """Refuse names of groups and scores that are columns of every record."""
    taken = sorted(RESERVED.intersection(names))
    if taken:
        raise AssayError(f"{where}: {', '.join(map(repr, taken))} is a column of every record; choose another name.")
