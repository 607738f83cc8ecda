"""Imputers of survhte: the official numbers, a plain rebuilding of every curve, and properties."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter

from assay.core.errors import DataError, UsageError
from assay.learning.survhte.imputation import IMPUTERS, KaplanMeier, censoring_survival, impute, ipcw_weights

CASES = json.loads((Path(__file__).parents[1] / "oracles/survhte/imputation.json").read_text(encoding="utf-8"))["cases"]
NAMES = {"Pseudo_obs": "pseudo_obs", "Margin": "margin", "IPCW-T": "ipcw_t"}

rows = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=3, max_size=40)


def split(found: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([t for t, _ in found], float), np.array([e for _, e in found], float)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_imputed_times_are_the_official_ones(case: dict) -> None:
    time, event = np.array(case["train_time"]), np.array(case["train_event"], float)
    curve = KaplanMeier.fit(time, event)
    np.testing.assert_allclose(curve.times, case["km_times"])
    np.testing.assert_allclose(curve.survival, case["km_survival"], atol=1e-12)
    assert curve.linear_zero == pytest.approx(case["km_linear_zero"], abs=1e-9)
    assert curve.mean == pytest.approx(case["km_mean"], abs=1e-9)
    for theirs, ours in NAMES.items():
        np.testing.assert_allclose(impute(ours, time, event), case["imputed"][theirs]["train"], atol=1e-8)
        found = impute(ours, np.array(case["test_time"]), np.array(case["test_event"], float), (time, event))
        np.testing.assert_allclose(found, case["imputed"][theirs]["test"], atol=1e-8)


def plain_pseudo(time: np.ndarray, event: np.ndarray, base: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
    """The definition, every curve rebuilt."""

    def area(times: list[float], survival: list[float]) -> float:
        t, s = [0.0, *times], [1.0, *survival]
        total = sum((t[i + 1] - t[i]) * (s[i + 1] + s[i]) / 2 for i in range(len(t) - 1))
        return total + (t[-1] / (1 - s[-1]) - t[-1]) * s[-1] / 2

    done = time.copy()
    for i in np.flatnonzero(event == 0):
        others = np.arange(len(time)) != i
        b_time, b_event = (time[others], event[others]) if base is None else base
        support = sorted({*b_time[b_event == 1], b_time.max()})
        alone, both, s1, s2 = [], [], 1.0, 1.0
        for t in support:
            d, r = float(((b_time == t) & (b_event == 1)).sum()), float((b_time >= t).sum())
            s1 *= 1 - d / r
            s2 *= 1 - d / (r + 1 if t <= time[i] else r)
            alone.append(s1)
            both.append(s2)
        longer = list(support)
        if time[i] > support[-1]:
            longer.append(time[i])
            both.append(both[-1])
        n = len(b_time) + 1
        done[i] = max(n * area(longer, both) - (n - 1) * area(support, alone), time[i])
    return done


@given(rows)
@settings(max_examples=150, deadline=None)
def test_fast_pseudo_observations_equal_the_definition(found: list[tuple[int, bool]]) -> None:
    time, event = split(found)
    assume(event.sum() >= 1)
    np.testing.assert_allclose(impute("pseudo_obs", time, event), plain_pseudo(time, event, None), atol=1e-8)


@given(rows, rows)
@settings(max_examples=100, deadline=None)
def test_fast_pseudo_observations_of_new_rows_equal_the_definition(
    train: list[tuple[int, bool]], new: list[tuple[int, bool]]
) -> None:
    base = split(train)
    assume(base[1].sum() >= 1)
    time, event = split(new)
    np.testing.assert_allclose(impute("pseudo_obs", time, event, base), plain_pseudo(time, event, base), atol=1e-8)


def plain_margin(c: float, time: np.ndarray, event: np.ndarray) -> float:
    """Area from (c, S(c)) over the later points of the curve and its zero, over S(c)."""
    points, s = [(0.0, 1.0)], 1.0
    for t in sorted(set(time)):
        s *= 1 - float(event[time == t].sum()) / float((time >= t).sum())
        points.append((t, s))
    last, low = points[-1]
    zero = last / (1 - low)
    if low > 0:
        points.append((zero, 0.0))
    here = [value for t, value in points if t <= c][-1] if c <= last else max(1 - c / zero, 0.0)
    rest = [(c, here), *((t, value) for t, value in points if t > c)]
    area = sum((t2 - t1) * (s1 + s2) / 2 for (t1, s1), (t2, s2) in pairwise(rest))
    return c + area / max(here, 1e-10)


@given(rows, rows)
@settings(max_examples=120, deadline=None)
def test_margins_of_new_rows_equal_the_definition_also_past_the_last_time(
    train: list[tuple[int, bool]], new: list[tuple[int, bool]]
) -> None:
    base = split(train)
    assume(base[1].sum() >= 1)
    time, event = split(new)
    found = impute("margin", time, event, base)
    for t, e, value in zip(time, event, found, strict=True):
        assert value == pytest.approx(t if e else plain_margin(t, *base), abs=1e-9)


def test_a_margin_past_the_last_time_lies_half_way_to_the_zero_of_the_line() -> None:
    base = (np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 0.0]))
    # Survival stays at 2/3 from 1 on; the line from (0, 1) through (3, 2/3) is zero at 9.
    found = impute("margin", np.array([3.0, 5.0, 20.0]), np.zeros(3), base)
    np.testing.assert_allclose(found, [6.0, 7.0, 20.0])


@given(rows, st.sampled_from(sorted(IMPUTERS)), st.floats(0.1, 50))
@settings(max_examples=100, deadline=None)
def test_events_stay_times_never_shrink_and_units_do_not_matter(
    found: list[tuple[int, bool]], name: str, unit: float
) -> None:
    time, event = split(found)
    # Margin leaves out a fold of censored rows: two events keep every curve with an event.
    assume(event.sum() >= 2)
    done = impute(name, time, event)
    np.testing.assert_array_equal(done[event == 1], time[event == 1])
    assert np.all(done >= time - 1e-9)
    np.testing.assert_allclose(impute(name, unit * time, event), unit * done, rtol=1e-9)


@given(rows, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_of_rows_does_not_matter_to_imputers_without_folds(found: list[tuple[int, bool]], random) -> None:
    time, event = split(found)
    assume(event.sum() >= 1)
    order = list(range(len(time)))
    random.shuffle(order)
    for name in ("pseudo_obs", "ipcw_t"):
        np.testing.assert_allclose(impute(name, time[order], event[order]), impute(name, time, event)[order], atol=1e-9)


@given(rows)
@settings(max_examples=60, deadline=None)
def test_the_curve_is_that_of_lifelines(found: list[tuple[int, bool]]) -> None:
    time, event = split(found)
    curve = KaplanMeier.fit(time, event)
    theirs = KaplanMeierFitter().fit(time, event).survival_function_at_times(curve.times).to_numpy()
    np.testing.assert_allclose(curve.survival, theirs, atol=1e-12)


def test_inverse_weights_recover_the_mean_of_what_is_censored() -> None:
    rng = np.random.default_rng(0)
    T, C = rng.exponential(1, 20_000), rng.exponential(2, 20_000)
    time, event = np.minimum(T, C), C >= T
    weights = ipcw_weights(time, event, 1.5)
    assert (weights * np.minimum(time, 1.5)).mean() == pytest.approx(1 - np.exp(-1.5), abs=0.02)
    assert weights.mean() == pytest.approx(1, abs=0.02)
    assert np.all(weights[~event & (time < 1.5)] == 0)
    with pytest.raises(UsageError, match="above 0"):
        ipcw_weights(time, event, 0.0)


def test_events_come_before_censorings_at_one_time() -> None:
    time, event = np.array([1.0, 1.0, 2.0]), np.array([1, 0, 1])
    np.testing.assert_allclose(censoring_survival(time, event, np.array([1.0, 1.5])), [1.0, 0.5])


def test_no_event_and_unknown_imputers_are_refused() -> None:
    for name in IMPUTERS:
        with pytest.raises(DataError, match="No event was observed"):
            impute(name, np.array([1.0, 2.0, 3.0]), np.zeros(3))
    for time, event, sentence in (
        ([1.0, np.nan], [1, 0], "Row 1 has the time nan"), ([1.0, -2.0], [1, 0], "Row 1 has the time -2"),
        ([1.0, np.inf], [1, 0], "Row 1 has the time inf"), ([1.0, 2.0], [1, 2], "Row 1 has the event .*2"),
        ([1.0, 2.0], [1, np.nan], "Row 1 has the event .*nan"), ([1.0, 2.0], [1], "shapes"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=sentence):
            impute("ipcw_t", time, event)
        with pytest.raises(DataError, match=sentence):
            impute("margin", [1.0], [0], (time, event))
        with pytest.raises(DataError, match=sentence):
            ipcw_weights(time, event)
    with pytest.raises(UsageError, match="margin"):
        impute("margins", np.array([1.0]), np.ones(1))
    with pytest.raises(DataError, match="no end"):
        _ = KaplanMeier.fit(np.array([1.0]), np.zeros(1)).linear_zero


def test_fifty_thousand_rows_take_less_than_two_seconds() -> None:
    import time as clock

    rng = np.random.default_rng(0)
    time, event = rng.exponential(1, 50_000), rng.integers(0, 2, 50_000).astype(float)
    begun = clock.process_time()
    done = impute("pseudo_obs", time, event)
    assert clock.process_time() - begun < 2
    assert np.isfinite(done).all()
