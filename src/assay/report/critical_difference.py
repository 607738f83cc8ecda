"""Critical-difference diagram (Demšar, JMLR 7, 2006), as a layered specification.

Methods hang from an axis of average ranks, the best at the left; bars join methods that do not differ. Which do not is
read from the table: ``Chart.high`` names a column with the critical difference (Nemenyi: bars join methods whose ranks
lie within it, and a ruler shows its length), or ``Chart.color`` names a column that lists the cliques of each method
(Wilcoxon-Holm: a list of numbers, or text such as ``"1, 2"``).
"""

from __future__ import annotations

import math
import re
from typing import Any

from assay.core.errors import DataError
from assay.report.chartdata import ChartData

_WIDTH = 660
_ROW = 21


def critical_difference(data: ChartData) -> dict[str, Any]:
    """Body of the specification; the width is fixed, since text and lines share one scale."""
    methods = sorted(
        (
            {"name": str(row["y"]), "rank": row["x"], "color": row.get("color"), "cd": row.get("high")}
            for row in data.values
        ),
        key=lambda method: (method["rank"], method["name"]),
    )
    ranks = [method["rank"] for method in methods]
    distances = {method["cd"] for method in methods if method["cd"] is not None}
    if len(distances) > 1:
        raise DataError(
            f"Column {data.columns['high']!r} holds {len(distances)} critical differences, but a diagram has one; "
            "give the same number in every row."
        )
    distance = distances.pop() if distances else None
    bars = _listed_cliques(methods) if data.has("color") else near_cliques(ranks, distance)
    low, high = math.floor(min(ranks, default=1)), math.ceil(max(ranks, default=1))
    high = max(high, low + 1)

    levels = _bar_levels(bars)
    top = 16 + 11 * (max(levels, default=-1) + 1)
    half = (len(methods) + 1) // 2
    side = 12 + 6.7 * max((len(method["name"]) + 7 for method in methods), default=8)
    inner = max(160.0, _WIDTH - 2 * side)
    place = lambda rank: side + (rank - low) / (high - low) * inner  # noqa: E731

    lines: list[dict[str, float]] = [_line(place(low), place(high), 0, 0)]
    lines += [_line(place(t), place(t), 0, -7) for t in range(low, high + 1)]
    texts = [{"x": place(t), "y": -15.0, "text": str(t), "align": "center"} for t in range(low, high + 1)]
    bold = [
        _line(place(ranks[a]) - 4, place(ranks[b]) + 4, 11 + 11 * level, 11 + 11 * level)
        for (a, b), level in zip(bars, levels)
    ]
    for index, method in enumerate(methods):
        left = index < half
        y = top + _ROW * (index if left else len(methods) - 1 - index)
        edge = side - 8 if left else side + inner + 8
        x = place(method["rank"])
        lines += [_line(x, x, 0, y), _line(x, edge, y, y)]
        rank = data.show("x", method["rank"])
        text = f"{method['name']}  {rank}" if left else f"{rank}  {method['name']}"
        texts.append({"x": edge + (-5 if left else 5), "y": y, "text": text, "align": "right" if left else "left"})
    head = -30.0
    if distance is not None and not data.has("color"):
        head = -58.0
        length = distance / (high - low) * inner
        lines += [_line(side, side + length, -42, -42)]
        lines += [_line(x, x, -46, -38) for x in (side, side + length)]
        texts.append({"x": side + length / 2, "y": -53.0, "text": f"CD = {distance:.3g}", "align": "center"})

    bottom = top + _ROW * max(half, 1)
    width = 2 * side + inner
    return {
        "fixed_width": round(width),
        "height": round(bottom - head),
        "layer": [
            _rules(lines, 1.2),
            _rules(bold, 4.5),
            *[_labels([t for t in texts if t["align"] == align], align) for align in ("left", "right", "center")],
        ],
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, width], "nice": False}},
            "y": {
                "field": "y",
                "type": "quantitative",
                "axis": None,
                "scale": {"domain": [head, bottom], "nice": False, "reverse": True},
            },
        },
    }


def near_cliques(ranks: list[float], distance: float | None) -> list[tuple[int, int]]:
    """Longest runs of sorted ranks within the critical difference, as (first, last) index; at least two long."""
    if distance is None:
        return []
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(i for i in range(first, len(ranks)) if ranks[i] - rank <= distance)
        if last > first and not (found and found[-1][1] >= last):
            found.append((first, last))
    return found


def _listed_cliques(methods: list[dict[str, Any]]) -> list[tuple[int, int]]:
    members: dict[str, list[int]] = {}
    for index, method in enumerate(methods):
        listed = method["color"]
        if listed is None:
            continue
        names = listed if isinstance(listed, list) else re.split(r"[,;\s]+", str(listed).strip())
        for name in names:
            if str(name):
                members.setdefault(str(name), []).append(index)
    spans = {(min(found), max(found)) for found in members.values() if len(found) > 1}
    return sorted(spans)


def _bar_levels(bars: list[tuple[int, int]]) -> list[int]:
    """The lowest level at which each bar touches no other."""
    ends: list[int] = []
    levels = []
    for first, last in bars:
        level = next((i for i, end in enumerate(ends) if end < first), len(ends))
        if level == len(ends):
            ends.append(last)
        ends[level] = last
        levels.append(level)
    return levels


def _line(x: float, x2: float, y: float, y2: float) -> dict[str, float]:
    return {"x": x, "x2": x2, "y": y, "y2": y2}


def _rules(lines: list[dict[str, float]], thickness: float) -> dict[str, Any]:
    return {
        "data": {"values": lines},
        "mark": {"type": "rule", "strokeWidth": thickness, "strokeCap": "round"},
        "encoding": {"x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }


def _labels(texts: list[dict[str, Any]], align: str) -> dict[str, Any]:
    return {
        "data": {"values": texts},
        "mark": {"type": "text", "align": align, "baseline": "middle", "style": "inktext"},
        "encoding": {"text": {"field": "text"}},
    }
