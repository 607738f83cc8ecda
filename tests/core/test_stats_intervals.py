"""Intervals against closed forms, statsmodels and published numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from assay.core.errors import DataError, UsageError
from assay.core.metrics import evaluate, macro, mean, ratio
from assay.core.stats.intervals import (
    Linear,
    bootstrap_interval,
    critical,
    fisher_z,
    layered_variance,
    linear_interval,
    mean_interval,
    ratio_interval,
    unit_influence,
    wilson,
    woodruff,
)
from assay.core.stats.resampling import (
    MAX_UNITS,
    Resampler,
    block_codes,
    chunks,
    concatenated_ranges,
    multinomial_weights,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def linear(x, *, cluster=None, d=None, stratum=None, weight=None, sample=None) -> Linear:
    x = np.asarray(x, float)
    cluster = np.arange(len(x)) if cluster is None else np.asarray(cluster)
    stratum = np.zeros(len(x), dtype=int) if stratum is None else np.asarray(stratum)
    strata = int(stratum.max()) + 1
    weight = np.full(strata, 1 / strata) if weight is None else np.asarray(weight, float)
    d = np.ones(len(x)) if d is None else np.asarray(d, float)
    return Linear(x, d, cluster, cluster if sample is None else np.asarray(sample), stratum, weight)


def test_wilson_and_fisher_match_published_numbers(oracle):
    data = oracle("hume", "confidence_intervals")
    for case in data["cases"]:
        if case["kind"] == "wilson":
            found = wilson(case["successes"], case["n"])
        else:
            found = fisher_z(case["r"], case["n"])
        assert [float(v) for v in found] == pytest.approx(case["expected"], abs=data["tolerance_abs"])
    (case,) = oracle("sae_interference", "paired_choice_test")["cases"]
    assert [float(v) for v in wilson(case["successes"], case["n"])] == pytest.approx(case["wilson95"], abs=1e-9)


@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
@settings(max_examples=60, deadline=None)
def test_wilson_equals_statsmodels(n, share, level):
    c = round(n * share)
    low, high = wilson(c, n, level)
    want = proportion_confint(c, n, alpha=1 - level, method="wilson")
    assert (float(low), float(high)) == pytest.approx((max(want[0], 0), min(want[1], 1)), abs=1e-9)


def test_wilson_of_nothing_is_nan_and_of_the_impossible_an_error():
    assert np.all(np.isnan(wilson(0, 0)))
    with pytest.raises(DataError):
        wilson(5, 4)
    with pytest.raises(DataError):
        fisher_z(1.2, 10)
    assert np.all(np.isnan(fisher_z(0.5, 3)))


def test_a_proportion_with_one_attempt_a_cluster_is_plain_wilson():
    found = mean_interval([1, 0, 1, 1, 0, 1, 1, 1], rng=rng())
    assert found.method == "Wilson"
    assert (found.low, found.high) == pytest.approx(proportion_confint(6, 8, method="wilson"))


def test_the_cluster_robust_error_is_that_of_regression_on_a_constant():
    r = rng()
    cluster = np.repeat(np.arange(25), r.integers(1, 6, 25))
    x = r.normal(size=len(cluster)) + r.normal(size=25)[cluster]
    found = mean_interval(x, cluster, rng=rng())
    fit = sm.OLS(x, np.ones(len(x))).fit(
        cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": True, "df_correction": True}
    )
    # statsmodels' factor is G/(G-1) * (N-1)/(N-K) with K = 1: the same.
    assert found.se == pytest.approx(float(fit.bse[0]))
    assert found.df == pytest.approx(24)


def test_few_clusters_get_the_textbook_t_interval():
    x = [3.0, 4.5, 5.0, 2.5, 6.0]
    found = mean_interval(x, rng=rng())
    want = stats.ttest_1samp(x, 0).confidence_interval()
    assert found.method == "cluster t"
    assert (found.low, found.high) == pytest.approx((want.low, want.high))


def test_macro_error_is_the_stratified_one():
    stratum = np.repeat([0, 1, 2], [4, 6, 5])
    x = rng().normal(size=15)
    influence, layer = unit_influence(linear(x, stratum=stratum), "samples")
    variance, df = layered_variance(influence, layer)
    parts = np.array([x[stratum == s].var(ddof=1) / (stratum == s).sum() / 9 for s in range(3)])
    assert variance == pytest.approx(parts.sum())
    assert df == pytest.approx(parts.sum() ** 2 / (parts**2 / np.array([3, 5, 4])).sum())


def test_macro_over_the_clusters_themselves_is_the_mean_of_cluster_means():
    cluster = np.repeat(np.arange(9), 4)
    x = rng().normal(size=36)
    influence, layer = unit_influence(linear(x, cluster=cluster, stratum=cluster), "samples")
    variance, df = layered_variance(influence, layer)
    means = x.reshape(9, 4).mean(axis=1)
    assert variance == pytest.approx(means.var(ddof=1) / 9)
    assert df == pytest.approx(8)


def test_strata_inside_clusters_vary_as_the_clusters_do():
    cluster = np.repeat(np.arange(6), 4)
    stratum = np.repeat(np.arange(12), 2)
    x = rng().normal(size=24)
    influence, layer = unit_influence(linear(x, cluster=cluster, stratum=stratum), "samples")
    variance, _ = layered_variance(influence, layer)
    assert variance == pytest.approx(x.reshape(6, 4).mean(axis=1).var(ddof=1) / 6)


def test_attempts_within_samples_pool_their_variances():
    sample = np.repeat(np.arange(3), 4)
    x = rng().normal(size=12) + sample * 10
    found = linear_interval(linear(x, cluster=sample, sample=sample), "attempts", rng=rng())
    variance = sum(x[sample == s].var(ddof=1) / 4 for s in range(3)) / 9
    assert found.se == pytest.approx(np.sqrt(variance))
    assert found.units == 12


def test_a_single_attempt_has_no_noise_to_show_and_that_is_said():
    sample = np.array([0, 0, 0, 1])
    found = linear_interval(linear([1.0, 2, 4, 9], cluster=sample, sample=sample), "attempts", rng=rng())
    assert "1 samples with a single attempt" in found.note
    found = linear_interval(linear([1.0, 2.0]), "attempts", rng=rng())
    assert np.isnan(found.low)
    assert found.note == "no interval: no sample has a second attempt"


def test_one_cluster_has_no_interval():
    found = mean_interval([1.0, 2.0, 3.0], ["a", "a", "a"], rng=rng())
    assert found.value == 2.0
    assert np.isnan(found.low)
    assert found.note == "no interval: there is only one cluster"


def test_all_right_in_every_attempt_is_not_certainty():
    found = mean_interval(np.ones(20), np.repeat(np.arange(5), 4), rng=rng())
    assert found.high == 1.0
    assert found.low == pytest.approx(proportion_confint(5, 5, method="wilson")[0])


def test_scores_that_never_vary_say_so():
    found = mean_interval(np.full(30, 2.5), rng=rng())
    assert (found.low, found.high) == (2.5, 2.5)
    assert "no variation" in found.note


def test_the_studentised_bootstrap_follows_skewness():
    found = mean_interval(rng().lognormal(0, 1, 80), rng=rng())
    assert found.method == "studentised cluster bootstrap"
    assert found.high - found.value > 1.2 * (found.value - found.low)


def test_ratio_of_sums_and_bootstrap_against_a_plain_loop():
    r = rng()
    n, d = r.exponential(size=60), r.exponential(size=60) + 0.5
    found = ratio_interval(n, d, resamples=4000, rng=rng())
    value = n.sum() / d.sum()

    def studentise(n, d):
        u = (n - n.sum() / d.sum() * d) / d.sum()
        return n.sum() / d.sum(), np.sqrt(60 / 59 * (u**2).sum())

    t = []
    for _ in range(4000):
        at = r.integers(0, 60, 60)
        v, se = studentise(n[at], d[at])
        t.append((v - value) / se)
    se = studentise(n, d)[1]
    want = value - np.quantile(t, 0.975) * se, value - np.quantile(t, 0.025) * se
    assert found.value == pytest.approx(value)
    assert found.se == pytest.approx(se)
    assert (found.low, found.high) == pytest.approx(want, abs=0.1 * se)


def test_woodruff_reads_the_median_off_order_statistics():
    x = np.arange(1.0, 101.0)
    found = woodruff(x, linear(x), "samples", 0.95)
    assert found.value == 50.5
    # Exact binomial interval of the median for n = 100: 40th and 61st order statistics.
    assert abs(found.low - 40) <= 1
    assert abs(found.high - 61) <= 1


def test_pooling_many_clusters_into_blocks_keeps_the_interval():
    x = np.random.default_rng(3).exponential(size=3 * MAX_UNITS)
    found = mean_interval(x, rng=rng())
    half = 1.959964 * x.std(ddof=1) / np.sqrt(len(x))
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.05)
    codes = block_codes(rng(), 3 * MAX_UNITS)
    assert codes is not None
    assert np.all(np.bincount(codes) == 3)


# Draws ----------------------------------------------------------------------------------------------------------------


def test_weights_count_draws_and_memory_is_bounded():
    w = multinomial_weights(rng(), 500, 30)
    assert w.shape == (500, 30)
    assert np.all(w.sum(axis=1) == 30)
    assert w.mean(axis=0) == pytest.approx(np.ones(30), abs=0.2)
    assert w.var() == pytest.approx(1 - 1 / 30, abs=0.05)
    pieces = list(chunks(10_000, MAX_UNITS))
    assert sum(pieces) == 10_000
    assert max(pieces) * MAX_UNITS <= 4_000_000


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=12))
def test_concatenated_ranges_is_the_loop(pairs):
    starts, lengths = (np.array([p[i] for p in pairs], dtype=np.intp) for i in (0, 1))
    want = [i for s, n in pairs for i in range(s, s + n)]
    assert concatenated_ranges(starts, lengths).tolist() == want


def test_resamples_respect_the_rule():
    cluster = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    sample = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    trial = np.arange(8)
    resampler = Resampler(cluster, sample, trial)
    r = rng()
    for _ in range(30):
        at = resampler.samples(r)
        drawn = np.bincount(at, minlength=8)
        assert all(len(set(drawn[cluster == c])) == 1 for c in range(3))  # a cluster comes whole
        at = resampler.attempts(r)
        assert np.array_equal(np.bincount(sample[at]), [2, 2, 2, 2])  # every sample stays
        kept, redrawn = resampler.both(r)
        assert np.array_equal(sample[kept], sample[redrawn])
        assert len(set(np.bincount(kept, minlength=8)[cluster == 0])) == 1
    assert sorted(resampler.without(1).tolist()) == [0, 1, 2, 3, 6, 7]


def test_rows_of_one_trial_stay_together():
    sample = np.array([0, 0, 0, 1, 1])
    trial = np.array([0, 0, 1, 2, 3])
    resampler = Resampler(sample, sample, trial)
    r = rng()
    for _ in range(20):
        drawn = np.bincount(resampler.attempts(r), minlength=5)
        assert drawn[0] == drawn[1]


def test_a_function_undefined_in_most_resamples_has_no_interval():
    codes = np.arange(6)
    x = np.array([1.0, 2, 3, 4, 5, 6])
    found = bootstrap_interval(
        lambda at: float(x[at].mean()) if len(set(at)) == 6 else float("nan"),
        3.5,
        Resampler(codes, codes, codes),
        "samples",
        resamples=200,
        rng=rng(),
    )
    assert np.isnan(found.low)
    assert "undefined in" in found.note


def test_bca_limits_match_scipy():
    x = rng().exponential(size=40)
    codes = np.arange(40)
    resampler = Resampler(codes, codes, codes)

    def std(at):
        return float(x[at].std(ddof=1))

    found = bootstrap_interval(std, std(codes), resampler, "samples", resamples=4000, rng=rng())
    want = stats.bootstrap(
        (x,), lambda v, axis: v.std(ddof=1, axis=axis), method="BCa", n_resamples=4000, rng=rng()
    ).confidence_interval
    scale = np.sqrt(40 / 39) * critical(0.95, 39) / critical(0.95)
    value = std(codes)
    want = value + scale * (want.low - value), value + scale * (want.high - value)
    assert found.method == "cluster bootstrap, BCa"
    assert (found.low, found.high) == pytest.approx(want, rel=0.05)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5])
def test_impossible_levels_are_refused(level):
    with pytest.raises(UsageError, match="strictly between 0 and 1"):
        critical(level)


def test_unequal_lengths_are_refused():
    with pytest.raises(UsageError, match="equally long"):
        ratio_interval([1.0, 2.0], [1.0], rng=rng())


@pytest.mark.slow
def test_200_000_records_with_2_000_resamples_take_about_a_second():
    import time

    r = rng()
    n = 200_000
    frame = pl.DataFrame(
        {
            "task": ["t"] * n,
            "sample": [f"s{i}" for i in range(n)],
            "attempt": [0] * n,
            "status": ["ok"] * n,
            "x": r.random(n),
            "items": r.integers(1, 9, n),
            "g": [f"g{i % 300}" for i in range(n)],
        }
    )
    for metric in (mean("x"), ratio("x", "items"), macro("x", over="g")):
        start = time.perf_counter()
        evaluate(metric, frame, resamples=2000)
        assert time.perf_counter() - start < 5  # a busy machine; about 0.5 s on a quiet one
