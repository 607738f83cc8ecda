"""Tables as they are shown: text to read, raw values to sort and download by, an interval in one column."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.core.table import Table
from assay.report.formats import MISSING, format_cell, visible

if TYPE_CHECKING:
    pass

MAX_ROWS = 400
MAX_CELL = 600
_TITLES = {
    "value": "score", "left_out": "left out", "usd_a_trial": "USD a trial", "usd_total": "USD in all",
    "seconds_median": "seconds (median)", "seconds_p90": "seconds (90 %)", "p_holm": "p (Holm)",
    "prompt_tokens": "prompt tokens", "completion_tokens": "completion tokens", "reasoning_tokens": "reasoning tokens",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the page.

    ``system`` is set where it belongs to one system, which a reader can hide; ``fields`` names the columns that a CSV
    file has for it where it holds several numbers.
    """

    title: str
    numeric: bool
    system: str | None = None
    fields: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """Text, the value to sort by and to write to CSV (several numbers stand with blanks between), and small print."""

    text: str
    raw: str
    extra: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    cells: Sequence[Cell]
    systems: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table ready to be shown. ``left_out`` counts rows beyond the first 400."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str]
    left_out: int = 0


def grid(table: Table, hide: Iterable[str] = (), limit: int | None = MAX_ROWS) -> Grid:
    """A table as it is shown; ``low`` and ``high`` become one column beside the value they belong to."""
    frame = table.frame
    names = [name for name in frame.columns if name not in set(hide)]
    ends = interval_columns(table)
    folded = ends[0] if ends and set(ends) <= set(names) else None
    names = [name for name in names if not (folded and ends and name == ends[1])]
    columns = [
        Column("interval", True, fields=ends or ())
        if name == folded
        else Column(title(name), bool(frame.schema[name].is_numeric()))
        for name in names
    ]
    rows = []
    for record in frame.head(frame.height if limit is None else limit).iter_rows(named=True):
        cells = [_interval(table, record) if name == folded else _cell(table, name, record[name]) for name in names]
        rows.append(Row(cells, json.dumps(_systems_of(record), ensure_ascii=False)))
    return _named(table, columns, rows, frame.height - len(rows))


def pivot(table: Table, group: str, systems: Sequence[str]) -> Grid:
    """A long table of group values and systems as one row a group value, one column a system."""
    frame = table.frame
    present = [system for system in systems if system in set(frame["system"])]
    by_value: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in frame.iter_rows(named=True):
        by_value.setdefault(record[group], {})[record["system"]] = record
    rows = []
    for value, records in by_value.items():
        counts = sorted({record["n"] for record in records.values()})
        cells = [
            Cell(visible(value), value),
            Cell("–".join(map(str, dict.fromkeys([counts[0], counts[-1]]))), str(counts[-1])),
        ]
        for system in present:
            record = records.get(system)
            if record is None:
                cells.append(Cell(MISSING, ""))
                continue
            value, interval = _cell(table, "value", record["value"]), _interval(table, record)
            small = [interval.text] if interval.raw else []
            small += [_count(record["errors"], "error")] if record["errors"] else []
            cells.append(Cell(value.text, f"{value.raw} {interval.raw}".strip(), "; ".join(small)))
        rows.append(Row(cells))
    columns = [Column(title(group), False), Column("n", True), *[_system_column(s) for s in present]]
    return _named(table, columns, rows[:MAX_ROWS], max(0, len(rows) - MAX_ROWS))


def endings_grid(table: Table, systems: Sequence[str]) -> Grid:
    """How trials ended as one row an ending, one column a system: share and number of trials."""
    found: dict[str, dict[str, Cell]] = {}
    for record in table.frame.iter_rows(named=True):
        share = _cell(table, "share", record["share"])
        cell = Cell(share.text, f"{share.raw} {record['trials']}", _count(record["trials"], "trial"))
        found.setdefault(record["ending"], {})[record["system"]] = cell
    rows = [
        Row([Cell(name, name), *[cells.get(s, Cell(MISSING, "")) for s in systems]]) for name, cells in found.items()
    ]
    columns = [Column("ending", False), *[Column(s, True, s, (f"{s} share", f"{s} trials")) for s in systems]]
    return _named(table, columns, rows, 0)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _named(table: Table, columns: Sequence[Column], rows: Sequence[Row], left_out: int) -> Grid:
    notes = [visible(note) for note in table.notes]
    return Grid(visible(table.name), visible(table.title), columns, rows, notes, left_out)


def _system_column(system: str) -> Column:
    return Column(system, True, system, (system, f"{system} low", f"{system} high"))


def title(name: str) -> str:
    """A column name as a heading."""
    return _TITLES.get(name, visible(name).replace("_", " "))


def _cell(table: Table, name: str, value: Any) -> Cell:
    text = format_cell(table, name, value)
    if len(text) > MAX_CELL:
        text = text[:MAX_CELL] + "…"
    return Cell(text, raw(value))


def _interval(table: Table, record: Mapping[str, Any]) -> Cell:
    names = interval_columns(table) or ("low", "high")
    ends = [record[name] for name in names]
    if any(end is None for end in ends) or not any(math.isfinite(end) for end in ends):
        return Cell(MISSING, "")
    texts = [format_cell(table, _format_like(table, name), end) for name, end in zip(names, ends)]
    return Cell(" to ".join(texts), " ".join(map(raw, ends)))


def interval_columns(table: Table) -> tuple[str, str] | None:
    """The columns of a table's interval: those of its chart, else ``low`` and ``high``; None without one."""
    chart, columns = table.chart, table.frame.columns
    if chart is not None and chart.low in columns and chart.high in columns:
        return str(chart.low), str(chart.high)
    return ("low", "high") if "low" in columns and "high" in columns else None


def _format_like(table: Table, name: str) -> str:
    """The column whose format an end of the interval takes: its own, else that of the value that the chart draws."""
    if name in table.formats or table.chart is None:
        return name
    return next((column for column in (table.chart.x, table.chart.y) if column in table.formats), name)


def raw(value: Any) -> str:
    """A value with all its digits, for sorting and for CSV; empty where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)[:MAX_CELL]


def _systems_of(record: Mapping[str, Any]) -> list[str]:
    """Systems that a row is about: hiding one of them hides the row."""
    return [record[name] for name in ("system", "a", "b") if isinstance(record.get(name), str)]
