"""The games against the published rewards and against simulators written here a second time, in another way."""

import json
import math
import time
from collections import Counter
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from gem_play import content, random_play
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from assay.agents.gem.env import EnvError
from assay.agents.gem.games.crosswords import Crosswords
from assay.agents.gem.games.fifteen import FifteenPuzzle, solvable
from assay.agents.gem.games.g2048 import Game2048
from assay.agents.gem.games.guess_the_number import GuessTheNumber
from assay.agents.gem.games.hangman import Hangman
from assay.agents.gem.games.hanoi import TowerOfHanoi
from assay.agents.gem.games.mastermind import Mastermind, pegs
from assay.agents.gem.games.minesweeper import Minesweeper
from assay.agents.gem.games.sokoban import Sokoban
from assay.agents.gem.games.sudoku import Sudoku
from assay.agents.gem.games.word_search import WordSearch
from assay.agents.gem.games.wordle import Wordle, feedback
from assay.agents.gem.games.words import read_words
from assay.core.errors import DataError

ORACLES = Path(__file__).parents[1] / "oracles" / "gem"


def oracle(name):
    return json.loads((ORACLES / f"{name}.json").read_text())["cases"]


# -- published rewards ---------------------------------------------------------------------------------------------


def flat(rows):
    return [value for row in rows for value in row]


def build(case):
    """An environment in the state that a case of the oracle begins with."""
    start, name = case["init"], case["env"]
    turns = {"max_turns": start["max_turns"]}
    if name == "GuessTheNumber":
        env = GuessTheNumber(min_number=start["min_number"], max_number=start["max_number"], **turns)
        state = {"secret": start["secret"]}
    elif name == "Mastermind":
        env = Mastermind(code_length=start["code_length"], num_numbers=start["num_numbers"], **turns)
        state = {"code": start["code"]}
    elif name == "Wordle":
        env, state = Wordle(word_length=start["word_length"], **turns), {"secret": start["secret"]}
    elif name == "Hangman":
        env, state = Hangman(word_length=start["word_length"], **turns), {"secret": start["secret"]}
    elif name == "TowerOfHanoi":
        env, state = TowerOfHanoi(num_disks=start["num_disks"], **turns), {}
    elif name == "Game2048":
        env = Game2048(target_tile=start["target_tile"], **turns)
        state = {"tiles": start["board"], "first_max": max(map(max, start["board"]))}
        state["best"] = state["first_max"]
        env.deal = env.add_tile = lambda: None
        env.tiles = start["board"]
    elif name == "FifteenPuzzle":
        env = FifteenPuzzle(num_rows=start["num_rows"], **turns)
        state = {"cells": flat(start["board"])}
    elif name == "Sudoku":
        env = Sudoku(scale=start["scale"], **turns)
        cells = flat(start["board"])
        state = {"solution": flat(start["full_grid"]), "cells": cells, "empties": cells.count(0)}
    elif name == "Minesweeper":
        env = Minesweeper(rows=start["rows"], cols=start["cols"], num_mines=0, **turns)
        state = {"mines": [row * start["cols"] + col for row, col in start["mines"]]}
    else:
        assert name == "Sokoban"
        fixed, shown = np.array(start["room_fixed"]), np.array(start["room_state"])
        env = Sokoban(dim_room=fixed.shape, num_boxes=start["num_boxes"], **turns)
        state = {
            "walls": np.flatnonzero(fixed == 0).tolist(),
            "targets": np.flatnonzero(fixed == 2).tolist(),
            "boxes": np.flatnonzero((shown == 3) | (shown == 4)).tolist(),
            "player": int(np.flatnonzero(shown == 5)[0]),
        }
    return env, state


def begun(case):
    env, state = build(case)
    env.reset(0)
    for field, value in state.items():
        setattr(env, field, value)
    return env


