"""One function a chart kind: ChartData -> the body of a Vega-Lite specification."""

from __future__ import annotations

import math
from typing import Any

from assay.report.axes import (
    ROW_STEP,
    beside,
    color,
    end_text,
    label_angle,
    named_axes,
    orientation,
    padding,
    position,
    scaled,
    series_names,
    tooltip,
    whiskers,
)
from assay.report.chartdata import ChartData

DIRECT_LABELS = 6
NAMED_POINTS = 12


def bar(data: ChartData) -> dict[str, Any]:
    """Bars from zero, the value written at the end, whiskers where low and high are given."""
    cat, val, flat = orientation(data)
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "bar", "cornerRadiusEnd": 2, "height" if flat else "width": {"band": 0.78}},
            "encoding": color(data, hide=data.same("color", cat)) | tooltip(data),
        }
    ]
    layers += whiskers(data, val)
    layers += end_text(data, val, flat, limit=48)
    return named_axes(data, layers, cat, val, flat, zero=True)


def interval(data: ChartData) -> dict[str, Any]:
    """A point with its interval, one row a name; a dashed line at zero where differences straddle it."""
    cat, val, flat = orientation(data)
    point = {
        "mark": {"type": "point", "filled": True, "size": 85, "opacity": 1},
        "encoding": color(data, hide=data.same("color", cat)) | tooltip(data),
    }
    layers = [*whiskers(data, val, color(data, hide=data.same("color", cat)), thick=True), point]
    numbers = data.numbers(val, "low", "high")
    if numbers and min(numbers) < 0 < max(numbers):
        across = {cat: {"value": 0}, f"{cat}2": {"value": "height" if flat else "width"}}
        mark = {"type": "rule", "strokeDash": [4, 3], "opacity": 0.7}
        zero = {"data": {"values": [{val: 0}]}, "mark": mark, "encoding": across}
        layers.insert(0, zero)
    layers += end_text(data, val, flat, limit=60)
    return named_axes(data, layers, cat, val, flat, zero=False)


def stacked_bar(data: ChartData) -> dict[str, Any]:
    """Bars of parts; a part is labelled where it is wide enough to read."""
    cat, val, flat = orientation(data)
    totals: dict[Any, float] = {}
    parts = {str(part): i for i, part in enumerate(data.distinct("color"))}
    for row in data.values:
        totals[row[cat]] = totals.get(row[cat], 0.0) + (row[val] or 0.0)
    for row in data.values:
        share = (row[val] or 0.0) / totals[row[cat]] if totals[row[cat]] else 0.0
        row["part"] = data.show(val, row[val]) if share >= 0.08 else ""
        row["order"] = parts.get(str(row["color"]), len(parts))
    stack = {"stack": "zero"}
    order = {"order": {"field": "order", "type": "quantitative"}}
    layers = [
        {"mark": {"type": "bar"}, "encoding": color(data) | order | tooltip(data)},
        {
            "mark": {"type": "text", "style": "onfill", "fontSize": 11},
            "encoding": {
                val: position(data, val) | stack | {"bandPosition": 0.5},
                "text": {"field": "part"},
                "detail": {"field": "color"},
            }
            | order,
        },
    ]
    body = named_axes(data, layers, cat, val, flat, zero=True, grouped=False)
    body["encoding"][val] |= stack
    return body


def line(data: ChartData, interpolate: str = "linear") -> dict[str, Any]:
    """Lines with bands; up to six series carry their name at the end, more get a legend."""
    direct = 1 <= len(data.distinct("color")) <= DIRECT_LABELS and not data.has("facet")
    hue = color(data, hide=direct)
    layers: list[dict[str, Any]] = []
    if data.has("low") and data.has("high"):
        band = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
        layers.append({"mark": {"type": "area", "opacity": 0.16, "interpolate": interpolate}, "encoding": band | hue})
    layers.append({"mark": {"type": "line", "strokeWidth": 2, "interpolate": interpolate}, "encoding": hue})
    shape = {"shape": scaled(data, legend=not direct)} if data.has("color") else {}
    few = len(data.values) <= 80
    layers.append(
        {
            "mark": {"type": "point", "filled": True, "size": 42 if few else 60, "opacity": 1 if few else 0},
            "encoding": hue | (shape if few else {}) | tooltip(data),
        }
    )
    body: dict[str, Any] = {"height": 300, "layer": layers}
    body["encoding"] = {"x": position(data, "x", zero=False), "y": position(data, "y", zero=False)}
    if data.kinds["x"] == "nominal":
        body["encoding"]["x"] |= {"sort": None}
    if direct:
        layers.append(series_names(data, body["height"]))
        body["padding"] = padding(max(len(str(name)) for name in data.distinct("color")))
    return body


