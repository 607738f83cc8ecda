"""Environments side by side with gymnasium and MinAtar; the many-seed trainer against autograd and itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.core.errors import DataError, UsageError
from assay.training.minto import batched, envs
from assay.training.minto.batched import BatchedDQN, train_batched
from assay.training.minto.data import Transitions
from assay.training.minto.nets import StackedMLP
from assay.training.minto.settings import Recipe, Variant

QUICK = Recipe(
    steps=260, hidden=(16, 16), batch_size=8, learning_starts=20, copy_every=25, eval_every=65, eval_episodes=2
)


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0"])
def test_classic_control_steps_are_gymnasiums(name):
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    rng = np.random.default_rng(0)
    ours = envs.ENVS[name].make([[3, i] for i in range(4)])
    obs = ours.reset()
    theirs = [gymnasium.make(name).unwrapped for _ in range(4)]
    for i, env in enumerate(theirs):
        env.reset()
        env.state = ours.s[i].copy()
    ends = 0
    for t in range(700):
        # Held actions swing far enough to reach the goals and to turn over.
        actions = np.full(4, t // 25 % ours.actions) if t % 200 > 100 else rng.integers(ours.actions, size=4)
        after = ours.step(actions)
        for i, env in enumerate(theirs):
            seen, reward, done, _, _ = env.step(int(actions[i]))
            np.testing.assert_allclose(after.final[i], seen, atol=2e-5)
            assert after.reward[i] == reward
            assert after.terminated[i] == done
            if after.terminated[i] or after.truncated[i]:
                ends += 1
                env.reset()
            # Differences in the last digit grow along a swing: start each step from one state.
            env.state = ours.s[i].copy()
        assert not (after.terminated & after.truncated).any()
        obs = after.next
    assert ends > 0
    assert obs.shape == (4, *ours.shape)
    assert ours.limit == gymnasium.spec(name).max_episode_steps


def test_breakout_steps_are_minatars():
    minatar = pytest.importorskip("minatar", reason="minatar is not installed")
    ours = envs.Breakout([[i] for i in range(6)], sticky=0.0)
    obs = ours.reset()
    games = [minatar.Environment("breakout", sticky_action_prob=0.0) for _ in range(6)]

    def begin(i):
        game = games[i]
        game.reset()
        while game.env.ball_x != ours.ball[i, 1]:
            game.reset()

    for i in range(6):
        begin(i)
    rng, rewards, ends = np.random.default_rng(0), 0.0, 0
    for t in range(3000):
        for i, game in enumerate(games):
            np.testing.assert_array_equal(obs[i].reshape(10, 10, 4), game.state(), err_msg=str(t))
        # Mostly under the ball, so that all bricks go and come again.
        aim = np.where(ours.ball[:, 1] < ours.paddle, 1, np.where(ours.ball[:, 1] > ours.paddle, 3, 0))
        follow = np.arange(6) < 4
        actions = np.where(follow & (rng.random(6) < 0.97), aim, rng.integers(6, size=6))
        after = ours.step(actions)
        for i, game in enumerate(games):
            reward, done = game.act(int(actions[i]))
            assert (after.reward[i], after.terminated[i]) == (reward, done)
            rewards += reward
            if done:
                ends += 1
                begin(i)
        obs = after.next
    assert rewards > 200
    assert ends > 10


@pytest.mark.parametrize("name", ["LunarLander-v3", "MinAtar/Asterix"])
def test_other_environments_are_stepped_in_a_loop(name):
    for package in ("minatar",) if "MinAtar" in name else ("Box2D", "pygame"):
        pytest.importorskip(package, reason="its package is not installed")
    env = envs.find_env(name).make([1, 2])
    again = envs.find_env(name).make([1, 2])
    np.testing.assert_array_equal(env.reset(), again.reset())
    for action in (0, 1, 2, 3) * 60:
        one, two = env.step(np.array([action, action])), again.step(np.array([action, action]))
        np.testing.assert_array_equal(one.next, two.next)
        np.testing.assert_array_equal(one.reward, two.reward)
    with pytest.raises(NotImplementedError, match="checkpoint"):
        env.state()


def test_environments_that_do_not_fit_are_refused_in_one_sentence():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    with pytest.raises(UsageError, match="did you mean"):
        envs.find_env("CartPole-v9")
    with pytest.raises(UsageError, match="whole-number actions"):
        envs.find_env("Pendulum-v1").make([0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_by_hand_are_autograds(dtype):
    net = StackedMLP((5, 8, 7, 3), [0, 1, 2], dtype=dtype)
    x = torch.randn(3, 6, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(3, 6, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))
    flat = net.flat.detach().clone().requires_grad_()
    h = x
    views = net.views(flat)
    for i, (w, b) in enumerate(views):
        h = torch.baddbmm(b, h, w)
        h = h.relu() if i < len(views) - 1 else h
    (h * weight).sum().backward()
    layers = net.layers(x)
    torch.testing.assert_close(layers[-1], h.detach())
    torch.testing.assert_close(net.backward(layers, weight), flat.grad)


VARIANTS = {
    "min": Variant("min"), "target": Variant("target"), "double": Variant("double"), "random": Variant("random"),
    "scdqn": Variant("scdqn", beta=2.0), "frdqn": Variant("online", kappa=0.5), "cql": Variant("min", cql=0.3),
    "maxmin": Variant("maxmin", members=2), "maxmin_minto": Variant("maxmin_minto", members=3),
}  # fmt: skip


@pytest.mark.parametrize("loss", ["huber", "square"])
@pytest.mark.parametrize("name", list(VARIANTS))
def test_an_update_moves_down_the_gradient_of_the_written_loss(name, loss):
    variant = VARIANTS[name]
    recipe = Recipe(
        steps=100, hidden=(8,), batch_size=6, learning_starts=30, eval_every=100, loss=loss, max_grad_norm=None,
        double_precision=True,
    )  # fmt: skip
    trainer = BatchedDQN(recipe, [variant] * 2, [0, 1])
    trainer.advance(40)
    shake = torch.Generator().manual_seed(3)
    for net in trainer.nets:  # the two networks must differ, or all operators are one
        net.flat.data += 0.3 * torch.randn(net.flat.shape, generator=shake, dtype=torch.float64)
    uniform = trainer.choices.next()[:, 2:].copy()
    obs, action, reward, after, ended, gamma = trainer.replay.sample(uniform)
    obs, after, reward, ended = (x.double() for x in (obs, after, reward, ended))
    member = np.random.default_rng(variant.members)
    member.bit_generator.state = trainer.member.bit_generator.state
    m = int(member.integers(variant.members)) if variant.members > 1 else 0
    coins = envs.Streams([[seed, 4] for seed in (0, 1)], 6)
    coins.restore(trainer.coins.state())
    net, flat = trainer.nets[m], trainer.nets[m].flat.detach().clone().requires_grad_()

    def forward(x):
        for i, (w, b) in enumerate(net.views(flat)):
            x = torch.baddbmm(b, x, w)
            x = x.relu() if i == 0 else x
        return x

    frozen = [f(after) for f in trainer.frozen]
    online = [n(after) for n in trainer.nets]
    if variant.members > 1:
        tables = frozen + (online if variant.op == "maxmin_minto" else [])
        value = torch.stack(tables).amin(0).amax(-1)
    else:
        use = torch.from_numpy(coins.next()) < 0.5
        value = batched.bootstrap_value(frozen[0], online[0], variant.op, use_online=use, beta=variant.beta)
    y = reward + gamma * (1 - ended) * value
    q = forward(obs)
    chosen = q.gather(-1, action[..., None])[..., 0]
    if loss == "huber":
        td = torch.nn.functional.smooth_l1_loss(chosen, y, reduction="none")
    else:
        td = (chosen - y) ** 2 / 2
    anchor = trainer.frozen[m](obs).gather(-1, action[..., None])[..., 0]
    td = td + variant.kappa / 2 * (chosen - anchor) ** 2
    td = td + variant.cql * (torch.logsumexp(q, -1) - chosen)
    td.mean(1).sum().backward()
    trainer._update(uniform)
    torch.testing.assert_close(trainer.nets[m].gradient, flat.grad)


def test_what_a_seed_does_does_not_depend_on_what_runs_beside_it():
    alone = train_batched(QUICK, Variant("min"), [7])[0]
    mixed = train_batched(QUICK, [Variant("target"), Variant("min"), Variant("random"), Variant("min")], [7, 7, 7, 8])
    assert [r["return"] for r in mixed[1].rows] == pytest.approx([r["return"] for r in alone.rows])
    assert mixed[1].episodes == alone.episodes
    assert mixed[1].rows[-1]["q_mean"] == pytest.approx(alone.rows[-1]["q_mean"], rel=1e-4)
    assert mixed[1].variant == Variant("min")
    assert mixed[3].episodes != alone.episodes


def test_min_with_copies_every_step_is_online_and_both_extremes_are_warned_of():
    every = Recipe(**{**{f: getattr(QUICK, f) for f in QUICK.__slots__}, "copy_every": 1})
    with pytest.warns(UserWarning, match="online"):
        least, online = train_batched(every, [Variant("min"), Variant("online")], [3, 3])
    assert least.episodes == online.episodes
    assert least.rows[-1]["q_mean"] == pytest.approx(online.rows[-1]["q_mean"], rel=1e-4)
    never = Recipe(steps=60, hidden=(4,), batch_size=4, learning_starts=20, copy_every=61, eval_every=60)
    with pytest.warns(UserWarning, match="never copied"):
        train_batched(never, Variant("min"), [0])


@pytest.mark.parametrize("env", ["CartPole-v1", "MinAtar/Breakout"])
@pytest.mark.parametrize("variant", [Variant("random"), Variant("maxmin", members=2)])
def test_a_broken_off_training_goes_on_exactly(tmp_path, env, variant):
    recipe = Recipe(
        env=env, steps=200, hidden=(8,), batch_size=8, learning_starts=20, eval_every=50, eval_episodes=1, buffer=90,
        eval_limit=60, reward_noise=0.1,
    )  # fmt: skip
    whole = BatchedDQN(recipe, [variant] * 2, [0, 1])
    whole.advance(200)
    half = BatchedDQN(recipe, [variant] * 2, [0, 1])
    half.advance(130)
    half.save(tmp_path / "half.pt")
    other = BatchedDQN(recipe, [variant] * 2, [0, 1])
    assert other.load(tmp_path / "half.pt")
    assert other.step == 130
    other.advance(200)
    for one, two in zip(whole.curves, other.curves):
        assert one.rows == two.rows
        assert one.episodes == two.episodes
    assert torch.equal(whole.nets[-1].flat, other.nets[-1].flat)
    assert torch.equal(whole.frozen[0].flat, other.frozen[0].flat)
    assert not BatchedDQN(recipe, [variant] * 2, [0, 1]).load(tmp_path / "none.pt")
    with pytest.raises(UsageError, match="other seeds"):
        BatchedDQN(recipe, [variant] * 2, [0, 2]).load(tmp_path / "half.pt")
    nets = Recipe(env=env, steps=200, hidden=(9,), batch_size=8, learning_starts=20, eval_every=50)
    wider = BatchedDQN(nets, [variant] * 2, [0, 1])
    with pytest.raises(DataError, match="does not fit"):
        wider.load(tmp_path / "half.pt")


def test_n_step_and_truncation_reach_the_replay_memory():
    recipe = Recipe(
        env="MountainCar-v0", steps=450, hidden=(8,), batch_size=32, learning_starts=10, n_step=3, eval_every=450,
        eval_episodes=0, gamma=0.5,
    )  # fmt: skip
    trainer = BatchedDQN(recipe, [Variant()], [0])
    trainer.advance(450)
    numbers = trainer.replay.numbers[0]
    # Cut off after 200 steps, never terminated: the target still bootstraps.
    assert torch.nonzero(numbers[:, 3])[:, 0].tolist() == [199, 399]
    assert numbers[:, 2].sum() == 0
    place = np.array([[198.0, 199.0, 200.0, 10.0]]) + 0.5
    _, _, reward, _, ended, discount = trainer.replay.sample(place / 448)
    assert reward[0].tolist() == [-1.5, -1.0, -1.75, -1.75]
    assert discount[0].tolist() == [0.25, 0.5, 0.125, 0.125]
    assert ended.sum() == 0


def test_a_run_that_diverges_stands_still_and_the_others_go_on():
    recipe = Recipe(steps=300, hidden=(8,), batch_size=8, learning_starts=20, eval_every=100, eval_episodes=1)
    trainer = BatchedDQN(recipe, [Variant()] * 2, [0, 1])
    trainer.advance(50)
    trainer.frozen[0].flat.data[0] = float("nan")
    trainer.advance(60)
    assert trainer.curves[0].diverged == 51
    assert trainer.curves[1].diverged is None
    kept = trainer.nets[0].flat[0].clone()
    trainer.advance(20)
    assert torch.isfinite(kept).all()
    assert torch.equal(trainer.nets[0].flat[0], kept)
    assert not torch.equal(trainer.nets[0].flat[1], kept)


def test_recorded_data_are_learned_from_without_playing():
    rng = np.random.default_rng(0)
    n = 500
    obs = rng.standard_normal((n, 4)).astype(np.float32) * 0.1
    action = rng.integers(2, size=n)
    # One step, and action 1 is right: the values to learn are the rewards.
    data = Transitions(obs, action, action.astype(float), obs, np.ones(n, bool), np.zeros(n, bool))
    recipe = Recipe(steps=600, hidden=(32,), eval_every=600, eval_episodes=0, batch_size=32)
    trainer = BatchedDQN(recipe, [Variant("min", cql=0.1), Variant("min")], [0, 1], data)
    trainer.advance(600)
    q = trainer.values(np.stack([obs[:50]] * 2))
    assert (q[..., 1] > q[..., 0]).all()
    np.testing.assert_allclose(q[1, :, 1].numpy(), 1, atol=0.1)
    np.testing.assert_allclose(q[1, :, 0].numpy(), 0, atol=0.1)
    assert trainer.curves[0].episodes == []


def test_cartpole_is_learned():
    curves = train_batched(Recipe(steps=2500, eval_every=2500), Variant("min"), range(6))
    assert np.mean([c.rows[-1]["return"] for c in curves]) > 100
    assert all(0 <= c.rows[-1]["online_rate"] < 0.9 for c in curves)


def test_bad_recipes_are_one_sentence():
    for bad in ({"steps": 0}, {"gamma": 1.5}, {"gamma": -0.1}, {"tau": 0.0}, {"lr": 0.0}, {"learning_starts": 0}):
        with pytest.raises(UsageError):
            Recipe(**bad)
    with pytest.raises(UsageError, match="did you mean"):
        Recipe(loss="squares")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="did you mean"):
        Variant("maxminn")
    with pytest.raises(UsageError, match="members"):
        Variant("maxmin")
    with pytest.raises(UsageError, match="kappa"):
        Variant("online", kappa=-1)
    with pytest.raises(UsageError, match="one variant a seed"):
        BatchedDQN(QUICK, [Variant()], [0, 1])
    with pytest.raises(UsageError, match="equally many"):
        BatchedDQN(QUICK, [Variant(), Variant("maxmin", members=2)], [0, 1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_training_on_a_gpu_learns_as_on_the_cpu():
    recipe = Recipe(steps=300, hidden=(16,), eval_every=300, device="cuda")
    there = train_batched(recipe, Variant("min"), [0, 1])
    assert all(np.isfinite(c.rows[-1]["q_mean"]) for c in there)
