"""Pages of records, straight from Parquet: what is not shown is not read.

A query works on two small things: an order (row numbers that pass the filters, sorted) made from the columns that
filters and sorting name, and the columns of the fifty rows that a page shows. Answers and exchanges, which are nearly
all of a run's bytes, are read for those rows alone.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError, unknown_name
from assay.core.frames import KEY, frame_of
from assay.server.runs.folders import RunFolder
from assay.server.runs.tail import Tail

if TYPE_CHECKING:
    import polars as pl

HEAVY = ("output", "exchanges", "target", "calls", "artifacts")
"""Columns that only one record's page reads."""
PAGE = 50
ORDERS_KEPT = 64
VIEWS_KEPT = 256
_ROW = "_assay_row"
_TESTS = ("<=", ">=", "!=", "=", "<", ">", "~")
_CONDITION = re.compile(r"(.+?)\s*(<=|>=|!=|=|<|>|~)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Query:
    """Which records, in which order.

    Parameters
    ----------
    text
        What the sample id or the error holds, in any case; with ``answers`` what the answer holds.
    where
        Conditions: a column, one of ``= != < <= > >= ~`` (~ = holds this text), a value.
    sort
        A column, with ``-`` in front for descending; "" = as planned.
    """

    task: str = ""
    status: str = ""
    text: str = ""
    answers: bool = False
    where: tuple[str, ...] = ()
    sort: str = ""


class View:
    """The records of one run as they stand now.

    Parameters
    ----------
    run
        The run.
    parts
        Parquet files with their numbers of rows; a later row supersedes an earlier one with the same key.
    """

    def __init__(self, run: RunFolder, parts: Sequence[tuple[Path, int]]) -> None:
        import polars as pl

        self.run = run
        self.parts = parts
        # A trial that was tried again stands in the journal twice; records.parquet alone holds each once.
        self._doubled = any(path.name != "records.parquet" for path, _ in parts)
        # Numbered by the reader itself, filters still reach the file: row groups without a hit stay unread.
        starts = [sum(rows for _, rows in parts[:i]) for i in range(len(parts))]
        scans = [
            pl.scan_parquet(path, row_index_name=_ROW, row_index_offset=start)
            for (path, _), start in zip(parts, starts)
        ] or [frame_of([]).lazy().with_row_index(_ROW)]
        schemas = [scan.collect_schema() for scan in scans]
        kinds: dict[str, set[pl.DataType]] = {}
        for schema in schemas:
            for name, kind in schema.items():
                kinds.setdefault(name, set()).add(kind)
        text = {name for name, found in kinds.items() if len(found) > 1 and pl.String in found}
        self._scans = [
            scan.with_columns(pl.col([n for n in text if n in schema]).cast(pl.String)) if text & set(schema) else scan
            for scan, schema in zip(scans, schemas)
        ]
        del kinds[_ROW]
        self.schema: dict[str, pl.DataType] = {n: pl.String() if n in text else next(iter(k)) for n, k in kinds.items()}
        self.stamp = tuple((str(path), path.stat().st_mtime_ns, rows) for path, rows in parts)

    @property
    def rows(self) -> int:
        """Rows of all parts, superseded ones among them."""
        return sum(rows for _, rows in self.parts)

    @property
    def columns(self) -> list[str]:
        """Columns that can be filtered, sorted and shown in a list."""
        return [name for name in self.schema if name not in HEAVY]

    def scan(self) -> pl.LazyFrame:
        """All rows."""
        import polars as pl

        return self._scans[0] if len(self._scans) == 1 else pl.concat(self._scans, how="diagonal_relaxed")

    def order(self, query: Query) -> pl.Series:
        """Row numbers that a query finds, in its order."""
        import polars as pl

        conditions = [self._condition(text) for text in query.where]
        for column, value in (("task", query.task), ("status", query.status)):
            if value:
                conditions.append((pl.col(column) == value, {column}))
        if query.text:
            conditions.append(self._holds(query.text, query.answers))
        needed = set().union(*(columns for _, columns in conditions))
        sort, descending = query.sort.removeprefix("-"), query.sort.startswith("-")
        if sort:
            self._known(sort)
            needed.add(sort)
        if self._doubled:
            needed |= set(KEY)
        if not needed:
            return pl.Series(_ROW, range(self.rows), dtype=pl.UInt32)
        frame = self.scan().select(_ROW, *sorted(needed))
        if self._doubled:
            frame = frame.unique(KEY, keep="last", maintain_order=True)
        if conditions:
            frame = frame.filter(*(condition for condition, _ in conditions))
        frame = frame.select(_ROW, *([sort] if sort else []))
        if sort:
            frame = frame.sort(sort, _ROW, descending=[descending, False], nulls_last=True)
        return frame.select(_ROW).collect(engine="streaming" if query.answers else "auto")[_ROW]

    def page(self, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """These rows, in this order."""
        import polars as pl

        if not rows:
            return []
        columns = [c for c in columns if c in self.schema]
        if set(HEAVY) & set(columns) or rows[-1] - rows[0] == len(rows) - 1:
            # Slices of neighbours: pages of a column that hold none of them stay compressed.
            frames = [self._slice(*piece).select(columns).collect() for piece in self._pieces(rows)]
            return [row for frame in frames for row in frame.to_dicts()]
        wanted = self.scan().filter(pl.col(_ROW).is_in(pl.Series(rows, dtype=pl.UInt32).implode()))
        found = {row.pop(_ROW): row for row in wanted.select(_ROW, *columns).collect().iter_rows(named=True)}
        return [found[row] for row in rows]

    def _pieces(self, rows: Sequence[int]) -> list[tuple[int, int, int]]:
        """Rows as (part, first row in it, how many), neighbours together."""
        pieces: list[tuple[int, int, int]] = []
        for row in rows:
            part = 0
            while row >= self.parts[part][1]:
                row -= self.parts[part][1]
                part += 1
            last = pieces[-1] if pieces else (-1, 0, 0)
            if last[0] == part and last[1] + last[2] == row:
                pieces[-1] = (part, last[1], last[2] + 1)
            else:
                pieces.append((part, row, 1))
        return pieces

    def _slice(self, part: int, first: int, height: int) -> pl.LazyFrame:
        """Rows of one part, with the columns of all."""
        import polars as pl

        scan = self._scans[part].slice(first, height)
        have = scan.collect_schema().names()
        return scan.with_columns(pl.lit(None, dtype=k).alias(n) for n, k in self.schema.items() if n not in have)

    def row_of(self, task: str, sample: str, attempt: int) -> int | None:
        """Row number of one trial."""
        import polars as pl

        if not self.parts:
            return None
        key = (pl.col("task") == task) & (pl.col("sample") == sample) & (pl.col("attempt") == attempt)
        found = self.scan().filter(key).select(_ROW).collect()[_ROW]
        return int(found[-1]) if found.len() else None

    def live(self, columns: Sequence[str]) -> pl.LazyFrame:
        """These columns (the key among them) of all records that no later one supersedes."""
        frame = self.scan().select(columns)
        return frame.unique(KEY, keep="last", maintain_order=True) if self._doubled else frame

    def light(self, also: Sequence[str] = ()) -> pl.DataFrame:
        """All records without the heavy columns (``also`` names those that are wanted anyway)."""
        return self.live([c for c in self.schema if c not in HEAVY or c in also]).collect()

    @cached_property
    def counts(self) -> dict[str, int]:
        """Records by status."""
        import polars as pl

        frame = self.live([*KEY, "status"])
        return dict(frame.group_by("status").agg(pl.len()).sort("status").collect().iter_rows())

    def _known(self, column: str) -> None:
        if column not in self.columns:
            raise unknown_name("column", column, self.columns)

    def _holds(self, text: str, answers: bool) -> tuple[pl.Expr, set[str]]:
        import polars as pl

        columns = ("output",) if answers else ("sample", "error")
        present = [c for c in columns if c in self.schema]
        # JSON text escapes what is no ASCII letter only where it must, so a plain search finds what was said.
        needle = text if not answers else text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        tests = [pl.col(c).str.contains_any([needle], ascii_case_insensitive=True).fill_null(False) for c in present]
        return pl.any_horizontal(tests) if tests else pl.lit(False), set(present)

    def _condition(self, text: str) -> tuple[pl.Expr, set[str]]:
        import polars as pl

        # A column's own name may hold a sign, so the longest column that fits is meant.
        name = max((c for c in self.columns if text.startswith(c)), key=len, default=None)
        match = _CONDITION.fullmatch(text)
        if name is None or not text[len(name) :].lstrip().startswith(_TESTS):
            if match is None:
                raise UsageError(f"A condition is a column, one of {' '.join(_TESTS)}, a value, not {text!r}.")
            raise unknown_name("column", match[1].strip(), self.columns)
        rest = text[len(name) :].lstrip()
        test = next(t for t in _TESTS if rest.startswith(t))
        value = rest[len(test) :].strip()
        column, kind = pl.col(name), self.schema[name]
        if test == "~":
            return column.cast(pl.String).str.contains_any([value], ascii_case_insensitive=True), {name}
        if value == "":
            empty = column.is_null() if kind != pl.String else column.is_null() | (column == "")
            return (~empty if test == "!=" else empty), {name}
        typed = pl.lit(_typed(value, kind, name))
        return {
            "=": column == typed, "!=": column.ne_missing(typed), "<": column < typed, "<=": column <= typed,
            ">": column > typed, ">=": column >= typed,
        }[test], {name}  # fmt: skip


def disagreements(a: View, b: View, score: str, most: int) -> tuple[int, list[dict[str, Any]]]:
    """Trials of two runs whose score differs: how many, and those that differ most (task, sample, attempt, a, b).

    A trial that has a score in one run and none in the other (an error) differs; one that a run lacks does not.
    """
    import polars as pl

    left, right = (view.live([*KEY, score]).rename({score: name}) for view, name in ((a, "a"), (b, "b")))
    both = left.join(right, on=list(KEY)).filter(pl.col("a").ne_missing(pl.col("b")))
    gap = (pl.col("a") - pl.col("b")).abs()
    found = both.sort(gap, *KEY, descending=[True, False, False, False], nulls_last=True).collect()
    return found.height, found.head(most).to_dicts()


def _typed(value: str, kind: Any, column: str) -> Any:
    """A value of a condition as its column has it."""
    import datetime as dt

    import polars as pl

    try:
        if kind == pl.Boolean:
            return {"yes": True, "true": True, "no": False, "false": False}[value.lower()]
        if kind.is_numeric():
            return float(value)
        if isinstance(kind, pl.Datetime):
            at = dt.datetime.fromisoformat(value)
            return at if at.tzinfo else at.replace(tzinfo=dt.UTC)
    except (KeyError, ValueError):
        what = "yes or no" if kind == pl.Boolean else "a number" if kind.is_numeric() else "a date (2026-01-31 12:00)"
        raise UsageError(f"The column {column!r} is compared with {what}, not {value!r}.") from None
    return value


def _height(path: Path) -> int:
    """Rows of a Parquet file."""
    import polars as pl

    return pl.scan_parquet(path).select(pl.len()).collect().item()


def _lives(process: str) -> bool:
    """Whether there is a process of that number; what is no number is none."""
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (ValueError, OverflowError, OSError):
        return False
    return True


class Views:
    """Views of runs, the tails of those that go on, and orders that were asked for lately."""

    def __init__(self, cache: Path) -> None:
        # Of this process alone: `human:` starts a second server in the same folder.
        self._cache = cache / str(os.getpid())
        for earlier in cache.glob("*"):
            # How much of a journal the parts of an earlier server hold nobody knows any more.
            if earlier == self._cache or not _lives(earlier.name):
                shutil.rmtree(earlier, ignore_errors=True)
        self._tails: dict[str, Tail] = {}
        self._folded: OrderedDict[str, tuple[Any, RunFolder, View]] = OrderedDict()
        self._orders: OrderedDict[Any, pl.Series] = OrderedDict()
        self._lock = threading.Lock()

    def view(self, run: RunFolder) -> View:
        """The records of a run as they stand now."""
        records, journal = run.file("records.parquet"), run.path / "journal"
        mark = None
        if records is not None:
            facts = records.stat()
            mark = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        if not journal.is_dir() or journal.is_symlink():
            return self._folded_view(run, records, mark)
        parts = [] if records is None else [(records, _height(records))]
        with self._lock:
            tail = self._tails.get(run.id)
            if tail is None:
                tail = self._tails[run.id] = Tail(self._cache / run.id)
                tail.drop()
        return View(run, [*parts, *tail.refresh(run)])

    def _folded_view(self, run: RunFolder, records: Path | None, mark: Any) -> View:
        """The view of a run that nothing is added to; kept as long as its files are the same."""
        with self._lock:
            tail = self._tails.pop(run.id, None)
            known = self._folded.get(run.id)
        if tail is not None:
            tail.drop()
        if known is not None and known[0] == mark and known[1] is run:
            return known[2]
        view = View(run, [] if records is None else [(records, _height(records))])
        with self._lock:
            self._folded[run.id] = (mark, run, view)
            while len(self._folded) > VIEWS_KEPT:
                self._folded.popitem(last=False)
        return view

    def order(self, view: View, query: Query) -> pl.Series:
        """`View.order`, kept for the next page."""
        key = (view.stamp, query)
        with self._lock:
            found = self._orders.get(key)
            if found is not None:
                self._orders.move_to_end(key)
                return found
        found = view.order(query)
        with self._lock:
            self._orders[key] = found
            while len(self._orders) > ORDERS_KEPT:
                self._orders.popitem(last=False)
        return found
