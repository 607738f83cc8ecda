"""Features that need no download: the set TTSDS2-lite. Its scores are not those of TTSDS2."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as remembered
from functools import cached_property, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.cache import content_key
from assay.speech.ttsds2.datasets import RATE, resample
from assay.speech.ttsds2.features import ClipFeature, needs
from assay.speech.ttsds2.scoring import BenchmarkCategory as Category
from assay.speech.ttsds2.scoring import BenchmarkDimension as Dimension

Array = NDArray[Any]
HOP = 256
ONE, MANY = Dimension.ONE_DIMENSIONAL, Dimension.N_DIMENSIONAL


class LogMel(ClipFeature):
    """Log-mel frames: 40 bands, 50 to 8000 Hz, natural logarithm above 1e-9 of full scale."""

    def __init__(self) -> None:
        super().__init__("Log-Mel", Category.GENERIC, MANY, "frames of 40 log-mel bands")

    def missing(self) -> str | None:
        return needs("librosa")

    def values(self, samples: Array, text: str | None) -> Array:
        return log_mel(resample(samples, RATE, 16000))


def log_mel(samples: Array) -> Array:
    """(frames, 40) of samples at 16 kHz: periodic Hann 400, hop 160, reflect padding, power, HTK triangles without area
    normalisation."""
    import librosa

    power = np.abs(librosa.stft(samples, n_fft=400, hop_length=160, pad_mode="reflect")) ** 2
    return np.log((_triangles() @ power).clip(1e-9)).T


@remembered
def _triangles() -> Array:
    import librosa

    return librosa.filters.mel(sr=16000, n_fft=400, n_mels=40, fmin=50.0, fmax=8000.0, htk=True, norm=None)


class MFCC(ClipFeature):
    """Thirteen cepstral coefficients with first and second differences, a vector a frame."""

    def __init__(self) -> None:
        super().__init__("MFCC", Category.GENERIC, MANY, "13 MFCC with two orders of differences, frames")

    def missing(self) -> str | None:
        return needs("librosa")

    def values(self, samples: Array, text: str | None) -> Array:
        import librosa

        mfcc = librosa.feature.mfcc(y=samples, sr=RATE, n_mfcc=13, n_fft=1024, hop_length=HOP)
        return np.concatenate([mfcc, librosa.feature.delta(mfcc), librosa.feature.delta(mfcc, order=2)]).T


class Resemblyzer(ClipFeature):
    """GE2E speaker vectors of resemblyzer, one a window of 1.6 s every 0.77 s."""

    def __init__(self) -> None:
        super().__init__("Resemblyzer", Category.SPEAKER, MANY, "speaker vectors of windows")

    def missing(self) -> str | None:
        return needs("resemblyzer", "torch")

    @cached_property
    def _encoder(self) -> Any:
        from resemblyzer import VoiceEncoder

        return VoiceEncoder("cpu", verbose=False)

    def values(self, samples: Array, text: str | None) -> Array:
        _, partials, _ = self._encoder.embed_utterance(resample(samples, RATE, 16000), return_partials=True)
        return partials


def by_content(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """A function of samples that keeps its last thousand values: several features ask the same of a clip in turn."""
    seen: dict[str, Any] = {}

    @wraps(function)
    def kept(samples: Array) -> Any:
        key = content_key(samples)
        if key not in seen:
            if len(seen) >= 1000:
                del seen[next(iter(seen))]
            seen[key] = function(samples)
        return seen[key]

    return kept


def world() -> Any:
    """The compiled module pyworld, which has no types."""
    from importlib import import_module

    return import_module("pyworld")


@by_content
def f0(samples: Array) -> Array:
    """Fundamental frequency in Hz of the first 1000 frames (hop 256): WORLD dio with stonemask, 0 where unvoiced."""
    audio = samples.astype(np.float64)
    pyworld = world()
    coarse, times = pyworld.dio(audio, RATE, frame_period=HOP / RATE * 1000, speed=1)
    return pyworld.stonemask(audio, coarse, times, RATE)[:1000]


class Pitch(ClipFeature):
    """Mean fundamental frequency of a clip, unvoiced frames filled in linearly; 1e-6 when nothing is voiced."""

    def __init__(self) -> None:
        super().__init__("Pitch", Category.PROSODY, ONE, "mean WORLD F0")

    def missing(self) -> str | None:
        return needs("pyworld")

    def values(self, samples: Array, text: str | None) -> float:
        return float(voiced_everywhere(f0(samples)).mean())


def voiced_everywhere(pitch: Array) -> Array:
    """Pitch with unvoiced frames filled in linearly."""
    voiced = pitch >= 1e-6
    if not voiced.any():
        return np.full(len(pitch), 1e-6)
    frames = np.arange(len(pitch))
    return np.interp(frames, frames[voiced], pitch[voiced])


class PitchRange(ClipFeature):
    """Standard deviation of a clip's pitch in semitones over voiced frames; 0 when fewer than two are."""

    def __init__(self) -> None:
        super().__init__("Pitch Range", Category.PROSODY, ONE, "spread of F0 in semitones")

    def missing(self) -> str | None:
        return needs("pyworld")

    def values(self, samples: Array, text: str | None) -> float:
        pitch = f0(samples)
        voiced = pitch[pitch >= 1e-6]
        return float(12 * np.log2(voiced).std()) if len(voiced) > 1 else 0.0


