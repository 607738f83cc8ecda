"""The theory's claims checked on real training runs: ``assay make smooth_calibration reproduce``."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.map import resumable_map
from assay.core.stats.trends import jonckheere
from assay.learning.smooth_calibration import data, methods
from assay.learning.smooth_calibration.exact import smooth_ce, smooth_ce_logit, smooth_ce_many
from assay.learning.smooth_calibration.inputs import expit, log_loss_of_logits
from assay.learning.smooth_calibration.staged import staged_logits
from assay.learning.smooth_calibration.tracing import spread_stages

TOLERANCE = 1e-9
STAGES = {
    "gbt": 200,
    "gbt_deep": 200,
    "kernel": 300,
    "laplace": 300,
    "network": 400,
    "network_small": 400,
    "xgboost": 100,
}
TOYS = ("gauss", "xor")
SIZES = (200, 500, 1000, 2000)
CANCER = (100, 200, 400)
FAMILY = 64
FAMILY_SIZES = (200, 400, 800, 1600, 3200)
CHECKED = 24


@dataclass(frozen=True, slots=True)
class Claim:
    """A criterion, what was found, and whether it holds."""

    claim: str
    found: str
    holds: bool


def reproduce(out: Path, *, splits: int = 5, seeds: int = 20, full: bool = False, workers: int = 2) -> None:
    """Measure the five criteria; writes ``report.md``, ``claims.json``, ``cells.json``; resumes where it stopped.

    Parameters
    ----------
    splits
        Splits of every data set, size and algorithm.
    seeds
        Draws of the toys, at all sizes, for the trend in n (boosted trees of depth 3).
    full
        XGBoost on toys of up to 100,000 samples too (much longer).
    workers
        Processes.
    """
    start = time.monotonic()
    jobs = plan(splits, seeds, full)
    cells = list(resumable_map(cell, jobs, key=key, out=out, workers=workers))
    claims = [
        dual_below_gradient(cells),
        *gradient_below_bound(cells),
        *training_error_falls(cells),
        *error_falls_with_n(cells),
        gap_of_a_finite_family(seeds),
    ]
    (out / "cells.json").write_text(json.dumps(cells, indent=0), encoding="utf-8")
    (out / "claims.json").write_text(json.dumps([asdict(c) for c in claims], indent=1), encoding="utf-8")
    (out / "report.md").write_text(report(claims, cells, time.monotonic() - start), encoding="utf-8")


def plan(splits: int, seeds: int, full: bool) -> list[dict[str, Any]]:
    """Every cell: data set, size, algorithm, seed."""
    grid = [(name, n) for name in TOYS for n in SIZES] + [("breast_cancer", n) for n in CANCER]
    jobs = [
        {"data": name, "n": n, "algorithm": algorithm, "seed": seed}
        for name, n in grid
        for algorithm in ("gbt", "gbt_deep", "kernel", "laplace", "network", "network_small")
        for seed in range(max(splits, seeds) if algorithm == "gbt" and name in TOYS else splits)
    ]
    if full:
        jobs += [
            {"data": name, "n": n, "algorithm": "xgboost", "seed": seed}
            for name in TOYS
            for n in (*SIZES, 10_000, 100_000)
            for seed in range(splits)
        ]
    return jobs


def key(job: dict[str, Any]) -> str:
    """Name of a cell."""
    return f"{job['data']}-{job['n']}-{job['algorithm']}-{job['seed']}"


def cell(job: dict[str, Any]) -> dict[str, Any]:
    """Train once; what the criteria need of every stage."""
    place = [job["seed"], job["n"], sum(job["data"].encode())]
    parts = data.split(job["data"], job["n"], np.random.default_rng(place))
    model = methods.METHODS[job["algorithm"]](stages=STAGES[job["algorithm"]])
    model.set_params(random_state=job["seed"])
    model.fit(parts.x_train, parts.y_train.astype(int))
    excess, smce, l1 = -np.inf, [], []
    for _, g in staged_logits(model, parts.x_train):
        p = expit(g)
        l1.append(float(np.abs(p - parts.y_train).mean()))
        excess = max(excess, smooth_ce_logit(parts.y_train, g) - l1[-1])
        smce.append(smooth_ce(parts.y_train, p))
    test = list(staged_logits(model, parts.x_test))
    kept = sorted(spread_stages(len(test), CHECKED))
    curve = [(test[t - 1][0], smooth_ce(parts.y_test, expit(test[t - 1][1]))) for t in kept]
    losses = [(test[t - 1][0], float(log_loss_of_logits(parts.y_test, test[t - 1][1]).mean())) for t in kept]
    history = getattr(model, "history_", None)
    return {
        **job,
        "excess": excess,
        "rho": _spearman(np.arange(len(smce)), np.array(smce)),
        "rho_gradient": _spearman(np.arange(len(l1)), np.array(l1)),
        "start_smce": smooth_ce(parts.y_train, np.full(len(parts.y_train), 0.5)),
        "train_smce": smce[-1],
        "test_smce": curve[-1][1],
        "best_stage": min(curve, key=lambda c: c[1])[0],
        "best_smce": min(c[1] for c in curve),
        "best_loss_stage": min(losses, key=lambda c: c[1])[0],
        "last_stage": curve[-1][0],
        "mean_grad_l1": float(np.mean(history.grad_l1)) if history else None,
        "margin": history.least_margin if history else None,
        "bound": _number(getattr(model, "training_bound_", None)),
    }


def dual_below_gradient(cells: Sequence[dict[str, Any]]) -> Claim:
    """(1) at every stage."""
    worst = max(c["excess"] for c in cells)
    return Claim(
        f"(1) dual smooth error <= L1 gradient at every stage of {len(cells)} trainings, to 1e-9",
        f"largest excess {worst:.1e}",
        worst <= TOLERANCE,
    )


def gradient_below_bound(cells: Sequence[dict[str, Any]]) -> list[Claim]:
    """(2) per algorithm, with the margin measured on the same run."""
    claims = []
    for algorithm in dict.fromkeys(c["algorithm"] for c in cells if c["bound"] is not None):
        own = [c for c in cells if c["algorithm"] == algorithm]
        held = [c for c in own if c["bound"] is not None]
        below = sum(c["mean_grad_l1"] <= c["bound"] for c in held)
        gradient, bound = (float(np.mean([c[name] for c in held])) for name in ("mean_grad_l1", "bound"))
        without = f"; {len(own) - len(held)} runs have no bound" if len(held) < len(own) else ""
        claims.append(
            Claim(
                f"(2) {algorithm}: mean L1 gradient <= training bound with the measured margin",
                f"{below} of {len(held)}; on average {gradient:.3f} <= {bound:.3f}, least margin "
                f"{min(c['margin'] for c in held):.3f}{without}",
                below == len(held),
            )
        )
    return claims


def training_error_falls(cells: Sequence[dict[str, Any]]) -> list[Claim]:
    """(3) Spearman of training smCE with the stage, per algorithm: every run below -0.9.

    Beside it stands what the theory controls, the L1 gradient, and the error before training: on balanced classes the
    constant 1/2 is calibrated already, so that nothing is left to fall.
    """
    claims = []
    for algorithm in dict.fromkeys(c["algorithm"] for c in cells):
        own = [c for c in cells if c["algorithm"] == algorithm]
        rho = np.array([c["rho"] for c in own])
        gradient = np.array([c["rho_gradient"] for c in own])
        below = int((rho < -0.9).sum())
        cancer = [c["rho"] for c in own if c["data"] == "breast_cancer"]
        claims.append(
            Claim(
                f"(3) {algorithm}: training smCE falls with the stage, Spearman < -0.9",
                f"{below} of {len(rho)} runs, median {np.median(rho):.3f}, worst {rho.max():.3f}; breast cancer "
                f"{sum(r < -0.9 for r in cancer)} of {len(cancer)}; L1 gradient: {int((gradient < -0.9).sum())} of "
                f"{len(rho)}, median {np.median(gradient):.3f}",
                below == len(rho),
            )
        )
    start = {name: [c["start_smce"] for c in cells if c["data"] == name] for name in (*TOYS, "breast_cancer")}
    last = {name: [c["train_smce"] for c in cells if c["data"] == name] for name in start}
    claims.append(
        Claim(
            "(3) beyond the criterion: mean training smCE is lower after the last stage than before, on all data",
            "; ".join(f"{name} {np.mean(start[name]):.4f} to {np.mean(last[name]):.4f}" for name in start),
            all(np.mean(last[name]) < np.mean(start[name]) for name in start),
        )
    )
    return claims


def error_falls_with_n(cells: Sequence[dict[str, Any]]) -> list[Claim]:
    """(4) one-sided Jonckheere test over independent draws of the toys, boosted trees of depth 3, last stage."""
    claims = []
    for name in TOYS:
        own = [c for c in cells if c["data"] == name and c["algorithm"] == "gbt"]
        groups = [[c["test_smce"] for c in own if c["n"] == n] for n in SIZES]
        found = jonckheere(groups, alternative="decreasing")
        means = " > ".join(f"{np.mean(g):.3f}" for g in groups)
        claims.append(
            Claim(
                f"(4) {name}: test smCE of boosted trees falls with n = {', '.join(map(str, SIZES))} "
                f"({len(groups[0])} draws, one-sided p < .05)",
                f"means {means}; p = {found.p:.1e}",
                found.p < 0.05,
            )
        )
    return claims


def gap_of_a_finite_family(seeds: int) -> Claim:
    """(5) 64 fixed predictors of the gauss law, two independent samples of size n."""
    weights = np.random.default_rng(64).normal(0, 2, (FAMILY, 3))
    means = []
    for n in FAMILY_SIZES:
        sups = []
        for seed in range(seeds):
            rng = np.random.default_rng([seed, n])
            errors = []
            for _ in range(2):
                x, y = data.gauss(n, rng)
                errors.append(smooth_ce_many(y, expit(weights[:, :2] @ x.T + weights[:, 2:])))
            sups.append(float(np.abs(errors[0] - errors[1]).max()))
        means.append(float(np.mean(sups)))
    slope = float(np.polyfit(np.log(FAMILY_SIZES), np.log(means), 1)[0])
    return Claim(
        f"(5) largest gap of smCE of two samples over {FAMILY} predictors scales as n^-1/2: slope -0.65 to -0.35",
        f"slope {slope:.3f}; mean gap {means[0]:.4f} at n = {FAMILY_SIZES[0]}, {means[-1]:.4f} at {FAMILY_SIZES[-1]}",
        -0.65 <= slope <= -0.35,
    )


def report(claims: Sequence[Claim], cells: Sequence[dict[str, Any]], seconds: float) -> str:
    """Claims, then the mean test error by algorithm and size with the stage where it was best."""
    lines = ["# Smooth calibration: the criteria, measured", "", "| criterion | found | |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {'pass' if c.holds else 'FAIL'} |" for c in claims]
    lines += ["", "| data | algorithm | n | test smCE, last stage | best | at stage | loss best at | of |",
              "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for c in cells:
        groups.setdefault((c["data"], c["algorithm"], c["n"]), []).append(c)
    for (name, algorithm, n), own in groups.items():
        mean = {f: float(np.mean([c[f] for c in own])) for f in ("test_smce", "best_smce")}
        middle = {f: float(np.median([c[f] for c in own])) for f in ("best_stage", "best_loss_stage")}
        lines.append(
            f"| {name} | {algorithm} | {n} | {mean['test_smce']:.4f} | {mean['best_smce']:.4f} | "
            f"{middle['best_stage']:.0f} | {middle['best_loss_stage']:.0f} | {own[0]['last_stage']} |"
        )
    return "\n".join([*lines, "", f"{len(cells)} trainings, {seconds:.0f} s.", ""])


def _spearman(t: Any, values: Any) -> float:
    from scipy.stats import rankdata

    ranks = rankdata(values)
    # A curve that never moves neither rises nor falls.
    return 0.0 if np.ptp(ranks) == 0 else float(np.corrcoef(rankdata(t), ranks)[0, 1])


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
