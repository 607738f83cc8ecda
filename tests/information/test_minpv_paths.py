"""minpv: paths, path variance and its minimum against oracles, closed forms and numerical derivatives."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta as beta_distribution

from assay.core.errors import DataError, UsageError
from assay.information.minpv.interpolants import Bridge, Direct, conditional, make_interpolant
from assay.information.minpv.optimum import fit_path, least_fixed, optimal_path
from assay.information.minpv.paths import FIXED, LEARNED, BetaPath, KumaraswamyPath, TabulatedPath, log1mexp, make_path
from assay.information.minpv.variance import (
    Moments,
    integrand,
    marginal_time_scores,
    marginal_variance,
    monte_carlo_variance,
    nodes,
    normal_time_score,
    path_variance,
)

ORACLES = Path(__file__).parents[1] / "oracles" / "minpv"
ALL = [*FIXED, *(f"{name}_{kind}" for name in LEARNED for kind in ("affine", "spherical"))]


def oracle(name: str) -> dict[str, Any]:
    return json.loads((ORACLES / f"{name}.json").read_text())


def double(x: Any) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def any_path(name: str):
    family, _, kind = name.partition("_")
    return make_path(family, constraint=kind or "affine")


def mixture(case: dict[str, Any], constraint: str) -> KumaraswamyPath:
    made = KumaraswamyPath(constraint, len(case["weights"]), bounds=(0.1, 20.0))
    return made.set_shapes(case["weights"], case["a"], case["b"])


def moments_of(case: dict[str, Any]) -> Moments:
    return Moments(case["d"], case["E_x0_sq"], case["E_x1_sq"], case["E_x0_dot_x1"])


@pytest.mark.parametrize("case", oracle("fixed_paths")["cases"], ids=lambda c: f"{c['kind']}-{c['t']}")
def test_fixed_paths_have_the_oracle_s_coefficients(case):
    name = {"follmer": "foellmer"}.get(case["kind"], case["kind"])
    found = [float(c) for c in make_path(name).coefficients(double(case["t"]))]
    assert found == pytest.approx([case[k] for k in ("alpha", "beta", "dalpha", "dbeta")], rel=1e-9)


@pytest.mark.parametrize("case", oracle("kmm_path")["cases"], ids=lambda c: f"{c['constraint']}-{len(c['weights'])}")
def test_kumaraswamy_mixtures_have_the_oracle_s_coefficients(case):
    path = mixture(case, case["constraint"])
    for point in case["points"]:
        found = [float(c.detach()) for c in path.coefficients(double(point["t"]))]
        assert found == pytest.approx([point[k] for k in ("alpha", "beta", "dalpha", "dbeta")], rel=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_paths_run_from_x0_to_x1_and_their_derivatives_are_those_of_their_values(name):
    path, t = any_path(name), double(np.linspace(0.01, 0.99, 99))
    a, b, da, db = (c.detach() for c in path.coefficients(t))
    h = 1e-6
    (a1, b1, *_), (a0, b0, *_) = path.coefficients(t + h), path.coefficients(t - h)
    assert torch.allclose(da, (a1 - a0).detach() / (2 * h), rtol=1e-5, atol=1e-7)
    assert torch.allclose(db, (b1 - b0).detach() / (2 * h), rtol=1e-5, atol=1e-7)
    assert bool((da <= 1e-12).all())
    assert bool((db >= -1e-12).all())
    (start, *_), (_, end, *_) = path.coefficients(double([1e-12])), path.coefficients(double([1 - 1e-12]))
    assert float(start.detach()) == pytest.approx(1, abs=1e-5)
    assert float(end.detach()) == pytest.approx(1, abs=1e-4)
    if name.endswith("spherical") or name in ("vp", "trigonometric", "cosine", "foellmer"):
        assert torch.allclose(a * a + b * b, torch.ones_like(a))


@pytest.mark.parametrize("name", [*FIXED, "kmm_affine", "kmm_spherical"])
def test_paths_keep_shape_and_type_and_stay_finite_in_single_precision(name):
    path = any_path(name)
    for t in (torch.tensor([[1e-5, 0.3], [0.7, 1 - 1e-5]]), torch.tensor(0.5)):
        found = path(t)
        assert all(c.shape == t.shape and c.dtype == torch.float32 and bool(torch.isfinite(c).all()) for c in found)


def test_a_spherical_mixture_keeps_its_digits_near_the_start():
    path = KumaraswamyPath("spherical", 1).set_shapes([1.0], [4.0], [2.0])
    _, b, _, db = (float(c.detach()) for c in path.coefficients(double(1e-5)))
    assert b == pytest.approx(math.sqrt(2 * 2 * 1e-20), rel=1e-9)  # F ~ beta t^alpha, b ~ sqrt(2 F)
    assert db == pytest.approx(2 * 2 * 1e-5, rel=1e-9)


@given(st.floats(-700, -1e-12))
def test_log1mexp_agrees_with_the_library_at_both_ends(x):
    expected = math.log(-math.expm1(x)) if x > -0.69 else math.log1p(-math.exp(x))
    assert float(log1mexp(double(x))) == pytest.approx(expected, rel=1e-14)


def test_gradients_of_the_path_variance_are_those_of_finite_differences():
    for name, kind in (("kmm", "affine"), ("kmm", "spherical"), ("beta", "affine"), ("gaussian", "spherical")):
        path = LEARNED[name](kind, 2)
        if isinstance(path, KumaraswamyPath):
            path.set_shapes([0.4, 0.6], [2.0, 3.0], [2.5, 1.5])
        parameters = list(path.parameters())
        before = [p.detach().clone() for p in parameters]

        value = partial(path_variance_of, path)
        assert torch.autograd.gradcheck(value, [p.clone().requires_grad_(True) for p in before], eps=1e-6, rtol=1e-4)


def path_variance_of(path: Any, *values: torch.Tensor) -> torch.Tensor:
    names = [name for name, _ in path.named_parameters()]

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.path = path

        def forward(self) -> torch.Tensor:
            return path_variance(self.path, Moments(2, 2, 3, 0.5), Bridge(), n=40) / 1000

    given_ = {f"path.{name}": value for name, value in zip(names, values)}
    return torch.func.functional_call(Wrapped(), given_, ())


def test_the_beta_mixture_s_quadrature_is_scipy_s_distribution_function():
    path = BetaPath("affine", 3)
    t = double(np.linspace(0.001, 0.999, 201))
    below, above, density = (c.detach().numpy() for c in path.components(t[:, None]))
    for k, (p, q) in enumerate(zip(*(s.tolist() for s in path.shapes))):
        assert below[:, k] == pytest.approx(beta_distribution.cdf(t.numpy(), p, q), abs=1e-9)
        assert above[:, k] == pytest.approx(beta_distribution.sf(t.numpy(), p, q), abs=1e-9)
        assert density[:, k] == pytest.approx(beta_distribution.pdf(t.numpy(), p, q), rel=1e-9)


@pytest.mark.parametrize("case", oracle("path_variance")["cases"], ids=lambda c: f"{c['path']}-{c['mode']}-{c['d']}")
def test_path_variance_is_the_oracle_s(case):
    path = mixture(case["kmm"], "affine") if case["path"].startswith("kmm") else make_path(case["path"])
    if case["mode"] == "DI":
        moments, interpolant = Moments(case["d"], case["d"], case["E_x1_sq"]), Direct()
        found = path_variance(path, moments, interpolant, limits=(0.0, 0.9))
        assert float(found) == pytest.approx(case["integral_0_to_0_9"], rel=1e-6)
    else:
        moments, interpolant = moments_of(case), Bridge(case["gamma_sq"], case["epsilon"])
        assert float(path_variance(path, moments, interpolant).detach()) == pytest.approx(case["integral"], rel=1e-6)
    for point in case["integrand_at"]:
        found = float(integrand(path, double(point["t"]), moments, interpolant).detach())
        assert found == pytest.approx(point["value"], rel=1e-6)


@pytest.mark.parametrize("case", oracle("optimal_spherical_path")["cases"], ids=lambda c: f"d{c['d']}")
def test_the_spherical_optimum_is_the_calculus_of_variations_one(case):
    bridge = Bridge(case["gamma_sq"], case["epsilon"])
    path = optimal_path(moments_of(case), bridge)
    assert float(path_variance(path, moments_of(case), bridge, limits=(0.0, 1.0))) == pytest.approx(
        case["minimum"], rel=1e-9
    )
    for point in case["optimal_angle"]:
        a, b, *_ = path.coefficients(double(point["t"]))
        assert [float(a), float(b)] == pytest.approx([point["alpha"], point["beta"]], rel=1e-9)
    trigonometric = path_variance(make_path("trigonometric"), moments_of(case), bridge, limits=(0.0, 1.0))
    assert float(trigonometric) == pytest.approx(case["trigonometric_path_value"], rel=1e-9)


@pytest.mark.parametrize("case", oracle("kmm_fit")["cases"], ids=lambda c: f"{c['constraint']}-{c['d']}")
def test_fitted_mixtures_reach_the_oracle_s_least_variance(case):
    moments, bridge = moments_of(case), Bridge(case["gamma_sq"], case["epsilon"])
    for size, best in case["best_found"].items():
        if case["d"] > 2 and size == "K5":
            continue  # the same problem, scaled
        path = fit_path(moments, bridge, constraint=case["constraint"], components=int(size[1:]))
        assert float(path_variance(path, moments, bridge, limits=(0.0, 1.0))) <= best * (1 + 2e-3)
        low, high = path.bounds  # pyright: ignore[reportAttributeAccessIssue]
        assert all(low <= float(s) <= high for part in path.shapes for s in part)  # pyright: ignore


@pytest.mark.parametrize("moments", [Moments(2, 2, 2), Moments(40, 40, 90, 12.0), Moments(5, 5, 1)])
@pytest.mark.parametrize("bridge", [Bridge(), Bridge(0.1, 0.001)])
@pytest.mark.parametrize("kind", ["affine", "spherical"])
def test_no_mixture_beats_the_optimum_and_a_small_one_comes_near(moments, bridge, kind):
    best = float(path_variance(optimal_path(moments, bridge, constraint=kind), moments, bridge, limits=(0.0, 1.0)))
    fitted = float(path_variance(fit_path(moments, bridge, constraint=kind, components=2), moments, bridge,
                                 limits=(0.0, 1.0)))  # fmt: skip
    assert best * (1 - 1e-6) <= fitted <= best * 1.01


def test_the_automatic_constraint_is_below_every_fixed_path():
    for moments in (Moments(2, 2, 2), Moments(20, 20, 45, 5.0)):
        path = fit_path(moments, Bridge(), constraint="auto", components=2)
        assert float(path_variance(path, moments, Bridge())) <= least_fixed(moments, Bridge())[1]


@pytest.mark.parametrize("case", oracle("conditional_scores")["cases"], ids=lambda c: f"{c['path']}-{c['mode']}")
def test_conditional_scores_are_the_oracle_s(case):
    interpolant = make_interpolant(case["mode"].lower(), gamma_sq=case["gamma_sq"], epsilon=case["epsilon"])
    t = double([case["t"]])
    x0, x1 = double([case["x0"]]), double([case["x1"]])
    z = None if case["z"] is None else double([case["z"]])
    point = conditional(interpolant, t, make_path(case["path"]).coefficients(t), x0, x1, z)
    assert point.x[0].tolist() == pytest.approx(case["xt"], rel=1e-12)
    assert float(point.time_score[0]) == pytest.approx(case["conditional_time_score"], rel=1e-5)
    assert point.data_score[0].tolist() == pytest.approx(case["conditional_data_score"], rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([*FIXED, "kmm_affine"]), st.sampled_from(["ddbi", "di"]), st.floats(0.05, 0.95),
    st.integers(0, 10**6),
)  # fmt: skip
def test_conditional_scores_are_derivatives_of_the_normal_log_density(name, kind, time, seed):
    path, interpolant = any_path(name), make_interpolant(kind)
    rng = np.random.default_rng(seed)
    x0, x1, z = (double(rng.normal(size=(1, 3))) for _ in range(3))

    def log_density(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        c = path.coefficients(t)
        v, _ = interpolant.variance(t, c)
        mean = c[1] * x1 if kind == "di" else c[0] * x0 + c[1] * x1
        return (-1.5 * torch.log(2 * math.pi * v) - (x - mean).square().sum() / (2 * v)).sum()

    t = double([time]).requires_grad_(True)
    point = conditional(interpolant, t.detach(), path.coefficients(t.detach()), x0, x1, z)
    x = point.x.detach().requires_grad_(True)
    by_x, by_t = torch.autograd.grad(log_density(x, t), (x, t))
    assert float(point.time_score.detach()) == pytest.approx(float(by_t), rel=1e-8, abs=1e-8)
    assert torch.allclose(point.data_score, by_x)


def test_sampled_path_variance_agrees_with_the_closed_form_signed_cross_moment_included():
    g = torch.Generator().manual_seed(0)
    x0 = torch.randn((20_000, 2), generator=g, dtype=torch.float64)
    x1 = 0.8 * x0 + 0.5 * torch.randn((20_000, 2), generator=g, dtype=torch.float64) + 0.3
    moments = Moments.of(x0, x1, paired=True)
    for path in (make_path("linear"), make_path("trigonometric")):
        found, se = monte_carlo_variance(path, x0, x1, Bridge(), g, n=32)
        assert abs(found - float(path_variance(path, moments, Bridge()))) < 5 * se
    assert moments.cross == pytest.approx(1.6, abs=0.05)


def test_the_marginal_variance_is_below_the_conditional_one_and_right_for_normals():
    g = torch.Generator().manual_seed(1)
    x0, x1 = (torch.randn((3000, 1), generator=g, dtype=torch.float64) for _ in range(2))
    x1 = x1 * 0.6 + 1.0
    bridge, path = Bridge(0.0, 0.5), make_path("trigonometric")
    found = marginal_variance(path, x0, x1, bridge, g, points=400, n=12)
    score = normal_time_score(path, double([1.0]), double([[0.36]]), bridge)
    t, w = nodes(200)
    c = path.coefficients(t)
    s = c[0] ** 2 + 0.36 * c[1] ** 2 + 0.5 * (c[0] ** 2 + c[1] ** 2)
    ds = 2 * c[0] * c[2] + 0.72 * c[1] * c[3]
    exact = float(((c[3] ** 2 / s + 0.5 * (ds / s) ** 2) * w).sum())
    assert found == pytest.approx(exact, rel=0.15)
    assert exact < float(path_variance(path, Moments.of(x0, x1), bridge))
    x = double([[0.3], [1.2]])
    assert marginal_time_scores(path, 0.4, x, x0, x1, bridge).tolist() == pytest.approx(
        score(x, double([0.4, 0.4])).tolist(),
        abs=0.2,  # three standard errors of this many pairs
    )


@pytest.mark.parametrize("case", oracle("gaussian_log_ratio")["cases"], ids=lambda c: f"d{c['d']}")
def test_time_scores_between_normals_are_the_oracle_s(case):
    d = case["d"]
    for point in case["marginal_time_scores"]:
        # Without noise: Direct is a x0 + b x1.
        score = normal_time_score(make_path(point["path"]), torch.full((d,), float(case["mu"])),
                                  case["s2"] * torch.eye(d), Direct())  # fmt: skip
        assert float(score(double([case["x"]]), double([point["t"]]))) == pytest.approx(point["time_score"], rel=1e-5)


def test_a_tabulated_path_goes_through_its_knots_with_their_slopes():
    t = np.array([0.0, 0.3, 1.0])
    path = TabulatedPath(t, t**2, 2 * t)
    found = path.coefficients(double([0.0, 0.15, 0.3, 0.8, 1.0]))
    assert found[1].tolist() == pytest.approx([0, 0.0225, 0.09, 0.64, 1])
    assert found[3].tolist() == pytest.approx([0, 0.3, 0.6, 1.6, 2])


def test_what_is_wrong_with_paths_and_moments_is_said():
    with pytest.raises(UsageError, match="trigonometric"):
        make_path("trigonometrik")
    with pytest.raises(UsageError, match="constraint"):
        make_path("kmm", constraint="hyperbolic")
    with pytest.raises(UsageError, match="component"):
        KumaraswamyPath(components=0)
    with pytest.raises(UsageError, match="shapes must lie"):
        KumaraswamyPath(components=1).set_shapes([1.0], [11.0], [1.0])
    with pytest.raises(UsageError, match="exceeds"):
        Moments(2, 1.0, 1.0, 3.0)
    with pytest.raises(UsageError, match="variances"):
        Bridge(-0.1)
    with pytest.raises(UsageError, match="increasing"):
        TabulatedPath([0, 0, 1], [0, 0, 1], [0, 0, 1])
    with pytest.raises(UsageError, match="epsilon above 0"):
        optimal_path(Moments(2, 2, 2), Bridge(0.01, 0.0))
    with pytest.raises(DataError, match="as many"):
        Moments.of(np.zeros((3, 2)), np.zeros((4, 2)), paired=True)
    t = double([0.5])
    with pytest.raises(UsageError, match="need noise"):
        conditional(Bridge(0, 0), t, make_path("linear").coefficients(t), *(double([[1.0]]) for _ in range(3)))
    t = double([[0.5]])
    with pytest.raises(UsageError, match="times"):
        conditional(Bridge(), t, make_path("linear").coefficients(t), *(double([[1.0]]) for _ in range(3)))
