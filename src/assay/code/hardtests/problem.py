"""Problems, the programs that come with them, and which of those are trusted to give reference outputs."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from assay.code.hardtests.kit import Kit

LANGUAGES = ("cpp", "python3", "python")
LEVELS = {
    "atcoder_submission": 5,
    "editorial": 5,
    "code_contests": 4,
    "luogu_editorial": 3,
    "taco-verified": 2,
    "taco": 1,
}
"""How far a source of programs is trusted, 5 most."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test: text of standard input, reference text of standard output (None = not known)."""

    input: str
    output: str | None


@dataclass(frozen=True, slots=True)
class Solution:
    """A program that comes with a problem; its source says how far it is trusted."""

    code: str
    language: str
    source: str = "editorial"


@dataclass(frozen=True, slots=True)
class Labelled:
    """A program whose truth is known: what a suite is measured on.

    ``fault`` is ``wrong``, ``slow``, or "" for a correct one; ``source`` is who wrote it (``own``, ``human``, ``llm``).
    """

    id: str
    code: str
    language: str
    correct: bool
    fault: str = ""
    note: str = ""
    source: str = "own"


@dataclass(frozen=True, slots=True)
class Problem:
    """A contest problem.

    ``time_limit`` is in seconds of processor time, ``memory_mb`` in MB, ``difficulty`` from 1; ``kit`` and
    ``programs`` are there where they have been written or labelled.
    """

    pid: str
    statement: str
    title: str = ""
    platform: str = "own"
    difficulty: int = 1
    time_limit: float = 5.0
    memory_mb: int = 2048
    examples: tuple[Case, ...] = ()
    solutions: tuple[Solution, ...] = ()
    kit: Kit | None = None
    programs: tuple[Labelled, ...] = ()
    tags: tuple[str, ...] = ()


class Oracle(NamedTuple):
    """A trusted program: ``<pid>_<place among the solutions>``, level of trust, and the program."""

    id: str
    level: int
    solution: Solution


def level_of(solution: Solution) -> int:
    """Trust in a program, 0 (not at all) to 5.

    Submissions to AtCoder in "python" count 1: they may need a library of that judge.
    """
    if solution.source == "atcoder_submission" and solution.language == "python":
        return 1
    return LEVELS.get(solution.source, 0)


def rank_oracles(
    pid: str,
    solutions: Sequence[Solution],
    *,
    languages: Sequence[str] = LANGUAGES,
    lowest_level: int = 1,
    most: int = 5,
) -> list[Oracle]:
    """The most trusted programs: by level, then by the order of ``languages``, then as they stand.

    A source that has no level is warned of and left out.
    """
    unknown = sorted({s.source for s in solutions if s.source not in LEVELS})
    if unknown:
        warnings.warn(
            f"Problem {pid!r}: programs from {', '.join(map(repr, unknown))} are left out; trusted sources are "
            f"{', '.join(LEVELS)}.",
            stacklevel=2,
        )
    ranked = [
        Oracle(f"{pid}_{place}", level_of(solution), solution)
        for place, solution in enumerate(solutions)
        if solution.language in languages and level_of(solution) >= max(1, lowest_level)
    ]
    ranked.sort(key=lambda oracle: (-oracle.level, list(languages).index(oracle.solution.language)))
    return ranked[:most]


def distinct(programs: Sequence[str]) -> int:
    """How many programs differ in more than white space: copies of one program agree on anything."""
    return len({hashlib.sha256("".join(code.split()).encode()).hexdigest() for code in programs})
