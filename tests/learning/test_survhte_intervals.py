"""Intervals, recursive imputation, what base learners predict, learners against their definitions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.learning.survhte.base import surv
from assay.learning.survhte.causal_survival_forest import CausalSurvivalForest
from assay.learning.survhte.data import make_survhte
from assay.learning.survhte.honest_forest import HonestForest
from assay.learning.survhte.outcome import OutcomeImputation
from assay.learning.survhte.protocol import EffectEstimator
from assay.learning.survhte.recursive_imputation import RecursivelyImputed, drawn_beyond, imputed_times
from assay.learning.survhte.registry import family, get_method


def fitted(estimator, X, W, event, time):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, W, surv(event, time))


def planted(n: int, seed: int = 0):
    """Times that treatment raises by 2 where X1 > .5; 30 % censored. X, W, event, time, effect."""
    rng = np.random.default_rng(seed)
    X, W = rng.uniform(size=(n, 3)), rng.integers(0, 2, n)
    tau = 2.0 * (X[:, 0] > 0.5)
    T = rng.exponential(1, n) + 2 + tau * W
    C = rng.exponential(10, n) + 1
    return X, W, C >= T, np.minimum(T, C), tau


# -- forest -----------------------------------------------------------------------------------------------------------


def test_the_forests_variance_is_that_of_fitting_anew() -> None:
    points = np.array([[0.2, 0.5], [0.8, 0.5]])
    estimates, variances = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(200, 2))
        forest = HonestForest(100, 20).fit(X, X[:, 0] + rng.normal(size=200), np.ones(200), rng)
        estimates.append(forest.predict(points))
        variances.append(forest.variance(points))
    true, told = np.var(estimates, axis=0), np.mean(variances, axis=0)
    assert np.all(told > 0.5 * true)
    assert np.all(told < 2.5 * true)


def test_one_pair_of_trees_tells_no_variance() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    for trees in (1, 2, 3):
        assert np.isnan(HonestForest(trees, 5).fit(X, X[:, 0], np.ones(60), rng).variance(X)).all()
    constant = HonestForest(20, 5).fit(X, np.ones(60), np.ones(60), rng)
    np.testing.assert_allclose(constant.variance(X), 0, atol=1e-12)


@pytest.mark.parametrize(
    "estimator",
    [
        CausalSurvivalForest(trees=200, grid=40, nuisance_trees=20, horizon=5.0),
        RecursivelyImputed(imputations=2, rounds=1, survival_trees=10, trees=20, grid=30, horizon=5.0),
    ],
    ids=lambda e: type(e).__name__,
)
def test_intervals_hold_most_true_effects_and_widen_with_confidence(estimator) -> None:
    X, W, event, time, tau = planted(1400)
    train, test = slice(0, 1000), slice(1000, 1400)
    model = fitted(estimator, X[train], W[train], event[train], time[train])
    low, high = model.effect_interval(X[test])
    effects = model.effect(X[test])
    assert np.all((low <= effects) & (effects <= high))
    wider = model.effect_interval(X[test], alpha=0.01)
    assert np.all(wider[1] - wider[0] >= high - low)
    # Away from the jump; E min(T, 5) differs by 2 less what lies past 5.
    away = np.abs(X[test][:, 0] - 0.5) > 0.15
    exact = np.where(tau[test] > 0, 2 - (np.exp(-1) - np.exp(-3)), 0.0)
    covered = ((low <= exact) & (exact <= high))[away].mean()
    assert covered > 0.6


# -- recursive imputation ---------------------------------------------------------------------------------------------

rows = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=14, max_size=30)


@given(rows, st.integers(0, 5))
@settings(max_examples=8, deadline=None)
def test_imputed_times_keep_events_and_are_later_than_censorings(found: list[tuple[int, bool]], seed: int) -> None:
    time, event = np.array([t for t, _ in found], float), np.array([e for _, e in found])
    event[0] = True
    X = np.random.default_rng(seed).normal(size=(len(time), 2))
    sets = imputed_times(X, time, event, 2, 1, 4, 50, np.random.default_rng(seed))
    assert sets.shape == (2, len(time))
    np.testing.assert_array_equal(sets[:, event], np.tile(time[event], (2, 1)))
    assert np.all(sets >= time)
    assert sets.max() <= time.max()


def test_draws_follow_the_conditional_law() -> None:
    grid = np.array([1.0, 2.0, 3.0, 4.0])
    curves = np.tile([0.8, 0.5, 0.3, 0.1], (40_000, 1))
    found = drawn_beyond(grid, curves, np.full(40_000, 1.5), 9.0, np.random.default_rng(0))
    for time, chance in ((2.0, 0.3), (3.0, 0.2), (4.0, 0.2), (9.0, 0.1)):
        assert (found == time).mean() == pytest.approx(chance / 0.8, abs=0.01)


def test_recursive_imputation_finds_a_planted_effect_and_completes_the_right_mean() -> None:
    X, W, event, time, tau = planted(1000)
    model = RecursivelyImputed(imputations=2, rounds=1, survival_trees=10, trees=20, grid=30)
    assert isinstance(model, EffectEstimator)
    fitted(model, X[:800], W[:800], event[:800], time[:800])
    found = model.effect(X[800:])
    there = tau[800:] > 0
    assert found[there].mean() > 1.2
    assert abs(found[~there].mean()) < 0.5
    assert model.outcome_.shape == (800,)
    assert model.outcome_.mean() == pytest.approx((3 + tau * W).mean(), abs=0.25)
    short = RecursivelyImputed(imputations=1, rounds=1, survival_trees=2, trees=4, grid=10)
    twice = [fitted(short, X[:100], W[:100], event[:100], time[:100]).effect(X[800:]) for _ in range(2)]
    np.testing.assert_array_equal(*twice)


def test_recursive_imputation_is_listed_and_checks_its_numbers() -> None:
    assert family("causal_forest+mistr") == "MISTR"
    X, W, event, time, _ = planted(60)
    for wrong in ({"imputations": 0}, {"rounds": 0}, {"survival_trees": 3}):
        with pytest.raises(UsageError, match="a tree a data set"):
            get_method("causal_forest+mistr", **wrong).fit(X, W, surv(event, time))


# -- base learners ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["t_learner", "s_learner", "x_learner", "dr_learner", "double_ml", "causal_forest"])
def test_base_learners_predict_outcomes_and_propensities(learner: str) -> None:
    rng = np.random.default_rng(0)
    n = 300
    X = rng.normal(size=(n, 2))
    W = rng.binomial(1, 1 / (1 + np.exp(-2 * X[:, 1])))
    time = 20 + 3 * X[:, 0] + 4 * W + rng.normal(size=n)
    model = fitted(OutcomeImputation(learner, "rf", "margin", trees=20), X, W, np.ones(n, bool), time)
    outcome, e = model.predict_outcome(X, W), model.predict_propensity(X)
    if learner in ("double_ml", "causal_forest"):
        assert outcome is None
    else:
        assert outcome is not None
        assert np.abs(outcome - time).mean() < 1.5
        assert (model.predict_outcome(X, np.ones(n)) - model.predict_outcome(X, np.zeros(n))).mean() > 2
    if learner in ("t_learner", "s_learner"):
        assert e is None
    else:
        assert e is not None
        assert np.corrcoef(e, X[:, 1])[0, 1] > 0.8


def test_double_machine_learning_brings_intervals_and_the_others_none() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    W = rng.integers(0, 2, 500)
    time = 20 + X[:, 0] * W + rng.normal(size=500)
    seen = np.ones(500, bool)
    model = fitted(OutcomeImputation("double_ml"), X, W, seen, time)
    low, high = model.effect_interval(X)
    assert ((low <= X[:, 0]) & (X[:, 0] <= high)).mean() > 0.8
    assert fitted(OutcomeImputation("t_learner"), X, W, seen, time).effect_interval(X) is None


def test_one_without_overlap_says_how_many_rows_are_clipped() -> None:
    data = make_survhte("OBS-NoPos", "C", 600)
    model = CausalSurvivalForest(trees=4, grid=20, nuisance_trees=20)
    assert fitted(model, data.X, data.W, data.event, data.time).clipped_ > 0.2


# -- against plain definitions and another library --------------------------------------------------------------------


def uncensored(n: int = 900, seed: int = 0):
    """No censoring, propensity .3 to .7 along X2, effect 3 X1. X, W, time, effect."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 4))
    W = rng.binomial(1, 0.3 + 0.4 * X[:, 1])
    tau = 3 * X[:, 0]
    return X, W, 10 + 2 * X[:, 1] + tau * W + rng.normal(size=n), tau


