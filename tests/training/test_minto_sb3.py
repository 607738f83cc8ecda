"""The stable-baselines3 classes: the base class to the bit, the right target, saving, warnings, NaN, peers, IQN."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")

import gymnasium
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import DQN, SAC, TD3

from assay.training.minto import algorithms, baselines, iqn, targets
from assay.training.minto.distributional import combine_quantiles

DISCRETE = {
    "learning_rate": 1e-2, "learning_starts": 20, "train_freq": 2, "target_update_interval": 30, "batch_size": 8,
    "buffer_size": 500, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [16]},
}  # fmt: skip
CONTINUOUS = {"learning_starts": 20, "batch_size": 8, "buffer_size": 500, "seed": 0, "device": "cpu"}
QUANTILES = {**DISCRETE, "policy_kwargs": {"net_arch": [16], "n_quantiles": 5}}
SMALL = {"policy_kwargs": {"net_arch": [16]}}
PAIRS = [
    (algorithms.MintoDQN, DQN, "Acrobot-v1", DISCRETE),
    (algorithms.MintoQRDQN, QRDQN, "Acrobot-v1", QUANTILES),
    (algorithms.MintoSAC, SAC, "Pendulum-v1", {**CONTINUOUS, **SMALL}),
    (algorithms.MintoTD3, TD3, "Pendulum-v1", {**CONTINUOUS, **SMALL}),
    (algorithms.MintoTQC, TQC, "Pendulum-v1", {**CONTINUOUS, **SMALL}),
]
NAMES = [ours.__name__ for ours, *_ in PAIRS]


@pytest.fixture(autouse=True)
def _own_arguments(monkeypatch):
    """stable-baselines3 writes into the policy_kwargs that it is given."""
    for table in (DISCRETE, QUANTILES, SMALL, *(kwargs for *_, kwargs in PAIRS)):
        for name, value in copy.deepcopy(table).items():
            monkeypatch.setitem(table, name, value)


def weights(model):
    return {k: v.clone() for k, v in model.policy.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(("ours", "base", "env", "kwargs"), PAIRS, ids=NAMES)
def test_bootstrap_target_is_the_base_class_to_the_bit_and_min_is_not(ours, base, env, kwargs):
    plain = base("MlpPolicy", env, **kwargs).learn(90)
    assert same(weights(ours("MlpPolicy", env, bootstrap="target", **kwargs).learn(90)), weights(plain))
    least = ours("MlpPolicy", env, **kwargs).learn(90)
    assert least.bootstrap == "min"
    assert not same(weights(least), weights(plain))
    assert 0 <= least.online_rate <= 1
    # Nothing that stands in is left behind.
    assert isinstance(getattr(least, ours._target_name), nn.Module)


@pytest.mark.parametrize(("ours", "base", "env", "kwargs"), PAIRS, ids=NAMES)
@pytest.mark.parametrize("bootstrap", ["online", "max", "mean", "random"])
def test_every_operator_trains(ours, base, env, kwargs, bootstrap):
    model = ours("MlpPolicy", env, bootstrap=bootstrap, **kwargs).learn(40)
    assert all(torch.isfinite(v).all() for v in weights(model).values())


def captured(model, monkeypatch, loss_module, name):
    """Targets that the base class computed, in order."""
    seen = []
    original = getattr(loss_module, name)

    def watch(prediction, target, *args, **kwargs):
        seen.append(target.detach().clone())
        return original(prediction, target, *args, **kwargs)

    monkeypatch.setattr(loss_module, name, watch)
    return seen


def differing(model):
    with torch.no_grad():
        for p in getattr(model, model._online_name).parameters():
            p += 0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))


def fixed_batch(model):
    """The same transitions at every call of the replay memory."""
    batch = model.replay_buffer.sample(8)
    model.replay_buffer.sample = lambda *args, **kwargs: batch
    return batch


@pytest.mark.parametrize("bootstrap", [*targets.OPERATORS])
def test_dqn_regresses_on_the_target_of_the_pure_function(monkeypatch, bootstrap):
    import stable_baselines3.dqn.dqn as module

    model = algorithms.MintoDQN("MlpPolicy", "CartPole-v1", bootstrap=bootstrap, beta=2.0, **DISCRETE).learn(60)
    differing(model)
    batch = fixed_batch(model)
    with torch.no_grad():
        theirs, ours = model.q_net_target(batch.next_observations), model.q_net(batch.next_observations)
    seen = captured(model, monkeypatch, module.F, "smooth_l1_loss")
    torch.manual_seed(5)
    model.train(1, 8)
    torch.manual_seed(5)
    coins = torch.rand(8) < 0.5
    y = targets.bootstrap_target(
        theirs, ours, batch.rewards[:, 0], batch.dones[:, 0], 0.99, bootstrap, use_online=coins, beta=2.0
    )
    torch.testing.assert_close(seen[0][:, 0], y)


def test_n_step_replay_discounts_rightly(monkeypatch):
    import stable_baselines3.dqn.dqn as module

    model = algorithms.MintoDQN("MlpPolicy", "CartPole-v1", n_steps=3, **DISCRETE).learn(60)
    differing(model)
    batch = fixed_batch(model)
    assert (batch.discounts < 0.99).any()
    with torch.no_grad():
        theirs, ours = model.q_net_target(batch.next_observations), model.q_net(batch.next_observations)
    seen = captured(model, monkeypatch, module.F, "smooth_l1_loss")
    model.train(1, 8)
    y = targets.bootstrap_target(theirs, ours, batch.rewards[:, 0], batch.dones[:, 0], batch.discounts[:, 0])
    torch.testing.assert_close(seen[0][:, 0], y)


@pytest.mark.parametrize("rule", ["quantilewise", "mean"])
def test_qrdqn_regresses_on_combined_quantiles(monkeypatch, rule):
    import sb3_contrib.qrdqn.qrdqn as module

    from assay.training.minto.distributional import quantile_target

    model = algorithms.MintoQRDQN("MlpPolicy", "CartPole-v1", rule=rule, **QUANTILES).learn(60)
    differing(model)
    batch = fixed_batch(model)
    with torch.no_grad():
        theirs = model.quantile_net_target(batch.next_observations).transpose(1, 2)
        ours = model.quantile_net(batch.next_observations).transpose(1, 2)
    seen = captured(model, monkeypatch, module, "quantile_huber_loss")
    model.train(1, 8)
    y = quantile_target(theirs, ours, batch.rewards[:, 0], batch.dones[:, 0], 0.99, rule=rule)
    torch.testing.assert_close(seen[0], y)


def test_sac_and_td3_take_one_minimum_over_all_critics_of_both_networks(monkeypatch):
    import stable_baselines3.sac.sac as sac_module
    import stable_baselines3.td3.td3 as td3_module

    sac = algorithms.MintoSAC("MlpPolicy", "Pendulum-v1", ent_coef=0.2, **CONTINUOUS, **SMALL).learn(40)
    small = {"policy_kwargs": {"net_arch": [16]}}
    td3 = algorithms.MintoTD3("MlpPolicy", "Pendulum-v1", target_policy_noise=0.0, **CONTINUOUS, **small).learn(40)
    for model, module in ((sac, sac_module), (td3, td3_module)):
        differing(model)
        batch = fixed_batch(model)
        torch.manual_seed(3)
        with torch.no_grad():
            if model is sac:
                model.actor.action_log_prob(batch.observations)  # the base class draws this first
                action, logp = model.actor.action_log_prob(batch.next_observations)
            else:
                action, logp = model.actor_target(batch.next_observations), torch.zeros(8)
            theirs = torch.cat(model.critic_target(batch.next_observations, action), 1).T
            ours = torch.cat(model.critic(batch.next_observations, action), 1).T
        seen = captured(model, monkeypatch, module.F, "mse_loss")
        torch.manual_seed(3)
        model.train(1, 8)
        y = targets.critic_target(
            theirs, ours, batch.rewards[:, 0], batch.dones[:, 0], model.gamma,
            entropy=0.2 if model is sac else 0.0, next_log_prob=logp,
        )  # fmt: skip
        torch.testing.assert_close(seen[0][:, 0], y)


def test_tqc_combines_each_critic_with_its_own_copy():
    model = algorithms.MintoTQC("MlpPolicy", "Pendulum-v1", **CONTINUOUS, **SMALL)
    theirs, ours = torch.randn(4, 2, 25), torch.randn(4, 2, 25)
    torch.testing.assert_close(model._blend(theirs, ours), torch.minimum(theirs, ours))
    model.rule = "mean"
    torch.testing.assert_close(model._blend(theirs, ours), combine_quantiles(theirs, ours, rule="mean"))


class _Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(n), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(x))


def test_the_second_forward_neither_moves_running_statistics_nor_drops():
    net = nn.Sequential(nn.Linear(4, 4), _Norm(4))
    net.train()
    before = net[1].norm.running_mean.clone()
    x = torch.randn(16, 4)
    with algorithms.evaluating(net):
        assert torch.equal(net(x), net(x))
    assert torch.equal(net[1].norm.running_mean, before)
    assert net[1].norm.training
    assert net[1].drop.training


@pytest.mark.parametrize("envs", [1, 2])
def test_saving_and_loading_goes_on_exactly(tmp_path, envs):
    from stable_baselines3.common.env_util import make_vec_env

    vector = make_vec_env("CartPole-v1", envs, seed=0)
    model = algorithms.MintoDQN("MlpPolicy", vector, bootstrap="mean", **{**DISCRETE, "target_update_interval": 37})
    model.learn(101)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay")
    loaded = algorithms.MintoDQN.load(tmp_path / "model", env=vector)
    loaded.load_replay_buffer(tmp_path / "replay")
    assert loaded.bootstrap == "mean"
    assert (loaded._n_calls, loaded._n_updates, loaded.num_timesteps) == (
        model._n_calls, model._n_updates, model.num_timesteps,
    )  # fmt: skip
    assert loaded.target_update_interval == 37
    assert same(weights(loaded), weights(model))  # the target network with it
    assert loaded.q_net_target is loaded.policy.q_net_target
    for one, two in zip(model.policy.optimizer.state.values(), loaded.policy.optimizer.state.values()):
        assert torch.equal(one["exp_avg"], two["exp_avg"])
    after = []
    for each in (model, loaded):
        each._last_obs = None
        each.set_env(make_vec_env("CartPole-v1", envs, seed=1))
        each.set_random_seed(9)
        each.learn(80, reset_num_timesteps=False)
        after.append(weights(each))
    assert same(*after)


@pytest.mark.parametrize(
    ("cls", "kwargs"),
    [
        (iqn.MintoIQN, {**DISCRETE, "bootstrap": "max", "n_online": 8, "n_target": 6}),
        (baselines.FRDQN, {**DISCRETE, "kappa": 0.3}),
        (baselines.MaxminDQN, {**DISCRETE, "members": 3, "minto": True}),
    ],
)
def test_other_classes_come_back_from_a_file(tmp_path, cls, kwargs):
    model = cls("MlpPolicy", "CartPole-v1", **kwargs).learn(60)
    model.save(tmp_path / "model")
    loaded = cls.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"))
    assert same(weights(loaded), weights(model))
    for name in ("bootstrap", "n_online", "kappa", "members", "minto"):
        assert getattr(loaded, name, None) == getattr(model, name, None)
    obs = np.zeros((1, 4), np.float32)
    assert loaded.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]


def test_equal_seeds_train_equally():
    one, two = (algorithms.MintoDQN("MlpPolicy", "CartPole-v1", **DISCRETE).learn(80) for _ in range(2))
    assert same(weights(one), weights(two))


def test_copies_every_step_and_never_are_warned_of():
    every = algorithms.MintoDQN("MlpPolicy", "CartPole-v1", **{**DISCRETE, "target_update_interval": 1})
    with pytest.warns(UserWarning, match="online"):
        every.learn(30)
    never = algorithms.MintoDQN("MlpPolicy", "CartPole-v1", **{**DISCRETE, "target_update_interval": 1000})
    with pytest.warns(UserWarning, match="never copied"):
        never.learn(30)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        algorithms.MintoDQN("MlpPolicy", "CartPole-v1", **DISCRETE).learn(30)


@pytest.mark.parametrize("side", ["_online_name", "_target_name"])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_nan_in_either_network_raises(at, side):
    ours, _, env, kwargs = PAIRS[at]
    model = ours("MlpPolicy", env, **kwargs).learn(30)
    with torch.no_grad():
        for p in getattr(model, getattr(ours, side)).parameters():
            p[...] = float("nan")
    with pytest.raises((FloatingPointError, ValueError), match=r"NaN|nan"):
        model.train(1, 8)
    assert isinstance(getattr(model, ours._target_name), nn.Module)


def test_bad_arguments_are_one_sentence():
    with pytest.raises(ValueError, match="none of target"):
        algorithms.MintoDQN("MlpPolicy", "CartPole-v1", bootstrap="least")
    with pytest.raises(ValueError, match="double"):
        algorithms.MintoSAC("MlpPolicy", "Pendulum-v1", bootstrap="double")
    with pytest.raises(ValueError, match="rule"):
        algorithms.MintoTQC("MlpPolicy", "Pendulum-v1", rule="median")
    with pytest.raises(ValueError, match="rule"):
        algorithms.MintoQRDQN("MlpPolicy", "CartPole-v1", rule="median")
    with pytest.raises(ValueError, match="n_online"):
        iqn.MintoIQN("MlpPolicy", "CartPole-v1", n_online=0)
    with pytest.raises(ValueError, match="members"):
        baselines.MaxminDQN("MlpPolicy", "CartPole-v1", members=1)
    with pytest.raises(ValueError, match="kappa"):
        baselines.FRDQN("MlpPolicy", "CartPole-v1", kappa=-1)


@pytest.mark.parametrize("bootstrap", algorithms.QUANTILE_OPERATORS)
def test_iqn_trains_on_the_quantile_target(bootstrap):
    model = iqn.MintoIQN("MlpPolicy", "CartPole-v1", bootstrap=bootstrap, n_online=8, n_target=6, **DISCRETE)
    model.learn(60)
    net = model.quantile_net
    obs = torch.zeros(3, 4)
    assert net(obs).shape == (3, 32, 2)
    assert net(obs, torch.rand(3, 5)).shape == (3, 5, 2)
    assert all(torch.isfinite(v).all() for v in weights(model).values())


def test_iqn_learns_the_quantiles_of_a_reward():
    class Coin(gymnasium.Env):
        """One step; the reward is uniform on (0, 1) for action 0, and 0.4 for action 1."""

        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.ones(1, np.float32), {}

        def step(self, action):
            reward = float(self.np_random.random()) if action == 0 else 0.4
            return np.ones(1, np.float32), reward, True, False, {}

    model = iqn.MintoIQN(
        "MlpPolicy", Coin(), learning_rate=3e-3, learning_starts=50, train_freq=1, batch_size=32, n_online=16,
        n_target=16, target_update_interval=50, seed=0, exploration_fraction=1.0, exploration_final_eps=1.0,
        device="cpu", policy_kwargs={"net_arch": [32], "n_cosines": 16},
    ).learn(900)  # fmt: skip
    fractions = torch.tensor([[0.1, 0.3, 0.5, 0.7, 0.9]])
    found = model.quantile_net(torch.ones(1, 1), fractions)[0].detach()
    # Errors below kappa = 1 make the loss an expectile's: ends are drawn towards the middle.
    assert found[0, 0] < found[2, 0] < found[4, 0]
    assert abs(float(found[2, 0]) - 0.5) < 0.12
    assert (found[:, 1] - 0.4).abs().max() < 0.12
    assert model.predict(np.ones((1, 1), np.float32), deterministic=True)[0][0] == 0


def test_maxmin_trains_one_member_an_update_on_the_least_of_all():
    model = baselines.MaxminDQN("MlpPolicy", "CartPole-v1", members=3, **DISCRETE).learn(60)
    before = [[p.clone() for p in net.parameters()] for net in model.q_net.nets]
    model.train(1, 8)
    moved = [
        any(not torch.equal(a, b) for a, b in zip(old, net.parameters())) for old, net in zip(before, model.q_net.nets)
    ]
    assert sum(moved) == 1
    obs = torch.randn(5, 4)
    each = torch.stack([net(obs) for net in model.q_net.nets])
    torch.testing.assert_close(model.q_net(obs), each.amin(0))


def test_functional_regularisation_holds_values_to_the_target_network():
    distance = []
    for kappa in (0.0, 30.0):
        kwargs = {**DISCRETE, "learning_rate": 1e-2, "train_freq": 1, "target_update_interval": 10_000}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = baselines.FRDQN("MlpPolicy", "CartPole-v1", kappa=kappa, **kwargs).learn(150)
        assert model.bootstrap == "online"
        obs = model.replay_buffer.sample(100).observations
        with torch.no_grad():
            distance.append(float((model.q_net(obs) - model.q_net_target(obs)).abs().mean()))
    assert distance[1] < distance[0] / 2
