"""Loaders of arrays: densities and pairs of minpv, transitions of minto, pictures, sounds and models of rate_distortion."""

# ruff: noqa: E501
from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from broken_files import Loader
from published_formats import npy, npz, parquet, several, written


def hdf5(name: str, **values: Any) -> Callable[[Path], Path]:
    """Writer of an HDF5 file; ``__`` in a name is a slash."""

    def make(folder: Path) -> Path:
        import h5py

        with h5py.File(folder / name, "w") as file:
            for key, value in values.items():
                file[key.replace("__", "/")] = value
        return folder / name

    return make


def minpv() -> list[Loader]:
    """Published densities, and pairs of samples."""
    from assay.information.minpv.data import load_pairs, load_tabular

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 8))

    def table(size: int) -> str:
        lines = (",".join(f"{x:.6f}" for x in (k % 2, *rng.normal(size=3))) for k in range(size))
        return "label,a,b,c\n" + "\n".join(lines) + "\n"

    def tabular(name: str) -> Any:
        return lambda root: load_tabular(name, root)

    def bsds(folder: Path) -> Path:
        (folder / "r" / "BSDS300").mkdir(parents=True)
        hdf5("r/BSDS300/BSDS300.hdf5", train=rows, validation=rows[:9], test=rows[:9])(folder)
        return folder / "r"

    gas = parquet([dict(zip("abc", map(float, row[:3])), Time=0.0) for row in rows])
    pairs = "a,source,b\n" + "".join(f"{k}.5,{k % 2},2\n" for k in range(6))
    return [
        Loader("minpv.data.load_tabular POWER", several("r", power__data_dot_npy=npy(rows)), tabular("POWER"),
               ("r/power/data.npy",)),
        Loader("minpv.data.load_tabular MINIBOONE", several("r", miniboone__data_dot_npy=npy(rows)),
               tabular("MINIBOONE"), ("r/miniboone/data.npy",)),
        Loader("minpv.data.load_tabular GAS", several("r", gas__ethylene_CO_dot_parquet=gas), tabular("GAS"),
               ("r/gas/ethylene_CO.parquet",)),
        Loader("minpv.data.load_tabular HEPMASS",
               several("r", hepmass__1000_train_dot_csv=table(40), hepmass__1000_test_dot_csv=table(10)),
               tabular("HEPMASS"), ("r/hepmass/1000_train.csv", "r/hepmass/1000_test.csv")),
        Loader("minpv.data.load_tabular BSDS300", bsds, tabular("BSDS300"), ("r/BSDS300/BSDS300.hdf5",)),
        Loader("minpv.data.load_pairs folder", several("p", x0_dot_npy=npy(rows), x1_dot_npy=npy(rows)), load_pairs,
               ("p/x0.npy", "p/x1.npy")),
        Loader("minpv.data.load_pairs csv", written("p.csv", pairs), load_pairs),
    ]  # fmt: skip


def minto() -> list[Loader]:
    """Archives of transitions, D4RL, Minari, the DQN replay data."""
    from assay.training.minto.data import FrameReplay, Transitions, load_d4rl, load_minari

    rng = np.random.default_rng(0)
    n = 6
    done = np.arange(n) == 3
    played = {"obs": rng.normal(size=(n, 2)), "action": np.arange(n) % 2, "reward": np.ones(n),
              "next_obs": rng.normal(size=(n, 2)), "terminated": done, "truncated": np.arange(n) == n - 1}  # fmt: skip
    d4rl = {"observations": rng.normal(size=(n, 2)), "actions": rng.normal(size=(n, 1)), "rewards": np.ones(n),
            "terminals": done, "timeouts": np.arange(n) == n - 1}  # fmt: skip
    episodes = {
        f"episode_{e}__{name}": value
        for e in range(2)
        for name, value in {"observations": rng.normal(size=(4, 2)), "actions": np.zeros(3, int),
                            "rewards": np.ones(3), "terminations": np.arange(3) == 2,
                            "truncations": np.zeros(3, bool)}.items()
    }  # fmt: skip
    replay = {
        f"$store$_{name}_ckpt.0.gz": gzip.compress(npy(value))
        for name, value in (("observation", rng.integers(0, 255, (n, 4, 4)).astype(np.uint8)),
                            ("action", np.arange(n, dtype=np.int32)), ("reward", np.ones(n, np.float32)),
                            ("terminal", done.astype(np.uint8)))
    }  # fmt: skip

    def replay_logs(folder: Path) -> Path:
        for name, content in replay.items():
            written(f"replay_logs/{name}", content)(folder)
        return folder / "replay_logs"

    def stacked(folder: Path) -> Any:
        found = FrameReplay(folder, 0)
        return found.transitions(found.places)

    return [
        Loader("minto.data.Transitions.load", written("t.npz", npz(**played)), Transitions.load),
        Loader("minto.data.load_d4rl", hdf5("d.hdf5", **d4rl), load_d4rl),
        Loader("minto.data.load_d4rl next", hdf5("d.hdf5", **d4rl, next_observations=d4rl["observations"]), load_d4rl),
        Loader("minto.data.load_minari", hdf5("main_data.hdf5", **episodes), load_minari),
        Loader("minto.data.FrameReplay", replay_logs, stacked, tuple(f"replay_logs/{name}" for name in replay)),
    ]  # fmt: skip


def picture() -> bytes:
    """A small picture of noise."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 12)).astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def sound() -> bytes:
    """A tenth of a second of noise at 8 kHz."""
    from scipy.io import wavfile

    stream = io.BytesIO()
    wavfile.write(stream, 8000, np.random.default_rng(0).integers(-9000, 9000, 4000).astype(np.int16))
    return stream.getvalue()


def pictures_sounds_models() -> list[Loader]:
    """Sources of rate_distortion in folders, and its saved models."""
    from assay.information.rate_distortion.data import image_patches, sound_features

    def model(folder: Path) -> Path:
        from assay.information.rate_distortion.r2d2 import R2D2, Settings

        settings = Settings((0.1, 0.5), steps=0, hidden=(4,), components=2, initial="zero")
        return R2D2(settings).fit(np.random.default_rng(0).normal(size=(50, 2))).save(folder / "m.pt")

    def loaded(path: Path) -> Any:
        from assay.information.rate_distortion.r2d2 import R2D2

        return R2D2.load(path)

    return [
        Loader("rate_distortion.data.image_patches", several("i", a_dot_png=picture()),
               lambda p: image_patches(str(p), count=20), ("i/a.png",)),
        Loader("rate_distortion.data.sound_features", several("s", **{"1_me_0_dot_wav": sound()}),
               lambda p: sound_features(str(p)), ("s/1_me_0.wav",)),
        Loader("rate_distortion.r2d2.R2D2.load", model, loaded),
    ]  # fmt: skip
