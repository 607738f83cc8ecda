"""Pieces that the chart kinds share: positions, colours, whiskers, text beside marks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from assay.report.chartdata import ChartData

ROW_STEP = 26
# Title columns that repeat what a reader sees: a list of systems needs no axis title "system".
_PLAIN_NAMES = ("system", "run", "name", "metric", "pair")


def orientation(data: ChartData) -> tuple[str, str, bool]:
    """Channels of the names and of the values, and whether marks lie flat.

    Names move to the vertical axis unless they are few and short: there they can be read on any screen.
    """
    upright = data.kinds["y"] == "quantitative"
    if upright and data.kinds["x"] == "nominal":
        names = [str(name) for name in data.distinct("x")]
        if len(names) > 6 or sum(map(len, names)) > 36:
            data.turn()
            upright = False
    return ("x", "y", False) if upright else ("y", "x", True)


def position(data: ChartData, channel: str, *, zero: bool = False, room: int = 0) -> dict[str, Any]:
    """A position channel with its title, format and scale; ``room`` is left at its ends, in pixels."""
    found: dict[str, Any] = {"field": channel, "type": data.kinds[channel], "title": data.titles[channel] or None}
    if data.kinds[channel] != "quantitative":
        return found | {"sort": None} if data.kinds[channel] == "nominal" else found
    log = data.log.get(channel, False)
    scale: dict[str, Any] = {"type": "log"} if log else {"zero": zero}
    found["scale"] = scale | ({"padding": room} if room else {})
    form = data.axis_format(channel)
    if log:
        found["axis"] = {"format": form or "~g", "tickCount": 5}
    elif form:
        found["axis"] = {"format": form}
    return found


def domain_scale(data: ChartData) -> dict[str, Any]:
    return {"domain": data.domain}


def color(data: ChartData, *, hide: bool = False) -> dict[str, Any]:
    """The colour channel, with a legend of what is present unless the names stand elsewhere."""
    if not data.has("color"):
        return {}
    return {"color": scaled(data, legend=not hide)}


def scaled(data: ChartData, *, legend: bool = True) -> dict[str, Any]:
    present = [str(v) for v in data.distinct("color")]
    show: dict[str, Any] | None = (
        {"values": present, "columns": 4, "symbolOpacity": 1} if legend and len(present) > 1 else None
    )
    title = data.columns["color"].replace("_", " ")
    return {
        "field": "color",
        "type": "nominal",
        "title": None if title in _PLAIN_NAMES else title,
        "scale": domain_scale(data),
        "sort": data.domain,
        "legend": show,
    }


def tooltip(data: ChartData) -> dict[str, Any]:
    return {"tooltip": data.tooltip} if data.tooltip else {}


def whiskers(
    data: ChartData, value: str, encoding: Mapping[str, Any] = MappingProxyType({}), *, thick: bool = False
) -> list[dict[str, Any]]:
    """A rule from low to high along the value axis; ``encoding`` colours it like the mark that it belongs to."""
    if not (data.has("low") and data.has("high")):
        return []
    ends: dict[str, Any] = {value: {"field": "low", "type": "quantitative"}, f"{value}2": {"field": "high"}}
    ends |= encoding
    return [{"mark": {"type": "rule", "strokeWidth": 2.5 if thick else 1.4, "opacity": 0.8}, "encoding": ends}]


def end_text(data: ChartData, value: str, flat: bool, *, limit: int) -> list[dict[str, Any]]:
    """The value (or the label) as text beyond the end of the mark, while there are at most ``limit`` marks."""
    if len(data.values) > limit or data.has("facet"):
        return []
    for row in data.values:
        row["end"] = max((row[c] for c in (value, "high") if row.get(c) is not None), default=None)
        row["end_text"] = str(row["label"]) if row.get("label") is not None else data.show(value, row[value])
    place = (
        {"align": "left", "baseline": "middle", "dx": 7}
        if flat
        else {"align": "center", "baseline": "bottom", "dy": -5}
    )
    encoding = {value: {"field": "end", "type": "quantitative"}, "text": {"field": "end_text"}}
    return [{"mark": {"type": "text", "style": "inktext", **place}, "encoding": encoding}]


def named_axes(
    data: ChartData, layers: list[dict[str, Any]], cat: str, val: str, flat: bool, *, zero: bool, grouped: bool = True
) -> dict[str, Any]:
    """Axes of charts with names on one side and numbers on the other; several colours a name stand side by side."""
    continuous = data.kinds[cat] == "quantitative" and not zero and not flat
    names = position(data, cat)
    if not continuous:
        names |= {"type": "nominal", "sort": None}
        names.pop("scale", None)
        if not flat:
            names["axis"] = {"labelAngle": label_angle(data, cat)}
        if data.columns[cat] in _PLAIN_NAMES:
            names["title"] = None
    encoding: dict[str, Any] = {cat: names, val: position(data, val, zero=zero, room=0 if zero else 8)}
    rows = float(max(1, len(data.distinct(cat))))
    if grouped and not continuous and data.has("color") and not data.same("color", cat):
        present = [str(v) for v in data.distinct("color")]
        encoding["yOffset" if flat else "xOffset"] = {
            "field": "color",
            "scale": {"domain": [v for v in data.domain if v in present]},
        }
        rows *= max(1.0, 0.62 * len(present))
    body = {"height": max(60, round(rows * ROW_STEP)) if flat else 280, "layer": layers, "encoding": encoding}
    longest = max((len(str(row.get("end_text", ""))) for row in data.values), default=0)
    if flat and longest:
        body["padding"] = padding(longest, share=0.75)
    return body


def beside(data: ChartData) -> list[dict[str, Any]]:
    """Names beside points, turned inwards in the right half so that they stay within the plot."""
    scale = math.log10 if data.log["x"] else float
    places = (
        [scale(row["x"]) for row in data.values] if data.kinds["x"] == "quantitative" else [0.0 for _ in data.values]
    )
    middle = (min(places) + max(places)) / 2 if places else 0.0
    for row, place in zip(data.values, places):
        row["side"] = "left" if place > middle else "right"
    layers = []
    for side, align, dx in (("right", "left", 8), ("left", "right", -8)):
        mark = {"type": "text", "align": align, "dx": dx, "dy": -8, "style": "inktext"}
        shown = [{"filter": f"datum.side === '{side}'"}]
        layers.append({"transform": shown, "mark": mark, "encoding": {"text": {"field": "label"}}})
    return layers


def label_angle(data: ChartData, channel: str) -> int:
    """Level where names are short enough for their share of the width, else slanted."""
    names = [str(name) for name in data.distinct(channel)]
    return 0 if sum(len(name) + 2 for name in names) <= 80 else -35


def padding(characters: int, share: float = 1.0) -> dict[str, float]:
    """Room at the right for text of so many characters."""
    return {"left": 6, "top": 6, "bottom": 6, "right": 12 + min(260, characters * 6.6) * share}


def series_names(data: ChartData, height: float) -> dict[str, Any]:
    """Names at the right ends of lines, moved apart where they would overlap."""
    ends: dict[str, dict[str, Any]] = {}
    for row in data.values:
        name = row.get("color")
        if name is not None and row["y"] is not None and (name not in ends or row["x"] >= ends[name]["x"]):
            ends[name] = {"x": row["x"], "y": row["y"], "color": name}
    scale = math.log10 if data.log["y"] else float
    heights = [scale(v) for v in data.numbers("y", "low", "high") if not data.log["y"] or v > 0]
    if heights and max(heights) > min(heights):
        gap = 15 / height * (max(heights) - min(heights))
        last = -math.inf
        for end in sorted(ends.values(), key=lambda e: e["y"]):
            last = max(scale(end["y"]), last + gap)
            end["y"] = 10**last if data.log["y"] else last
    keys = {
        key: {c: row[c] for c in data.channels_of("system", "run", "model") if c in row} for key, row in ends.items()
    }
    return {
        "data": {"values": [keys[name] | end for name, end in ends.items()]},
        "mark": {"type": "text", "align": "left", "dx": 8, "baseline": "middle", "fontWeight": 500},
        "encoding": {"text": {"field": "color"}} | color(data, hide=True),
    }
