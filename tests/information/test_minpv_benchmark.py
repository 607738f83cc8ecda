"""minpv as a benchmark: runs, analyses, recipes, and every rule of check_benchmark."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import assay
from assay.core.errors import UsageError
from assay.core.results import Runs
from assay.information.minpv import analyses, recipes, reproduce
from assay.information.minpv.benchmark import MinPVBenchmark
from assay.information.minpv.estimators import DensityRatioEstimator
from assay.information.minpv.methods import METHODS, minpv

QUICK = {"steps": 3, "batch_size": 32, "width": 8, "blocks": 0, "K": 1}


class Exact:
    """Knows the ratio of correlated pairs, and nothing else."""

    random_state = 0

    def fit(self, x0: np.ndarray, x1: np.ndarray) -> Exact:
        pairs = x1[:, 0] * x1[:, 1]
        self.rho = float(pairs.mean() / np.sqrt((x1[:, 0] ** 2).mean() * (x1[:, 1] ** 2).mean()))
        return self

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        a, b, r = x[:, 0], x[:, 1], self.rho
        return -0.5 * np.log(1 - r * r) - (r * r * (a * a + b * b) - 2 * r * a * b) / (2 * (1 - r * r))


class Broken(Exact):
    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), np.nan)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    bench = MinPVBenchmark("mi", n=2000, test=1000)
    ids = [sample.id for sample in bench.tasks()[0].samples()[:2]]
    systems: dict[str, Any] = {"exact": Exact()}
    systems |= {name: DensityRatioEstimator(name, **QUICK) for name in ("linear", "vp", "smoothstep")}
    found = []
    for name, system in systems.items():
        system.name = name
        # Computed here: a worker process for every system would cost minutes.
        into = tmp_path_factory.mktemp("runs") / name
        found.append(assay.run(bench, system, samples=ids, attempts=2, workers=0, into=into))
    return Runs(found)


def test_an_estimator_that_knows_the_form_is_nearly_exact_and_its_trials_differ_by_seed(runs):
    records = runs[0].records
    assert records["abs_error"].max() < 0.15
    assert records["pointwise_rmse"].max() < 0.2
    assert records["estimate"].n_unique() == 4
    assert records.filter(sample="gauss-rho0.9")["truth"].unique().to_list() == [pytest.approx(0.8303656)]


def test_ranks_put_it_first_and_the_table_has_an_interval(runs):
    ranks = analyses.ranking(runs)
    assert ranks.frame["mean_rank"][0] == 1
    assert "Friedman" in ranks.notes[0]
    table = analyses.table(runs)
    assert table.frame.height == 8
    assert (table.frame["low"] <= table.frame["high"]).all()
    with pytest.raises(UsageError, match="score"):
        analyses.table(runs, score="accuracy")


def test_variance_is_correlated_over_systems_with_a_path(runs):
    found = analyses.variance(runs)
    assert found.frame["systems"].to_list() == [3, 3]
    assert found.frame["spearman"].is_between(-1, 1).all()
    with pytest.raises(UsageError, match="three systems"):
        analyses.variance(runs[1:3])


def test_log_ratios_that_are_not_finite_are_errors_not_scores():
    (task,) = MinPVBenchmark("mi", n=50, test=20).tasks()
    ctx: Any = SimpleNamespace(seed=1)
    with pytest.raises(UsageError, match="20 that are not finite"):
        task.trial(Broken(), task.samples()[0], ctx)


def test_a_path_without_noise_has_no_variance_to_score(tmp_path):
    made = METHODS["dre_infinity"](**{k: v for k, v in QUICK.items() if k != "K"})
    bench = MinPVBenchmark("mi", n=50, test=20)
    records = assay.run(bench, made, samples=2, attempts=1, workers=0, into=tmp_path / "run").records
    assert records["path_variance"].null_count() == records.height == 2
    assert records["squared_error"].null_count() == 0


def test_densities_and_shifts_are_scored(tmp_path):
    bench = MinPVBenchmark("shift,density", n=300, test=100)
    made = DensityRatioEstimator("linear", **QUICK)
    run = assay.run(bench, made, samples=["moons", "breast_cancer", "gauss_shift-d2-step5"], attempts=1, into=tmp_path)
    assert run.records["status"].to_list() == ["ok"] * 3
    assert run.records.filter(task="density")["nll"].null_count() == 0
    assert run.records.filter(task="shift")["path_variance"][0] > 0


@pytest.mark.parametrize("name", METHODS)
def test_methods_build_estimators_with_their_options(name):
    made = METHODS[name]()
    assert callable(made.fit)
    assert callable(made.log_ratio)


def test_wrong_options_are_refused_with_what_there_is():
    with pytest.raises(UsageError, match="steps"):
        minpv(step=3)
    for options, match in (({"tasks": "mii"}, "mi"), ({"tasks": ""}, "empty"), ({"n": 1}, "n=1")):
        with pytest.raises(UsageError, match=match):
            MinPVBenchmark(**options)


def test_the_paths_recipe_writes_figures_and_the_variances_behind_them(tmp_path):
    recipes.paths(tmp_path, components=1)
    found = json.loads((tmp_path / "paths.json").read_text())
    v = {name: one["V"] for name, one in found["paths"].items()}
    assert v["optimal_spherical"] == pytest.approx(741.16, rel=1e-3)
    assert v["linear"] == pytest.approx(799.984)
    assert v["kmm_spherical"] >= v["optimal_spherical"] * (1 - 1e-4)
    for name in ("paths.svg", "variance.svg"):
        assert "<svg" in (tmp_path / name).read_text()


def test_reproduction_claims_are_judged_by_their_rows():
    def row(path: str, problem: str, seed: int, error: float, v: float) -> dict:
        return {"problem": problem, "path": path, "seed": seed, "estimate": 1 + error, "truth": 1.0, "V": v,
                "antithetic": True, "cpu_seconds": 1.0}  # fmt: skip

    order = ["kmm_affine", "kmm_spherical", "linear", "trigonometric", "foellmer", "cosine", "vp"]
    rows = [row(path, problem, seed, 0.1 * (k + 1), 100.0 * (k + 1))
            for problem in reproduce.PROBLEMS for k, path in enumerate(order) for seed in range(3)]  # fmt: skip
    claims = reproduce.estimation_claims(rows, "x")
    assert [c.holds for c in claims] == [True] * 5
    turned = [r | {"estimate": 1 + 1 / (r["estimate"] - 1)} for r in rows]
    assert [c.holds for c in reproduce.estimation_claims(turned, "x")] == [False] * 5
    assert "| x: " in reproduce.report(claims, rows, 1.0)
    one = reproduce.variances({"setting": 3})
    assert all(c.holds for c in reproduce.variance_claims([one]))
    worse = one | {"kmm_affine": 2 * one["fixed_variance"], "kmm_spherical": 2 * one["fixed_variance"]}
    assert not any(c.holds for c in reproduce.variance_claims([worse]))
