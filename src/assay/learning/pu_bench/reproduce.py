"""The published claims on small offline data, with pass or fail for each: ``assay make pu_bench.reproduce``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assay.core.claims import Claim, save_claims
from assay.core.engine import Engine
from assay.core.results import Runs
from assay.core.run import run
from assay.core.stats.ranks import average_ranks
from assay.learning.pu_bench import analyses
from assay.learning.pu_bench.benchmark import PUBench
from assay.learning.pu_bench.estimators import make_estimator

NET = {"net": "small_mlp", "batch_size": 128, "lr": 3e-3}
METHODS: dict[str, dict[str, Any]] = {
    "nnpu": {**NET, "epochs": 25},
    "nnpusb": {**NET, "epochs": 25},
    "vpu": {**NET, "epochs": 25},
    "distpu": {**NET, "epochs": 10, "warmup_epochs": 15},
    "puet": {},
    "lbe": {**NET, "epochs": 10, "pretrain_epochs": 15, "steps": 10},
    "pan": {**NET, "epochs": 25},
    "pn": {"net": "small_mlp", "selection": "last", "patience": None},
}
"""One small net, batch and rate for all: a few hundred rows do not feed the large one. The oracle has the published
rate, batch and epochs, and all rows: at the rate of the others it learns noise by heart."""
RISK = ("nnpu", "nnpusb", "vpu", "distpu", "puet", "lbe")


def reproduce(out: Path, *, seeds: int = 5, seed: int = 0, workers: int = 2) -> None:
    """Measure the claims on digits, breast_cancer and two normals; writes ``report.md``, ``claims.json``, tables, runs.

    Parameters
    ----------
    seeds
        Attempts a cell, at least 2.
    workers
        Processes. What an earlier call finished in ``out`` is not done again.
    """
    begun = time.monotonic()
    found = []
    for name, options in METHODS.items():
        bench = PUBench(
            datasets="digits,breast_cancer,gaussian", configurations="product", strategies="scar,sar_lbe_a,sar_lbe_b",
            c="0.05,0.1,0.5",
        )  # fmt: skip
        found.append(
            run(
                bench, make_estimator(name, **options), loading="assay.systems.loading", attempts=seeds, seed=seed,
                into=out / "runs" / name, engine=Engine(workers=workers), tags={"method": name},
            )
        )  # fmt: skip
    frame = pl.concat([_trials(name, one.records) for name, one in zip(METHODS, found)])
    claims = judge(frame)
    seconds = time.monotonic() - begun
    save_claims(out, claims)
    accuracy = accuracies(frame)
    accuracy.write_csv(out / "accuracy.csv")
    analyses.sar_degradation(Runs(found)).frame.write_csv(out / "sar_degradation.csv")
    (out / "report.md").write_text(markdown(claims, accuracy, frame, seconds), encoding="utf-8")


def _trials(name: str, records: pl.DataFrame) -> pl.DataFrame:
    if "accuracy" not in records.columns:  # not one trial went well
        records = records.with_columns(pl.lit(None, pl.Float64).alias("accuracy"))
    return records.select(pl.lit(name).alias("method"), "task", "sample", "attempt", "strategy", "c", "accuracy")


def accuracies(frame: pl.DataFrame) -> pl.DataFrame:
    """Mean accuracy in percent, a row a method: by data set, by c, by strategy, overall; its rank among PU methods."""
    names = list(METHODS)
    pu = [name for name in names if name != "pn"]
    wide = _wide(frame)
    rank = dict(zip(pu, average_ranks(wide.select(pu).to_numpy())))
    rows = []
    for name in names:
        mine = frame.filter(pl.col("method") == name)
        row: dict[str, Any] = {"method": name}
        for column in ("task", "c", "strategy"):
            parts = mine.group_by(column).agg(pl.col("accuracy").mean()).sort(column)
            row |= {f"{'c=' if column == 'c' else ''}{k}": 100 * v for k, v in parts.iter_rows()}
        rows.append({**row, "mean": 100 * _mean(mine["accuracy"]), "rank": rank.get(name)})
    return pl.DataFrame(rows).sort("mean", descending=True)


def judge(frame: pl.DataFrame) -> list[Claim]:
    """The five acceptance criteria on records with method, task, sample, attempt, strategy, c, accuracy."""
    from scipy.stats import ttest_rel, wilcoxon

    wide = _wide(frame)
    pu = [name for name in METHODS if name != "pn"]
    oracle, others = wide["pn"].to_numpy(), wide.select(pu).to_numpy()
    above = float((oracle >= others.max(axis=1)).mean())
    pairs_above = float((oracle[:, None] >= others).mean())
    risk = frame.filter(pl.col("method").is_in(RISK))
    keys = ["task", "strategy", "attempt"]
    by_c = risk.group_by(*keys, "c").agg(pl.col("accuracy").mean()).pivot("c", index=keys, values="accuracy").sort(keys)
    low, high = by_c["0.05"].to_numpy(), by_c["0.5"].to_numpy()
    rise: Any = wilcoxon(high, low, alternative="greater")
    at = risk.filter(pl.col("c") == 0.05).with_columns(pl.col("strategy") == "scar")
    by_bias = at.group_by("task", "attempt", "strategy").agg(pl.col("accuracy").mean())
    scar, sar = (
        by_bias.filter(pl.col("strategy") == flag).sort("task", "attempt")["accuracy"].to_numpy()
        for flag in (True, False)
    )
    fall: Any = ttest_rel(sar, scar, alternative="less")
    mean = {name: 100 * _mean(frame.filter(pl.col("method") == name)["accuracy"]) for name in METHODS}
    ranked = average_ranks(others)
    place = int((ranked < ranked[pu.index("nnpu")]).sum()) + 1
    best = max(pu, key=lambda name: mean[name])
    family = float(np.mean([mean[name] for name in RISK]))
    return [
        Claim(
            "(1) the oracle is at least as accurate as every PU method in 90 % of cells",
            f"{above:.0%} of {len(oracle)} cells against all seven; {pairs_above:.0%} of pairs of a cell and a method",
            above >= 0.9,
        ),
        Claim(
            "(2) risk methods gain from c = 0.05 to 0.5 (Wilcoxon, p < 0.05)",
            f"{100 * low.mean():.1f} to {100 * high.mean():.1f} %, p = {rise.pvalue:.2g}, n = {len(low)}",
            bool(rise.pvalue < 0.05),
        ),
        Claim(
            "(3) biased labelling at c = 0.05 costs them accuracy (paired t, p < 0.05)",
            f"{100 * scar.mean():.1f} to {100 * sar.mean():.1f} %, p = {fall.pvalue:.2g}, n = {len(sar)}",
            bool(fall.pvalue < 0.05),
        ),
        Claim(
            "(4) nnPU is within 3 points of the best PU method, or in the top half by average rank",
            f"{mean['nnpu']:.1f} % against {mean[best]:.1f} % ({best}); place {place} of {len(pu)}",
            mean[best] - mean["nnpu"] <= 3 or place <= len(pu) / 2,
        ),
        Claim(
            "(5) PAN is below the mean of the risk methods",
            f"{mean['pan']:.1f} against {family:.1f} %",
            mean["pan"] < family,
        ),
    ]  # fmt: skip


def markdown(claims: list[Claim], accuracy: pl.DataFrame, frame: pl.DataFrame, seconds: float) -> str:
    """Claims, then the table of accuracies."""
    failed = frame["accuracy"].null_count()
    lines = ["# PU-Bench: claims measured anew", "", "| claim | found | |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {'pass' if c.holds else 'FAIL'} |" for c in claims]
    lines += ["", "| " + " | ".join(accuracy.columns) + " |", "| " + " | ".join("---" for _ in accuracy.columns) + " |"]
    for row in accuracy.iter_rows():
        lines.append("| " + " | ".join(_shown(value) for value in row) + " |")
    lines += ["", f"Accuracy in percent, {frame.height} trials, {failed} failed. Took {seconds:.0f} s.", ""]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str("" if value is None else value)


def _mean(column: pl.Series) -> float:
    value: Any = column.mean()
    return float(value)


def _wide(frame: pl.DataFrame) -> pl.DataFrame:
    """Mean accuracy of each method in each cell; null where a seed failed."""
    cell = frame.group_by("task", "sample", "method").agg(
        pl.when(pl.col("accuracy").null_count() == 0).then(pl.col("accuracy").mean()).alias("accuracy")
    )
    return cell.pivot("method", index=["task", "sample"], values="accuracy").sort("task", "sample")
