"""Environments and their adapters: Gymnasium and PettingZoo check them, and they lead back to where they came from."""

from __future__ import annotations

import asyncio
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import ProviderError, UsageError
from assay.systems.agent import Limits, lift, partial_trace, play
from assay.systems.chat.model import Choice, Reply, ToolCall, Usage
from assay.systems.environment import (
    Environment,
    MultiAgentEnvironment,
    content_of,
    from_gymnasium,
    from_pettingzoo,
    generator,
    to_gymnasium,
    to_pettingzoo,
)
from assay.systems.scripted import ReplayModel, ScriptedChatModel
from assay.systems.tools import tool
from assay.systems.trace import Trace

gymnasium = pytest.importorskip("gymnasium")


class Guess:
    """Guess a number below ten within four turns; sets both flags at the limit, as some suites do."""

    def __init__(self, pictures=False):
        self.pictures = pictures
        self.rng = generator(0)

    def _see(self, text):
        return {"text": text, "image": np.full((4, 6, 3), self.turn, np.uint8)} if self.pictures else text

    def reset(self, seed=None):
        if seed is not None:
            self.rng = generator(seed)
        self.secret, self.turn = int(self.rng.integers(10)), 0
        return self._see("guess"), {"limit": 4}

    def step(self, action):
        self.turn += 1
        right = action.strip() == str(self.secret)
        last = self.turn == 4
        hint = "right" if right else "wrong"
        return self._see(hint), float(right), right or last, last, {"solved": right, "turn": self.turn}

    def sample_random_action(self):
        return str(int(self.rng.integers(10)))


class Nim:
    """Two players take one to three of twelve sticks in turn; who takes the last one wins."""

    agents = ("first", "second")

    def __init__(self):
        self._next = []

    @property
    def acting(self):
        return self._next

    def reset(self, seed=None):
        self.left, self._next = 12, ["first"]
        return dict.fromkeys(self.agents, "12 left"), {a: {} for a in self.agents}

    def step(self, actions):
        (agent,) = actions
        other = next(a for a in self.agents if a != agent)
        take = int(actions[agent]) if actions[agent] in ("1", "2", "3") else 1
        self.left = max(0, self.left - take)
        over = self.left == 0
        self._next = [] if over else [other]
        rewards = {agent: 1.0 if over else 0.0, other: -1.0 if over else 0.0}
        flags = dict.fromkeys(self.agents, over)
        return dict.fromkeys(self.agents, f"{self.left} left"), rewards, flags, dict.fromkeys(self.agents, False), {}


class Pennies:
    """Two players choose at once, three rounds; equal choices pay the first."""

    agents = ("even", "odd")
    acting = ()

    def reset(self, seed=None):
        self.round, self.acting = 0, list(self.agents)
        return dict.fromkeys(self.agents, "choose"), {a: {} for a in self.agents}

    def step(self, actions):
        self.round += 1
        same = actions["even"] == actions["odd"]
        over = self.round == 3
        if over:
            self.acting = []
        flags = dict.fromkeys(self.agents, False)
        rewards = {"even": 1.0 if same else -1.0, "odd": -1.0 if same else 1.0}
        return dict.fromkeys(self.agents, f"round {self.round}"), rewards, flags, dict(flags), {}


def test_they_are_environments():
    assert isinstance(Guess(), Environment)
    assert isinstance(Nim(), MultiAgentEnvironment)
    assert not isinstance(object(), Environment)


@given(st.integers(0, 2**63))
def test_a_generator_is_a_function_of_its_seed_and_of_nothing_else(seed):
    np.random.seed(0)  # noqa: NPY002
    first = generator(seed).integers(2**32, size=3)
    np.random.seed(1)  # noqa: NPY002
    assert (first == generator(np.int64(seed) if seed < 2**62 else seed).integers(2**32, size=3)).all()


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(UsageError, match="seed is"):
        generator(seed)


# -- Gymnasium ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pictures", [False, True])
def test_gymnasium_finds_no_fault(pictures):
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(minimum|maximum) value.*|.*render.*")
        check_env(to_gymnasium(Guess(pictures)), skip_render_check=True)


def test_an_episode_in_gymnasium_ends_with_exactly_one_flag():
    env = to_gymnasium(Guess())
    env.reset(seed=3)
    secret = env.unwrapped.source.secret
    for _ in range(3):
        assert env.step("no")[2:4] == (False, False)
    assert env.step("no")[2:4] == (False, True)
    env.reset(seed=3)
    for _ in range(3):
        env.step("no")
    assert env.step(str(secret))[1:4] == (1.0, True, False)
    with pytest.raises(UsageError, match="call reset first"):
        env.step("1")


def test_gymnasium_vectors_take_it():
    envs = gymnasium.vector.SyncVectorEnv([lambda: to_gymnasium(Guess()) for _ in range(3)])
    observations, _ = envs.reset(seed=0)
    assert tuple(observations) == ("guess",) * 3
    observations, rewards, *_ = envs.step(["1", "2", "3"])
    assert set(observations) <= {"right", "wrong"}
    assert rewards.shape == (3,)


