"""The board games of the zoo against simulators written here a second time, in another way."""

import json
import math
import re
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from gem_play import content, random_play
from hypothesis import given
from hypothesis import strategies as st

from assay.agents.gem.env import EnvError
from assay.agents.gem.games.crosswords import Crosswords, read_entries
from assay.agents.gem.games.fifteen import FifteenPuzzle, solvable
from assay.agents.gem.games.g2048 import Game2048, slide
from assay.agents.gem.games.hanoi import TowerOfHanoi
from assay.agents.gem.games.sokoban import Sokoban
from assay.agents.gem.games.sokoban_rooms import make_room
from assay.agents.gem.games.sudoku import Sudoku, blank, full_grid, small_puzzle, solve
from assay.agents.gem.games.word_search import WordSearch
from assay.core.errors import DataError

# -- FifteenPuzzle -------------------------------------------------------------------------------------------------


def test_solvable_boards_of_two_by_two_are_those_that_can_be_reached():
    def moves(board):
        gap = board.index(0)
        for other in range(4):
            if sum(abs(a - b) for a, b in zip(divmod(gap, 2), divmod(other, 2))) == 1:
                cells = list(board)
                cells[gap], cells[other] = cells[other], cells[gap]
                yield tuple(cells)

    reached, stack = {(1, 2, 3, 0)}, [(1, 2, 3, 0)]
    while stack:
        for board in moves(stack.pop()):
            if board not in reached:
                reached.add(board)
                stack.append(board)
    assert len(reached) == 12
    for board in permutations(range(4)):
        assert solvable([board[:2], board[2:]]) == (board in reached)


@pytest.mark.parametrize("level", ["easy", "hard"])
@pytest.mark.parametrize("start", ["walk", "uniform"])
def test_fifteen_beside_array_swaps(level, start):
    shift = {"up": (1, 0), "down": (-1, 0), "left": (0, 1), "right": (0, -1)}
    for seed in range(25):
        env = FifteenPuzzle(level, start=start)
        env.reset(seed)
        board = np.array(env.view()["board"])
        side = len(board)
        goal = np.append(np.arange(1, side * side), 0).reshape(side, side)
        assert solvable(board.tolist())
        for turn, (action, reward, _, _, info) in enumerate(random_play(env, seed), 1):
            gap = np.argwhere(board == 0)[0]
            tile = gap + shift[content(action)]
            valid = bool((tile >= 0).all() and (tile < side).all())
            if valid:
                board[tuple(gap)], board[tuple(tile)] = board[tuple(tile)], 0
            solved = bool((board == goal).all())
            expected = 1.0 if solved and valid else (board == goal).mean() if turn == env.max_turns else 0.0
            assert reward == pytest.approx(expected)
            assert (info["valid"], info["solved"]) == (valid, solved and valid)
            assert env.view()["board"] == board.tolist()


def test_uniform_starts_reach_every_board_equally_often():
    env = FifteenPuzzle(start="uniform")
    env.reset(0)
    counts = Counter()
    for _ in range(2200):
        env.reset()
        counts[tuple(env.cells)] += 1
    assert len(counts) == 11  # all 12 but the solved one
    assert all(abs(count - 200) < 70 for count in counts.values())


# -- Tower of Hanoi ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_hanoi_beside_a_list_of_where_each_disk_is(level):
    for seed in range(20):
        env = TowerOfHanoi(level)
        where = [0] * env.num_disks  # disk 1 first
        for turn, (action, reward, _, _, info) in enumerate(random_play(env, seed), 1):
            source, target = ("ABC".index(peg) for peg in content(action).split())
            tops = [min((d for d, peg in enumerate(where) if peg == at), default=99) for at in range(3)]
            valid = source != target and tops[source] < tops[target]
            if valid:
                where[tops[source]] = target
            solved = all(peg == 2 for peg in where)
            assert reward == pytest.approx(1 if solved else where.count(2) / len(where) if turn == env.max_turns else 0)
            assert (info["valid"], info["solved"]) == (valid, solved)


def test_hanoi_refuses_a_move_to_the_same_peg():
    env = TowerOfHanoi()
    env.reset(0)
    assert env.step("\\boxed{A A}")[4]["valid"] is False


# -- 2048 ----------------------------------------------------------------------------------------------------------


def pushed(board, direction):
    """A push, by turning the board so that it goes left and merging with a stack."""
    turns = {"left": 0, "up": 1, "right": 2, "down": 3}[direction]
    turned = np.rot90(np.array(board), turns)
    rows = []
    for row in turned:
        stack, locked = [], False
        for value in row[row > 0]:
            if stack and stack[-1] == value and not locked:
                stack[-1] *= 2
                locked = True
            else:
                stack.append(value)
                locked = False
        rows.append(stack + [0] * (len(row) - len(stack)))
    return np.rot90(np.array(rows), -turns).tolist()