@pytest.mark.parametrize("case", oracle("game_rewards"), ids=lambda case: case["env"])
def test_rewards_and_flags_are_the_published_ones(case):
    env = begun(case)
    for step in case["steps"]:
        text, reward, terminated, truncated, info = env.step(step["action"])
        assert reward == pytest.approx(step["reward"], abs=1e-9)
        assert (terminated, truncated) == (step["terminated"], step["truncated"])
        assert info["format_error"] == (step["reward"] == -0.1)
        if "board_before_spawn" in step:
            assert env.tiles == step["board_before_spawn"]
    assert info["solved"] == (
        terminated and not truncated and not info["format_error"] and "There was a mine" not in text
    )


@pytest.mark.parametrize("case", oracle("fifteen_solvable"), ids=str)
def test_the_parity_of_published_boards(case):
    assert solvable(case["board"]) == case["solvable"]


@pytest.mark.parametrize("case", oracle("wordle_feedback"), ids=lambda case: case["guess"])
def test_the_feedback_of_published_words(case):
    assert feedback(case["secret"], case["guess"]) == case["feedback"]


# -- what every game has in common ---------------------------------------------------------------------------------

UNREADABLE = ["", "5", "\\boxed{}", "\\boxed{?}", "\\boxed{1", "boxed{1}", "\\boxed 5", "\\boxed{-1}", "\\boxed{１}"]
ALL = [
    GuessTheNumber, Mastermind, Minesweeper, Wordle, FifteenPuzzle, Hangman, Sudoku, TowerOfHanoi, Game2048, Sokoban,
    Crosswords, WordSearch,
]  # fmt: skip


@pytest.mark.parametrize("game", ALL)
@pytest.mark.parametrize("text", UNREADABLE)
def test_an_unreadable_action_ends_the_game_with_the_format_penalty(game, text):
    env = game()
    env.reset(1)
    _, reward, terminated, truncated, info = env.step(text)
    assert (reward, terminated, truncated, info["solved"], info["format_error"]) == (-0.1, True, False, False, True)


READABLE = {
    GuessTheNumber: (["7", "0", "007", "9" * 5000], ["7 ", " 7", "7.0", "+7", "1,000"]),
    Mastermind: (["1 2", "1  2", "0 9", "1 2 3", "12"], ["1,2", "1 2.", "a b", " 1 2", "1 2 "]),
    Minesweeper: (
        ["reveal 0 0", "Flag 1 1", "open 1 1", "reveal 99 0"],
        ["reveal 0,0", "0 0", "reveal -1 0", "reveal  0 0", " reveal 0 0"],
    ),
    Wordle: (["cat", "CAT", "cats", "zzz", "c a t"], [" cat", "cat ", "c4t", "cat!"]),
    Hangman: (["c", "C", "cat", "cats"], ["c at", " c", "1"]),
    FifteenPuzzle: (["up", "down", "left", "right"], ["Up", " up", "north"]),
    Sudoku: (["1 1 1", "9 9 9"], ["1,1,1", "1 1", "1 1 1 1", "1  1 1", " 1 1 1"]),
    TowerOfHanoi: (["A C", "a c", "AC", "A,C", "A , C", "b a"], ["D A", "A-C", "A B C", "A", " A C", "A C "]),
    Game2048: (["up", "UP", "Left"], ["u", " up", "upleft"]),
    Sokoban: (["up", "DOWN", "Left"], ["push", "up up"]),
    Crosswords: (["0 0 a", "0  0 A", "99 0 a"], ["0,0,a", "0 0", "a 0 0", "0 0 ab", " 0 0 a"]),
    WordSearch: (["0 0 0 3", "0  0 0 3", "99 0 0 0"], ["0,0,0,3", "0 0 3", "0 0 0 3 4", "0 0 0 3 "]),
}


@pytest.mark.parametrize("game", ALL)
def test_what_a_box_may_hold(game):
    good, bad = READABLE[game]
    for text, readable in [(text, True) for text in good] + [(text, False) for text in bad]:
        env = game()
        env.reset(2)
        info = env.step(f"I think \\boxed{{{text}}}.")[4]
        assert info["format_error"] != readable, text


@pytest.mark.parametrize("game", ALL)
def test_the_last_box_that_can_be_read_counts(game):
    good = READABLE[game][0][0]
    for text in (f"\\boxed{{{good}}} then \\boxed{{?}}", f"\\boxed{{?}} then \\boxed{{{good}}}"):
        env = game()
        env.reset(2)
        assert not env.step(text)[4]["format_error"]


