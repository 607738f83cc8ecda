"""One self-contained HTML page about runs: no network, no external file, safe to open whatever the outputs hold.

The page is whole without scripts (tables, trials, provenance); scripts draw the figures and let the reader sort,
filter, choose groups and hide runs. A content-security policy allows exactly the page's own three scripts, by hash.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError
from assay.core.files import write_atomically
from assay.core.table import Table
from assay.report import conduct, trials
from assay.report.exchange import ImageBudget
from assay.report.figures import pareto, theme, vega_lite
from assay.report.formats import dollars, duration
from assay.report.grid import Grid, endings_grid, grid, pivot
from assay.report.provenance import data_warning, provenance
from assay.report.summary import Board, boards

if TYPE_CHECKING:
    from assay.core.results import Run


@dataclass(frozen=True, slots=True)
class Panel:
    """A table with its figure; of several panels the reader sees the one chosen by ``keys``."""

    grid: Grid
    figure: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class BoardView:
    """One benchmark on the page."""

    anchor: str
    board: Board
    verdict: str
    facts: Sequence[tuple[str, str]]
    ranking: list[Panel]
    comparison: Panel | None
    groups: list[Panel]
    groups_left_out: Sequence[str]
    costs: Panel
    endings: Panel
    errors: Panel | None
    choice: trials.Choice


class _Figures:
    """Specifications of the page by id."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}

    def add(self, spec: dict[str, Any], name: str) -> str:
        key = f"figure-{len(self.specs) + 1}"
        spec["usermeta"] |= {"file": re.sub(r"[^A-Za-z0-9._-]+", "-", name)}
        self.specs[key] = spec
        return key

    def of(self, table: Table, domain: Sequence[str] | None = None) -> str | None:
        if table.chart is None or table.frame.is_empty():
            return None
        spec = vega_lite(table, width=None, title=False, domain=domain)
        # Nothing to draw is no figure: the table says what the values are.
        return self.add(spec, table.name) if spec["data"]["values"] else None


def write_report(runs: Iterable[Run], path: Path | str, tables: Sequence[Table] = (), title: str | None = None) -> Path:
    """Write the report of runs to one HTML file.

    Parameters
    ----------
    runs
        At least one run; runs of several benchmarks get a part each.
    path
        The file to write; a folder gets ``report.html``.
    tables
        Tables of analyses, shown with their figures.
    title
        Title of the page; the benchmarks' titles otherwise.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    UsageError
        No run was given, or the path's folder does not exist.
    """
    path = Path(path)
    if path.is_dir():
        path /= "report.html"
    if not path.parent.is_dir():
        raise UsageError(f"The folder {path.parent} does not exist; make it, or write the report elsewhere.")
    write_atomically(path, render_report(runs, tables, title).encode())
    return path


def render_report(runs: Iterable[Run], tables: Sequence[Table] = (), title: str | None = None) -> str:
    """The page as text; see `write_report`."""
    from importlib.metadata import version

    import jinja2
    from markupsafe import Markup

    found = boards(runs)
    if not found:
        raise UsageError("A report needs at least one run; `assay runs` lists the runs there are.")
    figures, images = _Figures(), ImageBudget()
    views = [_view(board, f"b{i}", figures, images) for i, board in enumerate(found, 1)]
    every = [run for board in found for run in board.runs]
    labels = list(dict.fromkeys(label for board in found for label in board.labels))
    analyses = [Panel(grid(table), figures.of(table, labels)) for table in tables]
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    scripts = [_script(_asset("page.js"))]
    if figures.specs:
        scripts.insert(0, _script(_bundle()))
    data = {"figures": figures.specs, "themes": {"light": theme(), "dark": theme(dark=True)}}
    return environment.get_template("template.html.j2").render(
        title=title or " · ".join(board.title for board in found),
        views=views,
        labels=labels,
        analyses=analyses,
        provenance=[provenance(run) for run in every],
        warnings=list(dict.fromkeys(w for run in every if (w := data_warning(run)))),
        made=f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        version=version("assay"),
        style=Markup(_asset("page.css")),
        scripts=[Markup(text) for text, _ in scripts],
        policy=_policy([digest for _, digest in scripts], _asset("page.css")),
        data=Markup(_embedded(data)),
        kinds=trials.KINDS,
    )


def _view(board: Board, anchor: str, figures: _Figures, images: ImageBudget) -> BoardView:
    domain = board.labels
    ranking = [
        Panel(grid(table), figures.of(table, domain), {"metric": metric})
        for metric in board.metrics
        if board.overall(metric)
        for table in [board.ranking(metric)]
    ]
    groups = []
    for table in board.by_groups():
        _, group, metric = table.name.split(".", 2)
        groups.append(Panel(pivot(table, group, domain), figures.of(table, domain), {"group": group, "metric": metric}))
    comparison, errors, costs, endings = board.comparison(), board.errors(), board.costs(), board.endings()
    plot = figures.add(pareto(costs, board.higher_is_better, domain), "costs") if costs.chart else None
    return BoardView(
        anchor=anchor,
        board=board,
        verdict=board.verdict(),
        facts=_facts(board),
        ranking=ranking,
        comparison=Panel(grid(comparison, hide=("a", "b")), figures.of(comparison)) if comparison else None,
        groups=groups,
        groups_left_out=board.groups_left_out,
        costs=Panel(grid(costs, hide=("low", "high", "unpriced")), plot),
        endings=Panel(endings_grid(endings, domain), figures.of(endings, conduct.ENDING_COLORS)),
        errors=Panel(grid(errors)) if errors else None,
        choice=trials.choose(board, images),
    )


def _facts(board: Board) -> list[tuple[str, str]]:
    """The figures at the head of a benchmark."""
    infos = [run.info for run in board.runs]
    samples = max(run.samples.height for run in board.runs)
    attempts = sorted({task["attempts"] for info in infos for task in info["tasks"].values()})
    errors = sum(int(frame["status"].is_in(["error", "timeout"]).sum()) for frame in board.frames.values())
    missing = sum(run.missing for run in board.runs)
    facts = [
        ("systems", str(len(board.runs))),
        ("samples", f"{samples:,}"),
        ("attempts", "–".join(map(str, dict.fromkeys([attempts[0], attempts[-1]])))),
        ("trials", f"{board.n_records:,}"),
        ("errors", f"{errors:,}"),
    ]
    if missing:
        facts.append(("not run", f"{missing:,}"))
    seconds = [float(info["seconds"]) for info in infos if info.get("seconds") is not None]
    if len(seconds) == len(infos):
        facts.append(("time", duration(sum(seconds))))
    kinds = sorted({str(kind) for info in infos if (kind := (info.get("data") or {}).get("kind"))})
    if kinds:
        facts.insert(1, ("data", ", ".join(kinds)))
    paid = sum(info.get("paid") or 0.0 for info in infos)
    return [*facts, ("spent", dollars(paid))] if paid else facts


def _asset(name: str) -> str:
    return files("assay.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, about 0.9 MB."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _script(text: str) -> tuple[str, str]:
    """Text of a script element and its hash for the policy. A closing tag inside would end the element early."""
    text = text.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r", "")
    return text, _hash(text)


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _policy(digests: Sequence[str], style: str) -> str:
    scripts = " ".join(digests)
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(data: Any) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
