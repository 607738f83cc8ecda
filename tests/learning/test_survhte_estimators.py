"""Estimators of survhte: oracles of their parts, planted effects, the registry, bad input."""

from __future__ import annotations

import inspect
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from assay.core.errors import DataError, UsageError
from assay.learning.survhte.base import surv
from assay.learning.survhte.causal_survival_forest import (
    CausalSurvivalForest,
    Nuisances,
    doubly_robust_score,
    expected_later,
)
from assay.learning.survhte.data import SurvivalData, make_survhte
from assay.learning.survhte.honest_forest import HonestForest
from assay.learning.survhte.outcome import OutcomeImputation
from assay.learning.survhte.protocol import EffectEstimator, Estimand
from assay.learning.survhte.registry import EXTRA, family, get_method, list_methods, methods
from assay.learning.survhte.survival_learners import (
    MatchingSurvival,
    SLearnerSurvival,
    TLearnerSurvival,
    matched_effect,
)
from assay.learning.survhte.survival_models import SurvivalForest, coarse, tuned
from assay.learning.survhte.unadjusted import KaplanMeierDifference

torch = pytest.importorskip("torch")

ORACLES = Path(__file__).parents[1] / "oracles" / "survhte"


def cases(name: str) -> list[dict]:
    return json.loads((ORACLES / f"{name}.json").read_text(encoding="utf-8"))["cases"]


def fitted(estimator, data: SurvivalData, rows: np.ndarray):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(data.X[rows], data.W[rows], surv(data.event[rows], data.time[rows]))


def effects(estimator, data: SurvivalData, rows: np.ndarray) -> np.ndarray:
    takes = "W" in inspect.signature(estimator.effect).parameters
    return estimator.effect(data.X[rows], W=data.W[rows]) if takes else estimator.effect(data.X[rows])


QUICK = {
    "km_difference": {}, "t_learner+lasso+pseudo_obs": {}, "s_learner+rf+margin": {"trees": 10},
    "x_learner+xgb+ipcw_t": {"trees": 10}, "dr_learner+lasso+margin": {},
    "causal_survival_forest": {"trees": 20, "grid": 30},
    "survite": {"steps": 10, "bins": 10}, "s_learner_survival+rsf": {"tune": False, "trees": 5},
    "t_learner_survival+deepsurv": {"tune": False, "epochs": 3},
    "matching_learner_survival+deephit": {"tune": False, "epochs": 3},
}  # fmt: skip


def test_the_registry_holds_the_papers_53() -> None:
    names = list_methods()
    assert len(names) == len(set(names)) == 53
    assert set(methods()) - set(names) == set(EXTRA)
    assert len({family(name) for name in names}) == 11
    assert family("method:s_learner_survival+rsf?trees=5") == "S-Learner-Survival"
    assert family("mine") == "mine"
    with pytest.raises(UsageError, match="double_ml"):
        get_method("double_ml+margins")


@pytest.mark.parametrize("name", QUICK)
def test_a_method_estimates_each_estimand_and_repeats_itself(name: str) -> None:
    data = make_survhte("OBS-CPS", "C", 300, random_state=1)
    rows, _, test = data.split(0)
    for kind, horizon in (("rmst", None), ("rmst", 6.0), ("survival", 6.0)):
        made = get_method(name, **QUICK[name])
        assert isinstance(made, EffectEstimator)
        made.set_params(estimand=kind, horizon=horizon, random_state=5)
        found = effects(fitted(made, data, rows), data, test)
        assert found.shape == (len(test),)
        assert np.isfinite(found).all()
        if (
            kind == "survival"
            and family(name).endswith(("Survival", "ITE", "difference"))
            and "Forest" not in family(name)
        ):
            assert np.abs(found).max() <= 1
    again = effects(fitted(clone(made), data, rows), data, test)
    np.testing.assert_allclose(again, found)
    low, high = made.ate_interval(data.X[test])
    assert low <= made.ate(data.X[test]) <= high


