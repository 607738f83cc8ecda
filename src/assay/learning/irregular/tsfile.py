"""`.ts` files of the UCR and UEA archives: with or without time stamps, missing values, unequal lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from assay.core.errors import DataError
from assay.learning.irregular.array import Array, IrregularArray, from_dense


@dataclass(frozen=True, slots=True)
class TsFile:
    """Series of shape (channels, T_i), their times [T_i] where the file has time stamps, labels, and the header."""

    series: Sequence[Array]
    labels: Sequence[str]
    times: Sequence[Array] | None = None
    header: Mapping[str, str] = field(default_factory=dict)


def read_ts(path: Path | str) -> TsFile:
    """Read a `.ts` file; ``?`` and ``NaN`` are missing.

    Raises
    ------
    DataError
        With file and line: no header, a value that is no number, channels that differ, a label that the header lacks.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"File {path} does not exist.")
    header: dict[str, str] = {}
    series: list[Array] = []
    times: list[Array] = []
    labels: list[str] = []
    in_data = stamped = labelled = False
    classes: set[str] = set()
    for line, text in _lines(path):
        if not in_data:
            if not text.startswith("@"):
                raise DataError(f"{path}, line {line}: {text[:40]!r} stands before @data; a header line begins with @.")
            key, _, value = text[1:].partition(" ")
            header[key.lower()] = value.strip()
            if key.lower() == "data":
                in_data = True
                stamped = header.get("timestamps", "false").lower() == "true"
                told = header.get("classlabel", "false").split()
                labelled = (bool(told) and told[0].lower() == "true") or "targetlabel" in header
                classes = set(told[1:]) if labelled else set()
            continue
        parts = _split(text, stamped)
        if labelled:
            labels.append(parts.pop().strip())
            if classes and labels[-1] not in classes:
                raise DataError(f"{path}, line {line}: label {labels[-1]!r} is not in the header's @classLabel.")
        channels, stamps = _channels(parts, stamped, path, line)
        if series and len(channels) != len(series[0]):
            raise DataError(
                f"{path}, line {line}: {len(channels)} channels, but the first series has {len(series[0])}."
            )
        series.append(channels)
        times.append(stamps)
    if not in_data:
        raise DataError(f"{path} has no @data line; it is no .ts file.")
    if not series:
        raise DataError(f"{path} holds no series.")
    return TsFile(series, labels, times if stamped else None, header)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        for line, text in enumerate(stream, 1):
            text = text.strip()
            if text and not text.startswith(("#", "%")):
                yield line, text


def _split(text: str, stamped: bool) -> list[str]:
    if not stamped:
        return text.split(":")
    # Inside parentheses a colon belongs to a clock time.
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == ":" and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _channels(parts: Sequence[str], stamped: bool, path: Path, line: int) -> tuple[Array, Array]:
    if stamped:
        return _stamped(parts, path, line)
    rows = []
    for part in parts:
        fields = [f.strip() for f in part.split(",")] if part.strip() else []
        try:
            rows.append(np.array([np.nan if f in ("?", "") else float(f) for f in fields]))
        except ValueError:
            bad = next(f for f in fields if not _number(f))
            raise DataError(f"{path}, line {line}: value {bad[:30]!r} is no number.") from None
    longest = max((len(row) for row in rows), default=0)
    out = np.full((len(rows), longest), np.nan)
    for at, row in enumerate(rows):
        out[at, : len(row)] = row
    return out, np.arange(longest, dtype=float)


def _stamped(parts: Sequence[str], path: Path, line: int) -> tuple[Array, Array]:
    found: list[dict[float, float]] = []
    for part in parts:
        pairs: dict[float, float] = {}
        for item in part.strip().strip("()").split("),("):
            if not item.strip():
                continue
            stamp, _, value = item.rpartition(",")
            time = _time(stamp.strip())
            if time is None or not (_number(value) or value.strip() == "?"):
                raise DataError(f"{path}, line {line}: ({item[:40]}) is no pair (time, value).")
            if time in pairs:
                raise DataError(f"{path}, line {line}: time {stamp.strip()!r} occurs twice in a channel.")
            pairs[time] = np.nan if value.strip() == "?" else float(value)
        found.append(pairs)
    union = np.array(sorted({t for pairs in found for t in pairs}))
    out = np.array([[pairs.get(t, np.nan) for t in union] for pairs in found]).reshape(len(found), len(union))
    return out, union


def _time(text: str) -> float | None:
    if _number(text):
        return float(text)
    try:
        return float(np.datetime64(text.replace(" ", "T"), "ns").astype(np.int64)) * 1e-9
    except ValueError:
        return None


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def archive_array(train: Path | str, test: Path | str, name: str) -> IrregularArray:
    """Array of an archive's two files: ids ``train_0001`` and so on, labels encoded 0 to K - 1 in text order."""
    sides = {"test": read_ts(test), "train": read_ts(train)}
    ids, split, labels, series, times = [], [], [], [], []
    for side, found in sides.items():
        width = len(str(len(found.series)))
        if len(found.labels) != len(found.series):
            raise DataError(f"{name}: the {side} file has no class labels.")
        ids += [f"{side}_{i:0{width}d}" for i in range(len(found.series))]
        split += [side] * len(found.series)
        labels += list(found.labels)
        series += list(found.series)
        times += list(found.times or [np.arange(x.shape[1], dtype=float) for x in found.series])
    classes, y = np.unique(np.array(labels), return_inverse=True)
    longest = max(x.shape[1] for x in series)
    stamps = np.full((len(series), longest), np.nan)
    for at, t in enumerate(times):
        stamps[at, : len(t)] = t
    array = from_dense(series, stamps, y=y.ravel(), split=np.array(split), ids=ids, attrs={"title": name})
    return array.with_static(class_labels=classes[y.ravel()])


def write_ts(array: IrregularArray, path: Path | str, task: str = "default", name: str = "irregular") -> None:
    """Series of an array as a `.ts` file with time stamps; labels are the config's target."""
    from assay.learning.irregular.dense import to_dense

    X, T = to_dense(array)
    y, _ = array.target_and_split(task)
    lines = [
        f"@problemName {name}", "@timeStamps true", "@missing true", f"@univariate {str(X.shape[1] == 1).lower()}",
        f"@dimensions {X.shape[1]}", "@equalLength false",
        "@classLabel true " + " ".join(str(c) for c in np.unique(y)), "@data",
    ]  # fmt: skip
    for x, t, label in zip(X, T[:, 0], y):
        channels = []
        for row in x:
            there = ~np.isnan(row)
            channels.append(",".join(f"({a!r},{b!r})" for a, b in zip(t[there].tolist(), row[there].tolist())))
        lines.append(":".join([*channels, str(label)]))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
