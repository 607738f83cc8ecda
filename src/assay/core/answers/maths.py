"""Equality of mathematical answers.

Forms that can be compared exactly are compared here (`mathforms`); two expressions are compared by value where they
have one, and by math-verify otherwise. Nothing here sets a signal or a time limit: symbolic algebra can take for ever,
so call it in a process that can be killed (``await ctx.compute(math_equal, a, b, timeout=10)``).

References
----------
Kydlicek, H. Math-Verify: math verification library. https://github.com/huggingface/Math-Verify
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from assay.core.answers.mathforms import UNITS, Form, final_part, normalise, parse
from assay.core.errors import MissingExtra

_MAX_LENGTH = 2000
_DEEPEST = 40
_VALUES = ("number", "expression")
# Sample points for identities; no branch point of common functions lies on them.
_POINTS = (Fraction(37, 53), Fraction(-61, 41), Fraction(139, 71), Fraction(-17, 89))
_TOO_BIG = re.compile(r"\^\s*\{?\s*-?\d{5,}|\^\s*\{[^{}]*\^|\d{5,}\s*!|!\s*!")


_LOG = re.compile(r"\\log(?![a-zA-Z_])(?!\s*_)")


class MathVerdict(NamedTuple):
    """Whether two answers are equal, how that was seen, and what each was read as ('' = nothing was read)."""

    equal: bool
    a_form: str
    b_form: str
    how: str


def math_equal(a: str, b: str, *, tolerance: float = 1e-6) -> bool:
    """Whether two mathematical answers are equal; see `math_compare`."""
    return math_compare(a, b, tolerance=tolerance).equal


def math_compare(a: str, b: str, *, tolerance: float = 1e-6) -> MathVerdict:
    """Compare two mathematical answers (LaTeX or plain text, a bare answer or a reply that ends in one).

    Order matters in tuples, not in sets and bare lists; brackets tell open from closed intervals; ``x < 3`` is
    ``(-inf, 3)``; a name in front ("x =") counts only when both have one; 50 % is 50 and is 0.5; a unit counts only
    when both have one (100 cm is 1 m); letters' case does not count in words.

    Parameters
    ----------
    a, b
        Reference and answer; the comparison is symmetric.
    tolerance
        Relative difference allowed where a number is written as a decimal and is not whole; exact numbers are compared
        exactly.

    Raises
    ------
    MissingExtra
        Two expressions have to be compared and math-verify is not installed.
    """
    forms = []
    for text in (a, b):
        part = final_part(text or "")
        try:
            forms.append(parse(normalise(part)) if len(part) <= _MAX_LENGTH else Form("empty"))
        except RecursionError:
            forms.append(Form("empty"))
    first, second = forms
    if "empty" in (first.kind, second.kind):
        return MathVerdict(False, str(first), str(second), "nothing to compare")
    comparison = _Comparison(tolerance)
    equal = comparison.equal(first, second)
    return MathVerdict(equal, str(first), str(second), comparison.how)


class _Comparison:
    """One comparison; ``how`` tells the strongest tool that was needed."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.exact_tolerance = Fraction(str(tolerance))  # 0.333333 is just within 1e-6 of 1/3
        self.how = "form"

    def equal(self, a: Form, b: Form) -> bool:
        if a.name and b.name and a.name != b.name:
            return False
        a, b = _unwrapped(a), _unwrapped(b)
        if a.name and a.kind in _VALUES and b.kind == "relation" and b.text == "=":
            a = _equation(a)
        elif b.name and b.kind in _VALUES and a.kind == "relation" and a.text == "=":
            b = _equation(b)
        if a.kind == b.kind == "number":
            return self.numbers(a, b)
        kinds = {a.kind, b.kind}
        if kinds == {"list", "number"} and any("," in form.text for form in (a, b) if form.kind == "number"):
            number, many = (a, b) if a.kind == "number" else (b, a)
            return self.unordered(_split_up(number), many.items)
        if kinds <= {"list", "set", "union"} and "union" not in kinds:
            return self.unordered(_distinct(a.items), _distinct(b.items))
        if kinds == {"tuple", "list"} or kinds == {"tuple"}:
            if a.kind == b.kind and len(a.items) == 2 and a.brackets != b.brackets:
                return False
            return self.ordered(a.items, b.items)
        if kinds == {"matrix"}:
            return self.ordered(a.items, b.items)
        if kinds == {"matrix", "tuple"}:
            matrix, vector = (a, b) if a.kind == "matrix" else (b, a)
            return self.ordered(_vector(matrix), vector.items)
        if kinds == {"ratio"}:
            return self.proportional(a.items, b.items)
        if "ratio" in kinds and len((a if a.kind == "ratio" else b).items) == 2:
            ratio, other = (a, b) if a.kind == "ratio" else (b, a)
            up, down = (item.value or Fraction(0) for item in ratio.items)
            return bool(down) and self.equal(Form("number", value=up / down), other)
        if kinds & {"relation", "union", "tuple"} and kinds <= {"relation", "union", "tuple", "list"}:
            return self.regions(a, b)
        if kinds == {"relation", "expression"} or kinds == {"relation", "number"}:
            relation, other = (a, b) if a.kind == "relation" else (b, a)
            return relation.text == "=" and any(self.equal(side, other) for side in relation.items[1:])
        if "text" in kinds and kinds <= {"text", "expression"}:
            return _words(a) == _words(b)
        if kinds == {"text", "number"}:
            text, number = (a, b) if a.kind == "text" else (b, a)
            return bool(text.unit) and text.text.split()[0] == number.text
        if kinds <= {"number", "expression"}:
            return self.expressions(a, b)
        return False

    def numbers(self, a: Form, b: Form) -> bool:
        x, y = a.value, b.value
        if x is None or y is None:
            return False
        if a.unit and b.unit and (a.unit != b.unit):
            factor = _conversion(a.unit, b.unit)
            if factor is None:
                return False
            x *= factor
        if a.percent != b.percent:
            shares = (x / 100, y) if a.percent else (x, y / 100)
            return self.close(x, y, a, b) or self.close(*shares, a, b)
        return self.close(x, y, a, b) or (
            "," in a.text and "," in b.text and self.unordered(_split_up(a), _split_up(b))
        )

    def close(self, x: Fraction, y: Fraction, a: Form, b: Form) -> bool:
        if x == y:
            return True
        if not (a.decimal or b.decimal):
            return False
        scale = max(abs(x), abs(y))
        # Beside a whole number a decimal is a rounding error or a different number, however large both are.
        if x.denominator == 1 or y.denominator == 1:
            scale = min(scale, 1)
        return abs(x - y) <= self.exact_tolerance * scale

    def ordered(self, a: Sequence[Form], b: Sequence[Form]) -> bool:
        return len(a) == len(b) and all(self.equal(x, y) for x, y in zip(a, b))

    def unordered(self, a: Sequence[Form], b: Sequence[Form]) -> bool:
        if len(a) != len(b):
            return False
        left = list(b)
        for item in a:
            place = next((n for n, other in enumerate(left) if self.equal(item, other)), None)
            if place is None:
                return False
            left.pop(place)
        return True

    def proportional(self, a: Sequence[Form], b: Sequence[Form]) -> bool:
        if len(a) != len(b):
            return False
        pairs = [(x.value or Fraction(0), y.value or Fraction(0)) for x, y in zip(a, b)]
        return all(x1 * y2 == x2 * y1 for x1, y1 in pairs for x2, y2 in pairs)

    def regions(self, a: Form, b: Form) -> bool:
        first, second = _region(a), _region(b)
        if first is not None and second is not None:
            return len(first) == len(second) and all(
                p[2:] == q[2:] and self.equal(p[0], q[0]) and self.equal(p[1], q[1]) for p, q in zip(first, second)
            )
        if a.kind == b.kind == "union":
            return self.unordered(a.items, b.items)
        if a.kind == b.kind == "relation":
            if a.text == b.text == "=" and len(a.items) == len(b.items) == 2:
                return self.equations(a, b)
            flipped = (
                b.text.translate(str.maketrans("<>", "><")).replace("le", "GE").replace("ge", "le").replace("GE", "ge")
            )
            turned = " ".join(reversed(flipped.split()))
            return (a.text == b.text and self.ordered(a.items, b.items)) or (
                a.text == turned and self.ordered(a.items, b.items[::-1])
            )
        return False

    def equations(self, a: Form, b: Form) -> bool:
        """Two equations are equal when left minus right is the same up to a constant factor."""
        if self.ordered(a.items, b.items) or self.ordered(a.items, b.items[::-1]):
            return True
        self.how = "equation"
        differences = []
        for form in (a, b):
            left, right = (_expression(item) for item in form.items)
            if left is None or right is None:
                return False
            differences.append(left - right)
        return _constant_ratio(*differences)

    def expressions(self, a: Form, b: Form) -> bool:
        if a.unit and b.unit and a.unit != b.unit and a.unit.rstrip("s") != b.unit.rstrip("s"):
            return False
        if re.sub(r"\s|\\cdot|\*", "", a.text) == re.sub(r"\s|\\cdot|\*", "", b.text) and a.kind == b.kind:
            return True
        if _TOO_BIG.search(a.text) or _TOO_BIG.search(b.text):
            self.how = "too large to evaluate"
            return False
        self.how = "expression"
        x, y = _expression(a), _expression(b)
        if x is None or y is None:
            return _words(a) == _words(b)
        decimal = a.decimal or b.decimal or bool(re.search(r"\d\.\d", a.text + " " + b.text))
        if a.percent != b.percent and _same_value(
            x / 100 if a.percent else x, y if a.percent else y / 100, self._slack(decimal)
        ):
            return True
        same = _same_value(x, y, self._slack(decimal))
        if not same and (_LOG.search(a.text) or _LOG.search(b.text)):
            # log without a base is the common or the natural one, as the field has it: either may be meant.
            natural = [_expression(replace(form, text=_LOG.sub(r"\\ln", form.text))) for form in (a, b)]
            if None not in natural and _same_value(natural[0], natural[1], self._slack(decimal)):
                return True
        if same is not None:
            return same
        self.how = "math-verify"
        return _verified(x, y)

    def _slack(self, decimal: bool) -> float:
        return self.tolerance if decimal else 1e-12


