"""Curves, the estimator, data, runs, analyses and recipes; every rule of check_benchmark."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import wavfile
from sklearn.base import clone

import assay
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.information import rate_distortion as room
from assay.information.rate_distortion import analyses, recipes, reproduce
from assay.information.rate_distortion.benchmark import RateDistortionBenchmark
from assay.information.rate_distortion.curves import Point
from assay.information.rate_distortion.data import (
    SOURCES,
    across_mean,
    digit_patches,
    image_patches,
    make_source,
    sound_features,
)
from assay.information.rate_distortion.scoring import compare, truth

GAUSSIAN = [Point(e, 0.5 * math.log(1 / e), e / 2, extra={"rate_knn": 1.0}) for e in (0.4, 0.1, 0.2)]


def test_units_are_told_apart():
    assert room.convert_rate(math.log(2), "bits") == pytest.approx(1.0)
    assert room.convert_rate(math.log(2), "bits", d=4) == pytest.approx(0.25)
    assert room.convert_distortion(0.5, "mse") == 1.0
    assert room.convert_distortion(0.5, "mse_per_dimension", d=4) == 0.25
    assert room.convert_distortion(0.5 * 16 * 1e-3, "psnr", d=16) == pytest.approx(30.0)
    for unit in ("half_mse", "mse", "mse_per_dimension", "psnr"):
        there = room.convert_distortion(0.3, unit, d=5, peak=2.0)
        assert room.half_mse_of(there, unit, d=5, peak=2.0) == pytest.approx(0.3)
    with pytest.raises(UsageError, match="half_mse, mse"):
        room.convert_distortion(0.5, "sse")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="nats or bits"):
        room.convert_rate(1.0, "bytes")  # pyright: ignore[reportArgumentType]


def test_a_curve_is_sorted_interpolated_on_its_envelope_and_refuses_to_extrapolate():
    curve = room.Curve(GAUSSIAN, 1, half_mse_max=0.5)
    assert curve.eps.tolist() == [0.1, 0.2, 0.4]
    assert curve.rate(0.1, "nats") == pytest.approx(0.5 * math.log(5))
    assert curve.rate(0.2, "bits", distortion_unit="mse") == pytest.approx(0.5 * math.log2(5))
    assert curve.rate(0.15, "nats") >= 0.5 * math.log(1 / 0.3)
    assert curve.rate(0.5, "nats") == curve.rate(7.0, "nats") == 0.0
    with pytest.raises(UsageError, match="smaller eps"):
        curve.rate(0.01)
    slopes = curve.slopes()
    assert slopes[:, 1] == pytest.approx(slopes[:, 2])


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=12))
def test_the_envelope_is_convex_falling_and_below_every_point(points):
    hull = room.lower_envelope(points)
    for x, y in points:
        assert np.interp(x, hull[:, 0], hull[:, 1]) <= y + 1e-9
    steps = np.diff(hull, axis=0)
    assert np.all(steps[:, 1] < 0)
    if len(steps) > 1:
        slopes = steps[:, 1] / steps[:, 0]
        assert np.all(np.diff(slopes) >= -1e-6 * np.abs(slopes[:-1]))


@pytest.mark.parametrize("name", ["curve.csv", "curve.json"])
def test_curves_survive_a_file(tmp_path, name):
    curve = room.Curve(GAUSSIAN, 1, "gaussian", "closed", 0.5)
    again = room.Curve.load(curve.save(tmp_path / name))
    assert again.rows()[0].keys() == curve.rows()[0].keys()
    assert again.rate_nats == pytest.approx(curve.rate_nats)
    assert (again.source, again.method) == ("gaussian", "closed")
    if name.endswith("json"):
        assert again.points[0].extra == {"rate_knn": 1.0}
        assert again.half_mse_max == 0.5


def test_broken_curves_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("eps,rate_nats,half_mse\n0.1,x,0.2\n")
    (tmp_path / "b.json").write_text("{}")
    for name, message in (("a.csv", "row 2"), ("b.json", "as a curve"), ("c.csv", r"c\.csv")):
        with pytest.raises(DataError, match=message):
            room.Curve.load(tmp_path / name)
    with pytest.raises(UsageError, match=r"\.csv or \.json"):
        room.Curve(GAUSSIAN, 1).save(tmp_path / "curve.txt")


@pytest.mark.parametrize("method", ["r2d2", "wgd", "hybrid", "nerd", "ba", "gaussian"])
def test_every_method_fits_measures_and_reconstructs(method):
    x = room.Gaussian(4.0).sample(3000, np.random.default_rng(0))
    estimator = room.RateDistortionEstimator(
        method, eps_range=(0.4, 1.0), points=2, steps={"r2d2": 0, "ba": 500}.get(method, 40), particles=200,
        learning_rate=1e-2 if method == "nerd" else None,
    )  # fmt: skip
    curve = clone(estimator).fit(x).curve_
    assert curve.method == method
    estimator.fit(x)
    assert estimator.curve_.rate_nats == pytest.approx(curve.rate_nats), "the same seed, the same curve"
    for p in curve.points:
        true = room.Gaussian(4.0).exact_rd(p.eps)
        assert p.lagrangian == pytest.approx(true.rate + true.half_mse / p.eps, abs=0.12)
    y = estimator.sample_reconstruction(x[:2000], 0.4)
    assert y.shape == (2000, 1)
    assert ((x[:2000] - y) ** 2).mean() / 2 == pytest.approx(curve.half_mse[0], rel=0.2)
    assert estimator.rate(2.0, distortion_unit="half_mse") == pytest.approx(0.0, abs=0.15)


@pytest.mark.parametrize(
    ("options", "x", "message"),
    [
        ({"method": "r2d3"}, np.arange(20.0), "r2d2"),
        ({"eps_range": (1.0, 0.1)}, np.arange(20.0), "low <= high"),
        ({"test_size": 1.5}, np.arange(20.0), "between 0 and 1"),
        ({}, np.ones(20), "discrete"),
        ({}, np.arange(5.0), "n >= 10"),
        ({"method": "ba"}, np.random.default_rng(0).normal(size=(20, 3)), "one or two dimensions"),
        ({}, np.array(["a"] * 20), "numbers"),
    ],
)
def test_bad_input_of_the_estimator_is_told(options, x, message):
    with pytest.raises(UsageError, match=message):
        room.RateDistortionEstimator(**options).fit(x)


def test_all_sources_of_the_benchmark_can_be_sampled_and_those_with_formulas_have_a_truth():
    for name in SOURCES:
        case = make_source(name)
        x = case.source.sample(50, np.random.default_rng(0))
        assert x.shape == (50, case.source.d), name
        assert np.isfinite(x).all(), name
        assert 0 < case.low < case.high
        known = None if name == "sinc4" else truth(case, case.high)
        assert (known is None) == (name in ("patches", "digits", "audio", "sinc4")), name


def test_patches_are_dithered_and_lose_their_mean_isometrically():
    x = digit_patches(count=500)
    assert x.shape == (500, 16)
    assert 0 <= x.min() < x.max() <= 1
    assert len(np.unique(x, axis=0)) == 500
    q = across_mean(16)
    assert q @ q.T == pytest.approx(np.eye(15), abs=1e-12)
    assert q @ np.ones(16) == pytest.approx(np.zeros(15), abs=1e-12)
    away = image_patches(count=200, remove_mean=True)
    whole = image_patches(count=200)
    centred = whole - whole.mean(1, keepdims=True)
    assert (away**2).sum(1) == pytest.approx((centred**2).sum(1))


def test_folders_of_images_and_of_speech_are_read(tmp_path):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / "one.png")
    assert image_patches(str(tmp_path), count=100).shape == (100, 16)
    for i in range(3):
        wavfile.write(tmp_path / f"{i}_anna_0.wav", 8000, (3000 * rng.standard_normal(4000)).astype(np.int16))
    x = sound_features(str(tmp_path))
    assert x.shape[1] == 33
    assert np.cov(x.T) == pytest.approx(np.eye(33), abs=1e-6)
    wavfile.write(tmp_path / "3_anna_0.wav", 16000, np.zeros(4000, np.int16))
    with pytest.raises(DataError, match="8000 Hz"):
        sound_features(str(tmp_path))
    (tmp_path / "two.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"two\.png"):
        image_patches(str(tmp_path))
    with pytest.raises(DataError, match="no images"):
        image_patches(str(tmp_path / "nowhere"))


def test_scores_compare_with_the_truth_at_equal_slopes():
    case = make_source("gaussian")
    eps = case.levels(3)
    exact = [case.source.exact_rd(float(e)) for e in eps]
    good = room.Curve([Point(e.eps, e.rate, e.half_mse) for e in exact], 1)
    rows, scores = compare(good, case)
    assert scores == pytest.approx({"rate_error": 0.0, "lagrangian_gap": 0.0, "ceiling_gap": 0.0}, abs=1e-12)
    low = room.Curve([Point(e.eps, min(e.rate, 1.0), e.half_mse) for e in exact], 1)
    assert compare(low, case)[1]["ceiling_gap"] == pytest.approx(exact[0].rate - 1.0)
    assert compare(good, make_source("digits"))[1]["rate_error"] is None
    assert len(rows) == 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    bench = RateDistortionBenchmark("gaussian,uniform", samples=1000, points=3)
    folder = tmp_path_factory.mktemp("runs")
    return Runs(
        [assay.run(bench, f"method:{m}", attempts=2, into=folder / str(i)) for i, m in enumerate(("gaussian", "ba"))]
    )


def test_runs_hold_curves_and_every_analysis_reads_them(runs):
    for run in runs:
        assert run.records["status"].to_list() == ["ok"] * 4
        assert run.rows("curves").height == 12
    by = dict(zip(("gaussian", "ba"), (run.records for run in runs)))
    here = {k: f.filter(f["source"] == "uniform")["rate_error"].mean() for k, f in by.items()}
    assert here["ba"] < here["gaussian"], "a Gaussian of equal variance is only a bound for the uniform law"
    shown = analyses.curves(runs)
    assert "truth" in shown.frame["system"].to_list()
    assert analyses.curves(runs, unit="nats", distortion="psnr").frame.height == shown.frame.height
    assert analyses.errors(runs).frame["seeds"].to_list() == [2] * 12
    assert set(analyses.envelope(runs).frame["system"]) == {"method:gaussian"}
    exact = analyses.slopes(runs).frame
    assert exact.filter((exact["source"] == "gaussian") & (exact["system"] == "method:gaussian"))[
        "ratio"
    ].to_list() == (pytest.approx([1.0, 1.0]))


def test_options_are_checked():
    for options, message in (
        ({"source": "gausian"}, "gaussian"),
        ({"source": ","}, "empty"),
        ({"samples": 3}, "at least 100"),
        ({"points": 0}, "at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            RateDistortionBenchmark(**options)


def test_recipes_write_what_they_promise(tmp_path):
    recipes.patches(tmp_path, samples=600, steps=0, particles=50, points=2)
    for name in ("curves.svg", "curves.csv", "bound.json", "r2d2.json", "wgd.json", "gaussian.json"):
        assert (tmp_path / name).stat().st_size > 20
    wgd, r2d2 = (room.Curve.load(tmp_path / f"{n}.json") for n in ("wgd", "r2d2"))
    assert r2d2.d == 16
    assert wgd.rate_nats.max() <= math.log(50) < r2d2.rate_nats.max()
    recipes.trajectories(tmp_path, paths=3, samples=500)
    assert (tmp_path / "paths.svg").read_text().startswith("<svg")
    assert (tmp_path / "density.csv").read_text().count("\n") == 241


def test_claims_fail_where_figures_do():
    rows = [{"part": "exact", "source": s, "eps": 0.1, **dict.fromkeys(("rate", "half_mse", "energy"), 1.0),
             "true_rate": 1.0, "true_half_mse": 1.005, "true_energy": 1.0 if s == "gmm2" else 1.1}
            for s in reproduce.EXACT]  # fmt: skip
    assert [c.holds for c in reproduce.exact_claims(rows)] == [False, True, False]
    trained = [
        {"part": "trained", "source": s, "initial": i, "seed": 0, "eps": 0.1, "true_rate": 1.0,
         "rate_found": 1.04 if i == "zero" else 1.06}
        for s in ("gaussian", "gmm3") for i in reproduce.TRAINED
    ]  # fmt: skip
    assert [c.holds for c in reproduce.trained_claims(trained)] == [False, False, True, True]
    assert "FAIL" in reproduce.report(reproduce.exact_claims(rows), [], 1.0)


@pytest.mark.slow
def test_the_reproduction_runs_and_resumes(tmp_path):
    reproduce.reproduce(tmp_path, seeds=1)
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert len(claims) == 17
    text = (tmp_path / "report.md").read_text()
    reproduce.reproduce(tmp_path, seeds=1)
    assert (tmp_path / "report.md").read_text().split("CPU s;")[0] == text.split("CPU s;")[0]
