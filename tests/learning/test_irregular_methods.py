"""Elastic measures, interval features, classifiers, scores: oracles, kept libraries, properties."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from assay.core.errors import DataError, UsageError
from assay.learning.irregular.array import from_dense
from assay.learning.irregular.methods import cde, elastic, intervals
from assay.learning.irregular.methods.base import interpolate, panel_of, standardise
from assay.learning.irregular.methods.distance import relative_intervals
from assay.learning.irregular.methods.factories import METHODS, PAPER, get_model, list_paper_models
from assay.learning.irregular.methods.tabular import Ridge
from assay.learning.irregular.scoring import above_chance, aligned, classification_scores

ORACLES = Path(__file__).parents[1] / "oracles" / "irregular"
FAST = ("borf", "iborf", "knn", "knn_time", "lgbm", "lgbm_time", "majority", "rifc", "svm")
DEEP = ("brits", "grud", "ncde", "raindrop", "saits", "timesnet")


def oracle(name):
    return json.loads((ORACLES / f"{name}.json").read_text())["cases"]


@pytest.mark.parametrize("case", oracle("elastic_distances"), ids=lambda c: c["name"])
def test_elastic_measures_agree_with_tslearn(case):
    for key, value in case.items():
        kind, _, rest = key.partition("_")
        radius = int(rest.rpartition("sakoe")[2]) if "sakoe" in rest else None
        if kind == "dtw":
            assert elastic.dtw(case["a"], case["b"], radius) == pytest.approx(value, abs=1e-9)
        elif kind == "lcss":
            eps = 0.3 if "eps0_3" in rest else 1.0
            assert elastic.lcss(case["a"], case["b"], eps, radius) == pytest.approx(value, abs=1e-9)


series = st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=9), min_size=2, max_size=7)


def plain_dtw(a, b, r):
    n, m = len(a), len(b)
    cost = np.full((n + 1, m + 1), np.inf)
    cost[0, 0] = 0
    for i in range(n):
        for j in range(m):
            low, high = (i - r, i + m - n + r) if n <= m else (i - (n - m) - r, i + r)
            if low <= j <= high:
                cost[i + 1, j + 1] = (a[i] - b[j]) ** 2 + min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
    return np.sqrt(cost[n, m])


@given(series, st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_banded_dtw_is_the_definition_symmetric_and_falls_with_the_radius(found, radius):
    a, b = found[0], found[1]
    value = elastic.dtw(a, b, radius)
    assert value == pytest.approx(plain_dtw(a, b, radius))
    assert value == pytest.approx(elastic.dtw(b, a, radius))
    assert elastic.dtw(a, b, radius + 1) <= value + 1e-9
    assert elastic.dtw(a, b) <= value + 1e-9
    assert elastic.dtw(a, a, radius) == 0
    assert 0 <= elastic.lcss(a, b, 1.0, radius) <= elastic.lcss(a, b, 1.0) <= 1
    assert elastic.lcss(a, a, 0.0, radius) == 1


@given(series, st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_bounds_and_abandoning_never_change_the_neighbours(found, radius, k):
    packed = elastic.flatten(found)
    k = min(k, len(found))
    whole = elastic.dtw_matrix(packed, packed, radius)
    distances, places = elastic.nearest(packed, packed, k, radius)
    order = np.argsort(whole, axis=1, kind="stable")[:, :k]
    np.testing.assert_allclose(distances, np.take_along_axis(whole, order, axis=1), atol=1e-12)
    assert places.tolist() == order.tolist()


@pytest.mark.slow
def test_random_multivariate_pairs_equal_tslearn():
    metrics = pytest.importorskip("tslearn.metrics")
    rng = np.random.default_rng(0)
    for _ in range(25):
        n, m, channels, r = (int(v) for v in rng.integers((1, 1, 1, 0), (20, 20, 4, 8)))
        a, b = rng.normal(size=(n, channels)), rng.normal(size=(m, channels))
        band = {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": r}
        assert elastic.dtw(a, b, r) == pytest.approx(metrics.dtw(a, b, **band), abs=1e-9)
        assert elastic.lcss(a, b, 1.0, r) == pytest.approx(metrics.lcss(a, b, eps=1.0, **band), abs=1e-9)


def test_a_series_without_values_is_refused():
    with pytest.raises(DataError, match="Series 1 has no value"):
        elastic.from_padded(np.array([[[1.0]], [[np.nan]]]))
    with pytest.raises(DataError, match="Series 0 is empty"):
        elastic.flatten([[], [1.0]])


@given(st.integers(0, 2**31), st.floats(-1e4, 1e4), st.floats(1e-2, 1e3))
@settings(max_examples=40, deadline=None)
def test_interval_statistics_equal_numpy_and_scipy(seed, shift, scale):
    from scipy.stats import kurtosis, skew

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3, 2, 24)) * scale + shift
    X[rng.random(X.shape) < 0.3] = np.nan
    spans = intervals.draw_intervals(24, rng, 5)
    found = intervals.interval_features(X, spans)
    for i, (start, stop) in enumerate(spans):
        part = X[..., start:stop]
        for s in range(3):
            for c in range(2):
                window = part[s, c][~np.isnan(part[s, c])]
                if len(window) == 0:
                    assert np.isnan(found[s, c, i]).all()
                    continue
                plain = [window.mean(), window.std(), window.min(), window.max(), np.median(window)]
                np.testing.assert_allclose(found[s, c, i, :5], plain, rtol=1e-7, atol=1e-7 * scale)
                if len(window) > 2:
                    np.testing.assert_allclose(
                        found[s, c, i, 5:], [skew(window), kurtosis(window)], rtol=1e-4, atol=1e-4
                    )


def test_intervals_lie_inside_and_bad_counts_are_refused():
    spans = intervals.draw_intervals(50, np.random.default_rng(0), "sqrt")
    assert (spans[:, 0] < spans[:, 1]).all()
    assert spans.max() <= 50
    with pytest.raises(UsageError, match="n_intervals"):
        intervals.draw_intervals(50, np.random.default_rng(0), "many")  # type: ignore[arg-type]


@pytest.mark.parametrize("case", oracle("preprocessing"), ids=lambda c: c["name"])
def test_preprocessing_is_the_published_one(case):
    if case["name"] == "fill_time_index":
        found = cde.fill_times(np.array(case["T"], float), case["nan_delta"])
        np.testing.assert_allclose(found, np.array(case["filled"], float), atol=1e-9)
    else:
        found = standardise(np.array(case["X"], float))
        np.testing.assert_allclose(found, np.array(case["standardised"], float), atol=1e-7)


def test_the_cubic_path_meets_its_knots_and_is_exact_on_lines():
    rng = np.random.default_rng(1)
    times = np.sort(rng.random((3, 9)), axis=1)
    path = rng.normal(size=(3, 9, 2))
    np.testing.assert_allclose(cde.cubic_path(path, times, times), path, atol=1e-12)
    line = times[..., None] * np.array([2.0, -1.0]) + 3.0
    at = np.linspace(times[:, 0], times[:, -1], 20, axis=1)
    np.testing.assert_allclose(cde.cubic_path(line, times, at), at[..., None] * np.array([2.0, -1.0]) + 3.0, atol=1e-9)


def test_a_constant_field_carries_the_state_by_the_path_s_whole_increment():
    torch = pytest.importorskip("torch")
    from assay.learning.irregular.methods.controlled import Field

    model = Field(channels=3, classes=2, hidden=4, width=5)
    with torch.no_grad():
        model.field[2].weight.zero_()
        model.field[2].bias.copy_(torch.linspace(-1, 1, 12))
    path = torch.randn(6, 20, 3, generator=torch.Generator().manual_seed(0))
    logits = model(path[:, 0], path.diff(dim=1))
    matrix = torch.tanh(torch.linspace(-1, 1, 12)).view(4, 3)
    expected = model.out(model.start(path[:, 0]) + (path[:, -1] - path[:, 0]) @ matrix.T)
    torch.testing.assert_close(logits, expected)


def spirals(n, seed):
    """Two classes that turn left or right from any phase, at 30 random times: no single value tells them apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    T = np.sort(rng.random((n, 30)), axis=1) * 2 * np.pi
    angle = np.where(y == 1, 1, -1)[:, None] * T + rng.uniform(0, 2 * np.pi, (n, 1))
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.exp(-0.1 * T)[:, None], y, T