tiles = st.sampled_from([0, 0, 2, 2, 4, 8, 16])


@given(st.lists(st.lists(tiles, min_size=4, max_size=4), min_size=4, max_size=4))
def test_pushes_beside_turning_the_board(board):
    for direction in ("up", "down", "left", "right"):
        assert slide(board, direction) == pushed(board, direction)


@pytest.mark.parametrize("level", ["easy", "hard", "extreme-hard"])
def test_2048_rewards_are_progress_on_the_log_scale(level):
    for seed in range(12):
        env = Game2048(level)
        env.reset(seed)
        board, total = env.view()["board"], 0.0
        first = best = np.max(board)
        assert sum(value > 0 for row in board for value in row) == 2
        for action, reward, terminated, truncated, info in random_play(env, seed):
            after = pushed(board, content(action))
            assert info["valid"] == (after != board)
            gain = math.log2(max(best, np.max(after))) - math.log2(best) if info["valid"] else 0
            best = max(best, np.max(after)) if info["valid"] else best
            assert reward == pytest.approx(gain / (math.log2(env.target_tile) - math.log2(first)))
            total += reward
            board = env.view()["board"]
            new = np.array(board) - np.array(after)
            if info["valid"] and not info["solved"]:
                assert sorted(new[new != 0].tolist()) in ([2], [4])
            dead = all(pushed(board, d) == board for d in ("up", "down", "left", "right"))
            assert terminated == (info["solved"] or dead or truncated)
        assert info["solved"] == (np.max(board) >= env.target_tile)
        assert total == pytest.approx(math.log2(best / first) / math.log2(env.target_tile / first))


def test_new_tiles_are_two_nine_times_in_ten():
    env = Game2048()
    env.reset(0)
    counts = Counter()
    for _ in range(3000):
        env.tiles = [[0] * 4 for _ in range(4)]
        env.add_tile()
        counts[max(map(max, env.tiles))] += 1
    assert set(counts) == {2, 4}
    assert abs(counts[4] - 300) < 5 * math.sqrt(270)


# -- Sudoku --------------------------------------------------------------------------------------------------------


