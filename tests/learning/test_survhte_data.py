"""Data sets of survhte: the published draws number for number, exact truth, splits, files, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assay.core.errors import DataError, UsageError
from assay.learning.survhte import synthetic
from assay.learning.survhte.benchmark import SurvHTE, training_sizes
from assay.learning.survhte.clinical import (
    SAMPLE,
    contrast_of,
    load_actg175,
    load_packaged,
    published_contrast,
)
from assay.learning.survhte.data import ESTIMANDS, make_survhte, synthetic_data
from assay.learning.survhte.protocol import Estimand
from assay.learning.survhte.published import read_published
from assay.learning.survhte.recipes import export
from assay.learning.survhte.semisynthetic import (
    ACTG_COEFFICIENTS,
    MIMIC_NAMES,
    make_actg_syn,
    make_mimic_syn,
    published_actg_syn,
    stand_in_admissions,
)
from assay.learning.survhte.synthetic import Assignment, World
from assay.learning.survhte.twins import make_twins, published_twins

ORACLES = Path(__file__).parents[1] / "oracles" / "survhte"


def cases(name: str) -> list[dict]:
    return json.loads((ORACLES / f"{name}.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", cases("generator_draws"), ids=lambda c: c["name"])
def test_draws_are_the_official_ones(case: dict) -> None:
    drawn = synthetic.draw(case["config"], case["scenario"], case["n"], np.random.RandomState(case["seed"]))
    T = np.where(drawn.W == 1, drawn.T1, drawn.T0)
    assert (drawn.T1 - drawn.T0).mean() == pytest.approx(case["ate"], abs=1e-9)
    assert drawn.W.mean() == pytest.approx(case["treatment_rate"], abs=1e-12)
    assert (drawn.C < T).mean() == pytest.approx(case["censoring_rate"], abs=1e-12)
    for i, row in enumerate(case["first_rows"]):
        found = {f"X{j + 1}": drawn.X[i, j] for j in range(5)} | {"U1": drawn.U[i, 0], "U2": drawn.U[i, 1]}
        found |= {"W": drawn.W[i], "T0": drawn.T0[i], "T1": drawn.T1[i], "observed_time": min(T[i], drawn.C[i])}
        found |= {"event": float(T[i] <= drawn.C[i]), "C": drawn.C[i]}
        for name, value in row.items():
            assert found[name] == (np.inf if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)), name


def test_all_forty_data_sets_have_the_published_statistics() -> None:
    ate, treated, censored = (case["values"] for case in cases("synthetic_suite_statistics"))
    for config in synthetic.CONFIGS:
        for place, scenario in enumerate(synthetic.SCENARIOS):
            data = make_survhte(config, scenario)
            assert 1 - data.event.mean() == pytest.approx(censored[config][place], abs=1e-9)
            assert data.W.mean() == pytest.approx(treated[config.removesuffix("-IC")], abs=1e-9)
            effects = data.effects(Estimand())
            assert effects is not None
            known = ate["OBS-UConf" if "UConf" in config else "RCT-50"][place]
            assert effects.mean() == pytest.approx(known, abs=1e-6)


def test_propensities_and_conditional_means_follow_the_closed_forms() -> None:
    (case,) = cases("dgp_closed_forms")
    X, U = np.array(case["X"]), np.array(case["U"])
    for config in ("OBS-CPS", "OBS-NoPos", "OBS-UConf"):
        key = f"propensity_{config.replace('-', '_')}"
        np.testing.assert_allclose(synthetic.propensity(config, X, U), case[key], atol=1e-9)
    for scenario in synthetic.SCENARIOS:
        for w in (0, 1):
            found = synthetic.mean_time("RCT-50", scenario, X, float(w))
            np.testing.assert_allclose(found, case[f"{scenario}_mean_T_w{w}"], atol=1e-9)


@pytest.mark.parametrize("config", ["RCT-50", "OBS-UConf"])
@pytest.mark.parametrize("scenario", synthetic.SCENARIOS)
def test_exact_effects_are_the_means_of_the_draws(config: str, scenario: str) -> None:
    data = make_survhte(config, scenario, 20_000, random_state=7, legacy=False)
    for name in ESTIMANDS:
        estimand = data.estimand(name)
        draws = data.effects(estimand)
        assert draws is not None
        assert data.exact is not None
        gap = draws - data.exact(estimand)
        assert abs(gap.mean()) < 4.5 * gap.std() / np.sqrt(len(gap)), name
    draws = data.effects(Estimand())
    assert draws is not None
    assert data.exact is not None
    assert data.noise is not None
    squared = (draws - data.exact(Estimand())) ** 2
    assert squared.mean() == pytest.approx(data.noise.mean(), abs=5 * squared.std() / np.sqrt(len(data)))


def test_central_moments_of_effects_are_those_of_draws() -> None:
    n = 400_000
    X = np.tile(np.array([[0.3, 0.7, 0.4, 0.2, 0.9]]), (n, 1))
    for config, scenario in (("RCT-50", "C"), ("RCT-50", "D"), ("OBS-UConf", "C")):
        rng = np.random.default_rng(5)
        U1 = rng.uniform(size=n)
        times = []
        for w in (0.0, 1.0):
            value = synthetic.parameter(config, scenario, X, w, U1)
            times.append(np.exp(value + rng.normal(size=n)) if scenario == "D" else rng.poisson(value).astype(float))
        gain = times[1] - times[0]
        mean, second, third, fourth = synthetic.effect_moments(config, scenario, X[:1])[:, 0]
        centred = gain - mean
        for power, value in ((1, 0.0), (2, second), (3, third)) if scenario == "D" else (
            (1, 0.0), (2, second), (3, third), (4, fourth)
        ):  # fmt: skip
            sample = centred**power
            assert abs(sample.mean() - value) < 5 * sample.std() / np.sqrt(n), (config, scenario, power)


def test_a_world_and_an_assignment_of_ones_own_have_exact_truth() -> None:
    world = World(
        "mine", "weibull", lambda X, w: X[:, 0] - 0.7 * w * X[:, 1], lambda X, W, rng: rng.exponential(2, len(X)), 1.5
    )
    assignment = Assignment("score", lambda X, U: 0.2 + 0.6 * X[:, 0] * U[:, 0], confounding=1.0)
    data = make_survhte(assignment, world, 20_000, random_state=np.random.default_rng(3))
    assert data.name == "score/mine"
    assert data.exact is not None
    assert data.noise is not None
    for estimand in (Estimand(), Estimand("rmst", 0.8), Estimand("survival", 0.8)):
        draws = data.effects(estimand)
        assert draws is not None
        gap = draws - data.exact(estimand)
        assert abs(gap.mean()) < 4.5 * gap.std() / np.sqrt(len(gap))
    squared = (data.effects(Estimand()) - data.exact(Estimand())) ** 2  # type: ignore[operator]
    assert squared.mean() == pytest.approx(data.noise.mean(), abs=5 * squared.std() / np.sqrt(len(data)))
    with pytest.raises(UsageError, match="family of event times 'gamma'"):
        World("x", "gamma", world.parameter, world.censoring)
    with pytest.raises(UsageError, match="must be above 0"):
        World("x", "weibull", world.parameter, world.censoring, -1.0)
    with pytest.raises(DataError, match=r"'wild' leaves \[0, 1\]"):
        make_survhte(Assignment("wild", lambda X, U: 2 * X[:, 0]), "A", 100)


def test_the_dial_of_confounding_turns_bias_up() -> None:
    gaps = []
    for weight in (0.0, 2.0):
        data = synthetic_data("OBS-UConf", "D", 20_000, 1, weight)
        T = data.event_times
        effects = data.effects(Estimand())
        assert effects is not None
        gaps.append(abs(T[data.W == 1].mean() - T[data.W == 0].mean() - effects.mean()))
    assert gaps[1] > gaps[0] + 0.2
    plain, same = (synthetic_data("RCT-50", "D", 200, 1, weight) for weight in (None, 2.0))
    np.testing.assert_array_equal(plain.time, same.time)
    bench = SurvHTE(sets="OBS-UConf/A", n=200, confounding=2.0)
    assert "confounding=2.0" in bench.data()["source"]


def test_a_far_horizon_restricts_nothing() -> None:
    X = np.random.default_rng(0).uniform(size=(20, 5))
    for scenario in "BCDE":
        whole = synthetic.mean_time("OBS-UConf", scenario, X, 1.0)
        np.testing.assert_allclose(synthetic.mean_time("OBS-UConf", scenario, X, 1.0, 1e3), whole, rtol=2e-3)


def test_seeds_make_data_and_splits() -> None:
    a, b = (make_survhte("OBS-CPS", "D", 400, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(a.time, b.time)
    parts = a.split(0)
    assert [len(p) for p in parts] == [200, 100, 100]
    assert sorted(np.concatenate(parts)) == list(range(400))
    assert not np.array_equal(parts[0], a.split(1)[0])
    assert [len(p) for p in make_survhte("RCT-50", "A", 12_000).split(0)] == [5000, 2500, 2500]
    with pytest.raises(UsageError, match="400 rows, fewer than 300"):
        a.split(0, (300, 100, 100))


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="OBS-NoPos"):
        make_survhte("OBS-NoPoss", "A")
    with pytest.raises(UsageError, match="scenario 'F'"):
        make_survhte("RCT-50", "F")
    with pytest.raises(UsageError, match="at least 10 rows"):
        make_survhte(n=3)
    with pytest.raises(UsageError, match="survival25"):
        make_survhte(n=50).estimand("survival26")
    with pytest.raises(UsageError, match="needs a horizon"):
        Estimand("survival")
    with pytest.raises(UsageError, match="above 0"):
        Estimand("rmst", -1.0)


def test_gompertz_truth_is_the_area_under_its_survival_curve() -> None:
    from assay.core.datasets import read_table

    data = make_actg_syn(read_table(SAMPLE), stand_in=True)
    assert 0.45 < 1 - data.event.mean() < 0.57
    assert data.exact is not None
    assert data.T0 is not None
    grid = np.linspace(0, 4000, 400_001)
    beta = np.array([ACTG_COEFFICIENTS[c] for c in data.features])
    # The level of the hazard is recovered from one row's draw, so that the check does not trust the code's own.
    from assay.learning.survhte import semisynthetic as module

    scores = data.X @ beta
    u0 = np.random.RandomState(module.ACTG_SEED).uniform(size=len(data))
    days = data.T0 * 30
    hazard = -0.0055 * np.log(u0) / (np.exp(0.0055 * days) - 1)
    level = np.log(hazard / 6e-4) - scores[:, 1]
    assert np.ptp(level) < 1e-6
    for row in (0, 17):
        means = []
        for arm in (1, 0):
            rate = 6e-4 * np.exp(scores[row, arm] + level[row])
            S = np.exp(-rate / 0.0055 * np.expm1(np.minimum(0.0055 * grid, 50)))
            means.append({h: float(np.trapezoid(S[grid <= h * 30], grid[grid <= h * 30])) / 30 for h in (10, 133)})
        # scores columns are (treated, control); arm 1 above is control
        for h in (10, 133):
            assert data.exact(Estimand("rmst", h))[row] == pytest.approx(means[1][h] - means[0][h], abs=1e-3)
    with pytest.raises(DataError, match="'oprior'"):
        make_actg_syn(read_table(SAMPLE))


def test_published_actg_syn_reads_back_with_its_splits(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    n = 40
    frame = pl.DataFrame({c: rng.normal(1, 0.1, n) for c in ACTG_COEFFICIENTS}).with_columns(
        age=pl.Series(rng.uniform(20, 60, n)), cd40=pl.Series(rng.uniform(200, 500, n))
    )
    made = make_actg_syn(frame)
    assert made.T0 is not None
    assert made.T1 is not None
    assert made.exact is not None
    frame.with_columns(
        idx=pl.int_range(n), observed_time=made.time, event=made.event.astype(int), T0=made.T0, T1=made.T1, W=made.W
    ).write_csv(tmp_path / "actg_syn.csv")
    pl.DataFrame({"idx": range(n), "random_idx0": rng.permutation(n)}).write_csv(tmp_path / "idx_split_actg_syn.csv")
    read = published_actg_syn(tmp_path / "actg_syn.csv")
    assert read.exact is not None
    np.testing.assert_allclose(read.exact(Estimand()), made.exact(Estimand()), rtol=1e-9)
    assert len(read.split(0)[0]) == 20
    with pytest.raises(UsageError, match="1 published splits"):
        read.split(1)


@pytest.mark.parametrize("number", list(MIMIC_NAMES))
def test_mimic_style_effects_are_the_means_of_the_draws(number: int) -> None:
    data = make_mimic_syn(number, *stand_in_admissions(20_000))
    assert data.exact is not None
    for estimand in (Estimand(), Estimand("rmst", 28.0), Estimand("survival", 28.0)):
        draws = data.effects(estimand)
        assert draws is not None
        gap = draws - data.exact(estimand)
        assert abs(gap.mean()) < 4.5 * gap.std() / np.sqrt(len(gap))


def test_mimic_style_censoring_falls_from_one_to_five() -> None:
    shares = [1 - make_mimic_syn(i, *stand_in_admissions()).event.mean() for i in range(1, 6)]
    assert shares == sorted(shares, reverse=True)
    with pytest.raises(UsageError, match="1 to 9"):
        make_mimic_syn(10, *stand_in_admissions(50))
    with pytest.raises(DataError, match="anion_gap"):
        make_mimic_syn(1, np.zeros((5, 1)), ["age_std"])


def test_twins_keep_lifetimes_up_to_the_horizon(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, lives = rng.normal(size=(500, 4)), rng.exponential(200, (500, 2))
    data = make_twins(X, lives, 30.0)
    assert data.T0 is not None
    assert data.T1 is not None
    np.testing.assert_allclose(data.T0, np.minimum(lives[:, 0], 30))
    assert data.time.max() <= 30
    np.testing.assert_array_equal(data.time, make_twins(X, lives, 30.0).time)
    columns = {f"x{i}": X[:, i] for i in range(4)}
    pl.DataFrame(
        {
            "observed_time": data.time,
            "event": data.event.astype(int),
            "T0": data.T0,
            "T1": data.T1,
            "W": data.W,
            **columns,
        }
    ).write_csv(tmp_path / "twin30.csv")
    read = published_twins(tmp_path / "twin30.csv", 30)
    assert read.estimand("rmst") == Estimand("rmst", 30.0)
    np.testing.assert_allclose(read.X, X)


def test_actg175_ships_with_low_and_high_censoring() -> None:
    low, high = load_actg175("LC"), load_actg175("HC")
    assert (len(low), low.X.shape[1], low.end) == (600, 12, 30.0)
    assert 1 - low.event.mean() == pytest.approx(0.137, abs=0.01)
    versions = [high.version(i) for i in range(10)]
    assert all(1 - v.event.mean() > 0.7 for v in versions)
    assert all(np.all(v.time <= low.time) for v in versions)
    assert not np.array_equal(versions[0].time, versions[1].time)
    with pytest.raises(UsageError, match="LC and HC"):
        load_actg175("MC")
    with pytest.raises(UsageError, match="contrast HIV1"):
        load_actg175(contrast="HIV2")


def test_the_whole_actg175_gives_each_contrast(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 80
    frame = pl.DataFrame(
        {name: rng.integers(0, 2, n) for name in ("gender", "race", "hemo", "homo", "drugs", "str2", "symptom", "z30")}
        | {name: rng.uniform(1, 9, n) for name in ("age", "wtkg", "karnof", "cd40", "cd80")}
        | {"days": rng.integers(20, 1200, n), "cens": rng.integers(0, 2, n), "arms": np.arange(n) % 4}
    )
    frame.write_csv(tmp_path / "actg175.csv")
    for arm, contrast in ((1, "HIV1"), (2, "HIV2"), (3, "HIV3")):
        data = contrast_of(tmp_path / "actg175.csv", contrast, "LC")
        chosen = frame.filter(pl.col("arms").is_in([0, arm]))
        assert len(data) == 40
        np.testing.assert_array_equal(data.W, (chosen["arms"] == arm).to_numpy())
        late = chosen["days"].to_numpy() >= 900
        assert np.all(data.event[late])
        assert np.all(data.time[late] == 30)
    bench = SurvHTE(data=str(tmp_path), sets="actg175-*")
    assert {s.id for t in bench.tasks() for s in t.samples()} == {
        f"actg175-HIV{i}-{level}" for i in (1, 2, 3) for level in ("LC", "HC")
    }
    frame.drop("days").write_csv(tmp_path / "broken.csv")
    with pytest.raises(DataError, match="days, time"):
        contrast_of(tmp_path / "broken.csv", "HIV1", "LC")


def test_published_contrasts_bring_ten_versions_and_reference_effects(tmp_path: Path) -> None:
    from assay.core.datasets import read_table

    frame = read_table(SAMPLE)
    more = {f"t{i}": frame["observed_time_month"] / (i + 1) for i in range(10)}
    more |= {f"e{i}": frame["effect_non_censor"] for i in range(10)}
    frame.with_columns(**more, cate_base=pl.lit(1.5)).write_csv(tmp_path / "ACTG_175_HIV1.csv")
    data = published_contrast(tmp_path / "ACTG_175_HIV1.csv", "HIV1", "HC")
    np.testing.assert_allclose(data.version(3).time, frame["observed_time_month"].to_numpy() / 4)
    assert data.reference is not None
    assert set(data.reference) == {1.5}


def test_a_published_file_with_a_fault_is_named_by_row_and_column(tmp_path: Path) -> None:
    path = tmp_path / "twin30.csv"
    path.write_text("observed_time,event,T0,T1,W,x\n1,1,1,2,0,3\n2,1,1,2,1,\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"twin30.csv, row 3, column 'x'"):
        read_published(path, "twin30")
    path.write_text("observed_time,T0,T1,W,x\n1,1,2,0,3\n", encoding="utf-8")
    with pytest.raises(DataError, match="'event' is missing"):
        read_published(path, "twin30")
    (tmp_path / "twin30.csv").unlink()
    (tmp_path / "other.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="no file that this room reads"):
        SurvHTE(data=str(tmp_path)).tasks()


@pytest.mark.parametrize(("name", "rows"), [("aids", 1151), ("gbsg2", 686), ("veterans", 137)])
def test_sets_of_scikit_survival_load_with_their_treatment(name: str, rows: int) -> None:
    data = load_packaged(name)
    assert len(data) == rows
    assert 0.3 < data.W.mean() < 0.7
    assert np.isfinite(data.X).all()
    assert data.effects(Estimand()) is None


def test_options_are_checked_before_any_work() -> None:
    assert training_sizes("own,100, 500") == [None, 100, 500]
    for text in ("ten", "5", "100,100"):
        with pytest.raises(UsageError, match="n_train"):
            training_sizes(text)
    with pytest.raises(UsageError, match="chooses no data set"):
        SurvHTE(sets="RTC*").tasks()
    with pytest.raises(UsageError, match="n_test=0"):
        SurvHTE(n_test=0)
    assert len(SurvHTE().tasks()[0].samples()) == 40


def test_exported_data_sets_have_the_published_columns(tmp_path: Path) -> None:
    export(tmp_path, sets="RCT-50/A,RCT-5/C", n=200)
    frame = pl.read_csv(tmp_path / "RCT-50_A.csv")
    assert frame.columns[:4] == ["id", "observed_time", "event", "W"]
    drawn = synthetic.draw("RCT-50", "A", 200, np.random.RandomState(2025))
    np.testing.assert_allclose(frame["T1"].to_numpy(), drawn.T1)
    assert {p.name for p in tmp_path.iterdir()} == {"RCT-50_A.csv", "RCT-5_C.csv"}
    with pytest.raises(UsageError, match="chooses no synthetic"):
        export(tmp_path, sets="X")
