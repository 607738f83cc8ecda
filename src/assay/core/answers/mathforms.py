"""Mathematical answers as forms: numbers, sequences, intervals, relations; what is left is an expression in LaTeX."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from assay.core.answers.extract import ANSWER_MARKERS, after_marker, boxes, brace_pairs
from assay.core.answers.reading import answer_start


@dataclass(frozen=True, slots=True)
class Form:
    """One parsed answer.

    ``kind``: ``number`` (exact ``value``; ``decimal`` when written with a fractional part), ``list`` (bare, unordered),
    ``set``, ``tuple`` (ordered, with its ``brackets``), ``union``, ``matrix`` (items are rows), ``relation`` (items are
    sides, ``text`` the signs), ``ratio``, ``text``, ``expression`` (``text`` is LaTeX), ``empty`` (nothing was read).
    """

    kind: str
    text: str = ""
    items: tuple[Form, ...] = ()
    value: Fraction | None = None
    decimal: bool = False
    percent: bool = False
    unit: str = ""
    name: str = ""
    brackets: str = "()"

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.items))
        match self.kind:
            case "number":
                value = self.value if not self.decimal else float(self.value or 0)
                shown = f"{value}{'%' if self.percent else ''}{' ' + self.unit if self.unit else ''}"
            case "list":
                shown = inner
            case "set":
                shown = f"{{{inner}}}"
            case "tuple":
                shown = f"{self.brackets[0]}{inner}{self.brackets[1]}"
            case "union":
                shown = " ∪ ".join(map(str, self.items))
            case "matrix":
                shown = f"[{'; '.join(str(row)[1:-1] for row in self.items)}]"
            case "relation":
                shown = "".join(f"{item} {sign} " for item, sign in zip(self.items, [*self.text.split(), ""])).strip()
            case "ratio":
                shown = ":".join(map(str, self.items))
            case _:
                shown = self.text
        return f"{self.name} = {shown}" if self.name else shown


_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n"))
_SIGNS = {
    "−": "-", "–": "-", "—": "-", "﹣": "-", "－": "-", "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∗": "*",
    "÷": "/",
    "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^{\circ}", "±": r"\pm ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "φ": r"\phi ",
    "λ": r"\lambda ", "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "…": "...", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "ℝ": r"\mathbb{R}", "⟨": r"\langle ",
    "⟩": r"\rangle ", "％": r"\%",
}  # fmt: skip
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_REWRITES = [
    (re.compile(pattern), into)
    for pattern, into in (
        (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|q?quad)(?![a-zA-Z])|\\[,!;:]", " "),
        (r"(?<!\\)\\ |~", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\leqslant|\\leq(?![a-zA-Z])|<=|=<", r"\\le "),
        (r"\\geqslant|\\geq(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\neq(?![a-zA-Z])|!=", r"\\ne "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\(?:varnothing|O)(?![a-zA-Z])", r"\\emptyset"),
        (r"\\(?:degree|degrees)(?![a-zA-Z])|\^\\circ|\^\{\s*\\circ\s*\}|\^o\b", r"^{\\circ}"),
        (r"\{,\}", ","),
        (r"\\langle(?![a-zA-Z])", "("),
        (r"\\rangle(?![a-zA-Z])", ")"),
        (r"\*\*", "^"),
        (r"\\(?:math(?:rm|it|bf|sf)|boldsymbol|operatorname|[mh]box|text(?:rm|bf|it)|rm|bf)(?=\s*\{)", r"\\text"),
        (r"(?<![\\a-zA-Z])(?:infinity|inf|oo)(?![a-zA-Z])", r"\\infty "),
        (r"(?<![\\a-zA-Z])pi(?![a-zA-Z])", r"\\pi "),
        (r"(?<![\\a-zA-Z])(arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|ln|log|exp)(?=[\s(^_\d]|[a-z]?$)", r"\\\1 "),
        (r"\\(frac|binom)\s*(\d)\s*(\d)(?!\d)", r"\\\1{\2}{\3}"),
        (r"\\(frac)\s*(\d)\s*\{", r"\\\1{\2}{"),
        (r"(\\frac\s*\{[^{}]*\})\s*([0-9a-zA-Z])", r"\1{\2}"),
        (r"\\sqrt\s*([0-9a-zA-Z])", r"\\sqrt{\1}"),
        (r"\^\s*(-?\d+)(?!\d)", r"^{\1}"),
        (r"\^\s*\((-?[^()]+)\)", r"^{\1}"),
        (r"(?<=\d)\s*(?:\\times|\\cdot|[x*])\s*10\s*\^", r"\\times 10^"),
    )
]  # fmt: skip
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_SPACES = re.compile(r"\s+")
_ROOT_CALL = re.compile(r"(?:√|(?<![\\a-zA-Z])(?:sqrt|cbrt))\s*(\()?")


def normalise(text: str) -> str:
    """One way of writing: ASCII signs, no spacing commands, braces where LaTeX lets them be left out."""
    text = _SIGN.sub(lambda match: _SIGNS[match[0]], text)
    text = _RAISED.sub(lambda match: "^{" + "".join(_SUPERSCRIPTS[c] for c in match[0]) + "}", text)
    text = _rewrite_roots(text)
    for pattern, into in _REWRITES:
        text = pattern.sub(into, text)
    text = _SPACES.sub(" ", text).strip()
    return _strip_wrapping(text)


def _rewrite_roots(text: str) -> str:
    """sqrt(x), cbrt(x) and √x as LaTeX."""
    while match := _ROOT_CALL.search(text):
        head = r"\sqrt[3]" if "cbrt" in match[0] else r"\sqrt"
        if match[1] is None:
            rest = re.match(r"\s*(\d+(?:\.\d+)?|[a-zA-Z]|\{)", text[match.end() :])
            if rest is None or rest[1] == "{":
                body, end = "", match.end()
                text = text[: match.start()] + head + text[match.end() :]
                continue
            body, end = rest[1], match.end() + rest.end()
        else:
            depth, end = 1, match.end()
            while end < len(text) and depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            body = text[match.end() : end - (depth == 0)]
        text = f"{text[: match.start()]}{head}{{{body}}}{text[end:]}"
    return text


def _strip_wrapping(text: str) -> str:
    """Without math delimiters, emphasis and closing punctuation around the whole."""
    while True:
        before = text
        text = text.strip().strip("`").strip()
        for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("{", "}")):
            if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
                inner = text[len(opening) : -len(closing)]
                if opening == "{" and brace_pairs(text).get(0) != len(text) - 1:
                    continue
                if opening[0] == "$" and "$" in inner.replace(r"\$", ""):
                    continue
                text = inner
        if text.endswith((".", ",", ";", "。")) and not text.endswith("..."):
            text = text[:-1]
        if text == before:
            return text


_CONNECTORS = ("and", "or", "so", "then", "thus", "therefore", "hence")


_COPULA = re.compile(r"\b(?:is|are|be|equals|gives)\s+")


def _conclusion(text: str) -> str | None:
    """What prose ends in when nothing else marks it ("Therefore the sum is 12"); None when it is no such prose."""
    ends = [match.span() for match in _COPULA.finditer(text)]
    if not ends or len(text[: ends[-1][0]].split()) < 2:
        return None
    result = text[ends[-1][1] :].strip().rstrip(".")
    return result if len(result) <= 48 and re.search(r"\d", result) else None


def final_part(text: str) -> str:
    """The part of a reply that holds its mathematical answer: the last box (boxes side by side are one answer), what
    follows "answer is", the last formula, else all of it."""
    text = text[answer_start(text) :].strip()
    found = boxes(text)
    if found:
        parts = [found[-1]]
        for piece in reversed(found[:-1]):
            between = text[piece[1][1] : parts[0][1][0]]
            if not re.fullmatch(
                r"\}?\s*\$*\s*(?:,|;|and|or|,\s*and|,\s*or|\s)\s*\$*\s*\\(?:boxed|fbox)\s*\{?\s*", between
            ):
                break
            parts.insert(0, piece)
        return ", ".join(value for value, _ in parts)
    marked = after_marker(text, ANSWER_MARKERS)
    if marked.read:
        text = str(marked.value)
    formulas = list(re.finditer(r"(?<!\\)\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", text, re.DOTALL))
    if formulas:
        outside = re.sub(r"(?<!\\)\$\$?[^$]+\$\$?|\\\(.+?\\\)|\\\[.+?\\\]", " ", text, flags=re.DOTALL)
        words = re.findall(r"[A-Za-z]{2,}", outside)
        if words and all(word.lower() in _CONNECTORS for word in words):
            return ", ".join(next(group for group in formula.groups() if group) for formula in formulas)
        if len(words) > 2 or marked.read:
            return next(group for group in formulas[-1].groups() if group)
    return (None if formulas else _conclusion(text)) or text


UNITS: dict[str, tuple[str, Fraction]] = {}
for _dimension, _names in {
    "length": {"mm": "1/1000", "millimeter": "1/1000", "cm": "1/100", "centimeter": "1/100", "m": "1", "meter": "1",
               "metre": "1", "km": "1000", "kilometer": "1000", "kilometre": "1000", "inch": "127/5000",
               "in": "127/5000", "inches": "127/5000", "foot": "381/1250", "feet": "381/1250", "ft": "381/1250",
               "yard": "1143/1250", "mile": "201168/125"},
    "mass": {"mg": "1/1000", "g": "1", "gram": "1", "kg": "1000", "kilogram": "1000"},
    "time": {"second": "1", "sec": "1", "s": "1", "minute": "60", "min": "60", "hour": "3600", "hr": "3600",
             "h": "3600", "day": "86400", "week": "604800"},
    "volume": {"ml": "1/1000", "milliliter": "1/1000", "l": "1", "liter": "1", "litre": "1"},
    "money": {"$": "1", "dollar": "1", "usd": "1", "cent": "1/100", "¢": "1/100"},
    "angle": {"degree": "1", "°": "1"},
}.items():  # fmt: skip
    UNITS.update({name: (_dimension, Fraction(size)) for name, size in _names.items()})

_UNIT_WORD = (
    r"(?:square|cubic|sq|cu)?\.?\s*[A-Za-z]+(?:\s*(?:/|per)\s*[A-Za-z]+)?(?:\s*\^\s*\{?\d\}?)?"
    r"(?:\s+(?:of\s+)?[a-z]+){0,3}"
)
_UNIT_TAIL = re.compile(
    rf"\s*(?:\\text\s*\{{\s*(?P<tex>[^{{}}]+?)\s*\}}(?:\s*\^\s*\{{?\d\}}?)?|(?P<circle>\^\{{\\circ\}})|(?P<word>{_UNIT_WORD}))$"
)
_KNOWN_SHORT = {
    "m",
    "g",
    "s",
    "h",
    "l",
    "cm",
    "mm",
    "km",
    "kg",
    "mg",
    "ml",
    "ft",
    "in",
    "min",
    "hr",
    "sec",
    "mph",
    "kph",
    "units",
    "usd",
    "am",
    "pm",
}
_LITERAL = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<money>\\?\$)?\s*(?P<body>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+|\d+\.?\d*|\.\d+)"
    r"(?:(?P<repeat>\\overline\s*\{\d+\})|\s*(?:[eE](?P<exp>[-+]?\d+)|\\times 10\^\{(?P<power>-?\d+)\}))?"
)
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)\s*(?:(?P<whole>\d+)\s*(?:\\frac\s*\{\s*(?P<up>\d+)\s*\}\s*\{\s*(?P<down>\d+)\s*\}|\s+(?P<up2>\d+)\s*/\s*(?P<down2>\d+))"
    r"|\\frac\s*\{\s*(?P<up3>-?\d+(?:\.\d+)?)\s*\}\s*\{\s*(?P<down3>-?\d+(?:\.\d+)?)\s*\}|(?P<up4>\d+(?:\.\d+)?)\s*/\s*(?P<down4>-?\d+(?:\.\d+)?))"
)
_MAX_POWER = 5000


def parse_number(text: str) -> Form | None:
    """A literal: integer, decimal, fraction, mixed number, power of ten, repeating decimal. None if it is none."""
    if match := _FRACTION.fullmatch(text):
        sign = -1 if match["sign"] == "-" else 1
        up = Fraction(next(match[name] for name in ("up", "up2", "up3", "up4") if match[name]))
        down = Fraction(next(match[name] for name in ("down", "down2", "down3", "down4") if match[name]))
        if down == 0:
            return None
        return Form("number", text, value=sign * (int(match["whole"] or 0) + up / down))
    if not (match := _LITERAL.fullmatch(text)):
        return None
    body = match["body"].replace(",", "").replace(" ", "")
    value = Fraction(body if not body.endswith(".") else body[:-1])
    decimal = "." in body and not body.endswith(".")
    if match["repeat"]:
        digits = re.sub(r"\D", "", match["repeat"])
        places = len(body.partition(".")[2])
        value += Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)
        decimal = False
    exponent = int(match["exp"] or match["power"] or 0)
    if abs(exponent) > _MAX_POWER:
        return None
    value *= Fraction(10) ** exponent
    if match["sign"] == "-":
        value = -value
    return Form(
        "number", text, value=value, decimal=decimal and value.denominator != 1, unit="$" if match["money"] else ""
    )


def _split(text: str, separators: str) -> list[str]:
    """Split at separators that stand in no bracket."""
    parts, depth, start, place = [], 0, 0, 0
    while place < len(text):
        character = text[place]
        if character == "\\" and place + 1 < len(text):
            if text[place + 1] in "{}":
                depth += 1 if text[place + 1] == "{" else -1
            place += 2
            continue
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth == 0 and character in separators:
            parts.append(text[start:place])
            start = place + 1
        place += 1
    return [*parts, text[start:]]


_CONJUNCTION = re.compile(
    r",?\s*(?:\\text\s*\{\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|vee|land)(?![a-zA-Z]))\s*"
)
_NAME = re.compile(
    r"\s*(?P<name>\\?[A-Za-z]+(?:_\{?\w+\}?)?'?(?:\s*\(\s*[a-z](?:\s*,\s*[a-z])*\s*\))?)\s*(?:=|\\in(?![a-zA-Z])|:=)\s*(?=\S)"
)
_RELATION = re.compile(r"\\(?:le|ge|ne)(?![a-zA-Z])|[<>=]")
_MATRIX = re.compile(
    r"\\begin\s*\{(?P<kind>[pbvBV]?(?:small)?matrix|array)\}(?:\s*\{[lcr|]+\})?(?P<body>.*)\\end\s*\{(?P=kind)\}",
    re.DOTALL,
)
_BASED = re.compile(r"(?P<digits>[0-9A-Fa-f]+)_\{?(?P<base>\d+)\}?")
_THOUSANDS = re.compile(r"[-+]?\\?\$?\s*\d{1,3}(?:,\d{3})+(?:\.\d+)?\s*\\?%?(?:\s*(?:\\text\s*\{.*\}|[a-zA-Z ]+))?")
_EMPTY = {
    r"\emptyset",
    r"\{\}",
    r"\{ \}",
    "no solution",
    "no solutions",
    "none",
    "empty set",
    "no real solutions",
    "no real solution",
}


_ALL_REALS = {r"\mathbb{r}", "all real numbers", "all reals", "the real numbers"}
_NAMES = re.compile(r"\(\s*[a-zA-Z](?:\s*,\s*[a-zA-Z])+\s*\)\s*=\s*(?=\()")


def parse(text: str) -> Form:
    """Form of a normalised answer."""
    if text.endswith(("...", r"\ldots", r"\dots")) and (form := parse_number(text.removesuffix("..."))):
        return form
    text = _NAMES.sub("", _strip_wrapping(text), count=1)
    if not text:
        return Form("empty")
    if form := parse_number(text):
        return form
    plain = _TEXT.sub(lambda match: match[1], text).strip()
    if plain.casefold() in _ALL_REALS:
        return parse(r"(-\infty,\infty)")
    if plain.casefold().strip(".") in _EMPTY:
        return Form("set")
    if not _THOUSANDS.fullmatch(text):
        parts = [part for chunk in _CONJUNCTION.split(text) for part in _split(chunk, ",;")]
        if len(parts) > 1:
            items = [parse(part.strip()) for part in parts if part.strip()]
            if items and not all(item.kind == "text" for item in items):
                return _named_list(items) if len(items) > 1 else items[0]
            return Form("list", text, tuple(items))
    if (match := _NAME.match(text)) and not _RELATION.search(text[match.end() :].rpartition("=")[2]):
        rest = text[match.end() :].rpartition("=")[2] if "=" in text[match.end() :] else text[match.end() :]
        inner = parse(rest.strip())
        if inner.kind not in ("empty", "text"):
            return replace(inner, name=_plain_name(match["name"]))
    if r"\pm" in text and text.count(r"\pm") == 1:
        return Form("list", text, (parse(text.replace(r"\pm", "+").lstrip(" +")), parse(text.replace(r"\pm", "-"))))
    if form := _bracketed(text):
        return form
    if match := _MATRIX.fullmatch(text):
        rows = [row for row in re.split(r"\\\\", match["body"]) if row.strip()]
        return Form(
            "matrix", text, tuple(Form("tuple", items=tuple(parse(c.strip()) for c in _split(r, "&"))) for r in rows)
        )
    if (
        (signs := _RELATION.findall(text))
        and len(sides := [side.strip() for side in _RELATION.split(text)]) <= 4
        and all(sides)
    ):
        return Form("relation", " ".join(signs), tuple(parse(side) for side in sides))
    return _scalar(text, plain)


def _named_list(items: list[Form]) -> Form:
    """A list; one name in front of it ("x = 1, 2") is the name of all."""
    name = items[0].name if items[0].name and not any(item.name for item in items[1:]) else ""
    return Form("list", items=tuple(replace(item, name=name) if name else item for item in items))


def _plain_name(name: str) -> str:
    name = re.sub(r"[\\{}\s]", "", name)
    return "y" if re.fullmatch(r"[a-zA-Z]\([a-z]\)", name) else name


def _bracketed(text: str) -> Form | None:
    """Sets, tuples, intervals and unions of them."""
    unions = re.split(r"\\cup(?![a-zA-Z])|(?<=[)\]}])\s*[U∪]\s*(?=[(\[\\])", text)
    if len(unions) > 1 and all(part.strip() for part in unions):
        return Form("union", text, tuple(parse(part.strip()) for part in unions))
    if text.startswith(r"\{") and text.endswith(r"\}"):
        opening, inner, closing = "{", text[2:-2], "}"
    elif text[0] in "([{]" and text[-1] in ")]}[" and len(text) > 2:
        opening, inner, closing = text[0], text[1:-1], text[-1]
        if opening == "]" and closing != "[" and closing != "]":
            return None
        opening, closing = {"]": "("}.get(opening, opening), {"[": ")"}.get(closing, closing)
    else:
        return None
    depth = 0
    for character in inner:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if depth < 0:
            return None
    parts = [part.strip() for part in _split(inner, ",;")]
    if opening == "{":
        if "|" in inner or re.search(r"\\mid|:", inner):  # {x | 1 < x < 2}: the condition is what counts
            condition = re.split(r"\\mid|\||:", inner, maxsplit=1)[1]
            return parse(condition.strip())
        return Form("set", text, tuple(parse(part) for part in parts if part))
    if len(parts) == 1:
        return parse(parts[0]) if opening + closing in ("()", "[]") and parts[0] else None
    return Form("tuple", text, tuple(parse(part) for part in parts if part), brackets=opening + closing)


_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")


def _scalar(text: str, plain: str) -> Form:
    """A number with per cent or unit, a ratio, words, or an expression."""
    if match := re.fullmatch(
        r"(.+?)\s*(?:\\?%|\\?\s*\\text\s*\{\s*(?:%|\\%|percent)\s*\}|\s*percent|\s+per\s+cent)", text
    ):
        inner = parse(match[1])
        return replace(inner, percent=True) if inner.kind in ("number", "expression") else inner
    if match := re.fullmatch(r"(-?)\s*\\?\$\s*(.+)", text):
        inner = parse(match[1] + match[2])
        return replace(inner, unit="$") if inner.kind in ("number", "expression") else inner
    if match := _UNIT_TAIL.search(text):
        head = text[: match.start()].strip()
        unit = match["tex"] or match["word"] or "degree"
        known = bool(match["tex"] or match["circle"]) or len(unit) > 3 or "/" in unit or unit.lower() in _KNOWN_SHORT
        if head and known and not head.endswith(("\\", "_", "^", "{")) and (number := parse_number(head)):
            return replace(number, text=text, unit=_unit_name(text[match.start() :]))
        if _ANGLE_FUNCTION.search(head):  # the degrees of cos 60 degrees are the angle's
            return Form("expression", text)
        if (
            head
            and (match["tex"] or match["circle"])
            and re.search(r"[\d\\]", head)
            and (match["circle"] or len(unit) > 1)
        ):
            inner = parse(head)
            if inner.kind in ("number", "expression"):
                return replace(inner, unit=_unit_name(text[match.start() :]))
    if match := _BASED.fullmatch(text):
        return Form("text", f"{match['digits']} in base {match['base']}", unit=match["base"])
    sides = [side.strip() for side in text.split(":")]
    if 2 <= len(sides) <= 4 and all(parse_number(side) for side in sides):
        return Form("ratio", text, tuple(parse(side) for side in sides))
    if re.fullmatch(r"[A-Za-z][A-Za-z'’.\- ]*", plain) and (len(plain) > 3 or plain != text or " " in plain):
        return Form("text", " ".join(plain.replace("-", " ").split()))
    return Form("expression", text)


def _unit_name(text: str) -> str:
    text = _TEXT.sub(lambda match: match[1], text)
    text = text.replace(r"^{\circ}", "degree")
    text = re.sub(r"\bsquare\s+(\w+)|\bsq\.?\s*(\w+)", lambda m: f"{m[1] or m[2]}^2", text)
    text = re.sub(r"\bcubic\s+(\w+)|\bcu\.?\s+(\w+)", lambda m: f"{m[1] or m[2]}^3", text)
    text = re.sub(r"[{}\s]", "", text).casefold()
    return "degree" if text in ("degrees", "°", "deg") else text
