"""Episodes as trials: recorded, resumed in the middle, replayed, published formats, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import assay
from assay.agents.lmgame.benchmark import LMGame, baselines
from assay.agents.lmgame.episode import LOG, SUMMARY, UNREAD, Setup, play_model, play_player
from assay.agents.lmgame.harness import FULL, Agent, Modules
from assay.agents.lmgame.methods import METHODS
from assay.agents.lmgame.prompts import prompts_for
from assay.agents.lmgame.published import read_performance, read_run_folder
from assay.agents.lmgame.replay import frames, read_log, to_gif, to_html
from assay.agents.lmgame.simulated import SimulatedModel, choices, failed_here, worth
from assay.core.errors import DataError, ProviderError, UsageError
from assay.systems.scripted import ReplayModel


def simulated(harness: Modules | bool, setup: Setup, **places: Path):
    agent = Agent(SimulatedModel(), harness, prompts_for(setup.game))
    return asyncio.run(play_model(setup, agent, **places))


def test_a_run_records_scores_rows_and_logs_that_replay(tmp_path: Path) -> None:
    bench = LMGame("candy_crush", harness="both", runs=2)
    run = assay.run(bench, METHODS["simulated"](), into=tmp_path / "run")
    assert run.records.height == 4
    assert set(run.records["status"]) == {"ok"}
    assert run.rows("candy_crush").height == 200
    means = dict(run.records.select("harness", "score").group_by("harness").mean().iter_rows())
    assert means["true"] > means["false"]
    logs = sorted((tmp_path / "run").rglob(LOG))
    assert len(logs) == 4
    last = list(frames(logs[0]))[-1]
    recorded = {float(x) for x in run.records["score"]}
    assert last.score in recorded
    low, high = baselines()["candy_crush"]["random"], baselines()["candy_crush"]["expert"]
    for score, skill in run.records.select("reported", "skill").iter_rows():
        assert skill == pytest.approx((score - low) / (high - low))


def test_players_play_through_the_same_benchmark(tmp_path: Path) -> None:
    run = assay.run(LMGame("sokoban", harness="false", runs=1), METHODS["astar"](), into=tmp_path / "run")
    assert run.records["score"].to_list() == [16.0]
    assert run.records["skill"].to_list() == [1.0]
    assert run.records["end"].to_list() == ["game over"]


def test_a_player_is_left_out_of_games_that_it_cannot_play(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="beam"):
        assay.run(LMGame("sokoban", runs=1), METHODS["beam"](), into=tmp_path / "run")
    with pytest.raises(UsageError, match="reads texts, no pictures"):
        assay.run(LMGame("candy_crush", runs=1, mode="vision"), METHODS["simulated"](), into=tmp_path / "other")


def test_an_interrupted_episode_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    setup = Setup("twenty_forty_eight", "text", max_steps=40, seed=3)
    whole = simulated(FULL, setup)

    class Breaks(SimulatedModel):
        left = 31

        def _answer(self, messages, rng):
            self.left -= 1
            if self.left < 0:
                raise ProviderError("cut off")
            return super()._answer(messages, rng)

    place = tmp_path / "steps.jsonl"
    agent = Agent(Breaks(), FULL, prompts_for(setup.game))
    with pytest.raises(ProviderError):
        asyncio.run(play_model(setup, agent, checkpoint=place))
    kept = len(place.read_text().splitlines())
    assert 0 < kept < 40
    with place.open("a") as file:
        file.write('{"torn')
    again = simulated(FULL, setup, checkpoint=place, folder=tmp_path / "log")
    assert again.output() == whole.output()
    assert [r["action"] for r in again.rows] == [r["action"] for r in whole.rows]
    assert len(read_log(tmp_path / "log" / LOG).steps) == whole.steps


def test_a_reply_without_a_move_costs_a_turn_and_is_counted() -> None:
    setup = Setup("candy_crush", "text", max_steps=3, seed=1)
    agent = Agent(ReplayModel(["no idea", "move: ((0,0),(0,1))", "move: sideways"]), False, prompts_for("candy_crush"))
    played = asyncio.run(play_model(setup, agent))
    assert (played.steps, played.unread, played.unknown) == (3, 1, 2)
    assert played.rows[0]["action"] == UNREAD


def test_vision_leaves_frames_and_the_log_names_them(tmp_path: Path) -> None:
    setup = Setup("twenty_forty_eight", "vision", max_steps=2, seed=1)
    agent = Agent(ReplayModel(["move: up", "move: left"]), False, prompts_for(setup.game))
    asyncio.run(play_model(setup, agent, folder=tmp_path))
    steps = read_log(tmp_path / LOG).steps
    assert [(tmp_path / s["agent_observation"]["img_path"]).is_file() for s in steps] == [True, True]


def test_replays_as_gif_and_page(tmp_path: Path) -> None:
    play_player(Setup("candy_crush", "text", max_steps=3, seed=1), "random", 0, tmp_path)
    from PIL import Image

    with Image.open(to_gif(tmp_path / LOG, tmp_path / "e.gif")) as gif:
        assert getattr(gif, "n_frames", 1) == 4
    assert "<html" in to_html(tmp_path / LOG, tmp_path / "e.html").read_text()


def test_run_folders_are_read_back(tmp_path: Path) -> None:
    played = play_player(Setup("tetris", "text", max_steps=30, seed=5), "random", 0, tmp_path)
    (row,) = read_run_folder(tmp_path)
    assert (row["game"], row["score"], row["steps"], row["seed"]) == ("tetris", played.score, played.steps, 5)
    summary = json.loads((tmp_path / SUMMARY).read_text())
    assert summary["episodes"][0]["total_steps"] == played.steps
    (tmp_path / LOG).unlink()
    with pytest.raises(DataError, match="no run folder"):
        read_run_folder(tmp_path)


def results(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_published_results_are_scored_as_a_submission(tmp_path: Path) -> None:
    path = results(
        tmp_path / "r.json", {"a": {"harness_true": {"tetris": [10, 20, 30]}, "harness_false": {"tetris": [8, 9, 10]}}}
    )
    run = assay.run(LMGame("tetris", model="a"), f"submission:{path}", into=tmp_path / "run")
    found = sorted(run.records.select("harness", "score").iter_rows())
    assert found == [("false", 8), ("false", 9), ("false", 10), ("true", 10), ("true", 20), ("true", 30)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "no object of models"),
        ({"a": {"harness_true": {"pacman": [1]}}}, "pacman"),
        ({"a": {"harness_true": {"tetris": [1, "x"]}}}, "run 2: 'x' is no number"),
        ({"a": {"harness": {"tetris": [1]}}}, "neither harness_true nor harness_false"),
        ({"a": {"harness_true": {"tetris": 4}}}, "no list of run scores"),
    ],
)
def test_bad_results_files_are_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_performance(results(tmp_path / "r.json", content))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"games": "tetris,pong"}, "no game 'pong'"),
        ({"games": "tetris,tetris"}, "twice"),
        ({"mode": "smell"}, "option mode"),
        ({"runs": 0}, "at least 1 run"),
        ({"grid": "5"}, "5x5"),
        ({"max_steps": 0}, "at least 1"),
        ({"max_memory": -1}, "below 0"),
        ({"config": "x.json"}, "one game"),
        ({"fresh": True, "levels": "x"}, "exclude each other"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LMGame(**options)


def test_changed_games_are_not_held_against_the_baselines() -> None:
    assert LMGame().standard("sokoban")
    assert not LMGame(fresh=True).standard("sokoban")
    assert LMGame(fresh=True).standard("tetris")
    assert not LMGame(max_steps=5).standard("tetris")


def test_fresh_levels_follow_the_seed() -> None:
    bench = LMGame("sokoban", fresh=True)
    texts = []
    for seed in (1, 1, 2):
        env = bench.setup("sokoban", seed).make()
        texts.append(env.reset(seed)[0])
    assert texts[0] == texts[1] != texts[2]


def test_the_simulated_player_is_deterministic_and_sees_what_failed() -> None:
    text = "State:\n{'board': [[2, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], 'highest_tile': 2}"
    found = choices(text)
    assert found is not None
    assert worth(found[0], "left") == 4
    assert worth(found[0], "up") == -1
    past = f"Observation: {text}\nAction: up | Thought: x\n"
    assert failed_here(past + text, found[0]) == {"up"}
    setup = Setup("twenty_forty_eight", "text", max_steps=30, seed=9)
    assert simulated(True, setup).rows[-1]["score"] == simulated(True, setup).rows[-1]["score"]


def test_candy_worth_counts_both_ends_of_a_swap() -> None:
    board = "0|  R  G  R\n1|  B  R  B\n2|  G  B  G"
    assert worth(board, "((0,1),(1,1))") == 3
    assert worth(board, "((0,0),(0,1))") == -1


def test_it_keeps_the_rules_of_every_benchmark() -> None:
    from assay.core.testing import check_benchmark

    found = check_benchmark("lmgame", options={"games": "candy_crush"})
    assert {result.outcome for result in found} == {"passed"}
