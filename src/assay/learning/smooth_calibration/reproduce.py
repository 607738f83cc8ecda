"""The theory's claims checked on real training runs: ``assay make smooth_calibration reproduce``."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.claims import Claim, save_claims
from assay.core.map import resumable_map
from assay.core.stats.trends import jonckheere
from assay.learning.smooth_calibration import data, methods
from assay.learning.smooth_calibration.exact import smooth_ce, smooth_ce_logit, smooth_ce_many
from assay.learning.smooth_calibration.inputs import expit
from assay.learning.smooth_calibration.measures import measure
from assay.learning.smooth_calibration.reference import smooth_ce_lp
from assay.learning.smooth_calibration.staged import staged_logits
from assay.learning.smooth_calibration.tracing import save_traces, spread_stages

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
TOYS = ("gauss", "xor", "separable")
SIZES = (200, 500, 1000, 2000)
CANCER = (100, 200, 400)
FAMILY = 64
FAMILY_SIZES = (200, 400, 800, 1600, 3200)
CHECKED = 12
SOLVED = 2000


def reproduce(out: Path, *, splits: int = 5, seeds: int = 20, full: bool = False, workers: int = 2) -> None:
    """Measure the five criteria; resumes where it stopped.

    Writes ``report.md``, ``claims.json``, ``cells.json`` (what the criteria read of every training) and
    ``traces.parquet`` (both parts at some stages of every training).

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
        error_is_that_of_the_programme(cells),
        dual_below_gradient(cells),
        *gradient_below_bound(cells),
        *training_error_falls(cells),
        *error_falls_with_n(cells),
        gap_of_a_finite_family(seeds),
    ]
    save_traces([row for one in cells for row in one.pop("rows")], out / "traces.parquet")
    (out / "cells.json").write_text(json.dumps(cells, indent=0), encoding="utf-8")
    save_claims(out, claims)
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
    y = parts.y_train
    train = list(staged_logits(model, parts.x_train))
    excess, smce, l1 = -np.inf, [], []
    for _, g in train:
        p = expit(g)
        l1.append(float(np.abs(p - y).mean()))
        excess = max(excess, smooth_ce_logit(y, g) - l1[-1])
        smce.append(smooth_ce(y, p))
    peak = int(np.argmax(smce))
    solved = None
    if job["seed"] == 0 and len(y) <= SOLVED:
        solved = max(abs(smooth_ce_lp(y, expit(train[t][1])) - smce[t]) for t in {0, peak, len(train) - 1})
    test = list(staged_logits(model, parts.x_test))
    keys = {"algo": job["algorithm"], "seed": job["seed"], "n": job["n"]}
    rows = [
        {**keys, "data": job["data"], "t": stages[place - 1][0], "split": part, **measure(target, stages[place - 1][1])}
        for part, target, stages in (("train", y, train), ("test", parts.y_test, test))
        for place in sorted(spread_stages(len(test), CHECKED))
    ]
    curve = [row for row in rows if row["split"] == "test"]
    history = getattr(model, "history_", None)
    return {
        **job,
        "excess": excess,
        "solved": solved,
        "rho": _spearman(np.arange(len(smce)), np.array(smce)),
        "rho_gradient": _spearman(np.arange(len(l1)), np.array(l1)),
        "start_smce": smooth_ce(y, np.full(len(y), 0.5)),
        "peak_smce": smce[peak],
        "train_smce": smce[-1],
        "test_smce": curve[-1]["smce"],
        "best_stage": min(curve, key=lambda row: row["smce"])["t"],
        "best_smce": min(row["smce"] for row in curve),
        "best_loss_stage": min(curve, key=lambda row: row["loss"])["t"],
        "last_stage": curve[-1]["t"],
        "rows": rows,
        "mean_grad_l1": float(np.mean(history.grad_l1)) if history else None,
        "margin": history.least_margin if history else None,
        "bound": _number(getattr(model, "training_bound_", None)),
    }


def error_is_that_of_the_programme(cells: Sequence[dict[str, Any]]) -> Claim:
    """(0) the exact error beside HiGHS at the first stage, the last, and where the training error is largest."""
    held = [c["solved"] for c in cells if c["solved"] is not None]
    worst = max(held, default=float("nan"))
    return Claim(
        f"(0) training smCE equals the linear programme by HiGHS at 3 stages of {len(held)} trainings, to 1e-7",
        f"largest difference {worst:.1e}",
        worst <= 1e-7,
    )


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
    constant 1/2 is calibrated already, so that the error rises before it falls.
    """
    claims = []
    names = list(dict.fromkeys(c["data"] for c in cells))
    for algorithm in dict.fromkeys(c["algorithm"] for c in cells):
        own = [c for c in cells if c["algorithm"] == algorithm]
        below = {n: [c["rho"] < -0.9 for c in own if c["data"] == n] for n in names}
        middle = {n: np.median([c["rho"] for c in own if c["data"] == n] or [np.nan]) for n in names}
        counts = ", ".join(f"{n} {sum(v)} of {len(v)} (median {middle[n]:.2f})" for n, v in below.items() if v)
        gradient = sum(c["rho_gradient"] < -0.9 for c in own)
        claims.append(
            Claim(
                f"(3) {algorithm}: training smCE falls with the stage, Spearman < -0.9",
                f"{counts}; the L1 gradient falls so in {gradient} of {len(own)}",
                all(all(v) for v in below.values()),
            )
        )
    path = {
        n: [[c[f] for c in cells if c["data"] == n] for f in ("start_smce", "peak_smce", "train_smce")] for n in names
    }
    claims.append(
        Claim(
            "(3) beyond the criterion: mean training smCE is lower after the last stage than before the first",
            "; ".join(
                f"{n} {np.mean(start):.4f} to {np.mean(end):.4f}, on the way at most {np.mean(peak):.4f}"
                for n, (start, peak, end) in path.items()
            ),
            all(np.mean(end) < np.mean(start) for start, _, end in path.values()),
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
