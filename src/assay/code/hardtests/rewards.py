"""Suites as training signals: reward functions in the signatures of TRL, veRL and OpenRLHF, and rejection sampling."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.code.hardtests.suite import TestSuite
from assay.code.hardtests.verifying import opened, verify
from assay.code.hardtests.writing import program_in
from assay.core.cache import ContentCache, content_key
from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from assay.sandbox import Sandbox


class CodeReward:
    """Reward 1 for a completion whose program passes all tests, else 0; no readable program is 0 too.

    An instance is TRL's reward function: ``GRPOTrainer(reward_funcs=CodeReward(suites))`` over a data set with a
    column ``pid``; ``compute_score`` is veRL's, ``reward_func`` OpenRLHF's. A mistake in the arguments raises, it
    never gives a silent None or 0. Verdicts are kept by (problem, program), so a repeated program costs nothing.

    Parameters
    ----------
    suites
        By problem; an empty suite is refused, it would reward nothing.
    language
        Of the programs.
    partial
        Share of tests passed in place of 1 or 0: denser, and easier to game.
    folder
        Where rewards are kept beyond this process, by content of suite and program; None = nowhere.
    """

    __name__ = "code_reward"  # trainers name a reward by it

    def __init__(
        self, suites: Iterable[TestSuite], *, language: str = "python3", box: Sandbox | None = None,
        partial: bool = False, workers: int = 2, folder: Path | None = None,
    ) -> None:  # fmt: skip
        self.suites = {suite.pid: suite for suite in suites}
        empty = [pid for pid, suite in self.suites.items() if not suite.cases]
        if empty:
            raise UsageError(f"The suite of {empty[0]!r} has no tests; train on problems that have some.")
        self.language, self.box, self.partial, self.workers = language, box, partial, workers
        self._known: dict[tuple[str, str], float] = {}
        self._cache = None if folder is None else ContentCache(folder)
        self._contents: dict[str, str] = {}

    def rewards(self, pids: Sequence[str], completions: Sequence[Any]) -> list[float]:
        """One reward a completion (a text, or a list of messages whose last is taken)."""
        if len(pids) != len(completions):
            raise UsageError(
                f"There are {len(completions)} completions and {len(pids)} problem ids; one each is needed."
            )
        asked: list[tuple[str, str] | None] = []
        for pid, completion in zip(pids, completions):
            if pid not in self.suites:
                raise UsageError(f"There is no suite of problem {pid!r} among the {len(self.suites)} given.")
            code, _ = program_in(_text(completion), self.language)
            asked.append(None if code is None else (pid, code))
        new = list(dict.fromkeys(key for key in asked if key is not None and key not in self._known))
        if new:
            with opened(self.box) as box, ThreadPoolExecutor(self.workers) as threads:
                self._known |= zip(new, threads.map(lambda key: self._reward(key[0], key[1], box), new))
        return [0.0 if key is None else self._known[key] for key in asked]

    def _reward(self, pid: str, code: str, box: Sandbox) -> float:
        if self._cache is None:
            return self._judged(pid, code, box)
        if pid not in self._contents:
            self._contents[pid] = content_key(self.suites[pid].to_row())
        key = ["hardtests reward", self._contents[pid], self.language, self.partial, code]
        return self._cache.get_or(key, lambda: self._judged(pid, code, box))

    def _judged(self, pid: str, code: str, box: Sandbox) -> float:
        until = "kind" if self.partial else "first"
        found = verify(self.suites[pid], code, self.language, box=box, until=until)
        return found.pass_rate if self.partial else float(found.accepted)

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        """TRL: columns of the data set come as lists by name; ``pid`` is needed."""
        if "pid" not in columns:
            raise UsageError(
                "The reward needs the column 'pid' of the data set, and got none; keep it when you map the data."
            )
        return self.rewards(columns["pid"], completions)

    def compute_score(
        self, data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> float:  # fmt: skip
        """veRL: ``ground_truth`` is the problem's id, or the JSON text of a suite's row."""
        pid = ground_truth
        if ground_truth.lstrip().startswith("{"):
            try:
                suite = TestSuite.from_row(json.loads(ground_truth), "ground_truth")
            except ValueError as error:
                raise DataError(f"ground_truth is neither a problem's id nor a suite's row ({error}).") from None
            pid = suite.pid
            if pid not in self.suites:
                if not suite.cases:
                    raise UsageError(f"The suite of {pid!r} in ground_truth has no tests.")
                self.suites[pid] = suite
        return self.rewards([pid], [solution_str])[0]

    def reward_func(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **_: Any
    ) -> dict[str, Any]:
        """OpenRLHF: a query is prompt and answer in one, a label the problem's id."""
        import torch

        answers = [
            query[len(prompt) :] if query.startswith(prompt) else query for query, prompt in zip(queries, prompts)
        ]
        found = torch.tensor(self.rewards(labels, answers))
        return {"rewards": found, "scores": found, "extra_logs": {"accepted": (found == 1).float().mean()}}


def _text(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    try:
        return str(completion[-1]["content"] or "")  # None: a message that only calls tools
    except (TypeError, KeyError, IndexError):
        raise UsageError(f"A completion is a text or a list of messages, not {str(completion)[:60]!r}.") from None


class Kept(NamedTuple):
    """Trajectories that were accepted, and what fell and why (as (place, reason))."""

    rows: list[dict[str, Any]]
    fallen: list[tuple[int, str]]


def rejection_sample(
    rows: Sequence[Mapping[str, Any]], suites: Mapping[str, TestSuite], *, language: str = "python3",
    most: int | None = None, box: Sandbox | None = None, workers: int = 2,
) -> Kept:  # fmt: skip
    """Keep the trajectories whose program is accepted.

    Parameters
    ----------
    rows
        With ``pid`` and ``completion``.
    most
        At most so many of a problem, the first ones; None = all.
    """
    reward = CodeReward((s for s in suites.values() if s.cases), language=language, box=box, workers=workers)
    usable = [place for place, row in enumerate(rows) if row["pid"] in reward.suites]
    scores = dict(
        zip(usable, reward.rewards([rows[i]["pid"] for i in usable], [rows[i]["completion"] for i in usable]))
    )
    kept: list[dict[str, Any]] = []
    fallen: list[tuple[int, str]] = []
    count: dict[str, int] = {}
    for place, row in enumerate(rows):
        pid = row["pid"]
        if place not in scores:
            fallen.append((place, "no suite"))
        elif scores[place] < 1:
            fallen.append((place, "rejected"))
        elif most is not None and count.get(pid, 0) >= most:
            fallen.append((place, f"more than {most} of its problem"))
        else:
            count[pid] = count.get(pid, 0) + 1
            kept.append(dict(row))
    return Kept(kept, fallen)
