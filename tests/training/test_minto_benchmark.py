"""minto as a benchmark: aggregates against oracle and rliable, runs, analyses, recipes, claims, callbacks, policies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import assay
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.core.stats.trends import interquartile_mean
from assay.training.minto import analyses, evaluation, recipes, reproduce
from assay.training.minto.benchmark import Minto
from assay.training.minto.methods import METHODS

ORACLES = Path(__file__).parents[1] / "oracles" / "minto"
QUICK = {"steps": 150, "eval_every": 50, "eval_episodes": 1, "hidden": "8", "batch_size": 8}


def test_aggregates_are_the_oracles():
    found = json.loads((ORACLES / "metrics.json").read_text(encoding="utf-8"))
    scores = np.array(found["scores_runs_by_tasks"])
    made = evaluation.aggregate(scores, np.random.default_rng(0), resamples=50)
    assert made.iqm == pytest.approx(found["iqm"], abs=1e-9)
    assert made.median == pytest.approx(found["median_over_tasks_of_mean"], abs=1e-9)
    assert made.optimality_gap == pytest.approx(found["optimality_gap_gamma1"], abs=1e-9)
    assert scores.mean() == pytest.approx(found["mean"], abs=1e-9)
    assert made.low < made.iqm < made.high
    curves = np.array(found["curves"])
    assert evaluation.area(curves).mean() == pytest.approx(found["auc_mean"], abs=1e-9)
    assert evaluation.area(curves, trapezoid=True).mean() == pytest.approx(found["auc_trapezoid"], abs=1e-9)
    case = found["human_normalised"]
    assert evaluation.human_normalised(case["score"], "Breakout") == pytest.approx(case["value"], abs=1e-9)


def test_intervals_are_rliables():
    library = pytest.importorskip("rliable.library", reason="rliable is not installed")
    metrics = pytest.importorskip("rliable.metrics")
    scores = np.random.default_rng(0).gamma(2, 1, (12, 4))
    state = np.random.RandomState(0)
    points, intervals = library.get_interval_estimates(
        {"a": scores}, lambda x: np.array([metrics.aggregate_iqm(x), metrics.aggregate_optimality_gap(x)]), reps=1000,
        random_state=state,
    )  # fmt: skip
    ours = evaluation.aggregate(scores, np.random.default_rng(1), resamples=1000)
    assert points["a"][0] == pytest.approx(ours.iqm)
    assert points["a"][1] == pytest.approx(ours.optimality_gap)
    width = intervals["a"][1, 0] - intervals["a"][0, 0]
    assert ours.low == pytest.approx(intervals["a"][0, 0], abs=0.15 * width)
    assert ours.high == pytest.approx(intervals["a"][1, 0], abs=0.15 * width)


def test_gains_are_drawn_in_pairs():
    rng = np.random.default_rng(0)
    seeds = rng.normal(1, 1, (20, 3))
    better = evaluation.relative_gain(seeds + 0.1, seeds, rng, resamples=300)
    # Seeds differ by far more than 0.1; in pairs the gain is certain all the same.
    assert better.chance == 1
    assert better.difference == pytest.approx(0.1)
    many = rng.normal(size=(5, 7, 3))
    np.testing.assert_allclose(evaluation._middle(many), [interquartile_mean(table) for table in many])
    same = evaluation.relative_gain(seeds, seeds, rng, resamples=50)
    assert (same.chance, same.difference, same.low, same.high) == (0.5, 0, 0, 0)
    assert np.isnan(evaluation.relative_gain(seeds, seeds - 10, rng, resamples=20).relative)
    with pytest.raises(DataError, match="equal shape"):
        evaluation.relative_gain(seeds, seeds[:5], rng)
    with pytest.raises(DataError, match="points"):
        evaluation.area(np.float64(1.0))
    with pytest.raises(UsageError, match="did you mean"):
        evaluation.human_normalised(1.0, "Breakou")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = [
        assay.run(
            Minto("CartPole-v1,Acrobot-v1", continuous="", offline="", **QUICK), METHODS[name](), attempts=3,
            into=folder / name, workers=0,
        )
        for name in ("dqn", "minto")
    ]  # fmt: skip
    return Runs(made)


def test_runs_hold_curves_and_scores(runs):
    for run in runs:
        assert run.status == "finished"
        assert run.records["status"].to_list() == ["ok"] * 6
        rows = run.rows("online")
        assert rows.height == 6 * 3
        assert {"step", "return", "q_mean", "target_mean", "online_rate", "overestimation"} <= set(rows.columns)
    one, two = (run.records.sort("sample", "attempt")["seed"].to_list() for run in runs)
    assert one == two


def test_analyses_tell_of_them(runs):
    table = analyses.table(runs, resamples=50).frame
    assert table["environments"].to_list() == [2, 2]
    gain = analyses.gain(runs, resamples=50).frame
    assert sorted(gain["env"].to_list()) == ["Acrobot-v1", "CartPole-v1", "all"]
    assert (gain["low"] <= gain["difference"]).all()
    assert analyses.curves(runs).frame.height == 2 * 2 * 3
    assert analyses.values(runs).frame.height == 2 * 2 * 3
    with pytest.raises(UsageError, match="no run of"):
        analyses.gain(runs, over="sarsa")
    with pytest.raises(UsageError, match="no column"):
        analyses.curves(runs, score="lives")
    with pytest.raises(UsageError, match="at least two systems"):
        analyses.gain(Runs(list(runs)[:1]))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_takes_its_task(name, tmp_path):
    if METHODS[name]().__class__.__name__.startswith("SB3"):
        pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    bench = Minto(continuous_steps=110, continuous_batch=8, **QUICK)
    run = assay.run(bench, METHODS[name](), attempts=1, into=tmp_path / "run", workers=0)
    assert run.records["status"].to_list() == ["ok"] * run.records.height
    assert run.records.height >= 1
    rows = run.rows(run.records["task"][0])
    assert rows["step"].is_sorted()


def test_bad_options_are_one_sentence():
    for bad in (
        {"env": "", "continuous": "", "offline": ""}, {"hidden": "a"}, {"hidden": "0"}, {"share": 0.0}, {"steps": 0},
        {"continuous_steps": 0}, {"n_step": 0},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            Minto(**bad)
    with pytest.raises(UsageError, match="members"):
        METHODS["maxmin"](members=1).train_discrete(Minto(**QUICK).make_recipe("CartPole-v1"), [0])


def test_recipes_make_what_they_say(tmp_path):
    recipes.curves(tmp_path, env="CartPole-v1", operators="min,target", seeds=2, steps=1000)
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")
    rows = json.loads((tmp_path / "curves.json").read_text())
    assert {r["operator"] for r in rows} == {"min", "target"}
    recipes.bias(tmp_path, actions="2,4")
    rows = json.loads((tmp_path / "bias.json").read_text())
    # More correlation, more bias; at 1 that of one network.
    own = [r["bias"] for r in rows if r["actions"] == "4"]
    assert own == sorted(own)
    assert own[-1] == pytest.approx(1.0294, abs=1e-3)
    with pytest.raises(UsageError, match="whole numbers"):
        recipes.bias(tmp_path, actions="two")
    recipes.record_behaviour(tmp_path, steps=400, share=0.5)
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["transitions"] == 100
    assert about["mean_reward"] == 1


def test_the_reproduction_judges_every_claim(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "MDPS", 2)
    monkeypatch.setattr(reproduce, "MDP_STEPS", 300)
    monkeypatch.setattr(reproduce, "RECIPES", {"CartPole-v1": {"steps": 500, "eval_every": 125, "hidden": (8,)}})
    reproduce.reproduce(tmp_path, seeds=2, workers=0)
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert len(claims) == 13
    assert all(isinstance(c["holds"], bool) for c in claims)
    assert "max" in (tmp_path / "report.md").read_text()
    rows = json.loads((tmp_path / "curves.json").read_text())
    assert len(rows) == 6 * 2 * 4
    assert {"algo", "operator", "env", "seed", "step", "return", "q_mean", "target_mean", "online_rate"} <= set(rows[0])


# -- callbacks and policies --------------------------------------------------------------------------------------------


@pytest.fixture
def gymnasium():
    pytest.importorskip("sb3_contrib", reason="stable-baselines3 and sb3-contrib are not installed")
    return pytest.importorskip("gymnasium")


def test_overestimation_is_value_over_discounted_return(gymnasium):
    from assay.training.minto.algorithms import MintoDQN
    from assay.training.minto.callbacks import BiasMeter, played

    model = MintoDQN("MlpPolicy", "CartPole-v1", learning_starts=10_000, device="cpu", seed=0)
    last = model.q_net.q_net[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([7.0, 3.0]))
    # Always to the left: the pole falls after ten steps or so, and every step's return is known.
    found = played(model, gymnasium.make("CartPole-v1"), 5, gamma=0.5, seed=0)
    assert 8 <= found.returns <= 11
    assert found.values == 7
    n = found.returns
    mean_return = np.mean([2 - 0.5 ** (k - 1) for k in range(1, round(n) + 1)])
    assert found.overestimation == pytest.approx(7 - mean_return, abs=0.05)
    meter = BiasMeter(gymnasium.make("CartPole-v1"), every=20, episodes=2)
    model.learn(60, callback=meter)
    assert [row["step"] for row in meter.rows] == [20, 40, 60]
    with pytest.raises(UsageError, match="episodes"):
        played(model, gymnasium.make("CartPole-v1"), 0, gamma=0.5)


@pytest.mark.parametrize("name", ["MintoSAC", "MintoTD3", "MintoTQC"])
def test_the_meter_reads_critics_too(gymnasium, name):
    from assay.training.minto import algorithms
    from assay.training.minto.callbacks import played

    model = getattr(algorithms, name)("MlpPolicy", "Pendulum-v1", device="cpu", policy_kwargs={"net_arch": [8]})
    found = played(model, gymnasium.make("Pendulum-v1"), 1, gamma=0.9)
    assert found.returns < 0
    assert np.isfinite(found.overestimation)


def test_impala_reads_pictures_and_keeps_the_known_size(gymnasium):
    from assay.training.minto.algorithms import MintoDQN
    from assay.training.minto.policies import ImpalaCNN

    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    net = ImpalaCNN(space, features_dim=256)
    assert net(torch.zeros(2, 4, 84, 84)).shape == (2, 256)
    # Three stages of convolutions, then 11 x 11 x 32 features.
    convolutions = sum(p.numel() for p in net.stages.parameters())
    assert convolutions == sum(9 * a * b + b + 4 * (9 * b * b + b) for a, b in ((4, 16), (16, 32), (32, 32)))
    assert net.head[1].in_features == 32 * 11 * 11

    class Pictures(gymnasium.Env):
        observation_space, action_space = (
            gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8),
            gymnasium.spaces.Discrete(2),
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.1), False, {}

    small = {"features_extractor_class": ImpalaCNN, "features_extractor_kwargs": {"channels": (4, 4)}, "net_arch": []}
    model = MintoDQN(
        "CnnPolicy", Pictures(), learning_starts=10, train_freq=4, batch_size=4, buffer_size=50, device="cpu",
        target_update_interval=10, policy_kwargs=small,
    ).learn(30)  # fmt: skip
    assert all(torch.isfinite(p).all() for p in model.policy.parameters())


@pytest.mark.parametrize("name", ["SimBaPolicy", "SimBaV2Policy"])
def test_simba_trains_saves_and_its_statistics_stand_still_in_the_bootstrap(gymnasium, name, tmp_path):
    from assay.training.minto import policies
    from assay.training.minto.algorithms import MintoSAC, evaluating

    sizes = {"actor_width": 8, "critic_width": 16, "critic_blocks": 1}
    model = MintoSAC(
        getattr(policies, name), "Pendulum-v1", learning_starts=20, batch_size=8, buffer_size=100, device="cpu", seed=0,
        policy_kwargs=dict(sizes),
    ).learn(60)  # fmt: skip
    norm = model.critic.features_extractor
    seen, before = torch.randn(8, 3), norm.running_mean.clone()
    model.critic.set_training_mode(True)
    with evaluating(model.critic):
        model.critic(seen, torch.zeros(8, 1))
    assert torch.equal(norm.running_mean, before)
    norm(seen)
    assert not torch.equal(norm.running_mean, before)
    assert norm.running_count > 100
    model.save(tmp_path / "model")
    again = MintoSAC.load(tmp_path / "model", env=gymnasium.make("Pendulum-v1"))
    one, two = (m.policy.state_dict() for m in (model, again))
    assert all(torch.equal(one[k], two[k]) for k in one)
    obs = np.zeros((1, 3), np.float32)
    assert again.predict(obs, deterministic=True)[0] == pytest.approx(model.predict(obs, deterministic=True)[0])


def test_running_statistics_are_those_of_all_that_was_seen(gymnasium):
    from assay.training.minto.policies import RunningNorm

    norm = RunningNorm(gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32))
    parts = [torch.randn(n, 2) * 3 + 5 for n in (10, 30, 7)]
    for part in parts:
        norm(part)
    whole = torch.cat(parts)
    torch.testing.assert_close(norm.running_mean, whole.mean(0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(norm.running_var, whole.var(0, unbiased=False), rtol=1e-2, atol=1e-2)


def test_simbav2_stays_on_the_sphere_and_within_its_atoms(gymnasium):
    from assay.training.minto.policies import HypersphericalNet

    net = HypersphericalNet(5, 16, 2, bound=3.0)
    x = torch.randn(20, 5) * 100
    assert (net(x).abs() <= 3).all()
    unit = torch.nn.functional.normalize(torch.randn(4, 16), dim=-1)
    torch.testing.assert_close(net.trunk.blocks(unit).norm(dim=-1), torch.ones(4))
    assert net.logits(x).shape == (20, 101)


def test_atari_frames_and_settings_fit_the_classes(gymnasium):
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    pytest.importorskip("cv2", reason="gymnasium's frames of Atari need opencv-python, which is not installed")
    from assay.training.minto import MintoDQN, MintoIQN, atari, atari_env

    env = atari_env("Breakout")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4, 84, 84)
    assert env.step(0)[0].dtype == np.uint8
    for cls, name in ((MintoDQN, "dqn"), (MintoIQN, "iqn")):
        model = cls("CnnPolicy", atari_env("Pong"), **{**atari(name), "buffer_size": 50}, device="cpu")
        assert model.target_update_interval == 32_000
        assert model.predict(obs, deterministic=True)[0] in range(6)
    with pytest.raises(UsageError, match="did you mean"):
        atari_env("Breakou")
    with pytest.raises(UsageError, match="250000"):
        atari(steps=10)