def _unwrapped(form: Form) -> Form:
    while form.kind in ("list", "set") and len(items := _distinct(form.items)) == 1:
        form = items[0]
    return form


def _split_up(number: Form) -> list[Form]:
    """The other reading of "100,200": two numbers."""
    return [Form("number", part, value=Fraction(part)) for part in re.findall(r"\d+", number.text)]


def _equation(form: Form) -> Form:
    """A named form as the equation it was written as."""
    return Form("relation", "=", (Form("expression", form.name), replace(form, name="")))


def _distinct(items: Sequence[Form]) -> list[Form]:
    kept: dict[tuple[str, Any], Form] = {}
    for item in items:
        kept.setdefault((item.kind, item.value if item.kind == "number" else item), item)
    return list(kept.values())


def _vector(matrix: Form) -> Sequence[Form]:
    if len(matrix.items) == 1:
        return matrix.items[0].items
    return [row.items[0] for row in matrix.items] if all(len(row.items) == 1 for row in matrix.items) else ()


def _words(form: Form) -> str:
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", form.text)
    return re.sub(r"[\s.,'’\"$(){}\[\]\\-]+", "", text).casefold()


def _conversion(unit: str, other: str) -> Fraction | None:
    """Factor from one unit to another of its kind (powers too); 1 for units that are not known and read the same."""

    def known(name: str) -> tuple[str, Fraction, int] | None:
        base, _, power = name.partition("^")
        for form in (base, base.removesuffix("s"), base.removesuffix("es")):
            if form in UNITS:
                return (*UNITS[form], int(power or 1))
        return None

    first, second = known(unit), known(other)
    if first and second:
        return (first[1] / second[1]) ** first[2] if first[0] == second[0] and first[2] == second[2] else None
    return (
        Fraction(1)
        if unit.rstrip("s") == other.rstrip("s") or (not (first or second) and unit[:1] == other[:1])
        else None
    )


