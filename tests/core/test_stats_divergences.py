"""Divergences against scipy and published closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy as scipy_entropy

from assay.core.errors import DataError
from assay.core.stats.divergences import distribution, entropy, generalised_js, js, kl, total_variation

weights = st.lists(st.floats(0, 10), min_size=3, max_size=3).filter(lambda w: sum(w) > 1e-6)


def test_published_closed_forms(oracle):
    data = oracle("adaem", "divergences")
    for case in data["cases"]:
        p, q, want = case["model_value_distributions"], case["question_value_distribution"], case["expected"]
        close = {"abs": data["tolerance"]}
        assert float(generalised_js(p, weights=case["alpha"])) == pytest.approx(want["GJS_nats"], **close)
        assert [float(js(q, m)) for m in p] == pytest.approx(want["JS_question_vs_model"], **close)
        assert [float(total_variation(q, m)) for m in p] == pytest.approx(want["TV_question_vs_model"], **close)


@given(weights, weights)
def test_definitions_agree_with_scipy(p, q):
    assert float(entropy(p)) == pytest.approx(scipy_entropy(p), abs=1e-9)
    assert float(kl(p, q)) == pytest.approx(scipy_entropy(p, q), rel=1e-6, abs=1e-9)
    assert float(js(p, q, base=2)) == pytest.approx(np.nan_to_num(jensenshannon(p, q, base=2)) ** 2, abs=1e-7)


@given(weights, weights)
def test_bounds_and_symmetry(p, q):
    assert float(js(p, q)) == pytest.approx(float(js(q, p)), abs=1e-12)
    assert -1e-12 <= float(js(p, q)) <= np.log(2) + 1e-12
    assert 0 <= float(total_variation(p, q)) <= 1 + 1e-12
    assert float(js(p, p)) == pytest.approx(0, abs=1e-12)
    assert float(generalised_js([p, q])) == pytest.approx(float(js(p, q)), abs=1e-9)
    # Pinsker
    assert float(kl(p, q)) >= 2 * float(total_variation(p, q)) ** 2 - 1e-9


def test_mass_where_there_is_none_is_infinite():
    assert np.isinf(kl([1, 1], [1, 0]))
    assert float(kl([1, 0], [1, 1])) == pytest.approx(np.log(2))


def test_rows_at_once():
    p = np.array([[1, 0], [1, 1]])
    assert entropy(p, base=2) == pytest.approx([0, 1])
    assert total_variation(p, [1, 0]) == pytest.approx([0, 0.5])


@pytest.mark.parametrize("bad", [[-1, 2], [0, 0], [np.nan, 1], 3.0])
def test_what_is_no_distribution_is_refused(bad):
    with pytest.raises(DataError):
        distribution(bad)


def test_different_outcomes_have_no_divergence():
    with pytest.raises(DataError, match="2 and 3 outcomes"):
        js([1, 1], [1, 1, 1])