@pytest.mark.parametrize("game", ALL)
@settings(max_examples=25, deadline=None)
@given(text=st.text(max_size=60) | st.from_regex(r"\\boxed\{[a-zA-Z0-9 ,]{0,12}\}", fullmatch=True))
def test_no_text_breaks_a_game(game, text):
    env = game()
    env.reset(0)
    _, reward, terminated, _, info = env.step(text)
    assert math.isfinite(reward)
    assert -0.1 <= reward <= 1
    assert not info["format_error"] or terminated


@pytest.mark.parametrize("game", ALL)
def test_the_turn_limit_is_the_level_s(game):
    for level, settings_ in game.levels.items():
        env = game(level)
        for seed in range(3):
            env.reset(seed)
            ended, turns = False, 0
            while not ended:
                _, _, terminated, truncated, info = env.step(env.sample_random_action())
                turns += 1
                ended = terminated or truncated
            assert turns <= settings_["max_turns"]
            assert truncated == (turns == settings_["max_turns"] and not info["solved"]) or terminated


# -- GuessTheNumber ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_guess_the_number_beside_a_second_simulator(level):
    for seed in range(60):
        env, said, low, high = GuessTheNumber(level), {}, None, None
        for turn, (action, reward, terminated, truncated, info) in enumerate(
            random_play(env, seed, lambda env, rng: f"\\boxed{{{rng.integers(0, env.max_number + 3)}}}"), 1
        ):
            low, high = env.min_number, env.max_number
            guess = int(content(action))
            fine = low <= guess <= high and guess not in said
            expected = 0.0
            if fine and guess == env.secret:
                expected = 1.0
            elif turn == env.max_turns and low <= guess <= high:
                expected = 1 - abs(guess - env.secret) / (high - low)
            assert reward == pytest.approx(expected)
            assert info["valid"] == fine
            assert info["solved"] == (fine and guess == env.secret)
            if fine:
                said[guess] = "higher" if env.secret > guess else "lower" if env.secret < guess else "equal"
            assert dict(env.view()["answers"]) == said
            assert terminated == (info["solved"] or turn == env.max_turns)
            assert truncated == (turn == env.max_turns and not info["solved"])


def test_the_secret_number_is_uniform():
    env = GuessTheNumber()
    env.reset(0)
    counts = Counter()
    for _ in range(4000):
        env.reset()
        counts[env.secret] += 1
    assert set(counts) == set(range(1, 11))
    assert all(abs(count - 400) < 5 * math.sqrt(360) for count in counts.values())


# -- Mastermind ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=4, max_size=4), st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_pegs_beside_counting_the_rest(code, guess):
    black = len([1 for a, b in zip(code, guess) if a == b])
    rest = Counter(a for a, b in zip(code, guess) if a != b) & Counter(b for a, b in zip(code, guess) if a != b)
    assert pegs(code, guess) == (black, sum(rest.values()))


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_mastermind_rewards_are_gains_of_black_pegs(level):
    for seed in range(30):
        env, best, total = Mastermind(level), 0, 0.0
        for action, reward, _, _, info in random_play(env, seed):  # noqa: B007
            guess = [int(word) for word in content(action).split()]
            black = sum(a == b for a, b in zip(env.code, guess))
            assert reward == pytest.approx(max(0, black - best) / len(env.code))
            best, total = max(best, black), total + reward
        assert total == pytest.approx(best / len(env.code))
        assert info["solved"] == (total == pytest.approx(1))
        assert len(set(env.code)) == len(env.code)


def test_mastermind_codes_are_uniform_and_may_repeat_numbers_when_asked():
    env = Mastermind()
    env.reset(0)
    counts = Counter()
    for _ in range(3000):
        env.reset()
        counts[tuple(env.code)] += 1
    assert set(counts) == set(permutations(range(1, 7), 2))
    assert all(abs(count - 100) < 50 for count in counts.values())
    env = Mastermind(duplicate_numbers=True, num_numbers=2, code_length=3)
    assert {tuple(env.reset(seed) and env.code) for seed in range(80)} == set(product((1, 2), repeat=3))
    with pytest.raises(EnvError, match="duplicate_numbers"):
        Mastermind(num_numbers=2, code_length=3)


