"""Makers of folders: runs in the published record format, and simulated worlds with their truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np

from assay.core.errors import UsageError
from assay.core.results import Run, Runs
from assay.reasoning.cost_of_pass import simulate as worlds
from assay.reasoning.cost_of_pass.formats import RecordStore, to_published
from assay.reasoning.cost_of_pass.worlds import price_book


def export(
    out: Path, *, runs: str, prices: str | None = None, mode: Literal["append", "overwrite"] = "overwrite"
) -> None:
    """Write runs of this benchmark in the published layout.

    Parameters
    ----------
    runs
        Run folders, separated by commas.
    prices
        Price book for dollars a token; none = recovered from the records.
    mode
        ``append`` to records that are there, or ``overwrite`` them.
    """
    paths = [Path(part.strip()) for part in runs.split(",") if part.strip()]
    if not paths:
        raise UsageError("Option runs names no run folder.")
    full, metric = to_published(Runs([Run(path) for path in paths]), None if prices is None else price_book(prices))
    store = RecordStore(out)
    store.write(full, "full", mode)
    for (name,), part in metric.partition_by("metric_name", as_dict=True).items():
        store.write(part, str(name), mode)


def simulate(
    out: Path, *, problems: int = 128, runs: int = 8, easy: float = 0.0, spread: float = 1.0, seed: int = 0
) -> None:
    """Write a simulated world: ``records.csv`` in the columns of the published worlds, ``truth.json`` beside it.

    Parameters
    ----------
    problems, runs
        Size.
    easy, spread
        Mean and standard deviation of the difficulty; lightweight producers have skill 0.3 to 1, reasoning ones 3.6 to
        4.6.
    """
    rng = np.random.default_rng(seed)
    world = worlds.truth(rng.normal(easy, spread, problems))
    worlds.draw(world, runs, rng).write_csv(out / "records.csv")
    facts = {
        "models": [producer.name for producer in world.producers],
        "rates": world.rates.tolist(),
        "costs": world.costs[:, 0].tolist(),
    }
    (out / "truth.json").write_text(json.dumps(facts), encoding="utf-8")
