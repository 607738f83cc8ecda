"""Ranks, Friedman, critical differences, Borda against scipy, scikit-posthocs and published tables."""

from __future__ import annotations

import numpy as np
import pytest
import scikit_posthocs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.core.errors import DataError, UsageError
from assay.core.stats.ranks import (
    average_ranks,
    borda,
    cliques,
    critical_difference,
    family_ranks,
    friedman,
    nemenyi_distance,
    ranks,
    wilcoxon_holm,
)

NAN = float("nan")


def skilled(datasets: int = 20) -> np.ndarray:
    """Four methods: the second and third alike, the first better, the last worse."""
    return np.random.default_rng(3).normal(size=(datasets, 4)) * 0.5 + np.array([3.0, 1.0, 1.0, -1.0])


def test_the_published_comparison(oracle):
    (case,) = oracle("irregular", "ranking")["cases"]
    names = list(case["scores"])
    x = np.array([[NAN if v is None else v for v in case["scores"][n]] for n in names]).T
    assert dict(zip(names, average_ranks(x))) == pytest.approx(case["mean_rank_failures_last"])
    complete = x[~np.isnan(x).any(axis=1)]
    found = friedman(complete)
    assert found.statistic == pytest.approx(case["friedman_complete_datasets"]["statistic"], abs=1e-9)
    assert found.p == pytest.approx(case["friedman_complete_datasets"]["pvalue"], abs=1e-9)
    two = [names.index("rocket"), names.index("borf")]
    want = case["wilcoxon_rocket_vs_borf"]
    assert wilcoxon_holm(x[:, two])[0, 1] == pytest.approx(want["all_10_datasets"], abs=1e-9)
    assert wilcoxon_holm(complete[:, two])[0, 1] == pytest.approx(want["complete_datasets_only"], abs=1e-9)


def test_ranks_of_published_games(oracle):
    for case in oracle("lmgame", "game_ranks")["cases"]:
        assert ranks([case["scores"]])[0].tolist() == case["ranks_average_ties_1_is_best"]


def test_failures_share_the_worst_ranks_whichever_way_is_better():
    assert ranks([[0.5, NAN, 0.9, NAN]]).tolist() == [[2, 3.5, 1, 3.5]]
    assert ranks([[0.5, NAN, 0.9, NAN]], higher_is_better=False).tolist() == [[1, 3.5, 2, 3.5]]
    assert ranks([[NAN, NAN]]).tolist() == [[1.5, 1.5]]


tables = st.integers(2, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 4), min_size=k, max_size=k), min_size=2, max_size=8)
)


@given(tables)
@settings(deadline=None)
def test_friedman_equals_scipy_with_ties(table):
    x = np.array(table, float)
    found = friedman(x)
    if x.shape[1] < 3:
        return
    with np.errstate(all="ignore"):
        want = stats.friedmanchisquare(*x.T)
    if np.isnan(want.statistic):
        assert np.isnan(found.statistic)
    else:
        assert (found.statistic, found.p) == pytest.approx((want.statistic, want.pvalue), abs=1e-9)


@given(tables)
@settings(deadline=None)
def test_ranks_and_borda_keep_their_sums(table):
    n, k = np.array(table).shape
    assert ranks(table).sum(axis=1) == pytest.approx(np.full(n, k * (k + 1) / 2))
    assert borda(table).sum() == pytest.approx(n * k * (k - 1) / 2)


def test_borda_counts_the_beaten():
    assert borda([[3, 2, 1], [1, 1, NAN]]).tolist() == [2 + 1.5, 1 + 1.5, 0]


def test_families_enter_with_their_best_member():
    names, found = family_ranks([[1, 9, 5, 4], [2, NAN, 1, NAN]], ["a", "a", "b", "c"])
    assert names == ["a", "b", "c"]
    assert found.tolist() == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(UsageError, match="2 methods and 1 family"):
        family_ranks([[1, 2]], ["a"])


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_nemenyi_distance_has_demsars_constants(k, q):
    assert nemenyi_distance(k, 14) == pytest.approx(q * np.sqrt(k * (k + 1) / (6 * 14)), rel=1e-3)


def test_nemenyi_cliques_agree_with_scikit_posthocs():
    x = skilled()
    p = scikit_posthocs.posthoc_nemenyi_friedman(x).to_numpy()
    distance = nemenyi_distance(4, 20)
    mean = average_ranks(x)
    assert np.array_equal(np.abs(np.subtract.outer(mean, mean)) < distance, p >= 0.05)


def test_wilcoxon_holm_agrees_with_scikit_posthocs():
    x = skilled()
    long = [list(column) for column in x.T]
    want = scikit_posthocs.posthoc_wilcoxon(long, p_adjust="holm").to_numpy()
    assert wilcoxon_holm(x) == pytest.approx(want)


@pytest.mark.parametrize("method", ["nemenyi", "wilcoxon-holm"])
def test_critical_difference_groups_what_is_alike(method):
    found = critical_difference(skilled(40), ["best", "one", "two", "worst"], method=method)
    assert found.names[0] == "best"
    assert found.names[3] == "worst"
    assert {frozenset(c) for c in found.cliques} == {frozenset(("one", "two"))}
    assert list(found.ranks) == sorted(found.ranks)
    assert (found.distance is None) == (method == "wilcoxon-holm")


def test_nothing_is_told_apart_where_friedman_finds_nothing():
    x = np.random.default_rng(0).normal(size=(6, 3))
    found = critical_difference(x, ["a", "b", "c"])
    assert found.friedman.p > 0.05
    assert [set(c) for c in found.cliques] == [{"a", "b", "c"}]


def test_cliques_are_maximal_runs():
    same = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]], bool)
    assert cliques(same) == [(0, 2), (1, 3)]


def test_bad_tables_are_refused():
    with pytest.raises(DataError, match="shape"):
        ranks([1.0, 2.0])
    with pytest.raises(DataError, match="infinite"):
        ranks([[1.0, np.inf]])
    with pytest.raises(DataError, match="at least 2 data sets"):
        friedman([[1.0, 2.0]])
    with pytest.raises(UsageError, match="nemenyi or wilcoxon-holm"):
        critical_difference(skilled(), list("abcd"), method="tukey")
    with pytest.raises(UsageError, match="4 methods and 2 names"):
        critical_difference(skilled(), ["a", "b"])
