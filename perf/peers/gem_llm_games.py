"""The peer's side of perf/gem_games.py, run with gem-llm's own interpreter: states out, replays, reset times."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gem


def plain(value: Any) -> Any:
    """Arrays, sets and numpy numbers as JSON values; what cannot be written is left out."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def replay(job: dict[str, Any]) -> dict[str, Any]:
    """Reset with a seed, take the actions: the first state, and (reward, terminated, truncated) of every step."""
    env = gem.make(job["env"])
    env.reset(seed=job["seed"])
    state = {name: plain(value) for name, value in vars(env).items() if name not in job["skip"]}
    steps = []
    for action in job["actions"]:
        _, reward, terminated, truncated, _ = env.step(action)
        steps.append([float(reward), bool(terminated), bool(truncated)])
        if terminated or truncated:
            break
    return {"state": state, "after": {name: plain(vars(env).get(name)) for name in job["after"]}, "steps": steps}


def resets(job: dict[str, Any]) -> dict[str, Any]:
    """CPU seconds of a reset, mean over the seeds."""
    env = gem.make(job["env"])
    env.reset(seed=0)
    begun = time.process_time()
    for seed in job["seeds"]:
        env.reset(seed=seed)
    return {"seconds": (time.process_time() - begun) / len(job["seeds"])}


for line in sys.stdin:
    job = json.loads(line)
    print("ANSWER " + json.dumps((replay if job["do"] == "replay" else resets)(job)), flush=True)
