"""seismic_ctf: forecasters find what they should on systems with known answers, and keep their contract."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import DataError, MissingExtra, UsageError
from assay.core.registry import typed_options
from assay.science.seismic_ctf import build, scoring
from assay.science.seismic_ctf.data import Times
from assay.science.seismic_ctf.methods import CATALOGUE, Factory, methods
from assay.science.seismic_ctf.methods.latent import Modes
from assay.science.seismic_ctf.protocol import Forecaster, seeded_copy
from assay.science.seismic_ctf.sensing import PLACEMENTS, RECONSTRUCTORS, _make, place
from assay.science.seismic_ctf.tuning import draw, parse_space

ORACLES = Path(__file__).parents[1] / "oracles/seismic_ctf"
# Settings that keep each method to a second; what is offline needs none.
QUICK = {
    "esn": {"units": 150}, "lstm": {"epochs": 3}, "ode_lstm": {"epochs": 1}, "spacetime": {"epochs": 1},
    "neural_ode": {"epochs": 2}, "pinn": {"epochs": 5, "points": 256}, "fno": {"epochs": 1, "size": 8},
    "deeponet": {"epochs": 1}, "kan": {"epochs": 1}, "optdmd": {"rank": 8, "delay": 2}, "koopman": {"count": 4},
}  # fmt: skip
# What a method needs beyond the packages of the base; a test of it is skipped where that is not installed.
PACKAGES = {
    "esn": "reservoirpy", "dmd": "pydmd", "hodmd": "pydmd", "optdmd": "pydmd", "pdmd": "ezyrb", "koopman": "pykoopman",
    "sindy": "pysindy", "ode_lstm": "torchdiffeq", "neural_ode": "torchdiffeq", "fno": "neuralop",
    "deeponet": "deepxde", "pinn": "deepxde", "kan": "kan",
}  # fmt: skip


def needs(name: str) -> None:
    """Skip where the method's package is not installed."""
    package = PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


OFFLINE = [name for name, entry in CATALOGUE.items() if entry.family != "pretrained"]


def waves(rows: int, sensors: int = 40, start: int = 0, speed: float = 1.0) -> np.ndarray:
    """Three travelling waves: rank six, periodic."""
    t, x = np.arange(start, start + rows)[:, None], np.arange(sensors)[None]
    return sum(
        a * np.cos(2 * np.pi * m * x / sensors - speed * w * t)
        for m, w, a in ((1, 0.11, 1.0), (2, 0.23, 0.7), (3, 0.31, 0.5))
    )


def given(rows: int = 200, ahead: int = 30, speed: float = 1.0):
    times = Times((np.arange(rows, dtype=float),), np.arange(rows, rows + ahead, dtype=float))
    return [waves(rows, speed=speed)], times, waves(ahead, start=rows, speed=speed)


def several(ahead: int = 20):
    """Training at three speeds, a burn-in at another, as in the parametric pairs."""
    speeds, t = (0.8, 1.0, 1.4), np.arange(120, dtype=float)
    times = Times((t,) * 3, np.arange(120, 120 + ahead, dtype=float), t[-60:], 1.0, (1.0, 2.0, 4.0), 3.0)
    return (
        [waves(120, speed=s) for s in speeds],
        waves(60, start=60, speed=1.2),
        times,
        waves(ahead, start=120, speed=1.2),
    )


@pytest.mark.parametrize("name", OFFLINE)
def test_every_method_forecasts_denoises_and_takes_a_burn_in(name):
    needs(name)
    model = seeded_copy(build(name, **QUICK.get(name, {})), 3)
    assert isinstance(model, Forecaster)
    train, times, _ = given(120)
    ahead = seeded_copy(model, 3).fit(train, None, times).predict(times.test)
    assert ahead.shape == (30, 40)
    inside = seeded_copy(model, 3).fit(train, None, times).predict(times.train[0])
    assert inside.shape == (120, 40)
    assert np.isfinite(inside).all()
    matrices, init, apart, _ = several()
    assert seeded_copy(model, 3).fit(matrices, init, apart).predict(apart.test).shape == (20, 40)


@pytest.mark.parametrize("kind", ["linear", "nlinear", "dlinear"])
def test_linear_windows_go_on_with_waves_exactly(kind):
    """Three frequencies obey a recurrence of six steps, which any window of six holds."""
    train, times, truth = given(300, 60)
    model = build("nlinear", kind=kind, window=40, horizon=20, ridge=0.0).fit(train, None, times)
    assert model.predict(times.test) == pytest.approx(truth, abs=1e-3)
    # From the first whole window on.
    assert model.predict(times.train[0])[41:] == pytest.approx(train[0][41:], abs=1e-3)


