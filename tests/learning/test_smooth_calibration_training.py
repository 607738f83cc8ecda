"""Trainers, traces, adapters, benchmark, analyses: exact histories, inequalities, other libraries' own predictions."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import assay
from assay.core.benchmark import Outcome
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.learning import smooth_calibration as sc
from assay.learning.smooth_calibration import analyses, bounds, methods, reproduce
from assay.learning.smooth_calibration.inputs import expit
from assay.learning.smooth_calibration.network import smoothness

TRAINERS = {
    "gbt": sc.GradientBoostingCalibrated(n_stages=60, random_state=0),
    "gbt_deep": sc.GradientBoostingCalibrated(n_stages=60, max_depth=None, random_state=0),
    "kernel": sc.KernelBoostingClassifier(n_stages=60),
    "laplace": sc.KernelBoostingClassifier(n_stages=60, kernel="laplacian", learning_rate=4.0),
    "nystroem": sc.KernelBoostingClassifier(n_stages=60, nystroem_above=100, n_components=40, random_state=0),
    "network": sc.TwoLayerNetClassifier(n_units=20, n_stages=100, random_state=0),
    "network_small": sc.TwoLayerNetClassifier(n_units=4, n_stages=100, beta=0.0, random_state=0),
}


@pytest.fixture(scope="module")
def parts():
    return sc.split("xor", 200, np.random.default_rng(0))


@pytest.mark.parametrize("name", TRAINERS)
def test_training_keeps_every_inequality_of_the_analysis(name, parts):
    model = clone(TRAINERS[name]).fit(parts.x_train, parts.y_train)
    history = model.history_
    assert history.loss[0] == pytest.approx(np.log(2))
    assert history.grad_l1[0] == pytest.approx(0.5)
    for _, g in sc.staged_logits(model, parts.x_train):
        assert sc.smooth_ce_logit(parts.y_train, g) <= np.abs(expit(g) - parts.y_train).mean() + 1e-9
    assert np.mean(history.grad_l1) <= model.training_bound_ < np.inf
    assert history.least_margin > 0
    wrong = np.mean(model.predict(parts.x_train) != parts.y_train)
    last = np.abs(model.predict_proba(parts.x_train)[:, 1] - parts.y_train).mean()
    assert wrong <= bounds.misclassification_bound(last)


@pytest.mark.parametrize("name", TRAINERS)
def test_last_stage_is_the_prediction_and_the_history_is_its_trace(name, parts):
    model = clone(TRAINERS[name]).fit(parts.x_train, parts.y_train)
    stages = list(model.staged_decision_function(parts.x_test))
    assert np.allclose(stages[-1], model.decision_function(parts.x_test))
    assert len(stages) == len(model.stages_) == model.n_stages
    rows = sc.trace(model, parts.x_train, parts.y_train, split="train", smoothed=False)
    # The history is taken before each step, the trace after it.
    assert [r["grad_l1"] for r in rows[:-1]] == pytest.approx(model.history_.grad_l1[1:])
    assert [r["loss"] for r in rows[:-1]] == pytest.approx(model.history_.loss[1:])


@pytest.mark.parametrize("name", ["gbt", "kernel", "network"])
def test_trainers_are_scikit_learn_estimators(name):
    quick = clone(TRAINERS[name]).set_params(n_stages=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed = [c for c in check_estimator(quick, on_fail=None) if c["status"] == "failed"]
    assert [(c["check_name"], c["exception"]) for c in failed] == []


def test_trees_take_leaves_of_one_size_and_the_best_step(parts):
    model = sc.GradientBoostingCalibrated(n_stages=50, learning_rate=None, bound=2.0).fit(parts.x_train, parts.y_train)
    assert model.step_ == pytest.approx(bounds.trees_best_step(start_loss=np.log(2), bound=2.0, stages=50))
    first = next(iter(model.staged_decision_function(parts.x_train)))
    # A leaf of as many ones as noughts has no gradient to follow.
    assert {round(v, 9) for v in np.abs(first)} <= {0.0, round(2.0 * model.step_, 9)}
    assert np.mean(first != 0) > 0.8


def test_deep_trees_have_margin_one(parts):
    model = clone(TRAINERS["gbt_deep"]).fit(parts.x_train, parts.y_train)
    assert model.history_.least_margin == pytest.approx(1)


def test_deep_trees_go_on_learning_where_gradients_are_tiny(parts):
    # The tree learner takes a variance below 2e-16 for a pure node.
    model = clone(TRAINERS["gbt_deep"]).set_params(n_stages=120).fit(parts.x_train, parts.y_train)
    assert np.all(np.diff(model.history_.grad_l1) < 0)
    assert model.history_.grad_l1[-1] < 1e-9


def test_kernel_norms_stay_below_their_bound_and_the_landmarks_approximate(parts):
    model = clone(TRAINERS["kernel"]).fit(parts.x_train, parts.y_train)
    limit = bounds.kernel_norm_bound(start_loss=np.log(2), step=1.0, stages=60)
    assert np.all(model.rkhs_norm_ <= limit)
    whole = sc.KernelBoostingClassifier(n_stages=60, nystroem_above=100, n_components=200, random_state=0)
    near = whole.fit(parts.x_train, parts.y_train).decision_function(parts.x_test)
    assert np.abs(near - model.decision_function(parts.x_test)).max() < 1e-3
    normed = sc.KernelBoostingClassifier(n_stages=3, normalized=True, learning_rate=0.5)
    assert normed.fit(parts.x_train, parts.y_train).rkhs_norm_[0] == pytest.approx(0.5)


def test_network_gradient_equals_automatic_differentiation(parts):
    torch = pytest.importorskip("torch")
    model = sc.TwoLayerNetClassifier(n_units=6, n_stages=1, learning_rate=1.0, beta=0.3, random_state=3)
    model.fit(parts.x_train, parts.y_train)
    start = np.random.RandomState(3).standard_normal((3, 3)) / np.sqrt(3)
    theta = torch.tensor(np.concatenate([start, start]), requires_grad=True)
    x = torch.tensor(np.column_stack([parts.x_train, np.ones(200)]))
    signs = torch.tensor([1.0] * 3 + [-1.0] * 3, dtype=torch.float64)
    g = 6**-0.3 * torch.tanh(x @ theta.T) @ signs
    torch.nn.functional.binary_cross_entropy_with_logits(g, torch.tensor(parts.y_train)).backward()
    moved = (theta - theta.grad).detach().numpy()
    assert model._kept[-1] == pytest.approx(moved)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_default_step_of_the_network_always_descends(parts, beta):
    model = sc.TwoLayerNetClassifier(n_units=10, n_stages=50, beta=beta, random_state=1)
    model.fit(parts.x_train, parts.y_train)
    assert model.descended_
    x = np.column_stack([parts.x_train, np.ones(200)])
    assert model.step_ == pytest.approx(1 / smoothness(x, 10, beta))
    wild = sc.TwoLayerNetClassifier(n_units=10, n_stages=50, learning_rate=500.0, random_state=1)
    assert np.isnan(wild.fit(parts.x_train, parts.y_train).training_bound_)


def test_the_network_keeps_two_hundred_stages_of_many(parts):
    model = sc.TwoLayerNetClassifier(n_units=2, n_stages=450, random_state=0).fit(parts.x_train, parts.y_train)
    assert len(model.stages_) <= 200
    assert model.stages_[-1] == 450
    assert [t for t, _ in sc.staged_logits(model, parts.x_test)] == list(model.stages_)


@pytest.mark.parametrize("name", ["hist_gb", "xgboost", "lightgbm", "logistic"])
def test_stages_of_other_libraries_end_at_their_own_prediction(name, parts):
    model = methods.METHODS[name](**({} if name == "logistic" else {"stages": 12}))
    model.fit(parts.x_train, parts.y_train.astype(int))
    stages = list(sc.staged_logits(model, parts.x_test))
    assert [t for t, _ in stages] == ([1] if name == "logistic" else list(range(1, 13)))
    assert expit(stages[-1][1]) == pytest.approx(model.predict_proba(parts.x_test)[:, 1], abs=1e-5)


def test_callbacks_of_xgboost_and_lightgbm_trace_and_stop(parts):
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    rule = sc.StopRule(patience=5)
    callback = sc.xgboost_callback(parts.x_test, parts.y_test, rule)
    model = xgboost.XGBClassifier(n_estimators=200, learning_rate=0.5, n_jobs=1, callbacks=[callback])
    model.fit(parts.x_train, parts.y_train.astype(int))
    stages = list(sc.staged_logits(model, parts.x_test))
    assert len(rule.rows) == len(stages) < 200
    assert rule.rows[3]["smce"] == pytest.approx(sc.smooth_ce(parts.y_test, expit(stages[3][1])), abs=1e-5)
    assert sc.best_stage(rule.rows) == rule.best_stage
    rule = sc.StopRule(on="loss", patience=5)
    model = lightgbm.LGBMClassifier(n_estimators=300, learning_rate=0.5, n_jobs=1, verbose=-1)
    callback = sc.lightgbm_callback(parts.x_test, parts.y_test, rule)
    model.fit(parts.x_train, parts.y_train.astype(int), callbacks=[callback])
    assert len(rule.rows) == rule.best_stage + 5 < 300
    assert model.best_iteration_ == rule.best_stage


def test_stopping_on_validation_data_reads_no_further_than_needed(parts):
    model = clone(TRAINERS["gbt_deep"]).fit(parts.x_train, parts.y_train)
    read = []

    def stages():
        for t, g in sc.staged_logits(model, parts.x_test):
            read.append(t)
            yield t, g

    rule = sc.StopRule(patience=3)
    best = sc.stopped(stages(), parts.y_test, rule)
    assert read[-1] == best + 3 < 60
    with pytest.raises(UsageError, match="no column"):
        sc.best_stage(rule.rows, "smece")


def test_models_without_two_classes_are_refused(parts):
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.svm import LinearSVC

    y = np.arange(200) % 3
    with pytest.raises(UsageError, match="two classes"):
        list(sc.staged_logits(HistGradientBoostingClassifier(max_iter=2).fit(parts.x_train, y), parts.x_test))
    with pytest.raises(UsageError, match="neither"):
        sc.logits_of(object(), parts.x_test)
    svm = LinearSVC().fit(parts.x_train, parts.y_train)
    assert sc.logits_of(svm, parts.x_test) == pytest.approx(svm.decision_function(parts.x_test))
    with pytest.raises(ValueError, match="even number"):
        sc.TwoLayerNetClassifier(n_units=3).fit(parts.x_train, parts.y_train)
    with pytest.raises(ValueError, match="'rbf' or 'laplacian'"):
        sc.KernelBoostingClassifier(kernel="poly").fit(parts.x_train, parts.y_train)  # type: ignore[arg-type]


# -- data --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gauss", "separable", "xor"])
def test_known_probabilities_of_the_toys_are_right(name):
    draw, truth = getattr(sc, name), getattr(sc, f"{name}_truth")
    x, y = draw(20_000, np.random.default_rng(0))
    assert sc.calibration_test(y, truth(x), draws=59, rng=np.random.default_rng(7)).p > 0.01
    assert sc.smooth_ce(y, truth(x)) < 0.01


def test_splits_repeat_do_not_overlap_and_are_standardised():
    a, b = (sc.split("breast_cancer", 200, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(a.x_train, b.x_train)
    assert len(a.y_train) == 200
    assert len(a.y_test) == 369
    assert a.x_train.mean(axis=0) == pytest.approx(np.zeros(30), abs=1e-9)
    with pytest.raises(UsageError, match="569 samples"):
        sc.split("breast_cancer", 565, np.random.default_rng(0))


def test_own_tables_are_read_and_refused_with_the_place(tmp_path):
    file = tmp_path / "own.csv"
    rows = [f"{i},{i * 0.5},{i % 2}" for i in range(60)]
    file.write_text("\n".join(["a,b,label", *rows]))
    assert sc.split("custom", 30, np.random.default_rng(0), str(file)).x_test.shape == (30, 2)
    for text, words in (
        ("a,b\n1,2\n", "no column 'label'"),
        ("a,label\nx,1\n", "not numeric"),
        ("a,label\n1,7\n", "7"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=words):
            sc.split("custom", 30, np.random.default_rng(0), str(file))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "gaus"}, "gauss"),
        ({"data": ""}, "empty"),
        ({"data": "custom"}, "needs -o file"),
        ({"sizes": "200,x"}, "'x'"),
        ({"sizes": "5"}, "from 10 up|at least 10"),
        ({"stages": 1}, "stages=1"),
    ],
)
def test_wrong_options_get_one_sentence(options, words):
    with pytest.raises(UsageError, match=words):
        sc.SmoothCalibration(**options)


# -- benchmark and analyses --------------------------------------------------------------------------------------------


class Broken:
    """A classifier whose probabilities are NaN."""

    def get_params(self, deep=True):
        return {}

    def set_params(self, **params):
        return self

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    bench = sc.SmoothCalibration("gauss", sizes="50,100", stages=4)
    made = {"logistic": methods.logistic(), "trees": methods.gbt(stages=15), "broken": Broken()}
    return Runs([assay.run(bench, system, attempts=2, into=folder / name, workers=0) for name, system in made.items()])


def test_runs_measure_both_parts_and_trace_the_stages(runs):
    trees = runs[1]
    assert trees.status == "finished"
    assert (trees.records["excess"] <= 1e-9).all()
    assert (trees.records["mean_grad_l1"] <= trees.records["bound"]).all()
    rows = trees.rows("training")
    assert set(rows["split"]) == {"train", "test"}
    assert sorted(set(rows["t"])) == [1, 2, 6, 15]
    assert {"loss", "grad_l1", "grad_l2", "smce", "smce_dual", "smece", "ece15", "mmce"} <= set(rows.columns)


def test_a_system_that_predicts_nan_has_failed_and_ranks_last(runs):
    broken = runs[2]
    assert set(broken.records["failed"]) == {"predictions are not finite"}
    assert broken.records["smce"].null_count() == 4
    ranked = analyses.ranks(runs).frame
    assert ranked.filter(ranked["system"].str.contains("roken"))["rank"][0] == 3
    assert ranked["failed"].sum() == 2


def test_analyses_print_what_the_records_hold(runs):
    table = analyses.table(runs[:2]).frame
    assert table.height == 4
    trees = runs[1].records.filter(runs[1].records["n_train"] == 50)["smce"].mean()
    assert trees in table["smce"].to_list()
    assert analyses.trend(runs[:2]).frame["p"].is_between(0, 1).all()
    checked = analyses.bounds(runs[1:2]).frame
    assert checked["dual_below_gradient"].to_list() == checked["splits"].to_list() == [2, 2]
    assert checked["gradient_below_bound"].to_list() == [2, 2]
    assert analyses.trace(runs[1:2], score="loss").frame.height == 16
    assert analyses.witness(runs[:1], n=50).frame["witness"].is_between(-1, 1).all()
    from assay.report.figures import vega_lite

    for found in (analyses.table(runs), analyses.trace(runs[1:2]), analyses.ranks(runs), analyses.witness(runs[:2])):
        assert vega_lite(found)
    with pytest.raises(UsageError, match="'auc'"):
        analyses.table(runs, score="auc")
    with pytest.raises(UsageError, match="at least two"):
        analyses.ranks(runs[:1])


def test_trials_repeat_exactly():
    from assay.learning.smooth_calibration.scoring import train_and_measure

    found = [train_and_measure(methods.gbt(stages=5), "xor", 60, np.random.default_rng(3), stages=3) for _ in range(2)]
    assert all(isinstance(one, Outcome) for one in found)
    assert found[0].scores == found[1].scores
    assert list(found[0].rows) == list(found[1].rows)


def test_a_cell_of_the_reproduction_holds_what_the_criteria_read():
    job = {"data": "gauss", "n": 200, "algorithm": "kernel", "seed": 0}
    found = reproduce.cell(job)
    assert found["excess"] <= 1e-9
    assert reproduce.error_is_that_of_the_programme([found]).holds
    assert len(found["rows"]) == 2 * len({row["t"] for row in found["rows"]}) > 10
    assert found["mean_grad_l1"] <= found["bound"]
    assert reproduce.dual_below_gradient([found]).holds
    assert [c.holds for c in reproduce.gradient_below_bound([found])] == [True]
    assert len({reproduce.key(j) for j in reproduce.plan(5, 20, True)}) == len(reproduce.plan(5, 20, True))


@pytest.mark.slow
def test_the_gap_of_a_finite_family_falls_as_the_square_root_of_n():
    assert reproduce.gap_of_a_finite_family(20).holds


def test_the_module_of_the_benchmark_is_light():
    import subprocess
    import sys

    code = (
        "import sys, assay.learning.smooth_calibration.benchmark as b; b.SmoothCalibration(); "
        "print([m for m in ('numpy', 'numba', 'sklearn', 'polars', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"
