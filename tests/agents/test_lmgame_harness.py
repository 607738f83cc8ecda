"""The harness: parsing of replies, memory, modules one by one, prompts and their slots."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.agents.lmgame.env import make
from assay.agents.lmgame.harness import (
    FULL,
    LOST_SUMMARY,
    Agent,
    Memory,
    Modules,
    Settings,
    read_modules,
)
from assay.agents.lmgame.parsing import NO_REPLY, parse_reply
from assay.agents.lmgame.prompts import MODULES, fill, prompts_for, read_prompts
from assay.core.errors import DataError, UsageError
from assay.systems.scripted import ReplayModel

CASES = json.loads((Path(__file__).parents[1] / "oracles" / "lmgame" / "response_parsing.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@pytest.mark.parametrize(("rule", "harness"), [("harness", True), ("single_model", False)])
def test_replies_are_read_as_in_the_reference(case: dict, rule: str, harness: bool) -> None:
    found = parse_reply(case["response"], harness=harness)
    assert {"action": found.action, "thought": found.thought} == case[rule]


def test_stars_are_read_in_the_harness_and_kept_without_it() -> None:
    assert parse_reply("thought: x\nmove: **right**", harness=True).action == "right"
    assert parse_reply("thought: x\nmove: **right**", harness=False).action == "**right**"


def test_a_section_does_not_begin_after_blanks() -> None:
    assert parse_reply("  move: up", harness=True).action is None
    assert parse_reply("x\n move: up", harness=False).action is None


def test_an_empty_reply_is_no_response() -> None:
    assert parse_reply("", harness=True) == (NO_REPLY, None)
    assert parse_reply(None, harness=False) == (NO_REPLY, None)


def test_thought_before_the_move_counts_as_thought() -> None:
    assert parse_reply("The corner is safe.\nmove: left", harness=True) == ("The corner is safe.", "left")


@given(
    st.text(alphabet="abc ", min_size=1).map(str.strip).filter(bool),
    st.sampled_from(["up", "((1,2),(1,3))", "(left,3)"]),
)
def test_what_the_format_asks_for_is_read_back(thought: str, move: str) -> None:
    for harness in (True, False):
        assert parse_reply(f"thought: {thought}\nmove: {move}", harness=harness) == (thought, move)


def test_memory_keeps_the_last_entries() -> None:
    memory = Memory(4)
    for i in range(5):
        memory.saw(f"o{i}")
        memory.did(f"a{i}", None)
    assert memory.text.splitlines() == [
        "Observation: o3", "Action: a3 | Thought: N/A", "Observation: o4", "Action: a4 | Thought: N/A",
    ]  # fmt: skip
    assert Memory(0).text == "N/A"
    with pytest.raises(UsageError, match="max_memory=-1"):
        Memory(-1)


def test_a_summary_replaces_a_full_memory_and_a_short_one_counts_as_lost() -> None:
    memory = Memory(2)
    memory.saw("o")
    assert not memory.full(None)
    memory.did("a", "t")
    assert memory.full(None)
    memory.summarised("too short")
    assert memory.text == f"Summary: {LOST_SUMMARY}"
    long = Memory(10)
    long.saw("x" * 300)
    long.saw("x" * 300)
    assert long.full(100)
    assert not long.full(1000)


def test_conditions_by_name() -> None:
    assert [m.label for m in read_modules("both")] == ["false", "true"]
    assert [m.label for m in read_modules("each")] == [
        "false",
        "perception",
        "memory",
        "reflection",
        "reasoning",
        "true",
    ]
    assert read_modules("memory + reasoning") == (Modules(memory=True, reasoning=True),)
    assert FULL.label == "true"
    with pytest.raises(UsageError, match="did you mean 'memory'"):
        read_modules("memori")
    with pytest.raises(UsageError, match="twice"):
        read_modules("both,true")


def test_the_published_harness_takes_further_modules() -> None:
    (found,) = read_modules("true+deliberation")
    assert found == Modules(True, True, True, False, True, True)
    assert found.label == "true+deliberation"
    assert read_modules(found.label) == (found,)
    assert read_modules(Modules(memory=True, deliberation=True).label) == (Modules(memory=True, deliberation=True),)


def turns(modules: Modules, replies: list[str], *, mode: str = "text", steps: int = 2, memory: int = 10) -> ReplayModel:
    """Play 2048 with prepared replies; the model holds the messages it saw."""
    model = ReplayModel(replies)
    env = make("twenty_forty_eight", observation_mode=mode)  # type: ignore[arg-type]
    agent = Agent(model, modules, prompts_for("twenty_forty_eight"), Settings(max_memory=memory))

    async def run() -> None:
        observation, _ = env.reset(1)
        for _ in range(steps):
            decision = await agent.decide(observation)
            observation = env.step(decision.action or "none")[0]
            agent.done(decision.action or "none", decision)

    asyncio.run(run())
    return model


MOVE = "thought: t\nmove: up"


def said(model: ReplayModel, call: int) -> str:
    content = model.seen[call][-1]["content"]
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


def test_forced_reasoning_is_a_call_of_its_own_whose_answer_stands_before_the_question_for_the_move() -> None:
    model = turns(Modules(deliberation=True), ["The 2s could merge upwards.", MOVE], steps=1)
    first, second = model.seen
    assert "Do not choose yet." in said(model, 0)
    assert [m["role"] for m in second] == ["system", "user", "assistant", "user"]
    assert second[2]["content"] == "The 2s could merge upwards."
    assert second[1]["content"] == first[-1]["content"]
    assert "'board'" in said(model, 1)


def test_without_harness_one_call_a_step_and_no_past() -> None:
    model = turns(Modules(), [MOVE, MOVE])
    assert len(model.seen) == 2
    assert "Action: up" not in said(model, 1)
    assert "'board'" in said(model, 1)


def test_memory_alone_shows_the_last_turn() -> None:
    model = turns(Modules(memory=True), [MOVE, MOVE])
    assert len(model.seen) == 2
    assert "Action: up | Thought: t" in said(model, 1)
    assert "Reflection" not in said(model, 1)


def test_reflection_alone_asks_about_the_past_but_does_not_show_it() -> None:
    model = turns(Modules(reflection=True), [MOVE, "reflection: nothing moved", MOVE])
    assert "Action: up | Thought: t" in said(model, 1)
    assert "nothing moved" in said(model, 2)
    assert "Action: up | Thought: t" not in said(model, 2)


def test_the_full_harness_asks_for_reflection_then_reasons_with_everything() -> None:
    model = turns(FULL, [MOVE, "reflection: it merged", "# thought: deep\nmove: `left`"])
    assert len(model.seen) == 3
    text = said(model, 2)
    assert "it merged" in text
    assert "Action: up | Thought: t" in text


def test_a_summary_is_asked_for_when_the_memory_is_full() -> None:
    model = turns(Modules(memory=True, summary=True), [MOVE, "summary: up was tried and merged two", MOVE], memory=2)
    assert "Summary: up was tried and merged two" in said(model, 2)


def test_perception_describes_the_picture_and_the_picture_is_then_not_shown_again() -> None:
    model = turns(Modules(perception=True), ["two tiles at the left", MOVE], mode="vision", steps=1)
    kinds = [[part["type"] for part in messages[-1]["content"]] for messages in model.seen[:1]]
    assert "image_url" in kinds[0]
    assert isinstance(model.seen[1][-1]["content"], str)
    assert "two tiles at the left" in said(model, 1)


def test_without_perception_the_picture_goes_to_the_player() -> None:
    model = turns(Modules(), [MOVE], mode="both", steps=1)
    assert [p["type"] for p in model.seen[0][-1]["content"]].count("image_url") == 1
    assert "'board'" in said(model, 0)


def test_state_of_an_agent_comes_back() -> None:
    agent = Agent(ReplayModel([]), FULL, prompts_for("tetris"))
    agent.memory.saw("o")
    agent.calls = 7
    other = Agent(ReplayModel([]), FULL, prompts_for("tetris"))
    other.set_state(json.loads(json.dumps(agent.get_state())))
    assert other.memory.text == agent.memory.text
    assert other.calls == 7


def test_every_game_has_prompts_whose_slots_are_filled() -> None:
    from assay.agents.lmgame.benchmark import OWN_GAMES, ROM_GAMES

    for game in (*OWN_GAMES, *ROM_GAMES):
        prompts = prompts_for(game)
        assert set(prompts.template) == set(MODULES)
        assert "{rules}" not in prompts.template["base"]
        assert "{textual_representation}" in prompts.template["reasoning"]


def test_filling_leaves_boards_with_braces_alone() -> None:
    assert fill("{state} {other}", {"state": "{'board': {other}}"}) == "{'board': {other}} {other}"


def test_prompts_are_written_and_read_back(tmp_path: Path) -> None:
    prompts = prompts_for("sokoban")
    prompts.write(tmp_path / "p.json")
    assert read_prompts(tmp_path / "p.json", "sokoban") == prompts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "no object of modules"),
        ("{", "not JSON"),
        ('{"base_module": {"prompt": 3}}', "field 'prompt' must be a text"),
        ('{"base_module": {"prompt": "no state"}}', "textual_representation"),
        ('{"bass_module": {"prompt": "x"}}', "did you mean 'base_module'"),
    ],
)
def test_bad_prompt_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_prompts(tmp_path / "p.json", "sokoban")
