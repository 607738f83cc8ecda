"""Choice letters: which option a reply names, however it is wrapped.

The reader goes from the strongest sign to the weakest: the reply is nothing but a letter; a statement ("the answer is
B", a box, an answer tag, a line of its own), of which the last one counts; a letter at the very start; the only letter
that is wrapped; the only choice whose text occurs; the only capital. A refused letter ("not B", "B is wrong") is no
sign, and two different letters in one statement leave the reply unread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from assay.core.answers.reading import Reading, answer_start, plain_letters

# What may stand around a letter: quotes, brackets, Markdown, TeX.
_TEX = r"\\(?:boxed|fbox|mbox|text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|sf|it|bb)|bf|rm|left|displaystyle|[,;! ])(?![a-z])"
_BEFORE = rf"(?:[*_`~$(\[{{\"'“”‘«「『【（《<]|{_TEX}|\\[(\[{{])"
_AFTER = r"(?:[*_`~$)\]}\"'”’»」』】）》>]|\\[)\]}]|\\right(?![a-z]))"
_OPEN = rf"(?:[\s|#:]|{_BEFORE})*+"
_LINE_OPEN = rf"(?:[ \t|#:]|{_BEFORE})*+"  # stays on its line: many blank lines must not cost quadratic time
_CLOSE = rf"(?:[ \t|.,:;!?。，：；！？]|{_AFTER})*+"
# Words and marks that may stand between "the answer is" and the letter; a refusal among them is seen afterwards.
_FILLERS = (
    r"(?:(?:therefore|thus|hence|so|then|clearly|definitely|certainly|obviously|most|likely|probably|indeed|simply|just"
    r"|only|the|us|me|with|option|choice|letter|answer|number|one|correct|best|right|final|given|by|here|as|follows"
    r"|in|fact|actually|not|never|opción|opção|lettre|Buchstabe|la|le|die|вариант)\b"
    rf"|n['’]t\b|选项|選項|选|選|是|为|為|[\s,:：]++|{_BEFORE}){{0,24}}+"
)
_NOUNS = (
    r"(?:\b(?:answers?|ans|solution|choice|option|selection|response|conclusion|verdict|guess|pick|final|letter|Antwort"
    r"|Lösung|respuesta|r[ée]ponse|resposta|risposta|antwoord|jawaban|cevap|odpowied[źz]|svar|ответ)\b"
    r"|答案|答|正解|回答|選択肢|정답|답)"
)
_OF = r"(?:\s+(?:to|for|of)\s+(?:the|this|that|your)\s+(?:\w+\s+)?(?:question|problem|task|puzzle|item|quiz|riddle))?+"
_LINK = (
    r"(?:\b(?:is|was|are|ist|lautet|es|est|é|è|(?:would|should|must|will|could|might|may|can\s+only|has\s+to|seems\s+to"
    r"|appears\s+to)(?:\s+\w+)?\s+be)\b|(?:is|was)(?=n['’]t)|[:：=]|->|=>|→|⇒|-|–|—|是|为|為|は|은|는)"
)
_VERBS = (
    r"(?:cho(?:ose|osing|se)|pick(?:ed|ing)?|select(?:ed|ing)?|go(?:ing)?\s+(?:with|for)|went\s+with|opt(?:ed|ing)?\s+for"
    r"|vote\s+for|settle\s+on|decided?\s+on|conclude|leav(?:es|ing)|it\s*['’]\s*s|it\s+is(?:n['’]t)?|that\s*['’]\s*s|must\s+be"
    r"|should\s+be|i\s+(?:would\s+)?(?:say|think|believe)|i['’]d\s+say|lean(?:ing)?\s+to(?:wards?)?|so|thus|therefore|hence|finally|elijo|wähle)"
)
_VERDICT = (
    r"\s*+(?:(?:is|seems|looks|appears|must\s+be|would\s+be|should\s+be|has\s+to\s+be)\b"
    r"(?:\s+(?:to\s+be|the|my|our|most|only|clearly|definitely|therefore|thus|indeed|probably|likely|best|single|final|one"
    r"|obviously|more))*+\s++(?:correct|right|true|best|better|answer|choice|option|plausible)|remains|fits\s+best)\b"
)
# "A, C and D are": the verdict on the last of a row is on all of it when the verb is plural.
_CHAIN = (
    r"(?:(?:\s*+(?:,\s*(?:and|or|nor)|,|&|/|and|or|nor)\s*(?:option\s+)?[*_`$(\[\"']*[A-Z][*_`$)\]\"']*(?![^\W_]))++"
    r"(?=\s*(?:are|were|can|could|do|seem|look|both|all)))?+"
)

# Judged on the text just before a candidate, and just after it.
_REFUSED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bnor|\bneither|\bcannot\s+be|\brul(?:e|ed|es|ing)\s+out|\beliminat\w+|\bexclud\w+"
    r"|\breject\w*|\bdiscard\w*|\bdismiss\w*|\brather\s+than|\binstead\s+of|\bunlike|\bother\s+than|不是|не)"
    r"(?:\s+(?:be|choose|pick|select|go\s+with|say|think|it['’]s|it\s+is|the|an?|options?|choices?|letter|answer|is|both))*"
    r"(?:\s+[A-Z](?:\s*,\s*[A-Z])*,?\s+(?:or|nor)\b)?[\s*_`$(\[{\"'“:]*$",
    re.IGNORECASE,
)
_REFUSED_AFTER = re.compile(
    rf"[*_`$)\]}}\"'”]*+{_CHAIN}[\s:,(–—-]*+"
    r"(?:(?:is|are|was|were|seems?|looks?|would|can|could|does|do|must|has|should)\s*+"
    r"(?:(?:clearly|definitely|obviously|also|therefore|thus|simply|both|all|just|plainly|probably|likely|be|been)\s+)*+"
    r"(?:not|n['’]t)\b|cannot\b|(?:(?:is|are|was|were|seems?|looks?|would\s+be|must\s+be|has\s+been)\s++)?"
    r"(?:(?:clearly|definitely|obviously|also|therefore|thus|simply|both|all|just|plainly|probably|likely)\s+)*+"
    r"(?:wrong|incorrect|false|ruled\s+out|eliminated|excluded|out(?!\s+of)|impossible|irrelevant|inaccurate|implausible)\b)",
    re.IGNORECASE,
)
# "A" and "I" are words too: what follows tells.
_ARTICLE = re.compile(
    r"\s+(?!(?:is|was|because|since|as|and|or|with|for|due|seems|which|but|given|it|fits|matches|works|would|will|must"
    r"|cannot|remains|has|shows|depicts|describes|represents|contains|refers|looks|appears|does)\b)[^\W\d_A-Z]"
)
_PRONOUN = re.compile(r"['’]|\s+(?!(?:is|because|since|and|or|seems|fits|matches|works|remains)\b)[^\W\d_A-Z]")
# A letter that opens a reply without any mark behind it answers when the reply ends or gives reasons, not when it goes
# on to discuss ("A has a tail. B has wings.").
_GOES_ON = re.compile(r"\s*(?:$|[^\w\s]|(?:because|since|as|due|given|for|with|is|it)\b|(?:\S+\s+){0,3}\S+\s*$)")
_DISCUSSED = re.compile(r"\s+(?:has|shows|depicts|describes|represents|contains|refers|looks|appears|does|and|or)\b")
_ROW_WORDS = ("and", "or", "und", "oder", "et", "ou", "option", "maybe", "perhaps", "possibly", "even")
_NAMED_SO = re.compile(
    r"\b(?:vitamin|plan|grade|hepatitis|type|class|group|section|figure|table|appendix|part|team|drive|point|exhibit)\s+$",
    re.IGNORECASE,
)
_NONE_OF = re.compile(
    r"\b(?:none|neither)\s+of\s+(?:the|these|them|those)\b|\bno(?:\s+\w+)?\s+(?:option|choice)\b", re.I
)
_ALL_OF = re.compile(r"\ball\s+(?:of\s+)?(?:the\s+above|these|them|the\s+options|four|five)\b", re.IGNORECASE)


class _Patterns(NamedTuple):
    canonical: dict[str, str]
    bare: re.Pattern[str]
    short: re.Pattern[str]
    said: re.Pattern[str]
    leading: re.Pattern[str]
    wrapped: re.Pattern[str]
    capital: re.Pattern[str]
    listed: re.Pattern[str]
    labels: re.Pattern[str]
    another: re.Pattern[str]
    several: re.Pattern[str]
    only_several: re.Pattern[str]


@lru_cache(maxsize=256)
def _patterns(letters: str) -> _Patterns:
    canonical = {form: letter for letter in letters for form in (letter, letter.lower(), letter.upper())}
    if not letters or len({letter.casefold() for letter in letters}) < len(letters):
        raise ValueError(f"letters must be different single characters, got {letters!r}")
    some = f"[{re.escape(''.join(canonical))}]"
    upper = f"[{re.escape(letters.upper())}]"
    # Latin, Greek and Cyrillic letters and digits make words; a Chinese or Japanese character may touch a letter.
    word = r"0-9A-Za-z\u00c0-\u024f\u0370-\u052f"
    start = rf"(?<![{word}])(?<![{word}]['’])(?<!\b[A-Za-z]\.)"
    end = rf"(?![{word}]|['’][a-z]|-[^\W\d_]|\+\+|\.\d|\.[A-Za-z](?![a-z]))"
    named = r"(?:\b(?:option|choice|answer|ans|letter)\b\s*[:：.]?\s*)?"

    def one(name: str, kind: str = some) -> str:
        return f"{start}(?P<{name}>{kind}){end}"

    marked = (
        rf"(?:{_NOUNS}{_OF}[\s*_`]*+{_LINK}|^[ \t*_`#]*+(?:final\s+)?answer\b){_FILLERS}",
        rf"\b{_VERBS}\b[,:]?{_FILLERS}",
        rf"\\(?:boxed|fbox)\s*\{{{_OPEN}{named}{_OPEN}",
        rf"<(?:answer|final_answer|choice|option|letter)>{_OPEN}{named}{_OPEN}",
    )
    said = "|".join(
        [prefix + one(name) for prefix, name in zip(marked, ("marker", "verb", "boxed", "tag"))]
        + [
            rf"{one('verdict')}{_AFTER}*+(?:[.:]?\s(?:[\w'-]+\s+){{1,5}}?(?=is\b))?{_VERDICT}",
            rf"^{_LINE_OPEN}{named}{_LINE_OPEN}{one('line')}{_CLOSE}$",
        ]
    )
    separator = r"(?:/|,\s*(?:or|and)\b|,|&|\+|\||;|、|\b(?:or|and|und|oder|et|ou|y|o|и)\b|和|或)"
    row = rf"{_BEFORE}*+{some}(?:{_AFTER}*+[ \t]*{separator}?[ \t]*(?:option\s+)?{_BEFORE}*{some})*+(?![^\W_])"
    return _Patterns(
        canonical,
        bare=re.compile(rf"(?:{_OPEN}{named}|\s*a\s*[:：]\s*){_OPEN}(?P<letter>{some}){_CLOSE}\s*", re.IGNORECASE),
        # The commonest reply of all, tried once at its start: a third of the time of looking everywhere.
        short=re.compile(
            rf"\W*(?:(?:so|thus|therefore|hence|the|my|correct|final|best|right)\b\W*)*+{_NOUNS}{_OF}[\s*_`]*+{_LINK}{_FILLERS}"
            rf"{one('letter')}{_CLOSE}\s*",
            re.IGNORECASE,
        ),
        said=re.compile(said, re.IGNORECASE | re.MULTILINE),
        leading=re.compile(
            rf"{_OPEN}(?:[Oo]ption\s+)?{_OPEN}{one('letter')}(?P<close>{_AFTER}*+[ \t]*[.)\]:,;|–—\n-]|{_AFTER}++)?"
        ),
        wrapped=re.compile(
            rf"{_BEFORE}\s*+(?P<wrapped>{some})\s*+{_AFTER}|\b(?:option|choice|letter)\s+{_BEFORE}*+{one('named')}",
            re.IGNORECASE,
        ),
        capital=re.compile(one("letter", upper)),
        labels=re.compile(rf"(?<![{word}])(?P<letter>{upper})[*_`]*[).:](?=\s*[^\W\d])"),
        listed=re.compile(
            rf"^{_LINE_OPEN}(?:[Oo]ption\s+)?{_LINE_OPEN}(?P<letter>{some}){_AFTER}*+[ \t]*[.):](?=\s*\S)", re.MULTILINE
        ),
        another=re.compile(
            rf"{_AFTER}*+[ \t]*+{separator}?[ \t]*+(?:(?:option|maybe|perhaps|possibly|even)\s+)?"
            rf"{_BEFORE}*+{one('letter')}"
        ),
        several=re.compile(
            "|".join(f"{prefix}(?P<row{n}>{row})" for n, prefix in enumerate((marked[0], *marked[2:]))), re.I | re.M
        ),
        only_several=re.compile(rf"{_OPEN}{named}(?P<row>{row}){_CLOSE}\s*", re.IGNORECASE),
    )


def _refused(text: str, start: int, end: int) -> bool:
    """Whether the text around says that this is not the answer."""
    if _REFUSED_AFTER.match(text, end):
        return True
    return start > 2 and _REFUSED_BEFORE.search(text[max(0, start - 56) : start]) is not None


def _is_word(text: str, start: int, end: int) -> bool:
    """Whether a lone A or I is the article or the pronoun."""
    character = text[start]
    if character in "aA":
        return _ARTICLE.match(text, end) is not None
    return character in "iI" and _PRONOUN.match(text, end) is not None


def _opens(text: str, start: int, end: int) -> bool:
    """Whether a bare letter at the beginning is the answer."""
    return (
        text[start].isupper()
        and not _is_word(text, start, end)
        and _GOES_ON.match(text, end) is not None
        and _DISCUSSED.match(text, end) is None
    )


def _row(patterns: _Patterns, text: str, start: int, end: int) -> tuple[set[str], int]:
    """The letters that stand in one row from ``start`` on, as in A/B or "A and C", and where the row ends."""
    letters = {patterns.canonical[text[start]]}
    small = text[start].islower()
    while match := patterns.another.match(text, end):
        at, stop = match.span("letter")
        if (text[at].islower() and not small) or _is_word(text, at, stop) or _REFUSED_AFTER.match(text, stop):
            break
        letters.add(patterns.canonical[text[at]])
        end = stop
    return letters, end


def _echoed(patterns: _Patterns, text: str) -> set[int]:
    """Where letters stand that only label the options in turn: lines A. B. C., or "A) ... B) ... C) ..." in a line."""
    order = {letter: place for place, letter in enumerate(dict.fromkeys(patterns.canonical.values()))}
    echoed: set[int] = set()
    for pattern, least in ((patterns.listed, 2), (patterns.labels, 3)):
        labels = list(pattern.finditer(text))
        if len(labels) < least:
            continue
        row = [labels[0]]
        for before, label in pairwise(labels):
            step = order[patterns.canonical[label["letter"]]] - order[patterns.canonical[before["letter"]]]
            row = [*row, label] if step == 1 else [label]
            if len(row) >= least:
                echoed.update(item.start("letter") for item in row)
    return echoed


@lru_cache(maxsize=1024)
def _choice_pattern(choices: tuple[str, ...], letters: str) -> tuple[re.Pattern[str], dict[str, str]] | None:
    """Pattern of the choices' texts as whole words, longest first, and the letter of each text."""
    keys: dict[str, str] = {}
    for letter, choice in zip(letters, choices):
        key = " ".join(choice.split()).casefold().rstrip(".")
        keys[key] = "" if key in keys else letter  # a text that two letters share tells nothing
    texts = sorted((key for key in keys if key), key=len, reverse=True)
    if not texts:
        return None
    body = "|".join(r"\s+".join(map(re.escape, key.split(" "))) for key in texts)
    return re.compile(rf"(?<![^\W_])(?P<choice>{body})(?![^\W_])", re.IGNORECASE), keys


