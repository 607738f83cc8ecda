"""Reading answers: every reader returns Reading(value, how, span), and value None says that nothing could be read."""

from assay.core.answers.extract import after_marker, boxed, fenced, last_tag
from assay.core.answers.letters import choice_letter, choice_letters
from assay.core.answers.maths import MathVerdict, math_compare, math_equal
from assay.core.answers.plain import number, refusal, yes_no
from assay.core.answers.reading import Reading, Split, split_reasoning
from assay.core.answers.structured import json_object, schema_fault

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
