"""Entropies, simulation, R2D2 and particles: against oracles, closed forms and numerical gradients."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import ot
import pytest
import torch

from assay.core.errors import DataError, UsageError
from assay.information.rate_distortion import (
    R2D2,
    Gaussian,
    GaussianMixture,
    Settings,
    blahut_arimoto,
    discretise,
    flow_entropy,
    functional,
    gaussian_entropy,
    knn_entropy,
    negentropy_entropy,
    nerd,
    readout,
    simulate,
    spacing_entropy,
    wgd,
)
from assay.information.rate_distortion.bridge import control_energy, schroedinger_bridge
from assay.information.rate_distortion.entropy import Knife, mixture_cross_entropy, transition_cross_entropy
from assay.information.rate_distortion.networks import Drift, MixtureDrift, make_network
from assay.information.rate_distortion.particles import equal_weights, half_squares, particle_gradient, phi

ORACLES = Path(__file__).parent.parent / "oracles" / "rate_distortion"
ENTROPY = json.loads((ORACLES / "entropy_and_readout.json").read_text())
WGD = json.loads((ORACLES / "wgd_step.json").read_text())
GMM = GaussianMixture([0.3, 0.7], [-1.0, 1.0], [0.2, 0.1])
F64 = torch.float64


def mixture(source: GaussianMixture) -> list[torch.Tensor]:
    parts = source.weights, source.means, source.variances, source.axes
    return [torch.from_numpy(np.ascontiguousarray(p)) for p in parts]


@pytest.mark.parametrize("case", ENTROPY["entropy"], ids=lambda c: c["name"])
def test_entropies_are_those_of_the_oracle(case):
    x, near = np.array(case["x"]), {"abs": ENTROPY["tolerance_abs"]}
    assert knn_entropy(x)[0] == pytest.approx(case["kozachenko_leonenko_k3_nats"], **near)
    assert gaussian_entropy(x) == pytest.approx(case["gaussian_entropy_ml_nats"], **near)
    if "hyvarinen_negentropy_entropy_nats" in case:
        found = float(negentropy_entropy(torch.from_numpy(x)))
        assert found == pytest.approx(case["hyvarinen_negentropy_entropy_nats"], **near)


@pytest.mark.parametrize("case", ENTROPY["readout"], ids=lambda c: f"d{c['d']}")
def test_the_readout_is_that_of_the_oracle(case):
    found = readout(case["objective"], case["half_mse"], case["eps"], case["d"])
    assert found == pytest.approx(case["rate_nats"], abs=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_particles_are_those_of_the_oracle(dtype):
    x, y = (torch.tensor(WGD[name], dtype=dtype) for name in ("mu", "nu"))
    weights = torch.tensor(WGD["nu_weights"], dtype=dtype).log()
    near = {"abs": WGD["tolerance_abs"] if dtype is F64 else 1e-5}
    found = functional(x, y, 1 / WGD["lam"], weights)
    assert found.loss == pytest.approx(WGD["loss_nats"], **near)
    assert found.half_mse == pytest.approx(WGD["distortion"], **near)
    assert found.rate == pytest.approx(WGD["rate_nats"], **near)
    assert found.rate <= WGD["rate_ceiling_log_n"]
    grad, _ = particle_gradient(x, y, 1 / WGD["lam"], weights)
    assert grad.double().numpy() == pytest.approx(np.array(WGD["particle_gradient"]), **near)


def test_spacings_are_nearly_unbiased_and_their_gradient_is_right():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(20, 1024, generator=generator, dtype=F64)
    assert float(spacing_entropy(x).mean()) == pytest.approx(0.0, abs=0.01)
    assert float(spacing_entropy(3 * x[0]) - spacing_entropy(x[0])) == pytest.approx(math.log(3))
    small = x[0, :12].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: spacing_entropy(z, 3), small)
    with pytest.raises(UsageError, match="order"):
        spacing_entropy(x[0, :4], 2)


def test_negentropy_is_exact_for_gaussians_ignores_turns_and_has_the_right_gradient():
    source = Gaussian([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.7]])
    x = torch.from_numpy(source.sample(20_000, np.random.default_rng(0)))
    assert float(negentropy_entropy(x)) == pytest.approx(source.entropy()[0], abs=0.02)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=F64, generator=torch.Generator().manual_seed(1)))[0]
    assert float(negentropy_entropy(x @ turn)) == pytest.approx(float(negentropy_entropy(x)), abs=1e-9)
    small = x[:8].clone().requires_grad_()
    assert torch.autograd.gradcheck(negentropy_entropy, small, atol=1e-6)


def test_cross_entropies_bound_the_entropy_from_above():
    rng = np.random.default_rng(0)
    fit, test = GMM.sample(8000, rng), GMM.sample(8000, rng)
    h = GMM.entropy()[0]
    assert h - 0.02 < mixture_cross_entropy(fit, test, 4).mean() < h + 0.05
    # X + noise: the law is the mixture of the noise around X.
    noisy = torch.from_numpy(test + 0.3 * rng.standard_normal(test.shape))
    true = GaussianMixture(GMM.weights, GMM.means, GMM.covariances + 0.09).entropy()[0]
    means = torch.from_numpy(fit)
    found = transition_cross_entropy(means, 0.09, noisy)
    assert float(found.mean()) == pytest.approx(true, abs=0.03)
    own = torch.from_numpy(fit + 0.3 * rng.standard_normal(fit.shape))
    mixed = transition_cross_entropy(means, 0.09, noisy, own)
    assert float(mixed.mean()) == pytest.approx(float(found.mean()), abs=0.005)


@pytest.mark.parametrize("d", [1, 2])
def test_wider_kernels_bound_the_entropy_where_the_last_step_is_too_thin(d):
    """A Gaussian reached by few paths with tiny last steps: kernels of that width alone miss most of what comes."""
    rng = np.random.default_rng(d)
    variance, m = 1e-5, 800
    means = torch.from_numpy(rng.standard_normal((m, d)))
    own = means + variance**0.5 * torch.from_numpy(rng.standard_normal((m, d)))
    x = torch.from_numpy(rng.standard_normal((6000, d)))
    true = d / 2 * (1 + math.log(2 * math.pi))
    thin = float(transition_cross_entropy(means, variance, x).mean())
    mixed = float(transition_cross_entropy(means, variance, x, own).mean())
    assert thin > true + 1
    assert true - 0.05 < mixed < true + 0.05
    # It is a density.
    if d == 1:
        grid = torch.linspace(-8, 8, 20_001, dtype=F64)[:, None]
        mass = torch.exp(-transition_cross_entropy(means, variance, grid, own)).sum() * (16 / 20_000)
        assert float(mass) == pytest.approx(1, abs=0.02)


def test_the_learned_mixture_begins_as_the_exact_terminal_law():
    knife = Knife(*mixture(GMM), (0.01, 0.05)).double()
    x = torch.linspace(-2, 2, 9, dtype=F64)[:, None]
    found = knife.log_prob(x, torch.full((9, 1), 0.04, dtype=F64))
    assert found.detach().numpy() == pytest.approx(GMM.terminal(0.04).log_density(x.numpy()), abs=1e-9)
    p = torch.linspace(-6, 6, 4001, dtype=F64)[:, None]
    with torch.no_grad():
        for q in knife.parameters():
            q += 0.1 * torch.randn(q.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
        mass = torch.exp(knife.log_prob(p, torch.full((4001, 1), 0.02, dtype=F64))).sum() * (12 / 4000)
    assert float(mass) == pytest.approx(1.0, abs=1e-6)


def test_the_mixture_drift_is_the_closed_form_and_survives_eps_above_variances():
    drift = MixtureDrift(*mixture(GMM))
    x = torch.linspace(-2, 2, 9, dtype=F64)[:, None]
    found = drift(x, 0.5, torch.full((9, 1), 0.05, dtype=F64))
    assert found.numpy() == pytest.approx(GMM.drift(x.numpy(), 0.5, 0.05), abs=1e-12)
    # Rate 0 is right here; the simulated chain may cost a little.
    x = torch.from_numpy(Gaussian(0.5).sample(20_000, np.random.default_rng(0)))
    path = simulate(MixtureDrift(*mixture(Gaussian(0.5))), x, 2.0, steps=20, generator=torch.Generator().manual_seed(0))
    h = 0.5 * math.log(2 * math.pi * math.e * float(path.end.var()))
    assert readout(float(path.energy.mean()) + 2 * h, float(((path.end - x) ** 2).mean() / 2), 2.0, 1) < 0.12


@pytest.mark.parametrize("kind", ["mlp", "film", "conv"])
def test_gradients_through_the_simulation_are_right_for_every_network(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make_network(kind, 4, (5, 5), (1, 2, 2)).double()
        for p in net.parameters():
            torch.nn.init.normal_(p, std=0.4)
    drift = Drift(None, net, torch.ones(4, dtype=F64), (0.05, 0.2)).double()
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=F64)
    eps = torch.linspace(0.05, 0.2, 6, dtype=F64)[:, None]
    weight = next(drift.net.parameters())

    def loss(w: torch.Tensor, checkpointing: bool = False) -> torch.Tensor:
        with torch.no_grad():
            weight.copy_(w)
        generator = torch.Generator().manual_seed(2)
        path = simulate(drift, x, eps, steps=3, generator=generator, checkpointing=checkpointing)
        return path.energy.sum() + (path.end**3).sum()

    at = weight.detach().clone()
    (slope,) = torch.autograd.grad(loss(at), weight)
    (again,) = torch.autograd.grad(loss(at, True), weight)
    assert torch.allclose(slope, again)
    for index in ((0,) * at.ndim, (1,) * 2 + (0,) * (at.ndim - 2) if at.shape[1] > 1 else (1,) + (0,) * (at.ndim - 1)):
        step = torch.zeros_like(at)
        step[index] = 1e-6
        numeric = float((loss(at + step) - loss(at - step)).detach()) / 2e-6
        assert float(slope[index]) == pytest.approx(numeric, rel=1e-5, abs=1e-8)


def test_the_simulated_closed_form_reproduces_rate_distortion_energy_and_terminal_law():
    eps = 0.05
    x = torch.from_numpy(GMM.sample(20_000, np.random.default_rng(0)))
    path = simulate(
        MixtureDrift(*mixture(GMM)), x, eps, steps=100, generator=torch.Generator().manual_seed(0), keep=True
    )
    true = GMM.exact_rd(eps)
    energy, half_mse = float(path.energy.mean()), float(((path.end - x) ** 2).mean() / 2)
    assert energy == pytest.approx(true.energy, rel=0.03)
    assert half_mse == pytest.approx(true.half_mse, rel=0.03)
    h = -GMM.terminal(eps).log_density(path.end.numpy()).mean()
    assert readout(energy + eps * h, half_mse, eps, 1) == pytest.approx(true.rate, abs=0.03)
    # Two samplers of one channel: by simulation and by the posterior.
    exact = GMM.sample_reconstruction(x.numpy(), eps, np.random.default_rng(1))
    assert ot.wasserstein_1d(path.end.numpy()[:, 0], exact[:, 0]) < 0.02
    # Smoothed by N(0, eps) the reconstruction is the source.
    back = path.end + math.sqrt(eps) * torch.randn(len(x), 1, generator=torch.Generator().manual_seed(1), dtype=F64)
    assert ot.wasserstein_1d(back.numpy()[:, 0], x.numpy()[:, 0]) < 0.03
    # The identity along the diffusion, with exact scores.
    assert path.states is not None
    times = np.linspace(0, 1, 11)

    def at(i: int) -> np.ndarray:
        return path.states[10 * i].numpy()  # pyright: ignore[reportOptionalSubscript]

    def divergence(i: int) -> torch.Tensor:
        h = 1e-4
        return torch.from_numpy(
            (GMM.drift(at(i) + h, times[i], eps) - GMM.drift(at(i) - h, times[i], eps))[:, 0] / (2 * h)
        )

    def score(i: int) -> torch.Tensor:
        return torch.from_numpy(GMM.score(at(i), eps * times[i]))

    found = flow_entropy(GMM.entropy()[0], times, divergence, score, eps)
    assert found == pytest.approx(true.entropy_terminal, abs=0.02)


def test_any_drift_reads_out_an_upper_bound():
    # A drift that is wrong by design, on a Gaussian: everything is Gaussian, so H(X_1) is exact.
    x = torch.from_numpy(Gaussian(1.0).sample(50_000, np.random.default_rng(0)))
    for gain in (0.0, -0.3, 0.5):
        path = simulate(lambda x, t, e, g=gain: g * x, x, 0.2, steps=20, generator=torch.Generator().manual_seed(0))
        half_mse = float(((path.end - x) ** 2).mean() / 2)
        h = 0.5 * math.log(2 * math.pi * math.e * float(path.end.var()))
        rate = readout(float(path.energy.mean()) + 0.2 * h, half_mse, 0.2, 1)
        assert rate > max(0.0, 0.5 * math.log(1 / (2 * half_mse)))


def test_r2d2_from_a_mixture_is_exact_at_once_and_stays_an_upper_bound_when_trained(tmp_path):
    source = GaussianMixture([0.5, 0.5], [-1, 1], [0.1, 0.1])
    x, test = (source.sample(2500, np.random.default_rng(i)) for i in (0, 1))
    for steps, entropy in ((0, "auto"), (8, "knife"), (8, "negentropy")):
        model = R2D2(Settings((0.01, 0.03), steps=steps, batch=256, entropy=entropy)).fit(x)
        found = model.point(0.02, x, test)
        true = source.exact_rd(0.02)
        assert found.rate_nats == pytest.approx(true.rate, abs=0.1)
        assert found.half_mse == pytest.approx(true.half_mse, rel=0.05)
        assert found.bound == "upper"
        assert 0 < found.se_rate < 0.05
    again = R2D2.load(model.save(tmp_path / "model.pt"))
    assert np.array_equal(model.simulate(test, 0.02, seed=3)[0], again.simulate(test, 0.02, seed=3)[0])
    with pytest.raises(UsageError, match="outside eps_range"):
        model.point(0.5, x, test)
    (tmp_path / "broken.pt").write_bytes(b"not a model")
    with pytest.raises(DataError, match=r"broken\.pt cannot be read"):
        R2D2.load(tmp_path / "broken.pt")


@pytest.mark.parametrize("network", ["film", "conv"])
def test_training_from_zero_lowers_the_objective_in_both_precisions(network):
    source = Gaussian(np.linspace(1, 0.5, 4))
    x = source.sample(2000, np.random.default_rng(0))
    for dtype in ("float32", "float64"):
        settings = Settings(
            (0.05, 0.1), steps=30, batch=256, initial="zero", components=1, network=network, hidden=(8,),
            image_shape=(1, 2, 2), dtype=dtype, simulation_steps=5, lr=1e-2,
        )  # fmt: skip
        model = R2D2(settings).fit(x)
        assert model.history is not None
        values = [row["value"] for row in model.history.rows]
        assert values[-1] < values[0]
        assert model.drift.variance.dtype == getattr(torch, dtype)


def test_rates_do_not_depend_on_the_scale_of_the_data():
    x = GMM.sample(2000, np.random.default_rng(0))
    found = []
    for scale in (1.0, 1000.0):
        settings = Settings((0.01 * scale**2, 0.03 * scale**2), steps=0, components=2, dtype="float64")
        found.append(R2D2(settings).fit(scale * x).point(0.02 * scale**2, scale * x[:1000], scale * x[1000:]))
    assert found[0].rate_nats == pytest.approx(found[1].rate_nats, abs=1e-6)
    assert found[1].half_mse == pytest.approx(1e6 * found[0].half_mse, rel=1e-6)


def test_a_law_without_smooth_reconstruction_is_warned_about():
    x = np.random.default_rng(0).uniform(size=(3000, 1))
    model = R2D2(Settings((0.05, 0.2), steps=0)).fit(x)
    with pytest.warns(UserWarning, match="loses its density"):
        model.point(0.2, x[:1500], x[1500:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_a_gpu_gives_what_the_cpu_gives():
    x = GMM.sample(2000, np.random.default_rng(0))
    found = [R2D2(Settings((0.01, 0.03), steps=0), device=d).fit(x).point(0.02, x, x) for d in ("cpu", "cuda")]
    assert found[0].rate_nats == pytest.approx(found[1].rate_nats, abs=1e-3)


def test_the_particle_gradient_is_the_derivative_of_psi():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 4, generator=generator, dtype=F64) for n in (7, 3))
    grad, mass = particle_gradient(x, y, 0.5)
    held = phi(x, y, equal_weights(y), 0.5)

    def psi(z: torch.Tensor) -> torch.Tensor:
        return -torch.exp(held[:, None] - half_squares(x, z) / 0.5).mean(0)

    z = y.clone().requires_grad_()
    psi(z).sum().backward()
    assert torch.allclose(grad, z.grad)  # pyright: ignore[reportArgumentType]
    assert torch.allclose(mass, -psi(y))


@pytest.mark.parametrize("method", ["wgd", "hybrid", "nerd"])
def test_particles_find_a_gaussians_curve_and_never_pass_log_n(method):
    x, test = (
        torch.from_numpy(Gaussian(1.0).sample(n, np.random.default_rng(i))).float() for i, n in ((0, 5000), (1, 5000))
    )
    eps, n = 0.3, 64
    true = Gaussian(1.0).exact_rd(eps)
    if method == "nerd":
        net = nerd(x, eps, points=256, steps=60, latent=4, hidden=(32,), lr=1e-2)
        with torch.no_grad():
            found = functional(test, net.points(512, torch.Generator().manual_seed(0)), eps)
    else:
        y, log_w = wgd(x, eps, particles=n, steps=80, batch=512, hybrid=method == "hybrid")
        assert float(torch.logsumexp(log_w, 0)) == pytest.approx(0.0, abs=1e-5)
        found = functional(test, y, eps, log_w)
        fine = functional(test, *wgd(x, 1e-4, particles=n, steps=5, batch=512)[:1], 1e-4)
        assert fine.rate <= math.log(n) < Gaussian(1.0).exact_rd(1e-4).rate
    assert found.loss == pytest.approx(true.rate + true.half_mse / eps, abs=0.05)
    assert found.rate == pytest.approx(true.rate, abs=0.1)


def test_control_and_transport_agree_at_a_fixed_reconstruction():
    # Terminal-entropy control of N(0, 1) at eps = 0.1: the bridge to N(0, 0.9) costs what the closed form says.
    x = np.linspace(-5, 5, 301)
    p0, p1 = discretise(-(x**2) / 2), discretise(-(x**2) / 1.8)
    found = schroedinger_bridge(p0, p1, x, x, 0.1)
    true = Gaussian(1.0).exact_rd(0.1)
    assert found.half_mse == pytest.approx(true.half_mse, rel=1e-3)
    assert found.rate == pytest.approx(true.rate, abs=1e-3)
    assert control_energy(found, p0, x, 0.1) == pytest.approx(true.energy, rel=1e-2)
    # A fixed point of Blahut and Arimoto is the bridge to its own reproduction.
    ba = blahut_arimoto(p0, x, 0.1, tolerance=1e-6)
    again = schroedinger_bridge(p0, ba.q, x, x, 0.1)
    assert again.rate == pytest.approx(ba.rate, abs=1e-4)


def test_settings_are_checked():
    for given, message in (
        ({"eps_range": (0.1, 0.01)}, "low <= high"),
        ({"eps_range": (0.01, 0.1), "batch": 0}, "too small"),
        ({"eps_range": (0.01, 0.1), "entropy": "magic"}, "must be one of"),
    ):
        with pytest.raises(UsageError, match=message):
            Settings(**given)
    x = np.random.default_rng(0).normal(size=(50, 2))
    model = R2D2(Settings((0.01, 0.1), entropy="spacing", steps=1))
    with pytest.raises(UsageError, match="one dimension"):
        model.fit(x)
