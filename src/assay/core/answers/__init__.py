"""Reading answers: every reader returns Reading(value, how, span), and value None says that nothing could be read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.core.answers.extract import after_marker, boxed, fenced, last_tag
    from assay.core.answers.letters import choice_letter, choice_letters
    from assay.core.answers.maths import MathVerdict, math_compare, math_equal
    from assay.core.answers.plain import number, refusal, yes_no
    from assay.core.answers.reading import Reading, Split, split_reasoning
    from assay.core.answers.structured import json_object, schema_fault

# A reader is imported when it is asked for: compiling the patterns of all of them would cost every start.
_HOMES = {
    "after_marker": "extract",
    "boxed": "extract",
    "fenced": "extract",
    "last_tag": "extract",
    "choice_letter": "letters",
    "choice_letters": "letters",
    "MathVerdict": "maths",
    "math_compare": "maths",
    "math_equal": "maths",
    "number": "plain",
    "refusal": "plain",
    "yes_no": "plain",
    "Reading": "reading",
    "Split": "reading",
    "split_reasoning": "reading",
    "json_object": "structured",
    "schema_fault": "structured",
}

__all__ = [
    "MathVerdict",
    "Reading",
    "Split",
    "after_marker",
    "boxed",
    "choice_letter",
    "choice_letters",
    "fenced",
    "json_object",
    "last_tag",
    "math_compare",
    "math_equal",
    "number",
    "refusal",
    "schema_fault",
    "split_reasoning",
    "yes_no",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
