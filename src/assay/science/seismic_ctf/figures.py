"""Figures that tables do not draw: radar of the twelve scores, spectra, fields beside each other, trajectories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.core.errors import UsageError
from assay.report.figures import LIGHT, SCHEMA
from assay.science.seismic_ctf.definition import Definition
from assay.science.seismic_ctf.scoring import power_spectrum

_MAX_ROWS, _MAX_COLUMNS = 100, 80


def radar(scores: Mapping[str, Mapping[str, float]], title: str = "Scores") -> dict[str, Any]:
    """Vega-Lite specification of a radar: one closed line a system, one spoke a score, from -100 inside to 100 outside.

    Parameters
    ----------
    scores
        Clipped scores by system, then by name (``E1`` ...), the same names for all.
    """
    if not scores:
        raise UsageError("A radar needs the scores of at least one system.")
    names = list(next(iter(scores.values())))
    if len(names) < 3 or any(list(one) != names for one in scores.values()):
        raise UsageError("A radar needs at least three scores, the same ones for every system.")

    def at(spoke: int, value: float) -> dict[str, float]:
        angle = math.pi / 2 - 2 * math.pi * spoke / len(names)
        radius = (value + 100.0) / 2.0
        return {"x": radius * math.cos(angle), "y": radius * math.sin(angle)}

    def ring(value: float) -> list[dict[str, Any]]:
        return [{**at(i, value), "order": i, "ring": value} for i in range(len(names) + 1)]

    lines = [
        {**at(i, one[names[i % len(names)]]), "order": i, "system": system, "score": names[i % len(names)],
         "value": one[names[i % len(names)]]}
        for system, one in scores.items()
        for i in range(len(names) + 1)
    ]  # fmt: skip
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [-122, 122]}}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [-115, 115]}}
    place = {"x": x, "y": y, "order": {"field": "order", "type": "quantitative"}}
    rings = [point for value in (-100.0, -50.0, 0.0, 50.0, 100.0) for point in ring(value)]
    spokes = [{**at(i, 113.0), "name": name} for i, name in enumerate(names)]
    levels = [{**at(0, v), "text": f"{v:g}"} for v in (-50.0, 0.0, 50.0, 100.0)]
    return {
        "$schema": SCHEMA,
        "description": f"{title}: radar, -100 at the centre, 0 on the solid ring, 100 outside",
        "title": {"text": title, "anchor": "start"},
        "width": 420,
        "height": 400,
        "layer": [
            {
                "data": {"values": rings},
                "mark": {"type": "line", "color": "#9aa0a6", "strokeWidth": 1, "strokeDash": [3, 3]},
                "encoding": {**place, "detail": {"field": "ring"}},
            },
            {
                "data": {"values": ring(0.0)},
                "mark": {"type": "line", "color": "#5a626c", "strokeWidth": 1.5},
                "encoding": place,
            },
            {
                "data": {"values": lines},
                "mark": {"type": "line", "point": {"size": 30}, "strokeWidth": 2},
                "encoding": {
                    **place,
                    "color": {
                        "field": "system", "type": "nominal", "sort": None,
                        "scale": {"domain": list(scores), "range": [LIGHT[i % len(LIGHT)] for i in range(len(scores))]},
                    },
                    "tooltip": [{"field": f} for f in ("system", "score", "value")],
                },
            },
            {"data": {"values": spokes}, "mark": {"type": "text", "fontSize": 12},
             "encoding": {"x": x, "y": y, "text": {"field": "name"}}},
            {"data": {"values": levels}, "mark": {"type": "text", "fontSize": 9, "dx": 12, "color": "#777"},
             "encoding": {"x": x, "y": y, "text": {"field": "text"}}},
        ],
    }  # fmt: skip


def spectra(
    truth: Any, predictions: Mapping[str, Any], k: int = 20, modes: int = 100, title: str = "Power spectrum"
) -> dict[str, Any]:
    """Natural logarithm of the spatial power spectrum over the last rows, truth and predictions."""
    rows = [
        {"mode": m, "log_power": float(v), "of": name}
        for name, matrix in {"truth": truth, **predictions}.items()
        for m, v in enumerate(np.log(power_spectrum(matrix, k, modes) + 1e-10))
    ]
    return {
        "$schema": SCHEMA, "description": title, "title": {"text": title, "anchor": "start"},
        "width": 520, "height": 260, "data": {"values": rows}, "mark": {"type": "line", "interpolate": "linear"},
        "encoding": {
            "x": {"field": "mode", "type": "quantitative", "title": "spatial frequency (cycles over all sensors)"},
            "y": {"field": "log_power", "type": "quantitative", "title": "ln power"},
            "color": {"field": "of", "type": "nominal", "sort": None, "title": None},
            "strokeDash": {"condition": {"test": "datum.of == 'truth'", "value": [1, 0]}, "value": [4, 2]},
        },
    }  # fmt: skip


def fields(truth: Any, predictions: Mapping[str, Any], title: str = "Fields") -> dict[str, Any]:
    """Truth and predictions as pictures of time by sensor, one colour scale; thinned to what a page shows."""
    t = np.asarray(truth, float)
    limit = float(np.quantile(np.abs(t), 0.99)) or 1.0
    rows = np.unique(np.linspace(0, t.shape[0] - 1, min(_MAX_ROWS, t.shape[0])).round().astype(int))
    columns = np.unique(np.linspace(0, t.shape[1] - 1, min(_MAX_COLUMNS, t.shape[1])).round().astype(int))
    values = [
        {"row": int(i), "sensor": int(j), "value": float(np.clip(m[i, j], -limit, limit)), "of": name}
        for name, m in {"truth": t, **{n: np.asarray(p, float) for n, p in predictions.items()}}.items()
        for i in rows
        for j in columns
    ]
    return {
        "$schema": SCHEMA, "description": title, "title": {"text": title, "anchor": "start"},
        "data": {"values": values},
        "facet": {"column": {"field": "of", "type": "nominal", "sort": ["truth", *predictions], "title": None}},
        "spec": {
            "width": 200, "height": 240, "mark": {"type": "rect", "strokeWidth": 0},
            "encoding": {
                "x": {"field": "sensor", "type": "ordinal", "axis": {"labels": False, "ticks": False}},
                "y": {"field": "row", "type": "ordinal", "title": "row of time",
                      "axis": {"labels": False, "ticks": False}},
                "color": {"field": "value", "type": "quantitative", "title": None,
                          "scale": {"scheme": "blueorange", "domain": [-limit, limit]}},
            },
        },
    }  # fmt: skip


def trajectories(
    truth: Any, predictions: Mapping[str, Any], times: Sequence[float], title: str = "Trajectories", last: int = 300
) -> dict[str, Any]:
    """Each feature over the first ``last`` times, truth and predictions."""
    values = [
        {"time": float(t), "value": float(v), "feature": f"feature {j}", "of": name}
        for name, matrix in {"truth": truth, **predictions}.items()
        for j, column in enumerate(np.asarray(matrix, float)[:last].T)
        for t, v in zip(times, column, strict=False)
        if np.isfinite(v)
    ]
    return {
        "$schema": SCHEMA, "description": title, "title": {"text": title, "anchor": "start"},
        "data": {"values": values}, "facet": {"row": {"field": "feature", "type": "nominal", "title": None}},
        "spec": {
            "width": 560, "height": 120, "mark": {"type": "line"},
            "encoding": {
                "x": {"field": "time", "type": "quantitative"},
                "y": {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}},
                "color": {"field": "of", "type": "nominal", "sort": None, "title": None},
            },
        },
    }  # fmt: skip


def pair_figures(
    definition: Definition, number: int, truth: Any, predictions: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The figures that a data set asks for (``visualizations``), by name; what is not finite is left out."""
    shown = {name: p for name, p in predictions.items() if np.isfinite(p).all()}
    what = f"{definition.name}, pair {number}"
    found = {}
    if "psd" in definition.visualizations:
        found["psd"] = spectra(truth, shown, definition.k_long, definition.modes, f"Power spectrum: {what}")
    if "2d_comparison" in definition.visualizations:
        found["2d_comparison"] = fields(truth, shown, f"Fields: {what}")
    if "trajectories" in definition.visualizations:
        times = definition.times(definition.pair(number).test)
        found["trajectories"] = trajectories(truth, shown, times, f"Trajectories: {what}")
    return found
