"""The review queue: every item is kept, fixed or dropped by a person, and a decision once made stays made.

The queue is a JSON lines file next to the items. A decision is appended as soon as it is made, so a review can stop
anywhere and go on later; of several decisions on one item the last counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from assay.core.errors import DataError
from assay.multimodal.asciieval.data import Item, item_from_row
from assay.multimodal.asciieval.kit import renamed_by_content, text_hints

VERDICTS = ("keep", "fix", "drop")


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of an item; ``row`` holds the fields that a fix changes, ``why`` is for the record."""

    id: str
    verdict: str
    row: Mapping[str, Any]
    why: str = ""
    reviewer: str = ""


def warnings_of(item: Item) -> list[str]:
    """What a reviewer should look at: text that gives the answer away, tiny or cut drawings, removed signatures."""
    from assay.multimodal.asciieval.rendering import truncated

    found = []
    hints = text_hints(item.art, item.choices)
    if hints:
        found.append(f"the drawing holds the text of {', '.join(hints)}")
    if sum(not char.isspace() for char in item.art) < 8:
        found.append("fewer than eight characters")
    if truncated(item.art):
        found.append("larger than the picture's canvas")
    if item.fields.get("info"):
        found.append(f"removed as a signature: {item.fields['info']}")
    if not item.art.isascii():
        found.append("characters beyond ASCII")
    return found


def read_decisions(path: Path) -> dict[str, Decision]:
    """Decisions by item id, the last of each; an absent file holds none.

    Raises
    ------
    DataError
        If a line names no item or an unknown verdict.
    """
    found: dict[str, Decision] = {}
    if not path.exists():
        return found
    from assay.core.datasets import read_jsonl

    for line, row in read_jsonl(path):
        where = f"{path}, line {line}"
        if not isinstance(row, Mapping) or not isinstance(row.get("id"), str):
            raise DataError(f"{where}: field 'id' must name an item; repair or drop the line.")
        if row.get("verdict") not in VERDICTS:
            raise DataError(
                f"{where}: field 'verdict' must be one of {', '.join(VERDICTS)}, not {row.get('verdict')!r}."
            )
        fix = row.get("row") or {}
        if not isinstance(fix, Mapping) or (row["verdict"] == "fix") != bool(fix):
            raise DataError(f"{where}: field 'row' must hold the changed fields of a fix, and of nothing else.")
        found[row["id"]] = Decision(row["id"], row["verdict"], fix, row.get("why", ""), row.get("reviewer", ""))
    return found


def add_decision(path: Path, decision: Decision) -> None:
    """Append a decision."""
    row = {name: getattr(decision, name) for name in ("id", "verdict", "row", "why", "reviewer")}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({k: v for k, v in row.items() if v}, ensure_ascii=False) + "\n")


def fixed(item: Item, changes: Mapping[str, Any]) -> Item:
    """An item with fields of its row changed and checked again."""
    row = {**item.row(), **changes}
    row.pop("id", None)
    if "ascii_art" in changes and "original_ascii_art" not in changes:
        row["original_ascii_art"] = item.fields.get("original_ascii_art", item.art)
    return renamed_by_content([item_from_row(row, f"fix of item {item.id}")])[0]


def apply(items: Iterable[Item], decisions: Mapping[str, Decision]) -> tuple[list[Item], dict[str, int]]:
    """Items that stay (fixed where asked), and counts of keep, fix, drop and undecided; undecided items stay out."""
    counts: dict[str, int] = dict.fromkeys([*VERDICTS, "undecided"], 0)
    kept = []
    for item in items:
        decision = decisions.get(item.id)
        counts[decision.verdict if decision else "undecided"] += 1
        if decision and decision.verdict == "keep":
            kept.append(item)
        elif decision and decision.verdict == "fix":
            kept.append(fixed(item, decision.row))
    return kept, counts


def ask(
    items: Sequence[Item],
    path: Path,
    reviewer: str = "",
    read: Callable[[], str] | None = None,
    write: TextIO | None = None,
) -> int:
    """Go through undecided items at the terminal; returns how many decisions were made.

    ``k`` keeps, ``d`` drops (with a reason), ``s`` edits: NAME=VALUE lines for ``concept``, ``group``, ``class``,
    ``style`` or ``choice1`` .. ``choice4``, an empty line ends; ``q`` or the end of input stops.
    """
    hear: Callable[[], str] = read if read is not None else sys.stdin.readline
    out = write or sys.stderr
    decided = read_decisions(path)
    made = 0
    waiting = [item for item in items if item.id not in decided]
    for number, item in enumerate(waiting, 1):
        out.write(
            f"\n[{number}/{len(waiting)}] {item.id}  {item.klass} > {item.group} > {item.concept}  ({item.style})\n"
        )
        out.write("".join(char for char in item.art if char == "\n" or char.isprintable()) + "\n")
        out.write(
            "  ".join(f"{'*' if at == item.answer else ''}{choice}" for at, choice in enumerate(item.choices)) + "\n"
        )
        for warning in warnings_of(item):
            out.write(f"! {warning}\n")
        decision = _decide(item, reviewer, hear, out)
        if decision is None:
            break
        add_decision(path, decision)
        made += 1
    return made


_FIELDS = {"concept": "category-3", "group": "category-2", "class": "category-1", "style": "style"}


def _decide(item: Item, reviewer: str, read: Callable[[], str], out: TextIO) -> Decision | None:
    while True:
        out.write("k(eep), s (fix), d(rop), q(uit): ")
        out.flush()
        line = read()
        key = line.strip().lower()[:1]
        if not line or key == "q":
            return None
        if key == "k":
            return Decision(item.id, "keep", {}, reviewer=reviewer)
        if key == "d":
            out.write("Why? ")
            out.flush()
            return Decision(item.id, "drop", {}, why=read().strip(), reviewer=reviewer)
        if key == "s":
            changes = _changes(item, read, out)
            try:
                if changes:
                    fixed(item, changes)
                    return Decision(item.id, "fix", changes, reviewer=reviewer)
            except DataError as error:
                out.write(f"{error}\n")


def _changes(item: Item, read: Callable[[], str], out: TextIO) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    choices = list(item.choices)
    while True:
        out.write("NAME=VALUE (empty line: done): ")
        out.flush()
        name, mark, value = read().strip().partition("=")
        if not name:
            return changes
        name, value = name.strip(), value.strip()
        if name in _FIELDS and mark:
            changes[_FIELDS[name]] = value
        elif name in ("choice1", "choice2", "choice3", "choice4") and mark:
            choices[int(name[-1]) - 1] = value
            changes["choices"] = choices
        else:
            out.write(f"Names are {', '.join(_FIELDS)}, choice1 .. choice4.\n")
