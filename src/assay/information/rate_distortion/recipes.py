"""Makers: the curve of image patches with what it says to a codec's author, and paths of the optimal diffusion."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from assay.core.errors import unknown_name
from assay.core.table import Chart, Table
from assay.information.rate_distortion.curves import Curve, convert_distortion, convert_rate
from assay.information.rate_distortion.data import digit_patches, image_patches
from assay.information.rate_distortion.entropy import knn_entropy
from assay.information.rate_distortion.estimator import RateDistortionEstimator
from assay.information.rate_distortion.mixtures import GaussianMixture


def patches(
    out: Path,
    *,
    data: Literal["digits", "images"] = "digits",
    folder: str | None = None,
    size: int = 4,
    remove_mean: bool = False,
    samples: int = 8000,
    steps: int = 300,
    particles: int = 2000,
    points: int = 5,
    seed: int = 0,
) -> None:
    """R(D) of grey patches: R2D2, WGD, the Gaussian of equal covariance, and Shannon's bound from an entropy estimate.

    Writes ``curves.svg`` (bits a pixel against PSNR), ``curves.csv``, ``bound.json``, and ``r2d2.json``, ``wgd.json``,
    ``gaussian.json`` (`Curve.load` reads them).
    """
    from assay.report.export import write_table
    from assay.report.figures import to_svg, vega_lite

    if data == "digits":
        x = digit_patches(size=size, count=samples, seed=seed)
    elif data == "images":
        x = image_patches(folder, size=size, count=samples, remove_mean=remove_mean, seed=seed)
    else:
        raise unknown_name("data", data, ("digits", "images"))
    pixels, variance = size * size, float(x.var(0).mean())
    low, high = 0.02 * variance, 0.3 * variance
    shared = {"eps_range": (low, high), "points": points, "random_state": seed}
    made = {
        "r2d2": RateDistortionEstimator("r2d2", steps=steps, batch_size=512, learning_rate=1e-3, **shared),
        "wgd": RateDistortionEstimator("wgd", particles=particles, steps=100, batch_size=512, **shared),
        "gaussian": RateDistortionEstimator("gaussian", **shared),
    }
    rows = []
    for name, estimator in made.items():
        curve = estimator.fit(x).curve_
        Curve(curve.points, curve.d, data, name, curve.half_mse_max).save(out / f"{name}.json")
        rows += [_row(name, p.rate_nats, p.half_mse, pixels) for p in curve.points]
    h, se = knn_entropy(x)
    d = x.shape[1]
    for half_mse in d / 2 * np.geomspace(low, high, points):
        bound = max(0.0, h - d / 2 * math.log(2 * math.pi * math.e * 2 * half_mse / d))
        rows.append(_row("Shannon bound (estimate)", bound, float(half_mse), pixels))
    (out / "bound.json").write_text(json.dumps({"entropy_nats": h, "se": se, "neighbours": 3}), encoding="utf-8")
    table = Table(
        "curves",
        f"{size} x {size} patches of {data}",
        pl.DataFrame(rows),
        [f"WGD cannot pass log2({particles}) / {pixels} = {math.log2(particles) / pixels:.2f} bits a pixel."],
        Chart("line", "psnr", "bits_per_pixel", color="method", x_title="PSNR (dB)", y_title="bits a pixel"),
    )
    write_table(table, out / "curves.csv")
    (out / "curves.svg").write_text(to_svg(vega_lite(table)), encoding="utf-8")


def trajectories(out: Path, *, eps: float = 0.05, paths: int = 12, samples: int = 20_000, seed: int = 0) -> None:
    """Paths of the optimal diffusion of a mixture, and its reconstruction's density, simulated and exact.

    Writes ``paths.svg``, ``density.svg``, ``paths.csv``, ``density.csv``.
    """
    import torch

    from assay.information.rate_distortion.networks import MixtureDrift
    from assay.information.rate_distortion.simulation import simulate
    from assay.report.export import write_table
    from assay.report.figures import to_svg, vega_lite

    source = GaussianMixture([0.3, 0.4, 0.3], [-2, 0, 1.5], [0.2, 0.06, 0.4])
    rng = np.random.default_rng(seed)
    parts = source.weights, source.means, source.variances, source.axes
    drift = MixtureDrift(*(torch.from_numpy(np.ascontiguousarray(p)) for p in parts))
    x = torch.from_numpy(source.sample(samples, rng))
    found = simulate(drift, x, eps, steps=200, generator=torch.Generator().manual_seed(seed), keep=True)
    assert found.states is not None
    states = found.states[:, :paths, 0].numpy()
    times = np.linspace(0, 1, len(states))
    lines = [{"path": str(k), "t": float(t), "x": float(v)} for k in range(paths) for t, v in zip(times, states[:, k])]
    shown = Table(
        "paths",
        f"Paths of the optimal diffusion, eps = {eps:g}",
        pl.DataFrame(lines),
        chart=Chart("line", "t", "x", color="path"),
    )
    counts, edges = np.histogram(found.end[:, 0].numpy(), 120, density=True)
    middle = (edges[1:] + edges[:-1]) / 2
    exact = np.exp(source.terminal(eps).log_density(middle[:, None]))
    density = Table(
        "density",
        f"Law of the reconstruction, eps = {eps:g}",
        pl.DataFrame(
            [{"law": "simulated", "x": float(a), "density": float(b)} for a, b in zip(middle, counts)]
            + [{"law": "exact", "x": float(a), "density": float(b)} for a, b in zip(middle, exact)]
        ),
        chart=Chart("line", "x", "density", color="law"),
    )
    for table in (shown, density):
        write_table(table, out / f"{table.name}.csv")
        (out / f"{table.name}.svg").write_text(to_svg(vega_lite(table)), encoding="utf-8")


def _row(method: str, nats: float, half_mse: float, pixels: int) -> dict[str, float | str]:
    return {
        "method": method,
        "psnr": float(convert_distortion(half_mse, "psnr", d=pixels)),
        "bits_per_pixel": float(convert_rate(nats, "bits", d=pixels)),
        "rate_nats": nats,
        "half_mse": half_mse,
    }
