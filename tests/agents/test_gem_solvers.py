"""Reference players: they solve what can be solved, see nothing secret, and know the fewest turns."""

import json
from collections import deque
from itertools import combinations

import numpy as np
import pytest

from assay.agents.gem.env import Env, EnvError
from assay.agents.gem.games.fifteen import SOURCES
from assay.agents.gem.games.wordle import feedback
from assay.agents.gem.registry import make
from assay.agents.gem.solvers.mines import mine_chances
from assay.agents.gem.solvers.policy import SolverPolicy, has_solver, optimal_turns


def solve(name, seeds, **settings):
    """(solved, turns, return) of the solver's episodes."""
    found = []
    env = make(name, **settings)
    for seed in seeds:
        policy, total = SolverPolicy(seed), 0.0
        env.reset(seed)
        while True:
            action = policy.act(env)
            _, reward, terminated, truncated, info = env.step(action)
            assert not info["format_error"], action
            total += reward
            if terminated or truncated:
                break
        found.append((info["solved"], env.turn, total))
    return np.array(found, dtype=float)


@pytest.mark.parametrize(
    "game",
    [
        "GuessTheNumber-v0-easy", "Mastermind-v0-easy", "Wordle-v0-easy", "Wordle-v0-hard", "FifteenPuzzle-v0-easy",
        "Hangman-v0-hard", "Sudoku-v0-easy", "Sudoku-v0-hard", "TowerofHanoi-v0-easy", "TowerofHanoi-v0-hard",
        "Sokoban-v0-easy", "Crosswords-v0-easy", "Crosswords-v0-hard", "WordSearch-v0-easy", "WordSearch-v0-hard",
    ],
)  # fmt: skip
def test_solvers_win_games_without_bad_luck_every_time(game):
    found = solve(f"game:{game}", range(6))
    assert found[:, 0].all()
    assert found[:, 2] == pytest.approx(1, abs=0.5 if "Hangman" in game else 1e-9)


def test_guessing_is_bisection():
    found = solve("game:GuessTheNumber-v0-hard", range(40))
    assert found[:, 0].all()
    assert found[:, 1].max() <= 6
    env = make("game:GuessTheNumber-v0-hard")
    env.reset(0)
    assert optimal_turns(env) == 6


def test_mastermind_needs_few_guesses():
    found = solve("game:Mastermind-v0-hard", range(12))
    assert found[:, 0].all()
    assert found[:, 1].mean() < 6.5
    repeats = solve("game:Mastermind-v0-hard", range(3), num_numbers=6, duplicate_numbers=True)
    assert repeats[:, 1].max() <= 6  # Knuth: five always suffice; the guesses tried here are a sample of all


def test_luck_is_used_well():
    assert solve("game:Minesweeper-v0-easy", range(30))[:, 2].mean() > 0.7
    assert solve("game:Game2048-v0-easy", range(4))[:, 0].mean() >= 0.75
    assert solve("game:Hangman-v0-easy", range(30))[:, 0].mean() > 0.5


def test_hard_sokoban_is_solved_in_time():
    assert solve("game:Sokoban-v0-hard", range(3))[:, 0].all()


