"""The peer's side of perf/gem.py, run with gem-llm's own interpreter: rates of its vectors, as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gem
from gem.core import Env  # type: ignore[import-not-found]
from gem.vector.async_vector_env import AsyncVectorEnv  # type: ignore[import-not-found]
from gem.vector.sync_vector_env import SyncVectorEnv  # type: ignore[import-not-found]

GAME = "game:Game2048-v0-easy"
MOVES = ("\\boxed{left}", "\\boxed{up}", "\\boxed{right}", "\\boxed{down}")
SECONDS, WAIT, STRETCHES = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])


class Waiting(Env):
    """A step that waits."""

    def reset(self, seed: Any = None) -> Any:
        return "", {}

    def step(self, action: str) -> Any:
        time.sleep(WAIT)
        return "", 0.0, False, False, {}


def rate(step: Any) -> dict[str, float]:
    """As in perf/gem.py."""
    step()
    best, total, spent = 0.0, 0, time.process_time()
    for _ in range(STRETCHES):
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < SECONDS / STRETCHES:
            done += step()
        best, total = max(best, done / (time.perf_counter() - begun)), total + done
    return {"steps_s": best, "cpu_ms_step": 1000 * (time.process_time() - spent) / total}


def of_vector(kind: Any, ids: list[str], fns: list[Any], actions: list[str]) -> dict[str, float]:
    """The rate of a vector."""
    vector = kind(ids, fns)
    vector.reset(seed=0)

    def step() -> int:
        vector.step(actions)
        return len(actions)

    return rate(step)


def single() -> dict[str, float]:
    """2048, one environment."""
    env = gem.make(GAME)
    env.reset(seed=0)
    turn = 0

    def step() -> int:
        nonlocal turn
        for _ in range(100):
            turn += 1
            result = env.step(MOVES[turn % 4])
            if result[2] or result[3]:
                env.reset()
        return 100

    return rate(step)


def main() -> None:
    """All figures, one JSON line."""
    out = {"2048, one environment": single()}
    for width in (8, 64):
        names, fns = ["waiting"] * width, [Waiting] * width
        out[f"waiting, sync, {width}"] = of_vector(SyncVectorEnv, names, fns, [""] * width)
        out[f"waiting, threads, {width}"] = of_vector(AsyncVectorEnv, names, fns, [""] * width)
    width = 64
    fns = [lambda: gem.make(GAME)] * width
    moves = [MOVES[i % 4] for i in range(width)]
    out[f"2048, sync, {width}"] = of_vector(SyncVectorEnv, [GAME] * width, fns, moves)
    out[f"2048, threads, {width}"] = of_vector(AsyncVectorEnv, [GAME] * width, fns, moves)
    print(json.dumps(out))


main()
