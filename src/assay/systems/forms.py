"""Forms of an answer: one vocabulary, written as a chat request's ``response_format``, for people and models alike.

A model reads the JSON schema and ignores the rest; a person's page (`assay.systems.human`) shows the form. Both end as
the same text, so a room scores them by the same code. The field ``form`` names the kind and its arguments, which are
those of the function of that name here:

========== ============================== ====================================================================
kind       reply                          asked with
========== ============================== ====================================================================
text       the text                       no response_format, or `text`
choice     ``{"choice": "b"}``            `choice`; with ``plain=True`` the reply is the bare id
rating     ``{"rating": 4}``, null=unsure `rating`; with ``part`` a listening test of one recording (MOS)
pair       ``{"preferred": "a"}``, tie    `pair`; of two recordings: A/B
ranking    ``{"ranking": ["b", "a"]}``    `ranking`, best first
relevance  ``{"relevant": {"d1": true}}`` `relevance`
grouping   ``{"groups": {"t1": "x"}}``    `grouping`; names of groups are free
spans      ``{"spans": [{"start": 0, ``   `spans`; characters, end exclusive
           ``"end": 4, "label": "P"}]}``
ratings    ``{"ratings": {"s1": 80}}``    `ratings`; of recordings beside a reference: MUSHRA
schema     an object of that schema       any other ``json_schema``
json       any JSON object                ``{"type": "json_object"}``
========== ============================== ====================================================================

An item is ``{"id": ..., "label": ..., "text": ..., "part": k}`` or just its id. ``part`` points at the k-th picture or
recording of the messages (``image_url`` and ``input_audio`` parts, counted together from 0), so that a model is sent
the very data that the person sees or hears.

A person sees a form where a model must be told how to write JSON. `ruled` marks those sentences of the messages, and
`for_people` leaves them out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from assay.core.answers.structured import json_object, schema_fault
from assay.core.errors import UsageError, unknown_name

Item = str | Mapping[str, Any]
Format = dict[str, Any]
Level = Literal["nominal", "ordinal", "interval"]

MAX_ITEMS = 500
MAX_PARTS = 20_000
_ITEM_FIELDS = {"id", "label", "text", "part"}


def text(*, lines: int = 4) -> Format:
    """Free text in a field of ``lines`` lines; with one line, Enter sends."""
    if not _whole(lines, 1, 100):
        raise UsageError(f"Form text: lines is {lines!r}, and must be a whole number from 1 to 100.")
    return {"type": "text", "form": {"kind": "text", "lines": lines}}


def choice(options: Sequence[Item], *, plain: bool = False, shuffle: bool = False) -> Format:
    """One of several. ``plain``: the reply is the id alone, for rooms that read a letter."""
    found = _items(options, "choice", 1)
    form: Format = {"kind": "choice", "options": found} | _flag("plain", plain) | _flag("shuffle", shuffle)
    if plain:
        return {"type": "text", "form": form}
    return _format(form, {"choice": {"type": "string", "enum": _ids(found)}})


def rating(
    low: float, high: float, *, step: float = 1, labels: Mapping[str, str] | None = None, unsure: bool = False,
    part: int | None = None,
) -> Format:  # fmt: skip
    """A number on a scale; ``labels`` name values (``{"1": "bad"}``), ``unsure`` allows null, ``part`` is to be heard
    or seen first."""
    form = {"kind": "rating"} | _scale("rating", low, high, step, labels, unsure)
    if part is not None:
        form["part"] = _part(part, "rating")
    return _format(form, {"rating": _number(low, high, step, unsure)})


def pair(a: Item, b: Item, *, tie: bool = True, shuffle: bool = False) -> Format:
    """Which of two is better: ``a``, ``b`` or, where allowed, ``tie``."""
    found = _items([a, b], "pair", 2)
    if "tie" in _ids(found):
        raise UsageError("Form pair: an item cannot have the id 'tie', which is an answer of its own.")
    form = {"kind": "pair", "a": found[0], "b": found[1], "tie": bool(tie)} | _flag("shuffle", shuffle)
    return _format(form, {"preferred": {"type": "string", "enum": _ids(found) + (["tie"] if tie else [])}})


def ranking(items: Sequence[Item], *, shuffle: bool = False) -> Format:
    """All items in order, best first."""
    found = _items(items, "ranking", 2)
    ids = _ids(found)
    one = {"type": "string", "enum": ids}
    return _format(
        {"kind": "ranking", "items": found} | _flag("shuffle", shuffle),
        {"ranking": {"type": "array", "items": one, "minItems": len(ids), "maxItems": len(ids)}},
    )


def relevance(items: Sequence[Item], *, yes: str = "relevant", no: str = "not relevant") -> Format:
    """A yes or no for every item."""
    found = _items(items, "relevance", 1)
    form = {"kind": "relevance", "items": found, "yes": _text(yes, "relevance"), "no": _text(no, "relevance")}
    return _format(form, {"relevant": _object({i: {"type": "boolean"} for i in _ids(found)})})


def grouping(items: Sequence[Item]) -> Format:
    """Every item into one group; how many groups there are, and what they are called, is free."""
    found = _items(items, "grouping", 1)
    return _format(
        {"kind": "grouping", "items": found},
        {"groups": _object({i: {"type": "string", "minLength": 1} for i in _ids(found)})},
    )


def spans(text: str, labels: Sequence[str]) -> Format:
    """Labelled stretches of ``text``; start and end count characters (code points), end exclusive."""
    found = _ids(_items(labels, "spans", 1))
    place = {"type": "integer", "minimum": 0, "maximum": len(_text(text, "spans"))}
    one = _object({"start": place, "end": place, "label": {"type": "string", "enum": found}})
    return _format({"kind": "spans", "text": text, "labels": found}, {"spans": {"type": "array", "items": one}})


def ratings(
    items: Sequence[Item], low: float = 0, high: float = 100, *, step: float = 1,
    labels: Mapping[str, str] | None = None, unsure: bool = False, reference: int | None = None,
    reference_label: str = "Reference", shuffle: bool = False,
) -> Format:  # fmt: skip
    """Several items on one scale; ``reference`` is the part that they are compared with (MUSHRA).

    Where people must not know which of two is the reference, it has another label.
    """
    found = _items(items, "ratings", 1)
    form = {"kind": "ratings", "items": found} | _scale("ratings", low, high, step, labels, unsure)
    if reference is not None:
        form["reference"] = _part(reference, "ratings")
        form["reference_label"] = _text(reference_label, "ratings")
    form |= _flag("shuffle", shuffle)
    return _format(form, {"ratings": _object({i: _number(low, high, step, unsure) for i in _ids(found)})})


KINDS: Mapping[str, Callable[..., Format]] = {
    f.__name__: f for f in (text, choice, rating, pair, ranking, relevance, grouping, spans, ratings)
}


@dataclass(frozen=True, slots=True)
class Form:
    """A form as read: ``kind``, its arguments, the schema of its reply (None = free text)."""

    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None

    @property
    def plain(self) -> bool:
        """Whether the reply is a bare text."""
        return self.schema is None

    @property
    def items(self) -> list[Mapping[str, Any]]:
        """Options or items, in the order given."""
        if self.kind == "pair":
            return [self.arguments["a"], self.arguments["b"]]
        return list(self.arguments.get("items") or self.arguments.get("options") or ())

    def parts(self) -> set[int]:
        """Numbers of pictures and recordings that the form itself shows."""
        found = {i["part"] for i in self.items if "part" in i}
        return found | {self.arguments[k] for k in ("part", "reference") if k in self.arguments}

    def json(self) -> dict[str, Any]:
        """What a page needs to show the form."""
        return {"kind": self.kind, **self.arguments} | ({"schema": self.schema} if self.kind == "schema" else {})

    def fault(self, value: Any) -> str | None:
        """What is wrong with an answer, in words; None = it fits."""
        if self.kind == "text":
            return None if isinstance(value, str) and value.strip() else "the answer is empty"
        if self.kind == "choice" and self.plain:
            ids = _ids(self.items)
            return None if value in ids else f"the answer is {value!r}, and must be one of {', '.join(ids)}"
        fault = schema_fault(value, self.schema or {"type": "object"})
        if fault is not None:
            return fault
        if self.kind == "ranking" and len(set(value["ranking"])) != len(value["ranking"]):
            return "an item stands twice in the ranking"
        if self.kind == "spans":
            return next((_span_fault(s) for s in value["spans"] if s["start"] >= s["end"]), None)
        if self.kind in ("rating", "ratings"):
            given = [value["rating"]] if self.kind == "rating" else value["ratings"].values()
            low, step = self.arguments["low"], self.arguments["step"]
            for x in given:
                if x is not None and abs((x - low) / step - round((x - low) / step)) > 1e-6:
                    return f"the rating {x} is not a step of {step} from {low}"
        return None

    def reply(self, value: Any) -> str:
        """The text a model would have written."""
        return value if self.plain else json.dumps(value, ensure_ascii=False)

    def read(self, reply: str) -> Any:
        """The answer in a reply's text; None where it holds none."""
        if self.plain:
            return reply.strip()
        value = json_object(reply, self.schema).value
        return None if value is None or self.fault(value) else value

    # -- agreement ---------------------------------------------------------------------------------------------------

    @property
    def level(self) -> Level:
        """Level of measurement of `units`."""
        return {"rating": "interval", "ratings": "interval", "ranking": "ordinal"}.get(self.kind, "nominal")  # type: ignore[return-value]

    def units(self, value: Any) -> dict[str, Any]:
        """What two people can agree on, by name: one rating, a rank an item, same or different group a pair of items.

        Free texts give none; ``unsure`` is a missing rating.
        """
        match self.kind:
            case "choice":
                return {"": value if self.plain else value["choice"]}
            case "pair":
                return {"": value["preferred"]}
            case "rating":
                return {"": value["rating"]}
            case "ratings" | "relevance":
                return dict(value["ratings" if self.kind == "ratings" else "relevant"])
            case "ranking":
                return {item: rank for rank, item in enumerate(value["ranking"], 1)}
            case "grouping":
                ids, groups = _ids(self.items), value["groups"]
                return {f"{a}\x1f{b}": groups[a] == groups[b] for n, a in enumerate(ids) for b in ids[n + 1 :]}
            case "spans":
                here: list[Any] = ["-"] * len(self.arguments["text"])
                for span in value["spans"]:
                    here[span["start"] : span["end"]] = [span["label"]] * (span["end"] - span["start"])
                return {str(n): label for n, label in enumerate(here)}
            case "schema":
                known = (self.schema or {}).get("properties", {})
                return {
                    k: v for k, v in value.items() if "enum" in known.get(k, {}) or isinstance(v, (bool, int, float))
                }
        return {}


