"""C51 and SimBaV2 by cross-entropy: plain updates by hand, the target of the pure functions, files, bad input."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")

import gymnasium

from assay.core.errors import UsageError
from assay.training.minto import c51, methods, policies, simbav2, singly
from assay.training.minto.distributional import categorical_target, combine_categories
from assay.training.minto.settings import Recipe

DISCRETE = {
    "learning_rate": 1e-2, "learning_starts": 20, "train_freq": 2, "target_update_interval": 30, "batch_size": 8,
    "buffer_size": 500, "seed": 0, "device": "cpu",
}  # fmt: skip
CONTINUOUS = {"learning_starts": 20, "batch_size": 8, "buffer_size": 500, "seed": 0, "device": "cpu"}


def c51_model(bootstrap="min", env="CartPole-v1", policy="MlpPolicy", **more):
    support = {"net_arch": [16], "n_atoms": 11, "v_min": 0.0, "v_max": 10.0}
    return c51.MintoC51(policy, env, bootstrap=bootstrap, policy_kwargs=support, **{**DISCRETE, **more})


def v2_model(**more):
    sizes = {"actor_width": 8, "critic_width": 16, "critic_blocks": 1}
    return simbav2.MintoSimBaV2("MlpPolicy", "Pendulum-v1", policy_kwargs=sizes, **{**CONTINUOUS, **more})


def weights(model):
    return {k: v.clone() for k, v in model.policy.state_dict().items()}


def shaken(net):
    with torch.no_grad():
        for p in net.parameters():
            p += 0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))


def fixed_batch(model, n=8):
    batch = model.replay_buffer.sample(n)
    model.replay_buffer.sample = lambda *args, **kwargs: batch
    return batch


def scattered(probabilities, support, atoms):
    """The projection as it was published: mass at a place is shared between the floor and the ceiling."""
    low, step = float(atoms[0]), float(atoms[-1] - atoms[0]) / (len(atoms) - 1)
    out = torch.zeros(len(probabilities), len(atoms), dtype=torch.float64)
    for row in range(len(probabilities)):
        for mass, at in zip(probabilities[row].tolist(), support[row].tolist()):
            place = min((min(max(at, low), float(atoms[-1])) - low) / step, len(atoms) - 1)
            below, above = int(np.floor(place)), int(np.ceil(place))
            if below == above:
                out[row, below] += mass
            else:
                out[row, below] += mass * (above - place)
                out[row, above] += mass * (place - below)
    return out


# -- C51 ---------------------------------------------------------------------------------------------------------------


def test_c51_with_the_target_network_makes_the_published_update():
    model = c51_model("target").learn(60)
    shaken(model.q_net)
    batch = fixed_batch(model)
    by_hand = copy.deepcopy(model.policy)
    with torch.no_grad():
        p = by_hand.q_net_target.log_probabilities(batch.next_observations).exp().double()
        atoms = by_hand.q_net.atoms.double()
        best = p[torch.arange(8), (p @ atoms).argmax(1)]
        target = scattered(best, batch.rewards + 0.99 * (1 - batch.dones) * atoms, atoms)
    logs = by_hand.q_net.log_probabilities(batch.observations)[torch.arange(8), batch.actions[:, 0].long()]
    loss = -(target.float() * logs).sum(1).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(by_hand.q_net.parameters(), 10)
    model.train(1, 8)
    for ours, theirs in zip(model.q_net.parameters(), by_hand.q_net.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("bootstrap", c51.QUANTILE_OPERATORS)
def test_c51_descends_to_the_target_of_the_pure_function(bootstrap):
    model = c51_model(bootstrap).learn(60)
    shaken(model.q_net)
    batch = fixed_batch(model)
    net = copy.deepcopy(model.q_net)
    with torch.no_grad():
        theirs = model.q_net_target.log_probabilities(batch.next_observations).exp()
        ours = net.log_probabilities(batch.next_observations).exp()
    torch.manual_seed(5)
    coins = torch.rand(8) < 0.5
    y = categorical_target(
        theirs, ours, net.atoms, batch.rewards[:, 0], batch.dones[:, 0], 0.99, bootstrap, use_online=coins
    )
    torch.testing.assert_close(y.sum(-1), torch.ones(8))
    loss = -(y * net.log_probabilities(batch.observations)[torch.arange(8), batch.actions[:, 0].long()]).sum(1).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 10)
    torch.manual_seed(5)
    model.train(1, 8)
    for one, two in zip(model.q_net.parameters(), net.parameters()):
        torch.testing.assert_close(one.grad, two.grad)


def test_random_takes_whole_transitions_of_one_network():
    theirs, ours = torch.rand(2, 6, 3, 5).softmax(-1)
    coins = torch.tensor([True, False, True, True, False, False])
    kept = combine_categories(theirs, ours, torch.arange(5.0), "random", use_online=coins)
    torch.testing.assert_close(kept, torch.where(coins[:, None, None], ours, theirs))
    parts = [x.numpy() for x in (theirs, ours, torch.arange(5.0))]
    np.testing.assert_array_equal(combine_categories(*parts, "random", use_online=coins.numpy()), kept.numpy())
    with pytest.raises(ValueError, match="use_online"):
        combine_categories(theirs, ours, torch.arange(5.0), "random")


class Coin(gymnasium.Env):
    """One step; action 0 pays 0 or 4, each half the time, and action 1 always 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        reward = 4.0 * float(self.np_random.random() < 0.5) if action == 0 else 1.0
        return np.ones(1, np.float32), reward, True, False, {}


