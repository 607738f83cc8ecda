"""2048 and Sokoban against the oracles; the environment contract."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.agents.lmgame.env import GameConfig, SixValueEnv, make, own_games, read_config, reported_score
from assay.agents.lmgame.games import twenty_forty_eight as g2048
from assay.agents.lmgame.games.engine import Stream
from assay.agents.lmgame.games.sokoban import Level, parse_levels, read_levels, shipped_levels
from assay.agents.lmgame.games.sokoban_generator import generate
from assay.agents.lmgame.solvers.sokoban_search import solve
from assay.core.errors import DataError, UsageError

ORACLES = Path(__file__).parents[1] / "oracles" / "lmgame"
LEVEL_1 = ["#######", "#?@ # #", "#$    #", "# # $ #", "# ?   #", "#     #", "#######"]
LEVEL_2 = ["#########", "#####  ##", "#@$    ?#", "#########"]


def oracle(name: str):
    return json.loads((ORACLES / f"{name}.json").read_text())


def test_moves_of_2048_equal_the_oracle():
    for case in oracle("g2048_moves")["cases"]:
        board = g2048.pack(case["board"])
        after, score = g2048.move(board, g2048.ACTIONS.index(case["action"]))
        assert g2048.unpack(after).tolist() == case["board_after_before_spawn"]
        assert score == case["score"]
        assert (after != board) == case["legal"]


def test_2048_ends_when_no_move_changes_the_board():
    for case in oracle("g2048_moves")["terminal"]:
        assert (not g2048.legal(g2048.pack(case["board"]))) == case["terminal"]


def plain_slide(row):
    tiles, made, score = [tile for tile in row if tile], [], 0
    while tiles:
        if len(tiles) > 1 and tiles[0] == tiles[1] < 32768:
            made.append(2 * tiles[0])
            score += 2 * tiles[0]
            del tiles[:2]
        else:
            made.append(tiles.pop(0))
    return made + [0] * (4 - len(made)), score


@given(st.lists(st.integers(0, 15), min_size=16, max_size=16))
def test_2048_moves_equal_a_plain_reading_of_the_rules(powers):
    tiles = np.array([0 if p == 0 else 2**p for p in powers]).reshape(4, 4)
    board = g2048.pack(tiles)
    assert (g2048.unpack(board) == tiles).all()
    assert (g2048.unpack(g2048.transpose(board)) == tiles.T).all()
    for action, turn in ((g2048.LEFT, 0), (g2048.UP, 1), (g2048.RIGHT, 2), (g2048.DOWN, 3)):
        rows = [plain_slide(row) for row in np.rot90(tiles, turn).tolist()]
        expected = np.rot90(np.array([row for row, _ in rows]), -turn)
        after, score = g2048.move(board, action)
        assert (g2048.unpack(after) == expected).all()
        assert score == sum(points for _, points in rows)


def test_spawned_tiles_are_twos_nine_times_in_ten_and_uniform_over_cells():
    stream, cells, fours = Stream(7), np.zeros(16), 0
    for _ in range(16000):
        board = g2048.spawn(0, stream)
        cell = (board.bit_length() - 1) // 4
        cells[cell] += 1
        fours += board >> (4 * cell) == 2
    assert abs(fours / 16000 - 0.1) < 4 * (0.09 / 16000) ** 0.5
    assert ((cells - 1000) ** 2 / 1000).sum() < 37.7  # chi-square, 15 degrees of freedom, p 0.001


def test_the_score_of_2048_is_the_games_own():
    env = make("twenty_forty_eight")
    env.reset(3)
    total = 0.0
    while True:
        before = env.engine.tiles.sum()
        action = env.sample_random_action()
        _, reward, terminated, truncated, info = env.step(action)
        total += reward
        assert env.engine.tiles.sum() - before in (0, 2, 4)
        if terminated or truncated:
            break
    assert info["total_score"] == total == env.score
    assert info["reported_score"] == pytest.approx(10 * np.log2(total))
    assert reported_score("twenty_forty_eight", 0) == 0
    assert reported_score("tetris", 7) == 7


def test_sokoban_steps_equal_the_oracle_except_its_known_defect():
    levels = [Level(tuple(LEVEL_1)), Level(tuple(LEVEL_2))]
    for case in oracle("sokoban_steps")["cases"]:
        env = make("sokoban", levels=levels)
        env.reset(0)
        finished = False
        for expected in case["steps"]:
            _, reward, terminated, truncated, info = env.step(expected["action"])
            assert reward == pytest.approx(expected["reward"])
            assert (terminated, truncated) == (expected["terminated"], expected["truncated"])
            for key in ("total_score", "boxes_on_target", "level", "player"):
                assert info[key] == expected[key]
            finished |= expected["level"] == 2
            # The reference leaves the box that completes a level out of perf_score.
            assert info["perf_score"] == (expected["total_score"] if finished else expected["perf_score"])


def test_shipped_levels_are_solved_by_their_solutions_in_one_episode():
    env = make("sokoban")
    env.reset(0)
    total = 0.0
    for level in shipped_levels():
        solution = solve(level)
        assert solution is not None
        for action in solution.actions:
            _, reward, terminated, truncated, info = env.step(action)
            total += reward
            assert not truncated
    assert terminated
    assert info["all_levels_finished"]
    assert info["end"] == "game over"
    boxes = sum(level.boxes.bit_count() for level in shipped_levels())
    assert info["total_score"] == boxes


def test_sokoban_text_cached_by_changed_cells_equals_a_fresh_one():
    env = make("sokoban")
    env.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(150):
        observation, _, terminated, truncated, _ = env.step(env.engine.random_action(rng))
        fresh = make("sokoban")
        fresh.engine.set_state(env.engine.get_state())
        assert observation == fresh.text()
        if terminated or truncated:
            env.reset(0)


def test_failed_push_is_no_move_and_moves_do_not_push():
    env = make("sokoban", levels=[Level(("#####", "#@$?#", "#####"))])
    env.reset(0)
    _, _, _, _, info = env.step("right")
    assert info["player"] == [1, 1]
    _, _, _, _, info = env.step("push left")
    assert info["player"] == [1, 1]
    _, reward, terminated, _, info = env.step("Push  Right")
    assert reward == pytest.approx(10.9)
    assert terminated
    assert info["total_score"] == 1


def brute_pushes(level: Level) -> int:
    """Least pushes by breadth-first search over (player, boxes), moves free."""
    frontier, seen, pushes = {(level.player, level.boxes)}, set(), 0
    while frontier:
        stack, following = list(frontier), set()
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            player, boxes = state
            if boxes == level.targets:
                return pushes
            for step in level.steps:
                cell = player + step
                if level.walls >> cell & 1:
                    continue
                if not boxes >> cell & 1:
                    stack.append((cell, boxes))
                elif not (level.walls | boxes) >> (cell + step) & 1:
                    following.add((cell, boxes ^ (1 << cell | 1 << (cell + step))))
        frontier, pushes = following, pushes + 1
    return -1


@pytest.mark.parametrize("seed", range(6))
def test_generated_levels_keep_their_certificate(seed):
    made = generate(np.random.default_rng(seed), rows=6, columns=6, boxes=2, pushes=(3, 40))
    assert made.solution.pushes == brute_pushes(made.level)
    again = generate(np.random.default_rng(seed), rows=6, columns=6, boxes=2, pushes=(3, 40))
    assert again == made


def test_fresh_levels_are_drawn_from_the_seed_at_every_reset():
    fresh = {"count": 2, "rows": 6, "columns": 6, "boxes": 1, "pushes": (3, 9)}
    env, other = make("sokoban", fresh=fresh), make("sokoban", fresh=fresh)
    env.reset(1)
    other.reset(1)
    first = env.engine.levels
    assert first == other.engine.levels
    assert len(first) == 2
    for level in first:
        solution = solve(level)
        assert solution is not None
        assert 3 <= solution.pushes <= 9
    env.reset()
    assert env.engine.levels != first
    with pytest.raises(UsageError, match="not understood"):
        make("sokoban", fresh={"row": 5}).reset(0)
    with pytest.raises(UsageError, match="both"):
        make("sokoban", fresh=fresh, levels=first)


def test_an_unsolvable_level_has_no_solution():
    assert solve(Level(("######", "#$  ?#", "#@   #", "######"))) is None


def test_stuck_rule_ends_an_episode_after_so_many_unchanged_observations():
    env = make("sokoban")
    env.reset(0)
    ends = [env.step("no_op") for _ in range(5)]
    assert [end[2] for end in ends] == [False] * 4 + [True]
    assert ends[-1][4]["end"] == "stuck"
    with pytest.raises(UsageError, match="episode is over"):
        env.step("up")


def test_step_limit_truncates_and_counts_anew_in_each_level():
    levels = [Level(("#####", "#@$?#", "#####")), Level(("######", "#@ $?#", "######"))]
    env = make("sokoban", levels=levels, max_steps=2)
    env.reset(0)
    assert not env.step("push right")[3]
    assert env.step("right")[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step("left")
    assert (terminated, truncated, info["end"]) == (False, True, "step limit")


@pytest.mark.parametrize("name", own_games())
def test_same_seed_same_episode_and_state_restores_exactly(name):
    env, other = make(name), make(name)
    first, second = env.reset(5), other.reset(5)
    assert repr(first[0]) == repr(second[0])
    actions = [env.sample_random_action() for _ in range(12)]
    for action in actions[:6]:
        a, b = env.step(action), other.step(action)
        assert repr(a[:4]) == repr(b[:4])
        if a[2] or a[3]:
            return
    kept = json.loads(json.dumps(env.get_state()))
    trail = []
    for action in actions[6:]:
        trail.append(env.step(action))
        if trail[-1][2] or trail[-1][3]:
            break
    back = make(name)
    back.set_state(kept)
    for action, expected in zip(actions[6:], trail):
        assert repr(back.step(action)) == repr(expected)
    assert repr(back.get_state()) == repr(env.get_state())


@pytest.mark.parametrize("name", own_games())
def test_every_mode_observes_what_it_says(name):
    for mode in ("text", "vision", "both"):
        observation, _ = make(name, observation_mode=mode).reset(1)
        if mode == "text":
            assert isinstance(observation, str)
            assert observation
            continue
        image = observation["image"]
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
        assert image.std() > 0
        assert bool(observation["text"]) == (mode == "both")


def test_environments_leave_global_random_state_alone():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    for name in own_games():
        env = make(name)
        env.reset(1)
        env.step(env.sample_random_action())
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_six_values_carry_observation_fields_and_write_frames(tmp_path):
    env = SixValueEnv(make("twenty_forty_eight", observation_mode="both"), tmp_path)
    observation, _ = env.reset(seed=42, max_memory=4, episode_id=2)
    assert observation.game_trajectory.maxlen == 4
    observation, reward, terminated, truncated, info, perf = env.step("left", "because", 1.5)
    assert observation.img_path == str(tmp_path / "env_obs_e002_s0001.png")
    assert Path(observation.img_path).is_file()
    assert observation.textual_representation
    assert perf == reward
    assert (info["thought"], info["time_taken_s"]) == ("because", 1.5)
    assert not terminated
    assert not truncated


def test_unknown_action_is_no_step_of_the_game():
    env = make("twenty_forty_eight")
    observation, _ = env.reset(0)
    again, reward, _, _, info = env.step("sideways")
    assert (again, reward, info["known_action"], info["perf_score"]) == (observation, 0.0, False, 0.0)


def test_configuration_maps_names_and_limits(tmp_path):
    path = tmp_path / "game_env_config.json"
    path.write_text(json.dumps({"action_mapping": {"North": 0}, "max_unchanged_steps_for_termination": 2}))
    env = make("twenty_forty_eight", config=path)
    env.reset(0)
    assert env.actions == ("north",)
    assert env.step("NORTH")[4]["known_action"]
    env.reset(0)
    assert not env.step("up")[2]
    assert env.step("up")[2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "action_mapping"),
        ("nonsense", "not JSON"),
        ('{"action_mapping": {"a": 0}, "max_unchanged_steps_for_termination": 0}', "max_unchanged"),
        ('{"action_mapping": {"a": 0}, "env_init_kwargs": 3}', "env_init_kwargs"),
    ],
)
def test_bad_configurations_say_what_is_wrong(tmp_path, content, words):
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Level 1\n#####\n#@$?#\n####", "row 3: 4 symbols"),
        ("Level 1\n#####\n#@$x#\n#####", "column 4: unknown symbol 'x'"),
        ("Level 1\n#####\n# $?#\n#####", "0 players"),
        ("Level 1\n#####\n#@$ #\n#####", "1 boxes and 0 targets"),
        ("Level 1\n#####\n@ $?#\n#####", "border"),
        ("#####", "before the first heading"),
        ("", "no level found"),
    ],
)
def test_bad_level_files_say_where(text, words):
    with pytest.raises(DataError, match=words):
        parse_levels(text)


def test_other_bad_input_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="level 1: the border"):
        make("sokoban", levels=[Level(("#####", "#@$? ", "#####"))])
    with pytest.raises(DataError, match="at least one level"):
        make("sokoban", levels=[])
    with pytest.raises(UsageError, match="no game 'sokobn'; did you mean 'sokoban'"):
        make("sokobn")
    with pytest.raises(UsageError, match="observation mode"):
        make("sokoban", observation_mode="smell")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unexpected keyword"):
        make("sokoban", colour=3)
    with pytest.raises(DataError, match="no level file"):
        read_levels(tmp_path / "none.txt")
    env = make("sokoban")
    with pytest.raises(UsageError, match="before reset"):
        env.step("up")
    with pytest.raises(UsageError, match="at least 0"):
        env.reset(-1)
    env.reset(0)
    with pytest.raises(UsageError, match="empty"):
        env.step("  ")
    with pytest.raises(DataError, match="no power of two"):
        g2048.pack([[3, 0, 0, 0]] + [[0] * 4] * 3)
    with pytest.raises(UsageError, match="max_steps"):
        make("sokoban", max_steps=0)
    assert GameConfig().action_mapping is None