def read(response_format: Mapping[str, Any] | None) -> Form:
    """The form that a ``response_format`` asks for.

    Raises
    ------
    UsageError
        An unknown type or kind, arguments that the kind does not take, a form whose schema says something else.
    """
    if response_format is None:
        return Form("text", {"lines": 4})
    if not isinstance(response_format, Mapping):
        raise UsageError(f"response_format must be an object with a field 'type', not {response_format!r}.")
    kind, form = response_format.get("type"), response_format.get("form")
    if kind not in ("text", "json_object", "json_schema"):
        raise UsageError(f"response_format has the type {kind!r}; people answer text, json_object and json_schema.")
    schema = None
    if kind == "json_schema":
        described = response_format.get("json_schema")
        schema = described.get("schema") if isinstance(described, Mapping) else None
        if not isinstance(schema, Mapping):
            raise UsageError("response_format of type json_schema lacks the schema (field json_schema.schema).")
    if form is None:
        if kind == "text":
            return Form("text", {"lines": 4})
        if schema is None:
            return Form("json", {}, {"type": "object"})
        whole = _resolved(schema, schema, count())
        if whole is not None and (fault := _unusable(whole)):
            raise UsageError(f"The schema of response_format cannot be used: {fault}.")
        return Form("schema" if whole is not None else "json", {}, whole or {"type": "object"})
    if not isinstance(form, Mapping) or form.get("kind") not in KINDS:
        given = form.get("kind") if isinstance(form, Mapping) else form
        raise unknown_name("kind of form", str(given), KINDS)
    arguments = {k: v for k, v in form.items() if k not in ("kind", "rule")}
    try:
        wanted = KINDS[form["kind"]](**arguments)
    except TypeError as error:
        raise UsageError(f"Form {form['kind']}: {str(error).partition(') ')[2] or error}.") from None
    if wanted["type"] != kind or (schema is not None and wanted["json_schema"]["schema"] != schema):
        raise UsageError(
            f"response_format: the form {form['kind']!r} asks for another answer than what stands beside it."
        )
    return Form(form["kind"], {k: v for k, v in wanted["form"].items() if k != "kind"}, schema)


