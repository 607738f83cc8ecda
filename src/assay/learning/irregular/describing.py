"""Statistics of a data set, its regularity, and what is wrong with it: faults, doubles between the sides."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.learning.irregular.array import IrregularArray
from assay.learning.irregular.checks import CHECKS, check_regularity, irregularities, missing_share, problems
from assay.learning.irregular.dense import time_numbers


def statistics(array: IrregularArray, name: str = "") -> dict[str, Any]:
    """Sizes, lengths, missing share, variation of sampling intervals, class balance, licence."""
    lengths = array.lengths()
    found: dict[str, Any] = {
        "name": name or array.attrs.get("title", ""),
        "series": len(array),
        "signals": len(array.signal_id),
        "time_stamps": len(array.time_id),
        "values": array.nnz,
        "length_min": int(lengths.min(initial=0)) if len(lengths) else 0,
        "length_mean": float(lengths.mean()) if len(lengths) else float("nan"),
        "length_max": int(lengths.max(initial=0)),
        "missing": missing_share(array),
        "interval_variation": interval_variation(array),
        "licence": array.attrs.get("license", ""),
    }
    for config in array.config_names("classification"):
        y, split = array.target_and_split(config)
        for side in ("train", "test"):
            labels, counts = np.unique(y[split == side], return_counts=True)
            found[f"{config}_{side}"] = {str(label): int(count) for label, count in zip(labels, counts)}
    return found


def interval_variation(array: IrregularArray) -> float:
    """Sampling irregularity: mean over series of deviation by mean of the intervals between its time stamps."""
    width = max(1, len(array.time_id))
    key = np.unique(array.coords[0] * width + array.coords[2])
    owner, stamps = key // width, time_numbers(array.time_id)[key % width]
    steps, same = np.diff(stamps), owner[1:] == owner[:-1]
    steps, owner = steps[same], owner[1:][same]
    if not len(steps):
        return float("nan")
    n = np.bincount(owner, minlength=len(array))
    total = np.bincount(owner, steps, minlength=len(array))
    squares = np.bincount(owner, steps**2, minlength=len(array))
    there = n > 0
    mean = total[there] / n[there]
    deviation = np.sqrt(np.maximum(squares[there] / n[there] - mean**2, 0.0))
    return float(np.mean(deviation / np.where(mean > 0, mean, 1.0)))


def twins(array: IrregularArray, task: str = "default") -> list[tuple[str, str]]:
    """Pairs (training id, test id) of series with the same values and the same times from their start: leakage."""
    _, split = array.target_and_split(task)
    stamps = time_numbers(array.time_id)
    bounds = np.searchsorted(array.coords[0], np.arange(len(array) + 1))
    seen: dict[str, dict[bytes, list[str]]] = {"train": {}, "test": {}}
    for i in range(len(array)):
        part = slice(bounds[i], bounds[i + 1])
        times = stamps[array.coords[2, part]]
        start = times.min() if len(times) else 0.0
        print_ = array.data[part].tobytes() + array.coords[1, part].tobytes() + (times - start).tobytes()
        seen.setdefault(str(split[i]), {}).setdefault(print_, []).append(str(array.ts_id[i]))
    return [(a, b) for key, names in seen["train"].items() for a in names for b in seen["test"].get(key, ())]


def leaks(array: IrregularArray) -> list[str]:
    """A sentence a config with series that are on both sides of its split."""
    found = []
    for config in array.config_names():
        if array.attrs["configs"][config].get("split") and (pairs := twins(array, config)):
            a, b = pairs[0]
            found.append(f"Config {config!r}: {len(pairs)} training series are in the test side too, first {a} = {b}.")
    return found


def report(array: IrregularArray, name: str) -> str:
    """A section in Markdown: numbers, checks, kinds of irregularity, faults, doubles between the sides."""
    row = statistics(array, name)
    kinds = [kind for kind, there in irregularities(array).items() if there]
    faults = problems(array)
    faults = faults or leaks(array)
    lines = [
        f"## {name}",
        "",
        f"{row['series']} series x {row['signals']} signals, {row['values']} values; length {row['length_min']} to "
        f"{row['length_max']}, mean {row['length_mean']:.1f}; missing {row['missing']:.1%}; intervals vary by "
        f"{row['interval_variation']:.3g} of their mean.",
        "",
        f"Irregular by: {', '.join(kinds) or 'nothing'}. Licence: {row['licence'] or 'not stated'}.",
        "",
        "| check | series union | share of series |",
        "| --- | --- | --- |",
    ]
    for check in CHECKS:
        union = check_regularity(check, array, True)
        lines.append(f"| {check} | {'holds' if union else 'fails'} | {check_regularity(check, array, False):.3f} |")
    lines += ["", *(f"- {fault}" for fault in faults)]
    if not faults:
        lines.append("- No fault was found.")
    return "\n".join(lines)
