"""What an item set holds, how far it is the published one, and which of its items deserve a look before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from assay.core.errors import DataError
from assay.multimodal.asciieval.data import CategoryTree, Item


def statistics(items: Sequence[Item]) -> dict[str, Any]:
    """Counts and lengths of items.

    Returns
    -------
    dict
        items, concepts (by group and name; by name alone where no groups are given), groups, classes and styles (items
        of each), letters (of the right choices), characters and lines (min, max, mean) and widest_line.
    """
    if not items:
        raise DataError("There are no items to describe.")
    tree = CategoryTree.of(items)
    return {
        "items": len(items),
        "concepts": len({item.key for item in items}),
        "groups": tree.size()[1],
        "classes": _counted(item.klass for item in items),
        "styles": _counted(item.style for item in items),
        "letters": dict(sorted(Counter(item.letter for item in items).items())),
        "characters": _spread([item.characters for item in items]),
        "lines": _spread([item.lines for item in items]),
        "widest_line": max(len(line) for item in items for line in item.art.split("\n")),
    }


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(name for name in names if name).most_common())


def _spread(values: Sequence[int]) -> dict[str, float]:
    return {"min": min(values), "max": max(values), "mean": sum(values) / len(values)}


def against_published(found: Mapping[str, Any], split: Literal["test", "train"] = "test") -> list[str]:
    """What `statistics` finds otherwise than the paper, a sentence each; none = the published set, by its counts.

    Means are compared to the digits printed (and against 635.5 characters, not the 63,553 of the repository).
    """
    from assay.multimodal.asciieval.boards import published

    known = published()["data"]
    wanted = {
        "items": known[f"{split}_items"],
        "concepts": known.get("concepts" if split == "test" else "train_concepts"),
    }
    if split == "test":
        wanted |= {"groups": known["groups"], "classes": known["classes"]}
    wanted |= {"characters": known[f"{split}_characters"], "lines": known[f"{split}_lines"]}
    differences = []
    for name, value in wanted.items():
        here = found[name]
        if not isinstance(value, Mapping):
            value, here = {"": value}, {"": here}
        for part in [*value, *(part for part in here if part not in value)]:
            a, b = here.get(part, 0), value.get(part, 0)
            digits = len(str(b).partition(".")[2]) if isinstance(b, float) else 0
            if round(a, digits) != b:
                differences.append(f"{name}{f' {part}' if part else ''}: {round(a, digits)} here, {b} published.")
    return differences


def suspicious(items: Sequence[Item]) -> dict[str, list[str]]:
    """Ids of items to look at, by reason: ``cut`` (larger than the published canvas, so the picture loses what the text
    keeps), ``named`` (the right name stands in the drawing as text), ``not ASCII``, ``control`` (characters that the
    renderer drops, tabs and carriage returns among them)."""
    from assay.multimodal.asciieval.kit import text_hints
    from assay.multimodal.asciieval.rendering import truncated

    found: dict[str, list[str]] = {"cut": [], "named": [], "not ASCII": [], "control": []}
    for item in items:
        reasons = {
            "cut": truncated(item.art),
            "named": bool(text_hints(item.art, [item.right])),
            "not ASCII": not item.art.isascii(),
            "control": any(char != "\n" and ord(char) < 32 for char in item.art),
        }
        for reason, holds in reasons.items():
            if holds:
                found[reason].append(item.id)
    return found
