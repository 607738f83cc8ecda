import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.core.table import Chart, Table
from assay.report.chartdata import MAX_MARKS
from assay.report.critical_difference import near_cliques
from assay.report.figures import DARK, LIGHT, pareto, theme, to_png, to_svg, vega_lite
from assay.report.marks import _edges, _quantile

NAMES = ["alpha", "beta", "gamma"]
SCORED = pl.DataFrame(
    {
        "system": NAMES,
        "value": [0.9, 0.5, -0.1],
        "low": [0.8, 0.4, -0.2],
        "high": [0.95, 0.6, 0.1],
        "cost": [1.0, 0.1, 0.01],
    }
)
LONG = pl.DataFrame({"x": [1, 2, 3] * 3, "y": [float(i) for i in range(1, 10)], "system": np.repeat(NAMES, 3)})
RANKS = pl.DataFrame({"name": ["a", "b", "c", "d"], "rank": [1.5, 2.0, 2.9, 3.6], "cd": [0.8] * 4})

POINTS = Chart("scatter", "cost", "value", color="system", label="system", log_x=True)
TABLES = {
    "bar": Table("t", "Bars", SCORED, chart=Chart("bar", "system", "value", low="low", high="high")),
    "interval": Table("t", "Intervals", SCORED, chart=Chart("interval", "value", "system", low="low", high="high")),
    "line": Table("t", "Lines", LONG, chart=Chart("line", "x", "y", color="system", log_y=True)),
    "step": Table("t", "Steps", LONG, chart=Chart("step", "x", "y", color="system")),
    "scatter": Table("t", "Points", SCORED, chart=POINTS),
    "heatmap": Table("t", "Heat", LONG, chart=Chart("heatmap", "x", "system", color="y")),
    "box": Table("t", "Boxes", LONG, chart=Chart("box", "system", "y")),
    "histogram": Table("t", "Counts", LONG, chart=Chart("histogram", "y", "", color="system")),
    "critical_difference": Table("t", "Ranks", RANKS, chart=Chart("critical_difference", "rank", "name", high="cd")),
    "stacked_bar": Table("t", "Parts", LONG, chart=Chart("stacked_bar", "y", "x", color="system")),
}  # fmt: skip