def test_a_text_environment_comes_back_from_gymnasium_unchanged():
    plain, round_trip = Guess(), from_gymnasium(to_gymnasium(Guess()))
    assert plain.reset(5) == round_trip.reset(5)
    for action in ("1", "2", "3"):
        a, b = plain.step(action), round_trip.step(action)
        assert a == b
    assert isinstance(round_trip.sample_random_action(), str)


class Corridor(gymnasium.Env):
    """Walk right to the end."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 3, (1,), np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.array([0]), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        return np.array([self.place]), float(self.place == 3), self.place == 3, False, {}


def test_a_gymnasium_environment_is_played_by_names_or_json():
    env = from_gymnasium(Corridor(), actions=["left", "right"])
    assert env.reset(0)[0] == "[0]"
    assert env.step("right")[0] == "[1]"
    lost = env.step("jump")
    assert lost[:4] == ("[1]", 0.0, False, False)
    assert "'jump' is no action; there are: left, right" in lost[4]["invalid_action"]
    env.step("right")
    assert env.step(" right ")[1:3] == (1.0, True)
    with pytest.raises(UsageError, match="reset"):
        env.step("right")
    numbers = from_gymnasium(Corridor())
    numbers.reset(0)
    assert numbers.step("1")[0] == "[1]"
    for text in ("2", "true", "1.0", "[1]", "no", "9" * 50):
        assert "invalid_action" in numbers.step(text)[4]
    assert numbers.sample_random_action() in ("0", "1")
    assert env.sample_random_action() in ("left", "right")


def test_structured_actions_are_read_as_json():
    spaces = gymnasium.spaces
    from assay.systems.environment import ActionReader

    box = ActionReader(spaces.Box(-1, 1, (2,), np.float32), None)
    action, problem = box("[0.5, -1]")
    assert problem is None
    assert action.tolist() == [0.5, -1.0]
    assert box("[2, 0]")[1] is not None
    both = ActionReader(spaces.Dict({"n": spaces.Discrete(3), "t": spaces.Tuple([spaces.Discrete(2)])}), None)
    assert both('{"n": 2, "t": [1]}') == ({"n": 2, "t": (1,)}, None)
    assert both('{"n": 2}')[1] is not None


# -- PettingZoo --------------------------------------------------------------------------------------------------------


@pytest.fixture
def zoo():
    return pytest.importorskip("pettingzoo")


@pytest.mark.parametrize("make", [Nim, Pennies])
def test_pettingzoo_finds_no_fault(zoo, make, monkeypatch):
    from importlib import import_module

    from pettingzoo.test import api_test, parallel_api_test

    # Its check of array dtypes breaks on every text observation; that spaces contain observations is still checked.
    checks = import_module("pettingzoo.test.api_test")
    monkeypatch.setattr(checks, "_test_observation_space_compatibility", lambda *_, **__: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api_test(to_pettingzoo(make()), num_cycles=30)
        parallel_api_test(to_pettingzoo(make(), api="parallel"), num_cycles=30)


@pytest.mark.parametrize(("make", "api"), [(Nim, "aec"), (Pennies, "aec"), (Pennies, "parallel")])
def test_a_game_comes_back_from_pettingzoo(zoo, make, api):
    plain, trip = make(), from_pettingzoo(to_pettingzoo(make(), api=api))
    plain.reset(0)
    trip.reset(0)
    total, totals = dict.fromkeys(plain.agents, 0.0), dict.fromkeys(plain.agents, 0.0)
    for _ in range(50):
        if not plain.acting:
            break
        for agent, reward in plain.step(dict.fromkeys(plain.acting, "2"))[1].items():
            total[agent] += reward
    for _ in range(50):
        if not trip.acting:
            break
        for agent, reward in trip.step(dict.fromkeys(trip.acting, "2"))[1].items():
            totals[agent] += reward
    assert not trip.acting
    assert total == totals


def test_wrong_actions_in_a_multi_agent_step_are_named(zoo):
    trip = from_pettingzoo(to_pettingzoo(Pennies(), api="parallel"))
    trip.reset(0)
    with pytest.raises(UsageError, match="odd missing and tails not asked"):
        trip.step({"even": "1", "tails": "1"})
    with pytest.raises(UsageError, match="neither"):
        from_pettingzoo(object())
    with pytest.raises(UsageError, match="api is 'both'"):
        to_pettingzoo(Nim(), api="both")


# -- episodes ----------------------------------------------------------------------------------------------------------


def episode(actor, env=None, **options):
    return asyncio.run(play(actor, env or Guess(), **options))


def test_a_model_plays_an_episode_and_the_trace_holds_it():
    secret = int(generator(7).integers(10))
    model = ReplayModel(["11", str(secret)])
    trace = episode(model, seed=7, system="Play.")
    assert (trace.end, trace.rewards, trace.actions) == ("terminated", [0.0, 1.0], ["11", str(secret)])
    assert [m["role"] for m in trace.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert trace.info["final"] == {"solved": True, "turn": 2}
    assert [s.kind for s in trace.steps] == ["model", "environment"] * 2
    assert list(trace.replay_episode(Guess()))[-1][1] == 1.0


def test_a_replay_in_another_world_is_noticed():
    from assay.core.errors import DataError

    trace = episode(ReplayModel([str(int(generator(7).integers(10)))]), seed=7)
    trace.info["seed"] = 8
    with pytest.raises(DataError, match=r"environment step 0: reward is 0\.0, recorded was 1\.0"):
        list(trace.replay_episode(Guess()))


def test_the_turn_limit_of_the_world_truncates_and_ours_stops():
    assert episode(ScriptedChatModel(lambda m, r: "x")).end == "truncated"
    stopped = episode(ScriptedChatModel(lambda m, r: "x"), limits=Limits(turns=2))
    assert (stopped.end, len(stopped.rewards)) == ("step limit", 2)


def test_a_function_plays_too():
    seen = []

    def policy(observation, info):
        seen.append((observation, info))
        return "x"

    trace = episode(policy, limits=Limits(turns=3))
    assert seen[0] == ("guess", {"limit": 4})
    assert (trace.end, trace.turns, trace.info["model"]) == ("step limit", 3, "policy")
    with pytest.raises(UsageError, match="an action is a text"):
        episode(lambda observation, info: 3)
    with pytest.raises(UsageError, match="no chat model"):
        episode(3)


def test_history_hides_old_turns_but_not_the_rules():
    seen = []

    def answer(messages, rng):
        seen.append([m["content"] for m in messages])
        return f"no {len(seen)}"

    episode(ScriptedChatModel(answer), history=1, system="Play.")
    assert seen[0] == ["Play.", "guess"]
    assert seen[3] == ["Play.", "guess", "no 3", "wrong"]
    seen.clear()
    episode(ScriptedChatModel(answer), history=0)
    assert seen[2] == ["guess", "wrong"]


def test_an_agent_plays_with_tools_and_its_steps_are_in_the_trace():
    def oracle() -> str:
        """Tells the number."""
        return str(int(generator(7).integers(10)))

    call = Reply((Choice("", tool_calls=(ToolCall("c", "oracle", "{}"),), stop_reason="tool_calls"),), Usage(5, 2))
    secret = oracle()
    agent = lift(ReplayModel(["x", call, secret]), "tool_loop", system="Be clever.")
    trace = episode(agent, seed=7, tools=[tool(oracle)])
    assert (trace.end, trace.actions) == ("terminated", ["x", secret])
    assert [s.kind for s in trace.steps] == ["model", "environment", "model", "tool", "model", "environment"]
    assert [s.turn for s in trace.steps] == [0, 0, 1, 1, 1, 1]
    for step in trace.steps:
        role = trace.messages[step.message]["role"]
        assert role == {"model": "assistant", "tool": "tool", "environment": "user"}[step.kind]


def test_an_agent_that_runs_out_of_calls_ends_the_episode():
    call = Reply((Choice("", tool_calls=(ToolCall("c", "nothing", "{}"),), stop_reason="tool_calls"),), Usage(5, 2))
    agent = lift(ScriptedChatModel(lambda m, r: call))
    trace = episode(agent, limits=Limits(tool_calls=3))
    assert (trace.end, trace.tool_calls) == ("tool limit", 3)


def test_what_is_read_from_the_reply_is_the_action():
    trace = episode(ReplayModel(["move: 3"] * 4), read=lambda text: text.removeprefix("move: "), seed=0)
    assert set(trace.actions) == {"3"}


def test_pictures_are_shown_saved_once_and_loaded(tmp_path):
    model = ReplayModel(["x"] * 4)
    trace = episode(model, Guess(pictures=True), images={"scale": 2})
    parts = model.seen[0][0]["content"]
    assert [p["type"] for p in parts] == ["image_url", "text"]
    trace.save(tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 5
    assert Trace.load(tmp_path / "trace.json").messages == trace.messages
    assert content_of("text") == "text"


def test_a_failure_in_the_middle_leaves_the_episode_so_far():
    with pytest.raises(ProviderError) as caught:
        episode(ReplayModel(["x", ProviderError("down")]))
    trace = partial_trace(caught.value)
    assert trace is not None
    assert (trace.end, len(trace.rewards)) == ("error", 1)
    agent = lift(ReplayModel(["x", ProviderError("down")]))
    with pytest.raises(ProviderError) as caught:
        episode(agent)
    trace = partial_trace(caught.value)
    assert trace is not None
    assert trace.info["agent"] == "play"
    assert len(trace.rewards) == 1


def test_an_async_environment_is_awaited():
    class Later(Guess):
        async def reset(self, seed=None):
            return super().reset(seed)

        async def step(self, action):
            await asyncio.sleep(0)
            return super().step(action)

    assert episode(ScriptedChatModel(lambda m, r: "x"), Later()).end == "truncated"


def test_a_full_context_hides_the_older_turns():
    shown = []

    def answer(messages, rng):
        shown.append(len(messages))
        return Reply((Choice("x"),), Usage(len(messages) * 10, 1))

    trace = episode(ScriptedChatModel(answer), limits=Limits(turns=None, context=30))
    assert trace.end == "truncated"
    assert "compaction" in [s.kind for s in trace.steps]
    assert max(shown) <= 5
