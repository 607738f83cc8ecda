"""Tables and figures as files, runs in other layouts: CSV, JSON, Markdown, LaTeX, HTML, SVG, PNG, Parquet."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError, unknown_name
from assay.core.table import Table
from assay.report.figures import to_png, to_svg, vega_lite
from assay.report.grid import Grid, grid, raw
from assay.report.provenance import provenance
from assay.report.summary import boards

if TYPE_CHECKING:
    from assay.core.results import Run

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~])")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--", "∞": r"$\infty$", "…": r"\dots{}",
    "×": r"$\times$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip


def to_csv(table: Table) -> str:
    """All rows with all their digits; nested values as JSON, missing ones empty (RFC 4180)."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(table.frame.columns)
    writer.writerows([_field(value) for value in row] for row in table.frame.iter_rows())
    return buffer.getvalue()


def to_json(table: Table) -> str:
    """Name, title, rows and notes; NaN becomes null, infinities become text."""
    return json.dumps(_plain_table(table), ensure_ascii=False, indent=1)


def to_markdown(table: Table) -> str:
    """A pipe table with its title and notes."""
    shown = grid(table, limit=None)
    heads = [_markdown(column.title) for column in shown.columns]
    rule = ["---:" if column.numeric else "---" for column in shown.columns]
    rows = [[_markdown(cell.text) for cell in row.cells] for row in shown.rows]
    lines = [f"**{_markdown(shown.title)}**", ""]
    lines += ["| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows)]
    return "\n".join([*lines, *(line for note in shown.notes for line in ("", _markdown(note)))]) + "\n"


def to_latex(table: Table) -> str:
    """A booktabs table with caption, label and notes (needs ``\\usepackage{booktabs}``)."""
    shown = grid(table, limit=None)
    form = "".join("r" if column.numeric else "l" for column in shown.columns)
    label = re.sub(r"[^A-Za-z0-9:.-]+", "-", table.name)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex(shown.title)}}}", rf"\label{{tab:{label}}}"]
    lines += [rf"\begin{{tabular}}{{{form}}}", r"\toprule"]
    lines.append(" & ".join(latex(column.title) for column in shown.columns) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(latex(" ".join(cell.text.split())) for cell in row.cells) + r" \\" for row in shown.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {latex(note)}" for note in shown.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def to_html(table: Table) -> str:
    """A plain table element, everything escaped."""
    shown = grid(table, limit=None)
    return _html_table(shown)


_TABLE_FORMS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "json": to_json,
    "md": to_markdown,
    "latex": to_latex,
    "tex": to_latex,
    "html": to_html,
}


def write_table(table: Table, path: Path | str) -> Path:
    """Write a table to a file: csv, json, md, tex, html, parquet, or its chart as svg or png, by the file's ending.

    Raises
    ------
    UsageError
        An unknown ending, or a figure of a table without chart.
    """
    path = Path(path)
    form = path.suffix.lower().lstrip(".")
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        table.frame.write_parquet(path)
    elif form == "svg":
        path.write_text(to_svg(vega_lite(table)), encoding="utf-8")
    elif form == "png":
        path.write_bytes(to_png(vega_lite(table)))
    elif form in _TABLE_FORMS:
        path.write_text(_TABLE_FORMS[form](table), encoding="utf-8", newline="")
    else:
        raise unknown_name("table format", form, [*_TABLE_FORMS, "parquet", "svg", "png"], f"(from {path.name})")
    return path


def write_tables(tables: Iterable[Table], path: Path | str) -> list[Path]:
    """Write tables where ``path`` says.

    A file ending in a format's name takes one table; of several, each gets its own file beside it, named
    ``STEM-TABLE.ENDING``. Anything else is a folder, made if need be, which gets each table as CSV and Markdown and its
    figure as SVG and PNG.

    Returns
    -------
    list of Path
        The files written.
    """
    path, listed = Path(path), list(tables)
    if path.suffix and not path.is_dir():
        if len(listed) == 1:
            return [write_table(listed[0], path)]
        return [write_table(table, path.with_name(f"{path.stem}-{_file_name(table)}{path.suffix}")) for table in listed]
    if path.is_file():
        raise UsageError(f"{path} is a file without a known ending; name a folder, or a file like tables.csv.")
    written = []
    for table in listed:
        written += [write_table(table, path / f"{_file_name(table)}.{form}") for form in ("csv", "md")]
        if table.chart is not None and table.frame.height:
            written += [write_table(table, path / f"{_file_name(table)}.{form}") for form in ("svg", "png")]
    return written