class VoicedRatio(ClipFeature):
    """Share of voiced frames."""

    def __init__(self) -> None:
        super().__init__("Voiced Ratio", Category.PROSODY, ONE, "share of voiced frames")

    def missing(self) -> str | None:
        return needs("pyworld")

    def values(self, samples: Array, text: str | None) -> float:
        return float((f0(samples) >= 1e-6).mean())


class OnsetRate(ClipFeature):
    """Onsets a second, by spectral flux."""

    def __init__(self) -> None:
        super().__init__("Onset Rate", Category.PROSODY, ONE, "onsets a second")

    def missing(self) -> str | None:
        return needs("librosa")

    def values(self, samples: Array, text: str | None) -> float:
        import librosa

        return len(librosa.onset.onset_detect(y=samples, sr=RATE)) / (len(samples) / RATE)


def run_rate(tokens: Any, seconds: float) -> float:
    """Runs of equal tokens a second."""
    found = np.asarray(tokens)
    return float((1 + (found[1:] != found[:-1]).sum()) / seconds) if len(found) else 0.0


class _Phones(ClipFeature):
    """Base of what pocketsphinx's phone loop (English acoustic model inside its package) says of a clip."""

    def missing(self) -> str | None:
        return needs("pocketsphinx")

    def values(self, samples: Array, text: str | None) -> Any:
        phones, scores, frames = phone_segments(resample(samples, RATE, 16000))
        return self.of(phones, np.asarray(scores), np.asarray(frames), len(samples) / RATE)

    def of(self, phones: list[str], scores: Array, frames: Array, seconds: float) -> Any:
        raise NotImplementedError


class PhoneRate(_Phones):
    """Recognised phones a second; 0 if none."""

    def __init__(self) -> None:
        super().__init__("Phone Rate", Category.PROSODY, ONE, "recognised phones a second")

    def of(self, phones: list[str], scores: Array, frames: Array, seconds: float) -> float:
        return sum(p in _PHONES for p in phones) / seconds


class PhoneShares(_Phones):
    """Share of a clip's frames in each of 39 phones and in silence or noise."""

    def __init__(self) -> None:
        super().__init__("Phone Shares", Category.INTELLIGIBILITY, MANY, "share of frames by phone")

    def of(self, phones: list[str], scores: Array, frames: Array, seconds: float) -> Array:
        shares = np.zeros(len(_PHONES) + 1)
        for phone, n in zip(phones, frames):
            shares[_PHONES.get(phone, len(_PHONES))] += n
        return shares / max(1, frames.sum())


class PhoneFit(_Phones):
    """How well the recogniser's phones fit: acoustic score a frame over phones, which is that of an ASR system."""

    def __init__(self) -> None:
        super().__init__("Phone Fit", Category.INTELLIGIBILITY, ONE, "acoustic score a frame of the best phones")

    def of(self, phones: list[str], scores: Array, frames: Array, seconds: float) -> float:
        return float(scores.sum() / max(1, frames.sum()))


_PHONES = {
    phone: k
    for k, phone in enumerate(
        ["AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY", "JH",
         "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y", "Z", "ZH"]
    )
}  # fmt: skip


@remembered
def _decoder() -> Any:
    from pathlib import Path

    from pocketsphinx import Decoder, get_model_path

    model = Path(get_model_path()) / "en-us"
    return Decoder(
        hmm=str(model / "en-us"), allphone=str(model / "en-us-phone.lm.bin"), lm=None, dict=None,
        beam=1e-20, pbeam=1e-20, lw=2.0, loglevel="FATAL",
    )  # fmt: skip


