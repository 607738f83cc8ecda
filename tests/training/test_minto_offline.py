"""Offline data in published layouts, recording, and the offline learners."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest
import torch

from assay.core.errors import DataError, UsageError
from assay.training.minto import data
from assay.training.minto.data import FrameReplay, Transitions


def some(n=40, *, seed=0, actions=2):
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((n, 4)).astype(np.float32)
    flags = rng.random(n) < 0.2
    return Transitions(
        obs, rng.integers(actions, size=n), rng.random(n).astype(np.float32), obs + 1, flags, ~flags & (obs[:, 0] > 1)
    )


def write_logs(folder, terminal, checkpoint=3):
    n = len(terminal)
    frames = np.arange(1, n + 1, dtype=np.uint8)[:, None, None] * np.ones((1, 84, 84), np.uint8)
    for name, values in (
        ("observation", frames), ("action", np.arange(n, dtype=np.int32) % 4),
        ("reward", np.arange(n, dtype=np.float32)), ("terminal", np.asarray(terminal, np.uint8)),
    ):  # fmt: skip
        held = io.BytesIO()
        np.save(held, values)
        with gzip.open(folder / f"$store$_{name}_ckpt.{checkpoint}.gz", "wb") as file:
            file.write(held.getvalue())


def test_frames_are_stacked_and_never_across_the_end_of_an_episode(tmp_path):
    write_logs(tmp_path, [0, 0, 1, 0, 0, 0, 0, 0, 1, 0])
    replay = FrameReplay(tmp_path, 3)
    seen = replay.observations(np.arange(10))[:, :, 0, 0]
    assert seen[2].tolist() == [0, 1, 2, 3]
    assert seen[3].tolist() == [0, 0, 0, 4]
    assert seen[7].tolist() == [5, 6, 7, 8]
    assert seen[9].tolist() == [0, 0, 0, 10]
    assert replay.places.tolist() == list(range(9))
    found = replay.transitions(np.array([1, 2, 3]))
    assert found.terminated.tolist() == [False, True, False]
    assert found.next_obs[:, :, 0, 0].tolist() == [[0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 4, 5]]
    assert found.action.tolist() == [1, 2, 3]
    batch = next(replay.batches(32, np.random.default_rng(0)))
    assert batch.obs.shape == (32, 4, 84, 84)
    assert not (batch.truncated).any()
    with pytest.raises(UsageError, match=r"\[0, 8\]"):
        replay.transitions(np.array([9]))
    with pytest.raises(DataError, match="not there"):
        FrameReplay(tmp_path, 4)
    (tmp_path / "$store$_action_ckpt.3.gz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="gzip"):
        FrameReplay(tmp_path, 3)


def test_cql_learns_from_frames_without_copying_them(tmp_path):
    pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    gymnasium = pytest.importorskip("gymnasium")
    from assay.training.minto.offline import FrameBuffer, MintoCQL

    class Pictures(gymnasium.Env):
        def __init__(self, stack=4, actions=4):
            self.observation_space = gymnasium.spaces.Box(0, 255, (stack, 84, 84), np.uint8)
            self.action_space = gymnasium.spaces.Discrete(actions)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(self.observation_space.shape, np.uint8), {}

    def model(env, **more):
        return MintoCQL(
            "CnnPolicy", env, buffer_size=1, batch_size=4, seed=0, device="cpu", target_update_interval=2,
            policy_kwargs={"features_extractor_kwargs": {"features_dim": 8}}, **more,
        )  # fmt: skip

    write_logs(tmp_path, [0, 0, 1, 0, 0, 0, 0, 0, 1, 0])
    replay = FrameReplay(tmp_path, 3)
    one, two = (model(Pictures()).fit(replay, 4) for _ in range(2))
    assert isinstance(one.replay_buffer, FrameBuffer)
    assert (one._n_updates, one.replay_buffer.size()) == (4, 9)
    for a, b in zip(one.policy.parameters(), two.policy.parameters()):
        assert torch.equal(a, b)
    # What it draws is what the frames give, and what training on copies of them would see.
    batch = one.replay_buffer._get_samples(np.array([1, 2, 3]))
    wanted = replay.transitions(np.array([1, 2, 3]))
    assert torch.equal(batch.observations, torch.from_numpy(wanted.obs))
    assert torch.equal(batch.next_observations, torch.from_numpy(wanted.next_obs))
    assert batch.actions.tolist() == [[1], [2], [3]]
    assert batch.rewards.tolist() == [[1.0], [2.0], [3.0]]
    assert batch.dones.tolist() == [[0.0], [1.0], [0.0]]
    assert batch.dones.dtype == batch.rewards.dtype == torch.float32
    with pytest.raises(UsageError, match="stacked to"):
        model(Pictures(stack=2)).fit(replay, 1)
    with pytest.raises(UsageError, match="go up to 3"):
        model(Pictures(actions=3)).fit(replay, 1)
    with pytest.raises(UsageError, match="n_steps=3"):
        model(Pictures(), n_steps=3).fit(replay, 1)


def test_d4rl_files_are_read_with_and_without_what_follows(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    obs = np.arange(12, dtype=np.float32).reshape(6, 2)
    columns = {
        "observations": obs, "actions": np.ones((6, 1)), "rewards": np.arange(6.0), "terminals": [0, 1, 0, 0, 0, 0],
        "timeouts": [0, 0, 0, 1, 0, 0],
    }  # fmt: skip

    def write(name, **more):
        with h5py.File(tmp_path / name, "w") as file:
            for key, value in {**columns, **more}.items():
                file[key] = value
        return tmp_path / name

    found = data.load_d4rl(write("plain.hdf5"))
    assert found.reward.tolist() == [0, 1, 2, 4]  # a time-out's end and the last row's are not in the file
    np.testing.assert_array_equal(found.next_obs[0], obs[1])
    assert found.terminated.tolist() == [False, True, False, False]
    whole = data.load_d4rl(write("whole.hdf5", next_observations=obs + 100))
    assert len(whole) == 6
    assert whole.truncated.tolist() == [False, False, False, True, False, False]
    with h5py.File(tmp_path / "bad.hdf5", "w") as file:
        file["observations"] = obs
    with pytest.raises(DataError, match="no 'actions'"):
        data.load_d4rl(tmp_path / "bad.hdf5")
    (tmp_path / "text.hdf5").write_text("no")
    with pytest.raises(DataError, match="no HDF5 file"):
        data.load_d4rl(tmp_path / "text.hdf5")
    with pytest.raises(DataError, match="rows"):
        data.load_d4rl(write("short.hdf5", actions=np.ones((5, 1))))


def test_minari_episodes_are_read(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "main_data.hdf5", "w") as file:
        for name, n in (("episode_10", 2), ("episode_2", 3)):
            group = file.create_group(name)
            group["observations"] = np.full((n + 1, 4), n, np.float32)
            group["actions"] = np.arange(n)
            group["rewards"] = np.full(n, float(n))
            group["terminations"] = np.arange(n) == n - 1
            group["truncations"] = np.zeros(n, bool)
    found = data.load_minari(tmp_path)
    assert found.reward.tolist() == [3, 3, 3, 2, 2]
    assert found.terminated.tolist() == [False, False, True, False, True]
    with h5py.File(tmp_path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_2/truncations"]
    with pytest.raises(DataError, match="episode_2: truncations missing"):
        data.load_minari(tmp_path)
    with pytest.raises(DataError, match="0 files"):
        data.load_minari(_empty(tmp_path))


def _empty(folder):
    (folder / "empty").mkdir()
    return folder / "empty"


def test_minaris_own_files_are_read(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari", reason="minari is not installed")
    pytest.importorskip("jax", reason="minari writes data sets with jax, which is not installed")
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gymnasium.make("CartPole-v1"))
    env.action_space.seed(0)
    rewards = 0.0
    for seed in range(3):
        env.reset(seed=seed)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            rewards += float(reward)
            done = terminated or truncated
    env.create_dataset("cartpole/random-v0")
    found = data.load_minari(tmp_path / "cartpole" / "random-v0")
    assert len(found) == rewards
    assert found.terminated.sum() == 3


def test_archives_come_back_and_bad_ones_are_named(tmp_path):
    made = some()
    made.save(tmp_path / "made.npz")
    again = Transitions.load(tmp_path / "made.npz")
    np.testing.assert_array_equal(again.next_obs, made.next_obs)
    assert len(made.kept(0.1, np.random.default_rng(0))) == 4
    np.savez(tmp_path / "other.npz", obs=made.obs)
    with pytest.raises(DataError, match="no archive"):
        Transitions.load(tmp_path / "other.npz")
    with pytest.raises(UsageError, match="share"):
        made.kept(0.0, np.random.default_rng(0))
    with pytest.raises(DataError, match="equally many"):
        Transitions(made.obs, made.action[:3], made.reward, made.next_obs, made.terminated, made.truncated)


def test_behaviour_is_recorded_with_its_time_limits():
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("MountainCar-v0")
    found = data.record(lambda obs: 0, env, 250, epsilon=0.5, seed=1)
    assert np.flatnonzero(found.truncated).tolist() == [199, 249]
    assert not found.terminated.any()
    assert 0.5 < (found.action == 0).mean() < 0.8
    np.testing.assert_array_equal(found.next_obs[5], found.obs[6])
    again = data.record(lambda obs: 0, gymnasium.make("MountainCar-v0"), 250, epsilon=0.5, seed=1)
    np.testing.assert_array_equal(again.obs, found.obs)


def test_replay_buffers_give_and_take_what_was_played():
    pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    from assay.training.minto.algorithms import MintoDQN

    kwargs = {"seed": 0, "learning_starts": 1000, "train_freq": 1, "device": "cpu"}
    model = MintoDQN("MlpPolicy", "MountainCar-v0", buffer_size=300, **kwargs)
    model.learn(410)
    found = data.from_replay_buffer(model.replay_buffer)
    assert len(found) == 300
    # Steps 110 to 409: the limit of 200 steps falls on 199 and 399.
    assert np.flatnonzero(found.truncated).tolist() == [89, 289]
    assert not found.terminated.any()
    np.testing.assert_array_equal(found.next_obs[3], found.obs[4])
    other = MintoDQN("MlpPolicy", "MountainCar-v0", buffer_size=400, seed=0, device="cpu")
    data.fill_replay_buffer(other.replay_buffer, found)
    again = data.from_replay_buffer(other.replay_buffer)
    for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert other.replay_buffer.sample(300).dones.sum() == 0
    with pytest.raises(UsageError, match="raise buffer_size"):
        data.fill_replay_buffer(MintoDQN("MlpPolicy", "MountainCar-v0", buffer_size=10).replay_buffer, found)


def good_and_bad(n=600):
    """One step an episode: action 1 earns 1, action 0 nothing; recorded mostly as 0."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-0.04, 0.04, (n, 4)).astype(np.float32)
    action = (rng.random(n) < 0.3).astype(np.int64)
    return Transitions(obs, action, action.astype(np.float32), obs, np.ones(n, bool), np.zeros(n, bool))


