"""Environments for several agents: whose turn it is, what they hear, rewards, states, PettingZoo."""

import json

import pytest

from assay.agents.gem.env import EnvError
from assay.agents.gem.multi import MultiAgentEnv, PrisonersDilemma, Round, SharedGame
from assay.agents.gem.registry import make
from assay.core.errors import UsageError
from assay.systems.environment import MultiAgentEnvironment, to_pettingzoo


class Countdown(MultiAgentEnv):
    """Everyone has some turns and is done after them; an agent's reward is its number of turns so far."""

    saved = (*MultiAgentEnv.saved, "left")

    def deal(self):
        self.left = {agent: 1 + at for at, agent in enumerate(self.agents)}

    def look(self, agent):
        return f"{agent} has {self.left[agent]}"

    def play(self, actions):
        for agent in actions:
            self.left[agent] -= 1
        return Round(dict.fromkeys(actions, 1.0), [agent for agent in actions if not self.left[agent]])


def test_turns_go_round_and_skip_those_who_are_done():
    env = Countdown(("a", "b", "c"))
    assert isinstance(env, MultiAgentEnvironment)
    env.reset(0)
    order = []
    while env.acting:
        (agent,) = env.acting
        order.append(agent)
        observations, rewards, terminated, truncated, _ = env.step({agent: "hm"})
        assert rewards[agent] == 1
        assert terminated[agent] == (env.left[agent] == 0)
        assert not any(truncated.values())
        assert observations.keys() == rewards.keys() == terminated.keys()
    assert order == ["a", "b", "c", "b", "c", "c"]


def test_all_at_once_until_each_is_done():
    env = Countdown(("a", "b", "c"), mode="parallel")
    env.reset(0)
    seen = []
    while env.acting:
        seen.append(list(env.acting))
        env.step(dict.fromkeys(env.acting, "hm"))
    assert seen == [["a", "b", "c"], ["b", "c"], ["c"]]


def test_agents_hear_what_the_others_said_since_their_last_turn():
    env = Countdown(("a", "b", "c"))
    first, _ = env.reset(0)
    assert first["b"] == "b has 2"
    assert env.step({"a": "one"})[0]["b"] == "a: one\nb has 2"
    observations = env.step({"b": "two"})[0]
    assert observations["c"] == "a: one\nb: two\nc has 3"
    observations = env.step({"c": "three"})[0]
    assert observations["b"] == "c: three\nb has 1"
    quiet = Countdown(("a", "b"), share=False)
    quiet.reset(0)
    assert quiet.step({"a": "one"})[0]["b"] == "b has 2"


def test_the_limit_truncates_those_who_are_not_done():
    env = Countdown(("a", "b"), max_turns=1)
    env.reset(0)
    _, _, terminated, truncated, _ = env.step({"a": "x"})
    assert (terminated, truncated) == ({"a": True, "b": False}, {"a": False, "b": True})
    assert env.acting == []
    with pytest.raises(EnvError, match="the episode is over"):
        env.step({"b": "x"})


def test_wrong_actions_are_named():
    env = Countdown(("a", "b"))
    with pytest.raises(EnvError, match="no episode was begun"):
        env.step({"a": "x"})
    env.reset(0)
    with pytest.raises(UsageError, match="a missing and b not asked"):
        env.step({"b": "x"})
    with pytest.raises(EnvError, match="that of a is int"):
        env.step({"a": 3})
    with pytest.raises(EnvError, match="two names"):
        Countdown(("a", "a"))
    with pytest.raises(EnvError, match="mode is"):
        Countdown(mode="random")


@pytest.mark.parametrize("name", ["multi:SharedGame-v0", "multi:PrisonersDilemma-v0"])
def test_states_and_seeds(name):
    env = make(name)
    env.reset(4)
    step = {agent: env.sample_random_action() for agent in env.acting}
    env.step(step)
    other = make(name)
    other.set_state(json.loads(json.dumps(env.get_state())))
    assert other.acting == env.acting
    actions = {agent: env.sample_random_action() for agent in env.acting}
    assert other.step(actions) == env.step(actions)
    assert env.spawn().reset(4) == make(name).reset(4)


def test_a_shared_game_pays_everyone_what_the_game_pays():
    env = SharedGame("game:GuessTheNumber-v0-hard", ("a", "b"))
    env.reset(1)
    secret = env.game.secret
    env.step({"a": f"\\boxed{{{secret % 50 + 1}}}"})
    observations, rewards, terminated, _, infos = env.step({"b": f"I heard you. \\boxed{{{secret}}}"})
    assert rewards == {"a": 1.0, "b": 1.0}
    assert all(terminated.values())
    assert infos["a"]["solved"]
    assert observations["a"].startswith("b: I heard you.")
    with pytest.raises(EnvError, match="sequential"):
        SharedGame(mode="parallel")


def test_the_dilemma_pays_by_its_table():
    table = {("cooperate", "cooperate"): (3, 3), ("cooperate", "betray"): (0, 5), ("betray", "betray"): (1, 1)}
    for (first, second), points in table.items():
        env = PrisonersDilemma(("a", "b"), max_turns=4)
        env.reset(0)
        for turn in range(4):
            _, rewards, _, truncated, _ = env.step({"a": f"\\boxed{{{first}}}", "b": f"\\boxed{{{second.upper()}}}"})
            assert [rewards["a"] * 20, rewards["b"] * 20] == pytest.approx(points)
            assert all(truncated.values()) == (turn == 3)
    env.reset()
    _, rewards, *_ = env.step({"a": "hm", "b": "\\boxed{cooperate}"})
    assert rewards["a"] == pytest.approx(3 / 20 - 0.1)
    three = PrisonersDilemma(("a", "b", "c"), max_turns=1)
    three.reset(0)
    rewards = three.step({"a": "\\boxed{betray}", "b": "\\boxed{cooperate}", "c": "\\boxed{betray}"})[1]
    assert rewards["a"] == pytest.approx((5 + 1) / 2 / 5)


@pytest.mark.parametrize("api", ["aec", "parallel"])
def test_pettingzoo_takes_them(api):
    pytest.importorskip("pettingzoo")
    env = to_pettingzoo(make("multi:PrisonersDilemma-v0", max_turns=3), api=api)
    env.reset(seed=0)
    total = 0.0
    if api == "aec":
        for _ in env.agent_iter(max_iter=50):
            reward, terminated, truncated = env.last()[1:4]
            total += reward
            env.step(None if terminated or truncated else "\\boxed{cooperate}")
    else:
        while env.agents:
            _, rewards, *_ = env.step(dict.fromkeys(env.agents, "\\boxed{cooperate}"))
            total += sum(rewards.values())
    assert total == pytest.approx(2 * 3 / 5)
