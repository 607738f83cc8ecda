"""Metrics that TTSDS2 was compared with, where a library for them exists; each of a clip and what it is compared with.

==================== ========================= ==================================================================
metric               of                        by
==================== ========================= ==================================================================
stoi, pesq           clip and aligned original pystoi, pesq (wide band)
mcd                  clip and original         WORLD envelopes as mel-cepstra along a DTW path
dnsmos               clip                      speechmos
utmos, squim, nisqa  clip                      torch modules of yours: `Predictor`
speaker cosines      clip and voice            resemblyzer or d-vectors here; x-vector, ECAPA, RawNet3 by `Predictor`
fad                  set and set               Frechet distance of any embedding (CLAP, by `Predictor`)
==================== ========================= ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, UsageError, unknown_name
from assay.speech.ttsds2.datasets import ENDINGS, RATE, load_audio, prepared, resample
from assay.speech.ttsds2.distances import Gaussian, frechet
from assay.speech.ttsds2.features import needs
from assay.speech.ttsds2.lite import world

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[Any]
Pair = Callable[[Array, Array], float]
Predictor = Callable[[Array], Any]
"""Of samples at 16 kHz: a number, or an embedding (d,)."""

PUBLISHED: Mapping[str, tuple[str, str]] = {
    "TTSDSv1": ("set", "profile=v1 of the benchmark"),
    "X-Vector": ("voice", "predictor"), "RawNet3": ("voice", "predictor"), "ECAPA-TDNN": ("voice", "predictor"),
    "SQUIM": ("clip", "predictor"), "UTMOS": ("clip", "predictor"), "UTMOSv2": ("clip", "predictor"),
    "NISQA": ("clip", "predictor"), "DNSMOS": ("clip", "dnsmos"),
    "Content Enjoyment": ("clip", "predictor"), "Content Usefulness": ("clip", "predictor"),
    "Production Quality": ("clip", "predictor"), "FAD (CLAP)": ("set", "predictor"),
    "STOI": ("original", "stoi"), "PESQ": ("original", "pesq"), "MCD": ("original", "mcd"),
}  # fmt: skip
"""The sixteen: what each compares a clip with, and how it is had here."""


def stoi(clip: Array, original: Array, rate: int = 16000) -> float:
    """Short-time objective intelligibility; both of one length, the shorter one's."""
    from pystoi import stoi as measure

    n = min(len(clip), len(original))
    return float(measure(original[:n], clip[:n], rate, extended=False))


def pesq(clip: Array, original: Array, rate: int = 16000) -> float:
    """Wide-band PESQ (P.862.2) at 16 kHz.

    Raises
    ------
    DataError
        There is no utterance in one of them.
    """
    from pesq import NoUtterancesError
    from pesq import pesq as measure

    try:
        return float(measure(rate, original, clip, "wb"))
    except NoUtterancesError:
        raise DataError("PESQ finds no speech in one of the two recordings.") from None


def mcd(clip: Array, original: Array, rate: int = RATE, *, coefficients: int = 24) -> float:
    """Mel-cepstral distortion in dB along the best DTW path, coefficient 0 left out.

    10 sqrt(2) / ln 10 times the mean distance of matched frames.
    """
    import librosa

    a, b = mel_cepstrum(clip, rate, coefficients), mel_cepstrum(original, rate, coefficients)
    _, path = librosa.sequence.dtw(a.T, b.T, metric="euclidean")
    distances = np.sqrt(((a[path[:, 0]] - b[path[:, 1]]) ** 2).sum(axis=1))
    return float(10 * np.sqrt(2) / np.log(10) * distances.mean())


def mel_cepstrum(samples: Array, rate: int = RATE, coefficients: int = 24) -> Array:
    """(frames, coefficients) without the 0th: cosine transform of the log mel-warped WORLD envelope, every 5 ms."""
    pyworld = world()
    audio = np.ascontiguousarray(samples, np.float64)
    coarse, times = pyworld.dio(audio, rate)
    envelope = pyworld.cheaptrick(audio, pyworld.stonemask(audio, coarse, times, rate), times, rate)
    return pyworld.code_spectral_envelope(np.sqrt(envelope), rate, coefficients + 1)[:, 1:]


