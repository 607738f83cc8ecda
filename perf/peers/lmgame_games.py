"""The peers' side of perf/lmgame_games.py, run with their own interpreter: steps a CPU second, told as JSON."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable

warnings.filterwarnings("ignore")

import gymnasium  # noqa: E402
import gymnasium_2048  # noqa: E402, F401  # type: ignore[import-not-found]
import numpy as np  # noqa: E402
from tetris_gymnasium.envs.tetris import Tetris  # noqa: E402  # type: ignore[import-not-found]
from tile_match_gym.tile_match_env import TileMatchEnv  # noqa: E402  # type: ignore[import-not-found]

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
VECTOR = 64


def rate(step: Callable[[], int]) -> float:
    """Steps a CPU second of a function that returns how many steps it made; a warm-up comes first."""
    step()
    steps, begun = 0, time.process_time()
    while time.process_time() - begun < SECONDS:
        steps += step()
    return steps / (time.process_time() - begun)


def single(env: gymnasium.Env, actions: int) -> float:
    """Random actions in one environment, new episodes included."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)

    def step() -> int:
        for action in rng.integers(actions, size=200).tolist():
            if (result := env.step(action))[2] or result[3]:
                env.reset()
        return 200

    return rate(step)


def vector() -> float:
    """2048 through Gymnasium's vector interface."""
    env = gymnasium.make_vec("gymnasium_2048/TwentyFortyEight-v0", num_envs=VECTOR, vectorization_mode="sync")
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def step() -> int:
        for actions in rng.integers(4, size=(20, VECTOR)):
            env.step(actions)
        return 20 * VECTOR

    return rate(step)


def candy(effective: bool) -> tuple[float, float]:
    """(moves of the board, steps of the environment) a CPU second: swaps that make a run, or any swaps."""
    env = TileMatchEnv(8, 8, 4, 50, [], [], seed=0)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)

    def choose(info: dict) -> int:
        return int(rng.choice(info["effective_actions"])) if effective else int(rng.integers(env.num_actions))

    spent, moves, begun = 0.0, 0, time.process_time()
    # The board's own time apart: the environment looks for effective moves once more after each move.
    inner = env.board.move

    def timed(*swap):
        nonlocal spent
        start = time.process_time()
        result = inner(*swap)
        spent += time.process_time() - start
        return result

    env.board.move = timed
    while time.process_time() - begun < SECONDS:
        _, _, terminated, _, info = env.step(choose(info))
        moves += 1
        if terminated:
            _, info = env.reset()
    return moves / spent, moves / (time.process_time() - begun)


def main() -> None:
    """Measure, and print one line of JSON."""
    found = {
        "2048 step": single(gymnasium.make("gymnasium_2048/TwentyFortyEight-v0").unwrapped, 4),
        "2048 vector step": vector(),
        "tetris step": single(Tetris(), 8),
    }
    found["candy move"], found["candy step"] = candy(True)
    found["candy any move"], found["candy any step"] = candy(False)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
