"""Bootstraps against drawing records one by one, posteriors against simulation, other laws against closed forms."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.reasoning.cost_of_pass import bayes, laws
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.values import cost_of_pass


def world(models: int = 3, problems: int = 6, runs: int = 4, seed: int = 0, costs: str = "vary") -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    size = models * problems * runs
    rate = np.repeat(rng.uniform(0.1, 0.9, models * problems), runs)
    return pl.DataFrame(
        {
            "model": [f"m{i}" for i in range(models) for _ in range(problems * runs)],
            "family": [f"f{i % 2}" for i in range(models) for _ in range(problems * runs)],
            "problem": np.tile(np.repeat(np.arange(problems), runs), models),
            "run": np.tile(np.arange(runs), models * problems),
            "cost": rng.gamma(4, 0.05, size) if costs == "vary" else np.full(size, 0.2),
            "correct": (rng.random(size) < rate).astype(float),
        }
    )


def one_by_one(frame: pl.DataFrame, unit: str, n: int, expert: float, rng: np.random.Generator) -> np.ndarray:
    """Frontiers of n resamples, drawn record by record."""
    models = sorted(frame["model"].unique())
    problems = sorted(frame["problem"].unique())
    cell = {
        key: part.select("cost", "correct").to_numpy()
        for key, part in frame.partition_by(["model", "problem"], as_dict=True).items()
    }
    found = []
    for _ in range(n):
        chosen = problems if unit == "runs" else list(rng.choice(problems, len(problems)))
        total = 0.0
        for problem in chosen:
            best = expert
            for model in models:
                rows = cell[model, problem]
                if unit != "problems":
                    rows = rows[rng.integers(0, len(rows), len(rows))]
                cost, rate = rows.mean(axis=0)
                best = min(best, cost / rate if rate > 0 else math.inf)
            total += best
        found.append(total / len(chosen))
    return np.array(found)


@pytest.mark.parametrize("unit", ["problems", "runs", "nested"])
@pytest.mark.parametrize("costs", ["vary", "equal"])
def test_draws_are_distributed_as_if_records_were_drawn_one_by_one(unit, costs):
    from scipy.stats import ks_2samp

    frame = world(costs=costs)
    fast = CostOfPass(frame, 1.0).bootstrap(4000, unit, seed=1)
    slow = one_by_one(frame, unit, 4000, 1.0, np.random.default_rng(2))
    draws = fast.draws[0]
    # Rounding would tear ties of the discrete distribution apart.
    assert ks_2samp(draws.round(9), slow.round(9)).pvalue > 1e-3
    assert draws.mean() == pytest.approx(slow.mean(), abs=4 * slow.std() * math.sqrt(2 / 4000))


def test_a_problem_drawn_twice_gets_two_draws_of_its_runs():
    frame = world(problems=1, runs=8)
    nested, runs = (CostOfPass(frame, 1.0).bootstrap(3000, unit, seed=3).draws[0] for unit in ("nested", "runs"))
    assert nested.std() == pytest.approx(runs.std(), rel=0.1)
    many = CostOfPass(pl.concat([frame, frame.with_columns(problem=pl.lit(1, pl.Int64))]), 1.0)
    assert many.bootstrap(3000, "nested", seed=3).draws[0].std() == pytest.approx(runs.std() / math.sqrt(2), rel=0.1)


def test_clusters_are_resampled_whole():
    frame = world(problems=6).with_columns(cluster=pl.col("problem") // 3)
    draws = CostOfPass(frame, 1.0).bootstrap(500, "problems").draws[0]
    cop = CostOfPass(frame, 1.0)
    best = np.minimum(cop.values.min(axis=0), 1.0)
    means = {
        round((best[3 * i : 3 * i + 3].mean() + best[3 * j : 3 * j + 3].mean()) / 2, 12) for i in (0, 1) for j in (0, 1)
    }
    assert {round(d, 12) for d in draws} == means


def test_the_same_seed_gives_the_same_draws_whatever_the_order_of_records():
    frame = world()
    shuffled = frame.sample(fraction=1, shuffle=True, seed=5)
    for unit in ("problems", "runs", "nested"):
        a, b = (CostOfPass(f, 1.0).bootstrap(50, unit, seed=4).draws for f in (frame, shuffled))
        np.testing.assert_array_equal(a, b)


def test_the_table_of_a_bootstrap_holds_frontier_models_and_essentialness():
    cop = CostOfPass(world(), 1.0)
    frame = cop.bootstrap(200, "nested").frame()
    assert frame["kind"].to_list() == ["frontier", *["model"] * 3, *["essentialness"] * 2]
    assert frame["value"][0] == pytest.approx(cop.frontier().value, abs=1e-12)
    found = dict(frame.filter(pl.col("kind") == "essentialness").select("name", "value").iter_rows())
    assert found == pytest.approx(
        dict(cop.essentialness("family").select("group", "essentialness").iter_rows()), abs=1e-12
    )
    basic = cop.bootstrap(200, "nested").frame(method="basic")
    centre = 2 * frame["value"][0]
    assert basic["low"][0] == pytest.approx(max(0.0, centre - frame["high"][0]))
    assert basic["high"][0] == pytest.approx(centre - frame["low"][0])


def test_resampling_problems_covers_the_mean_of_the_population():
    """With rates known (many runs) only problems are random, and the percentile interval covers."""
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(300):
        cost = rng.gamma(4, 0.25, (2, 60))
        frame = pl.DataFrame(
            {
                "model": ["a"] * 60 + ["b"] * 60, "problem": list(range(60)) * 2, "run": 0,
                "cost": cost.ravel(), "correct": 1.0,
            }
        )  # fmt: skip
        low, high = CostOfPass(frame, 50.0).bootstrap(400, "problems", rng).frame().row(0)[4:6]
        inside += low <= MEAN_OF_MINIMUM <= high
    assert 269 <= inside <= 297  # 93-97 % wide by three standard errors of 300 trials, percentile of 60 problems


def _mean_of_minimum() -> float:
    from scipy.integrate import quad
    from scipy.stats import gamma

    return quad(lambda x: gamma.sf(x, 4, scale=0.25) ** 2, 0, np.inf)[0]


MEAN_OF_MINIMUM = _mean_of_minimum()


def test_bad_requests_are_refused():
    cop = CostOfPass(world(), 1.0)
    with pytest.raises(UsageError, match="got n=0"):
        cop.bootstrap(0)
    with pytest.raises(UsageError, match="There is no unit of resampling 'probelms'; did you mean 'problems'"):
        cop.bootstrap(10, "probelms")  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="needs the cost of an expert"):
        CostOfPass(world()).bootstrap(10)


def test_ten_thousand_resamples_of_problems_take_less_than_two_seconds():
    cop = CostOfPass(world(10, 128, 8), 1.0)
    start = time.perf_counter()
    cop.bootstrap(10_000, "problems")
    assert time.perf_counter() - start < 2


# -- posterior ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [bayes.JEFFREYS, (1.0, 1.0), (2.0, 5.0)])
def test_the_posterior_frontier_equals_simulation(prior):
    cop = CostOfPass(world(3, 4, 5), 1.0)
    found = bayes.posterior_frontier(cop, prior=prior)
    grid = cop.cells
    a, b = bayes.beta_posterior(grid.rates * grid.counts, grid.counts, prior)
    rng = np.random.default_rng(0)
    v = np.minimum(grid.costs / rng.beta(a, b, (40_000, *a.shape)), 1.0)
    np.testing.assert_allclose(found.per_problem, v.min(axis=1).mean(axis=0), rtol=0.02)
    assert found.committed == pytest.approx(v.mean(axis=0).min(axis=0).mean(), rel=0.02)
    assert found.value <= found.committed <= 1.0


def test_the_posterior_frontier_of_no_models_is_the_expert():
    assert bayes.posterior_frontier(CostOfPass(world(), 1.0), ()).value == 1.0


def test_the_mean_of_an_inverse_rate_is_finite_only_with_more_than_one_success_worth():
    found = bayes.mean_inverse_rate(np.array([3.0, 1.0, 0.5]), np.array([2.0, 1, 1]))
    assert found.tolist() == [2.0, math.inf, math.inf]


def test_credible_intervals_hold_the_rate_and_turn_around_for_cost():
    frame = bayes.posterior(CostOfPass(world(), 1.0))
    assert (frame["rate_low"] < frame["rate"]).all()
    assert (frame["low"] < frame["cost_of_pass"]).all()
    assert (frame["cost_of_pass"] < frame["high"]).all()


def test_a_prior_fitted_to_problems_finds_their_distribution():
    rng = np.random.default_rng(1)
    rates = rng.beta(2.0, 6.0, 4000)
    a, b = bayes.fit_prior(rng.binomial(8, rates).astype(float), np.full(4000, 8.0))
    assert (a, b) == pytest.approx((2.0, 6.0), rel=0.15)


def test_a_prior_needs_two_positive_numbers():
    with pytest.raises(UsageError, match="two parameters above 0"):
        bayes.beta_posterior(np.array([1.0]), np.array([2.0]), (0.0, 1.0))


# -- laws --------------------------------------------------------------------------------------------------------------

shares = st.floats(0.01, 1.0)
dollars = st.floats(0.0, 10.0)


@given(dollars, shares)
def test_a_perfect_free_verifier_changes_nothing(cost, rate):
    c, r = np.array([cost]), np.array([rate])
    assert laws.Verified()(c, r) == cost_of_pass(c, r)


def test_verification_by_simulation():
    law = laws.Verified(check=0.2, true_accept=0.8, false_accept=0.1, damage=3.0)
    rng = np.random.default_rng(0)
    right = rng.random(400_000) < 0.4
    accepted = rng.random(400_000) < np.where(right, 0.8, 0.1)
    spent = (1.0 + 0.2) * len(right) + 3.0 * (accepted & ~right).sum()
    assert law(np.array([1.0]), np.array([0.4]))[0] == pytest.approx(spent / (accepted & right).sum(), rel=0.01)


@given(dollars, shares)
def test_uncorrelated_retries_are_the_plain_law(cost, rate):
    c, r = np.array([cost]), np.array([rate])
    assert laws.CorrelatedRetries(0.0)(c, r) == pytest.approx(cost_of_pass(c, r))


def test_correlated_retries_cost_more_and_may_never_end():
    c, r = np.array([1.0, 1.0, 1.0]), np.array([0.5, 0.2, 1.0])
    found = laws.CorrelatedRetries(0.25)(c, r)
    assert found[0] == pytest.approx((3 - 1) / (1.5 - 1))  # a = 1.5, b = 1.5
    assert found[1:].tolist() == [math.inf, 1.0]


def test_correlated_retries_with_a_limit_by_simulation():
    law = laws.CorrelatedRetries(0.3, attempts=4, fallback=7.0)
    rng = np.random.default_rng(0)
    a, b = 0.4 * 0.7 / 0.3, 0.6 * 0.7 / 0.3
    p = rng.beta(a, b, 300_000)
    first = rng.geometric(np.maximum(p, 1e-12))
    spent = np.minimum(first, 4) * 1.0 + 7.0 * (first > 4)
    assert law(np.array([1.0]), np.array([0.4]))[0] == pytest.approx(spent.mean(), rel=0.01)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 1)), min_size=1, max_size=4), st.floats(0.1, 10))
def test_no_order_of_models_beats_the_cascade(pairs, expert):
    costs, rates = np.array([c for c, _ in pairs]), np.array([r for _, r in pairs])

    def price(sequence):
        total = expert
        for i in reversed(sequence):
            total = costs[i] + (1 - rates[i]) * total
        return total

    best = min(price(s) for k in range(len(pairs) + 1) for s in itertools.permutations(range(len(pairs)), k))
    order, total = laws.cascade(costs, rates, expert)
    assert total == pytest.approx(best)
    assert price(order) == pytest.approx(total)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_a_routing_policy_lies_between_the_frontier_and_the_expert(seed):
    rng = np.random.default_rng(seed)
    costs, rates = rng.uniform(0.01, 1, (3, 5)), rng.uniform(0, 1, (3, 5))
    policy = laws.routing(costs, rates, 2.0, length=2)
    best = np.minimum(cost_of_pass(costs, rates).min(axis=0), 2.0).mean()
    assert best - 1e-12 <= policy.value <= 2.0
    total = np.full(5, 2.0)
    for i in reversed(policy.sequence):
        total = costs[i] + (1 - rates[i]) * total
    assert total.mean() == pytest.approx(policy.value)
    assert policy.held_out >= policy.value - 1e-12


def test_too_many_policies_are_refused():
    with pytest.raises(UsageError, match="make 10101 policies; limit is 100"):
        laws.routing(np.ones((100, 2)), np.ones((100, 2)), 1.0, length=2, limit=100)


def test_time_energy_and_emissions_are_priced():
    found = laws.effective_cost(
        np.array([1.0]), 1800.0, hour_value=4.0, kwh=2.0, kwh_price=0.3, kg_co2_per_kwh=0.5, tonne_co2_price=100.0
    )
    assert found[0] == pytest.approx(1 + 2 + 2 * (0.3 + 0.05))
    assert laws.expert_cost(12, 100.0) == 20.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: laws.Verified(true_accept=0.0),
        lambda: laws.Verified(check=-1.0),
        lambda: laws.CorrelatedRetries(1.0),
        lambda: laws.CorrelatedRetries(0.1, attempts=3),
        lambda: laws.CorrelatedRetries(0.1, attempts=0, fallback=1.0),
        lambda: laws.expert_cost(0, 10),
        lambda: laws.agent_cost([1.0], [0.1], [True, False]),
    ],
)
def test_impossible_assumptions_are_refused(make):
    with pytest.raises(UsageError):
        make()


def test_agent_runs_bill_tools_and_say_what_failed():
    assert laws.agent_cost([0.1, 0.2], [0.05, 0.01], [True, False]) == pytest.approx((0.36, 0.05))


def test_any_law_carries_through_every_analysis():
    cop = CostOfPass(world(), 1.0)
    dearer = cop.adjusted(laws.Verified(check=0.1))
    assert dearer.frontier().value > cop.frontier().value
    assert dearer.bootstrap(50, "nested").values[0] == pytest.approx(dearer.frontier().value)
    with pytest.raises(UsageError, match="plain law"):
        bayes.posterior_frontier(dearer)
