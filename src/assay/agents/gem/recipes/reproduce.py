"""The findings about algorithms at small scale, with pass or fail for each: ``assay make gem-training reproduce``.

Policies of one hidden layer choose among a list of replies; the published runs train large models. What
carries over is the algorithms, turn by turn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.claims import Claim, save_claims
from assay.core.map import resumable_map

GUESS = "game:GuessTheNumber-v0-easy"
HANOI = "game:TowerofHanoi-v0-easy"
DENSE = "game:Game2048-v0-easy"
SINGLE = "rg:syllogism"
FEW = "rg:syllogism?size=64"
CELLS: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    (GUESS, "reinforce", {"gamma": 0.9}),
    (GUESS, "rebn", {"gamma": 0.9}),
    (GUESS, "rebn", {"gamma": 1.0}),
    (HANOI, "reinforce", {"gamma": 0.9}),
    (HANOI, "rebn", {"gamma": 0.9}),
    (DENSE, "reinforce", {"gamma": 0.9}),
    (DENSE, "rebn", {"gamma": 0.9}),
    (DENSE, "grpo", {}),
    (SINGLE, "rebn", {"gamma": 1.0}),
    (SINGLE, "grpo", {}),
    (FEW, "rebn", {"gamma": 1.0}),
    (FEW, "grpo", {}),
)
"""Environment, algorithm, settings. All other settings are the algorithms' own, the same everywhere."""
LEVEL = 0.05


def reproduce(out: Path, *, seeds: int = 10, turns: int = 12_000, workers: int = 2) -> None:
    """Train every cell with every seed, measure waiting environments, judge; writes ``report.md``, ``claims.json``,
    ``cells.csv``.

    Parameters
    ----------
    seeds
        A cell, at least 2.
    turns
        That each policy learns from.
    workers
        Processes. What an earlier call finished in ``out`` is not done again.
    """
    import polars as pl

    from assay.core.errors import UsageError

    if seeds < 2:
        raise UsageError(f"seeds={seeds}: a test over seeds needs at least 2.")
    begun = time.monotonic()
    jobs = [
        {"env": env, "algorithm": algorithm, "settings": dict(settings), "seed": seed, "turns": turns}
        for env, algorithm, settings in CELLS
        for seed in range(seeds)
    ]
    found = list(resumable_map(trained, jobs, key=_key, out=out, workers=workers))
    sync, threads = waiting()
    claims = judge(found, sync, threads)
    frame = pl.DataFrame(found, infer_schema_length=None)
    frame.write_csv(out / "cells.csv")
    save_claims(out, claims)
    seconds, cpu = time.monotonic() - begun, sum(row["cpu_seconds"] for row in found)
    lines = [
        "# Reinforcement learning over turns, small scale", "",
        f"{seeds} seeds, {turns:,} turns each, {seconds:.0f} s in this call, {cpu:.0f} CPU seconds of training.", "",
        "| claim | found | holds |", "| --- | --- | --- |",
        *(f"| {c.claim} | {c.found} | {'yes' if c.holds else '**no**'} |" for c in claims), "",
        "| environment | algorithm | return | solved | turns of a solved episode |", "| --- | --- | --- | --- | --- |",
        *_cells(found), "",
    ]  # fmt: skip
    (out / "report.md").write_text("\n".join(lines), encoding="utf-8")


def trained(job: Mapping[str, Any]) -> dict[str, Any]:
    """One policy, trained: its last evaluation."""
    from assay.agents.gem.trainers.loop import single_thread, train
    from assay.agents.gem.trainers.worlds import new_policy, world
    from assay.agents.gem.training import algorithm

    begun = time.process_time()
    with single_thread():
        done = train(
            algorithm(job["algorithm"], **job["settings"]),
            new_policy("action", job["env"], job["seed"]),
            partial(world, job["env"]),
            turns=job["turns"],
            seed=job["seed"],
            evaluations=1,
            eval_episodes=1,
            final_episodes=256,
        )
    last = {name: None if math.isnan(value) else value for name, value in done.final.items()}
    return {
        "env": job["env"], "algorithm": job["algorithm"], "gamma": job["settings"].get("gamma"), "seed": job["seed"],
        **last, "cpu_seconds": time.process_time() - begun,
    }  # fmt: skip


def waiting(width: int = 32, steps: int = 5, seconds: float = 0.01) -> tuple[float, float]:
    """Environment steps a second where each step waits: one after another, and in threads."""
    from assay.agents.gem.env import Env, Turn
    from assay.agents.gem.vector import AsyncVectorEnv, SyncVectorEnv

    class Waiting(Env):
        def act(self, action: str) -> Turn:
            time.sleep(seconds)
            return Turn("")

    found = []
    for kind in (SyncVectorEnv, AsyncVectorEnv):
        with kind(["waiting"] * width, [Waiting] * width) as vector:
            vector.reset(0)
            begun = time.perf_counter()
            for _ in range(steps):
                vector.step([""] * width)
            found.append(width * steps / (time.perf_counter() - begun))
    return found[0], found[1]


