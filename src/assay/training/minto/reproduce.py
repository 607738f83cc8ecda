"""The paper's claims on two cores: ``assay make minto reproduce``."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.claims import Claim, save_claims
from assay.core.map import resumable_map
from assay.training.minto.batched import train_batched
from assay.training.minto.envs import ENVS
from assay.training.minto.evaluation import Gain, aggregate, relative_gain
from assay.training.minto.settings import Recipe, Variant
from assay.training.minto.tabular import gaussian_bias, q_learning, random_mdp, simulated_bias

OPERATORS = ("target", "online", "min", "max", "mean", "random")
RECIPES: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"steps": 6000, "batch_size": 32, "eps_steps": 1500, "copy_every": 200},
    "Acrobot-v1": {"steps": 6000, "batch_size": 32, "eps_steps": 1500, "copy_every": 200, "eval_episodes": 0},
    "MinAtar/Breakout": {
        "steps": 4000, "batch_size": 32, "eps_steps": 2000, "copy_every": 200, "hidden": (64,), "eval_every": 250,
        "eval_episodes": 0,
    },
}  # fmt: skip
"""Fixed before the seeds that are reported were run. Greedy evaluation where it is cheap, else the training returns."""
TOGETHER = 8
MDPS, MDP_STEPS = 20, 4000


def reproduce(out: Path, *, seeds: int = 16, workers: int = 2, steps: float = 1.0) -> None:
    """Six operators on three environments with equal seeds, random decision processes, and biases in closed form.

    ``steps`` shortens all trainings by a factor. Resumes where it stopped. Writes ``report.md``, ``claims.json``,
    ``curves.json`` (a row a point of each run).
    """
    begun, cpu = time.monotonic(), time.process_time()
    jobs: list[dict[str, Any]] = [
        {"env": env, "seeds": list(range(first, min(first + TOGETHER, seeds))), "steps": steps}
        for env in sorted(RECIPES, key=lambda name: -RECIPES[name]["steps"])
        for first in range(0, seeds, TOGETHER)
    ]
    trained = list(
        resumable_map(
            training, jobs, key=lambda j: f"{j['env']}-{j['steps']:g}-{j['seeds'][0]}-{len(j['seeds'])}", out=out,
            workers=workers,
        )
    )  # fmt: skip
    tables = list(resumable_map(tabular, range(MDPS), key=lambda i: f"mdp-{i}", out=out, workers=workers))
    rows = [row for job in trained for row in job["rows"]]
    (out / "curves.json").write_text(json.dumps(rows), encoding="utf-8")
    claims = [*training_claims(rows), *tabular_claims(tables)]
    save_claims(out, claims)
    spent = sum(job["cpu_seconds"] for job in trained) + time.process_time() - cpu
    text = report(rows, claims, time.monotonic() - begun, spent)
    (out / "report.md").write_text(text, encoding="utf-8")


def training(job: dict[str, Any]) -> dict[str, Any]:
    """All operators on some seeds of one environment, side by side; a row a point of the grid."""
    torch.set_num_threads(1)
    begun = time.process_time()
    options = dict(RECIPES[job["env"]])
    options["steps"] = max(500, int(options["steps"] * job["steps"]))
    recipe = Recipe(env=job["env"], **options)
    variants = [Variant(op) for op in OPERATORS for _ in job["seeds"]]
    curves = train_batched(recipe, variants, job["seeds"] * len(OPERATORS))
    rows = [
        {"algo": "dqn", "operator": c.variant.op, "env": job["env"], "seed": c.seed, "diverged": c.diverged, **row}
        for c in curves
        for row in c.rows
    ]
    return {"rows": rows, "cpu_seconds": time.process_time() - begun}


def tabular(i: int) -> dict[str, Any]:
    """Mean distance from Q* over a training, by operator, from below and from above, in one random process."""
    found: dict[str, Any] = {}
    for start in (-20.0, 20.0):
        for op in OPERATORS:
            mdp = random_mdp(10, 8, np.random.default_rng([i, 0]), gamma=0.9)
            run = q_learning(
                mdp, op, steps=MDP_STEPS, copy_every=200, rng=np.random.default_rng([i, 1]), initial=start,
                reward_noise=0.5,
            )  # fmt: skip
            found[f"{op} from {'below' if start < 0 else 'above'}"] = float(np.abs(run.error).mean())
    return found


def scores(rows: list[dict[str, Any]], op: str) -> np.ndarray:
    """Normalised areas under the curves of an operator, (seeds, environments), seeds in order."""
    columns = []
    for env in RECIPES:
        own = [r for r in rows if r["env"] == env and r["operator"] == op]
        by_seed = {s: [r["return"] for r in own if r["seed"] == s] for s in sorted({r["seed"] for r in own})}
        columns.append([float(ENVS[env].normalised(float(np.mean(points)))) for points in by_seed.values()])
    return np.array(columns).T


def mean_of(rows: list[dict[str, Any]], op: str, column: str, env: str | None = None) -> float:
    """Mean of a column over an operator's rows, empty ones left out."""
    values = [
        r[column] for r in rows if r["operator"] == op and env in (None, r["env"]) and r[column] is not None
    ]  # fmt: skip
    return float(np.mean(values))


