"""Estimates of the class prior beside each other, the truth and plain readings."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.learning.pu_bench import BBEPrior, KernelMeanPrior, TIcEPrior, make_pu_dataset
from assay.learning.pu_bench.data import gaussian_mixture
from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.mixture import _Slope, prior_of_frequency
from assay.learning.pu_bench.prior import ESTIMATORS, prior_estimator, resolve_prior


def world(share, scenario="case_control", n=1200, seed=0, distance=5.0):
    x, y, _ = gaussian_mixture(n, np.random.default_rng(seed), distance=distance, prior=share, dimensions=3)
    return make_pu_dataset(x, y, c=0.4, scenario=scenario, random_state=seed)


# Well parted classes; TIcE, an upper bound, has the widest margin.
@pytest.mark.parametrize("scenario", ["case_control", "single"])
@pytest.mark.parametrize(("name", "margin"), [("bbe", 0.05), ("km2", 0.08), ("tice", 0.22)])
def test_every_estimate_follows_the_truth(name, margin, scenario):
    found = []
    for share in (0.2, 0.5, 0.8):
        pu = world(share, scenario)
        model = prior_estimator(name, 3)
        value = model.fit(pu.X, pu.s).prior_
        assert value == pytest.approx(pu.prior_u, abs=margin)
        assert value == prior_estimator(name, 3).fit(pu.X, pu.s).prior_
        found.append(value)
    assert found == sorted(found)


def test_the_label_frequency_of_tice_is_that_of_pure_subdomains():
    # Two columns: where the first is 1 all rows are positive, and 3 in 10 of them are labelled.
    rng = np.random.default_rng(0)
    x = np.column_stack([np.repeat([0.0, 1.0], 2000), rng.random(4000)])
    s = np.where((x[:, 0] == 1) & (rng.random(4000) < 0.3), 1, -1)
    model = TIcEPrior().fit(x, s)
    # The bound lies below by its slack, sqrt(c (1 - c) (1 - delta) / (delta n)).
    slack = np.sqrt(0.3 * 0.7 * (1 - 0.11) / (0.11 * 1000))
    assert 0.3 - 2 * slack < model.c_ < 0.33
    assert model.prior_ == pytest.approx(prior_of_frequency(model.c_, int((s == 1).sum()), int((s == -1).sum())))


@settings(deadline=None, max_examples=30)
@given(st.floats(0.05, 1.0), st.integers(1, 500), st.floats(0.1, 0.9))
def test_the_prior_of_a_frequency_inverts_the_counts_of_both_scenarios(c, n_labelled, prior):
    # positives = n_labelled / c, of which n_labelled (1 - c) / c are unlabelled
    n_unlabelled = n_labelled * (1 - c) / c / prior
    if n_unlabelled > 0:
        assert prior_of_frequency(c, n_labelled, n_unlabelled) == pytest.approx(prior)


def test_the_slope_along_the_ray_is_the_derivative_of_a_distance_that_a_plain_solver_finds():
    from scipy.optimize import minimize

    rng = np.random.default_rng(1)
    x = rng.normal(size=(14, 2))
    kernel = np.exp(-((x[:, None] - x[None]) ** 2).sum(2) / 2)
    u, p = np.r_[np.full(9, 1 / 9), np.zeros(5)], np.r_[np.zeros(9), np.full(5, 1 / 5)]

    def distance(at):
        goal = at * u + (1 - at) * p

        def squared(w):
            d = goal - w
            return d @ kernel @ d, -2 * kernel @ d

        best = minimize(
            squared, np.full(14, 1 / 14), jac=True, method="SLSQP", bounds=[(0, 1)] * 14,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(14)},
            options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
        return np.sqrt(max(best.fun, 0.0))

    slope = _Slope(kernel, u, p)
    values = [slope(at) for at in (1.0, 1.5, 2.0, 3.0, 5.0)]
    assert values[0] == pytest.approx(0.0, abs=1e-3)
    assert values == sorted(values)
    for at in (3.0, 5.0):
        assert slope(at) == pytest.approx((distance(at + 0.01) - distance(at - 0.01)) / 0.02, abs=0.01)


def test_copies_share_a_fold_and_columns_without_spread_do_no_harm():
    pu = world(0.5)
    flat = np.column_stack([pu.X, np.ones(len(pu.X))])
    for model in (TIcEPrior(), BBEPrior()):
        assert 0 < model.fit(flat, pu.s, pu.source_index).prior_ < 1
    assert 0 < KernelMeanPrior(rows=60).fit(flat, pu.s).prior_ < 1
    pictures = flat.reshape(len(flat), 1, 2, 2)
    assert TIcEPrior().fit(pictures, pu.s).prior_ == TIcEPrior().fit(flat, pu.s).prior_


def test_what_cannot_be_estimated_is_refused_with_the_argument_named():
    pu = world(0.5, n=60)
    for model in (TIcEPrior(), KernelMeanPrior()):
        with pytest.raises(BadInput, match="fewer than 2"):
            model.fit(pu.X, np.full(len(pu.X), -1))
        with pytest.raises(BadInput, match="NaN"):
            model.fit(np.full_like(pu.X, np.nan), pu.s)
        with pytest.raises(BadInput, match="entries for"):
            model.fit(pu.X, pu.s[:-1])
    with pytest.raises(BadInput, match="folds"):
        TIcEPrior(folds=1).fit(pu.X, pu.s)
    with pytest.raises(BadInput, match=f"one of {', '.join(ESTIMATORS)}.*'km1'"):
        resolve_prior("km1", pu.X, pu.s, None, 0)


@pytest.mark.slow
def test_the_sweep_writes_estimates_and_what_a_wrong_prior_costs(tmp_path):
    import polars as pl

    from assay.learning.pu_bench.recipes import priors

    priors(tmp_path, rows=600, seeds=1)
    estimates = pl.read_csv(tmp_path / "priors.csv")
    assert set(estimates["estimator"]) == set(ESTIMATORS)
    by = dict(pl.read_csv(tmp_path / "sensitivity.csv").select("told less true", "accuracy").iter_rows())
    assert by[0.0] > max(by[-0.3], by[0.3])
    assert "| bbe |" in (tmp_path / "report.md").read_text()