def step(data: ChartData) -> dict[str, Any]:
    """A line that holds its value until the next point: frontiers, survival curves."""
    return line(data, interpolate="step-after")


def scatter(data: ChartData) -> dict[str, Any]:
    """Points told apart by colour and shape, named beside the mark where there are at most twelve."""
    hue = color(data)
    shape = {"shape": scaled(data)} if data.has("color") else {}
    many = len(data.values) > 300
    body: dict[str, Any] = {"height": 320}
    layers: list[dict[str, Any]] = []
    if data.has("low") and data.has("high"):
        ends = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
        layers.append({"mark": {"type": "rule", "opacity": 0.55}, "encoding": ends | color(data)})
    layers.append(
        {
            "mark": {"type": "point", "filled": True, "size": 26 if many else 90, "opacity": 0.45 if many else 0.95},
            "encoding": hue | shape | tooltip(data),
        }
    )
    named = data.has("label") and len(data.values) <= NAMED_POINTS
    if named:
        layers += beside(data)
    if named and data.same("color", "label"):
        for layer in layers:
            for channel in ("color", "shape"):
                if channel in layer["encoding"]:
                    layer["encoding"][channel] |= {"legend": None}
    encoding = {c: position(data, c, room=14) for c in ("x", "y")}
    return body | {"layer": layers, "encoding": encoding}


def heatmap(data: ChartData) -> dict[str, Any]:
    """Cells coloured by value, at most 400 with the value inside; two-sided colours where values straddle zero."""
    numbers = data.numbers("color")
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    diverging = low < 0 < high
    scale: dict[str, Any] = {"scheme": "blues", "domain": [low, high]}
    reach = max(abs(low), abs(high))
    if diverging:
        scale = {"scheme": "blueorange", "domain": [-reach, reach], "reverse": True}
    title = data.columns["color"].replace("_", " ")
    fill = {"field": "color", "type": "quantitative", "scale": scale, "legend": {"title": title, "gradientLength": 160}}
    layers: list[dict[str, Any]] = [{"mark": {"type": "rect"}, "encoding": {"color": fill} | tooltip(data)}]
    if len(data.values) <= 400:
        for row in data.values:
            value = row["color"]
            row["cell"] = (
                str(row["label"]) if row.get("label") else ("" if value is None else data.show("color", value))
            )
            depth = 0.0 if value is None else abs(value) / reach if diverging else (value - low) / ((high - low) or 1)
            row["dark"] = depth > (0.6 if diverging else 0.55)
        ink = {"condition": {"test": "datum.dark", "value": "#ffffff"}, "value": "#10151c"}
        layers.append({"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": "cell"}, "color": ink}})
    encoding = {c: position(data, c) | {"type": "ordinal", "sort": None} for c in ("x", "y")}
    for channel in encoding.values():
        channel.pop("scale", None)
    encoding["x"]["axis"] = encoding["x"].get("axis", {}) | {
        "labelAngle": label_angle(data, "x"),
        "labelOverlap": len(data.distinct("x")) > 40,
    }
    return {"height": {"step": ROW_STEP}, "layer": layers, "encoding": encoding}


