"""Closed forms, the backward heat equation, grids: against oracles, quadrature and each other."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.information.rate_distortion import (
    BackwardHeat,
    Banana,
    Gaussian,
    GaussianMixture,
    Laplace,
    Samples,
    Sinc4Mixture,
    Sphere,
    SphereNoise,
    StudentT,
    TwoMoons,
    Uniform,
    blahut_arimoto,
    blahut_arimoto_curve,
    discretise,
    dual_lower_bound,
    laplace_bounds,
    shannon_lower_bound,
    sphere_rate,
    water_filling,
)

ORACLES = Path(__file__).parent.parent / "oracles" / "rate_distortion"
GAUSSIAN = json.loads((ORACLES / "gaussian.json").read_text())
MIXTURES = json.loads((ORACLES / "gmm_exact.json").read_text())
CHANNEL = json.loads((ORACLES / "gmm_test_channel.json").read_text())
GRIDS = json.loads((ORACLES / "blahut_arimoto_1d.json").read_text())
SHAPES = {
    "uniform01": lambda x: np.ones_like(x),
    "laplace": lambda x: np.exp(-np.abs(x)),
    "gauss": lambda x: np.exp(-(x**2) / 2),
    "bimodal": lambda x: np.exp(-((x - 2) ** 2) / 0.5) + np.exp(-((x + 2) ** 2) / 0.5),
}


@pytest.mark.parametrize("case", GAUSSIAN["cases"], ids=lambda c: c["kind"])
def test_gaussians_are_those_of_the_oracle(case):
    near = {"abs": GAUSSIAN["tolerance_abs"], "rel": 1e-9}
    if case["kind"] == "reverse_water_filling":
        found = water_filling(case["variances"], total_mse=case["total_mse"])
        assert found.level == pytest.approx(case["water_level"], **near)
        assert found.rate == pytest.approx(case["rate_nats"], **near)
        assert found.components_mse == pytest.approx(case["components_mse"], **near)
        again = water_filling(case["variances"], level=found.level)
        assert again.half_mse == pytest.approx(case["total_mse"] / 2, **near)
        return
    source = Gaussian(case["sigma2"])
    found = source.exact_rd(case["eps"])
    assert found.rate == pytest.approx(case["rate_nats"], **near)
    assert found.half_mse == pytest.approx(case["half_mse"], **near)
    assert found.mse == 2 * found.half_mse
    if "control_energy" in case:
        assert found.energy == pytest.approx(case["control_energy"], **near)
        assert found.entropy_terminal == pytest.approx(case["terminal_entropy_nats"], **near)
        assert found.objective == pytest.approx(case["tec_objective"], **near)
        for at in case["drift_at"]:
            assert source.drift([[at["x"]]], at["t"], case["eps"])[0, 0] == pytest.approx(at["u"], **near)


@pytest.mark.parametrize("case", MIXTURES["cases"], ids=lambda c: str(len(c["weights"])))
def test_mixtures_are_those_of_the_oracle(case):
    near = {"abs": MIXTURES["tolerance_abs"]}
    source = GaussianMixture(case["weights"], case["means"], case["variances"])
    found = source.exact_rd(case["eps"])
    assert type(found.rate) is type(found.energy) is float, "journals take plain numbers"
    assert found.rate == pytest.approx(case["rate_nats"], **near)
    assert found.half_mse == pytest.approx(case["half_mse"], **near)
    assert found.entropy_source == pytest.approx(case["source_entropy_nats"], **near)
    assert found.entropy_terminal == pytest.approx(case["terminal_entropy_nats"], **near)
    assert found.energy == pytest.approx(case["control_energy"], **near)
    for at in case["drift_at"]:
        assert source.drift([[at["x"]]], at["t"], case["eps"])[0, 0] == pytest.approx(at["u"], rel=1e-8)
    for at in case["terminal_pdf_at"]:
        assert np.exp(source.terminal(case["eps"]).log_density([[at["x"]]]))[0] == pytest.approx(at["p"], rel=1e-6)


@pytest.mark.parametrize("case", CHANNEL["cases"], ids=lambda c: f"d{len(c['x'])}")
def test_the_exact_channel_is_that_of_the_oracle_and_its_mean_is_the_drift(case):
    near = {"abs": CHANNEL["tolerance_abs"]}
    source = GaussianMixture(case["weights"], case["means"], case["covariances"])
    x = np.array([case["x"]])
    weights, means, covariances = source.test_channel(x, case["eps"])
    assert weights[0] == pytest.approx(np.array(case["posterior_weights"]), **near)
    assert means[0] == pytest.approx(np.array(case["posterior_means"]), **near)
    assert covariances == pytest.approx(np.array(case["posterior_covariances"]), **near)
    assert source.drift(x, 0.0, case["eps"])[0] == pytest.approx(np.array(case["mean_displacement"]), **near)
    assert source.exact_rd(case["eps"]).half_mse == pytest.approx(case["half_mse_total"], **near)


def test_draws_of_the_exact_channel_have_its_distortion_and_the_terminal_law():
    source = GaussianMixture([0.3, 0.7], [[0, 0], [2, 1]], [[[1, 0.3], [0.3, 0.5]], [[0.4, 0], [0, 0.8]]])
    rng = np.random.default_rng(0)
    x = source.sample(40_000, rng)
    y = source.sample_reconstruction(x, 0.2, rng)
    assert ((x - y) ** 2).sum(1).mean() / 2 == pytest.approx(0.2, rel=0.02)
    assert np.cov(y.T) == pytest.approx(source.terminal(0.2).covariance(), abs=0.03)


def test_scores_are_gradients_of_log_densities():
    x = np.random.default_rng(0).normal(size=(5, 3))
    for source, removed in (
        (GaussianMixture([0.4, 0.6], [[0, 0, 0], [1, 0, 1]], [np.eye(3), np.diag([0.5, 1, 2])]), 0.2),
        (SphereNoise(3, variance=0.3), 0.1),
    ):
        shifted = [
            (source._radial(np.linalg.norm(x + d, axis=1), 0.2) if isinstance(source, SphereNoise) else
             source.log_density(x + d, removed))
            for d in np.concatenate([1e-5 * np.eye(3), -1e-5 * np.eye(3)])
        ]  # fmt: skip
        numeric = (np.array(shifted[:3]) - np.array(shifted[3:])).T / 2e-5
        assert source.score(x, removed) == pytest.approx(numeric, abs=1e-6)


@given(
    st.lists(st.floats(0.05, 5), min_size=1, max_size=6),
    st.floats(0.01, 0.99),
)
def test_water_filling_by_distortion_and_by_level_agree(variances, part):
    total = part * sum(variances)
    found = water_filling(variances, total_mse=total)
    assert found.components_mse.sum() == pytest.approx(total, rel=1e-9)
    again = water_filling(variances, half_mse=total / 2)
    assert again.rate == found.rate >= 0
    assert water_filling(variances, level=found.level).rate == pytest.approx(found.rate, rel=1e-9, abs=1e-12)


def test_water_filling_gives_rate_zero_from_the_whole_variance_on():
    assert water_filling([1.0, 2.0], total_mse=5.0).rate == 0.0
    assert Gaussian([1.0, 0.25]).exact_rd(0.5).rate == pytest.approx(0.5 * math.log(2))


def test_entropies_of_sources_are_means_of_their_log_densities():
    rng = np.random.default_rng(0)
    for source in (Laplace(0.7), Uniform(-1, 2), StudentT(5), Banana(), TwoMoons(0.2), SphereNoise(3),
                   GaussianMixture([0.5, 0.5], [0, 3], [1, 0.2]),
                   Sinc4Mixture([-math.pi / 4, math.pi / 4])):  # fmt: skip
        x = source.sample(20_000, rng)
        values = -source.log_density(x)
        assert source.entropy()[0] == pytest.approx(values.mean(), abs=5 * values.std() / math.sqrt(20_000) + 2e-3)


def test_entropy_of_a_mixture_in_three_dimensions_tells_its_error():
    source = GaussianMixture([0.5, 0.5], [[0, 0, 0], [50, 0, 0]], [1.0, 1.0])
    h, se = source.entropy()
    assert 0 < se < 0.01
    assert h == pytest.approx(1.5 * math.log(2 * math.pi * math.e) + math.log(2), abs=5 * se)


def test_shannons_bound_is_reached_by_gaussians_only():
    assert shannon_lower_bound(Gaussian(2.0).entropy()[0], 0.1) == pytest.approx(0.5 * math.log(2.0 / 0.2))
    low, high = laplace_bounds(1.0, [0.1, 0.5])
    grid = np.linspace(-16, 16, 801)
    for eps in (0.2, 1.0):
        found = blahut_arimoto(discretise(-np.abs(grid)), grid, eps, tolerance=1e-3)
        low, high = laplace_bounds(1.0, found.half_mse)
        assert low < found.rate < high


def test_the_sphere_is_solved_in_closed_form():
    # The circle, by brute force: points on it, reproductions on a polar grid around it.
    eps = 0.2
    rate, half_mse = sphere_rate(2, eps)
    angle = 2 * math.pi * np.arange(120) / 120
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    radii = math.sqrt(1 - 2 * half_mse) + 0.01 * np.arange(-40, 21)
    y = (radii[:, None, None] * circle).reshape(-1, 2)
    k = np.exp(-((circle[:, None] - y) ** 2).sum(-1) / (2 * eps))
    q = np.full(len(y), 1 / len(y))
    for _ in range(2000):
        q *= k.T @ (1 / 120 / (k @ q))
    c = k.T @ (1 / 120 / (k @ q))
    loss = -np.log(k @ q).mean()
    assert loss - math.log(c.max()) - 1e-9 <= rate + half_mse / eps <= loss + 1e-9
    assert sphere_rate(3, 1 / 3) == (0.0, 0.5)
    # At high rate the sphere is locally flat: d - 1 dimensions under a Gaussian test channel.
    fine, finer = sphere_rate(3, 1e-4), sphere_rate(3, 1e-5)
    assert finer[0] - fine[0] == pytest.approx(math.log(10), rel=1e-3)
    assert Sphere(3, radius=2.0).exact_rd(0.4).rate == pytest.approx(sphere_rate(3, 0.1)[0])


def test_a_noisy_sphere_is_exact_up_to_its_noise():
    found = SphereNoise(3, variance=0.1).exact_rd(0.05)
    assert found.half_mse == pytest.approx(0.075)
    with pytest.raises(UsageError, match=r"eps <= 0\.1"):
        SphereNoise(3, variance=0.1).exact_rd(0.11)


def test_the_backward_heat_equation_of_a_gaussian_is_its_closed_form():
    heat = BackwardHeat(lambda w: np.exp(-(w**2) / 2), points=401)
    x = np.linspace(-3, 3, 7)
    assert heat.density(x, 0.5, 0.4) == pytest.approx(np.exp(-(x**2) / 1.6) / math.sqrt(1.6 * math.pi), abs=1e-12)
    assert heat.drift(x, 0.5, 0.4)[:, 0] == pytest.approx(-0.4 * x / 0.8, abs=1e-8)
    assert heat.exact_rd(0.3).energy == pytest.approx(Gaussian(1.0).exact_rd(0.3).energy, abs=1e-8)
    assert 0.85 < heat.limit < 1.0
    assert not heat.valid(1.2)


def test_a_mixture_through_its_characteristic_function_ends_where_its_variances_do():
    heat = BackwardHeat(lambda w: np.exp(-0.05 * w**2) * np.cos(w), interval=(-4, 4), points=401)
    closed = GaussianMixture([0.5, 0.5], [-1, 1], [0.1, 0.1])
    assert heat.exact_rd(0.05).rate == pytest.approx(closed.exact_rd(0.05).rate, abs=1e-6)
    x = np.array([-0.7, 0.1, 1.2])
    assert heat.drift(x, 0.5, 0.05) == pytest.approx(closed.drift(x[:, None], 0.5, 0.05), abs=1e-7)


def test_one_sinc4_kernel_has_zeros_and_two_fill_them():
    assert Sinc4Mixture([0.0]).limit == 0.0
    with pytest.raises(UsageError, match="eps <= 0"):
        Sinc4Mixture([0.0]).exact_rd(0.01)
    source = Sinc4Mixture([-math.pi / 4, math.pi / 4])
    assert source.limit > 0.05
    assert not source.valid(1.5 * source.limit)
    found = source.exact_rd(source.limit / 2)
    h = source.entropy()[0]
    assert found.energy == pytest.approx(found.eps * (h - found.entropy_terminal))
    # Blahut and Arimoto know nothing of heat.
    grid = np.linspace(-25, 25, 1001)
    ba = blahut_arimoto(source.density(grid).clip(0), grid, found.eps, tolerance=2e-3)
    assert ba.lower - 5e-3 <= found.rate + found.half_mse / found.eps <= ba.lagrangian + 5e-3


@pytest.mark.parametrize("kernel", ["dense", "fft"])
@pytest.mark.parametrize("case", GRIDS["cases"], ids=lambda c: f"{c['source']}-{c['slope_lambda']:g}")
def test_grids_are_those_of_the_oracle(case, kernel):
    grid = np.linspace(*case["grid"], case["points"])
    found = blahut_arimoto(SHAPES[case["source"]](grid), grid, 1 / case["slope_lambda"], tolerance=1e-4, kernel=kernel)
    best = case["lagrangian"] - case["duality_gap_nats"]
    assert best - 1e-9 <= found.lagrangian <= case["lagrangian"] + found.gap
    assert found.gap <= 1e-4
    assert found.rate == pytest.approx(case["rate_nats"], abs=2e-3)
    assert found.half_mse == pytest.approx(case["half_mse"], abs=2e-3)


def test_all_kernels_and_the_plain_algorithm_agree():
    grid = np.linspace(-4, 4, 161)
    p = discretise(-(grid**2) / 2)
    runs = [
        blahut_arimoto(p, grid, 0.3, tolerance=1e-3, kernel=k, accelerate=a)
        for k, a in (("dense", False), ("dense", True), ("fft", True), ("log", False))
    ]
    for one in runs:
        assert one.lagrangian == pytest.approx(runs[0].lagrangian, abs=1e-3)
        assert one.q.sum() == pytest.approx(1.0)
    assert runs[1].iterations < runs[0].iterations
    assert runs[3].iterations == runs[0].iterations


def test_two_dimensions_are_the_sum_of_independent_ones():
    axis = np.linspace(-4, 4, 41)
    p = discretise(-(axis**2) / 2)
    one = blahut_arimoto(p, axis, 0.5, tolerance=1e-5)
    two = blahut_arimoto(np.outer(p, p), [axis, axis], 0.5, tolerance=1e-5)
    assert two.rate == pytest.approx(2 * one.rate, abs=1e-3)
    dense = blahut_arimoto(np.outer(p, p), [axis, axis], 0.5, tolerance=1e-2, kernel="dense", max_iterations=5)
    separable = blahut_arimoto(np.outer(p, p), [axis, axis], 0.5, tolerance=1e-2, max_iterations=5)
    assert separable.lagrangian == pytest.approx(dense.lagrangian, abs=1e-12)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_the_duality_gap_encloses_the_optimum_at_every_stop(seed):
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 1, 60)
    p = rng.dirichlet(np.ones(60))
    rough = blahut_arimoto(p, grid, 0.02, max_iterations=int(rng.integers(0, 20)), tolerance=0.0)
    fine = blahut_arimoto(p, grid, 0.02, max_iterations=2000, tolerance=1e-6)
    assert rough.lower - 1e-9 <= fine.lagrangian <= rough.lagrangian + 1e-9


def test_a_warm_started_curve_gives_a_lower_bound_below_itself():
    grid = (np.arange(201) + 0.5) / 201
    curve = blahut_arimoto_curve(np.ones(201), grid, [0.01, 0.02, 0.04], tolerance=1e-3, source="uniform")
    lower = [p.extra["lower"] for p in curve.points]
    bound = dual_lower_bound(curve.half_mse, curve.eps, lower)
    assert np.all(bound <= curve.rate_nats)
    assert np.all(curve.rate_nats - bound < 2e-3)
    assert np.all(np.diff(curve.rate_nats) < 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blahut_arimoto(np.ones(11), np.linspace(0, 1, 11), 1e-3), "too coarse"),
        (lambda: blahut_arimoto(np.ones(3), np.linspace(0, 1, 11), 0.1), "shape"),
        (lambda: blahut_arimoto(-np.ones(11), np.linspace(0, 1, 11), 0.1), "masses >= 0"),
        (lambda: blahut_arimoto(np.ones(3), np.array([0, 0.1, 1.0]), 1.0, kernel="fft"), "even grid"),
        (lambda: Gaussian(1.0).exact_rd(0.0), "above 0"),
        (lambda: GaussianMixture([1.0], [0.0], [0.1]).drift([[0.0]], 0.0, 0.2), "smallest eigenvalue"),
        (lambda: GaussianMixture([1.0], [0.0], [0.1]).exact_rd(0.2), "eps <= 0.1"),
        (lambda: Laplace().exact_rd(0.1), "eps <= 0"),
        (lambda: GaussianMixture([0.5, 0.6], [0, 1], [1, 1]), "sum to 1"),
        (lambda: Gaussian([[1, 1], [1, 1]]), "eigenvalue"),
        (lambda: water_filling([1.0]), "exactly one"),
        (lambda: water_filling([0.0], level=1.0), "above 0"),
        (lambda: Samples(np.repeat(np.arange(20.0), 5)), "discrete"),
        (lambda: Samples(np.c_[np.arange(20.0), np.arange(20.0)]), "singular"),
        (lambda: Samples([1.0] * 5 + [math.nan] * 6), "row 5, column 0"),
        (lambda: StudentT(2.0), "finite variance"),
    ],
)
def test_bad_input_is_told_in_one_sentence(call, message):
    with pytest.raises(UsageError, match=message):
        call()
