"""Distances and scores against values of the published code, closed forms and POT."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.speech.ttsds2.distances import Gaussian, frechet, wasserstein
from assay.speech.ttsds2.scoring import (
    Distribution,
    Settings,
    admitted,
    aggregate,
    distance,
    influence,
    score,
    score_feature,
    split_half,
)

ORACLES = Path(__file__).parents[1] / "oracles" / "ttsds2"


def oracle(name):
    return json.loads((ORACLES / f"{name}.json").read_text())


def test_w2_of_numbers_equals_the_published_values():
    found = oracle("wasserstein_1d")
    for case in found["cases"]:
        if "expected_w2" in case:
            assert wasserstein(case["x"], case["y"]) == pytest.approx(case["expected_w2"], rel=1e-9, abs=1e-12)
        else:
            assert wasserstein(case["x"], case["y"]) == pytest.approx(case["expected_w2_exact"], rel=1e-9)
            published = case["official_subsampled_value"]
            assert wasserstein(case["x"], case["y"], compat=True) == pytest.approx(published, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 10**6))
def test_w2_of_unequal_sets_equals_optimal_transport(n, m, seed):
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=n), rng.gamma(2.0, size=m)
    assert wasserstein(x, y) ** 2 == pytest.approx(ot.wasserstein_1d(x, y, p=2), rel=1e-8, abs=1e-12)
    assert wasserstein(y, x) == pytest.approx(wasserstein(x, y), rel=1e-12)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 5), st.integers(0, 999))
def test_repeating_every_value_changes_no_w2(n, a, b, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=n), rng.normal(size=n)
    assert wasserstein(np.repeat(x, a), np.repeat(y, b)) == pytest.approx(wasserstein(x, y), rel=1e-9)


def test_frechet_equals_the_published_values():
    for case in oracle("frechet_nd")["cases"]:
        a = Gaussian(case["mu1"], case["sigma1"])
        b = Gaussian(case["mu2"], case["sigma2"])
        assert frechet(a, b) == pytest.approx(case["expected_squared_w2"], abs=1e-6)
        assert frechet(b, a) == pytest.approx(case["expected_squared_w2"], abs=1e-6)


@pytest.mark.parametrize(("n", "m"), [(9, 7), (9, 60), (60, 9), (60, 50), (16, 17)])
def test_few_rows_and_many_rows_give_one_value(n, m):
    from scipy.linalg import sqrtm

    rng = np.random.default_rng(n * 100 + m)
    x, y = rng.normal(size=(n, 16)), rng.normal(0.3, 1.5, size=(m, 16))
    s, t = np.cov(x.T), np.cov(y.T)
    plain = ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(s + t) - 2 * np.trace(sqrtm(s @ t)).real
    assert frechet(Gaussian.fit(x), Gaussian.fit(y)) == pytest.approx(plain, rel=1e-6)
    assert frechet(Gaussian(x.mean(0), s), Gaussian.fit(y)) == pytest.approx(plain, rel=1e-6)
    known = Gaussian.fit(y)
    np.testing.assert_allclose(known.half.T @ known.half, t, atol=1e-10)
    assert frechet(Gaussian.fit(x), known) == pytest.approx(plain, rel=1e-6)


def test_a_set_without_spread_has_the_closed_form():
    x = np.random.default_rng(0).normal(size=(40, 5))
    constant = Gaussian.fit(np.full((8, 5), 2.0))
    assert frechet(Gaussian.fit(x), constant) == pytest.approx(((x.mean(0) - 2) ** 2).sum() + np.cov(x.T).trace())


def test_a_direction_without_spread_changes_nothing():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)), rng.normal(size=(50, 5))
    flat = [np.concatenate([v, np.zeros((len(v), 2))], axis=1) for v in (x, y)]
    wanted = frechet(Gaussian.fit(x), Gaussian.fit(y))
    assert frechet(*(Gaussian.fit(v) for v in flat)) == pytest.approx(wanted, rel=1e-6)


def test_scores_equal_the_published_values():
    for case in oracle("scores")["cases"]:
        found = score(case["distance_to_references"], case["distance_to_noises"])
        assert found.score == pytest.approx(case["expected_score"], abs=1e-9)
        assert (found.noise, found.reference) == (case["closest_noise"], case["closest_reference"])


def test_aggregates_equal_the_published_values():
    for case in oracle("aggregate")["cases"]:
        means, warnings = aggregate(case["features"])
        assert {k: means[k] for k in case["expected"]} == pytest.approx(case["expected"], abs=1e-9)
        assert not warnings


def test_leaderboard_rows_are_plain_means_of_factors():
    rows = oracle("leaderboard_overall_is_mean")["rows"]
    assert len(rows) == 32
    for row in rows:
        means, _ = aggregate({f.upper(): {"x": row[f]} for f in ("Generic", "Speaker", "Prosody", "Intelligibility")})
        assert means["OVERALL"] == pytest.approx(row["Overall"], abs=0.011)


def test_a_missing_factor_counts_as_zero_and_is_warned_of():
    means, warnings = aggregate({"GENERIC": {"a": 80.0}, "PROSODY": {"b": 60.0}, "SPEAKER": {"c": 100.0}})
    assert means["OVERALL"] == pytest.approx(60)
    assert "INTELLIGIBILITY" in warnings[0]
    with pytest.raises(UsageError, match="SPEKER"):
        aggregate({}, {"SPEKER": 1.0})


def test_what_equals_reference_and_noise_has_no_score():
    with pytest.raises(DataError, match="no score"):
        score({"r": 0.0}, {"n": 0.0})


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [[1.0, 2.0]]])
def test_sets_without_a_distance_are_refused(bad):
    with pytest.raises(DataError):
        wasserstein(bad, [1.0])
    with pytest.raises(DataError):
        Gaussian.fit([[1.0, 2.0]])
    with pytest.raises(DataError, match="no distance"):
        frechet(Gaussian([0], [[1]]), Gaussian([0, 0], np.eye(2)))


def frames(seed, clips=20, d=6, shift=0.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 9, clips)
    return Distribution(rng.normal(shift, 1, (lengths.sum(), d)), lengths)


def test_resampling_by_sums_equals_refitting_repeated_rows():
    some = frames(1)
    counts = np.random.default_rng(2).integers(0, 3, some.clips)
    rows = np.repeat(some.values, np.repeat(counts, some.lengths), axis=0)
    fast, slow = some.fitted(counts), Gaussian.fit(rows)
    np.testing.assert_allclose(fast.mean, slow.mean, atol=1e-12)
    np.testing.assert_allclose(fast.covariance, slow.covariance, atol=1e-12)


def test_a_part_is_what_its_clips_give():
    some = frames(1, clips=5)
    parts = np.split(some.values, np.cumsum(some.lengths)[:-1])
    found = some.part([3, 0])
    np.testing.assert_array_equal(found.values, np.concatenate([parts[3], parts[0]]))
    assert found.lengths.tolist() == [len(parts[3]), len(parts[0])]


def test_replicates_centre_on_the_score_and_fall_with_more_clips():
    noise = {"noise": frames(9, shift=4.0)}
    spread = []
    for clips in (15, 240):
        found = score_feature(frames(1, clips), {"ref": frames(2, clips)}, noise, replicates=60)
        assert found.clips == clips
        assert found.se is not None
        assert abs(found.score - np.nanmean(found.replicates)) < 6 * found.se
        spread.append(found.se)
    assert spread[1] < spread[0] / 2


def test_one_seed_gives_the_same_replicates():
    sets = frames(1), {"ref": frames(2)}, {"noise": frames(3, shift=3.0)}
    a, b = (score_feature(*sets, replicates=5, seed=4).replicates for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_the_clip_that_is_off_pulls_the_score_down():
    values = np.random.default_rng(0).normal(100, 5, 30)
    speech = values.copy()
    speech[17] = 300.0
    found = influence(Distribution(speech), {"ref": Distribution(values)}, {"noise": Distribution(np.zeros(30))})
    assert found.argmin() == 17
    assert found[17] < -1


def test_unsquared_distances_move_scores_to_the_middle():
    speech, ref, noise = frames(1, 80), frames(2, 80, shift=0.4), frames(3, 80, shift=3.0)
    squared = score_feature(speech, {"r": ref}, {"n": noise}).score
    plain = score_feature(speech, {"r": ref}, {"n": noise}, Settings(squared=False)).score
    r, n = (distance(d.fitted(), speech.fitted(), Settings(squared=False)) for d in (ref, noise))
    assert plain == pytest.approx(100 * n / (r + n))
    assert squared == pytest.approx(100 * n**2 / (r**2 + n**2))
    assert 50 < plain < squared


def test_halves_of_one_set_are_admitted_and_halves_of_two_kinds_are_not():
    noise = {"noise": Distribution(np.zeros(40))}
    rng = np.random.default_rng(0)
    same = split_half(Distribution(rng.normal(100, 3, 200)), noise)
    mixed = split_half(Distribution(np.exp(rng.normal(0, 2.5, 12))), noise)
    assert admitted(same)
    assert not admitted(mixed)
    with pytest.raises(DataError, match="four"):
        split_half(Distribution(np.ones(3)), noise)
