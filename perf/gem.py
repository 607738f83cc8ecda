"""GEM's execution beside gem-llm 0.1.0: vectors that wait, vectors that compute, steps of 2048.

python perf/gem.py             # makes the peer's environment at the first call (a package index is needed)
python perf/gem.py --no-peer   # assay alone

Each figure is of one run: wall time, the best of some stretches on either side, since what else runs on a machine only
slows; and CPU time of the process beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from assay.agents.gem.env import Env, Turn
from assay.agents.gem.processes import ProcessVectorEnv
from assay.agents.gem.registry import make
from assay.agents.gem.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

GAME = "game:Game2048-v0-easy"
MOVES = ("\\boxed{left}", "\\boxed{up}", "\\boxed{right}", "\\boxed{down}")
WAIT = 0.01
STRETCHES = 5
ROUNDS = 3
RESETS = "Sudoku hard resets, 64"


class Computing(Env):
    """A step that computes for some milliseconds, in Python, as a big puzzle does."""

    def act(self, action: str) -> Turn:
        return Turn(str(sum(i * i for i in range(50_000))))


class Waiting(Env):
    """A step that waits 10 ms, as a tool or a server makes it wait."""

    def act(self, action: str) -> Turn:
        time.sleep(WAIT)
        return Turn("")


def rate(step: Callable[[], int], seconds: float) -> dict[str, float]:
    """Environment steps a second of wall time in the best of the stretches, CPU milliseconds of this process a step."""
    step()
    best, total, spent = 0.0, 0, time.process_time()
    for _ in range(STRETCHES):
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds / STRETCHES:
            done += step()
        best, total = max(best, done / (time.perf_counter() - begun)), total + done
    return {"steps_s": best, "cpu_ms_step": 1000 * (time.process_time() - spent) / total}


def of_vector(vector: VectorEnv, actions: list[str], seconds: float) -> dict[str, float]:
    """The rate of a vector, all environments a call."""
    with vector:
        vector.reset(0)

        def step() -> int:
            vector.step(actions)
            return len(actions)

        return rate(step, seconds)


def single(seconds: float) -> dict[str, float]:
    """2048, one environment, moves in turn."""
    env = make(GAME)
    env.reset(0)
    turn = 0

    def step() -> int:
        nonlocal turn
        for _ in range(100):
            turn += 1
            result = env.step(MOVES[turn % 4])
            if result[2] or result[3]:
                env.reset()
        return 100

    return rate(step, seconds)


def measure(seconds: float) -> dict[str, dict[str, float]]:
    """assay's figures."""
    out: dict[str, dict[str, float]] = {"2048, one environment": single(seconds)}
    for width in (8, 64):
        names = ["waiting"] * width
        out[f"waiting, sync, {width}"] = of_vector(SyncVectorEnv(names, [Waiting] * width), [""] * width, seconds)
        out[f"waiting, threads, {width}"] = of_vector(AsyncVectorEnv(names, [Waiting] * width), [""] * width, seconds)
    width = 64
    ids, fns, moves = [GAME] * width, [partial(make, GAME)] * width, [MOVES[i % 4] for i in range(width)]
    out[f"2048, sync, {width}"] = of_vector(SyncVectorEnv(ids, fns), moves, seconds)
    out[f"2048, threads, {width}"] = of_vector(AsyncVectorEnv(ids, fns), moves, seconds)
    cores = os.cpu_count() or 1
    counts = sorted({1, 2, cores})
    for workers in counts:
        vector = ProcessVectorEnv(ids, fns, workers=workers)
        out[f"2048, processes, {width}, {workers} worker(s)"] = of_vector(vector, moves, seconds)
    names, makers, nothing = ["computing"] * 16, [Computing] * 16, [""] * 16
    out["computing, sync, 16"] = of_vector(SyncVectorEnv(names, makers), nothing, seconds)
    hard = "game:Sudoku-v0-hard"
    # No box: every step ends an episode, so that it is mostly the reset that computes.
    resets: tuple[Any, ...] = ([hard] * width, [partial(make, hard)] * width), ["none"] * width
    out[f"{RESETS}, sync"] = of_vector(SyncVectorEnv(*resets[0]), resets[1], seconds)
    for case, made, actions in (
        ("computing, processes, 16", (names, makers), nothing),
        (f"{RESETS}, processes", *resets),
    ):
        for _ in range(ROUNDS):  # the numbers of workers in turns, the best of each
            for workers in counts:
                found = of_vector(ProcessVectorEnv(*made, workers=workers), actions, seconds)
                name = f"{case}, {workers} worker(s)"
                out[name] = max(out.get(name, found), found, key=lambda figure: figure["steps_s"])
    return out


def peer(python: Path, seconds: float) -> dict[str, dict[str, float]]:
    """gem-llm's figures, from a process of its own."""
    script = Path(__file__).parent / "peers" / "gem_llm_vector.py"
    done = subprocess.run(
        [python, script, str(seconds), str(WAIT), str(STRETCHES)], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--peer-python", type=Path, help="an interpreter that has gem-llm 0.1.0")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each figure")
    args = parser.parse_args()
    theirs: dict[str, Any] = {}
    if not args.no_peer:
        if args.peer_python is None:
            from engine import peer_python

            args.peer_python = peer_python("gem-llm-tools")
        theirs = peer(args.peer_python, args.seconds)
    load = os.getloadavg()[0]
    ours = measure(args.seconds)
    print(f"load {load:.1f} on {os.cpu_count()} cores; steps a second of wall time (CPU ms a step in this process)")
    print("| case | gem-llm 0.1.0 | assay |")
    print("| --- | --- | --- |")
    for case, found in ours.items():
        other = theirs.get(case)
        shown = "–" if other is None else f"{other['steps_s']:,.0f} ({other['cpu_ms_step']:.3f})"
        print(f"| {case} | {shown} | {found['steps_s']:,.0f} ({found['cpu_ms_step']:.3f}) |")
    for width in (8, 64):
        limit = width / WAIT
        reached = ours[f"waiting, threads, {width}"]["steps_s"] / limit
        print(f"threads, {width} environments: {reached:.0%} of the limit, {limit:,.0f} steps a second")
    for case in ("computing, processes, 16", f"{RESETS}, processes"):
        one, two = (ours[f"{case}, {count} worker(s)"]["steps_s"] for count in (1, 2))
        print(f"{case}: 2 workers {two / one:.2f} times as fast as 1")


if __name__ == "__main__":
    main()
