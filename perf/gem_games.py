"""The zoo beside gem-llm 0.1.0: the same rewards, and how long a reset and a step take.

python perf/gem_games.py            # makes the peer's environment at the first call (a package index is needed)
python perf/gem_games.py --quick    # fewer resets
python perf/gem_games.py --solvers  # the reference players and random actions on every game; no peer
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from engine import Broken, peer_python

from assay.agents.gem.games.words import read_words
from assay.agents.gem.registry import REGISTRY, make
from assay.agents.gem.solvers.policy import SolverPolicy

TARGET = 20.0
UNREADABLE = (
    "no box",
    "\\boxed{}",
    "\\boxed{1,2}",
    "\\boxed{ up}",
    "\\boxed{-3}",
    "\\boxed{1 1 a}",
    "\\boxed{a b}",
    "\\boxed{ 1 2}",
    "\\boxed{1  2}",
    "\\boxed{1  1 1}",
    "\\boxed{A  C}",
    "\\boxed{a, c}",
    "\\boxed{UP}",
)
PARITY = (
    "GuessTheNumber", "Mastermind", "Wordle", "Hangman", "FifteenPuzzle", "Sudoku", "TowerofHanoi", "Sokoban",
    "Crosswords", "WordSearch",
)  # fmt: skip
RESETS = {
    "Sudoku-v0-easy": (200, 8), "Sudoku-v0-hard": (5, 8), "Sokoban-v0-easy": (20, 8), "Sokoban-v0-hard": (2, 5),
}  # fmt: skip
"""Resets a batch, and batches."""


def home() -> Path:
    """Where the peer finds words."""
    return Path(os.environ.get("ASSAY_CACHE", Path.home() / ".cache" / "assay")) / "peers" / "gem-llm"


class Peer:
    """gem-llm in a process of its own. Words come from assay's list: the peer's own is a download."""

    def __init__(self, python: Path) -> None:
        words = home() / "nltk" / "corpora" / "words"
        words.mkdir(parents=True, exist_ok=True)
        text = "\n".join(word for group in read_words().values() for word in group) + "\n"
        for name in ("en", "en-basic"):
            (words / name).write_text(text)
        script = Path(__file__).parent / "peers" / "gem_llm_games.py"
        self.process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "NLTK_DATA": str(home() / "nltk"), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def ask(self, **job: Any) -> dict[str, Any]:
        """What the peer answers to a job."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line[7:])
        raise SystemExit("the peer has died; its environment may be damaged: delete it and try again")

    def replay(self, env: str, seed: int, actions: list[str]) -> dict[str, Any]:
        """First state and steps of an episode."""
        skip = ["all_words", "available_words", "word_list", "word_data"]
        return self.ask(do="replay", env=env, seed=seed, actions=actions, skip=skip, after=[])


@contextmanager
def peer(python: Path) -> Iterator[Peer]:
    """The peer, ended for certain."""
    other = Peer(python)
    try:
        yield other
    finally:
        other.process.kill()
        other.process.wait()


def take_over(env: Any, game: str, state: dict[str, Any]) -> None:
    """Give an environment of ours the state that the peer's began with."""
    if game == "GuessTheNumber":
        env.secret = state["game_number"]
    elif game == "Mastermind":
        env.code = state["game_code"]
    elif game in ("Wordle", "Hangman"):
        env.secret = state["secret_word"].lower()
    elif game == "FifteenPuzzle":
        env.cells = [value or 0 for row in state["board"] for value in row]
    elif game == "Sudoku":
        env.solution = [value for row in state["full_grid"] for value in row]
        env.cells = [value for row in state["board"] for value in row]
        env.empties = state["init_num_empty"]
    elif game == "Sokoban":
        fixed, shown = (np.array(state[name]).ravel() for name in ("room_fixed", "room_state"))
        env.walls, env.targets = np.flatnonzero(fixed == 0).tolist(), np.flatnonzero(fixed == 2).tolist()
        env.boxes = np.flatnonzero((shown == 3) | (shown == 4)).tolist()
        env.player = int(np.flatnonzero(shown == 5)[0])
    elif game == "Crosswords":
        env.solution = ["".join(row).lower() for row in state["solution"]]
        env.shown = ["".join(row) for row in state["board"]]
    elif game == "WordSearch":
        env.grid = ["".join(row).lower() for row in state["game_board"]]
        env.hidden = sorted(word.lower() for word in state["placed_words"])


def good_action(env: Any, game: str, state: dict[str, Any], rng: np.random.Generator) -> str:
    """An action that gets on, so that rewards other than zero are compared too."""
    content = ""
    if game in ("GuessTheNumber", "Wordle", "Hangman"):
        content = str(env.secret)
    elif game == "Mastermind":
        content = " ".join(map(str, env.code))
    elif game == "Sudoku":
        at = env.cells.index(0)
        content = f"{at // env.scale + 1} {at % env.scale + 1} {env.solution[at]}"
    elif game == "Crosswords":
        row, col = next((r, c) for r, cells in enumerate(env.shown) for c, cell in enumerate(cells) if cell == "_")
        content = f"{row} {col} {env.solution[row][col]}"
    elif game == "WordSearch":
        words = list(state["placed_words"])
        row, col, way = state["placed_words"][word := words[int(rng.integers(len(words)))]]
        long = len(word) - 1
        content = f"{row} {col} {row + long * (way == 'down')} {col + long * (way == 'across')}"
    return f"\\boxed{{{content}}}" if content else env.sample_random_action()


