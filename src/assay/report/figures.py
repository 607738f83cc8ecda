"""Draw a Table by its Chart: Vega-Lite as plain dictionaries, SVG and PNG without a browser.

Colours are told apart by readers with colour-vision deficiencies (after Okabe and Ito, 2008) and backed by shape or
direct labels; what cannot be drawn (missing, infinite, not positive on a logarithmic axis) is counted under the title.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.core.errors import UsageError
from assay.core.table import Table
from assay.report import marks
from assay.report.chartdata import ChartData, prepare
from assay.report.critical_difference import critical_difference

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

LIGHT = ["#0b63b0", "#d1540a", "#00836b", "#b1488f", "#c08300", "#3a9bd9", "#7a4f9e", "#6b6b6b"]
DARK = ["#5fb0f5", "#ff9455", "#35c9a5", "#e889c6", "#f0c24b", "#9bd3ff", "#bfa0ec", "#b8b8b8"]
# Seven shapes beside eight colours: fifty-six systems before a pair of both comes again.
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]

_BUILDERS: dict[str, Callable[[ChartData], dict[str, Any]]] = {
    "bar": marks.bar,
    "stacked_bar": marks.stacked_bar,
    "interval": marks.interval,
    "line": marks.line,
    "step": marks.step,
    "scatter": marks.scatter,
    "heatmap": marks.heatmap,
    "box": marks.box,
    "histogram": marks.histogram,
    "critical_difference": critical_difference,
}


def vega_lite(
    table: Table, *, width: int | None = 560, title: bool = True, domain: Sequence[str] | None = None
) -> dict[str, Any]:
    """Vega-Lite specification of a table's chart.

    Parameters
    ----------
    table
        A table with a chart.
    width
        Width of the plot in pixels; None = as wide as its container (in a page).
    title
        Whether the table's title stands above the plot.
    domain
        All values that colours may stand for, in order, so that a system has one colour in every figure of a page.

    Raises
    ------
    UsageError
        The table has no chart, or its chart names a column that does not exist or cannot be drawn that way.
    """
    chart = table.chart
    if chart is None:
        raise UsageError(f"Table {table.name!r} has no chart; give it one (Table.chart) or print it as a table.")
    if chart.kind not in _BUILDERS:
        raise UsageError(f"Table {table.name!r} asks for the chart {chart.kind!r}; known are {', '.join(_BUILDERS)}.")
    data = prepare(table, chart, domain)
    spec: dict[str, Any] = {"$schema": SCHEMA, "description": f"{table.title} ({chart.kind.replace('_', ' ')})"}
    if data.has("facet") and len(data.distinct("facet")) < 2:
        # One part needs no small multiples: it gets the whole width.
        del data.kinds["facet"]
    body = _BUILDERS[chart.kind](data)
    fixed = body.pop("fixed_width", None)
    if data.has("facet"):
        inner = {"width": 230, "height": 180} | body
        inner.pop("padding", None)
        facet = {"field": "facet", "type": "nominal", "title": None, "sort": None}
        spec |= {"facet": facet, "columns": 3, "spec": inner}
        if data.kinds["x"] == "nominal":
            # Each part shows its own names, wide enough to read them.
            spec["resolve"] = {"scale": {"x": "independent"}}
            inner["width"] = max(230, 18 * data.most_in_facet("x"))
    else:
        spec |= {"width": fixed or width or "container"} | body
        if width is None and not fixed:
            spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["data"] = {"values": data.values}
    if title:
        spec["title"] = {"text": table.title, "anchor": "start"}
        if data.left_out:
            spec["title"]["subtitle"] = data.left_out
    spec["usermeta"] = {"toggle": data.channels_of("system", "run", "model"), "left_out": data.left_out}
    return spec


def pareto(table: Table, higher_is_better: bool = True, domain: Sequence[str] | None = None) -> dict[str, Any]:
    """A scatter for a page, with a dashed step through the points that no cheaper (smaller x) one equals or beats."""
    spec = vega_lite(table, width=None, title=False, domain=domain)
    edge: list[dict[str, Any]] = []
    for row in sorted(spec["data"]["values"], key=lambda r: (r["x"], -r["y"] if higher_is_better else r["y"])):
        if not edge or (row["y"] > edge[-1]["y"] if higher_is_better else row["y"] < edge[-1]["y"]):
            edge.append({"x": row["x"], "y": row["y"]})
    if len(edge) > 1:
        line = {"type": "line", "interpolate": "step-after", "strokeDash": [5, 4], "strokeWidth": 1.3, "opacity": 0.7}
        spec["layer"].insert(0, {"data": {"values": edge}, "mark": line})
    return spec


def theme(dark: bool = False, background: str | None = None) -> dict[str, Any]:
    """Vega configuration: quiet axes, readable type, accessible colours."""
    ink, soft, grid = ("#e8e8e6", "#a9acb0", "#33373d") if dark else ("#1d2127", "#5a626c", "#e4e6e9")
    colors = DARK if dark else LIGHT
    return {
        "background": background,
        "font": FONT,
        "padding": 6,
        "view": {"stroke": None},
        "title": {
            "color": ink, "fontSize": 14, "fontWeight": 600, "offset": 12,
            "subtitleColor": soft, "subtitleFontSize": 11,
        },
        "axis": {
            "labelColor": ink, "titleColor": soft, "labelFontSize": 11.5, "titleFontSize": 11.5, "titleFontWeight": 500,
            "gridColor": grid, "domainColor": soft, "tickColor": soft, "labelLimit": 300, "titlePadding": 8,
            "labelPadding": 5, "tickCount": 6, "labelOverlap": True,
        },
        "axisBand": {"grid": False, "ticks": False, "domain": False},
        "legend": {
            "labelColor": ink, "titleColor": soft, "labelFontSize": 11.5, "titleFontSize": 11.5, "titleFontWeight": 500,
            "orient": "top", "symbolSize": 70, "labelLimit": 260, "columnPadding": 14,
        },
        "header": {"labelColor": ink, "titleColor": soft, "labelFontSize": 12, "labelFontWeight": 600},
        "text": {"fontSize": 11.5},
        "rule": {"color": ink},
        "tick": {"color": ink},
        "mark": {"color": colors[0]},
        "range": {"category": colors, "symbol": SHAPES, "heatmap": {"scheme": "blues"}, "ramp": {"scheme": "blues"}},
        "style": {
            "inktext": {"color": ink},
            "onfill": {"color": "#101317" if dark else "#ffffff"},
        },
    }  # fmt: skip


def to_svg(spec: dict[str, Any], *, dark: bool = False) -> str:
    """Render a specification to SVG text."""
    import vl_convert

    return vl_convert.vegalite_to_svg(spec, config=theme(dark, _background(dark)), allowed_base_urls=[])


def to_png(spec: dict[str, Any], *, dark: bool = False, scale: float = 2.0) -> bytes:
    """Render a specification to PNG, ``scale`` device pixels a pixel."""
    import vl_convert

    return vl_convert.vegalite_to_png(spec, scale=scale, config=theme(dark, _background(dark)), allowed_base_urls=[])


def _background(dark: bool) -> str:
    return "#16181c" if dark else "#ffffff"