@by_content
def phone_segments(samples: Array) -> tuple[list[str], list[float], list[int]]:
    """Phones of samples at 16 kHz, the natural log score of each and its frames (10 ms)."""
    decoder = _decoder()
    decoder.start_utt()
    decoder.process_raw((samples.clip(-1, 1) * 32767).astype(np.int16).tobytes(), full_utt=True)
    decoder.end_utt()
    segments = list(decoder.seg() or ()) if decoder.hyp() is not None else []
    return (
        [s.word for s in segments],
        [float(np.log(max(s.ascore, 1e-300))) for s in segments],
        [s.end_frame - s.start_frame + 1 for s in segments],
    )


class DNSMOS(ClipFeature):
    """Signal, background and overall quality as the DNSMOS network predicts them, a vector a clip."""

    def __init__(self) -> None:
        super().__init__(
            "DNSMOS", Category.INTELLIGIBILITY, MANY, "predicted quality: signal, background, overall, P.808"
        )

    def missing(self) -> str | None:
        return needs("speechmos", "onnxruntime", "librosa")

    def values(self, samples: Array, text: str | None) -> Array:
        return dnsmos(resample(samples, RATE, 16000))


def dnsmos(samples: Array) -> Array:
    """(sig, bak, ovrl, p808) of samples at 16 kHz."""
    loud = max(1.0, float(np.abs(samples).max()))
    found = _dnsmos()((samples / loud).astype(np.float32), 16000, False)
    return np.array([found[k] for k in ("sig_mos", "bak_mos", "ovrl_mos", "p808_mos")])


@remembered
def _dnsmos() -> Any:
    from pathlib import Path

    import onnxruntime
    from speechmos import dnsmos as package

    folder = Path(package.__file__).parent / "dnsmos_models"
    files = [str(folder / name) for name in ("sig_bak_ovr.onnx", "model_v8.onnx")]
    network = package.DNSMOS(*files)
    runtime: Any = onnxruntime
    # Its own sessions take every core and spin while they wait.
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    network.onnx_sess, network.p808_onnx_sess = (runtime.InferenceSession(file, options) for file in files)
    return network


class WadaSNR(ClipFeature):
    """Signal-to-noise ratio in dB by WADA (Kim and Stern 2008), of windows of 3 s every second."""

    def __init__(self) -> None:
        super().__init__("Wada SNR", Category.ENVIRONMENT, ONE, "WADA signal-to-noise ratio of 3 s windows")

    def missing(self) -> str | None:
        return needs("scipy")

    def values(self, samples: Array, text: str | None) -> Array:
        return np.array([wada_snr(samples[s : s + 3 * RATE]) for s in range(0, len(samples) - 3 * RATE, RATE)])


def wada_snr(samples: Array) -> float:
    """SNR in dB, between -20 and 100, of a waveform whose speech has gamma-distributed amplitudes (shape 0.4)."""
    x = np.abs(np.asarray(samples, float))
    peak = x.max()
    if peak == 0:
        return -20.0
    x = (x / peak).clip(1e-10)
    decibels, curve = wada_curve()
    return float(np.interp(np.log(x.mean()) - np.log(x).mean(), curve, decibels))


@remembered
def wada_curve() -> tuple[Array, Array]:
    """SNR in dB and ln E|x| - E ln|x| of x = gamma(0.4) with random sign plus Gaussian noise at that ratio of powers.

    Integrated: E|s + tZ| is in closed form, and E ln|m + Z| grows with slope sqrt(2) Dawson(m / sqrt(2)) from
    -(gamma + ln 2) / 2.
    """
    from scipy.integrate import cumulative_simpson
    from scipy.special import dawsn, erf, gamma

    shape = 0.4
    v = np.linspace(-90, np.log(80), 20001)
    s = np.exp(v)
    density = np.exp(shape * v - s) / gamma(shape) * (v[1] - v[0])
    m = np.linspace(0, 40, 40001)
    slope = np.sqrt(2) * dawsn(m / np.sqrt(2))
    near = -(np.euler_gamma + np.log(2)) / 2 + cumulative_simpson(slope, x=m, initial=0)
    decibels = np.arange(-20.0, 101.0)
    curve = np.empty(len(decibels))
    for k, ratio in enumerate(10 ** (decibels / 10)):
        t = np.sqrt(shape * (shape + 1) / ratio)
        u = s / t
        mean = t * np.sqrt(2 / np.pi) * np.exp(-(u**2) / 2) + s * erf(u / np.sqrt(2))
        far = np.log(u.clip(40)) - 0.5 / u.clip(40) ** 2 - 0.75 / u.clip(40) ** 4
        logarithm = np.log(t) + np.where(u < 40, np.interp(u, m, near), far)
        curve[k] = np.log(density @ mean) - density @ logarithm
    return decibels, curve