def texts(svg: str) -> list[str]:
    import re
    from html import unescape

    return [unescape(t) for t in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("dark", [False, True])
def test_every_kind_renders_to_svg_with_its_title(kind: str, dark: bool) -> None:
    table = TABLES[kind]
    svg = to_svg(vega_lite(table), dark=dark)
    assert table.title in texts(svg)
    assert svg.count("<path") >= 3
    assert "NaN" not in svg
    assert "undefined" not in svg


def test_every_kind_renders_to_png() -> None:
    assert to_png(vega_lite(TABLES["bar"])).startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", [k for k in TABLES if k != "critical_difference"])
def test_facets_render(kind: str) -> None:
    table = TABLES[kind]
    frame = pl.concat([table.frame.with_columns(part=pl.lit(p)) for p in ("one", "two")])
    chart = Chart(**{f: getattr(table.chart, f) for f in Chart.__slots__} | {"facet": "part"})  # type: ignore[attr-defined]
    shown = texts(to_svg(vega_lite(Table("t", "T", frame, chart=chart))))
    assert {"one", "two"} <= set(shown)


def test_a_single_facet_is_a_plain_chart() -> None:
    frame = SCORED.with_columns(part=pl.lit("one"))
    assert "facet" not in vega_lite(Table("t", "T", frame, chart=Chart("bar", "system", "value", facet="part")))


@pytest.mark.parametrize("kind", TABLES)
def test_frames_without_rows_or_without_values_are_drawn_empty(kind: str) -> None:
    table = TABLES[kind]
    nothing = table.frame.with_columns(pl.all().replace_strict({}, default=None, return_dtype=pl.Float64))
    names = nothing.with_columns(
        pl.lit(None, pl.String).alias(c) for c, t in table.frame.schema.items() if t == pl.String
    )
    for frame in (table.frame.clear(), names):
        assert to_svg(vega_lite(Table("t", "T", frame, chart=table.chart))).startswith("<svg")


def test_names_and_values_are_written_in_the_figure() -> None:
    shown = texts(to_svg(vega_lite(TABLES["interval"])))
    assert {"alpha", "beta", "gamma", "0.9", "0.5", "−0.1"} <= set(shown)


def test_line_ends_carry_the_names_of_few_series_and_a_legend_those_of_many() -> None:
    few = vega_lite(TABLES["line"])
    assert any(layer["mark"].get("type") == "text" for layer in few["layer"])
    many = pl.DataFrame({"x": [1, 2] * 9, "y": [1.0] * 18, "s": np.repeat([f"s{i}" for i in range(9)], 2)})
    spec = vega_lite(Table("t", "T", many, chart=Chart("line", "x", "y", color="s")))
    assert not any(layer["mark"].get("type") == "text" for layer in spec["layer"])
    assert spec["layer"][0]["encoding"]["color"]["legend"]["values"] == [f"s{i}" for i in range(9)]


def test_axis_titles_hold_the_units_given() -> None:
    table = Table(
        "t", "T", SCORED, chart=Chart("scatter", "cost", "value", x_title="cost (USD a trial)", y_title="accuracy")
    )
    assert {"cost (USD a trial)", "accuracy"} <= set(texts(to_svg(vega_lite(table))))


def test_a_system_keeps_its_colour_whatever_else_is_drawn() -> None:
    chart = Chart("bar", "system", "value", color="system")
    whole = vega_lite(Table("t", "T", SCORED, chart=chart), domain=NAMES)
    part = vega_lite(Table("t", "T", SCORED.reverse().head(1), chart=chart), domain=NAMES)
    for spec in (whole, part):
        assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == NAMES


def test_hostile_column_names_and_texts_draw_as_themselves() -> None:
    name = "a.b[0] 'x' \\ \"y\" <script>"
    frame = pl.DataFrame({name: ["datum['x']", "</text><script>alert(1)</script>", "c"], "v": [1.0, 2.0, 3.0]})
    svg = to_svg(vega_lite(Table("t", "<b>T</b>", frame, chart=Chart("bar", name, "v"))))
    assert "<script" not in svg
    assert "</text><script>alert(1)</script>" in texts(svg)
    assert name in texts(svg)


def test_what_cannot_be_drawn_is_counted_under_the_title() -> None:
    frame = pl.DataFrame({"c": [1.0, math.inf, math.nan, None, 0.0], "v": [1.0, 1, 1, 1, 1]})
    spec = vega_lite(Table("t", "T", frame, chart=Chart("scatter", "c", "v", log_x=True)))
    assert len(spec["data"]["values"]) == 1
    assert "3 of 5 rows have no finite value" in spec["title"]["subtitle"]
    assert "1 rows are not positive" in spec["title"]["subtitle"]


def test_large_frames_are_thinned_and_it_is_said() -> None:
    frame = pl.DataFrame({"a": np.arange(50_000.0), "b": np.arange(50_000.0)})
    spec = vega_lite(Table("t", "T", frame, chart=Chart("scatter", "a", "b")))
    assert len(spec["data"]["values"]) <= MAX_MARKS
    assert "one row in 13 of 50000" in spec["usermeta"]["left_out"]


def test_folding_charts_read_every_row() -> None:
    frame = pl.DataFrame({"g": ["a"] * 50_000, "b": np.arange(50_000.0)})
    spec = vega_lite(Table("t", "T", frame, chart=Chart("histogram", "b", "")))
    assert sum(row["y"] for row in spec["data"]["values"]) == 50_000
    box = vega_lite(Table("t", "T", frame, chart=Chart("box", "g", "b")))
    assert box["data"]["values"][0]["t0"].endswith("n 50000")


def test_specifications_are_strict_json() -> None:
    for table in TABLES.values():
        json.dumps(vega_lite(table), allow_nan=False)


@pytest.mark.parametrize(
    ("chart", "words"),
    [
        (Chart("bar", "systm", "value"), "did you mean 'system'"),
        (Chart("line", "cost", "system"), "needs numbers in y"),
        (Chart("heatmap", "system", "cost"), "needs a color column"),
        (Chart("bar", "system", "system"), "needs numbers in x or y"),
        (Chart("pie", "system", "value"), "asks for the chart 'pie'"),  # type: ignore[arg-type]
    ],
)
def test_a_chart_that_does_not_fit_its_table_is_refused_in_one_sentence(chart: Chart, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        vega_lite(Table("t", "T", SCORED, chart=chart))


def test_a_table_without_chart_is_refused() -> None:
    with pytest.raises(UsageError, match="has no chart"):
        vega_lite(Table("t", "T", SCORED))


def test_pareto_joins_exactly_the_points_that_nothing_cheaper_beats() -> None:
    frame = pl.DataFrame({"c": [1.0, 2.0, 3.0, 4.0, 4.0], "v": [0.3, 0.2, 0.3, 0.9, 0.5]})
    table = Table("t", "T", frame, chart=Chart("scatter", "c", "v"))
    edge = pareto(table)["layer"][0]["data"]["values"]
    assert edge == [{"x": 1.0, "y": 0.3}, {"x": 4.0, "y": 0.9}]
    falling = pareto(table, higher_is_better=False)["layer"][0]["data"]["values"]
    assert falling == [{"x": 1.0, "y": 0.3}, {"x": 2.0, "y": 0.2}]


def _diagram(frame: pl.DataFrame, **more: Any) -> dict[str, Any]:
    return vega_lite(Table("t", "T", frame, chart=Chart("critical_difference", "rank", "name", **more)))


def test_critical_difference_bars_join_methods_within_the_distance() -> None:
    assert near_cliques([1.5, 2.0, 2.9, 3.6], 0.8) == [(0, 1), (2, 3)]
    assert near_cliques([1.0, 1.5, 2.0, 4.0], 0.5) == [(0, 1), (1, 2)]
    assert near_cliques([1.0, 2.0], 5.0) == [(0, 1)]
    assert near_cliques([1.0, 2.0], None) == []
    assert len(_diagram(RANKS, high="cd")["layer"][1]["data"]["values"]) == 2


def test_critical_difference_takes_listed_cliques() -> None:
    listed = RANKS.with_columns(clique=pl.Series([[1], [1, 2], [2], []], dtype=pl.List(pl.Int64)))
    assert len(_diagram(listed, color="clique")["layer"][1]["data"]["values"]) == 2
    text = RANKS.with_columns(clique=pl.Series(["1", "1", "", None]))
    assert len(_diagram(text, color="clique")["layer"][1]["data"]["values"]) == 1


def test_critical_difference_refuses_two_distances() -> None:
    with pytest.raises(DataError, match="2 critical differences"):
        _diagram(RANKS.with_columns(cd=pl.Series([1.0, 1.0, 2.0, 1.0])), high="cd")


@given(st.lists(st.floats(1, 20), min_size=1, max_size=12), st.floats(0.1, 5))
def test_cliques_are_maximal_and_hold_the_distance(ranks: list[float], distance: float) -> None:
    ranks = sorted(ranks)
    found = near_cliques(ranks, distance)
    for first, last in found:
        assert ranks[last] - ranks[first] <= distance
        assert first == 0 or ranks[last] - ranks[first - 1] > distance
        assert last == len(ranks) - 1 or ranks[last + 1] - ranks[first] > distance
    for i, j in zip(range(len(ranks)), range(1, len(ranks))):
        if ranks[j] - ranks[i] <= distance:
            assert any(first <= i and j <= last for first, last in found)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200))