def judge(found: Sequence[Mapping[str, Any]], sync: float, threads: float) -> list[Claim]:
    """The claims, (c1) with two numbers of questions."""
    claims = []
    better, worse = [], []
    said = []
    for env in (GUESS, HANOI, DENSE):
        a, b = _scores(found, env, "rebn", 0.9), _scores(found, env, "reinforce", 0.9)
        p = paired_p(a, b)
        better.append(p < LEVEL)
        worse.append(paired_p(b, a) < LEVEL)
        said.append(f"{_short(env)}: {np.mean(a):.3f} against {np.mean(b):.3f}, p = {p:.3g}")
    claims.append(
        Claim(
            "(a) ReBN above plain REINFORCE in at least one multi-turn game, worse in none",
            "; ".join(said), any(better) and not any(worse),
        )
    )  # fmt: skip
    near, far = (_scores(found, GUESS, "rebn", g, "turns_when_solved") for g in (0.9, 1.0))
    p = paired_p(far, near)
    claims.append(
        Claim(
            "(b) gamma 0.9 needs fewer turns a solved episode than gamma 1.0",
            f"{_short(GUESS)}: {np.mean(near):.2f} against {np.mean(far):.2f} turns, p = {p:.3g}", bool(p < LEVEL),
        )
    )  # fmt: skip
    for env, questions in ((SINGLE, "500 questions, as registered"), (FEW, "64 questions")):
        a, b = _scores(found, env, "grpo"), _scores(found, env, "rebn", 1.0)
        apart = min(paired_p(a, b), paired_p(b, a)) * 2
        claims.append(
            Claim(
                f"(c1) GRPO like ReBN where there is one turn; {questions}",
                f"{_short(env)}: {np.mean(a):.3f} against {np.mean(b):.3f}, two-sided p = {min(apart, 1.0):.3g}",
                bool(apart >= LEVEL),
            )
        )
    a, b = _scores(found, DENSE, "grpo"), _scores(found, DENSE, "rebn", 0.9)
    p = paired_p(b, a)
    claims.append(
        Claim(
            "(c2) GRPO behind ReBN where every turn is rewarded",
            f"{_short(DENSE)}: {np.mean(a):.3f} against {np.mean(b):.3f}, p = {p:.3g}", bool(p < LEVEL),
        )
    )  # fmt: skip
    claims.append(
        Claim(
            "(d) threads at least 5 times as fast where steps wait (32 environments, 10 ms)",
            f"{threads:,.0f} against {sync:,.0f} steps a second: {threads / sync:.1f} times", threads >= 5 * sync,
        )
    )  # fmt: skip
    return claims


def paired_p(larger: np.ndarray, smaller: np.ndarray) -> float:
    """p of the one-sided paired t test that ``larger`` is larger; 1 where all pairs are equal."""
    from scipy.stats import ttest_rel

    keep = np.isfinite(larger) & np.isfinite(smaller)
    larger, smaller = larger[keep], smaller[keep]
    if len(larger) < 2 or np.ptp(larger - smaller) == 0:
        return 0.0 if len(larger) and (larger - smaller)[0] > 0 else 1.0
    result: Any = ttest_rel(larger, smaller, alternative="greater")
    return float(result.pvalue)


def _scores(
    found: Sequence[Mapping[str, Any]], env: str, algorithm: str, gamma: float | None = None, score: str = "return"
) -> np.ndarray:
    rows = [row for row in found if (row["env"], row["algorithm"], row["gamma"]) == (env, algorithm, gamma)]
    return np.array([math.nan if row[score] is None else row[score] for row in sorted(rows, key=lambda r: r["seed"])])


def _key(job: Mapping[str, Any]) -> str:
    settings = ",".join(f"{name}={value}" for name, value in job["settings"].items())
    return f"{job['env']}/{job['algorithm']}({settings})/{job['turns']}/{job['seed']}"


def _short(env: str) -> str:
    return env.partition(":")[2].partition("?")[0]


def _cells(found: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for env, algorithm, settings in CELLS:
        gamma = settings.get("gamma")
        shown = []
        for score in ("return", "solved", "turns_when_solved"):
            values = _scores(found, env, algorithm, gamma, score)
            values = values[np.isfinite(values)]
            shown.append(f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" if len(values) > 1 else "–")
        name = algorithm if gamma is None else f"{algorithm}, gamma {gamma}"
        lines.append(f"| {env} | {name} | {' | '.join(shown)} |")
    return lines
