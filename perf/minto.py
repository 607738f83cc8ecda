"""DQN for many seeds at once beside stable-baselines3's, what MINTO adds to a step, and whether both learn alike.

    python perf/minto.py [--readme] [--seeds N]

Steps are environment steps on CartPole-v1 with an update each (batch 32, two layers of 64), environment included. CPU
seconds of one thread, in turns, the best of several; two processes on two cores give twice of everything here. The CNN
is Nature's on four frames of 84 x 84, updates alone. Learning curves: training returns of 4,000 steps under one recipe.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import readme  # noqa: E402
import stable_baselines3  # noqa: E402
import torch  # noqa: E402

import assay.training.minto as room  # noqa: E402
from assay.training.minto.batched import BatchedDQN, train_batched  # noqa: E402
from assay.training.minto.settings import Recipe, Variant  # noqa: E402

README = Path(room.__file__).with_name("README.md")
SPEED_AIM, MLP_AIM, CNN_AIM = 10.0, 1.25, 1.10
SEEDS = (1, 16, 64)
LEARNED = Recipe(
    steps=4000, batch_size=32, loss="huber", eval_every=4000, eval_episodes=0, eps_steps=1000, copy_every=200
)


def alone(cls: Any, seed: int, **more: Any) -> Any:
    """stable-baselines3 on the recipe."""
    return cls(
        "MlpPolicy", "CartPole-v1", learning_rate=LEARNED.lr, batch_size=32, train_freq=1, learning_starts=100,
        buffer_size=4000, target_update_interval=200, exploration_fraction=0.25, exploration_final_eps=0.05,
        device="cpu", seed=seed, **more,
    )  # fmt: skip


def quickest(steps: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """Least CPU seconds of each, called in turns."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(turns):
        for name, call in steps.items():
            begun = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - begun)
    return best


def speeds(turns: int = 3, steps: int = 150) -> dict[str, float]:
    """CPU milliseconds a step of each contestant."""
    calls: dict[str, Callable[[], None]] = {}
    for name, cls, more in (("sb3 target", stable_baselines3.DQN, {}), ("sb3 min", room.MintoDQN, {})):
        model = alone(cls, 0, **more)
        model.learn(300)
        calls[name] = lambda model=model: model.learn(steps, reset_num_timesteps=False)
    for count in SEEDS:
        for op in ("target", "min"):
            trainer = BatchedDQN(Recipe(**{**_options(), "steps": 10**6}), [Variant(op)] * count, list(range(count)))
            trainer.advance(300)
            calls[f"{count} {op}"] = lambda trainer=trainer: trainer.advance(steps)
    return {name: seconds / steps * 1e3 for name, seconds in quickest(calls, turns).items()}


def _options() -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(LEARNED), "buffer": 4000, "eval_every": 10**6}


class Frames(gymnasium.Env):
    """Four frames of noise: only the networks count."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """A frame."""
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Another."""
        return self.observation_space.sample(), 1.0, False, False, {}


def pictures(turns: int = 3, updates: int = 3) -> dict[str, float]:
    """CPU milliseconds of an update of a CNN."""
    calls: dict[str, Callable[[], None]] = {}
    for name, cls in (("target", stable_baselines3.DQN), ("min", room.MintoDQN)):
        model = cls("CnnPolicy", Frames(), buffer_size=200, learning_starts=50, batch_size=32, device="cpu", seed=0)
        model.learn(60)
        calls[name] = lambda model=model: model.train(updates, 32)
    return {name: seconds / updates * 1e3 for name, seconds in quickest(calls, turns).items()}


def learning(seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean return of the training episodes: stable-baselines3's seeds, and twice as many of the trainer's."""
    theirs = []
    for seed in range(seeds):
        model = alone(stable_baselines3.DQN, seed)
        returns: list[float] = []
        model.learn(LEARNED.steps, callback=lambda local, _, to=returns: to.extend(
            info["episode"]["r"] for info in local["infos"] if "episode" in info
        ) or True)  # fmt: skip
        theirs.append(np.mean(returns))
    curves = train_batched(LEARNED, Variant("target"), list(range(2 * seeds)))
    return np.array(theirs), np.array([np.mean([value for _, value in c.episodes]) for c in curves])


def main() -> int:
    """Print a table; exit code 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--readme", action="store_true", help="write the table into the room's README")
    parser.add_argument("--seeds", type=int, default=8, help="of stable-baselines3, for the learning curves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found, frames = speeds(), pictures()
    theirs, ours = learning(options.seeds)
    rate = {name: 1e3 / found[name] for name in ("sb3 target", "sb3 min")}
    lines = ["| DQN on CartPole | CPU ms a step | seeds x steps a CPU second | over stable-baselines3 |",
             "| --- | --- | --- | --- |"]  # fmt: skip
    for name, label in (("sb3 target", "stable-baselines3 DQN"), ("sb3 min", "MintoDQN")):
        lines.append(
            f"| {label}, 1 seed | {found[name]:.2f} | {rate[name]:,.0f} | {rate[name] / rate['sb3 target']:.2f} |"
        )
    for count in SEEDS:
        for op in ("target", "min"):
            ms = found[f"{count} {op}"]
            each = count * 1e3 / ms
            lines.append(
                f"| many-seed trainer, {op}, {count} seed{'s' if count > 1 else ''} | {ms:.2f} | {each:,.0f} | "
                f"{each / rate['sb3 target']:.1f} |"
            )
    words = {True: "met", False: "**missed**"}
    speed = 16 * 1e3 / found["16 min"] / rate["sb3 target"]
    extra = {f"{n} seeds": found[f"{n} min"] / found[f"{n} target"] for n in SEEDS[1:]}
    extra["MintoDQN"] = found["sb3 min"] / found["sb3 target"]
    cnn = frames["min"] / frames["target"]
    gap = ours.mean() - theirs.mean()
    half = 1.96 * float(np.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs)))
    lines += [
        "", f"- 16 seeds with MINTO over stable-baselines3's DQN: {speed:.1f} times the seeds x steps a second "
        f"(aim {SPEED_AIM:g}): {words[speed >= SPEED_AIM]}",
    ]  # fmt: skip
    for name, value in extra.items():
        lines.append(
            f"- MINTO's step over the base's, {name}: {value:.2f} (aim {MLP_AIM:g}): {words[value <= MLP_AIM]}"
        )
    lines += [
        f"- MINTO's update over the base's, Nature CNN: {cnn:.2f} ({frames['min']:.0f} over "
        f"{frames['target']:.0f} CPU ms; aim {CNN_AIM:g}): {words[cnn <= CNN_AIM]}",
        f"- mean training return over {LEARNED.steps} steps: {ours.mean():.1f} ({len(ours)} seeds) against "
        f"stable-baselines3's {theirs.mean():.1f} ({len(theirs)} seeds): difference {gap:+.1f} +- {half:.1f} (interval "
        f"should hold 0): {words[abs(gap) <= half]}",
        "", f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; stable-baselines3 "
        f"{stable_baselines3.__version__}, torch {torch.__version__}.",
    ]  # fmt: skip
    text = "\n".join(lines) + "\n"
    print(text)
    if options.readme:
        readme.put(README, text)
    checks = [speed >= SPEED_AIM, cnn <= CNN_AIM, abs(gap) <= half, *(v <= MLP_AIM for v in extra.values())]
    return 0 if all(checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
