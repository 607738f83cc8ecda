"""Comparators and the vote: whether an answer matches a target, as pure functions of strings.

Each comparator reproduces the published rule (arXiv 2504.13359, release 0.0.1 of its package), weaknesses included,
save one: an empty answer never matches unless ``empty_matches=True`` asks for the published behaviour.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence

from assay.core.errors import DataError, MissingExtra, unknown_name

Comparator = Callable[[str, str], bool]
"""``f(answer, target) -> bool``."""

_LETTER_RULES = tuple(
    re.compile(rule)
    for rule in (
        r"\(([A-F])\)",
        r"\[([A-F])\]",
        r'"([A-F])"',
        r"\b([A-F])\)",
        r"[:\-]\s*([A-F])\b",
        r"=\s*([A-F])\b",
    )
)
_LONE_LETTER = re.compile(r"(?:^|[^A-Z])([A-F])(?![A-Z])")
_ANY_LETTER = re.compile(r"[A-F]")
_ANSWER_BLOCK = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_SPACES = re.compile(r"\s+")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_block(text: str) -> str:
    """Text of the last closed ``<answer>`` block, stripped; "" where there is none. Tags in capitals do not count."""
    blocks = _ANSWER_BLOCK.findall(text)
    return blocks[-1].strip() if blocks else ""


def choice_letter(text: str) -> str:
    """Letter A-F that a text states, by the published priorities; "" where there is none.

    First hit of: ``(X)``, ``[X]``, ``"X"``, ``X)``, ``: X`` or ``- X``, ``= X``, a letter that stands alone, any
    letter. The article "a" is read as A: that is the rule, and why `assay.core.answers.choice_letter` exists.
    """
    text = text.strip().upper()
    for rule in (*_LETTER_RULES, _LONE_LETTER):
        hit = rule.search(text)
        if hit:
            return hit.group(1)
    # Every standing letter was a lone letter too, so the published "last standing letter" can no longer differ.
    hit = _ANY_LETTER.search(text)
    return hit.group() if hit else ""


def normalise(text: str, *, punctuation: bool = False, case: bool = False) -> str:
    """Lower case, no ASCII punctuation, runs of white space as one blank; accents stay.

    Parameters
    ----------
    punctuation, case
        Keep punctuation, keep capitals.
    """
    if not case:
        text = text.lower()
    if not punctuation:
        text = text.translate(_NO_PUNCTUATION)
    return _SPACES.sub(" ", text).strip()


def exact_match(answer: str, target: str, *, empty_matches: bool = False) -> bool:
    """Equal after `normalise`."""
    answer, target = normalise(answer), normalise(target)
    return answer == target and (bool(answer) or empty_matches)


def soft_match(answer: str, target: str, *, empty_matches: bool = False) -> bool:
    """Target is a substring of the answer after `normalise`. An empty target lies in everything, so it is refused."""
    answer, target = normalise(answer), normalise(target)
    return target in answer and (bool(target) or empty_matches)


def letter_match(answer: str, target: str, *, empty_matches: bool = False) -> bool:
    """Same `choice_letter`."""
    given, wanted = choice_letter(answer), choice_letter(target)
    return given == wanted and (bool(given) or empty_matches)


def math_match(answer: str, target: str, *, empty_matches: bool = False) -> bool:
    """Mathematically equal by math-verify, after the published preparation (lower case, one blank, in ``$``).

    Runs without time limits of its own, because math-verify's are signals that fail outside a main thread: expressions
    of a stranger belong into a process that can be killed (``ctx.compute``).

    Raises
    ------
    MissingExtra
        math-verify is not installed.
    """
    answer, target = normalise(answer, punctuation=True), normalise(target, punctuation=True)
    if not answer or not target:
        return empty_matches and answer == target
    if answer == target and answer.isascii() and answer.isdigit():
        return True
    try:
        from math_verify import grader, parse, parser, verify
    except ImportError as error:
        raise MissingExtra("Comparing mathematical answers", "cost_of_pass") from error
    # Each warns once that it keeps no time; here that is the caller's, as said above.
    parser.TIMEOUT_WARNING_SHOWN = grader.TIMEOUT_WARNING_SHOWN = True
    try:
        given = parse(_in_dollars(answer), parsing_timeout=None)  # pyright: ignore[reportArgumentType]
        wanted = parse(_in_dollars(target), parsing_timeout=None)  # pyright: ignore[reportArgumentType]
        return bool(verify(wanted, given, timeout_seconds=None))
    except Exception:  # the published rule: what cannot be compared is wrong
        return False


def robust_math_match(answer: str, target: str) -> bool:
    """Mathematically equal by assay's own reading: intervals, sets, units, percentages (`assay.core.answers`)."""
    from assay.core.answers import math_equal

    return bool(answer.strip()) and math_equal(target, answer)


