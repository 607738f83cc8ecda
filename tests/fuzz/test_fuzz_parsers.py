"""Every parser of an answer on any text: it never raises, and takes no second, however the text was made."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.core import answers
from assay.core.errors import AssayError

LONGEST = 1.0
"""CPU seconds that a parser may take on 20,000 characters made to slow it (some grow with the square beyond)."""
CHOICES = ("a house", "a tree", "the sun", "a bird")


def _core() -> dict[str, Callable[[str], Any]]:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    return {
        "after_marker": answers.after_marker,
        "boxed": answers.boxed,
        "choice_letter": lambda t: answers.choice_letter(t, "ABCD", CHOICES),
        "choice_letters": lambda t: answers.choice_letters(t, "ABCD", CHOICES),
        "fenced": answers.fenced,
        "fenced python": lambda t: answers.fenced(t, "python"),
        "json_object": answers.json_object,
        "json_object schema": lambda t: answers.json_object(t, schema),
        "last_tag": answers.last_tag,
        "number": answers.number,
        "refusal": answers.refusal,
        "split_reasoning": answers.split_reasoning,
        "yes_no": answers.yes_no,
    }


def _rooms() -> dict[str, Callable[[str], Any]]:
    from assay.agents.gem import readers
    from assay.agents.gem.terminal import read_command
    from assay.agents.lmgame.contamination import read_order
    from assay.agents.lmgame.diagnostics import read_grid
    from assay.agents.lmgame.parsing import parse_reply
    from assay.code.hardtests import kit
    from assay.multimodal.asciieval import scoring as ascii_scoring
    from assay.multimodal.asciieval.kit import remove_signature, split_drawings
    from assay.reasoning.cost_of_pass import scoring
    from assay.reasoning.cost_of_pass.techniques import read_budget
    from assay.representations.hume import questions
    from assay.representations.hume.items import Item, PairItems
    from assay.representations.hume.registry import TaskSpec
    from assay.systems import dialects
    from assay.systems.tools import read_arguments
    from assay.systems.trace_formats import from_tags

    def hume(kind: Any, item: Item) -> Callable[[str], Any]:
        pair = PairItems(TaskSpec("t", kind, "i", labels={"0": "no", "1": "yes"}), "default", (item,))
        return lambda text: questions.read(pair, item, text)

    found: dict[str, Callable[[str], Any]] = {
        "gem last_box": readers.last_box,
        "gem last_block": readers.last_block,
        "gem last_answer": readers.last_answer,
        "gem normalised": readers.normalised,
        "gem read_command": read_command,
        "lmgame read_order": lambda t: read_order(t, 4),
        "lmgame read_grid": lambda t: read_grid(t, 4, 4),
        "lmgame parse_reply": lambda t: parse_reply(t, harness=True),
        "lmgame parse_reply plain": lambda t: parse_reply(t, harness=False),
        "hardtests parse_reply": kit.parse_reply,
        "hardtests function_names": kit.function_names,
        "hardtests kit_from_replies": lambda t: kit.kit_from_replies("p", t, t),
        "asciieval letter_plain": lambda t: ascii_scoring.letter_plain(t, CHOICES),
        "asciieval letter_compatible": lambda t: ascii_scoring.letter_compatible(t, CHOICES),
        "asciieval letter_robust": lambda t: ascii_scoring.letter_robust(t, CHOICES),
        "asciieval cut_thinking": ascii_scoring.cut_thinking,
        "asciieval remove_signature": remove_signature,
        "asciieval split_drawings": split_drawings,
        "cost_of_pass answer_block": scoring.answer_block,
        "cost_of_pass choice_letter": scoring.choice_letter,
        "cost_of_pass normalise": lambda t: scoring.normalise(t, punctuation=True, case=True),
        "cost_of_pass soft_match": lambda t: scoring.soft_match(t, "4"),
        "cost_of_pass letter_match": lambda t: scoring.letter_match(t, "A"),
        "cost_of_pass read_budget": read_budget,
        "hume classification": hume("classification", Item("1", ("t",), "yes")),
        "hume sts": hume("sts", Item("1", ("a", "b"), 2.0)),
        "hume reranking": hume("reranking", Item("1", ("q", "a", "b"), (0, 1), ("a", "b"))),
        "hume clustering": hume("clustering", Item("1", ("a", "b"), ("yes", "no"))),
        "find_tool_call": dialects.find_tool_call,
        "segments": lambda t: dialects.segments(t, ("think", "search", "answer")),
        "read_arguments": lambda t: read_arguments(t, {"type": "object", "properties": {"a": {"type": "integer"}}}),
        "from_tags": from_tags,
    }
    for form in ("letter", "number", "expression"):
        for rule in ("published", "robust"):
            found[f"cost_of_pass read_answer {form} {rule}"] = lambda t, form=form, rule=rule: scoring.read_answer(
                t, form, rule
            )
    for name in ("json", "lines", "tags"):
        found[f"dialect {name}"] = lambda t, name=name: dialects.dialect(name).read(t, ())
    return found


PARSERS = _core() | _rooms()

PIECES = (
    "\\boxed{", "}", "{", "<answer>", "</answer>", "<think>", "</think>", "```", "```python\n", "```json\n", "Answer:",
    "the answer is ", "(A)", "B.", "**C**", "\\frac{", "\\sqrt", "\\left(", "\\right]", "$", "$$", "1,000", "-",
    "1e999",
    "\u0661", "\u2028", "\0", '"', "\\", "[", "]", '{"a":', "<tool_call>", "</tool_call>", "<search>", "thought:",
    "move:", "Action:", "\n", "\r\n", " ", "\t", "yes", "no", "I cannot", "cells", "|", "^300", "123.4",
    "9" * 400, "# Result", "Final Answer", "=",
    "\ud800",
)  # fmt: skip
TEXTS = st.text(max_size=60) | st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=40).map("".join)


def evil(length: int) -> dict[str, str]:
    """Long texts that make careless expressions go back and forth."""
    n = length
    return {
        "one letter": "a" * n,
        "spaces": " " * n,
        "newlines": "\n" * n,
        "stars": "*" * n,
        "digits": "9" * n,
        "digits with commas": "1," * (n // 2),
        "dots": "1." * (n // 2),
        "minus": "-" * n,
        "dollars": "$" * n,
        "quotes": '"' * n,
        "backslashes": "\\" * n,
        "opened braces": "{" * n,
        "opened brackets": "[" * n,
        "opened parentheses": "(" * n,
        "nested boxes": "\\boxed{" * (n // 7),
        "nested boxes closed": "\\boxed{" * (n // 8) + "}" * (n // 8),
        "empty boxes": "\\boxed{}" * (n // 8),
        "fractions": "\\frac{" * (n // 6),
        "roots": "\\sqrt" * (n // 5),
        "fences": "```" * (n // 3),
        "fences on lines": "```\n" * (n // 4),
        "json fences": "# Result\n" + "```json\n{\n" * (n // 10),
        "strings in json": '# Result\n```json\n{"a": "' + '\\"' * (n // 2),
        "tags opened": "<answer>" * (n // 8),
        "tags closed": "</answer>" * (n // 9),
        "think opened": "<think>" * (n // 7),
        "tool calls": '<tool_call>{"name": "a", ' * (n // 25),
        "objects": '{"a": ' * (n // 6),
        "objects apart": '{"a": 1} ' * (n // 9),
        "angles": "<" * n,
        "markers": "answer is " * (n // 10),
        "letters": "A B C D " * (n // 8),
        "letters in parentheses": "(A) " * (n // 4),
        "options echoed": "A. a house\nB. a tree\n" * (n // 21),
        "words": "answer: the answer is that the answer " * (n // 38),
        "spaces before a line end": (" " * 200 + "x\n") * (n // 202),
        "thoughts": "thought: a\nmove: " * (n // 17),
        "cells": "| 1 | 2 |\n" * (n // 10),
        "mails": "a@" * (n // 2),
        "by": "by " * (n // 3),
        "mixed case": "aA" * (n // 2) + "!",
        "a surrogate": "\ud800" * n,
    }


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=TEXTS)
def test_no_text_makes_a_parser_raise(name: str, text: str) -> None:
    PARSERS[name](text)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=1500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(text=TEXTS)
def test_no_text_of_many_makes_a_parser_raise(name: str, text: str) -> None:
    PARSERS[name](text)


def slow_ones(name: str, length: int, limit: float) -> list[str]:
    """Evil texts that a parser takes too long for, or raises at."""
    faults = []
    for what, text in evil(length).items():
        begun = time.process_time()
        try:
            PARSERS[name](text)
        except Exception as error:
            faults.append(f"{what}: raises {type(error).__name__}: {str(error)[:100]}")
        taken = time.process_time() - begun
        if taken > limit:
            faults.append(f"{what}: {taken:.2f} s")
    return faults


@pytest.mark.parametrize("name", PARSERS)
def test_no_long_text_takes_a_parser_long(name: str) -> None:
    assert not slow_ones(name, 5_000, LONGEST / 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_no_very_long_text_takes_a_parser_a_second(name: str) -> None:
    assert not slow_ones(name, 20_000, LONGEST)


# -- mathematics -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=TEXTS)
def test_no_text_makes_the_comparison_of_mathematics_raise(text: str) -> None:
    answers.math_compare("4", text)


@pytest.mark.parametrize("what", evil(10))
def test_no_long_text_takes_the_comparison_of_mathematics_long(what: str) -> None:
    answers.math_compare("x + 1", "1 + x")  # the library is there
    for length in (490, 20_000):
        begun = time.process_time()
        answers.math_compare("4", evil(length)[what])
        assert time.process_time() - begun < 2 * LONGEST


# -- forms that people answer ------------------------------------------------------------------------------------------

ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(answer=ANSWERS, text=TEXTS)
def test_no_answer_makes_a_form_raise(answer: Any, text: str) -> None:
    from assay.systems import forms

    made = [
        forms.text(),
        forms.choice(["a", "b"]),
        forms.rating(1, 5),
        forms.ranking(["a", "b", "c"]),
        forms.relevance(["a", "b"]),
        forms.grouping(["a", "b"]),
        forms.spans("some text", ["x"]),
    ]
    for one in made:
        form = forms.read(one)
        fault = form.fault(answer)
        assert fault is None or isinstance(fault, str)
        with contextlib.suppress(AssayError):
            form.read(text)
