"""Making a data set from art files: collect, clean, de-duplicate, map to the tree, choose distractors, check leaks.

Every step that drops something says which and why; the recipe `items` puts them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from assay.core.datasets.readers import read_rows, shown
from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval.data import Item, content_id
from assay.multimodal.asciieval.generator import pick_choices, trim
from assay.multimodal.asciieval.rendering import normalise

ART_SUFFIXES = (".txt", ".asc", ".ascii", ".art", ".cow")


@dataclass(frozen=True, slots=True)
class RawArt:
    """A drawing as it was found.

    ``category`` is the site's or folder's own word for it, ``source`` where it came from, ``removed`` what was cut.
    """

    art: str
    category: str
    source: str
    removed: str = ""
    fields: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)


def collect(folder: Path) -> list[RawArt]:
    """Drawings of a folder of text files, in order of their paths.

    A file holds one drawing, or several between two or more blank lines or form feeds. The category is the file's path
    below ``folder`` without its ending. Files ending in ``.cow`` are read as
    cowsay drawings.

    Raises
    ------
    UsageError
        If there is no such folder or it holds no art files.
    """
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}; give one with art files ({', '.join(ART_SUFFIXES)}).")
    found: list[RawArt] = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix.lower() in ART_SUFFIXES):
        text = path.read_text(encoding="utf-8", errors="replace")
        inside = path.relative_to(folder)
        if path.suffix == ".cow":
            arts, name = [read_cow(text, str(inside))], path.stem
        else:
            arts = split_drawings(text)
            name = path.stem
        category = "/".join((*inside.parent.parts, name))
        found += [RawArt(art, category, f"{inside}#{number}") for number, art in enumerate(arts, 1) if art]
    if not found:
        raise UsageError(f"Folder {folder} holds no art files ({', '.join(ART_SUFFIXES)}).")
    return found


def split_drawings(text: str) -> list[str]:
    """Drawings of a text file: parts between form feeds or two or more blank lines, trimmed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    parts = re.split(r"\f|\n(?:[ \t]*\n){2,}", text)
    arts = [trim(normalise(part, "expand")) for part in parts]
    return [art for art in arts if art]


def read_cow(text: str, where: str = "cow file") -> str:
    """Drawing of a cowsay file: the here-document without the speech balloon's tail, with the usual eyes.

    The file is Perl; it is read as text and never run.
    """
    match = re.search(r"<<\s*[\"']?(\w+)[\"']?;?[^\n]*\n(.*?)^\1\s*$", text, re.DOTALL | re.MULTILINE)
    if match is None:
        raise DataError(f"{where} holds no drawing between << and its end mark; is it a cowsay file?")
    body = match.group(2)
    for name, value in (("thoughts", " "), ("eyes", "oo"), ("tongue", "  "), ("eye", "o"), ("el", "o"), ("er", "o")):
        body = re.sub(rf"\$\{{?{name}\}}?", value, body)
    body = re.sub(r"\\x\{[0-9a-fA-F]+\}|\\e\[[0-9;]*m", "", body)
    return trim(normalise(re.sub(r"\\([\\$@])", r"\1", body), "expand"))


_MAIL_OR_LINK = re.compile(r"[^\s@]{1,64}@[^\s@]{1,255}\.\w+|(?:https?://|www\.)\S+", re.IGNORECASE)
_CREDIT = re.compile(
    r"(?:\b(?:art|drawn|ascii|made)\s+)?\bby\b[:\s]+[A-Za-z][\w.'-]*(?:\s+[A-Z][\w.'-]*){0,2}", re.IGNORECASE
)
_DATE = re.compile(r"\b\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}\b")
_INITIALS = re.compile(r"(?<![^\s])(?:-{1,2}\s?)?[a-zA-Z][a-zA-Z']{1,4}\d{0,4}(?:-{1,2})?(?=\s*$)")


