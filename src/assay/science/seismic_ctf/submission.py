"""Published predictions: a folder with a matrix a pair, a results folder of the framework, or a CSV of few features.

Whoever validates and whoever grades read through here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.benchmark import Outcome
from assay.core.errors import DataError, DataFaults
from assay.science.seismic_ctf import scoring
from assay.science.seismic_ctf.data import SUFFIXES, CTFDataset, read_matrix

Row = tuple[str, str, int, Outcome]
MOST_FAULTS = 1000


@dataclass(frozen=True, slots=True)
class ReadPrediction:
    """A prediction that was read and checked: name and place of its file.

    A class of its own, so that an output that came as JSON from somebody's run folder can name no file to read.
    """

    predictions: str
    file: str


def read_submission(path: Path, sets: Mapping[str, CTFDataset], pairs: Mapping[str, Sequence[int]]) -> Iterator[Row]:
    """Predictions as (data set, pair, attempt, outcome); every matrix is checked for shape, type and finite numbers.

    Accepted are, for a single data set or below a folder of its name: ``pairN.npy`` (.npz, .mat) or
    ``pairN/predictions.npy``; or one CSV with the columns ``id,pair_id,timestep`` and one a feature. A folder named
    ``attemptK`` (or ``seedK``) around these gives attempt K.

    Raises
    ------
    DataError
        Nothing is found; or, once everything is read, all that is wrong, with file and line (`DataFaults`).
    """
    if path.is_file() and path.suffix.lower() == ".csv":
        yield from _read_csv(path, _only(sets, path), pairs)
        return
    if path.is_file() and len(sets) == 1 and (number := _pair_number(path.stem)) is not None:
        (name,) = sets
        yield _row(path, sets[name], name, number, pairs, 0)
        return
    if not path.is_dir():
        raise DataError(f"{path} is no submission: give a folder with pair1.npy ... or a CSV.")
    found, faults = False, []
    for name in sets:
        base = path / name if (path / name).is_dir() else path if len(sets) == 1 else None
        if base is None:
            raise DataError(f"{path} has no folder {name!r}; a submission for several data sets has one for each.")
        inside = [f for f in sorted(base.iterdir()) if f.is_dir()]
        tries = {a: f for f in inside if (a := _attempt(f.name)) is not None} or {0: base}
        for attempt, folder in tries.items():
            tables = sorted(folder.glob("*.csv"))
            if len(tables) == 1 and not list(folder.glob("pair*")):
                found = True
                yield from _read_csv(tables[0], sets[name], pairs, attempt)
                continue
            for entry in sorted(folder.iterdir(), key=lambda e: (_pair_number(e.stem) or 0, e.name)):
                number = _pair_number(entry.stem)
                if number is None:
                    continue
                file = entry
                if entry.is_dir():
                    files = [entry / f"predictions{s}" for s in SUFFIXES if (entry / f"predictions{s}").is_file()]
                    if not files:
                        faults.append(f"{entry} holds no predictions.npy.")
                        continue
                    file = files[0]
                found = True
                try:
                    yield _row(file, sets[name], name, number, pairs, attempt)
                except DataError as error:
                    faults.append(str(error))
    if faults:
        raise DataFaults(faults)
    if not found:
        raise DataError(f"{path} holds no predictions: expected pair1.npy, pair1/predictions.npy or a CSV.")


def _only(sets: Mapping[str, CTFDataset], path: Path) -> CTFDataset:
    if len(sets) != 1:
        raise DataError(
            f"{path}: a CSV is for one data set, and {len(sets)} are chosen; put one into a folder for each."
        )
    return next(iter(sets.values()))


def _pair_number(stem: str) -> int | None:
    match = re.fullmatch(r"pair_?(\d{1,3})(_predictions)?", stem)
    return int(match[1]) if match else None


def _attempt(name: str) -> int | None:
    match = re.fullmatch(r"(?:attempt|seed|run)_?(\d{1,4})", name)
    return int(match[1]) if match else None


def _expected(data: CTFDataset, number: int, pairs: Mapping[str, Sequence[int]], where: str) -> tuple[int, int]:
    if number not in pairs[data.name if data.name in pairs else next(iter(pairs))]:
        raise DataError(f"{where}: there is no pair {number} among the chosen ones of {data.name}.")
    return data.definition.shapes[data.definition.pair(number).test]


def _row(file: Path, data: CTFDataset, name: str, number: int, pairs: Mapping[str, Sequence[int]], attempt: int) -> Row:
    shape = _expected(data, number, pairs, str(file))
    scoring.checked(read_matrix(file), shape, f"{file}: the prediction of pair {number}")
    if file.is_symlink():
        raise DataError(f"{file} is a link; a prediction must be a file of its own.")
    output = ReadPrediction(file.name, str(file.resolve()))
    return name, f"pair{number}", attempt, Outcome(output=output, groups={"ended": "ok"})


def _read_csv(path: Path, data: CTFDataset, pairs: Mapping[str, Sequence[int]], attempt: int = 0) -> Iterator[Row]:
    import csv

    import numpy as np

    rows: dict[int, dict[int, list[float]]] = {}
    faults: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            head = [cell.strip() for cell in next(reader, [])]
            if head[:3] != ["id", "pair_id", "timestep"] or len(head) < 4:
                raise DataError(
                    f"{path}, line 1: columns must be id, pair_id, timestep, then features; got {str(head[:5])[:120]}."
                )
            for cells in reader:
                try:
                    number, step, values = _read_line(cells, head, data, pairs, f"{path}, line {reader.line_num}")
                    if step in rows.setdefault(number, {}):
                        raise DataError(
                            f"{path}, line {reader.line_num}: timestep {step} of pair {number} is given twice."
                        )
                    rows[number][step] = values
                except DataError as error:
                    faults.append(str(error))
                    if len(faults) >= MOST_FAULTS:
                        break
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text.") from None
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV ({error}).") from None
    for number, steps in sorted(rows.items()):
        shape = _expected(data, number, pairs, str(path))
        if len(steps) != shape[0] and not faults:
            gap = next(i for i in range(shape[0]) if i not in steps)
            faults.append(f"{path}: pair {number} has {len(steps)} of {shape[0]} rows; timestep {gap} is missing.")
    if faults:
        raise DataFaults(faults)
    name = data.name if data.name in pairs else next(iter(pairs))
    for number, steps in sorted(rows.items()):
        values = np.array([steps[i] for i in range(len(steps))])
        output: dict[str, Any] = {"predictions": path.name, "values": values.tolist()}
        yield name, f"pair{number}", attempt, Outcome(output=output, groups={"ended": "ok"})


def _read_line(
    cells: list[str], head: list[str], data: CTFDataset, pairs: Mapping[str, Sequence[int]], where: str
) -> tuple[int, int, list[float]]:
    """Pair, timestep and values of one line."""
    if len(cells) != len(head):
        raise DataError(f"{where}: {len(cells)} fields, expected {len(head)}.")
    number, step = _whole(cells[1], where, "pair_id"), _whole(cells[2], where, "timestep")
    if cells[0].strip() != f"{number}_{step}":
        raise DataError(f"{where}: the id {cells[0][:40]!r} is not {number}_{step}.")
    shape = _expected(data, number, pairs, where)
    if len(head) - 3 != shape[1]:
        raise DataError(f"{where}: {len(head) - 3} features; {data.name}, pair {number} has {shape[1]}.")
    if step >= shape[0]:
        raise DataError(f"{where}: timestep {step}; pair {number} has 0 to {shape[0] - 1}.")
    return number, step, [_number(c, where, n) for c, n in zip(cells[3:], head[3:], strict=True)]


def _whole(text: str, where: str, field: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise DataError(f"{where}: {field} {text[:40]!r} is not a whole number.")
    return int(text)


def _number(text: str, where: str, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"{where}: {field} {text[:40]!r} is not a number.") from None
    if value - value != 0:
        raise DataError(f"{where}: {field} is {value}, which is not finite.")
    return value
