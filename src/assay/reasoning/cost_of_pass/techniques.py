"""Techniques: what is done with a model to get one answer. Every call that a technique makes is billed.

A technique is an async function ``f(problem, form, ask) -> Exchange``; `technique` finds one by name. Prompts are
assay's own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from assay.reasoning.cost_of_pass.data import Form, Problem


@dataclass(frozen=True, slots=True)
class Said:
    """One reply, fresh or taken from a store."""

    text: str
    stop_reason: str = "stop"


Ask = Callable[[str, bool], Awaitable[Said]]
"""``await ask(prompt, plain)``; ``plain`` marks the unchanged first prompt, which a stored record may answer."""


@dataclass(slots=True)
class Exchange:
    """What a technique asked and heard. Reading the answer, and the vote, are scoring.

    Attributes
    ----------
    turns
        (prompt, reply) of every call in order.
    voted
        Whether every reply is a vote; otherwise the last reply holds the answer.
    notes
        What a reader may want to know, such as the budget.
    """

    turns: list[tuple[str, Said]]
    voted: bool = False
    notes: dict[str, Any] = field(default_factory=dict)


Technique = Callable[["Problem", "Form", Ask], Awaitable[Exchange]]

_FORMS: Mapping[str, str] = {
    "number": "Inside the tags write the number alone, without unit or words.",
    "letter": "Inside the tags write only the letter of the option you choose, like (A).",
    "expression": "Inside the tags write the result alone, as a number or a LaTeX expression.",
    "text": "Inside the tags write the complete answer.",
}
_BUDGET = re.compile(r"\[\[\s*([\d,]+)\s*\]\]")


def plain_prompt(problem: Problem, form: Form) -> str:
    """Question, then how to answer. The question stands first, so that prompts of one problem share their beginning."""
    return (
        f"Problem:\n{problem.question}\n\n"
        "Work it out, then finish with your final answer between <answer> and </answer>. "
        f"{_FORMS[form]}"
    )


def refine_prompt(problem: Problem, form: Form, first: str) -> str:
    """Question, first attempt, and the request to check and rewrite it."""
    return (
        f"Problem:\n{problem.question}\n\n"
        f"A first attempt at it:\n{first}\n\n"
        "Go through this attempt step by step and look for mistakes. Put right what is wrong, then write out the whole "
        "solution anew, and finish with the final answer between <answer> and </answer>. "
        f"{_FORMS[form]}"
    )


def budget_prompt(problem: Problem) -> str:
    """Question, and the request to guess how many tokens an answer needs."""
    return (
        f"Problem:\n{problem.question}\n\n"
        "Do not solve it yet. Guess the smallest number of tokens in which this problem can be reasoned through and "
        "answered correctly. Reply with that number in double square brackets and nothing else, for example [[40]]."
    )


def read_budget(text: str) -> int | None:
    """Token budget in a reply: the last ``[[n]]`` with n > 0; None where there is none."""
    found = _BUDGET.findall(text)
    digits = found[-1].replace(",", "") if found else ""
    return int(digits) if digits and int(digits) > 0 else None


async def vanilla(problem: Problem, form: Form, ask: Ask) -> Exchange:
    """One prompt, one answer."""
    prompt = plain_prompt(problem, form)
    return Exchange([(prompt, await ask(prompt, True))])


async def self_refinement(problem: Problem, form: Form, ask: Ask) -> Exchange:
    """Answer, then check and rewrite; the second answer counts."""
    first_prompt = plain_prompt(problem, form)
    first = await ask(first_prompt, True)
    prompt = refine_prompt(problem, form, first.text)
    return Exchange([(first_prompt, first), (prompt, await ask(prompt, False))])


def majority(k: int) -> Technique:
    """Ask k times with the plain prompt; the answer with most votes counts."""
    if k < 1:
        raise UsageError(f"A majority needs at least one vote; got {k}.")

    async def ask_k_times(problem: Problem, form: Form, ask: Ask) -> Exchange:
        prompt = plain_prompt(problem, form)
        return Exchange([(prompt, await ask(prompt, True)) for _ in range(k)], voted=True)

    return ask_k_times


async def tale_ep(problem: Problem, form: Form, ask: Ask) -> Exchange:
    """Let the model guess a token budget, then ask with it. Without a readable guess, ask without budget."""
    guess_prompt = budget_prompt(problem)
    guess = await ask(guess_prompt, False)
    budget = read_budget(guess.text)
    prompt = plain_prompt(problem, form)
    if budget is not None:
        prompt += f" Use less than {budget} tokens."
    said = await ask(prompt, budget is None)
    return Exchange([(guess_prompt, guess), (prompt, said)], notes={"budget": budget})


TECHNIQUES: Mapping[str, Technique] = {
    "vanilla": vanilla,
    "self_refinement": self_refinement,
    "majority_3": majority(3),
    "majority_4": majority(4),
    "tale_ep": tale_ep,
}
PUBLISHED_NAMES: Mapping[str, str] = {
    "vanilla": "VanillaPromptMethod",
    "self_refinement": "SelfRefinementMethod",
    "majority_3": "MajorityVotingMethod_3",
    "majority_4": "MajorityVotingMethod_4",
}


def short_name(name: str) -> str:
    """Name here of a technique, from its name here or in the published records."""
    head, mark, k = name.partition("MajorityVotingMethod_")
    if mark and not head and k.isdigit():
        return f"majority_{k}"
    return {published: short for short, published in PUBLISHED_NAMES.items()}.get(name, name)


def published_name(name: str) -> str:
    """Name in the published records; a technique that they lack keeps its own."""
    head, mark, k = name.partition("majority_")
    return f"MajorityVotingMethod_{k}" if mark and not head else PUBLISHED_NAMES.get(name, name)


def technique(name: str) -> Technique:
    """Technique by name: vanilla, self_refinement, majority_K, tale_ep, or ``package.module:function``.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    short = short_name(name)
    if short in TECHNIQUES:
        return TECHNIQUES[short]
    head, mark, k = short.partition("majority_")
    if mark and not head and k.isdigit():
        return majority(int(k))
    module, colon, attribute = name.partition(":")
    if colon:
        import importlib

        try:
            function: Technique = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(f"Technique {name!r} cannot be imported: {error}.") from None
        if not callable(function):
            raise UsageError(f"Technique {name!r} is no function; write async def f(problem, form, ask) -> Exchange.")
        return function
    raise unknown_name("technique", name, TECHNIQUES, "majority_K takes any K.")
