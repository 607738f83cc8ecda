"""Makers: learning curves with a figure, the bias of maxima of minima, scales, and recorded behaviour."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from assay.core.errors import UsageError
from assay.core.table import Chart, Table
from assay.training.minto.batched import BatchedDQN, train_batched
from assay.training.minto.data import Transitions
from assay.training.minto.envs import ENVS
from assay.training.minto.settings import Recipe, Variant
from assay.training.minto.tabular import gaussian_bias


def curves(
    out: Path, *, env: str = "Acrobot-v1", operators: str = "min,target,mean,online,max", seeds: int = 16,
    steps: int = 8000, copy_every: int = 200,
) -> None:  # fmt: skip
    """Train operators side by side and draw their learning curves: ``curves.svg``, ``curves.json``."""
    from assay.report.figures import to_svg, vega_lite

    torch.set_num_threads(1)
    names = [part.strip() for part in operators.split(",") if part.strip()]
    if not names or seeds < 1:
        raise UsageError("Needs at least one operator and one seed.")
    recipe = Recipe(env=env, steps=steps, copy_every=copy_every, eps_steps=steps // 4, eval_episodes=0)
    found = train_batched(recipe, [Variant(op) for op in names for _ in range(seeds)], list(range(seeds)) * len(names))
    rows = [{"operator": c.variant.op, "env": env, "seed": c.seed, **row} for c in found for row in c.rows]
    (out / "curves.json").write_text(json.dumps(rows), encoding="utf-8")
    shown = pl.DataFrame(rows, infer_schema_length=None).group_by("operator", "step").agg(pl.col("return").mean())
    made = Table(
        "curves", f"{env}: mean return of {seeds} seeds", shown.sort("operator", "step"),
        chart=Chart("line", x="step", y="return", color="operator", x_title="steps"),
    )  # fmt: skip
    (out / "curves.svg").write_text(to_svg(vega_lite(made)), encoding="utf-8")


def bias(out: Path, *, actions: str = "2,4,8,18") -> None:
    """Bias of the bootstrap by correlation of both networks, in closed form: ``bias.svg``, ``bias.json``."""
    from assay.report.figures import to_svg, vega_lite

    try:
        counts = [int(part) for part in actions.split(",")]
    except ValueError:
        raise UsageError(f"Option actions={actions!r} must be whole numbers separated by commas.") from None
    rows = [
        {"actions": str(n), "correlation": rho, "bias": gaussian_bias(n, correlation=rho)}
        for n in counts
        for rho in np.linspace(0, 1, 21).round(2).tolist()
    ]
    (out / "bias.json").write_text(json.dumps(rows), encoding="utf-8")
    made = Table(
        "bias", "Bias of max over actions of min over two networks, true values 0", pl.DataFrame(rows),
        chart=Chart("line", x="correlation", y="bias", color="actions", y_title="bias"),
    )  # fmt: skip
    (out / "bias.svg").write_text(to_svg(vega_lite(made)), encoding="utf-8")


def scales(out: Path, *, episodes: int = 200, limit: int = 1000) -> None:
    """Mean return of a uniformly random policy in every environment that is installed: ``scales.json``."""
    found: dict[str, Any] = {}
    for name, spec in ENVS.items():
        env = spec.make([[0, i] for i in range(episodes if spec.quick else min(episodes, 20))])
        env.reset()
        rng, total, alive = np.random.default_rng(1), np.zeros(env.count), np.ones(env.count, bool)
        for _ in range(limit):
            after = env.step(rng.integers(env.actions, size=env.count))
            total += after.reward * alive
            alive &= ~(after.terminated | after.truncated)
            if not alive.any():
                break
        error = float(total.std(ddof=1) / np.sqrt(env.count))
        found[name] = {"random": float(total.mean()), "standard_error": error, "low": spec.low, "high": spec.high}
    (out / "scales.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


@lru_cache(maxsize=4)
def behaviour(recipe: Recipe, *, share: float = 0.2, seed: int = 12345) -> Transitions:
    """A share of what a DQN played on the first half of a recipe, the same for every run."""
    half = replace(
        recipe, steps=max(recipe.learning_starts + 1, recipe.steps // 2), eval_episodes=0, device="cpu",
        reward_noise=0.0, double_precision=False,
    )  # fmt: skip
    trainer = BatchedDQN(half, [Variant("target")], [seed])
    trainer.advance(half.steps)
    return trainer.recorded(0).kept(share, np.random.default_rng(seed))


def record_behaviour(
    out: Path, *, env: str = "CartPole-v1", steps: int = 6000, share: float = 0.2, seed: int = 12345
) -> None:
    """Train a DQN half the way and keep a share of its transitions: ``transitions.npz``, ``about.json``."""
    made = behaviour(Recipe(env=env, steps=steps), share=share, seed=seed)
    made.save(out / "transitions.npz")
    about = {
        "env": env, "transitions": len(made), "share": share, "terminated": int(made.terminated.sum()),
        "truncated": int(made.truncated.sum()), "mean_reward": float(made.reward.mean()),
    }  # fmt: skip
    (out / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
