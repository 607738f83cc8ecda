"""What a reply answers: last box, last code block, last answer tag, as the published environments read them."""

from __future__ import annotations

import re
import string

from assay.core.answers.extract import brace_pairs, fenced, last_tag

_BOX = re.compile(r"\\boxed\{")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def last_box(text: str) -> str | None:
    """Content of the last closed ``\\boxed{...}``, braces balanced; None where there is none."""
    pairs = brace_pairs(text)
    for match in reversed(list(_BOX.finditer(text))):
        end = pairs.get(match.end() - 1)
        if end is not None:
            return text[match.end() : end]
    return None


def last_block(text: str) -> str | None:
    """Content of the last fenced code block."""
    return fenced(text).value


def last_answer(text: str) -> str | None:
    """Content of the last closed ``<answer>...</answer>``."""
    return last_tag(text).value


def normalised(text: str) -> str:
    """SQuAD's normalisation: lower case, no ASCII punctuation, no articles, single blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str | list[str]) -> bool:
    """Whether the prediction equals any gold answer after `normalised`."""
    golds = [gold] if isinstance(gold, str) else gold
    return normalised(prediction) in {normalised(item) for item in golds}