def cosine(embed: Predictor) -> Pair:
    """Speaker similarity: cosine of two embeddings."""

    def measure(clip: Array, voice: Array) -> float:
        a, b = (np.asarray(embed(x), float) for x in (clip, voice))
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    return measure


def resemblyzer_cosine() -> Pair:
    """Cosine of resemblyzer's utterance vectors."""
    from resemblyzer import VoiceEncoder

    encoder: Any = VoiceEncoder("cpu", verbose=False)
    return cosine(encoder.embed_utterance)


def frechet_audio_distance(clips: Iterable[Array], real: Iterable[Array], embed: Predictor) -> float:
    """Frechet distance of embeddings of two sets."""
    a, b = (Gaussian.fit(np.stack([np.asarray(embed(x), float) for x in some])) for some in (clips, real))
    return frechet(a, b)


_NEEDS = {
    "stoi": ("pystoi",), "pesq": ("pesq",), "mcd": ("pyworld", "librosa"), "dnsmos": ("speechmos", "onnxruntime"),
    "resemblyzer": ("resemblyzer",),
}  # fmt: skip
METRICS = tuple(_NEEDS)


def measure_folder(
    folder: str | Path,
    *,
    original: str | Path | None = None,
    voices: str | Path | None = None,
    metrics: Iterable[str] = METRICS,
    predictors: Mapping[str, Predictor] | None = None,
) -> pl.DataFrame:
    """Metrics of every recording of a folder: a row a clip, a column a metric.

    Parameters
    ----------
    original
        Folder with natural recordings of the same texts under the same names, for stoi, pesq and mcd.
    voices
        Folder with recordings of the voice that was to be met, under the same names, for resemblyzer.
    metrics
        Which; those whose folder is not given are left out.
    predictors
        Networks of your own, by name.

    Raises
    ------
    UsageError
        An unknown metric, a package that is missing, or nothing to measure.
    """
    import polars as pl

    asked = list(metrics)
    for name in asked:
        if name not in _NEEDS:
            raise unknown_name("baseline", name, _NEEDS)
        if reason := needs(*_NEEDS[name], what=name):
            raise UsageError(reason)
    files = sorted(p for p in Path(folder).glob("*") if p.suffix.lower() in ENDINGS)
    if not files:
        raise UsageError(f"{folder} holds no recordings.")
    similar = resemblyzer_cosine() if "resemblyzer" in asked and voices is not None else None
    rows = []
    for path in files:
        clip = _at_16k(path)
        row: dict[str, Any] = {"clip": path.stem}
        if original is not None:
            natural = _at_16k(_same(path, Path(original)))
            row |= {name: of(clip, natural) for name, of in (("stoi", stoi), ("pesq", pesq)) if name in asked}
            if "mcd" in asked:
                row["mcd"] = mcd(clip, natural, 16000)
        if similar is not None and voices is not None:
            row["resemblyzer"] = similar(clip, _at_16k(_same(path, Path(voices))))
        if "dnsmos" in asked:
            from assay.speech.ttsds2.lite import dnsmos

            row |= dict(zip(("dnsmos_sig", "dnsmos_bak", "dnsmos", "dnsmos_p808"), dnsmos(clip).tolist()))
        row |= {name: float(np.asarray(of(clip))) for name, of in (predictors or {}).items()}
        rows.append(row)
    return pl.DataFrame(rows)


def _at_16k(path: Path) -> Array:
    samples, rate = load_audio(path)
    return resample(prepared(samples, rate), RATE, 16000)


def _same(path: Path, folder: Path) -> Path:
    for ending in ENDINGS:
        if (found := folder / (path.stem + ending)).is_file():
            return found
    raise UsageError(f"{folder} holds no recording called {path.stem}.")