def remove_signature(art: str) -> tuple[str, str]:
    """Art without its artist's signature, and what was removed.

    Links, addresses, dates and "by NAME" go wherever they stand. Initials (two to five letters, perhaps with a year) go
    when they end one of the last four lines or the first and nothing but blanks stands within two columns around them;
    that they are a signature and no part of the drawing is a guess, which the review queue shows.
    """
    removed: list[str] = []
    lines = art.split("\n")
    for pattern in (_MAIL_OR_LINK, _CREDIT, _DATE):
        for at, line in enumerate(lines):
            for match in pattern.finditer(line):
                removed.append(match.group())
                lines[at] = _blanked(lines[at], *match.span())
    inked = [at for at, line in enumerate(lines) if line.strip()]
    for at in [*inked[:1], *inked[-4:]] if len(inked) > 1 else []:
        match = _INITIALS.search(lines[at])
        if match and _alone(lines, at, *match.span()):
            removed.append(match.group().strip())
            lines[at] = _blanked(lines[at], *match.span())
    return trim("\n".join(lines)), " ".join(removed)


def _blanked(line: str, start: int, end: int) -> str:
    return line[:start] + " " * (end - start) + line[end:]


def _alone(lines: Sequence[str], at: int, start: int, end: int) -> bool:
    """Whether nothing stands within two columns of a stretch, in its line and in those above and below."""
    if lines[at][max(0, start - 2) : start].strip():
        return False
    low, high = max(0, start - 1), end + 1
    around = [lines[near][low:high] for near in (at - 1, at + 1) if 0 <= near < len(lines)]
    return not any(part.strip() for part in around)


def text_hints(art: str, names: Iterable[str]) -> list[str]:
    """Names, or words of three letters and more of them, that stand in the art as text."""
    text = re.sub(r"[^a-z]+", " ", art.lower())
    spaced = re.sub(r"(?<=\b[a-z]) (?=[a-z]\b)", "", text)
    hay = f" {text} {spaced} "
    return [name for name in dict.fromkeys(names) if any(f" {word} " in hay for word in _hint_words(name))]


def _hint_words(name: str) -> list[str]:
    words = re.sub(r"[^a-z]+", " ", name.lower()).split()
    return [" ".join(words), *(word for word in words if len(word) >= 3)] if words else []


def deduplicate(arts: Sequence[str], threshold: float = 0.9) -> list[tuple[int, int, float]]:
    """Near-duplicates by edit distance.

    Parameters
    ----------
    arts
        Drawings.
    threshold
        Similarity (1 - distance / longer length) from which two are the same, in (0, 1].

    Returns
    -------
    list of (int, int, float)
        (dropped, kept, similarity): of every set of duplicates the first stays.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"A similarity threshold of {threshold} is not in (0, 1].")
    plain = [trim(art) for art in arts]
    dropped: list[tuple[int, int, float]] = []
    gone: set[int] = set()
    for kept, other, similarity in sorted(_near_pairs(plain, plain, threshold, same=True)):
        if kept not in gone and other not in gone:
            gone.add(other)
            dropped.append((other, kept, similarity))
    return dropped


def _near_pairs(
    first: Sequence[str], second: Sequence[str], threshold: float, same: bool
) -> list[tuple[int, int, float]]:
    """Pairs (i, j, similarity) at or above the threshold; i < j where both are one list.

    Lengths and character counts bound the distance from below, so only few pairs are measured.
    """
    from rapidfuzz.distance import Levenshtein

    if not first or not second:
        return []
    counts_a, counts_b = _counts(first), _counts(second)
    lengths_b = np.array([len(text) for text in second])
    pairs = []
    for i, text in enumerate(first):
        longest = np.maximum(lengths_b, len(text))
        difference = counts_b - counts_a[i]
        bound = np.maximum(
            np.where(difference > 0, difference, 0).sum(1), np.where(difference < 0, -difference, 0).sum(1)
        )
        near = np.flatnonzero(bound <= (1 - threshold) * longest + 1e-9)
        for j in near[near > i] if same else near:
            limit = int((1 - threshold) * longest[j] + 1e-9)
            distance = Levenshtein.distance(text, second[j], score_cutoff=limit)
            if distance <= limit:
                pairs.append((i, int(j), float(1 - distance / longest[j]) if longest[j] else 1.0))
    return pairs


def _counts(texts: Sequence[str]) -> np.ndarray:
    """How often each character code (modulo 256) occurs, (texts, 256)."""
    return np.array(
        [np.bincount(np.frombuffer(t.encode("utf-32-le"), np.uint32) % 256, minlength=256) for t in texts], np.int32
    )


@dataclass(frozen=True, slots=True)
class Leak:
    """A test item whose drawing, or nearly, is in the training set."""

    test: str
    train: str
    similarity: float


def leakage(test: Sequence[Item], train: Sequence[Item], threshold: float = 0.9) -> list[Leak]:
    """Test drawings that are, or nearly are, training drawings: the most similar one of each, most similar first."""
    pairs = _near_pairs([trim(i.art) for i in test], [trim(i.art) for i in train], threshold, same=False)
    best: dict[int, tuple[float, int]] = {}
    for i, j, similarity in pairs:
        if similarity > best.get(i, (0.0, 0))[0]:
            best[i] = (similarity, j)
    leaks = [Leak(test[i].id, train[j].id, similarity) for i, (similarity, j) in best.items()]
    return sorted(leaks, key=lambda leak: (-leak.similarity, leak.test))


@dataclass(frozen=True, slots=True)
class Place:
    """Class, group and concept of a site's category."""

    klass: str
    group: str
    concept: str


