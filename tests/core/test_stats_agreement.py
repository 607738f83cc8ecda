"""Agreement against scikit-learn, statsmodels, krippendorff and published reliability tables."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import fleiss_kappa as sm_fleiss

from assay.core.errors import DataError, UsageError
from assay.core.stats.agreement import (
    bootstrap_agreement,
    cohen_kappa,
    cronbach_alpha,
    fleiss_kappa,
    icc,
    krippendorff_alpha,
)


def same(found: float, want: float | None, tolerance: float = 1e-12) -> None:
    if want is None or np.isnan(want):
        assert np.isnan(found)
    else:
        assert found == pytest.approx(want, abs=tolerance)


def test_cohen_matches_published_pairs(oracle):
    for case in oracle("seekbench", "cohen_kappa")["cases"]:
        same(cohen_kappa(case["rater_1"], case["rater_2"]), case["expected"])
    for case in oracle("acadreason", "judge_agreement")["cases"]:
        same(cohen_kappa(case["a"], case["b"]), case["kappa"])


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=30))
@settings(deadline=None, max_examples=60)
def test_weighted_cohen_equals_scikit_learn(pairs):
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    if len({*a, *b}) < 2:
        return
    for weights in (None, "linear", "quadratic"):
        same(cohen_kappa(a, b, weights=weights), cohen_kappa_score(a, b, weights=weights), 1e-9)


@given(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=2, max_size=20))
@settings(deadline=None, max_examples=60)
def test_fleiss_equals_statsmodels(ratings):
    counts = np.array([np.bincount(row, minlength=3) for row in ratings])
    found = fleiss_kappa(counts)
    if len({x for row in ratings for x in row}) < 2:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(sm_fleiss(counts))


cells = st.one_of(st.none(), st.integers(1, 5))


@given(st.lists(st.lists(cells, min_size=6, max_size=6), min_size=2, max_size=5))
@settings(deadline=None, max_examples=80)
def test_krippendorff_equals_the_reference_package(rows):
    data = np.array([[np.nan if x is None else x for x in row] for row in rows], float)
    paired = data[:, (~np.isnan(data)).sum(axis=0) > 1]
    if paired.size == 0 or len(np.unique(paired[~np.isnan(paired)])) < 2:
        assert np.isnan(krippendorff_alpha(rows))
        return
    for level in ("nominal", "ordinal", "interval", "ratio"):
        want = krippendorff.alpha(reliability_data=data, level_of_measurement=level)
        assert krippendorff_alpha(rows, level=level) == pytest.approx(want, abs=1e-9)


def test_krippendorff_takes_words_and_refuses_to_measure_them():
    rows = [["yes", "no", None, "yes"], ["yes", "no", "no", "no"]]
    assert -1 < krippendorff_alpha(rows) < 1
    with pytest.raises(UsageError, match="needs numbers"):
        krippendorff_alpha(rows, level="interval")


def test_reliability_matches_published_tables(oracle):
    data = oracle("adaem", "reliability")
    for case in data["cases"]:
        x = case["scores_models_by_folds"]
        assert cronbach_alpha(x) == pytest.approx(case["expected"]["cronbach_alpha"], abs=data["tolerance"])
        found = icc(x)
        for form, want in case["expected"]["ICC"].items():
            assert found[form].value == pytest.approx(want, abs=data["tolerance"])


def test_icc_of_shrout_and_fleiss():
    # Their table 2: six targets, four judges; printed ICC(1,1) .17, ICC(2,1) .29, ICC(3,1) .71, ICC(1,4) .44 ...
    x = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    found = icc(x)
    printed = {"1,1": 0.17, "A,1": 0.29, "C,1": 0.71, "1,k": 0.44, "A,k": 0.62, "C,k": 0.91}
    assert {k: round(found[f"ICC({k})"].value, 2) for k in printed} == printed
    # Intervals as the R package psych prints them for the same table.
    assert (found["ICC(1,1)"].low, found["ICC(1,1)"].high) == pytest.approx((-0.133, 0.723), abs=2e-3)
    assert (found["ICC(A,1)"].low, found["ICC(A,1)"].high) == pytest.approx((0.019, 0.761), abs=2e-3)
    assert (found["ICC(C,1)"].low, found["ICC(C,1)"].high) == pytest.approx((0.342, 0.946), abs=2e-3)


def test_perfect_agreement_is_one():
    assert cohen_kappa("abcab", "abcab") == 1
    assert krippendorff_alpha([[1, 2, 3], [1, 2, 3]], level="interval") == 1
    assert fleiss_kappa([[3, 0], [0, 3]]) == 1


def test_an_interval_by_resampling_items():
    r = np.random.default_rng(1)
    a = r.integers(0, 2, 80)
    b = np.where(r.random(80) < 0.8, a, 1 - a)
    low, high = bootstrap_agreement(lambda at: cohen_kappa(a[at], b[at]), 80, resamples=300, rng=r)
    assert low < cohen_kappa(a, b) < high


@pytest.mark.parametrize(
    "call",
    [
        lambda: cohen_kappa("ab", "a"),
        lambda: fleiss_kappa([[1, 2], [3, 1]]),
        lambda: fleiss_kappa([[0.5, 1.5]]),
        lambda: krippendorff_alpha([[1, 2], [1]]),
        lambda: icc([[1.0, np.nan], [2.0, 1.0]]),
        lambda: cronbach_alpha([[1.0], [2.0]]),
        lambda: krippendorff_alpha([[-1, 2], [1, 2]], level="ratio"),
    ],
)
def test_bad_tables_are_refused(call):
    with pytest.raises(DataError):
        call()


def test_nothing_to_agree_on_is_nan():
    assert np.isnan(cohen_kappa([], []))
    assert np.isnan(krippendorff_alpha([[1, None], [None, 2]]))
    assert np.isnan(cronbach_alpha([[1.0, 2.0], [1.0, 2.0]]))