_CHOICE_LEAD = re.compile(
    rf"(?:{_NOUNS}{_OF}[\s*_`]*+{_LINK}|\b{_VERBS}\b|\\boxed\s*\{{|<answer>){_FILLERS}(?:an?\s+)?$", re.I
)


def _by_choice(text: str, choices: Sequence[str], letters: str) -> Reading | None:
    """The only choice whose text occurs, or the last one that a statement names; None when there is no such."""
    found = _choice_pattern(tuple(choices), letters)
    if found is None:
        return None
    pattern, keys = found
    hits = []
    for match in pattern.finditer(text):
        letter = keys.get(" ".join(match["choice"].split()).casefold(), "")
        if letter and not _refused(text, *match.span()):
            hits.append((letter, match.span()))
    if len({letter for letter, _ in hits}) == 1:
        return Reading(hits[-1][0], "choice text", hits[-1][1])
    for letter, span in reversed(hits):
        if _CHOICE_LEAD.search(text[max(0, span[0] - 80) : span[0]]):
            return Reading(letter, "choice text", span)
    return Reading(None, "several choices") if hits else None


def choice_letter(text: str | None, letters: str = "ABCD", choices: Sequence[str] | None = None) -> Reading:
    """Read the one option that a reply settles on.

    Parameters
    ----------
    text
        The reply; a reasoning block in front is passed over.
    letters
        The options' letters, in order (``"ABCDEFGHIJ"``; digits work too). The value is one of them.
    choices
        The options' texts, in the letters' order: a reply that names exactly one of them, as whole words, is read.

    Returns
    -------
    Reading
        ``value`` None where nothing, or more than one letter, is settled on.
    """
    if not text or not text.strip():
        return Reading(None, "empty")
    patterns = _patterns(letters)
    text = plain_letters(text, letters)
    if len(text) < 64 and (match := patterns.bare.fullmatch(text)):
        return Reading(patterns.canonical[match["letter"]], "bare", match.span("letter"))
    if len(text) < 96 and (match := patterns.short.fullmatch(text)) and not _refused(text, *match.span("letter")):
        return Reading(patterns.canonical[match["letter"]], "marker", match.span("letter"))
    offset = answer_start(text)
    if offset:
        text = text[offset:]
        if not text.strip():
            return Reading(None, "reasoning only")
        if match := patterns.bare.fullmatch(text):
            return _shifted(Reading(patterns.canonical[match["letter"]], "bare", match.span("letter")), offset)
    return _shifted(_read_letter(patterns, text, letters, choices), offset)


