"""Table: what an analysis returns, for terminals, reports and files alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import polars as pl

ChartKind = Literal[
    "bar", "line", "scatter", "interval", "heatmap", "box", "histogram", "critical_difference", "step", "stacked_bar"
]


@dataclass(frozen=True, slots=True)
class Chart:
    """How a table wants to be drawn. Names of columns, nothing else; `report` does the drawing.

    Parameters
    ----------
    kind
        One of a dozen chart names.
    x, y, color, low, high, label, facet
        Columns for position, colour, interval ends, text beside a mark, small multiples.
    log_x, log_y
        Logarithmic axes.
    x_title, y_title
        Axis titles with units; the column name otherwise.
    """

    kind: ChartKind
    x: str
    y: str
    color: str | None = None
    low: str | None = None
    high: str | None = None
    label: str | None = None
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    x_title: str | None = None
    y_title: str | None = None


@dataclass(slots=True)
class Table:
    """A named table with units, notes and, if it wants one, a chart.

    Parameters
    ----------
    name
        Identifier, also the file name when it is written out.
    title
        One line a reader sees above it.
    frame
        The rows.
    notes
        Sentences below the table: what an interval is over, what was left out, how many errors.
    chart
        How to draw it; None = a table only.
    formats
        Python format specification a column (``{"usd": ".3g"}``); numbers get ``.4g`` otherwise.
    """

    name: str
    title: str
    frame: pl.DataFrame
    notes: Sequence[str] = ()
    chart: Chart | None = None
    formats: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Rows as dictionaries."""
        return self.frame.to_dicts()
