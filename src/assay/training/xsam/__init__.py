"""XSAM, explicit sharpness-aware minimisation, with its relatives, sharpness measures and loss surfaces."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "ASAM": "baselines",
    "FriendlySAM": "baselines",
    "GSAM": "baselines",
    "GradientNormPenalty": "baselines",
    "LookSAM": "baselines",
    "OPTIMISERS": "baselines",
    "RandomSAM": "baselines",
    "SAM": "baselines",
    "SharpnessAware": "engine",
    "WSAM": "baselines",
    "XSAM": "optimiser",
    "average_gradients": "engine",
    "frozen_statistics": "freezing",
    "make_optimiser": "baselines",
    "slerp": "plane",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