_MINUS_INFINITY = Form("expression", r"-\infty")
_INFINITY = Form("expression", r"\infty")


def _is_infinite(form: Form) -> bool:
    return form.kind == "expression" and form.text.replace(" ", "").lstrip("+-") == r"\infty"


def _region(form: Form) -> list[tuple[Form, Form, bool, bool]] | None:
    """A region of the line as sorted intervals (low, high, low open, high open); None when it is none that is plain."""
    if form.kind == "tuple":
        if len(form.items) != 2 or form.brackets not in ("()", "[]", "(]", "[)"):
            return None
        low, high = form.items
        return [(low, high, form.brackets[0] == "(", form.brackets[1] == ")")]
    if form.kind in ("union", "list"):
        parts = [_region(item) for item in form.items]
        if any(part is None for part in parts):
            return None
        joined = [piece for part in parts if part is not None for piece in part]
        if form.kind == "list" and not all(item.kind == "relation" for item in form.items):
            return None
        keyed = [(_line_place(piece[0]), piece) for piece in joined]
        if any(place is None for place, _ in keyed):
            return joined
        return [piece for _, piece in sorted(keyed, key=lambda pair: pair[0] or 0.0)]
    if form.kind != "relation":
        return None
    signs, sides = form.text.split(), form.items
    if len(signs) == 1 and signs[0] in ("<", r"\le") and re.fullmatch(r"\|\s*[a-zA-Z]\s*\|", sides[0].text):
        bound = sides[1]
        if bound.kind == "number" and bound.value is not None and bound.value > 0:
            return [(replace(bound, value=-bound.value), bound, signs[0] == "<", signs[0] == "<")]
    variables = [
        n for n, side in enumerate(sides) if side.kind == "expression" and re.fullmatch(r"\\?[a-zA-Z]+", side.text)
    ]
    variables = [n for n in variables if not _is_infinite(sides[n]) and sides[n].text not in (r"\pi", "e")]
    if len(variables) != 1:
        return None
    at = variables[0]
    if signs == [r"\ne"]:
        bound = sides[1 - at]
        return [(_MINUS_INFINITY, bound, True, True), (bound, _INFINITY, True, True)]
    low, high, low_open, high_open = _MINUS_INFINITY, _INFINITY, True, True
    for n, sign in enumerate(signs):
        if sign not in ("<", ">", r"\le", r"\ge") or at not in (n, n + 1):
            return None
        bound, upper = (sides[n + 1], sign in ("<", r"\le")) if at == n else (sides[n], sign in (">", r"\ge"))
        if upper:
            high, high_open = bound, sign in "<>"
        else:
            low, low_open = bound, sign in "<>"
    return [(low, high, low_open, high_open)]


