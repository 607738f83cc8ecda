"""assay run gem: reference players, chat models, tools, records, bad options."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest

from assay.agents.gem.benchmark import EnvPolicy, Gem
from assay.agents.gem.env import EnvError
from assay.agents.gem.episodes import level_of, parsed, regrets
from assay.agents.gem.registry import make
from assay.core import run as core
from assay.core.engine import Engine
from assay.core.errors import UsageError
from assay.systems.chat.model import Choice, Reply, ToolCall
from assay.systems.scripted import ScriptedChatModel, text_of
from assay.systems.trace import Trace

LOADING = "assay.systems.loading"
GUESS = "game:GuessTheNumber-v0-hard"


def bisecting(messages, rng):
    low, high = 1, 50
    for message in messages:
        if found := re.search(r"My number is (higher|lower) than (\d+)", str(message["content"])):
            low, high = (
                (max(low, int(found[2]) + 1), high) if found[1] == "higher" else (low, min(high, int(found[2]) - 1))
            )
    return f"I say \\boxed{{{(low + high) // 2}}}"


def played(tmp_path, system, attempts=1, **options):
    engine = Engine(workers=1)
    bench = Gem(**options)
    bench.options = options  # as when it is loaded by name
    return core.run(bench, system, loading=LOADING, into=tmp_path / "run", attempts=attempts, engine=engine)


def score(run, name):
    return next(s.value for s in run.scores(metrics=Gem.metrics) if s.metric == name and not s.by)


def test_a_model_that_bisects_solves_every_guessing_game(tmp_path):
    run = played(tmp_path, ScriptedChatModel(bisecting), envs=GUESS, episodes=6, attempts=2)
    assert run.records["status"].to_list() == ["ok"] * 12
    assert score(run, "solved_avg@n") == score(run, "return_macro_by_env") == 1.0
    assert score(run, "turns") <= 6
    assert set(run.records["level"]) == {"hard"}
    rows = run.rows("episodes")
    assert rows.filter(rows["kind"] == "environment").height == run.records["turns"].sum()


def test_the_recorded_episode_replays_exactly(tmp_path):
    run = played(tmp_path, ScriptedChatModel(bisecting), envs=GUESS, episodes=2)
    traces = [Trace.load(path) for path in sorted(run.path.rglob("episode.json"))]
    assert len(traces) == 2
    for trace in traces:
        assert sum(step[1] for step in trace.replay_episode(make(GUESS))) == trace.total_reward


def test_reference_players_need_no_model_and_regret_is_counted(tmp_path):
    run = played(tmp_path, EnvPolicy("solver"), envs="game:TowerofHanoi-v0-easy", episodes=2, regret="episode")
    assert (score(run, "return_macro_by_env"), score(run, "regret_turns"), score(run, "turns")) == (1.0, 0.0, 7.0)


def test_regret_of_each_step_adds_up_to_that_of_the_episode(tmp_path):
    run = played(
        tmp_path, EnvPolicy("random"), envs="game:FifteenPuzzle-v0-easy?max_turns=60", episodes=4, regret="steps"
    )
    rows = run.rows("episodes")
    lost = rows.filter(rows["kind"] == "environment").group_by("sample").agg(pl.col("regret").sum(), pl.len())
    assert rows.filter(rows["kind"] == "model")["regret"].null_count() == rows.height // 2
    solved = run.records.filter(run.records["solved"] == 1).join(lost, on="sample")
    assert solved.height > 0
    assert solved["regret"].to_list() == solved["regret_turns"].to_list()


def test_a_step_back_costs_two_turns_and_one_against_the_rules_costs_one():
    forth, back, wrong = "\\boxed{A C}", "\\boxed{C A}", "\\boxed{B C}"
    assert regrets("game:TowerofHanoi-v0-easy", 0, [forth, back, wrong]) == (7, [0.0, 2.0, 1.0])
    assert regrets("game:TowerofHanoi-v0-easy", 0, []) == (7, [])
    assert regrets("game:GuessTheNumber-v0-easy", 0, ["\\boxed{1}"]) == (None, [None])
    assert regrets("game:Wordle-v0-easy", 0, ["\\boxed{cat}"]) == (None, [None])


def test_random_play_is_the_same_every_time_and_worse(tmp_path):
    both = [
        played(tmp_path / name, EnvPolicy("random"), envs="game:TowerofHanoi-v0-easy,game:Wordle-v0-easy",
               episodes=3)
        for name in "ab"
    ]  # fmt: skip
    assert both[0].records["output"].to_list() == both[1].records["output"].to_list()
    assert score(both[0], "return_macro_by_env") < 0.9


def test_tags_call_the_python_tool_and_moves_are_counted_apart(tmp_path):
    def model(messages, rng):
        if "Result of python" not in text_of(messages):
            return "<python>print(5 * 5)</python>"
        return bisecting(messages, rng)

    run = played(tmp_path, ScriptedChatModel(model), envs=GUESS, episodes=2, tools="python")
    assert run.records["tool_calls"].to_list() == [1.0, 1.0]
    assert score(run, "solved_avg@n") == 1.0


def test_native_calls_of_a_model_reach_the_search_tool(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("The number is always between one and fifty.")

    def model(messages, rng):
        if not any(m["role"] == "tool" for m in messages):
            call = ToolCall("1", "search", '{"query": "number between"}')
            return Reply((Choice("", tool_calls=(call,), stop_reason="tool_calls"),))
        return bisecting(messages, rng)

    run = played(
        tmp_path, ScriptedChatModel(model), envs=GUESS, episodes=1, tools="search", search=str(tmp_path / "notes"),
        tool_style="native",
    )  # fmt: skip
    assert run.records["status"].to_list() == ["ok"], run.records["error"].to_list()
    assert run.records["tool_calls"][0] >= 1
    assert score(run, "solved_avg@n") == 1.0


@pytest.mark.parametrize("show", ["conversation", "history"])
def test_the_board_is_shown_and_history_is_cut(tmp_path, show):
    seen = []

    def model(messages, rng):
        seen.append([m["content"] for m in messages])
        return bisecting(messages, rng)

    played(tmp_path, ScriptedChatModel(model), envs=GUESS, episodes=1, show=show, history=1, turns=4)
    assert all("Guesses left: " in said[-1] for said in seen)
    assert max(len(said) for said in seen) == (3 if show == "conversation" else 2)


def test_unreadable_answers_are_a_rate_of_their_own(tmp_path):
    run = played(tmp_path, ScriptedChatModel(lambda messages, rng: "no box"), envs=GUESS, episodes=4)
    assert score(run, "unread_rate") == 1.0
    assert score(run, "return_micro") == pytest.approx(-0.1)


def test_rows_of_one_s_own_are_an_environment(tmp_path):
    rows = tmp_path / "sums.jsonl"
    rows.write_text("".join(json.dumps({"problem": f"What is {i}+1?", "answer": str(i + 1)}) + "\n" for i in range(4)))

    def adder(messages, rng):
        number = int(re.search(r"What is (\d+)", text_of(messages))[1])
        return f"\\boxed{{{number + 1}}}"

    run = played(tmp_path, ScriptedChatModel(adder), envs=f"math:GSM8K?data={rows}", episodes=3)
    assert score(run, "solved_avg@n") == 1.0


def test_ids_with_settings_are_read():
    assert parsed("game:X?max_turns=3&variant=oneback") == ("game:X", {"max_turns": 3, "variant": "oneback"})
    assert (level_of("game:Game2048-v0-extreme-hard"), level_of("rg:arc_1d")) == ("extreme-hard", "-")
    assert len(Gem(envs="gem24").envs) == 24


def test_bad_options_say_what_is_wrong():
    with pytest.raises(EnvError, match="did you mean"):
        Gem(envs="game:GuessTheNumber-v0").envs  # noqa: B018
    with pytest.raises(UsageError, match="no setting"):
        Gem(envs="game:GuessTheNumber-v0-easy?max_turns").envs  # noqa: B018
    with pytest.raises(UsageError, match="empty"):
        Gem(envs=",").envs  # noqa: B018
    with pytest.raises(UsageError, match="episodes=0"):
        Gem(episodes=0)
    with pytest.raises(UsageError, match="python, search"):
        Gem(tools="hammer")
    with pytest.raises(UsageError, match="needs search="):
        Gem(tools="search")


def test_tools_on_and_off_are_compared_on_the_same_episodes(tmp_path):
    from assay.agents.gem.analyses import tools
    from assay.core.results import Runs

    def model(messages, rng):
        # Only with the tool does it learn how to play; without, it says the same number again and again.
        said = text_of(messages)
        if "<python>" in said and "Result of python" not in said:
            return "<python>print('bisect')</python>"
        return bisecting(messages, rng) if "bisect" in said else "\\boxed{1}"

    runs = [
        played(tmp_path / name, ScriptedChatModel(model), envs=GUESS, episodes=4, tools=name) for name in ("", "python")
    ]
    frame = tools(Runs(runs)).frame
    assert frame["with"].to_list() == [1.0]
    assert frame["difference"][0] == 1.0 - frame["without"][0] > 0
    assert frame["tool_calls"].to_list() == [1.0]
    assert frame["n"].to_list() == [4]
