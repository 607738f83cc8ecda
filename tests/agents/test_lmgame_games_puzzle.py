"""Candy Crush and Tetris against the oracles and plain readings of their rules."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assay.agents.lmgame.env import make
from assay.agents.lmgame.games import candy_crush as candy
from assay.agents.lmgame.games import tetris as t
from assay.agents.lmgame.games.engine import Stream
from assay.core.errors import DataError, UsageError

ORACLES = Path(__file__).parents[1] / "oracles" / "lmgame"


def oracle(name: str):
    return json.loads((ORACLES / f"{name}.json").read_text())


def test_effective_swaps_and_lines_equal_the_oracle():
    for case in oracle("candy_crush_moves")["cases"]:
        cells = [[colour - 1 for colour in row] for row in case["board"]]
        game = candy.CandyCrush(4, 4, 4)
        game.board = candy.Board.of(cells, 4)
        assert len(game.actions) == candy.action_count(4, 4) == case["action_count"]
        assert [[list(cell) for cell in line] for line in game.board.lines()] == case["colour_lines"]
        if "effective_actions" in case:
            assert game.effective_actions() == case["effective_actions"]
            assert [[list(a), list(b)] for a, b in (candy.swap_of(i, 4, 4) for i in game.effective_actions())] == case[
                "effective_swaps"
            ]
        assert any(game.board.effective()) == case["possible_move"]


def plain_runs(cells: np.ndarray) -> set[tuple[int, int]]:
    found = set()
    for r in range(cells.shape[0]):
        for c in range(cells.shape[1]):
            for dr, dc in ((0, 1), (1, 0)):
                line = [(r + k * dr, c + k * dc) for k in range(3)]
                inside = line[2][0] < cells.shape[0] and line[2][1] < cells.shape[1]
                if inside and len({cells[cell] for cell in line}) == 1 and cells[r, c] >= 0:
                    found.update(line)
    return found


@pytest.mark.parametrize(("rows", "columns", "colours"), [(8, 8, 4), (5, 9, 3), (6, 3, 6)])
def test_candy_moves_equal_a_plain_reading_of_the_rules(rows, columns, colours):
    env = make("candy_crush", rows=rows, columns=columns, colours=colours)
    env.reset(11)
    engine = env.engine
    for step in range(50):
        before = np.array(engine.board.cells())
        effective = []
        for index in range(candy.action_count(rows, columns)):
            a, b = candy.swap_of(index, rows, columns)
            assert candy.index_of(b, a, rows, columns) == index
            tried = before.copy()
            tried[a], tried[b] = before[b], before[a]
            if plain_runs(tried):
                effective.append(index)
        assert not plain_runs(before)
        assert effective
        assert engine.effective_actions() == effective
        action = effective[step % len(effective)] if step % 2 else step % len(engine.actions)
        # The same stream refills a plain board cell by cell.
        twin = Stream(engine.stream.state)
        cells, removed, bits = before.copy(), 0, 0
        a, b = candy.swap_of(action, rows, columns)
        cells[a], cells[b] = before[b], before[a]
        while runs := plain_runs(cells):
            removed += len(runs)
            for cell in runs:
                cells[cell] = -1
            for c in range(columns):
                column = [colour for colour in cells[:, c] if colour >= 0]
                cells[:, c] = [-1] * (rows - len(column)) + column
            for number, cell in enumerate(np.argwhere(cells < 0)):
                bits = bits >> 16 if number % 4 else twin.bits()
                cells[tuple(cell)] = (bits & 0xFFFF) * colours >> 16
        shuffles = engine.shuffles
        _, reward, terminated, _, info = env.step(engine.actions[action])
        assert reward == info["perf_score"] == removed
        if engine.shuffles == shuffles:
            assert np.array(engine.board.cells()).tolist() == (cells if removed else before).tolist()
    assert terminated
    assert info["moves_left"] == 0


def test_refilled_colours_are_uniform():
    board = candy.Board(8, 8, 5)
    stream, counts = Stream(3), np.zeros(5)
    for _ in range(300):
        board.candies = 0
        board.fill(board.all, stream)
        counts += [mask.bit_count() for mask in board.masks]
    assert counts.sum() == 300 * 64
    assert ((counts - 3840) ** 2 / 3840).sum() < 18.5  # chi-square, 4 degrees of freedom, p 0.001


def test_a_text_that_is_no_swap_uses_up_a_move():
    env = make("candy_crush")
    env.reset(0)
    for text in ("hello", "((0,0),(0,2))", "((0,0),(8,0))", "112"):
        _, reward, _, _, info = env.step(text)
        assert (reward, info["known_action"]) == (0, False)
    assert info["moves_left"] == 46
    for text in ("((0,1),(0,0))", " ( (0, 0) , (0,1) ) ", "56"):
        assert env.engine.parse(text) == 56


def test_a_board_without_moves_is_shuffled():
    game = candy.CandyCrush(3, 3, 3)
    game.reset(np.random.default_rng(0))
    for seed in range(200):
        game.stream = Stream(seed)
        counts = np.bincount(np.array(game.board.cells()).ravel(), minlength=3).tolist()
        game._shuffle()
        assert any(game.board.effective())
        assert not game.board.runs()
        assert sum(counts) == sum(np.bincount(np.array(game.board.cells()).ravel())) == 9


def test_tetris_steps_equal_the_oracle():
    for case in oracle("tetris_steps")["cases"]:
        env = make("tetris")
        env.reset(0)
        env.engine.deal([t.KINDS.index(kind) for kind in case["queue"]])
        for expected in case["steps"]:
            _, reward, terminated, _, info = env.step(expected["action"])
            rows = {str(y): line for y, line in enumerate(env.engine.board()) if line.strip(".")}
            assert rows == expected["non_empty_rows"]
            assert (reward, info["perf_score"], terminated) == (
                expected["reward"],
                expected["perf_score"],
                expected["terminated"],
            )
            assert (info["lines"], info["score"]) == (expected["lines"], expected["score"])


def spawn_rows(kind: str) -> list[str]:
    env = make("tetris")
    env.reset(0)
    env.engine.deal([t.KINDS.index(kind)])
    return [line for line in env.engine.board() if line.strip(".")]


def test_pieces_spawn_as_published():
    assert spawn_rows("I") == ["...IIII..."]
    assert spawn_rows("O") == ["....OO....", "....OO...."]
    assert spawn_rows("T") == [".....T....", "....TTT..."]
    assert spawn_rows("S") == [".....SS...", "....SS...."]
    assert spawn_rows("Z") == ["....ZZ....", ".....ZZ..."]
    assert spawn_rows("J") == ["....J.....", "....JJJ..."]
    assert spawn_rows("L") == ["......L...", "....LLL..."]


def plain_tetris(frames, kinds, width=10, height=20):
    """Cells as a set; every rule as the sheet states it."""
    settled: set[tuple[int, int]] = set()
    points, kinds = 0, list(kinds)

    def spawn(kind):
        matrix = np.array([[cell != "." for cell in row] for row in t._SPAWN[t.KINDS[kind]]])
        return [matrix, width // 2 - len(matrix) // 2, 0]

    def cells(matrix, x, y):
        return {(y + r, x + c) for r, c in np.argwhere(matrix)}

    def free(piece):
        return all(0 <= c < width and r < height and (r, c) not in settled for r, c in cells(*piece))

    piece = spawn(kinds.pop(0))
    for action in frames:
        matrix, x, y = piece
        tried = {
            t.LEFT: [matrix, x - 1, y],
            t.RIGHT: [matrix, x + 1, y],
            t.ROTATE_RIGHT: [np.rot90(matrix, -1), x, y],
            t.ROTATE_LEFT: [np.rot90(matrix), x, y],
            t.SOFT_DROP: [matrix, x, y + 1],
        }.get(action)
        if tried is not None and free(tried):
            piece = tried
        fell = True
        while fell:
            matrix, x, y = piece
            fell = free([matrix, x, y + 1])
            if fell:
                piece = [matrix, x, y + 1]
            if action != t.HARD_DROP:
                break
        if not fell:
            settled |= cells(*piece)
            lines = [r for r in range(height) if all((r, c) in settled for c in range(width))]
            for line in lines:
                settled = {(r + (r < line), c) for r, c in settled if r != line}
            points += 1 + 10 * len(lines)
            piece = spawn(kinds.pop(0))
            if not free(piece):
                return points, settled, True
    return points, settled, False


@pytest.mark.parametrize("seed", range(8))
def test_tetris_frames_equal_a_plain_reading_of_the_rules(seed):
    rng = np.random.default_rng(seed)
    width = (10, 4)[seed % 2]
    kinds = [int(k) for k in rng.integers(7, size=200)]
    frames = [int(a) for a in rng.integers(7, size=400)]
    env = make("tetris", width=width)
    env.reset(seed)
    engine = env.engine
    engine.deal(kinds)
    points = played = 0
    while played < len(frames) and not engine.over:
        points += engine.frame(frames[played])
        played += 1
    expected = plain_tetris(frames[:played], kinds, width)
    settled = {(r, c) for r, line in enumerate(engine.letters) for c, cell in enumerate(line) if cell != "."}
    assert (points, settled, engine.over) == expected
    assert engine.score == points


def test_each_bag_deals_every_piece_once():
    engine = make("tetris").engine
    engine.reset(np.random.default_rng(0))
    dealt = [engine.kind]
    for _ in range(69):
        engine.rows, engine.letters = [0] * 20, ["." * 10] * 20
        engine.frame(t.HARD_DROP)
        dealt.append(engine.kind)
    for start in range(0, 70, 7):
        assert sorted(dealt[start : start + 7]) == list(range(7))


def test_unknown_tetris_actions_fall_unless_the_paper_is_followed():
    for compatible, row in ((False, 1), (True, 0)):
        env = make("tetris", paper_compatible=compatible)
        env.reset(0)
        _, _, _, _, info = env.step("dance")
        assert not info["known_action"]
        assert env.engine.y == row
    env.reset(0)
    assert env.engine.parse("[LEFT, 2] then dance; soft_drop") == [(t.LEFT, 2), (t.SOFT_DROP, 1)]


def test_bad_options_are_one_sentence():
    with pytest.raises(UsageError, match="3 to 6 colours"):
        make("candy_crush", colours=2)
    with pytest.raises(UsageError, match="4 to 15 columns"):
        make("tetris", width=3)
    other = make("candy_crush", rows=4)
    other.reset(0)
    with pytest.raises(DataError, match="this game has 8x8"):
        make("candy_crush").set_state(other.get_state())
