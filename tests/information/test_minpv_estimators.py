"""minpv: losses, integration, estimators, baselines, problems, loaders: identities, closed forms, bad input."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from sklearn.base import clone

from assay.core.errors import DataError, UsageError
from assay.information.minpv import losses
from assay.information.minpv.baselines import LOSSES, SCALE_FREE, FlowRatio, KernelRatio, NeuralRatio, TelescopingRatio
from assay.information.minpv.data import load_pairs, load_tabular
from assay.information.minpv.estimators import (
    DensityRatioEstimator,
    Divergence,
    ScoreDensityEstimator,
    mutual_information,
)
from assay.information.minpv.integration import integrate
from assay.information.minpv.interpolants import Bridge, Direct, conditional
from assay.information.minpv.networks import ScoreNet
from assay.information.minpv.paths import make_path
from assay.information.minpv.problems import (
    MI,
    PLANE,
    SHIFT,
    additive_noise_mi,
    channel_error,
    correlated_mi,
    diagonal_correlation,
    gamma_exponential_mi,
    gaussian_pair_log_ratio,
    make_problem,
)
from assay.information.minpv.sampling import annealed, flow, hamiltonian
from assay.information.minpv.training import Recipe, TimeTable, mirrored, train_scores, transport
from assay.information.minpv.variance import LIMITS, Moments, marginal_time_scores, normal_time_score, path_variance

ORACLES = Path(__file__).parents[1] / "oracles" / "minpv"
SMALL = {"steps": 60, "batch_size": 128, "width": 32, "blocks": 1}


def oracle(name: str) -> dict[str, Any]:
    return json.loads((ORACLES / f"{name}.json").read_text())


def double(x: Any) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def draws(n: int, seed: int, kind: str = "linear", bridge: Bridge | Direct | None = None):
    """Points on a path from N(0, 1) to N(1, 0.25) in one dimension, times uniform, and both ends."""
    bridge = bridge or Bridge(0.0, 0.05)
    g = torch.Generator().manual_seed(seed)
    x0, x1, z, e0, e1 = (torch.randn((n, 1), generator=g, dtype=torch.float64) for _ in range(5))
    x1 = 1 + 0.5 * x1
    low, high = LIMITS
    u = torch.rand(n, generator=g, dtype=torch.float64)
    t = low + (high - low) * u
    point = conditional(bridge, t, make_path(kind).coefficients(t), x0, x1, z)
    noise = math.sqrt(bridge.added_variance)
    return point, t, x0 + noise * e0, x1 + noise * e1


def test_the_tractable_loss_and_the_marginal_variance_add_up_to_the_ideal_loss():
    bridge, path = Bridge(0.0, 0.05), make_path("linear")
    point, t, first, last = draws(400_000, 0)
    exact = normal_time_score(path, double([1.0]), double([[0.25]]), bridge)

    def model(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return 0.3 * x[:, 0] * time - 0.2 * time**2 + 0.1 * x[:, 0] ** 2

    truth = exact(point.x, t)
    ideal = float((model(point.x, t) - truth).square().mean())
    v = float(truth.square().mean())
    tractable = float(losses.stsm(model, first, last, point.x, t, limits=LIMITS).detach())
    assert tractable + v == pytest.approx(ideal, rel=0.02)
    one = lambda time: (torch.ones_like(time), torch.zeros_like(time))  # noqa: E731
    half = losses.weighted_stsm(model, first, last, point.x, t, one, limits=LIMITS)
    assert 2 * float(half.detach()) == pytest.approx(tractable, rel=1e-9)
    # Any weight: the ideal weighted loss differs by a constant, so that differences of two models agree.
    weight = lambda time: (1 + time**2, 2 * time)  # noqa: E731

    def other(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return 0.5 * time + 0.1 * x[:, 0]

    gap = [float(losses.weighted_stsm(m, first, last, point.x, t, weight, limits=LIMITS).detach())
           for m in (model, other)]  # fmt: skip
    ideals = [float(((1 + t**2) * (m(point.x, t) - truth).square()).mean()) / 2 for m in (model, other)]
    assert gap[0] - gap[1] == pytest.approx(ideals[0] - ideals[1], abs=0.02)


def test_conditional_losses_differ_from_ideal_ones_by_a_constant():
    bridge, path = Bridge(0.0, 0.05), make_path("trigonometric")
    point, t, _, _ = draws(400_000, 1, "trigonometric")
    truth = normal_time_score(path, double([1.0]), double([[0.25]]), bridge)(point.x, t)
    models = [lambda x, t: x[:, 0] - t, lambda x, t: 0.5 * t * x[:, 0] ** 2]
    ideal = [float((m(point.x, t) - truth).square().mean()) for m in models]
    found = [float(losses.ctsm(m, point, t)) for m in models]
    assert found[0] - found[1] == pytest.approx(ideal[0] - ideal[1], abs=0.15)
    c = path.coefficients(t)
    s = c[0] ** 2 + 0.25 * c[1] ** 2 + 0.05
    data = (-(point.x[:, 0] - c[1]) / s)[:, None]
    joints = [lambda x, t: (t, -x), lambda x, t: (t, 0.5 - x)]
    apart = [float((m(point.x, t)[1] - data).square().mean()) for m in joints]
    both = [float(losses.cjsm(m, point, t, 1.0, 1.0)) for m in joints]
    assert both[0] - both[1] == pytest.approx(apart[0] - apart[1], abs=0.05)


def test_the_joint_tractable_loss_has_the_true_scores_as_its_stationary_point():
    bridge, path = Bridge(0.0, 0.05), make_path("linear")
    point, t, first, last = draws(200_000, 2)
    exact = normal_time_score(path, double([1.0]), double([[0.25]]), bridge)
    scale = double(1.0).requires_grad_(True)

    def model(x: torch.Tensor, time: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        c = path.coefficients(time)
        s = c[0] ** 2 + 0.25 * c[1] ** 2 + 0.05 * (c[0] ** 2 + c[1] ** 2)
        return scale * exact(x, time), scale * (-(x[:, 0] - c[1]) / s)[:, None]

    value = losses.joint_stsm(model, first, last, point.x, t, torch.ones_like(point.x), limits=LIMITS)
    (slope,) = torch.autograd.grad(value, scale)
    assert abs(float(slope)) < 0.1


def test_gradients_of_losses_are_those_of_finite_differences():
    torch.manual_seed(0)
    point, t, first, last = draws(6, 3)
    net = ScoreNet(1, width=4, blocks=1, quadratic=2, data=True, smooth=True, stretched=False).double()
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.3)
    direction = torch.ones_like(point.x)
    for value in (
        lambda: losses.stsm(net, first, last, point.x, t),
        lambda: losses.joint_stsm(net.both, first, last, point.x, t, direction),
        lambda: losses.cjsm(net.both, point, t, 0.1, 0.1),
        lambda: losses.cjsm(losses.energy_score(net), point, t, 0.1, 0.1),
    ):
        for p in (net.head.weight, net.points.weight, net.forms.weight):  # pyright: ignore[reportOptionalMemberAccess]
            (gradient,) = torch.autograd.grad(value(), p)
            with torch.no_grad():
                p[0, 0] += 1e-5
            high = float(value().detach())
            with torch.no_grad():
                p[0, 0] -= 2e-5
            low = float(value().detach())
            with torch.no_grad():
                p[0, 0] += 1e-5
            assert float(gradient[0, 0]) == pytest.approx((high - low) / 2e-5, rel=1e-4, abs=1e-6)


def test_the_secant_loss_is_least_at_the_mean_of_the_score():
    # Time score t x: its mean from s to t is x (t + s) / 2.
    x = double(np.linspace(-1, 1, 50))[:, None]
    t, s = double(np.linspace(0.1, 0.9, 50)), double(np.linspace(0.0, 0.5, 50))
    point = losses.Point(x, t * x[:, 0], -x)
    mean = lambda x, s, t: x[:, 0] * (s + t) / 2  # noqa: E731
    assert float(losses.secant(mean, point, s, t)) == pytest.approx(0, abs=1e-20)
    assert float(losses.secant(lambda x, s, t: x[:, 0] * t + 0 * s, point, s, t)) > 1e-4


@pytest.mark.parametrize("method", ["gauss", "trapezoid", "simpson", "monte_carlo", "ode"])
def test_every_integration_of_the_exact_time_score_gives_the_exact_log_ratio(method):
    for case in oracle("gaussian_log_ratio")["cases"]:
        d = case["d"]
        score = normal_time_score(make_path("linear"), torch.full((d,), float(case["mu"])), case["s2"] * torch.eye(d),
                                  Direct())  # fmt: skip
        n = {"trapezoid": 2001, "simpson": 401, "monte_carlo": 40_000}.get(method)
        found = integrate(score, double([case["x"]]), method=method, n=n, generator=torch.Generator().manual_seed(0))
        error = float(found.error[0])
        tolerance = 6 * error if method == "monte_carlo" else 1e-3
        assert float(found.value[0]) == pytest.approx(case["log_ratio"], abs=tolerance)
        assert found.evaluations > 0
        assert math.isfinite(error)


def test_integration_in_pieces_is_integration_at_once_and_its_error_estimate_covers():
    score = normal_time_score(make_path("vp"), double([1.0]), double([[0.5]]), Bridge())
    x = double(np.linspace(-3, 3, 700))[:, None]
    whole = integrate(score, x)
    parts = torch.cat([integrate(score, piece).value for piece in x.split(7)])
    assert torch.allclose(whole.value, parts)
    fine = integrate(score, x, n=400).value
    assert bool(((whole.value - fine).abs() <= whole.error + 1e-6).all())


def test_marginal_scores_of_few_pairs_are_the_mixture_s_derivative():
    x0, x1 = double([[0.0], [1.0], [-1.0]]), double([[2.0], [1.5], [0.3]])
    path, bridge, x = make_path("cosine"), Bridge(0.01, 0.3), double([[0.4], [1.1]])

    def log_p(t: torch.Tensor) -> torch.Tensor:
        c = path.coefficients(t)
        v, _ = bridge.variance(t, c)
        mean = (c[0] * x0 + c[1] * x1)[:, 0]
        return torch.logsumexp(-((x - mean) ** 2) / (2 * v) - 0.5 * torch.log(v), 1).sum()

    t = double(0.35).requires_grad_(True)
    (slope,) = torch.autograd.grad(log_p(t), t)
    assert float(marginal_time_scores(path, 0.35, x, x0, x1, bridge).sum()) == pytest.approx(float(slope), rel=1e-9)


def test_mirrored_noise_keeps_its_length_and_turns_one_component():
    g = torch.Generator().manual_seed(0)
    z, direction = torch.randn((50, 4), generator=g), torch.randn((50, 4), generator=g)
    both = mirrored(z, direction)
    assert torch.allclose(both[50:].norm(dim=1), z.norm(dim=1), atol=1e-5)
    assert torch.allclose((both[50:] * direction).sum(1), -(z * direction).sum(1), atol=1e-4)


def test_mirrored_noise_cuts_the_variance_of_the_gradient_and_keeps_its_mean():
    g = torch.Generator().manual_seed(4)
    d, n = 10, 20_000
    x0, x1, z = (torch.randn((n, d), generator=g, dtype=torch.float64) for _ in range(3))
    t = torch.full((n,), 0.4, dtype=torch.float64)
    c, bridge = make_path("linear").coefficients(t), Bridge()
    feature = lambda x: torch.tanh(x[:, 0])  # noqa: E731
    plain = conditional(bridge, t, c, x0, x1, z)
    pair = mirrored(z, x1 - x0)
    sides = [conditional(bridge, t, c, x0, x1, half) for half in pair.split(n)]
    one = plain.time_score * feature(plain.x)
    two = sum(s.time_score * feature(s.x) for s in sides) / 2
    assert float(two.std()) < 0.1 * float(one.std())
    assert abs(float(one.mean() - two.mean())) < 4 * float(one.std()) / math.sqrt(n)


@pytest.mark.parametrize("sampler", ["uniform", "importance"])
def test_samplers_and_weights_give_one_and_the_same_loss(sampler):
    moments, bridge, path = Moments(2, 2, 5), Bridge(0.1, 0.001), make_path("vp")
    table = TimeTable(path, bridge, moments, sampler)
    t, *_, weight, _ = table.draw(50_000, torch.Generator().manual_seed(0))
    found = float((weight * t**2).mean())
    grid = TimeTable(path, bridge, moments, "uniform").rows
    assert found == pytest.approx(float((grid[5] * grid[0] ** 2).mean()), rel=0.01)


def test_optimal_transport_pairs_the_nearest():
    first = torch.tensor([[0.0], [10.0], [5.0]])
    last = torch.tensor([[5.1], [0.1], [9.9]])
    assert transport(first, last).tolist() == [1, 2, 0]


@pytest.mark.parametrize("loss", ["ctsm", "cjsm", "stsm", "joint", "secant", "energy"])
def test_every_loss_trains_and_gives_finite_log_ratios(loss):
    rng = np.random.default_rng(0)
    x0, x1 = rng.normal(size=(300, 2)), rng.normal(0.5, 1, size=(300, 2))
    made = DensityRatioEstimator(loss=loss, path="linear", **{**SMALL, "steps": 10}).fit(x0, x1)
    value, error = made.log_ratio_with_error(x1[:5])
    assert value.shape == error.shape == (5,)
    assert np.isfinite(value).all()
    assert made.evaluations_ == {"secant": 1, "energy": 2}.get(loss, 48)


def test_a_ratio_between_normals_is_learned():
    rng = np.random.default_rng(0)
    x0, x1, held = rng.normal(size=(3000, 2)), rng.normal(0.6, 0.8, size=(3000, 2)), rng.normal(0.6, 0.8, (2000, 2))
    made = DensityRatioEstimator(steps=300, batch_size=256, width=64, K=1).fit(x0, x1)
    exact = (0.5 * held**2 - 0.5 * ((held - 0.6) / 0.8) ** 2 - math.log(0.8)).sum(1)
    assert np.sqrt(np.mean((made.log_ratio(held) - exact) ** 2)) < 0.35
    found = made.divergences(rng.normal(size=(2000, 2)), held)
    assert found["kl"].value == pytest.approx(exact.mean(), abs=0.2)
    assert found["kl"].low < found["kl"].value < found["kl"].high
    assert 0 < found["js"].value < math.log(2)
    assert found["chi2"].value > 0
    assert made.score(held) == pytest.approx(found["kl"].value)
    assert made.predict(held[:3]) == pytest.approx(np.exp(made.log_ratio(held[:3])))


def test_fits_repeat_with_their_seed_and_clone_like_scikit_learn_s():
    rng = np.random.default_rng(1)
    x0, x1 = rng.normal(size=(200, 2)), rng.normal(1, 1, size=(200, 2))
    made = DensityRatioEstimator("linear", random_state=3, **SMALL)
    again = clone(made)
    assert made.fit(x0, x1).log_ratio(x1[:9]).tolist() == again.fit(x0, x1).log_ratio(x1[:9]).tolist()
    other = clone(made).set_params(random_state=4).fit(x0, x1)
    assert other.log_ratio(x1[:9]).tolist() != made.log_ratio(x1[:9]).tolist()


def test_the_ratio_does_not_depend_on_units_or_constant_columns():
    rng = np.random.default_rng(2)
    x0, x1 = rng.normal(size=(300, 2)), rng.normal(1, 1, size=(300, 2))
    scale, shift = np.array([1000.0, 0.001]), np.array([5.0, -3.0])
    plain = DensityRatioEstimator("linear", **SMALL).fit(x0, x1).log_ratio(x1[:20])
    scaled = DensityRatioEstimator("linear", **SMALL).fit(x0 * scale + shift, x1 * scale + shift)
    assert scaled.log_ratio(x1[:20] * scale + shift) == pytest.approx(plain, abs=1e-3)
    wide = [np.insert(x, 1, 7.0, axis=1) for x in (x0, x1, x1[:20])]
    assert DensityRatioEstimator("linear", **SMALL).fit(wide[0], wide[1]).log_ratio(wide[2]) == pytest.approx(plain)


def test_a_density_is_that_of_the_data_in_their_units_and_can_be_sampled():
    rng = np.random.default_rng(3)
    x = rng.normal(5, 2, size=(2000, 1))
    made = ScoreDensityEstimator(loss="cjsm", steps=200, batch_size=256, width=32, K=1).fit(x)
    grid = np.linspace(-3, 13, 400)[:, None]
    density = np.exp(made.score_samples(grid))
    assert float(np.trapezoid(density, grid[:, 0])) == pytest.approx(1, abs=0.1)
    exact = -0.5 * ((grid - 5) / 2) ** 2 - math.log(2) - 0.5 * math.log(2 * math.pi)
    near = np.abs(grid[:, 0] - 5) < 4
    assert made.score_samples(grid)[near] == pytest.approx(exact[near, 0], abs=0.3)
    assert made.score(x[:10]) == pytest.approx(made.score_samples(x[:10]).sum())
    for method in ("flow", "hmc", "ais"):
        drawn = made.sample(50, method=method, random_state=1)
        assert drawn.shape == (50, 1)
        assert np.isfinite(drawn).all()
        assert made.sample(50, method=method, random_state=1).tolist() == drawn.tolist()


class ExactScores:
    """Of the path between N(0, I) and N(1, 1/4)."""

    def __init__(self, path: Any, bridge: Any) -> None:
        self.path, self.bridge = path, bridge
        self.time = normal_time_score(path, double([1.0]), double([[0.25]]), bridge)

    def time_score(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.time(x, t).to(x)

    def data_score(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        c = self.path.coefficients(t)
        v, _ = self.bridge.variance(t, c)
        s = v + 0.25 * c[1] ** 2 + (0 if isinstance(self.bridge, Direct) else c[0] ** 2)
        return (c[1][:, None] - x) / s[:, None]


@pytest.mark.parametrize("kind", ["linear", "trigonometric", "kmm"])
@pytest.mark.parametrize("bridge", [Bridge(0.1, 0.01), Direct()], ids=["ddbi", "di"])
def test_flow_and_annealing_with_exact_scores_draw_the_exact_distribution(kind, bridge):
    path = make_path(kind).requires_grad_(False)
    scores: Any = ExactScores(path, bridge)
    g = torch.Generator().manual_seed(0)
    x = math.sqrt(1 + bridge.added_variance) * torch.randn((4000, 1), generator=g)
    deviation = math.sqrt(0.25 + bridge.added_variance)
    moved = flow(scores, path, bridge, x)
    assert float(moved.mean()) == pytest.approx(1, abs=0.03)
    assert float(moved.std()) == pytest.approx(deviation, rel=0.05)
    if kind == "trigonometric" and bridge.added_variance:
        drawn = annealed(scores, x, g)
        assert float(drawn.mean()) == pytest.approx(1, abs=0.08)
        assert float(drawn.std()) == pytest.approx(deviation, rel=0.12)


def test_hamiltonian_chains_keep_a_standard_normal():
    g = torch.Generator().manual_seed(0)
    x = hamiltonian(lambda y: -y, torch.randn((4000, 2), generator=g), g, size=0.2)
    assert float(x.std()) == pytest.approx(1, abs=0.05)


def test_mutual_information_is_that_of_held_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 1))
    y = 0.8 * x + 0.6 * rng.normal(size=(3000, 1))
    made = DensityRatioEstimator(steps=300, batch_size=256, width=64, K=1)
    found = mutual_information(x, y[:, 0], estimator=made)
    assert isinstance(found, Divergence)
    assert found.value == pytest.approx(correlated_mi(0.8), abs=0.15)


@pytest.mark.parametrize("kind", ["network", "ulsif"])
def test_training_leaves_the_global_generators_alone(kind):
    if kind == "ulsif":
        pytest.importorskip("densratio", reason="densratio is not installed")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    x = np.random.default_rng(0).normal(size=(100, 2))
    if kind == "network":
        DensityRatioEstimator("linear", **{**SMALL, "steps": 3}).fit(x, x + 1)
    else:
        KernelRatio("ulsif", rows=60).fit(x, x + 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_fit_on_a_gpu_gives_what_the_cpu_gives():
    rng = np.random.default_rng(0)
    x0, x1 = rng.normal(size=(500, 2)), rng.normal(1, 1, size=(500, 2))
    host, device = (DensityRatioEstimator("linear", device=on, **SMALL).fit(x0, x1) for on in ("cpu", "cuda"))
    assert device.log_ratio(x1[:50]) == pytest.approx(host.log_ratio(x1[:50]), abs=1e-2)


def test_networks_run_in_both_precisions_and_refuse_wrong_shapes():
    for kind in (torch.float32, torch.float64):
        net = ScoreNet(3, width=8, quadratic=4, data=True).to(kind)
        x, t = torch.zeros((5, 3), dtype=kind), torch.zeros(5, dtype=kind)
        assert net(x, t).dtype == kind
        assert net.both(x, t)[1].shape == (5, 3)
    with pytest.raises(UsageError, match="times"):
        net(x, t[:, None])
    with pytest.raises(UsageError, match="head"):
        ScoreNet(3).both(torch.zeros((5, 3)), torch.zeros(5))


# Baselines ------------------------------------------------------------------------------------------------------------


def test_baseline_losses_are_the_oracle_s():
    case = oracle("baselines")["baseline_losses"]
    f0, f1 = double(case["f_on_p0"]), double(case["f_on_p1"])
    names = {"logistic": "logistic", "kl": "kl_dual", "chi2": "chisq_without_penalty", "hellinger": "hellinger",
             "infonce": "infonce"}  # fmt: skip
    for name, key in names.items():
        assert float(LOSSES[name](f0, f1)) == pytest.approx(case[key], abs=1e-9)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in SCALE_FREE])
def test_baseline_losses_are_least_at_the_log_ratio(name):
    # Two outcomes with probabilities (.7, .3) under p0 and (.4, .6) under p1, written out as samples.
    f = double([math.log(4 / 7), math.log(2.0)]).requires_grad_(True)
    zero, one = torch.tensor([0] * 7 + [1] * 3), torch.tensor([0] * 4 + [1] * 6)
    (gradient,) = torch.autograd.grad(LOSSES[name](f[zero], f[one]), f)
    assert gradient.tolist() == pytest.approx([0, 0], abs=1e-12)
    best = float(LOSSES[name](f[zero], f[one]).detach())
    assert all(float(LOSSES[name]((f + e)[zero], (f + e)[one]).detach()) > best for e in (0.1, -0.1))


def test_the_gamma_divergence_is_least_at_the_log_ratio_and_deaf_to_a_factor():
    f = double([math.log(4 / 7), math.log(2.0)])
    zero, one = torch.tensor([0] * 7 + [1] * 3), torch.tensor([0] * 4 + [1] * 6)

    def at(g):
        return float(LOSSES["gamma"](g[zero], g[one]))

    assert at(f + 0.7) == pytest.approx(at(f), abs=1e-12)
    assert all(at(f + double([e, 0])) > at(f) for e in (0.1, -0.1))


@pytest.mark.parametrize(
    "made",
    [
        NeuralRatio("gamma", steps=150, lr=5e-3, batch_size=128, width=32, layers=2),
        NeuralRatio("exponential_weight", steps=150, lr=5e-3, batch_size=128, width=32, layers=2),
        NeuralRatio("logistic", steps=150, lr=5e-3, batch_size=128, width=32, layers=2),
        NeuralRatio("infonce", steps=150, lr=5e-3, batch_size=128, width=32, layers=2),
        TelescopingRatio(3, steps=200, lr=5e-3, batch_size=128, width=32, layers=2),
        KernelRatio("kulsif", rows=400),
        KernelRatio("kliep", rows=400),
        KernelRatio("ulsif", rows=200),
        KernelRatio("rulsif", rows=200),
    ],
    ids=lambda m: f"{type(m).__name__}-{getattr(m, 'loss', getattr(m, 'kind', ''))}",
)
def test_baselines_learn_a_shift(made):
    if getattr(made, "kind", "") in ("ulsif", "rulsif"):
        pytest.importorskip("densratio")
    rng = np.random.default_rng(0)
    x0, x1, held = rng.normal(size=(2000, 1)), rng.normal(1, 1, size=(2000, 1)), rng.normal(1, 1, size=(1000, 1))
    exact = held[:, 0] - 0.5
    found = made.fit(x0, x1).log_ratio(held)
    assert found.shape == (1000,)
    assert np.corrcoef(found, exact)[0, 1] > 0.8
    # RuLSIF's own ratio is bounded; turning it back into p1/p0 is convex and blows its noise up.
    assert found.mean() == pytest.approx(0.5, abs=0.4 if getattr(made, "kind", "") == "rulsif" else 0.25)


def test_flows_give_a_ratio():
    pytest.importorskip("zuko")
    rng = np.random.default_rng(0)
    x0, x1 = rng.normal(size=(300, 2)), rng.normal(1, 1, size=(300, 2))
    found = FlowRatio(steps=10, batch_size=64).fit(x0, x1).log_ratio(x1)
    assert np.isfinite(found).all()
    assert found.mean() > 0


# Problems and data ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", oracle("mutual_information")["cases"], ids=lambda c: json.dumps(c)[:50])
def test_true_mutual_information_is_the_oracle_s(case):
    if "rho" in case and "d" not in case:
        found = correlated_mi(case["rho"])
    elif "noise" in case:
        found = additive_noise_mi(case["noise"])
    elif "d" in case:
        found = make_problem("diag_multi_gauss", d=case["d"]).truth
    else:
        found = gamma_exponential_mi(next(case[k] for k in ("rate", "r", "shape") if k in case))
    assert found == pytest.approx(case["mi_nats"], abs=1e-6)


@pytest.mark.parametrize("case", oracle("baselines")["gaussian_pair_log_ratio"], ids=lambda c: str(c["rho"]))
def test_the_log_ratio_of_correlated_pairs_is_the_oracle_s(case):
    assert gaussian_pair_log_ratio(np.array([case["x"]]), case["rho"])[0] == pytest.approx(case["log_ratio"], abs=1e-9)


@pytest.mark.parametrize("name", [*MI, *SHIFT])
def test_the_truth_is_the_mean_of_the_exact_log_ratio_and_ratios_have_mean_one(name):
    problem = make_problem(name)
    rng = np.random.default_rng(0)
    x0, x1 = problem.draw(40_000, rng)
    assert x0.shape == x1.shape == (40_000, problem.d) if name != "image_bits" else x0.shape == x1.shape
    if problem.log_ratio is None:
        return
    f1, f0 = problem.log_ratio(x1), problem.log_ratio(x0)
    assert problem.truth is not None
    assert f1.mean() == pytest.approx(problem.truth, abs=5 * f1.std() / 200)
    if problem.d == 2:  # in 20 dimensions the mean of the ratio is carried by points that are never drawn
        assert np.exp(f0).mean() == pytest.approx(1, abs=6 * np.exp(f0).std() / 200)


def minus_p_log_p(y: float, noise: float) -> float:
    p = max(min(y + noise, 1) - max(y - noise, 0), 0) / (2 * noise)
    return -p * math.log(p) if p > 0 else 0.0


def test_additive_noise_takes_any_number_of_rows_and_its_integral_is_its_truth():
    assert make_problem("additive_noise", noise=0.3).draw(17, np.random.default_rng(0))[1].shape == (17, 2)
    for noise in (0.3, 0.9):
        # I = h(Y) - log(2 r), with the density of Y by quadrature.
        h = quad(partial(minus_p_log_p, noise=noise), -noise, 1 + noise,
                 points=sorted({noise, 1 - noise, 0.0, 1.0}), limit=200)[0]  # fmt: skip
        assert additive_noise_mi(noise) == pytest.approx(h - math.log(2 * noise), abs=1e-6)


def test_pairs_share_out_the_mutual_information_and_the_channel_its_bits():
    rho = diagonal_correlation(40, 10.0)
    assert correlated_mi(rho, 20) == pytest.approx(10)
    p = channel_error(0.5)
    assert 1 + p * math.log2(p) + (1 - p) * math.log2(1 - p) == pytest.approx(0.5)
    assert channel_error(1) == 0
    assert channel_error(0) == 0.5


@pytest.mark.parametrize("name", PLANE)
def test_sets_of_the_plane_are_finite_repeatable_and_two_dimensional(name):
    one, two = (make_problem(name).draw(200, np.random.default_rng(5))[1] for _ in range(2))
    assert one.shape == (200, 2)
    assert np.isfinite(one).all()
    assert (one == two).all()
    assert one.std(0).min() > 0.3


@pytest.mark.parametrize("name", ["breast_cancer", "digits"])
def test_offline_tables_are_standardised_on_their_training_rows(name):
    table = load_tabular(name)
    assert table.train.dtype == np.float32
    assert table.data.kind == "stand-in"
    assert np.abs(table.train.mean(0)).max() < 1e-4
    assert table.train.std(0) == pytest.approx(1, abs=1e-3)
    assert table.valid.shape[1] == table.test.shape[1] == table.train.shape[1]


def test_published_tables_are_read_from_their_places(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "miniboone").mkdir()
    np.save(tmp_path / "miniboone" / "data.npy", rng.normal(3, 2, size=(1000, 43)))
    table = load_tabular("MINIBOONE", tmp_path)
    assert [len(part) for part in (table.train, table.valid, table.test)] == [810, 90, 100]
    (tmp_path / "power").mkdir()
    np.save(tmp_path / "power" / "data.npy", rng.normal(size=(500, 8)))
    assert load_tabular("POWER", tmp_path).train.shape[1] == 6
    (tmp_path / "hepmass").mkdir()
    for file in ("1000_train.csv", "1000_test.csv"):
        rows = np.column_stack([rng.integers(0, 2, 300), rng.normal(size=(300, 4)), rng.integers(0, 2, 300)])
        np.savetxt(tmp_path / "hepmass" / file, rows, delimiter=",", header="label,a,b,c,d,e", comments="")
    assert load_tabular("HEPMASS", tmp_path).train.shape[1] == 4
    with pytest.raises(DataError, match="parquet"):
        load_tabular("GAS", tmp_path)
    with pytest.raises(UsageError, match="folder"):
        load_tabular("POWER")
    with pytest.raises(UsageError, match="MINIBOONE"):
        load_tabular("MINIBONE")


def test_pairs_are_read_from_arrays_and_from_a_table(tmp_path):
    np.save(tmp_path / "x0.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"no x1\.npy"):
        load_pairs(tmp_path)
    np.save(tmp_path / "x1.npy", np.ones((4, 2)))
    x0, x1 = load_pairs(tmp_path)
    assert (x0.shape, x1.shape) == ((3, 2), (4, 2))
    np.save(tmp_path / "x1.npy", np.ones((4, 3)))
    with pytest.raises(DataError, match="2 columns and x1 has 3"):
        load_pairs(tmp_path)
    table = tmp_path / "pairs.csv"
    table.write_text("a,source,b\n1,0,2\n3,1,4\n")
    x0, x1 = load_pairs(table)
    assert x0.tolist() == [[1, 2]]
    assert x1.tolist() == [[3, 4]]
    for text, match in {
        "a,b\n1,2\n": "'source'",
        "a,source\n1,2\n": "line 2: source is '2'",
        "a,source\nx,1\n": "line 2: a value",
        "a,source\n1,1\n": "no rows of source 0",
    }.items():
        table.write_text(text)
        with pytest.raises(DataError, match=match):
            load_pairs(table)


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x0", "x1", "options", "match"),
    [
        (np.zeros((3, 2)), np.ones((3, 3)), {}, "3 columns where 2"),
        (np.zeros((1, 2)), np.ones((3, 2)), {}, "at least 2"),
        (np.array([[0.0, np.nan], [1, 2]]), np.ones((3, 2)), {}, "row 0, column 1"),
        (np.zeros((3, 2, 2)), np.ones((3, 2)), {}, "shape"),
        (np.array([["a", "b"]]), np.ones((3, 2)), {}, "numeric"),
        (np.ones((5, 2)), np.ones((5, 2)), {}, "constant"),
        (np.zeros((5, 1)), np.ones((5, 1)), {}, "one constant in X0 and another in X1"),
        (np.random.default_rng(0).normal(3, 1, (200, 2)), np.ones((5, 2)), {"interpolant": "di"}, "standard normal"),
    ],
)
def test_samples_that_cannot_be_used_are_refused_with_the_reason(x0, x1, options, match):
    with pytest.raises(DataError, match=match):
        DensityRatioEstimator(**SMALL, **options).fit(x0, x1)


def test_options_that_cannot_be_used_are_refused_with_what_there_is():
    x = np.random.default_rng(0).normal(size=(50, 2))
    for options, match in [
        ({"path": "kmn"}, "kmm"),
        ({"loss": "ctms"}, "ctsm"),
        ({"interpolant": "ddb"}, "ddbi"),
        ({"sampler": "even"}, "uniform"),
        ({"steps": 0}, "above 0"),
        ({"path": "optimal", "interpolant": "di"}, "ddbi"),
        ({"gamma_sq": 0.0, "epsilon": 0.0, "path": "linear"}, "need noise"),
    ]:
        with pytest.raises(UsageError, match=match):
            DensityRatioEstimator(**{**SMALL, "steps": 2, **options}).fit(x, x + 1)
    with pytest.raises(UsageError, match="not fitted"):
        DensityRatioEstimator().log_ratio(x)
    with pytest.raises(DataError, match="no density"):
        ScoreDensityEstimator().fit(np.ones((10, 1)))
    made = ScoreDensityEstimator("linear", **{**SMALL, "steps": 2}).fit(x)
    with pytest.raises(UsageError, match="data score"):
        made.sample(3)
    with pytest.raises(DataError, match="must be pairs"):
        mutual_information(x, x[:40])
    with pytest.raises(UsageError, match="generator"):
        integrate(lambda x, t: t, torch.zeros((2, 1)), method="monte_carlo")
    with pytest.raises(UsageError, match="odd"):
        integrate(lambda x, t: t, torch.zeros((2, 1)), method="simpson", n=100)
    for name, parameters, match in [
        ("gaus", {}, "gauss"),
        ("gauss", {"rho": 1.0}, "between -1 and 1"),
        ("diag_multi_gauss", {"d": 3}, "even"),
        ("additive_noise", {"noise": 0.0}, "above 0"),
        ("gauss", {"roh": 0.5}, "does not take"),
    ]:
        with pytest.raises(UsageError, match=match):
            make_problem(name, **parameters)


def test_a_path_fitted_to_the_moments_is_the_one_that_is_used():
    rng = np.random.default_rng(0)
    x0, x1 = rng.normal(size=(200, 2)), rng.normal(0.3, 1, size=(200, 2))
    made = DensityRatioEstimator(K=1, **{**SMALL, "steps": 2}).fit(x0, x1)
    fixed = [DensityRatioEstimator(p, **{**SMALL, "steps": 2}).fit(x0, x1) for p in ("linear", "vp")]
    assert made.path_variance_ <= min(one.path_variance_ for one in fixed)
    assert made.path_variance_ == pytest.approx(float(path_variance(made.path_, made.moments_, Bridge())))
    assert not any(p.requires_grad for p in made.path_.parameters())


def test_training_stops_at_a_loss_that_is_not_finite():
    g = torch.Generator().manual_seed(0)
    x = torch.full((20, 1), 1e30)
    with pytest.raises((DataError, UsageError)):
        train_scores(x, -x, make_path("linear"), Bridge(), Recipe(steps=5, batch_size=8, width=4), g)
