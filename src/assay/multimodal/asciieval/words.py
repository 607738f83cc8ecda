"""Word tokens of an English reply, as the released scorer sees them.

The published rule reads "the first token that is A, B, C or D" from NLTK's ``word_tokenize``: Punkt sentence splitting
(Kiss and Strunk 2006) and Penn-Treebank word splitting of each sentence. Both are rebuilt here so that no data need be
downloaded. What Punkt learnt about words (was it seen in lower case, inside a sentence, at its beginning) lies in
``sentence_evidence.gz`` as 28-bit hashes with four flags; the words themselves are not in it.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tomllib
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from importlib import resources
from itertools import pairwise

_LOWER, _UPPER, _UPPER_INSIDE, _LOWER_FIRST = 1, 2, 4, 8

_NONWORD = r"""[)";}\]*:@'({\[\u2018\u2019\u201c\u201d\xab\xbb?!]"""
_MULTI = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_PIECES = re.compile(
    rf"""{_MULTI}|(?=[^("`{{\[:;&\#*@)}}\]\-,])\S+?(?=\s|$|{_NONWORD}|{_MULTI}|,(?=$|\s|{_NONWORD}|{_MULTI}))|\S"""
)
_POSSIBLE_END = re.compile(rf"[.?!](?=(?P<after>{_NONWORD}|\s+(?P<next>\S+)))")
_CLOSING = re.compile(r"[\"')\]}\u2018\u2019\u201c\u201d\xab\xbb]+?(?:\s+|(?=--)|$)", re.MULTILINE)
_NUMBER = re.compile(r"^-?[.,]?\d[\d,.-]*\.?$")
_INITIAL = re.compile(r"[^\W\d]\.$")
_DOTS = re.compile(r"\.\.+$")
_ASCII_SPACE = " \t\n\r\x0b\x0c"


@cache
def _learnt(name: str) -> frozenset[str]:
    text = resources.files("assay.multimodal.asciieval").joinpath("sentence_words.toml").read_text(encoding="utf-8")
    return frozenset(tomllib.loads(text)[name].split())


@cache
def _evidence() -> array[int]:
    packed = resources.files("assay.multimodal.asciieval").joinpath("sentence_evidence.gz").read_bytes()
    table = array("I")
    table.frombytes(gzip.decompress(packed))
    if table.itemsize != 4:
        raise OSError(
            "sentence_evidence.gz holds 32-bit numbers, and this platform's array type 'I' is of another size."
        )
    if memoryview(b"\1\0").cast("H")[0] != 1:
        table.byteswap()
    return table


def _seen(word: str) -> int:
    """Flags of how a lower-cased word was seen in running text; 0 = never."""
    key = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "big") & ~15
    table = _evidence()
    at = bisect_left(table, key)
    return table[at] & 15 if at < len(table) and table[at] & ~15 == key else 0


def _kind(token: str) -> str:
    return _NUMBER.sub("##number##", token.lower())


def _starts_sentence(token: str, kind: str) -> bool | None:
    """Whether spelling says that a token starts a sentence; None = it says nothing."""
    if token in ";:,.!?":
        return False
    seen = _seen(kind)
    if token[0].isupper() and seen & _LOWER and not seen & _UPPER_INSIDE:
        return True
    if token[0].islower() and (seen & _UPPER or not seen & _LOWER_FIRST):
        return False
    return None


def _first_look(token: str) -> tuple[bool, bool]:
    """(ends a sentence, is an abbreviation or dots), judged from the token alone."""
    if token in (".", "?", "!"):
        return True, False
    if _DOTS.match(token):
        return False, True
    if token.endswith(".") and not token.endswith(".."):
        stem = token[:-1].lower()
        if {stem, stem.rsplit("-", 1)[-1]} & _learnt("abbreviations"):
            return False, True
        return True, False
    return False, False


def _ends_sentence(token: str, following: str) -> bool:
    """Whether a sentence ends at ``token`` when ``following`` is the next one."""
    ends, short = _first_look(token)
    if not token.endswith("."):
        return ends
    kind, next_kind = _kind(token), _kind(following)
    if len(kind) > 1 and kind.endswith("."):
        kind = kind[:-1]
    if _first_look(following)[0] and len(next_kind) > 1 and next_kind.endswith("."):
        next_kind = next_kind[:-1]
    if f"{kind}/{next_kind}" in _learnt("collocations"):
        return False
    initial = bool(_INITIAL.match(token))
    if (
        short
        and not initial
        and (_starts_sentence(following, next_kind) or (following[0].isupper() and next_kind in _learnt("starters")))
    ):
        return True
    if initial or kind == "##number##":
        starts = _starts_sentence(following, next_kind)
        if starts is False:
            return False
        if starts is None and initial and following[0].isupper() and not _seen(next_kind) & _LOWER:
            return False
    return ends


