"""Word lists: the shipped one (written for assay, Apache-2.0), or a file of words."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from assay.agents.gem.env import below
from assay.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np

SHIPPED = Path(__file__).with_name("words.txt")
_WORD = re.compile("[a-z]+")


def read_words(path: str | None = None) -> dict[int, tuple[str, ...]]:
    """Words in lower case by their number of letters, in the order of the file, repeated ones once.

    Parameters
    ----------
    path
        File of words between blanks or line ends; ``#`` begins a comment. None = the shipped list of English
        nouns.

    Raises
    ------
    DataError
        The file cannot be read, a line is not made of words of the letters a to z, or there are no words.
    """
    file = SHIPPED if path is None else Path(path).expanduser()
    return _read(file, file.stat().st_mtime_ns if file.is_file() else 0)


@lru_cache(maxsize=8)
def _read(file: Path, _: int) -> dict[int, tuple[str, ...]]:
    # The time of the last change is an argument, so that a changed file is read again.
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Word list {file} cannot be read: {error}.") from error
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        for word in line.partition("#")[0].lower().split():
            if not _WORD.fullmatch(word):
                raise DataError(f"{file}, line {number}: {word[:40]!r} is not a word of the letters a to z.")
            found[word] = None
    if not found:
        raise DataError(f"Word list {file} holds no words.")
    by_length: dict[int, list[str]] = {}
    for word in found:
        by_length.setdefault(len(word), []).append(word)
    return {length: tuple(words) for length, words in by_length.items()}


def words_of(length: int, path: str | None = None) -> tuple[str, ...]:
    """Words of a length; empty where there are none."""
    return read_words(path).get(length, ())


def pick(rng: np.random.Generator, length: int, path: str | None = None) -> str:
    """A word of a length, at random."""
    words = words_of(length, path)
    return words[below(rng, len(words))]