def test_c51_learns_the_distribution_of_a_reward():
    model = c51_model(
        env=Coin(), learning_rate=3e-2, learning_starts=50, train_freq=1, batch_size=64, target_update_interval=50,
        exploration_fraction=1.0, exploration_final_eps=1.0,
    ).learn(400)  # fmt: skip
    with torch.no_grad():
        found = model.q_net.log_probabilities(torch.ones(1, 1)).exp()[0]
    assert found[0, [0, 4]].tolist() == pytest.approx([0.5, 0.5], abs=0.12)
    assert found[1, 1] > 0.95
    assert model.predict(np.ones((1, 1), np.float32), deterministic=True)[0][0] == 0


def test_c51_comes_back_from_a_file_and_equal_seeds_train_equally(tmp_path):
    model, twin = (c51_model("mean").learn(80) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(weights(model).values(), weights(twin).values()))
    assert 0 <= model.online_rate <= 1
    model.save(tmp_path / "model")
    again = c51.MintoC51.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"))
    assert again.bootstrap == "mean"
    assert again.q_net.atoms.tolist() == list(range(11))
    obs = torch.randn(5, 4)
    torch.testing.assert_close(again.q_net.log_probabilities(obs), model.q_net.log_probabilities(obs))


def test_c51_sees_pictures_dictionaries_and_several_steps():
    class Both(gymnasium.Env):
        def __init__(self, space):
            self.observation_space, self.action_space = space, gymnasium.spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.2), False, {}

    pictures = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
    numbers = gymnasium.spaces.Dict({"a": gymnasium.spaces.Box(-1, 1, (2,)), "b": gymnasium.spaces.Box(-1, 1, (3,))})
    for space, policy, steps in ((pictures, "CnnPolicy", 3), (numbers, "MultiInputPolicy", 1)):
        model = c51_model(env=Both(space), policy=policy, n_steps=steps, buffer_size=40).learn(30)
        assert all(torch.isfinite(v).all() for v in weights(model).values())


@pytest.mark.parametrize("side", ["q_net", "q_net_target"])
def test_nan_in_either_network_of_c51_raises(side):
    model = c51_model().learn(30)
    with torch.no_grad():
        for p in getattr(model, side).parameters():
            p[...] = float("nan")
    with pytest.raises((FloatingPointError, ValueError), match=r"NaN|nan"):
        model.train(1, 8)


def test_wrong_arguments_of_categorical_classes_are_one_sentence():
    with pytest.raises(ValueError, match="none of target"):
        c51_model("least")
    with pytest.raises(ValueError, match="n_atoms=1"):
        c51.MintoC51("MlpPolicy", "CartPole-v1", policy_kwargs={"n_atoms": 1})
    with pytest.raises(ValueError, match="below v_max"):
        c51.MintoC51("MlpPolicy", "CartPole-v1", policy_kwargs={"v_min": 1.0, "v_max": 1.0})
    with pytest.raises(UsageError, match="critic_loss"):
        v2_model(critic_loss="cross")
    with pytest.raises(ValueError, match="SimBaV2Policy"):
        simbav2.MintoSimBaV2(policies.SimBaPolicy, "Pendulum-v1", device="cpu")


# -- SimBaV2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bootstrap", ["min", "target", "mean"])
def test_simbav2_descends_to_the_projected_distribution(bootstrap):
    model = v2_model(bootstrap=bootstrap, ent_coef=0.1).learn(40)
    shaken(model.critic)
    batch, critic = fixed_batch(model), copy.deepcopy(model.critic)
    atoms, rewards = critic.q_networks[0].atoms, batch.rewards / model.scale.divisor
    assert model.scale.divisor > 1
    torch.manual_seed(3)
    actor = copy.deepcopy(model.actor)
    actor.set_training_mode(True)
    with torch.no_grad():
        actor.action_log_prob(batch.observations)  # the first draw of an update
        after, log_prob = actor.action_log_prob(batch.next_observations)
        model.critic.set_training_mode(False)
        theirs = model.critic_target.logits(batch.next_observations, after).softmax(-1)
        ours = model.critic.logits(batch.next_observations, after).softmax(-1)
        if bootstrap == "min":  # of two critics of two networks the one with the smallest mean
            pool = torch.cat([theirs, ours], 1)
        else:
            pool = theirs if bootstrap == "target" else (theirs + ours) / 2
        best = pool[torch.arange(8), (pool @ atoms).argmin(1)]
        moved = rewards + 0.99 * (1 - batch.dones) * (atoms - 0.1 * log_prob[:, None])
        y = scattered(best, moved, atoms).float()
    critic.set_training_mode(True)
    logs = critic.logits(batch.observations, batch.actions).log_softmax(-1)
    (-(y[:, None] * logs).sum(-1).mean(0).sum()).backward()
    seen = {}
    step = model.critic.optimizer.step

    def watched(*args, **kwargs):
        seen.update({name: p.grad.clone() for name, p in model.critic.named_parameters()})
        return step(*args, **kwargs)

    model.critic.optimizer.step = watched
    torch.manual_seed(3)
    model.train(1, 8)
    assert seen
    for name, p in critic.named_parameters():
        torch.testing.assert_close(seen[name], p.grad, rtol=1e-3, atol=1e-6)


