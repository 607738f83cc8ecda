"""Studies around the games: prompt optimisation, contamination, diagnostics, transfer, tables over runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.agents.lmgame import analyses, contamination, diagnostics, optimise, recipes, transfer
from assay.agents.lmgame.benchmark import LMGame
from assay.agents.lmgame.games.courtroom import Masks
from assay.agents.lmgame.games.courtroom_script import shipped_script
from assay.agents.lmgame.games.sokoban import Sokoban
from assay.agents.lmgame.methods import METHODS
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.systems.embedding import HashedNgrams
from assay.systems.scripted import ReplayModel, ScriptedChatModel, text_of

# -- prompts


async def by_length(template: str, seeds: list[int]) -> list[float]:
    """A player that scores what is said to it: known sections are worth 10 points each."""
    return [
        10.0 * sum(head in template for head in ("Rules:", "Actions:", "Reading the state:")) + s % 2 for s in seeds
    ]


def test_optimising_brings_variants_together_and_reports_by_how_much() -> None:
    variants = optimise.seed_variants("tetris")
    found = asyncio.run(
        optimise.optimise(variants, by_length, [optimise.SkeletonRewriter("tetris")], rounds=6, candidates=4)
    )
    assert len(found.variants) == 7
    assert found.std_after < 0.5 < found.std_before
    assert found.reduction == pytest.approx(1 - found.std_after / found.std_before)
    assert found.low <= found.reduction <= found.high
    assert found.true_after <= found.std_after
    assert found.mean_after > found.mean_before
    table = optimise.report(found)
    assert table.frame.height == 7
    assert "reduced by" in table.notes[0]


def test_the_luck_of_the_seeds_is_no_spread_between_prompts() -> None:
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 10, size=(400, 6, 30)) + rng.normal(0, 50, size=(400, 1, 30))
    found = np.array([optimise.spread(scores) for scores in luck])
    assert found[:, 0].mean() == pytest.approx(10 / np.sqrt(30), rel=0.1)
    assert np.median(found[:, 1]) < 0.5
    apart = luck + np.arange(6)[None, :, None] * 20
    true = np.sqrt(np.mean([optimise.spread(scores)[1] ** 2 for scores in apart]))
    assert true == pytest.approx(20 * np.std(np.arange(6), ddof=1), rel=0.02)


def test_the_budget_of_episodes_is_not_passed() -> None:
    variants = optimise.seed_variants("tetris")
    found = asyncio.run(
        optimise.optimise(variants, by_length, [optimise.SkeletonRewriter("tetris")], budget=20, batch=4)
    )
    assert found.episodes <= 20


def test_a_rewriter_that_loses_the_state_is_not_believed() -> None:
    writer = optimise.ModelRewriter(ReplayModel(["no state", "Better: {textual_representation}"]), "tetris")
    proposed = asyncio.run(writer.propose("Play: {textual_representation}", [1.0], np.random.default_rng(0)))
    assert proposed == ["Better: {textual_representation}"]
    with pytest.raises(DataError, match="textual_representation"):
        asyncio.run(optimise.optimise({"a": "x", "b": "y"}, by_length, []))


# -- contamination


def test_frames_in_order_have_tau_one_and_reversed_minus_one() -> None:
    assert contamination.kendall([0, 1, 2, 3], [0, 1, 2, 3]) == 1
    assert contamination.kendall([3, 2, 1, 0], [0, 1, 2, 3]) == -1
    assert contamination.read_order("I think\n3, 1, 2", 3) == [2, 0, 1]
    assert contamination.read_order("3, 1, 1", 3) is None


def test_a_model_that_knows_the_order_is_found_out() -> None:
    frames = [np.full((8, 8, 3), 20 * i, dtype=np.uint8) for i in range(10)]

    def by_brightness(messages, rng):
        import base64
        import io

        from PIL import Image

        parts = [p for p in messages[-1]["content"] if p["type"] == "image_url"]
        light = []
        for part in parts:
            data = base64.b64decode(part["image_url"]["url"].split(",")[1])
            light.append(np.asarray(Image.open(io.BytesIO(data))).mean())
        return ", ".join(str(int(i) + 1) for i in np.argsort(light))

    rng = np.random.default_rng(0)
    known = asyncio.run(contamination.frame_order(ScriptedChatModel(by_brightness), frames, k=4, rounds=5, rng=rng))
    assert known.tau == 1.0
    silent = asyncio.run(contamination.frame_order(ScriptedChatModel(lambda m, r: "?"), frames, rounds=4, rng=rng))
    assert (silent.tau, silent.unread) == (0.0, 4)


def test_recall_falls_when_entities_are_masked() -> None:
    script = shipped_script()
    plain = contamination.scenes_of(script)
    masks = Masks.of(contamination.entity_masks(script, np.random.default_rng(0)))
    masked = contamination.scenes_of(script, masks)
    assert contamination.leaked(masks, masked) == []
    assert contamination.leaked(masks, plain)

    def recites(messages, rng):
        announced = re.search(r"Scene: (.*)", text_of(messages))[1]  # type: ignore[index]
        known = {scene.announced: scene.lines for scene in plain}
        return "\n".join(known.get(announced, ["I do not know it."])[1:])

    rng, model, encoder = np.random.default_rng(0), ScriptedChatModel(recites), HashedNgrams()
    before = asyncio.run(contamination.script_recall(model, plain, encoder, rng=rng))
    after = asyncio.run(contamination.script_recall(model, masked, encoder, rng=rng))
    assert before.mean == pytest.approx(1.0)
    assert after.mean < 0.5
    assert contamination.table(before, after).frame.height == 19


def test_a_paraphrase_that_loses_a_number_is_refused() -> None:
    model = ReplayModel(["He came at nine.", "It was 21:00 when he came."])
    lines = ["He came at 21:00.", "At 21:00 he came."]
    found = asyncio.run(contamination.paraphrase(model, lines, rng=np.random.default_rng(0)))
    assert found == {"At 21:00 he came.": "It was 21:00 when he came."}


def test_recall_and_score_need_three_models() -> None:
    assert contamination.recall_and_score([0.1, 0.2, 0.3, 0.4], [1, 2, 3, 4])["rho"] == pytest.approx(1)
    with pytest.raises(DataError, match="at least 3"):
        contamination.recall_and_score([0.1, 0.2], [1, 2])


# -- diagnostics


def test_a_perfect_reader_scores_one_and_a_silent_one_zero() -> None:
    truths = []
    for env in diagnostics._positions("twenty_forty_eight", 3, 12, 0):
        truths.append(diagnostics._grid_2048(env))
    replies = ["```\n" + "\n".join(" ".join(row) for row in grid) + "\n```" for grid in truths]
    found = asyncio.run(diagnostics.state_reading(ReplayModel(replies), "twenty_forty_eight", boards=3))
    assert (found.value, found.exact, found.unread) == (1.0, 1.0, 0.0)
    silent = asyncio.run(diagnostics.state_reading(ScriptedChatModel(lambda m, r: "no"), "sokoban", boards=3))
    assert (silent.value, silent.unread) == (0.0, 1.0)


def test_copying_the_board_foresees_nothing() -> None:
    def copies(messages, rng):
        return "```\n" + re.search(r"```\n(.*?)\n```", text_of(messages), re.DOTALL)[1] + "\n```"  # type: ignore[index]

    (found,) = asyncio.run(diagnostics.prediction(ScriptedChatModel(copies), steps=(1,), boards=5))
    assert found.value == 0.0
    assert found.unread == 0.0


@pytest.mark.parametrize("game", diagnostics.FORESEEN)
def test_who_plays_the_actions_on_an_engine_foresees_everything(game: str) -> None:
    """Sokoban from the board alone; Tetris knows the piece from a twin that draws the same positions."""
    twins = iter(diagnostics._positions(game, 5, 12, 0))

    def plays(messages, rng):
        text = text_of(messages)
        board = re.search(r"```\n(.*?)\n```", text, re.DOTALL)[1].split("\n")  # type: ignore[index]
        env = next(twins)
        while [list(row) for row in board] != diagnostics.BOARDS[game][0](env):
            env = next(twins)
        for action in re.search(r"Actions in order: (.*)", text)[1].split(", "):  # type: ignore[index]
            env.engine.play(env.engine.parse(action))
        return "```\n" + "\n".join("".join(row) for row in diagnostics.BOARDS[game][0](env)) + "\n```"

    (found,) = asyncio.run(diagnostics.prediction(ScriptedChatModel(plays), game, steps=(2,), boards=5))
    assert (found.value, found.exact, found.unread) == (1.0, 1.0, 0.0)
    with pytest.raises(UsageError, match="candy_crush"):
        asyncio.run(diagnostics.prediction(ScriptedChatModel(plays), "candy_crush"))


def test_saying_what_the_engine_says_about_effects_is_right() -> None:
    def looks(messages, rng):
        boards = re.findall(r"'board': (\[\[.*?\]\])", text_of(messages))
        return f"changed: {'no' if boards[0] == boards[1] else 'yes'}"

    found = asyncio.run(diagnostics.effect_reflection(ScriptedChatModel(looks), "twenty_forty_eight", boards=12))
    assert (found.value, found.unread) == (1.0, 0.0)


def test_the_memory_curve_of_the_simulated_player_rises() -> None:
    model = METHODS["simulated"]()
    found = asyncio.run(diagnostics.memory_curve(model, "candy_crush", sizes=(0, 10), episodes=3, max_steps=20))
    assert found[1].value > found[0].value
    assert diagnostics.table(found).frame.height == 2


# -- transfer


def test_boards_in_step_follow_the_game_itself() -> None:
    rng = np.random.default_rng(3)
    for level in transfer.draw_levels(6, 6, rng):
        engine, boards = Sokoban([level]), transfer.Boards.of([level])
        engine.reset(rng)
        for _ in range(40):
            action = int(rng.integers(4))
            push = ((boards.player[0] + transfer._MOVES[action]) == boards.box[0]).all()
            name = transfer.DIRECTIONS[action]
            ended = engine.play(f"push {name}" if push else name).ended
            assert bool(boards.step(np.array([action]))[0]) == ended
            rows = engine.board()
            r, c = boards.box[0]
            assert rows[r][c] in "$*"
            r, c = boards.player[0]
            assert rows[r][c] in "@+"
            if ended:
                break


def test_training_raises_the_share_of_solved_boards() -> None:
    pytest.importorskip("torch")
    levels = transfer.draw_levels(5, 10, np.random.default_rng(0))
    net, history = transfer.train(levels, transfer.Training(updates=8, boards=64, minibatch=256))
    assert np.mean(history[-3:]) > np.mean(history[1:4])
    found = transfer.transfer(net, levels[:4], tries=2, resamples=200)
    assert found.low <= found.difference <= found.high


def test_the_view_is_centred_on_the_player() -> None:
    level = transfer.draw_levels(5, 1, np.random.default_rng(0))[0]
    boards = transfer.Boards.of([level])
    side = 2 * transfer.RADIUS + 1
    planes = boards.view().reshape(3, side, side)
    dy, dx = boards.box[0] - boards.player[0]
    assert planes[1, transfer.RADIUS + dy, transfer.RADIUS + dx] == 1
    assert planes[0, transfer.RADIUS, transfer.RADIUS] == 0
    assert planes[0, 0, 0] == 1


# -- tables over runs and recipes


def test_recall_is_held_against_scores_before_and_after_masking(tmp_path: Path) -> None:
    import json

    folders, runs = [], []
    bench = LMGame("courtroom", harness="false", runs=3, logs=False)
    for number, player in enumerate((METHODS["random"](), METHODS["noisy"](0.5), METHODS["walker"]())):
        run = assay.run(bench, player, into=tmp_path / f"r{number}")
        runs.append(run)
        folders.append(tmp_path / f"c{number}")
        folders[-1].mkdir()
        told = {"system": run.system, "recall": {"mean": 0.2 + number / 10}, "masked": {"mean": 0.1}}
        (folders[-1] / "contamination.json").write_text(json.dumps(told))
    (row,) = analyses.recall(Runs(runs), folders=",".join(map(str, folders))).rows()
    assert (row["mitigation"], row["models"]) == ("before", 3)
    assert row["rho"] == pytest.approx(1.0)
    with pytest.raises(UsageError, match="Fewer than 3"):
        analyses.recall(Runs(runs[:2]), folders=",".join(map(str, folders)))
    with pytest.raises(DataError, match="contamination"):
        analyses.recall(Runs(runs), folders=str(tmp_path))


def test_analyses_of_runs(tmp_path: Path) -> None:
    game = "twenty_forty_eight"
    runs = Runs(
        [
            assay.run(LMGame(game, harness="both", logs=False), METHODS["simulated"](), into=tmp_path / "s"),
            assay.run(LMGame(game, harness="false", logs=False), METHODS["random"](), into=tmp_path / "r"),
        ]
    )  # fmt: skip
    assert analyses.scores(runs).frame.height == 3
    (row,) = analyses.harness(runs).rows()
    assert row["difference"] > 0
    assert analyses.modules(runs).frame["harness"].to_list() == ["true"]
    assert analyses.ranks(runs, state="false").frame.height == 2
    assert set(analyses.steps(runs).frame["unread"]) == {0.0}
    assert analyses.budget(runs).frame.height == 3
    assert len(analyses.ranking(runs, state="false", resamples=50)) == 2
    assert analyses.beat_random(runs).frame.height == 2
    with pytest.raises(UsageError, match="harness=maybe"):
        analyses.normalised(runs, state="maybe")


def test_contamination_leaves_masks_and_figures_and_takes_paraphrases_that_keep_names(tmp_path: Path) -> None:
    import json

    system, options = "method:simulated", {"encoder": "hashed", "frames": False}
    recipes.contamination(tmp_path, system=system, paraphraser=system, **options)
    mapping = json.loads((tmp_path / "mapping.json").read_text())
    lines = {line.partition(": ")[2] for scene in contamination.scenes_of(shipped_script()) for line in scene.lines}
    assert set(mapping["dialog"]) <= lines
    found = json.loads((tmp_path / "contamination.json").read_text())
    assert found["system"] == "simulated"
    assert len(found["masked"]["similarity"]) == 19
    assert "frames" not in found
    assert "similarity" in (tmp_path / "tables.md").read_text()


@pytest.mark.slow
def test_published_tables_are_written(tmp_path: Path) -> None:
    recipes.published(tmp_path)
    page = (tmp_path / "tables.md").read_text()
    assert "Harness true against false" in page
    assert len(list(tmp_path.glob("*.csv"))) == 13


def test_a_replay_is_made_from_a_log(tmp_path: Path) -> None:
    from assay.agents.lmgame.episode import LOG, Setup, play_player

    play_player(Setup("sokoban", "text", max_steps=3, seed=1), "astar", 0, tmp_path)
    recipes.replay(tmp_path, log=str(tmp_path / LOG), form="html")
    assert (tmp_path / "episode.html").is_file()
    with pytest.raises(UsageError, match="form of replay"):
        recipes.replay(tmp_path, log="x", form="avi")