def training_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """Gain, worst operator, order of target values, share of online values, and what goes beyond."""
    rng = np.random.default_rng(0)
    table = {op: scores(rows, op) for op in OPERATORS}
    found = {op: aggregate(table[op], rng) for op in OPERATORS}
    gain = relative_gain(table["min"], table["target"], rng)
    order = sorted(OPERATORS, key=lambda op: found[op].iqm)
    claims = [
        Claim(
            "IQM of AUC: min >= target", f"{found['min'].iqm:.3f} against {found['target'].iqm:.3f}",
            found["min"].iqm >= found["target"].iqm,
        ),
        Claim(
            "P(gain of min over target > 0) >= 0.9, runs drawn in pairs, tasks pooled",
            f"{gain.chance:.3f} ({_told(gain)})",
            gain.chance >= 0.9,
        ),
        Claim(
            "max is the worst operator by IQM of AUC",
            "worst first: " + ", ".join(f"{op} {found[op].iqm:.3f}" for op in order), order[0] == "max",
        ),
    ]  # fmt: skip
    for env in RECIPES:
        y = {op: mean_of(rows, op, "target_mean", env) for op in ("max", "mean", "min")}
        claims.append(
            Claim(
                f"{env}: mean target value max >= mean >= min",
                ", ".join(f"{op} {v:.2f}" for op, v in y.items()), y["max"] >= y["mean"] >= y["min"],
            )
        )  # fmt: skip
    rates = {env: mean_of(rows, "min", "online_rate", env) for env in RECIPES}
    claims.append(
        Claim(
            "share of online values with min lies in (0, 0.6)",
            ", ".join(f"{env} {v:.3f}" for env, v in rates.items()), all(0 < v < 0.6 for v in rates.values()),
        )
    )  # fmt: skip
    early, late = _early_and_late(rows)
    claims.append(Claim("beyond: that share rises while training goes on", f"{early:.3f} to {late:.3f}", late > early))
    meant = {"below": "is below target", "within": "is about equal to target (the interval holds 0)"}
    for op, word in (("online", "below"), ("mean", "within"), ("random", "within")):
        other = relative_gain(table[op], table["target"], rng)
        within = other.low <= 0 <= other.high
        claims.append(
            Claim(
                f"beyond: {op} {meant[word]}",
                _told(other),
                other.high < 0 if word == "below" else within,
            )
        )  # fmt: skip
    for env, column in zip(RECIPES, range(len(RECIPES))):
        one = relative_gain(table["min"][:, [column]], table["target"][:, [column]], rng)
        claims.append(
            Claim(
                f"beyond: {env} alone: P(gain > 0) >= 0.9",
                f"{one.chance:.3f} (difference of normalised IQM {one.difference:+.3f})", one.chance >= 0.9,
            )
        )  # fmt: skip
    return claims