def test_t_s_and_x_learners_are_their_definitions() -> None:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, W, y, _ = uncensored(300)
    everything = np.ones(300, bool)

    def forest() -> RandomForestRegressor:
        return RandomForestRegressor(10, random_state=42)

    arms = [forest().fit(X[w == W], y[w == W]) for w in (0, 1)]
    found = fitted(OutcomeImputation("t_learner", "rf", trees=10), X, W, everything, y).effect(X)
    np.testing.assert_allclose(found, arms[1].predict(X) - arms[0].predict(X))
    one = forest().fit(np.column_stack([X, 1 - W, W]), y)
    found = fitted(OutcomeImputation("s_learner", "rf", trees=10), X, W, everything, y).effect(X)
    ones, zeros = np.ones(300), np.zeros(300)
    plain = one.predict(np.column_stack([X, zeros, ones])) - one.predict(np.column_stack([X, ones, zeros]))
    np.testing.assert_allclose(found, plain)
    treated = forest().fit(X[W == 1], y[W == 1] - arms[0].predict(X[W == 1]))
    control = forest().fit(X[W == 0], arms[1].predict(X[W == 0]) - y[W == 0])
    e = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, W).predict_proba(X)[:, 1]
    found = fitted(OutcomeImputation("x_learner", "rf", trees=10), X, W, everything, y).effect(X)
    np.testing.assert_allclose(found, e * control.predict(X) + (1 - e) * treated.predict(X))


def test_without_censoring_the_causal_survival_forest_is_a_causal_forest() -> None:
    X, W, y, tau = uncensored()
    train, test = slice(0, 600), slice(600, 900)
    ours = fitted(CausalSurvivalForest(trees=100, grid=30), X[train], W[train], np.ones(600, bool), y[train])
    theirs = fitted(OutcomeImputation("causal_forest", trees=100), X[train], W[train], np.ones(600, bool), y[train])
    a, b = ours.effect(X[test]), theirs.effect(X[test])
    assert np.corrcoef(a, b)[0, 1] > 0.95
    errors = [np.sqrt(np.mean((found - tau[test]) ** 2)) for found in (a, b)]
    assert errors[0] < 1.4 * errors[1]
    assert errors[0] < 0.6 * tau[test].std()
