"""Analyses of runs: curves, errors by level, convex envelopes, slopes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.table import Chart, Table
from assay.information.rate_distortion.curves import convert_distortion, convert_rate, lower_envelope

if TYPE_CHECKING:
    from assay.core.results import Runs


def curves(
    runs: Runs,
    *,
    unit: Literal["bits", "nats"] = "bits",
    distortion: Literal["half_mse", "mse", "mse_per_dimension", "psnr"] = "mse",
    peak: float = 1.0,
) -> Table:
    """Rate against distortion, by system and source, median over seeds; the truth is a system of its own."""
    frame = _points(runs)
    true = (
        frame.filter(pl.col("true_rate").is_not_null())
        .with_columns(
            pl.lit("truth").alias("system"),
            pl.col("true_rate").alias("rate_nats"),
            pl.col("true_half_mse").alias("half_mse"),
        )
        .unique(["source", "eps"])
    )
    found = (
        pl.concat([frame, true.select(frame.columns)])
        .group_by("system", "source", "eps", "d")
        .agg(
            pl.col("rate_nats").median(),
            pl.col("rate_nats").quantile(0.25).alias("low"),
            pl.col("rate_nats").quantile(0.75).alias("high"),
            pl.col("half_mse").median(),
            pl.len().alias("seeds"),
        )
        .sort("source", "system", "eps")
    )
    columns = {name: convert_rate(found[name].to_numpy(), unit) for name in ("rate_nats", "low", "high")}
    at = [float(convert_distortion(row["half_mse"], distortion, d=row["d"], peak=peak)) for row in found.to_dicts()]
    shown = found.select("source", "system", "eps", "seeds").with_columns(
        pl.Series(distortion, at),
        pl.Series(f"rate_{unit}", columns["rate_nats"]),
        pl.Series("low", columns["low"]),
        pl.Series("high", columns["high"]),
    )
    return Table(
        "curves",
        "Rate-distortion curves",
        shown,
        [f"Median over seeds with quartiles; rates in {unit}, summed over dimensions."],
        Chart("line", x=distortion, y=f"rate_{unit}", color="system", facet="source", log_x=distortion != "psnr"),
    )


def errors(runs: Runs) -> Table:
    """Median absolute error of the rate at every level, with quartiles over seeds."""
    frame = _points(runs).drop_nulls("rate_error")
    if frame.is_empty():
        raise UsageError("No source of these runs has a known R(D).")
    found = (
        frame.group_by("system", "source", "eps")
        .agg(
            pl.col("true_rate").median(),
            pl.col("rate_error").median().alias("error"),
            pl.col("rate_error").quantile(0.25).alias("low"),
            pl.col("rate_error").quantile(0.75).alias("high"),
            (pl.col("rate_nats") - pl.col("true_rate")).median().alias("signed"),
            pl.col("lagrangian_gap").median(),
            pl.len().alias("seeds"),
        )
        .sort("source", "system", "eps")
    )
    return Table(
        "errors",
        "Error of the rate at the same slope (nats)",
        found,
        ["Median and quartiles over seeds. lagrangian_gap: R + D/eps above the optimum."],
        Chart("line", x="true_rate", y="error", color="system", facet="source", log_y=True),
        dict.fromkeys(("error", "low", "high", "signed", "lagrangian_gap"), ".4f"),
    )


def envelope(runs: Runs) -> Table:
    """Corners of the lower convex envelope of all seeds' points, by system and source: still an upper bound."""
    rows = []
    for (source, system), part in _points(runs).group_by("source", "system", maintain_order=True):
        upper = part.filter(pl.col("bound") != "estimate")
        if upper.is_empty():
            continue
        corners = lower_envelope(upper.select("half_mse", pl.col("rate_nats").clip(0)).to_numpy())
        rows += [{"source": source, "system": system, "half_mse": d, "rate_nats": r} for d, r in corners.tolist()]
    if not rows:
        raise UsageError("No points of these runs are upper bounds.")
    return Table(
        "envelope",
        "Lower convex envelope",
        pl.DataFrame(rows).sort("source", "system", "half_mse"),
        ["Time sharing reaches every point between corners."],
        Chart("line", x="half_mse", y="rate_nats", color="system", facet="source", log_x=True),
    )


def slopes(runs: Runs) -> Table:
    """Finite differences dR/dD of every curve over the slope that they should have: 1 = consistent."""
    rows = []
    for (system, source, attempt), part in _points(runs).group_by("system", "source", "attempt", maintain_order=True):
        part = part.sort("eps")
        d, r, eps = (part[c].to_numpy() for c in ("half_mse", "rate_nats", "eps"))
        if len(d) < 2:
            continue
        wanted = -np.log(eps[1:] / eps[:-1]) / np.diff(eps)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.diff(r) / np.diff(d) / wanted
        rows += [
            {"source": source, "system": system, "attempt": attempt, "eps": float(e), "ratio": float(v)}
            for e, v in zip(np.sqrt(eps[1:] * eps[:-1]), ratio)
            if np.isfinite(v)
        ]
    if not rows:
        raise UsageError("Slopes need at least two points a curve.")
    found = (
        pl.DataFrame(rows)
        .group_by("source", "system", "eps")
        .agg(pl.col("ratio").median())
        .sort("source", "system", "eps")
    )
    return Table(
        "slopes",
        "dR/dD over -1/eps",
        found,
        ["Median over seeds. Where R grows with log(1/eps), as it does up to the source's limit, 1 is exact."],
        Chart("line", x="eps", y="ratio", color="system", facet="source", log_x=True),
    )


def _points(runs: Runs) -> pl.DataFrame:
    frame = runs.labelled(rows=True)
    if frame.is_empty():
        raise UsageError("These runs hold no curves; see their errors with `assay report`.")
    numbers = ("true_rate", "true_half_mse", "rate_error", "lagrangian_gap", "se_rate", "rate_knn")
    return frame.with_columns(pl.col(numbers).cast(pl.Float64))
