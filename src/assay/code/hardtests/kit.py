"""Kits: what inputs of a problem are made, checked and judged with; read from replies, and linted."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import DataError

RANGE, STRATIFIED, HACK = "gen_range_based_input", "gen_stratified_input", "gen_hacking_input"
VALIDATE, JUDGE = "validate_input", "output_judging_function"
KINDS = ("LLMGen", "RPGen_SPGen", "HackGen")


@dataclass(frozen=True, slots=True)
class Generator:
    """Python source and the names of its functions that make inputs, in the order of their lines."""

    code: str | None = None
    functions: tuple[str, ...] = ()

    @classmethod
    def of(cls, code: str | None, *prefixes: str) -> Generator:
        """The functions of ``code`` whose names begin with one of ``prefixes``."""
        return cls(code, tuple(name for name in function_names(code or "") if name.startswith(prefixes)))


@dataclass(frozen=True, slots=True)
class Kit:
    """Of one problem: literal inputs, two generators, validator and judge (None = everything valid, default judge)."""

    pid: str
    literal: tuple[str, ...] = ()
    ranged: Generator = field(default_factory=Generator)
    hacking: Generator = field(default_factory=Generator)
    validator: str | None = None
    judge: str | None = None

    @property
    def multi_category(self) -> bool:
        """Whether inputs are stratified by the category of their output."""
        return len(self.ranged.functions) >= 2

    def quota(self, kind: str) -> tuple[int, int]:
        """Inputs wanted and attempts allowed of each function of a kind."""
        return (20, 40) if kind == "RPGen_SPGen" and not self.multi_category else (10, 20)

    def to_row(self) -> dict[str, Any]:
        """As the pipeline writes it."""

        def generator(made: Generator) -> dict[str, Any]:
            return {"code": made.code, "func_names": list(made.functions)}

        return {
            "pid": self.pid,
            "input_generation": {
                "LLMGen_input": list(self.literal),
                "RPGen_SPGen_input_generator": generator(self.ranged),
                "HackGen_input_generator": generator(self.hacking),
            },
            "input_validator": self.validator,
            "output_judging_function": self.judge,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], pid: str = "", where: str = "") -> Kit:
        """From a row of the pipeline or of the published data (generators nested or not).

        Raises
        ------
        DataError
            A field has the wrong type.
        """
        try:
            inner = row.get("input_generation") or row
            ranged = inner.get("RPGen_SPGen_input_generator") or inner.get("RPGen") or inner.get("SPGen")
            literal = inner.get("LLMGen_input", inner.get("LLMGen")) or []
            made = [_generator(part) for part in (ranged, inner.get("HackGen_input_generator", inner.get("HackGen")))]
            if not isinstance(literal, (list, tuple)):
                raise TypeError("LLMGen is not a list")
            texts = [row.get("input_validator"), row.get("output_judging_function")]
            if any(text is not None and not isinstance(text, str) for text in texts):
                raise TypeError("validator and judge are Python sources or null")
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{where or 'A kit'}: not a kit ({error}).") from None
        return cls(row.get("pid") or pid, tuple(map(str, literal)), made[0], made[1], texts[0], texts[1])


def _generator(part: Any) -> Generator:
    if not part:
        return Generator()
    return Generator(part["code"], tuple(part.get("func_names") or ()))


def function_names(code: str) -> list[str]:
    """Names of all plain functions of a source, nested ones too, by line; none where it does not parse."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [node.name for node in sorted(found, key=lambda node: (node.lineno, node.col_offset))]


_FENCE = re.compile(r"```json\s*\n?(.*?)```", re.DOTALL)


def parse_reply(reply: str) -> dict[str, Any]:
    """The object of a reply: after the first "# Result", the longest block labelled json; {} where there is none.

    Control characters inside strings, which models leave raw, are escaped on the second try.
    """
    _, header, tail = reply.partition("# Result")
    blocks = _FENCE.findall(tail) if header else []
    if not blocks:
        return {}
    text = max(blocks, key=len).strip()
    for candidate in (text, _escaped(text)):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _escaped(text: str) -> str:
    """``text`` with the control characters inside JSON strings escaped."""
    return re.sub(
        r'"(?:[^"\\]|\\.)*"',
        lambda string: re.sub(r"[\x00-\x1f]", lambda c: json.dumps(c.group())[1:-1], string.group()),
        text,
        flags=re.DOTALL,
    )


def kit_from_replies(pid: str, validator_reply: str, generator_reply: str) -> Kit | None:
    """A kit from the two replies; None where the first holds no validator entry (the problem is dropped)."""
    checks, makes = parse_reply(validator_reply), parse_reply(generator_reply)
    if "input_validator" not in checks:
        return None
    literal = makes.get("LLMGen_input")
    return Kit(
        pid,
        tuple(map(str, literal)) if isinstance(literal, list) else (),
        Generator.of(_text(makes.get("RPGen_SPGen_input_generator")), RANGE, STRATIFIED),
        Generator.of(_text(makes.get("HackGen_input_generator")), HACK),
        _text(checks.get("input_validator")),
        _text(checks.get("output_judging_function")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def lint(kit: Kit) -> list[str]:
    """What is wrong with a kit, a sentence each; [] = nothing that reading finds.

    Sources parse and import the standard library (and ``testlib``) only, functions are there under their names,
    generators hold no loop that retries for ever.
    """
    found = []
    if not (kit.literal or kit.ranged.functions or kit.hacking.functions):
        found.append("The kit has no literal inputs and no generator functions; nothing can be made with it.")
    parts = [
        ("input_validator", kit.validator, (VALIDATE,)),
        ("output_judging_function", kit.judge, (JUDGE,)),
        ("RPGen_SPGen_input_generator", kit.ranged.code, kit.ranged.functions),
        ("HackGen_input_generator", kit.hacking.code, kit.hacking.functions),
    ]
    for name, code, functions in parts:
        if code is not None:
            found += [f"{name}: {fault}" for fault in _faults(code, functions, generator=name.endswith("generator"))]
    kinds = {RANGE: False, STRATIFIED: False}
    for prefix in kinds:
        kinds[prefix] = any(f.startswith(prefix) for f in kit.ranged.functions)
    if all(kinds.values()):
        found.append("RPGen_SPGen_input_generator: range-based and stratified functions exclude each other.")
    return found


def _faults(code: str, functions: tuple[str, ...], *, generator: bool) -> Iterator[str]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        yield f"does not parse ({error})."
        return
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if generator and not functions:
        yield "has no function with a generator's name."
    for name in functions:
        if name not in there:
            yield f"has no function {name} at its top level."
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        for name in names:
            if name.partition(".")[0] not in sys.stdlib_module_names | {"testlib"}:
                yield f"line {node.lineno} imports {name}, which is not in the standard library."  # type: ignore
        if generator and isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            yield f"line {node.lineno} loops for ever until it is lucky; construct valid inputs instead."
