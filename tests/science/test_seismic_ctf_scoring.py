"""seismic_ctf: scores, norm, definitions, times and splits against the oracles and closed forms."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.science.seismic_ctf import scoring
from assay.science.seismic_ctf.definition import define, known_datasets, known_definition, parse_pairs
from assay.science.seismic_ctf.generators.globe import fibonacci_sphere
from assay.science.seismic_ctf.generators.sea import wavenumber
from assay.science.seismic_ctf.norm import spectral_norm

ORACLES = Path(__file__).parents[1] / "oracles/seismic_ctf"


def oracle(name: str) -> dict:
    return json.loads((ORACLES / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", oracle("metrics")["cases"], ids=lambda c: c["name"])
def test_spatial_scores_are_the_official_ones(case):
    arrays = np.load(ORACLES / "metrics_inputs.npz")
    t, p = arrays[f"{case['name']}_truth"], arrays[f"{case['name']}_pred"]
    want, k = case["expected"], case["params"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = scoring.short_time(t, p, k["k_short"])
    assert got == pytest.approx(want["short_time"], abs=1e-8)
    assert scoring.reconstruction(t, p) == pytest.approx(want["reconstruction"], abs=1e-8)
    long = scoring.long_time_spectral(t, p, k["k_long"], k["modes"])
    assert long == pytest.approx(want["long_time_psd"], abs=1e-8)
    log = scoring.long_time_spectral(t, p, k["k_long"], k["modes"], "logpsd")
    assert log == pytest.approx(float(want["long_time_logpsd_paper_variant"]), abs=1e-8)


@pytest.mark.parametrize("case", oracle("histogram")["cases"], ids=lambda c: c["name"])
def test_histogram_score_is_the_official_one(case):
    arrays = np.load(ORACLES / "histogram_inputs.npz")
    t, p = arrays[f"{case['name']}_truth"], arrays[f"{case['name']}_pred"]
    assert scoring.long_time_histogram(t, p, **case["params"]) == pytest.approx(case["expected"], abs=1e-9)


@pytest.mark.parametrize("case", oracle("aggregation")["cases"], ids=lambda c: c["name"])
def test_average_clips_first(case):
    assert [scoring.clip(v) for v in case["E"]] == pytest.approx(case["expected_clipped"], abs=1e-9)
    assert scoring.average(case["E"]) == pytest.approx(case["expected_average"], abs=1e-9)


def test_missing_and_undefined_scores_count_as_minus_hundred():
    assert scoring.average({"E1": float("nan")}) == -100.0
    assert scoring.average([100.0] * 11 + [float("-inf")]) == pytest.approx(1000 / 12)
    assert scoring.ability_averages({f"E{i}": 0.0 for i in range(1, 13)}) == dict.fromkeys(scoring.ABILITIES, 0.0)
    with pytest.raises(DataError, match="twelve"):
        scoring.average([0.0])
    with pytest.raises(DataError, match="E13"):
        scoring.average({"E13": 1.0})


@pytest.mark.parametrize("entry", oracle("pairs_and_timesteps")["pair_metric_to_E"], ids=str)
def test_scores_are_numbered_as_published(entry):
    assert scoring.E_OF[entry["pair"], entry["metric"]] == entry["E"]


def test_pairs_name_the_published_files():
    for entry in oracle("pairs_and_timesteps")["pairs"]:
        pair = known_definition("seismo").pair(entry["id"])
        assert [Path(f).stem for f in pair.train] == entry["train"]
        assert Path(pair.test).stem == entry["test"]
        assert (pair.init and Path(pair.init).stem) == entry.get("initialization")
        assert [scoring.E_OF[pair.id, m] for m in pair.metrics] == entry["E"]


@pytest.mark.parametrize(
    "entry", oracle("pairs_and_timesteps")["timesteps"], ids=lambda e: f"{e['dataset']}-{e['pair']}"
)
def test_times_are_the_official_ones(entry):
    d = known_definition(entry["dataset"])
    pair = d.pair(entry["pair"])
    times = d.times(pair.test)
    assert len(times) == entry["n_pred"]
    assert times[[0, -1]] == pytest.approx([entry["pred_first"], entry["pred_last"]], abs=1e-9)
    for file, (rows, first, last) in zip(pair.train, entry.get("train", ())):
        got = d.times(file)
        assert (len(got), got[0], got[-1]) == (rows, pytest.approx(first), pytest.approx(last))


@pytest.mark.parametrize("case", oracle("pair_id_parser")["cases"], ids=lambda c: str(c["input"]))
def test_pairs_are_parsed_as_officially(case):
    if case["expected"] == "ValueError":
        with pytest.raises(UsageError):
            parse_pairs(case["input"], range(1, 10))
    else:
        assert parse_pairs(case["input"], range(1, 10)) == case["expected"]


def test_pairs_beyond_the_official_forms():
    assert parse_pairs("5", range(1, 10)) == [5]
    assert parse_pairs("1,4-6", range(1, 10)) == [1, 4, 5, 6]
    with pytest.raises(UsageError, match="backwards"):
        parse_pairs("3-1", range(1, 10))


def test_every_known_definition_has_twelve_scores_and_all_shapes():
    assert len(known_datasets()) == 8
    for name in known_datasets():
        d = known_definition(name)
        assert sum(len(p.metrics) for p in d.pairs) == 12
        assert len(d.shapes) == 19


def test_stations_and_waves_are_the_closed_forms():
    sphere = fibonacci_sphere(2048)
    for case in oracle("fibonacci_sensors")["cases"]:
        want = [case[key] for key in ("latitude", "longitude", "x", "y", "z")]
        assert sphere[case["index"]] == pytest.approx(want, abs=1e-9)
    for case in oracle("ocean_dispersion")["cases"]:
        assert wavenumber(case["frequency_hz"], case["depth_m"]) == pytest.approx(case["k_rad_per_m"], rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 2.0), st.floats(1.0, 5000.0))
def test_wavenumbers_solve_the_dispersion_relation(seed, frequency, depth):
    k = float(wavenumber(frequency, depth))
    assert 9.81 * k * np.tanh(k * depth) == pytest.approx((2 * np.pi * frequency) ** 2, rel=1e-11)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40), st.floats(1e-150, 1e150))
def test_spectral_norm_is_numpys(seed, rows, columns, scale):
    a = np.random.default_rng(seed).standard_normal((rows, columns)) * scale
    assert spectral_norm(a) == pytest.approx(np.linalg.norm(a, ord=2), rel=1e-11)


@pytest.mark.parametrize("kind", ["noise", "low rank", "twins", "close", "float32", "tall"])
def test_large_matrices_are_met_by_lanczos_to_1e_9(kind):
    rng = np.random.default_rng(3)
    rows, columns = (720, 660) if kind == "tall" else (660, 720)
    a = rng.standard_normal((rows, columns))
    if kind == "low rank":
        a = rng.standard_normal((660, 4)) @ rng.standard_normal((4, 720)) + 1e-3 * a
    if kind in ("twins", "close"):
        u, _, v = np.linalg.svd(a, full_matrices=False)
        s = np.linspace(1, 0.01, 660)
        s[1] = 1.0 if kind == "twins" else 1 - 1e-10
        a = (u * s) @ v
    if kind == "float32":
        a = a.astype(np.float32)
    assert spectral_norm(a) == pytest.approx(np.linalg.norm(a.astype(float), ord=2), rel=1e-9)


def test_a_norm_of_nothing_finite_is_refused_and_zeros_are_zero():
    assert spectral_norm(np.zeros((700, 700))) == 0.0
    for bad in (np.full((2, 2), np.nan), np.zeros((0, 3)), np.zeros(3)):
        with pytest.raises(DataError):
            spectral_norm(bad)


def test_short_time_uses_the_spectral_norm_and_not_frobenius():
    case = next(c for c in oracle("metrics")["cases"] if c["name"] == "noise10")
    arrays = np.load(ORACLES / "metrics_inputs.npz")
    got = scoring.short_time(arrays["noise10_truth"], arrays["noise10_pred"], 20)
    assert abs(got - case["not_expected_frobenius_short"]) > 1


def test_bad_predictions_are_refused_with_the_reason():
    t = np.ones((30, 8))
    cases = {
        "transposed": np.ones((8, 30)),
        "complex": t.astype(complex),
        "object": t.astype(object),
        "row 2, column 1": np.where(np.arange(240).reshape(30, 8) == 17, np.nan, 1.0),
        "dimensions": np.ones(30),
    }
    for words, bad in cases.items():
        with pytest.raises(DataError, match=words):
            scoring.reconstruction(t, bad)
    with pytest.raises(DataError, match="zero everywhere"):
        scoring.reconstruction(t * 0, t)
    with pytest.raises(DataError, match="no more frequencies"):
        scoring.long_time_spectral(t, t, 20, 5)
    with pytest.raises(DataError, match="k_long=31"):
        scoring.long_time_spectral(t, t, 31, 2)
    with pytest.warns(UserWarning, match="all are used"):
        assert scoring.short_time(t, t, 31) == 100.0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(4, 41))
def test_zeros_score_zero_and_truth_hundred(seed, sensors):
    t = np.random.default_rng(seed).standard_normal((25, sensors))
    d = define("x", widths=(sensors,) * 2, rows=(25, 10, 25), starts=(0, 0, 0, 0), delta_t=1.0, modes=sensors // 2)
    for metric in ("short_time", "long_time", "reconstruction"):
        assert scoring.metric_score(metric, d, t, t * 0) == 0.0
        assert scoring.metric_score(metric, d, t, t) == 100.0
    with pytest.raises(DataError, match="no metric"):
        scoring.metric_score("rmse", d, t, t)
