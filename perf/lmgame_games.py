"""2048, Tetris and Candy Crush beside gymnasium-2048, tetris-gymnasium and tile-match-gym, in one run.

python perf/lmgame_games.py              # the peers' environment is made at the first call
python perf/lmgame_games.py --no-peers   # assay alone
python perf/lmgame_games.py --players 5  # what every player scores, instead of speeds

Steps a second of CPU, one thread; a random player on both sides, new episodes included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from assay.agents.lmgame.env import GameEnv, make, own_games
from assay.agents.lmgame.games.candy_crush import CandyCrush
from assay.agents.lmgame.games.compiled import Batch2048, BatchTetris
from assay.agents.lmgame.games.compiled_candy import BatchCandy
from assay.agents.lmgame.games.console import ACTIONS
from assay.agents.lmgame.games.platformer import World
from assay.agents.lmgame.games.platformer_level import own_level
from assay.agents.lmgame.gym import register
from assay.agents.lmgame.solvers.players import make_player, play, players

HERE = Path(__file__).resolve().parent / "peers"
VECTOR, BATCH = 64, 4096
# What is promised: (our line, the peers' line, at least so many times as fast).
TARGETS = (
    ("2048, batch", "2048 step", 100.0),
    ("2048, Gymnasium vector interface", "2048 vector step", 20.0),
    ("Tetris, batch", "tetris step", 30.0),
    ("Candy Crush, batch, moves that make a run", "candy step", 50.0),
    ("Candy Crush, environment, moves that make a run", "candy step", 50.0),
    ("Candy Crush, environment, any swap", "candy any step", 50.0),
    ("Candy Crush, batch without looking for moves, moves that make a run", "candy move", 50.0),
    ("Candy Crush, engine, moves that make a run", "candy move", 50.0),
)


def peer_python() -> Path:
    """Interpreter of the peers' environment, made from ``perf/peers/lmgame-games.txt``."""
    cache = Path(os.environ.get("ASSAY_CACHE", Path.home() / ".cache" / "assay"))
    folder, pins = cache / "peers" / "lmgame-games", HERE / "lmgame-games.txt"
    python, mark = folder / "bin" / "python", folder / "pins.txt"
    if not mark.is_file() or mark.read_text() != pins.read_text():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", pins], check=True)
        mark.write_text(pins.read_text())
    return python


def rate(step: Callable[[], int], seconds: float) -> float:
    """Steps a CPU second of a function that returns how many steps it made; a warm-up comes first."""
    step()
    steps, begun = 0, time.process_time()
    while time.process_time() - begun < seconds:
        steps += step()
    return steps / (time.process_time() - begun)


def candy_engine(seconds: float, effective: bool) -> float:
    """Moves a CPU second of the single engine; choosing them is not counted, as it is not with the peer's board."""
    rng, engine = np.random.default_rng(0), CandyCrush()
    spent, moves = 0.0, 0
    while spent < seconds:
        engine.reset(rng)
        for share in rng.random(50).tolist():
            choice = engine.effective_actions() if effective else range(112)
            action = choice[int(share * len(choice))]
            begun = time.process_time()
            engine.play(action)
            spent += time.process_time() - begun
        moves += 50
    return moves / spent


