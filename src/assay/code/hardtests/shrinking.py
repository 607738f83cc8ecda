"""Counterexamples made small: the shortest input that still shows the fault, guarded by the validator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.code.hardtests.suite import TestSuite
    from assay.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Counterexample:
    """An input on which a program is wrong, what it said and what is right; tries = candidates that were run."""

    input: str
    output: str
    reference: str
    status: str
    tries: int


def shrink(given: str, fails: Callable[[str], bool], *, most: int = 400) -> tuple[str, int]:
    """A smaller input for which ``fails`` still holds, by removing lines and words and making numbers smaller.

    A list whose length stands before it is shrunk with its length. Greedy, and the same each time; ends where no
    change helps, or after ``most`` calls of ``fails``.

    Returns
    -------
    tuple
        The input and the number of calls.
    """
    calls = 0
    seen = {given}
    progress = True
    while progress and calls < most:
        progress = False
        for candidate in _smaller(given):
            if candidate in seen:
                continue
            seen.add(candidate)
            calls += 1
            if fails(candidate):
                given, progress = candidate, True
                break
            if calls >= most:
                break
    return given, calls


def _smaller(given: str) -> Iterator[str]:
    """Smaller inputs, the boldest first."""
    lines = [line.split(" ") for line in given.rstrip("\n").split("\n")]

    def written(rows: list[list[str]]) -> str:
        return "".join(" ".join(row) + "\n" for row in rows)

    # Blocks of a line's words, then of lines; the number that counts them, wherever it stands, goes along.
    for i, row in enumerate(lines):
        for start, end in _blocks(len(row)):
            rows = [*lines[:i], row[:start] + row[end:], *lines[i + 1 :]]
            yield from (written(r) for r in _counted(rows, len(row), end - start))
            yield written(rows)
    for start, end in _blocks(len(lines)):
        rows = lines[:start] + lines[end:]
        for size in (len(lines), len(lines) - 1, len(lines) - 2):
            yield from (written(r) for r in _counted(rows, size, end - start))
        yield written(rows)
    for i, row in enumerate(lines):
        for j, word in enumerate(row):
            for smaller in _words(word):
                yield written([*lines[:i], [*row[:j], smaller, *row[j + 1 :]], *lines[i + 1 :]])


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    size = n // 2
    while size:
        for start in range(0, n - size + 1, size):
            yield start, start + size
        size //= 2


def _counted(rows: list[list[str]], count: int, less: int) -> Iterator[list[list[str]]]:
    """Rows in which a number equal to ``count``, in the first two lines, is lowered."""
    for i, row in enumerate(rows[:2]):
        for j, word in enumerate(row[:3]):
            if word == str(count):
                yield [*rows[:i], [*row[:j], str(count - less), *row[j + 1 :]], *rows[i + 1 :]]


def _words(word: str) -> Iterator[str]:
    if re.fullmatch(r"-?\d{1,19}", word):
        value = int(word)
        for smaller in (0, 1, -1, value // 2 if value >= 0 else -(-value // 2), value - 1 if value > 0 else value + 1):
            if abs(smaller) < abs(value):
                yield str(smaller)
    elif len(word) > 1:
        yield from (word[:start] + word[end:] for start, end in _blocks(len(word)))


def counterexample(
    suite: TestSuite, code: str, language: str, oracle: str, oracle_language: str, box: Sandbox, *, most: int = 300
) -> Counterexample | None:
    """The failing test of a program, made small; None where the suite accepts it.

    The smaller input must pass the kit's validator, a trusted program must answer it, and the judge must reject the
    program's answer.
    """
    from assay.code.hardtests.inputs import Validator
    from assay.code.hardtests.judging import Judge
    from assay.code.hardtests.verifying import compiled, run_once, verify
    from assay.sandbox import Limits

    report = verify(suite, code, language, box=box, until="first")
    if report.accepted or report.first_failing is None:
        return None
    limits = Limits(cpu_seconds=suite.time_limit, memory_mb=suite.memory_mb)
    suspect, trusted = compiled(box, code, language), compiled(box, oracle, oracle_language)
    validator = Validator(box, suite.kit.validator if suite.kit else None, limits)
    judge = Judge(box, suite.judge)
    last: dict[str, tuple[str, str, str]] = {}

    def fails(candidate: str) -> bool:
        if not validator.valid([candidate])[0]:
            return False
        right = run_once(trusted, candidate.encode(), limits)
        if not right.ok:
            return False
        said = run_once(suspect, candidate.encode(), limits)
        texts = said.stdout.decode("utf-8", "replace"), right.stdout.decode("utf-8", "replace")
        if said.ok and judge.accepts(candidate, *texts):
            return False
        last[candidate] = (*texts, said.status)
        return True

    start = suite.cases[report.first_failing].input
    if not fails(start):
        return None
    small, tries = shrink(start, fails, most=most)
    said, right, status = last[small]
    return Counterexample(small, said, right, status, tries)