def _shifted(reading: Reading, offset: int) -> Reading:
    if not offset or reading.span is None:
        return reading
    return reading._replace(span=(reading.span[0] + offset, reading.span[1] + offset))


def _among_lines(patterns: _Patterns, text: str, said: Sequence[tuple[str, int, int]]) -> bool:
    """Whether the last lone line is one of several: letters below each other, or with a text under each."""
    _, start, end = said[-1]
    others = [
        item
        for item in said[:-1]
        if item[0] == "line" and patterns.canonical[text[item[1]]] != patterns.canonical[text[start]]
    ]
    if not others:
        return False
    return re.search(r"[^\W_]", text[others[-1][2] : start]) is None or re.search(r"[^\W_]", text[end:]) is not None


_TAIL = 2000


def _statements(patterns: _Patterns, text: str, echoed: set[int], begin: int) -> list[tuple[str, int, int]]:
    """What the reply states from ``begin`` on, as (rule, start, end) of each letter that is not refused."""
    said = []
    for match in patterns.said.finditer(text, begin):
        how = match.lastgroup or ""
        start, end = match.span(how)
        if (start in echoed and how != "verdict") or _is_word(text, start, end) or _refused(text, start, end):
            continue
        said.append((how, start, end))
    return said


def _read_letter(patterns: _Patterns, text: str, letters: str, choices: Sequence[str] | None) -> Reading:
    echoed = _echoed(patterns, text)
    # The last statement counts, so a long reply is read from its end; all of it only if nothing stands there.
    tail = text.find("\n", len(text) - _TAIL) + 1 if len(text) > _TAIL else 0
    said = _statements(patterns, text, echoed, tail)
    if not said and tail:
        said = _statements(patterns, text, echoed, 0)
    if said:
        how, start, end = said[-1]
        if (how == "line" and _among_lines(patterns, text, said)) or len(_row(patterns, text, start, end)[0]) > 1:
            return Reading(None, "several letters")
        return Reading(patterns.canonical[text[start]], how, (start, end))

    if match := patterns.leading.match(text):
        start, end = match.span("letter")
        marked = match["close"] is not None
        if (
            start not in echoed
            and not text.startswith("?", match.end())
            and (marked or _opens(text, start, end))
            and not _refused(text, start, end)
        ):
            if len(_row(patterns, text, start, end)[0]) > 1:
                return Reading(None, "several letters")
            return Reading(patterns.canonical[text[start]], "leading", (start, end))

    def only(pattern: re.Pattern[str], how: str) -> Reading | None:
        hits = []
        for match in pattern.finditer(text):
            start, end = match.span(match.lastgroup or 0)
            after = text[end : end + 4].lstrip("*_`$)]}\"' ")
            if start in echoed or after.startswith("?") or _is_word(text, start, end) or _refused(text, start, end):
                continue
            if how == "capital" and _NAMED_SO.search(text[max(0, start - 16) : start]):
                continue
            hits.append((patterns.canonical[text[start]], (start, end)))
        if len({letter for letter, _ in hits}) == 1:
            return Reading(hits[-1][0], how, hits[-1][1])
        return Reading(None, "several letters") if hits else None

    reading = only(patterns.wrapped, "wrapped")
    if reading is None and choices is not None:
        reading = _by_choice(text, choices, letters)
    if reading is None:
        reading = only(patterns.capital, "capital")
    if reading is None:
        reading = Reading(None, "none of the options" if _NONE_OF.search(text) else "no letter")
    return reading


