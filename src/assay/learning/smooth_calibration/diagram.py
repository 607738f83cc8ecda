"""Reliability diagram with the witness drawn: where, and in which direction, a predictor is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import UsageError
from assay.learning.smooth_calibration.exact import smooth_ce
from assay.learning.smooth_calibration.inputs import paired
from assay.learning.smooth_calibration.measures import bins_of
from assay.learning.smooth_calibration.tracing import WITNESS_POINTS, curve


def reliability_diagram(y_true: ArrayLike, y_prob: ArrayLike, *, bins: int = 15, title: str = "") -> dict[str, Any]:
    """Vega-Lite specification: observed against predicted frequency in quantile bins with the isotonic curve; below it
    the witness; below that what every bin adds to the error.

    A high witness stands where predictions are too low, a low one where they are too high. It is 1-Lipschitz, so it
    weighs whole regions against each other and need not change sign with every bin; a bin whose residual goes against
    it adds less than nothing. The parts sum to the smooth calibration error.
    """
    from sklearn.isotonic import IsotonicRegression

    y, p = paired(y_true, y_prob)
    value, witness = smooth_ce(y, p, return_witness=True)
    held = bins_of(y, p, bins=bins, strategy="quantile")
    error = np.sqrt(held.observed * (1 - held.observed) / held.counts)
    marks = [
        {"predicted": float(f), "observed": float(o), "low": float(max(0, o - 2 * e)), "high": float(min(1, o + 2 * e)),
         "samples": int(n)}
        for f, o, e, n in zip(held.predicted, held.observed, error, held.counts, strict=True)
    ]  # fmt: skip
    grid = np.linspace(p.min(), p.max(), WITNESS_POINTS)
    smooth = IsotonicRegression(out_of_bounds="clip").fit(p, y).predict(grid)
    line = [{"predicted": float(u), "observed": float(v)} for u, v in zip(grid, smooth, strict=True)]
    of = np.searchsorted(held.edges[1:-1], p)
    parts = np.bincount(of, witness(p) * (y - p) / len(y), bins)[np.bincount(of, minlength=bins) > 0]
    adds = [{"predicted": float(f), "part": float(v)} for f, v in zip(held.predicted, parts, strict=True)]
    unit = {"type": "quantitative", "scale": {"domain": [0, 1], "padding": 0, "nice": False}}
    x = {"field": "predicted", "title": None, **unit}
    observed = {"field": "observed", "title": "observed frequency", **unit}
    upper = {
        "width": 360, "height": 300,
        "layer": [
            {"data": {"values": [{"predicted": 0, "observed": 0}, {"predicted": 1, "observed": 1}]},
             "mark": {"type": "line", "strokeDash": [4, 4], "color": "gray"},
             "encoding": {"x": x, "y": observed}},
            {"data": {"values": line}, "mark": {"type": "line", "interpolate": "step", "opacity": 0.5},
             "encoding": {"x": x, "y": observed}},
            {"data": {"values": marks}, "mark": {"type": "rule"},
             "encoding": {"x": x, "y": {"field": "low", **unit}, "y2": {"field": "high"}}},
            {"data": {"values": marks}, "mark": {"type": "point", "filled": True, "opacity": 1},
             "encoding": {"x": x, "y": observed, "size": {"field": "samples", "type": "quantitative", "legend": None,
                                   "scale": {"range": [10, 120]}},
                          "tooltip": [{"field": f} for f in ("predicted", "observed", "samples")]}},
        ],
    }  # fmt: skip
    at = {"field": "at", "title": None, **unit}
    h = {"field": "witness", "type": "quantitative", "scale": {"domain": [-1, 1]}, "title": "witness"}
    lower = {
        "width": 360, "height": 110,
        "data": {"values": curve(witness)},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.25}, "encoding": {"x": at, "y": h}},
            {"mark": {"type": "line"}, "encoding": {"x": at, "y": h}},
        ],
    }  # fmt: skip
    bars = {
        "width": 360, "height": 80,
        "data": {"values": adds},
        "mark": {"type": "bar", "width": 8},
        "encoding": {
            "x": {"field": "predicted", "title": "predicted probability", **unit},
            "y": {"field": "part", "type": "quantitative", "title": "part of the error"},
            "tooltip": [{"field": "predicted"}, {"field": "part"}],
        },
    }  # fmt: skip
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": "Reliability diagram with the witness of the smooth calibration error",
        "title": {"text": title or "Reliability", "subtitle": f"smooth calibration error {value:.4g}, n = {len(y)}"},
        "vconcat": [upper, lower, bars],
    }


def witness_map(rows: Iterable[Mapping[str, Any]], *, title: str = "") -> dict[str, Any]:
    """Vega-Lite specification of how the witness moves during training: stage by predicted probability, colour by
    witness (blue: predictions are too low there, red: too high, region against region).

    Parameters
    ----------
    rows
        ``t``, ``at``, ``witness`` of `witness_trace` or of a `StopRule` that keeps witnesses.
    """
    held = list(_cells(list(rows)))
    if not held:
        raise UsageError("There is no witness to draw; trace at least one stage.")
    probability = {"type": "quantitative", "scale": {"domain": [0, 1]}, "title": "predicted probability"}
    colour = {"field": "witness", "type": "quantitative", "scale": {"scheme": "redblue", "domain": [-1, 1]}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": "Witness of the smooth calibration error, stage by stage",
        "title": title or "Witness by stage", "width": 460, "height": 260,
        "data": {"values": held},
        # An outline of the cell's own colour leaves no seams.
        "mark": {"type": "rect", "stroke": {"expr": "scale('color', datum.witness)"}},
        "encoding": {
            "x": {"field": "t", "type": "quantitative", "title": "stage", "scale": {"nice": False}},
            "x2": {"field": "until"},
            "y": {"field": "at", **probability}, "y2": {"field": "end"},
            "color": {**colour, "title": "witness"},
        },
    }  # fmt: skip


def _cells(rows: list[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Rectangles: each stage until the next one kept, each point of its curve until the next one."""
    stages = sorted({int(row["t"]) for row in rows})
    until = dict(pairwise([*stages, stages[-1] + 1])) if stages else {}
    for this, following in pairwise(rows):
        if this["t"] == following["t"]:
            yield {**this, "end": following["at"], "until": until[int(this["t"])]}


def save_diagram(spec: dict[str, Any], path: Path) -> None:
    """Write a diagram as ``.svg``, ``.png`` or ``.json`` (Vega-Lite)."""
    from assay.report.figures import to_png, to_svg

    if path.suffix == ".svg":
        path.write_text(to_svg(spec), encoding="utf-8")
    elif path.suffix == ".png":
        path.write_bytes(to_png(spec))
    elif path.suffix == ".json":
        import json

        path.write_text(json.dumps(spec), encoding="utf-8")
    else:
        raise UsageError(f"{path} is of no known format; end it with .svg, .png or .json.")