def completions(cells, side, most=2):
    """Up to ``most`` completions by exact cover (Knuth's algorithm X on dictionaries)."""
    size = math.isqrt(side)
    rows = {
        (r, c, n): [("cell", r, c), ("row", r, n), ("col", c, n), ("block", r // size, c // size, n)]
        for r, c, n in product(range(side), range(side), range(1, side + 1))
    }
    columns = {}
    for row, constraints in rows.items():
        for constraint in constraints:
            columns.setdefault(constraint, set()).add(row)

    def select(row):
        taken = []
        for constraint in rows[row]:
            for other in columns[constraint]:
                for third in rows[other]:
                    if third != constraint:
                        columns[third].remove(other)
            taken.append(columns.pop(constraint))
        return taken

    def deselect(row, taken):
        for constraint in reversed(rows[row]):
            columns[constraint] = taken.pop()
            for other in columns[constraint]:
                for third in rows[other]:
                    if third != constraint:
                        columns[third].add(other)

    chosen, found = {}, []

    def search():
        if not columns:
            found.append([chosen[r, c] for r, c in product(range(side), repeat=2)])
            return
        for row in list(columns[min(columns, key=lambda c: len(columns[c]))]):
            chosen[row[:2]] = row[2]
            taken = select(row)
            search()
            deselect(row, taken)
            if len(found) >= most:
                return

    for at, value in enumerate(cells):
        if value:
            row = (*divmod(at, side), value)
            chosen[row[:2]] = value
            select(row)
    search()
    return found


@pytest.mark.parametrize(("side", "tries", "seeds"), [(4, 10, 40), (9, 50, 12), (4, 16, 20), (9, 81, 3)])
def test_sudoku_completions_are_unique_by_exact_cover(side, tries, seeds):
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        grid = full_grid(side, rng)
        cells = blank(grid, side, [int(cell) for cell in rng.permutation(side * side)[:tries]])
        assert all(a in (0, b) for a, b in zip(cells, grid))
        assert cells.count(0) <= tries
        assert completions(cells, side) == [grid]
        assert solve(cells, side) == grid


def test_small_puzzles_are_what_blanking_by_search_gives_of_all_288_grids_alike():
    met = Counter()
    for seed in range(2000):
        solution, cells = small_puzzle(16 if seed % 2 else 10, np.random.default_rng(seed))
        met[tuple(solution)] += 1
        rng = np.random.default_rng(seed)
        rng.random()
        order = [int(cell) for cell in rng.permutation(16)[: 16 if seed % 2 else 10]]
        assert cells == blank(solution, 4, order)
        if seed < 60:
            assert completions(cells, 4) == [solution]
    assert len(met) == 288
    assert max(met.values()) < 25  # 7 on average


def test_blanking_every_cell_leaves_no_clue_that_could_go():
    rng = np.random.default_rng(3)
    grid = full_grid(4, rng)
    cells = blank(grid, 4, list(range(16)))
    for at, value in enumerate(cells):
        if value:
            assert len(completions([*cells[:at], 0, *cells[at + 1 :]], 4)) == 2


def test_solve_says_no_to_what_has_no_completion():
    assert solve([1, 1, *[0] * 14], 4) is None
    assert solve([1, 2, 3, 0, 0, 0, 0, 4, *[0] * 8], 4) is None


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_sudoku_rewards_add_up_to_the_share_filled(level):
    for seed in range(8):
        env, total = Sudoku(level), 0.0

        def choose(env, rng):
            cell = int(rng.choice(np.flatnonzero(np.array(env.cells) == 0)))
            number = env.solution[cell] if rng.random() < 0.7 else int(rng.integers(1, env.scale + 1))
            return f"\\boxed{{{cell // env.scale + 1} {cell % env.scale + 1} {number}}}"

        for action, reward, *_, info in random_play(env, seed, choose):
            row, col, number = (int(word) for word in content(action).split())
            right = number == env.solution[(row - 1) * env.scale + col - 1]
            assert reward == pytest.approx(right / env.empties)
            assert info["valid"] == right
            total += reward
        assert total == pytest.approx(1 - env.cells.count(0) / env.empties)
        assert info["solved"] == (0 not in env.cells)


# -- Sokoban -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_sokoban_beside_complex_numbers(level):
    steps = {"up": -1j, "down": 1j, "left": -1 + 0j, "right": 1 + 0j}
    for seed in range(20):
        env = Sokoban(level)
        env.reset(seed)
        world = {complex(x, y): cell for y, row in enumerate(env.view()["grid"]) for x, cell in enumerate(row)}
        walls = {at for at, cell in world.items() if cell == "#"}
        targets = {at for at, cell in world.items() if cell in "T*p"}
        boxes = {at for at, cell in world.items() if cell in "B*"}
        (player,) = (at for at, cell in world.items() if cell in "Pp")
        assert len(boxes) == len(targets) == env.num_boxes
        assert not boxes & targets
        for turn, (action, reward, _, _, info) in enumerate(random_play(env, seed), 1):
            step = steps[content(action)]
            ahead, behind = player + step, player + 2 * step
            valid = ahead not in walls and not (ahead in boxes and behind in walls | boxes)
            if valid:
                player = ahead
                if ahead in boxes:
                    boxes = boxes - {ahead} | {behind}
            solved = boxes == targets
            share = len(boxes & targets) / len(boxes)
            assert reward == pytest.approx(1 if solved else share if turn == env.max_turns else 0)
            assert (info["valid"], info["solved"]) == (valid, solved)


def fewest_moves(room):
    """Steps of a shortest solution, by breadth-first search over (player, boxes)."""
    goal = frozenset(room.targets)
    start = (room.player, frozenset(room.boxes))
    walls, distance, queue = set(room.walls), {start: 0}, [start]
    for player, boxes in queue:
        if boxes == goal:
            return distance[player, boxes]
        for step in (1, -1, room.cols, -room.cols):
            ahead, after = player + step, boxes
            if ahead in boxes:
                after = boxes - {ahead} | {ahead + step}
                if len(after) < len(boxes) or ahead + step in walls:
                    continue
            if ahead not in walls and (ahead, after) not in distance:
                distance[ahead, after] = distance[player, boxes] + 1
                queue.append((ahead, after))
    return None


def test_every_small_room_can_be_solved_within_the_moves_it_promises():
    shortest = []
    for seed in range(40):
        room = make_room(6, 6, 2, 20, np.random.default_rng(seed))
        fewest = fewest_moves(room)
        assert fewest is not None
        assert fewest <= room.moves <= 20
        shortest.append(fewest)
    assert np.mean(shortest) > 6
    assert len(set(shortest)) > 3


def test_large_rooms_are_closed_and_keep_the_promise():
    for seed in range(3):
        room = make_room(7, 7, 3, 30, np.random.default_rng(seed))
        border = [c for c in range(49) if c // 7 in (0, 6) or c % 7 in (0, 6)]
        assert set(border) <= set(room.walls)
        assert fewest_moves(room) <= room.moves <= 30


def test_rooms_of_all_sizes_are_found():
    for rows, cols, boxes in [(5, 5, 1), (4, 9, 3), (9, 4, 3), (6, 6, 6), (12, 12, 5), (30, 30, 8)]:
        room = make_room(rows, cols, boxes, 60, np.random.default_rng(0))
        assert len(room.boxes) == len(room.targets) == boxes
    with pytest.raises(EnvError, match="num_boxes"):
        Sokoban(dim_room=[4, 4], num_boxes=1)


# -- Crosswords, WordSearch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_crosswords_hold_their_words_and_nothing_else(level):
    clue_of = {clue: entry for entry in read_entries() for clue in entry.clues}
    for seed in range(40):
        env = Crosswords(level)
        env.reset(seed)
        covered, words = set(), []
        for text in env.clues:
            way, row, col, length, clue = re.fullmatch(
                r"(across|down) from (\d+) (\d+), (\d+) letters: (.*)", text
            ).groups()
            cells = [(int(row) + i * (way == "down"), int(col) + i * (way == "across")) for i in range(int(length))]
            word = "".join(env.solution[r][c] for r, c in cells)
            assert clue_of[clue].word == word
            assert clue_of[clue].hardcore == (level == "hard")
            covered |= set(cells)
            words.append(word)
        letters = {(r, c) for r, row in enumerate(env.solution) for c, cell in enumerate(row) if cell != "."}
        assert letters == covered
        runs = [
            run for line in [*env.solution, *map("".join, zip(*env.solution))] for run in re.findall("[a-z]{2,}", line)
        ]
        assert sorted(runs) == sorted(words)
        assert len(set(words)) == env.num_words


def test_crossword_rewards_add_up_to_one():
    for seed in range(10):
        env = Crosswords("hard")
        env.reset(seed)
        cells = [(r, c, letter) for r, row in enumerate(env.solution) for c, letter in enumerate(row) if letter != "."]
        wrong = env.step(f"\\boxed{{{cells[0][0]} {cells[0][1]} {'a' if cells[0][2] != 'a' else 'b'}}}")
        assert wrong[1:4] == (0.0, False, False)
        total = 0.0
        for row, col, letter in cells:
            _, reward, terminated, _, info = env.step(f"\\boxed{{{row} {col} {letter.upper()}}}")
            total += reward
        assert total == pytest.approx(1)
        assert terminated
        assert info["solved"]


def test_crossword_files_are_read_and_checked(tmp_path):
    file = tmp_path / "words.jsonl"
    rows = [{"word": w, "hardcore": False, "clues": {"1": f"clue of {w}"}} for w in ("apple", "plate", "eagle")]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = Crosswords(words=str(file))
    env.reset(0)
    assert all("clue of" in clue for clue in env.clues)
    file.write_text('{"word": "a1", "hardcore": false, "clues": {"1": "x"}}\n')
    with pytest.raises(DataError, match="line 1: field 'word'"):
        read_entries(str(file))
    with pytest.raises(EnvError, match="num_words"):
        Crosswords(num_words=0)


def everywhere(grid, word):
    """All straight runs of cells that spell a word."""
    side = len(grid)
    for row, col, down, right in product(range(side), range(side), (-1, 0, 1), (-1, 0, 1)):
        end = row + down * (len(word) - 1), col + right * (len(word) - 1)
        if (down or right) and all(0 <= at < side for at in end):
            spelled = "".join(grid[row + i * down][col + i * right] for i in range(len(word)))
            if spelled == word:
                yield row, col, *end


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_word_search_hides_every_word_where_a_plain_search_finds_it(level):
    turned = 0
    for seed in range(25):
        env, total = WordSearch(level), 0.0
        env.reset(seed)
        assert len(set(env.hidden)) == 5
        for word in env.hidden:
            place = next(everywhere(env.grid, word))
            turned += place[2] < place[0] or place[3] < place[1]
            if seed % 2:
                place = (*place[2:], *place[:2])
            _, reward, terminated, _, info = env.step(f"\\boxed{{{' '.join(map(str, place))}}}")
            assert reward == pytest.approx(0.2)
            total += reward
        assert total == pytest.approx(1)
        assert terminated
        assert info["solved"]
    assert (turned > 0) == (level == "hard")


def test_word_search_refuses_what_is_no_line_or_was_tried():
    env = WordSearch()
    env.reset(0)
    for place in ("0 0 1 2", "0 0 0 99"):
        assert env.step(f"\\boxed{{{place}}}")[4]["valid"] is False
    place = " ".join(map(str, next(everywhere(env.grid, env.hidden[0]))))
    assert env.step(f"\\boxed{{{place}}}")[1] == pytest.approx(0.2)
    _, reward, *_, info = env.step(f"\\boxed{{{place}}}")
    assert (reward, info["valid"]) == (0, False)
