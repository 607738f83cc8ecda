"""A run's folder: manifest, samples, journal, records, rows, artifacts. Parquet and JSON, no private format."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.core.benchmark import Outcome
from assay.core.errors import AssayError, DataError, UsageError
from assay.core.files import locked, refused, replacing, sweep, sync_folder, write_atomically
from assay.core.frames import KEY, frame_of, one_type_a_column, superseded, with_samples
from assay.core.journal import Journal, damaged_lines, journal_files, read_arrays
from assay.core.metering import Call

if TYPE_CHECKING:
    import polars as pl

SPILL_BYTES = 64 * 1024
CHUNK = 20_000
ROW_GROUP = 8192
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

MANIFEST = {
    "benchmark": str, "system": str, "status": str, "created": str, "trials": int, "options": dict, "tasks": dict,
}  # fmt: skip
"""What every manifest has that was written by a run; readers rely on it."""

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
    rows_file: str | None = None


_keys = msgspec.json.Decoder(list[Key])
_records = msgspec.json.Decoder(list[Record])


def safe_name(text: str) -> str:
    """``text`` as part of a file name: letters, digits, dots, dashes; never empty, never hidden."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text).strip("-.")[:80] or "x"


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
    def create(cls, path: Path, info: Mapping[str, Any], fill: Callable[[Store], None] | None = None) -> Store:
        """Begin a run in a folder that holds nothing yet; it is made when missing.

        ``fill`` writes all that belongs to the beginning; the manifest, which makes the folder a run, comes last.

        Raises
        ------
        UsageError
            There are other files in it.
        StorageError
            It cannot be written to.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            # Hidden files and samples are what a process leaves that is killed before it wrote the manifest.
            left = [p.name for p in path.iterdir() if not p.name.startswith(".") and p.name != "samples.parquet"]
        except OSError as error:
            raise refused(path, error) from error
        if (path / "run.json").exists():
            raise UsageError(f"Another process began a run in {path} at the same time; call again to add to it.")
        if left:
            raise UsageError(f"{path} is no run and not empty (it holds {min(left)}); name a new folder.")
        store = cls.__new__(cls)
        store.path = path
        if fill is not None:
            fill(store)
        store.write_info(info)
        return store

    # -- manifest --------------------------------------------------------------------------------------------------

    def read_info(self) -> dict[str, Any]:
        """The manifest."""
        path = self.path / "run.json"
        try:
            info = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}); see to the disk, or restore it.") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not JSON ({error}); restore it or start a new run.") from error
        fault = "it is no JSON object" if not isinstance(info, dict) else _fault(info)
        if fault:
            raise DataError(f"{path} is no manifest of a run ({fault}); restore it or start a new run.")
        return info

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Replace the manifest in one step."""
        write_atomically(self.path / "run.json", _pretty(info))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Hold the run for writing; a second process is refused."""
        return locked(self.path)

    # -- samples ---------------------------------------------------------------------------------------------------

    def write_samples(self, frame: pl.DataFrame) -> None:
        """Replace samples.parquet."""
        self._replace_parquet(frame, self.path / "samples.parquet")

    def read_samples(self) -> pl.DataFrame:
        """One row a planned sample: task, sample, index, cluster, target (JSON text), groups."""
        return _read(self.path / "samples.parquet", "resume the run: its plan is made again")

    # -- records ---------------------------------------------------------------------------------------------------

    def journal(self) -> Journal:
        """A new journal file to append to."""
        return Journal(self.path / "journal")

    def finished(self) -> Iterator[Key]:
        """Keys and statuses of all finished trials, later ones superseding earlier ones with the same key."""
        compacted = self.path / "records.parquet"
        if compacted.exists():
            for task, sample, attempt, status in _read(compacted, RECORDS_ADVICE, [*KEY, "status"]).iter_rows():
                yield Key(task, sample, attempt, status)
        for array in read_arrays(self.path / "journal"):
            yield from filter(self._whole, self._decoded(_keys, array))

    def journalled(self) -> Iterator[list[Record]]:
        """Records that are not compacted yet, oldest first, some thousands at a time."""
        chunk: list[Record] = []
        for array in read_arrays(self.path / "journal"):
            chunk += filter(self._whole, self._decoded(_records, array))
            if len(chunk) >= CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def damage(self) -> list[str]:
        """What stands in the journal and cannot be believed, a sentence each; the trials in it count as not done."""
        found = [
            f"{path}, line {number} does not match its checksum; the trials in it are run again."
            for path, number in damaged_lines(self.path / "journal")
        ]
        for array in read_arrays(self.path / "journal"):
            found += [
                f"{self.path / str(key.rows_file)} is damaged; {key.task}/{key.sample} is run again."
                for key in self._decoded(_keys, array)
                if not self._whole(key)
            ]
        return found

    def paid(self) -> float:
        """US dollars that stand in the records."""
        import polars as pl

        return float(self.read_records().select(pl.col("calls").explode().struct.field("paid").sum()).item() or 0.0)

    def read_records(self) -> pl.DataFrame:
        """All records, compacted or not."""
        return self._records(self._fresh()[0])

    @property
    def compacted(self) -> bool:
        """Whether all records lie in records.parquet."""
        return (self.path / "records.parquet").exists() and not journal_files(self.path / "journal")

    def read_compacted(self, *, without: Sequence[str]) -> pl.DataFrame:
        """records.parquet but for some columns, which are not read."""
        import polars as pl

        path = self.path / "records.parquet"
        return _reading(path, RECORDS_ADVICE, lambda: pl.scan_parquet(path).drop(without).collect())

    def read_places(self, places: Iterable[int], columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of the records at some places of records.parquet, in its order; one group of rows in memory."""
        import polars as pl

        path = self.path / "records.parquet"
        blocks: dict[int, list[int]] = {}
        for place in sorted(places):
            blocks.setdefault(place // ROW_GROUP, []).append(place % ROW_GROUP)

        def read() -> pl.DataFrame:
            scan = pl.scan_parquet(path).select(columns)
            parts = [scan.clear().collect()]
            for block, rows in blocks.items():
                some = scan.slice(block * ROW_GROUP, ROW_GROUP).collect()[rows]
                # Through Python: a few texts as polars cuts them out would keep the whole group's in memory.
                parts.append(pl.DataFrame(some.to_dict(as_series=False), schema=some.schema))
            return pl.concat(parts)

        return _reading(path, RECORDS_ADVICE, read)

    def read_rows(self, task: str) -> pl.DataFrame:
        """The rows of one task, with their record's sample and attempt; an empty frame where there are none."""
        return self._rows(task)

    def compact(self, close: Callable[[pl.DataFrame, set[str], set[str]], None] | None = None) -> None:
        """Fold the journal into records.parquet and rows/*.parquet; the journal is deleted last.

        Parameters
        ----------
        close
            Called in between with all records and the names of scores and outcome groups that the folded ones had:
            once the journal is gone, nothing else knows which column was which.

        Raises
        ------
        StorageError
            No room for them; the journal stays, and with it every record.
        """
        sweep(self.path)
        sweep(self.path / "rows")
        files = journal_files(self.path / "journal")
        self._set_damaged_aside()
        fresh, with_rows = self._fresh()
        records = self._records(fresh)
        if fresh is not None:
            for task in fresh["task"].unique(maintain_order=True):
                # A trial done again without rows still takes away those it had.
                if task in with_rows or self._rows_path(task).exists():
                    self._replace_parquet(self._rows(task), self._rows_path(task))
        if fresh is not None or not (self.path / "records.parquet").exists():
            self._replace_parquet(records, self.path / "records.parquet")
        if close is not None:
            columns = [] if fresh is None else fresh.columns
            scores, groups = ({c[2:] for c in columns if c.startswith(kind)} for kind in ("s:", "g:"))
            close(records, scores, groups)
        try:
            # The new files stand on the disk before the journal goes.
            sync_folder(self.path)
            for file in files:
                file.unlink()
        except OSError as error:
            raise refused(self.path, error) from error
        shutil.rmtree(self.path / "journal" / "rows", ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.path / "journal").rmdir()

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _decoded(self, decoder: msgspec.json.Decoder[list[Any]], array: bytes) -> list[Any]:
        try:
            return decoder.decode(array)
        except msgspec.MsgspecError as error:
            raise DataError(
                f"{self.path / 'journal'} holds a whole line that is no record ({error}); it was written by another "
                "version of assay: resume the run with that one."
            ) from error

    def _whole(self, record: Record | Key) -> bool:
        """Whether the rows that a record keeps in a file of their own are there."""
        if record.rows_file is None:
            return True
        import polars as pl

        try:
            pl.read_parquet_schema(self.path / record.rows_file)
        except (OSError, pl.exceptions.PolarsError):
            return False
        return True

    def _set_damaged_aside(self) -> None:
        """Keep lines that are not believed, for whoever wants to look at them."""
        damaged = damaged_lines(self.path / "journal")
        if not damaged:
            return
        try:
            with (self.path / "damaged.jsonl").open("ab") as aside:
                for path, number in damaged:
                    with path.open("rb") as file:
                        aside.write(next(itertools.islice(file, number - 1, None)).rstrip(b"\n") + b"\n")
        except OSError as error:
            raise refused(self.path / "damaged.jsonl", error) from error

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
        compacted = self.path / "records.parquet"
        base = _read(compacted, RECORDS_ADVICE) if compacted.exists() else None
        if fresh is None:
            return base if base is not None else with_samples(frame_of([]), self.read_samples())
        return superseded(base, with_samples(fresh, self.read_samples()), KEY)

    def _rows(self, task: str) -> pl.DataFrame:
        import polars as pl

        path = self._rows_path(task)
        parts = [_read(path, ROWS_ADVICE)] if path.exists() else []
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
                part = _read(self.path / record.rows_file, "delete it and resume: its trial is run again")
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
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refused(path, error) from error
        with replacing(path) as temporary:
            # Small row groups: whoever wants a page of 200,000 records decodes a page.
            frame.write_parquet(temporary, compression="zstd", row_group_size=ROW_GROUP)


RECORDS_ADVICE = "restore it from a copy, or delete it and resume: its trials are run again"
ROWS_ADVICE = "restore it from a copy, or delete it and records.parquet and resume: the trials are run again"


def _read(path: Path, advice: str, columns: list[str] | None = None) -> pl.DataFrame:
    """A Parquet file of the run."""
    import polars as pl

    return _reading(path, advice, lambda: pl.read_parquet(path, columns=columns))


def _reading(path: Path, advice: str, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """``read()``, with one sentence for a file that is missing or damaged."""
    import polars as pl

    try:
        return read()
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {advice}.") from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        why = str(error).splitlines()[0].removeprefix("parquet: File out of specification: ")
        raise DataError(f"{path} is damaged ({why.rstrip('.')}); {advice}.") from error


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


def _fault(info: Mapping[str, Any]) -> str:
    """What keeps an object from being a manifest; "" = nothing."""
    for name, kind in MANIFEST.items():
        if not isinstance(info.get(name), kind):
            return f"{name} is {info[name]!r}" if name in info else f"it has no {name}"
    return ""


def _pretty(info: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n"


def check_columns(names: Iterable[str], where: str) -> None:
    """Refuse names of groups and scores that are columns of every record."""
    taken = sorted(RESERVED.intersection(names))
    if taken:
        raise AssayError(f"{where}: {', '.join(map(repr, taken))} is a column of every record; choose another name.")