def box(data: ChartData) -> dict[str, Any]:
    """Median, quartiles, whiskers to the last value within 1.5 quartile ranges; at most 40 outliers a box are drawn."""
    cat, val, flat = orientation(data)
    groups: dict[tuple[Any, Any], list[float]] = {}
    for row in data.values:
        groups.setdefault((row[cat], row.get("facet")), []).append(row[val])
    boxes, outliers = [], []
    for (name, facet), numbers in groups.items():
        numbers.sort()
        q1, median, q3 = (_quantile(numbers, q) for q in (0.25, 0.5, 0.75))
        inside = [v for v in numbers if q1 - 1.5 * (q3 - q1) <= v <= q3 + 1.5 * (q3 - q1)]
        beyond = [v for v in numbers if v < inside[0] or v > inside[-1]]
        keep = beyond[:20] + beyond[-20:] if len(beyond) > 40 else beyond
        outliers += [{cat: name, "facet": facet, val: v} for v in keep]
        summary = (
            f"median {data.show(val, median)}, quartiles {data.show(val, q1)} to {data.show(val, q3)}, n {len(numbers)}"
        )
        ends = {"q1": q1, "q3": q3, "low": inside[0], "high": inside[-1]}
        boxes.append({cat: name, "facet": facet, val: median, "t0": summary} | ends)
    end = {val: {"field": "q1", "type": "quantitative"}, f"{val}2": {"field": "q3"}}
    tip = {
        "tooltip": [{"field": cat, "type": "nominal", "title": data.titles[cat]}, {"field": "t0", "title": "summary"}]
    }
    data.values[:] = boxes
    data.kinds |= {"low": "quantitative", "high": "quantitative"}
    layers = [
        *whiskers(data, val),
        {
            "mark": {"type": "bar", "height" if flat else "width": {"band": 0.55}, "opacity": 0.85},
            "encoding": end | tip,
        },
        {"mark": {"type": "tick", "thickness": 2, "fill": "#ffffff", "height" if flat else "width": {"band": 0.55}}},
        {
            "data": {"values": outliers},
            "mark": {"type": "point", "size": 16, "filled": False, "opacity": 0.7},
        },
    ]
    data.kinds.pop("color", None)
    return named_axes(data, layers, cat, val, flat, zero=False)


def histogram(data: ChartData) -> dict[str, Any]:
    """Counts in bins of equal width (Freedman-Diaconis, 8 to 50 bins), equal in the logarithm on a logarithmic axis."""
    log = data.log["x"]
    raw = [(row["x"], row.get("color"), row.get("facet")) for row in data.values if row["x"] is not None]
    numbers = sorted(math.log10(v) if log else v for v, *_ in raw)
    edges = _edges(numbers)
    counts: dict[tuple[int, Any, Any], int] = {}
    width = edges[1] - edges[0]
    for value, series, facet in raw:
        place = math.log10(value) if log else value
        index = min(int((place - edges[0]) / width), len(edges) - 2)
        counts[index, series, facet] = counts.get((index, series, facet), 0) + 1
    bounds = [10**edge for edge in edges] if log else edges
    data.values[:] = []
    for (index, series, facet), count in sorted(counts.items(), key=lambda item: item[0][0]):
        left, right = bounds[index], bounds[index + 1]
        row = {"x": left, "x2": right, "y": count, "color": series, "facet": facet}
        row["t0"] = f"{data.show('x', left)} to {data.show('x', right)}"
        data.values.append(row)
    data.kinds["y"] = "quantitative"
    data.titles["y"] = data.chart.y_title or "count"
    several = data.has("color") and len(data.domain) > 1
    mark = {"type": "bar", "opacity": 0.55 if several else 0.9, "orient": "vertical"}
    tip = [
        {"field": "t0", "type": "nominal", "title": data.titles["x"]},
        {"field": "y", "type": "quantitative", "title": "count"},
    ]
    y = {"field": "y", "type": "quantitative", "title": data.titles["y"], "stack": None}
    encoding = {"x": position(data, "x"), "x2": {"field": "x2"}, "y": y, "y2": {"datum": 0}, "tooltip": tip} | color(
        data
    )
    return {"height": 260, "mark": mark, "encoding": encoding}


def _edges(numbers: list[float]) -> list[float]:
    if not numbers:
        return [0.0, 1.0]
    low, high = numbers[0], numbers[-1]
    spread = _quantile(numbers, 0.75) - _quantile(numbers, 0.25)
    width = 2 * spread / len(numbers) ** (1 / 3)
    bins = min(50, max(8, math.ceil((high - low) / width))) if width > 0 else 20
    if high - low <= 1e-12 * max(abs(low), abs(high)) or (high - low) / bins == 0:
        # One value, or values that differ in their last digits only: one bin around them.
        pad = abs(low) * 0.05 or 0.5
        return [low - pad, high + pad]
    return [*(low + (high - low) * i / bins for i in range(bins)), high]


def _quantile(ordered: list[float], q: float) -> float:
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
