"""The exact error: oracles, the linear programme, closed forms, invariances, gradient, witness, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.learning import smooth_calibration as sc
from assay.learning.smooth_calibration.chains import lipschitz_chain, quadratic_chain


def made(seed: int, n: int, power: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return (rng.random(n) < p**power).astype(int), p


samples = st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1, width=32)), min_size=1, max_size=30)


def test_error_equals_the_solver_on_every_oracle_case(oracle):
    found = oracle("smooth_calibration", "smooth_ce_exact")
    assert len(found["cases"]) == 13
    for case in found["cases"]:
        if case["kind"] == "probability":
            value = sc.smooth_ce(case["y"], case["prob"])
        else:
            value = sc.smooth_ce_logit(case["y"], case["logit"])
        assert value == pytest.approx(case["value"], abs=found["tolerance_abs"]), case["name"]
        assert value <= case["l1_functional_gradient"] + 1e-12


@pytest.mark.parametrize("seed", range(40))
def test_chain_equals_the_linear_programme(seed):
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 40))
    w = rng.normal(size=m) / m
    d = rng.exponential(size=m - 1) * rng.choice([0.01, 0.1, 1.0])
    if seed % 3 == 0:
        w, d = np.round(w, 1), np.round(d, 1)
    s = np.concatenate([[0], np.cumsum(w)])
    value, h, _ = lipschitz_chain(w, s, d, np.argsort(s))
    steps = np.eye(m)[1:] - np.eye(m)[:-1]
    limits = np.concatenate([d, d])
    solved = linprog(-w, A_ub=np.vstack([steps, -steps]), b_ub=limits, bounds=(-1, 1)) if m > 1 else None
    assert value == pytest.approx(abs(w[0]) if solved is None else -solved.fun, abs=1e-9)
    assert w @ h == pytest.approx(value, abs=1e-12)
    assert np.abs(h).max() <= 1
    assert np.all(np.abs(np.diff(h)) <= d + 1e-12)


@given(samples, st.booleans())
def test_error_equals_the_linear_programme_with_ties_and_weights(pairs, logit):
    y, p = (np.array(column) for column in zip(*pairs, strict=True))
    values = 8 * p.astype(float) - 4 if logit else p
    weight = 1.0 + np.arange(len(y)) % 3
    fast = sc.smooth_ce_logit if logit else sc.smooth_ce
    slow = sc.smooth_ce_lp(y, values, logit=logit, sample_weight=weight)
    assert fast(y, values, sample_weight=weight) == pytest.approx(slow, abs=1e-7)


@given(samples)
def test_witness_is_feasible_attains_the_error_and_is_certified(pairs):
    y, p = (np.array(column) for column in zip(*pairs, strict=True))
    value, witness = sc.smooth_ce(y, p, return_witness=True)
    assert np.abs(witness.values).max() <= 1
    assert np.all(np.abs(np.diff(witness.values)) <= np.diff(witness.points) + 1e-12)
    assert float(np.mean(witness(p) * (y - p))) == pytest.approx(value, abs=1e-12)
    assert abs(witness.gap) <= 1e-12
    assert sc.smooth_ce(y, p) == pytest.approx(value, abs=1e-12)


@given(samples, st.randoms(use_true_random=False))
def test_order_repetition_and_unit_weights_change_nothing(pairs, random):
    y, p = (np.array(column) for column in zip(*pairs, strict=True))
    value = sc.smooth_ce(y, p)
    order = list(range(len(y)))
    random.shuffle(order)
    assert sc.smooth_ce(y[order], p[order]) == pytest.approx(value, abs=1e-12)
    assert sc.smooth_ce(np.tile(y, 3), np.tile(p, 3)) == pytest.approx(value, abs=1e-12)
    assert sc.smooth_ce(y, p, sample_weight=np.full(len(y), 7.0)) == pytest.approx(value, abs=1e-12)
    # Swapping the classes mirrors everything.
    assert sc.smooth_ce(1 - y, 1 - p.astype(float)) == pytest.approx(value, abs=1e-7)


@given(samples)
def test_error_lies_below_the_gradient_below_the_dual_and_below_binned_error_plus_width(pairs):
    y, p = (np.array(column) for column in zip(*pairs, strict=True))
    value = sc.smooth_ce(y, p)
    assert 0 <= value <= np.abs(y - p).mean() + 1e-9
    for bins in (1, 5, 15):
        assert value <= sc.ece(y, p, bins=bins) + 1 / bins + 1e-9
    inside = np.clip(p, 1e-6, 1 - 1e-6).astype(float)
    g = np.log(inside / (1 - inside))
    dual = sc.smooth_ce_logit(y, g)
    assert sc.smooth_ce(y, inside) <= dual + 1e-9
    assert dual <= np.abs(y - inside).mean() + 1e-9


@given(samples, st.floats(1e-12, 1e-4))
def test_a_small_move_changes_the_error_by_no_more_than_twice_the_move(pairs, move):
    y, p = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    moved = np.clip(p + move * np.where(np.arange(len(p)) % 2, 1, -1), 0, 1)
    assert abs(sc.smooth_ce(y, moved) - sc.smooth_ce(y, p)) <= 2 * move + 1e-12


def test_binned_error_jumps_where_the_smooth_one_does_not():
    y, low, high = [0, 1], [0.4999999999, 0.5], [0.5, 0.5]
    assert sc.ece(y, low, bins=2) - sc.ece(y, high, bins=2) == pytest.approx(0.5)
    assert sc.smooth_ce(y, low) == pytest.approx(sc.smooth_ce(y, high), abs=1e-9)


def test_equal_predictions_give_the_mean_residual_and_one_class_is_allowed():
    assert sc.smooth_ce([1, 0, 1, 1], [0.3] * 4) == pytest.approx(0.45)
    assert sc.smooth_ce([True], [0.25]) == pytest.approx(0.75)
    assert sc.smooth_ce([1, 1], [1.0, 1.0]) == 0.0


def test_saturated_and_infinite_logits_are_fine():
    g = [-math.inf, -800.0, 40.0, 900.0, math.inf]
    assert sc.smooth_ce_logit([0, 0, 1, 1, 1], g) == pytest.approx(0, abs=1e-15)
    assert sc.smooth_ce_logit([1, 0, 1, 1, 0], g) == pytest.approx(0.4)


def test_float32_predictions_that_differ_by_rounding_are_points_of_their_own():
    p = np.float32([0.3, 0.3 + 2**-25, 0.9])
    assert sc.smooth_ce([0, 1, 1], p) == pytest.approx(sc.smooth_ce_lp([0, 1, 1], p), abs=1e-9)


@pytest.mark.parametrize("logit", [False, True])
def test_gradient_equals_finite_differences(logit):
    y, p = made(3, 120)
    values = np.log(p / (1 - p)) if logit else p
    value, gradient = (sc.smooth_ce_logit_gradient if logit else sc.smooth_ce_gradient)(y, values)
    error = sc.smooth_ce_logit if logit else sc.smooth_ce
    assert value == pytest.approx(error(y, values), abs=1e-12)
    h = 1e-7
    numeric = [(error(y, values + h * e) - error(y, values - h * e)) / (2 * h) for e in np.eye(len(y))]
    assert np.abs(gradient - numeric).max() < 1e-6


def test_many_predictors_at_once_equal_one_by_one():
    y, p = made(5, 60)
    rows = np.stack([p, p**2, np.sqrt(p)])
    assert sc.smooth_ce_many(y, rows) == pytest.approx([sc.smooth_ce(y, row) for row in rows])
    assert sc.smooth_ce_many(y, 4 * rows, logit=True) == pytest.approx([sc.smooth_ce_logit(y, 4 * r) for r in rows])
    with pytest.raises(DataError, match="one row a predictor"):
        sc.smooth_ce_many(y, rows.T)


def test_batches_add_up_and_tensors_are_taken():
    torch = pytest.importorskip("torch")
    y, p = made(6, 50)
    metric = sc.BinarySmoothCalibrationError()
    with pytest.raises(DataError, match="no batch"):
        metric.compute()
    metric.update(torch.tensor(p[:20], requires_grad=True), torch.tensor(y[:20]))
    assert metric(p[20:], y[20:]) == pytest.approx(sc.smooth_ce(y[20:], p[20:]))
    assert metric.compute() == pytest.approx(sc.smooth_ce(y, p))
    metric.reset()
    metric.update([0.5], [1])
    assert metric.compute() == 0.5


def test_it_scores_in_scikit_learn():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import cross_val_score

    x, y = sc.gauss(300, np.random.default_rng(0))
    scorer = make_scorer(sc.smooth_ce, response_method="predict_proba", greater_is_better=False)
    found = cross_val_score(LogisticRegression(), x, y, scoring=scorer, cv=3)
    assert np.all((found > -0.2) & (found <= 0))


def test_a_well_calibrated_predictor_takes_no_longer_than_a_wrong_one():
    # The stacks of the plain dynamic programme need sqrt n moves a point here; the queue removes each breakpoint once.
    import time

    times = []
    for power in (1.0, 2.0):
        y, p = made(1, 200_000, power)
        sc.smooth_ce(y, p)
        start = time.process_time()
        sc.smooth_ce(y, p)
        times.append(time.process_time() - start)
    assert times[0] < 5 * times[1]


@pytest.mark.parametrize(
    ("y", "p", "words"),
    [
        ([], [], "is empty"),
        ([0, 1], [0.1], "2 labels for 1 predictions"),
        ([0, 1], [0.1, float("nan")], r"y_prob\[1\] is NaN"),
        ([0, 1], [0.1, 1.2], "outside .* smooth_ce_logit"),
        ([-1, 1], [0.1, 0.2], r"\(y \+ 1\) / 2"),
        ([0, 2], [0.1, 0.2], "not a label"),
        (["a", "b"], [0.1, 0.2], "no numbers"),
        ([0, 1], [[0.1, 0.9], [0.2, 0.8]], "for two columns, the second"),
    ],
)
def test_bad_input_gets_one_sentence(y, p, words):
    with pytest.raises(DataError, match=words) as caught:
        sc.smooth_ce(y, p)
    assert "\n" not in str(caught.value)


def test_bad_weights_get_one_sentence():
    for weight, words in (
        ([1, -1], "at least 0"),
        ([0, 0], "sums to 0"),
        ([1], "1 values for 2"),
        ([1, math.inf], "finite"),
    ):
        with pytest.raises(DataError, match=words):
            sc.smooth_ce([0, 1], [0.2, 0.7], sample_weight=weight)


# -- lower distance ----------------------------------------------------------------------------------------------------


def test_lower_distance_equals_the_oracle(oracle):
    found = oracle("smooth_calibration", "lower_distance")
    for case in found["cases"]:
        value = sc.lower_distance(case["y"], case["prob"], grid=case["grid"])
        assert value == pytest.approx(case["lower_distance"], abs=found["tolerance_abs"])


@pytest.mark.parametrize("seed", range(4))
def test_lower_distance_and_smooth_error_bound_each_other(seed):
    y, p = made(seed, 40)
    p = np.round(p, 2)
    value, distance = sc.smooth_ce(y, p), sc.lower_distance(y, p)
    assert value / 2 - 1e-9 <= distance <= 2 * value + 1e-9
    with pytest.raises(UsageError, match="grid=1"):
        sc.lower_distance(y, p, grid=1)


# -- post-processing gap -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_quadratic_chain_is_optimal(seed):
    # By the conditions of optimality: a linear programme finds no feasible direction of descent.
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 50))
    a, b = rng.exponential(size=m) + 0.01, rng.normal(size=m)
    d = rng.exponential(size=m - 1) * rng.choice([0.01, 0.1, 1.0])
    if seed % 4 == 0:
        b, d = np.round(b, 1), np.round(d, 1)
    bound = rng.choice([0.2, 0.7, np.inf])
    k = quadratic_chain(a, b, d, -bound, bound)
    assert np.all(np.abs(np.diff(k)) <= d + 1e-12)
    assert np.abs(k).max() <= bound
    slope = 2 * a * (k - b)
    steps = np.eye(m)[1:] - np.eye(m)[:-1]
    room = np.concatenate([d - np.diff(k), d + np.diff(k)])
    box = [(max(-1.0, -bound - x), min(1.0, bound - x)) for x in k]
    matrix, limits = (np.vstack([steps, -steps]), np.maximum(room, 0)) if m > 1 else (None, None)
    assert linprog(slope, A_ub=matrix, b_ub=limits, bounds=box).fun >= -1e-7


@given(samples)
def test_gaps_lie_between_their_bounds(pairs):
    y, p = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    value, gap = sc.smooth_ce(y, p), sc.post_processing_gap(y, p)
    assert value**2 - 1e-9 <= gap <= 2 * value + 1e-9
    g = 12 * p - 6
    dual, gap = sc.smooth_ce_logit(y, g), sc.post_processing_gap_logit(y, g)
    assert 2 * dual**2 - 1e-7 <= gap <= 4 * dual + 1e-7


def test_gaps_equal_a_general_solver():
    cp = pytest.importorskip("cvxpy")
    y, p = made(8, 25)
    p = np.sort(p)
    k = cp.Variable(len(p))
    within = [cp.abs(cp.diff(k)) <= np.diff(p), p + k >= 0, p + k <= 1]
    solved = cp.Problem(cp.Minimize(cp.sum_squares(y - p - k) / len(p)), within).solve(solver="CLARABEL")
    assert sc.post_processing_gap(y, p) == pytest.approx(np.mean((y - p) ** 2) - solved, abs=1e-7)
    g = 10 * p - 5
    within = [cp.abs(cp.diff(k)) <= np.diff(g), cp.abs(k) <= 4]
    t = g + k
    solved = cp.Problem(cp.Minimize(cp.sum(cp.logistic(t) - cp.multiply(y, t)) / len(p)), within).solve(
        solver="CLARABEL"
    )
    start = np.mean(np.logaddexp(0, g) - y * g)
    assert sc.post_processing_gap_logit(y, g) == pytest.approx(start - solved, abs=1e-6)


def test_corrections_lower_the_loss_by_the_gap_and_keep_probabilities():
    y, p = made(9, 300)
    gap, correction = sc.post_processing_gap(y, p, return_correction=True)
    fixed = p + correction(p)
    assert 0 <= fixed.min() <= fixed.max() <= 1
    assert sc.brier(y, p) - sc.brier(y, fixed) == pytest.approx(gap)


@pytest.mark.parametrize(("g", "after"), [(1.0, 2.0), (10.0, 14.0)])
def test_a_gap_of_separated_classes_stops_at_the_slope_and_at_the_range(g, after):
    expected = math.log1p(math.exp(-g)) - math.log1p(math.exp(-after))
    assert sc.post_processing_gap_logit([0, 1], [-g, g]) == pytest.approx(expected, rel=1e-6)