# -- Minesweeper ---------------------------------------------------------------------------------------------------


def opened(mines, hidden, flags, cell):
    """Cells that a reveal opens: the zero region of the cell without flags, grown by one, by image morphology."""
    block = np.ones((3, 3), int)
    counts = ndimage.convolve(mines.astype(int), block, mode="constant")
    free = ~flags & ~mines
    if counts[cell]:
        new = np.zeros_like(mines)
        new[cell] = True
        return new
    labels, _ = ndimage.label((counts == 0) & free & hidden, block)
    return ndimage.binary_dilation(labels == labels[cell], block) & free & hidden


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_minesweeper_beside_image_morphology(level):
    for seed in range(40):
        env = Minesweeper(level)
        hidden = np.ones((env.rows, env.cols), bool)
        flags = np.zeros_like(hidden)
        laid = False
        for action, reward, terminated, truncated, info in random_play(env, seed):
            verb, row, col = content(action).split()
            cell = int(row), int(col)
            expected, lost = 0.0, False
            valid = bool(hidden[cell]) and not (verb == "reveal" and flags[cell])
            if valid and verb == "flag":
                flags[cell] ^= True
            elif valid:
                mines = np.zeros(hidden.size, bool)
                mines[env.mines] = True
                mines = mines.reshape(hidden.shape)
                assert mines.sum() == env.num_mines
                if not laid:
                    around = mines[max(0, cell[0] - 1) : cell[0] + 2, max(0, cell[1] - 1) : cell[1] + 2]
                    assert not around.any()
                    laid = True
                lost = bool(mines[cell])
                if not lost:
                    new = opened(mines, hidden, flags, cell)
                    expected = new.sum() / (~mines).sum()
                    hidden &= ~new
            assert reward == pytest.approx(expected)
            assert info["valid"] == valid
            solved = laid and bool((hidden <= mines).all())
            assert info["solved"] == (solved and not lost)
            shown = np.array(env.view()["board"])
            assert ((shown == ".") | (shown == "F")).tolist() == hidden.tolist()
            assert (shown == "F").tolist() == (flags & hidden).tolist()
            assert terminated == (lost or info["solved"] or truncated)


def test_minesweeper_is_won_without_flags():
    env = Minesweeper()
    env.reset(4)
    total = env.step("\\boxed{reveal 2 2}")[1]
    for cell in range(25):
        if cell not in env.mines and cell not in env.revealed:
            _, reward, terminated, _, info = env.step(f"\\boxed{{reveal {cell // 5} {cell % 5}}}")
            total += reward
    assert terminated
    assert info["solved"]
    assert total == pytest.approx(1)


# -- Wordle, Hangman, words ----------------------------------------------------------------------------------------


def by_crossing_out(secret, guess):
    """Feedback with a list of letters that are crossed out one by one."""
    left, marks = list(secret), {}
    for place in range(len(guess)):
        if secret[place] == guess[place]:
            marks[place] = "G"
            left.remove(guess[place])
    for place in range(len(guess)):
        if place not in marks:
            marks[place] = "Y" if guess[place] in left else "X"
            if guess[place] in left:
                left.remove(guess[place])
    return "".join(marks[place] for place in range(len(guess)))


