"""Seismic Wavefield Common Task Framework: data sets in nine pairs, twelve scores, forecasters and baselines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.science.seismic_ctf.benchmark import SeismicCTF
    from assay.science.seismic_ctf.data import CTFDataset, Pair, Times, score, validation_scores, validation_split
    from assay.science.seismic_ctf.definition import Definition, known_datasets, known_definition, read_definition
    from assay.science.seismic_ctf.methods import build
    from assay.science.seismic_ctf.norm import spectral_norm

_HOMES = {
    "benchmark": ("SeismicCTF",),
    "data": ("CTFDataset", "Pair", "Times", "score", "validation_scores", "validation_split"),
    "definition": ("Definition", "known_datasets", "known_definition", "read_definition"),
    "methods": ("build",),
    "norm": ("spectral_norm",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CTFDataset",
    "Definition",
    "Pair",
    "SeismicCTF",
    "Times",
    "build",
    "known_datasets",
    "known_definition",
    "read_definition",
    "score",
    "spectral_norm",
    "validation_scores",
    "validation_split",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
