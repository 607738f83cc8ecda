"""What the harness costs beside the model: CPU a step, and episodes played at once against one after the other.

python perf/lmgame.py                # CPU seconds; run it on a quiet machine for the wall seconds

The published loop plays the episodes of a game one after the other; a model's latency is then the run's.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from assay.agents.lmgame.episode import Setup, play_model
from assay.agents.lmgame.harness import Agent
from assay.agents.lmgame.prompts import prompts_for
from assay.systems.scripted import ScriptedChatModel

ACTIONS = {"sokoban": "up", "twenty_forty_eight": "left", "candy_crush": "((0,0),(0,1))", "tetris": "(hard_drop,1)"}


def agent(game: str, harness: bool, latency: float) -> Agent:
    """A player that always answers the same after ``latency`` seconds."""

    async def answer(messages: object, rng: object) -> str:
        await asyncio.sleep(latency)
        return f"thought: t\nmove: {ACTIONS[game]}"

    return Agent(ScriptedChatModel(answer), harness, prompts_for(game))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--latency", type=float, default=0.05)
    chosen = parser.parse_args()
    print("CPU milliseconds a step")
    for game in ACTIONS:
        for harness in (False, True):
            steps, start = 0, time.process_time()
            for seed in range(chosen.episodes):
                setup = Setup(game, "text", chosen.steps, seed=seed)
                steps += asyncio.run(play_model(setup, agent(game, harness, 0.0))).steps
            spent = 1000 * (time.process_time() - start) / steps
            print(f"  {game:20} harness {harness!s:5} {spent:6.2f}  ({steps} steps)")

    def episode(seed: int) -> object:
        setup = Setup("candy_crush", "text", chosen.steps, seed=seed)
        return play_model(setup, agent("candy_crush", False, chosen.latency))

    async def together() -> None:
        await asyncio.gather(*(episode(seed) for seed in range(chosen.episodes)))  # type: ignore[arg-type]

    async def in_turn() -> None:
        for seed in range(chosen.episodes):
            await episode(seed)  # type: ignore[misc]

    print(f"wall seconds of {chosen.episodes} episodes of {chosen.steps} steps, {1000 * chosen.latency:.0f} ms a reply")
    for name, work in (("one after the other", in_turn), ("all at once", together)):
        start = time.perf_counter()
        asyncio.run(work())
        print(f"  {name:20} {time.perf_counter() - start:6.2f}")


if __name__ == "__main__":
    main()