@given(st.text("abc", min_size=5, max_size=5), st.text("abcd", min_size=5, max_size=5))
def test_feedback_beside_crossing_out(secret, guess):
    assert feedback(secret, guess) == by_crossing_out(secret, guess)


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_wordle_rewards_are_new_green_places(level):
    for seed in range(30):
        env, green, tried = Wordle(level), set(), set()

        def choose(env, rng):
            return f"\\boxed{{{env.secret}}}" if rng.random() < 0.1 else None

        for action, reward, *_, info in random_play(env, seed, choose):
            guess = content(action)
            assert info["valid"] == (guess not in tried)
            new = {p for p in range(len(guess)) if guess[p] == env.secret[p]} - green if info["valid"] else set()
            assert reward == pytest.approx(0.5 * len(new) / env.word_length + 0.5 * (guess == env.secret))
            assert info["solved"] == (guess == env.secret)
            green |= new
            tried.add(guess)


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_hangman_beside_masks(level):
    for seed in range(60):
        env, said = Hangman(level), set()

        def choose(env, rng):
            if rng.random() < 0.5:
                return f"\\boxed{{{env.secret[int(rng.integers(len(env.secret)))].upper()}}}"
            return f"\\boxed{{{env.secret}}}" if rng.random() < 0.1 else None

        for action, reward, *_, info in random_play(env, seed, choose):
            guess, secret = content(action).lower(), env.secret
            hidden = [letter for letter in secret if letter not in said]
            assert info["valid"] == (guess not in said)
            expected = 0.0
            if len(guess) == 1 and guess not in said:
                expected = 0.5 * hidden.count(guess) / len(secret)
            elif guess == secret:
                expected = 0.5 * len(hidden) / len(secret) + 0.5
            assert reward == pytest.approx(expected)
            said.add(guess)
            done = guess == secret or set(secret) <= said
            assert info["solved"] == done


def test_hangman_ends_when_the_last_letter_is_opened():
    env = Hangman()
    env.reset(0)
    env.secret = "cat"
    assert [env.step(f"\\boxed{{{letter}}}")[2] for letter in "cat"] == [False, False, True]
    assert env.solved


def test_the_shipped_words_are_clean():
    words = read_words()
    assert sum(map(len, words.values())) > 900
    assert all(len(words[length]) >= 100 for length in (3, 4, 5, 6, 7))
    assert all(word == word.lower() and word.isascii() and word.isalpha() for group in words.values() for word in group)


def test_words_can_come_from_a_file(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("Otter  # a comment\nzebra\n")
    env = Wordle("hard", words=str(file))
    assert {env.reset(seed) and env.secret for seed in range(20)} == {"otter", "zebra"}
    file = tmp_path / "bad.txt"
    file.write_text("otter\nsea-lion\n")
    with pytest.raises(DataError, match=r"bad\.txt, line 2: 'sea-lion'"):
        Wordle("hard", words=str(file))
    with pytest.raises(DataError, match="cannot be read"):
        Wordle("hard", words=str(tmp_path / "none.txt"))
    with pytest.raises(EnvError, match="no words of 17 letters"):
        Wordle(word_length=17)


def test_blanks_between_the_letters_of_a_wordle_guess_do_not_count():
    env = Wordle()
    env.reset(0)
    env.secret = "cat"
    assert env.step("\\boxed{c a T}")[1:3] == (1.0, True)


@pytest.mark.parametrize("game", ALL)
def test_spam_of_boxes_earns_no_more_than_its_last_box_and_takes_no_time(game):
    """What a policy may try for reward: every answer in one text, huge texts, boxes in boxes, unclosed ones."""
    good = READABLE[game][0][0]
    spam = "".join(f"\\boxed{{{text}}}" for text in READABLE[game][0] if len(text) < 20) * 50
    plain, spammed = game(), game()
    plain.reset(3)
    spammed.reset(3)
    alone, crowded = plain.step(f"\\boxed{{{good}}}"), spammed.step(f"{spam}\\boxed{{{good}}}")
    assert crowded == alone
    for text in (
        "\\boxed{" * 20_000,
        f"\\boxed{{{'1 ' * 50_000}",
        f"\\boxed{{{'a' * 100_000}",
        "\\boxed{1 1 " * 10_000,
    ):
        env = game()
        env.reset(3)
        begun = time.process_time()
        assert env.step(text)[4]["format_error"]
        assert time.process_time() - begun < 1


@pytest.mark.parametrize("game", ALL)
def test_no_policy_earns_more_than_one_by_breaking_rules(game):
    """Repeating a rewarded action pays once."""
    env = game()
    env.reset(4)
    total, ended, last = 0.0, False, env.sample_random_action()
    while not ended:
        _, reward, terminated, truncated, info = env.step(last)
        total += reward
        ended = terminated or truncated
    assert total <= 1
    if env.turn > 3 and game not in (Game2048, GuessTheNumber):
        assert total <= 0.5 or info["solved"]
