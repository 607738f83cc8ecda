"""seismic_ctf: generated fields obey their physics, and suites keep what belongs apart apart."""

from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import DataError, UsageError
from assay.science.seismic_ctf.generators import crust, globe, kuramoto, lorenz, sea, suite


def rng(seed=0):
    return np.random.default_rng(seed)


def test_sea_waves_travel_at_the_speed_of_the_dispersion_relation():
    x = sea.simulate(rng(), 2048, sensors=256, depth_m=30.0, spread_degrees=0.0, seabed=False)
    spectrum = np.abs(np.fft.fft2(x * np.outer(np.hanning(2048), np.hanning(256))))
    frequency, wave = np.fft.fftfreq(2048, sea.STEP_SECONDS), 2 * np.pi * np.fft.fftfreq(256, 5.0)
    for f in (0.1, 0.15, 0.2, 0.25):
        i = int(np.argmin(np.abs(frequency - f)))
        rows = spectrum[i - 3 : i + 4]
        at = frequency[i - 3 + int(rows.max(axis=1).argmax())]
        k = np.abs(wave[int(rows.max(axis=0).argmax())])
        assert k == pytest.approx(float(sea.wavenumber(at, 30.0)), abs=1.5 * 2 * np.pi / (256 * 5.0))


def test_sea_floor_hears_long_waves_only():
    deep, high = (sea.simulate(rng(), 2000, sensors=4, depth_m=60.0, seabed=s)[:, 0] for s in (True, False))

    def share(x):
        power = np.abs(np.fft.rfft(x - x.mean())) ** 2
        return power[np.fft.rfftfreq(2000, 0.2) > 0.3].sum() / power.sum()

    assert share(deep) < 1e-4 < 0.2 < share(high)


def test_jonswap_peaks_where_it_is_told():
    f = np.linspace(0.03, 0.5, 5000)
    assert f[sea.jonswap(f, 0.12).argmax()] == pytest.approx(0.12, abs=2e-4)


def test_lorenz_stays_on_its_attractor():
    x = lorenz.simulate(rng(), 4000)
    assert x[:, 2].mean() == pytest.approx(23.55, abs=0.6)
    assert (x[:, 2] > 0).all()
    assert np.abs(x).max() < 60
    slope = np.gradient(x[:, 0], 0.05)[1:-1]
    assert np.corrcoef(slope, 10 * (x[1:-1, 1] - x[1:-1, 0]))[0, 1] > 0.99


def test_kuramoto_sivashinsky_solves_its_equation():
    x = kuramoto.simulate(rng(), 5, sensors=192, length=45.0, delta_t=0.004, spin_up=20.0)
    k = 2 * np.pi / 45.0 * np.arange(97)
    u = x[2]

    def derivative(order, field=u):
        return np.fft.irfft((1j * k) ** order * np.fft.rfft(field), 192)

    right = -derivative(1, u**2 / 2) - derivative(2) - derivative(4)
    left = (x[3] - x[1]) / 0.008
    assert np.abs(left - right).max() < 1e-5 * np.abs(right).max()
    assert abs(x.mean()) < 1e-10


def explosion(step):
    n = 36
    ones = np.ones((n, n, n))
    t = np.arange(220) * step - 0.35
    ricker = (1 - 2 * (np.pi * 4 * t) ** 2) * np.exp(-((np.pi * 4 * t) ** 2))
    return crust.propagate(
        2500 * ones, 4000 * ones, 2300 * ones, (18, 18, 12), np.eye(3), ricker, np.arange(10, 27), step=step
    ).reshape(220, 3, 17, 17)


def test_elastic_waves_arrive_with_the_p_speed_and_keep_their_symmetry():
    found = explosion(0.01)
    assert np.isfinite(found).all()
    vertical = found[:, 2]
    for i in (8, 12, 15):
        distance = np.hypot(1200.0, 100.0 * abs(i + 10 - 18))
        peak = int(np.abs(vertical[:, 8, i]).argmax()) * 0.01
        # Velocity of an explosion's far field follows the moment rate; its largest lobe is within a quarter period.
        assert peak == pytest.approx(0.35 + distance / 4000.0, abs=0.07)
    assert np.abs(vertical - vertical.transpose(0, 2, 1)).max() < 1e-4 * np.abs(vertical).max()
    # Until the sides, which are not equally far, answer.
    early = vertical[:90, 8]
    assert np.abs(early - early[:, ::-1]).max() < 0.02 * np.abs(vertical).max()


def test_elastic_waves_leave_the_block():
    found = explosion(0.01)
    assert np.abs(found[190:]).max() < 0.05 * np.abs(found).max()


def test_an_unstable_step_is_refused():
    with pytest.raises(UsageError, match="unstable"):
        explosion(0.02)
    with pytest.raises(UsageError, match="three times a square"):
        crust.simulate(rng(), 5, sensors=10)


def test_double_couples_have_no_volume_and_unit_moment():
    for angles in ((0, 90, 0), (30, 45, 90), (200, 60, -120)):
        m = crust.double_couple(*angles)
        assert np.sort(np.linalg.eigvalsh(m)) == pytest.approx([-1, 0, 1], abs=1e-12)
    assert crust.double_couple(0, 90, 0)[0, 1] == pytest.approx(1.0)


