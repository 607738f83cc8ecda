"""TTSDS2: how close synthetic speech is, as a distribution, to real speech. Distances, features, suite, pipeline."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "ArrayDataset": "datasets",
    "Benchmark": "features",
    "BenchmarkCategory": "scoring",
    "BenchmarkDimension": "scoring",
    "BenchmarkSuite": "suite",
    "ClipFeature": "features",
    "CommandSpeaker": "systems",
    "DirectoryDataset": "datasets",
    "EndpointSpeaker": "systems",
    "Gaussian": "distances",
    "TarDataset": "datasets",
    "WavListDataset": "datasets",
    "aggregate": "scoring",
    "features_of": "features",
    "frechet": "distances",
    "measure_folder": "baselines",
    "noise_datasets": "noise",
    "read_ratings": "ratings",
    "score": "suite",
    "wasserstein": "distances",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
