"""Reading letters and scoring them: pure functions of strings and numbers.

Three rules read a letter from a reply. ``compatible`` is the published one, oddities included (the article "A" is an
answer, "C." before a new line is none, all comparisons mind case); ``robust`` is assay's reader, which leaves a reply
unread rather than guess; ``probability`` takes the largest of four first-token probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat

from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval.words import words

if TYPE_CHECKING:
    from assay.core.answers import Reading

LETTERS = "ABCD"
RULES = ("robust", "compatible", "probability")

LINE_BINS = ("<=5", "6-10", "11-15", "16-20", "21-25", ">25")
CHARACTER_BINS = ("<=50", "51-100", "101-200", "201-400", "401-800", "801-1600", ">1600")
_LINE_EDGES = (5, 10, 15, 20, 25)
_CHARACTER_EDGES = (50, 100, 200, 400, 800, 1600)


def letter_plain(reply: str, choices: Sequence[str]) -> str | None:
    """Letter of a reply by the published rule, without cutting anything off first.

    The first word token that is exactly A, B, C or D; else the first choice, in order, whose text occurs in the reply;
    else None.
    """
    for token in words(reply):
        if token in ("A", "B", "C", "D"):
            return token
    for letter, choice in zip(LETTERS, choices):
        if choice in reply:
            return letter
    return None


def cut_thinking(reply: str) -> str:
    """What the published scorer reads: behind the first ``</think>``, then behind the first "the answer is".

    Each time up to the next such mark, and minding case.
    """
    for mark in ("</think>", "the answer is"):
        if mark in reply:
            reply = reply.split(mark)[1]
    return reply


def letter_compatible(reply: str, choices: Sequence[str]) -> str | None:
    """Letter of a reply exactly as the published scorer reads it, or None."""
    return letter_plain(cut_thinking(reply), choices)


def letter_robust(reply: str, choices: Sequence[str]) -> Reading:
    """Letter of a reply by assay's reader: (value, how, span), value None = unread."""
    from assay.core.answers import choice_letter

    return choice_letter(reply, letters=LETTERS, choices=choices)


def letter_by_probability(probabilities: Sequence[float]) -> str | None:
    """Letter of the largest of four probabilities; ties go to the earlier letter, all zero is no answer.

    Raises
    ------
    UsageError
        If there are not four numbers, or one is negative, infinite or not a number.
    """
    numbers = all(isinstance(p, SupportsFloat) and 0 <= float(p) < math.inf for p in probabilities)
    if len(probabilities) != len(LETTERS) or not numbers:
        raise UsageError(
            f"Four probabilities, one for each of {', '.join(LETTERS)}, are needed, not {probabilities!r}."
        )
    best = max(probabilities)
    return LETTERS[list(probabilities).index(best)] if best > 0 else None


def count_lines(art: str) -> int:
    """Newlines + 1: a final newline adds an empty line, as in the published statistics."""
    return art.count("\n") + 1


def line_bin(lines: int) -> int:
    """Index into `LINE_BINS` of a number of lines."""
    return sum(lines > edge for edge in _LINE_EDGES)