def read_mapping(path: Path) -> dict[str, Place]:
    """Mapping from categories to the tree: a CSV file with columns category, class, group, concept.

    Raises
    ------
    DataError
        If the file cannot be read, a column is missing, a field is empty, a category stands twice, or a group stands
        under two classes.
    """
    columns = ("category", "class", "group", "concept")
    mapping: dict[str, Place] = {}
    home: dict[str, str] = {}
    for line, row in read_rows(path, columns):
        where = f"{path}, line {line}"
        category, klass, group, concept = (row[name].strip() for name in columns)
        for name, value in zip(columns, (category, klass, group, concept)):
            if not value:
                raise DataError(f"{where}: field {name!r} is empty; fill it or drop the line.")
        if category in mapping:
            raise DataError(f"{where}: field 'category' {shown(category)} was mapped before; keep one line.")
        if home.setdefault(group, klass) != klass:
            raise DataError(
                f"{where}: field 'group' {shown(group)} stands under {shown(klass)} here and {shown(home[group])} "
                "before; a group belongs to one class."
            )
        mapping[category] = Place(klass, group, concept)
    if not mapping:
        raise DataError(f"{path} maps no category; write lines below its head.")
    return mapping


def place_of(category: str, mapping: Mapping[str, Place]) -> Place | None:
    """Place of a category: its own, else of its longest mapped beginning (``animals/cats/big`` -> ``animals/cats``)."""
    parts = category.split("/")
    for end in range(len(parts), 0, -1):
        place = mapping.get("/".join(parts[:end]))
        if place is not None:
            return place
    return None


def with_choices(
    placed: Sequence[tuple[RawArt, Place]],
    tree: Iterable[Place],
    seed: int,
    style: Literal["structure", "tone", ""] = "",
) -> list[Item]:
    """Items with three distractors each, from the same group and then class; right letters balanced.

    ``tree`` holds the names to choose from: concepts without a drawing of their own serve as distractors too.
    """
    groups: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = {}
    for place in (*tree, *(place for _, place in placed)):
        groups.setdefault(place.group, set()).add(place.concept)
        classes.setdefault(place.klass, set()).add(place.concept)
    letters = np.arange(len(placed)) % 4
    rng = np.random.default_rng(seed)
    rng.shuffle(letters)
    items = []
    for (raw, place), answer in zip(placed, letters):
        choices = pick_choices(
            place.concept, sorted(groups[place.group]), sorted(classes[place.klass]), rng, int(answer)
        )
        fields = {"url": raw.source, **({"info": raw.removed} if raw.removed else {}), **raw.fields}
        items.append(
            Item(
                content_id(raw.art, choices), raw.art, choices, int(answer), place.klass, place.group, place.concept,
                style or guess_style(raw.art), "", fields,
            )
        )  # fmt: skip
    return items


def guess_style(art: str) -> Literal["structure", "tone"]:
    """``tone`` where dense shading characters make up most of the ink and fill the drawing, else ``structure``."""
    ink = [char for char in art if not char.isspace()]
    area = sum(len(line) - (len(line) - len(line.lstrip())) for line in art.split("\n"))
    dense = sum(char.isalnum() or char in "@#%&*$+=:█▓▒░" for char in ink)
    return "tone" if ink and dense > 0.6 * len(ink) and len(ink) > 0.5 * area else "structure"


def renamed_by_content(items: Sequence[Item]) -> list[Item]:
    """Items with ids from their content, for rows that were changed."""
    return [replace(item, id=content_id(item.art, item.choices)) for item in items]
