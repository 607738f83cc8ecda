"""Players, replays and the Gymnasium interface."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from PIL import Image

from assay.agents.lmgame.env import games, make
from assay.agents.lmgame.games import candy_crush as candy
from assay.agents.lmgame.games import twenty_forty_eight as g2048
from assay.agents.lmgame.gym import IDS, register
from assay.agents.lmgame.replay import EpisodeLog, frames, read_log, to_gif, to_html
from assay.agents.lmgame.solvers.players import TerminalPlayer, make_player, play, players
from assay.agents.lmgame.solvers.puzzle import cascade, expectimax, placements
from assay.core.errors import DataError, UsageError
from assay.systems.environment import Environment


@pytest.mark.parametrize("game", ["sokoban", "twenty_forty_eight", "candy_crush", "tetris", "platformer", "courtroom"])
def test_experts_beat_random_players_and_players_repeat_themselves(game):
    scores, limit = {}, 700 if game == "twenty_forty_eight" else 120
    for name in ("random", "expert"):
        results = [
            play(make(game, observation_mode="text"), make_player(game, name, 1), seed=seed, max_steps=limit)
            for seed in (0, 0, 1)
        ]
        assert results[0] == results[1]
        scores[name] = results[0].score + results[2].score
    assert scores["expert"] > 2 * scores["random"]
    assert players(game)[0] == "random"
    assert isinstance(make(game), Environment)


def test_players_of_known_skill_lie_between_the_expert_and_chance():
    def score(name: str) -> float:
        seeds = range(6)
        return sum(play(make("candy_crush"), make_player("candy_crush", name, s), seed=s).score for s in seeds)

    assert score("noisy:0") == score("expert")
    assert score("expert") > score("noisy:0.3") > score("noisy:0.9") > 0
    for name in ("noisy:2", "noisy:x"):
        with pytest.raises(UsageError, match="from 0 to 1"):
            make_player("candy_crush", name)


def test_a_person_at_the_terminal_types_actions():
    shown, typed = [], iter(["", "left", "up"])
    person = TerminalPlayer(read=lambda prompt: next(typed), write=shown.append)
    result = play(make("twenty_forty_eight"), person, seed=0, max_steps=2)
    assert result.steps == 2
    assert "'board'" in shown[0]
    assert shown[1] == "Type an action."
    assert isinstance(make_player("tetris", "human"), TerminalPlayer)


def test_expectimax_takes_the_better_of_two_moves_and_none_when_there_is_none():
    # A merge to the left clears the board; every other move leaves more tiles.
    assert expectimax(g2048.pack([[2, 2, 4, 8], [4, 8, 16, 32], [2, 4, 8, 16], [4, 8, 16, 32]])) in (
        g2048.LEFT,
        g2048.RIGHT,
    )
    assert expectimax(g2048.pack([[2, 4, 2, 4], [4, 2, 4, 2]] * 2)) is None


def plain_cascade(cells: np.ndarray, a, b, follow: bool) -> int:
    cells, removed = cells.copy(), 0
    cells[a], cells[b] = cells[b], cells[a]
    while True:
        gone = set()
        for r, c in np.ndindex(cells.shape):
            for line in ([(r, c), (r, c + 1), (r, c + 2)], [(r, c), (r + 1, c), (r + 2, c)]):
                inside = line[2][0] < cells.shape[0] and line[2][1] < cells.shape[1]
                if inside and cells[r, c] >= 0 and len({cells[cell] for cell in line}) == 1:
                    gone.update(line)
        removed += len(gone)
        if not gone or not follow:
            return removed
        for cell in gone:
            cells[cell] = -1
        for c in range(cells.shape[1]):
            left = [colour for colour in cells[:, c] if colour >= 0]
            cells[:, c] = [-1] * (len(cells) - len(left)) + left


def test_cascades_are_counted_as_they_fall_with_blank_refills():
    longer = 0
    for seed in range(12):
        game = candy.CandyCrush(7, 6, 3)
        game.reset(np.random.default_rng(seed))
        cells = np.array(game.board.cells())
        for action in game.effective_actions():
            a, b = candy.swap_of(action, 7, 6)
            first = cascade(game, action, follow=False)
            assert first == plain_cascade(cells, a, b, False)
            assert cascade(game, action) == plain_cascade(cells, a, b, True)
            longer += cascade(game, action) > first
        assert np.array(game.board.cells()).tolist() == cells.tolist()
    assert longer > 10


@pytest.mark.parametrize("seed", range(3))
def test_planned_placements_of_tetris_are_what_the_game_does(seed):
    env = make("tetris")
    env.reset(seed)
    player = make_player("tetris", "greedy")
    for _ in range(15):
        game = env.engine
        plans = placements(game.rows, game.width, game.kind)
        plan, rows, lines = plans[seed * 3 % len(plans)]
        turns, shift = plan
        twin = make("tetris")
        twin.reset(0)
        twin.engine.set_state(game.get_state())
        before = twin.engine.lines
        parts = [("rotate_right", turns), ("left" if shift < 0 else "right", abs(shift)), ("hard_drop", 1)]
        twin.step("".join(f"({name},{count})" for name, count in parts if count))
        assert twin.engine.rows == rows
        assert twin.engine.lines - before == lines
        env.step(player.act(env))


def test_unknown_players_are_named():
    with pytest.raises(UsageError, match=r"no player of tetris 'beem'; did you mean 'beam'"):
        make_player("tetris", "beem")


def written(tmp_path, game: str, mode: str, steps: int = 12):
    env = make(game, observation_mode=mode)
    env.reset(4)
    images, path = [env.image()], tmp_path / f"{game}.jsonl"
    with EpisodeLog(path, env) as log:
        for _ in range(steps):
            action = env.sample_random_action()
            result = env.step(action)
            log.step(action, result, thought="</script><b>", time_taken_s=0.5)
            images.append(env.image())
            if result[2] or result[3]:
                break
    return path, images


@pytest.mark.parametrize("game", ["sokoban", "twenty_forty_eight", "candy_crush", "tetris", "platformer", "courtroom"])
def test_a_replay_shows_exactly_what_was_played(tmp_path, game):
    path, images = written(tmp_path, game, "both")
    again = list(frames(path))
    assert len(again) == len(images)
    assert all(np.array_equal(frame.image, image) for frame, image in zip(again, images))
    with Image.open(to_gif(path, tmp_path / "out.gif")) as gif:
        assert gif.format == "GIF"
        assert getattr(gif, "n_frames", 1) > 1 or len({image.tobytes() for image in images}) == 1
    page = to_html(path, tmp_path / "out.html").read_text()
    assert page.count("</script>") == 1
    assert "http" not in page.replace("https://", "http")[:400]


def test_logs_have_the_published_fields_and_are_never_appended_to(tmp_path):
    path, _ = written(tmp_path, "sokoban", "text", 3)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert set(rows[1]) == {
        "episode_id", "step", "agent_action", "thought", "reward", "perf_score", "info", "agent_observation",
        "terminated", "truncated", "time_taken_s",
    }  # fmt: skip
    with pytest.raises(UsageError, match="exists"):
        written(tmp_path, "sokoban", "text", 3)


def test_bad_logs_say_where(tmp_path):
    path, _ = written(tmp_path, "twenty_forty_eight", "text", 5)
    lines = path.read_text().splitlines()
    other = tmp_path / "other.jsonl"
    row = json.loads(lines[2])
    row["reward"] += 2
    other.write_text("\n".join([*lines[:2], json.dumps(row)]))
    with pytest.raises(DataError, match="step 2"):
        list(frames(other))
    other.write_text("\n".join(lines[1:]))
    with pytest.raises(UsageError, match="give game"):
        list(frames(other))
    assert len(list(frames(other, game="twenty_forty_eight", seed=4))) == len(lines)
    other.write_text("{}\n")
    with pytest.raises(DataError, match="no field 'step'"):
        read_log(other)
    other.write_text("[1]\n")
    with pytest.raises(DataError, match="line 1"):
        read_log(other)
    other.write_text("")
    with pytest.raises(DataError, match="no step"):
        read_log(other)
    with pytest.raises(DataError, match="none cannot be read"):
        read_log(tmp_path / "none")


@pytest.mark.parametrize("name", [name for name in IDS if "Mario" not in name])
def test_gymnasium_accepts_every_game(name):
    register()
    mode = "both" if "Platformer" in name or "Courtroom" in name else "text"
    env = gymnasium.make(name, observation_mode=mode, action_type="index", disable_env_checker=True)
    check_env(env.unwrapped, skip_render_check=True)
    observation, _ = env.reset(seed=3)
    twin, _ = make(IDS[name], observation_mode=mode).reset(3)
    assert repr(observation) == repr(twin)
    textual = gymnasium.make(name, render_mode="rgb_array")
    textual.reset(seed=0)
    _, _, terminated, truncated, info = textual.step("gibberish")
    assert (terminated, truncated, info["known_action"]) == (False, False, False)
    assert textual.render().ndim == 3  # type: ignore[union-attr]


def test_vector_environments_play_what_single_ones_play_and_restart_on_the_next_step():
    vector = gymnasium.make_vec("LMGame/TwentyFortyEight-v0", num_envs=3)
    observation, _ = vector.reset(seed=10)
    singles = [make("twenty_forty_eight") for _ in range(3)]
    for i, env in enumerate(singles):
        env.reset(10 + i)
    assert [g2048.pack(np.where(board > 0, 1 << board.astype(int), 0)) for board in observation] == [
        env.engine.board for env in singles
    ]
    rng, over = np.random.default_rng(0), np.zeros(3, bool)
    ends = restarts = 0
    for _ in range(700):
        observation, rewards, terminated, truncated, info = vector.step(rng.integers(4, size=3))
        assert not truncated.any()
        restarts += int(over.sum())
        assert (rewards[over] == 0).all()
        assert (info["total_score"][over] == 0).all()
        assert not terminated[over].any()
        assert ((observation[over] > 0).sum(axis=(1, 2)) == 2).all()
        over = terminated
        ends += int(terminated.sum())
    assert ends > 3
    assert restarts >= ends - 3
    tetris = gymnasium.make_vec("LMGame/Tetris-v0", num_envs=2, width=6)
    observation, _ = tetris.reset(seed=[5, 5])
    assert observation.shape == (2, 20, 6)
    assert (observation[0] == observation[1]).all()
    candies = gymnasium.make_vec("LMGame/CandyCrush-v0", num_envs=2, moves=3)
    candies.reset(seed=1)
    for number in range(1, 5):
        observation, _, terminated, _, info = candies.step(np.array([0, 111]))
        assert terminated.tolist() == [number == 3] * 2
        assert info["effective"].any(axis=1).all()
    assert candies.observation_space.contains(observation)
    with pytest.raises(UsageError, match="one for each of 2"):
        tetris.reset(seed=[1])


def test_the_module_registers_when_gymnasium_imports_it_by_name():
    env = gymnasium.make("assay.agents.lmgame.gym:LMGame/Sokoban-v0", action_type="index", max_steps=7)
    env.reset(seed=0)
    assert env.unwrapped.env.max_steps == 7  # type: ignore[attr-defined]


def test_every_game_has_a_name_in_gymnasium():
    assert set(games()) == set(IDS.values())