@pytest.mark.parametrize("name", ["MintoCQL", "MintoIQL"])
@pytest.mark.parametrize("bootstrap", ["min", "target", "random"])
def test_discrete_learners_find_the_better_action_in_data(name, bootstrap, tmp_path):
    pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    import gymnasium

    from assay.training.minto import offline

    cls = getattr(offline, name)
    model = cls(
        "MlpPolicy", "CartPole-v1", bootstrap=bootstrap, learning_rate=3e-3, buffer_size=1000, batch_size=32, seed=0,
        target_update_interval=50, device="cpu", policy_kwargs={"net_arch": [32]},
    )  # fmt: skip
    found = good_and_bad()
    model.fit(found, 250, log_interval=100)
    chosen = model.predict(found.obs[:50], deterministic=True)[0]
    assert (chosen == 1).mean() > 0.9
    model.save(tmp_path / "model")
    again = cls.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"))
    assert (again.predict(found.obs[:50], deterministic=True)[0] == chosen).all()
    assert again.bootstrap == bootstrap


def test_cqls_penalty_lowers_actions_that_were_not_recorded():
    pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    from assay.training.minto.offline import MintoCQL

    made = some(300, seed=1)
    always_0 = Transitions(made.obs, made.action * 0, made.reward, made.next_obs, made.terminated, made.truncated)
    gaps = []
    for alpha in (0.0, 1.0):
        model = MintoCQL(
            "MlpPolicy", "CartPole-v1", alpha=alpha, learning_rate=3e-3, buffer_size=300, seed=0, device="cpu",
            target_update_interval=20,
        ).fit(always_0, 150)  # fmt: skip
        with torch.no_grad():
            q = model.q_net(torch.from_numpy(made.obs))
        gaps.append(float((q[:, 0] - q[:, 1]).mean()))
    assert gaps[1] > gaps[0] + 0.5


