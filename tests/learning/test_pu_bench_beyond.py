"""Conformal thresholds, calibration with and without the truth, shifted priors, recommendation."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from assay.core import run as core
from assay.core.errors import UsageError
from assay.core.results import Runs
from assay.learning.pu_bench import (
    ConformalPU,
    Recommender,
    at_another_prior,
    calibration_scores,
    conformal_p_values,
    conformal_threshold,
    dataset_statistics,
    make_estimator,
    make_pu_dataset,
    pu_brier_score,
    shifted_tests,
)
from assay.learning.pu_bench.analyses import family_of
from assay.learning.pu_bench.benchmark import PUBench
from assay.learning.pu_bench.data import gaussian_mixture
from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.recommending import STATISTICS, recommend


def test_a_threshold_is_the_order_statistic_that_the_promise_asks_for():
    scores = np.arange(1.0, 30.0)  # 29 of them: 0.1 * 30 = 3
    assert conformal_threshold(scores[::-1], 0.1) == 3.0
    assert conformal_threshold(scores, 0.03) == -np.inf  # 0.03 * 30 < 1
    assert conformal_threshold(scores, 0.999) == 29.0


def test_a_fresh_positive_is_missed_as_often_as_promised_and_hardly_less():
    rng = np.random.default_rng(0)
    missed = [rng.normal() < conformal_threshold(rng.normal(size=19), 0.2) for _ in range(4000)]
    # Exactly 4 of 20 for scores without ties; three standard errors are 0.019.
    assert np.mean(missed) == pytest.approx(0.2, abs=0.019)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(-6, 6), st.floats(0.01, 0.99))
def test_a_row_is_below_the_threshold_only_where_its_p_value_is_at_most_alpha(scores, fresh, alpha):
    if fresh < conformal_threshold(scores, alpha):
        assert conformal_p_values(scores, [fresh])[0] <= alpha + 1e-12
    value = conformal_p_values(scores, [fresh])[0]
    assert 1 / (len(scores) + 1) <= value <= 1


@pytest.mark.parametrize("scenario", ["case_control", "single"])
def test_a_conformal_classifier_keeps_its_promise_on_test_rows(scenario):
    misses = []
    for seed in range(20):
        x, y, _ = gaussian_mixture(700, np.random.default_rng(seed), dimensions=4)
        x_test, y_test, _ = gaussian_mixture(2000, np.random.default_rng(100 + seed), dimensions=4)
        pu = make_pu_dataset(x, y, c=0.4, scenario=scenario, random_state=seed)
        model = ConformalPU(estimator=LogisticRegression(), alpha=0.1, random_state=seed)
        model.fit(pu.X, pu.s, source_index=pu.source_index)
        positive = model.predict(x_test) == 1
        assert (positive == (model._scored(x_test) >= model.threshold_)).all()
        assert (model.p_values(x_test)[~positive] <= 0.1 + 1e-12).all()
        misses.append((~positive[y_test == 1]).mean())
    assert np.mean(misses) < 0.1 + 3 * np.std(misses) / np.sqrt(len(misses))
    assert np.mean(misses) > 0.03  # and does not call everything positive


def test_rows_set_aside_and_their_copies_are_kept_from_the_model():
    class Spy(LogisticRegression):
        def fit(self, X, s, *, source_index):
            self.seen_ = np.asarray(source_index)
            return super().fit(X, s)

    x, y, _ = gaussian_mixture(200, np.random.default_rng(0), dimensions=2)
    pu = make_pu_dataset(x, y, c=0.5)
    model = ConformalPU(estimator=Spy(), holdout=0.5).fit(pu.X, pu.s, source_index=pu.source_index)
    held = np.setdiff1d(pu.source_index, model.estimator_.seen_)
    assert len(held) == len(model.held_scores_) == round(0.5 * pu.n_labeled)
    assert set(held) <= set(pu.source_index[pu.s == 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conformal_threshold([], 0.1), "at least one finite number"),
        (lambda: conformal_threshold([1.0, np.nan], 0.1), "at least one finite number"),
        (lambda: conformal_threshold([1.0], 1.0), "alpha must lie strictly between"),
        (lambda: ConformalPU().fit([[0.0], [1.0]], [1, -1]), "needs an estimator"),
        (lambda: ConformalPU(estimator=1).fit([[0.0], [1.0]], [1, -1]), "two labelled positives"),
        (lambda: ConformalPU(estimator=1, holdout=1.0).fit([[0.0], [1.0]], [1, -1]), "holdout must lie"),
        (lambda: calibration_scores([1], [1.1]), r"in \[0, 1\]"),
        (lambda: calibration_scores([1, 0], [0.5]), "2 rows and probability 1"),
        (lambda: calibration_scores([1], [0.5], bins=0), "bins must be at least 1"),
        (lambda: pu_brier_score([1, -1], [0.5, 0.5], 0.0), "prior must lie strictly"),
        (lambda: at_another_prior([0.5], 0.5, 1.0), "target must lie strictly"),
    ],
)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises(BadInput, match=message):
        call()


def test_calibration_of_a_case_done_by_hand():
    # Bins of a half: (0.2, 0.4 | 0 and 1) and (1.0, 0.6 | 1 and 0).
    found = calibration_scores([0, 1, 1, 0], [0.2, 0.4, 1.0, 0.6], bins=2)
    assert found["brier"] == pytest.approx((0.04 + 0.36 + 0 + 0.36) / 4)
    assert found["ece"] == pytest.approx((abs(1 - 0.6) + abs(1 - 1.6)) / 4)
    assert found["log_loss"] == pytest.approx(-np.log([0.8, 0.4, 1 - 1e-7, 0.4]).mean(), rel=1e-6)


def test_the_brier_score_without_classes_estimates_the_one_with_them():
    x, y, p = gaussian_mixture(60_000, np.random.default_rng(1))
    pu = make_pu_dataset(x, y, c=0.5, random_state=0)
    told = p[pu.source_index]
    assert pu_brier_score(pu.s, told, pu.prior_u) == pytest.approx(calibration_scores(y, p)["brier"], abs=0.01)
    assert np.isnan(pu_brier_score([1, 1], [0.5, 0.5], 0.5))


def test_probabilities_at_another_prior_are_those_of_the_other_world():
    x, y, p = gaussian_mixture(40_000, np.random.default_rng(2), prior=0.4)
    direction = np.full(10, 1 / np.sqrt(10))
    truth = 1 / (1 + np.exp(-(2.0 * (x @ direction) + np.log(0.1 / 0.9))))
    moved = at_another_prior(p, 0.4, 0.1)
    assert np.allclose(moved, truth, atol=1e-4)
    assert np.allclose(at_another_prior(moved, 0.1, 0.4), p, atol=1e-9)
    rows = dict(shifted_tests(y, [0.1, 0.4, 0.8]))
    for share, part in rows.items():
        assert y[part].mean() == pytest.approx(share, abs=1e-3)
        assert len(np.unique(part)) == len(part)
    # Where positives are rarer the old probabilities are off, the moved ones right.
    part = rows[0.1]
    assert calibration_scores(y[part], p[part])["ece"] > 0.1
    assert calibration_scores(y[part], moved[part])["ece"] < 0.02


def test_test_rows_are_thinned_where_asked_and_calibration_is_measured():
    found = {}
    for share in (None, 0.1):
        bench = PUBench(datasets="gaussian", configurations="product", c="0.5", test_prevalence=share)
        result = core.run(bench, make_estimator("puet", n_estimators=5), loading="assay.systems.loading", attempts=1,
            engine=core.Engine(workers=0))  # fmt: skip
        found[share] = result.records.row(0, named=True)
    assert found[0.1]["output"] != found[None]["output"]
    assert found[0.1]["brier"] is not None
    assert 0 <= found[None]["ece"] <= 1
    assert '"n_test": 1000' in found[None]["output"] or '"n_test":1000' in found[None]["output"]
    with pytest.raises(UsageError, match="test_prevalence=1"):
        PUBench(test_prevalence=1.0)


def test_statistics_tell_bias_from_chance_and_do_not_see_classes():
    x, y, _ = gaussian_mixture(1500, np.random.default_rng(0), dimensions=3)
    fair, biased = (make_pu_dataset(x, y, c=0.2, strategy=name) for name in ("scar", "sar_lbe_a"))
    one, two = dataset_statistics(fair.X, fair.s), dataset_statistics(biased.X, biased.s, "text")
    assert list(one) == list(STATISTICS)
    assert two["distance"] > 1.3 * one["distance"]
    assert one["log_labelled"] == pytest.approx(np.log(fair.n_labeled))
    assert (one["text"], two["text"]) == (0, 1)
    constant = np.ones((6, 2))
    assert dataset_statistics(constant, [1, 1, -1, -1, -1, -1])["spread"] == 0.0


def test_a_recommender_takes_what_was_best_nearby_and_failures_count_nothing():
    statistics = np.zeros((4, len(STATISTICS)))
    statistics[:, 0] = [1, 1.1, 9, 9.1]
    scores = np.array([[0.9, 0.6], [0.8, 0.7], [np.nan, 0.6], [0.9, 0.6]])
    adviser = Recommender(["one", "two"], statistics, scores, neighbours=2)
    near, far = np.zeros((2, len(STATISTICS)))
    near[0], far[0] = 1, 9
    assert adviser.expected(near) == pytest.approx([0.85, 0.65])
    assert adviser.expected(far) == pytest.approx([0.45, 0.6])


def test_regret_is_measured_on_data_sets_left_out():
    runs = []
    nets = {"net": "linear", "epochs": 2}
    # The oracle is the best everywhere: were it not left out, it would be recommended, and regret would be nothing.
    for name, options in (("puet", {"n_estimators": 5}), ("nnpu", nets), ("pn", nets)):
        bench = PUBench(datasets="gaussian,breast_cancer", configurations="product", c="0.2,0.5")
        runs.append(
            core.run(bench, make_estimator(name, **options), loading="assay.systems.loading", attempts=1,
                     engine=core.Engine(workers=0), tags={"method": name})
        )  # fmt: skip
    assert [family_of(run.system) for run in runs] == ["risk", "risk", "oracle"]
    table = recommend(Runs(runs), neighbours=2)
    frame = table.frame
    assert isinstance(frame, pl.DataFrame)
    assert frame["cells"].to_list() == [2, 2]
    assert (frame["regret"] >= 0).all()
    assert (frame["regret_any"] >= 0).all()
    pu = make_pu_dataset(*gaussian_mixture(300, np.random.default_rng(5))[:2], c=0.3)
    advice = Recommender.from_runs(Runs(runs)).recommend(pu.X, pu.s)
    assert len(advice) == 2
    assert advice[0][1] >= advice[1][1]
    with pytest.raises(UsageError, match="at least two methods"):
        recommend(Runs(runs[:1]))
