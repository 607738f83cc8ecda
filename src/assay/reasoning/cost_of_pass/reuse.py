"""Stored replies: first calls of techniques answered from the vanilla records of an earlier run.

Saves the money, not the bill: tokens and cost of a stored reply are counted as when it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError, UsageError
from assay.core.metering import Call, report_call

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class StoredReply:
    """One vanilla reply with the call that made it."""

    text: str
    stop_reason: str
    cost: float | None
    calls: tuple[Call, ...]


@dataclass
class StoredReplies:
    """Vanilla replies of a run by data set and problem.

    Parameters
    ----------
    path
        Run folder of this benchmark.
    replacement
        Draw with replacement; without, a trial never sees a reply twice.
    """

    path: Path
    replacement: bool = True

    @cached_property
    def replies(self) -> Mapping[tuple[str, str], list[StoredReply]]:
        """By (data set, problem)."""
        from assay.core.results import Run

        return read_replies(Run(self.path).records, self.path)

    def drawer(self, task: str, problem: str, rng: np.random.Generator) -> Callable[[], StoredReply]:
        """A function that draws one reply a call for one trial, and meters it there.

        Raises
        ------
        DataError
            There is no reply; from the function: none is left.
        """
        have = self.replies.get((task, problem))
        if not have:
            raise DataError(f"{self.path}: no vanilla record of problem {problem!r} of {task!r} to reuse.")
        left = [int(i) for i in rng.permutation(len(have))]

        def draw() -> StoredReply:
            if self.replacement:
                chosen = have[int(rng.integers(len(have)))]
            elif left:
                chosen = have[left.pop()]
            else:
                raise DataError(
                    f"{self.path}: only {len(have)} vanilla records of problem {problem!r}; without replacement a "
                    "technique cannot draw more."
                )
            for call in chosen.calls:
                report_call(call)
            return chosen

        return draw


def read_replies(records: Any, path: Path) -> dict[tuple[str, str], list[StoredReply]]:
    """Vanilla replies of records of this benchmark.

    Raises
    ------
    UsageError
        The records are of another benchmark, or hold no vanilla reply.
    """
    import polars as pl

    from assay.core.store import load_output

    if "technique" not in records.columns:
        raise UsageError(
            f"{path}: not a run of cost_of_pass (its records name no technique), so nothing can be reused."
        )
    plain = records.filter(pl.col("technique") == "vanilla", pl.col("status") == "ok", pl.col("output").is_not_null())
    found: dict[tuple[str, str], list[StoredReply]] = {}
    for row in plain.sort("task", "cluster", "attempt").iter_rows(named=True):
        output = load_output(path, row["output"])
        messages = output.get("messages", []) if isinstance(output, Mapping) else []
        said = [m["content"] for m in messages if m["role"] == "assistant"]
        if len(said) != 1:
            continue
        calls = tuple(
            # Nothing is spent now, and the reply counts as one from a cache.
            Call(**{**call, "cached": call["calls"], "paid": 0.0})
            for call in row["calls"]
            if call["role"] == "subject"
        )
        reply = StoredReply(said[0], row.get("stop_reason") or "stop", row.get("cost"), calls)
        found.setdefault((row["task"], row["cluster"]), []).append(reply)
    if not found:
        raise UsageError(f"{path}: no vanilla reply to reuse.")
    return found
