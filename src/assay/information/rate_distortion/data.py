"""Sources of the benchmark by name, with their ranges of eps: formulas, image patches, sounds."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets import digits, folder, generated, guarded, package_file
from assay.core.errors import DataError, MissingExtra, UsageError, unknown_name
from assay.information.rate_distortion.benchmark import SOURCES
from assay.information.rate_distortion.heat import Sinc4Mixture
from assay.information.rate_distortion.mixtures import Gaussian, GaussianMixture, Source
from assay.information.rate_distortion.sources import (
    Banana,
    Laplace,
    Samples,
    SphereNoise,
    StudentT,
    TwoMoons,
    Uniform,
    check_samples,
)

Array = NDArray[np.float64]
RATE = 8000
WAV = re.compile(r"(\d+)_(\w+)_(\d+)\.wav")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")


@dataclass(frozen=True, slots=True)
class Case:
    """A source with the range of eps it is measured on, and ``grid``: (low, high) an axis for Blahut and Arimoto."""

    name: str
    source: Source
    low: float
    high: float
    grid: Sequence[tuple[float, float]] | None = None

    def levels(self, points: int) -> Array:
        """An even grid in log eps."""
        return np.geomspace(self.low, self.high, points) if points > 1 else np.array([self.low])


def make_source(name: str, data: str | None = None) -> Case:
    """A source of the benchmark; ``data`` is the folder behind ``patches`` or ``audio``."""
    if name not in SOURCES:
        raise unknown_name("source", name, SOURCES)
    if name in ("gaussian16", "gaussian33"):
        d = int(name.removeprefix("gaussian"))
        source = Gaussian(np.linspace(1.0, 0.5, d))
        mean_log = float(np.log(source.variances).mean())
        # Rates of 25 and 5 nats, as far as every direction stays above water.
        low, high = (math.exp(mean_log - 2 * r / d) for r in (25, 5))
        return Case(name, source, low, min(high, 0.45))
    if name == "patches":
        return _measured(name, image_patches(data), 0.02, 0.5)
    if name == "digits":
        return _measured(name, digit_patches(), 0.05, 0.5)
    if name == "audio":
        return _measured(name, sound_features(data), 0.1, 0.8)
    made: dict[str, tuple[Source, float, float, Sequence[tuple[float, float]] | None]] = {
        "gaussian": (Gaussian(1.0), 0.02, 1 / 3, [(-8, 8)]),
        "gmm2": (GaussianMixture([0.5, 0.5], [-1, 1], [0.1, 0.1]), 0.003, 0.1 / 3, [(-4, 4)]),
        "gmm3": (GaussianMixture([0.2, 0.5, 0.3], [-1, 0, 2], [0.02] * 3), 4e-4, 0.02 / 3, [(-2, 3)]),
        "laplace": (Laplace(), 0.05, 1.0, [(-16, 16)]),
        "uniform": (Uniform(), 0.002, 0.05, [(0, 1)]),
        "student": (StudentT(5), 0.05, 1.0, [(-60, 60)]),
        "sinc4": (Sinc4Mixture([-math.pi / 4, math.pi / 4]), 0.02, 0.09, None),
        "banana": (Banana(), 0.05, 0.2, [(-5, 5), (-3, 9)]),
        "moons": (TwoMoons(), 0.002, 0.009, None),
        "sphere_noise": (SphereNoise(3, variance=0.1), 0.02, 0.09, None),
    }
    source, low, high, grid = made[name]
    return Case(name, source, low, high, grid)


def image_patches(
    data: str | None = None, *, size: int = 4, count: int = 50_000, remove_mean: bool = False, seed: int = 0
) -> Array:
    """Grey patches in [0, 1], (n, size^2), of the images in a folder or of scikit-learn's two photographs.

    A uniform dither of one grey level makes the law continuous. ``remove_mean`` keeps the size^2 - 1 coordinates across
    the mean, in an orthonormal basis: squared errors stay what they are.
    """
    rng = np.random.default_rng(seed)
    images = _photographs() if data is None else _images(Path(data).expanduser(), size)
    each = -(-count // len(images))
    parts = []
    for image in images:
        windows = np.lib.stride_tricks.sliding_window_view(image, (size, size))
        i, j = (rng.integers(0, n, each) for n in windows.shape[:2])
        parts.append(windows[i, j].reshape(each, -1))
    x = (np.concatenate(parts)[:count] + rng.random((count, size * size))) / 256
    return x @ across_mean(size * size).T if remove_mean else x


def digit_patches(*, size: int = 4, count: int = 50_000, seed: int = 0) -> Array:
    """Patches of scikit-learn's handwritten digits (8 x 8, 17 grey levels) in [0, 1], with a dither of one level."""
    rng = np.random.default_rng(seed)
    pictures = digits()[0].reshape(-1, 8, 8).astype(float)
    if pictures.max() > 16:
        pictures = np.round(pictures / pictures.max() * 16)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (1, size, size))[:, :, :, 0]
    k, i, j = (rng.integers(0, n, count) for n in windows.shape[:3])
    return (windows[k, i, j].reshape(count, -1) + rng.random((count, size * size))) / 17


def across_mean(d: int) -> Array:
    """(d - 1, d) orthonormal rows, all across the constant vector."""
    return np.linalg.qr(np.column_stack([np.ones(d), np.eye(d)[:, 1:]]))[0][:, 1:].T