def choice_letters(text: str | None, letters: str = "ABCD", choices: Sequence[str] | None = None) -> Reading:
    """Read all options that a reply settles on ("A and C", "ACD", ``["A", "C"]``, one letter a line).

    The value is a tuple of letters in the options' order; ``()`` when the reply says that none is right (and no choice
    has that text), None when it is unread. "All of the above" is every letter, unless a choice has that text.
    """
    if not text or not text.strip():
        return Reading(None, "empty")
    patterns = _patterns(letters)
    text = plain_letters(text, letters)
    offset = answer_start(text)
    text = text[offset:]
    if not text.strip():
        return Reading(None, "reasoning only")

    def chosen(found: set[str], how: str, span: tuple[int, int]) -> Reading:
        return _shifted(Reading(tuple(letter for letter in letters if letter in found), how, span), offset)

    def row_letters(start: int, end: int) -> set[str] | None:
        found = set()
        for word in re.findall(r"[^\W_]+", text[start:end]):
            if len(word) > 1 and word != word.upper():
                if word.lower() in _ROW_WORDS:
                    continue
                return None  # a word such as "bad", not the letters b, a, d
            found |= {patterns.canonical[character] for character in word if character in patterns.canonical}
        return found

    rows = []
    for match in patterns.several.finditer(text):
        start, end = match.span(match.lastgroup or 0)
        if (
            not _is_word(text, start, start + 1)
            and not _refused(text, start, end)
            and (found := row_letters(start, end))
        ):
            rows.append((found, (start, end)))
    if rows:
        return chosen(rows[-1][0], "marker", rows[-1][1])
    if (match := patterns.only_several.fullmatch(text)) and (found := row_letters(*match.span("row"))):
        compact = [patterns.canonical[c] for c in match["row"] if c in patterns.canonical]
        if len(compact) == 1 or compact == sorted(set(compact), key=letters.index) or "," in match["row"]:
            return chosen(found, "bare", match.span("row"))
    for phrase, value, how in ((_ALL_OF, set(letters), "all of the options"), (_NONE_OF, set(), "none of the options")):
        if match := phrase.search(text):
            for letter, choice in zip(letters, choices or ()):
                if phrase.search(choice):
                    return chosen({letter}, "choice text", match.span())
            return chosen(value, how, match.span())
    for pattern, how in ((patterns.said, "statement"), (patterns.wrapped, "wrapped"), (patterns.capital, "capital")):
        spans = [match.span(match.lastgroup or 0) for match in pattern.finditer(text)]
        spans = [span for span in spans if not _is_word(text, *span) and not _refused(text, *span)]
        if spans:
            found, end = set(), 0
            for span in spans:
                # A letter inside a row that was read tells nothing new; the last one tells where the answer ends.
                if span[0] >= end or span is spans[-1]:
                    row, end = _row(patterns, text, *span)
                    found |= row
            return chosen(found, how, (spans[0][0], end))
    if choices is not None and (pair := _choice_pattern(tuple(choices), letters)):
        pattern, keys = pair
        hits = [m for m in pattern.finditer(text) if not _refused(text, *m.span())]
        found = {keys.get(" ".join(m["choice"].split()).casefold(), "") for m in hits} - {""}
        if found:
            return chosen(found, "choice text", (hits[0].start(), hits[-1].end()))
    return Reading(None, "no letter")
