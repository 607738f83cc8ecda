"""What spoils speech, by degree: noise, a narrower band, flat pitch, another pace, a robot's voice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.speech.ttsds2.datasets import RATE
from assay.speech.ttsds2.lite import HOP, world

Array = NDArray[np.float32]


def noisy(samples: Array, decibels: float, rng: np.random.Generator) -> Array:
    """White noise at a signal-to-noise ratio."""
    noise = rng.standard_normal(len(samples))
    noise *= np.sqrt((samples**2).mean() / (noise**2).mean() / 10 ** (decibels / 10))
    return _peak(samples + noise)


def lowpass(samples: Array, hertz: float) -> Array:
    """Butterworth low-pass of order 8, without delay."""
    from scipy.signal import butter, sosfiltfilt

    return _peak(sosfiltfilt(butter(8, hertz, fs=RATE, output="sos"), samples))


def flattened(samples: Array, amount: float) -> Array:
    """Pitch drawn towards its mean by ``amount`` (1 = monotone), by WORLD analysis and synthesis."""
    return _world(samples, lambda pitch: pitch * (1 - amount) + pitch[pitch > 0].mean() * amount)


def robot(samples: Array, amount: float) -> Array:
    """Pitch drawn to 100 Hz by ``amount``, and that share of the noise in the voice taken out."""
    return _world(samples, lambda pitch: pitch * (1 - amount) + 100 * amount, buzz=amount)


def _world(samples: Array, change: Callable[[Any], Any], buzz: float = 0.0) -> Array:
    pyworld = world()
    audio = samples.astype(np.float64)
    period = HOP / RATE * 1000
    coarse, times = pyworld.dio(audio, RATE, frame_period=period)
    pitch = pyworld.stonemask(audio, coarse, times, RATE)
    envelope = pyworld.cheaptrick(audio, pitch, times, RATE)
    noise = pyworld.d4c(audio, pitch, times, RATE)
    voiced = pitch > 0
    if voiced.any():
        pitch = np.where(voiced, change(pitch), 0.0)
    return _peak(pyworld.synthesize(pitch, envelope, noise * (1 - buzz), RATE, period))


def stretched(samples: Array, factor: float) -> Array:
    """``factor`` times as slow, pitch kept (phase vocoder)."""
    import librosa

    return _peak(librosa.effects.time_stretch(samples, rate=1 / factor))


def _peak(samples: Any) -> Array:
    return (samples / (np.abs(samples).max() + 1e-6)).astype(np.float32)


DEGREES: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "noise": ("GENERIC", (20.0, 10.0, 5.0, 0.0)),
    "lowpass": ("GENERIC", (3000.0, 2200.0, 1500.0, 900.0)),
    "flattened": ("PROSODY", (0.25, 0.5, 0.75, 1.0)),
    "stretched": ("PROSODY", (1.15, 1.35, 1.6, 2.0)),
    "robot": ("SPEAKER", (0.25, 0.5, 0.75, 1.0)),
}
"""By name: the factor it should lower, and degrees from mild to severe."""


def degraded(kind: str, degree: float, samples: Array, rng: np.random.Generator) -> Array:
    """Samples spoiled in one way."""
    match kind:
        case "noise":
            return noisy(samples, degree, rng)
        case "lowpass":
            return lowpass(samples, degree)
        case "flattened":
            return flattened(samples, degree)
        case "stretched":
            return stretched(samples, degree)
        case "robot":
            return robot(samples, degree)
        case _:
            raise ValueError(kind)