def _in_dollars(text: str) -> str:
    return text if text.startswith("$") or text.endswith("$") else f"${text}$"


COMPARATORS: Mapping[str, Comparator] = {
    "math": math_match,
    "robust_math": robust_math_match,
    "letter": letter_match,
    "exact": exact_match,
    "soft": soft_match,
}
PUBLISHED_NAMES: Mapping[str, str] = {
    "math": "MathExpressionMatch",
    "letter": "MultipleChoiceMatch",
    "exact": "ExactStringMatch",
    "soft": "SoftStringMatch",
}


def comparator(name: str | Comparator) -> Comparator:
    """Comparator by name (math, robust_math, letter, exact, soft) or published name; a function is returned as is."""
    if callable(name):
        return name
    short = {published: short for short, published in PUBLISHED_NAMES.items()}.get(name, name)
    if short not in COMPARATORS:
        raise unknown_name("comparator", name, COMPARATORS)
    return COMPARATORS[short]


def majority_vote(votes: Sequence[str], compare: str | Comparator = "exact", *, empty_votes: bool = False) -> str:
    """Most frequent answer; ties go to the one seen first.

    A vote joins the first earlier representative that it matches, in order. Comparators need not be transitive (numeric
    tolerance), so the order of votes matters.

    Parameters
    ----------
    votes
        Answers in the order given; at least one.
    compare
        Comparator or its name.
    empty_votes
        Let unread answers ("") stand for election, as published; by default "" wins only where nothing else was said.

    Raises
    ------
    DataError
        No votes.
    """
    if not votes:
        raise DataError("A vote needs at least one answer; got none.")
    equal = comparator(compare)
    counts: dict[str, int] = {}
    for vote in votes:
        if not vote and not empty_votes:
            continue
        # Equal texts are one answer whatever the comparator makes of them ("" = "" is the published case).
        seen = next((known for known in counts if vote == known or equal(vote, known)), vote)
        counts[seen] = counts.get(seen, 0) + 1
    return max(counts, key=lambda known: counts[known]) if counts else ""


def read_answer(text: str, form: str, rule: str) -> tuple[str, str]:
    """(answer, how) of a reply; ("", "unread") where none is there.

    Parameters
    ----------
    form
        number, letter, expression or text.
    rule
        ``published``: the last closed answer block alone. ``robust``: tags in any case, then a box, then what the form
        allows (a stated number or letter).
    """
    if rule == "published":
        answer = answer_block(text)
        return (answer, "tag") if answer else ("", "unread")
    from assay.core import answers

    readers = [answers.last_tag, answers.boxed]
    if form == "letter":
        readers.append(lambda reply: answers.choice_letter(reply, "ABCDEF"))
    elif form == "number":
        readers.append(answers.number)
    for reader in readers:
        reading = reader(text)
        if reading.value is not None and str(reading.value).strip():
            return str(reading.value).strip(), reading.how
    return "", "unread"


def judge(texts: Sequence[str], voted: bool, target: str, compare: str, form: str, rule: str) -> tuple[str, str, bool]:
    """Read the replies of one trial, vote where they are votes, and compare: (answer, how, correct).

    A module-level function of plain values, so that a worker process can be sent here.
    """
    if voted:
        answer = majority_vote([read_answer(text, form, rule)[0] for text in texts], compare)
        how = "vote" if answer else "unread"
    else:
        answer, how = read_answer(texts[-1], form, rule)
    return answer, how, comparator(compare)(answer, target)
