"""Forecasters by name; a library is imported when one that needs it is built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from assay.core.errors import MissingExtra, unknown_name

_HERE = "assay.science.seismic_ctf.methods"
# name: module, class, settings, title, family
CATALOGUE: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    "zeros": ("naive", "Constant", {"kind": "zeros"}, "Zeros", "baseline"),
    "average": ("naive", "Constant", {"kind": "average"}, "Average", "baseline"),
    "last": ("naive", "Constant", {"kind": "last"}, "Last row", "baseline"),
    "random": ("naive", "Constant", {"kind": "random"}, "Random constant", "baseline"),
}


def build(name: str, **settings: Any) -> Any:
    """An unfitted forecaster with hyper-parameters.

    Raises
    ------
    UsageError, MissingExtra
        There is no such method or parameter; its library is not installed.
    """
    if name not in CATALOGUE:
        raise unknown_name("method of seismic_ctf", name, CATALOGUE)
    module, cls, fixed, title, _ = CATALOGUE[name]
    try:
        made = getattr(import_module(f"{_HERE}.{module}"), cls)(**fixed)
    except ImportError as error:
        raise MissingExtra(f"The method {title} ({error.name})", "seismic_ctf") from None
    return made.set_params(**settings) if settings else made


def methods() -> dict[str, Callable[..., Any]]:
    """Factories by name."""
    return {name: partial(build, name) for name in CATALOGUE}


def families() -> dict[str, str]:
    """Family of each method."""
    return {name: entry[4] for name, entry in CATALOGUE.items()}