def test_nlinear_goes_on_from_where_the_data_are():
    """The mean shifts after training, as in the paper's argument for taking the last value off."""
    train, _, _ = given(200, 1)
    t = np.arange(200.0)
    apart = Times((t,), np.arange(200.0, 230.0), t[-60:])
    model = build("nlinear", window=40).fit(train, waves(60, start=140) + 5, apart)
    assert model.predict(apart.test) == pytest.approx(waves(30, start=200) + 5, abs=0.05)


def test_the_weights_of_linear_windows_are_least_squares():
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    z = np.cumsum(rng.normal(size=(80, 3)), axis=0)
    model = build("nlinear", window=7, horizon=4, ridge=0.0)
    model.fit([z], None, Times((np.arange(80.0),), np.arange(80.0, 84.0)))
    scaled = model.modes_.down(z)
    rows = np.concatenate([scaled[i : i + 11].T for i in range(70)])
    x, y = rows[:, :7] - rows[:, 6:7], rows[:, 7:] - rows[:, 6:7]
    plain = LinearRegression().fit(x[:, :6], y)
    assert model._block(rows[:, :7]) == pytest.approx(plain.predict(x[:, :6]) + rows[:, 6:7], abs=1e-6)


def test_without_a_penalty_dlinear_is_linear():
    rng = np.random.default_rng(1)
    z = np.cumsum(rng.normal(size=(300, 4)), axis=0)
    times = Times((np.arange(300.0),), np.arange(300.0, 320.0))
    found = [
        build("nlinear", kind=kind, window=12, horizon=5, kernel=5, ridge=0.0).fit([z], None, times).predict(times.test)
        for kind in ("linear", "dlinear")
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_windows_shrink_to_short_data_and_refuse_what_is_no_window():
    train, times, _ = given(12, 5)
    assert build("dlinear").fit(train, None, times).predict(times.test).shape == (5, 40)
    for settings, word in (({"window": 0}, "window"), ({"kind": "quadratic"}, "quadratic")):
        with pytest.raises(UsageError, match=word):
            build("nlinear", **settings).fit(train, None, times)
    with pytest.raises(UsageError, match="3 rows"):
        build("nlinear").fit([train[0][:2]], None, Times((np.arange(2.0),), np.arange(2.0, 4.0)))


@pytest.mark.parametrize("name", ["random", "esn", "lstm", "kan"])
def test_equal_seeds_give_equal_predictions_and_others_do_not(name):
    needs(name)
    train, times, _ = given(100, 5)
    one, same, other = (
        seeded_copy(build(name, **QUICK.get(name, {})), seed).fit(train, None, times).predict(times.test)
        for seed in (1, 1, 2)
    )
    # pykan's least squares differ in the last digit with where memory lies.
    assert one == pytest.approx(same, rel=1e-5, abs=1e-7)
    assert np.abs(one - other).max() > 1e-3


def test_global_random_state_is_left_alone():
    train, times, _ = given(100, 5)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    for name in ("esn", "optdmd", "koopman"):
        needs(name)
        seeded_copy(build(name, **QUICK[name]), 1).fit(train, None, times)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.parametrize("kind", ["dmd", "hodmd", "optdmd"])
def test_dmd_finds_the_eigenvalues_of_travelling_waves(kind):
    oracle = json.loads((ORACLES / "dmd.json").read_text())
    arrays = np.load(ORACLES / "dmd_travelling_waves.npz")
    train, future = arrays["train"], arrays["future"]
    t = np.arange(60) * oracle["dt"]
    settings = {"rank": oracle["rank"], "modes": 0} | ({"delay": 3} if kind == "hodmd" else {})
    model = build(kind, **settings | ({"delay": 1} if kind == "optdmd" else {}))
    model.fit([train], None, Times((t[:40],), t[40:], None, oracle["dt"]))
    want = np.sort_complex([complex(*pair) for pair in oracle["eigenvalues"]])
    got = np.sort_complex(model.eigenvalues_[np.argsort(-np.abs(model.amplitudes_))][:4])
    assert np.abs(got - want).max() < (1e-6 if kind != "optdmd" else 1e-3)
    found = model.predict(t[40:])
    assert scoring.short_time(future, found) > (99.99 if kind != "optdmd" else 99)
    assert scoring.long_time_spectral(future, found, 20, 10) > (99.99 if kind != "optdmd" else 99)


@pytest.mark.parametrize(
    ("name", "settings", "least"),
    [
        ("esn", {"rank": 6, "units": 300, "ridge": 1e-6}, 90),
        ("koopman", {"rank": 6, "svd_rank": 20}, 99.9),
        ("sindy", {"rank": 6, "degree": 1, "threshold": 1e-4}, 80),
        ("lstm", {"rank": 6, "epochs": 120, "hidden": 48, "lr": 1e-2}, 40),
        ("neural_ode", {"rank": 6, "epochs": 60, "lr": 1e-2}, 60),
    ],
)
def test_step_by_step_methods_learn_travelling_waves(name, settings, least):
    needs(name)
    train, times, future = given(400)
    found = seeded_copy(build(name, **settings), 0).fit(train, None, times).predict(times.test)
    assert scoring.short_time(future, found) > least


@pytest.mark.parametrize(
    ("name", "settings"), [("esn", {"units": 60, "leak": 0.3, "ridge": 10.0}), ("koopman", {"svd_rank": 8})]
)
def test_one_step_predictions_denoise(name, settings):
    needs(name)
    train, times, _ = given(1500)
    noisy = train[0] + 0.5 * np.random.default_rng(0).standard_normal(train[0].shape)
    model = seeded_copy(build(name, rank=6, **settings), 0).fit([noisy], None, times)
    found = scoring.reconstruction(train[0], model.predict(times.train[0]))
    assert found > scoring.reconstruction(train[0], noisy) + 5


def test_a_burn_in_is_where_a_forecast_begins():
    matrices, init, times, future = several()
    for name in ("dmd", "koopman"):
        needs(name)
        settings = {"rank": 6} if name == "koopman" else {"rank": 6, "modes": 6}
        found = build(name, **settings).fit(matrices, init, times).predict(times.test)
        assert scoring.short_time(future, found) > 50


def test_baselines_are_what_they_say():
    train, times, _ = given()
    init = np.full((4, 40), 7.0)
    assert (build("zeros").fit(train).predict(times.test) == 0).all()
    assert build("average").fit(train).predict(times.test)[3] == pytest.approx(train[0].mean(axis=0))
    assert (build("average").fit(train, init).predict(times.test) == 7).all()
    assert (build("last").fit(train).predict(times.test) == train[0][-1]).all()
    row = build("random", random_state=1).fit(train).predict(times.test)
    assert np.unique(row).size == 1
    assert train[0].min() <= row[0, 0] <= train[0].max()
    with pytest.raises(UsageError, match="kind"):
        build("zeros", kind="median").fit(train)


def test_parametric_dmd_interpolates_between_parameters():
    needs("pdmd")
    t = np.arange(80, dtype=float)
    fields = [
        np.outer(np.cos(0.2 * t), np.ones(12)) * (1 + p) + np.outer(np.sin(0.2 * t), np.arange(12) / 12)
        for p in (1, 2, 4)
    ]
    times = Times((t,) * 3, np.arange(80, 100.0), t[:5], 1.0, (1.0, 2.0, 4.0), 3.0)
    found = build("pdmd", rank=2, modes=2).fit(fields, fields[0][:5], times).predict(times.test)
    want = np.outer(np.cos(0.2 * times.test), np.ones(12)) * 4 + np.outer(np.sin(0.2 * times.test), np.arange(12) / 12)
    assert scoring.reconstruction(want, found) > 80


def test_modes_go_down_and_up():
    x = waves(100) * 5 + 3
    modes = Modes([x], 6, 0)
    assert modes.up(modes.down(x)) == pytest.approx(x, abs=1e-8)
    assert modes.down(x).shape == (100, 6)
    assert Modes([x], 0, 0).down(x).std(axis=0) == pytest.approx(np.ones(40))
    with pytest.raises(UsageError, match="rank"):
        Modes([x], -1, 0)


def test_hyper_parameters_are_options_with_types():
    assert typed_options(Factory("lstm"), {"hidden": "64", "lr": "0.01"}, "method") == {"hidden": 64, "lr": 0.01}
    with pytest.raises(UsageError, match="hiden"):
        build("lstm", hiden=3)
    with pytest.raises(UsageError, match="lstmm"):
        build("lstmm")
    assert set(methods()) == set(CATALOGUE)
    assert build("dmd").set_params(rank=3).get_params()["rank"] == 3


@pytest.mark.parametrize("name", ["chronos", "tabpfn"])
def test_pretrained_models_say_what_they_need(name):
    train, times, _ = given(60, 5)
    with pytest.raises((MissingExtra, DataError), match=r"seismic_ctf-online|cannot be loaded"):
        build(name).fit(train, None, times).predict(times.test)


def test_chronos_is_asked_mode_by_mode(monkeypatch):
    import sys
    from types import SimpleNamespace

    import torch

    class Pipeline:
        @classmethod
        def from_pretrained(cls, name):
            return cls()

        def predict_quantiles(self, context, prediction_length, quantile_levels):
            assert quantile_levels == [0.5]
            return context[:, -1:, None].expand(-1, prediction_length, 1), None

    monkeypatch.setitem(sys.modules, "chronos", SimpleNamespace(BaseChronosPipeline=Pipeline))
    train, times, _ = given(60, 5)
    model = build("chronos", rank=6, block=4).fit(train, None, times)
    assert model.predict(times.test) == pytest.approx(np.tile(train[0][-1], (5, 1)), abs=1e-4)
    inside = model.predict(times.train[0])
    assert inside[7] == pytest.approx(train[0][4], abs=1e-4)
    assert torch.get_num_threads() >= 1


@pytest.mark.parametrize("name", RECONSTRUCTORS)
def test_few_sensors_complete_fields_of_low_rank(name):
    fields, truth = waves(300, 64), waves(60, 64, start=300)
    for how in PLACEMENTS:
        sensors = place(fields, 10, how, 1)
        found = _make(name).fit(fields, sensors).reconstruct(truth[:, sensors])
        assert found.shape == truth.shape
        least = {"mean": -1, "decoder": 50, "kriging": 20, "qdeim": 50}.get(name, 90)
        if how == "qr":
            assert scoring.reconstruction(truth, found) > least


def test_pivots_are_better_places_than_chance():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((200, 8)))[0] * np.exp(-np.arange(200) / 40)[:, None]
    fields = rng.standard_normal((300, 8)) @ basis.T
    u = np.linalg.svd(fields - fields.mean(0), full_matrices=False)[2][:8].T
    worst = [np.linalg.cond(u[place(fields, 8, "random", seed)]) for seed in range(10)]
    assert np.linalg.cond(u[place(fields, 8, "qr")]) < np.median(worst)
    for bad in (0, 201):
        with pytest.raises(UsageError, match="cannot be chosen"):
            place(fields, bad, "grid")
    with pytest.raises(UsageError, match="placement"):
        place(fields, 5, "star")