def _breaks(context: str) -> bool:
    """Whether a short context (word, end mark, what follows) holds a sentence end before its last token."""
    tokens = [token for line in context.split("\n") if line.strip() for token in _PIECES.findall(line)]
    return any(_ends_sentence(a, b) for a, b in pairwise(tokens))


def _ends(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Possible sentence ends with their context; of ends within one word only the last counts."""
    start = stop = 0
    held: re.Match[str] | None = None
    for match in _POSSIBLE_END.finditer(text):
        before = text[stop : match.start()]
        space = max(before.rfind(char) for char in _ASCII_SPACE)
        # A space that is the very first character counts as none: so does the published splitter.
        word = stop + space + 1 if space > 0 else start
        if held is not None and stop <= word:
            yield held, text[start:stop] + held.group() + held.group("after")
        held, start, stop = match, word, match.start()
    if held is not None:
        yield held, text[start:stop] + held.group() + held.group("after")


def sentences(text: str) -> list[str]:
    """Sentences of an English text; closing quotes and brackets stay with the sentence that they close."""
    spans: list[tuple[int, int]] = []
    begin = 0
    for match, context in _ends(text):
        if _breaks(context):
            spans.append((begin, match.end()))
            begin = match.start("next") if match.group("next") else match.end()
    spans.append((begin, len(text.rstrip())))

    found: list[str] = []
    shift = 0
    for here, after in zip(spans, [*spans[1:], None]):
        first, last = here[0] + shift, here[1]
        closing = _CLOSING.match(text[after[0] : after[1]]) if after else None
        if after and closing:
            found.append(text[first : after[0] + len(closing.group().rstrip())])
            shift = closing.end()
        else:
            shift = 0
            if text[first:last]:
                found.append(text[first:last])
    return found


_SPLITS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # opening quotes
        (r"([«“‘„]|`+)", r" \1 "),
        (r'^"', "``"),
        (r"(``)", r" \1 "),
        (r"([ (\[{<])(\"|'{2})", r"\1 `` "),
        (r"(?i)(?<!\w)(')(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"\1 "),
        # punctuation; the full stop only at the end of the sentence
        (r"([^.])(\.)([\])}>\"'»”’ ]*+)\s*$", r"\1 \2 \3 "),
        (r"([:,])([^\d])", r" \1 \2"),
        (r"([:,])$", r" \1 "),
        (r"\.{2,}", r" \g<0> "),
        (r"[;@#$%&]", r" \g<0> "),
        (r"[\u2012-\u2015]", r" \g<0> "),
        (r"([^.])(\.)([\])}>\"']*)\s*$", r"\1 \2\3 "),
        (r"[?!]", r" \g<0> "),
        (r"([^'])' ", r"\1 ' "),
        (r"[*]", r" \g<0> "),
        (r"[\]\[(){}<>]", r" \g<0> "),
        (r"--", " -- "),
        # closing quotes and clitics
        (r"^|$", " "),
        (r"([»”’])", r" \1 "),
        (r"''", " '' "),
        (r'"', " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        (r"(?i)\b(can)(not)\b", r" \1 \2 "),
        (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
        (r"(?i)\b(gim)(me)\b", r" \1 \2 "),
        (r"(?i)\b(gon)(na)\b", r" \1 \2 "),
        (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
        (r"(?i)\b(lem)(me)\b", r" \1 \2 "),
        (r"(?i)\b(more)('n)\b", r" \1 \2 "),
        (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r"(?i) ('t)(is)\b", r" \1 \2 "),
        (r"(?i) ('t)(was)\b", r" \1 \2 "),
    )
)


def words(text: str) -> list[str]:
    """Tokens of an English text, sentence by sentence.

    Parameters
    ----------
    text
        Any text.

    Returns
    -------
    list of str
        What NLTK 3.10 with the English Punkt model returns from ``word_tokenize(text)``.
    """
    tokens: list[str] = []
    for sentence in sentences(text):
        for pattern, replacement in _SPLITS:
            sentence = pattern.sub(replacement, sentence)
        tokens += sentence.split()
    return tokens