def _line_place(form: Form) -> float | None:
    if _is_infinite(form):
        return float("-inf") if "-" in form.text else float("inf")
    if form.value is not None:
        return float(form.value)
    expression = _expression(form)
    try:
        return float(expression) if expression is not None else None
    except TypeError:
        return None


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        import math_verify
        import math_verify.grader
        import math_verify.parser
    except ImportError:
        raise MissingExtra("Comparing mathematical expressions", "cost_of_pass") from None
    # Both warn once that no signal will end them: here that is the intention.
    math_verify.parser.TIMEOUT_WARNING_SHOWN = True
    math_verify.grader.TIMEOUT_WARNING_SHOWN = True
    return math_verify


@lru_cache(maxsize=512)
def _parsed(text: str) -> Any:
    library = _library()
    if not _balanced(text):  # the parser takes seconds to find out
        return None
    # LaTeX only: the reader of plain expressions would evaluate them as Python.
    found = library.parse(
        f"${text}$",
        extraction_config=[library.LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    return found[0] if found else None


def _balanced(text: str) -> bool:
    """Whether brackets close, up to a sane depth; half-open intervals are told before."""
    depth = 0
    for bracket in re.findall(r"[(\[{)\]}]", text):
        depth += 1 if bracket in "([{" else -1
        if not 0 <= depth <= _DEEPEST:
            return False
    return depth == 0


def _expression(form: Form) -> Any:
    """The form as a SymPy expression; None when it is none."""
    import sympy

    _library()
    if form.kind == "number" and form.value is not None:
        return sympy.Rational(form.value.numerator, form.value.denominator)
    if form.kind != "expression":
        return None
    text = re.sub(r"(\d+(?:\.\d+)?|\\theta|[a-z])\s*\^\{\\circ\}", r"{\\frac{\1 \\pi}{180}}", form.text)
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"(?<![a-zA-Z}\d])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}", r"(\1+\\frac{\2}{\3})", text).replace(
        "*", r"\cdot "
    )
    result = _parsed(text)
    return result if isinstance(result, sympy.Expr) else None


def _numeric(expression: Any) -> complex | None:
    try:
        value = complex(expression.evalf(20))
    except (TypeError, ValueError, AttributeError, OverflowError):
        return None
    return value if abs(value) < float("inf") else None


def _near(x: complex, y: complex, slack: float) -> bool:
    return abs(x - y) <= slack * max(abs(x), abs(y)) or abs(x - y) <= 1e-15


def _same_value(x: Any, y: Any, slack: float) -> bool | None:
    """Whether two expressions have the same value (at sample points where they have variables); None = cannot tell."""
    if x == y:
        return True
    symbols = sorted(x.free_symbols | y.free_symbols, key=str)
    if not symbols:
        first, second = _numeric(x), _numeric(y)
        return None if first is None or second is None else _near(first, second, slack)
    if x.free_symbols != y.free_symbols and len(x.free_symbols) == len(y.free_symbols):
        return None
    agreed = differed = 0
    for n in range(len(_POINTS)):
        values = {symbol: _POINTS[(n + m) % len(_POINTS)] for m, symbol in enumerate(symbols)}
        first, second = (_numeric(_at(e, values)) for e in (x, y))
        if first is None or second is None:
            continue
        near = _near(first, second, max(slack, 1e-12))
        agreed, differed = agreed + near, differed + (not near)
    # Branches (roots, logarithms) may part at some points only: then algebra has to tell.
    if (agreed > 0) == (differed > 0):
        return None
    return differed == 0 and agreed >= 2


def _at(expression: Any, values: dict[Any, Fraction]) -> Any:
    import sympy

    return expression.subs({symbol: sympy.Rational(v.numerator, v.denominator) for symbol, v in values.items()}).doit()


def _constant_ratio(x: Any, y: Any) -> bool:
    symbols = sorted(x.free_symbols | y.free_symbols, key=str)
    if x.free_symbols != y.free_symbols or not symbols:
        return False
    ratios = []
    for n in range(len(_POINTS)):
        values = {symbol: _POINTS[(n + m) % len(_POINTS)] for m, symbol in enumerate(symbols)}
        first, second = (_numeric(_at(e, values)) for e in (x, y))
        if first is None or second is None or abs(second) < 1e-12 or abs(first) < 1e-12:
            continue
        ratios.append(first / second)
    return len(ratios) >= 3 and all(_near(ratio, ratios[0], 1e-9) for ratio in ratios)


def _verified(x: Any, y: Any) -> bool:
    library = _library()
    return library.verify(x, y, timeout_seconds=None) or library.verify(y, x, timeout_seconds=None)
