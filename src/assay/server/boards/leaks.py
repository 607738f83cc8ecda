"""Search of published files for hidden truth: `assay audit`.

Three ways to leak are told apart. A *distinctive* target (a long text, a number of five or more digits, a row of an
array) leaks wherever it stands. A *common* one (a label, a small number) leaks where it stands with its sample: in a
row, a line, a file name, a folder, under other names or on another scale. A column without ids counts by its order.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError, UsageError, unknown_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ID_FIELDS = ("id", "sample", "sample_id", "sampleid", "item", "item_id", "key", "pid", "uid", "name", "index")
TARGET_FIELDS = ("target", "label", "labels", "answer", "truth", "gold", "class", "y", "y_true", "expected", "solution")
SHINGLE = 12
_WORD = re.compile(r"[^\s,;:|\"'()\[\]{}<>=]+")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Leak:
    """A target value in a published file."""

    file: str
    place: str
    what: str


@dataclass
class Found:
    """What a search found. ``unread`` names files that could not be searched, or only as bytes."""

    leaks: list[Leak] = field(default_factory=list)
    files: int = 0
    unread: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Truth:
    """Hidden values: by field a value a sample, with the sample's id where it has one; and arrays by name."""

    ids: list[str]
    fields: dict[str, list[Any]]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = {key: i for i, key in enumerate(self.ids)}
        self.texts: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self.exact: dict[Any, str] = {}
        for name, values in self.fields.items():
            for i, value in enumerate(values):
                for leaf in _leaves(value):
                    self._learn(leaf, self.named(name, i))
        for name, array in self.arrays.items():
            if array.ndim == 1 and array.dtype.kind == "f":
                for i, key in enumerate(number_keys(array).tolist()):
                    if _distinctive_key(key):
                        self.exact.setdefault(key, f"{name}[{i}]")

    def _learn(self, leaf: Any, name: str) -> None:
        if isinstance(leaf, str):
            text = squeezed(leaf)
            if len(text) >= SHINGLE:
                self.texts[text[:SHINGLE]].append((text, name))
        elif (
            isinstance(leaf, (int, float)) and not isinstance(leaf, bool) and _distinctive_key(key := number_key(leaf))
        ):
            self.exact.setdefault(key, name)

    def named(self, name: str, i: int) -> str:
        """A target in words."""
        return f"{name} of {self.ids[i]}" if self.ids else f"{name}[{i}]"

    @property
    def values(self) -> list[Any]:
        """All values of fields, and the arrays."""
        return [v for values in self.fields.values() for v in values] + list(self.arrays.values())


# -- canonical forms ---------------------------------------------------------------------------------------------------


def squeezed(text: str) -> str:
    """Text without differences of case and blanks."""
    return _SPACE.sub(" ", text).strip().casefold()


def number_keys(values: Any) -> NDArray[np.int64]:
    """Numbers to six significant digits, as integers: float32, float64 and printed ones meet. Not finite or 0: 0."""
    import numpy as np

    x = np.asarray(values, dtype=np.float64)
    usable = np.isfinite(x) & (x != 0)
    safe = np.where(usable, x, 1.0)
    exponent = np.floor(np.log10(np.abs(safe)))
    mantissa = np.rint(safe / 10.0 ** (exponent - 5))
    over = np.abs(mantissa) >= 1e6
    mantissa, exponent = np.where(over, mantissa / 10, mantissa), np.where(over, exponent + 1, exponent)
    keys = np.sign(mantissa) * (np.abs(mantissa) * 1000 + exponent + 400)
    return np.where(usable, keys, 0).astype(np.int64)


def number_key(value: float) -> int:
    """`number_keys` of one number."""
    try:
        return int(number_keys([float(value)])[0])
    except OverflowError:
        return 0


