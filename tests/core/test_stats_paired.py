"""Paired comparison: permutation, McNemar, Holm, power, words; and metrics compared between systems."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as sm_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from assay.core.errors import DataError, UsageError
from assay.core.metrics import (
    avg_at,
    compare,
    compare_all,
    evaluate,
    function,
    macro,
    majority_at,
    mean,
    median,
    pass_at,
    power,
    ratio,
    total,
)
from assay.core.stats.paired import (
    bonett_price,
    decisive_words,
    detectable_difference,
    holm,
    mcnemar,
    needed_units,
    paired_power,
    pilot_power,
    ranking,
    sign_flip_test,
    swap_test,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def frame(x, *, attempts: int = 1, cluster=None, **columns) -> pl.DataFrame:
    n = len(x)
    sample = [f"s{i // attempts:04d}" for i in range(n)]
    return pl.DataFrame(
        {
            "task": ["t"] * n,
            "sample": sample,
            "attempt": [i % attempts for i in range(n)],
            "cluster": sample if cluster is None else cluster,
            "status": ["ok"] * n,
            "x": x,
            **columns,
        },
        strict=False,
    )


# Tests on arrays ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=8))
@settings(deadline=None)
def test_few_units_are_flipped_in_every_way(differences):
    p, exact = sign_flip_test(differences, rng=rng())
    every = [abs(sum(s * d for s, d in zip(signs, differences))) for signs in
             itertools.product((1, -1), repeat=len(differences))]  # fmt: skip
    assert exact
    assert p == pytest.approx(np.mean([v >= abs(sum(differences)) for v in every]))


def test_many_units_agree_with_scipy_and_with_t():
    d = rng().normal(0.3, 1, 60)
    p, exact = sign_flip_test(d, rng=rng(), resamples=20_000)
    assert not exact
    want = stats.permutation_test(
        (d, np.zeros(60)), lambda a, b: (a - b).mean(), permutation_type="samples", n_resamples=20_000, rng=rng()
    ).pvalue
    assert p == pytest.approx(want, abs=0.01)
    assert p == pytest.approx(stats.ttest_1samp(d, 0).pvalue, abs=0.01)


def test_differences_of_zero_and_identical_systems_give_one():
    assert sign_flip_test(np.zeros(100), rng=rng()) == (1.0, True)
    assert sign_flip_test([], rng=rng()) == (1.0, True)


def test_p_values_are_uniform_without_a_difference():
    r = rng()
    p = [sign_flip_test(r.normal(size=30), rng=r, resamples=999)[0] for _ in range(400)]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_swapping_labels_of_ratios_in_strata_is_the_loop():
    r = rng()
    units, strata = 7, 3
    n = r.integers(0, 5, (2, units)).astype(float)
    d = r.integers(1, 5, (2, units)).astype(float)
    stratum = np.array([0, 0, 1, 1, 1, 2, 2])
    weight = np.full(strata, 1 / strata)

    def difference(swap):
        total = 0.0
        for s in range(strata):
            at = stratum == s
            a = np.where(swap[None, :], n[::-1], n)[:, at].sum(axis=1)
            b = np.where(swap[None, :], d[::-1], d)[:, at].sum(axis=1)
            total += weight[s] * (a[0] / b[0] - a[1] / b[1])
        return total

    every = [abs(difference(np.array(s, bool))) for s in itertools.product((0, 1), repeat=units)]
    p, exact = swap_test(n[0], n[1], d[0], d[1], stratum, weight, rng=rng())
    assert exact
    assert p == pytest.approx(np.mean([v >= every[0] - 1e-12 for v in every]))


def test_mcnemar_matches_statsmodels_and_the_published_items(oracle):
    for b, c in itertools.product(range(8), range(8)):
        if b + c:
            want = sm_mcnemar([[5, b], [c, 5]], exact=True).pvalue
            assert mcnemar(b, c) == pytest.approx(float(want))
    assert mcnemar(0, 0) == 1.0
    data = oracle("asciieval", "modality_comparison")
    for case in data["cases"]:
        for key, (one, two) in {
            "mcnemar_both_vs_image": ("both", "image"),
            "mcnemar_image_vs_text": ("image", "text"),
        }.items():
            want = case["expected"][key]
            found = compare(mean("x"), frame(case[one]), frame(case[two]))
            assert found.test == "McNemar, exact"
            assert found.p == pytest.approx(want["p_exact_two_sided"], abs=data["tolerance"])


def test_mid_p_takes_half_of_the_observed_point():
    assert mcnemar(2, 8, mid=True) == pytest.approx(
        2 * (stats.binom.cdf(2, 10, 0.5) - 0.5 * stats.binom.pmf(2, 10, 0.5))
    )
    assert mcnemar(4, 4, mid=True) == pytest.approx(1 - 0.5 * stats.binom.pmf(4, 8, 0.5))
    with pytest.raises(DataError):
        mcnemar(-1, 3)


def test_bonett_price_by_hand():
    p, q, n = 6 / 32, 3 / 32, 32
    half = 1.959963984540054 * np.sqrt((p + q - (p - q) ** 2) / n)
    assert bonett_price(5, 2, 30) == pytest.approx((p - q - half, p - q + half))
    with pytest.raises(DataError):
        bonett_price(20, 20, 30)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(deadline=None, max_examples=15)
def test_holm_equals_statsmodels(p):
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])


def test_holm_leaves_nan_uncounted():
    assert holm([0.01, float("nan"), 0.02])[[0, 2]] == pytest.approx([0.02, 0.02])
    assert np.isnan(holm([0.01, float("nan")])[1])


def test_power_matches_statsmodels():
    for n, d in ((10, 0.5), (50, 0.3), (200, 0.1)):
        want = TTestPower().power(effect_size=d, nobs=n, alpha=0.05)
        assert paired_power(n, d, 1.0) == pytest.approx(want, abs=1e-6)
    want = TTestPower().solve_power(effect_size=0.2, power=0.8, alpha=0.05)
    assert needed_units(0.4, 2.0) == int(np.ceil(want))
    want = TTestPower().solve_power(nobs=64, power=0.9, alpha=0.05)
    assert detectable_difference(64, 3.0, power=0.9) == pytest.approx(3 * want, rel=1e-5)


def test_a_pilot_says_what_a_study_needs():
    d = rng().normal(0.2, 1, 50)
    found = pilot_power(d)
    assert found.needed == needed_units(d.mean(), d.std(ddof=1))
    assert paired_power(50, found.detectable, found.sd) == pytest.approx(0.8)
    assert pilot_power(np.ones(5)).detectable == 0
    assert pilot_power(np.zeros(5)).needed is None
    with pytest.raises(DataError, match="at least two clusters"):
        pilot_power([0.1])
    with pytest.raises(UsageError, match="strictly between 0 and 1"):
        needed_units(0.1, 1.0, power=80)


# Metrics --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["samples", "attempts", "both"])
@pytest.mark.parametrize(
    "metric",
    [mean("x"), ratio("x", "items"), macro("x", over="g"), total("x"), avg_at("x"), pass_at("y", 2), median("x")],
    ids=lambda m: m.name,
)
def test_identical_runs_give_p_one(metric, rule):
    x = rng().normal(size=60)
    one = frame(x, attempts=3, items=[2] * 60, g=[i // 3 % 4 for i in range(60)], y=(x > 0).astype(float))
    found = compare(metric, one, one, resample=rule, resamples=200)
    assert found.difference == 0
    assert found.p == 1.0
    assert not found.decisive
    assert found.n_needed is None


def test_a_known_paired_difference_gets_the_textbook_p():
    r = rng()
    a = r.normal(size=80)
    b = a - 0.25 + 0.8 * r.normal(size=80)
    found = compare(mean("x"), frame(a), frame(b))
    want = stats.ttest_rel(a, b)
    assert found.difference == pytest.approx((a - b).mean())
    assert found.p == pytest.approx(want.pvalue, abs=0.004)
    ci = want.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ci.low, ci.high), abs=0.03)
    assert found.n == 80
    assert found.n_needed == needed_units((a - b).mean(), (a - b).std(ddof=1))


@pytest.mark.parametrize("metric", [mean("x"), avg_at("x"), macro("x", over="g"), total("x"), ratio("x", "items")])
def test_a_pilot_of_records_agrees_with_the_comparison(metric):
    r = rng()
    a = r.normal(size=90)
    b = a + r.normal(size=90) - 0.2
    one, two = (frame(x, attempts=3, g=[i // 3 % 5 for i in range(90)], items=[2] * 90) for x in (a, b))
    found, compared = power(metric, one, two), compare(metric, one, two)
    assert found.n == compared.n_clusters == 30
    assert found.difference == pytest.approx(compared.difference)
    assert found.needed == pytest.approx(compared.n_needed, rel=0.15)  # macro: pooled over strata
    assert power(metric, one, two, difference=10 * compared.difference).needed < found.needed
    with pytest.raises(UsageError, match="no paired differences here: it is no sum"):
        power(median("x"), one, two)


def test_pairing_finds_what_two_separate_intervals_cannot():
    r = rng()
    skill = 3 * r.normal(size=100)
    a, b = frame(skill + 0.2 * r.normal(size=100) + 0.15), frame(skill + 0.2 * r.normal(size=100))
    one, two = evaluate(mean("x"), a), evaluate(mean("x"), b)
    assert one.low < two.high  # overlapping
    assert compare(mean("x"), a, b).decisive


def test_units_are_clusters_not_records():
    r = rng()
    a, b = r.normal(size=(12, 10)), r.normal(size=(12, 10))
    a += r.normal(size=(12, 1)) * 2
    cluster = np.repeat([f"c{i}" for i in range(12)], 10)
    found = compare(mean("x"), frame(a.ravel(), cluster=cluster), frame(b.ravel(), cluster=cluster))
    assert (found.n, found.n_clusters) == (120, 12)
    want, _ = sign_flip_test((a - b).mean(axis=1), rng=rng())
    assert found.p == pytest.approx(want)
    assert found.test == "sign-flip permutation, exact"


def test_random_seeds_pair_attempt_by_attempt():
    a, b = np.array([5.0, 6.0, 7.0, 8.0]), np.array([4.0, 5.5, 6.0, 7.5])
    found = compare(mean("x"), frame(a, attempts=4), frame(b, attempts=4), resample="attempts")
    assert (found.n, found.p) == (4, 2 / 16)
    ci = stats.ttest_rel(a, b).confidence_interval()
    assert (found.low, found.high) == pytest.approx((ci.low, ci.high))


def test_only_what_both_were_tried_on_counts():
    a, b = frame([1.0, 0.0, 1.0, 1.0]), frame([0.0, 0.0])
    found = compare(mean("x"), a, b)
    assert (found.n, found.value_a, found.value_b) == (2, 0.5, 0.0)
    assert "2 without a partner left out" in found.note
    none = compare(mean("x"), a, b.with_columns((pl.lit("z") + pl.col("sample", "cluster")).name.keep()))
    assert np.isnan(none.p)
    assert "nothing that both were tried on" in none.note


def test_modes_of_one_item_pair_across_tasks():
    a, b = frame([1.0, 0.0, 1.0, 1.0]), frame([0.0, 0.0, 1.0, 0.0]).with_columns(task=pl.lit("image"))
    found = compare(mean("x"), a, b)
    assert (found.n, found.difference, found.test) == (4, 0.5, "McNemar, exact")
    assert found == compare(mean("x"), a, b.with_columns(task=pl.lit("t")))


def test_conditions_of_one_problem_pair_by_cluster():
    r = rng()
    cluster = [f"p{i // 2}" for i in range(24)]
    a, b = (frame(r.normal(size=24) + d, attempts=2, cluster=cluster) for d in (1, 0))
    a, b = (f.with_columns(sample=pl.col("sample") + name) for f, name in ((a, "|plain"), (b, "|vote")))
    found = compare(mean("x"), a, b)
    assert (found.n, found.n_clusters) == (12, 12)
    d = (a["x"] - b["x"]).to_numpy().reshape(12, 2).mean(axis=1)
    assert found.p == pytest.approx(sign_flip_test(d, rng=rng())[0])


def test_an_error_of_one_system_counts_against_it():
    a, b = frame([1.0] * 10), frame([1.0] * 10)
    b = b.with_columns(
        status=pl.when(pl.int_range(10) < 3).then(pl.lit("error")).otherwise(pl.lit("ok")),
        x=pl.when(pl.int_range(10) < 3).then(None).otherwise(pl.col("x")),
    )
    assert compare(mean("x"), a, b).difference == pytest.approx(0.3)
    left = compare(mean("x", error=None), a, b)
    assert (left.difference, left.n) == (0.0, 7)


def test_own_functions_and_fast_paths_agree():
    r = rng()
    a = r.normal(size=90)
    b = a + 0.3 * r.normal(size=90) - 0.05
    one, two = frame(a, attempts=3), frame(b, attempts=3)
    fast = compare(mean("x"), one, two)
    own = function("own", lambda f: float(f["x"].mean()), reads=("x",))
    slow = compare(own, one, two, resamples=1500)
    assert slow.difference == pytest.approx(fast.difference)
    assert slow.p == pytest.approx(fast.p, abs=0.04)
    assert (slow.low, slow.high) == pytest.approx((fast.low, fast.high), abs=0.15 * (fast.high - fast.low))


def test_medians_and_majorities_compare():
    r = rng()
    a = frame(r.normal(size=60) + 2)
    b = frame(r.normal(size=60))
    assert compare(median("x"), a, b, resamples=300).decisive
    votes = {"answer": ["p", "p", "q"] * 20}
    a = frame([1.0, 1.0, 0.0] * 20, attempts=3, **votes)
    b = frame([0.0, 0.0, 1.0] * 20, attempts=3, **votes)
    assert compare(majority_at("x", "answer"), a, b).difference == 1.0


def test_groups_known_only_afterwards_do_not_pair_by_sums():
    a = frame([1.0, 0.0, 1.0, 1.0], g=["u", "u", "v", "v"])
    b = frame([0.0, 0.0, 1.0, 0.0], g=["u", "u", "u", "u"])
    found = compare(macro("x", over="g"), a, b, resamples=100)
    assert found.difference == pytest.approx(0.75 - 0.25)
    assert found.test == "label-swap permutation"


def test_coverage_of_the_paired_interval():
    r = np.random.default_rng(8)
    inside = 0
    for _ in range(300):
        skill = r.beta(2, 2, 40).repeat(3)
        a, b = ((r.random(120) < np.clip(skill + shift, 0, 1)).astype(float) for shift in (0.1, 0.0))
        found = compare(mean("x"), frame(a, attempts=3), frame(b, attempts=3), resamples=400)
        inside += found.low <= TRUE_SHIFT <= found.high
    assert 0.93 <= inside / 300 <= 0.97


# E[min(p + 0.1, 1) - p] for p ~ Beta(2, 2)
TRUE_SHIFT = float(np.mean(np.minimum(stats.beta(2, 2).ppf((np.arange(200_000) + 0.5) / 200_000) + 0.1, 1)) - 0.5)


# Many systems and words -----------------------------------------------------------------------------------------------


def systems(*rates: float, n: int = 300) -> dict[str, pl.DataFrame]:
    u = rng().random(n)
    return {f"m{i}": frame((u < rate).astype(float)) for i, rate in enumerate(rates)}


def test_holm_over_all_pairs():
    found = compare_all(mean("x"), systems(0.9, 0.8, 0.5))
    assert [(c.a, c.b) for c in found] == [("m0", "m1"), ("m0", "m2"), ("m1", "m2")]
    assert [c.p_holm for c in found] == pytest.approx(holm([c.p for c in found]).tolist())
    assert all(c.decisive == (c.p_holm < 0.05) for c in found)


def test_words_for_a_decisive_ranking():
    found = compare_all(mean("x"), systems(0.5, 0.95, 0.7))
    assert ranking(found) == ["m1", "m2", "m0"]
    assert decisive_words(found) == (
        "The ranking by x is decisive: all 3 places are told apart (95% level, paired, Holm-adjusted)."
    )


def test_words_for_an_open_lead_say_what_it_would_take():
    r = rng()
    frames = {name: frame((r.random(100) < p).astype(float)) for name, p in (("one", 0.72), ("two", 0.69))}
    found = compare_all(mean("x"), frames)
    text = decisive_words(found)
    assert text.startswith("The ranking by x is not decisive: ")
    assert "is not told apart from" in text
    assert "clusters would show it" in text
    assert text.count(".") >= 1
    assert "\n" not in text


def test_words_for_a_decided_lead_above_an_open_field():
    frames = systems(0.95, 0.5)
    frames["m2"] = frames["m1"]
    text = decisive_words(compare_all(mean("x"), frames))
    assert text == ("m0 leads decisively by x, but the order below is not decisive: not told apart are m1 and m2.")


def test_lower_is_better_turns_the_ranking():
    found = compare_all(mean("x", higher_is_better=False), systems(0.9, 0.2))
    assert ranking(found) == ["m1", "m0"]


def test_one_system_is_no_ranking():
    assert compare_all(mean("x"), systems(0.5)) == []
    assert decisive_words([]) == "There is only one system: nothing to rank."
