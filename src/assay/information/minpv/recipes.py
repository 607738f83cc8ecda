"""A maker: paths and variances for two moments, in figures and numbers, without any training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import torch

from assay.core.table import Chart, Table
from assay.information.minpv.interpolants import Bridge
from assay.information.minpv.optimum import fit_path, optimal_path
from assay.information.minpv.paths import FIXED
from assay.information.minpv.paths import Path as Interpolation
from assay.information.minpv.variance import Moments, integrand, path_variance


def paths(
    out: Path,
    *,
    d: int = 2,
    x0: float | None = None,
    x1: float | None = None,
    cross: float = 0.0,
    gamma_sq: float = 0.01,
    epsilon: float = 0.005,
    components: int = 5,
) -> None:
    """Fixed, fitted and optimal paths for E|x0|^2 and E|x1|^2 (None = d) and their variance by time.

    Writes ``paths.svg``, ``variance.svg`` and ``paths.json`` (V of each path, and a, b and the variance on a grid).
    """
    from assay.report.figures import to_svg, vega_lite

    moments, bridge = (
        Moments(d, x0 if x0 is not None else d, x1 if x1 is not None else d, cross),
        Bridge(gamma_sq, epsilon),
    )
    made: dict[str, Interpolation] = {name: kind() for name, kind in FIXED.items()}
    for kind in ("affine", "spherical"):
        made[f"kmm_{kind}"] = fit_path(moments, bridge, constraint=kind, components=components)
        if epsilon > 0:
            made[f"optimal_{kind}"] = optimal_path(moments, bridge, constraint=kind)
    t = torch.from_numpy(np.linspace(0.005, 0.995, 100))
    found, curves = {}, []
    with torch.no_grad():
        for name, path in made.items():
            a, b, _, _ = path.coefficients(t)
            each = integrand(path, t, moments, bridge)
            found[name] = {"V": float(path_variance(path, moments, bridge, n=1000)), "a": a.tolist(), "b": b.tolist(),
                           "variance": each.tolist()}  # fmt: skip
            curves.append(pl.DataFrame({"path": name, "t": t.numpy(), "b": b.numpy(), "variance": each.numpy()}))
    (out / "paths.json").write_text(json.dumps({"t": t.tolist(), "paths": found}, indent=0), encoding="utf-8")
    shown = ("linear", "vp", "cosine", "foellmer", "trigonometric", "kmm_affine", "kmm_spherical")
    frame = pl.concat(curves).filter(pl.col("path").is_in(shown))
    # One path whose variance is a hundred times the others' would flatten them all.
    top = 3 * min(one["V"] for one in found.values())
    near = frame.with_columns(pl.when(pl.col("variance") <= top).then(pl.col("variance")).alias("variance"))
    for name, column, label, data in (
        ("paths", "b", "Weight b(t) of x1", frame),
        ("variance", "variance", "Variance of the time score at t", near.drop_nulls()),
    ):
        chart = Table(name, label, data, chart=Chart("line", x="t", y=column, color="path"))
        (out / f"{name}.svg").write_text(to_svg(vega_lite(chart)), encoding="utf-8")