def test_bins_cover_every_value(values: list[float]) -> None:
    edges = _edges(sorted(values))
    assert edges[0] <= min(values)
    assert edges[-1] >= max(values)
    assert all(a < b for a, b in pairwise(edges))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], q: float) -> None:
    assert math.isclose(_quantile(sorted(values), q), float(np.quantile(values, q)), rel_tol=1e-9, abs_tol=1e-6)


@pytest.mark.parametrize("name", ["if", "constructor", "toString", "__proto__", "datum", "]", "\\", "null"])
def test_a_name_that_means_something_to_the_drawing_library_is_a_name(name: str) -> None:
    rows = [(name, 1.0, 2.0, name), ("other", 2.0, 1.0, "if"), ("other", 3.0, 1.0, name)]
    frame = pl.DataFrame(rows, schema=["name", "x", "y", "g"], orient="row")
    for chart in (
        Chart("bar", "name", "x", color="g"),
        Chart("interval", "x", "name", color="g"),
        Chart("scatter", "x", "y", color="g", label="name"),
        Chart("line", "x", "y", color="g"),
        Chart("box", "name", "x", color="g"),
        Chart("bar", "name", "x", facet="g"),
    ):
        assert to_svg(vega_lite(Table("t", "T", frame, chart=chart))).startswith("<svg")


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(max_size=12), st.floats(allow_nan=True, allow_infinity=True), st.floats(-5, 5)),
        min_size=1,
        max_size=12,
    )
)
def test_any_frame_gives_a_figure(rows: list[tuple[str, float, float]]) -> None:
    frame = pl.DataFrame(rows, schema=["name", "x", "y"], orient="row")
    for chart in (
        Chart("bar", "name", "x"),
        Chart("interval", "x", "name"),
        Chart("scatter", "x", "y", color="name", label="name"),
    ):
        assert to_svg(vega_lite(Table("t", "T", frame, chart=chart))).startswith("<svg")


def _contrast(a: str, b: str) -> float:
    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_from_both_grounds() -> None:
    # WCAG 2.2, 1.4.11: graphical objects need 3:1, text 4.5:1.
    assert min(_contrast(color, "#ffffff") for color in LIGHT) >= 3
    assert min(_contrast(color, "#16181c") for color in DARK) >= 3
    for dark, ground in ((False, "#ffffff"), (True, "#16181c")):
        axis = theme(dark)["axis"]
        assert min(_contrast(axis[c], ground) for c in ("labelColor", "titleColor")) >= 4.5
