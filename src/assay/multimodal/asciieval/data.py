"""Items: the published row layout, its checks, the tree of categories, and where items come from.

Without ``data=`` the shipped set is used: drawings made by assay's own generator (see `generator`), Apache-2.0. The
published sets (ASCIIEval/ASCIIEval, ASCIIEval/ASCIITune on the hub, CC BY-NC 4.0) are read from a folder, a JSON lines
file or the hub, never shipped.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval.scoring import LETTERS, count_lines

SHIPPED = "items.jsonl"


@dataclass(frozen=True, slots=True)
class Item:
    """A drawing and four names, one of which is right.

    Attributes
    ----------
    id
        Of the row where it has one, else a hash of drawing and choices: a function of content, not of order.
    art
        The drawing, newlines between its lines.
    choices
        Four different names, A to D.
    answer
        Index of the right one.
    klass, group, concept
        Class, group and concept of the tree; class and group are empty in training rows.
    style
        ``structure`` (outlines), ``tone`` (brightness) or empty.
    image
        File of the published picture, relative to the data folder; empty = none.
    fields
        The row's other fields, as they were.
    """

    id: str
    art: str
    choices: tuple[str, str, str, str]
    answer: int
    klass: str = ""
    group: str = ""
    concept: str = ""
    style: str = ""
    image: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def letter(self) -> str:
        """Letter of the right choice."""
        return LETTERS[self.answer]

    @property
    def right(self) -> str:
        """Text of the right choice."""
        return self.choices[self.answer]

    @property
    def key(self) -> str:
        """Concept key: group and concept, since one word may stand in two groups."""
        return f"{self.group}.{self.concept}"

    @property
    def lines(self) -> int:
        """Newlines + 1."""
        return count_lines(self.art)

    @property
    def characters(self) -> int:
        """Characters, newlines included."""
        return len(self.art)

    def rotated(self, by: int) -> Item:
        """The same item with its choices moved on by ``by`` places."""
        by %= len(LETTERS)
        if not by:
            return self
        moved = self.choices[-by:] + self.choices[:-by]
        return Item(
            f"{self.id}~r{by}", self.art, _four(moved), (self.answer + by) % len(LETTERS),
            self.klass, self.group, self.concept, self.style, self.image, self.fields,
        )  # fmt: skip

    def row(self) -> dict[str, Any]:
        """The item in the published row layout."""
        row: dict[str, Any] = {
            "url": "",
            "category-1": self.klass,
            "category-2": self.group,
            "category-3": self.concept,
            "reserve": True,
            "style": self.style,
            "ascii_art": self.art,
            "info": "",
            "original_info": "",
            "original_ascii_art": self.art,
            "choices": list(self.choices),
            "labels": [int(at == self.answer) for at in range(len(LETTERS))],
            "image_path": self.image,
        }
        if not self.klass:
            for name in ("category-1", "category-2", "category-3", "reserve", "style", "original_info"):
                del row[name]
        return {"id": self.id, **row, **self.fields}


def _four(choices: Sequence[str]) -> tuple[str, str, str, str]:
    a, b, c, d = choices
    return a, b, c, d


def content_id(art: str, choices: Sequence[str]) -> str:
    """Identifier of a row that brings none: 12 hexadecimal digits of a hash of drawing and choices."""
    text = "\x1f".join((art, *choices))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def item_from_row(row: Mapping[str, Any], where: str = "row") -> Item:
    """Item of a row in the published layout.

    Parameters
    ----------
    row
        A decoded JSON line of ``test.jsonl`` or ``train.jsonl``.
    where
        File and line, for the error.

    Raises
    ------
    DataError
        If the drawing is empty, the choices are not four different texts, or the labels are not one-hot.
    """

    def bad(name: str, why: str, todo: str) -> DataError:
        shown = json.dumps(row.get(name), ensure_ascii=False)
        shown = shown if len(shown) <= 120 else shown[:117] + "..."
        return DataError(f"{where}: field {name!r} {why}, not {shown}; {todo}.")

    art = row.get("ascii_art")
    if not isinstance(art, str):
        raise bad("ascii_art", "must be a text", "is this file in the ASCIIEval row layout?")
    if not art.strip():
        raise bad("ascii_art", "must hold at least one character that is not blank", "drop the row")
    choices = row.get("choices")
    if not isinstance(choices, list) or len(choices) != len(LETTERS) or not all(isinstance(c, str) for c in choices):
        # A list written as a string is refused, never evaluated: the text comes from outside.
        raise bad("choices", "must be a list of four texts", "repair or drop the row")
    if len(set(choices)) != len(choices) or not all(choice.strip() for choice in choices):
        raise bad("choices", "must be four different, non-empty texts", "repair or drop the row")
    labels = row.get("labels")
    if not isinstance(labels, list) or len(labels) != len(LETTERS) or any(label not in (0, 1) for label in labels):
        raise bad("labels", "must be a list of four, each 0 or 1 (or false or true)", "repair or drop the row")
    if sum(labels) != 1:
        raise bad("labels", "must mark exactly one right choice", "repair or drop the row")
    answer = labels.index(1)

    def text(name: str) -> str:
        value = row.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise bad(name, "must be a text", "repair or drop the row")
        return value

    known = {
        "id", "ascii_art", "choices", "labels", "category-1", "category-2", "category-3", "style", "image_path",
        "original_ascii_art", "url", "info", "original_info", "reserve",
    }  # fmt: skip
    fields = {name: row[name] for name in row if name not in known}
    fields |= {name: row[name] for name in ("url", "info", "original_info") if row.get(name)}
    if row.get("original_ascii_art") not in (None, art):
        fields["original_ascii_art"] = row["original_ascii_art"]
    if "reserve" in row and row["reserve"] is not True:
        fields["reserve"] = row["reserve"]
    return Item(
        id=str(row["id"]) if row.get("id") not in (None, "") else content_id(art, choices),
        art=art,
        choices=_four(choices),
        answer=answer,
        klass=text("category-1"),
        group=text("category-2"),
        concept=text("category-3") or choices[answer],
        style=text("style"),
        image=text("image_path"),
        fields=fields,
    )


@dataclass(frozen=True, slots=True)
class CategoryTree:
    """Classes, their groups and their concepts, with the number of items of each concept.

    Attributes
    ----------
    counts
        ``{class: {group: {concept: items}}}``.
    """

    counts: Mapping[str, Mapping[str, Mapping[str, int]]]

    @classmethod
    def of(cls, items: Iterable[Item]) -> CategoryTree:
        """Tree of items; a group may belong to one class only.

        Raises
        ------
        DataError
            If a group stands under two classes.
        """
        home: dict[str, tuple[str, str]] = {}
        counts: dict[str, dict[str, Counter[str]]] = {}
        for item in items:
            if not item.klass and not item.group:
                continue
            klass, first = home.setdefault(item.group, (item.klass, item.id))
            if klass != item.klass:
                raise DataError(
                    f"Item {item.id}: field 'category-2' {item.group!r} stands under class {item.klass!r}, but under "
                    f"{klass!r} in item {first}; a group belongs to one class."
                )
            counts.setdefault(item.klass, {}).setdefault(item.group, Counter())[item.concept] += 1
        return cls(counts)

    def groups(self, klass: str) -> list[str]:
        """Groups of a class."""
        return sorted(self.counts.get(klass, {}))

    def concepts(self, klass: str, group: str) -> list[str]:
        """Concepts of a group."""
        return sorted(self.counts.get(klass, {}).get(group, {}))

    def class_of(self, group: str) -> str | None:
        """Class of a group, or None."""
        return next((klass for klass, groups in self.counts.items() if group in groups), None)

    def size(self) -> tuple[int, int, int]:
        """Numbers of classes, groups and concepts (by group and name)."""
        groups = [concepts for groups in self.counts.values() for concepts in groups.values()]
        return len(self.counts), len(groups), sum(map(len, groups))


@dataclass(frozen=True, slots=True)
class ItemSet:
    """Items of one source, in its order.

    Attributes
    ----------
    provenance
        ``kind``, ``source``, ``licence`` and ``fingerprint``.
    folder
        Where picture files lie; None = none.
    """

    items: tuple[Item, ...]
    provenance: Mapping[str, Any]
    folder: Path | None = None

    @property
    def tree(self) -> CategoryTree:
        """Tree of the items."""
        return CategoryTree.of(self.items)

    def picture(self, item: Item) -> bytes:
        """Bytes of an item's published picture.

        Raises
        ------
        DataError
            If the row names none, or one that is missing or outside the folder.
        """
        if not item.image:
            raise DataError(f"Item {item.id}: field 'image_path' is empty; use images=render.")
        for folder in () if self.folder is None else (self.folder, self.folder / "img"):
            path = folder / item.image
            if not path.resolve().is_relative_to(self.folder.resolve() if self.folder else folder):
                # Its bytes would be sent to whoever answers.
                raise DataError(f"Item {item.id}: field 'image_path' {item.image!r} leaves the folder {self.folder}.")
            if path.is_file():
                return path.read_bytes()
        raise DataError(
            f"Item {item.id}: picture {item.image!r} lies neither in {self.folder} nor in its folder img; "
            "unpack the published pictures there or use images=render."
        )


def read_items(path: Path) -> tuple[Item, ...]:
    """Items of a JSON lines file, in order; equal rows get ``-2``, ``-3`` ... behind their id.

    Raises
    ------
    DataError
        With file, line, field and value, at the first bad row.
    """
    return _items(_numbered_rows(path), str(path))


def _numbered_rows(path: Path) -> Iterator[tuple[int, Any]]:
    from assay.core.datasets import read_jsonl

    return read_jsonl(path)


def _items(rows: Iterable[tuple[int, Any]], name: str) -> tuple[Item, ...]:
    items: list[Item] = []
    seen: Counter[str] = Counter()
    for number, row in rows:
        where = f"{name}, line {number}"
        if not isinstance(row, Mapping):
            raise DataError(f"{where}: a row must be a JSON object, not {json.dumps(row)[:80]}.")
        item = item_from_row(row, where)
        seen[item.id] += 1
        if seen[item.id] > 1:
            if row.get("id") not in (None, ""):
                raise DataError(f"{where}: field 'id' {item.id!r} was used before; ids must differ.")
            item = _renamed(item, f"{item.id}-{seen[item.id]}")
        items.append(item)
    if not items:
        raise DataError(f"{name} holds no rows.")
    CategoryTree.of(items)
    return tuple(items)


def _renamed(item: Item, new: str) -> Item:
    from dataclasses import replace

    return replace(item, id=new)


def write_items(items: Iterable[Item], path: Path) -> None:
    """Write items as JSON lines in the published layout."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for item in items:
            file.write(json.dumps(item.row(), ensure_ascii=False) + "\n")