def test_the_neural_cde_tells_which_way_a_spiral_turns():
    X, y, T = spirals(160, 0)
    model = get_model("ncde", epochs=120, random_state=0).fit(X[:80], y[:80], T[:80])
    assert np.mean(model.predict(X[80:], T[80:]) == y[80:]) > 0.85


def test_channels_with_two_points_are_zero_and_gaps_are_filled():
    values = np.array([[[1.0, np.nan, 5.0, np.nan], [1.0, np.nan, 3.0, 2.0]]])
    path = cde.path_values(values, np.array([[0.0, 1.0, 2.0, 3.0]]))
    assert (path[0, 0] == 0).all()
    assert path[0, 1, 1] == pytest.approx((path[0, 1, 0] + path[0, 1, 2]) / 2)
    late = cde.path_values(np.array([[[np.nan, 1.0, 3.0, 2.0, np.nan]]]), np.arange(5.0)[None])[0, 0]
    np.testing.assert_allclose(late, [0.0, -(1.5**0.5), 1.5**0.5, 0.0, 0.0], atol=1e-6)
    filled = interpolate(np.array([[[np.nan, 2.0, np.nan, 4.0, np.nan]]]))
    np.testing.assert_array_equal(filled, [[[2.0, 2.0, 3.0, 4.0, np.nan]]])