def parity(other: Peer, seeds: int) -> int:
    """Play the peer's games in both and compare rewards and flags of every step; differences found."""
    rng = np.random.default_rng(0)
    steps = differences = 0
    for game in PARITY:
        for level in ("easy", "hard"):
            if (game, level) == ("Sokoban", "hard"):
                continue  # a reset takes the peer seconds
            for seed in range(seeds):
                name = f"game:{game}-v0-{level}"
                state = other.replay(name, seed, [])["state"]
                env: Any = make(name)
                env.reset(seed)
                take_over(env, game, state)
                actions, ours = [], []
                while not ours or not (ours[-1][1] or ours[-1][2]):
                    draw = rng.random()
                    action = env.sample_random_action()
                    if draw < (0.1 if game in ("GuessTheNumber", "Mastermind", "Wordle", "Hangman") else 0.5):
                        action = good_action(env, game, state, rng)
                    elif draw > 0.98:
                        action = UNREADABLE[int(rng.integers(len(UNREADABLE)))]
                    actions.append(action)
                    ours.append(env.step(action)[1:4])
                theirs = other.replay(name, seed, actions)["steps"]
                for mine, yours, action in zip(ours, theirs, actions):
                    steps += 1
                    if abs(mine[0] - yours[0]) > 1e-9 or list(mine[1:]) != yours[1:]:
                        differences += 1
                        print(f"  {name}, seed {seed}, {action}: assay {mine}, gem-llm {yours}")
    print(f"rewards and flags: {steps} steps of {len(PARITY)} games, {differences} differences")
    return differences


def own_resets(name: str, seeds: range) -> float:
    """CPU seconds of a reset of ours, mean of a batch."""
    env = make(name)
    env.reset(0)
    begun = time.process_time()
    for seed in seeds:
        env.reset(seed)
    return (time.process_time() - begun) / len(seeds)


def resets(other: Peer, quick: bool) -> bool:
    """Time resets in batches, in turns; True when every ratio reaches the target."""
    fine = True
    print("reset, CPU ms (mean, best batch)      gem-llm              assay          ratio of means")
    for name, (size, count) in RESETS.items():
        ours: list[float] = []
        theirs: list[float] = []
        for batch in range(max(2, count // 3) if quick else count):
            seeds = range(batch * size + 1, (batch + 1) * size + 1)
            theirs.append(other.ask(do="resets", env=f"game:{name}", seeds=list(seeds))["seconds"])
            ours.append(own_resets(f"game:{name}", range(seeds.start * 5, seeds.stop * 5)))
        ratio = statistics.mean(theirs) / statistics.mean(ours)
        cells = "".join(f"{statistics.mean(s) * 1e3:12.3f} {min(s) * 1e3:8.3f}" for s in (theirs, ours))
        print(f"{name:26s}{cells}   {ratio:10.1f}x")
        fine &= ratio >= TARGET
    return fine


def players(episodes: int) -> None:
    """Mean return, share solved, turns and CPU of the solver, and the return of random actions, seeds 0 to n - 1."""
    print(f"{episodes} episodes a game        solver: return  solved  turns  s/episode   random: return  solved")
    for name in REGISTRY.ids("game"):
        if name.endswith("random"):
            continue
        env = make(name)
        found: list[list[float]] = []
        begun = time.process_time()
        for policy in (SolverPolicy(0), None):
            returns, solved, turns = 0.0, 0, 0
            for seed in range(episodes):
                env.reset(seed)
                ended = False
                while not ended:
                    action = policy.act(env) if policy else env.sample_random_action()
                    _, reward, terminated, truncated, info = env.step(action)
                    returns += reward
                    ended = terminated or truncated
                solved += info["solved"]
                turns += env.turn
            found.append([returns / episodes, solved / episodes, turns / episodes, time.process_time() - begun])
        (first, won, turns, seconds), (random, luck, *_) = found
        print(f"{name:32s} {first:12.3f} {won:7.2f} {turns:6.1f} {seconds / episodes:10.3f} {random:16.3f} {luck:7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer resets and episodes")
    parser.add_argument("--solvers", action="store_true", help="play every game with its solver and at random")
    options = parser.parse_args()
    quick = options.quick
    if options.solvers:
        players(5 if quick else 20)
        return
    try:
        python = peer_python("gem-llm-tools")
    except (Broken, subprocess.CalledProcessError, OSError) as error:
        sys.exit(f"The peer could not be installed ({error}); nothing was compared.")
    with peer(python) as other:
        differences = parity(other, 5 if quick else 15)
        fine = resets(other, quick)
    print(f"resets at least {TARGET:.0f}x: {'reached' if fine else 'MISSED'}")
    print(f"load {os.getloadavg()[0]:.1f}")
    sys.exit(0 if fine and not differences else 1)


if __name__ == "__main__":
    main()