def test_globe_says_what_it_lacks(tmp_path):
    with pytest.raises(DataError, match="no folder"):
        globe.open_database(tmp_path / "none")
    with pytest.raises(UsageError, match="database=FOLDER"):
        globe.simulate(rng(), 10)


class Database:
    """Stands for an Instaseis database: a pulse that spreads with a degree every four seconds."""

    def get_seismograms(self, source, receiver, components, kind, dt):
        from types import SimpleNamespace

        assert (components, kind) == ("Z", "velocity")
        distance = abs(receiver.latitude - source.latitude)
        t = np.arange(0, 400, dt)
        return [SimpleNamespace(data=np.exp(-(((t - 4 * distance) / 20) ** 2)))]


def test_globe_puts_rows_as_close_as_the_database_is_long():
    pytest.importorskip("instaseis")
    assert globe.row_seconds(Database(), 3000) == pytest.approx(399 / 3001)
    assert globe.row_seconds(Database(), 100) == 1.0
    x = globe.simulate(rng(), 300, sensors=16, latitude=0.0, database=Database())
    peaks = x.argmax(axis=0) * globe.row_seconds(Database(), 300)
    assert peaks == pytest.approx(np.minimum(4 * np.abs(globe.fibonacci_sphere(16)[:, 0]), 399), abs=2)


@pytest.fixture(scope="module")
def made():
    d = suite.generated_definition("sea", 10, (80, 30, 40))
    return d, suite.make_matrices("sea", d, seed=5, medium=0.1, high=0.5)


def test_suites_have_all_shapes_and_are_the_same_for_a_seed(made):
    d, matrices = made
    assert {f"{name}.npz": m.shape for name, m in matrices.items()} == d.shapes
    again = suite.make_matrices("sea", d, seed=5, medium=0.1, high=0.5)
    assert all((again[name] == m).all() for name, m in matrices.items())
    other = suite.make_matrices("sea", d, seed=6)
    assert (other["X1train"] != matrices["X1train"]).any()


def test_each_group_is_normalised_by_trace_over_its_clean_rows(made):
    _, m = made
    for members in (("X1train", "X1test"), ("X2test", "X3test"), ("X4test", "X5test"), ("X6train",)):
        rows = np.concatenate([m[x] for x in members])
        assert rows.mean(axis=0) == pytest.approx(np.zeros(10), abs=1e-5)
        assert rows.std(axis=0) == pytest.approx(np.ones(10), abs=1e-5)


def test_noise_has_the_stated_size_and_is_on_training_rows_only(made):
    _, m = made
    for train, test, level in (("X2train", "X2test", 0.1), ("X3train", "X4test", 0.5)):
        noise = m[train] - m[test]
        assert noise.std() == pytest.approx(level, rel=0.1)
        assert abs(np.corrcoef(noise.ravel(), m[test].ravel())[0, 1]) < 0.15
    d = suite.generated_definition("sea", 10, (80, 30, 40))
    quiet = suite.make_matrices("sea", d, seed=5, medium=0.0, high=0.0)
    assert (quiet["X2train"] == quiet["X2test"]).all()


def test_forecasts_go_on_where_training_ends(made):
    _, m = made
    step = np.abs(np.diff(m["X1train"], axis=0)).max()
    assert np.abs(m["X1test"][0] - m["X1train"][-1]).max() <= 1.5 * step
    assert np.abs(m["X9train"][-1] - m["X8test"][0]).max() <= 1.5 * np.abs(np.diff(m["X9train"], axis=0)).max()


def test_no_training_matrix_holds_another_pairs_truth(made):
    _, m = made
    for truth in (n for n in m if n.endswith("test")):
        for train in (n for n in m if n.endswith("train")):
            same = {("X2test", "X2train"), ("X4test", "X3train")}
            if (truth, train) in same:
                continue
            rows = min(len(m[truth]), len(m[train]))
            assert np.abs(m[truth][:rows] - m[train][:rows]).max() > 0.5


def test_parametric_matrices_differ_in_the_parameter_alone():
    d = suite.generated_definition("lorenz", rows=(300, 50, 60))
    m = suite.make_matrices("lorenz", d, seed=2)
    means = [m[f"X{n}train"][:, 2].mean() for n in (6, 7, 8)]
    assert means == sorted(means)
    assert d.long_time == "histogram_L2_error"


@pytest.mark.parametrize("how", ["group", "none"])
def test_other_normalisations(how):
    d = suite.generated_definition("sea", 6, (40, 20, 20))
    m = suite.make_matrices("sea", d, normalise=how)
    rows = np.concatenate([m["X1train"], m["X1test"]])
    assert (rows.std() == pytest.approx(1.0, abs=1e-5)) == (how == "group")


def test_bad_settings_of_a_suite_are_refused():
    d = suite.generated_definition("sea", 6, (40, 20, 20))
    with pytest.raises(UsageError, match="normalise"):
        suite.make_matrices("sea", d, normalise="max")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="negative"):
        suite.make_matrices("sea", d, medium=-1)
    with pytest.raises(UsageError, match="few no more than long"):
        suite.generated_definition("sea", 6, (10, 20, 20))
    with pytest.raises(UsageError, match="generator"):
        suite.generated_definition("tide")
