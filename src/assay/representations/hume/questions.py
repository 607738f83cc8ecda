"""The question of an item, for people and chat models alike, and how an answer is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from assay.core.answers.plain import number, refusal
from assay.core.answers.reading import Reading, answer_start
from assay.core.errors import DataError
from assay.representations.hume.items import Item, PairItems
from assay.systems import forms

# People see a form in its place.
RULE = "Answer with a JSON object: "
RULES = {
    "classification": '{{"choice": LABEL}}, where LABEL is one of {labels}.',
    "sts": '{{"rating": R}}, where R is a whole number from {low:g} to {high:g}.',
    "reranking": '{{"relevant": {{"d1": true or false, ... "d{n}": true or false}}}}.',
    "clustering": '{{"groups": {{"t1": NAME, ... "t{n}": NAME}}}}.',
}


def messages(pair: PairItems, item: Item) -> list[dict[str, str]]:
    """Instruction, item, form of the answer."""
    kind, spec = pair.spec.kind, pair.spec
    if kind == "classification":
        shown = [f"Text:\n{item.texts[0]}"]
    elif kind == "sts":
        shown = [f"Text 1:\n{item.texts[0]}", f"Text 2:\n{item.texts[1]}"]
    elif kind == "reranking":
        shown = [f"Query:\n{item.texts[0]}"]
        shown += [f"Document d{n}:\n{text or '(empty)'}" for n, text in enumerate(item.texts[1:], 1)]
    else:
        shown = [f"t{n}: {text}" for n, text in enumerate(item.texts, 1)]
        shown.append("Every text gets a group. Their names, and how many there are, are up to you.")
    return [{"role": "user", "content": "\n\n".join([spec.instruction, *shown, _rule(pair, item)])}]


def form(pair: PairItems, item: Item) -> dict[str, Any]:
    """The ``response_format``: choice, rating, relevance or grouping."""
    kind = pair.spec.kind
    if kind == "classification":
        asked = forms.choice(pair.labels)
    elif kind == "sts":
        low, high = pair.spec.scale
        asked = forms.rating(low, high, labels={f"{low:g}": "nothing in common", f"{high:g}": "the same"})
    elif kind == "reranking":
        asked = forms.relevance([{"id": f"d{n}", "label": f"Document d{n}"} for n in range(1, len(item.texts))])
    else:
        asked = forms.grouping([{"id": f"t{n}", "text": text} for n, text in enumerate(item.texts, 1)])
    return forms.ruled(asked, _rule(pair, item))


def _rule(pair: PairItems, item: Item) -> str:
    """How a model writes the answer."""
    kind, (low, high) = pair.spec.kind, pair.spec.scale
    labels = ", ".join(json.dumps(x, ensure_ascii=False) for x in pair.labels)
    return RULE + RULES[kind].format(labels=labels, low=low, high=high, n=len(item.texts) - (kind == "reranking"))


def read(pair: PairItems, item: Item, output: Any) -> Reading:
    """The answer in a reply: a label; a rating; 0/1 by document; a cluster id by text.

    An ``{"answer": ...}`` is taken as given, after a check. A reply is read as the form asks, then in plainer shapes (a
    bare label, a number, a list). ``value`` None: ``how`` is ``refused``, ``unread`` or ``missing``.

    Raises
    ------
    DataError
        A given answer is none of this item: unknown label, rating out of scale, wrong length.
    """
    if isinstance(output, Mapping):
        answer = output.get("answer")
        return Reading(None, "missing") if answer is None else Reading(checked(pair, item, answer), "given")
    text = "" if output is None else str(output)
    kind = pair.spec.kind
    found = forms.read(form(pair, item)).read(text)
    if found is not None:
        value = next(iter(found.values()))
        if kind == "reranking":
            value = [int(value[f"d{n}"]) for n in range(1, len(item.texts))]
        elif kind == "clustering":
            value = [value[f"t{n}"] for n in range(1, len(item.texts) + 1)]
        return Reading(value, "form")
    if refusal(text).value:
        return Reading(None, "refused")
    answer = text[answer_start(text) :]
    value = {"classification": _label, "sts": _rating, "reranking": _marks, "clustering": _clusters}[kind](
        pair, item, answer
    )
    return Reading(None, "unread") if value is None else Reading(value, "plain")


def checked(pair: PairItems, item: Item, answer: Any, where: str = "") -> Any:
    """A given answer in the shape of its task.

    Raises
    ------
    DataError
        As in `read`; ``where`` begins the sentence.
    """
    where = where or f"{pair.key}, item {item.id}"
    kind = pair.spec.kind
    if kind == "classification":
        name = pair.spec.label(answer, where)
        if name not in pair.labels:
            raise DataError(f"{where}: {answer!r} is no label here; there are {', '.join(pair.labels)}.")
        return name
    if kind == "sts":
        low, high = pair.spec.scale
        if not isinstance(answer, (int, float)) or isinstance(answer, bool) or not low <= answer <= high:
            raise DataError(f"{where}: the rating {answer!r} is not a number from {low:g} to {high:g}.")
        return answer
    size = len(item.texts) - (kind == "reranking")
    what = "documents" if kind == "reranking" else "texts"
    if not isinstance(answer, (list, tuple)) or len(answer) != size:
        given = len(answer) if isinstance(answer, (list, tuple)) else repr(answer)
        raise DataError(f"{where}: the answer must hold an entry for each of {size} {what}, and has {given}.")
    if kind == "reranking":
        if any(x not in (0, 1, True, False, None) for x in answer):
            raise DataError(f"{where}: judgements are 1 (relevant), 0 (not relevant) or null, not {list(answer)}.")
        return [None if x is None else int(x) for x in answer]
    return [None if x is None else str(x) for x in answer]


def _label(pair: PairItems, item: Item, text: str) -> str | None:
    """The only label that the text names; a longer label hides the shorter one inside it."""
    left, found = text.casefold(), []
    for label in sorted(pair.labels, key=len, reverse=True):
        pattern = rf"(?<!\w){re.escape(label.casefold())}(?!\w)"
        if re.search(pattern, left):
            found.append(label)
            left = re.sub(pattern, " ", left)
    return found[0] if len(found) == 1 else None


def _rating(pair: PairItems, item: Item, text: str) -> float | None:
    text = re.sub(rf"(?<!\s)\s*+(?:/|out of|von|из)\s*{pair.spec.scale[1]:g}\b", "", text)
    value = number(text).value
    low, high = pair.spec.scale
    return value if value is not None and low <= value <= high else None


def _marks(pair: PairItems, item: Item, text: str) -> list[int] | None:
    size = len(item.texts) - 1
    lists = re.findall(r"\[([^\[\]]*)\]", text)
    for inside in reversed(lists):
        parts = [part.strip().lower() for part in inside.split(",")]
        if len(parts) == size and all(part in ("0", "1", "true", "false") for part in parts):
            return [int(part in ("1", "true")) for part in parts]
    marks = dict(
        re.findall(r"\bd(\d+)\b[\"']?\s*[:=-]\s*(not relevant|irrelevant|relevant|true|false|yes|no)", text.lower())
    )
    if set(marks) == {str(n) for n in range(1, size + 1)}:
        return [int(marks[str(n)] in ("relevant", "true", "yes")) for n in range(1, size + 1)]
    return None


def _clusters(pair: PairItems, item: Item, text: str) -> list[str] | None:
    size = len(item.texts)
    lines = (re.match(r"\W*t(\d+)\W*[:=-](.+)", line) for line in text.splitlines())
    found = {line[1]: re.sub(r"\W+\Z", "", line[2][-200:]).strip() for line in lines if line}
    if set(found) == {str(n) for n in range(1, size + 1)} and all(found.values()):
        return [found[str(n)] for n in range(1, size + 1)]
    return None