@lru_cache(maxsize=8)
def load(source: str | Path | None = None, split: str = "test") -> ItemSet:
    """Items by source.

    Parameters
    ----------
    source
        None = the shipped set; a JSON lines file; a folder with ``test.jsonl`` (and pictures in ``img``); or
        ``hf:ASCIIEval/ASCIIEval@REVISION``.
    split
        File of a folder or hub data set: ``test`` or ``train``.

    Raises
    ------
    UsageError
        If there is no such file or folder.
    DataError
        If a row is not in the published layout.
    """
    if source is None or str(source) == "shipped":
        text = resources.files("assay.multimodal.asciieval").joinpath(SHIPPED).read_text(encoding="utf-8")
        rows = ((number, json.loads(line)) for number, line in enumerate(text.splitlines(), 1))
        provenance = {
            "kind": "generated",
            "source": "assay's own drawings (assay make asciieval shipped)",
            "licence": "Apache-2.0",
            "fingerprint": _fingerprint(text.encode()),
        }
        return ItemSet(_items(rows, SHIPPED), provenance)
    if str(source).startswith("hf:"):
        return _from_hub(str(source), split)
    path = Path(source)
    if path.is_dir():
        files = [path / f"{split}.jsonl", *sorted(path.glob(f"{split}*.jsonl")), path / "items.jsonl"]
        found = next((file for file in files if file.is_file()), None)
        if found is None:
            raise UsageError(
                f"Folder {path} holds neither {split}.jsonl nor items.jsonl; give the folder of the data set."
            )
        path = found
    if not path.is_file():
        raise UsageError(
            f"There is no data file or folder {str(source)!r}; give one, or hf:ASCIIEval/ASCIIEval, or nothing."
        )
    return ItemSet(read_items(path), _outside(path, str(path), "see its source"), path.parent)


def _from_hub(name: str, split: str) -> ItemSet:
    from assay.core.datasets import hub

    data = hub(name, files=(f"{split}*.jsonl", f"*/{split}*.jsonl"), licence="CC BY-NC 4.0")
    found = sorted(data.path.rglob(f"{split}*.jsonl")) if data.path is not None else []
    if not found:
        raise UsageError(f"{name} holds no {split}.jsonl; choose split=test or split=train.")
    return ItemSet(read_items(found[0]), _outside(found[0], data.source or name, "CC BY-NC 4.0"), found[0].parent)


def _outside(path: Path, source: str, licence: str) -> dict[str, Any]:
    from assay.core.datasets import folder

    if (path.parent / "manifest.json").is_file():
        return folder(path.parent).info()
    return {"kind": "real", "source": source, "licence": licence, "fingerprint": _fingerprint(path.read_bytes())}


def _fingerprint(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
