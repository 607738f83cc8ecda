"""The questions put to all contestants, their right answers, and what the server says. Standard library only."""

from __future__ import annotations

import re

WRONG_EVERY = 10
"""The server's answer to every tenth question is wrong, so that an equal accuracy says something."""

_QUESTION = re.compile(r"Question (\d+): what is (\d+) plus (\d+)\?")


def question(number: int) -> str:
    """Text of a question; no two are equal."""
    return f"Question {number}: what is {number + 100} plus {number % 97}? Answer with the number alone."


def right(number: int) -> str:
    """The right answer."""
    return str(number + 100 + number % 97)


def answer(text: str) -> tuple[int, str]:
    """(number of the question, what the server answers) for a prompt that holds a question."""
    found = _QUESTION.search(text)
    if found is None:
        raise ValueError(f"no question in {text!r}")
    number = int(found[1])
    return number, "unknown" if number % WRONG_EVERY == 0 else right(number)


def accuracy(numbers: range) -> float:
    """Accuracy of the server's answers on these questions."""
    return sum(n % WRONG_EVERY != 0 for n in numbers) / len(numbers)
