"""Bradley-Terry against logistic regression, Gaussian ratings against published TrueSkill numbers."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from assay.core.errors import DataError, UsageError
from assay.core.stats.ratings import GaussianRatings, Rating, bradley_terry, win_table


def test_bradley_terry_is_logistic_regression():
    r = np.random.default_rng(2)
    k = 5
    skill = np.linspace(-1, 1, k)
    rows, won = [], []
    wins = np.zeros((k, k))
    for _ in range(400):
        i, j = r.choice(k, 2, replace=False)
        first = r.random() < 1 / (1 + np.exp(skill[j] - skill[i]))
        wins[(i, j) if first else (j, i)] += 1
        x = np.zeros(k)
        x[i], x[j] = 1, -1
        rows.append(x)
        won.append(float(first))
    found = bradley_terry(wins, list("abcde"))
    fit = sm.Logit(won, np.array(rows)[:, 1:]).fit(disp=0)  # the first name is the reference
    assert found.strength[1:] - found.strength[0] == pytest.approx(fit.params, abs=1e-6)
    for at, name in enumerate("bcde"):
        d, low, high = found.difference(name, "a")
        assert (low, high) == pytest.approx(tuple(fit.conf_int()[at]), abs=1e-5)
        assert d == pytest.approx(fit.params[at], abs=1e-6)
    assert found.strength.mean() == pytest.approx(0)


def test_two_names_have_the_closed_form():
    found = bradley_terry([[0, 30], [10, 0]], ["a", "b"])
    assert found.chance("a", "b") == pytest.approx(0.75)
    assert found.difference("a", "b")[0] == pytest.approx(np.log(3))
    assert found.elo()["a"] - found.elo()["b"] == pytest.approx(400 * np.log10(3))
    se = np.sqrt(1 / 30 + 1 / 10)
    assert found.difference("a", "b")[2] - np.log(3) == pytest.approx(1.959964 * se, rel=1e-5)


def test_intervals_cover_the_true_difference():
    r = np.random.default_rng(6)
    skill = np.array([-0.6, 0.0, 0.2, 0.4])
    chance = 1 / (1 + np.exp(np.subtract.outer(-skill, -skill)))
    inside = 0
    for _ in range(600):
        wins = np.zeros((4, 4))
        for i in range(4):
            for j in range(i):
                wins[i, j] = r.binomial(30, chance[i, j])
                wins[j, i] = 30 - wins[i, j]
        _, low, high = bradley_terry(wins, list("abcd")).difference("d", "a")
        inside += low <= 1.0 <= high
    assert 0.93 <= inside / 600 <= 0.97


def test_contests_become_a_table():
    names, wins = win_table([("x", "y", 1), ("y", "x", 0.5), ("z", "x", 0)])
    assert names == ["x", "y", "z"]
    assert wins.tolist() == [[0, 1.5, 1], [0.5, 0, 0], [0, 0, 0]]
    with pytest.raises(DataError, match="between two names"):
        win_table([("x", "x", 1)])


def test_someone_who_never_loses_needs_a_prior():
    wins = [[0, 5, 5], [0, 0, 3], [0, 2, 0]]
    with pytest.raises(DataError, match=r"no finite strengths.*add a prior"):
        bradley_terry(wins, ["a", "b", "c"])
    found = bradley_terry(wins, ["a", "b", "c"], prior=0.1)
    assert found.strength[0] == max(found.strength)
    assert np.all(np.isfinite(found.high))


@pytest.mark.parametrize("wins", [[[0, 1]], [[0]], [[0, -1], [1, 0]], [[0, np.nan], [1, 0]]])
def test_bad_tables_of_wins_are_refused(wins):
    with pytest.raises(DataError):
        bradley_terry(wins)


def test_trueskill_matches_the_published_updates(oracle):
    data = oracle("adaem", "trueskill_win_rate")
    for case in data["cases"]:
        names = [str(i) for i in range(len(case["expresses"][0]))]
        found = GaussianRatings()
        for question in case["expresses"]:
            winners = [n for n, e in zip(names, question) if e]
            losers = [n for n, e in zip(names, question) if not e]
            if winners and losers:
                found.update(winners, losers)
        want = case["expected"]
        assert [found.rating(n).mu for n in names] == pytest.approx(want["mu"], abs=data["tolerance"])
        assert [found.rating(n).sigma for n in names] == pytest.approx(want["sigma"], abs=data["tolerance"])
        rates = found.win_rates(names)
        assert [rates[n] for n in names] == pytest.approx(want["win_rate_standard_trueskill"], abs=data["tolerance"])


def test_a_draw_pulls_ratings_together():
    found = GaussianRatings(ratings={"strong": Rating(30, 3), "weak": Rating(20, 3)})
    found.update(["strong"], ["weak"], drawn=True)
    assert 20 < found.rating("weak").mu < found.rating("strong").mu < 30
    assert found.rating("weak").sigma < 3.02
    even = GaussianRatings()
    even.update(["a"], ["b"], drawn=True)
    # trueskill 0.4.5 documents this first draw between new players.
    assert even.rating("a").mu == pytest.approx(25.0)
    assert even.rating("a").sigma == pytest.approx(6.457515683245051, abs=1e-6)


def test_hopeless_favourites_and_upsets_stay_finite():
    found = GaussianRatings(ratings={"god": Rating(2000, 1), "man": Rating(0, 1)})
    found.update(["man"], ["god"])
    assert np.isfinite([found.rating("man").mu, found.rating("man").sigma]).all()
    found = GaussianRatings(ratings={"god": Rating(2000, 1), "man": Rating(0, 1)})
    found.update(["god"], ["man"], drawn=True)
    assert found.rating("god").mu < 2000
    assert found.rating("man").mu > 0


def test_bad_contests_are_refused():
    with pytest.raises(DataError, match="two teams"):
        GaussianRatings().update(["a"], ["a"])
    with pytest.raises(DataError, match="two teams"):
        GaussianRatings().update([], ["a"])
    with pytest.raises(UsageError, match="at least two names"):
        GaussianRatings().win_rates(["a"])
    with pytest.raises(UsageError, match="sigma"):
        GaussianRatings(sigma=0)
