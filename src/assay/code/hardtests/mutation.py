"""Mutants: programs with one small fault, to score a suite where nobody has labelled wrong programs."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from assay.code.hardtests.suite import TestSuite
    from assay.sandbox import Sandbox

_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_BINARY: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add,), ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.FloorDiv,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,),
}  # fmt: skip
_CPP = (
    (r"<=", "<"), (r">=", ">"), (r"(?<![<>\-])<(?![<=])", "<="), (r"(?<![<>\-])>(?![>=])", ">="), (r"==", "!="),
    (r"!=", "=="), (r"&&", "||"), (r"\|\|", "&&"), (r"\+\+", "--"), (r"(?<![+\-*/%=<>!&|^])\+(?![+=])", "-"),
    (r"(?<![+\-*/%=<>!&|^(,\s])-(?![\-=>])", "+"), (r"\+=", "-="), (r"\blong long\b", "int"), (r"\b0\b", "1"),
    (r"\b1\b", "2"), (r"%(?![a-z=])", "/"),
)  # fmt: skip
_HIDDEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|//[^\n]*|/\*.*?\*/|^\s*#[^\n]*|<[\w./]+>', re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one fault, and where and what it is."""

    code: str
    language: str
    change: str


def mutants(code: str, language: str = "python3") -> list[Mutant]:
    """All mutants of a program, in the order of its text: comparisons, arithmetic, constants, conditions, removals.

    C++ is changed word by word outside texts, comments and includes; a mutant need not compile.

    Raises
    ------
    DataError
        Python source that does not parse.
    """
    made = _cpp(code) if language == "cpp" else _python(code, language)
    return list({mutant.code: mutant for mutant in made}.values())


def _python(code: str, language: str) -> Iterator[Mutant]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as error:
        raise DataError(f"The program cannot be mutated: it does not parse ({error}).") from None
    for place, node in enumerate(ast.walk(tree)):
        for number, what in enumerate(_changes(node)):
            changed = copy.deepcopy(tree)
            twin = next(n for i, n in enumerate(ast.walk(changed)) if i == place)
            _apply(twin, number)
            line = getattr(node, "lineno", 0)
            yield Mutant(ast.unparse(ast.fix_missing_locations(changed)) + "\n", language, f"line {line}: {what}")


def _changes(node: ast.AST) -> list[str]:
    return [what for what, _ in _options(node)]


def _apply(node: ast.AST, number: int) -> None:
    _options(node)[number][1]()


def _options(node: Any) -> list[tuple[str, Any]]:
    """(what, how) of every change of one node."""

    def setting(field: str, value: Any, at: int | None = None) -> Any:
        def change() -> None:
            if at is None:
                setattr(node, field, value)
            else:
                getattr(node, field)[at] = value

        return change

    found: list[tuple[str, Any]] = []
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in _COMPARE.get(type(op), ()):
                found.append((f"{type(op).__name__} to {other.__name__}", setting("ops", other(), i)))
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        for other in _BINARY.get(type(node.op), ()):
            found.append((f"{type(node.op).__name__} to {other.__name__}", setting("op", other())))
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        found.append((f"{type(node.op).__name__} to {other.__name__}", setting("op", other())))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        found.append((f"{node.value} to {not node.value}", setting("value", not node.value)))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        found += [(f"{node.value} to {v}", setting("value", v)) for v in (node.value + 1, node.value - 1) if v >= 0]
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        negated = ast.UnaryOp(ast.Not(), node.test)
        found.append(("condition negated", setting("test", negated)))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        other = "max" if node.func.id == "min" else "min"
        found.append((f"{node.func.id} to {other}", setting("func", ast.Name(other, ast.Load()))))
    for field in ("body", "orelse"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            for i, statement in enumerate(block):
                if isinstance(statement, (ast.AugAssign, ast.Expr, ast.Break, ast.Continue)):
                    found.append((f"{type(statement).__name__} removed", setting(field, ast.Pass(), i)))
    return found


def _cpp(code: str) -> Iterator[Mutant]:
    hidden = [m.span() for m in _HIDDEN.finditer(code)]
    found = []
    for pattern, other in _CPP:
        for match in re.finditer(pattern, code):
            if not any(a < match.end() and match.start() < b for a, b in hidden):
                found.append((match.start(), match.end(), other))
    for start, end, other in sorted(found):
        line = code.count("\n", 0, start) + 1
        yield Mutant(code[:start] + other + code[end:], "cpp", f"line {line}: {code[start:end]} to {other}")


@dataclass(frozen=True, slots=True)
class MutationScore:
    """How many mutants a suite killed. Survivors are equal to the program, or show what the suite does not test.

    ``dead_born`` do not compile and count nowhere.
    """

    killed: int
    survivors: tuple[Mutant, ...]
    dead_born: int

    @property
    def score(self) -> float | None:
        """Share of the mutants that the suite kills; None = no mutant ran."""
        n = self.killed + len(self.survivors)
        return self.killed / n if n else None


def mutation_score(
    suite: TestSuite, code: str, language: str, box: Sandbox, rng: np.random.Generator, *, most: int = 40
) -> MutationScore:
    """Run up to ``most`` mutants of a correct program, drawn without replacement, against a suite."""
    from assay.code.hardtests.verifying import verify

    made = mutants(code, language)
    picked = sorted(rng.choice(len(made), size=min(most, len(made)), replace=False).tolist()) if made else []
    killed, dead, survivors = 0, 0, []
    for i in picked:
        found = verify(suite, made[i].code, language, box=box, until="first")
        if found.killed_by == "compiler":
            dead += 1
        elif found.accepted:
            survivors.append(made[i])
        else:
            killed += 1
    return MutationScore(killed, tuple(survivors), dead)


def mutate_input(given: str, rng: np.random.Generator) -> str:
    """One small change of an input, as CodeContests made tests: a number raised, lowered or re-drawn, words
    exchanged, a character changed, a bit flipped."""
    words = list(re.finditer(r"\S+", given))
    if not words:
        return given
    word = words[int(rng.integers(len(words)))]
    text = word.group()
    kind = int(rng.integers(4))
    if re.fullmatch(r"-?\d{1,18}", text) and kind < 3:
        value = int(text)
        new = str([value + 1, value - 1, value ^ (1 << int(rng.integers(0, 8)))][kind])
    elif kind == 3 and len(words) > 1:
        other = words[int(rng.integers(len(words)))]
        a, b = sorted((word, other), key=lambda m: m.start())
        if a is b:
            return given
        return given[: a.start()] + b.group() + given[a.end() : b.start()] + a.group() + given[b.end() :]
    else:
        i = int(rng.integers(len(text)))
        new = text[:i] + chr(max(33, min(126, ord(text[i]) ^ (1 << int(rng.integers(0, 3)))))) + text[i + 1 :]
    return given[: word.start()] + new + given[word.end() :]
