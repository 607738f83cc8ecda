"""Sets of clips: folders, archives, lists of files, arrays. Loading, checks, and a key made of content."""

from __future__ import annotations

import copy
import io
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from assay.core.cache import content_key
from assay.core.errors import DataError, MissingExtra, UsageError

RATE = 22050
SHORTEST = 16000
ENDINGS = (".wav", ".mp3", ".flac", ".ogg")
_LARGEST = 200 << 20
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Clip:
    """One utterance.

    ``samples`` are mono at ``RATE``; ``rate`` is what it was recorded at, ``warnings`` what is odd about it.
    """

    name: str
    samples: Array
    text: str | None = None
    rate: int = RATE
    warnings: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Length."""
        return len(self.samples) / RATE


def resample(samples: Array, rate: int, to: int) -> Array:
    """Samples at another rate (soxr, high quality)."""
    if rate == to:
        return samples
    import librosa

    return librosa.resample(samples, orig_sr=rate, target_sr=to).astype(np.float32)


def load_audio(source: Path | bytes, name: str | None = None) -> tuple[Array, int]:
    """Mono samples and rate of a file or of its bytes.

    Raises
    ------
    DataError
        Not readable, empty, or with NaN or infinity; the message names the file.
    MissingExtra
        soundfile is not installed.
    """
    try:
        import soundfile
    except ModuleNotFoundError:
        raise MissingExtra("Reading recordings", "ttsds2") from None
    name = name or str(source)
    try:
        samples, rate = soundfile.read(
            io.BytesIO(source) if isinstance(source, bytes) else source, dtype="float32", always_2d=True
        )
    except (soundfile.SoundFileError, OSError, RuntimeError) as error:
        raise DataError(
            f"{name} cannot be read as audio ({str(error).rstrip('.')}); give wav, flac, ogg or mp3."
        ) from None
    mono = samples.mean(axis=1, dtype=np.float32)
    if not len(mono):
        raise DataError(f"{name} holds no samples.")
    if not np.isfinite(mono).all():
        raise DataError(f"{name} holds NaN or infinite samples.")
    return mono, rate


def oddities(samples: Array) -> tuple[str, ...]:
    """What is odd about samples before they are normalised: silence, clipping."""
    peak = float(np.abs(samples).max())
    found = []
    if peak < 1e-4:
        found.append("silent")
    elif peak >= 0.999 and float((np.abs(samples) >= 0.999 * peak).mean()) > 0.005:
        found.append("clipped")
    return tuple(found)


def prepared(samples: Array, rate: int, *, bandwidth: int | None = None, normal: bool = True) -> Array:
    """Samples at ``RATE``: band-limited to half of ``bandwidth`` (a rate in Hz), short ones padded, peak at 1."""
    if bandwidth is not None and bandwidth < min(rate, RATE):
        samples, rate = resample(samples, rate, bandwidth), bandwidth
    samples = resample(samples, rate, RATE)
    if len(samples) < SHORTEST:
        samples = np.pad(samples, (0, SHORTEST - len(samples)))
    return samples / (np.abs(samples).max() + np.float32(1e-6)) if normal else samples


@dataclass
class Dataset(ABC):
    """Clips in a fixed order.

    Attributes
    ----------
    name : str
        Shown in results.
    bandwidth : int | None
        Rate in Hz that everything is brought to first; None = as recorded.
    skip_errors : bool
        Leave unreadable clips out and count them (``skipped``) instead of raising.
    """

    name: str
    bandwidth: int | None = None
    skip_errors: bool = False
    chosen: tuple[int, ...] | None = None
    skipped: list[str] = field(default_factory=list, init=False)
    _clips: list[Clip] | None = field(default=None, init=False, repr=False)
    sample_rate = RATE

    @abstractmethod
    def _sources(self) -> Sequence[Any]:
        """What clips are read from, in order."""

    @abstractmethod
    def _read(self, source: Any) -> Clip:
        """The clip of a source."""

    @abstractmethod
    def _content(self, source: Any) -> Any:
        """What a source holds, for the key."""

    def sources(self) -> Sequence[Any]:
        """What is read: all, or those that `sample` chose."""
        every = self._sources()
        return every if self.chosen is None else [every[k] for k in self.chosen]

    def clips(self) -> list[Clip]:
        """All clips, read once.

        Raises
        ------
        DataError
            A clip cannot be read (unless errors are skipped), or none can.
        """
        if self._clips is None:
            found = []
            for source in self.sources():
                try:
                    found.append(self._read(source))
                except DataError as error:
                    if not self.skip_errors:
                        raise
                    self.skipped.append(str(error))
            if not found:
                tail = f"; the first of {len(self.skipped)} errors: {self.skipped[0]}" if self.skipped else ""
                raise DataError(f"{self.name} holds no clip that can be read{tail}")
            self._clips = found
        return self._clips

    @property
    def key(self) -> str:
        """Hash of content and of how it is read: another file under the same name is another key."""
        return content_key(
            type(self).__name__, self.bandwidth, self.skip_errors, [self._content(s) for s in self.sources()]
        )

    def sample(self, n: int, seed: int = 42) -> Self:
        """Another data set of ``n`` clips drawn without replacement; this one stays as it is.

        Raises
        ------
        UsageError
            There are fewer than ``n``.
        """
        every = len(self)
        if not 0 < n <= every:
            raise UsageError(f"{self.name} has {every} clips, so {n} cannot be drawn.")
        drawn = sorted(np.random.default_rng(seed).choice(every, n, replace=False).tolist())
        return self._copy(chosen=tuple(drawn if self.chosen is None else [self.chosen[k] for k in drawn]))

    def limited(self, bandwidth: int | None) -> Self:
        """The same clips at a common bandwidth."""
        return self._copy(bandwidth=bandwidth)

    def rates(self) -> set[int]:
        """Rates that its clips were recorded at."""
        return {clip.rate for clip in self.clips()}

    def _copy(self, **changed: Any) -> Self:
        new = copy.copy(self)
        for name, value in {**changed, "skipped": [], "_clips": None}.items():
            setattr(new, name, value)
        return new

    def __len__(self) -> int:
        return len(self.sources())

    def __getitem__(self, index: int) -> tuple[Array, str | None]:
        clip = self.clips()[index]
        return clip.samples, clip.text

    def __iter__(self) -> Iterator[tuple[Array, str | None]]:
        return ((clip.samples, clip.text) for clip in self.clips())


class WavListDataset(Dataset):
    """Files by path.

    Parameters
    ----------
    wavs
        Audio files.
    texts
        What they say, one each; None = the file of the same stem ending in .txt, where there is one.
    shortest
        Seconds below which a file is left out before anything else.
    """

    def __init__(
        self, wavs: Iterable[str | Path], texts: Sequence[str] | None = None, name: str = "list", *,
        shortest: float = 0.0, bandwidth: int | None = None, skip_errors: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, bandwidth, skip_errors)
        self.files = [Path(p) for p in wavs]
        if texts is not None and len(texts) != len(self.files):
            raise UsageError(f"{name}: {len(self.files)} files, but {len(texts)} texts.")
        self.texts = None if texts is None else {str(p): t for p, t in zip(self.files, texts)}
        if shortest:
            self.files = [p for p in self.files if _seconds(p) >= shortest]
        if not self.files:
            raise DataError(f"{name} holds no audio file ({', '.join(ENDINGS)}) of {shortest:g} s or more.")

    def _sources(self) -> Sequence[Path]:
        return self.files

    def _text(self, path: Path) -> str | None:
        if self.texts is not None:
            return self.texts[str(path)]
        beside = path.with_suffix(".txt")
        try:
            return beside.read_text(encoding="utf-8").strip() if beside.is_file() else None
        except UnicodeDecodeError:
            raise DataError(f"{beside} is not UTF-8 text.") from None

    def _read(self, source: Path) -> Clip:
        samples, rate = load_audio(source)
        return Clip(
            source.name, prepared(samples, rate, bandwidth=self.bandwidth), self._text(source), rate, oddities(samples)
        )

    def _content(self, source: Path) -> Any:
        return source


class DirectoryDataset(WavListDataset):
    """All audio files below a folder, in the order of their paths.

    Raises
    ------
    UsageError
        There is no such folder.
    """

    def __init__(
        self, root_dir: str | Path, name: str | None = None, *, shortest: float = 0.0, bandwidth: int | None = None,
        skip_errors: bool = False,
    ) -> None:  # fmt: skip
        root = Path(root_dir).expanduser()
        if not root.is_dir():
            raise UsageError(f"There is no folder {root}.")
        files = sorted(p for p in root.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
        super().__init__(files, name=name or root.name, shortest=shortest, bandwidth=bandwidth, skip_errors=skip_errors)


class TarDataset(Dataset):
    """Audio files inside a tar archive (also .tar.gz), never unpacked to disk. Silence at both ends goes; as published,
    such clips are not normalised (noise comes this way) unless ``normal`` is set."""

    def __init__(
        self, path: str | Path, name: str | None = None, *, normal: bool = False, bandwidth: int | None = None,
        skip_errors: bool = False,
    ) -> None:  # fmt: skip
        self.path = Path(path).expanduser()
        super().__init__(name or self.path.name.partition(".")[0], bandwidth, skip_errors)
        self.normal = normal
        self._members: list[tuple[str, bytes, str | None]] = []
        try:
            with tarfile.open(self.path) as archive:
                members = {m.name: m for m in archive if m.isfile()}
                for member_name in sorted(members):
                    stem, dot, ending = member_name.rpartition(".")
                    if dot + ending.lower() not in ENDINGS:
                        continue
                    beside = members.get(f"{stem}.txt")
                    data = self._bytes(archive, members[member_name])
                    text = self._bytes(archive, beside).decode("utf-8").strip() if beside else None
                    self._members.append((member_name, data, text))
        except (OSError, tarfile.TarError, EOFError, UnicodeDecodeError) as error:
            raise DataError(f"{self.path} cannot be read as a tar archive ({error}).") from None
        if not self._members:
            raise DataError(f"{self.path} holds no audio file.")

    def _bytes(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
        if member.size > _LARGEST:
            raise DataError(f"{self.path}: {member.name} has {member.size:,} bytes; clips are at most {_LARGEST:,}.")
        stream = archive.extractfile(member)
        assert stream is not None
        return stream.read()

    def _sources(self) -> Sequence[Any]:
        return self._members

    def _read(self, source: Any) -> Clip:
        import librosa

        member, data, text = source
        samples, rate = load_audio(data, f"{self.path}: {member}")
        trimmed = librosa.effects.trim(samples)[0]
        ready = prepared(trimmed, rate, bandwidth=self.bandwidth, normal=self.normal)
        return Clip(member, ready, text, rate, oddities(samples))

    def _content(self, source: Any) -> Any:
        return [source[1], self.normal]


class ArrayDataset(Dataset):
    """Samples at 22,050 Hz that are in memory already; taken as they are."""

    def __init__(self, clips: Sequence[Array], texts: Sequence[str] | None = None, name: str = "arrays") -> None:
        super().__init__(name)
        self.arrays = [
            (f"{k:04d}", np.asarray(c, np.float32), texts[k] if texts else None) for k, c in enumerate(clips)
        ]

    def _sources(self) -> Sequence[Any]:
        return self.arrays

    def _read(self, source: Any) -> Clip:
        name, samples, text = source
        if not np.isfinite(samples).all():
            raise DataError(f"{self.name}, clip {name} holds NaN or infinite samples.")
        return Clip(name, prepared(samples, RATE, bandwidth=self.bandwidth, normal=False), text)

    def _content(self, source: Any) -> Any:
        return source[1]


def _seconds(path: Path) -> float:
    import soundfile

    try:
        found = soundfile.info(path)
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise DataError(f"{path} cannot be read as audio ({error}).") from None
    return found.frames / found.samplerate