def test_simbav2_by_squared_error_on_raw_rewards_is_minto_sac_to_the_bit():
    from assay.training.minto.algorithms import MintoSAC

    sizes = {"actor_width": 8, "critic_width": 16, "critic_blocks": 1}
    sac = MintoSAC(policies.SimBaV2Policy, "Pendulum-v1", policy_kwargs=sizes, **CONTINUOUS).learn(60)
    ours = v2_model(critic_loss="squared", scale_rewards=False).learn(60)
    assert all(torch.equal(a, b) for a, b in zip(weights(sac).values(), weights(ours).values()))
    other = v2_model(critic_loss="squared").learn(60)
    assert not all(torch.equal(a, b) for a, b in zip(weights(sac).values(), weights(other).values()))


@pytest.mark.parametrize("bootstrap", ["random", "online", "max"])
def test_simbav2_trains_by_every_operator_and_comes_back_from_a_file(tmp_path, bootstrap):
    model = v2_model(bootstrap=bootstrap).learn(50)
    assert all(torch.isfinite(v).all() for v in weights(model).values())
    assert 0 <= model.online_rate <= 1
    # Nothing that scales is left behind in the replay memory.
    assert "sample" not in vars(model.replay_buffer)
    assert model.replay_buffer.sample(32).rewards.min() < -1
    model.save(tmp_path / "model")
    again = simbav2.MintoSimBaV2.load(tmp_path / "model", env=gymnasium.make("Pendulum-v1"))
    assert (again.bootstrap, again.critic_loss, again.scale.count) == (bootstrap, "cross_entropy", 50)
    assert again.scale.divisor == model.scale.divisor
    assert all(torch.equal(a, b) for a, b in zip(weights(model).values(), weights(again).values()))


def test_rewards_are_scaled_by_the_spread_and_the_size_of_returns():
    rng = np.random.default_rng(0)
    reward, done = rng.normal(1, 3, (400, 2)), rng.random((400, 2)) < 0.05
    scale = simbav2.ReturnScale(0.9, 5.0)
    assert scale.divisor == 1.0
    returns, running = [], np.zeros(2)
    for r, d in zip(reward, done):
        scale.add(r, d)
        running = 0.9 * running + r
        returns.append(running.copy())
        running = np.where(d, 0, running)
    assert scale.divisor == pytest.approx(max(np.std(returns), np.abs(returns).max() / 5))
    calm = simbav2.ReturnScale(0.0, 5.0)
    for _ in range(10):
        calm.add(np.array([100.0]), np.array([False]))
    assert calm.divisor == 20  # no spread: the largest return comes to lie at the bound
    nothing = simbav2.ReturnScale(0.9, 5.0)
    for _ in range(3):
        nothing.add(np.zeros(1), np.zeros(1, bool))
    assert nothing.divisor == 1.0


def test_simbav2s_actor_lies_on_the_sphere():
    model = v2_model()
    features = model.actor.latent_pi(torch.randn(6, 3) * 50)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(6))
    assert isinstance(model.actor.mu, policies.SphericalHead)


# -- as methods --------------------------------------------------------------------------------------------------------


def test_both_are_methods_of_the_benchmark():
    recipe = Recipe(
        env="CartPole-v1", steps=60, eval_every=30, eval_episodes=1, copy_every=20, learning_starts=20, hidden=(8,)
    )
    made = methods.METHODS["sb3_c51"](n_atoms=21)
    [curve] = made.train_discrete(recipe, [3])
    assert [row["step"] for row in curve.rows] == [30, 60]
    settings = {
        "lr": 1e-3, "batch_size": 8, "gamma": 0.99, "steps": 102, "eval_every": 102, "eval_episodes": 1,
        "device": "cpu",
    }  # fmt: skip
    for name in ("simbav2", "minto_simbav2"):
        assert singly.CLASSES[methods.METHODS[name]().cls] is simbav2.MintoSimBaV2
    curve = methods.METHODS["minto_simbav2"](n_critics=1).train_continuous("Pendulum-v1", 1, settings)
    assert curve.rows[-1]["step"] == 102