def _told(gain: Gain) -> str:
    return f"{gain.difference:+.3f}, 95 % {gain.low:+.3f} to {gain.high:+.3f}; relative {gain.relative:+.1%}"


def _early_and_late(rows: list[dict[str, Any]]) -> tuple[float, float]:
    early, late = [], []
    for env in RECIPES:
        own = [r for r in rows if r["operator"] == "min" and r["env"] == env and r["online_rate"] is not None]
        last = max(r["step"] for r in own)
        early.append(
            np.mean([r["online_rate"] for r in own if r["step"] <= max(last / 4, min(r["step"] for r in own))])
        )
        late.append(np.mean([r["online_rate"] for r in own if r["step"] > last * 3 / 4]))
    return float(np.mean(early)), float(np.mean(late))


def tabular_claims(tables: list[dict[str, Any]]) -> list[Claim]:
    """Random decision processes from above and from below, and the bias of a maximum of minima."""
    error = {name: float(np.mean([t[name] for t in tables])) for name in tables[0]}
    rng = np.random.default_rng(1)
    drawn, exact = simulated_bias(8, 2, rng, correlation=0.9), gaussian_bias(8, correlation=0.9)
    single = gaussian_bias(8, networks=1)
    below = {op: error[f"{op} from below"] for op in ("target", "min")}
    above = {op: error[f"{op} from above"] for op in ("target", "min", "max")}
    return [
        Claim(
            f"{len(tables)} random MDPs, tables that start above Q*: distance to Q* min < target < max",
            ", ".join(f"{op} {v:.2f}" for op, v in above.items()), above["min"] < above["target"] < above["max"],
        ),
        Claim(
            "the same from below Q*: min is no better (a warning, not a claim of the paper)",
            ", ".join(f"{op} {v:.2f}" for op, v in below.items()), below["min"] >= below["target"],
        ),
        Claim(
            "bias of a maximum over 8 actions, networks correlated by 0.9: smaller with the minimum, still positive",
            f"{exact:.3f} ({drawn:.3f} by drawing) against {single:.3f} of one network",
            0 < exact < single and abs(drawn - exact) < 0.02,
        ),
    ]  # fmt: skip


def report(rows: list[dict[str, Any]], claims: list[Claim], seconds: float, cpu: float) -> str:
    """The report in Markdown."""
    rng = np.random.default_rng(2)
    words = {True: "pass", False: "FAIL", None: "not tested"}
    lines = ["| criterion | found | |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {words[c.holds]} |" for c in claims]
    lines += [
        "",
        "| operator | IQM of AUC (95 %) | " + " | ".join(f"{e}: mean return" for e in RECIPES) + " | diverged |",
    ]
    lines.append("| --- " * (3 + len(RECIPES)) + "|")
    for op in OPERATORS:
        a = aggregate(scores(rows, op), rng)
        returns = " | ".join(f"{mean_of(rows, op, 'return', env):.1f}" for env in RECIPES)
        broken = len({(r["env"], r["seed"]) for r in rows if r["operator"] == op and r["diverged"] is not None})
        lines.append(f"| {op} | {a.iqm:.3f} ({a.low:.3f} to {a.high:.3f}) | {returns} | {broken} |")
    count = len({r["seed"] for r in rows})
    settings = {env: asdict(Recipe(env=env, **options)) for env, options in RECIPES.items()}
    lines += ["", f"{count} seeds; {seconds:.0f} s of wall, {cpu:.0f} s of CPU.", "", "```json",
              json.dumps(settings, indent=0), "```", ""]  # fmt: skip
    return "\n".join(lines)
