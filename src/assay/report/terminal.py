"""Tables in the terminal: ranked, with interval bars where there is room, and plain text where nobody looks.

A pipe or ``TERM=dumb`` gets aligned text without colours, bars or line breaks; a terminal too narrow for a table gets
one block a row. ``NO_COLOR`` is obeyed by rich.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from assay.core.table import Table
from assay.report.formats import format_value, one_line
from assay.report.grid import Cell, Grid, grid
from assay.report.provenance import data_warning
from assay.report.summary import Board, comparison_table

if TYPE_CHECKING:
    from assay.core.metrics import Comparison

BAR = 25
_MIN_BAR_ROOM = 4
_COMPARISON_HIDDEN = ("a", "b", "test")
_COST_HIDDEN = ("low", "high", "value", "unpriced", "trials")


def print_board(board: Board, console: Console | None = None) -> None:
    """Print what a reader of a finished run wants: ranking, other metrics, comparison, costs, errors, a verdict."""
    console = console or Console(highlight=False)
    for warning in dict.fromkeys(w for run in board.runs if (w := data_warning(run))):
        _say(console, f"Note: {warning}", "yellow")
    rankings = board.rankings()
    if rankings:
        print_table(rankings[0], console)
    if len(rankings) > 1:
        print_table(other_metrics(board, rankings[1:]), console)
    comparison = board.comparison()
    if comparison is not None:
        print_table(comparison, console, hide=_COMPARISON_HIDDEN)
    print_table(board.costs(), console, hide=_COST_HIDDEN)
    errors = board.errors()
    if errors is not None:
        print_table(errors, console)
    if len(board.runs) > 1:
        _say(console, board.verdict(), "bold")
        console.print()


def other_metrics(board: Board, rankings: Sequence[Table]) -> Table:
    """Metrics beside the headline: one row a metric, one column a system, each value with its interval."""
    import polars as pl

    rows = []
    for table in rankings:
        cells: dict[str, str | None] = {"metric": table.name.removeprefix("ranking.")}
        for record in table.frame.iter_rows(named=True):
            low, high = record["low"], record["high"]
            text = format_value(record["value"], table.formats["value"])
            if low is not None and high is not None:
                text += (
                    f" ({format_value(low, table.formats['value'])} to {format_value(high, table.formats['value'])})"
                )
            cells[record["system"]] = text
        rows.append(cells)
    schema = dict.fromkeys(["metric", *board.labels], pl.String)
    return Table("metrics", "Other metrics", pl.DataFrame(rows, schema=schema))


def print_comparisons(comparisons: Iterable[Comparison], console: Console | None = None) -> None:
    """Print paired comparisons, one table a metric, each with the sentence whether its ranking is decisive."""
    from assay.core.stats.paired import decisive_words

    console = console or Console(highlight=False)
    by_metric: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_metric.setdefault(comparison.metric, []).append(comparison)
    for listed in by_metric.values():
        print_table(comparison_table(listed), console, hide=("a", "b"))
        _say(console, decisive_words(listed), "bold")
        console.print()


def print_table(table: Table, console: Console | None = None, *, hide: Iterable[str] = ()) -> None:
    """Print a table as fits the console.

    Parameters
    ----------
    table
        The table; its chart is not drawn, but values with low and high get a bar where there is room.
    console
        Where to; standard output if None.
    hide
        Columns to leave out.
    """
    console = console or Console(highlight=False)
    shown = grid(table, hide, limit=None)
    if not console.is_terminal or console.is_dumb_terminal:
        for line in plain_lines(shown):
            console.print(Text(line), soft_wrap=True)
        return
    width = _natural_width(shown)
    if width > console.width and not _fits_wrapped(shown, console.width):
        _print_blocks(shown, console)
    else:
        bars = _bars(table) if width + BAR + _MIN_BAR_ROOM <= console.width else None
        _print_rich(shown, bars, console)
    for note in shown.notes:
        _say(console, note, "dim")
    console.print()


def plain_lines(shown: Grid) -> list[str]:
    """A table as aligned lines of text, columns two blanks apart, notes below."""
    heads = [column.title for column in shown.columns]
    texts = [[one_line(_text(cell)) for cell in row.cells] for row in shown.rows]
    widths = [max([len(head), *(len(row[i]) for row in texts)]) for i, head in enumerate(heads)]
    lines = [shown.title]
    for row in [heads, *texts]:
        cells = [
            text.rjust(width) if column.numeric else text.ljust(width)
            for text, width, column in zip(row, widths, shown.columns)
        ]
        lines.append("  ".join(cells).rstrip())
    return [*lines, *shown.notes, ""]


def interval_bar(low: float | None, value: float | None, high: float | None, start: float, end: float) -> str:
    """An interval as text: ``├──●──┤`` placed between ``start`` and ``end``, 25 characters wide."""
    if value is None or not math.isfinite(value) or end <= start:
        return ""

    def place(x: float) -> int:
        return round((min(max(x, start), end) - start) / (end - start) * (BAR - 1))

    cells = [" "] * BAR
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        left, right = place(low), place(high)
        cells[left : right + 1] = "─" * (right - left + 1)
        cells[left], cells[right] = "├", "┤"
    cells[place(value)] = "●"
    return "".join(cells)


def _bars(table: Table) -> list[str] | None:
    """Interval bars of the rows of a ranking or comparison; None for other tables."""
    frame = table.frame
    value = next((c for c in ("value", "difference") if c in frame.columns), None)
    if (
        value is None
        or not {"low", "high"} <= set(frame.columns)
        or table.chart is None
        or table.chart.kind != "interval"
    ):
        return None
    rows = list(frame.select("low", value, "high").iter_rows())
    finite = [x for row in rows for x in row if x is not None and math.isfinite(x)]
    if not finite:
        return None
    start, end = min(finite), max(finite)
    return [interval_bar(low, middle, high, start, end) for low, middle, high in rows]


def _print_rich(shown: Grid, bars: Sequence[str] | None, console: Console) -> None:
    table = RichTable(title=Text(shown.title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in shown.columns:
        table.add_column(
            column.title, justify="right" if column.numeric else "left", header_style="dim", overflow="fold"
        )
    if bars is not None:
        table.add_column("", no_wrap=True)
    for index, row in enumerate(shown.rows):
        cells = [_styled(column.title, cell) for column, cell in zip(shown.columns, row.cells)]
        table.add_row(*cells, *([Text(bars[index], style="cyan")] if bars is not None else []))
    console.print(table)


def _print_blocks(shown: Grid, console: Console) -> None:
    """One block a row, for terminals too narrow for columns."""
    console.print(Text(shown.title, style="bold"))
    first = 1 if shown.columns[0].title == "rank" and len(shown.columns) > 1 else 0
    for row in shown.rows:
        head = " ".join(_text(cell) for cell in row.cells[: first + 1])
        console.print(Text(head, style="bold cyan"))
        for column, cell in zip(shown.columns[first + 1 :], row.cells[first + 1 :]):
            console.print(Text.assemble(("  " + column.title + " ", "dim"), _styled(column.title, cell)))


def _styled(column: str, cell: Cell) -> Text:
    text = Text(_text(cell))
    if column in ("errors", "left out") and cell.raw not in ("", "0"):
        text.stylize("red")
    elif column == "verdict" and cell.text == "not decisive":
        text.stylize("yellow")
    return text


def _text(cell: Cell) -> str:
    return one_line(cell.text, 400) + (f" ({cell.extra})" if cell.extra else "")


def _natural_width(shown: Grid) -> int:
    columns = [[column.title, *(_text(row.cells[i]) for row in shown.rows)] for i, column in enumerate(shown.columns)]
    return sum(max(map(len, column)) + 2 for column in columns)


def _fits_wrapped(shown: Grid, width: int) -> bool:
    """Whether numbers stay whole when headings break at blanks and other columns wrap at 14 characters."""
    needed = 0
    for i, column in enumerate(shown.columns):
        longest = max([0, *(len(_text(row.cells[i])) for row in shown.rows)])
        head = max(map(len, column.title.split()), default=0)
        needed += max(head, longest if column.numeric else min(longest, 14)) + 2
    return needed <= width


def _say(console: Console, text: str, style: str) -> None:
    """One sentence; whole on one line where it goes to a pipe."""
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)