def distances(start, moves):
    """Steps to every position that can be reached, by breadth-first search."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        position = queue.popleft()
        for after in moves(position):
            if after not in steps:
                steps[after] = steps[position] + 1
                queue.append(after)
    return steps


def test_hanoi_optima_from_every_position():
    def moves(where):
        for disk, peg in enumerate(where):
            if peg not in where[:disk]:
                for other in range(3):
                    if other != peg and other not in where[:disk]:
                        yield (*where[:disk], other, *where[disk + 1 :])

    env = make("game:TowerofHanoi-v0-easy", num_disks=4)
    env.reset(0)
    assert optimal_turns(env) == 15
    for where, steps in distances((2, 2, 2, 2), moves).items():
        env.pegs = [[disk + 1 for disk in range(3, -1, -1) if where[disk] == peg] for peg in range(3)]
        assert optimal_turns(env) == steps


def test_fifteen_optima_are_the_shortest_ways():
    def moves(cells):
        gap = cells.index(0)
        for down, right in SOURCES.values():
            row, col = gap // 3 + down, gap % 3 + right
            if 0 <= row < 3 and 0 <= col < 3:
                after = list(cells)
                after[gap], after[row * 3 + col] = after[row * 3 + col], 0
                yield tuple(after)

    near = {}
    frontier = {(1, 2, 3, 4, 5, 6, 7, 8, 0)}
    for steps in range(13):
        near |= dict.fromkeys(frontier, steps)
        frontier = {after for cells in frontier for after in moves(cells)} - near.keys()
    env = make("game:FifteenPuzzle-v0-easy", num_rows=3)
    env.reset(0)
    for cells, steps in list(near.items())[::25]:
        env.cells = list(cells)
        assert optimal_turns(env) == steps


def test_sokoban_optima_are_the_shortest_ways():
    env = make("game:Sokoban-v0-easy")
    for seed in range(12):
        env.reset(seed)
        walls, cols = set(env.walls), env.dim_room[1]

        def moves(position, walls=walls, cols=cols):
            player, boxes = position
            for step in (1, -1, cols, -cols):
                ahead, after = player + step, boxes
                if ahead in boxes:
                    if ahead + step in walls or ahead + step in boxes:
                        continue
                    after = boxes - {ahead} | {ahead + step}
                if ahead not in walls:
                    yield ahead, after

        steps = distances((env.player, frozenset(env.boxes)), moves)
        fewest = min(n for (_, boxes), n in steps.items() if boxes == frozenset(env.targets))
        assert optimal_turns(env) == fewest
        assert solve("game:Sokoban-v0-easy", [seed])[0, 1] == fewest


def test_other_optima_are_counts_of_what_is_left():
    for name, left in [("Sudoku", lambda env: env.empties), ("WordSearch", lambda env: 5)]:
        env = make(f"game:{name}-v0-easy")
        env.reset(0)
        assert optimal_turns(env) == left(env)
    env = make("game:Wordle-v0-easy")
    env.reset(0)
    assert optimal_turns(env) is None


def by_listing(board, num_mines):
    """Probabilities of mines by listing every layout of the whole board."""
    rows, cols = len(board), len(board[0])
    hidden = [(r, c) for r in range(rows) for c in range(cols) if board[r][c] == "."]
    totals, count = dict.fromkeys(hidden, 0), 0
    for mines in combinations(hidden, num_mines):
        fits = all(
            sum(abs(r - i) <= 1 and abs(c - j) <= 1 for i, j in mines) == int(board[r][c])
            for r in range(rows)
            for c in range(cols)
            if board[r][c] != "."
        )
        if fits:
            count += 1
            for cell in mines:
                totals[cell] += 1
    return {r * cols + c: total / count for (r, c), total in totals.items()}


def test_mine_probabilities_are_those_of_all_layouts():
    env = make("game:Minesweeper-v0-easy", rows=4, cols=5, num_mines=4)
    for seed in range(12):
        env.reset(seed)
        env.step("\\boxed{reveal 0 0}")
        if env._phase == "running":
            board = env.view()["board"]
            chances = mine_chances(board, 4)
            expected = by_listing(board, 4)
            assert chances.keys() == expected.keys()
            assert all(chances[cell] == pytest.approx(expected[cell]) for cell in chances)


SECRETS = {
    "GuessTheNumber": ("secret", 3), "Mastermind": ("code", [3, 4]), "Wordle": ("secret", "zoo"),
    "Hangman": ("secret", "zoo"), "Sudoku": ("solution", [0] * 16), "Minesweeper": ("mines", [7]),
    "Crosswords": ("solution", []), 
}  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_at_the_beginning_a_view_does_not_depend_on_the_secret(name):
    env = make(f"game:{name}-v0-easy")
    env.reset(5)
    before = json.dumps(env.view())
    field, other = SECRETS[name]
    assert getattr(env, field) != other
    setattr(env, field, other)
    assert json.dumps(env.view()) == before


def test_a_solver_of_words_needs_no_secret():
    env = make("game:Wordle-v0-hard")
    env.reset(1)
    policy = SolverPolicy(0)
    guess = policy.act(env)[7:-1]
    env.step(f"\\boxed{{{guess}}}")
    assert env.view()["answers"] == [(guess, feedback(env.secret, guess))]


def test_an_environment_without_a_solver_says_so():
    class Bare(Env):
        pass

    env = Bare()
    env.reset(0)
    assert not has_solver(env)
    assert optimal_turns(env) is None
    with pytest.raises(EnvError, match="no solver for Bare"):
        SolverPolicy().act(env)
