"""From the frame of a table to what a figure draws: columns by channel, kinds of scales, what is left out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError, unknown_name
from assay.core.table import Chart, Table
from assay.report.formats import format_cell, format_value, one_line

if TYPE_CHECKING:
    import polars as pl

CHANNELS = ("x", "y", "color", "low", "high", "label", "facet")
MAX_MARKS = 4000
MAX_TOOLTIP_COLUMNS = 12
# Charts that fold many rows into few marks take all of them; thinning would change what they say.
_FOLDING = ("box", "histogram")
_UNUSED = {"histogram": ("y", "low", "high", "label"), "critical_difference": ("low",)}


@dataclass(slots=True)
class ChartData:
    """What a chart draws.

    ``values`` are rows keyed by channel (``x``, ``y``, ...; ``t0``, ``t1``, ... hold the tooltip's text), so that no
    column name, whatever it contains, is ever read as an expression. ``kinds`` is ``quantitative``, ``temporal`` or
    ``nominal`` a channel; ``left_out`` says what could not be drawn.
    """

    chart: Chart
    values: list[dict[str, Any]]
    columns: dict[str, str]
    log: dict[str, bool]
    kinds: dict[str, str]
    titles: dict[str, str]
    specs: dict[str, str | None]
    tooltip: list[dict[str, str]]
    domain: list[str]
    left_out: str

    def has(self, channel: str) -> bool:
        return channel in self.kinds

    def same(self, a: str, b: str) -> bool:
        """Whether two channels show the same column."""
        return self.has(a) and self.has(b) and self.columns[a] == self.columns[b]

    def turn(self) -> None:
        """Exchange x and y."""
        for row in self.values:
            row["x"], row["y"] = row["y"], row["x"]
        for part in (self.columns, self.log, self.kinds, self.titles, self.specs):
            part["x"], part["y"] = part["y"], part["x"]  # type: ignore[index]

    def distinct(self, channel: str) -> list[Any]:
        """Values of a channel in order of appearance."""
        return list(dict.fromkeys(row[channel] for row in self.values if row.get(channel) is not None))

    def most_in_facet(self, channel: str) -> int:
        """Most different values of a channel in one facet."""
        parts: dict[Any, set[Any]] = {}
        for row in self.values:
            parts.setdefault(row.get("facet"), set()).add(row[channel])
        return max(map(len, parts.values()), default=0)

    def numbers(self, *channels: str) -> list[float]:
        return [row[c] for row in self.values for c in channels if isinstance(row.get(c), int | float)]

    def axis_format(self, channel: str) -> str | None:
        """The table's number format where d3 reads it the same way."""
        spec = self.specs.get(channel)
        return spec if spec and re.fullmatch(r",?(\.\d+)?%|,?(\.0)?f|,", spec) else None

    def show(self, channel: str, value: Any) -> str:
        """A value as the table writes it."""
        return format_value(value, self.specs.get(channel))

    def channels_of(self, *columns: str) -> list[str]:
        """Channels that show the first of these columns that the chart uses."""
        for column in columns:
            found = [channel for channel, name in self.columns.items() if name == column]
            if found:
                return found
        return []


def prepare(table: Table, chart: Chart, domain: Sequence[str] | None) -> ChartData:
    """Check a chart against its table and take out what it draws."""
    frame = table.frame
    unused = _UNUSED.get(chart.kind, ())
    names: dict[str, str] = {c: getattr(chart, c) for c in CHANNELS if getattr(chart, c) and c not in unused}
    for channel, name in names.items():
        if name not in frame.columns:
            raise unknown_name("column", name, frame.columns, f"(Chart.{channel} of table {table.name!r})")
    kinds = {channel: _kind(frame.schema[name]) for channel, name in names.items()}
    _check(table, chart, kinds)
    frame, notes = _drawable(frame, chart, names, kinds)
    shown = _tooltip_columns(frame, table, names) if chart.kind not in _FOLDING else []
    values = []
    for row in frame.iter_rows(named=True):
        value = {channel: _json(row[name], kinds[channel]) for channel, name in names.items()}
        value |= {f"t{i}": one_line(format_cell(table, name, row[name]), 120) for i, name in enumerate(shown)}
        values.append(value)
    titles = {channel: name.replace("_", " ") for channel, name in names.items()}
    titles |= {"x": chart.x_title or titles.get("x", ""), "y": chart.y_title or titles.get("y", "")}
    return ChartData(
        chart=chart,
        values=values,
        columns=names,
        log={"x": chart.log_x, "y": chart.log_y},
        kinds=kinds,
        titles=titles,
        specs={channel: table.formats.get(name) for channel, name in names.items()},
        tooltip=[
            {"field": f"t{i}", "type": "nominal", "title": name.replace("_", " ")} for i, name in enumerate(shown)
        ],
        domain=_domain(values, domain),
        left_out="; ".join(notes),
    )


def _kind(dtype: pl.DataType) -> str:
    import polars as pl

    if dtype.is_numeric():
        return "quantitative"
    return "temporal" if isinstance(dtype, pl.Date | pl.Datetime) else "nominal"


_NUMERIC = {
    "line": ("y",), "step": ("y",), "heatmap": ("color",), "histogram": ("x",),
    "critical_difference": ("x",), "stacked_bar": (), "bar": (), "interval": (), "scatter": (), "box": (),
}  # fmt: skip
_NEEDS = {"heatmap": ("color",), "stacked_bar": ("color",)}


def _check(table: Table, chart: Chart, kinds: dict[str, str]) -> None:
    where = f"The {chart.kind} chart of table {table.name!r}"
    for channel in _NEEDS.get(chart.kind, ()):
        if channel not in kinds:
            raise UsageError(f"{where} needs a {channel} column; name it as Chart.{channel}.")
    for channel in _NUMERIC[chart.kind]:
        if kinds[channel] != "quantitative":
            raise UsageError(
                f"{where} needs numbers in {channel}, but column {getattr(chart, channel)!r} holds "
                f"{table.frame.schema[getattr(chart, channel)]}; name a column of numbers."
            )
    if chart.kind in ("bar", "stacked_bar", "interval", "box") and "quantitative" not in (kinds["x"], kinds["y"]):
        raise UsageError(f"{where} needs numbers in x or y, but {chart.x!r} and {chart.y!r} both hold text.")


def _drawable(
    frame: pl.DataFrame, chart: Chart, names: dict[str, str], kinds: dict[str, str]
) -> tuple[pl.DataFrame, list[str]]:
    import polars as pl

    notes: list[str] = []
    keep = pl.lit(True)
    for channel, name in names.items():
        if channel in ("x", "y") and kinds[channel] == "quantitative":
            keep &= pl.col(name).cast(pl.Float64).is_finite().fill_null(False)
    total = frame.height
    frame = frame.filter(keep)
    if frame.height < total:
        notes.append(f"{total - frame.height} of {total} rows have no finite value and are not drawn")
    for channel, log in (("x", chart.log_x), ("y", chart.log_y)):
        if log and kinds.get(channel) == "quantitative":
            before, frame = frame.height, frame.filter(pl.col(names[channel]) > 0)
            if frame.height < before:
                notes.append(f"{before - frame.height} rows are not positive and have no place on a logarithmic axis")
    if frame.height > MAX_MARKS and chart.kind not in _FOLDING:
        step = math.ceil(frame.height / MAX_MARKS)
        notes.append(f"one row in {step} of {frame.height} is drawn")
        frame = frame.gather_every(step)
    return frame, notes


def _tooltip_columns(frame: pl.DataFrame, table: Table, names: dict[str, str]) -> list[str]:
    if frame.height > 600:
        return list(dict.fromkeys(names.values()))
    return [c for c in frame.columns if not frame.schema[c].is_nested()][:MAX_TOOLTIP_COLUMNS]


def _json(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "quantitative":
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list):
        return value
    return _name(one_line(str(value), 80))


_CODE = (
    "if", "constructor", "toString", "toLocaleString", "valueOf", "hasOwnProperty", "isPrototypeOf", "__proto__",
    "propertyIsEnumerable", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
)  # fmt: skip


def _name(text: str) -> str:
    """The text; one that Vega takes for code although it stands in quotes gets a mark that nobody sees."""
    return f"{text}\u200b" if text in _CODE else text


def _domain(values: list[dict[str, Any]], given: Sequence[str] | None) -> list[str]:
    present = list(dict.fromkeys(str(row["color"]) for row in values if row.get("color") is not None))
    names = [_name(name) for name in given or ()]
    if names and set(present) <= set(names):
        return names
    return present
