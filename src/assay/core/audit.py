"""Filters with an audit trail: how many rows went in, how many came out, which fell, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from assay.core.errors import UsageError

if TYPE_CHECKING:
    from assay.core.table import Table

Row = TypeVar("Row")
_SHOWN_VALUE = 80


@dataclass(slots=True)
class Step:
    """One filter: its name, why rows fall, counts, and the fallen by id with the reason of each."""

    name: str
    reason: str
    rows_in: int
    rows_out: int
    fallen: dict[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, int]:
        """Fallen rows by reason, most frequent first."""
        return dict(Counter(self.fallen.values()).most_common())


class Audit:
    """The trail of a chain of filters.

    >>> audit = Audit(key=lambda row: row["id"])
    >>> rows = audit.keep(rows, "length", lambda row: len(row["text"]) > 9, "text shorter than 10 characters")
    >>> write_manifest(folder, recipe="demo.clean", audit=audit)

    Parameters
    ----------
    key
        Id of a row, stable and unique among the rows of a step; default ``row["id"]``, or ``row.id``.
    """

    def __init__(self, key: Callable[[Any], str] | None = None) -> None:
        self.steps: list[Step] = []
        self._key = key or _default_key

    def keep(self, rows: Iterable[Row], name: str, test: Callable[[Row], bool], reason: str) -> list[Row]:
        """Rows for which ``test`` holds, in their order; the others are noted with ``reason``."""
        return self.sift(rows, name, lambda row: None if test(row) else reason, reason)

    def sift(self, rows: Iterable[Row], name: str, fault: Callable[[Row], str | None], reason: str = "") -> list[Row]:
        """Rows for which ``fault`` gives None; it names a reason of its own for each of the others."""
        listed = list(rows)
        faults = [fault(row) for row in listed]
        return self._note(listed, faults, name, reason)

    def unique(
        self, rows: Iterable[Row], name: str, by: Callable[[Row], Any], reason: str = "seen before"
    ) -> list[Row]:
        """The first row of each value of ``by``; the reason of the others names the row that was kept."""
        first: dict[Any, str] = {}

        def fault(row: Row) -> str | None:
            kept = first.setdefault(by(row), self._id(row))
            return None if kept == self._id(row) else f"{reason}: {kept}"

        return self.sift(rows, name, fault, reason)

    def replace(self, before: Iterable[Row], after: Iterable[Row], name: str, reason: str) -> list[Row]:
        """Note a filter that was applied elsewhere (a clustering, another program); returns ``after``.

        Raises
        ------
        UsageError
            ``after`` holds a row that ``before`` does not.
        """
        kept, listed = list(after), list(before)
        ids = {self._id(row) for row in kept}
        if strange := sorted(ids - {self._id(row) for row in listed})[:1]:
            raise UsageError(f"Filter {name!r} returned the row {strange[0]!r}, which it was not given.")
        self._note(listed, [None if self._id(row) in ids else reason for row in listed], name, reason)
        return kept

    def _note(self, rows: list[Row], faults: list[str | None], name: str, reason: str) -> list[Row]:
        if any(step.name == name for step in self.steps):
            raise UsageError(f"The audit has a filter {name!r} already; give each its own name.")
        kept = [row for row, fault in zip(rows, faults) if fault is None]
        fallen: dict[str, str] = {}
        for row, fault in zip(rows, faults):
            if fault is not None:
                label = self._id(row)
                if label in fallen:
                    raise UsageError(f"Filter {name!r} met two rows with the id {label!r}; ids must be unique.")
                fallen[label] = fault
        self.steps.append(Step(name, reason, len(rows), len(kept), fallen))
        return kept

    def _id(self, row: Any) -> str:
        return str(self._key(row))

    @property
    def rows_in(self) -> int:
        """Rows that entered the first filter."""
        return self.steps[0].rows_in if self.steps else 0

    @property
    def rows_out(self) -> int:
        """Rows that passed the last filter."""
        return self.steps[-1].rows_out if self.steps else 0

    def fate(self, row_id: str) -> tuple[str, str] | None:
        """Filter at which a row fell and the reason; None when it passed all (or was never seen)."""
        return next(((step.name, step.fallen[row_id]) for step in self.steps if row_id in step.fallen), None)

    def counts(self) -> list[dict[str, Any]]:
        """For the manifest: a filter a row, with counts and the ten most frequent reasons."""
        return [
            {
                "filter": step.name,
                "reason": step.reason,
                "rows_in": step.rows_in,
                "rows_out": step.rows_out,
                "reasons": dict(list(step.reasons.items())[:10]),
            }
            for step in self.steps
        ]

    def fallen(self) -> list[dict[str, str]]:
        """Every fallen row: id, filter, reason."""
        return [
            {"id": label, "filter": step.name, "reason": reason}
            for step in self.steps
            for label, reason in step.fallen.items()
        ]

    def write(self, path: Path) -> Path:
        """Write the fallen rows as JSON lines (``audit.jsonl`` beside the data, by custom)."""
        import msgspec

        path = Path(path)
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in self.fallen()))
        return path

    def table(self) -> Table:
        """The trail as a table."""
        import polars as pl

        from assay.core.table import Table

        frame = pl.DataFrame(
            [(s.name, s.rows_in, s.rows_out, s.rows_in - s.rows_out, s.reason) for s in self.steps],
            schema={
                "filter": pl.String,
                "rows_in": pl.Int64,
                "rows_out": pl.Int64,
                "fell": pl.Int64,
                "reason": pl.String,
            },
            orient="row",
        )
        note = f"{self.rows_in} rows went in, {self.rows_out} came out."
        return Table("audit", "Filters, in order", frame, notes=(note,))


def _default_key(row: Any) -> str:
    if isinstance(row, Mapping):
        if "id" in row:
            return row["id"]
    elif hasattr(row, "id"):
        return row.id
    shown = repr(row)
    raise UsageError(
        f"An audited row has no id: {shown[:_SHOWN_VALUE]}; give Audit(key=...), a function of a row that names it."
    )
