"""Makers: the loss on the search plane of a training, and the paper's ablations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from assay.core.map import resumable_map
from assay.training.xsam import methods
from assay.training.xsam.data import make_split
from assay.training.xsam.landscape import plane_info, save_history, search_plane, surface, surface_chart
from assay.training.xsam.training import Recipe, train_classifier, write_log

ABLATIONS: dict[str, dict[str, Any]] = {
    "searched once an epoch": {},
    **{f"alpha = {a:g}": {"alpha": a, "fixed": True} for a in (0.0, 0.5, 1.0, 1.5, 2.0)},
    **{f"search every {n} iterations": {"every": n} for n in (1, 10)},
    "search once": {"every": 10**9},
    **{f"rho_max = {m:g} rho": {"rho_max": m} for m in (1.0, 4.0)},
    "golden section": {"search": "golden"},
    "fitted curve": {"search": "fit"},
    **{f"k = {k}": {"ascent_steps": k} for k in (2, 3, 5, 10)},
    **{f"k = {k}, first gradient's plane": {"ascent_steps": k, "plane": "gradient"} for k in (3, 5)},
}


def plane(
    out: Path,
    *,
    data: str = "digits",
    noise: float = 0.3,
    network: str = "mlp",
    epochs: int = 5,
    rho: float = 0.5,
    ascent_steps: int = 1,
    size: int = 25,
    seed: int = 0,
) -> None:
    """Train with XSAM, then draw the loss of one batch around the weights on the search plane.

    Writes ``plane.svg``, ``plane.json`` (angle, circle, points), ``surface.npz``, ``history.npz`` (every search) and
    ``log.csv``.
    """
    from assay.report.figures import to_svg

    split = make_split(data, np.random.default_rng(seed), noise=noise)
    recipe = Recipe(network=network, epochs=epochs)
    made = methods.xsam(rho=rho, ascent_steps=ascent_steps)
    found = train_classifier(made.build, split, recipe, seed, measure_sharpness=False)
    net = found.net
    assert net is not None
    net.train()
    n = min(recipe.batch_size, len(split.y_train))
    x, y = torch.from_numpy(split.x_train[:n]), torch.from_numpy(split.y_train[:n])
    params = list(net.parameters())

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(net(x), y)

    there = search_plane(loss, params, rho=rho, ascent_steps=ascent_steps, model=net)
    at, losses = surface(loss, params, there, size=size, model=net)
    (out / "plane.svg").write_text(to_svg(surface_chart(at, losses, there)), encoding="utf-8")
    (out / "plane.json").write_text(plane_info(there), encoding="utf-8")
    np.savez(out / "surface.npz", at=at, losses=losses)
    save_history(found.history, out / "history.npz")
    write_log(found.rows, out / "log.csv")


def ablations(
    out: Path,
    *,
    data: str = "digits",
    noise: float = 0.3,
    network: str = "mlp",
    epochs: int = 60,
    rho: float = 0.3,
    seeds: int = 5,
    workers: int = 2,
) -> None:
    """Fixed alphas, search frequencies, radii, planes and ascent steps of XSAM; resumes where it stopped.

    Writes ``ablations.json`` (a row a training) and ``ablations.md``.
    """
    jobs = [
        {"name": name, "seed": seed, "data": data, "noise": noise, "network": network, "epochs": epochs, "rho": rho}
        for name in ABLATIONS
        for seed in range(seeds)
    ]
    settings = f"{data}-{noise:g}-{network}-{epochs}-{rho:g}"
    rows = list(
        resumable_map(
            _ablation, jobs, key=lambda job: f"{settings}-{job['name']}-{job['seed']}", out=out, workers=workers
        )
    )
    lines = [
        "| variant | test accuracy, last 5 epochs | std | largest loss found over the first gradient's | alpha |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in ABLATIONS:
        own = [row for row in rows if row["name"] == name]
        accuracy = np.array([row["last5_mean"] for row in own])
        rises = [row["rise"] for row in own if row["rise"] is not None]
        lines.append(
            f"| {name} | {accuracy.mean():.2f} | {accuracy.std(ddof=1) if len(own) > 1 else 0:.2f} | "
            f"{f'{np.mean(rises):+.4f}' if rises else '-'} | {np.mean([row['alpha_mean'] for row in own]):.2f} |"
        )
    (out / "ablations.json").write_text(json.dumps(rows, indent=0), encoding="utf-8")
    (out / "ablations.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _ablation(job: dict[str, Any]) -> dict[str, Any]:
    options = dict(ABLATIONS[job["name"]])
    if "rho_max" in options:
        options["rho_max"] *= job["rho"]
    split = make_split(job["data"], np.random.default_rng(job["seed"]), noise=job["noise"])
    found = train_classifier(
        methods.xsam(rho=job["rho"], **options).build,
        split,
        Recipe(network=job["network"], epochs=job["epochs"]),
        job["seed"],
        measure_sharpness=False,
    )
    # On a grid the first candidate is the first gradient's direction (k = 1).
    rises = [max(row["losses"]) - row["losses"][0] for row in found.history if len(row["losses"]) == 21]
    return {
        "name": job["name"],
        "seed": job["seed"],
        "last5_mean": found.scores["last5_mean"],
        "alpha_mean": found.scores["alpha_mean"],
        "rise": float(np.mean(rises)) if rises else None,
    }