@pytest.mark.slow
@pytest.mark.parametrize("name", list(methods()))
def test_every_method_estimates(name: str) -> None:
    data = make_survhte("RCT-50", "C", 400, random_state=1)
    rows, _, test = data.split(0)
    options = {"tune": False} if "survival+" in name else {}
    options = {"steps": 100} if name == "survite" else options
    made = get_method(name, **options)
    assert np.isfinite(effects(fitted(made, data, rows), data, test)).all()


def planted(n: int = 1500, seed: int = 0) -> tuple[SurvivalData, np.ndarray]:
    """Exponential times, whose mean treatment raises by 2 where X1 > .5; 30 % censored."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    W = rng.integers(0, 2, n)
    tau = 2.0 * (X[:, 0] > 0.5)
    T = rng.exponential(1 + 0.2 * tau * W) + 2 + 0.8 * tau * W
    C = rng.exponential(10, n) + 1
    return SurvivalData("planted", X, W, np.minimum(T, C), T <= C, ["a", "b", "c"]), tau


@pytest.mark.parametrize(
    "estimator",
    [
        OutcomeImputation("t_learner", "rf", "margin"), CausalSurvivalForest(trees=100, grid=40, nuisance_trees=20),
        SLearnerSurvival("rsf", settings={"trees": 20}), TLearnerSurvival("deepsurv", settings={"epochs": 40}),
        MatchingSurvival("rsf", settings={"trees": 20}),
    ],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_a_planted_effect_is_found_where_it_is(estimator) -> None:
    data, tau = planted()
    found = effects(fitted(estimator, data, np.arange(1000)), data, np.arange(1000, 1500))
    there = tau[1000:] > 0
    assert found[there].mean() > 1.2
    assert abs(found[~there].mean()) < 0.5


@pytest.mark.parametrize("k", [1, 2, 5])
def test_matching_gives_the_reference_effects(k: int) -> None:
    (c,) = cases("matching_learner")
    found = matched_effect(
        c["X_train"], c["W_train"], c["predicted_rmst_train_factual"], c["X"], c["W"], c["predicted_rmst_factual"],
        neighbours=k,
    )  # fmt: skip
    np.testing.assert_allclose(found, c[f"cate_k{k}"], atol=1e-9)


def test_likelihood_and_balance_of_survite_are_the_reference_ones() -> None:
    from assay.learning.survhte.survite import hazard_nll, linear_mmd

    nll, mmd = cases("survite_terms")
    hazard = torch.tensor(nll["hazard"], dtype=torch.float64)
    found = hazard_nll(hazard, torch.tensor(nll["time_index"]), torch.tensor(nll["event"]))
    assert float(found) == pytest.approx(nll["nll"], abs=1e-6)
    np.testing.assert_allclose(np.cumprod(1 - hazard.numpy(), axis=1), nll["survival"])
    arms = (torch.tensor(mmd[a], dtype=torch.float64) for a in ("treated", "control"))
    assert float(linear_mmd(*arms, mmd["p"])) == pytest.approx(mmd["mmd2"], abs=1e-6)


def test_wasserstein_balance_grows_with_the_distance_of_the_arms() -> None:
    from assay.learning.survhte.survite import sinkhorn

    z = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 3)))
    found = [float(sinkhorn(z, z + shift)) for shift in (0.0, 1.0, 2.0, 4.0)]
    assert found == sorted(found)
    assert found[3] > 10 * found[0]


@pytest.mark.parametrize(("n1", "n0", "p"), [(4, 7, 0.5), (1, 1, 0.5), (1, 5, 0.3), (6, 2, 0.8)])
def test_wasserstein_balance_follows_its_definition(n1: int, n0: int, p: float) -> None:
    from assay.learning.survhte.survite import sinkhorn

    rng = np.random.default_rng(n1)
    treated, control = rng.normal(size=(n1, 3)), rng.normal(1, 2, size=(n0, 3))
    M = ((treated[:, None] - control[None]) ** 2).sum(axis=2)
    full = np.zeros((n1 + 1, n0 + 1))
    full[:n1, :n0] = M
    full[n1, :n0] = full[:n1, n0] = M.max()
    K = np.exp(-10 / M.mean() * full) + 1e-6
    a, b = np.append(np.full(n1, p / n1), 1 - p), np.append(np.full(n0, (1 - p) / n0), p)
    u = np.ones(n1 + 1)
    for _ in range(10):
        v = b / (K.T @ u + 1e-8)
        u = a / (K @ v + 1e-8)
    found = sinkhorn(torch.from_numpy(treated), torch.from_numpy(control), p)
    assert float(found) == pytest.approx(2 * (u[:, None] * K * v[None] * full).sum(), rel=1e-9)


def test_cox_loss_is_the_negative_log_partial_likelihood() -> None:
    from assay.learning.survhte.networks import cox_loss

    score = np.array([0.3, -0.2, 0.8, 0.1])
    time, event = np.array([4.0, 2.0, 3.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
    plain = [score[i] - np.log(np.exp(score[time >= time[i]]).sum()) for i in range(4) if event[i]]
    found = cox_loss(*(torch.from_numpy(v) for v in (score, time, event)))
    assert float(found) == pytest.approx(-np.mean(plain))


def test_deephit_loss_counts_likelihood_and_pairs_as_defined() -> None:
    from assay.learning.survhte.networks import hit_loss

    rng = np.random.default_rng(0)
    logits, bins, event = rng.normal(size=(5, 4)), np.array([0, 2, 2, 3, 1]), np.array([1.0, 1.0, 0.0, 1.0, 0.0])
    mass = np.exp(np.column_stack([logits, np.zeros(5)]))
    mass /= mass.sum(axis=1, keepdims=True)
    F = mass.cumsum(axis=1)
    likelihood = np.mean([np.log(mass[i, bins[i]] if event[i] else 1 - F[i, bins[i]]) for i in range(5)])
    pairs = [
        np.exp(-(F[i, bins[i]] - F[j, bins[i]]) / 0.1)
        for i in range(5) for j in range(5)
        if event[i] and (bins[i] < bins[j] or (bins[i] == bins[j] and not event[j]))
    ]  # fmt: skip
    wanted = -0.2 * likelihood + 0.8 * sum(pairs) / 25
    found = hit_loss(torch.from_numpy(logits), torch.from_numpy(bins), torch.from_numpy(event))
    assert float(found) == pytest.approx(wanted)


@pytest.mark.parametrize("estimand", [Estimand("rmst", 2.0), Estimand("survival", 1.0)])
def test_the_doubly_robust_score_averages_to_the_effect_with_true_nuisances(estimand: Estimand) -> None:
    rng = np.random.default_rng(0)
    n = 8000
    W = rng.integers(0, 2, n)
    rate = np.where(W == 1, 0.5, 1.0)
    T, C = rng.exponential(1 / rate), rng.exponential(3.0, n)
    time, event = np.minimum(T, C), C >= T
    grid = np.linspace(0.01, 4, 200)
    treated, control = (np.broadcast_to(np.exp(-r * grid), (n, 200)) for r in (0.5, 1.0))
    nuisances = Nuisances(np.full(n, 0.5), grid, treated, control, np.broadcast_to(np.exp(-grid / 3), (n, 200)))
    top, bottom = doubly_robust_score(W, time, event, nuisances, estimand)
    h = estimand.horizon or 0
    if estimand.kind == "rmst":
        true = (1 - np.exp(-0.5 * h)) / 0.5 - (1 - np.exp(-h))
    else:
        true = np.exp(-0.5 * h) - np.exp(-h)
    assert top.sum() / bottom.sum() == pytest.approx(true, abs=4 * top.std() / bottom.mean() / np.sqrt(n) + 0.01)


def test_expected_later_starts_at_the_mean_and_ends_at_the_horizon() -> None:
    grid = np.array([1.0, 2.0, 4.0])
    curves = np.array([[0.9, 0.5, 0.1]])
    found = expected_later(grid, curves, Estimand("rmst", 3.0))[0]
    assert found[0] == pytest.approx(1 + 0.9 + 0.5)
    assert found[1] == pytest.approx(1 + (0.9 + 0.5) / 0.9)
    assert found[2] == pytest.approx(3.0)
    assert found[3] == 3.0


@given(st.floats(-3, 3), st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_a_constant_ratio_is_found_everywhere(value: float, features: int) -> None:
    rng = np.random.default_rng(0)
    X, bottom = rng.normal(size=(60, features)), rng.uniform(0.5, 1, 60)
    found = HonestForest(10, 5).fit(X, value * bottom, bottom, rng).predict(X)
    np.testing.assert_allclose(found, value, atol=1e-9)


def test_the_honest_forest_finds_a_step() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1000, 3))
    top = (X[:, 1] > 0.5) + 0.3 * rng.normal(size=1000)
    found = HonestForest(50, 5).fit(X, top, np.ones(1000), rng).predict(np.array([[0.5, 0.2, 0.5], [0.5, 0.8, 0.5]]))
    np.testing.assert_allclose(found, [0, 1], atol=0.15)


def test_kaplan_meier_difference_is_the_difference_of_areas() -> None:
    y = surv([True] * 6, [1.0, 2.0, 3.0, 2.0, 4.0, 6.0])
    model = KaplanMeierDifference().fit(np.zeros((6, 1)) + np.arange(6)[:, None], [0, 0, 0, 1, 1, 1], y)
    # Up to 3, the shorter arm's end: control 1 + 2/3 + 1/3, treated 2 + 2/3.
    np.testing.assert_allclose(model.effect(np.zeros((2, 1))), 2 + 2 / 3 - 2)


def test_a_coarse_grid_keeps_the_last_time_and_the_concordance() -> None:
    times = np.random.default_rng(0).exponential(size=1000)
    grid = coarse(times, 200)
    assert len(grid) == 200
    assert grid[-1] == times.max()
    np.testing.assert_array_equal(coarse(np.array([3.0, 1.0, 3.0])), [1, 3])
    data = make_survhte("RCT-50", "D", 600)
    from assay.learning.survhte.scoring import concordance_td, grid_index

    found = []
    for points in (200, 10_000):
        model = SurvivalForest(trees=20, grid=points, seed=0).fit(data.X[:300], data.time[:300], data.event[:300])
        curves = model.survival(data.X[300:])
        found.append(
            concordance_td(
                curves, grid_index(model.times, data.time[300:]), data.time[300:], data.event[300:], ties=0.5
            )
        )
    assert found[0] == pytest.approx(found[1], abs=0.03)


def test_tuning_takes_settings_from_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.learning.survhte import survival_models

    monkeypatch.setitem(survival_models.GRIDS, "rsf", {"trees": (2, 20), "min_leaf": (3,)})
    data = make_survhte("RCT-50", "C", 300)
    best = tuned("rsf", data.X, data.time, data.event, data.W.astype(float), 0)
    assert best in ({"trees": 2, "min_leaf": 3}, {"trees": 20, "min_leaf": 3})
    model = fitted(SLearnerSurvival("rsf", tune=True), data, np.arange(200))
    assert model.model_.trees in (2, 20)


# -- bad input ---------------------------------------------------------------------------------------------------------


def good() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, W, T = rng.normal(size=(40, 2)), np.arange(40) % 2, rng.exponential(size=40) + 0.1
    return X, W, surv(rng.uniform(size=40) < 0.7, T)


def broken(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, W, y = good()
    if name == "treatment":
        W = np.where(np.arange(40) == 3, 2, W)
    elif name == "arm":
        W = np.zeros(40, int)
    elif name == "negative":
        y["time"][4] = -1
    elif name == "infinite":
        y["time"][4] = np.inf
    elif name == "missing":
        X[7, 1] = np.nan
    elif name == "events":
        y["event"] = False
    elif name == "zero":
        y["time"] = 0.0
    elif name == "rows":
        y = y[:30]
    elif name == "plain":
        y = y["time"]
    return X, W, y


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("treatment", r"row 3 has 2"), ("arm", "W = 1; an effect needs both arms"),
        ("negative", "Row 4 has the negative"), ("infinite", "Row 4 has the time inf"),
        ("missing", "nan in row 7, column 1"), ("events", "No event was observed"),
        ("zero", "end at the time 0: nobody"), ("rows", "y has 30 rows, X has 40"), ("plain", "structured array"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_with_its_place(name: str, sentence: str) -> None:
    for estimator in (OutcomeImputation(), CausalSurvivalForest(trees=2), SLearnerSurvival(), MatchingSurvival()):
        with pytest.raises(DataError, match=sentence):
            estimator.fit(*broken(name))


def test_horizons_outside_follow_up_are_refused() -> None:
    X, W, y = good()
    with pytest.raises(DataError, match="beyond the longest follow-up"):
        OutcomeImputation(horizon=1e6).fit(X, W, y)
    with pytest.raises(DataError, match="before the first event"):
        CausalSurvivalForest(horizon=1e-6).fit(X, W, y)
    with pytest.raises(UsageError, match="needs a horizon"):
        SLearnerSurvival(estimand="survival").fit(X, W, y)


def test_two_models_need_two_events_an_arm_and_matching_needs_differences() -> None:
    X, W, y = good()
    y["event"][np.flatnonzero(W == 1)[1:]] = False
    y["event"][np.flatnonzero(W == 1)[0]] = True
    with pytest.raises(DataError, match="W = 1 has 1 events; TLearnerSurvival"):
        TLearnerSurvival().fit(X, W, y)
    with pytest.raises(DataError, match="All rows end at the time 2"):
        SLearnerSurvival().fit(X, W, surv(np.ones(40, bool), np.full(40, 2.0)))
    with pytest.raises(DataError, match="same covariates"):
        MatchingSurvival().fit(np.ones((40, 2)), W, good()[2])
    with pytest.raises(DataError, match="3 covariates where fitting saw 2"):
        KaplanMeierDifference().fit(X, W, y).effect(np.ones((2, 3)))


@pytest.mark.parametrize("name", [name for name in QUICK if name != "t_learner_survival+deepsurv"])
def test_an_arm_without_events_is_no_hindrance_but_to_models_of_an_arm(name: str) -> None:
    X, W, y = good()
    y["event"][W == 1] = False
    model = get_method(name, **QUICK[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, W, y)
    takes = "W" in inspect.signature(model.effect).parameters
    assert np.isfinite(model.effect(X, W=W) if takes else model.effect(X)).all()


@pytest.mark.parametrize("name", ["dr_learner+lasso+margin", "double_ml+ipcw_t", "causal_forest+mistr"])
def test_learners_across_folds_need_two_rows_an_arm(name: str) -> None:
    X, _, y = good()
    with pytest.raises(DataError, match="W = 1 has one row"):
        get_method(name).fit(X, (np.arange(40) == 3).astype(int), y)


def test_unknown_parts_are_refused_with_the_nearest() -> None:
    X, W, y = good()
    for estimator, name in (
        (OutcomeImputation("t_lerner"), "t_learner"), (OutcomeImputation(base="lazo"), "lasso"),
        (OutcomeImputation(imputer="margn"), "margin"), (SLearnerSurvival("rfs"), "rsf"),
        (SLearnerSurvival(area="publishd"), "published"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=name):
            estimator.fit(X, W, y)
