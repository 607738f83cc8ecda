"""Texts of 14 languages in one form, error rates between them, and how long an utterance is in each language."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Literal

LANGUAGES: Mapping[str, str] = {
    "en": "English", "zh": "Chinese", "es": "Spanish", "de": "German", "fr": "French", "pl": "Polish", "ja": "Japanese",
    "it": "Italian", "ko": "Korean", "nl": "Dutch", "pt": "Portuguese", "ar": "Arabic", "tr": "Turkish",
    "ru": "Russian",
}  # fmt: skip

LENGTHS: Mapping[str, tuple[int, int]] = {"en": (10, 250), "ja": (5, 150), "zh": (5, 120), "de": (12, 300)}
"""Characters of an utterance, least (before the factor 1.5) and most, for languages where they are published."""

UNSPACED = frozenset({"zh", "ja"})
"""Written without blanks between words: words are characters there."""


def characters(language: str) -> tuple[float, int]:
    """Least and most characters of an utterance; languages without published lengths get those of English."""
    least, most = LENGTHS.get(language, LENGTHS["en"])
    return 1.5 * least, most


def plain(text: str, language: str = "en") -> str:
    """One form of a text in any script: compatibility forms resolved, case folded, letters, marks and digits kept.

    Arabic vowel signs and the elongation stroke go, dotted and dotless i of Turkish keep apart, Chinese and Japanese
    stand without blanks.
    """
    text = unicodedata.normalize("NFKC", text)
    if language == "tr":
        text = text.replace("İ", "i").replace("I", "ı")
    text = text.casefold()
    if language == "ar":
        text = "".join(c for c in text if c != "ـ" and unicodedata.category(c) != "Mn")
    text = unicodedata.normalize("NFC", text)
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else "" if c in "'’ʼ" else " " for c in text)
    words = kept.split()
    return "".join(words) if language in UNSPACED else " ".join(words)


def error_rate(reference: str, heard: str, *, by: Literal["word", "character"] = "word", language: str = "en") -> float:
    """Edits by the length of the reference, of words or of characters (blanks left out), after `plain`.

    Infinite when the reference says nothing and something was heard: no clip passes a filter by having no text.
    """
    from rapidfuzz.distance import Levenshtein

    a, b = plain(reference, language), plain(heard, language)
    if by == "word" and language not in UNSPACED:
        said, found = a.split(), b.split()
    else:
        said, found = list(a.replace(" ", "")), list(b.replace(" ", ""))
    if not said:
        return float("inf")
    return Levenshtein.distance(said, found) / len(said)