@pytest.mark.parametrize("bootstrap", ["min", "random"])
def test_continuous_cql_learns_from_data_and_its_penalty_is_small_where_values_are_flat(bootstrap):
    pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    gymnasium = pytest.importorskip("gymnasium")
    from assay.training.minto.offline import MintoContinuousCQL

    env = gymnasium.make("Pendulum-v1")
    played = data.record(lambda obs: env.action_space.sample(), env, 400, seed=0)
    model = MintoContinuousCQL(
        "MlpPolicy", "Pendulum-v1", bootstrap=bootstrap, alpha=1.0, samples=4, buffer_size=500, batch_size=32, seed=0,
        device="cpu", policy_kwargs={"net_arch": [16]},
    )  # fmt: skip
    with torch.no_grad():
        for head in model.critic.q_networks:  # values that do not depend on the action
            head[-1].weight.zero_()
    data.fill_replay_buffer(model.replay_buffer, played)
    batch = model.replay_buffer.sample(64)
    taken = torch.stack(model.critic(batch.observations, batch.actions))[..., 0]
    # log of the mean weight 1/density over uniform draws is log 2 (the width of the actions); the policy's add little.
    assert abs(float(model._penalty(batch, taken).detach()) / 2 - np.log(2)) < 0.5
    model.fit(played, 30)
    assert all(torch.isfinite(v).all() for v in model.policy.state_dict().values())
    assert model.online_rate is not None


def test_bad_arguments_are_one_sentence():
    pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    from assay.training.minto import offline

    with pytest.raises(ValueError, match="alpha"):
        offline.MintoCQL("MlpPolicy", "CartPole-v1", alpha=-1)
    with pytest.raises(ValueError, match="expectile"):
        offline.MintoIQL("MlpPolicy", "CartPole-v1", expectile=1.0)
    with pytest.raises(ValueError, match="chooses"):
        offline.MintoIQL("MlpPolicy", "CartPole-v1", bootstrap="double", buffer_size=10)
    with pytest.raises(ValueError, match="samples"):
        offline.MintoContinuousCQL("MlpPolicy", "Pendulum-v1", samples=0)
    with pytest.raises(UsageError, match="updates"):
        offline.MintoCQL("MlpPolicy", "CartPole-v1", buffer_size=10).fit(some(5), 0)