def test_search_spaces_draw_within_their_bounds():
    def between(kind, low, high, **more):
        return {"type": kind, "lower_bound": low, "upper_bound": high, **more}

    space = parse_space(
        json.dumps(
            {
                "a": between("uniform", 0, 1),
                "b": between("quniform", 0, 10, q=2),
                "c": between("loguniform", 1e-4, 1),
                "d": between("randint", 2, 5),
                "e": between("lograndint", 1, 100),
                "f": {"type": "choice", "choices": ["x", "y"]},
                "g": {"type": "randn", "mean": 3, "sd": 0.1},
                "h": between("qloguniform", 1, 64, q=4),
            }
        )
    )
    rng = np.random.default_rng(0)
    drawn = {name: [draw(entry, rng) for _ in range(400)] for name, entry in space.items()}
    assert set(drawn["b"]) <= {0, 2, 4, 6, 8, 10}
    assert set(drawn["d"]) == {2, 3, 4}
    assert min(drawn["e"]) >= 1
    assert max(drawn["e"]) < 100
    assert set(drawn["f"]) == {"x", "y"}
    assert np.median(np.log(drawn["c"])) == pytest.approx(math.log(1e-2), abs=0.5)
    assert np.mean(drawn["g"]) == pytest.approx(3, abs=0.05)
    for text, words in (
        ("[]", "object"), ('{"a": {"type": "beta"}}', "type must be"), ('{"a": {"type": "uniform"}}', "lower_bound"),
        ('{"a": {"type": "loguniform", "lower_bound": 0, "upper_bound": 1}}', "above zero"), ("{", "not JSON"),
        ('{"a": {"type": "randint", "lower_bound": 3, "upper_bound": 3}}', "below"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            parse_space(text)
