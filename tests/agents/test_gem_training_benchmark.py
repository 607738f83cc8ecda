"""gem-training, analyses, recipes and adapters."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

pytest.importorskip("torch")

from assay.agents.gem import adapters, analyses
from assay.agents.gem.benchmark import EnvPolicy, Gem
from assay.agents.gem.env import EnvError
from assay.agents.gem.recipes.replay import replay
from assay.agents.gem.recipes.reproduce import CELLS, judge, paired_p
from assay.agents.gem.registry import make
from assay.agents.gem.training import ALGORITHMS, GemTraining, algorithm
from assay.core import run as core
from assay.core.engine import Engine
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs

LOADING = "assay.systems.loading"
GUESS = "game:GuessTheNumber-v0-easy"
SEED = 0  # the number is none of those that the players below try first


def run(bench, system, into, attempts=2):
    return core.run(bench, system, loading=LOADING, into=into, attempts=attempts, engine=Engine(workers=0))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    bench = GemTraining(envs=GUESS, turns=400, eval_episodes=16)
    return Runs([run(bench, algorithm(name), folder / name) for name in ("rebn", "reinforce")])


def test_an_attempt_is_a_seed_and_the_curve_is_kept(trained):
    frame = trained[0].records
    assert frame["status"].to_list() == ["ok", "ok"], frame["error"].to_list()
    assert frame["algorithm"].unique().to_list() == ["rebn"]
    rows = trained[0].rows("learning")
    assert rows.height == 2 * 6
    assert rows["turns"].max() >= 400


def test_algorithms_and_curves_are_tabled(trained):
    table = analyses.algorithms(trained)
    assert table.frame["seeds"].to_list() == [2, 2]
    means = dict(zip(table.frame["algorithm"], table.frame["mean"]))
    for one in trained:
        assert means[one.system] == pytest.approx(one.records["final_return"].mean())
    curve = analyses.curves(trained).frame
    assert curve.height == 2 * 6
    with pytest.raises(UsageError, match="at least two discounts"):
        analyses.gamma(trained)


def test_every_algorithm_is_there_by_name_with_its_parameters():
    for name in ALGORITHMS:
        assert algorithm(name, lr=0.5).name == name
    assert algorithm("rebn", gamma=0.3).gamma == 0.3
    with pytest.raises(UsageError, match="gama"):
        algorithm("rebn", gama=0.3)
    with pytest.raises(UsageError, match="turns=0"):
        GemTraining(turns=0)


def test_a_curriculum_is_an_option_with_the_level_in_its_rows(tmp_path):
    levels = "game:GuessTheNumber-v0-easy?max_number=2,game:GuessTheNumber-v0-easy?max_number=3"
    bench = GemTraining(curriculum=levels, target=0.5, turns=600, eval_episodes=8)
    done = run(bench, algorithm("rebn"), tmp_path / "run", 1)
    assert done.records["sample"].to_list() == [levels.split(",")[1]]
    reached = done.rows("learning")["level"].to_list()
    assert reached[0] == 0
    assert reached[-1] == 1
    stages = json.loads(done.records["output"][0])["curriculum"]
    assert [stage["env"] for stage in stages] == levels.split(",")
    assert all(stage["episodes"] for stage in stages)
    with pytest.raises(UsageError, match="at least two ids"):
        GemTraining(curriculum="game:GuessTheNumber-v0-easy")
    with pytest.raises(UsageError, match="target=2"):
        GemTraining(curriculum=levels, target=2)


def test_levels_and_outcomes_of_played_episodes(tmp_path):
    played = Runs(
        [run(Gem(envs=f"{GUESS},game:TowerofHanoi-v0-easy", episodes=2), EnvPolicy("solver"), tmp_path / "a", 1)]
    )
    frame = analyses.levels(played).frame
    assert frame["solved"].to_list() == [1.0, 1.0]
    ends = analyses.outcomes(played).frame
    assert ends["terminated"].to_list() == [1.0, 1.0]
    with pytest.raises(UsageError, match="two runs"):
        analyses.tools(played)
    with pytest.raises(UsageError, match="another benchmark"):
        analyses.gamma(played)


# -- replay ------------------------------------------------------------------------------------------------------------


def test_an_episode_is_replayed_from_its_trace_or_its_actions(tmp_path):
    played = run(Gem(envs="game:TowerofHanoi-v0-easy", episodes=1), EnvPolicy("solver"), tmp_path / "run", 1)
    trace = next(played.path.rglob("episode.json"))
    replay(tmp_path, env="game:TowerofHanoi-v0-easy", trace=trace)
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert len(steps) == 8
    assert steps[-1]["reward"] == 1.0
    (tmp_path / "actions.json").write_text(json.dumps([step["action"] for step in steps[1:]]))
    before = (tmp_path / "steps.jsonl").read_text()
    replay(tmp_path, env="game:TowerofHanoi-v0-easy", seed=0, actions=tmp_path / "actions.json")
    assert (tmp_path / "steps.jsonl").read_text() == before
    with pytest.raises(DataError, match="differs at step"):
        replay(tmp_path, env="game:TowerofHanoi-v0-easy?num_disks=4", trace=trace)
    with pytest.raises(UsageError, match="either"):
        replay(tmp_path, env=GUESS)


# -- the reproduction's judgement --------------------------------------------------------------------------------------


def test_the_judge_follows_the_figures():
    def rows(better):
        out = []
        for env, name, settings in CELLS:
            for seed in range(5):
                value = 0.5 + 0.01 * seed + (0.2 + 0.001 * seed) * (name == better)
                turns = 2.0 + settings.get("gamma", 0) + 0.01 * seed**2 * settings.get("gamma", 0)
                out.append(
                    {"env": env, "algorithm": name, "gamma": settings.get("gamma"), "seed": seed, "return": value,
                     "turns_when_solved": turns}
                )  # fmt: skip
        return out

    verdicts = [claim.holds for claim in judge(rows("rebn"), 100, 1000)]
    assert verdicts == [True, True, False, False, True, True]
    verdicts = [claim.holds for claim in judge(rows("reinforce"), 100, 400)]
    assert verdicts == [False, True, True, True, False, False]
    assert paired_p(np.ones(5), np.ones(5)) == 1.0


# -- adapters ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sums(tmp_path):
    rows = tmp_path / "sums.jsonl"
    rows.write_text("".join(json.dumps({"problem": f"{i}+1", "answer": str(i + 1)}) + "\n" for i in range(3)))
    return f"math:GSM8K?data={rows}&order=sequential"


def test_rewards_for_trl_and_verl_are_those_of_the_environment(sums):
    rows = adapters.prompts(sums, range(3))
    assert [row["prompt"][0]["content"].splitlines()[0] for row in rows] == ["0+1", "1+1", "2+1"]
    columns = {"env": [row["env"] for row in rows], "seed": [row["seed"] for row in rows]}
    texts = ["\\boxed{1}", [{"role": "assistant", "content": "\\boxed{2}"}], "\\boxed{9}"]
    assert adapters.trl_reward([row["prompt"] for row in rows], texts, **columns, trainer_state=None) == [1, 1, 0]
    row = rows[1]
    assert adapters.verl_score(row["data_source"], "\\boxed{2}", "", row["extra_info"]) == 1.0
    with pytest.raises(EnvError, match="goes on after the first turn"):
        adapters.verl_score(GUESS, "\\boxed{1}", "", {"env": GUESS, "seed": SEED})
    with pytest.raises(EnvError, match="extra_info"):
        adapters.verl_score(GUESS, "x")


ACTIONS = ["\\boxed{1}", "\\boxed{10}", "\\boxed{2}", "\\boxed{9}"]


def test_agents_of_many_turns_see_what_the_environment_gives():
    wanted = []
    for result in direct_until_end():
        wanted.append((result[1], result[2] or result[3]))
    assert len(wanted) > 2

    async def openrlhf():
        agent = adapters.OpenRLHFAgent()
        with pytest.raises(EnvError, match="before reset"):
            await agent.step({"action_text": "x"})
        first = await agent.reset({"label": f"{GUESS}#{SEED}"})
        assert "whole number" in first["observation"]
        out = [await agent.step({"action_text": action}) for action in ACTIONS[: len(wanted)]]
        return [(pytest.approx(one["rewards"].item()), one["done"]) for one in out]

    async def tinker():
        env = adapters.TinkerEnv(
            GUESS, SEED, render=lambda messages: len(messages), read=lambda ids: ACTIONS[ids], stop=["x"]
        )
        assert await env.initial_observation() == (1, ["x"])
        out = [await env.step(i) for i in range(len(wanted))]
        assert [one.next_observation for one in out] == [3 + 2 * i for i in range(len(wanted))]
        return [(one.reward, one.episode_done) for one in out]

    async def verifiers():
        rollout, state = adapters.VerifiersRollout(), {"info": {"env": GUESS, "seed": SEED}}
        await rollout.setup_state(state)
        out = []
        for action in ACTIONS[: len(wanted)]:
            await rollout.env_response([{"role": "assistant", "content": action}], state)
            out.append((state["rewards"][-1], "final_env_response" in state))
        assert rollout.reward(state) == pytest.approx(sum(reward for reward, _ in wanted))
        await rollout.close_episode(state)
        return out

    for one in (openrlhf, tinker, verifiers):
        assert asyncio.run(one()) == wanted, one.__name__


def direct_until_end():
    env = make(GUESS)
    env.reset(SEED)
    for action in ACTIONS:
        result = env.step(action)
        yield result
        if result[2] or result[3]:
            return


def test_oat_s_collection_gives_whole_episodes():
    actor = adapters.OatActor([GUESS] * 2, seed=3)
    episodes = actor.collect(lambda prompts: ["\\boxed{1}"] * len(prompts), 9)
    assert all(episode[-1]["done"] and not any(turn["done"] for turn in episode[:-1]) for episode in episodes)
    assert len(episodes) >= 4
