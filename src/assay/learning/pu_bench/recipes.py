"""Recipes: the published grid as a plan, published settings run, results written as published, priors estimated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import DataError, UsageError
from assay.learning.pu_bench.grid import paper_grid

if TYPE_CHECKING:
    import polars as pl


def plan(out: Path, *, pattern: str = "*") -> None:
    """Write the published grid, or the cells that fit a glob, to ``plan.csv``, with the command that runs each."""
    import polars as pl

    rows = [
        {
            "cell": cell.id, "method": cell.method, "dataset": cell.dataset, "scenario": cell.configuration.scenario,
            "strategy": cell.configuration.strategy, "c": cell.configuration.c, "seeds": 10,
            "command": f"assay run pu_bench -s method:{cell.method} -o data=DATA -o datasets={cell.dataset} "
            f"--samples {cell.configuration.id}",
        }
        for cell in paper_grid(pattern=pattern)
    ]  # fmt: skip
    pl.DataFrame(rows, schema=None if rows else ["cell"]).write_csv(out / "plan.csv")


def published(
    out: Path, *, dataset: str, methods: str, data: str | None = None, seeds: int | None = None, workers: int = 1
) -> None:
    """Run published settings: ``runs/``, their results as published in ``results/``, and ``unused.json``.

    Parameters
    ----------
    dataset
        Published data set file (YAML).
    methods
        Method files, or folders of them, by comma.
    data
        As the option of the benchmark.
    seeds
        How many of the published seeds; None = all. Attempts stand for them.
    workers
        Processes. What an earlier call finished in ``out`` is not done again.
    """
    from assay.core.engine import Engine
    from assay.core.results import Runs
    from assay.core.run import run
    from assay.learning.pu_bench.benchmark import PUBench
    from assay.learning.pu_bench.estimators import make_estimator
    from assay.learning.pu_bench.formats import read_method, read_sweep, write_results

    sweep = read_sweep(dataset)
    paths: list[Path] = []
    for part in (part.strip() for part in methods.split(",") if part.strip()):
        paths += sorted(Path(part).glob("*.yaml")) if Path(part).is_dir() else [Path(part)]
    if not paths:
        raise UsageError(f"Option methods={methods!r} names no method file.")
    unused = {sweep.dataset: list(sweep.unused)}
    found = []
    for path in paths:
        settings = read_method(path)
        unused[settings.name] = list(settings.unused)
        for mode in sweep.modes:
            options: dict[str, Any] = {"mode": mode, "selection": settings.selection}
            bench = PUBench(
                data, datasets=sweep.dataset, clean_share=sweep.clean_share, prevalence=sweep.prevalence, **options
            )
            bench.configurations = list(sweep.configurations)
            found.append(
                run(
                    bench, make_estimator(settings.name, **settings.options), loading="assay.systems.loading",
                    attempts=min(seeds or len(sweep.seeds), len(sweep.seeds)),
                    into=out / "runs" / f"{settings.name}-{mode}", engine=Engine(workers=workers),
                    tags={"method": settings.name},
                )
            )  # fmt: skip
    (out / "unused.json").write_text(json.dumps(unused, indent=1), encoding="utf-8")
    write_results(Runs(found), out / "results", seeds=sweep.seeds)


def export(out: Path, *, runs: str, seeds: str = "") -> None:
    """Write finished runs as published results, ``results/seed_SEED/EXPERIMENT.json``.

    Parameters
    ----------
    runs
        Run folders by comma.
    seeds
        Published seed of each attempt, by comma; empty = 0, 1, ...
    """
    from assay.core.results import Run, Runs
    from assay.learning.pu_bench.formats import write_results

    paths = [Path(part.strip()) for part in runs.split(",") if part.strip()]
    if missing := [path for path in paths if not (path / "run.json").is_file()]:
        raise DataError(f"{missing[0]} is no run folder: it holds no run.json.")
    found = [Run(path) for path in paths]
    if foreign := [run for run in found if run.benchmark != "pu_bench"]:
        raise UsageError(f"{foreign[0].path} is a run of {foreign[0].benchmark}, not of pu_bench.")
    try:
        numbers = [int(part) for part in seeds.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"Option seeds={seeds!r} must be whole numbers separated by commas.") from None
    write_results(Runs(found), out / "results", seeds=numbers)


def priors(out: Path, *, rows: int = 1500, seeds: int = 3, seed: int = 0) -> None:
    """Estimates of the prior against the truth, and what a wrong prior costs nnPU; two normals of several kinds.

    Writes ``priors.csv`` (a row a world, estimator and seed), ``sensitivity.csv`` (accuracy by the error of the prior)
    and ``report.md``.

    Parameters
    ----------
    rows
        Training rows a world.
    seeds
        Worlds of each kind.
    """
    import polars as pl

    estimates = pl.DataFrame(_estimates(rows, seeds, seed))
    estimates.write_csv(out / "priors.csv")
    sensitivity = pl.DataFrame(_sensitivity(rows, seeds, seed))
    sensitivity.write_csv(out / "sensitivity.csv")
    short = (
        estimates.group_by("estimator", "scenario", "distance", maintain_order=True)
        .agg(
            (pl.col("estimate") - pl.col("prior")).mean().alias("bias"),
            (pl.col("estimate") - pl.col("prior")).abs().mean().alias("absolute error"),
            pl.col("seconds").mean(),
        )
        .sort("distance", "scenario", "absolute error", descending=[True, False, False])
    )
    wrong = sensitivity.group_by("told less true", maintain_order=True).agg(pl.col("accuracy").mean())
    text = "# Class priors\n\n" + _markdown(short) + "\n\n# nnPU told a wrong prior\n\n" + _markdown(wrong) + "\n"
    (out / "report.md").write_text(text, encoding="utf-8")


def _estimates(rows: int, seeds: int, seed: int) -> list[dict[str, Any]]:
    import inspect
    import time

    from assay.learning.pu_bench.data import gaussian_mixture
    from assay.learning.pu_bench.generator import make_pu_dataset
    from assay.learning.pu_bench.prior import ESTIMATORS, prior_estimator

    found = []
    for distance in (4.0, 2.0):
        for share in (0.2, 0.5, 0.7):
            for number in range(seeds):
                rng = np.random.default_rng([seed, number])
                x, y, _ = gaussian_mixture(rows, rng, distance=distance, prior=share, dimensions=5)
                for scenario in ("case_control", "single"):
                    pu = make_pu_dataset(x, y, c=0.4, scenario=scenario, random_state=rng)
                    for name in ESTIMATORS:
                        model = prior_estimator(name, number)
                        more = (
                            {"groups": pu.source_index} if "groups" in inspect.signature(model.fit).parameters else {}
                        )
                        begun = time.process_time()
                        estimate = model.fit(pu.X, pu.s, **more).prior_
                        found.append(
                            {"distance": distance, "share": share, "seed": number, "scenario": scenario,
                             "estimator": name, "prior": pu.prior_u, "estimate": estimate,
                             "seconds": time.process_time() - begun}
                        )  # fmt: skip
    return found


def _sensitivity(rows: int, seeds: int, seed: int) -> list[dict[str, Any]]:
    from assay.learning.pu_bench.data import gaussian_mixture
    from assay.learning.pu_bench.estimators import make_estimator
    from assay.learning.pu_bench.generator import make_pu_dataset

    found = []
    for number in range(seeds):
        rng = np.random.default_rng([seed, number])
        x, y, _ = gaussian_mixture(rows, rng, distance=3.0, dimensions=5)
        x_test, y_test, _ = gaussian_mixture(5000, rng, distance=3.0, dimensions=5)
        pu = make_pu_dataset(x, y, c=0.3, random_state=rng)
        for off in (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3):
            model = make_estimator(
                "nnpu", prior=pu.prior_u + off, net="small_mlp", epochs=15, lr=3e-3, random_state=number
            ).fit(pu.X, pu.s, source_index=pu.source_index)
            right = float(((model.predict(x_test) == 1) == (y_test == 1)).mean())
            found.append({"seed": number, "told less true": off, "accuracy": right})
    return found


def _markdown(frame: pl.DataFrame) -> str:
    lines = ["| " + " | ".join(frame.columns) + " |", "| " + " | ".join("---" for _ in frame.columns) + " |"]
    for row in frame.iter_rows():
        lines.append("| " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row) + " |")
    return "\n".join(lines)