def ruled(response_format: Mapping[str, Any], rule: str) -> Format:
    """The format, with what the messages say about writing its answer (``Reply with JSON: ...``), word for word."""
    return {**response_format, "form": {**response_format["form"], "rule": rule}}


def for_people(
    messages: Sequence[Mapping[str, Any]], response_format: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Messages without the rule of their form."""
    rule: str | None = ((response_format or {}).get("form") or {}).get("rule")
    if not rule:
        return [dict(m) for m in messages]

    def without(content: Any) -> Any:
        if isinstance(content, str):
            before, _, after = content.rpartition(rule)
            return (before + after).rstrip()
        if isinstance(content, (list, tuple)):
            return [{**p, "text": without(p["text"])} if p.get("type") == "text" else p for p in content]
        return content

    return [{**m, "content": without(m.get("content"))} for m in messages]


def media(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Picture and recording parts of messages, in order: what ``part`` counts."""
    return [
        part
        for message in messages
        if isinstance(message.get("content"), (list, tuple))
        for part in message["content"]
        if part.get("type") in ("image_url", "input_audio")
    ]


def _format(form: Format, properties: Mapping[str, Any]) -> Format:
    schema = _object(properties)
    return {
        "type": "json_schema",
        "json_schema": {"name": form["kind"], "schema": schema, "strict": True},
        "form": form,
    }


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": dict(properties), "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


def _number(low: float, high: float, step: float, unsure: bool) -> dict[str, Any]:
    kind = "integer" if all(float(x).is_integer() for x in (low, step)) else "number"
    return {"type": [kind, "null"] if unsure else kind, "minimum": low, "maximum": high}


def _items(given: Any, kind: str, least: int) -> list[dict[str, Any]]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not least <= len(given) <= MAX_ITEMS:
        raise UsageError(f"Form {kind}: items must be a list of {least} to {MAX_ITEMS}, not {str(given)[:60]!r}.")
    found = []
    for item in given:
        item = {"id": item} if isinstance(item, str) else item
        if not isinstance(item, Mapping) or not isinstance(item.get("id"), str) or not item["id"]:
            raise UsageError(f"Form {kind}: an item is an id or an object with a field 'id', not {str(item)[:60]!r}.")
        if set(item) - _ITEM_FIELDS:
            raise unknown_name(
                f"field of an item of the form {kind}", sorted(set(item) - _ITEM_FIELDS)[0], _ITEM_FIELDS
            )
        for name in ("label", "text"):
            if name in item:
                _text(item[name], kind)
        if "part" in item:
            _part(item["part"], kind)
        found.append(dict(item))
    ids = _ids(found)
    if len(set(ids)) != len(ids):
        double = next(i for i in ids if ids.count(i) > 1)
        raise UsageError(f"Form {kind}: the id {double!r} stands twice; ids must be unique.")
    return found


def _ids(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


def _scale(kind: str, low: Any, high: Any, step: Any, labels: Any, unsure: Any) -> Format:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (low, high, step))
    if not numbers or not low < high or not step > 0 or (high - low) / step > 10_000:
        raise UsageError(f"Form {kind}: a scale from {low!r} to {high!r} in steps of {step!r} is none.")
    form = {"low": low, "high": high, "step": step} | _flag("unsure", bool(unsure))
    if labels:
        if not isinstance(labels, Mapping) or not all(isinstance(v, str) for v in labels.values()):
            raise UsageError(f"Form {kind}: labels must be texts by value, like {{'1': 'bad', '5': 'excellent'}}.")
        form["labels"] = {str(k): v for k, v in labels.items()}
    return form


def _part(part: Any, kind: str) -> int:
    if not _whole(part, 0, 10_000):
        raise UsageError(f"Form {kind}: part is {part!r}, and must be the number of a picture or recording, from 0.")
    return part


def _text(value: Any, kind: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"Form {kind}: {str(value)[:60]!r} must be a text.")
    return value


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _flag(name: str, value: bool) -> Format:
    return {name: True} if value else {}


def _span_fault(span: Mapping[str, Any]) -> str:
    return f"a span from {span['start']} to {span['end']} is empty"


def _resolved(
    schema: Any, root: Mapping[str, Any], steps: Iterator[int], depth: int = 0, inside: frozenset[str] = frozenset()
) -> Any:
    """The schema with its ``$ref`` written out; None where it refers to itself or to elsewhere.

    Raises
    ------
    UsageError
        Written out it would have more than `MAX_PARTS` parts: references to references grow without end.
    """
    if next(steps) > MAX_PARTS:
        raise UsageError(f"The schema of response_format has more than {MAX_PARTS:,} parts with its $ref written out.")
    if depth > 30:
        return None
    if isinstance(schema, list):
        found: Any = [_resolved(s, root, steps, depth + 1, inside) for s in schema]
        return None if any(f is None and s is not None for f, s in zip(found, schema)) else found
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        name, target = str(schema["$ref"]), root
        for step in name.removeprefix("#/").split("/"):
            target = target.get(step) if isinstance(target, Mapping) else None
        if target is None or name in inside:
            return None
        return _resolved(target, root, steps, depth + 1, inside | {name})
    found = {k: _resolved(v, root, steps, depth + 1, inside) for k, v in schema.items() if k != "$defs"}
    return None if any(found[k] is None and schema[k] is not None for k in found) else found


_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZES = ("minItems", "maxItems", "minLength", "maxLength")


def _unusable(schema: Any) -> str | None:
    """Why no answer could be checked by a schema; None = it is sound as far as `schema_fault` reads it."""
    if not isinstance(schema, Mapping):
        return f"{str(schema)[:60]!r} stands where a schema should"
    if "pattern" in schema:
        return "it has a 'pattern', and patterns of others are not run on people's answers"
    kinds = schema.get("type", [])
    for key, sound in (
        ("type", isinstance(kinds, str) or (isinstance(kinds, list) and all(isinstance(k, str) for k in kinds))),
        ("enum", isinstance(schema.get("enum", []), list)),
        ("required", all(isinstance(k, str) for k in _listed(schema.get("required", [])))),
        ("properties", isinstance(schema.get("properties", {}), Mapping)),
        *((k, type(schema[k]) in (int, float)) for k in _NUMBERS if k in schema),
        *((k, _whole(schema[k], 0, 10**12)) for k in _SIZES if k in schema),
    ):  # fmt: skip
        if not sound:
            return f"its field {key!r} is {str(schema[key])[:60]!r}"
    inner = [*schema.get("properties", {}).values(), *(schema[k] for k in ("items",) if k in schema)]
    if not isinstance(schema.get("additionalProperties", False), bool):
        inner.append(schema["additionalProperties"])
    for key in ("anyOf", "oneOf", "allOf"):
        inner += _listed(schema.get(key, []))
    return next((fault for one in inner if (fault := _unusable(one))), None)


def _listed(value: Any) -> list[Any]:
    """A list; of anything else one thing that is none of what is wanted."""
    return value if isinstance(value, list) else [None]