def candy_batch(seconds: float, effective: bool) -> float:
    """Moves a CPU second of the compiled batch; choosing them is not counted."""
    rng, candies = np.random.default_rng(0), BatchCandy(BATCH // 8)
    candies.reset([np.random.default_rng(i) for i in range(BATCH // 8)])
    spent, moves = 0.0, 0
    candies.step(np.zeros(BATCH // 8, np.int64))
    while spent < seconds:
        found = candies.effective() if effective else np.ones((BATCH // 8, candies.actions))
        actions = (found * rng.random(found.shape)).argmax(axis=1)
        begun = time.process_time()
        candies.step(actions)
        candies.restart(candies.over)
        spent += time.process_time() - begun
        moves += len(actions)
    return moves / spent


def measured(seconds: float) -> Iterator[tuple[str, float]]:
    """(what, steps a CPU second) of assay's games, each measured for so many seconds."""
    import gymnasium

    rng = np.random.default_rng(0)
    batch = Batch2048(BATCH)
    batch.reset([np.random.default_rng(i) for i in range(BATCH)])

    def step_2048() -> int:
        batch.step(rng.integers(4, size=BATCH))
        batch.restart(batch.over)
        return BATCH

    yield "2048, batch", rate(step_2048, seconds)
    tetris = BatchTetris(BATCH)
    tetris.reset([np.random.default_rng(i) for i in range(BATCH)])

    def step_tetris() -> int:
        tetris.step(rng.integers(7, size=BATCH))
        tetris.restart(tetris.over)
        return BATCH

    yield "Tetris, batch", rate(step_tetris, seconds)
    register()
    for name, title, actions in (("TwentyFortyEight", "2048", 4), ("Tetris", "Tetris", 7)):
        vector = gymnasium.make_vec(f"LMGame/{name}-v0", num_envs=VECTOR)
        vector.reset(seed=0)

        def step_vector(vector: gymnasium.vector.VectorEnv = vector, actions: int = actions) -> int:
            for chosen in rng.integers(actions, size=(20, VECTOR)):
                vector.step(chosen)
            return 20 * VECTOR

        yield f"{title}, Gymnasium vector interface", rate(step_vector, seconds)
    for effective in (True, False):
        kind = "moves that make a run" if effective else "any swap"
        candies = BatchCandy(BATCH // 8)
        candies.reset([np.random.default_rng(i) for i in range(BATCH // 8)])

        def step_candy(candies: BatchCandy = candies, effective: bool = effective) -> int:
            # Looking for the moves that make a run is part of the step, as it is in the peer's.
            found = candies.effective()
            if effective:
                actions = (found * rng.random(found.shape)).argmax(axis=1)
            else:
                actions = rng.integers(candies.actions, size=len(found))
            candies.step(actions)
            candies.restart(candies.over)
            return len(found)

        yield f"Candy Crush, batch, {kind}", rate(step_candy, seconds)
        yield f"Candy Crush, engine, {kind}", candy_engine(seconds, effective)
        yield f"Candy Crush, batch without looking for moves, {kind}", candy_batch(seconds, effective)
        env = make("candy_crush")

        def step_env(env: GameEnv = env, effective: bool = effective) -> int:
            _, info = env.reset(0 if env.seed is None else None)
            for share in rng.random(50).tolist():
                choice = info["effective_actions"] if effective else range(112)
                info = env.step(str(choice[int(share * len(choice))]))[4]
            return 50

        yield f"Candy Crush, environment, {kind}", rate(step_env, seconds)
    for name in ("twenty_forty_eight", "tetris", "sokoban"):
        env = make(name, max_steps=10_000)
        env.reset(0)

        def step_single(env: GameEnv = env) -> int:
            for _ in range(100):
                if (result := env.step(env.sample_random_action()))[2] or result[3]:
                    env.reset()
            return 100

        yield f"{name}, one environment with its text", rate(step_single, seconds)
    world, names = World(own_level()), list(ACTIONS)

    def step_world() -> int:
        nonlocal world
        for number in range(600):
            world.frame(ACTIONS[names[number // 20 % len(names)]])
        world = World(world.level)
        return 600

    yield "platformer, frames without picture", rate(step_world, seconds)


def baseline() -> str:
    """The random player of the four puzzle games, 30 episodes each: reported scores and CPU seconds."""
    lines = []
    for name in ("sokoban", "tetris", "twenty_forty_eight", "candy_crush"):
        begun = time.process_time()
        scores = [play(make(name), make_player(name, "random", seed), seed=seed).reported for seed in range(30)]
        spent = time.process_time() - begun
        lines.append(f"  {name:20} {np.mean(scores):7.1f} +- {np.std(scores, ddof=1):5.1f}   {spent:.2f} s of CPU")
    return "\n".join(lines)


def everybody(episodes: int) -> str:
    """Every player of every game: reported scores over seeds 0 .. episodes - 1, CPU seconds an episode."""
    lines = []
    for game in own_games():
        for name in players(game):
            begun = time.process_time()
            env = make(game, observation_mode="text")
            scores = [play(env, make_player(game, name, seed), seed=seed).reported for seed in range(episodes)]
            spent = (time.process_time() - begun) / episodes
            deviation = np.std(scores, ddof=1)
            lines.append(f"  {game:20} {name:12} {np.mean(scores):9.1f} +- {deviation:7.1f}   {spent:6.2f} s of CPU")
    return "\n".join(lines)


def main() -> int:
    """Print the tables; 1 when a promise is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="assay alone")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds of each measurement (2)")
    parser.add_argument("--players", type=int, metavar="EPISODES", help="scores of all players instead of speeds")
    options = parser.parse_args()
    if options.players:
        print(everybody(options.players))
        return 0
    theirs: dict[str, float] = {}
    if options.peers:
        command = [peer_python(), HERE / "lmgame_games.py", str(options.seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        theirs = json.loads(done.stdout.strip().splitlines()[-1])
    ours = dict(measured(options.seconds))
    print(f"load averages {' '.join(f'{value:.1f}' for value in os.getloadavg())}; steps a second of CPU")
    for name, value in theirs.items():
        print(f"  peer: {name:71} {value:14,.0f}")
    for name, value in ours.items():
        print(f"  assay: {name:70} {value:14,.0f}")
    missed = 0
    for mine, peer, bound in TARGETS if theirs else ():
        ratio = ours[mine] / theirs[peer]
        missed += ratio < bound
        verdict = "kept" if ratio >= bound else "MISSED"
        print(f"{mine}: {ratio:,.0f}x the peer, promised {bound:.0f}x: {verdict}")
    print("random player, 30 episodes, mean +- standard deviation of the reported score")
    print(baseline())
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
