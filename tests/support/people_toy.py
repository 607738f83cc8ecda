"""A benchmark that asks in every form, and answers for it."""

from __future__ import annotations

from typing import Any

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.metrics import mean
from assay.systems import forms
from assay.systems.chat.model import ChatModel

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "report",
        "schema": {
            "type": "object",
            "properties": {"mood": {"enum": ["good", "bad"]}, "n": {"type": "integer"}},
            "required": ["mood", "n"],
            "additionalProperties": False,
        },
    },
}
ASKED: dict[str, tuple[Any, Any]] = {
    "free": (None, "some words"),
    "choice": (forms.choice(["a", "b"]), {"choice": "b"}),
    "rating": (forms.rating(1, 5, unsure=True), {"rating": None}),
    "pair": (forms.pair("a", "b"), {"preferred": "tie"}),
    "ranking": (forms.ranking(["a", "b", "c"]), {"ranking": ["c", "a", "b"]}),
    "relevance": (forms.relevance(["a", "b"]), {"relevant": {"a": True, "b": False}}),
    "grouping": (forms.grouping(["a", "b", "c"]), {"groups": {"a": "x", "b": "y", "c": "x"}}),
    "ratings": (forms.ratings(["a", "b"]), {"ratings": {"a": 10, "b": 90}}),
    "spans": (forms.spans("Ann met Bob", ["person"]), {"spans": [{"start": 0, "end": 3, "label": "person"}]}),
    "schema": (SCHEMA, {"mood": "good", "n": 3}),
}
"""Sample id: response format, the answer that the toy people give."""


class Asking(Task):
    """One sample a form; right when the answer is the one of the table, read by the code that reads models."""

    name = "asking"
    system = ChatModel

    def samples(self):
        return [Sample(key, key, answer) for key, (_, answer) in ASKED.items()]

    async def trial(self, system, sample, ctx):
        asked, _ = ASKED[sample.id]
        reply = await system.generate(
            [{"role": "user", "content": f"Form: {sample.id}"}], response_format=asked, seed=ctx.seed % 2**31
        )
        return Outcome(output=reply.text, groups={"stop_reason": reply.stop_reason})

    def score(self, sample, output, ctx):
        value = forms.read(ASKED[sample.id][0]).read(output)
        return Outcome({"right": float(value == sample.target)}, groups={"read": "unread" if value is None else "read"})


class PeopleToy(Benchmark):
    """Every form once."""

    name, title = "people_toy", "Every form once"
    metrics = (mean("right", headline=True, bounds=(0, 1)),)

    def tasks(self):
        return [Asking()]


def reply_to(text: str) -> str:
    """What a model writes that answers as the toy people do."""
    asked, answer = ASKED[text.partition("Form: ")[2].strip()]
    return forms.read(asked).reply(answer)
