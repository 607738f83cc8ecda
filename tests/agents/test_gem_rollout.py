"""Rollouts: every episode once, in order, none waiting for the slowest; crashes; chat models."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest
from gem_counting import Counting, Troubled

from assay.agents.gem.env import Env, EnvError, Turn
from assay.agents.gem.registry import make
from assay.agents.gem.rollout import CUT_REPLY, Act, Rollout, rollout
from assay.systems.scripted import ScriptedChatModel


class Constant:
    def __init__(self, text="1", cut=False):
        self.text, self.cut, self.sizes = text, cut, []

    def act(self, prompts):
        self.sizes.append(len(prompts))
        return [Act(self.text, cut=self.cut) for _ in prompts]


@pytest.mark.parametrize("threads", [0, 3])
def test_every_seed_is_played_once_and_comes_back_in_order(threads):
    envs = [make("game:GuessTheNumber-v0-hard") for _ in range(3)]
    found = Rollout(envs, Constant("\\boxed{25}"), threads=threads).episodes(range(20))
    assert [episode.group for episode in found] == list(range(20))
    for seed, episode in enumerate(found):
        alone = make("game:GuessTheNumber-v0-hard")
        prompt, _ = alone.reset(seed)
        assert episode.decisions[0].prompt == prompt
        assert episode.rewards == [alone.step("\\boxed{25}")[1] for _ in episode.decisions]


def test_all_that_are_ready_are_asked_together():
    policy = Constant()
    Rollout([Counting(3) for _ in range(8)], policy).episodes(range(8))
    assert policy.sizes == [8, 8, 8]


def test_enough_turns_and_only_whole_episodes():
    found = Rollout([Counting(3) for _ in range(4)], Constant()).turns(20, itertools.count())
    assert all(len(episode) == 3 and episode.terminated for episode in found)
    assert 20 <= sum(map(len, found)) < 20 + 4 * 3


def test_nobody_waits_for_the_slowest():
    class Slow(Env):
        def __init__(self, seconds):
            super().__init__()
            self.seconds = seconds

        def begin(self):
            return "", {}

        def act(self, action):
            time.sleep(self.seconds)
            return Turn("", 1.0, self.turn == 5)

    slow, quick = Slow(0.1), [Slow(0.005) for _ in range(3)]
    begun = time.monotonic()
    found = Rollout([slow, *quick], Constant(), threads=4).episodes(range(13))
    assert time.monotonic() - begun < 3 * 5 * 0.1  # in lock-step: 4 rounds of 5 slow steps
    assert len(found) == 13


def test_an_episode_that_crashes_is_cut_and_the_others_go_on():
    class Once(Constant):
        def act(self, prompts):
            return [Act("raise" if prompt == "e1t1" else "0") for prompt in prompts]

    rollout_ = Rollout([Troubled(3), Counting(3)], Once(), on_crash="truncate")
    found = rollout_.episodes(range(2))
    assert (found[0].truncated, found[0].error, len(found[0])) == (True, "ValueError: out of order", 2)
    with pytest.raises(ValueError, match="out of order"):
        Rollout([Troubled(3)], Once()).episodes(range(1))
    with pytest.raises(EnvError, match="at least one"):
        Rollout([], Once())


def test_a_reply_that_was_cut_is_no_action():
    seen = []

    class Listening(Counting):
        def act(self, action):
            seen.append(action)
            return super().act("0")

    Rollout([Listening(1)], Constant("\\boxed{4", cut=True)).episodes([0])
    assert seen == [CUT_REPLY]


def test_chat_models_play_many_episodes_at_once():
    running, most = set(), []

    async def model(messages, rng):
        running.add(id(messages))
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.discard(id(messages))
        return "\\boxed{25}"

    threads = threading.active_count()
    traces = asyncio.run(
        rollout(ScriptedChatModel(model), lambda: make("game:GuessTheNumber-v0-hard"), range(6), concurrency=3)
    )
    assert [trace.info["seed"] for trace in traces] == list(range(6))
    assert max(most) == 3
    assert threading.active_count() <= threads + 4
