"""Neural networks shared by rooms: a small trainer, nets. torch is imported only when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Best": "trainer",
    "Checkpoint": "trainer",
    "History": "trainer",
    "LeNet": "nets",
    "MLP": "nets",
    "batches": "trainer",
    "forward": "trainer",
    "seeded": "trainer",
    "train": "trainer",
}

__all__ = ["MLP", "Best", "Checkpoint", "History", "LeNet", "batches", "forward", "seeded", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
