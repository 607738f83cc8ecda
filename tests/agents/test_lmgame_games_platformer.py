"""The platformer: memory, physics, levels, the scripted runner."""

from __future__ import annotations

import numpy as np
import pytest

from assay.agents.lmgame.env import GameConfig, make
from assay.agents.lmgame.games.console import ACTIONS, NES_BUTTONS, button_vector
from assay.agents.lmgame.games.platformer import BODY_H, UNIT, World
from assay.agents.lmgame.games.platformer_level import (
    build,
    check_platform_level,
    draw_level,
    own_level,
)
from assay.agents.lmgame.solvers.runner import Runner, certified_level, finishes
from assay.core.errors import DataError, UsageError

FLAT = build([("flat", 60), ("flag", 16)])


def hold(world: World, name: str, frames: int) -> None:
    for _ in range(frames):
        world.frame(ACTIONS[name])


def test_the_interface_is_that_of_the_console():
    env = make("platformer")
    observation, info = env.reset(0)
    assert observation["image"].shape == (224, 240, 3)
    assert len(env.actions) == 13
    assert {"score", "lives", "xscrollHi", "xscrollLo", "levelHi", "levelLo", "time", "coins"} <= set(info)
    assert (info["lives"], info["time"]) == (3, 400)
    assert abs(own_level().flag * 16 - 3200) < 100
    assert button_vector(ACTIONS["right_a_b"]) == [1, 0, 0, 0, 0, 0, 0, 1, 1]
    assert len(NES_BUTTONS) == 9


def test_the_runner_finishes_the_shipped_level_through_actions_alone():
    env = make("platformer")
    env.reset(0)
    runner = Runner()
    total, terminated = 0.0, False
    while not terminated:
        name, frames = runner.next(env.engine.world)
        _, reward, terminated, truncated, info = env.step(f"({name},{frames})")
        assert not truncated
        total += reward
    assert info["finished"]
    assert info["lives"] == 3
    assert total == env.score == info["total_score"]
    assert env.score > 2900


@pytest.mark.parametrize("seed", [0, 1])
def test_fresh_levels_differ_and_are_certified(seed):
    level = certified_level(np.random.default_rng(seed))
    assert finishes(level)
    assert level != certified_level(np.random.default_rng(seed + 100))
    env = make("platformer", level="fresh")
    env.reset(seed)
    again = make("platformer", level="fresh")
    again.reset(seed)
    assert env.engine.world.level == again.engine.world.level


def test_a_jump_rises_higher_the_longer_it_is_held_and_running_jumps_go_further():
    def jump(run: str, fly: str, held: int) -> tuple[int, int]:
        world = World(FLAT)
        hold(world, run, 60)
        start, top = world.x, world.y
        for number in range(120):
            world.frame(ACTIONS[fly] if number < held else ACTIONS[run])
            top = min(top, world.y)
            if number > 2 and world.grounded:
                break
        return (12 * 16 - BODY_H) - top // UNIT, (world.x - start) // UNIT

    short, long = jump("noop", "a", 4)[0], jump("noop", "a", 40)[0]
    assert short < long
    assert 48 <= long <= 80
    walking, running = jump("right", "right_a", 40), jump("right_b", "right_a_b", 40)
    assert running[1] > walking[1] > 60
    assert running[0] > walking[0]


def test_walls_stop_the_runner_flush_and_never_let_it_in():
    level = build([("flat", 10), ("pipe", 3), ("flat", 20), ("flag", 16)])
    world = World(level)
    hold(world, "right_b", 200)
    assert world.x == (10 * 16 - 12) * UNIT
    rng = np.random.default_rng(0)
    names = list(ACTIONS)
    world = World(own_level())
    for _ in range(300):
        name = names[int(rng.integers(len(names)))]
        for _ in range(int(rng.integers(1, 40))):
            world.frame(ACTIONS[name])
            if not world.over:
                assert not world._blocked(world.x, world.y, 12, BODY_H)


def test_a_pit_costs_a_life_and_three_end_the_game_with_progress_kept():
    level = build([("flat", 30), ("pit", 6), ("flat", 10), ("flag", 16)])
    env = make("platformer", level=level)
    env.reset(0)
    lives, terminated = [], False
    while not terminated:
        _, _, terminated, _, info = env.step("(right_b,60)")
        lives.append(info["lives"])
    assert sorted(set(lives), reverse=True) == [3, 2, 1, 0]
    assert info["end"] == "game over"
    assert not info["finished"]
    assert env.score > 300


def test_stomping_kills_an_enemy_and_its_side_kills_the_runner():
    level = build([("flat", 14), ("enemies", 1), ("flat", 20), ("flag", 16)])
    world = World(level)
    hold(world, "noop", 400)
    assert world.lives == 2
    world = World(level)
    enemy = world.enemies[0]
    enemy[4] = 1
    world.y = enemy[1] - 40 * UNIT
    world.x, world.grounded = enemy[0] - 20 * UNIT, False
    hold(world, "noop", 1)
    world.x = enemy[0]
    while world.vy >= 0 and enemy[4] == 1:
        world.frame(ACTIONS["noop"])
    assert enemy[4] == 2
    assert world.points == 100
    assert world.vy < 0


def test_coin_blocks_give_one_coin_and_time_runs_out():
    level = build([("flat", 2), ("blocks", 2), ("flat", 30), ("flag", 16)])
    world = World(level)
    world.x = (3 * 16 + 2) * UNIT
    hold(world, "a", 60)
    hold(world, "noop", 60)
    assert world.coins == 1
    hold(world, "a", 60)
    assert world.coins == 1
    world = World(FLAT)
    hold(world, "noop", 400 * 24)
    assert world.lives == 2


def test_the_published_factor_of_x_is_kept_only_on_request():
    scores = {}
    for compatible in (False, True):
        env = make("platformer", level=FLAT, paper_compatible=compatible)
        env.reset(0)
        env.step("(right_b,200)")
        scores[compatible] = env.score
    camera = env.engine.world.camera
    assert camera >= 256
    assert scores == {False: camera, True: max(255, camera - 1)}


def test_actions_are_read_as_name_and_frames():
    engine = make("platformer").engine
    assert engine.parse("(RIGHT_A_B, 12)") == (ACTIONS["right_a_b"], 12)
    assert engine.parse("right") == (ACTIONS["right"], 1)
    assert engine.parse("('left',3)") == (ACTIONS["left"], 3)
    assert engine.parse("(fly,3)") is None
    assert engine.parse("run right fast") is None
    assert engine.parse("(right,9999)")[1] == 600
    mapped = GameConfig({"go": [0, 0, 0, 0, 0, 0, 0, 1, 0]})
    assert engine.parse("(go,2)", mapped.action_mapping) == (ACTIONS["right"], 2)
    assert engine.parse("(right,2)", mapped.action_mapping) is None


def test_bad_levels_say_where():
    rows = list(FLAT.rows)
    with pytest.raises(DataError, match="13 rows"):
        check_platform_level(rows[:-1])
    with pytest.raises(DataError, match="unknown tile 'x'"):
        check_platform_level([rows[0][:-1] + "x", *rows[1:]])
    with pytest.raises(DataError, match="pad the rows"):
        check_platform_level([rows[0], rows[1][:-1], *rows[2:]])
    with pytest.raises(DataError, match="flag"):
        check_platform_level([row.replace("F", " ") for row in rows])
    with pytest.raises(DataError, match="none of flat"):
        build([("lava", 2)])
    with pytest.raises(UsageError, match="'fresh'"):
        make("platformer", level="stale")
    assert draw_level(np.random.default_rng(0), hardness=1.0).flag > 100
