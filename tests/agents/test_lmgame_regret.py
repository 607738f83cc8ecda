"""Regret of steps against the solvers, and films of episodes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.agents.lmgame import analyses, recipes
from assay.agents.lmgame.benchmark import LMGame
from assay.agents.lmgame.episode import LOG
from assay.agents.lmgame.games import twenty_forty_eight as g2048
from assay.agents.lmgame.games.candy_crush import CandyCrush
from assay.agents.lmgame.games.sokoban import Level, Sokoban
from assay.agents.lmgame.games.tetris import Tetris
from assay.agents.lmgame.games.twenty_forty_eight import TwentyFortyEight
from assay.agents.lmgame.methods import METHODS
from assay.agents.lmgame.regret import JUDGED, judge, regrets
from assay.agents.lmgame.solvers.sokoban_search import GaveUp, search
from assay.core.errors import UsageError
from assay.core.results import Runs

CORRIDOR = Level(("#######", "#@ $ ?#", "#     #", "#######"))


def test_a_push_gives_away_what_must_be_pushed_back_and_a_corner_loses_the_level() -> None:
    game = Sokoban([CORRIDOR])
    assert judge("sokoban", game, "right") is None
    game.play("right")
    good = judge("sokoban", game, "push right")
    assert good is not None
    assert (good.regret, good.blunder, good.best) == (0.0, False, "push right")
    twin = Sokoban([Level(("######", "#    #", "# $  #", "#@  ?#", "######"))])
    for action in ("up", "up", "right"):
        twin.play(action)
    lost = judge("sokoban", twin, "push down")  # onto the lowest row, where the target lies: two pushes right are left
    assert lost is not None
    assert lost.regret == 0.0
    cornered = Sokoban([Level(("#####", "#  ?#", "# $ #", "# @ #", "#####"))])
    cornered.play("right")
    cornered.play("up")
    left = judge("sokoban", cornered, "push left")  # against the left wall, away from the target's column
    assert left is not None
    assert left.blunder


def test_sokoban_regret_equals_the_difference_of_shortest_solutions() -> None:
    rng, game = np.random.default_rng(3), Sokoban()
    judged = 0
    while judged < 8:
        action = game.random_action(rng)
        twin = Sokoban()
        twin.set_state(game.get_state())
        found = judge("sokoban", twin, action)
        before = search(game.level, player=game.player, boxes=game.boxes)
        index = game.index
        game.play(action)
        if found is not None and before is not None and game.index == index:
            judged += 1
            after = search(game.level, player=game.player, boxes=game.boxes)
            assert found.blunder == (after is None)
            assert found.regret == (before.pushes if after is None else 1 + after.pushes - before.pushes)
        if before is None or game.finished:
            game.reset(rng)
    with pytest.raises(GaveUp):
        search(game.levels[-1], max_nodes=1)


def test_the_best_slide_has_no_regret_and_the_worst_one_all_of_it() -> None:
    game = TwentyFortyEight()
    game.reset(np.random.default_rng(0))
    found = {name: judge("twenty_forty_eight", game, name) for name in g2048.ACTIONS}
    lost = {name: j.regret for name, j in found.items() if j is not None}
    assert min(lost.values()) == 0.0
    assert max(lost.values()) == 1.0
    assert {j.best for j in found.values() if j is not None} == {min(lost, key=lambda name: lost[name])}
    assert len(lost) == len(g2048.legal(game.board))
    assert judge("twenty_forty_eight", game, "nonsense") is None


def test_a_swap_without_a_run_gives_away_the_best_swap() -> None:
    game = CandyCrush()
    game.reset(np.random.default_rng(1))
    good = game.effective_actions()
    idle = next(i for i in range(len(game.actions)) if i not in good)
    wasted, unread = (judge("candy_crush", game, action) for action in (game.actions[idle], "no swap"))
    assert wasted is not None
    assert wasted == unread
    assert wasted.blunder
    best = judge("candy_crush", game, wasted.best)
    assert best is not None
    assert (best.regret, best.blunder) == (0.0, False)
    assert wasted.regret >= 3


def test_a_piece_is_judged_when_it_comes_down_against_every_placement() -> None:
    rng = np.random.default_rng(5)
    game = Tetris()
    game.reset(rng)
    for _ in range(12):
        lost = {}
        for turns, shift in itertools.product(range(4), range(-5, 6)):
            parts = [("rotate_right", turns), ("left" if shift < 0 else "right", abs(shift)), ("hard_drop", 1)]
            action = "".join(f"({name},{frames})" for name, frames in parts if frames)
            twin = Tetris()
            twin.set_state(game.get_state())
            found = judge("tetris", twin, action)
            assert found is not None
            lost[action] = found.regret
            best = found.best
        assert min(lost.values()) == lost[best] == 0.0
        assert max(lost.values()) > 0
        game.play(game.parse(sorted(lost, key=lambda a: lost[a])[len(lost) // 2]))  # type: ignore[arg-type]
    assert judge("tetris", game, "left") is None


def test_the_table_orders_players_and_needs_logs(tmp_path: Path) -> None:
    games = "candy_crush,twenty_forty_eight"
    bench = LMGame(games, harness="false", runs=2, max_steps=12)
    runs = [assay.run(bench, METHODS[name](), into=tmp_path / name) for name in ("random", "noisy", "expert")]
    table, worst = analyses.regret(Runs(runs), worst=2)
    for _, part in table.frame.group_by("game", maintain_order=True):
        random, noisy, expert = part["regret"].to_list()
        assert random > noisy >= expert == 0.0
        assert part["best"].to_list()[-1] == 1.0
        assert part["judged"].to_list() <= part["steps"].to_list()
    assert worst.frame.height == 4
    assert worst.frame["blunder"].all()
    bare = assay.run(
        LMGame("candy_crush", harness="false", runs=1, logs=False), METHODS["random"](), into=tmp_path / "x"
    )
    with pytest.raises(UsageError, match="logs=true"):
        analyses.regret(Runs([bare]))
    with pytest.raises(UsageError, match=JUDGED[0]):
        judge("courtroom", None, "a")
    log = next((tmp_path / "expert").rglob(LOG))
    assert all(j is None or j.regret == 0 for _, j in regrets(log))


def test_an_episode_becomes_a_film(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    assay.run(LMGame("tetris", harness="false", runs=1, max_steps=4), METHODS["random"](), into=tmp_path / "run")
    log = next((tmp_path / "run").rglob(LOG))
    recipes.replay(tmp_path, log=str(log), form="mp4, gif", seconds=0.5)
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "episode.mp4"))
    assert (count, seconds) == (5, pytest.approx(2.5, abs=0.1))
    assert (tmp_path / "episode.gif").is_file()
    assert not (tmp_path / "episode.html").exists()