def board_text(runs: Iterable[Run], form: str, tables: Sequence[Table] = ()) -> str:
    """Rankings, comparisons, groups, costs and errors of runs, and further tables, as one text.

    Parameters
    ----------
    runs
        At least one run.
    form
        ``md``, ``latex``, ``json`` or ``csv`` (long: one row a score, of all metrics, overall and by group).
    tables
        Tables of analyses; ``csv`` leaves them out, since they have columns of their own.
    """
    found = boards(runs)
    if not found:
        raise UsageError("There is no run to write; `assay runs` lists the runs there are.")
    if form == "csv":
        return to_csv(scores_table(found))
    every = [*(table for board in found for table in board.tables()), *tables]
    if form == "json":
        listed = [{"id": r.path.name, "system": r.system, "info": r.info} for board in found for r in board.runs]
        verdicts = {board.benchmark: board.verdict() for board in found}
        whole = {"runs": listed, "verdicts": verdicts, "tables": [_plain_table(table) for table in every]}
        return json.dumps(whole, ensure_ascii=False, indent=1, default=str) + "\n"
    if form == "md":
        parts = [f"# {' · '.join(board.title for board in found)}\n", *(f"{board.verdict()}\n" for board in found)]
        parts += [to_markdown(table) for table in every]
        commands = [p.command or p.id for board in found for run in board.runs for p in [provenance(run)]]
        parts.append("```\n" + "\n".join(commands) + "\n```\n")
        return "\n".join(parts)
    if form in ("latex", "tex"):
        return "\n".join(to_latex(table) for table in every)
    raise unknown_name("report format", form, ["csv", "json", "md", "latex"])


def scores_table(found: Iterable[Any]) -> Table:
    """All scores of boards in one long table: benchmark, system, metric, group, its value, score, interval, counts."""
    import polars as pl

    rows = [
        {
            "benchmark": board.benchmark,
            "system": label,
            "metric": score.metric,
            "group": " / ".join(score.by) or None,
            "group_value": " / ".join(map(str, score.by.values())) or None,
            "value": score.value,
            "low": score.low,
            "high": score.high,
            "n": score.n,
            "clusters": score.n_clusters,
            "errors": score.n_error,
            "left_out": score.n_left_out,
            "interval": score.interval,
            "resample": score.resample,
            "note": score.note or None,
        }
        for board in found
        for label, scores in board.scores.items()
        for score in scores
    ]
    return Table("scores", "All scores", pl.DataFrame(rows, infer_schema_length=None))


def write_records(runs: Iterable[Run], path: Path | str) -> Path:
    """Write the records of runs in one file: csv (nested values as JSON), jsonl or parquet, by its ending."""
    from assay.core.results import Runs

    path, records = Path(path), Runs(runs).records
    form = path.suffix.lower().lstrip(".")
    if form == "parquet":
        records.write_parquet(path, compression="zstd")
    elif form in ("jsonl", "ndjson"):
        with path.open("w", encoding="utf-8") as file:
            for row in records.iter_rows(named=True):
                file.write(json.dumps(_plain(row), ensure_ascii=False, default=str) + "\n")
    elif form == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\r\n")
            writer.writerow(records.columns)
            writer.writerows([_field(value) for value in row] for row in records.iter_rows())
    else:
        raise unknown_name("records format", form, ["csv", "jsonl", "parquet"], f"(from {path.name})")
    return path


def _markdown(text: str) -> str:
    """Text on one line, with everything escaped that Markdown or HTML inside it reads as markup."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def latex(text: str) -> str:
    """Text with everything escaped that LaTeX reads as a command."""
    return "".join(_LATEX.get(character, character) for character in text)


def _field(value: Any) -> str:
    """A CSV field; infinities as ``inf``, the word that readers of CSV know."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return json.dumps(_plain(value), ensure_ascii=False, default=str)
    return raw(value)


def _plain_table(table: Table) -> dict[str, Any]:
    rows = [_plain(row) for row in table.frame.iter_rows(named=True)]
    return {"name": table.name, "title": table.title, "rows": rows, "notes": list(table.notes)}


def _plain(value: Any) -> Any:
    """A value of JSON's kinds."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return raw(value)


def _html_table(shown: Grid) -> str:
    heads = "".join(f"<th>{html.escape(column.title)}</th>" for column in shown.columns)
    rows = [
        "<tr>" + "".join(f"<td>{html.escape(cell.text)}</td>" for cell in row.cells) + "</tr>" for row in shown.rows
    ]
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in shown.notes)
    body = "\n".join(rows)
    return (
        f"<table>\n<caption>{html.escape(shown.title)}</caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n{notes}\n"
    )


def _file_name(table: Table) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", table.name).strip("-.") or "table"
