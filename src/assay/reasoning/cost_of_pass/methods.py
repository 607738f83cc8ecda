"""Systems that the benchmark brings along: a rule that adds, and producers of known skill and price."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from assay.core.errors import UsageError
from assay.systems.chat.model import Message
from assay.systems.scripted import ScriptedChatModel, text_of

if TYPE_CHECKING:
    from assay.reasoning.cost_of_pass.benchmark import ProblemTask

_SUM = re.compile(r"(\d+)\s*\+\s*(\d+)")


def rule_solver(price_in: float = 0.0, price_out: float = 0.0) -> ScriptedChatModel:
    """Adds the first two numbers with a plus between them; has no answer to anything else.

    Parameters
    ----------
    price_in, price_out
        USD per million words.
    """

    def answer(messages: Sequence[Message], rng: np.random.Generator) -> str:
        found = _SUM.search(text_of(messages))
        return f"<answer>{int(found[1]) + int(found[2])}</answer>" if found else "This is no sum."

    return ScriptedChatModel(answer, name="rule", price_in=price_in, price_out=price_out)


def producer(
    tasks: Sequence[ProblemTask],
    *,
    skill: float = 0.5,
    spread: float = 0.0,
    words: int = 20,
    price_in: float = 1.0,
    price_out: float = 4.0,
    seed: int = 0,
) -> ScriptedChatModel:
    """A stochastic producer whose success rate and cost are known: exact truth for every estimate.

    Parameters
    ----------
    skill
        Probability of the right answer to a problem of middle difficulty.
    spread
        Problems differ: each adds a fixed number from [-spread, spread] to the skill, clipped to [0, 1].
    words
        Words before the answer, a Poisson number a reply.
    price_in, price_out
        USD per million words.
    seed
        Of the difficulties and the replies.
    """
    if not 0 <= skill <= 1 or not 0 <= spread <= 1 or words < 0:
        raise UsageError(f"A producer has skill and spread in [0, 1] and words >= 0; got {skill}, {spread}, {words}.")
    problems = {problem.question: problem for task in tasks for problem in task.problems}
    shift = dict(zip(problems, np.random.default_rng(seed).uniform(-spread, spread, len(problems)), strict=True))

    def answer(messages: Sequence[Message], rng: np.random.Generator) -> str:
        text = text_of(messages)
        question = next((q for q in problems if f"Problem:\n{q}\n" in text), None)
        thought = "so " * int(rng.poisson(words))
        if question is None:
            return thought
        if "double square brackets" in text:
            return f"[[{max(1, words)}]]"
        right = rng.random() < min(1.0, max(0.0, skill + shift[question]))
        target = problems[question].target
        wrong = "(F)" if target.startswith("(") else "-1"
        return f"{thought}<answer>{target if right else wrong}</answer>"

    return ScriptedChatModel(answer, name=f"producer-{skill:g}", seed=seed, price_in=price_in, price_out=price_out)
