"""What scores are measured against besides speech: four sets of noise, made from fixed seeds; and speech-like tones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from assay.speech.ttsds2.datasets import RATE, ArrayDataset

Array = NDArray[np.float32]

_KINDS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "noise_all_ones": lambda rng, n: np.ones(n),
    "noise_all_zeros": lambda rng, n: np.zeros(n),
    "noise_normal_distribution": lambda rng, n: rng.standard_normal(n),
    "noise_uniform_distribution": lambda rng, n: rng.uniform(-1, 1, n),
}
NOISES = tuple(_KINDS)


def noise_datasets(
    count: int = 100, *, seconds: tuple[float, float] = (3.0, 10.0), seed: int = 0
) -> list[ArrayDataset]:
    """Ones, zeros, Gaussian and uniform waveforms, ``count`` clips each; not normalised, as published."""
    found = []
    for k, (name, make) in enumerate(_KINDS.items()):
        rng = np.random.default_rng([seed, k])
        lengths = rng.uniform(*seconds, size=count)
        found.append(ArrayDataset([make(rng, int(s * RATE)).astype(np.float32) for s in lengths], name=name))
    return found


def stand_in_speech(count: int, *, seed: int = 0, pitch: float = 130.0, name: str = "stand-in") -> ArrayDataset:
    """Clips of 2 to 4 s that move like speech and say nothing: harmonics through three resonances, by syllables.

    For tests, and for a look at the benchmark without any recording; never a reference for results.
    """
    clips = []
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        syllables = int(rng.integers(8, 15))
        edges = np.cumsum(rng.uniform(0.14, 0.34, syllables))
        time = np.arange(int(edges[-1] * RATE)) / RATE
        starts = np.concatenate([[0.0], edges[:-1]])
        middles = (starts + edges) / 2
        f0 = pitch * 2 ** (np.interp(time, middles, rng.normal(0, 0.15, syllables)) - 0.1 * time / time[-1])
        phase = 2 * np.pi * np.cumsum(f0) / RATE
        formants = [
            np.interp(time, middles, rng.uniform(low, high, syllables))
            for low, high in ((300, 800), (900, 2200), (2300, 3000))
        ]
        loud = np.zeros(len(time))
        for start, end in zip(starts, edges):
            inside = (time >= start) & (time < end - 0.04)
            loud[inside] = np.sin(np.pi * (time[inside] - start) / (end - 0.04 - start)) ** 0.5 * rng.uniform(0.5, 1)
        wave = np.zeros(len(time))
        for h in range(1, 28):
            gain = sum(1 / (1 + ((h * f0 - f) / 120) ** 2) for f in formants)
            wave += np.where(h * f0 < 4000, gain, 0) * np.sin(h * phase) / h**0.5
        wave = wave * loud + rng.normal(0, 0.003, len(time))
        clips.append((wave / np.abs(wave).max()).astype(np.float32))
    return ArrayDataset(clips, name=name)
