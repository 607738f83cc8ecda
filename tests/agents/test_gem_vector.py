"""Vectors of environments: autoreset, dict actions, crashes, limits; equal in one thread, in many, in processes."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from gem_counting import Counting, Troubled, Waiting

from assay.agents.gem.env import EnvError
from assay.agents.gem.processes import ProcessVectorEnv
from assay.agents.gem.vector import AsyncVectorEnv, AutoresetMode, EnvCrash, SyncVectorEnv, make_vec

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "gem" / "vector_autoreset.json").read_text())
KINDS = [SyncVectorEnv, AsyncVectorEnv, ProcessVectorEnv]


def counting(kind, mode=AutoresetMode.SAME_STEP, lengths=(2, 3, 1), cls=Counting, **kwargs):
    fns = [partial(cls, length) for length in lengths]
    return kind([f"count:{length}" for length in lengths], fns, mode, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda case: case["mode"])
def test_autoreset_is_that_of_the_published_code(kind, case):
    with counting(kind, AutoresetMode(case["mode"])) as vector:
        first, *steps = case["trace"]
        assert vector.reset()[0] == first["obs"]
        for expected in steps:
            observations, rewards, terminated, truncated, _ = vector.step(["1", "2", "3"])
            assert observations == expected["obs"]
            assert rewards.tolist() == expected["reward"]
            assert rewards.dtype == np.float64
            assert terminated.tolist() == expected["terminated"]
            assert not truncated.any()


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_last_step_showed_is_kept(kind):
    with counting(kind) as vector:
        vector.reset()
        _, _, _, _, infos = vector.step(["1", "2", "3"])
        assert infos[2]["final_obs"] == "e1t1"
        assert infos[2]["final_info"] == {"turns": [1]}
        assert "final_obs" not in infos[0]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_environments_named_advance_in_the_order_given(kind):
    with counting(kind) as vector:
        vector.reset()
        observations, rewards, *_ = vector.step({1: "5", 0: "4"})
        assert observations == ["e1t1", "e1t1"]
        assert rewards.tolist() == [5.0, 4.0]
        assert vector.step({1: "0"})[0] == ["e1t2"]
        assert vector.step({2: "0"})[0] == ["e2t0"]


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_nothing_returned_is_shared_with_an_environment(kind):
    class Keeping(Counting):
        def begin(self):
            self.list = [0]
            return "", {"list": self.list}

    with kind(["a"], [Keeping]) as vector:
        _, infos = vector.reset()
        infos[0]["list"].append(1)
        assert vector.envs[0].list == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_ends_one_episode_and_the_others_go_on(kind):
    with counting(kind, cls=Troubled, lengths=(3, 3), on_crash="truncate") as vector:
        vector.reset()
        observations, rewards, terminated, truncated, infos = vector.step(["0", "raise"])
        assert (observations, rewards.tolist()) == (["e1t1", "e1t0"], [0.0, 0.0])
        assert (terminated.tolist(), truncated.tolist()) == ([False, False], [False, True])
        assert "out of order" in infos[1]["error"]
        assert vector.step(["0", "0"])[0] == ["e1t2", "e1t1"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_is_raised_with_the_environment_named_unless_asked_otherwise(kind):
    with counting(kind, cls=Troubled, lengths=(3, 3)) as vector:
        vector.reset()
        with pytest.raises(EnvCrash, match=r"Environment 1 \(count:3\): ValueError: out of order"):
            vector.step(["0", "raise"])


def test_a_crash_in_next_step_mode_is_followed_by_the_reset():
    with counting(SyncVectorEnv, AutoresetMode.NEXT_STEP, (3,), Troubled, on_crash="truncate") as vector:
        vector.reset()
        assert vector.step(["raise"])[3].tolist() == [True]
        observations, _, _, truncated, _ = vector.step(["ignored"])
        assert (observations, truncated.tolist()) == (["e2t0"], [False])


def test_a_process_that_dies_costs_the_environments_in_it_alone():
    with counting(ProcessVectorEnv, cls=Troubled, lengths=(5, 5, 5), workers=2, on_crash="truncate") as vector:
        vector.reset()
        home = vector._home
        beside = [i for i in range(3) if home[i] == home[0]]
        apart = next(i for i in range(3) if home[i] != home[0])
        _, _, _, truncated, infos = vector.step({0: "die"})
        assert truncated.tolist() == [True]
        assert "exit code 7" in infos[0]["error"]
        observations, _, _, truncated, _ = vector.step(["0", "0", "0"])
        assert observations[apart] == "e1t1"
        assert [bool(t) for t in truncated] == [i in beside and i != 0 for i in range(3)]
        assert vector.step(["0", "0", "0"])[3].tolist() == [False] * 3


@pytest.mark.parametrize("kind", [AsyncVectorEnv, ProcessVectorEnv])
def test_an_environment_that_hangs_is_left_behind(kind):
    with counting(kind, cls=Troubled, lengths=(9, 9), on_crash="truncate", seconds=0.5) as vector:
        vector.reset()
        begun = time.monotonic()
        observations, _, _, truncated, infos = vector.step(["hang", "0"])
        assert time.monotonic() - begun < 20
        assert (observations[1], truncated.tolist()) == ("e1t1", [True, False])
        assert "longer than its 0.5 seconds" in infos[0]["error"]
        assert vector.step(["0", "0"])[0] == ["e1t1", "e1t2"]


def test_threads_wait_together():
    # 16 waits of 20 ms: 320 ms one after the other
    with counting(AsyncVectorEnv, lengths=(5,) * 16, cls=Waiting) as vector:
        vector.reset()
        begun = time.monotonic()
        vector.step(["0"] * 16)
        assert time.monotonic() - begun < 0.2


def test_wrong_use_says_what_is_wrong():
    with counting(SyncVectorEnv) as vector:
        with pytest.raises(EnvError, match="was not reset"):
            vector.step(["1", "2", "3"])
        vector.reset()
        with pytest.raises(EnvError, match=r"3 environments and 2 action"):
            vector.step(["1", "2"])
        with pytest.raises(EnvError, match="one text"):
            vector.step("123")
        with pytest.raises(EnvError, match="no environment 3"):
            vector.step({3: "1"})
        with pytest.raises(EnvError, match="no argument 'env9_kwargs'"):
            vector.reset(env9_kwargs={})
        with pytest.raises(EnvError, match="seed is -1"):
            vector.reset(seed=-1)
    with pytest.raises(EnvError, match="closed"):
        vector.reset()
    with pytest.raises(EnvError, match="cannot interrupt"):
        counting(SyncVectorEnv, seconds=1)
    with pytest.raises(EnvError, match="not a lambda"):
        ProcessVectorEnv(["a"], [lambda: Counting(1)])


def test_after_the_end_without_autoreset_a_step_is_refused():
    with counting(SyncVectorEnv, AutoresetMode.DISABLED, (1,)) as vector:
        vector.reset()
        assert vector.step(["0"])[0] == ["e1t1"]
        with pytest.raises(EnvError, match="the episode is over"):
            vector.step(["0"])


def played(vector, seed):
    with vector:
        observations, infos = vector.reset(seed)
        seen = [observations, [info["suffix"] for info in infos]]
        for _ in range(12):
            observations, rewards, terminated, truncated, _ = vector.step(
                ["\\boxed{left}", "\\boxed{3}", "\\boxed{up}"]
            )
            seen.append([observations, rewards.tolist(), terminated.tolist(), truncated.tolist()])
        return seen


def test_sync_threads_and_processes_play_the_same_episodes():
    ids = ["game:Game2048-v0-easy", "game:GuessTheNumber-v0-random", "game:Sokoban-v0-easy"]
    seen = [played(make_vec(ids, async_mode=kind), 11) for kind in ("sync", "threads", "processes")]
    assert seen[0] == seen[1] == seen[2]


def test_make_vec_seeds_each_and_leaves_its_arguments_alone():
    ids = ["game:GuessTheNumber-v0-hard"] * 3
    settings = [{}, {"seed": 99}, {"max_turns": 2}]
    vector = make_vec(ids, vec_kwargs=settings, seed=5)
    assert settings == [{}, {"seed": 99}, {"max_turns": 2}]
    vector.reset()
    secrets = [env.unwrapped.secret for env in vector.envs]
    alone = []
    for seed in (5, 99, 7):
        single = make_vec("game:GuessTheNumber-v0-hard", seed=seed)
        assert single.num_envs == 1
        single.reset()
        alone.append(single.envs[0].unwrapped.secret)
    assert secrets == alone
    assert vector.envs[2].unwrapped.max_turns == 2
    with pytest.raises(EnvError, match="one each"):
        make_vec(ids, vec_kwargs=[{}])
