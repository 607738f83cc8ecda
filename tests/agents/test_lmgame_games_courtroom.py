"""The courtroom: the shipped cases, the rules of examination, masks, scripts of users."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from assay.agents.lmgame.env import SixValueEnv, make
from assay.agents.lmgame.games.courtroom import Masks
from assay.agents.lmgame.games.courtroom_script import check_script, read_script, shipped_script
from assay.agents.lmgame.solvers.case_walker import next_action
from assay.core.errors import DataError


def script() -> dict:
    """A small script with a branch, a hidden statement and a gift."""
    return {
        "title": "test",
        "cases": [
            {
                "id": "1",
                "title": "A cup",
                "background": "Ann lost a cup.",
                "characters": {"ann": "Ann Bee", "bob": "Bob"},
                "evidence": {"cup": {"name": "Cup", "text": "Broken."}, "pot": {"name": "Pot", "text": "Whole."}},
                "scenes": [
                    {
                        "id": "s1",
                        "evidence": ["pot"],
                        "end": ["Case closed."],
                        "script": [
                            ["ann", "Hello."],
                            {
                                "ask": {
                                    "say": ["bob", "Which way?"],
                                    "options": [
                                        {"text": "Wrong", "penalty": True, "then": [["bob", "No."]]},
                                        {"text": "Short", "then": [{"goto": "end"}]},
                                        {"text": "Long", "then": [{"set": "long"}]},
                                    ],
                                }
                            },
                            {
                                "examine": {
                                    "title": "The cup",
                                    "wrong": [["ann", "Not that."]],
                                    "statements": [
                                        {
                                            "say": ["bob", "I saw nothing."],
                                            "press": [["bob", "Well."], {"give": "cup"}, {"set": "more"}],
                                        },
                                        {
                                            "say": ["bob", "The cup is whole."],
                                            "press": [],
                                            "present": {"cup": [["bob", "Oh."]]},
                                            "when": "more",
                                        },
                                    ],
                                }
                            },
                            {"if": ["long", "end"]},
                            ["bob", "Never said."],
                            {"label": "end"},
                            ["ann", "Case closed."],
                        ],
                    }
                ],
            }
        ],
    }


def play(env, actions: str):
    for action in actions.split():
        result = env.step(action)
    return result


def test_the_walker_finishes_all_shipped_scenes_without_a_penalty_within_the_published_steps():
    env = make("courtroom", observation_mode="text")
    env.reset(0)
    scenes, terminated, total = {0}, False, 0.0
    while not terminated:
        _, reward, terminated, truncated, info = env.step(next_action(env.engine))
        assert not truncated, info
        assert info["lives"] == 5
        total += reward
        scenes.add(info["level"])
    assert info["finished"]
    assert scenes == set(range(19))
    assert total == env.score == 18
    assert len(shipped_script().source["cases"]) == 3


def test_a_level_ends_when_its_end_statement_is_spoken_and_the_next_has_five_lives():
    env = make("courtroom", observation_mode="text")
    env.reset(0)
    play(env, "a a r up")
    assert env.engine.lives == 4
    while env.engine.index == 0:
        _, reward, *_ = env.step(next_action(env.engine))
    assert (reward, env.engine.lives, env.engine.scene["id"]) == (1.0, 5, "level1_2")
    assert env.engine.transcript()[-2].endswith("The witness will think again about what she saw.")


def test_wrong_evidence_costs_lives_and_five_of_them_the_game():
    env = make("courtroom", script=check_script(script()), observation_mode="text")
    env.reset(0)
    _, _, _, _, info = play(env, "a down down a")
    assert info["mode"] == "examine"
    for lives in (4, 3, 2, 1):
        _, _, terminated, _, info = play(env, "r up")
        assert (info["lives"], info["dialog"], terminated) == (lives, "Not that.", False)
        env.step("a")
    _, _, terminated, _, info = play(env, "r up")
    assert (info["lives"], terminated, info["end"]) == (0, True, "game over")


def test_pressing_shows_hidden_statements_and_gives_evidence():
    env = make("courtroom", script=check_script(script()), observation_mode="text")
    env.reset(0)
    play(env, "a down down a")
    assert env.engine.statements() == [0]
    _, _, _, _, info = play(env, "l a")
    assert info["evidence"] == ["Pot", "Cup"]
    assert env.engine.statements() == [0, 1]
    observation, *_ = play(env, "right r right")
    assert "> Cup: Broken." in observation
    _, _, _, _, info = env.step("up")
    assert info["dialog"] == "Oh."
    _, _, terminated, _, info = env.step("a")
    assert terminated
    assert info["finished"]


def test_choices_branch_and_wrong_ones_are_put_again():
    env = make("courtroom", script=check_script(script()), observation_mode="text")
    env.reset(0)
    _, _, _, _, info = play(env, "a a")
    assert (info["lives"], info["dialog"]) == (4, "No.")
    _, _, _, _, info = env.step("a")
    assert info["dialog"] == "Which way?"
    _, _, terminated, _, info = play(env, "down a")
    assert terminated
    assert info["dialog"] == "Case closed."


def test_masks_replace_names_everywhere_but_not_inside_words_and_leave_end_statements_working():
    masks = Masks.of(
        {
            "name_mappings": {"Ann": "Zoe", "Ann Bee": "Zoe Cee"},
            "dialog": {"Hello.": "Bob greets Ann and Annie."},
            "evidence_mappings": {"Pot": "Jar"},
        }
    )
    env = SixValueEnv(make("courtroom", script=check_script(script()), masks=masks))
    observation, info = env.reset(0)
    assert "Dialog: Zoe Cee: Bob greets Zoe and Annie." in observation.textual_representation
    assert info["evidence"] == ["Jar"]
    assert observation.background.splitlines() == [
        "Zoe lost a cup.",
        "Transcript, last 30 lines:",
        "Zoe Cee: Hello.",
    ]
    with pytest.raises(DataError, match="name_mappings"):
        Masks.of({"name_mappings": {"a": 1}})
    for action in ["a", "down", "a"]:
        result = env.step(action)
    assert result[4]["finished"]


def test_a_page_drawn_differs_from_the_next():
    env = make("courtroom")
    first, _ = env.reset(0)
    second, *_ = env.step("a")
    assert first["image"].shape == (320, 480, 3)
    assert (first["image"] != second["image"]).any()
    assert np.array_equal(env.step("no_op")[0]["image"], second["image"])


def broken(change) -> dict:
    found = copy.deepcopy(script())
    change(found["cases"][0], found["cases"][0]["scenes"][0])
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c, s: s["script"].append(["eve", "Hi."]), "character 'eve'"),
        (lambda c, s: s["script"].append({"give": "hat"}), "evidence 'hat'"),
        (lambda c, s: s["script"].append({"goto": "nowhere"}), "no label 'nowhere'"),
        (lambda c, s: s["script"].append({"if": ["never", "end"]}), "flag 'never'"),
        (lambda c, s: s["script"].append({"jump": "x"}), "is no node"),
        (lambda c, s: s.update(end=["Goodbye."]), "spoken nowhere"),
        (lambda c, s: s.update(end=[]), "no end statement"),
        (lambda c, s: s["script"][1]["ask"]["options"].clear(), "0 options"),
        (lambda c, s: s["script"][2]["examine"]["statements"][1].pop("present"), "contradicted"),
        (lambda c, s: c["scenes"].append(s), "occurs twice"),
        (lambda c, s: c.pop("characters"), "'characters'"),
        (lambda c, s: s["script"][0].append("more"), "no page"),
    ],
)
def test_bad_scripts_say_where(tmp_path, change, words):
    path = tmp_path / "case.json"
    path.write_text(json.dumps(broken(change)))
    with pytest.raises(DataError, match=words):
        read_script(path)
    path.write_text("[")
    with pytest.raises(DataError, match="not JSON"):
        read_script(path)
    with pytest.raises(DataError, match="no scene 'x'"):
        make("courtroom", first="x")
    path.write_text(json.dumps(script()))
    assert make("courtroom", script=path, first="s1").engine.scene["id"] == "s1"