def toy(n=60, seed=0):
    """Two classes by level, unequal lengths, gaps, two channels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 2, 20)) * 0.3 + 2.0 * y[:, None, None] * np.linspace(0, 1, 20)
    lengths = rng.integers(12, 21, n)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, :, 0] = np.nan_to_num(X[:, :, 0])
    X[np.arange(20) >= lengths[:, None, None].repeat(2, 1)] = np.nan
    return X, np.where(y == 1, "up", "flat")


def check_learns(name, options, least):
    X, y = toy()
    model = get_model(name, **options)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    model = clone(model).fit(X[:40], y[:40])
    probabilities = model.predict_proba(X[40:])
    assert probabilities.shape == (20, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-9)
    assert model.classes_.tolist() == ["flat", "up"]
    assert np.mean(model.predict(X[40:]) == y[40:]) >= least
    again = clone(model).fit(X[:40], y[:40])
    np.testing.assert_array_equal(again.predict(X[40:]), model.predict(X[40:]))
    # Longer and shorter series than any that was learnt from.
    assert len(model.predict(X[40:, :, :15])) == 20
    assert len(model.predict(np.concatenate([X[40:], X[40:]], axis=2))) == 20


@pytest.mark.parametrize("name", FAST)
def test_classifiers_learn_repeat_and_take_other_lengths(name):
    if name in ("borf", "iborf"):
        pytest.importorskip("fast_borf")
    check_learns(name, {}, 0.5 if name in ("majority", "svm") else 0.8)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n in ("brits", "raindrop", "saits", "timesnet") else [])
        for n in DEEP
    ],
)
def test_deep_classifiers_learn_repeat_and_take_other_lengths(name):
    options = {"epochs": 25} | ({} if name in ("ncde", "raindrop") else {"hidden": 16}) | {"learning_rate": 0.01}
    check_learns(name, options, 0.7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rocket", "rocket_ridge", "rocket_time"])
def test_rocket_learns_and_repeats(name):
    check_learns(name, {"n_kernels": 168}, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["knn", "lgbm", "majority", "rifc", "svm"])
def test_estimators_keep_scikit_learns_rules(name):
    from sklearn.utils.estimator_checks import estimator_checks_generator

    failed = []
    for estimator, check in estimator_checks_generator(get_model(name)):
        try:
            check(estimator)
        except Exception as error:
            if type(error).__name__ != "SkipTest":
                failed.append((check.func.__name__, str(error)[:120]))
    assert failed == []


def test_input_forms_are_one_and_bad_ones_are_refused():
    X = np.array([[[1.0, 2.0, np.nan]], [[3.0, np.nan, np.nan]]])
    panel = panel_of(X)
    np.testing.assert_array_equal(panel.times, [[0, 1, np.nan], [0, np.nan, np.nan]])
    assert panel.lengths.tolist() == [2, 1]
    listed = panel_of([X[0, :, :2], X[1, :, :1]])
    np.testing.assert_array_equal(listed.values, X[:, :, :2])
    np.testing.assert_array_equal(panel_of(X[:, 0]).values, X)
    with pytest.raises(ValueError, match="infinity"):
        panel_of([[np.inf, 1.0]])
    with pytest.raises(DataError, match="same channels"):
        panel_of([np.ones((1, 3)), np.ones((2, 3))])
    with pytest.raises(DataError, match="Times have shape"):
        panel_of(X, np.ones(3))
    with pytest.raises(UsageError, match="1 channels, but were fitted with 2"):
        get_model("majority").fit(np.ones((2, 2, 3)), [0, 1]).predict(np.ones((1, 1, 3)))
    with pytest.raises(ValueError, match="2 series"):
        get_model("majority").fit(np.ones((2, 1, 3)), [0])


def test_an_array_brings_its_labels_and_times():
    X, y = toy(20)
    array = from_dense(X, y=(y == "up").astype(int), split=["train"] * 20)
    model = get_model("knn").fit(array)
    assert model.classes_.tolist() == [0, 1]
    assert len(model.predict(array)) == 20


def test_time_aware_neighbours_tell_sampling_apart_and_plain_ones_do_not():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = np.tile(np.sin(np.linspace(0, 6, 30)), (40, 1, 1)) + rng.normal(size=(40, 1, 30)) * 0.05
    T = np.linspace(0, 1, 30)[None, :] ** np.where(y == 1, 3.0, 1.0)[:, None]
    seeing = get_model("knn_time", time_weight=3.0).fit(X[:20], y[:20], T[:20])
    assert np.mean(seeing.predict(X[20:], T[20:]) == y[20:]) == 1.0
    blind = get_model("knn").fit(X[:20], y[:20], T[:20]).predict(X[20:], T[20:])
    assert np.mean(blind == y[20:]) < 1.0


def test_relative_intervals_are_one_where_sampling_is_even_and_end_with_the_series():
    panel = panel_of(np.array([[[1.0, 2.0, 3.0]], [[1.0, 2.0, np.nan]], [[1.0, 2.0, 3.0]]]))
    np.testing.assert_array_equal(relative_intervals(panel), [[1, 1, 1], [1, 1, np.nan], [1, 1, 1]])
    panel = panel_of(np.ones((1, 1, 3)), [[10.0, 11.0, 14.0]])
    np.testing.assert_allclose(relative_intervals(panel), [[1, 0.5, 1.5]])


def test_ridge_gives_probabilities_that_rise_with_the_margin():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    for y in (X[:, 0] > 0, np.digitize(X[:, 0], [-0.5, 0.5])):
        found = Ridge((0.1, 1.0, 10.0)).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(found.sum(axis=1), 1.0)
        assert 0 < found.min() < found.max() < 1
        assert np.corrcoef(found[:, -1], X[:, 0])[0, 1] > 0.8


def test_a_single_class_is_answered_always():
    X, _ = toy(10)
    for name in ("knn", "lgbm", "grud"):
        model = get_model(name).fit(X, ["only"] * 10)
        assert set(model.predict(X)) == {"only"}


def test_models_are_listed_by_name_and_unknown_ones_refused():
    assert len(list_paper_models()) == len(PAPER) == 12
    assert set(PAPER) < set(METHODS)
    assert get_model("GRU-D").network == "grud"
    with pytest.raises(UsageError, match="rifc"):
        get_model("rifcc")
    with pytest.raises(UsageError, match="network"):
        get_model("grud", network="lstm").fit(*toy(8))


def test_what_was_not_fitted_says_so():
    from sklearn.exceptions import NotFittedError

    for name in ("knn", "grud", "ncde"):
        with pytest.raises(NotFittedError):
            get_model(name).predict(np.ones((1, 1, 3)))


@pytest.mark.parametrize("case", oracle("metrics"), ids=lambda c: c["name"])
def test_scores_are_scikit_learns(case):
    found = classification_scores(case["y_true"], case["y_pred"])
    for name in ("accuracy", "f1_macro", "balanced_accuracy"):
        assert found[name] == pytest.approx(case[name], abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_scores_equal_scikit_learn_on_any_labels(pairs):
    from sklearn.metrics import f1_score

    y, p = zip(*pairs)
    found = classification_scores(y, p)
    assert found["f1_macro"] == pytest.approx(f1_score(y, p, average="macro", zero_division=0))
    assert found["f1_weighted"] == pytest.approx(f1_score(y, p, average="weighted", zero_division=0))
    assert 0 <= found["balanced_accuracy"] <= 1


def test_chance_and_label_types():
    better, worse = above_chance(80, 150, 1 / 3)
    assert better < 1e-5 < worse
    assert aligned(["1", 2.0, "x"], [1, 2]) == [1, 2, "x"]
    with pytest.raises(DataError, match="1 predictions for 2"):
        classification_scores([0, 1], [0])