def sound_features(data: str | None = None, *, bands: int = 33, seed: int = 0) -> Array:
    """Whitened log energies of ``bands`` bands of 32 ms frames, (n, bands).

    ``data`` is a folder of Free Spoken Digit (8 kHz mono wav); without it, tones in autoregressive noise are drawn. The
    published features are not known in detail; these are not them.
    """
    rng = np.random.default_rng(seed)
    root = None if data is None else Path(data).expanduser()
    sounds = _tones(rng) if root is None else _wavs(root)
    edges = np.geomspace(3, 129, bands + 1)
    edges = np.maximum.accumulate(np.round(edges)).astype(int)
    edges = np.maximum(edges, edges[0] + np.arange(bands + 1))
    parts = []
    for sound in sounds:
        frames = np.lib.stride_tricks.sliding_window_view(sound, 256)[::64]
        power = np.abs(np.fft.rfft(frames * np.hanning(256), axis=1)) ** 2
        power = np.pad(power, ((0, 0), (0, 64)))
        parts.append(
            np.log(np.add.reduceat(power, edges[:-1], 1)[:, :bands] + 1e-6 * power.sum(1, keepdims=True) + 1e-9)
        )
    x = np.concatenate(parts)
    x = x + 1e-3 * rng.standard_normal(x.shape)
    away = x - x.mean(0)
    if len(away) <= bands:
        raise DataError(f"{root or 'the tones'}: {len(away)} frames are too few for {bands} bands.")
    values, vectors = np.linalg.eigh(np.cov(away.T))
    return check_samples(away @ vectors / np.sqrt(values))


def provenance(names: Sequence[str], data: str | None) -> Mapping[str, Any]:
    """Where the sources are from."""
    parts = [_provenance(name, data) for name in names]
    return parts[0] if len(parts) == 1 else {"parts": dict(zip(names, parts))} | {
        "kind": parts[0]["kind"] if len({p["kind"] for p in parts}) == 1 else "mixed",
        "source": "; ".join(dict.fromkeys(str(p["source"]) for p in parts)),
        "licence": "; ".join(dict.fromkeys(str(p["licence"]) for p in parts)),
        "fingerprint": "-".join(str(p["fingerprint"])[:12] for p in parts),
    }  # fmt: skip


def _provenance(name: str, data: str | None) -> Mapping[str, Any]:
    if name == "digits":
        return digits()[2].info()
    if name == "patches" and data is None:
        return package_file("sklearn", "datasets/images/china.jpg", licence="CC-BY", extra="rate_distortion").info()
    if name in ("patches", "audio") and data is not None:
        return folder(data, source=name).info()
    return generated([{"source": name}], f"{name}, drawn by assay").info()


def _measured(name: str, x: Array, low: float, high: float) -> Case:
    # Parts of the mean variance of a direction: what is a high rate depends on the scale of the data.
    variance = float(x.var(0).mean())
    return Case(name, Samples(x, name), low * variance, high * variance)


def _photographs() -> list[Array]:
    try:
        from sklearn.datasets import load_sample_image
    except ImportError:
        raise MissingExtra("source patches", "rate_distortion") from None
    return [_grey(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]


def _grey(image: Any) -> Array:
    pixels = np.asarray(image, float)
    return pixels if pixels.ndim == 2 else pixels[..., :3] @ np.array([0.299, 0.587, 0.114])


def _images(root: Path, least: int) -> list[Array]:
    from PIL import Image

    paths = sorted(p for p in root.rglob("*") if p.suffix.lower() in IMAGES)
    if not paths:
        raise DataError(f"{root} holds no images ({', '.join(IMAGES)}).")
    found = []
    for path in paths:
        with guarded(path, "a picture"), Image.open(path) as image:
            found.append(np.asarray(image.convert("L"), float))
        if min(found[-1].shape) < least:
            raise DataError(f"{path} has {found[-1].shape} pixels; patches need {least} along each side.")
    return found


def _wavs(root: Path) -> list[Array]:
    from scipy.io import wavfile

    paths = sorted(p for p in root.rglob("*.wav") if WAV.fullmatch(p.name))
    if not paths:
        raise DataError(f"{root} holds no files named digit_speaker_index.wav.")
    found = []
    for path in paths:
        with guarded(path, "a sound"), warnings.catch_warnings():
            # A file cut short is a warning there.
            warnings.simplefilter("error", wavfile.WavFileWarning)
            rate, sound = wavfile.read(path)
        if rate != RATE or sound.ndim != 1 or sound.dtype != np.int16:
            raise DataError(
                f"{path} has {rate} Hz, shape {sound.shape} and {sound.dtype}; expected {RATE} Hz, one channel, int16."
            )
        if len(sound) >= 256:
            found.append(sound / 32768)
    if not found:
        raise UsageError(f"All sounds in {root} are shorter than 256 samples.")
    return found


def _tones(rng: np.random.Generator) -> list[Array]:
    from scipy.signal import lfilter

    t = np.arange(RATE // 2) / RATE
    sounds = []
    for _ in range(200):
        pitch = rng.uniform(90, 260) * (1 + 0.1 * np.sin(2 * math.pi * rng.uniform(1, 4) * t))
        phase = 2 * math.pi * np.cumsum(pitch) / RATE
        voice = sum(rng.exponential() / k * np.sin(k * phase) for k in range(1, 12))
        noise = lfilter([1.0], [1.0, -rng.uniform(0.3, 0.95)], rng.standard_normal(len(t)))
        sounds.append(np.asarray(voice) * np.hanning(len(t)) + 0.1 * np.asarray(noise))
    return sounds
