"""Other measures, recalibration, inference, bounds, diagram: oracles, kept libraries, closed forms, bad input."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.learning import smooth_calibration as sc
from assay.learning.smooth_calibration import bounds
from assay.learning.smooth_calibration.recalibration import METHODS


def made(seed: int, n: int, power: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return (rng.random(n) < p**power).astype(int), p


def test_measures_equal_the_oracle(oracle):
    pytest.importorskip("relplot")
    found = oracle("smooth_calibration", "ece_family")
    for case in found["cases"]:
        y, p = case["y"], case["prob"]
        near = {
            "ece_width_10": sc.ece(y, p, bins=10),
            "ece_width_15": sc.ece(y, p),
            "ece_mass_10": sc.ece(y, p, bins=10, strategy="mass"),
            "ece_l2_10": sc.ece(y, p, bins=10, norm="l2"),
            "mce_10": sc.ece(y, p, bins=10, norm="max"),
            "mmce_laplace_w1": sc.kernel_ce(y, p, width=1.0),
            "mmce_laplace_w0_4": sc.mmce(y, p),
            "brier": sc.brier(y, p),
            "smooth_ce": sc.smooth_ce(y, p),
        }
        for name, value in near.items():
            assert value == pytest.approx(case[name], abs=1e-9), (case["name"], name)
        value, width = sc.smece_and_width(y, p)
        assert value == pytest.approx(case["relplot_smECE"], abs=2e-3)
        assert width == pytest.approx(case["relplot_width"], abs=2e-3)
        assert sc.smece_at(y, p, width=0.05) == pytest.approx(case["smECE_sigma_0_05"], abs=2e-3)


def test_netcal_gives_the_same_binned_error():
    netcal = pytest.importorskip("netcal.metrics")
    y, p = made(0, 300)
    assert sc.ece(y, p, bins=10) == pytest.approx(netcal.ECE(10).measure(p, y), abs=1e-9)


def test_debiased_error_equals_uncertainty_calibration():
    calibration = pytest.importorskip("calibration")
    y, p = made(1, 400)
    edges = calibration.get_equal_bins(p, num_bins=10)
    theirs = calibration.unbiased_l2_ce(calibration.bin(list(zip(p, y, strict=True)), edges))
    assert sc.ece_debiased(y, p, bins=10) == pytest.approx(theirs, abs=5e-3)


def test_debiasing_takes_the_bias_off_a_calibrated_predictor():
    squares = [sc.ece(*made(s, 500, 1.0), strategy="mass", norm="l2") ** 2 for s in range(40)]
    debiased = [sc.ece_debiased(*made(s, 500, 1.0)) ** 2 for s in range(40)]
    assert np.mean(debiased) < np.mean(squares) / 2


def test_more_bins_than_samples_and_ties_are_fine():
    y, p = [0, 1, 1], [0.5, 0.5, 0.5]
    assert sc.ece(y, p, bins=100) == pytest.approx(1 / 6)
    assert sc.ece(y, p, bins=100, strategy="mass") == pytest.approx(0.5)
    assert sc.bins_of([1], [1.0], bins=4).edges[-1] == 1
    with pytest.raises(DataError, match="fewer bins"):
        sc.ece_debiased(y, p, bins=3)


def test_kernel_sums_equal_the_double_loop():
    y, p = made(2, 60)
    r = p - y
    distance = np.abs(p[:, None] - p[None, :])
    laplace, gauss = np.exp(-distance / 0.4), np.exp(-0.5 * (distance / 0.2) ** 2)
    assert sc.mmce(y, p) == pytest.approx(math.sqrt(r @ laplace @ r) / 60)
    assert sc.kernel_ce(y, p, kernel="gauss", width=0.2) == pytest.approx(math.sqrt(r @ gauss @ r) / 60)
    np.fill_diagonal(laplace, 0)
    assert sc.skce(y, p) == pytest.approx(r @ laplace @ r / (60 * 59))


def test_unbiased_kernel_error_is_nought_on_average_when_calibrated():
    found = [sc.skce(*made(s, 100, 1.0)) for s in range(200)]
    assert abs(np.mean(found)) < 3 * np.std(found) / math.sqrt(200)


def test_interval_error_is_drawn_from_the_generator_and_above_the_smooth_one():
    y, p = made(3, 200)
    a = sc.interval_ce(y, p, rng=np.random.default_rng(0))
    assert a == sc.interval_ce(y, p, rng=np.random.default_rng(0))
    assert a >= sc.smooth_ce(y, p)


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0.01, 0.99)), min_size=2, max_size=30))
def test_proper_scores_split_into_parts(pairs):
    y, p = (np.array(c, float) for c in zip(*pairs, strict=True))
    for score in ("brier", "log"):
        parts = sc.decompose(y, p, score=score)
        assert parts.calibration - parts.discrimination + parts.uncertainty == pytest.approx(parts.score)
        assert parts.calibration >= -1e-9
        assert parts.discrimination >= -1e-9


def test_log_loss_equals_scikit_learn():
    from sklearn.metrics import log_loss

    y, p = made(4, 100)
    assert sc.log_loss(y, p) == pytest.approx(log_loss(y, p))
    assert sc.log_loss([1], [0.0]) == math.inf


def test_several_classes_by_top_label_and_class_by_class():
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1, 1, 1], 50)
    y = rng.integers(0, 3, 50)
    right, confidence = sc.top_label(y, proba)
    assert np.array_equal(confidence, proba.max(axis=1))
    assert right.mean() == pytest.approx(np.mean(proba.argmax(axis=1) == y))
    assert sc.classwise_smooth_ce(y, proba)[1] == sc.smooth_ce(y == 1, proba[:, 1])
    for bad, words in ((proba * 2, "sum to 1"), (proba[:5], "one row a sample")):
        with pytest.raises(DataError, match=words):
            sc.top_label(y, bad)
    with pytest.raises(DataError, match="class numbers 0 to 2"):
        sc.top_label(y + 1, proba)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda y, p: sc.ece(y, p, bins=0), "bins=0"),
        (lambda y, p: sc.ece(y, p, strategy="weight"), "'width', 'mass' or 'quantile'"),
        (lambda y, p: sc.ece(y, p, norm="l3"), "'l1', 'l2' or 'max'"),
        (lambda y, p: sc.kernel_ce(y, p, kernel="box"), "'laplace' or 'gauss'"),
        (lambda y, p: sc.mmce(y, p, width=0), "width=0"),
        (lambda y, p: sc.smece_at(y, p, width=-1), "width=-1"),
        (lambda y, p: sc.decompose(y, p, score="auc"), "'brier' or 'log'"),
        (lambda y, p: sc.Recalibrator("plat").fit(p, y), "platt"),
        (lambda y, p: sc.bootstrap_interval(y, p, level=2, rng=np.random.default_rng(0)), "level=2"),
        (lambda y, p: sc.calibration_test(y, p, draws=0, rng=np.random.default_rng(0)), "is 0"),
    ],
)
def test_wrong_options_get_one_sentence(call, words):
    with pytest.raises(UsageError, match=words):
        call([0, 1, 1], [0.1, 0.6, 0.7])


# -- recalibration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_recalibration_helps_on_new_predictions(method):
    y, p = made(10, 4000)
    fit = sc.Recalibrator(method).fit(p[:2000], y[:2000])
    fixed = fit.transform(p[2000:])
    assert fixed.min() >= 0
    assert fixed.max() <= 1
    assert sc.brier(y[2000:], fixed) < sc.brier(y[2000:], p[2000:]) + 1e-3
    if method != "temperature":
        # One slope alone cannot bend p into p^2.
        assert sc.smooth_ce(y[2000:], fixed) < 0.35 * sc.smooth_ce(y[2000:], p[2000:])


@pytest.mark.parametrize("method", METHODS)
def test_recalibration_survives_one_class_and_certain_predictions(method):
    fixed = sc.Recalibrator(method).fit([0.0, 0.5, 1.0, 1.0], [1, 1, 1, 1]).transform([0.0, 0.3, 1.0])
    assert np.all((fixed >= 0) & (fixed <= 1))


def test_platt_and_temperature_find_the_true_slope():
    rng = np.random.default_rng(0)
    g = rng.normal(0, 2, 20_000)
    y = (rng.random(20_000) < 1 / (1 + np.exp(-g))).astype(int)
    wrong = 1 / (1 + np.exp(-(3 * g + 1)))
    platt = sc.Recalibrator("platt").fit(wrong, y).transform(wrong)
    assert np.abs(platt - 1 / (1 + np.exp(-g))).max() < 0.03
    hot = 1 / (1 + np.exp(-3 * g))
    cooled = sc.Recalibrator("temperature").fit(hot, y).transform(hot)
    assert np.abs(cooled - 1 / (1 + np.exp(-g))).max() < 0.03


def test_recalibrations_are_compared_on_predictions_they_have_not_seen():
    y, p = made(11, 1500)
    found = sc.compare_recalibrations(p, y, rng=np.random.default_rng(0))
    assert found["none"] == {
        "smooth_ce": sc.smooth_ce(y, p), "brier": sc.brier(y, p), "log_loss": sc.log_loss(y, p)
    }  # fmt: skip
    assert found["beta"]["smooth_ce"] < 0.25 * found["none"]["smooth_ce"]
    # In-sample, isotonic regression is perfect; out of sample it is not.
    seen = sc.Recalibrator("isotonic").fit_transform(p, y)
    assert sc.smooth_ce(y, seen) < 1e-9 < found["isotonic"]["smooth_ce"]
    with pytest.raises(UsageError, match="folds=1"):
        sc.compare_recalibrations(p, y, folds=1, rng=np.random.default_rng(0))


# -- inference ---------------------------------------------------------------------------------------------------------


def test_test_of_calibration_keeps_its_level_and_has_power():
    calibrated = [
        sc.calibration_test(*made(s, 80, 1.0), draws=59, rng=np.random.default_rng(s + 1000)).p for s in range(100)
    ]
    assert np.mean(np.array(calibrated) <= 0.1) <= 0.2
    wrong = sc.calibration_test(*made(0, 300), draws=99, rng=np.random.default_rng(1))
    assert wrong.p == pytest.approx(0.01)
    assert wrong.value > wrong.critical > wrong.null_mean > 0


def test_interval_holds_the_known_error_of_a_wrong_predictor_and_nought_of_a_right_one():
    # p for truth p^2: the mean residual E(p - p^2) = 1/6 is attained by h = -1.
    y, p = made(0, 1500)
    found = sc.bootstrap_interval(y, p, resamples=200, rng=np.random.default_rng(0))
    assert found.low < 1 / 6 < found.high
    right = sc.bootstrap_interval(*made(1, 1500, 1.0), resamples=200, rng=np.random.default_rng(0))
    assert right.low == 0
    assert right.bias > 0


def test_margin_shrinks_with_n_and_covers_the_deviation():
    assert sc.margin(10_000) > sc.margin(1_000_000)
    y, p = made(0, 20_000)
    assert abs(sc.smooth_ce(y, p) - 1 / 6) < sc.margin(20_000)
    with pytest.raises(UsageError, match="delta=2"):
        sc.margin(10, delta=2)


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_two_sample_bound_equals_its_closed_form_for_a_finite_class():
    # Without a radius the entropy is constant: 24 sqrt(ln k / n) (1 - e) + 8 e, least at an end.
    n, k = 10_000, 50
    expected = min(24 * math.sqrt(math.log(k) / n), 8.0) + 2 * math.sqrt(math.log(20) / n)
    assert bounds.two_sample_bound(bounds.log_covering_finite(k), n=n) == pytest.approx(expected, rel=1e-3)


def test_bounds_fall_with_n_and_grow_with_the_class():
    small = bounds.log_covering_trees(stages=1, depth=1, features=2, n=1000, step=0.1, bound=1)
    large = bounds.log_covering_trees(stages=10, depth=3, features=2, n=1000, step=0.1, bound=1)
    parametric = bounds.log_covering_parametric(parameters=3, radius=2, lipschitz=1)
    assert small(0.01) < large(0.01)
    assert parametric(0.01) == pytest.approx(3 * math.log(600))
    assert parametric(100) == 0
    assert bounds.two_sample_bound(parametric, n=10**6) < bounds.two_sample_bound(parametric, n=10**4)


def test_best_step_is_where_the_training_bound_is_least():
    known = {"start_loss": math.log(2), "bound": 2.0, "stages": 100}
    step = bounds.trees_best_step(**known)
    at = [bounds.trees_training_bound(**known, margin=0.3, step=step * f) for f in (0.9, 1.0, 1.1)]
    assert at[1] < min(at[0], at[2])
    assert at[1] == pytest.approx(math.sqrt(math.log(2) / 200) / 0.3)
    needed = bounds.trees_stages_needed(start_loss=math.log(2), margin=0.3, error=at[1])
    assert needed in (100, 101)


def test_training_bounds_have_their_closed_forms():
    assert bounds.trees_training_bound(start_loss=0.7, margin=0.5, bound=1, step=0.2, stages=70) == pytest.approx(0.15)
    assert bounds.kernel_training_bound(start_loss=0.5, margin=0.5, step=1, stages=100) == pytest.approx(0.2)
    paper = bounds.kernel_training_bound_paper(start_loss=0.5, margin=0.5, step=1, stages=100)
    assert paper * math.sqrt(2) == pytest.approx(0.2)
    assert bounds.kernel_norm_bound(start_loss=0.5, step=1, stages=100) == pytest.approx(10)
    assert bounds.network_training_bound(margin=1, stages=10, step=0.5, units=4, beta=0.0, k1=2, k2=3) == pytest.approx(
        0.2 * 3.5
    )
    assert bounds.network_descent_bound(start_loss=1, margin=1, stages=10, step=0.5, units=4, beta=1) == pytest.approx(
        1.6
    )
    assert bounds.misclassification_bound(0.1) == 0.2
    assert bounds.rademacher_rkhs(radius=2, kappa=1, n=16) == 0.5
    tree = bounds.rademacher_trees(c3=1, step=0.1, stages=10, depth=2, n=100, features=3)
    assert tree == pytest.approx(math.sqrt(4 * math.log(300) / 100))
    whole = bounds.trees_population_bound(
        training=0.1, c2=1, c3=1, step=0.1, stages=10, depth=2, n=100, features=3, delta=0.5
    )
    assert whole == pytest.approx(0.1 + 0.1 + 4 * tree + 0.2 * math.sqrt(math.log(4)))


def test_empirical_rademacher_of_two_opposite_signs_is_the_mean_absolute_walk():
    # max(S, -S) / n over n signs: about sqrt(2 / (pi n)).
    n = 400
    found = bounds.empirical_rademacher([np.ones(n), -np.ones(n)], rng=np.random.default_rng(0), draws=4000)
    assert found == pytest.approx(math.sqrt(2 / (math.pi * n)), rel=0.05)
    with pytest.raises(DataError, match="one row"):
        bounds.empirical_rademacher([1.0, 2.0], rng=np.random.default_rng(0))


def test_impossible_constants_are_refused():
    for call in (
        lambda: bounds.trees_training_bound(start_loss=0.7, margin=0, bound=1, step=1, stages=1),
        lambda: bounds.kernel_training_bound(start_loss=0.7, margin=1, step=5, stages=1),
        lambda: bounds.log_covering_finite(0),
        lambda: bounds.population_bound(0.1, n=10, c2=1, delta=0),
    ):
        with pytest.raises(UsageError):
            call()


# -- diagram and files -------------------------------------------------------------------------------------------------


def test_diagram_draws_bins_and_witness(tmp_path):
    y, p = made(0, 300)
    spec = sc.reliability_diagram(y, p)
    witness = sc.smooth_ce(y, p, return_witness=True)[1]
    drawn = spec["vconcat"][1]["data"]["values"]
    assert [point["witness"] for point in drawn] == pytest.approx(witness([point["at"] for point in drawn]))
    parts = [bar["part"] for bar in spec["vconcat"][2]["data"]["values"]]
    assert sum(parts) == pytest.approx(sc.smooth_ce(y, p))
    for suffix in (".svg", ".png", ".json"):
        sc.save_diagram(spec, tmp_path / f"d{suffix}")
        assert (tmp_path / f"d{suffix}").stat().st_size > 1000
    assert "smooth calibration error" in (tmp_path / "d.svg").read_text()
    with pytest.raises(UsageError, match=r"\.svg, \.png or \.json"):
        sc.save_diagram(spec, tmp_path / "d.bmp")


def test_a_file_of_predictions_is_measured(tmp_path):
    from assay.learning.smooth_calibration.recipes import measure

    y, p = made(0, 200)
    file = tmp_path / "predictions.csv"
    file.write_text("prob,label\n" + "".join(f"{a!r},{b}\n" for a, b in zip(p.tolist(), y.tolist(), strict=True)))
    measure(tmp_path, file=file, resamples=50)
    found = json.loads((tmp_path / "measures.json").read_text())
    assert found["groups"] == []
    assert set(found["recalibrated"]) == {"none", *METHODS}
    assert found["measures"]["smooth_ce"] == pytest.approx(sc.smooth_ce(y, p))
    assert found["test"]["p"] < 0.05
    assert "reliability.svg" in (tmp_path / "report.md").read_text()
    for text, words in (
        ("prob\n1\n", "no column 'label'"),
        ("prob,label\n1.5,1\n", "outside"),
        ("prob,label\n0.5,3\n", "label"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=words):
            measure(tmp_path, file=file)
