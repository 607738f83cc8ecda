"""Five regularity checks, partial observation, and what a file must satisfy to be a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from assay.core.errors import UsageError, unknown_name
from assay.learning.irregular.array import Array, IrregularArray

Signals = Sequence[Array]


def are_all_signals_sampled_at_constant_intervals(signals: Signals) -> bool:
    """No uneven sampling: inside each signal all intervals are equal. Fewer than two stamps pass."""
    for t in signals:
        steps = np.diff(t)
        if len(steps) and steps.min() != steps.max():
            return False
    return True


def are_all_signals_equal_length(signals: Signals) -> bool:
    """No ragged length: as many stamps in each signal, where one without any has length 0."""
    return len({len(t) for t in signals}) <= 1


def are_all_signals_not_offset(signals: Signals) -> bool:
    """All signals that have stamps begin together and end together."""
    seen = [t for t in signals if len(t)]
    return all(t[0] == seen[0][0] and t[-1] == seen[0][-1] for t in seen)


def are_all_signals_not_strongly_offset(signals: Signals) -> bool:
    """No signal both begins and ends later than another. O(m log m): by start, with the lowest end seen so far."""
    seen = [t for t in signals if len(t)]
    if not seen:
        return True
    starts = np.array([t[0] for t in seen])
    ends = np.array([t[-1] for t in seen])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    lowest = np.minimum.accumulate(ends)
    # The lowest end among signals that begin strictly earlier.
    earlier = np.searchsorted(starts, starts, side="left")
    later = earlier > 0
    return not bool((lowest[earlier[later] - 1] < ends[later]).any())


def do_all_signals_have_equal_sampling(signals: Signals) -> bool:
    """No ragged sampling: the k-th interval is the same in every signal that has one."""
    longest = max(signals, key=len, default=np.zeros(0))
    reference = np.diff(longest)
    return all(bool((np.diff(t) == reference[: len(t) - 1]).all()) for t in signals if len(t) > 1)


CHECKS: dict[str, Callable[[Signals], bool]] = {
    f.__name__: f
    for f in (
        are_all_signals_sampled_at_constant_intervals,
        are_all_signals_equal_length,
        are_all_signals_not_offset,
        are_all_signals_not_strongly_offset,
        do_all_signals_have_equal_sampling,
    )
}
KINDS = {
    "uneven sampling": "are_all_signals_sampled_at_constant_intervals",
    "ragged length": "are_all_signals_equal_length",
    "offset": "are_all_signals_not_offset",
    "shift": "are_all_signals_not_strongly_offset",
    "ragged sampling": "do_all_signals_have_equal_sampling",
}


def check_regularity(
    check: str | Callable[[Signals], bool],
    array: IrregularArray,
    ts_level: bool = True,
    return_percentage: bool = True,
) -> float | Array:
    """Share of groups that pass a check, or the verdicts.

    Parameters
    ----------
    check
        A name in `CHECKS`, or a function of the sorted stamp vectors of a group's signals.
    ts_level
        True: one group, the series of the data set, each the union of its signals' stamps. False: a group a series.
    return_percentage
        False returns the boolean vector.

    Notes
    -----
    Stamps are compared exactly. O(nnz log nnz) for the groups, O(m log m) in a group of m stamps.
    """
    if isinstance(check, str):
        if check not in CHECKS:
            raise unknown_name("regularity check", check, CHECKS)
        check = CHECKS[check]
    groups = union_signals(array) if ts_level else series_signals(array)
    verdicts = np.array([bool(check(group)) for group in groups], bool)
    if not return_percentage:
        return verdicts
    return float(verdicts.mean()) if len(verdicts) else float("nan")


def series_signals(array: IrregularArray) -> list[list[Array]]:
    """By series, the stamp vectors of all its signals (empty ones too)."""
    m = len(array.signal_id)
    stamps = _stamps(array)[array.coords[2]]
    bounds = np.searchsorted(array.coords[0] * m + array.coords[1], np.arange(len(array) * m + 1))
    vectors = [stamps[a:b] for a, b in pairwise(bounds)]
    return [vectors[i * m : (i + 1) * m] for i in range(len(array))]


def union_signals(array: IrregularArray) -> list[list[Array]]:
    """One group: by series, the union of the stamps of its signals."""
    width = max(1, len(array.time_id))
    key = np.unique(array.coords[0] * width + array.coords[2])
    stamps = _stamps(array)[key % width]
    bounds = np.searchsorted(key // width, np.arange(len(array) + 1))
    return [[stamps[a:b] for a, b in pairwise(bounds)]]


def missing_share(array: IrregularArray) -> float:
    """Partial observation: share of (signal, stamp) places of a series, stamps of its union, without a value."""
    places = int(array.lengths().sum()) * len(array.signal_id)
    there = int(np.count_nonzero(~np.isnan(array.data)))
    return 1 - there / places if places else float("nan")


def irregularities(array: IrregularArray) -> dict[str, bool]:
    """Which kinds of irregularity a data set has: the five of `KINDS`, and partial observation."""
    found: dict[str, bool] = {}
    per_series, union = series_signals(array), union_signals(array)
    for kind, name in KINDS.items():
        check = CHECKS[name]
        found[kind] = not (all(check(group) for group in per_series) and all(check(group) for group in union))
    found["partial observation"] = bool(missing_share(array) > 0)
    return found


def problems(array: IrregularArray) -> list[str]:
    """What keeps an array from being a data set of the repository, one sentence each; [] = nothing.

    Ids unique; no series without a value; the target and split of every config exist; splits are train and test, both
    present; classes are 0 to K - 1; every class of the test side is in the training side, which has two at least.
    """
    found: list[str] = []
    ids = array.ts_id
    if len(np.unique(ids)) != len(ids):
        found.append("ts_id holds an id twice.")
    have = np.zeros(len(array), bool)
    have[array.coords[0][~np.isnan(array.data)]] = True
    if not have.all():
        empty = ids[~have]
        found.append(f"Series {empty[0]!s} has no value at all ({len(empty)} such); drop them.")
    if not array.attrs.get("configs"):
        found.append("There is no attribute configs with a task, a split and a target.")
    for name, config in (array.attrs.get("configs") or {}).items():
        if config.get("task") in (None, "other"):
            continue
        try:
            y, split = array.target_and_split(name)
        except Exception as error:
            found.append(f"Config {name!r}: {error}")
            continue
        others = set(np.unique(split)) - {"train", "test"}
        if others:
            found.append(f"Config {name!r}: split holds {str(min(others))!r}; values are train and test.")
        if set(np.unique(split)) != {"train", "test"}:
            found.append(f"Config {name!r}: split needs both train and test series.")
        if config["task"] == "classification":
            found += _class_problems(name, y, split)
        elif y.dtype.kind not in "iuf" or bool(np.isnan(y.astype(float)).any()):
            found.append(f"Config {name!r}: a regression target needs a number for every series.")
    return found


def _class_problems(name: str, y: Array, split: Array) -> list[str]:
    found = []
    if y.dtype.kind not in "iub" or not np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
        found.append(f"Config {name!r}: classes are {list(np.unique(y))[:4]} ..., not 0 to K - 1.")
    train, test = set(y[split == "train"].tolist()), set(y[split == "test"].tolist())
    if len(train) < 2:
        found.append(f"Config {name!r}: the training side has one class.")
    if test - train:
        found.append(f"Config {name!r}: class {min(test - train)!r} is in test and not in train.")
    return found


def _stamps(array: IrregularArray) -> Array:
    times = array.time_id
    if times.dtype.kind == "U":
        try:
            times = times.astype("datetime64[ns]")
        except ValueError as error:
            raise UsageError(f"Time stamps are text that is no date ({times[0]!r}); read them as numbers.") from error
    return times.astype("datetime64[ns]").astype(np.int64) if times.dtype.kind == "M" else times
