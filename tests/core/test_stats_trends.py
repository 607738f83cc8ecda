"""Trend tests and robust aggregates against scipy, statsmodels, worked examples and published scores."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import Table

from assay.core.errors import DataError, UsageError
from assay.core.stats.trends import (
    cochran_armitage,
    interquartile_mean,
    jonckheere,
    optimality_gap,
    page,
    probability_of_improvement,
    sign_test,
    stratified_bootstrap,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(9)


def test_jonckheere_statistic_counts_ordered_pairs():
    groups = [[1, 3], [2, 3, 5], [4]]
    want = 0.0
    for a, b in itertools.combinations(groups, 2):
        want += sum((y > x) + 0.5 * (y == x) for x in a for y in b)
    assert jonckheere(groups).statistic == want


def test_jonckheere_of_two_groups_is_mann_whitney():
    r = rng()
    a, b = r.integers(0, 6, 12), r.integers(1, 7, 15)
    found = jonckheere([a, b])
    want = stats.mannwhitneyu(b, a, use_continuity=False, method="asymptotic")
    assert found.statistic == want.statistic
    assert found.p == pytest.approx(want.pvalue)


def test_jonckheere_variance_is_that_of_permutations():
    groups = [[1, 2, 2, 5], [2, 3, 3], [3, 4, 6, 6, 7]]
    found = jonckheere(groups, alternative="increasing")
    permuted = jonckheere(groups, alternative="increasing", resamples=4000, rng=rng())
    assert permuted.p == pytest.approx(found.p, abs=0.015)
    assert permuted.method == "permutation"
    assert jonckheere(groups, alternative="decreasing").p == pytest.approx(1 - found.p)


def test_jonckheere_holds_its_level():
    r = rng()
    p = [jonckheere([r.integers(0, 4, 8) for _ in range(3)]).p for _ in range(600)]
    assert 0.03 <= np.mean(np.array(p) < 0.05) <= 0.07


def test_jonckheere_of_constants_finds_nothing():
    assert jonckheere([[1, 1], [1, 1]]).p == 1.0
    with pytest.raises(DataError, match="at least two groups"):
        jonckheere([[1, 2]])
    with pytest.raises(UsageError, match="rng="):
        jonckheere([[1], [2]], resamples=10)


def test_cochran_armitage_is_the_linear_by_linear_test():
    successes, totals = np.array([3, 8, 14, 20]), np.array([40, 42, 38, 41])
    found = cochran_armitage(successes, totals)
    table = np.stack([totals - successes, successes], axis=1)
    want = Table(table, shift_zeros=False).test_ordinal_association(row_scores=np.arange(4), col_scores=np.arange(2))
    n = totals.sum()  # statsmodels conditions on the margins: the variance has n - 1 for n
    assert found.z * np.sqrt((n - 1) / n) == pytest.approx(want.zscore)
    assert cochran_armitage(successes, totals, alternative="increasing").p == pytest.approx(found.p / 2)
    moved = cochran_armitage(successes, totals, scores=[10, 20, 30, 40])
    assert moved.z == pytest.approx(found.z)


def test_cochran_armitage_refuses_impossible_counts():
    with pytest.raises(DataError, match="successes <= totals"):
        cochran_armitage([5, 1], [4, 4])
    assert cochran_armitage([0, 0], [4, 4]).p == 1.0


def test_page_matches_scipy_in_both_directions():
    x = rng().normal(size=(8, 4)) + np.arange(4) * 0.8
    up = page(x)
    want = stats.page_trend_test(x)
    assert (up.statistic, up.p) == (want.statistic, pytest.approx(want.pvalue))
    assert page(-x, alternative="decreasing").p == pytest.approx(up.p)
    assert page(x, alternative="decreasing").p > 0.9
    with pytest.raises(UsageError, match="direction"):
        page(x, alternative="two-sided")
    with pytest.raises(DataError, match="2 rows by 3"):
        page([[1, 2], [2, 3]])


def test_aggregates_of_published_scores(oracle):
    data = oracle("minto", "metrics")
    scores = np.array(data["scores_runs_by_tasks"])
    assert interquartile_mean(scores) == pytest.approx(data["iqm"], abs=data["tolerance_abs"])
    assert optimality_gap(scores) == pytest.approx(data["optimality_gap_gamma1"], abs=data["tolerance_abs"])


def test_interquartile_mean_by_hand():
    assert interquartile_mean([100, 1, 2, 3, 4, 5, 6, -50]) == pytest.approx(3.5)
    with pytest.raises(DataError):
        interquartile_mean([])


def test_probability_of_improvement_is_mann_whitney_by_task():
    a, b = rng().normal(size=(5, 3)), rng().normal(size=(4, 3)) + 0.1
    want = np.mean([stats.mannwhitneyu(a[:, t], b[:, t]).statistic / 20 for t in range(3)])
    assert probability_of_improvement(a, b) == pytest.approx(want)
    assert probability_of_improvement(a, a) == pytest.approx(0.5)


def test_stratified_bootstrap_draws_within_tasks():
    x = np.array([[0.0, 100.0], [1.0, 101.0], [2.0, 102.0]])
    seen = []
    stratified_bootstrap(lambda s: seen.append(s.copy()) or s.mean(), x, resamples=50, rng=rng())
    assert all(s.shape == x.shape and s[:, 0].max() <= 2 and s[:, 1].min() >= 100 for s in seen)
    low, high = stratified_bootstrap(interquartile_mean, rng().normal(size=(10, 6)), rng=rng())
    assert low < high
    with pytest.raises(DataError, match="at least 2 runs"):
        stratified_bootstrap(np.mean, [[1.0, 2.0]], rng=rng())


def test_sign_test_is_binomial():
    assert sign_test(9, 2) == pytest.approx(stats.binomtest(9, 11).pvalue)
    assert sign_test(9, 2, alternative="increasing") == pytest.approx(
        stats.binomtest(9, 11, alternative="greater").pvalue
    )
    assert sign_test(9, 2, alternative="decreasing") == pytest.approx(stats.binomtest(9, 11, alternative="less").pvalue)
    assert sign_test(0, 0) == 1.0