def character_bin(characters: int) -> int:
    """Index into `CHARACTER_BINS` of a number of characters, newlines included."""
    return sum(characters > edge for edge in _CHARACTER_EDGES)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of right answers: over samples (micro) and over concepts (macro), with the number of samples."""

    micro: float
    macro: float
    n: int


@dataclass(frozen=True, slots=True)
class Report:
    """Accuracy of a set of answers, overall and inside each group and class."""

    overall: Accuracy
    by_group: Mapping[str, Accuracy]
    by_class: Mapping[str, Accuracy]


def _accuracy(pairs: Iterable[tuple[Hashable, float]]) -> Accuracy:
    sums: dict[Hashable, list[float]] = {}
    for concept, score in pairs:
        sums.setdefault(concept, []).append(score)
    n = sum(map(len, sums.values()))
    if not n:
        return Accuracy(math.nan, math.nan, 0)
    micro = math.fsum(math.fsum(scores) for scores in sums.values()) / n
    macro = math.fsum(math.fsum(scores) / len(scores) for scores in sums.values()) / len(sums)
    return Accuracy(micro, macro, n)


def accuracy_report(records: Iterable[Mapping[str, object]], score: str = "score") -> Report:
    """Micro and macro accuracy of records in the published field names.

    Parameters
    ----------
    records
        Mappings with ``category-1`` (class), ``category-2`` (group), ``category-3`` (concept) and a score in [0, 1].
    score
        Field of the score.

    Returns
    -------
    Report
        Macro is the mean over concepts of the mean inside; a concept is known by group and name, so that the mouse
        among the animals and the one beside the keyboard stay apart.

    Raises
    ------
    DataError
        A record lacks a field, or its score is no number in [0, 1].
    """
    rows = []
    for number, record in enumerate(records, 1):
        lacking = [name for name in ("category-1", "category-2", "category-3", score) if record.get(name) is None]
        if lacking:
            raise DataError(f"Record {number}: field {lacking[0]!r} is missing; an unanswered item scores 0.")
        klass, group, concept = (str(record[name]) for name in ("category-1", "category-2", "category-3"))
        rows.append((klass, group, (group, concept), _score(record[score], f"Record {number}: field {score!r}")))

    def within(kind: Callable[[tuple[str, str, tuple[str, str], float]], str]) -> dict[str, Accuracy]:
        names = sorted({kind(row) for row in rows})
        return {name: _accuracy((row[2], row[3]) for row in rows if kind(row) == name) for name in names}

    overall = _accuracy((row[2], row[3]) for row in rows)
    return Report(overall, within(lambda row: row[1]), within(lambda row: row[0]))


def _score(value: object, what: str) -> float:
    if not isinstance(value, SupportsFloat) or not 0 <= float(value) <= 1:
        raise DataError(f"{what} is {value!r}; a score is a number from 0 (wrong) to 1 (right).")
    return float(value)


@dataclass(frozen=True, slots=True)
class McNemar:
    """Items that only one of two got right, and the exact two-sided p value of that split."""

    only_first: int
    only_second: int
    p: float


def mcnemar(first: Sequence[float], second: Sequence[float]) -> McNemar:
    """Exact two-sided McNemar test of paired right/wrong answers (a binomial test of the discordant items).

    Without discordant items p is 1.
    """
    if len(first) != len(second):
        raise UsageError(f"Paired answers are needed: {len(first)} and {len(second)} were given.")
    if any(math.isnan(value) for value in (*first, *second)):
        raise UsageError("Paired answers hold NaN; count what was not answered as wrong (0), or leave the pair out.")
    a = sum(x > y for x, y in zip(first, second))
    b = sum(y > x for x, y in zip(first, second))
    if a + b == 0:
        return McNemar(a, b, 1.0)
    from scipy.stats import binomtest

    return McNemar(a, b, float(binomtest(min(a, b), a + b).pvalue))


@dataclass(frozen=True, slots=True)
class Modalities:
    """One system's accuracy from text, image and both, and what joining them gained."""

    text: float
    image: float
    both: float
    either: float
    """Share of items right in text or in image: what a perfect router between the two would reach."""
    fusion_gain: float
    """both - max(text, image)."""
    both_vs_image: McNemar
    image_vs_text: McNemar


def compare_modalities(text: Sequence[float], image: Sequence[float], both: Sequence[float]) -> Modalities:
    """Compare right/wrong answers of one system to the same items in the three modes, item by item."""
    n = len(text)
    if not n or len(image) != n or len(both) != n:
        raise UsageError(f"The three modes need the same items; there are {n}, {len(image)} and {len(both)} answers.")
    t, i, b = sum(text) / n, sum(image) / n, sum(both) / n
    either = sum(max(x, y) for x, y in zip(text, image)) / n
    return Modalities(t, i, b, either, b - max(t, i), mcnemar(both, image), mcnemar(image, text))


def modality_average(text: float, image: float, both: float) -> float:
    """Mean of the three macro accuracies: the published cross-modality average."""
    return (text + image + both) / 3