def _distinctive_key(key: int) -> bool:
    """Whether a number has five significant digits or more."""
    return (abs(key) // 1000) % 100 != 0


def canonical(value: Any) -> str:
    """A value as it is compared with another: 1, 1.0, "1" and True are one."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(canonical, value))}]"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return f"{float(value):.6g}" if math.isfinite(float(value)) else str(value)
    text = squeezed(str(value))
    try:
        return f"{float(text):.6g}"
    except (ValueError, OverflowError):
        return {"true": "1", "false": "0"}.get(text, text)


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        yield value


# -- the truth ---------------------------------------------------------------------------------------------------------


def read_truth(path: Path, wanted: str | None = None) -> Truth:
    """The targets of a file, or of all files of a folder.

    Parameters
    ----------
    wanted
        Field that is the target; None = the fields with a name of one, else all but the id.

    Raises
    ------
    DataError
        There is no target in it.
    """
    from assay.server.boards.looking import documents

    if not path.exists():
        raise UsageError(f"There is no truth at {path}.")
    ids: list[str] = []
    fields: dict[str, list[Any]] = {}
    arrays: dict[str, Any] = {}
    for document in documents(path):
        if document.kind == "array":
            arrays[f"{document.file}:{document.place}".rstrip(":")] = document.content
        elif document.kind == "table" and not fields:
            ids, fields = _targets(document.content, wanted)
    if wanted and wanted not in fields and not any(wanted in name for name in arrays):
        raise unknown_name("field", wanted, [*fields, *arrays])
    if not fields and not arrays:
        raise DataError(f"{path} holds no table and no array with targets.")
    return Truth(ids, fields, arrays)


def _targets(columns: Mapping[str, Sequence[Any]], wanted: str | None) -> tuple[list[str], dict[str, list[Any]]]:
    lower = {name.rpartition(".")[2].casefold(): name for name in reversed(list(columns))}
    key = next((lower[n] for n in ID_FIELDS if n in lower and lower[n] != wanted), None)
    if key is None:
        key = next((n for n, v in columns.items() if n != wanted and len({str(x) for x in v}) == len(v) > 1
                    and all(isinstance(x, str) for x in v)), None)  # fmt: skip
    ids = [str(x) for x in columns[key]] if key is not None else []
    if wanted:
        chosen = [n for n in columns if n == wanted]
    else:
        chosen = [lower[n] for n in TARGET_FIELDS if n in lower and lower[n] != key] or [n for n in columns if n != key]
    return ids, {n: list(columns[n]) for n in chosen}


# -- the search --------------------------------------------------------------------------------------------------------


def find_leaks(folder: Path, truth: Truth) -> Found:
    """Search all files below a folder (or one file) for target values."""
    from assay.server.boards.looking import documents

    if not folder.exists():
        raise UsageError(f"There is nothing at {folder}.")
    found = Found()
    names: list[str] = []
    pictures: dict[str, dict[str, Any]] = {}
    for document in documents(folder):
        if document.kind == "file":
            found.files += 1
            names.append(document.file)
        elif document.kind == "unread":
            found.unread.append((document.file, str(document.content)))
        elif document.kind == "table":
            found.leaks += _in_table(document.file, document.place, document.content, truth)
        elif document.kind == "array":
            found.leaks += _in_array(document.file, document.place, document.content, truth)
        elif document.kind == "picture":
            pictures[document.file] = document.content
            for key, value in document.content.items():
                found.leaks += _in_text(document.file, f"metadata {key}", str(value), truth, lines=False)
        else:
            found.leaks += _in_text(document.file, document.place, document.content, truth)
    found.leaks += _in_names(names, truth)
    found.leaks += _in_pictures(pictures, truth)
    return found


def _in_table(file: str, place: str, columns: Mapping[str, Sequence[Any]], truth: Truth) -> list[Leak]:
    leaks = []
    rows = _rows_of(columns, truth)
    for name, values in columns.items():
        where = f"{place} field {name}".strip()
        if said := _distinctive_in(values, truth):
            leaks.append(Leak(file, where, said))
            continue
        key, places = rows
        if name == key:
            continue
        if places is None:
            if len(values) != len(next(iter(truth.fields.values()), ())):
                continue
            places = list(enumerate(range(len(values))))
        for target, known in truth.fields.items():
            pairs = [(values[row], known[i]) for row, i in places if _scalar(values[row]) and _scalar(known[i])]
            if said := related(pairs, name):
                leaks.append(Leak(file, where, f"{said} {target!r}"))
                break
    return leaks


def _rows_of(columns: Mapping[str, Sequence[Any]], truth: Truth) -> tuple[str | None, list[tuple[int, int]] | None]:
    """(id column, pairs of row and sample), by the column that holds most ids; (None, None) = no ids here."""
    best: tuple[str | None, list[tuple[int, int]] | None] = (None, None)
    for name, values in columns.items():
        pairs = [(row, truth.place[str(v)]) for row, v in enumerate(values) if _scalar(v) and str(v) in truth.place]
        if pairs and len(pairs) > len(best[1] or ()) and len({i for _, i in pairs}) * 2 > len(pairs):
            best = (name, pairs)
    return best


def _scalar(value: Any) -> bool:
    """Whether a value is compared as a whole: a label, a number, a short list of such (one-hot labels)."""
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= 64 and all(isinstance(v, (str, int, float, bool)) for v in value)
    return isinstance(value, (str, int, float, bool))


def _distinctive_in(values: Sequence[Any], truth: Truth) -> str:
    hits, first = 0, ""
    for row, value in enumerate(values, start=1):
        for leaf in _leaves(value):
            name = None
            if isinstance(leaf, str):
                name = _text_hit(squeezed(leaf), truth) or truth.exact.get(_key_of_text(leaf))
            elif isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
                name = truth.exact.get(number_key(leaf)) if truth.exact else None
            if name:
                hits += 1
                first = first or f"row {row} holds {name}"
    return f"{first}; {hits} values of targets in all" if hits > 1 else first


def _key_of_text(text: str) -> int | None:
    try:
        return number_key(float(text))
    except (ValueError, OverflowError):
        return None


def related(pairs: Sequence[tuple[Any, Any]], name: str = "") -> str:
    """How published values give targets away, "" when they do not. ``pairs``: (published, target) by sample."""
    pairs = [(canonical(v), canonical(t)) for v, t in pairs if v is not None and t is not None and v != ""]
    n, targets = len(pairs), {t for _, t in pairs}
    equal = sum(v == t for v, t in pairs)
    suspicious = name.rpartition(".")[2].casefold() in TARGET_FIELDS
    if n and equal == n and (suspicious or (n >= 3 and len(targets) > 1)):
        return f"equals in all of {n} samples the target"
    if n < 8 or len(targets) < 2:
        return ""
    # By chance at most as often as the commonest target, with four standard errors to spare.
    chance = max(Counter(t for _, t in pairs).values()) / n
    if equal >= 0.95 * n and equal / n > chance + 4 * math.sqrt(chance * (1 - chance) / n):
        return f"equals in {equal} of {n} samples the target"
    forward, backward = defaultdict(set), defaultdict(set)
    for v, t in pairs:
        forward[v].add(t)
        backward[t].add(v)
    one_to_one = all(len(s) == 1 for s in forward.values())
    if one_to_one and all(len(s) == 1 for s in backward.values()) and len(forward) <= n / 2:
        return f"is under other names ({n} samples) the target"
    if one_to_one and n >= 20 and len(forward) <= n / 4:
        return f"decides ({n} samples) the target"
    return _scaled(pairs)


def _scaled(pairs: Sequence[tuple[str, str]]) -> str:
    import numpy as np

    try:
        x, y = (np.array([float(p[side]) for p in pairs]) for side in (0, 1))
    except ValueError:
        return ""
    if len(np.unique(x)) < 5 or not np.isfinite(x).all() or not np.isfinite(y).all() or y.std() == 0:
        return ""
    return f"is on another scale ({len(x)} samples) the target" if abs(np.corrcoef(x, y)[0, 1]) > 0.99999 else ""


def _in_array(file: str, place: str, array: NDArray[Any], truth: Truth) -> list[Leak]:
    import numpy as np

    if array.dtype.kind not in "fiub":
        return []
    where = f"array {place}".strip()
    leaks = []
    for name, hidden in truth.arrays.items():
        if said := _same_rows(array, hidden):
            leaks.append(Leak(file, where, f"{said} of {name}"))
    flat = array.reshape(-1)
    if not leaks and truth.exact and flat.size and array.dtype.kind in "fi":
        hits = np.isin(number_keys(flat), np.array([k for k in truth.exact if isinstance(k, int)], dtype=np.int64))
        if hits.any():
            at = int(np.flatnonzero(hits)[0])
            index = [int(i) for i in np.unravel_index(at, array.shape)]
            first = truth.exact[int(number_keys(flat[at : at + 1])[0])]
            leaks.append(Leak(file, f"{where}{index}", f"holds {first}; {int(hits.sum())} values of targets in all"))
    columns = [array] if array.ndim == 1 else list(array.T) if array.ndim == 2 and array.shape[1] <= 200 else []
    for number, column in enumerate(columns):
        for name, known in truth.fields.items():
            if len(known) == len(column) and all(map(_scalar, known)):
                said = related(list(zip(column.tolist(), known)))
                if said:
                    spot = where if array.ndim == 1 else f"{where} column {number}"
                    leaks.append(Leak(file, spot, f"{said} {name!r}"))
        for name, hidden in truth.arrays.items():
            if hidden.ndim == 1 and len(hidden) == len(column):
                said = related(list(zip(column.tolist(), hidden.tolist())))
                if said and not any(leak.file == file and name in leak.what for leak in leaks):
                    leaks.append(Leak(file, where, f"{said} {name}"))
    return leaks


def _same_rows(array: NDArray[Any], hidden: NDArray[Any]) -> str:
    """Whether rows or columns of a hidden array stand in another as rows or columns."""
    import numpy as np

    if hidden.ndim < 2 or array.ndim < 2 or hidden.dtype.kind not in "fiu":
        return ""
    for side, turned in (("row", hidden), ("column", hidden.T)):
        if turned.shape[-1] < 3:
            continue
        wanted = {}
        for i, keys in enumerate(number_keys(turned.reshape(-1, turned.shape[-1]))):
            if len(np.unique(keys)) >= 3:
                wanted.setdefault(keys.tobytes(), i)
        for mine, own in (("row", array), ("column", array.T)):
            if own.shape[-1] != turned.shape[-1]:
                continue
            hits = [(j, wanted[k.tobytes()]) for j, k in enumerate(number_keys(own.reshape(-1, own.shape[-1])))
                    if k.tobytes() in wanted]  # fmt: skip
            if hits:
                return f"its {mine} {hits[0][0]} ({len(hits)} in all) is {side} {hits[0][1]}"
    return ""


def _in_text(file: str, place: str, text: str, truth: Truth, *, lines: bool = True) -> list[Leak]:
    leaks = []
    pairs: dict[str, list[tuple[bool, int, str]]] = defaultdict(list)
    hits, first = 0, ""
    for number, line in enumerate(text.splitlines() if lines else [text], start=1):
        where = f"line {number}" if lines else place
        words = _WORD.findall(line)
        name = _text_hit(squeezed(line), truth)
        if name is None and truth.exact:
            name = next((truth.exact[k] for w in words if (k := _key_of_text(w)) in truth.exact), None)
        if name:
            hits += 1
            first = first or f"{where}|holds {name}"
        known = {truth.place[w] for w in words if w in truth.place}
        if len(known) == 1:
            i = known.pop()
            others = {canonical(w) for w in words if w != truth.ids[i]}
            for target, values in truth.fields.items():
                if _scalar(values[i]):
                    pairs[target].append((canonical(values[i]) in others, number, canonical(values[i])))
    if hits:
        where, _, said = first.partition("|")
        leaks.append(Leak(file, where, said + (f"; {hits} lines with targets in all" if hits > 1 else "")))
    for target, told in pairs.items():
        right = sum(ok for ok, _, _ in told)
        several = len({t for _, _, t in told}) > 1
        if not hits and several and right >= 3 and right >= 0.95 * len(told):
            leaks.append(Leak(file, f"line {told[0][1]}", f"{right} lines hold a sample's id and its {target!r}"))
    return leaks


def _text_hit(text: str, truth: Truth) -> str | None:
    """The target that stands in a squeezed text, found by the first letters of each."""
    if not truth.texts or len(text) < SHINGLE:
        return None
    for at in range(len(text) - SHINGLE + 1):
        for target, name in truth.texts.get(text[at : at + SHINGLE], ()):
            if text.startswith(target, at):
                return name
    return None


def _in_names(names: Sequence[str], truth: Truth) -> list[Leak]:
    """Folders named after the class; names that hold id and label."""
    folders: list[tuple[str, int]] = []
    words: dict[str, list[tuple[bool, str]]] = defaultdict(list)
    for name in names:
        path = Path(name)
        parts = [path.stem, *re.split(r"[_\-.\s]+", path.stem)]
        i = next((truth.place[p] for p in parts if p in truth.place), None)
        if i is None:
            continue
        folders.append((path.parent.name, i))
        others = {canonical(p) for p in parts[1:] if p != truth.ids[i]}
        for target, values in truth.fields.items():
            if _scalar(values[i]):
                words[target].append((canonical(values[i]) in others, canonical(values[i])))
    leaks = []
    for target, values in truth.fields.items():
        if all(map(_scalar, values)) and (said := related([(folder, values[i]) for folder, i in folders])):
            leaks.append(Leak(names[0], "folder of the file", f"{said} {target!r}"))
        told = words.get(target, [])
        if len(told) >= 3 and len({t for _, t in told}) > 1 and all(ok for ok, _ in told):
            leaks.append(Leak(names[0], "name of the file", f"{len(told)} names hold a sample's id and its {target!r}"))
    return leaks


def _in_pictures(pictures: Mapping[str, Mapping[str, Any]], truth: Truth) -> list[Leak]:
    """Metadata of pictures that are named after their sample."""
    mine = {f: truth.place[Path(f).stem] for f in pictures if Path(f).stem in truth.place}
    leaks = []
    for key in dict.fromkeys(k for f in mine for k in pictures[f]):
        for target, values in truth.fields.items():
            pairs = [(pictures[f].get(key), values[i]) for f, i in mine.items() if _scalar(values[i])]
            if said := related(pairs, key):
                first = next(f for f in mine if key in pictures[f])
                leaks.append(Leak(first, f"metadata {key}", f"{said} {target!r}"))
    return leaks
