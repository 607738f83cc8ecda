"""Classes, groups, streams, the penalty, moving witnesses, traces as files, distance tests, edges of exactness."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.learning import smooth_calibration as sc
from assay.learning.smooth_calibration import bounds, methods
from assay.learning.smooth_calibration.inputs import expit


def made(seed: int, n: int, power: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return (rng.random(n) < p**power).astype(int), p


samples = st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1, max_size=40)


# -- edges of exactness ------------------------------------------------------------------------------------------------


EXTREMES = [0.0, 5e-324, 1e-300, 1e-17, 0.5, 1 - 2**-53, 1.0]


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(EXTREMES), st.floats(0, 5)), min_size=1, max_size=20))
def test_extreme_probabilities_ties_and_weights_of_nought_are_exact(triples):
    y, p, w = (np.array(column) for column in zip(*triples, strict=True))
    if w.sum() == 0:
        w = w + 1
    value, witness = sc.smooth_ce(y, p, sample_weight=w, return_witness=True)
    assert value == pytest.approx(sc.smooth_ce_lp(y, p, sample_weight=w), abs=1e-7)
    assert sc.smooth_ce(y, p, sample_weight=w) == pytest.approx(value, abs=1e-13)
    assert abs(witness.gap) < 1e-13
    held = w > 0
    assert sc.smooth_ce(y[held], p[held], sample_weight=w[held]) == pytest.approx(value, abs=1e-13)


def test_whole_weights_are_repetitions():
    y, p = made(0, 40)
    times = np.arange(40) % 4
    whole = sc.smooth_ce(np.repeat(y, times), np.repeat(p, times))
    assert sc.smooth_ce(y, p, sample_weight=times) == pytest.approx(whole, abs=1e-14)
    gap = sc.post_processing_gap(np.repeat(y, times), np.repeat(p, times))
    assert sc.post_processing_gap(y, p, sample_weight=times) == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize("logit", [False, True])
def test_gradient_with_weights_equals_finite_differences(logit):
    y, p = made(4, 60)
    w = 1.0 + np.arange(60) % 5
    values = np.log(p / (1 - p)) if logit else p
    _, gradient = (sc.smooth_ce_logit_gradient if logit else sc.smooth_ce_gradient)(y, values, sample_weight=w)
    error = sc.smooth_ce_logit if logit else sc.smooth_ce
    h = 1e-7
    numeric = [
        (error(y, values + h * e, sample_weight=w) - error(y, values - h * e, sample_weight=w)) / (2 * h)
        for e in np.eye(60)
    ]
    assert np.abs(gradient - numeric).max() < 1e-6


def test_logits_far_apart_free_the_test_function():
    # |h| <= 1 and slope 1/4: from 8 logits on, two points are tried apart.
    y = [1, 0]
    for distance in (2.0, 8.0, 30.0):
        g = np.array([-distance / 2, distance / 2])
        r = 1 / (1 + math.exp(-distance / 2))
        assert sc.smooth_ce_logit(y, g) == pytest.approx(min(2.0, distance / 4) * r / 2)


def test_a_million_samples_keep_the_certificate_and_the_closed_form():
    y, p = made(7, 1_000_000)
    value, witness = sc.smooth_ce(y, p, return_witness=True)
    assert abs(witness.gap) < 1e-12
    # h = -1 attains the mean of p - y, and nothing exceeds it by more than chance.
    assert (p - y).mean() <= value <= 1 / 6 + 3e-3
    assert sc.smooth_ce(y, p) == pytest.approx(value, abs=1e-12)


def test_rounding_outside_the_interval_is_named_with_all_digits():
    with pytest.raises(DataError, match=r"y_prob\[1\] is 1\.0000001192092896, outside \[0, 1\]; clip"):
        sc.smooth_ce([0, 1], np.array([0.5, 1 + 2**-23], np.float32))


def test_lower_distance_of_one_point_is_the_way_to_a_certain_label():
    assert sc.lower_distance([0], [0.3]) == pytest.approx(0.3)
    assert sc.lower_distance([1, 1], [0.3, 0.3], sample_weight=[1, 3]) == pytest.approx(0.7)
    assert sc.lower_distance([0, 1], [0.5, 0.5]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_smoothed_error_lies_between_its_bounds_by_the_lower_distance(seed):
    pytest.importorskip("relplot")
    y, p = made(seed, 60)
    p = np.round(p, 2)
    # dCE >= lower distance, and smECE >= dCE / 2 up to relplot's mesh.
    assert sc.smece(y, p) >= sc.lower_distance(y, p) / 2 - 2e-3


# -- bins and ties -----------------------------------------------------------------------------------------------------


def test_quantile_bins_keep_ties_together_whatever_the_order():
    y, p = np.repeat([0, 1], 50), np.full(100, 0.5)
    assert sc.ece(y, p, bins=10, strategy="mass") == pytest.approx(0.5)
    assert sc.ece(y, p, bins=10, strategy="quantile") == 0
    y, p = made(3, 200)
    p = np.round(p, 1)
    order = np.random.default_rng(0).permutation(200)
    assert sc.ece(y, p, strategy="quantile") == pytest.approx(sc.ece(y[order], p[order], strategy="quantile"))


def test_quantile_bins_are_those_of_scikit_learn():
    from sklearn.calibration import calibration_curve

    y, p = made(5, 333)
    observed, predicted = calibration_curve(y, p, n_bins=12, strategy="quantile")
    mine = sc.bins_of(y, p, bins=12, strategy="quantile")
    assert mine.observed == pytest.approx(observed)
    assert mine.predicted == pytest.approx(predicted)


# -- several classes and groups ----------------------------------------------------------------------------------------


def classes(seed: int, n: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, c, n), rng.dirichlet(np.ones(c), n)


@pytest.mark.parametrize("c", [2, 3, 5])
def test_projected_error_is_the_largest_over_all_sets_of_classes(c):
    y, proba = classes(c, 80, c)
    found = sc.projected_smooth_ce(y, proba)
    every = [
        sc.smooth_ce(np.isin(y, chosen), np.clip(proba[:, chosen].sum(axis=1), 0, 1))
        for size in range(1, c)
        for chosen in itertools.combinations(range(c), size)
    ]
    assert found.exact
    assert found.value == pytest.approx(max(every), abs=1e-12)
    assert found.value >= sc.classwise_smooth_ce(y, proba).max() - 1e-12
    again = sc.smooth_ce(np.isin(y, found.classes), np.clip(proba[:, found.classes].sum(axis=1), 0, 1))
    assert again == pytest.approx(found.value)


def test_many_classes_are_searched_from_below():
    y, proba = classes(0, 60, 14)
    with pytest.raises(UsageError, match="14 classes have too many sets"):
        sc.projected_smooth_ce(y, proba)
    found = sc.projected_smooth_ce(y, proba, rng=np.random.default_rng(0))
    assert not found.exact
    assert found.value >= sc.classwise_smooth_ce(y, proba).max()


def test_no_rows_and_class_numbers_as_floats():
    y, proba = classes(1, 20, 3)
    assert sc.classwise_smooth_ce(y.astype(float), proba) == pytest.approx(sc.classwise_smooth_ce(y, proba))
    with pytest.raises(DataError, match="at least one"):
        sc.classwise_smooth_ce([], np.empty((0, 3)))


def test_a_group_that_is_wrong_is_found_though_the_whole_is_right():
    # Two halves whose errors cancel: each predicts 0.5 where the truth is 0.1 and 0.9.
    rng = np.random.default_rng(0)
    of = np.repeat(["a", "b"], 2000)
    y = (rng.random(4000) < np.where(of == "a", 0.1, 0.9)).astype(int)
    p = np.full(4000, 0.5)
    assert sc.smooth_ce(y, p) < 0.02
    found = sc.group_smooth_ce(y, p, of)
    assert [one.n for one in found] == [2000, 2000]
    for one in found:
        assert one.value == pytest.approx(0.4, abs=0.03)
        assert one.part == pytest.approx(one.value / 2)
    masks = {"all": np.ones(4000, bool), "b": of == "b", "none": np.zeros(4000, bool)}
    overlapping = {one.group: one for one in sc.group_smooth_ce(y, p, masks)}
    assert set(overlapping) == {"all", "b"}
    assert overlapping["all"].value == pytest.approx(sc.smooth_ce(y, p))


@given(samples)
def test_the_error_is_at_most_the_sum_of_the_parts_of_its_groups(pairs):
    y, p = (np.array(column) for column in zip(*pairs, strict=True))
    of = np.arange(len(y)) % 3
    found = sc.group_smooth_ce(y, p, of)
    assert sc.smooth_ce(y, p) <= sum(one.part for one in found) + 1e-12
    assert found[0].part == max(one.part for one in found)


def test_groups_of_another_shape_get_one_sentence():
    for groups, words in (
        (["a"], "one group a sample"),
        ({"x": [1, 0]}, "True or False"),
        ({"x": [False, False]}, "Every group is empty"),
    ):
        with pytest.raises(DataError, match=words):
            sc.group_smooth_ce([0, 1], [0.2, 0.4], groups)


# -- streams -----------------------------------------------------------------------------------------------------------


@given(samples, st.sampled_from([4, 64, 1000]))
def test_a_stream_is_as_near_the_exact_error_as_it_says(pairs, cells):
    y, p = (np.array(column) for column in zip(*pairs, strict=True))
    stream = sc.SmoothCalibrationStream(cells)
    for label, probability in zip(y, p, strict=True):
        stream.update([label], [probability])
    assert len(stream) == len(y)
    assert abs(stream.compute() - sc.smooth_ce(y, p)) <= stream.error_bound + 1e-12
    assert stream.error_bound <= 0.5 / cells * np.abs(y - p).mean() + 1e-12


def test_a_stream_is_exact_on_its_points_and_forgets_what_is_removed():
    y, p = made(1, 500)
    p = np.rint(p * 64) / 64
    stream = sc.SmoothCalibrationStream(64)
    stream.update(y, p)
    assert stream.error_bound == 0
    assert stream.compute() == pytest.approx(sc.smooth_ce(y, p), abs=1e-12)
    stream.remove(y[:200], p[:200])
    assert stream.compute() == pytest.approx(sc.smooth_ce(y[200:], p[200:]), abs=1e-12)
    assert float(np.mean(stream.witness()(p[200:]) * (y - p)[200:])) == pytest.approx(stream.compute(), abs=1e-12)
    stream.remove(y[200:], p[200:])
    with pytest.raises(UsageError, match="no sample yet"):
        stream.compute()
    with pytest.raises(UsageError, match="cannot be removed"):
        stream.remove([1], [0.5])


def test_streams_merge_in_any_order_also_after_a_journey():
    y, p = made(2, 900)
    parts = []
    for i in range(3):
        part = sc.SmoothCalibrationStream()
        part.update(y[i::3], p[i::3])
        parts.append(pickle.loads(pickle.dumps(part)))  # noqa: S301 - its own bytes
    whole, back = sc.SmoothCalibrationStream(), sc.SmoothCalibrationStream()
    for part in parts:
        whole.merge(part)
    for part in reversed(parts):
        back.merge(part)
    assert whole.compute() == pytest.approx(sc.smooth_ce(y, p), abs=whole.error_bound + 1e-12)
    assert whole.compute() == pytest.approx(back.compute(), abs=1e-14)
    with pytest.raises(UsageError, match="does not merge"):
        whole.merge(sc.SmoothCalibrationStream(8))


def test_a_perfect_stream_has_no_error():
    stream = sc.SmoothCalibrationStream(10)
    stream.update([1, 0], [1.0, 0.0])
    assert stream.compute() == 0


# -- penalty -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("logit", [False, True])
def test_the_penalty_has_the_gradient_that_torch_measures(logit):
    torch = pytest.importorskip("torch")
    y, p = made(9, 40)
    values = torch.tensor(np.log(p / (1 - p)) if logit else p, requires_grad=True)
    target = torch.tensor(y)
    value = sc.smooth_ce_penalty(values, target, logit=logit)
    expected = sc.smooth_ce_logit(y, values.detach()) if logit else sc.smooth_ce(y, p)
    assert value.item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda v: sc.smooth_ce_penalty(v, target, logit=logit), (values,), eps=1e-7)
    half = torch.tensor(p[:, None], dtype=torch.float32, requires_grad=True)
    (3 * sc.smooth_ce_penalty(half, target[:, None], logit=False)).backward()
    assert half.grad.shape == (40, 1)
    assert half.grad.numpy().ravel() == pytest.approx(3 * sc.smooth_ce_gradient(y, np.float32(p))[1], abs=1e-6)


def test_training_with_the_penalty_lowers_the_calibration_error():
    torch = pytest.importorskip("torch")
    x, y = sc.gauss(400, np.random.default_rng(0))
    inputs, target = torch.tensor(x[:, :1]), torch.tensor(y)

    def trained(weight: float) -> float:
        # A slope far too steep, and a loss that hardly cares: squared distance of the sign.
        slope = torch.tensor([6.0], dtype=torch.float64, requires_grad=True)
        shift = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([slope, shift], lr=0.05)
        for _ in range(150):
            g = slope * inputs[:, 0] + shift
            loss = ((torch.tanh(g) - (2 * target - 1)) ** 2).mean() + weight * sc.smooth_ce_penalty(g, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return sc.smooth_ce_logit(y, (slope * inputs[:, 0] + shift).detach().numpy())

    assert trained(20.0) < 0.5 * trained(0.0)


# -- witnesses and traces ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts():
    return sc.split("xor", 120, np.random.default_rng(0))


def test_witnesses_of_stages_are_those_of_their_predictions_and_are_drawn(parts, tmp_path):
    model = methods.gbt(stages=12).fit(parts.x_train, parts.y_train)
    rows = sc.witness_trace(model, parts.x_test, parts.y_test, stages=[1, 5, 12], points=21)
    assert sorted({row["t"] for row in rows}) == [1, 5, 12]
    assert len(rows) == 63
    last = [row for row in rows if row["t"] == 12]
    p = model.predict_proba(parts.x_test)[:, 1]
    _, witness = sc.smooth_ce(parts.y_test, p, return_witness=True)
    assert [row["witness"] for row in last] == pytest.approx(witness([row["at"] for row in last]), abs=1e-9)
    spec = sc.witness_map(rows)
    drawn = spec["data"]["values"]
    assert len(drawn) == 60
    assert {(cell["t"], cell["until"]) for cell in drawn} == {(1, 5), (5, 12), (12, 13)}
    sc.save_diagram(spec, tmp_path / "moving.svg")
    assert (tmp_path / "moving.svg").stat().st_size > 1000
    with pytest.raises(UsageError, match="None of the stages"):
        sc.witness_trace(model, parts.x_test, parts.y_test, stages=[99])
    with pytest.raises(UsageError, match="no witness"):
        sc.witness_map([])


def test_a_stop_rule_keeps_the_witnesses_of_live_boosting(parts):
    xgboost = pytest.importorskip("xgboost")
    rule = sc.StopRule(patience=100, witness_points=11)
    callback = sc.xgboost_callback(parts.x_test, parts.y_test, rule)
    model = xgboost.XGBClassifier(n_estimators=6, n_jobs=1, callbacks=[callback])
    model.fit(parts.x_train, parts.y_train.astype(int))
    assert len(rule.witnesses) == 66
    assert rule.witnesses == sc.witness_trace(model, parts.x_test, parts.y_test, points=11) or np.allclose(
        [row["witness"] for row in rule.witnesses],
        [row["witness"] for row in sc.witness_trace(model, parts.x_test, parts.y_test, points=11)],
        atol=1e-4,
    )


@pytest.mark.parametrize("name", ["gbt", "kernel", "network"])
def test_the_trace_of_a_trainer_is_the_trace_of_its_training_part(name, parts):
    model = methods.METHODS[name](stages=30).fit(parts.x_train, parts.y_train)
    rows = sc.trace(model, parts.x_train, parts.y_train, split="train", smoothed=False)
    assert [row["t"] for row in model.trace_] == list(range(1, 31))
    assert set(model.trace_[0]) == set(rows[0])
    for column in ("loss", "grad_l1", "smce", "smce_dual", "mmce"):
        assert [row[column] for row in model.trace_] == pytest.approx([row[column] for row in rows], abs=1e-9)


def test_the_network_of_torch_is_that_of_numpy(parts):
    torch = pytest.importorskip("torch")
    here = sc.TwoLayerNetClassifier(10, 40, random_state=0).fit(parts.x_train, parts.y_train)
    there = sc.TwoLayerNetClassifier(10, 40, random_state=0, device="cpu").fit(parts.x_train, parts.y_train)
    assert there.decision_function(parts.x_test) == pytest.approx(here.decision_function(parts.x_test), abs=1e-10)
    assert there.training_bound_ == pytest.approx(here.training_bound_)
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no such device"):
            sc.TwoLayerNetClassifier(device="cuda").fit(parts.x_train, parts.y_train)


def test_traces_are_written_and_read_as_parquet(parts, tmp_path):
    model = methods.gbt(stages=5).fit(parts.x_train, parts.y_train)
    keys = {"algo": "gbt", "seed": 0, "n": 120}
    rows = [{**keys, **row} for row in sc.trace(model, parts.x_test, parts.y_test)]
    sc.save_traces(rows, tmp_path / "t.parquet")
    assert sc.read_traces(tmp_path / "t.parquet") == rows
    with pytest.raises(DataError, match="Row 0 of the traces has no algo"):
        sc.save_traces([{"seed": 1}], tmp_path / "u.parquet")
    with pytest.raises(DataError, match="no trace to write"):
        sc.save_traces([], tmp_path / "u.parquet")
    rows[2]["ece15"] = 1.5
    sc.save_traces(rows, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"row 3, column ece15: 1\.5 is outside"):
        sc.read_traces(tmp_path / "t.parquet")
    (tmp_path / "v.csv").write_text("algo,seed\ngbt,0\n")
    with pytest.raises(DataError, match="no column 'n'"):
        sc.read_traces(tmp_path / "v.csv")


def test_logits_of_an_early_stopped_xgboost_are_those_of_its_best_iteration(parts):
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=150, learning_rate=0.5, early_stopping_rounds=5, n_jobs=1)
    model.fit(parts.x_train, parts.y_train.astype(int), eval_set=[(parts.x_test, parts.y_test)], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    assert expit(sc.logits_of(model, parts.x_test)) == pytest.approx(model.predict_proba(parts.x_test)[:, 1], abs=1e-5)


@pytest.mark.parametrize("kind", ["gbdt", "dart", "rf"])
def test_stages_of_every_kind_of_lightgbm_end_at_its_prediction(kind, parts):
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(
        boosting_type=kind, n_estimators=8, subsample=0.7, subsample_freq=1, n_jobs=1, verbose=-1, random_state=0
    )
    model.fit(parts.x_train, parts.y_train.astype(int))
    *_, (t, g) = sc.staged_logits(model, parts.x_test)
    assert t == 8
    assert g == pytest.approx(sc.logits_of(model, parts.x_test), abs=1e-6)


@pytest.mark.parametrize("kind", ["gbtree", "dart"])
def test_stages_of_every_kind_of_xgboost_end_at_its_prediction(kind, parts):
    xgboost = pytest.importorskip("xgboost")
    more = {"rate_drop": 0.3} if kind == "dart" else {}
    model = xgboost.XGBClassifier(booster=kind, n_estimators=8, n_jobs=1, random_state=0, **more)
    model.fit(parts.x_train, parts.y_train.astype(int))
    *_, (t, g) = sc.staged_logits(model, parts.x_test)
    assert t == 8
    assert g == pytest.approx(sc.logits_of(model, parts.x_test), abs=1e-4)


def test_a_file_of_logits_is_read(tmp_path):
    file = tmp_path / "logits.csv"
    file.write_text("logit,label\n0.0,1\n-800,0\n")
    y, p = sc.read_predictions(file)
    assert p == pytest.approx([0.5, 0.0])
    assert y.tolist() == [1, 0]


def test_a_file_is_measured_by_groups(tmp_path):
    from assay.learning.smooth_calibration.recipes import measure

    file = tmp_path / "p.csv"
    rows = [f"{0.5},{int(i % 10 < (9 if i % 2 else 1))},{'ab'[i % 2]}" for i in range(100)]
    file.write_text("\n".join(["prob,label,site", *rows]) + "\n")
    measure(tmp_path, file=file, groups="site", resamples=20)
    report = (tmp_path / "report.md").read_text()
    y, p = sc.read_predictions(file)
    for part in sc.group_smooth_ce(y, p, np.array(list("ab") * 50)):
        assert f"| {part.group} | 50 | {part.value:.4f} | {part.part:.4f} |" in report
    assert "| isotonic |" in report
    with pytest.raises(DataError, match="no column 'sites'"):
        measure(tmp_path, file=file, groups="sites")
    file.write_text("prob,label\n0.5,1\n")
    measure(tmp_path, file=file, resamples=5)


# -- margins and distances ---------------------------------------------------------------------------------------------


def test_the_margin_holds_in_every_draw_of_a_simple_law():
    # Truth 0.3 at a prediction of 0.6: the population error is 0.3.
    n = 200
    for seed in range(200):
        y = (np.random.default_rng(seed).random(n) < 0.3).astype(int)
        assert abs(sc.smooth_ce(y, np.full(n, 0.6)) - 0.3) < sc.margin(n, delta=0.005)
    assert sc.margin(10_000) == pytest.approx((2 + math.sqrt(2) + math.sqrt(2 * math.log(20))) / 100)


def test_distance_test_tells_far_from_calibrated_with_the_samples_it_asks_for():
    needed = sc.distance_test([0], [0.1], distance=0.6).needed
    y, p = made(0, needed, 1.0)
    right = sc.distance_test(y, p, distance=0.6)
    assert right.sure
    assert not right.far
    assert right.threshold == pytest.approx(0.15)
    wrong = sc.distance_test(np.zeros(needed), np.full(needed, 0.9), distance=0.6)
    assert wrong.far
    few = sc.distance_test(y[:50], p[:50], distance=0.6)
    assert not few.sure
    tolerant = sc.distance_test(y, p, distance=0.6, tolerance=0.1)
    assert tolerant.threshold == pytest.approx(0.25)
    assert tolerant.needed > needed
    # O(distance^-2).
    assert sc.distance_test(y, p, distance=0.06).needed == pytest.approx(100 * needed, rel=0.01)
    for wrong_options in ({"distance": 0.0}, {"distance": 1.5}, {"distance": 0.4, "tolerance": 0.1}):
        with pytest.raises(UsageError, match="cannot be tested"):
            sc.distance_test(y, p, **wrong_options)


def test_orders_of_stages_and_samples_have_their_closed_forms():
    stages = bounds.kernel_stages_needed(start_loss=0.5, margin=0.5, step=1, error=0.2)
    assert stages == 100
    assert bounds.kernel_training_bound(start_loss=0.5, margin=0.5, step=1, stages=stages) == pytest.approx(0.2)
    assert bounds.trees_samples_needed(c=2, margin=0.5, error=0.1) == pytest.approx(80_000, abs=1)
    assert bounds.network_samples_needed(c=1, error=0.1) == pytest.approx(100, abs=1)
    assert bounds.network_stages_needed(c=1, margin=0.5, error=math.exp(-2)) == math.ceil(16 * math.exp(2))
    whole = bounds.kernel_population_bound(
        training=0.1, c2=1, start_loss=0.5, step=1, stages=100, n=10_000, kappa=1, delta=0.5
    )
    assert whole == pytest.approx(0.1 + 0.01 + 4 * 0.1 + 0.02 * math.sqrt(math.log(4)))


def test_the_integral_of_the_two_sample_bound_is_sharp():
    # ln N = 1 / e: the integral from e to 1 is 2 sqrt(1 / n) (1 - sqrt e), and 8 e + 24 of it is least at e = 9 / n.
    n = 10**4
    expected = 48 / math.sqrt(n) - 72 / n + 2 * math.sqrt(math.log(20) / n)
    assert bounds.two_sample_bound(lambda e: 1 / e, n=n) == pytest.approx(expected, rel=1e-5)
