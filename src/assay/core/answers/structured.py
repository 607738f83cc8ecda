"""JSON in a reply: strictly where it is sound, repaired where it is not, checked against a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from assay.core.answers.extract import blocks
from assay.core.answers.reading import Reading, answer_start

_ATTEMPTS = 200  # a long reply full of lone braces must not cost quadratic time
_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _is_type(value: Any, name: str) -> bool:
    if name in ("integer", "number") and isinstance(value, bool):
        return False
    return isinstance(value, _TYPES.get(name, object))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def schema_fault(value: Any, schema: Mapping[str, Any], where: str = "") -> str | None:
    """First fault of a value by a JSON schema, in words; None when it fits.

    Knows type, enum, const, required, properties, additionalProperties, items, minItems, maxItems, minLength,
    maxLength, pattern, minimum, maximum, exclusiveMinimum, exclusiveMaximum, anyOf, oneOf and allOf.
    """
    place = f"field {where!r}" if where else "the value"
    for branch in schema.get("allOf", ()):
        if fault := schema_fault(value, branch, where):
            return fault
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        faults = [schema_fault(value, option, where) for option in options]
        if all(faults):
            return faults[0]
    types = schema.get("type")
    names = [types] if isinstance(types, str) else list(types or ())
    if names and not any(_is_type(value, name) for name in names):
        return f"{place} is {_shown(value)}, and must be of type {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} is {_shown(value)}, and must be one of {_shown(schema['enum'])}"
    if "const" in schema and value != schema["const"]:
        return f"{place} is {_shown(value)}, and must be {_shown(schema['const'])}"
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for key in schema.get("required", ()):
            if key not in value:
                return f"{place} lacks the key {key!r}"
        for key, item in value.items():
            inner = f"{where}.{key}" if where else key
            if key in properties:
                if fault := schema_fault(item, properties[key], inner):
                    return fault
            elif schema.get("additionalProperties") is False:
                return f"{place} has the key {key!r}, which is not among {sorted(properties)}"
            elif isinstance(rest := schema.get("additionalProperties"), Mapping) and (
                fault := schema_fault(item, rest, inner)
            ):
                return fault
        return None
    if isinstance(value, list):
        return _size_fault(len(value), schema, "Items", f"{place} has {len(value)} items") or next(
            (f for n, item in enumerate(value) if (f := schema_fault(item, schema.get("items", {}), f"{where}[{n}]"))),
            None,
        )
    if isinstance(value, str):
        if fault := _size_fault(len(value), schema, "Length", f"{place} has {len(value)} characters"):
            return fault
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return f"{place} is {_shown(value)}, and must match {schema['pattern']}"
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for key, bad, words in (
            ("minimum", lambda limit: value < limit, "at least"),
            ("maximum", lambda limit: value > limit, "at most"),
            ("exclusiveMinimum", lambda limit: value <= limit, "more than"),
            ("exclusiveMaximum", lambda limit: value >= limit, "less than"),
        ):
            if key in schema and bad(schema[key]):
                return f"{place} is {_shown(value)}, and must be {words} {schema[key]}"
    return None


def _size_fault(size: int, schema: Mapping[str, Any], kind: str, start: str) -> str | None:
    if size < schema.get(f"min{kind}", 0):
        return f"{start}, and must have at least {schema[f'min{kind}']}"
    if size > schema.get(f"max{kind}", size):
        return f"{start}, and must have at most {schema[f'max{kind}']}"
    return None


def _coerced(value: Any, schema: Mapping[str, Any]) -> Any:
    """Scalars in the type that the schema names, where nothing is lost: "5" and 5.0 as 5, "true" as true."""
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {key: _coerced(item, properties.get(key, {})) for key, item in value.items()}
    if isinstance(value, list):
        return [_coerced(item, schema.get("items", {})) for item in value]
    types = schema.get("type")
    names = [types] if isinstance(types, str) else list(types or ())
    if not names or any(_is_type(value, name) for name in names):
        options = schema.get("enum")
        if options and isinstance(value, str) and value not in options:
            fold = {option.strip().casefold(): option for option in options if isinstance(option, str)}
            return fold.get(value.strip().casefold(), value)
        return value
    for name in names:
        if name == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        if name == "boolean" and isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        if name in ("integer", "number") and isinstance(value, str):
            try:
                return int(value) if name == "integer" or value.strip().lstrip("+-").isdigit() else float(value)
            except ValueError:
                continue
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_BRACKET = re.compile(r"[\[\]{}]")
_DEEPEST = 64
"""Levels up to which JSON is repaired: the time that it takes grows with length times depth."""
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _strict(text: str, begin: int, root: tuple[type, ...]) -> Iterator[tuple[Any, tuple[int, int]]]:
    """Sound JSON values of the wanted kind, outermost ones, in order."""
    marks = re.compile("|".join(re.escape("{" if kind is dict else "[") for kind in root))
    for _ in range(_ATTEMPTS):
        match = marks.search(text, begin)
        if match is None:
            return
        try:
            value, end = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            begin = match.end()
            continue
        yield value, (match.start(), end)
        begin = end


def _depth(text: str, start: int, end: int) -> int:
    """How deep brackets are nested at most; those in strings count too."""
    depth = most = 0
    for match in _BRACKET.finditer(text, start, end):
        depth = max(0, depth + (1 if match[0] in "{[" else -1))
        most = max(most, depth)
    return most


def _repaired(text: str, begin: int, root: tuple[type, ...]) -> tuple[Any, tuple[int, int]] | None:
    """What json_repair makes of the last fenced block, else of everything from the first brace on."""
    import json_repair

    spans = [(start, end) for language, start, end, _ in blocks(text, begin) if language in ("json", "")]
    spans = spans[-1:]
    marks = [place for kind in root if (place := text.find("{" if kind is dict else "[", begin)) >= 0]
    if marks:
        spans.append((min(marks), len(text)))
    for start, end in spans:
        if _depth(text, start, end) > _DEEPEST:
            continue
        try:
            value = json_repair.loads(text[start:end], skip_json_loads=True)
        except (ValueError, RecursionError, IndexError):
            continue
        # Prose around several objects comes back as a list: the last one of the wanted kind is meant.
        if isinstance(value, list) and list not in root:
            value = next((item for item in reversed(value) if isinstance(item, root) and item), value)
        if isinstance(value, root) and value:
            return value, (start, end)
    return None


def json_object(text: str | None, schema: Mapping[str, Any] | None = None) -> Reading:
    """Read the JSON object (an array, if the schema says so) in a reply.

    Sound JSON comes first: of several objects the last one that fits the schema. Otherwise the text is repaired (lost
    quotes and brackets, trailing commas, comments, a cut end). ``schema`` is a JSON schema or an OpenAI
    ``response_format`` around one. Scalars of a neighbouring type ("5" for an integer) are taken as meant.

    Returns
    -------
    Reading
        ``value`` None when nothing fits; ``how`` then says what is wrong, in words fit to be quoted to the model.
    """
    if not text or not text.strip():
        return Reading(None, "the reply is empty")
    if schema is not None and "json_schema" in schema:
        schema = schema["json_schema"].get("schema", {})
    schema = schema or {}
    types = schema.get("type", "object")
    names = [types] if isinstance(types, str) else list(types)
    root = tuple(kind for name, kind in (("object", dict), ("array", list)) if name in names) or (dict,)
    begin = answer_start(text)
    fault = None
    for value, span in reversed(list(_strict(text, begin, root))):
        value = _coerced(value, schema)
        problem = schema_fault(value, schema)
        if problem is None:
            return Reading(value, "json", span)
        fault = fault or problem
    if fault is None and (found := _repaired(text, begin, root)):
        value = _coerced(found[0], schema)
        fault = schema_fault(value, schema)
        if fault is None:
            return Reading(value, "repaired json", found[1])
    return Reading(None, fault or "the reply holds no JSON object")
